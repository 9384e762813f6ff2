"""Drivers of a disparity, and imputed groups, in simulations whose truth is known.

`drivers`: is the ranking right, do parts add up, and what do others say? Of eight features three
differ by group, with parts of the gap of 3, 2 and 1, two matter for the target alone, one differs
by group and does not matter, and two are noise. Linear, boosted and scores alone, on rows that they
were not fitted to. Beside it scikit-learn's permutation importance, which ranks by what matters for
accuracy. `driver_features`: the same by feature of the boosted model, means over repeats.

`imputed`: do the bounds hold the truth, and is the estimate right where it should be? Surname and
place give probabilities, and the score goes with the group directly by nothing, or by more or less
than with them. How often the bounds of the gap and the least independence hold the truth, and bias
and coverage of the estimate under the assumption.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression

import evenhand as eh
from common import Setting, run_all
from evenhand.auditing.imputed import bound_gaps
from evenhand.data.sample import Sample

Row = dict[str, Any]
ROWS = 1000
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


def explain_once(seed: int) -> dict[str, Any]:
    """What is right in one repeat, by kind of scores; and of the boosted model, by feature."""
    rng = np.random.default_rng(seed)
    fitted = list(models(*draw(ROWS, rng)[:2]))
    X, y, a = draw(ROWS, rng)  # rows that no model has seen
    fitted.append(("scores alone", fitted[0][1].predict(X), fitted[0][1]))
    out = {}
    for name, model, plain in fitted:
        # Surrogates take most of the time: a quarter of the repeats.
        if name == "scores alone" and seed % 4:
            continue
        result = eh.drivers(
            model, X, sensitive_features=a, criteria=["independence"], estimator="logistic",
            reference="0",
        )  # fmt: skip
        inside = [
            d.gaps["1"].interval[0] <= TRUTH[d.feature] <= d.gaps["1"].interval[1]
            for d in result.drivers
            if TRUTH[d.feature]
        ]
        gap = result.gaps["1"]
        importance = permutation_importance(plain, X, y, n_repeats=2, random_state=0)
        order = np.argsort(-importance.importances_mean)[:3]
        out[name] = np.array([
            [d.feature for d in result.drivers[:3]] == WANTED,
            np.mean(inside),
            gap.interval[0] <= gap.value + result.remainder <= gap.interval[1],
            [f"x{j}" for j in order] == WANTED,
        ], dtype=float)  # fmt: skip
        if name == "boosted":
            parts = [(result[f].gaps["1"].value, result[f].stands_in.value) for f in TRUTH]
            out["features"] = np.column_stack([parts, importance.importances_mean])
    return out


RIGHT = ("ranked", "covered", "added", "permutation")


def drivers(setting: Setting) -> Iterator[Row]:
    """Shares of repeats in which each is right."""
    result = explain_all(setting)
    for name in ("linear", "boosted", "scores alone"):
        seen = [one[name] for one in result if name in one]
        share = dict(zip(RIGHT, np.mean(seen, axis=0).tolist(), strict=True))
        yield {"scores": name, "repeats": len(seen), "rows": ROWS, **share}


def driver_features(setting: Setting) -> Iterator[Row]:
    means = np.mean([one["features"] for one in explain_all(setting)], axis=0)
    for (name, truth), mean in zip(TRUTH.items(), means.tolist(), strict=True):
        part, stands_in, importance = mean
        yield {"feature": name, "truth": truth, "part": part, "stands_in": stands_in,
               "importance": importance}  # fmt: skip


def explain_all(setting: Setting) -> list[Row]:
    units = [(seed,) for seed in range(setting.choose(200, 2))]
    return run_all(setting, explain_once, units, "drivers")


# Imputed groups -----------------------------------------------------------------------------------

IMPUTED_ROWS = 2000
LAWS = [
    {"direct": direct, "K": K, "sharpness": sharpness}
    for K in (2, 4)
    for sharpness in (0.7, 2.0)
    for direct in (0.0, 0.5, -0.5)
]


def draw_imputed(n: int, rng: np.random.Generator, direct: float, K: int, sharpness: float):
    """Probabilities are those of a surname and of a place, taken together as Bayes says."""
    surname, place = rng.normal(size=(2, n, K))
    z = sharpness * (surname + place) / np.sqrt(2.0) + np.eye(K)[0]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    a = (rng.random(n)[:, None] > np.cumsum(p, axis=1)).sum(axis=1)
    s = 0.5 * place[:, 1] + direct * (a == 1) + rng.normal(size=n)
    return s, p, a


def impute(number: int, repeats: int) -> dict[str, Any]:
    """(repeats, 5): both bounds, both ends of the interval, the value."""
    law = LAWS[number]
    s, _, a = draw_imputed(10**6, np.random.default_rng(10**6), **law)
    gap = s[a == 1].mean() - s[a == 0].mean()
    out = []
    for seed in range(repeats):
        s, p, _ = draw_imputed(IMPUTED_ROWS, np.random.default_rng(seed), **law)
        proxy = eh.Proxy(p, [f"g{k}" for k in range(law["K"])])
        result = bound_gaps(Sample.read(None, s, sensitive_features=proxy), 0.95)
        one = result["g1"]
        out.append((*one.bounds, *one.interval, one.value))
    return {"estimates": np.array(out), "gap": gap, "certainty": result.certainty}


def imputed(setting: Setting) -> Iterator[Row]:
    repeats = setting.choose(42, 2)
    units = [(number, repeats) for number in range(setting.choose(len(LAWS), 2))]
    results = run_all(setting, impute, units, "imputed groups")
    for (number, _), result in zip(units, results, strict=True):
        least_gap, most_gap, low, high, value = result["estimates"].T
        gap, error = float(result["gap"]), float(value.std(ddof=1))
        yield {
            **LAWS[number], "rows": IMPUTED_ROWS, "repeats": repeats, "gap": gap,
            "bounds_hold": float(np.mean((least_gap <= gap) & (gap <= most_gap))),
            "bias": float(value.mean() - gap), "bias_in_errors": float(value.mean() - gap) / error,
            "coverage": float(np.mean((low <= gap) & (gap <= high))),
            "width": float(most_gap[-1] - least_gap[-1]), "certainty": float(result["certainty"]),
        }  # fmt: skip
