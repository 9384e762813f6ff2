"""Maps of each group's scores onto the barycenter of all groups: g_k(s) = Σ_j p_j Q_j(F_k(s)).

F_k is the distribution function and Q_k the quantile function of the scores of group k, p_k its
share. Moved this way all groups have one distribution, and among such scores these are the closest
to the old ones in squared error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
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
