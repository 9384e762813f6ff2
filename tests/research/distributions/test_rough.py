import numpy as np
import pytest
from scipy.special import entr
from scipy.stats import norm

from distributions import ROUGH_FAMILIES, Truth, rough_scenario
from evenhand.data.criteria import BOTH, NOTHING, SCORE, TARGET

TWO_LEVELS = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1))


def bins(v, count):
    """Bins of equal numbers of rows; distinct values where there are few."""
    edges = np.unique(v[:5000])
    if len(edges) > count:
        edges = np.sort(v)[np.arange(1, count) * len(v) // count]
    return np.searchsorted(edges, v, side="right")


def ranks(v):
    out = np.empty(len(v))
    out[np.argsort(v)] = (np.arange(len(v)) + 0.5) / len(v)
    return out


def histogram_entropy(cells, a, k):
    """Plug-in H(A | cell) with the Miller-Madow correction, from counts."""
    counts = np.bincount(cells * k + a, minlength=(cells.max() + 1) * k).reshape(-1, k)
    n = counts.sum()
    h = (entr(counts / n).sum() - entr(counts.sum(axis=1) / n).sum()).item()
    return h + ((counts > 0).sum() - (counts.sum(axis=1) > 0).sum()) / (2 * n)


@pytest.mark.slow
@pytest.mark.parametrize("family", ROUGH_FAMILIES)
def test_truth_against_histograms_of_two_million_rows(family):
    scenario = rough_scenario(family)
    k = scenario.n_groups
    y, s, a = scenario.sample(2_000_000, 1)
    h = scenario.truth.entropies
    shares = np.bincount(a) / len(a)
    assert entr(shares).sum() == pytest.approx(h[NOTHING], abs=2e-3)
    assert histogram_entropy(bins(s, 360), a, k) == pytest.approx(h[SCORE], abs=3e-3)
    assert histogram_entropy(bins(y, 360), a, k) == pytest.approx(h[TARGET], abs=3e-3)
    if family.startswith(("near_copy", "band", "jump")):
        # The edge runs along s = y, so cells are made of the target and the difference of ranks.
        second = bins(norm.ppf(ranks(s)) - norm.ppf(ranks(y)), 120)
    else:
        second = bins(s, 120)
    both = histogram_entropy(bins(y, 120) * 1000 + second, a, k)
    # A cell across an edge holds less information than its two parts: only upward, and the more
    # the longer the edges are.
    assert -3e-3 < both - h[BOTH] < 0.035


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["sign", "ring", "band_2", "near_copy_size", "spiral", "ties_both"]
)
def test_two_levels_leave_the_entropy_of_one_level(family):
    assert rough_scenario(family).truth.entropies[BOTH] == pytest.approx(TWO_LEVELS, abs=1e-12)
    weak = rough_scenario(family, high=0.6, low=0.4).truth
    assert weak.entropies[BOTH] == pytest.approx(
        -(0.6 * np.log(0.6) + 0.4 * np.log(0.4)), abs=1e-12
    )


def test_sign_is_that_of_the_product():
    y, s, a = rough_scenario("sign").sample(50_000, 0)
    inside = s * y > 0
    assert a[inside].mean() == pytest.approx(0.1, abs=0.01)
    assert a[~inside].mean() == pytest.approx(0.9, abs=0.01)


def test_shares_of_bands_and_spots():
    for family, share in [("band_2", 0.02), ("band_5", 0.05), ("spot", 0.03)]:
        y, s, a = rough_scenario(family, high=1.0, low=0.0, margins="normal").sample(400_000, 2)
        assert a.mean() == pytest.approx(share, abs=0.002)
        if family != "spot":
            assert np.abs(y - s)[a == 1].max() < np.abs(y - s)[a == 0].min()


def test_near_copy_is_a_copy_up_to_a_thousandth():
    y, s, a = rough_scenario("near_copy_sign", high=1.0, low=0.0).sample(20_000, 0)
    assert np.corrcoef(y, s)[0, 1] > 0.999999
    assert (s - y)[a == 1].mean() == pytest.approx(1e-3 * np.sqrt(2 / np.pi), rel=0.05)


@pytest.mark.parametrize("target", ["uniform", "normal"])
def test_oscillation_against_log_loss_of_the_explicit_posterior(target):
    scenario = rough_scenario("oscillation", periods=2, target=target)
    y, s, a = scenario.sample(1_000_000, 5)
    swing = 0.5 * np.sin(4 * np.pi * y)
    loss = np.log1p(np.exp(-2 * (2 * a - 1) * swing * (s - y) / 0.3**2))
    h = scenario.truth.entropies
    assert loss.mean() == pytest.approx(h[BOTH], abs=4 * loss.std() / 1000)
    assert h[TARGET] == pytest.approx(np.log(2))


def test_margins_change_values_but_not_groups_or_truth():
    plain = rough_scenario("spot")
    mixed = rough_scenario("spot", margins=("lognormal", "uniform"))
    y, s, a = plain.sample(1000, 3)
    v, t, b = mixed.sample(1000, 3)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(t, np.exp(s))
    np.testing.assert_allclose(v, norm.cdf(y))
    assert plain.truth == mixed.truth


def test_a_seed_draws_levels_edges_and_margins():
    first, again, other = (rough_scenario("checkerboard_4", seed) for seed in (1, 1, 2))
    assert first.truth == again.truth
    assert first.truth != other.truth
    assert rough_scenario("sign").truth == rough_scenario("sign").truth
    kept = rough_scenario("checkerboard_4", 1, high=0.9, low=0.1)
    assert kept.truth.entropies[BOTH] == pytest.approx(TWO_LEVELS)


@pytest.mark.parametrize("family", ["checkerboard_3", "oscillation_5", "ties_both", "colors_5"])
def test_the_same_seed_gives_the_same_rows(family):
    scenario = rough_scenario(family)
    for one, two in zip(scenario.sample(50, 4), scenario.sample(50, 4), strict=True):
        np.testing.assert_array_equal(one, two)
    assert scenario.name == family


def test_no_information_is_zero_and_never_less():
    # Differences of sums that agree up to rounding.
    assert 0.0 <= rough_scenario("strip").truth.sufficiency < 1e-12
    assert 0.0 <= rough_scenario("ties_target").truth.separation < 1e-12
    assert Truth({(): 1.0, ("s",): 1.0 + 1e-16 * 4, ("y",): 1.0, BOTH: 1.0}).independence == 0.0


def test_colors_are_groups():
    scenario = rough_scenario("colors_10", high=1.0)
    y, s, a = scenario.sample(5000, 0)
    i, j = (np.floor(10 * norm.cdf(v)) for v in (s, y))
    np.testing.assert_array_equal(a, (i + j) % 10)
    assert scenario.n_groups == 10


def test_messages():
    with pytest.raises(ValueError, match=r"`family` must be one of sign, .*got 'plaid'. Hint:"):
        rough_scenario("plaid")
    with pytest.raises(
        ValueError, match=r"`size` is no parameter of the family 'ring'. Hint: it t"
    ):
        rough_scenario("ring", size=3)
    with pytest.raises(ValueError, match=r"`margins` must be one or two of normal, .*Hint:"):
        rough_scenario("ring", margins="cauchy")
