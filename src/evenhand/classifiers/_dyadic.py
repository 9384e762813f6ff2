"""A rung for any law: the mixture over all recursive dyadic partitions of a grid of ranks.

    P(R) = ½·DM(counts of R) + ¼·P(left)·P(right) + ¼·P(lower)·P(upper)

for a rectangle R of the grid, DM being the Dirichlet-multinomial probability of its groups (an
optional Pólya tree; Wong and Ma 2010). Every cell's probabilities are averaged over three grids
whose first cut lies at ½, ⅓ and ⅔, so that an edge that one of them cuts badly is cut well by
another.

No partition of n rows follows an edge more closely than some n^(−½), and none is finer than the
grid. Both errors double with a quarter of the rows on a grid half as fine, and what they do to an
entropy is therefore the difference between the estimates from quarters and from all: it is taken
off, and its doubtful part goes into the standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..sensitive import Groups
from ._cells import Levels

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ROOTS = (1 / 2, 1 / 3, 2 / 3)
# Numbers that all rectangles of a tree may hold, groups included.
_ROOM = 4.4e6
# What is doubtful about a correction: exponents of n between ⅓ and 1 in place of ½ change it by
# factors of 1.7 to 0.33.
_DOUBT = 0.4
_NO_FLOATS, _NO_FLAGS = np.empty(0), np.empty(0, dtype=np.bool_)
_NO_CODES, _NO_TABLE = np.empty(0, dtype=np.intp), np.empty((0, 0))
_NO_CUBE = np.empty((0, 0, 0))


class Prior:
    """α of the Dirichlet-multinomial, ½ for groups of equal size and less for rare ones."""

    def __init__(self, groups: Groups) -> None:
        from .._kernels.dyadic import log_rising

        self.alpha = 0.25 + 0.25 * groups.n_groups * groups.shares
        self.rising = log_rising(self.alpha, min(groups.n_known + 1, 4096))


@dataclass(frozen=True)
class Plane:
    """One or two coordinates, and how often each side is halved."""

    name: str
    levels: tuple[Levels, ...]
    depth: tuple[int, int]


@dataclass(frozen=True)
class Grown:
    """Losses by entry (cell and group; row with membership probabilities) and what was fitted.

    `shift` is what the finite grid and sample add to the entropy, `doubt` its standard error.
    """

    name: str
    inside: Array
    outside: Array
    row_entry: Index
    mean_inside: float
    mean_outside: float
    terms: float
    shift: float = 0.0
    doubt: float = 0.0


@dataclass(frozen=True)
class _Counts:
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


def deepest(n_rows: float, n_groups: int) -> int:
    """How often each side may be halved: about one cell a row, and no more than there is room."""
    room = int(np.log2(_ROOM / n_groups) / 2) - 1
    return max(min(int(np.round(np.log2(max(n_rows, 4.0)) / 2 + 0.75)), room), 2)


def screen(
    plane: Plane, groups: Groups, weight: Array, prior: Prior, folds: Index | None
) -> float:
    """Leave-one-out loss of the mixture on one grid: whether a closer look is worth it."""
    counts = _count(plane, groups, weight, folds)
    _, outside, _ = _mixture(counts, counts.mass, plane.depth, prior, ROOTS[:1])
    return _mean(counts.mass, -np.log(outside))


def grow(
    plane: Plane, groups: Groups, weight: Array, prior: Prior, effective: float,
    folds: Index | None,
) -> Grown:  # fmt: skip
    """Fit the mixture over partitions, with what its resolution costs.

    Parameters
    ----------
    plane : Plane
    groups : Groups
    weight : (n,) array
        Adding up to the effective number of rows.
    prior : Prior
    effective : float
        Effective number of rows or clusters.
    folds : (n,) array or None
        Rows to be left out together.
    """
    counts = _count(plane, groups, weight, folds)
    inside, outside, leaves = _average(counts, counts.mass, plane.depth, prior, effective)
    k = counts.mass.shape[1]
    mean_inside, mean_outside = (_mean(counts.mass, -np.log(p)) for p in (inside, outside))
    shift = _resolution(counts, plane, prior, effective, (mean_inside, mean_outside))
    losses, row_entry = [-np.log(inside), -np.log(outside)], counts.row_cell
    if groups.codes is not None:
        losses = [v.ravel() for v in losses]
        row_entry = row_entry * k + groups.codes
    else:
        assert groups.probabilities is not None
        losses = [(groups.probabilities * v[row_entry]).sum(axis=1) for v in losses]
        row_entry = np.arange(len(row_entry))
    terms = (k - 1) * leaves
    name = f"{plane.name}, {leaves:.0f} parts"
    return Grown(
        name, losses[0], losses[1], row_entry, mean_inside, mean_outside, terms, shift,
        _DOUBT * shift,
    )  # fmt: skip


def _count(plane: Plane, groups: Groups, weight: Array, folds: Index | None) -> _Counts:
    sides = [_places(level, d) for level, d in zip(plane.levels, plane.depth, strict=False)]
    if len(sides) == 1:
        sides.append((np.zeros(len(weight), dtype=np.intp), np.array([0.5])))
    (first, first_rank), (second, second_rank) = sides
    key = first * len(second_rank) + second
    size = len(first_rank) * len(second_rank)
    if folds is not None:
        key = key + folds * size
        size *= int(folds.max()) + 1
    if size <= 8 * len(key) + 65536:
        used = np.flatnonzero(np.bincount(key, minlength=size))
        number = np.zeros(size, dtype=np.intp)
        number[used] = np.arange(len(used))
        cell = number[key]
    else:
        used, cell = np.unique(key, return_inverse=True)
    c, k = len(used), groups.n_groups
    # Where rows weigh the same, a row is a unit, and so are the counts.
    equal = groups.codes is not None and float(np.ptp(weight)) <= 1e-12 * float(weight.max())
    if groups.codes is not None:
        entry = cell * k + groups.codes
        mass = np.bincount(entry, None if equal else weight, c * k).reshape(c, k)
        mass = mass.astype(np.float64)
        squares = None if equal else np.bincount(entry, weight**2, c * k).reshape(c, k)
        if equal:
            mass *= weight[0]
            if weight[0] != 1.0:
                squares = mass * weight[0]
    else:
        assert groups.probabilities is not None
        parts = (weight[:, None] * groups.probabilities).T
        mass = np.stack([np.bincount(cell, p, c) for p in parts], axis=1)
        squares = np.stack([np.bincount(cell, p * p, c) for p in parts], axis=1)
    single = None if squares is None else squares / np.where(mass > 0, mass, 1.0)
    fold = None if folds is None else used // (len(first_rank) * len(second_rank))
    used = used % (len(first_rank) * len(second_rank))
    at = used // len(second_rank), used % len(second_rank)
    return _Counts(at, (first_rank, second_rank), mass, single, fold, cell)


def _places(level: Levels, depth: int) -> tuple[Index, Array]:
    """Place of each row on a grid that every root's grid is coarser than; ranks of the places."""
    size = 3 << depth
    if len(level.rank) <= size:
        return level.codes, level.rank
    place = np.minimum((level.rank * size).astype(np.intp), size - 1)
    return place[level.codes], (np.arange(size) + 0.5) / size


def _bins(rank: Array, depth: int, root: float) -> Index:
    """Bin of each place among 2^depth, half of which lie below `root`.

    Where there are bins enough every place has its own, so that single values can be told apart.
    """
    size = 1 << depth
    warped = np.where(rank < root, 0.5 * rank / root, 0.5 + 0.5 * (rank - root) / (1.0 - root))
    out = np.minimum((warped * size).astype(np.intp), size - 1)
    if len(rank) <= size:
        steps = np.arange(len(rank))
        out = np.maximum.accumulate(out - steps) + steps
        ends = size - len(rank) + steps
        out = np.minimum(out, ends)
    return out


def _mixture(
    counts: _Counts, mass: Array, depth: tuple[int, int], prior: Prior, roots: Sequence[float]
) -> tuple[Array, Array, float]:
    """In-sample and leave-one-out probabilities by cell and group, averaged over the roots."""
    from .._kernels import dyadic as kernels

    inside = outside = 0.0
    leaves, alpha = 0.0, prior.alpha
    shape = (1 << depth[0], 1 << depth[1], mass.shape[1])
    for root in roots:
        row, column = (_bins(r, d, root)[a] for r, d, a in
                       zip(counts.rank, depth, counts.at, strict=True))  # fmt: skip
        flat = row * shape[1] + column
        sums = _spread(flat, mass, shape)
        single = _NO_CUBE
        if counts.single is not None:
            single = _spread(flat, mass * counts.single, shape)
            single /= np.where(sums > 0, sums, 1.0)
        rectangles = kernels.rectangle_sums(sums)
        share, found = kernels.leaf_shares(*kernels.evidence(rectangles, alpha, prior.rising))
        leaves += found / len(roots)
        if counts.fold is None:
            near, far = kernels.cell_probabilities(rectangles, share, alpha, single)
            near, far = near[row, column], far[row, column]
        else:
            near = kernels.cell_probabilities(rectangles, share, alpha, single)[0][row, column]
            far = np.ones_like(near)
            for fold in np.unique(counts.fold):
                own = counts.fold == fold
                left = sums - _spread(flat[own], mass[own], shape)
                rectangles = kernels.rectangle_sums(np.maximum(left, 0.0))
                share, _ = kernels.leaf_shares(
                    *kernels.evidence(rectangles, alpha, prior.rising)
                )
                far[own] = kernels.left_out(rectangles, share, alpha, row[own], column[own])
        inside, outside = inside + near / len(roots), outside + far / len(roots)
    return inside, outside, leaves


def _spread(flat: Index, mass: Array, shape: tuple[int, int, int]) -> Array:
    cells = shape[0] * shape[1]
    columns = [np.bincount(flat, column, cells) for column in mass.T]
    return np.stack(columns, axis=1).reshape(shape)


def _average(
    counts: _Counts, mass: Array, depth: tuple[int, int], prior: Prior, effective: float
) -> tuple[Array, Array, float]:
    """The first grid alone or the mean of all, whichever predicts better; both, where level."""
    first = _mixture(counts, mass, depth, prior, ROOTS[:1])
    others = _mixture(counts, mass, depth, prior, ROOTS[1:])
    share = 1.0 / len(ROOTS)
    mean = [share * a + (1.0 - share) * b for a, b in zip(first, others, strict=True)]
    behind = _mean(mass, -np.log(first[1])) - _mean(mass, -np.log(mean[1]))
    weight = 1.0 / (1.0 + np.exp(np.clip(0.25 * effective * behind, -50.0, 50.0)))
    inside, outside, leaves = (
        weight * a + (1.0 - weight) * b for a, b in zip(first, mean, strict=True)
    )
    return inside, outside, float(leaves)


def _resolution(
    counts: _Counts, plane: Plane, prior: Prior, effective: float, losses: tuple[float, float]
) -> float:
    """What the size of sample and grid adds to the entropy: quarters on a coarser grid, less all.

    Where the quarters lose much of what is found by all the rows, the law that an error halves
    with four times the rows has not set in, and less of the difference is taken off. Nor is it
    more than what fitting the parts costs (the gap between leave-one-out and in-sample loss) and
    what the coarser grid alone costs.
    """
    quarters = _quarters(counts)
    if quarters is None:
        return 0.0
    inside, outside = losses
    value = 0.5 * (inside + outside)
    # In one dimension the grid is as fine as it needs to be, and the error falls faster. Nor is
    # there anything between values that all have bins of their own.
    line = len(plane.levels) == 1
    told = [len(rank) <= 1 << d for rank, d in zip(counts.rank, plane.depth, strict=True)]
    depth = tuple(
        d if line or own else max(d - 1, 1) for d, own in zip(plane.depth, told, strict=True)
    )

    def loss(part: _Counts, mass: Array, rows: float) -> float:
        near, far, _ = _average(part, mass, depth, prior, rows)
        return 0.5 * (_mean(mass, -np.log(near)) + _mean(mass, -np.log(far)))

    found = total = 0.0
    for mass in quarters:
        # Edges lie at quantiles of the sample, which are off by twice as much in a quarter of it.
        own = replace(
            counts,
            rank=tuple(
                rank if alone else _ranks(at, mass, len(rank))
                for rank, at, alone in zip(counts.rank, counts.at, told, strict=True)
            ),
        )
        amount = float(mass.sum())
        found += amount * loss(own, mass, effective / 4)
        total += amount
    excess = max(found / total - value, 0.0) * (0.5 if line else 1.0)
    coarser = 0.0 if depth == plane.depth else loss(counts, counts.mass, effective) - value
    excess = min(excess, outside - inside + max(coarser, 0.0))
    shares = counts.mass.sum(axis=0) / counts.mass.sum()
    gain = max(float(-(shares * np.log(shares)).sum()) - value, 0.0)
    return excess * gain / (gain + excess) if excess > 0 else 0.0


def _ranks(at: Index, mass: Array, places: int) -> Array:
    """Mid-ranks of the places of a side among some of the rows."""
    amount = np.bincount(at, mass.sum(axis=1), places)
    return np.clip((np.cumsum(amount) - 0.5 * amount) / amount.sum(), 0.0, 1.0)


def _quarters(counts: _Counts) -> list[Array] | None:
    """Four random parts of the rows, as counts; of the folds, where rows go together."""
    rng = np.random.default_rng(0)
    mass = counts.mass
    if counts.fold is not None:
        folds = np.unique(counts.fold)
        if len(folds) < 8:
            return None
        part = rng.permutation(len(folds)) % 4
        of_cell = part[np.searchsorted(folds, counts.fold)]
        return [np.where((of_cell == j)[:, None], mass, 0.0) for j in range(4)]
    unit = np.where(mass > 0, 1.0 if counts.single is None else counts.single, 1.0)
    left = np.rint(mass / np.where(unit > 0, unit, 1.0)).astype(np.int64)
    if left.sum() < 40:
        return None
    out = []
    for j in range(4):
        drawn = rng.binomial(left, 1.0 / (4 - j))
        out.append(drawn * unit)
        left = left - drawn
    return out


def _mean(mass: Array, loss: Array) -> float:
    return float((mass * loss).sum() / mass.sum())
