"""The frontiers of all model classes in one picture, on three data sets.

    python research/run.py models_picture [--only DATA ...] [--picture]

Communities, LSAC (a draw of 5,000 rows) and Belgian motor policies (claims, a draw of 8,000; by age
band). Three outer folds hold out what is reported: independence by `auto`, and R², or for claims D²
of the Poisson deviance, of all held-out scores together, at each of `WEIGHTS`. Features are
standardized; no model is told the group of a row that it scores, though age is among the features
of the policies. Light settings for all boosted models and networks, the same at every weight.
Writes results/models_picture.csv and docs/models.png; `--picture` draws what is committed again.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold

import evenhand as eh
from common import RESULTS, write
from loaders import load_belgian_motor, load_communities, load_law_school

WEIGHTS = (0.0, 0.2, 0.6, 2.0, 6.0, 20.0, 80.0)
AGE = "ageph"
PICTURE = Path(__file__).parents[2] / "docs" / "models.png"
COLORS = ("#4878a8", "#222222", "#d1813c", "#55985f", "#b33b2e", "#8469a8", "#888888")


def standardized(X):
    X = np.asarray(X, dtype=float)
    spread = X.std(axis=0)
    return (X[:, spread > 0] - X[:, spread > 0].mean(axis=0)) / spread[spread > 0]


def load(name: str):
    rng = np.random.default_rng(0)
    if name == "communities":
        data = load_communities()
        return standardized(data.X), data.y, data.sensitive, "binomial", "normal"
    if name == "lsac":
        data = load_law_school()
        rows = rng.permutation(len(data.y))[:5000]
        return standardized(data.X[rows]), data.y[rows], data.sensitive[rows], "gamma", "normal"
    data = load_belgian_motor(target="frequency")
    # Policies of a whole year, of which the frequency is the number of claims.
    rows = rng.permutation(np.flatnonzero(data.exposure > 0.99))[:8000]
    X = np.asarray(data.X)[rows]
    age = X[:, list(data.feature_names).index(AGE)]
    bands = np.digitize(age, (30, 60)).astype(str)
    return standardized(X), np.rint(data.y[rows]), bands, "poisson", "poisson"


def trees(loss: str) -> HistGradientBoostingRegressor:
    kind = "poisson" if loss == "poisson" else "squared_error"
    return HistGradientBoostingRegressor(
        loss=kind, max_iter=80, learning_rate=0.08, max_leaf_nodes=12, random_state=0
    )


def models(family: str, loss: str, few: bool):
    yield "ridge", eh.FairRidge()
    yield "ridge, posterior", eh.FairRidge(group_features="posterior")
    yield f"GLM ({family})", eh.FairGLM(family, link="logit" if family == "binomial" else "log")
    yield "maps of boosted scores", eh.FairPostprocessor(trees(loss), cv=3, random_state=0)
    yield (
        "stack on boosted scores",
        eh.FairPostprocessor(trees(loss), passthrough=True, cv=3, random_state=0),
    )
    from evenhand.torch import FairMLPRegressor

    # The default of two layers of 64 learns 1,300 rows of 99 features by heart.
    small = {"hidden": (32,), "epochs": 100, "batch_size": 256} if few else {}
    yield "network", FairMLPRegressor(random_state=0, **small)


def accuracy(y, s, loss: str) -> float:
    if loss == "normal":
        return 1.0 - np.mean((y - s) ** 2) / np.var(y)
    from sklearn.metrics import d2_tweedie_score

    return float(d2_tweedie_score(y, np.maximum(s, 1e-3 * y.mean()), power=1))


def boosted_in_training(X, y, a, train, test, weight: float, loss: str):
    """XGBoost with the fairness term in its objective."""
    import xgboost

    from evenhand import boosting

    bound = eh.FairnessRegularizer("independence").bind(y[train], sensitive_features=a[train])
    kind = "poisson" if loss == "poisson" else "squared"
    goal = boosting.objective(bound, kind, "xgboost", fairness_weight=weight)
    start = float(np.log(y[train].mean()) if loss == "poisson" else y[train].mean())
    matrix = xgboost.DMatrix(X[train], y[train])
    settings = {"max_depth": 3, "eta": 0.08, "nthread": 1, "base_score": start, "seed": 0}
    model = xgboost.train(settings, matrix, 120, obj=goal)
    s = model.predict(xgboost.DMatrix(X[test]), output_margin=True)
    return np.exp(s) if loss == "poisson" else s


def measure(name: str) -> list[dict[str, object]]:
    X, y, a, family, loss = load(name)
    y, a = np.asarray(y, dtype=float), np.asarray(a)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    rows = []

    def report(model: str, scores: dict[float, np.ndarray], seconds: float) -> None:
        for weight, s in scores.items():
            found = eh.independence(None, s, sensitive_features=a)
            rows.append({"data": name, "model": model, "fairness_weight": weight,
                         "independence": found, "accuracy": accuracy(y, s, loss),
                         "measured_by": "R2" if loss == "normal" else "D2",
                         "cpu_seconds": seconds})  # fmt: skip
        best = rows[-len(scores)]
        print(name, model, f"{best['accuracy']:.3f} at 0, {seconds:.0f} CPU s", flush=True)

    for label, model in models(family, loss, few=len(y) < 3000):
        began = time.process_time()
        scores = {weight: np.empty(len(y)) for weight in WEIGHTS}
        for train, test in folds:
            share = getattr(model, "path_fitter", None)
            fitter = share(X[train], y[train], sensitive_features=a[train]) if share else None
            for weight in WEIGHTS:
                if fitter is None:
                    from sklearn.base import clone

                    fitted = clone(model).set_params(fairness_weight=weight)
                    fitted.fit(X[train], y[train], sensitive_features=a[train])
                else:
                    fitted = fitter(weight)
                scores[weight][test] = fitted.predict(X[test])
        report(label, scores, time.process_time() - began)
    began = time.process_time()
    scores = {weight: np.empty(len(y)) for weight in WEIGHTS}
    for train, test in folds:
        for weight in WEIGHTS:
            scores[weight][test] = boosted_in_training(X, y, a, train, test, weight, loss)
    report("XGBoost objective", scores, time.process_time() - began)
    return rows


def draw() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = list(csv.DictReader((RESULTS / "models_picture.csv").read_text().splitlines()))
    sets = list(dict.fromkeys(row["data"] for row in rows))
    fig, axes = plt.subplots(1, len(sets), figsize=(4.6 * len(sets), 4.2), layout="constrained")
    for ax, name in zip(np.atleast_1d(axes), sets, strict=True):
        here = [row for row in rows if row["data"] == name]
        for k, model in enumerate(dict.fromkeys(row["model"] for row in here)):
            points = sorted(
                (max(float(row["independence"]), 0.0), float(row["accuracy"]))
                for row in here
                if row["model"] == model
            )
            # Of two models the fairer one that is as accurate counts.
            best = [
                p for j, p in enumerate(points) if p[1] > max([q[1] for q in points[:j]] + [-9])
            ]
            ax.plot(*zip(*best, strict=True), "o-", markersize=3, linewidth=1.4, label=model,
                    color=COLORS[k], linestyle="--" if k % 2 else "-")  # fmt: skip
        top = max(float(row["accuracy"]) for row in here)
        ax.set_ylim(-0.02 * top, 1.05 * top)
        ax.set_title(name)
        ax.set_xlabel("independence, held out (0 is fair)")
        ax.set_ylabel("R²" if here[0]["measured_by"] == "R2" else "D²")
        ax.legend(fontsize=7, loc="lower right")
    fig.savefig(PICTURE, dpi=110)
    print(PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=["communities", "lsac", "belgian motor"])
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    if not options.picture:
        warnings.simplefilter("ignore")
        rows = [row for name in options.only for row in measure(name)]
        print(write("models_picture", rows))
    draw()


if __name__ == "__main__":
    main()
