"""Estimates and 95 % intervals on distributions that are not smooth, against their truth.

`sizes`, for each family, number of rows and estimator: mean, bias, root mean squared error,
coverage of the interval, CPU seconds. `doubling`: prefixes of one sample, n = 1,000, 2,000, …, and
each estimate that falls by more than its interval allows when rows are added.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from common import CRITERIA, Setting, covers, estimate, new_figure, run_all, save_figure
from distributions import ROUGH_FAMILIES, rough_scenario

Row = dict[str, Any]
# Rows: replications of `auto`, and of the others.
SIZES = {2_000: (100, 5), 20_000: (50, 5), 200_000: (5, 2), 1_000_000: (2, 2)}
DOUBLING = [1_000 * 2**k for k in range(10)] + [1_000_000]
# Rows up to which an estimator is tried: beyond, one estimate takes minutes.
AFFORDABLE = {"auto": 10**9, "knn": 200_000, "fourier": 20_000}
SEED = 5000
STYLES = {
    "auto": ("#1b6ca8", "o", "auto"),
    "knn": ("#d1713f", "s", "knn"),
    "fourier": ("#5a9a57", "^", "fourier"),
}
COLUMNS = 6


@cache
def scenario(family: str) -> Any:
    return rough_scenario(family)


def rough_estimates(estimator: str, family: str, n: int, replications: int) -> dict[str, Any]:
    """(replications, criteria, 4) estimates, and CPU seconds of each."""
    result, seconds = [], []
    for r in range(replications):
        rows = scenario(family).sample(n, SEED + r)
        began = time.process_time()
        result.append(estimate(*rows, estimator))
        seconds.append(time.process_time() - began)
    return {"estimates": np.array(result), "seconds": np.array(seconds)}


def sizes(setting: Setting) -> Iterator[Row]:
    """Bias and coverage by family, size and estimator."""
    families = list(ROUGH_FAMILIES)[: setting.choose(None, 2)]
    units = [
        (estimator, family, n, setting.choose(counts[estimator != "auto"], 2))
        for n, counts in list(SIZES.items())[: setting.choose(None, 1)]
        for estimator, most in AFFORDABLE.items()
        for family in families
        if n <= most
    ]
    results = run_all(setting, rough_estimates, units, "rough families")
    rows = []
    for (estimator, family, n, replications), result in zip(units, results, strict=True):
        for k, name in enumerate(CRITERIA):
            truth, estimates = scenario(family).truth.value(name), result["estimates"][:, k]
            bias = float(estimates[:, 0].mean() - truth)
            rows.append({
                "estimator": estimator, "family": family, "n": n, "criterion": name,
                "truth": truth, "mean": float(estimates[:, 0].mean()), "bias": bias,
                # Relative to next to nothing it would mean nothing.
                "relative_bias": bias / truth if truth > 0.01 else "",
                "rmse": float(np.sqrt(((estimates[:, 0] - truth) ** 2).mean())),
                "spread": float(estimates[:, 0].std(ddof=1)),
                "mean_stderr": float(estimates[:, 1].mean()),
                "coverage": float(covers(estimates, truth).mean()),
                "seconds": float(np.median(result["seconds"])), "replications": replications,
            })  # fmt: skip
    yield from rows
    draw(setting, rows)


def split_panels(rows: list[Row], criterion: str) -> dict[str, dict[str, list[Row]]]:
    """Rows by panel and estimator, ascending in n."""
    rows = sorted(rows, key=lambda row: row["n"])
    truths = {(row["family"], row["criterion"]): row["truth"] for row in rows}
    panels: dict[str, dict[str, list[Row]]] = {}
    for family in (name for name in ROUGH_FAMILIES if (name, criterion) in truths):
        shown = criterion if truths[family, criterion] > 0.001 else "sufficiency"
        title = family.replace("_", " ") + (f" ({shown})" if shown != criterion else "")
        panel = panels.setdefault(title, defaultdict(list))
        for row in rows:
            if row["family"] == family and row["criterion"] == shown:
                panel[row["estimator"]].append(row)
    return panels


def draw(setting: Setting, rows: list[Row], criterion: str = "separation") -> None:
    """Estimate against number of rows, a panel for each family.

    Sufficiency stands in for the criterion where that is next to nothing in truth.
    """
    panels = split_panels(rows, criterion)
    lines = -(-len(panels) // COLUMNS)
    figure, axes = new_figure(lines, COLUMNS, 2.0 * COLUMNS, 1.7 * lines + 0.6, sharex=True)
    for axis, (title, result) in zip(axes.flat, panels.items(), strict=False):
        truth = float(next(iter(result.values()))[0]["truth"])
        axis.axhline(truth, color="black", linewidth=1.0, label="truth")
        for estimator, (color, marker, label) in STYLES.items():
            points = result.get(estimator, [])
            if not points:
                continue
            n = [int(row["n"]) for row in points]
            mean = [float(row["mean"]) for row in points]
            # The middle 95 % of single estimates.
            reach = [1.96 * float(row["spread"] or 0) for row in points]
            axis.errorbar(
                n, mean, reach, color=color, marker=marker, markersize=3, linewidth=1.2,
                elinewidth=0.8, capsize=1.5, label=label,
            )  # fmt: skip
        axis.set_xscale("log")
        axis.set_xlim(1e3, 2e6)
        axis.set_xticks([1e3, 1e4, 1e5, 1e6])
        axis.minorticks_off()
        axis.set_title(title, fontsize=8, pad=3)
        top = max(1.25 * truth, 0.06)
        axis.set_ylim(-0.08 * top, top)
        axis.tick_params(labelsize=6, labelbottom=True)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    labels: dict[str, object] = {}
    for axis in axes.flat:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            labels.setdefault(label, handle)
    figure.legend(labels.values(), labels.keys(), loc="outside lower right", ncols=4, fontsize=8)
    figure.suptitle(
        f"Normalized {criterion} against number of rows: mean of the estimates, bars hold 95 % of "
        "them (values beyond a frame are cut off)",
        fontsize=9,
    )
    save_figure(setting, figure, "rough")


def chain_estimates(family: str, steps: tuple[int, ...], seed: int) -> dict[str, Any]:
    """(steps, criteria, 4) estimates by `auto` from prefixes of one sample, and CPU seconds."""
    y, s, a = scenario(family).sample(max(steps), seed)
    result, seconds = [], []
    for n in steps:
        began = time.process_time()
        result.append(estimate(y[:n], s[:n], a[:n], "auto"))
        seconds.append(time.process_time() - began)
    return {"estimates": np.array(result), "seconds": np.array(seconds)}


def doubling(setting: Setting) -> Iterator[Row]:
    """Whether more rows lose what fewer had seen."""
    steps = tuple(setting.choose(DOUBLING, DOUBLING[:3]))
    families = list(ROUGH_FAMILIES)[: setting.choose(None, 2)]
    units = [(family, steps, SEED) for family in families]
    results = run_all(setting, chain_estimates, units, "doubling")
    for (family, _, seed), result in zip(units, results, strict=True):
        for k, name in enumerate(CRITERIA):
            truth = scenario(family).truth.value(name)
            for step, n in enumerate(steps):
                value, stderr, low, high = result["estimates"][step, k]
                before = result["estimates"][step - 1, k] if step else None
                # By chance alone, with exact intervals and half of the rows in common, this
                # happens in 0.3 % of the steps.
                fell = before is not None and max(value, 0.0) < before[2]
                yield {
                    "estimator": "auto", "family": family, "seed": seed, "criterion": name, "n": n,
                    "truth": truth, "value": value, "stderr": stderr, "low": low, "high": high,
                    "falls": int(fell),
                    # A fall toward the truth corrects what chance had raised.
                    "away": int(fell and abs(value - truth) > abs(before[0] - truth)),
                    "seconds": float(result["seconds"][step]),
                }  # fmt: skip
