"""The bounded share of variance: exact optimum, the ridge variant, both ends of the bound."""

import numpy as np
import pytest
import sklearn
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from evenhand import Proxy
from rivals import KomiyamaRegressor

METHODS = ["fair_ridge", "komiyama"]


def _data(n=200, n_groups=3, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, n_groups, n)
    X = rng.normal(size=(n, 4))
    X[:, 0] += a
    y = X @ [1.0, -0.5, 0.3, 0.8] + a + rng.normal(size=n)
    return X, y, a, rng.uniform(0.2, 2.0, n)


def _variance(v, w):
    return np.average((v - np.average(v, weights=w)) ** 2, weights=w)


def _share(s, a, w):
    """Weighted R² of the scores on the groups."""
    means = np.array([np.average(s[a == k], weights=w[a == k]) for k in np.unique(a)])
    return _variance(means[a], w) / _variance(s, w)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("r", [0.0, 0.01, 0.2])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_bound_binds(method, r, form):
    X, y, a, w = _data()
    model = KomiyamaRegressor(unfairness=r, method=method)
    model.fit(form(X), y, sensitive_features=a, sample_weight=w)
    s = model.predict(form(X), sensitive_features=a)
    assert _share(s, a, w) == pytest.approx(r, abs=1e-9)
    assert model.unfairness_ == pytest.approx(r, abs=1e-9)
    assert np.average(s, weights=w) == pytest.approx(np.average(y, weights=w))


@pytest.mark.parametrize("method", METHODS)
def test_a_void_bound_is_least_squares_on_groups_and_features(method):
    X, y, a, w = _data()
    model = KomiyamaRegressor(unfairness=1.0, method=method, alpha=0.05)
    model.fit(X, y, sensitive_features=a, sample_weight=w)
    design = np.column_stack([np.eye(3)[a], X])
    root = np.sqrt(w / w.sum())
    rows = np.vstack([root[:, None] * design, np.sqrt(0.05) * np.eye(7)[3:]])
    theta = np.linalg.lstsq(rows, np.append(root * y, np.zeros(4)), rcond=None)[0]
    np.testing.assert_allclose(model.coef_, theta[3:], rtol=1e-9)
    np.testing.assert_allclose(
        model.predict(X, sensitive_features=a), design @ theta, rtol=1e-8, atol=1e-9
    )
    assert model.penalty_ == 0.0


def test_komiyama_is_the_constrained_optimum():
    X, y, a, _ = _data(n=120, n_groups=2)
    r, alpha = 0.05, 0.02
    S = np.eye(2)[a][:, 1:] - a.mean()
    U = X - X.mean(axis=0)
    U = U - S @ np.linalg.lstsq(S, U, rcond=None)[0]
    yc = y - y.mean()

    def loss(p):
        return np.mean((yc - S[:, 0] * p[0] - U @ p[1:]) ** 2) + alpha * p[1:] @ p[1:]

    def slack(p):
        return r * np.var(U @ p[1:]) - (1 - r) * np.var(S[:, 0] * p[0])

    best = optimize.minimize(
        loss, [0.1, 0, 0, 0, 0], constraints={"type": "ineq", "fun": slack}, tol=1e-12
    )
    model = KomiyamaRegressor(unfairness=r, method="komiyama", alpha=alpha)
    model.fit(X, y, sensitive_features=a)
    s = model.predict(X, sensitive_features=a)
    ours = np.mean((y - s) ** 2) + alpha * model.coef_ @ model.coef_
    assert ours == pytest.approx(best.fun, rel=1e-7)
    ridge = clone(model).set_params(method="fair_ridge").fit(X, y, sensitive_features=a)
    gap = y - ridge.predict(X, sensitive_features=a)
    assert np.mean(gap**2) + alpha * ridge.coef_ @ ridge.coef_ >= ours


def test_fair_ridge_shrinks_the_groups_by_a_ridge_penalty():
    X, y, a, _ = _data()
    model = KomiyamaRegressor(unfairness=0.05).fit(X, y, sensitive_features=a)
    S = np.eye(3)[a] - np.bincount(a) / len(a)
    U = X - X.mean(axis=0)
    U = U - S @ np.linalg.lstsq(S, U, rcond=None)[0]
    beta = np.linalg.solve(U.T @ U / 200 + 1e-3 * np.eye(4), U.T @ y / 200)
    group = np.linalg.solve(S.T @ S / 200 + model.penalty_ * np.eye(3), S.T @ y / 200)
    np.testing.assert_allclose(
        model.predict(X, sensitive_features=a), y.mean() + S @ group + U @ beta, rtol=1e-8
    )


def test_a_bound_met_already_changes_nothing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    a = np.tile([0, 1], 50)
    y = X @ [1.0, 2.0] + 0.1 * rng.normal(size=100)
    for method in METHODS:
        model = KomiyamaRegressor(unfairness=0.5, method=method).fit(X, y, sensitive_features=a)
        assert model.penalty_ == 0.0
        assert model.unfairness_ < 0.1


def test_features_that_say_nothing_beyond_the_group():
    a = np.tile([0, 1], 30)
    y = a + np.random.default_rng(0).normal(size=60)
    X = np.column_stack([a, -2.0 * a])
    for method in METHODS:
        model = KomiyamaRegressor(unfairness=0.1, method=method).fit(X, y, sensitive_features=a)
        np.testing.assert_allclose(model.predict(X, sensitive_features=a), y.mean())


def test_prediction_needs_known_groups_or_missing():
    X, y, a, _ = _data()
    names = np.array(["x", "y", "z"], dtype=object)[a]
    model = KomiyamaRegressor(unfairness=0.3).fit(X, y, sensitive_features=names)
    with pytest.raises(ValueError, match=r"KomiyamaRegressor needs the group .*Hint: call predict"):
        model.predict(X)
    with pytest.raises(ValueError, match=r"groups seen in fit \(x, y, z\), got q as well"):
        model.predict(X[:1], sensitive_features=["q"])
    one = model.predict(X[:1], sensitive_features=names[:1])
    assert one == pytest.approx(model.predict(X, sensitive_features=names)[:1])
    each = [model.predict(X[:1], sensitive_features=[g])[0] for g in "xyz"]
    unknown = model.predict(X[:1], sensitive_features=np.array([None], dtype=object))[0]
    assert unknown == pytest.approx(model.group_shares_ @ each)
    soft = model.predict(X[:1], sensitive_features=Proxy([[0.5, 0.5]], ["z", "x"]))[0]
    assert soft == pytest.approx((each[0] + each[2]) / 2)


def test_unknown_rows_in_training():
    X, y, a, _ = _data(n_groups=2)
    labels = a.astype(float)
    labels[:50] = np.nan
    model = KomiyamaRegressor(unfairness=0.1).fit(X, y, sensitive_features=labels)
    assert model.unfairness_ == pytest.approx(0.1, abs=1e-9)
    assert np.isfinite(model.predict(X, sensitive_features=labels)).all()


def test_grid_search_with_routed_attribute():
    X, y, a, _ = _data()
    with sklearn.config_context(enable_metadata_routing=True):
        model = KomiyamaRegressor()
        model.set_fit_request(sensitive_features=True)
        model.set_predict_request(sensitive_features=True)
        model.set_score_request(sensitive_features=True)
        search = GridSearchCV(model, {"unfairness": [0.0, 0.5]}, cv=3)
        search.fit(X, y, sensitive_features=a)
    assert search.best_params_ == {"unfairness": 0.5}


def test_messages():
    X, y, a, _ = _data()
    with pytest.raises(ValueError, match=r"`unfairness` must be .*between 0 and 1, got 1\.5"):
        KomiyamaRegressor(unfairness=1.5).fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`method` must be one of fair_ridge, komiyama, got 'x'"):
        KomiyamaRegressor(method="x").fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="the attribute is part of this model, got None"):
        KomiyamaRegressor().fit(X, y)
