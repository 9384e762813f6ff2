"""Columns of labels → codes: every form in which people hand in a category."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Number
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Rows
from .._core.shards import here
from .._core.validation import InputError
from .columns import is_missing, missing_rows

# A column of fractions with more distinct values than this is a measurement, not a category.
MAX_FRACTIONS = 20
# Whole numbers may be codes of groups (40 regions), and dates may be months or years; with more
# distinct values than this they are an age, an amount or a day, whose groups are a few rows each.
MAX_NUMBERS = 50
# NumPy does not count its booleans among the numbers.
_NUMBERS = (Number, np.bool_)


def encode(column: Any, name: str | None) -> tuple[Rows, list[Any]]:
    """Codes (−1 where missing) and the sorted labels of one column."""
    if isinstance(column, nw.Series):
        if column.dtype in (nw.String, nw.Categorical, nw.Enum):
            return _encode_text(column, name)
        column = _unboxed(column)
    kind = column.dtype.kind
    if kind in "OTUS":
        values = column.astype(object).tolist()
        codes, labels = number_labels(values, "sensitive_features")
        if any(isinstance(label, _NUMBERS) for label in labels):
            refuse_equal_types(values, name)
        check_count(labels, len(column), kind_of(labels), name)
        return sort_labels(codes, labels)
    missing = missing_rows(column)
    rows = ~missing if missing.any() else slice(None)
    codes = np.full(len(column), -1, dtype=np.intp)
    values, codes[rows] = _distinct(column[rows])
    labels = _label_moments(values) if kind in "Mm" else [whole(v) for v in values.tolist()]
    check_count(labels, len(column), "date" if kind in "Mm" else kind_of(labels), name)
    return codes, labels


def _unboxed(column: nw.Series[Any]) -> NDArray[Any]:
    """Numbers and booleans without gaps by their type, anything else as Python objects."""
    if column.dtype.is_float():
        return column.fill_null(float("nan")).to_numpy().astype(np.float64)
    numeric = column.dtype.is_numeric() or column.dtype == nw.Boolean
    if numeric and not column.is_null().any():
        return column.to_numpy()
    return np.fromiter(column.to_list(), dtype=object, count=len(column))


def whole(value: Any) -> Any:
    """A fraction that is none as an integer: integers with gaps are floats in many tables."""
    if isinstance(value, float | Decimal):
        return int(value) if float(value).is_integer() else float(value)
    return value


def lasting(label: Any) -> Any:
    """A label as a file can hold it, the same from every engine: numbers, booleans and text.

    Moments are in UTC where they have a time zone, and days where they are at midnight.
    """
    if isinstance(label, tuple):
        return tuple(map(lasting, label))
    label = whole(label.item() if isinstance(label, np.generic) else label)
    if isinstance(label, datetime):
        label = label.astimezone(UTC).replace(tzinfo=None) if label.tzinfo else label
        return str(label).removesuffix(" 00:00:00")
    return label if isinstance(label, str | int | float | bool) else str(label)


def _distinct(values: NDArray[Any]) -> tuple[NDArray[Any], Rows]:
    """The distinct values, sorted, and the number of each."""
    if values.dtype.kind in "iub" and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low <= 16 * MAX_NUMBERS:
            # Small integers are the usual coding: count instead of sorting.
            # Narrow types would overflow in the difference of their extremes.
            wide = values.astype(np.int64) if values.dtype.itemsize < 8 else values
            offset = (wide - low).astype(np.intp, copy=False)
            present = np.bincount(offset) > 0
            distinct = np.flatnonzero(present).astype(values.dtype) + values.dtype.type(low)
            return distinct, offset if present.all() else (np.cumsum(present) - 1)[offset]
    return np.unique(values, return_inverse=True)


def _label_moments(values: NDArray[Any]) -> list[Any]:
    """Python dates and durations where these are as fine as the values, else text."""
    # Durations in years or months have no fixed length.
    vague = values.dtype.kind == "m" and np.datetime_data(values.dtype)[0] in ("Y", "M")
    for unit in () if vague else ("s", "us"):
        coarse = values.astype(f"{values.dtype.kind}8[{unit}]")
        if (coarse == values).all():
            return coarse.tolist()
    return values.astype(str).tolist()


def number_labels(values: list[Any], argument: str) -> tuple[Rows, list[Any]]:
    """Codes (−1 where missing) and the labels of Python objects, as they first occur."""
    try:
        seen: dict[Any, int] = dict.fromkeys(values, -1)
    except TypeError:  # one is not hashable, or holds something that is not
        bad = next(value for value in values if not _is_hashable(value))
        raise InputError(
            argument, "hold labels (text, numbers, booleans, dates), got an element of type "
            f"{type(bad).__name__}",
        ) from None  # fmt: skip
    labels = [value for value in seen if not is_missing(value)]
    seen.update(zip(labels, range(len(labels)), strict=True))
    return np.fromiter(map(seen.__getitem__, values), dtype=np.intp, count=len(values)), labels


def _is_hashable(value: Any) -> bool:
    try:
        return hash(value) is not None
    except TypeError:
        return False


def refuse_equal_types(values: Iterable[Any], name: str | None = None) -> None:
    """1, 1.0 and True are equal in Python: as labels they would become one group unasked."""
    kinds: dict[Any, Any] = {}
    for value in values:
        if not isinstance(value, _NUMBERS):
            continue
        first = kinds.setdefault(value, value)
        if type(first) is not type(value) and _kind(first) != _kind(value):
            where = f"(column {name!r})" if name else ""
            raise InputError(
                "sensitive_features", f"hold labels of one type, got both {first!r} "
                f"({_kind(first)}) and {value!r} ({_kind(value)}), which Python takes for the "
                "same label",
                hint="convert the column to one type, for example to text if they are different "
                "groups or to int if they are the same.", where=where,
            )  # fmt: skip


def _kind(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "boolean"
    return "integer" if isinstance(value, Integral) else "float"


def _encode_text(column: nw.Series[Any], name: str | None) -> tuple[Rows, list[Any]]:
    labels: list[Any]
    if column.dtype == nw.String:
        labels = sorted_labels([v for v in column.unique().to_list() if not is_missing(v)])
        check_count(labels, len(column), "text", name)
    else:
        # Declared as categories by the user: numbers are groups here, however many.
        labels = column.cat.get_categories().to_list()
    position = {label: k for k, label in enumerate(labels)}
    if column.dtype == nw.String and labels:
        replaced = column.replace_strict(
            labels, list(position.values()), default=-1, return_dtype=nw.Int64
        )
        return replaced.fill_null(-1).to_numpy().astype(np.intp), labels
    numbers = (-1 if is_missing(v) else position[v] for v in column.to_list())
    return np.fromiter(numbers, dtype=np.intp, count=len(column)), labels


def label_text(label: Any) -> str:
    """A label as text; crossed labels joined with " × "."""
    return " × ".join(map(str, label)) if isinstance(label, tuple) else str(label)


def sorted_labels(labels: list[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except (TypeError, ValueError):  # ValueError: a number of NumPy's and a tuple
        # Mixed types: a stable order that does not depend on the rows.
        return sorted(labels, key=lambda v: (type(v).__name__, str(v)))


def sort_labels(
    codes: NDArray[Any], labels: list[Any], among: list[Any] | None = None
) -> tuple[NDArray[Any], list[Any]]:
    """Codes in the order of the labels, or of all those that they are among."""
    ordered = sorted_labels(labels if among is None else among)
    rank = {label: k for k, label in enumerate(ordered)}
    lookup = np.array([rank[label] for label in labels] + [-1], dtype=np.intp)
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
        count = sum(count for _, count, _ in parts)
        check_count(merged, count, kind_of(merged), name, shared=True)
    return sort_labels(codes, labels, merged)


def kind_of(labels: list[Any]) -> str:
    """What `check_count` takes labels for."""
    if labels and all(isinstance(v, int | float) and not isinstance(v, bool) for v in labels):
        whole = (isinstance(v, int) or v.is_integer() for v in labels)  # integers have any size
        return "integer" if all(whole) else "float"
    moments = labels and all(isinstance(v, date | time | timedelta) for v in labels)
    return "date" if moments else "text"


def cross(coded: list[tuple[Rows, list[Any]]]) -> tuple[Rows, list[Any]]:
    """Intersections of several attributes, unknown where any of them is; one as it is."""
    if len(coded) == 1:
        return coded[0]
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


class ManyValues(InputError):
    """Numbers or dates with more distinct values than groups have.

    Attributes
    ----------
    column : str
    edges : list of str
        Two that would cut them into bands.
    """

    column: str = ""
    edges: tuple[str, ...] = ()


def check_count(
    labels: list[Any], n_rows: int, kind: str, name: str | None, shared: bool = False
) -> None:
    """Refuse a measurement or an identifier where a category is meant."""
    if here().is_shard and not shared:
        return  # a shard may hold few rows of many groups: `share_labels` looks at all of them
    count = len(labels)
    where = f"(column {name!r})" if name else ""
    limit = {"float": MAX_FRACTIONS, "integer": MAX_NUMBERS, "date": MAX_NUMBERS}.get(kind)
    if limit is not None and count > limit:
        what = {"float": "fractions", "integer": "whole numbers", "date": "dates"}[kind]
        ordered = sorted(labels)
        error = ManyValues(
            "sensitive_features", f"be categories, got {what} with {count} distinct values, from "
            f"{_plain(ordered[0])} to {_plain(ordered[-1])}; more than {limit} are taken for a "
            "measurement",
            hint=f"cut it into bands, such as evenhand.bands({name or 'values'}, "
            f"[{_example(ordered)}]); drop an identifier; pass codes of true groups as text or "
            "categories.", where=where,
        )  # fmt: skip
        error.column, error.edges = name or "", tuple(suggest_edges(ordered))
        raise error
    if kind != "float" and n_rows > 20 and count > n_rows / 2:
        raise InputError(
            "sensitive_features", f"be categories, got {count} distinct values in {n_rows} rows, "
            "which looks like an identifier", where=where,
        )  # fmt: skip


# Numbers and dates as people write them; 02139 is the name of a place, not a number.
_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*)([.,]\d+)?")
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ].*)?")
# Texts such as "unknown" that may be among them.
_OTHERS = 3


def check_written(levels: list[Any], n_rows: int, name: str) -> None:
    """Refuse measurements among labels, those that are written as text too."""
    kind = kind_of(levels)
    for what, pattern in (("integer", _NUMBER), ("date", _DATE)):
        read = [v for v in levels if isinstance(v, str) and pattern.fullmatch(v)]
        if read and len(levels) - len(read) <= _OTHERS:
            levels, kind = read, what
            if what == "integer":
                levels = [whole(float(v.replace(",", "."))) for v in read]
                kind = kind_of(levels)
            break
    check_count(levels, n_rows, kind, name)


def suggest_edges(ordered: list[Any]) -> list[str]:
    """Two edges that cut the distinct values into thirds, to show what edges are."""
    return [_plain(ordered[len(ordered) // 3]), _plain(ordered[2 * len(ordered) // 3])]


def _example(ordered: list[Any]) -> str:
    quote = "" if isinstance(ordered[0], int | float) else '"'
    return ", ".join(f"{quote}{edge}{quote}" for edge in suggest_edges(ordered))


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")


# Text that often stands for a missing value.
_LIKE_MISSING = (
    "na", "n/a", "#n/a", "nan", "none", "null", "nil", "unknown", "missing", "?", ".", "-", "",
)  # fmt: skip
# Cyrillic and Greek letters that look like Latin ones.
_LOOKS = str.maketrans(
    "\u0430\u0432\u0435\u0455\u0456\u0458\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u044c"
    "\u03b1\u03b2\u03b5\u03b7\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7",
    "abesijkmhopctyxbabenikvoptux",
)


def _look(label: str) -> str:
    """What labels that look alike share: no case, no accents, nothing that is not seen."""
    text = unicodedata.normalize("NFKD", label).casefold().translate(_LOOKS)
    seen = (c for c in text if unicodedata.category(c) not in ("Cf", "Mn", "Cc"))
    return " ".join("".join(seen).split()).removesuffix(".0")


def doubtful_labels(labels: Sequence[str]) -> Iterator[str]:
    """Sentences on labels that are likely the same, or likely no group."""
    alike: dict[str, list[str]] = {}
    for label in labels:
        # A letter of another alphabet is shown by its number where it is not the first of its look.
        shown = alike.setdefault(_look(label), [])
        shown.append(ascii(label) if shown or not label.isprintable() else repr(label))
    for key, several in alike.items():
        if len(several) > 1:
            listed = f"{', '.join(several[:-1])} and {several[-1]}"
            yield f"The labels {listed} are likely the same group, but count as different ones."
        if key in _LIKE_MISSING:
            yield (
                f"{several[0]} is taken for a group; make it missing if it stands for people whose "
                "group is not known."
            )
