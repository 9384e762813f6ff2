"""A generalized linear model in coordinates whitened at its plain solution.

    objective = [ mean ω d(y, μ(η)) + θᵀPθ ] / D₀,   (b, θ) = plain solution + T v

About ‖v‖² above its minimum near v = 0, so that L-BFGS starts from the true curvature; what the
loss is off a parabola by is left for it to learn, as the fairness term is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Matrix, Vector
from ..data.weights import scale_to_count, weighted_mean, weighted_sum
from ..measures.losses import Loss
from .bound import BoundRegularizer
from .design import FeatureMatrix, Whitening, whiten
from .group_features import Slopes
from .linear_base import TrainingRows
from .ridge import RidgeProblem, prepare
from .solver import LEAP, Evaluate, Evaluated, pilot_rows

# ------------------------------------------------------------------------------------------------
# The plain fit of a generalized linear model, by Newton's method.
#
#     minimize over (b, θ)   [ mean ω d(y, μ(η)) + θᵀPθ ] / D₀,   η = b + (X − m)θ + offset
#
# D₀ is the deviance of the best constant, and m the mean of X under the weights ω d″, which takes
# the intercept out of the Hessian: C = ½ (X − m)ᵀ diag(ω d″)(X − m)/n + P for θ, ½ mean ω d″ for b.


# Steps shorter than this (in whitened coordinates, where the objective is in units of D₀) change
# the Hessian too little for a pass over the rows to make it anew.
CHORD = 0.05
# Newton's method is near its minimum in a tenth of these.
NEWTON_ITERATIONS = 100
# How exactly the plain model is solved, whatever is asked for the fair one: it costs a step.
NEWTON_TOL = 1e-7
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
    def bind(cls, loss: Loss, y: Vector, weight: Vector | None, n: int) -> BoundLoss:
        mean = np.asarray(loss.null_mean(y, weight))
        null = weighted_mean(loss.deviance(y, mean), weight)
        constant = weighted_mean(loss.saturated(y), weight)
        # At the level of rounding in what is subtracted from each other.
        size = abs(constant) + weighted_mean(np.abs(y), weight)
        null = null if null > 1e-13 * size else 0.0
        return cls(loss, y, weight, null, constant, n)

    @property
    def scale(self) -> float:
        """What the loss is divided by."""
        return self.null or 1.0

    def evaluate(self, eta: Vector) -> tuple[float, Vector]:
        """mean ω d / D₀ and its slope in each η."""
        rows, slope = self.loss.evaluate(self.y, eta)
        if self.weight is not None:
            slope *= self.weight
        slope *= 1.0 / (self.n * self.scale)
        total = weighted_sum(rows, self.weight) / self.n
        return (total + self.constant) / self.scale, slope

    def curvature(self, eta: Vector) -> Vector:
        """ω d″ of each row, not divided by anything."""
        rows = self.loss.curvature(self.y, eta)
        return rows if self.weight is None else self.weight * rows

    def take(self, rows: NDArray[np.intp], n: int) -> BoundLoss:
        """Some of the rows, n over all workers, in units of the same D₀."""
        weight = None if self.weight is None else scale_to_count(self.weight[rows])
        y = self.y[rows]
        constant = weighted_mean(self.loss.saturated(y), weight)
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


@dataclass(frozen=True)
class PlainFit:
    """A design with its loss and penalty, to be fitted by Newton's method.

    Attributes
    ----------
    design : FeatureMatrix
    bound : BoundLoss
    penalty : (d, d) array
        P.
    offset : (n,) array or None
    fit_intercept : bool
    """

    design: FeatureMatrix
    bound: BoundLoss
    penalty: Matrix
    offset: Vector | None
    fit_intercept: bool

    def solve(self, begin: Vector | None = None) -> Plain:
        """The solution, started on a sample of the rows where there are many.

        `begin` are intercept and coefficients to start from instead.
        """
        if begin is not None:
            return self._newton(NEWTON_TOL, (float(begin[0]), begin[1:]))
        rows = pilot_rows(self.design)
        if rows is None:
            return self._solve_in_stages(NEWTON_TOL)
        pilot = self.take(rows)._solve_in_stages(PILOT_TOL)
        return self._newton(NEWTON_TOL, (pilot.intercept, pilot.theta))

    def take(self, rows: NDArray[np.intp]) -> PlainFit:
        """The same on some of the rows."""
        design = self.design.take(rows)
        return replace(
            self, design=design, bound=self.bound.take(rows, design.total),
            offset=None if self.offset is None else self.offset[rows],
        )  # fmt: skip

    def _solve_in_stages(self, tol: float) -> Plain:
        """Through the easier losses of the loss, each starting the next."""
        plain, start = None, None
        *easier, last = self.bound.loss.stages()
        for loss, enough in [*((loss, max(tol, PILOT_TOL)) for loss in easier), (last, tol)]:
            stage = replace(self, bound=replace(self.bound, loss=loss))
            plain = stage._newton(enough, start)
            start = plain.intercept, plain.theta
        assert plain is not None
        return plain

    def _begin(self) -> tuple[float, Vector]:
        """Intercept and coefficients of the best constant."""
        b, loss = 0.0, self.bound.loss
        if self.fit_intercept:
            b = float(loss.link(np.asarray(loss.null_mean(self.bound.y, self.bound.weight))))
        return b if np.isfinite(b) else 0.0, np.zeros(self.design.d)

    def _newton(self, tol: float, start: tuple[float, Vector] | None) -> Plain:
        design, bound, penalty, scale = self.design, self.bound, self.penalty, self.bound.scale
        b, theta = self._begin() if start is None else start
        eta = design.forward(theta) + b
        if self.offset is not None:
            eta += self.offset
        value, slope = bound.evaluate(eta)
        if not np.isfinite(value):
            raise ValueError(
                f"`link` must allow the mean where the search starts: {bound.loss.link.name!r} "
                "does not at these offsets. Hint: link='log' allows any."
            )
        objective = value + float(theta @ penalty @ theta) / scale
        step, norm, hessian, iteration = np.inf, np.inf, None, 0
        while iteration < NEWTON_ITERATIONS:
            iteration += 1
            if hessian is None or step > CHORD:
                hessian = self._hessian(eta, slope)
                gradient, total = hessian.gradient, weighted_sum(slope)
            else:
                gradient, total = design.backward_with_sum(slope)
                gradient = gradient - hessian.center * total
            gradient = gradient + 2.0 * (penalty @ theta) / scale
            # Whitened: the objective is ‖v‖² there, so a Newton step is half the gradient.
            whitened = hessian.whitening.adjoint(gradient)
            lift = hessian.spread * total if self.fit_intercept else 0.0
            norm = float(np.hypot(np.linalg.norm(whitened), lift))
            if norm <= tol:
                break
            change = hessian.whitening.apply(-0.5 * whitened)
            up = -0.5 * hessian.spread * lift - float(hessian.center @ change)
            ray = design.forward(change) + up
            t, moved = self._backtrack(eta, ray, theta, change, objective, 0.5 * norm**2)
            if moved is None:
                break  # not even a tiny step improves: rounding level
            objective, slope, eta = moved
            theta, b = theta + t * change, b + t * up
            step = 0.5 * norm if t == 1.0 else np.inf
        assert hessian is not None
        return Plain(b, theta, hessian.center, hessian.whitening, hessian.spread, iteration, norm)

    def _hessian(self, eta: Vector, slope: Vector) -> _Hessian:
        """Curvature at η, and the gradient of the loss in (X − m)θ from the same pass."""
        design, scale, n = self.design, self.bound.scale, self.design.total
        rows = self.bound.curvature(eta)
        rows = np.maximum(rows, LEAST_CURVATURE * (weighted_sum(rows) / n))
        mean = weighted_sum(rows) / n
        rows /= mean
        center, gram, cross = design.checked_moments(slope * n / rows, rows, self.fit_intercept)
        if not self.fit_intercept:
            center = np.zeros(design.d)
        whitening = whiten(0.5 * mean * gram, self.penalty, scale)
        spread = float(np.sqrt(scale / (0.5 * mean))) if self.fit_intercept else 0.0
        return _Hessian(center, whitening, spread, cross)

    def _backtrack(
        self, eta: Vector, ray: Vector, theta: Vector, change: Vector, objective: float,
        decrement: float,
    ) -> tuple[float, tuple[float, Vector, Vector] | None]:  # fmt: skip
        """Halve the step until the objective falls; None where it never does."""
        t, slack = 1.0, 1e-14 * (abs(objective) + 1.0)
        for _ in range(40):
            point, moved = theta + t * change, eta + t * ray
            value, slope = self.bound.evaluate(moved)
            value += float(point @ self.penalty @ point) / self.bound.scale
            if np.isfinite(value) and value <= objective - 1e-4 * t * decrement + slack:
                return t, (value, slope, moved)
            t *= 0.5 if np.isfinite(value) else 0.2
        return 0.0, None


@dataclass(frozen=True)
class _Hessian:
    center: Vector
    whitening: Whitening
    spread: float
    gradient: Vector


@dataclass(frozen=True, kw_only=True)
class GLMProblem:
    """See the module; `Problem` in `path_solver` says what each method is for.

    Attributes
    ----------
    features, design : FeatureMatrix
        As given, and as rotated where there are more columns than rows.
    bound : BoundLoss
    plain : Plain
    penalty : (d, d) array
        P.
    offset : (n,) array or None
    of_mean : bool
        Whether the fairness term sees the mean μ, rather than η.
    fit_intercept : bool
    rotation, mean_x
        Of a rotated design: coefficients are Qθ, about mean_x.
    """

    features: FeatureMatrix
    design: FeatureMatrix
    bound: BoundLoss
    plain: Plain
    penalty: Matrix
    offset: Vector | None
    of_mean: bool
    fit_intercept: bool
    rotation: Matrix | None = None
    mean_x: Vector | None = None

    def _plain_fit(self) -> PlainFit:
        return PlainFit(
            self.design, self.bound, self.penalty, self.offset, self.fit_intercept
        )  # fmt: skip

    @property
    def loss(self) -> Loss:
        return self.bound.loss

    @property
    def null(self) -> float:
        """What the loss is divided by."""
        return self.bound.null

    @property
    def theta(self) -> Vector:
        """(b, θ) of the plain solution, b the intercept of the centered columns."""
        return self._joined(self.plain.intercept, self.plain.theta)

    def _joined(self, intercept: float, theta: Vector) -> Vector:
        return np.concatenate([[intercept + float(self.plain.center @ theta)], theta])

    @property
    def origin(self) -> Vector:
        return np.concatenate([[0.0], self.plain.whitening.origin])

    def shrunk(self, factor: float) -> Vector:
        v = self.plain.whitening.invert((factor - 1.0) * self.plain.theta)
        return np.concatenate([[0.0], v])

    def at(self, v: Vector) -> Vector:
        """(b, θ) at v."""
        return self.theta + self._apply(v)

    def _apply(self, v: Vector) -> Vector:
        plain = self.plain
        return np.concatenate([[plain.spread * v[0]], plain.whitening.apply(v[1:])])

    def _forward(self, change: Vector) -> Vector:
        theta = change[1:]
        return self.design.forward(theta) + (change[0] - float(self.plain.center @ theta))

    def scores(self, theta: Vector) -> Vector:
        """η at (b, θ)."""
        eta = self._forward(theta)
        return eta if self.offset is None else eta + self.offset

    def predictor(self, v: Vector) -> Vector:
        return self.scores(self.at(v))

    def fair_scores(self, predictor: Vector) -> Vector:
        return self.loss.link.inverse(predictor) if self.of_mean else predictor

    def bowl(self, v: Vector) -> tuple[float, Vector]:
        """θᵀPθ / D₀ and its gradient."""
        theta = self.at(v)[1:]
        pull = self.penalty @ theta / self.bound.scale
        gradient = np.concatenate([[0.0], self.plain.whitening.adjoint(2.0 * pull)])
        return float(theta @ pull), gradient

    def forward(self, p: Vector, bound: BoundRegularizer) -> Vector:
        return self._forward(self._apply(p))

    def backward(self, r: Vector, bound: BoundRegularizer) -> Vector:
        plain = self.plain
        g, total = self.design.backward_with_sum(r)
        g = g - plain.center * total
        return np.concatenate([[plain.spread * total], plain.whitening.adjoint(g)])

    def evaluator(self, bound: BoundRegularizer, fairness_weight: float, rough: bool) -> Evaluate:
        link, of_mean = self.loss.link, self.of_mean and self.loss.link.name != "identity"

        def evaluate(eta: Vector) -> Evaluated:
            value, slope = self.bound.evaluate(eta)
            if not np.isfinite(value):
                return np.inf, 0.0, slope
            scores = eta
            if of_mean:
                with np.errstate(over="ignore"):
                    scores = link.inverse(eta)
            term, part = bound.evaluate(scores, fairness_weight, rough=rough)
            # The slope of e^η is the mean itself: no second exponential.
            if of_mean:
                part *= scores if link.name == "log" else link.slopes(eta)[0]
            slope += part
            return value, term, slope

        return evaluate

    def take(self, rows: NDArray[np.intp]) -> GLMProblem:
        part = self._plain_fit().take(rows)
        return replace(self, design=part.design, bound=part.bound, offset=part.offset)

    def coefficients(self, theta: Vector) -> Vector:
        """Of the features as they were given."""
        return theta[1:] if self.rotation is None else self.rotation @ theta[1:]

    def intercept(self, theta: Vector) -> float:
        if not self.fit_intercept:
            return 0.0
        b = float(theta[0]) - float(self.plain.center @ theta[1:])
        return b if self.mean_x is None else b - float(self.mean_x @ self.coefficients(theta))

    def objective(self, theta: Vector) -> float:
        """[mean ω d + θᵀPθ] / D₀."""
        if not theta[1:].any() and self.offset is None:
            # One score for everybody needs no pass over the features.
            value, _ = self.bound.evaluate(np.full(self.design.n, float(theta[0])))
            return value
        value, _ = self.bound.evaluate(self.scores(theta))
        return value + float(theta[1:] @ self.penalty @ theta[1:]) / self.bound.scale

    def constant(self) -> Vector | None:
        """(b, θ) of one score for everybody; None where there is no such model."""
        if not self.fit_intercept or self.offset is not None:
            return None
        mean = self.loss.null_mean(self.bound.y, self.bound.weight)
        out = np.zeros_like(self.theta)
        out[0] = float(self.loss.link(np.asarray(mean)))
        return out

    def best_scale(self, theta: Vector, fairness_weight: float) -> Vector:
        """The model of least loss among those whose fairness term is the same.

        The term standardizes its scores: it sees neither their level nor their scale. Of means e^η
        the intercept is the scale; of η, or of means η, level and scale are b and a factor of θ.
        Where the weight of the term is large the search ends before the loss has found them.
        """
        if not self.fit_intercept or fairness_weight <= LEAP:
            return theta
        of_predictor = not self.of_mean or self.loss.link.name == "identity"
        if of_predictor and self.offset is None:
            columns = self._forward(np.concatenate([[0.0], theta[1:]]))[:, None]
            columns = np.hstack([np.ones_like(columns), columns])
        elif of_predictor or self.loss.link.name == "log":
            columns = np.ones((self.design.n, 1))
        else:
            return theta
        eta = self.scores(theta)
        weight = float(theta[1:] @ self.penalty @ theta[1:]) / self.bound.scale
        level, factor = np.zeros(columns.shape[1]), 1.0
        value, slope = self.bound.evaluate(eta)
        best = value + weight
        for _ in range(20):
            rows = self.bound.curvature(eta) / (self.design.total * self.bound.scale)
            hessian, gradient = self.design.sums.add(
                columns.T @ (columns * rows[:, None]), columns.T @ slope
            )
            if len(level) > 1:
                gradient[1] += 2.0 * weight * factor
                hessian[1, 1] += 2.0 * weight
            step = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]
            if not -float(gradient @ step) > 1e-13:
                break
            for t in (1.0, 0.5, 0.25, 0.1, 0.01):
                moved = eta + columns @ (t * step)
                value, slope_new = self.bound.evaluate(moved)
                scaled = factor + t * step[1] if len(level) > 1 else 1.0
                if value + weight * scaled**2 <= best:
                    break
            else:
                break
            best, eta, slope, factor = value + weight * scaled**2, moved, slope_new, scaled
            level = level + t * step
        return np.concatenate([[theta[0] + level[0]], factor * theta[1:]])


def prepare_glm(
    design: FeatureMatrix, loss: Loss, rows: TrainingRows, *, alpha: float, fit_intercept: bool,
    of_mean: bool, n_kept: int = 0,
) -> GLMProblem:  # fmt: skip
    """The plain fit and its whitening, once per data set."""
    y, weight, offset, begin = rows.y, rows.weight, rows.offset, rows.begin
    loss = loss.fixed(y, weight, design.d)
    bound = BoundLoss.bind(loss, y, weight, design.total)
    features, rotation, mean_x = design, None, None
    if design.wide:
        design, rotation, mean_x = features.rotated(weight, fit_intercept, n_kept)
    if begin is not None and (rotation is not None or len(begin) != 1 + design.d):
        begin = None  # of other columns than these
    fit = PlainFit(design, bound, alpha * np.eye(design.d), offset, fit_intercept)
    plain = fit.solve(begin)
    if loss.width_from_residuals:
        eta = design.forward(plain.theta) + plain.intercept
        residual = y - (eta if offset is None else eta + offset)
        bound = replace(bound, loss=loss.fixed(residual, weight, design.d, again=True))
        plain = replace(fit, bound=bound).solve(begin)
    return GLMProblem(
        features=features, design=design, bound=bound, plain=plain, penalty=fit.penalty,
        offset=offset, of_mean=of_mean, fit_intercept=fit_intercept, rotation=rotation,
        mean_x=mean_x,
    )  # fmt: skip


def shrink_slopes(
    problem: GLMProblem, slopes: Slopes, group_alpha: float | str
) -> tuple[GLMProblem, float]:
    """The problem with its slopes penalized, and γ; see :class:`Slopes`.

    "auto" leaves rows out of the least squares problem that a Newton step at the solution solves.
    """
    if isinstance(group_alpha, str):
        working, target, weight, unit = _working(problem)
        group_alpha = unit * slopes.leave_one_out(working, target, weight)
    if group_alpha == 0 or slopes.size == 0:
        return problem, float(group_alpha)
    problem = replace(problem, penalty=slopes.added_to(problem.penalty, group_alpha))
    return replace(problem, plain=problem._plain_fit().solve()), float(group_alpha)


def _working(problem: GLMProblem) -> tuple[RidgeProblem, Vector, Vector, float]:
    """Ridge problem, target, weights, and what one of its units of penalty is here."""
    eta = problem.scores(problem.theta)
    _, slope = problem.bound.evaluate(eta)
    rows = problem.bound.curvature(eta)
    rows = np.maximum(rows, 1e-6 * rows.mean())
    mean = float(rows.mean())
    linear = eta if problem.offset is None else eta - problem.offset
    target = linear - slope * (problem.design.n * problem.bound.scale) / rows
    alpha = 2.0 * float(problem.penalty[0, 0]) / mean if len(problem.penalty) else 0.0
    weight = rows / mean
    ridge = prepare(problem.design, target, weight, alpha, problem.fit_intercept)
    return ridge, target, weight, 0.5 * mean
