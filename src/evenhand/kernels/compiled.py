"""Fused passes over rows in Numba: 10 to 100 times faster than NumPy.

A pass walks the rows in chunks of fixed size; a chunk writes its sums into its own line of a table
that is added up in order afterwards, so results do not depend on the number of threads. Two groups
known by their codes take one loop over rows that works in registers (`pairs`), more of them such a
loop for each group over blocks of rows (`many`). Everything else goes in blocks that stay in the
first cache, with one short vectorizable loop per operation over columns of the block. Nothing of
size n × D or n × K exists at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import bounded, many, pairs
from .blocks import gram_chunk, moments_chunk
from .logistic import logistic_chunk, logistic_rows_chunk
from .lspc import backprop_chunk, lspc_chunk, lspc_rows_chunk
from .threads import CHUNK, run_chunks

if TYPE_CHECKING:
    from .basis import Basis


_NONE = np.empty(0)
# Tables that rows are gathered on before these are added up.
_TABLES = 64


def moments(values, weight):
    """Sum of the weights, mean and variance."""
    weight = weight if len(weight) else None
    shift = float(values[0]) if len(values) else 0.0
    out = run_chunks(moments_chunk, len(values), 3, (values, weight, shift))
    if not out[0]:  # a shard without rows, or without weight
        return 0.0, 0.0, 0.0
    mean = out[1] / out[0]
    if mean * mean > 1e6 * (out[2] / out[0] - mean * mean):
        # The first row lies far from the rest, and the difference of squares lost its digits.
        shift += float(mean)
        out = run_chunks(moments_chunk, len(values), 3, (values, weight, shift))
        mean = out[1] / out[0]
    return out[0], shift + mean, max(out[2] / out[0] - mean * mean, 0.0)


def bound_scores(s, mean: float, inverse: float, limit: float):
    out = np.empty(len(s))
    run_chunks(bounded.map_chunk, len(s), 0, (s, mean, inverse, limit), (out,))
    return out


def unbound_gradient(rows, s, mean: float, inverse: float, limit: float, gradient) -> None:
    weight = rows.weight if len(rows.weight) else None
    scores = (s, rows.s)
    sums = run_chunks(bounded.sums_chunk, len(s), 2, (*scores, mean, inverse, limit, gradient))
    means = (float(v) / rows.n for v in rows.sums.add(sums))
    arguments = (*scores, weight, mean, inverse, limit, *means)
    run_chunks(bounded.back_chunk, len(s), 0, arguments, (gradient,))


def deposit(t, place, weight, limit: float, places: int, width: int):
    """Weights of rows at (place, t) on a table of nodes, (places, width): see `bounded`."""
    weight = weight if len(weight) else None
    arguments = (t, place, weight, limit, width)
    # A table for each chunk: few chunks, however many rows there are.
    chunk = max(CHUNK, -(-len(t) // _TABLES))
    out = run_chunks(bounded.deposit_chunk, len(t), places * width, arguments, chunk=chunk)
    return out.reshape(places, width)


def add_slopes(t, place, weight, limit: float, table, scale: float, gradient) -> None:
    """gradient += scale·ω·∂table/∂t at (place, t), for a table as of `deposit`."""
    weight = weight if len(weight) else None
    arguments = (t, place, weight, limit, table.shape[1], table.ravel(), scale)
    run_chunks(bounded.slope_chunk, len(t), 0, arguments, (gradient,))


def _columns(rows, basis: Basis):
    return (
        rows.s, rows.y, rows.codes, rows.probabilities, rows.weight, rows.center, basis.factors,
    )  # fmt: skip


def _is_pair(rows) -> bool:
    return len(rows.codes) > 0 and rows.n_groups == 2


def _columns_or_none(rows):
    y = rows.y if len(rows.y) else None
    weight = rows.weight if len(rows.weight) else None
    return rows.s, y, rows.codes, weight, rows.center


def _zeros(count: int):
    """Tells a kernel of `pairs` a length by the type of its argument."""
    return (0.0,) * count


def _contiguous(*arrays):
    return [np.ascontiguousarray(a, dtype=np.float64) for a in arrays]


def gram(rows, basis: Basis):
    d, m, k = basis.n_terms, basis.n_moments, rows.n_groups
    if _is_pair(rows):
        arguments = (*_columns_or_none(rows), _zeros(d), _zeros(m))
        out = run_chunks(pairs.gram_chunk, len(rows.s), m + d, arguments)
        cross = np.stack([out[:d], out[m:]])
    elif len(rows.codes):
        arguments = (*_columns_or_none(rows), _zeros(d), _zeros(m))
        out = run_chunks(many.gram_chunk, len(rows.s), m + k * d, arguments)
        return rows.sums.add(out[:m], out[m:].reshape(k, d))
    else:
        arguments = (*_columns(rows, basis), np.array([d, m, k]))
        out = run_chunks(gram_chunk, len(rows.s), m + k * d, arguments)
        cross = out[m:].reshape(k, d)
    # Memberships add up to one, so the first group has what the others leave.
    cross[0] = out[:d] - cross[1:].sum(axis=0)
    return rows.sums.add(out[:m], cross)


def lspc_pass(rows, basis: Basis, weights, beta: float, want_gradient: bool):
    d, k = basis.n_terms, rows.n_groups
    gradient = np.empty(len(rows.s)) if want_gradient else None
    weights, slopes = _contiguous(weights, basis.slopes(weights))
    if len(rows.codes):
        likes = (_zeros(d), _zeros(basis.n_slopes))
        kernel: Any = (pairs if _is_pair(rows) else many).lspc_chunk
        output = gradient
        arguments = (*_columns_or_none(rows), weights, slopes, beta, *likes)
    else:
        sizes = np.array([d, basis.n_slopes, k])
        kernel, output = lspc_chunk, gradient if want_gradient else _NONE
        arguments = (*_columns(rows, basis), sizes, weights, slopes, beta)
    out = rows.sums.add(run_chunks(kernel, len(rows.s), 1 + k * d, arguments, (output,)))
    return float(out[0]), out[1:].reshape(k, d), gradient


def lspc_backprop(rows, basis: Basis, by_label, common, scale: float, gradient):
    # Memberships add up to one, so the first group's part belongs to the common polynomial too.
    common = common.copy()
    common[: basis.n_slopes] += by_label[0]
    by_label, common = _contiguous(by_label - by_label[0], common)
    if len(rows.codes):
        likes = (_zeros(basis.n_slopes), _zeros(len(common)))
        two = _is_pair(rows)
        kernel: Any = (pairs if two else many).backprop_chunk
        arguments = (
            *_columns_or_none(rows),
            by_label[1] if two else by_label,
            common,
            scale,
            *likes,
        )
    else:
        sizes = np.array([len(common), basis.n_slopes, rows.n_groups])
        kernel = backprop_chunk
        arguments = (*_columns(rows, basis), sizes, by_label, common, scale)
    run_chunks(kernel, len(rows.s), 0, arguments, (gradient,))


def logistic_pass(rows, basis: Basis, weights, want_hessian: bool, finish=None, losses=None):
    d, m, free = basis.n_terms, basis.n_moments, rows.n_groups - 1
    blocks = free * (free + 1) // 2
    gradient, ending, slopes = None, np.zeros(3), np.zeros((free, basis.n_slopes))
    if finish is not None:
        gradient, ending = np.empty(len(rows.s)), np.array(finish, dtype=np.float64)
        slopes = basis.slopes(weights)
    weights, slopes = _contiguous(weights, slopes)
    if not (want_hessian or _is_pair(rows)) and len(rows.codes):
        sides = _zeros(d), _zeros(basis.n_slopes)
        arguments = (*_columns_or_none(rows), weights, slopes, ending, *sides)
        outputs = (gradient, losses)
        out = run_chunks(many.logistic_chunk, len(rows.s), 2 + free * d, arguments, outputs)
        if out[-1] == 0.0:
            out = rows.sums.add(out[:-1])
            return float(out[0]), out[1:].reshape(free, d), None, gradient
    if losses is not None:
        losses[:] = logistic_row_losses(rows, basis, weights, np.zeros((blocks, m)))[0]
    if _is_pair(rows):
        likes = (_zeros(d), _zeros(m if want_hessian else 0), _zeros(basis.n_slopes))
        kernel: Any = pairs.logistic_chunk
        output = gradient
        arguments = (*_columns_or_none(rows), weights, slopes, ending, *likes)
    else:
        sizes = np.array([d, m, basis.n_slopes, free])
        kernel, output = logistic_chunk, _NONE if gradient is None else gradient
        arguments = (*_columns(rows, basis), sizes, weights, slopes, ending, want_hessian)
    width = 1 + free * d + (blocks * m if want_hessian else 0)
    out = rows.sums.add(run_chunks(kernel, len(rows.s), width, arguments, (output,)))
    score = out[1 : 1 + free * d].reshape(free, d)
    hessian = out[1 + free * d :].reshape(blocks, m) if want_hessian else None
    return float(out[0]), score, hessian, gradient


def lspc_row_losses(rows, basis: Basis, weights, inverse, beta: float):
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    sizes = np.array([basis.n_terms, basis.n_moments, rows.n_groups])
    tables = _contiguous(weights, inverse)
    arguments = (*_columns(rows, basis), sizes, *tables, beta)
    run_chunks(lspc_rows_chunk, len(rows.s), 0, arguments, (inside, outside))
    return inside, outside


def logistic_row_losses(rows, basis: Basis, weights, inverse):
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    tables = _contiguous(weights, inverse)
    d, m = basis.n_terms, basis.n_moments
    if _is_pair(rows):
        kernel: Any = pairs.logistic_rows_chunk
        arguments = (*_columns_or_none(rows), *tables, _zeros(d), _zeros(m))
    else:
        kernel = logistic_rows_chunk
        arguments = (*_columns(rows, basis), np.array([d, m, rows.n_groups - 1]), *tables)
    run_chunks(kernel, len(rows.s), 0, arguments, (inside, outside))
    return inside, outside
