"""New rows as they come: columns in another order, one row, dates, gaps, numbers as text."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import make_pipeline

import evenhand as eh
from evenhand.data.encoding import ColumnError


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 300)
    frame = pd.DataFrame(rng.normal(size=(300, 3)) + a[:, None], columns=["u", "v", "w"])
    return frame, frame.to_numpy() @ [1.0, -2.0, 0.5] + rng.normal(size=300), a


def lightgbm():
    return pytest.importorskip("lightgbm").LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1)


@pytest.mark.parametrize("passthrough", [False, True])
@pytest.mark.parametrize("base", ["lightgbm", "histograms"])
def test_columns_are_matched_by_name(data, base, passthrough):
    X, y, a = data
    regressor = lightgbm() if base == "lightgbm" else HistGradientBoostingRegressor(max_iter=5)
    model = eh.FairPostprocessor(regressor, passthrough=passthrough, cv=3, random_state=0)
    model.fit(X, y, sensitive_features=a)
    expected = model.predict(X)
    np.testing.assert_array_equal(model.predict(X[["w", "u", "v"]]), expected)
    np.testing.assert_array_equal(model.predict(X.assign(more=1.0)), expected)
    np.testing.assert_allclose(model.predict(X.iloc[:1]), expected[:1], rtol=1e-12)
    with pytest.raises(ValueError, match="'w' is missing; there are 'u', 'v'"):
        model.predict(X[["u", "v"]])


def test_frames_of_another_library(data):
    X, y, a = data
    base = HistGradientBoostingRegressor(max_iter=5)
    model = eh.FairPostprocessor(base, passthrough=True, cv=3, random_state=0)
    model.fit(X, y, sensitive_features=a)
    other = pl.from_pandas(X[["v", "w", "u"]])
    np.testing.assert_array_equal(model.predict(other), model.predict(X))


def test_dates_that_a_base_cannot_read_are_named(data):
    X, y, a = data
    dated = X.assign(since=pd.Timestamp("2020-01-01"))
    base = HistGradientBoostingRegressor(max_iter=2)
    with pytest.raises(ValueError, match=r"column 'since' holds dates\. Hint: make_pipeline"):
        eh.FairPostprocessor(base, cv=2).fit(dated, y, sensitive_features=a)
    both = make_pipeline(eh.TableEncoder(), base)
    eh.FairPostprocessor(both, cv=2, fairness_weight=0.0).fit(dated, y, sensitive_features=a)


MODELS = {
    "ridge": lambda: eh.FairRidge(fairness_weight=1.0),
    "glm": lambda: eh.FairGLM("normal", fairness_weight=1.0),
    "recommended": lambda: eh.FairRegressor(cv=2, measure_with="logistic", random_state=0),
    "stack": lambda: eh.FairPostprocessor(
        eh.FairRidge(fairness_weight=0.0), passthrough=True, cv=2
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_dates_are_days(data, name):
    X, y, a = data
    days = np.random.default_rng(1).integers(0, 900, len(X))
    dated = X.assign(since=pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D"))
    model = MODELS[name]().fit(dated, y + 0.01 * days, sensitive_features=a)
    score = model.predict(dated)
    assert np.corrcoef(score, y + 0.01 * days)[0, 1] > 0.9
    np.testing.assert_allclose(model.predict(dated.iloc[:1]), score[:1], rtol=1e-9)


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_gap_that_training_never_saw_is_refused(data, name, texts):
    X, y, a = data
    X = X.assign(t=np.where(X["u"] > 0, "x", "y")) if texts else X
    model = MODELS[name]().fit(X, y, sensitive_features=a)
    new = X.copy()
    new.loc[3, "v"] = np.nan
    with pytest.raises(ValueError, match=r"NaN|Column 'v' has no value in row 4"):
        model.predict(new)


@pytest.mark.parametrize("name", MODELS)
def test_numbers_as_text_are_named(data, name):
    X, y, a = data
    wrong = X.assign(u=X["u"].round(2).astype(str))
    with pytest.raises(ColumnError, match=r"Column 'u' holds numbers as text, such as .* categor"):
        MODELS[name]().fit(wrong, y, sensitive_features=a)
    few = X.assign(u=(X["u"] > 0).astype(int).astype(str))
    MODELS[name]().fit(few, y, sensitive_features=a)
    codes = X.assign(u=[f"0{k % 25:02d}" for k in range(len(X))])
    MODELS[name]().fit(codes, y, sensitive_features=a)
    declared = X.assign(u=pd.Categorical([str(k % 25) for k in range(len(X))]))
    MODELS[name]().fit(declared, y, sensitive_features=a)
