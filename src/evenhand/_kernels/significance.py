"""Row loops of the tests of exact fairness: ranks, conditional ranks and moments within cells."""

from __future__ import annotations

import numpy as np

from ._numba import njit

# The conditional rank is read off a histogram of the standardized residual on ±RANGE.
BINS = 4096
RANGE = 8.0


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


@njit(cache=True, nogil=True)
def find_slots(values, edges):
    """Slot of each row: 2j + 1 is edge j itself, 2j lies between edges j − 1 and j; counts.

    `edges` ascend and are padded with infinity to a power of two.
    """
    n = values.shape[0]
    slot = np.empty(n, dtype=np.int32)
    counts = np.zeros(2 * edges.shape[0] + 1)
    low, high = values[0], values[0]
    # One level of the search for a batch of rows at a time: no branch to mispredict.
    batch = 256
    position = np.empty(batch, dtype=np.int64)
    for start in range(0, n, batch):
        size = min(batch, n - start)
        for i in range(size):
            position[i] = 0
        half = edges.shape[0] >> 1
        while half > 0:
            for i in range(size):
                position[i] += half * np.int64(edges[position[i] + half - 1] < values[start + i])
            half >>= 1
        for i in range(size):
            x = values[start + i]
            low, high = min(low, x), max(high, x)
            j = position[i]
            k = 2 * j + np.int64(edges[j] == x)
            slot[start + i] = k
            counts[k] += 1.0
    return slot, counts, low, high


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
    counts = np.zeros(n_cells)
    center = np.zeros(n_cells)
    means = np.zeros((n_cells, 6))
    f = np.empty(6)
    for i in range(u.shape[0]):
        c = cell[i]
        _features(u[i], v[i], True, f)
        counts[c] += 1.0
        center[c] += z[i]
        for a in range(6):
            means[c, a] += f[a]
    for c in range(n_cells):
        center[c] /= counts[c]
        for a in range(6):
            means[c, a] /= counts[c]
    return center, means


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
    mass = np.zeros((n_cells, 4))
    first = np.zeros((n_cells, width))
    first1 = np.zeros((n_cells if weighted else 1, width))
    first2 = np.zeros((n_cells if weighted else 1, width))
    second = np.zeros((n_cells, width, width))
    counts = np.zeros((n_cells, n_groups))
    members = np.zeros((n_cells if weighted else 1, n_groups))
    totals = np.zeros((n_groups, width))
    f = np.empty(width)
    w = 1.0
    w2 = 1.0
    for i in range(u.shape[0]):
        c = cell[i]
        _features(u[i], v[i], conditional, f)
        if conditional:
            along = z[i] - center[c]
            for a in range(width):
                f[a] -= slope[c, a] * along
        mass[c, 0] += 1.0
        if weighted:
            w = weight[i]
            w1 = rest[i]
            w2 = w1 * w1
            mass[c, 1] += w
            mass[c, 2] += w1
            mass[c, 3] += w2
            for a in range(width):
                first1[c, a] += w1 * f[a]
                first2[c, a] += w2 * f[a]
        for a in range(width):
            first[c, a] += w * f[a]
            for b in range(a + 1):
                second[c, a, b] += w2 * f[a] * f[b]
        if coded:
            k = codes[i]
            counts[c, k] += 1.0
            if weighted:
                members[c, k] += w
            for a in range(width):
                totals[k, a] += w * f[a]
    if not weighted:
        mass[:, 1] = mass[:, 0]
        mass[:, 2] = mass[:, 0]
        mass[:, 3] = mass[:, 0]
        first1 = first
        first2 = first
        members = counts
    for a in range(width):
        for b in range(a):
            second[:, b, a] = second[:, a, b]
    return mass, first, first1, first2, second, counts, members, totals
