"""Group by group: sizes, means, errors, and the simple disparities people already know.

These put the three information measures in context; they do not replace them. Equal means hide
unequal spreads, and no single gap sees all of a distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtrit

from .._core.arrays import Array, Mask, Matrix, Rows, Vector
from ..data.groups import Groups
from ..data.sample import Sample
from ..data.weights import cluster_groups
from ..estimators.ranks import Ranks
from ..kernels import make_rows
from ..measures.effective import group_sizes

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
        from ..kernels import sums as kernels

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
        weight = groups.row_weight
        self._parts: list[tuple[Any, Vector, Rows]] = []
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
    rows: Sample, confidence_level: float, ranks: Ranks | None = None
) -> tuple[GroupTable, Disparities]:
    """Per-group table and gaps, over rows with a known group.

    Columns ``*_low`` and ``*_high`` are normal intervals at the confidence level from effective
    sample sizes or, with clusters, Student's t with sums of squares over clusters. `ranks` are
    those of the scores, where they are known already.
    """
    with np.errstate(all="ignore"):  # scores beyond 1e154 have no variance, equal ones no slope
        table = _Table(rows, confidence_level)
        table.add_scores()
        if rows.target is not None:
            table.add_errors(rows.target)
        ks, wasserstein = _distribution_gaps(ranks or Ranks(rows.scores), rows.groups)
    columns = table.columns | {
        "kolmogorov_smirnov": ks.tolist(),
        "wasserstein": wasserstein.tolist(),
    }
    rmse = np.array(columns.get("rmse", [0.0]))
    ends = rmse.min(), rmse.max()
    # Errors of enormous numbers are infinite, and have no ratio.
    ratio = float(ends[1] / ends[0]) if 0 < ends[0] < np.inf else float("nan")
    gap = float(np.ptp(columns["mean_score"]))
    gaps = Disparities(gap, float(ks.max()), float(wasserstein.max()), ratio)
    return GroupTable(columns), gaps


class _Table:
    """Columns of the table of groups, filled one number at a time."""

    def __init__(self, rows: Sample, level: float):
        groups = rows.groups
        self.s, self.sums = rows.scores, _Sums(rows.target, rows.scores, groups)
        self.size, self.clusters = self.sums.n_effective, None
        self.z = np.full(groups.n_groups, float(ndtri(0.5 + level / 2)))
        if groups.cluster is not None:
            self.clusters, self.size = _ClusterSums(groups), group_sizes(groups)
            self.z = stdtrit(np.maximum(self.size - 1.0, 1e-300), 0.5 + level / 2)
        self.columns: dict[str, list[Any]] = {
            "group": list(groups.label_names),
            "n": [float(c) if groups.codes is None else int(c) for c in groups.counts],
            "share": groups.shares.tolist(),
            "n_effective": self.size.tolist(),
        }
        if self.clusters is not None:
            self.columns["n_clusters"] = self.clusters.count.tolist()

    def add(
        self, name: str, value: Vector, variance: Vector, psi: Influence, spread: bool = False
    ) -> None:
        """A number with its interval, and the standard deviation where it is a mean."""
        clusters = self.clusters
        error = np.sqrt(variance / self.size) if clusters is None else clusters.error(psi)
        margin = np.where(self.size > 1.0 + 1e-9, self.z * error, np.nan)
        self.columns[name] = value.tolist()
        self.columns[f"{name}_low"] = (value - margin).tolist()
        self.columns[f"{name}_high"] = (value + margin).tolist()
        if spread:
            self.columns[name.replace("mean", "sd")] = np.sqrt(variance).tolist()

    def add_scores(self) -> None:
        s, (mean, variance) = self.s, self.sums.moments("SCORE")
        self.add("mean_score", mean, variance, lambda k, at: s[at] - mean[k], spread=True)

    def add_errors(self, y: Vector) -> None:
        """Targets, residuals, errors and the slope E[y|s] = a + b·s, 1 where calibrated."""
        s, sums = self.s, self.sums
        (mean_s, variance_s), (mean_y, variance_y) = sums.moments("SCORE"), sums.moments("TARGET")
        self.add("mean_target", mean_y, variance_y, lambda k, at: y[at] - mean_y[k], spread=True)
        r, (mean_r, variance_r) = y - s, sums.moments("RESIDUAL")
        self.add("mean_residual", mean_r, variance_r, lambda k, at: r[at] - mean_r[k], spread=True)
        mae, variance_a = sums.moments("SIZE")
        self.add("mae", mae, variance_a, lambda k, at: np.abs(r[at]) - mae[k])
        mse, variance_q = sums.moments("SQUARE")
        rmse = np.sqrt(mse)
        self.add(
            "rmse", rmse, np.where(rmse > 0, variance_q / (4 * mse), 0.0),
            lambda k, at: (r[at] ** 2 - mse[k]) / (2 * rmse[k] or 1.0),
        )  # fmt: skip
        covariance = sums.covariance()
        slope = np.where(variance_s > 0, covariance / variance_s, np.nan)
        # Of y, or of the residual, whichever is the smaller, is left what s does not explain:
        # the same number, but of good scores y leaves little more than rounding.
        left = np.where(
            variance_r < variance_y,
            variance_r - np.square(covariance - variance_s) / variance_s,
            variance_y - slope * covariance,
        )
        self.add("calibration_slope", slope, np.maximum(left, 0.0) / variance_s, lambda k, at: (
            (s[at] - mean_s[k]) / variance_s[k]
            * (y[at] - mean_y[k] - slope[k] * (s[at] - mean_s[k]))
        ))  # fmt: skip


def _distribution_gaps(ranks: Ranks, groups: Groups) -> tuple[Vector, Vector]:
    """Kolmogorov-Smirnov and Wasserstein distance of each group from all other rows, (K,) each."""
    from ..kernels.sums import mass_by_cell

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


# ------------------------------------------------------------------------------------------------
# Rows → means by group of a few functions of score and target, with the covariance of them all.
#
#     m_kj = Σ_i w_i a_ik x_j(i) / Σ_i w_i a_ik,    Cov = Σ_u ψ_u ψ_uᵀ
#
# a_ik is 1 for the row's group, or its probability; ψ_u sums the influence w_i a_ik (x_j(i) −
# m_kj) /
# W_k over the rows of unit u, a cluster or a row by itself. Everything that compares groups by
# their
# means, spreads or rates is a smooth function of these means, so that this is all it needs of rows.


# What is kept of an audit in a file: these cutoffs, and no more numbers than this.
KEPT_AT = (0.5, 0.2, 0.8)
KEPT_NUMBERS = 65_536
SIDES = ("high", "low")


@dataclass(frozen=True)
class Cutoff:
    """Where scores are cut: at a quantile of all rows, or at a value that is known beforehand.

    Attributes
    ----------
    quantile, value : float or None
        One of the two. Scores beyond a quantile are favorable, as are those that reach a value.
    """

    quantile: float | None = None
    value: float | None = None

    @property
    def name(self) -> str:
        if self.quantile is None:
            return f"score {self.value:g}"
        return "median" if self.quantile == 0.5 else f"{self.quantile:g}"


@dataclass(frozen=True)
class GroupMoments:
    """Means by group and their covariance.

    Attributes
    ----------
    labels : tuple of K str
    share, count, size : (K,) arrays
        Weighted share, rows, and effective rows or clusters of each group.
    n_units : float
        Effective rows or clusters in all; `n_clusters` their number, or None without clusters.
    names : tuple of d names
        "score", "spread" (of squared distances from the group's mean), "target", and a pair of
        cutoff and favorable side for the share of favorable scores.
    mean : (d, K) array
    covariance : (d, K, d, K) array
    cutoffs : dict of Cutoff → float
        The score it stands for.
    """

    labels: tuple[str, ...]
    share: Vector
    count: Vector
    size: Vector
    n_units: float
    n_clusters: int | None
    names: tuple[Any, ...]
    mean: Matrix
    covariance: Array
    cutoffs: dict[Cutoff, float]

    @property
    def has_target(self) -> bool:
        return "target" in self.names

    def moments(self, cutoffs: Sequence[Cutoff], side: str) -> GroupMoments:
        """Itself, where it holds all that is asked for."""
        missing = [c.name for c in cutoffs if (c, side) not in self.names]
        if missing:
            held = ", ".join(c.name for c in self.cutoffs)
            raise ValueError(
                f"`at` must be among {held} for an audit that was read back from a file, which "
                f"keeps no rows, got {', '.join(missing)}. Hint: ask for it where the audit is "
                "made, or audit again."
            )
        return self


class AuditedRows:
    """The rows of an audit, by reference: nothing is computed or copied before it is asked for.

    In a file it is replaced by the moments at a few cutoffs, which are small, or by None where the
    groups are too many for that.

    Parameters
    ----------
    rows : Sample
        Those with a known group.
    times : float
        People that each row stands for, as one of a sample does; errors count people.
    """

    def __init__(self, rows: Sample, times: float = 1.0):
        self._rows = Sample(rows.groups, rows.scores, rows.target)
        self._times = times

    @property
    def has_target(self) -> bool:
        return self._rows.target is not None

    def moments(self, cutoffs: Sequence[Cutoff], side: str | None) -> GroupMoments:
        """Means by group with these cutoffs; a side of None is both."""
        sides = SIDES if side is None else (side,)
        result = group_moments(self._rows, cutoffs, sides)
        times = self._times
        if times == 1.0:
            return result
        return replace(
            result, count=result.count * times, size=result.size * times,
            n_units=result.n_units * times, covariance=result.covariance / times,
        )  # fmt: skip

    def standing_for(self, people: int) -> AuditedRows:
        """The same rows as a sample of so many people."""
        return AuditedRows(self._rows, people / self._rows.n_rows)

    def change(self, other: AuditedRows) -> AuditedRows:
        """How far each row's score moves from these to other scores of the same rows."""
        moved = other._rows.scores - self._rows.scores
        return AuditedRows(Sample(self._rows.groups, moved), self._times)

    def small(self) -> GroupMoments | None:
        """What goes into a file."""
        width = (2 + self.has_target + 2 * len(KEPT_AT)) * self._rows.groups.n_groups
        if width * width > KEPT_NUMBERS:
            return None
        return self.moments([Cutoff(q) for q in KEPT_AT], None)


def group_moments(rows: Sample, cutoffs: Sequence[Cutoff], sides: Sequence[str]) -> GroupMoments:
    """The means and their covariance, with n_k/(n_k − 1) for the mean of each group.

    A cutoff at a quantile is itself an estimate, ĉ − c ≈ −(mean 1[s ≤ c] − q)/f(c): it moves the
    rate of group k by its density there, of which only the ratio to that of all rows is needed,
    f_k/f = P(k | s = c)/P(k), and read off the rows next to the cutoff.
    """
    y, s, groups = rows.target, rows.scores, rows.groups
    weight = groups.row_weight
    unit = _Units(groups, weight)
    shift = float(np.average(s, weights=weight))
    score = s - shift
    columns: dict[Any, Vector] = {} if y is None else {"target": y}
    at = {cutoff: _place(s, weight, cutoff) for cutoff in cutoffs}
    for cutoff, c in at.items():
        for side in sides:
            columns[cutoff, side] = _favorable(s, c, cutoff, side).astype(np.float64)
    columns = {"score": score, "spread": score, **columns}
    mean = {name: unit.mean(x) for name, x in columns.items()}
    mean["spread"] = unit.mean_square(score, mean["score"])
    influence = {
        name: unit.influence(x, mean[name], mean["score"] if name == "spread" else None)
        for name, x in columns.items()
    }
    names = tuple(columns)
    moved = {c: _moved(s, weight, at[c], c, groups) for c in cutoffs if c.quantile is not None}
    common = {c: unit.common((s <= at[c]).astype(np.float64) - (c.quantile or 0.0)) for c in moved}
    covariance = unit.covariance([influence[name] for name in names])
    K = groups.n_groups
    covariance = covariance.reshape(len(names), K, len(names), K)
    pull = np.zeros((len(names), K, len(common)))
    for j, name in enumerate(names):
        if isinstance(name, tuple) and name[0] in moved:
            sign = 1.0 if name[1] == "high" else -1.0
            pull[j, :, list(common).index(name[0])] = sign * moved[name[0]]
    if common and pull.any():
        shared = np.array(
            [[unit.cross(influence[name], v) for v in common.values()] for name in names]
        ).transpose(0, 2, 1)
        both = np.array([[u @ v for v in common.values()] for u in common.values()])
        mixed = np.einsum("jkc,lmc->jklm", shared, pull)
        covariance = covariance + mixed + mixed.transpose(2, 3, 0, 1)
        covariance += np.einsum("jkc,cd,lmd->jklm", pull, both, pull)
    mean["score"] = mean["score"] + shift
    return GroupMoments(
        groups.label_names, groups.shares, groups.counts, unit.size, groups.n_effective,
        None if groups.cluster is None else groups.n_units, names,
        np.array([mean[name] for name in names]), covariance, at,
    )  # fmt: skip


def _favorable(s: Vector, c: float, cutoff: Cutoff, side: str) -> Mask:
    if cutoff.quantile is None:
        return s >= c if side == "high" else s <= c
    return s > c if side == "high" else s < c


def _place(s: Vector, weight: Vector, cutoff: Cutoff) -> float:
    """The score with a weight share of q below; between two scores where the share is exact."""
    if cutoff.quantile is None:
        assert cutoff.value is not None
        return cutoff.value
    order = np.argsort(s, kind="stable")
    below = np.cumsum(weight[order])
    wanted = cutoff.quantile * below[-1]
    k = min(int(np.searchsorted(below, wanted * (1.0 - 1e-12))), len(s) - 1)
    exact = abs(below[k] - wanted) <= 1e-9 * wanted and k + 1 < len(s)
    return float((s[order[k]] + s[order[k + 1]]) / 2) if exact else float(s[order[k]])


def _moved(s: Vector, weight: Vector, c: float, cutoff: Cutoff, groups: Groups) -> Vector:
    """f_k(c)/f(c) for each group; 0 where many rows share the score c, which then stands fast."""
    total = float(weight.sum())
    assert cutoff.quantile is not None
    error = math.sqrt(cutoff.quantile * (1.0 - cutoff.quantile) / groups.n_effective)
    if float(weight[s == c].sum()) / total > 3.0 * error:
        return np.zeros(groups.n_groups)
    # A window of n^0.8 rows, the rate of a density estimate, and not less than 30.
    width = min(max(int(groups.n_effective**0.8), 30), len(s) - 1)
    far = np.abs(s - c)
    near = far <= np.partition(far, width)[width]
    if groups.codes is not None:
        inside = np.bincount(groups.codes[near], weight[near], groups.n_groups)
    else:
        assert groups.probabilities is not None
        inside = weight[near] @ groups.probabilities[near]
    return np.asarray(inside / weight[near].sum() / groups.shares)


class _Units:
    """Sums over independent units: rows, or clusters; hard or soft membership."""

    def __init__(self, groups: Groups, weight: Vector):
        self.groups, self.weight = groups, weight
        self.total = groups.shares * weight.sum()
        self.size = group_sizes(groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            inflate = np.where(self.size > 1.0 + 1e-9, self.size / (self.size - 1.0), np.nan)
        self.scale = np.sqrt(inflate) / self.total

    def mean(self, x: Vector) -> Vector:
        return self._sums(x) / self.total

    def mean_square(self, x: Vector, center: Vector) -> Vector:
        """Of distances from each group's center."""
        if self.groups.codes is not None:
            return self._sums((x - center[self.groups.codes]) ** 2) / self.total
        return np.maximum(self._sums(x * x) / self.total - center**2, 0.0)

    def influence(self, x: Vector, mean: Vector, center: Vector | None = None) -> Any:
        """w a_k (x − m_k)/W_k by row, or by cluster; x is squared about `center` if given.

        For known groups without clusters one number a row, else units × K.
        """
        groups = self.groups
        if groups.codes is not None:
            codes = groups.codes
            values = x if center is None else (x - center[codes]) ** 2
            psi = self.weight * (values - mean[codes]) * self.scale[codes]
            if groups.cluster is None:
                return psi
            from scipy.sparse import coo_array

            shape = (groups.n_units, groups.n_groups)
            return coo_array((psi, (groups.cluster, codes)), shape=shape).tocsr()
        assert groups.probabilities is not None
        wide = x[:, None] if center is None else (x[:, None] - center) ** 2
        soft = self.weight[:, None] * groups.probabilities * (wide - mean) * self.scale
        return soft if groups.cluster is None else cluster_groups(groups.cluster, soft)

    def common(self, x: Vector) -> Vector:
        """w x / W of all rows, by unit."""
        values = self.weight * x / self.weight.sum()
        cluster = self.groups.cluster
        return values if cluster is None else _added(cluster, values, self.groups.n_units)

    def cross(self, psi: Any, common: Vector) -> Vector:
        """Covariance of each group's mean with that of all rows, (K,)."""
        codes = self.groups.codes
        if psi.ndim == 1 and codes is not None:
            return _added(codes, psi * common, self.groups.n_groups)
        return np.asarray(psi.T @ common)

    def covariance(self, influences: Sequence[Any]) -> Matrix:
        """Of all means, (dK, dK)."""
        d, K, codes = len(influences), self.groups.n_groups, self.groups.codes
        out = np.zeros((d, K, d, K))
        for j in range(d):
            for m in range(j, d):
                u, v = influences[j], influences[m]
                if u.ndim == 1 and codes is not None:
                    block: Matrix = np.diag(_added(codes, u * v, K))
                else:
                    product = u.T @ v
                    block = product if isinstance(product, np.ndarray) else product.toarray()
                out[j, :, m, :] = block
                out[m, :, j, :] = block.T
        return out.reshape(d * K, d * K)

    def _sums(self, x: Vector) -> Vector:
        groups = self.groups
        if groups.codes is not None:
            return _added(groups.codes, self.weight * x, groups.n_groups)
        assert groups.probabilities is not None
        return (self.weight * x) @ groups.probabilities


def _added(code: Rows, values: Vector, count: int) -> Vector:
    """Σ of the values of each code."""
    return np.bincount(code, values, count).astype(np.float64, copy=False)
