"""Audits from cells against audits from rows, and cells merged from many parts.

For each family and size: the largest difference of a measure between `audit(cells)` and the audit
of the rows, in standard errors; beside it how far the audit of the rows moves when they come in
another order. The last line merges 1,000 parts.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import evenhand as eh
from common import Setting
from distributions import FAMILIES, random_scenario, rough_scenario

ROUGH = ("sign", "ring", "band_2", "near_copy_size", "ties_both", "smooth_and_rough")


def draw(family: str, n: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Targets, scores and groups."""
    make = random_scenario if family in FAMILIES else rough_scenario
    scenario: Any = make(family, np.random.default_rng([seed, 1]))
    y, s, a = scenario.sample(n, np.random.default_rng([seed, 2, n]))
    return np.asarray(y, float), np.asarray(s, float), a


def apart(result: eh.Audit, expected: eh.Audit) -> dict[str, float]:
    """Differences by criterion, in standard errors."""
    out = {}
    for name, m in expected.measures.items():
        if m.defined:
            out[name] = (result.measures[name].value - m.value) / m.stderr
    return out


def compare(family: str, n: int, estimator: str, bins: int | None = None) -> dict[str, Any]:
    """One line of the table."""
    y, s, a = draw(family, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.process_time()
        rows = eh.audit(y, s, sensitive_features=a, estimator=estimator)
        rows_s = time.process_time() - begin
        begin = time.process_time()
        cells = eh.Cells.from_rows(y, s, sensitive_features=a, edges=bins)
        fill_s = time.process_time() - begin
        begin = time.process_time()
        counted = eh.audit(cells, estimator=estimator)
        cells_s = time.process_time() - begin
        order = np.random.default_rng(3).permutation(n)
        again = eh.audit(y[order], s[order], sensitive_features=a[order], estimator=estimator)
    result = apart(counted, rows)
    return {
        "family": family,
        "n": n,
        "estimator": estimator,
        "bins": cells.edges.bins,
        "tilted": bool(cells.edges.slope),
        "cells": cells.n_cells,
        **{name: round(result.get(name, float("nan")), 4) for name in rows.measures},
        "largest": round(max(map(abs, result.values()), default=float("nan")), 4),
        "reordered": round(max(map(abs, apart(again, rows).values()), default=float("nan")), 4),
        "rows_s": round(rows_s, 3),
        "fill_s": round(fill_s, 3),
        "cells_s": round(cells_s, 3),
    }


def merged(parts: int = 1000, n: int = 1_000_000) -> dict[str, Any]:
    """Cells of many parts against the cells of all rows: what differs, and the time to merge."""
    y, s, a = draw("bivariate_normal", n)
    whole = eh.Cells.from_rows(y, s, sensitive_features=a)
    pieces = np.array_split(np.arange(n), parts)
    made = [
        eh.Cells.from_rows(y[p], s[p], sensitive_features=a[p], edges=whole.edges) for p in pieces
    ]
    begin = time.process_time()
    result = eh.Cells.merge(made)
    seconds = time.process_time() - begin
    names = ("score_bin", "target_bin", "group", "count", "least", "largest")
    equal = all(np.array_equal(getattr(result, k), getattr(whole, k)) for k in names)
    scale = np.abs(whole.sums).max(axis=0)
    return {
        "family": f"{parts} parts merged",
        "n": n,
        "bins": whole.edges.bins,
        "cells": result.n_cells,
        "integers_and_extremes_identical": equal,
        "largest_relative_difference_of_sums": float(
            (np.abs(result.sums - whole.sums) / scale).max()
        ),
        "merge_s": round(seconds, 3),
    }


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    for n in setting.choose((10_000, 100_000, 1_000_000), (2_000,)):
        for family in (*FAMILIES, *ROUGH)[: setting.choose(None, 2)]:
            for estimator in ("auto", "logistic", "lspc") if family in FAMILIES else ("auto",):
                yield compare(family, n, estimator)
    yield merged(*setting.choose((1000, 1_000_000), (20, 20_000)))
