"""Passes over two groups known by their codes, the common case: one loop over rows each.

`terms`, `moments` and `lower` are tuples of zeros, as long as φ, as the distinct products φⱼφₗ and
as dφ/du; an empty one leaves that sum out. Absent columns are None.
"""

from __future__ import annotations

import numpy as np

from .blocks import jit
from .mathfun import exp_nonpositive, log1p_unit, log_positive, split_positive
from .registers import (
    STRETCH,
    accumulate,
    add_into,
    monomials,
    part,
    plus,
    polynomial,
    standardized,
    times,
    unpack,
    weight_of,
)

_LN2 = 0.6931471805599453


@jit
def gram_chunk(start, stop, s, y, codes, weight, center, terms, moments, out):
    """Moments Σω·m, then Σω·φ over group 1."""
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        sb, yb, cb = s[block:end], part(y, block, end), codes[block:end]
        wb = part(weight, block, end)
        total, cross = moments, terms
        for i in range(end - block):
            u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
            m, w = monomials(u, v, moments), weight_of(wb, i)
            total = accumulate(total, w, m)
            cross = accumulate(cross, w if cb[i] == 1 else 0.0, m)
        add_into(total, out, 0)
        add_into(cross, out, len(moments))


@jit
def lspc_chunk(
    start, stop, s, y, codes, weight, center, weights, slopes, beta, terms, lower, out, gradient
):
    """Σω·loss and Φᵀr of both groups; ∂/∂u through the scores.

    With ρ = own/total, ∂log ρ/∂f is other/(own·total)·sp′ for the own group and −sp′/total for
    the other one: no difference of nearly equal numbers.
    """
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    w0, w1 = unpack(weights[0], terms), unpack(weights[1], terms)
    c0, c1 = unpack(slopes[0], lower), unpack(slopes[1], lower)
    scale = 1.0 / beta
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        sb, yb, cb = s[block:end], part(y, block, end), codes[block:end]
        wb, gb = part(weight, block, end), part(gradient, block, end)
        loss, product = 0.0, 1.0
        first, second = terms, terms
        for i in range(end - block):
            u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
            m = monomials(u, v, terms)
            x0, x1 = beta * polynomial(w0, m), beta * polynomial(w1, m)
            e0, e1 = exp_nonpositive(-abs(x0)), exp_nonpositive(-abs(x1))
            # Four reciprocals from one division.
            a0, a1, b0, b1 = 1.0 + e0, 1.0 + e1, 2.0 + e0, 2.0 + e1
            q0, q1 = a0 * b0, a1 * b1
            inverse = 1.0 / (q0 * q1)
            q0, q1 = inverse * q1, inverse * q0
            sp0 = (max(x0, 0.0) + log1p_unit(e0, q0 * a0)) * scale
            sp1 = (max(x1, 0.0) + log1p_unit(e1, q1 * a1)) * scale
            own, other = (sp1 if cb[i] == 1 else sp0), (sp0 if cb[i] == 1 else sp1)
            total = sp0 + sp1
            inverse_own, inverse_total = 1.0 / own, 1.0 / total
            ratio = total * inverse_own
            if weight is None:
                mantissa, exponent = split_positive(ratio)
                product, loss = times(product, mantissa), plus(loss, exponent)
            else:
                loss = plus(loss, wb[i] * log_positive(ratio))
                inverse_total *= wb[i]
            gain, cost = other * inverse_total * inverse_own, -inverse_total
            r0 = (cost if cb[i] == 1 else gain) * ((1.0 if x0 >= 0.0 else e0) * (q0 * b0))
            r1 = (gain if cb[i] == 1 else cost) * ((1.0 if x1 >= 0.0 else e1) * (q1 * b1))
            first, second = accumulate(first, r0, m), accumulate(second, r1, m)
            if gradient is not None:
                gb[i] = r0 * polynomial(c0, m) + r1 * polynomial(c1, m)
        out[0] += loss if weight is not None else _LN2 * loss + np.log(product)
        add_into(first, out, 1)
        add_into(second, out, 1 + len(terms))


@jit
def backprop_chunk(
    start, stop, s, y, codes, weight, center, by_label, common, scale, lower, upper, gradient
):
    """gradient ← scale·(gradient + ω·(1[a = 1]·by_label + common)), polynomials in (u, v)."""
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    cl, cc = unpack(by_label, lower), unpack(common, upper)
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        sb, yb, cb = s[block:end], part(y, block, end), codes[block:end]
        wb, gb = part(weight, block, end), gradient[block:end]
        for i in range(end - block):
            u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
            m = monomials(u, v, upper)
            more = polynomial(cc, m) + (polynomial(cl, m) if cb[i] == 1 else 0.0)
            gb[i] = scale * (gb[i] + weight_of(wb, i) * more)


@jit
def logistic_chunk(
    start, stop, s, y, codes, weight, center, weights, slopes, finish, terms, moments, lower, out,
    gradient,
):  # fmt: skip
    """Σω·loss, Φᵀr, Hessian moments; scale·(r·dφ/du − ω(constant + along·u)) as the gradient."""
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    c, cs = unpack(weights[0], terms), unpack(slopes[0], lower)
    scale, constant, along = finish[0], finish[1], finish[2]
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        sb, yb, cb = s[block:end], part(y, block, end), codes[block:end]
        wb, gb = part(weight, block, end), part(gradient, block, end)
        loss, product = 0.0, 1.0
        score, hessian = terms, moments
        for i in range(end - block):
            u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
            m, w = monomials(u, v, terms), weight_of(wb, i)
            f = polynomial(c, m)
            e = exp_nonpositive(-abs(f))
            inverse = 1.0 / (1.0 + e)
            other = e * inverse
            t = 1.0 if cb[i] == 1 else 0.0
            r = w * (t - (inverse if f >= 0.0 else other))
            linear = max(f, 0.0) - t * f
            if weight is None:
                # One logarithm a block: each factor is at most 2.
                loss, product = plus(loss, linear), times(product, 1.0 + e)
            else:
                loss = plus(loss, w * (linear + log1p_unit(e, 1.0 / (2.0 + e))))
            score = accumulate(score, r, m)
            hessian = accumulate(hessian, w * other * inverse, monomials(u, v, moments))
            if gradient is not None:
                gb[i] = scale * (r * polynomial(cs, m) - w * (constant + along * u))
        out[0] += loss + np.log(product)
        add_into(score, out, 1)
        add_into(hessian, out, 1 + len(terms))


@jit
def logistic_rows_chunk(
    start, stop, s, y, codes, weight, center, weights, inverse, terms, moments, inside, outside
):
    """In-sample and one-Newton-step leave-one-out losses of each row."""
    m0, i0, m1, i1 = center[0], center[1], center[2], center[3]
    c, ci = unpack(weights[0], terms), unpack(inverse[0], moments)
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        sb, yb, cb = s[block:end], part(y, block, end), codes[block:end]
        wb, nb, xb = part(weight, block, end), inside[block:end], outside[block:end]
        for i in range(end - block):
            u, v = (sb[i] - m0) * i0, standardized(yb, i, m1, i1)
            m = monomials(u, v, moments)
            # Of the score with the sign of the own group: one sigmoid serves both groups.
            sign = 1.0 if cb[i] == 1 else -1.0
            f = sign * polynomial(c, m)
            e = exp_nonpositive(-abs(f))
            a, b = 1.0 + e, 2.0 + e
            q = 1.0 / (a * b)
            nb[i] = max(-f, 0.0) + log1p_unit(e, q * a)
            wrong = (e if f >= 0.0 else 1.0) * (q * b)
            h = polynomial(ci, m) * weight_of(wb, i)
            f -= h * wrong / max(1.0 - h * wrong * (1.0 - wrong), 1e-3)
            e = exp_nonpositive(-abs(f))
            xb[i] = max(-f, 0.0) + log1p_unit(e, 1.0 / (2.0 + e))
