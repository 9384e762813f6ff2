"""What fair linear models share: checks, group features, the fit at one weight and along a path.

minimize  loss(η) / null loss + penalty + fairness_weight · Ĩ(score of η),   η = Xθ + b

A subclass says which loss, by the problem that `_prepare` returns.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from .._core.arrays import Vector
from .._core.progress import shown
from .._core.validation import (
    InputError,
    check_choice,
    check_index,
    check_nonnegative,
    check_positive_integer,
    refuse_unreal,
)
from ..data.controls import read_controls
from ..data.criteria import CONDITIONAL
from ..data.groups import Groups, resolve_groups
from ..data.sample import repeat_rows
from ..data.weights import check_weight, scale_to_count
from .bound import BoundRegularizer
from .design import FeatureMatrix, ReadsTables, is_source
from .group_features import GroupFeatures, Slopes
from .penalty import FairnessRegularizer
from .problem import Problem, TrainingRows
from .solver import STARTS, Checkpoint, PathSolver, path_tolerance
from .source import predicted, read_columns, scanned

# ------------------------------------------------------------------------------------------------
# What scikit-learn needs to know of models whose `predict` may need the group.


class ScoresWithGroups:
    """A `score` that hands the attribute on to `predict`, and groups routed to all methods.

    Under metadata routing an argument that is neither requested nor refused is an error; these
    models are about groups, so they request them unless `set_fit_request` and its like say
    otherwise.
    """

    __metadata_request__fit: ClassVar = {"sensitive_features": True}
    __metadata_request__predict: ClassVar = {"sensitive_features": True}
    __metadata_request__score: ClassVar = {"sensitive_features": True}

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> float:
        """R² of the predictions.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        sensitive_features : array, series, frame or Proxy, optional
            Needed where `predict` needs it.

        Returns
        -------
        float
        """
        prediction = self.predict(X, sensitive_features=sensitive_features)  # type: ignore[attr-defined]
        y, sample_weight = self._columns(X, y=y, sample_weight=sample_weight)
        return float(r2_score(y, prediction, sample_weight=sample_weight))

    def _columns(self, X: Any, **columns: Any) -> list[Any]:
        """Columns that belong to the rows of X, as they are."""
        return [*columns.values()]


KINDS = ("posterior", "attribute")


def check_kind(kind: str | None) -> None:
    """Refuse an unknown kind of group features."""
    if kind is not None and kind not in KINDS:
        raise InputError(
            "group_features", f"be None, {' or '.join(map(repr, KINDS))}, got {kind!r}"
        )


def refuse_missing_groups(needed: bool) -> None:
    """Say how groups reach `fit`, where they are needed and were not given."""
    if needed:
        raise InputError(
            "sensitive_features", "be given when `fairness_weight` > 0, got None",
            hint="pass sensitive_features=... to fit; inside a Pipeline or GridSearchCV first "
            "call sklearn.set_config(enable_metadata_routing=True).",
        )  # fmt: skip


class FairLinear(ReadsTables, ScoresWithGroups, RegressorMixin, BaseEstimator, ABC):
    """Base of :class:`FairRidge` and :class:`FairGLM`; not for use by itself."""

    takes_groups: ClassVar = True  # that were read before, in place of their labels

    def __init__(
        self,
        criterion: str = "independence",
        fairness_weight: float = 1.0,
        alpha: float = 1e-3,
        *,
        classifier: str = "logistic",
        basis: str = "auto",
        kappa: float | str = "auto",
        score_map: str = "auto",
        group_features: str | None = None,
        group_alpha: float | str = "auto",
        fit_intercept: bool = True,
        max_iter: int = 200,
        tol: float = 1e-6,
        start: str = "auto",
    ):
        self.criterion = criterion
        self.fairness_weight = fairness_weight
        self.alpha = alpha
        self.classifier = classifier
        self.basis = basis
        self.kappa = kappa
        self.score_map = score_map
        self.group_features = group_features
        self.group_alpha = group_alpha
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol
        self.start = start

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _rows(self, y: Vector, weight: Vector | None, columns: Mapping[str, Any]) -> TrainingRows:
        """Columns as the loss takes them."""
        return TrainingRows(y, weight)

    @abstractmethod
    def _prepare(self, design: FeatureMatrix, rows: TrainingRows, n_kept: int) -> Problem:
        """The problem at ``fairness_weight=0``; the last `n_kept` columns stay what they are."""

    def _problem(self, design: FeatureMatrix, rows: TrainingRows, slopes: Slopes | None) -> Problem:
        """The same with `slopes`, the last columns of the design, drawn together."""
        problem = self._prepare(design, rows, 0 if slopes is None else slopes.size)
        self.group_alpha_ = 0.0
        if slopes is not None:
            problem, self.group_alpha_ = slopes.shrink(problem, rows, self.group_alpha)
        return problem

    def _fit(
        self, X: Any, y: Any, frequency: Any, features: Any, scratch: Any, checkpoint: Any,
        **columns: Any,
    ) -> Self:  # fmt: skip
        """Fit on rows in memory, or on a table that is read from where it is."""
        saved = None if checkpoint is None else Checkpoint(checkpoint, self)
        begin = None if saved is None else saved.plain
        if not is_source(X):
            for name, value in {"features": features, "scratch": scratch}.items():
                if value is not None:
                    raise InputError(
                        name, f"be None where `X` is in memory, got {value!r}",
                        hint="it is for an `X` that is a path or an Arrow dataset.",
                    )  # fmt: skip
            X, y, *values = repeat_rows(frequency, X=X, y=y, **columns)
            columns = dict(zip(columns, values, strict=True))
            return self._finish(self._resumed(self._start(X, y, begin=begin, **columns), saved))
        if frequency is not None:
            raise InputError(
                "frequency", "be None where `X` is a path or a dataset: rows would have to be "
                "repeated",
                hint="write a row for each person, or use `sample_weight` where only proportions "
                "matter.",
            )  # fmt: skip
        if self.group_features == "posterior":
            raise InputError(
                "group_features", "be None or 'attribute' where `X` is a path or a dataset, got "
                "'posterior', whose classifier needs the rows in memory", hint="fit on a sample.",
            )  # fmt: skip
        self._check_parameters()
        with scanned(X, features, scratch, {"y": y, **columns}) as scan:
            table = scan["X"]
            with shown(f"fitting {type(self).__name__}") as show:
                table.watch = partial(show, "pass")
                # What was read is let go with the call where the problem does not hold it.
                prepared = self._start(begin=begin, **{name: scan.pop(name) for name in [*scan]})
                prepared.show = partial(show, "search")
                return self._finish(self._resumed(prepared, saved))

    def _resumed(self, prepared: PathSolver, saved: Checkpoint | None) -> PathSolver:
        """The solver where an earlier run left it."""
        if saved is None:
            return prepared
        problem = prepared.problem
        plain = [problem.intercept(problem.theta), *problem.coefficients(problem.theta)]
        data: dict[str, Any] = {
            "rows": problem.design.n,
            "features": [*map(str, getattr(self, "feature_names_in_", [problem.features.d]))],
            "plain": [*map(float, plain)],
            "scale": [float(problem.null)],
        }
        if prepared.bound is not None:
            groups = prepared.bound.groups
            data["groups"] = [*groups.label_names]
            data["counts"] = [*map(float, groups.counts)]
        saved.attach(prepared, data)
        return prepared

    def _start(
        self, X: Any, y: Any, sensitive_features: Any = None, sample_weight: Any = None,
        slopes: Slopes | None = None, begin: Vector | None = None, **columns: Any,
    ) -> PathSolver:  # fmt: skip
        """Everything that does not depend on `fairness_weight`; `slopes` are among X already."""
        self._check_parameters()
        if columns.get("controls") is not None and self._regularizer().criterion != CONDITIONAL:
            raise InputError(
                "controls", f"be None with criterion={self.criterion!r}, which does not use them",
                hint="criterion='conditional'.",
            )  # fmt: skip
        refuse_unreal(X=X, y=y)
        check_index(
            X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight, **columns
        )
        X, y = self._read_training(X, y)
        n = X.shape[0]
        weight = check_weight(sample_weight, n)
        if weight is not None:
            weight = scale_to_count(weight)
        rows = self._rows(y.astype(np.float64, copy=False), weight, columns)
        rows = replace(rows, begin=begin)
        groups = None
        if sensitive_features is not None:
            groups = resolve_groups(sensitive_features, n_rows=n, sample_weight=weight)
        elif self.group_features is not None and self.fairness_weight == 0:
            raise InputError(
                "sensitive_features", f"be given with group_features={self.group_features!r}, got "
                "None",
            )  # fmt: skip
        else:
            refuse_missing_groups(self.fairness_weight > 0)
        design = FeatureMatrix(X)
        with design.blas():
            problem = self._problem(design, rows, slopes)
        if problem.null == 0 and self.fairness_weight > 0:
            raise InputError(
                "y", "vary: all rows have the same value, so there is nothing to predict"
            )
        self._group_features: GroupFeatures | None = None
        if groups is None:
            return PathSolver(problem, None, self.start)
        if self.group_features is not None:
            problem = self._add_group_features(problem, rows, groups)
        return PathSolver(problem, self._bind(rows, groups, columns.get("controls")), self.start)

    def _bind(self, rows: TrainingRows, groups: Groups, controls: Any) -> BoundRegularizer | None:
        """The fairness term over the rows; None where nothing can be measured or is asked for."""
        regularizer = self._regularizer()
        given = rows.given if regularizer.criterion.given == ("y",) else None
        if regularizer.criterion == CONDITIONAL:
            if controls is None and self.fairness_weight == 0:
                return None
            if controls is None:
                raise InputError(
                    "controls", "be given with criterion='conditional', got None",
                    hint="pass controls=... to fit, or use criterion='independence'.",
                )  # fmt: skip
            from ..measures.balancing import summarize_controls

            columns = read_controls(controls, groups.n_rows)
            given, self.controls_summary_ = summarize_controls(columns, groups)
        return regularizer.bind(rows.y, sensitive_features=groups, given=given)

    def _finish(self, prepared: PathSolver, on_path: bool = False) -> Self:
        """Solve at `fairness_weight`, from the nearest solutions in `prepared`."""
        problem = prepared.problem
        theta = problem.theta
        # The plain solve counts as an iteration.
        self.n_iter_, self.n_evaluations_ = 1, 0
        self.unfairness_ = float("nan")
        if prepared.bound is not None:
            theta = self._fit_fair(prepared, prepared.bound, on_path)
        else:
            self.objective_ = problem.objective(theta)
        self._keep_more(problem, theta)
        X = problem.features.X
        d = X.shape[1]
        coefficients = problem.coefficients(theta)
        self.coef_ = coefficients[:d].astype(X.dtype, copy=False)
        self.group_coef_ = coefficients[d:]
        self.intercept_ = float(problem.intercept(theta))
        if self.fairness_weight > 0:
            self.objective_ += self.fairness_weight * self.unfairness_
        return self

    def _keep_more(self, problem: Problem, theta: Vector) -> None:
        """What else a subclass keeps of the solution."""

    def _path(self, *rows: Any, **columns: Any) -> Callable[[float], Any]:
        """fairness_weight → fitted model; arguments as of `_start`."""
        model = clone(self)
        prepared = model._start(*rows, **columns)
        n = prepared.problem.design.n

        def fit(fairness_weight: float) -> FairLinear:
            # A shallow copy shares what `_start` set and nothing that `_finish` sets.
            point = copy(model)
            point.fairness_weight = fairness_weight
            point.tol = path_tolerance(self.tol, n, fairness_weight)
            return point._finish(prepared, on_path=True)

        return fit

    def _add_group_features(self, problem: Problem, rows: TrainingRows, groups: Groups) -> Problem:
        X = problem.features.X
        self._base = (problem.coefficients(problem.theta), problem.intercept(problem.theta))
        score = problem.features.forward(self._base[0]) + self._base[1]
        assert self.group_features is not None
        features = GroupFeatures.fit(self.group_features, X, score, groups, rows.weight)
        self._group_features = features
        extra = features.transform(X, score, groups)
        return self._problem(FeatureMatrix(X, extra), rows, Slopes(groups.n_groups))

    def _fit_fair(self, prepared: PathSolver, bound: BoundRegularizer, on_path: bool) -> Vector:
        problem = prepared.problem
        if self.fairness_weight == 0:
            self.unfairness_ = prepared.plain()
            self.objective_ = problem.objective(problem.theta)
            return problem.theta
        solution = prepared.solve(self.fairness_weight, self.max_iter, self.tol, on_path=on_path)
        self.n_iter_, self.n_evaluations_ = max(solution.n_iter, 1), solution.n_evaluations
        theta = problem.at(solution.v)
        if bound.scale_free:
            theta = problem.best_scale(theta, self.fairness_weight)
        # A search that ends at the level of rounding just above `tol` has done its work.
        stalled = solution.gradient_norm > 1e3 * self.tol * (1.0 + self.fairness_weight)
        if not solution.converged and (stalled or solution.n_iter >= self.max_iter):
            warnings.warn(
                f"{type(self).__name__} stopped after {solution.n_iter} iterations "
                f"(max_iter={self.max_iter}) with a gradient of {solution.gradient_norm:.1e}. "
                "Hint: raise `max_iter`, or raise `tol` if the objective no longer changes where "
                "you need it.",
                ConvergenceWarning,
                stacklevel=5,
            )
        self.unfairness_ = solution.term / self.fairness_weight
        self.objective_ = problem.objective(theta)
        # One score for all is the other candidate: no path of falling values leads there, as the
        # term does not see the scale of the scores.
        zero = problem.constant()
        if zero is None:
            return theta
        loss = problem.objective(zero)
        gain = self.objective_ + self.fairness_weight * self.unfairness_ - loss
        if gain > 0:
            constant = bound.value(problem.fair_scores(problem.scores(zero)))
            if gain > self.fairness_weight * constant:
                theta, self.objective_, self.unfairness_ = zero, loss, constant
        return theta

    def _predict(self, X: Any, sensitive_features: Any, **columns: Any) -> NDArray[Any]:
        """Scores of rows in memory, or of a table that is read from where it is."""
        check_is_fitted(self)
        if not is_source(X):
            refuse_unreal(X=X)
            check_index(X=X, sensitive_features=sensitive_features, **columns)
            score = self._predictor(self._read_features(X), sensitive_features)
            return self._response(score, **columns)
        names = getattr(self, "feature_names_in_", None)
        if names is None or self.encoder_ is not None:
            raise ValueError(
                "`X` must be in memory for a model that was fitted to "
                + ("columns without names" if names is None else "a table with text or gaps")
                + ", got a path or a dataset. Hint: read the file and pass the rows."
            )
        given = {"sensitive_features": sensitive_features, **columns}
        parts = [
            self._response(self._predictor(rows, handed.pop("sensitive_features", None)), **handed)
            for rows, handed in predicted(X, names, self.coef_.dtype, given)
        ]
        return np.concatenate(parts)

    def _columns(self, X: Any, **columns: Any) -> list[Any]:
        """Columns as they are, or read from where X is."""
        if not is_source(X):
            return super()._columns(X, **columns)
        read = read_columns(X, columns)
        return [read.get(name) for name in columns]

    def _response(self, score: NDArray[Any]) -> NDArray[Any]:
        """What is predicted at η."""
        return score

    def _predictor(self, X: Any, sensitive_features: Any) -> NDArray[Any]:
        """η = Xθ + b, with what the group features add, for checked X."""
        score = np.asarray(X @ self.coef_ + np.asarray(self.intercept_, dtype=X.dtype))
        if self._group_features is None:
            return score
        base = FeatureMatrix(X).forward(self._base[0]) + self._base[1]
        extra = self._group_features.transform(X, base, sensitive_features)
        return (score + extra @ self.group_coef_).astype(X.dtype, copy=False)

    def _check_parameters(self) -> None:
        for name in ("fairness_weight", "alpha", "tol"):
            check_nonnegative(name, getattr(self, name))
        check_positive_integer("max_iter", self.max_iter)
        check_choice("start", self.start, STARTS)
        check_kind(self.group_features)
        hint = "0 leaves every group its own slope."
        check_nonnegative("group_alpha", self.group_alpha, hint, auto=True)
        # Names are checked even where fairness_weight=0 would never use them.
        self._regularizer()

    def _regularizer(self) -> FairnessRegularizer:
        return FairnessRegularizer(
            self.criterion, self.classifier, self.basis, kappa=self.kappa, score_map=self.score_map
        )
