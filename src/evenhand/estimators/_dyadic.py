"""A rung for any law: the mixture over all recursive dyadic partitions of a grid of ranks.

    P(R) = ½·DM(counts of R) + ¼·P(left)·P(right) + ¼·P(lower)·P(upper)

for a rectangle R of the grid, DM being the Dirichlet-multinomial probability of its groups (an
optional Pólya tree; Wong and Ma 2010). Every cell's probabilities are averaged over three grids
whose first cut lies at ½, ⅓ and ⅔, so that an edge that one of them cuts badly is cut well by
another; where straight edges can be met by moving the cuts of the first one, they are.

No partition of n rows follows an edge more closely than some n^(−½), and none is finer than the
grid. Both errors double with a quarter of the rows on a grid half as fine, and what they do to an
entropy is therefore the difference between the estimates from quarters and from all: it is taken
off, and its doubtful part goes into the standard error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Array
from ..data.groups import Groups
from ._cells import Levels
from ._cells import sums as add_up
from ._cuts import (
    PLACES,
    ROOTS,
    SEARCH_DEPTH,
    SEARCH_ROWS,
    WORTHWHILE,
    Counts,
    Cuts,
    Prior,
    add_cells,
    bins_of,
    move_cuts,
)

Index = NDArray[np.intp]


# Numbers that all rectangles of a tree may hold, groups included.
_ROOM = 4.4e6
# What is doubtful about a correction: exponents of n between ⅓ and 1 in place of ½ change it by
# factors of 1.7 to 0.33.
_DOUBT = 0.4
# How much less is taken off where it is much of what was found: at a few thousand rows errors fall
# faster than they do later.
_CAUTION = 3.0
# Effective rows below which partitions say nothing that smooth rungs and tables do not, and
# quarters of the rows nothing at all.
LEAST_ROWS = 200
# Clusters are left out in so many folds: a mixture has to be made for each.
_FOLDS = 10
_NO_CUBE = np.empty((0, 0, 0))


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


def deepest(n_rows: float, n_groups: int) -> int:
    """How often each side may be halved: about one cell a row, and no more than there is room."""
    room = int(np.log2(_ROOM / n_groups) / 2) - 1
    return max(min(int(np.round(np.log2(max(n_rows, 4.0)) / 2 + 0.75)), room), 2)


def screen(plane: Plane, groups: Groups, weight: Array, prior: Prior, folds: Index | None) -> float:
    """Leave-one-out loss of the mixture on one grid: whether a closer look is worth it."""
    if folds is not None or groups.codes is None:
        counts = _count(plane, groups, weight, folds)
        _, outside, _ = _mixture(counts, counts.mass, plane.depth, prior, ROOTS[:1])
        return _loss(counts.mass, outside)
    from ..kernels import dyadic as kernels

    cuts = zip(plane.levels, plane.depth, ROOTS[0], strict=False)
    sides = [(v.codes, bins_of(v.rank, d, c)) for v, d, c in cuts]
    if len(sides) == 1:
        sides.append((sides[0][0], np.zeros_like(sides[0][1])))
    shape = (1 << plane.depth[0], 1 << plane.depth[1], groups.n_groups)
    unequal = weight if groups.weight is not None else np.empty(0)
    mass, single = kernels.grid_sums(sides[0], sides[1], groups.codes, unequal, shape)
    rectangles, *logs = kernels.evidence(mass, prior.alpha, prior.rising)
    share, live, _ = kernels.leaf_shares(*logs)
    outside = kernels.cell_probabilities(rectangles, share, live, prior.alpha, single)[1]
    return _loss(mass, outside)


def grow(
    plane: Plane, groups: Groups, weight: Array, prior: Prior, effective: float,
    folds: Index | None, search: bool = False,
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
    search : bool
        Whether cuts may be moved, which takes as long as everything else.
    """
    counts = _count(plane, groups, weight, folds)
    k = counts.mass.shape[1]

    def fitted(cuts: Cuts | None) -> tuple[Array, Array, float]:
        return _average(counts, counts.mass, plane.depth, prior, effective, cuts or ROOTS[0])

    def means(found: tuple[Array, Array, float]) -> tuple[float, float]:
        return _loss(counts.mass, found[0]), _loss(counts.mass, found[1])

    found = fitted(None)
    mean_inside, mean_outside = means(found)
    if counts.fold is None and effective >= LEAST_ROWS:
        shift = _resolution(counts, plane, prior, effective, (mean_inside, mean_outside), None)
        doubt = _DOUBT * shift
    else:
        # A quarter of the clusters is too few to leave some of them out.
        shift, doubt = 0.0, _DOUBT * max(mean_outside - mean_inside, 0.0)
    if search and counts.fold is None and effective >= SEARCH_ROWS and len(plane.levels) == 2:
        cuts = move_cuts(counts, counts.mass, plane.depth, prior)
        other = fitted(cuts)
        saved = mean_outside - means(other)[1]
        # Straight edges can be met, and then little is left; round ones cannot.
        if saved > max(WORTHWHILE / effective, 0.5 * shift):
            before = 0.5 * (mean_inside + mean_outside) - shift
            found = other
            mean_inside, mean_outside = means(found)
            shift = _resolution(counts, plane, prior, effective, means(found), cuts)
            apart = 0.5 * (mean_inside + mean_outside) - shift - before
            doubt = max(_DOUBT * shift, 0.5 * abs(apart))
    inside, outside, leaves = found
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
        name=name,
        inside=losses[0],
        outside=losses[1],
        row_entry=row_entry,
        mean_inside=mean_inside,
        mean_outside=mean_outside,
        terms=terms,
        shift=shift,
        doubt=doubt,
    )


def _count(plane: Plane, groups: Groups, weight: Array, folds: Index | None) -> Counts:
    sides = [_places(level, d) for level, d in zip(plane.levels, plane.depth, strict=False)]
    if len(sides) == 1:
        sides.append((np.zeros(len(weight), dtype=np.intp), np.array([0.5])))
    (first, first_rank), (second, second_rank) = sides
    key = first * len(second_rank) + second
    size = len(first_rank) * len(second_rank)
    if folds is not None:
        folds = folds % _FOLDS
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
    squares: Array | None
    equal = groups.codes is not None and float(np.ptp(weight)) <= 1e-12 * float(weight.max())
    if groups.codes is not None:
        entry = cell * k + groups.codes
        mass = add_up(entry, weight, c * k).reshape(c, k)
        squares = add_up(entry, weight**2, c * k).reshape(c, k)
        if equal and weight[0] == 1.0:
            squares = None
    else:
        assert groups.probabilities is not None
        parts = (weight[:, None] * groups.probabilities).T
        mass = np.stack([add_up(cell, p, c) for p in parts], axis=1)
        squares = np.stack([add_up(cell, p * p, c) for p in parts], axis=1)
    single = None if squares is None else squares / np.where(mass > 0, mass, 1.0)
    fold = None if folds is None else used // (len(first_rank) * len(second_rank))
    used = used % (len(first_rank) * len(second_rank))
    at = used // len(second_rank), used % len(second_rank)
    return Counts(at, (first_rank, second_rank), mass, single, fold, cell)


def _places(level: Levels, depth: int) -> tuple[Index, Array]:
    """Place of each row on a grid that every root's grid is coarser than; ranks of the places."""
    size = max(3 << depth, PLACES)
    if len(level.rank) <= size:
        return level.codes, level.rank
    place = np.minimum((level.rank * size).astype(np.intp), size - 1)
    return place[level.codes], (np.arange(size) + 0.5) / size


def _cost_of_places(
    counts: Counts, mass: Array, depth: tuple[int, int], prior: Prior, cuts: Cuts
) -> float:
    """Loss a row that cuts between places cost: a quarter of what moving them by one place does."""
    cost = 0.0
    value = _loss(mass, _mixture(counts, mass, depth, prior, [cuts])[1])
    for side in (0, 1):
        width = 1.0 / len(counts.rank[side])
        for move in (-width, width):
            moved = [c + move if k == side else c for k, c in enumerate(cuts)]
            trial = _mixture(counts, mass, depth, prior, [(moved[0], moved[1])])[1]
            cost += max(_loss(mass, trial) - value, 0.0) / 2
    return cost / 4


def _mixture(
    counts: Counts, mass: Array, depth: tuple[int, int], prior: Prior, roots: Sequence[Cuts]
) -> tuple[Array, Array, float]:
    """In-sample and leave-one-out probabilities by cell and group, averaged over the roots."""
    from ..kernels import dyadic as kernels

    inside, outside = np.zeros_like(mass), np.zeros_like(mass)
    leaves, alpha = 0.0, prior.alpha
    shape = (1 << depth[0], 1 << depth[1], mass.shape[1])
    for root in roots:
        row, column = (bins_of(r, d, c)[a] for r, d, c, a in
                       zip(counts.rank, depth, root, counts.at, strict=True))  # fmt: skip
        flat = row * shape[1] + column
        sums = add_cells(flat, mass, shape)
        single = _NO_CUBE
        if counts.single is not None:
            single = add_cells(flat, mass * counts.single, shape)
            single /= np.where(sums > 0, sums, 1.0)
        rectangles, *logs = kernels.evidence(sums, alpha, prior.rising)
        share, live, parts = kernels.leaf_shares(*logs)
        leaves += parts / len(roots)
        near, far = (
            p[row, column]
            for p in kernels.cell_probabilities(rectangles, share, live, alpha, single)
        )
        if counts.fold is not None:
            far = np.ones_like(near)
            for fold in np.unique(counts.fold):
                own = counts.fold == fold
                left = sums - add_cells(flat[own], mass[own], shape)
                rectangles, *logs = kernels.evidence(np.maximum(left, 0.0), alpha, prior.rising)
                share, live, _ = kernels.leaf_shares(*logs)
                at = row[own], column[own]
                far[own] = kernels.left_out(rectangles, share, live, alpha, *at)
        # In place: with a million rows each of these arrays is tens of megabytes.
        for whole, part in ((inside, near), (outside, far)):
            part /= len(roots)
            whole += part
        del near, far, part
    return inside, outside, leaves


def _average(
    counts: Counts, mass: Array, depth: tuple[int, int], prior: Prior, effective: float,
    cuts: Cuts = ROOTS[0],
) -> tuple[Array, Array, float]:  # fmt: skip
    """The first grid alone or the mean of all, whichever predicts better; both, where level."""
    first = _mixture(counts, mass, depth, prior, [cuts])
    others = _mixture(counts, mass, depth, prior, ROOTS[1:])
    share = 1.0 / len(ROOTS)
    for alone, rest in zip(first[:2], others[:2], strict=True):
        rest *= 1.0 - share
        rest += share * alone
    behind = _loss(mass, first[1]) - _loss(mass, others[1])
    weight = float(1.0 / (1.0 + np.exp(np.clip(0.25 * effective * behind, -50.0, 50.0))))
    leaves = weight * first[2] + (1.0 - weight) * (share * first[2] + (1.0 - share) * others[2])
    for alone, rest in zip(first[:2], others[:2], strict=True):
        alone *= weight
        rest *= 1.0 - weight
        alone += rest
    return first[0], first[1], leaves


def _resolution(
    counts: Counts, plane: Plane, prior: Prior, effective: float, losses: tuple[float, float],
    cuts: Cuts | None,
) -> float:  # fmt: skip
    """What the size of sample and grid adds to the entropy: quarters on a coarser grid, less all.

    Where the quarters lose much of what is found by all the rows, the law that an error halves
    with four times the rows has not set in, and less of the difference is taken off. Nor is it
    more than what fitting the parts costs (the gap between leave-one-out and in-sample loss) and
    what the coarser grid alone costs.
    """
    inside, outside = losses
    value = 0.5 * (inside + outside)
    # In one dimension the grid is as fine as it needs to be, and the error falls faster. Nor is
    # there anything between values that all have bins of their own.
    line = len(plane.levels) == 1
    told = [len(rank) <= 1 << d for rank, d in zip(counts.rank, plane.depth, strict=True)]
    one, other = (
        d if line or own else max(d - 1, 1) for d, own in zip(plane.depth, told, strict=True)
    )
    depth = one, other

    def loss(part: Counts, mass: Array, rows: float) -> float:
        own = ROOTS[0] if cuts is None else move_cuts(part, mass, depth, prior)
        near, far, _ = _average(part, mass, depth, prior, rows, own)
        return 0.5 * (_loss(mass, near) + _loss(mass, far))

    found = total = 0.0
    for mass in _quarters(counts):
        # Quantiles of the sample, at which a grid is cut, are off by twice as much in a quarter.
        rank = [
            rank if alone else _ranks(at, mass, len(rank))
            for rank, at, alone in zip(counts.rank, counts.at, told, strict=True)
        ]
        own = replace(counts, rank=(rank[0], rank[1]))
        amount = float(mass.sum())
        found += amount * loss(own, mass, effective / 4)
        total += amount
    excess = max(found / total - value, 0.0) * (0.5 if line else 1.0)
    coarser = 0.0 if depth == plane.depth else loss(counts, counts.mass, effective) - value
    excess = min(excess, outside - inside + max(coarser, 0.0))
    shares = counts.mass.sum(axis=0) / counts.mass.sum()
    gain = max(float(-(shares * np.log(shares)).sum()) - value, 0.0)
    excess = excess * gain / (gain + _CAUTION * excess) if excess > 0 else 0.0
    if cuts is not None:
        coarse = (min(plane.depth[0], SEARCH_DEPTH), min(plane.depth[1], SEARCH_DEPTH))
        excess = max(excess, _cost_of_places(counts, counts.mass, coarse, prior, cuts))
    return excess


def _ranks(at: Index, mass: Array, places: int) -> Array:
    """Mid-ranks of the places of a side among some of the rows."""
    amount = np.bincount(at, mass.sum(axis=1), places)
    return np.clip((np.cumsum(amount) - 0.5 * amount) / amount.sum(), 0.0, 1.0)


def _quarters(counts: Counts) -> Iterator[Array]:
    """Four random parts of the rows, as counts; the same whatever the groups are called."""
    rng = np.random.default_rng(0)
    order = np.argsort(-counts.mass.sum(axis=0), kind="stable")
    mass = counts.mass[:, order]
    unit = np.ones_like(mass)
    if counts.single is not None:
        unit = np.where(mass > 0, counts.single[:, order], 1.0)
    left = np.rint(mass / np.where(unit > 0, unit, 1.0)).astype(np.int64)
    del mass  # there may be millions of cells
    for j in range(4):
        drawn = rng.binomial(left, 1.0 / (4 - j))
        part = np.empty_like(unit)
        part[:, order] = drawn * unit
        left -= drawn
        del drawn
        yield part


def _loss(mass: Array, probability: Array) -> float:
    """Mean of −log p."""
    logs = np.log(probability)
    logs *= mass
    return float(-logs.sum() / mass.sum())
