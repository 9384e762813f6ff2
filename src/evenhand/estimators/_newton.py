"""Damped Newton steps, and the penalized multinomial losses that they minimize, of rows and cells.

Whoever has a convex function to minimize says what it is at a point, and how its score becomes a
step: with the Hessian there, with that of an earlier point (`Chord`), or with one from the cells of
a grid. The Hessian of the multinomial loss costs O(K²) a row, its gradient O(K). On a grid of a few
thousand cells the Hessian costs no more with n, and is right to the square of the width of a cell:
a step with it leaves about a hundredth of the error, so that a few passes over the rows reach the
optimum of the rows themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv, dpotrf, dpotri, dpotrs

from .._core.arrays import Array
from ..kernels import Rows, get_kernels
from ..kernels.basis import Basis
from .ranks import Cells, label_of

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
# Cells times squared parameters from which a Hessian in single precision pays.
_LARGE = 5e6
_FIT_STEPS = 60
# Squared Newton decrement over all rows after which one more step is the last. Stopping at 0.1 left
# leverages of a smoother fit, rough ones looked good, and estimates moved by 0.04 standard errors.
_ENOUGH = 1e-3
# Up to this norm of ωMV one term of its series is enough where losses need not be exact: the rest
# is far below the error of the one Newton step. Up to the second it converges soon.
_FIRST_ORDER, _SERIES = 1e-3, 0.6
# Largest move of a linear predictor.
MOST = 25.0


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
    ridge = 1e-14 * hessian.trace() / len(hessian)
    for _ in range(7):
        # LAPACK itself: SciPy's wrappers check for longer than six equations take to solve.
        shifted = hessian.copy()
        shifted.ravel()[:: len(hessian) + 1] += ridge
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

    cold = cold_start(rows.shares, basis.n_terms)
    weights = cold if start is None else start
    seen = look(weights)
    if start is not None and not seen[0] <= cold_objective(rows):
        # Worse than knowing nothing: the data have moved too far for the old weights to help.
        weights, seen = cold, look(cold)
    end = damped_newton(look, weights, seen, rows.n, lambda objective: last_step, max_iter)
    return LogisticFit(end.optimum, end.n_iter, end.converged)


def objective_at(rows: Rows, basis: Basis, weights: Array, kappa: float, curved: bool = True):
    """Objective per row, its negative gradient and Hessian (both summed over rows)."""
    loss, score, moments, _ = get_kernels().logistic_pass(rows, basis, weights, curved)
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


def cold_start(shares: Array, n_terms: int) -> Array:
    """Weights, (K − 1, D), that say the group shares: intercepts at their log odds."""
    out = np.zeros((len(shares) - 1, n_terms))
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
    # Two groups have a kernel of their own, whose Hessian costs little more than its gradient.
    return rows.n_groups != 2 and rows.n >= max(_LEAST_ROWS, _LEAST_WORK / rows.n_groups)


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
    weight = rows.weight if len(rows.weight) else None

    def add(column: Array) -> Array:
        own = column if weight is None else weight * column
        return np.bincount(number, own, size).astype(np.float64, copy=False)

    if rows.probabilities.shape[1]:
        mass: Array = np.stack([add(share) for share in rows.probabilities.T], axis=1)
    else:
        mass = np.bincount(number * k + rows.codes, weight, size * k).reshape(size, k).astype(float)
    total = mass.sum(axis=1)
    squares = total if weight is None else add(weight)
    second = rows.y if n and two else np.zeros(n)
    sums = np.stack([total, squares, add(rows.s), add(second)], axis=1)
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


# ------------------------------------------------------------------------------------------------
# The multinomial loss of cells, with leave-one-out losses in closed form.


@dataclass(frozen=True)
class Fit:
    """A fitted classifier on C cells.

    Attributes
    ----------
    theta : (K − 1, D) array
        Coefficients of the log odds against group 0.
    inside, outside : (E,) arrays
        In-sample and leave-one-out loss of every entry of the cells, in nats.
    terms : float
        Effective number of parameters, tr S = tr H⁻¹(H − P) with the Hessian H and its penalty P.
    squares : float
        tr S².
    """

    theta: Array
    inside: Array
    outside: Array
    terms: float
    squares: float


class Point(NamedTuple):
    """Objective and score at some coefficients; probabilities, (K, C), and predictors, (q, C)."""

    value: float
    score: Array
    prob: Array
    eta: Array


class Entries(NamedTuple):
    """Sets of rows with one cell and one membership: (E,), (E, K), (E,) and (E,) arrays.

    Their cell, membership and typical weight; and 0, or how far their memberships lie apart. Last,
    their group, or −1 where that is not certain, if it is known already.
    """

    cell: NDArray[np.intp]
    target: Array
    single: Array
    spread: Array
    label: NDArray[np.intp] | None = None


class Regression:
    """−Σ N log p + ½ Σ penalty · θᵀ(I − 11ᵀ/K)θ of coefficients θ, (K − 1, D).

    The matrix between groups makes the choice of the reference group immaterial.

    Parameters
    ----------
    functions : (D, C) array
        Basis, the constant first.
    counts : (K, C) array
        N of the groups in each cell.
    penalty : (D,) array
    """

    def __init__(self, functions: Array, counts: Array, penalty: Array) -> None:
        self.functions, self.counts, self.penalty = functions, counts, penalty
        self.total = counts.sum(axis=0)
        self.free = len(counts) - 1

    def look(self, theta: Array) -> Point:
        eta = theta @ self.functions
        log_total, prob = softmax(eta)
        shrunk = (theta - theta.sum(axis=0) / (self.free + 1)) * self.penalty
        value = float(self.total @ log_total - (self.counts[1:] * eta).sum())
        score = (self.counts[1:] - self.total * prob[1:]) @ self.functions.T - shrunk
        return Point(value + 0.5 * float((shrunk * theta).sum()), score, prob, eta)

    def cold(self) -> Array:
        """Coefficients of the group shares."""
        return cold_start(self.counts.sum(axis=1) + 1e-9, len(self.functions))

    def hessian(self, prob: Array, functions: NDArray[Any] | None = None) -> Array:
        """(qD, qD); its sums in the precision of the functions, which may be others."""
        f = self.functions if functions is None else functions
        d, q, p = len(f), self.free, prob[1:]
        out = np.empty((q, d, q, d))
        if q > 8 * d:
            forms = f[:, None] * f * self.total.astype(f.dtype)
            out = multinomial_products(p.astype(f.dtype, copy=False), forms).reshape(out.shape)
        elif _few(q, d):
            # All blocks in one product: few columns have few products with one another.
            i, j = np.triu_indices(q)
            weights = -(self.total * p)[i] * p[j]
            weights[i == j] += self.total * p
            first, second = np.triu_indices(d)
            blocks = np.empty((len(i), d, d))
            blocks[:, first, second] = weights.astype(f.dtype) @ (f[first] * f[second]).T
            blocks[:, second, first] = blocks[:, first, second]
            out[i, :, j] = out[j, :, i] = blocks
        else:
            for k in range(q):
                for other in range(k + 1):
                    rest = (1.0 - p[k]) if k == other else p[other]
                    scaled = f * np.sqrt(self.total * p[k] * rest).astype(f.dtype)
                    block = scaled @ scaled.T
                    out[k, :, other] = out[other, :, k] = block if k == other else -block
        between = np.eye(q) - 1.0 / (q + 1)
        np.einsum("idjd->ijd", out)[:] += between[:, :, None] * self.penalty
        return out.reshape(q * d, q * d)


def multinomial_products(share: NDArray[Any], forms: NDArray[Any]) -> Array:
    """Σ_c (diag(p_c) − p_c p_cᵀ) ⊗ F_c, (qD, qD), of shares p, (q, C), and symmetric F, (D, D, C).

    Block by block of F: the tables of all cells would be (C, q, q).
    """
    q, d = len(share), len(forms)
    out = np.empty((q, d, q, d))
    for i, j in zip(*np.tril_indices(d), strict=True):
        block = -(share * forms[i, j]) @ share.T
        np.einsum("kk->k", block)[:] += share @ forms[i, j]
        out[:, i, :, j] = out[:, j, :, i] = block
    return out.reshape(q * d, q * d)


def softmax(eta: Array) -> tuple[Array, Array]:
    """log(1 + Σ e^η), (C,), and probabilities, (K, C), of predictors (q, C); group 0 has 0."""
    top = np.maximum(eta.max(axis=0), 0.0)
    prob = np.empty((len(eta) + 1, eta.shape[1]))
    np.exp(-top, out=prob[0])
    np.exp(eta - top, out=prob[1:])
    mass = prob.sum(axis=0)
    prob /= mass
    return top + np.log(mass), prob


def fit(functions: Array, cells: Cells, penalty: Array, theta: Array | None = None) -> Fit:
    """Minimize the objective of `Regression` by damped Newton steps.

    Parameters
    ----------
    functions : (D, C) array
        Basis, the constant first.
    cells : Cells
        Counts N of the groups in each cell.
    penalty : (D,) array
    theta : (K − 1, D) array, optional
        Where to start.
    """
    problem = Regression(functions, cells.by_group, penalty)
    d, q, mass = len(functions), problem.free, cells.mass
    begin = problem.look(problem.cold() if theta is None else theta)
    # A start from other cells can be far off in the tails, where Newton steps are of no use.
    if theta is None or not begin.value < mass * cells.entropy:
        theta = problem.cold()
        begin = problem.look(theta)
    # Most of the time goes into Hessians. One serves for as long as steps with it shrink fast, in
    # single precision where there is much to add up; a last one, for the last step and the
    # leverages, is found where those steps have led.
    large = cells.counts.shape[0] * (q * d) ** 2 > _LARGE and d > 4
    rough = functions.astype(np.float32) if large else functions

    def factor(at: Point) -> Array:
        return cholesky(problem.hessian(at.prob, rough), 1e-10, 1e-12)

    chord = Chord(factor)
    end = damped_newton(problem.look, theta, begin, 1.0, lambda _: _ENOUGH, _FIT_STEPS, chord)
    # The Hessian's smallest eigenvalues, 0.05 of a ridge, must stand out from the rounding, about
    # 1e-6 of its largest, a quarter of the rows; where groups are nearly separated the ridge is all
    # there is in some directions that matter.
    if large and not (mass < 20_000 and end.seen.value > 0.2 * mass and end.decrement):
        rough = functions
    chord = Chord(factor)
    end = damped_newton(problem.look, *end[:2], 1.0, lambda _: _ENOUGH, _FIT_STEPS, chord)
    last = problem.look(end.optimum)
    if not last.value <= end.seen.value * (1.0 + 1e-10):
        last = end.seen
    theta = end.optimum if last is not end.seen else end.weights
    assert chord.factor is not None
    inverse = dpotri(chord.factor, lower=True)[0]
    inverse = np.where(np.tri(q * d, dtype=bool), inverse, inverse.T)
    # S = I − L with L = H⁻¹P, so that tr S = dim − tr L and tr S² = dim − 2 tr L + tr L².
    blocks = inverse.reshape(q * d, q, d)
    lost = ((blocks - blocks.sum(axis=1, keepdims=True) / (q + 1)) * penalty).reshape(q * d, -1)
    terms = q * d - np.trace(lost)
    squares = terms - np.trace(lost) + (lost * lost.T).sum()
    entries = Entries(cells.cell, cells.target, cells.single, cells.spread, cells.label)
    losses = left_out_losses(rough, inverse.reshape(q, d, q, d), last.eta, last.prob, entries)
    return Fit(theta, *losses, float(terms), float(squares))


def _few(q: int, d: int) -> bool:
    """Whether so many columns have a table of products that is small beside the rest."""
    return q > 1 and d <= (16 if q > 3 else 6)


def left_out_losses(
    functions: NDArray[Any], inverse: Array, eta: Array, prob: Array, entries: Entries,
    exact: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    """In-sample and leave-one-out loss of every entry (a row, or all like rows of a cell).

    Leaving out one row of weight ω and membership t moves its linear predictor by
    (I − ωMV)⁻¹ ωM(p − t), M = φᵀH⁻¹φ (the leverage) and V = diag(p) − ppᵀ: one Newton step. An
    entry of rows with different memberships of mean t has `spread` λ > 0: its loss is the mean over
    rows with memberships t + λ(e_j − t), in shares t_j.

    Parameters
    ----------
    functions : (D, C) array
    inverse : (q, D, q, D) array
        H⁻¹.
    eta, prob : (q, C) and (K, C) arrays
    entries : Entries
    exact : bool
        If not, small steps are found to first order.
    """
    if entries.spread.any():
        k = entries.target.shape[1]
        far = np.repeat(entries.spread, k)[:, None]
        member = (1.0 - far) * np.repeat(entries.target, k, axis=0)
        member += far * np.tile(np.eye(k), (len(entries.cell), 1))
        cell, single = np.repeat(entries.cell, k), np.repeat(entries.single, k)
        apart = Entries(cell, member, single, np.zeros(len(cell)))
        losses = left_out_losses(functions, inverse, eta, prob, apart, exact)
        inside, outside = ((entries.target * v.reshape(-1, k)).sum(axis=1) for v in losses)
        return inside, outside
    if len(inverse) == 1:
        leverage = np.einsum(
            "dc,dc->c", functions, inverse[0, :, 0].astype(functions.dtype) @ functions
        )
        return _pair_losses(eta[0], prob[1], leverage, entries)
    label = label_of(entries.target) if entries.label is None else entries.label
    linear = np.where(label > 0, eta[label - 1, entries.cell], 0.0)
    if len(mixed := np.flatnonzero(label < 0)):
        shares = entries.target[mixed, 1:] * eta.T[entries.cell[mixed]]
        linear[mixed] = shares.sum(axis=1)
    inside = softmax(eta)[0][entries.cell] - linear
    outside = np.empty(len(entries.cell))
    order = np.argsort(entries.cell, kind="stable")
    cell = entries.cell[order]
    for part, leverage in _leverages(functions, inverse):
        own = order[slice(*np.searchsorted(cell, (part.start, part.stop)).tolist())]
        here = entries.cell[own] - part.start, entries.target[own], entries.single[own], label[own]
        at = [np.ascontiguousarray(v[:, part].T) for v in (eta, prob[1:])]
        outside[own] = _many_losses(at, leverage, here, 0.0 if exact else _FIRST_ORDER)
    return inside, outside


def _leverages(functions: NDArray[Any], inverse: Array) -> Iterator[tuple[slice, Array]]:
    """M = φᵀH⁻¹φ, (c, q, q), of a few cells at a time."""
    (d, c), q = functions.shape, len(inverse)
    k, other = np.tril_indices(q)
    blocks = inverse.transpose(0, 2, 1, 3)[k, other]
    place = np.empty((q, q), dtype=np.intp)
    place[k, other] = place[other, k] = np.arange(len(k))
    if few := _few(q, d):
        first, second = np.triu_indices(d)
        twice = np.where(first == second, 0.5, 1.0)
        table = (blocks + blocks.transpose(0, 2, 1))[:, first, second] * twice
        table = np.ascontiguousarray(table[place.ravel()].T)
    else:
        table = blocks.reshape(-1, d)
    table = table.astype(functions.dtype, copy=False)
    # So that a table of so many columns stays in the cache.
    size = max(32, 60_000 // (table.shape[1] if few else len(table)))
    for start in range(0, c, size):
        f = functions[:, start : start + size]
        if few:
            leverage = (f[first] * f[second]).T @ table
        else:
            forms = ((table @ f).reshape(len(k), d, -1) * f).sum(axis=1)
            leverage = forms[place.ravel()].T
        leverage = leverage.astype(np.float64, copy=False).reshape(-1, q, q)
        yield slice(start, start + size), np.ascontiguousarray(leverage)


def _pair_losses(eta: Array, p: Array, leverage: Array, entries: Entries) -> tuple[Array, Array]:
    cell, t = entries.cell, entries.target[:, 1]
    x, p, h = eta[cell], p[cell], entries.single * leverage[cell]
    slack = 1.0 - h * p * (1.0 - p)
    h /= np.where(np.abs(slack) >= 1e-3, slack, 1e-3)
    moved = x + np.clip(h * (p - t), -MOST, MOST)
    inside, outside = (
        np.maximum(v, 0.0) + np.log(1.0 + np.exp(-np.abs(v))) - t * v for v in (x, moved)
    )
    return inside, outside


def _many_losses(at: list[Array], leverage: Array, entries: Any, first_order: float) -> Array:
    """Leave-one-out losses of entries (cell, membership, weight, group or −1), by series.

    A series that would not converge soon is solved for.
    """
    from ..kernels.sums import leave_out_by_series

    (eta, p), (cell, target, single, _) = at, entries
    q, out = p.shape[1], np.full(len(cell), np.nan)
    leave_out_by_series(
        eta, p, leverage, *entries, (first_order, _SERIES, MOST), np.empty((5, q)), out
    )
    if len(left := np.flatnonzero(np.isnan(out))):
        m, prob, omega = leverage[cell[left]], p[cell[left]], single[left, None, None]
        curve = prob[:, :, None] * (np.eye(q) - prob[:, None, :])
        pull = omega * (m @ (prob - target[left, 1:])[:, :, None])
        step = solve_each(np.eye(q) - omega * (m @ curve), pull)[:, :, 0]
        moved = eta[cell[left]] + np.clip(step, -MOST, MOST)
        out[left] = softmax(moved.T)[0] - (target[left, 1:] * moved).sum(axis=1)
    return out


def solve_each(matrices: Array, right: Array) -> NDArray[Any]:
    """Solutions of many systems."""
    try:
        return np.linalg.solve(matrices, right)
    except np.linalg.LinAlgError:  # singular as far as rounding can tell
        return np.linalg.pinv(matrices) @ right
