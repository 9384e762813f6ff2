"""Held-out scores of an estimator at many fairness weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri, stdtrit
from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from .._core.arrays import Matrix, Rows, Vector
from .._core.validation import InputError, check_column
from ..data.criteria import CONDITIONAL, Criterion, get_criterion, measurable
from ..data.groups import Groups
from ..data.sample import Sample
from ..data.weights import weighted_rows
from ..measures.entropies import Entropies, estimate_entropies, get_estimator
from ..measures.losses import Accuracy, accuracy_of
from ..measures.measures import Measure, critical_value, measure, standard_error, unit_influence


@dataclass(frozen=True)
class Handle:
    """Where an estimator, or the pipeline around one, keeps `fairness_weight`.

    Attributes
    ----------
    estimator : the estimator, unfitted
    parameter : str
        Full name of the parameter, such as "fairridge__fairness_weight".
    """

    estimator: Any
    parameter: str

    @classmethod
    def find(cls, estimator: Any) -> Handle:
        """Locate the parameter; the outermost one wins."""
        if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
            raise InputError(
                "estimator", f"be a scikit-learn estimator, got {estimator!r}",
                hint="pass an instance such as evenhand.FairRidge().",
            )  # fmt: skip
        names = [n for n in estimator.get_params() if n.split("__")[-1] == "fairness_weight"]
        depth = min((n.count("__") for n in names), default=0)
        names = [n for n in names if n.count("__") == depth]
        if len(names) != 1:
            which = f"several ({', '.join(names)})" if names else "none"
            raise InputError(
                "estimator", "have one parameter `fairness_weight`, its own or that of a "
                f"pipeline's step; {type(estimator).__name__} has {which}",
            )  # fmt: skip
        return cls(estimator, names[0])

    @property
    def criterion(self) -> Criterion | None:
        """The estimator's own criterion, or None."""
        name = self.parameter.removesuffix("fairness_weight") + "criterion"
        criterion = self.estimator.get_params().get(name)
        return None if criterion is None else get_criterion(criterion)

    @property
    def step(self) -> Any:
        """The estimator that is fair: itself, or the step of a pipeline."""
        if isinstance(self.estimator, Pipeline):
            return self.estimator.named_steps[self.parameter.split("__")[0]]
        return self.estimator

    @property
    def accuracy(self) -> Accuracy:
        """What the estimator calls its accuracy."""
        return accuracy_of(self.step)

    def check_takes(self, **columns: Any) -> None:
        """Refuse columns that `fit` has no place for."""
        for name, values in columns.items():
            if values is not None and name not in inspect.signature(self.step.fit).parameters:
                raise InputError(
                    name, f"be None for {type(self.step).__name__}, whose fit takes none, got "
                    "values", hint="evenhand.FairGLM takes it.",
                )  # fmt: skip

    def labels(self, rows: Sample) -> Any:
        """What tells the estimator the groups: as they were read, or the labels of users.

        Without a row of some group, and for bands of a measurement, it must look again.
        """
        groups = rows.groups
        known = groups.codes is not None and groups.measured is None
        if known and getattr(self.step, "takes_groups", False) and groups.counts.min() > 0:
            return groups
        return rows.others["sensitive_features"]

    def arguments(self, rows: Sample, with_cluster: bool) -> dict[str, Any]:
        """What `fit` is handed besides features and target."""
        handed = {
            "sensitive_features": self.labels(rows),
            "sample_weight": rows.weight,
            "cluster": rows.cluster if with_cluster else None,
            "exposure": rows.exposure,
            "controls": rows.controls if self.criterion == CONDITIONAL else None,
            **{name: rows.others.get(name) for name in ("offset", "given")},
        }
        return {name: values for name, values in handed.items() if values is not None}

    def fit(self, fairness_weight: float, rows: Sample) -> Any:
        """Fit a copy."""
        params = self.arguments(rows, self._takes(self.step, "fit", "cluster"))
        if isinstance(self.estimator, Pipeline) and not get_config()["enable_metadata_routing"]:
            step = self.parameter.split("__")[0]
            params = {f"{step}__{name}": value for name, value in params.items()}
        model = clone(self.estimator).set_params(**{self.parameter: fairness_weight})
        return model.fit(rows.others["X"], rows.target, **params)

    def _takes(self, step: Any, method: str, name: str) -> bool:
        """Whether a method of a step is handed an argument."""
        if isinstance(self.estimator, Pipeline) and get_config()["enable_metadata_routing"]:
            # There the steps' requests decide, and an unrequested argument is an error.
            return bool(getattr(step.get_metadata_routing(), method).requests.get(name))
        return name in inspect.signature(getattr(step, method)).parameters

    def predict(self, model: Any, rows: Sample) -> Vector:
        """Scores; group and offset are handed on where `predict` has a place for them.

        Without the exposure: a score is a rate.
        """
        target = model.steps[-1][1] if isinstance(model, Pipeline) else model
        given = {"sensitive_features": self.labels(rows), "offset": rows.others.get("offset")}
        params = {
            name: value
            for name, value in given.items()
            if value is not None and self._takes(target, "predict", name)
        }
        return np.asarray(model.predict(rows.others["X"], **params), dtype=np.float64).ravel()

    @property
    def has_path(self) -> bool:
        """Whether the estimator shares work along a path, by the very class whose `fit` it is."""
        home = next((base for base in type(self.estimator).__mro__ if "fit" in vars(base)), object)
        return "path_fitter" in vars(home)


class HeldOut:
    """Out-of-fold scores of all rows, weight by weight.

    Parameters
    ----------
    handle : Handle
    rows : Sample
        With features and labels of groups among `others`.
    folds : sequence of (train, test) rows
    n_jobs : int or None
        Folds fitted at a time.
    """

    def __init__(
        self, handle: Handle, rows: Sample, folds: Sequence[tuple[Rows, Rows]], n_jobs: int | None
    ):
        self.handle, self.folds, self.n_jobs = handle, folds, n_jobs
        self.n_rows = rows.n_rows
        self._parts = [(rows.take(train), rows.take(test)) for train, test in folds]
        self._fitters: list[Any] = []

    def scores(self, fairness_weight: float) -> Vector:
        """Held-out scores of all rows at a weight."""
        shared = self.handle.has_path
        # Threads: the fitters remember solutions, and their kernels release the lock.
        pool = Parallel(n_jobs=self.n_jobs, prefer="threads" if shared else None)
        if shared and not self._fitters:
            self._fitters = pool(delayed(self._start)(train) for train, _ in self._parts)
        fitters = self._fitters or [
            partial(self.handle.fit, rows=train) for train, _ in self._parts
        ]
        parts = pool(
            delayed(_fit_predict)(self.handle, fitter, fairness_weight, test)
            for fitter, (_, test) in zip(fitters, self._parts, strict=True)
        )
        out = np.empty(self.n_rows)
        for (_, test), part in zip(self.folds, parts, strict=True):
            out[test] = part
        return out

    def _start(self, train: Sample) -> Callable[[float], Any]:
        start = self.handle.estimator.path_fitter
        given = self.handle.arguments(train, "cluster" in inspect.signature(start).parameters)
        return start(train.others["X"], train.target, **given)

    def n_constant(self, scores: Vector) -> int:
        """Folds in which held-out scores are one and the same for everybody."""
        return sum(
            bool(np.ptp(scores[test]) <= 1e-12 * np.abs(scores[test]).max())
            for _, test in self.folds
            if len(test) > 1
        )


def _fit_predict(handle: Handle, fitter: Any, fairness_weight: float, test: Sample) -> Vector:
    return handle.predict(fitter(fairness_weight), test)


# ------------------------------------------------------------------------------------------------
# One point of a path: accuracy and criteria of held-out scores, and how points move together.
#
# Every number is a mean over rows to first order, so each row's influence on it gives its standard
# error, and the influences at two points give the correlation of their errors.


# Draws of the joint distribution of their errors.
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
        By criterion, over the rows with a known group. Each of them is also an attribute by its
        name.
    scores : (n,) array
        The held-out scores themselves.
    influence : dict of str → array
        Of some rows on each of the numbers, by criterion and by `key`, that of the accuracy; as
        long as the standard error that rows bring.
    """

    fairness_weight: float
    accuracy: float
    accuracy_stderr: float
    accuracy_interval: tuple[float, float]
    measures: dict[str, Measure]
    scores: Vector = field(repr=False, compare=False)
    key: str = field(default="r2", repr=False)
    influence: dict[str, Vector] = field(default_factory=dict, repr=False, compare=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            key = self.__dict__.get("key")
            if key is not None and name.partition("_")[0] == key:
                return self.__dict__["accuracy" + name[len(key) :]]
            if name in self.__dict__.get("measures", ()):
                return self.measures[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def measure(self, criterion: str | Criterion) -> Measure:
        """The measure of a criterion by name."""
        name = get_criterion(criterion).name
        if name not in self.measures:
            raise InputError(
                "criterion", f"be one that was measured ({', '.join(self.measures)}), got {name!r}",
                hint="register_criterion before fairness_path.",
            )  # fmt: skip
        return self.measures[name]


def tabulate_points(points: Sequence[PathPoint]) -> dict[str, list[Any]]:
    """Columns of fairness weights, accuracy and criteria, with errors and intervals."""
    columns: dict[str, list[Any]] = {"fairness_weight": [p.fairness_weight for p in points]}
    numbers = {
        points[0].key: [(p.accuracy, p.accuracy_stderr, *p.accuracy_interval) for p in points]
    }
    for name in points[0].measures:
        measures = [p.measure(name) for p in points]
        numbers[name] = [(m.value, m.stderr, *m.interval) for m in measures]
    for name, rows in numbers.items():
        for k, suffix in enumerate(("", "_stderr", "_low", "_high")):
            columns[f"{name}{suffix}"] = [row[k] for row in rows]
    return columns


class Gauge:
    """Measures scores of one set of rows.

    Parameters
    ----------
    rows : Sample
        Among its `others`, "given" stands for the target in criteria that condition on it alone,
        and "summary" for the controls of the conditional criterion.
    accuracy : Accuracy
    measure_with, random_state
        The estimator of information.
    confidence_level : float
    """

    def __init__(
        self, rows: Sample, accuracy: Accuracy, measure_with: Any, random_state: Any,
        confidence_level: float,
    ):  # fmt: skip
        self.n_rows, self.rows = rows.n_rows, weighted_rows(rows.weight)
        columns = {name: rows.others.get(name) for name in ("given", "summary")}
        kept = replace(rows, others=columns).weighted()
        self.accuracy, self.groups, self.cluster = accuracy, kept.groups, kept.cluster
        self.given, self.controls = kept.others["given"], kept.others["summary"]
        self.y, self.loss_weight = kept.target, kept.weight
        if kept.exposure is not None:
            self.y, self.loss_weight = accuracy.loss.per_unit(self.y, kept.weight, kept.exposure)
        # Accuracy counts rows of unknown group, too: to it, all rows are of one.
        one = np.zeros(kept.n_rows, dtype=np.intp)
        self._everyone = Groups(
            ("all",), one, None, self.loss_weight, None, len(one), cluster=self.cluster
        )  # fmt: skip
        self.estimator = get_estimator(measure_with, random_state, "measure_with")
        self.level = confidence_level
        self.name = measure_with if isinstance(measure_with, str) else type(measure_with).__name__

    def explain(self, scores: Vector) -> tuple[Vector, float, Vector]:
        """Scores of the rows that count, their accuracy and each row's influence on it."""
        scores = check_column(scores, "scores", self.n_rows)
        measured = scores if self.rows is None else scores[self.rows]
        return measured, *self.accuracy.influence(self.y, measured, self.loss_weight)

    def read(self, fairness_weight: float, scores: Vector) -> PathPoint:
        """All measures of some scores."""
        measured, value, moves = self.explain(scores)
        stderr = standard_error(moves, self.loss_weight, self.cluster)
        half = critical_value(self.level, moves, self._everyone) * stderr
        columns = {"s": measured, "y": self.y}
        criteria = measurable(columns)
        by_criterion = dict.fromkeys(criteria, self.entropies(criteria, columns))
        if self.given is not None:
            # Given a risk measure, only what conditions on the target alone is another quantity.
            other = [c for c in criteria if c.given == ("y",)]
            columns = {"s": measured, "y": self.given}
            by_criterion.update(dict.fromkeys(other, self.entropies(other, columns)))
        if self.controls is not None:
            columns = {"s": measured, "c": self.controls}
            by_criterion[CONDITIONAL] = self.entropies([CONDITIONAL], columns)
        measures = {}
        influence = {self.accuracy.key: unit_influence(moves, self.loss_weight, self.cluster)}
        for criterion, entropies in by_criterion.items():
            measures[criterion.name], influence[criterion.name] = self.judge(criterion, entropies)
        interval = (value - half, value + half)
        return PathPoint(
            fairness_weight, value, stderr, interval, measures, scores, self.accuracy.key, influence
        )

    def judge(self, criterion: Criterion, entropies: Entropies) -> tuple[Measure, Vector]:
        """A measure, and what moves it: the influence of some rows, as long as its error."""
        psi = entropies.influence(criterion)
        moves = unit_influence(psi, self.groups.weight, self.groups.cluster)
        return measure(criterion, entropies, self.level, float("nan"), self.name), moves

    def entropies(self, criteria: list[Criterion], columns: dict[str, Vector]) -> Entropies:
        """Of the groups given columns, as criteria ask for them."""
        return estimate_entropies(criteria, columns, self.groups, self.estimator)


def correlation(points: Sequence[PathPoint], name: str) -> Matrix:
    """How the errors of one number at several points move together."""
    psi = np.array([p.influence[name] for p in points])
    size = np.linalg.norm(psi, axis=1)
    psi = psi / np.where(size > 0, size, 1.0)[:, None]
    return psi @ psi.T


def critical(correlation: Matrix, level: float, n_clusters: int | None = None) -> float:
    """c with P(max_j Z_j ≤ c) = level for normal Z of this correlation: the max-t bound.

    With clusters Z is Student's t with one degree of freedom less than there are.
    """
    values, vectors = np.linalg.eigh(correlation)
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    rng = np.random.default_rng(0)
    largest = (rng.standard_normal((DRAWS, len(root))) @ root.T).max(axis=1)
    alone = ndtri(level)
    if n_clusters is not None:
        freedom = n_clusters - 1
        largest /= np.sqrt(rng.chisquare(freedom, DRAWS) / freedom)
        alone = stdtrit(freedom, level)
    return max(float(np.quantile(largest, level)), float(alone))


# ------------------------------------------------------------------------------------------------
# The curve of a candidate: held-out accuracy at a bound on unfairness.
#
# Read off the points (unfairness, accuracy) over fairness weights: a factor of two apart, found by
# bisection, straight lines in between.


WEIGHTS = (0.0, *(2.0**k for k in range(-4, 11)))
_FIRST = WEIGHTS.index(1.0)
# How closely the chosen weight meets the bound from below, and tries at that.
_CLOSE, _TRIES = 0.05, 4
# Weights, each four times the last, after which a curve that no longer falls has reached its floor.
_PATIENCE = 2


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
    margin : float
        What is added to the unfairness before it is compared with a bound; infinite for a constant.
    measures : dict of str → Measure
        The criterion by attribute; empty between two weights that were tried.
    moves : array
        Of some rows on the unfairness, as long as its standard error; empty likewise.
    """

    fairness_weight: float
    accuracy: float
    unfairness: float
    influence: Vector
    margin: float = 0.0
    measures: dict[str, Measure] = field(default_factory=dict)
    moves: Vector = field(default_factory=lambda: np.zeros(0))

    @property
    def judged(self) -> float:
        """What must not exceed a bound."""
        return self.unfairness + self.margin


class Curve:
    """Held-out accuracy and unfairness of a candidate, found where they are asked for.

    Parameters
    ----------
    candidate : Candidate
    estimator : estimator
    rows : Sample
    folds : sequence of (train, test) rows
    criterion : Criterion
    measure_with : EntropyEstimator
    n_jobs : int or None
    level : float
        Confidence with which bounds are met; 0.5 judges by the estimates.
    limits : dict of name to (Groups, float), optional
        Attributes with a limit each. Unfairness is then the largest share of its limit that one of
        them reaches, and 1 the bound.
    """

    def __init__(
        self, candidate: Any, estimator: Any, rows: Sample, folds: Sequence[tuple[Rows, Rows]],
        criterion: Criterion, measure_with: Any, n_jobs: int | None, level: float = 0.5,
        limits: dict[str, tuple[Groups, float]] | None = None,
    ):  # fmt: skip
        self.candidate, self._criterion, self._level = candidate, criterion, level
        self._held_out = HeldOut(Handle.find(estimator), rows, folds, n_jobs)
        self._rows, self._one = rows, not limits
        limits = limits or {"": (rows.groups, 1.0)}
        accuracy = self._held_out.handle.accuracy
        self._limits = [
            (name, Gauge(replace(rows, groups=groups), accuracy, measure_with, None, 0.95), limit)
            for name, (groups, limit) in limits.items()
        ]
        self._gauge = self._limits[0][1]
        self._seen: dict[float, Place] = {}

    def at(self, fairness_weight: float) -> Place:
        """The candidate at a weight; fitted and measured once."""
        if fairness_weight not in self._seen:
            scores = self._held_out.scores(fairness_weight)
            s, accuracy, influence = self._gauge.explain(scores)
            measures, judged = {}, []
            for name, gauge, limit in self._limits:
                measures[name], psi = value, _ = self._measure(gauge, s)
                margin = 0.0
                if self._level > 0.5:
                    margin = critical(np.ones((1, 1)), self._level, value.n_clusters) * value.stderr
                judged.append((max(value.value, 0.0) / limit, margin / limit, psi / limit))
            unfairness, margin, moves = max(judged, key=lambda j: j[0] + j[1])
            # One score for everybody is no model; in some of the folds it makes a mixture of two
            # kinds, neither of which was measured (Illinois by ZIP: held-out R² .26, refitted 0).
            if self._held_out.n_constant(scores):
                margin = np.inf
            self._seen[fairness_weight] = Place(
                fairness_weight, accuracy, unfairness, influence, margin, measures, moves
            )
        return self._seen[fairness_weight]

    def _measure(self, gauge: Gauge, s: Vector) -> tuple[Measure, Vector]:
        """The criterion, and what moves it."""
        entropies = gauge.entropies([self._criterion], {"s": s, "y": gauge.y})
        return gauge.judge(self._criterion, entropies)

    def unseen(self, model: Any) -> tuple[float, float]:
        """What the audit sees in the rows of training and the term of the fit does not; its error.

        NaN where the two are not the same quantity: several attributes, a moving normalizer.
        """
        if not self._one or self._criterion.moves(self._criterion.given):
            return float("nan"), float("nan")
        scores = self._held_out.handle.predict(model, self._rows)
        seen, _ = self._measure(self._gauge, self._gauge.explain(scores)[0])
        return seen.value - model.unfairness_, seen.stderr

    def refit(self, fairness_weight: float, rows: Sample) -> Any:
        """The candidate at a weight, fitted on other rows: all of them."""
        return self._held_out.handle.fit(fairness_weight, rows)

    def meet(self, bound: float) -> tuple[Place, bool]:
        """Where the curve meets a bound, and whether it does.

        Where not, the most accurate place that is as fair as the fairest, up to the standard error
        of their difference: beyond a floor, held-out unfairness may rise while R² falls.
        """
        low, high, worse = 0, _FIRST, 0
        floor = self.at(WEIGHTS[0]).judged
        if floor <= bound:
            return self.at(WEIGHTS[0]), True
        while (judged := self.at(WEIGHTS[high]).judged) > bound:
            constant = judged == np.inf
            if constant and high > low + 1:
                high = low + 1  # constants may begin anywhere in between
                continue
            worse, floor = (0, judged) if judged < floor else (worse + 1, floor)
            if constant or high == len(WEIGHTS) - 1 or worse == _PATIENCE:
                least = min(self._seen.values(), key=lambda place: place.judged)
                near = [
                    place for place in self._seen.values()
                    if place.judged - least.judged <= np.linalg.norm(place.moves - least.moves)
                ]  # fmt: skip
                return max(near, key=lambda place: place.accuracy), False
            low, high = high, min(high + 2, len(WEIGHTS) - 1)
        while high - low > 1:
            middle = (low + high) // 2
            if self.at(WEIGHTS[middle]).judged > bound:
                low = middle
            else:
                high = middle
        return self._between(self.at(WEIGHTS[low]), self.at(WEIGHTS[high]), bound), True

    @staticmethod
    def _between(unfair: Place, fair: Place, bound: float) -> Place:
        """The place on the straight line between two that meets the bound."""
        if unfair.judged == np.inf:
            return fair
        t = (unfair.judged - bound) / (unfair.judged - fair.judged)
        margin = (1 - t) * unfair.margin + t * fair.margin
        if unfair.fairness_weight > 0:
            weight = unfair.fairness_weight ** (1 - t) * fair.fairness_weight**t
        else:
            weight = t * fair.fairness_weight
        return Place(
            float(f"{weight:.6g}"),
            (1 - t) * unfair.accuracy + t * fair.accuracy,
            bound - margin,
            (1 - t) * unfair.influence + t * fair.influence,
            margin,
        )

    def best_within(self, bound: float) -> Place:
        """A place that was fitted and meets the bound from closely below, if there is one."""
        place, reached = self.meet(bound)
        if not reached:
            return place
        for _ in range(_TRIES):
            tried = sorted(self._seen.values(), key=lambda p: p.fairness_weight)
            j = next(
                j for j, p in enumerate(tried)
                if p.judged <= bound and p.fairness_weight >= place.fairness_weight
            )  # fmt: skip
            if j == 0 or tried[j].judged >= (1 - _CLOSE) * bound:
                break
            if tried[j - 1].judged <= bound:
                break
            # A little beyond the line, so that the next try is more likely to meet the bound.
            goal = max(bound - 0.3 * _CLOSE * bound, tried[j].judged)
            place = self._between(tried[j - 1], tried[j], goal)
            if place.fairness_weight in self._seen:
                break
            self.at(place.fairness_weight)
        return max((p for p in self._seen.values() if p.judged <= bound), key=lambda p: p.accuracy)

    def difference_error(self, one: Place, other: Place) -> float:
        """Standard error of the difference in accuracy of two places, over rows or clusters."""
        change = one.influence - other.influence
        return standard_error(change, self._gauge.loss_weight, self._gauge.cluster)
