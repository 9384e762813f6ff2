"""FairRidge: a linear model whose predictions carry little information about the group.

minimize  [ mean ω(y − s)² + α‖θ‖² ] / Var(y) + fairness_weight · Ĩ(s),   s = Xθ + b
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ._design import Design
from ._solver import Memory, Solution, minimize
from .group_features import GroupFeatures, check_kind
from .regularizer import BoundRegularizer, FairnessRegularizer
from .sensitive import Groups, check_weight, resolve_groups

Vector = NDArray[np.float64]

# Rows of a pilot fit, and how exactly it is solved: its own sampling error is larger.
PILOT_ROWS = 20_000
MIN_PILOT_GROUP = 100
PILOT_ITERATIONS = 50
PILOT_TOL = 1e-4
LSPC_START = 0.2
# Along a path; moves R² and the criterion by about 1e-4, far below their sampling error.
PATH_TOL = 3e-4


class FairRidge(RegressorMixin, BaseEstimator):
    """Ridge regression with a fairness term.

    Minimizes ``[mean w(y − s)² + alpha‖θ‖²]/Var(y) + fairness_weight·Ĩ`` with Ĩ the normalized
    information of the criterion; weights have mean 1 and the intercept is not penalized. At
    ``fairness_weight=0`` it equals ``Ridge(alpha=n*alpha)``.

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"}
        What the score must not reveal; see `evenhand.criteria`.
    fairness_weight : float
        1 means that one point of R² is worth one point of normalized information.
    alpha : float
        Penalty on the coefficients, per row.
    classifier : {"logistic", "lspc"}
        The classifier of the group inside the fairness term; "lspc" is the published method.
    basis : {"quadratic", "linear"}
        Basis of that classifier.
    group_features : None, "posterior" or "attribute"
        Let the score differ by group, through the probability of each group given the features
        ("posterior") or the recorded group ("attribute", which `predict` then needs too). This
        buys accuracy at the same level of fairness. It also means that two people who differ only
        in (apparent) group get different scores, which the law of many places restricts for some
        decisions: ask before choosing it.
    fit_intercept : bool
    max_iter : int
        Limit on L-BFGS iterations.
    tol : float
        Stop when the gradient of the objective in whitened coordinates, divided by
        1 + fairness_weight, is below this. The objective is in units of R².

    Attributes
    ----------
    coef_ : (d,) array
    group_coef_ : (2(K − 1),) array
        Coefficients of the group features; empty without them.
    intercept_ : float
    unfairness_ : float
        Ĩ on the training rows (NaN if fitted without `sensitive_features`).
    objective_ : float
        The minimized objective.
    n_iter_, n_evaluations_ : int
        L-BFGS iterations, and evaluations of the fairness term.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> a = rng.integers(0, 2, 500)
    >>> X = rng.normal(size=(500, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    >>> y = X @ [1.0, 1.0, 0.5] + rng.normal(size=500)
    >>> plain = eh.FairRidge(fairness_weight=0).fit(X, y, sensitive_features=a)
    >>> fair = eh.FairRidge("independence", fairness_weight=5).fit(X, y, sensitive_features=a)
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
        group_features: str | None = None,
        fit_intercept: bool = True,
        max_iter: int = 200,
        tol: float = 1e-6,
    ):
        self.criterion = criterion
        self.fairness_weight = fairness_weight
        self.alpha = alpha
        self.classifier = classifier
        self.basis = basis
        self.group_features = group_features
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.tol = tol

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None):
        """Fit the model.

        Parameters
        ----------
        X : (n, d) array, frame or sparse matrix
            Not copied; float32 is kept.
        y : (n,) array
        sensitive_features : array, series, frame or Proxy
            Group of each row. Required unless ``fairness_weight=0``. Rows with a missing group
            count for accuracy and not for fairness.
        sample_weight : (n,) array, optional

        Returns
        -------
        self
        """
        return self._finish(self._start(X, y, sensitive_features, sample_weight))

    def _start(self, X: Any, y: Any, sensitive_features: Any, sample_weight: Any) -> Prepared:
        """Everything that does not depend on `fairness_weight`."""
        self._check_parameters()
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
                "pass sensitive_features=... to fit; inside a Pipeline or GridSearchCV enable "
                "metadata routing and call .set_fit_request(sensitive_features=True)."
            )
        problem = prepare(Design(X), y, weight, self.alpha, self.fit_intercept)
        if problem.variance == 0 and self.fairness_weight > 0:
            raise ValueError(
                "`y` must vary: all rows have the same value, so there is nothing to predict."
            )
        self._group_features: GroupFeatures | None = None
        bound = None
        if groups is not None:
            if self.group_features is not None:
                problem = self._add_group_features(problem, y, weight, groups)
            regularizer = FairnessRegularizer(self.criterion, self.classifier, self.basis)
            bound = regularizer.bind(y, sensitive_features=groups)
        return Prepared(problem, bound)

    def _finish(self, prepared: Prepared) -> FairRidge:
        """Solve at `fairness_weight`, from the nearest solutions in `prepared`."""
        problem = prepared.problem
        theta = problem.theta
        # The ridge solve counts as an iteration.
        self.n_iter_, self.n_evaluations_ = 1, 0
        self.unfairness_ = float("nan")
        if prepared.bound is not None:
            theta = self._fit_fair(prepared)
        X = problem.design.X
        d = X.shape[1]
        self.coef_ = theta[:d].astype(X.dtype, copy=False)
        self.group_coef_ = theta[d:]
        self.intercept_ = float(problem.intercept(theta))
        self.objective_ = problem.ridge_objective(theta)
        if self.fairness_weight > 0:
            self.objective_ += self.fairness_weight * self.unfairness_
        return self

    def _path_fitter(
        self, X: Any, y: Any, *, sensitive_features: Any, sample_weight: Any = None
    ) -> Callable[[float], FairRidge]:
        """fairness_weight → fitted model; the set-up is shared and solutions start one another.

        Solved to PATH_TOL only: a path is for measuring, and the model chosen on it is refitted.
        """
        model = clone(self)
        prepared = model._start(X, y, sensitive_features, sample_weight)

        def fit(fairness_weight: float) -> FairRidge:
            # A shallow copy shares what `_start` set and nothing that `_finish` sets.
            point = copy(model).set_params(
                fairness_weight=fairness_weight, tol=max(self.tol, PATH_TOL)
            )
            return point._finish(prepared)

        return fit

    def _add_group_features(
        self, problem: Problem, y: Vector, weight: Vector | None, groups: Groups
    ) -> Problem:
        X = problem.design.X
        base = (problem.theta, problem.intercept(problem.theta))
        score = problem.design.forward(base[0]) + base[1]
        assert self.group_features is not None
        features = GroupFeatures.fit(self.group_features, X, score, groups, weight)
        extra = features.transform(X, score, groups)
        self._group_features, self._base = features, base
        return prepare(Design(X, extra), y, weight, self.alpha, self.fit_intercept)

    def _fit_fair(self, prepared: Prepared) -> Vector:
        problem, bound = prepared.problem, prepared.bound
        assert bound is not None
        theta = problem.theta
        if self.fairness_weight > 0:
            found = prepared.solve(self.fairness_weight, self.max_iter, self.tol)
            self.n_iter_, self.n_evaluations_ = max(found.n_iter, 1), found.n_evaluations
            theta = problem.theta + problem.unwhiten(found.v)
            if not found.converged and found.n_iter >= self.max_iter:
                warnings.warn(
                    f"FairRidge stopped after max_iter={self.max_iter} iterations with a gradient "
                    f"of {found.gradient_norm:.1e}. Hint: raise `max_iter`, or raise `tol` if the "
                    "objective no longer changes where you need it.",
                    ConvergenceWarning,
                    stacklevel=3,
                )
            self.unfairness_ = (found.objective - float(found.v @ found.v)) / self.fairness_weight
        else:
            self.unfairness_ = bound.value(problem.design.forward(theta))
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
        check_kind(self.group_features)
        # Names are checked even where fairness_weight=0 would never use them.
        FairnessRegularizer(self.criterion, self.classifier, self.basis)


@dataclass(frozen=True)
class Problem:
    """The ridge part in whitened coordinates: objective = c + ‖v‖², θ = θ_ridge + T v.

    C = XᵀΩX/n + αI = L Lᵀ (X centered when there is an intercept), T = √Var(y)·L⁻ᵀ.
    """

    design: Design
    theta: Vector
    transform: NDArray[np.float64]
    triangular: bool
    mean_x: Vector
    mean_y: float
    variance: float
    gram: NDArray[np.float64]
    cross: Vector
    second_y: float
    alpha: float

    @property
    def origin(self) -> Vector:
        """v = 0, the ridge solution."""
        return np.zeros(self.transform.shape[0 if self.triangular else 1])

    def shrunk(self, factor: float) -> Vector:
        """v of the ridge solution times a factor."""
        change = (factor - 1.0) * self.theta
        if self.triangular:
            return self.transform.T @ change / np.sqrt(self.variance)
        return np.linalg.lstsq(self.transform, change, rcond=None)[0]

    def unwhiten(self, v: Vector) -> Vector:
        """T v."""
        if self.triangular:
            scaled = np.sqrt(self.variance) * v
            return solve_triangular(self.transform, scaled, trans="T", lower=True)
        return self.transform @ v

    def whiten_gradient(self, g: Vector) -> Vector:
        """Tᵀ g."""
        if self.triangular:
            return np.sqrt(self.variance) * solve_triangular(self.transform, g, lower=True)
        return self.transform.T @ g

    def intercept(self, theta: Vector) -> float:
        return self.mean_y - float(self.mean_x @ theta)

    def ridge_objective(self, theta: Vector) -> float:
        """[mean ω(y − s)² + α‖θ‖²] / Var(y)."""
        fit = self.second_y - 2.0 * self.cross @ theta + theta @ self.gram @ theta
        size = float(fit + self.alpha * theta @ theta)
        return size / self.variance if self.variance > 0 else 0.0


def prepare(
    design: Design, y: Vector, weight: Vector | None, alpha: float, fit_intercept: bool
) -> Problem:
    """Moments, ridge solution and whitening, once per data set."""
    mean_y = float(y.mean() if weight is None else weight @ y / len(y))
    centered = y - mean_y
    variance = float(np.average(centered**2, weights=weight))
    if not variance > 1e-26 * mean_y**2:
        variance = 0.0
    target = centered if fit_intercept else y
    mean_x, gram, cross = design.moments(target, weight, fit_intercept)
    if not fit_intercept:
        mean_x, mean_y = np.zeros(design.d), 0.0
    second_y = float(np.average(target**2, weights=weight))
    # A spread at the level of rounding in the column is a constant.
    constant = np.diag(gram) <= design.rounding * mean_x**2
    gram[constant] = gram[:, constant] = 0.0
    cross[constant] = 0.0
    theta, transform, triangular = _whiten(gram, cross, alpha, variance)
    return Problem(
        design, theta, transform, triangular, mean_x, mean_y, variance, gram, cross, second_y, alpha
    )


def _whiten(gram, cross, alpha: float, variance: float):
    """θ_ridge and the map from whitened coordinates."""
    c = gram + alpha * np.eye(len(gram))
    size = np.diag(c)
    try:
        factor = cholesky(c, lower=True)
        # What a column adds to those before it, as a share of itself: units do not matter.
        if (np.diag(factor) ** 2 > 1e-10 * size).all():
            half = solve_triangular(factor, cross, lower=True)
            return solve_triangular(factor, half, trans="T", lower=True), factor, True
    except LinAlgError:
        pass
    # Constant or repeated columns, or n < d, without a penalty: keep the directions that X spans,
    # again with all columns brought to the same size first.
    shrink = 1.0 / np.sqrt(np.where(size > 0, size, 1.0))
    values, vectors = np.linalg.eigh(c * shrink * shrink[:, None])
    vectors = shrink[:, None] * vectors
    keep = values > max(1e-12, len(c) * np.finfo(float).eps) * max(values.max(initial=0.0), 1e-300)
    span = vectors[:, keep] / np.sqrt(values[keep])
    # Of all solutions the one of least norm: nothing along the directions in which X is zero.
    null = np.linalg.qr(vectors[:, ~keep])[0]
    span -= null @ (null.T @ span)
    return span @ (span.T @ cross), np.sqrt(variance) * span, False


def solve(
    problem: Problem,
    bound: BoundRegularizer,
    fairness_weight: float,
    max_iter: int,
    tol: float,
    start: Vector | None = None,
    memory: Memory | None = None,
) -> Solution:
    """Minimize ‖v‖² + fairness_weight·Ĩ from the ridge solution, or from `start`."""

    def evaluate(s: Vector) -> tuple[float, Vector]:
        value, gradient = bound.value_and_grad(s)
        gradient *= fairness_weight
        return fairness_weight * value, gradient

    design = problem.design
    theta, v = problem.theta, problem.origin
    if start is not None:
        theta, v = theta + problem.unwhiten(start), start
    return minimize(
        evaluate,
        lambda p: design.forward(problem.unwhiten(p)),
        lambda r: problem.whiten_gradient(design.backward(r)),
        design.forward(theta),
        v,
        max_iter=max_iter,
        tol=tol * (1.0 + fairness_weight),
        memory=Memory() if memory is None else memory,
    )


@dataclass
class Prepared:
    """A problem with its fairness term, and the solutions found so far by fairness weight."""

    problem: Problem
    bound: BoundRegularizer | None
    solved: dict[float, Vector] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    memory_weight: float = 1.0

    def solve(self, fairness_weight: float, max_iter: int, tol: float) -> Solution:
        """Solve from a start interpolated between the neighbors on the path."""
        assert self.bound is not None
        self.memory = self.memory.rescaled(fairness_weight / self.memory_weight)
        self.memory_weight = fairness_weight
        start = self._predict(fairness_weight) if self.solved else self._first(fairness_weight)
        found = solve(self.problem, self.bound, fairness_weight, max_iter, tol, start, self.memory)
        self.solved[fairness_weight] = found.v
        return found

    def _first(self, fairness_weight: float) -> Vector:
        """Where to begin: the ridge solution, or near it.

        Where there are many more rows than the solution needs, some of them find the start. The
        curvature learned there is kept; the stopping test is on all rows.
        """
        problem, bound = self.problem, self.bound
        start = problem.origin
        if bound is not None and bound.classifier == "lspc":
            # The LSPC term has several minima, the logistic one (as far as was seen) has one. From
            # a smaller score, where the fairness term pulls harder, the search ends lower.
            start = problem.shrunk(LSPC_START)
        design, n = problem.design, problem.design.n
        wanted = max(PILOT_ROWS, 20 * design.d)
        if n < 5 * wanted or bound is None:
            return start
        rows = np.unique(np.random.default_rng(0).integers(0, n, wanted))
        if bound.groups.take(rows).counts.min() < MIN_PILOT_GROUP:
            return start
        part = bound.take(rows)
        pilot = replace(problem, design=design.take(rows))
        found = solve(pilot, part, fairness_weight, PILOT_ITERATIONS, PILOT_TOL, start, self.memory)
        bound.warm_start(part)
        return found.v

    def _predict(self, fairness_weight: float) -> Vector:
        """Interpolation through up to three solutions on each side, v(0) = 0 among them."""
        nodes = {0.0: self.problem.origin, **self.solved}
        weights = sorted(nodes)
        at = int(np.searchsorted(weights, fairness_weight))
        near = weights[max(at - 3, 0) : at + 3] if at < len(weights) else weights[-1:]
        # Of the variables tried, this one makes the path most like a polynomial of low degree.
        root = np.sqrt([fairness_weight, *near])
        target, *t = root / (1.0 + root)
        out = np.zeros_like(self.problem.origin)
        for j, weight in enumerate(near):
            factors = [(target - other) / (t[j] - other) for i, other in enumerate(t) if i != j]
            out += np.prod(factors) * nodes[weight]
        return out
