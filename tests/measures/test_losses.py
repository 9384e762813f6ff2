"""Losses: derivatives by finite differences, deviances against scikit-learn, targets refused."""

import pickle
import re

import numpy as np
import pytest
from sklearn.metrics import (
    d2_pinball_score,
    d2_tweedie_score,
    log_loss,
    mean_pinball_loss,
    mean_tweedie_deviance,
    r2_score,
)

from evenhand.measures.losses import FAMILIES, LINKS, R2, Loss, accuracy_of, get_loss
from evenhand.measures.measures import standard_error

CASES = [
    ("normal", None, {}),
    ("normal", "log", {}),
    ("poisson", None, {}),
    ("gamma", None, {}),
    ("gamma", "inverse", {}),
    ("inverse_gaussian", None, {}),
    ("inverse_gaussian", "canonical", {}),
    ("tweedie", None, {"power": 1.5}),
    ("tweedie", None, {"power": 1.9}),
    ("binomial", None, {}),
    ("quantile", None, {"quantile": 0.8}),
]


def rows(loss: Loss, n=60):
    rng = np.random.default_rng(0)
    if loss.name == "binomial":
        y = np.r_[0.0, 1.0, rng.uniform(size=n - 2)]
    elif loss.open_lower:
        y = rng.gamma(2.0, size=n)
    elif loss.lower == 0:
        y = rng.poisson(1.0, n).astype(float)
    else:
        y = rng.normal(2.0, 1.0, n)
    eta = rng.uniform(0.3, 1.5, n)
    return y, eta, rng.uniform(0.2, 3.0, n)


@pytest.fixture(params=CASES, ids=lambda case: "-".join(map(str, case[:2])))
def case(request):
    family, link, options = request.param
    loss = get_loss(family, link, **options)
    y, eta, weight = rows(loss)
    return loss.fixed(y, None, 3), y, eta, weight


@pytest.mark.parametrize("weighted", [False, True])
def test_slope_by_finite_differences(case, weighted):
    loss, y, eta, weight = case
    w = weight if weighted else np.ones_like(y)
    h = 1e-6
    _, slope = loss.evaluate(y, eta)
    high, _ = loss.evaluate(y, eta + h)
    low, _ = loss.evaluate(y, eta - h)
    np.testing.assert_allclose(w * slope, w * (high - low) / (2 * h), rtol=2e-6, atol=1e-7)


def test_curvature_by_finite_differences_or_in_expectation(case):
    loss, y, eta, _ = case
    h = 1e-6
    found = loss.curvature(y, eta)
    assert (found > 0).all()
    noisy = [("normal", "log"), ("inverse gaussian", "log"), ("gamma", "inverse")]
    if (loss.name, loss.link.name) in [*noisy, ("inverse gaussian", "inverse_squared")]:
        # The expectation: the second derivative at y = μ, where its noise vanishes.
        y = loss.link.inverse(eta)
        found = loss.curvature(y, eta)
    second = (loss.evaluate(y, eta + h)[1] - loss.evaluate(y, eta - h)[1]) / (2 * h)
    np.testing.assert_allclose(found, second, rtol=2e-5, atol=1e-6)


def test_value_is_the_deviance(case):
    loss, y, eta, _ = case
    value, _ = loss.evaluate(y, eta)
    expected = loss.deviance(y, loss.link.inverse(eta))
    if loss.name == "quantile":
        # Rounded corners lie above, by no more than h·log 2.
        assert (value >= expected - 1e-12).all()
        assert (value <= expected + loss.width * np.log(2) + 1e-12).all()
    else:
        np.testing.assert_allclose(value + loss.saturated(y), expected, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_deviance_equals_scikit_learn(case, weighted):
    loss, y, eta, weight = case
    mean = loss.link.inverse(eta)
    w = weight if weighted else None
    found = np.average(loss.deviance(y, mean), weights=w)
    if loss.name == "quantile":
        expected = mean_pinball_loss(y, mean, sample_weight=w, alpha=loss.quantile)
    elif loss.name == "binomial":
        use = np.isin(y, (0.0, 1.0))
        found = np.average(loss.deviance(y, mean)[use])
        expected = 2 * log_loss(y[use], mean[use])
    else:
        expected = mean_tweedie_deviance(y, mean, sample_weight=w, power=loss.power)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_accuracy_equals_scikit_learn(case, weighted):
    loss, y, eta, weight = case
    mean, w = loss.link.inverse(eta), weight if weighted else None
    found = loss.accuracy.value(y, mean, w)
    if loss.name == "quantile":
        expected = d2_pinball_score(y, mean, sample_weight=w, alpha=loss.quantile)
        assert found == pytest.approx(expected, rel=2e-2)  # another quantile between two rows
    elif loss.name == "binomial":
        constant = np.full_like(y, np.average(y, weights=w))
        d = [np.average(loss.deviance(y, m), weights=w) for m in (mean, constant)]
        assert found == pytest.approx(1 - d[0] / d[1], rel=1e-12)
    elif loss.power == 0:
        assert loss.accuracy.key == "r2"
        assert found == pytest.approx(r2_score(y, mean, sample_weight=w), rel=1e-12)
    else:
        expected = d2_tweedie_score(y, mean, sample_weight=w, power=loss.power)
        assert found == pytest.approx(expected, rel=1e-12)
        assert (loss.accuracy.key, loss.accuracy.symbol) == ("d2", "D²")


def test_null_mean_is_the_best_constant(case):
    loss, y, _, weight = case
    best = loss.null_mean(y, weight)

    def total(m):
        return np.average(loss.deviance(y, np.full_like(y, m)), weights=weight)

    assert total(best) <= min(total(best * 1.001), total(best * 0.999)) + 1e-12


def test_influence_gives_the_standard_error_of_the_bootstrap():
    loss = get_loss("poisson")
    rng = np.random.default_rng(1)
    mean = rng.gamma(2.0, 0.5, 2000)
    y = rng.poisson(mean).astype(float)
    _, influence = loss.accuracy.influence(y, mean, None)
    draws = []
    for _ in range(400):
        rows = rng.integers(0, len(y), len(y))
        draws.append(loss.accuracy.value(y[rows], mean[rows]))
    assert standard_error(influence, None) == pytest.approx(np.std(draws), rel=0.12)


@pytest.mark.parametrize("family", ["poisson", "gamma", "tweedie", "inverse_gaussian", "normal"])
def test_totals_and_rates_have_the_same_loss(family):
    loss = get_loss(family, "log")
    y, eta, weight = rows(loss)
    exposure = np.random.default_rng(2).uniform(0.1, 2.0, len(y))
    totals = weight * loss.deviance(y, exposure * np.exp(eta))
    rate, scaled = loss.per_unit(y, weight, exposure)
    np.testing.assert_allclose(scaled * loss.deviance(rate, np.exp(eta)), totals, atol=1e-9)


def test_exposure_needs_a_log_link():
    with pytest.raises(ValueError, match="`exposure` must be None for binomial with link='logit'"):
        get_loss("binomial").per_unit(np.ones(2), None, np.ones(2))


@pytest.mark.parametrize(
    ("family", "bad", "message"),
    [
        ("gamma", 0.0, "`y` must be positive for the gamma loss, got 0 in row 2"),
        ("gamma", -1.0, "`y` must be positive for the gamma loss, got -1 in row 2. Hint: leave"),
        ("inverse gaussian", 0.0, "`y` must be positive for the inverse gaussian loss"),
        ("poisson", -1.0, "`y` must not be negative for the poisson loss, got -1 in row 2"),
        ("tweedie", -0.5, "`y` must not be negative for the tweedie loss"),
        ("binomial", 1.5, "`y` must lie between 0 and 1 for the binomial loss, got 1.5 in row 2"),
    ],
)
def test_targets_are_checked(family, bad, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        get_loss(family).check_target(np.array([1.0, 1.0, bad]))


@pytest.mark.parametrize("family", FAMILIES)
def test_good_targets_pass_and_losses_pickle(family):
    loss = get_loss(family)
    loss.check_target(np.array([0.5, 1.0]))
    again = pickle.loads(pickle.dumps(loss))
    assert again.link == loss.link
    assert repr(again) == repr(loss)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("poison",), "`family` must be one of normal, poisson, gamma"),
        ((3,), "`family` must be one of"),
        (("poisson", "logit"), "`link` must be None or one of canonical, log for family='poisson'"),
        (("tweedie", "canonical"), "`link` must be None or one of log for family='tweedie'"),
        (("binomial", "log"), "`link` must be None or one of canonical, logit"),
        (
            ("tweedie", None, 0.5),
            "`power` must be a number between 1 and 3, got 0.5. Hint: between",
        ),
        (("quantile", None, 1.5, 1.0), "`quantile` must lie between 0 and 1, got 1.0"),
        ((get_loss("gamma"), "log"), "`link` must be None for a loss that has its own, got 'log'"),
    ],
)
def test_names_are_checked(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        get_loss(*arguments)


@pytest.mark.parametrize("name", list(LINKS))
def test_slopes_of_links_by_finite_differences(name):
    link, eta, h = LINKS[name], np.array([0.2, 0.7, 1.9]), 1e-5
    first, second = link.slopes(eta)
    below, above = link.inverse(eta - h), link.inverse(eta + h)
    np.testing.assert_allclose(first, (above - below) / (2 * h), rtol=1e-6, atol=1e-9)
    slopes = [link.slopes(eta + sign * h)[0] for sign in (-1, 1)]
    np.testing.assert_allclose(second, (slopes[1] - slopes[0]) / (2 * h), rtol=1e-6, atol=1e-9)


def test_a_proportion_of_zero_or_one_may_be_sure():
    loss = get_loss("binomial")
    y, mean = np.array([[0.0, 1.0, 0.0, 1.0, 0.5], [0.0, 1.0, 1.0, 0.0, 1.5]])
    deviance = loss.deviance(y, mean)
    np.testing.assert_array_equal(deviance, [0.0, 0.0, np.inf, np.inf, np.inf])


def test_links_invert_and_stay_positive():
    mean = np.array([0.1, 0.5, 0.9])
    for link in LINKS.values():
        np.testing.assert_allclose(link.inverse(link(mean)), mean, rtol=1e-12)
    log = LINKS["log"]
    for kind in (np.float32, np.float64):
        far = log.inverse(np.array([-1e4, 1e4], dtype=kind))
        assert (far > 0).all()
        assert np.isfinite(far).all()


def test_an_estimator_without_a_say_is_measured_by_r2():
    assert accuracy_of(object()) is R2


def test_the_width_of_a_quantile_is_taken_again_where_it_is_asked_for():
    rest = np.random.default_rng(0).normal(size=500)
    given = get_loss("quantile", quantile=0.3)
    first = given.fixed(rest, None, 3)
    assert given.width is None
    assert first.fixed(4.0 * rest, None, 3) is first
    again = first.fixed(4.0 * rest, None, 3, again=True)
    assert again.width == pytest.approx(4.0 * first.width)
