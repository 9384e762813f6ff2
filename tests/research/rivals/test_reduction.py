"""Statistical parity by reduction: the bound, the mixture, the draws."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge

from evenhand import Proxy
from rivals import ReductionRegressor


def _data(n=600, n_groups=2, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, n_groups, n)
    X = rng.normal(size=(n, 3))
    X[:, 0] += 2.0 * a
    y = X @ [1.0, 1.0, 0.5] + rng.normal(size=n)
    return X, y, a, rng.uniform(0.5, 1.5, n)


def _gap(model, X, a, w):
    """Largest expected |P(f ≥ z | a) − P(f ≥ z)|, by definition."""
    low, step, values = model._grid
    mean = np.zeros((a.max() + 1, len(values) - 1))
    for coef, b, q in zip(model.coefs_, model.intercepts_, model.probabilities_, strict=True):
        s = X @ coef + b
        above = np.array([s >= low + step * j for j in range(1, len(values))], dtype=float)
        everybody = np.average(above, axis=1, weights=w)
        for k in range(len(mean)):
            mean[k] += q * (np.average(above[:, a == k], axis=1, weights=w[a == k]) - everybody)
    return np.abs(mean).max()


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_bound_holds_in_training(n_groups, weighted, fit_intercept):
    X, y, a, w = _data(n_groups=n_groups)
    w = w if weighted else np.ones(len(y))
    model = ReductionRegressor(unfairness=0.1, max_iter=12, fit_intercept=fit_intercept)
    model.fit(X, y, sensitive_features=a, sample_weight=w)
    assert model.unfairness_ <= 0.1 + 1e-6
    assert _gap(model, X, a, w) == pytest.approx(model.unfairness_, abs=1e-9)
    assert model.probabilities_.sum() == pytest.approx(1.0)
    assert (model.intercepts_ != 0).all() == fit_intercept


def test_a_void_bound_is_ridge_on_the_rounded_target():
    X, y, a, _ = _data()
    model = ReductionRegressor(unfairness=1.0, alpha=0.01, max_iter=1, n_levels=500)
    model.fit(X, y, sensitive_features=a)
    ridge = Ridge(alpha=len(y) * 0.01).fit(X, y)
    best = model.coefs_[np.argmax(model.probabilities_)]
    np.testing.assert_allclose(best, ridge.coef_, atol=5e-3)
    np.testing.assert_allclose(model.predict(X), ridge.predict(X), atol=0.05)


def test_fairness_costs_accuracy():
    X, y, a, _ = _data()
    scores = []
    for bound in (0.3, 0.15, 0.02):
        model = ReductionRegressor(unfairness=bound, max_iter=15, random_state=0)
        scores.append(model.fit(X, y, sensitive_features=a).score(X, y))
    assert scores[0] > scores[1] > scores[2]
    drawn = model.predict(X)
    gaps = [np.mean(drawn[a == 1] >= z) - np.mean(drawn[a == 0] >= z) for z in model._grid[2]]
    assert np.abs(gaps).max() < 0.15


def test_predictions_are_random_but_repeat():
    X, y, a, _ = _data()
    model = ReductionRegressor(unfairness=0.05, max_iter=12, random_state=0)
    model.fit(X, y, sensitive_features=a)
    assert len(model.probabilities_) > 1
    drawn = model.predict(np.repeat(X[:20], 100, axis=0)).reshape(20, 100)
    assert (np.ptp(drawn, axis=1) > 0).any()
    np.testing.assert_array_equal(model.predict(X), model.predict(X))
    again = clone(model).fit(X, y, sensitive_features=a)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_proxies_sparse_and_unknown_rows():
    X, y, a, _ = _data()
    model = ReductionRegressor(unfairness=0.1, max_iter=10, random_state=0)
    hard = clone(model).fit(X, y, sensitive_features=a)
    soft = clone(model).fit(X, y, sensitive_features=Proxy(np.eye(2)[a], [0, 1]))
    thin = clone(model).fit(sparse.csr_array(X), y, sensitive_features=a)
    assert soft.unfairness_ == pytest.approx(hard.unfairness_, abs=1e-6)
    assert thin.unfairness_ == pytest.approx(hard.unfairness_, abs=1e-6)
    assert thin.predict(sparse.csr_array(X)).shape == y.shape
    labels = a.astype(float)
    labels[:100] = np.nan
    partly = clone(model).fit(X, y, sensitive_features=labels)
    assert _gap(partly, X[100:], a[100:], np.ones(500)) == pytest.approx(
        partly.unfairness_, abs=1e-9
    )


def test_messages():
    X, y, a, _ = _data(n=100)
    cases = [
        ({"unfairness": 0.0}, "`unfairness` must be positive here, got 0. Hint"),
        ({"unfairness": 2.0}, "`unfairness` must be a number between 0 and 1, got 2"),
        ({"n_levels": 1}, "`n_levels` must be an integer of at least 2, got 1"),
        ({"max_iter": 1.5}, "`max_iter` must be an integer of at least 1, got 1.5"),
    ]
    for params, message in cases:
        with pytest.raises(ValueError, match=message):
            ReductionRegressor(**params).fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`sensitive_features` must be given to fit, got None"):
        ReductionRegressor().fit(X, y)
    with pytest.warns(ConvergenceWarning, match=r"reached a gap of .*Hint: raise `max_iter`"):
        ReductionRegressor(unfairness=0.001, max_iter=1).fit(
            np.column_stack([a, a]), 10.0 * a + y, sensitive_features=a
        )
