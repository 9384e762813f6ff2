"""Newton steps for the classifier of the group, over sums that may come from anywhere.

    minimize Σᵢ −ωᵢ log ρ(aᵢ|zᵢ) + (κ/2) Σ_k ‖w_k − w̄‖²

One step beyond a point whose squared decrement per row is below `last_step` lands at the optimum as
far as the passes can tell, so none is spent on looking at it: the objective there is that of the
quadratic, and the two sums that a gradient needs there are moved along the step by their own
derivatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .._core.arrays import Array
from ..estimators._newton import SMALLEST_SHARE, penalty, solve
from ..kernels.basis import Basis

MAX_ITER = 100


@dataclass(frozen=True)
class Sums:
    """Sums over rows at weights W, (F, D) with F = K − 1.

    Attributes
    ----------
    loss : float
        Σ −ω log ρ.
    score : (F, D) array
        Its negative gradient in W.
    chain : (2,) array
        Σh and Σh·z, with h the derivative of −loss in the standardized score z at fixed W: what
        mean and spread of the scores take from a gradient.
    """

    loss: float
    score: Array
    chain: Array


@dataclass(frozen=True)
class Curvature:
    """Derivatives of :class:`Sums` in W; from some of the rows where those are many.

    Attributes
    ----------
    hessian : (FD, FD) array
        Of the loss.
    drift : (2, F, D) array
        Derivative of `chain`.
    """

    hessian: Array
    drift: Array


class Passes(Protocol):
    """Rows with scores in place."""

    basis: Basis
    n_known: float
    # Squared decrement per row under which the error of one more step is below that of the sums.
    last_step: float
    # The same as a share of the information found: a last step by a hundredth of the weights.
    last_share: float

    def first(self, weights: Array) -> Sums: ...

    def both(self, weights: Array) -> tuple[Sums, Curvature]: ...


@dataclass(frozen=True)
class Settled:
    """The optimum: L = −objective per row, weights, `chain` there, curvature."""

    value: float
    weights: Array
    chain: Array
    curvature: Curvature


class NoDescent(ArithmeticError):
    """Sums are not finite: the scores are not."""


def cold_weights(shares: Array, basis: Basis) -> Array:
    """Intercepts at the log odds of the group shares."""
    out = np.zeros((len(shares) - 1, basis.n_terms))
    out[:, 0] = np.log(shares[1:] / shares[0])
    return out


def settle(passes: Passes, kappa: float, shares: Array, start: Array | None = None) -> Settled:
    """Newton steps from `start`, halved or damped where they do not improve the objective."""
    n = passes.n_known

    def look(weights: Array) -> tuple[float, Array, Sums, Curvature]:
        sums, curvature = passes.both(weights)
        size, slope, _ = penalty(weights)
        return (sums.loss + 0.5 * kappa * size) / n, sums.score - kappa * slope, sums, curvature

    entropy = float(-(shares * np.log(shares)).sum())
    weights = cold_weights(shares, passes.basis) if start is None else start
    objective, score, sums, curvature = look(weights)
    if start is not None and not objective <= entropy + 1e-6:
        # Worse than knowing nothing: the rows have moved too far for the old weights to help.
        weights = cold_weights(shares, passes.basis)
        objective, score, sums, curvature = look(weights)
    if not np.isfinite(objective):
        raise NoDescent
    damping = 0.0
    form = penalty(weights)[2]
    for _ in range(MAX_ITER):
        step = solve(curvature.hessian + kappa * form, score, damping)
        decrement = float((score * step).sum()) / n
        enough = max(passes.last_step, passes.last_share * (entropy - objective))
        if damping == 0.0 and decrement <= enough:
            break
        size, floor = 1.0, 1e-12 * abs(objective) + 1e-15
        trial = look(weights + step)
        while not trial[0] <= objective + floor and size > SMALLEST_SHARE:
            size *= 0.5
            trial = look(weights + size * step)
        if trial[0] <= objective + floor:
            weights = weights + size * step
            objective, score, sums, curvature = trial
            damping = 0.01 * damping if damping > 1e-10 else 0.0
        elif damping > 1e4:  # no way down that rounding lets us see
            decrement = -1.0
            break
        else:
            damping = max(100.0 * damping, 1e-10)
    # Out of steps, or uphill by rounding: what was seen last is what there is.
    if not 0.0 <= decrement <= enough:
        step, decrement = np.zeros_like(step), 0.0
    chain = sums.chain + (curvature.drift * step).sum(axis=(1, 2))
    value = 0.5 * decrement - objective
    return Settled(value, weights + step, chain, curvature)
