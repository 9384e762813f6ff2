"""The frontier as a Matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .path import FairnessPath

# Okabe and Ito's palette, told apart with any kind of color vision and in gray.
LINE, CHOSEN = "#0072B2", "#D55E00"


def plot_path(path: FairnessPath) -> Any:
    """Accuracy against each criterion, with error bars; dominated points are faded."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ModuleNotFoundError(
            "A plot needs matplotlib, which is not installed. Hint: pip install 'evenhand[plot]'."
        ) from error
    names = path.criteria
    figure = Figure(figsize=(4 * len(names), 4.2), layout="constrained")
    axes = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
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
    low = np.array([max(m.shown - m.interval[0], 0.0) for m in measures])
    high = np.array([max(m.interval[1] - m.shown, 0.0) for m in measures])
    half = np.array([p.accuracy_interval[1] - p.accuracy for p in path.points])
    order = np.flatnonzero(~faded)[np.argsort(u[~faded])]
    panel.plot(u[order], accuracy[order], color=LINE, linewidth=1.2, alpha=0.6, zorder=2)
    for mask, alpha, label in ((~faded, 1.0, "on the frontier"), (faded, 0.25, "dominated")):
        if mask.any():
            panel.errorbar(
                u[mask], accuracy[mask], xerr=[low[mask], high[mask]], yerr=half[mask], fmt="o",
                color=LINE, alpha=alpha, markersize=5, elinewidth=0.7, capsize=0, zorder=3,
                label=f"{label} ({path.confidence_level:.0%} interval)",
            )  # fmt: skip
    panel.plot(
        u[0], accuracy[0], "s", color="black", markersize=7, markerfacecolor="none", zorder=4,
        label="no fairness term",
    )  # fmt: skip
    if path.selected is not None:
        at = next(i for i, p in enumerate(path.points) if p is path.selected)
        panel.plot(
            u[at], accuracy[at], "D", color=CHOSEN, markersize=9, markeredgecolor="white", zorder=5,
            label=f"selected (fairness weight {path.selected.fairness_weight:.3g})",
        )  # fmt: skip
    own = " (the path's own)" if name == path.criterion else ""
    panel.set_title(f"{name}{own}", fontsize=11)
    panel.set_xlabel("information about the group (0 is fair)")
    panel.axvline(0.0, color="gray", linewidth=0.6, zorder=1)
    panel.grid(alpha=0.2)
    panel.spines[["top", "right"]].set_visible(False)
