"""Group by group: sizes, means, errors, and the simple disparities people already know.

These put the three information measures in context; they do not replace them. Equal means hide
unequal spreads, and no single gap sees all of a distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ._ranks import EXACT_RANK_ROWS, quantile_slots
from .sensitive import Groups

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class GroupTable:
    """One row per group; `columns` maps a name to K values, NaN where not defined."""

    columns: dict[str, list]


@dataclass(frozen=True)
class Disparities:
    """Gaps between groups in common units; each the largest over groups.

    Attributes
    ----------
    mean_score_gap : float
        Largest minus smallest mean score.
    kolmogorov_smirnov, wasserstein : float
        Largest distance between a group's scores and those of all other rows; the latter in
        units of the score.
    rmse_ratio : float
        Largest over smallest root mean squared error (NaN without a target).
    """

    mean_score_gap: float
    kolmogorov_smirnov: float
    wasserstein: float
    rmse_ratio: float


class _Sums:
    """Weighted means per group, for hard and soft membership alike."""

    def __init__(self, groups: Groups):
        self.groups = groups
        self.k = groups.n_groups
        self.total = self._add(None)
        weight = groups.weight
        if groups.codes is not None:
            if weight is None:
                squares = self.total
            else:
                squares = np.bincount(groups.codes, weight * weight, self.k).astype(float)
        else:
            assert groups.probabilities is not None
            soft = (
                groups.probabilities if weight is None else groups.probabilities * weight[:, None]
            )
            squares = np.square(soft).sum(axis=0)
        self.n_effective = self.total**2 / squares

    def _add(self, values: Vector | None) -> Vector:
        weight = self.groups.weight
        if values is None:
            product = weight
        else:
            product = values if weight is None else values * weight
        if self.groups.codes is not None:
            return np.bincount(self.groups.codes, product, minlength=self.k).astype(float)
        assert self.groups.probabilities is not None
        if product is None:
            return self.groups.probabilities.sum(axis=0)
        return product @ self.groups.probabilities

    def mean(self, values: Vector) -> Vector:
        return self._add(values) / self.total

    def moments(self, values: Vector) -> tuple[Vector, Vector]:
        """Mean and variance; the values are shifted first so that squares do not cancel."""
        shift = float(values.mean())
        centered = values - shift
        mean = self.mean(centered)
        with np.errstate(over="ignore", invalid="ignore"):  # scores beyond 1e154 have no variance
            return mean + shift, np.maximum(self.mean(centered * centered) - mean * mean, 0.0)


def summarize_groups(
    y: Vector | None, s: Vector, groups: Groups, confidence_level: float
) -> tuple[GroupTable, Disparities]:
    """Per-group table and gaps, over rows with a known group (`y`, `s` already restricted).

    Columns ``*_low`` and ``*_high`` are normal intervals at the confidence level from effective
    sample sizes.
    """
    sums = _Sums(groups)
    z = float(ndtri(0.5 + confidence_level / 2))
    root_n = np.sqrt(sums.n_effective)
    columns: dict[str, list] = {
        "group": list(groups.label_names),
        "n": [float(c) if groups.codes is None else int(c) for c in groups.counts],
        "share": groups.shares.tolist(),
        "n_effective": sums.n_effective.tolist(),
    }

    def add(name: str, value: Vector, variance: Vector) -> None:
        margin = z * np.sqrt(variance) / root_n
        margin = np.where(sums.n_effective > 1, margin, np.nan)
        columns[name] = value.tolist()
        columns[f"{name}_low"] = (value - margin).tolist()
        columns[f"{name}_high"] = (value + margin).tolist()

    mean_s, variance_s = sums.moments(s)
    add("mean_score", mean_s, variance_s)
    columns["sd_score"] = np.sqrt(variance_s).tolist()
    rmse_ratio = float("nan")
    if y is not None:
        mean_y, variance_y = sums.moments(y)
        add("mean_target", mean_y, variance_y)
        columns["sd_target"] = np.sqrt(variance_y).tolist()
        residual = y - s
        mean_r, variance_r = sums.moments(residual)
        add("mean_residual", mean_r, variance_r)
        columns["sd_residual"] = np.sqrt(variance_r).tolist()
        mae, variance_a = sums.moments(np.abs(residual))
        add("mae", mae, variance_a)
        mse, variance_q = sums.moments(residual * residual)
        rmse = np.sqrt(np.maximum(mse, 0.0))
        with np.errstate(invalid="ignore", divide="ignore"):
            add("rmse", rmse, np.where(rmse > 0, variance_q / (4 * mse), 0.0))
            # E[y|s] = a + b·s within the group: b = 1 where scores are calibrated.
            covariance = sums.mean((y - y.mean()) * (s - s.mean())) - (mean_y - y.mean()) * (
                mean_s - s.mean()
            )
            slope = np.where(variance_s > 0, covariance / variance_s, np.nan)
            left = np.maximum(variance_y - slope * covariance, 0.0)
            add("calibration_slope", slope, left / variance_s)
            rmse_ratio = float(rmse.max() / rmse.min()) if rmse.min() > 0 else float("nan")
    ks, wasserstein = _distribution_gaps(s, groups)
    columns["kolmogorov_smirnov"] = ks.tolist()
    columns["wasserstein"] = wasserstein.tolist()
    gaps = Disparities(
        float(mean_s.max() - mean_s.min()), float(ks.max()), float(wasserstein.max()), rmse_ratio
    )
    return GroupTable(columns), gaps


def _cells(s: Vector) -> tuple[NDArray[np.integer], Vector]:
    """Each row's cell in the order of s, and the right end of every cell."""
    n = len(s)
    if n <= EXACT_RANK_ROWS:
        order = np.argsort(s)
        cell = np.empty(n, dtype=np.intp)
        cell[order] = np.arange(n)
        return cell, s[order]
    edges, _, slot, _, _, high = quantile_slots(s)
    return slot.astype(np.intp), np.append(np.repeat(edges, 2), high)


def _distribution_gaps(s: Vector, groups: Groups) -> tuple[Vector, Vector]:
    """Kolmogorov-Smirnov and Wasserstein distance of each group from all other rows, (K,) each."""
    k, n = groups.n_groups, len(s)
    cell, points = _cells(s)
    cells = len(points)
    if groups.codes is not None:
        flat = np.bincount(cell * k + groups.codes, groups.weight, minlength=cells * k)
        mass = flat.reshape(cells, k).astype(float)
    else:
        assert groups.probabilities is not None
        weight = np.ones(n) if groups.weight is None else groups.weight
        mass = np.column_stack(
            [np.bincount(cell, weight * p, minlength=cells) for p in groups.probabilities.T]
        )
    cumulative = mass.cumsum(axis=0)
    total = cumulative[-1]
    rest = cumulative.sum(axis=1, keepdims=True) - cumulative
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.abs(cumulative / total - rest / (total.sum() - total))
    # Within a run of equal scores the functions jump together: only its end counts.
    step = np.append(np.diff(points), 1.0)
    ks = np.where((step > 0)[:, None], gap, 0.0).max(axis=0)
    wasserstein = (gap[:-1] * step[:-1, None]).sum(axis=0)
    return ks, wasserstein
