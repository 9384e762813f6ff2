"""The penalty of Do et al.: against its definition by pairs, and where it meets Berk's."""

from itertools import combinations

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import check_estimator

import evenhand as eh
from rivals import BerkRegressor, DoRegressor


def _data(n=90, d=4, n_groups=2, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, n_groups, n)
    X = rng.normal(size=(n, d)) + rng.normal(size=d)
    X[:, 0] += a
    y = X @ rng.normal(size=d) + rng.normal(size=n)
    return X, y, a, rng.uniform(0.2, 2.0, n)


def _penalty(s, segment, a, w):
    """The definition, one pair of rows at a time."""
    found = []
    for v in np.unique(segment):
        for k, m in combinations(np.unique(a), 2):
            inner = count = 0.0
            for i in np.flatnonzero((a == k) & (segment == v)):
                for j in np.flatnonzero((a == m) & (segment == v)):
                    inner += w[i] * w[j] * (s[i] - s[j]) ** 2
                    count += w[i] * w[j]
            found.append(inner / count)
    return np.mean(found)


def _segments(y, n_segments, kind, w):
    if kind == "length":
        cuts = np.linspace(y.min(), y.max(), n_segments + 1)[1:-1]
        return np.searchsorted(cuts, y, side="right")
    order = np.argsort(y)
    before = np.cumsum(w[order]) - w[order]
    segment = np.empty(len(y), dtype=int)
    # A row belongs to the segment in which its own weight begins.
    segment[order] = np.minimum(np.floor(before / w.sum() * n_segments), n_segments - 1)
    return segment


@pytest.mark.parametrize("kind", ["count", "length"])
@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_fit_minimizes_the_published_objective(kind, n_groups, weighted):
    X, y, a, w = _data(n_groups=n_groups)
    w = w if weighted else np.ones(len(y))
    strength, alpha = 0.7, 0.01
    model = DoRegressor(fairness_weight=strength, alpha=alpha, n_segments=4, segments=kind)
    model.fit(X, y, sensitive_features=a, sample_weight=w if weighted else None)
    assert 2 <= model.n_segments_ <= 4
    segment = _segments(y, model.n_segments_, kind, w)
    variance = np.average((y - np.average(y, weights=w)) ** 2, weights=w)
    expected = _penalty(model.predict(X), segment, a, w) / variance
    assert model.unfairness_ == pytest.approx(expected, rel=1e-9)

    def objective(theta, b):
        s = X @ theta + b
        base = np.average((y - s) ** 2, weights=w) + alpha * theta @ theta
        return (base + strength * _penalty(s, segment, a, w)) / variance

    # A quadratic: central differences of it are exact up to rounding.
    step = 1e-4
    for direction in np.eye(X.shape[1] + 1) * step:
        up = objective(model.coef_ + direction[:-1], model.intercept_ + direction[-1])
        down = objective(model.coef_ - direction[:-1], model.intercept_ - direction[-1])
        assert abs(up - down) / (2 * step) < 1e-9


@pytest.mark.parametrize("weighted", [False, True])
def test_one_segment_is_the_individual_penalty_of_berk_with_all_pairs_alike(weighted):
    X, y, a, w = _data()
    w = w if weighted else None
    ours = DoRegressor(fairness_weight=3.0, n_segments=1)
    ours.fit(X, y, sensitive_features=a, sample_weight=w)
    # In units so large that exp(−(y_i − y_j)²) is 1 for every pair.
    berk = BerkRegressor(penalty="individual", fairness_weight=3.0)
    berk.fit(X, y * 1e-8, sensitive_features=a, sample_weight=w)
    np.testing.assert_allclose(ours.coef_, berk.coef_ * 1e8, rtol=1e-8)
    assert ours.unfairness_ == pytest.approx(berk.unfairness_, rel=1e-8)
    more = DoRegressor(fairness_weight=3.0, n_segments=3)
    more.fit(X, y, sensitive_features=a, sample_weight=w)
    assert np.abs(more.coef_ / ours.coef_ - 1).max() > 0.05


def test_segments_are_as_many_as_every_group_allows():
    X, y, a, _ = _data(n=200)
    a = np.zeros(200, dtype=int)
    order = np.argsort(y)
    a[order[[10, 110, 190]]] = 1  # three rows of the small group, in different thirds
    model = DoRegressor().fit(X, y, sensitive_features=a)
    assert model.n_segments_ == 3
    a[order[[10, 110, 190]]] = 0
    a[order[:3]] = 1
    assert DoRegressor().fit(X, y, sensitive_features=a).n_segments_ == 1


def test_separation_falls_and_so_does_accuracy():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 4000)
    X = np.column_stack([rng.normal(size=4000) + 1.5 * a, rng.normal(size=(4000, 3))])
    y = X @ [1.0, 1.0, 0.5, 0.5] + rng.normal(size=4000)
    found = []
    for weight in (0.0, 1.0, 100.0):
        model = DoRegressor(fairness_weight=weight).fit(X, y, sensitive_features=a)
        s = model.predict(X)
        found.append((eh.separation(y, s, sensitive_features=a), model.score(X, y)))
    assert found[0][0] > found[1][0] > 0
    assert found[0][1] > found[1][1] > found[2][1]
    # The spread within a group is penalized too: what is left is a constant.
    assert found[2][1] < 0.05


def test_no_weight_is_ridge_and_groups_are_then_optional():
    X, y, _, w = _data()
    model = DoRegressor(fairness_weight=0.0, alpha=0.1).fit(X, y, sample_weight=w)
    ridge = Ridge(alpha=0.1 * w.sum()).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(model.coef_, ridge.coef_)
    assert np.isnan(model.unfairness_)
    assert model.labels_ == ()


def test_sparse_proxies_unknown_rows_and_units():
    X, y, a, w = _data(n_groups=3)
    fit = lambda X, y, a: DoRegressor(n_segments=5).fit(  # noqa: E731
        X, y, sensitive_features=a, sample_weight=w
    )
    plain = fit(X, y, a)
    np.testing.assert_allclose(fit(sparse.csr_array(X), y, a).coef_, plain.coef_, rtol=1e-8)
    soft = fit(X, y, eh.Proxy(np.eye(3)[a], [0, 1, 2]))
    np.testing.assert_allclose(soft.coef_, plain.coef_, rtol=1e-10)
    assert soft.unfairness_ == pytest.approx(plain.unfairness_)
    np.testing.assert_allclose(fit(X, 1e3 * y, a).coef_, 1e3 * plain.coef_, rtol=1e-8)
    labels = np.where(np.arange(len(a)) % 5 == 0, "", np.array(["x", "y", "z"])[a]).astype(object)
    labels[labels == ""] = None
    partly = fit(X, y, labels)
    assert partly.labels_ == ("x", "y", "z")
    assert np.abs(partly.coef_ - plain.coef_).max() > 1e-6


def test_scikit_learn_checks():
    check_estimator(DoRegressor(fairness_weight=0.0), on_skip=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fairness_weight": -1}, "`fairness_weight` must be a finite number of at least 0"),
        ({"n_segments": 0}, "`n_segments` must be an integer of at least 1, got 0"),
        ({"n_segments": 2.5}, r"`n_segments` must be an integer of at least 1, got 2\.5"),
        ({"segments": "rows"}, "`segments` must be one of count, length, got 'rows'"),
        ({"alpha": "x"}, "`alpha` must be a finite number of at least 0"),
    ],
)
def test_messages(options, message):
    X, y, a, _ = _data()
    with pytest.raises(ValueError, match=message):
        DoRegressor(**options).fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`sensitive_features` must be given to fit when"):
        DoRegressor().fit(X, y)
