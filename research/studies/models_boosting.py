"""Objectives of boosting libraries: what they cost, and how far training fairness holds.

    python research/run.py models_boosting [gap] [speed]

`speed`: CPU seconds of a training on one thread, with the library's own objective, with the same
loss as a Python function (what any custom objective costs there), and with ours, and how many of
these inside the function; medians over runs that take turns. `gap`: unfairness and R² on the rows
of training, mean over five folds, and on all rows held out; once by the estimate that is trained
on, once by the measure of an audit.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"

import csv
import sys
import time
from statistics import median

import lightgbm
import numpy as np
import xgboost
from sklearn.model_selection import StratifiedKFold

import evenhand as eh
from common import RESULTS, write
from evenhand import boosting
from loaders import load_communities

ROWS, COLUMNS, ROUNDS, REPEATS = 1_000_000, 30, 30, 3
WEIGHTS = (0.0, 1.0, 10.0, 100.0)
GAP_ROUNDS = (100, 300)


def plain(scores, data):
    return scores - data.get_label(), np.ones(len(scores), dtype=np.float32)


def speed_rows() -> list[dict]:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, ROWS)
    X = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    X[:, 0] += 0.7 * a
    y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + rng.standard_normal(ROWS)
    tables = {
        "xgboost": xgboost.QuantileDMatrix(X, y, nthread=1),
        "lightgbm": lightgbm.Dataset(X, y, params={"num_threads": 1, "verbose": -1}).construct(),
    }
    out = []
    for library, table in tables.items():
        for criterion in ("independence", "separation"):
            bound = eh.FairnessRegularizer(criterion).bind(y, sensitive_features=a)
            ours = boosting.objective(bound, library=library)
            every = {"native": None, "plain function": plain, "ours": ours}
            seconds: dict[str, list[float]] = {name: [] for name in every}
            inside: dict[str, list[float]] = {name: [] for name in every}
            for repeat in range(REPEATS + 1):
                for name, objective in every.items():
                    began = time.process_time()
                    spent = train(library, objective, table)
                    if repeat:  # the first run compiles
                        seconds[name].append(time.process_time() - began)
                        inside[name].append(spent)
            base = median(seconds["native"])
            for name, times in seconds.items():
                row = {"what": "speed", "library": library, "criterion": criterion, "n": ROWS}
                row |= {"columns": COLUMNS, "rounds": ROUNDS, "plain_rounds": 10}
                row |= {"objective": name, "seconds": median(times)}
                row |= {"times_native": median(times) / base}
                row |= {"inside": median(inside[name]), "inside_share": median(inside[name]) / base}
                out.append(row)
                print(library, criterion, name, f"{median(times):.2f} s", row["times_native"])
    return out


def train(library, objective, table) -> float:
    """Train; CPU seconds inside the objective, where it is a Python function."""
    spent = []

    def clocked(scores, data):
        began = time.process_time()
        found = objective(scores, data)
        spent.append(time.process_time() - began)
        return found

    if library == "xgboost":
        params = {"nthread": 1, "base_score": 0.0}
        xgboost.train(params, table, ROUNDS, obj=clocked if objective else None)
    else:
        params = {"num_threads": 1, "verbose": -1, "boost_from_average": False}
        params["objective"] = clocked if objective else "regression"
        lightgbm.train(params, table, ROUNDS)
    return sum(spent)


def gap_rows() -> list[dict]:
    data = load_communities()
    X, y, a = np.asarray(data.X), data.y, np.asarray(data.sensitive)
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, a))
    out = []
    for criterion in ("independence", "separation"):
        regularizer, measure = eh.FairnessRegularizer(criterion), getattr(eh, criterion)
        for weight in WEIGHTS:
            for rounds in GAP_ROUNDS:
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
                every = regularizer.bind(y, sensitive_features=a)
                row = {"what": "gap", "library": "xgboost", "criterion": criterion, "n": len(y)}
                row |= {"columns": X.shape[1], "rounds": rounds, "plain_rounds": 10}
                row |= {"objective": "ours", "fairness_weight": weight}
                row |= {"training": float(np.mean(inside)), "held_out": every.value(held_out)}
                row |= {"training_audit": float(np.mean(audited))}
                row |= {"held_out_audit": measure(y, held_out, sensitive_features=a)}
                row |= {"training_r2": 1 - float(np.mean(errors))}
                row |= {"held_out_r2": 1 - float(np.mean((y - held_out) ** 2) / y.var())}
                out.append(row)
                print({k: v for k, v in row.items() if isinstance(v, float | int | str)})
    return out


def main() -> None:
    parts = {"gap": gap_rows, "speed": speed_rows}
    asked = sys.argv[1:] or list(parts)
    path = RESULTS / "models_boosting.csv"
    kept = list(csv.DictReader(path.open(newline=""))) if path.exists() else []
    rows = []
    for what, measure in parts.items():
        old = [{k: v for k, v in r.items() if k != "setting"} for r in kept if r["what"] == what]
        rows += measure() if what in asked else old
    write("models_boosting", rows, ("xgboost-cpu", "lightgbm"))


if __name__ == "__main__":
    main()
