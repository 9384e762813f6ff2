"""What the figures show, as numbers: densities, calibration curves, ticks and short labels.

Matplotlib and the HTML report draw the same curves, so they are computed here, once.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector

if TYPE_CHECKING:
    from ..auditing.result import Audit


# Okabe and Ito's palette, which the common kinds of color blindness keep apart; yellow last, as it
# is faint on white.
PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#4D4D4D", "#B8A900",
)  # fmt: skip
DASHES = ("", "6 2", "2 2", "8 2 2 2", "", "6 2", "2 2", "8 2 2 2")
MAX_GROUPS = len(PALETTE)


@dataclass(frozen=True)
class Sample:
    """The rows an audit keeps for its figures, restricted to the groups that are drawn.

    Attributes
    ----------
    s, y : (m,) arrays
        Scores and targets; `y` is None without a target.
    membership : (m, G) array
        Weight of each row in each drawn group (0 or the sample weight for known groups).
    names : tuple of G str
        The groups, full length. `index` gives their numbers in the audit.
    """

    s: Vector
    y: Vector | None
    membership: Vector
    names: tuple[str, ...]
    index: tuple[int, ...]

    @property
    def codes(self) -> NDArray[np.intp]:
        """The most likely drawn group of each row; −1 where the row is in none of them."""
        return np.where(self.membership.any(axis=1), self.membership.argmax(axis=1), -1)


def sample_of(audit: Audit, limit: int = MAX_GROUPS) -> Sample:
    """The sample of an audit with its largest `limit` groups, in their original order."""
    kept = audit._sample
    if not kept:
        raise ValueError(
            "`audit` must come from evenhand.audit to be drawn: it holds no rows. Hint: an audit "
            "read back from a file keeps its tables only."
        )
    shares = np.asarray(audit._groups.columns["share"], dtype=float)
    index = tuple(sorted(np.argsort(-shares, kind="stable")[:limit].tolist()))
    membership = kept.get("membership")
    if membership is None:
        membership = kept["codes"][:, None] == np.arange(len(shares))[None, :]
    membership = np.asarray(membership, dtype=float)[:, list(index)]
    if kept.get("weight") is not None:
        membership = membership * kept["weight"][:, None]
    names = tuple(audit.labels[k] for k in index)
    return Sample(kept["s"], kept["y"], membership, names, index)


def grid_over(*columns: Vector, size: int = 120) -> Vector:
    """Points covering all but the last 0.2% of the values, with a margin; never a single point."""
    values = np.concatenate(columns)
    low, high = np.quantile(values, [0.001, 0.999])
    spread = float(high - low)
    if spread <= 1e-12 * max(abs(low), abs(high), 1e-300):
        spread = max(abs(float(low)), 1.0) * 0.1
    margin = 0.08 * spread
    return np.linspace(float(low) - margin, float(high) + margin, size)


def density(values: Vector, weight: Vector, grid: Vector) -> Vector:
    """Kernel density Σ wᵢ φ((x − vᵢ)/h) / (h Σ wᵢ), h by Silverman's rule on effective rows."""
    keep = weight > 0
    values, weight = values[keep], weight[keep] / weight[keep].sum()
    if not len(values):
        return np.zeros_like(grid)
    spread = math.sqrt(float(weight @ (values - weight @ values) ** 2))
    order = np.argsort(values, kind="stable")
    low, high = np.interp([0.25, 0.75], np.cumsum(weight[order]), values[order])
    if high > low:
        spread = min(spread, float(high - low) / 1.349)
    width = 0.9 * spread * float(np.square(weight).sum()) ** 0.2
    # A group of one row, or of equal scores, is still drawn: as a bump of visible width.
    width = max(width, float(grid[-1] - grid[0]) / len(grid))
    z = (grid[:, None] - values[None, :]) / width
    return np.exp(-0.5 * z * z) @ weight / (width * math.sqrt(2 * math.pi))


def calibration(
    s: Vector, y: Vector, weight: Vector, bins: int = 10
) -> tuple[Vector, Vector, Vector]:
    """Mean score, mean target and its standard error in bins of the score with equal weight.

    Each bin holds 20 rows or more, so a small group has fewer bins.
    """
    keep = weight > 0
    s, y, weight = s[keep], y[keep], weight[keep]
    bins = max(1, min(bins, len(s) // 20))
    order = np.argsort(s, kind="stable")
    s, y, weight = s[order], y[order], weight[order]
    share = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
    cell = np.minimum((share * bins).astype(int), bins - 1)
    total = np.bincount(cell, weight, minlength=bins)
    squares = np.bincount(cell, weight * weight, minlength=bins)
    used = total > 0
    mean_s = np.bincount(cell, weight * s, minlength=bins)[used] / total[used]
    mean_y = np.bincount(cell, weight * y, minlength=bins)[used] / total[used]
    square = np.bincount(cell, weight * y * y, minlength=bins)[used] / total[used]
    variance = np.maximum(square - mean_y**2, 0.0)
    return mean_s, mean_y, np.sqrt(variance * squares[used]) / total[used]


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
