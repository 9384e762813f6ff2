"""An audit against a tolerance: pass, fail, or not enough data.

Every clause asks two questions of every part of an audit that it applies to, each by a one-sided
test: does the true value lie beyond the tolerance, does it lie within? A fail needs one proof that
a value lies beyond, and allows for many having been tried (Holm); a pass needs the proof that each
value lies within, where trying many only makes it harder (an intersection-union test). So neither
is wrong more often than the level says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtr

from .._core.frames import json_safe, to_frame
from .._core.views import view
from ..data.criteria import CRITERIA, WITH_CONTROLS
from ..measures.measures import HOLDS, OPEN, VIOLATED, Measure, judge, units_needed
from .impact import ADJUSTED, AT_CUTOFF, NEED_TARGET, STATISTICS, Impact, ImpactNumber, holm
from .tolerance import Tolerance, check_level, of_information

if TYPE_CHECKING:
    from .result import Audit


NEED_CONTROLS = {*WITH_CONTROLS, *ADJUSTED}
OUTCOMES = {VIOLATED: "fail", OPEN: "not enough data", HOLDS: "pass"}


@dataclass(frozen=True)
class ClauseResult:
    """One clause on one part of an audit, or on one of its groups.

    Attributes
    ----------
    clause : str
    part : str
        The attribute, the crossing of several, or the worst group against the rest.
    group, at : str
        Of a number of the impact table, else "".
    value : float
    interval : (float, float)
        One-sided bounds at the level: an interval at 1 − 2·level. Within the tolerance it is a
        pass of this clause.
    tolerance : (float, float)
        An open end is infinite.
    p_within : float
        Of the hypothesis that the true value lies within the tolerance, by Holm's rule over all
        clauses; small is a violation.
    p_beyond : float
        Of the hypothesis that it lies beyond; small means that the clause holds.
    judged : {"violated", "holds", "not enough data"}
    needed : float
        Rows, or clusters, that would decide in four of five samples if the estimate is the truth;
        NaN where it is decided, infinite where no number would.
    note : str
        Why nothing could be decided, where that is not for want of rows.
    """

    clause: str
    part: str
    group: str
    at: str
    value: float
    interval: tuple[float, float]
    tolerance: tuple[float, float]
    p_within: float
    p_beyond: float
    judged: str = OPEN
    needed: float = math.nan
    note: str = ""

    @property
    def within(self) -> bool:
        """Whether the estimate lies within the tolerance."""
        return self.tolerance[0] <= self.value <= self.tolerance[1]

    @property
    def beyond_alone(self) -> bool:
        """Whether the interval lies beyond, though not surely so among all the tests made."""
        low, high = self.interval
        return self.judged == OPEN and (high < self.tolerance[0] or low > self.tolerance[1])


@dataclass(frozen=True)
class Verdict:
    """The result of :meth:`evenhand.Audit.verdict`.

    Attributes
    ----------
    outcome : {"pass", "fail", "not enough data"}
    clauses : tuple of ClauseResult
    tolerance : Tolerance
    level : float
        The chance of a wrong pass, and of a wrong fail, is no larger.
    unit : {"rows", "clusters"}
        What `needed` counts, and `n`, how many there are.
    unjudged : tuple of str
        Groups too small to be judged by themselves.
    remarks : tuple of str
        What was done to the rows, in sentences.
    """

    outcome: str
    clauses: tuple[ClauseResult, ...]
    tolerance: Tolerance
    level: float
    unit: str
    n: int
    unjudged: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.outcome == "pass"

    @property
    def needed(self) -> float:
        """Rows or clusters that would decide every clause that is open; NaN where none is."""
        open_ = [c.needed for c in self.clauses if c.judged == OPEN]
        return max(open_) if open_ else math.nan

    def to_frame(self, backend: str | None = None) -> Any:
        """One row per clause and part or group.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
        """
        return to_frame(self._columns(), backend)

    def _columns(self) -> dict[str, list[Any]]:
        names = ("clause", "part", "group", "at", "value")
        columns = {name: [getattr(c, name) for c in self.clauses] for name in names}
        for j, end in enumerate(("low", "high")):
            columns[end] = [c.interval[j] for c in self.clauses]
            columns[f"tolerance_{end}"] = [c.tolerance[j] for c in self.clauses]
        names = ("p_within", "p_beyond", "judged", "needed", "note")
        return columns | {name: [getattr(c, name) for c in self.clauses] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold."""
        return json_safe(
            {
                "format": "evenhand.verdict",
                "version": 1,
                "outcome": self.outcome,
                "level": self.level,
                "unit": self.unit,
                "n": self.n,
                "needed": self.needed,
                "unjudged": self.unjudged,
                "remarks": self.remarks,
                "tolerance": {**self.tolerance.to_dict(), "digest": self.tolerance.digest},
                "clauses": [dict(vars(clause)) for clause in self.clauses],
            }
        )

    def __str__(self) -> str:
        return view("describe_verdict")(self)


def verdict_of(audit: Audit, tolerance: Any, level: float | None = None) -> Verdict:
    """The verdict of :meth:`evenhand.Audit.verdict`."""
    if not isinstance(tolerance, Tolerance):
        raise ValueError(
            f"`tolerance` must be a Tolerance, got {type(tolerance).__name__}. Hint: "
            "eh.Tolerance(independence=0.01), or eh.Tolerance.from_file(path)."
        )
    level = tolerance.level if level is None else check_level(level)
    has_target = "mean_target" in audit._groups.columns
    lacking = [
        name
        for name, _ in tolerance.clauses
        if (name in CRITERIA and name not in audit.measures)
        or (name in NEED_TARGET and not has_target)
        or (name in NEED_CONTROLS and audit.conditional is None)
    ]
    if lacking:
        controlled = [name for name in lacking if name in NEED_CONTROLS]
        raise ValueError(
            f"`tolerance` must not ask for {', '.join(lacking)}, which this audit has not measured."
            + (" Hint: pass `controls` to the audit." if controlled else "")
            + (" Hint: pass `y_true` to the audit." if len(controlled) < len(lacking) else "")
        )
    found: list[ClauseResult] = []
    errors: list[float] = []
    for result, z in _tests(audit, tolerance, level):
        found.append(result)
        errors.append(z)
    within = holm(np.array([c.p_within for c in found]))
    first = next(iter(audit.measures.values()))
    clustered = first.n_clusters is not None
    n = int(first.n_clusters if first.n_clusters is not None else first.n)
    is_function = audit.conditional is not None and audit.conditional.is_function
    judged = []
    for clause, p, z in zip(found, within.tolist(), errors, strict=True):
        word = judge(p, clause.p_beyond, level)
        # A fail has to stand out among all tests, a pass of a clause does not.
        strict = level if clause.within else level / len(found)
        needed = units_needed(n, z, strict) if word == OPEN else math.nan
        note = clause.note
        if clause.clause in WITH_CONTROLS and is_function and word != OPEN:
            note = (
                "the score is a function of controls and group, so this says that a difference "
                "can be told and not how large it is; see the adjusted gap"
            )
        judged.append(replace(clause, p_within=p, judged=word, needed=needed, note=note))
    words = {clause.judged for clause in judged}
    worst = VIOLATED if VIOLATED in words else OPEN if OPEN in words else HOLDS
    small = dict.fromkeys(
        group for part in _impact_parts(audit) for group in _small(part, tolerance)
    )
    asked = any(not of_information(name) for name, _ in tolerance.clauses)
    return Verdict(
        OUTCOMES[worst], tuple(judged), tolerance, level, "clusters" if clustered else "rows", n,
        tuple(small) if asked else (), audit.remarks,
    )  # fmt: skip


def _tests(
    audit: Audit, tolerance: Tolerance, level: float
) -> Iterator[tuple[ClauseResult, float]]:
    """Every test there is, and how many standard errors its value is from the nearest limit."""
    for name, ends in tolerance.clauses:
        if name in CRITERIA:
            for _, part, m, compared in information_parts({"": audit}, {name: ends[1]}):
                yield _information(name, part or audit.sensitive_name, m, ends, level, compared)
    wanted = {name: ends for name, ends in tolerance.clauses if name in STATISTICS}
    if wanted:
        parts = _impact_parts(audit)
        groups = {group for one in parts for group in one.labels}
        for one in parts:
            table = _impact(one, tolerance, groups)
            for name, ends in wanted.items():
                yield from _numbers(table, name, ends, level)
    yield from _adjusted(audit, tolerance, level)


def _adjusted(
    audit: Audit, tolerance: Tolerance, level: float
) -> Iterator[tuple[ClauseResult, float]]:
    """Clauses on what the controls leave: the information, and the gaps."""
    found = audit.conditional
    if found is None:
        return
    for name, ends in tolerance.clauses:
        if name in WITH_CONTROLS:
            yield _information(name, audit.sensitive_name, found.information, ends, level, 1)
    wanted = {name: ends for name, ends in tolerance.clauses if name in ADJUSTED}
    if not wanted:
        return
    if tolerance.reference not in ("largest", found.reference):
        raise ValueError(
            f"`reference` must be that of the adjusted gaps, {found.reference!r}, got "
            f"{tolerance.reference!r}. Hint: pass `reference` to the audit."
        )
    small = _small(audit, tolerance)
    gaps = [gap for gap in found.gaps if gap.group not in small]
    for name, ends in wanted.items():
        for gap in gaps:
            one = getattr(gap, ADJUSTED[name])
            low, high = one.interval
            number = ImpactNumber(
                gap.group, name, "", one.value, low, high, one.p_value, False, one.value,
                one.stderr, one.freedom,
            )  # fmt: skip
            yield _number(number, audit.sensitive_name, ends, level)
        if not gaps:
            yield _nobody(name, audit.sensitive_name, found.reference, tolerance.smallest, ends)


def information_parts(
    audits: Mapping[str, Audit], limits: Mapping[str, float]
) -> Iterator[tuple[tuple[str, str], str | None, Measure, int]]:
    """What limits on criteria apply to: ((audit, criterion), part, measure, how many compared).

    A crossing is judged beside what it is made of, which it must not hide; a part that is an audit
    of its own is judged there. A part of None is the audit itself.
    """
    for name, audit in audits.items():
        for criterion in limits:
            worst = audit.one_against_rest.get(criterion)
            for part, m in audit.parts(criterion).items():
                whole = part == audit.sensitive_name
                if not whole and part in audits:
                    continue
                compared = worst.n_compared if worst is not None and m is worst.measure else 1
                yield (name, criterion), None if whole else part, m, compared


def _information(
    name: str, part: str, m: Measure, ends: tuple[float, float], level: float, compared: int
) -> tuple[ClauseResult, float]:
    p_within, p_beyond = m.p_values(ends[1])
    note = ""
    if not m.defined:
        note, p_within, p_beyond = "there is nothing to measure", 1.0, 1.0
    elif m.unsized and p_within >= 0.5:
        note = "a test finds a difference that the estimate is too coarse to size"
    # The worst group was picked among so many.
    p_within = min(p_within * compared, 1.0)
    result = ClauseResult(
        name, part, "", "", m.shown, m.bounds(level), ends, p_within, p_beyond,
        note=note,
    )  # fmt: skip
    return result, m.errors_above(ends[1])


def _impact_parts(audit: Audit) -> list[Audit]:
    return [audit, *audit.attributes.values()]


def _small(audit: Audit, tolerance: Tolerance) -> list[str]:
    shares = audit._groups.columns["share"]
    return [g for g, s in zip(audit.labels, shares, strict=True) if s < tolerance.smallest]


def _impact(audit: Audit, tolerance: Tolerance, groups: set[str]) -> Impact:
    reference = tolerance.reference
    # Of several attributes, a group of one is no reference for another.
    if reference not in audit.labels and reference in groups:
        reference = "largest"
    at = tolerance.at if any(name in tolerance for name in AT_CUTOFF) else ()
    return audit.impact(
        reference, at, tolerance.favorable or "high", smallest=tolerance.smallest
    )  # fmt: skip


def _numbers(
    table: Impact, name: str, ends: tuple[float, float], level: float
) -> Iterator[tuple[ClauseResult, float]]:
    judged = [n for n in table.numbers if n.statistic == name and n.group not in table.apart]
    for number in judged:
        yield _number(number, table.sensitive_name, ends, level)
    if not judged:
        yield _nobody(name, table.sensitive_name, table.reference, table.smallest, ends)


def _nobody(
    name: str, part: str, reference: str, smallest: float, ends: tuple[float, float]
) -> tuple[ClauseResult, float]:
    """A clause that no group is large enough for: nothing is shown, so nothing passes."""
    note = f"every group but {reference} is under {100 * smallest:g}% of the rows"
    nothing = (math.nan, math.nan)
    return ClauseResult(name, part, "", "", math.nan, nothing, ends, 1.0, 1.0, note=note), 0.0


def _number(
    n: ImpactNumber, part: str, ends: tuple[float, float], level: float
) -> tuple[ClauseResult, float]:
    """Two one-sided tests: beyond if above the upper end or below the lower one."""
    if not n.defined:
        nothing = (math.nan, math.nan)
        return ClauseResult(
            n.statistic, part, n.group, n.at, n.value, nothing, ends, 1.0, 1.0,
            note="the number is not defined here",
        ), 0.0  # fmt: skip
    above_low, above_high = (n.errors_from(end) for end in ends)
    # By how much the value lies beyond the nearer end; from that end the other may be passed too,
    # which a range of many standard errors rules out.
    beyond = max(-above_low, above_high)
    far = beyond + (above_low - above_high if math.isfinite(above_low - above_high) else math.inf)
    p_within = min(float(stdtr(n.freedom, -beyond) + stdtr(n.freedom, -far)), 1.0)
    p_beyond = max(float(stdtr(n.freedom, -above_low)), float(stdtr(n.freedom, above_high)))
    nearest = min(abs(above_low), abs(above_high))
    return ClauseResult(
        n.statistic, part, n.group, n.at, n.value, n.interval(1 - 2 * level), ends, p_within,
        p_beyond,
    ), nearest  # fmt: skip
