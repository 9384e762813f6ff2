"""Gaps in units of the score among people with the same controls.

    raw       = E[S | A = k] − E[S | A = r]
    adjusted  = E[S − m(C) | A = k],   m(C) = E[S | A = r, C]
    explained = raw − adjusted = E[m(C) | A = k] − E[S | A = r]

What members of a group get beyond members of the reference with the same controls, averaged over
the members of the group: an effect "on the treated", which needs counterparts for them alone. The
reference is weighted to the group's controls and a regression corrects for what imbalance is left
(:mod:`evenhand.measures.balancing`); errors are from the influence of each row. Nothing is divided
by what the controls leave of the score, so a score without noise is as good as any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from .._core.arrays import Vector
from ..data.groups import Groups
from ..data.weights import cluster_sums, degrees_of_freedom
from ..measures.balancing import Balance, Basis, boost
from ..measures.effective import LEAST, group_sizes, unit_masses
from .influence import holm, two_sided

# A percentage needs a score with a natural zero: nearly all of one sign, that of its mean.
POSITIVE_SHARE = 0.95
# Standardized differences beyond this are too large to be called balanced (Austin 2009).
MOST_IMBALANCE = 0.1


@dataclass(frozen=True)
class Estimate:
    """A number with its standard error, interval, and the p-value of its being zero.

    `freedom` and `skewness` are those of its error.
    """

    value: float
    stderr: float
    interval: tuple[float, float]
    p_value: float
    freedom: float = math.inf
    skewness: float = 0.0

    def __float__(self) -> float:
        return self.value


MISSING = Estimate(math.nan, math.nan, (math.nan, math.nan), math.nan)


@dataclass(frozen=True)
class Imbalance:
    """What sets a group apart from the weighted reference still, in standard deviations.

    Attributes
    ----------
    group, control : str
        The group, and the control with the largest difference.
    difference : float
        The largest standardized difference of any control: of a number's mean, or of the share of
        a level.
    left_over : float
        Difference of boosted trees' prediction of the score beyond what the columns of the controls
        explain, over the standard deviation of what they do not; 0 where trees predict nothing
        more out of fold. The adjusted gap has been corrected for it.
    """

    group: str
    control: str
    difference: float
    left_over: float

    @property
    def largest(self) -> float:
        return max(self.difference, self.left_over)

    @property
    def is_balanced(self) -> bool:
        return self.largest <= MOST_IMBALANCE


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
        How far, in percent, the group's mean is above what the reference with the group's
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
        Rows of the reference of equal weight that the comparison rests on, 1/Σq².
    balance : Imbalance
        What differences of the controls the weights leave.
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
    balance: Imbalance
    note: str = ""

    @property
    def is_estimated(self) -> bool:
        return not math.isnan(self.adjusted.value)


def adjusted_gaps(
    s: Vector, groups: Groups, basis: Basis, reference: int, confidence_level: float,
    seed: int = 0,
) -> list[AdjustedGap]:  # fmt: skip
    """Return the gap of each group but the reference.

    Parameters
    ----------
    s : (m,) array
        Scores of the rows with a known group.
    groups : Groups
    basis : Basis
        Columns of the controls of the same rows.
    reference : int
        Number of the group that the others are compared with.
    confidence_level : float
    seed : int
        Of folds.
    """
    gaps = _Gaps(s, groups, basis, reference, confidence_level, seed)
    result = [gaps.compare(k) for k in range(groups.n_groups) if k != reference]
    corrected = holm([gap.adjusted.p_value for gap in result])
    return [replace(gap, p_adjusted=float(p)) for gap, p in zip(result, corrected, strict=True)]


class _Gaps:
    """Comparisons with one reference, and errors of sums over rows or clusters."""

    def __init__(
        self, s: Vector, groups: Groups, basis: Basis, reference: int, confidence_level: float,
        seed: int,
    ):  # fmt: skip
        self.s, self.groups, self.basis, self.reference = s, groups, basis, reference
        self.seed, self.tail = seed, 0.5 + confidence_level / 2
        self.boosted: dict[bytes, Vector] = {}
        self.mass, self.sizes = unit_masses(groups), group_sizes(groups)
        self.weight = groups.row_weight
        self.membership = groups.membership()
        self.mean, self.psi = self._mean(self.weight * self.membership[:, reference])
        positive = float(self.weight @ (s > 0) / self.weight.sum()) >= POSITIVE_SHARE
        self.is_positive = positive and self.mean > 0

    def _mean(self, mass: Vector) -> tuple[float, Vector]:
        """A mean of scores and the influence of each row."""
        share = mass / mass.sum()
        mean = float(share @ self.s)
        return mean, share * (self.s - mean)

    def compare(self, k: int) -> AdjustedGap:
        """One group against the reference."""
        groups, label = self.groups, self.groups.label_names
        in_k, in_r = (self.weight * self.membership[:, j] for j in (k, self.reference))
        mean, psi_mean = self._mean(in_k)
        raw, psi_raw = mean - self.mean, psi_mean - self.psi
        size = float(self.sizes[self.reference])
        balance = Balance(self.basis, in_k, in_r, self.s, groups.cluster, size)
        value, psi, note = float("nan"), np.zeros_like(self.s), ""
        unit = "clusters" if groups.cluster is not None else "rows"
        left = Imbalance(label[k], "", 0.0, 0.0)
        if not balance.is_possible:
            note = "no member of the group has a counterpart with the same controls"
            note += " in the reference"
        elif self.sizes[k] < LEAST:
            note = (
                f"the group counts for {self.sizes[k]:.2g} effective {unit}, fewer than the "
                f"{LEAST:g} that a comparison takes"
            )
        else:
            value, psi, left = self._effect(label[k], balance, in_k)
        used = [self.reference, k]
        parts = ((raw, psi_raw), (value, psi), (raw - value, psi_raw - psi))
        inside = in_k * balance.kept
        plain = [self.estimate(v, p, used) for v, p in parts]
        relative = [self._percent(v, p, used) for v, p in parts]
        return AdjustedGap(
            label[k], label[self.reference], plain[0], plain[1], plain[2],
            relative[0], relative[1], relative[2],
            self._ratio(value, psi, inside, used), float("nan"),
            float(groups.counts[k]) if groups.codes is None else int(groups.counts[k]),
            len(balance.members) if balance.is_possible else 0,
            1.0 - float(inside.sum() / in_k.sum()) if balance.is_possible else 1.0,
            balance.n_counterparts if balance.is_possible else 0.0, left, note,
        )  # fmt: skip

    def _effect(self, name: str, balance: Balance, in_k: Vector) -> tuple[float, Vector, Imbalance]:
        """The adjusted gap, influences, and what imbalance is left."""
        left, more = balance.residuals(self.s), 0.0
        trees = boost(balance, self.s, in_k, self.weight, self.seed, self.boosted)
        if trees is not None:
            beyond = balance.residuals(trees)
            spread = float(left[balance.rows].std())
            more = abs(balance.effect(trees)) / spread if spread > 0 else 0.0
            left = left - beyond
        # Of a score that is a function of the controls, rounding is left.
        left = np.where(np.abs(left) > 1e-10 * np.ptp(self.s), left, 0.0)
        value = float(balance.member_share @ left[balance.members])
        return value, balance.influences(left), Imbalance(name, *balance.worst_control(), more)

    def _percent(self, value: float, psi: Vector, used: list[int]) -> Estimate:
        """In percent of the reference's mean."""
        if not self.is_positive:
            return MISSING
        change = 100 * (psi / self.mean - value / self.mean**2 * self.psi)
        return self.estimate(100 * value / self.mean, change, used)

    def _ratio(self, value: float, psi: Vector, inside: Vector, used: list[int]) -> Estimate:
        """In percent of what the reference with the group's controls would have."""
        if not self.is_positive or not math.isfinite(value):
            return MISSING
        mean, psi_mean = self._mean(inside)
        expected = mean - value
        if expected <= 0:
            return MISSING
        above = mean / expected
        change = 100 * above * (psi_mean / mean - (psi_mean - psi) / expected)
        return self.estimate(100 * (above - 1), change, used)

    def estimate(self, value: float, psi: Vector, groups_used: list[int]) -> Estimate:
        """`psi` sums to 0 over rows; the variance is the sum of its squares over units."""
        cluster = self.groups.cluster
        sums = psi if cluster is None else cluster_sums(cluster, psi)
        mass = self.mass[:, groups_used]
        used = mass.sum(axis=1) > 0
        squares = np.square(sums[used])
        count = int(used.sum())
        if count < 2 or not math.isfinite(value):
            return MISSING
        error = math.sqrt(float(squares.sum()) * count / (count - 1))
        freedom = degrees_of_freedom(squares, mass[used])
        half = float(stdtrit(freedom, self.tail)) * error
        p_value = two_sided(value, error, freedom)
        skewness = float(((sums[used] / error) ** 3).sum()) if error > 0 else 0.0
        return Estimate(value, error, (value - half, value + half), p_value, freedom, skewness)
