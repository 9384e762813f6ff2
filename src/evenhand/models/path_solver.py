"""One problem at many fairness weights: solutions start one another, and a sample starts the first.

Nothing here knows the loss: a problem says how scores move with whitened coordinates v, in which
its loss and penalty are about ‖v‖².
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .._kernels import shards
from ..penalty.bound import BoundRegularizer
from .design import FeatureMatrix
from .solver import Evaluate, Follow, Memory, Solution, minimize

Vector = NDArray[np.float64]

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
