"""Entropies of the group by estimators, and their differences by criterion.

    I = H(A | given) − H(A | joint),   normalized by H(A | given)

with the pair (given, joint) of each criterion in `criteria`. H(A) uses the group shares; every
other entropy is a weighted mean of per-row terms from an estimator (`estimation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np

from .._core.arrays import Array
from .._core.validation import InputError
from ..data.criteria import NOTHING, Condition, Criterion, complete
from ..data.groups import Groups
from ..estimators.estimation import EntropyEstimator, RowLosses
from ..estimators.ranks import Columns
from .effective import independent_rows

# Smallest normalized value. Chance takes an estimate slightly below zero; what is further below is
# a misfit, beside which a guess that does not look at the variable is the better classifier.
SMALLEST = -0.1


def _named(module: str, name: str) -> Callable[[Any], EntropyEstimator]:
    """Make an estimator of the package, loaded on first use."""

    def make(random_state: Any) -> EntropyEstimator:
        kind = getattr(import_module(f"evenhand.estimators.{module}"), name)
        # Only the Fourier features are drawn.
        return kind(random_state=random_state or 0) if name == "Fourier" else kind()

    return make


# Name → seed → estimator. One of your own is one more entry.
ESTIMATORS: dict[str, Callable[[Any], EntropyEstimator]] = {
    "auto": _named("adaptive", "Adaptive"),
    "lspc": _named("lspc", "LSPC"),
    "logistic": _named("logistic", "Logistic"),
    "fourier": _named("references", "Fourier"),
    "knn": _named("references", "KNN"),
}


def get_estimator(
    estimator: Any, random_state: Any = None, argument: str = "estimator"
) -> EntropyEstimator:
    """An estimator of entropies by name, or the instance handed in.

    Parameters
    ----------
    estimator : str or instance
    random_state : int, optional
        For estimators that draw random numbers.
    argument : str
        What the user calls it, for messages.
    """
    if isinstance(estimator, str):
        if estimator in ESTIMATORS:
            return ESTIMATORS[estimator](random_state)
    elif isinstance(estimator, EntropyEstimator) and not isinstance(estimator, type):
        return estimator
    raise InputError(
        argument, f"be one of {', '.join(ESTIMATORS)} or an instance such as evenhand.LSPC(), got "
        f"{estimator!r}",
    )  # fmt: skip


@dataclass(frozen=True)
class Entropies:
    """Estimated entropies of the group in nats, with what their errors need.

    Attributes
    ----------
    mean : dict
        H(A | condition) for each condition, () being H(A).
    rows : dict
        Per-row terms of each, for standard errors.
    groups : Groups
    independent : dict
        By name of the criterion, the independent rows that its parameters' noise is that of;
        empty where that is the effective number of rows.
    """

    mean: dict[Condition, float]
    rows: dict[Condition, RowLosses]
    groups: Groups
    independent: dict[str, float] = field(default_factory=dict)

    def nats(self, criterion: Criterion) -> float:
        """H(A | given) − H(A | joint), no less than a tenth of −H(A | given)."""
        given = self.mean[criterion.given]
        return max(given - self.mean[criterion.joint], SMALLEST * given)

    def normalized(self, criterion: Criterion) -> float:
        """1 − H(A | joint) / H(A | given); 0 where nothing is left to tell about the group."""
        if self.exhausted(criterion):
            return 0.0
        return self.nats(criterion) / self.mean[criterion.given]

    def exhausted(self, criterion: Criterion) -> bool:
        """Whether H(A | given) is zero as far as n rows can show, so that the ratio is 0/0.

        What is conditioned on gives the group away by itself then. Among n rows without an
        exception the entropy is still uncertain by about log(n)/n, and estimators end up anywhere
        below that. A group of a few rows has no more than log(n)/n to begin with, so three quarters
        of H(A) must be gone as well.
        """
        n = max(self.groups.n_effective, 2.0)
        return self.mean[criterion.given] <= min(float(np.log(n)) / n, 0.25 * self.groups.entropy)

    @property
    def alone(self) -> dict[str, float]:
        """H(A | variable) for each variable that is conditioned on by itself."""
        return {c[0]: value for c, value in self.mean.items() if len(c) == 1}

    def influence(self, criterion: Criterion) -> Array:
        """Influence of each row on the normalized value v = 1 − H_joint/H_given.

        [−(ℓ_joint − H_joint) + (ℓ_given − H_given)·H_joint/H_given] / H_given up to a constant,
        with ℓ the row's terms of the two entropies; zero where the ratio is 0/0.
        """
        if self.exhausted(criterion):
            return np.zeros(self.groups.n_known)
        given, joint = self.mean[criterion.given], self.mean[criterion.joint]
        l_given, l_joint = (self.rows[c].influence for c in (criterion.given, criterion.joint))
        out = l_given * (joint / given)
        out -= l_joint
        out /= given
        return out

    def normalizer(self, criterion: Criterion) -> float:
        """Nats to which a small value corresponds, by which it is multiplied: H(A | given)."""
        return self.mean[criterion.given]

    def slope(self, criterion: Criterion) -> float:
        """∂nats/∂value where the estimate is."""
        return self.mean[criterion.given]

    def fitting_noise(self, criterion: Criterion, n: float) -> float:
        """Standard error in nats that the parameters of the joint classifier bring along.

        Half a χ² over n, of variance p/(2n²), where a group has many more rows than p parameters.
        With m rows no more than p they fit every one of them by chance, worth m log(n/m)/n.
        """
        others = self.groups.n_groups - 1
        # An estimator that found nothing to add has still looked: a line, a curve, an interaction.
        added = abs(self.rows[criterion.joint].terms - self.rows[criterion.given].terms)
        terms = max(added / others, 3.0)
        rows = np.sort(n * self.groups.shares)[:-1]
        chance = 1.0 + terms / np.maximum(rows, 1.0) * np.log(n / np.maximum(rows, 1.0))
        return float(np.sqrt(0.5 * terms * np.square(chance).sum()) / n)

    def joint(self, criterion: Criterion) -> RowLosses:
        """What was estimated with the tested variable: how, from what, with how much doubt."""
        return self.rows[criterion.joint]


@dataclass(frozen=True)
class MeasuredEntropies(Entropies):
    """Of a measurement: v = 1 − exp(−2·I) instead of a ratio.

    For jointly normal variables v is ρ², the share of the variance of A that is explained (given
    what is conditioned on). Nothing is ever exhausted, as no variable tells a measurement exactly.
    `ratios` holds, by name of the criterion, log p(a|joint)/p(a|given) of each row; there are no
    entropies in `mean` and `rows`.
    """

    ratios: dict[str, RowLosses] = field(default_factory=dict)

    def joint(self, criterion: Criterion) -> RowLosses:
        return self.ratios[criterion.name]

    def nats(self, criterion: Criterion) -> float:
        """I(joint;A) − I(given;A), no less than where v is −0.1."""
        rows = self.ratios[criterion.name].value
        mean = float(np.average(rows, weights=self.groups.weight))
        return max(mean, -0.5 * float(np.log1p(-SMALLEST)))

    def normalized(self, criterion: Criterion) -> float:
        """1 − exp(−2·I)."""
        return float(-np.expm1(-2.0 * self.nats(criterion)))

    def exhausted(self, criterion: Criterion) -> bool:
        return False

    def influence(self, criterion: Criterion) -> Array:
        """Of each row on v: its log density ratio, times ∂v/∂I."""
        return self.ratios[criterion.name].influence / self.slope(criterion)

    def normalizer(self, criterion: Criterion) -> float:
        """½, as v is about I/½ where it is small."""
        return 0.5

    def slope(self, criterion: Criterion) -> float:
        return 0.5 * float(np.exp(2.0 * self.nats(criterion)))

    def fitting_noise(self, criterion: Criterion, n: float) -> float:
        return float(np.sqrt(0.5 * max(self.ratios[criterion.name].terms, 3.0))) / n


def estimate_entropies(
    criteria: Iterable[Criterion], variables: Mapping[str, Array], groups: Groups,
    estimator: EntropyEstimator, frequency: Array | None = None,
) -> Entropies:  # fmt: skip
    """All entropies that the criteria need, each estimated once.

    `variables` are validated columns over all n rows, by name: "s" and what else the criteria need.
    `frequency` says for how many people each known row stands, where that is more than one.
    """
    criteria = list(criteria)
    needed: list[Condition] = []
    for criterion in criteria:
        for condition in (criterion.given, criterion.joint):
            if condition != NOTHING and condition not in needed:
                needed.append(condition)
    if not isinstance(variables, Columns):  # which are complete
        used = {name for criterion in criteria for name in ("s", *criterion.needs)}
        known = {name: groups.take_known(variables[name]) for name in variables if name in used}
        variables = complete(criteria, known)
    # A constant column tells nothing: leave it out, so that constant scores are exactly fair.
    varying = {name for name, column in variables.items() if column.min() < column.max()}
    for name in varying:
        # The reciprocal of such a spread can be beyond the largest float: larger units, exactly.
        if np.abs(variables[name]).max() < 1e-290:
            variables = {**variables, name: variables[name] * 2.0**600}
    reduced = {c: tuple(name for name in c if name in varying) for c in needed}
    asked = list(dict.fromkeys(c for c in reduced.values() if c != NOTHING))
    independent = {}
    if groups.cluster is not None:
        columns = {name: variables[name] for name in varying}
        independent = {c.name: independent_rows(c, columns, groups) for c in criteria}
    if groups.measured is not None:
        pairs = {c.name: (reduced.get(c.given, ()), reduced.get(c.joint, ())) for c in criteria}
        from ..estimators.densities import measured_ratios

        ratios = measured_ratios(variables, list(pairs.values()), groups, estimator)
        by_name = {name: ratios[pair] for name, pair in pairs.items()}
        return MeasuredEntropies({}, {}, groups, independent, by_name)
    losses = dict(estimator.row_losses(variables, asked, groups)) if asked else {}
    surprise = -np.log(groups.shares)
    # −log P(aᵢ), or its expectation under membership probabilities.
    terms = groups.membership() @ surprise if groups.codes is None else surprise[groups.codes]
    losses[NOTHING] = RowLosses(terms, terms, "group shares", groups.n_groups - 1.0)
    rows = {
        condition: losses[reduced.get(condition, condition)] for condition in [NOTHING, *needed]
    }
    mean = {NOTHING: groups.entropy}
    fewer = 0.0
    if frequency is not None:
        # Estimators leave a row out where they should leave out one of its people.
        fewer = 0.5 / groups.n_effective - 0.5 / people_effective(groups, frequency)
    for condition in needed:
        # Neighbor estimates of an entropy near zero can fall below it.
        average = float(np.average(rows[condition].value, weights=groups.weight))
        average -= fewer * rows[condition].left_out
        mean[condition] = max(average, 0.0) if reduced[condition] else groups.entropy
    return Entropies(mean, rows, groups, independent)


def people_effective(groups: Groups, frequency: Array) -> float:
    """(Σω)² / Σω²/f: equally weighted people, where rows of weight ω stand for f of them."""
    weight = frequency if groups.weight is None else groups.weight
    return float(weight.sum() ** 2 / (weight**2 / frequency).sum())
