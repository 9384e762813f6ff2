"""The vectorizable exp and log against NumPy over the ranges they promise."""

import numpy as np
import pytest
from numba import njit

from evenhand.kernels import primitives


def _vectorized(function):
    @njit
    def apply(x):
        out = np.empty_like(x)
        for i in range(len(x)):
            out[i] = function(x[i])
        return out

    return apply


@pytest.fixture(scope="module")
def compiled():
    @njit
    def log1p(x):
        return primitives.log1p_unit(x, 1.0 / (2.0 + x))

    functions = {
        "exp": primitives.exp_nonpositive,
        "bounded": primitives.exp_bounded,
        "log": primitives.log_positive,
        "log1p": log1p,
    }
    return {name: _vectorized(function) for name, function in functions.items()}


def test_exp(compiled):
    x = -np.concatenate([np.linspace(0, 700, 100_001), np.logspace(-300, 2, 10_001), [0.0]])
    np.testing.assert_allclose(compiled["exp"](x), np.exp(x), rtol=1e-14)


def test_exp_stays_at_its_floor(compiled):
    x = np.array([-700.0, -701.0, -708.5, -745.0, -1e300, -np.inf])
    found = compiled["exp"](x)
    np.testing.assert_allclose(found, np.exp(-700.0), rtol=1e-14)
    # A softplus divides by β and takes a reciprocal: neither may leave the normal range.
    assert np.isfinite(30.0 / found).all()
    assert (found / 30.0 > np.finfo(float).tiny).all()


def test_exp_of_either_sign(compiled):
    x = np.concatenate([np.linspace(-700, 700, 100_001), np.logspace(-300, 2, 10_001), [0.0]])
    np.testing.assert_allclose(compiled["bounded"](x), np.exp(x), rtol=1e-14)
    far = np.array([-np.inf, -1e300, -701.0, 701.0, 1e300, np.inf])
    expected = np.exp(np.clip(far, -700.0, 700.0))
    np.testing.assert_allclose(compiled["bounded"](far), expected, rtol=1e-14)


def test_log(compiled):
    x = np.concatenate([np.logspace(-307, 308, 100_001), np.linspace(0.5, 2, 20_001), [1.0]])
    found, expected = compiled["log"](x), np.log(x)
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=0)
    assert found[-1] == 0.0


def test_log1p(compiled):
    x = np.concatenate([np.linspace(0, 1, 100_001), np.logspace(-300, 0, 20_001)])
    np.testing.assert_allclose(compiled["log1p"](x), np.log1p(x), rtol=1e-14, atol=0)
