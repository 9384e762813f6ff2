"""The squared loss in closed form: ridge solution and whitening, once per data set.

In coordinates whitened by the Cholesky factor of XᵀΩX/n + P the ridge objective is ‖v‖², so that
only the fairness term is left for the optimizer to learn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from .._core import shards
from .._core.arrays import Matrix, Vector
from .bound import BoundRegularizer
from .design import FeatureMatrix
from .solver import Evaluate, Evaluated, Whitening, whiten


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Weighted moments of target and features, about their means where there is an intercept.

    Attributes
    ----------
    mean_x, mean_y
        Zero without an intercept.
    gram, cross
        XᵀΩX/n and XᵀΩy/n.
    second_y : float
        Mean square of y.
    variance : float
        Of y; zero where its spread is at the level of rounding.
    """

    mean_x: Vector
    mean_y: float
    gram: Matrix
    cross: Vector
    second_y: float
    variance: float


@dataclass(frozen=True, kw_only=True)
class RidgeProblem:
    """The ridge part in whitened coordinates: objective = c + ‖v‖², θ = θ_ridge + T v.

    C = XᵀΩX/n + P (X centered when there is an intercept), T Tᵀ = Var(y)·C⁻¹, P the penalty, αI
    and what `penalized` added. With more features than rows θ is the w of `FeatureMatrix.rotated`,
    and `coefficients` are Qw.
    """

    features: FeatureMatrix
    design: FeatureMatrix
    moments: Moments
    penalty: Matrix
    theta: Vector
    whitening: Whitening
    centered: bool
    rotation: Matrix | None = None

    @property
    def null(self) -> float:
        """What the loss is divided by."""
        return self.moments.variance

    @property
    def origin(self) -> Vector:
        """v = 0, the ridge solution."""
        return self.whitening.origin

    def shrunk(self, factor: float) -> Vector:
        """v of the ridge solution times a factor."""
        return self.whitening.invert((factor - 1.0) * self.theta)

    @property
    def shift(self) -> Vector:
        """What the columns of `design` are off their means by: a rotated one is centered."""
        return self.moments.mean_x if self.rotation is None else np.zeros(self.design.d)

    def scores(self, theta: Vector) -> Vector:
        """Xθ + b."""
        return self.design.forward(theta) + (self.moments.mean_y - float(self.shift @ theta))

    def predictor(self, v: Vector) -> Vector:
        """The scores at v."""
        # v = 0 exactly is the ridge solution, without the rounding of a sum.
        return self.scores(self.at(v) if v.any() else self.theta)

    def at(self, v: Vector) -> Vector:
        """θ at v."""
        return self.theta + self.whitening.apply(v)

    def fair_scores(self, predictor: Vector) -> Vector:
        """What the fairness term sees."""
        return predictor

    def bowl(self, v: Vector) -> tuple[float, Vector]:
        """‖v‖² and its gradient."""
        return float(v @ v), 2.0 * v

    def forward(self, p: Vector, bound: BoundRegularizer) -> Vector:
        """How the scores move along p, up to a constant for a term that standardizes them."""
        change = self.whitening.apply(p)
        ray = self.design.forward(change)
        return ray if bound.scale_free else ray - float(self.shift @ change)

    def backward(self, r: Vector, bound: BoundRegularizer) -> Vector:
        """The transpose of `forward`."""
        if bound.scale_free:
            return self.whitening.adjoint(self.design.backward(r))
        g, total = self.design.backward_with_sum(r)
        return self.whitening.adjoint(g - self.shift * total)

    def evaluator(self, bound: BoundRegularizer, fairness_weight: float, rough: bool) -> Evaluate:
        """scores → the fairness term and its slope; the loss is all in the bowl."""

        def evaluate(s: Vector) -> Evaluated:
            value, slope = bound.evaluate(s, fairness_weight, rough=rough)
            return 0.0, value, slope

        return evaluate

    def take(self, rows: NDArray[np.intp]) -> RidgeProblem:
        """The same bowl, with the scores of some rows."""
        return replace(self, design=self.design.take(rows))

    def coefficients(self, theta: Vector) -> Vector:
        """Of the features as they were given."""
        return theta if self.rotation is None else self.rotation @ theta

    def intercept(self, theta: Vector) -> float:
        return self.moments.mean_y - float(self.moments.mean_x @ self.coefficients(theta))

    def penalized(self, penalty: Matrix) -> RidgeProblem:
        """The same rows under another penalty matrix, which must leave rotated θ alone."""
        found = whiten(self.moments.gram, penalty, self.moments.variance)
        theta = found.solve(self.moments.cross)
        return replace(self, theta=theta, whitening=found, penalty=penalty)

    def constant(self) -> Vector | None:
        """θ of one score for everybody."""
        return np.zeros_like(self.theta)

    def best_scale(self, theta: Vector, fairness_weight: float) -> Vector:
        """c·θ with the c of least ridge objective, θᵀXᵀΩy / θᵀ(XᵀΩX + nP)θ.

        Scores are standardized in the fairness term, which therefore does not see c. Where its
        weight is large the search ends before the other part has found it.
        """
        size = float(theta @ (self.moments.gram + self.penalty) @ theta)
        return theta * (float(self.moments.cross @ theta) / size) if size > 0 else theta

    def objective(self, theta: Vector) -> float:
        """[mean ω(y − s)² + θᵀPθ] / Var(y)."""
        m = self.moments
        quadratic = theta @ (m.gram + self.penalty) @ theta
        size = float(m.second_y - 2.0 * m.cross @ theta + quadratic)
        return size / m.variance if m.variance > 0 else 0.0


def prepare(
    design: FeatureMatrix, y: Vector, weight: Vector | None, alpha: float, fit_intercept: bool,
    n_kept: int = 0,
) -> RidgeProblem:  # fmt: skip
    """Moments, ridge solution and whitening, once per data set.

    The last `n_kept` coefficients stay what they are where others are rotated.
    """
    n = design.total
    mean_y = float(shards.add(float(y.sum() if weight is None else weight @ y)) / n)
    centered = y - mean_y
    with np.errstate(over="ignore", invalid="ignore"):
        sums = shards.add(_sum_square(centered, weight), _sum_square(y, weight))
        spread, second = (top / n for top in sums)
    if not np.isfinite(second):
        size = shards.largest(float(np.abs(y).max(initial=0.0)))
        raise ValueError(
            f"`y` must be small enough to square, got values up to {size:.1e}. Hint: divide it by "
            "a constant."
        )
    variance = spread if spread > 1e-26 * mean_y**2 else 0.0
    target = centered if fit_intercept else y
    features, rotation = design, None
    if design.wide:
        design, rotation, mean_x = features.rotated(weight, fit_intercept, n_kept)
        _, gram, cross = design.moments(target, weight, False)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            mean_x, gram, cross = design.moments(target, weight, fit_intercept)
            design.check_squares(np.diag(gram))
            # A spread at the level of rounding in the column is a constant.
            constant = np.diag(gram) <= design.rounding * mean_x**2
        gram[constant] = gram[:, constant] = 0.0
        cross[constant] = 0.0
    if not fit_intercept:
        mean_x, mean_y = np.zeros(features.d), 0.0
    penalty = alpha * np.eye(len(gram))
    found = whiten(gram, penalty, variance)
    return RidgeProblem(
        features=features,
        design=design,
        moments=Moments(
            mean_x=mean_x, mean_y=mean_y, gram=gram, cross=cross,
            second_y=spread if fit_intercept else second, variance=variance,
        ),
        penalty=penalty,
        theta=found.solve(cross),
        whitening=found,
        centered=fit_intercept,
        rotation=rotation,
    )  # fmt: skip


def _sum_square(values: Vector, weight: Vector | None) -> float:
    return float((values if weight is None else weight * values) @ values)


# ------------------------------------------------------------------------------------------------
# Slopes that differ by group, drawn together: γ·Σ_k (b_k − b̄)² with γ by leave-one-out.
#
# b_k is the slope of group k and b̄ their plain mean, so that it does not matter which group the
# columns leave out. In a ridge regression on free columns f (penalty α) and slope columns q,
#
#     yᵢ − ŷ₋ᵢ = rᵢ / (1 − hᵢ),   r = r₀ − q̃ g,   g = (M + γR)⁻¹ m,
#     hᵢ = (ωᵢ/n)·[1 + fᵢᵀC⁻¹fᵢ + q̃ᵢᵀ(M + γR)⁻¹q̃ᵢ]
#
# with C = fᵀΩf/n + αI, q̃ the slope columns less what the free ones say of them, and M and m the
# moments of the slopes that the free columns leave: one pass over the rows serves every γ.


# Rows per extra slope up to which "auto" looks. A slope costs a share 1/n of the unexplained
# variance, which beyond is less than anybody could measure.
MAX_ROWS = 20_000
# γ as a multiple of what the rows say of a slope on average, up to `Slopes.most`.
GRID = (0.0, *(2.0**k for k in range(-7, 3)))
# A row that the rest cannot predict at all (alone in its group) says nothing about slopes.
ALONE = 1e-6


def check_group_alpha(value: Any) -> None:
    """Refuse anything but "auto" or a nonnegative number."""
    if isinstance(value, str) and value == "auto":
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        raise ValueError(
            f"`group_alpha` must be 'auto' or a nonnegative number, got {value!r}. Hint: 0 leaves "
            "every group its own slope."
        )


@dataclass(frozen=True)
class Slopes:
    """The last (K − 1)·width columns of a design: slopes of all groups but the first.

    Attributes
    ----------
    n_groups : int
        K.
    width : int
        Slopes of each group; those of one group are next to each other.
    most : float
        Largest γ of "auto", as a multiple of what the rows say of a slope on average. Fairness may
        need slopes that accuracy does not, and pays γ for them too.
    """

    n_groups: int
    width: int = 1
    most: float = 4.0

    @property
    def size(self) -> int:
        """How many columns."""
        return (self.n_groups - 1) * self.width

    def penalty(self) -> Matrix:
        """R with bᵀRb = Σ_k (b_k − b̄)², the first group's slope being zero in these columns."""
        k = self.n_groups
        alike: Matrix = np.eye(k - 1) - 1.0 / k
        return np.kron(alike, np.eye(self.width)).astype(np.float64, copy=False)

    def shrink(
        self, problem: RidgeProblem, y: Vector, weight: Vector | None, group_alpha: float | str
    ) -> tuple[RidgeProblem, float]:
        """The problem with its slopes penalized, and γ."""
        if isinstance(group_alpha, str):
            group_alpha = self.leave_one_out(problem, y, weight)
        if group_alpha == 0 or self.size == 0:
            return problem, float(group_alpha)
        penalty = problem.penalty.copy()
        penalty[-self.size :, -self.size :] += group_alpha * self.penalty()
        return problem.penalized(penalty), float(group_alpha)

    def leave_one_out(self, problem: RidgeProblem, y: Vector, weight: Vector | None) -> float:
        """γ of least Σ ωᵢ(yᵢ − ŷ₋ᵢ)², or zero where there are rows enough."""
        if self.size == 0 or problem.design.n > MAX_ROWS * self.size:
            return 0.0
        found = _Left.fit(problem, self.size, y, weight)
        values, vectors = eigh(found.moment, self.penalty())
        typical = float(values.clip(0.0).mean())
        if typical == 0.0:
            return 0.0
        grid = typical * np.array([step for step in GRID if step <= self.most])
        return float(grid[found.errors(values, vectors, grid).argmin()])


@dataclass(frozen=True)
class _Left:
    """What the free columns leave: residuals, leverages and slope columns of the rows."""

    residual: Vector
    leverage: Vector
    slopes: Matrix
    moment: Matrix
    target: Vector
    weight: Vector

    @classmethod
    def fit(cls, problem: RidgeProblem, size: int, y: Vector, weight: Vector | None) -> _Left:
        gram, cross, design = problem.moments.gram, problem.moments.cross, problem.design
        n, k = design.n, design.d - size
        omega = np.ones(n) if weight is None else weight
        found = whiten(gram[:k, :k], problem.penalty[:k, :k], 1.0)
        theta, whitened = found.solve(cross[:k]), found.inverse_root()
        said = whitened @ (whitened.T @ gram[:k, k:])
        # With an intercept all is about the means; it then costs 1/n of every row's weight.
        residual, leverage = y - problem.moments.mean_y, np.full(n, float(problem.centered))
        slopes = np.empty((n, size))
        for rows, block in design.blocks():
            block = block - problem.shift
            free = block[:, :k]
            residual[rows] -= free @ theta
            leverage[rows] += np.square(free @ whitened).sum(axis=1)
            slopes[rows] = block[:, k:] - free @ said
        moment = gram[k:, k:] + problem.penalty[k:, k:] - gram[k:, :k] @ said
        return cls(residual, leverage, slopes, moment, cross[k:] - said.T @ cross[:k], omega)

    def errors(self, values: Vector, vectors: Matrix, grid: Vector) -> Vector:
        """Weighted squares of the left-out errors at each γ; M = Σ λ v vᵀ in the metric of R."""
        n, rotated, target = len(self.residual), self.slopes @ vectors, vectors.T @ self.target
        share = self.weight / n
        out, used = [], None
        for gamma in grid:
            inverse = 1.0 / np.maximum(values + gamma, 1e-12 * values.max())
            left = 1.0 - share * (self.leverage + np.square(rotated) @ inverse)
            if used is None:
                used = left > ALONE
            error = (self.residual - rotated @ (inverse * target))[used] / left[used]
            out.append(float(self.weight[used] @ np.square(error)))
        return np.array(out)
