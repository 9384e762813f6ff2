"""`cluster=` in measures, audits, folds and paths."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import stdtrit
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh
from evenhand.auditing.group_tables import summarize_groups
from evenhand.data.criteria import CRITERIA
from evenhand.data.folds import make_folds
from evenhand.data.groups import Proxy, resolve_groups
from evenhand.data.sample import Sample
from evenhand.data.weights import cluster_folds, degrees_of_freedom
from evenhand.estimators.references import _one_of_each
from evenhand.measures.effective import EffectiveSizeWarning, SharedValuesWarning, independent_rows
from evenhand.measures.measures import critical_value, standard_error
from evenhand.training.held_out import critical

ESTIMATORS = ("logistic", "lspc", "fourier", "knn")


def _clustered(n_clusters=150, seed=0, most=8, whole=True):
    """Rows of clusters of 1 to `most`; with `whole` each of one group."""
    rng = np.random.default_rng(seed)
    cluster = np.repeat(np.arange(n_clusters), rng.integers(1, most + 1, n_clusters))
    n = len(cluster)
    a = rng.integers(0, 2, n_clusters)[cluster] if whole else rng.integers(0, 2, n)
    y = 0.5 * a + rng.normal(size=n_clusters)[cluster] + rng.normal(size=n)
    s = 0.6 * y + 0.6 * a + rng.normal(size=n_clusters)[cluster] + 0.5 * rng.normal(size=n)
    return y, s, a, cluster


def _numbers(audit):
    out = [x for m in audit.measures.values() for x in (m.value, m.nats, m.stderr, *m.interval)]
    for name, column in audit._groups.columns.items():
        if name not in ("group", "n_clusters"):
            out += column
    return np.array(out, dtype=float)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_clusters_of_one_row_are_no_clusters(estimator):
    y, s, a, _ = _clustered(whole=False)
    options = {"sensitive_features": a, "estimator": estimator}
    plain = eh.audit(y, s, **options)
    alone = eh.audit(y, s, cluster=np.random.default_rng(0).permutation(len(y)), **options)
    np.testing.assert_array_equal(_numbers(alone), _numbers(plain))
    assert alone.n_clusters is None


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_row_twice_is_every_row_once(estimator):
    y, s, a, _ = _clustered(most=4, whole=False)
    twice = np.repeat(np.arange(len(y)), 2)
    options = {"estimator": estimator}
    once = eh.audit(y, s, sensitive_features=a, **options)
    double = eh.audit(y[twice], s[twice], sensitive_features=a[twice], cluster=twice, **options)
    # Folds of Fourier features are drawn anew.
    near, far = (0.03, 0.5) if estimator == "fourier" else (1e-4, 0.15)
    for m, d in zip(once.measures.values(), double.measures.values(), strict=True):
        assert d.value == pytest.approx(m.value, abs=near)
        assert d.stderr == pytest.approx(m.stderr, rel=far)
        assert (d.n, d.n_clusters, d.n_effective) == (2 * m.n, m.n, m.n)
        assert m.n_clusters is None
    for name in ("mean_score", "mean_target", "rmse", "n_effective", "mean_score_low", "rmse_low"):
        np.testing.assert_allclose(
            double._groups.columns[name], once._groups.columns[name], rtol=0.02
        )


def test_every_row_twice_without_clusters_counts_once():
    y, s, a, _ = _clustered(most=4, whole=False)
    twice = np.repeat(np.arange(len(y)), 2)
    options = {"estimator": "logistic"}
    once = eh.audit(y, s, sensitive_features=a, **options)
    blind = eh.audit(y[twice], s[twice], sensitive_features=a[twice], **options)
    assert blind.n_copies == len(y)
    assert blind.separation.stderr == pytest.approx(once.separation.stderr, rel=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_names_of_clusters_do_not_matter(estimator):
    y, s, a, cluster = _clustered()
    names = np.random.default_rng(1).permutation(cluster.max() + 1)[cluster]
    options = {"sensitive_features": a, "estimator": estimator}
    numbers = eh.audit(y, s, cluster=cluster, **options)
    for renamed in (names, np.array([f"zip {k}" for k in names])):
        other = eh.audit(y, s, cluster=renamed, **options)
        np.testing.assert_allclose(_numbers(other), _numbers(numbers), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("measure", [eh.independence, eh.separation, eh.sufficiency])
def test_measures_and_audits_agree_on_any_form(measure):
    y, s, a, cluster = _clustered()
    audit = eh.audit(y, s, sensitive_features=a, cluster=cluster, estimator="logistic")
    value = getattr(audit, measure.__name__).value
    names = [f"c{k}" for k in cluster]
    for given in (cluster, names, pd.Series(names), pl.Series(names), pd.DataFrame({"zip": names})):
        found = measure(y, s, sensitive_features=a, cluster=given, estimator="logistic")
        assert found == pytest.approx(value, abs=1e-12)
    nats = measure(
        y, s, sensitive_features=a, cluster=cluster, estimator="logistic", normalize=False
    )
    assert nats == pytest.approx(getattr(audit, measure.__name__).nats, abs=1e-12)


@pytest.mark.parametrize("call", [eh.separation, eh.audit])
def test_messages(call):
    y, s, a, cluster = _clustered()
    with pytest.raises(ValueError, match=r"`cluster` must have one entry per row: got 3 for"):
        call(y, s, sensitive_features=a, cluster=[1, 2, 3])
    with pytest.raises(ValueError, match=r"at least two clusters, got one"):
        call(y, s, sensitive_features=a, cluster=np.zeros(len(y)))
    with pytest.raises(ValueError, match=r"got 3 that count for"):
        call(y, s, sensitive_features=a, cluster=cluster % 3)


def test_rows_of_weight_zero_leave_their_cluster():
    y, s, a, cluster = _clustered()
    weight = np.where(cluster == 3, 0.0, 1.0)
    kept = cluster != 3
    options = {"estimator": "logistic"}
    found = eh.audit(y, s, sensitive_features=a, cluster=cluster, sample_weight=weight, **options)
    expected = eh.audit(
        y[kept], s[kept], sensitive_features=a[kept], cluster=cluster[kept], **options
    )
    assert found.n_clusters == 149
    np.testing.assert_allclose(_numbers(found), _numbers(expected), rtol=1e-9)


def test_a_group_in_one_cluster_gets_a_warning_and_a_wide_interval():
    y, s, _, cluster = _clustered(n_clusters=200)
    a = cluster == np.bincount(cluster).argmax()
    with pytest.warns(EffectiveSizeWarning, match="fewer than 10 effective clusters in 'True'"):
        audit = eh.audit(y, s, sensitive_features=a, cluster=cluster, estimator="logistic")
    assert audit.independence.interval[0] == 0.0
    assert audit.independence.interval[1] > 0.2
    assert audit._groups.columns["n_clusters"] == [200 - 1, 1]
    assert np.isnan(audit._groups.columns["mean_score_low"][1])  # one cluster has no spread
    assert np.isfinite(audit._groups.columns["mean_score_low"][0])


def test_standard_error_sums_over_clusters():
    rng = np.random.default_rng(0)
    psi, weight, cluster = rng.normal(size=60), rng.uniform(0.5, 2, 60), np.arange(60) % 7
    centered = weight * (psi - np.average(psi, weights=weight))
    sums = np.array([centered[cluster == c].sum() for c in range(7)])
    expected = np.sqrt(7 / 6 * (sums**2).sum()) / weight.sum()
    assert standard_error(psi, weight, cluster) == pytest.approx(expected)
    alone = np.arange(60)
    assert standard_error(psi, weight, alone) == pytest.approx(standard_error(psi, weight))
    assert standard_error(psi, None, alone) == pytest.approx(standard_error(psi, None))


def test_degrees_of_freedom():
    mass = np.zeros((30, 2))
    mass[:20, 0] = mass[20:, 1] = 1.0
    equal = np.ones(30)
    # Welch: (20 + 10)² / (20²/19 + 10²/9)
    assert degrees_of_freedom(equal, mass) == pytest.approx(900 / (400 / 19 + 100 / 9))
    assert degrees_of_freedom(np.where(mass[:, 0] > 0, 0.0, 1.0), mass) == pytest.approx(9.0)
    uneven = mass * np.where(np.arange(30) == 0, 100.0, 1.0)[:, None]
    assert degrees_of_freedom(equal, uneven) < 5
    assert degrees_of_freedom(np.zeros(30), mass) == 29


def test_intervals_use_students_t():
    psi = np.random.default_rng(0).normal(size=3000)
    a = np.arange(3000) % 2

    def reach(cluster):
        groups = resolve_groups(a, n_rows=3000, cluster=cluster)
        return critical_value(0.95, psi, groups)

    assert reach(None) == pytest.approx(1.95996, abs=1e-5)
    # Whole clusters of either group: 10 of each are known as well as Welch's 18 or fewer.
    few = reach(np.arange(3000) // 300 * 2 + a)
    assert stdtrit(18, 0.975) <= few <= stdtrit(9, 0.975)
    assert reach(np.arange(3000) // 4 * 2 + a) == pytest.approx(1.96, abs=0.01)


def test_design_effect():
    rng = np.random.default_rng(0)
    n, size = 3000, 10
    cluster = np.arange(n) // size
    a, s, y = rng.integers(0, 2, n), rng.normal(size=n), rng.normal(size=n)
    repeat = cluster * size  # every row of a cluster is its first
    for criterion in CRITERIA.values():
        alone = resolve_groups(a, n_rows=n, cluster=cluster)
        found = independent_rows(criterion, {"s": s, "y": y}, alone)
        assert found == pytest.approx(n, rel=0.15)
        copies = resolve_groups(a[repeat], n_rows=n, cluster=cluster)
        found = independent_rows(criterion, {"s": s[repeat], "y": y[repeat]}, copies)
        assert found == pytest.approx(n / size, rel=0.15)
    # Only the group is shared: what a score tells is known from rows, and they are independent.
    shared = resolve_groups(a[repeat], n_rows=n, cluster=cluster)
    found = independent_rows(CRITERIA["independence"], {"s": s, "y": y}, shared)
    assert found == pytest.approx(n, rel=0.2)


def test_constant_scores_in_clusters_are_exactly_fair():
    y, s, a, cluster = _clustered()
    found = eh.audit(y, np.ones_like(s), sensitive_features=a, cluster=cluster, estimator="lspc")
    assert found.independence.value == 0.0
    assert found.separation.value == 0.0


def test_proxies_in_clusters():
    y, s, a, cluster = _clustered(n_clusters=300)
    proxy = Proxy(0.05 + 0.9 * np.eye(2)[a])
    found = eh.audit(y, s, sensitive_features=proxy, cluster=cluster, estimator="logistic")
    certain = eh.audit(y, s, sensitive_features=a, cluster=cluster, estimator="logistic")
    assert 0.3 * certain.independence.value < found.independence.value < certain.independence.value
    assert found._groups.columns["n_clusters"] == [300, 300]
    assert found.n_clusters == 300


def test_group_table_counts_clusters():
    y, s, a, cluster = _clustered(n_clusters=300)
    groups = resolve_groups(a, n_rows=len(y), cluster=cluster)
    columns = summarize_groups(Sample(groups, s, y), 0.95).columns
    for k in range(2):
        rows = a == k
        _, part = np.unique(cluster[rows], return_inverse=True)
        count = part.max() + 1
        assert columns["n_clusters"][k] == count
        psi = {
            "mean_score": s[rows] - s[rows].mean(),
            "mean_residual": (y - s)[rows] - (y - s)[rows].mean(),
        }
        q = (y - s)[rows] ** 2
        psi["rmse"] = (q - q.mean()) / (2 * np.sqrt(q.mean()))
        ds, dy = s[rows] - s[rows].mean(), y[rows] - y[rows].mean()
        free = 1 - (1 + ds**2 / (ds**2).mean()) / len(ds)
        psi["calibration_slope"] = (dy - ds * (ds @ dy) / (ds @ ds)) * ds / (ds**2).mean() / free
        for name, values in psi.items():
            sums = np.bincount(part, values)
            error = np.sqrt(count / (count - 1) * (sums**2).sum()) / rows.sum()
            margin = columns[name][k] - columns[f"{name}_low"][k]
            # t with 100 to 150 df; of a slope fewer, as far scores decide on it.
            far = 0.1 if name == "calibration_slope" else 0.01
            assert margin == pytest.approx(1.975 * error, rel=far)


def test_one_row_of_each_cluster():
    cluster = np.array([0, 1, 1, 2, 2, 2, 2])
    rows, mass = _one_of_each(cluster, None)
    assert rows.shape == (4, 3)
    np.testing.assert_array_equal(cluster[rows], np.tile([0, 1, 2], (4, 1)))
    assert mass.tolist() == [1, 2, 4]
    assert sorted(rows[:, 2]) == [3, 4, 5, 6]  # each as often as its weight says
    assert sorted(rows[:, 1]) == [1, 1, 2, 2]
    rows, mass = _one_of_each(np.repeat(np.arange(50), 12), np.tile(np.arange(1.0, 13), 50))
    assert rows.shape == (10, 50)
    assert mass is None  # all alike
    drawn = np.bincount(rows.ravel() % 12, minlength=12) / 500
    np.testing.assert_allclose(drawn, np.arange(1, 13) / 78, atol=0.03)


def test_neighbors_of_the_same_cluster_do_not_count():
    """Each place has its own target value, so that rows of a place tell its group exactly."""
    values, covered = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        cluster = np.repeat(np.arange(200), 20)
        a = rng.integers(0, 2, 200)[cluster]
        y = rng.normal(size=200)[cluster]
        s = 0.8 * a + rng.normal(size=4000)
        m = eh.audit(y, s, sensitive_features=a, cluster=cluster, estimator="knn").separation
        assert m.normalizer == pytest.approx(np.log(2), abs=0.1)
        values.append(m.value)
        covered.append(m.interval[0] < 0.107 < m.interval[1])  # I(S;A)/H(A), by quadrature
    assert np.mean(values) == pytest.approx(0.107, abs=0.04)
    assert np.mean(covered) >= 0.75
    with pytest.warns(SharedValuesWarning, match="The target has 200 values in 4,000 rows"):
        blind = eh.audit(y, s, sensitive_features=a, estimator="knn").separation
    assert blind.normalizer < 0.05  # the target gives the group away


def test_folds_hold_whole_clusters_and_every_group():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(60), rng.integers(1, 20, 60))
    strata = (rng.random(60) < 0.25)[cluster].astype(int)
    fold = cluster_folds(cluster, strata, 5, 0)
    assert len(np.unique(np.column_stack([cluster, fold]), axis=0)) == 60
    for k in range(2):
        share = np.bincount(fold[strata == k], minlength=5) / (strata == k).sum()
        np.testing.assert_allclose(share, 0.2, atol=0.06)
    again = cluster_folds(cluster, strata, 5, 0)
    np.testing.assert_array_equal(fold, again)
    assert (fold != cluster_folds(cluster, strata, 5, 1)).any()
    # As many folds as clusters: one each.
    assert len(np.unique(cluster_folds(np.arange(4)[[0, 0, 0, 1, 2, 3]], np.zeros(6), 4, 0))) == 4


def test_make_folds():
    y, _, a, cluster = _clustered()
    groups = resolve_groups(a, n_rows=len(y), cluster=cluster)
    for cv in (4, GroupKFold(4)):
        folds = make_folds(cv, np.zeros((len(y), 1)), y, groups, 0, cluster)
        assert len(folds) == 4
        for train, test in folds:
            assert not set(cluster[train]) & set(cluster[test])
    with pytest.raises(ValueError, match=r"`cv` must keep clusters whole: \d+ have rows on both"):
        make_folds(KFold(4, shuffle=True), np.zeros((len(y), 1)), y, groups, 0, cluster)
    with pytest.raises(ValueError, match=r"at most the number of clusters: got 200 for 150"):
        make_folds(200, None, y, groups, 0, cluster)
    rare = resolve_groups((cluster < 3).astype(int), n_rows=len(y), cluster=cluster)
    with pytest.raises(ValueError, match=r"in fewest: got 4 for '1' in 3\. Hint: fewer folds"):
        make_folds(4, None, y, rare, 0, cluster)


def test_critical_value_of_few_clusters():
    correlation = np.full((3, 3), 0.8) + 0.2 * np.eye(3)
    plain = critical(correlation, 0.95)
    assert critical(correlation, 0.95, 10) > 1.05 * plain
    assert critical(correlation, 0.95, 5000) == pytest.approx(plain, rel=0.02)


@pytest.fixture(scope="module")
def training():
    """Places that features give away: whoever has seen a place knows its target."""
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(110), 4)
    n = len(cluster)
    a = rng.integers(0, 2, 110)[cluster]
    X = rng.normal(size=(110, 3))[cluster] + 0.01 * rng.normal(size=(n, 3)) + 0.4 * a[:, None]
    y = X[:, 0] + 2.0 * rng.normal(size=110)[cluster] + 0.1 * rng.normal(size=n)
    return X, y, a, cluster


def test_path(training):
    X, y, a, cluster = training
    options = {
        "sensitive_features": a, "fairness_weights": [0.0, 1.0], "measure_with": "logistic",
        "random_state": 0,
    }  # fmt: skip
    blind = eh.fairness_path(eh.FairRidge(), X, y, **options)
    path = eh.fairness_path(eh.FairRidge(), X, y, cluster=cluster, **options)
    assert (path.n_clusters, blind.n_clusters) == (110, None)
    assert path.points[0].independence.n_clusters == 110
    assert path.points[0].r2_stderr > 1.5 * blind.points[0].r2_stderr
    assert "440 rows in 110 clusters, held out" in str(path)
    assert "440 rows, held out" in str(blind)
    low, high = path.points[0].r2_interval
    assert high - low > 2 * 1.97 * path.points[0].r2_stderr
    assert path.bounds()[0][0] > blind.bounds()[0][0]
    path.select(max_unfairness=1.0)


class Memory(Ridge):
    """Knows every row that it has seen, and rows much like it."""

    def fit(self, X, y):
        self.X_, self.y_ = np.asarray(X), np.asarray(y)
        return self

    def predict(self, X):
        return self.y_[((np.asarray(X)[:, None] - self.X_) ** 2).sum(axis=2).argmin(axis=1)]


def test_postprocessor(training):
    X, y, a, cluster = training
    base = Memory()
    model = eh.FairPostprocessor(base, fairness_weight=0.0, random_state=0)
    blind = model.fit(X, y, sensitive_features=a).slopes_[0, 0]
    aware = model.fit(X, y, sensitive_features=a, cluster=cluster).slopes_[0, 0]
    # Out of fold a row's own place is remembered, unless the whole place is out.
    assert aware < 0.6 * blind
    with pytest.raises(ValueError, match="one entry per row: got 2"):
        model.fit(X, y, sensitive_features=a, cluster=[1, 2])


@pytest.mark.parametrize("wrap", [False, True])
def test_a_path_hands_clusters_to_folds_inside(training, wrap, monkeypatch):
    X, y, a, cluster = training
    seen = []
    original = eh.FairPostprocessor._start

    def spy(self, X, y, sensitive_features, sample_weight, cluster, *more):
        seen.append(cluster)
        return original(self, X, y, sensitive_features, sample_weight, cluster, *more)

    monkeypatch.setattr(eh.FairPostprocessor, "_start", spy)
    model = eh.FairPostprocessor(Ridge(), random_state=0)
    if wrap:
        model = make_pipeline(StandardScaler(), model)
    eh.fairness_path(
        model, X, y, sensitive_features=a, fairness_weights=[0.0], measure_with="logistic",
        cluster=cluster, random_state=0, cv=3,
    )  # fmt: skip
    assert len(seen) >= 3
    assert all(c is not None for c in seen)


def test_old_pickles_have_no_clusters():
    y, s, a, _ = _clustered(whole=False)
    audit = eh.audit(y, s, sensitive_features=a, estimator="logistic")
    m = audit.separation
    state = {k: v for k, v in vars(m).items() if k != "n_clusters"}
    old = object.__new__(type(m))
    vars(old).update(state)
    assert pickle.loads(pickle.dumps(old)).n_clusters is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "clusters" not in str(audit)


def test_text_page_and_dictionary_name_both(tmp_path):
    y, s, a, cluster = _clustered()
    audit = eh.audit(y, s, sensitive_features=a, cluster=cluster, estimator="logistic")
    n = f"{len(y):,} rows in 150 clusters"
    assert n in str(audit)
    assert "\ngroup  rows  clusters " in str(audit)
    page = audit.to_html(tmp_path / "a.html").read_text()
    assert n in page
    assert "Sampling errors therefore count clusters" in page
    assert ">Clusters<" in page
    assert n in audit._repr_html_()
    found = audit.to_dict()
    assert found["n_clusters"] == 150
    assert found["measures"]["separation"]["n_clusters"] == 150
    assert found["groups"]["n_clusters"] == audit._groups.columns["n_clusters"]
    assert audit.to_frame()["n_clusters"].tolist() == [150] * 3
    assert audit.groups["n_clusters"].sum() == 150
