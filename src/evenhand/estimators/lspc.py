"""Least squares probabilistic classification: one linear solve, no iterations.

W = (ΦᵀΩΦ + κI)⁻¹ ΦᵀΩ onehot(a)
ρ_k(z) = softplus_β(φ(z)·w_k) / Σ_j softplus_β(φ(z)·w_j),  softplus_β(t) = log(1 + e^{βt})/β
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from ..kernels import Rows, get_kernels, numpy_passes
from ..kernels.basis import Basis
from ._leave_out import least_squares_losses
from .base import BasisClassifier

# LAPACK itself: the checks of SciPy's wrappers take longer than solving six equations.


KAPPA = 1e-3
BETA = 30.0


class LSPC(BasisClassifier):
    """Least squares probabilistic classifier (Sugiyama 2010), with a smooth positive part.

    W = (ΦᵀΩΦ + κI)⁻¹ ΦᵀΩ onehot(a), ρ_k ∝ softplus_β(φ·w_k).

    Parameters
    ----------
    basis : {"quadratic", "linear", "degree3"}
        φ of the standardized inputs.
    kappa : float
        κ, in units of rows; the weights Ω have mean 1.
    beta : float
        Sharpness of the softplus; as β grows it tends to max(0, t).
    losses : {"in-sample", "leave-one-out", "balanced"}
        Which loss estimates an entropy. In-sample is the published estimator; leave-one-out comes
        free from the hat matrix, and takes one solve per cluster where rows are clustered;
        "balanced" is their mean.

    See Also
    --------
    evenhand.Logistic
    evenhand.Adaptive
    evenhand.FairRidge

    References
    ----------
    Sugiyama, M. (2010). Superfast-Trainable Multi-Class Probabilistic Classifier by Least-Squares
    Posterior Fitting. IEICE Transactions on Information and Systems E93-D.

    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> value = eh.independence(None, data.s, sensitive_features=data.a, estimator=eh.LSPC())
    >>> 0 < value < 1
    True
    """

    def __init__(
        self,
        basis: str = "quadratic",
        *,
        kappa: float = KAPPA,
        beta: float = BETA,
        losses: str = "in-sample",
    ):
        self.basis = basis
        self.kappa = kappa
        self.beta = beta
        self.losses = losses

    def _row_losses(self, rows, basis):
        weights, factor = solve(rows, basis, self.kappa)
        inverse = basis.collapse(dpotrs(factor, np.eye(basis.n_terms))[0])
        return numpy_passes.lspc_row_losses(rows, basis, weights, inverse, self.beta)

    def _cluster_losses(self, rows, basis, cluster):
        weights, factor = solve(rows, basis, self.kappa)
        upper = np.triu(factor)
        return least_squares_losses(rows, basis, weights, upper.T @ upper, self.beta, cluster)


def solve(rows: Rows, basis: Basis, kappa: float, free: bool = False):
    """W, (K, D), and the Cholesky factor of G = ΦᵀΩΦ + κI, intercepts without κ if `free`."""
    moments, cross = get_kernels().gram(rows, basis)
    return _solve(moments, cross, basis, kappa, free)


def _solve(moments, cross, basis: Basis, kappa: float, free: bool = False):
    if not kappa >= 0:
        raise ValueError(f"`kappa` must be nonnegative, got {kappa}.")
    g = basis.gram(moments)
    # A constant column makes G singular at κ = 0; a ridge at the level of rounding settles it.
    floor = np.finfo(float).eps * np.trace(g)
    penalty = np.full(basis.n_terms, max(kappa, floor))
    if free:
        penalty[0] = floor
    factor, failed = dpotrf(g + np.diag(penalty))
    if failed:
        raise np.linalg.LinAlgError("the moments of the basis are not positive definite")
    return dpotrs(factor, cross.T)[0].T, factor


class LSPCTerm:
    """L = mean log ρ(a|z) and its gradient in the scores.

    With R = ∂L/∂F and V = G⁻¹ΦᵀR the gradient is
    ∂L/∂φᵢ = W Rᵢ + ωᵢ V onehot(aᵢ) − ωᵢ (V Wᵀ + W Vᵀ) φᵢ, chained through φ(u) and through
    u = (s − mean)/spread.

    With penalized intercepts Σ_k φ·w_k is a curve instead of 1 where κ is large, and training finds
    scores that make use of it; hence the choice to leave intercepts `free`.
    """

    def __init__(self, basis: Basis, kappa: float = KAPPA, beta: float = BETA, free: bool = False):
        self.basis, self.kappa, self.beta, self.free = basis, kappa, beta, free

    def warm_start(self, other: LSPCTerm) -> None:
        """Nothing to carry over: the solve is direct."""

    def weights_at(self, rows: Rows) -> NDArray[np.float64]:
        """The weights, (K, D)."""
        return solve(rows, self.basis, self.kappa, self.free)[0]

    def value(self, rows: Rows) -> float:
        weights, _ = solve(rows, self.basis, self.kappa, self.free)
        loss, _, _ = get_kernels().lspc_pass(rows, self.basis, weights, self.beta, False)
        return -loss / rows.n

    def value_and_grad(
        self, rows: Rows, scale: float, rough: bool = False
    ) -> tuple[float, NDArray[np.float64]]:
        """L and scale·∂L/∂s, which are exact whether or not a `rough` answer would do."""
        kernels, basis, n = get_kernels(), self.basis, rows.n
        moments, cross = kernels.gram(rows, basis)
        weights, factor = _solve(moments, cross, basis, self.kappa, self.free)
        loss, residual, gradient = kernels.lspc_pass(rows, basis, weights, self.beta, True)
        v = dpotrs(factor, residual.T)[0].T
        form = v.T @ weights
        by_label = basis.slopes(v)
        # Σⱼ (dφⱼ/du)(form·φ)ⱼ is the slope of the polynomial ½ φᵀ·form·φ for a symmetric form.
        common = -basis.slopes(0.5 * basis.collapse(form + form.T)[None])[0]
        if rows.moves:
            # Mean and spread move with every score: what they take is Σg and Σg·u, known from sums.
            parts = [
                basis.totals(basis.slopes(weights), residual),
                basis.totals(by_label, cross),
                basis.totals(common, moments),
            ]
            common[:2] -= np.sum(parts, axis=0) / n
        factor_s = scale * float(rows.center[1]) / n
        kernels.lspc_backprop(rows, basis, by_label, common, factor_s, gradient)
        return -loss / n, gradient
