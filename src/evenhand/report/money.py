"""The gap in units of the score, in words: what a page says first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .controls import conditional_section
from .curves import number, short_names
from .markup import Html, element, join
from .pricing import pricing_section
from .text import negative_scores

if TYPE_CHECKING:
    from ..auditing.impact import Impact
    from ..auditing.result import Audit

# In sentences; the tables have all of them.
MOST_SENTENCES = 6


def gap_words(impact: Impact, group: str, favorable: str | None) -> str:
    """One group against the reference: the gap in units, in percent, and to whose good."""
    gap, ratio = (impact.get(name, group) for name in ("mean_difference", "mean_ratio"))
    percent = f" ({abs(100 * (ratio.value - 1)):.3g}%)" if has_percent(impact, group) else ""
    name, reference = short_names([group, impact.reference], 60)
    way = "higher" if gap.value >= 0 else "lower"
    text = (
        f"Scores of {name} are {number(abs(gap.value), 3)}{percent} {way} than those of "
        f"{reference} on average"
    )
    if not gap.defined:
        return f"{text}, from too few rows for an interval."
    ends = (gap.low, gap.high) if gap.value >= 0 else (-gap.high, -gap.low)
    text += f" ({100 * impact.confidence_level:g}% interval {number(ends[0], 3)} to "
    text += f"{number(ends[1], 3)})"
    if not gap.differs:
        return f"{text}, which chance alone could produce."
    if favorable is None:
        return f"{text}."
    good = (gap.value > 0) == (favorable == "high")
    return f"{text}, to their {'advantage' if good else 'disadvantage'}."


def has_percent(impact: Impact, group: str) -> bool:
    """Whether a gap is worth a percentage: not where the mean is about zero beside the spread."""
    gap, smd, ratio = (impact.get(s, group) for s in ("mean_difference", "smd", "mean_ratio"))
    if not ratio.defined or not math.isfinite(smd.value):
        return False
    spread = abs(gap.value / smd.value) if smd.value else 0.0
    return float(impact.groups[impact.reference]["mean_score"]) > 0.5 * spread


def gap_sentences(audit: Audit, favorable: str | None = None) -> list[str]:
    """Mean scores of each group against the largest one, the widest gap first."""
    if audit._rows is None:
        return [f"Mean scores differ by up to {number(audit.disparities.mean_score_gap)}."]
    impact = audit.impact(at=(), favorable=favorable or "high")
    groups = [g for g in impact.groups if g != impact.reference]

    def size(group: str) -> float:
        value = abs(impact.get("mean_difference", group).value)
        return -value if math.isfinite(value) else 0.0

    # A small group is last: its gap is mostly noise.
    groups.sort(key=lambda group: (group in impact.apart, size(group)))
    shown = [gap_words(impact, group, favorable) for group in groups[:MOST_SENTENCES]]
    if len(groups) > MOST_SENTENCES:
        shown.append(f"{len(groups) - MOST_SENTENCES} more groups are in the tables.")
    return shown


def money_sections(
    audit: Audit, level: str = "h2", prefix: str = "", favorable: str | None = None
) -> Html:
    """Gaps in units of the score, what the controls explain of them, and prices."""
    first, *rest = gap_sentences(audit, favorable)
    unit = " Scores are per unit of exposure." if _per_unit(audit) else ""
    parts = [
        element(
            "section",
            element(level, "The gap in units of the score"),
            element("p", first, class_="lead"),
            *(element("p", text) for text in rest),
            element("p", unit, class_="note") if unit else None,
            element("p", negative_scores(audit)) if audit.n_negative else None,
        )
    ]
    if audit.conditional is not None:
        parts.append(conditional_section(audit.conditional, level, prefix))
    if audit.pricing is not None:
        parts.append(pricing_section(audit.pricing, level, prefix))
    return join(parts)


def _per_unit(audit: Audit) -> bool:
    return audit.pricing is not None and audit.pricing.has_exposure
