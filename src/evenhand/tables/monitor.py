"""Fairness over time, of a table wherever it is or of cells that were counted before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from os import PathLike
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._core.files import list_files
from .._core.validation import InputError, read_native
from ..auditing.monitoring import (
    Monitor,
    absent,
    cells_by_period,
    check_dates,
    check_period,
    check_watch,
    checked_series,
    gathered,
    in_order,
    judge,
    label_of,
    missing_times,
    no_dates,
)
from ..data.labels import sorted_labels
from ..measures.cells import Cells, is_cells, read_parts
from .audit_table import cells_of, columns_of
from .engines import open_table
from .plan import EngineError, TooManyLevels

# ------------------------------------------------------------------------------------------------
# Series of cells: from files of cells, and from a table where it is, in one scan for all periods.
#
# The parts of a date (year, month, day) are counted as attributes beside the groups, so that one
# scan counts the cells of every period, on one grid.


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
    paths = [Path(v) for v in list_files(files if isinstance(files, list | tuple) else [files])]
    if labels is None:
        if len({re.sub(r"\d+", "0", path.stem) for path in paths}) == 1:
            paths.sort(key=lambda path: [int(v) for v in re.findall(r"\d+", path.stem)])
        labels = [path.stem for path in paths]
    elif len(labels) != len(paths):
        raise ValueError(
            f"There must be a period for each of {len(paths)} files of cells, got {len(labels)}."
        )
    parts: dict[str, list[Path]] = {}
    for label, path in zip(labels, paths, strict=True):
        parts.setdefault(label, []).append(path)
    return {label: Cells.merge(read_parts(named)) for label, named in parts.items()}


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
    rows = open_table(table, columns, engine).rows
    schema = rows.collect_schema()
    if time not in schema:
        shown = ", ".join(repr(n) for n in list(schema)[:30])
        raise InputError("time", f"name a column of the table, got {time!r}; there are {shown}")
    made = _keys(time, schema[time], period)
    rows = rows.with_columns(**made)
    names = {**names, "sensitive_features": [*made, *wanted]}
    try:
        cells = cells_of(rows.to_native(), **names)
    except TooManyLevels as error:
        if period is not None or error.where != f"(column {next(iter(made))!r})":
            raise
        raise InputError(
            "time", "have at most 200 values where no period is named",
            hint="name a period, such as month, if they are dates.",
        ) from error  # fmt: skip
    except EngineError as error:
        if schema[time] != nw.String or period is None:
            raise
        raise ValueError(f"{no_dates()} The engine says: {error}") from error
    return _split(cells, len(made), period)


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


def monitor(
    table: Any,
    *,
    period: str | None = "auto",
    time: str | None = None,
    y_true: str | None = None,
    y_pred: str | None = None,
    sensitive_features: str | Sequence[str] | None = None,
    sample_weight: str | None = None,
    frequency: str | None = None,
    cluster: None = None,
    criteria: Sequence[str] = ("independence",),
    limits: Mapping[str, float] | None = None,
    level: float = 0.05,
    estimator: Any = "logistic",
    engine: str | None = None,
) -> Monitor:
    """Measure a score period by period, and say whether its fairness has moved.

    Parameters
    ----------
    table : frame, path, address, relation or expression; or cells by period
        A table with a column of dates: in memory, or one that :func:`audit_table` takes, which is
        counted where it is, in one scan for all periods. Or counts made before, all of the same
        edges: a mapping of period → Cells, or → path of a file of cells, in the order of time; a
        list of such files, or a pattern such as ``"days/*.cells"``. Names of files are the periods;
        files of the same period are added up. Names that differ in numbers alone are put in the
        order of these, others are taken in the order given.
    period : {"auto", "day", "week", "month", "quarter", "year"} or None
        What dates are gathered into; None takes the values of `time` as they are, in their order.
        "auto" is months for a table. Cells are taken as they are, unless a period is named and
        their names are dates.
    time, y_true, y_pred, sensitive_features, sample_weight, frequency : str
        Names of columns of a table; several sensitive ones are crossed.
    cluster : None
        Counts do not know which rows belong together; see Notes.
    criteria : sequence of str
        What is watched.
    limits : mapping of criterion → float, optional
        Values that should not be exceeded; the chance of a false alarm is then shared equally
        between limits and changes.
    level : float
        Chance of one or more false alarms, however long the series and however often one looks.
    estimator : {"logistic", "auto", "lspc"}
        "logistic" sees shifts and spreads in milliseconds; "auto" sees everything.
    engine : str, optional
        As in :func:`audit_table`.

    Returns
    -------
    Monitor

    Notes
    -----
    All looks are replayed: alarms are those that somebody who looked at the end of each period
    would have had, and what was raised once stays. After a change the series begins anew.

    Rows are taken for independent people. Where the same person, or place, has several rows in a
    period, bands are too narrow and alarms come too often: keep one of them, or gather them first.

    Examples
    --------
    >>> import numpy as np, pandas as pd, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 360, 9000), "D")
    >>> group = rng.integers(0, 2, 9000)
    >>> shift = np.where(day >= "2024-08-01", 1.0, 0.2)
    >>> table = pd.DataFrame(
    ...     {"day": day, "group": group, "score": rng.normal(size=9000) + shift * group})
    >>> found = eh.monitor(table, time="day", y_pred="score", sensitive_features="group")
    >>> found.state, found.alarms[0].since
    ('changed', '2024-08')
    """
    check_watch(criteria, level, estimator)
    if cluster is not None:
        raise InputError(
            "cluster", "be left out: periods are counted into cells, which do not know which rows "
            "belong together",
            hint="keep one row of each unit in a period, or audit each period by itself with "
            "evenhand.audit(..., cluster=...).",
        )  # fmt: skip
    columns = {
        "time": time, "y_true": y_true, "y_pred": y_pred, "sensitive_features": sensitive_features,
        "sample_weight": sample_weight, "frequency": frequency,
    }  # fmt: skip
    notes: list[str] = []
    counted = _counted_before(table)
    if counted is not None:
        for argument, value in {**columns, "engine": engine}.items():
            if value is not None:
                raise InputError(argument, "be left out for cells, which hold it")
        series = checked_series(counted)
        if period not in ("auto", None):
            series = gathered(series, str(period))
            notes += absent(list(series), period)
    else:
        unit = "month" if period == "auto" else period
        check_period(unit)
        series = _counted_now(table, unit, engine, columns)
        notes += absent(list(series), unit)
    return judge(
        series, criteria=criteria, limits=limits, level=level, estimator=estimator, notes=notes
    )


def _counted_before(table: Any) -> dict[str, Any] | None:
    """Cells by period, from memory or files; None for a table of rows."""
    if are_cell_files(table):
        return dict(read_series(table))
    if isinstance(table, Mapping) and any(
        isinstance(part, Cells) or are_cell_files(part) for part in table.values()
    ):
        return {
            str(name): Cells.from_file(part) if are_cell_files(part) else part
            for name, part in table.items()
        }
    return None


def _counted_now(
    table: Any, period: str | None, engine: str | None, columns: dict[str, Any]
) -> dict[str, Cells]:
    if not isinstance(table, str | PathLike | list | tuple):
        if isinstance(table, Mapping):
            raise InputError(
                "table", "be a frame with a column of dates, a path, an address, a relation or a "
                "mapping of period to Cells, got a mapping of other things",
                hint="columns in a dict become a frame with pandas.DataFrame(columns).",
            )  # fmt: skip
        frame = read_native(table, "table")
        if isinstance(frame, nw.DataFrame) and engine in (None, "numpy"):
            return cells_by_period(frame, period, **columns)
    for argument in ("time", "y_pred", "sensitive_features"):
        if columns[argument] is None:
            raise InputError(argument, "name a column of the table, got None")
    return count_periods(table, period, engine=engine, **columns)
