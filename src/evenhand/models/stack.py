"""The stack: a linear model on the features and on what any regressor makes of them.

s = Xθ + m(s₀) + Σ_k p_k·(o_k + c_k·s₀) + t·Σ_k p_k·g_k(s₀)

with X encoded and standardized, s₀ the regressor's standardized score, m a line or a curve of
straight pieces, p_k the membership of group k and g_k the map of its scores to the barycenter of
all groups. The columns of X have a penalty γ‖θ‖² of their own, so that without fairness the score
is s₀ with what little X has to add.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from .ridge import RidgeProblem
from .slopes import Slopes
from .transport import Transport

Vector = NDArray[np.float64]
Table = NDArray[np.float64]
# γ that "auto" tries. Fairness may need X where accuracy does not, and pays γ for it too: beyond
# `MOST` only where X has more than `CROWDED` columns a row, and would else be fitted to noise.
GRID = tuple(10.0 ** (k / 2) for k in range(-8, 3))
MOST, CROWDED = 0.1, 0.2
# A degree of freedom counts for more than one, as cross-validation by formula takes too many.
COUNTED = 1.4


def check_passthrough_alpha(value: Any) -> None:
    """Refuse anything but "auto" or a nonnegative number."""
    if isinstance(value, str) and value == "auto":
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        raise ValueError(
            f"`passthrough_alpha` must be 'auto' or a nonnegative number, got {value!r}. Hint: 0 "
            "leaves the features free."
        )


@dataclass(frozen=True)
class StackColumns:
    """What the regressor's score and the memberships become beside X.

    Attributes
    ----------
    labels : tuple of str
        The K groups; of length 1 without memberships.
    bends : (J,) array
        Where m may bend; empty for a line.
    transport : Transport or None
        g_k.
    """

    labels: tuple[str, ...]
    bends: Vector
    transport: Transport | None

    def features(self, z: Vector, p: Table | None) -> Table:
        """[z, max(z − b_j, 0), p_k, Σ p_k·g_k(z), p_k·z], all groups but the first."""
        columns = [z[:, None], np.maximum(z[:, None] - self.bends, 0.0)]
        if p is not None:
            columns.append(p[:, 1:])
            if self.transport is not None:
                columns.append((self.transport(z) * p).sum(axis=1, keepdims=True))
            columns.append(p[:, 1:] * z[:, None])
        return np.hstack(columns)

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        others = self.labels[1:]
        return [
            "score",
            *(f"score beyond {bend:.2f}" for bend in self.bends),
            *(f"P({label})" for label in others),
            *(["score at the barycenter"] if self.transport is not None else []),
            *(f"P({label})·score" for label in others),
        ]

    def slopes(self) -> Slopes | None:
        """The last columns, whose coefficients are slopes by group."""
        return Slopes(len(self.labels), most=1.0) if len(self.labels) > 1 else None


def beside(X: Any, columns: Table) -> Any:
    """[X, columns], sparse where X is."""
    if sparse.issparse(X):
        return sparse.hstack([X, sparse.csr_array(columns)], format="csr")
    return np.hstack([X, columns])


@dataclass
class StackPenalty:
    """γ‖θ‖² on the columns of X, and the penalty of `Slopes` on the last ones.

    Stands where :class:`FairRidge` expects `Slopes`: all columns but those of X keep their place
    where X is wider than it has rows.

    Attributes
    ----------
    n_kept : int
        Columns beside X.
    slopes : Slopes or None
        The last of them.
    alpha : float or "auto"
        γ; "auto" takes that of least generalized cross-validation error without fairness.
    chosen : float
        γ, once `shrink` was called.
    """

    n_kept: int
    slopes: Slopes | None
    alpha: float | str
    chosen: float = field(default=np.nan)

    @property
    def size(self) -> int:
        """Columns that are not rotated with X."""
        return self.n_kept

    def shrink(
        self, problem: RidgeProblem, y: Vector, weight: Vector | None, group_alpha: float | str
    ) -> tuple[RidgeProblem, float]:
        """The problem with both penalties, and that of the slopes."""
        n_features = problem.design.d - self.n_kept
        if isinstance(self.alpha, str):
            rows = float(len(y))
            if weight is not None:
                rows = float(weight.sum()) ** 2 / float(weight @ weight)
            self.chosen = generalized_cross_validation(problem, n_features, rows)
        else:
            self.chosen = float(self.alpha)
        if n_features:
            penalty = problem.penalty.copy()
            block = np.arange(n_features)
            penalty[block, block] = self.chosen
            problem = problem.penalized(penalty)
        if self.slopes is None:
            return problem, 0.0
        return self.slopes.shrink(problem, y, weight, group_alpha)


def generalized_cross_validation(problem: RidgeProblem, n_features: int, n_rows: float) -> float:
    """γ on the first columns of least n·RSS(γ) / (n − c·df(γ))², c = `COUNTED`.

    Leave-one-out error with every row's leverage replaced by their mean. After the other columns
    are taken out of the moments M = VΛVᵀ and m of the first ones,

        RSS(γ) = RSS(∞) − Σ_j (vⱼᵀm)²·(λⱼ + 2γ)/(λⱼ + γ)²,   df(γ) = df(∞) + Σ_j λⱼ/(λⱼ + γ)

    so that it needs no pass over the rows.
    """
    if n_features == 0:
        return GRID[0]
    k = n_features
    gram, cross = problem.moments.gram, problem.moments.cross
    rest = gram[k:, k:] + problem.penalty[k:, k:]
    # Columns that repeat each other, such as p_k of an attribute that is in X too.
    rest = rest + 1e-10 * np.diag(np.diag(rest)) + 1e-300 * np.eye(len(rest))
    said = cho_solve(cho_factor(rest), np.column_stack([gram[k:, :k], cross[k:]]))
    moment = gram[:k, :k] - gram[:k, k:] @ said[:, :k]
    target = cross[:k] - gram[:k, k:] @ said[:, k]
    values, vectors = np.linalg.eigh((moment + moment.T) / 2.0)
    values = values.clip(0.0)
    shares = np.square(vectors.T @ target)
    left = problem.moments.second_y - float(cross[k:] @ said[:, k])
    free = float(problem.centered) + len(rest)
    grid = GRID if k > CROWDED * n_rows else [g for g in GRID if g <= MOST * (1.0 + 1e-9)]
    errors = []
    for gamma in grid:
        gained = float(shares @ ((values + 2.0 * gamma) / np.square(values + gamma)))
        df = free + float((values / (values + gamma)).sum())
        room = n_rows - COUNTED * df
        errors.append(np.inf if room <= 0 else max(left - gained, 0.0) / room**2)
    # Where no penalty leaves room, the largest.
    return grid[int(np.argmin(errors))] if min(errors) < np.inf else grid[-1]
