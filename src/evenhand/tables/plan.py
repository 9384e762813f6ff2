"""What is asked of a table, in expressions of narwhals that every engine runs.

    facts    n, rows that are not finite, least and largest of each column
    levels   the distinct values of a column of groups
    sample   s and y of some rows, each with the same chance, the same ones every time
    ends     least and largest residual, where the grid has a slope
    cells    people, sums and extremes by bin and group; `measures.edges` has the bins

:class:`Engine` runs them on the table that it holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.stable.v2 import Implementation
from numpy.typing import NDArray

from .._core.arrays import Vector
from .._core.files import value_type
from .._core.validation import InputError
from ..data.bands import Bands
from ..data.columns import MOMENT, is_missing
from ..data.encoding import MISSING
from ..data.labels import (
    MAX_FRACTIONS,
    check_count,
    check_written,
    cross,
    kind_of,
    number_labels,
    sort_labels,
    whole,
)
from ..measures.cell_files import EXTREMES, SUMS, checked
from ..measures.cells import Cells
from ..measures.edges import Axis, Edges, looks_drawn, scramble, share_drawn

PLACE = "place"
# Columns of expected counts.
GROUP, PEOPLE = "evenhand: group", "evenhand: people"
# Integers of 32 bits, which engines group by faster, go up to this.
SMALL = 2**31 - 1
# Columns of a plan → the argument that names them; and those of them that have bins.
_ROLES = {"s": "y_pred", "y": "y_true", "n": "frequency", "w": "sample_weight"}
_ARGUMENTS = {"s": "y_pred", "y": "y_true"}
Expressions = dict[str, nw.Expr]


@dataclass(frozen=True)
class Columns:
    """Names of columns by their role.

    `controls` are some of the groups: those in which a gap is a level of its own. Labels in
    `missing`, and blank ones, stand for none. Columns in `bands` are cut at these edges. `shares`
    are columns with the probability of each group, in place of labels, and `assume` is that of
    :class:`evenhand.Proxy`.
    """

    score: str
    target: str | None
    groups: tuple[str, ...]
    weight: str | None = None
    frequency: str | None = None
    controls: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    bands: Mapping[str, Any] = field(default_factory=dict)
    shares: Mapping[str, str] = field(default_factory=dict)
    assume: str | None = None

    @property
    def numbers(self) -> dict[str, str]:
        """Argument of the public functions → column."""
        roles = {
            "y_pred": self.score, "y_true": self.target, "sample_weight": self.weight,
            "frequency": self.frequency,
        }  # fmt: skip
        return {argument: name for argument, name in roles.items() if name is not None}

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        several = [*self.numbers.values(), *self.groups, *self.shares.values()]
        return list(dict.fromkeys(several))

    def role(self, name: str) -> str:
        """The argument that names a column of labels."""
        return "controls" if name in self.controls else "sensitive_features"


def _number(name: str) -> nw.Expr:
    return nw.col(name).cast(nw.Float64)


def _is_finite(value: nw.Expr) -> nw.Expr:
    """Neither NaN nor infinite."""
    # Not by bounds: DuckDB takes those of a column from its file, where NaN is left out.
    return value - value == 0.0


def _count_if(*conditions: nw.Expr, hold: bool = True) -> nw.Expr:
    """Rows in which all conditions hold, or do not; they do not where they are missing."""
    return nw.when(*conditions).then(float(hold)).otherwise(float(not hold)).sum()


def _used(columns: Columns) -> list[nw.Expr]:
    """Conditions of rows that count: positive weight and frequency."""
    named = (columns.weight, columns.frequency)
    return [_number(name) > 0.0 for name in named if name is not None]


def facts_of(columns: Columns) -> Expressions:
    """Totals over all rows; extremes over those that are used."""
    keep = _used(columns)
    out: Expressions = {"n": nw.len()}
    if keep:
        out["n_used"] = _count_if(*keep)
    for argument, name in columns.numbers.items():
        value = _number(name)
        out[f"bad_{argument}"] = _count_if(_is_finite(value), hold=False)
        if argument in ("y_pred", "y_true") and keep:
            value = nw.when(*keep).then(value)
        out[f"least_{argument}"] = value.min()
        out[f"largest_{argument}"] = value.max()
    if columns.frequency is not None:
        people = _number(columns.frequency)
        out["fractions"] = _count_if(people == people.floor(), hold=False)
        out["people"] = people.sum()
    return out


def _scrambled(facts: dict[str, float], names: Sequence[str]) -> nw.Expr:
    spans = [(facts[f"least_{_ARGUMENTS[k]}"], facts[f"largest_{_ARGUMENTS[k]}"]) for k in names]
    return scramble([nw.col(name) for name in names], spans, nw.Expr.floor)


def cell_rows(columns: Columns, edges: Edges) -> Expressions:
    """What is worked out for each row: its place and labels, and columns that are added up.

    From the columns of :meth:`Engine.plain`.
    """
    s, bins = nw.col("s"), float(edges.bins)
    a = s - edges.score.shift
    place = _bin(_residual(edges), edges.score, edges.bins) * bins
    terms: Expressions = {"ws": a, "wss": a * a}
    out: Expressions = {"s": s}
    if edges.target is not None:
        out["y"] = nw.col("y")
        v = out["y"] - edges.target.shift
        terms |= {"wy": v, "wyy": v * v, "wsy": a * v}
        place = place + _bin(v, edges.target, edges.bins)
    out[PLACE] = place.cast(nw.Int32 if edges.bins**2 <= SMALL else nw.Int64)
    mass = None
    if columns.frequency is not None:
        out["n"] = mass = nw.col("n")
    if columns.weight is not None:
        weight = nw.col("w")
        mass = weight if mass is None else mass * weight
        out |= {"w": mass, "ww": mass * weight}
    out |= {name: term if mass is None else mass * term for name, term in terms.items()}
    return out | {name: nw.col(name) for name in _labels(columns)}


def _labels(columns: Columns) -> list[str]:
    return [f"label_{j}" for j in range(len(columns.groups))]


def cell_sums(rows: Expressions) -> Expressions:
    """Sums and extremes over the rows of one place and group, of columns of :func:`cell_rows`."""
    out = {"n": nw.len()} | {name: nw.col(name).sum() for name in ("n", *SUMS) if name in rows}
    for name in _ARGUMENTS:
        if name in rows:
            out |= {f"least_{name}": nw.col(name).min(), f"largest_{name}": nw.col(name).max()}
    return out


def _residual(edges: Edges) -> nw.Expr:
    x = nw.col("s") - edges.score.shift
    if not edges.slope:
        return x
    assert edges.target is not None
    return x - (nw.col("y") - edges.target.shift) * edges.slope


def _bin(x: nw.Expr, axis: Axis, bins: int) -> nw.Expr:
    at = ((x / (x.abs() + axis.scale) - axis.low) * axis.rate).floor()
    return at.clip(0.0, float(bins - 1))


def weight_factor(facts: dict[str, float]) -> float:
    """1, or what makes the largest weight 1 where squares of weights would leave the floats."""
    largest = facts.get("largest_sample_weight", 1.0)
    return 1.0 if 1e-100 < largest < 1e100 else 1.0 / largest


# ------------------------------------------------------------------------------------------------
# The engine that runs the queries.


class EngineError(InputError):
    """An engine could not read the table; the message has its words."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__("table", f"be read by {name}: {reason}", verb="cannot")


def changed(what: str, hint: str = "") -> InputError:
    """A table that is another than it was when it was looked at."""
    return InputError("table", f"while it was read: {what}", hint=hint, verb="changed")


def in_short(error: Exception) -> str:
    """What an engine says, in a line, without the rows it quotes."""
    lines = (line.strip() for line in str(error).splitlines())
    kept = [line for line in lines if line and not line.startswith(("Original Line", "LINE", "^"))]
    return " ".join(kept)[:300] or type(error).__name__


def _spark_cause(error: Exception) -> str:
    """Spark's words for an error, and those of what caused it, which it wraps."""
    from py4j.protocol import Py4JJavaError

    if not isinstance(error, Py4JJavaError):
        return in_short(error)
    cause, said = error.java_exception, [in_short(error)]
    try:
        while cause is not None:
            said.append(in_short(ValueError(cause.getMessage())))
            cause = cause.getCause()
    except Exception:  # the session is gone, and with it what it had to say
        return said[0]
    return " ".join(dict.fromkeys(said[-2:]))


# Names of engines that are written in another way than narwhals has them.
_NAMES = {
    Implementation.DUCKDB: "DuckDB", Implementation.POLARS: "Polars", Implementation.IBIS: "Ibis",
    Implementation.PYSPARK: "Spark", Implementation.PYSPARK_CONNECT: "Spark",
    Implementation.DASK: "Dask",
}  # fmt: skip


class Engine:
    """A table that an engine holds.

    Parameters
    ----------
    rows : narwhals LazyFrame
    as_written : bool
        Whether text may be a number or a date that nobody has declared to be text (CSV).
    """

    def __init__(self, rows: nw.LazyFrame[Any], as_written: bool = False) -> None:
        self.rows, self.as_written = rows, as_written
        self.name = _NAMES.get(rows.implementation, str(rows.implementation))

    def kinds(self) -> dict[str, str]:
        """Column → "number", "boolean", "text", "date", or the type's own name for any other."""
        return {
            name: column_kind(dtype)
            for name, dtype in self._guarded(self.rows.collect_schema).items()
        }

    def cut(self, columns: Columns) -> None:
        """Put bands in place of measurements."""
        kinds = self.kinds() if columns.bands else {}
        for name, edges in columns.bands.items():
            value: nw.Expr = nw.col(name)
            there, kind = ~value.is_null(), kinds.get(name)
            if kind == "number":
                value = _number(name)
                there = _is_finite(value)
                asked = self.rows.filter(there).select(
                    n=_count_if(value == value.floor(), hold=False)
                )
                fractions = self.run(asked)["n"][0].as_py()
                made = Bands.make(edges, np.array([0.5 if fractions else 0.0]))
            else:
                made = Bands.make(edges, np.zeros(1, dtype=MOMENT))
            label = nw.lit(made.labels[-1])
            for edge, lower in zip(reversed(made.edges), reversed(made.labels[:-1]), strict=True):
                # Text in CSV files is compared as such, which is right for 1990-12-31.
                end: Any = datetime.fromisoformat(str(edge)) if kind == "date" else edge
                label = nw.when(value < nw.lit(end)).then(nw.lit(lower)).otherwise(label)
            self.rows = self.rows.with_columns(nw.when(there).then(label).alias(name))

    def refuse_measurements(self, columns: Columns, facts: dict[str, float]) -> None:
        """Refuse numbers and dates that nobody has cut, before all rows are counted."""
        kinds = self.kinds()
        for j, name in enumerate(columns.groups):
            count, kind = facts[f"levels_{j}"], kinds[name]
            if name in columns.controls or not MAX_FRACTIONS < count <= _MANY or kind == "boolean":
                continue
            if kind != "text" or self.as_written:
                _, levels = _encode(self._levels[name], columns.missing)
                check_written(levels, int(facts["n"]), name)

    def facts(self, columns: Columns) -> dict[str, float]:
        """What `facts_of` asks for; NaN where there is no row."""
        row = self.run(self.rows.select(**facts_of(columns))).to_pylist()[0]
        found = {key: math.nan if v is None else float(v) for key, v in row.items()}
        # Values and not their number: an exact count of distinct ones takes memory for all rows.
        # By groups and not `unique`, which DuckDB is asked for by numbering all rows.
        levels = {name: self.rows.group_by(name).agg(copies=nw.len()) for name in columns.groups}
        self._levels = {
            name: self.run(rows.select(name).head(_MANY + 1)).column(0)
            for name, rows in levels.items()
        }
        return found | {f"levels_{j}": float(len(v)) for j, v in enumerate(self._levels.values())}

    def sample(self, columns: Columns, facts: dict[str, float]) -> tuple[Vector, Vector | None]:
        """Scores and targets of some rows, in order, so that their sums repeat exactly."""
        n = facts.get("n_used", facts["n"])
        part, names, copies = share_drawn(n), _variables(columns), None
        rows = self.plain(columns, facts).select(*names)
        if part == 1.0:
            table = self.run(rows)
        else:
            hashed = _scrambled(facts, names)
            drawn = rows.filter(hashed <= part).group_by(*names).agg(copies=nw.len())
            table = self.run(drawn)
            copies = _whole(table, "copies")
            if not looks_drawn(len(copies), copies.sum(), part * n):
                # How often the sample has a value that n rows have: as `measures.edges.draw_rows`.
                values = rows.with_columns(u=hashed).group_by(*names)
                copies_of = (nw.col("n") * part + nw.col("u")).floor()
                drawn = values.agg(n=nw.len(), u=nw.col("u").min())
                drawn = drawn.select(*names, copies=copies_of).filter(nw.col("copies") > 0)
                table = self.run(drawn)
                copies = _whole(table, "copies")
        held = [table.column(name).to_numpy() for name in names]
        order = np.lexsort(held[::-1])
        if copies is not None:
            order = np.repeat(order, copies[order])
        s, *y = (column[order] for column in held)
        return s, y[0] if y else None

    def ends(self, columns: Columns, edges: Edges, facts: dict[str, float]) -> tuple[float, float]:
        """Least and largest residual, of which a grid with a slope has bins."""
        rest = _residual(edges)
        query = self.plain(columns, facts).select(least=rest.min(), largest=rest.max())
        row = self.run(query).to_pylist()[0]
        return row["least"], row["largest"]

    def cells(self, columns: Columns, edges: Edges, facts: dict[str, float]) -> Cells:
        """The one scan that counts."""
        if columns.shares:
            return self._expected_cells(columns, edges, facts)
        radix = [int(facts[f"levels_{j}"]) for j in range(len(columns.groups))]
        size = edges.bins**2 * math.prod(radix)
        streamed = facts["n"] >= STREAMED and size <= _DENSE
        batches = _stream(self.plain(columns, facts)) if streamed else None
        if batches is None:
            table = self.run(self._cells(columns, edges, facts))
        else:
            table = self._guarded(lambda: add_up(batches, columns, edges, radix))
        return to_cells(table, columns, edges, facts)

    def _expected_cells(self, columns: Columns, edges: Edges, facts: dict[str, float]) -> Cells:
        """Each row once for each group that it may be of, with that share of its people."""
        parts = [_number(name) for name in columns.shares.values()]
        total = sum(parts[1:], parts[0])
        people = nw.lit(1.0) if columns.frequency is None else _number(columns.frequency)
        known, none = _is_finite(total), nw.lit(0.0)
        off = (total - 1.0).abs() > 1e-3
        for part in parts:
            off = off | (part < -1e-9)
        asked = self._kept(columns).select(
            bad=_count_if(known, off), unknown=nw.when(known).then(none).otherwise(people).sum()
        )
        told = self.run(asked).to_pylist()[0]
        if told["bad"]:
            raise InputError(
                "sensitive_features", "be probabilities that are not negative and add up to 1 in "
                f"each row: {told['bad']:,.0f} rows are none", hint="NULL means not known.",
            )  # fmt: skip
        rows = self.rows.filter(known)
        spread = [
            rows.filter(part > 0.0).with_columns(
                **{GROUP: nw.lit(str(label)), PEOPLE: part / total * people}
            )
            for label, part in zip(columns.shares, parts, strict=True)
        ]
        made = replace(columns, groups=(*columns.groups, GROUP), frequency=PEOPLE, shares={})
        engine = Engine(nw.concat(spread))
        cells = to_cells(engine.run(engine._cells(made, edges, facts)), made, edges, facts)
        unknown = cells.n_unknown + round(told["unknown"] or 0.0)
        names = (*columns.groups, "group")
        return replace(cells, names=names, n_unknown=unknown, expected=True, assume=columns.assume)

    def run(self, query: nw.LazyFrame[Any]) -> Any:
        """The result as a pyarrow Table."""
        return self._guarded(lambda: _collect(query))

    def _guarded(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except MemoryError:
            raise
        except Exception as error:  # every engine has its own kinds
            if type(error).__name__ == "OutOfMemoryException":
                raise MemoryError(in_short(error)) from error
            spark = self.rows.implementation is Implementation.PYSPARK
            reason = _spark_cause(error) if spark else in_short(error)
            raise EngineError(self.name, reason) from error

    def plain(self, columns: Columns, facts: dict[str, float]) -> nw.LazyFrame[Any]:
        """Score, target, people, weight and labels of the rows that count."""
        named = columns.numbers
        out = {key: _number(named[role]) for key, role in _ROLES.items() if role in named}
        if weight_factor(facts) != 1.0:
            out["w"] = out["w"] * weight_factor(facts)
        out |= dict(zip(_labels(columns), map(nw.col, columns.groups), strict=True))
        return self._kept(columns).select(**out)

    def _kept(self, columns: Columns) -> nw.LazyFrame[Any]:
        keep = _used(columns)
        return self.rows.filter(*keep) if keep else self.rows

    def _cells(self, columns: Columns, edges: Edges, facts: dict[str, float]) -> nw.LazyFrame[Any]:
        made = cell_rows(columns, edges)
        rows = self.plain(columns, facts).select(**made)
        return rows.group_by(PLACE, *_labels(columns)).agg(**cell_sums(made))


def _variables(columns: Columns) -> list[str]:
    return ["s"] if columns.target is None else ["s", "y"]


# Rows from which on engines of this process hand over rows as they read them: a compiled loop adds
# up ten sums of a row in half the time that a group-by takes. Entries it may keep in memory.
STREAMED, _DENSE, _BATCH = 1_000_000, 2**22, 2**18


def _stream(query: nw.LazyFrame[Any]) -> Iterable[Any] | None:
    """Batches of rows as pyarrow Tables; None for an engine that has no such way."""
    import pyarrow as pa

    native = query.to_native()
    if query.implementation.is_duckdb():
        return (pa.Table.from_batches([b]) for b in pa.RecordBatchReader.from_stream(native))
    if query.implementation.is_polars() and hasattr(native, "collect_batches"):
        found = native.collect_batches(chunk_size=_BATCH, engine="streaming")
        return (batch.to_arrow() for batch in found)
    return None


def add_up(batches: Iterable[Any], columns: Columns, edges: Edges, radix: list[int]) -> Any:
    """What the query of cells would give, from the columns of :meth:`Engine.plain`.

    Parameters
    ----------
    batches : iterable of pyarrow Tables
    columns : Columns
    edges : Edges
    radix : list of int
        Levels that each attribute has at the most, a gap among them.
    """
    import pyarrow as pa

    from ..kernels.sums import fill_sums

    groups = math.prod(radix)
    size = edges.bins**2 * groups
    count, sums = np.zeros(size, dtype=np.int64), np.zeros((size, len(SUMS)))
    least, largest = np.full((size, 2), np.inf), np.full((size, 2), -np.inf)
    shifts = (edges.score.shift, 0.0 if edges.target is None else edges.target.shift)
    places: list[dict[Any, int]] = [{} for _ in radix]
    for batch in batches:
        s, y, weight = (_own(batch, name) for name in ("s", "y", "w"))
        people = np.rint(_own(batch, "n")).astype(np.int64)
        first, second = edges.bins_of(s, None if edges.target is None else y)
        entry = first.astype(np.int64)
        entry *= edges.bins
        entry += second
        for j, (seen, limit) in enumerate(zip(places, radix, strict=True)):
            coded = batch.column(f"label_{j}").combine_chunks().dictionary_encode("encode")
            labels = [None if is_missing(v) else v for v in coded.dictionary.to_pylist()]
            numbers = [seen.setdefault(v, len(seen)) for v in labels]
            if len(seen) > limit:
                raise changed("it has new labels")
            entry *= limit
            entry += np.array(numbers, dtype=np.int32)[coded.indices.to_numpy()]
        fill_sums(entry, (s, y, weight, people), shifts, count, sums, least, largest)
    entry = np.flatnonzero(count)
    place, code = np.divmod(entry, groups)
    found = {PLACE: place, "n": count[entry]} | dict(zip(SUMS, sums[entry].T, strict=True))
    for j, axis in enumerate(_variables(columns)):
        found |= {f"least_{axis}": least[entry, j], f"largest_{axis}": largest[entry, j]}
    for j, seen in reversed(list(enumerate(places))):
        code, number = np.divmod(code, radix[j])
        found[f"label_{j}"] = pa.array(list(seen)).take(pa.array(number))
    return pa.table(found)


def _own(batch: Any, name: str) -> NDArray[np.float64]:
    """A column that may be written to: for others Numba would compile the loop again."""
    if name not in batch.column_names:
        return np.empty(0)
    return np.require(batch.column(name).to_numpy(), np.float64, "W")


def _collect(query: nw.LazyFrame[Any]) -> Any:
    if query.implementation.is_dask():
        import pyarrow as pa

        return pa.Table.from_pandas(query.to_native().compute(), preserve_index=False)
    more = {"engine": "streaming"} if query.implementation.is_polars() else {}
    return query.collect("pyarrow", **more).to_native()


def column_kind(dtype: nw.dtypes.DType) -> str:
    """What a column holds: "number", "boolean", "text", "date", or the name of its type."""
    if dtype.is_numeric():
        return "number"
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        return "text"
    if dtype == nw.Boolean:
        return "boolean"
    return "date" if dtype.is_temporal() else str(dtype)


# ------------------------------------------------------------------------------------------------
# What an engine has counted → Cells, every column checked.


# Levels of one column beyond which it is no attribute.
MOST_LEVELS = 200


def to_cells(table: Any, columns: Columns, edges: Edges, facts: dict[str, float]) -> Cells:
    """Cells of a pyarrow Table with the columns of `cell_sums` by place and labels.

    Parameters
    ----------
    table : pyarrow Table
    columns : Columns
    edges : Edges
    facts : dict
        `n` is the number of rows that were counted.
    """
    coded = []
    for j, name in enumerate(columns.groups):
        codes, values = _encode(table.column(f"label_{j}"), columns.missing)
        if name in columns.controls:
            codes, values = _as_text(codes, values)
        check_levels(len(values), name, columns.role(name))
        if name not in columns.controls:
            check_count(values, int(facts["n"]), kind_of(values), name)
        coded.append((codes, values))
    codes, labels = cross(coded)
    n: NDArray[Any] = _floats(table, "n") if columns.frequency == PEOPLE else _whole(table, "n")
    known = codes >= 0
    unknown = int(n[~known].sum())
    # No copies where every group is known: there may be millions of entries.
    keep: Any = slice(None) if known.all() else known
    place = _whole(table, PLACE)[keep]
    found: dict[str, NDArray[Any]] = {"n": n[keep], "group": codes[keep].astype(np.int64)}
    found["score_bin"], found["target_bin"] = np.divmod(place, edges.bins)
    for name in (*SUMS, *EXTREMES):
        if name in table.column_names:
            found[name] = _floats(table, name)[keep]
    for name in ("w", "ww"):
        # Without weights they are the number of people, which no engine needs to add up twice.
        found.setdefault(name, found["n"].astype(np.float64))
    for name in SUMS:
        found.setdefault(name, np.zeros(len(place)))
    for name, column in found.items():
        if not np.isfinite(column).all():
            raise InputError(
                "table", f"have numbers whose squares can be added up: {name} of some cells is "
                "not finite", hint="measure scores, targets and weights in larger units.",
            )  # fmt: skip
    _check_extremes(found, facts)
    fields = checked(found, edges, tuple(labels), columns.groups, unknown)
    return _without_empty(Cells(**fields))


def _check_extremes(found: dict[str, NDArray[Any]], facts: dict[str, float]) -> None:
    """Refuse rows that have come since, as far as they are beyond all others."""
    for name, argument in _ARGUMENTS.items():
        ends = facts.get(f"least_{argument}", math.nan), facts.get(f"largest_{argument}", math.nan)
        low, high = found.get(f"least_{name}"), found.get(f"largest_{name}")
        if low is not None and high is not None and ((low < ends[0]) | (high > ends[1])).any():
            what = "it has values that it had not when its least and largest were asked for"
            raise changed(what, "run it again.")


# Distinct values beyond which they are not listed.
_MANY = 10_000


class TooManyLevels(InputError):
    """A column with so many values that it is no attribute."""


def check_levels(count: float, name: str, argument: str = "sensitive_features") -> None:
    """Refuse a column with so many values that it is no attribute."""
    if count > MOST_LEVELS:
        raise TooManyLevels(
            argument, f"have at most {MOST_LEVELS} levels", f"about {count:,.0f}",
            "cut numbers and dates into bands, such as evenhand.bands or CASE WHEN in the table, "
            "and merge rare levels into larger ones.", f"(column {name!r})",
        )  # fmt: skip


def without_blank(cells: Cells, missing: Sequence[str]) -> Cells:
    """People whose label stands for none counted among those of unknown group."""
    blank = np.array(
        [
            any(is_blank(v, missing) for v in (label if isinstance(label, tuple) else (label,)))
            for label in cells.labels
        ],
        dtype=bool,
    )
    if not blank.any():
        return cells
    keep = ~blank[cells.group]
    unknown = cells.n_unknown + int(cells.count[~keep].sum())
    return _without_empty(replace(cells.take(keep), n_unknown=unknown))


def is_blank(label: Any, missing: Sequence[str] = ()) -> bool:
    """Whether a label is a text that stands for none."""
    return isinstance(label, str) and (not label or label in missing)


def _without_empty(cells: Cells) -> Cells:
    """Only labels that somebody has."""
    present = np.bincount(cells.group, minlength=len(cells.labels)) > 0
    if present.all():
        return cells
    labels = tuple(label for label, k in zip(cells.labels, present, strict=True) if k)
    number = (np.cumsum(present) - 1).astype(np.int32)
    return replace(cells, labels=labels, group=number[cells.group])


def _encode(column: Any, missing: Sequence[str]) -> tuple[NDArray[np.intp], list[Any]]:
    """Codes, −1 where missing, and the labels in order."""
    coded = column.cast(value_type(column.type)).combine_chunks().dictionary_encode()
    index = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
    held = coded.dictionary.to_pylist()
    values = [None if is_blank(v, missing) else whole(v) for v in held]
    codes, labels = sort_labels(*number_labels(values, "sensitive_features"))
    return np.append(codes, -1)[index], labels


def _as_text(codes: NDArray[np.intp], labels: list[Any]) -> tuple[NDArray[np.intp], list[Any]]:
    """Labels as text, and what is missing as one of them."""
    texts = [str(label) for label in labels]
    if (codes < 0).any():
        texts.append(MISSING)  # the last one, which −1 is the place of
    names = sorted(set(texts))
    return np.array([names.index(text) for text in texts], dtype=np.intp)[codes], names


def _floats(table: Any, name: str) -> NDArray[np.float64]:
    column = table.column(name)
    if column.null_count:
        raise changed(f"{name} of some cells is missing")
    return column.to_numpy().astype(np.float64, copy=False)


def _whole(table: Any, name: str) -> NDArray[np.int64]:
    return np.rint(_floats(table, name)).astype(np.int64)
