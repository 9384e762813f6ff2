"""Which engine reads a table, and how it is opened: frames, relations, files, databases."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from os import PathLike
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

import narwhals.stable.v2 as nw
import numpy as np

from .._core.files import (
    PARQUET,
    TableError,
    arrow_kind,
    check_one_type,
    is_dataset,
    is_text_type,
    list_files,
    value_type,
)
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

ENGINES = ("duckdb", "polars", "spark", "ibis", "dask", "numpy")
# Before the address of a database that Ibis connects to.
ADDRESS = "ibis:"

_CSV = (".csv", ".tsv", ".txt", ".gz", ".zst")
NULL = "null"
# Bytes that tell most files apart, and that a file without a row stays below.
_HEAD, _EMPTY = 2**16, 2**12
# Databases that are one file.
_FILES = ("duckdb", "sqlite")


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


def open_table(table: Any, columns: Columns, engine: str | None = None, **more: str | None) -> Any:
    """An engine with the table in it, which has the columns.

    Parameters
    ----------
    table : Any
        As in :func:`evenhand.audit_table`.
    columns : Columns
        Those that will be read; files are checked to have them.
    engine : str, optional
    **more : str
        Groups that have another role, by their argument.
    """
    opened = _open(table, columns, engine)
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


def _open(table: Any, columns: Columns, engine: str | None) -> Any:
    if isinstance(engine, str) and engine.startswith(ADDRESS):
        return open_address(engine.removeprefix(ADDRESS), table)
    if engine is not None and engine not in ENGINES:
        raise InputError(
            "engine", f"be one of {', '.join(ENGINES)}, or ibis: with the address of a database, "
            f"got {engine!r}",
        )  # fmt: skip
    if isinstance(table, str) and table.startswith("duckdb:"):
        _must_be(engine, "duckdb", table)
        return _open_database(table)
    paths = list(table) if isinstance(table, list | tuple) else [table]
    if paths and all(isinstance(path, str | PathLike) for path in paths):
        return _open_paths(paths, columns, engine)
    return _open_frame(table, engine)


def _open_frame(table: Any, engine: str | None) -> Any:
    frame = nw.from_native(table, pass_through=True)
    if isinstance(frame, nw.LazyFrame) and not frame.implementation.is_polars():
        opened = Engine(frame)
        own = opened.name.lower()
        _must_be(engine, own, f"a table of {own}")
        return _open_ibis(table) if own == "ibis" else opened
    scanned = is_dataset(table)
    if not (scanned or isinstance(frame, nw.DataFrame | nw.LazyFrame | Mapping)):
        raise InputError(
            "table", "be a path, an address, a frame, a relation or an expression, got "
            f"{type(table).__name__}", hint="arrays go to evenhand.audit.",
        )  # fmt: skip
    lazy = scanned or isinstance(frame, nw.LazyFrame)
    engine = engine or ("numpy" if not lazy else "duckdb" if scanned else "polars")
    if engine == "numpy" and not lazy:
        return Held(table)
    if engine == "duckdb" and not isinstance(frame, Mapping):
        return _open_in_duckdb(table, frame)
    if engine == "polars" and not scanned and frame.implementation.is_polars():
        return Engine(frame.lazy())
    raise InputError("engine", f"be one that reads {type(table).__name__}, got {engine!r}")


def _must_be(engine: str | None, wanted: str, what: str) -> None:
    if engine not in (None, wanted):
        raise InputError("engine", f"be {wanted!r} for {what}, got {engine!r}")


def _open_paths(paths: list[Any], columns: Columns, engine: str | None) -> Engine:
    if engine is None:
        engine = "duckdb" if find_spec("duckdb") or not find_spec("polars") else "polars"
    if engine not in _READERS:
        raise InputError("engine", f"be duckdb, polars or spark for files, got {engine!r}")
    name, read = _READERS[engine]
    files = look_at(paths, columns, cased=engine == "polars")
    try:
        parts = [nw.from_native(part) for part in read(files, columns)]
        if files.kind == "csv":
            typed = [_typed(*part, columns) for part in zip(parts, files.batches, strict=True)]
            return Engine(nw.concat(typed), as_written=True)
        return Engine(parts[0] if len(parts) == 1 else _joined(parts, files, columns))
    except (TableError, ModuleNotFoundError):
        raise
    except Exception as error:  # every engine has its own kinds
        raise EngineError(name, in_short(error)) from error


def _joined(parts: list[Any], files: Files, columns: Columns) -> Any:
    """Frames of batches as one, with columns of types that all of them can have."""
    alike = []
    for part, batch in zip(parts, files.batches, strict=True):
        casts = [
            (nw.lit(None) if name in batch.missing else nw.col(name)).cast(kind).alias(name)
            for name, kind in files.types.items()
        ]
        alike.append(part.with_columns(*casts).select(*columns.names))
    return nw.concat(alike)


def _typed(rows: nw.LazyFrame[Any], batch: Batch, columns: Columns) -> nw.LazyFrame[Any]:
    """Columns of a CSV file: numbers as such, labels as they are written, "02139" and "NA" too."""
    made = {}
    cut = [name for name, edges in columns.bands.items() if not isinstance(edges[0], str)]
    for name in (*columns.numbers.values(), *cut, *columns.shares.values()):
        text = nw.col(name).str.strip_chars()
        if batch.decimal == ",":
            text = text.str.replace_all(",", ".", literal=True)
        made[name] = nw.when(~text.is_in(NULLS)).then(text).cast(nw.Float64)
    for name in set(columns.groups).difference(made):
        made[name] = nw.when(nw.col(name).str.strip_chars() != "").then(nw.col(name))
    return rows.select(*columns.names).with_columns(**made)


def _needed(package: str, extra: str = "engines") -> ModuleNotFoundError:
    return ModuleNotFoundError(
        f"{package} is needed to read this table: {package} is not installed. Hint: pip install "
        f"'evenhand[{extra}]'."
    )


# ------------------------------------------------------------------------------------------------
# Paths → files that were looked at: each has every column, of types that go together.
#
# Engines fill gaps, round, and take the columns of one file for those of another without a word, so
# all of this is found out before one of them reads a row.


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
    types : dict of column → type of narwhals
        What columns are cast to where batches differ; without an entry they have one type.
    folders : tuple of str
        Columns whose values are in the names of folders, as `name=value`. They are text.
    """

    kind: str
    batches: tuple[Batch, ...]
    types: dict[str, Any]
    folders: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """All of them."""
        return [file for batch in self.batches for file in batch.files]

    @property
    def keys(self) -> list[str]:
        """Every name in a `name=value` of the folders, those of no interest as well."""
        return list(dict.fromkeys(name for file in self.files for name in _in_folders(file)))


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
    folders: tuple[str, ...] | None = None
    for file in files:
        try:
            schema = parquet.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            text = str(error).splitlines()[0]
            raise TableError(f"{file!r} is not a whole Parquet file: {text}") from error
        inside = tuple(name for name in columns.names if name in schema.names)
        outside = _in_folders(file)
        if folders is None:
            folders = tuple(n for n in columns.names if n not in inside and n in outside)
        for name in columns.names:
            if name in inside and name in folders:
                raise TableError(
                    f"Column {name!r} must be in all files or in the names of all folders: it is "
                    f"not in {files[0]!r} and in {file!r}."
                )
            if name not in (outside if name in folders else inside):
                raise _no_column(file, name, schema.names)
        _check_once(file, inside, schema.names, cased)
        for name in inside:
            kind = arrow_kind(schema.field(name).type)
            if kind != NULL:
                check_one_type(name, kind, repr(file), seen)
        key = tuple((name, schema.field(name).type) for name in inside)
        found.setdefault(key, []).append(file)
    batches = tuple(
        Batch(tuple(named), tuple(name for name, kind in key if str(kind) == NULL))
        for key, named in found.items()
    )
    types = _common([dict(key) for key in found]) if len(batches) > 1 else {}
    return Files("parquet", batches, types, folders or ())


def _common(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Types that hold the values of all batches, of columns that are not of one type already."""
    import pyarrow as pa

    found: dict[str, Any] = {}
    for name in schemas[0]:
        kinds = {value_type(schema[name]) for schema in schemas if str(schema[name]) != NULL}
        plain = not any(pa.types.is_dictionary(schema[name]) for schema in schemas)
        if len({str(schema[name]) for schema in schemas}) == 1 and plain:
            continue
        if all(pa.types.is_integer(kind) for kind in kinds):
            found[name] = nw.Int64
        elif all(arrow_kind(kind) == "numbers" for kind in kinds):
            found[name] = nw.Float64
        elif all(is_text_type(kind) for kind in kinds):
            found[name] = nw.String
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
                raise _no_column(file, name, source.names)
        _check_once(file, columns.names, list(source.names), cased)
        key = (source.names, source.separator, source.decimal, source.skip)
        found.setdefault(key, []).append(file)
    batches = tuple(Batch(tuple(named), (), *key[1:]) for key, named in found.items())
    return Files("csv", batches, {})


def _in_folders(file: str) -> list[str]:
    """Names of columns whose value is the name of a folder."""
    parts = PurePath(file).parent.parts
    return [part.partition("=")[0] for part in parts if "=" in part]


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


def _no_column(file: str, name: str, names: Sequence[str]) -> TableError:
    return TableError(f"{file!r} has no column {quote(name)}.{name_others(name, names)}.")


# ------------------------------------------------------------------------------------------------
# DuckDB: files, its own tables, Arrow and pandas.


def _connect(path: str | None = None) -> Any:
    """A database in memory, or a file opened for reading."""
    try:
        import duckdb
    except ModuleNotFoundError:
        raise _needed("DuckDB") from None
    if path is not None and not Path(path).is_file():
        raise TableError(f"There is no file {path!r}.")
    try:
        connection = duckdb.connect(path or ":memory:", read_only=path is not None)
    except duckdb.Error as error:
        raise TableError(f"{path!r} cannot be opened by DuckDB: {in_short(error)}") from error
    # It would be among the results on standard output.
    connection.execute("SET enable_progress_bar = false")
    return connection


def _open_database(address: str) -> Engine:
    """`duckdb:file.db/table`."""
    path, slash, name = address.removeprefix("duckdb:").rpartition("/")
    if not slash or not path or not name:
        raise InputError("table", "be duckdb:FILE/TABLE", repr(address))
    parts = ['"' + part.replace('"', '""') + '"' for part in name.split(".")]
    import duckdb

    try:
        return Engine(nw.from_native(_connect(path).sql(f"SELECT * FROM {'.'.join(parts)}")))
    except duckdb.Error as error:
        raise EngineError("DuckDB", in_short(error)) from error


def _read_in_duckdb(files: Files, columns: Columns) -> list[Any]:
    """Parquet as one table, with the columns matched by name; CSV with all columns as text."""
    connection = _connect()
    if files.kind == "parquet":
        folders = str(bool(files.folders)).lower()
        return [connection.sql(
            f"SELECT * FROM read_parquet({_list(files.files)}, union_by_name = true, "
            f"hive_partitioning = {folders}, hive_types_autocast = false)"
        )]  # fmt: skip
    return [
        connection.sql(
            f"SELECT * FROM read_csv({_list(batch.files)}, header = true, all_varchar = true, "
            f"delim = {_text(batch.separator)}, skip = {batch.skip})"
        )
        for batch in files.batches
    ]


def _open_in_duckdb(table: Any, frame: Any) -> Engine:
    """An Arrow table or dataset, or a pandas or Polars frame."""
    connection = _connect()
    if isinstance(frame, nw.DataFrame) and frame.implementation.is_pandas():
        return Engine(nw.from_native(connection.from_df(table)))
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect("polars")
    if isinstance(frame, nw.DataFrame):
        table = frame.to_arrow()
    return Engine(nw.from_native(connection.from_arrow(table)))


def _list(values: Iterable[str]) -> str:
    return "[" + ", ".join(_text(value) for value in values) + "]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# ------------------------------------------------------------------------------------------------
# Polars and Spark: files as lazy frames.


def _read_in_polars(files: Files, columns: Columns) -> list[Any]:
    """Parquet with the columns that are wanted, as the first file of each batch has them."""
    try:
        import polars as pl
    except ModuleNotFoundError:
        raise _needed("Polars") from None
    if files.kind == "csv":
        return [
            pl.scan_csv(list(b.files), infer_schema=False, separator=b.separator, skip_rows=b.skip)
            for b in files.batches
        ]
    found = []
    for names in (list(batch.files) for batch in files.batches):
        if "://" in names[0]:
            found.append(pl.scan_parquet(names))
            continue
        schema = pl.read_parquet_schema(names[0])
        wanted = {name: schema[name] for name in columns.names if name in schema}
        keys = dict.fromkeys(files.keys, pl.String) if files.folders else None
        rows = pl.scan_parquet(
            names, schema=wanted, extra_columns="ignore", hive_partitioning=bool(keys),
            hive_schema=keys,
        )  # fmt: skip
        found.append(rows.select(columns.names))
    return found


def _read_in_spark(files: Files, columns: Columns) -> list[Any]:
    """A frame for each batch, through the session that runs, or a new one."""
    try:
        from pyspark.sql import SparkSession
        from pyspark.sql.types import StringType, StructField, StructType
    except ModuleNotFoundError:
        raise _needed("PySpark", "spark") from None
    found = []
    for batch in files.batches:
        reader = SparkSession.builder.getOrCreate().read
        if batch.skip:
            raise TableError(f"{batch.files[0]!r} has a line before the names of its columns.")
        if files.kind == "csv":
            # A line with more or fewer fields than there are names is an error and no gap.
            reader = reader.options(
                header=True, sep=batch.separator, escape='"', mode="FAILFAST", enforceSchema=False
            )
        elif files.folders:
            # Values of folders as text, as they stand: "02139" is not 2139.
            reader = reader.option("basePath", _root(files))
            fields = reader.parquet(*batch.files).schema
            text = {name: StructField(name, StringType()) for name in files.folders}
            reader = reader.schema(StructType([text.get(field.name, field) for field in fields]))
        found.append(reader.load(list(batch.files), format=files.kind))
    return found


def _root(files: Files) -> str:
    """The folder below which the names of folders are values."""
    roots = []
    for file in files.files:
        parts = PurePath(file).parent.parts
        first = next(k for k, part in enumerate(parts) if "=" in part)
        roots.append(str(PurePath(*parts[:first])) if first else ".")
    return os.path.commonpath(roots)


_READERS: dict[str, tuple[str, Callable[[Files, Columns], list[Any]]]] = {
    "duckdb": ("DuckDB", _read_in_duckdb),
    "polars": ("Polars", _read_in_polars),
    "spark": ("Spark", _read_in_spark),
}


# ------------------------------------------------------------------------------------------------
# Ibis: a table of any of its backends, or of a database by its address.


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


def open_address(address: str, name: Any) -> Engine:
    """A table by its name, of the database at an address that Ibis knows, for reading.

    Parameters
    ----------
    address : str
        Such as ``duckdb://file.db``, ``sqlite://file.db`` or ``postgres://user@host/database``.
    name : str
        Of the table, after its schema and a point where it is in one.
    """
    shown = without_password(address)
    if not isinstance(name, str):
        what = "several" if isinstance(name, list | tuple) else type(name).__name__
        raise InputError("table", f"be the name of one table of {shown}, got {what}")
    try:
        import ibis
    except ModuleNotFoundError:
        raise _needed("Ibis") from None
    parts = urlsplit(address)
    more: dict[str, Any] = {}
    if parts.scheme in _FILES:
        # A name that is not there would make a new and empty database.
        path = parts.netloc + parts.path
        if path and not Path(path).is_file():
            raise TableError(f"There is no file {path!r}.")
        more = {"read_only": True} if path and parts.scheme == "duckdb" else {}
    try:
        connection = ibis.connect(address, **more)
    except Exception as error:  # every driver has its own kinds
        text = next(iter(str(error).splitlines()), type(error).__name__)[:300]
        if parts.password:
            text = text.replace(parts.password, "***")
        raise InputError(
            "engine", "be ibis: and the address of a database that can be opened",
            f"{shown}: {text}",
        ) from None  # fmt: skip
    if parts.scheme == "duckdb":
        connection.raw_sql("SET enable_progress_bar = false")
    return _open_ibis(_named_table(connection, name, shown))


def without_password(address: str) -> str:
    """An address that can be shown."""
    parts = urlsplit(address)
    place = parts.netloc
    if parts.password:
        place = place.replace(f":{parts.password}@", ":***@")
    return f"{parts.scheme}://{place}{parts.path}"


def _named_table(connection: Any, name: str, shown: str) -> Any:
    schema, _, last = name.rpartition(".")
    where = tuple(schema.split(".")) if "." in schema else schema
    for place in ({}, {"database": where}) if schema else ({},):
        try:
            return connection.table(last if place else name, **place)
        except Exception as error:  # drivers say in many ways that there is none
            seen = error
    try:
        names = sorted(connection.list_tables())
    except Exception:  # the message does without them
        names = []
    others = name_others(name, names, "Its tables are")
    raise InputError("table", f"be the name of a table: {shown} has no {name!r}.{others}") from seen
