"""A loss, a design and a penalty in coordinates whitened at the plain solution.

    objective = [ mean ω d(y, μ(η)) + θᵀPθ ] / D₀,   η = b + (X − m)θ + offset
    (b, θ) = plain solution + T v

About ‖v‖² above its minimum near v = 0, so that L-BFGS starts from the true curvature: exactly so
for squares, where b is the mean of y and all of the loss is in ‖v‖². What other losses are off a
parabola by is left for the search to learn, as the fairness term is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Matrix, Vector
from .._core.validation import InputError, check_squares
from ..data.weights import scale_to_count, weighted_mean, weighted_sum
from ..measures.losses import Loss
from .design import FeatureMatrix, whiten
from .penalty import BoundRegularizer
from .solver import LEAP, Evaluated, pilot_rows

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
# Rows and blocks of the jackknife behind errors of fair models: 8% of noise in an error, at the
# time of a few steps of the search.
JACKKNIFE_ROWS, JACKKNIFE_BLOCKS = 4_000, 80
# Half the distance at which gradients are compared, in whitened coordinates.
DIFFERENCE = 1e-3


@dataclass(frozen=True)
class TrainingRows:
    """Checked columns of a fit.

    Attributes
    ----------
    y : (n,) array
        What the loss sees.
    weight : (n,) array of mean 1, or None
        Weights of the loss.
    offset : (n,) array or None
        Known part of the predictor.
    given : (n,) array or None
        What stands for y in criteria that condition on it alone.
    units : (n,) array or None
        What a mean is multiplied by in totals: weight and exposure.
    """

    y: Vector
    weight: Vector | None
    offset: Vector | None = None
    given: Vector | None = None
    units: Vector | None = None


@dataclass(frozen=True)
class Plain:
    """The solution without a fairness term, and the curvature there.

    Attributes
    ----------
    level : float
        b, the intercept of the columns about `center`.
    theta : (d,) array
    center : (d,) array
        m: the mean of X under the weights ω d″, which takes the intercept out of the Hessian; zero
        without an intercept.
    whitening : (d, m) array
        T for θ, with T Tᵀ = D₀ C⁻¹, C = ½ (X − m)ᵀ diag(ω d″)(X − m)/n + P.
    spread : float
        The same for the intercept: √(D₀ / ½ mean ω d″); zero where it does not move.
    n_iter : int
        Newton steps.
    gradient_norm : float
        In whitened coordinates.
    """

    level: float
    theta: Vector
    center: Vector
    whitening: Matrix
    spread: float = 0.0
    n_iter: int = 1
    gradient_norm: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """What problems share: parameters (b, θ) in one vector, and the way to v and to the scores.

    With more features than rows θ is that of Z = XQ.

    Attributes
    ----------
    features, design : FeatureMatrix
        As given, and as rotated where there are more columns than rows.
    plain : Plain
    penalty : (d, d) array
        P.
    fit_intercept : bool
    offset : (n,) array or None
    rotation, mean_x
        Of a rotated design: coefficients are Qθ, about mean_x.
    """

    features: FeatureMatrix
    design: FeatureMatrix
    plain: Plain
    penalty: Matrix
    fit_intercept: bool
    offset: Vector | None = None
    rotation: Matrix | None = None
    mean_x: Vector | None = None

    @property
    def theta(self) -> Vector:
        """Parameters of the plain solution."""
        return np.concatenate([[self.plain.level], self.plain.theta])

    @property
    def origin(self) -> Vector:
        """v = 0, the plain solution."""
        return np.zeros(1 + self.plain.whitening.shape[1])

    def at(self, v: Vector) -> Vector:
        """Parameters at v."""
        return self.theta + self._apply(v)

    def _apply(self, v: Vector) -> Vector:
        plain = self.plain
        return np.concatenate([[plain.spread * v[0]], plain.whitening @ v[1:]])

    def _move(self, change: Vector) -> Vector:
        """How η moves with (b, θ)."""
        theta = change[1:]
        return self.design.forward(theta) + (change[0] - float(self.plain.center @ theta))

    def scores(self, theta: Vector) -> Vector:
        """η at (b, θ)."""
        eta = self._move(theta)
        return eta if self.offset is None else eta + self.offset

    def predictor(self, v: Vector) -> Vector:
        """η at v."""
        return self.scores(self.at(v))

    def fair_scores(self, predictor: Vector) -> Vector:
        """What the fairness term sees of η."""
        return predictor

    def fair_slope(self, predictor: Vector) -> Vector:
        """Its slope in η."""
        return np.ones_like(predictor)

    def forward(self, p: Vector) -> Vector:
        """How η moves along p."""
        return self._move(self._apply(p))

    def backward(self, r: Vector) -> Vector:
        """The transpose of `forward`."""
        plain = self.plain
        g, total = self.design.backward_with_sum(r)
        g = g - plain.center * total
        return np.concatenate([[plain.spread * total], plain.whitening.T @ g])

    def take(self, rows: NDArray[np.intp]) -> Self:
        """The problem on some of the rows, in the same coordinates."""
        offset = None if self.offset is None else self.offset[rows]
        return replace(self, design=self.design.take(rows), offset=offset)

    def coefficients(self, theta: Vector) -> Vector:
        """Of the features as they were given."""
        return theta[1:] if self.rotation is None else self.rotation @ theta[1:]

    def intercept(self, theta: Vector) -> float:
        if not self.fit_intercept:
            return 0.0
        b = float(theta[0]) - float(self.plain.center @ theta[1:])
        return b if self.mean_x is None else b - float(self.mean_x @ self.coefficients(theta))


# ------------------------------------------------------------------------------------------------
# Squares, in closed form.


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Weighted moments of target and features, about their means where there is an intercept.

    Attributes
    ----------
    gram, cross
        XᵀΩX/n and XᵀΩy/n.
    second_y : float
        Mean square of y.
    variance : float
        Of y; zero where its spread is at the level of rounding.
    """

    gram: Matrix
    cross: Vector
    second_y: float
    variance: float


@dataclass(frozen=True, kw_only=True)
class RidgeProblem(Coordinates):
    """The squared loss: objective = c + ‖v‖², C = XᵀΩX/n + P, D₀ = Var(y)."""

    moments: Moments

    @property
    def null(self) -> float:
        """D₀."""
        return self.moments.variance

    def bowl(self, v: Vector) -> tuple[float, Vector]:
        """The part of the objective that is a function of v alone, and its gradient."""
        return float(v @ v), 2.0 * v

    def evaluate(
        self, eta: Vector, bound: BoundRegularizer, fairness_weight: float, rough: bool
    ) -> Evaluated:
        """The rest of the loss, the weighted fairness term, and the slope of both in η."""
        return 0.0, *bound.evaluate(eta, fairness_weight, rough=rough)

    def objective(self, theta: Vector) -> float:
        """Loss and penalty, divided by D₀."""
        m, theta = self.moments, theta[1:]
        size = float(m.second_y - 2.0 * m.cross @ theta + theta @ (m.gram + self.penalty) @ theta)
        return size / m.variance if m.variance > 0 else 0.0

    def constant(self) -> Vector:
        """Parameters of one score for everybody."""
        return np.pad([self.plain.level], (0, len(self.plain.theta)))

    def best_scale(self, theta: Vector, fairness_weight: float) -> Vector:
        """The model of least loss among those that the fairness term cannot tell apart.

        The term standardizes its scores: it sees neither their level nor their scale. Where its
        weight is large the search ends before the loss has found them. Here θ is multiplied by the
        c of least ridge objective, θᵀXᵀΩy / θᵀ(XᵀΩX + nP)θ.
        """
        slopes = theta[1:]
        size = float(slopes @ (self.moments.gram + self.penalty) @ slopes)
        factor = float(self.moments.cross @ slopes) / size if size > 0 else 1.0
        return np.concatenate([theta[:1], factor * slopes])

    def penalized(self, penalty: Matrix) -> RidgeProblem:
        """The same rows under another penalty matrix, which must leave rotated θ alone."""
        plain = _solve(self.moments, penalty, self.plain.level, self.plain.center)
        return replace(self, plain=plain, penalty=penalty)

    def least_squares(
        self, rows: TrainingRows
    ) -> tuple[RidgeProblem, Vector, Vector | None, float]:
        """Ridge problem, target and weights of a Newton step at the plain solution.

        Last, what one of its units of penalty is here.
        """
        return self, rows.y, rows.weight, 1.0


def prepare_ridge(
    design: FeatureMatrix, y: Vector, weight: Vector | None, alpha: float, fit_intercept: bool,
    n_kept: int = 0,
) -> RidgeProblem:  # fmt: skip
    """Moments, ridge solution and whitening, once per data set.

    The last `n_kept` coefficients stay what they are where others are rotated.
    """
    mean_y = weighted_sum(y, weight) / design.total
    with np.errstate(over="ignore", invalid="ignore"):
        sums = design.sums.add(_sum_square(y - mean_y, weight), _sum_square(y, weight))
        spread, second = (top / design.total for top in sums)
    if not np.isfinite(second):
        size = design.sums.largest(float(np.abs(y).max(initial=0.0)))
        raise InputError(
            "y", f"be small enough to square, got values up to {size:.1e}",
            hint="divide it by a constant.",
        )  # fmt: skip
    variance = spread if spread > 1e-26 * mean_y**2 else 0.0
    target = y - mean_y if fit_intercept else y
    features, rotation, mean_x = design, None, None
    if design.wide:
        design, rotation, mean_x = features.rotated(weight, fit_intercept, n_kept)
        _, gram, cross = design.moments(target, weight, False)
        center = np.zeros(design.d)
    else:
        center, gram, cross = design.checked_moments(target, weight, fit_intercept)
    if not fit_intercept:
        center, mean_y = np.zeros(design.d), 0.0
    penalty = alpha * np.eye(len(gram))
    second = spread if fit_intercept else second
    moments = Moments(gram=gram, cross=cross, second_y=second, variance=variance)
    return RidgeProblem(
        features=features, design=design, penalty=penalty, fit_intercept=fit_intercept,
        plain=_solve(moments, penalty, mean_y, center), rotation=rotation, mean_x=mean_x,
        moments=moments,
    )  # fmt: skip


def _solve(moments: Moments, penalty: Matrix, mean_y: float, center: Vector) -> Plain:
    """The ridge solution."""
    whitening = whiten(moments.gram, penalty)
    theta = whitening @ (whitening.T @ moments.cross)
    return Plain(mean_y, theta, center, np.sqrt(moments.variance) * whitening)


def _sum_square(values: Vector, weight: Vector | None) -> float:
    return float((values if weight is None else weight * values) @ values)


# ------------------------------------------------------------------------------------------------
# Any other loss, by Newton's method.


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

    def level(self) -> float:
        """η of the best constant."""
        return float(self.loss.link(np.asarray(self.loss.null_mean(self.y, self.weight))))

    def evaluate(self, eta: Vector) -> tuple[float, Vector]:
        """mean ω d / D₀ and its slope in each η."""
        rows, slope = self.loss.evaluate(self.y, eta)
        if self.weight is not None:
            slope *= self.weight
        slope *= 1.0 / (self.n * self.scale)
        return (weighted_sum(rows, self.weight) / self.n + self.constant) / self.scale, slope

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


@dataclass(frozen=True, kw_only=True)
class GLMProblem(Coordinates):
    """The deviance of a family, or any other loss.

    Attributes
    ----------
    bound : BoundLoss
    of_mean : bool
        Whether the fairness term sees the mean μ, rather than η.
    units : (n,) array or None
        What a mean is multiplied by in totals.
    """

    bound: BoundLoss
    of_mean: bool
    units: Vector | None = None

    @property
    def loss(self) -> Loss:
        return self.bound.loss

    @property
    def null(self) -> float:
        return self.bound.null

    def fair_scores(self, predictor: Vector) -> Vector:
        return self.loss.link.inverse(predictor) if self.of_mean else predictor

    def fair_slope(self, predictor: Vector) -> Vector:
        return self.loss.link.slopes(predictor)[0] if self.of_mean else np.ones_like(predictor)

    def bowl(self, v: Vector) -> tuple[float, Vector]:
        """θᵀPθ / D₀ and its gradient."""
        theta = self.at(v)[1:]
        pull = self.penalty @ theta / self.bound.scale
        return float(theta @ pull), np.concatenate([[0.0], self.plain.whitening.T @ (2.0 * pull)])

    def evaluate(
        self, eta: Vector, bound: BoundRegularizer, fairness_weight: float, rough: bool
    ) -> Evaluated:
        link = self.loss.link
        value, slope = self.bound.evaluate(eta)
        if not np.isfinite(value):
            return np.inf, 0.0, slope
        with np.errstate(over="ignore"):
            scores = self.fair_scores(eta)
        term, part = bound.evaluate(scores, fairness_weight, rough=rough)
        if self.of_mean and link.name != "identity":
            # The slope of e^η is the mean itself: no second exponential.
            part *= scores if link.name == "log" else link.slopes(eta)[0]
        slope += part
        return value, term, slope

    def take(self, rows: NDArray[np.intp]) -> Self:
        part = super().take(rows)
        return replace(part, bound=self.bound.take(rows, part.design.total))

    def objective(self, theta: Vector) -> float:
        """[mean ω d + θᵀPθ] / D₀."""
        value, _ = self.bound.evaluate(self.scores(theta))
        return value + float(theta[1:] @ self.penalty @ theta[1:]) / self.bound.scale

    def constant(self) -> Vector | None:
        if not self.fit_intercept or self.offset is not None:
            return None
        return np.pad([self.bound.level()], (0, len(self.plain.theta)))

    def penalized(self, penalty: Matrix) -> GLMProblem:
        return replace(self, penalty=penalty).at_start().solved()

    def at_start(self) -> GLMProblem:
        """The problem before it is solved."""
        return replace(self, plain=_first(self.bound, self.design.d, self.fit_intercept))

    def least_squares(
        self, rows: TrainingRows
    ) -> tuple[RidgeProblem, Vector, Vector | None, float]:
        eta = self.scores(self.theta)
        _, slope = self.bound.evaluate(eta)
        curvature = self.bound.curvature(eta)
        curvature = np.maximum(curvature, 1e-6 * curvature.mean())
        mean = float(curvature.mean())
        linear = eta if self.offset is None else eta - self.offset
        target = linear - slope * (self.design.n * self.bound.scale) / curvature
        alpha = 2.0 * float(self.penalty[0, 0]) / mean if len(self.penalty) else 0.0
        weight = curvature / mean
        ridge = prepare_ridge(self.design, target, weight, alpha, self.fit_intercept)
        return ridge, target, weight, 0.5 * mean

    def solved(self) -> GLMProblem:
        """The problem at its plain solution; many rows are started by a sample of them."""
        rows = pilot_rows(self.design)
        if rows is None:
            return self._solve_in_stages(NEWTON_TOL)
        pilot = self.take(rows).at_start()._solve_in_stages(PILOT_TOL)
        return replace(self, plain=pilot.plain).newton(NEWTON_TOL)

    def _solve_in_stages(self, tol: float) -> GLMProblem:
        """Through the easier losses of the loss, each starting the next."""
        problem = self
        *easier, last = self.loss.stages()
        for loss, enough in [*((loss, max(tol, PILOT_TOL)) for loss in easier), (last, tol)]:
            problem = replace(problem, bound=replace(self.bound, loss=loss)).newton(enough)
        return problem

    def newton(self, tol: float) -> GLMProblem:
        """The problem at its plain solution, from where it is."""
        design, bound, penalty, scale = self.design, self.bound, self.penalty, self.bound.scale
        theta = self.plain.theta
        b = self.plain.level - float(self.plain.center @ theta)
        eta = self.scores(self.theta)
        value, slope = bound.evaluate(eta)
        if not np.isfinite(value):
            raise ValueError(
                f"`link` must allow the mean where the search starts: {bound.loss.link.name!r} "
                "does not at these offsets. Hint: link='log' allows any."
            )
        objective = value + float(theta @ penalty @ theta) / scale
        step, norm, iteration = np.inf, np.inf, 0
        while iteration < NEWTON_ITERATIONS:
            iteration += 1
            if step > CHORD:
                center, whitening, spread, gradient = self._hessian(eta, slope)
                total = weighted_sum(slope)
            else:
                gradient, total = design.backward_with_sum(slope)
                gradient = gradient - center * total
            gradient = gradient + 2.0 * (penalty @ theta) / scale
            # Whitened: the objective is ‖v‖² there, so a Newton step is half the gradient.
            whitened = whitening.T @ gradient
            lift = spread * total if self.fit_intercept else 0.0
            norm = float(np.hypot(np.linalg.norm(whitened), lift))
            if norm <= tol:
                break
            change = whitening @ (-0.5 * whitened)
            up = -0.5 * spread * lift - float(center @ change)
            ray = design.forward(change) + up
            t, moved = self._backtrack(eta, ray, theta, change, objective, 0.5 * norm**2)
            if moved is None:
                break  # not even a tiny step improves: rounding level
            objective, slope, eta = moved
            theta, b = theta + t * change, b + t * up
            step = 0.5 * norm if t == 1.0 else np.inf
        level = b + float(center @ theta)
        return replace(self, plain=Plain(level, theta, center, whitening, spread, iteration, norm))

    def _hessian(self, eta: Vector, slope: Vector) -> tuple[Vector, Matrix, float, Vector]:
        """m, T and the spread of `Plain` at η, and the loss's gradient in (X − m)θ."""
        design, scale, n = self.design, self.bound.scale, self.design.total
        rows = self.bound.curvature(eta)
        rows = np.maximum(rows, LEAST_CURVATURE * (weighted_sum(rows) / n))
        mean = weighted_sum(rows) / n
        rows /= mean
        center, gram, cross = design.checked_moments(slope * n / rows, rows, self.fit_intercept)
        if not self.fit_intercept:
            center = np.zeros(design.d)
        whitening = np.sqrt(scale) * whiten(0.5 * mean * gram, self.penalty)
        spread = float(np.sqrt(scale / (0.5 * mean))) if self.fit_intercept else 0.0
        return center, whitening, spread, cross

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

    def totals(self, theta: Vector) -> tuple[float, float, float]:
        """Deviance per unit of weight, sum of the outcomes, and sum of the means."""
        eta = self.scores(theta)
        mean = self.loss.link.inverse(eta)
        value = self.bound.evaluate(eta)[0] * self.bound.scale
        return value, weighted_sum(self.bound.y, self.units), weighted_sum(mean, self.units)

    def covariance(
        self, theta: Vector, fairness_weight: float, bound: BoundRegularizer | None
    ) -> Matrix | None:
        """Of intercept and coefficients: A⁻¹MA⁻¹, M the covariance of the objective's gradient.

        A is the Hessian. Without a fairness term M = Σ gᵢgᵢᵀ, gᵢ the part of row i in the
        gradient. With one, a row moves the gradient through the classifier too: M is then from a
        jackknife, and A from differences of gradients; on some rows where there are many.
        """
        eta, scale, center = self.scores(theta), self.bound.scale, self.plain.center
        slope = self.bound.evaluate(eta)[1]
        if bound is None or fairness_weight == 0:
            hessian = self._second(self.bound.curvature(eta)) / scale
            hessian[1:, 1:] += 2.0 * self.penalty / scale
            meat = self.design.total * self._second(np.square(slope))
        else:
            some = np.random.default_rng(0).permutation(self.design.n)[:JACKKNIFE_ROWS]
            part, term = self.take(some), bound.take(some)
            hessian = part._hessian_with(term, theta, fairness_weight)
            meat = part._jackknife(term, theta, fairness_weight) * (len(some) / self.design.n)
        if not (np.isfinite(hessian).all() and np.isfinite(meat).all()):
            return None  # at the edge of what the link allows
        keep = slice(0 if self.fit_intercept else 1, None)
        inverse = np.zeros_like(hessian)
        inverse[keep, keep] = np.linalg.pinv(hessian[keep, keep], hermitian=True)
        # From the intercept of columns about their center to that of columns as they are.
        inverse[0] -= center @ inverse[1:]
        return inverse @ meat @ inverse.T

    def _gradient(self, slope: Vector) -> Vector:
        """In (b, θ), of a slope in η."""
        down, total = self.design.backward_with_sum(slope)
        return np.concatenate([[total], down - self.plain.center * total])

    def _hessian_with(self, term: BoundRegularizer, theta: Vector, weight: float) -> Matrix:
        """Of the whole objective, by differences of its gradient along whitened coordinates."""
        steps = np.column_stack([self._apply(v) for v in DIFFERENCE * np.eye(len(self.origin))])
        columns = []
        for step in steps.T:
            ends = []
            for at in (theta + step, theta - step):
                value, _, slope = self.evaluate(self.scores(at), term, weight, False)
                ends.append(self._gradient(slope if np.isfinite(value) else np.nan * slope))
            columns.append((ends[0] - ends[1]) / 2.0)
        # Along directions that the whitening leaves out nothing moves.
        hessian = np.column_stack(columns) @ np.linalg.pinv(steps)
        hessian[1:, 1:] += 2.0 * self.penalty / self.bound.scale
        return 0.5 * (hessian + hessian.T)

    def _jackknife(self, term: BoundRegularizer, theta: Vector, weight: float) -> Matrix:
        """Covariance of the gradient, from leaving out blocks of rows."""
        n, eta = self.design.n, self.scores(theta)
        slope = self.bound.evaluate(eta)[1]
        scores, chain = self.fair_scores(eta), self.fair_slope(eta)
        gradients = []
        for block in np.array_split(np.arange(n), JACKKNIFE_BLOCKS):
            keep = np.delete(np.arange(n), block)
            left = np.zeros(n)
            left[keep] = slope[keep] * (n / len(keep))
            left[keep] += term.take(keep).evaluate(scores[keep], weight)[1] * chain[keep]
            gradients.append(self._gradient(left))
        apart = np.array(gradients) - np.mean(gradients, axis=0)
        return (1.0 - 1.0 / len(apart)) * (apart.T @ apart)

    def _second(self, rows: Vector) -> Matrix:
        """Σ rows·(1, x − m)(1, x − m)ᵀ/n."""
        mean = weighted_sum(rows) / self.design.total
        means, gram, _ = self.design.moments(rows, rows / mean, True)
        far = np.concatenate([[1.0], means - self.plain.center])
        out = np.outer(far, far)
        out[1:, 1:] += gram
        return mean * out

    def best_scale(self, theta: Vector, fairness_weight: float) -> Vector:
        """Of means e^η the scale is b; of η, level and scale are b and a factor of θ."""
        if not self.fit_intercept or fairness_weight <= LEAP:
            return theta
        of_predictor = not self.of_mean or self.loss.link.name == "identity"
        if of_predictor and self.offset is None:
            columns = self._move(np.concatenate([[0.0], theta[1:]]))[:, None]
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
    y, weight = rows.y, rows.weight
    check_squares(y, "y")
    loss = loss.fixed(y, weight, design.d)
    bound = BoundLoss.bind(loss, y, weight, design.total)
    features, rotation, mean_x = design, None, None
    if design.wide:
        design, rotation, mean_x = features.rotated(weight, fit_intercept, n_kept)
    problem = GLMProblem(
        features=features, design=design, penalty=alpha * np.eye(design.d), offset=rows.offset,
        plain=_first(bound, design.d, fit_intercept), fit_intercept=fit_intercept,
        rotation=rotation, mean_x=mean_x, bound=bound, of_mean=of_mean, units=rows.units,
    )  # fmt: skip

    fitted = problem.solved()
    if not loss.width_from_residuals:
        return fitted
    residual = y - fitted.scores(fitted.theta)
    bound = replace(bound, loss=loss.fixed(residual, weight, design.d, again=True))
    return replace(problem, bound=bound).solved()


def _first(bound: BoundLoss, d: int, fit_intercept: bool) -> Plain:
    """Where Newton's method begins: at the best constant."""
    level = bound.level() if fit_intercept else 0.0
    unknown = np.empty((d, 0))
    return Plain(level if np.isfinite(level) else 0.0, np.zeros(d), np.zeros(d), unknown)


Problem = RidgeProblem | GLMProblem
