"""The paper's other figures: error and time of the estimators, and time of the fits.

`estimator_error`: estimated against true information over 100 synthetic scenarios, a Bernoulli
group and, given it, a bivariate normal target and score, 2,000 rows. `estimator_time`: all three
criteria of one score of two groups against the number of rows. `fit_time`: fits of all methods
against the number of LSAC rows; a method stops at the size where a fit took more than its
allowance. In both the fastest of several runs counts, since other work on the machine can only add,
one process on one thread at a time, and compiling counts for nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

import evenhand as eh
import rivals
from common import (
    ALPHA,
    BLACK,
    BLUE,
    CRITERIA,
    GRAY,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SEED,
    SKY,
    Setting,
    load,
    measure,
    new_figure,
    run_all,
    save_figure,
)
from distributions import random_scenario
from evenhand.datasets import make_bivariate_normal
from loaders import load_law_school
from studies.methods import fair, lspc

Row = dict[str, Any]
N_SCENARIOS, N_ROWS = 100, 2_000
STYLES = {
    "oracle": (GRAY, "_"),
    "LSPC linear": (ORANGE, "v"),
    "LSPC quadratic": (RED, "^"),
    "nearest neighbors": (GREEN, "s"),
    "Fourier features": (BLUE, "D"),
    "logistic quadratic": (PINK, "x"),
    "auto": (BLACK, "o"),
}


def estimator(name: str, scenario: Any = None) -> Any:
    """An estimator by the name it has in the figure; the oracle needs the scenario."""
    if name == "oracle":
        return scenario.oracle()
    made = {
        "LSPC linear": lambda: eh.LSPC(basis="linear"),
        "LSPC quadratic": eh.LSPC,
        "nearest neighbors": eh.KNN,
        "Fourier features": eh.Fourier,
        "logistic quadratic": eh.Logistic,
        "auto": lambda: "auto",
    }
    return made[name]()


def scenario_errors(index: int, n_rows: int, names: tuple[str, ...]) -> Row:
    """Truth and estimates, (estimators + 1, 3), and seconds of one scenario."""
    scenario = random_scenario("bivariate_normal", SEED + 1000 + index)
    y, s, a = scenario.sample(n_rows, SEED + 2000 + index)
    values = [[scenario.truth.value(c) for c in CRITERIA]]
    seconds = []
    for name in names:
        began = time.perf_counter()
        result = measure(s, y, a, estimator(name, scenario))
        seconds.append(time.perf_counter() - began)
        values.append([result[c] for c in CRITERIA])
    return {"values": np.array(values), "seconds": np.array(seconds)}


def draw_errors(setting: Setting, rows: list[Row]) -> None:
    figure, axes = new_figure(1, 3, 13.0, 4.6)
    for axis, criterion in zip(axes[0], CRITERIA, strict=True):
        for name, (color, marker) in STYLES.items():
            mine = [r for r in rows if r["criterion"] == criterion and r["estimator"] == name]
            if not mine:
                continue
            error = np.array([r["estimate"] - r["truth"] for r in mine])
            axis.scatter(
                [r["truth"] for r in mine],
                [r["estimate"] for r in mine],
                s=18,
                color=color,
                marker=marker,
                linewidths=1,
                facecolors=color if marker in "x_" else "none",
                label=f"{name}: error {np.sqrt(np.mean(error**2)):.3f}",
            )
        top = max(r["truth"] for r in rows if r["criterion"] == criterion)
        axis.plot([0, top], [0, top], color="0.4", linewidth=0.8)
        axis.set_xlabel(f"true {criterion}, normalized")
        axis.set_title(criterion)
        axis.legend(fontsize=8, loc="upper left", title="root mean square")
    axes[0, 0].set_ylabel("estimate")
    save_figure(setting, figure, "estimator_accuracy")


def estimator_error(setting: Setting) -> Iterator[Row]:
    """One row per scenario, estimator and criterion."""
    n_scenarios, n_rows = setting.choose((N_SCENARIOS, N_ROWS), (6, 500))
    names = tuple(n for n in STYLES if not (setting.quick and n == "Fourier features"))
    units = [(i, n_rows, names) for i in range(n_scenarios)]
    results = run_all(setting, scenario_errors, units, "scenarios")
    rows = [
        {"scenario": unit[0], "estimator": name, "criterion": criterion,
         "truth": float(result["values"][0, k]), "estimate": float(result["values"][j + 1, k])}
        for unit, result in zip(units, results, strict=True)
        for j, name in enumerate(names)
        for k, criterion in enumerate(CRITERIA)
    ]  # fmt: skip
    yield from rows
    seconds = sum(float(result["seconds"].sum()) for result in results)
    setting.facts.update({"compute_seconds": round(seconds, 1), "rows_per_scenario": n_rows})
    draw_errors(setting, rows)


# Time of the estimators ---------------------------------------------------------------------------

ESTIMATOR_SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)
# Beyond these a run takes longer than the figure is worth.
LARGEST = {"Fourier features": 20_000}
ESTIMATOR_REPEATS = 3


def time_estimator(name: str, n: int) -> dict[str, Any]:
    """Seconds of each repeat, after one small run to compile what is compiled."""
    warm = make_bivariate_normal(200, random_state=SEED)
    measure(warm.s, warm.y, warm.a, estimator(name))
    data = make_bivariate_normal(n, random_state=SEED)
    taken = []
    for _ in range(ESTIMATOR_REPEATS):
        began = time.perf_counter()
        measure(data.s, data.y, data.a, estimator(name))
        taken.append(time.perf_counter() - began)
    return {"seconds": np.array(taken)}


def estimator_time(setting: Setting) -> Iterator[Row]:
    skipped = {"oracle", "Fourier features"} if setting.quick else {"oracle"}
    names = [n for n in STYLES if n not in skipped]
    sizes = setting.choose(ESTIMATOR_SIZES, (300, 600))
    units = [(name, n) for name in names for n in sizes if n <= LARGEST.get(name, n)]
    results = run_all(setting.alone(), time_estimator, units, "estimator times")
    rows: list[Row] = [
        {"estimator": name, "n": n, "seconds": float(result["seconds"].min()),
         "slowest": float(result["seconds"].max())}
        for (name, n), result in zip(units, results, strict=True)
    ]  # fmt: skip
    yield from rows
    seconds = sum(float(result["seconds"].sum()) for result in results)
    setting.facts.update({"compute_seconds": round(seconds, 1), "repeats": ESTIMATOR_REPEATS})
    figure, axes = new_figure(1, 1, 7.5, 4.6)
    for name in names:
        mine = [r for r in rows if r["estimator"] == name]
        color, marker = STYLES[name]
        axes[0, 0].plot([r["n"] for r in mine], [r["seconds"] for r in mine], color=color,
                        marker=marker, markersize=5, label=name)  # fmt: skip
    axes[0, 0].set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds, all three criteria")
    figure.legend(loc="outside right center")
    save_figure(setting, figure, "estimator_time")


# Time of the fits ---------------------------------------------------------------------------------

SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_800)
STRENGTHS = (1.0, 3.0, 10.0, 30.0, 100.0)
ALLOWANCE = 20.0
REPEATS, ENOUGH = 5, 1.0


def _berk(penalty: str, method: str) -> Callable[[float], Any]:
    return lambda weight: rivals.BerkRegressor(
        penalty=penalty, fairness_weight=weight, alpha=ALPHA, method=method
    )


def _nested(weight: float) -> Any:
    return rivals.NestedLogisticRegressor(
        criterion="separation", fairness_weight=weight, alpha=ALPHA
    )


METHODS: dict[str, tuple[Callable[[float], Any], str, str, str]] = {
    "CVX-indiv, pairs": (_berk("individual", "pairs"), GRAY, "D", "-"),
    "CVX-group, pairs": (_berk("group", "pairs"), GREEN, "s", "-"),
    "CVX-indiv, linear time": (_berk("individual", "linear"), GRAY, "D", ":"),
    "CVX-group, linear time": (_berk("group", "linear"), GREEN, "s", ":"),
    "LR-sep-quad (nested)": (_nested, ORANGE, "P", "-"),
    "LSPC-ind-linear": (
        lspc("independence", basis="linear"), SKY, "v", ":"),
    "LSPC-ind-quad": (lspc("independence"), BLUE, "v", "-"),
    "LSPC-sep-linear": (lspc("separation", basis="linear"), PINK, "^", ":"),
    "LSPC-sep-quad": (lspc("separation"), RED, "^", "-"),
    "evenhand-ind": (fair("independence"), BLACK, "o", "--"),
    "evenhand-sep": (fair("separation"), BLACK, "o", "-"),
}  # fmt: skip


@lru_cache
def draw_students(n: int, quick: bool) -> tuple[Any, Any, Any]:
    """X, y and race of n random law students."""
    if quick:
        data = load("lsac", quick)
        return data.X[:n], data.y[:n], data.a[:n]
    result = load_law_school()
    take = np.random.default_rng(SEED).permutation(len(result.y))[:n]
    return result.X[take], result.y[take], result.sensitive[take]


def time_fits(name: str, n: int, strengths: tuple[float, ...], quick: bool) -> dict[str, Any]:
    """Seconds and iterations at each strength, after one fit to compile what is compiled."""
    build = METHODS[name][0]
    X, y, a = draw_students(n, quick)
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    build(1.0).fit(X[:300], y[:300], sensitive_features=a[:300])
    seconds, iterations = [], []
    for strength in strengths:
        taken = []
        while len(taken) < REPEATS and sum(taken) < ENOUGH:
            began = time.perf_counter()
            model = build(strength).fit(X, y, sensitive_features=a)
            taken.append(time.perf_counter() - began)
        seconds.append(min(taken))
        iterations.append(getattr(model, "n_iter_", 1))
        if seconds[-1] > ALLOWANCE:
            break
    return {"seconds": np.array(seconds), "iterations": np.array(iterations)}


def fit_time(setting: Setting) -> Iterator[Row]:
    """One row per method, size and strength; the bars of the picture run over strengths."""
    sizes, strengths = setting.choose((SIZES, STRENGTHS), ((120, 240), (1.0,)))
    lines: list[Row] = []
    for n in sizes:
        slow = {r["method"] for r in lines if r["seconds"] > ALLOWANCE}
        units = [(name, n, strengths, setting.quick) for name in METHODS if name not in slow]
        results = run_all(setting.alone(), time_fits, units, f"fit times, {n} rows")
        for (name, *_), result in zip(units, results, strict=True):
            lines += [
                {"method": name, "n": n, "strength": w, "seconds": float(t), "iterations": int(i)}
                for w, t, i in zip(strengths, result["seconds"], result["iterations"], strict=False)
            ]
    yield from lines
    setting.facts.update({"compute_seconds": round(sum(r["seconds"] for r in lines), 1)})
    setting.facts.update({"strengths": strengths, "penalty": "published", "scores": "bounded"})
    figure, axes = new_figure(1, 1, 9.0, 5.2)
    for name, (_, color, marker, dash) in METHODS.items():
        by_size = {n: [r["seconds"] for r in lines if r["method"] == name and r["n"] == n]
                   for n in sizes}  # fmt: skip
        done = [n for n in sizes if by_size[n]]
        middle = np.array([np.median(by_size[n]) for n in done])
        below = middle - [min(by_size[n]) for n in done]
        above = np.array([max(by_size[n]) for n in done]) - middle
        axes[0, 0].errorbar(done, middle, yerr=[below, above], color=color, marker=marker,
                            linestyle=dash, markersize=5, capsize=2, linewidth=1.2,
                            label=name)  # fmt: skip
    axes[0, 0].set(
        xscale="log", yscale="log", xlabel="LSAC rows", ylabel="seconds a fit (bars: strengths)"
    )
    figure.legend(loc="outside right center")
    save_figure(setting, figure, "fit_time")
