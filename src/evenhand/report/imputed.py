"""What imputed membership leaves open, on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bars import Bar, bar_chart
from .curves import number
from .markup import Html, csv_link, element, label, table
from .text import imputation_words

if TYPE_CHECKING:
    from ..auditing.imputed import Imputation


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
            _range(g.value, g.interval),
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


def _range(value: float, interval: tuple[float, float]) -> str:
    return f"{number(value, 3)} ({number(interval[0], 3)} to {number(interval[1], 3)})"
