"""Multinomial logistic regression on the basis, by damped Newton steps.

    ρ_k(z) = exp(φ·w_k) / Σ_j exp(φ·w_j),  w_0 = 0
    minimize Σᵢ −ωᵢ log ρ(aᵢ|zᵢ) + (κ/2) Σ_k ‖w_k − w̄‖²   (intercepts free)

The penalty compares each w_k with their mean, so that the result does not depend on which group
is the reference. It only keeps perfectly separated groups finite.
"""

from __future__ import annotations

import warnings
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning

from ..kernels import Rows, passes_for
from ..kernels.basis import Basis
from ._cell_leave_out import collapse_inverse, leave_out, leave_out_each
from ._cell_newton import Curvature, Settled, grid_pays, settle
from ._leave_out import logistic_losses
from ._newton import LAST_STEP, LogisticFit, descend, finish_at, objective_at, penalty
from .base import BasisClassifier

KAPPA = 1e-3
# `LAST_STEP` where three digits of the gradient will do.
ROUGH_LAST_STEP = 1e-5
MAX_ITER = 100
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
        settled = None
        if grid_pays(rows) and len(rows.codes):
            losses = np.empty(len(rows.s))
            settled = settle(rows, basis, _positive(self.kappa), losses=losses)
        if settled is not None:
            inside, outside = leave_out(rows, basis, settled, losses)
        else:
            fit = newton(rows, basis, self.kappa, max_iter=self.max_iter)
            _, _, hessian = objective_at(rows, basis, fit.weights, self.kappa)
            inverse = collapse_inverse(np.linalg.pinv(hessian, hermitian=True), basis)
            inside, outside = leave_out_each(rows, basis, fit.weights, inverse)
        return inside, outside

    def _cluster_losses(self, rows, basis, cluster):
        fit = newton(rows, basis, self.kappa, max_iter=self.max_iter)
        _, _, hessian = objective_at(rows, basis, fit.weights, self.kappa)
        return logistic_losses(rows, basis, fit.weights, hessian, cluster)


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

    Many rows without a start get one from some of them; many rows of many groups take their
    curvature from cells where that is enough.
    """
    n = rows.n
    if grid_pays(rows):
        settled = settle(rows, basis, _positive(kappa), start, last_step=last_step)
        if settled is not None:
            return LogisticFit(settled.weights, settled.n_iter)
    if start is None and n >= 2 * SAMPLE_ROWS:
        some = every(rows, n // SAMPLE_ROWS)
        start = descend(some, basis, _positive(kappa), None, SAMPLE_STEPS)[0].weights
    fit, converged = descend(rows, basis, _positive(kappa), start, max_iter, last_step)
    if not converged:
        warnings.warn(
            f"The logistic classifier of the group did not converge in {max_iter} Newton steps. "
            "Hint: raise `max_iter` or `kappa`.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return fit


def _positive(kappa: float) -> float:
    if not kappa > 0:
        raise ValueError(f"`kappa` must be positive, got {kappa}.")
    return kappa


def every_from(rows: Rows, stride: int) -> int:
    """The first of these rows that `every` takes."""
    return -rows.sums.first_row(len(rows.s)) % stride


def every(rows: Rows, stride: int) -> Rows:
    """Every `stride`-th row, of all workers together where there are several."""
    start = every_from(rows, stride)
    columns: dict[str, Any] = {
        name: getattr(rows, name)[start::stride].copy(order="K")
        for name in ("s", "y", "codes", "probabilities", "weight")
    }
    whole = rows.sums.total(len(columns["s"])) if rows.whole else 0
    return rows._replace(**columns, whole=whole)


def evaluate(
    rows: Rows, basis: Basis, weights: NDArray[np.float64], kappa: float, scale: float | None = None
) -> tuple[float, NDArray[np.float64] | None]:
    """L = −objective per row at the optimal weights and, with a `scale`, scale·∂L/∂s.

    At the optimum the derivative at fixed weights is the total one (envelope theorem).
    """
    finish = None if scale is None else finish_at(rows, basis, weights, kappa, scale)
    loss, _, _, gradient = passes_for(rows).logistic_pass(rows, basis, weights, False, finish)
    return -(loss + 0.5 * kappa * penalty(weights)[0]) / rows.n, gradient


class LogisticTerm:
    """L = −(penalized log loss per row) and its gradient; warm-started from call to call.

    The penalized objective, not the bare loss: its gradient at fixed weights is then exact by the
    envelope theorem, and the penalty (κ/2n)‖w‖² is far below sampling error.
    """

    def __init__(self, basis: Basis, kappa: float = KAPPA):
        self.basis, self.kappa = basis, kappa
        self._weights: NDArray[np.float64] | None = None
        self._curvature: Curvature | None = None

    def warm_start(self, other: LogisticTerm) -> None:
        """Begin from the weights of another term."""
        self._weights, self._curvature = other._weights, copy(other._curvature)

    def weights_at(self, rows: Rows) -> NDArray[np.float64]:
        """The weights, (K − 1, D); those of the last gradient, which must be at these rows."""
        if self._weights is None:
            self._weights = newton(rows, self.basis, self.kappa).weights
        return self._weights

    def value(self, rows: Rows) -> float:
        settled = self._settle(rows, LAST_STEP, 1.0)
        if settled is not None:
            return -settled.objective
        fit = newton(rows, self.basis, self.kappa, start=self._weights)
        return evaluate(rows, self.basis, fit.weights, self.kappa)[0]

    def value_and_grad(
        self, rows: Rows, scale: float, rough: bool = False
    ) -> tuple[float, NDArray[np.float64]]:
        """L and scale·∂L/∂s; if `rough`, to three digits."""
        last_step = ROUGH_LAST_STEP if rough else LAST_STEP
        settled = self._settle(rows, last_step, scale)
        if settled is not None:
            self._weights, self._curvature = settled.weights, settled.curvature
            assert settled.gradient is not None
            return -settled.objective, settled.gradient
        fit = newton(rows, self.basis, self.kappa, start=self._weights, last_step=last_step)
        self._weights = fit.weights
        value, gradient = evaluate(rows, self.basis, fit.weights, self.kappa, scale)
        assert gradient is not None
        return value, gradient

    def _settle(self, rows: Rows, last_step: float, scale: float) -> Settled | None:
        if not grid_pays(rows):
            return None
        start = self._weights, self._curvature
        return settle(rows, self.basis, self.kappa, *start, last_step=last_step, scale=scale)
