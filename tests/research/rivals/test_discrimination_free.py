"""The discrimination-free price against closed forms and the published example."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, PoissonRegressor
from sklearn.tree import DecisionTreeRegressor

from rivals import DiscriminationFreePrice


def rows(n=4000):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 2)) + np.column_stack([a, np.zeros(n)])
    y = 0.5 * X[:, 1] + 1.0 * (a == 1) + 3.0 * (a == 2) + rng.normal(size=n)
    return X, y, np.array(["p", "q", "r"])[a]


def test_a_linear_price_is_the_best_estimate_at_the_average_group():
    X, y, a = rows()
    model = DiscriminationFreePrice().fit(X, y, sensitive_features=a)
    Z = np.column_stack([X, a == "q", a == "r"])
    full = LinearRegression().fit(Z, y)
    shares = [(a == label).mean() for label in "pqr"]
    expected = full.intercept_ + X @ full.coef_[:2] + full.coef_[2:] @ shares[1:]
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-10)
    np.testing.assert_allclose(
        model.best_estimate(X, sensitive_features=a), full.predict(Z), rtol=1e-10
    )


def test_a_proxy_no_longer_stands_in_for_the_group():
    X, y, a = rows()
    model = DiscriminationFreePrice().fit(X, y, sensitive_features=a)
    unaware = LinearRegression().fit(X, y)
    # The first feature does nothing by itself, and tells the group.
    assert unaware.coef_[0] > 0.5
    slope = np.polyfit(X[:, 0], model.predict(X) - 0.5 * X[:, 1], 1)[0]
    assert abs(slope) < 0.1
    effect = model.proxy_effect(X)
    np.testing.assert_allclose(effect, unaware.predict(X) - model.predict(X))
    assert effect[a == "r"].mean() > effect[a == "p"].mean() + 0.5


def test_the_published_example():
    """Women aged 20 to 40 cost more; smoking tells the sex. Shares replace what smoking tells."""
    rng = np.random.default_rng(1)
    n = 200_000
    woman = rng.random(n) < 0.5
    smoker = rng.random(n) < np.where(woman, 0.8, 0.3)
    y = 0.2 + 0.1 * smoker + 0.3 * woman + 0.01 * rng.normal(size=n)
    X = smoker[:, None].astype(float)
    model = DiscriminationFreePrice(DecisionTreeRegressor()).fit(X, y, sensitive_features=woman)
    price = model.predict([[0.0], [1.0]])
    share = woman.mean()
    np.testing.assert_allclose(price, [0.2 + 0.3 * share, 0.3 + 0.3 * share], atol=1e-3)
    unaware = price + model.proxy_effect([[0.0], [1.0]])
    told = [np.mean(woman[smoker == k]) for k in (False, True)]
    np.testing.assert_allclose(unaware, [0.2 + 0.3 * told[0], 0.3 + 0.3 * told[1]], atol=1e-3)


def test_totals_weights_and_unknown_groups():
    X, y, a = rows(1000)
    y = np.exp(0.3 * y)
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    groups = a.astype(object)
    groups[::10] = None
    model = DiscriminationFreePrice(PoissonRegressor(), rebalance=True)
    model.fit(X, y, sensitive_features=groups, sample_weight=weight)
    assert weight @ model.predict(X) == pytest.approx(weight @ y)
    plain = DiscriminationFreePrice(PoissonRegressor())
    plain.fit(X, y, sensitive_features=groups, sample_weight=weight)
    np.testing.assert_allclose(model.factor_ * plain.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="sensitive_features"):
        DiscriminationFreePrice().fit(X, y)
