"""One reader of columns: what users hand in, of any library, as values and what is missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Mask
from .._core.validation import InputError, as_array, frame_columns, read_native

MOMENT = "datetime64[us]"


def split_columns(
    values: Any, argument: str, noun: str, check: Callable[[Any], None] | None = None
) -> list[tuple[str | None, Any]]:
    """Split the input into columns by name: narwhals series or 1-D NumPy arrays.

    Parameters
    ----------
    values : frame, series, array, list, or dict of such columns
    argument : str
        The argument's name, for messages.
    noun : str
        What a column is; those of an array are called by it and their number.
    check : callable, optional
        Called with lists of numbers, before NumPy makes one type of them.
    """
    if isinstance(values, dict):
        return [(str(k), _single(v, argument, str(k), noun, check)) for k, v in values.items()]
    native = read_native(chunked(values), argument)
    if isinstance(native, nw.DataFrame):
        return [*frame_columns(native)]
    if isinstance(native, nw.Series):
        return [(None if native.name in (None, "") else str(native.name), native)]
    if isinstance(values, np.ma.MaskedArray):
        mask, values = np.ma.getmaskarray(values), np.ma.getdata(values).astype(object)
        values[mask] = None
    array = as_array(values, argument)
    if check is not None and array.ndim == 1 and array.dtype.kind in "iuf" and values is not array:
        check(values)
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        # np.asarray(["a", None]) is an object array but ["a", float("nan")] is text "nan".
        array = np.asarray(values, dtype=object)
    if array.ndim == 1:
        return [(None, array)]
    if array.ndim != 2:
        raise InputError(
            argument, f"be 1-D (one entry per row) or 2-D (one column per {noun}), got shape "
            f"{array.shape}",
        )  # fmt: skip
    count = array.shape[1]
    return [(None if count == 1 else f"{noun} {j}", array[:, j]) for j in range(count)]


def chunked(values: Any) -> Any:
    """A bare Arrow array is not a narwhals series; a chunked one is."""
    if hasattr(values, "__arrow_c_array__") and not hasattr(values, "columns"):
        import pyarrow as pa

        if isinstance(values, pa.Array):
            return pa.chunked_array([values])
    return values


def _single(values: Any, argument: str, name: str, noun: str, check: Any) -> Any:
    columns = split_columns(values, argument, noun, check)
    if len(columns) != 1:
        raise InputError(
            argument, f"be 1-D, one entry per row, got {len(columns)} columns",
            hint=f"give each {noun} a name of its own; a Proxy must stand alone.",
            where=f"(column {name!r})",
        )  # fmt: skip
    return columns[0][1]


def is_missing(value: Any) -> bool:
    """Whether a Python value stands for none: None, NaN, NaT or pandas.NA."""
    # pandas.NA compares to NA, not to a truth value, so it is told by its type.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def missing_rows(column: Any) -> Mask:
    """Which rows of a column are null, NaN or NaT."""
    if isinstance(column, nw.Series):
        absent = column.is_null()
        if column.dtype.is_float():
            absent = absent | column.is_nan().fill_null(True)
        return np.asarray(absent.to_numpy(), dtype=bool)
    if column.dtype.kind == "f":
        return np.isnan(column)
    if column.dtype.kind in "Mm":
        return np.isnat(column)
    if column.dtype.kind in "OT":  # NumPy's own strings may hold a missing value
        return np.fromiter(map(is_missing, column.tolist()), dtype=bool, count=len(column))
    return np.zeros(len(column), dtype=bool)


def read_values(column: Any, missing: Mask) -> NDArray[Any]:
    """A column as booleans, floats or moments (datetime64), or as it is where it is none of these.

    Floats that are missing are NaN, moments NaT, booleans False.

    Parameters
    ----------
    column : narwhals series or 1-D array
    missing : (n,) bool array
        As from :func:`missing_rows`.
    """
    values = _native_values(column) if isinstance(column, nw.Series) else column
    if values.dtype.kind == "O":
        values = _from_objects(values, missing)
    if values.dtype.kind not in "iufM":
        return values
    moment = values.dtype.kind == "M"
    out = values.astype(MOMENT if moment else np.float64)
    out[missing] = np.datetime64("NaT", "us") if moment else math.nan
    return out


def _native_values(column: nw.Series[Any]) -> NDArray[Any]:
    dtype = column.dtype
    if dtype == nw.Boolean:
        return column.fill_null(False).to_numpy().astype(bool)
    if dtype.is_numeric():
        return np.asarray(column.cast(nw.Float64).fill_null(math.nan).to_numpy(), dtype=np.float64)
    if isinstance(dtype, nw.Datetime) and dtype.time_zone is not None:
        column = column.dt.replace_time_zone(None)
    if dtype in (nw.Date, nw.Datetime):
        return column.to_numpy()
    return np.fromiter(column.to_list(), dtype=object, count=len(column))


def _from_objects(column: NDArray[Any], missing: Mask) -> NDArray[Any]:
    """Python booleans, numbers or dates with gaps, as what they are; anything else as it came."""
    kinds = {type(value) for value in column[~missing]}
    if kinds and all(issubclass(kind, date | np.datetime64) for kind in kinds):
        return np.where(missing, np.datetime64("NaT", "us"), column).astype(MOMENT)
    if kinds and all(issubclass(kind, bool | np.bool_) for kind in kinds):
        return np.where(missing, False, column).astype(bool)
    if all(issubclass(kind, Real | Decimal | np.bool_) for kind in kinds):
        with suppress(OverflowError):  # of integers beyond all floats, which are labels
            return np.where(missing, math.nan, column).astype(np.float64)
    return column
