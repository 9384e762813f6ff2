"""Paths of fairness weights: search, held-out measures, selection, certificates."""

import pickle
import re
from dataclasses import replace
from functools import partial

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh
from evenhand.measures.losses import R2
from evenhand.training import held_out as _path_fit
from evenhand.training.frontier import spread_weights
from evenhand.training.held_out import critical
from evenhand.training.path import Unreachable
from rivals import BerkRegressor

# The default estimator takes ten times as long and is tested where it lives.
fairness_path = partial(eh.fairness_path, measure_with="logistic")


def make(n=600, groups=2, seed=0):
    """Groups that differ in one feature which also moves the target."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, groups, n)
    X = rng.normal(size=(n, 3))
    X[:, 0] += 1.5 * a
    y = X @ [1.0, 1.0, 0.5] + rng.normal(size=n)
    return X, y, np.array(["p", "q", "r"])[a]


@pytest.fixture(scope="module")
def path():
    X, y, a = make()
    return fairness_path(
        eh.FairRidge("independence"), X, y, sensitive_features=a, n_points=8, random_state=0
    )


class Shrunk(RegressorMixin, BaseEstimator):
    """A user's own: least squares, less the group's mean score as the weight grows."""

    def __init__(self, fairness_weight=1.0, criterion="independence", seen=None):
        self.fairness_weight = fairness_weight
        self.criterion = criterion
        self.seen = seen

    def fit(self, X, y, *, sensitive_features, sample_weight=None):
        self.model_ = LinearRegression().fit(X, y, sample_weight=sample_weight)
        share = 1 / (1 + self.fairness_weight)
        self.model_.coef_[0] *= share
        return self

    def predict(self, X):
        return self.model_.predict(X)


# The search


def curve(scale):
    """Unfairness and R² that change around weight `scale`, and settle."""

    def evaluate(w):
        t = w / (scale + w)
        return 0.3 * (1 - t) ** 2, 0.6 - 0.2 * t**2

    return evaluate


@pytest.mark.parametrize("scale", [1e-4, 0.3, 1.0, 300.0])
def test_points_spread_along_the_curve_not_along_the_weight(scale):
    weights = spread_weights(curve(scale), 20)
    assert len(weights) == 20
    assert weights[0] == 0.0
    places = np.array([curve(scale)(w) for w in weights])
    places /= np.ptp(places, axis=0)
    gaps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    # An even spread has gaps of length/19 ≈ 0.08; weights evenly spaced in log do not.
    assert gaps.max() < 0.2
    logs = np.array([curve(scale)(w) for w in [0.0, *np.geomspace(1e-6, 1e6, 19)]])
    logs /= np.ptp(logs, axis=0)
    assert gaps.max() < 0.5 * np.linalg.norm(np.diff(logs, axis=0), axis=1).max()
    assert curve(scale)(weights[-1])[0] < 0.01


def test_search_ends_where_more_weight_buys_nothing():
    weights = spread_weights(curve(1.0), 12)
    assert weights[-1] <= 1000.0


def test_search_of_a_score_that_is_already_fair():
    calls = []

    def evaluate(w):
        calls.append(w)
        return 0.0, 0.5

    assert spread_weights(evaluate, 20) == [0.0, 1.0]
    assert len(calls) < 12


def test_search_of_a_fair_score_that_only_loses_accuracy():
    """Unfairness is 0 from the beginning, so no weight is worth its price."""
    weights = spread_weights(lambda w: (0.0, 0.9 - 0.3 * w / (1.0 + w)), 20)
    assert weights[-1] == 1.0


@pytest.mark.parametrize("n_points", [2, 3, 4, 5])
def test_few_points_are_no_more_than_asked_for(n_points):
    """The search for the largest weight may pass more of them."""
    weights = spread_weights(curve(100.0), n_points)
    assert len(weights) == n_points
    assert weights[0] == 0.0
    assert weights[-1] == spread_weights(curve(100.0), 20)[-1]


def test_each_weight_is_evaluated_once():
    calls = []

    def evaluate(w):
        calls.append(w)
        return curve(1.0)(w)

    spread_weights(evaluate, 15)
    assert len(calls) == len(set(calls))


# The path


def test_path_runs_from_plain_to_fair(path):
    assert len(path) == 8
    assert path.fairness_weights[0] == 0.0
    assert (np.diff(path.fairness_weights) > 0).all()
    u = [p.independence.value for p in path.points]
    assert u[0] > 0.1
    assert u[-1] < 0.02
    assert path.points[0].r2 > path.points[-1].r2
    assert not path.dominated()[0]


def test_scores_are_held_out_and_measured_as_the_functions_do():
    X, y, a = make()
    folds = list(KFold(4, shuffle=True, random_state=1).split(X))
    path = eh.fairness_path(
        eh.FairRidge(), X, y, sensitive_features=a, fairness_weights=[2.0], cv=folds
    )
    assert path.fairness_weights.tolist() == [0.0, 2.0]
    expected = np.empty(len(y))
    for train, test in folds:
        model = eh.FairRidge(fairness_weight=2.0)
        expected[test] = model.fit(X[train], y[train], sensitive_features=a[train]).predict(X[test])
    point = path.points[1]
    # The path is solved to a looser tolerance than a single fit.
    assert np.abs(point.scores - expected).max() < 1e-2 * y.std()
    assert point.r2 == pytest.approx(r2_score(y, point.scores))
    for name in ("independence", "separation", "sufficiency"):
        direct = getattr(eh, name)(y, point.scores, sensitive_features=a)
        assert point.measure(name).value == pytest.approx(direct)


def test_shared_work_gives_the_same_path_as_separate_fits():
    X, y, a = make(400)

    class Separate(eh.FairRidge):
        def fit(self, X, y, *, sensitive_features=None, sample_weight=None):
            return super().fit(
                X, y, sensitive_features=sensitive_features, sample_weight=sample_weight
            )

    weights = [0.1, 1.0, 10.0]
    options = {"sensitive_features": a, "fairness_weights": weights, "random_state": 0}
    shared = fairness_path(eh.FairRidge("separation"), X, y, **options)
    apart = fairness_path(Separate("separation"), X, y, **options)
    for one, other in zip(shared.points, apart.points, strict=True):
        assert one.r2 == pytest.approx(other.r2, abs=2e-3)
        assert one.separation.value == pytest.approx(other.separation.value, abs=2e-3)
        assert not np.array_equal(one.scores, other.scores) or one.fairness_weight == 0


def test_points_between_close_neighbors_are_interpolated():
    X, y, a = make(2000)
    weights = np.geomspace(0.2, 3.0, 24)
    fitter = eh.FairRidge("separation").path_fitter(X, y, sensitive_features=a)
    ends_first = [*weights[::3], *weights[1::3], *weights[2::3]]
    models = {w: fitter(w) for w in ends_first}
    assert [models[w].n_evaluations_ for w in weights].count(0) > 8
    for w in weights[::5]:
        single = eh.FairRidge("separation", w).fit(X, y, sensitive_features=a)
        assert models[w].score(X, y) == pytest.approx(single.score(X, y), abs=1e-3)
        assert models[w].unfairness_ == pytest.approx(single.unfairness_, abs=1e-3)
        # The value is that of the model handed out, not only of its neighbors.
        bound = eh.FairnessRegularizer("separation").bind(y, sensitive_features=a)
        assert models[w].unfairness_ == pytest.approx(bound.value(models[w].predict(X)), abs=1e-3)


def test_random_state_repeats_exactly():
    X, y, a = make(300)
    options = {"sensitive_features": a, "n_points": 4, "random_state": 3}
    one = fairness_path(eh.FairRidge(), X, y, **options)
    other = fairness_path(eh.FairRidge(), X, y, **options, n_jobs=2)
    assert one._columns() == other._columns()
    different = fairness_path(eh.FairRidge(), X, y, **{**options, "random_state": 4})
    assert different._columns() != one._columns()


def test_r2_error_agrees_with_the_bootstrap():
    rng = np.random.default_rng(0)
    y = rng.gamma(2.0, size=500)
    s = y + rng.normal(size=500)
    w = rng.uniform(0.2, 3.0, 500)
    value, influence = R2.influence(y, s, w)
    assert value == pytest.approx(r2_score(y, s, sample_weight=w))
    draws = []
    for _ in range(1000):
        rows = rng.integers(0, 500, 500)
        draws.append(r2_score(y[rows], s[rows], sample_weight=w[rows]))
    stderr = np.sqrt(np.sum((w * influence) ** 2)) / w.sum()
    assert stderr == pytest.approx(np.std(draws), rel=0.12)


def test_sample_weight_counts_rows():
    X, y, a = make(800)
    repeat = np.random.default_rng(0).integers(1, 4, 800)
    rows = np.repeat(np.arange(800), repeat)
    half = np.arange(800) % 2
    folds = [(np.flatnonzero(half == k), np.flatnonzero(half != k)) for k in (0, 1)]
    long = [(np.flatnonzero(half[rows] == k), np.flatnonzero(half[rows] != k)) for k in (0, 1)]
    options = {"fairness_weights": [1.0]}
    weighted = fairness_path(
        eh.FairRidge(), X, y, sensitive_features=a, sample_weight=repeat, cv=folds, **options
    )
    repeated = fairness_path(
        eh.FairRidge(), X[rows], y[rows], sensitive_features=a[rows], cv=long, **options
    )
    for one, other in zip(weighted.points, repeated.points, strict=True):
        assert one.r2 == pytest.approx(other.r2, abs=1e-3)
        assert one.independence.value == pytest.approx(other.independence.value, abs=5e-3)


def test_rows_without_weight_count_for_nothing():
    X, y, a = make(800)
    kept = np.arange(800) % 4 > 0
    y = np.where(kept, y, y**3)
    path = eh.fairness_path(
        eh.FairRidge(), X, y, sensitive_features=a, sample_weight=np.where(kept, 3.0, 0.0),
        fairness_weights=[1.0], random_state=0,
    )  # fmt: skip
    for point in path.points:
        assert len(point.scores) == 800
        assert point.r2 == pytest.approx(r2_score(y[kept], point.scores[kept]))
        assert point.separation.n == 600
        direct = eh.separation(y[kept], point.scores[kept], sensitive_features=a[kept])
        assert point.separation.value == pytest.approx(direct, rel=1e-6)


def test_three_groups_and_unknown_rows():
    X, y, a = make(groups=3)
    a = a.astype(object)
    a[:40] = None
    path = fairness_path(
        eh.FairRidge("separation", group_features="posterior"), X, y, sensitive_features=a,
        n_points=4, random_state=0,
    )  # fmt: skip
    assert path.n_unknown == 40
    assert path.labels == ("p", "q", "r")
    assert path.points[0].independence.n == 560
    assert len(path.points[0].scores) == 600
    assert path.points[-1].separation.value < 0.3 * path.points[0].separation.value
    assert "40 of unknown group" in str(path)


def test_few_unknown_rows_need_no_fold_of_their_own():
    X, y, a = make(200)
    a = a.astype(object)
    a[0] = None
    path = fairness_path(
        eh.FairRidge(), X, y, sensitive_features=a, fairness_weights=[1.0], random_state=0
    )
    assert path.n_unknown == 1


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "dict", "proxy", "list"])
def test_any_form_of_sensitive_features(kind):
    X, y, a = make(300)
    sensitive = {
        "pandas": lambda: pd.Series(a, index=np.arange(300)[::-1], name="race"),
        "polars": lambda: pl.DataFrame({"race": a, "half": np.arange(300) % 2}),
        "arrow": lambda: pa.array(a),
        "dict": lambda: {"race": a},
        "proxy": lambda: eh.Proxy(np.where(a == "q", 0.9, 0.1), ["p", "q"]),
        "list": lambda: list(a),
    }[kind]()
    path = fairness_path(
        eh.FairRidge(group_features="attribute"), X, y, sensitive_features=sensitive,
        fairness_weights=[10.0], random_state=0,
    )  # fmt: skip
    assert len(path.labels) == (4 if kind == "polars" else 2)
    assert path.points[1].independence.value < 0.5 * path.points[0].independence.value


def test_rare_class_of_a_proxy():
    X, y, a = make(300)
    p = np.column_stack([np.where(a == "p", 0.9, 0.1), np.where(a == "p", 0.08, 0.88)])
    p = np.column_stack([p, 1 - p.sum(axis=1)])
    p[0] = [0.1, 0.1, 0.8]
    path = fairness_path(
        eh.FairRidge(), X, y, sensitive_features=eh.Proxy(p), fairness_weights=[1.0], random_state=0
    )
    assert len(path.labels) == 3


@pytest.mark.parametrize("kind", ["pandas", "polars", "sparse"])
def test_any_form_of_features(kind):
    X, y, a = make(300)
    convert = {
        "pandas": lambda X: pd.DataFrame(X, columns=list("abc")),
        "polars": lambda X: pl.DataFrame(X, schema=list("abc")),
        "sparse": sparse.csr_array,
    }[kind]
    options = {"sensitive_features": a, "fairness_weights": [1.0], "random_state": 0}
    path = fairness_path(eh.FairRidge(), convert(X), pd.Series(y), **options)
    plain = fairness_path(eh.FairRidge(), X, y, **options)
    assert path.points[1].r2 == pytest.approx(plain.points[1].r2, abs=1e-6)
    model = path.select(max_unfairness=1.0)
    assert hasattr(model, "feature_names_in_") == (kind != "sparse")


@pytest.mark.parametrize(
    "estimator",
    [
        Shrunk(),
        BerkRegressor(),
        make_pipeline(StandardScaler(), eh.FairRidge()),
        make_pipeline(StandardScaler(), eh.FairRidge(group_features="attribute")),
        TransformedTargetRegressor(eh.FairRidge(), transformer=StandardScaler()),
        make_pipeline(TransformedTargetRegressor(eh.FairRidge(), transformer=StandardScaler())),
        eh.FairPostprocessor(Ridge(), random_state=0),
    ],
    ids=["own", "berk", "pipeline", "attribute", "target", "nested", "postprocessor"],
)
def test_any_estimator_with_a_fairness_weight(estimator):
    X, y, a = make(300)
    before = estimator.get_params()
    path = fairness_path(
        estimator, X, y, sensitive_features=a, n_points=4, criterion="independence", cv=3,
        random_state=0,
    )  # fmt: skip
    assert path.points[-1].independence.value < 0.5 * path.points[0].independence.value
    model = path.select(min_accuracy=0.1)
    assert "attribute" in str(estimator) or model.predict(X).shape == (300,)
    assert estimator.get_params().keys() == before.keys()
    with pytest.raises(sklearn.exceptions.NotFittedError):
        sklearn.utils.validation.check_is_fitted(estimator)


def test_metadata_routing():
    X, y, a = make(300)
    with sklearn.config_context(enable_metadata_routing=True):
        ridge = eh.FairRidge(group_features="attribute")
        ridge.set_fit_request(sensitive_features=True, sample_weight=True)
        ridge.set_predict_request(sensitive_features=True)
        path = fairness_path(
            make_pipeline(StandardScaler(), ridge), X, y, sensitive_features=a,
            fairness_weights=[10.0], random_state=0,
        )  # fmt: skip
    assert path.points[1].independence.value < 0.05


def test_parallel_jobs_of_an_estimator_of_ones_own():
    X, y, a = make(200)
    options = {"sensitive_features": a, "fairness_weights": [1.0, 5.0], "random_state": 0, "cv": 2}
    one = fairness_path(Shrunk(), X, y, **options)
    with joblib.parallel_config("threading"):
        other = fairness_path(Shrunk(), X, y, **options, n_jobs=2)
    assert one._columns() == other._columns()


def test_outermost_weight_wins():
    handle = _path_fit.Handle.find(eh.FairPostprocessor(eh.FairRidge()))
    assert handle.parameter == "fairness_weight"


# Selection


def test_select_takes_the_most_accurate_point_that_is_fair_enough(path):
    model = path.select(max_unfairness=0.1)
    chosen = path.selected
    assert model.fairness_weight == chosen.fairness_weight
    assert chosen.independence.value <= 0.1
    rivals = [p for p in path.points if p.independence.value <= 0.1]
    assert chosen.r2 == max(p.r2 for p in rivals)
    X, y, a = make()
    again = eh.FairRidge(fairness_weight=chosen.fairness_weight).fit(X, y, sensitive_features=a)
    assert model.coef_ == pytest.approx(again.coef_)


def test_select_by_accuracy_takes_the_fairest(path):
    floor = path.points[4].r2
    path.select(min_accuracy=floor)
    rivals = [p for p in path.points if p.r2 >= floor]
    assert path.selected.independence.value == min(p.independence.value for p in rivals)


def test_select_by_another_criterion(path):
    path.select(max_unfairness=0.02, criterion="sufficiency")
    assert path.selected.sufficiency.value <= 0.02


def test_select_by_both(path):
    both = path.points[4]
    path.select(max_unfairness=both.independence.value, min_accuracy=both.r2)
    assert path.selected is both


def test_certified_choice_is_fairer(path):
    path.select(max_unfairness=0.1)
    plain = path.selected
    path.select(max_unfairness=0.1, certify=True)
    upper, lower = path.bounds()
    at = path.points.index(path.selected)
    assert upper[at] <= 0.1
    assert path.selected.fairness_weight > plain.fairness_weight
    # The bound is wider than one point's own one-sided 95% limit, and narrower than Bonferroni's.
    z = (upper - [p.independence.value for p in path.points]) / [
        p.independence.stderr for p in path.points
    ]
    assert 1.645 < z[0] < 2.498
    assert (lower < [p.r2 for p in path.points]).all()


def test_simultaneous_bound_against_closed_forms():
    assert critical(np.ones((5, 5)), 0.95) == pytest.approx(1.645, abs=0.02)
    # Independent: Φ(c)^5 = 0.95.
    assert critical(np.eye(5), 0.95) == pytest.approx(2.319, abs=0.03)


def test_what_is_not_defined_cannot_be_certified(path):
    first = path.points[0]
    empty = replace(first.independence, value=0.0, stderr=np.nan, interval=(0.0, 1.0))
    first_empty = replace(first, measures={**first.measures, "independence": empty})
    other = replace(path, points=(first_empty, *path.points[1:]))
    upper, _ = other.bounds()
    assert upper[0] == 1.0
    np.testing.assert_allclose(upper[1:], path.bounds()[0][1:])
    assert "not defined" in str(other)


def test_certificates_hold_on_fresh_data():
    """A smaller version of research/studies/certify.py."""
    X_new, y_new, a_new = make(8000, seed=10_000)
    violations = []
    for seed in range(8):
        X, y, a = make(400, seed=seed)
        path = fairness_path(
            eh.FairRidge(), X, y, sensitive_features=a, random_state=seed,
            fairness_weights=[0.1, 0.3, 1.0, 3.0],
        )  # fmt: skip
        model = path.select(max_unfairness=0.1, certify=True)
        s = model.predict(X_new)
        fresh = eh.independence(y_new, s, sensitive_features=a_new, estimator="logistic")
        violations.append(fresh > 0.1)
    assert sum(violations) <= 1


def test_unreachable_requests_name_the_best(path):
    with pytest.raises(
        Unreachable, match=r"No point .* independence ≤ 0 .*The closest has"
    ) as info:
        path.select(max_unfairness=0.0, certify=True)
    assert "bounds at 95% confidence" in str(info.value)
    assert "Hint" in str(info.value)
    assert info.value.best in path.points
    assert str(pickle.loads(pickle.dumps(info.value))) == str(info.value)
    with pytest.raises(Unreachable, match=r"R² ≥ 0\.99") as info:
        path.select(min_accuracy=0.99)
    assert info.value.best is max(path.points, key=lambda p: p.r2)
    with pytest.raises(Unreachable, match=r"≤ 0\.01 and R² ≥ 0\.9"):
        path.select(max_unfairness=0.01, min_accuracy=0.9)


def test_unreachable_best_warns_and_says_what_it_is(path):
    with pytest.warns(UserWarning, match=r"R² ≥ 0\.99"):
        path.select(min_accuracy=0.99, on_unreachable="best")
    assert path.selected is max(path.points, key=lambda p: p.r2)


# What it looks like


def test_frame(path):
    path.select(max_unfairness=0.1)
    frame = path.to_frame("polars")
    assert frame.height == len(path)
    assert frame["selected"].sum() == 1
    row = frame.filter(pl.col("selected"))
    assert row["independence"][0] == path.selected.independence.value
    assert row["independence_low"][0] <= row["independence"][0] <= row["independence_high"][0]
    assert row["r2_low"][0] < row["r2"][0] < row["r2_high"][0]
    assert frame["dominated"].to_list() == path.dominated().tolist()
    assert list(path.to_frame("pandas").columns) == frame.columns


def test_dominated_points(path):
    r2 = np.array([p.r2 for p in path.points])
    u = np.array([p.sufficiency.value for p in path.points])
    expected = [bool(((r2 > r2[i]) & (u < u[i])).any()) for i in range(len(path))]
    assert path.dominated("sufficiency").tolist() == expected
    assert any(expected)


def test_text_and_html_escape_labels():
    X, y, a = make(200)
    labels = np.where(a == "p", "<script>alert(1)</script>", "&")
    path = fairness_path(
        eh.FairRidge(), X, y, sensitive_features=labels, fairness_weights=[1.0], random_state=0
    )
    path.select(max_unfairness=1.0)
    html = path._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert html.count("<tr>") == 3
    text = str(path)
    assert "selected" in text
    assert sum(line.count("±") == 4 for line in text.splitlines()) == 2


def test_plot_marks_points(path):
    path.select(max_unfairness=0.1)
    figure = path.plot()
    assert len(figure.axes) == 3
    labels = [t.get_text() for t in figure.legends[0].get_texts()]
    assert any(label.startswith("selected") for label in labels)
    assert any(label.startswith("dominated") for label in labels)
    figure.canvas.draw()


def test_path_survives_pickling(path):
    path.select(max_unfairness=0.1)
    again = pickle.loads(pickle.dumps(path))
    assert again._columns() == path._columns()
    assert again.select(max_unfairness=0.2).coef_.shape == (3,)


def test_progress_bar_only_on_a_slow_terminal(monkeypatch, capsys):
    X, y, a = make(200)
    options = {"sensitive_features": a, "fairness_weights": [1.0, 2.0], "random_state": 0, "cv": 2}
    monkeypatch.setattr("evenhand._core.progress.PROGRESS_AFTER", -1.0)
    fairness_path(eh.FairRidge(), X, y, **options)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    fairness_path(eh.FairRidge(), X, y, **options)
    assert "fairness path" in capsys.readouterr().err
    monkeypatch.setattr("evenhand._core.progress.PROGRESS_AFTER", 1000.0)
    fairness_path(eh.FairRidge(), X, y, **options)
    assert capsys.readouterr().err == ""


# Errors

X_, Y_, A_ = make(60)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"estimator": LinearRegression()}, "must have one parameter `fairness_weight`"),
        ({"estimator": eh.FairRidge}, "must be a scikit-learn estimator, got <class"),
        ({"estimator": Shrunk(criterion=None)}, "`criterion` must be given: Shrunk has none"),
        ({"criterion": "equality"}, "`criterion` must be one of"),
        ({"fairness_weights": "many"}, "`fairness_weights` must be 'auto' or a sequence"),
        ({"fairness_weights": [1.0, -1.0]}, "sequence of nonnegative numbers, got [1.0, -1.0]"),
        ({"fairness_weights": 3.0}, "sequence of nonnegative numbers, got 3.0"),
        ({"fairness_weights": []}, "sequence of nonnegative numbers, got []"),
        ({"n_points": 1}, "`n_points` must be an integer of at least 2, got 1"),
        ({"confidence_level": 95}, "`confidence_level` must lie between 0 and 1, got 95"),
        ({"cv": 1}, "`cv` must be at least 2 folds or a splitter, got 1"),
        ({"cv": 50}, "at most the number of rows of the smallest group: got 50 for"),
        ({"cv": "five"}, "`cv` must be a number of folds, a scikit-learn splitter"),
        ({"cv": ShuffleSplit(3, random_state=0)}, "must test every row exactly once: its 3 folds"),
        ({"y": np.ones(60)}, "`y` must vary, got 1 in every row"),
        ({"sensitive_features": None}, "`sensitive_features` must be given"),
        ({"sensitive_features": ["p"] * 60}, "at least two groups"),
        ({"sensitive_features": A_[:50]}, "50"),
        ({"measure_with": "guess"}, "`measure_with` must be one of auto"),
        ({"X": np.vstack([X_, X_])}, "`X` must have one row per entry of `y`: got 120 for 60"),
        ({"X": X_[:50]}, "`X` must have one row per entry of `y`: got 50 for 60"),
        ({"sample_weight": np.full(60, -1.0)}, "`sample_weight` must"),
    ],
)
def test_errors(change, message):
    arguments = {"estimator": eh.FairRidge(), "X": X_, "y": Y_, "sensitive_features": A_, **change}
    with pytest.raises(ValueError, match=re.escape(message)):
        fairness_path(**arguments)


def test_ambiguous_weight():
    class Two(Shrunk):
        def __init__(self, a=None, b=None):
            self.a, self.b = a, b

    with pytest.raises(ValueError, match=r"several \(a__fairness_weight, b__fairness_weight\)"):
        fairness_path(Two(Shrunk(), Shrunk()), X_, Y_, sensitive_features=A_)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "`max_unfairness` or `min_accuracy` must be given, got neither"),
        ({"max_unfairness": 5}, "`max_unfairness` must lie between 0 and 1, got 5"),
        ({"min_accuracy": "high"}, "`min_accuracy` must be a number of at most 1, got 'high'"),
        (
            {"min_accuracy": 0.1, "on_unreachable": "shrug"},
            "`on_unreachable` must be one of raise, best",
        ),
        ({"min_accuracy": 0.1, "criterion": "equality"}, "`criterion` must be one of"),
    ],
)
def test_errors_of_select(path, request_, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        path.select(**request_)


def test_the_chosen_ridge_has_the_options_of_the_estimator():
    X, y, a = make(300)
    ridge = eh.FairRidge(
        "separation", alpha=0.1, classifier="lspc", basis="linear", fit_intercept=False,
        group_features="attribute",
    )  # fmt: skip
    path = eh.fairness_path(
        ridge, X, y, sensitive_features=a, sample_weight=np.linspace(1, 2, 300),
        fairness_weights=[0.0, 1.0], cv=3, random_state=0,
    )  # fmt: skip
    best = path.select(max_unfairness=0.5, certify=True)
    assert best.fairness_weight == path.selected.fairness_weight
    assert (best.criterion, best.alpha, best.classifier) == ("separation", 0.1, "lspc")
    assert (best.basis, best.fit_intercept, best.intercept_) == ("linear", False, 0.0)
    assert path.n_splits == 3
    assert path.bounds()[0][path.points.index(path.selected)] <= 0.5
    assert best.predict(X, sensitive_features=a).shape == (300,)
    with pytest.raises(ValueError, match="`sensitive_features` must be given to predict"):
        best.predict(X)
