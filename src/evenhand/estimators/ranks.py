"""Ranks of a variable, ranks of one given another, and rows gathered into cells by their ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .._core.arrays import Array
from .._core.threads import CHUNK, n_threads
from ..data.groups import Groups

Index = NDArray[np.intp]
T = TypeVar("T")

# A cell of the conditioning variable holds about this many rows, until there are MAX_CELLS. The
# error of treating its rows as alike falls with the square of the number of cells, so it vanishes
# beside the noise; a cell of h rows costs 1/h of the information.
CELL_ROWS = 10
MAX_CELLS = 2000
BLOCK_ROWS = 50
MAX_BLOCKS = 64
# A conditional rank is read off a histogram of the standardized residual on ±_RANGE.
_BINS, _RANGE = 4096, 8.0
# Beyond this many rows ranks are interpolated between this many quantiles.
EXACT_RANK_ROWS = 100_000
RANK_EDGES = 4096
# Share of the rows at either end whose own values make up a distribution.
EXACT_TAIL = 0.01
# Beyond this many rows a variable is cut at fine quantiles instead of at every distinct value.
LEVEL_ROWS = 4096
_LEVELS = 2048
# Rows whose quantiles cut a variable for a first look, and levels.
_LOOK_ROWS, _LOOK_LEVELS = 16384, 1024
# Beyond this many rows membership probabilities are averaged within cells.
SOFT_ROWS = 131072
# Pairs of levels up to which those that occur are counted.
_MAX_PAIRS = 1 << 20
# Normal scores from which all rows are in the last bin of a grid.
_REACH = 4.0
_ATOM_SHARE = 0.02
_MAX_ATOMS = 25
# Most values of a variable that is a list of them, and how many of them are rare at least.
_MAX_LIST, _LEAST_RARE = 100, 10


class Columns(dict[str, Array]):
    """Columns of rows by name, with what was derived from them: each is sorted and cut once.

    `memo` may be that of other columns, some of which are the same arrays. It keeps these, so that
    their addresses stay theirs.
    """

    def __init__(self, columns: Mapping[str, Array], memo: dict[Any, Any] | None = None) -> None:
        super().__init__(columns)
        self.memo = {} if memo is None else memo

    def derive(self, what: str, names: Sequence[str], make: Callable[[], T], *more: Any) -> T:
        """What is made of some columns, and of further arrays."""
        arrays = (*(self[name] for name in names), *more)
        key = (what, *map(id, arrays))
        if key not in self.memo:
            self.memo[key] = make(), arrays
        return self.memo[key][0]

    def slots(self, name: str) -> Any:
        """Slots between quantiles of a column."""
        return self.derive("slots", [name], lambda: quantile_slots(self[name]))


class RankedRows(NamedTuple):
    """Ranks and normal scores of rows, and how many values the variable takes."""

    rank: Array
    normal: Array
    n_atoms: int


class Ranks:
    """Mid-ranks in (0, 1) of one variable, their normal scores, and slices of them."""

    rank: Array
    normal: Array
    n_atoms: int

    def __init__(self, values: Array, slots: Any = None) -> None:
        self.n = len(values)
        if self.n > EXACT_RANK_ROWS:
            self._by_slots(values, slots or quantile_slots(values))
            return
        from ..kernels.ranks import mid_rank_levels

        order = np.argsort(values)
        self._points = values[order]
        new = self._points[1:] != self._points[:-1]
        if new.all():
            self.n_atoms, (rank, normal) = self.n, _even_ranks(self.n)
            self._atom = np.empty(self.n, dtype=np.int32)
            self._atom[order] = np.arange(self.n, dtype=np.int32)
        else:
            codes, rank, *_, self.n_atoms = mid_rank_levels(values, order, None, 0.0, np.inf)
            self._atom, normal = codes.astype(np.int32), ndtri(rank)
            self._points = self._points[np.concatenate([[True], new])]
        self.rank, self.normal = rank[self._atom], normal[self._atom]

    def _by_slots(self, values: Array, slots: Any) -> None:
        """Ranks without ordering rows: exact at common values, interpolated between quantiles.

        Off by about 1e-5 of the rows, which moves no conclusion; NumPy sorts values alone several
        times as fast as it orders rows.
        """
        from ..kernels.ranks import slot_ranks

        quantiles, edges, slot, counts, low, high = slots
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

    def distribution(self) -> tuple[NDArray[np.int32], Array]:
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
        raw = np.minimum((self.rank * wanted).astype(np.int32), wanted - 1)
        present = np.bincount(raw, minlength=wanted) > 0
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


@lru_cache(maxsize=1)
def _even_ranks(n: int) -> tuple[Array, Array]:
    """Mid-ranks of n different values, and their normal scores."""
    rank = (np.arange(1, n + 1) - 0.5) / n
    return rank, ndtri(rank)


def rank_all(variables: Mapping[str, Array]) -> dict[str, Ranks]:
    """Ranks of several variables; many rows on several threads, as the kernels allow."""
    columns = variables
    if not isinstance(columns, Columns):
        flat = {k: np.ascontiguousarray(v, dtype=np.float64) for k, v in variables.items()}
        columns = Columns(flat)
    large = any(len(column) > EXACT_RANK_ROWS for column in columns.values())

    def rank(name: str) -> Ranks:
        slots = columns.slots(name) if large else None
        return columns.derive("ranks", [name], lambda: Ranks(columns[name], slots))

    with ThreadPoolExecutor(n_threads() if large else 1) as pool:
        ranks = list((pool.map if large else map)(rank, columns))
    return dict(zip(columns, ranks, strict=True))


def quantile_slots(values: Array):
    """Slots between and at quantiles: slot 2i lies below edge i, slot 2i + 1 equals it.

    Returns the quantiles, the same padded with infinity, each row's slot, the rows in each slot,
    and the extremes.
    """
    from ..kernels.ranks import find_slots

    wanted = np.arange(RANK_EDGES - 1) * (len(values) - 1) // (RANK_EDGES - 2)
    quantiles, edges = _padded(np.sort(values)[wanted], RANK_EDGES)
    return quantiles, edges, *find_slots(values, edges)


def _padded(ascending: Array, size: int) -> tuple[Array, Array]:
    """Each value once, and the same with infinity up to a power of two."""
    once = np.unique(ascending)
    edges = np.full(size, np.inf)
    edges[: len(once)] = once
    return once, edges


def scattered_rows(n: int, stretch: int) -> Index:
    """One row at random of each stretch of n rows, always the same ones.

    Regular steps would see a single month of monthly rows, or some of the groups that take turns.
    """
    starts = np.arange(0, n - stretch + 1, stretch)
    return starts + np.random.default_rng(0).integers(0, stretch, len(starts))


def conditional_rank(target: Ranks, given: Ranks, rows_a_unit: int = 1) -> Array | None:
    """F(t | z), roughly: the rank of (t − m(z)) / σ(z) on the scale of normal scores.

    m is a cubic in the normal score of z, which is exact in the tails of nearly normal pairs, plus
    interpolated block means of what it leaves. None when nothing is left of t. Where rows come in
    units that share z, blocks are as many times wider.
    """
    from ..kernels.ranks import along_lines

    z, t, n = given.normal, target.normal, given.n
    block, n_blocks = given.slices(int(min(max(n // (BLOCK_ROWS * rows_a_unit), 1), MAX_BLOCKS)))
    # A chunk at a time: what stays in the caches costs less than what is touched once.
    parts = [slice(first, first + CHUNK) for first in range(0, n, CHUNK)]
    powers, right = np.zeros(7), np.zeros(4)
    for part in parts:
        x, square, values = z[part], z[part] ** 2, t[part]
        cube = square * x
        second, fourth = x @ x, square @ square
        powers += np.array(
            [len(x), x.sum(), second, x @ square, fourth, square @ cube, cube @ cube]
        )
        right += np.array([values.sum(), values @ x, values @ square, values @ cube])
    gram = powers[np.add.outer(np.arange(4), np.arange(4))]
    # Few distinct values of z leave the cubic undetermined: the shortest solution will do.
    beta = np.linalg.lstsq(gram, right, rcond=1e-10)[0]
    residual, fit = np.empty(n), np.empty(min(n, CHUNK))
    counts, center, mean, squares = np.zeros((4, n_blocks))
    for part in parts:
        x, own = z[part], block[part].astype(np.intp)
        residual[part] = t[part] - (beta[0] + x * (beta[1] + x * (beta[2] + x * beta[3])))
        counts += np.bincount(own, minlength=n_blocks)
        center += sums(own, x, n_blocks)
        mean += sums(own, residual[part], n_blocks)
    center, mean = center / counts, mean / counts
    lines = _lines(center, mean)
    for part in parts:
        left = residual[part]
        left -= along_lines(z[part], block[part], center, *lines, fit)
        squares += sums(block[part], left * left, n_blocks)
    overall = np.sqrt(squares.sum() / n)
    if overall < 1e-6:
        return None
    # A block with a single value of t has no spread of its own.
    lines = _lines(center, 1.0 / np.maximum(np.sqrt(squares / counts), 1e-2 * overall))
    # Read off a histogram.
    share = np.zeros(_BINS)
    for part in parts:
        place = residual[part]
        place *= along_lines(z[part], block[part], center, *lines, fit)
        place += _RANGE
        place *= _BINS / (2.0 * _RANGE)
        np.clip(place, 0.0, _BINS - 1e-6, out=place)
        share += np.bincount(place.astype(np.intp), minlength=_BINS) / n
    below = np.cumsum(share) - share
    for part in parts:
        place, bin_ = residual[part], residual[part].astype(np.intp)
        place -= bin_
        place *= share[bin_]
        place += below[bin_]
    return residual


def _lines(x: Array, y: Array) -> tuple[Array, Array]:
    """Intercepts and slopes of the interpolant through (x, y), flat outside."""
    slope = np.concatenate([[0.0], np.diff(y) / np.maximum(np.diff(x), 1e-12), [0.0]])
    anchor, height = np.append(x, x[-1]), np.append(y, y[-1])
    return height - slope * anchor, slope


def neighbor_slopes(center: Array, means: Array) -> Array:
    """Slope of cell means along their centers, from the two neighbors of each cell."""
    last = len(center) - 1
    after = np.minimum(np.arange(last + 1) + 1, last)
    before = np.maximum(np.arange(last + 1) - 1, 0)
    gap = center[after] - center[before]
    return (means[after] - means[before]) / np.where(gap > 0, gap, np.inf)[:, None]


def typical_spread(values: Array, weight: Array | None) -> float:
    """Standard deviation; if less, five times that of a normal one with the same 1 to 99 % range.

    One value far out makes up a standard deviation by itself, and all others would look the same.
    """
    mean = np.average(values, weights=weight)
    spread = float(np.sqrt(np.average(np.square(values - mean), weights=weight)))
    if np.abs(values - mean).max(initial=0.0) > 10.0 * spread:
        low, high = np.quantile(values, (0.01, 0.99))
        if high > low:
            return min(spread, 5.0 * float(high - low) / 4.65)
    return spread


# ------------------------------------------------------------------------------------------------
# Rows gathered into cells of mid-ranks: what the adaptive estimator works on instead of rows.


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

    @cached_property
    def row_score(self) -> Array:
        """Normal score of each row, (n,)."""
        return self.score[self.codes]

    @property
    def is_list(self) -> bool:
        """Whether the variable takes few values, of which many are no point masses."""
        count = len(self.rank)
        return self.distinct == count <= _MAX_LIST and count - self.atom.max() > _LEAST_RARE


@dataclass(frozen=True)
class Cells:
    """Rows gathered by where they lie; C cells, E entries, K groups.

    Attributes
    ----------
    coordinates, atoms : tuples of (C,) arrays
        Normal score and point mass (or −1) of each cell, one array per variable.
    values : tuple of (C,) arrays or None
        Number of the value of each variable that takes few of them.
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
    wider : (C,) array or None
        Cell of a grid with half as many bins per side that each cell lies in.
    """

    coordinates: tuple[Array, ...]
    atoms: tuple[Index, ...]
    values: tuple[Index | None, ...]
    counts: Array
    cell: Index
    target: Array
    weight: Array
    single: Array
    spread: Array
    row_entry: Index
    exact: bool = True
    fold: Index | None = None
    wider: Index | None = None

    @cached_property
    def mass(self) -> float:
        """Weight of all rows."""
        return float(self.weight.sum())

    @cached_property
    def totals(self) -> Array:
        """Weight of all groups in each cell, (C,)."""
        return self.counts.sum(axis=1)

    @cached_property
    def by_group(self) -> Array:
        """The counts, (K, C)."""
        return np.ascontiguousarray(self.counts.T)

    @cached_property
    def label(self) -> Index:
        """Group of each entry, (E,), or −1 where that is not certain."""
        return label_of(self.target)

    @cached_property
    def entropy(self) -> float:
        """H(A) of the shares of the groups."""
        share = self.by_group.sum(axis=1) + 1e-9
        return float(-(share * np.log(share / share.sum())).sum() / share.sum())

    def widen(self) -> Cells:
        """The same entries in the cells of the grid with half as many bins per side."""
        assert self.wider is not None
        count = int(self.wider.max()) + 1
        some = np.empty(count, dtype=np.intp)
        some[self.wider] = np.arange(len(self.wider))
        counts = np.stack([sums(self.wider, v, count) for v in self.by_group], axis=1)
        mass = np.maximum(counts.sum(axis=1), 1e-300)
        return replace(
            self, counts=counts, cell=self.wider[self.cell], wider=None,
            coordinates=tuple(
                sums(self.wider, self.totals * v, count) / mass for v in self.coordinates
            ),
            atoms=tuple(v[some] for v in self.atoms),
            values=tuple(None if v is None else v[some] for v in self.values),
        )  # fmt: skip

    def mean(self, losses: Array) -> float:
        """Weighted mean over rows of a loss given by entry."""
        return float(self.weight @ losses) / self.mass


def label_of(target: Array) -> Index:
    """The group of each membership, or −1 where that is not certain."""
    return np.where(target.max(axis=1) == 1.0, target.argmax(axis=1), -1)


def cut(values: Array, weight: Array, slots: Any = None) -> Levels:
    """Cut a variable into levels and find its point masses; `slots` if they are known."""
    from ..kernels.ranks import mid_rank_levels

    values = np.ascontiguousarray(values, dtype=np.float64)
    total = float(weight.sum())
    share = max(_ATOM_SHARE, 5.0 / len(values)) * total
    least = total / _LEVELS if len(values) > LEVEL_ROWS else 0.0
    if len(values) > EXACT_RANK_ROWS:
        # Slots between quantiles, and common values, stand for the values themselves.
        quantiles, _, slot, counts, *_ = slots or quantile_slots(values)
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


def cut_roughly(values: Array, weight: Array) -> Levels:
    """Cut a variable of many rows at quantiles of some of them: enough for a first look."""
    from ..kernels.ranks import find_slots

    n = len(values)
    if n <= EXACT_RANK_ROWS:
        return cut(values, weight)
    some = np.sort(values[scattered_rows(n, n // _LOOK_ROWS)])
    _, edges = _padded(some[:: len(some) // _LOOK_LEVELS + 1], _LOOK_LEVELS)
    slot, counts, *_ = find_slots(values, edges)
    pairs = np.append(counts, 0.0).reshape(-1, 2).sum(axis=1)
    codes, used = renumber(slot >> 1, pairs)
    rows = pairs[used].astype(np.intp)
    mass = rows if weight.min() == weight.max() else sums(codes, weight, len(rows))
    rank = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    return Levels(codes, rank, _normal_score(rank), np.full(len(rank), -1), None, rows)


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
    from ..kernels.ranks import mid_rank_levels

    # Rounding turns the noise of arithmetic on equal values back into ties.
    values = np.round(values, 9)
    codes, rank, *_ = mid_rank_levels(values, np.argsort(values), weight, 0.0, np.inf)
    return _normal_score(rank)[codes]


def _normal_score(rank: Array) -> Array:
    return ndtri(np.clip(rank, 1e-7, 1.0 - 1e-7))


def most_cells(n_groups: int) -> int:
    """Cells that there is room for: each has (K − 1)² leverages, and as many terms of a Hessian."""
    return max(128, int(4e6 / max(n_groups - 1, 1) ** 2))


def gather_one(level: Levels, weight: Array, groups: Groups, folds: Index | None = None) -> Cells:
    """The levels of one variable as cells; with many groups bins of them."""
    most = most_cells(groups.n_groups)
    if len(level.rank) <= most:
        return _collect(level.codes, (level,), weight, groups, folds)
    bins = np.where(level.atom >= 0, most + level.atom, _bins(level.rank, most))
    cell, _ = renumber(bins[level.codes], most + int(level.atom.max()) + 1)
    return _collect(cell, (level,), weight, groups, folds, blurred=True)


def gather_two(
    levels: tuple[Levels, Levels], residual: Callable[[], Array] | None, weight: Array,
    groups: Groups, bins: int, folds: Index | None = None,
) -> Cells:  # fmt: skip
    """Cells of two variables: rows themselves for `bins` = 0, else a grid of `bins` a side.

    Discrete data with no more pairs of levels than the grid has cells are kept as they are. The
    grid has bins of the second variable by bins of the residual of the first around its smoothed
    mean at each level of the second: where the two go together closely, a grid along the axes would
    blur the residual. Point masses and listed values have bins of their own.
    """
    first, second = levels
    if not bins:
        return _collect(np.arange(len(weight)), levels, weight, groups, folds)
    pairs = len(first.rank) * len(second.rank)
    if pairs <= _MAX_PAIRS:
        cell, used = renumber(first.codes * len(second.rank) + second.codes, pairs)
        if len(used) <= bins * bins:
            return _collect(cell, levels, weight, groups, folds)
    assert residual is not None
    column, width = first.codes, len(first.rank)
    if not first.is_list:
        column = _rank_bins(residual(), weight, bins)
        if first.atom.max() >= 0:
            own = first.atom[first.codes]
            column = np.where(own >= 0, bins + own, column)
        width = bins + int(first.atom.max()) + 1
    row = np.arange(len(second.rank))
    if not second.is_list:
        row = np.where(second.atom >= 0, bins + second.atom, _bins(second.rank, bins))
    height = int(row.max()) + 1
    cell, used = renumber(row[second.codes] * width + column, height * width)
    sides = [
        at if level.is_list else np.where(at < bins, at // 2, at)
        for at, level in zip(np.divmod(used, width), (second, first), strict=True)
    ]
    wider = np.unique(sides[0] * width + sides[1], return_inverse=True)[1]
    cells = _collect(cell, levels, weight, groups, folds, blurred=True)
    return replace(cells, wider=wider)


def _bins(rank: Array, bins: int) -> Index:
    """Bins of ranks, half of them of equal mass and half of equal width in normal scores.

    Those of equal mass alone are wide in the tails, where groups differ most: 128 a side cost
    4.5e-5 nats where log odds change by 0.3 per standard deviation. Those of equal width alone are
    wide in the middle.
    """
    width = np.clip((_normal_score(rank) + _REACH) / (2.0 * _REACH), 0.0, 1.0)
    return np.minimum((0.5 * (rank + width) * bins).astype(np.intp), bins - 1)


def renumber(key: Index, size: int | Array) -> tuple[Index, Index]:
    """Keys below `size`, or with these counts, numbered by those that occur; the ones that do."""
    counts = np.bincount(key, minlength=size) if isinstance(size, int) else size
    used = np.flatnonzero(counts)
    if len(used) == len(counts):
        return key, used
    number = np.zeros(len(counts), dtype=np.intp)
    number[used] = np.arange(len(used))
    return number[key], used


def sums(index: NDArray[np.integer], weight: Array, size: int) -> Array:
    """Σ weight by index."""
    return np.bincount(index, weight, size).astype(np.float64, copy=False)


def _rank_bins(values: Array, weight: Array, bins: int) -> Index:
    """Bins of the ranks of values, by way of a fine histogram, without a sort."""
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9:
        return np.zeros(len(values), dtype=np.intp)
    fine = 1 << 16
    code = ((values - low) * ((fine - 1) / (high - low))).astype(np.intp)
    mass = sums(code, weight, fine)
    return _bins((np.cumsum(mass) - 0.5 * mass) / mass.sum(), bins)[code]


def _collect(
    cell: Index, levels: tuple[Levels, ...], weight: Array, groups: Groups, folds: Index | None,
    blurred: bool = False,
) -> Cells:  # fmt: skip
    """Rows by their cell. If `blurred`, a cell holds several levels of a variable."""
    c = int(cell.max()) + 1
    # A row of each cell: all of them have the same point mass, and the same listed value.
    row = np.empty(c, dtype=np.intp)
    row[cell] = np.arange(len(cell))
    at = [v.codes[row] for v in levels]
    coordinates = tuple(v.score[i] for v, i in zip(levels, at, strict=True))
    if blurred:
        mass = sums(cell, weight, c)
        safe = np.where(mass > 0, mass, 1.0)
        coordinates = tuple(sums(cell, weight * v.row_score, c) / safe for v in levels)
    return Cells(
        coordinates=coordinates,
        atoms=tuple(v.atom[i] for v, i in zip(levels, at, strict=True)),
        values=tuple(i if v.is_list else None for v, i in zip(levels, at, strict=True)),
        exact=not blurred and all(v.distinct == len(v.rank) for v in levels),
        **_entries(cell, c, weight, groups, folds),
    )


def averages_memberships(groups: Groups, folds: Index | None) -> bool:
    """Whether rows of one cell share an entry whatever their membership probabilities."""
    return groups.codes is None and groups.n_known > SOFT_ROWS and folds is None


def _entries(
    cell: Index, c: int, weight: Array, groups: Groups, folds: Index | None
) -> dict[str, Any]:
    """What cells hold: by group and fold where groups are known, else by row or, of many, cell."""
    k, fold, averaged = groups.n_groups, folds, False
    if groups.codes is not None:
        key = cell * k + groups.codes
        counts = sums(key, weight, c * k).reshape(c, k)
        if folds is None:
            row_entry, used = renumber(key, counts.ravel() if weight.min() > 0 else c * k)
        else:
            many = int(folds.max()) + 1
            used, row_entry = np.unique(key * many + folds, return_inverse=True)
            used, fold = np.divmod(used, many)
        place, target = used // k, np.eye(k)[used % k]
    else:
        target = groups.membership()
        counts = np.stack([sums(cell, weight * p, c) for p in target.T], axis=1)
        averaged = averages_memberships(groups, folds)
        row_entry, place = (cell, np.arange(c)) if averaged else (np.arange(len(cell)), cell)
    if groups.codes is not None and folds is None:
        own = counts.ravel()[used]
    else:
        own = sums(row_entry, weight, len(place))
    safe = np.where(own > 0, own, 1.0)
    alike = groups.codes is not None and groups.weight is None
    single = own / safe if alike else sums(row_entry, weight**2, len(place)) / safe
    spread = np.zeros(len(place))
    if averaged:
        squares = sums(cell, weight * np.square(target).sum(axis=1), c) / safe
        target = np.where(own[:, None] > 0, counts / safe[:, None], 1.0 / k)
        even = np.square(target).sum(axis=1)
        spread = np.sqrt(np.clip((squares - even) / np.maximum(1.0 - even, 1e-12), 0.0, 1.0))
    return {
        "counts": counts, "cell": place, "target": np.ascontiguousarray(target), "weight": own,
        "single": single, "spread": spread, "row_entry": row_entry, "fold": fold,
    }  # fmt: skip
