"""Monomials, their moments and their derivative, against scikit-learn and differences."""

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures

from evenhand.kernels.basis import get_basis

BASES = [(name, p) for name in ("linear", "quadratic", "degree3") for p in (1, 2, 4)]


@pytest.fixture(params=BASES, ids=lambda b: f"{b[0]}-{b[1]}")
def basis(request):
    return get_basis(*request.param)


@pytest.fixture
def z(basis):
    return np.random.default_rng(0).normal(size=(50, basis.n_variables))


def test_terms_equal_polynomial_features(basis, z):
    expected = PolynomialFeatures(basis.degree).fit_transform(z)
    np.testing.assert_allclose(basis(z), expected, rtol=1e-14)
    assert basis.n_terms == expected.shape[1]
    assert basis.n_moments == PolynomialFeatures(2 * basis.degree).fit(z).n_output_features_


def test_linear_is_a_prefix_of_quadratic(z):
    p = z.shape[1]
    linear, quadratic = get_basis("linear", p), get_basis("quadratic", p)
    np.testing.assert_array_equal(linear(z), quadratic(z)[:, : p + 1])


def test_gram_from_moments(basis, z):
    rng = np.random.default_rng(1)
    w = rng.uniform(size=len(z))
    monomials = PolynomialFeatures(2 * basis.degree).fit_transform(z)
    phi = basis(z)
    np.testing.assert_allclose(basis.gram(w @ monomials), phi.T @ (w[:, None] * phi), rtol=1e-12)


def test_collapse_is_the_quadratic_form(basis, z):
    form = np.random.default_rng(2).normal(size=(3, basis.n_terms, basis.n_terms))
    monomials = PolynomialFeatures(2 * basis.degree).fit_transform(z)
    phi = basis(z)
    expected = np.einsum("ij,kjl,il->ik", phi, form, phi)
    np.testing.assert_allclose(monomials @ basis.collapse(form).T, expected, rtol=1e-10)


def test_slopes_are_the_derivative_in_the_first_variable(basis, z):
    weights = np.random.default_rng(3).normal(size=(3, basis.n_terms))
    step = np.zeros(basis.n_variables)
    step[0] = 1e-5
    numeric = (basis(z + step) - basis(z - step)) @ weights.T / 2e-5
    exact = basis(z)[:, : basis.n_slopes] @ basis.slopes(weights).T
    np.testing.assert_allclose(exact, numeric, atol=1e-9)


def test_every_higher_monomial_is_a_product_of_earlier_ones(basis, z):
    monomials = PolynomialFeatures(2 * basis.degree).fit_transform(z)
    for j in range(1 + basis.n_variables, basis.n_moments):
        a, b = basis.factors[j]
        assert max(a, b) < j
        np.testing.assert_allclose(monomials[:, a] * monomials[:, b], monomials[:, j], rtol=1e-12)


def test_unknown_basis():
    with pytest.raises(
        ValueError, match="`basis` must be one of linear, quadratic, degree3, got 'cubic'"
    ):
        get_basis("cubic", 1)


def test_totals_of_polynomials_from_sums_of_monomials(basis, z):
    monomials = PolynomialFeatures(2 * basis.degree).fit_transform(z)
    rng = np.random.default_rng(3)
    coefficients = rng.normal(size=(2, basis.n_slopes))
    sums = np.stack([monomials[::2].sum(axis=0), monomials[1::2].sum(axis=0)])
    values = np.empty(len(z))
    values[::2] = monomials[::2, : basis.n_slopes] @ coefficients[0]
    values[1::2] = monomials[1::2, : basis.n_slopes] @ coefficients[1]
    expected = values.sum(), values @ z[:, 0]
    np.testing.assert_allclose(basis.totals(coefficients, sums), expected, rtol=1e-12)
