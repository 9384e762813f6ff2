"""Fairness over time: in words, as a picture and on a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.files import write_text
from .._core.provenance import stamp
from .charts import Chart
from .formats import short_names
from .markup import Html, csv_link, element, json_block, label, page, table
from .plots import _pyplot
from .sections import footer
from .text import fixed
from .verdict_views import fit_table

if TYPE_CHECKING:
    from ..auditing.monitoring import Look, Monitor


# Rows of a table in a terminal, and on a page.
ROWS, SHOWN = 24, 36
METHOD = (
    "Bands hold the true value of every period at once, however long the series grows and however "
    "often one looks: look t may spend 6/(π²t²) of the stated chance of a false alarm (alpha "
    "spending). An alarm means that the last 1, 2, 4, … periods differ from those before them "
    "since the last change by more than the distances of both to their bounds allow, d > "
    "√(l² + u²), at that chance shared by all windows."
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


def monitor_page(found: Monitor) -> str:
    """One self-contained page."""
    title, periods = "Fairness over time", found.periods
    whose = "" if found.sensitive_name == "group" else label(found.sensitive_name, 80)
    alarms = [element("li", alarm.text) for alarm in found.alarms]
    state = element(
        "section",
        element("h2", f"State: {found.state}"),
        element("ul", *alarms) if alarms else element("p", "No alarm was raised at any look."),
        *(element("p", note, class_="note") for note in found.notes),
    )
    head = element(
        "header",
        element("h1", title),
        element(
            "p", whose, ", " if whose else "", f"{len(periods)} periods, ", label(periods[0], 40),
            " to ", label(periods[-1], 40), class_="soft",
        ),
    )  # fmt: skip
    parts = [
        element(
            "section",
            element("h2", name.capitalize()),
            element("figure", _chart(found, name), element("p", _marks(found, name),
                                                           class_="note")),
            _rows(looks),
        )
        for name, looks in found.looks.items()
    ]  # fmt: skip
    rows = [(name, look) for name, looks in found.looks.items() for look in looks]
    columns: dict[str, list[Any]] = {"criterion": [name for name, _ in rows]}
    for key in ("period", "n", "value", "stderr", "low", "high", "why"):
        columns[key] = [getattr(look, key) for _, look in rows]
    body = [
        head,
        element(
            "main", state, *parts, csv_link(columns, "monitor.csv"),
            element("section", element("h2", "Method"), element("p", METHOD)),
        ),
        footer(),
        json_block({**found.to_dict(), **stamp()}, "evenhand-data"),
    ]  # fmt: skip
    return page(title, body)


def _marks(found: Monitor, name: str) -> str:
    """What is drawn, and nothing that is not."""
    words = ["Shaded: the band of all periods."]
    if name in found.limits:
        words.append("Dashed line: the limit.")
    if any(alarm.criterion == name for alarm in found.alarms):
        words.append("Upright line: an alarm.")
    return " ".join(words)


def _rows(looks: Sequence[Look]) -> Html:
    shown = looks[-SHOWN:]
    rows = [
        [
            label(look.period, 40),
            f"{look.n:,}",
            _value(look),
            label(look.why, 60) if _open(look) else f"{look.low:.4f} to {look.high:.4f}",
        ]
        for look in shown
    ]
    before = len(looks) - len(shown)
    caption = f"The last {len(shown)} periods; {before} more are in the CSV" if before else (
        "By period"
    )  # fmt: skip
    return table([head.capitalize() for head in HEADS], rows, caption=caption)


def _chart(found: Monitor, name: str) -> Html:
    looks = found.looks[name]
    top = _top(found, name)
    chart = Chart(
        (0.5, len(looks) + 0.5), (0.0, top), y_label=name, width=720, height=320, x_label="",
        x_ticks=(), title=f"{name} by period, with the band of all periods",
    )  # fmt: skip
    few = 2.6 if len(looks) <= 60 else 1.6
    for run in _runs(looks):
        place = np.array(run, dtype=float) + 1.0
        value = np.array([max(looks[k].value, 0.0) for k in run])
        low, high = (
            np.minimum([getattr(looks[k], end) for k in run], top) for end in ("low", "high")
        )
        if len(run) == 1:  # a stretch of one period has no width to shade
            chart.error_bars(place, low, high, 0)
        else:
            chart.band(place, low, high, 0)
            chart.line(place, value, 0)
        chart.dots(place, value, 0, few)
    names = found.periods
    # No more names than find room beside each other on a phone.
    longest = max(map(len, short_names(list(names), 12)))
    step = math.ceil(len(looks) / max(2, min(8, 44 // longest)))
    for k in range(0, len(looks), step):
        at = f"{float(chart.px(k + 1)):.1f}"
        text = short_names([names[k]], 12)[0]
        chart.add(element("text", text, x=at, y=chart.height - 16, class_="tick middle"))
    across = [0.5, len(looks) + 0.5]
    if name in found.limits:
        chart.guide(across, [found.limits[name]] * 2, "limit")
    for at in {alarm.at for alarm in found.alarms if alarm.criterion == name}:
        chart.guide([names.index(at) + 1.0] * 2, [0.0, top], "alarm")
    return chart.render(class_="chart wide")


def _runs(looks: Sequence[Look]) -> list[list[int]]:
    """Stretches of periods that say something."""
    runs: list[list[int]] = []
    for k, look in enumerate(looks):
        if _open(look):
            continue
        if runs and runs[-1][-1] == k - 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    return runs
