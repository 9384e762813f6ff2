"""A table with dates, or cells by period → cells of each period, of the same edges."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from ..groups.validation import check_column, frame_columns, quote
from ..information.cells import Cells
from ..information.edges import Edges

PERIODS = ("day", "week", "month", "quarter", "year")
_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})(?:-(\d{2}))?(?!\d)")
_NAMED = 12


def cells_by_period(
    frame: nw.DataFrame[Any], period: str | None, time: str | None, y_true: str | None,
    y_pred: str | None, sensitive_features: str | Sequence[str] | None,
    sample_weight: str | None, frequency: str | None,
) -> dict[str, Cells]:  # fmt: skip
    """Cells of each period of a table in memory, in the order of time."""
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
    found, number = np.unique(labels, return_inverse=True)
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=len(found)))
    for name, rows in zip(found, np.split(order, ends[:-1]), strict=True):
        out[str(name)] = Cells.from_rows(
            None if y is None else y[rows],
            s[rows],
            sensitive_features={key: column[rows].to_native() for key, column in frames.items()},
            edges=edges,
            **{key: values[rows] for key, values in others.items()},
        )
    return out


def checked_series(table: Mapping[Any, Any]) -> dict[str, Cells]:
    """Cells by period, all of one grid and of one attribute; the first that is not is named."""
    out: dict[str, Cells] = {}
    first: tuple[str, Cells] | None = None
    for number, (name, part) in enumerate(table.items(), 1):
        if not isinstance(part, Cells):
            raise ValueError(
                f"`table` must hold Cells for every period, got {type(part).__name__} for {name!r}."
            )
        first = first or (str(name), part)
        where = f"those of {str(name)!r} (number {number} of {len(table)})"
        if part.edges != first[1].edges:
            raise ValueError(
                f"`table` must hold cells of the same edges: {where} have other ones than those of "
                f"{first[0]!r}. Hint: count them again with edges=first.edges, on the command line "
                "with --edges; cells of other edges cannot be brought onto these."
            )
        if part.names != first[1].names:
            raise ValueError(
                f"`table` must hold cells of one attribute: {where} are of "
                f"{part.sensitive_name!r}, and those of {first[0]!r} of "
                f"{first[1].sensitive_name!r}."
            )
        out[str(name)] = part
    if not out:
        raise ValueError("`table` must hold at least one period, got none.")
    return out


def gathered(series: Mapping[str, Cells], period: str) -> dict[str, Cells]:
    """Cells of days, by the dates in their names, added up to longer periods."""
    check_period(period)
    needs_day = period in ("day", "week")
    parts: dict[str, list[Cells]] = {}
    for name, cells in series.items():
        found = _DATE.search(name)
        if found is None or (needs_day and found[3] is None):
            form = "2024-03-07" if needs_day else "2024-03"
            raise ValueError(
                f"`period` must be left out for cells whose names are no dates such as {form}, got "
                f"{period!r} with {name!r}."
            )
        try:
            day = date(int(found[1]), int(found[2]), int(found[3] or 1))
        except ValueError:
            raise ValueError(f"`period` needs names with dates, got {name!r}.") from None
        parts.setdefault(label_of(day, period), []).append(cells)
    return {name: Cells.merge(parts[name]) for name in sorted(parts)}


def check_period(period: str | None) -> None:
    """One of `PERIODS`, or None."""
    if period is not None and period not in PERIODS:
        raise ValueError(f"`period` must be None or one of {', '.join(PERIODS)}, got {period!r}.")


def label_of(day: date, period: str) -> str:
    """Text that sorts as time does: 2024, 2024-Q1, 2024-03, 2024-W05, 2024-03-07."""
    if period == "day":
        return day.isoformat()
    if period == "week":
        week = day.isocalendar()
        return f"{week.year}-W{week.week:02d}"
    if period == "quarter":
        return f"{day.year}-Q{(day.month + 2) // 3}"
    return f"{day.year}-{day.month:02d}" if period == "month" else str(day.year)


def absent(names: Sequence[str], period: str | None) -> list[str]:
    """A sentence on periods between the first and the last that have no row."""
    if period is None:
        return []
    first, last = _first_day(names[0], period), _first_day(names[-1], period)
    # No month is shorter than 28 days, so that none is stepped over.
    step = {"day": 1, "week": 7}.get(period, 28)
    days = range(0, (last - first).days, step)
    every = dict.fromkeys(label_of(first + timedelta(k), period) for k in days)
    there = set(names)
    gone = [name for name in every if name not in there]
    if not gone:
        return []
    more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
    return [f"No rows in {', '.join(gone[:_NAMED])}{more}: left out."]


def _first_day(name: str, period: str) -> date:
    if period == "week":
        return date.fromisocalendar(int(name[:4]), int(name[6:]), 1)
    if period == "quarter":
        return date(int(name[:4]), 3 * int(name[6:]) - 2, 1)
    return date.fromisoformat(name + "-01-01"[len(name) - 4 :])


def in_order(values: Iterable[Any]) -> dict[Any, str]:
    """Values of a column of periods, in their order, each with a name that sorts as it does."""
    order = sorted(set(values))
    text = [str(value) for value in order]
    if sorted(text) != text:  # 9 comes after 10 as text
        width = len(str(len(order)))
        text = [f"{k + 1:0{width}d}: {value}" for k, value in enumerate(text)]
    return dict(zip(order, text, strict=True))


def check_dates(dtype: Any) -> None:
    """Dates, times, or text that may hold them."""
    if dtype not in (nw.Date, nw.Datetime, nw.String):
        raise ValueError(
            f"`time` must hold dates, got values of type {dtype}. Hint: pass period=None to take "
            "the values as they are."
        )


def no_dates() -> ValueError:
    return ValueError(
        "`time` must hold dates, got text that is none. Hint: write them as 2024-03-07, or pass "
        "period=None to take the values as they are."
    )


def missing_times(count: int) -> ValueError:
    return ValueError(
        f"`time` must be given in every row: {count:,} are missing. Hint: drop these rows, or fill "
        "them in."
    )


def period_labels(column: Any, period: str | None) -> NDArray[np.str_]:
    """The name of the period of each row."""
    if bool(column.is_null().any()):
        raise missing_times(int(column.is_null().sum()))
    if period is None:
        values = column.to_list()
        named = in_order(values)
        return np.array([named[value] for value in values])
    check_dates(column.dtype)
    if column.dtype == nw.String:
        try:
            column = column.str.to_datetime()
        except Exception as error:
            raise no_dates() from error
    year, month, day = (
        np.asarray(part.to_numpy()).astype(np.int64)
        for part in (column.dt.year(), column.dt.month(), column.dt.day())
    )
    days, number = np.unique((year * 12 + month - 1) * 31 + day - 1, return_inverse=True)
    names = [
        label_of(date(int(k // 372), int(k // 31 % 12) + 1, int(k % 31) + 1), period) for k in days
    ]
    return np.array(names)[number]
