"""Gaps in units of the score: raw, with the same controls, as prices, and of inferred groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..measures.measures import SIGNIFICANT_P
from .view import Lead, Name, Note, Table, View
from .words import (
    clean,
    fixed,
    group_name,
    judge_measure,
    negative_scores,
    number,
    p_text,
    p_words,
    percent,
    short_names,
    span,
    to_margin,
    with_interval,
)

if TYPE_CHECKING:
    from ..auditing.adjusted_gap import AdjustedGap, Imbalance
    from ..auditing.conditional import Conditional
    from ..auditing.impact import Impact, ImpactNumber
    from ..auditing.imputed import Imputation
    from ..auditing.pricing import Pricing
    from ..auditing.result import Audit


# Groups in sentences; the tables have all of them.
MOST_SENTENCES = 5


def _first(sentences: Sequence[str], more: int) -> list[Any]:
    """The first sentence as a lead, the others, and how many groups only the table has."""
    rest = [f"{more} more groups are in the table."] if more > 0 else []
    return [Lead(sentences[0]), *sentences[1:], *rest] if sentences else rest


# ------------------------------------------------------------------------------------------------
# Among people with the same controls.


FUNCTION = (
    "The score is (nearly) a function of the controls and the group: they leave {left} of its "
    "variance. A difference of one cent then gives the group away. The information shows that "
    "there is a difference, not how large it is; for the size, go by the gaps."
)


def conditional_view(result: Conditional) -> View:
    """Return gaps among people with the same controls, and the information."""
    names = ", ".join(short_names(result.controls, 30))
    information = judge_measure(result.information, "Conditional independence")
    if result.is_function:
        information += f" {FUNCTION.format(left=f'{100 * result.unexplained:.2g}%')}"
    information += f" Normalized information {fixed(result.information.shown)}."
    sentences = [gap_sentence(gap) for gap in result.gaps[:MOST_SENTENCES]]
    return View(
        f"Among people with the same controls ({names})",
        *_first(sentences, len(result.gaps) - MOST_SENTENCES),
        _gap_table(result),
        information,
        Note(_conditional_note(result)),
    )


def gap_sentence(gap: AdjustedGap) -> str:
    """Return one group against the reference: like for like, then on average."""
    group, reference = group_name(gap.group), group_name(gap.reference)
    if not gap.is_estimated:
        return f"Scores of {group} are not compared with those of {reference}: {gap.note}."
    in_percent = gap.ratio_percent.value == gap.ratio_percent.value
    sign, unit, of = ("%", " percentage points", "_percent") if in_percent else ("", "", "")
    raw, explained, left = (getattr(gap, f"{n}{of}") for n in ("raw", "explained", "adjusted"))
    alike = gap.ratio_percent if in_percent else left
    sizes = (abs(part.value) for part in (alike, raw, explained, left))
    same, overall, with_controls, without = to_margin(alike.interval, *sizes)
    words = (
        f"Among people with the same controls, scores of {group} are {same}{sign} "
        f"{_way(alike.value)} than those of {reference} "
        f"({_span_of(alike.value, alike.interval, sign)}, {p_words(gap.p_adjusted)}). On average "
        f"they are {overall}{sign} {_way(raw.value)}"
    )
    if explained.value * raw.value >= 0 and abs(explained.value) <= abs(raw.value):
        words += f": {with_controls}{unit} of that go with the controls and {without}{unit} do not"
    if gap.no_counterpart > 0:
        words += (
            f". {100 * gap.no_counterpart:.2g}% of {group} have hardly any counterpart and are "
            "left out of the comparison"
        )
    if not gap.balance.is_balanced:
        words += f". Not enough data for a verdict: {_imbalance(gap.balance)}"
    return f"{words}."


def _imbalance(balance: Imbalance) -> str:
    of_trees = balance.difference < balance.left_over
    what = "what boosted trees find in the controls" if of_trees else clean(balance.control)
    return f"after weighting {what} still differs by {balance.largest:.2g} standard deviations"


def _way(value: float) -> str:
    return "higher" if value >= 0 else "lower"


def _span_of(value: float, ends: Sequence[float], sign: str = "") -> str:
    """ "1.2% to 5%": the ends of an interval in the direction of the sentence."""
    low, high = to_margin(ends, *(ends if value >= 0 else (-ends[1], -ends[0])))
    return f"{low}{sign} to {high}{sign}"


def _gap_table(result: Conditional) -> Table:
    cells: dict[str, Callable[[AdjustedGap], str]] = {
        "group": lambda gap: Name(gap.group),
        "rows": lambda gap: f"{gap.n:,.0f}",
        "gap": lambda gap: to_margin(gap.adjusted.interval, gap.raw.value)[0],
        "explained": lambda gap: to_margin(gap.adjusted.interval, gap.explained.value)[0],
        "not explained": lambda gap: to_margin(gap.adjusted.interval, gap.adjusted.value)[0],
        f"{percent(result.confidence_level)} interval":
            lambda gap: span(gap.adjusted.interval) if gap.is_estimated else "n/a",
        "in %": lambda gap: to_margin(gap.ratio_percent.interval, gap.ratio_percent.value)[0],
        "p (all groups)": lambda gap: p_text(gap.p_adjusted),
    }  # fmt: skip
    if any(gap.no_counterpart > 0 for gap in result.gaps):
        cells["no counterpart"] = lambda gap: f"{100 * gap.no_counterpart:.2g}%"
    caption = f"Gaps of mean scores, in units of the score, against {clean(result.reference)}"
    return Table.of(result.gaps, cells, caption, result._columns(), "controls.csv", limit=30)


def _conditional_note(result: Conditional) -> str:
    note = (
        f"Controls: {', '.join(clean(name) for name in result.controls)}. Not explained is "
        f"{result.estimand}, in % of that expected score; explained is the rest of the gap. The "
        "reference is weighted to the controls of each group; the largest difference left is "
        f"{fixed(result.balance.largest, 3)} standard deviations. Information through "
        f"{result.summary}; p by {result.test.replace('slices of c', 'slices of the control')}."
    )
    if result.left_out:
        why = "; ".join(f"{clean(name)}, {reason}" for name, reason in result.left_out.items())
        note += f" Not used: {why}"
    return note


# ------------------------------------------------------------------------------------------------
# Inferred membership.


def imputation_words(result: Imputation) -> str:
    """Return what inferred membership leaves uncertain."""
    if not result.gaps:
        return (
            "Groups are inferred, and cells hold expected counts: each person counts in every "
            "group by its probability. All numbers assume that, among people with the same "
            "probabilities, the score does not depend on the group. What other assumptions would "
            "give takes the rows."
        )
    return (
        f"Groups are given as probabilities, which remove {100 * result.certainty:.0f}% of the "
        "uncertainty about them. Information and weighted gaps assume that, among people with the "
        "same probabilities, the score does not depend on the group. Gaps by regression assume the "
        "opposite: among people of the same group, the score does not depend on the probabilities. "
        "If neither holds, the truth can lie outside both."
    )


def imputation_view(result: Imputation) -> View:
    """Return gaps with the assumption on inferred groups, and their range without it."""
    level = percent(result.confidence_level)
    gaps = result.gaps
    if not gaps:
        return View("What inferred groups leave uncertain", imputation_words(result))
    cells: dict[str, Callable[[Any], str]] = {
        "group": lambda g: Name(g.group),
        "minus": lambda g: Name(g.reference),
        f"by weighting ({level})": lambda g: with_interval(g.value, g.interval),
        f"by regression ({level})": lambda g: with_interval(g.regressed, g.regressed_interval),
        f"range without any assumption ({level})": lambda g: span(g.bounds),
        "sign": lambda g: "known" if g.settled else "not known",
    }
    return View(
        "What inferred groups leave uncertain",
        imputation_words(result),
        Table.of(gaps, cells, "Mean score of a group minus that of the reference",
              result._columns(), "imputation.csv"),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------
# A score as a price.


def pricing_view(result: Pricing) -> View:
    """Return what was charged and what happened, by group and band of the score."""
    return View(
        "Expected and actual",
        *pricing_sentences(result),
        _price_table(result),
        _band_table(result),
        Note(_pricing_note(result)),
    )


def pricing_sentences(result: Pricing) -> list[str]:
    """Return deviance, and actual over expected in all."""
    out = []
    if result.loss and result.d2 == result.d2:
        low, high = result.d2_interval
        name = "R²" if result.power == 0 else "D²"
        words = f"The score explains {100 * result.d2:.2f}% of the {_loss(result)} deviance ({name}"
        if result.d2 <= 0:
            words = (
                f"The score predicts worse than one price for all: by {_loss(result)} deviance its "
                f"{name} is below zero ({100 * result.d2:.2f}%"
            )
        out.append(
            f"{words}, {percent(result.confidence_level)} interval "
            f"{100 * low:.2f}% to {100 * high:.2f}%). Its mean deviance is "
            f"{number(result.deviance)}; that of the best constant is "
            f"{number(result.null_deviance)}."
        )
    elif result.loss and result.n_not_positive:
        out.append(
            f"The {_loss(result)} deviance is not defined: {result.n_not_positive:,} predictions "
            "are zero or below."
        )
    value, *ends = result.actual_expected
    if not 0.1 < value < 10.0:
        out.append("Are outcome and score in different units?")
    return [
        *out,
        f"Actual over expected is {with_interval(value, ends)} over all rows.{_evenness(result)}",
    ]


def _evenness(result: Pricing) -> str:
    """Whether actual over expected is the same in all groups, and in all bands of the score."""
    parts = {"groups": "groups", "bands": "bands of the score"}
    known = {name: p for name, p in result.homogeneity.items() if p == p}
    if not known:
        return ""
    words = [
        f"{'differs between' if p < SIGNIFICANT_P else 'may be the same in all'} {parts[name]} "
        f"({p_words(p)})"
        for name, p in known.items()
    ]
    return f" It {' and '.join(words)}."


def _loss(result: Pricing) -> str:
    return f"Tweedie (power {result.power:g})" if result.loss == "tweedie" else result.loss.title()


def _price_table(result: Pricing) -> Table:
    columns = result._groups
    unit = "exposure" if result.has_exposure else "n"
    heads = ["group", "exposure" if result.has_exposure else "rows", "actual", "expected",
             "actual/expected", "gap of scores", "gap of actuals"]  # fmt: skip
    rows = []
    for k, group in enumerate(columns["group"]):
        gaps = ["reference"] * 2
        if group != result.reference:
            gaps = [_percent(columns, f"log_ratio_{of}", k) for of in ("score", "target")]
        sums = [number(columns[name][k]) for name in ("actual", "expected")]
        rows.append([Name(group), number(columns[unit][k]), *sums, _ratio(columns, k), *gaps])
    caption = "Actual over expected, and gaps against the reference"
    return Table(heads, rows, caption, columns, "pricing.csv")


def _with_ends(columns: dict[str, list[Any]], name: str, k: int) -> list[Any]:
    """A number of a table and the ends of its interval."""
    return [columns[f"{name}{end}"][k] for end in ("", "_low", "_high")]


def _ratio(columns: dict[str, list[Any]], k: int) -> str:
    value, *ends = _with_ends(columns, "actual_expected", k)
    if value != value or all(end != end for end in ends):
        return number(value, 3)
    return with_interval(value, ends)


def _percent(columns: dict[str, list[Any]], name: str, k: int) -> str:
    value, low, high = (100 * math.expm1(v) for v in _with_ends(columns, name, k))
    return f"{value:+.1f}% ({low:+.1f} to {high:+.1f})" if math.isfinite(value) else "n/a"


def _band_table(result: Pricing) -> Table:
    columns = result._bands
    n_bands = max(columns["band"])
    heads = ["group"]
    for b in range(n_bands):
        low, high = (number(columns[f"score_{end}"][b], 3) for end in ("low", "high"))
        heads.append(f"{low} to {high}" if low != high else low)
    rows = [
        [Name(group), *(_ratio(columns, k * n_bands + b) for b in range(n_bands))]
        for k, group in enumerate(result._groups["group"])
    ]
    return Table(heads, rows, "Actual over expected by band of the score", columns, "bands.csv")


def _pricing_note(result: Pricing) -> str:
    times = "exposure times score" if result.has_exposure else "the scores"
    by = " by exposure" if result.has_exposure else ""
    return (
        f"Actual is the sum of the targets, expected the sum of {times}. The "
        f"{percent(result.confidence_level)} intervals of actual over expected hold one at a time; "
        f"those of gaps against {group_name(result.reference)} hold for all groups at once. Bands "
        f"are fifths of the score{by}, the same for all groups."
    )


# ------------------------------------------------------------------------------------------------
# Mean scores, in words: what a page says first.


def money_view(audit: Audit, favorable: str | None = None, unit: str = "") -> View:
    """Return gaps of mean scores against the largest group, the widest first."""
    parts: list[Any] = money_sentences(audit, favorable, unit)
    if audit.pricing is not None and audit.pricing.has_exposure:
        parts.append(Note("Scores are per unit of exposure."))
    if audit.n_negative:
        parts.append(negative_scores(audit))
    return View("The gap in units of the score", *parts)


def money_sentences(audit: Audit, favorable: str | None = None, unit: str = "") -> list[str]:
    """Return a sentence per group, the first as a lead."""
    impact = audit.impact(at=(), favorable=favorable or "high")
    groups = widest_first(impact)
    sentences = [gap_words(impact, group, favorable, unit) for group in groups[:MOST_SENTENCES]]
    return _first(sentences, len(groups) - MOST_SENTENCES)


def widest_first(impact: Impact) -> list[str]:
    """Return the groups but the reference; a small one is last, as its gap is mostly noise."""

    def size(group: str) -> float:
        value = abs(impact.get("mean_difference", group).value)
        return -value if math.isfinite(value) else 0.0

    groups = [g for g in impact.groups if g != impact.reference]
    return sorted(groups, key=lambda group: (group in impact.apart, size(group)))


def gap_words(impact: Impact, group: str, favorable: str | None, unit: str = "") -> str:
    """Return one group against the reference: the gap in units, in percent, and for whose good."""
    gap, ratio = (impact.get(name, group) for name in ("mean_difference", "mean_ratio"))
    share = f" ({_percent_of(ratio).lstrip('-')})" if has_percent(impact, group) else ""
    size = " ".join([*to_margin((gap.low, gap.high), abs(gap.value)), *([unit] if unit else [])])
    text = (
        f"Scores of {group_name(group)} are {size}{share} {_way(gap.value)} than those of "
        f"{group_name(impact.reference)} on average"
    )
    if not gap.defined:
        return f"{text}. Not enough data for an interval."
    ends = _span_of(gap.value, (gap.low, gap.high))
    text += f" ({percent(impact.confidence_level)} interval {ends})"
    if not gap.differs:
        return f"{text}. Chance alone could produce this."
    if favorable is None:
        return f"{text}."
    good = (gap.value > 0) == (favorable == "high")
    return f"{text}, to their {'advantage' if good else 'disadvantage'}."


def _percent_of(ratio: ImpactNumber) -> str:
    """ "9.9%": how far a ratio is above 1, with the digits that its interval deserves."""
    return f"{to_margin((100 * ratio.low, 100 * ratio.high), 100 * (ratio.value - 1))[0]}%"


def has_percent(impact: Impact, group: str) -> bool:
    """Whether a gap is worth a percentage: not where the mean is near zero for its spread."""
    gap, smd, ratio = (impact.get(s, group) for s in ("mean_difference", "smd", "mean_ratio"))
    if not ratio.defined or not math.isfinite(smd.value):
        return False
    spread = abs(gap.value / smd.value) if smd.value else 0.0
    return float(impact.groups[impact.reference]["mean_score"]) > 0.5 * spread


def gap_changes_view(
    before: Audit, after: Audit, favorable: str | None = None, unit: str = ""
) -> View:
    """Return mean scores against the largest group, before and after."""
    pair = [audit.impact(at=(), favorable=favorable or "high") for audit in (before, after)]
    reference = pair[0].reference
    rows = []
    for group in (g for g in pair[0].groups if g != reference):
        cells = []
        for impact in pair:
            gap, ratio = (impact.get(s, group) for s in ("mean_difference", "mean_ratio"))
            share = f", {_percent_of(ratio)}" if has_percent(impact, group) else ""
            cells.append(f"{with_interval(gap.value, (gap.low, gap.high))}{share}")
        rows.append([Name(group), *cells])
    first = widest_first(pair[0])[0]
    level = percent(before.confidence_level)
    return View(
        "The gap in units of the score",
        Lead(f"Before: {gap_words(pair[0], first, favorable, unit)}"),
        Lead(f"After: {gap_words(pair[1], first, favorable, unit)}"),
        Table(
            ["group", "before: no fairness term", "after: selected model"], rows,
            f"Mean score minus that of {group_name(reference)}, with {level} intervals",
        ),
    )  # fmt: skip
