"""Bounded scores, t = c·tanh(z/c) of z = (s − mean)/spread, and gradients back through both.

The map is made once a score rather than once a pass: Newton steps take several passes over the
same scores, and an array costs less than as many exponentials.

A bounded score also has a place in a table: its row adds its weight to four neighboring nodes, in
the shares of a cubic B-spline, so that the table is a smooth function of all scores.
"""

from __future__ import annotations

from .blocks import jit
from .mathfun import exp_nonpositive
from .registers import STRETCH, part, plus, weight_of

# Below this 1 − e^−2x has lost digits that x − x³/3 still has.
_SMALL = 1e-3
_THIRD, _SIXTH = 1.0 / 3.0, 1.0 / 6.0


@jit
def map_chunk(start, stop, s, mean, inverse, limit, out):
    """out ← limit·tanh((s − mean)·inverse/limit)."""
    inverse /= limit
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        sb, ob = s[block:end], out[block:end]
        for i in range(end - block):
            x = (sb[i] - mean) * inverse
            size = abs(x)
            e = exp_nonpositive(-2.0 * size)
            large = (1.0 - e) / (1.0 + e)
            near = x * (1.0 - _THIRD * x * x)
            far = large if x >= 0.0 else -large
            ob[i] = limit * (near if size < _SMALL else far)


@jit
def sums_chunk(start, stop, s, t, mean, inverse, limit, gradient, out):
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
def back_chunk(start, stop, s, t, weight, mean, inverse, limit, constant, along, gradient):
    """gradient ← inverse·(h − ω·(constant + along·z))."""
    square = 1.0 / (limit * limit)
    for block in range(start, stop, STRETCH):
        end = min(block + STRETCH, stop)
        sb, tb, gb = s[block:end], t[block:end], gradient[block:end]
        wb = part(weight, block, end)
        for i in range(end - block):
            h = gb[i] * (1.0 - tb[i] * tb[i] * square)
            z = (sb[i] - mean) * inverse
            gb[i] = inverse * (h - weight_of(wb, i) * (constant + along * z))


@jit
def deposit_chunk(start, stop, t, place, weight, limit, width, out):
    """out[place·width + node] += ω·share of each of the four nodes next to t."""
    cells = width - 3
    inverse = cells / (2.0 * limit)
    for i in range(start, stop):
        x = (t[i] + limit) * inverse
        j = min(max(int(x), 0), cells - 1)
        u = x - j
        v = 1.0 - u
        sixth = _SIXTH * weight_of(weight, i)
        at = place[i] * width + j
        out[at] += sixth * (v * v * v)
        out[at + 1] += sixth * (4.0 - 3.0 * u * u * (1.0 + v))
        out[at + 2] += sixth * (4.0 - 3.0 * v * v * (1.0 + u))
        out[at + 3] += sixth * (u * u * u)


@jit
def slope_chunk(start, stop, t, place, weight, limit, width, table, scale, gradient):
    """gradient ← gradient + scale·ω·d/dt of the table between its nodes."""
    cells = width - 3
    inverse = cells / (2.0 * limit)
    half = 0.5 * scale * inverse
    for i in range(start, stop):
        x = (t[i] + limit) * inverse
        j = min(max(int(x), 0), cells - 1)
        u = x - j
        v = 1.0 - u
        at = place[i] * width + j
        # Differences of neighbors: what all nodes share has no slope.
        first = table[at + 1] - table[at]
        second = table[at + 2] - table[at + 1]
        third = table[at + 3] - table[at + 2]
        slope = v * v * first + (1.0 + 2.0 * u * v) * second + u * u * third
        gradient[i] += half * weight_of(weight, i) * slope
