"""Drivers of a disparity in words and as a picture."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from .curves import number, short_names
from .plots import _pyplot

if TYPE_CHECKING:
    from ..auditing.drivers import Drivers, Part

ROWS = 20


def describe_drivers(found: Drivers) -> str:
    """The paragraph and the table behind ``str(drivers)``, 80 columns wide."""
    from ..auditing.drivers import CLOSINGS, LEAK

    widest, reference = short_names([found.widest, found.reference], 24)
    gap = found.gaps[found.widest]
    lines = [
        f"Drivers of the score by {found.sensitive_name}: {len(found)} features.",
        f"Mean score of {widest} less that of {reference}: {_range(gap)}.",
    ]
    for name, part in found.criteria.items():
        lines.append(f"{name.capitalize()}: {_range(part)}.")
    closed = f"What goes away when a feature's path is closed ({CLOSINGS[found.close]}):"
    lines += ["", fill(closed, 80), ""]
    heads = ["feature", "tells group", "of the gap", *found.criteria]
    shown = found.drivers[:ROWS]
    rows = [
        [
            name,
            number(driver.stands_in.value, 2),
            _starred(driver.gaps[found.widest]),
            *(_starred(driver.criteria[c]) for c in found.criteria),
        ]
        for name, driver in zip(short_names([d.feature for d in shown], 24), shown, strict=True)
    ]
    width = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = [
            row[0].ljust(width[0]),
            *(c.rjust(w) for c, w in zip(row[1:], width[1:], strict=True)),
        ]
        lines.append("  ".join(cells).rstrip())
    if len(found) > ROWS:
        lines.append(f"and {len(found) - ROWS} more, each with a smaller part of the gap")
    left = number(found.remainder, 3)
    notes = [
        f"* interval excludes 0. The parts of the gap leave {left} of it: what several features do "
        "together is counted with each of them or with none."
    ]
    notes += [
        f"{feature!r} explains more than {100 * LEAK:.0f}% of the target by itself: is it known "
        "before the outcome is?"
        for feature in found.leaks
    ]
    lines += ["", *(fill(note, 80) for note in (*notes, *found.notes))]
    return "\n".join(lines)


def _range(part: Part) -> str:
    low, high = part.interval
    return f"{number(part.value, 3)} ({number(low, 3)} to {number(high, 3)})"


def _starred(part: Part) -> str:
    star = "*" if part.interval[0] > 0 or part.interval[1] < 0 else " "
    return number(part.value, 3) + star


def plot_drivers(found: Drivers, n: int = 15) -> Any:
    """Bars with intervals: parts of the widest gap and of each criterion, one row per feature.

    Parameters
    ----------
    found : Drivers
    n : int
        Features to show, those with the largest parts of the gap.

    Returns
    -------
    matplotlib Figure
    """
    plt = _pyplot()
    shown = found.drivers[:n][::-1]
    names = short_names([d.feature for d in shown], 30)
    panels = [
        (f"gap, {found.widest} less {found.reference}", [d.gaps[found.widest] for d in shown])
    ]
    panels += [(name, [d.criteria[name] for d in shown]) for name in found.criteria]
    panels.append(("tells the group", [d.stands_in for d in shown]))
    fig, axes = plt.subplots(
        1, len(panels), figsize=(2.0 + 2.6 * len(panels), 1.2 + 0.28 * len(shown)), sharey=True,
        layout="constrained",
    )  # fmt: skip
    place = np.arange(len(shown))
    for ax, (title, parts) in zip(axes, panels, strict=True):
        values = np.array([p.value for p in parts])
        ends = np.array([p.interval for p in parts]).T.reshape(2, -1)
        errors = np.abs(ends - values)
        color = "#4878a8" if title != "tells the group" else "#999999"
        ax.barh(place, values, color=color, height=0.7)
        ax.errorbar(values, place, xerr=errors, fmt="none", ecolor="#222222", elinewidth=1)
        ax.axvline(0, color="#222222", linewidth=0.8)
        ax.set_title(title, fontsize=10)
        ax.margins(x=0.08)
        ax.locator_params(axis="x", nbins=4)
    axes[0].set_yticks(place, names)
    return fig
