"""Smooth functions of a standard normal variable, their products, and regression on them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import ndtri

from .._core.arrays import Array

Index = NDArray[np.intp]

N_SPLINES = 20


@lru_cache(maxsize=1)
def spline_table() -> tuple[float, float, Array]:
    """Smooth functions of a standard normal variable, from smoothest to roughest, on a grid.

    Quartic splines with knots at normal quantiles, made orthonormal under the normal law and
    orthogonal in ∫ f‴² dΦ: 1, u, (u² − 1)/√2, then curves of growing roughness. Symmetric, so that
    reversing a variable only changes signs.
    """
    from scipy.interpolate import BSpline

    limit, knots, order = 4.5, 16, 4
    inner = ndtri(np.arange(1, knots) / knots)
    t = np.concatenate([[-limit] * (order + 1), inner, [limit] * (order + 1)])
    grid = np.linspace(-limit, limit, 2001)
    density = np.exp(-0.5 * grid**2)
    density /= density.sum()
    identity = np.eye(len(t) - order - 1)
    basis = BSpline(t, identity, order)(grid)
    third = BSpline(t, identity, order).derivative(3)(grid)
    _, vectors = scipy.linalg.eigh(
        third.T @ (density[:, None] * third), basis.T @ (density[:, None] * basis)
    )
    table = basis @ vectors
    table[:, :3] = np.stack([np.ones_like(grid), grid, (grid**2 - 1.0) / np.sqrt(2.0)], axis=1)
    return -limit, float(grid[1] - grid[0]), np.ascontiguousarray(table[:, :N_SPLINES])


def splines(u: Array) -> Array:
    from ..kernels.splines import table_rows

    return table_rows(np.ascontiguousarray(u), *spline_table())


def cubic(degree: Any) -> Any:
    """Roughness ∫ h‴² dΦ of a Hermite polynomial, 1 at degree 5."""
    return degree * (degree - 1.0) * (degree - 2.0) / 60.0


def smooth(u: Array, v: Array, weight: Array) -> Array:
    """Smoothing-spline regression of v on u, at u."""
    f = splines(u)[:, :12]
    gram = f.T @ (weight[:, None] * f)
    gram[np.diag_indices(12)] += cubic(np.arange(12)) + 1e-6
    return f @ scipy.linalg.solve(gram, f.T @ (weight * v), assume_a="pos")


@lru_cache(maxsize=2)
def product_terms(large: bool) -> tuple[Index, Index, Index, Array]:
    """Factors, degree and roughness Σ ∫ (third derivatives)² dΦ of the products of two splines.

    All splines of each variable alone, so that adding a variable never takes terms away. Products
    of total degree up to 6, and of 12 beside a quadratic; with many rows 8, and 13 beside a cubic.
    """
    total, other, most = (8, 3, 13) if large else (6, 2, 12)
    pairs = [
        (i, j)
        for i in range(N_SPLINES)
        for j in range(N_SPLINES)
        if i + j <= total or (min(i, j) <= other and max(i, j) <= most) or min(i, j) == 0
    ]
    pairs.sort(key=lambda p: (p[0] + p[1], p))
    left, right = (np.ascontiguousarray(v) for v in np.array(pairs, dtype=np.intp).T)
    degree = left + right
    return left, right, degree, cubic(degree)
