"""Passes over rows in Numba, fused and threaded: 10 to 100 times faster than NumPy.

A pass walks the rows in chunks of fixed size; a chunk writes its sums into its own line of a table
that is added up in order afterwards, so results do not depend on the number of threads. Nothing of
size n × D or n × K exists at any time. Sums over the rows of one shard are added up over all
workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.threads import CHUNK, run_chunks
from . import chunks, numpy_passes

if TYPE_CHECKING:
    from .basis import Basis

# Tables that rows are gathered on before these are added up.
_TABLES = 64
# Rows up to which NumPy does as well as kernels that take 0.5 s to compile: with it fits take 1 %
# longer, and value and gradient 5 to 14 %.
_FEW = 8192


def moments(values, weight):
    """Sum of the weights, mean and variance."""
    weight = weight if len(weight) else None
    shift = float(values[0]) if len(values) else 0.0

    def sums():
        if len(values) > _FEW:
            return run_chunks(chunks.moments_chunk, len(values), 3, (values, weight, shift))
        x = values - shift
        wx = x if weight is None else weight * x
        return np.array([len(x) if weight is None else weight.sum(), wx.sum(), wx @ x])

    out = sums()
    if not out[0]:  # a shard without rows, or without weight
        return 0.0, 0.0, 0.0
    mean = out[1] / out[0]
    if mean * mean > 1e6 * (out[2] / out[0] - mean * mean):
        # The first row lies far from the rest, and the difference of squares lost its digits.
        shift += float(mean)
        out = sums()
        mean = out[1] / out[0]
    return out[0], shift + mean, max(out[2] / out[0] - mean * mean, 0.0)


def bound_scores(s, mean: float, inverse: float, limit: float):
    """t = limit·tanh(z/limit) of z = (s − mean)·inverse."""
    out = np.empty(len(s))
    run_chunks(chunks.bound_chunk, len(s), 0, (s, mean, inverse, limit), (out,))
    return out


def unbound_gradient(rows, s, mean: float, inverse: float, limit: float, gradient) -> None:
    """From ∂/∂t to ∂/∂s, in place, of rows at t; mean and spread of s move with it."""
    weight = rows.weight if len(rows.weight) else None
    if len(s) <= _FEW:
        z = (s - mean) * inverse
        gradient *= 1.0 - rows.s * rows.s * (1.0 / (limit * limit))
        plain, along = rows.sums.add(np.array([gradient.sum(), gradient @ z])) / rows.n
        gradient -= (z * along + plain) * (1.0 if weight is None else weight)
        gradient *= inverse
        return
    scale = (mean, inverse, limit)
    sums = run_chunks(chunks.bound_sums_chunk, len(s), 2, (s, rows.s, *scale, gradient))
    plain, along = rows.sums.add(sums) / rows.n
    arguments = (s, rows.s, weight, *scale, (float(plain), float(along)))
    run_chunks(chunks.unbound_chunk, len(s), 0, arguments, (gradient,))


def deposit(t, place, weight, limit: float, places: int, width: int):
    """Weights of rows at (place, t) on a table of nodes, (places, width): see `chunks`."""
    arguments = (t, place, weight if len(weight) else None, limit, width)
    # A table for each chunk: few chunks, however many rows there are.
    chunk = max(CHUNK, -(-len(t) // _TABLES))
    out = run_chunks(chunks.deposit_chunk, len(t), places * width, arguments, chunk=chunk)
    return out.reshape(places, width)


def add_slopes(t, place, weight, limit: float, table, scale: float, gradient) -> None:
    """gradient += scale·ω·∂table/∂t at (place, t), for a table as of `deposit`."""
    arguments = (t, place, weight if len(weight) else None, limit, table, scale)
    run_chunks(chunks.slope_chunk, len(t), 0, arguments, (gradient,))


def _columns(rows) -> chunks.Columns:
    return chunks.Columns(
        rows.s,
        rows.y if len(rows.y) else None,
        rows.codes if len(rows.codes) else np.ascontiguousarray(rows.probabilities.T),
        rows.weight if len(rows.weight) else None,
        tuple(rows.center.tolist()),
    )


def _likes(*counts: int):
    """Tells a kernel lengths by the types of tuples."""
    return tuple((0.0,) * count for count in counts)


def _contiguous(*arrays):
    return [np.ascontiguousarray(a, dtype=np.float64) for a in arrays]


def _sums(rows, kernel: Any, width: int, arguments, outputs=()):
    out = run_chunks(kernel, len(rows.s), width, (_columns(rows), *arguments), outputs)
    return rows.sums.add(out)


def gram(rows, basis: Basis):
    """Σωm, (M,), and Φᵀ Ω onehot(a), (K, D)."""
    d, m, k = basis.n_terms, basis.n_moments, rows.n_groups
    out = _sums(rows, chunks.gram_chunk, m + (k - 1) * d, (k, _likes(d, m)))
    cross = out[m:].reshape(k - 1, d)
    # Memberships add up to one, so the first group has what the others leave.
    return out[:m], np.vstack([out[:d] - cross.sum(axis=0), cross])


def lspc_pass(rows, basis: Basis, weights, beta: float, want_gradient: bool):
    """Σω·loss, ΦᵀR (K, D) with R = ω·∂log ρ/∂F, and the part of the gradient through F."""
    d, k = basis.n_terms, rows.n_groups
    gradient = np.empty(len(rows.s)) if want_gradient else None
    tables = _contiguous(weights, basis.slopes(weights))
    arguments = (*tables, beta, _likes(d, basis.n_slopes))
    out = _sums(rows, chunks.lspc_chunk, 1 + k * d, arguments, (gradient,))
    return float(out[0]), out[1:].reshape(k, d), gradient


def lspc_backprop(rows, basis: Basis, by_label, common, scale: float, gradient) -> None:
    """gradient ← scale·(gradient + ω·(by_label[a] + common)), in place; polynomials in (u, v)."""
    # Memberships add up to one, so the first group's part belongs to the common polynomial too.
    common = common.copy()
    common[: basis.n_slopes] += by_label[0]
    tables = _contiguous(by_label - by_label[0], common)
    arguments = (_columns(rows), *tables, scale, _likes(basis.n_slopes, len(common)))
    run_chunks(chunks.backprop_chunk, len(rows.s), 0, arguments, (gradient,))


def logistic_pass(rows, basis: Basis, weights, want_hessian: bool, finish=None, losses=None):
    """Σω·loss, its negative gradient (F, D), Hessian moments (pairs, M), and a gradient by row.

    With `finish` = (scale, constant, along) that is scale·(∂(−loss)/∂u − ω(constant + along·u)).
    An array `losses` is filled with the loss of each row.
    """
    d, m, free = basis.n_terms, basis.n_moments, rows.n_groups - 1
    blocks = free * (free + 1) // 2 if want_hessian else 0
    gradient, slopes = None, np.zeros((free, basis.n_slopes))
    if finish is not None:
        gradient, slopes = np.empty(len(rows.s)), basis.slopes(weights)
    likes = _likes(d, m if want_hessian else 0, basis.n_slopes)
    ending = (0.0, 0.0, 0.0) if finish is None else tuple(float(v) for v in finish)
    arguments = (*_contiguous(weights, slopes), ending, likes)
    width = 1 + free * d + blocks * m
    if free == 1 and losses is None:
        out = _sums(rows, chunks.pair_logistic_chunk, width, arguments, (gradient,))
    else:
        # One sum more: rows whose scores are too far apart for this kernel.
        out = _sums(rows, chunks.logistic_chunk, width + 1, arguments, (gradient, losses))
        if out[width] > 0.0:
            return numpy_passes.logistic_pass(rows, basis, weights, want_hessian, finish, losses)
    score = out[1 : 1 + free * d].reshape(free, d)
    hessian = out[1 + free * d : width].reshape(blocks, m) if want_hessian else None
    return float(out[0]), score, hessian, gradient


def pair_losses(rows, basis: Basis, weights, inverse):
    """In-sample and one-Newton-step leave-one-out losses of two groups known by their codes.

    `inverse` is H⁻¹ as a polynomial, (1, M).
    """
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    tables, likes = _contiguous(weights, inverse), _likes(basis.n_terms, basis.n_moments)
    arguments = (_columns(rows), *tables, likes)
    run_chunks(chunks.pair_losses_chunk, len(rows.s), 0, arguments, (inside, outside))
    return inside, outside
