"""Legitimate factors: columns of any kind → numbers that a model can use, in one documented way.

A number stays a number; where it is missing, the median stands in and a column of its own marks it.
Anything else is a category: a level of fewer than 10 rows goes with the other rare ones, as do the
levels beyond the 40 most frequent, and "missing" is a level. Dates are numbers (days).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .validation import check_names, frame_columns, read_native

Vector = NDArray[np.float64]
# A level seen in fewer rows cannot be told from noise.
MIN_LEVEL_ROWS = 10
MAX_LEVELS = 40
# A number with so few values is as good as a category: no curve has to be guessed between them.
FEW_VALUES = 10
MISSING, OTHER = "(missing)", "(other)"


@dataclass(frozen=True)
class Control:
    """One column, over all n rows.

    Attributes
    ----------
    name : str
    values : (n,) float array or None
        Of a number, NaN where it is missing.
    codes : (n,) intp array or None
        Of a category, and of a number with few values.
    levels : tuple of str
        Of the codes.
    """

    name: str
    values: Vector | None
    codes: NDArray[np.intp] | None
    levels: tuple[str, ...] = ()

    @property
    def is_number(self) -> bool:
        return self.values is not None

    @property
    def is_constant(self) -> bool:
        if self.values is not None:
            missing = np.isnan(self.values)
            known = self.values[~missing]
            return not len(known) or (known.min() == known.max() and not missing.any())
        assert self.codes is not None
        return bool((self.codes == self.codes[0]).all())

    def take(self, rows: Any) -> Control:
        """Some of the rows."""
        values = None if self.values is None else self.values[rows]
        codes = None if self.codes is None else self.codes[rows]
        return Control(self.name, values, codes, self.levels)


@dataclass(frozen=True)
class Controls:
    """The columns that differ between rows, and the names of those that do not."""

    columns: tuple[Control, ...]
    constant: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def single(self) -> Vector | None:
        """The values of one numeric control without gaps; None where there is more than that."""
        if len(self.columns) != 1:
            return None
        (column,) = self.columns
        if column.values is None or np.isnan(column.values).any():
            return None
        return column.values

    def take(self, rows: Any) -> Controls:
        """Some of the rows; a column may become constant there and is left out then."""
        taken = [column.take(rows) for column in self.columns]
        kept = tuple(column for column in taken if not column.is_constant)
        gone = tuple(column.name for column in taken if column.is_constant)
        return Controls(kept, (*self.constant, *gone))


def read_controls(controls: Any, n_rows: int) -> Controls:
    """Read a frame, dict, array or column of controls.

    Parameters
    ----------
    controls : frame, dict of columns, (n,) or (n, p) array, or series
        Text, categories, booleans, dates and numbers; gaps are allowed.
    n_rows : int
        Number of rows expected.
    """
    columns = [_read(name, column) for name, column in _split(controls)]
    if not columns:
        raise ValueError(
            "`controls` must have at least one column, got none. Hint: leave `controls` out to "
            "judge the score as it is."
        )
    for column in columns:
        rows = column.values if column.values is not None else column.codes
        assert rows is not None
        if len(rows) != n_rows:
            raise ValueError(
                f"`controls` must have one entry per row: got {len(rows)} for {n_rows} rows."
            )
    kept = tuple(column for column in columns if not column.is_constant)
    constant = tuple(column.name for column in columns if column.is_constant)
    if not kept:
        raise ValueError(
            "`controls` must differ between rows: "
            f"{', '.join(map(repr, constant))} has the same value in every row. Hint: leave "
            "`controls` out to judge the score as it is."
        )
    return Controls(kept, constant)


def _split(controls: Any) -> list[tuple[str, Any]]:
    if isinstance(controls, dict):
        check_names(list(controls), "controls")
        return [(str(name), _one(str(name), column)) for name, column in controls.items()]
    native = read_native(controls, "controls")
    if isinstance(native, nw.DataFrame):
        check_names([column.name for column in native.iter_columns()], "controls")
        return [*frame_columns(native)]
    if isinstance(native, nw.Series):
        return [(str(native.name) if native.name not in (None, "") else "control", native)]
    array = _as_array(controls)
    if array.ndim == 1:
        return [("control", array)]
    if array.ndim != 2:
        raise ValueError(
            "`controls` must be 1-D (one control) or 2-D (one column per control), got shape "
            f"{array.shape}."
        )
    return [(f"control {j}", array[:, j]) for j in range(array.shape[1])]


def _as_array(values: Any) -> NDArray[Any]:
    if isinstance(values, np.ma.MaskedArray):
        mask, values = np.ma.getmaskarray(values), np.ma.getdata(values).astype(object)
        values[mask] = None
        return values
    array = np.asarray(values)
    if array.dtype.kind in "US" and not isinstance(values, np.ndarray):
        array = np.asarray(values, dtype=object)  # as text, a NaN would be "nan"
    return array


def _one(name: str, values: Any) -> Any:
    columns = _split(values)
    if len(columns) != 1:
        raise ValueError(
            f"`controls` (column {name!r}) must be 1-D, got {len(columns)} columns. Hint: give "
            "each control a name of its own."
        )
    return columns[0][1]


def _read(name: str, column: Any) -> Control:
    values = _numbers(column)
    if values is not None:
        if np.isinf(values).any():
            raise ValueError(
                f"`controls` (column {name!r}) must be finite: row {int(np.isinf(values).argmax())}"
                " is infinite. Hint: mend it or set it to missing."
            )
        distinct, inverse = np.unique(values, return_inverse=True)  # NaNs are one value
        if len(distinct) > FEW_VALUES:
            return Control(name, values, None)
        text = np.array([MISSING if v != v else f"{v:g}" for v in distinct], dtype=object)
        codes, levels = _pool(inverse, text)
        return Control(name, values, codes, levels)
    listed = column.to_list() if isinstance(column, nw.Series) else list(column)
    text = np.array([MISSING if _is_missing(v) else str(v) for v in listed], dtype=object)
    found, inverse = np.unique(text.astype(str), return_inverse=True)
    if len(found) > max(2 * MAX_LEVELS, 0.5 * len(text)):
        raise ValueError(
            f"`controls` (column {name!r}) must be numbers or categories, got {len(found)} "
            f"different texts in {len(text)} rows, like a name or a number stored as text. Hint: "
            "leave it out, or make numbers of it."
        )
    codes, levels = _pool(inverse, found)
    return Control(name, None, codes, levels)


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _numbers(column: Any) -> Vector | None:
    """The column as floats with NaN for gaps, dates as days; None for anything else."""
    if isinstance(column, nw.Series):
        kind = column.dtype
        if kind.is_temporal():
            if kind not in (nw.Date, nw.Datetime):
                return None
            column = column.cast(nw.Datetime("us")).to_numpy()
        elif kind.is_numeric() or kind == nw.Boolean:
            column = column.cast(nw.Float64).to_numpy()
        elif kind == nw.Object:
            return _numbers(np.array(column.to_list(), dtype=object))
        else:
            return None
    if column.dtype.kind == "M":
        days = column.astype("datetime64[us]").astype(np.float64) / 86.4e9
        days[np.isnat(column)] = np.nan
        return days
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    if column.dtype.kind == "O":
        missing = np.array([_is_missing(v) for v in column], dtype=bool)
        known = column[~missing]
        numbers = (int, float, np.number, np.bool_)
        if len(known) and all(isinstance(v, numbers) for v in known):
            out = np.full(len(column), np.nan)
            out[~missing] = known.astype(np.float64)
            return out
    return None


def _pool(inverse: NDArray[Any], names: NDArray[Any]) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Codes by frequency, the rare levels together last."""
    counts = np.bincount(inverse, minlength=len(names))
    order = np.lexsort((names.astype(str), -counts))
    kept = [int(k) for k in order if counts[k] >= min(MIN_LEVEL_ROWS, counts.max())][:MAX_LEVELS]
    lookup = np.full(len(names), len(kept), dtype=np.intp)
    lookup[kept] = np.arange(len(kept))
    levels = [str(names[k]) for k in kept]
    if len(kept) < len(names):
        levels.append(OTHER)
    return lookup[inverse], tuple(levels)
