"""Columns of a table → numbers for a linear model, in a way that can be written down.

Numbers are centered and scaled, with the median and an indicator where they are missing;
categories become one column per level, "missing" being a level of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .tabular import TableError, _quote, is_text_type, missing_values

if TYPE_CHECKING:
    import pyarrow as pa

Matrix = NDArray[np.float64]
# A level seen in fewer rows cannot be told from noise; rarer ones share "other".
MIN_LEVEL_ROWS = 10
MAX_LEVELS = 40
MISSING, OTHER = "(missing)", "(other)"


@dataclass(frozen=True)
class Column:
    """How one column of the table is turned into columns of X.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "left out"}
    fill, center, scale : float
        Of a number: the value where it is missing, and its standardization.
    missing : bool
        Whether "missing" has a column of its own.
    levels : tuple of str
        Of a category; the first has no column, the others are compared with it.
    other : bool
        Whether rare levels share a column.
    reason : str
        Why a column is left out.
    """

    name: str
    kind: str
    fill: float = 0.0
    center: float = 0.0
    scale: float = 1.0
    missing: bool = False
    levels: tuple[str, ...] = ()
    other: bool = False
    reason: str = ""

    @property
    def features(self) -> list[str]:
        """Names of the columns of X it becomes."""
        if self.kind == "number":
            return [self.name, *([f"{self.name}={MISSING}"] if self.missing else [])]
        if self.kind == "left out":
            return []
        extra = [OTHER] * self.other + [MISSING] * self.missing
        return [f"{self.name}={level}" for level in (*self.levels[1:], *extra)]

    def describe(self) -> str:
        """One sentence for the report."""
        name = _quote(self.name)
        if self.kind == "left out":
            return f"{name} is not used: {self.reason}."
        if self.kind == "number":
            gaps = (
                f"; missing values are set to the median, {self.fill:.6g}, and marked"
                if self.missing
                else ""
            )
            return f"{name} is used as a number, in standard deviations ({self.scale:.4g}){gaps}."
        extra = [f"{len(self.levels)} levels, compared with {_quote(self.levels[0])}"]
        if self.other:
            extra.append(f"levels of fewer than {MIN_LEVEL_ROWS} rows are taken together")
        if self.missing:
            extra.append("missing is a level of its own")
        return f"{name} is used as a category: {'; '.join(extra)}."


def fit_columns(table: pa.Table, names: Sequence[str]) -> list[Column]:
    """Decide how each column is used."""
    return [_fit_column(table, name) for name in names]


def _fit_column(table: pa.Table, name: str) -> Column:
    column = table.column(name)
    absent = missing_values(column)
    if absent.all():
        return Column(name, "left out", reason="it has no values")
    values = _numbers(column, name)
    if values is not None:
        known = values[~absent]
        if np.ptp(known) == 0 and not absent.any():
            return Column(name, "left out", reason="it has the same value in every row")
        if _counts_rows(values, column.type):
            return Column(name, "left out", reason="it rises with every row, like a row number")
        fill = float(np.median(known))
        filled = np.where(absent, fill, values)
        return Column(
            name, "number", fill, float(filled.mean()), float(filled.std()) or 1.0,
            bool(absent.any()),
        )  # fmt: skip
    text = _texts(column)
    found, counts = np.unique(text[~absent].astype(str), return_counts=True)
    if len(found) > max(20, 0.5 * len(text)):
        return Column(
            name, "left out",
            reason=f"it has {len(found)} different texts in {len(text)} rows, like a name",
        )  # fmt: skip
    order = np.lexsort((found, -counts))
    kept = [k for k in order if counts[k] >= min(MIN_LEVEL_ROWS, counts.max())][:MAX_LEVELS]
    if len(kept) == 1 and len(found) == 1 and not absent.any():
        return Column(name, "left out", reason="it has the same value in every row")
    return Column(
        name, "category", missing=bool(absent.any()),
        levels=tuple(str(found[k]) for k in kept), other=len(kept) < len(found),
    )  # fmt: skip


def _counts_rows(values: Matrix, kind: Any) -> bool:
    """Whole numbers that rise with every row: a row number or an identifier, not a measurement."""
    import pyarrow as pa

    return len(values) > 20 and pa.types.is_integer(kind) and bool((np.diff(values) > 0).all())


def _numbers(column: pa.ChunkedArray, name: str) -> Matrix | None:
    """The column as floats if that is what it is, dates as days; None for text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_text_type(kind):
        return None
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        column = pc.divide(
            column.cast(pa.timestamp("s")).cast(pa.int64()).cast(pa.float64()), 86400.0
        )
    try:
        cast = pc.cast(column, pa.float64(), safe=False)
    except pa.ArrowException as error:
        raise TableError(
            f"Column {_quote(name)} holds values of type {kind}, which no model can use. Hint: "
            "leave it out with --drop."
        ) from error
    values = np.array(cast.to_numpy(zero_copy_only=False), dtype=np.float64)
    if np.isinf(values).any():
        raise TableError(
            f"Column {_quote(name)} must be finite: row {int(np.isinf(values).argmax()) + 1} is "
            "infinite. Hint: mend it, or leave the column out with --drop."
        )
    return values


def _texts(column: pa.ChunkedArray) -> NDArray[Any]:
    return np.array(column.to_pylist(), dtype=object)


def encode(table: pa.Table, columns: Sequence[Column]) -> tuple[Matrix, dict[str, int]]:
    """(n, d) matrix X, and how many rows have a level that was not there in training, by column."""
    parts: list[Matrix] = []
    unseen: dict[str, int] = {}
    for spec in columns:
        if spec.kind == "left out":
            continue
        column = table.column(spec.name)
        absent = missing_values(column)
        if spec.kind == "number":
            values = _numbers(column, spec.name)
            if values is None:
                raise TableError(
                    f"Column {_quote(spec.name)} held numbers in training and holds text now. "
                    "Hint: score a table of the same form."
                )
            filled = np.where(absent, spec.fill, values)
            parts.append((filled - spec.center) / spec.scale)
            if spec.missing:
                parts.append(absent.astype(np.float64))
            continue
        text = _texts(column)
        # Numbers stand for categories that are written as numbers, such as codes in another file.
        text = np.array([None if gap else str(v) for v, gap in zip(text, absent, strict=True)])
        known = absent.copy()
        for level in spec.levels:
            hit = text == level
            known |= hit
            if level != spec.levels[0]:
                parts.append(hit.astype(np.float64))
        if spec.other:
            parts.append((~known).astype(np.float64))
        elif (~known).any():
            unseen[spec.name] = int((~known).sum())
        if spec.missing:
            parts.append(absent.astype(np.float64))
    n = table.num_rows
    return (np.column_stack(parts) if parts else np.empty((n, 0))), unseen
