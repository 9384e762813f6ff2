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

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from .._core.arrays import Array
from .._core.shards import here
from ..estimators._newton import objective_at
from ..estimators.logistic import every, every_from
from ..estimators.lspc import LSPCTerm
from ..estimators.spline_term import SplineTerm
from ..kernels import Rows, numpy_passes
from ..kernels.basis import Basis

if TYPE_CHECKING:
    from .bound import Scores

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
        for block, part in numpy_passes.blocks(rows):
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
    for block, part in numpy_passes.blocks(rows):
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
    plain, along = rows.sums.add(plain, along)
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
    if not factor.shape[1]:
        return norms
    share = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    return norms * np.linalg.eigvalsh(here().add((factor * share[:, None]).T @ factor))[-1]


def _inverse_root(information: Array) -> Array:
    """R, (D(K − 1), r), with RRᵀ the inverse of the information where it is not zero."""
    sizes, vectors = np.linalg.eigh(information)
    keep = sizes > LEAST_SHARE * sizes[-1]
    return vectors[:, keep] / np.sqrt(sizes[keep])


def _scores(rows: Rows, basis: Basis, weights: Array) -> tuple[Array, Array, Array, Array]:
    """φ and dφ/du, (D, n); f and df/du, (classes, n)."""
    m = numpy_passes.monomials(rows, basis, basis.n_terms)
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
    residual = numpy_passes.labels(rows)[1:] - rho
    if len(rows.weight):
        residual, change = residual * rows.weight, change * rows.weight
    return _assemble(residual, change, phi, slopes)


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
    if len(rows.weight):
        residual, change = residual * rows.weight, change * rows.weight
    return _assemble(residual, change, phi, slopes)


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


# ------------------------------------------------------------------------------------------------
# The diagonal bound of the curvature over many rows, without a factor of n × r numbers.
#
#     d(s, y, a) = ω·‖B(s, y, a)‖·λmax(Σ_j B_jB_jᵀ/‖B_j‖)
#
# A row of B depends on its score, its target and its group alone, up to its weight. Some rows give
# the sums, a table over bins of score and target gives the norms, and each row looks its own up:
# two passes over the rows instead of a hundred.


# Rows from which a table pays, and rows that give the sums.
LEAST_ROWS, SAMPLE_ROWS = 50_000, 20_000
# Bins of score and target, and with many groups.
BINS, FEWER_BINS, MANY_GROUPS = (128, 24), (64, 8), 8
# Scores beyond so many spreads share the bin at the end.
REACH = 5.0
# Rows that are looked up at a time, in the cache.
ROW_BLOCK = 16_384


class RowBound:
    """Ĩ, its gradient, and d of :func:`diagonal_bound`, evaluation after evaluation.

    With splines d is that of the quadratic. A diagonal that bounds all the directions of splines is
    an order of magnitude larger (on LSAC 19 of the loss's own curvature, against 1.3), for turns of
    single rows that no tree makes: steps were too short to be fair, and R² was .18 for .23.

    Parameters
    ----------
    bound : BoundRegularizer
        From `FairnessRegularizer.bind`.
    least_rows : int
        Known rows from which d comes from a table; it is then right to the width of a bin and to
        what a sample of rows knows of a sum over all.
    refresh : int
        Evaluations that one look at the table serves; in between d follows the spread of the
        scores, as 1/Var(s).
    """

    def __init__(self, bound: Any, least_rows: int = LEAST_ROWS, refresh: int = 1) -> None:
        self._bound, self._curved, self._refresh = bound, bound.simplified(), refresh
        self.forget()
        self._tabulated = bound.is_tabular and bound.groups.n_total >= least_rows
        if not self._tabulated:
            return
        rows = self._curved.joint_rows
        n_scores, n_targets = BINS if rows.n_groups <= MANY_GROUPS else FEWER_BINS
        self._place = rows.codes.astype(np.int32)
        self._targets = np.zeros(0)
        if len(bound.criterion.joint) > 1:
            stride = max(bound.groups.n_total // SAMPLE_ROWS, 1)
            some = rows.y[every_from(rows._replace(s=rows.y), stride) :: stride]
            some = np.concatenate(rows.sums.gather_objects(some))
            cuts = np.quantile(some, np.arange(1, 2 * n_targets) / (2 * n_targets))
            self._targets = cuts[::2]
            self._place += rows.n_groups * np.searchsorted(cuts[1::2], rows.y).astype(np.int32)
        self._cells = rows.n_groups * max(len(self._targets), 1)
        self._z = REACH * ((2.0 * np.arange(n_scores) + 1.0) / n_scores - 1.0)

    def forget(self) -> None:
        """Look again next time: the scores will be others."""
        self._age, self._kept, self._inverse = 0, np.zeros(0, dtype=np.float32), 0.0

    def evaluate(
        self, s: Array, scale: float = 1.0, rough: bool = False
    ) -> tuple[float, Array, NDArray[Any]]:
        """scale·Ĩ, its gradient and scale·d, for scores that are known to be finite float64.

        From a table, d is in float32.
        """
        bound, curved = self._bound, self._curved
        if not self._tabulated:
            value, gradient, factor = curved.value_grad_curvature(s)
            if curved is not bound:
                value, gradient = bound.value_and_grad(s)
            return scale * value, scale * gradient, scale * diagonal_bound(factor)
        value, gradient = bound.evaluate(s, scale, rough)
        scores = curved.read(s)
        if scores.constant:
            return value, gradient, np.zeros(len(s))
        inverse = scores.center[1]
        if self._age % self._refresh == 0:
            if curved is not bound:
                curved.evaluate_read(s, scores, rough=rough)
            self._kept, self._inverse = bound.groups.put_known(self._look_up(scores)), inverse
        self._age += 1
        return value, gradient, self._kept * np.float32(scale * (inverse / self._inverse) ** 2)

    def _look_up(self, scores: Scores) -> NDArray[np.float32]:
        table = self._table(scores).astype(np.float32)
        mean, inverse = scores.center
        n_scores, out = len(self._z), np.empty(len(scores.known), dtype=np.float32)
        ratio = n_scores / (2.0 * REACH)
        for start in range(0, len(out), ROW_BLOCK):
            block = slice(start, start + ROW_BLOCK)
            at = (scores.known[block] - mean) * (inverse * ratio)
            at += REACH * ratio
            np.clip(at, 0, n_scores - 1, out=at)
            place = at.astype(np.int32)
            place *= self._cells
            place += self._place[block]
            np.take(table, place, out=out[block], mode="clip")
        weight = self._bound.groups.weight
        return out if weight is None else out * weight.astype(np.float32)

    def _table(self, scores: Scores) -> Array:
        """d of a row of weight 1 in each bin of the score, of the target, and group: flat."""
        bound = self._curved
        term, rows = bound.joint_term, scores.rows[bound.criterion.joint]
        mean, inverse = scores.center
        n, stride = rows.n, max(rows.n // SAMPLE_ROWS, 1)
        some = every(rows, stride)
        share = some.n / n
        z = (scores.known[every_from(rows, stride) :: stride] - mean) * inverse
        root = share * weights_root(term, some, inverse, share)
        own, plain, along = own_parts(term, some, z, scores.slope(some.s), root)
        own -= taken_by_moments(some.weight, z, plain, along)
        norms = np.linalg.norm(own, axis=1)
        keep = norms > 0
        own = own[keep] / np.sqrt(norms[keep, None])
        size = float(np.linalg.eigvalsh(rows.sums.add(own.T @ own))[-1]) / share
        at = self._cell_rows(rows, scores)
        z = np.repeat(self._z, self._cells)
        own, _, _ = own_parts(term, at, z, scores.slope(at.s), root)
        own -= taken_by_moments(at.weight, z, plain, along)
        return size / bound.normalizer * np.linalg.norm(own, axis=1)

    def _cell_rows(self, rows: Rows, scores: Scores) -> Rows:
        n_scores, n_groups = len(self._z), rows.n_groups
        n_targets = max(len(self._targets), 1)
        seen = scores.seen(self._z)
        y = np.tile(np.repeat(self._targets, n_groups), n_scores)
        codes = np.tile(np.arange(n_groups), n_scores * n_targets).astype(rows.codes.dtype)
        return rows._replace(
            s=np.repeat(seen, self._cells), y=y, codes=codes, weight=rows.weight[:0], whole=0
        )
