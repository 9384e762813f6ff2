"""The code of docs/bring_your_own.md runs, and does what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import evenhand as eh

PAGE = Path(__file__).parents[2] / "docs" / "bring_your_own.md"


@pytest.fixture(scope="module")
def page():
    namespace: dict = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), namespace)
    return namespace


def test_any_optimizer(page):
    """SciPy ends where FairRidge does."""
    X, y, a = page["X"], page["y"], page["a"]
    assert page["found"].fun < page["objective"](page["start"])[0] - 0.005
    model = eh.FairRidge("independence", 3.0, 1e-12).fit(X, y, sensitive_features=a)
    error = np.mean((y - y.mean() - (s := model.predict(X)) + s.mean()) ** 2) / y.var()
    ours = error + 3.0 * page["bound"].value(s)
    theta = page["found"].x
    error = np.var(y - X @ theta) / y.var()
    assert error + 3.0 * page["bound"].value(X @ theta) == pytest.approx(ours, abs=0.01)


def test_its_gradient(page):
    numeric = approx_fprime(page["start"], lambda theta: page["objective"](theta)[0], 1e-6)
    np.testing.assert_allclose(page["objective"](page["start"])[1], numeric, atol=1e-4)


def test_curvature_is_of_the_size_of_the_hessian(page):
    """Along the parameters, at the fair end of the search."""
    bound, X, at = page["bound"], page["X"], page["found"].x
    hessian = np.empty((3, 3))
    for i, unit in enumerate(np.eye(3) * 1e-4):
        ends = [X.T @ bound.value_and_grad(X @ (at + sign * unit))[1] for sign in (1.0, -1.0)]
        hessian[i] = (ends[0] - ends[1]) / 2e-4
    top = np.linalg.eigvalsh(0.5 * (hessian + hessian.T))[-1]
    assert top <= 1.1 * np.linalg.eigvalsh(page["curvature"])[-1] <= 3.0 * top


def test_jax(page):
    expected = page["objective"](page["start"])[1]
    np.testing.assert_allclose(page["slope"], expected, atol=1e-4)


def test_service(page):
    bound = page["bound"]
    before = bound.value(page["Service"]().predict(page["X"]))
    assert bound.value(page["scores"]) < 0.7 * before
