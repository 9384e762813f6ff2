"""Accuracy against unfairness, held out: the sweeps behind the frontiers of the paper's page.

A point is one method at one strength: fitted on four folds, predicted on the fifth, five times. R²
and the criteria are measured once on the predictions of all rows together (each by a model that
did not see it), which has a fifth of the estimation error of a measure per fold.

`communities` and `lsac`: the paper's own methods. `supplement_*`: a logistic classifier inside,
this package's fitters, and the methods that people would pick instead, at several settings of their
own, of which the one of the highest R² over all bounds is drawn. `sufficiency`: two data sets on
which it is violated. `thresholds`: the best R² of each method under a bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from common import (
    Setting,
    cached,
    load,
    measure,
    new_figure,
    r_squared,
    run_all,
    save_figure,
    target_entropy,
)
from studies.methods import (
    ATTRIBUTE,
    BEST,
    BLIND,
    COMPARED,
    CUBIC,
    FAMILIES,
    METHODS,
    NEEDING,
    NESTED,
    OURS,
    PAPER,
    PEERS,
    POSTPROCESSED,
    QUICK,
    RAW,
    SUFFICIENCY,
    TRANSPORT,
    TUNED,
    Method,
    available,
    run_on,
)

Row = dict[str, Any]
NAMES = {"communities": "Communities and Crime", "lsac": "LSAC, 5,000 rows"}
THRESHOLDS = (0.10, 0.05, 0.01)
TITLES = {"fourier": "logistic on Fourier features", "knn": "nearest neighbors", "auto": "auto"}
# Strengths tried inside the bracket around a threshold, each where a line through its ends says.
N_STEPS = 2
# The data sets on which they are not sought.
NOT_REFINED = ("lsac",)
# Aimed at, as a share of the threshold: the point that counts must meet it.
AIM = 0.985


FAST = ("knn", "auto")


def estimators(methods: list[Method], quick: bool) -> tuple[str, ...]:
    """Those that measure the sweeps of all of some methods; the slow one sees no other point."""
    slow = not quick and all(m.by_fourier for m in methods)
    return ("fourier", *FAST) if slow else FAST


@lru_cache(maxsize=8)
def _fit(dataset: str, quick: bool, method: str, strength: float, fold: int) -> tuple[Any, float]:
    data = load(dataset, quick)
    inside, _, train, _ = list(data.folds())[fold]
    began = time.process_time()
    model = METHODS[method].build(strength)
    model.fit(inside, data.y[train], sensitive_features=data.a[train])
    return model, time.process_time() - began


def fit_point(dataset: str, quick: bool, method: str, strength: float) -> dict[str, Any]:
    """Out-of-fold predictions of one method at one strength, and the seconds of each fit."""
    data, how = load(dataset, quick), METHODS[method]
    s, seconds = np.empty(len(data.y)), []
    for fold, (_, outside, _, test) in enumerate(data.folds()):
        fitted_at = how.strengths[0] if how.reset else strength
        model, taken = _fit(dataset, quick, method, fitted_at, fold)
        if how.reset:
            model = how.reset(model, strength)
        seconds.append(taken)
        needed = {"sensitive_features": data.a[test]} if how.league == ATTRIBUTE else {}
        s[test] = model.predict(outside, **needed)
    return {"s": s, "seconds": np.array(seconds)}


def measure_point(
    dataset: str, quick: bool, method: str, strength: float, estimator: str, cache: Path
) -> dict[str, Any]:
    """R² and the criteria of one point by one estimator."""
    data = load(dataset, quick)
    s = cached(cache, fit_point, (dataset, quick, method, strength))["s"]
    began = time.process_time()
    known = None
    if estimator == "fourier":
        known = float(cached(cache, target_entropy, (dataset, quick, estimator))["nats"])
    result = measure(s, data.y, data.a, estimator, known)
    return {**result, "r2": r_squared(s, data.y), "seconds": time.process_time() - began}


def refine(dataset: str, quick: bool, method: str, criterion: str, cache: Path) -> dict[str, Any]:
    """Strengths at which a method just meets each threshold of a criterion by auto.

    Found by false position between the two neighboring strengths of the sweep of which one meets
    it and one does not; where there are several such pairs, the one of the highest R².
    """

    def at(strength: float) -> tuple[float, float]:
        unit = (dataset, quick, method, strength, "auto", cache)
        result = cached(cache, measure_point, unit)
        return float(result[criterion]), float(result["r2"])

    strengths = METHODS[method].sweep(quick)
    values = [at(strength) for strength in strengths]
    out = []
    for threshold in THRESHOLDS:
        met = [value <= threshold for value, _ in values]
        pairs = [i for i in range(len(met) - 1) if met[i] != met[i + 1]]
        if not pairs:
            continue
        i = max(pairs, key=lambda i: values[i if met[i] else i + 1][1])
        ends = [(strengths[j], values[j][0]) for j in (i, i + 1)]
        good, bad = ends if met[i] else ends[::-1]
        for _ in range(1 if quick else N_STEPS):
            part = (good[1] - AIM * threshold) / min(good[1] - bad[1], -1e-12)
            part = float(np.clip(part, 0.05, 0.9))
            # Along the logarithms; some sweeps begin or end at zero, which has none.
            if min(good[0], bad[0]) > 0:
                middle = good[0] ** (1 - part) * bad[0] ** part
            else:
                middle = (1 - part) * good[0] + part * bad[0]
            middle = float(f"{middle:.4g}")
            result = middle, at(middle)[0]
            if result[1] <= threshold:
                good = result
            else:
                bad = result
        out.append(good[0])
    return {"strengths": np.array(out)}


def crossing(rows: list[dict[str, Any]], column: str, threshold: float) -> float | None:
    """The highest R² at the bound on the line through a method's points, in order of strength."""
    known = sorted((r for r in rows if column in r), key=lambda r: r["strength"])
    out = [r["r2"] for r in known if r[column] <= threshold]
    for first, second in pairwise(known):
        low, high = sorted((first, second), key=lambda r: r[column])
        if low[column] <= threshold < high[column]:
            part = (threshold - low[column]) / (high[column] - low[column])
            out.append(low["r2"] + part * (high["r2"] - low["r2"]))
    return max(out, default=None)


def points(
    setting: Setting,
    dataset: str,
    methods: list[Method],
    criteria: tuple[str, ...] = ("independence", "separation"),
) -> list[dict[str, Any]]:
    """All points of some methods: the sweep, and the strengths that just meet the thresholds."""
    quick, cache = setting.quick, setting.cache
    methods = run_on(dataset, methods)
    sweep = [(dataset, quick, m.name, v) for m in methods for v in m.sweep(quick, dataset)]
    run_all(setting, fit_point, sweep, f"{dataset}: fits")
    measured = [(*u, e, cache) for u in sweep for e in estimators([METHODS[u[2]]], quick)]
    run_all(setting, measure_point, measured, f"{dataset}: measures of the sweep")
    todo = [
        (dataset, quick, m.name, criterion, cache)
        for m in methods
        if m.continuous and dataset not in NOT_REFINED
        for criterion in criteria
    ]
    estimates = run_all(setting, refine, todo, f"{dataset}: strengths at the thresholds")
    units = [(unit, "sweep") for unit in sweep]
    for unit, result in zip(todo, estimates, strict=True):
        units += [((*unit[:3], float(v)), "threshold") for v in result["strengths"]]
    units = list(dict(reversed(units)).items())

    def by(method: str, kind: str) -> tuple[str, ...]:
        return estimators([METHODS[method]], quick) if kind == "sweep" else FAST

    measured = [(*u, e, cache) for u, kind in units for e in by(u[2], kind)]
    results = iter(run_all(setting, measure_point, measured, f"{dataset}: all measures"))
    rows = []
    for (_, _, method, strength), kind in units:
        fit = cached(cache, fit_point, (dataset, quick, method, strength))
        row: dict[str, Any] = {
            "dataset": dataset,
            "method": method,
            "league": METHODS[method].league,
            "strength": strength,
            "point": kind,
            "fit_seconds": float(np.median(fit["seconds"])),
        }
        how = METHODS[method]
        # Where one fit serves all strengths it counts once.
        again = how.reset is not None and strength != how.strengths[0]
        seconds = 0.0 if again else float(fit["seconds"].sum())
        for estimator in by(method, kind):
            value = next(results)
            row["r2"] = float(value["r2"])
            for criterion in ("independence", "separation", "sufficiency"):
                row[f"{criterion}_{estimator}"] = float(value[criterion])
            seconds += float(value["seconds"])
        rows.append({**row, "compute_seconds": seconds})
    order = {m.name: i for i, m in enumerate(methods)}
    return sorted(rows, key=lambda r: (order[r["method"]], r["strength"]))


def finish(setting: Setting, rows: list[Row]) -> Iterator[Row]:
    """The rows of a frontier; the time noted is that of all fits and measures in it."""
    setting.facts["compute_seconds"] = round(sum(row.pop("compute_seconds") for row in rows), 1)
    setting.facts.update({"folds": "5, shuffled", "measured": "all rows, out of fold"})
    yield from rows


def draw(
    setting: Setting,
    name: str,
    rows: list[dict[str, Any]],
    methods: list[Method],
    title: str,
    criteria: tuple[str, ...] = ("independence", "separation"),
    floor: float = 0.0,
    reach: float = 1.15,
) -> None:
    """R² against each criterion (rows) by each estimator (columns).

    What lies below `floor`, or right of `reach` times the value without fairness, is left out.
    """
    methods = [m for m in methods if any(r["method"] == m.name for r in rows)]
    shown = estimators(methods, setting.quick)
    figure, axes = new_figure(
        len(criteria), len(shown), 3.5 * len(shown) + 2.4, 3.2 * len(criteria) + 0.3, sharey=True
    )
    for row, criterion in zip(axes, criteria, strict=True):
        for axis, estimator in zip(row, shown, strict=True):
            key = f"{criterion}_{estimator}"
            for method in methods:
                mine = [r for r in rows if r["method"] == method.name and key in r]
                order = sorted(mine, key=lambda r: r["strength"])
                axis.plot(
                    [r[key] for r in order],
                    [r["r2"] for r in order],
                    color=method.color,
                    linestyle=method.dash or "none",
                    linewidth=1.3,
                    zorder=3 if method.ours else 2,
                )
                sweep = [r for r in order if r["point"] == "sweep"]
                axis.plot(
                    [r[key] for r in sweep],
                    [r["r2"] for r in sweep],
                    color=method.color,
                    marker=method.marker,
                    linestyle=method.dash or "none",
                    markersize=5 if method.dash else 8,
                    markerfacecolor=method.color if method.dash == "-" else "white",
                    linewidth=0,
                    zorder=3 if method.ours else 2,
                )
                axis.plot(
                    [], [], color=method.color, marker=method.marker, label=method.name,
                    linestyle=method.dash or "none", linewidth=1.3, markersize=5,
                    markerfacecolor=method.color if method.dash == "-" else "white",
                )  # fmt: skip
            axis.axvline(0.0, color="0.6", linewidth=0.8)
            # Some fits end up less fair than no fairness at all; they would shrink all others.
            base = [r[key] for r in rows if r["strength"] == 0 and key in r]
            if base:
                axis.set_xlim(right=reach * max(base) + 0.01)
            axis.set_xlabel(f"{criterion}, normalized (0 = fair)")
            axis.set_title(f"{criterion} by {TITLES[estimator]}", fontsize=9)
            axis.set_ylim(bottom=floor)
        row[0].set_ylabel("R², held out")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8.5)
    figure.suptitle(title, fontsize=10.5)
    save_figure(setting, figure, name)


# The paper's methods ------------------------------------------------------------------------------


def draw_paper(setting: Setting, dataset: str) -> Iterator[Row]:
    rows = points(setting, dataset, QUICK[:1] if setting.quick else PAPER)
    yield from finish(setting, rows)
    title = f"{NAMES[dataset]}, 5-fold held out: the paper's methods"
    draw(setting, f"frontier_{dataset}", rows, PAPER, title)


def communities(setting: Setting) -> Iterator[Row]:
    return draw_paper(setting, "communities")


def lsac(setting: Setting) -> Iterator[Row]:
    return draw_paper(setting, "lsac")


# A logistic classifier inside, and other methods --------------------------------------------------

PAPER_QUAD = ("LSPC-ind-quad", "LSPC-sep-quad")
# The lowest R² drawn; methods that know the attribute have less to lose.
FLOOR = {"communities": 0.2, "lsac": 0.1}
NEEDING_FLOOR = {"communities": 0.35, "lsac": 0.12}


def at_best(rows: list[dict[str, Any]], method: Method) -> Method:
    """The setting of a method whose R² under all bounds by auto is highest on average."""
    names = FAMILIES.get(method.name + BEST, FAMILIES[method.name])
    return METHODS[max(names, key=lambda name: total(rows, name))]


def total(rows: list[dict[str, Any]], name: str) -> float:
    """The sum of R² under all bounds by auto; a bound that is not met counts as zero."""
    mine = [r for r in rows if r["method"] == name]
    return sum(
        max(crossing(mine, f"{criterion}_auto", threshold) or 0.0, 0.0)
        for criterion in ("separation", "independence")
        for threshold in THRESHOLDS
    )


def draw_supplement(setting: Setting, dataset: str) -> Iterator[Row]:
    """All points, and three pictures: inside, other methods, and those that need the attribute."""
    added = available(
        [*OURS, *CUBIC, *NEEDING, *TRANSPORT, *POSTPROCESSED, *PEERS, *RAW, *TUNED, *NESTED]
    )
    if setting.quick:
        added = QUICK[1:]
    rows = points(setting, dataset, added)
    yield from finish(setting, rows)
    draw_comparisons(
        setting, dataset, rows + points(setting, dataset, QUICK[:1] if setting.quick else PAPER)
    )


def draw_comparisons(setting: Setting, dataset: str, rows: list[dict[str, Any]]) -> None:
    """Pictures of at most six methods, as more cannot be told apart.

    Two of ours stand beside the four others that are best over all bounds.
    """
    inside = [at_best(rows, METHODS[n]) for n in PAPER_QUAD]
    shared = [*CUBIC, *TRANSPORT, *POSTPROCESSED]
    blind = [at_best(rows, m) for m in (*OURS[2:], *shared, *PEERS) if m.league == BLIND]
    needing = [at_best(rows, m) for m in (*NEEDING, *shared) if m.league == ATTRIBUTE]
    floor, high = FLOOR[dataset], NEEDING_FLOOR[dataset]
    for name, methods, title, low in (
        ("supplement", [*inside, *NESTED, *OURS[:2]], "logistic inside", floor),
        ("others", few(rows, blind), "other methods, attribute not needed", floor),
        ("attribute", few(rows, needing), "methods that need the attribute to predict", high),
    ):
        title = f"{NAMES[dataset]}, 5-fold held out: {title}"
        draw(setting, f"{name}_{dataset}", rows, methods, title, floor=low)


def few(rows: list[dict[str, Any]], methods: list[Method]) -> list[Method]:
    """The first two of ours, and the four best of other authors."""
    own = [m for m in methods if m.name.startswith("evenhand")][:2]
    others = [m for m in methods if not m.name.startswith(("evenhand", "post-processed"))]
    best = sorted(others, key=lambda m: -total(rows, m.name))[:4]
    return [m for m in methods if m in own or m in best]


def supplement_communities(setting: Setting) -> Iterator[Row]:
    return draw_supplement(setting, "communities")


def supplement_lsac(setting: Setting) -> Iterator[Row]:
    return draw_supplement(setting, "lsac")


# Sufficiency --------------------------------------------------------------------------------------

# "lsac-blind" is as it was found: race is left out of the features, as blind scoring would have it;
# grades then differ by race at a given score. "communities-noisy" is constructed: no racial shares,
# and noise of one standard deviation on each feature of the "black" communities, as when one group
# is measured less well.
VIOLATED = {
    "lsac-blind": ("LSAC without race among the features (found)", 0.05),
    "communities-noisy": (
        'Communities, noisy features of "black" communities (constructed)', 0.3),
}  # fmt: skip


def sufficiency(setting: Setting) -> Iterator[Row]:
    """Frontiers that the paper leaves out, on data where sufficiency is violated."""
    methods = SUFFICIENCY[2:3] if setting.quick else [*SUFFICIENCY, PAPER[4]]
    rows: list[Row] = []
    for dataset, (title, floor) in VIOLATED.items():
        result = points(setting, dataset, methods, criteria=())
        rows += result
        draw(setting, f"sufficiency_{dataset}", result, methods, f"{title}, 5-fold held out",
             ("sufficiency",), floor, reach=3.0)  # fmt: skip
    yield from finish(setting, rows)


# Bounds -------------------------------------------------------------------------------------------


def scores(setting: Setting, row: Row) -> Any:
    """Out-of-fold predictions of a point."""
    unit = (row["dataset"], setting.quick, row["method"], row["strength"])
    return cached(setting.cache, fit_point, unit)["s"]


def best(rows: list[Row], column: str, threshold: float) -> dict[str, Row | None]:
    """Of each method the point of highest R² that meets the bound; None where there is none."""
    result: dict[str, Row | None] = {}
    for row in rows:
        now = result.setdefault(row["method"], None)
        if row.get(column, np.inf) <= threshold and (now is None or row["r2"] > now["r2"]):
            result[row["method"]] = row
    return result


def table(setting: Setting, dataset: str, rows: list[Row]) -> list[Row]:
    """One line per criterion, bound and method, by auto."""
    data = load(dataset, setting.quick)
    out: list[Row] = []
    for criterion in ("separation", "independence"):
        for threshold in THRESHOLDS:
            column = f"{criterion}_auto"
            result = best(rows, column, threshold)
            at: dict[str, float] = {}
            top: dict[str, str] = {}
            for method, row in result.items():
                if row is not None:
                    mine = [r for r in rows if r["method"] == method]
                    at[method] = max(row["r2"], crossing(mine, column, threshold) or -np.inf)
                    if at[method] > at.get(top.get(row["league"], ""), -np.inf):
                        top[row["league"]] = method
            for method, row in result.items():
                line = _line(dataset, "auto", criterion, threshold, method)
                if row is not None:
                    leader = top[row["league"]]
                    ahead = result[leader]
                    assert ahead is not None
                    loss = (data.y - scores(setting, row)) ** 2
                    loss = loss - (data.y - scores(setting, ahead)) ** 2
                    error = loss.std() / np.sqrt(len(loss)) / data.y.var()
                    line |= {"r2": at[method], "value": row[column]}
                    line |= {"strength": row["strength"], "behind": at[leader] - at[method]}
                    line |= {"behind_se": float(error)}
                out.append(line)
    return out


def _line(dataset: str, estimator: str, criterion: str, threshold: float, method: str) -> Row:
    return {
        "dataset": dataset,
        "estimator": estimator,
        "criterion": criterion,
        "threshold": threshold,
        "method": method,
        "league": METHODS[method].league,
        "ours": int(METHODS[method].ours),
    }


def interpolated(dataset: str, rows: list[Row], estimator: str) -> list[Row]:
    """The same by another estimator, between neighboring strengths."""
    out: list[Row] = []
    for criterion in ("separation", "independence"):
        for threshold in THRESHOLDS:
            result = {}
            for name in dict.fromkeys(row["method"] for row in rows):
                mine = [row for row in rows if row["method"] == name]
                if estimator != "fourier" or METHODS[name].by_fourier:
                    result[name] = crossing(mine, f"{criterion}_{estimator}", threshold)
            for name, r2 in result.items():
                line = _line(dataset, estimator, criterion, threshold, name)
                if r2 is not None:
                    league = METHODS[name].league
                    rivals = [v for n, v in result.items() if METHODS[n].league == league]
                    top = max(v for v in rivals if v is not None)
                    line |= {"r2": r2, "behind": top - r2}
                out.append(line)
    return out


def thresholds(setting: Setting) -> Iterator[Row]:
    """Best held-out R² of each method at separation and independence of at most 0.10, 0.05, 0.01.

    A method's strength is free: the highest R² counts that its points under the bound have, or the
    line between two neighboring strengths on either side of it. By "auto" strengths were sought
    close to the bounds. `value` and `strength` are those of the best point under the bound,
    `behind` is how far a method is below the best of its league, `behind_se` the standard error of
    that difference over the rows, between such points. By "fourier" there are only the methods it
    was run for.
    """
    methods = QUICK if setting.quick else available(COMPARED)
    seconds = 0.0
    for dataset in setting.choose(("communities", "lsac"), ("communities",)):
        rows = points(setting, dataset, methods)
        seconds += sum(row["compute_seconds"] for row in rows)
        yield from table(setting, dataset, rows)
        if not setting.quick:
            yield from interpolated(dataset, rows, "fourier")
            yield from interpolated(dataset, rows, "knn")
    setting.facts["compute_seconds"] = round(seconds, 1)
