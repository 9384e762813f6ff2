"""Cells → rows that estimators and tests can work on.

Every person of a cell gets a place between the least and the largest value seen in it. Places are
the same whatever the group: the means of two groups in a cell differ by chance, and rows placed at
them would give the group away. They are taken in turn from a sequence that fills a square evenly,
so that any stretch of it, such as the people of one group, does so too. A cell of one person, or
of one value, is exact.

Up to `MOST_ROWS` people are a row each. Beyond that a row stands for several, with its weight, and
`frequency` says for how many.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..groups.sensitive import Groups
from ..groups.weights import mean_one
from .cells import PRODUCT, SCORE, SCORE2, TARGET, TARGET2, WEIGHT, WEIGHT2, Cells

Vector = NDArray[np.float64]
MOST_ROWS = 2_000_000
# The additive recurrence of least discrepancy in the plane: powers of the root of x³ = x + 1.
_STEPS = 0.7548776662466927, 0.5698402909980532
# Means closer to an end of their cell than this would need too steep a density.
_END = 0.02
# Most of the variance of weights that is taken by lowering the lighter half.
_LIGHTEST = 0.95


class People(NamedTuple):
    """Rows made of cells; `frequency` (people a row stands for) is None where that is one."""

    s: Vector
    y: Vector | None
    groups: Groups
    frequency: Vector | None

    @property
    def variables(self) -> dict[str, Vector]:
        return {"s": self.s} if self.y is None else {"s": self.s, "y": self.y}


def people(cells: Cells, most: int = MOST_ROWS) -> People:
    """Rows that stand for all people, each with its share of the weight.

    Parameters
    ----------
    cells : Cells
    most : int
        People up to which each is a row.
    """
    rows, frequency = cells.count, None
    if cells.n > most:
        rows = np.maximum(np.rint(cells.count * (most / cells.n)), 1.0).astype(np.int64)
        frequency = np.repeat(cells.count / rows, rows)
    return _place(cells, rows, frequency)


def sample(cells: Cells, most: int = MOST_ROWS) -> People:
    """Some of the people, evenly spread over the cells, each with equal chances; all if so few."""
    if cells.n <= most:
        return people(cells, most)
    ends = np.floor(np.cumsum(cells.count) * (most / cells.n) + 0.5).astype(np.int64)
    return _place(cells, np.diff(ends, prepend=0), None)


def _place(cells: Cells, rows: NDArray[np.int64], frequency: Vector | None) -> People:
    """So many rows of each entry."""
    new = np.append(True, np.diff(cells._place) != 0)
    first = np.flatnonzero(new)
    cell = np.cumsum(new) - 1
    entry = np.repeat(np.arange(len(rows)), rows)
    own = cell[entry]
    size = np.add.reduceat(rows, first)
    number = np.arange(len(entry)) - np.repeat(np.cumsum(size) - size, size)
    sums = np.add.reduceat(cells.sums, first, axis=0)
    least = np.minimum.reduceat(cells.least, first, axis=0)
    largest = np.maximum.reduceat(cells.largest, first, axis=0)
    edges = cells.edges
    # Every cell begins elsewhere: the first group would otherwise always have the first place.
    begin = np.random.default_rng(0).random((2, len(first)))
    turns = [(b[own] + number * step) % 1.0 for b, step in zip(begin, _STEPS, strict=True)]
    y = None
    if edges.target is not None:
        mean = sums[:, TARGET] / sums[:, WEIGHT] + edges.target.shift
        y = _spread(least[:, 1], largest[:, 1], mean, turns[1], own)
    if edges.slope and y is not None:
        s = _along_line(cells, sums, least, largest, y, turns[0], own)
    else:
        mean = sums[:, SCORE] / sums[:, WEIGHT] + edges.score.shift
        s = _spread(least[:, 0], largest[:, 0], mean, turns[0], own)
    weight = None
    if cells.weighted or frequency is not None:
        weight = mean_one(_weights(cells, rows, entry))
    codes = cells.group[entry].astype(np.intp)
    labels: tuple[Any, ...] = cells.labels
    n = len(codes)
    groups = Groups(labels, codes, None, weight, None, n, cells.sensitive_name)
    return People(s, y, groups, frequency)


def _spread(least: Vector, largest: Vector, mean: Vector, turn: Vector, own: Any) -> Vector:
    """Values between the ends of a cell, with the density t^(1/p − 1) that has its mean."""
    width = largest - least
    inside = np.divide(mean - least, width, out=np.full_like(width, 0.5), where=width > 0)
    power = 1.0 / np.clip(inside, _END, 1.0 - _END) - 1.0
    return least[own] + width[own] * turn ** power[own]


def _along_line(
    cells: Cells, sums: Vector, least: Vector, largest: Vector, y: Vector, turn: Vector, own: Any
) -> Vector:
    """The line plus residuals with the mean and the spread of those in the cell."""
    edges = cells.edges
    assert edges.target is not None
    slope, mass = edges.slope, sums[:, WEIGHT]
    mean = (sums[:, SCORE] - slope * sums[:, TARGET]) / mass
    square = sums[:, SCORE2] - 2.0 * slope * sums[:, PRODUCT] + slope * slope * sums[:, TARGET2]
    variance = np.maximum(square / mass - mean * mean, 0.0)
    # Below the rounding of the squares there is nothing to be known about a spread.
    noise = 1e-14 * (sums[:, SCORE2] + slope * slope * sums[:, TARGET2]) / mass
    half = np.sqrt(np.where(variance > noise, 3.0 * variance, 0.0))
    s = edges.score.shift + slope * (y - edges.target.shift)
    s += mean[own] + half[own] * (2.0 * turn - 1.0)
    exact = (least[:, 0] == largest[:, 0])[own]
    s[exact] = least[own[exact], 0]
    return s


def _weights(cells: Cells, rows: NDArray[np.int64], entry: Any) -> Vector:
    """Weights of rows with the Σw of each entry, and its Σw² for as many people.

    j of the r rows of an entry are heavier than the others, as many as may be without the others
    falling to nothing.
    """
    mean = cells.sums[:, WEIGHT] / cells.count
    square = cells.sums[:, WEIGHT2] / cells.count / np.square(mean)
    spread = np.where(rows > 1, np.maximum(square - 1.0, 0.0), 0.0)
    spread[spread < 1e-12] = 0.0
    ratio = _LIGHTEST**2 / np.maximum(spread, 1e-300)
    heavy = np.clip(np.floor(rows * ratio / (1.0 + ratio)), 1, np.maximum(rows // 2, 1))
    odds = heavy / np.maximum(rows - heavy, 1)
    below = np.minimum(np.sqrt(spread * odds), 1.0 - 1e-9)
    above = below / np.maximum(odds, 1e-300)
    number = np.arange(len(entry)) - np.repeat(np.cumsum(rows) - rows, rows)
    light = number >= heavy[entry]
    share = (cells.sums[:, WEIGHT] / np.maximum(rows, 1))[entry]
    factor = np.where(light, 1.0 - below[entry], 1.0 + above[entry])
    return share * factor
