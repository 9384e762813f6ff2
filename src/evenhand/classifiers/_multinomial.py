"""Penalized multinomial logistic regression on cells, with leave-one-out losses in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ._cells import Cells

Array = NDArray[np.float64]


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
    from .._kernels.splines import entry_losses, softmax_loss

    counts = cells.counts
    c, d = columns.shape
    k = counts.shape[1]
    total = counts.sum(axis=1)
    mass = float(total.sum())
    between = np.eye(k - 1) - 1.0 / k
    constant = np.zeros((k - 1, d))
    share = counts.sum(axis=0) + 1e-9
    constant[:, 0] = np.log(share[1:] / share[0])
    prob, trial_prob = np.empty((c, k)), np.empty((c, k))

    def objective(th: Array, out: Array) -> tuple[float, Array]:
        eta = columns @ th.T
        shrink = 0.5 * float(((between @ th) * th * penalty).sum())
        return softmax_loss(eta, counts, out) + shrink, eta

    value, eta = objective(constant if theta is None else theta, prob)
    # A start from other cells can be far off in the tails, where Newton steps are of no use.
    if theta is None or not value < share @ -np.log(share / share.sum()):
        theta = constant
        value, eta = objective(theta, prob)
    for _ in range(40):
        slope = (total[:, None] * prob - counts)[:, 1:].T @ columns + (between @ theta) * penalty
        factor = _factor(_hessian(columns, total, prob, penalty, between))
        step = scipy.linalg.cho_solve(factor, slope.ravel(), check_finite=False)
        gain = float(slope.ravel() @ step)
        step = step.reshape(theta.shape)
        scale = 1.0
        while True:
            trial = theta - scale * step
            trial_value, trial_eta = objective(trial, trial_prob)
            if trial_value <= value + 1e-10 * abs(value) or scale < 1e-6:
                break
            scale *= 0.5
        if not trial_value <= value + 1e-10 * abs(value):
            break
        theta, value, eta = trial, trial_value, trial_eta
        prob, trial_prob = trial_prob, prob
        # What a Newton step leaves is of the order of its gain squared, over the rows. Stopping
        # sooner would leave the leverages those of a smoother fit, and rough ones looking good.
        if gain * gain < 1e-6 * min(mass, value):
            break
    leverage, inverse = _leverage(columns, factor, k - 1)
    inner = prob[:, 1:]
    weighted = total[:, None] * inner
    terms = np.einsum("ckk,ck->", leverage, weighted) - np.einsum(
        "ck,ck->", np.einsum("ckj,cj->ck", leverage, inner), weighted
    )
    # S = I − L with L = H⁻¹P, so that tr S² = dim − 2 tr L + tr L².
    lost = (np.einsum("idje,jk->idke", inverse, between) * penalty).reshape(slope.size, -1)
    squares = slope.size - 2.0 * np.trace(lost) + (lost * lost.T).sum()
    inside, outside = entry_losses(
        eta, prob, leverage, cells.cell, cells.target, cells.single, cells.spread
    )
    return Fit(theta, inside, outside, float(terms), float(squares))


def _hessian(columns: Array, total: Array, prob: Array, penalty: Array, between: Array) -> Array:
    d, q = columns.shape[1], prob.shape[1] - 1
    out = np.empty((q, q, d, d))
    if q > 3 and d <= 16:
        # All blocks in one product: with few columns their pairwise products are a small table.
        upper = np.triu_indices(d)
        pairs = columns[:, upper[0]] * columns[:, upper[1]]
        blocks = np.triu_indices(q)
        weights = -prob[:, blocks[0] + 1] * prob[:, blocks[1] + 1]
        weights[:, blocks[0] == blocks[1]] += prob[:, 1:]
        sums = (weights * total[:, None]).T @ pairs
        small = np.empty((len(sums), d, d))
        small[:, upper[0], upper[1]] = sums
        small[:, upper[1], upper[0]] = sums
        out[blocks] = small
        out[blocks[1], blocks[0]] = small
    else:
        for i in range(q):
            for j in range(i + 1):
                p = prob[:, i + 1]
                w = total * p * ((1.0 - p) if i == j else prob[:, j + 1])
                scaled = columns * np.sqrt(w)[:, None]
                block = scaled.T @ scaled
                out[i, j] = out[j, i] = block if i == j else -block
    diagonal = np.arange(d)
    out[:, :, diagonal, diagonal] += between[:, :, None] * penalty
    return out.transpose(0, 2, 1, 3).reshape(q * d, q * d)


def _factor(hessian: Array) -> tuple[Array, bool]:
    jitter = 1e-10 * float(np.trace(hessian)) / len(hessian) + 1e-12
    while True:
        hessian[np.diag_indices(len(hessian))] += jitter
        try:
            return scipy.linalg.cho_factor(hessian, lower=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            jitter *= 100.0


def _leverage(columns: Array, factor: tuple[Array, bool], q: int) -> tuple[Array, Array]:
    """(C, q, q): φᵀ H⁻¹ φ between the linear predictors of each cell; (q, D, q, D): H⁻¹."""
    c, d = columns.shape
    blocks = scipy.linalg.cho_solve(factor, np.eye(q * d), check_finite=False)
    blocks = blocks.reshape(q, d, q, d)
    if q > 3 and d <= 16:
        upper = np.triu_indices(d)
        pairs = columns[:, upper[0]] * columns[:, upper[1]]
        pairs[:, upper[0] != upper[1]] *= 2.0
        table = blocks.transpose(0, 2, 1, 3)
        table = 0.5 * (table + table.transpose(0, 1, 3, 2))
        flat = table[:, :, upper[0], upper[1]].reshape(q * q, -1)
        return (pairs @ flat.T).reshape(c, q, q), blocks
    out = np.empty((c, q, q))
    for i in range(q):
        for j in range(i + 1):
            m = np.einsum("cd,cd->c", columns @ blocks[i, :, j], columns)
            out[:, i, j] = out[:, j, i] = m
    return out, blocks
