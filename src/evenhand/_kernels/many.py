"""Passes over three or more groups known by their codes: O(K) a row, group by group in a block.

A block holds one column for each group and nothing else of that size; monomials and sums stay in
registers (see `registers`), and one-hot memberships are comparisons. `terms` and `lower` are
tuples of zeros, as long as φ and as dφ/du. Absent columns are None.
"""

from __future__ import annotations

import numpy as np

from .blocks import jit
from .mathfun import exp_bounded, log_positive
from .registers import (
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
