"""The ridge part of a fair fit: whitened coordinates, and the solve along a path of weights.

In coordinates whitened by the Cholesky factor of XᵀΩX/n + P the ridge objective is ‖v‖², so that
only the fairness term is left for the optimizer to learn.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky

# BLAS itself: the checks of SciPy's wrappers take longer than the solve, twice an iteration.
from scipy.linalg.blas import dtrsv

from ..penalty.bound import BoundRegularizer
from .design import Design
from .solver import Memory, Solution, minimize

Vector = NDArray[np.float64]

# Rows of a pilot fit, and how exactly it is solved: its own sampling error is larger.
PILOT_ROWS = 20_000
MIN_PILOT_GROUP = 100
PILOT_ITERATIONS = 50
PILOT_TOL = 1e-4
STARTS = ("auto", "ridge", "shrunk")
# Share of the ridge solution that a shrunk start keeps.
SHRUNK = 0.2
# Beyond this fairness weight a fit starts from that at a weight smaller by a factor.
LEAP = 10.0
LARGE_STEP = 4.0
# From this tolerance on the classifiers inside need not be exact either.
ROUGH_TOL = 3e-4
# Along a path R² and the criterion may move by a tenth of their sampling error, within limits.
PATH_NOISE = 0.1
PATH_TOL = (5e-4, 2.4e-3)
LARGE_WEIGHT = 100.0


def path_tolerance(tol: float, n_rows: int, fairness_weight: float) -> float:
    """How exactly a point of a path is solved, given what was asked for single fits.

    A tolerance is a share of 1 + fairness_weight; beyond LARGE_WEIGHT what it allows grows no
    further, as R² would get lost in it.
    """
    low, high = PATH_TOL
    loose = min(max(PATH_NOISE / n_rows**0.5, low), high)
    return max(tol, loose * min(1.0, (1.0 + LARGE_WEIGHT) / (1.0 + fairness_weight)))


@dataclass(frozen=True)
class Problem:
    """The ridge part in whitened coordinates: objective = c + ‖v‖², θ = θ_ridge + T v.

    C = XᵀΩX/n + P = L Lᵀ (X centered when there is an intercept), T = √Var(y)·L⁻ᵀ, P the penalty,
    αI and what `penalized` added. With more features than rows θ is the w of `Design.rotated`, and
    `coefficients` are Qw.
    """

    features: Design
    design: Design
    theta: Vector
    transform: NDArray[np.float64]
    triangular: bool
    mean_x: Vector
    mean_y: float
    variance: float
    gram: NDArray[np.float64]
    cross: Vector
    second_y: float
    penalty: NDArray[np.float64]
    centered: bool
    rotation: NDArray[np.float64] | None = None

    @property
    def origin(self) -> Vector:
        """v = 0, the ridge solution."""
        return np.zeros(self.transform.shape[0 if self.triangular else 1])

    def shrunk(self, factor: float) -> Vector:
        """v of the ridge solution times a factor."""
        change = (factor - 1.0) * self.theta
        if self.triangular:
            return (self.transform.T @ change) / float(np.sqrt(self.variance))
        return np.linalg.lstsq(self.transform, change, rcond=None)[0].astype(np.float64)

    def unwhiten(self, v: Vector) -> Vector:
        """T v."""
        if self.triangular:
            return float(np.sqrt(self.variance)) * dtrsv(self.transform, v, lower=1, trans=1)
        return self.transform @ v

    def whiten_gradient(self, g: Vector) -> Vector:
        """Tᵀ g."""
        if self.triangular:
            return float(np.sqrt(self.variance)) * dtrsv(self.transform, g, lower=1)
        return self.transform.T @ g

    @property
    def shift(self) -> Vector:
        """What the columns of `design` are off their means by: a rotated one is centered."""
        return self.mean_x if self.rotation is None else np.zeros(self.design.d)

    def scores(self, theta: Vector) -> Vector:
        """Xθ + b."""
        return self.design.forward(theta) + (self.mean_y - float(self.shift @ theta))

    def coefficients(self, theta: Vector) -> Vector:
        """Of the features as they were given."""
        return theta if self.rotation is None else self.rotation @ theta

    def intercept(self, theta: Vector) -> float:
        return self.mean_y - float(self.mean_x @ self.coefficients(theta))

    def penalized(self, penalty: NDArray[np.float64]) -> Problem:
        """The same rows under another penalty matrix, which must leave rotated θ alone."""
        theta, transform, triangular = whiten(self.gram, self.cross, penalty, self.variance)
        return replace(
            self, theta=theta, transform=transform, triangular=triangular, penalty=penalty
        )

    def best_scale(self, theta: Vector) -> Vector:
        """c·θ with the c of least ridge objective, θᵀXᵀΩy / θᵀ(XᵀΩX + nP)θ.

        Scores are standardized in the fairness term, which therefore does not see c. Where its
        weight is large the search ends before the other part has found it.
        """
        size = float(theta @ (self.gram + self.penalty) @ theta)
        return theta * (float(self.cross @ theta) / size) if size > 0 else theta

    def ridge_objective(self, theta: Vector) -> float:
        """[mean ω(y − s)² + θᵀPθ] / Var(y)."""
        quadratic = theta @ (self.gram + self.penalty) @ theta
        size = float(self.second_y - 2.0 * self.cross @ theta + quadratic)
        return size / self.variance if self.variance > 0 else 0.0


def prepare(
    design: Design, y: Vector, weight: Vector | None, alpha: float, fit_intercept: bool,
    n_kept: int = 0,
) -> Problem:  # fmt: skip
    """Moments, ridge solution and whitening, once per data set.

    The last `n_kept` coefficients stay what they are where others are rotated.
    """
    mean_y = float(y.mean() if weight is None else weight @ y / len(y))
    centered = y - mean_y
    with np.errstate(over="ignore", invalid="ignore"):
        spread, second = _mean_square(centered, weight), _mean_square(y, weight)
    if not np.isfinite(second):
        raise ValueError(
            f"`y` must be small enough to square, got values up to {np.abs(y).max():.1e}. Hint: "
            "divide it by a constant."
        )
    variance = spread if spread > 1e-26 * mean_y**2 else 0.0
    target = centered if fit_intercept else y
    features, rotation = design, None
    if _is_wide(design):
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
    second_y = spread if fit_intercept else second
    penalty = alpha * np.eye(len(gram))
    theta, transform, triangular = whiten(gram, cross, penalty, variance)
    return Problem(
        features, design, theta, transform, triangular, mean_x, mean_y, variance, gram, cross,
        second_y, penalty, fit_intercept, rotation,
    )  # fmt: skip


def _is_wide(design: Design) -> bool:
    return design.d > design.n


def _mean_square(values: Vector, weight: Vector | None) -> float:
    return float((values if weight is None else weight * values) @ values) / len(values)


def whiten(
    gram: NDArray[np.float64], cross: Vector, penalty: NDArray[np.float64], variance: float
) -> tuple[Vector, NDArray[np.float64], bool]:
    """θ_ridge and the map from whitened coordinates: L (and True), or T itself."""
    c = gram + penalty
    size = np.diag(c)
    try:
        factor = np.asfortranarray(cholesky(c, lower=True))
        # What a column adds to those before it, as a share of itself: units do not matter.
        if (np.diag(factor) ** 2 > 1e-10 * size).all():
            half = dtrsv(factor, cross, lower=1)
            return dtrsv(factor, half, lower=1, trans=1), factor, True
    except LinAlgError:
        pass
    # Constant or repeated columns, or n < d, without a penalty: keep the directions that X spans,
    # again with all columns brought to the same size first.
    shrink = 1.0 / np.sqrt(np.where(size > 0, size, 1.0))
    values, vectors = np.linalg.eigh(c * shrink * shrink[:, None])
    vectors = shrink[:, None] * vectors
    keep = values > max(1e-12, len(c) * np.finfo(float).eps) * max(values.max(initial=0.0), 1e-300)
    span = vectors[:, keep] / np.sqrt(values[keep])
    # Of all solutions the one of least norm: nothing along the directions in which X is zero.
    null = np.linalg.qr(vectors[:, ~keep])[0]
    span -= null @ (null.T @ span)
    return span @ (span.T @ cross), np.sqrt(variance) * span, False


def solve(
    problem: Problem,
    bound: BoundRegularizer,
    fairness_weight: float,
    max_iter: int,
    tol: float,
    start: Vector | None = None,
    memory: Memory | None = None,
) -> Solution:
    """Minimize ‖v‖² + fairness_weight·Ĩ from the ridge solution, or from `start`."""
    design, shift = problem.design, problem.shift
    theta, v = problem.theta, problem.origin
    if start is not None:
        theta, v = theta + problem.unwhiten(start), start

    def forward(p: Vector) -> Vector:
        change = problem.unwhiten(p)
        ray = design.forward(change)
        # The intercept moves too, which a term that standardizes its scores does not see.
        return ray if bound.scale_free else ray - float(shift @ change)

    def backward(r: Vector) -> Vector:
        g = design.backward(r)
        return problem.whiten_gradient(g if bound.scale_free else g - shift * float(r.sum()))

    return minimize(
        lambda s: bound.evaluate(s, fairness_weight, rough=tol >= ROUGH_TOL),
        forward,
        backward,
        problem.scores(theta),
        v,
        max_iter=max_iter,
        tol=tol * (1.0 + fairness_weight),
        memory=Memory() if memory is None else memory,
    )


@dataclass
class Prepared:
    """A problem with its fairness term, and what was found so far by fairness weight: (v, Ĩ)."""

    problem: Problem
    bound: BoundRegularizer | None
    start: str = "auto"
    solved: dict[float, tuple[Vector, float]] = field(default_factory=dict)
    memories: dict[float, Memory] = field(default_factory=dict)

    def plain(self) -> float:
        """Ĩ of the ridge solution."""
        assert self.bound is not None
        if 0.0 not in self.solved:
            with self.problem.design.blas():
                value = self.bound.value(self.problem.scores(self.problem.theta))
            self.solved[0.0] = (self.problem.origin, value)
        return self.solved[0.0][1]

    def solve(
        self, fairness_weight: float, max_iter: int, tol: float, *, on_path: bool = False
    ) -> Solution:
        """Solve from a start interpolated between the neighbors on the path.

        Between close neighbors the interpolation may be as good as `tol` asks for already; with
        `on_path` it is then the answer, without a pass over the rows.
        """
        assert self.bound is not None
        small = max(self.solved, default=0.0) < fairness_weight / LARGE_STEP
        if fairness_weight > LEAP and small:
            # Far from the ridge solution the term alone decides, and its valleys are found step
            # by step rather than in one leap.
            self.solve(fairness_weight / LARGE_STEP, max_iter, max(tol, PATH_TOL[0]))
        start = None
        if any(self.solved):
            start, value, error = self._interpolate(fairness_weight)
            if on_path and error <= tol * (1.0 + fairness_weight):
                objective = float(start @ start) + fairness_weight * value
                return Solution(start, objective, error, True, 0, 0)
        memory = Memory()
        if self.memories:
            nearest = min(self.memories, key=lambda w: abs(np.log(w / fairness_weight)))
            memory = self.memories[nearest].rescaled(fairness_weight / nearest)
        with self.problem.design.blas():
            if start is None:
                start = self._first(fairness_weight, memory)
            found = solve(self.problem, self.bound, fairness_weight, max_iter, tol, start, memory)
        self.memories[fairness_weight] = memory
        value = (found.objective - float(found.v @ found.v)) / fairness_weight
        self.solved[fairness_weight] = (found.v, value)
        return found

    def _first(self, fairness_weight: float, memory: Memory) -> Vector:
        """Where to begin: the ridge solution, or near it.

        Where there are many more rows than the solution needs, some of them find the start. The
        curvature learned there is kept; the stopping test is on all rows.
        """
        problem, bound = self.problem, self.bound
        start = problem.origin
        if self.start == "shrunk":
            start = problem.shrunk(SHRUNK)
        design, n = problem.design, problem.design.n
        wanted = max(PILOT_ROWS, 20 * design.d)
        if n < 5 * wanted or bound is None:
            return start
        rows = np.unique(np.random.default_rng(0).integers(0, n, wanted))
        if bound.groups.take(rows).counts.min() < MIN_PILOT_GROUP:
            return start
        part = bound.take(rows)
        pilot = replace(problem, design=design.take(rows))
        found = solve(pilot, part, fairness_weight, PILOT_ITERATIONS, PILOT_TOL, start, memory)
        bound.warm_start(part)
        return found.v

    def _interpolate(self, fairness_weight: float) -> tuple[Vector, float, float]:
        """v and Ĩ at a new weight, and the gradient to expect there.

        Polynomials through up to three solutions on each side, v(0) = 0 among them. What leaving
        out the farthest nodes changes stands for the error, which is smaller.
        """
        self.plain()
        weights = sorted(self.solved)
        at = int(np.searchsorted(weights, fairness_weight))
        if at == len(weights):
            return *self.solved[weights[-1]], np.inf
        near = weights[max(at - 3, 0) : at + 3]
        v, value = self._polynomial(fairness_weight, near)
        if len(near) < 4:
            return v, value, np.inf
        left = min(at, 3)
        right = len(near) - left
        inner = near[left > 2 : len(near) - (right > 2 or left < 3)]
        rough, _ = self._polynomial(fairness_weight, inner)
        return v, value, 2.0 * float(np.linalg.norm(v - rough))

    def _polynomial(self, fairness_weight: float, nodes: list[float]) -> tuple[Vector, float]:
        # Of the variables tried, this one makes the path most like a polynomial of low degree.
        target, *t = [sqrt(w) / (1.0 + sqrt(w)) for w in (fairness_weight, *nodes)]
        shares = [
            prod((target - b) / (a - b) for i, b in enumerate(t) if i != j) for j, a in enumerate(t)
        ]
        v = np.dot(shares, [self.solved[weight][0] for weight in nodes])
        return v, sum(
            share * self.solved[weight][1] for share, weight in zip(shares, nodes, strict=True)
        )
