"""Kernels over a chunk of rows: sums of the classifiers, gradients by row, bounded scores.

A kernel reads `Columns`; where one is absent it is None, and what would read it is not compiled.
`likes` are tuples of zeros as long as φ, as the distinct products φⱼφₗ, as dφ/du or as whatever
polynomial a kernel evaluates: they tell it lengths by their types, so that monomials and sums stay
in registers, and an empty one leaves that sum out. Two groups take one loop over rows, any number
of them such a loop for each group over blocks of rows, which hold one column for each group and
nothing else of that size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from .primitives import (
    accumulate,
    add_into,
    exp_bounded,
    exp_nonpositive,
    jit,
    log1p_unit,
    log_positive,
    monomials,
    piece,
    plus,
    polynomial,
    times,
    unpack,
)

# Rows between two writes of the sums: short enough that sums keep their digits and that products
# of numbers below 2 stay below the largest float.
STRETCH = 512
# Rows of a block, whose columns stay in the first cache.
BLOCK = 256
# Exponentials are those of the scores themselves, without the largest one subtracted. Where their
# sum passes this, scores are so far apart that another pass is called for.
_LARGEST = 1e250
# Below this 1 − e^−2x has lost digits that x − x³/3 still has.
_SMALL = 1e-3
_THIRD, _SIXTH = 1.0 / 3.0, 1.0 / 6.0


class Columns(NamedTuple):
    """Rows as kernels see them.

    s, y : (n,) variables;  labels : (n,) codes, or (K, n) memberships;  weight : (n,)
    center : mean of s, 1/spread of s, mean of y, 1/spread of y
    """

    s: Any
    y: Any
    labels: Any
    weight: Any
    center: tuple[float, float, float, float]


def part(column, start, stop):
    """column[start:stop], or None: indices into a slice are known not to count from the end."""


def weight_of(weight, i):
    """weight[i], or 1 where all rows count alike."""


def standardized(column, i, mean, inverse):
    """(column[i] − mean)·inverse, or None where there is no such column."""


def in_group(labels, k, start, stop):
    """What tells members of group k among some rows: their codes, or their memberships in it."""


def if_member(column, k, i, x):
    """x times the membership of row i in group k, for a column of `in_group`."""


def own_part(labels, value):
    """What a row gathers over its groups: its own value, or Σ t·log value of memberships."""


def own_loss(labels, total, own):
    """log(total) less what was gathered, and what `own_inverse` takes, found once per row."""


def own_inverse(labels, inverse, value):
    """1/value of a row's own group."""


@overload(part)
def _part(column, start, stop):
    if isinstance(column, types.NoneType):
        return lambda column, start, stop: None
    return lambda column, start, stop: column[start:stop]


@overload(weight_of)
def _weight_of(weight, i):
    if isinstance(weight, types.NoneType):
        return lambda weight, i: 1.0
    return lambda weight, i: weight[i]


@overload(standardized)
def _standardized(column, i, mean, inverse):
    if isinstance(column, types.NoneType):
        return lambda column, i, mean, inverse: None
    return lambda column, i, mean, inverse: (column[i] - mean) * inverse


@overload(in_group)
def _in_group(labels, k, start, stop):
    if labels.ndim == 1:
        return lambda labels, k, start, stop: labels[start:stop]
    return lambda labels, k, start, stop: labels[k][start:stop]


@overload(if_member)
def _if_member(column, k, i, x):
    if isinstance(column.dtype, types.Float):
        return lambda column, k, i, x: column[i] * x
    # Compared in the type of the codes: a wider one would make shorter vectors.
    code = column.dtype
    return lambda column, k, i, x: x if column[i] == code(k) else 0.0


@overload(own_part)
def _own_part(labels, value):
    if labels.ndim == 1:
        return lambda labels, value: value
    return lambda labels, value: log_positive(value)


@overload(own_loss)
def _own_loss(labels, total, own):
    if labels.ndim == 1:
        return lambda labels, total, own: (log_positive(total * (1.0 / own)), 1.0 / own)
    return lambda labels, total, own: (log_positive(total) - own, 0.0)


@overload(own_inverse)
def _own_inverse(labels, inverse, value):
    if labels.ndim == 1:
        return lambda labels, inverse, value: inverse
    return lambda labels, inverse, value: 1.0 / value


@piece
def _cut(rows, start, stop):
    """Variables and weights of some rows."""
    return rows.s[start:stop], part(rows.y, start, stop), part(rows.weight, start, stop)


@piece
def _place(s, y, i, center):
    """Standardized variables of a row."""
    return (s[i] - center[0]) * center[1], standardized(y, i, center[2], center[3])


@jit
def moments_chunk(start, stop, values, weight, shift, out):
    """Σω, Σωx and Σωx² of x = value − shift."""
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        xb, wb = values[block:end], part(weight, block, end)
        size, first, second = 0.0, 0.0, 0.0
        for i in range(end - block):
            w, x = weight_of(wb, i), xb[i] - shift
            size, first, second = plus(size, w), plus(first, w * x), plus(second, w * x * x)
        out[0] += size
        out[1] += first
        out[2] += second


@jit
def gram_chunk(start, stop, rows, groups, likes, out):
    """Moments Σω·m, then Σω·φ over each group but the first."""
    terms, moments = likes
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        s, y, weight = _cut(rows, block, end)
        sums = moments
        for k in range(1, groups):
            cross, own = terms, in_group(rows.labels, k, block, end)
            for i in range(end - block):
                u, v = _place(s, y, i, rows.center)
                w = weight_of(weight, i)
                m = monomials(u, v, moments)
                if k == 1:
                    sums = accumulate(sums, w, m)
                cross = accumulate(cross, if_member(own, k, i, w), m)
            add_into(cross, out, len(moments) + (k - 1) * len(terms))
        add_into(sums, out, 0)


@jit
def lspc_chunk(start, stop, rows, weights, slopes, beta, likes, out, gradient):
    """Σω·loss and Φᵀr of all groups, r = ω·∂log ρ/∂f; ∂/∂u through the scores."""
    terms, lower = likes
    groups, scale, labels = len(weights), 1.0 / beta, rows.labels
    columns = np.empty((2, groups, BLOCK))
    total, own, g = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    for block in range(start, stop, BLOCK):
        end = min(block + BLOCK, stop)
        n = end - block
        s, y, weight = _cut(rows, block, end)
        gb = part(gradient, block, end)
        for i in range(n):
            total[i] = 0.0
            own[i] = 0.0
            g[i] = 0.0
        for k in range(groups):
            c, sp, ds = unpack(weights[k], terms), columns[0, k], columns[1, k]
            column = in_group(rows.labels, k, block, end)
            for i in range(n):
                u, v = _place(s, y, i, rows.center)
                x = beta * polynomial(c, monomials(u, v, terms))
                e = exp_nonpositive(-abs(x))
                # Two reciprocals from one division.
                a, b = 1.0 + e, 2.0 + e
                inverse = 1.0 / (a * b)
                value = (max(x, 0.0) + log1p_unit(e, inverse * a)) * scale
                sp[i] = value
                ds[i] = (1.0 if x >= 0.0 else e) * (inverse * b)
                total[i] += value
                own[i] += if_member(column, k, i, own_part(labels, value))
        loss = 0.0
        for i in range(n):
            log, own[i] = own_loss(labels, total[i], own[i])
            loss = plus(loss, weight_of(weight, i) * log)
            total[i] = 1.0 / total[i]
        out[0] += loss
        for k in range(groups):
            sp, ds, sums, cs = columns[0, k], columns[1, k], terms, unpack(slopes[k], lower)
            column = in_group(rows.labels, k, block, end)
            for i in range(n):
                u, v = _place(s, y, i, rows.center)
                gain = if_member(column, k, i, own_inverse(labels, own[i], sp[i]))
                r = weight_of(weight, i) * (gain - total[i]) * ds[i]
                m = monomials(u, v, terms)
                sums = accumulate(sums, r, m)
                if gradient is not None:
                    g[i] += r * polynomial(cs, m)
            add_into(sums, out, 1 + k * len(terms))
        if gradient is not None:
            for i in range(n):
                gb[i] = g[i]


@jit
def backprop_chunk(start, stop, rows, by_label, common, scale, likes, gradient):
    """gradient ← scale·(gradient + ω·(Σₖ tₖ·by_labelₖ + common)), polynomials in (u, v), k ≥ 1."""
    lower, upper = likes
    cc, g = unpack(common, upper), np.empty(STRETCH)
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        s, y, weight = _cut(rows, block, end)
        gb = gradient[block:end]
        for k in range(1, len(by_label)):
            cl = unpack(by_label[k], lower)
            column = in_group(rows.labels, k, block, end)
            for i in range(end - block):
                u, v = _place(s, y, i, rows.center)
                before = polynomial(cc, monomials(u, v, upper)) if k == 1 else g[i]
                g[i] = before + if_member(column, k, i, polynomial(cl, monomials(u, v, lower)))
        for i in range(end - block):
            gb[i] = scale * (gb[i] + weight_of(weight, i) * g[i])


@jit
def logistic_chunk(start, stop, rows, weights, slopes, finish, likes, out, gradient, losses):
    """Σω·loss, Φᵀr, Hessian moments, and how many rows are out of bounds; by row its loss, and
    scale·(r·dφ/du − ω(constant + along·u)) as the gradient.
    """
    terms, moments, lower = likes
    scale, constant, along = finish
    free = len(weights)
    columns = np.empty((free, BLOCK))
    total, linear, g = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    wild = 0
    for block in range(start, stop, BLOCK):
        end = min(block + BLOCK, stop)
        n = end - block
        s, y, weight = _cut(rows, block, end)
        gb, lb = part(gradient, block, end), part(losses, block, end)
        for i in range(n):
            total[i] = 1.0
            linear[i] = 0.0
        for k in range(free):
            c, p = unpack(weights[k], terms), columns[k]
            column = in_group(rows.labels, k + 1, block, end)
            for i in range(n):
                u, v = _place(s, y, i, rows.center)
                f = polynomial(c, monomials(u, v, terms))
                x = exp_bounded(f)
                p[i] = x
                total[i] += x
                linear[i] += if_member(column, k + 1, i, f)
        loss = 0.0
        for i in range(n):
            wild += total[i] > _LARGEST
            own = log_positive(total[i]) - linear[i]
            loss = plus(loss, weight_of(weight, i) * own)
            if losses is not None:
                lb[i] = own
            total[i] = 1.0 / total[i]
            u, _ = _place(s, y, i, rows.center)
            g[i] = -weight_of(weight, i) * (constant + along * u)
        out[0] += loss
        for k in range(free):
            p, sums, cs = columns[k], terms, unpack(slopes[k], lower)
            column = in_group(rows.labels, k + 1, block, end)
            for i in range(n):
                u, v = _place(s, y, i, rows.center)
                p[i] *= total[i]
                r = weight_of(weight, i) * (if_member(column, k + 1, i, 1.0) - p[i])
                m = monomials(u, v, terms)
                sums = accumulate(sums, r, m)
                if gradient is not None:
                    g[i] += r * polynomial(cs, m)
            add_into(sums, out, 1 + k * len(terms))
        if len(moments):
            at = 1 + free * len(terms)
            for k in range(free):
                for other in range(k + 1):
                    p, q, sums = columns[k], columns[other], moments
                    same = 1.0 if k == other else 0.0
                    for i in range(n):
                        u, v = _place(s, y, i, rows.center)
                        h = weight_of(weight, i) * p[i] * (same - q[i])
                        sums = accumulate(sums, h, monomials(u, v, moments))
                    add_into(sums, out, at)
                    at += len(moments)
        if gradient is not None:
            for i in range(n):
                gb[i] = scale * g[i]
    out[len(out) - 1] += wild


@jit
def pair_logistic_chunk(start, stop, rows, weights, slopes, finish, likes, out, gradient):
    """What `logistic_chunk` finds except losses by row, of two groups, whatever their scores."""
    terms, moments, lower = likes
    c, cs = unpack(weights[0], terms), unpack(slopes[0], lower)
    scale, constant, along = finish
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        s, y, weight = _cut(rows, block, end)
        gb, column = part(gradient, block, end), in_group(rows.labels, 1, block, end)
        loss, product = 0.0, 1.0
        score, hessian = terms, moments
        for i in range(end - block):
            u, v = _place(s, y, i, rows.center)
            m, w = monomials(u, v, terms), weight_of(weight, i)
            f = polynomial(c, m)
            e = exp_nonpositive(-abs(f))
            inverse = 1.0 / (1.0 + e)
            other = e * inverse
            t = if_member(column, 1, i, 1.0)
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
def pair_losses_chunk(start, stop, rows, weights, inverse, likes, inside, outside):
    """In-sample and one-Newton-step leave-one-out losses of each row of two groups with codes."""
    terms, moments = likes
    c, ci = unpack(weights[0], terms), unpack(inverse[0], moments)
    s, y, weight = _cut(rows, start, stop)
    nb, xb, codes = inside[start:stop], outside[start:stop], rows.labels[start:stop]
    for i in range(len(s)):
        u, v = _place(s, y, i, rows.center)
        m = monomials(u, v, moments)
        # Of the score with the sign of the own group: one sigmoid serves both groups.
        sign = 1.0 if codes[i] == 1 else -1.0
        f = sign * polynomial(c, m)
        e = exp_nonpositive(-abs(f))
        a, b = 1.0 + e, 2.0 + e
        q = 1.0 / (a * b)
        nb[i] = max(-f, 0.0) + log1p_unit(e, q * a)
        wrong = (e if f >= 0.0 else 1.0) * (q * b)
        h = polynomial(ci, m) * weight_of(weight, i)
        f -= h * wrong / max(1.0 - h * wrong * (1.0 - wrong), 1e-3)
        e = exp_nonpositive(-abs(f))
        xb[i] = max(-f, 0.0) + log1p_unit(e, 1.0 / (2.0 + e))


# ------------------------------------------------------------------------------------------------
# Bounded scores, t = c·tanh(z/c) of z = (s − mean)/spread, and gradients back through both. The map
# is made once a score rather than once a pass: Newton steps take several passes over the same
# scores, and an array costs less than as many exponentials.
#
# A bounded score also has a place in a table: its row adds its weight to four neighboring nodes, in
# the shares of a cubic B-spline, so that the table is a smooth function of all scores.


@jit
def bound_chunk(start, stop, s, mean, inverse, limit, out):
    """out ← limit·tanh((s − mean)·inverse/limit)."""
    inverse /= limit
    sb, ob = s[start:stop], out[start:stop]
    for i in range(len(sb)):
        x = (sb[i] - mean) * inverse
        size = abs(x)
        e = exp_nonpositive(-2.0 * size)
        large = (1.0 - e) / (1.0 + e)
        near = x * (1.0 - _THIRD * x * x)
        far = large if x >= 0.0 else -large
        ob[i] = limit * (near if size < _SMALL else far)


@jit
def bound_sums_chunk(start, stop, s, t, mean, inverse, limit, gradient, out):
    """Σh and Σh·z of h = gradient·dt/dz, dt/dz = 1 − (t/limit)²."""
    square = 1.0 / (limit * limit)
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        sb, tb, gb = s[block:end], t[block:end], gradient[block:end]
        plain, along = 0.0, 0.0
        for i in range(end - block):
            h = gb[i] * (1.0 - tb[i] * tb[i] * square)
            plain = plus(plain, h)
            along = plus(along, h * ((sb[i] - mean) * inverse))
        out[0] += plain
        out[1] += along


@jit
def unbound_chunk(start, stop, s, t, weight, mean, inverse, limit, taken, gradient):
    """gradient ← inverse·(h − ω·(constant + along·z)), `taken` the constant and along."""
    constant, along = taken
    square = 1.0 / (limit * limit)
    sb, tb, gb = s[start:stop], t[start:stop], gradient[start:stop]
    wb = part(weight, start, stop)
    for i in range(len(sb)):
        h = gb[i] * (1.0 - tb[i] * tb[i] * square)
        z = (sb[i] - mean) * inverse
        gb[i] = inverse * (h - weight_of(wb, i) * (constant + along * z))


@piece
def _cell(x, cells):
    j = np.int64(x if x > 0.0 else 0.0)
    return j if j < cells else cells - 1


@jit
def deposit_chunk(start, stop, t, place, weight, limit, width, out):
    """out[place·width + node] += ω·share of each of the four nodes next to t."""
    cells = width - 3
    inverse = cells / (2.0 * limit)
    for i in range(start, stop):
        x = (t[i] + limit) * inverse
        j = _cell(x, cells)
        u = x - j
        v = 1.0 - u
        sixth = _SIXTH * weight_of(weight, i)
        at = place[i] * width + j
        out[at] += sixth * (v * v * v)
        out[at + 1] += sixth * (4.0 - 3.0 * u * u * (1.0 + v))
        out[at + 2] += sixth * (4.0 - 3.0 * v * v * (1.0 + u))
        out[at + 3] += sixth * (u * u * u)


@jit
def slope_chunk(start, stop, t, place, weight, limit, table, scale, gradient):
    """gradient ← gradient + scale·ω·d/dt of the table, (places, width), between its nodes."""
    cells = table.shape[1] - 3
    inverse = cells / (2.0 * limit)
    half = 0.5 * scale * inverse
    for i in range(start, stop):
        x = (t[i] + limit) * inverse
        j = _cell(x, cells)
        u = x - j
        v = 1.0 - u
        line = table[place[i]]
        # Differences of neighbors: what all nodes share has no slope.
        first = line[j + 1] - line[j]
        second = line[j + 2] - line[j + 1]
        third = line[j + 3] - line[j + 2]
        slope = v * v * first + (1.0 + 2.0 * u * v) * second + u * u * third
        gradient[i] += half * weight_of(weight, i) * slope
