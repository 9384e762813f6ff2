"""Chunk kernels of multinomial logistic regression, any number of groups."""

from __future__ import annotations

import numpy as np

from .blocks import BLOCK, add_up, combine, dots, jit, load_block, load_label, load_weight
from .mathfun import exp_nonpositive, log_positive


@jit
def softmax_block(f, t, w, free, n, rho, r, loss, top, total):
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


@jit
def logistic_chunk(
    start, stop, s, y, codes, probabilities, weight, center, factors, sizes, weights, slopes,
    finish, want_hessian, out, gradient,
):  # fmt: skip
    terms, moments, n_slopes, free = sizes[0], sizes[1], sizes[2], sizes[3]
    count = moments if want_hessian else terms
    m, w = np.empty((count, BLOCK)), np.empty(BLOCK)
    scratch = np.empty((4, free, BLOCK))
    f, t, rho, r = scratch[0], scratch[1], scratch[2], scratch[3]
    loss, top, total, h = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    scale, constant, along = finish[0], finish[1], finish[2]
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        load_block(s, y, center, factors, count, block, n, m)
        load_weight(weight, block, n, w)
        for k in range(free):
            load_label(codes, probabilities, k + 1, block, n, t[k])
            combine(weights[k], m, terms, f[k], n)
        softmax_block(f, t, w, free, n, rho, r, loss, top, total)
        out[0] += add_up(loss, n)
        at = 1
        for k in range(free):
            dots(r[k], m, terms, n, out, at)
            at += terms
        if want_hessian:
            for k in range(free):
                pk = rho[k]
                for other in range(k + 1):
                    po = rho[other]
                    own = 1.0 if k == other else 0.0
                    for i in range(n):
                        h[i] = w[i] * pk[i] * (own - po[i])
                    dots(h, m, moments, n, out, at)
                    at += moments
        if len(gradient):
            u = m[1]
            for i in range(n):
                total[i] = -w[i] * (constant + along * u[i])
            for k in range(free):
                combine(slopes[k], m, n_slopes, h, n)
                rk = r[k]
                for i in range(n):
                    total[i] += rk[i] * h[i]
            for i in range(n):
                gradient[block + i] = scale * total[i]


@jit
def leave_out(b, rho, r, system, step):
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


@jit
def logistic_rows_chunk(
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
        load_block(s, y, center, factors, moments, block, n, m)
        load_weight(weight, block, n, w)
        for k in range(free):
            load_label(codes, probabilities, k + 1, block, n, t[k])
            combine(weights[k], m, terms, f[k], n)
        for p in range(pairs):
            combine(inverse[p], m, moments, leverage[p], n)
        softmax_block(f, t, one, free, n, rho, r, loss, top, total)
        for i in range(n):
            inside[block + i] = loss[i]
        for i in range(n):
            p = 0
            for k in range(free):
                for other in range(k + 1):
                    b[k, other] = leverage[p, i] * w[i]
                    b[other, k] = b[k, other]
                    p += 1
            leave_out(b, rho[:, i], r[:, i], system, step)
            for k in range(free):
                f[k, i] -= step[k]
        softmax_block(f, t, one, free, n, rho, r, loss, top, total)
        for i in range(n):
            outside[block + i] = loss[i]
