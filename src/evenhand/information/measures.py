"""Entropies → one measure with its standard error and interval."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from ..groups.clusters import cluster_groups, cluster_sums, degrees_of_freedom
from ..groups.sensitive import Groups
from .criteria import Criterion, get_criterion
from .effective import unit_masses
from .entropies import Entropies, people_effective
from .judging import errors_below, half_width_down_to, judge, root_interval, upper_bound

Vector = NDArray[np.float64]
# A test is sure below this p-value, and an estimate beyond as many standard errors from zero.
SURE_P, SURE_ERRORS = 0.001, 3.29
SIGNIFICANT_P = 0.05
# `Measure.found` in words.
RULE = (
    f"p is the chance of data at least this uneven if the criterion held exactly; below "
    f"{SIGNIFICANT_P} the criterion is called violated. So it is where a value lies more than "
    f"{SURE_ERRORS} standard errors above zero and the test sees nothing, as the test does not "
    "look for every pattern, and where there is no test and the interval lies above 0. A test that "
    "counts copies of rows, where the estimate does not, decides only if the interval agrees."
)
UNSIZED = (
    "The test sees a difference that this estimate is too coarse to size: believe the test that "
    "there is one, and treat its size as unknown"
)
UNTESTED = (
    "The estimate sees a pattern that the test does not look for: believe the interval, not the p"
)
COPIES = (
    "Rows alike in value and group, as copies are, count once in this estimate and each time in "
    "the test, which makes its p too small: believe the interval, and pass what such rows have in "
    "common as `cluster` to test without them"
)


@dataclass(frozen=True)
class Measure:
    """One criterion, estimated.

    Attributes
    ----------
    criterion : str
    value : float
        Normalized information, a share in [0, 1]; slightly negative means "none was found". 0
        where it is not `defined`.
    nats : float
        The information itself, and `normalizer`, the entropy it is divided by.
    stderr : float
        Standard error of `value`, by the delta method through the normalizer; NaN where the value
        is not defined.
    interval : (float, float)
        For `value`, at the audit's confidence level, cut off at 0 and 1; from 0 to 1 where the
        value is not defined.
    p_value : float
        Of the hypothesis that the criterion holds exactly; NaN where it cannot be tested.
    estimator, chosen : str
        The estimator, and what it used.
    n : int
        Rows with a known group.
    n_effective : float
        Equally weighted rows, or clusters of equal size, that are worth as much.
    n_clusters : int or None
        Clusters, where rows are not independent.
    n_merged : int
        Rows that the estimate took for copies of others.
    freedom : float
        Degrees of freedom of the standard error: infinite for rows, few for few clusters.
    n_independent : float
        Independent rows that tell as much about the value; NaN where that was not found out.
    of : {"group", "measurement"}
        Of a measurement (:class:`evenhand.Continuous`) the value is 1 − exp(−2·nats), the share of
        its variance that is explained if all is normal, and `normalizer` ½, which nats are divided
        by where they are small.
    """

    criterion: str
    value: float
    nats: float
    normalizer: float
    stderr: float
    interval: tuple[float, float]
    p_value: float
    estimator: str
    chosen: str
    n: int
    n_effective: float
    n_clusters: int | None = None
    n_merged: int = 0
    freedom: float = math.inf
    n_independent: float = math.nan
    of: str = "group"

    def __float__(self) -> float:
        return self.value

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, judgments included."""
        judged = {name: getattr(self, name) for name in ("defined", "found", "conflict")}
        return {**vars(self), **judged}

    @property
    def shown(self) -> float:
        """The value for people: no less than 0, so that it lies in its interval."""
        return max(self.value, 0.0)

    @property
    def meaning(self) -> str:
        """The value in words."""
        percent = f"{100 * self.shown:.{1 if self.value < 0.1 else 0}f}%"
        words = get_criterion(self.criterion).meaning
        if self.of == "measurement":
            words = words.replace(
                "removes {percent} of the uncertainty about the group",
                "tells as much about the attribute as explaining {percent} of its variance would",
            )
        return words.format(percent=percent)

    @property
    def question(self) -> str:
        """What the criterion asks, of a group or of a measurement."""
        return asked(get_criterion(self.criterion), self.of == "measurement")

    @property
    def defined(self) -> bool:
        """Whether there is something to measure.

        Not where what is conditioned on gives the group away by itself: nothing is left to tell
        about it then, and the value is 0/0.
        """
        return not math.isnan(self.stderr)

    @property
    def found(self) -> bool:
        """Whether the criterion is violated: the one rule of audits, frontiers and reports (RULE).

        That is p < 0.05, or a value so many standard errors above zero that a test which sees
        nothing must be blind to it; without a test, or with one that counts copies, an interval
        above zero. False where the value is not defined.
        """
        if not self.defined or self._copied:
            return False
        if math.isnan(self.p_value):
            return self.interval[0] > 0
        return self.p_value < SIGNIFICANT_P or self._sure

    def bounds(self, level: float = SIGNIFICANT_P) -> tuple[float, float]:
        """A lower and an upper bound, each beyond the true value with this chance at the most.

        The upper one is somewhat further out than the end of an interval of that level, which is
        made to hold the truth and not to be on the safe side of it (:func:`.errors_below`).
        """
        errors = float(stdtrit(self.freedom, 1.0 - level))
        low = root_interval(self.value, errors * self.stderr)[0]
        return low, upper_bound(self.value, self.stderr, self._rate, errors)

    @property
    def _rate(self) -> float:
        """How fast the variance of the value grows with it: 2/(n·H)."""
        n = self.n_effective if math.isnan(self.n_independent) else self.n_independent
        return 2.0 / (n * self.normalizer)

    def errors_above(self, limit: float) -> float:
        """By how many standard errors the value lies above a limit, or with a minus below it.

        0 where the value is not defined, or not sized: then it is not known on which side it lies.
        """
        if not self.defined:
            return 0.0
        if self.value > limit:
            half = half_width_down_to(self.value, limit)
            return half / self.stderr if self.stderr > 0 else math.inf
        return 0.0 if self.unsized else errors_below(self.value, self.stderr, limit, self._rate)

    def p_values(self, limit: float) -> tuple[float, float]:
        """Of the hypotheses that the true value lies within a limit, and beyond it."""
        errors = self.errors_above(limit)
        return float(stdtr(self.freedom, -errors)), float(stdtr(self.freedom, errors))

    def judged(self, limit: float, level: float = SIGNIFICANT_P) -> str:
        """ "violated", "holds" or "not enough data" against a limit (:func:`.judging.judge`)."""
        return judge(*self.p_values(limit), level)

    @property
    def unsized(self) -> bool:
        """Whether a test is sure of a difference where the interval still holds zero."""
        doubtful = self._copied or not self.defined
        return not doubtful and self.p_value < SURE_P and self.interval[0] <= 0.0 < self.interval[1]

    @property
    def conflict(self) -> str:
        """Which of test and estimate to believe where they contradict one another, else ""."""
        if self._copied:
            return COPIES
        if self.unsized:
            return UNSIZED
        return UNTESTED if self.p_value >= SIGNIFICANT_P and self._sure else ""

    @property
    def _copied(self) -> bool:
        """Whether a test that counts copies finds what an estimate that does not leaves open."""
        small = self.p_value < SIGNIFICANT_P and self.interval[0] <= 0.0
        return self.defined and self.n_merged > 0 and small

    @property
    def _sure(self) -> bool:
        return self.interval[0] > 0 and self.value > SURE_ERRORS * self.stderr


def asked(criterion: Criterion, measured: bool) -> str:
    """The question of a criterion, in words that fit a measurement where it is of one."""
    words = criterion.question
    if measured:
        words = words.replace("in every group", "at every value of the attribute")
        words = words.replace("whatever their group", "whatever their value of the attribute")
    return words


def measure_columns(measures: Collection[Measure]) -> dict[str, list[Any]]:
    """The measures as columns of a table, one row each."""
    return {
        "criterion": [m.criterion for m in measures],
        "value": [m.value for m in measures],
        "low": [m.interval[0] for m in measures],
        "high": [m.interval[1] for m in measures],
        "stderr": [m.stderr for m in measures],
        "p_value": [m.p_value for m in measures],
        "nats": [m.nats for m in measures],
        "normalizer": [m.normalizer for m in measures],
        "n": [m.n for m in measures],
        "n_clusters": [m.n_clusters for m in measures],
        "estimator": [m.estimator for m in measures],
        "chosen": [m.chosen for m in measures],
    }


def measure(
    criterion: Criterion, entropies: Entropies, confidence_level: float, p_value: float,
    estimator: str, n_boot: int = 0, seed: int = 0, frequency: Vector | None = None,
) -> Measure:  # fmt: skip
    """A :class:`Measure` from entropies: v = 1 − H_joint/H_given and its error.

    With ψ the influence of each row on v, the variance is Σω²ψ²/(Σω)², or with clusters
    Σ_c(Σωψ)²/(Σω)². Where the criterion nearly holds, ψ vanishes and what is left is the noise of
    the p parameters that the joint classifier fits beyond the other, with variance p/(2n²) in nats
    and more for small groups; of clustered rows n counts those that are worth independent ones.
    Where an estimator averages several bases, the variance between what they say is added.

    `frequency` says for how many people a row stands, each with its share of the weight; errors
    and sizes are then those of people, with Σω²ψ²/f for Σω²ψ².
    """
    groups = entropies.groups
    n_people, n_effective = groups.n_known, groups.n_effective
    if frequency is not None:
        n_people = round(frequency.sum())
        n_effective = people_effective(groups, frequency)
    value, nats = entropies.normalized(criterion), entropies.nats(criterion)
    slope = entropies.slope(criterion)
    freedom, independent = math.inf, math.nan
    if entropies.exhausted(criterion):
        stderr = float("nan")
    else:
        psi = entropies.influence(criterion)
        independent = entropies.independent.get(criterion.name, n_effective)
        noise = entropies.fitting_noise(criterion, independent) / slope
        if n_boot:
            spread = _bootstrap_error(psi, groups.weight, groups.cluster, n_boot, seed)
        else:
            spread = standard_error(psi, groups.weight, groups.cluster, frequency)
        between = math.sqrt(entropies.joint(criterion).between) / slope
        stderr = math.hypot(spread, noise, between)
        freedom = freedom_of(psi, groups)
    quantile = float(stdtrit(freedom, 0.5 + confidence_level / 2))
    interval = root_interval(value, quantile * stderr)
    joint = entropies.joint(criterion)
    return Measure(
        criterion=criterion.name,
        value=value,
        nats=nats,
        normalizer=entropies.normalizer(criterion),
        stderr=stderr,
        interval=interval,
        p_value=p_value,
        estimator=estimator,
        chosen=joint.chosen,
        n=n_people,
        n_effective=n_effective,
        n_clusters=None if groups.cluster is None else groups.n_units,
        n_merged=joint.merged,
        freedom=freedom,
        n_independent=independent,
        of="measurement" if groups.measured is not None else "group",
    )


def critical_value(confidence_level: float, psi: Vector, groups: Groups) -> float:
    """Standard errors to either side: normal for rows, Student's t for clusters."""
    return float(stdtrit(freedom_of(psi, groups), 0.5 + confidence_level / 2))


def freedom_of(psi: Vector, groups: Groups) -> float:
    """Degrees of freedom of Student's t: infinite for rows, for which it is normal.

    Clusters are few more often than rows are, and unequal, so that their sum of squares is itself
    uncertain; with hundreds of them the two agree.
    """
    if groups.cluster is None:
        return math.inf
    sums = cluster_sums(groups.cluster, _centered(psi, groups.weight))
    return degrees_of_freedom(np.square(sums), unit_masses(groups))


def _centered(psi: Vector, weight: Vector | None) -> Vector:
    """ω(ψ − mean ψ)."""
    return psi - psi.mean() if weight is None else (psi - np.average(psi, weights=weight)) * weight


def standard_error(
    psi: Vector, weight: Vector | None, cluster: NDArray[np.intp] | None = None,
    frequency: Vector | None = None,
) -> float:  # fmt: skip
    """√(Σω²(ψ − mean ψ)²)/Σω, with n/(n − 1) for the mean: the error of a weighted mean of ψ.

    With clusters the sum is of squares of sums over each of the G clusters, with G/(G − 1). With
    frequencies f a row is f people of weight ω/f.
    """
    centered = _centered(psi, weight)
    if frequency is not None:
        centered = centered / np.sqrt(frequency)
    if cluster is not None:
        centered = cluster_sums(cluster, centered)
    n = len(centered)
    if n < 2:
        return float("nan")
    total = float(len(psi)) if weight is None else float(weight.sum())
    return math.sqrt(float(centered @ centered) * n / (n - 1)) / total


def _bootstrap_error(
    psi: Vector, weight: Vector | None, cluster: NDArray[np.intp] | None, n_boot: int, seed: int
) -> float:
    """Spread of the mean of psi over draws of rows, or of clusters; each keeps its weight."""
    rng = np.random.default_rng(seed)
    weight = np.ones(len(psi)) if weight is None else weight
    terms = np.column_stack([weight * psi, weight])
    if cluster is not None:
        terms = cluster_groups(cluster, terms)
    n = len(terms)
    uniform = np.full(n, 1.0 / n)
    # A batch of draws is a table of counts, and its means one product with it.
    means: list[float] = []
    while len(means) < n_boot:
        size = min(max(2_000_000 // n, 1), n_boot - len(means))
        sums = rng.multinomial(n, uniform, size=size) @ terms
        means += (sums[:, 0] / sums[:, 1]).tolist()
    return float(np.std(means, ddof=1))
