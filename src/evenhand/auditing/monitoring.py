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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..groups.tables import json_safe, to_frame
from ..information.cell_people import people, refuse_beside_cells
from ..information.cells import Cells
from ..information.criteria import Criterion, get_criterion
from ..information.entropies import estimate_entropies, get_estimator
from ..information.judging import HOLDS, OPEN, VIOLATED, root_interval, upper_bound
from ..information.measures import Measure, measure

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
                f"{name} has been above the limit since {self.since} ({self.after:.4f}), seen at "
                f"{self.at}."
            )
        way = "risen" if self.after > self.before else "fallen"
        return (
            f"{name} has {way} from {max(self.before, 0):.4f} to {max(self.after, 0):.4f} since "
            f"{self.since}, seen at {self.at}."
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
class Monitor:
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
        columns: dict[str, list[Any]] = {"criterion": [name for name, _ in rows]}
        for key in ("period", "n", "value", "stderr", "low", "high"):
            columns[key] = [getattr(look, key) for _, look in rows]
        return to_frame(columns, backend)

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

    def __str__(self) -> str:
        from ..report.monitor import describe_monitor

        return describe_monitor(self)

    def plot(self) -> Any:
        """A Matplotlib figure: each criterion over time, with its band and the alarms."""
        from ..report.monitor import plot_monitor

        return plot_monitor(self)

    def to_html(self, path: Any, *, force: bool = False) -> Any:
        """Write the picture and the table as one self-contained page.

        Parameters
        ----------
        path : str or Path
        force : bool
            Overwrite an existing file.
        """
        from ..report.monitor import write_monitor_page

        return write_monitor_page(self, path, force)


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
            raise ValueError(f"`y_true` must be given for {criterion.name}, got None.")
    how = get_estimator(estimator)
    measures = [_measures(part, watched, how, estimator) for part in cells]
    share = level / len(watched)
    looks, alarms = {}, []
    for criterion in watched:
        values = [found.get(criterion.name) for found in measures]
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
        raise ValueError(f"`level` must lie between 0 and 1, got {level!r}. Hint: such as 0.05.")
    if not [get_criterion(name) for name in criteria]:
        raise ValueError("`criteria` must name at least one criterion.")
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
            raise ValueError(
                f"`limits` must be on what is watched ({', '.join(names)}), got {name!r}. Hint: "
                "name it in `criteria`."
            )
        if not isinstance(value, int | float) or not 0 < value < 1:
            raise ValueError(f"`limits` must lie between 0 and 1, got {value!r} for {name}.")
    return {name: float(value) for name, value in (limits or {}).items()}


def _measures(
    cells: Cells, watched: Sequence[Criterion], how: Any, estimator: Any
) -> dict[str, Measure]:
    """The measures of one period; none where it says nothing by itself."""
    present = np.unique(cells.group[cells.count > 0])
    if cells.n < LEAST_PEOPLE or len(present) < 2:
        return {}
    rows = people(cells)
    groups = rows.groups
    if len(present) < len(cells.labels):
        assert groups.codes is not None
        groups = replace(
            groups,
            labels=tuple(cells.labels[k] for k in present),
            codes=np.searchsorted(present, groups.codes),
        )
    found = estimate_entropies(watched, rows.variables, groups, how)
    name = estimator if isinstance(estimator, str) else type(estimator).__name__
    out = {}
    for criterion in watched:
        one = measure(criterion, found, 0.95, math.nan, name, frequency=rows.frequency)
        if one.defined:
            out[criterion.name] = one
    return out


def _looks(
    names: Sequence[str], cells: Sequence[Cells], values: Sequence[Measure | None], level: float
) -> list[Look]:
    out = []
    t = 0
    for name, part, found in zip(names, cells, values, strict=True):
        if found is None:
            out.append(Look(name, part.n, math.nan, math.nan, 0.0, 1.0, _why(part)))
        else:
            t += 1
            low, high = _mean([found]).bounds(spent(level, t) / 2)
            out.append(Look(name, part.n, found.value, found.stderr, low, high))
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
            found = _mean([values[k] for k in seen[-m:]])  # type: ignore[misc]
            if found.bounds(spent(level, len(seen)) / len(windows))[0] > limit:
                since = names[seen[-m]]
                return [Alarm(names[t], ABOVE, criterion, since, math.nan, found.value)]
    return []
