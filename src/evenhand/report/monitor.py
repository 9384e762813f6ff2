"""Fairness over time: in words, as a picture and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from .curves import short_names
from .impact import fit_table
from .markup import Html, csv_link, element, join, json_block, label, page, table
from .plots import _pyplot
from .provenance import stamp
from .svg import Chart
from .text import fixed
from .writing import write_text

if TYPE_CHECKING:
    from ..auditing.monitoring import Look, Monitor

ROWS = 24
MARKS = "Vertical bars: band of all periods. Dashed line: the limit. Dotted line: an alarm."
METHOD = (
    "Bands hold the true value of every period at once, however long the series grows and however "
    "often one looks: look t may spend 6/(π²t²) of the stated chance of a false alarm (alpha "
    "spending). An alarm means that the last 1, 2, 4, … periods and those before them since the "
    "last change have bounds that do not meet, at that chance shared by all windows."
)


HEADS = ["period", "people", "value", "band of all periods"]


def monitor_words(found: Monitor) -> list[str]:
    """The state, what alarms say, and notes."""
    name, first, last = short_names([found.sensitive_name, found.periods[0], found.periods[-1]], 40)
    return [
        f"Fairness by {name} over {len(found.periods)} periods, {first} to {last}: {found.state}.",
        f"Chance of a false alarm over all looks: {100 * found.level:g}%.",
        *(alarm.text for alarm in found.alarms),
        *found.notes,
    ]


def monitor_rows(looks: Sequence[Look], limit: int = ROWS) -> tuple[list[list[str]], str]:
    """Rows of the table by period, the latest ones, and how many there were before them."""
    shown = looks[-limit:]
    names = short_names([look.period for look in shown], 30)
    rows = [
        [
            name,
            f"{look.n:,}",
            _value(look),
            look.why if _open(look) else f"{look.low:.4f} to {look.high:.4f}",
        ]
        for name, look in zip(names, shown, strict=True)
    ]
    before = len(looks) - len(shown)
    return rows, f"and {before} periods before these" if before else ""


def describe_monitor(found: Monitor) -> str:
    """The paragraph and the table behind ``str(monitor)``, 80 columns wide."""
    lines = [fill(text, 80) for text in monitor_words(found)]
    for name, looks in found.looks.items():
        rows, before = monitor_rows(looks)
        lines += ["", name, *fit_table(HEADS, rows, 80), *([before] if before else [])]
    return "\n".join(lines)


def _open(look: Look) -> bool:
    return look.value != look.value


def _value(look: Look) -> str:
    return "–" if _open(look) else fixed(max(look.value, 0.0))


def plot_monitor(found: Monitor) -> Any:
    """One panel per criterion: values, the band, limits, and where alarms were raised.

    Parameters
    ----------
    found : Monitor

    Returns
    -------
    matplotlib Figure
    """
    plt = _pyplot()
    fig, axes = plt.subplots(
        len(found.looks), 1, figsize=(8.0, 0.6 + 2.6 * len(found.looks)), sharex=True,
        squeeze=False, layout="constrained",
    )  # fmt: skip
    place = np.arange(len(found.periods))
    for ax, (name, looks) in zip(axes[:, 0], found.looks.items(), strict=True):
        known = np.array([not _open(look) for look in looks])
        value = np.array([max(look.value, 0.0) for look in looks])
        ax.fill_between(
            place[known], [x.low for x in looks if not _open(x)],
            [x.high for x in looks if not _open(x)], color="#4878a8", alpha=0.2, linewidth=0,
        )  # fmt: skip
        ax.plot(place[known], value[known], "o-", color="#4878a8", markersize=3.5, linewidth=1)
        if name in found.limits:
            ax.axhline(found.limits[name], color="#222222", linestyle="--", linewidth=1)
        for alarm in found.alarms:
            if alarm.criterion == name:
                ax.axvline(found.periods.index(alarm.at), color="#b33b2e", linewidth=1.2)
        ax.set_ylim(0, _top(found, name))
        ax.set_ylabel(name)
    step = max(1, len(place) // 12)
    axes[-1, 0].set_xticks(place[::step], found.periods[::step], rotation=45, ha="right")
    return fig


def _top(found: Monitor, name: str) -> float:
    """Where the picture ends: with the band, unless that is wide beyond reading."""
    known = [look for look in found.looks[name] if not _open(look)]
    highest = max((max(look.value, 0.0) for look in known), default=0.0)
    band = 1.05 * max((look.high for look in known), default=0.0)
    return max(min(2.5 * highest, band), 1.2 * found.limits.get(name, 0.0), 0.01)


def write_monitor_page(found: Monitor, path: Any, force: bool = False) -> Any:
    """The page, whole or not at all."""
    return write_text(path, monitor_page(found), force)


def monitor_page(found: Monitor, title: str = "Fairness over time") -> str:
    """One self-contained page."""
    periods = found.periods
    words = [element("p", alarm.text) for alarm in found.alarms]
    body = [
        element(
            "header",
            element("h1", title),
            element(
                "p",
                join([label(found.sensitive_name, 80), f", {len(periods)} periods, "]),
                label(periods[0], 40),
                " to ",
                label(periods[-1], 40),
            ),
        ),
        element(
            "section",
            element("h2", f"State: {found.state}"),
            *(words or [element("p", "No alarm has been raised at any look.")]),
            *(element("p", note) for note in found.notes),
        ),
    ]
    for name, looks in found.looks.items():
        body.append(
            element(
                "section",
                element("h2", name.capitalize()),
                _chart(found, name),
                element("p", MARKS),
                _rows(looks),
            )
        )
    columns = {
        key: [row[key] for row in found.to_dict()["looks"][name]]
        for name in list(found.looks)[:1]
        for key in ("period", "n", "value", "stderr", "low", "high")
    }
    body += [
        csv_link(columns, "monitor.csv"),
        element("section", element("h2", "Method"), element("p", METHOD)),
        json_block({**found.to_dict(), **stamp()}, "evenhand-data"),
    ]
    return page(title, body)


def _rows(looks: Sequence[Look]) -> Html:
    rows = [
        [
            label(look.period, 40),
            f"{look.n:,}",
            _value(look),
            label(look.why, 60) if _open(look) else f"{look.low:.4f} to {look.high:.4f}",
        ]
        for look in looks
    ]
    return table([head.capitalize() for head in HEADS], rows, caption="By period")


def _chart(found: Monitor, name: str) -> Html:
    looks = found.looks[name]
    place = np.arange(1, len(looks) + 1, dtype=float)
    known = np.array([not _open(look) for look in looks])
    value = np.array([0.0 if _open(x) else max(x.value, 0.0) for x in looks])
    top = _top(found, name)
    chart = Chart(
        (0.5, len(looks) + 0.5), (0.0, top), y_label=name, width=760,
        x_label=f"period (1 is {found.periods[0]})",
        title=f"{name} by period, with the band of all periods",
    )  # fmt: skip
    low = np.array([look.low for look in looks])
    high = np.minimum([look.high for look in looks], top)
    if known.any():
        chart.error_bars(place[known], np.minimum(low, top)[known], high[known], 0)
        chart.line(place[known], value[known], 0)
        chart.dots(place[known], value[known], 0)
    if name in found.limits:
        limit = found.limits[name]
        chart.line([0.5, len(looks) + 0.5], [limit, limit], 1)
    for alarm in found.alarms:
        if alarm.criterion == name:
            at = found.periods.index(alarm.at) + 1.0
            chart.line([at, at], [0.0, top], 2)
    return chart.render()
