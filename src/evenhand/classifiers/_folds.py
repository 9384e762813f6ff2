"""Leaving clusters out: the losses of a fit without the fold of clusters that a row belongs to."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ._cells import Cells, sums

Array = NDArray[np.float64]


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


def _softmax(eta: Array) -> Array:
    """(C, K) probabilities; group 0 has predictor 0."""
    full = np.concatenate([np.zeros((len(eta), 1)), eta], axis=1)
    full = np.exp(full - full.max(axis=1, keepdims=True))
    return full / full.sum(axis=1, keepdims=True)


def _hessian(columns: Array, total: Array, prob: Array) -> Array:
    q, d = prob.shape[1] - 1, columns.shape[1]
    out = np.empty((q, d, q, d))
    for i in range(q):
        for j in range(i + 1):
            p = prob[:, i + 1]
            w = total * p * ((i == j) - prob[:, j + 1])
            out[i, :, j] = out[j, :, i] = columns.T @ (w[:, None] * columns)
    return out.reshape(q * d, q * d)
