"""The models that FairRegressor chooses among, and how each fares on rows it has not seen.

A candidate's held-out accuracy at a bound on unfairness is read off its curve (unfairness,
accuracy) over fairness weights: a factor of two apart, found by bisection, straight lines in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector
from .._core.validation import check_column
from ..data.clusters import renumber
from ..data.criteria import Criterion
from ..data.groups import Groups
from ..data.weights import weighted_rows
from ..measures.entropies import estimate_entropies
from ..measures.measures import Measure, measure, standard_error
from .held_out import Data, Handle, HeldOut
from .postprocess import FairPostprocessor
from .ridge import FairRidge

WEIGHTS = (0.0, *(2.0**k for k in range(-4, 11)))
_FIRST = WEIGHTS.index(1.0)
# A held-out accuracy this much higher is worth a richer model; less is chance on any rows.
MARGIN = 2e-4
# How closely the chosen weight meets the bound from below, and tries at that.
_CLOSE, _TRIES = 0.05, 4


@dataclass(frozen=True)
class Candidate:
    """One way to be fair.

    Attributes
    ----------
    name : str
    words : str
        What it does, for people.
    build : callable
        (criterion, alpha, random_state) → estimator with a `fairness_weight`.
    suits : callable
        Criterion → whether it is for it.
    """

    name: str
    words: str
    build: Callable[[str, float, Any], Any]
    suits: Callable[[Criterion], bool] = lambda criterion: True


def _ridge(**options: Any) -> Callable[[str, float, Any], Any]:
    return lambda criterion, alpha, random_state: FairRidge(criterion, alpha=alpha, **options)


def _mapped(kind: str, shape: str) -> Callable[[str, float, Any], Any]:
    return lambda criterion, alpha, random_state: FairPostprocessor(
        FairRidge(criterion, 0.0, alpha),
        criterion,
        group_features=kind,
        map=shape,
        random_state=random_state,
    )


# Transport gives every group the same law of scores, and that is all it does.
_MOVES_SCORES = attrgetter("equalizes_scores")
# Simple ones first: of two that are level the earlier is chosen.
LEAGUES = {
    "blind": (
        Candidate("linear", "one linear score for all", _ridge()),
        Candidate(
            "posterior",
            "a linear score that may differ by the probability of each group given the features",
            _ridge(group_features="posterior"),
        ),
        Candidate(
            "posterior, transport",
            "the ridge score, moved toward the barycenter of the groups by their probabilities",
            _mapped("posterior", "transport"),
            _MOVES_SCORES,
        ),
    ),
    "known": (
        Candidate(
            "attribute",
            "a linear score that may differ by group",
            _ridge(group_features="attribute"),
        ),
        # Maps are fitted to out-of-fold scores, which helps where the ridge overfits.
        Candidate(
            "attribute, lines",
            "the ridge score, moved along a straight line for each group",
            _mapped("attribute", "affine"),
        ),
        Candidate(
            "attribute, transport",
            "the ridge score, each group moved toward the barycenter of all",
            _mapped("attribute", "transport"),
            _MOVES_SCORES,
        ),
    ),
}


def candidates(league: str, criterion: Criterion) -> list[Candidate]:
    """Those of a league that are for a criterion, simple ones first."""
    return [c for c in LEAGUES[league] if c.suits(criterion)]


@dataclass(frozen=True)
class Place:
    """A candidate at one fairness weight, held out.

    Attributes
    ----------
    fairness_weight : float
    accuracy : float
    unfairness : float
        Normalized information, no less than 0.
    influence : (n,) array
        Of each row of positive weight on the accuracy, for standard errors of differences.
    """

    fairness_weight: float
    accuracy: float
    unfairness: float
    influence: Vector


class Curve:
    """Held-out accuracy and unfairness of a candidate, found where they are asked for.

    Parameters
    ----------
    candidate : Candidate
    estimator : estimator
    data : Data
    folds : sequence of (train, test) rows
    groups : Groups
        Of all rows of `data`.
    criterion : Criterion
    measure_with : EntropyEstimator
    n_jobs : int or None
    """

    def __init__(
        self, candidate: Candidate, estimator: Any, data: Data,
        folds: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]], groups: Groups,
        criterion: Criterion, measure_with: Any, n_jobs: int | None,
    ):  # fmt: skip
        self.candidate = candidate
        self._held_out = HeldOut(Handle.find(estimator), data, folds, n_jobs)
        self.accuracy = self._held_out.handle.accuracy
        rows = weighted_rows(data.sample_weight)
        self._rows: Any = slice(None) if rows is None else rows
        self._y = data.y[self._rows]
        self._weight = None if data.sample_weight is None else data.sample_weight[self._rows]
        self._cluster = None if data.cluster is None else renumber(data.cluster[self._rows])
        self._groups = groups if rows is None else groups.take(rows)
        self._criterion, self._estimator = criterion, measure_with
        self._seen: dict[float, Place] = {}
        self._measures: dict[float, Measure] = {}

    def at(self, fairness_weight: float) -> Place:
        """The candidate at a weight; fitted and measured once."""
        if fairness_weight not in self._seen:
            s = check_column(self._held_out.scores([fairness_weight])[0], "scores")[self._rows]
            accuracy, influence = self.accuracy.influence(self._y, s, self._weight)
            columns = {"s": s, "y": self._y}
            found = estimate_entropies([self._criterion], columns, self._groups, self._estimator)
            value = measure(self._criterion, found, 0.95, float("nan"), "")
            self._measures[fairness_weight] = value
            self._seen[fairness_weight] = Place(
                fairness_weight, accuracy, max(value.value, 0.0), influence
            )
        return self._seen[fairness_weight]

    def refit(self, fairness_weight: float, data: Data) -> Any:
        """The candidate at a weight, fitted on other rows: all of them."""
        return self._held_out.handle.fit(fairness_weight, data)

    def measured(self, fairness_weight: float) -> Measure:
        """The criterion at a weight that was tried."""
        return self._measures[fairness_weight]

    def meet(self, bound: float) -> tuple[Place, bool]:
        """Where the curve meets a bound, and whether it does; the fairest place where not."""
        low, high = 0, _FIRST
        if self.at(WEIGHTS[0]).unfairness <= bound:
            return self.at(WEIGHTS[0]), True
        while self.at(WEIGHTS[high]).unfairness > bound:
            if high == len(WEIGHTS) - 1:
                return min(self._seen.values(), key=lambda place: place.unfairness), False
            low, high = high, min(high + 2, len(WEIGHTS) - 1)
        while high - low > 1:
            middle = (low + high) // 2
            if self.at(WEIGHTS[middle]).unfairness > bound:
                low = middle
            else:
                high = middle
        return self._between(self.at(WEIGHTS[low]), self.at(WEIGHTS[high]), bound), True

    @staticmethod
    def _between(unfair: Place, fair: Place, bound: float) -> Place:
        """The place on the straight line between two that meets the bound."""
        t = (unfair.unfairness - bound) / (unfair.unfairness - fair.unfairness)
        if unfair.fairness_weight > 0:
            weight = unfair.fairness_weight ** (1 - t) * fair.fairness_weight**t
        else:
            weight = t * fair.fairness_weight
        return Place(
            float(f"{weight:.6g}"),
            (1 - t) * unfair.accuracy + t * fair.accuracy,
            bound,
            (1 - t) * unfair.influence + t * fair.influence,
        )

    def settle(self, bound: float) -> Place:
        """A place that was fitted and meets the bound from closely below, if there is one."""
        place, reached = self.meet(bound)
        if not reached:
            return place
        for _ in range(_TRIES):
            tried = sorted(self._seen.values(), key=lambda p: p.fairness_weight)
            j = next(
                j for j, p in enumerate(tried)
                if p.unfairness <= bound and p.fairness_weight >= place.fairness_weight
            )  # fmt: skip
            if j == 0 or tried[j].unfairness >= (1 - _CLOSE) * bound:
                break
            if tried[j - 1].unfairness <= bound:
                break
            # A little beyond the line, so that the next try is more likely to meet the bound.
            goal = max(bound - 0.3 * _CLOSE * bound, tried[j].unfairness)
            place = self._between(tried[j - 1], tried[j], goal)
            if place.fairness_weight in self._seen:
                break
            self.at(place.fairness_weight)
        met = [p for p in self._seen.values() if p.unfairness <= bound]
        return max(met, key=lambda p: p.accuracy)

    def difference_error(self, one: Place, other: Place) -> float:
        """Standard error of the difference in accuracy of two places, over rows or clusters."""
        return standard_error(one.influence - other.influence, self._weight, self._cluster)
