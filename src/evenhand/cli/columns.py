"""Columns of a table as numbers or labels, and tables as files."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._core.files import arrow_kind
from .._core.validation import InputError, quote
from ..data.bands import Bands, Continuous, measurement
from ..data.labels import whole
from ..tables.plan import check_levels_read
from ..tables.readers import Source, TableError, called, is_text_type, value_type

if TYPE_CHECKING:
    import pyarrow as pa

    from .options import Roles


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
    where = f"column {quote(name)} of {called(path)}"
    kind = arrow_kind(column.type)
    if column.null_count == len(column):
        raise TableError(f"The {what}, {where}, has no values at all.")
    if kind == "text":
        raise TableError(_not_numbers(column.to_pylist(), what, where))
    if kind not in ("numbers", "bool"):
        raise TableError(f"The {what}, {where}, must hold numbers, not values of type {kind}.")
    if kind == "bool":
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
    bad = [(row, value) for row, value in enumerate(values, 1) if not _is_number(value)]
    if not bad:
        return f"The {what}, {where}, holds numbers stored as text. Hint: convert it to numbers."
    return (
        f"The {what}, {where}, must hold numbers: {len(bad)} of {len(values)} values do not, the "
        f"first in row {bad[0][0]}: {quote(bad[0][1])}. Hint: name another column, or mend or "
        "empty these cells; rows with empty ones can be left out with --drop-missing."
    )


def _is_number(value: str | None) -> bool:
    try:
        return value is None or float(value) is not None
    except ValueError:
        return False


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


def write_table(table: pa.Table, path: Path, like: Source | None = None) -> None:
    """Write a table in the format its name asks for, compressed where it ends in .gz.

    Text has the separator, the decimal point and the encoding of a file that it is to be `like`.
    """
    from pyarrow import feather, parquet

    endings = [s.lower() for s in path.suffixes[-2:]]
    kind = endings[-1] if endings else ""
    if kind in (".parquet", ".pq"):
        parquet.write_table(table, str(path))
    elif kind in (".feather", ".arrow"):
        feather.write_feather(table, str(path))
    elif kind in _TEXT:
        like = like if like is not None and like.kind == "csv" else Source(path, "csv", None, ())
        separator = "\t" if ".tsv" in endings else like.separator or ","
        encoding = {"Windows-1252": "cp1252"}.get(like.encoding, like.encoding or "utf-8")
        # Not Arrow's writer, which quotes every text.
        opened = gzip.open if kind == ".gz" else open
        with opened(path, "wt", encoding=encoding, newline="") as stream:
            writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
            writer.writerow(table.column_names)
            for batch in table.to_batches(max_chunksize=50_000):
                cells = [_as_written(c.to_pylist(), like.decimal) for c in batch.columns]
                writer.writerows(zip(*cells, strict=True))
    else:
        raise TableError(
            f"{called(path)} must end in .csv, .tsv, .csv.gz, .parquet or .feather, so that its "
            "format is known."
        )


def _as_written(values: list[Any], decimal: str) -> list[Any]:
    """Numbers with another decimal point; text stays as it is."""
    if decimal == "." or not any(isinstance(v, float) for v in values):
        return values
    return [str(v).replace(".", decimal) if isinstance(v, float) else v for v in values]


# ------------------------------------------------------------------------------------------------
# Sensitive columns of a file: which are groups, and which must be cut into bands first.


# None: a measurement that is not cut.
Edges = list[float] | list[str] | None


def parse_bands(columns: Roles) -> dict[str, Edges]:
    """``age:25,65`` → {"age": [25.0, 65.0]}; edges that are no numbers are dates.

    {"age": None} where age is asked about as it is, with --continuous.
    """
    sensitive, band = columns.sensitive, getattr(columns, "band", [])
    if getattr(columns, "continuous", False):
        if band or len(sensitive) != 1:
            also = "--band as well" if band else f"{len(sensitive)} columns"
            raise TableError(
                f"--continuous asks about one --sensitive column that is not cut, got {also}. "
                "Hint: audit one measurement at a time, or cut it with --band instead."
            )
        if getattr(columns, "control", []):
            raise TableError(
                "--control needs groups, and --continuous asks about a measurement. Hint: cut it "
                f"with --band instead, such as --band {sensitive[0]}:25,65."
            )
        return {sensitive[0]: None}
    bands: dict[str, Edges] = {}
    for text in band:
        name, sign, listed = text.rpartition(":")
        parts = [part.strip() for part in listed.split(",")]
        if not sign or not name or not all(parts):
            raise TableError(
                f"--band must be COLUMN:EDGE,EDGE,..., got {text!r}. Hint: --band age:25,65"
            )
        if name not in sensitive:
            raise TableError(
                f"--band names {quote(name)}, which is not one of the --sensitive columns "
                f"({', '.join(map(quote, sensitive))})."
            )
        if name in bands:
            raise TableError(f"--band names {quote(name)} twice. Hint: list all its edges once.")
        try:
            bands[name] = [float(part) for part in parts]
        except ValueError:
            bands[name] = parts
    return bands


def cut(table: pa.Table, bands: Mapping[str, Edges]) -> tuple[pa.Table, dict[str, Bands]]:
    """The table with some columns cut into bands, and the bands.

    A measurement that is not cut must be one, and stays.
    """
    import pyarrow as pa

    made = {}
    for name, edges in bands.items():
        column = table.column(name)
        try:
            if edges is None:
                Continuous(column)
                continue
            values = measurement(column)
            made[name] = Bands.make(edges, values)
        except InputError as error:
            text = error.worded({"values": "its cells", "edges": "the edges"}[error.argument])
            what = "--continuous cannot take" if edges is None else "--band cannot cut"
            raise TableError(
                f"{what} {quote(name)}: {text} Hint: cells that are no numbers must be empty, and "
                "dates written as 1990-12-31."
            ) from error
        codes = pa.array(made[name].codes(values).astype("int32"), mask=~_known(values))
        labels = pa.array(made[name].labels)
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.DictionaryArray.from_arrays(codes, labels))
    return table, made


def _known(values: Any) -> Any:
    return values == values


def check_levels(table: pa.Table, as_written: bool) -> None:
    """Refuse numbers and dates with many distinct values, which are measurements.

    Parameters
    ----------
    table : pyarrow Table
        The sensitive columns.
    as_written : bool
        Whether text may be a number or a date that nobody has declared to be text (CSV).
    """
    for name in table.column_names:
        column = table.column(name)
        if as_written or not is_text_type(column.type):
            levels = [whole(v) for v in column.unique().to_pylist() if v is not None and v == v]
            check_levels_read(levels, table.num_rows, name)
