"""L-BFGS for a quadratic bowl plus a smooth function of the scores.

    minimize over v   f(v) = q(v) + g(s₀ + Zv)

In whitened coordinates the plain objective is ‖v‖², exactly for squares (all of it in q) and near
its minimum for other losses (q is their penalty), so the solver starts from its true curvature.
Along a ray the scores are s + t·Zp: a line search costs evaluations of g but no pass over the
features, and an iteration costs one Z·p and one Zᵀ·g.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky
from scipy.linalg.blas import dtrsv

from .._core import shards
from .._core.arrays import Matrix, Vector
from .bound import BoundRegularizer
from .design import FeatureMatrix

# Loss beyond the bowl, weighted fairness term, slope of their sum in the scores.
Evaluated = tuple[float, float, Vector]
Evaluate = Callable[[Vector], Evaluated]
Bowl = Callable[[Vector], tuple[float, Vector]]
# Where the search is: iteration, v, ‖∇f‖, memory.
Follow = Callable[[int, Vector, float, "Memory"], None]
MEMORY = 20
ARMIJO, CURVATURE = 1e-4, 0.9


@dataclass
class Memory:
    """Pairs (Δv, Δ∇f) of past steps; survives from one problem to a similar one."""

    pairs: deque[tuple[Vector, Vector, float]] = field(default_factory=lambda: deque(maxlen=MEMORY))

    def add(self, step: Vector, change: Vector) -> None:
        curvature = float(step @ change)
        # A step without positive curvature would make the model unbounded below.
        if curvature > 1e-10 * float(step @ step):
            self.pairs.append((step, change, curvature))

    def rescaled(self, factor: float) -> Memory:
        """The same pairs for ‖v‖² plus `factor` times the rest, as ∇‖v‖² = 2v.

        Exact for squared losses; for others what they are off ‖v‖² by is scaled along.
        """
        out = Memory()
        for step, change, _ in self.pairs:
            out.add(step, 2.0 * step + factor * (change - 2.0 * step))
        return out

    def direction(self, gradient: Vector) -> Vector:
        """−H·gradient by the two-loop recursion, from the bowl's own Hessian 2I."""
        q = -gradient
        coefficients = []
        for step, change, curvature in reversed(self.pairs):
            a = float(step @ q) / curvature
            coefficients.append(a)
            q = q - a * change
        q = 0.5 * q
        for (step, change, curvature), a in zip(self.pairs, reversed(coefficients), strict=True):
            b = float(change @ q) / curvature
            q = q + (a - b) * step
        return q


@dataclass
class Solution:
    """Where the solver stopped, and whether it is a minimum; `term` is the fairness term there."""

    v: Vector
    objective: float
    term: float
    gradient_norm: float
    converged: bool
    n_iter: int
    n_evaluations: int


def minimize(
    evaluate: Evaluate,
    forward: Callable[[Vector], Vector],
    backward: Callable[[Vector], Vector],
    start_scores: Callable[[], Vector],
    v: Vector,
    *,
    bowl: Bowl,
    max_iter: int,
    tol: float,
    memory: Memory,
    follow: Follow | None = None,
) -> Solution:
    """Minimize q(v) + g(s).

    Parameters
    ----------
    evaluate : s → the two parts of g and ∂g/∂s
    forward, backward : p → Zp and r → Zᵀr
    start_scores : s at the starting `v`, which nobody else holds
    bowl : v → q and ∇q
    tol : float
        Stop when ‖∇f‖ ≤ tol.
    memory : Memory
        Updated in place.
    follow : callable, optional
        Called after each iteration.
    """
    s = start_scores()
    loss, term, slope = evaluate(s)
    evaluations = 1
    floor, down = bowl(v)
    objective = floor + (loss + term)
    gradient = down + backward(slope)
    del slope  # as long as the data, and not needed again
    converged = bool(np.linalg.norm(gradient) <= tol)
    iteration = 0
    while not converged and iteration < max_iter:
        iteration += 1
        p = memory.direction(gradient)
        if not float(p @ gradient) < 0:
            memory.pairs.clear()
            p = -0.5 * gradient
        ray = forward(p)
        found = _search(evaluate, bowl, s, ray, v, p, objective, float(p @ gradient))
        evaluations += found.evaluations
        if found.step == 0.0:
            if not memory.pairs:
                break  # not even steepest descent improves: rounding level
            memory.pairs.clear()
            continue
        v_new = v + found.step * p
        gradient_new = bowl(v_new)[1] + backward(found.slope)
        memory.add(v_new - v, gradient_new - gradient)
        v, gradient, s, objective = v_new, gradient_new, found.scores, found.objective
        term = found.term
        del found, ray
        norm = float(np.linalg.norm(gradient))
        converged = norm <= tol
        if follow is not None:
            follow(iteration, v, norm, memory)
    norm = float(np.linalg.norm(gradient))
    return Solution(v, objective, term, norm, converged, iteration, evaluations)


@dataclass
class _Found:
    step: float
    objective: float
    term: float
    scores: Vector
    slope: Vector
    evaluations: int


def _search(evaluate, bowl, s, ray, v, p, objective: float, slope0: float) -> _Found:
    """A step that satisfies the Wolfe conditions, by bracketing and cubic interpolation."""
    low, f_low, d_low = 0.0, objective, slope0
    high: tuple[float, float, float] | None = None
    t = 1.0
    best: _Found | None = None
    for count in range(1, 21):
        scores = t * ray
        scores += s
        loss, term, slope = evaluate(scores)
        floor, down = bowl(v + t * p)
        f = floor + (loss + term)
        # A step too long by far may leave the range of floats; it is cut short below.
        with np.errstate(over="ignore", invalid="ignore"):
            d = float(down @ p) + shards.add(float(slope @ ray))
        # Near the minimum changes of f drown in rounding; the slope then decides.
        slack = 1e-14 * (abs(objective) + 1.0)
        if np.isfinite(f) and f <= objective + ARMIJO * t * slope0 + slack and f <= f_low + slack:
            best = _Found(t, f, term, scores, slope, count)
            if abs(d) <= -CURVATURE * slope0:
                return best
            if d >= 0:
                high, low, f_low, d_low = (low, f_low, d_low), t, f, d
            else:
                low, f_low, d_low = t, f, d
        else:
            high = (t, f, d)
        if high is None:
            t = 2.0 * t
        else:
            t = _interpolate((low, f_low, d_low), high)
        if abs(t - low) * float(np.linalg.norm(p)) < 1e-14:
            break
    if best is None:
        return _Found(0.0, objective, 0.0, s, ray, count)
    best.evaluations = count
    return best


def _interpolate(a: tuple[float, float, float], b: tuple[float, float, float]) -> float:
    """Minimum of the cubic through two points with slopes, kept inside the interval."""
    (ta, fa, da), (tb, fb, db) = a, b
    width = tb - ta
    middle = ta + 0.5 * width
    if not (np.isfinite(fb) and np.isfinite(db)):
        return ta + 0.1 * width
    theta = 3.0 * (fa - fb) / width + da + db
    root = theta * theta - da * db
    if root < 0:
        return middle
    root = float(np.copysign(np.sqrt(root), width))
    bottom = db - da + 2.0 * root
    if bottom == 0:
        return middle
    t = tb - width * (db + root - theta) / bottom
    margin = 0.1 * abs(width)
    return float(np.clip(t, min(ta, tb) + margin, max(ta, tb) - margin))


# ------------------------------------------------------------------------------------------------
# One problem at many fairness weights: solutions start one another, and a sample starts the first.
#
# Nothing here knows the loss: a problem says how scores move with whitened coordinates v, in which
# its loss and penalty are about ‖v‖².


# Rows of a pilot fit, and how exactly it is solved: its own sampling error is larger.
PILOT_ROWS = 20_000
MIN_PILOT_GROUP = 100
PILOT_ITERATIONS = 50
PILOT_TOL = 1e-4
STARTS = ("auto", "ridge", "shrunk")
# Share of the plain solution that a shrunk start keeps.
SHRUNK = 0.2
# Beyond this fairness weight a fit starts from that at a weight smaller by a factor.
LEAP = 10.0
LARGE_STEP = 4.0
# From this tolerance on the classifiers inside need not be exact either.
ROUGH_TOL = 3e-4
# Along a path accuracy and the criterion may move by a tenth of their sampling error, within
# limits.
PATH_NOISE = 0.1
PATH_TOL = (5e-4, 2.4e-3)
LARGE_WEIGHT = 100.0


class Problem(Protocol):
    """A loss on a design, about ‖v‖² above its minimum in whitened coordinates v."""

    @property
    def design(self) -> FeatureMatrix: ...

    @property
    def origin(self) -> Vector:
        """v = 0, the solution without a fairness term."""

    def shrunk(self, factor: float) -> Vector:
        """v of that solution times a factor."""

    def predictor(self, v: Vector) -> Vector:
        """The linear predictor of each row."""

    def fair_scores(self, predictor: Vector) -> Vector:
        """What the fairness term sees of it."""

    def bowl(self, v: Vector) -> tuple[float, Vector]:
        """The part of the objective that is a function of v alone, and its gradient."""

    def forward(self, p: Vector, bound: BoundRegularizer) -> Vector:
        """How the predictor moves along p."""

    def backward(self, r: Vector, bound: BoundRegularizer) -> Vector:
        """The transpose of `forward`."""

    def evaluator(self, bound: BoundRegularizer, fairness_weight: float, rough: bool) -> Evaluate:
        """predictor → (rest of the loss, weighted fairness term, slope of both)."""

    def take(self, rows: NDArray[np.intp]) -> Problem:
        """The problem on some of the rows, in the same coordinates."""


def path_tolerance(tol: float, n_rows: int, fairness_weight: float) -> float:
    """How exactly a point of a path is solved, given what was asked for single fits.

    A tolerance is a share of 1 + fairness_weight; beyond LARGE_WEIGHT what it allows grows no
    further, as the accuracy would get lost in it.
    """
    low, high = PATH_TOL
    loose = min(max(PATH_NOISE / n_rows**0.5, low), high)
    return max(tol, loose * min(1.0, (1.0 + LARGE_WEIGHT) / (1.0 + fairness_weight)))


def pilot_rows(design: FeatureMatrix) -> NDArray[np.intp] | None:
    """Some rows, where there are many more than a first guess needs; else None.

    Of a shard those that one process would draw, which may be none.
    """
    wanted = max(PILOT_ROWS, 20 * design.d)
    if design.total < 5 * wanted:
        return None
    rows = np.unique(np.random.default_rng(0).integers(0, design.total, wanted))
    if not shards.active():
        return rows
    rows = rows - shards.first_row(design.n)
    return rows[(rows >= 0) & (rows < design.n)]


def solve(
    problem: Problem,
    bound: BoundRegularizer,
    fairness_weight: float,
    max_iter: int,
    tol: float,
    start: Vector | None = None,
    memory: Memory | None = None,
    follow: Follow | None = None,
) -> Solution:
    """Minimize loss + fairness_weight·Ĩ from the plain solution, or from `start`."""
    v = problem.origin if start is None else start
    return minimize(
        problem.evaluator(bound, fairness_weight, tol >= ROUGH_TOL),
        lambda p: problem.forward(p, bound),
        lambda r: problem.backward(r, bound),
        lambda: problem.predictor(v),
        v,
        bowl=problem.bowl,
        max_iter=max_iter,
        tol=tol * (1.0 + fairness_weight),
        memory=Memory() if memory is None else memory,
        follow=follow,
    )


@dataclass
class PathSolver:
    """A problem with its fairness term, and what was found so far by fairness weight: (v, Ĩ).

    `reached` is where searches stood that were cut off; `write` is told where they stand, and
    `show` how far they are.
    """

    problem: Problem
    bound: BoundRegularizer | None
    start: str = "auto"
    solved: dict[float, tuple[Vector, float]] = field(default_factory=dict)
    memories: dict[float, Memory] = field(default_factory=dict)
    reached: dict[float, tuple[Vector, Memory]] = field(default_factory=dict)
    write: Callable[[float, Vector, Memory], None] | None = None
    show: Callable[[str], None] | None = None

    def plain(self) -> float:
        """Ĩ of the plain solution."""
        assert self.bound is not None
        if 0.0 not in self.solved:
            problem, origin = self.problem, self.problem.origin
            with problem.design.blas():
                value = self.bound.value(problem.fair_scores(problem.predictor(origin)))
            self.solved[0.0] = (origin, value)
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
        reached = self.reached.get(fairness_weight)
        if fairness_weight > LEAP and small and reached is None:
            # Far from the plain solution the term alone decides, and its valleys are found step
            # by step rather than in one leap.
            self.solve(fairness_weight / LARGE_STEP, max_iter, max(tol, PATH_TOL[0]))
        start = None
        if reached is None and any(self.solved):
            start, value, error = self._interpolate(fairness_weight)
            if on_path and error <= tol * (1.0 + fairness_weight):
                term = fairness_weight * value
                return Solution(start, float(start @ start) + term, term, error, True, 0, 0)
        memory = Memory()
        if reached is not None:
            start, memory = reached
        elif self.memories:
            nearest = min(self.memories, key=lambda w: abs(np.log(w / fairness_weight)))
            memory = self.memories[nearest].rescaled(fairness_weight / nearest)
        with self.problem.design.blas():
            if start is None:
                start = self._first(fairness_weight, memory)
            goal = tol * (1.0 + fairness_weight)

            def follow(iteration: int, v: Vector, norm: float, memory: Memory) -> None:
                if self.write is not None:
                    self.write(fairness_weight, v, memory)
                if self.show is not None:
                    self.show(f"iteration {iteration}, gradient {norm:.1e} of {goal:.1e}")

            found = solve(
                self.problem, self.bound, fairness_weight, max_iter, tol, start, memory, follow
            )
        self.memories[fairness_weight] = memory
        self.solved[fairness_weight] = (found.v, found.term / fairness_weight)
        return found

    def _first(self, fairness_weight: float, memory: Memory) -> Vector:
        """Where to begin: the plain solution, or near it.

        Where there are many more rows than the solution needs, some of them find the start. The
        curvature learned there is kept; the stopping test is on all rows.
        """
        problem, bound = self.problem, self.bound
        start = problem.origin
        if self.start == "shrunk":
            start = problem.shrunk(SHRUNK)
        rows = pilot_rows(problem.design)
        if rows is None or bound is None:
            return start
        if bound.groups.take(rows).counts.min() < MIN_PILOT_GROUP:
            return start
        part = bound.take(rows)
        pilot = problem.take(rows)
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


# ------------------------------------------------------------------------------------------------
# Coordinates in which a quadratic is ‖v‖²: θ = θ₀ + T v with T Tᵀ = scale·C⁻¹.
#
# C is the (half) Hessian of a loss with its penalty, so that in v the solver starts from the true
# curvature.


# BLAS itself: the checks of SciPy's wrappers take longer than the solve, twice an iteration.


@dataclass(frozen=True)
class Whitening:
    """The map T, held as the Cholesky factor of C or, where C is singular, as W with W Wᵀ = C⁺.

    Attributes
    ----------
    factor : (d, d) or (d, m) array
    triangular : bool
        Whether `factor` is L, C = L Lᵀ, rather than W.
    root : float
        √scale.
    """

    factor: Matrix
    triangular: bool
    root: float

    @property
    def origin(self) -> Vector:
        """v = 0."""
        return np.zeros(self.factor.shape[0 if self.triangular else 1])

    def apply(self, v: Vector) -> Vector:
        """T v."""
        if self.triangular:
            return self.root * dtrsv(self.factor, v, lower=1, trans=1)
        return self.root * (self.factor @ v)

    def adjoint(self, gradient: Vector) -> Vector:
        """Tᵀ g."""
        if self.triangular:
            return self.root * dtrsv(self.factor, gradient, lower=1)
        return self.root * (self.factor.T @ gradient)

    def invert(self, change: Vector) -> Vector:
        """v with T v closest to a change of θ."""
        if self.triangular:
            return (self.factor.T @ change) / self.root
        found = np.linalg.lstsq(self.root * self.factor, change, rcond=None)[0]
        return found.astype(np.float64)

    def solve(self, right: Vector) -> Vector:
        """C⁻¹ r; of all solutions the one of least norm."""
        if self.triangular:
            half = dtrsv(self.factor, right, lower=1)
            return dtrsv(self.factor, half, lower=1, trans=1)
        return self.factor @ (self.factor.T @ right)

    def inverse_root(self) -> Matrix:
        """W with W Wᵀ = C⁻¹."""
        if self.triangular:
            return np.asarray(np.linalg.inv(self.factor).T, dtype=np.float64)
        return self.factor


def whiten(gram: Matrix, penalty: Matrix, scale: float) -> Whitening:
    """Coordinates for C = gram + penalty."""
    c = gram + penalty
    size = np.diag(c)
    root = float(np.sqrt(scale))
    try:
        factor = np.asfortranarray(cholesky(c, lower=True))
        # What a column adds to those before it, as a share of itself: units do not matter.
        if (np.diag(factor) ** 2 > 1e-10 * size).all():
            return Whitening(factor, True, root)
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
    return Whitening(span, False, root)
