"""Group tables and simple gaps, against SciPy and plain NumPy."""

import tracemalloc

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from evenhand.auditing import group_tables as disparities
from evenhand.auditing.group_tables import GroupStatistics, summarize_groups
from evenhand.data.groups import Proxy, resolve_groups
from evenhand.data.sample import Sample
from evenhand.estimators.ranks import EXACT_RANK_ROWS, Ranks


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 900)
    y = rng.normal(size=900) + 0.5 * a
    s = 0.6 * y + rng.normal(size=900) * (1 + 0.3 * a)
    return y, s, a


def test_means_errors_and_slopes_match_numpy_and_statsmodels(rows):
    y, s, a = rows
    table = summarize_groups(Sample(resolve_groups(a, n_rows=len(a)), s, y), 0.95)
    gaps = table.gaps
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
        n = len(ss)
        t = stats.t.ppf(0.975, n - 1)
        half = t * ss.std(ddof=1) / np.sqrt(n)
        assert columns["mean_score_high"][k] - columns["mean_score"][k] == pytest.approx(half)
        line = sm.OLS(ys, sm.add_constant(ss)).fit(cov_type="HC3")
        assert columns["calibration_slope"][k] == pytest.approx(line.params[1])
        entry = GroupStatistics(Sample(resolve_groups(a, n_rows=len(a)), s, y))["calibration_slope"]
        assert entry.stderr[k] == pytest.approx(np.sqrt(n / (n - 1)) * line.bse[1])
    means = [s[a == k].mean() for k in range(3)]
    assert gaps.mean_score_gap == pytest.approx(max(means) - min(means))
    assert gaps.rmse_ratio == pytest.approx(max(columns["rmse"]) / min(columns["rmse"]))


@pytest.mark.parametrize("rounded", [False, True])
def test_distribution_gaps_match_scipy(rows, rounded):
    _, s, a = rows
    s = np.round(s, 1) if rounded else s
    table = summarize_groups(Sample(resolve_groups(a, n_rows=len(a)), s, None), 0.95)
    gaps = table.gaps
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
    table = summarize_groups(Sample(resolve_groups(a, n_rows=n), s, None), 0.95)
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
    table = summarize_groups(Sample(resolve_groups(a, n_rows=n), s, None), 0.95)
    expected = stats.wasserstein_distance(s[a == 0], s[a == 1])
    assert table.columns["wasserstein"][0] == pytest.approx(expected, rel=1e-2)
    expected = stats.ks_2samp(s[a == 0], s[a == 1]).statistic
    assert table.columns["kolmogorov_smirnov"][0] == pytest.approx(expected, abs=1e-3)


def test_integer_weights_are_repeated_rows(rows):
    y, s, a = rows
    w = np.random.default_rng(2).integers(1, 4, len(y))
    weighted = summarize_groups(
        Sample(resolve_groups(a, n_rows=len(a), sample_weight=w), s, y), 0.9
    )
    again = np.repeat(np.arange(len(y)), w)
    groups = resolve_groups(a[again], n_rows=len(again))
    repeated = summarize_groups(Sample(groups, s[again], y[again]), 0.9)
    for name in ("share", "mean_score", "sd_target", "mae", "rmse", "wasserstein"):
        assert weighted.columns[name] == pytest.approx(repeated.columns[name])


def test_certain_probabilities_equal_labels(rows):
    y, s, a = rows
    hard = summarize_groups(Sample(resolve_groups(a, n_rows=len(a)), s, y), 0.95)
    proxy = Proxy(np.eye(3)[a], [0, 1, 2])
    soft = summarize_groups(Sample(resolve_groups(proxy, n_rows=len(a)), s, y), 0.95)
    for name, values in hard.columns.items():
        if name != "group":
            assert soft.columns[name] == pytest.approx(values), name


def test_a_group_of_one_row_has_no_interval(rows):
    y, s, a = rows
    a = a.copy()
    a[0] = 3
    with pytest.warns(UserWarning, match="single row"):
        groups = resolve_groups(a, n_rows=len(a))
    table = summarize_groups(Sample(groups, s, y), 0.95)
    assert np.isnan(table.columns["mean_score_low"][3])
    assert np.isnan(table.columns["calibration_slope"][3])


# --- groups of different scale --------------------------------------------------------------------


def by_numpy(y, s, w, shape=(0, 0)):
    """What a table says of one group, by plain NumPy in extended precision.

    `shape` is how skewed and peaked the slope's influences are in all groups together.
    """
    y, s, w = (np.asarray(x, dtype=np.longdouble) for x in (y, s, w))
    share = w / w.sum()
    # Rounded as the library sees it.
    r = np.asarray(y.astype(float) - s.astype(float), dtype=np.longdouble)

    def mean(x):
        return np.sum(share * x)

    def variance(x):
        return mean(np.square(x - mean(x)))

    rmse = np.sqrt(mean(r * r))
    n = 1 / np.sum(share**2)
    slope = mean((s - mean(s)) * (y - mean(y))) / variance(s)
    # As the library has it: of good scores the residual is known better than y.
    left = r - mean(r) - mean((s - mean(s)) * (r - mean(r))) / variance(s) * (s - mean(s))

    free = np.maximum(1 - share * (1 + np.square(s - mean(s)) / variance(s)), 0.1)

    def half(psi, few_decide=False):
        two, three, four = (np.sum((share * psi) ** p) for p in (2, 3, 4))
        error = np.sqrt(n / (n - 1) * two)
        if not few_decide or two == 0:
            return stats.t.ppf(0.975, float(n - 1)) * error
        peak = max(four / two**2, shape[1] / n)
        t = stats.t.ppf(0.975, float(min(n - 1, max(1 / peak - 1, 1))))
        g = max(three / two**1.5, shape[0] / np.sqrt(n), key=abs)
        # Hall's transform, turned around.
        return error * (t if abs(g) < 0.05 else 3 / g * (1 - np.cbrt(1 - g * (t + g / 6))))

    influence = (s - mean(s)) * left / variance(s) / free
    two, three, four = (np.sum((share * influence) ** p) for p in (2, 3, 4))
    return {
        "shape": (three / two**1.5 * np.sqrt(n), four / two**2 * n) if two else (0, 0),
        "mean_score": mean(s),
        "sd_score": np.sqrt(variance(s)),
        "sd_target": np.sqrt(variance(y)),
        "mean_residual": mean(r),
        "sd_residual": np.sqrt(variance(r)),
        "mae": mean(np.abs(r)),
        "rmse": rmse,
        "calibration_slope": slope,
        "rmse half": half(r * r - mean(r * r)) / (2 * rmse),
        "mae half": half(np.abs(r) - mean(np.abs(r))),
        "calibration_slope half": half(influence, True),
    }


def far_apart(kind, n=1900):
    rng = np.random.default_rng(3)
    a = np.arange(n) % 2
    y = rng.normal(size=n)
    s = y + 0.5 * rng.normal(size=n)
    if kind == "one huge score":
        s[501] = 999_999_999.0
    elif kind == "the first score is huge":
        s[1] = 1e12
    elif kind == "1e7 apart":
        y, s = y + 1e7 * a, s + 1e7 * a
    elif kind == "1e9 apart":
        y, s = y - 1e9 * a, s - 1e9 * a
    elif kind == "good and bad scores":
        s = y + np.where(a == 0, 1e-3, 1e4) * rng.normal(size=n)
    elif kind == "residuals all alike":
        y = rng.integers(0, 100, n).astype(float)
        s = y + 2.0**20 + a * 2.0**-10 * rng.integers(-3, 4, n)
    return y, s, a, rng


KINDS = [
    "one huge score", "the first score is huge", "1e7 apart", "1e9 apart", "good and bad scores",
    "residuals all alike",
]  # fmt: skip


@pytest.mark.parametrize("member", ["codes", "weights", "probabilities"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_group_is_as_exact_as_if_it_were_alone(kind, member):
    y, s, a, rng = far_apart(kind)
    w, weight, who = np.ones(len(y)), None, a
    if member == "weights":
        w = weight = rng.uniform(0.5, 2, len(y))
        w[:2] = 1e-20  # the first row of a group says little about where it lies
        s[:2] += 1e9
    elif member == "probabilities":
        who = Proxy(np.eye(2)[a])
    groups = resolve_groups(who, n_rows=len(y), sample_weight=weight)
    columns = summarize_groups(Sample(groups, s, y), 0.95).columns
    parts, shares = [(y[a == k], s[a == k], w[a == k]) for k in range(2)], groups.shares
    with np.errstate(invalid="ignore", divide="ignore"):
        shape = shares @ np.array([by_numpy(*part)["shape"] for part in parts])
    for k, part in enumerate(parts):
        with np.errstate(invalid="ignore", divide="ignore"):
            expected = by_numpy(*part, shape)
        del expected["shape"]
        for name, value in expected.items():
            base = name.removesuffix(" half")
            found = columns[base][k]
            if base != name:
                # Of an interval on a number this large not more can be told.
                tolerance = max(1e-7 * float(value), 4e-16 * abs(found))
                found = columns[f"{base}_high"][k] - found
                assert found == pytest.approx(float(value), rel=5e-6, abs=tolerance), name
            else:
                assert found == pytest.approx(float(value), rel=1e-7, abs=1e-12), name


@pytest.mark.parametrize("seed", range(3))
def test_a_group_predicted_exactly_has_no_error(seed):
    rng = np.random.default_rng(seed)
    a = np.arange(1000) % 2
    y = rng.lognormal(11, 1, 1000)
    s = np.where(a == 0, y, y * np.exp(0.5 * rng.normal(size=1000)))
    table = summarize_groups(Sample(resolve_groups(a, n_rows=1000), s, y), 0.95)
    gaps = table.gaps
    columns = table.columns
    for name in ("rmse", "mae", "mean_residual"):
        assert columns[name][0] == columns[f"{name}_low"][0] == columns[f"{name}_high"][0] == 0
    assert columns["sd_residual"][0] == 0
    assert columns["calibration_slope"][0] == columns["calibration_slope_high"][0] == 1
    assert np.isnan(gaps.rmse_ratio)
    expected = np.sqrt(np.mean((y - s)[a == 1] ** 2))
    assert columns["rmse"][1] == pytest.approx(expected, rel=1e-12)


def test_a_constant_within_a_group_has_no_spread():
    rng = np.random.default_rng(0)
    a = np.arange(900) % 3
    y = rng.normal(size=900)
    s = np.where(a == 0, 0.1, y)
    for who in (a, Proxy(np.eye(3)[a])):
        columns = summarize_groups(Sample(resolve_groups(who, n_rows=900), s, y), 0.95).columns
        assert columns["mean_score"][0] == 0.1
        assert columns["sd_score"][0] == 0
        assert np.isnan(columns["calibration_slope"][0])


def test_overlapping_probabilities_far_from_zero():
    rng = np.random.default_rng(5)
    n = 3000
    p = rng.dirichlet([0.3, 1.0, 2.0], n)
    y = 1e8 + rng.normal(size=n)
    s = y + rng.normal(size=n)
    groups = resolve_groups(Proxy(p), n_rows=n, sample_weight=rng.uniform(0.5, 2, n))
    columns = summarize_groups(Sample(groups, s, y), 0.95).columns
    for k in range(3):
        expected = by_numpy(y, s, p[:, k] * groups.weight)
        for name in ("sd_score", "sd_target", "sd_residual", "mae", "rmse", "calibration_slope"):
            assert columns[name][k] == pytest.approx(float(expected[name]), rel=1e-7), name


@pytest.mark.parametrize("soft", [False, True])
def test_gaps_of_a_few_groups_at_a_time_are_those_of_all(soft, monkeypatch):
    rng = np.random.default_rng(0)
    s = np.round(rng.normal(size=400), 1)
    labels = rng.integers(0, 7, 400)
    members = Proxy(rng.dirichlet(np.ones(7), 400)) if soft else labels
    groups = resolve_groups(members, n_rows=400, sample_weight=rng.uniform(0.1, 2.0, 400))
    whole = disparities._distribution_gaps(*Ranks(s).distribution(), groups)
    monkeypatch.setattr(disparities, "_GAP_NUMBERS", 1000)
    for found, expected in zip(
        disparities._distribution_gaps(*Ranks(s).distribution(), groups), whole, strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gaps_of_many_groups_need_little_memory():
    rng = np.random.default_rng(0)
    n = 100_000
    groups = resolve_groups(rng.integers(0, 300, n).astype(str), n_rows=n)
    ranks = Ranks(rng.normal(size=n))
    tracemalloc.start()
    disparities._distribution_gaps(*ranks.distribution(), groups)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6


@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_of_pure_premiums_are_covered(weighted):
    covered = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        n = 4000 if weighted else 1500
        premium, a = rng.gamma(4.0, 25.0, n), rng.integers(0, 2, n)
        claims = rng.poisson(0.1, n)
        y = np.where(claims > 0, rng.gamma(0.7 * np.maximum(claims, 1)) / 0.7, 0.0) * premium / 0.1
        w = rng.lognormal(size=n) if weighted else None
        rows = Sample(resolve_groups(a, n_rows=n, sample_weight=w), premium, y)
        low, high = GroupStatistics(rows)["calibration_slope"].interval(0.95)
        covered += ((low <= 1) & (high >= 1)).tolist()
    assert np.mean(covered) > 0.91  # 0.85 to 0.88 by Student's t
