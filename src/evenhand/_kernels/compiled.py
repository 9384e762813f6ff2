"""Fused passes over rows in Numba: the twins of `reference`, 10 to 100 times faster.

A pass walks the rows in chunks of fixed size; each chunk in blocks that stay in the first cache,
with one short vectorizable loop per operation over columns of the block. A chunk writes its sums
into its own line of a table that is added up in order afterwards, so results do not depend on the
number of threads. Nothing of size n × D or n × K exists at any time.
"""

from __future__ import annotations

import numpy as np

from ..basis import Basis
from .blocks import gram_chunk, moments_chunk, project_chunk, unstandardize_chunk
from .logistic import logistic_chunk, logistic_rows_chunk
from .lspc import backprop_chunk, lspc_chunk, lspc_rows_chunk
from .threads import run_chunks

_NONE = np.empty(0)


def mean_variance(values, weight):
    if not len(values):
        return 0.0, 0.0
    shift = float(values[0])
    out = run_chunks(moments_chunk, len(values), 3, (values, weight, shift))
    mean = out[1] / out[0]
    if mean * mean > 1e6 * (out[2] / out[0] - mean * mean):
        # The first row lies far from the rest, and the difference of squares lost its digits.
        shift += float(mean)
        out = run_chunks(moments_chunk, len(values), 3, (values, weight, shift))
        mean = out[1] / out[0]
    return shift + mean, max(out[2] / out[0] - mean * mean, 0.0)


def _columns(rows, basis: Basis):
    return (
        rows.s, rows.y, rows.codes, rows.probabilities, rows.weight, rows.center, basis.factors,
    )  # fmt: skip


def _contiguous(*arrays):
    return [np.ascontiguousarray(a, dtype=np.float64) for a in arrays]


def gram(rows, basis: Basis):
    d, m, k = basis.n_terms, basis.n_moments, rows.n_groups
    sizes = np.array([d, m, k])
    out = run_chunks(gram_chunk, len(rows.s), m + k * d, (*_columns(rows, basis), sizes))
    cross = out[m:].reshape(k, d)
    # Memberships add up to one, so the first group has what the others leave.
    cross[0] = out[:d] - cross[1:].sum(axis=0)
    return out[:m], cross


def lspc_pass(rows, basis: Basis, weights, beta: float, want_gradient: bool):
    d, k = basis.n_terms, rows.n_groups
    gradient = np.empty(len(rows.s)) if want_gradient else _NONE
    weights, slopes = _contiguous(weights, basis.slopes(weights))
    sizes = np.array([d, basis.n_slopes, k])
    arguments = (*_columns(rows, basis), sizes, weights, slopes, beta)
    out = run_chunks(lspc_chunk, len(rows.s), 1 + k * d, arguments, (gradient,))
    return float(out[0]), out[1:].reshape(k, d), gradient if want_gradient else None


def lspc_backprop(rows, basis: Basis, v, form, gradient):
    # (dφ/du)ᵀ·form·φ is the slope of the polynomial ½ φᵀ·form·φ, and memberships add up to one, so
    # the first group's part belongs to the common polynomial too.
    slope = -basis.slopes(0.5 * basis.collapse(form)[None])[0]
    label_slopes = basis.slopes(v)
    slope[: basis.n_slopes] += label_slopes[0]
    tables = _contiguous(label_slopes - label_slopes[0], slope)
    sizes = np.array([len(slope), basis.n_slopes, rows.n_groups])
    arguments = (*_columns(rows, basis), sizes, *tables)
    run_chunks(backprop_chunk, len(rows.s), 0, arguments, (gradient,))


def logistic_pass(rows, basis: Basis, weights, want_hessian: bool, want_gradient: bool):
    d, m, free = basis.n_terms, basis.n_moments, rows.n_groups - 1
    pairs = free * (free + 1) // 2
    gradient = np.empty(len(rows.s)) if want_gradient else _NONE
    weights, slopes = _contiguous(weights, basis.slopes(weights))
    sizes = np.array([d, m, basis.n_slopes, free])
    width = 1 + free * d + (pairs * m if want_hessian else 0)
    arguments = (*_columns(rows, basis), sizes, weights, slopes, want_hessian)
    out = run_chunks(logistic_chunk, len(rows.s), width, arguments, (gradient,))
    score = out[1 : 1 + free * d].reshape(free, d)
    hessian = out[1 + free * d :].reshape(pairs, m) if want_hessian else None
    return float(out[0]), score, hessian, gradient if want_gradient else None


def unstandardize(rows, gradient, scale: float):
    n = len(gradient)
    sums = run_chunks(project_chunk, n, 2, (rows.s, rows.center, gradient)) / max(n, 1)
    factor = float(scale * rows.center[1])
    arguments = (rows.s, rows.weight, rows.center, float(sums[0]), float(sums[1]), factor)
    run_chunks(unstandardize_chunk, n, 0, arguments, (gradient,))


def lspc_row_losses(rows, basis: Basis, weights, inverse, beta: float):
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    sizes = np.array([basis.n_terms, basis.n_moments, rows.n_groups])
    tables = _contiguous(weights, inverse)
    arguments = (*_columns(rows, basis), sizes, *tables, beta)
    run_chunks(lspc_rows_chunk, len(rows.s), 0, arguments, (inside, outside))
    return inside, outside


def logistic_row_losses(rows, basis: Basis, weights, inverse):
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    sizes = np.array([basis.n_terms, basis.n_moments, rows.n_groups - 1])
    tables = _contiguous(weights, inverse)
    arguments = (*_columns(rows, basis), sizes, *tables)
    run_chunks(logistic_rows_chunk, len(rows.s), 0, arguments, (inside, outside))
    return inside, outside
