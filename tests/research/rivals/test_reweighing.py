"""FairReweighing: its weights against a closed form and the authors' code, and what they do."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor

from evenhand import Proxy
from evenhand.data.groups import resolve_groups
from rivals import FairReweighing
from rivals.reweighing import DENSITIES, balance_weights


def _rows(n=200):
    rng = np.random.default_rng(0)
    a = (rng.random(n) < 0.3).astype(int)
    return rng.normal(size=n) + a, a, rng.integers(0, 3, n)


def _weights(y, a, density="kernel", width=0.2, weight=None):
    return balance_weights(
        y, resolve_groups(a, n_rows=len(y), sample_weight=weight), density, width
    )


@pytest.mark.parametrize("density", DENSITIES)
def test_a_target_of_few_values_no_longer_tells_the_group(density):
    rng = np.random.default_rng(1)
    a = rng.integers(0, 3, 400)
    y = rng.integers(0, 2, 400) + (a == 2) * rng.integers(0, 3, 400)
    w = _weights(y.astype(float), a, density, 0.05)
    assert w.mean() == pytest.approx(1.0)
    table = np.array([[w[(a == k) & (y == v)].sum() for v in range(4)] for k in range(3)])
    counts = np.array([[np.sum((a == k) & (y == v)) for v in range(4)] for k in range(3)])
    shared = counts.sum(axis=0) * counts.sum(axis=1)[:, None] / 400
    # Where a combination is never seen no weight can make up for it.
    np.testing.assert_allclose(
        table[counts > 0], (shared * 400 / shared[counts > 0].sum())[counts > 0]
    )


# The first three weights by the authors' code, on the same rows.
AUTHORS = {
    ("kernel", 0.2): (0.838517, 0.697568, 0.542743),
    ("kernel", 2.5): (0.997198, 1.000818, 0.989473),
    ("neighbor", 0.2): (0.799625, 0.606401, 0.554423),
    ("neighbor", 2.5): (0.936967, 1.058803, 1.508032),
}
AUTHORS_OF_THREE = {
    "kernel": (1.000878, 0.995613, 0.993246),
    "neighbor": (0.820601, 0.953229, 1.018903),
}


@pytest.mark.parametrize(("how", "expected"), AUTHORS.items())
def test_weights_are_those_of_the_authors_code(how, expected):
    y, a, _ = _rows()
    np.testing.assert_allclose(_weights(y, a, *how)[:3], expected, atol=1e-6)


@pytest.mark.parametrize(("density", "expected"), AUTHORS_OF_THREE.items())
def test_weights_of_three_groups_are_those_of_the_authors_code(density, expected):
    y, _, b = _rows()
    np.testing.assert_allclose(_weights(y, b, density, 2.2)[:3], expected, atol=1e-6)


@pytest.mark.parametrize("density", DENSITIES)
def test_weights_count_as_repeated_rows(density):
    y, a, _ = _rows(60)
    times = np.random.default_rng(2).integers(1, 4, 60)
    weighted = _weights(y, a, density, 0.5, times.astype(float))
    repeated = _weights(np.repeat(y, times), np.repeat(a, times), density, 0.5)
    first = np.cumsum(times) - times
    ratio = repeated[first] / weighted
    np.testing.assert_allclose(ratio, ratio[0])


def test_a_proxy_that_is_sure_is_a_group_and_unknown_rows_keep_their_weight():
    y, a, _ = _rows()
    sure = Proxy(np.column_stack([a == 0, a == 1]).astype(float), [0, 1])
    np.testing.assert_allclose(_weights(y, sure), _weights(y, a))
    some = a.astype(object)
    some[:50] = None
    w = _weights(y, some)
    assert (w[:50] == 1.0).all()
    np.testing.assert_allclose(w[50:], _weights(y[50:], a[50:]))


def test_strength_runs_from_plain_least_squares_to_the_published_method():
    y, a, _ = _rows()
    X = np.column_stack([y + np.random.default_rng(3).normal(size=len(y)), a])
    slopes = {}
    for strength in (0.0, 1.0):
        model = FairReweighing(LinearRegression(), strength=strength)
        slopes[strength] = model.fit(X, y, sensitive_features=a).estimator_.coef_
        np.testing.assert_array_equal(model.predict(X), model.predict(X, sensitive_features=a))
    np.testing.assert_allclose(slopes[0.0], LinearRegression().fit(X, y).coef_)
    weighted = LinearRegression().fit(X, y, sample_weight=_weights(y, a))
    np.testing.assert_allclose(slopes[1.0], weighted.coef_)
    # The target tells less of the group, so the group is of less use for it.
    assert abs(slopes[1.0][1]) < abs(slopes[0.0][1]) / 2


def test_messages():
    y, a, _ = _rows()
    X = y[:, None]
    with pytest.raises(ValueError, match="`density` must be one of kernel, neighbor"):
        FairReweighing(LinearRegression(), density="knn").fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`width` must be a finite positive number, got 0"):
        FairReweighing(LinearRegression(), width=0).fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="takes no weights"):
        FairReweighing(KNeighborsRegressor()).fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="sensitive_features"):
        FairReweighing(LinearRegression()).fit(X, y)
