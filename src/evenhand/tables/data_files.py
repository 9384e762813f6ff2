"""Paths → files that were looked at: each has every column, of types that go together.

Engines fill gaps, round, and take the columns of one file for those of another without a word, so
all of this is found out before one of them reads a row.
"""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from .._core.files import PARQUET, TableError, arrow_kind, is_text_type, list_files, value_type
from .._core.validation import InputError, name_others, quote
from .plan import Columns
from .readers import open_table as open_file

_CSV = (".csv", ".tsv", ".txt", ".gz", ".zst")
NULL = "null"
# Bytes that tell most files apart, and that a file without a row stays below.
_HEAD, _EMPTY = 2**16, 2**12


@dataclass(frozen=True)
class Batch:
    """Files that a reader can take together.

    Attributes
    ----------
    files : tuple of str
    missing : tuple of str
        Columns without a type, since they have no value at all.
    separator, decimal : str
        Of CSV files.
    skip : int
        Lines before the names of columns.
    """

    files: tuple[str, ...]
    missing: tuple[str, ...] = ()
    separator: str = ","
    decimal: str = "."
    skip: int = 0


@dataclass(frozen=True)
class Files:
    """All files of a table, in batches.

    Attributes
    ----------
    kind : {"parquet", "csv"}
    batches : tuple of Batch
    types : dict of column → {"double", "integer", "text"}
        What columns are cast to where batches differ; without an entry they have one type.
    folders : tuple of str
        Columns whose values are in the names of folders, as `name=value`. They are text.
    """

    kind: str
    batches: tuple[Batch, ...]
    types: dict[str, str]
    folders: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """All of them."""
        return [file for batch in self.batches for file in batch.files]

    @property
    def keys(self) -> list[str]:
        """Every name in a `name=value` of the folders, those of no interest as well."""
        parts = (part for file in self.files for part in PurePath(file).parent.parts)
        return list(dict.fromkeys(part.partition("=")[0] for part in parts if "=" in part))


def look_at(paths: Sequence[Any], columns: Columns, cased: bool = True) -> Files:
    """The files that paths, folders and patterns name, checked.

    Parameters
    ----------
    paths : sequence of str or Path
    columns : Columns
        Those that will be read.
    cased : bool
        Whether names of columns may differ in case alone.
    """
    files = list_files(paths)
    kinds = {_kind(file) for file in files}
    if len(kinds) > 1:
        raise InputError("table", "be files of one kind", "both Parquet and CSV")
    kind = kinds.pop()
    if any("://" in file for file in files):
        # Not to be looked at from here.
        return Files(kind, (Batch(tuple(files)),), {})
    _refuse_copies(files)
    look = _parquet if kind == "parquet" else _csv
    return look(files, columns, cased)


def _refuse_copies(files: list[str]) -> None:
    """Refuse two files that hold the same bytes, unless these are no rows."""
    seen: dict[Any, str] = {}
    for file in files:
        with Path(file).open("rb") as stream:
            head = stream.read(_HEAD)
        key = Path(file).stat().st_size, head
        other = seen.setdefault(key, file)
        # Writers leave small files without a row, all alike.
        if other != file and len(head) > _EMPTY and filecmp.cmp(other, file, shallow=False):
            raise TableError(
                f"{file!r} and {other!r} hold the same bytes, and their people would count twice. "
                "Hint: leave one of them out."
            )


def _kind(file: str) -> str:
    name = file.lower()
    if name.endswith(PARQUET):
        return "parquet"
    if name.endswith(_CSV):
        return "csv"
    if "://" not in file:
        with Path(file).open("rb") as stream:
            if stream.read(4) == b"PAR1":
                return "parquet"
    raise InputError("table", f"be Parquet or CSV files, and {file!r} has neither ending")


def _parquet(files: list[str], columns: Columns, cased: bool) -> Files:
    import pyarrow as pa
    from pyarrow import parquet

    seen: dict[str, tuple[str, str]] = {}
    found: dict[tuple[Any, ...], list[str]] = {}
    schemas: dict[tuple[Any, ...], Any] = {}
    folders: tuple[str, ...] | None = None
    for file in files:
        try:
            schema = parquet.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            text = str(error).splitlines()[0]
            raise TableError(f"{file!r} is not a whole Parquet file: {text}") from error
        inside = tuple(name for name in columns.names if name in schema.names)
        outside = _in_folders(file, columns)
        if folders is None:
            folders = tuple(n for n in columns.names if n not in inside and n in outside)
        _check_folders(file, files[0], schema.names, folders, outside, columns)
        _check_once(file, inside, schema.names, cased)
        for name in inside:
            kind = arrow_kind(schema.field(name).type)
            before = seen.setdefault(name, (kind, file)) if kind != NULL else (kind, file)
            if before[0] != kind:
                raise TableError(
                    f"Column {name!r} must be of one type in all files: it holds {before[0]} in "
                    f"{before[1]!r} and {kind} in {file!r}. Hint: write one of them anew."
                )
        key = tuple(str(schema.field(name).type) for name in inside)
        found.setdefault(key, []).append(file)
        schemas[key] = {name: schema.field(name).type for name in inside}
    batches = tuple(
        Batch(tuple(named), tuple(n for n, kind in schemas[key].items() if str(kind) == NULL))
        for key, named in found.items()
    )
    types = _common(list(schemas.values())) if len(batches) > 1 else {}
    return Files("parquet", batches, types, folders or ())


def _check_folders(
    file: str, first: str, names: list[str], folders: tuple[str, ...], outside: list[str],
    columns: Columns,
) -> None:  # fmt: skip
    """Each column must be in the files, or in the names of the folders of all of them."""
    for name in columns.names:
        if name not in names and (name not in outside or name not in folders):
            _no_column(file, name, names)
        if name in names and name in folders:
            raise TableError(
                f"Column {name!r} must be in all files or in the names of all folders: it is "
                f"not in {first!r} and in {file!r}."
            )


def _common(schemas: list[dict[str, Any]]) -> dict[str, str]:
    """Types that hold the values of all batches, of columns that are not of one type already."""
    import pyarrow as pa

    found = {}
    for name in schemas[0]:
        kinds = {value_type(schema[name]) for schema in schemas if str(schema[name]) != NULL}
        plain = not any(pa.types.is_dictionary(schema[name]) for schema in schemas)
        if len({str(schema[name]) for schema in schemas}) == 1 and plain:
            continue
        if all(pa.types.is_integer(kind) for kind in kinds):
            found[name] = "integer"
        elif all(arrow_kind(kind) == "numbers" for kind in kinds):
            found[name] = "double"
        elif all(is_text_type(kind) for kind in kinds):
            found[name] = "text"
    return found


def _csv(files: list[str], columns: Columns, cased: bool) -> Files:
    found: dict[tuple[Any, ...], list[str]] = {}
    for file in files:
        source = open_file(file, whole=False)
        if source.kind != "csv":
            raise TableError(f"{file!r} is named like CSV and is {source.kind}. Hint: rename it.")
        if source.encoding != "UTF-8":
            raise TableError(
                f"{file!r} must be UTF-8 for an engine to read it, and looks like "
                f"{source.encoding}. Hint: save it anew, or audit it alone and without an engine."
            )
        for name in columns.names:
            if name not in source.names:
                _no_column(file, name, list(source.names))
        _check_once(file, columns.names, list(source.names), cased)
        key = (source.names, source.separator, source.decimal, source.skip)
        found.setdefault(key, []).append(file)
    batches = tuple(Batch(tuple(named), (), *key[1:]) for key, named in found.items())
    return Files("csv", batches, {})


def _in_folders(file: str, columns: Columns) -> list[str]:
    parts = (part.partition("=") for part in PurePath(file).parent.parts)
    return [name for name, sign, _ in parts if sign and name in columns.names]


def _check_once(file: str, wanted: Sequence[str], names: list[str], cased: bool) -> None:
    for name in wanted:
        alike = [other for other in names if other.casefold() == name.casefold()]
        if not cased and len(set(alike)) > 1:
            raise TableError(
                f"{file!r} has the columns {', '.join(map(repr, alike))}, which this engine takes "
                "for one. Hint: rename one of them, or take the engine polars."
            )
        if names.count(name) > 1:
            raise TableError(
                f"{file!r} has {names.count(name)} columns named {name!r}. Hint: rename one of "
                "them."
            )


def _no_column(file: str, name: str, names: list[str]) -> None:
    raise TableError(f"{file!r} has no column {quote(name)}.{name_others(name, names)}.")
