"""Loops of the scan for fine structure: contrasts of neighboring bins in blocks of slices."""

from __future__ import annotations

import numpy as np

from ._numba import njit

# Sums of a rectangle: rows and residuals on the left and right, the three parts of the variance of
# a contrast, and fourth cumulants on the left and right.
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
def count_entries(cell, bins, codes, n_cells, n_bins, n_groups):
    """Rows by cell, bin and group: where cells start, bins, rows, and rows by group, if any."""
    table = np.zeros((n_cells * n_bins, n_groups), dtype=np.int32)
    for i in range(cell.shape[0]):
        table[np.int64(cell[i]) * n_bins + bins[i], codes[i]] += 1
    start = np.zeros(n_cells + 1, dtype=np.int64)
    number = np.empty(min(n_cells * n_bins, cell.shape[0]), dtype=np.int64)
    rows = np.empty(number.shape[0])
    members = np.empty((n_groups, number.shape[0]))
    e = 0
    for c in range(n_cells):
        for b in range(n_bins):
            total = 0
            for k in range(n_groups):
                total += table[c * n_bins + b, k]
            if total > 0:
                number[e] = b
                rows[e] = total
                for k in range(n_groups):
                    members[k, e] = table[c * n_bins + b, k]
                e += 1
        start[c + 1] = e
    return start, number[:e], rows[:e], members[:, :e].copy()


@njit(cache=True, nogil=True)
def scan_levels(
    start, bins, rows, member, share, variance, fourth, block, depth, height, most, least
):
    """Σ D²/V, how many, Σ κ₄/V² and the least log of a bound on P(|D|) for each (j, k).

    Level j = 1 … depth halves each of 2^(j−1) bins of the tested variable, level k = 0 … height
    takes 2^k blocks of the conditioning one. D = Σ (h − h̄_c)(a − ā_c) over the rows of such a
    rectangle, h = 1 − π on the left, −π on the right and π the share of rows on the left. Entries
    of cell c are start[c] … start[c + 1] − 1: bins (of 2^depth) in ascending order, rows, and
    members of the group among them. By cell: `share` ā_c, null `variance` and `fourth` cumulant of
    a row's membership, `block` at the finest level; cells without variance are left out. So are
    rectangles with V < least, and levels of more than `most` rectangles.
    """
    n_cells = start.shape[0] - 1
    out = np.zeros((depth, height + 1, 4))
    # Entries are merged in place, level by level.
    bins, rows, member = bins.copy(), rows.copy(), member.copy()
    begin, end = start[:-1].copy(), start[1:].copy()
    size = np.zeros(n_cells)
    for c in range(n_cells):
        for e in range(begin[c], end[c]):
            size[c] += rows[e]
    for j in range(depth - 1, -1, -1):
        n_parents = 1 << j
        finest = height
        while finest >= 0 and (n_parents << finest) > most:
            finest -= 1
        used = finest >= 0
        table = np.zeros((1 << max(finest, 0), n_parents if used else 1, _WIDTH))
        for c in range(n_cells):
            if variance[c] <= 0.0:
                continue
            e = begin[c]
            to = e
            while e < end[c]:
                parent = bins[e] >> 1
                left = right = left_members = right_members = 0.0
                while e < end[c] and bins[e] >> 1 == parent:
                    if bins[e] & 1:
                        right += rows[e]
                        right_members += member[e]
                    else:
                        left += rows[e]
                        left_members += member[e]
                    e += 1
                bins[to] = parent
                rows[to] = left + right
                member[to] = left_members + right_members
                to += 1
                if used:
                    t = table[block[c] >> (height - finest), parent]
                    t[0] += left
                    t[1] += right
                    t[2] += left_members - share[c] * left
                    t[3] += right_members - share[c] * right
                    t[4] += variance[c] * left * (1.0 - left / size[c])
                    t[5] += variance[c] * right * (1.0 - right / size[c])
                    t[6] += variance[c] * left * right / size[c]
                    t[7] += fourth[c] * left
                    t[8] += fourth[c] * right
            end[c] = to
        for k in range(finest, -1, -1):
            n_blocks = 1 << k
            for b in range(n_blocks):
                for p in range(n_parents):
                    t = table[b, p]
                    if t[0] <= 0.0 or t[1] <= 0.0:
                        continue
                    on_left = t[0] / (t[0] + t[1])
                    rest = 1.0 - on_left
                    v = rest * rest * t[4] + on_left * on_left * t[5]
                    v += 2.0 * on_left * rest * t[6]
                    if v < least:
                        continue
                    d = abs(rest * t[2] - on_left * t[3])
                    out[j, k, 0] += d * d / v
                    out[j, k, 1] += 1.0
                    out[j, k, 2] += (rest**4 * t[7] + on_left**4 * t[8]) / (v * v)
                    # Bennett's inequality, for sums of terms of at most 1.
                    x = d / v
                    out[j, k, 3] = min(out[j, k, 3], -v * ((1.0 + x) * np.log1p(x) - x))
            for b in range(n_blocks >> 1):
                table[b] = table[2 * b] + table[2 * b + 1]
    return out
