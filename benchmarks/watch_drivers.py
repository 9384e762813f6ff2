"""Drivers of a disparity: is the ranking right, do parts add up, and what do others say?

    python benchmarks/watch_drivers.py [--repeats 200]

Simulated models whose paths are known: of eight features three differ by group, with parts of the
gap of 3, 2 and 1, two matter for the target alone, one differs by group and does not matter, and
two are noise. Linear, boosted and scores alone. Beside it scikit-learn's permutation importance,
which ranks by what matters for accuracy. Writes results/watch_drivers.csv, and by feature of the
boosted model, means over repeats, results/watch_drivers_features.csv.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from common import write
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression

import evenhand as eh

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
    yield "scores alone", linear.predict(X), linear


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args()
    counts: dict[str, dict[str, float]] = {}
    truth = dict(zip((f"x{j}" for j in range(8)), SLOPES * SHIFTS, strict=True))
    features = {name: {"feature": name, "truth": truth[name], "part": 0.0, "stands_in": 0.0,
                       "importance": 0.0} for name in truth}  # fmt: skip
    for seed in range(options.repeats):
        X, y, a = draw(options.rows, np.random.default_rng(seed))
        for name, model, plain in models(X, y):
            found = eh.drivers(
                model, X, sensitive_features=a, criteria=["independence"], estimator="logistic",
                reference="0",
            )  # fmt: skip
            row = counts.setdefault(
                name, dict.fromkeys(("ranked", "covered", "added", "permutation"), 0.0)
            )
            row["ranked"] += [d.feature for d in found.drivers[:3]] == WANTED
            inside = [
                d.gaps["1"].interval[0] <= truth[d.feature] <= d.gaps["1"].interval[1]
                for d in found.drivers
                if truth[d.feature]
            ]
            row["covered"] += float(np.mean(inside))
            gap = found.gaps["1"]
            low, high = (end - gap.value for end in gap.interval)
            row["added"] += low <= found.remainder <= high
            importance = permutation_importance(plain, X, y, n_repeats=2, random_state=0)
            order = np.argsort(-importance.importances_mean)[:3]
            row["permutation"] += [f"x{j}" for j in order] == WANTED
            if name == "boosted":
                for j, one in enumerate(features.values()):
                    driver = found[one["feature"]]
                    one["part"] += driver.gaps["1"].value / options.repeats
                    one["stands_in"] += driver.stands_in.value / options.repeats
                    one["importance"] += importance.importances_mean[j] / options.repeats
    rows = []
    for name, row in counts.items():
        share = {key: value / options.repeats for key, value in row.items()}
        rows.append({"scores": name, "repeats": options.repeats, "rows": options.rows, **share})
        print(name, share)
    print(write("watch_drivers", rows))
    print(write("watch_drivers_features", list(features.values())))


if __name__ == "__main__":
    main()
