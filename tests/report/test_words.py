"""Numbers, labels and sentences."""

import re
from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.report import charts, words
from evenhand.report.after_views import METHOD
from evenhand.report.audit_views import audit_charts
from evenhand.report.markup import asset
from evenhand.report.words import accuracy, fixed, grade, judge_measure, p_text


@pytest.mark.parametrize(
    ("value", "interval", "p", "expected", "said"),
    [
        (0.001, (0.0, 0.005), 0.4, "holds", "Independence: the audit found no difference. "),
        (0.02, (0.0, 0.05), 0.4, "unclear", "Chance alone could produce this (p = 0.400)"),
        (0.02, (0.0, 0.05), float("nan"), "unclear", "Independence: not enough data. "),
        (0.005, (0.002, 0.008), 0.01, "slight", "slightly violated"),
        (0.05, (0.04, 0.06), 0.0001, "clear", "clearly violated"),
        (0.3, (0.2, 0.4), 0.0001, "strong", "strongly violated"),
        (0.3, (0.2, 0.4), float("nan"), "strong", "strongly violated"),
    ],
)
def test_verdicts(audit, value, interval, p, expected, said):
    m = replace(audit.independence, value=value, interval=interval, p_value=p)
    assert grade(m) == expected
    assert said in judge_measure(m)
    assert "n/a" not in judge_measure(m)


def test_figures_and_pages_share_one_palette():
    style = asset("style.css").split("@media")[0]
    assert re.findall(r"--g\d: (#\w+);", style) == [color.lower() for color in charts.PALETTE]


def test_p_text():
    assert [p_text(p) for p in (float("nan"), 0.0001, 0.25)] == ["n/a", "< 0.001", "0.250"]


def test_as_many_digits_as_the_error_deserves(audit):
    m = replace(audit.independence, value=0.00063, stderr=2e-5, interval=(0.00059, 0.00067))
    assert words.measured(m) == "0.00063 (0.00059 to 0.00067)"
    assert words.plus_minus(m) == "0.00063 ± 0.00004"
    assert "(between 0.059% and 0.067%)" in words.judge_measure(m)
    assert "0.00059 to 0.00067" in str(m)
    rough = replace(m, value=0.05, stderr=0.01, interval=(0.03, 0.07))
    assert words.measured(rough) == "0.0500 (0.030 to 0.070)"


def test_a_value_has_the_digits_of_its_interval():
    assert words.with_interval(1.1, (1.08, 1.12)) == "1.100 (1.080 to 1.120)"
    assert words.with_interval(0.2922, (-1.434, 2.013), "*") == "0.3* (-1.4 to 2.0)"
    assert words.with_interval(20.17, (15.4, 25.0)) == "20.2 (15.4 to 25.0)"
    assert words.with_interval(0.5, (-np.inf, 1.0)) == "0.5 (-inf to 1)"
    assert words.with_margin(1381.53, 4.2) == "1,381.5 ± 4.2"


def test_no_formula_on_the_page_of_a_monitor():
    assert not set("²√π") & set(METHOD)


def test_a_few_large_claims_do_not_press_the_means_flat():
    rng = np.random.default_rng(0)
    s, a = rng.gamma(4.0, 50.0, 2000), rng.integers(0, 2, 2000)
    y = np.where(rng.random(2000) < 0.1, s * rng.gamma(0.1, 100.0, 2000), 0.0)
    audit = eh.audit(y, s, sensitive_features=a, estimator="logistic")
    *_, chart = audit_charts(audit).values()
    shown = [mark for mark in chart.marks if mark.look == "dot"]
    assert chart.y[0] == 0.0
    assert chart.y[1] < np.quantile(y, 0.99)
    assert min(len(mark.y) for mark in shown) > 5


def test_a_price_in_another_unit_is_asked_about():
    rng = np.random.default_rng(0)
    s, a = rng.gamma(4.0, 1.0, 300), rng.integers(0, 2, 300)
    how = {"sensitive_features": a, "loss": "gamma", "estimator": "logistic"}
    asked = "Are outcome and score in different units?"
    assert asked in str(eh.audit(100 * s, s, **how))
    assert asked not in str(eh.audit(1.1 * s, s, **how))


def test_fixed_has_no_negative_zero():
    assert fixed(-1e-9) == "0.0000"
    assert fixed(-0.00016) == "-0.0002"


def test_accuracy_of_a_useless_score_is_said_so():
    assert accuracy(0.25) == "The score explains 25.0% of the variance of the target (R²)."
    assert "no better than" in accuracy(-0.3)


def test_describe_is_readable_with_hostile_labels(hostile_audit):
    text = str(hostile_audit)
    assert "<script>alert(1)</script>" in text
    assert max(map(len, text.splitlines())) < 300
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "(empty)" in text


def test_describe_set_names_each(audit):
    from evenhand import AuditSet

    text = str(AuditSet({"one": audit, "x" * 99: audit}))
    assert "one" in text
    assert "x" * 39 + "…" in text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (-3, 7, [-2, 0, 2, 4, 6]), (2, 2, [])],
)
def test_ticks_are_round(low, high, expected):
    assert [*charts.round_ticks(low, high)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "n/a"), (float("nan"), "n/a"), (-0.0, "0"), (1234567.0, "1,234,567"), (3, "3"),
     (0.123456, "0.1235"), (1e12, "1e+12")],
)  # fmt: skip
def test_number(value, expected):
    assert words.number(value) == expected


@pytest.mark.parametrize(
    ("value", "margin", "expected"),
    [(1.23456, 0.0567, "1.235 ± 0.057"), (12345.6, 12.3, "12,346 ± 12"), (1.0, 0.0, "1"),
     (0.5, float("nan"), "0.5"), (123456.0, 7890.0, "123,456 ± 7,890")],
)  # fmt: skip
def test_with_margin(value, margin, expected):
    assert words.with_margin(value, margin) == expected


def test_short_names_are_short_and_distinct():
    names = words.short_names(["a" * 50, "a" * 60, "", "b\nc\x1b[0m", "a" * 70])
    assert names == ("a" * 23 + "…", "a" * 23 + "… (2)", "(empty)", "b c�[0m", "a" * 23 + "… (3)")
