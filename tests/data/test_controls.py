"""Legitimate factors as columns."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from evenhand.data.encoding import read_controls


def frame():
    rng = np.random.default_rng(0)
    n = 200
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 10, n)),
            "fuel": rng.choice(["petrol", "diesel", None], n, p=[0.5, 0.4, 0.1]),
            "doors": rng.integers(2, 6, n),
            "one": 1,
        }
    )


@pytest.mark.parametrize("convert", [lambda f: f, pl.from_pandas, lambda f: dict(f.items())])
def test_any_frame_is_read_alike(convert):
    found = read_controls(convert(frame()), 200)
    assert found.names == ("age", "fuel", "doors")
    assert found.left_out == {"one": "it has the same value in every row"}
    age, fuel, doors = found.columns
    assert age.is_number
    assert age.codes is None
    assert np.isnan(age.values).any()
    assert not fuel.is_number
    assert set(fuel.levels) == {"petrol", "diesel", "(missing)"}
    # Few values need no curve, and keep their order all the same.
    assert doors.is_number
    assert len(doors.levels) == 4


def test_every_level_is_kept():
    column = np.array(["a"] * 100 + ["b"] * 50 + ["c"] * 3 + ["d"] * 2, dtype=object)
    (found,) = read_controls(column, 155).columns
    assert found.levels == ("a", "b", "c", "d")
    assert np.bincount(found.codes).tolist() == [100, 50, 3, 2]
    (many,) = read_controls(np.arange(600).astype(str)[np.arange(3000) % 600], 3000).columns
    assert len(many.levels) == 600


def test_dates_count_in_days():
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(days=k * k) for k in range(30)]
    (found,) = read_controls(pl.Series("day", days), 30).columns
    np.testing.assert_allclose(np.diff(found.values), np.diff(np.arange(30) ** 2))


def test_one_numeric_control_is_known_as_such():
    rng = np.random.default_rng(0)
    x = rng.normal(size=50)
    np.testing.assert_array_equal(read_controls(x, 50).single, x)
    assert read_controls(np.column_stack([x, x**2]), 50).single is None
    x[3] = np.nan
    assert read_controls(x, 50).single is None


def test_a_column_that_becomes_constant_is_left_out():
    found = read_controls({"a": np.arange(20.0) % 3, "b": np.r_[np.zeros(19), 1.0]}, 20)
    taken = found.take(np.arange(19))
    assert taken.names == ("a",)
    assert "b" in taken.left_out


def test_a_control_that_the_table_is_sorted_by_is_used():
    amounts = np.cumsum(np.arange(1, 41))
    assert read_controls({"amount": amounts}, 40).names == ("amount",)
    assert read_controls({"amount": amounts[::-1]}, 40).names == ("amount",)


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        (np.zeros(5), "`controls` must have one entry per row: got 5 for 20 rows"),
        (np.zeros(20), "`controls` must hold a column that can be used, got none"),
        (np.zeros((20, 0)), "`controls` must have at least one column"),
        (np.zeros((20, 2, 2)), "`controls` must be 1-D .* or 2-D"),
        (
            {"a": np.zeros((20, 2))},
            r"`controls` \(column 'a'\) must be 1-D.* got 2 columns",
        ),
        ({1: np.zeros(20), "1": np.zeros(20)}, "`controls` must have names that differ as text"),
        (np.r_[np.inf, np.arange(19.0)], "`controls` must be usable: Column .* must be finite"),
        ([f"name {k}" for k in range(60)], "`controls` must .*like a name"),
    ],
)
def test_bad_controls_are_refused(controls, message):
    with pytest.raises(ValueError, match=message):
        read_controls(controls, 60 if isinstance(controls, list) else 20)


def test_codes_as_text_are_categories():
    """ZIP codes are digits as often as not."""
    zips = np.arange(60601, 60661).astype(str)
    (column,) = read_controls({"zip": np.tile(zips, 20)}, 1200).columns
    assert column.values is None
    assert len(column.levels) == 60
