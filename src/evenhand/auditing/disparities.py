"""Group by group: sizes, means, errors, and the simple disparities people already know.

These put the three information measures in context; they do not replace them. Equal means hide
unequal spreads, and no single gap sees all of a distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from .._kernels import make_rows
from ..groups.sensitive import Groups
from ..information.effective import group_sizes
from ..information.ranks import Ranks

Vector = NDArray[np.float64]

# Numbers in the cumulative shares of a few groups.
_GAP_NUMBERS = 2_000_000


@dataclass(frozen=True)
class GroupTable:
    """One row per group; `columns` maps a name to K values, NaN where not defined."""

    columns: dict[str, list]


@dataclass(frozen=True)
class Disparities:
    """Gaps between groups in common units; each the largest over groups.

    Attributes
    ----------
    mean_score_gap : float
        Largest minus smallest mean score.
    kolmogorov_smirnov, wasserstein : float
        Largest distance between a group's scores and those of all other rows; the latter in
        units of the score.
    rmse_ratio : float
        Largest over smallest root mean squared error (NaN without a target).
    """

    mean_score_gap: float
    kolmogorov_smirnov: float
    wasserstein: float
    rmse_ratio: float


class _Sums:
    """Weighted means per group, for hard and soft membership alike, from one pass over the rows.

    Squares of values far from zero would cancel, so one of the group's own rows is subtracted
    first. A row that holds a share π of the group lies within σ/√π of its mean, so that a variance
    is right to 1/π roundings, however far apart the groups are.
    """

    def __init__(self, y: Vector | None, s: Vector, groups: Groups):
        from .._kernels import groups as kernels

        self._kernels = kernels
        rows = make_rows(groups, None)
        target = s if y is None else y
        # Some row weighs no less than the average one; half of that allows for rounding.
        count = groups.counts if groups.codes is not None else groups.n_known
        least = 0.5 * groups.shares * groups.n_known / np.maximum(count, 1.0)
        members = (rows.codes, rows.probabilities, rows.weight)
        first = kernels.first_rows(*members, least)
        r = target[first] - s[first]
        self._shift = np.column_stack([s[first], target[first], r, np.abs(r), r * r])
        self._sums = kernels.group_sums(s, target, *members, self._shift)
        self.total = self._sums[kernels.MASS]
        self.n_effective = self.total**2 / self._sums[kernels.MASS2]

    def moments(self, name: str) -> tuple[Vector, Vector]:
        """Mean and variance by group."""
        at = getattr(self._kernels, name)
        mean, square = self._sums[at : at + 2] / self.total
        shift = self._shift[:, (at - 2) // 2]
        if name in ("SIZE", "SQUARE"):
            off = mean - shift
        else:
            mean, off = mean + shift, mean
        return mean, np.maximum(square - off * off, 0.0)

    def covariance(self) -> Vector:
        """Of score and target."""
        at = self._kernels
        means = self._sums[[at.SCORE, at.TARGET]] / self.total
        return self._sums[at.PRODUCT] / self.total - means[0] * means[1]


# Influence of some rows on a number of group k: (k, rows) → values.
Influence = Callable[[int, Any], Vector]


class _ClusterSums:
    """Standard errors √(G/(G − 1)·Σ_c (Σωψ)²) / Σω of group means, from rows in clusters.

    Attributes
    ----------
    count : (K,) int array
        Clusters that hold a row of the group.
    """

    def __init__(self, groups: Groups):
        assert groups.cluster is not None
        weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
        self._parts: list[tuple[Any, Vector, NDArray[np.intp]]] = []
        for k in range(groups.n_groups):
            if groups.codes is not None:
                rows: Any = np.flatnonzero(groups.codes == k)
                mass = weight[rows]
            else:
                assert groups.probabilities is not None
                rows = np.flatnonzero(groups.probabilities[:, k] > 0)
                mass = weight[rows] * groups.probabilities[rows, k]
            self._parts.append(
                (rows, mass, np.unique(groups.cluster[rows], return_inverse=True)[1])
            )
        self.count = np.array([part.max(initial=-1) + 1 for _, _, part in self._parts])

    def error(self, psi: Influence) -> Vector:
        out = np.full(len(self._parts), np.nan)
        for k, (rows, mass, part) in enumerate(self._parts):
            count = self.count[k]
            if count > 1:
                sums = np.bincount(part, mass * psi(k, rows))
                out[k] = np.sqrt(sums @ sums * count / (count - 1)) / mass.sum()
        return out


def summarize_groups(
    y: Vector | None, s: Vector, groups: Groups, confidence_level: float, ranks: Ranks | None = None
) -> tuple[GroupTable, Disparities]:
    """Per-group table and gaps, over rows with a known group (`y`, `s` already restricted).

    Columns ``*_low`` and ``*_high`` are normal intervals at the confidence level from effective
    sample sizes or, with clusters, Student's t with sums of squares over clusters. `ranks` are
    those of `s`, where they are known already.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # scores beyond 1e154 have no variance
        return _summarize(y, s, groups, confidence_level, Ranks(s) if ranks is None else ranks)


def _summarize(
    y: Vector | None, s: Vector, groups: Groups, confidence_level: float, ranks: Ranks
) -> tuple[GroupTable, Disparities]:
    sums = _Sums(y, s, groups)
    size = sums.n_effective
    clusters = None
    z = np.full(groups.n_groups, float(ndtri(0.5 + confidence_level / 2)))
    if groups.cluster is not None:
        clusters = _ClusterSums(groups)
        size = group_sizes(groups)
        z = stdtrit(np.maximum(size - 1.0, 1e-300), 0.5 + confidence_level / 2)
    columns: dict[str, list] = {
        "group": list(groups.label_names),
        "n": [float(c) if groups.codes is None else int(c) for c in groups.counts],
        "share": groups.shares.tolist(),
        "n_effective": size.tolist(),
    }
    if clusters is not None:
        columns["n_clusters"] = clusters.count.tolist()

    def add(name: str, value: Vector, variance: Vector, psi: Influence) -> None:
        error = np.sqrt(variance / size) if clusters is None else clusters.error(psi)
        margin = np.where(size > 1.0 + 1e-9, z * error, np.nan)
        columns[name] = value.tolist()
        columns[f"{name}_low"] = (value - margin).tolist()
        columns[f"{name}_high"] = (value + margin).tolist()

    mean_s, variance_s = sums.moments("SCORE")
    add("mean_score", mean_s, variance_s, lambda k, at: s[at] - mean_s[k])
    columns["sd_score"] = np.sqrt(variance_s).tolist()
    rmse_ratio = float("nan")
    if y is not None:
        target = y
        mean_y, variance_y = sums.moments("TARGET")
        add("mean_target", mean_y, variance_y, lambda k, at: target[at] - mean_y[k])
        columns["sd_target"] = np.sqrt(variance_y).tolist()
        mean_r, variance_r = sums.moments("RESIDUAL")
        add("mean_residual", mean_r, variance_r, lambda k, at: target[at] - s[at] - mean_r[k])
        columns["sd_residual"] = np.sqrt(variance_r).tolist()
        mae, variance_a = sums.moments("SIZE")
        add("mae", mae, variance_a, lambda k, at: np.abs(target[at] - s[at]) - mae[k])
        mse, variance_q = sums.moments("SQUARE")
        rmse = np.sqrt(mse)
        with np.errstate(invalid="ignore", divide="ignore"):
            add(
                "rmse", rmse, np.where(rmse > 0, variance_q / (4 * mse), 0.0),
                lambda k, at: ((target[at] - s[at]) ** 2 - mse[k]) / (2 * rmse[k] or 1.0),
            )  # fmt: skip
            # E[y|s] = a + b·s within the group: b = 1 where scores are calibrated.
            covariance = sums.covariance()
            slope = np.where(variance_s > 0, covariance / variance_s, np.nan)
            # Of y, or of the residual, whichever is the smaller, is left what s does not explain:
            # the same number, but of good scores y leaves little more than rounding.
            close = covariance - variance_s
            left = np.where(
                variance_r < variance_y,
                variance_r - close * close / variance_s,
                variance_y - slope * covariance,
            )
            left = np.maximum(left, 0.0)
            add("calibration_slope", slope, left / variance_s, lambda k, at: (
                (s[at] - mean_s[k]) / variance_s[k]
                * (target[at] - mean_y[k] - slope[k] * (s[at] - mean_s[k]))
            ))  # fmt: skip
            rmse_ratio = float(rmse.max() / rmse.min()) if rmse.min() > 0 else float("nan")
    ks, wasserstein = _distribution_gaps(ranks, groups)
    columns["kolmogorov_smirnov"] = ks.tolist()
    columns["wasserstein"] = wasserstein.tolist()
    gaps = Disparities(
        float(mean_s.max() - mean_s.min()), float(ks.max()), float(wasserstein.max()), rmse_ratio
    )
    return GroupTable(columns), gaps


def _distribution_gaps(ranks: Ranks, groups: Groups) -> tuple[Vector, Vector]:
    """Kolmogorov-Smirnov and Wasserstein distance of each group from all other rows, (K,) each."""
    from .._kernels.groups import mass_by_cell

    cell, points = ranks.distribution()
    rows = make_rows(groups, None)
    members = rows.codes, rows.probabilities, rows.weight
    everyone = np.bincount(cell, groups.weight, len(points)).cumsum()
    # A value between two others has no width: only the end of a run counts.
    step = np.append(np.diff(points), 1.0)
    ends = step > 0
    ks, wasserstein = np.empty(groups.n_groups), np.empty(groups.n_groups)
    # A few groups at a time: a column for each of many would be far larger than the data.
    size = max(1, _GAP_NUMBERS // len(points))
    for first in range(0, groups.n_groups, size):
        part = slice(first, min(first + size, groups.n_groups))
        below = np.zeros((len(points), part.stop - first))
        mass_by_cell(cell, *members, first, below)
        np.cumsum(below, axis=0, out=below)
        total = below[-1].copy()
        rest = everyone[:, None] - below
        with np.errstate(invalid="ignore", divide="ignore"):
            below /= total
            rest /= everyone[-1] - total
        gap = np.abs(np.subtract(below, rest, out=rest), out=rest)
        ks[part] = gap[ends].max(axis=0)
        wasserstein[part] = step[:-1] @ gap[:-1]
    return ks, wasserstein
