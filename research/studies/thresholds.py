"""Best held-out R² of every method under a bound on unfairness, on both data sets.

    python research/run.py thresholds [--quick] [--fresh] [--jobs N]

For separation and independence of at most 0.10, 0.05 and 0.01. A method's strength is free: the
highest R² counts that its points under the bound have, or the line between two neighboring
strengths on either side of it. By "auto" strengths were sought close to the bounds. `value` and
`strength` are those of the best point under the bound, `behind` is how far a method is below the
best of its league, `behind_se` the standard error of that difference over the rows, between such
points. By "fourier" there are only the methods it was run for. Writes results/thresholds.csv and
.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from common import Setting, cached, load, read_arguments, write_csv
from studies.frontier import THRESHOLDS, crossing, fit_point, points
from studies.methods import COMPARED, METHODS, QUICK, available


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


def table(setting: Setting, dataset: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line per criterion, bound and method, by auto."""
    data = load(dataset, setting.quick)
    out: list[dict[str, Any]] = []
    for criterion in ("separation", "independence"):
        for threshold in THRESHOLDS:
            column = f"{criterion}_auto"
            found = best(rows, column, threshold)
            at: dict[str, float] = {}
            top: dict[str, str] = {}
            for method, row in found.items():
                if row is not None:
                    mine = [r for r in rows if r["method"] == method]
                    at[method] = max(row["r2"], crossing(mine, column, threshold) or -np.inf)
                    if at[method] > at.get(top.get(row["league"], ""), -np.inf):
                        top[row["league"]] = method
            for method, row in found.items():
                line = _line(dataset, "auto", criterion, threshold, method)
                if row is not None:
                    leader = top[row["league"]]
                    ahead = found[leader]
                    assert ahead is not None
                    loss = (data.y - scores(setting, row)) ** 2
                    loss = loss - (data.y - scores(setting, ahead)) ** 2
                    error = loss.std() / np.sqrt(len(loss)) / data.y.var()
                    line |= {"r2": at[method], "value": row[column]}
                    line |= {"strength": row["strength"], "behind": at[leader] - at[method]}
                    line |= {"behind_se": float(error)}
                out.append(line)
    return out


def _line(
    dataset: str, estimator: str, criterion: str, threshold: float, method: str
) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "estimator": estimator,
        "criterion": criterion,
        "threshold": threshold,
        "method": method,
        "league": METHODS[method].league,
        "ours": int(METHODS[method].ours),
    }


def interpolated(dataset: str, rows: list[dict[str, Any]], estimator: str) -> list[dict[str, Any]]:
    """The same by another estimator, between neighboring strengths."""
    out: list[dict[str, Any]] = []
    for criterion in ("separation", "independence"):
        for threshold in THRESHOLDS:
            found = {}
            for name in dict.fromkeys(row["method"] for row in rows):
                mine = [row for row in rows if row["method"] == name]
                if estimator != "fourier" or METHODS[name].by_fourier:
                    found[name] = crossing(mine, f"{criterion}_{estimator}", threshold)
            for name, r2 in found.items():
                line = _line(dataset, estimator, criterion, threshold, name)
                if r2 is not None:
                    league = METHODS[name].league
                    rivals = [v for n, v in found.items() if METHODS[n].league == league]
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
            lines += interpolated(dataset, rows, "fourier") + interpolated(dataset, rows, "knn")
    write_csv(setting, "thresholds", lines, seconds)


if __name__ == "__main__":
    main()
