import pytest

from evenhand.report import formats


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (-3, 7, [-2, 0, 2, 4, 6]), (2, 2, [])],
)
def test_ticks_are_round(low, high, expected):
    assert formats.ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "n/a"), (float("nan"), "n/a"), (-0.0, "0"), (1234567.0, "1,234,567"), (3, "3"),
     (0.123456, "0.1235"), (1e12, "1e+12")],
)  # fmt: skip
def test_number(value, expected):
    assert formats.number(value) == expected


@pytest.mark.parametrize(
    ("value", "margin", "expected"),
    [(1.23456, 0.0567, "1.235 ± 0.057"), (12345.6, 12.3, "12,346 ± 12"), (1.0, 0.0, "1"),
     (0.5, float("nan"), "0.5"), (123456.0, 7890.0, "123,456 ± 7,890")],
)  # fmt: skip
def test_with_margin(value, margin, expected):
    assert formats.with_margin(value, margin) == expected


def test_short_names_are_short_and_distinct():
    names = formats.short_names(["a" * 50, "a" * 60, "", "b\nc\x1b[0m", "a" * 70])
    assert names == ("a" * 23 + "…", "a" * 23 + "… (2)", "(empty)", "b c�[0m", "a" * 23 + "… (3)")
