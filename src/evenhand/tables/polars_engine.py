"""Polars: lazy frames and files, in its streaming engine."""

from __future__ import annotations

from typing import Any

from .data_files import Batch, Files
from .plan import Columns, Expressions
from .query_engine import Queried
from .readers import NULLS

_TYPES = {"double": "Float64", "integer": "Int64", "text": "String"}


class PolarsOperations:
    """`Operations` of :mod:`.plan` as Polars expressions."""

    def __init__(self) -> None:
        import polars as pl

        self.pl = pl

    def number(self, name: str) -> Any:
        return self.pl.col(name).cast(self.pl.Float64)

    def label(self, name: str) -> Any:
        return self.pl.col(name)

    def made(self, name: str) -> Any:
        return self.pl.col(name)

    def pick(self, condition: Any, value: Any, other: Any) -> Any:
        return self.pl.when(condition).then(value).otherwise(other)

    def same(self, a: Any, b: Any) -> Any:
        return a == b

    def absolute(self, value: Any) -> Any:
        return value.abs()

    def floor(self, value: Any) -> Any:
        return value.floor()

    def clip(self, value: Any, low: float, high: float) -> Any:
        return value.clip(low, high)

    def whole(self, value: Any, small: bool) -> Any:
        return value.cast(self.pl.Int32 if small else self.pl.Int64)

    def count(self) -> Any:
        return self.pl.len()

    def total(self, value: Any) -> Any:
        return value.sum()

    def least(self, value: Any) -> Any:
        return value.min()

    def largest(self, value: Any) -> Any:
        return value.max()

    def levels(self, value: Any) -> Any:
        return value.approx_n_unique()

    def uniform(self, values: list[Any]) -> Any:
        numbered = {str(j): value for j, value in enumerate(values)}
        return self.pl.struct(**numbered).hash(0).cast(self.pl.Float64) / 2.0**64


class PolarsTable(Queried):
    """A LazyFrame."""

    name = "Polars"

    def __init__(self, frame: Any) -> None:
        self.frame = frame.lazy()
        self.ops = PolarsOperations()

    def kinds(self) -> dict[str, str]:
        return {name: _kind(dtype) for name, dtype in self.run(None).items()}

    def select(self, expressions: Expressions, where: Any | None) -> Any:
        rows = self.frame if where is None else self.frame.filter(where)
        return rows.select(**expressions)

    def group(
        self, rows: Expressions, where: Any | None, keys: list[str], sums: Expressions
    ) -> Any:
        made = self.frame if where is None else self.frame.filter(where)
        return made.select(**rows).group_by(keys).agg(**sums)

    def positive(self, query: Any, name: str) -> Any:
        import polars as pl

        return query.filter(pl.col(name) > 0)

    def fetch(self, query: Any) -> Any:
        if query is None:
            return self.frame.collect_schema()
        return query.collect(engine="streaming").to_arrow()

    def show(self, query: Any) -> str:
        return query.explain(engine="streaming")


def _kind(dtype: Any) -> str:
    import polars as pl

    if dtype.is_numeric():
        return "number"
    if dtype == pl.Boolean:
        return "boolean"
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return "text"
    return "date" if dtype.is_temporal() else str(dtype)


def open_files(files: Files, columns: Columns) -> PolarsTable:
    """Files of one kind as one lazy frame."""
    try:
        import polars as pl
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "Polars is not installed. Hint: pip install 'evenhand[engines]'."
        ) from None
    if files.kind == "parquet":
        casts = {name: getattr(pl, _TYPES[kind]) for name, kind in files.types.items()}
        parts = [_parquet(batch, files, columns).cast(casts) for batch in files.batches]
        return PolarsTable(parts[0] if len(parts) == 1 else pl.concat(parts))
    types: dict[str, Any] = dict.fromkeys(columns.groups, pl.String)
    types |= dict.fromkeys(columns.numbers.values(), pl.Float64)
    parts = [
        pl.scan_csv(
            list(batch.files), schema_overrides=types, null_values=list(NULLS),
            separator=batch.separator, decimal_comma=batch.decimal == ",", skip_rows=batch.skip,
        ).select(columns.names)
        for batch in files.batches
    ]  # fmt: skip
    return PolarsTable(parts[0] if len(parts) == 1 else pl.concat(parts))


def _parquet(batch: Batch, files: Files, columns: Columns) -> Any:
    """The columns that are wanted, as the first file has them; others may differ as they like."""
    import polars as pl

    if "://" in batch.files[0]:
        return pl.scan_parquet(list(batch.files))
    schema = pl.read_parquet_schema(batch.files[0])
    wanted = {name: schema[name] for name in columns.names if name in schema}
    more: dict[str, Any] = {"hive_partitioning": False}
    if files.folders:
        more = {"hive_partitioning": True, "hive_schema": dict.fromkeys(files.keys, pl.String)}
    rows = pl.scan_parquet(list(batch.files), schema=wanted, extra_columns="ignore", **more)
    return rows.select(columns.names)
