"""Fairness over time, of a table wherever it is or of cells that were counted before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import narwhals.stable.v2 as nw

from ..auditing.monitoring import Monitor, check_watch, judge
from ..auditing.periods import absent, cells_by_period, check_period, checked_series, gathered
from ..groups.validation import read_native
from ..information.cells import Cells
from .by_period import are_cell_files, count_periods, read_series
from .cell_files import read_cells


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
        raise ValueError(
            "`cluster` must be left out: periods are counted into cells, which do not know which "
            "rows belong together. Hint: keep one row of each unit in a period, or audit each "
            "period by itself with evenhand.audit(..., cluster=...)."
        )
    columns = {
        "time": time, "y_true": y_true, "y_pred": y_pred, "sensitive_features": sensitive_features,
        "sample_weight": sample_weight, "frequency": frequency,
    }  # fmt: skip
    notes: list[str] = []
    counted = _counted_before(table)
    if counted is not None:
        for argument, value in {**columns, "engine": engine}.items():
            if value is not None:
                raise ValueError(f"`{argument}` must be left out for cells, which hold it.")
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
            str(name): read_cells(part) if are_cell_files(part) else part
            for name, part in table.items()
        }
    return None


def _counted_now(
    table: Any, period: str | None, engine: str | None, columns: dict[str, Any]
) -> dict[str, Cells]:
    if not isinstance(table, str | PathLike | list | tuple):
        if isinstance(table, Mapping):
            raise ValueError(
                "`table` must be a frame with a column of dates, a path, an address, a relation or "
                "a mapping of period to Cells, got a mapping of other things. Hint: columns in a "
                "dict become a frame with pandas.DataFrame(columns)."
            )
        frame = read_native(table, "table")
        if isinstance(frame, nw.DataFrame) and engine in (None, "numpy"):
            return cells_by_period(frame, period, **columns)
    for argument in ("time", "y_pred", "sensitive_features"):
        if columns[argument] is None:
            raise ValueError(f"`{argument}` must name a column of the table, got None.")
    return count_periods(table, period, engine=engine, **columns)
