"""Contrasts of neighboring bins in blocks of slices, for the scan for fine structure."""

from __future__ import annotations

import math

import numpy as np

from .mathfun import jit

# Sums over the rows of some bins: residuals of membership a − ā, their variances and fourth
# cumulants, how many; and over the cells, variance·rows²/size.
_RESIDUAL, _VARIANCE, _FOURTH, _ROWS, _SQUARES, _WIDTH = 0, 1, 2, 3, 4, 5


def cell_lines(z, t, cell, n_cells):
    """Rows, Σz, Σt, Σz² and Σt² by cell, (5, C)."""
    columns = (None, z, t, z * z, t * t)
    return np.stack([np.bincount(cell, column, n_cells) for column in columns])


def scan_levels(cell, bins, members, moments, block, depth, height, most, least):
    """Σ D²/V, how many, Σ κ₄/V² and the least log of a bound on P(|D|), by group and (j, k).

    Level j = 1 … depth halves each of 2^(j−1) bins of the tested variable, level k = 0 … height
    takes 2^k blocks of the conditioning one. D = Σ (h − h̄_c)(a − ā_c) over the rows of such a
    rectangle, h = 1 − π on the left, −π on the right and π the share of rows on the left.

    Parameters
    ----------
    cell, bins : (n,) int arrays
        Cell of each row, and its bin of 2^depth.
    members : (n,) int array or (n, G) array
        Groups 0 … G − 1 of the rows, or another number for none of them; or memberships.
    moments : (3, C, G) array
        Share ā_c of each group, null variance and fourth cumulant of a row's membership; cells in
        which a group has no variance are left out for it.
    block : (C,) int array
        Block of a cell at the finest level, of 2^height.
    depth, height : int
    most : (G,) array
        Levels of more rectangles are left out.
    least : float
        Rectangles with V < least are left out.
    """
    n_groups, n_bins = moments.shape[2], 1 << depth
    # Numbered as in heaps: block b at level k is 2^k + b, and so are bins at level j of `cross`.
    sums = np.zeros((2 << height, n_groups, _WIDTH, n_bins))
    cross = np.zeros((2 << height, n_groups, n_bins))
    rows = np.bincount(cell * n_bins + bins, minlength=len(block) * n_bins).astype(float)
    parts = np.concatenate([-moments[:1], moments[1:]])
    _add_cells(rows.reshape(-1, n_bins), parts, block + (1 << height), sums, cross)
    place = block[cell] * n_bins + bins
    used = moments[1] > 0.0
    for g in range(n_groups):
        own = (members == g) if members.ndim == 1 else members[:, g]
        mass = np.bincount(place, own * used[cell, g], n_bins << height)
        sums[1 << height :, g, _RESIDUAL] += mass.reshape(-1, n_bins)
    for k in range(height - 1, -1, -1):
        size = 1 << k
        for table in (sums, cross):
            fine = table[2 * size : 4 * size]
            np.add(fine[::2], fine[1::2], out=table[size : 2 * size])
    out = np.zeros((depth, n_groups, height + 1, 4))
    for j in range(depth - 1, -1, -1):
        between = cross[:, :, 1 << j : 2 << j]
        _add_contrasts(sums, between, most / (1 << j), least, out[j])
        sums = sums[..., ::2] + sums[..., 1::2]
        sums[:, :, _SQUARES] += 2.0 * between
    return out.transpose(1, 0, 2, 3)


@jit
def _add_contrasts(sums, cross, most, least, out):
    """Add the contrasts of bins two by two, at all levels of blocks."""
    k = 0
    for node in range(1, sums.shape[0]):
        if node == 2 << k:
            k += 1
        for g in range(sums.shape[1]):
            if 1 << k > most[g]:
                continue
            own, into = sums[node, g], out[g, k]
            for p in range(cross.shape[2]):
                left, right = own[_ROWS, 2 * p], own[_ROWS, 2 * p + 1]
                if left <= 0.0 or right <= 0.0:
                    continue
                share = left / (left + right)
                rest = 1.0 - share
                rest2, share2 = rest * rest, share * share
                v = rest2 * (own[_VARIANCE, 2 * p] - own[_SQUARES, 2 * p])
                v += share2 * (own[_VARIANCE, 2 * p + 1] - own[_SQUARES, 2 * p + 1])
                v += 2.0 * share * rest * cross[node, g, p]
                if v < least:
                    continue
                d = abs(rest * own[_RESIDUAL, 2 * p] - share * own[_RESIDUAL, 2 * p + 1])
                into[0] += d * d / v
                into[1] += 1.0
                into[2] += (
                    rest2 * rest2 * own[_FOURTH, 2 * p] + share2 * share2 * own[_FOURTH, 2 * p + 1]
                ) / (v * v)
                # Bennett's inequality, for sums of terms of at most 1; d²/2v bounds it without a
                # logarithm.
                x = d / v
                if -0.5 * d * x < into[3]:
                    bound = -v * ((1.0 + x) * math.log1p(x) - x)
                    into[3] = bound if bound < into[3] else into[3]


@jit
def _add_cells(table, parts, block, sums, cross):
    """Sums by block and group: of single bins, and of products of neighbors at all levels.

    `table` holds the rows of each cell in each bin and is not kept; `parts` (3, C, G) are what a
    row adds to the first three sums, of residuals all but the membership.
    """
    for c in range(table.shape[0]):
        rows, size = table[c], 0.0
        for b in range(len(rows)):
            size += rows[b]
        for g in range(sums.shape[1]):
            if parts[_VARIANCE, c, g] > 0.0:
                own, part = sums[block[c], g], parts[_VARIANCE, c, g] / size
                residual, variance, fourth = parts[0, c, g], parts[1, c, g], parts[2, c, g]
                for b in range(len(rows)):
                    own[_RESIDUAL, b] += residual * rows[b]
                    own[_VARIANCE, b] += variance * rows[b]
                    own[_FOURTH, b] += fourth * rows[b]
                    own[_ROWS, b] += rows[b]
                    own[_SQUARES, b] += part * rows[b] * rows[b]
        half = len(rows) >> 1
        while half > 0:
            for g in range(sums.shape[1]):
                part = parts[_VARIANCE, c, g] / size
                if part > 0.0:
                    for p in range(half):
                        cross[block[c], g, half + p] += part * rows[2 * p] * rows[2 * p + 1]
            for p in range(half):
                rows[p] = rows[2 * p] + rows[2 * p + 1]
            half >>= 1
