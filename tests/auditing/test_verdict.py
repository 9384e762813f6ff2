"""Verdicts against a tolerance."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.auditing import verdict as verdicts
from evenhand.auditing.verdict import ClauseResult, Verdict
from evenhand.measures.effective import EffectiveSizeWarning
from evenhand.measures.measures import (
    Measure,
    half_width_down_to,
    judge,
    root_interval,
    units_needed,
)


def scores(n, gap, seed=0, groups=("p", "q", "r")):
    rng = np.random.default_rng(seed)
    a = rng.choice(list(groups), n)
    s = 100 + 10 * rng.standard_normal(n) + gap * (a == "q")
    return s + 5 * rng.standard_normal(n), s, a


@pytest.fixture(scope="module")
def fair():
    y, s, a = scores(4000, 0.0)
    return eh.audit(y, s, sensitive_features=a, estimator="logistic")


@pytest.fixture(scope="module")
def unfair():
    y, s, a = scores(4000, 8.0)
    return eh.audit(y, s, sensitive_features=a, estimator="logistic")


TOLERANCE = eh.Tolerance(
    independence=0.01, mean_ratio=(0.95, 1.05), smd=(-0.2, 0.2), impact_ratio=(0.8, 1.25),
    favorable="high", reference="p",
)  # fmt: skip


def test_three_outcomes(fair, unfair):
    assert fair.verdict(TOLERANCE).outcome == "pass"
    assert fair.verdict(TOLERANCE).passed
    found = unfair.verdict(TOLERANCE)
    assert found.outcome == "fail"
    judged = {(c.clause, c.group): c.judged for c in found.clauses}
    assert judged["independence", ""] == "violated"
    assert judged["smd", "q"] == "violated"
    assert judged["smd", "r"] == "holds"
    y, s, a = scores(60, 0.0)
    few = eh.audit(y, s, sensitive_features=a, estimator="logistic").verdict(TOLERANCE)
    assert few.outcome == "not enough data"
    assert few.needed > 60
    assert not few.passed


def test_a_pass_needs_all_and_a_fail_one(unfair):
    one = eh.Tolerance(independence=0.5, mean_ratio=(0.99, 1.01))
    assert unfair.verdict(one).outcome == "fail"
    wide = eh.Tolerance(independence=0.5, mean_ratio=(0.5, 2.0))
    assert unfair.verdict(wide).outcome == "pass"


def test_clauses_are_equivalence_tests(fair):
    """Two one-sided t-tests of the difference of means, against statsmodels."""
    api = pytest.importorskip("statsmodels.stats.weightstats")
    _, s, a = scores(4000, 0.0)
    reference = fair.impact().reference
    found = fair.verdict(eh.Tolerance(mean_difference=(-1.0, 1.5)))
    for clause in found.clauses:
        p, *_ = api.ttost_ind(s[a == clause.group], s[a == reference], -1.0, 1.5, usevar="unequal")
        assert clause.p_beyond == pytest.approx(p, rel=1e-6)
    low, high = found.clauses[0].interval
    peer = stats.ttest_ind(s[a == found.clauses[0].group], s[a == reference], equal_var=False)
    assert (low, high) == pytest.approx(tuple(peer.confidence_interval(0.9)), rel=1e-9)


def test_fails_allow_for_many_tests():
    """A value that is beyond by two errors is no fail among five that are not."""
    y, s, a = scores(900, 2.6, seed=4, groups="pqrstu")
    audit = eh.audit(y, s, sensitive_features=a, estimator="lspc")
    tolerance = eh.Tolerance(mean_difference=(-0.2, 0.2), reference="p")
    clauses = {c.group: c for c in audit.verdict(tolerance).clauses}
    number = audit.impact("p").get("mean_difference", "q")
    z = number.errors_from(0.2)
    alone = float(
        stats.t.sf(z, number.freedom) + stats.t.sf(z + 0.4 / number.stderr, number.freedom)
    )
    assert clauses["q"].p_within == pytest.approx(min(5 * alone, 1.0), rel=1e-9)


def test_level_and_its_default(fair):
    strict = replace_level(TOLERANCE, 0.001)
    assert fair.verdict(strict).level == 0.001
    assert fair.verdict(strict, level=0.05).level == 0.05
    with pytest.raises(ValueError, match=r"`level` must be between 0 and 0.5, got 0.7"):
        fair.verdict(TOLERANCE, level=0.7)
    with pytest.raises(ValueError, match=r"`level` must be between 0 and 0.5, got 'x'"):
        fair.verdict(TOLERANCE, level="x")


def replace_level(tolerance, level):
    data = tolerance.to_dict()
    return eh.Tolerance.from_dict({**data, "level": level})


def test_crossing_judges_its_parts():
    rng = np.random.default_rng(1)
    n = 3000
    sex, place = rng.choice(["m", "f"], n), rng.choice(list("abcdefgh"), n)
    s = rng.standard_normal(n) + 0.5 * (sex == "f")
    groups = {"sex": sex, "place": place}
    audit = eh.audit(None, s, sensitive_features=groups, estimator="logistic")
    found = audit.verdict(eh.Tolerance(independence=0.03, smd=(-0.3, 0.3)))
    assert found.outcome == "fail"
    # The crossing of sixteen groups dilutes what sex alone shows.
    parts = {c.part: c for c in found.clauses if c.clause == "independence"}
    assert parts["sex"].judged == "violated"
    assert parts["sex × place"].value < parts["sex"].value
    assert {c.part for c in found.clauses if c.clause == "smd"} == {"sex × place", "sex", "place"}
    worst = audit.one_against_rest["independence"]
    name = f"{worst.group} against the rest"
    raw = worst.measure.p_values(0.03)[0]
    assert parts[name].p_within >= min(raw * worst.n_compared, 1.0) * (1 - 1e-12)
    assert audit.verdict(eh.Tolerance(smd=(-0.3, 0.3), reference="m")).outcome == "fail"
    with pytest.raises(ValueError, match=r"`reference` must be .* got 'blue'"):
        audit.verdict(eh.Tolerance(smd=(-0.3, 0.3), reference="blue"))


def test_clusters_count_clusters():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(150), 20)
    a = np.where(rng.random(3000) < 0.5, "p", "q")
    s = rng.standard_normal(150)[cluster] + 0.3 * rng.standard_normal(3000)
    found = eh.audit(
        None, s, sensitive_features=a, cluster=cluster, estimator="logistic"
    ).verdict(eh.Tolerance(smd=(-0.05, 0.05)))  # fmt: skip
    assert (found.unit, found.n) == ("clusters", 150)
    assert "clusters" in str(found)


def test_small_groups_are_not_judged(fair):
    y, s, a = scores(2000, 0.0)
    a = a.astype(object)
    a[:20] = "few"
    audit = eh.audit(y, s, sensitive_features=a, estimator="lspc")
    found = audit.verdict(eh.Tolerance(smd=(-0.5, 0.5)))
    assert found.unjudged == ("few",)
    assert "few" not in {c.group for c in found.clauses}
    assert "Not judged on their own, under 2% of the rows: few" in str(found)
    assert fair.verdict(eh.Tolerance(independence=0.1)).unjudged == ()
    only = eh.audit(None, s[:1000], sensitive_features=np.repeat(["p", "q"], [985, 15]),
                    estimator="lspc")  # fmt: skip
    nobody = only.verdict(eh.Tolerance(smd=(-3, 3)))
    assert nobody.outcome == "not enough data"
    assert "every group but p is under 2%" in nobody.clauses[0].note
    assert "no number" in str(nobody)


def test_what_is_not_defined_does_not_pass():
    y, s, a = scores(500, 0.0)
    audit = eh.audit(y, s - 1000, sensitive_features=a, estimator="lspc")
    found = audit.verdict(eh.Tolerance(mean_ratio=(0.5, 2.0)))
    assert found.outcome == "not enough data"
    assert found.clauses[0].note == "the number is not defined here"


def test_a_group_of_one_cluster_is_not_judged_sure():
    y, s, a = scores(1000, 0.0)
    a = a.astype(object)
    a[:40] = "here"
    cluster = np.r_[np.zeros(40), 1 + np.arange(960) // 4].astype(int)
    with pytest.warns(EffectiveSizeWarning) as caught:
        audit = eh.audit(y, s, sensitive_features=a, cluster=cluster, estimator="lspc")
    assert "'here' (1)" in str(caught[-1].message)
    found = audit.verdict(eh.Tolerance(mean_difference=(-50, 50)))
    judged = {c.group: c.judged for c in found.clauses}
    assert judged["here"] == "not enough data"
    assert found.outcome == "not enough data"


def test_an_interval_beyond_by_itself_is_explained():
    """Where many are looked at, one interval beyond is no proof."""
    for seed in range(40):
        _, s, a = scores(900, 1.8, seed=seed, groups="pqrstu")
        audit = eh.audit(None, s, sensitive_features=a, estimator="lspc")
        found = audit.verdict(eh.Tolerance(mean_difference=(-0.2, 0.2), reference="p"))
        if any(c.beyond_alone for c in found.clauses):
            break
    text = " ".join(str(found).split())
    assert "With 5 comparisons, one interval outside its limit can be chance." in text
    (clause,) = [c for c in found.clauses if c.beyond_alone][:1]
    assert not clause.within
    assert clause.needed > 900


def test_clauses_that_need_a_target():
    _, s, a = scores(300, 0.0)
    audit = eh.audit(None, s, sensitive_features=a, estimator="lspc")
    with pytest.raises(ValueError, match="must not ask for separation, actual_expected, which"):
        audit.verdict(eh.Tolerance(separation=0.1, actual_expected=(0.9, 1.1)))
    with pytest.raises(ValueError, match="`tolerance` must be a Tolerance, got float"):
        audit.verdict(0.01)


def test_actual_over_expected_judges_every_group(fair):
    found = fair.verdict(eh.Tolerance(actual_expected=(0.9, 1.1)))
    assert {c.group for c in found.clauses} == {"p", "q", "r"}
    assert found.passed


def test_gaps_that_the_controls_leave():
    """Premiums of the young are higher, all of it by mileage and ten by age itself."""
    rng = np.random.default_rng(0)
    young = rng.random(3000) < 0.4
    miles = rng.gamma(4.0, 5.0, 3000) + 8.0 * young
    s = 200 + 5 * miles + 10 * young + 5 * rng.standard_normal(3000)
    a = np.where(young, "young", "old")
    audit = eh.audit(None, s, sensitive_features=a, controls={"miles": miles}, estimator="lspc")
    gap = audit.conditional.gap("young").adjusted
    assert gap.value == pytest.approx(10, abs=1)
    (clause,) = audit.verdict(eh.Tolerance(adjusted_gap=(-15, 15))).clauses
    assert (clause.judged, clause.group, clause.value) == ("holds", "young", gap.value)
    assert audit.verdict(eh.Tolerance(adjusted_gap=(-5, 5))).outcome == "fail"
    percent = audit.verdict(eh.Tolerance(adjusted_percent=(None, 5))).clauses[0]
    assert percent.value == audit.conditional.gap("young").adjusted_percent.value
    half = gap.interval[1] - gap.value
    assert half == pytest.approx(stats.t.ppf(0.975, gap.freedom) * gap.stderr)
    with pytest.raises(ValueError, match="`reference` must be that of the adjusted gaps, 'old'"):
        audit.verdict(eh.Tolerance(adjusted_gap=(-5, 5), reference="young"))
    nobody = audit.verdict(eh.Tolerance(adjusted_gap=(-90, 90), smallest=0.5))
    assert nobody.outcome == "not enough data"
    plain = eh.audit(None, s, sensitive_features=a, estimator="lspc")
    with pytest.raises(ValueError, match=r"ask for adjusted_gap, .*Hint: pass `controls`"):
        plain.verdict(eh.Tolerance(adjusted_gap=(-5, 5)))


def test_information_that_the_controls_leave():
    rng = np.random.default_rng(0)
    young = rng.random(3000) < 0.4
    miles = rng.gamma(4.0, 5.0, 3000) + 8.0 * young
    a = np.where(young, "young", "old")
    how = {"sensitive_features": a, "controls": {"miles": miles}, "estimator": "lspc"}
    even = 200 + 5 * miles + 50 * rng.standard_normal(3000)
    tolerance = eh.Tolerance(conditional=0.05)
    fair = eh.audit(None, even, **how)
    assert fair.verdict(eh.Tolerance(independence=0.05)).outcome == "fail"
    (clause,) = fair.verdict(tolerance).clauses
    assert (clause.clause, clause.judged, clause.note) == ("conditional", "holds", "")
    assert clause.value == fair.conditional.information.shown
    assert fair.verdict(tolerance).passed
    found = eh.audit(None, even + 100 * young, **how).verdict(tolerance)
    assert found.outcome == "fail"
    assert "independence given the controls" in str(found)
    exact = eh.audit(None, 200 + 5 * miles + 10 * young, **how).verdict(tolerance)
    assert exact.outcome == "fail"
    assert "the score is a function of controls and group" in exact.clauses[0].note
    plain = eh.audit(None, even, sensitive_features=a, estimator="lspc")
    with pytest.raises(ValueError, match=r"ask for conditional, .*Hint: pass `controls`"):
        plain.verdict(tolerance)
    assert eh.Tolerance.from_dict(tolerance.to_dict()) == tolerance


def test_an_open_end():
    y, s, a = scores(3000, 30.0)
    audit = eh.audit(y, s, sensitive_features=a, estimator="lspc")
    one_sided = eh.Tolerance(impact_ratio=(0.8, None), favorable="high", reference="p", at=0.2)
    assert audit.verdict(one_sided).passed
    both = eh.Tolerance(impact_ratio=(0.8, 1.25), favorable="high", reference="p", at=0.2)
    assert audit.verdict(both).outcome == "fail"


def test_results_in_every_form(unfair):
    found = unfair.verdict(TOLERANCE)
    assert isinstance(found, Verdict)
    frame = found.to_frame()
    # One more than numbers: one group against the rest, since there are three.
    assert len(frame) == len(found.clauses) == 8
    held = found.to_dict()
    assert held["outcome"] == "fail"
    assert held["tolerance"]["digest"] == TOLERANCE.digest
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("Verdict: ✕ Fail")
    assert TOLERANCE.digest in str(found)


def test_a_set_of_audits_has_a_verdict_each(fair, unfair):
    found = eh.AuditSet({"old": unfair, "new": fair}).verdict(TOLERANCE)
    assert {name: v.outcome for name, v in found.items()} == {"old": "fail", "new": "pass"}


@pytest.mark.parametrize("value", [0.0001, 0.01, 0.04, 0.3])
@pytest.mark.parametrize("stderr", [0.0005, 0.01, 0.2])
@pytest.mark.parametrize("z", [0.3, 1.0, 1.96, 3.0])
def test_tests_and_intervals_agree(value, stderr, z):
    """A limit is an end of the interval exactly where the test's statistic is the quantile."""
    low, _ = root_interval(value, z * stderr)
    if 0 < low < 1:
        assert half_width_down_to(value, low) == pytest.approx(z * stderr, rel=1e-9)


@pytest.mark.parametrize("value", [-0.02, 0.0, 0.0001, 0.01, 0.3])
@pytest.mark.parametrize("stderr", [0.0005, 0.01, 0.2])
@pytest.mark.parametrize("level", [0.001, 0.05, 0.1])
def test_tests_and_bounds_agree(value, stderr, level):
    m = measured(value, stderr)
    low, high = m.bounds(level)
    assert low <= max(value, 0.0) < high <= 1
    if high < 1:
        assert m.p_values(high)[1] == pytest.approx(level, rel=1e-6)
        assert m.judged(high * 1.001, level) == "holds"
        assert m.judged(max(high * 0.999, value + 1e-9), level) == "not enough data"
    if low > 0:
        assert m.p_values(low)[0] == pytest.approx(level, rel=1e-6)


@pytest.mark.parametrize("noncentrality", [3.0, 8.0, 30.0, 200.0])
@pytest.mark.parametrize("terms", [1, 3, 8])
def test_a_value_at_the_limit_seldom_passes(noncentrality, terms):
    """Estimates as they are in theory: a noncentral χ² less its degrees of freedom."""
    rng = np.random.default_rng(0)
    drawn = (rng.noncentral_chisquare(terms, noncentrality, 4000) - terms) / 2000.0
    limit = noncentrality / 2000.0
    passed = failed = 0
    for value in drawn:
        stderr = math.sqrt(2.0 * max(value, 0.0) / 1000.0 + max(terms, 3) / 2e6)
        m = measured(value, stderr, n_independent=1000.0)
        word = m.judged(limit)
        passed += word == "holds"
        failed += word == "violated"
    assert passed / 4000 < 0.058
    assert failed / 4000 < 0.058


def measured(value, stderr, p=0.5, **changes):
    made = Measure(
        criterion="independence", value=value, nats=value, normalizer=1.0, stderr=stderr,
        interval=root_interval(value, 1.96 * stderr), p_value=p, estimator="auto", chosen="", n=100,
        n_effective=100.0, n_independent=1e5,
    )  # fmt: skip
    return replace(made, **changes)


def test_words_of_a_measure():
    assert measured(0.05, 0.005).judged(0.01) == "violated"
    assert measured(0.001, 0.001).judged(0.01) == "holds"
    assert measured(0.008, 0.005).judged(0.01) == "not enough data"
    # The nearer, the less sure; the same word at a looser level.
    assert measured(0.008, 0.001).judged(0.01, level=0.001) == "not enough data"
    assert measured(0.008, 0.001).judged(0.01, level=0.05) == "holds"
    undefined = measured(0.0, math.nan)
    assert undefined.judged(0.01) == "not enough data"
    unsized = measured(0.0, 0.001, p=1e-9)
    assert unsized.unsized
    assert unsized.judged(0.01) == "not enough data"
    few = measured(0.02, 0.005, freedom=3.0)
    assert few.p_values(0.01)[0] > measured(0.02, 0.005).p_values(0.01)[0]
    assert measured(0.02, 0.0).p_values(0.01) == (0.0, 1.0)


def test_the_rule():
    assert judge(0.01, 0.99, 0.05) == "violated"
    assert judge(0.99, 0.01, 0.05) == "holds"
    assert judge(0.3, 0.7, 0.05) == "not enough data"


def test_units_needed():
    """At (z_level + z_power) standard errors the data are just enough."""
    z = stats.norm.isf(0.05) + stats.norm.ppf(0.8)
    assert units_needed(100, z, 0.05) == pytest.approx(100, abs=1)
    assert units_needed(100, z / 2, 0.05) == pytest.approx(400, abs=1)
    assert units_needed(100, 0.0, 0.05) == math.inf


def test_an_information_that_no_rows_can_size_says_so(fair):
    lost = replace(fair, measures={**fair.measures, "independence": measured(0.0, 0.001, p=1e-9)})
    found = lost.verdict(eh.Tolerance(independence=0.01))
    assert found.outcome == "not enough data"
    assert "too coarse to size" in " ".join(str(found).split())
    gone = replace(fair, measures={**fair.measures, "independence": measured(0.0, math.nan)})
    assert "nothing to measure" in str(gone.verdict(eh.Tolerance(independence=0.01)))


def test_an_interval_outside_is_beyond_alone_where_nothing_was_decided():
    for interval, beyond in (((0.2, 0.3), True), ((-0.3, -0.2), True), ((0.05, 0.2), False)):
        clause = ClauseResult("smd", "a", (-0.1, 0.1), interval=interval, judged=verdicts.OPEN)
        assert clause.beyond_alone is beyond
        assert not replace(clause, judged=verdicts.HOLDS).beyond_alone


def test_a_clause_that_is_left_open_says_so_in_all_its_numbers():
    clause = ClauseResult("smd", "a", (-0.1, 0.1), p_within=0.3, p_beyond=0.2, errors=2.0)
    found = verdicts._open(clause, "why")
    assert (found.p_within, found.p_beyond, found.errors, found.note) == (1.0, 1.0, 0.0, "why")


def test_unknown_rows_hide_what_the_limit_leaves_room_for():
    """(1 − u)·0.05 + u reaches 0.1 at u = 0.0526."""
    clause = ClauseResult("independence", "a", (0.0, 0.1), interval=(0.0, 0.05))
    for unknown, hides in ((0, False), (52, False), (53, True)):
        audit = SimpleNamespace(n_unknown=unknown, n_rows=1000, attributes={}, labels=("x",))
        assert verdicts._hidden(audit, clause, None).startswith(f"{unknown:,} rows") is hides
        assert (verdicts._hidden(audit, clause, None) == "") is not hides


def test_unknown_rows_move_a_difference_by_its_bounds():
    held = SimpleNamespace(groups=SimpleNamespace(shares=[0.4, 0.6]))
    moved = {(0, 1): (-0.1, 0.2)}
    rows = SimpleNamespace(rows=held, moved_by_unknown=lambda k, ref: moved[k, ref])
    audit = SimpleNamespace(n_unknown=100, n_rows=1000, attributes={}, labels=("x", "y"))
    audit._rows = rows
    limits = SimpleNamespace(reference="largest")
    clause = ClauseResult("mean_difference", "a", (-0.2, 0.2), "x", interval=(0.0, 0.05))
    assert "-0.1 to 0.25" in verdicts._hidden(audit, clause, limits)
    assert verdicts._hidden(audit, replace(clause, tolerance=(-0.1, 0.25)), limits) == ""
    assert verdicts._hidden(audit, replace(clause, tolerance=(-0.05, 0.25)), limits)


@pytest.mark.parametrize(("assume", "passes"), [("guess", True), ("group", True), (None, False)])
def test_bounds_of_inferred_groups_count_without_an_assumption(assume, passes):
    gap = SimpleNamespace(
        group="x", reference="y", regressed_interval=(0.0, 0.1), bounds=(-0.5, 0.5)
    )
    audit = SimpleNamespace(imputation=SimpleNamespace(assume=assume, gaps=[gap]))
    clause = ClauseResult("mean_difference", "a", (0.0, 0.1), "x", interval=(0.0, 0.1))
    limits = SimpleNamespace(reference="largest")
    assert (verdicts._inferred(audit, clause, limits) == "") is passes
    narrow = replace(clause, tolerance=(0.0, 0.09))
    assert (verdicts._inferred(audit, narrow, limits) == "") is (assume == "guess")


@pytest.mark.parametrize("limits", [(-1.0, 1.0), (-0.2, 0.4), (1.0, 2.0)])
def test_of_two_groups_a_range_is_judged_by_two_one_sided_tests(limits):
    y, s, a = scores(600, 0.0, groups="pq")
    audit = eh.audit(y, s, sensitive_features=a, estimator="logistic")
    (clause,) = audit.verdict(eh.Tolerance(mean_difference=limits)).clauses
    number = audit.impact(at=()).get("mean_difference", clause.group)
    low, high = (number.errors_from(end) for end in limits)
    near = max(-low, high)
    within, beyond = (
        stats.t.cdf([-near, -(near + low - high)], number.freedom).sum(),
        stats.t.cdf([-low, high], number.freedom).max(),
    )
    assert clause.p_within == pytest.approx(min(within, 1.0))
    assert clause.p_beyond == pytest.approx(beyond)
