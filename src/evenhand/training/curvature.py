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

from functools import partial
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from .._core.arrays import Array
from .._core.shards import here
from ..estimators._newton import objective_at
from ..estimators.lspc import LSPCTerm
from ..estimators.spline_term import SplineTerm
from ..kernels import Rows, numpy_passes
from ..kernels.basis import Basis

# Directions of the weights with less curvature than this share of the largest are rounding.
LEAST_SHARE = 1e-13
# Known rows from which boosting takes one bound for several rounds.
MANY_ROWS = 50_000


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
    basis, weights = term.basis, term.weights_at(rows)
    if isinstance(term, LSPCTerm):
        information = _lspc_information(rows, basis, weights, term.beta)
        cross_of = partial(_lspc_cross, basis=basis, weights=weights, beta=term.beta)
    elif isinstance(term, SplineTerm):
        information = term.tabulate(rows).information(weights)
        cross_of = partial(term.cross, weights=weights)
    else:
        information = objective_at(rows, basis, weights, term.kappa)[2]
        cross_of = partial(_logistic_cross, basis=basis, weights=weights)
    # R of RRᵀ = (−F_WW)⁻¹, per row and per unit of the score.
    sizes, vectors = np.linalg.eigh(information)
    keep = sizes > LEAST_SHARE * sizes[-1]
    root = vectors[:, keep] / np.sqrt(sizes[keep]) * inverse / np.sqrt(rows.n)
    out = np.empty((len(rows.s), root.shape[1]))
    # Means of what each row's score does to its own terms, and of that times z: what a moving mean
    # and spread take from every row.
    plain, along = np.zeros(root.shape[1]), np.zeros(root.shape[1])
    for block, part in numpy_passes.blocks(rows):
        cross = cross_of(part)
        if slope is not None:
            cross *= slope[block]
        own = cross.T @ root
        plain += own.sum(axis=0)
        along += z[block] @ own
        out[block] = own
    if not moves:
        return out
    plain, along = rows.sums.add(plain, along)
    for block, part in numpy_passes.blocks(rows):
        taken = np.multiply.outer(z[block], along / rows.n)
        taken += plain / rows.n
        out[block] -= taken * part.weight[:, None] if len(part.weight) else taken
    return out


def diagonal_bound(factor: Array) -> Array:
    """d_i = ‖B_i‖·λmax(Σ_j B_jB_jᵀ/‖B_j‖), for which BBᵀ ≤ diag(d).

    For whoever can use one number per row only, as boosting libraries do. BBᵀ ≤ diag(d) is
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
    if not factor.shape[1]:
        return norms
    share = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return norms * np.linalg.eigvalsh(here().add((factor * share[:, None]).T @ factor))[-1]


def _scores(rows: Rows, basis: Basis, weights: Array) -> tuple[Array, Array, Array, Array]:
    """φ and dφ/du, (D, n); f and df/du, (classes, n)."""
    m = numpy_passes.monomials(rows, basis, basis.n_terms)
    slopes = basis.slopes(np.eye(basis.n_terms)) @ m[: basis.n_slopes]
    return m, slopes, weights @ m, weights @ slopes


def _assemble(rows: Rows, residual: Array, change: Array, phi: Array, slopes: Array) -> Array:
    """d(residual_k·φ_j)/du, (D(K − 1), n), in the order of the classifier's Hessian."""
    if len(rows.weight):
        residual, change = residual * rows.weight, change * rows.weight
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
    return _assemble(rows, numpy_passes.labels(rows)[1:] - rho, change, phi, slopes)


def _lspc_ratios(f: Array, beta: float) -> tuple[Array, Array, Array, Array]:
    """ρ, (log sp)', (log sp)'' and sp''/Σsp of each class."""
    sp = numpy_passes.softplus(f, beta)
    first = expit(np.maximum(beta * f, -700.0))
    second = beta * first * (1.0 - first)
    total = sp.sum(axis=0)
    return sp / total, first / sp, second / sp - (first / sp) ** 2, second / total


def _lspc_cross(rows: Rows, basis: Basis, weights: Array, beta: float) -> Array:
    phi, slopes, f, moving = _scores(rows, basis, weights)
    rho, ratio, bend, last = _lspc_ratios(f, beta)
    t = numpy_passes.labels(rows)
    mean = rho * ratio
    residual = t * ratio - mean
    change = (t * bend - last) * moving + mean * (mean * moving).sum(axis=0)
    # The weights of all classes add up to a constant, so the first one moves against the others.
    residual, change = residual[1:] - residual[0], change[1:] - change[0]
    return _assemble(rows, residual, change, phi, slopes)


def _lspc_information(rows: Rows, basis: Basis, weights: Array, beta: float) -> Array:
    """Σω φφᵀ ⊗ (covariance of ∂log ρ/∂f under ρ), in the weights of all classes but the first."""
    free, terms = rows.n_groups - 1, basis.n_terms
    out = np.zeros((free, terms, free, terms))
    for _, part in numpy_passes.blocks(rows):
        phi, _, f, _ = _scores(part, basis, weights)
        rho, ratio, _, _ = _lspc_ratios(f, beta)
        mean = rho * ratio
        own, shift = mean * ratio, mean[1:] - mean[0]
        size = own[0] - shift[:, None] * shift
        size[range(free), range(free)] += own[1:]
        weighted = phi * part.weight if len(part.weight) else phi
        for k in range(free):
            out[k] += (weighted[:, None] * size[k]) @ phi.T
    return rows.sums.add(out).reshape(free * terms, free * terms)


class RowBound:
    """Ĩ, its gradient, and d of :func:`diagonal_bound`, evaluation after evaluation.

    With splines d is that of the quadratic. A diagonal that bounds all the directions of splines is
    an order of magnitude larger (on LSAC 19 of the loss's own curvature, against 1.3), for turns of
    single rows that no tree makes: steps were too short to be fair, and R² was .18 for .23.

    Parameters
    ----------
    bound : BoundRegularizer
        From `FairnessRegularizer.bind`.
    refresh : int
        Evaluations that one d serves, where rows are many; in between it follows the spread of the
        scores, as 1/Var(s).
    """

    def __init__(self, bound: Any, refresh: int = 1) -> None:
        self._bound, self._curved = bound, bound.simplified()
        self._refresh = refresh if bound.groups.n_total >= MANY_ROWS else 1
        self.forget()

    def forget(self) -> None:
        """Look again next time: the scores will be others."""
        self._age, self._kept, self._inverse = 0, np.zeros(0), 1.0

    def evaluate(self, s: Array, scale: float = 1.0) -> tuple[float, Array, Array]:
        """scale·Ĩ, its gradient and scale·d, for scores that are known to be finite float64."""
        scores = self._bound.read(s)
        value, gradient = self._bound.evaluate(s, scores=scores)
        inverse = scores.center[1]
        if self._age % self._refresh == 0 or self._inverse == 0.0:
            self._kept = diagonal_bound(self._curved.value_grad_curvature(s)[2])
            self._inverse = inverse
        self._age += 1
        ratio = 1.0 if inverse == self._inverse else (inverse / self._inverse) ** 2
        return scale * value, scale * gradient, (scale * ratio) * self._kept
