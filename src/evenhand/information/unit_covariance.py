"""Covariances from independent units: clusters of rows, or slices where weights tell on both sides.

Permuting rows is no reference there: rows of a cluster are not exchangeable with others, and a
weight that depends on group and tested variable jointly belongs to neither of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_law

from .null_covariance import SANDWICH_WORK, Members, RowsInCells, root_inverse
from .ranks import scattered_rows

# Cells of more rows count row by row, others as one unit.
MAX_UNIT_ROWS = 30
# Clusters that a cell must hold on average, as rows do without clusters.
CELL_CLUSTERS = 10
# Fewer clusters say nothing about how much clusters differ.
MIN_CLUSTERS = 10
# Units that a tested direction asks for: cells, clusters, or rows, whose scores are most skewed.
# Fewer test functions are used where there are fewer units.
CELLS_A_DIRECTION = 16
CLUSTERS_A_DIRECTION = 20
ROWS_A_DIRECTION = 25
# ν is too large as often as too small, and the former does more harm: ν² / (ν + this) is used.
UNITS_IN_DOUBT = 10.0
# Numbers that the regression of weights may hold.
TIED_NUMBERS = 500_000
# Level at which weights are seen to depend on both group and tested variable. A generous one: units
# are right either way and cost a little power, while permutations are wrong if they do.
JOINT_LEVEL = 0.05


class UnitScores:
    """T² = Uᵀ V⁺ U with U = Σ_g S_g and V = Σ_g S_g S_gᵀ over units g.

    S_g = Σ_{i∈g} (W_c/n_c) w_i (a_i − ā_c) ⊗ (f_i − f̄_c) / √q_gc. In a cell the sum over all units
    is Σ_{i<j} w_i w_j (a_i − a_j)(f_i − f_j) / n_c, whose mean is zero under the weighted law
    whatever the weights depend on; divided by W_c, as a weighted covariance is, it would not be.
    q = 1 − 2W_gc/W_c + Σ W_gc²/W_c² is what estimating the means of a cell leaves of the variance
    of a unit, 1 where a unit is a whole cell.

    T² is referred to Hotelling's law with ν degrees of freedom. Clusters: ν = (Σ M)² / Σ M² with
    M_g = W_g Σ_{i∈g} w_i (a_i − ā_c)², the clusters that a group's contrast rests on, and T² is
    taken with V about the mean of the S_g. Cells and rows: ν = p(p + 2) / Σ_g (S_gᵀ V⁺ S_g)² − 2,
    the number of equal normal units that would spread V as much.
    """

    def __init__(
        self,
        rows: RowsInCells,
        members: Members,
        weight: NDArray[np.float64] | None,
        unit: NDArray[np.intp],
        a_direction: int,
        clusters: bool,
    ) -> None:
        self._rows, self._members = rows, members
        weight = np.ones(len(unit)) if weight is None else weight
        self._set_up(weight, unit)
        n_features = rows.slope.shape[1]
        self.statistic, self.dof, self.units = 0.0, 0, 0.0
        total, covariance = self._total(), self._covariance()
        groups = members.n_groups - 1
        units = self._leverage(weight, unit) if clusters else float(self.n_units)
        width = min(n_features, max(int(units // (a_direction * groups)), 1))
        while width:
            used = (np.arange(groups)[:, None] * n_features + np.arange(width)).ravel()
            root = root_inverse(covariance[np.ix_(used, used)])
            dof = root.shape[1]
            if not dof:
                return
            if not clusters:
                units = dof * (dof + 2.0) / self._fourth(used, root) - 2.0
                units = units * units / (units + UNITS_IN_DOUBT)
            self.dof, self.units = dof, min(units, self.n_units - 1.0)
            if self.units > a_direction * dof or width == 1:
                break
            width = min(width - 1, max(int(self.units // (a_direction * groups)), 1))
        self.statistic = float(np.square(total[used] @ root).sum())
        if clusters:
            self.statistic /= max(1.0 - self.statistic / self.n_units, 1e-12)

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

    def _set_up(self, weight: NDArray[np.float64], unit: NDArray[np.intp]) -> None:
        from .._kernels.significance import feature_matrix

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
        self._factor = self._plain / np.sqrt(left)
        f = feature_matrix(*self._rows)
        sums = [np.bincount(cell, weight * column, n_cells) / mass for column in f.T]
        self._f = f - np.column_stack(sums)[cell]
        members = self._members
        groups = members.n_groups - 1
        columns = (
            (weight * (members.codes == k) for k in range(groups))
            if members.codes is not None
            else (weight * members.soft[:, k] for k in range(groups))  # type: ignore[index]
        )
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

    def _scores(self) -> Iterator[NDArray[np.float64]]:
        """S_g of the units, some at a time."""
        members, groups = self._members, self._share.shape[1]
        width = groups * self._f.shape[1]
        ends = np.append(self._start[1:], len(self._order))
        chunk = 1 + 2_000_000 // width
        low = 0
        while low < len(ends):
            high = max(low + 1, int(np.searchsorted(ends, self._start[low] + chunk)))
            part = self._order[self._start[low] : ends[high - 1]]
            a = -self._share[self._rows.cell[part]]
            if members.codes is not None:
                codes = members.codes[part]
                hit = np.flatnonzero(codes < groups)
                a[hit, codes[hit]] += 1.0
            else:
                assert members.soft is not None
                a += members.soft[part]
            f = self._f[part] * self._factor[part, None]
            product = (a[:, :, None] * f[:, None, :]).reshape(len(part), width)
            yield np.add.reduceat(product, self._start[low:high] - self._start[low], axis=0)
            low = high

    def _leverage(self, weight: NDArray[np.float64], unit: NDArray[np.intp]) -> float:
        members, cell, found = self._members, self._rows.cell, []
        for k, share in enumerate(self._share.T):
            a = members.codes == k if members.codes is not None else members.soft[:, k]  # type: ignore[index]
            mass = np.bincount(unit, weight) * np.bincount(
                unit, weight * np.square(a - share[cell])
            )
            found.append(float(mass.sum() ** 2 / max(np.square(mass).sum(), 1e-300)))
        return min(found)

    def _total(self) -> NDArray[np.float64]:
        members, groups = self._members, self._share.shape[1]
        f = self._f * self._plain[:, None]
        if members.codes is None:
            assert members.soft is not None
            return (members.soft.T @ f).ravel()
        sums = [np.bincount(members.codes, column, members.n_groups) for column in f.T]
        return np.column_stack(sums)[:groups].ravel().astype(np.float64, copy=False)

    def _covariance(self) -> NDArray[np.float64]:
        width = self._share.shape[1] * self._f.shape[1]
        out = np.zeros((width, width))
        for scores in self._scores():
            out += scores.T @ scores
        return out * (self.n_units / len(self._start))

    def _fourth(self, used: NDArray[np.intp], root: NDArray[np.float64]) -> float:
        found = sum(
            float(np.square(np.square(scores[:, used] @ root).sum(axis=1)).sum())
            for scores in self._scores()
        )
        return found * (self.n_units / len(self._start))


def weight_units(cell: NDArray[np.int32]) -> tuple[NDArray[np.intp], bool]:
    """Independent units of a weighted sample: cells, and the rows of cells of many rows, if any."""
    size = np.bincount(cell)
    single = size[cell] > MAX_UNIT_ROWS
    unit = cell.astype(np.intp)
    unit[single] = len(size) + np.arange(int(single.sum()))
    return unit, bool(single.any())


def clusters_in_cells(
    cell: NDArray[np.int32], n_cells: int, cluster: NDArray[np.intp]
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


def weights_tied(rows: RowsInCells, members: Members, weight: NDArray[np.float64]) -> bool:
    """Whether weights depend on both the group and the tested variable, as far as log w tells.

    F tests in the regression of log w within cells on groups, on the first test functions, and on
    their products: the last, or both others, must be seen.
    """
    from .._kernels.significance import feature_matrix

    n_cells = len(rows.slope)
    # A sample tells as much; the design is large with many groups.
    stretch = -(-len(weight) * (1 + 4 * members.n_groups) // TIED_NUMBERS)
    if stretch > 1:
        some = scattered_rows(len(weight), stretch)
        members, weight = members.take(some), weight[some]
        z = rows.z[some] if len(rows.z) else rows.z
        part = (rows.u[some], rows.v[some], z, rows.cell[some])
        rows = RowsInCells(*part, rows.center, rows.slope)
    cell = rows.cell
    size = np.maximum(np.bincount(cell, minlength=n_cells), 1)

    def centered(columns: NDArray[np.float64]) -> NDArray[np.float64]:
        means = [np.bincount(cell, column, n_cells) / size for column in columns.T]
        return columns - np.column_stack(means)[cell]

    groups = members.n_groups - 1
    if members.codes is not None:
        a = np.zeros((len(cell), groups + 1))
        a[np.arange(len(cell)), members.codes] = 1.0
        a = centered(a[:, :groups])
    else:
        assert members.soft is not None
        a = centered(members.soft)
    f = centered(feature_matrix(*rows)[:, :3])
    product = centered((a[:, :, None] * f[:, None, :]).reshape(len(cell), -1))
    x = centered(np.log(weight)[:, None])[:, 0]
    design = np.column_stack([a, f, product])
    gram, right = design.T @ design, design.T @ x
    total = float(x @ x)
    free = len(cell) - n_cells - design.shape[1]
    if total <= 1e-20 * len(cell) or free < 1:
        return False
    every = np.arange(design.shape[1])
    of_group, of_tested = every < groups, (every >= groups) & (every < groups + 3)

    def rest(used: NDArray[np.bool_]) -> tuple[float, int]:
        beta, _, rank, _ = np.linalg.lstsq(gram[np.ix_(used, used)], right[used], rcond=1e-9)
        return max(total - float(right[used] @ beta), 1e-12 * total), int(rank)

    full, full_rank = rest(np.ones(len(every), dtype=bool))

    def seen(left_out: NDArray[np.bool_]) -> bool:
        without, rank = rest(~left_out)
        gain = full_rank - rank
        if gain < 1:
            return False
        ratio = (without - full) / gain / (full / free)
        return bool(f_law.sf(ratio, gain, free) < JOINT_LEVEL)

    jointly = ~of_group & ~of_tested
    return seen(jointly) or (seen(of_group | jointly) and seen(of_tested | jointly))


def independent_rows(
    weight: NDArray[np.float64] | None,
    cluster: NDArray[np.intp] | None,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Rows drawn so that they are independent and follow the weighted law without weights.

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
