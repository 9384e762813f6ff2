"""Run time of the estimators against the number of rows.

    python research/run.py estimator_time [--quick] [--fresh] [--jobs N]

All three criteria of one score of two groups; the fastest of three runs, since other work on the
machine can only add; one process on one thread at a time. Writes results/estimator_time.csv, .json
and .png.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from common import (
    SEED,
    measure,
    new_figure,
    read_arguments,
    run_all,
    save_figure,
    write_csv,
)
from evenhand.datasets import make_bivariate_normal
from studies.estimator_accuracy import STYLES, estimator

SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)
# Beyond these a run takes longer than the figure is worth.
LARGEST = {"Fourier features": 20_000}
REPEATS = 3


def time_estimator(name: str, n: int) -> dict[str, Any]:
    """Seconds of each repeat, after one small run to compile what is compiled."""
    warm = make_bivariate_normal(200, random_state=SEED)
    measure(warm.s, warm.y, warm.a, estimator(name, warm.scenario))
    data = make_bivariate_normal(n, random_state=SEED)
    taken = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        measure(data.s, data.y, data.a, estimator(name, data.scenario))
        taken.append(time.perf_counter() - began)
    return {"seconds": np.array(taken)}


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    sizes = (300, 600) if setting.quick else SIZES
    skipped = {"oracle", "Fourier features"} if setting.quick else {"oracle"}
    names = [n for n in STYLES if n not in skipped]
    units = [(name, n) for name in names for n in sizes if n <= LARGEST.get(name, n)]
    alone = replace(setting, jobs=1)
    results = run_all(alone, time_estimator, units, "estimator times")
    rows: list[dict[str, Any]] = [
        {
            "estimator": name,
            "n": n,
            "seconds": float(found["seconds"].min()),
            "slowest": float(found["seconds"].max()),
        }
        for (name, n), found in zip(units, results, strict=True)
    ]
    total = sum(float(found["seconds"].sum()) for found in results)
    write_csv(setting, "estimator_time", rows, total, repeats=REPEATS)
    figure, axes = new_figure(1, 1, 7.5, 4.6)
    for name in names:
        mine = [r for r in rows if r["estimator"] == name]
        color, marker = STYLES[name]
        axes[0, 0].plot([r["n"] for r in mine], [r["seconds"] for r in mine], color=color,
                        marker=marker, markersize=5, label=name)  # fmt: skip
    axes[0, 0].set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds, all three criteria")
    figure.legend(loc="outside right center")
    save_figure(setting, figure, "estimator_time")


if __name__ == "__main__":
    main()
