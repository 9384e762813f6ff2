"""Maps m_k of a (standardized) score z that differ by group, as columns of a linear model.

affine     m_k(z) = o_k + z·c_k                          on [z, p_k, p_k·z]
spline     m_k(z) = o_k + z·c_k0 + Σ_j max(z − b_j, 0)·c_kj   on [B(z), p_k, p_k·B(z)]
transport  m_k(z) = o + z·c_k + g_k(z)·c                 on [z, Σ_k p_k·g_k(z), p_k·z]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Matrix, Vector
from .ridge_problem import Slopes

# ------------------------------------------------------------------------------------------------
# Maps of each group's scores onto the barycenter of all groups: g_k(s) = Σ_j p_j Q_j(F_k(s)).
#
# F_k is the distribution function and Q_k the quantile function of the scores of group k, p_k its
# share. Moved this way all groups have one distribution, and among such scores these are the
# closest
# to the old ones in squared error.


# Levels at which quantiles are matched. Every row's own rank would carry over the sampling noise of
# small groups; held out, a hundred levels were as fair as that and no less accurate.
N_LEVELS = 100


@dataclass(frozen=True)
class Transport:
    """One rising map per group, of straight pieces through (knots, values).

    Beyond a group's range a score is moved as far as the end of the range is: slope one.
    """

    knots: tuple[Vector, ...]
    values: tuple[Vector, ...]

    @classmethod
    def fit(cls, scores: Vector, membership: NDArray[np.float64]) -> Transport:
        """From scores, (n,), and the weight of each row in each group, (n, K)."""
        order = np.argsort(scores, kind="stable")
        levels = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
        columns = [distribution(scores[order], weight[order]) for weight in membership.T]
        quantiles = [np.interp(levels, rank, support) for support, rank in columns]
        shares = membership.sum(axis=0) / membership.sum()
        target = barycenter(levels, shares, columns)
        knots, values = [], []
        for mine in quantiles:
            # Levels that share a score, where many rows tie, go to the mean of their targets.
            knot, which, count = np.unique(mine, return_inverse=True, return_counts=True)
            knots.append(knot)
            values.append(np.bincount(which, target) / count)
        return cls(tuple(knots), tuple(values))

    def __call__(self, scores: Vector) -> NDArray[np.float64]:
        """(n, K): each score as each group's map would move it."""
        moved = []
        for knot, value in zip(self.knots, self.values, strict=True):
            beyond = scores - np.clip(scores, knot[0], knot[-1])
            moved.append(np.interp(scores, knot, value) + beyond)
        return np.column_stack(moved)

    def slopes(self) -> NDArray[np.float64]:
        """(K, 3): slopes of each map's flattest and steepest piece, and beyond its range."""
        out = np.ones((len(self.knots), 3))
        for k, (knot, value) in enumerate(zip(self.knots, self.values, strict=True)):
            if len(knot) > 1:
                pieces = np.diff(value) / np.diff(knot)
                out[k, :2] = pieces.min(), pieces.max()
        return out


def distribution(ordered: Vector, weight: Vector) -> tuple[Vector, Vector]:
    """Sorted distinct scores and their mid-ranks in (0, 1), for rows of positive weight."""
    used = weight > 0
    ordered, weight = ordered[used], weight[used]
    ordered, first = np.unique(ordered, return_index=True)
    weight = np.add.reduceat(weight, first)
    total = np.cumsum(weight)
    return ordered, (total - weight / 2.0) / total[-1]


def barycenter(
    levels: Vector, shares: Vector, distributions: Sequence[tuple[Vector, Vector]]
) -> Vector:
    """Σ_k p_k Q_k(level)."""
    parts = [
        p * np.interp(levels, rank, support)
        for p, (support, rank) in zip(shares, distributions, strict=True)
    ]
    return np.sum(parts, axis=0)


KINDS = ("affine", "spline", "transport")


@dataclass(frozen=True)
class ScoreMaps:
    """The family of maps; its members are given by offsets, (K,), and slopes, (K, width).

    Attributes
    ----------
    n_groups : int
        K; 1 for one map for everybody.
    bends : (J,) array
        Where a spline may bend; empty for the others.
    transport : Transport or None
        g_k, for transport.
    """

    n_groups: int
    bends: Vector
    transport: Transport | None

    def features(self, z: Vector, p: Matrix | None) -> Matrix:
        """Columns of the linear model; p, (n, K), are memberships, None for one map.

        Transport has no shift by group: with one, the search was fair in the eyes of a quadratic
        classifier by straight maps, and lost what transport gains.
        """
        columns = self._columns(z)
        if p is None:
            return columns
        shift = p[:, 1:]
        if self.transport is not None:
            shift = (self.transport(z) * p).sum(axis=1, keepdims=True)
        return np.hstack([columns, shift, *(p[:, [k]] * columns for k in range(1, p.shape[1]))])

    def slopes(self) -> Slopes | None:
        """The columns of `features` whose coefficients are slopes by group; None for one map."""
        if self.n_groups == 1:
            return None
        # Offsets apart, slopes are all that such a map can be fair by; held out, a larger penalty
        # cost more where groups differ in spread than it saved where rows are few.
        return Slopes(self.n_groups, 1 + len(self.bends), most=1.0)

    def simple_columns(self) -> list[int] | None:
        """Columns of `features` for maps that never fall in places; None where all are such.

        Those of the affine map for a spline, the barycenter's alone for transport.
        """
        if self.transport is not None:
            return [1]
        if not len(self.bends):
            return None
        width, more = 1 + len(self.bends), self.n_groups - 1
        return [0, *range(width, width + more), *(width + more + k * width for k in range(more))]

    def unpack(self, intercept: float, coef: Vector) -> tuple[Vector, Matrix]:
        """Offsets and slopes from coefficients of `features`, or of its simple columns."""
        groups = self.n_groups
        if self.transport is not None:
            base, moved, *more = coef if len(coef) > 1 else [0.0, coef[0], *[0.0] * (groups - 1)]
            slopes = np.array([[base + extra, moved] for extra in (0.0, *more)])
            return np.full(groups, float(intercept)), slopes
        width = (len(coef) - groups + 1) // groups
        base, shift, slope = np.split(coef, [width, width + groups - 1])
        offsets = intercept + np.concatenate([[0.0], shift])
        return offsets, base + np.vstack([np.zeros(width), slope.reshape(groups - 1, width)])

    def evaluate(self, z: Vector, p: Matrix, offsets: Vector, slopes: Matrix) -> Vector:
        """Σ_k p_k·m_k(z)."""
        columns = self._columns(z)
        maps = offsets + columns @ slopes[:, : columns.shape[1]].T
        if self.transport is not None:
            maps += self.transport(z) * slopes[:, 1]
        return (maps * p).sum(axis=1)

    def blend(self, simple: Matrix, fitted: Matrix) -> float:
        """Largest t ≤ 1 for which (1 − t)·simple + t·fitted falls nowhere.

        Mixing with a simpler solution, rather than flattening pieces by isotonic regression, stays
        between two minima of the objective; flattening was seen to undo the fairness.
        """
        bent = self._steepness(fitted)
        falling = bent < 0
        if not falling.any():
            return 1.0
        level = np.broadcast_to(self._steepness(simple), bent.shape)
        room = np.clip(level[falling], 0.0, None)
        return float((room / (room - bent[falling])).min())

    def _columns(self, z: Vector) -> Matrix:
        return np.column_stack([z, *(np.maximum(z - bend, 0.0) for bend in self.bends)])

    def _steepness(self, slopes: Matrix) -> Matrix:
        """(K, pieces): how steep each piece is; of transport only the extremes."""
        if self.transport is not None:
            return slopes[:, :1] + slopes[:, 1:] * self.transport.slopes()
        return np.cumsum(slopes, axis=1)
