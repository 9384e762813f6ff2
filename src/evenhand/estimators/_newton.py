"""Damped Newton steps for the penalized multinomial loss, with the exact Hessian over the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from ..kernels import Rows, passes_for
from ..kernels.basis import Basis

# Squared Newton decrement per row under which one more step lands at machine precision.
LAST_STEP = 1e-8
# Of a Newton step: below it another direction is tried rather than a shorter step.
SMALLEST_SHARE = 1e-2


@dataclass(frozen=True)
class LogisticFit:
    """Weights (K − 1, D) and Newton steps."""

    weights: NDArray[np.float64]
    n_iter: int


class Descent(NamedTuple):
    """Where Newton's method ended.

    Attributes
    ----------
    weights : (F, D) array
        The last point looked at.
    seen : tuple
        What `look` returned there.
    step : (F, D) array
        From there to the optimum; zero where nothing is to be gained.
    decrement : float
        Twice what that step gains, per row.
    n_iter : int
    converged : bool
    """

    weights: NDArray[np.float64]
    seen: Any
    step: NDArray[np.float64]
    decrement: float
    n_iter: int
    converged: bool


def damped_newton(
    look: Callable[[NDArray[np.float64]], Any], weights: NDArray[np.float64], seen: Any, n: float,
    enough: Callable[[float], float], max_iter: int,
) -> Descent:  # fmt: skip
    """Newton steps, halved or damped where they do not improve the objective.

    Parameters
    ----------
    look : weights → (objective per row, negative gradient, Hessian, ...), sums over n rows
    weights, seen
        Where to begin, and what `look` says there.
    n : float
    enough : objective → squared decrement per row under which one more step is the last
    max_iter : int
    """
    # A share of the Hessian's mean diagonal that is added to it where full steps lead nowhere:
    # probabilities of 0 and 1 flatten the objective, and a Newton step goes far beyond.
    damping = 0.0
    for steps in range(1, max_iter + 1):
        objective, score, hessian = seen[:3]
        step = solve(hessian, score, damping)
        decrement = float(score.ravel() @ step.ravel()) / n
        if damping == 0.0 and decrement <= enough(objective):
            # Below zero only by rounding, and then there is nothing to gain by the step.
            gained = max(decrement, 0.0)
            return Descent(weights, seen, step if gained else 0.0 * step, gained, steps, True)
        size, floor = 1.0, 1e-12 * abs(objective) + 1e-15
        trial = look(weights + step)
        while not trial[0] <= objective + floor and size > SMALLEST_SHARE:
            size *= 0.5
            trial = look(weights + size * step)
        if trial[0] <= objective + floor:
            weights, seen = weights + size * step, trial
            damping = 0.01 * damping if damping > 1e-10 else 0.0
        elif damping > 1e4:  # no way down that rounding lets us see
            return Descent(weights, seen, np.zeros_like(step), 0.0, steps, True)
        else:
            damping = max(100.0 * damping, 1e-10)
    return Descent(weights, seen, np.zeros_like(weights), 0.0, max_iter, False)


def descend(
    rows: Rows, basis: Basis, kappa: float, start: NDArray[np.float64] | None, max_iter: int,
    last_step: float = LAST_STEP,
) -> tuple[LogisticFit, bool]:  # fmt: skip
    """Newton steps from `start`, and whether they converged."""

    def look(weights: NDArray[np.float64]) -> Any:
        return objective_at(rows, basis, weights, kappa)

    cold = cold_start(rows.shares, basis)
    weights = cold if start is None else start
    seen = look(weights)
    if start is not None and not seen[0] <= cold_objective(rows):
        # Worse than knowing nothing: the data have moved too far for the old weights to help.
        weights, seen = cold, look(cold)
    end = damped_newton(look, weights, seen, rows.n, lambda objective: last_step, max_iter)
    found = end.weights + end.step if end.decrement else end.weights
    return LogisticFit(found, end.n_iter), end.converged


def objective_at(rows: Rows, basis: Basis, weights, kappa: float):
    """Objective per row, its negative gradient and Hessian (both summed over rows)."""
    loss, score, moments, _ = passes_for(rows).logistic_pass(rows, basis, weights, True)
    size, slope, form = penalty(weights)
    hessian = assemble_hessian(basis, moments, len(weights)) + kappa * form
    return (loss + 0.5 * kappa * size) / rows.n, score - kappa * slope, hessian


def assemble_hessian(basis: Basis, moments: NDArray[np.float64], free: int) -> NDArray[np.float64]:
    """(FD, FD) from the moments of its blocks (k, l ≤ k)."""
    hessian = np.empty((free, basis.n_terms, free, basis.n_terms))
    blocks = iter(basis.gram(moments.reshape(free * (free + 1) // 2, -1)))
    for k in range(free):
        for other in range(k + 1):
            hessian[k, :, other] = hessian[other, :, k] = next(blocks)
    return hessian.reshape(free * basis.n_terms, free * basis.n_terms)


def finish_at(rows: Rows, basis: Basis, weights, kappa: float, scale: float):
    """What a pass needs for scale·∂L/∂s at the optimum: see `logistic_pass`."""
    # Mean and spread move with every score: what they take is Σg and Σg·u. At the optimum the
    # sums Σrφ that give both are those of the penalty.
    n, constant, along = rows.n, 0.0, 0.0
    if rows.moves:
        constant, along = basis.totals(basis.slopes(weights), kappa * penalty(weights)[1])
    return scale * float(rows.center[1]) / n, constant / n, along / n


def penalty(weights: NDArray[np.float64]):
    """Σ_k ‖w_k − w̄‖² over all K groups without intercepts, half its gradient, half its Hessian."""
    center, mask, form = _penalty_forms(*weights.shape)
    slope = (center @ weights) * mask
    return float((weights * slope).sum()), slope, form


@lru_cache(maxsize=16)
def _penalty_forms(free: int, terms: int):
    center = np.eye(free) - 1.0 / (free + 1)
    mask = np.ones(terms)
    mask[0] = 0.0
    return center, mask, np.kron(center, np.diag(mask))


def solve(hessian, score, damping: float = 0.0):
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


def cold_start(shares: NDArray[np.float64], basis: Basis) -> NDArray[np.float64]:
    """Intercepts at the log odds of the group shares."""
    out = np.zeros((len(shares) - 1, basis.n_terms))
    out[:, 0] = np.log(shares[1:] / shares[0])
    return out


def cold_objective(rows: Rows) -> float:
    """H(A), the objective at the cold start."""
    return float(-(rows.shares * np.log(rows.shares)).sum()) + 1e-9
