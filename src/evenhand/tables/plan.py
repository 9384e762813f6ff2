"""What is asked of a table, in formulas that every engine can run.

    facts    n, rows that are not finite, least and largest of each column, levels of each group
    sample   s and y of some rows, each with the same chance, the same ones every time
    ends     least and largest residual, where the grid has a slope
    cells    people, sums and extremes by bin and group; `measures.edges` has the bins

An engine supplies :class:`Operations` on expressions with Python's operators (Polars, Ibis, and
text of SQL), so that each formula stands here once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.encoding import MISSING
from ..data.labels import check_count, cross, sorted_labels
from ..measures.cells import EXTREMES, SUMS, Cells, checked
from ..measures.edges import SAMPLE, Axis, Edges

# The largest float: neither NaN nor infinity is at most this, in any dialect.
LARGEST = 1.7976931348623157e308
PLACE = "place"
# Integers of 32 bits, which engines group by faster, go up to this.
SMALL = 2**31 - 1
Expressions = dict[str, Any]


@dataclass(frozen=True)
class Columns:
    """Names of columns by their role.

    `controls` are some of the groups: those in which a gap is a level of its own.
    """

    score: str
    target: str | None
    groups: tuple[str, ...]
    weight: str | None = None
    frequency: str | None = None
    controls: tuple[str, ...] = ()

    @property
    def numbers(self) -> dict[str, str]:
        """Argument of the public functions → column."""
        found = {
            "y_pred": self.score, "y_true": self.target, "sample_weight": self.weight,
            "frequency": self.frequency,
        }  # fmt: skip
        return {argument: name for argument, name in found.items() if name is not None}

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        return list(dict.fromkeys([*self.numbers.values(), *self.groups]))


class Operations(Protocol):
    """Expressions of one engine."""

    def number(self, name: str) -> Any: ...
    def label(self, name: str) -> Any: ...
    def made(self, name: str) -> Any:
        """A column that :func:`cell_rows` has made."""

    def pick(self, condition: Any, value: Any, other: Any) -> Any:
        """`value` where the condition holds, else `other`; None is missing."""

    def same(self, a: Any, b: Any) -> Any: ...
    def absolute(self, value: Any) -> Any: ...
    def floor(self, value: Any) -> Any: ...
    def clip(self, value: Any, low: float, high: float) -> Any: ...
    def whole(self, value: Any, small: bool) -> Any:
        """As an integer of 32 bits or of 64."""

    def count(self) -> Any: ...
    def total(self, value: Any) -> Any: ...
    def least(self, value: Any) -> Any: ...
    def largest(self, value: Any) -> Any: ...
    def levels(self, value: Any) -> Any:
        """Roughly how many distinct values."""

    def uniform(self, values: list[Any]) -> Any:
        """A number between 0 and 1 that the values alone decide, as if it were random."""


def used(ops: Operations, columns: Columns) -> Any | None:
    """Rows that count: positive weight and frequency. None for all of them."""
    found = None
    for name in (columns.weight, columns.frequency):
        if name is not None:
            positive = ops.number(name) > 0.0
            found = positive if found is None else found & positive
    return found


def facts(ops: Operations, columns: Columns) -> Expressions:
    """Totals over all rows; extremes over those that are used."""
    keep = used(ops, columns)
    out: Expressions = {"n": ops.count()}
    if keep is not None:
        out["n_used"] = ops.total(ops.pick(keep, 1.0, 0.0))
    for argument, name in columns.numbers.items():
        value = ops.number(name)
        finite = ops.absolute(value) <= LARGEST
        out[f"bad_{argument}"] = ops.total(ops.pick(finite, 0.0, 1.0))
        if argument in ("y_pred", "y_true") and keep is not None:
            value = ops.pick(keep, value, None)
        out[f"least_{argument}"] = ops.least(value)
        out[f"largest_{argument}"] = ops.largest(value)
    if columns.frequency is not None:
        people = ops.number(columns.frequency)
        fraction = ops.pick(ops.same(people, ops.floor(people)), 0.0, 1.0)
        out["fractions"] = ops.total(fraction)
        out["people"] = ops.total(people)
    for j, name in enumerate(columns.groups):
        out[f"levels_{j}"] = ops.levels(ops.label(name))
    return out


def every_row(ops: Operations, columns: Columns) -> tuple[Expressions, Any | None]:
    """Scores and targets, and which rows: the sample of a table that is small."""
    out = {"s": ops.number(columns.score)}
    if columns.target is not None:
        out["y"] = ops.number(columns.target)
    return out, used(ops, columns)


def share(facts: dict[str, float]) -> float:
    """Of the rows that are used, what the sample has; 1 where it has all of them."""
    n = facts.get("n_used", facts["n"])
    return SAMPLE / n if n >= 2 * SAMPLE else 1.0


def some_values(
    ops: Operations, columns: Columns, facts: dict[str, float]
) -> tuple[Expressions, Any | None]:
    """Rows whose values fall below :func:`share` when they are scrambled into a number.

    The values decide, and neither the order of rows nor threads, partitions or a state: a table
    gives the same sample every time. Rows that are equal are in it or out of it together.
    """
    out, keep = every_row(ops, columns)
    few = _scrambled(ops, columns, facts) <= share(facts)
    return out, few if keep is None else keep & few


def all_values(
    ops: Operations, columns: Columns, facts: dict[str, float]
) -> tuple[Expressions, Any | None]:
    """Every row, with the number `u` that its values scramble into."""
    out, keep = every_row(ops, columns)
    return {**out, "u": _scrambled(ops, columns, facts)}, keep


def copies(ops: Operations, facts: dict[str, float]) -> Any:
    """How often the sample has a value that n rows have: floor(share·n + u).

    That is share·n on average over values. Of rows of :func:`all_values`, by value.
    """
    return ops.floor(ops.count() * share(facts) + ops.least(ops.made("u")))


def _scrambled(ops: Operations, columns: Columns, facts: dict[str, float]) -> Any:
    """Of numbers between −1 and 1, so that no engine has to care for their size."""
    scaled = []
    for argument in ("y_pred", "y_true"):
        if argument in columns.numbers:
            low, high = facts[f"least_{argument}"], facts[f"largest_{argument}"]
            half = high / 2 - low / 2
            value = ops.number(columns.numbers[argument]) - (low / 2 + high / 2)
            scaled.append(value / (half if half > 0 else 1.0))
    return ops.uniform(scaled)


def ends(ops: Operations, columns: Columns, edges: Edges) -> tuple[Expressions, Any | None]:
    """Extremes of the residual that a grid with a slope has bins of."""
    rest = _residual(ops, columns, edges)
    return {"least": ops.least(rest), "largest": ops.largest(rest)}, used(ops, columns)


def cell_rows(
    ops: Operations, columns: Columns, edges: Edges, facts: dict[str, float]
) -> tuple[Expressions, Any | None]:
    """What is worked out for each row: its place, s and y less their shifts, weight, people.

    Parameters
    ----------
    ops : Operations
    columns : Columns
    edges : Edges
    facts : dict
        Of the table: its extremes tell where bins need not be clipped, its largest weight what
        weights are multiplied by.
    """
    s = ops.number(columns.score)
    clipped = clipped_sides(edges, facts)
    place = _bin(ops, _residual(ops, columns, edges), edges.score, edges.bins, clipped[0])
    place = place * float(edges.bins)
    out: Expressions = {"s": s, "a": s - edges.score.shift}
    if columns.target is not None:
        assert edges.target is not None
        y = ops.number(columns.target)
        v = y - edges.target.shift
        out |= {"y": y, "v": v}
        place = place + _bin(ops, v, edges.target, edges.bins, clipped[1])
    out[PLACE] = ops.whole(place, edges.bins**2 <= SMALL)
    if columns.weight is not None:
        weight, factor = ops.number(columns.weight), weight_factor(facts)
        out["w"] = weight if factor == 1.0 else weight * factor
    if columns.frequency is not None:
        out["f"] = ops.number(columns.frequency)
    for j, name in enumerate(columns.groups):
        out[f"label_{j}"] = ops.label(name)
    return out, used(ops, columns)


def clipped_sides(edges: Edges, facts: dict[str, float]) -> tuple[bool, bool]:
    """Whether values beyond the grid must be put into its outermost bins, of score and target."""
    sides = []
    for argument, axis in (("y_pred", edges.score), ("y_true", edges.target)):
        ends = [facts.get(f"{end}_{argument}", math.inf) for end in ("least", "largest")]
        sides.append(
            axis is None
            or (argument == "y_pred" and edges.slope != 0.0)
            or not axis.spans(ends[0] - axis.shift, ends[1] - axis.shift, edges.bins)
        )
    return sides[0], sides[1]


def cell_sums(ops: Operations, columns: Columns) -> Expressions:
    """Sums and extremes over the rows of one place and group, of columns of :func:`cell_rows`."""
    a = ops.made("a")
    v = None if columns.target is None else ops.made("v")
    weight = None if columns.weight is None else ops.made("w")
    people = None if columns.frequency is None else ops.made("f")
    mass = weight
    if people is not None:
        mass = people if weight is None else people * weight

    def total(*factors: Any) -> Any:
        product = mass
        for factor in factors:
            product = factor if product is None else product * factor
        return ops.total(product)

    out: Expressions = {"n": ops.count() if people is None else ops.total(people)}
    if weight is not None:
        out |= {"w": total(), "ww": total(weight)}
    s = ops.made("s")
    out |= {
        "ws": total(a),
        "wss": total(a, a),
        "least_s": ops.least(s),
        "largest_s": ops.largest(s),
    }
    if v is not None:
        out |= {"wy": total(v), "wyy": total(v, v), "wsy": total(a, v)}
        y = ops.made("y")
        out |= {"least_y": ops.least(y), "largest_y": ops.largest(y)}
    return out


def _residual(ops: Operations, columns: Columns, edges: Edges) -> Any:
    x = ops.number(columns.score) - edges.score.shift
    if not edges.slope:
        return x
    assert columns.target is not None
    assert edges.target is not None
    return x - (ops.number(columns.target) - edges.target.shift) * edges.slope


def _bin(ops: Operations, x: Any, axis: Axis, bins: int, clipped: bool) -> Any:
    at = ops.floor((x / (ops.absolute(x) + axis.scale) - axis.low) * axis.rate)
    return ops.clip(at, 0.0, float(bins - 1)) if clipped else at


def weight_factor(facts: dict[str, float]) -> float:
    """1, or what makes the largest weight 1 where squares of weights would leave the floats."""
    largest = facts.get("largest_sample_weight", 1.0)
    return 1.0 if 1e-100 < largest < 1e100 else 1.0 / largest


# ------------------------------------------------------------------------------------------------
# What an engine has counted → Cells, every column checked.


# Levels of one column beyond which it is no attribute.
MOST_LEVELS = 200


def to_cells(table: Any, columns: Columns, edges: Edges, facts: dict[str, float]) -> Cells:
    """Cells of a pyarrow Table with the columns of `plan.cell_sums` by place and labels.

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
        codes, values = _encode(table.column(f"label_{j}"))
        if name in columns.controls:
            codes, values = _as_text(codes, values)
            check_levels(len(values), name, "controls")
        else:
            check_levels(len(values), name)
            check_count(values, int(facts["n"]), _kind(values), name)
        coded.append((codes, values))
    codes, labels = coded[0] if len(coded) == 1 else cross(coded)
    n = _whole(table, "n")
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
            raise ValueError(
                f"`table` must have numbers whose squares can be added up: {name} of some cells is "
                "not finite. Hint: measure scores, targets and weights in larger units."
            )
    _check_inside(found, edges, facts)
    fields = checked(found, edges, tuple(labels), columns.groups, unknown)
    return _without_empty(Cells(**fields))


def _check_inside(found: dict[str, NDArray[Any]], edges: Edges, facts: dict[str, float]) -> None:
    """Where bins were not clipped nothing may lie beyond them: rows may have come since."""
    for name, axis, clipped in zip(
        "sy", (edges.score, edges.target), clipped_sides(edges, facts), strict=True
    ):
        if axis is None or clipped or not len(found["n"]):
            continue
        low, high = found[f"least_{name}"].min(), found[f"largest_{name}"].max()
        if not axis.spans(low - axis.shift, high - axis.shift, edges.bins):
            raise ValueError(
                "`table` changed while it was read: it has values that it had not when its least "
                "and largest were asked for. Hint: run it again."
            )


def check_levels(count: float, name: str, argument: str = "sensitive_features") -> None:
    """Refuse a column with so many values that it is no attribute."""
    if count > MOST_LEVELS:
        raise ValueError(
            f"`{argument}` (column {name!r}) must have at most {MOST_LEVELS} levels, found "
            f"about {count:,.0f}. Hint: cut numbers and dates into bands, such as "
            "evenhand.bands or CASE WHEN in the table, and merge rare levels into larger ones."
        )


def without_blank(cells: Cells) -> Cells:
    """People whose label is an empty text counted among those of unknown group."""
    blank = np.array([_is_blank(label) for label in cells.labels], dtype=bool)
    if not blank.any():
        return cells
    keep = ~blank[cells.group]
    few = {
        name: getattr(cells, name)[keep]
        for name in ("score_bin", "target_bin", "group", "count", "sums", "least", "largest")
    }
    unknown = cells.n_unknown + int(cells.count[~keep].sum())
    return _without_empty(replace(cells, n_unknown=unknown, **few))


def _is_blank(label: Any) -> bool:
    return any(_is_blank(v) for v in label) if isinstance(label, tuple) else label == ""


def _without_empty(cells: Cells) -> Cells:
    """Only labels that somebody has."""
    present = np.bincount(cells.group, minlength=len(cells.labels)) > 0
    if present.all():
        return cells
    labels = tuple(label for label, k in zip(cells.labels, present, strict=True) if k)
    number = (np.cumsum(present) - 1).astype(np.int32)
    return replace(cells, labels=labels, group=number[cells.group])


def _encode(column: Any) -> tuple[NDArray[np.intp], list[Any]]:
    """Codes, −1 where missing, and the labels in order."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    coded = array.dictionary_encode()
    index = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
    values = [label_of(v) for v in coded.dictionary.to_pylist()]
    labels = sorted_labels([v for v in values if v is not None])
    place = {label: k for k, label in enumerate(labels)}
    lookup = np.array([-1 if v is None else place[v] for v in values] + [-1], dtype=np.intp)
    return lookup[index], labels


def _as_text(codes: NDArray[np.intp], labels: list[Any]) -> tuple[NDArray[np.intp], list[Any]]:
    """Labels as text, and what is missing as one of them."""
    texts = [str(label) for label in labels]
    if (codes < 0).any():
        texts.append(MISSING)  # the last one, which −1 is the place of
    names = sorted(set(texts))
    return np.array([names.index(text) for text in texts], dtype=np.intp)[codes], names


def label_of(value: Any) -> Any:
    """As `eh.audit` names groups: whole numbers without a fraction; None where missing."""
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, float | Decimal):
        return int(value) if float(value).is_integer() else float(value)
    return value


def _kind(labels: list[Any]) -> str:
    if labels and all(isinstance(v, int | float) and not isinstance(v, bool) for v in labels):
        return "integer" if all(isinstance(v, int) for v in labels) else "float"
    return "date" if labels and all(isinstance(v, date) for v in labels) else "text"


def _floats(table: Any, name: str) -> NDArray[np.float64]:
    column = table.column(name)
    if column.null_count:
        raise ValueError(f"`table` changed while it was read: {name} of some cells is missing.")
    return column.to_numpy().astype(np.float64, copy=False)


def _whole(table: Any, name: str) -> NDArray[np.int64]:
    return np.rint(_floats(table, name)).astype(np.int64)
