"""Entropies → one measure with its standard error and interval."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from .._core.arrays import Rows, Vector
from .._core.frames import tabulate
from .._core.validation import InputError, warn_user
from .._core.views import Shown
from ..data.criteria import INDEPENDENCE, SEPARATION, SUFFICIENCY, Criterion, get_criterion
from ..data.groups import Groups
from ..data.sample import Sample, too_many
from ..data.weights import cluster_sums, degrees_of_freedom
from .cell_rows import expand_cells, refuse_beside_cells
from .cells import Cells
from .effective import SharedValuesWarning, check_effective_size, find_shared_values, unit_masses
from .entropies import Entropies, estimate_entropies, get_estimator, people_effective

# ------------------------------------------------------------------------------------------------
# One rule for three words: violated, holds, not enough data.
#
# A value lies within a tolerance where a test at the stated level rejects that it lies beyond, and
# beyond where a test rejects that it lies within; else the data are not enough to tell. For a
# two-sided tolerance the former are two one-sided tests (equivalence). Without a tolerance,
# "beyond"
# is any departure from exact fairness (:data:`.measures.RULE`).


VIOLATED, HOLDS, OPEN = "violated", "holds", "not enough data"
RULE_WITH_TOLERANCE = (
    "A limit is not met if the data show, with the stated confidence, that the true value is "
    "outside it (a one-sided test, with Holm's correction for the number of tests). It is met if "
    "they show that the value is within. Otherwise there is not enough data. One limit that is not "
    "met is a fail. A pass needs all limits to be met, for which no correction is needed."
)


def judge(p_within: float, p_beyond: float, level: float) -> str:
    """The word for two p-values.

    Parameters
    ----------
    p_within : float
        Of the hypothesis that the value is within the tolerance.
    p_beyond : float
        Of the hypothesis that it is outside.
    level : float
    """
    if p_within < level:
        return VIOLATED
    return HOLDS if p_beyond < level else OPEN


def units_needed(n: float, errors: float, level: float, power: float = 0.8) -> float:
    """n·((z_level + z_power)/errors)²: units that would decide, if the estimate is the truth.

    Parameters
    ----------
    n : float
        Rows or clusters there are.
    errors : float
        Standard errors between the estimate and the limit.
    level, power : float
        Of the one-sided test, and how often it is to decide.
    """
    wanted = float(ndtri(1.0 - level) + ndtri(power))
    if not errors or not math.isfinite(wanted / errors) or math.isnan(n):
        return math.inf
    return float(math.ceil(n * (wanted / errors) ** 2))


def root_interval(value: float, half: float) -> tuple[float, float]:
    """(√v ± half/(2√v))², cut off at 0 and 1.

    The error of an information grows with its square root, so the root is where it is symmetric.
    Below one half-width the value itself is too uncertain to scale by, and the shift stays put.
    """
    if not math.isfinite(half):
        return 0.0, 1.0
    if value < -half:  # further below 0 than chance can take it: a misfit, not a measurement
        value = 0.0
    shift = half / 4 if value <= half else half * half / (4 * value)
    low = value - half + shift if value > half / 2 else 0.0
    high = value + half + shift
    return min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)


def half_width_down_to(value: float, limit: float) -> float:
    """The half-width at which :func:`root_interval` of a larger value begins at the limit."""
    root = 2.0 * math.sqrt(value) * (math.sqrt(value) - math.sqrt(limit))
    return root if root <= value else (value - limit) / 0.75


def errors_below(value: float, stderr: float, limit: float, rate: float) -> float:
    """Standard errors from a value up to a limit, with the error there would be at the limit.

        x = (v − L)/σ,  σ² = stderr² + rate·(L − v);  x − γ(x² − 1)/6,  γ = min(1.5·σ/L, 1)

    The variance of an information grows with it, by `rate` = 2/(n·H), and a value that came out
    small by chance brings a small standard error along: judged by that one, 15 % of samples would
    pass whose true value is the limit. The last term is Cornish and Fisher's for the skewness of a
    noncentral χ², without which the test would hardly ever pass with few rows. A value below 0
    counts as 0.

    Returns
    -------
    float
        0 or less.
    """
    value = max(value, 0.0)
    spread = math.sqrt(stderr * stderr + rate * (limit - value))
    if spread == 0.0:
        return -math.inf
    x = (value - limit) / spread
    skewness = min(1.5 * spread / limit, 1.0)
    return min(x - skewness * (x * x - 1.0) / 6.0, 0.0)


def upper_bound(value: float, stderr: float, rate: float, errors: float) -> float:
    """The limit that a value lies so many `errors` below (:func:`errors_below`), at most 1."""
    low, high = max(value, 0.0), 1.0
    if not math.isfinite(stderr) or -errors_below(value, stderr, high, rate) < errors:
        return 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if middle > 0.0 and -errors_below(value, stderr, middle, rate) >= errors:
            high = middle
        else:
            low = middle
    return high


# A test is sure below this p-value, and an estimate beyond as many standard errors from zero.
SURE_P, SURE_ERRORS = 0.001, 3.29
SIGNIFICANT_P = 0.05
# `Measure.found` in words.
RULE = (
    f"p is the chance of data at least this uneven if the criterion held exactly. We report a "
    f"violation if p is below {SIGNIFICANT_P}, or if the estimate is more than {SURE_ERRORS} "
    "standard errors above zero, as the test does not look for every pattern. Without a test, we "
    "report one if the interval is above 0. If a test counts copies of rows and the estimate does "
    "not, the test decides only if the interval agrees."
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
class Measure(Shown):
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
        """The value for people: no less than 0, so that it is in its interval."""
        return max(self.value, 0.0)

    @property
    def meaning(self) -> str:
        """The value in words."""
        places = 1 - math.floor(math.log10(self.stderr)) if self.stderr > 0 else 0
        percent = f"{100 * self.shown:.{min(max(places - 3, 1), 7)}f}%"
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
        """By how many standard errors the value is above a limit, or with a minus below it.

        0 where the value is not defined, or not sized: then it is not known on which side it lies.
        """
        if not self.defined:
            return 0.0
        if self.value > limit:
            half = half_width_down_to(self.value, limit)
            return half / self.stderr if self.stderr > 0 else math.inf
        return 0.0 if self.unsized else errors_below(self.value, self.stderr, limit, self._rate)

    def p_values(self, limit: float) -> tuple[float, float]:
        """Of the hypotheses that the true value is within a limit, and that it is not."""
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


def measure_columns(measures: Iterable[Measure]) -> dict[str, list[Any]]:
    """The measures as columns of a table, one row each."""
    return tabulate(
        measures, "criterion", "value", "interval", "stderr", "p_value", "nats", "normalizer", "n",
        "n_clusters", "estimator", "chosen",
    )  # fmt: skip


def measure(
    criterion: Criterion, entropies: Entropies, confidence_level: float, p_value: float,
    estimator: str, frequency: Vector | None = None,
) -> Measure:  # fmt: skip
    """A :class:`Measure` from entropies: v = 1 − H_joint/H_given and its error.

    With ψ the influence of each row on v, the variance is Σω²ψ²/(Σω)², or with clusters
    Σ_c(Σωψ)²/(Σω)². Where the criterion nearly holds, ψ vanishes and what is left is the noise of
    the p parameters that the joint classifier fits beyond the other, with variance p/(2n²) in nats
    and more for small groups; of clustered rows n counts those that are worth independent ones.
    Where an estimator averages several bases, the variance between what they say is added.

    The interval of a measurement holds 0 unless the test rejects at its level, or the value lies
    many standard errors above.

    `frequency` says for how many people a row stands, each with its share of the weight; errors
    and sizes are then those of people, with Σω²ψ²/f for Σω²ψ².
    """
    groups, joint = entropies.groups, entropies.joint(criterion)
    n_people, n_effective = groups.n_known, groups.n_effective
    if frequency is not None:
        n_people = round(frequency.sum())
        n_effective = people_effective(groups, frequency)
    value = entropies.normalized(criterion)
    freedom, independent, stderr = math.inf, math.nan, math.nan
    if not entropies.exhausted(criterion):
        psi, slope = entropies.influence(criterion), entropies.slope(criterion)
        independent = entropies.independent.get(criterion.name, n_effective)
        noise = entropies.fitting_noise(criterion, independent) / slope
        spread = standard_error(psi, groups.weight, groups.cluster, frequency)
        stderr = math.hypot(spread, noise, math.sqrt(joint.between) / slope)
        freedom = freedom_of(psi, groups)
    low, high = root_interval(value, float(stdtrit(freedom, 0.5 + confidence_level / 2)) * stderr)
    # Densities given a variable with steps lean upwards by half a standard error, and the test of a
    # measurement does not.
    doubted = p_value >= 1.0 - confidence_level and value <= SURE_ERRORS * stderr
    if groups.measured is not None and doubted:
        low = 0.0
    return Measure(
        criterion=criterion.name,
        value=value,
        nats=entropies.nats(criterion),
        normalizer=entropies.normalizer(criterion),
        stderr=stderr,
        interval=(low, high),
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
    psi: Vector, weight: Vector | None, cluster: Rows | None = None,
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


# ------------------------------------------------------------------------------------------------
# Two numbers of the same rows, whose errors move together.


# Rows or clusters that the correlation of two errors is estimated from.
CORRELATION_ROWS = 20_000


def unit_influence(psi: Vector, weight: Vector | None, cluster: Rows | None = None) -> Vector:
    """ω(ψ − mean ψ) of evenly spaced rows or clusters, as long as the standard error of mean ψ."""
    units = _centered(psi, weight)
    if cluster is not None:
        units = cluster_sums(cluster, units)
    kept = np.unique(np.linspace(0, len(units) - 1, min(len(units), CORRELATION_ROWS)).astype(int))
    units = units[kept] - units[kept].mean()
    length = float(np.linalg.norm(units))
    return units * (standard_error(psi, weight, cluster) / length) if length > 0 else units


def paired_error(one: Vector, other: Vector, errors: tuple[float, float]) -> float:
    """Standard error of the difference of two numbers, from units that move both.

        Var = |u − v|² + r_u² + r_v² − 2ρ²·r_u·r_v,   r² = stderr² − |u|²

    ρ is the correlation of u and v. What errors hold beyond them, r, is the noise of squares, whose
    correlation is that of what is squared, squared.
    """
    size = math.sqrt(float(one @ one) * float(other @ other))
    together = float(one @ other) / size if size > 0 else 0.0
    rest = [
        math.sqrt(max(e * e - float(u @ u), 0.0)) for e, u in zip(errors, (one, other), strict=True)
    ]
    noise = rest[0] ** 2 + rest[1] ** 2 - 2.0 * together**2 * rest[0] * rest[1]
    return math.hypot(float(np.linalg.norm(one - other)), math.sqrt(max(noise, 0.0)))


@dataclass(frozen=True)
class Difference:
    """A criterion of one model less that of another, on the same rows.

    Attributes
    ----------
    name, criterion : str
        The model, and what is compared.
    value, stderr : float
        Below 0 where this model is the fairer one.
    interval : (float, float)
        At the confidence level of the measures, for each difference by itself.
    p_value : float
        Of the hypothesis that both are equally unfair.
    """

    name: str
    criterion: str
    value: float
    stderr: float
    interval: tuple[float, float]
    p_value: float

    @classmethod
    def of(
        cls, name: str, pair: tuple[Measure, Measure], units: tuple[Vector, Vector], level: float
    ) -> Difference:
        """The second of two measures less the first, with the units that move them."""
        before, after = pair
        value = after.value - before.value
        stderr = paired_error(*units, (before.stderr, after.stderr))
        freedom = min(before.freedom, after.freedom)
        half = float(stdtrit(freedom, 0.5 + level / 2)) * stderr
        errors = abs(value) / stderr if stderr else 0.0 if value == 0.0 else math.inf
        p = 2.0 * float(stdtr(freedom, -errors))
        return cls(name, after.criterion, value, stderr, (value - half, value + half), p)


# ------------------------------------------------------------------------------------------------
# One criterion of a score as a number: the measures that plain arrays go into.
#
# I = H(A | given) − H(A | joint),   normalized by H(A | given)


def _measure(
    criterion: Criterion, y_true: Any, y_pred: Any, estimator: Any, normalize: bool, **columns: Any
) -> float:
    if "y" not in criterion.needs:
        y_true = None
    elif y_true is None:
        raise InputError("y_true", "be given, got None")
    engine = get_estimator(estimator)
    if too_many(columns["frequency"]):
        refuse_beside_cells(estimator, cluster=columns.pop("cluster"))
        sample = expand_cells(Cells.from_rows(y_true, y_pred, **columns))
    else:
        if y_pred is None:
            raise InputError("y_pred", "be given, got None")
        sample = Sample.read(y_true, y_pred, **columns).weighted()
        check_effective_size(sample.groups)
        sample, _ = sample.distinct(columns["frequency"] is not None, engine)
    entropies = estimate_entropies(
        [criterion], sample.variables, sample.groups, engine, sample.frequency
    )
    if sample.frequency is None:
        rows = sample.known()
        for sentence in find_shared_values(rows.variables, entropies.alone, rows.groups):
            warn_user(sentence, SharedValuesWarning)
    return entropies.normalized(criterion) if normalize else entropies.nats(criterion)


def independence(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    frequency: Any = None,
    cluster: Any = None,
    estimator: Any = "auto",
    normalize: bool = True,
) -> float:
    """How much a prediction tells about the group: I(S;A) / H(A).

    Parameters
    ----------
    y_true : (n,) array or None
        Not used; present so that all measures share a signature.
    y_pred : (n,) array
        Scores.
    sensitive_features : array, series, frame or Proxy
        Group of each row; a frame of several columns is crossed. Rows are matched by place; pandas
        indices that hold the same labels in another order are refused.
    sample_weight : (n,) array, optional
        Weights that leave fewer than 5 rows, or 5 effective ones, (Σw)²/Σw², are refused, and fewer
        than 100 are warned of.
    frequency : (n,) array, optional
        Number of people that each row of an aggregated table stands for; a row of frequency 3
        equals three rows.
    cluster : (n,) array, optional
        Label of the person, place or school that each row belongs to, where rows of one are not
        independent. Estimators then leave whole clusters out; fewer than 5 are refused.
    estimator : str or instance
        "auto", "lspc", "logistic", "fourier", "knn", or an instance such as ``LSPC("linear")``.
    normalize : bool
        Divide by the entropy of the group, giving a share in [0, 1]; False returns nats.

    Returns
    -------
    float
        0 when predictions tell nothing about the group, 1 when they give it away. Estimates near
        zero can come out slightly negative: that is sampling error and means "none was found".

    Notes
    -----
    Rows that are copies of one another become one row with the sum of their weights: a row that a
    bootstrap draws three times counts as one of weight 3, so that a bootstrap and whole-number
    weights give the same value. :func:`evenhand.audit` counts each person once, with the mean
    weight of the copies; its value differs where some people were copied more often than others.
    With `cluster` rows are left as they are, and clusters are left out whole.

    See Also
    --------
    evenhand.separation
    evenhand.sufficiency
    evenhand.audit

    References
    ----------
    Barocas, S., Hardt, M. and Narayanan, A. (2023). Fairness and Machine Learning. MIT Press.

    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> value = eh.independence(None, data.s, sensitive_features=data.a, estimator="logistic")
    >>> 0 < value < 1
    True
    """
    return _measure(INDEPENDENCE, **locals())


def separation(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    frequency: Any = None,
    cluster: Any = None,
    estimator: Any = "auto",
    normalize: bool = True,
) -> float:
    """What a prediction tells about the group beyond the true outcome: I(S;A|Y) / H(A|Y).

    Parameters
    ----------
    y_true : (n,) array
        Targets.
    y_pred : (n,) array
        Scores.
    sensitive_features, sample_weight, frequency, cluster, estimator, normalize
        As for :func:`independence`, also in how copies of a row count.

    Returns
    -------
    float

    See Also
    --------
    evenhand.independence
    evenhand.sufficiency
    evenhand.audit

    References
    ----------
    Barocas, S., Hardt, M. and Narayanan, A. (2023). Fairness and Machine Learning. MIT Press.

    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> value = eh.separation(data.y, data.s, sensitive_features=data.a, estimator="logistic")
    >>> value < 1
    True
    """
    return _measure(SEPARATION, **locals())


def sufficiency(
    y_true: Any,
    y_pred: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    frequency: Any = None,
    cluster: Any = None,
    estimator: Any = "auto",
    normalize: bool = True,
) -> float:
    """What the true outcome tells about the group beyond the prediction: I(Y;A|S) / H(A|S).

    Parameters
    ----------
    y_true : (n,) array
        Targets.
    y_pred : (n,) array
        Scores.
    sensitive_features, sample_weight, frequency, cluster, estimator, normalize
        As for :func:`independence`, also in how copies of a row count.

    Returns
    -------
    float

    See Also
    --------
    evenhand.independence
    evenhand.separation
    evenhand.audit

    References
    ----------
    Barocas, S., Hardt, M. and Narayanan, A. (2023). Fairness and Machine Learning. MIT Press.

    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> value = eh.sufficiency(data.y, data.s, sensitive_features=data.a, estimator="logistic")
    >>> value < 1
    True
    """
    return _measure(SUFFICIENCY, **locals())
