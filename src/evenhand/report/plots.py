"""Figures for papers and notebooks: the charts of the pages, drawn with Matplotlib.

Each function returns a new figure, which a notebook draws once and ``savefig`` writes. None calls
``plt.show()``, and pyplot keeps none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.installing import need
from ..auditing.figures import drawn_rows
from .after_views import drivers_charts, looks_chart
from .audit_views import audit_charts, measures_chart
from .charts import BOTTOM, DASHES, PALETTE, TOP, Chart, Mark
from .path_views import frontier_chart, frontier_points
from .words import percent, short_names

if TYPE_CHECKING:
    from ..auditing.drivers import Drivers
    from ..auditing.monitoring import Monitor
    from ..auditing.result import Audit
    from ..training.path import FairnessPath

# What the style sheet says of the looks of marks, for Matplotlib.
_LINES: dict[str, dict[str, Any]] = {
    "guide": {"color": "0.5", "lw": 0.9, "dashes": (4, 3)},
    "limit": {"color": "0.15", "lw": 1.0, "dashes": (4, 3)},
    "alarm": {"color": PALETTE[1], "lw": 1.2},
    "axis": {"color": "0.15", "lw": 0.8},
    "whisk": {"color": "0.15", "lw": 1.2},
    "frontier-line": {"color": PALETTE[0], "lw": 1.2, "alpha": 0.6},
}
_ALPHA = {"area": 0.08, "area band": 0.2, "cloud": 0.18, "solid": 0.75}


# ------------------------------------------------------------------------------------------------
# Any chart on axes.


def draw(ax: Any, chart: Chart) -> None:
    """Draw a chart on the axes of a Matplotlib figure."""
    for mark in chart.marks:
        _draw_mark(ax, chart, mark)
    ax.set(xlim=chart.x, ylim=chart.y, xlabel=safe(chart.x_label), ylabel=safe(chart.y_label))
    ax.locator_params(axis="x", nbins=5)
    if chart.x_ticks is not None:
        ax.set_xticks([*chart.x_ticks], [safe(text) for text in chart.x_ticks.values()])
    if chart.y_ticks is not None:
        ax.set_yticks([*chart.y_ticks], [safe(text) for text in chart.y_ticks.values()])
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", color="0.92", lw=0.8)
    ax.set_axisbelow(True)


def _draw_mark(ax: Any, chart: Chart, m: Mark) -> None:
    look: dict[str, Any] = {"color": PALETTE[m.group], "alpha": _ALPHA.get(m.look)}
    if m.kind == "line":
        ax.plot(m.x, m.y, lw=1.8, **_style(m.group))
    elif m.kind == "guide":
        ax.plot(m.x, m.y, zorder=1.5, **_LINES[m.look])
    elif m.kind == "area":
        ax.fill_between(m.x, m.y, m.high, lw=0, **look)
    elif m.kind == "dots":
        ax.plot(m.x, m.y, "o", ms=1.2 * m.size, mew=0, clip_on=False, **look)
    elif m.kind == "bars":
        ax.vlines(m.x, m.y, m.high, lw=0.9, **look)
    else:
        pixels = (chart.height - TOP - BOTTOM) / (chart.y[1] - chart.y[0])
        ax.barh(m.y, np.subtract(m.high, m.x), left=m.x, height=2 * m.size / pixels, lw=0, **look)


def _figure(
    charts: Mapping[str, Chart], size: tuple[float, float], stacked: bool = False, **share: Any
) -> Any:
    """A new figure of charts by title, side by side or stacked.

    In a notebook pyplot does not keep it, as it would draw it again.
    """
    sentence = "A figure needs Matplotlib, which is not installed; the HTML report needs nothing."
    plt = need("matplotlib.pyplot", sentence, "[plot]")
    shape = (len(charts), 1) if stacked else (1, len(charts))
    fig, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False, **share)
    if "inline" in plt.get_backend():
        plt.close(fig)
    for ax, (title, chart) in zip(axes.flat, charts.items(), strict=True):
        draw(ax, chart)
        ax.set_title(safe(title), fontsize="medium", loc="left")
        if chart.x_label == title:
            ax.set_xlabel("")
        if stacked or share:  # the outer charts say what the axes are
            ax.label_outer()
    return fig


def _style(k: int) -> dict[str, Any]:
    style: dict[str, Any] = {"color": PALETTE[k]}
    if DASHES[k]:
        style["dashes"] = tuple(float(v) / 2 for v in DASHES[k].split())
    return style


def _add_legend(fig: Any, names: Sequence[str], total: int) -> None:
    """Names in the colors of their groups, below the charts; `total` groups there are."""
    from matplotlib.lines import Line2D

    labels = [safe(name) for name in short_names(names)]
    if total > len(names):
        labels[-1] += f" ({total - len(names)} smaller groups not shown)"
    handles = [Line2D([], [], **_style(k)) for k in range(len(names))]
    columns = min(len(names), 4 if fig.get_figwidth() > 8 else 3)
    look: dict[str, Any] = {"ncols": columns, "frameon": False, "fontsize": "small"}
    fig.legend(handles, labels, loc="outside lower center", **look)


def safe(text: str) -> str:
    """A label Matplotlib draws as it stands: no mathtext, no glyph the font lacks."""
    from matplotlib import font_manager

    known = _glyphs(font_manager.findfont(font_manager.FontProperties()))
    return "".join(c if ord(c) in known else f"[U+{ord(c):04X}]" for c in text).replace("$", r"\$")


@cache
def _glyphs(font: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(font).get_charmap())


# ------------------------------------------------------------------------------------------------
# The figures.


def plot_audit(audit: Audit) -> Any:
    """Scores by group, target against score by group, and the measures with their intervals.

    Parameters
    ----------
    audit : Audit
        As from :func:`evenhand.audit`.

    Returns
    -------
    matplotlib Figure
    """
    charts = audit_charts(audit)
    charts[f"Measures, {percent(audit.confidence_level)} intervals"] = measures_chart(audit)
    fig = _figure(charts, (4.4 * len(charts), 4.2))
    _add_legend(fig, drawn_rows(audit).names, len(audit.labels))
    title = f"Fairness by {audit.sensitive_name}" + (f": {audit.name}" if audit.name else "")
    fig.suptitle(safe(short_names([title], 90)[0]), fontsize="large")
    return fig


def plot_drivers(result: Drivers, n: int = 15) -> Any:
    """Bars with intervals: parts of the widest gap and of each criterion, one row per feature.

    Parameters
    ----------
    result : Drivers
    n : int
        Features to show, those with the largest parts of the gap.

    Returns
    -------
    matplotlib Figure
    """
    charts = drivers_charts(result, n)
    height = 1.2 + 0.28 * min(n, len(result))
    return _figure(charts, (2.0 + 2.6 * len(charts), height), sharey=True)


def plot_monitor(result: Monitor) -> Any:
    """One panel per criterion: values, the band, limits, and where alarms were raised.

    Parameters
    ----------
    result : Monitor

    Returns
    -------
    matplotlib Figure
    """
    charts = {name.capitalize(): looks_chart(result, name) for name in result.looks}
    return _figure(charts, (8.0, 0.6 + 2.6 * len(charts)), stacked=True)


def plot_path(path: FairnessPath) -> Any:
    """Accuracy against each criterion, with error bars; dominated points are faded."""
    own = {path.criterion: " (the path's own)"}
    charts = {f"{name}{own.get(name, '')}": frontier_chart(path, name) for name in path.criteria}
    fig = _figure(charts, (4 * len(charts), 4.4), sharey=True)
    for ax, name in zip(fig.axes, path.criteria, strict=True):
        _draw_points(ax, path, name)
    shown = [zip(*ax.get_legend_handles_labels(), strict=True) for ax in reversed(fig.axes)]
    entries = {label: handle for pairs in shown for handle, label in pairs}
    fig.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=len(entries),
        frameon=False, fontsize=9,
    )  # fmt: skip
    return fig


def _draw_points(ax: Any, path: FairnessPath, name: str) -> None:
    p = frontier_points(path, name)
    xerr, yerr = np.abs(p.ends.T - p.u), np.abs(p.margins.T - p.accuracy)
    level = percent(path.confidence_level)
    for mask, alpha, label in ((~p.faded, 1.0, "on the frontier"), (p.faded, 0.25, "dominated")):
        if mask.any():
            ax.errorbar(
                p.u[mask], p.accuracy[mask], xerr=xerr[:, mask], yerr=yerr[:, mask], fmt="o",
                color=PALETTE[0], alpha=alpha, markersize=5, elinewidth=0.7, zorder=3,
                label=f"{label} ({level} interval)",
            )  # fmt: skip
    start = {"color": "black", "markersize": 7, "markerfacecolor": "none", "zorder": 4}
    ax.plot(p.u[0], p.accuracy[0], "s", label="no fairness term", **start)
    for k, point in enumerate(path.points):
        if point is path.selected:
            label = f"selected (fairness weight {point.fairness_weight:.3g})"
            chosen = {"color": PALETTE[1], "markersize": 9, "markeredgecolor": "white", "zorder": 5}
            ax.plot(p.u[k], p.accuracy[k], "D", label=label, **chosen)
