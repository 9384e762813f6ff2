from dataclasses import replace

import pytest

from evenhand.report.words import accuracy, fixed, grade, judge_measure, p_text


@pytest.mark.parametrize(
    ("value", "interval", "p", "expected", "words"),
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
def test_verdicts(audit, value, interval, p, expected, words):
    m = replace(audit.independence, value=value, interval=interval, p_value=p)
    assert grade(m) == expected
    assert words in judge_measure(m)
    assert "n/a" not in judge_measure(m)


def test_p_text():
    assert [p_text(p) for p in (float("nan"), 0.0001, 0.25)] == ["n/a", "< 0.001", "0.250"]


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
