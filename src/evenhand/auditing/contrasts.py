"""Groups against a reference: the numbers, their covariance, and what many of them ask for.

Each number is a smooth function g of the means of its group and of the reference, so that by the
delta method Cov = G Σ Gᵀ with G its slopes and Σ the covariance of the means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr

from .group_moments import Cutoff, GroupMoments

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
# Numbers of the table, in its order: whether at cutoffs, on a log scale, and in words.
STATISTICS = {
    "smd": "standardized mean difference",
    "mean_difference": "difference of means",
    "mean_ratio": "ratio of means",
    "actual_expected": "actual over expected",
    "actual_expected_ratio": "actual over expected, against the reference",
    "impact_ratio": "impact ratio",
    "odds_ratio": "odds ratio",
}
# Clauses of a tolerance on the gaps that legitimate factors leave, by the gap they are on.
ADJUSTED = {"adjusted_gap": "adjusted", "adjusted_percent": "adjusted_percent"}
AT_CUTOFF = ("impact_ratio", "odds_ratio")
NEED_TARGET = ("actual_expected", "actual_expected_ratio")
ON_LOG = ("mean_ratio", "actual_expected", "actual_expected_ratio", "impact_ratio", "odds_ratio")
# Draws behind a simultaneous quantile, as a power of two; its error is about 0.01.
_DRAWS = 14


@dataclass(frozen=True)
class Contrasts:
    """One number of every group: estimates, their covariance, shown values, degrees of freedom."""

    estimate: Vector
    covariance: Matrix
    shown: Vector
    freedom: Vector


def contrasts(
    m: GroupMoments, statistic: str, ref: int, cutoff: Cutoff | None, favorable: str
) -> Contrasts:
    """Estimates and covariance by the delta method, gradients G: Cov = G Σ Gᵀ.

    Degrees of freedom are Welch's: (V_k + V_r)² / (V_k²/(n_k − 1) + V_r²/(n_r − 1)) with the part
    of each of the two groups, and no more than there are units in all less one.
    """
    K = len(m.labels)
    used, value, slope = _functions(statistic, cutoff, favorable)
    places = [m.names.index(name) for name in used]
    x = m.mean[places]
    sigma = m.covariance[np.ix_(places, range(K), places, range(K))].copy()
    shown = x
    if statistic in AT_CUTOFF:
        x, sigma = _off_the_edge(x, sigma, m.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate, raw = value(x, ref), value(shown, ref)
        own, other = slope(x, ref)
        d = len(places)
        whole = sigma.reshape(d * K, d * K)
        gradient = np.zeros((K, d, K))
        gradient[range(K), :, range(K)] += own.T
        if statistic != "actual_expected":
            gradient[:, :, ref] += other.T
            gradient[ref] = 0.0
        flat = gradient.reshape(K, d * K)
        finite = np.nan_to_num(whole, nan=0.0)
        covariance = flat @ finite @ flat.T
        # A group of one row has no variance to be known by, nor has what is compared with it.
        bad = np.isnan(np.einsum("jkjk->k", sigma))
        lost = bad.copy() if statistic == "actual_expected" else bad | bad[ref]
        covariance[lost] = covariance[:, lost] = np.nan
        parts = np.array(
            [
                np.einsum("j,jm,m->", g, sigma[:, k, :, k], g)
                for k, g in enumerate(np.nan_to_num(own.T))
            ]
        )
        freedom = np.maximum(m.size - 1.0, 1.0)
        if statistic != "actual_expected":
            base = np.array(
                [np.einsum("j,jm,m->", g, sigma[:, ref, :, ref], g) for g in np.nan_to_num(other.T)]
            )
            doubt = parts**2 / freedom + base**2 / freedom[ref]
            freedom = np.where(doubt > 0, (parts + base) ** 2 / doubt, freedom)
        freedom = np.clip(freedom, 1.0, max(m.n_units - 1.0, 1.0))
    return Contrasts(estimate, covariance, raw, np.nan_to_num(freedom, nan=1.0))


def _functions(
    statistic: str, cutoff: Cutoff | None, favorable: str
) -> tuple[tuple[Any, ...], Any, Any]:
    """The means used, the number as a function of them (d, K), and its slopes in k's and r's."""
    if statistic == "mean_difference":
        return ("score",), lambda x, r: x[0] - x[0, r], lambda x, r: (
            np.ones_like(x), -np.ones_like(x))  # fmt: skip
    if statistic == "mean_ratio":
        return ("score",), lambda x, r: _log(x[0]) - _log(x[0, r]), lambda x, r: (
            1.0 / x, np.broadcast_to(-1.0 / x[:, [r]], x.shape))  # fmt: skip
    if statistic == "smd":

        def smd(x: Matrix, r: int) -> Vector:
            return (x[0] - x[0, r]) / np.sqrt((x[1] + x[1, r]) / 2)

        def smd_slope(x: Matrix, r: int) -> tuple[Matrix, Matrix]:
            variance = (x[1] + x[1, r]) / 2
            by_mean, by_spread = 1.0 / np.sqrt(variance), -smd(x, r) / (4 * variance)
            return np.array([by_mean, by_spread]), np.array([-by_mean, by_spread])

        return ("score", "spread"), smd, smd_slope
    if statistic in NEED_TARGET:

        def actual(x: Matrix, r: int) -> Vector:
            ratio = _log(x[0]) - _log(x[1])
            return ratio if statistic == "actual_expected" else ratio - ratio[r]

        def actual_slope(x: Matrix, r: int) -> tuple[Matrix, Matrix]:
            own = np.array([1.0 / x[0], -1.0 / x[1]])
            return own, np.broadcast_to(-own[:, [r]], own.shape)

        return ("target", "score"), actual, actual_slope

    def rate(x: Matrix) -> Vector:
        return _log(x[0]) if statistic == "impact_ratio" else _log(x[0]) - _log(1.0 - x[0])

    def rate_slope(x: Matrix, r: int) -> tuple[Matrix, Matrix]:
        own = 1.0 / x if statistic == "impact_ratio" else 1.0 / (x * (1.0 - x))
        return own, np.broadcast_to(-own[:, [r]], own.shape)

    return ((cutoff, favorable),), lambda x, r: rate(x) - rate(x)[r], rate_slope


def _off_the_edge(x: Matrix, sigma: Matrix, size: Vector) -> tuple[Matrix, Matrix]:
    """Rates of 0 and 1 as half a row of n + 1, which has a logarithm and an error."""
    edge = np.flatnonzero((x[0] <= 0.0) | (x[0] >= 1.0))
    if len(edge):
        x = x.copy()
        x[0, edge] = (size[edge] * x[0, edge] + 0.5) / (size[edge] + 1.0)
        sigma[0, edge, 0, edge] = x[0, edge] * (1.0 - x[0, edge]) / np.maximum(size[edge], 1.0)
    return x, sigma


def simultaneous_quantile(correlation: Matrix, level: float) -> float:
    """z with P(max_k |Z_k| ≤ z) = level for Z normal with this correlation, by quasi-random draws.

    Never more than Šidák's quantile, which is right for independent ones and safe for all others.
    """
    K = len(correlation)
    alone = float(ndtri(0.5 + level / 2))
    if K == 1:
        return alone
    from scipy.stats.qmc import Sobol

    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    uniform = Sobol(K, rng=0).random_base2(_DRAWS)
    draws = ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12)) @ root.T
    z = float(np.quantile(np.abs(draws).max(axis=1), level))
    sidak = float(ndtri(0.5 + 0.5 * level ** (1.0 / K)))
    return min(max(z, alone), sidak)


def holm(p: Vector) -> Vector:
    """Holm's p-values, (m − j)·p_(j) made increasing; NaN stays NaN and does not count."""
    out = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    out[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return out


def two_sided(estimate: float, error: float, freedom: float) -> float:
    if not (math.isfinite(estimate) and math.isfinite(error)):
        return math.nan
    if error == 0.0:
        return 1.0 if estimate == 0.0 else 0.0
    return float(2.0 * stdtr(freedom, -abs(estimate) / error))


def _log(x: Any) -> Any:
    return np.log(np.where(np.asarray(x) >= 0.0, x, np.nan))
