"""Fair linear models: what they share, and FairRidge, the one of squares.

minimize  loss(η) / null loss + penalty + fairness_weight · Ĩ(score of η),   η = Xθ + b

A subclass says which loss, by the problem that `_prepare` returns.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._core.arrays import Vector
from .._core.progress import shown
from .._core.validation import (
    InputError,
    check_column,
    check_index,
    check_nonnegative,
    check_positive_integer,
    is_one_of,
)
from ..data.criteria import CONDITIONAL
from ..data.encoding import read_controls
from ..data.groups import Groups, resolve_groups
from ..data.sample import repeat_rows
from ..data.weights import check_exposure, check_weight, scale_to_count
from ..measures.losses import R2, Accuracy
from .design import FeatureMatrix, ReadsTables, is_source
from .group_features import GroupFeatures, Slopes
from .model_files import Saves
from .penalty import BoundRegularizer, FairnessRegularizer
from .problem import Problem, RidgeProblem, TrainingRows, prepare_ridge
from .solver import PathSolver, path_tolerance
from .source import scanned

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

    @property
    def accuracy(self) -> Accuracy:
        """R²: how paths, reports and tables measure this model."""
        return R2

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> float:
        """R² of the predictions, or what else `accuracy` is.

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
        return self._accuracy(X, y, sample_weight, sensitive_features=sensitive_features)

    def _accuracy(
        self, X: Any, y: Any, sample_weight: Any, exposure: Any = None, **columns: Any
    ) -> float:
        """The accuracy at the predictions from `columns`."""
        check_index(X=X, y=y, sample_weight=sample_weight, exposure=exposure)
        mean = self.predict(X, **columns)  # type: ignore[attr-defined]
        y = check_column(y, "y", len(mean))
        weight = check_weight(sample_weight, len(y))
        if exposure is not None:
            y, weight = self.accuracy.loss.per_unit(y, weight, check_exposure(exposure, len(y)))
        return self.accuracy.value(y, mean.astype(np.float64), weight)


KINDS = ("posterior", "attribute")


def check_kind(kind: str | None) -> None:
    """Refuse an unknown kind of group features."""
    if kind is not None and not is_one_of(kind, KINDS):
        raise InputError(
            "group_features", f"be None, {' or '.join(map(repr, KINDS))}, got {kind!r}"
        )


def refuse_missing_groups(needed: bool) -> None:
    """Say how groups reach `fit`, where they are needed and were not given."""
    if needed:
        raise InputError(
            "sensitive_features", "be given unless fairness_weight=0, got None",
            hint="pass sensitive_features=... to fit; inside a Pipeline or GridSearchCV first "
            "call sklearn.set_config(enable_metadata_routing=True).",
        )  # fmt: skip


# Comparison and repr stay those of scikit-learn.
@dataclass(eq=False, repr=False, kw_only=True)
class FairLinear(ReadsTables, Saves, ScoresWithGroups, RegressorMixin, BaseEstimator, ABC):
    """Base of :class:`FairRidge` and :class:`FairGLM`; not for use by itself."""

    takes_groups: ClassVar = True  # that were read before, in place of their labels

    if TYPE_CHECKING:  # fields of each model, in an order of its own
        criterion: str
        fairness_weight: float
        alpha: float
    classifier: str = "logistic"
    basis: str = "auto"
    kappa: float | str = "auto"
    score_map: str = "auto"
    group_features: str | None = None
    group_alpha: float | str = "auto"
    fit_intercept: bool = True
    max_iter: int = 200
    tol: float = 1e-6

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
        self, X: Any, y: Any, frequency: Any, features: Any, scratch: Any, **columns: Any
    ) -> Self:
        """Fit on rows in memory, or on a table that is read from where it is."""
        if not is_source(X):
            for name, value in {"features": features, "scratch": scratch}.items():
                if value is not None:
                    raise InputError(
                        name, f"be None where `X` is in memory, got {value!r}",
                        hint="it is for an `X` that is a path or an Arrow dataset.",
                    )  # fmt: skip
            X, y, *values = repeat_rows(frequency, X=X, y=y, **columns)
            columns = dict(zip(columns, values, strict=True))
            return self._finish(self._start(X, y, **columns))
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
                return self._finish(self._start(**{name: scan.pop(name) for name in [*scan]}))

    def _start(
        self, X: Any, y: Any, sensitive_features: Any = None, sample_weight: Any = None,
        slopes: Slopes | None = None, **columns: Any,
    ) -> PathSolver:  # fmt: skip
        """Everything that does not depend on `fairness_weight`; `slopes` are among X already."""
        self._check_parameters()
        if columns.get("controls") is not None and self._regularizer().criterion != CONDITIONAL:
            raise InputError(
                "controls", f"be None with criterion={self.criterion!r}, which does not use them",
                hint="criterion='conditional'.",
            )  # fmt: skip
        check_index(
            X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight, **columns
        )
        X, y = self._read_training(X, y)
        n = X.shape[0]
        weight = check_weight(sample_weight, n)
        if weight is not None:
            weight = scale_to_count(weight)
        rows = self._rows(y.astype(np.float64, copy=False), weight, columns)
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
                "y", "vary: all rows have the same value, or differ by too little to be squared"
            )
        self._group_features: GroupFeatures | None = None
        if groups is None:
            return PathSolver(problem, None)
        if self.group_features is not None:
            problem = self._add_group_features(problem, rows, groups)
        return PathSolver(problem, self._bind(rows, groups, columns.get("controls")))

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
        if prepared.bound is not None and self.fairness_weight > 0:
            theta = self._fit_fair(prepared, prepared.bound, on_path)
        else:
            self.unfairness_ = prepared.plain()
            self.objective_ = problem.objective(theta)
        theta = self._keep_more(prepared, theta, on_path)
        X = problem.features.X
        d = X.shape[1]
        coefficients = problem.coefficients(theta)
        self.coef_ = coefficients[:d].astype(X.dtype, copy=False)
        self.group_coef_ = coefficients[d:]
        self.intercept_ = float(problem.intercept(theta))
        if self.fairness_weight > 0:
            self.objective_ += self.fairness_weight * self.unfairness_
        return self

    def _keep_more(self, prepared: PathSolver, theta: Vector, on_path: bool) -> Vector:
        """What else a subclass keeps of the solution; the solution, which it may shift."""
        return theta

    def path_fitter(
        self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None,
        slopes: Slopes | None = None, **columns: Any,
    ) -> Callable[[float], Any]:  # fmt: skip
        """A function from `fairness_weight` to a fitted model, for many weights on the same rows.

        The set-up is shared and solutions start one another. Solved more loosely than `fit`: a path
        is for measuring, and the model chosen on it is refitted. :func:`fairness_path` uses this
        method of any estimator that defines it beside its `fit`.

        Parameters
        ----------
        X, y, sensitive_features, sample_weight, **columns
            As for `fit`.
        slopes : Slopes, optional
            Which of the last columns of X are slopes by group, penalized by `group_alpha`.
        """
        signature(self.fit).bind(X, y, **columns)  # refuses what `fit` has no place for
        model = clone(self)
        prepared = model._start(X, y, sensitive_features, sample_weight, slopes, **columns)
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
        """Scores of rows."""
        check_is_fitted(self)
        check_index(X=X, sensitive_features=sensitive_features, **columns)
        score = self._predictor(self._read_features(X), sensitive_features)
        return self._response(score, **columns)

    def _response(self, eta: NDArray[Any]) -> NDArray[Any]:
        """What is predicted at η."""
        return eta

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
        check_kind(self.group_features)
        hint = "0 leaves every group its own slope."
        check_nonnegative("group_alpha", self.group_alpha, hint, auto=True)
        # Names are checked even where fairness_weight=0 would never use them.
        self._regularizer()

    def _regularizer(self) -> FairnessRegularizer:
        return FairnessRegularizer(
            self.criterion, self.classifier, self.basis, kappa=self.kappa, score_map=self.score_map
        )


@dataclass(eq=False, repr=False)
class FairRidge(FairLinear):
    """Ridge regression with a fairness term.

    Minimizes ``[mean w(y − s)² + alpha‖θ‖²]/Var(y) + fairness_weight·Ĩ`` with Ĩ the normalized
    information of the criterion; weights have mean 1 and the intercept is not penalized. At
    ``fairness_weight=0`` it equals ``Ridge(alpha=n*alpha)`` (except for `group_alpha`).

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency", "conditional"}
        What the score must not reveal; see `evenhand.data.criteria`. "conditional" is
        independence among people with the same `controls`, which `fit` then needs.
    fairness_weight : float
        1 means that one point of R² is worth one point of normalized information.
    alpha : float
        Penalty on the coefficients, per row.
    classifier : {"logistic", "lspc"}
        The classifier of the group inside the fairness term; "lspc" is the published method.
    basis : {"auto", "spline", "quadratic", "linear", "degree3"}
        Basis of that classifier. "spline" sees whatever shape of difference between groups the rows
        can show; "quadratic", of the published method, sees shifts and spreads, and models trained
        against it can leave the rest behind. "auto" is "spline", and "quadratic" for "lspc" or
        unbounded scores.
    kappa : "auto", nonnegative float or "published"
        Ridge penalty of that classifier, on a sum over the rows with known group and in units of
        standardized variables. "auto" is 0.001 for "logistic", and for "lspc" 0.3 per row without a
        penalty on intercepts. "published" is that of the original method, 1 in units of the data.
        See :class:`FairnessRegularizer`.
    score_map : {"auto", "tanh", "raw"}
        What that classifier sees of the standardized score and target z: 1.5·tanh(z/1.5), so that
        it cannot spend itself on the tails, or z. "auto" is "tanh", or "raw" for "lspc" with a
        `kappa` other than "auto", as published.
    group_features : None, "posterior" or "attribute"
        Let the score differ by group, through the probability of each group given the features
        ("posterior") or the recorded group ("attribute", which `predict` then needs too). This
        buys accuracy at the same level of fairness. It also means that two people who differ only
        in (apparent) group get different scores, which the law of many places restricts for some
        decisions: ask before choosing it.
    group_alpha : "auto" or nonnegative float
        γ of a penalty ``γ·Σ_k (b_k − b̄)²`` besides `alpha`, with b_k the slope of group k in the
        ridge prediction and b̄ their mean: small groups say little about slopes of their own. "auto"
        takes the γ of least leave-one-out error (closed form, at ``fairness_weight=0``), up to the
        γ that leaves a fifth of a typical slope, as fairness may need slopes that accuracy does
        not; and 0 beyond 20,000 rows per extra slope. Only with `group_features`.
    fit_intercept : bool
    max_iter : int
        Limit on L-BFGS iterations.
    tol : float
        Stop when the gradient of the objective in whitened coordinates, divided by
        1 + fairness_weight, is below this. The objective is in units of R².

    Attributes
    ----------
    coef_ : (d,) array
        All zero where one score for everybody has the lower objective.
    group_coef_ : (2(K − 1),) array
        Coefficients of the group features; empty without them.
    group_alpha_ : float
        γ; 0 without group features.
    intercept_ : float
    unfairness_ : float
        Ĩ on the training rows (NaN if fitted without `sensitive_features`).
    objective_ : float
        The minimized objective.
    n_iter_, n_evaluations_ : int
        L-BFGS iterations, and evaluations of the fairness term; those of the last step where a
        weight beyond 10 is reached from smaller ones.
    controls_summary_ : str
        With `controls`, what stands for them in the fairness term.
    n_features_in_, feature_names_in_
    encoder_ : TableEncoder or None
        The encoder of a frame that held text, categories or missing values.

    See Also
    --------
    evenhand.FairRegressor
    evenhand.FairGLM
    evenhand.FairnessRegularizer
    evenhand.fairness_path

    References
    ----------
    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 500)
    >>> X = rng.normal(size=(500, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> y = X @ [1.0, 1.0, 0.5] + rng.normal(size=500)
    >>> plain = eh.FairRidge(fairness_weight=0).fit(X, y, sensitive_features=a)
    >>> fair = eh.FairRidge("independence", fairness_weight=20).fit(X, y, sensitive_features=a)
    >>> bool(fair.unfairness_ < 0.2 * plain.unfairness_)
    True
    """

    criterion: str = "independence"
    fairness_weight: float = 1.0
    alpha: float = 1e-3

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None,
        frequency: Any = None, controls: Any = None, features: Any = None, scratch: Any = None,
    ) -> FairRidge:  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix; or a path, list of paths or Arrow dataset
            Numbers are not copied, and float32 is kept. A frame that holds text, categories or
            missing values goes through a :class:`TableEncoder` (`encoder_`), whose columns are
            standardized. Parquet files (``"data/*.parquet"``, a folder, a list) and datasets are
            read where they are and need not fit into memory; all other arguments are then names of
            columns.
        y : (n,) array, or the name of a column
        sensitive_features : array, series, frame or Proxy
            Group of each row. Required unless ``fairness_weight=0``. Rows with a missing group
            count for accuracy and not for fairness. Rows are matched by place, and pandas indices
            that contradict each other are refused.
        sample_weight : (n,) array, optional
        frequency : (n,) array, optional
            Number of people that each row of an aggregated table stands for; a row of frequency 3
            equals three rows.
        controls : frame, dict of columns or array, optional
            With ``criterion="conditional"``, the legitimate factors. One numeric control stands for
            itself; otherwise scores are made independent of the group given the log-odds of the
            group given the controls, which is what independence given the controls implies
            (`controls_summary_` says which).
        features : sequence of str, optional
            With files, the columns of X; by default all that no other argument names.
        scratch : path, optional
            With files, the folder of a temporary file as large as the features; by default where
            temporary files are.

        Returns
        -------
        self
        """
        return self._fit(
            X, y, frequency, features, scratch,
            sensitive_features=sensitive_features, sample_weight=sample_weight, controls=controls,
        )  # fmt: skip

    path_fitter = FairLinear.path_fitter

    def _prepare(self, design: FeatureMatrix, rows: TrainingRows, n_kept: int) -> RidgeProblem:
        alpha = float(self.alpha)
        return prepare_ridge(design, rows.y, rows.weight, alpha, self.fit_intercept, n_kept)

    def predict(self, X: Any, *, sensitive_features: Any = None) -> NDArray[Any]:
        """Scores s = Xθ + b.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
        sensitive_features : array, series, frame or Proxy, optional
            Needed, and used, only with ``group_features="attribute"``.

        Returns
        -------
        (n,) array
        """
        return self._predict(X, sensitive_features)
