"""Base scores: out of fold, the mean of the folds' models, weights through pipelines."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

from evenhand.training.stack import FoldMean, fit_out_of_fold, is_fitted, predict_base


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    return X, X @ [1.0, 0.5, 0.0] + rng.normal(size=120), rng.uniform(0.2, 3.0, 120)


def folds(X):
    return list(KFold(4, shuffle=True, random_state=0).split(X))


def test_scores_are_of_models_that_did_not_see_the_row(rows):
    X, y, _ = rows
    tree = DecisionTreeRegressor(random_state=0)
    whole, score = fit_out_of_fold(tree, X, y, None, folds(X))
    np.testing.assert_array_equal(whole.predict(X), y)
    assert np.abs(score - y).min() > 0
    train, test = folds(X)[2]
    expected = DecisionTreeRegressor(random_state=0).fit(X[train], y[train]).predict(X[test])
    np.testing.assert_array_equal(score[test], expected)


def test_the_mean_of_the_folds_models(rows):
    X, y, w = rows
    mean, score = fit_out_of_fold(Ridge(), X, y, w, folds(X), ensemble=True)
    parts = [Ridge().fit(X[i], y[i], w[i]) for i, _ in folds(X)]
    np.testing.assert_allclose(mean.predict(X), np.mean([m.predict(X) for m in parts], axis=0))
    np.testing.assert_array_equal(score, fit_out_of_fold(Ridge(), X, y, w, folds(X))[1])
    assert mean.n_features_in_ == 3
    assert not hasattr(mean, "feature_names_in_")
    again = pickle.loads(pickle.dumps(mean))
    assert isinstance(again, FoldMean)
    np.testing.assert_array_equal(again.predict(X), mean.predict(X))


def test_without_folds_the_scores_are_in_sample(rows):
    X, y, _ = rows
    whole, score = fit_out_of_fold(LinearRegression(), X, y, None, [])
    np.testing.assert_array_equal(score, whole.predict(X))


@pytest.mark.parametrize("routing", [False, True])
def test_weights_reach_the_last_step_of_a_pipeline(rows, routing):
    X, y, w = rows
    last = Ridge()
    with config_context(enable_metadata_routing=routing):
        if routing:
            last.set_fit_request(sample_weight=True)
        scale = StandardScaler()
        if routing:
            scale.set_fit_request(sample_weight=False)
        pipe = make_pipeline(scale, last)
        _, score = fit_out_of_fold(pipe, X, y, w, folds(X))
    train, test = folds(X)[0]
    scaler = StandardScaler().fit(X[train])
    model = Ridge().fit(scaler.transform(X[train]), y[train], w[train])
    np.testing.assert_allclose(score[test], model.predict(scaler.transform(X[test])))


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (KNeighborsRegressor(), "KNeighborsRegressor"),
        (make_pipeline(StandardScaler(), KNeighborsRegressor()), "Pipeline"),
    ],
)
def test_a_regressor_without_weights_is_refused(rows, estimator, name):
    X, y, w = rows
    with pytest.raises(ValueError, match=f"takes no weights, got weights for {name}. Hint: choose"):
        fit_out_of_fold(estimator, X, y, w, folds(X))


def test_predictions_are_one_finite_number_a_row(rows):
    X, y, _ = rows

    class Broken:
        def predict(self, X):
            return np.full(len(X), np.nan)

    with pytest.raises(ValueError, match="the predictions of Broken"):
        predict_base(Broken(), X)
    assert not is_fitted(Ridge())
    assert is_fitted(Ridge().fit(X, y))
