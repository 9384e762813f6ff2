"""Covariances between groups and test functions, and what they would be by chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .ranks import scattered_rows

# Effective rows of the smallest group at which the sandwich covariance counts for one half.
SANDWICH_ROWS = 300.0
# Products it may take.
SANDWICH_WORK = 4e9
# Directions of the test functions with less than this share of variance are not tested.
RANK_TOLERANCE = 1e-2

NO_FLOATS = np.empty(0)
_NO_CODES = np.empty(0, dtype=np.intp)


@dataclass(frozen=True)
class Members:
    """Membership of the rows tested, without the column of the largest group.

    `codes` number the groups with the reference last; `soft` is (m, K − 1) or None.
    """

    codes: NDArray[np.intp] | None
    soft: NDArray[np.float64] | None
    n_groups: int
    note: str = ""

    def take(self, rows: Any) -> Members:
        codes = None if self.codes is None else self.codes[rows]
        return replace(self, codes=codes, soft=None if self.soft is None else self.soft[rows])


class RowsInCells(NamedTuple):
    """What the test functions are made of; z is empty for independence.

    u : rank of the tested variable given the conditioning one;  v, z : rank and normal score of the
    latter;  cell, center, slope : cell of each row, mean of z and slope of f along z in each cell
    """

    u: NDArray[np.float64]
    v: NDArray[np.float64]
    z: NDArray[np.float64]
    cell: NDArray[np.int32]
    center: NDArray[np.float64]
    slope: NDArray[np.float64]


class Scores:
    """U (K − 1, J) and its null covariance V = Σ_c S_a,c ⊗ S_f,c / (n_c − 1).

    For equal weights V is the exact permutation covariance. Sampling weights are split into a
    factor h of the group and the rest g: with S_a the scatter of h(a − ā), S_f that of g(f − f̄) and
    means weighted by w, V is again exact if either factor is constant. As the smallest group grows
    V moves to the sandwich covariance, which asks nothing of the weights but is noisy before that.
    """

    def __init__(
        self, rows: RowsInCells, members: Members, weight: NDArray[np.float64] | None
    ) -> None:
        from .._kernels import significance as kernels

        g = members.n_groups - 1
        codes = _NO_CODES if members.codes is None else members.codes
        factor, rest = _split_weight(weight, rows.cell, len(rows.slope), members)
        mass, first, first1, first2, second, counts, table, total = kernels.cell_moments(
            *rows, NO_FLOATS if weight is None else weight, rest, codes, members.n_groups
        )
        n_cells = len(mass)
        n_rows, w1, g1, g2 = mass.T
        self.mean = first / w1[:, None]
        scatter = _recenter(second, first2, self.mean, g2)
        _subtract_square(scatter, first1 - g1[:, None] * self.mean, n_rows)
        scale = 1.0 / np.maximum(n_rows - 1.0, 1.0)
        # What is left of a constant after subtraction is rounding, not spread.
        noise = 1e-12 * np.trace(second, axis1=1, axis2=2)
        scale[np.trace(scatter, axis1=1, axis2=2) <= noise] = 0.0
        if members.soft is None:
            scaled, square = counts * factor, counts * np.square(factor)
            raw = np.zeros((n_cells, g, g))
            raw[:, np.arange(g), np.arange(g)] = square[:, :g]
            share = table[:, :g] / w1[:, None]
            member_scatter = _recenter(raw, square[:, :g], share, square.sum(axis=1))
            off = scaled[:, :g] - scaled.sum(axis=1)[:, None] * share
            _subtract_square(member_scatter, off, n_rows)
            self.total = total[:g] - table[:, :g].T @ self.mean
        else:
            share = _cell_shares(members.soft, rows.cell, weight, w1)
            plain = share if weight is None else _cell_shares(members.soft, rows.cell, None, n_rows)
            member_scatter = _soft_scatter(members.soft, rows.cell, plain)
            f = kernels.feature_matrix(*rows) - self.mean[rows.cell]
            self.total = (members.soft if weight is None else members.soft * weight[:, None]).T @ f
        scatter *= scale[:, None, None]
        width = scatter.shape[1]
        covariance = member_scatter.reshape(n_cells, -1).T @ scatter.reshape(n_cells, -1)
        covariance = covariance.reshape(g, g, width, width).transpose(0, 2, 1, 3)
        self.covariance = covariance.reshape(g * width, g * width)
        if weight is not None:
            trust = smallest_effective(members, weight) ** 2
            trust /= trust + SANDWICH_ROWS**2
            robust = sandwich(rows, members, weight, self.mean, share, w1)
            self.covariance = (1.0 - trust) * self.covariance + trust * robust


def _split_weight(
    weight: NDArray[np.float64] | None, cell: NDArray[np.int32], n_cells: int, members: Members
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """h by group and g by row with w = h·g, from the regression of log w on the group in cells."""
    factor = np.ones(members.n_groups)
    if weight is None:
        return factor, NO_FLOATS
    if members.codes is None:
        return factor, weight
    k, g = members.n_groups, members.n_groups - 1
    pair = cell.astype(np.int64) * k + members.codes
    table = np.bincount(pair, minlength=n_cells * k).reshape(n_cells, k)
    logs = np.bincount(pair, np.log(weight), n_cells * k).reshape(n_cells, k)
    share = table / table.sum(axis=1, keepdims=True)
    gram = np.diag(table.sum(axis=0)) - share.T @ table
    right = logs.sum(axis=0) - share.T @ logs.sum(axis=1)
    factor[:g] = np.exp(np.linalg.lstsq(gram[:g, :g], right[:g], rcond=1e-9)[0])
    return factor, weight / factor[members.codes]


def smallest_effective(members: Members, weight: NDArray[np.float64]) -> float:
    """(Σw)² / Σw² of the smallest group."""
    if members.codes is not None:
        total = np.bincount(members.codes, weight)
        squares = np.bincount(members.codes, np.square(weight))
        return float((np.square(total) / squares).min())
    assert members.soft is not None
    expected = weight @ members.soft
    square_sum = np.square(weight) @ members.soft
    return float((np.square(expected) / np.maximum(square_sum, 1e-300)).min())


def sandwich(
    rows: RowsInCells,
    members: Members,
    weight: NDArray[np.float64],
    mean: NDArray[np.float64],
    share: NDArray[np.float64],
    mass: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Σ w² (a − ā)(a − ā)ᵀ ⊗ (f − f̄)(f − f̄)ᵀ / q, a block of rows at a time.

    q = 1 − 2w/W + Σw²/W² is what estimating the mean of its cell leaves of a row's variance, which
    makes the sum unbiased in narrow cells; W is `mass`.
    """
    from .._kernels.significance import feature_matrix

    n, g = len(rows.u), share.shape[1]
    width = g * mean.shape[1]
    # With many groups a sample of the rows settles it.
    stretch = max(int(n * width**2 // SANDWICH_WORK), 1)
    sample = None if stretch == 1 else scattered_rows(n, stretch)
    count = n if sample is None else len(sample)
    block = 1 + 2_000_000 // width
    lost = np.bincount(rows.cell, np.square(weight), len(mass)) / np.square(mass)
    out = np.zeros((width, width))
    for start in range(0, count, block):
        part: Any = slice(start, start + block)
        if sample is not None:
            part = sample[part]
        cell = np.ascontiguousarray(rows.cell[part])
        z = np.ascontiguousarray(rows.z[part]) if len(rows.z) else rows.z
        u, v = np.ascontiguousarray(rows.u[part]), np.ascontiguousarray(rows.v[part])
        f = feature_matrix(u, v, z, cell, rows.center, rows.slope) - mean[cell]
        w = weight[part]
        left = 1.0 - 2.0 * w / mass[cell] + lost[cell]
        f *= np.where(left > 1e-9, w / np.sqrt(np.maximum(left, 1e-9)), 0.0)[:, None]
        if members.codes is not None:
            a = -share[cell]
            codes = members.codes[part]
            hit = np.flatnonzero(codes < g)
            a[hit, codes[hit]] += 1.0
        else:
            assert members.soft is not None
            a = members.soft[part] - share[cell]
        product = (a[:, :, None] * f[:, None, :]).reshape(len(f), width)
        out += product.T @ product
    return out * (n / count)


def _recenter(
    raw: NDArray[np.float64],
    first: NDArray[np.float64],
    mean: NDArray[np.float64],
    mass: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Σ v (x − m)(x − m)ᵀ by cell from Σ v xxᵀ, Σ v x and Σ v."""
    cross = first[:, :, None] * mean[:, None, :]
    out = raw - cross - cross.transpose(0, 2, 1)
    out += mass[:, None, None] * mean[:, :, None] * mean[:, None, :]
    return out


def _subtract_square(
    scatter: NDArray[np.float64], total: NDArray[np.float64], count: NDArray[np.float64]
) -> None:
    """Scatter about the mean from that about zero, in place, given the sums."""
    scatter -= total[:, :, None] * total[:, None, :] / count[:, None, None]


def _cell_shares(
    soft: NDArray[np.float64],
    cell: NDArray[np.int32],
    weight: NDArray[np.float64] | None,
    mass: NDArray[np.float64],
) -> NDArray[np.float64]:
    columns = [c if weight is None else c * weight for c in soft.T]
    return np.column_stack([np.bincount(cell, c, len(mass)) / mass for c in columns])


def _soft_scatter(
    soft: NDArray[np.float64], cell: NDArray[np.int32], share: NDArray[np.float64]
) -> NDArray[np.float64]:
    n_cells, g = share.shape
    centered = [soft[:, k] - share[cell, k] for k in range(g)]
    out = np.empty((n_cells, g, g))
    for k in range(g):
        for j in range(k + 1):
            out[:, k, j] = out[:, j, k] = np.bincount(cell, centered[k] * centered[j], n_cells)
    return out


def root_inverse(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """R with RRᵀ the pseudo-inverse, on the scale of correlations; its columns are the rank."""
    spread = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    used = spread > 1e-9 * max(spread.max(), 1e-300)
    if not used.any() or spread.max() <= 1e-12:
        return np.empty((len(spread), 0))
    inverse = np.where(used, 1.0 / np.where(used, spread, 1.0), 0.0)
    values, vectors = np.linalg.eigh(covariance * inverse[:, None] * inverse[None, :])
    keep = values > RANK_TOLERANCE
    return inverse[:, None] * vectors[:, keep] / np.sqrt(values[keep])
