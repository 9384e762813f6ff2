"""Penalized multinomial logistic regression on cells, with leave-one-out losses in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from .._core.arrays import Array
from ..kernels import Entries
from .ranks import Cells

# Cells times squared parameters from which a Hessian in single precision pays.
_LARGE = 5e6


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


def fit(columns: Array, cells: Cells, penalty: Array, theta: Array | None = None) -> Fit:
    """Minimize −Σ N log p + ½ Σ penalty · θᵀ(I − 11ᵀ/K)θ by damped Newton steps.

    The matrix between groups makes the choice of the reference group immaterial.

    Parameters
    ----------
    columns : (C, D) array
        Basis, the constant first.
    cells : Cells
        Counts N of the groups in each cell.
    penalty : (D,) array
    theta : (K − 1, D) array, optional
        Where to start.
    """
    from ..kernels.splines import softmax_loss

    counts = cells.counts
    c, d = columns.shape
    q = counts.shape[1] - 1
    total = cells.totals
    constant = np.zeros((q, d))
    share = cells.group_totals + 1e-9
    mass = float(share.sum())
    constant[:, 0] = np.log(share[1:] / share[0])
    here, there = _Point(c, q), _Point(c, q)
    penalties = np.tile(penalty, q)

    def look(th: Array, at: _Point) -> None:
        at.theta, at.eta = th, columns @ th.T
        shrink = 0.5 * float((_between(th) * th).ravel() @ penalties)
        at.value = shrink + softmax_loss(at.eta, counts, total, at.prob, at.residual)

    look(constant if theta is None else theta, here)
    # A start from other cells can be far off in the tails, where Newton steps are of no use.
    if theta is None or not here.value < share @ -np.log(share / share.sum()):
        look(constant, here)
    # Most of the time goes into Hessians. One serves for as long as steps with it shrink fast, and
    # a last one, for the last step and the leverages, is found where those steps have led.
    rough = columns.astype(np.float32) if c * (q * d) ** 2 > _LARGE and d > 4 else None
    factor: Array | None = None
    last, gain = rough is None, np.inf
    for _ in range(60):
        slope = here.residual.T @ columns + _between(here.theta) * penalty
        before, last = gain, rough is None
        while True:
            if factor is None or rough is None:
                precise = rough is None or (last and not _single_will_do(mass, here.value))
                basis = columns if precise or rough is None else rough
                factor = _factor(_hessian(basis, total, here.prob, penalty))
            step = dpotrs(factor, slope.ravel(), lower=True)[0]
            gain = float(slope.ravel() @ step)
            # What a Newton step leaves is of the order of its gain squared, over the rows. Stopping
            # sooner would leave the leverages those of a smoother fit, and rough ones looking good.
            small = gain * gain < 1e-6 * min(mass, here.value)
            if last or not small:
                break
            last, factor = True, None
        step = step.reshape(here.theta.shape)
        scale = 1.0
        floor = 1e-10 * abs(here.value)
        while True:
            look(here.theta - scale * step, there)
            if there.value <= here.value + floor or scale < 1e-6:
                break
            scale *= 0.5
        if not there.value <= here.value + floor:
            if rough is None:
                break
            rough, factor = None, None  # single precision may be to blame
            continue
        here, there = there, here
        if last and small:
            break
        if gain > 0.1 * before or scale < 1.0:
            factor = None
    if factor is None or not last:  # out of steps
        factor = _factor(_hessian(columns, total, here.prob, penalty))
    inverse = dpotri(factor, lower=True)[0]
    inverse = np.where(np.tri(q * d, dtype=bool), inverse, inverse.T)
    # S = I − L with L = H⁻¹P, so that tr S = dim − tr L and tr S² = dim − 2 tr L + tr L².
    blocks = inverse.reshape(q * d, q, d)
    lost = ((blocks - blocks.sum(axis=1, keepdims=True) / (q + 1)) * penalty).reshape(q * d, -1)
    terms = q * d - np.trace(lost)
    squares = terms - np.trace(lost) + (lost * lost.T).sum()
    precise = rough is None or not _single_will_do(mass, here.value)
    inside, outside = _losses(
        columns if precise or rough is None else rough, inverse.reshape(q, d, q, d), here, cells
    )
    return Fit(here.theta, inside, outside, float(terms), float(squares))


def _single_will_do(mass: float, value: float) -> bool:
    """Whether the Hessian's smallest eigenvalues, 0.05 of a ridge, stand out from the rounding.

    That is about 1e-6 of its largest, a quarter of the rows. Where groups are nearly separated the
    ridge is all there is in some directions that matter.
    """
    return mass < 20_000 and value > 0.2 * mass


class _Point:
    """Coefficients and what goes with them: predictors, probabilities, residuals, objective."""

    def __init__(self, c: int, q: int):
        self.theta = self.eta = np.empty(0)
        self.prob, self.residual = np.empty((c, q + 1)), np.empty((c, q))
        self.value = np.inf


def _between(theta: Array) -> Array:
    """(I − 11ᵀ/K)θ."""
    if len(theta) == 1:
        return 0.5 * theta
    return theta - theta.sum(axis=0) / (len(theta) + 1)


def _hessian(columns: NDArray[Any], total: Array, prob: Array, penalty: Array) -> Array:
    """Hessian of the penalized loss, (qD, qD); its sums in the precision of the columns."""
    from ..kernels.splines import pair_products, pair_weights, scale_rows

    d, q = columns.shape[1], prob.shape[1] - 1
    if q == 1:
        scaled = np.empty_like(columns)
        scale_rows(columns, prob, total, 1, 1, scaled)
        alone = (scaled.T @ scaled).astype(np.float64, copy=False)
        alone.ravel()[:: d + 1] += 0.5 * penalty
        return alone
    out = np.empty((q, q, d, d))
    if _few(q, d):
        # All blocks in one product: with few columns their pairwise products are a small table.
        upper, blocks = np.triu_indices(d), np.triu_indices(q)
        sums = np.zeros((len(blocks[0]), len(upper[0])))
        parts = _parts(len(columns), len(blocks[0]))
        weights = np.empty((parts[0].stop, len(blocks[0])), dtype=columns.dtype)
        pairs = np.empty((parts[0].stop, len(upper[0])), dtype=columns.dtype)
        for part in parts:
            rows = columns[part]
            pair_weights(prob[part], total[part], weights[: len(rows)])
            pair_products(rows, pairs[: len(rows)])
            sums += weights[: len(rows)].T @ pairs[: len(rows)]
        small = np.empty((len(sums), d, d))
        small[:, upper[0], upper[1]] = sums
        small[:, upper[1], upper[0]] = sums
        out[blocks] = small
        out[blocks[1], blocks[0]] = small
    else:
        scaled = np.empty_like(columns)
        for i in range(q):
            for j in range(i + 1):
                scale_rows(columns, prob, total, i + 1, j + 1, scaled)
                block = scaled.T @ scaled
                out[i, j] = out[j, i] = block if i == j else -block
    between = np.eye(q) - 1.0 / (q + 1)
    np.einsum("ijdd->ijd", out)[:] += between[:, :, None] * penalty
    return out.transpose(0, 2, 1, 3).reshape(q * d, q * d)


@lru_cache(maxsize=8)
def _lower(q: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.tril_indices(q)


def _few(q: int, d: int) -> bool:
    """Whether so many columns have a table of products that is small beside the rest."""
    return q > 1 and d <= (16 if q > 3 else 6)


def _parts(c: int, width: int) -> list[slice]:
    """Cells a few at a time, so that a table of so many columns stays in the cache."""
    size = max(32, 60_000 // width)
    return [slice(start, start + size) for start in range(0, c, size)]


def _factor(hessian: Array) -> Array:
    """Its Cholesky factor, in the lower triangle; of slightly more where rounding calls for it."""
    diagonal = np.einsum("ii->i", hessian)
    jitter = 1e-10 * float(diagonal.sum()) / len(hessian) + 1e-12
    while True:
        diagonal += jitter
        # LAPACK itself: SciPy's wrappers check for longer than small systems take to solve.
        factor, failed = dpotrf(hessian, lower=True, clean=False)
        if not failed:
            return factor
        jitter *= 100.0


def _losses(columns: NDArray[Any], inverse: Array, at: _Point, cells: Cells) -> tuple[Array, Array]:
    """In-sample and leave-one-out loss of every entry, from H⁻¹, (q, D, q, D).

    The leverages φᵀ H⁻¹ φ between the linear predictors of a cell, q × q of them, are made for a
    few cells at a time and used at once.
    """
    from ..kernels.splines import entry_losses, pair_products, row_forms

    c, d = columns.shape
    q = len(inverse)
    k, other = _lower(q)
    blocks = inverse.transpose(0, 2, 1, 3)[k, other]
    place = np.empty((q, q), dtype=np.intp)
    place[k, other] = place[other, k] = np.arange(len(k))
    if _few(q, d):
        upper = np.triu_indices(d)
        twice = np.where(upper[0] == upper[1], 0.5, 1.0)
        table = (blocks + blocks.transpose(0, 2, 1))[:, upper[0], upper[1]] * twice
        table = np.ascontiguousarray(table[place.ravel()].T)
    else:
        table = np.ascontiguousarray(blocks.transpose(1, 0, 2).reshape(d, -1))
    table = table.astype(columns.dtype, copy=False)
    cell, order = cells.cell, None
    if not cells.in_order:
        order = np.argsort(cell, kind="stable")
        cell = cell[order]
    inside, outside = np.empty(len(cell)), np.empty(len(cell))
    parts = _parts(c, table.shape[1])
    bounds = np.searchsorted(cell, [0, *(part.stop for part in parts)]).tolist()
    for part, own in zip(parts, map(slice, bounds[:-1], bounds[1:]), strict=True):
        rows = columns[part]
        if _few(q, d):
            pairs = np.empty((len(rows), len(table)), dtype=rows.dtype)
            pair_products(rows, pairs)
            leverage = pairs @ table
        else:
            forms = row_forms((rows @ table).reshape(-1, len(k), d), rows)
            leverage = forms if q == 1 else forms[:, place.ravel()]
        leverage = leverage.reshape(-1, q, q).astype(np.float64, copy=False)
        entry = own if order is None else order[own]
        entries = Entries(
            cell[own] - part.start, cells.target[entry], cells.single[entry], cells.spread[entry]
        )
        losses = entry_losses(at.eta[part], at.prob[part], leverage, entries)
        inside[entry], outside[entry] = losses
    return inside, outside
