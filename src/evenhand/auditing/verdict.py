"""An audit against a tolerance: pass, fail, or not enough data.

Every clause asks two questions of every part of an audit that it applies to, each by a one-sided
test: is the true value outside the tolerance, is it within? A fail needs one proof that
a value is outside, and allows for many having been tried (Holm); a pass needs the proof that each
value is within, where trying many only makes it harder (an intersection-union test). So neither
is wrong more often than the level says.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scipy.special import stdtr

from .._core.frames import json_safe, tabulate
from .._core.validation import InputError
from .._core.views import Tabled
from ..data.criteria import CRITERIA, WITH_CONTROLS
from ..measures.measures import HOLDS, OPEN, VIOLATED, Measure, judge, units_needed
from .adjusted_gap import MOST_IMBALANCE, Imbalance
from .impact import (
    ADJUSTED,
    AT_CUTOFF,
    MOST_SKEWED,
    NEED_TARGET,
    WORDS,
    Impact,
    ImpactNumber,
    impact_table,
    number_alone,
)
from .influence import find_reference, holm
from .tolerance import DRIFT, Tolerance, check_level, of_information

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
        Of the hypothesis that the true value is within the tolerance, by Holm's rule over all
        clauses; small means that the limit is not met.
    p_beyond : float
        Of the hypothesis that it is outside; small means that the clause holds.
    errors : float
        Standard errors from the value to the nearer end of the tolerance; 0 where that is not
        known.
    judged : {"violated", "holds", "not enough data"}
    needed : float
        Rows, or clusters, that would decide in four of five samples if the estimate is the truth;
        NaN where it is decided, infinite where no number would.
    note : str
        Why nothing could be decided, where that is not for want of rows.
    """

    clause: str
    part: str
    tolerance: tuple[float, float]
    group: str = ""
    at: str = ""
    value: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)
    p_within: float = 1.0
    p_beyond: float = 1.0
    errors: float = 0.0
    judged: str = OPEN
    needed: float = math.nan
    note: str = ""

    @property
    def within(self) -> bool:
        """Whether the estimate is within the tolerance."""
        return self.tolerance[0] <= self.value <= self.tolerance[1]

    @property
    def beyond_alone(self) -> bool:
        """Whether the interval is outside, though not surely so among all the tests made."""
        low, high = self.interval
        return self.judged == OPEN and (high < self.tolerance[0] or low > self.tolerance[1])


@dataclass(frozen=True)
class Verdict(Tabled):
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
        Groups too small to be judged by themselves; they are judged together where that makes
        them large enough.
    unjudged_share : float
        Share of the rows that no clause on groups was asked of, neither alone nor together.
    remarks : tuple of str
        What was done to the rows, in sentences.
    unweighted : str
        The outcome without weights and frequencies, where there are any.
    """

    outcome: str
    clauses: tuple[ClauseResult, ...]
    tolerance: Tolerance
    level: float
    unit: str
    n: int
    unjudged: tuple[str, ...] = ()
    unjudged_share: float = 0.0
    remarks: tuple[str, ...] = ()
    unweighted: str = ""

    @property
    def passed(self) -> bool:
        return self.outcome == "pass"

    @property
    def needed(self) -> float:
        """Rows or clusters that would decide every clause that is open; NaN where none is."""
        open_ = [c.needed for c in self.clauses if c.judged == OPEN]
        return max(open_) if open_ else math.nan

    def _columns(self) -> dict[str, list[Any]]:
        return tabulate(
            self.clauses, "clause", "part", "group", "at", "value", "interval", "tolerance",
            "p_within", "p_beyond", "judged", "needed", "note",
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values that JSON can hold."""
        tolerance = {**self.tolerance.to_dict(), "digest": self.tolerance.digest}
        held = {**vars(self), "tolerance": tolerance, "needed": self.needed}
        return json_safe({"format": "evenhand.verdict", "version": 1, **held})


def verdict_of(audit: Audit, tolerance: Any, level: float | None = None) -> Verdict:
    """The verdict of :meth:`evenhand.Audit.verdict`."""
    if not isinstance(tolerance, Tolerance):
        raise InputError(
            "tolerance", f"be a Tolerance, got {type(tolerance).__name__}",
            hint="eh.Tolerance(independence=0.01), or eh.Tolerance.from_file(path).",
        )  # fmt: skip
    level = tolerance.level if level is None else check_level(level)
    _refuse_unmeasured(audit, tolerance)
    first = next(iter(audit.measures.values()))
    n = int(first.n if first.n_clusters is None else first.n_clusters)
    judged = tuple(_judged(audit, tolerance, level, n))
    words = {clause.judged for clause in judged}
    worst = VIOLATED if VIOLATED in words else OPEN if OPEN in words else HOLDS
    small: dict[str, None] = {}
    share = 0.0
    if any(not of_information(name) for name, _ in tolerance.clauses):
        parts = [audit, *audit.attributes.values()]
        small = dict.fromkeys(g for part in parts for g in _small(part, tolerance))
        share = max(_unjudged(part, tolerance)[1] for part in parts)
    unit = "rows" if first.n_clusters is None else "clusters"
    plain, remarks = _plain_outcome(audit, tolerance, level), (*audit.remarks, *_unknown(audit))
    if plain not in ("", OUTCOMES[worst]):
        remarks = (f"Without {audit.counted} the outcome is: {plain}.", *remarks)
    return Verdict(
        OUTCOMES[worst], judged, tolerance, level, unit, n, tuple(small), share, remarks, plain
    )


def _judged(audit: Audit, tolerance: Tolerance, level: float, n: int) -> Iterator[ClauseResult]:
    """All clauses with what is judged of them, by Holm's rule over all tests."""
    tests = list(_tests(audit, tolerance, level))
    within = holm([clause.p_within for clause in tests])
    calm = _without_far(audit, tolerance, level) if tests else {}
    is_function = audit.conditional is not None and audit.conditional.is_function
    for clause, p in zip(tests, within.tolist(), strict=True):
        word = judge(p, clause.p_beyond, level)
        # A fail has to stand out among all tests, a pass of a clause does not.
        strict = level if clause.within else level / len(tests)
        needed = units_needed(n, clause.errors, strict) if word == OPEN else math.nan
        note = clause.note
        if clause.clause in WITH_CONTROLS and is_function and word != OPEN:
            note = (
                "the score is a function of controls and group, so this says that a difference "
                "can be told and not how large it is; see the adjusted gap"
            )
        clause = replace(clause, p_within=p, judged=word, needed=needed, note=note)
        other = calm.get((clause.clause, clause.part, clause.group))
        if word == HOLDS and other is not None and not other.p_beyond < level:
            note = (
                "a few rows of far scores or targets carry nearly all of the spread; among the "
                f"others the number is {other.value:.3g}"
            )
            clause = replace(clause, judged=OPEN, needed=math.inf, note=note)
        yield withhold(audit, clause, tolerance)


def _without_far(
    audit: Audit, tolerance: Tolerance, level: float
) -> dict[tuple[str, str, str], ClauseResult]:
    """Tests of groups without the rows that carry nearly all of the spread, where there are any.

    Two huge scores in a hundred make every standardized difference small, and errors alike.
    """
    own = audit._rows.without_far()
    if own is None:
        return {}
    attributes = {
        name: replace(one, _rows=one._rows.without_far() or one._rows)
        for name, one in audit.attributes.items()
    }
    calm = replace(audit, _rows=own, attributes=attributes)
    tests = _group_tests(calm, tolerance, level, _BY_MEANS)
    return {(test.clause, test.part, test.group): test for test in tests}


def _plain_outcome(audit: Audit, tolerance: Tolerance, level: float) -> str:
    """The outcome without weights and frequencies; "" where there are none."""
    if audit._unweighted is None:
        return ""
    try:
        return verdict_of(audit._unweighted(), tolerance, level).outcome
    except ValueError:  # such as too few rows, where each stands for many people
        return OUTCOMES[OPEN]


def _unknown(audit: Audit) -> Iterator[str]:
    """How scores of rows without a known group compare with the others', in a sentence."""
    compared = audit._rows.compare_unknown()
    if compared is not None:
        theirs, others, p_value = compared
        yield (
            f"{audit.n_unknown:,} of {audit.n_rows:,} rows have no known group: their mean score "
            f"is {theirs:.4g}, that of the others {others:.4g} (p = {p_value:.2g})."
        )


def _refuse_unmeasured(audit: Audit, tolerance: Tolerance) -> None:
    """Refuse clauses on what the audit has not measured."""
    if DRIFT in tolerance:
        raise InputError(
            "tolerance", "not ask for drift, which needs several periods",
            hint="pass it to evenhand.monitor as `limits`.",
        )  # fmt: skip
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
        wanted = ["`controls`"] if controlled else []
        wanted += ["`y_true`"] if len(controlled) < len(lacking) else []
        raise InputError(
            "tolerance", f"not ask for {', '.join(lacking)}, which this audit has not measured",
            hint=f"pass {' and '.join(wanted)} to the audit.",
        )  # fmt: skip


# Numbers that a few far rows decide on while most rows say otherwise. Shares and distances of ranks
# do not see how far rows are, and totals are what far rows make them.
_BY_MEANS = {*WORDS} - {*AT_CUTOFF, "kolmogorov_smirnov", "actual_expected", "mean_residual"}
# Beyond this share of rows that nobody judged, or whose group is not known, nothing passes.
_MOST_UNJUDGED = 0.05


def withhold(audit: Audit, clause: ClauseResult, tolerance: Tolerance) -> ClauseResult:
    """A pass that the data behind it cannot carry becomes "not enough data", with the reason."""
    if clause.judged != HOLDS:
        return clause
    several = "several rows seem to be one person's; name what they have in common as the cluster"
    reason = (
        (several if audit.shared else "")
        or _inferred(audit, clause, tolerance)
        or _hidden(audit, clause, tolerance)
        or _left_out(audit, clause, tolerance)
    )
    return replace(clause, judged=OPEN, needed=math.inf, note=reason) if reason else clause


def _inferred(audit: Audit, clause: ClauseResult, tolerance: Tolerance) -> str:
    """Why inferred groups do not carry a pass, or ""."""
    result = audit.imputation
    if result is None or result.assume == "guess":
        return ""
    gap = next((gap for gap in result.gaps if gap.group == clause.group), None)
    same = gap is not None and tolerance.reference in ("largest", gap.reference)
    if clause.clause == "mean_difference" and gap is not None and same:
        ranges = [gap.regressed_interval]
        if result.assume is None:
            ranges.append(gap.bounds)
        low, high = clause.tolerance
        if all(low <= a and b <= high for a, b in ranges):
            return ""
        return "groups are inferred, and other assumptions about them give a larger difference"
    return (
        "groups are inferred, and a pass depends on what is assumed about them; state it with "
        'Proxy(..., assume="guess") if the score depends on the group through them alone'
    )


def _hidden(audit: Audit, clause: ClauseResult, tolerance: Tolerance) -> str:
    """Why rows of unknown group stand in the way of a pass, or "".

    With a share u of them, I(S;A)/H(A) can be as large as (1 − u)·(value among the others) + u.
    """
    share = audit.n_unknown / audit.n_rows if audit.n_rows else 0.0
    limit, could = _MOST_UNJUDGED, ""
    if of_information(clause.clause):
        limit = (clause.tolerance[1] - clause.interval[1]) / max(1.0 - clause.interval[1], 1e-12)
    part = audit.attributes.get(clause.part, audit)
    bounded = clause.clause == "mean_difference" and tolerance.reference != "best"
    if share and bounded and clause.group in part.labels:
        reference = tolerance.reference if tolerance.reference in part.labels else "largest"
        ref = find_reference(reference, part.labels, part._rows.rows.groups.shares)
        down, up = part._rows.moved_by_unknown(part.labels.index(clause.group), ref)
        ends = clause.interval[0] + down, clause.interval[1] + up
        inside = clause.tolerance[0] <= ends[0] and ends[1] <= clause.tolerance[1]
        limit, could = (1.0 if inside else 0.0), f": {ends[0]:.3g} to {ends[1]:.3g}"
    if share <= limit:
        return ""
    return (
        f"{audit.n_unknown:,} rows ({100 * share:.1f}%) have no known group, and could hide a "
        f"difference beyond the limit{could}"
    )


def _left_out(audit: Audit, clause: ClauseResult, tolerance: Tolerance) -> str:
    """Why groups too small to be judged stand in the way of a pass, or ""."""
    if of_information(clause.clause):
        return ""
    small, share = _unjudged(audit.attributes.get(clause.part, audit), tolerance)
    if share <= _MOST_UNJUDGED:
        return ""
    return (
        f"{len(small)} groups that are too small to be judged hold {100 * share:.1f}% of the rows; "
        "merge them into larger ones"
    )


def _tests(audit: Audit, tolerance: Tolerance, level: float) -> Iterator[ClauseResult]:
    """Every test there is."""
    for name, ends in tolerance.clauses:
        if name in CRITERIA:
            for _, part, m, compared in information_parts({"": audit}, {name: ends[1]}):
                yield _information(name, part or audit.sensitive_name, m, ends, level, compared)
    yield from _group_tests(audit, tolerance, level, WORDS)
    yield from _adjusted(audit, tolerance, level)


def _group_tests(
    audit: Audit, tolerance: Tolerance, level: float, among: Collection[str]
) -> Iterator[ClauseResult]:
    """Tests of some of the numbers of groups, crossed and by attribute."""
    wanted = {name: ends for name, ends in tolerance.clauses if name in among}
    parts = [audit, *audit.attributes.values()] if wanted else []
    groups = {group for one in parts for group in one.labels}
    for one in parts:
        for table in _impacts(one, tolerance, groups, tuple(wanted)):
            for name, ends in wanted.items():
                yield from _numbers(table, name, ends, level, tolerance.reference == "best")


def _adjusted(audit: Audit, tolerance: Tolerance, level: float) -> Iterator[ClauseResult]:
    """Clauses on what the controls leave: the information, and the gaps."""
    conditional = audit.conditional
    if conditional is None:
        return
    for name, ends in tolerance.clauses:
        if name in WITH_CONTROLS:
            test = _information(name, audit.sensitive_name, conditional.information, ends, level, 1)
            yield _open_unbalanced(test, conditional.balance)
    wanted = {name: ends for name, ends in tolerance.clauses if name in ADJUSTED}
    if not wanted:
        return
    if tolerance.reference not in ("largest", conditional.reference):
        raise InputError(
            "reference", f"be that of the adjusted gaps, {conditional.reference!r}, got "
            f"{tolerance.reference!r}", hint="name the same reference for the audit.",
        )  # fmt: skip
    small = _small(audit, tolerance)
    gaps = [gap for gap in conditional.gaps if gap.group not in small]
    for name, ends in wanted.items():
        for gap in gaps:
            one = getattr(gap, ADJUSTED[name])
            number = number_alone(gap.group, name, one.value, one.stderr, one.freedom, one.skewness)
            test = _number(number, audit.sensitive_name, ends, level)
            yield _open_unbalanced(test, gap.balance)
        if not gaps:
            note = _nobody(conditional.reference, tolerance.smallest)
            yield ClauseResult(name, audit.sensitive_name, ends, note=note)


def _open(clause: ClauseResult, note: str) -> ClauseResult:
    """A clause on which nothing is decided, and why."""
    return replace(clause, p_within=1.0, p_beyond=1.0, errors=0.0, note=note)


def _open_unbalanced(test: ClauseResult, balance: Imbalance) -> ClauseResult:
    """Decide nothing where weights leave the controls of the groups too different."""
    if balance.is_balanced:
        return test
    note = (
        f"the controls of {balance.group!r} and of the weighted reference still differ by "
        f"{balance.largest:.2g} standard deviations, more than {MOST_IMBALANCE:g}"
    )
    return _open(test, note)


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
) -> ClauseResult:
    p_within, p_beyond = m.p_values(ends[1])
    # The worst group was picked among so many.
    result = ClauseResult(
        name, part, ends, value=m.shown, interval=m.bounds(level), errors=m.errors_above(ends[1]),
        p_within=min(p_within * compared, 1.0), p_beyond=p_beyond,
    )  # fmt: skip
    if not m.defined:
        return _open(result, "there is nothing to measure")
    if m.unsized and p_within >= 0.5:
        note = "a test finds a difference that the estimate is too coarse to size"
        return replace(result, note=note)
    return result


def _small(audit: Audit, tolerance: Tolerance) -> list[str]:
    shares = audit._groups.columns["share"]
    return [g for g, s in zip(audit.labels, shares, strict=True) if s < tolerance.smallest]


def _unjudged(audit: Audit, tolerance: Tolerance) -> tuple[list[str], float]:
    """Groups too small to be judged alone or together, and their share of the rows."""
    small = _small(audit, tolerance)
    shares = dict(zip(audit.labels, audit._groups.columns["share"], strict=True))
    share = float(sum(shares[group] for group in small))
    if share >= tolerance.smallest:
        return [], 0.0
    return small, share


def _impacts(
    audit: Audit, tolerance: Tolerance, groups: set[str], statistics: tuple[str, ...]
) -> Iterator[Impact]:
    """Tables of the groups that are large enough, and of all others together."""
    reference = tolerance.reference
    # Of several attributes, a group of one is no reference for another.
    if reference not in audit.labels and reference in groups:
        reference = "largest"
    is_cut = any(name in tolerance for name in AT_CUTOFF)
    how: dict[str, Any] = {
        "at": tolerance.at if is_cut else (), "cutoffs": tolerance.cutoffs if is_cut else (),
        "favorable": tolerance.favorable or "high", "smallest": tolerance.smallest,
        "statistics": statistics,
    }  # fmt: skip
    table = audit._compare(reference=reference, **how)
    yield table
    small = _small(audit, tolerance)
    if small and not _unjudged(audit, tolerance)[0]:
        name = f"{len(small)} small groups together"
        # A small reference is compared as well, with the largest of the others.
        left = [group for group in audit.labels if group not in small]
        against = table.reference if table.reference in left else "largest"
        pooled = audit._rows.pool(small, name)
        one = impact_table(pooled, reference=against, sensitive_name=audit.sensitive_name, **how)
        yield replace(one, numbers=tuple(n for n in one.numbers if n.group == name))


def _numbers(
    table: Impact, name: str, ends: tuple[float, float], level: float, is_chosen: bool
) -> Iterator[ClauseResult]:
    judged = [n for n in table.numbers if n.statistic == name and n.group not in table.apart]
    # A reference that was chosen for being the best makes all pairs of groups count.
    more = (len(table.groups) - len(table.apart)) / 2 if is_chosen else 1.0
    for number in judged:
        clause = _number(number, table.sensitive_name, ends, level)
        yield replace(clause, p_within=min(clause.p_within * max(more, 1.0), 1.0))
    if not judged:
        note = _nobody(table.reference, table.smallest)
        yield ClauseResult(name, table.sensitive_name, ends, note=note)


def _nobody(reference: str, smallest: float) -> str:
    """Why a clause that no group is large enough for cannot pass."""
    return f"every group but {reference} is under {100 * smallest:g}% of the rows"


def _number(n: ImpactNumber, part: str, ends: tuple[float, float], level: float) -> ClauseResult:
    """Two one-sided tests: beyond if above the upper end or below the lower one."""
    result = ClauseResult(n.statistic, part, ends, n.group, n.at, n.value)
    if not n.defined:
        return replace(result, note="the number is not defined here")
    above_low, above_high = (n.errors_from(end) for end in ends)
    # A fail rests on a distance that is not the largest of many, and on a share as it is: its small
    # counts make up for its skewness.
    sure = n if math.isnan(n.least) else replace(n, estimate=n.least)
    sure = replace(sure, skewness=0.0) if n.statistic in AT_CUTOFF else sure
    low, high = (sure.errors_from(end) for end in ends)
    # By how much the value lies beyond the nearer end; from that end the other may be passed too,
    # which a range of many standard errors rules out.
    beyond = max(-low, high)
    far = beyond + (low - high if math.isfinite(low - high) else math.inf)
    result = replace(
        result, interval=n.bounds(level), errors=min(abs(above_low), abs(above_high)),
        p_within=min(float(stdtr(n.freedom, -beyond) + stdtr(n.freedom, -far)), 1.0),
        p_beyond=max(float(stdtr(n.freedom, -above_low)), float(stdtr(n.freedom, above_high))),
    )  # fmt: skip
    if n.tail > MOST_SKEWED:
        return _open(
            result, "a few large values decide this number, so that its error is not known"
        )
    return result
