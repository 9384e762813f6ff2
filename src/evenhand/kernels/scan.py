"""Loops of the scan for fine structure: contrasts of neighboring bins in blocks of slices."""

from __future__ import annotations

import numpy as np
from numba import njit

# Sums over the rows of some bins: how many, residuals of membership a − ā, their variances and
# fourth cumulants; and over the cells, variance·rows²/size.
_ROWS, _RESIDUAL, _VARIANCE, _SQUARES, _FOURTH, _WIDTH = 0, 1, 2, 3, 4, 5


@njit(cache=True, nogil=True)
def cell_lines(z, t, cell, n_cells):
    """Rows, Σz, Σt, Σz² and Σt² by cell."""
    out = np.zeros((n_cells, 5))
    for i in range(z.shape[0]):
        c = cell[i]
        out[c, 0] += 1.0
        out[c, 1] += z[i]
        out[c, 2] += t[i]
        out[c, 3] += z[i] * z[i]
        out[c, 4] += t[i] * t[i]
    return out


@njit(cache=True, nogil=True)
def scan_levels(
    order, first, bins, codes, low, soft, share, variance, fourth, block, depth, height, most, least
):
    """Σ D²/V, how many, Σ κ₄/V² and the least log of a bound on P(|D|), by group and (j, k).

    Level j = 1 … depth halves each of 2^(j−1) bins of the tested variable, level k = 0 … height
    takes 2^k blocks of the conditioning one. D = Σ (h − h̄_c)(a − ā_c) over the rows of such a
    rectangle, h = 1 − π on the left, −π on the right and π the share of rows on the left. The rows
    of cell c are order[first[c]] … order[first[c + 1] − 1]; `bins` (of 2^depth) and `codes` or
    memberships `soft`, (n, G), are by row. The G groups have codes from `low` on. By cell: `share`
    ā_c, null `variance` and `fourth` cumulant of a row's membership, (C, G) each, and `block` at
    the finest level; cells in which a group has no variance are left out for it. So are rectangles
    with V < least, and levels of more rectangles than `most`, (G,).
    """
    n_groups = share.shape[1]
    out = np.zeros((n_groups, depth, height + 1, 4))
    sums = np.zeros((1 << height, n_groups, _WIDTH, 1 << depth))
    # Numbered as in a heap: bin p at level j is 2^j + p.
    cross = np.zeros((1 << height, n_groups, 1 << depth))
    _add_cells(order, first, bins, codes, low, soft, share, variance, fourth, block, sums, cross)
    for j in range(depth - 1, -1, -1):
        n_parents = 1 << j
        finest = height
        while finest >= 0 and (n_parents << finest) > most.max():
            finest -= 1
        own, between = _pool(sums, max(finest, 0)), _pool(cross, max(finest, 0))
        for k in range(finest, -1, -1):
            own, between = _pool(own, k), _pool(between, k)
            for b in range(1 << k):
                for g in range(n_groups):
                    if (n_parents << k) <= most[g]:
                        _add_contrasts(own[b, g], between[b, g], n_parents, least, out[g, j, k])
        _halve(sums, cross, n_parents)
    return out


@njit(cache=True, nogil=True, error_model="numpy")
def _add_cells(order, first, bins, codes, low, soft, share, variance, fourth, block, sums, cross):
    """Sums by block and group: of single bins, and of products of neighbors at all levels."""
    n_groups, n_bins = share.shape[1], sums.shape[3]
    rows, members = np.empty(n_bins), np.empty((n_groups, n_bins))
    for c in range(len(share)):
        size = first[c + 1] - first[c]
        if size == 0:
            continue
        rows[:] = 0.0
        members[:] = 0.0
        for place in range(first[c], first[c + 1]):
            i = order[place]
            rows[bins[i]] += 1.0
            if len(codes):
                g = codes[i] - low
                if 0 <= g < n_groups:
                    members[g, bins[i]] += 1.0
            else:
                for g in range(n_groups):
                    members[g, bins[i]] += soft[i, g]
        for g in range(n_groups):
            v = variance[c, g]
            if v > 0.0:
                into, own = sums[block[c], g], members[g]
                _add_bins(into, rows, own, share[c, g], v, v / size, fourth[c, g])
        half = n_bins >> 1
        while half > 0:
            for g in range(n_groups):
                v = variance[c, g]
                if v > 0.0:
                    _add_neighbors(cross[block[c], g, half:], rows, half, v / size)
            for p in range(half):
                rows[p] = rows[2 * p] + rows[2 * p + 1]
            half >>= 1


@njit(cache=True, nogil=True)
def _add_bins(into, rows, members, share, variance, part, fourth):
    for b in range(len(rows)):
        into[_ROWS, b] += rows[b]
        into[_RESIDUAL, b] += members[b] - share * rows[b]
        into[_VARIANCE, b] += variance * rows[b]
        into[_SQUARES, b] += part * rows[b] * rows[b]
        into[_FOURTH, b] += fourth * rows[b]


@njit(cache=True, nogil=True)
def _add_neighbors(into, rows, half, part):
    for p in range(half):
        into[p] += part * rows[2 * p] * rows[2 * p + 1]


@njit(cache=True, nogil=True)
def _pool(sums, height):
    """Sums over blocks that lie next to one another, until there are 2^height."""
    many = sums.reshape(sums.shape[0], -1)
    each = len(many) >> height
    if each == 1:
        return sums
    out = np.zeros((1 << height, many.shape[1]))
    for b in range(len(many)):
        into, own = out[b // each], many[b]
        for a in range(len(own)):
            into[a] += own[a]
    return out.reshape((1 << height, *sums.shape[1:]))


@njit(cache=True, nogil=True)
def _halve(sums, cross, n_parents):
    """Merge bins two by two, in place."""
    for b in range(sums.shape[0]):
        for g in range(sums.shape[1]):
            for a in range(_WIDTH):
                own = sums[b, g, a]
                for p in range(n_parents):
                    own[p] = own[2 * p] + own[2 * p + 1]
            for p in range(n_parents):
                sums[b, g, _SQUARES, p] += 2.0 * cross[b, g, n_parents + p]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_contrasts(sums, cross, n_parents, least, out):
    """Add the contrasts of bins two by two to the sums of their level."""
    for p in range(n_parents):
        left, right = 2 * p, 2 * p + 1
        if sums[_ROWS, left] <= 0.0 or sums[_ROWS, right] <= 0.0:
            continue
        share = sums[_ROWS, left] / (sums[_ROWS, left] + sums[_ROWS, right])
        rest = 1.0 - share
        rest2, share2 = rest * rest, share * share
        v = rest2 * (sums[_VARIANCE, left] - sums[_SQUARES, left])
        v += share2 * (sums[_VARIANCE, right] - sums[_SQUARES, right])
        v += 2.0 * share * rest * cross[n_parents + p]
        if v < least:
            continue
        d = abs(rest * sums[_RESIDUAL, left] - share * sums[_RESIDUAL, right])
        term = d * d / v
        out[0] += term
        out[1] += 1.0
        out[2] += (rest2 * rest2 * sums[_FOURTH, left] + share2 * share2 * sums[_FOURTH, right]) / (
            v * v
        )
        # Bennett's inequality, for sums of terms of at most 1; d²/2v bounds it without a logarithm.
        if -0.5 * term < out[3]:
            x = d / v
            out[3] = min(out[3], -v * ((1.0 + x) * np.log1p(x) - x))
