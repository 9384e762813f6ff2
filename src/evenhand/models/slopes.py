"""Slopes that differ by group, drawn together: γ·Σ_k (b_k − b̄)² with γ by leave-one-out.

b_k is the slope of group k and b̄ their plain mean, so that it does not matter which group the
columns leave out. In a ridge regression on free columns f (penalty α) and slope columns q,

    yᵢ − ŷ₋ᵢ = rᵢ / (1 − hᵢ),   r = r₀ − q̃ g,   g = (M + γR)⁻¹ m,
    hᵢ = (ωᵢ/n)·[1 + fᵢᵀC⁻¹fᵢ + q̃ᵢᵀ(M + γR)⁻¹q̃ᵢ]

with C = fᵀΩf/n + αI, q̃ the slope columns less what the free ones say of them, and M and m the
moments of the slopes that the free columns leave: one pass over the rows serves every γ.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from .ridge import RidgeProblem
from .whitening import whiten

Vector = NDArray[np.float64]
Table = NDArray[np.float64]
# Rows per extra slope up to which "auto" looks. A slope costs a share 1/n of the unexplained
# variance, which beyond is less than anybody could measure.
MAX_ROWS = 20_000
# γ as a multiple of what the rows say of a slope on average, up to `Slopes.most`.
GRID = (0.0, *(2.0**k for k in range(-7, 3)))
# A row that the rest cannot predict at all (alone in its group) says nothing about slopes.
ALONE = 1e-6


def check_group_alpha(value: Any) -> None:
    """Refuse anything but "auto" or a nonnegative number."""
    if isinstance(value, str) and value == "auto":
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        raise ValueError(
            f"`group_alpha` must be 'auto' or a nonnegative number, got {value!r}. Hint: 0 leaves "
            "every group its own slope."
        )


@dataclass(frozen=True)
class Slopes:
    """The last (K − 1)·width columns of a design: slopes of all groups but the first.

    Attributes
    ----------
    n_groups : int
        K.
    width : int
        Slopes of each group; those of one group are next to each other.
    most : float
        Largest γ of "auto", as a multiple of what the rows say of a slope on average. Fairness may
        need slopes that accuracy does not, and pays γ for them too.
    """

    n_groups: int
    width: int = 1
    most: float = 4.0

    @property
    def size(self) -> int:
        """How many columns."""
        return (self.n_groups - 1) * self.width

    def penalty(self) -> Table:
        """R with bᵀRb = Σ_k (b_k − b̄)², the first group's slope being zero in these columns."""
        k = self.n_groups
        alike: Table = np.eye(k - 1) - 1.0 / k
        return np.kron(alike, np.eye(self.width)).astype(np.float64, copy=False)

    def shrink(
        self, problem: RidgeProblem, y: Vector, weight: Vector | None, group_alpha: float | str
    ) -> tuple[RidgeProblem, float]:
        """The problem with its slopes penalized, and γ."""
        if isinstance(group_alpha, str):
            group_alpha = self.leave_one_out(problem, y, weight)
        if group_alpha == 0 or self.size == 0:
            return problem, float(group_alpha)
        penalty = problem.penalty.copy()
        penalty[-self.size :, -self.size :] += group_alpha * self.penalty()
        return problem.penalized(penalty), float(group_alpha)

    def leave_one_out(self, problem: RidgeProblem, y: Vector, weight: Vector | None) -> float:
        """γ of least Σ ωᵢ(yᵢ − ŷ₋ᵢ)², or zero where there are rows enough."""
        if self.size == 0 or problem.design.n > MAX_ROWS * self.size:
            return 0.0
        found = _Left.fit(problem, self.size, y, weight)
        values, vectors = eigh(found.moment, self.penalty())
        typical = float(values.clip(0.0).mean())
        if typical == 0.0:
            return 0.0
        grid = typical * np.array([step for step in GRID if step <= self.most])
        return float(grid[found.errors(values, vectors, grid).argmin()])


@dataclass(frozen=True)
class _Left:
    """What the free columns leave: residuals, leverages and slope columns of the rows."""

    residual: Vector
    leverage: Vector
    slopes: Table
    moment: Table
    target: Vector
    weight: Vector

    @classmethod
    def fit(cls, problem: RidgeProblem, size: int, y: Vector, weight: Vector | None) -> _Left:
        gram, cross, design = problem.moments.gram, problem.moments.cross, problem.design
        n, k = design.n, design.d - size
        omega = np.ones(n) if weight is None else weight
        found = whiten(gram[:k, :k], problem.penalty[:k, :k], 1.0)
        theta, whitened = found.solve(cross[:k]), found.inverse_root()
        said = whitened @ (whitened.T @ gram[:k, k:])
        # With an intercept all is about the means; it then costs 1/n of every row's weight.
        residual, leverage = y - problem.moments.mean_y, np.full(n, float(problem.centered))
        slopes = np.empty((n, size))
        for rows, block in design.blocks():
            block = block - problem.shift
            free = block[:, :k]
            residual[rows] -= free @ theta
            leverage[rows] += np.square(free @ whitened).sum(axis=1)
            slopes[rows] = block[:, k:] - free @ said
        moment = gram[k:, k:] + problem.penalty[k:, k:] - gram[k:, :k] @ said
        return cls(residual, leverage, slopes, moment, cross[k:] - said.T @ cross[:k], omega)

    def errors(self, values: Vector, vectors: Table, grid: Vector) -> Vector:
        """Weighted squares of the left-out errors at each γ; M = Σ λ v vᵀ in the metric of R."""
        n, rotated, target = len(self.residual), self.slopes @ vectors, vectors.T @ self.target
        share = self.weight / n
        out, used = [], None
        for gamma in grid:
            inverse = 1.0 / np.maximum(values + gamma, 1e-12 * values.max())
            left = 1.0 - share * (self.leverage + np.square(rotated) @ inverse)
            if used is None:
                used = left > ALONE
            error = (self.residual - rotated @ (inverse * target))[used] / left[used]
            out.append(float(self.weight[used] @ np.square(error)))
        return np.array(out)
