"""The smooth rungs of the adaptive estimator: penalized bases, and tables of discrete data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Array
from ..data.criteria import Condition
from ._cells import Cells, sums
from ._designs import LARGE_ROWS, SplineDesign, designs, trim
from ._leave_out import losses_without_fold
from ._multinomial import fit

# A column in which the penalty outweighs the data, at most ¼ a row, by ten to one is left out. The
# last digits keep a tie from being decided by rounding.
_NEGLIGIBLE = 2.5 * (1.0 + 1e-9)
# With few rows, rougher fits than the last are so far from quadratic in a row's weight that one
# Newton step does not tell what leaving it out does; with many they may be needed.
_PENALTIES, _ROUGH_PENALTIES = (15000.0, 2000.0, 250.0, 30.0, 4.0), (0.5, 0.06)
# Ridges on the terms that smoothing leaves free. The weak one keeps separated groups finite; the
# others shrink a quadratic where there is little to see.
_RIDGE, _SHRINKAGES = 0.05, (4.0, 16.0)
# Most cells of a table of discrete data.
_MAX_TABLE = 4096
# Most of the rows that may be alone in their cell of a table.
_MAX_ALONE = 0.05


@dataclass(frozen=True)
class Rung:
    """One fit: how to repeat it, and the losses of the entries it was fitted on."""

    name: str
    inside: Array
    outside: Array
    terms: float
    squares: float
    design: int = -1
    top: int = 0
    penalty: float = 0.0
    ridge: float = 0.0
    theta: Array | None = None

    @property
    def words(self) -> str:
        return self.name if self.theta is None else f"{self.name}, {self.terms:.0f} terms"


def climb(cells: Cells, names: Condition, slack: float) -> list[Rung]:
    """Fit the rungs, up each basis while the leave-one-out loss rises by no more than `slack`."""
    penalties: tuple[float, ...] = _PENALTIES
    if cells.mass > LARGE_ROWS:
        penalties += _ROUGH_PENALTIES
    makers = designs(cells, names)
    design = trim(makers[0](), cells.counts.shape[1])
    rungs = [_fit_rung(cells, design, 0, top, 0.0, _RIDGE, None) for top in (0, 1, 2)]
    theta = rungs[2].theta
    for ridge in _SHRINKAGES:
        rungs.append(_fit_rung(cells, design, 0, 2, 0.0, ridge, rungs[-1].theta))
    best = min(cells.mean(rung.outside) for rung in rungs)
    if best < 0.1:
        # Nearly separated groups: the ridge itself is what keeps the loss up.
        for ridge in (1e-2 * _RIDGE, 1e-4 * _RIDGE):
            rungs.append(_fit_rung(cells, design, 0, 2, 0.0, ridge, theta))
            theta = rungs[-1].theta
            best = min(best, cells.mean(rungs[-1].outside))
    start = 0
    for number, make in enumerate(makers):
        if number:
            design, theta = trim(make(), cells.counts.shape[1]), None
        tried: dict[int, float] = {}
        low = high = start
        step = start
        while 0 <= step < len(penalties):
            rung = _fit_rung(cells, design, number, 99, penalties[step], _RIDGE, theta)
            rungs.append(rung)
            theta = rung.theta
            tried[step] = cells.mean(rung.outside)
            own, best = min(tried.values()), min(best, *tried.values())
            low, high = min(tried), max(tried)
            if len(tried) > 1 and own > best + slack:
                break
            if tried[high] <= own + slack and high + 1 < len(penalties):
                step = high + 1
            elif tried[low] <= own + slack:
                step = low - 1
            else:
                break
        start = max(min(tried, key=lambda j: tried[j]) - 1, 0)
    return rungs + _table(cells)


def _fit_rung(
    cells: Cells,
    design: SplineDesign,
    number: int,
    top: int,
    penalty: float,
    ridge: float,
    theta: Array | None,
) -> Rung:
    """Fit the columns of degree up to `top` that the penalty leaves something of."""
    keep = design.degree <= top
    keep &= penalty * design.roughness <= _NEGLIGIBLE * cells.mass
    shrink = np.where(design.roughness > 0, penalty * design.roughness, ridge)
    shrink[0] = 0.0
    columns = design.take(keep)
    found = fit(columns, cells, shrink[keep], None if theta is None else theta[:, keep])
    full = np.zeros((len(found.theta), len(keep)))
    full[:, keep] = found.theta
    name = ("constant", "linear", "quadratic")[top] if top < 3 else design.name
    outside = found.outside
    if cells.fold is not None:
        outside = losses_without_fold(columns, cells, shrink[keep], found.theta)
    numbers = found.terms, found.squares
    return Rung(name, found.inside, outside, *numbers, number, top, penalty, ridge, full)


def refit(cells: Cells, names: Condition, rungs: list[Rung]) -> list[Rung]:
    """The same rungs on other cells."""
    makers = designs(cells, names)
    built: dict[int, SplineDesign] = {}
    tables = {table.name: table for table in _table(cells)}
    out = []
    for rung in rungs:
        if rung.theta is None:
            if rung.name in tables:
                out.append(tables[rung.name])
            continue
        if rung.design not in built:
            built[rung.design] = trim(makers[rung.design](), cells.counts.shape[1])
        args = rung.design, rung.top, rung.penalty, rung.ridge, rung.theta
        out.append(_fit_rung(cells, built[rung.design], *args))
    return out


def _table(cells: Cells) -> list[Rung]:
    """Shares within each distinct cell, smoothed towards the overall ones; for discrete data.

    Not for the bins of a grid: those are no values, and on another grid they are others.
    """
    if not cells.exact:
        return []
    most = min(_MAX_TABLE, 0.25 * cells.mass)
    values = [np.unique(np.round(v, 12), return_inverse=True) for v in cells.coordinates]
    if max(len(distinct) for distinct, _ in values) > most:
        return []
    code = values[0][1]
    for distinct, own in values[1:]:
        code = np.unique(code * len(distinct) + own, return_inverse=True)[1]
    size = int(code.max()) + 1
    if size > most:
        return []
    k = cells.counts.shape[1]
    counts = np.stack([sums(code, column, size) for column in cells.counts.T], axis=1)
    # Cells of one row each are a continuous variable, not a table: with the row in, they know its
    # group, and without it nothing, and the truth is not halfway between the two.
    amount = counts.sum(axis=1)
    alone = amount < 1.5 * float(cells.weight @ cells.single) / cells.mass
    if amount[alone].sum() > _MAX_ALONE * amount.sum():
        return []
    share = counts.sum(axis=0) / counts.sum()
    own = code[cells.cell]
    memberships: list[tuple[Array | float, Array]] = [(1.0, cells.target)]
    if cells.spread.any():
        far = cells.spread[:, None]
        memberships = [
            (part, (1.0 - far) * cells.target + far * corner)
            for part, corner in zip(cells.target.T, np.eye(k), strict=True)
        ]
    rungs = []
    for prior in (0.5, 4.0, 32.0):
        here = counts[own] + prior * (0.5 * share + 0.5 / k)
        inside = _table_loss(here, cells.target)
        outside = np.zeros_like(inside)
        if cells.fold is not None:
            outside = _table_loss(np.maximum(here - _of_fold(cells, own), 1e-12), cells.target)
        else:
            for part, member in memberships:
                left = np.maximum(here - cells.single[:, None] * member, 1e-12)
                outside += part * _table_loss(left, member)
        name = f"table of {size} cells, prior weight {prior:g}"
        kept = counts.sum(axis=1) / (counts.sum(axis=1) + prior)
        terms, squares = (k - 1) * kept.sum(), (k - 1) * np.square(kept).sum()
        rungs.append(Rung(name, inside, outside, float(terms), float(squares)))
    return rungs


def _of_fold(cells: Cells, own: NDArray[np.intp]) -> Array:
    """Weight of each group that the fold of an entry has in the cell of that entry."""
    assert cells.fold is not None
    key = own * (int(cells.fold.max()) + 1) + cells.fold
    pairs, number = np.unique(key, return_inverse=True)
    share = cells.weight[:, None] * cells.target
    return np.stack([sums(number, v, len(pairs)) for v in share.T], axis=1)[number]


def _table_loss(mass: Array, member: Array) -> Array:
    total = mass.sum(axis=1)
    label = member.argmax(axis=1)
    rows = np.arange(len(member))
    if (member[rows, label] == 1.0).all():  # one logarithm an entry, however many groups
        return -np.log(mass[rows, label] / total)
    return -(member * np.log(mass / total[:, None])).sum(axis=1)
