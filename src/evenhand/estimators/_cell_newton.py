"""Many rows and groups: exact scores over the rows, curvature from the cells of a grid.

The Hessian of the multinomial loss costs O(K²) a row, its gradient O(K). On a grid of a few
thousand cells the Hessian costs no more with n, and is right to the square of the width of a cell:
a step H⁻¹∇ with it leaves about a hundredth of the error, so that a few passes over the rows reach
the optimum of the rows themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from .._core.arrays import Array
from ..kernels import Rows, numpy_passes, passes_for
from ..kernels.basis import Basis
from ._newton import LAST_STEP, cold_objective, descend, finish_at, objective_at, penalty

# Rows from which a grid pays, and rows times groups.
_LEAST_ROWS, _LEAST_WORK = 4_000, 100_000
# Pairs of a cell and two groups: what a Hessian costs.
_WORK = 8_000_000
_MOST_SIDE, _LEAST_SIDE = 96, 24
# Squared decrement per row from which the cells are fitted first, and Newton steps they may take.
_FAR, _CELL_STEPS = 1e-4, 50
# Share of the squared decrement that a step must not leave, and that it is taken to leave before
# anything is known.
_POOR, _USUAL = 0.02, 1e-4
# Squared decrement per row at which losses differ from those at the optimum by half of it.
_LOSSES_DONE = 1e-10
_MAX_PASSES, _MEMORY = 25, 8
# Half of the bins lie within this many spreads of the mean, the rest beyond, ever wider.
_HALF = 2.5


@dataclass(frozen=True)
class Grid:
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
    n, k, two = len(rows.s), rows.n_groups, len(rows.y) > 0
    two = rows.sums.largest(float(two)) > 0  # a shard may have no rows
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


@dataclass
class Curvature:
    """Cholesky factor of a Hessian per row, and what steps have taught about it.

    `seen` are the latest steps with the changes of the score they brought: what the cells and the
    movement of the rows have got wrong along them is put right (BFGS). `left` is the share of the
    squared decrement that the last step left.
    """

    factor: Array
    left: float = _USUAL
    seen: list[tuple[Array, Array]] = field(default_factory=list)

    def learn(self, step: Array, change: Array) -> None:
        if float((step * change).sum()) > 0:
            self.seen = [*self.seen[1 - _MEMORY :], (step.ravel(), change.ravel())]

    def step(self, score: Array) -> Array:
        out = score.ravel().copy()
        shares = []
        for step, change in reversed(self.seen):
            shares.append(float(step @ out) / float(step @ change))
            out -= shares[-1] * change
        out = dpotrs(self.factor, out, lower=True)[0]
        for (step, change), share in zip(self.seen, reversed(shares), strict=True):
            out += (share - float(change @ out) / float(step @ change)) * step
        return out.reshape(score.shape)


@dataclass(frozen=True)
class Settled:
    """Weights at the optimum, with what was found on the way.

    `objective` and `gradient` are those at the weights, or where no gradient was asked for one last
    step before them. `grid` is what the curvature was found on, if that was now.
    """

    weights: Array
    curvature: Curvature
    n_iter: int
    objective: float
    gradient: Array | None
    grid: Grid | None


def curvature_on(grid: Grid, basis: Basis, weights: Array, kappa: float, n: int) -> Curvature:
    """Hessian per row of the penalized objective over n rows, from the cells."""
    c = len(grid.mass)
    hessian = objective_at(grid.rows, basis, weights, kappa * c / n)[2] / c
    ridge = 1e-13 * float(np.trace(hessian)) / len(hessian)
    while True:
        factor, failed = dpotrf(hessian + ridge * np.eye(len(hessian)), lower=True)
        if not failed:
            return Curvature(factor)
        ridge *= 100.0


def settle(
    rows: Rows,
    basis: Basis,
    kappa: float,
    start: Array | None = None,
    curvature: Curvature | None = None,
    last_step: float = LAST_STEP,
    scale: float | None = None,
    losses: Array | None = None,
) -> Settled | None:
    """Steps H⁻¹∇ with exact ∇ and the H of cells; None where they do not settle.

    Parameters
    ----------
    start, curvature
        Weights to begin from and the Hessian of a fit nearby.
    last_step : float
        As for Newton steps: those leave its square of the squared decrement, and so do these.
    scale : float, optional
        Ask for scale·∂L/∂s at the final weights.
    losses : (n,) array, optional
        Filled with the losses of the last pass, which then need not be the very last one.
    """
    n, kernels = rows.n, passes_for(rows)
    enough = 30.0 * last_step**2
    grid: Grid | None = None

    def fit_cells(weights: Array | None) -> Array:
        nonlocal grid, curvature
        grid = gather(rows)
        c = len(grid.mass)
        fit, _ = descend(grid.rows, basis, kappa * c / n, weights, _CELL_STEPS, 1e-6)
        curvature = curvature_on(grid, basis, fit.weights, kappa, n)
        return fit.weights

    weights = start
    if weights is None or curvature is None:
        weights = fit_cells(start)
    previous, before, best = np.inf, weights, np.inf
    last: Array | None = None
    for count in range(1, _MAX_PASSES + 1):
        assert curvature is not None
        # A gradient costs an array of n numbers: it is asked for where the pass should be the last.
        finish = None
        if scale is not None and previous * min(curvature.left, 1.0) <= enough:
            finish = finish_at(rows, basis, weights, kappa, scale)
        loss, score, _, gradient = kernels.logistic_pass(
            rows, basis, weights, False, finish, losses
        )
        size, slope, _ = penalty(weights)
        objective = (loss + 0.5 * kappa * size) / n
        if count == 1 and grid is None and not objective <= cold_objective(rows):
            weights = fit_cells(None)  # worse than knowing nothing: the old ones are of no help
            continue
        score = (score - kappa * slope) / n
        if last is not None:
            curvature.learn(weights - before, last - score)
        step = curvature.step(score)
        decrement = float((score * step).sum())
        if finish is not None and decrement <= enough:
            return Settled(weights, curvature, count, objective, gradient, grid)
        if not objective <= best + 1e-12 * abs(best) + 1e-15 or not np.isfinite(decrement):
            if grid is not None:
                return None
            weights, best, previous, last = fit_cells(before), np.inf, np.inf, None
            continue
        if previous < np.inf:
            curvature.left = max(decrement / previous, 1e-8)
        if scale is None and (
            decrement * curvature.left <= enough
            or (losses is not None and decrement <= _LOSSES_DONE)
        ):
            return Settled(weights + step, curvature, count, objective, None, grid)
        if grid is None and (decrement > _FAR or decrement > _POOR * previous):
            weights, best, previous, last = fit_cells(weights), np.inf, np.inf, None
            continue
        if decrement > 0.5 * previous:
            return None
        before, best, previous, last = weights, objective, decrement, score
        weights = weights + step
    return None
