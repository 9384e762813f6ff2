"""Figures for papers and notebooks, in Matplotlib.

Each function returns a new figure, which a notebook draws once and ``savefig`` writes. None calls
``plt.show()``, and pyplot keeps none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..auditing.figures import DrawnRows, calibration, density, drawn_rows, grid_over
from .after_views import highest_shown, known_runs
from .charts import DASHES, PALETTE
from .gap_views import band_axis, band_curves, drawn_groups
from .words import fixed, part_word, percent, short_names

if TYPE_CHECKING:
    from ..auditing.drivers import Drivers
    from ..auditing.monitoring import Monitor
    from ..auditing.pricing import Pricing
    from ..auditing.result import Audit
    from ..training.path import FairnessPath


def _subplots(width: float, height: float, *shape: int, **options: Any) -> tuple[Any, Any]:
    """A new figure and its axes; not kept by pyplot, which would draw it in a notebook again."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ModuleNotFoundError(
            "A figure must have Matplotlib, which is not installed. Hint: pip install "
            "'evenhand[plot]', or write the HTML report, which needs nothing."
        ) from error
    fig, axes = plt.subplots(*shape, figsize=(width, height), layout="constrained", **options)
    plt.close(fig)
    return fig, axes


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
    drawn = drawn_rows(audit)
    panels = 2 if drawn.y is None else 3
    fig, axes = _subplots(4.4 * panels, 4.2, 1, panels)
    _draw_densities(axes[0], drawn)
    axes[0].set_title(f"Scores by {part_word(audit)}")
    if drawn.y is not None:
        _draw_calibration(axes[1], drawn)
        axes[1].set_title("Same score, same outcome?")
    _draw_measures(axes[-1], audit)
    _add_legend(fig, axes[0], drawn.names, len(audit.labels))
    title = f"Fairness by {audit.sensitive_name}" + (f": {audit.name}" if audit.name else "")
    fig.suptitle(safe(short_names([title], 90)[0]), fontsize="large")
    return fig


def plot_densities(before: Audit, after: Audit, *, names: tuple[str, str] | None = None) -> Any:
    """Scores by group under two models, one above the other on the same axis.

    Parameters
    ----------
    before, after : Audit
        Audits of the same groups.
    names : (str, str), optional
        Titles; the audits' own names, or "before" and "after".

    Returns
    -------
    matplotlib Figure
    """
    if before.labels != after.labels:
        raise ValueError(
            "`before` and `after` must audit the same groups, got "
            f"{list(before.labels)[:5]} and {list(after.labels)[:5]}."
        )
    pair = (drawn_rows(before), drawn_rows(after))
    grid = grid_over(pair[0].s, pair[1].s)
    titles = names or (before.name or "before", after.name or "after")
    fig, axes = _subplots(6.4, 5.6, 2, 1, sharex=True)
    for ax, drawn, title, audit in zip(axes, pair, titles, (before, after), strict=True):
        _draw_densities(ax, drawn, grid)
        values = ", ".join(f"{m.criterion} {fixed(m.shown, 3)}" for m in audit.measures.values())
        ax.set_title(f"{safe(title)}: {values}", fontsize="medium", loc="left")
    axes[0].set_xlabel("")
    _add_legend(fig, axes[0], pair[0].names, len(before.labels))
    return fig


def plot_gains(
    before: Any,
    after: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    names: tuple[str, str] = ("before", "after"),
) -> Any:
    """Who gains and who loses: the change of each row's score, by group.

    A bar spans the middle half of a group's changes, a line the middle 90%, a dot the mean.

    Parameters
    ----------
    before, after : (n,) arrays
        Scores of the same rows under two models.
    sensitive_features : array, series, frame or Proxy
        Group of each row.
    sample_weight : (n,) array, optional
        Nonnegative weights.
    names : (str, str)
        What the two models are called.

    Returns
    -------
    matplotlib Figure
    """
    from ..auditing.figures import gains

    table = gains(before, after, sensitive_features, sample_weight)
    labels = short_names(table["group"], 28)
    rows = np.arange(len(labels))[::-1]
    fig, ax = _subplots(7.2, 1.6 + 0.42 * len(labels))
    colors = [PALETTE[k % len(PALETTE)] for k in range(len(labels))]
    ax.hlines(rows, table["q05"], table["q95"], color=colors, lw=1.5)
    ax.hlines(rows, table["q25"], table["q75"], color=colors, lw=9, alpha=0.55)
    ax.scatter(table["mean"], rows, color=colors, s=36, zorder=3, edgecolor="white", lw=0.8)
    ax.axvline(0.0, color="0.3", lw=1)
    ax.set_yticks(rows, [safe(label) for label in labels])
    ax.set_ylim(-0.7, len(labels) - 0.3)
    for row, gain, loss in zip(rows, table["gain"], table["loss"], strict=True):
        ax.annotate(
            f"{100 * gain:.0f}% up, {100 * loss:.0f}% down", (1.01, row), fontsize="small",
            xycoords=("axes fraction", "data"), va="center",
        )  # fmt: skip
    x_label = f"score under {safe(names[1])} minus score under {safe(names[0])}"
    _tidy(ax, x_label, title="Who gains and who loses")
    return fig


def plot_features(
    features: Sequence[str],
    information: Sequence[float],
    before: Sequence[float],
    after: Sequence[float],
    *,
    names: tuple[str, str] = ("before", "after"),
    limit: int = 15,
) -> Any:
    """Which features carry the group: the information in each, and how its coefficient moved.

    Parameters
    ----------
    features : sequence of str
        Their names.
    information : sequence of float
        As from :func:`evenhand.report.feature_information`.
    before, after : sequence of float
        Coefficients of two linear models. Multiply by each feature's spread to compare them.
    names : (str, str)
        What the two models are called.
    limit : int
        Features shown: those whose coefficient moved most.

    Returns
    -------
    matplotlib Figure
    """
    if not len(features) == len(information) == len(before) == len(after):
        raise ValueError(
            "`features`, `information`, `before` and `after` must have one entry per feature, got "
            f"{len(features)}, {len(information)}, {len(before)} and {len(after)}."
        )
    first, last = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    chosen = np.argsort(-np.abs(last - first), kind="stable")[:limit]
    labels = [safe(name) for name in short_names([features[j] for j in chosen], 26)]
    rows = np.arange(len(chosen))[::-1]
    fig, (left, right) = _subplots(9.6, 1.6 + 0.3 * len(chosen), 1, 2, sharey=True)
    left.barh(rows, [100 * information[j] for j in chosen], color=PALETTE[0], height=0.6)
    left.set_yticks(rows, labels)
    _tidy(left, "% of uncertainty about the group removed", title="Information about the group")
    right.hlines(rows, first[chosen], last[chosen], color="0.6", lw=2)
    right.scatter(first[chosen], rows, color=PALETTE[6], s=34, label=safe(names[0]), zorder=3)
    right.scatter(
        last[chosen], rows, color=PALETTE[1], s=34, marker="D", label=safe(names[1]), zorder=3
    )
    right.axvline(0.0, color="0.3", lw=1)
    right.legend(fontsize="small", frameon=False)
    _tidy(right, "coefficient", title="Coefficients")
    if len(chosen) < len(features):
        left.annotate(
            f"{len(features) - len(chosen)} features that moved less are not shown.", (0, -0.02),
            xycoords="figure fraction", fontsize="small", va="top",
        )  # fmt: skip
    return fig


def safe(text: str) -> str:
    """A label Matplotlib draws as it stands: no mathtext, no glyph the font lacks."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    font = font_manager.findfont(font_manager.FontProperties())
    known = _GLYPHS.get(font)
    if known is None:
        known = _GLYPHS.setdefault(font, frozenset(FT2Font(font).get_charmap()))
    drawn = "".join(c if ord(c) in known else f"[U+{ord(c):04X}]" for c in text)
    return drawn.replace("$", r"\$")


_GLYPHS: dict[str, frozenset[int]] = {}


def _draw_densities(ax: Any, drawn: DrawnRows, grid: Any = None) -> None:
    grid = grid_over(drawn.s) if grid is None else grid
    for k in range(len(drawn.names)):
        curve = density(drawn.s, drawn.membership[:, k], grid)
        ax.plot(grid, curve, **_style(k), lw=1.8)
        if len(drawn.names) <= 4:
            ax.fill_between(grid, curve, color=PALETTE[k], alpha=0.08, lw=0)
    ax.set_ylim(bottom=0)
    ax.set_yticks([])
    _tidy(ax, "score", "density")


def _draw_calibration(ax: Any, drawn: DrawnRows) -> None:
    assert drawn.y is not None
    codes = drawn.codes
    rows = np.unique(np.linspace(0, len(codes) - 1, 1500).astype(int))
    rows = rows[codes[rows] >= 0]
    colors = np.array(PALETTE)[codes[rows]]
    ax.scatter(drawn.s[rows], drawn.y[rows], c=colors, s=5, alpha=0.18, lw=0, rasterized=True)
    for k in range(len(drawn.names)):
        x, y, error = calibration(drawn.s, drawn.y, drawn.membership[:, k])
        ax.errorbar(x, y, 1.96 * error, **_style(k), lw=1.6, marker="o", ms=3.5, elinewidth=0.9)
    grid, tall = grid_over(drawn.s), grid_over(drawn.y)
    ends = np.array([min(grid[0], tall[0]), max(grid[-1], tall[-1])])
    ax.plot(ends, ends, color="0.5", lw=0.9, dashes=(4, 3), zorder=1)
    ax.set_xlim(grid[0], grid[-1])
    ax.set_ylim(tall[0], tall[-1])
    _tidy(ax, "score", "target (dashed line: target = score)")


def _draw_measures(ax: Any, audit: Audit) -> None:
    measures = list(audit.measures.values())
    rows = np.arange(len(measures))[::-1]
    values = np.array([m.shown for m in measures])
    error = np.abs(np.array([m.interval for m in measures]).T - values)
    ax.errorbar(values, rows, xerr=error, fmt="o", color="0.15", capsize=4, lw=1.6)
    ax.set_yticks(rows, [m.criterion for m in measures])
    ax.set_ylim(-0.6, len(measures) - 0.4)
    sized = [max(m.value, m.interval[1]) for m in measures if m.defined]
    top = max([0.01, *sized])
    ax.set_xlim(min(float(values.min()), 0.0) - 0.04 * top, 1.12 * top)
    ax.axvline(0.0, color="0.5", lw=1)
    for row, value in zip(rows, values, strict=True):
        ax.annotate(
            fixed(value, 3), (value, row), xytext=(0, 8), textcoords="offset points",
            ha="center", fontsize="small",
        )  # fmt: skip
    title = f"Measures, {percent(audit.confidence_level)} intervals"
    _tidy(ax, "normalized information (0: fair, 1: not)", title=title)


def _add_legend(fig: Any, ax: Any, names: Sequence[str], total: int) -> None:
    labels = [safe(name) for name in short_names(names)]
    if total > len(names):
        labels[-1] += f" ({total - len(names)} smaller groups not shown)"
    handles = ax.get_lines()[: len(names)]
    columns = min(len(names), 4 if fig.get_figwidth() > 8 else 3)
    fig.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small"
    )


def _style(k: int) -> dict[str, Any]:
    style: dict[str, Any] = {"color": PALETTE[k]}
    if DASHES[k]:
        style["dashes"] = tuple(float(v) / 2 for v in DASHES[k].split())
    return style


def _tidy(ax: Any, x_label: str, y_label: str = "", title: str = "") -> None:
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    if title:
        ax.set_title(title, fontsize="medium", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", color="0.92", lw=0.8)
    ax.set_axisbelow(True)


# ------------------------------------------------------------------------------------------------
# Drivers, monitoring and prices.


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
    shown = result.drivers[:n][::-1]
    panels = {f"gap, {safe(result.widest)} minus {safe(result.reference)}":
              [d.gaps[result.widest] for d in shown]}  # fmt: skip
    panels |= {name: [d.criteria[name] for d in shown] for name in result.criteria}
    panels["tells the group"] = [d.stands_in for d in shown]
    size = (2.0 + 2.6 * len(panels), 1.2 + 0.28 * len(shown))
    fig, axes = _subplots(*size, 1, len(panels), sharey=True)
    place = np.arange(len(shown))
    for ax, (title, parts) in zip(axes, panels.items(), strict=True):
        values = np.array([p.value for p in parts])
        ends = np.array([p.interval for p in parts]).T.reshape(2, -1)
        color = PALETTE[6] if title == "tells the group" else PALETTE[0]
        ax.barh(place, values, color=color, height=0.7, alpha=0.75)
        ax.errorbar(values, place, xerr=np.abs(ends - values), fmt="none", ecolor="0.15", lw=1)
        ax.axvline(0, color="0.15", lw=0.8)
        ax.set_title(title, fontsize="medium")
        ax.margins(x=0.08)
        ax.locator_params(axis="x", nbins=4)
    axes[0].set_yticks(place, [safe(f) for f in short_names([d.feature for d in shown], 30)])
    return fig


def plot_monitor(result: Monitor) -> Any:
    """One panel per criterion: values, the band, limits, and where alarms were raised.

    Parameters
    ----------
    result : Monitor

    Returns
    -------
    matplotlib Figure
    """
    n = len(result.looks)
    fig, axes = _subplots(8.0, 0.6 + 2.6 * n, n, 1, sharex=True, squeeze=False)
    for ax, (name, looks) in zip(axes[:, 0], result.looks.items(), strict=True):
        for run in known_runs(looks):
            known = [looks[k] for k in run]
            ax.fill_between(run, [x.low for x in known], [x.high for x in known],
                            color=PALETTE[0], alpha=0.2, lw=0)  # fmt: skip
            ax.plot(run, [max(x.value, 0.0) for x in known], "o-", color=PALETTE[0], ms=3.5, lw=1)
        if name in result.limits:
            ax.axhline(result.limits[name], color="0.15", linestyle="--", lw=1)
        for alarm in result.alarms:
            if alarm.criterion == name:
                ax.axvline(result.periods.index(alarm.at), color=PALETTE[1], lw=1.2)
        ax.set_ylim(0, highest_shown(result, name))
        ax.set_ylabel(name)
    place = np.arange(len(result.periods))[:: max(1, len(result.periods) // 12)]
    names = [safe(name) for name in short_names([result.periods[k] for k in place], 30)]
    axes[-1, 0].set_xticks(place, names, rotation=45, ha="right")
    return fig


def plot_pricing(result: Pricing) -> Any:
    """Actual over expected in each band, one line per group, as a Matplotlib figure."""
    fig, axes = _subplots(6.4, 4.0)
    curves = band_curves(result)
    names = short_names([result._groups["group"][k] for k in drawn_groups(result)])
    axes.axhline(1.0, color="0.6", linestyle="--", lw=1)
    for k, (x, ratio, low, high) in enumerate(curves):
        axes.errorbar(
            x, ratio, yerr=np.array([ratio - low, high - ratio]), color=PALETTE[k], marker="o",
            ms=4, lw=1.6, elinewidth=1, label=safe(names[k]),
        )  # fmt: skip
    axes.set_ylim(*band_axis(curves))
    axes.set_xticks(range(1, max(result._bands["band"]) + 1))
    _tidy(axes, "band of the score, lowest to highest", "actual / expected")
    axes.legend(frameon=False)
    return fig


# ------------------------------------------------------------------------------------------------
# The frontier as a Matplotlib figure.


def plot_path(path: FairnessPath) -> Any:
    """Accuracy against each criterion, with error bars; dominated points are faded."""
    names = path.criteria
    figure, ((*axes,),) = _subplots(4 * len(names), 4.2, 1, len(names), sharey=True, squeeze=False)
    for panel, name in zip(axes, names, strict=True):
        _panel(panel, path, name)
    axes[0].set_ylabel(f"held-out {path.accuracy.symbol}")
    entries: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=len(entries),
        frameon=False, fontsize=9,
    )  # fmt: skip
    return figure


def _panel(panel: Any, path: FairnessPath, name: str) -> None:
    faded = path.dominated(name)
    accuracy = np.array([p.accuracy for p in path.points])
    measures = [p.measure(name) for p in path.points]
    u = np.array([m.shown for m in measures])
    ends = np.abs(np.array([m.interval for m in measures]).T - u)
    half = np.array([p.accuracy_interval[1] - p.accuracy for p in path.points])
    order = np.flatnonzero(~faded)[np.argsort(u[~faded])]
    panel.plot(u[order], accuracy[order], color=PALETTE[0], linewidth=1.2, alpha=0.6, zorder=2)
    for mask, alpha, label in ((~faded, 1.0, "on the frontier"), (faded, 0.25, "dominated")):
        if mask.any():
            panel.errorbar(
                u[mask], accuracy[mask], xerr=ends[:, mask], yerr=half[mask], fmt="o",
                color=PALETTE[0], alpha=alpha, markersize=5, elinewidth=0.7, capsize=0, zorder=3,
                label=f"{label} ({path.confidence_level:.0%} interval)",
            )  # fmt: skip
    panel.plot(
        u[0], accuracy[0], "s", color="black", markersize=7, markerfacecolor="none", zorder=4,
        label="no fairness term",
    )  # fmt: skip
    if path.selected is not None:
        at = next(i for i, p in enumerate(path.points) if p is path.selected)
        panel.plot(
            u[at], accuracy[at], "D", color=PALETTE[1], ms=9, markeredgecolor="white", zorder=5,
            label=f"selected (fairness weight {path.selected.fairness_weight:.3g})",
        )  # fmt: skip
    own = " (the path's own)" if name == path.criterion else ""
    panel.axvline(0.0, color="gray", linewidth=0.6, zorder=1)
    _tidy(panel, "information about the group (0 is fair)", title=f"{name}{own}")
