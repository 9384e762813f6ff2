"""Cells as an Arrow table: columns of plain numbers, everything else as JSON in the metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .edges import Edges

if TYPE_CHECKING:
    import pyarrow as pa

    from .cells import Cells

FORMAT, VERSION = "evenhand.cells", 1
KEY = FORMAT.encode()
INTEGERS = ("score_bin", "target_bin", "group", "n")
SUMS = ("w", "ww", "ws", "wy", "wss", "wyy", "wsy")
EXTREMES = ("least_s", "largest_s", "least_y", "largest_y")
# Relative room for sums that another engine added up in another order.
_ROUNDING = 1e-9


def to_arrow(cells: Cells) -> pa.Table:
    """Columns `score_bin`, `target_bin`, `group`, `n`, the sums and the extremes."""
    import pyarrow as pa

    columns: dict[str, NDArray[Any]] = {
        "score_bin": cells.score_bin,
        "target_bin": cells.target_bin,
        "group": cells.group,
        "n": cells.count,
        **{name: cells.sums[:, j].copy() for j, name in enumerate(SUMS)},
    }
    extremes = [cells.least[:, 0], cells.largest[:, 0]]
    if cells.has_target:
        extremes += [cells.least[:, 1], cells.largest[:, 1]]
    columns |= {name: v.copy() for name, v in zip(EXTREMES, extremes, strict=False)}
    return pa.table(columns).replace_schema_metadata({KEY: json.dumps(about(cells))})


def about(cells: Cells) -> dict[str, Any]:
    """What the metadata hold: format, version, edges, labels, names and unknown people."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "edges": cells.edges.to_dict(),
        "labels": [_plain(label) for label in cells.labels],
        "names": list(cells.names),
        "n_unknown": cells.n_unknown,
    }


def from_arrow(table: Any) -> dict[str, Any]:
    """The fields of Cells from what :func:`to_arrow` writes, every one checked."""
    metadata = getattr(getattr(table, "schema", None), "metadata", None)
    if not hasattr(table, "column_names"):
        raise ValueError(f"`table` must be a pyarrow Table, got {type(table).__name__}.")
    try:
        head = json.loads((metadata or {})[KEY])
    except KeyError:
        raise ValueError(
            f"`table` must have the metadata {FORMAT!r}, which Cells.to_arrow writes, got "
            f"{sorted(k.decode() for k in metadata or {})}."
        ) from None
    except ValueError as error:
        raise ValueError(f"`table` must have metadata in JSON: {error}.") from None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f"`table` must say that its format is {FORMAT!r} in its metadata.")
    if head.get("version") != VERSION:
        raise ValueError(
            f"`table` must be of version {VERSION}, got {head.get('version')!r}. Hint: it was "
            "written by another version of evenhand."
        )
    edges = Edges.from_dict(head.get("edges"))
    labels, names = _labels(head)
    unknown = head.get("n_unknown")
    if not isinstance(unknown, int) or isinstance(unknown, bool) or unknown < 0:
        raise ValueError(f"`table` must have n_unknown as a nonnegative integer, got {unknown!r}.")
    wanted = [*INTEGERS, *SUMS, *(EXTREMES if edges.target is not None else EXTREMES[:2])]
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        raise ValueError(
            f"`table` must have the columns {', '.join(wanted)}; it lacks {', '.join(missing)}."
        )
    columns = {name: _numbers(table, name) for name in wanted}
    return checked(columns, edges, labels, names, unknown)


def checked(
    columns: dict[str, NDArray[Any]], edges: Edges, labels: tuple[Any, ...],
    names: tuple[str, ...], unknown: int,
) -> dict[str, Any]:  # fmt: skip
    """The fields of Cells from columns by name, with n, sums and extremes that can be true."""
    sizes = {"score_bin": edges.bins, "target_bin": edges.bins, "group": len(labels)}
    if edges.target is None:
        sizes["target_bin"] = 1
    for name, size in sizes.items():
        values = columns[name]
        if len(values) and not (values.min() >= 0 and values.max() < size):
            raise ValueError(
                f"`table` must have {name} between 0 and {size - 1}, got "
                f"{values.min()} to {values.max()}."
            )
    if (columns["n"] < 1).any():
        raise ValueError(f"`table` must have n of at least 1, got {columns['n'].min()}.")
    for name in ("w", "ww"):
        if (columns[name] <= 0).any():
            raise ValueError(f"`table` must have positive {name}, got {columns[name].min()}.")
    # (Σw)² ≤ n·Σw², which a mix-up of columns breaks.
    if (columns["w"] ** 2 > columns["n"] * columns["ww"] * (1 + _ROUNDING)).any():
        raise ValueError("`table` must have w² ≤ n·ww in every row: these are not sums of weights.")
    has_target = edges.target is not None
    for axis in "sy" if has_target else "s":
        if (columns[f"least_{axis}"] > columns[f"largest_{axis}"]).any():
            raise ValueError(f"`table` must have least_{axis} ≤ largest_{axis} in every row.")
    n = len(columns["n"])
    sums = np.empty((n, len(SUMS)))
    for j, name in enumerate(SUMS):
        sums[:, j] = columns[name]
    least, largest = np.full((n, 2), np.nan), np.full((n, 2), np.nan)
    for j, axis in enumerate("sy" if has_target else "s"):
        least[:, j], largest[:, j] = columns[f"least_{axis}"], columns[f"largest_{axis}"]
    place = columns["score_bin"] * edges.bins + columns["target_bin"]
    key = place * max(len(labels), 1) + columns["group"]
    order = np.argsort(key, kind="stable")
    if (np.diff(key[order]) == 0).any():
        raise ValueError(
            "`table` must have one row for each score_bin, target_bin and group; some are repeated."
        )
    where = {name: columns[name][order].astype(np.int32) for name in INTEGERS[:3]}
    return {
        "edges": edges,
        "labels": labels,
        "names": names,
        **where,
        "count": columns["n"][order],
        "sums": sums[order],
        "least": least[order],
        "largest": largest[order],
        "n_unknown": unknown,
    }


def _labels(head: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    labels, names = head.get("labels"), head.get("names")
    if not isinstance(names, list) or not names or not all(isinstance(v, str) for v in names):
        raise ValueError(f"`table` must have names of its attributes, got {names!r}.")
    if not isinstance(labels, list):
        raise ValueError(f"`table` must have a list of labels, got {labels!r}.")
    crossed = len(names) > 1
    good = [
        isinstance(v, list) and len(v) == len(names) if crossed
        else isinstance(v, str | int | float)
        for v in labels
    ]  # fmt: skip
    found = tuple(tuple(v) if isinstance(v, list) else v for v in labels)
    if not all(good) or len(set(found)) < len(found):
        raise ValueError(
            f"`table` must have distinct labels, one value for each of {', '.join(names)}, got "
            f"{labels!r}."
        )
    return found, tuple(names)


def _numbers(table: Any, name: str) -> NDArray[Any]:
    import pyarrow as pa

    column = table.column(name)
    kind = column.type
    if column.null_count:
        raise ValueError(
            f"`table` must not have missing values in {name}, got {column.null_count}."
        )
    whole = name in INTEGERS
    good = pa.types.is_integer(kind) or (not whole and pa.types.is_floating(kind))
    if not good:
        what = "integers" if whole else "numbers"
        raise ValueError(f"`table` must have {what} in {name}, got {kind}.")
    values = column.to_numpy().astype(np.int64 if whole else np.float64)
    if not whole and not np.isfinite(values).all():
        raise ValueError(f"`table` must have finite numbers in {name}: some are NaN or infinite.")
    return values


def _plain(label: Any) -> Any:
    """A label as JSON has it; what JSON does not know becomes text."""
    if isinstance(label, tuple):
        return [_plain(v) for v in label]
    label = label.item() if isinstance(label, np.generic) else label
    return label if isinstance(label, str | int | float | bool) else str(label)
