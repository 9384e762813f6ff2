"""What an audit keeps of its rows: R², and enough of them for the figures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..groups.sensitive import Groups

Vector = NDArray[np.float64]


def r2_of(y: Vector | None, s: Vector, groups: Groups, exposure: Vector | None = None) -> float:
    """1 − mean ω(y − s)²/Var(y); NaN without a target, or one that does not vary.

    With an exposure e that of totals, Σ ω(e·y − e·s)², against the best constant rate.
    """
    if y is None:
        return float("nan")
    weight = groups.weight
    if exposure is not None:
        weight = exposure**2 if weight is None else weight * exposure**2
    with np.errstate(over="ignore", invalid="ignore"):  # squares beyond the largest float
        mean = np.average(y, weights=weight)
        spread = np.average((y - mean) ** 2, weights=weight)
        error = np.average((y - s) ** 2, weights=weight)
        defined = spread > 0 and math.isfinite(spread) and math.isfinite(error)
        return float(1.0 - error / spread) if defined else float("nan")


def negative_scores(y: Vector | None, s: Vector) -> int:
    """Scores below zero of a target that is never so, and not always zero."""
    if y is None or y.min() < 0 or y.max() <= 0:
        return 0
    return int(np.count_nonzero(s < 0))


def sample_rows(y: Vector | None, s: Vector, groups: Groups, limit: int = 6000) -> dict[str, Any]:
    """Rows for the figures, evenly spaced within each group so that small groups keep theirs."""
    n = len(s)
    if n <= limit:
        rows = np.arange(n)
    elif groups.codes is None or groups.n_groups > limit // 50:
        rows = np.linspace(0, n - 1, limit).astype(int)
    else:
        from .._kernels.groups import pick_rows

        each = limit // groups.n_groups
        wanted = [
            np.unique(np.linspace(0, count - 1, min(count, each)).astype(int))
            for count in groups.counts.astype(int).tolist()
        ]
        ends = np.cumsum([len(places) for places in wanted])
        rows = pick_rows(groups.codes, np.concatenate(wanted), np.append(0, ends))
    sample: dict[str, Any] = {"y": None if y is None else y[rows], "s": s[rows]}
    sample["weight"] = None if groups.weight is None else groups.weight[rows]
    sample["codes"] = None if groups.codes is None else groups.codes[rows]
    sample["membership"] = None if groups.probabilities is None else groups.probabilities[rows]
    return sample
