"""Ranks of one variable, slices of them, and ranks of one variable given another."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .._core.threads import n_threads

# A cell of the conditioning variable holds about this many rows, until there are MAX_CELLS. The
# error of treating its rows as alike falls with the square of the number of cells, so it vanishes
# beside the noise; a cell of h rows costs 1/h of the information.
CELL_ROWS = 10
MAX_CELLS = 2000
BLOCK_ROWS = 50
MAX_BLOCKS = 64
# Beyond this many rows ranks are interpolated between this many quantiles.
EXACT_RANK_ROWS = 100_000
RANK_EDGES = 4096
# Share of the rows at either end whose own values make up a distribution.
EXACT_TAIL = 0.01


class RankedRows(NamedTuple):
    """Ranks and normal scores of rows, and how many values the variable takes."""

    rank: NDArray[np.float64]
    normal: NDArray[np.float64]
    n_atoms: int


class Ranks:
    """Mid-ranks in (0, 1) of one variable, their normal scores, and slices of them."""

    rank: NDArray[np.float64]
    normal: NDArray[np.float64]
    n_atoms: int

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.n = len(values)
        if self.n > EXACT_RANK_ROWS:
            self._by_slots(values)
            return
        from ..kernels.ranks import mid_ranks

        order = np.argsort(values)
        self.rank, self._atom, self.n_atoms = mid_ranks(values, order)
        self.normal = ndtri(self.rank)
        self._points = np.empty(self.n_atoms)
        self._points[self._atom[order]] = values[order]

    def _by_slots(self, values: NDArray[np.float64]) -> None:
        """Ranks without sorting: exact at common values, interpolated between quantiles.

        Off by about 1e-5 of the rows, which moves no conclusion; a sort takes three times as long.
        """
        from ..kernels.ranks import slot_ranks

        quantiles, edges, slot, counts, low, high = quantile_slots(values)
        self._values, self._slot, self._counts, self._quantiles = values, slot, counts, quantiles
        above = np.cumsum(counts) / self.n
        below = above - counts / self.n
        margin = 0.5 / self.n
        score_below, score_above = ndtri(np.clip([below, above], margin, 1.0 - margin))
        # The two ends of a common value count as one point, its mid-rank.
        middle = np.clip(0.5 * (below + above), margin, 1.0 - margin)
        score_below[1::2] = score_above[1::2] = ndtri(middle[1::2])
        left = np.repeat(edges, 2)
        left, right = np.concatenate([[low], left]), np.concatenate([left, [high]])
        right[2 * len(quantiles)] = high
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = 1.0 / (right - left)
        inverse[1::2] = np.nan
        table = [left, inverse, below, above - below, score_below, score_above - score_below]
        self.rank, self.normal = slot_ranks(values, slot, np.column_stack(table))
        self.n_atoms = self.n
        # A discrete variable: rare values between the common ones share a number.
        if counts[::2].sum() <= 0.01 * self.n:
            lookup = (np.cumsum(counts > 0) - 1).astype(np.int32)
            self._atom, self.n_atoms = lookup[slot], int((counts > 0).sum())

    def distribution(self) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Cells in the order of the values (single values, or slots between quantiles):
        the one each row is in, and the largest value of each.

        Slots at the ends, in heavy tails wider than all others together, are cut at every row.
        """
        if self.n <= EXACT_RANK_ROWS:
            return self._atom, self._points
        points = np.repeat(self._quantiles, 2)
        counts = self._counts[: len(points) + 1]
        most = EXACT_TAIL * self.n
        low = int(np.searchsorted(counts.cumsum(), most, side="right"))
        high = len(counts) - int(np.searchsorted(counts[::-1].cumsum(), most, side="right"))
        ends = [np.flatnonzero(rows) for rows in (self._slot < low, self._slot >= high)]
        first, final = (rows[np.argsort(self._values[rows])] for rows in ends)
        cell = self._slot + np.int32(len(first) - low)
        cell[first] = np.arange(len(first))
        cell[final] = len(first) + high - low + np.arange(len(final))
        parts = [self._values[first], points[low:high], self._values[final]]
        return cell, np.concatenate(parts)

    def slices(self, wanted: int) -> tuple[NDArray[np.int32], int]:
        """Number of the slice each row is in, of about `wanted` equally filled ones."""
        from ..kernels.ranks import slice_numbers

        raw, rows = slice_numbers(self.rank, wanted)
        present = rows > 0
        if present.all():
            return raw, wanted
        return (np.cumsum(present) - 1).astype(np.int32)[raw], int(present.sum())

    def take(self, rows: Any) -> RankedRows:
        """Ranks, among all rows, of some of them."""
        return RankedRows(self.rank[rows], self.normal[rows], self.n_atoms)

    @property
    def discrete(self) -> bool:
        """Whether cells are single values."""
        return self.n_atoms <= min(self.n / 5, MAX_CELLS)

    def cells(self) -> tuple[NDArray[np.int32], int]:
        if self.discrete:
            return self._atom, self.n_atoms
        rows = min(CELL_ROWS, max(4.0, self.n / 50))
        return self.slices(int(min(max(self.n // rows, 1), MAX_CELLS)))


def rank_all(variables: Mapping[str, NDArray[np.float64]]) -> dict[str, Ranks]:
    """Ranks of several variables; many rows on several threads, as the kernels allow."""
    columns = {k: np.ascontiguousarray(v, dtype=np.float64) for k, v in variables.items()}
    large = any(len(column) > EXACT_RANK_ROWS for column in columns.values())
    with ThreadPoolExecutor(n_threads() if large else 1) as pool:
        ranks = list((pool.map if large else map)(Ranks, columns.values()))
    return dict(zip(columns, ranks, strict=True))


def quantile_slots(values: NDArray[np.float64]):
    """Slots between and at quantiles: slot 2i lies below edge i, slot 2i + 1 equals it.

    Returns the quantiles, the same padded with infinity, each row's slot, the rows in each slot,
    and the extremes. Quantiles of a sample only show where to look for those of all rows, so that
    no result depends on the order of rows.
    """
    from ..kernels.ranks import find_slots, order_statistics

    n = len(values)
    rows = scattered_rows(n, max(n // (4 * RANK_EDGES), 1))
    _, rough = _padded(np.sort(values[rows]), 8 * RANK_EDGES)
    slot, counts, *_ = find_slots(values, rough)
    wanted = np.arange(RANK_EDGES - 1) * (n - 1) // (RANK_EDGES - 2)
    quantiles, edges = _padded(order_statistics(values, slot, counts, rough, wanted), RANK_EDGES)
    return quantiles, edges, *find_slots(values, edges)


def _padded(
    ascending: NDArray[np.float64], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each value once, and the same with infinity up to a power of two."""
    once = np.unique(ascending)
    edges = np.full(size, np.inf)
    edges[: len(once)] = once
    return once, edges


def scattered_rows(n: int, stretch: int) -> NDArray[np.intp]:
    """One row at random of each stretch of n rows, always the same ones.

    Regular steps would see a single month of monthly rows, or some of the groups that take turns.
    """
    starts = np.arange(0, n - stretch + 1, stretch)
    return starts + np.random.default_rng(0).integers(0, stretch, len(starts))


def conditional_rank(
    target: Ranks, given: Ranks, rows_a_unit: int = 1
) -> NDArray[np.float64] | None:
    """F(t | z), roughly: the rank of (t − m(z)) / σ(z) on the scale of normal scores.

    m is a cubic in the normal score of z, which is exact in the tails of nearly normal pairs, plus
    interpolated block means of what it leaves. None when nothing is left of t. Where rows come in
    units that share z, blocks are as many times wider.
    """
    from ..kernels import ranks as kernels

    z, t = given.normal, target.normal
    block, n_blocks = given.slices(
        int(min(max(given.n // (BLOCK_ROWS * rows_a_unit), 1), MAX_BLOCKS))
    )
    powers, right = kernels.power_sums(z, t)
    gram = powers[np.add.outer(np.arange(4), np.arange(4))]
    # Few distinct values of z leave the cubic undetermined: the shortest solution will do.
    beta = np.linalg.lstsq(gram, right, rcond=1e-10)[0]
    sums = kernels.block_sums(z, t, beta, block, n_blocks)
    counts = sums[:, 0]
    center, level = sums[:, 1] / counts, sums[:, 2] / counts
    residual, squares = kernels.detrend(z, t, beta, block, center, *_lines(center, level))
    overall = np.sqrt(squares.sum() / given.n)
    if overall < 1e-6:
        return None
    # A block with a single value of t has no spread of its own.
    precision = 1.0 / np.maximum(np.sqrt(squares / counts), 1e-2 * overall)
    return kernels.conditional_rank(z, residual, block, center, *_lines(center, precision))


def _lines(
    x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Intercepts and slopes of the interpolant through (x, y), flat outside."""
    slope = np.concatenate([[0.0], np.diff(y) / np.maximum(np.diff(x), 1e-12), [0.0]])
    anchor, height = np.append(x, x[-1]), np.append(y, y[-1])
    return height - slope * anchor, slope


def neighbor_slopes(center: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Slope of cell means along their centers, from the two neighbors of each cell."""
    last = len(center) - 1
    after = np.minimum(np.arange(last + 1) + 1, last)
    before = np.maximum(np.arange(last + 1) - 1, 0)
    gap = center[after] - center[before]
    return (means[after] - means[before]) / np.where(gap > 0, gap, np.inf)[:, None]


def typical_spread(values: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
    """Standard deviation, or five times that of a normal law with the same 1 to 99 % range if less.

    One value far out makes up a standard deviation by itself, and all others would look the same.
    """
    mean = np.average(values, weights=weight)
    spread = float(np.sqrt(np.average(np.square(values - mean), weights=weight)))
    if np.abs(values - mean).max(initial=0.0) > 10.0 * spread:
        low, high = np.quantile(values, (0.01, 0.99))
        if high > low:
            return min(spread, 5.0 * float(high - low) / 4.65)
    return spread
