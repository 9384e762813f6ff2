"""Bounded scores, t = c·tanh(z/c) of z = (s − mean)/spread, and gradients back through both.

The map is made once a score rather than once a pass: Newton steps take several passes over the
same scores, and an array costs less than as many exponentials.
"""

from __future__ import annotations

from .blocks import jit
from .mathfun import exp_nonpositive
from .registers import STRETCH, part, plus, weight_of

# Below this 1 − e^−2x has lost digits that x − x³/3 still has.
_SMALL = 1e-3
_THIRD = 1.0 / 3.0


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
