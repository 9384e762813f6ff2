"""What a path of 20 fairness weights costs, in single fits.

    python research/run.py path_speed [--quick]

For each data set and criterion: 20 weights are found by the search of ``fairness_path`` on one
training set (no cross-validation), each point warm-started from its neighbors. `ratio` is the time
of that path, set-up and search included, over the mean time of a cold fit at the same weights;
`ratio_default` is over one cold ``FairRidge().fit`` at fairness_weight=1. Times are CPU seconds,
medians of interleaved repeats in one process. `r2_gap` and `unfairness_gap` say how far points
of the path, which are solved to a looser tolerance, lie from the cold fits. Writes
results/path_speed.csv next to this file.

Communities and LSAC are read by ``research/loaders`` (set EVENHAND_DATA to the folder that holds
them); a data set that cannot be had is left out.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import time

import numpy as np
import scipy
import sklearn

import evenhand as eh
from common import RESULTS
from evenhand.training.frontier import spread_weights
from loaders import load_communities, load_law_school

POINTS = 20
CRITERIA = ("independence", "separation", "sufficiency")


def synthetic(n: int = 100_000, d: int = 20):
    """Two groups that differ in five of the features; a linear target."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    X = rng.standard_normal((n, d))
    X[:, :5] += 0.6 * a[:, None]
    coef = np.abs(rng.standard_normal(d))
    return X, X @ coef + 2.0 * rng.standard_normal(n), a


def data_sets(quick: bool):
    if quick:
        yield "synthetic", synthetic(5_000)
        return
    for name, load in (
        ("communities", load_communities),
        ("lsac", load_law_school),
    ):
        try:
            data = load()
        except (OSError, RuntimeError) as error:
            print(f"{name} left out: {str(error).splitlines()[0]}")
            continue
        yield name, (data.X, data.y, data.sensitive)
    yield "synthetic", synthetic()


def clock() -> float:
    return time.process_time()


def path(model: eh.FairRidge, X, y, a) -> tuple[float, dict[float, eh.FairRidge]]:
    """CPU seconds and the models by weight."""
    began = clock()
    fitter = model.path_fitter(X, y, sensitive_features=a)
    models: dict[float, eh.FairRidge] = {}

    def evaluate(weight: float) -> tuple[float, float]:
        fitted = models[weight] = fitter(weight)
        # The ridge part of the objective stands in for 1 − R².
        loss = fitted.objective_ - weight * fitted.unfairness_
        return fitted.unfairness_, 1.0 - loss

    kept = spread_weights(evaluate, POINTS)
    return clock() - began, {weight: models[weight] for weight in kept}


def cold(criterion: str, weights, X, y, a) -> tuple[float, list[eh.FairRidge]]:
    """Mean CPU seconds of single fits, and the models."""
    began = clock()
    models = [eh.FairRidge(criterion, w).fit(X, y, sensitive_features=a) for w in weights]
    return (clock() - began) / len(models), models


def measure(name: str, criterion: str, data, repeats: int) -> dict[str, object]:
    X, y, a = data
    model = eh.FairRidge(criterion)
    _, warm = path(model, X, y, a)  # compiles, and finds the weights for the cold fits
    weights = [w for w in warm if w > 0]
    ratios, defaults = [], []
    for _ in range(repeats):
        seconds, warm = path(model, X, y, a)
        one, singles = cold(criterion, weights, X, y, a)
        default, _ = cold(criterion, [1.0] * 3, X, y, a)
        ratios.append(seconds / one)
        defaults.append(seconds / default)
    variance = np.var(y)

    def r2(m: eh.FairRidge) -> float:
        return 1.0 - float(np.mean((y - m.predict(X)) ** 2)) / variance

    pairs = [(warm[w], single) for w, single in zip(weights, singles, strict=True)]
    return {
        "data": name, "n": len(y), "d": X.shape[1], "criterion": criterion, "points": len(warm),
        "ratio": f"{np.median(ratios):.2f}", "ratio_default": f"{np.median(defaults):.2f}",
        "cold_ms": f"{1e3 * one:.1f}",
        "evaluations_path": sum(m.n_evaluations_ for m in warm.values()),
        "evaluations_cold": f"{np.mean([m.n_evaluations_ for m in singles]):.1f}",
        "r2_gap": f"{max(abs(r2(p) - r2(q)) for p, q in pairs):.1e}",
        "unfairness_gap": f"{max(abs(p.unfairness_ - q.unfairness_) for p, q in pairs):.1e}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small data set, no file")
    options = parser.parse_args()
    rows = []
    for name, data in data_sets(options.quick):
        for criterion in CRITERIA:
            rows.append(measure(name, criterion, data, 1 if options.quick else 5))
            print(", ".join(f"{k} {v}" for k, v in rows[-1].items()), flush=True)
    if options.quick:
        return
    out = RESULTS / "path_speed.csv"
    out.parent.mkdir(exist_ok=True)
    part = out.with_suffix(".part")
    with part.open("w", newline="") as file:
        file.write(
            f"# seed 0; Python {platform.python_version()}, NumPy {np.__version__}, SciPy "
            f"{scipy.__version__}, scikit-learn {sklearn.__version__}; "
            f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}\n"
        )
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    part.replace(out)


if __name__ == "__main__":
    main()
