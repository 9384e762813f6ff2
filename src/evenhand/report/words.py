"""Numbers, labels and the sentences about a measure, as people read them everywhere."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.criteria import get_criterion, listing

if TYPE_CHECKING:
    from ..auditing.result import Audit
    from ..measures.measures import Measure


# ------------------------------------------------------------------------------------------------
# Numbers and labels.


def number(value: Any, digits: int = 4) -> str:
    """A number for a table or a tick: few digits, no "-0", "n/a" where undefined."""
    if value is None or value != value:
        return "n/a"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    text = f"{value:,.{digits}g}"
    if abs(value) >= 10**digits and abs(value) < 1e9:
        text = f"{value:,.0f}"
    return "0" if float(text.replace(",", "")) == 0 else text


def with_margin(value: float, margin: float) -> str:
    """ "1.234 ± 0.056": the margin to two digits, the value to the same place."""
    shown = to_margin((-margin, margin), value, margin)
    return " ± ".join(shown) if 0 < margin < math.inf else number(value)


def to_margin(interval: Sequence[float], *values: float) -> list[str]:
    """Numbers to the place of the second digit of half the width of an interval."""
    margin = (interval[1] - interval[0]) / 2
    if not 1e-8 < margin < 1e9 or not all(map(math.isfinite, values)):
        return [number(value, 3) for value in values]
    return [fixed(value, max(1 - math.floor(math.log10(margin)), 0)) for value in values]


def short_names(names: Iterable[str], limit: int = 24) -> tuple[str, ...]:
    """Labels fit for a legend: one line, at most `limit` characters, still distinct."""
    out: list[str] = []
    for name in names:
        text = clean(name)
        if len(text) > limit:
            text = text[: limit - 1].rstrip() + "…"
        text = text or "(empty)"
        plain, copy = text, 2
        while text in out:
            text, copy = f"{plain} ({copy})", copy + 1
        out.append(text)
    return tuple(out)


def clean(text: str) -> str:
    """Without line breaks and characters that steer a terminal or reverse the reading order."""
    flat = " ".join(str(text).split())
    return "".join(
        "�" if unicodedata.category(c) in ("Cc", "Cs") or c in _STEERING else c for c in flat
    )


_STEERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def cells(text: str) -> int:
    """How many columns of a terminal a text fills: two for each wide character."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def group_name(label: str) -> str:
    """A group in a sentence: "group 'north'"."""
    return f"group '{short_names([label], 60)[0]}'"


def part_name(part: str) -> str:
    """A part of an audit: "group 'north' against the rest", or an attribute."""
    if part == "group":  # the name of an attribute that came without one
        return "all groups"
    group, against, _ = part.rpartition(" against the rest")
    return f"{group_name(group)}{against}" if against else f"'{short_names([part], 60)[0]}'"


def fixed(value: float, places: int = 4) -> str:
    """A number to so many places, without "-0.0000"."""
    return f"{round(value, places) + 0.0:,.{places}f}"


def span(interval: Sequence[float]) -> str:
    """ "0.10 to 0.30"."""
    return " to ".join(to_margin(interval, *interval))


def with_interval(value: float, interval: Sequence[float], star: str = "") -> str:
    """ "0.20 (0.10 to 0.30)": no more digits than the width of the interval deserves."""
    shown, *ends = to_margin(interval, value, *interval)
    return f"{shown}{star} ({' to '.join(ends)})"


def places_of(measure: Measure, least: int) -> int:
    """Places after the point that the first digit of the error takes, `least` or more."""
    error = measure.stderr
    return max(least, min(-math.floor(math.log10(error)), 9)) if error > 0 else least


def measured(measure: Measure) -> str:
    """ "0.0551 (0.030 to 0.088)": the value and the interval of a measure."""
    places = places_of(measure, 3)
    low, high = (f"{end:.{places}f}" for end in measure.interval)
    return f"{fixed(measure.shown, max(places, 4))} ({low} to {high})"


def plus_minus(measure: Measure) -> str:
    """ "0.0551 ± 0.0290": the value of a measure and half the width of its interval."""
    low, high = measure.interval
    places = places_of(measure, 4)
    margin = f"{measure.shown:.{places}f} ± {(high - low) / 2:.{places}f}"
    return margin if measure.defined else "not defined"


def half_width(result: Any) -> str:
    """What ± is in a table of an audit or a path."""
    return f"± is half the width of the {percent(result.confidence_level)} interval"


def percent(share: float) -> str:
    """A confidence level or a limit: "95%"."""
    return f"{100 * share:g}%"


def p_text(p: float) -> str:
    """A p-value for a table."""
    if math.isnan(p):
        return "n/a"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_words(p: float) -> str:
    """A p-value in a sentence: "p = 0.012"."""
    return f"p {p_text(p)}" if p < 0.001 else f"p = {p_text(p)}"


def upper_first(text: str) -> str:
    """The text with a capital at its start."""
    return text[:1].upper() + text[1:]


# ------------------------------------------------------------------------------------------------
# What a measure says.


# Where words change; shares of the uncertainty about the group. Not thresholds of any law.
SMALL, LARGE = 0.01, 0.10
# Where they change for the largest actual over expected of a group against the least.
SMALL_RATIO, LARGE_RATIO = 1.05, 1.2
# From the least to the worst.
GRADES = {
    "undefined": "– Nothing to measure",
    "holds": "✓ No difference found",
    "unclear": "? Not enough data",
    "slight": "! Slightly violated",
    "unsized": "! Violated, size unknown",
    "clear": "✕ Clearly violated",
    "strong": "✕ Strongly violated",
}


def grade(measure: Measure) -> str:
    """Return how bad it is: a key of `GRADES`."""
    if not measure.defined:
        return "undefined"
    if not measure.found:
        return "holds" if measure.interval[1] <= SMALL else "unclear"
    if measure.unsized:
        return "unsized"
    if measure.value < SMALL:
        return "slight"
    return "clear" if measure.value < LARGE else "strong"


def judge_measure(measure: Measure, title: str = "") -> str:
    """Return one sentence or two on one criterion, with its name."""
    criterion = get_criterion(measure.criterion)
    title = title or criterion.title
    level = grade(measure)
    if level == "undefined":
        return (
            f"{title} has nothing to measure here: the {criterion.words(criterion.given)} alone "
            "reveals the group, so the value is not defined."
        )
    low, high = (f"{100 * v:.{places_of(measure, 3) - 2}f}%" for v in measure.interval)
    size = f"{measure.meaning} (between {low} and {high})"
    p = "" if math.isnan(measure.p_value) else f", {p_words(measure.p_value)}"
    advice = f" {measure.conflict}." if measure.conflict else ""
    if level == "holds":
        return f"{title}: the audit found no difference. {upper_first(size)}.{advice}"
    if level == "unclear":
        chance = f" Chance alone could produce this ({p[2:]})." if p and not advice else ""
        p = p if advice else ""
        return f"{title}: not enough data. {upper_first(size)}{p}.{chance}{advice}"
    if level == "unsized":
        return f"{title} is violated, but its size is unknown: {size}{p}.{advice}"
    return f"{title} is {GRADES[level][2:].lower()}: {size}{p}.{advice}"


def worst_part(audit: Audit, criterion: str) -> tuple[str, Measure]:
    """Return which part of an audit decides on a criterion: the one violated most."""
    return max(
        audit.parts(criterion).items(),
        key=lambda part: (list(GRADES).index(grade(part[1])), part[1].value),
    )


def grade_criterion(audit: Audit, criterion: str) -> str:
    """Return how bad a criterion is; of a price actual over expected counts if it is worse."""
    level = grade(worst_part(audit, criterion)[1])
    ends = _uneven_prices(audit, criterion)
    if not ends:
        return level
    ratio = ends[-1][1] / ends[0][1] if ends[0][1] > 0 else math.inf
    own = "slight" if ratio < SMALL_RATIO else "clear" if ratio < LARGE_RATIO else "strong"
    return max(level, own, key=list(GRADES).index)


def _uneven_prices(audit: Audit, criterion: str) -> list[tuple[str, float]]:
    """Groups of least and largest actual over expected, where a test finds that it differs."""
    pricing = audit.pricing
    if criterion != "sufficiency" or pricing is None or not pricing.homogeneity["groups"] < 0.05:
        return []
    columns = pricing._groups
    ratios = zip(columns["group"], columns["actual_expected"], strict=True)
    known = sorted((r for r in ratios if r[1] == r[1]), key=lambda r: r[1])
    return [known[0], known[-1]] if len(known) > 1 else []


def judge_criterion(audit: Audit, criterion: str) -> str:
    """Return what an audit says on one criterion: the worst of a crossing and its parts."""
    own = audit.measures[criterion]
    name, worst = worst_part(audit, criterion)
    text = judge_measure(worst)
    ends, how = _uneven_prices(audit, criterion), grade_criterion(audit, criterion)
    if ends:
        (low, least), (high, most) = ends
        assert audit.pricing is not None
        title = get_criterion(criterion).title
        text = (
            f"{title} is {GRADES[how][2:].lower()}: actual over expected is {number(least, 3)} in "
            f"{group_name(low)} and {number(most, 3)} in {group_name(high)} "
            f"({p_words(audit.pricing.homogeneity['groups'])}). In information: {worst.meaning}."
        )
    if worst is own:
        return text
    kind = "crossed groups" if audit.attributes else "groups"
    return (
        f"{text} This is for {part_name(name)}. For all {len(audit.labels)} {kind} together the "
        f"value is {fixed(own.shown)}."
    )


def headline(audit: Audit) -> str:
    """Return all criteria in one line, the worst first."""
    levels = {name: grade_criterion(audit, name) for name in audit.measures}
    if set(levels.values()) == {"holds"}:
        return "The audit found no difference by any criterion measured."
    return " ".join(
        f"{text[2:]}: {listing([name for name in levels if levels[name] == level])}."
        for level, text in reversed(GRADES.items())
        if level in levels.values()
    )


def accuracy(r2: float) -> str:
    """R² in a sentence."""
    if r2 <= 0:
        return f"The score predicts the target no better than the target's mean (R² {r2:.3f})."
    return f"The score explains {100 * r2:.1f}% of the variance of the target (R²)."


def negative_scores(audit: Audit) -> str:
    """Return how many scores are negative where the target never is."""
    share = 100 * audit.n_negative / (audit.n_rows - audit.n_unknown)
    return f"{audit.n_negative:,} scores ({share:.2g}%) are negative, but the target never is."


def is_measured(audit: Audit) -> bool:
    """Whether the attribute is a measurement, cut into bands for tables and figures."""
    return any(m.of == "measurement" for m in audit.measures.values())


def part_word(audit: Audit) -> str:
    """Return what rows are tabled and drawn by: group, or band of a measurement."""
    return "band" if is_measured(audit) else "group"


def people_words(audit: Audit) -> str:
    """Return whom a score is to be fair to."""
    name = short_names([audit.sensitive_name], 60)[0]
    # The name an attribute has when it came as a plain array says nothing.
    named = name != "group"
    if is_measured(audit):
        return f"people whatever their {name if named else 'attribute'}"
    return f"the groups of {name}" if named else "these groups"


def unknown_words(audit: Audit) -> str:
    """Return what rows that are left out lack."""
    return "known value" if is_measured(audit) else "known group"


def largest_group(audit: Audit) -> str:
    """Return the group that others are compared with unless another is named."""
    shares = audit._groups.columns["share"]
    return short_names([audit.labels[max(range(len(shares)), key=shares.__getitem__)]], 60)[0]


def row_count(n_rows: int, n_clusters: int | None) -> str:
    """Return so many rows, and in how many clusters."""
    return f"{n_rows:,} rows" + ("" if n_clusters is None else f" in {n_clusters:,} clusters")
