"""Leave-one-out losses of many rows and groups: what leaving out costs, by cell and group.

One Newton step without row i moves its scores by (I − ωBA)⁻¹ωB(t − ρ), with the leverage
B = φᵀH⁻¹φ between groups and A = diag(ρ) − ρρᵀ: O(K³) a row. B and ρ are smooth in (s, y) and the
step is of the order of parameters/n, so its effect on the loss is found at the cells of a grid, for
each group, and added to the exact losses of the rows; in the weight ω of a row it is linear to
first order. The few rows whose leverage is not small are done one by one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotri
from scipy.special import logsumexp

from .._core.arrays import Array
from ..kernels import Rows, get_kernels, reference
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
    from ..kernels.grid import leave_out_chunk
    from ..kernels.threads import run_chunks

    assert settled.grid is not None
    grid, n = settled.grid, len(rows.s)
    lower = np.tril(dpotri(settled.curvature.factor, lower=True)[0])
    inverse = (lower + np.tril(lower, -1).T) / n
    polynomials = collapse_inverse(inverse, basis)
    cell, group = np.nonzero(grid.rows.probabilities)
    own, left, norm = _losses_at(
        grid.rows, grid.single, cell, group, basis, settled.weights, polynomials
    )
    extra = np.zeros(grid.rows.probabilities.shape)
    extra[cell, group] = left - own
    outside = np.empty(n)
    arguments = (grid.number, rows.codes, rows.weight, grid.single, extra, inside)
    run_chunks(leave_out_chunk, n, 0, arguments, (outside,))
    norm = norm / grid.single
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
    if not len(rows.codes) or rows.n_groups < _MANY:
        return get_kernels().logistic_row_losses(rows, basis, weights, polynomials)
    # With many groups a series for each row is cheaper than solving a system of them.
    n = len(rows.s)
    single = rows.weight if len(rows.weight) else np.ones(n)
    group = rows.codes.astype(np.intp)
    inside, outside, _ = _losses_at(rows, single, np.arange(n), group, basis, weights, polynomials)
    return inside, outside


def _losses_at(
    places: Rows,
    single: Array,
    place: NDArray[np.intp],
    group: NDArray[np.intp],
    basis: Basis,
    weights: Array,
    polynomials: Array,
) -> tuple[Array, Array, Array]:
    """In-sample and leave-one-out loss of rows of a weight, at a place and of a group each.

    The last result is the norm of ωBA at each place. Entries come place by place.
    """
    from ..kernels.splines import entry_losses

    m = reference.monomials(places, basis, basis.n_moments)
    eta = np.ascontiguousarray((weights @ m[: basis.n_terms]).T)
    scores = np.column_stack([np.zeros(len(eta)), eta])
    prob = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    free, c = len(weights), len(eta)
    both = np.empty((free, free), dtype=np.intp)
    k, other = np.tril_indices(free)
    both[k, other] = both[other, k] = np.arange(len(k))
    inside, outside, norm = np.empty(len(place)), np.empty(len(place)), np.empty(c)
    size = max(1, _BATCH // free**2)
    for start in range(0, c, size):
        part = slice(start, start + size)
        leverage = (m[:, part].T @ polynomials.T)[:, both.ravel()].reshape(-1, free, free)
        inner = prob[part, 1:]
        mean = np.einsum("ckj,cj->ck", leverage, inner)
        spread = np.einsum("ckj,cj->ck", np.abs(leverage - mean[:, :, None]), inner)
        norm[part] = single[part] * spread.max(axis=1)
        own = slice(*np.searchsorted(place, (start, start + size)).tolist())
        target = np.zeros((own.stop - own.start, free + 1))
        target[np.arange(len(target)), group[own]] = 1.0
        inside[own], outside[own] = entry_losses(
            eta[part], prob[part], leverage, place[own] - start, target, single[place[own]],
            np.zeros(len(target)),
        )  # fmt: skip
    return inside, outside, norm
