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

import numpy as np
from numpy.typing import NDArray

from .._kernels import shards

Vector = NDArray[np.float64]
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
