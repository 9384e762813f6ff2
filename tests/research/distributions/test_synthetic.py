import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from distributions import (
    FAMILIES,
    bivariate_normal_scenario,
    null_scenario,
    random_scenario,
)
from evenhand.data.criteria import CRITERIA

CONDITIONS = [("s",), ("y",), ("s", "y")]


def mixture_entropy(share, first, second):
    """H(A|Z) for Z | A normal, by adaptive quadrature of the explicit densities."""

    def loss(z):
        p = np.array([(1 - share) * first.pdf(z), share * second.pdf(z)])
        p = p[p > 0]
        return -(p * np.log(p / p.sum())).sum() if len(p) else 0.0

    return quad(loss, -15, 15, limit=500, epsabs=1e-11)[0]


def test_bivariate_normal_truth_against_one_dimensional_integrals():
    # With one covariance in both groups log odds are linear in (y, s), so H(A|S,Y) is that of one
    # normal variable with unit variance whose means are a Mahalanobis distance apart.
    share, shift = 0.3, np.array([0.7, 1.1])
    cov = np.array([[1.5, 0.6], [0.6, 0.8]])
    truth = bivariate_normal_scenario(share, [(0, 0), shift], [cov, cov]).truth
    h = truth.entropies
    y = mixture_entropy(share, norm(0, cov[0, 0] ** 0.5), norm(shift[0], cov[0, 0] ** 0.5))
    s = mixture_entropy(share, norm(0, cov[1, 1] ** 0.5), norm(shift[1], cov[1, 1] ** 0.5))
    distance = np.sqrt(shift @ np.linalg.solve(cov, shift))
    both = mixture_entropy(share, norm(0, 1), norm(distance, 1))
    np.testing.assert_allclose([h["y",], h["s",], h["s", "y"]], [y, s, both], atol=1e-8)
    a = -(0.3 * np.log(0.3) + 0.7 * np.log(0.7))
    assert h[()] == pytest.approx(a)
    assert truth.independence == pytest.approx((a - s) / a, abs=1e-7)
    assert truth.separation == pytest.approx((y - both) / y, abs=1e-7)
    assert truth.sufficiency == pytest.approx((s - both) / s, abs=1e-7)
    assert truth.nats("separation") == pytest.approx(y - both, abs=1e-7)


@pytest.mark.parametrize("family", FAMILIES)
def test_random_scenarios_spread_over_the_range(family):
    truths = [random_scenario(family, seed).truth for seed in range(25)]
    values = np.array([[truth.value(c) for c in CRITERIA] for truth in truths])
    assert (values > 0).all()
    assert (values < 0.95).all()
    assert (values.min(axis=0) < 0.06).all()
    assert (values.max(axis=0) > 0.25).all()
    assert (np.median(values, axis=0) > 0.015).all()
    assert (np.median(values, axis=0) < 0.3).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_random_scenario_repeats_for_a_seed(family):
    assert random_scenario(family, 5) == random_scenario(family, 5)
    assert random_scenario(family, 5) != random_scenario(family, 6)


def test_random_scenario_takes_generators():
    rng = np.random.default_rng(0)
    assert random_scenario("gamma", rng) != random_scenario("gamma", rng)
    legacy = random_scenario("gamma", np.random.RandomState(0))
    assert legacy == random_scenario("gamma", np.random.RandomState(0))


def test_families_have_the_shapes_they_are_named_for():
    y, _, _ = random_scenario("zero_inflated", 0).sample(5000, 0)
    assert 0.15 < (y == 0).mean() < 0.85
    assert (y >= 0).all()
    y, _, _ = random_scenario("rounded", 0).sample(5000, 0)
    assert 15 <= len(np.unique(y)) <= 20
    scenario = random_scenario("four_groups", 0)
    assert scenario.n_groups == 4
    assert max(scenario.shares) > 2.5 * min(scenario.shares)
    y, s, _ = random_scenario("student_t", 0).sample(20_000, 0)
    assert np.abs((y - np.median(y)) / y.std()).max() > 6
    assert np.abs((s - np.median(s)) / s.std()).max() > 6


@pytest.mark.parametrize("share", [0.5, 0.05, (0.6, 0.3, 0.1)])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_null_scenario_holds_exactly_one_criterion(criterion, share):
    for seed in range(4):
        scenario = null_scenario(criterion, seed, share=share)
        expected = (1 - share, share) if np.ndim(share) == 0 else share
        assert scenario.shares == pytest.approx(expected)
        for name in CRITERIA:
            nats = scenario.truth.nats(name)
            if name == criterion:
                assert abs(nats) < 1e-9
            else:
                assert nats > 1e-5


@pytest.mark.parametrize("criterion", CRITERIA)
def test_null_posteriors_do_not_move_with_the_variable_under_test(criterion):
    scenario = null_scenario(criterion, 1, share=0.05)
    y, s, _ = scenario.sample(500, 2)
    c = CRITERIA[criterion]
    posteriors = scenario.log_posteriors(y, s, [z for z in (c.given, c.joint) if z])
    given = posteriors.get(c.given, np.log(scenario.shares))
    np.testing.assert_allclose(np.broadcast_to(given, (500, 2)), posteriors[c.joint], atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: random_scenario("cauchy"),
            r"`family` must be one of bivariate_normal, .*'cauchy'",
        ),
        (lambda: null_scenario("parity"), r"`criterion` must be one of .*'parity'"),
        (lambda: null_scenario("separation", share=1.0), r"`share` must lie strictly between"),
        (
            lambda: null_scenario("separation", share=(0.5, 0.6)),
            r"`share` must be positive and sum to 1",
        ),
    ],
)
def test_bad_parameters_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
