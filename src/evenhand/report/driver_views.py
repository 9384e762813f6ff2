"""Drivers of a disparity in words and as a picture."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.files import write_text
from .._core.provenance import stamp
from .charts import Bar, bar_chart
from .formats import number, short_names
from .markup import Html, csv_link, element, json_block, label, page, table
from .plots import _pyplot
from .sections import footer
from .verdict_views import fit_table

if TYPE_CHECKING:
    from ..auditing.drivers import Drivers, Part


ROWS = 20


def driver_parts(found: Drivers) -> tuple[list[str], list[str], list[list[str]], list[str]]:
    """Sentences, the header and the rows of a table, and notes."""
    from ..auditing.drivers import CLOSINGS

    name, widest, reference = short_names(
        [found.sensitive_name, found.widest, found.reference], 24
    )  # fmt: skip
    words = [
        f"Drivers of the score by {name}: {len(found)} features.",
        f"Mean score of {widest} less that of {reference}: {_range(found.gaps[found.widest])}.",
        *(f"{c.capitalize()}: {_range(part)}." for c, part in found.criteria.items()),
        f"What goes away when a feature's path is closed ({CLOSINGS[found.close]}):",
    ]
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
    notes = ["* interval excludes 0. " + left_over(found), *remarks(found)]
    if len(found) > ROWS:
        notes.insert(0, f"{len(found) - ROWS} more features have smaller parts of the gap.")
    return words, heads, rows, notes


def describe_drivers(found: Drivers) -> str:
    """The paragraph and the table behind ``str(drivers)``, 80 columns wide."""
    words, heads, rows, notes = driver_parts(found)
    lines = [fill(text, 80) for text in words]
    lines += ["", *fit_table(heads, rows, 80), "", *(fill(note, 80) for note in notes)]
    return "\n".join(lines)


def left_over(found: Drivers) -> str:
    """Why parts need not add up, and by how much they do not."""
    return (
        f"The parts of the gap leave {number(found.remainder, 3)} of it: what several features do "
        "together is counted with each of them or with none."
    )


def remarks(found: Drivers) -> list[str]:
    """Leaks of the target, copies, and what else is to be said."""
    from ..auditing.drivers import LEAK

    leaks = [
        f"{feature!r} explains more than {100 * LEAK:.0f}% of the target by itself: is it known "
        "before the outcome is?"
        for feature in found.leaks
    ]
    return [*leaks, *found.notes]


def drivers_section(found: Drivers) -> Html:
    """Which features carry the gap: words, a picture and a table."""
    from ..auditing.drivers import CLOSINGS

    gap = found.gaps[found.widest]
    widest, reference = label(found.widest, 60), label(found.reference, 60)
    shown = found.drivers[:ROWS]
    bars = [Bar(d.feature, d.gaps[found.widest].value, *d.gaps[found.widest].interval)
            for d in shown]  # fmt: skip
    heads = ["Feature", "Tells group", "Part of the gap",
             *(f"Part of {name}" for name in found.criteria)]  # fmt: skip
    rows = [
        [
            label(d.feature, 60),
            number(d.stands_in.value, 2),
            _range(d.gaps[found.widest]),
            *(_range(d.criteria[name]) for name in found.criteria),
        ]
        for d in shown
    ]
    more = len(found) - len(shown)
    return element(
        "section",
        element("h2", "Which features carry the gap"),
        element(
            "p", "Mean score of ", widest, " less that of ", reference, f": {_range(gap)}. A part "
            "is what goes away when the path of one feature is closed "
            f"({CLOSINGS[found.close]}).",
        ),
        element(
            "figure",
            element("figcaption", "Parts of the gap, with intervals"),
            bar_chart(bars, "part of the gap", "Parts of the gap by feature"),
        ),
        table(heads, rows, caption="By feature; in brackets, intervals"),
        *([element("p", f"{more} more features have smaller parts.", class_="note")] if more
          else []),
        csv_link(_columns(found), "drivers.csv"),
        element("p", left_over(found), " Parts of an information do not add up.", class_="note"),
        *(element("p", text, class_="note") for text in remarks(found)),
    )  # fmt: skip


def _columns(found: Drivers) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"feature": [d.feature for d in found.drivers]}
    parts = {"tells_group": [d.stands_in for d in found.drivers],
             "gap": [d.gaps[found.widest] for d in found.drivers]}  # fmt: skip
    parts |= {name: [d.criteria[name] for d in found.drivers] for name in found.criteria}
    for name, values in parts.items():
        columns[name] = [p.value for p in values]
        columns[f"{name}_low"] = [p.interval[0] for p in values]
        columns[f"{name}_high"] = [p.interval[1] for p in values]
    columns["leak"] = [d.leak for d in found.drivers]
    return columns


def drivers_page(found: Drivers) -> str:
    """One self-contained page."""
    title = "Drivers of a disparity"
    head = element(
        "header",
        element("h1", title),
        element(
            "p",
            f"{len(found)} features, {len(found.gaps) + 1} groups",
            *([] if found.sensitive_name == "group" else [" of ", label(found.sensitive_name, 80)]),
            class_="soft",
        ),
    )
    body = [
        head,
        element("main", drivers_section(found)),
        footer(),
        json_block({**found.to_dict(), **stamp()}, "evenhand-data"),
    ]
    return page(title, body)


def write_drivers_page(found: Drivers, path: Any, force: bool = False) -> Any:
    """The page, whole or not at all."""
    return write_text(path, drivers_page(found), force)


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
