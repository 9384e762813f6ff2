"""Rows on a grid of the standardized variables: the cell of each row, and masses by cell."""

from __future__ import annotations

from .blocks import jit

# Half of the bins lie within this many spreads of the mean, the rest beyond, ever wider.
_HALF = 2.5


@jit
def _slot(value, mean, inverse, side):
    x = (value - mean) * inverse
    x /= _HALF + abs(x)
    return min(int(0.5 * side * (1.0 + x)), side - 1)


@jit
def cell_chunk(start, stop, s, y, center, side, cell):
    """Number of each row's cell: bins of s, or side × side bins of s and y."""
    for i in range(start, stop):
        at = _slot(s[i], center[0], center[1], side)
        if len(y):
            at = at * side + _slot(y[i], center[2], center[3], side)
        cell[i] = at


@jit
def fill_cells(cell, s, y, codes, probabilities, weight, mass, sums):
    """Σω of each group, (C, K), and Σω, Σω², Σωs, Σωy, (C, 4), in each cell."""
    for i in range(len(cell)):
        c = cell[i]
        w = weight[i] if len(weight) else 1.0
        if len(codes):
            mass[c, codes[i]] += w
        else:
            for k in range(mass.shape[1]):
                mass[c, k] += w * probabilities[i, k]
        sums[c, 0] += w
        sums[c, 1] += w * w
        sums[c, 2] += w * s[i]
        if len(y):
            sums[c, 3] += w * y[i]


@jit
def leave_out_chunk(start, stop, cell, codes, weight, single, extra, inside, outside):
    """outside = inside + extra[cell, group]·ω/single[cell]."""
    for i in range(start, stop):
        c = cell[i]
        w = weight[i] / single[c] if len(weight) else 1.0
        outside[i] = inside[i] + w * extra[c, codes[i]]
