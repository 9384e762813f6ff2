"""Counts in place of rows: how many people of each group lie in each cell of a grid.

A cell is a bin of the score by a bin of the target (`edges` has the formula). For each cell and
group are kept

    n, Σw, Σw², Σws, Σwy, Σws², Σwy², Σwsy, least and largest s and y

with s and y less the shifts of the grid. Tables of them add up: the cells of two sets of rows are
the sum of the cells of each. Beyond some thousands of rows measures, tests and group tables need
nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Mask, Rows, Vector
from .._core.files import TableError
from .._core.validation import InputError, check_column, check_index, check_names
from ..data.copies import NEAR, are_copies
from ..data.groups import Groups, resolve_groups
from ..data.labels import label_text, lasting, sorted_labels
from ..data.sample import check_frequency
from ..data.weights import check_weight
from .cell_files import from_arrow, read_table, to_arrow, write_cells
from .edges import Edges

Index = NDArray[np.int32]
# Columns of `sums`.
WEIGHT, WEIGHT2, SCORE, TARGET, SCORE2, TARGET2, PRODUCT = range(7)
N_SUMS = 7
_ARRAYS = ("score_bin", "target_bin", "group", "count", "sums", "least", "largest")
# Entries of a grid up to which those that occur are found by a table of all of them.
_DENSE = 1 << 24
_NOTHING, _NO_COUNTS = np.empty(0), np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Cells:
    """People by score bin, target bin and group. Made by :meth:`from_rows`, merged by ``a + b``.

    One entry for each cell and group that occurs, in the order of score bin, target bin and group.

    Attributes
    ----------
    edges : Edges
        The grid. Cells with the same edges can be merged.
    labels : tuple
        The groups; tuples of values where several attributes are crossed.
    names : tuple of str
        The attributes.
    score_bin, target_bin, group : (E,) int32 arrays
        Where an entry lies, and the number of its group among `labels`.
    count : (E,) int64 array
        Number of people; floats where it is expected.
    sums : (E, 7) array
        Σw, Σw², Σws, Σwy, Σws², Σwy², Σwsy, of s and y less the shifts of the grid.
    least, largest : (E, 2) arrays
        Extremes of s and y; those of y are NaN without a target.
    n_unknown : int
        People whose group is not known; they are in no cell.
    expected : bool
        Whether counts and sums are expected ones, of a :class:`Proxy`: each person counts in every
        group by its probability.
    assume : {"guess"} or None
        Of the Proxy.

    See Also
    --------
    evenhand.audit
    evenhand.audit_table
    evenhand.monitor

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(2000, random_state=0)
    >>> first = eh.Cells.from_rows(data.y[:999], data.s[:999], sensitive_features=data.a[:999])
    >>> rest = eh.Cells.from_rows(
    ...     data.y[999:], data.s[999:], sensitive_features=data.a[999:], edges=first.edges)
    >>> (first + rest).n
    2000
    """

    edges: Edges
    labels: tuple[Any, ...]
    names: tuple[str, ...]
    score_bin: Index
    target_bin: Index
    group: Index
    count: NDArray[Any]
    sums: Vector
    least: Vector
    largest: Vector
    n_unknown: int = 0
    expected: bool = False
    assume: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(map(lasting, self.labels)))
        for values in self._arrays():
            values.setflags(write=False)

    @classmethod
    def from_rows(
        cls, y_true: Any, y_pred: Any, *, sensitive_features: Any, sample_weight: Any = None,
        frequency: Any = None, edges: Edges | int | None = None,
    ) -> Cells:  # fmt: skip
        """Count rows into cells.

        Parameters
        ----------
        y_true : (n,) array or None
            Targets; without them only independence can be measured.
        y_pred : (n,) array
            Scores.
        sensitive_features : array, series or frame
            Group of each row; several columns are crossed. Rows with a missing group are counted in
            `n_unknown`. A Proxy gives expected counts, which weigh rows by their probabilities: the
            score is then taken to depend on the group through these alone (`assume="guess"`), and
            without that word no verdict passes.
        sample_weight : (n,) array, optional
            A row of weight 0 counts as absent.
        frequency : (n,) array, optional
            Number of people that each row stands for.
        edges : Edges or int, optional
            Those of the cells that these are to be merged with; a number of bins per side; or a
            grid that suits the rows at hand.
        """
        check_index(
            y_true=y_true, y_pred=y_pred, sensitive_features=sensitive_features,
            sample_weight=sample_weight, frequency=frequency,
        )  # fmt: skip
        s = check_column(y_pred, "y_pred")
        y = None if y_true is None else check_column(y_true, "y_true", len(s))
        weight = check_weight(sample_weight, len(s))
        people = None if frequency is None else check_frequency(frequency, len(s))
        groups = resolve_groups(sensitive_features, n_rows=len(s), require_two=False, warn=False)
        _refuse_uncountable(groups)
        used = np.logical_and.reduce([c > 0 for c in (weight, people) if c is not None] or [s == s])
        if not isinstance(edges, Edges):
            seen, target = _take(used, s, y)
            edges = Edges.from_values(seen, target, edges)
        elif (edges.target is None) != (y is None):
            what = "no target" if edges.target is None else "a target"
            raise InputError("edges", f"fit the target: they are of a grid with {what}")
        known = used if groups.known is None else used & groups.known
        absent = used & ~known
        member = groups.take_known(used)
        rows: Sequence[Any] = _take(known, s, y, weight, people)
        if groups.codes is not None:
            codes = groups.codes[member]
        else:
            rows, codes = _by_probability(rows, groups.membership()[member])
        return cls(
            edges=edges, labels=groups.labels, names=_names(groups.name, groups.labels),
            n_unknown=int(absent.sum() if people is None else people[absent].sum()),
            expected=groups.codes is None, assume=groups.assume,
            **_fill(edges, len(groups.labels), rows, codes),
        )  # fmt: skip

    @cached_property
    def n(self) -> int:
        """People with a known group."""
        return int(np.rint(self.count.sum()))

    @property
    def n_cells(self) -> int:
        """Number of cells with people in them."""
        return len(np.unique(self._place))

    @property
    def has_target(self) -> bool:
        return self.edges.target is not None

    @cached_property
    def weighted(self) -> bool:
        """Whether people have weights other than one and the same."""
        return bool((self.sums[:, [WEIGHT, WEIGHT2]] != self.count[:, None]).any())

    @cached_property
    def copied(self) -> bool:
        """Whether people repeat one another's score and target as copies of rows do.

        Seen where all people of a cell and group have one value, which is where cells are sparse.
        """
        axes = (self.edges.score, self.edges.target or self.edges.score)
        width = self.largest - self.least
        one = (width <= [NEAR * axis.scale for axis in axes]) | np.isnan(width)
        exact = np.flatnonzero(one.all(axis=1))
        if not len(exact) or self.expected:
            return False
        values = np.column_stack([np.nan_to_num(self.least[exact]), self._place[exact]])
        _, pair = np.unique(values, axis=0, return_inverse=True)
        size = np.bincount(pair.ravel(), self.count[exact])
        mixed = np.bincount(pair.ravel()) > 1
        share = np.bincount(self.group, self.count, max(len(self.labels), 1)) / max(self.n, 1)
        return are_copies(size, mixed, share)

    def take(self, entries: Any) -> Cells:
        """Keep some of the entries, by number or by a mask."""
        few = [values[entries] for values in self._arrays()]
        return replace(self, **dict(zip(_ARRAYS, few, strict=True)))

    @property
    def sensitive_name(self) -> str:
        return " × ".join(self.names)

    @property
    def _place(self) -> NDArray[np.int64]:
        return self.score_bin.astype(np.int64) * self.edges.bins + self.target_bin

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return tuple(getattr(self, name) for name in _ARRAYS)

    def __repr__(self) -> str:
        unknown = f", {self.n_unknown:,} of unknown group" if self.n_unknown else ""
        groups = "inferred groups" if self.expected else "groups"
        return (
            f"Cells({self.n:,} people{unknown} in {self.n_cells:,} cells of {self.edges.kind}, "
            f"{len(self.labels)} {groups} of {self.sensitive_name})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cells):
            return NotImplemented
        mine, theirs = (
            (c.edges, c.labels, c.names, c.n_unknown, c.expected, c.assume) for c in (self, other)
        )
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return mine == theirs and all(
            np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs
        )

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: object) -> Cells:
        """The cells of both sets of rows."""
        return Cells.merge([self, other]) if isinstance(other, Cells) else NotImplemented

    def __radd__(self, other: object) -> Cells:
        """``sum(parts)`` begins with 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @staticmethod
    def merge(parts: Iterable[Cells]) -> Cells:
        """Add up many cells at once, which is quicker than one ``+`` after the other.

        Groups that some of them lack are fine.

        Parameters
        ----------
        parts : iterable of Cells
            With the same edges.
        """
        parts = list(parts)
        if not parts:
            raise ValueError("`parts` must hold at least one Cells, got none.")
        first = parts[0]
        for part in parts:
            if not isinstance(part, Cells):
                raise ValueError(f"`parts` must be Cells, got {type(part).__name__}.")
            if part.edges != first.edges:
                raise ValueError(
                    "Cells must have the same `edges` to be merged, got "
                    f"{first.edges.kind} and {part.edges.kind}, with other shifts or scales. Hint: "
                    "make all but the first with edges=first.edges."
                )
            if part.names != first.names:
                raise ValueError(
                    "Cells must be of the same attribute to be merged, got "
                    f"{first.sensitive_name!r} and {part.sensitive_name!r}."
                )
            if (part.expected, part.assume) != (first.expected, first.assume):
                raise ValueError(
                    "Cells must be of recorded groups, or of inferred ones with one assumption, to "
                    "be merged, got both kinds."
                )
        labels = _union([part.labels for part in parts])
        number = {label: k for k, label in enumerate(labels)}
        groups = [
            part.group if part.labels == labels
            else np.array([number[v] for v in part.labels], dtype=np.int32)[part.group]
            for part in parts
        ]  # fmt: skip
        n_groups = max(len(labels), 1)
        keyed = [part._place * n_groups + group for part, group in zip(parts, groups, strict=True)]
        held = [
            np.concatenate(v) for v in zip(*(part._arrays()[3:] for part in parts), strict=True)
        ]
        return replace(
            first, labels=labels, n_unknown=sum(part.n_unknown for part in parts),
            **_add_up(first.edges, n_groups, np.concatenate(keyed), held),
        )  # fmt: skip

    def to_arrow(self) -> Any:
        """A pyarrow Table: one row per entry, with edges, labels and version in its metadata."""

        return to_arrow(self)

    @classmethod
    def from_arrow(cls, table: Any) -> Cells:
        """Read the table of :meth:`to_arrow`, or one that another engine filled; all is checked.

        Parameters
        ----------
        table : pyarrow Table
        """

        return cls(**from_arrow(table))

    def to_file(self, path: Any, force: bool = False) -> None:
        """Write a file, whole or not at all, for :meth:`from_file` and ``evenhand audit``.

        Parameters
        ----------
        path : str or Path
            Such as ``part.cells``.
        force : bool
            Overwrite a file that exists.
        """
        write_cells(self, path, force)

    @classmethod
    def from_file(cls, path: Any) -> Cells:
        """Read the file of :meth:`to_file`; a damaged one, or one of another version, is refused.

        Parameters
        ----------
        path : str or Path
        """
        table = read_table(path)
        try:
            return cls.from_arrow(table)
        except ValueError as error:
            raise TableError(f"{str(path)!r} holds no cells that can be used: {error}") from None


def without_target(cells: Cells) -> Cells:
    """The same people by score bin alone; on a grid with a slope, which needs both, as they are."""
    edges = cells.edges
    if edges.target is None or edges.slope:
        return cells
    n_groups = max(len(cells.labels), 1)
    keys = cells.score_bin.astype(np.int64) * edges.bins * n_groups + cells.group
    grid = Edges(edges.bins, edges.score)
    alone = replace(cells, edges=grid, **_add_up(grid, n_groups, keys, cells._arrays()[3:]))
    sums = alone.sums.copy()
    sums[:, [TARGET, TARGET2, PRODUCT]] = 0.0
    return replace(alone, sums=sums)


def together(cells: Cells) -> tuple[Cells, Vector]:
    """Expected counts as people of cells whose groups are not told apart, and P(A = k | cell).

    Each cell is a group of its own there, numbered in the order of the cells.
    """
    place, own = np.unique(cells._place, return_inverse=True)
    held = _add_up(cells.edges, 1, cells._place, cells._arrays()[3:])
    held["count"] = np.maximum(np.rint(held["count"]), 1.0).astype(np.int64)
    held["group"] = np.arange(len(place), dtype=np.int32)
    share = np.zeros((len(place), len(cells.labels)))
    share[own, cells.group] = cells.sums[:, WEIGHT]
    people = replace(cells, labels=tuple(range(len(place))), expected=False, **held)
    return people, share / share.sum(axis=1, keepdims=True)


def _refuse_uncountable(groups: Groups) -> None:
    if groups.measured is not None:
        raise InputError(
            "sensitive_features", "be labels, got a Continuous: a measurement cannot be counted "
            "into cells", hint="audit the rows themselves, or cut it with evenhand.bands.",
        )  # fmt: skip
    if groups.assume == "group":
        raise InputError(
            "sensitive_features", 'be a Proxy without assume="group" here: expected counts weigh '
            "rows by their probabilities, and a regression on these needs the rows",
            hint="audit the rows themselves.",
        )  # fmt: skip


def _by_probability(rows: Sequence[Any], probability: Vector) -> tuple[list[Any], Rows]:
    """Rows once for each group that they may be of, with that share of their people."""
    at, codes = np.nonzero(probability > 0)
    s, y, weight, people = (None if c is None else c[at] for c in rows)
    share = probability[at, codes]
    return [s, y, weight, share if people is None else share * people], codes


def _fill(edges: Edges, n_labels: int, rows: Sequence[Any], codes: Rows) -> dict[str, Any]:
    """Count rows (score, target, weight, people) into cells: the fields of entries, by name."""
    from ..kernels.sums import fill_sums

    s, y, weight, people = rows
    first, second = edges.bins_of(s, y)
    n_groups = max(n_labels, 1)
    key = (first.astype(np.int64) * edges.bins + second) * n_groups + codes
    entry, keys = _number(key, edges.bins**2 * n_groups)
    columns = (
        s,
        _NOTHING if y is None else y,
        _NOTHING if weight is None else weight,
        _NO_COUNTS if people is None else people,
    )
    count = np.zeros(len(keys), dtype=columns[3].dtype)
    sums = np.zeros((len(keys), N_SUMS))
    least, largest = np.full((len(keys), 2), np.inf), np.full((len(keys), 2), -np.inf)
    shifts = (edges.score.shift, 0.0 if edges.target is None else edges.target.shift)
    fill_sums(entry, columns, shifts, count, sums, least, largest)
    return _entries(edges, n_groups, keys, (count, sums, least, largest))


def _add_up(edges: Edges, n_groups: int, keys: Any, held: Sequence[Any]) -> dict[str, Any]:
    """Counts, sums and extremes of entries of the same key as those of one: fields by name."""
    order = np.argsort(keys, kind="stable")
    keys, first = np.unique(keys[order], return_index=True)
    ways = (np.add, np.add, np.fmin, np.fmax) if len(keys) else ()
    added = [way.reduceat(v[order], first, axis=0) for way, v in zip(ways, held, strict=False)]
    return _entries(edges, n_groups, keys, added or [v.copy() for v in held])


def _entries(edges: Edges, n_groups: int, keys: Any, held: Sequence[Any]) -> dict[str, Any]:
    """Fields of entries by name, from their numbers and what they hold."""
    if edges.target is None:
        for extremes in held[2:]:
            extremes[:, 1] = np.nan
    place, group = np.divmod(keys, n_groups)
    where = (*np.divmod(place, edges.bins), group)
    return dict(zip(_ARRAYS, [*(v.astype(np.int32) for v in where), *held], strict=True))


def _union(each: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """All labels: as they are where they agree, else in their own order, or by name."""
    if all(labels == each[0] for labels in each):
        return each[0]
    everyone = list(dict.fromkeys(label for labels in each for label in labels))
    check_names(everyone, "cells", label_text)
    longest = max(each, key=len)
    return longest if len(longest) == len(everyone) else tuple(sorted_labels(everyone))


def _names(name: str, labels: tuple[Any, ...]) -> tuple[str, ...]:
    """The attributes, one for each value of a label."""
    if not labels or not isinstance(labels[0], tuple):
        return (name,)
    names = tuple(name.split(" × "))
    if len(names) != len(labels[0]):
        return tuple(f"attribute {j}" for j in range(len(labels[0])))
    return names


def _take(rows: Mask, *columns: Any) -> tuple[Any, ...]:
    """Some rows of columns that may be None; no copy where it is all of them."""
    whole = bool(rows.all())
    return tuple(c if c is None or whole else c[rows] for c in columns)


def _number(keys: NDArray[np.int64], size: int) -> tuple[Rows, NDArray[np.int64]]:
    """Number of each key among those that occur, and these in order."""
    if size > _DENSE or size > 64 * len(keys):
        distinct, number = np.unique(keys, return_inverse=True)
        return number.astype(np.intp, copy=False), distinct
    lookup = np.zeros(size, dtype=np.intp)
    lookup[keys] = 1
    distinct = np.flatnonzero(lookup)
    lookup[distinct] = np.arange(len(distinct))
    return lookup[keys], distinct


def read_parts(paths: Iterable[Any]) -> list[Cells]:
    """Cells of files that are to be added up; the same counts twice are refused."""
    parts: dict[Any, Cells] = {}
    for path in paths:
        cells = Cells.from_file(path)
        for other, seen in parts.items():
            if seen == cells:
                raise TableError(
                    f"{str(path)!r} and {str(other)!r} hold the same counts, which would be added "
                    "twice. Hint: leave one of them out."
                )
            if seen.edges != cells.edges:
                raise TableError(
                    f"{str(path)!r} and {str(other)!r} have other edges and cannot be added up. "
                    "Hint: count one of them again with --edges."
                )
        parts[path] = cells
    return list(parts.values())
