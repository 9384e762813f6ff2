"""Copies: tables that hold each person several times over, such as a file that was read twice.

Equal rows are copies of one another where

- repetition is all over the table: ten or more of the distinct (score, target) pairs occur several
  times, and about equally often or, as copies of copies do, in three sizes at most, so that one
  common value (a price of zero, a score that one group shares) is none;
- these are a third of the pairs, or 2 % where people who share a score (or a target) share both;
- nearly all of these pairs belong to one group each, where people who meet by chance would be of
  several: at most a tenth as many are mixed as group shares would have it.

Discrete data, where equal rows are different people, fail the third; a value that gives the group
away fails the first. A model that knows the group and has discrete features fails the second: many
people have the same score, and few of them the same target.

Copies that went through other units or shorter floats agree in their first digits only: rows that
share score and target to 1e-5 of their spread are looked at, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Rows, Vector
from .._core.threads import CHUNK

_LEAST_PAIRS = 10  # fewer repeated pairs are too few to tell a table of copies by
_MANY_PAIRS, _SIZES = 30, 3  # so many repeated pairs tell sizes of copies from those of values
_REPEATED = 1 / 3  # of the distinct pairs; two in five of a bootstrap's are
_REPEATED_TOGETHER = 0.02  # where values hardly repeat but in pairs
_TOGETHER = 0.9
_MIXED = 0.1  # of the pairs that would hold several groups by chance
_LEAST_MIXED = 3.0
# Values this close, in multiples of their spread, may be one and the same; and the share of the
# rows that is left where looking so far is worth it.
NEAR, _FEWER = 1e-5, 0.95
# Beyond so many rows some pairs, with all rows of each, are looked at first.
_FIRST_LOOK = 20_000


def find_copies(columns: Sequence[Vector], member: NDArray[Any]) -> Rows | None:
    """Return the number of the distinct row of each row, in a table of copies; None in others.

    Parameters
    ----------
    columns : sequence of (n,) arrays
        What copies share: the score, or score and target.
    member : (n,) array of integers
        Group of each row, or any number that rows of the same membership share; below 0 where it
        is not known.

    Returns
    -------
    (n,) array
        0 … m − 1, in the order in which distinct rows first occur. Pairs that hold several groups
        are left as they are, each of their rows by itself.
    """
    exact = _find(columns, member, [None] * len(columns))
    if len(columns) < 2:
        return exact
    near = _find(columns, member, [_spread(column) for column in columns])
    count = len(member) if exact is None else int(exact.max()) + 1
    return near if near is not None and near.max() + 1 < _FEWER * count else exact


def _spread(column: Vector) -> float:
    low, high = np.quantile(column[:: max(len(column) // _FIRST_LOOK, 1)], (0.1, 0.9))
    return float(high - low or np.ptp(column) or 1.0)


def _find(
    columns: Sequence[Vector], member: NDArray[Any], spreads: Sequence[float | None]
) -> Rows | None:
    """The distinct rows of values as they are or, with their spreads, of rounded ones."""
    n = len(member)

    def take(rows: Any) -> list[Vector]:
        pairs = zip(columns, spreads, strict=True)
        return [v[rows] if size is None else np.rint(v[rows] / size / NEAR) for v, size in pairs]

    if n > _FIRST_LOOK:
        limit = np.uint64(2**63 // n * _FIRST_LOOK)
        # A chunk at a time, which stays in the caches of a processor.
        hashed = ((i, _hash(take(slice(i, i + CHUNK)))) for i in range(0, n, CHUNK))
        chosen = [(np.flatnonzero(h < limit) + i, h[h < limit]) for i, h in hashed]
        keep, ordered = map(np.concatenate, zip(*chosen, strict=True))
        ordered.sort()
        if np.count_nonzero(ordered[1:] == ordered[:-1]) < _LEAST_PAIRS:
            return None
        if _place(take(keep), member[keep], member) is None:
            return None
    return _place(take(slice(None)), member, member)


def _hash(columns: Sequence[Vector]) -> NDArray[np.uint64]:
    """A number for each row that equal rows share."""
    out = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        # Adding zero turns −0 into 0, which equals it.
        bits = np.ascontiguousarray(column + 0.0, dtype=np.float64).view(np.uint64)
        out = (out ^ bits) * np.uint64(0x9E3779B97F4A7C15)
        out ^= out >> np.uint64(29)
    return out


def _place(columns: Sequence[Vector], member: NDArray[Any], everybody: NDArray[Any]) -> Rows | None:
    n = len(member)
    order = np.lexsort(columns)
    new = np.zeros(n, dtype=bool)
    new[0] = True
    for column in columns:
        ordered = column[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    pair = np.cumsum(new) - 1
    ordered_member = member[order]
    differs = ordered_member != ordered_member[new][pair]
    mixed = np.bincount(pair, differs) > 0
    count = np.bincount(everybody + 1)
    size = np.bincount(pair)
    least = _REPEATED_TOGETHER if _repeat_together(columns, size) else _REPEATED
    if not are_copies(size, mixed, count / count.sum(), least):
        return None
    new |= mixed[pair]
    place = np.empty(n, dtype=np.intp)
    place[order] = np.cumsum(new) - 1
    # Distinct rows in the order in which they first occur.
    first = np.full(int(place.max()) + 1, n, dtype=np.intp)
    np.minimum.at(first, place, np.arange(n))
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[place]


def _repeat_together(columns: Sequence[Vector], size: NDArray[Any]) -> bool:
    """Return whether rows that share one of two values nearly always share the other."""
    if len(columns) < 2:
        return False
    counts = [np.unique(column, return_counts=True)[1] for column in columns]
    least = min(count[count > 1].sum() for count in counts)
    return bool(size[size > 1].sum() >= _TOGETHER * least)


def are_copies(
    size: NDArray[Any], mixed: NDArray[np.bool_], share: Vector, least: float = _REPEATED
) -> bool:
    """Return whether pairs of exact values repeat as copies do.

    Parameters
    ----------
    size, mixed : (J,) arrays
        Rows of each distinct pair, and whether they are of several groups.
    share : (K,) array
        Shares of the groups.
    least : float
        Share of the pairs that must repeat.
    """
    many = size > 1
    if many.sum() < max(_LEAST_PAIRS, least * len(size)):
        return False
    # Copies occur about equally often, or in few sizes where copies were copied again; values occur
    # by their density, in many sizes.
    repeated = size[many]
    sizes = np.sort(np.unique(repeated, return_counts=True)[1])
    in_few_sizes = len(repeated) >= _MANY_PAIRS and sizes[-_SIZES:].sum() >= 0.9 * len(repeated)
    if np.quantile(repeated, 0.9) > 1.5 * np.median(repeated) + 2 and not in_few_sizes:
        return False
    by_chance = (1.0 - (share[:, None] ** repeated).sum(axis=0)).sum()
    return bool(by_chance >= _LEAST_MIXED and mixed.sum() <= _MIXED * by_chance)
