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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor
from scipy.linalg.lapack import dpotrs

from .._core.arrays import Matrix, Vector
from .design import FeatureMatrix
from .penalty import BoundRegularizer

if TYPE_CHECKING:
    from .problem import Problem

# Loss beyond the bowl, weighted fairness term, slope of their sum in the scores.
Evaluated = tuple[float, float, Vector]
Evaluate = Callable[[Vector], Evaluated]
# A step along a ray: its length, objective, fairness term, scores and slope there.
Step = tuple[float, float, float, Vector, Vector]
MEMORY = 40
ARMIJO, CURVATURE = 1e-4, 0.9


@dataclass
class Memory:
    """Pairs (Δv, Δ∇f) of past steps; survives from one problem to a similar one.

    Attributes
    ----------
    pairs : deque of (Δv, Δ∇f, their product)
    factor : upper Cholesky factor or None
        Of the Hessian that they improve on; None for the bowl's own, 2I.
    """

    pairs: deque[tuple[Vector, Vector, float]] = field(default_factory=lambda: deque(maxlen=MEMORY))
    factor: Any = None

    def add(self, step: Vector, change: Vector) -> None:
        curvature = float(step @ change)
        # A step without positive curvature would make the model unbounded below.
        if curvature > 1e-10 * float(step @ step):
            self.pairs.append((step, change, curvature))

    def forget(self) -> None:
        """Begin from the bowl's own Hessian again."""
        self.pairs.clear()
        self.factor = None

    def rescaled(self, factor: float) -> Memory:
        """The same pairs for ‖v‖² plus `factor` times the rest, as ∇‖v‖² = 2v.

        Exact for squared losses; for others what they are off ‖v‖² by is scaled along.
        """
        out = Memory()
        for step, change, _ in self.pairs:
            out.add(step, 2.0 * step + factor * (change - 2.0 * step))
        return out

    def direction(self, gradient: Vector) -> Vector:
        """−H·gradient by the two-loop recursion."""
        q = -gradient
        coefficients = []
        for step, change, curvature in reversed(self.pairs):
            a = float(step @ q) / curvature
            coefficients.append(a)
            q = q - a * change
        q = 0.5 * q if self.factor is None else dpotrs(self.factor, q)[0]
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
    problem: Any, evaluate: Evaluate, v: Vector, *, max_iter: int, tol: float, memory: Memory,
) -> Solution:  # fmt: skip
    """Minimize q(v) + g(s).

    Parameters
    ----------
    problem : Problem
        `bowl`: v → q and ∇q; `predictor`: v → s; `forward` and `backward`: p → Zp and r → Zᵀr.
    evaluate : s → the two parts of g and ∂g/∂s
    tol : float
        Stop when ‖∇f‖ ≤ tol.
    memory : Memory
        Updated in place.
    """
    s = problem.predictor(v)
    loss, term, slope = evaluate(s)
    evaluations = 1
    floor, down = problem.bowl(v)
    objective = floor + (loss + term)
    gradient = down + problem.backward(slope)
    del slope  # as long as the data, and not needed again
    converged = bool(np.linalg.norm(gradient) <= tol)
    iteration = 0
    while not converged and iteration < max_iter:
        iteration += 1
        p = memory.direction(gradient)
        if not float(p @ gradient) < 0:
            memory.forget()
            p = -0.5 * gradient
        ray = problem.forward(p)
        move, count = _search(problem, evaluate, s, ray, v, p, objective, float(p @ gradient))
        evaluations += count
        if move is None:
            if not memory.pairs and memory.factor is None:
                break  # not even steepest descent improves: rounding level
            memory.forget()
            continue
        step, objective, term, s, slope = move
        v_new = v + step * p
        gradient_new = problem.bowl(v_new)[1] + problem.backward(slope)
        memory.add(v_new - v, gradient_new - gradient)
        v, gradient = v_new, gradient_new
        del move, ray, slope
        converged = bool(np.linalg.norm(gradient) <= tol)
    norm = float(np.linalg.norm(gradient))
    return Solution(v, objective, term, norm, converged, iteration, evaluations)


def _search(
    problem: Any, evaluate: Evaluate, s: Vector, ray: Vector, v: Vector, p: Vector,
    objective: float, slope0: float,
) -> tuple[Step | None, int]:  # fmt: skip
    """A step that satisfies the Wolfe conditions, by bracketing and cubic interpolation.

    None where nothing improves; last, the evaluations it took.
    """
    low, f_low, d_low = 0.0, objective, slope0
    high: tuple[float, float, float] | None = None
    t = 1.0
    best: Step | None = None
    for count in range(1, 21):
        scores = t * ray
        scores += s
        loss, term, slope = evaluate(scores)
        floor, down = problem.bowl(v + t * p)
        value = floor + (loss + term)
        # A step too long by far may leave the range of floats; it is cut short below.
        with np.errstate(over="ignore", invalid="ignore"):
            d = float(down @ p) + problem.design.sums.add(float(slope @ ray))
        # Near the minimum changes of f drown in rounding; the slope then decides.
        slack = 1e-14 * (abs(objective) + 1.0)
        enough = min(objective + ARMIJO * t * slope0, f_low) + slack
        if np.isfinite(value) and value <= enough:
            best = t, value, term, scores, slope
            if abs(d) <= -CURVATURE * slope0:
                return best, count
            if d >= 0:
                high = low, f_low, d_low
            low, f_low, d_low = t, value, d
        else:
            high = (t, value, d)
        t = 2.0 * t if high is None else _interpolate((low, f_low, d_low), high)
        if abs(t - low) * float(np.linalg.norm(p)) < 1e-14:
            break
    return best, count


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
# Rows that a Hessian is made from, and how exactly a search is solved that begins with one. It is
# made for more directions than a few, or than are remembered where it is of some rows only: of
# 100,000 rows and 20 features it was off by factors of 300 to 1/15, and the search took twice as
# long with it as without.
HESSIAN_ROWS, FEW = 4_000, 20
CURVED_TOL = 1e-5
PILOT_ITERATIONS = 50
PILOT_TOL = 1e-4
# From this fairness weight on a search against splines begins where one against a quadratic ends,
# solved this exactly, and with what it learned of the curvature: a fifth to a half of the time is
# saved from weight 10 on, none at 3.
SIMPLE_WEIGHT, SIMPLE_TOL = 5.0, 1e-2
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
    return design.own_rows(np.unique(np.random.default_rng(0).integers(0, design.total, wanted)))


def solve(
    problem: Problem, bound: BoundRegularizer, fairness_weight: float, max_iter: int, tol: float,
    start: Vector | None = None, memory: Memory | None = None,
) -> Solution:  # fmt: skip
    """Minimize loss + fairness_weight·Ĩ from the plain solution, or from `start`."""
    return minimize(
        problem, lambda eta: problem.evaluate(eta, bound, fairness_weight, tol >= ROUGH_TOL),
        problem.origin if start is None else start, max_iter=max_iter,
        tol=tol * (1.0 + fairness_weight), memory=Memory() if memory is None else memory,
    )  # fmt: skip


@dataclass
class PathSolver:
    """A problem with its fairness term, and what was found so far by fairness weight: (v, Ĩ)."""

    problem: Problem
    bound: BoundRegularizer | None
    solved: dict[float, tuple[Vector, float]] = field(default_factory=dict)
    memories: dict[float, Memory] = field(default_factory=dict)

    def plain(self) -> float:
        """Ĩ of the plain solution, NaN without a term."""
        if self.bound is None:
            return float("nan")
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
        if fairness_weight > LEAP and max(self.solved, default=0.0) < fairness_weight / LARGE_STEP:
            # Far from the plain solution the term alone decides, and its valleys are found step
            # by step rather than in one leap.
            self.solve(fairness_weight / LARGE_STEP, max_iter, max(tol, PATH_TOL[0]))
        start = None
        if any(self.solved):
            start, value, error = self._interpolate(fairness_weight)
            if on_path and error <= tol * (1.0 + fairness_weight):
                term = fairness_weight * value
                return Solution(start, float(start @ start) + term, term, error, True, 0, 0)
        with self.problem.design.blas():
            memory = self._memory(fairness_weight, start)
            if start is None:
                start = self._first(fairness_weight, memory)
            # Steps in scale with the curvature reach a loose tolerance too early.
            exact = tol if memory.factor is None else min(tol, CURVED_TOL)
            solution = solve(
                self.problem, self.bound, fairness_weight, max_iter, exact, start, memory
            )
        solution.converged |= solution.gradient_norm <= tol * (1.0 + fairness_weight)
        self.memories[fairness_weight] = memory
        self.solved[fairness_weight] = (solution.v, solution.term / fairness_weight)
        return solution

    def _memory(self, fairness_weight: float, start: Vector | None) -> Memory:
        """What is known of the curvature before a search, from a neighbor's solution if any."""
        few = FEW if self.problem.design.total <= 2 * HESSIAN_ROWS else MEMORY
        if start is not None and fairness_weight > LEAP and len(start) > few:
            hessian = self._hessian(start, fairness_weight)
            if hessian is not None:
                return Memory(factor=cho_factor(hessian)[0])
        if not self.memories:
            return Memory()
        nearest = min(self.memories, key=lambda w: abs(np.log(w / fairness_weight)))
        return self.memories[nearest].rescaled(fairness_weight / nearest)

    def _first(self, fairness_weight: float, memory: Memory) -> Vector:
        """Where to begin: the plain solution, or near it.

        Where there are many more rows than the solution needs, some of them find the start. The
        curvature learned there is kept; the stopping test is on all rows.
        """
        problem, bound = self.problem, self.bound
        start, rows = problem.origin, pilot_rows(problem.design)
        assert bound is not None
        part, pilot = bound, problem
        if rows is not None and bound.groups.take(rows).counts.min() >= MIN_PILOT_GROUP:
            part, pilot = bound.take(rows), problem.take(rows)
        term, tol = part, PILOT_TOL
        if fairness_weight >= SIMPLE_WEIGHT:
            term, tol = part.simplified(), SIMPLE_TOL if part is bound else PILOT_TOL
        if term is bound:
            return start
        solution = solve(pilot, term, fairness_weight, PILOT_ITERATIONS, tol, start, memory)
        if term is part:
            bound.warm_start(part)
        return solution.v

    def _hessian(self, v: Vector, fairness_weight: float) -> Matrix | None:
        """2I + λ·(∂s/∂v)ᵀBBᵀ(∂s/∂v), the Hessian except parts without a sign, from some rows.

        Where the term weighs much, it has more directions of curvature than a search remembers
        steps: with a hundred features from here to the minimum it took 200 to 300 evaluations, and
        20 with them. None where these rows hold too few of a group.
        """
        problem, bound = self.problem, self.bound
        assert bound is not None
        if problem.design.total > 2 * HESSIAN_ROWS:
            drawn = np.random.default_rng(0).integers(0, problem.design.total, HESSIAN_ROWS)
            rows = problem.design.own_rows(np.unique(drawn))
            if bound.groups.take(rows).counts.min() < MIN_PILOT_GROUP:
                return None
            problem, part = problem.take(rows), bound.take(rows)
            part.warm_start(bound)
            bound = part
        eta = problem.predictor(v)
        factor = bound.value_grad_curvature(problem.fair_scores(eta))[2]
        factor = problem.fair_slope(eta)[:, None] * factor
        columns = np.column_stack([problem.backward(column) for column in factor.T])
        return 2.0 * np.eye(len(v)) + fairness_weight * (columns @ columns.T)

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
