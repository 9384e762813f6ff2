"""What an audit by membership probabilities can and cannot say.

Probabilities p_ik = P(A = k | Z_i) from names and addresses say nothing about how the score goes
with the group among people of the same p. Two assumptions give a number, and they are opposites:

    S ⟂ A | Z ("guess")   mean score of k = Σ_i ω_i p_ik s_i / Σ_i ω_i p_ik   (weighting)
    S ⟂ Z | A ("group")   s_i = Σ_k p_ik μ_k + error, by least squares        (regression)

Where neither holds the truth can be outside both.

Bounds over all joint distributions that agree with the probabilities: within a stratum c of rows
with like probabilities, any rows may be those of group k, as long as they are p_k of them. The mean
score of a group is then at most

    Σ_i ω_i [(s_i − t_c)₊ + t_c p_ik] / Σ_i ω_i p_ik,   t_c the upper p_k-quantile of the stratum

(the group has the highest scores of every stratum), and at least the same with the signs turned.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri, xlogy

from .._core.arrays import Array, Rows, Vector
from .._core.frames import json_safe
from .._core.views import Tabled
from ..data.sample import Sample
from ..measures.measures import standard_error

# A stratum must hold enough rows for its scores to stand for those of its people.
LEAST_ROWS, MOST_STRATA = 60, 128


@dataclass(frozen=True)
class ImputedGap:
    """Mean score of a group less that of the reference, when groups are imputed.

    Attributes
    ----------
    group, reference : str
    value, interval
        By weighting: if score and group are independent among people of the same probabilities.
    regressed, regressed_interval
        By regression: if score and probabilities are independent among people of the same group.
    low, high : float
        Least and largest over all distributions that agree with the probabilities.
    bounds : (float, float)
        The same with sampling error: they hold the gap with the stated confidence, whatever the
        distribution.
    """

    group: str
    reference: str
    value: float
    interval: tuple[float, float]
    regressed: float
    regressed_interval: tuple[float, float]
    low: float
    high: float
    bounds: tuple[float, float]

    @property
    def settled(self) -> bool:
        """Whether the sign of the gap is known without the assumption."""
        return self.bounds[0] > 0 or self.bounds[1] < 0


@dataclass(frozen=True)
class Imputation(Tabled):
    """What imputed membership does to an audit.

    Attributes
    ----------
    gaps : tuple of ImputedGap
        One for each group but the reference.
    certainty : float
        1 − H(A|Z)/H(A): the share of the uncertainty about the group that the probabilities remove.
        1 is a recorded group, and 0 says nothing about it.
    assume : {"guess", "group"} or None
        What the user takes for granted; see :class:`Proxy`.
    """

    gaps: tuple[ImputedGap, ...]
    certainty: float
    confidence_level: float = 0.95
    assume: str | None = None

    def __getitem__(self, group: str) -> ImputedGap:
        for gap in self.gaps:
            if gap.group == group:
                return gap
        raise KeyError(f"no group named {group!r}; there are {[g.group for g in self.gaps]}")

    def _columns(self) -> dict[str, Any]:
        names = ("group", "reference", "gap", "gap_low", "gap_high", "regressed",
                 "regressed_low", "regressed_high", "least", "largest", "bound_low",
                 "bound_high")  # fmt: skip
        rows = [
            (g.group, g.reference, g.value, *g.interval, g.regressed, *g.regressed_interval,
             g.low, g.high, *g.bounds)
            for g in self.gaps
        ]  # fmt: skip
        return dict(zip(names, zip(*rows, strict=True), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Everything by name."""
        return json_safe(vars(self))


def bound_gaps(rows: Sample, confidence_level: float) -> Imputation:
    """Bounds for the scores of rows with membership probabilities.

    Gaps are per unit of exposure, as in other tables; information is about rows.
    """
    s, people, groups = rows.scores, rows.groups, rows.by_exposure().groups
    p, weight = groups.probabilities, groups.row_weight
    strata = make_strata(p)
    z = float(ndtri(0.5 + confidence_level / 2))
    ref = int(np.argmax(groups.shares))
    terms = {
        "plain": s[:, None] * p,
        "high": _extreme_terms(s, p, weight, strata),
        "low": -_extreme_terms(-s, p, weight, strata),
    }
    total = weight @ p

    def mean(kind: str, k: int) -> tuple[float, Vector]:
        """Σωg/Σωp of group k, and its influence on a mean over rows."""
        g = terms[kind][:, k]
        value = float(weight @ g / total[k])
        return value, (g - value * p[:, k]) * (weight.sum() / total[k])

    def difference(upper: str, lower: str, k: int) -> tuple[float, float]:
        (a, psi_a), (b, psi_b) = mean(upper, k), mean(lower, ref)
        return a - b, z * standard_error(psi_a - psi_b, groups.weight, groups.cluster)

    mu, psi = _regress(s, p, weight)

    def gap(k: int) -> ImputedGap:
        value, half = difference("plain", "plain", k)
        least, below = difference("low", "high", k)
        most, above = difference("high", "low", k)
        slope = float(mu[k] - mu[ref])
        error = z * standard_error(psi[:, k] - psi[:, ref], groups.weight, groups.cluster)
        return ImputedGap(
            groups.label_names[k], groups.label_names[ref], value, (value - half, value + half),
            slope, (slope - error, slope + error), least, most, (least - below, most + above),
        )  # fmt: skip

    left = -float(np.average(xlogy(p, p).sum(axis=1), weights=people.weight))
    return Imputation(
        gaps=tuple(gap(k) for k in range(groups.n_groups) if k != ref),
        certainty=1.0 - left / people.entropy,
        confidence_level=confidence_level,
        assume=groups.assume,
    )


def _regress(s: Vector, p: Array, weight: Vector) -> tuple[Vector, Array]:
    """Means of the groups by least squares on the probabilities, and their influences, (n, K)."""
    inverse = np.linalg.pinv((p.T * weight) @ p / weight.sum(), hermitian=True)
    mu = inverse @ (p.T @ (weight * s)) / weight.sum()
    return mu, (p * (s - p @ mu)[:, None]) @ inverse


def make_strata(p: Array) -> Rows:
    """Numbers of strata of like probabilities, each split in two while it is wide and large."""
    label = np.zeros(len(p), dtype=np.intp)
    waiting = [np.arange(len(p))]
    count = 0
    while waiting:
        waiting.sort(key=len)
        rows = waiting.pop()
        parts = None
        if len(rows) >= 2 * LEAST_ROWS and count + len(waiting) + 2 <= MOST_STRATA:
            spread = p[rows].var(axis=0)
            k = int(spread.argmax())
            if spread[k] > 1e-8:
                parts = _halves(rows, p[rows, k])
        if parts is None:
            label[rows] = count
            count += 1
        else:
            waiting += parts
    return label


def _halves(rows: Rows, values: Vector) -> list[Rows] | None:
    """Two parts at the cut next to the median that leaves equal values together."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    cuts = np.flatnonzero(np.diff(ranked) > 0) + 1
    cuts = cuts[(cuts >= LEAST_ROWS) & (cuts <= len(rows) - LEAST_ROWS)]
    if not len(cuts):
        return None
    cut = cuts[np.abs(cuts - len(rows) / 2).argmin()]
    return [rows[order[:cut]], rows[order[cut:]]]


def _extreme_terms(s: Vector, p: Array, weight: Vector, strata: Rows) -> Array:
    """(n, K) terms (s − t_c)₊ + t_c·p_k, whose sum is the largest Σ_{i in k} s_i."""
    out = np.empty_like(p)
    order = np.lexsort((-s, strata))
    ends = np.searchsorted(strata[order], np.arange(int(strata.max()) + 2))
    for first, last in itertools.pairwise(ends):
        rows = order[first:last]
        mass = np.cumsum(weight[rows])
        wanted = weight[rows] @ p[rows]
        place = np.minimum(np.searchsorted(mass, wanted), len(rows) - 1)
        t = s[rows[place]]
        out[rows] = np.maximum(s[rows, None] - t, 0.0) + t * p[rows]
    return out
