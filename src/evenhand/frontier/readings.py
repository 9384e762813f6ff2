"""One point of a path: accuracy and criteria of held-out scores, and how points move together.

Every number is a mean over rows to first order, so each row's influence on it gives its standard
error, and the influences at two points give the correlation of their errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from ..groups.clusters import cluster_sums, renumber
from ..groups.sensitive import Groups
from ..groups.validation import check_column
from ..groups.weights import weighted_rows
from ..information.criteria import CONDITIONAL, Criterion, get_criterion, measurable
from ..information.effective import take_weighted
from ..information.entropies import Entropies, estimate_entropies, get_estimator
from ..information.measures import (
    Measure,
    critical_value,
    measure,
    standard_error,
)
from ..models.accuracy import Accuracy
from ..models.losses import R2

Vector = NDArray[np.float64]
# Rows that the correlation between points is estimated from, and draws of their joint law.
CORRELATION_ROWS = 20_000
DRAWS = 20_000


@dataclass(frozen=True)
class PathPoint:
    """One fairness weight, measured on held-out rows.

    Attributes
    ----------
    fairness_weight : float
    accuracy, accuracy_stderr : float
        What the estimator calls its accuracy, over all rows, and its standard error. R² is also
        there as `r2`, and D² as `d2`, with `_stderr` and `_interval` as here.
    accuracy_interval : (float, float)
    measures : dict of str → Measure
        By criterion, over the rows with a known group. Each of the three criteria is also an
        attribute by its name.
    scores : (n,) array
        The held-out scores themselves.
    """

    fairness_weight: float
    accuracy: float
    accuracy_stderr: float
    accuracy_interval: tuple[float, float]
    measures: dict[str, Measure]
    scores: Vector = field(repr=False, compare=False)
    key: str = field(default="r2", repr=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            key = self.__dict__.get("key")
            if key is not None and name.partition("_")[0] == key:
                return self.__dict__["accuracy" + name[len(key) :]]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def independence(self) -> Measure:
        return self.measure("independence")

    @property
    def separation(self) -> Measure:
        return self.measure("separation")

    @property
    def sufficiency(self) -> Measure:
        return self.measure("sufficiency")

    def measure(self, criterion: str | Criterion) -> Measure:
        """The measure of a criterion by name."""
        name = get_criterion(criterion).name
        if name not in self.measures:
            raise ValueError(
                f"`criterion` must be one that was measured ({', '.join(self.measures)}), got "
                f"{name!r}. Hint: register_criterion before fairness_path."
            )
        return self.measures[name]


@dataclass(frozen=True)
class Reading:
    """A point, and the influence of some rows on each of its numbers."""

    point: PathPoint
    influence: dict[str, Vector]


class Gauge:
    """Measures scores of one set of rows.

    Parameters
    ----------
    y : (n,) array
    weight : (n,) array or None
    groups : Groups
    measure_with, random_state
        The estimator of information.
    confidence_level : float
    cluster : (n,) array or None
    accuracy : Accuracy
    loss_weight : (n,) array, optional
        Weights of the accuracy, where they are not `weight`: exposures are in them.
    given : (n,) array, optional
        What stands for the target in criteria that condition on it alone.
    controls : (n,) array, optional
        What stands for the controls of the conditional criterion.
    """

    def __init__(
        self, y: Vector, weight: Vector | None, groups: Groups, measure_with: Any,
        random_state: Any, confidence_level: float, cluster: NDArray[np.intp] | None = None, *,
        accuracy: Accuracy = R2, loss_weight: Vector | None = None, given: Vector | None = None,
        controls: Vector | None = None,
    ):  # fmt: skip
        loss_weight = weight if loss_weight is None else loss_weight
        self.n_rows, self.rows = len(y), weighted_rows(weight)
        if self.rows is not None and weight is not None:
            y, weight, groups = y[self.rows], weight[self.rows], take_weighted(groups, self.rows)
            cluster = None if cluster is None else renumber(cluster[self.rows])
            loss_weight = None if loss_weight is None else loss_weight[self.rows]
            given = None if given is None else given[self.rows]
            controls = None if controls is None else controls[self.rows]
        self.accuracy, self.loss_weight, self.given = accuracy, loss_weight, given
        self.controls = controls
        self.y, self.weight, self.groups, self.cluster = y, weight, groups, cluster
        # Accuracy counts rows of unknown group, too: to it, all rows are of one.
        one = np.zeros(len(y), dtype=np.intp)
        self._everyone = Groups(("all",), one, None, loss_weight, None, len(y), cluster=cluster)
        self.estimator = get_estimator(measure_with, random_state, "measure_with")
        self.level = confidence_level
        self.name = measure_with if isinstance(measure_with, str) else type(measure_with).__name__

    def read(self, fairness_weight: float, scores: Vector) -> Reading:
        scores = check_column(scores, "scores", self.n_rows)
        measured = scores if self.rows is None else scores[self.rows]
        value, moves = self.accuracy.influence(self.y, measured, self.loss_weight)
        stderr = standard_error(moves, self.loss_weight, self.cluster)
        half = critical_value(self.level, moves, self._everyone) * stderr
        columns = {"s": measured, "y": self.y}
        criteria = measurable(columns)
        found = dict.fromkeys(criteria, self._entropies(criteria, columns))
        if self.given is not None:
            # Given a risk measure, only what conditions on the target alone is another quantity.
            other = [c for c in criteria if c.given == ("y",)]
            found.update(
                dict.fromkeys(other, self._entropies(other, {"s": measured, "y": self.given}))
            )
        if self.controls is not None:
            columns = {"s": measured, "c": self.controls}
            found[CONDITIONAL] = self._entropies([CONDITIONAL], columns)
        measures = {}
        influence = {self.accuracy.key: _thin(moves, self.loss_weight, self.cluster)}
        for criterion, entropies in found.items():
            measures[criterion.name] = measure(
                criterion, entropies, self.level, float("nan"), self.name
            )
            psi = entropies.influence(criterion)
            influence[criterion.name] = _thin(psi, self.groups.weight, self.groups.cluster)
        point = PathPoint(
            fairness_weight=fairness_weight,
            accuracy=value,
            accuracy_stderr=stderr,
            accuracy_interval=(value - half, value + half),
            measures=measures,
            scores=scores,
            key=self.accuracy.key,
        )
        return Reading(point, influence)

    def _entropies(self, criteria: list[Criterion], columns: dict[str, Vector]) -> Entropies:
        return estimate_entropies(criteria, columns, self.groups, self.estimator)


def _thin(
    influence: Vector, weight: Vector | None, cluster: NDArray[np.intp] | None = None
) -> Vector:
    """Weighted and centered influence of evenly spaced rows or clusters, for correlations."""
    psi = influence if weight is None else (influence - np.average(influence, weights=weight))
    psi = psi if weight is None else psi * weight
    if cluster is not None:
        psi = cluster_sums(cluster, psi - psi.mean())
    rows = np.unique(np.linspace(0, len(psi) - 1, min(len(psi), CORRELATION_ROWS)).astype(int))
    return psi[rows] - psi[rows].mean()


def correlations(readings: list[Reading]) -> dict[str, NDArray[np.float64]]:
    out = {}
    for name in readings[0].influence:
        psi = np.array([r.influence[name] for r in readings])
        size = np.linalg.norm(psi, axis=1)
        psi = psi / np.where(size > 0, size, 1.0)[:, None]
        out[name] = psi @ psi.T
    return out


def critical(
    correlation: NDArray[np.float64], level: float, n_clusters: int | None = None
) -> float:
    """c with P(max_j Z_j ≤ c) = level for normal Z of this correlation: the max-t bound.

    With clusters Z is Student's t with one degree of freedom less than there are.
    """
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    rng = np.random.default_rng(0)
    largest = (rng.standard_normal((DRAWS, len(root))) @ root.T).max(axis=1)
    if n_clusters is None:
        return max(float(np.quantile(largest, level)), float(ndtri(level)))
    freedom = n_clusters - 1
    largest /= np.sqrt(rng.chisquare(freedom, DRAWS) / freedom)
    return max(float(np.quantile(largest, level)), float(stdtrit(freedom, level)))
