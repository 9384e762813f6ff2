"""Loops of the scan for fine structure: contrasts of neighboring bins in blocks of slices."""

from __future__ import annotations

import numpy as np
from numba import njit

# Sums by side of a rectangle: rows, residuals, variance and fourth cumulant (left, right each),
# then the three parts of the variance of a contrast.
_WIDTH = 9


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
def grid_counts(cell, bins, codes, n_cells, n_bins, n_groups):
    """Rows by cell, bin and group."""
    out = np.zeros((n_cells, n_bins, n_groups))
    for i in range(cell.shape[0]):
        out[cell[i], bins[i], codes[i]] += 1.0
    return out


@njit(cache=True, nogil=True)
def scan_levels(start, bins, count, residual, variance, fourth, block, depth, height, least):
    """Σ D²/V, how many, Σ κ₄/V² and the least log of a bound on P(|D|) for each (j, k).

    Level j = 1 … depth halves each of 2^(j−1) bins of the tested variable, level k = 0 … height
    takes 2^k blocks of the conditioning one. D = Σ (h − h̄_c) r over the rows of such a rectangle,
    h = 1 − π on the left, −π on the right and π the share of rows on the left; r are residuals of
    membership that sum to zero in each cell, `variance` and `fourth` the sums of their null
    variance and fourth cumulant. Entries of cell c are start[c] … start[c + 1] − 1, their bins (of
    2^depth) in ascending order; block[c] is the block of the cell at the finest level.
    Rectangles with V < least are left out.
    """
    n_cells = start.shape[0] - 1
    out = np.zeros((depth, height + 1, 4))
    rows_of = np.zeros(n_cells)
    variance_of = np.zeros(n_cells)
    for c in range(n_cells):
        for e in range(start[c], start[c + 1]):
            rows_of[c] += count[e]
            variance_of[c] += variance[e]
    sums = np.empty((2, 4))
    for j in range(depth):
        shift = depth - 1 - j
        n_parents = 1 << j
        table = np.zeros((1 << height, n_parents, _WIDTH))
        for c in range(n_cells):
            if variance_of[c] <= 0.0:
                continue
            e = start[c]
            last = start[c + 1]
            while e < last:
                parent = bins[e] >> (shift + 1)
                sums[:] = 0.0
                while e < last and bins[e] >> (shift + 1) == parent:
                    side = (bins[e] >> shift) & 1
                    sums[side, 0] += count[e]
                    sums[side, 1] += residual[e]
                    sums[side, 2] += variance[e]
                    sums[side, 3] += fourth[e]
                    e += 1
                t = table[block[c], parent]
                left = sums[0, 0] / rows_of[c]
                right = sums[1, 0] / rows_of[c]
                t[0] += sums[0, 0]
                t[1] += sums[1, 0]
                t[2] += sums[0, 1]
                t[3] += sums[1, 1]
                t[4] += sums[0, 2] * (1.0 - 2.0 * left) + left * left * variance_of[c]
                t[5] += sums[1, 2] * (1.0 - 2.0 * right) + right * right * variance_of[c]
                t[6] += left * sums[1, 2] + right * sums[0, 2] - left * right * variance_of[c]
                t[7] += sums[0, 3]
                t[8] += sums[1, 3]
        for k in range(height, -1, -1):
            n_blocks = 1 << k
            for b in range(n_blocks):
                for p in range(n_parents):
                    t = table[b, p]
                    if t[0] <= 0.0 or t[1] <= 0.0:
                        continue
                    share = t[0] / (t[0] + t[1])
                    rest = 1.0 - share
                    v = rest * rest * t[4] + share * share * t[5] + 2.0 * share * rest * t[6]
                    if v < least:
                        continue
                    d = abs(rest * t[2] - share * t[3])
                    out[j, k, 0] += d * d / v
                    out[j, k, 1] += 1.0
                    out[j, k, 2] += (rest**4 * t[7] + share**4 * t[8]) / (v * v)
                    # Bennett's inequality, for sums of terms of at most 1.
                    x = d / v
                    bound = -v * ((1.0 + x) * np.log1p(x) - x)
                    out[j, k, 3] = min(out[j, k, 3], bound)
            for b in range(n_blocks >> 1):
                table[b] = table[2 * b] + table[2 * b + 1]
    return out
