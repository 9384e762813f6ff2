"""Estimated against true information over 100 synthetic scenarios, for all estimators.

    python research/run.py estimator_accuracy [--quick] [--fresh] [--jobs N]

A Bernoulli group and, given it, a bivariate normal target and score, 2,000 rows; the truth is by
quadrature. Writes results/estimator_accuracy.csv (one line per scenario, estimator and
criterion), .json and .png.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import evenhand as eh
from common import (
    BLACK,
    BLUE,
    CRITERIA,
    GRAY,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SEED,
    Setting,
    measure,
    new_figure,
    read_arguments,
    run_all,
    save_figure,
    write_csv,
)
from distributions import random_scenario

N_SCENARIOS, N_ROWS = 100, 2_000
STYLES = {
    "oracle": (GRAY, "_"),
    "LSPC linear": (ORANGE, "v"),
    "LSPC quadratic": (RED, "^"),
    "nearest neighbors": (GREEN, "s"),
    "Fourier features": (BLUE, "D"),
    "logistic quadratic": (PINK, "x"),
    "auto": (BLACK, "o"),
}


def estimator(name: str, scenario: Any) -> Any:
    """An estimator by the name it has in the figure."""
    made = {
        "oracle": scenario.oracle,
        "LSPC linear": lambda: eh.LSPC(basis="linear"),
        "LSPC quadratic": eh.LSPC,
        "nearest neighbors": eh.KNN,
        "Fourier features": eh.Fourier,
        "logistic quadratic": eh.Logistic,
        "auto": lambda: "auto",
    }
    return made[name]()


def scenario_errors(index: int, n_rows: int, names: tuple[str, ...]) -> dict[str, Any]:
    """Truth and estimates, (estimators + 1, 3), and seconds of one scenario."""
    scenario = random_scenario("bivariate_normal", SEED + 1000 + index)
    y, s, a = scenario.sample(n_rows, SEED + 2000 + index)
    values = [[scenario.truth.value(c) for c in CRITERIA]]
    seconds = []
    for name in names:
        began = time.perf_counter()
        found = measure(s, y, a, estimator(name, scenario))
        seconds.append(time.perf_counter() - began)
        values.append([found[c] for c in CRITERIA])
    return {"values": np.array(values), "seconds": np.array(seconds)}


def draw(setting: Setting, rows: list[dict[str, Any]]) -> None:
    figure, axes = new_figure(1, 3, 13.0, 4.6)
    for axis, criterion in zip(axes[0], CRITERIA, strict=True):
        for name, (color, marker) in STYLES.items():
            mine = [r for r in rows if r["criterion"] == criterion and r["estimator"] == name]
            if not mine:
                continue
            error = np.array([r["estimate"] - r["truth"] for r in mine])
            axis.scatter(
                [r["truth"] for r in mine],
                [r["estimate"] for r in mine],
                s=18,
                color=color,
                marker=marker,
                linewidths=1,
                facecolors=color if marker in "x_" else "none",
                label=f"{name}: error {np.sqrt(np.mean(error**2)):.3f}",
            )
        top = max(r["truth"] for r in rows if r["criterion"] == criterion)
        axis.plot([0, top], [0, top], color="0.4", linewidth=0.8)
        axis.set_xlabel(f"true {criterion}, normalized")
        axis.set_title(criterion)
        axis.legend(fontsize=8, loc="upper left", title="root mean square")
    axes[0, 0].set_ylabel("estimate")
    save_figure(setting, figure, "estimator_accuracy")


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    n_scenarios, n_rows = (6, 500) if setting.quick else (N_SCENARIOS, N_ROWS)
    names = tuple(n for n in STYLES if not (setting.quick and n == "Fourier features"))
    units = [(i, n_rows, names) for i in range(n_scenarios)]
    rows: list[dict[str, Any]] = []
    seconds = 0.0
    for unit, found in zip(
        units, run_all(setting, scenario_errors, units, "scenarios"), strict=True
    ):
        seconds += float(found["seconds"].sum())
        for j, name in enumerate(names):
            rows += [
                {
                    "scenario": unit[0],
                    "estimator": name,
                    "criterion": criterion,
                    "truth": float(found["values"][0, k]),
                    "estimate": float(found["values"][j + 1, k]),
                }
                for k, criterion in enumerate(CRITERIA)
            ]
    write_csv(setting, "estimator_accuracy", rows, seconds, rows_per_scenario=n_rows)
    draw(setting, rows)


if __name__ == "__main__":
    main()
