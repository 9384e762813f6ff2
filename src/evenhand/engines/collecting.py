"""What an engine has counted → Cells, every column checked."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..groups.categories import check_count, cross, sorted_labels
from ..groups.encoding import MISSING
from ..information.cell_tables import EXTREMES, SUMS, checked
from ..information.cells import Cells
from ..information.edges import Edges
from .plan import PLACE, Columns, clipped_sides

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
