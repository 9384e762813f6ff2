"""The linear copy of a table: numbers, categories and gaps, from frames and arrays."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from evenhand.models.linear_copy import MAX_LEVELS, LinearCopy

N = 60


@pytest.fixture
def columns():
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, N)
    x[::7] = np.nan
    city = np.array(["a", "b", "c"], dtype=object)[rng.choice(3, N, p=[0.5, 0.3, 0.2])]
    city[:2], city[5] = "rare", None
    return {"x": x, "city": city, "flag": rng.random(N) < 0.4, "same": np.ones(N)}


def made(columns):
    x, city = columns["x"], columns["city"]
    gap = np.isnan(x)
    filled = np.where(gap, np.nanmedian(x), x)
    flag = columns["flag"].astype(float)
    known, counts = np.unique([c for c in city if c not in (None, "rare")], return_counts=True)
    order = known[np.argsort(-counts, kind="stable")]
    return np.column_stack(
        [
            (filled - filled.mean()) / filled.std(), gap,
            *(city == level for level in order[1:]), city == "rare", [c is None for c in city],
            (flag - flag.mean()) / flag.std(),
        ]
    ).astype(float)  # fmt: skip


@pytest.mark.parametrize("form", ["pandas", "category", "polars", "array"])
def test_what_becomes_of_each_column(columns, form):
    if form == "polars":
        X = pl.DataFrame({k: v.tolist() for k, v in columns.items()}, strict=False)
        X = X.with_columns(pl.col("x").fill_nan(None))
    else:
        X = pd.DataFrame(columns)
        if form == "category":
            X["city"] = X["city"].astype("category")
        if form == "array":
            X = X.to_numpy(dtype=object)
    copy = LinearCopy.fit(X)
    found = copy.transform(X)
    np.testing.assert_allclose(found, made(columns), atol=1e-12)
    assert found.shape[1] == len(copy.names)
    assert "same" not in str(copy.names)
    if form != "array":
        assert copy.names[:2] == ("x", "x=(missing)")
        assert copy.names[-3:] == ("city=(other)", "city=(missing)", "flag")


def test_new_rows_follow_the_training_rows():
    copy = LinearCopy.fit(pd.DataFrame({"x": [1.0, 3.0] * 15, "g": ["a", "a", "b"] * 10}))
    found = copy.transform(pd.DataFrame({"x": [5.0, np.nan], "g": ["b", "unseen"]}))
    # A gap where there was none is as good as the mean; an unknown level as the most frequent one.
    np.testing.assert_allclose(found, [[3.0, 1.0], [-2.0, 0.0]])


def test_numbers_that_are_only_missing_in_places_and_dates():
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=int(k)) for k in range(40)]
    X = pl.DataFrame({"day": days, "gap": [None, 1.0] * 20, "none": [None] * 40})
    copy = LinearCopy.fit(X)
    found = copy.transform(X)
    assert copy.names == ("day", "gap", "gap=(missing)")
    z = (np.arange(40) - 19.5) / np.arange(40).std()
    np.testing.assert_allclose(found[:, 0], z, atol=1e-9)
    np.testing.assert_array_equal(found[:, 1], 0.0)


def test_names_of_people_are_left_out():
    X = pd.DataFrame({"who": [f"p{i}" for i in range(100)], "x": np.arange(100.0)})
    assert LinearCopy.fit(X).names == ("x",)
    many = pd.DataFrame({"g": [f"g{i % 60}" for i in range(1200)]})
    copy = LinearCopy.fit(many)
    assert len(copy.names) == MAX_LEVELS
    assert copy.names[-1] == "g=(other)"


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix])
def test_sparse_columns_are_scaled(kind):
    dense = np.random.default_rng(0).poisson(0.3, (50, 4)) * [1.0, 5.0, 0.1, 0.0]
    copy = LinearCopy.fit(kind(dense))
    found = copy.transform(kind(dense))
    assert sparse.issparse(found)
    spread = np.where(dense.std(axis=0) > 0, dense.std(axis=0), 1.0)
    np.testing.assert_allclose(found.toarray(), dense / spread, rtol=1e-12)


def test_bad_tables():
    with pytest.raises(ValueError, match=r"column 'x1' is infinite in row 2\. Hint: a missing"):
        LinearCopy.fit(np.array([[0.0, 1.0], [1.0, 2.0], [2.0, np.inf]]))
    copy = LinearCopy.fit(pd.DataFrame({"x": [1.0, 2.0, 3.0]}))
    with pytest.raises(ValueError, match="must hold numbers in column 'x', as it did in fit"):
        copy.transform(pd.DataFrame({"x": ["a", "b"]}))
    with pytest.raises(ValueError, match="must have 1 columns, as it had in fit; got 2"):
        copy.transform(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"table with rows and columns, got shape \(3,\)"):
        LinearCopy.fit(np.ones(3))
