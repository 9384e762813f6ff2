"""Pieces of a pass that every kernel uses: loading a block, sums over it, moments.

A block is a few hundred rows held in the first cache as columns, so that each operation is one
short loop that the compiler vectorizes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .registers import STRETCH, accumulate, add_into, monomials, part, weight_of

BLOCK = 256

jit = njit(cache=True, nogil=True, error_model="numpy")
# Sums may be reordered and fused within a block (that is what vectorizes them), always in the
# same way; nothing else may, or the rounding tricks in `mathfun` would be optimized away.
jit_sum = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@jit_sum
def dot(a, b, n):
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return total


@jit_sum
def dots(r, columns, count, n, out, at):
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
        out[at + j] += dot(r, columns[j], n)
        j += 1


@jit_sum
def add_up(a, n):
    total = 0.0
    for i in range(n):
        total += a[i]
    return total


@jit
def combine(coefficients, columns, count, out, n):
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


@jit
def load_block(s, y, center, factors, count, start, n, m):
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


@jit
def load_weight(weight, start, n, w):
    if len(weight):
        for i in range(n):
            w[i] = weight[start + i]
    else:
        for i in range(n):
            w[i] = 1.0


@jit
def load_label(codes, probabilities, group, start, n, t):
    """Membership of one group in the block."""
    if len(codes):
        for i in range(n):
            t[i] = 1.0 if codes[start + i] == group else 0.0
    else:
        for i in range(n):
            t[i] = probabilities[start + i, group]


@jit
def moments_chunk(start, stop, values, weight, shift, out):
    """Σω, Σωx and Σωx² of x = value − shift."""
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        vb, wb = values[block:end], part(weight, block, end)
        sums = (0.0, 0.0, 0.0)
        for i in range(end - block):
            sums = accumulate(sums, weight_of(wb, i), monomials(vb[i] - shift, None, sums))
        add_into(sums, out, 0)


@jit
def gram_chunk(start, stop, s, y, codes, probabilities, weight, center, factors, sizes, out):
    terms, moments, groups = sizes[0], sizes[1], sizes[2]
    m, w, t = np.empty((moments, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        n = min(BLOCK, stop - block)
        load_block(s, y, center, factors, moments, block, n, m)
        load_weight(weight, block, n, w)
        dots(w, m, moments, n, out, 0)
        for k in range(1, groups):
            load_label(codes, probabilities, k, block, n, t)
            for i in range(n):
                t[i] *= w[i]
            dots(t, m, terms, n, out, moments + k * terms)
