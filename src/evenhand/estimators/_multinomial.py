"""Penalized multinomial logistic regression on cells, with leave-one-out losses in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotri

from .._core.arrays import Array
from ._newton import Chord, cholesky, damped_newton
from .ranks import Cells

# Cells times squared parameters from which a Hessian in single precision pays.
_LARGE = 5e6
_MAX_STEPS = 60
# Squared Newton decrement over all rows after which one more step is the last. Stopping at 0.1 left
# leverages of a smoother fit, rough ones looked good, and estimates moved by 0.04 standard errors.
_ENOUGH = 1e-3
# Up to this norm of ωMV one term of its series is enough where losses need not be exact: the rest
# is far below the error of the one Newton step. Up to the second it converges soon.
_FIRST_ORDER, _SERIES = 1e-3, 0.6
# Largest move of a linear predictor.
MOST = 25.0


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

    Their cell, membership and typical weight; and 0, or how far their memberships lie apart.
    """

    cell: NDArray[np.intp]
    target: Array
    single: Array
    spread: Array


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
        share = self.counts.sum(axis=1) + 1e-9
        out = np.zeros((self.free, len(self.functions)))
        out[:, 0] = np.log(share[1:] / share[0])
        return out

    def hessian(self, prob: Array, functions: NDArray[Any] | None = None) -> Array:
        """(qD, qD); its sums in the precision of the functions, which may be others."""
        f = self.functions if functions is None else functions
        d, q, p = len(f), self.free, prob[1:]
        out = np.empty((q, q, d, d))
        if _few(q, d):
            # All blocks in one product: few columns have few products with one another.
            i, j = np.triu_indices(q)
            weights = -(self.total * p)[i] * p[j]
            weights[i == j] += self.total * p
            first, second = np.triu_indices(d)
            blocks = np.empty((len(i), d, d))
            blocks[:, first, second] = weights.astype(f.dtype) @ (f[first] * f[second]).T
            blocks[:, second, first] = blocks[:, first, second]
            out[i, j] = out[j, i] = blocks
        else:
            for k in range(q):
                for other in range(k + 1):
                    rest = (1.0 - p[k]) if k == other else p[other]
                    scaled = f * np.sqrt(self.total * p[k] * rest).astype(f.dtype)
                    block = scaled @ scaled.T
                    out[k, other] = out[other, k] = block if k == other else -block
        between = np.eye(q) - 1.0 / (q + 1)
        np.einsum("ijdd->ijd", out)[:] += between[:, :, None] * self.penalty
        return out.transpose(0, 2, 1, 3).reshape(q * d, q * d)


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
    end = damped_newton(problem.look, theta, begin, 1.0, lambda _: _ENOUGH, _MAX_STEPS, chord)
    if large and not (_single_will_do(mass, end.seen.value) and end.decrement):
        rough = functions
    chord = Chord(factor)
    end = damped_newton(problem.look, *end[:2], 1.0, lambda _: _ENOUGH, _MAX_STEPS, chord)
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
    entries = Entries(cells.cell, cells.target, cells.single, cells.spread)
    losses = left_out_losses(rough, inverse.reshape(q, d, q, d), last.eta, last.prob, entries)
    return Fit(theta, *losses, float(terms), float(squares))


def _single_will_do(mass: float, value: float) -> bool:
    """Whether the Hessian's smallest eigenvalues, 0.05 of a ridge, stand out from the rounding.

    That is about 1e-6 of its largest, a quarter of the rows. Where groups are nearly separated the
    ridge is all there is in some directions that matter.
    """
    return mass < 20_000 and value > 0.2 * mass


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
    inside = softmax(eta)[0][entries.cell] - (entries.target[:, 1:] * eta.T[entries.cell]).sum(
        axis=1
    )
    outside = np.empty(len(entries.cell))
    order = np.argsort(entries.cell, kind="stable")
    cell = entries.cell[order]
    label = np.where(entries.target.max(axis=1) == 1.0, entries.target.argmax(axis=1), -1)
    for part, leverage in _leverages(functions, inverse):
        own = order[slice(*np.searchsorted(cell, (part.start, part.stop)).tolist())]
        here = entries.cell[own] - part.start, entries.target[own], entries.single[own], label[own]
        at = [np.ascontiguousarray(v[:, part].T) for v in (eta, prob[1:])]
        outside[own] = _many_losses(at, leverage, here, 0.0 if exact else _FIRST_ORDER)
    return inside, outside


def _leverages(functions: NDArray[Any], inverse: Array):
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
        leverage = leverage.astype(np.float64).reshape(-1, q, q)
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
    leave_out_by_series(eta, p, leverage, *entries, (first_order, _SERIES), np.empty((5, q)), out)
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
