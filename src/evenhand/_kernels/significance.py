"""Row loops of the tests of exact fairness: ranks, conditional ranks and moments within cells."""

from __future__ import annotations

import numpy as np
from numba import njit

# The conditional rank is read off a histogram of the standardized residual on ±RANGE.
BINS = 4096
RANGE = 8.0


@njit(cache=True, nogil=True)
def mid_ranks(values, order, weight):
    """Weighted and unweighted mid-distribution function F(x−) + P(x)/2, and the atom number.

    `weight` is empty for equal weights; then both functions are the same array.
    """
    n = values.shape[0]
    weighted = weight.shape[0] > 0
    plain = np.empty(n)
    share = np.empty(n) if weighted else plain
    atom = np.empty(n, dtype=np.int64)
    total = float(n)
    if weighted:
        total = 0.0
        for i in range(n):
            total += weight[i]
    below = 0.0
    count = 0
    first = 0
    while first < n:
        value = values[order[first]]
        last = first + 1
        while last < n and values[order[last]] == value:
            last += 1
        middle = 0.5 * (first + last) / n
        mass = 0.0
        if weighted:
            for t in range(first, last):
                mass += weight[order[t]]
        center = (below + 0.5 * mass) / total
        for t in range(first, last):
            i = order[t]
            plain[i] = middle
            if weighted:
                share[i] = center
            atom[i] = count
        below += mass
        count += 1
        first = last
    return share, plain, atom, count


@njit(cache=True, nogil=True)
def cubic_moments(z, t):
    """Gram matrix and right-hand side of the regression of t on 1, z, z² − 1, z³ − 3z."""
    gram = np.zeros((4, 4))
    right = np.zeros(4)
    h = np.empty(4)
    for i in range(z.shape[0]):
        x = z[i]
        h[0] = 1.0
        h[1] = x
        h[2] = x * x - 1.0
        h[3] = x * x * x - 3.0 * x
        for a in range(4):
            right[a] += h[a] * t[i]
            for b in range(a + 1):
                gram[a, b] += h[a] * h[b]
    for a in range(4):
        for b in range(a):
            gram[b, a] = gram[a, b]
    return gram, right


@njit(cache=True, nogil=True)
def cubic_residual(z, t, beta, block, n_blocks):
    """t minus the cubic, with the sums by block that the local correction needs."""
    n = z.shape[0]
    residual = np.empty(n)
    sums = np.zeros((n_blocks, 3))
    for i in range(n):
        x = z[i]
        fit = beta[0] + beta[1] * x + beta[2] * (x * x - 1.0) + beta[3] * (x * x * x - 3.0 * x)
        r = t[i] - fit
        residual[i] = r
        sums[block[i], 0] += 1.0
        sums[block[i], 1] += x
        sums[block[i], 2] += r
    return residual, sums


@njit(cache=True, nogil=True)
def _interpolate(x, b, center, level):
    last = center.shape[0] - 1
    if x < center[b]:
        if b == 0:
            return level[0]
        b -= 1
    elif b == last:
        return level[last]
    gap = center[b + 1] - center[b]
    share = (x - center[b]) / gap if gap > 0.0 else 0.0
    return level[b] + share * (level[b + 1] - level[b])


@njit(cache=True, nogil=True)
def remove_level(z, residual, block, center, level):
    """Subtract the interpolated block means in place; sums of squares by block."""
    squares = np.zeros(center.shape[0])
    for i in range(z.shape[0]):
        r = residual[i] - _interpolate(z[i], block[i], center, level)
        residual[i] = r
        squares[block[i]] += r * r
    return squares


@njit(cache=True, nogil=True)
def conditional_rank(z, residual, block, center, spread):
    """Distribution function of the residual over its interpolated spread, in place."""
    n = z.shape[0]
    counts = np.zeros(BINS + 1)
    scale = BINS / (2.0 * RANGE)
    for i in range(n):
        e = residual[i] / _interpolate(z[i], block[i], center, spread)
        e = min(max((e + RANGE) * scale, 0.0), BINS - 1e-6)
        residual[i] = e
        counts[int(e)] += 1.0 / n
    below = np.zeros(BINS + 1)
    for b in range(BINS):
        below[b + 1] = below[b] + counts[b]
    for i in range(n):
        b = int(residual[i])
        residual[i] = below[b] + (residual[i] - b) * counts[b]
    return residual


@njit(cache=True, nogil=True)
def features(u, v, conditional, out):
    """Test functions of one row: Legendre polynomials, orthonormal for uniform u and v."""
    x = 2.0 * u - 1.0
    out[0] = 1.7320508075688772 * x
    out[1] = 2.23606797749979 * (1.5 * x * x - 0.5)
    out[2] = 2.6457513110645907 * x * (2.5 * x * x - 1.5)
    if conditional:
        y = 2.0 * v - 1.0
        q = 1.7320508075688772 * y
        out[3] = out[0] * q
        out[4] = out[1] * q
        out[5] = out[0] * 2.23606797749979 * (1.5 * y * y - 0.5)
    else:
        out[3] = 0.375 * (35.0 * x**4 - 30.0 * x * x + 3.0)


@njit(cache=True, nogil=True)
def feature_matrix(u, v, conditional):
    n = u.shape[0]
    out = np.empty((n, 6 if conditional else 4))
    for i in range(n):
        features(u[i], v[i], conditional, out[i])
    return out


@njit(cache=True, nogil=True)
def cell_moments(u, v, cell, n_cells, weight, conditional):
    """Weighted cell means of the test functions and their w²-weighted scatter about them."""
    n = u.shape[0]
    width = 6 if conditional else 4
    weighted = weight.shape[0] > 0
    total = np.zeros(n_cells)
    means = np.zeros((n_cells, width))
    scatter = np.zeros((n_cells, width, width))
    f = np.empty(width)
    for i in range(n):
        w = weight[i] if weighted else 1.0
        c = cell[i]
        features(u[i], v[i], conditional, f)
        total[c] += w
        for a in range(width):
            means[c, a] += w * f[a]
    for c in range(n_cells):
        if total[c] > 0.0:
            for a in range(width):
                means[c, a] /= total[c]
    for i in range(n):
        w = weight[i] if weighted else 1.0
        c = cell[i]
        features(u[i], v[i], conditional, f)
        for a in range(width):
            f[a] = w * (f[a] - means[c, a])
            for b in range(a + 1):
                scatter[c, a, b] += f[a] * f[b]
    for c in range(n_cells):
        for a in range(width):
            for b in range(a):
                scatter[c, b, a] = scatter[c, a, b]
    return means, scatter


@njit(cache=True, nogil=True)
def group_sums(u, v, cell, means, weight, codes, n_groups, conditional):
    """Σ w (f − f̄_cell) over the rows of each group: (K, J)."""
    width = means.shape[1]
    weighted = weight.shape[0] > 0
    out = np.zeros((n_groups, width))
    f = np.empty(width)
    for i in range(u.shape[0]):
        w = weight[i] if weighted else 1.0
        c = cell[i]
        k = codes[i]
        features(u[i], v[i], conditional, f)
        for a in range(width):
            out[k, a] += w * (f[a] - means[c, a])
    return out
