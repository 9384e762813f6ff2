"""Error of the estimators of information against the exact values, family by family.

Root mean squared error of the normalized criteria over random scenarios of each family, divided by
that of the oracle that knows the densities, on the same samples. Writes results/accuracy.csv.

    python benchmarks/accuracy.py --scenarios 100 --n 500 2000 10000
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from common import RESULTS, write
from threadpoolctl import threadpool_limits

from evenhand.classifiers import LSPC, Logistic
from evenhand.classifiers.adaptive import Adaptive
from evenhand.classifiers.fourier import Fourier
from evenhand.criteria import CRITERIA
from evenhand.datasets.synthetic import FAMILIES, random_scenario
from evenhand.information import estimate_entropies
from evenhand.neighbors import KNN
from evenhand.sensitive import resolve_groups

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "auto": Adaptive,
    "logistic": Logistic,
    "lspc": LSPC,
    "lspc linear": lambda: LSPC(basis="linear"),
    "knn": KNN,
    "fourier": lambda: Fourier(random_state=0),
}
# Scenarios per family that an estimator is given at most, where it takes seconds a call.
SLOW = {("fourier", 500): 30, ("fourier", 2000): 25, ("fourier", 10000): 4, ("knn", 10000): 50}


def one_scenario(
    task: tuple[str, int, int, tuple[str, ...], int],
) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """Errors of the estimators and of the oracle on one sample, and seconds a call."""
    family, n, number, names, base = task
    seed = [list(FAMILIES).index(family), number]
    scenario = random_scenario(family, np.random.default_rng([base, *seed]))
    y, s, a = scenario.sample(n, np.random.default_rng([base + 1, n, *seed]))
    truth = np.array([scenario.truth.value(c) for c in CRITERIA])

    def errors(estimator: Any) -> np.ndarray:
        found = estimate_entropies(CRITERIA.values(), y, s, groups, estimator)
        return np.array([found.normalized(c) for c in CRITERIA.values()]) - truth

    with warnings.catch_warnings():
        # Groups of a single row at n = 500 deserve their warning, but not here.
        warnings.simplefilter("ignore")
        groups = resolve_groups(a, n_rows=n)
        floor = errors(scenario.oracle())
        out = {}
        for name in names:
            began = time.perf_counter()
            error = errors(ESTIMATORS[name]())
            out[name] = error, floor, time.perf_counter() - began
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=100)
    parser.add_argument("--n", type=int, nargs="+", default=[500, 2000, 10000])
    parser.add_argument("--estimators", nargs="+", default=list(ESTIMATORS), choices=ESTIMATORS)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=2020, help="of scenarios and samples")
    parser.add_argument("--output", default="accuracy", help="name of the CSV under results/")
    parser.add_argument("--update", action="store_true", help="keep the CSV's cells not run now")
    options = parser.parse_args()
    rows = kept(options) if options.update else []
    # Scenarios run side by side, so each call has one thread for its linear algebra.
    with ProcessPoolExecutor(options.workers, initializer=threadpool_limits, initargs=(1,)) as pool:
        # The first call of each compiles its kernels; that is not what a call takes.
        list(
            pool.map(
                one_scenario, [("rounded", 500, 0, tuple(options.estimators), options.seed)] * 8
            )
        )
        for n in options.n:
            for family in options.families:
                tasks = [
                    (
                        family,
                        n,
                        i,
                        tuple(e for e in options.estimators if i < SLOW.get((e, n), i + 1)),
                        options.seed,
                    )
                    for i in range(options.scenarios)
                ]
                found = list(pool.map(one_scenario, tasks))
                for name in options.estimators:
                    own = [f[name] for f in found if name in f]
                    error = np.array([f[0] for f in own])
                    floor = np.array([f[1] for f in own])
                    ours = np.array([f["auto"][0] for f in found if name in f and "auto" in f])
                    seconds = float(np.median([f[2] for f in own]))
                    rows += summary(family, n, name, error, floor, ours, seconds)
                write(options.output, rows)
                print(f"{family}, n = {n}", flush=True)
                for row in rows[-3 * len(options.estimators) :]:
                    print(
                        f"  {row['estimator']:12s} {row['criterion']:12s} "
                        f"ratio {row['ratio']:.2f}  bias {row['bias']:+.4f}  "
                        f"{1e3 * row['seconds']:.0f} ms",
                        flush=True,
                    )
    print(write(options.output, rows))


def kept(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the CSV whose family, size and estimator are not about to be run."""
    with (RESULTS / f"{options.output}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {key: value for key, value in row.items() if key != "setting"}
        for row in rows
        if row["family"] not in options.families
        or int(row["n"]) not in options.n
        or row["estimator"] not in options.estimators
    ]


def summary(
    family: str,
    n: int,
    name: str,
    error: np.ndarray,
    floor: np.ndarray,
    ours: np.ndarray,
    seconds: float,
) -> list[dict[str, Any]]:
    """One row for each criterion; `auto_ratio` is that of "auto" on the same samples."""
    rmse, oracle = (np.sqrt(np.square(e).mean(axis=0)) for e in (error, floor))
    auto = np.sqrt(np.square(ours).mean(axis=0)) / oracle if len(ours) == len(error) else None
    return [
        {
            "family": family,
            "n": n,
            "estimator": name,
            "criterion": criterion,
            "rmse": float(rmse[j]),
            "oracle_rmse": float(oracle[j]),
            "ratio": float(rmse[j] / oracle[j]),
            "auto_ratio": "" if auto is None else float(auto[j]),
            "bias": float(error[:, j].mean()),
            "seconds": seconds,
            "scenarios": len(error),
        }
        for j, criterion in enumerate(CRITERIA)
    ]


if __name__ == "__main__":
    main()
