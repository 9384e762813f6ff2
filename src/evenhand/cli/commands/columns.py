"""Columns of a table as numbers or labels, and tables as files."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...files.tabular import TableError, called, is_text_type, value_type
from ...groups.validation import quote

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT = (".csv", ".tsv", ".txt", ".gz")


def numbers(table: pa.Table, name: str, path: Path, what: str) -> NDArray[np.float64]:
    """A column as floats, NaN where missing; an error where it holds anything else.

    Parameters
    ----------
    table : pyarrow Table
        As from :func:`read_table`.
    name : str
        The column.
    path : Path
        For messages.
    what : str
        What the column is used as, for messages.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    kind = value_type(column.type)
    where = f"column {quote(name)} of {called(path)}"
    if column.null_count == len(column) or pa.types.is_null(kind):
        raise TableError(f"The {what}, {where}, has no values at all.")
    if is_text_type(kind):
        raise TableError(_not_numbers(column.to_pylist(), what, where))
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):  # fmt: skip
        raise TableError(f"The {what}, {where}, must hold numbers, not values of type {kind}.")
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    values = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    values = np.ascontiguousarray(values, dtype=np.float64)
    infinite = np.isinf(values)
    if infinite.any():
        raise TableError(
            f"The {what}, {where}, must be finite: {int(infinite.sum())} of {len(values)} values "
            f"are infinite, the first in row {int(infinite.argmax()) + 1}."
        )
    return values


def _not_numbers(values: list[str | None], what: str, where: str) -> str:
    bad, first = 0, None
    for row, value in enumerate(values, 1):
        if value is None:
            continue
        try:
            float(value)
        except ValueError:
            bad += 1
            first = first or (row, value)
    if first is None:
        return f"The {what}, {where}, holds numbers stored as text. Hint: convert it to numbers."
    return (
        f"The {what}, {where}, must hold numbers: {bad} of {len(values)} values do not, the first "
        f"in row {first[0]}: {quote(first[1])}. Hint: name another column, or mend or empty these "
        "cells; rows with empty ones can be left out with --drop-missing."
    )


def plain_text(table: pa.Table, keep: Container[str] = ()) -> pa.Table:
    """Dictionary columns as plain text, whose groups come in alphabetical order.

    Those named in `keep` stay: bands have an order of their own.
    """
    import pyarrow as pa

    columns = {}
    for name in table.column_names:
        column = table.column(name)
        kind = value_type(column.type)
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if number or pa.types.is_boolean(kind) or name in keep:
            columns[name] = column
            continue
        try:
            columns[name] = column.cast(pa.string())
        except pa.ArrowException as error:
            raise TableError(
                f"--sensitive {quote(name)} must hold labels, not values of type {kind}."
            ) from error
    return pa.table(columns)


def is_text(path: Path) -> bool:
    """Whether a table of this name is written as text."""
    return path.suffix.lower() in _TEXT


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table in the format its name asks for, compressed where it ends in .gz."""
    from pyarrow import feather, parquet

    endings = [s.lower() for s in path.suffixes[-2:]]
    kind = endings[-1] if endings else ""
    if kind in (".parquet", ".pq"):
        parquet.write_table(table, str(path))
    elif kind in (".feather", ".arrow"):
        feather.write_feather(table, str(path))
    elif kind in _TEXT:
        separator = "\t" if ".tsv" in endings else ","
        # Not Arrow's writer, which quotes every text.
        opened = gzip.open if kind == ".gz" else open
        with opened(path, "wt", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
            writer.writerow(table.column_names)
            for batch in table.to_batches(max_chunksize=50_000):
                writer.writerows(zip(*(c.to_pylist() for c in batch.columns), strict=True))
    else:
        raise TableError(
            f"{called(path)} must end in .csv, .tsv, .csv.gz, .parquet or .feather, so that its "
            "format is known."
        )
