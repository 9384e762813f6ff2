"""Fair GLMs beside plain ones, and the frontiers of all model classes in one picture.

`glm`: iterations, what fairness costs beside the plain fit, equality with scikit-learn. Claims of
200,000 policies with 20 features are simulated; Communities has 1,994 rows and 99 features, its
target as counts out of 100. The plain fit of 10⁶ rows and 30 features is timed against glum. All
seconds are CPU time, medians of alternating runs, one thread.

`picture`: Communities, LSAC (a draw of 5,000 rows) and Belgian motor policies (claims, a draw of
8,000; by age band). Three outer folds hold out what is reported: independence by `auto`, and R², or
for claims D² of the Poisson deviance, of all held-out scores together, at each of `WEIGHTS`.
Features are standardized; no model is told the group of a row that it scores, though age is among
the features of the policies. Light settings for all boosted models and networks, the same at each
weight.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor
from sklearn.model_selection import KFold

import evenhand as eh
from common import ALPHA, Setting, cpu_seconds, new_figure, r_squared, save_figure, standardized
from loaders import load_belgian_motor, load_communities, load_law_school

Row = dict[str, Any]
GLM_WEIGHTS = (0.1, 1.0, 10.0)
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


def compare(
    data: str, family: str, X: np.ndarray, y: np.ndarray, a: np.ndarray, repeats: int
) -> Iterator[Row]:
    """One row a criterion and weight."""
    plain = eh.FairGLM(family, fairness_weight=0, alpha=ALPHA)
    mine, theirs = plain.fit(X, y), PEERS[family].fit(X, y)
    apart = float(np.abs(mine.predict(X) / theirs.predict(X) - 1.0).max())
    for criterion in CRITERIA:
        for weight in GLM_WEIGHTS:
            fair = eh.FairGLM(family, criterion, weight, ALPHA)
            fair.fit(X, y, sensitive_features=a)  # compile first
            seconds = cpu_seconds(
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


def against_glum(n: int, d: int, repeats: int) -> Row:
    from glum import GeneralizedLinearRegressor

    X, y, a = claims(n, d)
    glum = GeneralizedLinearRegressor(family="poisson", alpha=ALPHA, l1_ratio=0, fit_intercept=True)
    plain = eh.FairGLM("poisson", fairness_weight=0, alpha=ALPHA)
    fair = eh.FairGLM("poisson", "independence", 1.0, ALPHA)
    fair.fit(X[:5000], y["poisson"][:5000], sensitive_features=a[:5000])
    seconds = cpu_seconds(
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


def glm(setting: Setting) -> Iterator[Row]:
    repeats = setting.choose(3, 1)
    X, targets, a = claims(setting.choose(200_000, 4_000), 20)
    for family, y in targets.items():
        yield from compare("claims", family, X, y, a, repeats)
    if not setting.quick:
        data = load_communities()
        counts = np.round(100.0 * data.y)
        yield from compare(
            "communities", "poisson", standardized(data.X), counts, data.sensitive, repeats
        )
    yield against_glum(*setting.choose((1_000_000, 30), (5_000, 10)), repeats)


# All model classes --------------------------------------------------------------------------------

WEIGHTS = (0.0, 0.2, 0.6, 2.0, 6.0, 20.0, 80.0)
AGE = "ageph"
COLORS = ("#4878a8", "#222222", "#d1813c", "#55985f", "#b33b2e", "#8469a8", "#888888")


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
    from small_network import SmallNetwork

    # The default of two layers of 64 learns 1,300 rows of 99 features by heart.
    small = {"hidden": (32,), "epochs": 100, "batch_size": 256} if few else {}
    yield "network", SmallNetwork(**small)


def accuracy(y, s, loss: str) -> float:
    if loss == "normal":
        return r_squared(s, y)
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


def measure(name: str, weights: tuple[float, ...]) -> list[Row]:
    """Rows of all model classes on one data set."""
    X, y, a, family, loss = load(name)
    y, a = np.asarray(y, dtype=float), np.asarray(a)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    rows = []

    def report(model: str, scores: dict[float, np.ndarray], seconds: float) -> None:
        for weight, s in scores.items():
            result = eh.independence(None, s, sensitive_features=a)
            rows.append({"data": name, "model": model, "fairness_weight": weight,
                         "independence": result, "accuracy": accuracy(y, s, loss),
                         "measured_by": "R2" if loss == "normal" else "D2",
                         "cpu_seconds": seconds})  # fmt: skip

    for label, model in models(family, loss, few=len(y) < 3000):
        began = time.process_time()
        scores = {weight: np.empty(len(y)) for weight in weights}
        for train, test in folds:
            share = getattr(model, "path_fitter", None)
            fitter = share(X[train], y[train], sensitive_features=a[train]) if share else None
            for weight in weights:
                if fitter is None:
                    fitted = clone(model).set_params(fairness_weight=weight)
                    fitted.fit(X[train], y[train], sensitive_features=a[train])
                else:
                    fitted = fitter(weight)
                scores[weight][test] = fitted.predict(X[test])
        report(label, scores, time.process_time() - began)
    began = time.process_time()
    scores = {weight: np.empty(len(y)) for weight in weights}
    for train, test in folds:
        for weight in weights:
            scores[weight][test] = boosted_in_training(X, y, a, train, test, weight, loss)
    report("XGBoost objective", scores, time.process_time() - began)
    return rows


def draw(setting: Setting, rows: list[Row]) -> None:
    """Accuracy against independence, a panel for each data set.

    Maps of boosted scores are in the table alone: the stack is ahead of them everywhere, and more
    than six lines cannot be told apart.
    """
    rows = [row for row in rows if not row["model"].startswith("maps")]
    sets = list(dict.fromkeys(row["data"] for row in rows))
    figure, axes = new_figure(1, len(sets), 4.6 * len(sets), 4.2)
    for ax, name in zip(axes[0], sets, strict=True):
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
            ax.plot(*zip(*best, strict=True), marker="o", markersize=3, linewidth=1.4,
                    label="GLM" if model.startswith("GLM") else model,
                    color=COLORS[k], linestyle="--" if k % 2 else "-")  # fmt: skip
        top = max(float(row["accuracy"]) for row in here)
        ax.set_ylim(-0.02 * top, 1.05 * top)
        ax.set_title(name)
        ax.set_xlabel("independence, held out (0 is fair)")
        ax.set_ylabel("R²" if here[0]["measured_by"] == "R2" else "D²")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncol=6)
    save_figure(setting, figure, "models")


def picture(setting: Setting) -> Iterator[Row]:
    warnings.simplefilter("ignore")
    rows = []
    for name in setting.choose(("communities", "lsac", "belgian motor"), ("communities",)):
        rows += measure(name, setting.choose(WEIGHTS, WEIGHTS[:2]))
    yield from rows
    draw(setting, rows)
