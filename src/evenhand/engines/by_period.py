"""Series of cells: from files of cells, and from a table where it is, in one scan for all periods.

The parts of a date (year, month, day) are counted as attributes beside the groups, so that the one
`GROUP BY` that counts cells counts them for every period, on one grid.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from ..auditing.periods import check_dates, in_order, label_of, missing_times, no_dates
from ..files.tabular import TableError
from ..groups.categories import sorted_labels
from ..information.cells import Cells
from .cell_files import is_cells, read_cells
from .opening import open_table
from .tables import cells_of, columns_of

PARTS = {
    "year": ("year",), "quarter": ("year", "month"), "month": ("year", "month"),
    "week": ("year", "month", "day"), "day": ("year", "month", "day"),
}  # fmt: skip
_MISSING = "missing"


def are_cell_files(table: Any) -> bool:
    """Whether a path, a pattern or a list of paths is of files of cells."""
    if isinstance(table, list | tuple):
        return bool(table) and all(isinstance(v, str | PathLike) and is_cells(v) for v in table)
    return isinstance(table, str | PathLike) and is_cells(table)


def read_series(files: Any, labels: Sequence[str] | None = None) -> dict[str, Cells]:
    """Cells of each period from files; those of the same period are added up.

    Parameters
    ----------
    files : path, pattern, or list of paths
        Names that differ in numbers alone are put in the order of these; others stay as they are.
    labels : sequence of str, optional
        The period of each file, in the order of time, in place of the names of the files.
    """
    paths = [Path(v) for v in (files if isinstance(files, list | tuple) else matching(files))]
    if labels is None:
        if len({re.sub(r"\d+", "0", path.stem) for path in paths}) == 1:
            paths.sort(key=lambda path: [int(v) for v in re.findall(r"\d+", path.stem)])
        labels = [path.stem for path in paths]
    elif len(labels) != len(paths):
        raise ValueError(
            f"There must be a period for each of {len(paths)} files of cells, got {len(labels)}."
        )
    parts: dict[str, list[tuple[Path, Cells]]] = {}
    for label, path in zip(labels, paths, strict=True):
        cells = read_cells(path)
        for other, seen in parts.setdefault(label, []):
            if seen == cells:
                raise TableError(
                    f"{str(path)!r} and {str(other)!r} hold the same counts of one period, which "
                    "would be added twice. Hint: leave one of them out."
                )
            if seen.edges != cells.edges:
                raise TableError(
                    f"{str(path)!r} and {str(other)!r} are of one period and have other edges. "
                    "Hint: count one of them again with --edges."
                )
        parts[label].append((path, cells))
    return {
        label: found[0][1] if len(found) == 1 else Cells.merge([cells for _, cells in found])
        for label, found in parts.items()
    }


def matching(pattern: Any) -> list[str]:
    """The files that a path or a pattern names."""
    if Path(pattern).exists():
        return [str(pattern)]
    found = sorted(glob.glob(str(pattern), recursive=True))
    if not found:
        raise TableError(f"There is no file {str(pattern)!r}.")
    return found


def count_periods(
    table: Any, period: str | None, time: str, engine: str | None, **names: Any
) -> dict[str, Cells]:
    """Cells of each period of a table, in the order of time, counted where it is.

    Parameters
    ----------
    table, engine
        As in :func:`evenhand.audit_table`.
    period : str or None
        One of :data:`PARTS`; None takes the values of `time`, up to 200 of them, as they are.
    time : str
        Column of dates.
    **names : str
        y_true, y_pred, sensitive_features, sample_weight, frequency.
    """
    groups = names["sensitive_features"]
    wanted = [groups] if isinstance(groups, str) else list(groups or [])
    columns = columns_of(
        names["y_true"], names["y_pred"], [*dict.fromkeys([time, *wanted])],
        names["sample_weight"], names["frequency"],
    )  # fmt: skip
    rows = nw.from_native(_native(open_table(table, columns, engine)))
    schema = rows.collect_schema()
    if time not in schema:
        shown = ", ".join(repr(n) for n in list(schema)[:30])
        raise ValueError(
            f"`time` must name a column of the table, got {time!r}; there are {shown}."
        )
    made = _keys(time, schema[time], period)
    rows = rows.with_columns(**made)
    names = {**names, "sensitive_features": [*made, *wanted]}
    try:
        cells = cells_of(rows.to_native(), **names)
    except ValueError as error:
        if "evenhand: " in str(error) and period is None:
            raise ValueError(
                "`time` must have at most 200 values where `period` is None. Hint: name a period, "
                "such as month, if they are dates."
            ) from error
        if schema[time] == nw.String and period is not None and "cannot be read" in str(error):
            raise ValueError(f"{no_dates()} The engine says: {error}") from error
        raise
    return _split(cells, len(made), period)


def _native(opened: Any) -> Any:
    """The frame, relation or expression that an engine was opened with."""
    for name in ("relation", "frame", "table"):
        if hasattr(opened, name):
            return getattr(opened, name)
    raise AssertionError(type(opened).__name__)


def _keys(time: str, dtype: Any, period: str | None) -> dict[str, Any]:
    """Columns of text that together say which period a row is of."""
    column = nw.col(time)
    if period is None:
        return {f"evenhand: {time}": column.cast(nw.String).fill_null(_MISSING)}
    check_dates(dtype)
    if dtype == nw.String:
        column = column.str.slice(0, 10).str.to_datetime(format="%Y-%m-%d")
    return {
        f"evenhand: {part}": getattr(column.dt, part)().cast(nw.String).fill_null(_MISSING)
        for part in PARTS[period]
    }


def _split(cells: Cells, n_keys: int, period: str | None) -> dict[str, Cells]:
    """Cells crossed with the parts of a date, by period."""
    lost = [k for k, label in enumerate(cells.labels) if _MISSING in label[:n_keys]]
    if lost:
        raise missing_times(int(cells.count[np.isin(cells.group, lost)].sum()))
    keys = [label[:n_keys] for label in cells.labels]
    if period is None:
        values = _numbers([key[0] for key in keys])
        named = in_order(values)
        name_of = {key: named[value] for key, value in zip(keys, values, strict=True)}
    else:
        name_of = {key: label_of(_date(key), period) for key in keys}
    rest = [label[n_keys:] if len(label) > n_keys + 1 else label[n_keys] for label in cells.labels]
    labels = tuple(sorted_labels(list(dict.fromkeys(rest))))
    place = {label: k for k, label in enumerate(labels)}
    group = np.array([place[label] for label in rest], dtype=np.int32)[cells.group]
    distinct = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    number = np.array([distinct[key] for key in keys])[cells.group]
    order = np.lexsort((group, cells.target_bin, cells.score_bin, number))
    ends = np.cumsum(np.bincount(number, minlength=len(distinct)))
    parts: dict[str, list[Cells]] = {}
    # People of unknown group have no period in the counts; they are told of all together.
    unknown = cells.n_unknown
    for key, rows in zip(distinct, np.split(order, ends[:-1]), strict=True):
        few = {
            name: getattr(cells, name)[rows]
            for name in ("score_bin", "target_bin", "count", "sums", "least", "largest")
        }
        part = replace(
            cells, labels=labels, names=cells.names[n_keys:], group=group[rows],
            n_unknown=unknown, **few,
        )  # fmt: skip
        unknown = 0
        parts.setdefault(name_of[key], []).append(part)
    return {
        name: found[0] if len(found) == 1 else Cells.merge(found)
        for name, found in sorted(parts.items())
    }


def _numbers(texts: list[str]) -> list[Any]:
    """As numbers, which sort as such, where all of them are."""
    try:
        values = [float(text) for text in texts]
    except ValueError:
        return texts
    return [int(value) if value.is_integer() else value for value in values]


def _date(key: tuple[str, ...]) -> date:
    year, month, day = (int(float(v)) for v in (*key, "1", "1")[:3])
    return date(year, month, day)
