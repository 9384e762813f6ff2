"""PySpark: data frames, and files through a session."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from ..files.tabular import NULLS
from .plan import Columns, Expressions
from .queried import Queried
from .sql import SqlOperations, select, select_groups, select_positive

# Of signed 64-bit integers.
_SCRAMBLED = "(CAST(XXHASH64({}) AS DOUBLE) / 18446744073709551616e0 + 0.5e0)"
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


def _kind(name: str) -> str:
    if name in _NUMBERS or name.startswith("decimal"):
        return "number"
    if name == "string" or name.startswith(("varchar", "char")):
        return "text"
    if name == "boolean":
        return "boolean"
    return "date" if name.startswith(("date", "timestamp")) else name


def open_files(files: list[str], kind: str, columns: Columns) -> SparkTable:
    """Files of one kind, by the session that runs or a new one."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "PySpark is not installed. Hint: pip install 'evenhand[spark]'."
        ) from None
    session = SparkSession.builder.getOrCreate()
    if kind == "parquet":
        return SparkTable(session.read.parquet(*files))
    frame = session.read.csv(files, header=True)
    ops = SqlOperations(mark="`")
    missing = ", ".join("'" + text + "'" for text in NULLS)

    def read(name: str) -> str:
        quoted = ops.quoted(name)
        known = f"CASE WHEN {quoted} IN ({missing}) THEN NULL ELSE {quoted} END"
        made = f"CAST({known} AS DOUBLE)" if name in columns.numbers.values() else known
        return f"{made} AS {quoted}"

    return SparkTable(frame.selectExpr(*[read(name) for name in columns.names]))
