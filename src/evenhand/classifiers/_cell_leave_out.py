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

from .._kernels import Rows, get_kernels, reference
from ..basis import Basis
from ._cell_newton import Settled

Array = NDArray[np.float64]

# Largest norm of ωBA up to which a row may be taken for its cell.
_SMALL = 0.05
# Numbers in the leverages of a batch of cells.
_BATCH = 4_000_000


def collapse_inverse(inverse: Array, basis: Basis) -> Array:
    """(pairs, M): φᵀH⁻¹φ between groups as polynomials, from H⁻¹."""
    terms = basis.n_terms
    free = len(inverse) // terms
    blocks = inverse.reshape(free, terms, free, terms)
    pairs = [blocks[k, :, other] for k in range(free) for other in range(k + 1)]
    return basis.collapse(np.stack(pairs))


def leave_out(rows: Rows, basis: Basis, settled: Settled, inside: Array) -> tuple[Array, Array]:
    """In-sample and leave-one-out losses of all rows, from the former."""
    from .._kernels.grid import leave_out_chunk
    from .._kernels.threads import run_chunks

    assert settled.grid is not None
    grid, n = settled.grid, len(rows.s)
    lower = np.tril(dpotri(settled.curvature.factor, lower=True)[0])
    inverse = (lower + np.tril(lower, -1).T) / n
    polynomials = collapse_inverse(inverse, basis)
    extra, norm = _by_cell(settled, basis, polynomials)
    outside = np.empty(n)
    arguments = (grid.number, rows.codes, rows.weight, grid.single, extra, inside)
    run_chunks(leave_out_chunk, n, 0, arguments, (outside,))
    weight = rows.weight if len(rows.weight) else 1.0
    large = np.flatnonzero((norm / grid.single)[grid.number] * weight > _SMALL)
    if len(large):
        some = rows._replace(
            s=rows.s[large],
            y=rows.y[large] if len(rows.y) else rows.y,
            codes=rows.codes[large],
            weight=rows.weight[large] if len(rows.weight) else rows.weight,
        )
        outside[large] = get_kernels().logistic_row_losses(
            some, basis, settled.weights, polynomials
        )[1]
    return inside, outside


def _by_cell(settled: Settled, basis: Basis, polynomials: Array) -> tuple[Array, Array]:
    """What leaving out a typical row adds to its loss, (C, K), and the norm of ωBA, (C,)."""
    from .._kernels.splines import entry_losses

    grid = settled.grid
    assert grid is not None
    cells, weights = grid.rows, settled.weights
    m = reference._monomials(cells, basis, basis.n_moments)
    eta = np.ascontiguousarray((weights @ m[: basis.n_terms]).T)
    scores = np.column_stack([np.zeros(len(eta)), eta])
    prob = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    free, c = len(weights), len(eta)
    place = np.empty((free, free), dtype=np.intp)
    k, other = np.tril_indices(free)
    place[k, other] = place[other, k] = np.arange(len(k))
    extra, norm = np.zeros((c, free + 1)), np.empty(c)
    for start in range(0, c, max(1, _BATCH // free**2)):
        part = slice(start, start + max(1, _BATCH // free**2))
        leverage = np.ascontiguousarray((polynomials @ m[:, part]).T[:, place.ravel()])
        leverage = leverage.reshape(-1, free, free)
        inner, single = prob[part, 1:], grid.single[part]
        mean = np.einsum("ckj,cj->ck", leverage, inner)
        spread = np.einsum("ckj,cj->ck", np.abs(leverage - mean[:, :, None]), inner)
        norm[part] = single * spread.max(axis=1)
        cell, group = np.nonzero(cells.probabilities[part])
        target = np.zeros((len(cell), free + 1))
        target[np.arange(len(cell)), group] = 1.0
        inside, outside = entry_losses(
            eta[part], prob[part], leverage, cell, target, single[cell], np.zeros(len(cell))
        )
        extra[start + cell, group] = outside - inside
    return extra, norm
