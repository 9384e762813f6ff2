"""NumPy twins of the compiled passes: short, allocating, and the ground truth of the tests.

Shapes: n rows, K groups, D basis terms, F = K − 1 free classes (group 0 is the reference of the
logistic classifier), M monomials. Every sum is Σᵢ over rows with weights ωᵢ.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logsumexp

from ..information.basis import Basis
from . import shards


def _monomials(rows, basis: Basis, count: int):
    m0, i0, m1, i1 = rows.center
    columns = [np.ones(len(rows.s)), (rows.s - m0) * i0]
    if basis.n_variables == 2:
        columns.append((rows.y - m1) * i1)
    for j in range(len(columns), count):
        a, b = basis.factors[j]
        columns.append(columns[a] * columns[b])
    return np.stack(columns[:count])


def _for_moments(rows, basis: Basis):
    """The monomials that `_moments` needs."""
    if rows.s.ndim == 2:
        return basis(rows.s).T
    return _monomials(rows, basis, basis.n_moments)


def _moments(rows, m, weight):
    """Σωm; with any number of variables, where few products coincide, Σωφφᵀ itself, (D²,)."""
    return ((m * weight) @ m.T).ravel() if rows.s.ndim == 2 else m @ weight


def _labels(rows):
    if len(rows.codes):
        return (rows.codes[None, :] == np.arange(rows.n_groups)[:, None]).astype(float)
    return rows.probabilities.T


def _weight(rows):
    return rows.weight if len(rows.weight) else np.ones(len(rows.s))


def mean_variance(values, weight):
    """Weighted mean and variance."""
    weight = weight if len(weight) else np.ones(len(values))
    mean = np.average(values, weights=weight)
    return float(mean), float(np.average((values - mean) ** 2, weights=weight))


def bound_scores(s, mean: float, inverse: float, limit: float):
    """t = limit·tanh(z/limit) of z = (s − mean)·inverse."""
    return limit * np.tanh((s - mean) * inverse / limit)


def unbound_gradient(
    s, t, weight, mean: float, inverse: float, limit: float, gradient, whole: int = 0
) -> None:
    """From ∂/∂t to ∂/∂s, in place; mean and spread are those of s and move with it."""
    weight = weight if len(weight) else np.ones(len(s))
    z = (s - mean) * inverse
    gradient *= 1.0 - (t / limit) ** 2
    sums = np.array([gradient.sum(), gradient @ z])
    constant, along = shards.add(sums) / whole if whole else sums / len(s)
    gradient -= weight * (constant + along * z)
    gradient *= inverse


def gram(rows, basis: Basis):
    """Σωm, (M,), and Φᵀ Ω onehot(a), (K, D)."""
    m = _for_moments(rows, basis)
    w = _weight(rows)
    return _moments(rows, m, w), (_labels(rows) * w) @ m[: basis.n_terms].T


def _softplus(f, beta):
    return (np.maximum(beta * f, 0) + np.log1p(np.exp(-np.minimum(np.abs(beta * f), 700)))) / beta


def lspc_pass(rows, basis: Basis, weights, beta: float, want_gradient: bool):
    """Σω·loss, ΦᵀR (K, D) with R = ω·∂log ρ/∂F, and the part of the gradient through F."""
    m = _monomials(rows, basis, basis.n_terms)
    t, w = _labels(rows), _weight(rows)
    f = weights @ m
    sp = _softplus(f, beta)
    total = sp.sum(axis=0)
    loss = np.log(total) - (t * np.log(sp)).sum(axis=0)
    r = w * (t / sp - 1.0 / total) * expit(np.maximum(beta * f, -700.0))
    slope = basis.slopes(weights) @ m[: basis.n_slopes]
    return float(w @ loss), r @ m.T, (r * slope).sum(axis=0) if want_gradient else None


def lspc_backprop(rows, basis: Basis, by_label, common, scale: float, gradient):
    """gradient ← scale·(gradient + ω·(by_label[a] + common)), in place; polynomials in (u, v)."""
    m = _monomials(rows, basis, len(common))
    t, w = _labels(rows), _weight(rows)
    through_labels = (t * (by_label @ m[: basis.n_slopes])).sum(axis=0)
    gradient += w * (through_labels + common @ m)
    gradient *= scale


def logistic_pass(rows, basis: Basis, weights, want_hessian: bool, finish=None, losses=None):
    """Σω·loss, its negative gradient (F, D), Hessian moments (pairs, M), and a gradient by row.

    With `finish` = (scale, constant, along) that is scale·(∂(−loss)/∂u − ω(constant + along·u)).
    An array `losses` is filled with the loss of each row.
    """
    m = _for_moments(rows, basis)
    t, w = _labels(rows)[1:], _weight(rows)
    phi = m[: basis.n_terms]
    f = weights @ phi
    lse = logsumexp(np.vstack([np.zeros_like(f[:1]), f]), axis=0)
    rho = np.exp(f - lse)
    r = w * (t - rho)
    by_row = lse - (t * f).sum(axis=0)
    if losses is not None:
        losses[:] = by_row
    loss = float(w @ by_row)
    hessian = None
    if want_hessian:
        hessian = np.array(
            [
                _moments(rows, m, w * rho[k] * (float(k == other) - rho[other]))
                for k in range(len(f))
                for other in range(k + 1)
            ]
        )
    gradient = None
    if finish is not None:
        scale, constant, along = finish
        through = (r * (basis.slopes(weights) @ m[: basis.n_slopes])).sum(axis=0)
        gradient = scale * (through - w * (constant + along * m[1]))
    return loss, r @ phi.T, hessian, gradient


def lspc_row_losses(rows, basis: Basis, weights, inverse, beta: float):
    """In-sample and exact leave-one-out losses, (n,) each; `inverse` is G⁻¹ collapsed, (M,)."""
    m = _monomials(rows, basis, basis.n_moments)
    t, w = _labels(rows), _weight(rows)
    f = weights @ m[: basis.n_terms]
    leverage = np.minimum(w * (inverse @ m), 1.0 - 1e-6)
    out = []
    for scores in (f, (f - leverage * t) / (1.0 - leverage)):
        sp = _softplus(scores, beta)
        out.append(np.log(sp.sum(axis=0)) - (t * np.log(sp)).sum(axis=0))
    return out[0], out[1]


def logistic_row_losses(rows, basis: Basis, weights, inverse):
    """In-sample and one-Newton-step leave-one-out losses; `inverse` is (pairs, M)."""
    m = _monomials(rows, basis, basis.n_moments)
    t, w = _labels(rows)[1:], _weight(rows)
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
