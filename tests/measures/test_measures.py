"""What a measure says of itself: found or not, and whom to believe."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.measures.measures import (
    COPIES,
    UNSIZED,
    UNTESTED,
    Measure,
    errors_below,
    half_width_down_to,
    root_interval,
    standard_error,
    upper_bound,
)
from evenhand.report.audit_views import audit_page
from evenhand.report.words import grade, judge_measure

NAN = float("nan")
BASE = Measure(
    "separation", 0.05, 0.03, 0.6, 0.01, (0.03, 0.07), 0.0001, "logistic", "x", 100, 100.0
)


def _with(audit: eh.Audit, **measures: Measure) -> eh.Audit:
    return replace(audit, measures={**audit.measures, **measures})


@pytest.mark.parametrize(
    ("value", "stderr", "interval", "p", "found", "conflict", "level"),
    [
        (0.05, 0.01, (0.03, 0.07), 0.0001, True, "", "clear"),
        (0.05, 0.01, (0.03, 0.07), NAN, True, "", "clear"),
        (0.0, 0.01, (0.0, 0.02), NAN, False, "", "unclear"),
        (0.0, 0.00001, (0.0, 0.00002), 0.0, True, UNSIZED, "unsized"),
        (0.004, 0.01, (0.0, 0.03), 0.0005, True, UNSIZED, "unsized"),
        (0.004, 0.01, (0.0, 0.03), 0.01, True, "", "slight"),  # at odds by chance
        (0.31, 0.018, (0.276, 0.349), 0.92, True, UNTESTED, "strong"),
        (0.02, 0.01, (0.004, 0.05), 0.06, False, "", "unclear"),  # at odds by chance
        (0.0, NAN, (0.0, 1.0), 0.0, False, "", "undefined"),  # 0/0: nothing to measure
        (0.0, NAN, (0.0, 1.0), NAN, False, "", "undefined"),
        (0.0, 0.001, (0.0, 0.002), 0.5, False, "", "holds"),
    ],
)
def test_found_and_conflict(value, stderr, interval, p, found, conflict, level):
    m = replace(BASE, value=value, stderr=stderr, interval=interval, p_value=p)
    assert m.found is found
    assert m.conflict == conflict
    assert grade(m) == level


def test_what_is_shown_lies_in_its_interval():
    """Chance takes an estimate below zero; the interval is cut off there, and what is said too."""
    low = replace(BASE, value=-0.0031, stderr=0.001, interval=(0.0, 0.0004), p_value=0.8)
    assert low.shown == 0.0
    assert BASE.shown == BASE.value
    rng = np.random.default_rng(0)
    audit = eh.audit(
        *rng.normal(size=(2, 300)), sensitive_features=np.arange(300) % 2, estimator="logistic"
    )
    audit = _with(audit, independence=replace(low, criterion="independence"), separation=low)
    for text in (str(audit), audit_page(audit), audit._repr_html_()):
        seen = re.sub(r'href="[^"]*"', "", text.split("evenhand-data")[0])  # tables to download
        assert "-0.003" not in seen
    assert "separation    0.0000  0.0000 to 0.0004" in str(audit)
    # For programs the number is what it is.
    assert audit.to_dict()["measures"]["separation"]["value"] == -0.0031


@pytest.mark.parametrize(
    ("value", "interval", "p", "found", "conflict", "level"),
    [
        (0.004, (0.0, 0.03), 0.0005, False, COPIES, "unclear"),
        (0.004, (0.0, 0.03), 0.04, False, COPIES, "unclear"),
        (0.001, (0.0, 0.005), 0.04, False, COPIES, "holds"),
        (0.004, (0.0, 0.03), 0.3, False, "", "unclear"),
        (0.05, (0.03, 0.07), 0.0005, True, "", "clear"),
    ],
)
def test_a_test_that_counts_copies_does_not_decide(value, interval, p, found, conflict, level):
    m = replace(BASE, value=value, interval=interval, p_value=p, n_merged=40)
    assert m.found is found
    assert m.conflict == conflict
    assert grade(m) == level
    if conflict:
        words = judge_measure(m)
        assert "makes its p too small: believe the interval, and pass" in words
        assert "chance alone" not in words


def test_copies_in_an_audit():
    """Copies count once in estimates and tests alike, so that neither contradicts the other."""
    rng = np.random.default_rng(1)
    s, y = rng.normal(size=(2, 400))
    a = rng.integers(0, 2, 400)
    rows = np.repeat(np.arange(400), 5)
    audit = eh.audit(y[rows], s[rows], sensitive_features=a[rows])
    once = eh.audit(y, s, sensitive_features=a)
    assert audit.n_copies == 1600
    for name, m in audit.measures.items():
        assert m.conflict == ""
        assert m.p_value == pytest.approx(once.measures[name].p_value, abs=1e-12)
    apart = eh.audit(y[rows], s[rows], sensitive_features=a[rows], cluster=rows)
    assert all(m.n_merged == 0 and m.conflict == "" for m in apart.measures.values())


def test_rows_of_one_person_count_as_copies():
    """Those who share a score are all of one group, as one person over years is."""
    rng = np.random.default_rng(2)
    person = np.repeat(np.arange(300), 5)
    s, a = rng.normal(size=300)[person], rng.integers(0, 2, 300)[person]
    with pytest.warns(UserWarning, match="as those of one person are"):
        audit = eh.audit(rng.normal(size=1500), s, sensitive_features=a)
    assert audit.independence.n_merged == 1200
    assert audit.separation.n_merged == 1200


def test_what_is_not_defined_is_said_everywhere():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 500)
    y = rng.normal(size=500) + a
    audit = eh.audit(y, a.astype(float), sensitive_features=a, estimator="logistic")
    m = audit.sufficiency
    assert not m.defined
    assert m.value == 0.0
    assert np.isnan(m.stderr)
    assert m.interval == (0.0, 1.0)
    assert judge_measure(m).endswith("alone reveals the group, so the value is not defined.")
    found = json.loads(json.dumps(audit.to_dict()))["measures"]
    assert found["sufficiency"]["defined"] is False
    assert found["sufficiency"]["stderr"] is None
    assert found["independence"]["defined"] is True
    page = audit_page(audit)
    assert "Nothing to measure" in page
    assert "not defined" in page
    audit.plot()


def test_words_say_what_to_do():
    unsized = replace(BASE, value=0.0, stderr=1e-5, interval=(0.0, 2e-5), p_value=0.0)
    words = judge_measure(unsized)
    assert words.startswith("Separation is violated, but its size is unknown: among people")
    assert "believe the test that there is one, and treat its size as unknown." in words
    untested = replace(BASE, value=0.31, stderr=0.018, interval=(0.276, 0.349), p_value=0.92)
    words = judge_measure(untested)
    assert words.startswith("Separation is strongly violated: ")
    assert "p = 0.920. The estimate sees a pattern" in words
    assert "believe the interval, not the p." in words
    assert "chance alone" not in words


def test_text_page_and_dictionary_agree():
    rng = np.random.default_rng(0)
    s, y = rng.normal(size=(2, 600))
    a = rng.integers(0, 2, 600)
    audit = eh.audit(y, s, sensitive_features=a, estimator="logistic")
    odd = replace(audit.separation, value=0.31, stderr=0.018, interval=(0.276, 0.349), p_value=0.92)
    audit = _with(audit, separation=odd)
    assert UNTESTED in " ".join(str(audit).split())
    assert UNTESTED in audit_page(audit)
    found = json.loads(json.dumps(audit.to_dict()))["measures"]
    assert found["separation"]["conflict"] == UNTESTED
    assert found["separation"]["found"] is True
    assert found["independence"]["conflict"] == ""
    unsized = _with(audit, separation=replace(odd, interval=(0.0, 0.01), p_value=0.0))
    page = audit_page(unsized)
    assert "Violated, size unknown" in page
    assert "badge unsized" in page
    assert "Violated, size unknown: separation." in page


def test_parity_that_logistic_cannot_see_is_not_declared_fair():
    """P(a = 1) = 0.9 where s·y > 0, else 0.1: whichever sees it, it is not said to hold."""
    rng = np.random.default_rng(0)
    s, y = rng.normal(size=(2, 4000))
    a = rng.random(4000) < np.where(s * y > 0, 0.9, 0.1)
    m = eh.audit(y, s, sensitive_features=a, estimator="logistic").separation
    assert m.found
    assert grade(m) in ("clear", "strong")


@pytest.mark.parametrize(("value", "limit"), [(0.03, 0.02), (0.03, 0.005), (0.5, 0.49), (0.1, 0.0)])
def test_an_interval_of_that_width_begins_at_the_limit(value, limit):
    half = half_width_down_to(value, limit)
    assert root_interval(value, half)[0] == pytest.approx(limit, abs=1e-12)


@pytest.mark.parametrize(("value", "half"), [(0.03, 0.02), (0.03, 0.0299), (0.5, 0.01)])
def test_an_interval_is_that_of_the_root(value, half):
    ends = [(math.sqrt(value) + sign * half / (2 * math.sqrt(value))) ** 2 for sign in (-1, 1)]
    assert root_interval(value, half) == pytest.approx(ends, rel=1e-12)


def test_one_unit_has_no_error_and_what_is_not_defined_lies_nowhere():
    assert math.isnan(standard_error(np.array([0.3]), None))
    assert math.isnan(standard_error(np.arange(4.0), None, np.zeros(4, dtype=np.intp)))
    one = eh.audit(None, np.ones(40), sensitive_features=np.arange(40) % 2)
    undefined = replace(one.independence, stderr=float("nan"))
    assert not undefined.defined
    assert undefined.errors_above(0.01) == 0.0


def test_errors_below_are_the_formula():
    value, stderr, limit, rate = 0.01, 0.004, 0.03, 1e-4
    sigma = math.sqrt(stderr**2 + rate * (limit - value))
    x, skewness = (value - limit) / sigma, 1.5 * sigma / limit
    assert skewness < 1
    expected = x - skewness * (x**2 - 1) / 6
    assert errors_below(value, stderr, limit, rate) == pytest.approx(expected, rel=1e-12)
    # The skewness is 1 at the most, and what lies below 0 counts as 0.
    x = -1.2
    assert errors_below(0.0, 0.004, 0.0048, 0.0) == pytest.approx(x - (x**2 - 1) / 6, rel=1e-12)
    assert errors_below(-0.2, 0.004, 0.03, rate) == errors_below(0.0, 0.004, 0.03, rate)
    assert errors_below(0.0, 0.0, 0.03, 0.0) == -math.inf


@pytest.mark.parametrize("value", [-0.01, 0.0, 0.004, 0.3])
def test_an_upper_bound_is_so_many_errors_above(value):
    bound = upper_bound(value, 0.01, 1e-3, 1.645)
    assert max(value, 0.0) < bound < 1.0
    assert errors_below(value, 0.01, bound, 1e-3) == pytest.approx(-1.645, abs=1e-6)
    assert upper_bound(value, math.inf, 1e-3, 1.645) == 1.0
