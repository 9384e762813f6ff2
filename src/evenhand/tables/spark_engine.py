"""PySpark: data frames, and files through a session."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any
from uuid import uuid4

from .data_files import Batch, Files
from .duckdb_engine import SqlOperations, select, select_groups, select_positive
from .plan import Columns, Expressions
from .query_engine import Queried, in_short
from .readers import NULLS, TableError

# Of signed 64-bit integers.
_SCRAMBLED = "(CAST(XXHASH64({}) AS DOUBLE) / 18446744073709551616e0 + 0.5e0)"
_TYPES = {"double": "DOUBLE", "integer": "BIGINT", "text": "STRING"}
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")


class SparkTable(Queried):
    """A DataFrame of PySpark, asked in SQL through a view that lives as long as the query."""

    name = "Spark"

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.view = f"evenhand_{uuid4().hex}"
        self.ops = SqlOperations(mark="`", scrambled=_SCRAMBLED)

    def kinds(self) -> dict[str, str]:
        return {name: _kind(dtype) for name, dtype in self.frame.dtypes}

    def select(self, expressions: Expressions, where: Any | None) -> str:
        return select(expressions, self.view, where)

    def group(
        self, rows: Expressions, where: Any | None, keys: list[str], sums: Expressions
    ) -> str:
        return select_groups(rows, self.view, where, keys, sums)

    def positive(self, query: str, name: str) -> str:
        return select_positive(query, name)

    def fetch(self, query: str) -> Any:
        import pyarrow as pa

        session = self.frame.sparkSession
        self.frame.createOrReplaceTempView(self.view)
        try:
            found = session.sql(query)
            if hasattr(found, "toArrow"):
                return found.toArrow()
            return pa.Table.from_pandas(found.toPandas(), preserve_index=False)
        finally:
            session.catalog.dropTempView(self.view)

    def show(self, query: str) -> str:
        return query

    def reason(self, error: Exception) -> str:
        return _cause(error)


def _kind(name: str) -> str:
    if name in _NUMBERS or name.startswith("decimal"):
        return "number"
    if name == "string" or name.startswith(("varchar", "char")):
        return "text"
    if name == "boolean":
        return "boolean"
    return "date" if name.startswith(("date", "timestamp")) else name


def open_files(files: Files, columns: Columns) -> SparkTable:
    """Files of one kind, by the session that runs or a new one."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "PySpark is not installed. Hint: pip install 'evenhand[spark]'."
        ) from None
    session = SparkSession.builder.getOrCreate()
    read = _parquet if files.kind == "parquet" else _csv
    try:
        first, *others = (read(session, batch, files, columns) for batch in files.batches)
        for other in others:
            first = first.unionByName(other)
    except Exception as error:  # many kinds
        raise TableError(f"`table` cannot be read by Spark: {_cause(error)}") from error
    return SparkTable(first)


def _parquet(session: Any, batch: Batch, files: Files, columns: Columns) -> Any:
    reader = session.read
    if files.folders:
        # Values of folders as text, as they stand: "02139" is not 2139.
        from pyspark.sql.types import StringType, StructField, StructType

        reader = reader.option("basePath", _root(files))
        schema = reader.parquet(*batch.files).schema
        reader = reader.schema(
            StructType(
                [
                    StructField(field.name, StringType()) if field.name in files.folders else field
                    for field in schema
                ]
            )
        )
    frame = reader.parquet(*batch.files)
    if len(files.batches) == 1:
        return frame
    ops = SqlOperations(mark="`")

    def read(name: str) -> str:
        quoted = ops.quoted(name)
        value = "NULL" if name in batch.missing else quoted
        kind = _TYPES.get(files.types.get(name, ""))
        return quoted if kind is None else f"CAST({value} AS {kind}) AS {quoted}"

    return frame.selectExpr(*[read(name) for name in columns.names])


def _root(files: Files) -> str:
    """The folder below which the names of folders are values."""
    roots = []
    for file in files.files:
        parts = PurePath(file).parent.parts
        first = next(k for k, part in enumerate(parts) if "=" in part)
        roots.append(str(PurePath(*parts[:first])) if first else ".")
    return os.path.commonpath(roots)


def _csv(session: Any, batch: Batch, files: Files, columns: Columns) -> Any:
    if batch.skip:
        raise ValueError(f"{batch.files[0]!r} has a line before the names of its columns.")
    # A line with more or fewer fields than there are names is an error and no gap.
    frame = session.read.csv(
        list(batch.files), header=True, sep=batch.separator, escape='"', mode="FAILFAST",
        enforceSchema=False,
    )  # fmt: skip
    ops = SqlOperations(mark="`")
    missing = ", ".join("'" + text + "'" for text in NULLS)

    def read(name: str) -> str:
        quoted = ops.quoted(name)
        known = f"CASE WHEN {quoted} IN ({missing}) THEN NULL ELSE {quoted} END"
        if name not in columns.numbers.values():
            return f"{known} AS {quoted}"
        digits = f"REPLACE({known}, ',', '.')" if batch.decimal == "," else known
        return f"CAST({digits} AS DOUBLE) AS {quoted}"

    return frame.selectExpr(*[read(name) for name in columns.names])


def _cause(error: Exception) -> str:
    """Spark's words for an error, which it wraps, and those of what caused it."""
    found, said = getattr(error, "java_exception", None), [in_short(error)]
    try:
        while found is not None:
            said.append(in_short(ValueError(found.getMessage())))
            found = found.getCause()
    except Exception:  # the session is gone, and with it what it had to say
        return said[0]
    own = [text for text in said if text.startswith("[")]
    last = said[-1]
    return f"{own[-1]} {last}" if own and own[-1] != last else last
