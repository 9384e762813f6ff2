"""Scores among people with the same controls, in words and tables: money, then information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .charts import Bar, bar_chart
from .formats import clean, number, short_names
from .markup import Html, csv_link, element, join, label, table
from .text import _p_with_sign, _table, fixed, imputation_words, p_text, verdict

if TYPE_CHECKING:
    from ..auditing.adjusted_gap import AdjustedGap, Estimate
    from ..auditing.conditional import Conditional
    from ..auditing.imputed import Imputation


# In a sentence; the table has all of them.
MOST_SENTENCES = 5
FUNCTION = (
    "The score is (nearly) a function of the controls and the group: they leave {left} of its "
    "variance. A difference of one cent then gives the group away, so the information says that "
    "there is a difference and not how large it is: go by the gaps."
)


def gap_sentence(gap: AdjustedGap) -> str:
    """One group against the reference: the raw gap and how much of it the controls explain."""
    group, reference = clean(gap.group), clean(gap.reference)
    if not gap.is_estimated:
        return f"{group} is not compared with {reference}: {gap.note}."
    percent = gap.raw_percent.value == gap.raw_percent.value
    if percent:
        raw, explained, left = gap.raw_percent, gap.explained_percent, gap.adjusted_percent
        size, unit = f"{abs(raw.value):.3g}%", " points"
    else:
        raw, explained, left = gap.raw, gap.explained, gap.adjusted
        size, unit = f"{abs(raw.value):.4g}", ""
    low, high = left.interval
    way = "higher" if raw.value >= 0 else "lower"
    first = f"Scores of {group} are {size} {way} than those of {reference} on average"
    p = f"p {_p_with_sign(gap.p_adjusted)}"
    same_way = explained.value * raw.value >= 0 and abs(explained.value) <= abs(raw.value)
    if same_way:
        rest = (
            f"{_size(explained.value)}{unit} of that go with the controls and {_size(left.value)}"
            f"{unit} do not ({_range(low, high, raw.value)}, {p})."
        )
    else:
        turn = "higher" if left.value >= 0 else "lower"
        rest = (
            f"among people with the same controls they are {_size(left.value)}{unit} {turn} "
            f"({_range(low, high, left.value)}, {p})."
        )
    if gap.no_counterpart > 0:
        rest += (
            f" {100 * gap.no_counterpart:.2g}% of {group} have hardly any counterpart and are left "
            "out of that."
        )
    return f"{first}; {rest}"


def _size(value: float) -> str:
    return f"{abs(value):.3g}"


def _range(low: float, high: float, sign: float) -> str:
    """Ends of an interval in the direction of the sentence."""
    if sign < 0:
        low, high = -high, -low
    return f"{low:.3g} to {high:.3g}"


def conditional_parts(found: Conditional) -> tuple[list[str], list[str], list[list[str]]]:
    """Sentences, and head and rows of the table."""
    names = ", ".join(short_names(found.controls, 30))
    lines = [f"Among people with the same controls ({names}):"]
    lines += [gap_sentence(gap) for gap in found.gaps[:MOST_SENTENCES]]
    if len(found.gaps) > MOST_SENTENCES:
        lines.append(f"{len(found.gaps) - MOST_SENTENCES} more groups are in the table.")
    lines.append(_information(found))
    return lines, *_gap_rows(found)


def describe_conditional(found: Conditional) -> str:
    """The text behind ``str(audit.conditional)``: a paragraph and a table."""
    lines, header, rows = conditional_parts(found)
    return "\n".join([*lines, "", *_table(header, rows)])


def _information(found: Conditional) -> str:
    sentence = f"Conditional independence {verdict(found.information)}"
    if found.is_function:
        left = f"{100 * found.unexplained:.2g}%"
        sentence += f" {FUNCTION.format(left=left)}"
    return sentence


def _gap_rows(found: Conditional) -> tuple[list[str], list[list[str]]]:
    percent = f"{100 * found.confidence_level:g}%"
    header = [
        f"against {short_names([found.reference], 20)[0]}", "rows", "gap", "explained",
        "not explained", f"{percent} interval", "in %", "p (all groups)", "no counterpart",
    ]  # fmt: skip
    alone = any(gap.no_counterpart > 0 for gap in found.gaps)
    header = header if alone else header[:-1]
    rows = []
    for gap, name in zip(found.gaps, short_names([g.group for g in found.gaps], 30), strict=True):
        low, high = gap.adjusted.interval
        rows.append(
            [
                name, f"{gap.n:,.0f}", _number(gap.raw), _number(gap.explained),
                _number(gap.adjusted),
                f"{low:.4g} to {high:.4g}" if gap.is_estimated else "n/a",
                _number(gap.adjusted_percent, 3), p_text(gap.p_adjusted),
                f"{100 * gap.no_counterpart:.2g}%",
            ][: len(header)]
        )  # fmt: skip
    return header, rows


def _number(estimate: Estimate, digits: int = 4) -> str:
    return "n/a" if estimate.value != estimate.value else f"{estimate.value:.{digits}g}"


def conditional_section(found: Conditional, level: str = "h2", prefix: str = "") -> Html:
    """The section of a page: sentences, the table, information, and what was done."""
    header, rows = _gap_rows(found)
    cells: list[list[Any]] = [
        [label(gap.group, 60), *row[1:]] for gap, row in zip(found.gaps, rows, strict=True)
    ]
    header[0] = "Group"
    header = [h[:1].upper() + h[1:] for h in header]
    note = (
        f"Controls: {', '.join(clean(name) for name in found.controls)}. Not explained is "
        f"{found.estimand}; explained is the rest of the gap. Model of the reference's scores: "
        f"{found.outcome}. Each prediction is by models that have not seen the row. Information "
        f"through {found.summary}; p by {found.test}."
    )
    if found.left_out:
        note += " Not used: " + "; ".join(
            f"{clean(name)}, {reason}" for name, reason in found.left_out.items()
        )
    columns = found.columns()
    return element(
        "section",
        element(level, "Among people with the same controls"),
        *(
            element("p", gap_sentence(gap), class_="lead" if k == 0 else None)
            for k, gap in enumerate(found.gaps[:MOST_SENTENCES])
        ),
        join(
            [
                table(
                    header,
                    cells,
                    caption="Gaps of mean scores, in units of the score, against "
                    f"{clean(found.reference)}",
                ),
                csv_link(columns, f"{prefix}controls.csv"),
            ]
        ),
        element(
            "p",
            _information(found),
            f" Normalized information {fixed(found.information.shown)}.",
        ),
        element("p", note, class_="note"),
    )


# ------------------------------------------------------------------------------------------------
# What imputed membership leaves open, on a page.


def imputation_section(found: Imputation, level: str = "h2", prefix: str = "") -> Html:
    """Gaps under the assumption, and their bounds without it: words, a picture and a table."""
    percent = f"{100 * found.confidence_level:g}%"
    bars = [
        Bar(f"{g.group} less {g.reference}", g.value, *g.interval, wide=g.bounds)
        for g in found.gaps
    ]
    rows = [
        [
            label(g.group, 60),
            label(g.reference, 60),
            _share_range(g.value, g.interval),
            f"{number(g.bounds[0], 3)} to {number(g.bounds[1], 3)}",
            "known" if g.settled else "open",
        ]
        for g in found.gaps
    ]
    heads = ["Group", "Less that of", f"If assumed ({percent})", f"Whatever is so ({percent})",
             "Sign"]  # fmt: skip
    columns: dict[str, list[Any]] = {
        "group": [g.group for g in found.gaps],
        "reference": [g.reference for g in found.gaps],
        "gap": [g.value for g in found.gaps],
        "gap_low": [g.interval[0] for g in found.gaps],
        "gap_high": [g.interval[1] for g in found.gaps],
        "bound_low": [g.bounds[0] for g in found.gaps],
        "bound_high": [g.bounds[1] for g in found.gaps],
    }
    least = number(found.least_independence, 3)
    return element(
        "section",
        element(level, "What imputed groups leave open"),
        element("p", imputation_words(found)[0]),
        element(
            "figure",
            element("figcaption", "Gaps between mean scores"),
            bar_chart(bars, "gap in mean score", "Gaps by group, assumed and certain"),
        ),
        element(
            "p", "Dot and dark line: the estimate under the assumption and its interval. Pale "
            "block: bounds that hold the gap whatever the law is.", class_="note",
        ),
        table(heads, rows, caption="Mean score of a group less that of the reference"),
        csv_link(columns, f"{prefix}imputation.csv"),
        element(
            "p", f"No law that agrees with the probabilities has an independence below {least}; "
            "there is no largest one below 1.", class_="note",
        ),
    )  # fmt: skip


def _share_range(value: float, interval: tuple[float, float]) -> str:
    return f"{number(value, 3)} ({number(interval[0], 3)} to {number(interval[1], 3)})"
