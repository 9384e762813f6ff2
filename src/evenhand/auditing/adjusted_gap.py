"""Gaps in units of the score among people with the same controls.

    raw       = E[S | A = k] − E[S | A = r]
    adjusted  = E[S − m(C) | A = k],   m(C) = E[S | A = r, C]
    explained = raw − adjusted = E[m(C) | A = k] − E[S | A = r]

What members of a group get beyond members of the reference with the same controls, averaged over
the members of the group: an effect "on the treated", which needs counterparts for them alone. With
the odds o(C) = P(k|C) / P(r|C), the estimate is

    Σ_k w(S − m̂)/Σ_k w − Σ_r w·ô(S − m̂)/Σ_r w·ô,

right if either m̂ or ô is, with errors from the influence of each row. Nothing is divided by what
the controls leave of the score, so a score without noise is as good as any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from .._core.arrays import Vector
from ..data.groups import Groups
from ..data.weights import cluster_sums, degrees_of_freedom
from ..measures.effective import LEAST, group_sizes, unit_masses
from ..measures.nuisance import Features, Fitted

# A member has hardly any counterpart where fewer than one in fifty with the same controls is of
# the reference; such members are left out of the adjusted gap and counted.
LEAST_COUNTERPARTS = 0.02
# A percentage needs a score with a natural zero: nearly all of one sign, that of its mean.
POSITIVE_SHARE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error, interval, and the p-value of its being zero."""

    value: float
    stderr: float
    interval: tuple[float, float]
    p_value: float
    freedom: float = math.inf

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class AdjustedGap:
    """One group against the reference.

    Attributes
    ----------
    group, reference : str
    raw, adjusted, explained : Estimate
        In units of the score; `raw` is the sum of the other two. Where members were left out for
        want of a counterpart, what sets them apart counts as explained.
    raw_percent, adjusted_percent, explained_percent : Estimate
        The same in percent of the reference's mean score; NaN where scores have both signs, as
        zero then is no natural origin.
    ratio_percent : Estimate
        How far, in percent, the group's mean lies above what the reference with the group's
        controls would have; NaN likewise.
    p_adjusted : float
        p-value of `adjusted` after Holm's correction for the number of groups.
    n : int or float
        Rows of the group; expected rows of a proxy.
    n_compared : int
        Rows of possible members that have a counterpart.
    no_counterpart : float
        Share of the group's rows with hardly any counterpart in the reference.
    n_counterparts : float
        Rows of the reference of equal weight that the comparison rests on, (Σo)²/Σo².
    propensity : str
        The model of the group's odds.
    note : str
        Why there is no estimate, where there is none.
    """

    group: str
    reference: str
    raw: Estimate
    adjusted: Estimate
    explained: Estimate
    raw_percent: Estimate
    adjusted_percent: Estimate
    explained_percent: Estimate
    ratio_percent: Estimate
    p_adjusted: float
    n: float
    n_compared: int
    no_counterpart: float
    n_counterparts: float
    propensity: str
    note: str = ""

    @property
    def is_estimated(self) -> bool:
        return not math.isnan(self.adjusted.value)

    def to_dict(self) -> dict[str, Any]:
        """Everything by name."""
        out = dict(vars(self))
        return {k: dict(vars(v)) if isinstance(v, Estimate) else v for k, v in out.items()}


class _Gaps:
    """Errors of sums over rows or clusters, with Student's t."""

    def __init__(self, groups: Groups, confidence_level: float):
        self.groups = groups
        self.tail = 0.5 + confidence_level / 2
        self.mass = unit_masses(groups)

    def estimate(self, value: float, psi: Vector, groups_used: list[int]) -> Estimate:
        """`psi` sums to 0 over rows; the variance is the sum of its squares over units."""
        cluster = self.groups.cluster
        sums = psi if cluster is None else cluster_sums(cluster, psi)
        mass = self.mass[:, groups_used]
        used = mass.sum(axis=1) > 0
        squares = np.square(sums[used])
        count = int(used.sum())
        if count < 2 or not math.isfinite(value):
            return missing_estimate()
        error = math.sqrt(float(squares.sum()) * count / (count - 1))
        freedom = degrees_of_freedom(squares, mass[used])
        half = float(stdtrit(freedom, self.tail)) * error
        if error > 0:
            p_value = 2.0 * float(stdtr(freedom, -abs(value) / error))
        else:
            p_value = 1.0 if value == 0.0 else 0.0
        return Estimate(value, error, (value - half, value + half), p_value, freedom)


def missing_estimate() -> Estimate:
    """No estimate: NaN throughout."""
    nan = float("nan")
    return Estimate(nan, nan, (nan, nan), nan)


def adjusted_gaps(
    s: Vector, groups: Groups, features: Features, reference: int, confidence_level: float
) -> tuple[list[AdjustedGap], Fitted]:
    """The gap of every group but the reference, and the model m̂ of the reference's scores.

    Parameters
    ----------
    s : (m,) array
        Scores of the rows with a known group.
    groups : Groups
    features : Features
        The controls of the same rows.
    reference : int
        Number of the group that the others are compared with.
    confidence_level : float
    """
    membership = groups.membership()
    weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
    in_r = weight * membership[:, reference]
    outcome = features.regress(s, in_r)
    left = s - outcome.value
    mean_r = float(in_r @ s / in_r.sum())
    psi_r = in_r * (s - mean_r) / in_r.sum()
    positive = float(weight @ (s > 0) / weight.sum()) >= POSITIVE_SHARE and mean_r > 0
    sizes = group_sizes(groups)
    gaps = _Gaps(groups, confidence_level)
    found = []
    for k in range(groups.n_groups):
        if k == reference:
            continue
        in_k = weight * membership[:, k]
        mean_k = float(in_k @ s / in_k.sum())
        psi_k = in_k * (s - mean_k) / in_k.sum()
        raw, psi_raw, used = mean_k - mean_r, psi_k - psi_r, [reference, k]

        def percent(value: float, psi: Vector, used: list[int] = used) -> Estimate:
            if not positive:
                return missing_estimate()
            change = 100 * (psi / mean_r - value / mean_r**2 * psi_r)
            return gaps.estimate(100 * value / mean_r, change, used)

        comparison = _compare(left, in_k, in_r, features, outcome)
        value, psi, note = comparison.value, comparison.psi, comparison.note
        unit = "clusters" if groups.cluster is not None else "rows"
        if sizes[k] < LEAST:
            value = float("nan")
            note = (
                f"the group counts for {sizes[k]:.2g} effective {unit}, fewer than the {LEAST:g} "
                "that a comparison takes"
            )
        ratio = missing_estimate()
        if positive and math.isfinite(value):
            t = comparison.kept
            inside = in_k * t
            mean_t = float(inside @ s / inside.sum())
            expected = mean_t - value
            if expected > 0:
                psi_t = inside * (s - mean_t) / inside.sum()
                above = mean_t / expected
                change = 100 * above * (psi_t / mean_t - (psi_t - psi) / expected)
                ratio = gaps.estimate(100 * (above - 1), change, used)
        found.append(
            AdjustedGap(
                groups.label_names[k], groups.label_names[reference],
                gaps.estimate(raw, psi_raw, used), gaps.estimate(value, psi, used),
                gaps.estimate(raw - value, psi_raw - psi, used), percent(raw, psi_raw),
                percent(value, psi), percent(raw - value, psi_raw - psi), ratio, float("nan"),
                float(groups.counts[k]) if groups.codes is None else int(groups.counts[k]),
                comparison.n_compared, comparison.no_counterpart, comparison.n_counterparts,
                comparison.propensity, note,
            )
        )  # fmt: skip
    corrected = holm([gap.adjusted.p_value for gap in found])
    found = [
        AdjustedGap(**{**vars(g), "p_adjusted": p}) for g, p in zip(found, corrected, strict=True)
    ]
    return found, outcome


@dataclass(frozen=True)
class _Comparison:
    value: float
    psi: Vector
    kept: NDArray[np.bool_]
    n_compared: int
    no_counterpart: float
    n_counterparts: float
    propensity: str
    note: str


def _compare(
    left: Vector, in_k: Vector, in_r: Vector, features: Features, outcome: Fitted
) -> _Comparison:
    """The adjusted gap of one pair of groups from S − m̂, and the influence of each row."""
    both = in_k + in_r
    label = np.divide(in_k, both, out=np.zeros_like(both), where=both > 0)
    # Given both groups' masses in a row, a hard label is 0 or 1 and a proxy's is in between.
    fitted = features.classify(label, both)
    odds = fitted.value / (1.0 - fitted.value)
    most = 1.0 / LEAST_COUNTERPARTS - 1.0
    # A reference that is the smaller group is not for that reason far away.
    kept = odds * min(in_r.sum() / in_k.sum(), 1.0) <= most
    inside, outside = in_k * kept, in_r * kept * odds
    members = in_k > 0
    share = 1.0 - float(inside.sum() / in_k.sum())
    n_compared = int((members & kept).sum())
    if not inside.any() or not outside.any():
        empty = np.zeros_like(left)
        note = "no member of the group has a counterpart with the same controls in the reference"
        return _Comparison(
            float("nan"), empty, kept, n_compared, 1.0, 0.0, fitted.chosen, note
        )  # fmt: skip
    first = float(inside @ left / inside.sum())
    second = float(outside @ left / outside.sum())
    psi = inside * (left - first) / inside.sum() - outside * (left - second) / outside.sum()
    if outcome.pull is not None:
        # What the rows of the reference do through m̂: of second order, but with clusters or few
        # rows intervals would be too short without it.
        psi -= outcome.pull(inside / inside.sum() - outside / outside.sum()) * left
    n_counterparts = float(outside.sum() ** 2 / np.square(outside).sum())
    return _Comparison(
        first - second, psi, kept, n_compared, share, n_counterparts, fitted.chosen, ""
    )  # fmt: skip


def holm(p_values: list[float]) -> list[float]:
    """p-values that allow for their number (Holm 1979); NaNs stay and do not count.

    The j-th smallest of m is multiplied by m − j + 1, and none comes out below a smaller one.
    """
    p = np.asarray(p_values, dtype=np.float64)
    out = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    factor = len(order) - np.arange(len(order))
    out[order] = np.minimum(np.maximum.accumulate(p[order] * factor), 1.0)
    return out.tolist()
