"""Multinomial logistic regression on the basis, by damped Newton steps.

    ρ_k(z) = exp(φ·w_k) / Σ_j exp(φ·w_j),  w_0 = 0
    minimize Σᵢ −ωᵢ log ρ(aᵢ|zᵢ) + (κ/2) Σ_k ‖w_k − w̄‖²   (intercepts free)

The penalty compares each w_k with their mean, so that the result does not depend on which group
is the reference. It only keeps perfectly separated groups finite.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..kernels import Rows, get_kernels, numpy_passes
from ..kernels.basis import Basis
from ._leave_out import leave_out_by_cells, leave_out_rows, logistic_losses
from ._newton import (
    LAST_STEP,
    Chord,
    LogisticFit,
    descend,
    descend_by_cells,
    gather,
    grid_pays,
    objective_at,
    penalty,
)
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

    See Also
    --------
    evenhand.Adaptive
    evenhand.LSPC
    evenhand.FairnessRegularizer

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> linear = eh.Logistic("linear")
    >>> value = eh.independence(None, data.s, sensitive_features=data.a, estimator=linear)
    >>> 0 < value < 1
    True
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

    def _row_losses(self, rows, basis):
        if grid_pays(rows) and len(rows.codes):
            grid = gather(rows)
            fit = descend_by_cells(rows, basis, _positive(self.kappa), grid=grid)
            if fit.converged:
                return leave_out_by_cells(rows, basis, fit, grid)
        fit, hessian = self._fit_curved(rows, basis)
        inverse = np.linalg.pinv(hessian, hermitian=True)
        return leave_out_rows(rows, basis, fit.weights, inverse)

    def _cluster_losses(self, rows, basis, cluster):
        fit, hessian = self._fit_curved(rows, basis)
        return logistic_losses(rows, basis, fit.weights, hessian, cluster)

    def _fit_curved(self, rows, basis):
        fit = newton(rows, basis, self.kappa, max_iter=self.max_iter)
        return fit, objective_at(rows, basis, fit.weights, self.kappa)[2]


def newton(
    rows: Rows, basis: Basis, kappa: float = KAPPA, *, start: NDArray[np.float64] | None = None,
    chord: Chord | None = None, max_iter: int = MAX_ITER, last_step: float = LAST_STEP,
) -> LogisticFit:  # fmt: skip
    """Fit by Newton steps, halving a step that does not improve the objective.

    Many rows without a start get one from some of them; many rows of many groups take their
    curvature from cells where that is enough, and begin with the one of a fit nearby, `chord`.
    """
    n = rows.n
    if grid_pays(rows):
        fit = descend_by_cells(rows, basis, _positive(kappa), start, chord)
        if fit.converged:
            return fit
    if start is None and n >= 2 * SAMPLE_ROWS:
        some = every(rows, n // SAMPLE_ROWS)
        start = descend(some, basis, _positive(kappa), None, SAMPLE_STEPS).weights
    fit = descend(rows, basis, _positive(kappa), start, max_iter, last_step)
    if not fit.converged:
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


def every(rows: Rows, stride: int) -> Rows:
    """Every `stride`-th row, of all workers together where there are several."""
    start = -rows.sums.first_row(len(rows.s)) % stride
    some = numpy_passes.take(rows, np.arange(start, len(rows.s), stride))
    return some._replace(whole=rows.sums.total(len(some.s)) if rows.whole else 0)


def evaluate(
    rows: Rows, basis: Basis, weights: NDArray[np.float64], kappa: float, scale: float | None = None
) -> tuple[float, NDArray[np.float64] | None]:
    """L = −objective per row at the optimal weights and, with a `scale`, scale·∂L/∂s.

    At the optimum the derivative at fixed weights is the total one (envelope theorem).
    """
    finish, n, (size, slope, _) = None, rows.n, penalty(weights)
    if scale is not None:
        # Mean and spread move with every score: what they take is Σg and Σg·u. At the optimum the
        # sums Σrφ that give both are those of the penalty.
        constant, along = 0.0, 0.0
        if rows.moves:
            constant, along = basis.totals(basis.slopes(weights), kappa * slope)
        finish = scale * float(rows.center[1]) / n, constant / n, along / n
    loss, _, _, gradient = get_kernels().logistic_pass(rows, basis, weights, False, finish)
    return -(loss + 0.5 * kappa * size) / n, gradient


class LogisticTerm:
    """L = −(penalized log loss per row) and its gradient; warm-started from call to call.

    The penalized objective, not the bare loss: its gradient at fixed weights is then exact by the
    envelope theorem, and the penalty (κ/2n)‖w‖² is far below sampling error.
    """

    def __init__(self, basis: Basis, kappa: float = KAPPA):
        self.basis, self.kappa = basis, kappa
        self._fit: LogisticFit | None = None

    def warm_start(self, other: LogisticTerm) -> None:
        """Begin from the weights of another term."""
        self._fit = other._fit

    def weights_at(self, rows: Rows) -> NDArray[np.float64]:
        """The weights, (K − 1, D); those of the last gradient, which must be at these rows."""
        if self._fit is None:
            self._fit = self._near(rows)
        return self._fit.weights

    def value(self, rows: Rows) -> float:
        return evaluate(rows, self.basis, self._near(rows).weights, self.kappa)[0]

    def value_and_grad(
        self, rows: Rows, scale: float, rough: bool = False
    ) -> tuple[float, NDArray[np.float64]]:
        """L and scale·∂L/∂s; if `rough`, to three digits."""
        self._fit = self._near(rows, ROUGH_LAST_STEP if rough else LAST_STEP)
        value, gradient = evaluate(rows, self.basis, self._fit.weights, self.kappa, scale)
        assert gradient is not None
        return value, gradient

    def _near(self, rows: Rows, last_step: float = LAST_STEP) -> LogisticFit:
        """Fit from the last weights."""
        start, chord = (None, None) if self._fit is None else (self._fit.weights, self._fit.chord)
        options: Any = {"start": start, "chord": chord, "last_step": last_step}
        return newton(rows, self.basis, self.kappa, **options)
