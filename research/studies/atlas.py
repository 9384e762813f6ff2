"""The atlas: all methods in both leagues on a dozen data sets, chosen inside, reported outside.

*Outer folds* (five, drawn again in each repeat) hold out the rows that are reported on. A method
of several variants chooses one for each outer fold and each level of unfairness on *inner folds*
of the training rows alone, and `FairRegressor` does so by itself. The scores of the five folds
together give R² and unfairness (by `auto`) at each strength, or at each level asked for, and R² at
a bound is read off the straight lines between these places: all methods are compared at the same
measured unfairness, and none is allowed to choose after having seen the rows it is reported on.

Bounds are a half, a fifth and a tenth of what plain ridge has. Standard errors are over rows, from
each row's influence on R² less that on unfairness times the slope of the curve, and over repeats.

`table` has a row for each data set, criterion, bound and method, `places` the places of all curves,
`choices` what was chosen inside.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
import studies.atlas_methods as am
from common import SEED, Setting, cached, r_squared, run_all
from evenhand.data.criteria import get_criterion
from evenhand.data.groups import resolve_groups
from evenhand.measures.entropies import estimate_entropies, get_estimator
from evenhand.measures.losses import R2
from studies.atlas_methods import (
    DATASETS,
    METHODS,
    MOST_ROWS,
    RECOMMENDED,
    REFERENCE_ROWS,
    VARIANTS,
    load_atlas,
)

Row = dict[str, Any]
N_OUTER, N_INNER = 5, 3
# Chance in the folds weighs most where rows are few, and there a repeat costs least.
SMALL_ROWS, REPEATS_SMALL, REPEATS = 1_500, 2, 1
CRITERIA = ("independence", "separation")
# Of the unfairness of plain ridge: the bounds, and the levels that inner folds are asked for.
BOUNDS = (0.5, 0.2, 0.1)
# Where plain ridge has less there is nothing to remove, and a tenth of it is below what shows.
LEAST = 0.01
# Averages tried around each bound, and how near to it is near enough.
N_HALVINGS, CLOSE = 3, 0.03
LEVELS = (0.7, 0.45, 0.28, 0.17, 0.1, 0.06, 0.03)


def split(n_rows: int, a: Any, n_folds: int, seed: Any) -> list[tuple[Any, Any]]:
    """Shuffled folds, stratified by group."""
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    return list(folds.split(np.zeros(n_rows), a))


@lru_cache(maxsize=4)
def outer(
    dataset: str, quick: bool, repeat: int, fold: int, league: str = am.BLIND
) -> tuple[Any, ...]:
    """Standardized training and test columns, targets and groups of one outer fold."""
    data = load_atlas(dataset, quick)
    train, test = split(len(data.y), data.a, N_OUTER, SEED + repeat)[fold]
    X, X_test = standardized(data.X[league], train, test)
    return X, data.y[train], data.a[train], X_test, data.a[test], train, test


def standardized(X: Any, train: Any, test: Any) -> tuple[Any, Any]:
    """Training and test rows, by mean and spread of the former."""
    mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
    spread = np.where(spread > 1e-12, spread, 1.0)
    return (X[train] - mean) / spread, (X[test] - mean) / spread


def league_of_variant(variant: str) -> str:
    return next(m.league for m in METHODS.values() if VARIANTS[variant] in m.variants)


def sweep(variant: str, X: Any, y: Any, a: Any, X_new: Any, a_new: Any) -> Any:
    """(J, m) scores of new rows at all strengths."""
    how = VARIANTS[variant]
    model = how.build(how.strengths[0])
    if hasattr(model, "path_fitter"):
        fitter = model.path_fitter(X, y, sensitive_features=a)
    elif hasattr(model, "interpolation"):
        model.fit(X, y, sensitive_features=a)
        # How far to go toward the fair score can be changed after the fit.
        fitter = lambda t: model.set_params(interpolation=t)  # noqa: E731
    else:

        def fitter(strength: float) -> Any:
            return how.build(strength).fit(X, y, sensitive_features=a)

    extra = {"sensitive_features": a_new} if league_of_variant(variant) == am.KNOWN else {}
    return np.array([fitter(v).predict(X_new, **extra) for v in how.strengths])


def outer_scores(dataset: str, quick: bool, repeat: int, fold: int, variant: str) -> dict[str, Any]:
    """Scores of an outer fold's test rows by one variant at all its strengths."""
    league = league_of_variant(variant)
    X, y, a, X_test, a_test, *_ = outer(dataset, quick, repeat, fold, league)
    began = time.process_time()
    s = sweep(variant, X, y, a, X_test, a_test)
    return {"s": s.astype(np.float32), "seconds": time.process_time() - began}


def inner_curve(
    dataset: str, quick: bool, repeat: int, fold: int, variant: str, criterion: str
) -> dict[str, Any]:
    """R² and unfairness of one variant at all strengths, on inner folds of the training rows."""
    X, y, a, *_ = outer(dataset, quick, repeat, fold, league_of_variant(variant))
    began = time.process_time()
    s = np.empty((len(VARIANTS[variant].strengths), len(y)))
    for train, test in split(len(y), a, N_INNER, SEED):
        s[:, test] = sweep(variant, X[train], y[train], a[train], X[test], a[test])
    u = [getattr(eh, criterion)(y, row, sensitive_features=a) for row in s]
    r2 = [r_squared(row, y) for row in s]
    return {"u": np.array(u), "r2": np.array(r2), "seconds": time.process_time() - began}


def recommended_scores(
    dataset: str, quick: bool, repeat: int, fold: int, criterion: str, league: str, base: float
) -> dict[str, Any]:
    """Scores of an outer fold's test rows by FairRegressor at each level, and what it chose."""
    X, y, a, X_test, a_test, *_ = outer(dataset, quick, repeat, fold, league)
    began = time.process_time()
    model = eh.FairRegressor(
        criterion, max_unfairness=1.0, attribute=league, on_unreachable="best", random_state=SEED
    )
    search = model._prepare(X, y, a)
    scores, choices = [], []
    groups = a_test if league == am.KNOWN else None
    for level in LEVELS:
        model.set_params(max_unfairness=level * base)._choose(*search)
        scores.append(model.predict(X_test, sensitive_features=groups))
        choices.append(model.choice_)
    seconds = time.process_time() - began
    return {"s": np.array(scores, dtype=np.float32), "choices": choices, "seconds": seconds}


def base_unfairness(dataset: str, quick: bool, criterion: str, league: str) -> dict[str, Any]:
    """R² and unfairness of plain ridge, which the bounds refer to."""
    data = load_atlas(dataset, quick, REFERENCE_ROWS)
    s = np.empty(len(data.y))
    for train, test in split(len(data.y), data.a, N_OUTER, SEED):
        X, X_test = standardized(data.X[league], train, test)
        model = eh.FairRidge(fairness_weight=0, alpha=am.ALPHA).fit(X, data.y[train])
        s[test] = model.predict(X_test)
    value = getattr(eh, criterion)(data.y, s, sensitive_features=data.a)
    return {"value": value, "r2": r_squared(s, data.y)}


def place(dataset: str, quick: bool, criterion: str, s: Any) -> dict[str, Any]:
    """R² and unfairness of held-out scores of all rows, and each row's influence on both."""
    data = load_atlas(dataset, quick)
    groups = resolve_groups(data.a, n_rows=len(s))
    result = estimate_entropies(
        [get_criterion(criterion)], {"s": s, "y": data.y}, groups, get_estimator("auto")
    )
    r2, influence = R2.influence(data.y, s, None)
    psi = result.influence(get_criterion(criterion))
    return {
        "u": result.normalized(get_criterion(criterion)),
        "r2": r2,
        "psi_u": (psi - psi.mean()).astype(np.float32),
        "psi_r2": (influence - influence.mean()).astype(np.float32),
    }


def choose(curves: Sequence[Any], level: float) -> tuple[int, int, float]:
    """(variant, strength j, t) of highest inner R² at a level; between strengths j and j + 1.

    Where no variant meets the level, the fairest place of all.
    """
    best, result = -np.inf, None
    for v, curve in enumerate(curves):
        u, r2 = curve["u"], curve["r2"]
        for j in range(len(u)):
            if u[j] <= level and r2[j] > best:
                best, result = r2[j], (v, j, 0.0)
            if j + 1 < len(u) and (u[j] <= level) != (u[j + 1] <= level):
                t = (u[j] - level) / (u[j] - u[j + 1])
                value = (1 - t) * r2[j] + t * r2[j + 1]
                if value > best:
                    best, result = value, (v, j, float(t))
    if result is None:
        v, j = min(
            ((v, j) for v, c in enumerate(curves) for j in range(len(c["u"]))),
            key=lambda at: curves[at[0]]["u"][at[1]],
        )
        result = (v, j, 0.0)
    return result


def outer_curve(
    dataset: str, quick: bool, repeat: int, method: str, criterion: str, base: float, cache: Path
) -> dict[str, Any]:
    """Places of a method on outer folds, from unfair to fair, and its influences at each.

    One variant: its strengths. Several: levels asked for, variant and strength chosen inside.
    Around each bound scores of neighboring places are averaged and measured: R² is not straight in
    between, and a coarse sweep would be at a disadvantage.
    """
    data = load_atlas(dataset, quick)
    how = METHODS.get(method)
    variants = how.tried(criterion) if how else ()
    n_places = len(variants[0].strengths) if len(variants) == 1 else len(LEVELS)
    s = np.empty((n_places, len(data.y)))
    chosen: list[str] = []
    for fold in range(N_OUTER):
        test = outer(dataset, quick, repeat, fold)[-1]
        where = (dataset, quick, repeat, fold)
        if how is None:
            league = next(name for name, label in RECOMMENDED.items() if label == method)
            result = cached(cache, recommended_scores, (*where, criterion, league, base))
            s[:, test] = result["s"]
            chosen += result["choices"].tolist()
        elif len(variants) == 1:
            s[:, test] = cached(cache, outer_scores, (*where, variants[0].name))["s"]
        else:
            curves = [cached(cache, inner_curve, (*where, v.name, criterion)) for v in variants]
            for i, level in enumerate(LEVELS):
                v, j, t = choose(curves, level * base)
                grid = cached(cache, outer_scores, (*where, variants[v].name))["s"]
                s[i, test] = (1 - t) * grid[j] + (t * grid[j + 1] if t > 0 else 0.0)
                chosen.append(variants[v].name)
    rows = list(s)
    places = [place(dataset, quick, criterion, row) for row in rows]
    for share in BOUNDS:
        for _ in range(N_HALVINGS):
            j, t = crossing(places, share * base)
            close = min(abs(p["u"] - share * base) for p in places) <= CLOSE * share * base
            if j is None or close:
                break
            rows.insert(j + 1, (1 - t) * rows[j] + t * rows[j + 1])
            places.insert(j + 1, place(dataset, quick, criterion, rows[j + 1]))
    out = {key: np.array([p[key] for p in places]) for key in places[0]}
    return {**out, "chosen": np.array(chosen, dtype=np.str_)}


def crossing(places: Sequence[Any], bound: float) -> tuple[int | None, float]:
    """Where the line through the places crosses a bound at the highest R²: after which, how far."""
    best, result = -np.inf, (None, 0.0)
    for j in range(len(places) - 1):
        u, r2 = ([places[i][key] for i in (j, j + 1)] for key in ("u", "r2"))
        if (u[0] <= bound) != (u[1] <= bound):
            t = (u[0] - bound) / (u[0] - u[1])
            if (1 - t) * r2[0] + t * r2[1] > best:
                best, result = (1 - t) * r2[0] + t * r2[1], (j, float(np.clip(t, 0.1, 0.9)))
    return result


def at_bound(curve: Any, bound: float) -> tuple[float, Any] | None:
    """R² where the curve meets a bound, and each row's influence on it; None where it does not.

    ψ = ψ_R² − (dR²/du)·ψ_u: a row that makes the score look fairer moves the place along the curve.
    """
    u, r2 = curve["u"], curve["r2"]
    best: tuple[float, Any] | None = None
    for j in range(len(u)):
        if u[j] <= bound and (best is None or r2[j] > best[0]):
            best = (float(r2[j]), curve["psi_r2"][j].astype(float))
        if j + 1 < len(u) and (u[j] <= bound) != (u[j + 1] <= bound):
            t = (u[j] - bound) / (u[j] - u[j + 1])
            value = float((1 - t) * r2[j] + t * r2[j + 1])
            if best is None or value > best[0]:
                slope = (r2[j] - r2[j + 1]) / (u[j] - u[j + 1])
                # Two places of nearly one unfairness have no slope to speak of.
                slope = slope if abs(u[j] - u[j + 1]) > 0.05 * bound else 0.0
                psi = (1 - t) * curve["psi_r2"][j] + t * curve["psi_r2"][j + 1]
                psi = psi - slope * ((1 - t) * curve["psi_u"][j] + t * curve["psi_u"][j + 1])
                best = (value, psi.astype(float))
    return best


def methods_of(criterion: str) -> list[str]:
    """Names of all methods that can be asked for a criterion, the recommended ones first."""
    named = [m.name for m in METHODS.values() if m.tried(criterion)]
    return [*RECOMMENDED.values(), *named]


def league_of(name: str) -> str:
    if name in METHODS:
        return METHODS[name].league
    return next(league for league, label in RECOMMENDED.items() if label == name)


def is_ours(name: str) -> bool:
    return name not in METHODS or METHODS[name].ours


def repeats_of(dataset: str, quick: bool) -> int:
    """How often the outer folds of a data set are drawn."""
    few = len(load_atlas(dataset, quick).y) < SMALL_ROWS
    return 1 if quick else REPEATS_SMALL if few else REPEATS


def trace_curves(setting: Setting, datasets: Sequence[str]) -> dict[tuple[Any, ...], Any]:
    """All curves: (dataset, repeat, method, criterion) → places."""
    quick, cache = setting.quick, setting.cache
    bases = [(d, quick, c, league) for d in datasets for c in CRITERIA for league in RECOMMENDED]
    result = run_all(setting, base_unfairness, bases, "plain ridge")
    base = {(d, c, g): float(f["value"]) for (d, _, c, g), f in zip(bases, result, strict=True)}
    curves = {}
    for dataset in datasets:
        for repeat in range(repeats_of(dataset, quick)):
            where = [(dataset, quick, repeat, fold) for fold in range(N_OUTER)]
            what = f"{dataset}, repeat {repeat + 1}"
            units = [(*w, v) for w in where for v in VARIANTS]
            run_all(setting, outer_scores, units, f"{what}: fits")
            tuned = [
                (*w, v.name, c)
                for w in where
                for c in CRITERIA
                for m in METHODS.values()
                if len(m.tried(c)) > 1
                for v in m.tried(c)
            ]
            run_all(setting, inner_curve, tuned, f"{what}: rivals tuned")
            chosen = [
                (*w, c, league, base[dataset, c, league])
                for w in where
                for c in CRITERIA
                for league in RECOMMENDED
                if base[dataset, c, league] >= LEAST
            ]
            run_all(setting, recommended_scores, chosen, f"{what}: FairRegressor")
            keys = [
                (repeat, m, c)
                for c in CRITERIA
                for m in methods_of(c)
                if base[dataset, c, league_of(m)] >= LEAST
            ]
            units = [
                (dataset, quick, r, m, c, base[dataset, c, league_of(m)], cache) for r, m, c in keys
            ]
            for key, curve in zip(
                keys, run_all(setting, outer_curve, units, f"{what}: measures"), strict=True
            ):
                curves[dataset, *key] = curve
    return curves


def rank_methods(
    setting: Setting, datasets: Sequence[str], curves: dict[tuple[Any, ...], Any]
) -> Iterator[Row]:
    """One row for each data set, criterion, bound and method."""
    quick = setting.quick
    for dataset in datasets:
        data, repeats = load_atlas(dataset, quick), repeats_of(dataset, quick)
        for criterion in CRITERIA:
            for league in RECOMMENDED:
                unit = (dataset, quick, criterion, league)
                base = {
                    k: float(v) for k, v in cached(setting.cache, base_unfairness, unit).items()
                }
                if base["value"] < LEAST:
                    continue
                for share in BOUNDS:
                    met = {}
                    for method in methods_of(criterion):
                        if league_of(method) == league:
                            result = [
                                at_bound(
                                    curves[dataset, r, method, criterion], share * base["value"]
                                )
                                for r in range(repeats)
                            ]
                            met[method] = None if None in result else result
                    yield from _ranked(
                        dataset, criterion, share, base, league, len(data.y), data.what, met,
                        curves, repeats,
                    )  # fmt: skip


def _ranked(
    dataset: str, criterion: str, share: float, base: dict[str, Any], league: str, n: int,
    what: str, met: dict[str, Any], curves: dict[tuple[Any, ...], Any], repeats: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """Lines of one league at one bound, with ranks and differences to the recommended model."""
    r2 = {m: float(np.mean([v for v, _ in f])) for m, f in met.items() if f is not None}
    ours = RECOMMENDED[league]
    # Rank among rivals and the recommended model: variants of ours would only crowd the ranks.
    order = sorted((m for m in r2 if m == ours or not is_ours(m)), key=lambda m: -r2[m])
    lines = []
    for method, result in met.items():
        line: dict[str, Any] = {
            "dataset": dataset,
            "criterion": criterion,
            "share": share,
            "bound": share * base["value"],
            "league": league,
            "method": method,
            "ours": int(is_ours(method)),
            "rows": n,
            "what": what,
            "ridge_r2": base["r2"],
            "ridge_unfairness": base["value"],
            "repeats": repeats,
        }
        least = [curves[dataset, r, method, criterion]["u"].min() for r in range(repeats)]
        line["least_unfairness"] = float(np.mean(least))
        if result is not None:
            line["r2"] = r2[method]
            if method in order:
                line["rank"] = 1 + order.index(method)
            if met[ours] is not None:
                gaps = [v - w for (v, _), (w, _) in zip(result, met[ours], strict=True)]
                psi = np.mean(
                    [p - q for (_, p), (_, q) in zip(result, met[ours], strict=True)], axis=0
                )
                rows = float(psi.std() / np.sqrt(len(psi)))
                folds = float(np.std(gaps, ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else 0.0
                line["ahead_of_recommended"] = float(np.mean(gaps))
                line["stderr_rows"], line["stderr_folds"] = rows, folds
                line["stderr"] = float(np.hypot(rows, folds))
        elif method == ours or not is_ours(method):
            line["rank"] = len(order) + 1
        lines.append(line)
    return lines


def start(setting: Setting) -> tuple[Sequence[str], dict[tuple[Any, ...], Any]]:
    """Data sets and curves, with what the page says of how they were made."""
    datasets = setting.choose(DATASETS, ("stand-in",))
    curves = trace_curves(setting, datasets)
    setting.facts.update({
        "compute_seconds": round(sum_seconds(setting), 1), "outer_folds": N_OUTER,
        "inner_folds": N_INNER, "most_rows": MOST_ROWS, "reference_rows": REFERENCE_ROWS,
    })  # fmt: skip
    return datasets, curves


def table(setting: Setting) -> Iterator[Row]:
    rows = list(rank_methods(setting, *start(setting)))
    yield from rows
    if not setting.quick:
        from pages.atlas import draw

        draw(setting, rows)


def places(setting: Setting) -> Iterator[Row]:
    _, curves = start(setting)
    for (d, r, m, c), curve in curves.items():
        for i, (u, r2) in enumerate(zip(curve["u"], curve["r2"], strict=True)):
            yield {"dataset": d, "repeat": r, "method": m, "criterion": c, "place": i,
                   "unfairness": float(u), "r2": float(r2)}  # fmt: skip


def choices(setting: Setting) -> Iterator[Row]:
    _, curves = start(setting)
    for (d, r, m, c), curve in curves.items():
        for name, k in zip(*np.unique(curve["chosen"], return_counts=True), strict=True):
            yield {"dataset": d, "repeat": r, "method": m, "criterion": c, "chosen": name,
                   "times": int(k)}  # fmt: skip


def sum_seconds(setting: Setting) -> float:
    """CPU seconds of all fits that were kept."""
    total = 0.0
    for function in (outer_scores, inner_curve, recommended_scores):
        for path in (setting.cache / function.__name__).glob("*.npz"):
            with np.load(path) as kept:
                total += float(kept["seconds"])
    return total
