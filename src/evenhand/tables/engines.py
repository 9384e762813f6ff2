"""Which engine reads a table, and how it is opened: frames, relations, files, expressions."""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path, PurePath
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._core.files import PARQUET, TableError, arrow_kind, check_one_type, is_dataset, list_files
from .._core.installing import need
from .._core.validation import InputError, frame_columns, name_others, quote
from ..auditing.audits import audit
from ..auditing.result import Audit
from ..data.bands import bands
from ..data.groups import Proxy
from ..measures.cells import Cells
from ..measures.edges import Edges
from .plan import Columns, Engine, EngineError, in_short, is_blank
from .readers import NULLS
from .readers import open_table as open_file

_CSV = (".csv", ".tsv", ".txt", ".gz", ".zst")
NULL = "null"
# Bytes that tell most files apart, and that a file without a row stays below.
_HEAD, _EMPTY = 2**16, 2**12


class Held:
    """A table in memory, which NumPy counts."""

    def __init__(self, table: Any) -> None:
        if isinstance(table, Mapping):
            self.columns = dict(table)
        else:
            self.rows = nw.from_native(table, eager_only=True)
            self.columns = {name: c.to_native() for name, c in frame_columns(self.rows)}

    def kinds(self) -> dict[str, str]:
        """What a column may be is checked where it is counted."""
        return dict.fromkeys(self.columns, "number")

    def cut(self, columns: Columns) -> None:
        """Put bands in place of measurements."""
        made = {name: bands(self.columns[name], edges) for name, edges in columns.bands.items()}
        self.columns |= made

    def count(self, columns: Columns, edges: Edges | int | None) -> Cells:
        """The cells."""
        take = {None: None, **self.columns}
        who: Any = {name: take[name] for name in columns.groups}
        if columns.shares:
            # In the order of their names, as engines have them.
            named = sorted((str(label), name) for label, name in columns.shares.items())
            shares = [np.asarray(take[name], dtype=np.float64) for _, name in named]
            who = Proxy(np.column_stack(shares), [label for label, _ in named], columns.assume)
        return Cells.from_rows(
            take[columns.target], take[columns.score], sensitive_features=who,
            sample_weight=take[columns.weight], frequency=take[columns.frequency], edges=edges,
        )  # fmt: skip

    def audit(self, columns: Columns, **how: Any) -> Audit:
        """An audit with controls, of the rows themselves."""
        take = {None: None, **self.columns}
        groups = [name for name in columns.groups if name not in columns.controls]
        result = audit(
            take[columns.target], take[columns.score],
            sensitive_features={name: known(take[name], columns.missing) for name in groups},
            controls={name: take[name] for name in columns.controls},
            sample_weight=take[columns.weight], frequency=take[columns.frequency], **how,
        )  # fmt: skip
        assert isinstance(result, Audit)
        return result


def known(labels: Any, missing: Sequence[str] = ()) -> Any:
    """Labels with a gap in place of a text that stands for none."""
    values = np.asarray(labels, dtype=object)
    blank = np.array([is_blank(value, missing) for value in values], dtype=bool)
    if blank.any():
        labels = values.copy()
        labels[blank] = None
    return labels


def open_table(table: Any, columns: Columns, **more: str | None) -> Any:
    """An engine with the table in it, which has the columns.

    Parameters
    ----------
    table : Any
        As in :func:`evenhand.audit_table`.
    columns : Columns
        Those that will be read; files are checked to have them.
    **more : str
        Groups that have another role, by their argument.
    """
    opened = _open(table, columns)
    _check_columns(opened.kinds(), columns, more)
    opened.cut(columns)
    return opened


def _check_columns(kinds: dict[str, str], columns: Columns, more: dict[str, str | None]) -> None:
    """Refuse names of no column, and columns that hold what their role cannot use."""
    shares = {f"sensitive_features[{k!r}]": name for k, name in columns.shares.items()}
    roles = {**columns.numbers, **shares}
    numbers = set(roles)
    roles |= {k: v for k, v in more.items() if v is not None}
    roles |= {
        f"controls[{columns.controls.index(name)}]" if name in columns.controls
        else f"sensitive_features[{j}]": name
        for j, name in enumerate(columns.groups)
        if name not in roles.values()
    }  # fmt: skip
    for argument, name in roles.items():
        if name not in kinds:
            others = name_others(name, kinds)
            raise InputError(argument, f"be a column of the table: there is no {name!r}.{others}")
        kind = kinds[name]
        if argument in numbers and kind not in ("number", "boolean"):
            raise InputError(
                argument, f"be numbers: column {name!r} of the table holds {kind}",
                hint="check that it is the right column; numbers kept as text must be cast in the "
                "table.",
            )  # fmt: skip
        if kind not in ("number", "boolean", "text", "date"):
            raise InputError(
                argument, f"be text, numbers, booleans or dates: column {name!r} of the table "
                f"holds {kind}",
            )  # fmt: skip


def _open(table: Any, columns: Columns) -> Any:
    paths = list(table) if isinstance(table, list | tuple) else [table]
    if paths and all(isinstance(path, str | PathLike) for path in paths):
        return _open_files(paths, columns)
    # What is open already: rows in memory for NumPy, anything else in its own engine.
    if is_dataset(table):
        return Engine(nw.from_native(_connect().from_arrow(table)))
    frame = nw.from_native(table, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        opened = Engine(frame)
        return _open_ibis(table) if opened.name == "Ibis" else opened
    if not isinstance(frame, nw.DataFrame | Mapping):
        raise InputError(
            "table", "be a path, a frame, a relation or an expression, got "
            f"{type(table).__name__}", hint="arrays go to evenhand.audit.",
        )  # fmt: skip
    return Held(table)


def _typed(rows: nw.LazyFrame[Any], decimal: str, columns: Columns) -> nw.LazyFrame[Any]:
    """Columns of a CSV file: numbers as such, labels as they are written, "02139" and "NA" too."""
    made = {}
    cut = [name for name, edges in columns.bands.items() if not isinstance(edges[0], str)]
    for name in (*columns.numbers.values(), *cut, *columns.shares.values()):
        text = nw.col(name).str.strip_chars()
        if decimal == ",":
            text = text.str.replace_all(",", ".", literal=True)
        made[name] = nw.when(~text.is_in(NULLS)).then(text).cast(nw.Float64)
    for name in set(columns.groups).difference(made):
        made[name] = nw.when(nw.col(name).str.strip_chars() != "").then(nw.col(name))
    return rows.select(*columns.names).with_columns(**made)


# ------------------------------------------------------------------------------------------------
# Paths → files that were looked at: each has every column, of types that go together.
#
# Engines fill gaps, round, and take the columns of one file for those of another without a word, so
# all of this is found out before one of them reads a row.


def _open_files(paths: Sequence[Any], columns: Columns) -> Engine:
    """The files that paths, folders and patterns name, looked at and opened by DuckDB."""
    files = list_files(paths)
    kinds = {_kind(file) for file in files}
    if len(kinds) > 1:
        raise InputError("table", "be files of one kind", "both Parquet and CSV")
    # Those of other machines cannot be looked at from here.
    near = not any("://" in file for file in files)
    if near:
        _refuse_copies(files)
    connection = _connect()
    is_parquet = kinds == {"parquet"}
    try:
        if is_parquet:
            folders = near and _check_parquet(files, columns)
            return Engine(nw.from_native(connection.sql(
                f"SELECT * FROM read_parquet({_list(files)}, union_by_name = true, "
                f"hive_partitioning = {folders}, hive_types_autocast = false)"
            )))  # fmt: skip
        makes = _check_csv(files, columns) if near else {((), ",", ".", 0): files}
        parts = []
        for (_, separator, decimal, skip), named in makes.items():
            rows = connection.sql(
                f"SELECT * FROM read_csv({_list(named)}, header = true, all_varchar = true, "
                f"delim = {_text(separator)}, skip = {skip})"
            )
            parts.append(_typed(nw.from_native(rows), decimal, columns))
        return Engine(nw.concat(parts), as_written=True)
    except (TableError, ModuleNotFoundError):
        raise
    except Exception as error:  # DuckDB has many kinds
        raise EngineError("DuckDB", in_short(error)) from error


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


def _check_parquet(files: list[str], columns: Columns) -> bool:
    """Refuse files without some column, or of another type; whether folders name any of them."""
    import pyarrow as pa
    from pyarrow import parquet

    seen: dict[str, tuple[str, str]] = {}
    folders: list[str] | None = None
    for file in files:
        try:
            schema = parquet.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            text = str(error).splitlines()[0]
            raise TableError(f"{file!r} is not a whole Parquet file: {text}") from error
        inside = [name for name in columns.names if name in schema.names]
        outside = _in_folders(file)
        if folders is None:
            folders = [n for n in columns.names if n not in inside and n in outside]
        for name in columns.names:
            if name in inside and name in folders:
                raise TableError(
                    f"Column {name!r} must be in all files or in the names of all folders: it is "
                    f"not in {files[0]!r} and in {file!r}."
                )
            if name not in (outside if name in folders else inside):
                raise _no_column(file, name, schema.names)
        _check_once(file, inside, schema.names)
        for name in inside:
            kind = arrow_kind(schema.field(name).type)
            if kind != NULL:
                check_one_type(name, kind, repr(file), seen)
    return bool(folders)


def _check_csv(files: list[str], columns: Columns) -> dict[tuple[Any, ...], list[str]]:
    """Refuse files that cannot be read; the others by names, separator, decimal, lines to skip."""
    makes: dict[tuple[Any, ...], list[str]] = {}
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
                raise _no_column(file, name, source.names)
        _check_once(file, columns.names, list(source.names))
        make = (source.names, source.separator, source.decimal, source.skip)
        makes.setdefault(make, []).append(file)
    return makes


def _in_folders(file: str) -> list[str]:
    """Names of columns whose value is the name of a folder."""
    parts = PurePath(file).parent.parts
    return [part.partition("=")[0] for part in parts if "=" in part]


def _check_once(file: str, wanted: Sequence[str], names: list[str]) -> None:
    for name in wanted:
        alike = [other for other in names if other.casefold() == name.casefold()]
        if len(set(alike)) > 1:
            raise TableError(
                f"{file!r} has the columns {', '.join(map(repr, alike))}, which DuckDB takes for "
                "one. Hint: rename one of them."
            )
        if names.count(name) > 1:
            raise TableError(
                f"{file!r} has {names.count(name)} columns named {name!r}. Hint: rename one of "
                "them."
            )


def _no_column(file: str, name: str, names: Sequence[str]) -> TableError:
    return TableError(f"{file!r} has no column {quote(name)}.{name_others(name, names)}.")


# ------------------------------------------------------------------------------------------------
# DuckDB: files and Arrow.


def _connect() -> Any:
    """A database in memory."""
    duckdb = need("duckdb", "DuckDB is needed to read this table: it is missing.", "[engines]")
    connection = duckdb.connect()
    # It would be among the results on standard output.
    connection.execute("SET enable_progress_bar = false")
    return connection


def _list(values: Iterable[str]) -> str:
    return "[" + ", ".join(_text(value) for value in values) + "]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# ------------------------------------------------------------------------------------------------
# Ibis: a table of any of its backends.


def _open_ibis(table: Any) -> Engine:
    import ibis

    if ibis.get_backend(table).name == "sqlite":
        # It keeps text in columns of numbers, and would read it as 0.
        numbers = [name for name, dtype in table.schema().items() if dtype.is_numeric()]
        table = table.mutate(
            **{
                name: ibis.ifelse(
                    table[name].typeof().isin(["real", "integer"]), table[name], ibis.null()
                )
                for name in numbers
            }
        )
    return Engine(nw.from_native(table))
