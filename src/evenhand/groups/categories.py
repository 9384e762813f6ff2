"""Columns of labels → codes: every form in which people hand in a category."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from numbers import Integral, Number
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .._kernels import shards
from .validation import frame_columns, read_native

# A column of fractions with more distinct values than this is a measurement, not a category.
MAX_FRACTIONS = 20
# Whole numbers may be codes of groups (40 regions), and dates may be months or years; with more
# distinct values than this they are an age, an amount or a day, whose groups are a few rows each.
MAX_NUMBERS = 50
# Up to here one comparison of all rows for each label is faster than sorting the rows.
FEW_LABELS = 32
# NumPy does not count its booleans among the numbers.
_NUMBERS = (Number, np.bool_)


def split_columns(values: Any) -> list[tuple[str | None, Any]]:
    """Split the input into named columns: narwhals series or 1-D NumPy arrays."""
    if hasattr(values, "__arrow_c_array__") and not hasattr(values, "columns"):
        # A bare Arrow array is not a narwhals series; a chunked one is.
        import pyarrow as pa

        if isinstance(values, pa.Array):
            values = pa.chunked_array([values])
    if isinstance(values, dict):
        return [(str(key), _single(str(key), column)) for key, column in values.items()]
    native = read_native(values, "sensitive_features")
    if isinstance(native, nw.DataFrame):
        return [*frame_columns(native)]
    if isinstance(native, nw.Series):
        unnamed = native.name is None or native.name == ""
        return [(None if unnamed else str(native.name), native)]
    if isinstance(values, np.ma.MaskedArray):
        mask, values = np.ma.getmaskarray(values), np.ma.getdata(values).astype(object)
        values[mask] = None
    array = np.asarray(values)
    if array.ndim == 1 and array.dtype.kind in "iuf" and isinstance(values, list | tuple):
        _refuse_equal_types(values, None)  # NumPy has made one type of them
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        # np.asarray(["a", None]) is an object array but ["a", float("nan")] is text "nan".
        array = np.asarray(values, dtype=object)
    if array.ndim == 1:
        return [(None, array)]
    if array.ndim == 2 and array.shape[1] == 1:
        return [(None, array[:, 0])]
    if array.ndim == 2:
        return [(f"attribute {j}", array[:, j]) for j in range(array.shape[1])]
    raise ValueError(
        f"`sensitive_features` must be 1-D (one label per row) or 2-D (one column per "
        f"attribute), got shape {array.shape}."
    )


def _single(name: str, values: Any) -> Any:
    columns = split_columns(values)
    if len(columns) != 1:
        raise ValueError(
            f"`sensitive_features` (column {name!r}) must be 1-D, one label per row, got "
            f"{len(columns)} columns. Hint: give each attribute a name of its own; a Proxy must "
            "stand alone."
        )
    return columns[0][1]


def encode(column: Any, name: str | None) -> tuple[NDArray[np.intp], list[Any]]:
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
        missing = np.isnan(column)
        values, inverse = np.unique(column[~missing], return_inverse=True)
        labels = [int(v) if float(v).is_integer() else float(v) for v in values]
        whole = all(isinstance(v, int) for v in labels)  # integers with gaps, in pandas
        check_count(labels, len(column), "integer" if whole else "float", name)
        codes = np.full(len(column), -1, dtype=np.intp)
        codes[~missing] = inverse
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


def _encode_dates(column: NDArray[Any], name: str | None) -> tuple[NDArray[np.intp], list[Any]]:
    """Labels are Python dates and durations where these are as fine as the values, else text."""
    missing = np.isnat(column)
    values, inverse = np.unique(column[~missing], return_inverse=True)
    labels = values.astype(str).tolist()
    # Durations in years or months have no fixed length.
    vague = column.dtype.kind == "m" and np.datetime_data(column.dtype)[0] in ("Y", "M")
    for unit in () if vague else ("s", "us"):
        coarse = values.astype(f"{column.dtype.kind}8[{unit}]")
        if (coarse == values).all():
            labels = coarse.tolist()
            break
    check_count(labels, len(column), "date", name)
    codes = np.full(len(column), -1, dtype=np.intp)
    codes[~missing] = inverse
    return codes, labels


def _few_labels(column: NDArray[Any]) -> tuple[NDArray[np.intp], list[Any]] | None:
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


def _encode_objects(column: NDArray[Any], name: str | None) -> tuple[NDArray[np.intp], list[Any]]:
    seen: dict[Any, int] = {}
    codes = np.empty(len(column), dtype=np.intp)
    for i, value in enumerate(column.tolist()):
        try:
            codes[i] = -1 if _is_missing(value) else seen.setdefault(value, len(seen))
        except (TypeError, ValueError):  # not hashable; an array compares to an array
            raise ValueError(
                "`sensitive_features` must hold labels (text, numbers, booleans), got an "
                f"element of type {type(value).__name__}."
            ) from None
    labels = list(seen)
    if any(isinstance(label, _NUMBERS) for label in labels):
        _refuse_equal_types(column.tolist(), name)
    check_count(labels, len(column), _kind_of(labels), name)
    return _sort_labels(codes, labels)


def _refuse_equal_types(values: Iterable[Any], name: str | None) -> None:
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


def _encode_series(column: nw.Series[Any], name: str | None) -> tuple[NDArray[np.intp], list[Any]]:
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
        values = np.array([v for v in column.to_list() if not _is_missing(v)])
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
    uniques = [v for v in column.unique().to_list() if not _is_missing(v)]
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
            (-1 if _is_missing(v) else position[v] for v in column.to_list()),
            dtype=np.intp,
            count=len(column),
        )
    return codes, list(labels)


def _is_missing(value: Any) -> bool:
    # pandas.NA compares to NA, not to a truth value, so it is told by its type.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def sorted_labels(labels: list[Any]) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:  # mixed types: a stable order that does not depend on the rows
        return sorted(labels, key=lambda v: (type(v).__name__, str(v)))


def _sort_labels(codes: NDArray[np.intp], labels: list[Any]) -> tuple[NDArray[np.intp], list[Any]]:
    ordered = sorted_labels(labels)
    rank = {label: k for k, label in enumerate(ordered)}
    lookup = np.array([rank[label] for label in labels] + [-1], dtype=np.intp)
    return lookup[codes], ordered


def share_labels(
    column: Any, codes: NDArray[np.intp], labels: list[Any], name: str | None
) -> tuple[NDArray[np.intp], list[Any]]:
    """Codes for the labels of all workers, where the column is one shard of many."""
    if not shards.active():
        return codes, labels
    declared = isinstance(column, nw.Series) and column.dtype in (nw.Categorical, nw.Enum)
    found = shards.gather_objects((labels, len(codes), declared))
    merged = list(dict.fromkeys(label for part, _, _ in found for label in part))
    _refuse_equal_types([label for part, _, _ in found for label in part], name)
    if not any(declared for _, _, declared in found):
        _check_count(merged, sum(count for _, count, _ in found), _kind_of(merged), name)
    ordered = sorted_labels(merged)
    rank = {label: k for k, label in enumerate(ordered)}
    lookup = np.array([rank[label] for label in labels] + [-1], dtype=np.intp)
    return lookup[codes], ordered


def _kind_of(labels: list[Any]) -> str:
    """What `check_count` takes labels for."""
    if labels and all(isinstance(v, int | float) and not isinstance(v, bool) for v in labels):
        return "integer" if all(float(v).is_integer() for v in labels) else "float"
    return "date" if labels and all(isinstance(v, date) for v in labels) else "text"


def cross(
    coded: list[tuple[NDArray[np.intp], list[Any]]],
) -> tuple[NDArray[np.intp], list[Any]]:
    """Intersections of several attributes; unknown where any of them is."""
    combined = np.zeros(len(coded[0][0]), dtype=np.int64)
    missing = np.zeros(len(combined), dtype=bool)
    for codes, labels in coded:
        missing |= codes < 0
        combined = combined * len(labels) + codes
    combined[missing] = -1
    cells, inverse = np.unique(combined[~missing], return_inverse=True)
    if shards.active():
        found, cells = cells, np.unique(np.concatenate(shards.gather_objects(cells)))
        inverse = np.searchsorted(cells, found)[inverse]
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
    if shards.active():
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
