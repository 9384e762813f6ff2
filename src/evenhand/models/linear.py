"""FairRidge: a linear model whose predictions carry little information about the group.

minimize  [ mean ω(y − s)² + α‖θ‖² ] / Var(y) + fairness_weight · Ĩ(s),   s = Xθ + b
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ..groups.frequency import repeat_rows
from ..groups.sensitive import Groups, resolve_groups
from ..groups.validation import check_index, refuse_unreal
from ..groups.weights import check_weight
from ..penalty.regularizer import FairnessRegularizer
from .accuracy import Accuracy
from .design import Design
from .group_features import GroupFeatures
from .losses import R2
from .membership import check_kind
from .ridge import STARTS, Prepared, Problem, path_tolerance, prepare
from .scoring import ScoresWithGroups
from .slopes import Slopes, check_group_alpha

Vector = NDArray[np.float64]


class FairRidge(ScoresWithGroups, RegressorMixin, BaseEstimator):
    """Ridge regression with a fairness term.

    Minimizes ``[mean w(y − s)² + alpha‖θ‖²]/Var(y) + fairness_weight·Ĩ`` with Ĩ the normalized
    information of the criterion; weights have mean 1 and the intercept is not penalized. At
    ``fairness_weight=0`` it equals ``Ridge(alpha=n*alpha)`` (but for `group_alpha`).

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"}
        What the score must not reveal; see `evenhand.information.criteria`.
    fairness_weight : float
        1 means that one point of R² is worth one point of normalized information.
    alpha : float
        Penalty on the coefficients, per row.
    classifier : {"logistic", "lspc"}
        The classifier of the group inside the fairness term; "lspc" is the published method.
    basis : {"quadratic", "linear", "degree3"}
        Basis of that classifier. "degree3" also sees skewed differences between groups, which
        models trained against the quadratic one can leave behind.
    kappa : "auto", nonnegative float or "published"
        Ridge penalty of that classifier, on a sum over the rows with known group and in units of
        standardized variables. "auto" is 0.001 for "logistic", and for "lspc" 0.3 a row without a
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
    start : {"auto", "ridge", "shrunk"}
        Where the search begins: the ridge solution ("auto"), or a fifth of it. It matters for
        "lspc", whose objective has several minima: the shrunk start can end in lower ones, where
        its least squares fit is wrong rather than the score fair.

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
    n_features_in_, feature_names_in_

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

    def __init__(
        self,
        criterion: str = "independence",
        fairness_weight: float = 1.0,
        alpha: float = 1e-3,
        *,
        classifier: str = "logistic",
        basis: str = "quadratic",
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

    @property
    def accuracy(self) -> Accuracy:
        """R²: how paths, reports and tables measure this model."""
        return R2

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None,
        frequency: Any = None,
    ):  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
            Not copied; float32 is kept.
        y : (n,) array
        sensitive_features : array, series, frame or Proxy
            Group of each row. Required unless ``fairness_weight=0``. Rows with a missing group
            count for accuracy and not for fairness. Rows are matched by place, and pandas indices
            that contradict each other are refused.
        sample_weight : (n,) array, optional
        frequency : (n,) array, optional
            Number of people that each row of an aggregated table stands for; a row of frequency 3
            equals three rows.

        Returns
        -------
        self
        """
        X, y, sensitive_features, sample_weight = repeat_rows(
            frequency, X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
        )
        return self._finish(self._start(X, y, sensitive_features, sample_weight))

    def _start(
        self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any,
        slopes: Slopes | None = None,
    ) -> Prepared:  # fmt: skip
        """Everything that does not depend on `fairness_weight`; `slopes` are among X already."""
        self._check_parameters()
        refuse_unreal(X=X, y=y)
        check_index(
            X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
        )  # fmt: skip
        X, y = validate_data(
            self, X, y, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32],
            y_numeric=True,
        )  # fmt: skip
        n = X.shape[0]
        weight = check_weight(sample_weight, n)
        if weight is not None:
            weight = weight * (n / weight.sum())
        y = y.astype(np.float64, copy=False)
        groups = None
        if sensitive_features is not None:
            groups = resolve_groups(sensitive_features, n_rows=n, sample_weight=weight)
        elif self.fairness_weight > 0:
            raise ValueError(
                "`sensitive_features` must be given when `fairness_weight` > 0, got None. Hint: "
                "pass sensitive_features=... to fit; inside a Pipeline or GridSearchCV first call "
                "sklearn.set_config(enable_metadata_routing=True)."
            )
        elif self.group_features is not None:
            raise ValueError(
                f"`sensitive_features` must be given with group_features={self.group_features!r}, "
                "got None."
            )
        design = Design(X)
        with design.blas():
            problem = self._ridge(design, y, weight, slopes)
        if problem.variance == 0 and self.fairness_weight > 0:
            raise ValueError(
                "`y` must vary: all rows have the same value, so there is nothing to predict."
            )
        self._group_features: GroupFeatures | None = None
        bound = None
        if groups is not None:
            if self.group_features is not None:
                problem = self._add_group_features(problem, y, weight, groups)
            bound = self._regularizer().bind(y, sensitive_features=groups)
        return Prepared(problem, bound, self.start)

    def _finish(self, prepared: Prepared, on_path: bool = False) -> FairRidge:
        """Solve at `fairness_weight`, from the nearest solutions in `prepared`."""
        problem = prepared.problem
        theta = problem.theta
        # The ridge solve counts as an iteration.
        self.n_iter_, self.n_evaluations_ = 1, 0
        self.unfairness_ = float("nan")
        if prepared.bound is not None:
            theta = self._fit_fair(prepared, on_path)
        X = problem.features.X
        d = X.shape[1]
        coefficients = problem.coefficients(theta)
        self.coef_ = coefficients[:d].astype(X.dtype, copy=False)
        self.group_coef_ = coefficients[d:]
        self.intercept_ = float(problem.intercept(theta))
        self.objective_ = problem.ridge_objective(theta)
        if self.fairness_weight > 0:
            self.objective_ += self.fairness_weight * self.unfairness_
        return self

    def path_fitter(
        self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None,
        slopes: Slopes | None = None,
    ) -> Callable[[float], FairRidge]:  # fmt: skip
        """A function from `fairness_weight` to a fitted model, for many weights on the same rows.

        The set-up is shared and solutions start one another. Solved more loosely than `fit`: a path
        is for measuring, and the model chosen on it is refitted. :func:`fairness_path` uses this
        method of any estimator that defines it beside its `fit`.
        """
        model = clone(self)
        prepared = model._start(X, y, sensitive_features, sample_weight, slopes)
        n = prepared.problem.design.n

        def fit(fairness_weight: float) -> FairRidge:
            # A shallow copy shares what `_start` set and nothing that `_finish` sets.
            point = copy(model)
            point.fairness_weight = fairness_weight
            point.tol = path_tolerance(self.tol, n, fairness_weight)
            return point._finish(prepared, on_path=True)

        return fit

    def _add_group_features(
        self, problem: Problem, y: Vector, weight: Vector | None, groups: Groups
    ) -> Problem:
        X = problem.features.X
        base = (problem.coefficients(problem.theta), problem.intercept(problem.theta))
        score = problem.features.forward(base[0]) + base[1]
        assert self.group_features is not None
        features = GroupFeatures.fit(self.group_features, X, score, groups, weight)
        extra = features.transform(X, score, groups)
        self._group_features, self._base = features, base
        return self._ridge(Design(X, extra), y, weight, Slopes(groups.n_groups))

    def _ridge(
        self, design: Design, y: Vector, weight: Vector | None, slopes: Slopes | None
    ) -> Problem:
        """The problem at ``fairness_weight=0``; `slopes` are its last columns."""
        self.group_alpha_ = 0.0
        kept = 0 if slopes is None else slopes.size
        problem = prepare(design, y, weight, self.alpha, self.fit_intercept, kept)
        if slopes is not None:
            problem, self.group_alpha_ = slopes.shrink(problem, y, weight, self.group_alpha)
        return problem

    def _fit_fair(self, prepared: Prepared, on_path: bool) -> Vector:
        problem = prepared.problem
        theta = problem.theta
        assert prepared.bound is not None
        if self.fairness_weight > 0:
            found = prepared.solve(self.fairness_weight, self.max_iter, self.tol, on_path=on_path)
            self.n_iter_, self.n_evaluations_ = max(found.n_iter, 1), found.n_evaluations
            theta = problem.theta + problem.unwhiten(found.v)
            if prepared.bound.scale_free:
                theta = problem.best_scale(theta)
            # A search that ends at the level of rounding just above `tol` has done its work.
            stalled = found.gradient_norm > 1e3 * self.tol * (1.0 + self.fairness_weight)
            if not found.converged and (stalled or found.n_iter >= self.max_iter):
                warnings.warn(
                    f"FairRidge stopped after {found.n_iter} iterations (max_iter={self.max_iter}) "
                    f"with a gradient of {found.gradient_norm:.1e}. Hint: raise `max_iter`, or "
                    "raise `tol` if the objective no longer changes where you need it.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
            self.unfairness_ = (found.objective - float(found.v @ found.v)) / self.fairness_weight
            # One score for all is the other candidate: no path of falling values leads there, as
            # the term does not see the scale of the scores.
            least, zero = problem.ridge_objective(theta), np.zeros_like(theta)
            gain = least + self.fairness_weight * self.unfairness_ - problem.ridge_objective(zero)
            if gain > 0:
                constant = prepared.bound.value(np.full(problem.design.n, problem.mean_y))
                if gain > self.fairness_weight * constant:
                    theta, self.unfairness_ = zero, constant
        else:
            self.unfairness_ = prepared.plain()
        return theta

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
        check_is_fitted(self)
        refuse_unreal(X=X)
        check_index(X=X, sensitive_features=sensitive_features)
        X = validate_data(
            self, X, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32], reset=False
        )
        score = np.asarray(X @ self.coef_ + np.asarray(self.intercept_, dtype=X.dtype))
        if self._group_features is None:
            return score
        base = Design(X).forward(self._base[0]) + self._base[1]
        extra = self._group_features.transform(X, base, sensitive_features)
        return (score + extra @ self.group_coef_).astype(X.dtype, copy=False)

    def _check_parameters(self) -> None:
        for name in ("fairness_weight", "alpha", "tol"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
                raise ValueError(f"`{name}` must be a nonnegative number, got {value!r}.")
        if not isinstance(self.max_iter, Integral) or self.max_iter < 1:
            raise ValueError(f"`max_iter` must be a positive integer, got {self.max_iter!r}.")
        if self.start not in STARTS:
            raise ValueError(f"`start` must be one of {', '.join(STARTS)}, got {self.start!r}.")
        check_kind(self.group_features)
        check_group_alpha(self.group_alpha)
        # Names are checked even where fairness_weight=0 would never use them.
        self._regularizer()

    def _regularizer(self) -> FairnessRegularizer:
        return FairnessRegularizer(
            self.criterion, self.classifier, self.basis, kappa=self.kappa, score_map=self.score_map
        )
