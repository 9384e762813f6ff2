import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import gaussian_kde, norm

import evenhand as eh
from evenhand.auditing import figures as curves


def test_density_is_one_and_near_the_truth():
    x = np.random.default_rng(0).normal(size=4000)
    grid = np.linspace(-6, 6, 400)
    found = curves.density(x, np.ones(4000), grid)
    assert trapezoid(found, grid) == pytest.approx(1, abs=1e-3)
    assert np.abs(found - norm.pdf(grid)).max() < 0.03


def test_density_matches_scipy_at_the_same_bandwidth():
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=500), rng.uniform(0, 2, 500)
    grid = curves.grid_over(x)
    reference = gaussian_kde(x, bw_method=0.3, weights=w)
    width = np.sqrt(reference.covariance[0, 0])
    ours = curves.density(x, w, grid)
    # Same kernel, another width: compare where scipy is given ours.
    spread = np.sqrt(np.cov(x, aweights=w))
    p = w / w.sum()
    order = np.argsort(x)
    low, high = np.interp([0.25, 0.75], np.cumsum(p[order]), x[order])
    silverman = 0.9 * min(np.sqrt(p @ (x - p @ x) ** 2), (high - low) / 1.349) * (p @ p) ** 0.2
    same = gaussian_kde(x, bw_method=silverman / spread, weights=w)(grid)
    assert width > 0
    np.testing.assert_allclose(ours, same, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0], [0.0, 1e-300]])
def test_density_of_hardly_any_rows_is_finite(values):
    x = np.array(values)
    grid = curves.grid_over(x)
    assert np.isfinite(curves.density(x, np.ones(len(x)), grid)).all()
    assert grid[0] < grid[-1]


def test_a_density_of_prices_stops_at_zero():
    s = np.random.default_rng(0).gamma(1.0, 1.0, 4000)
    grid = curves.grid_over(s)
    assert grid[0] == 0
    for weight in (np.ones(4000), (s > 0.5).astype(float)):
        assert np.trapezoid(curves.density(s, weight, grid), grid) == pytest.approx(1, abs=0.01)
    assert curves.grid_over(s - 1.0)[0] < -1


def test_calibration_bins_are_weighted_means():
    rng = np.random.default_rng(0)
    s = rng.normal(size=1000)
    y = 2 * s + 1
    x, mean, error = curves.calibration(s, y, np.ones(1000), 0.95)
    assert len(x) == 10
    np.testing.assert_allclose(mean, 2 * x + 1)
    np.testing.assert_allclose(x[0], np.sort(s)[:100].mean())
    assert (error > 0).all()
    assert len(curves.calibration(s[:30], y[:30], np.ones(30), 0.95)[0]) == 1


@pytest.fixture
def audit():
    rng = np.random.default_rng(0)
    a = np.repeat(["north", "south", "west"], [300, 200, 100])
    return eh.audit(None, rng.normal(size=600), sensitive_features=a, estimator="logistic")


def test_sample_keeps_the_largest_groups(audit):
    sample = curves.drawn_rows(audit, 2)
    shares = audit._groups.columns["share"]
    assert set(sample.index) == set(np.argsort(shares)[::-1][:2]) or len(set(shares)) < 3
    assert (sample.codes >= -1).all()
    assert (sample.codes == -1).any()
