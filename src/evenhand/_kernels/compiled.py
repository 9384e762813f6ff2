"""Fused passes over rows in Numba: the twins of `reference`, 10 to 100 times faster.

A pass walks the rows in chunks of fixed size; each chunk in blocks that stay in the first cache,
with one short vectorizable loop per operation over columns of the block. A chunk writes its sums
into its own line of a table that is added up in order afterwards, so results do not depend on the
number of threads. Nothing of size n × D or n × K exists at any time.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..basis import Basis
from .mathfun import exp_nonpositive, log1p_unit, log_positive
from .threads import CHUNK, run_chunks

BLOCK = 256

_jit = njit(cache=True, nogil=True, error_model="numpy")
# Sums may be reordered and fused within a block (that is what vectorizes them), always in the
# same way; nothing else may, or the rounding tricks in `mathfun` would be optimized away.
_jit_sum = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@_jit_sum
def _dot(a, b, n):
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return total


@_jit_sum
def _dots(r, columns, count, n, out, at):
    """out[at + j] += r·columns[j], three columns a sweep."""
    j = 0
    while j + 3 <= count:
        a, b, c = columns[j], columns[j + 1], columns[j + 2]
        x, y, z = 0.0, 0.0, 0.0
        for i in range(n):
            x += r[i] * a[i]
            y += r[i] * b[i]
            z += r[i] * c[i]
        out[at + j] += x
        out[at + j + 1] += y
        out[at + j + 2] += z
        j += 3
    while j < count:
        out[at + j] += _dot(r, columns[j], n)
        j += 1


@_jit_sum
def _product(a, n):
    total = 1.0
    for i in range(n):
        total *= a[i]
    return total


@_jit_sum
def _sum(a, n):
    total = 0.0
    for i in range(n):
        total += a[i]
    return total


@_jit
def _combine(coefficients, columns, count, out, n):
    """out = Σⱼ coefficients[j]·columns[j], where columns[0] is 1; five columns a sweep."""
    c0 = coefficients[0]
    for i in range(n):
        out[i] = c0
    j = 1
    while j + 5 <= count:
        c1, c2, c3 = coefficients[j], coefficients[j + 1], coefficients[j + 2]
        c4, c5 = coefficients[j + 3], coefficients[j + 4]
        m1, m2, m3 = columns[j], columns[j + 1], columns[j + 2]
        m4, m5 = columns[j + 3], columns[j + 4]
        for i in range(n):
            out[i] += ((c1 * m1[i] + c2 * m2[i]) + (c3 * m3[i] + c4 * m4[i])) + c5 * m5[i]
        j += 5
    while j + 2 <= count:
        c1, c2 = coefficients[j], coefficients[j + 1]
        m1, m2 = columns[j], columns[j + 1]
        for i in range(n):
            out[i] += c1 * m1[i] + c2 * m2[i]
        j += 2
    if j < count:
        c1, m1 = coefficients[j], columns[j]
        for i in range(n):
            out[i] += c1 * m1[i]


@_jit
def _load(s, y, center, factors, count, start, n, m):
    """Monomials of the standardized block into m[:count]."""
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    one, u = m[0], m[1]
    for i in range(n):
        one[i] = 1.0
        u[i] = (s[start + i] - m0) * i0
    first = 2
    if len(y):
        v = m[2]
        for i in range(n):
            v[i] = (y[start + i] - m1) * i1
        first = 3
    for j in range(first, count):
        a, b, c = m[factors[j, 0]], m[factors[j, 1]], m[j]
        for i in range(n):
            c[i] = a[i] * b[i]


@_jit
def _load_weight(weight, start, n, w):
    if len(weight):
        for i in range(n):
            w[i] = weight[start + i]
    else:
        for i in range(n):
            w[i] = 1.0


@_jit
def _load_label(codes, probabilities, group, start, n, t):
    """Membership of one group in the block."""
    if len(codes):
        for i in range(n):
            t[i] = 1.0 if codes[start + i] == group else 0.0
    else:
        for i in range(n):
            t[i] = probabilities[start + i, group]


@_jit
def _moments_chunk(start, stop, values, weight, shift, out):
    w, x = np.empty(BLOCK), np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        _load_weight(weight, block, n, w)
        for i in range(n):
            x[i] = values[block + i] - shift
        out[0] += _sum(w, n)
        out[1] += _dot(w, x, n)
        for i in range(n):
            w[i] *= x[i]
        out[2] += _dot(w, x, n)


@_jit
def _gram_chunk(start, stop, s, y, codes, probabilities, weight, center, factors, sizes, out):
    terms, moments, groups = sizes[0], sizes[1], sizes[2]
    m, w, t = np.empty((moments, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        _load(s, y, center, factors, moments, block, n, m)
        _load_weight(weight, block, n, w)
        _dots(w, m, moments, n, out, 0)
        for k in range(groups):
            _load_label(codes, probabilities, k, block, n, t)
            for i in range(n):
                t[i] *= w[i]
            _dots(t, m, terms, n, out, moments + k * terms)


@_jit
def _softplus_block(f, beta, n, sp, slope):
    """softplus_β(f) and its derivative."""
    scale = 1.0 / beta
    for i in range(n):
        x = beta * f[i]
        e = exp_nonpositive(-abs(x))
        inverse = 1.0 / (1.0 + e)
        sp[i] = (max(x, 0.0) + log1p_unit(e, inverse)) * scale
        slope[i] = (1.0 if x >= 0.0 else e) * inverse


@_jit
def _lspc_chunk(
    start, stop, s, y, codes, probabilities, weight, center, factors, sizes, weights, slopes, beta,
    out, gradient,
):  # fmt: skip
    terms, n_slopes, groups = sizes[0], sizes[1], sizes[2]
    m, w = np.empty((terms, BLOCK)), np.empty(BLOCK)
    scratch = np.empty((3, groups, BLOCK))
    t, sp, ds = scratch[0], scratch[1], scratch[2]
    f, total, loss, g = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        _load(s, y, center, factors, terms, block, n, m)
        _load_weight(weight, block, n, w)
        for i in range(n):
            total[i] = 0.0
            loss[i] = 0.0
            g[i] = 0.0
        for k in range(groups):
            _load_label(codes, probabilities, k, block, n, t[k])
            _combine(weights[k], m, terms, f, n)
            spk, tk = sp[k], t[k]
            _softplus_block(f, beta, n, spk, ds[k])
            for i in range(n):
                total[i] += spk[i]
                loss[i] -= tk[i] * log_positive(spk[i])
        for i in range(n):
            loss[i] += log_positive(total[i])
            total[i] = 1.0 / total[i]
        out[0] += _dot(w, loss, n)
        for k in range(groups):
            r, spk, dsk = t[k], sp[k], ds[k]
            for i in range(n):
                r[i] = w[i] * (r[i] / spk[i] - total[i]) * dsk[i]
            _dots(r, m, terms, n, out, 1 + k * terms)
            if len(gradient):
                _combine(slopes[k], m, n_slopes, f, n)
                for i in range(n):
                    g[i] += r[i] * f[i]
        if len(gradient):
            for i in range(n):
                gradient[block + i] = g[i]


@_jit
def _backprop_chunk(
    start, stop, s, y, codes, probabilities, weight, center, factors, sizes, v_slopes, form_slopes,
    gradient,
):  # fmt: skip
    terms, n_slopes, groups = sizes[0], sizes[1], sizes[2]
    m, w, t = np.empty((terms, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    f, g = np.empty(BLOCK), np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        _load(s, y, center, factors, terms, block, n, m)
        _load_weight(weight, block, n, w)
        for i in range(n):
            g[i] = 0.0
        for k in range(groups):
            _load_label(codes, probabilities, k, block, n, t)
            _combine(v_slopes[k], m, n_slopes, f, n)
            for i in range(n):
                g[i] += t[i] * f[i]
        for j in range(terms):
            _combine(form_slopes[j], m, n_slopes, f, n)
            column = m[j]
            for i in range(n):
                g[i] -= column[i] * f[i]
        for i in range(n):
            gradient[block + i] += w[i] * g[i]


@_jit
def _binary_block(f, t, w, n, rho, r, loss):
    """Two groups: one exponential a row. r = ω(t − ρ), loss = ω·(log(1 + e^f) − t f)."""
    for i in range(n):
        e = exp_nonpositive(-abs(f[i]))
        inverse = 1.0 / (1.0 + e)
        rho[i] = (1.0 if f[i] >= 0.0 else e) * inverse
        r[i] = w[i] * (t[i] - rho[i])
        loss[i] = w[i] * (max(f[i], 0.0) - t[i] * f[i] + log1p_unit(e, inverse))


@_jit
def _binary_block_unweighted(f, t, n, rho, r, loss, factor):
    """The same without weights, and the summed loss: one logarithm for the whole block.

    Each factor 1 + e^−|f| is at most 2, so the product over a block cannot overflow.
    """
    for i in range(n):
        e = exp_nonpositive(-abs(f[i]))
        factor[i] = 1.0 + e
        rho[i] = (1.0 if f[i] >= 0.0 else e) / (1.0 + e)
        r[i] = t[i] - rho[i]
        loss[i] = max(f[i], 0.0) - t[i] * f[i]
    return _sum(loss, n) + np.log(_product(factor, n))


@_jit
def _softmax_block(f, t, w, free, n, rho, r, loss, top, total):
    """K groups, the first the reference with score 0."""
    for i in range(n):
        top[i] = 0.0
    for k in range(free):
        fk = f[k]
        for i in range(n):
            top[i] = max(top[i], fk[i])
    for i in range(n):
        total[i] = exp_nonpositive(-top[i])
        loss[i] = 0.0
    for k in range(free):
        fk, tk, pk = f[k], t[k], rho[k]
        for i in range(n):
            e = exp_nonpositive(fk[i] - top[i])
            pk[i] = e
            total[i] += e
            loss[i] -= tk[i] * fk[i]
    for i in range(n):
        loss[i] = w[i] * (loss[i] + top[i] + log_positive(total[i]))
        total[i] = 1.0 / total[i]
    for k in range(free):
        tk, pk, rk = t[k], rho[k], r[k]
        for i in range(n):
            pk[i] *= total[i]
            rk[i] = w[i] * (tk[i] - pk[i])


@_jit
def _logistic_chunk(
    start, stop, s, y, codes, probabilities, weight, center, factors, sizes, weights, slopes,
    want_hessian, out, gradient,
):  # fmt: skip
    terms, moments, n_slopes, free = sizes[0], sizes[1], sizes[2], sizes[3]
    count = moments if want_hessian else terms
    m, w = np.empty((count, BLOCK)), np.empty(BLOCK)
    scratch = np.empty((4, free, BLOCK))
    f, t, rho, r = scratch[0], scratch[1], scratch[2], scratch[3]
    loss, top, total, h = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        _load(s, y, center, factors, count, block, n, m)
        _load_weight(weight, block, n, w)
        for k in range(free):
            _load_label(codes, probabilities, k + 1, block, n, t[k])
            _combine(weights[k], m, terms, f[k], n)
        if free > 1:
            _softmax_block(f, t, w, free, n, rho, r, loss, top, total)
            out[0] += _sum(loss, n)
        elif len(weight):
            _binary_block(f[0], t[0], w, n, rho[0], r[0], loss)
            out[0] += _sum(loss, n)
        else:
            out[0] += _binary_block_unweighted(f[0], t[0], n, rho[0], r[0], loss, total)
        at = 1
        for k in range(free):
            _dots(r[k], m, terms, n, out, at)
            at += terms
        if want_hessian:
            for k in range(free):
                pk = rho[k]
                for other in range(k + 1):
                    po = rho[other]
                    own = 1.0 if k == other else 0.0
                    for i in range(n):
                        h[i] = w[i] * pk[i] * (own - po[i])
                    _dots(h, m, moments, n, out, at)
                    at += moments
        if len(gradient):
            for i in range(n):
                total[i] = 0.0
            for k in range(free):
                _combine(slopes[k], m, n_slopes, h, n)
                rk = r[k]
                for i in range(n):
                    total[i] += rk[i] * h[i]
            for i in range(n):
                gradient[block + i] = total[i]


@_jit
def _project_chunk(start, stop, s, center, gradient, out):
    u = np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        g = gradient[block : block + n]
        for i in range(n):
            u[i] = (s[block + i] - center[0]) * center[1]
        out[0] += _sum(g, n)
        out[1] += _dot(g, u, n)


@_jit
def _unstandardize_chunk(start, stop, s, weight, center, constant, along, scale, gradient):
    w = np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        _load_weight(weight, block, n, w)
        for i in range(n):
            u = (s[block + i] - center[0]) * center[1]
            gradient[block + i] = scale * (gradient[block + i] - w[i] * (constant + along * u))


@_jit
def _lspc_rows_chunk(
    start, stop, s, y, codes, probabilities, weight, center, factors, sizes, weights, inverse, beta,
    inside, outside,
):  # fmt: skip
    terms, moments, groups = sizes[0], sizes[1], sizes[2]
    m, w = np.empty((moments, BLOCK)), np.empty(BLOCK)
    scratch = np.empty((5, BLOCK))
    t, h, f, sp, ds = scratch[0], scratch[1], scratch[2], scratch[3], scratch[4]
    total = np.empty((2, BLOCK))
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        _load(s, y, center, factors, moments, block, n, m)
        _load_weight(weight, block, n, w)
        _combine(inverse, m, moments, h, n)
        for i in range(n):
            h[i] = min(h[i] * w[i], 1.0 - 1e-6)
            inside[block + i] = 0.0
            outside[block + i] = 0.0
            total[0, i] = 0.0
            total[1, i] = 0.0
        for k in range(groups):
            _load_label(codes, probabilities, k, block, n, t)
            _combine(weights[k], m, terms, f, n)
            _softplus_block(f, beta, n, sp, ds)
            for i in range(n):
                total[0, i] += sp[i]
                inside[block + i] -= t[i] * log_positive(sp[i])
                f[i] = (f[i] - h[i] * t[i]) / (1.0 - h[i])
            _softplus_block(f, beta, n, sp, ds)
            for i in range(n):
                total[1, i] += sp[i]
                outside[block + i] -= t[i] * log_positive(sp[i])
        for i in range(n):
            inside[block + i] += log_positive(total[0, i])
            outside[block + i] += log_positive(total[1, i])


@_jit
def _logistic_rows_chunk(
    start, stop, s, y, codes, probabilities, weight, center, factors, sizes, weights, inverse,
    inside, outside,
):  # fmt: skip
    terms, moments, free = sizes[0], sizes[1], sizes[2]
    m, w = np.empty((moments, BLOCK)), np.empty(BLOCK)
    one = np.ones(BLOCK)
    scratch = np.empty((4, free, BLOCK))
    f, t, rho, r = scratch[0], scratch[1], scratch[2], scratch[3]
    loss, top, total = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    pairs = len(inverse)
    leverage = np.empty((pairs, BLOCK))
    b, system, step = np.empty((free, free)), np.empty((free, free)), np.empty(free)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        _load(s, y, center, factors, moments, block, n, m)
        _load_weight(weight, block, n, w)
        for k in range(free):
            _load_label(codes, probabilities, k + 1, block, n, t[k])
            _combine(weights[k], m, terms, f[k], n)
        for p in range(pairs):
            _combine(inverse[p], m, moments, leverage[p], n)
        if free == 1:
            _binary_block(f[0], t[0], one, n, rho[0], r[0], loss)
        else:
            _softmax_block(f, t, one, free, n, rho, r, loss, top, total)
        for i in range(n):
            inside[block + i] = loss[i]
        if free == 1:
            f0, p0, r0, h0 = f[0], rho[0], r[0], leverage[0]
            for i in range(n):
                h = h0[i] * w[i]
                f0[i] -= h * r0[i] / max(1.0 - h * p0[i] * (1.0 - p0[i]), 1e-3)
            _binary_block(f0, t[0], one, n, p0, r0, loss)
        else:
            for i in range(n):
                p = 0
                for k in range(free):
                    for other in range(k + 1):
                        b[k, other] = leverage[p, i] * w[i]
                        b[other, k] = b[k, other]
                        p += 1
                _leave_out(b, rho[:, i], r[:, i], system, step)
                for k in range(free):
                    f[k, i] -= step[k]
            _softmax_block(f, t, one, free, n, rho, r, loss, top, total)
        for i in range(n):
            outside[block + i] = loss[i]


@_jit
def _leave_out(b, rho, r, system, step):
    """Solve (I − B A) x = B r with A = diag(ρ) − ρρᵀ, by elimination with pivots."""
    free = len(rho)
    for k in range(free):
        mean = 0.0
        step[k] = 0.0
        for other in range(free):
            mean += b[k, other] * rho[other]
            step[k] += b[k, other] * r[other]
        for other in range(free):
            system[k, other] = -rho[other] * (b[k, other] - mean)
        system[k, k] += 1.0
    for k in range(free):
        pivot = k
        for row in range(k + 1, free):
            if abs(system[row, k]) > abs(system[pivot, k]):
                pivot = row
        if pivot != k:
            for column in range(k, free):
                system[k, column], system[pivot, column] = system[pivot, column], system[k, column]
            step[k], step[pivot] = step[pivot], step[k]
        size = system[k, k]
        if abs(size) < 1e-3:  # a row that alone decides a coefficient
            size = 1e-3 if size >= 0.0 else -1e-3
            system[k, k] = size
        for row in range(k + 1, free):
            factor = system[row, k] / size
            for column in range(k + 1, free):
                system[row, column] -= factor * system[k, column]
            step[row] -= factor * step[k]
    for k in range(free - 1, -1, -1):
        for column in range(k + 1, free):
            step[k] -= system[k, column] * step[column]
        step[k] /= system[k, k]


_NONE = np.empty(0)


def mean_variance(values, weight):
    if not len(values):
        return 0.0, 0.0
    shift = float(values[0])
    out = run_chunks(_moments_chunk, len(values), 3, (values, weight, shift))
    mean = out[1] / out[0]
    if mean * mean > 1e6 * (out[2] / out[0] - mean * mean):
        # The first row lies far from the rest, and the difference of squares lost its digits.
        shift += float(mean)
        out = run_chunks(_moments_chunk, len(values), 3, (values, weight, shift))
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
    out = run_chunks(_gram_chunk, len(rows.s), m + k * d, (*_columns(rows, basis), sizes))
    return out[:m], out[m:].reshape(k, d)


def lspc_pass(rows, basis: Basis, weights, beta: float, want_gradient: bool):
    d, k = basis.n_terms, rows.n_groups
    gradient = np.empty(len(rows.s)) if want_gradient else _NONE
    weights, slopes = _contiguous(weights, basis.slopes(weights))
    sizes = np.array([d, basis.n_slopes, k])
    arguments = (*_columns(rows, basis), sizes, weights, slopes, beta)
    out = run_chunks(_lspc_chunk, len(rows.s), 1 + k * d, arguments, (gradient,))
    return float(out[0]), out[1:].reshape(k, d), gradient if want_gradient else None


def lspc_backprop(rows, basis: Basis, v, form, gradient):
    sizes = np.array([basis.n_terms, basis.n_slopes, rows.n_groups])
    tables = _contiguous(basis.slopes(v), basis.slopes(form))
    run_chunks(
        _backprop_chunk, len(rows.s), 0, (*_columns(rows, basis), sizes, *tables), (gradient,)
    )


def logistic_pass(rows, basis: Basis, weights, want_hessian: bool, want_gradient: bool):
    d, m, free = basis.n_terms, basis.n_moments, rows.n_groups - 1
    pairs = free * (free + 1) // 2
    gradient = np.empty(len(rows.s)) if want_gradient else _NONE
    weights, slopes = _contiguous(weights, basis.slopes(weights))
    sizes = np.array([d, m, basis.n_slopes, free])
    width = 1 + free * d + (pairs * m if want_hessian else 0)
    arguments = (*_columns(rows, basis), sizes, weights, slopes, want_hessian)
    out = run_chunks(_logistic_chunk, len(rows.s), width, arguments, (gradient,))
    score = out[1 : 1 + free * d].reshape(free, d)
    hessian = out[1 + free * d :].reshape(pairs, m) if want_hessian else None
    return float(out[0]), score, hessian, gradient if want_gradient else None


def unstandardize(rows, gradient, scale: float):
    n = len(gradient)
    sums = run_chunks(_project_chunk, n, 2, (rows.s, rows.center, gradient)) / max(n, 1)
    factor = float(scale * rows.center[1])
    arguments = (rows.s, rows.weight, rows.center, float(sums[0]), float(sums[1]), factor)
    run_chunks(_unstandardize_chunk, n, 0, arguments, (gradient,))


def lspc_row_losses(rows, basis: Basis, weights, inverse, beta: float):
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    sizes = np.array([basis.n_terms, basis.n_moments, rows.n_groups])
    tables = _contiguous(weights, inverse)
    arguments = (*_columns(rows, basis), sizes, *tables, beta)
    run_chunks(_lspc_rows_chunk, len(rows.s), 0, arguments, (inside, outside))
    return inside, outside


def logistic_row_losses(rows, basis: Basis, weights, inverse):
    inside, outside = np.empty(len(rows.s)), np.empty(len(rows.s))
    sizes = np.array([basis.n_terms, basis.n_moments, rows.n_groups - 1])
    tables = _contiguous(weights, inverse)
    arguments = (*_columns(rows, basis), sizes, *tables)
    run_chunks(_logistic_rows_chunk, len(rows.s), 0, arguments, (inside, outside))
    return inside, outside


__all__ = [
    "CHUNK", "gram", "logistic_pass", "logistic_row_losses", "lspc_backprop", "lspc_pass",
    "lspc_row_losses", "mean_variance", "unstandardize",
]  # fmt: skip
