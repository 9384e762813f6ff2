"""Legitimate factors: columns of any kind, as models of score and group given them see them.

A number stays a number, with the median where it is missing and a mark of that; dates count in
days; anything else is a category of any number of levels, of which "missing" is one. A number with
few values is a category too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector
from .._core.validation import InputError, check_names, frame_columns, read_native
from .encoding import MAX_LEVELS, MIN_LEVEL_ROWS, MISSING, ColumnError
from .encoding import _fit_column as fit_column
from .encoding import _missing as missing_rows
from .encoding import _numbers as numbers_of
from .encoding import _texts as texts_of

# With so few values no curve has to be guessed between them.
FEW_VALUES = 10
CONSTANT = "it has the same value in every row"


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
    """The columns that are used, and why others are not, a sentence by name."""

    columns: tuple[Control, ...]
    left_out: dict[str, str]

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
        gone = {column.name: CONSTANT for column in taken if column.is_constant}
        return Controls(kept, {**self.left_out, **gone})


def read_controls(controls: Any, n_rows: int) -> Controls:
    """Read a frame, dict, array or column of controls.

    Parameters
    ----------
    controls : frame, dict of columns, (n,) or (n, p) array, or series
        Text, categories, booleans, dates and numbers; gaps are allowed.
    n_rows : int
        Number of rows expected.
    """
    if isinstance(controls, Controls):
        return controls  # rows of a fold, read before they were taken
    columns: list[Control] = []
    left_out: dict[str, str] = {}
    for name, column in _split(controls):
        if len(column) != n_rows:
            raise InputError(
                "controls", f"have one entry per row: got {len(column)} for {n_rows} rows"
            )
        found = _read(name, column)
        if isinstance(found, str):
            left_out[name] = found
        else:
            columns.append(found)
    read = Controls(tuple(columns), left_out)
    refuse_none(read)
    return read


def refuse_none(controls: Controls) -> None:
    """Refuse controls of which none can be used."""
    if controls.columns:
        return
    if not controls.left_out:
        raise InputError(
            "controls", "have at least one column, got none",
            hint="leave controls out to judge the score as it is.",
        )  # fmt: skip
    reasons = "; ".join(f"{name!r}: {reason}" for name, reason in controls.left_out.items())
    raise InputError(
        "controls", f"hold a column that can be used, got none ({reasons})",
        hint="leave controls out to judge the score as it is.",
    )  # fmt: skip


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
        raise InputError(
            "controls", "be 1-D (one control) or 2-D (one column per control), got shape "
            f"{array.shape}",
        )  # fmt: skip
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
        raise InputError(
            "controls", f"be 1-D, got {len(columns)} columns",
            hint="give each control a name of its own.", where=f"(column {name!r})",
        )  # fmt: skip
    return columns[0][1]


def _read(name: str, column: Any) -> Control | str:
    """A control, or why there is none."""
    absent = missing_rows(column)
    try:
        spec = fit_column(column, name, False, MIN_LEVEL_ROWS, MAX_LEVELS)
    except ColumnError as error:
        raise InputError("controls", f"be usable: {error}") from None
    if spec.kind == "left out":
        return spec.reason
    if spec.kind == "number":
        values = numbers_of(column, name, absent)
        assert values is not None
        distinct, inverse = np.unique(values, return_inverse=True)  # NaNs are one value
        if len(distinct) > FEW_VALUES:
            return Control(name, values, None)
        levels = tuple(MISSING if v != v else f"{v:g}" for v in distinct)
        return Control(name, values, inverse.astype(np.intp), levels)
    text = np.where(absent, MISSING, texts_of(column, absent)).astype(str)
    found, inverse = np.unique(text, return_inverse=True)
    return Control(name, None, inverse.astype(np.intp), tuple(map(str, found)))
