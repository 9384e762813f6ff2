"""How often a certified choice breaks its promise on fresh data.

Each repeat draws training rows, fits a path, selects by ``max_unfairness`` with and without
``certify=True``, and measures the refitted model on a large fresh sample of the same population.
A violation is a fresh value above the limit. One row per scenario: both violation rates, how often
no point could be certified, and the mean fresh R² of both choices.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import evenhand as eh
from common import Setting, run_all
from evenhand.training.path import Unreachable

FRESH = 20_000


@dataclass(frozen=True)
class Scenario:
    """Population and request."""

    name: str
    n: int
    features: int
    groups: int
    criterion: str
    limit: float
    group_features: str | None = None
    n_points: int = 10
    measure_with: str = "logistic"
    repeats: int = 200
    recommended: bool = False


SCENARIOS = [
    Scenario("two groups", 1000, 5, 2, "independence", 0.05),
    Scenario("few rows", 400, 5, 2, "independence", 0.10),
    Scenario("few rows, many features", 400, 40, 2, "independence", 0.10),
    Scenario("separation", 1000, 5, 2, "separation", 0.02),
    Scenario("three groups", 1500, 5, 3, "independence", 0.05),
    Scenario("posterior features", 1000, 10, 2, "independence", 0.05, "posterior"),
    Scenario("attribute features", 1000, 10, 2, "independence", 0.05, "attribute"),
    *(
        Scenario(f"FairRegressor, {name}", n, 5, 2, criterion, limit, None, 0, "auto", 60, True)
        for name, n, criterion, limit in (
            ("two groups", 1000, "independence", 0.05),
            ("few rows", 400, "independence", 0.10),
            ("separation", 1000, "separation", 0.02),
        )
    ),
]
# Slow, and run by name alone: the default estimator, and a longer path.
SLOW = [
    Scenario("adaptive measure", 1000, 5, 2, "independence", 0.05, None, 10, "auto"),
    Scenario("twenty points", 1000, 5, 2, "independence", 0.05, None, 20),
]


def draw(scenario: Scenario, n: int, seed: int):
    """Groups that differ in the means and spreads of the features; a linear target.

    Half of the features carry the group and the target, the rest the target alone; the gap between
    neighboring groups is 1.2 spreads along the first half, whatever the number of features.
    """
    d, k = scenario.features, scenario.groups
    carries = np.arange(d) < (d + 1) // 2
    shift = 1.2 * carries / np.sqrt(carries.sum())
    coef = np.where(carries, 1.0, 0.8) / np.sqrt(d / 2.0)
    shares = np.arange(k + 1, 1, -1)
    rng = np.random.default_rng(seed)
    a = rng.choice(k, n, p=shares / shares.sum())
    X = rng.normal(size=(n, d)) * (1.0 + 0.2 * a[:, None]) + a[:, None] * shift
    return X, X @ coef + 0.8 * rng.normal(size=n), a


def choose(scenario: Scenario, X: Any, y: Any, a: Any, seed: int) -> tuple[float, Any]:
    """Unfairness without a fairness term, and a function from `certify` to the chosen model."""
    if scenario.recommended:

        def fit(certify: bool) -> Any:
            model = eh.FairRegressor(
                scenario.criterion, max_unfairness=scenario.limit, certify=certify,
                random_state=seed,
            )  # fmt: skip
            return model.fit(X, y, sensitive_features=a)

        return np.nan, fit
    model = eh.FairRidge(scenario.criterion, group_features=scenario.group_features)
    path = eh.fairness_path(
        model, X, y, sensitive_features=a, n_points=scenario.n_points, random_state=seed,
        measure_with=scenario.measure_with,
    )  # fmt: skip
    start = path.points[0].measure(scenario.criterion).value
    return start, lambda certify: path.select(max_unfairness=scenario.limit, certify=certify)


def repeat(scenario: Scenario, seed: int, fresh) -> dict[str, float]:
    X, y, a = draw(scenario, scenario.n, seed)
    start, chosen_by = choose(scenario, X, y, a, seed)
    X_new, y_new, a_new = fresh
    known = {"sensitive_features": a_new} if scenario.group_features == "attribute" else {}
    out: dict[str, float] = {"start": start}
    for label, certify in (("plain", False), ("certified", True)):
        try:
            chosen = chosen_by(certify)
        except ValueError as error:
            if not isinstance(error, Unreachable) and "No candidate" not in str(error):
                raise
            out[label], out[f"{label}_r2"] = np.nan, np.nan
            continue
        s = chosen.predict(X_new, **known)
        measure = getattr(eh, scenario.criterion)
        out[label] = measure(y_new, s, sensitive_features=a_new, estimator=scenario.measure_with)
        out[f"{label}_r2"] = 1.0 - np.mean((y_new - s) ** 2) / np.var(y_new)
    return out


BY_NAME = {scenario.name: scenario for scenario in [*SCENARIOS, *SLOW]}


def choices(name: str, seeds: range) -> dict[str, Any]:
    """Fresh unfairness and R² of both choices, repeat by repeat."""
    scenario = BY_NAME[name]
    fresh = draw(scenario, FRESH, 10**6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.process_time()
        result = [repeat(scenario, seed, fresh) for seed in seeds]
    columns = {key: np.array([f[key] for f in result]) for key in result[0]}
    return {**columns, "seconds": time.process_time() - began}


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    names = setting.only or [scenario.name for scenario in SCENARIOS[: setting.choose(None, 1)]]
    for name in names:
        scenario = BY_NAME[name]
        repeats = setting.choose(scenario.repeats, 3)
        # In parts, so that a run that is stopped goes on where it was.
        parts = [(name, range(k, min(k + 20, repeats))) for k in range(0, repeats, 20)]
        results = run_all(setting, choices, parts, f"certified choices, {name}")
        result = {key: np.hstack([part[key] for part in results]) for key in results[0]}
        row = {
            "scenario": name, "n": scenario.n, "features": scenario.features,
            "groups": scenario.groups, "criterion": scenario.criterion, "limit": scenario.limit,
            "n_points": scenario.n_points, "measure": scenario.measure_with, "repeats": repeats,
            "unfairness_at_0": float(result["start"].mean()),
        }  # fmt: skip
        for label in ("plain", "certified"):
            row[f"{label}_violations"] = float(np.mean(result[label] > scenario.limit))
            row[f"{label}_unreachable"] = float(np.mean(np.isnan(result[label])))
            row[f"{label}_r2"] = float(np.nanmean(result[f"{label}_r2"]))
        yield {**row, "seconds": float(result["seconds"].sum())}
