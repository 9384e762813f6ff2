"""The supervisor's table in words, in a terminal of 80 columns and on a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .curves import number, short_names
from .markup import Html, csv_link, element, join, label, table

if TYPE_CHECKING:
    from ..auditing.impact import Impact, ImpactNumber

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
