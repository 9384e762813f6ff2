"""Boosted models: what fair objectives cost, how far their fairness holds, and the stack.

`objectives`, part "speed": CPU seconds of a training on one thread, with the library's own
objective, with the same loss as a Python function (what any custom objective costs there), and with
ours, and how many of these inside the function; medians over runs that take turns. Part "gap":
unfairness and R² on the rows of training, mean over five folds, and on all rows held out; once by
the estimate that is trained on, once by the measure of an audit.

`stack`: what the stack costs in accuracy at the same measured unfairness, against its rivals, on
Communities (1,994 rows; three draws of the outer folds) and LSAC (20,800 rows; one draw). Five
outer folds hold out the rows that are reported on; each method is fitted on the others at each of
`WEIGHTS`, the five test parts together give R² and unfairness by `auto`, and R² at a bound is read
off the straight lines between these places. An empty `r2` means that the bound is not met; `least`
is the smallest unfairness seen. The line with the bound "none" is fairness weight 0, and
`booster_r2` the plain booster, fitted once on all training rows of a fold. The booster has 300
trees of depth 3 at a learning rate of 0.05, and on Communities, where features are many and rows
few, sees 80 % of the rows and half of the columns for each tree. Race, or the racial shares, are
among the features, as published. Only methods named "by attribute" are told the group of a row that
they score.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import lightgbm
import numpy as np
import xgboost
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold

import evenhand as eh
from common import Setting, r_squared
from evenhand import boosting
from loaders import load_communities, load_law_school

Row = dict[str, Any]
CRITERIA = ("independence", "separation")
COLUMNS, ROUNDS, REPEATS = 30, 30, 3
GAP_WEIGHTS, GAP_ROUNDS = (0.0, 1.0, 10.0, 100.0), (100, 300)


def plain(scores: Any, data: Any) -> tuple[Any, Any]:
    """Gradient and curvature of squared error."""
    return scores - data.get_label(), np.ones(len(scores), dtype=np.float32)


def speed_rows(setting: Setting) -> Iterator[Row]:
    n = setting.choose(1_000_000, 2_000)
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32)
    X[:, 0] += 0.7 * a
    y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + rng.standard_normal(n)
    tables = {
        "xgboost": xgboost.QuantileDMatrix(X, y, nthread=1),
        "lightgbm": lightgbm.Dataset(X, y, params={"num_threads": 1, "verbose": -1}).construct(),
    }
    for library, table in tables.items():
        for criterion in ("independence", "separation"):
            bound = eh.FairnessRegularizer(criterion).bind(y, sensitive_features=a)
            ours = boosting.objective(bound, library=library)
            objectives = {"native": None, "plain function": plain, "ours": ours}
            seconds: dict[str, list[float]] = {name: [] for name in objectives}
            inside: dict[str, list[float]] = {name: [] for name in objectives}
            for repeat in range(REPEATS + 1):
                for name, objective in objectives.items():
                    began = time.process_time()
                    spent = train(library, objective, table)
                    if repeat:  # the first run compiles
                        seconds[name].append(time.process_time() - began)
                        inside[name].append(spent)
            base = median(seconds["native"])
            for name, times in seconds.items():
                row = {"what": "speed", "library": library, "criterion": criterion, "n": n}
                row |= {"columns": COLUMNS, "rounds": ROUNDS, "plain_rounds": 10}
                row |= {"objective": name, "seconds": median(times)}
                row |= {"times_native": median(times) / base}
                row |= {"inside": median(inside[name]), "inside_share": median(inside[name]) / base}
                yield row


def train(library: str, objective: Any, table: Any) -> float:
    """Train; CPU seconds inside the objective, where it is a Python function."""
    spent = []

    def clocked(scores, data):
        began = time.process_time()
        result = objective(scores, data)
        spent.append(time.process_time() - began)
        return result

    if library == "xgboost":
        params = {"nthread": 1, "base_score": 0.0}
        xgboost.train(params, table, ROUNDS, obj=clocked if objective else None)
    else:
        params = {"num_threads": 1, "verbose": -1, "boost_from_average": False}
        params["objective"] = clocked if objective else "regression"
        lightgbm.train(params, table, ROUNDS)
    return sum(spent)


def gap_rows(setting: Setting) -> Iterator[Row]:
    data = load_communities()
    X, y, a = np.asarray(data.X), data.y, np.asarray(data.sensitive)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, a))
    for criterion in CRITERIA:
        regularizer, measure = eh.FairnessRegularizer(criterion), getattr(eh, criterion)
        for weight in setting.choose(GAP_WEIGHTS, GAP_WEIGHTS[:1]):
            for rounds in setting.choose(GAP_ROUNDS, (5,)):
                held_out, inside, audited, errors = np.empty(len(y)), [], [], []
                for rows, others in folds:
                    bound = regularizer.bind(y[rows], sensitive_features=a[rows])
                    objective = boosting.objective(bound, fairness_weight=weight, learning_rate=0.1)
                    table = xgboost.DMatrix(X[rows], y[rows])
                    params = {"nthread": 1, "max_depth": 4, "eta": 0.1, "min_child_weight": 5}
                    params["base_score"] = float(y[rows].mean())
                    model = xgboost.train(params, table, rounds, obj=objective)
                    fitted = model.predict(table).astype(float)
                    inside.append(bound.value(fitted))
                    audited.append(measure(y[rows], fitted, sensitive_features=a[rows]))
                    errors.append(np.mean((y[rows] - fitted) ** 2) / y.var())
                    held_out[others] = model.predict(xgboost.DMatrix(X[others]))
                whole = regularizer.bind(y, sensitive_features=a)
                row = {"what": "gap", "library": "xgboost", "criterion": criterion, "n": len(y)}
                row |= {"columns": X.shape[1], "rounds": rounds, "plain_rounds": 10}
                row |= {"objective": "ours", "fairness_weight": weight}
                row |= {"training": float(np.mean(inside)), "held_out": whole.value(held_out)}
                row |= {"training_audit": float(np.mean(audited))}
                row |= {"held_out_audit": measure(y, held_out, sensitive_features=a)}
                row |= {"training_r2": 1 - float(np.mean(errors))}
                row |= {"held_out_r2": 1 - float(np.mean((y - held_out) ** 2) / y.var())}
                yield row


def objectives(setting: Setting) -> Iterator[Row]:
    for part, function in (("gap", gap_rows), ("speed", speed_rows)):
        if setting.wants(part):
            yield from function(setting)


# The stack ----------------------------------------------------------------------------------------

WEIGHTS = (0.0, 0.1, 0.2, 0.4, 0.7, 1.1, 1.7, 2.5, 4.0, 6.0, 10.0, 16.0, 40.0, 100.0, 250.0)
BOUNDS = (0.10, 0.05, 0.01)
RIDGE, MAPS = "FairRidge, posterior", "FairPostprocessor, posterior"
MAPS_KNOWN, STACK = "FairPostprocessor, by attribute", "stack, posterior"
STACK_KNOWN = "stack, by attribute"


def booster(name: str) -> Any:
    few = {"subsample": 0.8, "colsample_bytree": 0.5} if name == "communities" else {}
    return xgboost.XGBRegressor(
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


def data_sets(quick: bool) -> Iterator[tuple[Any, ...]]:
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
        result = load()
        yield name, result.X, result.y, result.sensitive, repeats


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
    result = list(r2[u <= bound])
    for j in range(len(u) - 1):
        if (u[j] <= bound) != (u[j + 1] <= bound):
            t = (u[j] - bound) / (u[j] - u[j + 1])
            result.append((1.0 - t) * r2[j] + t * r2[j + 1])
    return float(max(result)) if result else ""


def stack(setting: Setting) -> Iterator[Row]:
    """R² at each bound of each method, by data set, draw of the folds and criterion."""
    weights = setting.choose(WEIGHTS, (0.0, 1.0))
    for name, X, y, a, repeats in data_sets(setting.quick):
        for repeat in range(repeats):
            folds = list(KFold(5, shuffle=True, random_state=repeat).split(X))
            base, plain_scores = booster(name), np.empty(len(y))
            for train_rows, test in folds:
                fitted = clone(base).fit(X[train_rows], y[train_rows])
                plain_scores[test] = fitted.predict(X[test])
            for criterion in CRITERIA:
                for method, model in models(base, criterion).items():
                    scores = held_out(model, X, y, a, folds, weights)
                    measure = getattr(eh, criterion)
                    u = np.array([measure(y, s, sensitive_features=a) for s in scores])
                    r2 = np.array([r_squared(s, y) for s in scores])
                    same = {
                        "dataset": name, "rows": len(y), "criterion": criterion, "method": method,
                        "repeat": repeat, "least": float(u.min()),
                        "booster_r2": r_squared(plain_scores, y),
                    }  # fmt: skip
                    yield {**same, "bound": "none", "r2": float(r2[0])}
                    yield from ({**same, "bound": b, "r2": at_bound(u, r2, b)} for b in BOUNDS)
