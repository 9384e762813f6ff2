"""Drivers of a disparity: is the ranking right, do parts add up, and what do others say?

    python research/run.py watch_drivers [--repeats 200]

Simulated models whose paths are known: of eight features three differ by group, with parts of the
gap of 3, 2 and 1, two matter for the target alone, one differs by group and does not matter, and
two are noise. Linear, boosted and scores alone, on rows that they were not fitted to. Beside it
scikit-learn's permutation importance, which ranks by what matters for accuracy. Writes
results/watch_drivers.csv, and by feature of the boosted model, means over repeats,
results/watch_drivers_features.csv.
"""

from __future__ import annotations

import argparse
import os
from multiprocessing import Pool

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression

import evenhand as eh
from common import write

SLOPES = np.array([3.0, 2.0, 1.0, 4.0, 2.0, 0.0, 0.0, 0.0])
SHIFTS = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 1.5, 0.0, 0.0])
WANTED = ["x0", "x1", "x2"]


def draw(n: int, rng: np.random.Generator):
    a = rng.integers(0, 2, n)
    X = rng.normal(size=(n, len(SLOPES))) + a[:, None] * SHIFTS
    return X, X @ SLOPES + 2.0 * rng.normal(size=n), a


def models(X, y):
    linear = LinearRegression().fit(X, y)
    yield "linear", linear, linear
    boosted = HistGradientBoostingRegressor(max_iter=40, random_state=0).fit(X, y)
    yield "boosted", boosted, boosted


TRUTH = dict(zip((f"x{j}" for j in range(8)), SLOPES * SHIFTS, strict=True))


def one_repeat(
    job: tuple[int, int, bool],
) -> tuple[dict[str, dict[str, float]], dict[str, list[float]]]:
    """What is right in one repeat, by kind of scores; and of the boosted model, by feature."""
    seed, n, alone = job
    rng = np.random.default_rng(seed)
    fitted = list(models(*draw(n, rng)[:2]))
    X, y, a = draw(n, rng)  # rows that no model has seen
    fitted.append(("scores alone", fitted[0][1].predict(X), fitted[0][1]))
    counts, features = {}, {}
    for name, model, plain in fitted:
        if name == "scores alone" and not alone:
            continue
        found = eh.drivers(
            model, X, sensitive_features=a, criteria=["independence"], estimator="logistic",
            reference="0",
        )  # fmt: skip
        inside = [
            d.gaps["1"].interval[0] <= TRUTH[d.feature] <= d.gaps["1"].interval[1]
            for d in found.drivers
            if TRUTH[d.feature]
        ]
        gap = found.gaps["1"]
        importance = permutation_importance(plain, X, y, n_repeats=2, random_state=0)
        order = np.argsort(-importance.importances_mean)[:3]
        counts[name] = {
            "ranked": float([d.feature for d in found.drivers[:3]] == WANTED),
            "covered": float(np.mean(inside)),
            "added": float(gap.interval[0] <= gap.value + found.remainder <= gap.interval[1]),
            "permutation": float([f"x{j}" for j in order] == WANTED),
        }
        if name == "boosted":
            for j, feature in enumerate(TRUTH):
                driver = found[feature]
                features[feature] = [
                    driver.gaps["1"].value, driver.stands_in.value, importance.importances_mean[j],
                ]  # fmt: skip
    return counts, features


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with Pool(options.workers) as pool:
        # Surrogates take most of the time: a quarter of the repeats.
        jobs = [(seed, options.rows, seed % 4 == 0) for seed in range(options.repeats)]
        found = pool.map(one_repeat, jobs, chunksize=2)
    rows = []
    for name in found[0][0]:
        seen = [counts[name] for counts, _ in found if name in counts]
        share = {key: float(np.mean([one[key] for one in seen])) for key in seen[0]}
        rows.append({"scores": name, "repeats": len(seen), "rows": options.rows, **share})
        print(name, share)
    print(write("watch_drivers", rows))
    means = {name: np.mean([f[name] for _, f in found], axis=0) for name in TRUTH}
    table = [
        {"feature": name, "truth": TRUTH[name], "part": m[0], "stands_in": m[1], "importance": m[2]}
        for name, m in means.items()
    ]
    print(write("watch_drivers_features", table))


if __name__ == "__main__":
    main()
