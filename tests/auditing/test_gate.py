"""A table cannot be dressed up to pass: each trick fails, is withheld, or is said."""

import numpy as np
import pytest

import evenhand as eh

LIMIT = eh.Tolerance(independence=0.02)


def draw(n=4000, gap=0.8, seed=0):
    rng = np.random.default_rng(seed)
    a = np.where(rng.random(n) < 0.25, "b", "a")
    y = rng.normal(size=n)
    return y, y + gap * (a == "b") + rng.normal(size=n), a


def judge(y, s, a, tolerance=LIMIT, **more):
    return eh.audit(y, s, sensitive_features=a, estimator="logistic", **more).verdict(tolerance)


def test_the_plain_table_fails():
    assert judge(*draw()).outcome == "fail"


def test_many_labels_do_not_dilute():
    y, s, a = draw()
    rng = np.random.default_rng(1)
    split = np.where(a == "a", np.char.add("a", rng.integers(0, 40, len(a)).astype(str)), a)
    result = judge(y, s, split)
    assert result.outcome == "fail"
    assert any(c.part == "b against the rest" and c.judged == "violated" for c in result.clauses)


def test_rare_labels_that_nobody_judges_withhold_a_pass():
    y, s, a = draw(gap=0.0)
    tolerance = eh.Tolerance(mean_difference=(-0.5, 0.5))
    assert judge(y, s, a, tolerance).outcome == "pass"
    rng = np.random.default_rng(2)
    rare = np.where(a == "b", np.char.add("b", rng.integers(0, 40, len(a)).astype(str)), a)
    rare = np.where(rng.random(len(a)) < 0.1, "c", rare)
    result = judge(y, s, rare, tolerance)
    assert result.outcome == "not enough data"
    assert "groups that are too small to be judged hold" in str(result)


def test_unknown_groups_withhold_a_pass():
    y, s, a = draw(gap=0.0)
    assert judge(y, s, a).outcome == "pass"
    a = a.astype(object)
    a[:400] = None
    result = judge(y, s, a)
    assert result.outcome == "not enough data"
    assert "400 rows (10.0%) have no known group" in str(result)


def test_weights_do_not_speak_alone():
    y, s, a = draw()
    # Members of b with high scores hardly count.
    w = np.where((a == "b") & (s > np.median(s)), 0.25, 1.0)
    w[:10] = 0.0
    result = judge(y, s, a, sample_weight=w)
    assert result.unweighted == "fail"
    assert "10 rows of weight zero are left out" in str(result)
    if result.outcome != "fail":
        assert result.remarks[0] == "Without the sample weights the outcome is: fail."


def inferred(n=6000, seed=3):
    """The score depends on the true group, and the probabilities carry little of it."""
    rng = np.random.default_rng(seed)
    p = rng.beta(2, 2, n)
    a = rng.random(n) < p
    y = rng.normal(size=n)
    return y, y + 0.5 * a + rng.normal(size=n), a.astype(int), p


def test_inferred_groups_do_not_pass_what_recorded_ones_fail():
    y, s, a, p = inferred()
    tolerance = eh.Tolerance(mean_difference=(-0.25, 0.25))
    assert judge(y, s, a, tolerance).outcome == "fail"
    proxy = eh.Proxy(p, [0, 1])
    audit = eh.audit(y, s, sensitive_features=proxy, estimator="logistic")
    gap = audit.imputation.gaps[0]
    assert abs(gap.value) < 0.25  # weighting sees a fifth of it
    assert gap.regressed_interval[0] <= np.copysign(0.5, gap.regressed) <= gap.regressed_interval[1]
    result = audit.verdict(tolerance)
    assert result.outcome == "not enough data"
    assert "other assumptions about them give a larger" in " ".join(str(result).split())
    assert audit.verdict(eh.Tolerance(independence=0.05)).outcome == "not enough data"
    stated = eh.audit(
        y, s, sensitive_features=eh.Proxy(p, [0, 1], assume="guess"), estimator="logistic"
    )
    assert stated.verdict(eh.Tolerance(independence=0.05)).outcome == "pass"


def test_assumption_is_checked_and_kept():
    with pytest.raises(ValueError, match='`assume` of a Proxy must be "guess", "group" or None'):
        eh.Proxy([0.2, 0.8], ["a", "b"], assume="both")
    proxy = eh.Proxy([0.2, 0.8, 0.5], ["a", "b"], assume="group")
    assert proxy[np.array([0, 2])].assume == "group"
