"""Has it moved since last quarter: measures by period, judged however often one looks.

At look t of a series the chance of a false alarm is α_t = α·6/(π²t²), which adds up to α over all
looks there will ever be (alpha spending). It is shared by the windows that are compared: the last
1, 2, 4, … periods against all periods before them since the last change. A window has changed where
its bounds and those of the periods before it do not meet, each beyond the truth with a chance of
α_t/(2·windows) at the most. Means over periods are weighted by people:

    v̄ = Σn_t v_t/Σn_t,   se² = Σn_t² se_t²/(Σn_t)²
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .._core.files import write_text
from .._core.frames import json_safe, tabulate, to_frame
from .._core.validation import InputError, check_column, frame_columns, quote
from .._core.views import Shown, view
from ..data.criteria import Criterion, get_criterion
from ..measures.cell_rows import expand_cells, refuse_beside_cells
from ..measures.cells import Cells
from ..measures.edges import Edges
from ..measures.measures import (
    HOLDS,
    OPEN,
    VIOLATED,
    Measure,
    estimate_entropies,
    get_estimator,
    measure,
    root_interval,
    upper_bound,
)

# Fewer people than this in a period, or fewer than two groups, say nothing by themselves.
LEAST_PEOPLE = 20
CHANGED, ABOVE = "changed", "above the limit"
STEADY = "steady"


@dataclass(frozen=True)
class Level:
    """A mean over some periods: its value, its error, and how its variance grows with it."""

    value: float
    stderr: float
    rate: float

    def bounds(self, level: float) -> tuple[float, float]:
        """Each beyond the truth with this chance at the most."""
        return self.low(level), self.high(level)

    def low(self, level: float) -> float:
        return root_interval(self.value, float(-ndtri(level)) * self.stderr)[0]

    def high(self, level: float) -> float:
        return upper_bound(self.value, self.stderr, self.rate, float(-ndtri(level)))

    def exceeds(self, other: Level, level: float) -> bool:
        """Whether it lies above another by more than the distances to their bounds allow.

        d > √((v − low)² + (high' − v')²): the bounds of each recover its variance on the side that
        matters (Zou and Donner's way to an interval of a difference), also near 0 where an error
        alone would not do.
        """
        mine, its = max(self.value, 0.0), max(other.value, 0.0)
        down = mine - self.low(level)
        if not mine - its > down:
            return False
        return mine - its > math.hypot(down, other.high(level) - its)


@dataclass(frozen=True)
class Alarm:
    """What was seen at one look.

    Attributes
    ----------
    at : str
        The period of the look.
    kind : {"changed", "above the limit"}
    criterion : str
    since : str
        The first period of the window that differs, or that lies above the limit.
    before, after : float
        Means of the measure before it and in it; NaN where nothing is compared.
    """

    at: str
    kind: str
    criterion: str
    since: str
    before: float
    after: float

    @property
    def text(self) -> str:
        """One sentence."""
        name = self.criterion.capitalize()
        if self.kind == ABOVE:
            return (
                f"{name} has been above its limit since {self.since}: {self.after:.4f} (seen at "
                f"{self.at})."
            )
        way = "worse" if self.after > self.before else "better"
        return (
            f"{name} got {way}: {max(self.before, 0):.4f} → {max(self.after, 0):.4f} since "
            f"{self.since} (seen at {self.at})."
        )


@dataclass(frozen=True)
class Look:
    """One period of one criterion.

    Attributes
    ----------
    period : str
    n : int
        People.
    value, stderr : float
        NaN where the period says nothing by itself.
    low, high : float
        Band that holds the truth of every period at once, with the stated confidence.
    why : str
        Why the period says nothing by itself; empty where it does.
    """

    period: str
    n: int
    value: float
    stderr: float
    low: float
    high: float
    why: str = ""


@dataclass(frozen=True)
class Monitor(Shown):
    """The result of :func:`evenhand.monitor`.

    Attributes
    ----------
    looks : dict of criterion → tuple of Look
    alarms : tuple of Alarm
        In the order in which they would have been raised.
    total : Cells
        All periods together.
    notes : tuple of str
        What is to be said about the series, such as periods without a row.
    """

    looks: dict[str, tuple[Look, ...]]
    alarms: tuple[Alarm, ...]
    total: Cells = field(repr=False)
    limits: dict[str, float] = field(default_factory=dict)
    level: float = 0.05
    sensitive_name: str = "group"
    notes: tuple[str, ...] = ()

    @property
    def periods(self) -> tuple[str, ...]:
        return tuple(look.period for look in next(iter(self.looks.values())))

    @property
    def state(self) -> str:
        """ "changed" or "above the limit" if an alarm was raised at any look, else "steady", or
        "not enough data" if fewer than two periods could be measured."""
        kinds = {alarm.kind for alarm in self.alarms}
        for kind in (ABOVE, CHANGED):
            if kind in kinds:
                return kind
        measured = [sum(not math.isnan(x.value) for x in looks) for looks in self.looks.values()]
        return STEADY if min(measured) >= 2 else OPEN

    @property
    def judged(self) -> str:
        """The state in the words of verdicts: violated, holds, not enough data."""
        return {ABOVE: VIOLATED, CHANGED: VIOLATED, STEADY: HOLDS}.get(self.state, OPEN)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row for each period and criterion."""
        rows = [(name, look) for name, looks in self.looks.items() for look in looks]
        columns = tabulate(
            (look for _, look in rows), "period", "n", "value", "stderr", "low", "high"
        )
        return to_frame({"criterion": [name for name, _ in rows], **columns}, backend)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the cells, as plain values that JSON can hold."""
        return json_safe(
            {
                "format": "evenhand.monitor",
                "version": 1,
                "sensitive": self.sensitive_name,
                "state": self.state,
                "level": self.level,
                "limits": self.limits,
                "looks": {name: [dict(vars(x)) for x in v] for name, v in self.looks.items()},
                "alarms": [{**vars(alarm), "text": alarm.text} for alarm in self.alarms],
                "notes": list(self.notes),
            }
        )

    def plot(self) -> Any:
        """A Matplotlib figure: each criterion over time, with its band and the alarms."""
        return view("plot_monitor")(self)

    def to_html(self, path: Any, *, force: bool = False) -> Any:
        """Write the picture and the table as one self-contained page.

        Parameters
        ----------
        path : str or Path
        force : bool
            Overwrite an existing file.
        """
        return write_text(path, view("result_page")(self), force)


def judge(
    series: Mapping[str, Cells],
    *,
    criteria: Sequence[str],
    limits: Mapping[str, float] | None,
    level: float,
    estimator: Any,
    notes: Sequence[str] = (),
) -> Monitor:
    """Measure each period of a series of cells and replay all looks.

    Parameters
    ----------
    series : mapping of period → Cells
        In the order of time, of the same edges.
    criteria, limits, level, estimator
        As in :func:`evenhand.monitor`.
    notes : sequence of str
        What is to be said about the series.
    """
    watched = [get_criterion(name) for name in criteria]
    asked = _checked_limits(limits, watched)
    names = list(series)
    cells = list(series.values())
    for criterion in watched:
        if criterion.needs and not cells[0].has_target:
            raise InputError("y_true", f"be given for {criterion.name}, got None")
    how = get_estimator(estimator)
    measures = [_measures(part, watched, how, estimator) for part in cells]
    share = level / len(watched)
    looks, alarms = {}, []
    for criterion in watched:
        values = [period.get(criterion.name) for period in measures]
        own = share / 2 if criterion.name in asked else share
        looks[criterion.name] = tuple(_looks(names, cells, values, share))
        raised = _changes(criterion.name, names, values, own)
        if criterion.name in asked:
            raised += _above(criterion.name, names, values, asked[criterion.name], own)
        alarms += raised
    alarms.sort(key=lambda alarm: names.index(alarm.at))
    total = Cells.merge(cells)
    return Monitor(
        looks=looks,
        alarms=tuple(alarms),
        total=total,
        limits=asked,
        level=level,
        sensitive_name=total.sensitive_name,
        notes=tuple(notes),
    )


def check_watch(criteria: Sequence[str], level: float, estimator: Any) -> None:
    """Refuse what cannot be watched before anything is counted."""
    if not isinstance(level, float) or not 0 < level < 1:
        raise InputError("level", f"lie between 0 and 1, got {level!r}", hint="such as 0.05.")
    if not [get_criterion(name) for name in criteria]:
        raise InputError("criteria", "name at least one criterion")
    refuse_beside_cells(estimator)


def spent(level: float, look: int) -> float:
    """α·6/(π²t²): what look t = 1, 2, … may spend of the chance of a false alarm."""
    return level * 6.0 / (math.pi * look) ** 2


def _checked_limits(
    limits: Mapping[str, float] | None, watched: Sequence[Criterion]
) -> dict[str, float]:
    names = [criterion.name for criterion in watched]
    for name, value in (limits or {}).items():
        if name not in names:
            raise InputError(
                "limits", f"be on what is watched ({', '.join(names)}), got {name!r}",
                hint="name it in `criteria`.",
            )  # fmt: skip
        if not isinstance(value, int | float) or not 0 < value < 1:
            raise InputError("limits", f"lie between 0 and 1, got {value!r} for {name}")
    return {name: float(value) for name, value in (limits or {}).items()}


def _measures(
    cells: Cells, watched: Sequence[Criterion], how: Any, estimator: Any
) -> dict[str, Measure]:
    """The measures of one period; none where it says nothing by itself."""
    present = np.unique(cells.group[cells.count > 0])
    if cells.n < LEAST_PEOPLE or len(present) < 2:
        return {}
    rows = expand_cells(cells)
    groups = rows.groups
    if len(present) < len(cells.labels):
        assert groups.codes is not None
        groups = replace(
            groups,
            labels=tuple(cells.labels[k] for k in present),
            codes=np.searchsorted(present, groups.codes),
        )
    entropies = estimate_entropies(watched, rows.variables, groups, how)
    name = estimator if isinstance(estimator, str) else type(estimator).__name__
    out = {}
    for criterion in watched:
        one = measure(criterion, entropies, 0.95, math.nan, name, frequency=rows.frequency)
        if one.defined:
            out[criterion.name] = one
    return out


def _looks(
    names: Sequence[str], cells: Sequence[Cells], values: Sequence[Measure | None], level: float
) -> list[Look]:
    out = []
    t = 0
    for name, part, measured in zip(names, cells, values, strict=True):
        if measured is None:
            out.append(Look(name, part.n, math.nan, math.nan, 0.0, 1.0, _why(part)))
        else:
            t += 1
            low, high = _mean([measured]).bounds(spent(level, t) / 2)
            out.append(Look(name, part.n, measured.value, measured.stderr, low, high))
    return out


def _why(cells: Cells) -> str:
    if cells.n < LEAST_PEOPLE:
        return f"fewer than {LEAST_PEOPLE} people" if cells.n else "no people"
    present = np.unique(cells.group[cells.count > 0])
    if len(present) == 1:
        label = cells.labels[present[0]]
        name = " × ".join(map(str, label)) if isinstance(label, tuple) else str(label)
        return f"one group only ({name})"
    return "not enough data"


def _mean(measures: Sequence[Measure]) -> Level:
    """The mean over periods, weighted by people."""
    n = np.array([m.n_effective for m in measures])
    share = n / n.sum()
    value = float(share @ [m.value for m in measures])
    stderr = math.sqrt(float(share**2 @ np.square([m.stderr for m in measures])))
    normalizer = float(share @ [m.normalizer for m in measures])
    return Level(value, stderr, 2.0 / (float(n.sum()) * normalizer))


def _windows(count: int) -> list[int]:
    """1, 2, 4, … periods, with at least one before them."""
    return [2**j for j in range(int(math.log2(max(count - 1, 1))) + 1)] if count > 1 else []


def _changes(
    criterion: str, names: Sequence[str], values: Sequence[Measure | None], level: float
) -> list[Alarm]:
    alarms: list[Alarm] = []
    begin: list[int] = []  # periods measured since the last change
    look = 0
    for t in range(len(names)):
        if values[t] is None:
            continue
        look += 1
        begin.append(t)
        windows = _windows(len(begin))
        best: tuple[float, int, Level, Level] | None = None
        for m in windows:
            before = _mean([values[k] for k in begin[:-m]])  # type: ignore[misc]
            after = _mean([values[k] for k in begin[-m:]])  # type: ignore[misc]
            chance = spent(level, look) / (2 * len(windows))
            if after.exceeds(before, chance) or before.exceeds(after, chance):
                errors = abs(after.value - before.value) / math.hypot(after.stderr, before.stderr)
                if best is None or errors > best[0]:
                    best = errors, m, before, after
        if best is not None:
            _, m, before, after = best
            since = begin[-m]
            alarms.append(
                Alarm(names[t], CHANGED, criterion, names[since], before.value, after.value)
            )
            begin = begin[-m:]
    return alarms


def _above(
    criterion: str, names: Sequence[str], values: Sequence[Measure | None], limit: float,
    level: float,
) -> list[Alarm]:  # fmt: skip
    """The first look at which a window lies above the limit."""
    seen: list[int] = []
    for t in range(len(names)):
        if values[t] is None:
            continue
        seen.append(t)
        windows = [m for m in (2**j for j in range(20)) if m <= len(seen)]
        for m in windows:
            mean = _mean([values[k] for k in seen[-m:]])  # type: ignore[misc]
            if mean.bounds(spent(level, len(seen)) / len(windows))[0] > limit:
                since = names[seen[-m]]
                return [Alarm(names[t], ABOVE, criterion, since, math.nan, mean.value)]
    return []


# ------------------------------------------------------------------------------------------------
# A table with dates, or cells by period → cells of each period, of the same edges.


PERIODS = ("day", "week", "month", "quarter", "year")
_DATE = re.compile(r"(?<!\d)(\d{4})-(\d{2})(?:-(\d{2}))?(?!\d)")
_NAMED = 12


def cells_by_period(frame: nw.DataFrame[Any], period: str | None, **names: Any) -> dict[str, Cells]:
    """Cells of each period of a table in memory, in the order of time.

    `names` are those of its columns by argument: time, y_true, y_pred, sensitive_features,
    sample_weight and frequency.
    """
    columns = dict(frame_columns(frame))

    def take(name: Any, argument: str) -> Any:
        if name is None:
            if argument in ("time", "y_pred", "sensitive_features"):
                raise InputError(argument, "name a column of the table, got None")
            return None
        if name not in columns:
            there = ", ".join(map(quote, list(columns)[:30]))
            raise InputError(
                argument, f"name a column of the table, got {name!r}; there are {there}"
            )
        return columns[name]

    attributes = names.pop("sensitive_features")
    if attributes is None or isinstance(attributes, str):
        attributes = [attributes]
    held = {argument: take(name, argument) for argument, name in names.items()}
    groups = {name: take(name, "sensitive_features") for name in attributes}
    dates = held.pop("time")
    held = {name: column.to_native() for name, column in held.items() if column is not None}
    for name in ("y_pred", "y_true"):
        if name in held:
            held[name] = check_column(held[name], name)
    held = {name: np.asarray(column) for name, column in held.items()}
    edges = Edges.from_values(held["y_pred"], held.get("y_true"))
    distinct, number = np.unique(period_labels(dates, period), return_inverse=True)
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=len(distinct)))
    return {
        str(name): Cells.from_rows(
            **{"y_true": None, **{key: column[rows] for key, column in held.items()}},
            sensitive_features={key: column[rows].to_native() for key, column in groups.items()},
            edges=edges,
        )
        for name, rows in zip(distinct, np.split(order, ends[:-1]), strict=True)
    }


def checked_series(table: Mapping[Any, Any]) -> dict[str, Cells]:
    """Cells by period, all of one grid and of one attribute; the first that is not is named."""
    out: dict[str, Cells] = {}
    first: tuple[str, Cells] | None = None
    for number, (name, part) in enumerate(table.items(), 1):
        if not isinstance(part, Cells):
            raise InputError(
                "table", f"hold Cells for every period, got {type(part).__name__} for {name!r}"
            )
        first = first or (str(name), part)
        where = f"those of {str(name)!r} (number {number} of {len(table)})"
        if part.edges != first[1].edges:
            raise InputError(
                "table", f"hold cells of the same edges: {where} have other ones than those of "
                f"{first[0]!r}",
                hint="count them again with edges=first.edges, on the command line with --edges; "
                "cells of other edges cannot be brought onto these.",
            )  # fmt: skip
        if part.names != first[1].names:
            raise InputError(
                "table", f"hold cells of one attribute: {where} are of {part.sensitive_name!r}, "
                f"and those of {first[0]!r} of {first[1].sensitive_name!r}",
            )  # fmt: skip
        out[str(name)] = part
    if not out:
        raise InputError("table", "hold at least one period, got none")
    return out


def gathered(series: Mapping[str, Cells], period: str) -> dict[str, Cells]:
    """Cells of days, by the dates in their names, added up to longer periods."""
    check_period(period)
    needs_day = period in ("day", "week")
    parts: dict[str, list[Cells]] = {}
    for name, cells in series.items():
        match = _DATE.search(name)
        if match is None or (needs_day and match[3] is None):
            form = "2024-03-07" if needs_day else "2024-03"
            raise InputError(
                "period", f"be left out for cells whose names are no dates such as {form}, got "
                f"{period!r} with {name!r}",
            )  # fmt: skip
        try:
            day = date(int(match[1]), int(match[2]), int(match[3] or 1))
        except ValueError:
            raise InputError("period", "names with dates", repr(name), verb="needs") from None
        parts.setdefault(label_of(day, period), []).append(cells)
    return {name: Cells.merge(parts[name]) for name in sorted(parts)}


def check_period(period: str | None) -> None:
    """One of `PERIODS`, or None."""
    if period is not None and period not in PERIODS:
        raise InputError("period", f"be None or one of {', '.join(PERIODS)}, got {period!r}")


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
    all_names = dict.fromkeys(label_of(first + timedelta(k), period) for k in days)
    there = set(names)
    gone = [name for name in all_names if name not in there]
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
        raise InputError(
            "time", f"hold dates, got values of type {dtype}",
            hint="pass period=None to take the values as they are.",
        )  # fmt: skip


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
