"""Estimates and 95 % intervals on laws that are not smooth, against their exact information.

python research/run.py rough [--study sizes|doubling|all] [--families ...] [--n ...] [--quick]
    [--estimators auto knn fourier] [--replications 20] [--peer-replications 5] [--workers 2]

`sizes`, for every family, number of rows and estimator: mean, bias, root mean squared error,
coverage of the interval, CPU seconds. `doubling`: prefixes of one sample, n = 1,000, 2,000, …, and
every estimate that falls by more than its interval allows when rows are added. Rows go to
results/rough.csv and results/rough_doubling.csv after each case. A case that is there already with
as many replications is not run again (--again runs it); other rows stay.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np

import distributions
from common import RESULTS, write
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.measures.measures import estimate_entropies, get_estimator, measure

SIZES = {2_000: 200, 20_000: 100, 200_000: 20, 1_000_000: 5}
DOUBLING = [1_000 * 2**k for k in range(10)] + [1_000_000]
# Rows up to which an estimator is tried: beyond, one estimate takes minutes.
AFFORDABLE = {"auto": 10**9, "logistic": 10**9, "lspc": 10**9, "knn": 200_000, "fourier": 20_000}


@cache
def scenario(family: str) -> Any:
    return distributions.rough_scenario(family)


def measures(estimator: str, y, s, a) -> tuple[list[tuple[float, ...]], float]:
    """(value, standard error, lower, upper) of each criterion, and CPU seconds."""
    began = time.process_time()
    groups = resolve_groups(a, n_rows=len(y))
    entropies = estimate_entropies(
        CRITERIA.values(), {"s": s, "y": y}, groups, get_estimator(estimator)
    )
    found = [measure(c, entropies, 0.95, float("nan"), estimator) for c in CRITERIA.values()]
    seconds = time.process_time() - began
    return [(m.value, m.stderr, *m.interval) for m in found], seconds


def one_sample(job) -> tuple[list[tuple[float, ...]], float]:
    estimator, family, n, seed = job
    return measures(estimator, *scenario(family).sample(n, seed))


def one_chain(job) -> list[tuple[int, list[tuple[float, ...]], float]]:
    estimator, family, sizes, seed = job
    y, s, a = scenario(family).sample(max(sizes), seed)
    return [(n, *measures(estimator, y[:n], s[:n], a[:n])) for n in sizes]


def known(name: str) -> list[dict[str, Any]]:
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = [dict(row) for row in csv.DictReader(file)]
    for row in rows:
        row.pop("setting", None)
    return rows


def replace(rows: list[dict[str, Any]], new: list[dict[str, Any]], keys: tuple[str, ...]) -> None:
    """Put the new rows in place of those with the same keys."""
    fresh = {tuple(str(row[k]) for k in keys) for row in new}
    rows[:] = [row for row in rows if tuple(str(row[k]) for k in keys) not in fresh]
    rows += new


def sizes_study(options, pool) -> None:
    rows = known("rough")
    keys = ("estimator", "family", "n")
    done = {tuple(row[k] for k in keys): int(row["replications"]) for row in rows}
    cases = [
        (estimator, family, n)
        for n in options.n
        for estimator in options.estimators
        for family in options.families
        if n <= AFFORDABLE[estimator]
    ]
    for estimator, family, n in cases:
        replications = options.replications or SIZES.get(n, 20)
        if estimator != "auto":
            replications = min(replications, options.peer_replications)
        if not options.again and done.get((estimator, family, str(n)), 0) >= replications:
            continue
        jobs = [(estimator, family, n, options.seed + r) for r in range(replications)]
        results = list(pool.map(one_sample, jobs, chunksize=max(1, replications // 16)))
        found = np.array([values for values, _ in results])
        seconds = float(np.median([t for _, t in results]))
        new = []
        for k, name in enumerate(CRITERIA):
            truth = scenario(family).truth.value(name)
            value, stderr, low, high = found[:, k].T
            bias = float(value.mean() - truth)
            new.append(
                {
                    "estimator": estimator,
                    "family": family,
                    "n": n,
                    "criterion": name,
                    "truth": truth,
                    "mean": float(value.mean()),
                    "bias": bias,
                    # Relative to next to nothing it would mean nothing.
                    "relative_bias": bias / truth if truth > 0.01 else "",
                    "rmse": float(np.sqrt(((value - truth) ** 2).mean())),
                    "spread": float(value.std(ddof=1)) if replications > 1 else "",
                    "mean_stderr": float(stderr.mean()),
                    "coverage": float(((low <= truth) & (truth <= high)).mean()),
                    "seconds": seconds,
                    "replications": replications,
                }
            )
        show(new)
        replace(rows, new, keys)
        write("rough", rows)


def show(new: list[dict[str, Any]]) -> None:
    for row in new:
        print(
            f"{row['estimator']:8s} {row['family']:20s} {row['n']:8d} {row['criterion']:12s} "
            f"truth {row['truth']:7.4f} mean {row['mean']:7.4f} bias {row['bias']:+.4f} "
            f"rmse {row['rmse']:.4f} coverage {row['coverage']:.2f} {row['seconds']:.2f} s",
            flush=True,
        )


def doubling_study(options, pool) -> None:
    rows = known("rough_doubling")
    keys = ("estimator", "family", "seed")
    done = {tuple(row[k] for k in keys) for row in rows if int(row["n"]) == options.chain[-1]}
    jobs = [
        ("auto", family, options.chain, options.seed + r)
        for r in range(options.chains)
        for family in options.families
        if options.again or ("auto", family, str(options.seed + r)) not in done
    ]
    for job, chain in zip(jobs, pool.map(one_chain, jobs), strict=True):
        estimator, family, _, seed = job
        new = []
        for k, name in enumerate(CRITERIA):
            truth = scenario(family).truth.value(name)
            before = None
            for n, found, seconds in chain:
                value, stderr, low, high = found[k]
                # By chance alone, with exact intervals and half of the rows in common, this
                # happens in 0.3 % of the steps.
                fell = before is not None and max(value, 0.0) < before[1]
                new.append(
                    {
                        "estimator": estimator,
                        "family": family,
                        "seed": seed,
                        "criterion": name,
                        "n": n,
                        "truth": truth,
                        "value": value,
                        "stderr": stderr,
                        "low": low,
                        "high": high,
                        "falls": int(fell),
                        # A fall toward the truth corrects what chance had raised.
                        "away": int(fell and abs(value - truth) > abs(before[0] - truth)),
                        "seconds": seconds,
                    }
                )
                if fell:
                    print(
                        f"FALLS {family} {name}: {before[0]:.4f} ({before[1]:.4f} to "
                        f"{before[2]:.4f}) at {before[3]} rows, {value:.4f} ({low:.4f} to "
                        f"{high:.4f}) at {n}; truth {truth:.4f}"
                        f"{', away from it' if new[-1]['away'] else ''}",
                        flush=True,
                    )
                before = (value, low, high, n)
        replace(rows, new, keys)
        write("rough_doubling", rows)
        falls, away = (sum(row[key] for row in new) for key in ("falls", "away"))
        print(f"{family} seed {seed}: {falls} falls, {away} away from the truth", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", choices=["sizes", "doubling", "all"], default="all")
    families = list(distributions.ROUGH_FAMILIES)
    parser.add_argument("--families", nargs="+", default=families, choices=families)
    parser.add_argument("--n", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--estimators", nargs="+", default=["auto", "knn", "fourier"])
    parser.add_argument("--replications", type=int, help="default: 200 / 100 / 20 / 5 by rows")
    parser.add_argument("--peer-replications", type=int, default=5)
    parser.add_argument("--chains", type=int, default=1, help="samples a family in `doubling`")
    parser.add_argument("--seed", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--again", action="store_true", help="run cases that are there already")
    parser.add_argument("--quick", action="store_true", help="20 replications, n ≤ 20,000")
    options = parser.parse_args()
    options.chain = DOUBLING
    if options.quick:
        options.n = [n for n in options.n if n <= 20_000] or options.n[:1]
        options.replications = options.replications or 20
        options.peer_replications = min(options.peer_replications, 3)
        options.chain = [n for n in DOUBLING if n <= 64_000]
    with ProcessPoolExecutor(options.workers) as pool:
        if options.study in ("sizes", "all"):
            sizes_study(options, pool)
        if options.study in ("doubling", "all"):
            doubling_study(options, pool)


if __name__ == "__main__":
    main()
