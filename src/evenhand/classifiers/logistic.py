"""Multinomial logistic regression on the basis, by damped Newton steps.

    ρ_k(z) = exp(φ·w_k) / Σ_j exp(φ·w_j),  w_0 = 0
    minimize Σᵢ −ωᵢ log ρ(aᵢ|zᵢ) + (κ/2) Σ_k ‖w_k − w̄‖²   (intercepts free)

The penalty compares each w_k with their mean, so that the result does not depend on which group
is the reference. It only keeps perfectly separated groups finite.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from .._kernels import Rows, get_kernels
from ..basis import Basis
from ._leave_out import logistic_losses
from .base import BasisClassifier
from .lspc import kernels_for

KAPPA = 1e-3
# Squared Newton decrement per row under which one more step lands at machine precision.
LAST_STEP = 1e-8
# The same where three digits of the gradient will do.
ROUGH_LAST_STEP = 1e-5
MAX_ITER = 100
# Of a Newton step: below it another direction is tried rather than a shorter step.
SMALLEST_SHARE = 1e-2
# Rows that find a start for many more of them, and the most steps they may take.
SAMPLE_ROWS = 50_000
SAMPLE_STEPS = 30


class Logistic(BasisClassifier):
    """Multinomial logistic regression of the group on the basis φ.

    Minimizes Σᵢ −ωᵢ log ρ(aᵢ|zᵢ) + (κ/2) Σ_k ‖w_k − w̄‖² by damped Newton steps.

    Parameters
    ----------
    basis : {"quadratic", "linear", "degree3"}
        φ of the standardized inputs. The quadratic one is exact for normal data.
    kappa : float
        κ, in units of rows; the weights Ω have mean 1.
    max_iter : int
        Limit on Newton steps.
    losses : {"in-sample", "leave-one-out", "balanced"}
        Which loss estimates an entropy. Leave-one-out takes one Newton step per row in closed
        form, or per cluster; "balanced" is the mean of the two, whose biases cancel to first order.

    Attributes
    ----------
    classes_, weights_ (K, D), mean_, scale_, n_iter_, n_features_in_
    """

    def __init__(
        self,
        basis: str = "quadratic",
        *,
        kappa: float = KAPPA,
        max_iter: int = MAX_ITER,
        losses: str = "balanced",
    ):
        self.basis = basis
        self.kappa = kappa
        self.max_iter = max_iter
        self.losses = losses

    def _fit_rows(self, rows: Rows, basis: Basis) -> NDArray[np.float64]:
        fit = newton(rows, basis, self.kappa, max_iter=self.max_iter)
        self.n_iter_ = fit.n_iter
        return np.vstack([np.zeros(basis.n_terms), fit.weights])

    def _probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        return softmax(scores, axis=1)

    def _row_losses(self, rows, basis):
        fit = newton(rows, basis, self.kappa, max_iter=self.max_iter)
        _, _, hessian = _objective(rows, basis, fit.weights, self.kappa)
        free, terms = fit.weights.shape
        inverse = np.linalg.pinv(hessian, hermitian=True).reshape(free, terms, free, terms)
        blocks = [inverse[k, :, other] for k in range(free) for other in range(k + 1)]
        collapsed = basis.collapse(np.stack(blocks))
        return get_kernels().logistic_row_losses(rows, basis, fit.weights, collapsed)

    def _cluster_losses(self, rows, basis, cluster):
        fit = newton(rows, basis, self.kappa, max_iter=self.max_iter)
        _, _, hessian = _objective(rows, basis, fit.weights, self.kappa)
        return logistic_losses(rows, basis, fit.weights, hessian, cluster)


@dataclass(frozen=True)
class LogisticFit:
    """Weights (K − 1, D) and Newton steps."""

    weights: NDArray[np.float64]
    n_iter: int


def newton(
    rows: Rows,
    basis: Basis,
    kappa: float = KAPPA,
    *,
    start: NDArray[np.float64] | None = None,
    max_iter: int = MAX_ITER,
    last_step: float = LAST_STEP,
) -> LogisticFit:
    """Fit by Newton steps, halving a step that does not improve the objective.

    Many rows without a start get one from some of them.
    """
    if not kappa > 0:
        raise ValueError(f"`kappa` must be positive, got {kappa}.")
    n = len(rows.s)
    if start is None and n >= 2 * SAMPLE_ROWS:
        start = _newton(_every(rows, n // SAMPLE_ROWS), basis, kappa, None, SAMPLE_STEPS)[0].weights
    fit, converged = _newton(rows, basis, kappa, start, max_iter, last_step)
    if not converged:
        warnings.warn(
            f"The logistic classifier of the group did not converge in {max_iter} Newton steps. "
            "Hint: raise `max_iter` or `kappa`.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return fit


def _newton(
    rows: Rows, basis: Basis, kappa: float, start: NDArray[np.float64] | None, max_iter: int,
    last_step: float = LAST_STEP,
) -> tuple[LogisticFit, bool]:  # fmt: skip
    n = len(rows.s)
    cold = _cold_start(rows, basis)
    weights = cold if start is None else start
    objective, score, hessian = _objective(rows, basis, weights, kappa)
    if start is not None and not objective <= _cold_objective(rows):
        # Worse than knowing nothing: the data have moved too far for the old weights to help.
        weights = cold
        objective, score, hessian = _objective(rows, basis, weights, kappa)
    # A share of the Hessian's mean diagonal that is added to it where full steps lead nowhere:
    # probabilities of 0 and 1 flatten the objective, and a Newton step goes far beyond.
    damping = 0.0
    for steps in range(1, max_iter + 1):
        step = _solve(hessian, score, damping)
        decrement = float(score.ravel() @ step.ravel()) / n
        if damping == 0.0 and decrement <= last_step:
            # Below zero only by rounding, and then there is nothing to gain by the step.
            return LogisticFit(weights + step if decrement > 0 else weights, steps), True
        size, floor = 1.0, 1e-12 * abs(objective) + 1e-15
        trial = _objective(rows, basis, weights + step, kappa)
        while not trial[0] <= objective + floor and size > SMALLEST_SHARE:
            size *= 0.5
            trial = _objective(rows, basis, weights + size * step, kappa)
        if trial[0] <= objective + floor:
            weights = weights + size * step
            objective, score, hessian = trial
            damping = 0.01 * damping if damping > 1e-10 else 0.0
        elif damping > 1e4:  # no way down that rounding lets us see
            return LogisticFit(weights, steps), True
        else:
            damping = max(100.0 * damping, 1e-10)
    return LogisticFit(weights, max_iter), False


def _every(rows: Rows, stride: int) -> Rows:
    """Every `stride`-th row."""
    columns = {
        name: np.ascontiguousarray(getattr(rows, name)[::stride])
        for name in ("s", "y", "codes", "probabilities", "weight")
    }
    return rows._replace(**columns)


def evaluate(
    rows: Rows, basis: Basis, weights: NDArray[np.float64], kappa: float, scale: float | None = None
) -> tuple[float, NDArray[np.float64] | None]:
    """L = −objective per row at the optimal weights and, with a `scale`, scale·∂L/∂s.

    At the optimum the derivative at fixed weights is the total one (envelope theorem).
    """
    n = len(rows.s)
    size, slope, _ = _penalty(weights)
    finish = None
    if scale is not None:
        # Mean and spread move with every score: what they take is Σg and Σg·u. At the optimum
        # the sums Σrφ that give both are those of the penalty.
        constant, along = basis.totals(basis.slopes(weights), kappa * slope)
        finish = (scale * float(rows.center[1]) / n, constant / n, along / n)
    loss, _, _, gradient = get_kernels().logistic_pass(rows, basis, weights, False, finish)
    return -(loss + 0.5 * kappa * size) / n, gradient


def _objective(rows: Rows, basis: Basis, weights, kappa: float):
    """Objective per row, its negative gradient and Hessian (both summed over rows)."""
    loss, score, moments, _ = kernels_for(rows).logistic_pass(rows, basis, weights, True)
    free, terms = weights.shape
    size, slope, form = _penalty(weights)
    hessian = np.empty((free, terms, free, terms))
    blocks = iter(basis.gram(moments))
    for k in range(free):
        for other in range(k + 1):
            hessian[k, :, other] = hessian[other, :, k] = next(blocks)
    hessian = hessian.reshape(free * terms, free * terms) + kappa * form
    return (loss + 0.5 * kappa * size) / len(rows.s), score - kappa * slope, hessian


def _penalty(weights: NDArray[np.float64]):
    """Σ_k ‖w_k − w̄‖² over all K groups without intercepts, half its gradient, half its Hessian."""
    center, mask, form = _penalty_forms(*weights.shape)
    slope = (center @ weights) * mask
    return float((weights * slope).sum()), slope, form


@lru_cache
def _penalty_forms(free: int, terms: int):
    center = np.eye(free) - 1.0 / (free + 1)
    mask = np.ones(terms)
    mask[0] = 0.0
    return center, mask, np.kron(center, np.diag(mask))


def _solve(hessian, score, damping: float = 0.0):
    """A direction of descent, whatever rounding makes of the Hessian."""
    mean = np.trace(hessian) / len(hessian)
    ridge = (1e-14 + damping) * mean
    for _ in range(7):
        # LAPACK itself: SciPy's wrappers check for longer than six equations take to solve.
        shifted = hessian + ridge * np.eye(len(hessian))
        _, step, failed = dposv(shifted, score.ravel(), overwrite_a=True)
        if not failed:
            return step.reshape(score.shape)
        # Least squares instead of a larger ridge can point uphill here, and far.
        ridge *= 100.0
    return np.zeros_like(score)


def _cold_start(rows: Rows, basis: Basis) -> NDArray[np.float64]:
    """Intercepts at the log odds of the group shares."""
    out = np.zeros((rows.n_groups - 1, basis.n_terms))
    out[:, 0] = np.log(rows.shares[1:] / rows.shares[0])
    return out


def _cold_objective(rows: Rows) -> float:
    """H(A), the objective at the cold start."""
    return float(-(rows.shares * np.log(rows.shares)).sum()) + 1e-9


class LogisticTerm:
    """L = −(penalized log loss per row) and its gradient; warm-started from call to call.

    The penalized objective, not the bare loss: its gradient at fixed weights is then exact by the
    envelope theorem, and the penalty (κ/2n)‖w‖² is far below sampling error.
    """

    def __init__(self, basis: Basis, kappa: float = KAPPA):
        self.basis, self.kappa = basis, kappa
        self._weights: NDArray[np.float64] | None = None

    def warm_start(self, other: LogisticTerm) -> None:
        """Begin from the weights of another term."""
        self._weights = other._weights

    def value(self, rows: Rows) -> float:
        fit = newton(rows, self.basis, self.kappa, start=self._weights)
        return evaluate(rows, self.basis, fit.weights, self.kappa)[0]

    def value_and_grad(
        self, rows: Rows, scale: float, rough: bool = False
    ) -> tuple[float, NDArray[np.float64]]:
        """L and scale·∂L/∂s; if `rough`, to three digits."""
        last_step = ROUGH_LAST_STEP if rough else LAST_STEP
        fit = newton(rows, self.basis, self.kappa, start=self._weights, last_step=last_step)
        self._weights = fit.weights
        value, gradient = evaluate(rows, self.basis, fit.weights, self.kappa, scale)
        assert gradient is not None
        return value, gradient
