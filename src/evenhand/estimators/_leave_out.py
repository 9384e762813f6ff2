"""Losses of rows whose whole cluster was left out of the fit.

    logistic       w₋c = w − (H − H_c)⁻¹ u_c     one Newton step, H_c and u_c the cluster's sums,
                                                 over rows or over the cells of a fold of clusters
    least squares  W₋c = (G − G_c)⁻¹ (C − C_c)   exact

A row that shares a cluster with others in the fit is not left out by leaving out the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .._core.arrays import Array
from ..data.weights import deal_by_first_row
from ..kernels import Rows, numpy_passes
from ..kernels.basis import Basis
from .ranks import Cells, sums

# Entries of all matrices that are held, and solved with, at a time.
HELD = 2_000_000
# Where solving for every cluster takes more operations than this, several are left out at a time,
# in no fewer parts than that: the bias of leaving out more is then in the second digit of the bias.
MOST_OPERATIONS, LEAST_PARTS = 200_000_000, 100
# Of a part's own curvature this share stays, so that what is left is never singular.
STAYS = 1e-3


class _Block(NamedTuple):
    """Rows of some parts, one part after the other."""

    rows: NDArray[np.intp]
    part: NDArray[np.intp]  # of each row, from 0
    starts: NDArray[np.intp]
    phi: Array
    label: Array  # (n, K)
    weight: Array


def parts(cluster: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Part of each row: its cluster or, of very many, several clusters together.

    `size` is that of the system to be solved for each part.
    """
    return deal_by_first_row(cluster, max(LEAST_PARTS, MOST_OPERATIONS // size**3))


def _blocks(rows: Rows, basis: Basis, cluster: NDArray[np.intp], size: int) -> Iterator[_Block]:
    part = parts(cluster, size)
    order = np.argsort(part, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(part))])
    step = max(HELD // size**2, 1)
    center = rows.center
    for first in range(0, len(ends) - 1, step):
        bounds = ends[first : first + step + 1]
        at = order[bounds[0] : bounds[-1]]
        z = [(rows.s[at] - center[0]) * center[1]]
        if basis.n_variables == 2:
            z.append((rows.y[at] - center[2]) * center[3])
        if len(rows.codes):
            label = (rows.codes[at][:, None] == np.arange(rows.n_groups)).astype(float)
        else:
            label = rows.probabilities[at]
        weight = rows.weight[at] if len(rows.weight) else np.ones(len(at))
        phi = basis(np.column_stack(z))
        yield _Block(at, part[at] - first, bounds - bounds[0], phi, label, weight)


def logistic_losses(
    rows: Rows, basis: Basis, weights: Array, hessian: Array, cluster: NDArray[np.intp]
) -> tuple[Array, Array]:
    """In-sample losses and those without the row's cluster, (n,) each.

    Parameters
    ----------
    rows : Rows
    basis : Basis
    weights : (K − 1, D) array
        The fit to all rows.
    hessian : ((K − 1)·D, (K − 1)·D) array
        Of its objective, penalty included, summed over rows.
    cluster : (n,) array of numbers
    """
    from ..kernels.sums import logistic_sums

    free, terms = weights.shape
    size = free * terms
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    for block in _blocks(rows, basis, cluster, size):
        label = block.label.T
        f = np.vstack([np.zeros(len(block.rows)), weights @ block.phi.T])
        lse = _log_sum(f)
        inside[block.rows] = lse - (label * f).sum(axis=0)
        rho = np.exp(f[1:] - lse)
        count = len(block.starts) - 1
        score, curve = np.zeros((count, size)), np.zeros((count, size, size))
        free_columns = (np.ascontiguousarray(label[1:].T), np.ascontiguousarray(rho.T))
        logistic_sums(block.phi, *free_columns, block.weight, block.starts, score, curve)
        step = _solve(hessian - (1.0 - STAYS) * curve, score[:, :, None])[:, :, 0]
        step = step.reshape(count, free, terms)
        for k in range(free):
            f[k + 1] -= np.einsum("id,id->i", step[:, k][block.part], block.phi)
        outside[block.rows] = _log_sum(f) - (label * f).sum(axis=0)
    return inside, outside


def least_squares_losses(
    rows: Rows, basis: Basis, weights: Array, gram: Array, beta: float, cluster: NDArray[np.intp]
) -> tuple[Array, Array]:
    """In-sample losses and those without the row's cluster, (n,) each.

    Parameters
    ----------
    rows : Rows
    basis : Basis
    weights : (K, D) array
        The fit to all rows.
    gram : (D, D) array
        ΦᵀΩΦ + κI.
    beta : float
        Sharpness of the softplus.
    cluster : (n,) array of numbers
    """
    from ..kernels.sums import least_squares_sums

    groups, terms = weights.shape
    total = weights @ gram
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    for block in _blocks(rows, basis, cluster, max(terms, groups)):
        count = len(block.starts) - 1
        cross, own = np.zeros((count, groups, terms)), np.zeros((count, terms, terms))
        label = np.ascontiguousarray(block.label)
        least_squares_sums(block.phi, label, block.weight, block.starts, cross, own)
        left = total - (1.0 - 1e-6) * cross
        solved = _solve(gram - (1.0 - 1e-6) * own, left.transpose(0, 2, 1))
        f_in = block.phi @ weights.T
        f_out = np.empty_like(f_in)
        for k in range(groups):
            f_out[:, k] = np.einsum("id,id->i", solved[:, :, k][block.part], block.phi)
        for f, out in ((f_in, inside), (f_out, outside)):
            sp = numpy_passes.softplus(f, beta)
            out[block.rows] = np.log(sp.sum(axis=1)) - (block.label * np.log(sp)).sum(axis=1)
    return inside, outside


def losses_without_fold(columns: Array, cells: Cells, penalty: Array, theta: Array) -> Array:
    """−log p of every entry after one Newton step to the fit without its fold.

    With g and H the gradient and Hessian of the fold's own part of the loss at the fit of all, the
    step is (H_all − H)⁻¹ g. A step that goes wrong, as it can where a fold holds most of a group,
    is bounded in the linear predictor.

    Parameters
    ----------
    columns : (C, D) array
    cells : Cells
        With folds.
    penalty : (D,) array
    theta : (K − 1, D) array
        The fit to all rows.
    """
    assert cells.fold is not None
    k, d = cells.counts.shape[1], columns.shape[1]
    q = k - 1
    between = np.kron(np.eye(q) - 1.0 / k, np.diag(penalty))
    eta = columns @ theta.T
    prob = _softmax(eta)
    whole = _hessian(columns, cells.counts.sum(axis=1), prob) + between
    out = np.empty(len(cells.weight))
    for fold in np.unique(cells.fold):
        entries = np.flatnonzero(cells.fold == fold)
        place, own = np.unique(cells.cell[entries], return_inverse=True)
        share = cells.weight[entries][:, None] * cells.target[entries]
        counts = np.stack([sums(own, v, len(place)) for v in share.T], axis=1)
        total = counts.sum(axis=1)
        here, p = columns[place], prob[place]
        slope = (total[:, None] * p - counts)[:, 1:].T @ here
        left = whole - _hessian(here, total, p)
        left[np.diag_indices(q * d)] += 1e-9 * np.trace(whole) / (q * d)
        try:
            step = scipy.linalg.solve(left, slope.ravel(), assume_a="pos", check_finite=False)
        except np.linalg.LinAlgError:
            step = np.linalg.lstsq(left, slope.ravel(), rcond=1e-10)[0]
        moved = eta[place] + np.clip(here @ step.reshape(q, d).T, -25.0, 25.0)
        loss = -np.log(np.maximum(_softmax(moved), 1e-300))
        out[entries] = (cells.target[entries] * loss[own]).sum(axis=1)
    return out


def _log_sum(f: Array) -> Array:
    """log Σ_k exp f_k over the first axis."""
    top = f.max(axis=0)
    return top + np.log(np.exp(f - top).sum(axis=0))


def _solve(matrices: Array, right: Array) -> NDArray[Any]:
    try:
        return np.linalg.solve(matrices, right)
    except np.linalg.LinAlgError:  # singular as far as rounding can tell
        return np.linalg.pinv(matrices, hermitian=True) @ right


def _softmax(eta: Array) -> Array:
    """(C, K) probabilities; group 0 has predictor 0."""
    full = np.concatenate([np.zeros((1, len(eta))), eta.T])
    return np.exp(full - _log_sum(full)).T


def _hessian(columns: Array, total: Array, prob: Array) -> Array:
    q, d = prob.shape[1] - 1, columns.shape[1]
    out = np.empty((q, d, q, d))
    for i in range(q):
        for j in range(i + 1):
            p = prob[:, i + 1]
            w = total * p * ((i == j) - prob[:, j + 1])
            out[i, :, j] = out[j, :, i] = columns.T @ (w[:, None] * columns)
    return out.reshape(q * d, q * d)
