"""Frames with text, categories and gaps, in every estimator."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

import evenhand as eh
from evenhand.data.encoding import ColumnError


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 400
    a = rng.choice(["p", "q"], n)
    frame = pd.DataFrame(
        {
            "income": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n) + (a == "q")),
            "fuel": pd.Categorical(np.where(rng.random(n) < 0.4, "gas", "oil")),
            "paid": rng.random(n) < 0.5,
            "children": rng.integers(0, 4, n),
        }
    )
    y = frame["income"].fillna(0.0) + (frame["fuel"] == "gas") + rng.gamma(1.0, size=n)
    return frame, (y - y.min() + 0.1).to_numpy(), a


def models():
    yield eh.FairRidge(fairness_weight=1.0)
    yield eh.FairRidge(fairness_weight=1.0, group_features="posterior")
    yield eh.FairGLM("gamma", fairness_weight=1.0, link="log")


@pytest.mark.parametrize("model", list(models()), ids=lambda m: type(m).__name__)
def test_frames_are_encoded_as_the_encoder_does(model, table):
    frame, y, a = table
    encoder = eh.TableEncoder().fit(frame)
    model.fit(frame, y, sensitive_features=a)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.n_features_in_ == 4
    assert model.coef_.shape == (len(encoder.get_feature_names_out()),)
    numbers = encoder.transform(frame)
    plain = type(model)(**model.get_params()).fit(numbers, y, sensitive_features=a)
    np.testing.assert_array_equal(model.predict(frame), plain.predict(numbers))
    again = pickle.loads(pickle.dumps(model))
    few = frame.iloc[:5]
    np.testing.assert_array_equal(again.predict(few), model.predict(few))
    np.testing.assert_allclose(again.predict(pl.DataFrame(few)), model.predict(few))


def test_numbers_are_left_as_they_are(table):
    frame, y, a = table
    numbers = frame[["children"]].assign(x=np.arange(len(y)) % 7)
    model = eh.FairRidge(fairness_weight=0).fit(numbers, y, sensitive_features=a)
    assert model.encoder_ is None
    plain = eh.FairRidge(fairness_weight=0).fit(numbers.to_numpy(), y, sensitive_features=a)
    np.testing.assert_array_equal(model.predict(numbers), plain.predict(numbers.to_numpy()))


def test_paths_and_the_recommended_model_take_them(table):
    frame, y, a = table
    path = eh.fairness_path(
        eh.FairRidge(), frame, y, sensitive_features=a, fairness_weights=[0.0, 1.0], cv=2,
        random_state=0,
    )  # fmt: skip
    assert path.select(max_unfairness=1.0).predict(frame.iloc[:3]).shape == (3,)
    model = eh.FairRegressor(max_unfairness=0.9, random_state=0)
    model.fit(frame, y, sensitive_features=a)
    assert model.predict(frame.iloc[:3]).shape == (3,)


def test_other_forms_are_refused_in_words(table):
    frame, y, a = table
    model = eh.FairRidge(fairness_weight=0).fit(frame, y, sensitive_features=a)
    with pytest.raises(ColumnError, match="'fuel' was there in training and is missing now"):
        model.predict(frame.drop(columns="fuel"))
    with pytest.raises(ValueError, match="X has 2 features, but TableEncoder is expecting 4"):
        model.predict(np.zeros((3, 2)))


def test_the_default_group_classifier_takes_what_the_regressor_takes(table):
    from sklearn.ensemble import HistGradientBoostingRegressor

    frame, y, a = table
    boosted = HistGradientBoostingRegressor(max_iter=10, categorical_features="from_dtype")
    model = eh.FairPostprocessor(boosted, fairness_weight=1.0, cv=2, random_state=0)
    model.set_params(group_features="posterior").fit(frame, y, sensitive_features=a)
    whole = model.predict(frame)
    # Rows without gaps go the same way as rows with them.
    few = frame.dropna().index[:5]
    np.testing.assert_allclose(model.predict(frame.loc[few]), whole[few])
