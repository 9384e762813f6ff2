"""A metric by group: values as fairlearn has them, intervals, gaps, ratios and tests."""

import json
import pickle

import numpy as np
import pytest
import sklearn.metrics
from fairlearn.metrics import MetricFrame
from scipy.special import stdtrit

import evenhand as eh
from evenhand.auditing.by_group import _leave_out, _Parts
from evenhand.data.sample import Sample
from studies import metrics

METRICS = (
    "mean_absolute_error",
    "mean_squared_error",
    "root_mean_squared_error",
    "r2_score",
    "explained_variance_score",
    "median_absolute_error",
    "mean_absolute_percentage_error",
    "mean_pinball_loss",
    "d2_absolute_error_score",
    "mean_squared_log_error",
    "mean_poisson_deviance",
)


def draw(n=150, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    y = np.exp(0.4 * rng.normal(size=n))
    s = y * np.exp((0.2 + 0.2 * (a == "b")) * rng.normal(size=n))
    return y, s, a, rng.exponential(size=n)


def audit(y, s, a, **more):
    return eh.audit(y, s, sensitive_features=a, estimator="logistic", **more)


@pytest.fixture(scope="module")
def audits():
    y, s, a, w = draw()
    return {False: audit(y, s, a), True: audit(y, s, a, sample_weight=w)}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("metric", METRICS)
def test_values_are_those_of_fairlearn(audits, metric, weighted):
    y, s, a, w = draw()
    function = getattr(sklearn.metrics, metric)
    frame = MetricFrame(
        metrics=function, y_true=y, y_pred=s, sensitive_features=a,
        sample_params={"sample_weight": w} if weighted else None,
    )  # fmt: skip
    result = audits[weighted].by_group(metric)
    assert result.overall == pytest.approx(frame.overall, rel=1e-12)
    assert result.reference == "a"
    for group, value in frame.by_group.items():
        assert result.values[group] == pytest.approx(value, rel=1e-12)
        low, high = result.intervals[group]
        assert low < value < high
    gap, ratio = result.gaps["b"], result.ratios["b"]
    assert gap.value == pytest.approx(result.values["b"] - result.values["a"], rel=1e-10)
    if result.values["b"] > 0:
        assert ratio.value == pytest.approx(result.values["b"] / result.values["a"], rel=1e-10)
    assert gap.low < gap.value < gap.high
    assert 0 <= gap.p_value <= 1


@pytest.mark.parametrize("metric", metrics.METRICS)
def test_the_study_measures_metrics_of_scikit_learn(metric):
    y, s, *_ = metrics.draw(np.random.default_rng(0), "families", 100, (0.5, 0.5))
    w, function = np.random.default_rng(1).exponential(size=100), metrics.METRICS[metric]
    official = getattr(sklearn.metrics, metric)
    assert function(y, s) == pytest.approx(official(y, s), rel=1e-12)
    if metric != "median_absolute_error":
        weighted = official(y, s, sample_weight=w)
        assert function(y, s, sample_weight=w) == pytest.approx(weighted, rel=1e-12)


def test_errors_of_a_mean_are_those_of_means(audits):
    for weighted, result in audits.items():
        group = audits[weighted].groups.set_index("group")
        number = result.by_group("mean_absolute_error").numbers
        for n in (n for n in number if n.statistic == "value"):
            row = group.loc[n.group]
            width = 2 * stdtrit(row["n_effective"] - 1, 0.975) * n.stderr
            assert width == pytest.approx(row["mae_high"] - row["mae_low"], rel=0.03)
            # Heavy tails leave fewer degrees of freedom, never more.
            assert n.freedom <= row["n_effective"] - 1


def test_intervals_lean_to_where_errors_are_skewed(audits):
    def lean(metric):
        return [
            (high - n.value) / (n.value - low)
            for n in audits[False].by_group(metric).numbers
            if n.statistic == "value"
            for low, high in [(n.low, n.high)]
        ]

    # Squares are skewed upwards; their root is less so, and R² downwards.
    squares, roots = lean("mean_squared_error"), lean("root_mean_squared_error")
    assert all(s > r > 1.0 for s, r in zip(squares, roots, strict=True))
    assert all(r < 1.0 for r in lean("r2_score"))


def test_gaps_lean_and_their_tests_agree():
    rng = np.random.default_rng(0)
    y, s = np.zeros(600), rng.gamma(2.0, 0.5, 600)
    few = np.where(np.arange(600) < 120, "few", "many")
    rows = audit(y, s, few)
    # The skewness of the small group is not offset by that of the large one.
    gap = rows.by_group("mean_squared_error").gaps["few"]
    assert gap.high - gap.value > 1.1 * (gap.value - gap.low)
    # The test is the interval that just reaches zero.
    less = audit(y, s * np.where(few == "few", 0.8, 1.0), few).by_group("mean_squared_error")
    p = less.gaps["few"].p_value
    level = audit(y, s * np.where(few == "few", 0.8, 1.0), few, confidence_level=1 - p)
    assert level.by_group("mean_squared_error").gaps["few"].high == pytest.approx(0.0, abs=1e-9)


def test_no_skewness_makes_intervals_endless():
    rng = np.random.default_rng(1)
    y, s = np.zeros(400), rng.lognormal(0.0, 1.0, 400)
    result = audit(y, s, np.where(np.arange(400) < 60, "few", "many")).by_group(
        "mean_squared_error"
    )
    for n in result.numbers:
        if n.statistic == "value":
            assert n.skewness > 0.35
            assert n.low < n.value < n.high < n.value + 6 * n.stderr


def test_methods_follow_the_metric(audits):
    plain = audits[False]
    assert plain.by_group("mean_absolute_error").method == "jackknife"
    median = plain.by_group("median_absolute_error", random_state=3)
    assert median.method == "bootstrap"
    again = plain.by_group("median_absolute_error", random_state=3)
    assert again.numbers == median.numbers
    # The largest error of a sample says nothing about that of the next one.
    largest = plain.by_group("max_error")
    assert np.isnan(largest.intervals["a"]).all()
    assert np.isnan(largest.gaps["b"].p_value)
    assert "interval not known" in str(largest)


def test_a_function_of_ones_own_and_overall():
    y, s, a, _ = draw()
    rows = audit(y, s, a)
    result = rows.by_group(lambda y_true, y_pred: np.mean(y_true > y_pred), reference="overall")
    assert result.reference == "overall"
    assert result.overall == np.mean(y > s)
    assert result.gaps["a"].value == pytest.approx(np.mean((y > s)[a == "a"]) - np.mean(y > s))
    # The group is a part of all rows: the errors of the two go together.
    share = np.mean(a == "a")
    alone = next(n for n in result.numbers if (n.statistic, n.group) == ("value", "a"))
    assert result.gaps["a"].stderr == pytest.approx(alone.stderr * np.sqrt(1 - share), rel=0.1)


def test_clusters_are_left_out_whole():
    y, s, a, _ = draw(200)
    twice = [np.repeat(column, 2) for column in (y, s, a)]
    person = np.repeat(np.arange(200), 2)
    for metric in ("mean_absolute_error", "median_absolute_error"):
        once = audit(y, s, a).by_group(metric)
        both = audit(*twice, cluster=person).by_group(metric)
        assert both.n_clusters == 200
        wide, narrow = (r.gaps["b"].stderr for r in (once, both))
        assert narrow == pytest.approx(wide, rel=0.15)


def test_inferred_groups():
    rng = np.random.default_rng(1)
    p = rng.beta(2, 2, 200)
    y = rng.normal(size=200)
    s = y + rng.normal(size=200)
    rows = audit(y, s, eh.Proxy(p, ["no", "yes"], assume="guess"))
    result = rows.by_group("mean_absolute_error")
    assert result.values["yes"] == pytest.approx(np.average(np.abs(y - s), weights=p))
    assert result.intervals["yes"][0] < result.values["yes"] < result.intervals["yes"][1]
    with pytest.raises(ValueError, match="`metric` must take `sample_weight`, since groups are"):
        rows.by_group(lambda y_true, y_pred: 1.0)


def test_a_group_of_one_row_and_ratios_below_zero():
    y, s, a, _ = draw()
    a = np.array(a, dtype=object)
    a[0] = "alone"
    with pytest.warns(UserWarning, match="alone"):
        rows = audit(y, s, a)
    result = rows.by_group("r2_score")
    assert np.isnan(result.values["alone"])
    assert np.isfinite(result.gaps["b"].stderr)
    bad = audit(y, s - 5.0, draw()[2]).by_group("r2_score")
    assert bad.values["a"] < 0
    assert np.isnan(bad.ratios["b"].value)
    assert "not defined" in str(bad)


def test_shown_written_and_refused(audits):
    rows = audits[True]
    result = rows.by_group(sklearn.metrics.mean_absolute_error)
    assert "mean_absolute_error by group" in str(result)
    assert "<table" in result._repr_html_()
    frame = result.to_frame()
    assert list(frame["group"]) == ["a", "b", "c"]
    assert {"value", "value_low", "gap", "gap_p_value", "ratio_high"} <= set(frame.columns)
    assert json.loads(json.dumps(result.to_dict()))["format"] == "evenhand.by_group"
    with pytest.raises(ValueError, match="did you mean mean_absolute_error"):
        rows.by_group("mean_absolut_error")
    with pytest.raises(ValueError, match="`metric` must be a function of y_true and y_pred"):
        rows.by_group(3)
    with pytest.raises(ValueError, match="since these rows are weighted, got max_error"):
        rows.by_group("max_error")
    with pytest.raises(ValueError, match="be 'largest', 'overall' or one of"):
        rows.by_group("r2_score", reference="nobody")
    again = pickle.loads(pickle.dumps(rows)).by_group("r2_score")
    assert again.values == rows.by_group("r2_score").values
    _, s, a, _ = draw()
    with pytest.raises(ValueError, match="not be asked of an audit without `y_true`"):
        audit(None, s, a).by_group("r2_score")


def test_people_behind_cells_count():
    y, s, a, _ = draw(400)
    cells = eh.Cells.from_rows(y, s, sensitive_features=a)
    few = eh.audit(cells, estimator="logistic").by_group("mean_absolute_error")
    rows = audit(y, s, a).by_group("mean_absolute_error")
    assert few.gaps["b"].stderr == pytest.approx(rows.gaps["b"].stderr, rel=0.1)


@pytest.mark.parametrize("kind", ["rows", "clusters"])
def test_groups_depend_on_one_another_where_clusters_hold_several(kind):
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(200), 2)
    s = rng.normal(size=200)[cluster] + 0.1 * rng.normal(size=400)
    rows = Sample.read(
        np.zeros(400), s, sensitive_features=np.arange(400) % 2,
        cluster=cluster if kind == "clusters" else None,
    )  # fmt: skip
    parts = _Parts(rows, "mean_squared_error", with_overall=True)
    _, covariance, _ = _leave_out(parts, parts.values(), 0)
    together = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert together > 0.8 if kind == "clusters" else together == 0.0


def test_a_group_named_overall_keeps_its_own_numbers():
    y, s, a, _ = draw()
    named = audit(y, s, np.where(a == "a", "overall", a)).by_group("mean_absolute_error")
    plain = audit(y, s, a).by_group("mean_absolute_error")
    assert named.values == pytest.approx(
        {"overall" if k == "a" else k: v for k, v in plain.values.items()}
    )


def test_a_metric_that_is_not_defined_in_a_group_says_so():
    y, s, a, _ = draw()
    rows = audit(np.where(a == "c", 0, y > 1), s, a)
    with pytest.warns(UserWarning, match="No positive class"):
        rows.by_group("average_precision_score")
