"""Rows → means by group of a few functions of score and target, with the covariance of them all.

    m_kj = Σ_i w_i a_ik x_j(i) / Σ_i w_i a_ik,    Cov = Σ_u ψ_u ψ_uᵀ

a_ik is 1 for the row's group, or its probability; ψ_u sums the influence w_i a_ik (x_j(i) − m_kj) /
W_k over the rows of unit u, a cluster or a row by itself. Everything that compares groups by their
means, spreads or rates is a smooth function of these means, so that this is all it needs of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..groups.clusters import cluster_groups
from ..groups.sensitive import Groups
from ..information.effective import group_sizes

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
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
    covariance: NDArray[np.float64]
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
    y, s : (m,) arrays over the rows with a known group; `y` may be None
    groups : Groups
    times : float
        People that each row stands for, as one of a sample does; errors count people.
    """

    def __init__(self, y: Vector | None, s: Vector, groups: Groups, times: float = 1.0):
        self._y, self._s, self._groups, self._times = y, s, groups, times

    @property
    def has_target(self) -> bool:
        return self._y is not None

    def moments(self, cutoffs: Sequence[Cutoff], side: str | None) -> GroupMoments:
        """Means by group with these cutoffs; a side of None is both."""
        sides = SIDES if side is None else (side,)
        found = group_moments(self._y, self._s, self._groups, cutoffs, sides)
        times = self._times
        if times == 1.0:
            return found
        return replace(
            found, count=found.count * times, size=found.size * times,
            n_units=found.n_units * times, covariance=found.covariance / times,
        )  # fmt: skip

    def standing_for(self, people: int) -> AuditedRows:
        """The same rows as a sample of so many people."""
        return AuditedRows(self._y, self._s, self._groups, people / len(self._s))

    def change(self, other: AuditedRows) -> AuditedRows:
        """How far each row's score moves from these to other scores of the same rows."""
        return AuditedRows(None, other._s - self._s, self._groups, self._times)

    def small(self) -> GroupMoments | None:
        """What goes into a file."""
        width = (2 + self.has_target + 2 * len(KEPT_AT)) * self._groups.n_groups
        if width * width > KEPT_NUMBERS:
            return None
        return self.moments([Cutoff(q) for q in KEPT_AT], None)


def group_moments(
    y: Vector | None, s: Vector, groups: Groups, cutoffs: Sequence[Cutoff], sides: Sequence[str]
) -> GroupMoments:
    """The means and their covariance, with n_k/(n_k − 1) for the mean of each group.

    A cutoff at a quantile is itself an estimate, ĉ − c ≈ −(mean 1[s ≤ c] − q)/f(c): it moves the
    rate of group k by its density there, of which only the ratio to that of all rows is needed,
    f_k/f = P(k | s = c)/P(k), and read off the rows next to the cutoff.
    """
    weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
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


def _favorable(s: Vector, c: float, cutoff: Cutoff, side: str) -> NDArray[np.bool_]:
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


def _added(code: NDArray[np.intp], values: Vector, count: int) -> Vector:
    """Σ of the values of each code."""
    return np.bincount(code, values, count).astype(np.float64, copy=False)
