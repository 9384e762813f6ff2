"""Losses of rows that were left out of the fit, one by one or with their whole cluster.

    logistic       w₋c = w − (H − H_c)⁻¹ u_c     one Newton step, H_c and u_c the cluster's sums,
                                                 over rows or over the cells of a fold of clusters
    least squares  W₋c = (G − G_c)⁻¹ (C − C_c)   exact

A row that shares a cluster with others in the fit is not left out by leaving out the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotri

from .._core.arrays import Array
from ..data.weights import deal_by_first_row
from ..kernels import Rows, get_kernels, numpy_passes
from ..kernels.basis import Basis
from ._newton import (
    MOST,
    Entries,
    Grid,
    LogisticFit,
    Regression,
    left_out_losses,
    softmax,
    solve_each,
)
from .ranks import Cells, sums

# Entries of all matrices that are held, and solved with, at a time.
HELD = 2_000_000
# Where solving for every cluster takes more operations than this, several are left out at a time,
# in no fewer parts than that: the bias of leaving out more is then in the second digit of the bias.
MOST_OPERATIONS, LEAST_PARTS = 200_000_000, 100
# What leaving out may cost a row that is taken for its cell, in nats.
_SMALL = 0.02
# Groups from which steps of rows are found to first order where they are small.
_MANY = 10
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

    def sum(self, columns: Array) -> Array:
        """Σω·columns over the rows of each part."""
        weight = self.weight.reshape(-1, *[1] * (columns.ndim - 1))
        return np.add.reduceat(weight * columns, self.starts[:-1])

    def sum_squares(self, h: Array) -> Array:
        """Σω·h·φφᵀ over the rows of each part."""
        return self.sum((h[:, None] * self.phi)[:, :, None] * self.phi[:, None])


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
    for first in range(0, len(ends) - 1, step):
        bounds = ends[first : first + step + 1]
        at = order[bounds[0] : bounds[-1]]
        some = numpy_passes.take(rows, at)
        phi = np.ascontiguousarray(numpy_passes.monomials(some, basis, basis.n_terms).T)
        label, weight = numpy_passes.labels(some).T, numpy_passes.weights_of(some)
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
    free, terms = weights.shape
    size = free * terms
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    for block in _blocks(rows, basis, cluster, size):
        label = block.label.T
        f = weights @ block.phi.T
        lse, (_, *rho) = softmax(f)
        inside[block.rows] = lse - (label[1:] * f).sum(axis=0)
        count = len(block.starts) - 1
        score, curve = np.empty((count, free, terms)), np.empty((count, free, terms, free, terms))
        for k in range(free):
            score[:, k] = block.sum(((label[k + 1] - rho[k]) * block.phi.T).T)
            for j in range(k + 1):
                own = block.sum_squares(rho[k] * (float(j == k) - rho[j]))
                curve[:, k, :, j] = curve[:, j, :, k] = own
        left = hessian - (1.0 - STAYS) * curve.reshape(count, size, size)
        step = solve_each(left, score.reshape(count, size, 1)).reshape(count, free, terms)
        for k in range(free):
            f[k] -= np.einsum("id,id->i", step[:, k][block.part], block.phi)
        outside[block.rows] = softmax(f)[0] - (label[1:] * f).sum(axis=0)
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
    groups, terms = weights.shape
    total = weights @ gram
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    for block in _blocks(rows, basis, cluster, max(terms, groups)):
        cross = np.stack([block.sum(t[:, None] * block.phi) for t in block.label.T], axis=1)
        left = total - (1.0 - 1e-6) * cross
        own = block.sum_squares(np.ones(len(block.rows)))
        solved = solve_each(gram - (1.0 - 1e-6) * own, left.transpose(0, 2, 1))
        f_in = block.phi @ weights.T
        f_out = np.empty_like(f_in)
        for k in range(groups):
            f_out[:, k] = np.einsum("id,id->i", solved[:, :, k][block.part], block.phi)
        for f, out in ((f_in, inside), (f_out, outside)):
            sp = numpy_passes.softplus(f, beta)
            out[block.rows] = np.log(sp.sum(axis=1)) - (block.label * np.log(sp)).sum(axis=1)
    return inside, outside


def losses_without_fold(functions: Array, cells: Cells, penalty: Array, theta: Array) -> Array:
    """−log p of every entry after one Newton step to the fit without its fold.

    With g and H the gradient and Hessian of the fold's own part of the loss at the fit of all, the
    step is (H_all − H)⁻¹ g. A step that goes wrong, as it can where a fold holds most of a group,
    is bounded in the linear predictor.

    Parameters
    ----------
    functions : (D, C) array
    cells : Cells
        With folds.
    penalty : (D,) array
    theta : (K − 1, D) array
        The fit to all rows.
    """
    assert cells.fold is not None
    problem = Regression(functions, cells.by_group, penalty)
    at = problem.look(theta)
    whole = problem.hessian(at.prob)
    out = np.empty(len(cells.weight))
    for fold in np.unique(cells.fold):
        entries = np.flatnonzero(cells.fold == fold)
        place, own = np.unique(cells.cell[entries], return_inverse=True)
        share = cells.weight[entries][:, None] * cells.target[entries]
        counts = np.stack([sums(own, v, len(place)) for v in share.T])
        here, p = functions[:, place], at.prob[:, place]
        mine = Regression(here, counts, 0.0 * penalty)
        slope = (mine.total * p - counts)[1:] @ here.T
        left = whole - mine.hessian(p)
        np.einsum("ii->i", left)[:] += 1e-9 * np.trace(whole) / len(whole)
        try:
            step = scipy.linalg.solve(left, slope.ravel(), assume_a="pos", check_finite=False)
        except np.linalg.LinAlgError:
            step = np.linalg.lstsq(left, slope.ravel(), rcond=1e-10)[0]
        move = step.reshape(slope.shape) @ here
        loss = -np.log(
            np.maximum(softmax(at.eta[:, place] + np.clip(move, -MOST, MOST))[1], 1e-300)
        )
        out[entries] = (cells.target[entries] * loss.T[own]).sum(axis=1)
    return out


# ------------------------------------------------------------------------------------------------
# Single rows of many: what leaving out costs, by cell and group.


def leave_out_by_cells(
    rows: Rows, basis: Basis, fit: LogisticFit, grid: Grid
) -> tuple[Array, Array]:
    """In-sample and leave-one-out losses of all rows, (n,) each.

    One Newton step without row i costs O(K³). Leverages and probabilities are smooth in (s, y) and
    the step is of the order of parameters/n, so its effect on the loss is found at the cells of a
    grid, for each group, and added to the exact losses of the rows; in the weight ω of a row it is
    linear to first order. The few rows on which it is not small are done one by one.
    """
    inside, weights = np.empty(len(rows.s)), fit.weights
    get_kernels().logistic_pass(rows, basis, weights, False, None, inside)
    assert fit.chord is not None
    lower = np.tril(dpotri(fit.chord.factor, lower=True)[0])
    inverse = lower + np.tril(lower, -1).T
    cell, group = np.nonzero(grid.rows.probabilities)
    target = np.eye(rows.n_groups)[group]
    entries = Entries(cell, target, grid.single[cell], np.zeros(len(cell)))
    own, left = _losses_at(grid.rows, basis, weights, inverse, entries)
    extra = np.zeros(grid.rows.probabilities.shape)
    extra[cell, group] = left - own
    more = extra.ravel()[grid.number * np.intp(rows.n_groups) + rows.codes]
    if len(rows.weight):
        more *= rows.weight / grid.single[grid.number]
    outside = inside + more
    if len(large := np.flatnonzero(more > _SMALL)):
        some = numpy_passes.take(rows, large)
        outside[large] = leave_out_rows(some, basis, weights, inverse)[1]
    return inside, outside


def leave_out_rows(rows: Rows, basis: Basis, weights: Array, inverse: Array) -> tuple[Array, Array]:
    """In-sample and leave-one-out losses, row by row, from H⁻¹."""
    if len(rows.codes) and rows.n_groups == 2:
        return get_kernels().pair_losses(rows, basis, weights, basis.collapse(inverse)[None])
    out = np.empty((2, len(rows.s)))
    exact = not len(rows.codes) or rows.n_groups < _MANY
    for block, part in numpy_passes.blocks(rows):
        n, target = len(part.s), np.ascontiguousarray(numpy_passes.labels(part).T)
        entries = Entries(np.arange(n), target, numpy_passes.weights_of(part), np.zeros(n))
        out[:, block] = _losses_at(part, basis, weights, inverse, entries, exact)
    return out[0], out[1]


def _losses_at(
    places: Rows, basis: Basis, weights: Array, inverse: Array, entries: Entries,
    exact: bool = False,
) -> tuple[Array, Array]:  # fmt: skip
    phi = numpy_passes.monomials(places, basis, basis.n_terms)
    eta = weights @ phi
    blocks = inverse.reshape(*weights.shape, *weights.shape)
    return left_out_losses(phi, blocks, eta, softmax(eta)[1], entries, exact)
