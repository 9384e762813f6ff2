"""How often 95 % intervals of an audit cover the truth, where that is above 0.02.

python research/run.py intervals [--replications 1000]
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import distributions
from common import write
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.measures.measures import estimate_entropies, get_estimator, measure

CASES = [
    ("logistic", "bivariate_normal", 500, 1),
    ("logistic", "bivariate_normal", 2000, 1),
    ("auto", "bivariate_normal", 500, 1),
    ("auto", "bivariate_normal", 2000, 1),
    ("auto", "gamma", 2000, 2),
    ("auto", "zero_inflated", 2000, 3),
    ("auto", "student_t", 2000, 4),
    ("auto", "four_groups", 2000, 5),
    ("auto", "bimodal", 2000, 6),
    ("auto", "rounded", 2000, 7),
]


def covered(job) -> list[tuple[bool, float, float]]:
    """Whether each criterion's interval holds the truth, its value and standard error."""
    estimator, family, n, scenario_seed, seed, truths = job
    scenario = distributions.random_scenario(family, scenario_seed)
    y, s, a = scenario.sample(n, seed)
    groups = resolve_groups(a, n_rows=n)
    entropies = estimate_entropies(
        CRITERIA.values(), {"s": s, "y": y}, groups, get_estimator(estimator)
    )
    out = []
    for criterion, truth in zip(CRITERIA.values(), truths, strict=True):
        m = measure(criterion, entropies, 0.95, float("nan"), estimator)
        out.append((m.interval[0] <= truth <= m.interval[1], m.value, m.stderr))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    replications = options.replications
    rows = []
    with ProcessPoolExecutor(options.workers) as pool:
        for estimator, family, n, scenario_seed in CASES:
            truth = distributions.random_scenario(family, scenario_seed).truth
            truths = [truth.value(name) for name in CRITERIA]
            case = estimator, family, n, scenario_seed
            jobs = [(*case, 1000 + r, truths) for r in range(replications)]
            found = np.array(list(pool.map(covered, jobs, chunksize=20)))
            for k, name in enumerate(CRITERIA):
                if truths[k] <= 0.02:
                    continue
                rows.append(
                    {
                        "estimator": estimator,
                        "family": family,
                        "n": n,
                        "scenario": scenario_seed,
                        "criterion": name,
                        "truth": truths[k],
                        "coverage": float(found[:, k, 0].mean()),
                        "bias": float(found[:, k, 1].mean() - truths[k]),
                        "spread": float(found[:, k, 1].std(ddof=1)),
                        "mean_stderr": float(found[:, k, 2].mean()),
                        "replications": replications,
                    }
                )
                print(rows[-1], flush=True)
            # After every case, so that a run that is stopped keeps what it has.
            path = write("intervals", rows)
    print(path)


if __name__ == "__main__":
    main()
