"""A score as a price, in words, tables and pictures: what was charged, what happened."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..auditing.curves import DRAWN_GROUPS
from .charts import Chart, legend
from .control_views import conditional_section
from .formats import PALETTE, number, short_names
from .markup import Html, csv_link, element, join, label, table
from .text import negative_scores
from .verdict_views import WIDTH, fit_table

if TYPE_CHECKING:
    from ..auditing.impact import Impact
    from ..auditing.pricing import Pricing
    from ..auditing.result import Audit


# Groups in sentences; the table has all of them.
MOST_SENTENCES = 5


def pricing_sentences(found: Pricing) -> list[str]:
    """Deviance, actual over expected in all, and the gaps against the reference."""
    out = []
    percent = f"{100 * found.confidence_level:g}%"
    if found.loss and found.d2 == found.d2:
        low, high = found.d2_interval
        symbol = "R²" if found.power == 0 else "D²"
        out.append(
            f"The score explains {100 * found.d2:.2f}% of the {_loss(found)} deviance ({symbol}, "
            f"{percent} interval {100 * low:.2f}% to {100 * high:.2f}%); mean deviance "
            f"{number(found.deviance)}, of the best constant {number(found.null_deviance)}."
        )
    elif found.loss and found.n_not_positive:
        out.append(
            f"The {_loss(found)} deviance is not defined: {found.n_not_positive:,} predictions are "
            "zero or below."
        )
    value, low, high = found.actual_expected
    out.append(
        f"Actual over expected is {number(value, 3)} ({number(low, 3)} to {number(high, 3)}) "
        "over all rows."
    )
    return out + gap_sentences(found)


def gap_sentences(found: Pricing) -> list[str]:
    """One a group: predictions against the reference, and what happened."""
    columns = found._groups
    out: list[str] = []
    unit = " per unit of exposure" if found.has_exposure else ""
    for k, group in enumerate(columns["group"]):
        if group == found.reference or len(out) == MOST_SENTENCES:
            continue
        ends = [columns[f"log_ratio_score{end}"][k] for end in ("", "_low", "_high")]
        actual = [columns[f"log_ratio_target{end}"][k] for end in ("", "_low", "_high")]
        if not all(map(math.isfinite, ends)):
            continue
        told = f"; what happened was {_change(actual)}" if math.isfinite(actual[0]) else ""
        name, reference = short_names([group, found.reference], 60)
        out.append(
            f"Predictions for {name} are {_change(ends)} than those for {reference}{unit}{told}."
        )
    return out


def _loss(found: Pricing) -> str:
    return f"Tweedie (power {found.power:g})" if found.loss == "tweedie" else found.loss.title()


def _change(ends: Sequence[float]) -> str:
    """A log ratio as "3.1% higher (1.2% to 5.0%)", the interval in the same direction."""
    value, low, high = (100 * math.expm1(v) for v in ends)
    sign = -1.0 if value < 0 else 1.0
    if sign < 0:
        low, high = high, low
    text = f"{abs(value):.3g}% {'lower' if sign < 0 else 'higher'}"
    if not (math.isfinite(low) and math.isfinite(high)):
        return text
    return f"{text} ({sign * low:.3g}% to {sign * high:.3g}%)"


def pricing_rows(found: Pricing) -> tuple[list[str], list[list[str]]]:
    """One row a group."""
    columns = found._groups
    unit = "exposure" if found.has_exposure else "rows"
    header = ["group", unit, "actual", "expected", "actual/expected", "gap of scores"]
    header += ["gap of actuals"]
    rows = []
    for k, group in enumerate(short_names(columns["group"], 24)):
        reference = columns["group"][k] == found.reference
        rows.append(
            [
                group,
                number(columns["exposure" if found.has_exposure else "n"][k], 6),
                number(columns["actual"][k]),
                number(columns["expected"][k]),
                _ratio(columns, k),
                "reference" if reference else _percent(columns, "log_ratio_score", k),
                "reference" if reference else _percent(columns, "log_ratio_target", k),
            ]
        )
    return header, rows


def _ratio(columns: dict[str, list[Any]], k: int) -> str:
    value = columns["actual_expected"][k]
    if value != value:
        return "n/a"
    low, high = (columns[f"actual_expected_{end}"][k] for end in ("low", "high"))
    if low != low and high != high:
        return number(value, 3)
    return f"{number(value, 3)} ({number(low, 3)} to {number(high, 3)})"


def _percent(columns: dict[str, list[Any]], name: str, k: int) -> str:
    value, low, high = (columns[f"{name}{end}"][k] for end in ("", "_low", "_high"))
    if not math.isfinite(value):
        return "n/a"
    return (
        f"{100 * math.expm1(value):+.1f}% ({100 * math.expm1(low):+.1f} to "
        f"{100 * math.expm1(high):+.1f})"
    )


def band_rows(found: Pricing) -> tuple[list[str], list[list[str]]]:
    """Actual over expected: one row a group, one column a band of the score."""
    columns = found._bands
    n_bands = max(columns["band"])
    header = ["group"]
    for b in range(n_bands):
        low, high = (number(columns[f"score_{end}"][b], 3) for end in ("low", "high"))
        header.append(f"{low} to {high}" if low != high else low)
    rows = []
    for k, group in enumerate(short_names(found._groups["group"], 24)):
        rows.append([group, *(_ratio(columns, k * n_bands + b) for b in range(n_bands))])
    return header, rows


def pricing_notes(found: Pricing) -> list[str]:
    """What the numbers are."""
    percent = f"{100 * found.confidence_level:g}%"
    reference = short_names([found.reference], 60)[0]
    what = (
        "Actual is the sum of the targets, expected that of exposure times score"
        if found.has_exposure
        else "Actual is the sum of the targets, expected that of the scores"
    )
    return [
        f"{what}. Intervals of actual over expected ({percent}) are each by itself, those of gaps "
        f"against {reference} simultaneous over the groups. Bands are fifths of the "
        f"score{' by exposure' if found.has_exposure else ''}, the same for all groups."
    ]


def describe_pricing(found: Pricing, width: int = WIDTH) -> str:
    """The text behind ``str(audit.pricing)``."""
    import textwrap

    lines: list[str] = []
    for sentence in pricing_sentences(found):
        lines += textwrap.wrap(sentence, width)
    lines += ["", *fit_table(*pricing_rows(found), width), ""]
    lines += ["Actual over expected by band of the score:"]
    lines += fit_table(*band_rows(found), width)
    lines.append("")
    for note in pricing_notes(found):
        lines += textwrap.wrap(note, width)
    return "\n".join(lines)


def pricing_section(found: Pricing, level: str = "h2", prefix: str = "") -> Html:
    """The section of a page: sentences, groups, bands as picture and table."""
    names = found._groups["group"]

    def named(rows: list[list[str]]) -> list[list[Any]]:
        return [[label(names[k], 60), *row[1:]] for k, row in enumerate(rows)]

    header, rows = pricing_rows(found)
    heads = [h[0].upper() + h[1:] for h in header]
    band_head, by_band = band_rows(found)
    order = _drawn(found)
    return element(
        "section",
        element(level, "Charged and happened"),
        *(element("p", text) for text in pricing_sentences(found)),
        table(heads, named(rows), caption="Actual over expected, and gaps against the reference"),
        csv_link(found._groups, f"{prefix}pricing.csv"),
        legend([label(names[k], 60) for k in order], len(names) - len(order)),
        element(
            "figure",
            element("figcaption", "Actual over expected by band of the score"),
            band_chart(found).render(class_="chart wide"),
        ),
        table(
            ["Group", *band_head[1:]], named(by_band),
            caption="Actual over expected by group and band of the score",
        ),
        csv_link(found._bands, f"{prefix}bands.csv"),
        *(element("p", note, class_="note") for note in pricing_notes(found)),
    )  # fmt: skip


def _drawn(found: Pricing) -> list[int]:
    """The largest groups by exposure, in their order."""
    size = np.asarray(found._groups["exposure"], dtype=float)
    return sorted(np.argsort(-size, kind="stable")[:DRAWN_GROUPS].tolist())


def _curves(found: Pricing) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Band, ratio and interval of each group that is drawn, moved a little apart."""
    n_bands = max(found._bands["band"])
    order = _drawn(found)
    out = []
    for place, k in enumerate(order):
        at = slice(k * n_bands, (k + 1) * n_bands)
        ratio, low, high = (
            np.asarray(found._bands[name][at], dtype=float)
            for name in ("actual_expected", "actual_expected_low", "actual_expected_high")
        )
        shift = 0.12 * (place - (len(order) - 1) / 2)
        x = np.arange(1, n_bands + 1) + shift
        low, high = (np.where(np.isfinite(end), end, ratio) for end in (low, high))
        known = np.isfinite(ratio)
        out.append((x[known], ratio[known], low[known], high[known]))
    return out


def _axis(curves: Sequence[tuple[Any, ...]]) -> tuple[float, float]:
    """From 0 to what holds the ratios and most of their intervals."""
    ratios = np.concatenate([[1.0], *(c[1] for c in curves)])
    ends = np.concatenate([[1.0], *(c[3] for c in curves)])
    top = max(float(ratios.max()), min(float(ends.max()), 2.0 * float(ratios.max())))
    return 0.0, 1.08 * top


def band_chart(found: Pricing) -> Chart:
    """The same as a chart for a page."""
    curves = _curves(found)
    n_bands = max(found._bands["band"])
    bottom, top = _axis(curves)
    chart = Chart(
        (0.5, n_bands + 0.5), (bottom, top), x_label="band of the score, lowest to highest",
        y_label="actual / expected", title="Actual over expected by group and band of the score",
        width=720, height=300, x_ticks=range(1, n_bands + 1),
    )  # fmt: skip
    left, right = chart.px(np.array([0.5, n_bands + 0.5]))
    even = float(chart.py(1.0))
    chart.add(element("path", d=f"M{left:.1f} {even:.1f}H{right:.1f}", class_="guide"))
    for k, (x, ratio, low, high) in enumerate(curves):
        chart.error_bars(x, np.clip(low, bottom, top), np.clip(high, bottom, top), k)
        if len(x):
            chart.line(x, ratio, k)
        chart.dots(x, ratio, k)
    return chart


def plot_pricing(found: Pricing) -> Any:
    """Actual over expected in each band, one line a group, as a Matplotlib figure."""
    from .plots import _pyplot, safe

    plt = _pyplot()
    fig, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    curves = _curves(found)
    names = short_names([found._groups["group"][k] for k in _drawn(found)])
    axes.axhline(1.0, color="0.6", linestyle="--", linewidth=1)
    for k, (x, ratio, low, high) in enumerate(curves):
        axes.errorbar(
            x, ratio, yerr=np.array([ratio - low, high - ratio]), color=PALETTE[k], marker="o",
            markersize=4, linewidth=1.6, elinewidth=1, label=safe(names[k]),
        )  # fmt: skip
    axes.set_ylim(*_axis(curves))
    axes.set_xticks(range(1, max(found._bands["band"]) + 1))
    axes.set_xlabel("band of the score, lowest to highest")
    axes.set_ylabel("actual / expected")
    axes.legend(frameon=False)
    return fig


# ------------------------------------------------------------------------------------------------
# The gap in units of the score, in words: what a page says first.


# In sentences; the tables have all of them.
MOST_MONEY_SENTENCES = 6


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


def money_sentences(audit: Audit, favorable: str | None = None) -> list[str]:
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
    shown = [gap_words(impact, group, favorable) for group in groups[:MOST_MONEY_SENTENCES]]
    if len(groups) > MOST_MONEY_SENTENCES:
        shown.append(f"{len(groups) - MOST_MONEY_SENTENCES} more groups are in the tables.")
    return shown


def money_sections(
    audit: Audit, level: str = "h2", prefix: str = "", favorable: str | None = None
) -> Html:
    """Gaps in units of the score, what the controls explain of them, and prices."""
    first, *rest = money_sentences(audit, favorable)
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
