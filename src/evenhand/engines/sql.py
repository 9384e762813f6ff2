"""Expressions and queries as text of SQL, for DuckDB and Spark.

Numbers are written with an exponent, which makes them doubles in both dialects, and negative ones
in parentheses: two minus signs in a row would begin a comment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .plan import Expressions


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
