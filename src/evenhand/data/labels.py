"""Columns of labels → codes: every form in which people hand in a category."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from numbers import Integral, Number
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Mask, Rows
from .._core.files import TableError
from .._core.shards import here
from .._core.validation import quote
from .columns import is_missing

# A column of fractions with more distinct values than this is a measurement, not a category.
MAX_FRACTIONS = 20
# Whole numbers may be codes of groups (40 regions), and dates may be months or years; with more
# distinct values than this they are an age, an amount or a day, whose groups are a few rows each.
MAX_NUMBERS = 50
# Up to here one comparison of all rows for each label is faster than sorting the rows.
FEW_LABELS = 32
# NumPy does not count its booleans among the numbers.
_NUMBERS = (Number, np.bool_)


def encode(column: Any, name: str | None) -> tuple[Rows, list[Any]]:
    """Codes (−1 where missing) and the sorted labels of one column."""
    labels: list[Any]
    if isinstance(column, nw.Series):
        return _encode_series(column, name)
    if column.dtype.kind in "iu" and len(column):
        low, high = int(column.min()), int(column.max())
        if high - low <= 16 * MAX_NUMBERS:
            # Small integers are the usual coding: count instead of sorting.
            # Narrow types would overflow in the difference of their extremes.
            wide = column.astype(np.int64) if column.dtype.itemsize < 8 else column
            offset = (wide - low).astype(np.intp)
            present = np.bincount(offset) > 0
            lookup = np.cumsum(present) - 1
            labels = [low + int(k) for k in np.flatnonzero(present)]
            check_count(labels, len(column), "integer", name)
            return lookup[offset], labels
    if column.dtype.kind == "b":
        labels = [bool(v) for v in (False, True) if (column == v).any()]
        return (column.astype(np.intp) - (labels == [True])), list(labels)
    if column.dtype.kind == "f":
        codes, values = _encode_known(column, np.isnan(column))
        labels = [int(v) if float(v).is_integer() else float(v) for v in values]
        whole = all(isinstance(v, int) for v in labels)  # integers with gaps, in pandas
        check_count(labels, len(column), "integer" if whole else "float", name)
        return codes, labels
    if column.dtype.kind in "OT":  # NumPy's own strings may hold a missing value
        return _encode_objects(column.astype(object), name)
    if column.dtype.kind in "Mm":
        return _encode_dates(column, name)
    few = _few_labels(column) if column.dtype.kind in "US" else None
    if few is not None:
        check_count(few[1], len(column), "text", name)
        return _sort_labels(*few)
    values, codes = np.unique(column, return_inverse=True)
    kind = "integer" if column.dtype.kind in "iu" else "text"
    check_count(values.tolist(), len(column), kind, name)
    return codes.astype(np.intp, copy=False), values.tolist()


def _encode_dates(column: NDArray[Any], name: str | None) -> tuple[Rows, list[Any]]:
    """Labels are Python dates and durations where these are as fine as the values, else text."""
    codes, values = _encode_known(column, np.isnat(column))
    labels = values.astype(str).tolist()
    # Durations in years or months have no fixed length.
    vague = column.dtype.kind == "m" and np.datetime_data(column.dtype)[0] in ("Y", "M")
    for unit in () if vague else ("s", "us"):
        coarse = values.astype(f"{column.dtype.kind}8[{unit}]")
        if (coarse == values).all():
            labels = coarse.tolist()
            break
    check_count(labels, len(column), "date", name)
    return codes, labels


def _encode_known(column: NDArray[Any], missing: Mask) -> tuple[Rows, NDArray[Any]]:
    """Codes, −1 where missing, and the distinct values."""
    codes = np.full(len(column), -1, dtype=np.intp)
    values, codes[~missing] = np.unique(column[~missing], return_inverse=True)
    return codes, values


def _few_labels(column: NDArray[Any]) -> tuple[Rows, list[Any]] | None:
    """Codes and labels of a text array with few distinct values, without sorting the rows."""
    codes = np.full(len(column), -1, dtype=np.intp)
    labels: list[Any] = []
    while len(labels) < FEW_LABELS and len(column):
        row = int(codes.argmin())
        if codes[row] >= 0:
            return codes, labels
        codes[column == column[row]] = len(labels)
        labels.append(column[row].item())
    return None


def _encode_objects(column: NDArray[Any], name: str | None) -> tuple[Rows, list[Any]]:
    seen: dict[Any, int] = {}
    codes = np.empty(len(column), dtype=np.intp)
    for i, value in enumerate(column.tolist()):
        try:
            codes[i] = -1 if is_missing(value) else seen.setdefault(value, len(seen))
        except (TypeError, ValueError):  # not hashable; an array compares to an array
            raise ValueError(
                "`sensitive_features` must hold labels (text, numbers, booleans), got an "
                f"element of type {type(value).__name__}."
            ) from None
    labels = list(seen)
    if any(isinstance(label, _NUMBERS) for label in labels):
        refuse_equal_types(column.tolist(), name)
    check_count(labels, len(column), _kind_of(labels), name)
    return _sort_labels(codes, labels)


def refuse_equal_types(values: Iterable[Any], name: str | None = None) -> None:
    """1, 1.0 and True are equal in Python: as labels they would become one group unasked."""
    kinds: dict[Any, Any] = {}
    for value in values:
        if not isinstance(value, _NUMBERS):
            continue
        first = kinds.setdefault(value, value)
        if type(first) is not type(value) and _kind(first) != _kind(value):
            where = f" (column {name!r})" if name else ""
            raise ValueError(
                f"`sensitive_features`{where} must hold labels of one type, got both {first!r} "
                f"({_kind(first)}) and {value!r} ({_kind(value)}), which Python takes for the same "
                "label. Hint: convert the column to one type, for example to text if they are "
                "different groups or to int if they are the same."
            )


def _kind(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "boolean"
    return "integer" if isinstance(value, Integral) else "float"


def _encode_series(column: nw.Series[Any], name: str | None) -> tuple[Rows, list[Any]]:
    dtype = column.dtype
    if dtype == nw.Object:
        return _encode_objects(np.fromiter(column.to_list(), dtype=object, count=len(column)), name)
    if dtype.is_numeric() or dtype == nw.Boolean:
        missing = column.is_null().to_numpy().astype(bool)
        if not missing.any():
            array = column.to_numpy()
            if array.dtype.kind in "iufb":
                return encode(array, name)
        if dtype.is_float():
            return encode(column.fill_null(float("nan")).to_numpy().astype(float), name)
        # Integers or booleans with gaps: encode what is there and put the gaps back.
        values = np.array([v for v in column.to_list() if not is_missing(v)])
        codes = np.full(len(column), -1, dtype=np.intp)
        if not len(values):
            return codes, []
        codes[~missing], labels = encode(values, name)
        return codes, labels
    categories: list[Any] | None = None
    if isinstance(dtype, nw.Categorical | nw.Enum) or dtype in (nw.Categorical, nw.Enum):
        # Declared as categories by the user: numbers are groups here, however many.
        categories = column.cat.get_categories().to_list()
    # Null tests differ between backends; unique() and the dictionary below settle it once.
    uniques = [v for v in column.unique().to_list() if not is_missing(v)]
    labels = uniques if categories is None else categories
    if categories is None:
        kind = "date" if dtype.is_temporal() else "text"
        check_count(labels, len(column), kind, name)
        labels = sorted_labels(labels)
    position = {label: k for k, label in enumerate(labels)}
    if dtype == nw.String and uniques:
        replaced = column.replace_strict(
            labels, list(range(len(labels))), default=-1, return_dtype=nw.Int64
        )
        codes = replaced.fill_null(-1).to_numpy().astype(np.intp)
    else:
        codes = np.fromiter(
            (-1 if is_missing(v) else position[v] for v in column.to_list()),
            dtype=np.intp,
            count=len(column),
        )
    return codes, list(labels)


def sorted_labels(labels: list[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:  # mixed types: a stable order that does not depend on the rows
        return sorted(labels, key=lambda v: (type(v).__name__, str(v)))


def _sort_labels(
    codes: NDArray[Any], labels: list[Any], among: list[Any] | None = None, kind: Any = np.intp
) -> tuple[NDArray[Any], list[Any]]:
    """Codes in the order of the labels, or of all those that they are among."""
    ordered = sorted_labels(labels if among is None else among)
    rank = {label: k for k, label in enumerate(ordered)}
    lookup = np.array([rank[label] for label in labels] + [-1], dtype=kind)
    return lookup[codes], ordered


def share_labels(
    column: Any, codes: Rows, labels: list[Any], name: str | None
) -> tuple[Rows, list[Any]]:
    """Codes for the labels of all workers, where the column is one shard of many."""
    if not here().is_shard:
        return codes, labels
    declared = isinstance(column, nw.Series) and column.dtype in (nw.Categorical, nw.Enum)
    parts = here().gather_objects((labels, len(codes), declared))
    merged = list(dict.fromkeys(label for part, _, _ in parts for label in part))
    refuse_equal_types([label for part, _, _ in parts for label in part], name)
    if not any(declared for _, _, declared in parts):
        _check_count(merged, sum(count for _, count, _ in parts), _kind_of(merged), name)
    return _sort_labels(codes, labels, merged)


def _kind_of(labels: list[Any]) -> str:
    """What `check_count` takes labels for."""
    if labels and all(isinstance(v, int | float) and not isinstance(v, bool) for v in labels):
        return "integer" if all(float(v).is_integer() for v in labels) else "float"
    return "date" if labels and all(isinstance(v, date) for v in labels) else "text"


def cross(coded: list[tuple[Rows, list[Any]]]) -> tuple[Rows, list[Any]]:
    """Intersections of several attributes; unknown where any of them is."""
    combined = np.zeros(len(coded[0][0]), dtype=np.int64)
    missing = np.zeros(len(combined), dtype=bool)
    for codes, labels in coded:
        missing |= codes < 0
        combined = combined * len(labels) + codes
    combined[missing] = -1
    cells, inverse = np.unique(combined[~missing], return_inverse=True)
    own, cells = cells, np.unique(np.concatenate(here().gather_objects(cells)))
    inverse = np.searchsorted(cells, own)[inverse]
    out = np.full(len(combined), -1, dtype=np.intp)
    out[~missing] = inverse
    crossed = []
    for cell in cells.tolist():
        parts = []
        for _, labels in reversed(coded):
            cell, k = divmod(cell, len(labels))
            parts.append(labels[k])
        crossed.append(tuple(reversed(parts)))
    return out, crossed


def check_count(labels: list[Any], n_rows: int, kind: str, name: str | None) -> None:
    """Refuse a measurement or an identifier where a category is meant."""
    if here().is_shard:
        return  # a shard may hold few rows of many groups: `share_labels` looks at all of them
    _check_count(labels, n_rows, kind, name)


def _check_count(labels: list[Any], n_rows: int, kind: str, name: str | None) -> None:
    count = len(labels)
    where = f" (column {name!r})" if name else ""
    limit = {"float": MAX_FRACTIONS, "integer": MAX_NUMBERS, "date": MAX_NUMBERS}.get(kind)
    if limit is not None and count > limit:
        what = {"float": "fractions", "integer": "whole numbers", "date": "dates"}[kind]
        ordered = sorted(labels)
        raise ValueError(
            f"`sensitive_features`{where} must be categories, got {what} with {count} distinct "
            f"values, from {_plain(ordered[0])} to {_plain(ordered[-1])}; more than {limit} are "
            "taken for a measurement. Hint: cut it into bands, such as "
            f"evenhand.bands({name or 'values'}, [{_example(ordered)}]); drop an identifier; pass "
            "codes of true groups as text or categories."
        )
    if kind != "float" and n_rows > 20 and count > n_rows / 2:
        raise ValueError(
            f"`sensitive_features`{where} must be categories, got {count} distinct values in "
            f"{n_rows} rows, which looks like an identifier."
        )


def suggest_edges(ordered: list[Any]) -> list[str]:
    """Two edges that cut the distinct values into thirds, to show what edges are."""
    return [_plain(ordered[len(ordered) // 3]), _plain(ordered[2 * len(ordered) // 3])]


def _example(ordered: list[Any]) -> str:
    quote = "" if isinstance(ordered[0], int | float) else '"'
    return ", ".join(f"{quote}{edge}{quote}" for edge in suggest_edges(ordered))


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")


# ------------------------------------------------------------------------------------------------
# Categories of tables beyond memory: labels become numbers batch by batch.


# Distinct labels beyond which a column is no attribute of groups, whatever else it holds.
MAX_LABELS = 30_000


@dataclass(frozen=True)
class Coded:
    """Groups as numbers already.

    Attributes
    ----------
    codes : (n,) int array
        −1 where the group is not known.
    labels : list
        Of the codes.
    name : str
        What the attribute is called in tables.
    """

    codes: NDArray[np.int16]
    labels: list[Any]
    name: str

    def __len__(self) -> int:
        return len(self.codes)


class Labels:
    """Columns of categories as numbers, crossed where they are several; −1 where one is missing."""

    def __init__(self, n_rows: int, names: tuple[str, ...]):
        self.names = names
        self._codes = np.empty(n_rows, dtype=np.int16)
        self._at = 0
        self._kinds: list[Any] = []
        # Number of each label by column, and of each crossing of such numbers.
        self._labels: list[dict[Any, int]] = [{} for _ in names]
        self._crossed: dict[tuple[int, ...], int] = {}

    def add(self, columns: Sequence[Any]) -> None:
        """The next rows, a column for each name."""
        self._kinds = self._kinds or [column.type for column in columns]
        coded = np.stack(
            [self._encode(*pair) for pair in zip(columns, self._labels, strict=True)], axis=1
        )
        out = self._codes[self._at : self._at + len(coded)]
        self._at += len(coded)
        if len(columns) == 1:
            out[:] = coded[:, 0]
            return
        known = (coded >= 0).all(axis=1)
        # As one number a row, whose distinct values are few.
        sizes = [1, *(len(labels) for labels in self._labels[:-1])]
        one = coded @ np.cumprod(sizes, dtype=np.int64)
        values, first, inverse = np.unique(one[known], return_index=True, return_inverse=True)
        rows = coded[known][first]
        lookup = [self._crossed.setdefault(tuple(row), len(self._crossed)) for row in rows.tolist()]
        if len(self._crossed) > MAX_LABELS:
            raise self._too_many()
        out[:] = -1
        if len(values):
            out[known] = np.array(lookup, dtype=np.int16)[inverse]

    def _encode(self, column: Any, labels: dict[Any, int]) -> NDArray[np.int64]:
        import pyarrow as pa

        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        lookup = []
        for value in column.dictionary.to_pylist():
            missing = value is None or value != value
            lookup.append(-1 if missing else labels.setdefault(value, len(labels)))
        if len(labels) >= MAX_LABELS:
            raise self._too_many()
        codes = column.indices.cast(pa.int32()).fill_null(len(lookup)).to_numpy()
        return np.array([*lookup, -1], dtype=np.int64)[codes]

    def _too_many(self) -> TableError:
        return TableError(
            f"`sensitive_features` must be categories, and {', '.join(map(quote, self.names))} has "
            f"more than {MAX_LABELS:,} distinct values. Hint: cut a measurement into bands where "
            "the files are written; drop an identifier."
        )

    def coded(self) -> Coded:
        """Groups in the order of their labels."""
        n = len(self._codes)
        labels = [_plain_label(k, list(v)) for k, v in zip(self._kinds, self._labels, strict=True)]
        for name, kind, several in zip(self.names, self._kinds, labels, strict=True):
            check_count(several, n, _category(kind, several), name)
        crossed: list[Any] = labels[0]
        if len(labels) > 1:
            crossed = [
                tuple(several[k] for several, k in zip(labels, codes, strict=True))
                for codes in self._crossed
            ]
        return Coded(*_sort_labels(self._codes, crossed, kind=np.int16), " × ".join(self.names))

    def values(self) -> NDArray[Any]:
        """The values of a single column in every row, None where they are missing."""
        (labels,) = self._labels
        return np.array([*labels, None], dtype=object)[self._codes]


def _plain_label(kind: Any, labels: list[Any]) -> list[Any]:
    import pyarrow as pa

    if not pa.types.is_floating(kind):
        return labels
    # Integers with gaps are floats in many files.
    return [int(v) if float(v).is_integer() else v for v in labels]


def _category(kind: Any, labels: list[Any]) -> str:
    """What `check_count` takes the labels for; of a dictionary, the categories it declares."""
    import pyarrow as pa

    if pa.types.is_temporal(kind):
        return "date"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "integer" if all(isinstance(v, int) for v in labels) else "float"
    return "text"
