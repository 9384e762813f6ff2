"""Held-out scores of an estimator at many fairness weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.parallel import Parallel, delayed

from ..groups.controls import Controls
from ..groups.frequency import take_rows
from ..groups.validation import check_column
from ..information.criteria import Criterion, get_criterion
from ..models.accuracy import Accuracy
from ..models.losses import accuracy_of

Rows = NDArray[np.intp]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Training rows as the user gave them; `cluster` as numbers, or None.

    `more` are columns that the estimator's `fit` takes besides, by name. `summary` stands for
    controls where the conditional criterion is measured.
    """

    X: Any
    y: Vector
    sensitive_features: Any
    sample_weight: Vector | None
    cluster: Rows | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    summary: Vector | None = None

    def take(self, rows: Rows) -> Data:
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        sensitive = take_rows(self.sensitive_features, rows)
        cluster = None if self.cluster is None else self.cluster[rows]
        more = {
            name: part.take(rows) if isinstance(part, Controls) else part[rows]
            for name, part in self.more.items()
        }
        return Data(_safe_indexing(self.X, rows), self.y[rows], sensitive, weight, cluster, more)


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
            raise ValueError(
                "`estimator` must be a scikit-learn estimator, got "
                f"{estimator!r}. Hint: pass an instance such as evenhand.FairRidge()."
            )
        names = [n for n in estimator.get_params() if n.split("__")[-1] == "fairness_weight"]
        depth = min((n.count("__") for n in names), default=0)
        names = [n for n in names if n.count("__") == depth]
        if len(names) != 1:
            found = f"several ({', '.join(names)})" if names else "none"
            raise ValueError(
                "`estimator` must have one parameter `fairness_weight`, its own or that of a "
                f"pipeline's step; {type(estimator).__name__} has {found}."
            )
        return cls(estimator, names[0])

    @property
    def criterion(self) -> Any:
        """The estimator's own criterion, or None."""
        name = self.parameter.removesuffix("fairness_weight") + "criterion"
        return self.estimator.get_params().get(name)

    @property
    def own_criterion(self) -> Criterion | None:
        """The same, looked up."""
        return None if self.criterion is None else get_criterion(self.criterion)

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

    def check_columns(self, n_rows: int, **columns: Any) -> dict[str, Vector]:
        """Columns for `fit`, those left out left out; refused where it has no place for them."""
        found = {}
        for name, values in columns.items():
            if values is None:
                continue
            if name not in inspect.signature(self.step.fit).parameters:
                raise ValueError(
                    f"`{name}` must be None for {type(self.step).__name__}, whose fit takes none, "
                    "got values. Hint: evenhand.FairGLM takes it."
                )
            found[name] = check_column(values, name, n_rows)
        if "exposure" in found and not (found["exposure"] > 0).all():
            raise ValueError(
                f"`exposure` must be positive, got {found['exposure'].min():g}. Hint: leave out "
                "rows that were never at risk."
            )
        return found

    def at(self, fairness_weight: float) -> Any:
        """An unfitted copy with this weight."""
        return clone(self.estimator).set_params(**{self.parameter: fairness_weight})

    def fit(self, fairness_weight: float, data: Data) -> Any:
        """Fit a copy."""
        params = {"sensitive_features": data.sensitive_features, **data.more}
        if data.sample_weight is not None:
            params["sample_weight"] = data.sample_weight
        if data.cluster is not None and self._takes_cluster():
            params["cluster"] = data.cluster
        if isinstance(self.estimator, Pipeline) and not get_config()["enable_metadata_routing"]:
            step = self.parameter.split("__")[0]
            params = {f"{step}__{name}": value for name, value in params.items()}
        return self.at(fairness_weight).fit(data.X, data.y, **params)

    def _takes_cluster(self) -> bool:
        """Whether the step that is fair makes folds of its own, which must keep clusters whole."""
        if isinstance(self.estimator, Pipeline) and get_config()["enable_metadata_routing"]:
            return bool(self.step.get_metadata_routing().fit.requests.get("cluster"))
        return "cluster" in inspect.signature(self.step.fit).parameters

    def predict(self, model: Any, data: Data) -> Vector:
        """Scores; group and offset are handed on where `predict` has a place for them.

        Without the exposure: a score is a rate.
        """
        target = model.steps[-1][1] if isinstance(model, Pipeline) else model
        params = {"sensitive_features": data.sensitive_features}
        if "offset" in data.more:
            params["offset"] = data.more["offset"]
        places = inspect.signature(target.predict).parameters
        params = {name: value for name, value in params.items() if name in places}
        if isinstance(model, Pipeline) and get_config()["enable_metadata_routing"]:
            # There the steps' requests decide, and an unrequested argument is an error.
            asked = target.get_metadata_routing().predict.requests
            params = {name: value for name, value in params.items() if asked.get(name)}
        return np.asarray(model.predict(data.X, **params), dtype=np.float64).ravel()

    @property
    def has_path(self) -> bool:
        """Whether the estimator shares work along a path, by the very class whose `fit` it is."""
        for base in type(self.estimator).__mro__:
            if "fit" in vars(base):
                return "path_fitter" in vars(base)
        return False


class HeldOut:
    """Out-of-fold scores of all rows, weight by weight.

    Parameters
    ----------
    handle : Handle
    data : Data
    folds : sequence of (train, test) rows
    n_jobs : int or None
        Folds fitted at a time.
    """

    def __init__(
        self,
        handle: Handle,
        data: Data,
        folds: Sequence[tuple[Rows, Rows]],
        n_jobs: int | None,
    ):
        self.handle, self.folds, self.n_jobs = handle, folds, n_jobs
        self.n_rows = len(data.y)
        self._parts = [(data.take(train), data.take(test)) for train, test in folds]
        self._fitters: list[Any] = []

    def scores(self, fairness_weights: Sequence[float]) -> list[Vector]:
        """One column of held-out scores for each weight."""
        if not self.handle.has_path:
            jobs = (
                delayed(_fit_predict)(self.handle, weight, train, test)
                for weight in fairness_weights
                for train, test in self._parts
            )
            parts = Parallel(n_jobs=self.n_jobs)(jobs)
        else:
            # Threads: the fitters remember solutions, and their kernels release the lock.
            pool = Parallel(n_jobs=self.n_jobs, prefer="threads")
            if not self._fitters:
                self._fitters = pool(
                    delayed(_path_fitter)(self.handle, train) for train, _ in self._parts
                )
            columns = pool(
                delayed(_along_path)(self.handle, fitter, fairness_weights, test)
                for fitter, (_, test) in zip(self._fitters, self._parts, strict=True)
            )
            parts = [column[j] for j in range(len(fairness_weights)) for column in columns]
        k = len(self.folds)
        return [self._assemble(parts[j * k : (j + 1) * k]) for j in range(len(fairness_weights))]

    def n_constant(self, scores: Vector) -> int:
        """Folds in which held-out scores are one and the same for everybody."""
        return sum(
            bool(np.ptp(scores[test]) <= 1e-12 * np.abs(scores[test]).max())
            for _, test in self.folds
            if len(test) > 1
        )

    def _assemble(self, parts: Sequence[Vector]) -> Vector:
        out = np.empty(self.n_rows)
        for (_, test), part in zip(self.folds, parts, strict=True):
            out[test] = part
        return out


def _fit_predict(handle: Handle, fairness_weight: float, train: Data, test: Data) -> Vector:
    return handle.predict(handle.fit(fairness_weight, train), test)


def _path_fitter(handle: Handle, train: Data) -> Callable[[float], Any]:
    start = handle.estimator.path_fitter
    extra: dict[str, Any] = dict(train.more)
    if train.cluster is not None and "cluster" in inspect.signature(start).parameters:
        extra["cluster"] = train.cluster
    return start(
        train.X,
        train.y,
        sensitive_features=train.sensitive_features,
        sample_weight=train.sample_weight,
        **extra,
    )


def _along_path(handle: Handle, fitter: Any, weights: Sequence[float], test: Data) -> list[Vector]:
    return [handle.predict(fitter(weight), test) for weight in weights]
