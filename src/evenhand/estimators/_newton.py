"""Damped Newton steps, and the penalized multinomial loss of rows that they minimize.

Whoever has a convex function to minimize says what it is at a point, and how its score becomes a
step: with the Hessian there, with that of an earlier point (`Chord`), or with one from the cells of
a grid. The Hessian of the multinomial loss costs O(K²) a row, its gradient O(K). On a grid of a few
thousand cells the Hessian costs no more with n, and is right to the square of the width of a cell:
a step with it leaves about a hundredth of the error, so that a few passes over the rows reach the
optimum of the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv, dpotrf, dpotrs

from .._core.arrays import Array
from ..kernels import Rows, numpy_passes, passes_for
from ..kernels.basis import Basis

# Squared Newton decrement per row under which one more step lands at machine precision; with the
# Hessian of cells, which leaves a ten thousandth of it.
LAST_STEP, LAST_CELL_STEP = 1e-8, 1e-11
# Of a Newton step: no shorter ones are tried.
SMALLEST_SHARE = 1e-8
# Rows from which a grid pays, and rows times groups.
_LEAST_ROWS, _LEAST_WORK = 4_000, 100_000
# Pairs of a cell and two groups: what a Hessian costs.
_WORK = 8_000_000
_MOST_SIDE, _LEAST_SIDE = 96, 24
# Newton steps on the cells before any over the rows, and steps over these.
_CELL_STEPS, _MAX_PASSES = 50, 25
# Half of the bins lie within this many spreads of the mean, the rest beyond, ever wider.
_HALF = 2.5


class Descent(NamedTuple):
    """Where Newton's method ended.

    Attributes
    ----------
    weights : array
        The last point looked at.
    seen : tuple
        What `look` returned there.
    step : array
        From there to the optimum; zero where nothing is to be gained.
    decrement : float
        Twice what that step gains, per row.
    n_iter : int
    converged : bool
    """

    weights: Array
    seen: Any
    step: Array
    decrement: float
    n_iter: int
    converged: bool

    @property
    def optimum(self) -> Array:
        return self.weights + self.step


def damped_newton(
    look: Callable[[Array], Any], weights: Array, seen: Any, n: float,
    enough: Callable[[float], float], max_iter: int,
    step_at: Callable[[Any], Array] | None = None,
) -> Descent:  # fmt: skip
    """Newton steps, halved until they improve the objective.

    Parameters
    ----------
    look : weights → (objective per row, negative gradient, Hessian, ...), sums over n rows
    weights, seen
        Where to begin, and what `look` says there.
    n : float
    enough : objective → squared decrement per row under which one more step is the last
    max_iter : int
    step_at : what `look` says → step, optional
        By default with the Hessian.
    """
    step_at = step_at or (lambda seen: solve(seen[2], seen[1]))
    for steps in range(1, max_iter + 1):
        objective, score = seen[:2]
        step = step_at(seen)
        decrement = float(score.ravel() @ step.ravel()) / n
        if decrement <= enough(objective):
            # Below zero only by rounding, and then there is nothing to gain by the step.
            gained = max(decrement, 0.0)
            return Descent(weights, seen, step if gained else 0.0 * step, gained, steps, True)
        size, floor = 1.0, 1e-12 * abs(objective) + 1e-15
        trial = look(weights + step)
        while not trial[0] <= objective + floor and size > SMALLEST_SHARE:
            size *= 0.5
            trial = look(weights + size * step)
        if not trial[0] <= objective + floor:  # no way down that rounding lets us see
            return Descent(weights, seen, np.zeros_like(step), 0.0, steps, True)
        weights, seen = weights + size * step, trial
    return Descent(weights, seen, np.zeros_like(weights), 0.0, max_iter, False)


class Chord:
    """Steps with the Hessian of an earlier point, for as long as they shrink fast.

    Parameters
    ----------
    factorize : what `look` says → lower Cholesky factor of a Hessian
    slow : float
        Share of the squared decrement that the Hessian must not leave to stay.
    factor : array, optional
        To begin with.
    """

    def __init__(
        self, factorize: Callable[[Any], Array], slow: float = 0.1, factor: Array | None = None
    ) -> None:
        self.factorize, self.slow, self.factor = factorize, slow, factor
        self._before = np.inf

    def __call__(self, seen: Any) -> Array:
        step, gain = self._try(seen[1])
        if not gain <= self.slow * self._before:
            self.factor = self.factorize(seen)
            step, gain = self._try(seen[1])
        self._before = gain
        return step

    def _try(self, score: Array) -> tuple[Array, float]:
        if self.factor is None:
            return score, np.nan
        step = dpotrs(self.factor, score.ravel(), lower=True)[0]
        return step.reshape(score.shape), float(score.ravel() @ step)


def solve(hessian: Array, score: Array) -> Array:
    """A direction of descent, whatever rounding makes of the Hessian."""
    mean = np.trace(hessian) / len(hessian)
    ridge = 1e-14 * mean
    for _ in range(7):
        # LAPACK itself: SciPy's wrappers check for longer than six equations take to solve.
        shifted = hessian + ridge * np.eye(len(hessian))
        _, step, failed = dposv(shifted, score.ravel(), overwrite_a=True)
        if not failed:
            return step.reshape(score.shape)
        # Least squares instead of a larger ridge can point uphill here, and far.
        ridge *= 100.0
    return np.zeros_like(score)


def cholesky(hessian: Array, share: float = 1e-13, least: float = 0.0) -> Array:
    """Lower Cholesky factor, of slightly more than the matrix: a `share` of its mean diagonal, and
    100 times as much until that is enough. The matrix is not kept."""
    diagonal = np.einsum("ii->i", hessian)
    ridge = share * float(diagonal.sum()) / len(hessian) + least
    while True:
        diagonal += ridge
        factor, failed = dpotrf(hessian, lower=True, clean=False)
        if not failed:
            return factor
        ridge *= 100.0


# ------------------------------------------------------------------------------------------------
# The multinomial loss of rows.


@dataclass(frozen=True)
class LogisticFit:
    """Weights (K − 1, D), Newton steps, whether they converged, and the Hessian they were made
    with where it is that of cells."""

    weights: Array
    n_iter: int
    converged: bool
    chord: Chord | None = None


def descend(
    rows: Rows, basis: Basis, kappa: float, start: Array | None, max_iter: int,
    last_step: float = LAST_STEP,
) -> LogisticFit:  # fmt: skip
    """Newton steps from `start`."""

    def look(weights: Array) -> Any:
        return objective_at(rows, basis, weights, kappa)

    cold = cold_start(rows.shares, basis)
    weights = cold if start is None else start
    seen = look(weights)
    if start is not None and not seen[0] <= cold_objective(rows):
        # Worse than knowing nothing: the data have moved too far for the old weights to help.
        weights, seen = cold, look(cold)
    end = damped_newton(look, weights, seen, rows.n, lambda objective: last_step, max_iter)
    return LogisticFit(end.optimum, end.n_iter, end.converged)


def objective_at(rows: Rows, basis: Basis, weights: Array, kappa: float, curved: bool = True):
    """Objective per row, its negative gradient and Hessian (both summed over rows)."""
    loss, score, moments, _ = passes_for(rows).logistic_pass(rows, basis, weights, curved)
    size, slope, form = penalty(weights)
    hessian = None
    if curved:
        hessian = assemble_hessian(basis, moments, len(weights)) + kappa * form
    return (loss + 0.5 * kappa * size) / rows.n, score - kappa * slope, hessian, weights


def assemble_hessian(basis: Basis, moments: Array, free: int) -> Array:
    """(FD, FD) from the moments of its blocks (k, l ≤ k)."""
    hessian = np.empty((free, basis.n_terms, free, basis.n_terms))
    blocks = iter(basis.gram(moments.reshape(free * (free + 1) // 2, -1)))
    for k in range(free):
        for other in range(k + 1):
            hessian[k, :, other] = hessian[other, :, k] = next(blocks)
    return hessian.reshape(free * basis.n_terms, free * basis.n_terms)


def penalty(weights: Array) -> tuple[float, Array, Any]:
    """Σ_k ‖w_k − w̄‖² over all K groups without intercepts, half its gradient, half its Hessian."""
    center, mask, form = _penalty_forms(*weights.shape)
    slope = (center @ weights) * mask
    return float((weights * slope).sum()), slope, form


@lru_cache(maxsize=16)
def _penalty_forms(free: int, terms: int) -> Any:
    center = np.eye(free) - 1.0 / (free + 1)
    mask = np.ones(terms)
    mask[0] = 0.0
    return center, mask, np.kron(center, np.diag(mask))


def cold_start(shares: Array, basis: Basis) -> Array:
    """Intercepts at the log odds of the group shares."""
    out = np.zeros((len(shares) - 1, basis.n_terms))
    out[:, 0] = np.log(shares[1:] / shares[0])
    return out


def cold_objective(rows: Rows) -> float:
    """H(A), the objective at the cold start."""
    return float(-(rows.shares * np.log(rows.shares)).sum()) + 1e-9


# ------------------------------------------------------------------------------------------------
# Many rows and groups: exact scores over the rows, curvature from the cells of a grid.


class Grid(NamedTuple):
    """Rows gathered by where they lie; C cells.

    Attributes
    ----------
    number : (n,) array
        Cell of each row.
    rows : Rows
        The cells as rows: at the mean of their rows, with the shares of the groups as
        memberships, and with weights of mean 1.
    mass, single : (C,) arrays
        Weight of all rows of a cell and of a typical one of them, Σω²/Σω.
    """

    number: NDArray[np.int32]
    rows: Rows
    mass: Array
    single: Array


def grid_pays(rows: Rows) -> bool:
    """Whether the rows and groups are so many that cells are worth gathering."""
    # Two groups have a kernel of their own, whose Hessian costs little more than its gradient; more
    # variables than two have no grid.
    if rows.n_groups == 2 or rows.s.ndim > 1:
        return False
    return rows.n >= max(_LEAST_ROWS, _LEAST_WORK / rows.n_groups)


def gather(rows: Rows) -> Grid:
    """Put the rows on a grid; with many groups a coarser one."""
    n, k = len(rows.s), rows.n_groups
    two = rows.sums.largest(float(len(rows.y) > 0)) > 0  # a shard may have no rows
    side = int(np.clip((_WORK / k**2) ** 0.5, _LEAST_SIDE, _MOST_SIDE))
    size = side * side if two else 4 * side
    side = side if two else size
    mean, inverse, mean_y, inverse_y = rows.center
    number = _slot(rows.s, mean, inverse, side)
    if n and two:
        number = number * side + _slot(rows.y, mean_y, inverse_y, side)
    weight = numpy_passes.weights_of(rows)
    second = rows.y if n and two else np.zeros(n)
    columns = (weight, weight * weight, weight * rows.s, weight * second)
    sums = np.stack([np.bincount(number, column, size) for column in columns], axis=1)
    if rows.probabilities.shape[1]:
        shares = rows.probabilities.T * weight
        mass = np.stack([np.bincount(number, share, size) for share in shares], axis=1)
    else:
        mass = np.bincount(number * k + rows.codes, weight, size * k).reshape(size, k)
    mass, sums = rows.sums.add(mass, sums)
    used = np.flatnonzero(sums[:, 0] > 0)
    renumber = np.zeros(size, dtype=np.int32)
    renumber[used] = np.arange(len(used))
    mass, sums = mass[used], sums[used]
    total = sums[:, 0]
    cells = rows._replace(
        s=sums[:, 2] / total,
        y=sums[:, 3] / total if two else rows.y,
        codes=rows.codes[:0],
        probabilities=np.asfortranarray(mass / total[:, None]),
        weight=total * (len(used) / total.sum()),
        whole=0,
    )
    return Grid(renumber[number], cells, total, sums[:, 1] / total)


def _slot(values: Array, mean: float, inverse: float, side: int) -> NDArray[np.intp]:
    """Bin of each row, of `side` ones that grow ever wider beyond a few spreads of the mean."""
    x = (values - mean) * inverse
    x /= _HALF + np.abs(x)
    return np.minimum((0.5 * side * (1.0 + x)).astype(np.intp), side - 1)


def descend_by_cells(
    rows: Rows, basis: Basis, kappa: float, start: Array | None = None, chord: Chord | None = None,
    grid: Grid | None = None, max_iter: int = _MAX_PASSES,
) -> LogisticFit:  # fmt: skip
    """Newton steps with the Hessian of cells.

    Without a `start`, or from a useless one, the cells are fitted first. The `chord` of a fit
    nearby brings its Hessian along for as long as that is enough.
    """

    @cache
    def cells() -> tuple[Rows, float]:
        here = (grid or gather(rows)).rows
        return here, here.n / rows.n

    def factorize(seen: Any) -> Array:
        here, share = cells()
        return cholesky(objective_at(here, basis, seen[3], kappa * share)[2] / share)

    def look(weights: Array) -> Any:
        return objective_at(rows, basis, weights, kappa, curved=False)

    chord = Chord(factorize, factor=None if chord is None else chord.factor)
    seen = None if start is None else look(start)
    if start is None or seen is None or not seen[0] <= cold_objective(rows):
        here, share = cells()
        start = descend(here, basis, kappa * share, None, _CELL_STEPS).weights
        chord.factor, seen = None, look(start)
    end = damped_newton(look, start, seen, rows.n, lambda _: LAST_CELL_STEP, max_iter, chord)
    return LogisticFit(end.optimum, end.n_iter, end.converged, chord)
