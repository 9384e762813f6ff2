"""Sensitive columns of a file: which are groups, and which must be cut into bands first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...files.tabular import TableError, is_text_type, value_type
from ...groups.banding import Bands, measurement
from ...groups.categories import MAX_FRACTIONS, MAX_NUMBERS, suggest_edges
from ...groups.continuous import Continuous
from ...groups.validation import quote

if TYPE_CHECKING:
    import pyarrow as pa

# None: a measurement that is not cut.
Edges = list[float] | list[str] | None
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ].*)?")
_OTHERS = 3
# 02139 is the name of a place, not a number.
_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*)([.,]\d+)?")


def parse_bands(
    options: Sequence[str],
    sensitive: Sequence[str],
    continuous: bool = False,
    control: Sequence[str] | None = None,
) -> dict[str, Edges]:
    """``age:25,65`` → {"age": [25.0, 65.0]}; edges that are no numbers are dates.

    {"age": None} where age is asked about as it is, with --continuous.
    """
    found: dict[str, Edges] = {}
    if continuous:
        if options or len(sensitive) != 1:
            also = "--band as well" if options else f"{len(sensitive)} columns"
            raise TableError(
                f"--continuous asks about one --sensitive column that is not cut, got {also}. "
                "Hint: audit one measurement at a time, or cut it with --band instead."
            )
        if control:
            raise TableError(
                "--control needs groups, and --continuous asks about a measurement. Hint: cut it "
                f"with --band instead, such as --band {sensitive[0]}:25,65."
            )
        return {sensitive[0]: None}
    for text in options:
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
        if name in found:
            raise TableError(f"--band names {quote(name)} twice. Hint: list all its edges once.")
        try:
            found[name] = [float(part) for part in parts]
        except ValueError:
            found[name] = parts
    return found


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
        except ValueError as error:
            text = str(error).split(" Hint:")[0]
            text = text.replace("`values` of a Continuous", "its cells")
            text = text.replace("`values`", "its cells").replace("`edges`", "the edges")
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
    import pyarrow as pa

    for name in table.column_names:
        column = table.column(name)
        kind = value_type(column.type)
        levels = [v for v in column.unique().to_pylist() if v is not None and v == v]
        if is_text_type(kind):
            found = _read_levels(levels) if as_written else None
        elif pa.types.is_temporal(kind):
            found = "dates", levels
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            found = "numbers", levels
        else:
            found = None
        if found is None:
            continue
        what, levels = found
        whole = what == "dates" or all(v == int(v) for v in levels)
        limit = MAX_NUMBERS if whole else MAX_FRACTIONS
        if len(levels) <= limit:
            continue
        ordered = sorted(levels)
        shown = [f"{v:g}" if what == "numbers" else str(v) for v in (ordered[0], ordered[-1])]
        raise TableError(
            f"--sensitive {quote(name)} has {len(levels)} different {what}, from {shown[0]} to "
            f"{shown[1]}; more than {limit} are taken for a measurement, not for groups. Hint: ask "
            "about the measurement itself with --continuous, or cut it into bands, such as --band "
            f"{name}:{','.join(suggest_edges(ordered))}; codes of true groups must not look like "
            "numbers, so put a letter before them."
        )


def _read_levels(levels: list[str]) -> tuple[str, list[Any]] | None:
    """The numbers or dates among texts, where all but a few ("unknown", "other") are such."""
    for what, pattern in (("numbers", _NUMBER), ("dates", _DATE)):
        found = [v for v in levels if pattern.fullmatch(v)]
        if found and len(levels) - len(found) <= _OTHERS:
            return what, [float(v.replace(",", ".")) for v in found] if what == "numbers" else found
    return None
