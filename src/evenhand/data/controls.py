"""Legitimate factors: columns of any kind, as models of score and group given them see them.

A number stays a number, with the median where it is missing and a mark of that; dates count in
days; anything else is a category of any number of levels, of which "missing" is one. A number with
few values is a category too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector
from .._core.validation import InputError, check_length, check_names
from .columns import missing_rows, split_columns
from .encoding import (
    MAX_LEVELS,
    MIN_LEVEL_ROWS,
    MISSING,
    ColumnError,
    fit_column,
    read_numbers,
    read_texts,
)

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
    split = split_columns(controls, "controls", "control")
    check_names([name for name, _ in split], "controls")
    for name, column in ((name or "control", column) for name, column in split):
        check_length("controls", len(column), n_rows)
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


def _read(name: str, column: Any) -> Control | str:
    """A control, or why there is none."""
    absent = missing_rows(column)
    try:
        spec = fit_column(column, name, False, MIN_LEVEL_ROWS, MAX_LEVELS, codes=True)
    except ColumnError as error:
        raise InputError("controls", f"be usable: {error}") from None
    if spec.kind == "left out":
        return spec.reason
    if spec.kind == "number":
        values = read_numbers(column, name, absent)
        assert values is not None
        distinct, inverse = np.unique(values, return_inverse=True)  # NaNs are one value
        if len(distinct) > FEW_VALUES:
            return Control(name, values, None)
        levels = tuple(MISSING if v != v else f"{v:g}" for v in distinct)
        return Control(name, values, inverse.astype(np.intp), levels)
    text = np.where(absent, MISSING, read_texts(column, absent)).astype(str)
    found, inverse = np.unique(text, return_inverse=True)
    return Control(name, None, inverse.astype(np.intp), tuple(map(str, found)))
