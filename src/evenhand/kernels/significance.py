"""Row loops of the tests of exact fairness: ranks, conditional ranks and moments within cells."""

from __future__ import annotations

import numpy as np
from numba import njit

from .registers import LANES, PRODUCTS, add_products, add_row

# The conditional rank is read off a histogram of the standardized residual on ±RANGE.
BINS = 4096
RANGE = 8.0
# Test functions of a variable given another.
_CONDITIONAL = 6
# Rows whose test functions are computed before they are summed.
_BATCH = 128


@njit(cache=True, nogil=True)
def mid_ranks(values, order):
    """Mid-distribution function P(X < x) + P(X = x)/2, atom numbers and how many there are."""
    n = values.shape[0]
    rank = np.empty(n)
    atom = np.empty(n, dtype=np.int32)
    count = 0
    first = 0
    while first < n:
        value = values[order[first]]
        last = first + 1
        while last < n and values[order[last]] == value:
            last += 1
        middle = 0.5 * (first + last) / n
        for t in range(first, last):
            rank[order[t]] = middle
            atom[order[t]] = count
        count += 1
        first = last
    return rank, atom, count


# Buckets of equal width in which edges are looked up; most hold none of them or one.
_BUCKETS = 1 << 17
# Share of the edges at either end that the buckets leave out, as tails would make them wide.
_TAIL = 1 / 64
# Edges that a bucket may hold to be gone through one by one, and the share of edges in fuller ones
# from which on rows are searched for among all edges, one level of the search at a time.
_FEW, _CROWDED = 4, 0.25


@njit(cache=True, nogil=True)
def find_slots(values, edges):
    """Slot of each row: 2j + 1 is edge j itself, 2j lies between edges j − 1 and j; counts.

    `edges` ascend and are padded with infinity to a power of two.
    """
    n = values.shape[0]
    slot = np.empty(n, dtype=np.int32)
    counts = np.zeros(2 * edges.shape[0] + 1)
    m = edges.shape[0]
    while m > 0 and edges[m - 1] == np.inf:
        m -= 1
    first, base, scale = _bucket_edges(edges, m)
    in_order = len(first) == 0
    low, high = values[0], values[0]
    batch = 256
    position = np.empty(batch, dtype=np.int64)
    for start in range(0, n, batch):
        size = min(batch, n - start)
        if in_order:
            # One level of the search for a batch of rows at a time: no branch to mispredict.
            for i in range(size):
                position[i] = 0
            half = edges.shape[0] >> 1
            while half > 0:
                for i in range(size):
                    below = edges[position[i] + half - 1] < values[start + i]
                    position[i] += half * np.int64(below)
                half >>= 1
        else:
            for i in range(size):
                x = values[start + i]
                bucket = _bucket(x, base, scale)
                j, stop = np.int64(first[bucket]), np.int64(first[bucket + 1])
                while stop - j > _FEW:
                    middle = (j + stop) >> 1
                    if edges[middle] < x:
                        j = middle + 1
                    else:
                        stop = middle
                while j < stop and edges[j] < x:
                    j += 1
                position[i] = j
        for i in range(size):
            x = values[start + i]
            low, high = min(low, x), max(high, x)
            j = position[i]
            k = 2 * j + np.int64(edges[j] == x)
            slot[start + i] = k
            counts[k] += 1.0
    return slot, counts, low, high


@njit(cache=True, nogil=True, inline="always")
def _bucket(x, base, scale):
    """Bucket of a value, which never falls as the value grows; the first and last hold tails."""
    return np.int64(min(max((x - base) * scale, -1.0), float(_BUCKETS)) + 1.0)


@njit(cache=True, nogil=True)
def _bucket_edges(edges, m):
    """Number of edges below each bucket, where buckets begin and 1/width; none if they are no help.

    An edge of a lower bucket is below the value, and one of a higher bucket above it.
    """
    nothing = np.empty(0, np.int32)
    tail = int(_TAIL * m)
    if m < 2:
        return nothing, 0.0, 0.0
    base, width = edges[tail], edges[m - 1 - tail] - edges[tail]
    scale = _BUCKETS / width if width > 0.0 else np.inf
    if not (0.0 < scale < np.inf):
        return nothing, 0.0, 0.0
    first = np.zeros(_BUCKETS + 3, np.int32)
    for j in range(m):
        first[_bucket(edges[j], base, scale) + 1] += 1
    crowded = 0
    for b in range(1, _BUCKETS + 3):
        if first[b] > _FEW and 1 < b < _BUCKETS + 2:
            crowded += first[b]
        first[b] += first[b - 1]
    if crowded > _CROWDED * m:
        return nothing, 0.0, 0.0
    return first, base, scale


@njit(cache=True, nogil=True)
def order_statistics(values, slot, counts, edges, wanted):
    """The values at the places `wanted`, ascending from 0, of all values in order.

    `slot` and `counts` are those of :func:`find_slots`: only rows of the slots between two edges
    that have a wanted place are put in order.
    """
    first = np.zeros(len(counts) + 1, np.int64)  # place of the first row of a slot
    start = np.full(len(counts), -1, np.int64)  # where its rows are kept, if they are
    kept, j = 0, 0
    for k in range(len(counts)):
        first[k + 1] = first[k] + np.int64(counts[k])
        while j < len(wanted) and wanted[j] < first[k]:
            j += 1
        if k % 2 == 0 and j < len(wanted) and wanted[j] < first[k + 1]:
            start[k] = kept
            kept += np.int64(counts[k])
    some = np.empty(kept)
    free = start.copy()
    for i in range(len(values)):
        k = slot[i]
        if free[k] >= 0:
            some[free[k]] = values[i]
            free[k] += 1
    out = np.empty(len(wanted))
    k, settled = 0, 0
    for j in range(len(wanted)):
        while first[k + 1] <= wanted[j]:
            k += 1
        if k % 2:
            out[j] = edges[k // 2]
        else:
            at = start[k] + wanted[j] - first[k]
            # What lies left of an earlier place is smaller already.
            _select(some, max(start[k], settled), free[k] - 1, at)
            out[j] = some[at]
            settled = at + 1
    return out


@njit(cache=True, nogil=True)
def _select(x, low, high, at):
    """Put the value that belongs at a place there, smaller ones left and larger ones right of it.

    Hoare's quickselect.
    """
    while low < high:
        pivot = x[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while x[i] < pivot:
                i += 1
            while pivot < x[j]:
                j -= 1
            if i <= j:
                x[i], x[j] = x[j], x[i]
                i += 1
                j -= 1
        if at <= j:
            high = j
        elif at >= i:
            low = i
        else:
            return


@njit(cache=True, nogil=True)
def slice_numbers(rank, wanted):
    """Slice of each row, of `wanted` ones of equal width in rank, and how many rows each has."""
    out = np.empty(rank.shape[0], np.int32)
    counts = np.zeros(wanted, np.int64)
    for i in range(rank.shape[0]):
        k = min(int(rank[i] * wanted), wanted - 1)
        out[i] = k
        counts[k] += 1
    return out, counts


@njit(cache=True, nogil=True)
def slot_ranks(values, slot, table):
    """Rank and normal score, linear in x within each slot.

    Columns of `table`: left end and 1/width of the slot, rank and its gain, score and its gain.
    """
    n = values.shape[0]
    rank = np.empty(n)
    score = np.empty(n)
    for i in range(n):
        k = slot[i]
        share = (values[i] - table[k, 0]) * table[k, 1]
        # Infinite values and slots without width take the middle.
        if not 0.0 <= share <= 1.0:
            share = 0.5
        rank[i] = table[k, 2] + share * table[k, 3]
        score[i] = table[k, 4] + share * table[k, 5]
    return rank, score


@njit(cache=True, nogil=True, fastmath=True)
def power_sums(z, t):
    """Σ z^k for k ≤ 6 and Σ t z^k for k ≤ 3: all that a cubic regression needs."""
    a1 = a2 = a3 = a4 = a5 = a6 = 0.0
    b0 = b1 = b2 = b3 = 0.0
    for i in range(z.shape[0]):
        x = z[i]
        y = t[i]
        x2 = x * x
        x3 = x2 * x
        a1 += x
        a2 += x2
        a3 += x3
        a4 += x2 * x2
        a5 += x2 * x3
        a6 += x3 * x3
        b0 += y
        b1 += y * x
        b2 += y * x2
        b3 += y * x3
    return np.array([z.shape[0], a1, a2, a3, a4, a5, a6]), np.array([b0, b1, b2, b3])


@njit(cache=True, nogil=True)
def block_sums(z, t, beta, block, n_blocks):
    """Count, Σ z and Σ (t − cubic) by block."""
    sums = np.zeros((n_blocks, 3))
    for i in range(z.shape[0]):
        x = z[i]
        b = block[i]
        sums[b, 0] += 1.0
        sums[b, 1] += x
        sums[b, 2] += t[i] - (beta[0] + x * (beta[1] + x * (beta[2] + x * beta[3])))
    return sums


@njit(cache=True, nogil=True)
def detrend(z, t, beta, block, center, level, slope):
    """t − cubic − interpolated block means, and its squares by block.

    Entry j of `level` and `slope` is the line between block centers j − 1 and j, flat at the ends.
    """
    n = z.shape[0]
    residual = np.empty(n)
    squares = np.zeros(center.shape[0])
    for i in range(n):
        x = z[i]
        b = block[i]
        j = b + 1 if x >= center[b] else b
        r = t[i] - (beta[0] + x * (beta[1] + x * (beta[2] + x * beta[3])))
        r -= level[j] + slope[j] * x
        residual[i] = r
        squares[b] += r * r
    return residual, squares


@njit(cache=True, nogil=True)
def conditional_rank(z, residual, block, center, level, slope):
    """Distribution function of the residual times its interpolated precision, in place."""
    n = z.shape[0]
    counts = np.zeros(BINS + 1)
    scale = BINS / (2.0 * RANGE)
    for i in range(n):
        x = z[i]
        b = block[i]
        j = b + 1 if x >= center[b] else b
        e = (residual[i] * (level[j] + slope[j] * x) + RANGE) * scale
        e = min(max(e, 0.0), BINS - 1e-6)
        residual[i] = e
        counts[int(e)] += 1.0
    below = np.zeros(BINS + 1)
    for b in range(BINS):
        counts[b] /= n
        below[b + 1] = below[b] + counts[b]
    for i in range(n):
        b = int(residual[i])
        residual[i] = below[b] + (residual[i] - b) * counts[b]
    return residual


@njit(cache=True, nogil=True, inline="always")
def _features(u, v, conditional, out):
    # Legendre polynomials, orthonormal for uniform u and v.
    x = 2.0 * u - 1.0
    first = 1.7320508075688772 * x
    second = 2.23606797749979 * (1.5 * x * x - 0.5)
    out[0] = first
    out[1] = second
    out[2] = 2.6457513110645907 * x * (2.5 * x * x - 1.5)
    if conditional:
        y = 2.0 * v - 1.0
        q = 1.7320508075688772 * y
        out[3] = first * q
        out[4] = second * q
        out[5] = first * 2.23606797749979 * (1.5 * y * y - 0.5)
    else:
        x *= x
        out[3] = 0.375 * (x * (35.0 * x - 30.0) + 3.0)


@njit(cache=True, nogil=True)
def cell_means(u, v, z, cell, n_cells):
    """Means of z and of the test functions by cell."""
    # One after the other, so that they are added up together.
    sums = np.zeros((n_cells, 8))
    own = np.ones(8)
    for i in range(u.shape[0]):
        own[1] = z[i]
        _features(u[i], v[i], True, own[2:])
        into = sums[cell[i]]
        for a in range(8):
            into[a] += own[a]
    for c in range(n_cells):
        for a in range(1, 8):
            sums[c, a] /= sums[c, 0]
    return sums[:, 1].copy(), sums[:, 2:].copy()


@njit(cache=True, nogil=True)
def feature_matrix(u, v, z, cell, center, slope):
    """The test functions less their slope within the cell, one row each; see `cell_moments`."""
    conditional = z.shape[0] > 0
    width = slope.shape[1]
    out = np.empty((u.shape[0], width))
    for i in range(u.shape[0]):
        _features(u[i], v[i], conditional, out[i])
        if conditional:
            c = cell[i]
            for a in range(width):
                out[i, a] -= slope[c, a] * (z[i] - center[c])
    return out


@njit(cache=True, nogil=True)
def cell_moments(u, v, z, cell, center, slope, weight, rest, codes, n_groups):
    """One pass over the rows for all sums that the test needs.

    Weights are w = h·g with h of the group alone. Returns, by cell, rows, Σw, Σg and Σg²; Σwf; Σgf;
    Σg²f; Σg²ffᵀ; rows and Σw of each group; and over all rows Σwf of each group. `weight` and its
    part g, `rest`, are empty for equal weights, `codes` for soft membership, `z` for independence.
    """
    n_cells, width = slope.shape
    conditional = z.shape[0] > 0
    weighted = weight.shape[0] > 0
    coded = codes.shape[0] > 0
    # Vectors (f, 1), whose products with themselves hold Σffᵀ, Σf and the number of rows: `square`
    # those of g(f, 1), `plain` sums of g(f, 1) and of w(f, 1), the latter with a 1 behind.
    last, half = LANES - 2, LANES // 2
    square = np.zeros((n_cells, PRODUCTS))
    plain = np.zeros((2 * n_cells if weighted else 1, LANES))
    by_group = np.zeros((4 * n_groups, LANES))
    counts = np.zeros((n_cells, n_groups))
    members = np.zeros((n_cells if weighted else 1, n_groups))
    f = np.zeros((_BATCH, LANES))
    scaled = np.zeros((_BATCH if weighted else 0, LANES))
    for start in range(0, u.shape[0], _BATCH):
        size = min(_BATCH, u.shape[0] - start)
        for i in range(size):
            row = f[i]
            _features(u[start + i], v[start + i], conditional, row)
            row[last] = 1.0
            if conditional:
                c = cell[start + i]
                along = z[start + i] - center[c]
                for a in range(_CONDITIONAL):
                    row[a] -= slope[c, a] * along
        if weighted:
            for i in range(size):
                for a in range(last + 1):
                    scaled[i, a] = rest[start + i] * f[i, a]
                    f[i, a] *= weight[start + i]
                f[i, last + 1] = 1.0
            for i in range(size):
                c = cell[start + i]
                add_products(scaled, i, square, c)
                add_row(scaled, i, plain, 2 * c)
                add_row(f, i, plain, 2 * c + 1)
        else:
            for i in range(size):
                add_products(f, i, square, cell[start + i])
        if coded:
            for i in range(size):
                # Four sums of each group take turns, so that none waits for the last one.
                add_row(f, i, by_group, 4 * codes[start + i] + (i & 3))
                counts[cell[start + i], codes[start + i]] += 1.0
            if weighted:
                for i in range(size):
                    members[cell[start + i], codes[start + i]] += weight[start + i]
    second = np.empty((n_cells, width, width))
    mass = np.empty((n_cells, 4))
    first, first1, first2 = np.empty((3, n_cells, width))
    for c in range(n_cells):
        for a in range(last + 1):
            at = a * half if a < half else half * half + (a - half) * LANES
            for b in range(a + 1 if a < last else width):
                if a < width:
                    second[c, a, b] = second[c, b, a] = square[c, at + b]
                elif a == last:
                    first2[c, b] = square[c, at + b]
        mass[c, 3] = square[c, PRODUCTS - 2]
        if weighted:
            first[c], first1[c] = plain[2 * c + 1, :width], plain[2 * c, :width]
            mass[c, 0], mass[c, 1] = plain[2 * c + 1, last + 1], plain[2 * c + 1, last]
            mass[c, 2] = plain[2 * c, last]
        else:
            first[c] = first1[c] = first2[c]
            mass[c, :3] = mass[c, 3]
    totals = by_group.reshape(n_groups, 4, LANES).sum(axis=1)[:, :width].copy()
    return mass, first, first1, first2, second, counts, members if weighted else counts, totals
