"""Curves of an audit's rows that figures draw: densities and calibration, by group."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector

if TYPE_CHECKING:
    from .result import Audit

# Groups that a figure can tell apart.
DRAWN_GROUPS = 8


@dataclass(frozen=True)
class DrawnRows:
    """The rows an audit keeps for its figures, restricted to the groups that are drawn.

    Attributes
    ----------
    s, y : (m,) arrays
        Scores and targets; `y` is None without a target.
    membership : (m, G) array
        Weight of each row in each drawn group (0 or the sample weight for known groups).
    names : tuple of G str
        The groups, full length. `index` gives their numbers in the audit.
    """

    s: Vector
    y: Vector | None
    membership: Vector
    names: tuple[str, ...]
    index: tuple[int, ...]

    @property
    def codes(self) -> NDArray[np.intp]:
        """The most likely drawn group of each row; −1 where the row is in none of them."""
        return np.where(self.membership.any(axis=1), self.membership.argmax(axis=1), -1)


def drawn_rows(audit: Audit, limit: int = DRAWN_GROUPS) -> DrawnRows:
    """Keep the `limit` largest groups of an audit's rows, in their original order."""
    kept = audit._sample
    if not kept:
        raise ValueError(
            "`audit` must come from evenhand.audit to be drawn: it holds no rows. Hint: an audit "
            "read back from a file keeps its tables only."
        )
    shares = np.asarray(audit._groups.columns["share"], dtype=float)
    index = tuple(sorted(np.argsort(-shares, kind="stable")[:limit].tolist()))
    membership = kept.get("membership")
    if membership is None:
        membership = kept["codes"][:, None] == np.arange(len(shares))[None, :]
    membership = np.asarray(membership, dtype=float)[:, list(index)]
    if kept.get("weight") is not None:
        membership = membership * kept["weight"][:, None]
    names = tuple(audit.labels[k] for k in index)
    return DrawnRows(kept["s"], kept["y"], membership, names, index)


def grid_over(*columns: Vector, size: int = 120) -> Vector:
    """Points covering all but the last 0.2% of the values, with a margin; never a single point."""
    values = np.concatenate(columns)
    low, high = np.quantile(values, [0.001, 0.999])
    spread = float(high - low)
    if spread <= 1e-12 * max(abs(low), abs(high), 1e-300):
        spread = max(abs(float(low)), 1.0) * 0.1
    margin = 0.08 * spread
    return np.linspace(float(low) - margin, float(high) + margin, size)


def density(values: Vector, weight: Vector, grid: Vector) -> Vector:
    """Kernel density Σ wᵢ φ((x − vᵢ)/h) / (h Σ wᵢ), h by Silverman's rule on effective rows."""
    keep = weight > 0
    values, weight = values[keep], weight[keep] / weight[keep].sum()
    if not len(values):
        return np.zeros_like(grid)
    spread = math.sqrt(float(weight @ (values - weight @ values) ** 2))
    order = np.argsort(values, kind="stable")
    low, high = np.interp([0.25, 0.75], np.cumsum(weight[order]), values[order])
    if high > low:
        spread = min(spread, float(high - low) / 1.349)
    width = 0.9 * spread * float(np.square(weight).sum()) ** 0.2
    # A group of one row, or of equal scores, is still drawn: as a bump of visible width.
    width = max(width, float(grid[-1] - grid[0]) / len(grid))
    z = (grid[:, None] - values[None, :]) / width
    return np.exp(-0.5 * z * z) @ weight / (width * math.sqrt(2 * math.pi))


def calibration(
    s: Vector, y: Vector, weight: Vector, bins: int = 10
) -> tuple[Vector, Vector, Vector]:
    """Mean score, mean target and its standard error in bins of the score with equal weight.

    Each bin holds 20 rows or more, so a small group has fewer bins.
    """
    keep = weight > 0
    s, y, weight = s[keep], y[keep], weight[keep]
    bins = max(1, min(bins, len(s) // 20))
    order = np.argsort(s, kind="stable")
    s, y, weight = s[order], y[order], weight[order]
    share = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
    cell = np.minimum((share * bins).astype(int), bins - 1)
    total = np.bincount(cell, weight, minlength=bins)
    squares = np.bincount(cell, weight * weight, minlength=bins)
    used = total > 0
    mean_s = np.bincount(cell, weight * s, minlength=bins)[used] / total[used]
    mean_y = np.bincount(cell, weight * y, minlength=bins)[used] / total[used]
    square = np.bincount(cell, weight * y * y, minlength=bins)[used] / total[used]
    variance = np.maximum(square - mean_y**2, 0.0)
    return mean_s, mean_y, np.sqrt(variance * squares[used]) / total[used]
