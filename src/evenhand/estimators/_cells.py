"""Rows gathered into cells of mid-ranks: what the adaptive estimator works on instead of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .._core.arrays import Array
from ..data.copies import find_copies
from ..data.groups import Groups
from .ranks import EXACT_RANK_ROWS, quantile_slots

Index = NDArray[np.intp]

# Beyond this many rows a variable is cut at fine quantiles instead of at every distinct value.
LEVEL_ROWS = 4096
_LEVELS = 2048
# Beyond this many rows membership probabilities are averaged within cells.
SOFT_ROWS = 131072
# Pairs of levels up to which those that occur are counted.
_MAX_PAIRS = 1 << 20
_ATOM_SHARE = 0.02
_MAX_ATOMS = 25


@dataclass(frozen=True)
class Levels:
    """One variable cut at its distinct values, or at fine quantiles.

    Attributes
    ----------
    codes : (n,) array
        Level of each row.
    rank, score : (L,) arrays
        Mid-rank in (0, 1) of each level, and its normal score.
    atom : (L,) array
        Number of the point mass that a level is, or −1.
    distinct : int or None
        Number of distinct values; with many rows that of rows where hardly any are alike, and None
        where it would have to be counted.
    rows : (L,) array
        Number of rows of each level, whatever their weight.
    """

    codes: Index
    rank: Array
    score: Array
    atom: Index
    distinct: int | None
    rows: Index


@dataclass(frozen=True)
class Cells:
    """Rows gathered by where they lie; C cells, E entries, K groups.

    Attributes
    ----------
    coordinates, atoms : tuples of (C,) arrays
        Normal score and point mass (or −1) of each cell, one array per variable.
    counts : (C, K) array
        Weight of each group in each cell.
    cell, target, weight, single : (E,), (E, K), (E,) and (E,) arrays
        An entry is a set of rows with one cell and one membership: its cell, the membership, the
        weight of all its rows and that of a typical one of them.
    spread : (E,) array
        0, or where memberships were averaged how far they lie apart: 1 if all of them are certain.
    row_entry : (n,) array
        Entry of each row.
    exact : bool
        Whether a cell holds one value of each variable, and not a range of them.
    fold : (E,) array or None
        Fold of clusters whose rows an entry holds.
    """

    coordinates: tuple[Array, ...]
    atoms: tuple[Index, ...]
    counts: Array
    cell: Index
    target: Array
    weight: Array
    single: Array
    spread: Array
    row_entry: Index
    exact: bool = True
    fold: Index | None = None

    @cached_property
    def mass(self) -> float:
        """Weight of all rows."""
        return float(self.weight.sum())

    @cached_property
    def totals(self) -> Array:
        """Weight of all groups in each cell, (C,)."""
        return self.counts.sum(axis=1)

    @cached_property
    def group_totals(self) -> Array:
        """Weight of each group, (K,)."""
        return self.counts.sum(axis=0)

    @cached_property
    def in_order(self) -> bool:
        """Whether the entries come cell by cell."""
        return not (self.cell[1:] < self.cell[:-1]).any()

    def mean(self, losses: Array) -> float:
        """Weighted mean over rows of a loss given by entry."""
        return float(self.weight @ losses) / self.mass


def cut(values: Array, weight: Array) -> Levels:
    """Cut a variable into levels and find its point masses."""
    from ..kernels.splines import mid_rank_levels

    values = np.ascontiguousarray(values, dtype=np.float64)
    total = float(weight.sum())
    share = max(_ATOM_SHARE, 5.0 / len(values)) * total
    least = total / _LEVELS if len(values) > LEVEL_ROWS else 0.0
    if len(values) > EXACT_RANK_ROWS:
        # Slots between quantiles, and common values, stand for the values themselves.
        quantiles, _, slot, counts, *_ = quantile_slots(values)
        used = np.flatnonzero(counts)
        place = np.arange(len(used))
        amount = np.bincount(slot, weight, len(counts))[used]
        if len(used) <= _LEVELS and counts[::2].sum() <= 0.01 * len(values):
            least = 0.0
        level, rank, mass, single, _ = mid_rank_levels(1.0 * used, place, amount, least, share)
        lookup = np.zeros(len(counts), dtype=np.intp)
        lookup[used] = level
        codes = lookup[slot]
        distinct = None
        if counts[::2].sum() <= 0.01 * len(values):
            distinct = len(used)
        elif (counts[1 : 2 * len(quantiles) : 2] > 1).mean() <= 0.01:
            distinct = len(values)
    else:
        order = np.argsort(values)
        codes, rank, mass, single, distinct = mid_rank_levels(values, order, weight, least, share)
        if len(rank) < distinct <= min(_LEVELS, len(values) // 10):
            # Few values, some of them rare: each is a level all the same.
            codes, rank, mass, single, _ = mid_rank_levels(values, order, weight, 0.0, share)
    heavy = np.flatnonzero(single & (mass >= share))
    if len(heavy) > _MAX_ATOMS:
        heavy = np.sort(heavy[np.argsort(-mass[heavy], kind="stable")[:_MAX_ATOMS]])
    atom = np.full(len(rank), -1, dtype=np.intp)
    atom[heavy] = np.arange(len(heavy))
    rows = np.bincount(codes, minlength=len(rank))
    return Levels(codes, rank, _normal_score(rank), atom, distinct, rows)


def is_heaped(level: Levels) -> bool:
    """Whether some values are far more common than others, as round numbers are."""
    return len(level.rows) > 2 and bool(level.rows.max() > 3.0 * np.median(level.rows))


def by_frequency(level: Levels) -> Levels:
    """The levels in the order of how common they are: heaps last, wherever they lie."""
    order = np.argsort(level.rows, kind="stable")
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    rows = level.rows[order]
    rank = (np.cumsum(rows) - 0.5 * rows) / rows.sum()
    codes = place[level.codes]
    return Levels(codes, rank, _normal_score(rank), level.atom[order], level.distinct, rows)


def rescore(values: Array, weight: Array) -> Array:
    """Normal scores of the weighted mid-ranks of a derived coordinate."""
    from ..kernels.splines import mid_rank_levels

    # Rounding turns the noise of arithmetic on equal values back into ties.
    values = np.round(values, 9)
    codes, rank, *_ = mid_rank_levels(values, np.argsort(values), weight, 0.0, np.inf)
    return _normal_score(rank)[codes]


def _normal_score(rank: Array) -> Array:
    return ndtri(np.clip(rank, 1e-7, 1.0 - 1e-7))


def merge_copies(
    variables: Mapping[str, Array], levels: Mapping[str, Levels], groups: Groups
) -> tuple[dict[str, Array], Groups, Index] | None:
    """Copies of rows (a bootstrap, repeats in place of weights) become one row of their weight.

    A row cannot be left out while its copies stay in. :mod:`evenhand.data.copies` has the rule.

    Returns
    -------
    None, or the merged variables and groups and the merged row of each row.
    """
    if groups.cluster is not None:
        return None  # copies lie in one cluster, and clusters are left out whole
    n = groups.n_known
    distinct = [levels[k].distinct or len(np.unique(column)) for k, column in variables.items()]
    if max(distinct) > 0.98 * n or max(distinct) < max(10, n // 10):
        return None
    place = find_copies([*variables.values()], replace(groups, known=None, n_rows=n).numbers())
    if place is None:
        return None
    count = int(place.max()) + 1
    first = np.unique(place, return_index=True)[1]
    weight = np.ones(n) if groups.weight is None else groups.weight
    weight = sums(place, weight, count)
    weight = weight * (count / weight.sum())
    codes, soft = groups.codes, groups.probabilities
    if codes is not None:
        codes = codes[first]
    elif soft is not None:
        if np.abs(soft[first][place] - soft).max() > 1e-9:
            return None
        soft = soft[first]
    merged = replace(
        groups, codes=codes, probabilities=soft, weight=weight, known=None, n_rows=count
    )
    return {name: column[first] for name, column in variables.items()}, merged, place


def gather_one(level: Levels, weight: Array, groups: Groups, folds: Index | None = None) -> Cells:
    """The levels of one variable as cells."""
    exact = level.distinct == len(level.rank)
    return _collect(level.codes, (level.score,), (level.atom,), weight, groups, folds, exact)


def gather_two(
    first: Levels, second: Levels, center: Array | None, weight: Array, groups: Groups, bins: int,
    folds: Index | None = None,
) -> Cells:  # fmt: skip
    """Cells of two variables: rows themselves for `bins` = 0, else a grid of `bins` a side.

    Discrete data with no more pairs of levels than the grid has cells are kept as they are. The
    grid has bins of the second variable by bins of the residual of the first around `center`,
    its smoothed mean at each level of the second: where the two go together closely, a grid along
    the axes would blur the residual. Point masses have bins of their own.
    """
    levels = (first, second)
    across, along = first.score[first.codes], second.score[second.codes]
    if not bins:
        atoms = tuple(v.atom[v.codes] for v in levels)
        exact = all(v.distinct == len(v.rank) for v in levels)
        where = np.arange(len(across))
        return _collect(where, (across, along), atoms, weight, groups, folds, exact)
    pairs = len(first.rank) * len(second.rank)
    if pairs <= _MAX_PAIRS:
        number, used = _renumber(first.codes * len(second.rank) + second.codes, pairs)
        if len(used) <= bins * bins:
            at = used // len(second.rank), used % len(second.rank)
            coordinates = tuple(v.score[i] for v, i in zip(levels, at, strict=True))
            atoms = tuple(v.atom[i] for v, i in zip(levels, at, strict=True))
            exact = all(v.distinct == len(v.rank) for v in levels)
            return _collect(number, coordinates, atoms, weight, groups, folds, exact)
    assert center is not None
    column = _quantile_bins(across - center[second.codes], weight, bins)
    row = np.minimum((second.rank * bins).astype(np.intp), bins - 1)
    row = np.where(second.atom >= 0, bins + second.atom, row)[second.codes]
    n_atoms = [int(v.atom.max(initial=-1)) + 1 for v in levels]
    if n_atoms[0]:
        own = first.atom[first.codes]
        column = np.where(own >= 0, bins + own, column)
    width = bins + n_atoms[0]
    key = row * width + column
    size = (bins + n_atoms[1]) * width
    mass = sums(key, weight, size)
    number, used = _renumber(key, size)
    safe = np.where(mass[used] > 0, mass[used], 1.0)
    coordinates = tuple(sums(key, weight * v, size)[used] / safe for v in (across, along))
    atoms = tuple(np.where(v >= bins, v - bins, -1) for v in (used % width, used // width))
    return _collect(number, coordinates, atoms, weight, groups, folds, exact=False)


def _renumber(key: Index, size: int) -> tuple[Index, Index]:
    """Keys below `size` numbered by those that occur, and the ones that do."""
    used = np.flatnonzero(np.bincount(key, minlength=size))
    number = np.zeros(size, dtype=np.intp)
    number[used] = np.arange(len(used))
    return number[key], used


def sums(index: Index, weight: Array, size: int) -> Array:
    """Σ weight by index."""
    return np.bincount(index, weight, size).astype(np.float64, copy=False)


def _quantile_bins(values: Array, weight: Array, bins: int) -> Index:
    """Bins of equal mass by way of a fine histogram, without a sort."""
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9:
        return np.zeros(len(values), dtype=np.intp)
    fine = 1 << 16
    code = ((values - low) * ((fine - 1) / (high - low))).astype(np.intp)
    mass = sums(code, weight, fine)
    middle = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    return np.minimum((middle * bins).astype(np.intp), bins - 1)[code]


def _collect(
    cell: Index,
    coordinates: tuple[Array, ...],
    atoms: tuple[Index, ...],
    weight: Array,
    groups: Groups,
    folds: Index | None,
    exact: bool,
) -> Cells:
    c, k = len(coordinates[0]), groups.n_groups
    if groups.codes is not None:
        key = cell * k + groups.codes
        counts = sums(key, weight, c * k).reshape(c, k)
        if folds is None:
            row_entry, used = _renumber(key, c * k)
        else:
            used, row_entry = np.unique(key * (int(folds.max()) + 1) + folds, return_inverse=True)
        own = sums(row_entry, weight, len(used))
        squares = own if groups.weight is None else sums(row_entry, weight**2, len(used))
        fold = None
        if folds is not None:
            fold, used = used % (int(folds.max()) + 1), used // (int(folds.max()) + 1)
        target = np.zeros((len(used), k))
        target[np.arange(len(used)), used % k] = 1.0
        single = squares / np.where(own > 0, own, 1.0)
        spread = np.zeros(len(used))
        return Cells(
            coordinates=coordinates,
            atoms=atoms,
            counts=counts,
            cell=used // k,
            target=target,
            weight=own,
            single=single,
            spread=spread,
            row_entry=row_entry,
            exact=exact,
            fold=fold,
        )
    assert groups.probabilities is not None
    counts = np.stack([sums(cell, weight * p, c) for p in groups.probabilities.T], axis=1)
    if len(cell) <= SOFT_ROWS or folds is not None:
        rows = np.arange(len(cell))
        target = np.ascontiguousarray(groups.probabilities)
        spread = np.zeros(len(cell))
        return Cells(
            coordinates=coordinates,
            atoms=atoms,
            counts=counts,
            cell=cell,
            target=target,
            weight=weight,
            single=weight,
            spread=spread,
            row_entry=rows,
            exact=exact,
            fold=folds,
        )
    mass = sums(cell, weight, c)
    safe = np.where(mass > 0, mass, 1.0)
    single = sums(cell, weight**2, c) / safe
    target = np.where(mass[:, None] > 0, counts / safe[:, None], 1.0 / k)
    squares = sums(cell, weight * np.square(groups.probabilities).sum(axis=1), c) / safe
    even = np.square(target).sum(axis=1)
    spread = np.sqrt(np.clip((squares - even) / np.maximum(1.0 - even, 1e-12), 0.0, 1.0))
    return Cells(
        coordinates=coordinates,
        atoms=atoms,
        counts=counts,
        cell=np.arange(c),
        target=target,
        weight=mass,
        single=single,
        spread=spread,
        row_entry=cell,
        exact=exact,
    )
