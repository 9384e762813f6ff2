"""Coordinates in which a quadratic is ‖v‖²: θ = θ₀ + T v with T Tᵀ = scale·C⁻¹.

C is the (half) Hessian of a loss with its penalty, so that in v the solver starts from the true
curvature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky

# BLAS itself: the checks of SciPy's wrappers take longer than the solve, twice an iteration.
from scipy.linalg.blas import dtrsv

Vector = NDArray[np.float64]
Table = NDArray[np.float64]


@dataclass(frozen=True)
class Whitening:
    """The map T, held as the Cholesky factor of C or, where C is singular, as W with W Wᵀ = C⁺.

    Attributes
    ----------
    factor : (d, d) or (d, m) array
    triangular : bool
        Whether `factor` is L, C = L Lᵀ, rather than W.
    root : float
        √scale.
    """

    factor: Table
    triangular: bool
    root: float

    @property
    def origin(self) -> Vector:
        """v = 0."""
        return np.zeros(self.factor.shape[0 if self.triangular else 1])

    def apply(self, v: Vector) -> Vector:
        """T v."""
        if self.triangular:
            return self.root * dtrsv(self.factor, v, lower=1, trans=1)
        return self.root * (self.factor @ v)

    def adjoint(self, gradient: Vector) -> Vector:
        """Tᵀ g."""
        if self.triangular:
            return self.root * dtrsv(self.factor, gradient, lower=1)
        return self.root * (self.factor.T @ gradient)

    def invert(self, change: Vector) -> Vector:
        """v with T v closest to a change of θ."""
        if self.triangular:
            return (self.factor.T @ change) / self.root
        found = np.linalg.lstsq(self.root * self.factor, change, rcond=None)[0]
        return found.astype(np.float64)

    def solve(self, right: Vector) -> Vector:
        """C⁻¹ r; of all solutions the one of least norm."""
        if self.triangular:
            half = dtrsv(self.factor, right, lower=1)
            return dtrsv(self.factor, half, lower=1, trans=1)
        return self.factor @ (self.factor.T @ right)

    def inverse_root(self) -> Table:
        """W with W Wᵀ = C⁻¹."""
        if self.triangular:
            return np.asarray(np.linalg.inv(self.factor).T, dtype=np.float64)
        return self.factor


def whiten(gram: Table, penalty: Table, scale: float) -> Whitening:
    """Coordinates for C = gram + penalty."""
    c = gram + penalty
    size = np.diag(c)
    root = float(np.sqrt(scale))
    try:
        factor = np.asfortranarray(cholesky(c, lower=True))
        # What a column adds to those before it, as a share of itself: units do not matter.
        if (np.diag(factor) ** 2 > 1e-10 * size).all():
            return Whitening(factor, True, root)
    except LinAlgError:
        pass
    # Constant or repeated columns, or n < d, without a penalty: keep the directions that X spans,
    # again with all columns brought to the same size first.
    shrink = 1.0 / np.sqrt(np.where(size > 0, size, 1.0))
    values, vectors = np.linalg.eigh(c * shrink * shrink[:, None])
    vectors = shrink[:, None] * vectors
    keep = values > max(1e-12, len(c) * np.finfo(float).eps) * max(values.max(initial=0.0), 1e-300)
    span = vectors[:, keep] / np.sqrt(values[keep])
    # Of all solutions the one of least norm: nothing along the directions in which X is zero.
    null = np.linalg.qr(vectors[:, ~keep])[0]
    span -= null @ (null.T @ span)
    return Whitening(span, False, root)
