"""The curvature of the fairness term: a factor of low rank, and a bound that is diagonal.

    L(s) = max_W F(s, W)  ⇒  ∂²L = F_ss + F_sW (−F_WW)⁻¹ F_Ws

The second part is what the classifier adds by following the scores. It is positive, of rank
D(K − 1) at most, and all there is at a fair score: F_ss is made of slopes of the classifier in the
score, which vanish there.

"lspc" is no maximum. Its weights follow least squares, W' = M, and ∂²L holds
F_sW M + MᵀF_Ws − MᵀIM with I = −F_WW. Whatever M is, that is at most F_sW I⁻¹ F_Ws (complete the
square), so the factor is built alike, with the Fisher information of its probabilities for I.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from .._core import shards
from .._core.arrays import Array
from ..estimators._newton import objective_at
from ..estimators.lspc import LSPCTerm
from ..estimators.spline_term import SplineTerm
from ..kernels import Rows, reference
from ..kernels.basis import Basis

# Rows of a block: what is made of them stays in the cache.
BLOCK = 4096
# Directions of the weights with less curvature than this share of the largest are rounding.
LEAST_SHARE = 1e-13


def low_rank_factor(
    term: Any, rows: Rows, z: Array, slope: Array | None, inverse: float, moves: bool
) -> Array:
    """B with BBᵀ = F_sW (−F_WW)⁻¹ F_Ws of L = mean log ρ, one term: (n, r), r ≤ D(K − 1).

    Parameters
    ----------
    term : LogisticTerm, LSPCTerm or SplineTerm
    rows : Rows
        As the classifier sees them.
    z : (n,) array
        The standardized score.
    slope : (n,) array or None
        dt/dz of the map from z to what the classifier sees; None where that is z itself.
    inverse : float
        1/spread of the scores.
    moves : bool
        Whether their mean and spread move with them.
    """
    root = weights_root(term, rows, inverse)
    out, plain, along = own_parts(term, rows, z, slope, root)
    if moves:
        for block, part in _blocks(rows):
            out[block] -= taken_by_moments(part.weight, z[block], plain, along)
    return out


def weights_root(term: Any, rows: Rows, inverse: float, share: float = 1.0) -> Array:
    """What F_sW is multiplied by: R of RRᵀ = (−F_WW)⁻¹, per row and per unit of the score.

    `share` is that of these rows among all that the penalty is for.
    """
    basis, weights = term.basis, term.weights_at(rows)
    if isinstance(term, LSPCTerm):
        information = _lspc_information(rows, basis, weights, term.beta)
    elif isinstance(term, SplineTerm):
        information = term.tabulate(rows, share).information(weights)
    else:
        information = objective_at(rows, basis, weights, share * term.kappa)[2]
    return _inverse_root(information) * inverse / np.sqrt(rows.n)


def own_parts(
    term: Any, rows: Rows, z: Array, slope: Array | None, root: Array
) -> tuple[Array, Array, Array]:
    """What each row's score does to its own terms, (n, r), with means of that and of that times z.

    The means are what a moving mean and spread take from every row.
    """
    weights = term.weights_at(rows)
    out = np.empty((len(rows.s), root.shape[1]))
    plain, along = np.zeros(root.shape[1]), np.zeros(root.shape[1])
    for block, part in _blocks(rows):
        if isinstance(term, LSPCTerm):
            cross = _lspc_cross(part, term.basis, weights, term.beta)
        elif isinstance(term, SplineTerm):
            cross = term.cross(part, weights)
        else:
            cross = _logistic_cross(part, term.basis, weights)
        if slope is not None:
            cross *= slope[block]
        own = cross.T @ root
        plain += own.sum(axis=0)
        along += z[block] @ own
        out[block] = own
    if rows.whole:
        plain, along = shards.add(plain, along)
    return out, plain / rows.n, along / rows.n


def taken_by_moments(weight: Array, z: Array, plain: Array, along: Array) -> Array:
    out = np.multiply.outer(z, along)
    out += plain
    return out * weight[:, None] if len(weight) else out


def diagonal_bound(factor: Array) -> Array:
    """d_i = ‖B_i‖·λmax(Σ_j B_jB_jᵀ/‖B_j‖), for which BBᵀ ≤ diag(d).

    For whoever can use one number a row only, as boosting libraries do. BBᵀ ≤ diag(d) is
    Σ B_jB_jᵀ/d_j ≤ I; numbers in proportion to the norms satisfy it at a smaller sum than one
    common number does.

    Parameters
    ----------
    factor : (n, r) array
        B of :meth:`BoundRegularizer.value_grad_curvature`.

    Returns
    -------
    (n,) array
        Zero in rows of zeros, which have no curvature.
    """
    norms = np.sqrt(np.einsum("ij,ij->i", factor, factor))
    if not factor.shape[1] or not (norms.any() or shards.active()):
        return norms
    share = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return norms * np.linalg.eigvalsh(shards.add((factor * share[:, None]).T @ factor))[-1]


def _blocks(rows: Rows) -> Iterator[tuple[slice, Rows]]:
    for start in range(0, len(rows.s), BLOCK):
        block = slice(start, start + BLOCK)
        columns = {name: getattr(rows, name)[block] for name in _COLUMNS}
        yield block, rows._replace(**columns)


_COLUMNS = ("s", "y", "codes", "probabilities", "weight")


def _inverse_root(information: Array) -> Array:
    """R, (D(K − 1), r), with RRᵀ the inverse of the information where it is not zero."""
    sizes, vectors = np.linalg.eigh(information)
    keep = sizes > LEAST_SHARE * sizes[-1]
    return vectors[:, keep] / np.sqrt(sizes[keep])


def _scores(rows: Rows, basis: Basis, weights: Array) -> tuple[Array, Array, Array, Array]:
    """φ and dφ/du, (D, n); f and df/du, (classes, n)."""
    m = reference.monomials(rows, basis, basis.n_terms)
    slopes = basis.slopes(np.eye(basis.n_terms)) @ m[: basis.n_slopes]
    return m, slopes, weights @ m, weights @ slopes


def _assemble(residual: Array, change: Array, phi: Array, slopes: Array) -> Array:
    """d(residual_k·φ_j)/du, (D(K − 1), n), in the order of the classifier's Hessian."""
    out = residual[:, None] * slopes
    out += change[:, None] * phi
    return out.reshape(-1, phi.shape[1])


def _logistic_cross(rows: Rows, basis: Basis, weights: Array) -> Array:
    phi, slopes, f, moving = _scores(rows, basis, weights)
    if len(f) == 1:
        rho = expit(f)
        change = -rho * (1.0 - rho) * moving
    else:
        rho = softmax(np.vstack([np.zeros_like(f[:1]), f]), axis=0)[1:]
        change = -rho * (moving - (rho * moving).sum(axis=0))
    residual = reference.labels(rows)[1:] - rho
    if len(rows.weight):
        residual, change = residual * rows.weight, change * rows.weight
    return _assemble(residual, change, phi, slopes)


def _lspc_ratios(f: Array, beta: float) -> tuple[Array, Array, Array, Array]:
    """ρ, (log sp)', (log sp)'' and sp''/Σsp of each class."""
    sp = reference.softplus(f, beta)
    first = expit(np.maximum(beta * f, -700.0))
    second = beta * first * (1.0 - first)
    total = sp.sum(axis=0)
    return sp / total, first / sp, second / sp - (first / sp) ** 2, second / total


def _lspc_cross(rows: Rows, basis: Basis, weights: Array, beta: float) -> Array:
    phi, slopes, f, moving = _scores(rows, basis, weights)
    rho, ratio, bend, last = _lspc_ratios(f, beta)
    t = reference.labels(rows)
    mean = rho * ratio
    residual = t * ratio - mean
    change = (t * bend - last) * moving + mean * (mean * moving).sum(axis=0)
    # The weights of all classes add up to a constant, so the first one moves against the others.
    residual, change = residual[1:] - residual[0], change[1:] - change[0]
    if len(rows.weight):
        residual, change = residual * rows.weight, change * rows.weight
    return _assemble(residual, change, phi, slopes)


def _lspc_information(rows: Rows, basis: Basis, weights: Array, beta: float) -> Array:
    """Σω φφᵀ ⊗ (covariance of ∂log ρ/∂f under ρ), in the weights of all classes but the first."""
    free, terms = rows.n_groups - 1, basis.n_terms
    out = np.zeros((free, terms, free, terms))
    for _, part in _blocks(rows):
        phi, _, f, _ = _scores(part, basis, weights)
        rho, ratio, _, _ = _lspc_ratios(f, beta)
        mean = rho * ratio
        if len(part.weight):
            weighted = phi * part.weight
        else:
            weighted = phi
        own, shift = mean * ratio, mean[1:] - mean[0]
        for k in range(free):
            for other in range(k + 1):
                size = own[0] - shift[k] * shift[other]
                if k == other:
                    size = size + own[k + 1]
                out[k, :, other] += (weighted * size) @ phi.T
    if rows.whole:
        out = shards.add(out)
    for k in range(free):
        for other in range(k):
            out[other, :, k] = out[k, :, other].T
    return out.reshape(free * terms, free * terms)
