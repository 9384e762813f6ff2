"""A scan for dependence of any shape: contrasts at all resolutions, each with its null variance.

The test functions of :mod:`.significance` are a few smooth ones. Groups that trade places from one
value to the next leave no trace in them, but do so in contrasts of neighboring bins at the scale
on which they trade places, whatever it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincc

from ..estimators.ranks import RankedRows, Ranks, neighbor_slopes, scattered_rows
from .covariances import Members

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


def scan_rows(n: int, n_groups: int) -> NDArray[np.intp] | slice:
    """The rows scanned; with many groups, each of which is scanned, fewer."""
    most = max(MAX_ROWS * 4 // max(n_groups, 4), MAX_ROWS // 5)
    return slice(None) if n <= most else scattered_rows(n, -(-n // most))


def level_rank(
    target: Ranks | RankedRows,
    z: NDArray[np.float64],
    cell: NDArray[np.int32],
    n_cells: int,
    exact: bool,
) -> NDArray[np.float64] | None:
    """The rank of a variable, NaN in cells in which it follows z; None if it does so in most.

    `exact` says that a cell is a single value of the conditioning variable, z its normal score.
    """
    from ..kernels.scan import cell_lines

    if exact or target.n_atoms < 2:
        return target.rank if target.n_atoms > 1 else None
    size, *sums = cell_lines(z, target.normal, cell, n_cells).T
    center, mean, second_z, second = (x / np.maximum(size, 1.0) for x in sums)
    slope = neighbor_slopes(center, mean[:, None])[:, 0]
    explained = np.square(slope) * (second_z - np.square(center))
    level = explained <= MAX_SLOPE * (second - np.square(mean))
    if size[level].sum() < LEAST_LEVEL * len(cell):
        return None
    return np.where(level[cell], target.rank, np.nan)


def difference(s: NDArray[np.float64], y: NDArray[np.float64]) -> Ranks | None:
    """Ranks of s − y; None where it is rounding.

    Given one of them it says as much as the other, and what happens near s = y shows in it best.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        gap = s - y
        if not np.isfinite(gap).all() or np.ptp(gap) <= 1e-12 * np.abs(y).max():
            return None
    return Ranks(gap)


def scan_p_value(
    coordinates: Sequence[NDArray[np.float64]],
    cell: NDArray[np.int32],
    members: Members,
) -> float:
    """p of the mean of cot(π p_jk) over levels (j, k): the Cauchy combination.

    p_jk is of Q = Σ D²/V over the rectangles of a level, or of its largest term. D contrasts, in a
    block of cells, the rows of a group in two neighboring bins of the tested variable; its
    variance V over permutations of the groups within cells is exact. Of Q the mean is exact and
    the variance is 2m + Σ κ₄/V², which a gamma law matches; the largest term is bounded by
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
    from ..kernels.scan import scan_levels

    n = len(cell)
    size = np.bincount(cell).astype(float)
    depth = int(min(MAX_DEPTH, np.log2(max(n / BIN_ROWS, 2.0))))
    height = int(min(MAX_HEIGHT, np.ceil(np.log2(len(size)))))
    # Cells by the middle of their share of the rows, so that blocks are equally filled.
    middle = (np.cumsum(size) - 0.5 * size) / n
    block = np.minimum((middle * 2**height).astype(np.int64), 2**height - 1)
    # A stable sort of 16-bit integers is a radix sort: linear in n.
    order = np.argsort(cell.astype(np.int16) if len(size) < 2**15 else cell, kind="stable")
    first = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    shares = [_shares(cell, members, size, groups) for groups in _few_groups(members.n_groups)]
    found: list[NDArray[np.float64]] = []
    for x in coordinates:
        used = ~np.isnan(x)
        bins = np.zeros(n, dtype=np.int64)
        np.multiply(x, 2.0**depth, out=bins, where=used, casting="unsafe")
        np.minimum(bins, 2**depth - 1, out=bins)
        allowed = np.bincount(cell, used, len(size)) > 0.5 * size
        scale = (allowed * size / np.maximum(size - 1.0, 1.0))[:, None]
        for own, (share, variance, fourth) in shares:
            moments = np.stack([share, scale * variance, scale * fourth])
            # A contrast of two equal halves has a quarter of the variance of its rows.
            most = 0.25 * (size @ moments[1]) / LEAST_VARIANCE
            found += _p_values(
                scan_levels(
                    order, first, bins, own, moments, block, depth, height, most, LEAST_VARIANCE
                )
            )
    p = np.concatenate(found) if found else np.empty(0)
    if not len(p):
        return float("nan")
    # Beyond ½ a cotangent would take from the others, and a bound of 1 all there is.
    return float(np.arctan2(1.0, np.mean(1.0 / np.tan(np.pi * np.minimum(p, 0.5)))) / np.pi)


def _p_values(levels: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """p-values of all levels, group by group."""
    for found in levels:
        q, m, extra, bound = found[found[:, :, 1] > 0].T
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
    cell: NDArray[np.int32], members: Members, size: NDArray[np.float64], groups: range
) -> tuple[NDArray[Any], tuple[NDArray[np.float64], ...]]:
    """Membership of some groups by row (numbers from 0 on, or columns), and its mean, variance and
    fourth cumulant by cell."""
    held = np.maximum(size, 1.0)[:, None]  # a sample may miss a cell
    columns = [_column(members, k) for k in groups]
    share = np.stack([np.bincount(cell, a, len(size)) for a in columns], axis=1) / held
    spread = share * (1.0 - share)
    fourth = spread * (1.0 - 6.0 * spread)
    if members.codes is not None:
        return members.codes - groups[0], (share, spread, fourth)
    squares = [np.square(a - m[cell]) for a, m in zip(columns, share.T, strict=True)]
    variance = np.stack([np.bincount(cell, v, len(size)) for v in squares], axis=1) / held
    return np.stack(columns, axis=1), (share, variance, fourth)


def _column(members: Members, k: int) -> NDArray[np.float64]:
    """Membership of group k; the reference group comes last and has no column of its own."""
    if members.codes is not None:
        return (members.codes == k).astype(float)
    assert members.soft is not None
    soft = members.soft
    return soft[:, k] if k < soft.shape[1] else 1.0 - soft.sum(axis=1)
