"""Both penalties of Berk et al.: against the definition, by pairs and in linear time."""

from itertools import combinations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import check_estimator

from evenhand import Proxy
from rivals import BerkRegressor
from rivals import _gaussian_pairs as pairs_module
from rivals._gaussian_pairs import (
    TOLERANCE,
    ChebyshevSums,
    PairSums,
    chebyshev_rank,
)


def _data(n=120, d=4, n_groups=2, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, n_groups, n)
    X = rng.normal(size=(n, d)) + rng.normal(size=d)
    X[:, 0] += a
    y = scale * (X @ rng.normal(size=d) + rng.normal(size=n))
    return X, y, a, rng.uniform(0.2, 2.0, n)


def _penalty(s, y, a, w, penalty):
    """The definition, one pair of rows at a time."""
    total = 0.0
    for k, m in combinations(np.unique(a), 2):
        inner, count = 0.0, 0.0
        for i in np.flatnonzero(a == k):
            for j in np.flatnonzero(a == m):
                gap = s[i] - s[j]
                term = gap**2 if penalty == "individual" else gap
                inner += w[i] * w[j] * np.exp(-((y[i] - y[j]) ** 2)) * term
                count += w[i] * w[j]
        total += inner / count if penalty == "individual" else (inner / count) ** 2
    return total


@pytest.mark.parametrize("method", ["pairs", "linear"])
@pytest.mark.parametrize("penalty", ["group", "individual"])
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("normalize", [True, False])
def test_fit_minimizes_the_published_objective(method, penalty, n_groups, normalize):
    X, y, a, w = _data(n=60, n_groups=n_groups)
    strength, alpha = 0.7, 0.01
    model = BerkRegressor(
        penalty=penalty, method=method, fairness_weight=strength, alpha=alpha, normalize=normalize
    ).fit(X, y, sensitive_features=a, sample_weight=w)
    mean = np.average(y, weights=w)
    variance = np.average((y - mean) ** 2, weights=w)

    def objective(theta, b):
        s = X @ theta + b
        base = np.average((y - s) ** 2, weights=w) + alpha * theta @ theta
        value = _penalty(s, y, a, w, penalty) / (variance if normalize else 1.0)
        return base / variance + strength * value

    expected = _penalty(model.predict(X), y, a, w, penalty) / (variance if normalize else 1.0)
    assert model.unfairness_ == pytest.approx(expected, rel=1e-8)
    # A quadratic: central differences of it are exact up to rounding.
    step = 1e-4
    for direction in np.eye(X.shape[1] + 1):
        up = objective(model.coef_ + step * direction[:-1], model.intercept_ + step * direction[-1])
        down = objective(
            model.coef_ - step * direction[:-1], model.intercept_ - step * direction[-1]
        )
        assert abs(up - down) / (2 * step) < 1e-9


@pytest.mark.parametrize("penalty", ["group", "individual"])
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [0.1, 1.0, 40.0, 3e4])
def test_linear_time_gives_the_coefficients_of_the_pairs(penalty, n_groups, weighted, scale):
    X, y, a, w = _data(n=500, n_groups=n_groups, scale=scale)
    fits = [
        BerkRegressor(penalty=penalty, method=method, fairness_weight=3.0).fit(
            X, y, sensitive_features=a, sample_weight=w if weighted else None
        )
        for method in ("pairs", "linear")
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-6)
    assert fits[0].intercept_ == pytest.approx(fits[1].intercept_, rel=1e-6)
    assert fits[0].rank_ is None
    assert 2 <= fits[1].rank_ <= 25


@pytest.mark.parametrize("penalty", ["group", "individual"])
def test_blocks_do_not_change_the_fit(penalty, monkeypatch):
    X, y, a, w = _data(n=300, n_groups=3, scale=60.0)

    def fit(method):
        model = BerkRegressor(penalty=penalty, method=method, fairness_weight=3.0)
        return model.fit(X, y, sensitive_features=a, sample_weight=w).coef_

    whole = fit("linear")
    monkeypatch.setattr(pairs_module, "BLOCK", 1000)
    np.testing.assert_allclose(fit("linear"), whole, rtol=1e-10)
    np.testing.assert_allclose(fit("pairs"), whole, rtol=1e-10)


@pytest.mark.parametrize("scale", [0.0, 1e-4, 0.3, 3.0, 200.0, 1e9])
def test_every_kernel_entry_is_within_tolerance(scale):
    rng = np.random.default_rng(1)
    t = scale * (rng.standard_t(3, size=300) + 5.0)
    t[0] = t[1] + 0.25  # neighbors even when the range is vast
    exact = np.exp(-np.square(np.subtract.outer(t, t)))
    assert np.abs(ChebyshevSums(t).apply(np.eye(300)) - exact).max() <= TOLERANCE
    np.testing.assert_array_equal(PairSums(t).apply(np.eye(300)), exact)


def test_rank_bound_is_honest_and_not_wasteful():
    assert chebyshev_rank(1.0, 1e-10) == 19
    assert chebyshev_rank(0.5, 1e-10) < chebyshev_rank(1.0, 1e-10)
    with pytest.raises(ValueError, match=r"`tolerance` must be reachable .*, got 1e-300"):
        chebyshev_rank(50.0, 1e-300)


@pytest.mark.parametrize("penalty", ["group", "individual"])
@pytest.mark.parametrize("method", ["pairs", "linear"])
def test_sparse_equals_dense(penalty, method):
    X, y, a, w = _data(n=200, n_groups=3, scale=3.0)
    X[np.abs(X) < 0.5] = 0.0
    model = BerkRegressor(penalty=penalty, method=method, fairness_weight=2.0)
    dense = clone(model).fit(X, y, sensitive_features=a, sample_weight=w)
    for form in (sparse.csr_matrix, sparse.csc_array):
        thin = clone(model).fit(form(X), y, sensitive_features=a, sample_weight=w)
        np.testing.assert_allclose(thin.coef_, dense.coef_, rtol=1e-8)
        np.testing.assert_allclose(thin.predict(form(X)), dense.predict(X), rtol=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_without_penalty_it_is_ridge(fit_intercept, weighted):
    X, y, a, w = _data()
    weight = w if weighted else np.ones(len(y))
    model = BerkRegressor(fairness_weight=0.0, alpha=0.02, fit_intercept=fit_intercept)
    model.fit(X, y, sensitive_features=a, sample_weight=weight)
    ridge = Ridge(alpha=weight.sum() * 0.02, fit_intercept=fit_intercept).fit(X, y, weight)
    np.testing.assert_allclose(model.coef_, ridge.coef_, rtol=1e-9)
    assert model.intercept_ == pytest.approx(ridge.intercept_, rel=1e-9)
    assert model.unfairness_ > 0
    assert np.isnan(clone(model).fit(X, y).unfairness_)


def test_standardize_measures_y_in_standard_deviations():
    X, y, a, _ = _data(scale=50.0)
    model = BerkRegressor(fairness_weight=2.0, standardize=True, penalty="individual")
    first = clone(model).fit(X, y, sensitive_features=a)
    second = clone(model).fit(X, y / y.std(), sensitive_features=a)
    raw = clone(model).set_params(standardize=False).fit(X, y, sensitive_features=a)
    np.testing.assert_allclose(first.coef_, second.coef_ * y.std(), rtol=1e-9)
    assert first.unfairness_ == pytest.approx(second.unfairness_, rel=1e-9)
    assert abs(raw.coef_ - first.coef_).max() > 0.01


def test_unknown_rows_count_for_accuracy_only_and_proxies_generalize_labels():
    X, y, a, _ = _data(n=80)
    labels = np.where(a == 1, "b", "a").astype(object)
    model = BerkRegressor(fairness_weight=5.0, penalty="individual")
    hard = clone(model).fit(X, y, sensitive_features=labels)
    soft = clone(model).fit(X, y, sensitive_features=Proxy(np.eye(2)[a], ["a", "b"]))
    np.testing.assert_allclose(soft.coef_, hard.coef_, rtol=1e-9)
    assert hard.labels_ == ("a", "b")

    labels[:10] = None
    partly = clone(model).fit(X, y, sensitive_features=labels)
    s = partly.predict(X)
    expected = _penalty(s[10:], y[10:], a[10:], np.ones(70), "individual") / y.var()
    assert partly.unfairness_ == pytest.approx(expected, rel=1e-8)


def test_strong_group_penalty_equalizes_the_weighted_means():
    X, y, a, _ = _data(n=200, scale=0.1)
    gap = [
        BerkRegressor(fairness_weight=strength).fit(X, y, sensitive_features=a).unfairness_
        for strength in (0.0, 1.0, 100.0)
    ]
    assert gap[0] > gap[1] > gap[2]
    assert gap[2] < 1e-3 * gap[0]


def test_singular_design_works():
    X, y, a, _ = _data(n=30)
    X = np.column_stack([X, X[:, 0], np.ones(30)])
    model = BerkRegressor(alpha=0.0, fairness_weight=1.0).fit(X, y, sensitive_features=a)
    assert model.coef_[0] == pytest.approx(model.coef_[4])
    assert np.isfinite(model.predict(X)).all()


def test_scikit_learn_checks():
    check_estimator(
        BerkRegressor(fairness_weight=0.0),
        expected_failed_checks={},
        on_skip=None,
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"penalty": "both"}, "`penalty` must be one of group, individual, got 'both'"),
        ({"method": "exact"}, "`method` must be one of linear, pairs, got 'exact'"),
        ({"fairness_weight": -1.0}, "`fairness_weight` must be a finite number .*, got -1.0"),
        ({"alpha": float("inf")}, "`alpha` must be a finite number of at least 0, got inf"),
        ({"alpha": "1"}, "`alpha` must be a finite number of at least 0, got '1'"),
    ],
)
def test_bad_parameters(params, message):
    X, y, a, _ = _data(n=30)
    with pytest.raises(ValueError, match=message):
        BerkRegressor(**params).fit(X, y, sensitive_features=a)


def test_bad_data():
    X, y, a, _ = _data(n=30)
    model = BerkRegressor()
    with pytest.raises(ValueError, match=r"`sensitive_features` must be given to fit .*Hint"):
        model.fit(X, y)
    with pytest.raises(ValueError, match=r"`y` must not be constant, got 2 in every row"):
        model.fit(X, np.full(30, 2.0), sensitive_features=a)
    with pytest.raises(ValueError, match="at least two groups"):
        model.fit(X, y, sensitive_features=np.zeros(30, dtype=int))
    with pytest.raises(ValueError, match="one entry per row: got 29"):
        model.fit(X, y, sensitive_features=a[:-1])
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 1, np.nan, X), y, sensitive_features=a)
