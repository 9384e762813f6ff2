"""Ibis: a table of any of its backends."""

from __future__ import annotations

from typing import Any

from .plan import FAR, Expressions
from .queried import Queried

# Turns of a number between -1 and 1, and what brings the digits of a sine before the point.
_TURNS, _DIGITS = (2345678.9, 1.61803398875e6), 1e6


class IbisOperations:
    """`Operations` of :mod:`.plan` as Ibis expressions."""

    def __init__(self) -> None:
        import ibis

        self.ibis = ibis

    def number(self, name: str) -> Any:
        return self.ibis._[name].cast("float64")

    def label(self, name: str) -> Any:
        return self.ibis._[name]

    def made(self, name: str) -> Any:
        return self.ibis._[name]

    def pick(self, condition: Any, value: Any, other: Any) -> Any:
        return self.ibis.ifelse(condition, value, self.ibis.null() if other is None else other)

    def same(self, a: Any, b: Any) -> Any:
        return a == b

    def absolute(self, value: Any) -> Any:
        return value.abs()

    def floor(self, value: Any) -> Any:
        return value.floor()

    def asinh(self, value: Any) -> Any:
        # Ibis has no asinh. Of |x|, since ln(x + √(x² + 1)) cancels below zero; near zero this is
        # off by the rounding of 1, which is far less than a bin.
        size = value.abs().clip(0.0, FAR)
        return (size + (size * size + 1.0).sqrt()).ln() * value.sign()

    def clip(self, value: Any, low: float, high: float) -> Any:
        return value.cast("float64").clip(low, high)

    def whole(self, value: Any) -> Any:
        return value.cast("int64")

    def count(self) -> Any:
        return self.ibis._.count()

    def total(self, value: Any) -> Any:
        return value.sum()

    def least(self, value: Any) -> Any:
        return value.min()

    def largest(self, value: Any) -> Any:
        return value.max()

    def levels(self, value: Any) -> Any:
        return value.approx_nunique()

    def uniform(self, values: list[Any]) -> Any:
        # Not every backend has a hash. Digits of a sine far from zero are as good here.
        angle = sum(value * factor for value, factor in zip(values, _TURNS, strict=False))
        digits = angle.sin() * _DIGITS
        return digits - digits.floor()


class IbisTable(Queried):
    """An expression that is a table."""

    name = "Ibis"

    def __init__(self, table: Any) -> None:
        self.table = table
        self.ops = IbisOperations()

    def kinds(self) -> dict[str, str]:
        return {name: _kind(dtype) for name, dtype in self.table.schema().items()}

    def select(self, expressions: Expressions, where: Any | None) -> Any:
        return self._kept(where).select(**expressions)

    def total(self, expressions: Expressions, where: Any | None) -> Any:
        return self._kept(where).aggregate(**expressions)

    def group(
        self, rows: Expressions, where: Any | None, keys: list[str], sums: Expressions
    ) -> Any:
        return self._kept(where).select(**rows).group_by(keys).aggregate(**sums)

    def positive(self, query: Any, name: str) -> Any:
        return query.filter(query[name] > 0)

    def fetch(self, query: Any) -> Any:
        return query.to_pyarrow()

    def show(self, query: Any) -> str:
        import ibis

        return str(ibis.to_sql(query))

    def _kept(self, where: Any | None) -> Any:
        return self.table if where is None else self.table.filter(where)


def _kind(dtype: Any) -> str:
    if dtype.is_boolean():
        return "boolean"
    if dtype.is_numeric():
        return "number"
    if dtype.is_string():
        return "text"
    return "date" if dtype.is_temporal() else str(dtype)
