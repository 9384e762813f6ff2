"""Best held-out R² of every method under a bound on unfairness, on both data sets.

    python experiments/thresholds.py [--quick] [--fresh] [--jobs N]

For separation and independence of at most 0.10, 0.05 and 0.01. A method's strength is free: of its
points that meet the bound (the sweep, and the strengths found by bisection to just meet it) the
one of highest R² counts, for all methods alike. `behind` is how far a method is below the best of
its league, `behind_se` the standard error of that difference over the rows, both scores being of
the same rows. By "fourier", which is slow, the value at the bound is interpolated linearly between
neighboring strengths of the sweep. Writes results/thresholds.csv and .json.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from common import Setting, cached, load, read_arguments, write_csv
from frontier import FAST, THRESHOLDS, fit_point, points
from methods import COMPARED, METHODS, QUICK, available


def scores(setting: Setting, row: dict[str, Any]) -> Any:
    """Out-of-fold predictions of a point."""
    unit = (row["dataset"], setting.quick, row["method"], row["strength"])
    return cached(setting.cache, fit_point, unit)["s"]


def best(
    rows: list[dict[str, Any]], column: str, threshold: float
) -> dict[str, dict[str, Any] | None]:
    """Of each method the point of highest R² that meets the bound; None where there is none."""
    found: dict[str, dict[str, Any] | None] = {}
    for row in rows:
        now = found.setdefault(row["method"], None)
        if row.get(column, np.inf) <= threshold and (now is None or row["r2"] > now["r2"]):
            found[row["method"]] = row
    return found


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


def table(setting: Setting, dataset: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per estimator, criterion, bound and method."""
    data = load(dataset, setting.quick)
    out: list[dict[str, Any]] = []
    for estimator in FAST:
        for criterion in ("separation", "independence"):
            for threshold in THRESHOLDS:
                column = f"{criterion}_{estimator}"
                found = best(rows, column, threshold)
                top: dict[str, dict[str, Any]] = {}
                for row in found.values():
                    if row and row["r2"] > top.get(row["league"], {"r2": -np.inf})["r2"]:
                        top[row["league"]] = row
                for method, row in found.items():
                    line: dict[str, Any] = {
                        "dataset": dataset,
                        "estimator": estimator,
                        "criterion": criterion,
                        "threshold": threshold,
                        "method": method,
                        "league": METHODS[method].league,
                        "ours": int(METHODS[method].ours),
                    }
                    if row is not None:
                        leader = top[row["league"]]
                        loss = (data.y - scores(setting, row)) ** 2
                        loss = loss - (data.y - scores(setting, leader)) ** 2
                        error = loss.std() / np.sqrt(len(loss)) / data.y.var()
                        line |= {"r2": row["r2"], "value": row[column]}
                        line |= {"strength": row["strength"], "behind": leader["r2"] - row["r2"]}
                        line |= {"behind_se": float(error)}
                    out.append(line)
    return out


def by_fourier(dataset: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same by the paper's slow estimator, between neighboring strengths of the sweep."""
    out: list[dict[str, Any]] = []
    for criterion in ("separation", "independence"):
        for threshold in THRESHOLDS:
            found = {}
            for name in dict.fromkeys(row["method"] for row in rows):
                mine = [row for row in rows if row["method"] == name]
                if METHODS[name].by_fourier:
                    found[name] = crossing(mine, f"{criterion}_fourier", threshold)
            for name, r2 in found.items():
                method = METHODS[name]
                line: dict[str, Any] = {
                    "dataset": dataset,
                    "estimator": "fourier",
                    "criterion": criterion,
                    "threshold": threshold,
                    "method": name,
                    "league": method.league,
                    "ours": int(method.ours),
                }
                if r2 is not None:
                    rivals = [v for n, v in found.items() if METHODS[n].league == method.league]
                    top = max(v for v in rivals if v is not None)
                    line |= {"r2": r2, "behind": top - r2}
                out.append(line)
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    setting = read_arguments(__doc__, arguments)
    methods = available(COMPARED)
    if setting.quick:
        methods = QUICK
    lines: list[dict[str, Any]] = []
    seconds = 0.0
    for dataset in ("communities",) if setting.quick else ("communities", "lsac"):
        rows = points(setting, dataset, methods)
        seconds += sum(row["compute_seconds"] for row in rows)
        lines += table(setting, dataset, rows)
        if not setting.quick:
            lines += by_fourier(dataset, rows)
    write_csv(setting, "thresholds", lines, seconds)


if __name__ == "__main__":
    main()
