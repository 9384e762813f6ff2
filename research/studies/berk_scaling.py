"""Fit time of the Berk et al. penalties against n: all pairs (as published) and linear time.

    python research/run.py berk_scaling [--quick]

Writes results/berk_scaling.csv next to this file: one line per fit, and per penalty and method
the growth exponent (slope of log time on log n over the upper half of the sizes). Where both
methods ran, `coef_gap` is the largest relative difference of their coefficients.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import time
from pathlib import Path

import numpy as np
import scipy
import sklearn

from common import RESULTS
from rivals import BerkRegressor

SEED = 0
N_FEATURES = 10
SIZES = {
    "pairs": [1_000, 2_000, 5_000, 10_000, 20_000],
    "linear": [1_000, 2_000, 5_000, 10_000, 20_000, 100_000, 300_000, 1_000_000],
}
QUICK = {"pairs": [500, 1_000, 2_000], "linear": [500, 1_000, 2_000, 20_000]}


def make(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two groups that differ in one feature; a target with a range of about 20 units."""
    rng = np.random.default_rng(SEED)
    a = rng.integers(0, 2, n)
    X = rng.standard_normal((n, N_FEATURES))
    X[:, 0] += a
    return X, X @ rng.standard_normal(N_FEATURES) + rng.standard_normal(n), a


def timed(penalty: str, method: str, data: tuple[np.ndarray, ...], repeats: int):
    X, y, a = data
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        model = BerkRegressor(penalty=penalty, method=method).fit(X, y, sensitive_features=a)
        best = min(best, time.perf_counter() - began)
    return best, model.coef_


def growth(sizes: list[int], seconds: list[float]) -> float:
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(seconds[half:]), 1)[0])


def run(sizes: dict[str, list[int]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for penalty in ("group", "individual"):
        coefs: dict[int, np.ndarray] = {}
        for method in ("pairs", "linear"):
            seconds = []
            for n in sizes[method]:
                taken, coef = timed(penalty, method, make(n), repeats=3)
                seconds.append(taken)
                gap = ""
                if method == "pairs":
                    coefs[n] = coef
                elif n in coefs:
                    gap = f"{np.abs(coef - coefs[n]).max() / np.abs(coef).max():.1e}"
                rows.append(
                    {"penalty": penalty, "method": method, "n": n, "seconds": f"{taken:.5f}"}
                    | {"coef_gap": gap, "growth_exponent": ""}
                )
                print(f"{penalty:>10} {method:>6} n={n:>9,} {taken:9.4f} s  {gap}", flush=True)
            exponent = growth(sizes[method], seconds)
            for row in rows[-len(seconds) :]:
                row["growth_exponent"] = f"{exponent:.2f}"
            print(f"{penalty:>10} {method:>6} time grows as n^{exponent:.2f}", flush=True)
    return rows


def write(rows: list[dict[str, object]], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="") as file:
        file.write(
            f"# seed {SEED}; {N_FEATURES} features; Python {platform.python_version()}, NumPy "
            f"{np.__version__}, SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}; "
            f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}\n"
        )
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    partial.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; writes nothing")
    quick = parser.parse_args().quick
    found = run(QUICK if quick else SIZES)
    if not quick:
        write(found, RESULTS / "berk_scaling.csv")


if __name__ == "__main__":
    main()
