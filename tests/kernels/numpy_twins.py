"""Compiled passes in NumPy, a few lines each: the ground truth of the tests.

Shapes are those of `evenhand.kernels.numpy_passes`, which holds the passes that run as well.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logsumexp

from evenhand.kernels.basis import Basis
from evenhand.kernels.numpy_passes import labels, logistic_pass, monomials, softplus, weights_of

__all__ = ["logistic_pass", "monomials"]


def gram(rows, basis: Basis):
    """Σωm, (M,), and Φᵀ Ω onehot(a), (K, D)."""
    m = monomials(rows, basis, basis.n_moments)
    w = weights_of(rows)
    return m @ w, (labels(rows) * w) @ m[: basis.n_terms].T


def mean_variance(values, weight):
    """Weighted mean and variance."""
    weight = weight if len(weight) else np.ones(len(values))
    mean = np.average(values, weights=weight)
    return float(mean), float(np.average((values - mean) ** 2, weights=weight))


def bound_scores(s, mean: float, inverse: float, limit: float):
    """t = limit·tanh(z/limit) of z = (s − mean)·inverse."""
    return limit * np.tanh((s - mean) * inverse / limit)


def unbound_gradient(s, t, weight, mean: float, inverse: float, limit: float, gradient) -> None:
    """From ∂/∂t to ∂/∂s, in place; mean and spread are those of s and move with it."""
    weight = weight if len(weight) else np.ones(len(s))
    z = (s - mean) * inverse
    gradient *= 1.0 - (t / limit) ** 2
    sums = np.array([gradient.sum(), gradient @ z])
    constant, along = sums / len(s)
    gradient -= weight * (constant + along * z)
    gradient *= inverse


def lspc_pass(rows, basis: Basis, weights, beta: float, want_gradient: bool):
    """Σω·loss, ΦᵀR (K, D) with R = ω·∂log ρ/∂F, and the part of the gradient through F."""
    m = monomials(rows, basis, basis.n_terms)
    t, w = labels(rows), weights_of(rows)
    f = weights @ m
    sp = softplus(f, beta)
    total = sp.sum(axis=0)
    loss = np.log(total) - (t * np.log(sp)).sum(axis=0)
    r = w * (t / sp - 1.0 / total) * expit(np.maximum(beta * f, -700.0))
    slope = basis.slopes(weights) @ m[: basis.n_slopes]
    return float(w @ loss), r @ m.T, (r * slope).sum(axis=0) if want_gradient else None


def lspc_backprop(rows, basis: Basis, by_label, common, scale: float, gradient):
    """gradient ← scale·(gradient + ω·(by_label[a] + common)), in place; polynomials in (u, v)."""
    m = monomials(rows, basis, len(common))
    t, w = labels(rows), weights_of(rows)
    through_labels = (t * (by_label @ m[: basis.n_slopes])).sum(axis=0)
    gradient += w * (through_labels + common @ m)
    gradient *= scale


def logistic_row_losses(rows, basis: Basis, weights, inverse):
    """In-sample and one-Newton-step leave-one-out losses; `inverse` is (pairs, M)."""
    m = monomials(rows, basis, basis.n_moments)
    t, w = labels(rows)[1:], weights_of(rows)
    f = weights @ m[: basis.n_terms]
    free = len(f)
    lse = logsumexp(np.vstack([np.zeros_like(f[:1]), f]), axis=0)
    rho = np.exp(f - lse)
    leverage = np.empty((len(w), free, free))
    for row, (k, other) in zip(inverse @ m, _pairs(free), strict=True):
        leverage[:, k, other] = leverage[:, other, k] = row * w
    curvature = np.einsum("ki,kl->ikl", rho, np.eye(free)) - np.einsum("ki,li->ikl", rho, rho)
    system = np.eye(free) - leverage @ curvature
    if free == 1:
        system = np.maximum(system, 1e-3)
    step = np.linalg.solve(system, leverage @ (t - rho).T[:, :, None])[:, :, 0]
    left_out = f - step.T
    loo = logsumexp(np.vstack([np.zeros_like(f[:1]), left_out]), axis=0)
    return lse - (t * f).sum(axis=0), loo - (t * left_out).sum(axis=0)


def _pairs(free: int):
    return [(k, other) for k in range(free) for other in range(k + 1)]
