"""Cells → rows that estimators and tests can work on.

Every person of a cell gets a place between the least and the largest value that its group has
there. Groups are not placed at their means, which differ by chance and would give the group away,
but spread out, in turn along a sequence that fills a square evenly, so that any stretch of it, such
as the people of one group, does so too. One person or two of a group in a cell are exact, and so
are those who share one value.

Up to `MOST_ROWS` people are a row each. Of more there are some `FEWER_ROWS` rows that stand for
several people each, with their weight, and `frequency` says for how many.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Rows, Vector
from .._core.validation import InputError
from ..data.groups import Groups
from ..data.sample import Sample
from ..data.weights import mean_one
from .cells import PRODUCT, SCORE, SCORE2, TARGET, TARGET2, WEIGHT, WEIGHT2, Cells, together

MOST_ROWS = 2_000_000
# More of them take more memory, and bring estimates no closer to those of the people.
FEWER_ROWS = 400_000
# Estimators that look at single rows.
NEED_ROWS = ("knn", "fourier")
# The additive recurrence of least discrepancy in the plane: powers of the root of x³ = x + 1.
_STEPS = 0.7548776662466927, 0.5698402909980532
# Means closer to an end of their cell than this would need too steep a density.
_END = 0.02
# People of a group in a cell at which its own mean counts for half. Those of a few are noise: if
# they were met, people would lie farther apart than they do.
_FEW = 8.0
# People from which on a cell can have a heap, and what its mean and shape must be like.
_HEAP_PEOPLE, _HEAP_MEAN, _HEAP_SHAPE = 16, 0.3, 0.4
# Most of the variance of weights that is taken by lowering the lighter half.
_LIGHTEST = 0.95


def refuse_beside_cells(estimator: Any, **given: Any) -> None:
    """Refuse what needs rows, or what cells hold already.

    Parameters
    ----------
    estimator : str or instance
    **given : Any
        Other arguments by name, None where they were left out.
    """
    name = estimator if isinstance(estimator, str) else type(estimator).__name__
    if name.lower() in NEED_ROWS:
        raise InputError(
            "estimator", f"be auto, logistic or lspc for cells, got {name!r}, which needs rows"
        )
    for argument, value in given.items():
        if value is not None:
            why = (
                "which needs rows"
                if argument in ("cluster", "controls", "exposure", "loss")
                else "which they hold"
            )
            raise InputError(argument, f"be left out for cells: {why}")


def refuse_copied(cells: Cells, estimator: Any) -> None:
    """Refuse cells that look like copies of rows, except for a smooth estimator."""
    if cells.copied and not getattr(estimator, "is_smooth", False):
        raise InputError(
            "cells", "count different people: nearly all who share a score and a target are of one "
            "group, as copies of a row are",
            hint='count each row once; if they are people, estimator="logistic" measures them.',
        )  # fmt: skip


def expand_cells(cells: Cells, most: int = MOST_ROWS, fewer: int = FEWER_ROWS) -> Sample:
    """Rows that stand for all people, each with its share of the weight.

    Parameters
    ----------
    cells : Cells
    most : int
        People up to which each is a row.
    fewer : int
        Rows that more people are, about, and at least one for each cell and group.
    """
    if cells.expected:
        return _inferred(cells, expand_cells, most, fewer)
    rows, frequency = cells.count, None
    if cells.n > most:
        rows = np.maximum(np.rint(cells.count * (fewer / cells.n)), 1.0).astype(np.int64)
        frequency = np.repeat(cells.count / rows, rows)
    return _place(cells, rows, frequency)


def sample_cells(cells: Cells, most: int = MOST_ROWS, fewer: int = FEWER_ROWS) -> Sample:
    """Some of the people, evenly spread over the cells, each with equal chances; all if so few."""
    if cells.n <= most:
        return expand_cells(cells, most)
    if cells.expected:
        return _inferred(cells, sample_cells, most, fewer)
    ends = np.floor(np.cumsum(cells.count) * (fewer / cells.n) + 0.5).astype(np.int64)
    return _place(cells, np.diff(ends, prepend=0), None)


def _inferred(cells: Cells, place: Any, most: int, fewer: int) -> Sample:
    """Rows of expected counts: one alone in its cell with its probabilities, others with a group.

    Of several people in a cell as many are of each group as are expected. With the mean
    probabilities of their cell they would be taken for independent, and errors be too small by the
    root of their number; now errors are at most those of as many people of recorded groups.
    """
    eye = np.eye(len(cells.labels))
    if cells.n > most:
        count = np.diff(np.floor(np.cumsum(cells.count) + 0.5), prepend=0.0).astype(np.int64)
        sums = cells.sums * (count / cells.count)[:, None]
        some = replace(cells, count=count, sums=sums, expected=False).take(count > 0)
        rows = place(some, most, fewer)
        table = eye[rows.groups.codes]
    else:
        people, share = together(cells)
        rows = place(people, most, fewer)
        cell = rows.groups.codes
        size = np.bincount(cell, minlength=len(share))
        number = np.arange(len(cell)) - (np.cumsum(size) - size)[cell]
        at = (number + np.random.default_rng(3).random(len(share))[cell]) / size[cell]
        below = np.cumsum(share, axis=1)[cell, :-1]
        table = np.where(
            (size > 1)[cell, None], eye[(at[:, None] >= below).sum(axis=1)], share[cell]
        )
    groups = replace(
        rows.groups, labels=cells.labels, codes=None, probabilities=table, assume=cells.assume
    )
    return replace(rows, groups=groups)


def _place(cells: Cells, rows: NDArray[np.int64], frequency: Vector | None) -> Sample:
    """So many rows of each entry."""
    new = np.append(True, np.diff(cells._place) != 0)
    first = np.flatnonzero(new)
    cell = np.cumsum(new) - 1
    entry = np.repeat(np.arange(len(rows)), rows)
    own = cell[entry]
    size = np.add.reduceat(rows, first)
    number = np.arange(len(entry)) - np.repeat(np.cumsum(size) - size, size)
    whole = _Whole(
        np.add.reduceat(cells.count, first),
        np.add.reduceat(cells.sums, first, axis=0),
        np.minimum.reduceat(cells.least, first, axis=0),
        np.maximum.reduceat(cells.largest, first, axis=0),
        first,
        cell,
    )
    edges = cells.edges
    # Every cell begins elsewhere: the first group would otherwise always have the first place.
    begin = np.random.default_rng(0).random((2, len(first)))
    turns = [(b[own] + number * step) % 1.0 for b, step in zip(begin, _STEPS, strict=True)]
    # Two people of one group lie at the ends, at the same one or at opposite ones.
    two = cells.count == 2 if not edges.slope else (whole.n == 2)[cell]
    pair = (two & (rows == 2))[entry]
    number = _numbers(rows, entry)
    falls = cells.sums[:, PRODUCT] * cells.sums[:, WEIGHT] < (
        cells.sums[:, SCORE] * cells.sums[:, TARGET]
    )
    turns[0][pair] = number[pair]
    turns[1][pair] = np.where(falls[entry[pair]], 1 - number[pair], number[pair])
    y = None
    if edges.target is not None:
        y = _spread(cells, 1, whole, turns[1], entry)
    if edges.slope and y is not None:
        s = _along_line(cells, whole, y, turns[0], own)
    else:
        s = _spread(cells, 0, whole, turns[0], entry)
    weight = None
    if cells.weighted or frequency is not None:
        weight = mean_one(_weights(cells, rows, entry))
    codes = cells.group[entry].astype(np.intp)
    groups = Groups(cells.labels, codes, None, weight, None, len(codes), cells.sensitive_name)
    return Sample(groups, s, y, frequency=frequency)


def _numbers(rows: NDArray[np.int64], entry: Any) -> NDArray[np.int64]:
    """Number of each row among those of its entry."""
    return np.arange(len(entry)) - np.repeat(np.cumsum(rows) - rows, rows)


class _Whole(NamedTuple):
    """Cells with their groups together; `first` entry of each, and the cell of each entry."""

    n: NDArray[np.int64]
    sums: Vector
    least: Vector
    largest: Vector
    first: Rows
    cell: Rows


def _spread(cells: Cells, axis: int, whole: _Whole, turn: Vector, entry: Any) -> Vector:
    """Values between two ends, with the density t^(1/p − 1) that has the mean asked for.

    The ends and the mean are those of the group in the cell: a group that ends in the middle of a
    cell, as groups told apart by an edge do, stays on its side. But not where some people of a
    group share one value and others of the cell have another: then there are common values in it,
    which people of other groups would be moved off, and ends and mean are those of all.
    """
    along: Any = (cells.edges.score, cells.edges.target)[axis]
    cell = whole.cell
    column = SCORE + axis
    low, high = whole.least[cell, axis], whole.largest[cell, axis]
    pooled = (whole.sums[:, column] / whole.sums[:, WEIGHT])[cell]
    mean = cells.sums[:, column] / cells.sums[:, WEIGHT]
    shared = (cells.count > 1) & (cells.least[:, axis] == cells.largest[:, axis]) & (low < high)
    mixed = np.logical_or.reduceat(shared, whole.first)[cell]
    heaped = _heaped(whole, axis, along.shift)[cell]
    alone = ~mixed & (heaped == 0)
    trust = np.where(heaped != 0, 1.0, cells.count / (cells.count + _FEW))
    mean = np.where(alone, mean, pooled + trust * (mean - pooled)) + along.shift
    low, high = (
        np.where(alone, own[:, axis], end)
        for own, end in ((cells.least, low), (cells.largest, high))
    )
    width = high - low
    inside = np.full(len(cell), 0.5)
    np.divide(mean - low, width, out=inside, where=width > 0)
    inside = np.clip(inside, -1.0, 2.0)  # sums that somebody wrote may lie anywhere
    # Of n people one lies at either end, and the others in between: were all of them, the rarer a
    # group is the farther it would stay off the ends of bins.
    ends = np.where(alone & (cells.count > 1), 1.0 / cells.count, 0.0)
    np.divide(inside - ends, 1.0 - 2.0 * ends, out=inside, where=ends < 0.5)
    others = np.maximum(cells.count - 2.0, 0.0)
    inside = np.where(alone, 0.5 + others / (others + _FEW) * (inside - 0.5), inside)
    power = 1.0 / np.clip(inside, _END, 1.0 - _END) - 1.0
    # The rest of a heaped cell is spread evenly, so that its mean tells how many lie on the heap.
    heap = np.where(heaped < 0, 1.0 - 2.0 * inside, 2.0 * inside - 1.0)
    heap = np.where(heaped != 0, np.clip(heap, 0.0, 1.0), 0.0)
    power[heaped != 0] = 1.0
    rows = np.bincount(entry, minlength=len(cell))
    on_heap = _numbers(rows, entry) < np.rint(heap * rows)[entry]
    end = np.where(heaped < 0, low, high)[entry]
    # Pairs are there already.
    chance = np.where((cells.count == 2) & (rows == 2), 0.0, ends * rows)
    turn = _at_ends(turn, chance, rows, entry, axis)
    return np.where(on_heap, end, low[entry] + width[entry] * turn ** power[entry])


def _at_ends(
    turn: Vector, chance: Vector, rows: NDArray[np.int64], entry: Any, axis: int
) -> Vector:
    """0 for one row of an entry and 1 for another, with these chances; others as they are.

    Never for two of them: rows that share a value would be taken for copies of one.
    """
    number = _numbers(rows, entry)
    which, one, other = np.random.default_rng(axis + 1).random((3, len(rows)))
    # A single row can be at either end, but not at both.
    single = rows == 1
    low = np.where(single, (other < 0.5) & (one < 2.0 * chance), one < chance)
    high = np.where(single, (other >= 0.5) & (one < 2.0 * chance), other < chance)
    first = np.floor(which * rows).astype(np.int64)
    second = (first + 1) % np.maximum(rows, 1)
    out = np.where(low[entry] & (number == first[entry]), 0.0, turn)
    return np.where(high[entry] & (number == second[entry]), 1.0, out)


def _heaped(whole: _Whole, axis: int, shift: float) -> NDArray[np.int8]:
    """−1 for a cell with many people at its least value, 1 at its largest, 0 for any other.

    Of people at one end and others spread evenly, E t² = ⅔ E t for distances t from that end in
    multiples of the width, however many there are of each; a long tail has far less.
    """
    mass, width = whole.sums[:, WEIGHT], whole.largest[:, axis] - whole.least[:, axis]
    first, second = whole.sums[:, SCORE + axis] / mass, whole.sums[:, SCORE2 + axis] / mass
    out = np.zeros(len(mass), dtype=np.int8)
    many = (whole.n >= _HEAP_PEOPLE) & (width > 0)
    for side, end in ((-1, whole.least[:, axis]), (1, whole.largest[:, axis])):
        away = end - shift
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean = np.abs(first - away) / width
            square = (second - 2.0 * away * first + away * away) / width**2
            near = (mean < _HEAP_MEAN) & (square > _HEAP_SHAPE * mean)
        out[many & near] = side
    return out


def _along_line(cells: Cells, whole: _Whole, y: Vector, turn: Vector, own: Any) -> Vector:
    """The line plus residuals with the mean and the spread of those in the cell."""
    edges: Any = cells.edges
    slope, sums, mass = edges.slope, whole.sums, whole.sums[:, WEIGHT]
    mean = (sums[:, SCORE] - slope * sums[:, TARGET]) / mass
    square = sums[:, SCORE2] - 2.0 * slope * sums[:, PRODUCT] + slope * slope * sums[:, TARGET2]
    variance = np.maximum(square / mass - mean * mean, 0.0)
    # Below the rounding of the squares there is nothing to be known about a spread.
    noise = 1e-14 * (sums[:, SCORE2] + slope * slope * sums[:, TARGET2]) / mass
    half = np.sqrt(np.where(variance > noise, 3.0 * variance, 0.0))
    s = edges.score.shift + slope * (y - edges.target.shift)
    s += mean[own] + half[own] * (2.0 * turn - 1.0)
    exact = (whole.least[:, 0] == whole.largest[:, 0])[own]
    s[exact] = whole.least[own[exact], 0]
    return s


def _weights(cells: Cells, rows: NDArray[np.int64], entry: Any) -> Vector:
    """Weights of rows with the Σw of each entry, and its Σw² for as many people.

    j of the r rows of an entry are heavier than the others, as many as may be without the others
    falling to nothing.
    """
    mean = cells.sums[:, WEIGHT] / cells.count
    square = cells.sums[:, WEIGHT2] / cells.count / np.maximum(np.square(mean), 1e-300)
    spread = np.where(rows > 1, np.maximum(square - 1.0, 0.0), 0.0)
    spread[spread < 1e-12] = 0.0
    ratio = _LIGHTEST**2 / np.maximum(spread, 1e-300)
    heavy = np.clip(np.floor(rows * ratio / (1.0 + ratio)), 1, np.maximum(rows // 2, 1))
    odds = heavy / np.maximum(rows - heavy, 1)
    below = np.minimum(np.sqrt(spread * odds), 1.0 - 1e-9)
    above = below / np.maximum(odds, 1e-300)
    number = _numbers(rows, entry)
    light = number >= heavy[entry]
    share = (cells.sums[:, WEIGHT] / np.maximum(rows, 1))[entry]
    factor = np.where(light, 1.0 - below[entry], 1.0 + above[entry])
    return share * factor
