"""Measures inside fairlearn's MetricFrame: they are metrics like any other."""

import numpy as np
import pytest

import evenhand as eh


def test_measures_are_metrics_of_a_metric_frame():
    """By region, how much the score tells about the group: the measure takes its labels by name."""
    fairlearn = pytest.importorskip("fairlearn.metrics")
    rng = np.random.default_rng(0)
    n = 400
    group, region = rng.integers(0, 2, n), np.array(["north", "south"])[np.arange(n) % 2]
    y = rng.normal(size=n)
    s = y + rng.normal(size=n) + 2.0 * group * (region == "south")

    def independence(y_true, y_pred, *, group):
        return eh.independence(y_true, y_pred, sensitive_features=group, estimator="logistic")

    frame = fairlearn.MetricFrame(
        metrics=independence, y_true=y, y_pred=s, sensitive_features=region,
        sample_params={"group": group},
    )  # fmt: skip
    for name in ("north", "south"):
        rows = region == name
        expected = independence(y[rows], s[rows], group=group[rows])
        assert frame.by_group[name] == pytest.approx(expected)
    assert frame.by_group["south"] > frame.by_group["north"] + 0.2
    assert frame.overall == pytest.approx(independence(y, s, group=group))


def test_metrics_of_fairlearn_are_metrics_of_an_audit():
    """The other way round: whatever takes (y_true, y_pred) goes into `by_group`."""
    metrics = pytest.importorskip("fairlearn.metrics")
    rng = np.random.default_rng(1)
    group, y = rng.integers(0, 2, 300), rng.normal(size=300)
    s = y + 0.5 * group
    audit = eh.audit(y, s, sensitive_features=group, estimator="lspc")
    found = audit.by_group(metrics.mean_prediction).to_frame()
    frame = metrics.MetricFrame(
        metrics=metrics.mean_prediction, y_true=y, y_pred=s, sensitive_features=group
    )
    np.testing.assert_allclose(list(found["value"]), frame.by_group.to_list())
