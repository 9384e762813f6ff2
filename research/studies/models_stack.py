"""What the stack costs in accuracy at the same measured unfairness, against its rivals.

    python research/run.py models_stack [--quick | --page]

Communities (1,994 rows; three draws of the outer folds) and LSAC (20,800 rows; one draw). Five
outer folds hold out the rows that are reported on; every method is fitted on the others at each of
`WEIGHTS`, the five test parts together give R² and unfairness by `auto`, and R² at a bound is read
off the straight lines between these places. An empty `r2` means that the bound is not met;
`least` is the smallest unfairness found. The line with the bound "none" is fairness weight 0, and
`booster_r2` the plain booster, fitted once on all training rows of a fold.

The booster has 300 trees of depth 3 at a learning rate of 0.05, and on Communities, where features
are many and rows few, sees 80 % of the rows and half of the columns for each tree. Race, or the
racial shares, are among the features, as published. Only methods named "by attribute" are told the
group of a row that they score. Writes results/models_stack.csv, and from it, as does `--page`
alone, the table of docs/stack.md.
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold

import evenhand as eh
from common import RESULTS, write
from loaders import load_communities, load_law_school

WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.1, 1.7, 2.5, 4.0, 6.0, 10.0, 16.0, 40.0, 100.0, 250.0)
BOUNDS = (0.10, 0.05, 0.01)
CRITERIA = ("independence", "separation")
RIDGE, MAPS = "FairRidge, posterior", "FairPostprocessor, posterior"
MAPS_KNOWN, STACK = "FairPostprocessor, by attribute", "stack, posterior"
STACK_KNOWN = "stack, by attribute"


PAGE = Path(__file__).parents[2] / "docs" / "stack.md"
BEGIN, END = "<!-- models_stack.csv -->", "<!-- end -->"


def booster(name: str):
    from xgboost import XGBRegressor

    few = {"subsample": 0.8, "colsample_bytree": 0.5} if name == "communities" else {}
    return XGBRegressor(
        n_estimators=300, learning_rate=0.05, max_depth=3, n_jobs=1, random_state=0, **few
    )


def models(base: object, criterion: str) -> dict[str, object]:
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
        ("communities", load_communities, 3),
        ("lsac", load_law_school, 1),
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


def table(lines: list[dict[str, str]]) -> str:
    """R² by method (rows) and by data set, criterion and bound (columns), means over repeats.

    A bound that is missed in some of the repeats is marked by how many meet it.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        key = (line["method"], line["dataset"], line["criterion"], line["bound"])
        found.setdefault(key, []).append(line["r2"])
    methods = list(dict.fromkeys(line["method"] for line in lines))
    places = list(dict.fromkeys((line["dataset"], line["criterion"]) for line in lines))
    plain = {
        d: {x["repeat"]: x["booster_r2"] for x in lines if x["dataset"] == d} for d, _ in places
    }
    head = ["R² held out at no bound / ≤ .10 / ≤ .05 / ≤ .01", *(f"{d}, {c}" for d, c in places)]
    rows = [head, ["---"] * len(head)]
    booster_r2 = [_mean([*plain[name].values()]) for name, _ in places]
    rows.append(["plain booster, which has no bound", *booster_r2])
    bounds = ("none", *map(str, BOUNDS))
    for method in methods:
        cells = [" / ".join(_mean(found[(method, *p, b)]) for b in bounds) for p in places]
        rows.append([method, *cells])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _mean(values: list[str]) -> str:
    met = [float(v) for v in values if v != ""]
    if not met:
        return "–"
    part = f" ({len(met)} of {len(values)})" if len(met) < len(values) else ""
    return f"{np.mean(met):.3f}".lstrip("0") + part


def write_page() -> None:
    """Put the table of the CSV between the marks of the page."""
    with (RESULTS / "models_stack.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(lines)}\n\n{END}{rest.split(END)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="made-up rows, nothing written")
    parser.add_argument("--page", action="store_true", help="the page alone, from the CSV")
    chosen = parser.parse_args()
    if chosen.page:
        write_page()
        return
    from xgboost import __version__ as xgboost_version

    quick = chosen.quick
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
        write_page()


if __name__ == "__main__":
    main()
