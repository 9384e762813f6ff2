"""Passes over three or more groups known by their codes: O(K) a row, group by group in a block.

A block holds one column for each group and nothing else of that size; monomials and sums stay in
registers (see `registers`), and one-hot memberships are comparisons. `terms` and `lower` are
tuples of zeros, as long as φ and as dφ/du. Absent columns are None.
"""

from __future__ import annotations

import numpy as np

from .blocks import jit
from .mathfun import exp_bounded, exp_nonpositive, log1p_unit, log_positive
from .registers import (
    STRETCH,
    accumulate,
    add_into,
    monomials,
    part,
    plus,
    polynomial,
    standardized,
    unpack,
    weight_of,
)

BLOCK = 256
# Exponentials are those of the scores themselves, without the largest one subtracted. Where one of
# them or a ratio passes this, scores are so far apart that the general pass is called for.
_LARGEST = 1e250


@jit
def logistic_chunk(
    start, stop, s, y, codes, weight, center, weights, slopes, finish, terms, lower, out, gradient,
    losses,
):  # fmt: skip
    """Σω·loss and Φᵀr, the gradient by row or its loss, and how many rows are out of bounds."""
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    scale, constant, along = finish[0], finish[1], finish[2]
    free, width = len(weights), len(terms)
    # A column more, of ones: the reference group's.
    columns = np.ones((free + 1, BLOCK))
    total, label, own, g = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    wild = 0
    for block in range(start, stop, BLOCK):
        end = min(block + BLOCK, stop)
        n = end - block
        sb, yb, cb = s[block:end], part(y, block, end), codes[block:end]
        wb, gb, lb = part(weight, block, end), part(gradient, block, end), part(losses, block, end)
        for i in range(n):
            label[i] = cb[i]
            total[i] = 1.0
        for k in range(free):
            c, e = unpack(weights[k], terms), columns[k + 1]
            for i in range(n):
                u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
                x = exp_bounded(polynomial(c, monomials(u, v, terms)))
                e[i] = x
                total[i] += x
        for i in range(n):
            own[i] = total[i] / columns[cb[i], i]
            wild += max(total[i], own[i]) > _LARGEST
        loss = 0.0
        for i in range(n):
            own[i] = log_positive(own[i])
            loss = plus(loss, weight_of(wb, i) * own[i])
        out[0] += loss
        if losses is not None:
            for i in range(n):
                lb[i] = own[i]
        for i in range(n):
            total[i] = -weight_of(wb, i) / total[i]
        if gradient is not None:
            for i in range(n):
                g[i] = -weight_of(wb, i) * (constant + along * ((sb[i] - m0) * i0))
        for k in range(free):
            e, sums, name = columns[k + 1], terms, float(k + 1)
            if gradient is None:
                for i in range(n):
                    u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
                    r = e[i] * total[i] + (weight_of(wb, i) if label[i] == name else 0.0)
                    sums = accumulate(sums, r, monomials(u, v, terms))
            else:
                cs = unpack(slopes[k], lower)
                for i in range(n):
                    u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
                    r = e[i] * total[i] + (weight_of(wb, i) if label[i] == name else 0.0)
                    m = monomials(u, v, terms)
                    sums = accumulate(sums, r, m)
                    g[i] += r * polynomial(cs, m)
            add_into(sums, out, 1 + k * width)
        if gradient is not None:
            for i in range(n):
                gb[i] = scale * g[i]
    out[1 + free * width] += wild


@jit
def gram_chunk(start, stop, s, y, codes, weight, center, terms, moments, out):
    """Moments Σω·m, then Σω·φ over each group."""
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    width = len(terms)
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        sb, yb, cb = s[block:end], part(y, block, end), codes[block:end]
        wb = part(weight, block, end)
        total = moments
        for i in range(end - block):
            u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
            total = accumulate(total, weight_of(wb, i), monomials(u, v, moments))
        add_into(total, out, 0)
        for i in range(end - block):
            u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
            own = accumulate(terms, weight_of(wb, i), monomials(u, v, terms))
            add_into(own, out, len(moments) + width * cb[i])


@jit
def lspc_chunk(
    start, stop, s, y, codes, weight, center, weights, slopes, beta, terms, lower, out, gradient
):
    """Σω·loss and Φᵀr of all groups; ∂/∂u through the scores."""
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    groups, width, scale = len(weights), len(terms), 1.0 / beta
    columns, derivatives = np.empty((groups, BLOCK)), np.empty((groups, BLOCK))
    total, label, own, g = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        end = min(block + BLOCK, stop)
        n = end - block
        sb, yb, cb = s[block:end], part(y, block, end), codes[block:end]
        wb, gb = part(weight, block, end), part(gradient, block, end)
        for i in range(n):
            label[i] = cb[i]
            total[i] = 0.0
            g[i] = 0.0
        for k in range(groups):
            c, sp, ds = unpack(weights[k], terms), columns[k], derivatives[k]
            for i in range(n):
                u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
                x = beta * polynomial(c, monomials(u, v, terms))
                e = exp_nonpositive(-abs(x))
                a, b = 1.0 + e, 2.0 + e
                inverse = 1.0 / (a * b)
                sp[i] = (max(x, 0.0) + log1p_unit(e, inverse * a)) * scale
                ds[i] = (1.0 if x >= 0.0 else e) * (inverse * b)
            for i in range(n):
                total[i] += sp[i]
        for i in range(n):
            own[i] = columns[cb[i], i]
        loss = 0.0
        for i in range(n):
            w = weight_of(wb, i)
            loss = plus(loss, w * log_positive(total[i] / own[i]))
            own[i] = w / own[i]
            total[i] = w / total[i]
        out[0] += loss
        for k in range(groups):
            ds, sums, name, cs = derivatives[k], terms, float(k), unpack(slopes[k], lower)
            if gradient is None:
                for i in range(n):
                    u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
                    r = ((own[i] if label[i] == name else 0.0) - total[i]) * ds[i]
                    sums = accumulate(sums, r, monomials(u, v, terms))
            else:
                for i in range(n):
                    u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
                    r = ((own[i] if label[i] == name else 0.0) - total[i]) * ds[i]
                    m = monomials(u, v, terms)
                    sums = accumulate(sums, r, m)
                    g[i] += r * polynomial(cs, m)
            add_into(sums, out, 1 + k * width)
        if gradient is not None:
            for i in range(n):
                gb[i] = g[i]


@jit
def backprop_chunk(
    start, stop, s, y, codes, weight, center, by_label, common, scale, lower, upper, gradient
):
    """gradient ← scale·(gradient + ω·(by_label[a] + common)), polynomials in (u, v)."""
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    cc = unpack(common, upper)
    g = np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        end = min(block + BLOCK, stop)
        sb, yb, cb = s[block:end], part(y, block, end), codes[block:end]
        wb, gb = part(weight, block, end), gradient[block:end]
        for i in range(end - block):
            u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
            cl = unpack(by_label[cb[i]], lower)
            g[i] = polynomial(cl, monomials(u, v, lower))
        for i in range(end - block):
            u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
            more = polynomial(cc, monomials(u, v, upper)) + g[i]
            gb[i] = scale * (gb[i] + weight_of(wb, i) * more)
