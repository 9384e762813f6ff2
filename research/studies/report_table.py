"""Numbers and tables of docs/reproduction.md, all read from the CSV files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common import CRITERIA, read_csv
from studies.frontier import THRESHOLDS
from studies.methods import BEST, CUBIC, FAMILIES, NESTED, OURS, PAPER, RAW, VARIANTS

NAMES = {"communities": "Communities and Crime", "lsac": "LSAC"}
PAPER_NAMES = [m.name for m in PAPER]
LSPC = ("LSPC-sep-quad", "LSPC-ind-quad")
LSPC_BEST = tuple(name + BEST for name in LSPC)
LR = ("LR-sep-quad", "LR-ind-quad")
PLAIN = ("evenhand-sep", "evenhand-ind")
PLAIN_OR_CUBIC = (*PLAIN, *(m.name for m in CUBIC[:2]))
FRONTIER_NAMES = [name for name in FAMILIES if name.startswith(("LSPC", "CVX"))]
INSIDE_NAMES = [*LSPC, *LSPC_BEST, *LR, *(m.name for m in OURS)]
ESTIMATORS = ("auto", "knn")
SIDES = {LSPC: "LSPC-quad as published", LSPC_BEST: "LSPC-quad at its best penalty",
         LR: "logistic inside", PLAIN: "ours"}  # fmt: skip
# R² that differs by less is called level.
LEVEL = 5e-4
# R² that is lower by more is called clearly lower: about two standard errors of most differences.
CLEAR = 5e-3


@dataclass(frozen=True)
class Frontier:
    """Points of one data set."""

    rows: list[dict[str, Any]]

    def path(self, method: str, column: str) -> NDArray[np.float64]:
        """Values along the sweep, in order of strength."""
        mine = [r for r in self.rows if r["method"] == method and r["point"] == "sweep"]
        return np.array([r[column] for r in sorted(mine, key=lambda r: r["strength"])])


class Results:
    """The CSV files of a folder, each read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = sorted(
            path.stem for path in folder.glob("*.json") if path.stem != "thresholds"
        )
        self.rows = cache(lambda name: read_csv(folder / f"{name}.csv"))

    def note(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / f"{name}.json").read_text())

    def frontier(self, dataset: str) -> Frontier:
        names = (f"frontier_{dataset}", f"supplement_{dataset}")
        return Frontier([row for name in names for row in self.rows(name)])

    def lines(self, dataset: str, estimator: str, criterion: str, threshold: float) -> list[dict]:
        """Lines of the threshold table, one a method."""
        wanted = (dataset, estimator, criterion, threshold)
        keys = ("dataset", "estimator", "criterion", "threshold")
        return [r for r in self.rows("thresholds") if tuple(r[k] for k in keys) == wanted]

    def best(
        self, dataset: str, estimator: str, criterion: str, threshold: float, *methods: str
    ) -> float:
        """Highest R² of some lines of the tables under a bound; NaN if none of them meets it."""
        members = {member for name in methods for member in FAMILIES[name]}
        lines = self.lines(dataset, estimator, criterion, threshold)
        found = [r["r2"] for r in lines if r["method"] in members and np.isfinite(r["r2"])]
        return max(found, default=float("nan"))


def number(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "–"


def lowest(frontier: Frontier, methods: Iterable[str], least_r2: float) -> dict[str, float]:
    """The least value of both criteria by fourier at an R² of at least `least_r2`."""
    out = {}
    for criterion in ("separation", "independence"):
        values = [
            row[f"{criterion}_fourier"]
            for row in frontier.rows
            if row["method"] in methods and row["r2"] >= least_r2 and row["point"] == "sweep"
        ]
        out[criterion] = min(values)
    return out


def frontier_table(
    results: Results, dataset: str, names: Sequence[str], estimator: str = "auto"
) -> str:
    """R² under each bound, and the least value of the sweep with the R² it costs."""
    rows = results.frontier(dataset).rows
    columns = [(c, t) for c in ("separation", "independence") for t in THRESHOLDS]
    head = [f"R², {c} ≤ {t:.2f}" for c, t in columns]
    head += ["least separation (R²)", "least independence (R²)"]
    lines = ["| method | " + " | ".join(head) + " |", "| --- |" + " ---: |" * len(head)]
    for name in names:
        cells = [number(results.best(dataset, estimator, c, t, name)) for c, t in columns]
        mine = [r for r in rows if r["method"] in FAMILIES[name] and r["point"] == "sweep"]
        for criterion in ("separation", "independence"):
            least = min(mine, key=lambda r, key=f"{criterion}_{estimator}": r[key])
            cells.append(f"{least[f'{criterion}_{estimator}']:.3f} ({least['r2']:.3f})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compare(
    results: Results, dataset: str, estimator: str, first: Sequence[str], second: Sequence[str]
) -> str:
    """A sentence with the best R² of two sets of methods under the bounds of both criteria."""
    parts = []
    for criterion in ("separation", "independence"):
        pairs = []
        for threshold in THRESHOLDS:
            a = results.best(dataset, estimator, criterion, threshold, *first)
            b = results.best(dataset, estimator, criterion, threshold, *second)
            pairs.append(f"{number(a)} against {number(b)}")
        parts.append(f"{', '.join(pairs)} for {criterion}")
    names = " against ".join(SIDES.get(tuple(side), "/".join(side)) for side in (first, second))
    bounds = " / ".join(f"{t:.2f}" for t in THRESHOLDS)
    return f"R² of {names} at a bound of {bounds} ({estimator}): {'; '.join(parts)}."


def ahead(
    results: Results, dataset: str, estimator: str, first: Sequence[str], second: Sequence[str]
) -> tuple[int, int]:
    """Bounds at which the first methods are level or ahead, and all that either meets."""
    won = total = 0
    for criterion in ("separation", "independence"):
        for threshold in THRESHOLDS:
            a = results.best(dataset, estimator, criterion, threshold, *first)
            b = results.best(dataset, estimator, criterion, threshold, *second)
            total += bool(np.isfinite(a) or np.isfinite(b))
            won += bool(np.isfinite(a) and not a < b - LEVEL)
    return won, total


def gap(
    results: Results,
    dataset: str,
    estimator: str,
    first: Sequence[str],
    second: Sequence[str],
    met_by_both: bool = False,
) -> NDArray[np.float64]:
    """How far the first methods are behind the second in R², bound by bound.

    Where only the second meet one the first are behind by all of their R², or it does not count.
    """
    out = []
    for criterion in ("separation", "independence"):
        for threshold in THRESHOLDS:
            a = results.best(dataset, estimator, criterion, threshold, *first)
            b = results.best(dataset, estimator, criterion, threshold, *second)
            if np.isfinite(a) and np.isfinite(b):
                out.append(b - a)
            elif np.isfinite(b) and not met_by_both:
                out.append(b)
    return np.array(out)


def same_as_nested(results: Results, dataset: str) -> tuple[float, float]:
    """Largest difference in R², and in a criterion (auto), of our raw fits and the nested ones."""
    rows = results.frontier(dataset).rows
    worst = {"r2": 0.0, "independence_auto": 0.0, "separation_auto": 0.0}
    for nested, ours in zip(NESTED, RAW, strict=True):
        known = {r["strength"]: r for r in rows if r["method"] == ours.name}
        for row in (r for r in rows if r["method"] == nested.name and r["strength"] in known):
            for key in worst:
                worst[key] = max(worst[key], abs(row[key] - known[row["strength"]][key]))
    r2, *criteria = worst.values()
    return r2, max(criteria)


def median_seconds(rows: list[dict[str, Any]], n: float) -> dict[str, float]:
    """Median over strengths of the time of each method at n rows, or at its largest size."""
    out = {}
    for name in dict.fromkeys(r["method"] for r in rows):
        sizes = [r["n"] for r in rows if r["method"] == name]
        at = n if n in sizes else max(sizes)
        out[name] = float(
            np.median([r["seconds"] for r in rows if r["method"] == name and r["n"] == at])
        )
    return out


def growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Exponent of time in n over the upper half of the sizes."""
    out = {}
    for name in dict.fromkeys(r["method"] for r in rows):
        sizes = sorted({r["n"] for r in rows if r["method"] == name})
        sizes = sizes[len(sizes) // 2 :] if len(sizes) > 3 else sizes
        times = [median_seconds([r for r in rows if r["n"] == n], n)[name] for n in sizes]
        out[name] = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    return out


def errors(rows: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Root mean square and mean error of each estimator, criterion by criterion."""
    out: dict[str, list[tuple[float, float]]] = {}
    for name in dict.fromkeys(r["estimator"] for r in rows):
        out[name] = []
        for criterion in CRITERIA:
            mine = [r for r in rows if r["estimator"] == name and r["criterion"] == criterion]
            error = np.array([r["estimate"] - r["truth"] for r in mine])
            out[name].append((float(np.sqrt(np.mean(error**2))), float(error.mean())))
    return out


def league_table(results: Results, dataset: str, estimator: str, league: str) -> str:
    """R² of every method of a league under every bound, the best of each column in bold."""
    columns = [(c, t) for c in ("separation", "independence") for t in THRESHOLDS]
    run = {
        r["method"]
        for r in results.rows("thresholds")
        if r["league"] == league and r["dataset"] == dataset
    }
    cells = {
        name: [results.best(dataset, estimator, c, t, name) for c, t in columns]
        for name, members in FAMILIES.items()
        if run.intersection(members)
    }
    tops = [max((v for v in col if np.isfinite(v)), default=np.inf)
            for col in zip(*cells.values(), strict=True)]  # fmt: skip
    lines = ["| method | " + " | ".join(f"{c} ≤ {t:.2f}" for c, t in columns) + " |",
             "| --- |" + " ---: |" * len(columns)]  # fmt: skip
    for method, values in cells.items():
        shown = [f"**{number(v)}**" if v >= t - LEVEL else number(v)
                 for v, t in zip(values, tops, strict=True)]  # fmt: skip
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def settings_table(results: Results) -> str:
    """What of each rival was tried, and the most that a setting other than its own default won."""
    lines = ["| method | other settings tried | most gained in R² under a bound by auto | where |",
             "| --- | --- | ---: | --- |"]  # fmt: skip
    run = {r["method"] for r in results.rows("thresholds")}
    for name, settings in VARIANTS.items():
        gains, only = [(0.0, "–")], 0
        for dataset, title in NAMES.items():
            for criterion in ("separation", "independence"):
                for threshold in THRESHOLDS:
                    found = {
                        r["method"]: r["r2"]
                        for r in results.lines(dataset, "auto", criterion, threshold)
                        if np.isfinite(r["r2"])
                    }
                    for words in settings:
                        tried = found.get(f"{name}, {words}")
                        if tried is None:
                            continue
                        if name not in found:
                            only += 1
                        else:
                            place = f"{words}; {title}, {criterion} ≤ {threshold:.2f}"
                            gains.append((tried - found[name], place))
        if name not in run:
            continue
        gain, where = max(gains)
        met = " A bound that the default misses is met as well." if only else ""
        lines.append(f"| {name} | {'; '.join(settings)} | {gain:.3f} | {where}.{met} |"
                     if gain > 0 or met else
                     f"| {name} | {'; '.join(settings)} | – | the default is best |")  # fmt: skip
    return "\n".join(lines)
