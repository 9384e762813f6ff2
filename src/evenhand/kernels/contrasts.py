"""Row loops of the tests of exact fairness: moments within cells, contrasts of neighboring bins."""

from __future__ import annotations

import math

import numpy as np

from .primitives import accumulate, add_into, jit, unpack

# Test functions of a variable given another.
_CONDITIONAL = 6
# Rows whose test functions are computed before they are summed.
_BATCH = 4096
# Numbers of a row, and of their products with one another: of the first half with that half, then
# of the others but the last with all.
_HALF, _WHOLE = (0.0,) * 4, (0.0,) * 8
LANES, PRODUCTS = 8, 40
# Place of the 1 behind the test functions, and where the product of two of these numbers is.
_LAST = LANES - 2
_NUMBERS = np.arange(_LAST + 1)
_UPPER, _LOWER = np.maximum.outer(_NUMBERS, _NUMBERS), np.minimum.outer(_NUMBERS, _NUMBERS)
_PLACE = np.where(_UPPER < 4, 4 * _UPPER, 16 + 8 * (_UPPER - 4)) + _LOWER
# Sums over the rows of some bins: residuals of membership a − ā, their variances and fourth
# cumulants, how many; and over the cells, variance·rows²/size.
_RESIDUAL, _VARIANCE, _FOURTH, _ROWS, _SQUARES, _WIDTH = 0, 1, 2, 3, 4, 5


def cell_means(u, v, z, cell, n_cells):
    """Means of z and of the test functions by cell."""
    sums, f = np.zeros((n_cells, LANES)), np.zeros((min(_BATCH, len(u)), LANES))
    f[:, _CONDITIONAL + 1] = 1.0
    for start in range(0, len(u), _BATCH):
        part = slice(start, start + _BATCH)
        size = len(u[part])
        _fill_features(u[part], v[part], True, f)
        f[:size, _CONDITIONAL] = z[part]
        sum_rows(f, cell[part], sums)
    means = sums[:, :-1] / sums[:, -1:]
    return means[:, -1].copy(), means[:, :-1].copy()


def feature_matrix(u, v, z, cell, center, slope):
    """The test functions less their slope within the cell, one row each; see `cell_moments`."""
    out = np.empty((len(u), slope.shape[1]))
    _fill_rows(u, v, z, cell, center, slope, out)
    return out


def cell_moments(u, v, z, cell, center, slope, codes, n_groups):
    """All sums that the test needs, from one pass over the rows.

    Returns, by cell, the number of rows, Σf, Σffᵀ and the rows of each group; and over all rows Σf
    of each group. `codes` are empty for soft membership, `z` for independence.
    """
    n_cells, width = slope.shape
    # Products of vectors (f, 1) with themselves hold Σffᵀ, Σf and the number of rows.
    square = np.zeros((n_cells, PRODUCTS))
    # Four sums of each group take turns, so that none waits for the last one.
    by_group, f = np.zeros((4 * n_groups, LANES)), np.zeros((min(_BATCH, len(u)), LANES))
    f[:, _LAST] = 1.0
    for start in range(0, len(u), _BATCH):
        part = slice(start, start + _BATCH)
        own = cell[part]
        _fill_rows(u[part], v[part], z[part], own, center, slope, f)
        if n_cells == 1:  # where each row would wait for the last one
            square[0, _PLACE] += (f[: len(own)].T @ f[: len(own)])[: LANES - 1, : LANES - 1]
        else:
            sum_products(f, own, square)
        if len(codes):
            place = 4 * codes[part].astype(np.int32) + (np.arange(len(own), dtype=np.int32) & 3)
            sum_rows(f, place, by_group)
    counts = np.zeros((n_cells, n_groups))
    if len(codes):
        pair = cell.astype(np.int64) * n_groups + codes
        counts = np.bincount(pair, minlength=counts.size).reshape(counts.shape).astype(float)
    totals = by_group.reshape(n_groups, 4, LANES).sum(axis=1)[:, :width].copy()
    size, first = square[:, _PLACE[_LAST, _LAST]], square[:, _PLACE[_LAST, :width]]
    return size, first, square[:, _PLACE[:width, :width]], counts, totals


@jit
def sum_rows(columns, index, out):
    """out[index[i]] += columns[i], of LANES columns."""
    for i in range(len(index)):
        add_into(unpack(columns[i], _WHOLE), out, np.int64(index[i]) * LANES)


@jit
def sum_products(columns, index, out):
    """out[index[i]] += PRODUCTS products of the numbers columns[i] with one another."""
    for i in range(len(index)):
        half, whole = unpack(columns[i], _HALF), unpack(columns[i], _WHOLE)
        at = np.int64(index[i]) * PRODUCTS
        for a in range(4):
            add_into(accumulate(_HALF, whole[a], half), out, at + 4 * a)
        for a in range(3):
            add_into(accumulate(_WHOLE, whole[a + 4], whole), out, at + 16 + 8 * a)


def _fill_rows(u, v, z, cell, center, slope, out):
    """The test functions less their slope within the cell into the first columns of `out`."""
    _fill_features(u, v, len(z) > 0, out)
    if len(z):
        _subtract_slopes(z, cell, center, slope, out)


@jit
def _fill_features(u, v, conditional, out):
    """Legendre polynomials, orthonormal for uniform u and v."""
    for i in range(len(u)):
        x = 2.0 * u[i] - 1.0
        first = 1.7320508075688772 * x
        second = 2.23606797749979 * (1.5 * x * x - 0.5)
        out[i, 0] = first
        out[i, 1] = second
        out[i, 2] = 2.6457513110645907 * x * (2.5 * x * x - 1.5)
        if conditional:
            y = 2.0 * v[i] - 1.0
            q = 1.7320508075688772 * y
            out[i, 3] = first * q
            out[i, 4] = second * q
            out[i, 5] = first * 2.23606797749979 * (1.5 * y * y - 0.5)
        else:
            x *= x
            out[i, 3] = 0.375 * (x * (35.0 * x - 30.0) + 3.0)


@jit
def _subtract_slopes(z, cell, center, slope, out):
    for i in range(len(z)):
        c = cell[i]
        along = z[i] - center[c]
        for a in range(_CONDITIONAL):
            out[i, a] -= slope[c, a] * along


def cell_lines(z, t, cell, n_cells):
    """Rows, Σz, Σt, Σz² and Σt² by cell, (5, C)."""
    out = np.zeros((5, n_cells))
    for start in range(0, len(z), 4 * _BATCH):
        part = slice(start, start + 4 * _BATCH)
        x, y, own = z[part], t[part], cell[part].astype(np.intp)
        columns = (None, x, y, x * x, y * y)
        out += [np.bincount(own, column, n_cells) for column in columns]
    return out


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
    # Small and without temporaries: a page that is touched first costs more than a row.
    rows = np.zeros((len(block), n_bins), dtype=np.int32)
    used, node = moments[1] > 0.0, block + (1 << height)
    codes = members if members.ndim == 1 else np.full(len(cell), n_groups)
    _count_rows(cell, bins, codes, used, node, rows, sums)
    _add_cells(rows, np.concatenate([-moments[:1], moments[1:]]), node, sums, cross)
    for g in range(n_groups if members.ndim > 1 else 0):
        mass = members[:, g] * used[cell, g]
        mass = np.bincount(block[cell] * n_bins + bins, mass, n_bins << height)
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
def _count_rows(cell, bins, codes, used, node, rows, sums):
    """Rows by cell and bin, and those of each group by block and bin where it is used."""
    for i in range(len(cell)):
        c, b, g = cell[i], bins[i], codes[i]
        rows[c, b] += 1
        if 0 <= g < sums.shape[1] and used[c, g]:
            sums[node[c], g, _RESIDUAL, b] += 1.0


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
