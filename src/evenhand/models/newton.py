"""The plain fit of a generalized linear model, by Newton's method.

    minimize over (b, θ)   [ mean ω d(y, μ(η)) + θᵀPθ ] / D₀,   η = b + (X − m)θ + offset

D₀ is the deviance of the best constant, and m the mean of X under the weights ω d″, which takes
the intercept out of the Hessian: C = ½ (X − m)ᵀ diag(ω d″)(X − m)/n + P for θ, ½ mean ω d″ for b.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._kernels import shards
from .design import FeatureMatrix
from .losses import Loss
from .path_solver import pilot_rows
from .whitening import Whitening, whiten

Vector = NDArray[np.float64]
Table = NDArray[np.float64]

# Steps shorter than this (in whitened coordinates, where the objective is in units of D₀) change
# the Hessian too little for a pass over the rows to make it anew.
CHORD = 0.05
# A sample need not be solved more exactly than this to start the whole.
PILOT_TOL = 1e-3
# A Hessian with rows of no curvature at all still moves them.
LEAST_CURVATURE = 1e-10


@dataclass(frozen=True)
class BoundLoss:
    """A loss with targets and weights fixed: mean ω d / D₀ as a function of η.

    Attributes
    ----------
    loss : Loss
    y : (n,) array
    weight : (n,) array of mean 1, or None
    null : float
        D₀; zero where the target does not vary.
    constant : float
        The part of mean ω d that does not depend on η.
    n : int
        Rows, of all workers where there are several.
    """

    loss: Loss
    y: Vector
    weight: Vector | None
    null: float
    constant: float
    n: int

    @classmethod
    def bind(cls, loss: Loss, y: Vector, weight: Vector | None) -> BoundLoss:
        mean = np.asarray(loss.null_mean(y, weight))
        null = shards.average(loss.deviance(y, mean), weight)
        constant = shards.average(loss.saturated(y), weight)
        # At the level of rounding in what is subtracted from each other.
        size = abs(constant) + shards.average(np.abs(y), weight)
        null = null if null > 1e-13 * size else 0.0
        return cls(loss, y, weight, null, constant, shards.total(len(y)))

    @property
    def scale(self) -> float:
        """What the loss is divided by."""
        return self.null or 1.0

    def evaluate(self, eta: Vector) -> tuple[float, Vector]:
        """mean ω d / D₀ and its slope in each η."""
        rows, slope = self.loss.evaluate(self.y, eta)
        n = self.n
        if self.weight is None:
            total = shards.add(float(rows.sum())) / n
            slope *= 1.0 / (n * self.scale)
        else:
            total = shards.add(float(self.weight @ rows)) / n
            slope *= self.weight
            slope *= 1.0 / (n * self.scale)
        return (total + self.constant) / self.scale, slope

    def curvature(self, eta: Vector) -> Vector:
        """ω d″ of each row, not divided by anything."""
        rows = self.loss.curvature(self.y, eta)
        return rows if self.weight is None else self.weight * rows

    def take(self, rows: NDArray[np.intp]) -> BoundLoss:
        """Some of the rows, in units of the same D₀."""
        weight = None if self.weight is None else self.weight[rows]
        y, n = self.y[rows], shards.total(len(rows))
        if weight is not None:
            weight = weight * (n / shards.add(float(weight.sum())))
        constant = shards.average(self.loss.saturated(y), weight)
        return replace(self, y=y, weight=weight, constant=constant, n=n)


@dataclass(frozen=True)
class Plain:
    """The solution, and the curvature there.

    Attributes
    ----------
    intercept : float
        Of η = intercept + Xθ.
    theta : (d,) array
    center : (d,) array
        m; zero without an intercept.
    whitening : Whitening
        Of θ, with T Tᵀ = D₀ C⁻¹.
    spread : float
        The same for the intercept: √(D₀ / ½ mean ω d″); zero without one.
    n_iter : int
    gradient_norm : float
        In whitened coordinates.
    """

    intercept: float
    theta: Vector
    center: Vector
    whitening: Whitening
    spread: float
    n_iter: int
    gradient_norm: float


def fit_plain(
    design: FeatureMatrix, bound: BoundLoss, penalty: Table, offset: Vector | None,
    fit_intercept: bool, max_iter: int, tol: float, begin: Vector | None = None,
) -> Plain:  # fmt: skip
    """Newton's method, started on a sample of the rows where there are many.

    `begin` are intercept and coefficients to start from instead.
    """
    rows = pilot_rows(design)
    if begin is not None:
        start = float(begin[0]), begin[1:]
        return _newton(design, bound, penalty, offset, fit_intercept, max_iter, tol, start)
    if rows is None:
        return _staged(design, bound, penalty, offset, fit_intercept, max_iter, tol)
    few = None if offset is None else offset[rows]
    found = _staged(
        design.take(rows), bound.take(rows), penalty, few, fit_intercept, max_iter, PILOT_TOL
    )
    start = found.intercept, found.theta
    return _newton(design, bound, penalty, offset, fit_intercept, max_iter, tol, start)


def _staged(
    design: FeatureMatrix, bound: BoundLoss, penalty: Table, offset: Vector | None,
    fit_intercept: bool, max_iter: int, tol: float,
) -> Plain:  # fmt: skip
    """Through the easier losses of the loss, each starting the next."""
    found, start = None, None
    *easier, last = bound.loss.stages()
    for loss, enough in [*((loss, max(tol, PILOT_TOL)) for loss in easier), (last, tol)]:
        stage = replace(bound, loss=loss)
        found = _newton(design, stage, penalty, offset, fit_intercept, max_iter, enough, start)
        start = found.intercept, found.theta
    assert found is not None
    return found


def _newton(
    design: FeatureMatrix, bound: BoundLoss, penalty: Table, offset: Vector | None,
    fit_intercept: bool, max_iter: int, tol: float, start: tuple[float, Vector] | None,
) -> Plain:  # fmt: skip
    theta, b = np.zeros(design.d), 0.0
    if start is not None:
        b, theta = start
    elif fit_intercept:
        link = bound.loss.link
        b = float(link(np.asarray(bound.loss.null_mean(bound.y, bound.weight))))
        b = b if np.isfinite(b) else 0.0
    eta = design.forward(theta) + b
    if offset is not None:
        eta += offset
    scale = bound.scale
    value, slope = bound.evaluate(eta)
    if not np.isfinite(value):
        raise ValueError(
            f"`link` must allow the mean where the search starts: {bound.loss.link.name!r} does "
            "not at these offsets. Hint: link='log' allows any."
        )
    objective = value + float(theta @ penalty @ theta) / scale
    step, norm, hessian, iteration = np.inf, np.inf, None, 0
    while iteration < max_iter:
        iteration += 1
        if hessian is None or step > CHORD:
            hessian = _hessian(design, bound, penalty, eta, slope, fit_intercept)
            gradient, total = hessian.gradient, shards.add(float(slope.sum()))
        else:
            gradient, total = design.backward_with_sum(slope)
            gradient = gradient - hessian.center * total
        gradient = gradient + 2.0 * (penalty @ theta) / scale
        # Whitened: the objective is ‖v‖² there, so a Newton step is half the gradient.
        whitened = hessian.whitening.adjoint(gradient)
        lift = hessian.spread * total if fit_intercept else 0.0
        norm = float(np.hypot(np.linalg.norm(whitened), lift))
        if norm <= tol:
            break
        change = hessian.whitening.apply(-0.5 * whitened)
        up = -0.5 * hessian.spread * lift
        ray = design.forward(change) + (up - float(hessian.center @ change))
        t, found = _backtrack(bound, penalty, eta, ray, theta, change, objective, 0.5 * norm**2)
        if found is None:
            break  # not even a tiny step improves: rounding level
        objective, slope, eta = found
        theta = theta + t * change
        b += t * (up - float(hessian.center @ change))
        step = 0.5 * norm if t == 1.0 else np.inf
    assert hessian is not None
    return Plain(b, theta, hessian.center, hessian.whitening, hessian.spread, iteration, norm)


@dataclass(frozen=True)
class _Hessian:
    center: Vector
    whitening: Whitening
    spread: float
    gradient: Vector


def _hessian(
    design: FeatureMatrix, bound: BoundLoss, penalty: Table, eta: Vector, slope: Vector,
    fit_intercept: bool,
) -> _Hessian:  # fmt: skip
    """Curvature at η, and the gradient of the loss in (X − m)θ from the same pass."""
    rows = bound.curvature(eta)
    n = design.total
    mean = float(shards.add(float(rows.sum())) / n)
    rows = np.maximum(rows, LEAST_CURVATURE * mean)
    mean = float(shards.add(float(rows.sum())) / n)
    rows /= mean
    with np.errstate(over="ignore", invalid="ignore"):
        center, gram, cross = design.moments(slope * n / rows, rows, fit_intercept)
        design.check_squares(np.diag(gram))
        constant = np.diag(gram) <= design.rounding * center**2
    if fit_intercept:
        gram[constant] = gram[:, constant] = 0.0
        cross[constant] = 0.0
    else:
        center = np.zeros(design.d)
    found = whiten(0.5 * mean * gram, penalty, bound.scale)
    spread = float(np.sqrt(bound.scale / (0.5 * mean))) if fit_intercept else 0.0
    return _Hessian(center, found, spread, cross)


def _backtrack(
    bound: BoundLoss, penalty: Table, eta: Vector, ray: Vector, theta: Vector, change: Vector,
    objective: float, decrement: float,
) -> tuple[float, tuple[float, Vector, Vector] | None]:  # fmt: skip
    """Halve the step until the objective falls; None where it never does."""
    t = 1.0
    for _ in range(40):
        point, moved = theta + t * change, eta + t * ray
        value, slope = bound.evaluate(moved)
        found = value + float(point @ penalty @ point) / bound.scale
        slack = 1e-14 * (abs(objective) + 1.0)
        if np.isfinite(found) and found <= objective - 1e-4 * t * decrement + slack:
            return t, (found, slope, moved)
        t *= 0.5 if np.isfinite(found) else 0.2
    return 0.0, None
