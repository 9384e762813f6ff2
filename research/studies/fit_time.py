"""Fit time against the number of LSAC rows, bars over strengths, for all methods.

    python research/run.py fit_time [--quick] [--fresh] [--jobs N]

One fit at a time. Each method is fitted once before the clock starts (compiling counts for
nobody), then at every strength, up to five times within a second. The fastest counts, since other
work on the machine can only add. The bar runs from the fastest to the slowest strength. A method
stops at the size where a fit took more than its allowance. Writes results/fit_time.csv, .json and
.png.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

import rivals
from common import (
    ALPHA,
    BLACK,
    BLUE,
    GRAY,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SEED,
    SKY,
    load,
    new_figure,
    read_arguments,
    run_all,
    save_figure,
    write_csv,
)
from loaders import load_law_school
from studies.methods import fair, lspc

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
def rows(n: int, quick: bool) -> tuple[Any, Any, Any]:
    """X, y and race of n random law students."""
    if quick:
        data = load("lsac", quick)
        return data.X[:n], data.y[:n], data.a[:n]
    found = load_law_school()
    take = np.random.default_rng(SEED).permutation(len(found.y))[:n]
    return found.X[take], found.y[take], found.sensitive[take]


def time_fits(name: str, n: int, strengths: tuple[float, ...], quick: bool) -> dict[str, Any]:
    """Seconds and iterations at each strength, after one fit to compile what is compiled."""
    build = METHODS[name][0]
    X, y, a = rows(n, quick)
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


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    sizes, strengths = ((120, 240), (1.0,)) if setting.quick else (SIZES, STRENGTHS)
    alone = replace(setting, jobs=1)
    lines: list[dict[str, Any]] = []
    for n in sizes:
        slow = {r["method"] for r in lines if r["seconds"] > ALLOWANCE}
        units = [(name, n, strengths, setting.quick) for name in METHODS if name not in slow]
        results = run_all(alone, time_fits, units, f"fit times, {n} rows")
        for (name, *_), found in zip(units, results, strict=True):
            lines += [
                {"method": name, "n": n, "strength": w, "seconds": float(t), "iterations": int(i)}
                for w, t, i in zip(strengths, found["seconds"], found["iterations"], strict=False)
            ]
    total = sum(r["seconds"] for r in lines)
    write_csv(
        setting,
        "fit_time",
        lines,
        total,
        strengths=strengths,
        penalty="published",
        scores="bounded",
    )
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


if __name__ == "__main__":
    main()
