"""Leave-one-out losses of many rows and groups: what leaving out costs, by cell and group.

One Newton step without row i moves its scores by (I − ωBA)⁻¹ωB(t − ρ), with the leverage
B = φᵀH⁻¹φ between groups and A = diag(ρ) − ρρᵀ: O(K³) a row. B and ρ are smooth in (s, y) and the
step is of the order of parameters/n, so its effect on the loss is found at the cells of a grid, for
each group, and added to the exact losses of the rows; in the weight ω of a row it is linear to
first order. The few rows whose leverage is not small are done one by one.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotri
from scipy.special import softmax

from .._core.arrays import Array
from ..kernels import Entries, Rows, get_kernels, numpy_passes
from ..kernels.basis import Basis
from ._cell_newton import Settled

# Largest norm of ωBA up to which a row may be taken for its cell.
_SMALL = 0.05
# Numbers in the leverages of a batch of places.
_BATCH = 1_000_000
# Groups from which rows are done by series.
_MANY = 10


def collapse_inverse(inverse: Array, basis: Basis) -> Array:
    """(pairs, M): φᵀH⁻¹φ between groups as polynomials, from H⁻¹."""
    terms = basis.n_terms
    free = len(inverse) // terms
    blocks = inverse.reshape(free, terms, free, terms)
    pairs = [blocks[k, :, other] for k in range(free) for other in range(k + 1)]
    return basis.collapse(np.stack(pairs))


def leave_out(rows: Rows, basis: Basis, settled: Settled, inside: Array) -> tuple[Array, Array]:
    """In-sample and leave-one-out losses of all rows, from the former."""
    assert settled.grid is not None
    grid, n = settled.grid, len(rows.s)
    lower = np.tril(dpotri(settled.curvature.factor, lower=True)[0])
    inverse = (lower + np.tril(lower, -1).T) / n
    polynomials = collapse_inverse(inverse, basis)
    cell, group = np.nonzero(grid.rows.probabilities)
    entries = Entries(cell, np.eye(rows.n_groups)[group], grid.single[cell], np.zeros(len(cell)))
    own, left, norm = _losses_at(grid.rows, entries, basis, settled.weights, polynomials)
    extra = np.zeros(grid.rows.probabilities.shape)
    extra[cell, group] = left - own
    more = extra[grid.number, rows.codes]
    if len(rows.weight):
        more *= rows.weight / grid.single[grid.number]
    outside = inside + more
    heaviest = float(rows.weight.max()) if len(rows.weight) else 1.0
    large = np.empty(0, dtype=np.intp)
    if float(norm.max()) * heaviest > _SMALL:
        weight = rows.weight if len(rows.weight) else 1.0
        large = np.flatnonzero(norm[grid.number] * weight > _SMALL)
    if len(large):
        some = rows._replace(
            s=rows.s[large],
            y=rows.y[large] if len(rows.y) else rows.y,
            codes=rows.codes[large],
            weight=rows.weight[large] if len(rows.weight) else rows.weight,
        )
        outside[large] = leave_out_each(some, basis, settled.weights, polynomials)[1]
    return inside, outside


def leave_out_each(
    rows: Rows, basis: Basis, weights: Array, polynomials: Array
) -> tuple[Array, Array]:
    """In-sample and leave-one-out losses, row by row."""
    if len(rows.codes) and rows.n_groups == 2:
        return get_kernels().pair_losses(rows, basis, weights, polynomials)
    n, exact = len(rows.s), not len(rows.codes) or rows.n_groups < _MANY
    target = np.ascontiguousarray(numpy_passes.labels(rows).T)
    entries = Entries(np.arange(n), target, numpy_passes.weights_of(rows), np.zeros(n))
    inside, outside, _ = _losses_at(rows, entries, basis, weights, polynomials, exact)
    return inside, outside


def _losses_at(
    places: Rows,
    entries: Entries,
    basis: Basis,
    weights: Array,
    polynomials: Array,
    exact: bool = False,
) -> tuple[Array, Array, Array]:
    """In-sample and leave-one-out loss of rows of a weight, at a place and of a group each.

    The last result is the norm of BA at each place. Entries come place by place.
    """
    from ..kernels.splines import entry_losses

    free = len(weights)
    both = np.empty((free, free), dtype=np.intp)
    k, other = np.tril_indices(free)
    both[k, other] = both[other, k] = np.arange(len(k))
    losses, norm = np.empty((2, len(entries.cell))), np.empty(len(places.s))
    for part, rows in numpy_passes.blocks(places, max(1, _BATCH // free**2)):
        m = numpy_passes.monomials(rows, basis, basis.n_moments)
        eta = np.ascontiguousarray((weights @ m[: basis.n_terms]).T)
        prob = softmax(np.column_stack([np.zeros(len(eta)), eta]), axis=1)
        leverage = (m.T @ polynomials.T)[:, both.ravel()].reshape(-1, free, free)
        mean = np.einsum("ckj,cj->ck", leverage, prob[:, 1:])
        gap = np.abs(leverage - mean[:, :, None])
        norm[part] = np.einsum("ckj,cj->ck", gap, prob[:, 1:]).max(axis=1)
        own = slice(*np.searchsorted(entries.cell, (part.start, part.stop)).tolist())
        here = Entries(entries.cell[own] - part.start, *(column[own] for column in entries[1:]))
        losses[:, own] = entry_losses(eta, prob, leverage, here, exact)
    return losses[0], losses[1], norm
