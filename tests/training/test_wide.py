"""More features than rows: FairRidge in the span of the rows."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

import evenhand as eh
from evenhand.training import problem as _problem
from evenhand.training.design import FeatureMatrix


@pytest.fixture
def wide():
    rng = np.random.default_rng(3)
    n, d = 50, 120
    a = rng.integers(0, 2, n)
    X = rng.normal(size=(n, d)) * np.exp(rng.normal(size=d)) + 5.0
    X[:, :10] += 0.6 * a[:, None]
    X[:, 7] = 3.0  # a constant
    y = X[:, :12].sum(axis=1) + rng.normal(size=n)
    return X, y, a


def tall(monkeypatch, model, *args, **kwargs):
    """The fit by the d × d moments, however wide."""
    with monkeypatch.context() as patch:
        patch.setattr(FeatureMatrix, "wide", False)
        return model.fit(*args, **kwargs)


# How closely two searches can agree depends on how small a gradient the classifier inside allows.
@pytest.mark.parametrize(
    ("parameters", "tolerance"),
    [
        ({"fairness_weight": 0.0}, 1e-10),
        ({"fairness_weight": 3.0, "tol": 1e-11}, 1e-8),
        ({"fairness_weight": 3.0, "tol": 1e-11, "fit_intercept": False}, 1e-8),
        ({"fairness_weight": 3.0, "tol": 1e-11, "group_features": "attribute"}, 1e-8),
        ({"fairness_weight": 3.0, "criterion": "separation", "alpha": 0.1}, 3e-6),
        ({"fairness_weight": 3.0, "classifier": "lspc"}, 3e-5),
        ({"fairness_weight": 300.0}, 3e-4),
    ],
    ids=str,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_model_on_either_side(parameters, tolerance, weighted, wide, monkeypatch):
    X, y, a = wide
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y)) if weighted else None
    given = {"sensitive_features": a, "sample_weight": weight}
    long = tall(monkeypatch, eh.FairRidge(**parameters), X, y, **given)
    short = eh.FairRidge(**parameters).fit(X, y, **given)
    atol = tolerance * np.abs(long.coef_).max()
    np.testing.assert_allclose(short.coef_, long.coef_, rtol=0, atol=atol)
    np.testing.assert_allclose(short.group_coef_, long.group_coef_, rtol=0, atol=atol)
    assert short.intercept_ == pytest.approx(long.intercept_, abs=100 * atol)
    assert short.objective_ == pytest.approx(long.objective_, abs=1e-8)
    assert short.unfairness_ == pytest.approx(long.unfairness_, abs=max(1e-8, tolerance))


@pytest.mark.parametrize("form", [sparse.csr_matrix, np.asfortranarray, np.float32])
def test_other_forms_of_features(form, wide):
    X, y, a = wide
    model = eh.FairRidge(fairness_weight=2).fit(form(X), y, sensitive_features=a)
    dense = eh.FairRidge(fairness_weight=2).fit(X, y, sensitive_features=a)
    tolerance = 1e-5 if form is np.float32 else 1e-9
    assert model.coef_.dtype == (np.float32 if form is np.float32 else np.float64)
    np.testing.assert_allclose(model.coef_, dense.coef_, atol=tolerance)


def test_without_fairness_it_is_ridge(wide):
    X, y, _ = wide
    model = eh.FairRidge(fairness_weight=0, alpha=0.02).fit(X, y)
    ridge = Ridge(alpha=0.02 * len(y), solver="svd").fit(X, y)
    np.testing.assert_allclose(model.coef_, ridge.coef_, atol=1e-10)
    assert model.intercept_ == pytest.approx(ridge.intercept_)


def test_without_a_penalty_it_has_the_least_norm(wide):
    X, y, _ = wide
    model = eh.FairRidge(fairness_weight=0, alpha=0).fit(X, y)
    least = np.linalg.lstsq(X - X.mean(axis=0), y - y.mean(), rcond=None)[0]
    np.testing.assert_allclose(model.coef_, least, atol=1e-8)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-8)


def test_rows_that_depend_on_each_other(wide):
    X, y, _ = wide
    X, y = np.vstack([X, X[:20]]), np.append(y, y[:20])
    for intercept in (True, False):
        model = eh.FairRidge(fairness_weight=0, alpha=0, fit_intercept=intercept).fit(X, y)
        centers = (X.mean(axis=0), y.mean()) if intercept else (0.0, 0.0)
        least = np.linalg.lstsq(X - centers[0], y - centers[1], rcond=None)[0]
        np.testing.assert_allclose(model.coef_, least, atol=1e-8)


def test_features_that_are_all_constant():
    X, a = np.full((6, 9), 7.0), np.arange(6) % 2
    y = np.arange(6.0)
    for alpha in (0.0, 1e-3):
        model = eh.FairRidge(fairness_weight=0, alpha=alpha).fit(X, y, sensitive_features=a)
        np.testing.assert_array_equal(model.coef_, np.zeros(9))
        assert model.intercept_ == pytest.approx(y.mean())


def test_a_path_of_wide_models(wide):
    X, y, a = wide
    weights = [0.0, 1.0, 10.0]
    path = eh.fairness_path(
        eh.FairRidge(), X, y, sensitive_features=a, fairness_weights=weights, cv=2, random_state=0
    )
    assert len(path.to_frame()) == 3


def test_columns_of_very_different_size(wide, monkeypatch):
    X, y, a = wide
    X = X * np.logspace(-3, 3, X.shape[1])
    long = tall(monkeypatch, eh.FairRidge(fairness_weight=1), X, y, sensitive_features=a)
    short = eh.FairRidge(fairness_weight=1).fit(X, y, sensitive_features=a)
    np.testing.assert_allclose(short.predict(X), long.predict(X), atol=1e-7)


def test_ten_thousand_features_never_form_a_square_of_them(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 10_000))
    y, a = X[:, :5].sum(axis=1), np.arange(60) % 2
    sizes = []
    whiten = _problem.whiten
    monkeypatch.setattr(
        _problem, "whiten", lambda g, *rest: sizes.append(g.shape) or whiten(g, *rest)
    )
    model = eh.FairRidge(fairness_weight=5).fit(X, y, sensitive_features=a)
    assert sizes == [(59, 59)]  # one direction less for the mean
    assert model.coef_.shape == (10_000,)


@pytest.mark.parametrize("d", [4, 500])
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("fairness_weight", [0, 5])
def test_features_too_large_to_square(d, as_sparse, fairness_weight):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, d))
    y, a = X[:, 0] + rng.normal(size=100), np.arange(100) % 2
    X[:, 2] *= 1e200
    message = r"`X` must be small enough to square, got values up to .*e\+200 in column 2. Hint"
    with pytest.raises(ValueError, match=message):
        eh.FairRidge(fairness_weight=fairness_weight).fit(
            sparse.csr_matrix(X) if as_sparse else X, y, sensitive_features=a
        )


def test_large_features_that_can_be_squared_give_the_same_predictions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y, a = X.sum(axis=1) + rng.normal(size=200), np.arange(200) % 2
    plain = eh.FairRidge(fairness_weight=2, alpha=0).fit(X, y, sensitive_features=a)
    large = eh.FairRidge(fairness_weight=2, alpha=0).fit(X * 1e120, y, sensitive_features=a)
    np.testing.assert_allclose(large.coef_ * 1e120, plain.coef_, rtol=1e-6)


def test_features_far_from_zero_are_no_constants(wide):
    X, y, a = wide
    near, far = (
        eh.FairRidge(fairness_weight=1.0).fit(X + shift, y, sensitive_features=a).predict(X + shift)
        for shift in (0.0, 1e6)
    )
    np.testing.assert_allclose(far, near, atol=1e-5)
