"""The penalty of the classifier inside the fairness term: what of the frontier it decides.

    python research/run.py penalty [--quick] [--fresh] [--jobs N]

LSPC as published and at penalties κ on standardized variables, and the logistic term on raw and on
bounded scores; on Communities LSPC also with continuation along the path, where every weight starts
from the solution at the one before instead of from ridge. Each is trained for independence and for
separation and measured by auto, held out. Writes results/penalty.csv (R² under each bound,
interpolated along the path), penalty_path.csv (the points), .json and penalty.png.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from common import (
    ALPHA,
    BLACK,
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SKY,
    load,
    measure,
    new_figure,
    r_squared,
    read_arguments,
    run_all,
    save_figure,
    write_csv,
)
from evenhand import FairRidge
from studies.frontier import THRESHOLDS, crossing

CRITERIA = ("independence", "separation")
# Finer than the other sweeps where the bounds lie, as nothing is refined here.
WEIGHTS = (0.0, *(float(f"{v:.4g}") for v in np.geomspace(0.2, 100, 13)))
# Name → classifier, κ, score map, color.
SETTINGS: dict[str, tuple[str, Any, str, str]] = {
    "LSPC, published": ("lspc", "published", "auto", RED),
    "LSPC, penalty 0.001": ("lspc", 1e-3, "auto", GRAY),
    "LSPC, penalty 100": ("lspc", 100, "auto", SKY),
    "LSPC, penalty 300": ("lspc", 300, "auto", BLUE),
    "LSPC, penalty 1000": ("lspc", 1000, "auto", GREEN),
    "LSPC, auto": ("lspc", "auto", "auto", ORANGE),
    "logistic, raw scores": ("logistic", "auto", "raw", PINK),
    "logistic, bounded scores": ("logistic", "auto", "tanh", BLACK),
}


def penalty_path(
    dataset: str, quick: bool, setting: str, criterion: str, continued: bool
) -> dict[str, Any]:
    """R² and the criterion by auto, held out, at all weights of the sweep."""
    classifier, kappa, score_map, _ = SETTINGS[setting]
    data = load(dataset, quick)
    weights = WEIGHTS[:4] if quick else WEIGHTS
    s = np.empty((len(weights), len(data.y)))
    began = time.process_time()
    for inside, outside, train, test in data.folds():
        y, a = data.y[train], data.a[train]
        model = FairRidge(
            criterion, weights[-1], ALPHA, classifier=classifier, kappa=kappa, score_map=score_map
        )
        prepared = model._start(inside, y, a, None)
        for i, weight in enumerate(weights):
            if not continued:
                prepared = model._start(inside, y, a, None)
            model.fairness_weight = weight
            s[i, test] = model._finish(prepared).predict(outside)
    value = [measure(row, data.y, data.a, "auto")[criterion] for row in s]
    return {
        "weight": np.array(weights),
        "r2": np.array([r_squared(row, data.y) for row in s]),
        "value": np.array(value),
        "spread": s[0].std(),
        "seconds": time.process_time() - began,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    datasets = ("communities",) if setting.quick else ("communities", "lsac")
    names = list(SETTINGS)[5:] if setting.quick else list(SETTINGS)
    units = [
        (dataset, setting.quick, name, criterion, continued)
        for dataset in datasets
        for name in names
        for criterion in CRITERIA
        for continued in (False, True)
        if not continued or (dataset == "communities" and name.startswith("LSPC"))
    ]
    results = run_all(setting, penalty_path, units, "paths at several penalties")
    rows: list[dict[str, Any]] = []
    bounds: list[dict[str, Any]] = []
    for (dataset, _, name, criterion, continued), found in zip(units, results, strict=True):
        about = {
            "dataset": dataset,
            "criterion": criterion,
            "setting": name,
            "continued": int(continued),
        }
        mine = [
            {**about, "strength": float(w), "r2": float(r2), "value": float(value)}
            for w, r2, value in zip(found["weight"], found["r2"], found["value"], strict=True)
        ]
        rows += mine
        for threshold in THRESHOLDS:
            r2 = crossing(mine, "value", threshold)
            bounds.append({**about, "threshold": threshold, "r2": "" if r2 is None else r2})
    seconds = sum(float(found["seconds"]) for found in results)
    spread = {unit[0]: float(found["spread"]) for unit, found in zip(units, results, strict=True)}
    write_csv(setting, "penalty", bounds, seconds, estimator="auto", score_spread=spread)
    write_csv(setting, "penalty_path", rows, 0.0, estimator="auto")
    figure, axes = new_figure(len(datasets), 2, 11.0, 3.6 * len(datasets) + 0.3)
    titles = {"communities": "Communities and Crime", "lsac": "LSAC"}
    for line, dataset in zip(axes, datasets, strict=True):
        for axis, criterion in zip(line, CRITERIA, strict=True):
            for name, (*_, color) in SETTINGS.items():
                for continued, dash in ((0, "-"), (1, ":")):
                    path = [
                        (r["value"], r["r2"])
                        for r in rows
                        if r["dataset"] == dataset
                        and r["criterion"] == criterion
                        and r["setting"] == name
                        and r["continued"] == continued
                    ]
                    if path:
                        label = name + (", continued" if continued else "")
                        axis.plot(
                            *np.transpose(path), color=color, linestyle=dash, marker="o",
                            markersize=3, linewidth=1.3, label=label,
                        )  # fmt: skip
            base = max(r["value"] for r in rows if r["dataset"] == dataset
                       and r["criterion"] == criterion and r["strength"] == 0)  # fmt: skip
            top = max(r["r2"] for r in rows if r["dataset"] == dataset)
            axis.set_xlim(-0.02, 1.1 * base)
            axis.set_ylim(0.25 * top, 1.03 * top)
            axis.set_xlabel(f"{criterion} by auto, held out")
            axis.set_title(f"{titles[dataset]}, trained for {criterion}", fontsize=9)
        line[0].set_ylabel("R², held out")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=8.5)
    save_figure(setting, figure, "penalty")


if __name__ == "__main__":
    main()
