"""Measurements cut into bands."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.data.groups import resolve_groups

AGES = [19, 25, 64, 65, 80]
NAMES = ["under 25", "25 to 64", "25 to 64", "65 and over", "65 and over"]


@pytest.mark.parametrize(
    "values",
    [
        AGES, tuple(AGES), np.array(AGES), np.array(AGES, dtype=np.uint8), np.array(AGES) * 1.0,
        np.array(AGES, dtype=object), pd.Series(AGES), pl.Series(AGES), pd.DataFrame({"age": AGES}),
        pa.array(AGES), pa.chunked_array([AGES]), pd.Series(AGES, dtype="Int64"),
        pd.Series(AGES, dtype=object), pl.DataFrame({"age": AGES}),
    ],
)  # fmt: skip
def test_every_form_of_a_column(values):
    found = eh.bands(values, [25, 65])
    assert list(map(str, found.tolist() if hasattr(found, "tolist") else found)) == NAMES


@pytest.mark.parametrize(
    "values",
    [
        [19, None, 70], [19, float("nan"), 70], np.array([19, np.nan, 70]),
        pl.Series([19, None, 70]), np.ma.array([19, 30, 70], mask=[False, True, False]),
        pa.array([19, None, 70]),
        pd.Series([19, None, 70]), pd.Series([19, None, 70], dtype="Int64"),
        pd.Series([19, pd.NA, 70], dtype=object),
    ],
)  # fmt: skip
def test_missing_stays_missing(values):
    groups = resolve_groups(
        eh.bands(values, [25, 65], labels=["a", "b", "c"]), n_rows=3, warn=False
    )
    assert groups.labels == ("a", "c")
    assert groups.known.tolist() == [True, False, True]


def test_series_keep_their_library_their_index_and_the_order_of_bands():
    found = eh.bands(pd.Series(AGES, index=list("vwxyz"), name="age"), [25, 65])
    assert found.index.tolist() == list("vwxyz")
    assert found.name == "age"
    assert found.cat.ordered
    polars = eh.bands(pl.Series("age", AGES), [25, 65])
    assert polars.dtype == pl.Enum(["under 25", "25 to 64", "65 and over"])
    arrow = eh.bands(pa.chunked_array([AGES]), [25, 65])
    bare = eh.bands(pa.array(AGES), [25, 65])
    assert isinstance(bare, pa.ChunkedArray)
    for series in (found, polars, arrow, bare):
        assert resolve_groups(series, n_rows=5, warn=False).labels == (
            "under 25",
            "25 to 64",
            "65 and over",
        )


@pytest.mark.parametrize(
    ("values", "edges", "names"),
    [
        ([1, 2, 3], [2, 3], ["under 2", "2", "3 and over"]),
        ([1.5, 2.5], [2, 3], ["under 2", "2 to under 3", "3 and over"]),
        ([1, 2], [1.5, 2.5], ["under 1.5", "1.5 to under 2.5", "2.5 and over"]),
        ([-5, 0], [-2], ["under -2", "-2 and over"]),
        ([10**6], [1234567], ["under 1234567", "1234567 and over"]),
    ],
)
def test_names_of_bands(values, edges, names):
    assert resolve_groups(
        eh.bands(pd.Series(values), edges), n_rows=len(values), require_two=False, warn=False
    ).labels == tuple(sorted(set(eh.bands(values, edges)), key=names.index))
    assert eh.bands(pd.Series(values), edges).cat.categories.tolist() == names


def test_dates():
    days = [datetime.date(1985, 5, 1), datetime.date(1990, 1, 1), None, datetime.date(2001, 2, 3)]
    names = ["before 1990-01-01", "1990-01-01 to before 2000-01-01", None, "2000-01-01 and later"]
    edges = ["1990-01-01", datetime.date(2000, 1, 1)]
    stamps = np.array(days, dtype="datetime64[s]")
    zoned = pd.Series(stamps).dt.tz_localize("Asia/Tokyo")
    for values in (days, stamps, pd.Series(stamps), pl.Series(days), zoned, pa.array(days)):
        found = eh.bands(values, edges)
        found = found.to_pylist() if isinstance(found, pa.ChunkedArray) else list(found)
        assert [None if v != v else v for v in found] == names
    assert (
        eh.bands(stamps, [np.datetime64("1990-01-01T12")])[1] == "before 1990-01-01T12:00:00.000000"
    )


@pytest.mark.parametrize(
    ("values", "edges", "options", "message"),
    [
        (["a", "b"], [1], {}, r"`values` must be numbers or dates .*'a'. Hint: text and booleans"),
        ([True, False], [1], {}, "`values` must be numbers or dates .*, got bool"),
        (pl.Series(["a"]), [1], {}, "`values` must be numbers or dates"),
        (np.ones((2, 2)), [1], {}, r"`values` must be one column, got 2"),
        (pd.DataFrame({"a": [1], "b": [1]}), [1], {}, "`values` must be one column, got 2"),
        ([1, 2], [], {}, "`edges` must hold at least one value, got none"),
        ([1, 2], 5, {}, "`edges` must be a list of where bands begin, got 5"),
        ([1, 2], "5", {}, "`edges` must be a list of where bands begin, got '5'"),
        ([1, 2], [3, 2], {}, r"`edges` must rise from one to the next, got \[3, 2\]"),
        ([1, 2], [2, 2], {}, "`edges` must rise"),
        ([1, 2], [float("nan")], {}, r"`edges` must be finite numbers .* such as \[25, 65\]"),
        ([1, 2], ["2020-01-01"], {}, "`edges` must be finite numbers for a column of numbers"),
        ([datetime.date(2020, 1, 1)], [2000], {}, "`edges` must be dates for a column of dates"),
        ([datetime.date(2020, 1, 1)], ["soon"], {}, "`edges` must be dates for a column of dates"),
        ([1, 2], [2], {"labels": ["a"]}, "`labels` must be 2 different names for 1 edges"),
        ([1, 2], [2], {"labels": ["a", "a"]}, "`labels` must be 2 different names"),
        ([1, 2], [2], {"labels": [1, 2]}, r"`labels` must be texts, got \[1, 2\]"),
    ],
)  # fmt: skip
def test_refusals(values, edges, options, message):
    with pytest.raises(ValueError, match=message):
        eh.bands(values, edges, **options)


def test_bands_make_an_audit_of_ages():
    rng = np.random.default_rng(0)
    age = rng.integers(18, 85, 600)
    y = rng.normal(size=600) + (age >= 65)
    with pytest.raises(ValueError, match=r"evenhand\.bands\(values, \[40, 62\]\)"):
        eh.audit(y, y, sensitive_features=age)
    found = eh.audit(
        y, y, sensitive_features=pd.DataFrame({"age": eh.bands(pd.Series(age), [25, 65])})
    )
    assert found.labels == ("under 25", "25 to 64", "65 and over")
    assert found.independence.found
