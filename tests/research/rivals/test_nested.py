"""The nested logistic reference: its gradient, its optimum, and ridge at weight zero."""

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import check_estimator

from evenhand.data.criteria import get_criterion
from rivals import NestedLogisticRegressor
from rivals.nested import NestedRegularizer

CRITERIA = ["independence", "separation", "sufficiency"]


def _data(n=150, d=4, n_groups=2, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, n_groups, n)
    X = rng.normal(size=(n, d))
    X[:, 0] += a
    y = X @ [1.0, -0.5, 0.3, 0.8] + 0.5 * a + rng.normal(size=n)
    return X, y, a, rng.uniform(0.2, 2.0, n)


def _bound(y, a, w, criterion, basis="quadratic"):
    membership = np.eye(a.max() + 1)[a]
    return NestedRegularizer(y, membership, w / w.mean(), get_criterion(criterion), basis, 1e-3)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("basis", ["linear", "quadratic"])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_gradient_agrees_with_differences(criterion, basis, n_groups):
    _, y, a, w = _data(n=60, n_groups=n_groups)
    s = 100.0 + 3.0 * y + 4.0 * np.random.default_rng(1).normal(size=60)
    regularizer = _bound(y, a, w, criterion, basis)
    gradient = regularizer(s)[1]
    step = 1e-3
    for i in (0, 17, 59):
        e = step * np.eye(60)[i]
        difference = (regularizer(s + e)[0] - regularizer(s - e)[0]) / (2 * step)
        assert gradient[i] == pytest.approx(difference, rel=1e-5, abs=1e-9)


def test_value_is_the_information_by_another_library():
    _, y, a, w = _data(n=400, n_groups=3)
    s = y + np.random.default_rng(1).normal(size=400)

    def entropy(*columns):
        z = [(c - np.average(c, weights=w)) for c in columns]
        z = [c / np.sqrt(np.average(c**2, weights=w)) for c in z]
        phi = np.column_stack([*z, *(u * v for i, u in enumerate(z) for v in z[i:])])
        model = LogisticRegression(C=1e3, tol=1e-10, max_iter=1000)
        model.fit(phi, a, sample_weight=w / w.mean())
        chosen = model.predict_log_proba(phi)[np.arange(400), a]
        return -np.average(chosen, weights=w)

    shares = np.bincount(a, weights=w) / w.sum()
    nothing = -(shares * np.log(shares)).sum()
    expected = {
        "independence": (nothing - entropy(s)) / nothing,
        "separation": (entropy(y) - entropy(s, y)) / entropy(y),
        "sufficiency": (entropy(s) - entropy(s, y)) / nothing,
    }
    for criterion, value in expected.items():
        assert _bound(y, a, w, criterion)(s)[0] == pytest.approx(value, abs=2e-5)


def test_constant_scores():
    _, y, a, w = _data()
    for criterion in CRITERIA:
        value, gradient = _bound(y, a, w, criterion)(np.full(len(y), 0.1))
        assert not gradient.any()
        if criterion == "sufficiency":
            # A constant score leaves all that the target says about the group unsaid.
            assert value > 0.05
        else:
            assert value == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_fit_is_a_minimum_and_fairer(criterion):
    X, y, a, w = _data()
    model = NestedLogisticRegressor(criterion=criterion, fairness_weight=2.0, alpha=0.01)
    fair = clone(model).fit(X, y, sensitive_features=a, sample_weight=w)
    plain = clone(model).set_params(fairness_weight=0.0)
    plain.fit(X, y, sensitive_features=a, sample_weight=w)
    assert fair.unfairness_ < 0.7 * plain.unfairness_
    assert fair.n_classifier_iterations_ > fair.n_evaluations_ >= fair.n_iter_ > 1

    regularizer = _bound(y, a, w, criterion)
    variance = np.average((y - np.average(y, weights=w)) ** 2, weights=w)

    def objective(params):
        s = X @ params[:-1] + params[-1]
        base = np.average((y - s) ** 2, weights=w) + 0.01 * params[:-1] @ params[:-1]
        return base / variance + 2.0 * regularizer(s)[0]

    found = np.append(fair.coef_, fair.intercept_)
    assert fair.objective_ == pytest.approx(objective(found), rel=1e-9)
    gradient = optimize.approx_fprime(found, objective, 1e-6)
    np.testing.assert_allclose(gradient, 0.0, atol=2e-5)


def test_unknown_rows_and_sparse_features():
    X, y, a, _ = _data()
    X[np.abs(X) < 0.3] = 0.0
    labels = a.astype(float)
    labels[:20] = np.nan
    model = NestedLogisticRegressor(fairness_weight=1.0)
    dense = clone(model).fit(X, y, sensitive_features=labels)
    thin = clone(model).fit(sparse.csr_array(X), y, sensitive_features=labels)
    np.testing.assert_allclose(thin.coef_, dense.coef_, atol=1e-5)
    s = dense.predict(X)[20:]
    expected = _bound(y[20:], a[20:], np.ones(130), "independence")(s)[0]
    assert dense.unfairness_ == pytest.approx(expected, rel=1e-9)


def test_without_penalty_it_is_ridge():
    X, y, a, w = _data()
    model = NestedLogisticRegressor(fairness_weight=0.0, alpha=0.02)
    model.fit(X, y, sensitive_features=a, sample_weight=w)
    ridge = Ridge(alpha=w.sum() * 0.02).fit(X, y, w)
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-9)
    assert model.labels_ == (0, 1)
    check_estimator(NestedLogisticRegressor(fairness_weight=0.0), on_skip=None)


def test_messages():
    X, y, a, _ = _data(n=40)
    cases = [
        ({"criterion": "parity"}, "`criterion` must be one of independence"),
        ({"basis": "cubic"}, "`basis` must be one of linear, quadratic, got 'cubic'"),
        ({"fairness_weight": -2}, "`fairness_weight` must be a finite number .*, got -2"),
        ({"kappa": -1.0}, "`kappa` must be a finite number of at least 0, got -1.0"),
    ]
    for params, message in cases:
        with pytest.raises(ValueError, match=message):
            NestedLogisticRegressor(**params).fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`sensitive_features` must be given to fit"):
        NestedLogisticRegressor().fit(X, y)
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 .*Hint: raise `max_iter`"):
        NestedLogisticRegressor(max_iter=1).fit(X, y, sensitive_features=a)
