"""A logistic classifier refitted from cold at every evaluation: the paper's slow reference."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special
from sklearn.exceptions import ConvergenceWarning

from evenhand.data.criteria import SCORE, TARGET, Condition, Criterion, get_criterion

from ._base import Array, BaselineProblem, LinearBaseline, check_choice, check_nonnegative, ridge

BASES = ("linear", "quadratic")


class NestedLogisticRegressor(LinearBaseline):
    r"""Fair linear regression with a nested logistic classifier, solved the plain way.

    .. math::
        \frac{\overline{w (y - s)^2} + \alpha \|\theta\|^2}{\mathrm{Var}(y)}
        + \lambda\, \tilde I(s), \qquad s = X\theta + b

    with Ĩ the normalized criterion, its entropies the penalized log loss of multinomial logistic
    regression on the basis φ of the standardized s and y. At every evaluation of the outer
    objective the classifier is fitted from zero weights by SciPy's L-BFGS-B; since its gradient
    then vanishes, ∂Ĩ/∂s is the partial derivative with the weights held fixed. The outer search
    is L-BFGS-B again, on the features as given, started at the ridge solution.

    This is the method of the paper's supplement and the yardstick for
    ``FairRidge(classifier="logistic")``, which minimizes the same objective with warm Newton steps
    in whitened coordinates. Use that one; this one is kept slow on purpose.

    Parameters
    ----------
    criterion : {"independence", "separation", "sufficiency"}
        Which information is penalized.
    basis : {"quadratic", "linear"}
        Basis of the classifier.
    fairness_weight : float
        λ. Zero gives ``Ridge(alpha=n*alpha)``.
    alpha : float
        Ridge penalty; the intercept is not penalized.
    fit_intercept : bool
        Whether to fit b.
    kappa : float
        Penalty (kappa/2)‖W‖² of the classifier, intercepts free, in units of rows, as in
        :class:`evenhand.Logistic`. It keeps the weights finite when the groups can be told apart
        perfectly, and is counted in the entropies, without which the gradient would not be exact.
    max_iter : int
        Outer iterations at most.
    tol : float
        The outer search stops when no entry of the gradient exceeds it.

    Attributes
    ----------
    coef_ : (d,) array
    intercept_ : float
    n_iter_ : int
        Outer iterations.
    n_evaluations_ : int
        Outer evaluations, each of which fitted the classifier from cold.
    n_classifier_iterations_ : int
        Inner iterations, over all evaluations.
    objective_ : float
        The objective at the fit.
    unfairness_ : float
        Ĩ at the fit, on the training rows; NaN when fitted without groups.
    labels_ : tuple
        The groups; empty when fitted without.
    """

    def __init__(
        self,
        *,
        criterion: str = "independence",
        basis: str = "quadratic",
        fairness_weight: float = 1.0,
        alpha: float = 1e-3,
        fit_intercept: bool = True,
        kappa: float = 1e-3,
        max_iter: int = 1000,
        tol: float = 1e-6,
    ) -> None:
        self.criterion = criterion
        self.basis = basis
        self.fairness_weight = fairness_weight
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.kappa = kappa
        self.max_iter = max_iter
        self.tol = tol

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> NestedLogisticRegressor:
        """Fit by nested numerical optimization.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Groups; required when `fairness_weight` is positive. Rows whose group is unknown count
            for accuracy only.
        sample_weight : (n,) array, optional
            Nonnegative weights.
        """
        criterion = get_criterion(self.criterion)
        check_choice(self.basis, "basis", BASES)
        check_nonnegative(self.fairness_weight, "fairness_weight")
        check_nonnegative(self.kappa, "kappa")
        problem = self._prepare(
            X, y, sensitive_features, sample_weight, needs_groups=self.fairness_weight > 0
        )
        groups = problem.groups
        self.labels_ = () if groups is None else groups.labels
        start = ridge(problem, self.alpha)
        self._store(problem, start)
        self.n_iter_ = 1
        self.n_evaluations_ = self.n_classifier_iterations_ = 0
        if groups is None or groups.n_groups < 2:
            self.unfairness_ = float("nan")
            self.objective_ = self._base_value(problem, start)
            return self
        regularizer = NestedRegularizer(
            groups.take_known(problem.y),
            groups.membership(),
            np.ones(groups.n_known) if groups.weight is None else groups.weight,
            criterion,
            self.basis,
            float(self.kappa),
        )
        if self.fairness_weight > 0:
            start = self._search(problem, regularizer, start)
            self._store(problem, start)
        self.unfairness_ = regularizer(groups.take_known(self._scores(problem, self.coef_)))[0]
        self.objective_ = self._base_value(problem, start) + (
            self.fairness_weight * self.unfairness_
        )
        self.n_classifier_iterations_ = regularizer.n_iterations
        return self

    def _search(
        self, problem: BaselineProblem, regularizer: NestedRegularizer, start: NDArray[np.float64]
    ) -> Array:
        groups = problem.groups
        assert groups is not None
        n = problem.n_rows

        # The squared error is least, for any θ, at the intercept ȳ − x̄θ, and the regularizer does
        # not move with it: searching over θ alone loses nothing.
        def objective(theta: Array) -> tuple[float, Array]:
            s = self._scores(problem, theta)
            residual = s - problem.y
            value = self._base_value(problem, theta)
            slope = 2.0 * problem.weight * residual / (n * problem.variance)
            fairness, partial = regularizer(groups.take_known(s))
            slope = slope + self.fairness_weight * groups.put_known(partial)
            gradient = problem.times(slope) - problem.x_mean * slope.sum()
            gradient += 2.0 * self.alpha * theta / problem.variance
            return value + self.fairness_weight * fairness, gradient

        result = optimize.minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": self.max_iter,
                "maxfun": 20 * self.max_iter,
                "gtol": self.tol,
                "ftol": 1e-14,
            },
        )
        self.n_iter_, self.n_evaluations_ = int(result.nit), int(result.nfev)
        if result.status == 1:
            warnings.warn(
                f"NestedLogisticRegressor stopped at max_iter={self.max_iter} before converging. "
                "Hint: raise `max_iter`, standardize the columns of X, or use FairRidge.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return result.x

    @staticmethod
    def _scores(problem: BaselineProblem, theta: Array) -> Array:
        return np.asarray(problem.X @ theta) + (problem.y_mean - problem.x_mean @ theta)

    def _base_value(self, problem: BaselineProblem, theta: Array) -> float:
        residual = self._scores(problem, theta) - problem.y
        value = problem.weight @ np.square(residual) / problem.n_rows + self.alpha * theta @ theta
        return float(value / problem.variance) if problem.variance > 0 else float(value)


@dataclass
class NestedRegularizer:
    """Scores of the known rows -> Ĩ and its gradient, by a classifier fitted from cold.

    Attributes
    ----------
    y : (m,) array
    membership : (m, K) array
    weight : (m,) array of mean 1
    criterion : Criterion
    basis : {"linear", "quadratic"}
    kappa : float
        Penalty of the classifier.
    n_iterations : int
        Classifier iterations so far.
    """

    y: Array
    membership: Array
    weight: Array
    criterion: Criterion
    basis: str
    kappa: float
    n_iterations: int = field(default=0, init=False)
    normalizer: float = field(init=False)

    def __post_init__(self) -> None:
        shares = self.weight @ self.membership / self.weight.sum()
        self.entropy = float(special.entr(shares).sum())
        self.y_standard = _standardize(self.y, self.weight)[0]
        # Sufficiency's own normalizer, H(A|S), moves with the model; H(A) stands in for it.
        given = self._entropy(TARGET, self.y_standard)[0] if self.criterion.given == TARGET else 0
        self.normalizer = given or self.entropy

    def __call__(self, s: Array) -> tuple[float, Array]:
        standard, spread = _standardize(s, self.weight)
        joint, gradient = self._entropy(self.criterion.joint, standard)
        given, gradient_given = self.normalizer, np.zeros_like(s)
        if self.criterion.given == SCORE:
            given, gradient_given = self._entropy(SCORE, standard)
        value = (given - joint) / self.normalizer
        if spread == 0.0:
            # Constant scores: no spread to divide by, and no direction better than another.
            return value, np.zeros_like(s)
        gradient = gradient_given - gradient
        # Through the standardization of s: drop what shifts it and what rescales it.
        mean_weight = self.weight / self.weight.sum()
        gradient = gradient - mean_weight * gradient.sum()
        gradient = gradient - mean_weight * standard * (gradient @ standard)
        return value, gradient / (spread * self.normalizer)

    def _entropy(self, condition: Condition, standard: Array) -> tuple[float, Array]:
        """Penalized H(A|Z) in nats at the fitted classifier, and its derivative in s."""
        columns = {"s": standard, "y": self.y_standard}
        if condition == TARGET:
            columns["y"] = standard
        phi, slope = _basis([columns[name] for name in condition], self.basis)
        m, n_groups = self.membership.shape
        shape = (phi.shape[1], n_groups)

        def loss(flat: Array) -> tuple[float, Array]:
            W = flat.reshape(shape)
            log_rho = special.log_softmax(phi @ W, axis=1)
            fit = -(self.weight @ (self.membership * log_rho).sum(axis=1)) / m
            excess = self.weight[:, None] * (np.exp(log_rho) - self.membership) / m
            # At the minimum the weights of the groups sum to zero, so this is also Σ‖w_k − w̄‖².
            shrink = self.kappa / m * np.vstack([np.zeros(n_groups), W[1:]])
            gradient = phi.T @ excess + shrink
            return fit + 0.5 * float((shrink * W).sum()), gradient.ravel()

        result = optimize.minimize(
            loss,
            np.zeros(shape[0] * shape[1]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 2000, "maxfun": 20000, "gtol": 1e-9, "ftol": 0.0},
        )
        self.n_iterations += int(result.nit)
        W = result.x.reshape(shape)
        excess = special.softmax(phi @ W, axis=1) - self.membership
        partial = self.weight * ((slope @ W) * excess).sum(axis=1) / m
        return float(result.fun), partial


def _standardize(v: Array, weight: Array) -> tuple[Array, float]:
    """(v − mean) / spread and the spread; zeros and 0 when v is constant up to rounding."""
    centered = v - np.average(v, weights=weight)
    spread = float(np.sqrt(np.average(np.square(centered), weights=weight)))
    if spread <= 4.0 * np.finfo(float).eps * np.abs(v).max():
        return np.zeros_like(v), 0.0
    return centered / spread, spread


def _basis(columns: list[Array], basis: str) -> tuple[Array, Array]:
    """φ(z) and its derivative in the first column."""
    one, zero = np.ones_like(columns[0]), np.zeros_like(columns[0])
    terms, slopes = [one, *columns], [zero, one] + [zero] * (len(columns) - 1)
    if basis == "quadratic":
        for i, u in enumerate(columns):
            for j, v in enumerate(columns[i:], start=i):
                terms.append(u * v)
                slopes.append((v if i == 0 else zero) + (u if j == 0 else zero))
    return np.stack(terms, axis=1), np.stack(slopes, axis=1)
