"""How many minima the training objective has: fits from many starts, by penalty and classifier.

    python research/run.py local_minima [--quick] [--fresh] [--jobs N]

All rows of Communities and Crime. Starts are the ridge solution, the ridge solution shrunk, and
random ones of the size of the ridge solution in the coordinates of the search. Writes
results/local_minima.csv (one line per fit), .json and .png.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from common import (
    ALPHA,
    BLACK,
    GRAY,
    ORANGE,
    RED,
    SEED,
    load,
    new_figure,
    read_arguments,
    run_all,
    save_figure,
    write_csv,
)
from evenhand import FairRidge
from evenhand.training.solver import solve

WEIGHTS = (0.3, 1.0, 3.0, 10.0, 100.0)
SHRUNK = (1.0, 0.2, 0.05)
N_RANDOM = 9
# Name → classifier, κ, color, marker, shift in the picture.
STYLES: dict[str, tuple[str, Any, str, str, float]] = {
    "LSPC, published": ("lspc", "published", RED, "^", -0.18),
    "LSPC, penalty 0.001": ("lspc", 1e-3, GRAY, "v", -0.06),
    "LSPC, auto": ("lspc", "auto", ORANGE, "s", 0.06),
    "logistic": ("logistic", "auto", BLACK, "o", 0.18),
}


def fits_from_starts(
    quick: bool, name: str, criterion: str, weight: float, n_random: int
) -> dict[str, Any]:
    """Objective and fairness term at the end of the search from every start."""
    classifier, kappa, *_ = STYLES[name]
    data = load("communities", quick)
    X = (data.X - data.X.mean(axis=0)) / np.where(data.X.std(axis=0) > 0, data.X.std(axis=0), 1.0)
    model = FairRidge(criterion, weight, ALPHA, classifier=classifier, kappa=kappa)
    prepared = model._start(X, data.y, data.a, None)
    problem, bound = prepared.problem, prepared.bound
    assert bound is not None
    rng = np.random.default_rng(SEED)
    starts = [problem.shrunk(factor) for factor in SHRUNK]
    size = float(np.linalg.norm(problem.shrunk(0.0)))
    for _ in range(n_random):
        direction = rng.standard_normal(len(problem.origin))
        starts.append(problem.shrunk(0.0) + size * direction / np.linalg.norm(direction))
    began = time.perf_counter()
    found = [solve(problem, bound, weight, 1000, 1e-6, start=start) for start in starts]
    base = problem.objective(problem.theta)
    fit = np.array([base + float(f.v @ f.v) for f in found])
    term = np.array([f.term / weight for f in found])
    seconds = time.perf_counter() - began
    return {"objective": fit + weight * term, "unfairness": term, "seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    n_random, weights = (1, WEIGHTS[1:2]) if setting.quick else (N_RANDOM, WEIGHTS)
    units = [
        (setting.quick, name, criterion, weight, n_random)
        for name in STYLES
        for criterion in ("independence", "separation")
        for weight in weights
    ]
    results = run_all(setting, fits_from_starts, units, "fits from many starts")
    rows: list[dict[str, Any]] = []
    for (_, name, criterion, weight, _), found in zip(units, results, strict=True):
        for i, (objective, unfairness) in enumerate(
            zip(found["objective"], found["unfairness"], strict=True)
        ):
            start = f"ridge x {SHRUNK[i]:g}" if i < len(SHRUNK) else f"random {i - len(SHRUNK)}"
            rows.append(
                {
                    "classifier": name,
                    "criterion": criterion,
                    "fairness_weight": weight,
                    "start": start,
                    "objective": float(objective),
                    "unfairness": float(unfairness),
                }
            )
    write_csv(setting, "local_minima", rows, sum(float(f["seconds"]) for f in results))
    figure, axes = new_figure(1, 2, 11.0, 4.2, sharey=True)
    for axis, criterion in zip(axes[0], ("independence", "separation"), strict=True):
        for name, (*_, color, marker, shift) in STYLES.items():
            mine = [r for r in rows if r["classifier"] == name and r["criterion"] == criterion]
            axis.scatter(
                [r["fairness_weight"] * np.exp(shift) for r in mine],
                [r["unfairness"] for r in mine],
                color=color,
                marker=marker,
                s=22,
                facecolors="none",
                label=f"{name} ({len(mine) // len(weights)} starts)",
            )
        axis.axhline(0.0, color="0.4", linewidth=0.8)
        axis.set(xscale="log", xlabel="fairness weight", title=criterion)
    axes[0, 0].set_ylabel("fairness term at the end of the search")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center")
    save_figure(setting, figure, "local_minima")


if __name__ == "__main__":
    main()
