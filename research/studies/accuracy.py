"""Error of the estimators of information against the exact values, family by family.

Root mean squared error of the normalized criteria over random scenarios of each family, divided by
that of the oracle that knows the densities, on the same samples. Writes results/accuracy.csv.

    python research/run.py accuracy --scenarios 100 --n 500 2000 10000
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
from threadpoolctl import threadpool_limits

from common import RESULTS, write
from distributions import FAMILIES, random_scenario
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.estimators.adaptive import Adaptive
from evenhand.estimators.fourier import Fourier
from evenhand.estimators.logistic import Logistic
from evenhand.estimators.lspc import LSPC
from evenhand.estimators.neighbors import KNN
from evenhand.measures.measures import estimate_entropies

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "auto": Adaptive,
    "logistic": Logistic,
    "lspc": LSPC,
    "lspc linear": lambda: LSPC(basis="linear"),
    "knn": KNN,
    "fourier": lambda: Fourier(random_state=0),
}


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
        found = estimate_entropies(CRITERIA.values(), {"s": s, "y": y}, groups, estimator)
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
                    (family, n, i, tuple(options.estimators), options.seed)
                    for i in range(options.scenarios)
                ]
                found = list(pool.map(one_scenario, tasks))
                error = {e: np.array([f[e][0] for f in found]) for e in options.estimators}
                floor = np.array([f[options.estimators[0]][1] for f in found])
                for name in options.estimators:
                    seconds = float(np.median([f[name][2] for f in found]))
                    rows += summary(family, n, name, error, floor, seconds)
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
    errors: dict[str, np.ndarray],
    floor: np.ndarray,
    seconds: float,
) -> list[dict[str, Any]]:
    """One row for each criterion.

    `behind_auto` is the ratio less that of "auto" where both were run, and `behind_error` its
    standard error over draws of the scenarios.
    """
    error = errors[name]
    rmse, oracle = (np.sqrt(np.square(e).mean(axis=0)) for e in (error, floor))
    behind = spread = None
    if "auto" in errors:
        draws = np.random.default_rng(0).integers(len(floor), size=(1000, len(floor)))
        squares = [np.square(e)[draws].mean(axis=1) for e in (error, errors["auto"], floor)]
        other, ours = (np.sqrt(v / squares[2]) for v in squares[:2])
        behind = (rmse - np.sqrt(np.square(errors["auto"]).mean(axis=0))) / oracle
        spread = (other - ours).std(axis=0)
    return [
        {
            "family": family,
            "n": n,
            "estimator": name,
            "criterion": criterion,
            "rmse": float(rmse[j]),
            "oracle_rmse": float(oracle[j]),
            "ratio": float(rmse[j] / oracle[j]),
            "behind_auto": "" if behind is None else float(behind[j]),
            "behind_error": "" if spread is None else float(spread[j]),
            "bias": float(error[:, j].mean()),
            "seconds": seconds,
            "scenarios": len(error),
        }
        for j, criterion in enumerate(CRITERIA)
    ]


if __name__ == "__main__":
    main()
