"""Fair GLMs: iterations, what fairness costs beside the plain fit, equality with scikit-learn.

Claims of 200,000 policies with 20 features are simulated; Communities has 1,994 rows and 99
features, its target as counts out of 100. The plain fit of 10^6 rows and 30 features is timed
against glum. All seconds are of the process (CPU), medians of alternating runs, one thread:

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python research/run.py models_glm
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor

import evenhand as eh
from common import standardized, write
from loaders import load_communities

ALPHA = 1e-3
WEIGHTS = (0.1, 1.0, 10.0)
CRITERIA = ("independence", "separation")
THEIRS = {"alpha": ALPHA, "solver": "newton-cholesky", "tol": 1e-8, "max_iter": 500}
PEERS = {
    "poisson": PoissonRegressor(**THEIRS),
    "gamma": GammaRegressor(**THEIRS),
    "tweedie": TweedieRegressor(power=1.5, link="log", **THEIRS),
}


def claims(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Features, targets by family, groups."""
    rng = np.random.default_rng(seed)
    a = (rng.random(n) < 0.3).astype(int)
    X = rng.standard_normal((n, d))
    X[:, 0] += 0.8 * a
    X[:, 1] -= 0.5 * a
    effect = np.r_[0.3, 0.2, 0.2, 0.1, rng.normal(0.0, 0.05, d - 4)]
    mean = np.exp(X @ effect - 1.0)
    counts = rng.poisson(mean).astype(float)
    amount = rng.gamma(2.0, mean / 2.0) + 1e-6
    total = np.where(counts > 0, rng.gamma(2.0 * np.maximum(counts, 1.0), 0.5), 0.0)
    return X, {"poisson": counts, "gamma": amount, "tweedie": total}, a


def cpu(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.process_time()
            function()
            times[name].append(time.process_time() - began)
    return {name: median(found) for name, found in times.items()}


def compare(
    data: str, family: str, X: np.ndarray, y: np.ndarray, a: np.ndarray, repeats: int
) -> Iterator[dict[str, Any]]:
    """One row a criterion and weight."""
    plain = eh.FairGLM(family, fairness_weight=0, alpha=ALPHA)
    mine, theirs = plain.fit(X, y), PEERS[family].fit(X, y)
    apart = float(np.abs(mine.predict(X) / theirs.predict(X) - 1.0).max())
    for criterion in CRITERIA:
        for weight in WEIGHTS:
            fair = eh.FairGLM(family, criterion, weight, ALPHA)
            fair.fit(X, y, sensitive_features=a)  # compile first
            seconds = cpu(
                {
                    "plain": lambda: plain.fit(X, y),
                    "fair": lambda fair=fair: fair.fit(X, y, sensitive_features=a),
                },
                repeats,
            )
            yield {
                "data": data, "family": family, "n": len(y), "d": X.shape[1],
                "criterion": criterion, "fairness_weight": weight,
                "newton_steps": mine.n_newton_, "iterations": fair.n_iter_,
                "unfairness": fair.unfairness_, "d2": fair.score(X, y),
                "plain_seconds": seconds["plain"], "fair_seconds": seconds["fair"],
                "fair_part_over_plain": seconds["fair"] / seconds["plain"] - 1.0,
                "apart_from_scikit_learn": apart,
            }  # fmt: skip


def against_glum(n: int, d: int, repeats: int) -> dict[str, Any]:
    from glum import GeneralizedLinearRegressor

    X, y, a = claims(n, d)
    glum = GeneralizedLinearRegressor(family="poisson", alpha=ALPHA, l1_ratio=0, fit_intercept=True)
    plain = eh.FairGLM("poisson", fairness_weight=0, alpha=ALPHA)
    fair = eh.FairGLM("poisson", "independence", 1.0, ALPHA)
    fair.fit(X[:5000], y["poisson"][:5000], sensitive_features=a[:5000])
    seconds = cpu(
        {
            "peer": lambda: glum.fit(X, y["poisson"]),
            "plain": lambda: plain.fit(X, y["poisson"]),
            "fair": lambda: fair.fit(X, y["poisson"], sensitive_features=a),
        },
        repeats,
    )
    return {
        "data": "claims", "family": "poisson", "n": n, "d": d, "criterion": "independence",
        "fairness_weight": 1.0, "newton_steps": plain.n_newton_, "iterations": fair.n_iter_,
        "unfairness": fair.unfairness_, "d2": fair.score(X, y["poisson"]),
        "plain_seconds": seconds["plain"], "fair_seconds": seconds["fair"],
        "fair_part_over_plain": seconds["fair"] / seconds["plain"] - 1.0,
        "peer": "glum", "peer_seconds": seconds["peer"],
        "plain_over_peer": seconds["plain"] / seconds["peer"],
        "fair_over_peer": seconds["fair"] / seconds["peer"],
        "apart_from_peer": float(np.abs(plain.predict(X) / glum.predict(X) - 1.0).max()),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, and nothing written")
    quick = parser.parse_args(arguments).quick
    repeats = 1 if quick else 3
    rows = []
    X, targets, a = claims(4000 if quick else 200_000, 20)
    for family, y in targets.items():
        rows += list(compare("claims", family, X, y, a, repeats))
    data = load_communities()
    counts = np.round(100.0 * data.y)
    rows += list(
        compare("communities", "poisson", standardized(data.X), counts, data.sensitive, repeats)
    )
    for row in rows:
        print({k: v for k, v in row.items() if k not in ("n", "d")})
    rows.append(against_glum(*((5000, 10) if quick else (1_000_000, 30)), repeats))
    print(rows[-1])
    if not quick:
        print(write("models_glm", rows, ["glum"]))


if __name__ == "__main__":
    main()
