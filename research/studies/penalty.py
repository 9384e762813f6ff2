"""The classifier inside the fairness term: what its penalty decides, and how many minima there are.

`paths` and `bounds`: LSPC as published and at penalties κ on standardized variables, and the
logistic term on raw and on bounded scores; on Communities LSPC also with continuation along the
path, where each weight starts from the solution at the one before instead of from ridge. Each is
trained for independence and for separation and measured by auto, held out. `bounds` has R² under
each bound, interpolated along the path, `paths` the points.

`minima`: fits from many starts, by penalty and classifier, on all rows of Communities and Crime.
Starts are the ridge solution, the ridge solution shrunk, and random ones of the size of the ridge
solution in the coordinates of the search.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from common import (
    ALPHA,
    BLACK,
    GRAY,
    ORANGE,
    PINK,
    RED,
    SEED,
    Setting,
    load,
    measure,
    new_figure,
    r_squared,
    run_all,
    save_figure,
)
from evenhand import FairRidge
from evenhand.training.solver import solve
from studies.frontiers import THRESHOLDS, crossing

Row = dict[str, Any]
CRITERIA = ("independence", "separation")
# Finer than the other sweeps where the bounds lie, as nothing is refined here.
WEIGHTS = (0.0, *(float(f"{v:.4g}") for v in np.geomspace(0.2, 100, 13)))
# Name → classifier, κ, score map, color.
SETTINGS: dict[str, tuple[str, Any, str, str]] = {
    "LSPC, published": ("lspc", "published", "auto", RED),
    "LSPC, penalty 0.001": ("lspc", 1e-3, "auto", GRAY),
    "LSPC, penalty 100": ("lspc", 100, "auto", GRAY),
    "LSPC, penalty 300": ("lspc", 300, "auto", GRAY),
    "LSPC, penalty 1000": ("lspc", 1000, "auto", GRAY),
    "LSPC, auto": ("lspc", "auto", "auto", ORANGE),
    "logistic, raw scores": ("logistic", "auto", "raw", PINK),
    "logistic, bounded scores": ("logistic", "auto", "tanh", BLACK),
}


def penalty_path(
    dataset: str, quick: bool, setting: str, criterion: str, continued: bool
) -> dict[str, Any]:
    """R² and the criterion by auto, held out, at all weights of the sweep."""
    classifier, kappa, score_map, _ = SETTINGS[setting]
    data = load(dataset, quick)
    weights = WEIGHTS[:4] if quick else WEIGHTS
    s = np.empty((len(weights), len(data.y)))
    began = time.process_time()
    for inside, outside, train, test in data.folds():
        y, a = data.y[train], data.a[train]
        model = FairRidge(
            criterion, weights[-1], ALPHA, classifier=classifier, kappa=kappa, score_map=score_map
        )
        prepared = model._start(inside, y, a, None)
        for i, weight in enumerate(weights):
            if not continued:
                prepared = model._start(inside, y, a, None)
            model.fairness_weight = weight
            s[i, test] = model._finish(prepared).predict(outside)
    value = [measure(row, data.y, data.a, "auto")[criterion] for row in s]
    return {
        "weight": np.array(weights),
        "r2": np.array([r_squared(row, data.y) for row in s]),
        "value": np.array(value),
        "spread": s[0].std(),
        "seconds": time.process_time() - began,
    }


def follow_paths(setting: Setting) -> tuple[list[tuple[Any, ...]], list[Row]]:
    """What was run, and its results."""
    datasets = setting.choose(("communities", "lsac"), ("communities",))
    units = [
        (dataset, setting.quick, name, criterion, continued)
        for dataset in datasets
        for name in list(SETTINGS)[setting.choose(0, 5) :]
        for criterion in CRITERIA
        for continued in (False, True)
        if not continued or (dataset == "communities" and name.startswith("LSPC"))
    ]
    return units, run_all(setting, penalty_path, units, "paths at several penalties")


def describe(unit: tuple[Any, ...]) -> Row:
    dataset, _, name, criterion, continued = unit
    return {"dataset": dataset, "criterion": criterion, "setting": name,
            "continued": int(continued)}  # fmt: skip


def list_points(unit: tuple[Any, ...], result: Row) -> list[Row]:
    return [
        {**describe(unit), "strength": float(w), "r2": float(r2), "value": float(value)}
        for w, r2, value in zip(result["weight"], result["r2"], result["value"], strict=True)
    ]


def bounds(setting: Setting) -> Iterator[Row]:
    """R² under each bound."""
    units, results = follow_paths(setting)
    for unit, result in zip(units, results, strict=True):
        for threshold in THRESHOLDS:
            r2 = crossing(list_points(unit, result), "value", threshold)
            yield {**describe(unit), "threshold": threshold, "r2": "" if r2 is None else r2}
    spread = {unit[0]: float(result["spread"]) for unit, result in zip(units, results, strict=True)}
    seconds = sum(float(result["seconds"]) for result in results)
    setting.facts.update({"compute_seconds": round(seconds, 1), "estimator": "auto"})
    setting.facts["score_spread"] = spread


def paths(setting: Setting) -> Iterator[Row]:
    """The points of all paths, and their picture."""
    rows = [row for pair in zip(*follow_paths(setting), strict=True) for row in list_points(*pair)]
    yield from rows
    setting.facts["estimator"] = "auto"
    draw_paths(setting, rows)


def draw_paths(setting: Setting, rows: list[Row]) -> None:
    """R² against the criterion it is trained for, by penalty."""
    titles = {"communities": "Communities and Crime", "lsac": "LSAC"}
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    figure, axes = new_figure(len(datasets), 2, 11.0, 3.6 * len(datasets) + 0.3)
    for line, dataset in zip(axes, datasets, strict=True):
        for axis, criterion in zip(line, CRITERIA, strict=True):
            # Gray lines lie behind the others and share one name; of paths that are continued the
            # published one is shown.
            shown = sorted(SETTINGS, key=lambda name: SETTINGS[name][-1] != GRAY)
            for name, continued in [*((n, 0) for n in shown), ("LSPC, published", 1)]:
                key = {"dataset": dataset, "criterion": criterion, "setting": name}
                path = [(r["value"], r["r2"]) for r in rows
                        if r | key == r and int(r["continued"]) == continued]  # fmt: skip
                if path:
                    color = SETTINGS[name][-1]
                    label = "LSPC, fixed penalties" if color == GRAY else name
                    axis.plot(
                        *np.transpose(path), color=color, linestyle=":" if continued else "-",
                        marker="o", markersize=2 if color == GRAY else 3,
                        linewidth=0.8 if color == GRAY else 1.3,
                        label=label + (", continued" if continued else ""),
                    )  # fmt: skip
            base = max(r["value"] for r in rows if r["dataset"] == dataset
                       and r["criterion"] == criterion and r["strength"] == 0)  # fmt: skip
            top = max(r["r2"] for r in rows if r["dataset"] == dataset)
            axis.set_xlim(-0.02, 1.1 * base)
            axis.set_ylim(0.25 * top, 1.03 * top)
            axis.set_xlabel(f"{criterion} by auto, held out")
            axis.set_title(f"{titles[dataset]}, trained for {criterion}", fontsize=9)
        line[0].set_ylabel("R², held out")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(named.values(), named, loc="outside lower center", ncols=3, fontsize=8.5)
    save_figure(setting, figure, "penalty")


# Several minima -----------------------------------------------------------------------------------

START_WEIGHTS = (0.3, 1.0, 3.0, 10.0, 100.0)
SHRUNK = (1.0, 0.2, 0.05)
N_RANDOM = 9
# Name → classifier, κ, color, marker, shift in the picture.
STARTED: dict[str, tuple[str, Any, str, str, float]] = {
    "LSPC, published": ("lspc", "published", RED, "^", -0.18),
    "LSPC, penalty 0.001": ("lspc", 1e-3, GRAY, "v", -0.06),
    "LSPC, auto": ("lspc", "auto", ORANGE, "s", 0.06),
    "logistic": ("logistic", "auto", BLACK, "o", 0.18),
}


def fits_from_starts(
    quick: bool, name: str, criterion: str, weight: float, n_random: int
) -> dict[str, Any]:
    """Objective and fairness term at the end of the search from every start."""
    classifier, kappa, *_ = STARTED[name]
    data = load("communities", quick)
    X = (data.X - data.X.mean(axis=0)) / np.where(data.X.std(axis=0) > 0, data.X.std(axis=0), 1.0)
    model = FairRidge(criterion, weight, ALPHA, classifier=classifier, kappa=kappa)
    prepared = model._start(X, data.y, data.a, None)
    problem, bound = prepared.problem, prepared.bound
    assert bound is not None
    rng = np.random.default_rng(SEED)

    def shrunk(factor: float) -> Any:
        """Whitened coordinates of the plain solution with its coefficients times a factor."""
        change = (factor - 1.0) * problem.plain.theta
        return np.r_[0.0, np.linalg.lstsq(problem.plain.whitening, change, rcond=None)[0]]

    starts = [shrunk(factor) for factor in SHRUNK]
    size = float(np.linalg.norm(shrunk(0.0)))
    for _ in range(n_random):
        direction = rng.standard_normal(len(problem.origin))
        starts.append(shrunk(0.0) + size * direction / np.linalg.norm(direction))
    began = time.perf_counter()
    result = [solve(problem, bound, weight, 1000, 1e-6, start=start) for start in starts]
    base = problem.objective(problem.theta)
    fit = np.array([base + float(f.v @ f.v) for f in result])
    term = np.array([f.term / weight for f in result])
    seconds = time.perf_counter() - began
    return {"objective": fit + weight * term, "unfairness": term, "seconds": seconds}


def minima(setting: Setting) -> Iterator[Row]:
    """One row per fit."""
    n_random, weights = setting.choose((N_RANDOM, START_WEIGHTS), (1, START_WEIGHTS[1:2]))
    units = [
        (setting.quick, name, criterion, weight, n_random)
        for name in STARTED
        for criterion in CRITERIA
        for weight in weights
    ]
    results = run_all(setting, fits_from_starts, units, "fits from many starts")
    rows: list[Row] = []
    for (_, name, criterion, weight, _), result in zip(units, results, strict=True):
        ends = zip(result["objective"], result["unfairness"], strict=True)
        for i, (objective, unfairness) in enumerate(ends):
            start = f"ridge x {SHRUNK[i]:g}" if i < len(SHRUNK) else f"random {i - len(SHRUNK)}"
            rows.append({
                "classifier": name, "criterion": criterion, "fairness_weight": weight,
                "start": start, "objective": float(objective), "unfairness": float(unfairness),
            })  # fmt: skip
    yield from rows
    setting.facts["compute_seconds"] = round(sum(float(f["seconds"]) for f in results), 1)
    draw_minima(setting, rows)


def draw_minima(setting: Setting, rows: list[Row]) -> None:
    """The fairness term at the end of searches from many starts."""
    figure, axes = new_figure(1, 2, 11.0, 4.2, sharey=True)
    for axis, criterion in zip(axes[0], ("independence", "separation"), strict=True):
        for name, (*_, color, marker, shift) in STARTED.items():
            mine = [r for r in rows if r["classifier"] == name and r["criterion"] == criterion]
            axis.scatter(
                [r["fairness_weight"] * np.exp(shift) for r in mine],
                [r["unfairness"] for r in mine],
                color=color,
                marker=marker,
                s=22,
                facecolors="none",
                label=f"{name} ({len({r['start'] for r in mine})} starts)",
            )
        axis.axhline(0.0, color="0.4", linewidth=0.8)
        axis.set(xscale="log", xlabel="fairness weight", title=criterion)
    axes[0, 0].set_ylabel("fairness term at the end of the search")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center")
    save_figure(setting, figure, "local_minima")
