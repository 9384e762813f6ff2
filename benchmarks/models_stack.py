"""What the stack costs in accuracy at the same measured unfairness, against its rivals.

    python benchmarks/models_stack.py [--quick]

Communities (1,994 rows; three draws of the outer folds) and LSAC (20,800 rows; one draw). Five
outer folds hold out the rows that are reported on; every method is fitted on the others at each of
`WEIGHTS`, the five test parts together give R² and unfairness by `auto`, and R² at a bound is read
off the straight lines between these places. An empty `r2` means that the bound is not met;
`least` is the smallest unfairness found. The line with the bound "none" is fairness weight 0, and
`booster_r2` the plain booster, fitted once on all training rows of a fold.

The booster has 300 trees of depth 3 at a learning rate of 0.05, and on Communities, where features
are many and rows few, sees 80 % of the rows and half of the columns for each tree. Race, or the
racial shares, are among the features, as published. Only methods named "by attribute" are told the
group of a row that they score. Writes results/models_stack.csv.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from common import write
from sklearn.base import clone
from sklearn.model_selection import KFold
from xgboost import XGBRegressor
from xgboost import __version__ as xgboost_version

import evenhand as eh

WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.1, 1.7, 2.5, 4.0, 6.0, 10.0, 16.0, 40.0, 100.0, 250.0)
BOUNDS = (0.10, 0.05, 0.01)
CRITERIA = ("independence", "separation")
RIDGE, MAPS = "FairRidge, posterior", "FairPostprocessor, posterior"
MAPS_KNOWN, STACK = "FairPostprocessor, by attribute", "stack, posterior"
STACK_KNOWN = "stack, by attribute"


def booster(name: str) -> XGBRegressor:
    few = {"subsample": 0.8, "colsample_bytree": 0.5} if name == "communities" else {}
    return XGBRegressor(
        n_estimators=300, learning_rate=0.05, max_depth=3, n_jobs=1, random_state=0, **few
    )


def models(base: XGBRegressor, criterion: str) -> dict[str, object]:
    """The methods by name."""

    def around(**options: object) -> eh.FairPostprocessor:
        return eh.FairPostprocessor(base, criterion, random_state=0, **options)

    return {
        RIDGE: eh.FairRidge(criterion, group_features="posterior"),
        MAPS: around(),
        MAPS_KNOWN: around(group_features="attribute"),
        STACK: around(passthrough=True),
        STACK_KNOWN: around(passthrough=True, group_features="attribute"),
    }


def data_sets(quick: bool):
    if quick:
        rng = np.random.default_rng(0)
        a = rng.integers(0, 2, 600)
        X = rng.normal(size=(600, 4)) + a[:, None]
        yield "synthetic", X, X[:, 0] * X[:, 1] + rng.normal(size=600), a, 1
        return
    for name, load, repeats in (
        ("communities", eh.datasets.load_communities, 3),
        ("lsac", eh.datasets.load_law_school, 1),
    ):
        found = load()
        yield name, found.X, found.y, found.sensitive, repeats


def r_squared(y: np.ndarray, s: np.ndarray) -> float:
    return float(1.0 - np.mean((y - s) ** 2) / np.var(y))


def held_out(model, X, y, a, folds, weights) -> np.ndarray:
    """(len(weights), n) scores of rows that the model has not seen, on standardized features."""
    out = np.empty((len(weights), len(y)))
    for train, test in folds:
        center, spread = X[train].mean(axis=0), X[train].std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        rows, new = (X[train] - center) / spread, (X[test] - center) / spread
        fit = model.path_fitter(rows, y[train], sensitive_features=a[train])
        known = model.group_features == "attribute"
        extra = {"sensitive_features": a[test]} if known else {}
        for i, weight in enumerate(weights):
            out[i, test] = fit(weight).predict(new, **extra)
    return out


def at_bound(u: np.ndarray, r2: np.ndarray, bound: float) -> float | str:
    """The best R² on the curve where unfairness is no more than the bound; "" if nowhere."""
    found = list(r2[u <= bound])
    for j in range(len(u) - 1):
        if (u[j] <= bound) != (u[j + 1] <= bound):
            t = (u[j] - bound) / (u[j] - u[j + 1])
            found.append((1.0 - t) * r2[j] + t * r2[j + 1])
    return float(max(found)) if found else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="made-up rows, nothing written")
    quick = parser.parse_args().quick
    weights = (0.0, 1.0) if quick else WEIGHTS
    lines = []
    for name, X, y, a, repeats in data_sets(quick):
        for repeat in range(repeats):
            folds = list(KFold(5, shuffle=True, random_state=repeat).split(X))
            base, plain = booster(name), np.empty(len(y))
            for train, test in folds:
                plain[test] = clone(base).fit(X[train], y[train]).predict(X[test])
            for criterion in CRITERIA:
                for method, model in models(base, criterion).items():
                    scores = held_out(model, X, y, a, folds, weights)
                    measure = getattr(eh, criterion)
                    u = np.array([measure(y, s, sensitive_features=a) for s in scores])
                    r2 = np.array([r_squared(y, s) for s in scores])
                    same = {
                        "dataset": name, "rows": len(y), "criterion": criterion, "method": method,
                        "repeat": repeat, "least": float(u.min()),
                        "booster_r2": r_squared(y, plain), "xgboost": xgboost_version,
                    }  # fmt: skip
                    lines.append({**same, "bound": "none", "r2": float(r2[0])})
                    lines += [{**same, "bound": b, "r2": at_bound(u, r2, b)} for b in BOUNDS]
                    shown = [line["r2"] for line in lines[-4:]]
                    print(name, repeat, criterion, method, shown, same["least"], flush=True)
    if not quick:
        write("models_stack", lines)


if __name__ == "__main__":
    main()
