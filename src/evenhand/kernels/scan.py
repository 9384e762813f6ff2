"""Contrasts of neighboring bins in blocks of slices, for the scan for fine structure."""

from __future__ import annotations

import numpy as np

from .mathfun import jit

# Sums over the rows of some bins: how many, residuals of membership a − ā, their variances and
# fourth cumulants; and over the cells, variance·rows²/size.
_ROWS, _RESIDUAL, _VARIANCE, _SQUARES, _FOURTH, _WIDTH = 0, 1, 2, 3, 4, 5


def cell_lines(z, t, cell, n_cells):
    """Rows, Σz, Σt, Σz² and Σt² by cell, (C, 5)."""
    out = np.zeros((n_cells, 5))
    _add_lines(z, t, cell, out)
    return out


@jit
def _add_lines(z, t, cell, out):
    for i in range(z.shape[0]):
        c = cell[i]
        out[c, 0] += 1.0
        out[c, 1] += z[i]
        out[c, 2] += t[i]
        out[c, 3] += z[i] * z[i]
        out[c, 4] += t[i] * t[i]


def scan_levels(order, first, bins, members, moments, block, depth, height, most, least):
    """Σ D²/V, how many, Σ κ₄/V² and the least log of a bound on P(|D|), by group and (j, k).

    Level j = 1 … depth halves each of 2^(j−1) bins of the tested variable, level k = 0 … height
    takes 2^k blocks of the conditioning one. D = Σ (h − h̄_c)(a − ā_c) over the rows of such a
    rectangle, h = 1 − π on the left, −π on the right and π the share of rows on the left.

    Parameters
    ----------
    order, first : int arrays
        The rows of cell c are order[first[c]] … order[first[c + 1] − 1].
    bins : (n,) int array
        Of 2^depth.
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
    scratch = np.empty((1 + n_groups, n_bins))
    add = _add_coded_cells if members.ndim == 1 else _add_soft_cells
    add(order, first, bins, members, moments, block + (1 << height), scratch, sums, cross)
    for k in range(height - 1, -1, -1):
        size = 1 << k
        for table in (sums, cross):
            fine = table[2 * size : 4 * size]
            np.add(fine[::2], fine[1::2], out=table[size : 2 * size])
    out = np.zeros((n_groups, depth, height + 1, 4))
    for j in range(depth - 1, -1, -1):
        between = cross[:, :, 1 << j : 2 << j]
        levels = [k for k in range(height + 1) if 1 << j + k <= most.max()]
        if levels:
            used = slice(1, 2 << levels[-1])
            sides = sums[used, ..., ::2], sums[used, ..., 1::2]
            out[:, j, : len(levels)] = _contrasts(*sides, between[used], levels, least)
        sums = sums[..., ::2] + sums[..., 1::2]
        sums[:, :, _SQUARES] += 2.0 * between
    rectangles = 2.0 ** np.add.outer(np.arange(depth), np.arange(height + 1))
    out[rectangles > most[:, None, None]] = 0.0
    return out


def _contrasts(left, right, cross, levels, least):
    """The four sums over the rectangles of each level of blocks, (G, levels, 4)."""
    rows, residual, variance, squares, fourth = (left[:, :, a] for a in range(_WIDTH))
    rows_right, residual_right, variance_right, squares_right, fourth_right = (
        right[:, :, a] for a in range(_WIDTH)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share = rows / (rows + rows_right)
        rest = 1.0 - share
        share2, rest2 = share * share, rest * rest
        v = rest2 * (variance - squares) + share2 * (variance_right - squares_right)
        v += 2.0 * share * rest * cross
        # Where a side has no rows v is 0 or undefined.
        unused = ~(v >= least)
        d = np.abs(rest * residual - share * residual_right)
        x = d / v
        terms = np.empty((4, *v.shape))
        terms[0] = d * x
        terms[1] = 1.0
        terms[2] = (rest2 * rest2 * fourth + share2 * share2 * fourth_right) / (v * v)
        # Bennett's inequality, for sums of terms of at most 1.
        terms[3] = -v * ((1.0 + x) * np.log1p(x) - x)
    terms[:, unused] = 0.0
    starts = (1 << np.array(levels)) - 1
    out = np.add.reduceat(terms.sum(axis=3), starts, axis=1)
    out[3] = np.minimum.reduceat(terms[3].min(axis=2), starts)
    return out.transpose(2, 1, 0)


@jit
def _add_coded_cells(order, first, bins, codes, moments, block, scratch, sums, cross):
    n_groups = scratch.shape[0] - 1
    for c in range(len(block)):
        for a in range(scratch.shape[0]):
            for b in range(scratch.shape[1]):
                scratch[a, b] = 0.0
        for place in range(first[c], first[c + 1]):
            i = order[place]
            scratch[0, bins[i]] += 1.0
            if 0 <= codes[i] < n_groups:
                scratch[1 + codes[i], bins[i]] += 1.0
        _add_cell(c, first[c + 1] - first[c], moments, scratch, sums[block[c]], cross[block[c]])


@jit
def _add_soft_cells(order, first, bins, soft, moments, block, scratch, sums, cross):
    for c in range(len(block)):
        for a in range(scratch.shape[0]):
            for b in range(scratch.shape[1]):
                scratch[a, b] = 0.0
        for place in range(first[c], first[c + 1]):
            i = order[place]
            scratch[0, bins[i]] += 1.0
            for g in range(soft.shape[1]):
                scratch[1 + g, bins[i]] += soft[i, g]
        _add_cell(c, first[c + 1] - first[c], moments, scratch, sums[block[c]], cross[block[c]])


@jit
def _add_cell(c, size, moments, scratch, sums, cross):
    """Sums by group: of single bins, and of products of neighbors at all levels.

    `scratch` holds the rows of the cell in each bin and those of each group; it is not kept.
    """
    rows = scratch[0]
    for g in range(sums.shape[0]):
        share, variance, fourth = moments[0, c, g], moments[1, c, g], moments[2, c, g]
        if variance > 0.0:
            part = variance / size
            for b in range(len(rows)):
                sums[g, _ROWS, b] += rows[b]
                sums[g, _RESIDUAL, b] += scratch[1 + g, b] - share * rows[b]
                sums[g, _VARIANCE, b] += variance * rows[b]
                sums[g, _SQUARES, b] += part * rows[b] * rows[b]
                sums[g, _FOURTH, b] += fourth * rows[b]
    half = len(rows) >> 1
    while half > 0:
        for g in range(sums.shape[0]):
            variance = moments[1, c, g]
            if variance > 0.0:
                part = variance / size
                for p in range(half):
                    cross[g, half + p] += part * rows[2 * p] * rows[2 * p + 1]
        for p in range(half):
            rows[p] = rows[2 * p] + rows[2 * p + 1]
        half >>= 1
