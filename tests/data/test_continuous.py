"""A measurement as the attribute: what it is read from, its bands, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

import evenhand as eh
from evenhand.data.groups import resolve_groups
from evenhand.data.sample import take_rows

rng = np.random.default_rng(0)
AGE = rng.integers(18, 90, 500)


def test_bands_are_of_about_equal_size_and_named_by_their_ends():
    groups = resolve_groups(eh.Continuous(AGE, "age"), n_rows=500)
    assert groups.name == "age"
    assert groups.n_groups == 8
    assert groups.counts.min() > 30
    assert groups.labels[0].startswith("18 to ")
    assert groups.labels[-1].endswith(" to 89")
    assert np.array_equal(groups.measured, AGE.astype(float))
    for k in range(8):
        low, high = map(int, groups.labels[k].split(" to "))
        inside = AGE[groups.codes == k]
        assert (inside.min(), inside.max()) == (low, high)


def test_missing_values_are_not_known_and_series_bring_their_name():
    series = pd.Series(AGE.astype(float), name="years")
    series.iloc[[3, 7]] = np.nan
    groups = resolve_groups(eh.Continuous(series), n_rows=500)
    assert groups.name == "years"
    assert groups.n_unknown == 2
    assert not groups.known[[3, 7]].any()
    assert len(groups.measured) == 498


def test_a_value_that_most_rows_share_keeps_a_band_of_its_own():
    income = np.r_[np.zeros(950), np.arange(1.0, 51.0)]
    groups = resolve_groups(eh.Continuous(income), n_rows=1000)
    assert groups.labels[0] == "0"
    assert groups.counts[0] == 950


def test_dates_and_fractions():
    days = pd.Series(pd.date_range("1950-01-01", periods=500, freq="D"))
    groups = resolve_groups(eh.Continuous(days), n_rows=500)
    assert groups.labels[0].startswith("1950-01-01 to 1950-0")
    tiny = resolve_groups(eh.Continuous(1.0 + 1e-9 * np.arange(500)), n_rows=500)
    assert len(set(tiny.labels)) == 8


def test_parts_keep_the_bands_of_the_whole():
    whole = eh.Continuous(AGE, "age")
    part = take_rows(whole, np.arange(12))
    assert isinstance(part, eh.Continuous)
    assert len(part) == 12
    groups = resolve_groups(whole, n_rows=500).take(np.arange(12))
    assert np.array_equal(part.codes(), groups.codes)
    assert np.array_equal(groups.measured, AGE[:12])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.arange(90) % 9, "at least 10 distinct values, got 9. Hint: pass so few as categories"),
        (["a", "b"] * 20, "must be numbers or dates"),
        (np.array([True, False] * 20), "must be numbers or dates"),
        (np.r_[np.arange(20.0), np.inf], "finite or missing, got 1 infinite"),
        (np.arange(40.0).reshape(20, 2), "must be one column, got 2"),
        (pd.DataFrame({"a": range(20), "b": range(20)}), "must be one column, got 2"),
        (eh.Continuous(AGE), "must be a column, got another Continuous"),
    ],
)
def test_what_is_no_measurement_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        eh.Continuous(values)


def test_refused_where_only_groups_will_do():
    attribute = eh.Continuous(AGE, "age")
    s = rng.normal(size=500)
    with pytest.raises(ValueError, match="name` of a Continuous must be text"):
        eh.Continuous(AGE, 3)
    with pytest.raises(ValueError, match="a Continuous must stand alone"):
        eh.independence(None, s, sensitive_features={"age": attribute})
    with pytest.raises(ValueError, match="got a Continuous: a measurement cannot be counted"):
        eh.Cells.from_rows(s, s, sensitive_features=attribute)
    with pytest.raises(ValueError, match="`controls` must be None with a Continuous"):
        eh.audit(s, s, sensitive_features=attribute, controls=s[:, None])
    with pytest.raises(ValueError, match="`estimator` must be 'auto' with a Continuous"):
        eh.independence(None, s, sensitive_features=attribute, estimator="knn")
    with pytest.raises(ValueError, match="`sensitive_features` must be groups for drivers"):
        eh.drivers(s, s[:, None], sensitive_features=attribute)
    with pytest.raises(ValueError, match="one entry per row"):
        eh.independence(None, s, sensitive_features=eh.Continuous(AGE[1:]))
    X = np.column_stack([s, AGE])
    for model in (
        eh.FairRidge(group_features="attribute"),
        eh.FairPostprocessor(LinearRegression(), group_features="attribute"),
    ):
        with pytest.raises(ValueError, match="None or 'posterior' with a Continuous attribute"):
            model.fit(X, s, sensitive_features=attribute)


def test_rows_in_another_order_are_noticed():
    s = pd.Series(rng.normal(size=500), index=np.arange(500) + 1000)
    age = pd.Series(AGE, index=s.index[::-1])
    with pytest.raises(ValueError, match="must have its rows in the order"):
        eh.independence(None, s, sensitive_features=eh.Continuous(age))
