"""A verdict against a tolerance, and the supervisor's table of impact."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ..auditing.impact import WORDS
from ..auditing.tolerance import range_text
from ..measures.measures import HOLDS, OPEN, RULE_WITH_TOLERANCE, VIOLATED
from .markup import element
from .view import Lead, Name, Note, Table, View
from .words import group_name, number, part_name, percent, short_names, upper_first, with_interval

if TYPE_CHECKING:
    from ..auditing.by_group import ByGroup
    from ..auditing.impact import Impact, ImpactNumber
    from ..auditing.verdict import ClauseResult, Verdict


# ------------------------------------------------------------------------------------------------
# Impact: each group against the reference.


_HEADS = {
    "smd": "SMD",
    "mean_difference": "difference",
    "mean_ratio": "ratio of means",
    "actual_expected": "actual/expected",
    "impact_ratio": "impact ratio",
    "odds_ratio": "odds ratio",
}
SIGNIFICANT = 0.05


def impact_view(impact: Impact) -> View:
    """Return each group beside the reference, small groups in a table of their own."""
    parts = [*map(Note, _impact_notes(impact)), _impact_table(impact)]
    return View(f"Impact by {short_names([impact.sensitive_name], 40)[0]}", *parts)


def _impact_table(impact: Impact) -> Table:
    others = [g for g in impact.groups if g != impact.reference]
    names = [impact.reference, *sorted(others, key=lambda g: g in impact.apart)]
    numbers = {(n.group, n.statistic, n.at): n for n in impact.numbers if n.statistic in _HEADS}
    columns = list(dict.fromkeys(key[1:] for key in numbers))
    order, cutoffs = list(_HEADS), list(impact.cutoffs)
    columns.sort(key=lambda c: (order.index(c[0]), cutoffs.index(c[1]) if c[1] else 0))
    heads = ["group", "share", "mean score", "stands"]
    heads += [_HEADS[s] + (f" at {at}" if at else "") for s, at in columns]
    rows = []
    for name in names:
        share, mean = (impact.groups[name][key] for key in ("share", "mean_score"))
        cells = [_impact_cell(numbers.get((name, *column))) for column in columns]
        own = [f"{100 * share:.1f}%", number(mean), impact.standing(name)]
        rows.append([Name(name), *own, *cells])
    return Table(heads, rows, "Groups against the reference", impact._columns(), "impact.csv")


def _impact_cell(n: ImpactNumber | None) -> str:
    if n is None:
        return "–"
    if not n.defined or math.isnan(n.value):
        return "not defined"
    return with_interval(n.value, (n.low, n.high), "*" if n.p_value < SIGNIFICANT else "")


def _impact_notes(impact: Impact) -> list[str]:
    """What the numbers are."""
    notes = [
        f"A {impact.favorable} score is favorable. Each group is compared with the reference, "
        f"{group_name(impact.reference)}."
    ]
    if impact.cutoffs:
        where = ", ".join(f"{name.split()[0]} = {number(c)}" for name, c in impact.cutoffs.items())
        notes.append(
            "Impact and odds ratios compare the shares of people with a favorable score, on the "
            f"good side of a cutoff ({where})."
        )
    notes.append(_simultaneous(impact, "by the largest t value, with covariances"))
    if impact.apart:
        notes.append(
            f"Groups with less than {percent(impact.smallest)} of the rows are listed last; their "
            "intervals and p-values do not allow for the other groups."
        )
    if any(n.statistic == "mean_ratio" and not n.defined for n in impact.numbers):
        notes.append("A ratio of means is defined only where both means are above zero.")
    return notes


def _simultaneous(result: Impact | ByGroup, method: str) -> str:
    """What brackets and stars are."""
    unit = "rows" if result.n_clusters is None else f"{result.n_clusters:,} clusters"
    return (
        f"In brackets: {percent(result.confidence_level)} intervals that hold for all groups at "
        f"once ({method} over {unit}). * marks p < {SIGNIFICANT:g} after Holm's correction over "
        "the groups."
    )


def by_group_view(result: ByGroup) -> View:
    """Return a metric of each group, with its gap and ratio."""
    against = group_name(result.reference) if result.reference in result.groups else "all rows"
    heads = ["group", "share", result.metric, "gap", "ratio"]
    numbers = {(n.group, n.statistic): n for n in result.numbers}
    rows = []
    for name, group in result.groups.items():
        gaps = [_impact_cell(numbers.get((name, key))) for key in ("gap", "ratio")]
        n = numbers[name, "value"]
        own = f"{number(n.value, 3)} (interval not known)"
        own = with_interval(n.value, (n.low, n.high)) if math.isfinite(n.low) else own
        rows.append([Name(name), f"{100 * group['share']:.1f}%", own, *gaps])
    rows.append([Name("all rows"), "100.0%", number(result.overall, 3), "–", "–"])
    note = f"Gaps and ratios are against {against}. {_simultaneous(result, result.method)}"
    title = f"{result.metric} by {short_names([result.sensitive_name], 40)[0]}"
    return View(title, Note(note), Table(heads, rows, "", result._columns(), "by_group.csv"))


# ------------------------------------------------------------------------------------------------
# The verdict.


BADGES = {
    "pass": ("✓ Pass", "holds"),
    "fail": ("✕ Fail", "strong"),
    "not enough data": ("? Not enough data", "unclear"),
}
# What decides comes first.
LIMITS = {VIOLATED: "✕ not met", OPEN: "? not enough data", HOLDS: "✓ met"}
# Clauses whose names say too little; those of the impact table have names of their own.
CLAUSES = {
    "conditional": "independence given the controls",
    "adjusted_gap": "gap that the controls leave",
    "adjusted_percent": "gap that the controls leave, in %",
}
# Both are about the same number, and ask different questions of it.
EXACT = (
    'Elsewhere in this report "violated" means "not exactly fair". A value can be surely above 0 '
    "and surely within its limit."
)


def verdict_view(verdict: Verdict) -> View:
    """Return the outcome, why it is so, the clauses and the rule."""
    return View(
        "Verdict",
        Lead(_reason(verdict)),
        _clause_table(verdict),
        *map(Note, _verdict_notes(verdict)),
        element("p", f"{RULE_WITH_TOLERANCE} {EXACT}", class_="note"),
        badge=BADGES[verdict.outcome],
    )


def _reason(verdict: Verdict) -> str:
    """Why the outcome is so; first of all that it depends on weights, where it does."""
    if verdict.unweighted not in ("", verdict.outcome):
        return f"{verdict.remarks[0]} {_reason(replace(verdict, unweighted=''))}"
    count = {word: sum(c.judged == word for c in verdict.clauses) for word in LIMITS}
    total = len(verdict.clauses)
    if verdict.outcome == "pass":
        return f"Tests that show a value within its limit: {total} of {total}."
    if verdict.outcome == "fail":
        return f"Tests that show a value outside its limit: {count[VIOLATED]} of {total}."
    return (
        f"For {count[OPEN]} of {total} tests there is not enough data to tell whether the value is "
        f"within its limit. No test shows a value outside. {_needed_words(verdict)}"
    )


def _needed_words(verdict: Verdict) -> str:
    """How many rows would decide the rest."""
    if any(c.note for c in verdict.clauses if c.judged == OPEN):
        return "More rows would not decide some of them (see the notes)."
    if not verdict.needed <= 1000 * verdict.n:
        return f"A thousand times the {verdict.unit} would not decide if the estimates are right."
    return (
        f"If the estimates are right, about {_round(verdict.needed)} {verdict.unit} would "
        f"decide (there are {verdict.n:,})."
    )


def _round(count: float) -> str:
    """Two digits of a rough number."""
    if count < 100:
        return f"{count:.0f}"
    scale = 10 ** (int(math.log10(count)) - 1)
    return f"{math.ceil(count / scale) * scale:,}"


def _clause_table(verdict: Verdict) -> Table:
    """One row per test, what decides first."""
    clauses = sorted(verdict.clauses, key=lambda c: list(LIMITS).index(c.judged))
    cells: dict[str, Callable[[ClauseResult], str]] = {
        "clause": lambda c: Name(
            f"{clause_words(c.clause)}{f' at {c.at}' if c.at else ''}, {_where(c)}"
        ),
        "limit": lambda c: LIMITS[c.judged],
        "value": lambda c: with_interval(c.value, c.interval).split(" (")[0],
        f"{percent(1 - verdict.level)} bounds": (
            lambda c: with_interval(c.value, c.interval).split("(")[1][:-1]
        ),
        "allowed": lambda c: range_text(c.clause, *c.tolerance),
    }
    if any(c.judged == OPEN for c in clauses):
        cells[f"{verdict.unit} needed"] = _needed_cell
    limits = "; ".join(
        f"{clause_words(name)} {range_text(name, *ends)}"
        for name, ends in verdict.tolerance.clauses
    )
    caption = f"Clauses of the tolerance: {limits}"
    return Table.of(clauses, cells, caption, verdict._columns(), "verdict.csv", limit=44)


def _where(clause: ClauseResult) -> str:
    return group_name(clause.group) if clause.group else part_name(clause.part)


def clause_words(name: str) -> str:
    """Return what a clause is called in a sentence."""
    return CLAUSES.get(name) or WORDS.get(name) or name.replace("_", " ")


def _needed_cell(clause: ClauseResult) -> str:
    if math.isnan(clause.needed):
        return "–"
    return "no number" if clause.note or math.isinf(clause.needed) else _round(clause.needed)


def _verdict_notes(verdict: Verdict) -> list[str]:
    """What stands below the table."""
    differs = verdict.unweighted not in ("", verdict.outcome)
    notes = [*verdict.remarks[differs:]]
    if verdict.unweighted and not differs:
        notes.append(f"Without weights and frequencies the outcome is the same: {verdict.outcome}.")
    notes += [
        f"{upper_first(clause_words(c.clause))}, {_where(c)}: {c.note}."
        for c in verdict.clauses
        if c.note
    ]
    if any(c.beyond_alone for c in verdict.clauses):
        notes.append(
            f"With {len(verdict.clauses)} comparisons, one interval outside its limit can be "
            'chance. We correct for that. Some clauses marked "not enough data" would fail on '
            "their own."
        )
    if verdict.unjudged:
        listed = ", ".join(short_names(verdict.unjudged[:8], 26))
        more = f" and {len(verdict.unjudged) - 8} more" if len(verdict.unjudged) > 8 else ""
        share = percent(verdict.tolerance.smallest)
        left = verdict.unjudged_share
        notes.append(
            f"Not judged on their own, under {share} of the rows: {listed}{more}. "
            + (f"They hold {percent(left)} of the rows." if left else "They are judged together.")
        )
    notes.append(
        f"Each bound holds by itself with {percent(1 - verdict.level)} confidence. SHA-256 of the "
        f"tolerance: {verdict.tolerance.digest}."
    )
    return notes
