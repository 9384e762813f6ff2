"""Chunk kernels of least squares probabilistic classification, any number of groups."""

from __future__ import annotations

import numpy as np

from .blocks import BLOCK, combine, dot, dots, jit, load_block, load_label, load_weight
from .mathfun import exp_nonpositive, log1p_unit, log_positive


@jit
def softplus_block(f, beta, n, sp, slope):
    """softplus_β(f) and its derivative."""
    scale = 1.0 / beta
    for i in range(n):
        x = beta * f[i]
        e = exp_nonpositive(-abs(x))
        a, b = 1.0 + e, 2.0 + e
        inverse = 1.0 / (a * b)
        sp[i] = (max(x, 0.0) + log1p_unit(e, inverse * a)) * scale
        slope[i] = (1.0 if x >= 0.0 else e) * (inverse * b)


@jit
def lspc_chunk(
    start, stop, s, y, codes, probabilities, weight, center, factors, sizes, weights, slopes, beta,
    out, gradient,
):  # fmt: skip
    terms, n_slopes, groups = sizes[0], sizes[1], sizes[2]
    m, w = np.empty((terms, BLOCK)), np.empty(BLOCK)
    scratch = np.empty((3, groups, BLOCK))
    t, sp, ds = scratch[0], scratch[1], scratch[2]
    columns = np.empty((4, BLOCK))
    f, total, loss, g = columns[0], columns[1], columns[2], columns[3]
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        load_block(s, y, center, factors, terms, block, n, m)
        load_weight(weight, block, n, w)
        for i in range(n):
            total[i] = 0.0
            loss[i] = 0.0
            g[i] = 0.0
        for k in range(groups):
            load_label(codes, probabilities, k, block, n, t[k])
            combine(weights[k], m, terms, f, n)
            spk, tk = sp[k], t[k]
            softplus_block(f, beta, n, spk, ds[k])
            for i in range(n):
                total[i] += spk[i]
                loss[i] -= tk[i] * log_positive(spk[i])
        for i in range(n):
            loss[i] += log_positive(total[i])
            total[i] = 1.0 / total[i]
        out[0] += dot(w, loss, n)
        for k in range(groups):
            r, spk, dsk = t[k], sp[k], ds[k]
            for i in range(n):
                r[i] = w[i] * (r[i] / spk[i] - total[i]) * dsk[i]
            dots(r, m, terms, n, out, 1 + k * terms)
            if len(gradient):
                combine(slopes[k], m, n_slopes, f, n)
                for i in range(n):
                    g[i] += r[i] * f[i]
        if len(gradient):
            for i in range(n):
                gradient[block + i] = g[i]


@jit
def backprop_chunk(
    start, stop, s, y, codes, probabilities, weight, center, factors, sizes, by_label, common,
    scale, gradient,
):  # fmt: skip
    """gradient ← scale·(gradient + ω·(Σ_k t_k·by_label_k + common)), polynomials in (u, v)."""
    count, n_slopes, groups = sizes[0], sizes[1], sizes[2]
    m, w, t = np.empty((count, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    f, g = np.empty(BLOCK), np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        load_block(s, y, center, factors, count, block, n, m)
        load_weight(weight, block, n, w)
        combine(common, m, count, g, n)
        for k in range(1, groups):
            load_label(codes, probabilities, k, block, n, t)
            combine(by_label[k], m, n_slopes, f, n)
            for i in range(n):
                g[i] += t[i] * f[i]
        for i in range(n):
            gradient[block + i] = scale * (gradient[block + i] + w[i] * g[i])


@jit
def lspc_rows_chunk(
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
        load_block(s, y, center, factors, moments, block, n, m)
        load_weight(weight, block, n, w)
        combine(inverse, m, moments, h, n)
        for i in range(n):
            h[i] = min(h[i] * w[i], 1.0 - 1e-6)
            inside[block + i] = 0.0
            outside[block + i] = 0.0
            total[0, i] = 0.0
            total[1, i] = 0.0
        for k in range(groups):
            load_label(codes, probabilities, k, block, n, t)
            combine(weights[k], m, terms, f, n)
            softplus_block(f, beta, n, sp, ds)
            for i in range(n):
                total[0, i] += sp[i]
                inside[block + i] -= t[i] * log_positive(sp[i])
                f[i] = (f[i] - h[i] * t[i]) / (1.0 - h[i])
            softplus_block(f, beta, n, sp, ds)
            for i in range(n):
                total[1, i] += sp[i]
                outside[block + i] -= t[i] * log_positive(sp[i])
        for i in range(n):
            inside[block + i] += log_positive(total[0, i])
            outside[block + i] += log_positive(total[1, i])
