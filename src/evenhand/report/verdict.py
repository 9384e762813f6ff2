"""A verdict in words, in a terminal of 80 columns and on a page."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Any

from ..auditing.contrasts import STATISTICS
from ..auditing.tolerance import range_text
from ..information.judging import HOLDS, OPEN, RULE_WITH_TOLERANCE, VIOLATED
from .curves import number, short_names
from .impact import WIDTH, fit_table
from .markup import Html, csv_link, element, label, table

if TYPE_CHECKING:
    from ..auditing.verdict import ClauseResult, Verdict

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
