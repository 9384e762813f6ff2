"""Where the grids of the dyadic mixture are cut, and how cuts are moved to straight edges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Array
from ..data.groups import Groups
from ._cells import sums

Index = NDArray[np.intp]


def _eighths(root: float) -> Array:
    """Ranks at which a side is cut into eight, the first cut at `root` and the others halfway."""
    steps = np.arange(1, 4) / 4
    return np.concatenate([root * steps, [root], root + (1.0 - root) * steps])


# Where the grids of one mixture cut their sides.
Cuts = tuple[Array, Array]
ROOTS: tuple[Cuts, ...] = tuple((_eighths(r), _eighths(r)) for r in (1 / 2, 1 / 3, 2 / 3))
# Halvings of a side, and sizes of the steps in rank, with which the best cuts are searched.
SEARCH_DEPTH, _STEPS = 5, (0.02, 0.007, 0.0025, 0.001, 0.0005, 0.00025)
SEARCH_ROWS = 5000
# Places on a side, so that cuts can be moved to where they belong.
PLACES = 3 * 1024
# Nats over all rows that moved cuts must save.
WORTHWHILE = 12.0


class Prior:
    """α of the Dirichlet-multinomial, ½ for groups of equal size and less for rare ones."""

    def __init__(self, groups: Groups) -> None:
        from ..kernels.dyadic import log_rising

        self.alpha = 0.25 + 0.25 * groups.n_groups * groups.shares
        self.rising = log_rising(self.alpha, min(groups.n_known + 1, 4096))


@dataclass(frozen=True)
class Counts:
    """Occupied cells of the grid that refines those of all roots; C cells, K groups.

    `at` are the places of the cells on each side, `rank` the ranks of those places; `mass` and
    `single` are the weights of the groups and of one row of them; `fold` the fold of the clusters
    in it, or None.
    """

    at: tuple[Index, Index]
    rank: tuple[Array, Array]
    mass: Array
    single: Array | None
    fold: Index | None
    row_cell: Index


def bins_of(rank: Array, depth: int, cuts: Array) -> Index:
    """Bin of each place among 2^depth, an eighth of which lie between any two of the cuts.

    Where there are bins enough every place has its own, so that single values can be told apart.
    """
    size = 1 << depth
    warped = np.interp(rank, np.concatenate([[0.0], cuts, [1.0]]), np.arange(9) / 8)
    # Rounded, and the ends of bins always to the outer one: reversing a side reverses its bins.
    place = np.round(warped * size, 9)
    out = np.where(warped < 0.5, np.ceil(place) - 1, np.floor(place)).astype(np.intp)
    out = np.clip(out, 0, size - 1)
    if len(rank) <= size:
        steps = np.arange(len(rank))
        out = np.maximum.accumulate(out - steps) + steps
        ends = size - len(rank) + steps
        out = np.minimum(out, ends)
    return out


def move_cuts(counts: Counts, mass: Array, depth: tuple[int, int], prior: Prior) -> Cuts:
    """Cuts of a grid, moved one by one to where the mixture makes the groups likeliest.

    The search begins at the best of some even grids. The cells are first added up over the bins of
    the other side, after which trying a cut costs no more than a small mixture.
    """
    from ..kernels import dyadic as kernels

    coarse = tuple(min(d, SEARCH_DEPTH) for d in depth)

    def add_up(side: int, cuts: Array) -> Array:
        """Σ mass up to each place of a side, by bin of the other, (places + 1, bins, K)."""
        other = 1 - side
        bins = bins_of(counts.rank[other], coarse[other], cuts)[counts.at[other]]
        shape = (len(counts.rank[side]), 1 << coarse[other], mass.shape[1])
        table = add_cells(counts.at[side] * shape[1] + bins, mass, shape)
        return np.concatenate([np.zeros((1, *shape[1:])), np.cumsum(table, axis=0)])

    def fitness(table: Array, side: int, cuts: Array) -> float:
        bins = bins_of(counts.rank[side], coarse[side], cuts)
        ends = np.searchsorted(bins, np.arange((1 << coarse[side]) + 1))
        sums = np.diff(table[ends], axis=0)
        if side:
            sums = sums.transpose(1, 0, 2)
        return kernels.evidence(sums, prior.alpha, prior.rising)[1][1, 1]

    starts = [ROOTS[0], *((_even(m), _even(m)) for m in (5, 6, 7))]
    found = [fitness(add_up(0, c[1]), 0, c[0]) for c in starts]
    best = max(found)
    cuts = [c.copy() for c in starts[int(np.argmax(found))]]
    for step in _STEPS:
        for side in (0, 1):
            table = add_up(side, cuts[1 - side])
            for j in range(7):
                for move in (-step, step):
                    while True:
                        trial = cuts[side].copy()
                        trial[j] += move
                        if (np.diff(trial, prepend=0.0, append=1.0) < 1e-3).any():
                            break
                        value = fitness(table, side, trial)
                        if value <= best + 0.5:
                            break
                        best, cuts[side] = value, trial
    return cuts[0], cuts[1]


def _even(parts: int) -> Array:
    """Cuts into so many equal parts, and into halves of some of them."""
    cuts = np.arange(1, parts) / parts
    return np.sort(np.concatenate([cuts, (np.arange(8 - parts) + 0.5) / parts]))


def add_cells(flat: Index, mass: Array, shape: tuple[int, int, int]) -> Array:
    cells = shape[0] * shape[1]
    columns = [sums(flat, column, cells) for column in mass.T]
    return np.stack(columns, axis=1).reshape(shape)
