"""Has it moved since last quarter: measures by period, judged however often one looks.

At look t of a series the chance of a false alarm is α_t = α·6/(π²t²), which adds up to α over all
looks there will ever be (alpha spending). It is shared by the windows that are compared: the last
1, 2, 4, … periods against all periods before them since the last change. A window has changed where
its bounds and those of the periods before it do not meet, each beyond the truth with a chance of
α_t/(2·windows) at the most. Means over periods are weighted by people:

    v̄ = Σn_t v_t/Σn_t,   se² = Σ_tu n_t n_u cov(v_t, v_u)/(Σn_t)²

Periods are independent unless the same clusters are in several of them. All groups together, each
attribute, and each group against the rest have a series of their own and share α equally, so that
splitting groups hides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import stdtrit

from .._core.arrays import Matrix, Rows, Vector
from .._core.frames import json_safe, tabulate, to_frame
from .._core.validation import InputError
from .._core.views import Paged, view
from ..data.criteria import Criterion, get_criterion
from ..data.labels import label_text
from ..data.sample import Sample
from ..data.weights import cluster_sums
from ..measures.cell_rows import expand_cells, refuse_beside_cells, refuse_copied
from ..measures.cells import Cells
from ..measures.entropies import estimate_entropies, get_estimator
from ..measures.measures import HOLDS, OPEN, VIOLATED, Measure, measure, root_interval, upper_bound
from .one_against_rest import candidates
from .tolerance import DRIFT, Tolerance

# Fewer people than this in a period, or fewer than two groups, say nothing by themselves.
LEAST_PEOPLE = 20
CHANGED, ABOVE, DRIFTED = "changed", "above the limit", "drifted beyond the limit"
STEADY = "no change seen"
# Fewer of a group, where it is watched by itself, say nothing either.
LEAST_OF_GROUP = 5


@dataclass(frozen=True)
class Level:
    """A mean over some periods: its value, its error, how its variance grows with it, and the
    degrees of freedom of its error."""

    value: float
    stderr: float
    rate: float
    freedom: float = math.inf

    def low(self, level: float) -> float:
        """Above the truth with this chance at the most."""
        return root_interval(self.value, self._errors(level) * self.stderr)[0]

    def high(self, level: float) -> float:
        """Below the truth with this chance at the most."""
        return upper_bound(self.value, self.stderr, self.rate, self._errors(level))

    def _errors(self, level: float) -> float:
        return float(-stdtrit(self.freedom, level))

    def moved_to(self, value: float) -> Level:
        """Another value, with the error there would be."""
        grown = self.rate * max(value - max(self.value, 0.0), 0.0)
        return replace(self, value=value, stderr=math.sqrt(self.stderr**2 + grown))

    def rise(self, before: Level, level: float) -> tuple[float, float]:
        """Bounds of how far it lies above an earlier one.

        d ∓ √((v − low)² + (high' − v')²): the bounds of each recover its variance on the side that
        matters (Zou and Donner's way to an interval of a difference), also near 0 where an error
        alone would not do.
        """
        mine, its = max(self.value, 0.0), max(before.value, 0.0)
        return (
            mine - its - math.hypot(mine - self.low(level), before.high(level) - its),
            mine - its + math.hypot(self.high(level) - mine, its - before.low(level)),
        )

    def exceeds(self, other: Level, level: float) -> bool:
        """Whether it is above another by more than the distances to their bounds allow."""
        return self.value > other.value and self.rise(other, level)[0] > 0.0


@dataclass(frozen=True)
class Alarm:
    """What was seen at one look.

    Attributes
    ----------
    at : str
        The period of the look.
    kind : {"changed", "above the limit", "drifted beyond the limit"}
    criterion : str
    since : str
        The first period of the window that differs, or that is above the limit.
    before, after : float
        Means of the measure before it and in it; NaN where nothing is compared.
    part : str
        The attribute, or the group against the rest, that it is about; empty for all groups.
    """

    at: str
    kind: str
    criterion: str
    since: str
    before: float
    after: float
    part: str = ""

    @property
    def text(self) -> str:
        """One sentence."""
        name = self.criterion.capitalize() + (f" ({self.part})" if self.part else "")
        if self.kind == ABOVE:
            return (
                f"{name} has been above its limit since {self.since}: {self.after:.4f} (seen at "
                f"{self.at})."
            )
        way = "worse" if self.after > self.before else "better"
        way += " by more than the limit" if self.kind == DRIFTED else ""
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
class Monitor(Paged):
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
    parts : dict of attribute or group → dict of criterion → tuple of Look
        The same of each attribute, and of each group against the rest, where there are more than
        two groups.
    detectable : dict of criterion → float
        The smallest rise that would have raised an alarm at the last look; infinite where none
        would have.
    possible : dict of criterion → float
        The largest mean since the last change that the data leave possible, at `level`; a limit
        below it is not shown to be met. With a share u of unknown groups it is (1 − u)·v + u.
    estimator : str

    See Also
    --------
    evenhand.monitor

    References
    ----------
    Zou, G. Y. and Donner, A. (2008). Construction of Confidence Limits about Effect Measures: A
    General Approach. Statistics in Medicine 27.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> table = {"month": np.repeat([1, 2, 3], 200), "s": rng.normal(size=600)}
    >>> table["a"] = rng.integers(0, 2, 600)
    >>> one = eh.Cells.from_rows(None, table["s"], sensitive_features=table["a"])
    >>> months = {
    ...     f"month {k}": eh.Cells.from_rows(
    ...         None, table["s"][at], sensitive_features=table["a"][at], edges=one.edges
    ...     )
    ...     for k in (1, 2, 3)
    ...     for at in [table["month"] == k]
    ... }
    >>> eh.monitor(months, estimator="logistic").alarms
    ()
    """

    looks: dict[str, tuple[Look, ...]]
    alarms: tuple[Alarm, ...]
    total: Cells = field(repr=False)
    limits: dict[str, float] = field(default_factory=dict)
    level: float = 0.05
    sensitive_name: str = "group"
    notes: tuple[str, ...] = ()
    parts: dict[str, dict[str, tuple[Look, ...]]] = field(default_factory=dict, repr=False)
    detectable: dict[str, float] = field(default_factory=dict)
    possible: dict[str, float] = field(default_factory=dict)
    estimator: str = "auto"

    @property
    def periods(self) -> tuple[str, ...]:
        return tuple(look.period for look in next(iter(self.looks.values())))

    @property
    def state(self) -> str:
        """ "changed" or "above the limit" if an alarm was raised at any look, else "no change
        seen", or "not enough data" if fewer than two periods could be measured, or a limit is not
        shown to be met."""
        kinds = {alarm.kind for alarm in self.alarms}
        # Where it is said how large a change may be, smaller ones are tolerated.
        for kind in (ABOVE, DRIFTED if DRIFT in self.limits else CHANGED):
            if kind in kinds:
                return kind
        measured = [sum(not math.isnan(x.value) for x in looks) for looks in self.looks.values()]
        met = all(self.possible[name] <= limit for name, limit in self.limits.items())
        return STEADY if min(measured) >= 2 and met else OPEN

    @property
    def judged(self) -> str:
        """The state in the words of verdicts: violated, holds, not enough data."""
        return {STEADY: HOLDS, OPEN: OPEN}.get(self.state, VIOLATED)

    def to_frame(self, backend: str | None = None) -> Any:
        """One row for each period and criterion."""
        rows = [(name, look) for name, looks in self.looks.items() for look in looks]
        columns = tabulate(
            (look for _, look in rows), "period", "n", "value", "stderr", "low", "high"
        )
        return to_frame({"criterion": [name for name, _ in rows], **columns}, backend)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the cells, as plain values that JSON can hold."""
        held = {key: value for key, value in vars(self).items() if key != "total"}
        held |= {"sensitive": held.pop("sensitive_name"), "state": self.state}
        held["alarms"] = [{**vars(alarm), "text": alarm.text} for alarm in self.alarms]
        return json_safe({"format": "evenhand.monitor", "version": 1, **held})

    def plot(self) -> Any:
        """A Matplotlib figure: each criterion over time, with its band and the alarms."""
        return view("plot_monitor")(self)


# ------------------------------------------------------------------------------------------------
# Periods → measures of each, and how their errors go together.


# People, and why they say nothing by themselves if so.
Size = tuple[int, str]


class Reading(NamedTuple):
    """A measure of one period; with clusters their numbers, and Σωψ/Σω of each."""

    measure: Measure
    clusters: Rows | None = None
    influence: Vector | None = None


class Series:
    """Readings of one criterion, period by period; None where a period says nothing by itself."""

    def __init__(self, readings: Sequence[Reading | None]) -> None:
        self.readings = readings
        there = [one for one in readings if one is not None]
        self.known = [k for k, one in enumerate(readings) if one is not None]
        self._place = {k: j for j, k in enumerate(self.known)}
        self._value, self._n, self._normalizer, self._freedom = (
            np.array([getattr(one.measure, name) for one in there])
            for name in ("value", "n_effective", "normalizer", "freedom")
        )
        self._covariance = _covariance(there)

    def mean(self, periods: Sequence[int]) -> Level:
        """The mean over periods, weighted by people."""
        rows = [self._place[k] for k in periods]
        n = self._n[rows]
        share = n / n.sum()
        part = self._covariance[np.ix_(rows, rows)]
        variance, apart = float(share @ part @ share), float(share**2 @ np.diag(part))
        # People who come again are no new ones.
        distinct = float(n.sum()) * (apart / variance if variance > 0 else 1.0)
        rate = 2.0 / (distinct * float(share @ self._normalizer[rows]))
        value = float(share @ self._value[rows])
        return Level(value, math.sqrt(variance), rate, float(self._freedom[rows].min()))


def _covariance(readings: Sequence[Reading]) -> Matrix:
    """Covariances of the values of periods: influences that clusters have in several of them.

    What an error has beyond influences, the noise of fitting, is shared as far as clusters are.
    """
    variance = np.array([one.measure.stderr**2 for one in readings])
    clustered = [(one.clusters, one.influence) for one in readings if one.clusters is not None]
    if not clustered:
        return np.diag(variance)
    period = np.repeat(np.arange(len(readings)), [len(units) for units, _ in clustered])
    place = period, np.concatenate([units for units, _ in clustered])
    psi = csr_array((np.concatenate([sums for _, sums in clustered]), place))
    there = csr_array((np.ones(len(period)), place))
    shared, both = (psi @ psi.T).toarray(), (there @ there.T).toarray()
    size = np.sqrt(np.diag(both))
    rest = np.sqrt(np.maximum(variance - np.diag(shared), 0.0))
    return shared + np.outer(rest, rest) * both / np.outer(size, size)


def watched_parts(labels: Sequence[Any], names: Sequence[str]) -> dict[str, dict[Any, Any]]:
    """What each label is in all groups (""), each attribute, and each group against the rest."""
    parts: dict[str, dict[Any, Any]] = {"": {v: v for v in labels}}
    if len(labels) <= 2:
        return parts
    several = names if len(names) > 1 else ()
    levels = {
        g: dict(zip(labels, own, strict=True)) for g, own in candidates(labels, several).items()
    }
    for j, name in enumerate(several):
        if len({v[j] for v in labels}) > 1:
            parts[name] = {v: v[j] for v in labels}
    return parts | levels


def _read_period(
    rows: Sample | None, clusters: Rows | None, part: Mapping[Any, Any], least: int,
    watched: Sequence[Criterion], how: Any,
) -> dict[str, Reading]:  # fmt: skip
    """Readings of one period by criterion; none where it says nothing by itself."""
    if rows is None:
        return {}
    groups = rows.groups
    values = [part[label] for label in groups.labels]
    labels = list(dict.fromkeys(values))
    place = np.array([labels.index(v) for v in values], dtype=np.intp)
    frequency = np.ones(rows.n_rows) if rows.frequency is None else rows.frequency
    inferred = groups.codes is None
    if inferred:
        shares = groups.probabilities @ (place[:, None] == np.arange(len(labels)))
        people = frequency @ shares
    else:
        codes = place[groups.codes]
        people = np.bincount(codes, frequency, len(labels))
    present = np.flatnonzero(people)
    if people.sum() < LEAST_PEOPLE or len(present) < 2 or people[present].min() < least:
        return {}
    if inferred:
        groups = replace(groups, probabilities=shares[:, present])
    else:
        groups = replace(groups, codes=np.searchsorted(present, codes))
    groups = replace(groups, labels=tuple(labels[k] for k in present))
    entropies = estimate_entropies(watched, rows.variables, groups, how, rows.frequency)
    out = {}
    for criterion in watched:
        one = measure(criterion, entropies, 0.95, math.nan, "", frequency=rows.frequency)
        if not one.defined:
            continue
        if clusters is None:
            out[criterion.name] = Reading(one)
        else:
            weight, psi = groups.row_weight, entropies.influence(criterion)
            psi = weight * (psi - np.average(psi, weights=weight)) / weight.sum()
            units, place = np.unique(clusters, return_inverse=True)
            out[criterion.name] = Reading(one, units, cluster_sums(place, psi))
    return out


def judge(
    series: Mapping[str, Cells], total: Cells, *, criteria: Sequence[str],
    limits: Mapping[str, float] | Tolerance | None, level: float, estimator: Any,
    notes: Sequence[str] = (), samples: Mapping[str, tuple[Sample, Rows]] | None = None,
) -> Monitor:  # fmt: skip
    """Measure each period of a series of cells and replay all looks.

    Parameters
    ----------
    series : mapping of period → Cells
        In the order of time, of the same edges. Each is asked for once, so that a mapping may read
        them from files.
    total : Cells
        All of them added up.
    criteria, limits, level, estimator
        As in :func:`evenhand.monitor`.
    notes : sequence of str
        What is to be said about the series.
    samples : mapping of period → rows of known group and their clusters, optional
        In place of the cells; clusters are numbered through all periods.
    """
    watched = [get_criterion(name) for name in criteria]
    asked = _checked_limits(limits, watched)
    names = list(series)
    lacking = [c.name for c in watched if c.needs and not total.has_target]
    if lacking:
        raise InputError("y_true", f"be given for {lacking[0]}, got None")
    parts = watched_parts(total.labels, total.names)
    sizes, readings = _read_all(series, samples, parts, watched, get_estimator(estimator))
    band = level / len(watched)
    looks: dict[str, dict[str, tuple[Look, ...]]] = {about: {} for about in parts}
    alarms: list[Alarm] = []
    detectable: dict[str, float] = {}
    possible: dict[str, float] = {}
    unknown = total.n_unknown / max(total.n + total.n_unknown, 1)
    for criterion in watched:
        name, limit, drift = criterion.name, asked.get(criterion.name), asked.get(DRIFT)
        own = band / len(parts) / (1 + (limit is not None) + (drift is not None))
        for about in parts:
            one = Series([period[about].get(name) for period in readings])
            looks[about][name] = tuple(_looks(names, sizes, one, band))
            raised, since = _changes(names, one, own, (name, about))
            alarms += raised
            if limit is not None:
                alarms += _above(names, one, limit, own, (name, about))
            if drift is not None:
                drifted, most = _drifts(names, one, drift, (own, level), (name, about))
                alarms += drifted
                possible[DRIFT] = max(possible.get(DRIFT, 0.0), most)
            if not about:
                detectable[name] = _smallest_rise(one, since, own)
                upper = one.mean(since).high(level) if since else 1.0
                possible[name] = (1.0 - unknown) * upper + unknown
            elif since:  # of a part the estimate: only the worst of them has to stand out
                possible[name] = max(possible[name], one.mean(since).value)
    alarms.sort(key=lambda alarm: names.index(alarm.at))
    return Monitor(
        looks=looks.pop(""), alarms=tuple(alarms), total=total, limits=asked, level=level,
        sensitive_name=total.sensitive_name, notes=tuple(notes), parts=looks,
        detectable=detectable, possible=possible,
        estimator=estimator if isinstance(estimator, str) else type(estimator).__name__,
    )  # fmt: skip


def _read_all(
    series: Mapping[str, Cells], samples: Mapping[str, tuple[Sample, Rows]] | None,
    parts: Mapping[str, Mapping[Any, Any]], watched: Sequence[Criterion], how: Any,
) -> tuple[list[Size], list[dict[str, dict[str, Reading]]]]:  # fmt: skip
    """Size of each period, and its readings by part and criterion."""
    sizes, out = [], []
    for name, cells in series.items():
        sizes.append((cells.n, _why(cells)))
        rows, clusters = None, None
        if samples is not None:
            rows, clusters = samples.get(name, (None, None))
        elif cells.n:
            refuse_copied(cells, how)
            rows = expand_cells(cells)
        out.append(
            {
                about: _read_period(
                    rows, clusters, part, LEAST_OF_GROUP if about else 1, watched, how
                )
                for about, part in parts.items()
            }
        )
    return sizes, out


def check_watch(criteria: Sequence[str], level: float, estimator: Any) -> None:
    """Refuse what cannot be watched before anything is counted."""
    if not isinstance(level, float) or not 0 < level < 1:
        raise InputError("level", f"lie between 0 and 1, got {level!r}", hint="such as 0.05.")
    if not [get_criterion(name) for name in criteria]:
        raise InputError("criteria", "name at least one criterion")
    get_estimator(estimator)
    refuse_beside_cells(estimator)


def spent(level: float, look: int) -> float:
    """α·6/(π²t²): what look t = 1, 2, … may spend of the chance of a false alarm."""
    return level * 6.0 / (math.pi * look) ** 2


def _checked_limits(
    limits: Mapping[str, float] | Tolerance | None, watched: Sequence[Criterion]
) -> dict[str, float]:
    names = [criterion.name for criterion in watched] + [DRIFT]
    if isinstance(limits, Tolerance):
        limits = {name: ends[1] for name, ends in limits.clauses}
    for name, value in (limits or {}).items():
        if name not in names:
            raise InputError(
                "limits", f"be on what is watched ({', '.join(names)}), got {name!r}",
                hint="name it in `criteria`.",
            )  # fmt: skip
        if not isinstance(value, int | float) or not 0 < value < 1:
            raise InputError("limits", f"lie between 0 and 1, got {value!r} for {name}")
    return {name: float(value) for name, value in (limits or {}).items()}


def _looks(names: Sequence[str], sizes: Sequence[Size], series: Series, level: float) -> list[Look]:
    out = []
    look = 0
    for k, (name, (n, why)) in enumerate(zip(names, sizes, strict=True)):
        reading = series.readings[k]
        if reading is None:
            out.append(Look(name, n, math.nan, math.nan, 0.0, 1.0, why))
            continue
        look += 1
        mean, one, chance = series.mean([k]), reading.measure, spent(level, look) / 2
        out.append(Look(name, n, one.value, one.stderr, mean.low(chance), mean.high(chance)))
    return out


def _why(cells: Cells) -> str:
    if cells.n < LEAST_PEOPLE:
        return f"fewer than {LEAST_PEOPLE} people" if cells.n else "no people"
    present = np.unique(cells.group[cells.count > 0])
    return f"one group only ({label_text(cells.labels[present[0]])})" if len(present) == 1 else OPEN


def _compare(
    series: Series, begin: list[int], chance: float
) -> Iterator[tuple[int, Level, Level, float]]:
    """The last 1, 2, 4, … periods and those before them, with a share of the chance for each."""
    windows = [2**j for j in range(int(math.log2(max(len(begin) - 1, 1))) + 1)]
    for m in windows if len(begin) > 1 else ():
        yield m, series.mean(begin[:-m]), series.mean(begin[-m:]), chance / (2 * len(windows))


def _changes(
    names: Sequence[str], series: Series, level: float, about: tuple[str, str]
) -> tuple[list[Alarm], list[int]]:
    """Alarms, and the periods since the last of them; `about` is the criterion and the part."""
    alarms: list[Alarm] = []
    begin: list[int] = []  # periods measured since the last change
    criterion, part = about
    for look, t in enumerate(series.known, 1):
        begin.append(t)
        best: tuple[float, int, Level, Level] | None = None
        for m, before, after, chance in _compare(series, begin, spent(level, look)):
            if after.exceeds(before, chance) or before.exceeds(after, chance):
                # Where squares between are largest, with one variance for both: errors of their own
                # would favor windows that reach back before the change.
                squares = (after.value - before.value) ** 2 / (after.rate + before.rate)
                if best is None or squares > best[0]:
                    best = squares, m, before, after
        if best is not None:
            _, m, before, after = best
            ends = before.value, after.value
            alarms.append(Alarm(names[t], CHANGED, criterion, names[begin[-m]], *ends, part))
            begin = begin[-m:]
    return alarms, begin


def _smallest_rise(series: Series, begin: list[int], level: float) -> float:
    """The smallest rise over the periods before it that the last look would have told of."""
    smallest = math.inf
    allowed = spent(level, max(len(series.known), 1))
    for _, before, after, chance in _compare(series, begin, allowed):
        base = max(before.value, 0.0)
        low, high = base, 1.0
        if not after.moved_to(high).exceeds(before, chance):
            continue
        for _ in range(30):
            middle = 0.5 * (low + high)
            if after.moved_to(middle).exceeds(before, chance):
                high = middle
            else:
                low = middle
        smallest = min(smallest, high - base)
    return smallest


def _above(
    names: Sequence[str], series: Series, limit: float, level: float, about: tuple[str, str]
) -> list[Alarm]:
    """The first look at which a window is above the limit."""
    criterion, part = about
    for look, t in enumerate(series.known, 1):
        seen = series.known[:look]
        windows = [m for m in (2**j for j in range(20)) if m <= look]
        for m in windows:
            mean = series.mean(seen[-m:])
            if mean.low(spent(level, look) / len(windows)) > limit:
                since = names[seen[-m]]
                return [Alarm(names[t], ABOVE, criterion, since, math.nan, mean.value, part)]
    return []


def _drifts(
    names: Sequence[str], series: Series, limit: float, levels: tuple[float, float],
    about: tuple[str, str],
) -> tuple[list[Alarm], float]:  # fmt: skip
    """The last 1, 2, 4, … periods that rose beyond the limit, and the largest rise possible.

    Of a part the rise that is estimated, as only the worst of them has to stand out.
    """
    alarms: list[Alarm] = []
    own, level = levels
    most = 0.0 if about[1] or len(series.known) > 1 else 1.0
    for m, before, after, chance in _compare(series, series.known, spent(own, len(series.known))):
        since, ends = names[series.known[-m]], (before.value, after.value)
        if after.rise(before, chance)[0] > limit and not alarms:
            last = names[series.known[-1]]
            alarms.append(Alarm(last, DRIFTED, about[0], since, *ends, about[1]))
        most = max(most, ends[1] - ends[0] if about[1] else after.rise(before, level)[1])
    return alarms, most
