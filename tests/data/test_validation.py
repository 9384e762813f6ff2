"""Values that NumPy would turn into floats, or into one label, without a word."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LinearRegression

import evenhand as eh
from evenhand._core.validation import check_column, is_number
from evenhand.data.groups import Proxy, resolve_groups
from rivals import BerkRegressor, KomiyamaRegressor, ReductionRegressor

N = 60
DATES = np.arange(N).astype("datetime64[D]")
DURATIONS = np.arange(1, N + 1).astype("timedelta64[s]")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    a = np.arange(N) % 2
    X = rng.normal(size=(N, 3))
    return X, X.sum(axis=1) + rng.normal(size=N), a


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(N) + 1j, r"`sample_weight` must be numbers, got values of type complex128 such"),
        (DATES, r"`sample_weight` must be numbers, got values of type datetime64\[D\] such"),
        (DURATIONS, r"`sample_weight` must be numbers, got values of type timedelta64\[s\] such"),
        (pd.Series(DATES), r"`sample_weight` must be numbers, got values of type datetime64"),
        (np.ma.array(np.ones(N), mask=np.arange(N) < 5), "must not hold masked values, got 5. Hi"),
    ],
)
def test_weights_that_are_no_weights(weight, message, rows):
    X, y, a = rows
    with pytest.raises(ValueError, match=message):
        eh.independence(y, X[:, 0], sensitive_features=a, sample_weight=weight)
    with pytest.raises(ValueError, match=message):
        eh.FairRidge().fit(X, y, sensitive_features=a, sample_weight=weight)


def test_a_mask_that_hides_nothing_is_no_mask(rows):
    X, y, a = rows
    weight = np.linspace(1, 2, N)
    plain = eh.independence(y, X[:, 0], sensitive_features=a, sample_weight=weight)
    masked = np.ma.array(weight, mask=np.zeros(N, dtype=bool))
    assert eh.independence(y, X[:, 0], sensitive_features=a, sample_weight=masked) == plain


@pytest.mark.parametrize(
    "table",
    [
        np.full((N, 2), 0.5 + 0.1j),
        np.column_stack([DATES, DATES]),
        np.column_stack([DURATIONS, DURATIONS]),
    ],
)
def test_proxies_that_are_no_probabilities(table):
    with pytest.raises(
        ValueError, match=r"must be numbers, got an array of dtype (complex|date|timed)"
    ):
        Proxy(table, ["a", "b"])


def test_masked_probabilities_are_rows_whose_group_is_not_known():
    rng = np.random.default_rng(1)
    p = rng.random(N)
    hidden = np.arange(N) < 7
    # One masked entry is enough, and what the mask hides must not matter.
    table = np.ma.array(
        np.column_stack([1 - p, p]), mask=np.column_stack([hidden, np.zeros(N, dtype=bool)])
    )
    table.data[hidden] = 99.0
    groups = resolve_groups(Proxy(table, ["a", "b"]), n_rows=N)
    assert groups.n_unknown == 7
    np.testing.assert_allclose(groups.probabilities[:, 1], p[~hidden])
    one = resolve_groups(Proxy(np.ma.array(p, mask=hidden), ["a", "b"]), n_rows=N)
    np.testing.assert_array_equal(one.known, groups.known)
    np.testing.assert_allclose(one.probabilities, groups.probabilities)


MODELS = [
    eh.FairRidge(),
    BerkRegressor(),
    KomiyamaRegressor(),
    ReductionRegressor(),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("wrong", ["dates", "durations", "complex", "masked", "frame", "polars"])
def test_features_and_targets_of_fitters(model, wrong, rows):
    X, y, a = rows
    make = {
        "dates": lambda v: v.astype("timedelta64[D]") + np.datetime64("2020-01-01"),
        "durations": lambda v: v.astype("timedelta64[D]"),
        "complex": lambda v: v + 1j,
        "masked": lambda v: np.ma.array(v, mask=v > 1.5),
        "frame": lambda v: pd.DataFrame(v.reshape(N, -1)).assign(day=DATES),
        "polars": lambda v: pl.DataFrame({"x": np.ravel(v)[:N], "day": DATES}),
    }[wrong]
    if wrong in ("frame", "polars") and isinstance(model, eh.FairRidge):
        # Linear models encode frames, in which dates count in days.
        assert np.isfinite(model.fit(make(X), y, sensitive_features=a).predict(make(X))).all()
        return
    message = "must not hold masked values" if wrong == "masked" else "must be real numbers, got v"
    with pytest.raises(ValueError, match=f"`X` {message}.*Hint"):
        model.fit(make(X), y, sensitive_features=a)
    if wrong not in ("frame", "polars"):
        with pytest.raises(ValueError, match=f"`y` {message}.*Hint"):
            model.fit(X, make(y), sensitive_features=a)


def test_features_at_prediction(rows):
    X, y, a = rows
    model = eh.FairRidge().fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`X` must not hold masked values, got"):
        model.predict(np.ma.array(X, mask=X > 1))
    with pytest.raises(ValueError, match="`X` must be real numbers"):
        model.predict(X.astype("timedelta64[s]"))


def test_masked_features_of_a_postprocessor(rows):
    X, y, a = rows
    model = eh.FairPostprocessor(LinearRegression())
    with pytest.raises(ValueError, match="`X` must not hold masked values"):
        model.fit(np.ma.array(X, mask=X > 1), y, sensitive_features=a)


def test_masked_features_where_columns_are_read_one_by_one(rows):
    X, y, a = rows
    masked, post = np.ma.array(X, mask=X > 1.5), eh.FairPostprocessor(LinearRegression())
    post.fit(X, y, sensitive_features=a)
    for call in (
        lambda: post.predict(masked),
        lambda: eh.TableEncoder().fit(masked),
        lambda: eh.drivers(y, masked, sensitive_features=a),
    ):
        with pytest.raises(ValueError, match="`X` must not hold masked values"):
            call()


def test_repeated_column_names_of_features(rows):
    X, y, a = rows
    frame = pd.DataFrame(X, columns=["u", "u", "v"])
    with pytest.raises(ValueError, match=r"`X` must have distinct column names.*Hint: rename or"):
        eh.FairRidge().fit(frame, y, sensitive_features=a)


@pytest.mark.parametrize(
    "empty",
    [
        np.array([], dtype="datetime64[D]"),
        np.array([], dtype="timedelta64[ns]"),
        pd.Series([], dtype="datetime64[ns]"),
        pl.Series([], dtype=pl.Date),
    ],
)
def test_empty_columns_of_dates(empty):
    with pytest.raises(ValueError, match=r"`y_pred` must be numbers, got values of type .*Hint"):
        check_column(empty, "y_pred")
    with pytest.raises(ValueError, match="found no known group in 0 rows"):
        resolve_groups(empty, n_rows=0)
    with pytest.raises(ValueError, match="one entry per row: got 0 for 3"):
        eh.audit(np.arange(3.0), np.arange(3.0), sensitive_features=empty)


@pytest.mark.parametrize(
    ("values", "first", "second"),
    [
        ([1, True, 0, 0], r"1 \(integer\)", r"True \(boolean\)"),
        ([1, 1.0, 2, 2], r"1 \(integer\)", r"1.0 \(float\)"),
        (np.array([0, False, 1], dtype=object), r"0 \(integer\)", r"False \(boolean\)"),
        (pd.Series([2.0, "x", 2], dtype=object), r"2.0 \(float\)", r"2 \(integer\)"),
        (pd.Series([np.True_, 1, 0], dtype=object), r".*True_? \(boolean\)", r"1 \(integer\)"),
    ],
)
def test_equal_labels_of_different_types(values, first, second):
    message = f"must hold labels of one type, got both {first} and {second}.*Hint: convert"
    with pytest.raises(ValueError, match=message):
        resolve_groups(values, n_rows=len(values))


def test_equal_labels_in_a_named_column():
    frame = pd.DataFrame({"sex": np.array([1, True, 0], dtype=object)})
    with pytest.raises(ValueError, match=r"`sensitive_features` \(column 'sex'\) must hold labels"):
        resolve_groups(frame, n_rows=3)


@pytest.mark.parametrize(
    "values",
    [
        [1, 0, float("nan"), 1],
        [1, np.int64(1), 0, 0],
        np.array([1.0, None, 0, 0], dtype=object),
        np.array([True, False, "x", True], dtype=object),
        np.array([1, 2.0, 2.0, 1], dtype=object),
    ],
)
def test_numbers_that_do_not_clash_are_labels(values):
    assert resolve_groups(values, n_rows=4, warn=False).n_groups >= 2


@pytest.mark.parametrize(
    ("step", "labels"),
    [
        ("1000 ms", (datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 1))),
        ("1 ms", (datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 1000))),
        ("1 us", (datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 1))),
        ("1 ns", ("2020-01-01T00:00:00.000000000", "2020-01-01T00:00:00.000000001")),
    ],
)
def test_moments_finer_than_a_second_are_groups_of_their_own(step, labels):
    count, unit = step.split()
    column = np.datetime64("2020-01-01").astype(f"M8[{unit}]") + np.arange(8) % 2 * np.timedelta64(
        int(count), unit
    )
    groups = resolve_groups(column, n_rows=8)
    assert groups.labels == labels
    np.testing.assert_array_equal(groups.codes, np.arange(8) % 2)


def test_durations_are_labels():
    column = (np.arange(8) % 2).astype("timedelta64[ms]")
    assert resolve_groups(column, n_rows=8).labels == (timedelta(0), timedelta(milliseconds=1))
    fine = (np.arange(8) % 2).astype("timedelta64[ns]")
    assert resolve_groups(fine, n_rows=8).labels == ("0 nanoseconds", "1 nanoseconds")
    years = (np.arange(8) % 2).astype("timedelta64[Y]")
    assert resolve_groups(years, n_rows=8).labels == ("0 years", "1 years")
    column[3] = np.timedelta64("NaT")
    assert resolve_groups(column, n_rows=8).n_unknown == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: eh.audit("loss", "score", sensitive_features="sex"),
        lambda: eh.independence(None, "score", sensitive_features="sex"),
        lambda: eh.Cells.from_rows("loss", "score", sensitive_features="sex"),
        lambda: eh.FairRegressor("independence", max_unfairness=0.1).fit(
            Path("x.parquet"), "y", sensitive_features="sex"
        ),
        lambda: eh.FairPostprocessor(eh.FairRidge()).fit(
            "x.parquet", "y", sensitive_features="sex"
        ),
    ],
)
def test_names_in_place_of_rows_are_refused(call):
    with pytest.raises(ValueError, match=r"got the name '.*'\. Hint: pass the columns themselves"):
        call()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), True, "1", None])
def test_what_is_no_number(value):
    assert not is_number(value)
    assert is_number(np.float32(1.5))
    assert not is_number(-1, 0.0)
