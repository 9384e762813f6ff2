"""Ibis: a table of any of its backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .plan import Expressions
from .query_engine import Queried
from .readers import TableError, nearest

# Databases that are one file.
_FILES = ("duckdb", "sqlite")
# Turns of a number between -1 and 1, and what brings the digits of a sine before the point.
_TURNS, _DIGITS = (2345678.9, 1.61803398875e6), 1e6


class IbisOperations:
    """`Operations` of :mod:`.plan` as Ibis expressions.

    Parameters
    ----------
    loose : bool
        The backend keeps text in columns of numbers, and reads it as 0.
    """

    def __init__(self, loose: bool = False) -> None:
        import ibis

        self.ibis = ibis
        self.loose = loose

    def number(self, name: str) -> Any:
        column = self.ibis._[name]
        number = column.cast("float64")
        if not self.loose:
            return number
        kept = column.typeof().isin(["real", "integer"])
        return self.ibis.ifelse(kept, number, self.ibis.null("float64"))

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

    def clip(self, value: Any, low: float, high: float) -> Any:
        return value.cast("float64").clip(low, high)

    def whole(self, value: Any, small: bool) -> Any:
        return value.cast("int32" if small else "int64")

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
        import ibis

        self.table = table
        self.ops = IbisOperations(ibis.get_backend(table).name == "sqlite")

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


def open_address(address: str, name: Any) -> IbisTable:
    """A table by its name, of the database at an address that Ibis knows, for reading.

    Parameters
    ----------
    address : str
        Such as ``duckdb://file.db``, ``sqlite://file.db`` or ``postgres://user@host/database``.
    name : str
        Of the table, after its schema and a point where it is in one.
    """
    if not isinstance(name, str):
        what = "several" if isinstance(name, list | tuple) else type(name).__name__
        place = without_password(address)
        raise ValueError(f"`table` must be the name of one table of {place}, got {what}.")
    try:
        import ibis
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Ibis is not installed. Hint: pip install 'evenhand[engines]'."
        ) from None
    shown = without_password(address)
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
        raise TableError(
            f"`engine` must be ibis: and the address of a database that can be opened, got "
            f"{shown}: {text}"
        ) from None
    return IbisTable(_table(connection, name, shown))


def without_password(address: str) -> str:
    """An address that can be shown."""
    parts = urlsplit(address)
    place = parts.netloc
    if parts.password:
        place = place.replace(f":{parts.password}@", ":***@")
    return f"{parts.scheme}://{place}{parts.path}"


def _table(connection: Any, name: str, shown: str) -> Any:
    schema, _, last = name.rpartition(".")
    where = tuple(schema.split(".")) if "." in schema else schema
    for place in ({}, {"database": where}) if schema else ({},):
        try:
            return connection.table(last if place else name, **place)
        except Exception as error:  # what there is none of is told in many ways
            seen = error
    try:
        names = sorted(connection.list_tables())
    except Exception:  # the message does without them
        names = []
    close = nearest(name, names)
    hint = f" Did you mean {close!r}?" if close is not None else ""
    listed = f" Its tables are {', '.join(map(repr, names[:30]))}." if names else ""
    raise TableError(
        f"`table` must be the name of a table: {shown} has no {name!r}.{hint}{listed}"
    ) from seen


def _kind(dtype: Any) -> str:
    if dtype.is_boolean():
        return "boolean"
    if dtype.is_numeric():
        return "number"
    if dtype.is_string():
        return "text"
    return "date" if dtype.is_temporal() else str(dtype)
