"""A rung for any distribution: the mixture over all recursive dyadic partitions of a grid of ranks.

    P(R) = ½·DM(counts of R) + ¼·P(left)·P(right) + ¼·P(lower)·P(upper)

for a rectangle R of the grid, DM being the Dirichlet-multinomial probability of its groups (an
optional Pólya tree; Wong and Ma 2010). Every cell's probabilities are averaged over three grids
whose first cut lies at ½, ⅓ and ⅔, so that an edge that one of them cuts badly is cut well by
another; where straight edges can be met by moving the cuts, they are moved.

No partition of n rows follows an edge more closely than some n^(−½), and none is finer than the
grid. Both errors double with a quarter of the rows on a grid half as fine, and what they do to an
entropy is therefore the difference between the estimates from quarters and from all: it is taken
off, and its doubtful part goes into the standard error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .._core.arrays import Array
from .ranks import Levels, renumber, sums
from .rungs import HANDICAP, Data, Rung, blend

Index = NDArray[np.intp]
# Ranks at which the grids of one mixture are first halved.
ROOTS = (1 / 2, 1 / 3, 2 / 3)
# Roots from which the search for straight edges begins, and steps in rank by which cuts are moved.
_STARTS, _STEPS = (1 / 2, 2 / 3, 4 / 5, 4 / 7), (-0.02, 0.02, -0.005, 0.005, -0.001, 0.001)
# Effective rows between which cuts are moved (among 2,000 they follow chance, and estimates are 3
# to 20 % too high; among 200,000 halving meets edges as well), and nats over all rows that one
# move, and all of them, must save.
_LEAST_MOVING, _MOST_MOVING, _MOVE_GAIN, _WORTHWHILE = 5_000, 50_000, 3.0, 12.0
# Places on a side up to which single values keep their own.
_PLACES = 3 * 1024
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
    depth: tuple[int, ...]


@dataclass(frozen=True)
class Counts:
    """Occupied cells of the grid that refines those of all roots; C cells, K groups.

    `at` are the places of the cells on each side, `rank` the ranks of those places; `mass` and
    `single` are the weights of the groups and of one row of them; `fold` the fold of the clusters
    in it, or None.
    """

    at: tuple[Index, Index]
    rank: tuple[Array, ...]
    mass: Array
    single: Array | None
    fold: Index | None
    row_cell: Index


class Fitted(NamedTuple):
    """Probabilities by cell and group with the rows in and without one, and how many parts."""

    inside: Array
    outside: Array
    leaves: float

    def losses(self, mass: Array) -> tuple[float, float]:
        return _loss(mass, self.inside), _loss(mass, self.outside)


def deepest(n_rows: float, n_groups: int) -> int:
    """How often each side may be halved: about one cell a row, and no more than there is room."""
    room = int(np.log2(_ROOM / n_groups) / 2) - 1
    return max(min(int(np.round(np.log2(max(n_rows, 4.0)) / 2 + 0.75)), room), 2)


def screen(plane: Plane, data: Data) -> float:
    """Leave-one-out loss of the mixture on one grid: whether a closer look is worth it."""
    groups = data.groups
    if data.folds is not None or groups.codes is None:
        counts = _count(plane, data)
        return _loss(counts.mass, _mixture(counts, plane.depth, data, ROOTS[:1]).outside)
    from ..kernels import dyadic as kernels

    depths = zip(plane.levels, plane.depth, strict=False)
    sides = [(v.codes, bins_of(v.rank, d, ROOTS[0])) for v, d in depths]
    if len(sides) == 1:
        sides.append((sides[0][0], np.zeros_like(sides[0][1])))
    shape = (1 << plane.depth[0], 1 << plane.depth[1], groups.n_groups)
    unequal = data.weight if groups.weight is not None else np.empty(0)
    mass, single = kernels.grid_sums(sides[0], sides[1], groups.codes, unequal, shape)
    return _loss(mass, _fit_cube(mass, single, data).outside)


def _fit_cube(mass: Array, single: Array, data: Data) -> Fitted:
    """The mixture over partitions of one grid, (rows, columns, K)."""
    from ..kernels import dyadic as kernels

    rectangles, *logs = kernels.evidence(mass, data.alpha, data.rising)
    share, live, parts = kernels.leaf_shares(*logs)
    near, far = kernels.cell_probabilities(rectangles, share, live, data.alpha, single)
    return Fitted(near, far, parts)


def grow(plane: Plane, data: Data) -> Rung:
    """Fit the mixture over partitions, with what its resolution costs."""
    groups = data.groups
    counts = _count(plane, data)
    fitted = _averaged(counts, plane.depth, data, data.effective)
    inside, outside = fitted.losses(counts.mass)
    # A quarter of the clusters is too few to leave some of them out.
    shift, doubt = 0.0, _DOUBT * max(outside - inside, 0.0)
    if counts.fold is None and data.effective >= LEAST_ROWS:
        shift = _resolution(counts, plane, data, fitted, moved=False)
        doubt = _DOUBT * shift
        if len(plane.levels) == 2 and _LEAST_MOVING <= data.effective <= _MOST_MOVING:
            stretched = _move_cuts(counts, data)
            moved = _averaged(stretched, plane.depth, data, data.effective)
            near_loss, far_loss = moved.losses(counts.mass)
            left = _resolution(stretched, plane, data, moved, moved=True)
            # Straight edges can be met, and less is left than was saved; round ones cannot.
            if outside - far_loss > max(left, _WORTHWHILE / data.effective):
                fitted, shift, inside, outside = moved, left, near_loss, far_loss
    near, far = -np.log(fitted.inside), -np.log(fitted.outside)
    row_entry, k = counts.row_cell, groups.n_groups
    if groups.codes is not None:
        near, far, row_entry = near.ravel(), far.ravel(), row_entry * k + groups.codes
    else:
        near, far = ((groups.membership() * v[row_entry]).sum(axis=1) for v in (near, far))
        row_entry = np.arange(len(row_entry))
    terms = (k - 1) * fitted.leaves
    return Rung(
        f"{plane.name}, {fitted.leaves:.0f} parts", near, far, row_entry, inside, outside, terms,
        terms, shift, doubt, HANDICAP,
    )  # fmt: skip


def _move_cuts(counts: Counts, data: Data) -> Counts:
    """Ranks stretched so that even cuts lie where the mixture makes the groups likeliest.

    Sixteenths of both sides, at first those of the best root, are moved one by one.
    """
    from ..kernels import dyadic as kernels

    even = np.linspace(0.0, 1.0, 17)

    def stretch(cuts: Array) -> tuple[Array, ...]:
        return tuple(map(np.interp, counts.rank, np.sort(cuts), (even, even)))

    def likelihood(cuts: Array) -> float:
        row, column = (bins_of(rank, 5, ROOTS[0]) for rank in stretch(cuts))
        place = 32 * row[counts.at[0]] + column[counts.at[1]]
        cube = _add_cells(place, counts.mass, (32, 32, len(data.alpha)))
        return float(kernels.evidence(cube, data.alpha, data.rising)[1][1, 1])

    starts = [np.tile(np.interp(even, [0.0, 0.5, 1.0], [0.0, r, 1.0]), (2, 1)) for r in _STARTS]
    best = likelihood(cuts := max(starts, key=likelihood))
    for step in _STEPS:
        for move in step * np.eye(34).reshape(2, 17, 2, 17)[:, 1:-1].reshape(30, 2, 17):
            while (value := likelihood(cuts + move)) > best + _MOVE_GAIN:
                best, cuts = value, cuts + move
    return replace(counts, rank=stretch(cuts))


def _count(plane: Plane, data: Data) -> Counts:
    groups, weight, folds = data.groups, data.weight, data.folds
    sides = [_places(level, d) for level, d in zip(plane.levels, plane.depth, strict=False)]
    if len(sides) == 1:
        sides.append((np.zeros(len(weight), dtype=np.intp), np.array([0.5])))
    (first, first_rank), (second, second_rank) = sides
    key = first * len(second_rank) + second
    area = size = len(first_rank) * len(second_rank)
    if folds is not None:
        key = key + folds % _FOLDS * area
        size *= _FOLDS
    if size <= 8 * len(key) + 65536:
        cell, used = renumber(key, size)
    else:
        used, cell = np.unique(key, return_inverse=True)
    c, k = len(used), groups.n_groups
    if groups.codes is not None:
        entry = cell * k + groups.codes
        mass, squares = (sums(entry, w, c * k).reshape(c, k) for w in (weight, weight**2))
    else:
        assert groups.probabilities is not None
        parts = (weight[:, None] * groups.probabilities).T
        mass, squares = (np.stack([sums(cell, p**j, c) for p in parts], axis=1) for j in (1, 2))
    single = None
    if groups.codes is None or (weight != 1.0).any():
        single = squares / np.where(mass > 0, mass, 1.0)
    fold = None if folds is None else used // area
    row, column = np.divmod(used % area, len(second_rank))
    return Counts((row, column), (first_rank, second_rank), mass, single, fold, cell)


def _places(level: Levels, depth: int) -> tuple[Index, Array]:
    """Place of each row on a grid that every root's grid is coarser than; ranks of the places."""
    size = max(3 << depth, _PLACES)
    if len(level.rank) <= size:
        return level.codes, level.rank
    place = np.minimum((level.rank * size).astype(np.intp), size - 1)
    return place[level.codes], (np.arange(size) + 0.5) / size


def bins_of(rank: Array, depth: int, root: float) -> Index:
    """Bin of each place among 2^depth, half of which lie below the root.

    Where there are bins enough every place has its own, so that single values can be told apart.
    """
    size = 1 << depth
    warped = np.interp(rank, [0.0, root, 1.0], [0.0, 0.5, 1.0])
    # Rounded, and the ends of bins always to the outer one: reversing a side reverses its bins.
    place = np.round(warped * size, 9)
    out = np.where(warped < 0.5, np.ceil(place) - 1, np.floor(place)).astype(np.intp)
    out = np.clip(out, 0, size - 1)
    if len(rank) <= size:
        steps = np.arange(len(rank))
        out = np.maximum.accumulate(out - steps) + steps
        out = np.minimum(out, size - len(rank) + steps)
    return out


def _mixture(counts: Counts, depth: tuple[int, ...], data: Data, roots: Sequence[float]) -> Fitted:
    """In-sample and leave-one-out probabilities by cell and group, averaged over the roots."""
    mass = counts.mass
    inside, outside, leaves = np.zeros_like(mass), np.zeros_like(mass), 0.0
    shape = (1 << depth[0], 1 << depth[1], mass.shape[1])
    for root in roots:
        sides = zip(counts.rank, depth, counts.at, strict=True)
        row, column = (bins_of(rank, d, root)[at] for rank, d, at in sides)
        flat = row * shape[1] + column
        cube = _add_cells(flat, mass, shape)
        single = _NO_CUBE
        if counts.single is not None:
            single = _add_cells(flat, mass * counts.single, shape)
            single /= np.where(cube > 0, cube, 1.0)
        *cubes, parts = _fit_cube(cube, single, data)
        leaves += parts / len(roots)
        near, far = (p[row, column] for p in cubes)
        for fold in [] if counts.fold is None else np.unique(counts.fold):
            own = counts.fold == fold
            left = cube - _add_cells(flat[own], mass[own], shape)
            asked = np.zeros(shape)
            asked[row[own], column[own]] = 1.0
            others = _fit_cube(np.maximum(left, 0.0), asked, data)
            far[own] = others.inside[row[own], column[own]]
        # In place: with a million rows each of these arrays is tens of megabytes.
        for whole, part in ((inside, near), (outside, far)):
            part /= len(roots)
            whole += part
        del near, far, part
    return Fitted(inside, outside, leaves)


def _averaged(counts: Counts, depth: tuple[int, ...], data: Data, effective: float) -> Fitted:
    """The first grid alone or the mean of all, whichever predicts better; both, where level."""
    first, others = (_mixture(counts, depth, data, roots) for roots in (ROOTS[:1], ROOTS[1:]))
    share = 1.0 / len(ROOTS)
    mean = share * first.outside + (1.0 - share) * others.outside
    behind = _loss(counts.mass, first.outside) - _loss(counts.mass, mean)
    one = share + (1.0 - share) * float(expit(-0.25 * effective * behind))
    return Fitted._make(map(blend, others, first, (one, one, one)))


def _resolution(counts: Counts, plane: Plane, data: Data, fitted: Fitted, moved: bool) -> float:
    """What the size of sample and grid adds to the entropy: quarters on a coarser grid, less all.

    Where the quarters lose much of what is found by all the rows, the rule that an error
    halves with four times the rows has not set in, and less of the difference is taken off. Nor is
    it more than what fitting the parts costs (the gap between leave-one-out and in-sample loss) and
    what the coarser grid alone costs.
    """
    inside, outside = fitted.losses(counts.mass)
    value = 0.5 * (inside + outside)
    # In one dimension the grid is as fine as it needs to be, and the error falls faster. Nor is
    # there anything between values that all have bins of their own.
    line = len(plane.levels) == 1
    apart = [len(rank) <= 1 << d for rank, d in zip(counts.rank, plane.depth, strict=True)]
    depth = tuple(
        d if line or own else max(d - 1, 1) for d, own in zip(plane.depth, apart, strict=True)
    )

    def loss(part: Counts, rows: float) -> float:
        return 0.5 * sum(_averaged(part, depth, data, rows).losses(part.mass))

    lost = total = 0.0
    for mass in _quarters(counts):
        # Quantiles of the sample, at which a grid is cut, are off by twice as much in a quarter.
        rank, rank_2 = (
            rank if alone or moved else _ranks(at, mass, len(rank))
            for rank, at, alone in zip(counts.rank, counts.at, apart, strict=True)
        )
        amount = float(mass.sum())
        lost += amount * loss(replace(counts, rank=(rank, rank_2), mass=mass), data.effective / 4)
        total += amount
    excess = max(lost / total - value, 0.0) * (0.5 if line else 1.0)
    coarser = 0.0 if depth == plane.depth else loss(counts, data.effective) - value
    excess = min(excess, outside - inside + max(coarser, 0.0))
    shares = counts.mass.sum(axis=0) / counts.mass.sum()
    gain = max(float(-(shares * np.log(shares)).sum()) - value, 0.0)
    return excess * gain / (gain + _CAUTION * excess) if excess > 0 else 0.0


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


def _add_cells(flat: Index, mass: Array, shape: tuple[int, int, int]) -> Array:
    columns = [sums(flat, column, shape[0] * shape[1]) for column in mass.T]
    return np.stack(columns, axis=1).reshape(shape)
