"""Covariances between groups and test functions, and what they would be by chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve
from scipy.special import gammaincc
from scipy.stats import f as f_law

from .._core.arrays import Array, Rows
from ..estimators._newton import multinomial_products
from ..estimators.ranks import RankedRows, Ranks, neighbor_slopes, scattered_rows

# Products that a covariance of units may take.
SANDWICH_WORK = 4e9
# Directions of the test functions with less than this share of variance are not tested.
RANK_TOLERANCE = 1e-2

NO_FLOATS = np.empty(0)
_NO_CODES = np.empty(0, dtype=np.intp)


@dataclass(frozen=True)
class Members:
    """Membership of the rows tested, without the column of the largest group.

    `codes` number the groups with the reference last; `soft` is (m, K − 1) or None. For a
    measurement (`measured`) soft columns are three functions of it: level, spread and skew.
    `parts` are codes of the groups that these are made of, and the number here of each of them.
    """

    codes: Rows | None
    soft: Any
    n_groups: int
    note: str = ""
    measured: bool = False
    parts: tuple[Rows, Rows] | None = None

    def take(self, rows: Any) -> Members:
        codes = None if self.codes is None else self.codes[rows]
        soft = None if self.soft is None else self.soft[rows]
        return replace(self, codes=codes, soft=soft, parts=None)

    def column(self, k: int) -> Array:
        """Membership of group k; the reference group comes last and has no column of its own."""
        if self.codes is not None:
            return (self.codes == k).astype(np.float64)
        return self.soft[:, k] if k < self.n_groups - 1 else 1.0 - self.soft.sum(axis=1)

    def columns(self, rows: Any = slice(None)) -> Array:
        """(m, K − 1) membership of some rows, without the reference group."""
        if self.codes is None:
            return self.soft[rows]
        codes = self.codes[rows]
        out = np.zeros((len(codes), self.n_groups))
        out[np.arange(len(codes)), codes] = 1.0
        return out[:, :-1]

    def directions(self, n_features: int) -> list[Any]:
        """Places in U of the covariances tested, in the order in which they are taken.

        Of groups those of all groups with one test function after another; of a measurement those
        of functions j and k with j + k ≤ 4, and of the first two along the conditioning variable.
        """
        if self.measured:
            pairs = [[0], [1, n_features], [n_features + 1], [2, 2 * n_features], [3]]
            return pairs if n_features > 4 else pairs[:-1]
        first = np.arange(self.n_groups - 1) * n_features
        return [first + k for k in range(n_features)]


class RowsInCells(NamedTuple):
    """What the test functions are made of; z is empty for independence.

    u : rank of the tested variable given the conditioning one;  v, z : rank and normal score of the
    latter;  cell, center, slope : cell of each row, mean of z and slope of f along z in each cell
    """

    u: Array
    v: Array
    z: Array
    cell: NDArray[np.int32]
    center: Array
    slope: Array


class Scores:
    """U (K − 1, J) and its null covariance V = Σ_c S_a,c ⊗ S_f,c / (n_c − 1).

    S_a,c and S_f,c are scatters within a cell, and V the exact covariance over all permutations of
    the groups within cells.
    """

    def __init__(self, rows: RowsInCells, members: Members, once: Any = lambda f, _: f()) -> None:
        from ..kernels import contrasts as kernels

        g = members.n_groups - 1
        codes, number = members.parts or (members.codes, np.arange(members.n_groups))
        own = _NO_CODES if codes is None else codes
        sums = once(lambda: kernels.cell_moments(*rows, own, len(number)), codes)
        size, first, second, counts, total = sums
        merge = np.eye(members.n_groups)[number]
        counts, total = counts @ merge, merge.T @ total
        self.mean = first / size[:, None]
        scatter = second - size[:, None, None] * self.mean[:, :, None] * self.mean[:, None, :]
        scale = 1.0 / np.maximum(size - 1.0, 1.0)
        # What is left of a constant after subtraction is rounding, not spread.
        noise = 1e-12 * np.trace(second, axis1=1, axis2=2)
        scale[np.trace(scatter, axis1=1, axis2=2) <= noise] = 0.0
        scatter *= scale[:, None, None]
        if members.soft is None:
            self.total = total[:g] - counts[:, :g].T @ self.mean
            share = counts.T[:g] / size
            self.covariance = multinomial_products(share, (scatter * size[:, None, None]).T)
        else:
            member_scatter = _soft_scatter(members.soft, rows.cell, size)
            self.total = members.soft.T @ (kernels.feature_matrix(*rows) - self.mean[rows.cell])
            blocks = np.tensordot(member_scatter, scatter, (0, 0)).transpose(0, 2, 1, 3)
            self.covariance = blocks.reshape(self.total.size, self.total.size)


def _soft_scatter(soft: Array, cell: NDArray[np.int32], size: Array) -> Array:
    n_cells, g = len(size), soft.shape[1]
    centered = [column - (np.bincount(cell, column, n_cells) / size)[cell] for column in soft.T]
    out = np.empty((n_cells, g, g))
    for k in range(g):
        for j in range(k + 1):
            out[:, k, j] = out[:, j, k] = np.bincount(cell, centered[k] * centered[j], n_cells)
    return out


def root_inverse(covariance: Array, tolerance: float = RANK_TOLERANCE) -> Array:
    """R with RRᵀ the pseudo-inverse, on the scale of correlations; its columns are the rank."""
    inverse, correlation = _correlations(covariance)
    values, vectors = np.linalg.eigh(correlation)
    keep = values > tolerance
    return inverse[:, None] * vectors[:, keep] / np.sqrt(values[keep])


def quadratic_form(u: Array, covariance: Array) -> tuple[float, int]:
    """|uᵀR|² and the rank of R = :func:`root_inverse`, from the eigenvectors left out of it only.

    Of 300 groups, 1,800 directions, that takes half as long.
    """
    inverse, correlation = _correlations(covariance)
    values, vectors = eigh(correlation, subset_by_value=(-np.inf, RANK_TOLERANCE))
    x = u * inverse
    x -= vectors @ (vectors.T @ x)
    correlation += (vectors * (1.0 - values)) @ vectors.T
    return float(x @ solve(correlation, x, assume_a="pos")), len(x) - len(values)


def _correlations(covariance: Array) -> tuple[Array, Array]:
    """Inverse standard deviations, 0 for one that is rounding, and the correlations."""
    spread = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    used = (spread > 1e-9 * spread.max()) & (spread.max() > 1e-12)
    inverse = np.where(used, 1.0 / np.where(used, spread, 1.0), 0.0)
    return inverse, covariance * inverse[:, None] * inverse[None, :]


# ------------------------------------------------------------------------------------------------
# Covariances from independent units: clusters of rows, or rows under weights.
#
# Permuting rows is no reference there: rows of a cluster are not exchangeable with others, and a
# weight that depends on group and tested variable jointly belongs to neither of them.


# Clusters that a cell must hold on average, as rows do without clusters.
CELL_CLUSTERS = 10
# Fewer clusters say nothing about how much clusters differ.
MIN_CLUSTERS = 10
# Units that a tested direction asks for; fewer test functions are used where there are fewer units.
# With 20 rows, weights of e^(-score) in one of two groups reject 10 % at 0.05 (300 rows), with 40
# 6 %.
CLUSTERS_A_DIRECTION = 20
ROWS_A_DIRECTION = 40
# ν is too large as often as too small, and the former does more harm: ν² / (ν + this) is used.
UNITS_IN_DOUBT = 10.0
# Rows that a sample may have missed of each group, as heavy in it as one in so many rows of the
# table is in its own. With none, weights that go with group and score reject 10 % at 0.05 in a
# group of 25 of 500 rows, with 1.5 7 %, with three 4.7 %.
UNSEEN_ROWS = 3.0


class UnitScores:
    """T² = Uᵀ V⁺ U with U = Σ_g S_g and V = Σ_g S_g S_gᵀ over units g.

    S_g = Σ_{i∈g} (W_c/n_c) w_i (a_i − ā_c) ⊗ (f_i − f̄_c) / r_gc. In a cell the sum over all units
    is Σ_{i<j} w_i w_j (a_i − a_j)(f_i − f_j) / n_c, whose mean is zero under the weighted
    distribution whatever the weights depend on; divided by W_c, as a weighted covariance is, it
    would not be. q = 1 − 2W_gc/W_c + Σ W_gc²/W_c² is what estimating the means of a cell leaves of
    the variance of a unit in it, 1 where a unit is a whole cell, and q² of its covariance with the
    same unit in another cell; r² is q for rows, and q² for clusters.

    T² is referred to Hotelling's distribution with ν degrees of freedom. Clusters: ν = (Σ M)² / Σ
    M² with M_g = W_g Σ_{i∈g} w_i (a_i − ā_c)², the clusters that a group's contrast rests on, and
    T² is taken with V about the mean of the S_g. Rows: ν = p(p + 2) / Σ_g (S_gᵀ V⁺ S_g)² − 2, the
    number of equal normal units that would spread V as much. A sample that missed the few rows of
    large weight has a small V and a sum off to the other side: a whitened sum z of skewness γ
    counts as z + γ(2z² + 1)/6 (Johnson 1978) where that is less, and of one single cell T² shrinks
    as it would with what :data:`UNSEEN_ROWS` more rows of each group add to V.
    """

    def __init__(
        self, rows: RowsInCells, members: Members, weight: Array | None, cluster: Rows | None
    ) -> None:
        clusters = cluster is not None
        unit = cluster if cluster is not None else np.arange(len(rows.cell))
        a_direction = CLUSTERS_A_DIRECTION if clusters else ROWS_A_DIRECTION
        self._rows, self._members = rows, members
        missed = weight is not None and len(rows.slope) == 1 and not members.measured
        weight = np.ones(len(unit)) if weight is None else weight
        self._set_up(weight, unit)
        self.statistic, self.dof, self.units = 0.0, 0, 0.0
        total, covariance = self._total(), self._covariance()
        blocks = members.directions(rows.slope.shape[1])
        asked = a_direction * np.cumsum([len(block) for block in blocks])
        units = self._leverage(weight, unit) if clusters else float(self.n_units)
        width = max(int((asked <= units).sum()), 1)
        while width:
            used = np.sort(np.concatenate(blocks[:width]))
            root = root_inverse(covariance[np.ix_(used, used)])
            dof = root.shape[1]
            if not dof:
                return
            if not clusters:
                third, fourth = self._moments(used, root)
                units = dof * (dof + 2.0) / fourth - 2.0
                units = units * units / (units + UNITS_IN_DOUBT)
            self.dof, self.units = dof, min(units, self.n_units - 1.0)
            if self.units > a_direction * dof or width == 1:
                break
            width = min(width - 1, max(int((asked <= self.units).sum()), 1))
        z = total[used] @ root
        if clusters:
            self.statistic = float(z @ z)
            self.statistic /= max(1.0 - self.statistic / self.n_units, 1e-12)
        else:
            skewed = z + np.clip(third, -1.0, 1.0) * (2.0 * z * z + 1.0) / 6.0
            self.statistic = float(np.minimum(z * z, skewed * skewed).sum())
        if missed and self.statistic:
            covariance += self._unseen(weight)
            less = total[used] @ root_inverse(covariance[np.ix_(used, used)])
            self.statistic *= float(less @ less / (z @ z))

    @property
    def dof_left(self) -> float:
        """Degrees of freedom of the denominator, one at least: so few reject hardly ever."""
        return max(self.units - self.dof + 1.0, 1.0)

    @property
    def p_value(self) -> float:
        if not self.dof:
            return 1.0
        scaled = self.statistic * self.dof_left / (self.dof * max(self.units, 1.0))
        return float(f_law.sf(scaled, self.dof, self.dof_left))

    def _set_up(self, weight: Array, unit: Rows) -> None:
        from ..kernels.contrasts import feature_matrix

        cell, n_cells = self._rows.cell, len(self._rows.slope)
        self._order = np.argsort(unit, kind="stable")
        ordered = unit[self._order]
        self._start = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        self.n_units = len(self._start)
        self._sample()
        mass = np.bincount(cell, weight, n_cells)
        size = np.bincount(cell, minlength=n_cells)
        # Mass of a unit in a cell, by rows.
        pair = unit.astype(np.int64) * n_cells + cell
        _, which = np.unique(pair, return_inverse=True)
        part = np.bincount(which, weight)
        first = np.zeros(len(part), dtype=np.int64)
        first[which] = cell
        square = np.bincount(first, np.square(part), n_cells) / np.square(mass)
        left = 1.0 - 2.0 * part[which] / mass[cell] + square[cell]
        whole = part[which] > (1.0 - 1e-12) * mass[cell]
        left = np.where(whole, 1.0, np.maximum(left, 1e-9))
        self._plain = weight * (mass / np.maximum(size, 1))[cell]
        self._factor = self._plain / (left if self.n_units < len(unit) else np.sqrt(left))
        f = feature_matrix(*self._rows)
        sums = [np.bincount(cell, weight * column, n_cells) / mass for column in f.T]
        self._f = f - np.column_stack(sums)[cell]
        members = self._members
        groups = members.n_groups - 1
        columns = (weight * members.column(k) for k in range(groups))
        self._share = np.column_stack([np.bincount(cell, x, n_cells) / mass for x in columns])

    def _sample(self) -> None:
        """With many groups some of the units settle the covariance."""
        width = (self._members.n_groups - 1) * self._rows.slope.shape[1]
        stretch = max(int(self.n_units * width**2 // SANDWICH_WORK), 1)
        if stretch > 1:
            keep = np.zeros(self.n_units, dtype=bool)
            keep[scattered_rows(self.n_units, stretch)] = True
            sizes = np.diff(self._start, append=len(self._order))
            self._order = self._order[np.repeat(keep, sizes)]
            self._start = np.concatenate([[0], np.cumsum(sizes[keep])[:-1]])

    def _scores(self) -> Iterator[Array]:
        """S_g of the units, some at a time."""
        members, groups = self._members, self._share.shape[1]
        width = groups * self._f.shape[1]
        ends = np.append(self._start[1:], len(self._order))
        chunk = 1 + 2_000_000 // width
        low = 0
        while low < len(ends):
            high = max(low + 1, int(np.searchsorted(ends, self._start[low] + chunk)))
            part = self._order[self._start[low] : ends[high - 1]]
            a = members.columns(part) - self._share[self._rows.cell[part]]
            f = self._f[part] * self._factor[part, None]
            product = (a[:, :, None] * f[:, None, :]).reshape(len(part), width)
            yield np.add.reduceat(product, self._start[low:high] - self._start[low], axis=0)
            low = high

    def _leverage(self, weight: Array, unit: Rows) -> float:
        members, cell, sizes = self._members, self._rows.cell, []
        for k, share in enumerate(self._share.T):
            spread = weight * np.square(members.column(k) - share[cell])
            mass = np.bincount(unit, weight) * np.bincount(unit, spread)
            sizes.append(float(mass.sum() ** 2 / max(np.square(mass).sum(), 1e-300)))
        return min(sizes)

    def _total(self) -> Array:
        members, groups = self._members, self._share.shape[1]
        f = self._f * self._plain[:, None]
        if members.codes is None:
            return (members.soft.T @ f).ravel()
        sums = [np.bincount(members.codes, column, members.n_groups) for column in f.T]
        return np.column_stack(sums)[:groups].ravel().astype(np.float64, copy=False)

    def _covariance(self) -> Array:
        width = self._share.shape[1] * self._f.shape[1]
        out = np.zeros((width, width))
        for scores in self._scores():
            out += scores.T @ scores
        return out * (self.n_units / len(self._start))

    def _unseen(self, weight: Array) -> Array:
        """What the rows add that may have been missed: a product of scatters of groups and f."""
        members, codes = self._members, self._members.codes
        if codes is None:
            codes = np.argmax([members.column(k) for k in range(members.n_groups)], axis=0)
        rows = np.maximum(np.bincount(codes, minlength=members.n_groups), 1)
        mean = np.bincount(codes, weight, members.n_groups) / rows
        heavy = mean * np.quantile(weight / mean[codes], 1.0 - 1.0 / rows)
        own = np.eye(members.n_groups)[:, :-1] - self._share[0]
        f = (self._f.T * np.square(self._plain) / weight) @ self._f
        return np.kron((own.T * np.square(heavy)) @ own, UNSEEN_ROWS / weight.sum() * f)

    def _moments(self, used: Rows, root: Array) -> tuple[Array, float]:
        """Σ_g x³ of each whitened score x = S_gᵀR, and Σ_g |x|⁴."""
        third, fourth = np.zeros(root.shape[1]), 0.0
        for scores in self._scores():
            x = scores[:, used] @ root
            third += (x**3).sum(axis=0)
            fourth += float(np.square(np.square(x).sum(axis=1)).sum())
        scale = self.n_units / len(self._start)
        return third * scale, fourth * scale


def clusters_in_cells(
    cell: NDArray[np.int32], n_cells: int, cluster: Rows
) -> tuple[NDArray[np.int32], int, int]:
    """Cells merged with their neighbors until they hold enough clusters, and how many were merged.

    A variable that is the same in all rows of a cluster would otherwise leave one cluster a cell.
    """
    pairs = len(np.unique(cell.astype(np.int64) * (int(cluster.max()) + 1) + cluster))
    # Rows of all but a few clusters meet in a cell of ten: as good as independent ones.
    if pairs >= 0.8 * min(len(cell), CELL_CLUSTERS * n_cells):
        return cell, n_cells, 1
    merge = min(int(np.ceil(CELL_CLUSTERS * n_cells / pairs)), n_cells)
    return cell // np.int32(merge), -(-n_cells // merge), merge


def independent_rows(weight: Array | None, cluster: Rows | None, rng: np.random.Generator) -> Rows:
    """Rows drawn so that they are independent and follow the weighted distribution without weights.

    A row is kept with probability w / max w. With clusters, one row of each is drawn in proportion
    to w, and the cluster kept with probability W / max W.
    """
    if cluster is None:
        assert weight is not None
        return np.flatnonzero(rng.random(len(weight)) * weight.max() < weight)
    w = np.ones(len(cluster)) if weight is None else weight
    order = np.argsort(cluster, kind="stable")
    total = np.bincount(cluster, w)
    upto = np.cumsum(w[order])
    point = np.concatenate([[0.0], np.cumsum(total)[:-1]]) + rng.random(len(total)) * total
    last = np.cumsum(np.bincount(cluster)) - 1
    first = np.concatenate([[0], last[:-1] + 1])
    row = order[np.clip(np.searchsorted(upto, point), first, last)]
    return np.sort(row[rng.random(len(total)) * total.max() < total])


# ------------------------------------------------------------------------------------------------
# A scan for dependence of any shape: contrasts at all resolutions, each with its null variance.
#
# Test functions are a few smooth ones. Groups that trade places from one value to the next leave no
# trace in them, but do so in contrasts of neighboring bins at the scale on which they trade places,
# whatever it is.


# Halvings of the tested variable, and of the conditioning one.
MAX_DEPTH = 7
MAX_HEIGHT = 6
# Rows a bin holds at the finest level, at least.
BIN_ROWS = 8
# Rectangles whose contrast has less null variance (in rows of a group) are left out.
LEAST_VARIANCE = 1.0
# Beyond this many rows a scattered sample of them is scanned.
MAX_ROWS = 100_000
# Groups scanned at a time.
GROUPS_AT_A_TIME = 8
# Share of a function's variance within a cell that its slope along the conditioning variable may
# make up; the groups may have a slope there, too, and the two would be taken for dependence.
MAX_SLOPE = 0.05
# A function that is level in fewer of the rows is not used.
LEAST_LEVEL = 0.5


def scan_rows(n: int, n_groups: int) -> Rows | slice:
    """The rows scanned; with many groups, each of which is scanned, fewer."""
    most = max(MAX_ROWS * 4 // max(n_groups, 4), MAX_ROWS // 5)
    return slice(None) if n <= most else scattered_rows(n, -(-n // most))


def level_rank(
    target: Ranks | RankedRows, z: Array, cell: NDArray[np.int32], n_cells: int, exact: bool
) -> Array | None:
    """The rank of a variable, NaN in cells in which it follows z; None if it does so in most.

    `exact` says that a cell is a single value of the conditioning variable, z its normal score.
    """
    from ..kernels.contrasts import cell_lines

    if exact or target.n_atoms < 2:
        return target.rank if target.n_atoms > 1 else None
    size, *sums = cell_lines(z, target.normal, cell, n_cells)
    center, mean, second_z, second = (x / np.maximum(size, 1.0) for x in sums)
    slope = neighbor_slopes(center, mean[:, None])[:, 0]
    explained = np.square(slope) * (second_z - np.square(center))
    level = explained <= MAX_SLOPE * (second - np.square(mean))
    if size[level].sum() < LEAST_LEVEL * len(cell):
        return None
    return np.where(level[cell], target.rank, np.nan)


def difference(s: Array, y: Array) -> Ranks | None:
    """Ranks of s − y; None where it is rounding.

    Given one of them it says as much as the other, and what happens near s = y shows in it best.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        gap = s - y
        if not np.isfinite(gap).all() or np.ptp(gap) <= 1e-12 * np.abs(y).max():
            return None
    return Ranks(gap)


def scan_p_value(coordinates: Sequence[Array], cell: NDArray[np.int32], members: Members) -> float:
    """p of the mean of cot(π p_jk) over levels (j, k): the Cauchy combination.

    p_jk is of Q = Σ D²/V over the rectangles of a level, or of its largest term. D contrasts, in a
    block of cells, the rows of a group in two neighboring bins of the tested variable; its
    variance V over permutations of the groups within cells is exact. Of Q the mean is exact and
    the variance is 2m + Σ κ₄/V², which a gamma distribution matches; the largest term is bounded by
    Bennett's inequality.

    Parameters
    ----------
    coordinates : sequence of (m,) arrays
        Ranks in (0, 1) of functions of the tested and the conditioning variable; NaN in rows whose
        cell is too wide for the function.
    cell : (m,) int32 array
        Slice of the conditioning variable, numbered in its order.
    members : Members
        Every group is compared with all others.
    """
    from ..kernels.contrasts import scan_levels

    n = len(cell)
    size = np.bincount(cell).astype(float)
    depth = int(min(MAX_DEPTH, np.log2(max(n / BIN_ROWS, 2.0))))
    height = int(min(MAX_HEIGHT, np.ceil(np.log2(len(size)))))
    # Cells by the middle of their share of the rows, so that blocks are equally filled.
    middle = (np.cumsum(size) - 0.5 * size) / n
    block = np.minimum((middle * 2**height).astype(np.int64), 2**height - 1)
    shares = [_shares(cell, members, size, groups) for groups in _few_groups(members.n_groups)]
    p_values: list[Array] = []
    for x in coordinates:
        used = ~np.isnan(x)
        bins = (np.where(used, x, 0.0) * 2.0**depth).astype(np.int32)
        np.minimum(bins, 2**depth - 1, out=bins)
        allowed = np.bincount(cell[used], minlength=len(size)) > 0.5 * size
        scale = (allowed * size / np.maximum(size - 1.0, 1.0))[:, None]
        for own, (share, variance, fourth) in shares:
            moments = np.stack([share, scale * variance, scale * fourth])
            # A contrast of two equal halves has a quarter of the variance of its rows.
            most = 0.25 * (size @ moments[1]) / LEAST_VARIANCE
            p_values += _p_values(
                scan_levels(cell, bins, own, moments, block, depth, height, most, LEAST_VARIANCE)
            )
    p = np.concatenate(p_values) if p_values else np.empty(0)
    if not len(p):
        return float("nan")
    # Beyond ½ a cotangent would take from the others, and a bound of 1 all there is.
    return float(np.arctan2(1.0, np.mean(1.0 / np.tan(np.pi * np.minimum(p, 0.5)))) / np.pi)


def _p_values(levels: Array) -> Iterator[Array]:
    """p-values of all levels, group by group."""
    for level in levels:
        q, m, extra, bound = level[level[:, :, 1] > 0].T
        # Scaled gamma with mean m and variance 2m + Σ κ₄/V²; the latter may be negative near p = ½.
        scale = np.maximum(2.0 * m + extra, m) / m
        sums = gammaincc(m / scale, q / scale)
        largest = np.minimum(2.0 * m * np.exp(bound), 1.0)
        yield np.maximum(np.concatenate([sums, largest]), 1e-300)


def _few_groups(n_groups: int) -> Iterator[range]:
    """Groups a few at a time; of two only one, as the other mirrors it."""
    wanted = n_groups if n_groups > 2 else 1
    for low in range(0, wanted, GROUPS_AT_A_TIME):
        yield range(low, min(low + GROUPS_AT_A_TIME, wanted))


def _shares(
    cell: NDArray[np.int32], members: Members, size: Array, groups: range
) -> tuple[NDArray[Any], tuple[Array, ...]]:
    """Membership of some groups by row (numbers from 0 on, or columns), and its mean, variance and
    fourth cumulant by cell."""
    held = np.maximum(size, 1.0)[:, None]  # a sample may miss a cell
    columns = [members.column(k) for k in groups]
    share = np.stack([np.bincount(cell, a, len(size)) for a in columns], axis=1) / held
    spread = share * (1.0 - share)
    fourth = spread * (1.0 - 6.0 * spread)
    if members.codes is not None:
        return members.codes - groups[0], (share, spread, fourth)
    squares = [np.square(a - m[cell]) for a, m in zip(columns, share.T, strict=True)]
    variance = np.stack([np.bincount(cell, v, len(size)) for v in squares], axis=1) / held
    return np.stack(columns, axis=1), (share, variance, fourth)
