"""A verdict in words, in a terminal of 80 columns and on a page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..auditing.impact import STATISTICS
from ..auditing.tolerance import range_text
from ..measures.measures import HOLDS, OPEN, RULE_WITH_TOLERANCE, VIOLATED
from .formats import number, short_names
from .markup import Html, csv_link, element, join, label, table

if TYPE_CHECKING:
    from ..auditing.impact import Impact, ImpactNumber
    from ..auditing.verdict import ClauseResult, Verdict


# ------------------------------------------------------------------------------------------------
# The supervisor's table in words, in a terminal of 80 columns and on a page.


WIDTH = 80
_HEADS = {
    "smd": "SMD",
    "mean_difference": "difference",
    "mean_ratio": "ratio of means",
    "actual_expected": "actual/expected",
    "actual_expected_ratio": "A/E to reference",
    "impact_ratio": "impact ratio",
    "odds_ratio": "odds ratio",
}
# Left to `to_frame`, where the width of a page counts.
_UNSHOWN = ("actual_expected_ratio",)
SIGNIFICANT = 0.05


def impact_cells(impact: Impact) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Header, rows of the groups compared, and rows of those apart; the reference comes first."""
    shown = [n for n in impact.numbers if n.statistic not in _UNSHOWN]
    columns = list(dict.fromkeys((n.statistic, n.at) for n in shown))
    order = [s for s in _HEADS if s not in _UNSHOWN]
    columns.sort(key=lambda c: (order.index(c[0]), list(impact.cutoffs).index(c[1]) if c[1] else 0))
    header = ["group", "share", "mean score", "stands"]
    header += [_HEADS[s] + (f" at {at}" if at else "") for s, at in columns]
    found = {(n.group, n.statistic, n.at): n for n in shown}
    rows: dict[bool, list[list[str]]] = {False: [], True: []}
    names = [impact.reference, *(g for g in impact.groups if g != impact.reference)]
    for name, short in zip(names, short_names(names, 24), strict=True):
        facts = impact.groups[name]
        cells = [short, f"{100 * facts['share']:.1f}%", number(facts["mean_score"])]
        cells.append(impact.standing(name))
        for column in columns:
            one = found.get((name, *column))
            cells.append("–" if one is None else _cell(one))
        rows[name in impact.apart and name != impact.reference].append(cells)
    return header, rows[False], rows[True]


def _cell(n: ImpactNumber) -> str:
    if not n.defined or math.isnan(n.value):
        return "not defined"
    star = "*" if n.p_value < SIGNIFICANT else ""
    return f"{number(n.value, 3)}{star} ({number(n.low, 3)} to {number(n.high, 3)})"


def impact_notes(impact: Impact) -> list[str]:
    """What the numbers are, in sentences."""
    percent = f"{100 * impact.confidence_level:g}%"
    notes = [
        f"A {impact.favorable} score is favorable. Each group is compared with the reference, "
        f"{short_names([impact.reference], 40)[0]}.",
    ]
    if impact.cutoffs:
        where = ", ".join(f"{name} = {number(c)}" for name, c in impact.cutoffs.items())
        notes.append(
            "Impact and odds ratios are of the shares of favorable scores beyond a cutoff "
            f"({where})."
        )
    unit = "rows" if impact.n_clusters is None else f"{impact.n_clusters:,} clusters"
    notes.append(
        f"In brackets: {percent} intervals, simultaneous over the groups for each number, by max "
        f"|t| from the covariance of the estimates over {unit}. * marks p < {SIGNIFICANT:g} after "
        "Holm's rule over the groups."
    )
    if any(n.statistic == "mean_ratio" and not n.defined for n in impact.numbers):
        notes.append("A ratio of means is defined only where both means are above zero.")
    return notes


def apart_note(impact: Impact) -> str:
    return (
        f"Groups of less than {100 * impact.smallest:g}% of the rows, listed apart; their intervals"
        " and p-values do not allow for the other groups:"
    )


def describe_impact(impact: Impact, width: int = WIDTH) -> str:
    """The text behind ``str(impact)``."""
    header, rows, apart = impact_cells(impact)
    title = f"Impact by {short_names([impact.sensitive_name], 40)[0]}"
    lines = [title, *_wrap(impact_notes(impact), width), ""]
    lines += fit_table(header, rows, width)
    if apart:
        lines += ["", *_wrap([apart_note(impact)], width), "", *fit_table(header, apart, width)]
    return "\n".join(lines)


def _wrap(notes: Sequence[str], width: int) -> list[str]:
    import textwrap

    return [line for note in notes for line in textwrap.wrap(note, width)]


def fit_table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """A table that goes on below where it is wider, with its first column once more."""
    widths = [max(len(row[j]) for row in [header, *rows]) for j in range(len(header))]
    blocks: list[list[int]] = [[]]
    used = widths[0]
    for j in range(1, len(header)):
        if blocks[-1] and used + 2 + widths[j] > width:
            blocks.append([])
            used = widths[0]
        blocks[-1].append(j)
        used += 2 + widths[j]
    lines: list[str] = []
    for block in blocks:
        if lines:
            lines.append("")
        for row in [header, ["-" * w for w in widths], *rows]:
            cells = [row[j].ljust(widths[j]) for j in (0, *block)]
            lines.append("  ".join(cells).rstrip())
    return lines


def impact_section(impact: Impact, level: str = "h2", prefix: str = "") -> Html:
    """The table on a page."""
    header, rows, apart = impact_cells(impact)
    heads = [h[0].upper() + h[1:] for h in header]
    names = [impact.reference, *(g for g in impact.groups if g != impact.reference)]
    full = dict(zip(short_names(names, 24), names, strict=True))

    def cells(rows: Sequence[Sequence[str]]) -> list[list[Any]]:
        return [[label(full[row[0]], 60), *row[1:]] for row in rows]

    parts: list[Any] = [table(heads, cells(rows), caption="Groups against the reference")]
    if apart:
        parts += [
            element("p", apart_note(impact), class_="note"),
            table(heads, cells(apart), caption="Small groups against the reference"),
        ]
    keys = ("group", "statistic", "at", "value", "low", "high", "p_value", "stderr", "apart")
    columns = {key: [getattr(n, key) for n in impact.numbers] for key in keys}
    return element(
        "section",
        element(level, "Impact by group"),
        element("p", join(impact_notes(impact), " "), class_="note"),
        *parts,
        csv_link(columns, f"{prefix}impact.csv"),
    )


TITLES = {"pass": "✓ Pass", "fail": "✕ Fail", "not enough data": "? Not enough data"}
BADGES = {"pass": "holds", "fail": "strong", "not enough data": "unclear"}
SIGNS = {VIOLATED: "✕", HOLDS: "✓", OPEN: "?"}


# Both are about the same number, and ask different questions of it.
EXACT = (
    'Elsewhere in this report "violated" means "not exactly fair": a value may be surely above 0 '
    "and surely within what is tolerated."
)


def verdict_sentence(verdict: Verdict) -> str:
    """The outcome and why."""
    return f"{TITLES[verdict.outcome]}: {reason(verdict)}"


def reason(verdict: Verdict) -> str:
    """Why it is so."""
    count = {word: sum(c.judged == word for c in verdict.clauses) for word in SIGNS}
    total = len(verdict.clauses)
    if verdict.outcome == "pass":
        return f"all {total} tests show a value within its tolerance."
    if verdict.outcome == "fail":
        return f"{count[VIOLATED]} of {total} tests show a value beyond its tolerance."
    return (
        f"{count[OPEN]} of {total} tests cannot tell whether the value lies within its "
        f"tolerance, and none shows that it lies beyond. {needed_text(verdict)}"
    )


def needed_text(verdict: Verdict) -> str:
    """How many rows would decide what is open."""
    if any(c.note for c in verdict.clauses if c.judged == OPEN):
        return "Some of them no number of rows would decide (see the notes)."
    if not math.isfinite(verdict.needed):
        return f"No number of {verdict.unit} would decide, if the estimates are the truth."
    return (
        f"If the estimates are the truth, about {_round(verdict.needed)} {verdict.unit} would "
        f"decide (there are {verdict.n:,})."
    )


def _round(count: float) -> str:
    """Two digits of a rough number."""
    if count < 100:
        return f"{count:.0f}"
    scale = 10 ** (int(math.log10(count)) - 1)
    return f"{math.ceil(count / scale) * scale:,}"


def verdict_rows(verdict: Verdict) -> tuple[list[str], list[list[str]]]:
    """Header and one row a test, what decides first."""
    order = (VIOLATED, OPEN, HOLDS)
    clauses = sorted(verdict.clauses, key=lambda c: order.index(c.judged))
    percent = f"{100 * (1 - 2 * verdict.level):g}%"
    header = ["clause", "judged", "value", f"{percent} interval", "tolerance"]
    rows = [
        [
            f"{c.clause}{f' at {c.at}' if c.at else ''}, {short_names([_of(c)], 26)[0]}",
            f"{SIGNS[c.judged]} {c.judged}",
            number(c.value, 3),
            f"{number(c.interval[0], 3)} to {number(c.interval[1], 3)}",
            range_text(c.clause, *c.tolerance),
        ]
        for c in clauses
    ]
    if any(c.judged == OPEN for c in clauses):
        header.append(f"{verdict.unit} needed")
        for row, c in zip(rows, clauses, strict=True):
            row.append(_needed(c))
    return header, rows


def _of(clause: ClauseResult) -> str:
    return clause.group or clause.part


def _needed(clause: ClauseResult) -> str:
    if math.isnan(clause.needed):
        return "–"
    if clause.note or math.isinf(clause.needed):
        return "no number"
    return _round(clause.needed)


def verdict_notes(verdict: Verdict) -> list[str]:
    """What stands below the table."""
    notes = [f"{c.clause} of {_of(c)}: {c.note}." for c in verdict.clauses if c.note]
    if any(c.beyond_alone for c in verdict.clauses):
        notes.append(
            f"An interval that lies beyond its tolerance is no proof by itself where "
            f"{len(verdict.clauses)} were looked at; those left open would be one alone."
        )
    if verdict.unjudged:
        share = f"{100 * verdict.tolerance.smallest:g}%"
        listed = ", ".join(short_names(verdict.unjudged[:8], 26))
        more = f" and {len(verdict.unjudged) - 8} more" if len(verdict.unjudged) > 8 else ""
        notes.append(f"Not judged by themselves, under {share} of the rows: {listed}{more}.")
    notes.append(
        f"Level {100 * verdict.level:g}%; tolerance with SHA-256 {verdict.tolerance.digest}."
    )
    return notes


def describe_verdict(verdict: Verdict, width: int = WIDTH) -> str:
    """The text behind ``str(verdict)``."""
    lines = [*textwrap.wrap(verdict_sentence(verdict), width), ""]
    lines += [*fit_table(*verdict_rows(verdict), width), ""]
    for note in verdict_notes(verdict):
        lines += textwrap.wrap(note, width)
    return "\n".join(lines)


def verdict_section(verdict: Verdict, level: str = "h2", prefix: str = "") -> Html:
    """The verdict on a page, with the rule that it follows."""
    header, rows = verdict_rows(verdict)
    why = reason(verdict)
    cells: list[list[Any]] = [[label(row[0], 80), *row[1:]] for row in rows]
    return element(
        "section",
        element(level, "Verdict"),
        element("p", TITLES[verdict.outcome], class_=f"badge {BADGES[verdict.outcome]}"),
        element("p", why[0].upper() + why[1:], class_="lead"),
        table(
            [h[0].upper() + h[1:] for h in header], cells,
            caption=f"Clauses of the tolerance: {_clauses(verdict)}",
        ),
        *(element("p", note, class_="note") for note in verdict_notes(verdict)),
        element("p", RULE_WITH_TOLERANCE, " ", EXACT, class_="note"),
        csv_link(verdict._columns(), f"{prefix}verdict.csv"),
    )  # fmt: skip


def _clauses(verdict: Verdict) -> str:
    return "; ".join(
        f"{STATISTICS.get(name, name)} {range_text(name, *ends)}"
        for name, ends in verdict.tolerance.clauses
    )
