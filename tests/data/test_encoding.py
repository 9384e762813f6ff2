"""TableEncoder: the same matrix from every kind of table, and clear words about the rest."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import evenhand as eh
from evenhand.data.encoding import ColumnError, UnseenLevelWarning, fit_columns, needs_encoding

DAYS = [datetime.date(2020, 1, 1 + (7 * i) % 28) for i in range(60)]
COLUMNS = {
    "age": [None if i % 7 == 0 else 20.0 + (3 * i) % 50 for i in range(60)],
    "fuel": [None if i % 11 == 0 else "gas oil power"[4 * (i % 3) :].split()[0] for i in range(60)],
    "since": DAYS,
    "paid": [i % 4 == 0 for i in range(60)],
    "children": [i % 3 for i in range(60)],
}


def tables():
    arrow = pa.table(COLUMNS)
    yield "pandas", pd.DataFrame(COLUMNS)
    yield "pandas by arrow", arrow.to_pandas(types_mapper=pd.ArrowDtype)
    yield "polars", pl.DataFrame(COLUMNS)
    yield "arrow", arrow
    yield (
        "polars categories",
        pl.DataFrame(COLUMNS).with_columns(pl.col("fuel").cast(pl.Categorical)),
    )
    frame = pd.DataFrame(COLUMNS)
    frame["fuel"] = frame["fuel"].astype("category")
    frame["since"] = pd.to_datetime(frame["since"])
    yield "pandas categories", frame


@parametrize_with_checks([eh.TableEncoder()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("name", "table"), list(tables()))
def test_every_table_gives_the_same_matrix(name, table):
    encoder = eh.TableEncoder().fit(pa.table(COLUMNS))
    want = encoder.transform(pa.table(COLUMNS))
    found = eh.TableEncoder().fit(table)
    assert found.columns_ == encoder.columns_
    np.testing.assert_array_equal(found.transform(table), want)
    assert list(found.get_feature_names_out()) == [
        "age", "age=(missing)", "fuel=oil", "fuel=power", "fuel=(missing)", "since", "paid",
        "children",
    ]  # fmt: skip
    assert found.transform(table).shape == (60, 8)


def test_command_line_and_encoder_agree():
    table = pa.table(COLUMNS)
    assert tuple(fit_columns(table, table.column_names)) == eh.TableEncoder().fit(table).columns_


def test_numbers_can_keep_their_units():
    table = pd.DataFrame({"x": [1.0, 2.0, 4.0, np.nan]})
    found = eh.TableEncoder(standardize=False).fit_transform(table)
    np.testing.assert_array_equal(found, [[1, 0], [2, 0], [4, 0], [2, 1]])


def test_rare_levels_and_their_limits():
    table = pd.DataFrame({"c": ["a"] * 9 + ["b"] * 5 + ["d"] * 4 + ["e"] * 2})
    names = eh.TableEncoder(min_level_rows=3, max_levels=2).fit(table).get_feature_names_out()
    assert list(names) == ["c=b", "c=(other)"]
    with pytest.raises(ValueError, match="`max_levels` must be a positive integer, got 0"):
        eh.TableEncoder(max_levels=0).fit(table)


def test_new_levels_are_warned_of():
    encoder = eh.TableEncoder().fit(pd.DataFrame({"c": ["a", "b"] * 20}))
    with pytest.warns(UnseenLevelWarning, match="1 rows of 'c' hold a level"):
        found = encoder.transform(pd.DataFrame({"c": ["b", "new"]}))
    assert found.tolist() == [[1], [0]]


def test_messages():
    table = pd.DataFrame(COLUMNS)
    encoder = eh.TableEncoder().fit(table)
    with pytest.raises(ColumnError, match="'age' was there in training and is missing now"):
        encoder.transform(table.drop(columns="age"))
    with pytest.raises(ColumnError, match="'age' held numbers in training and holds text now"):
        encoder.transform(table.assign(age="old"))
    with pytest.raises(ColumnError, match="'x' must be finite: row 2 is infinite"):
        eh.TableEncoder().fit(pd.DataFrame({"x": [1.0, np.inf]}))
    with pytest.raises(ColumnError, match=r"holds values of type list, which no model can use"):
        eh.TableEncoder().fit(pl.DataFrame({"x": [[1], [2]]}))
    assert "'fuel' is used as a category: 3 levels" in encoder.describe()


def test_what_needs_encoding():
    assert not needs_encoding(np.zeros((3, 2)))
    assert not needs_encoding(pd.DataFrame({"x": [1, 2], "b": [True, False]}))
    assert needs_encoding(pd.DataFrame({"x": [1.0, np.nan]}))
    assert needs_encoding(pl.DataFrame({"x": ["a", "b"]}))


def test_object_columns_are_what_they_hold():
    table = pd.DataFrame({"n": pd.Series([1, None, 3] * 10, dtype=object)})
    (column,) = eh.TableEncoder().fit(table).columns_
    assert (column.kind, column.missing, column.fill) == ("number", True, 2.0)
    array = np.array([["a", 1.0], ["b", 2.0]] * 10, dtype=object)
    assert [c.kind for c in eh.TableEncoder().fit(array).columns_] == ["category", "number"]


def test_codes_that_a_gap_has_made_floats_are_the_same_levels():
    codes = pd.Series([1, 2, 3] * 20 + [4])
    encoder = eh.TableEncoder().fit(pd.DataFrame({"zone": codes.astype(str)}))
    assert "zone=(other)" in encoder.get_feature_names_out()
    expected = encoder.transform(pd.DataFrame({"zone": codes}))
    np.testing.assert_array_equal(
        encoder.transform(pd.DataFrame({"zone": codes.astype(float)})), expected
    )
