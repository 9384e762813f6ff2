"""Group tables and simple gaps, against SciPy and plain NumPy."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from evenhand._ranks import EXACT_RANK_ROWS
from evenhand.disparities import summarize_groups
from evenhand.sensitive import Proxy, resolve_groups


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 900)
    y = rng.normal(size=900) + 0.5 * a
    s = 0.6 * y + rng.normal(size=900) * (1 + 0.3 * a)
    return y, s, a


def test_means_errors_and_slopes_match_numpy_and_statsmodels(rows):
    y, s, a = rows
    table, gaps = summarize_groups(y, s, resolve_groups(a, n_rows=len(a)), 0.95)
    columns = table.columns
    for k in range(3):
        ys, ss = y[a == k], s[a == k]
        assert columns["n"][k] == len(ys)
        assert columns["mean_score"][k] == pytest.approx(ss.mean())
        assert columns["sd_score"][k] == pytest.approx(ss.std())
        assert columns["mean_target"][k] == pytest.approx(ys.mean())
        assert columns["mean_residual"][k] == pytest.approx((ys - ss).mean())
        assert columns["mae"][k] == pytest.approx(np.abs(ys - ss).mean())
        assert columns["rmse"][k] == pytest.approx(np.sqrt(((ys - ss) ** 2).mean()))
        half = 1.959964 * ss.std() / np.sqrt(len(ss))
        assert columns["mean_score_high"][k] - columns["mean_score"][k] == pytest.approx(half)
        line = sm.OLS(ys, sm.add_constant(ss)).fit()
        assert columns["calibration_slope"][k] == pytest.approx(line.params[1])
        width = columns["calibration_slope_high"][k] - columns["calibration_slope"][k]
        assert width == pytest.approx(1.96 * line.bse[1], rel=0.02)
    means = [s[a == k].mean() for k in range(3)]
    assert gaps.mean_score_gap == pytest.approx(max(means) - min(means))
    assert gaps.rmse_ratio == pytest.approx(max(columns["rmse"]) / min(columns["rmse"]))


@pytest.mark.parametrize("rounded", [False, True])
def test_distribution_gaps_match_scipy(rows, rounded):
    _, s, a = rows
    s = np.round(s, 1) if rounded else s
    table, gaps = summarize_groups(None, s, resolve_groups(a, n_rows=len(a)), 0.95)
    for k in range(3):
        inside, outside = s[a == k], s[a != k]
        expected = stats.ks_2samp(inside, outside).statistic
        assert table.columns["kolmogorov_smirnov"][k] == pytest.approx(expected)
        expected = stats.wasserstein_distance(inside, outside)
        assert table.columns["wasserstein"][k] == pytest.approx(expected)
    assert gaps.wasserstein == pytest.approx(max(table.columns["wasserstein"]))
    assert np.isnan(gaps.rmse_ratio)


def test_many_rows_use_a_grid_within_its_resolution():
    rng = np.random.default_rng(1)
    n = EXACT_RANK_ROWS + 1000
    a = rng.integers(0, 2, n)
    s = rng.normal(size=n) + 0.2 * a
    s[:5000] = 0.25  # a point mass
    table, _ = summarize_groups(None, s, resolve_groups(a, n_rows=n), 0.95)
    expected = stats.ks_2samp(s[a == 0], s[a == 1]).statistic
    assert table.columns["kolmogorov_smirnov"][0] == pytest.approx(expected, abs=1e-3)
    expected = stats.wasserstein_distance(s[a == 0], s[a == 1])
    assert table.columns["wasserstein"][0] == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize("kind", ["pareto", "lognormal", "cauchy", "zeros", "few"])
def test_distance_of_many_rows_with_heavy_tails(kind):
    # Most of the distance lies beyond the last sample quantiles.
    rng = np.random.default_rng(2)
    n = EXACT_RANK_ROWS + 1000
    a = rng.integers(0, 2, n)
    s = rng.pareto(1.5, n) * (1 + 0.1 * a) * rng.choice([-1.0, 1.0], n)
    if kind == "lognormal":
        s = np.exp(2.0 * rng.normal(size=n) + 0.1 * a)
    elif kind == "cauchy":
        s = rng.standard_cauchy(n) + 0.1 * a
    elif kind == "zeros":
        s[rng.random(n) < 0.5 + 0.02 * a] = s.min()
    elif kind == "few":
        s = np.clip(np.round(s), -1, 3)
    table, _ = summarize_groups(None, s, resolve_groups(a, n_rows=n), 0.95)
    expected = stats.wasserstein_distance(s[a == 0], s[a == 1])
    assert table.columns["wasserstein"][0] == pytest.approx(expected, rel=1e-2)
    expected = stats.ks_2samp(s[a == 0], s[a == 1]).statistic
    assert table.columns["kolmogorov_smirnov"][0] == pytest.approx(expected, abs=1e-3)


def test_integer_weights_are_repeated_rows(rows):
    y, s, a = rows
    w = np.random.default_rng(2).integers(1, 4, len(y))
    weighted, _ = summarize_groups(y, s, resolve_groups(a, n_rows=len(a), sample_weight=w), 0.9)
    again = np.repeat(np.arange(len(y)), w)
    groups = resolve_groups(a[again], n_rows=len(again))
    repeated, _ = summarize_groups(y[again], s[again], groups, 0.9)
    for name in ("share", "mean_score", "sd_target", "mae", "rmse", "wasserstein"):
        assert weighted.columns[name] == pytest.approx(repeated.columns[name])


def test_certain_probabilities_equal_labels(rows):
    y, s, a = rows
    hard, _ = summarize_groups(y, s, resolve_groups(a, n_rows=len(a)), 0.95)
    proxy = Proxy(np.eye(3)[a], [0, 1, 2])
    soft, _ = summarize_groups(y, s, resolve_groups(proxy, n_rows=len(a)), 0.95)
    for name, values in hard.columns.items():
        if name != "group":
            assert soft.columns[name] == pytest.approx(values), name


def test_a_group_of_one_row_has_no_interval(rows):
    y, s, a = rows
    a = a.copy()
    a[0] = 3
    with pytest.warns(UserWarning, match="single row"):
        groups = resolve_groups(a, n_rows=len(a))
    table, _ = summarize_groups(y, s, groups, 0.95)
    assert np.isnan(table.columns["mean_score_low"][3])
    assert np.isnan(table.columns["calibration_slope"][3])
