"""Which engine reads a table."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from os import PathLike
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from ..auditing.audits import audit
from ..auditing.result import Audit
from ..measures.cells import Cells
from ..measures.edges import Edges
from .data_files import look_at
from .plan import Columns

ENGINES = ("duckdb", "polars", "spark", "ibis", "dask", "numpy")
# Before the address of a database that Ibis connects to.
ADDRESS = "ibis:"


class Held:
    """A table in memory, which NumPy counts."""

    def __init__(self, table: Any) -> None:
        if isinstance(table, Mapping):
            self.columns = dict(table)
        else:
            frame = nw.from_native(table, eager_only=True)
            self.columns = {str(column.name): column.to_native() for column in frame.iter_columns()}

    def kinds(self) -> dict[str, str]:
        """What a column may be is checked where it is counted."""
        return dict.fromkeys(self.columns, "number")

    def count(self, columns: Columns, edges: Edges | int | None) -> Cells:
        """The cells."""
        take = {None: None, **self.columns}
        return Cells.from_rows(
            take[columns.target], take[columns.score],
            sensitive_features={name: take[name] for name in columns.groups},
            sample_weight=take[columns.weight], frequency=take[columns.frequency], edges=edges,
        )  # fmt: skip

    def audit(self, columns: Columns, **how: Any) -> Audit:
        """An audit with controls, of the rows themselves."""
        take = {None: None, **self.columns}
        groups = [name for name in columns.groups if name not in columns.controls]
        found = audit(
            take[columns.target], take[columns.score],
            sensitive_features={name: _known(take[name]) for name in groups},
            controls={name: take[name] for name in columns.controls},
            sample_weight=take[columns.weight], frequency=take[columns.frequency], **how,
        )  # fmt: skip
        assert isinstance(found, Audit)
        return found


def _known(labels: Any) -> Any:
    """Labels with a gap in place of an empty text."""
    values = np.asarray(labels, dtype=object)
    blank = np.array([isinstance(value, str) and not value for value in values], dtype=bool)
    if not blank.any():
        return labels
    values = values.copy()
    values[blank] = None
    return values


def open_table(table: Any, columns: Columns, engine: str | None = None) -> Any:
    """An engine with the table in it.

    Parameters
    ----------
    table : Any
        As in :func:`evenhand.audit_table`.
    columns : Columns
        Those that will be read; files are checked to have them.
    engine : str, optional
    """
    if isinstance(engine, str) and engine.startswith(ADDRESS):
        from .ibis_engine import open_address

        return open_address(engine.removeprefix(ADDRESS), table)
    if engine is not None and engine not in ENGINES:
        raise ValueError(
            f"`engine` must be one of {', '.join(ENGINES)}, or ibis: with the address of a "
            f"database, got {engine!r}."
        )
    if isinstance(table, str) and table.startswith("duckdb:"):
        _must_be(engine, "duckdb", table)
        from .duckdb_engine import open_database

        return open_database(table)
    if isinstance(table, str | PathLike) or _is_paths(table):
        return _open_paths([table] if not isinstance(table, list | tuple) else list(table),
                           columns, engine)  # fmt: skip
    module = type(table).__module__.split(".")[0]
    if module in ("duckdb", "_duckdb"):
        _must_be(engine, "duckdb", "a DuckDB relation")
        from .duckdb_engine import DuckTable

        return DuckTable(table)
    if module in ("pyspark", "ibis", "dask"):
        return _open_remote(table, module, engine)
    return _open_local(table, module, engine)


def _open_remote(table: Any, module: str, engine: str | None) -> Any:
    kind = {"pyspark": "spark"}.get(module, module)
    _must_be(engine, kind, f"a table of {module}")
    if kind == "spark":
        from .spark_engine import SparkTable

        return SparkTable(table)
    if kind == "ibis":
        from .ibis_engine import IbisTable

        return IbisTable(table)
    from .dask_engine import DaskTable

    return DaskTable(table)


def _open_local(table: Any, module: str, engine: str | None) -> Any:
    native = nw.from_native(table, pass_through=True)
    scanned = type(table).__name__ in ("InMemoryDataset", "FileSystemDataset", "UnionDataset")
    lazy = isinstance(native, nw.LazyFrame) or scanned
    if not (lazy or isinstance(native, nw.DataFrame) or isinstance(table, Mapping)):
        raise ValueError(
            "`table` must be a path, an address, a frame, a relation or an expression, got "
            f"{type(table).__name__}. Hint: arrays go to evenhand.audit."
        )
    engine = engine or ("numpy" if not lazy else "polars" if module == "polars" else "duckdb")
    if engine == "numpy" and not lazy:
        return Held(table)
    if engine == "polars" and module == "polars":
        from .polars_engine import PolarsTable

        return PolarsTable(table)
    if engine == "duckdb" and module in ("polars", "pyarrow", "pandas"):
        from .duckdb_engine import open_frame

        return open_frame(table)
    raise ValueError(f"`engine` must be one that reads {type(table).__name__}, got {engine!r}.")


def _must_be(engine: str | None, wanted: str, what: str) -> None:
    if engine not in (None, wanted):
        raise ValueError(f"`engine` must be {wanted!r} for {what}, got {engine!r}.")


def _is_paths(table: Any) -> bool:
    return (
        isinstance(table, list | tuple)
        and len(table) > 0
        and all(isinstance(v, str | PathLike) for v in table)
    )


def _open_paths(paths: list[Any], columns: Columns, engine: str | None) -> Any:
    if engine is None:
        engine = "duckdb" if find_spec("duckdb") or not find_spec("polars") else "polars"
    if engine not in ("duckdb", "polars", "spark"):
        raise ValueError(f"`engine` must be duckdb, polars or spark for files, got {engine!r}.")
    files = look_at(paths, columns)
    if engine == "duckdb":
        from .duckdb_engine import open_files
    elif engine == "polars":
        from .polars_engine import open_files  # type: ignore[assignment]
    else:
        from .spark_engine import open_files  # type: ignore[assignment]
    return open_files(files, columns)
