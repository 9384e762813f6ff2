"""DuckDB: files, its own tables and relations, Arrow and pandas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .data_files import Files
from .plan import Columns, Expressions
from .query_engine import Queried, in_short
from .readers import NULLS, TableError

# ------------------------------------------------------------------------------------------------
# Expressions and queries as text of SQL, for DuckDB and Spark.
#
# Numbers are written with an exponent, which makes them doubles in both dialects, and negative ones
# in parentheses: two minus signs in a row would begin a comment.


class Sql:
    """A piece of SQL that Python's operators make longer."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def _with(self, sign: str, other: Any) -> Sql:
        return Sql(f"({self} {sign} {written(other)})")

    def __add__(self, other: Any) -> Sql:
        return self._with("+", other)

    def __sub__(self, other: Any) -> Sql:
        return self._with("-", other)

    def __mul__(self, other: Any) -> Sql:
        return self._with("*", other)

    def __truediv__(self, other: Any) -> Sql:
        return self._with("/", other)

    def __gt__(self, other: Any) -> Sql:
        return self._with(">", other)

    def __le__(self, other: Any) -> Sql:
        return self._with("<=", other)

    def __and__(self, other: Any) -> Sql:
        return self._with("AND", other)


def written(value: Any) -> str:
    """A literal, or SQL as it is."""
    if value is None:
        return "NULL"
    if isinstance(value, Sql):
        return value.text
    text = repr(float(value))
    text = text if "e" in text else f"{text}e0"
    return f"({text})" if text.startswith("-") else text


@dataclass(frozen=True)
class SqlOperations:
    """`Operations` of :mod:`.plan` as text.

    Attributes
    ----------
    mark : str
        What stands around identifiers, doubled inside of them.
    scrambled : str
        A function of numbers that looks random between 0 and 1, as a format.
    """

    mark: str = '"'
    scrambled: str = "(CAST(HASH({}) AS DOUBLE) / 18446744073709551616e0)"

    def quoted(self, name: str) -> str:
        return f"{self.mark}{name.replace(self.mark, 2 * self.mark)}{self.mark}"

    def number(self, name: str) -> Sql:
        return Sql(f"CAST({self.quoted(name)} AS DOUBLE)")

    def label(self, name: str) -> Sql:
        return Sql(self.quoted(name))

    def made(self, name: str) -> Sql:
        return Sql(name)

    def pick(self, condition: Any, value: Any, other: Any) -> Sql:
        return Sql(f"CASE WHEN {condition} THEN {written(value)} ELSE {written(other)} END")

    def same(self, a: Any, b: Any) -> Sql:
        return Sql(f"({a} = {b})")

    def absolute(self, value: Any) -> Sql:
        return Sql(f"ABS({value})")

    def floor(self, value: Any) -> Sql:
        return Sql(f"FLOOR({value})")

    def clip(self, value: Any, low: float, high: float) -> Sql:
        return Sql(f"LEAST(GREATEST({value}, {written(low)}), {written(high)})")

    def whole(self, value: Any, small: bool) -> Sql:
        return Sql(f"CAST({value} AS {'INTEGER' if small else 'BIGINT'})")

    def count(self) -> Sql:
        return Sql("COUNT(*)")

    def total(self, value: Any) -> Sql:
        return Sql(f"SUM({value})")

    def least(self, value: Any) -> Sql:
        return Sql(f"MIN({value})")

    def largest(self, value: Any) -> Sql:
        return Sql(f"MAX({value})")

    def levels(self, value: Any) -> Sql:
        return Sql(f"APPROX_COUNT_DISTINCT({value})")

    def uniform(self, values: list[Any]) -> Sql:
        return Sql(self.scrambled.format(", ".join(str(value) for value in values)))


def select(expressions: Expressions, table: str, where: Any | None) -> str:
    """SELECT … FROM … WHERE …"""
    lines = ",\n  ".join(f"{value} AS {name}" for name, value in expressions.items())
    condition = "" if where is None else f"\nWHERE {where}"
    return f"SELECT\n  {lines}\nFROM {table}{condition}"


def select_groups(
    rows: Expressions, table: str, where: Any | None, keys: list[str], sums: Expressions
) -> str:
    """SELECT … FROM (rows) GROUP BY …"""
    inner = select(rows, table, where).replace("\n", "\n  ")
    made = f"(\n  {inner}\n) AS made"
    outer = {**{key: Sql(key) for key in keys}, **sums}
    return f"{select(outer, made, None)}\nGROUP BY {', '.join(keys)}"


def select_positive(query: str, name: str) -> str:
    """Rows of another query in which a column is positive."""
    inner = query.replace("\n", "\n  ")
    return f"SELECT * FROM (\n  {inner}\n) AS counted\nWHERE {name} > 0"


_NUMBERS = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL",
)  # fmt: skip
_DATES = ("DATE", "TIMESTAMP", "TIME")
_ROWS = "evenhand_rows"


class DuckTable(Queried):
    """A relation of DuckDB."""

    name = "DuckDB"

    def __init__(self, relation: Any) -> None:
        self.relation = relation
        self.ops = SqlOperations()

    def kinds(self) -> dict[str, str]:
        types = [str(t) for t in self.relation.types]
        return {n: _kind(t) for n, t in zip(self.relation.columns, types, strict=True)}

    def select(self, expressions: Expressions, where: Any | None) -> str:
        return select(expressions, _ROWS, where)

    def group(
        self, rows: Expressions, where: Any | None, keys: list[str], sums: Expressions
    ) -> str:
        return select_groups(rows, _ROWS, where, keys, sums)

    def positive(self, query: str, name: str) -> str:
        return select_positive(query, name)

    def fetch(self, query: str) -> Any:
        return self.relation.query(_ROWS, query).to_arrow_table()

    def show(self, query: str) -> str:
        return query


def _kind(name: str) -> str:
    if name.startswith("DECIMAL") or name in _NUMBERS:
        return "number"
    if name in ("VARCHAR", "UUID") or name.startswith("ENUM"):
        return "text"
    if name == "BOOLEAN":
        return "boolean"
    return "date" if name.startswith(_DATES) else name


def connect(path: str | None = None) -> Any:
    """A database in memory, or a file opened for reading."""
    try:
        import duckdb
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "DuckDB is needed to read this table and is not installed. Hint: pip install "
            "'evenhand[engines]'."
        ) from None
    if path is None:
        return duckdb.connect()
    if not Path(path).is_file():
        raise TableError(f"There is no file {path!r}.")
    try:
        return duckdb.connect(path, read_only=True)
    except duckdb.Error as error:
        raise TableError(f"{path!r} cannot be opened by DuckDB: {in_short(error)}") from error


def open_database(address: str) -> DuckTable:
    """`duckdb:file.db/table`."""
    path, slash, name = address.removeprefix("duckdb:").rpartition("/")
    if not slash or not path or not name:
        raise TableError(f"`table` must be duckdb:FILE/TABLE, got {address!r}.")
    connection = connect(path)
    parts = [SqlOperations().quoted(part) for part in name.split(".")]
    return _opened(connection, f"SELECT * FROM {'.'.join(parts)}")


def open_files(files: Files, columns: Columns) -> DuckTable:
    """Files of one kind as one table, with the columns matched by name."""
    if files.kind == "parquet":
        options = "union_by_name = true, hive_partitioning = false"
        if files.folders:
            options = "union_by_name = true, hive_partitioning = true, hive_types_autocast = false"
        query = f"SELECT * FROM read_parquet({_list(files.files)}, {options})"
        return _opened(connect(), query)
    # Numbers are told from all lines and not the first few; codes of groups such as "02139" stay.
    types = {**dict.fromkeys(columns.groups, "VARCHAR")}
    types |= dict.fromkeys(columns.numbers.values(), "DOUBLE")
    given = ", ".join(f"{_text(name)}: {_text(t)}" for name, t in types.items())
    names = ", ".join(SqlOperations().quoted(name) for name in columns.names)
    parts = [
        f"SELECT {names} FROM read_csv({_list(batch.files)}, header = true, "
        f"delim = {_text(batch.separator)}, decimal_separator = {_text(batch.decimal)}, "
        f"skip = {batch.skip}, types = {{{given}}}, nullstr = {_list(NULLS)})"
        for batch in files.batches
    ]
    return _opened(connect(), " UNION ALL ".join(parts))


def open_frame(table: Any) -> DuckTable:
    """An Arrow table, dataset or reader, or a pandas or Polars frame."""
    connection = connect()
    module = type(table).__module__.split(".")[0]
    if module == "polars":
        table = (table.collect() if hasattr(table, "collect") else table).to_arrow()
        module = "pyarrow"
    found = connection.from_arrow(table) if module == "pyarrow" else connection.from_df(table)
    return DuckTable(found)


def _opened(connection: Any, query: str) -> DuckTable:
    import duckdb

    try:
        return DuckTable(connection.sql(query))
    except duckdb.Error as error:
        raise TableError(f"`table` cannot be read by DuckDB: {in_short(error)}") from error


def _list(values: Iterable[str]) -> str:
    return "[" + ", ".join(_text(value) for value in values) + "]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
