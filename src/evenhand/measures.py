"""Entropies → one measure with its standard error and interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from .criteria import CRITERIA, Criterion
from .information import Entropies
from .sensitive import Groups

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Measure:
    """One criterion, estimated.

    Attributes
    ----------
    criterion : str
    value : float
        Normalized information, a share in [0, 1]; slightly negative means "none was found".
    nats : float
        The information itself, and `normalizer`, the entropy it is divided by.
    stderr : float
        Standard error of `value`, by the delta method through the normalizer.
    interval : (float, float)
        For `value`, at the audit's confidence level, cut off at 0 and 1.
    p_value : float
        Of the hypothesis that the criterion holds exactly; NaN where it cannot be tested.
    estimator, chosen : str
        The estimator, and what it used.
    n : int
        Rows with a known group. `n_effective` allows for unequal weights.
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

    def __float__(self) -> float:
        return self.value

    @property
    def meaning(self) -> str:
        """The value in words."""
        percent = f"{100 * max(self.value, 0.0):.{1 if self.value < 0.1 else 0}f}%"
        return CRITERIA[self.criterion].meaning.format(percent=percent)


def measure(
    criterion: Criterion, entropies: Entropies, confidence_level: float, p_value: float,
    estimator: str, n_boot: int = 0, seed: int = 0,
) -> Measure:  # fmt: skip
    """A :class:`Measure` from entropies: v = 1 − H_joint/H_given and its error.

    With ψ the influence of each row on v, the variance is Σω²ψ²/(Σω)². Where the criterion nearly
    holds, ψ vanishes and what is left is the noise of the p parameters that the joint classifier
    fits beyond the other, with variance p/(2n²) in nats and more for small groups. Where an
    estimator averages several bases, the variance between what they say is added.
    """
    groups = entropies.groups
    value, nats = entropies.normalized(criterion), entropies.nats(criterion)
    given = entropies.mean[criterion.given]
    if entropies.exhausted(criterion):
        stderr = 0.0
    else:
        psi = entropies.influence(criterion)
        added = abs(entropies.rows[criterion.joint].terms - entropies.rows[criterion.given].terms)
        # An estimator that found nothing to add has still looked: a line, a curve, an interaction.
        added = max(added, 3.0 * (groups.n_groups - 1))
        noise = _fitting_noise(added / (groups.n_groups - 1), groups) / given
        if n_boot:
            spread = _bootstrap_error(psi, groups.weight, n_boot, seed)
        else:
            spread = standard_error(psi, groups.weight)
        between = math.sqrt(entropies.rows[criterion.joint].between) / given
        stderr = math.hypot(spread, noise, between)
    interval = _interval(value, stderr, float(ndtri(0.5 + confidence_level / 2)))
    chosen = entropies.rows[criterion.joint].chosen
    return Measure(
        criterion.name, value, nats, given, stderr, interval, p_value, estimator, chosen,
        groups.n_known, groups.n_effective,
    )  # fmt: skip


def _fitting_noise(terms: float, groups: Groups) -> float:
    """Standard error in nats of an entropy by `terms` parameters for each group but the largest.

    Half a χ² over n, of variance p/(2n²), where a group has many more rows than the p parameters.
    With m rows no more than p they fit every one of them by chance, which is worth m log(n/m)/n.
    """
    n = groups.n_effective
    rows = np.sort(n * groups.shares)[:-1]
    chance = 1.0 + terms / np.maximum(rows, 1.0) * np.log(n / np.maximum(rows, 1.0))
    return math.sqrt(0.5 * terms * float(np.square(chance).sum())) / n


def _interval(value: float, stderr: float, z: float) -> tuple[float, float]:
    """(√v ± z·se/(2√v))², cut off at 0 and 1.

    The error of an information grows with its square root, so the root is where it is symmetric.
    Below one half-width the value itself is too uncertain to scale by, and the shift stays put.
    """
    half = z * stderr
    if value < -half:  # further below 0 than chance can take it: a misfit, not a measurement
        value = 0.0
    shift = half / 4 if value <= half else half * half / (4 * value)
    low = value - half + shift if value > half / 2 else 0.0
    high = value + half + shift
    return min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)


def standard_error(psi: Vector, weight: Vector | None) -> float:
    """√(Σω²(ψ − mean ψ)²)/Σω, with n/(n − 1) for the mean: the error of a weighted mean of ψ."""
    n = len(psi)
    if n < 2:
        return float("nan")
    if weight is None:
        centered = psi - psi.mean()
        return math.sqrt(float(centered @ centered) / (n - 1) / n)
    centered = (psi - np.average(psi, weights=weight)) * weight
    return float(math.sqrt((centered @ centered) * n / (n - 1)) / weight.sum())


def _bootstrap_error(psi: Vector, weight: Vector | None, n_boot: int, seed: int) -> float:
    """Spread of the mean of psi over draws of rows; a row keeps its weight."""
    rng = np.random.default_rng(seed)
    n = len(psi)
    weight = np.ones(n) if weight is None else weight
    terms = np.column_stack([weight * psi, weight])
    uniform = np.full(n, 1.0 / n)
    # A batch of draws is a table of counts, and its means one product with it.
    means: list[float] = []
    while len(means) < n_boot:
        size = min(max(2_000_000 // n, 1), n_boot - len(means))
        sums = rng.multinomial(n, uniform, size=size) @ terms
        means += (sums[:, 0] / sums[:, 1]).tolist()
    return float(np.std(means, ddof=1))
