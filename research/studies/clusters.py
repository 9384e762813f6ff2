"""How often 95 % intervals cover the truth where rows come in clusters.

python research/run.py clusters [--replications 1000] [--estimators logistic knn]

Clusters of 1 to 30 rows share half of the variance of the target and of the noise of the score. In
"places" a whole cluster is of one group, as a ZIP code is; in "schools" each holds both. Each row's
own law is normal given its group, so that the truth is known.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ProcessPoolExecutor

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from common import write
from distributions import bivariate_normal_scenario
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.measures.measures import estimate_entropies, get_estimator, measure

SHARE, SHIFT, SLOPE, GAP, NOISE = 0.4, 0.5, 0.6, 0.6, 0.8
KINDS = ("places", "schools")
SIZES = (50, 500)


def sample(kind: str, n_clusters: int, seed: int):
    """Target, score, group and cluster of the rows of some clusters."""
    rng = np.random.default_rng([seed, n_clusters, KINDS.index(kind)])
    cluster = np.repeat(np.arange(n_clusters), rng.integers(1, 31, n_clusters))
    n = len(cluster)
    a = (rng.random(n_clusters) < SHARE)[cluster] if kind == "places" else rng.random(n) < SHARE
    shared = rng.standard_normal((2, n_clusters))[:, cluster]
    y_noise, s_noise = np.sqrt(0.5) * (shared + rng.standard_normal((2, n)))
    y = SHIFT * a + y_noise
    return y, SLOPE * y + GAP * a + NOISE * s_noise, a.astype(int), cluster


def truths() -> list[float]:
    """The three criteria of that law."""
    cov = [[1.0, SLOPE], [SLOPE, SLOPE**2 + NOISE**2]]
    means = [[0.0, 0.0], [SHIFT, SLOPE * SHIFT + GAP]]
    truth = bivariate_normal_scenario(SHARE, means, [cov, cov]).truth
    return [truth.value(name) for name in CRITERIA]


def covered(job) -> list[tuple[bool, float, float]]:
    """Whether each criterion's interval holds the truth, its value and standard error."""
    estimator, kind, n_clusters, aware, seed, true = job
    y, s, a, cluster = sample(kind, n_clusters, seed)
    groups = resolve_groups(a, n_rows=len(y), cluster=cluster if aware else None)
    entropies = estimate_entropies(
        CRITERIA.values(), {"s": s, "y": y}, groups, get_estimator(estimator)
    )
    out = []
    for criterion, value in zip(CRITERIA.values(), true, strict=True):
        m = measure(criterion, entropies, 0.95, float("nan"), estimator)
        out.append((m.interval[0] <= value <= m.interval[1], m.value, m.stderr))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--estimators", nargs="+", default=["logistic"], choices=eh_estimators())
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    true, rows = truths(), []
    with ProcessPoolExecutor(options.workers) as pool:
        cases = [
            (estimator, kind, n_clusters, aware)
            for estimator in options.estimators
            for kind in KINDS
            for n_clusters in SIZES
            for aware in (True, False)
        ]
        for case in cases:
            jobs = [(*case, 1000 + r, true) for r in range(options.replications)]
            found = np.array(list(pool.map(covered, jobs, chunksize=20)))
            for k, name in enumerate(CRITERIA):
                rows.append(
                    {
                        "estimator": case[0],
                        "kind": case[1],
                        "clusters": case[2],
                        "cluster_given": case[3],
                        "criterion": name,
                        "truth": true[k],
                        "coverage": float(found[:, k, 0].mean()),
                        "bias": float(found[:, k, 1].mean() - true[k]),
                        "spread": float(found[:, k, 1].std(ddof=1)),
                        "mean_stderr": float(found[:, k, 2].mean()),
                        "replications": options.replications,
                    }
                )
                print(*list(rows[-1].values())[:10], flush=True)
    write("clusters", rows)


def eh_estimators() -> tuple[str, ...]:
    """Names that `estimator` takes."""
    from evenhand.measures.measures import ESTIMATORS

    return ESTIMATORS


if __name__ == "__main__":
    main()
