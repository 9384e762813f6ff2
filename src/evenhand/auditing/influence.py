"""One number for each group, with what every row adds to it: the errors of all tables.

    m_k = Σ_i ω_i a_ik x_i / W_k
    Var m_k = n_k/(n_k − 1) · Σ_u (Σ_{i∈u} ω_i a_ik (x_i − m_k) / W_k)²

a_ik is 1 for the row's group, or its probability; u is a cluster, or a row by itself; n_k is the
effective number of them. A smooth function of means has the influences of the means times its
slopes, so that every entry of a table is a mean or made of means, with or without weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from .._core.arrays import Array, Matrix, Vector
from .._core.validation import InputError, is_one_of
from ..data.groups import Groups
from ..data.labels import label_text
from ..data.weights import cluster_groups
from ..measures.effective import group_sizes

# Skewness below this is none to speak of.
NO_SKEWNESS = 0.05
# Draws behind a simultaneous quantile, as a power of two; its error is about 0.01.
_DRAWS = 14


class GroupRows:
    """Rows of groups that are known or inferred, weighted or not, in clusters or not.

    Attributes
    ----------
    size : (K,) array
        Effective rows, or clusters, of each group.
    total : (K,) array
        W_k.
    """

    def __init__(self, groups: Groups):
        self.groups, self.size = groups, group_sizes(groups)
        weight = groups.row_weight
        self.total = groups.shares * weight.sum()
        self._mass = groups.weight
        # Rows in the order of their groups add up ten times as fast.
        codes, self._start = groups.codes, None
        if codes is not None and (codes[1:] >= codes[:-1]).all() and groups.counts.all():
            self._start = np.searchsorted(codes, np.arange(groups.n_groups))
            self._parts = [*map(slice, self._start, [*self._start[1:], len(codes)])]
        if groups.codes is None:
            self._mass = weight[:, None] * groups.membership()
        with np.errstate(divide="ignore", invalid="ignore"):
            inflate = np.where(self.size > 1.0 + 1e-9, self.size / (self.size - 1.0), np.nan)
            self._scale = np.sqrt(inflate) / self.total

    def apply(self, operation: np.ufunc, x: Array, numbers: Vector) -> Array:
        """An operation on x and the number that each row sees: that of its group, or all."""
        if self._start is None:
            codes = self.groups.codes
            return np.asarray(operation(x, numbers if codes is None else numbers[codes]))
        out = np.empty(len(x))
        for part, number in zip(self._parts, numbers, strict=True):
            operation(x[part], number, out=out[part])
        return out

    def add(self, x: Array) -> Vector:
        """Σ ω a_k x, (K,), of a column, or of one column per group where groups are inferred."""
        if self.groups.codes is None:
            return self.weigh(x[:, None] if x.ndim == 1 else x).sum(axis=0)
        return self._add_units(self.weigh(x))

    def weigh(self, x: Array) -> Array:
        """ω a_k x: rows by their weights, or by those of each group."""
        return x if self._mass is None else self._mass * x

    def mean(self, x: Array) -> Entry:
        """Means of a column; of numbers far from zero as exact as of their differences."""
        if self.groups.codes is None and x.ndim == 1:
            x = x[:, None]
        mean = self.add(x) / self.total
        psi = self.apply(np.subtract, x, mean)
        rest = self.add(psi) / self.total
        return Entry(self, mean + rest, self.apply(np.subtract, psi, rest))

    def by_unit(self, psi: Array) -> Any:
        """Σ ω ψ of units: one number per row for known groups of single rows, else units × K."""
        groups, values = self.groups, self.weigh(psi)
        if groups.cluster is None:
            return values
        if groups.codes is None:
            return cluster_groups(groups.cluster, values)
        from scipy.sparse import coo_array

        shape = (groups.n_units, groups.n_groups)
        return coo_array((values, (groups.cluster, groups.codes)), shape=shape).tocsr()

    def moment(self, *units: Any) -> Vector:
        """Σ_u of products of influences on each group, (K,)."""
        scale = self._scale ** len(units)
        return self._add_units(reduce(mul, units)) * scale

    def _add_units(self, values: Any) -> Vector:
        if values.ndim > 1:
            return np.asarray(values.sum(axis=0))
        if self._start is not None:
            return np.add.reduceat(values, self._start, dtype=float)
        assert self.groups.codes is not None
        return np.bincount(self.groups.codes, values, self.groups.n_groups).astype(float)

    def cross(self, units: Any, common: Vector) -> Vector:
        """Covariance of each group's number with one of all rows, by their influences, (K,)."""
        one = units.ndim == 1
        return (self._add_units(units * common) if one else units.T @ common) * self._scale

    def covariance(self, units: Sequence[Any]) -> Array:
        """Of d numbers of all groups, (d, K, d, K), from their influences by unit."""
        d, K = len(units), self.groups.n_groups
        out = np.zeros((d, K, d, K))
        for j in range(d):
            for m in range(j, d):
                u, v = units[j], units[m]
                if u.ndim == 1:
                    block: Matrix = np.diag(self.moment(u, v))
                else:
                    product = u.T @ v
                    block = product if isinstance(product, np.ndarray) else product.toarray()
                    block = block * np.outer(self._scale, self._scale)
                out[j, :, m, :] = block
                out[m, :, j, :] = block.T
        return out


@dataclass(frozen=True)
class Entry:
    """One number of each group.

    Attributes
    ----------
    rows : GroupRows
    value : (K,) array
    psi : (n,) or (n, K) array
        What each row adds, before its weight: x − m_k for a mean.
    few_decide : bool
        A few rows make up most of the error, as far scores do that of a slope.
    """

    rows: GroupRows
    value: Vector
    psi: Array
    few_decide: bool = False

    def __truediv__(self, other: Entry) -> Entry:
        value, rows = self.value / other.value, self.rows
        psi = self.psi - rows.apply(np.multiply, other.psi, value)
        return Entry(rows, value, rows.apply(np.divide, psi, other.value))

    @property
    def stderr(self) -> Vector:
        """(K,); NaN for a group of one row or cluster."""
        units = self.rows.by_unit(self.psi)
        return np.sqrt(self.rows.moment(units, units))

    def interval(self, confidence_level: float) -> tuple[Vector, Vector]:
        """Ends by Student's t, with as many degrees of freedom as effective units less one.

        Where few rows decide, freedom is that of their squares, (Σψ²)²/Σψ⁴ less one, and ends allow
        for skewness. A group whose few large values happen to be missing looks harmless by itself,
        so tails are those of the group or of all groups together, the heavier ones. Slopes of
        lognormal premiums and severities are covered in 93 to 97 % so, by t in 83 to 90 %.
        """
        freedom, skewness = np.maximum(self.rows.size - 1.0, 1e-300), np.zeros(len(self.value))
        stderr = self.stderr
        if self.few_decide:
            units = self.rows.by_unit(self.psi)
            two, three, four = (self.rows.moment(*[units] * p) for p in (2, 3, 4))
            size, share = self.rows.size, self.rows.groups.shares
            skewness, peak = np.nan_to_num(three / two**1.5), np.nan_to_num(four / two**2)
            shape = (skewness * np.sqrt(size)) @ share / np.sqrt(size)
            skewness = np.where(np.abs(shape) > np.abs(skewness), shape, skewness)
            peak = np.maximum(peak, (peak * size) @ share / size)
            freedom = np.minimum(freedom, np.maximum(np.nan_to_num(1.0 / peak) - 1.0, 1.0))
        errors = stdtrit(freedom, 0.5 + confidence_level / 2)
        low, high = (with_skewness(sign * errors, skewness) for sign in (1.0, -1.0))
        return self.value - low * stderr, self.value - high * stderr


def with_skewness(errors: Any, skewness: Any) -> Vector:
    """Standard errors to a bound, where they would be `errors` without skewness g (Hall 1992).

    The inverse of T → ((1 + gT/3)³ − 1)/g + g/6, which is next to normal where T is not.
    """
    g = np.where(np.abs(skewness) < NO_SKEWNESS, np.nan, skewness)
    bent = 3.0 / g * (np.cbrt(1.0 + g * (errors - g / 6.0)) - 1.0)
    return np.where(np.isnan(g), errors, bent)


def without_skewness(errors: float, g: float) -> float:
    """The inverse of :func:`with_skewness`, of one number."""
    if abs(g) < NO_SKEWNESS or not math.isfinite(errors):
        return errors
    return ((1.0 + g * errors / 3.0) ** 3 - 1.0) / g + g / 6.0


def find_reference(reference: Any, names: Sequence[str], shares: Vector, others: str = "") -> int:
    """Number of the group that others are compared with: the largest, or one by its name.

    `others` are further words that the user may say, for the message.
    """
    if label_text(reference) in names:
        return list(names).index(label_text(reference))
    if is_one_of(reference, ("largest",)):
        return int(np.argmax(shares))
    there = ", ".join(map(repr, names[:10]))
    raise InputError("reference", f"be 'largest'{others} or one of {there}, got {reference!r}")


def two_sided(estimate: float, error: float, freedom: float, skewness: float = 0.0) -> float:
    """p-value that the true value is 0, by Student's t, of an error of some skewness."""
    if not (math.isfinite(estimate) and math.isfinite(error)):
        return math.nan
    if error == 0.0:
        return 1.0 if estimate == 0.0 else 0.0
    return float(2.0 * stdtr(freedom, -abs(without_skewness(estimate / error, skewness))))


def simultaneous_quantile(correlation: Matrix, level: float) -> float:
    """z with P(max_k |Z_k| ≤ z) = level for Z normal with this correlation, by quasi-random draws.

    Never more than Šidák's quantile, which is right for independent ones and safe for all others.
    """
    K = len(correlation)
    alone = float(ndtri(0.5 + level / 2))
    if K == 1:
        return alone
    from scipy.stats.qmc import Sobol

    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    uniform = Sobol(K, rng=0).random_base2(_DRAWS)
    draws = ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12)) @ root.T
    z = float(np.quantile(np.abs(draws).max(axis=1), level))
    sidak = float(ndtri(0.5 + 0.5 * level ** (1.0 / K)))
    return min(max(z, alone), sidak)


def holm(p: Any) -> Vector:
    """Holm's p-values, (m − j)·p_(j) made increasing; NaN stays NaN and does not count."""
    p = np.asarray(p, dtype=np.float64)
    out = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    out[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return out
