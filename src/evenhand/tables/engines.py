"""Which engine reads a table, and how it is opened: frames, relations, files, databases."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import urlsplit

import narwhals.stable.v2 as nw
import numpy as np

from .._core.validation import InputError, frame_columns, name_others
from ..auditing.audits import audit
from ..auditing.result import Audit
from ..data.bands import bands
from ..data.groups import Proxy
from ..measures.cells import Cells
from ..measures.edges import Edges
from .data_files import Batch, Files, look_at
from .plan import Columns, Engine, EngineError, in_short, is_blank
from .readers import NULLS, TableError

ENGINES = ("duckdb", "polars", "spark", "ibis", "dask", "numpy")
# Before the address of a database that Ibis connects to.
ADDRESS = "ibis:"
# Of columns whose files differ.
_TYPES: dict[str, Any] = {"double": nw.Float64, "integer": nw.Int64, "text": nw.String}
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
    if not blank.any():
        return labels
    values = values.copy()
    values[blank] = None
    return values


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
    if isinstance(table, str | PathLike) or _is_paths(table):
        paths = list(table) if isinstance(table, list | tuple) else [table]
        return _open_paths(paths, columns, engine)
    return _open_frame(table, engine)


def _open_frame(table: Any, engine: str | None) -> Any:
    frame = nw.from_native(table, pass_through=True)
    if isinstance(frame, nw.LazyFrame) and not frame.implementation.is_polars():
        opened = Engine(frame)
        own = opened.name.lower()
        _must_be(engine, own, f"a table of {own}")
        return _open_ibis(table) if own == "ibis" else opened
    scanned = _is_dataset(table)
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


def _is_dataset(table: Any) -> bool:
    """Whether it is one of Arrow's, which is only where that was imported."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(table, module.Dataset)


def _must_be(engine: str | None, wanted: str, what: str) -> None:
    if engine not in (None, wanted):
        raise InputError("engine", f"be {wanted!r} for {what}, got {engine!r}")


def _is_paths(table: Any) -> bool:
    return (
        isinstance(table, list | tuple)
        and len(table) > 0
        and all(isinstance(v, str | PathLike) for v in table)
    )


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
            (nw.lit(None) if name in batch.missing else nw.col(name)).cast(_TYPES[kind]).alias(name)
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
    parts = [_quoted(part) for part in name.split(".")]
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


def _quoted(name: str, mark: str = '"') -> str:
    """A name in SQL."""
    return f"{mark}{name.replace(mark, 2 * mark)}{mark}"


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
