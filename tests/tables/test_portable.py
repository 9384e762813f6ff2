"""Columns into numbers."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from evenhand.data.encoding import MISSING, OTHER, ColumnError, encode, fit_columns


def test_numbers_are_standardized_and_gaps_marked():
    table = pa.table({"x": [1.0, None, 3.0, 8.0]})
    (column,) = fit_columns(table, ["x"])
    X, _ = encode(table, [column])
    assert column.features == ["x", f"x={MISSING}"]
    assert column.fill == 3.0
    np.testing.assert_allclose(X[:, 0].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(X[:, 0].std(), 1)
    np.testing.assert_array_equal(X[:, 1], [0, 1, 0, 0])


def test_nan_counts_as_missing():
    table = pa.table({"x": [1.0, float("nan"), 3.0]})
    (column,) = fit_columns(table, ["x"])
    assert column.missing
    assert np.isfinite(encode(table, [column])[0]).all()


def test_categories_have_a_column_per_level_but_the_first():
    values = ["b"] * 30 + ["a"] * 20 + ["rare"] * 3 + [None] * 5
    table = pa.table({"c": pa.array(values).dictionary_encode()})
    (column,) = fit_columns(table, ["c"])
    assert column.features == ["c=a", f"c={OTHER}", f"c={MISSING}"]
    X, unseen = encode(table, [column])
    assert X.sum(axis=0).tolist() == [20, 3, 5]
    assert not unseen
    X, unseen = encode(pa.table({"c": ["b", "new", None]}), [column])
    assert X.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert "'rare'" not in column.describe()
    assert "rare levels are taken together" in column.describe()


def test_unseen_levels_are_counted_where_there_is_no_other():
    (column,) = fit_columns(pa.table({"c": ["a", "b"] * 20}), ["c"])
    X, unseen = encode(pa.table({"c": ["zzz", "b"]}), [column])
    assert unseen == {"c": 1}
    assert X.tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([None] * 40, "no values"),
        ([5] * 40, "same value"),
        (["a"] * 40, "same value"),
        ([3 * i for i in range(40)], "like a row number"),
        ([f"person {i}" for i in range(40)], "40 different texts in 40 rows"),
    ],
)
def test_useless_columns_are_left_out_and_named(values, reason):
    (column,) = fit_columns(pa.table({"v": values}), ["v"])
    assert column.kind == "left out"
    assert reason in column.describe()
    assert encode(pa.table({"v": values}), [column])[0].shape == (40, 0)


def test_dates_and_booleans_are_numbers():
    day = [datetime.date(2020, 1, 1 + i % 20) for i in range(40)]
    table = pa.table({"d": day, "b": [True, False] * 20})
    columns = fit_columns(table, ["d", "b"])
    assert [c.kind for c in columns] == ["number", "number"]
    assert columns[0].scale == pytest.approx(np.std([i % 20 for i in range(40)]))


def test_types_no_model_can_use_are_refused():
    with pytest.raises(ColumnError, match="leave it out \\(--drop"):
        fit_columns(pa.table({"v": [[1], [2]]}), ["v"])
