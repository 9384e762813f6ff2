"""Rows needed, by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from exact import exact_fairness_p_value
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

import evenhand as eh
from evenhand.data.groups import resolve_groups
from evenhand.measures.measures import errors_below, half_width_down_to


def information(shift, shares):
    """Normalized I(S;A) of unit normals at 0 and `shift`."""
    p = np.array(shares) / np.sum(shares)

    def left(x):
        joint = p * norm.pdf(x, [0.0, shift])
        return -(joint * np.log(np.maximum(joint / joint.sum(), 1e-300))).sum()

    h = -(p * np.log(p)).sum()
    return 1.0 - quad(left, -9.0, 9.0 + shift)[0] / h


@pytest.mark.parametrize(("effect", "shares"), [(0.02, (0.5, 0.5)), (0.03, (0.85, 0.15))])
def test_power_of_the_test(effect, shares):
    n = eh.rows_needed(effect, shares)
    shift = brentq(lambda d: information(d, shares) - effect, 0.01, 3.0)
    found = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        a = (rng.random(n) < shares[1] / sum(shares)).astype(int)
        s = rng.standard_normal(n) + shift * a
        test = exact_fairness_p_value("independence", {"s": s}, resolve_groups(a, n_rows=n))
        found += test.p_value < 0.05
    assert found / 300 == pytest.approx(0.8, abs=0.08)


@pytest.mark.parametrize(("effect", "word"), [(0.004, "holds"), (0.05, "violated")])
def test_power_of_a_verdict(effect, word):
    """Rows that decide against a tolerance of 0.02, in about four of five samples."""
    n = eh.rows_needed(effect, [0.5, 0.5], tolerance=0.02)
    shift = brentq(lambda d: information(d, (0.5, 0.5)) - effect, 0.01, 3.0)
    found = 0
    for seed in range(80):
        rng = np.random.default_rng(seed)
        a = rng.integers(0, 2, n)
        s = rng.standard_normal(n) + shift * a
        audit = eh.audit(None, s, sensitive_features=a, estimator="logistic")
        found += audit.independence.judged(0.02) == word
    assert 0.65 <= found / 80 <= 0.95


def test_more_rows_for_less():
    needed = eh.rows_needed
    assert needed(0.01, [50, 50]) == needed(0.01, [0.5, 0.5])
    assert needed(0.01, [0.5, 0.5]) == pytest.approx(2 * needed(0.02, [0.5, 0.5]), rel=0.01)
    assert needed(0.01, [0.5, 0.5], power=0.95) > needed(0.01, [0.5, 0.5])
    assert needed(0.01, [0.5, 0.5], level=0.01) > needed(0.01, [0.5, 0.5])
    assert needed(0.01, [0.5, 0.5], criterion="separation") > needed(0.01, [0.5, 0.5])
    near, far = (needed(v, [0.5, 0.5], tolerance=0.02) for v in (0.015, 0.005))
    assert near > far


@pytest.mark.parametrize("effect", [0.002, 0.03])
def test_rows_for_a_verdict_are_the_fewest_that_do(effect):
    """By the errors of an information of three groups: variance 2vH/n, and 3·2/2n² of its terms."""
    shares, limit = np.array([0.5, 0.3, 0.2]), 0.01
    h, z, more = -(shares * np.log(shares)).sum(), norm.isf(0.05), norm.ppf(0.8)

    def enough(n):
        def error(value):
            return np.sqrt(2 * value * h / n + 6 / (2 * n * n)) / h

        if effect > limit:
            return half_width_down_to(effect, limit) >= (z + more) * error(effect)
        seen = effect + more * error(effect)
        return seen < limit and -errors_below(seen, error(seen), limit, 2 / (n * h)) >= z

    n = eh.rows_needed(effect, shares, tolerance=limit)
    assert enough(n)
    assert not enough(n - 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect": 0.0}, "`effect` must be a normalized information above 0 and below 1, got 0.0"),
        ({"effect": "x"}, "`effect` must be a normalized information"),
        ({"shares": [1.0]}, "`shares` must hold the share of each of at least two groups"),
        ({"shares": ["a", "b"]}, "`shares` must be numbers"),
        ({"shares": [0.5, -0.5]}, "`shares` must be positive and finite"),
        ({"power": 0.01}, "`power` must lie between the level, 0.05, and 1, got 0.01"),
        ({"power": 1.0}, "`power` must lie between the level, 0.05, and 1, got 1.0"),
        ({"level": 0.9}, "`level` must be between 0 and 0.5"),
        ({"criterion": "x"}, "`criterion` must be one of"),
        ({"tolerance": 0.01}, "`effect` must differ from the tolerance, got 0.01 for both"),
        ({"tolerance": 2}, "`tolerance` must be a normalized information"),
    ],
)
def test_bad_plans(options, message):
    with pytest.raises(ValueError, match=message):
        eh.rows_needed(**{"effect": 0.01, "shares": [0.5, 0.5], **options})


def test_the_smallest_levels_have_a_number():
    few = eh.rows_needed(0.01, [0.5, 0.5], tolerance=0.1, level=1e-9)
    assert few < eh.rows_needed(0.01, [0.5, 0.5], tolerance=0.1, level=1e-320) < 100 * few
