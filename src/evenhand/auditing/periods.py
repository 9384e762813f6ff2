"""A table with dates, or cells by period → cells of each period, of the same edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from ..groups.validation import check_column, frame_columns, quote, read_native
from ..information.cells import Cells
from ..information.edges import Edges

PERIODS = ("day", "week", "month", "quarter", "year")


def cells_by_period(
    table: Any, period: str | None, time: str | None, y_true: str | None, y_pred: str | None,
    sensitive_features: str | Sequence[str] | None, sample_weight: str | None,
    frequency: str | None,
) -> dict[str, Cells]:  # fmt: skip
    """Cells of each period, in the order of time."""
    if isinstance(table, Mapping) and any(isinstance(part, Cells) for part in table.values()):
        return _checked(table)
    if period is not None and period not in PERIODS:
        raise ValueError(f"`period` must be None or one of {', '.join(PERIODS)}, got {period!r}.")
    frame = read_native(table, "table")
    if not isinstance(frame, nw.DataFrame):
        raise ValueError(
            "`table` must be a frame with a column of dates, or a mapping of period to Cells, got "
            f"{type(table).__name__}."
        )
    columns = dict(frame_columns(frame))

    def take(name: str | None, argument: str, needed: bool = False) -> Any:
        if name is None:
            if needed:
                raise ValueError(f"`{argument}` must name a column of the table, got None.")
            return None
        if name not in columns:
            there = ", ".join(map(quote, list(columns)[:30]))
            raise ValueError(
                f"`{argument}` must name a column of the table, got {name!r}; there are {there}."
            )
        return columns[name]

    dates = take(time, "time", needed=True)
    s = check_column(take(y_pred, "y_pred", needed=True).to_native(), "y_pred")
    target = take(y_true, "y_true")
    y = None if target is None else check_column(target.to_native(), "y_true")
    if sensitive_features is None:
        raise ValueError("`sensitive_features` must name a column of the table, got None.")
    wanted = [sensitive_features] if isinstance(sensitive_features, str) else sensitive_features
    groups = {name: take(name, "sensitive_features").to_native() for name in wanted}
    optional = {
        "sample_weight": take(sample_weight, "sample_weight"),
        "frequency": take(frequency, "frequency"),
    }
    others = {
        name: np.asarray(column.to_numpy())
        for name, column in optional.items()
        if column is not None
    }
    labels = period_labels(dates, period)
    edges = Edges.from_values(s, y)
    out = {}
    frames = {name: nw.from_native(column, series_only=True) for name, column in groups.items()}
    for name in np.unique(labels):
        rows = np.flatnonzero(labels == name)
        out[str(name)] = Cells.from_rows(
            None if y is None else y[rows],
            s[rows],
            sensitive_features={key: column[rows].to_native() for key, column in frames.items()},
            edges=edges,
            **{key: values[rows] for key, values in others.items()},
        )
    return out


def _checked(table: Mapping[Any, Any]) -> dict[str, Cells]:
    edges = None
    for name, part in table.items():
        if not isinstance(part, Cells):
            raise ValueError(
                f"`table` must hold Cells for every period, got {type(part).__name__} for {name!r}."
            )
        edges = part.edges if edges is None else edges
        if part.edges != edges:
            raise ValueError(
                f"`table` must hold cells of the same edges; those of {name!r} differ from the "
                "first. Hint: make them with edges=first.edges."
            )
    return {str(name): part for name, part in table.items()}


def period_labels(column: Any, period: str | None) -> NDArray[np.str_]:
    """Text that sorts as time does: 2024, 2024-Q1, 2024-03, 2024-W05, 2024-03-07."""
    if bool(column.is_null().any()):
        raise ValueError(
            f"`time` must be given in every row: {int(column.is_null().sum()):,} are missing. "
            "Hint: drop these rows, or fill them in."
        )
    if period is None:
        values = np.array(column.to_list())
        if values.dtype.kind in "iuf":
            order = np.unique(values)
            width = len(str(len(order)))
            text = [str(value) for value in order]
            if sorted(text) != text:  # 9 comes after 10 as text
                text = [f"{k + 1:0{width}d}: {value}" for k, value in enumerate(text)]
            return np.array(text)[np.searchsorted(order, values)]
        return np.array([str(value) for value in values])
    if column.dtype == nw.String:
        try:
            column = column.str.to_datetime()
        except Exception as error:
            raise ValueError(
                "`time` must hold dates, got text that is none. Hint: write them as 2024-03-07, or "
                "pass period=None to take the values as they are."
            ) from error
    if column.dtype not in (nw.Date, nw.Datetime):
        raise ValueError(
            f"`time` must hold dates, got values of type {column.dtype}. Hint: pass period=None to "
            "take the values as they are."
        )
    day = (np.array(column.dt.timestamp("ms").to_numpy()) // 86_400_000).astype("datetime64[D]")
    if period == "day":
        return day.astype(str)
    if period == "week":
        iso = [d.isocalendar() for d in day.astype(object)]
        return np.array([f"{w.year}-W{w.week:02d}" for w in iso])
    month = day.astype("datetime64[M]")
    if period == "month":
        return month.astype(str)
    year = day.astype("datetime64[Y]").astype(str)
    if period == "year":
        return year
    quarter = (month.astype(int) % 12) // 3 + 1
    return np.array([f"{y}-Q{q}" for y, q in zip(year, quarter, strict=True)])
