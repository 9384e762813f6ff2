"""Colors, numbers and labels as people read them: the same in text, figures and pages."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

# Okabe and Ito's palette, which the common kinds of color blindness keep apart; yellow last, as it
# is faint on white.
PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D", "#B8A900",
)  # fmt: skip
DASHES = ("", "6 2", "2 2", "8 2 2 2", "", "6 2", "2 2", "8 2 2 2")


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers inside [low, high], about `count` of them."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return []
    raw = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: Any, digits: int = 4) -> str:
    """A number for a table or a tick: few digits, no "-0", "n/a" where undefined."""
    if value is None or value != value:
        return "n/a"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    text = f"{value:.{digits}g}"
    if abs(value) >= 10**digits and abs(value) < 1e9:
        text = f"{value:,.0f}"
    return "0" if float(text.replace(",", "")) == 0 else text


def with_margin(value: float, margin: float) -> str:
    """ "1.234 ± 0.056": the margin to two digits, the value to the same place."""
    if not margin > 0 or not math.isfinite(margin):
        return number(value)
    places = 1 - math.floor(math.log10(margin))
    if places > 8 or margin >= 1e9:
        return f"{number(value)} ± {number(margin, 2)}"
    places = max(places, 0)
    return f"{value:,.{places}f} ± {margin:,.{places}f}"


def short_names(names: Sequence[str], limit: int = 24) -> tuple[str, ...]:
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
