"""The mixture over all recursive dyadic partitions of a grid: one pass up, one pass down.

Nodes of a side are numbered as in a heap: 1 is the whole side, 2i and 2i + 1 are the halves of i,
and the bins are the last level. A rectangle is a pair of nodes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .mathfun import exp_nonpositive, log1p_unit

# Posterior share below which a rectangle no longer counts.
_LEAST = 1e-9
_LOG_HALF = math.log(0.5)


@njit(cache=True, nogil=True)
def log_gamma(x):
    """log Γ(x) for x > 0, to 1e-10."""
    shift = 0.0
    while x < 8.0:
        shift -= math.log(x)
        x += 1.0
    r = 1.0 / x
    r2 = r * r
    series = r * (1.0 / 12.0 - r2 * (1.0 / 360.0 - r2 * (1.0 / 1260.0 - r2 / 1680.0)))
    return shift + (x - 0.5) * math.log(x) - x + 0.9189385332046727 + series


@njit(cache=True, nogil=True)
def rectangle_sums(cells):
    """Sums over every rectangle, (2·rows, 2·columns, K), from those of the cells."""
    rows, columns, k = cells.shape
    out = np.zeros((2 * rows, 2 * columns, k))
    out[rows:, columns:] = cells
    for i in range(rows, 2 * rows):
        for j in range(columns - 1, 0, -1):
            for g in range(k):
                out[i, j, g] = out[i, 2 * j, g] + out[i, 2 * j + 1, g]
    for i in range(rows - 1, 0, -1):
        for j in range(1, 2 * columns):
            for g in range(k):
                out[i, j, g] = out[2 * i, j, g] + out[2 * i + 1, j, g]
    return out


@njit(cache=True, nogil=True)
def _log_sum(a, b):
    if a < b:
        a, b = b, a
    if a - b > 40.0:
        return a
    e = exp_nonpositive(b - a)
    return a + log1p_unit(e, 1.0 / (2.0 + e))


@njit(cache=True, nogil=True)
def log_rising(prior, size):
    """log Γ(c + α)/Γ(α) for whole c below `size`: a row for each α, and one for their sum."""
    k = len(prior)
    out = np.empty((k + 1, size))
    for g in range(k + 1):
        alpha = prior.sum() if g == k else prior[g]
        out[g, 0] = 0.0
        for c in range(1, size):
            out[g, c] = out[g, c - 1] + math.log(c - 1.0 + alpha)
    return out


@njit(cache=True, nogil=True)
def evidence(counts, prior, rising):
    """log P(R) of every rectangle, and the log of the share of "not split" in it.

    P(R) = ½·DM(counts) + ¼·P(left)P(right) + ¼·P(lower)P(upper), DM the Dirichlet-multinomial
    probability of the groups of its rows; ½ and ½ where only one side can be split. `rising` is
    `log_rising(prior, ·)`, where whole counts, which are the rule, are looked up.
    """
    height, width, k = counts.shape
    rows, columns = height // 2, width // 2
    total_prior = prior.sum()
    size = rising.shape[1]
    log_p = np.zeros((height, width))
    log_stop = np.zeros((height, width))
    for i in range(height - 1, 0, -1):
        for j in range(width - 1, 0, -1):
            n = 0.0
            for g in range(k):
                n += counts[i, j, g]
            if n <= 0.0:
                continue
            dm = 0.0
            for g in range(k + 1):
                c = n if g == k else counts[i, j, g]
                if c > 0.0:
                    whole = int(c)
                    if c == whole and whole < size:
                        gain = rising[g, whole]
                    else:
                        alpha = total_prior if g == k else prior[g]
                        gain = log_gamma(c + alpha) - log_gamma(alpha)
                    dm += -gain if g == k else gain
            tall, wide = i < rows, j < columns
            if n == 1.0 or not (tall or wide):  # one row is worth the same wherever it ends up
                log_p[i, j] = dm
                continue
            if tall and wide:
                split = _LOG_HALF + _log_sum(
                    log_p[2 * i, j] + log_p[2 * i + 1, j], log_p[i, 2 * j] + log_p[i, 2 * j + 1]
                )
            elif tall:
                split = log_p[2 * i, j] + log_p[2 * i + 1, j]
            else:
                split = log_p[i, 2 * j] + log_p[i, 2 * j + 1]
            log_p[i, j] = _LOG_HALF + _log_sum(dm, split)
            log_stop[i, j] = _LOG_HALF + dm - log_p[i, j]
    return log_p, log_stop


@njit(cache=True, nogil=True)
def leaf_shares(log_p, log_stop):
    """Posterior probability of every rectangle to be a part of the partition, and their sum."""
    height, width = log_p.shape
    rows, columns = height // 2, width // 2
    share = np.zeros((height, width))
    share[1, 1] = 1.0
    leaves = 0.0
    for i in range(1, height):
        for j in range(1, width):
            reached = share[i, j]
            if reached <= _LEAST:
                share[i, j] = 0.0
                continue
            tall, wide = i < rows, j < columns
            here = reached * math.exp(log_stop[i, j])
            if here < (1.0 - 1e-12) * reached:
                scale = _LOG_HALF - log_p[i, j]
                if tall and wide:
                    scale += _LOG_HALF
                if tall:
                    part = reached * math.exp(log_p[2 * i, j] + log_p[2 * i + 1, j] + scale)
                    share[2 * i, j] += part
                    share[2 * i + 1, j] += part
                if wide:
                    part = reached * math.exp(log_p[i, 2 * j] + log_p[i, 2 * j + 1] + scale)
                    share[i, 2 * j] += part
                    share[i, 2 * j + 1] += part
            share[i, j] = here
            if log_p[i, j] != 0.0:  # an empty part fits nothing
                leaves += here
    return share, leaves


@njit(cache=True, nogil=True)
def _places(rows, columns):
    """Room for the rectangles around a cell."""
    high = int(math.log2(rows)) + 2
    wide = int(math.log2(columns)) + 2
    return np.empty((high * wide, 2), np.int64)


@njit(cache=True, nogil=True)
def _live_rows(share):
    """Whether any rectangle of a node of the first side has a share; few have."""
    out = np.zeros(len(share), np.bool_)
    for i in range(len(share)):
        for j in range(share.shape[1]):
            if share[i, j] > _LEAST:
                out[i] = True
                break
    return out


@njit(cache=True, nogil=True)
def _parts_around(share, live, bottom, right, at):
    """Fill `at` with the rectangles around a cell that have a share, and count them."""
    found = 0
    i = bottom
    while i > 0:
        j = right if live[i] else 0
        while j > 0:
            if share[i, j] > _LEAST:
                at[found, 0] = i
                at[found, 1] = j
                found += 1
            j >>= 1
        i >>= 1
    return found


@njit(cache=True, nogil=True)
def cell_probabilities(counts, share, prior, single):
    """In-sample and leave-one-out probability of each group in each cell, (rows, columns, K) each.

    The second is exact for rows of weight 1: 1 / P(aᵢ | others) is the posterior mean over
    partitions of the same for the part the row lies in. `single` is the weight of a row of the
    group in the cell; empty, it is 1.
    """
    rows, columns, k = counts.shape[0] // 2, counts.shape[1] // 2, counts.shape[2]
    inside = np.ones((rows, columns, k))
    outside = np.ones((rows, columns, k))
    total_prior = prior.sum()
    p, q, own = np.empty(k), np.empty(k), np.empty(k)
    at, live = _places(rows, columns), _live_rows(share)
    for row in range(rows):
        for column in range(columns):
            some = 0.0
            for g in range(k):
                p[g] = 0.0
                q[g] = 0.0
                own[g] = min(counts[rows + row, columns + column, g], 1.0)
                if len(single):
                    own[g] = single[row, column, g]
                some += own[g]
            if some == 0.0:
                continue
            mass = 0.0
            for a in range(_parts_around(share, live, rows + row, columns + column, at)):
                i, j = at[a]
                part = share[i, j]
                n = total_prior
                for g in range(k):
                    n += counts[i, j, g]
                mass += part
                each = part / n
                for g in range(k):
                    c = counts[i, j, g]
                    p[g] += each * (c + prior[g])
                    q[g] += part * (n - own[g]) / (max(c - own[g], 0.0) + prior[g])
            for g in range(k):
                inside[row, column, g] = p[g] / mass
                outside[row, column, g] = mass / q[g]
    return inside, outside


@njit(cache=True, nogil=True)
def left_out(counts, share, prior, row, column):
    """Probability of each group at given cells, by a mixture fitted without their rows."""
    rows, columns, k = counts.shape[0] // 2, counts.shape[1] // 2, counts.shape[2]
    out = np.zeros((len(row), k))
    total_prior = prior.sum()
    at, live = _places(rows, columns), _live_rows(share)
    for e in range(len(row)):
        mass = 0.0
        for a in range(_parts_around(share, live, rows + row[e], columns + column[e], at)):
            i, j = at[a]
            part = share[i, j]
            n = total_prior
            for g in range(k):
                n += counts[i, j, g]
            mass += part
            for g in range(k):
                out[e, g] += part * (counts[i, j, g] + prior[g]) / n
        for g in range(k):
            out[e, g] /= mass
    return out


@njit(cache=True, nogil=True)
def grid_sums(first, first_bin, second, second_bin, group, weight, shape):
    """Weight of each group in each cell of a grid and, where rows differ, of one row of it.

    A row lies in the bins of its levels `first` and `second`; `weight` is empty for equal ones.
    """
    mass = np.zeros(shape)
    single = np.zeros(shape if len(weight) else (0, 0, 0))
    for i in range(len(group)):
        r, c, g = first_bin[first[i]], second_bin[second[i]], group[i]
        if len(weight):
            mass[r, c, g] += weight[i]
            single[r, c, g] += weight[i] * weight[i]
        else:
            mass[r, c, g] += 1.0
    if len(weight):
        for r in range(shape[0]):
            for c in range(shape[1]):
                for g in range(shape[2]):
                    if mass[r, c, g] > 0.0:
                        single[r, c, g] /= mass[r, c, g]
    return mass, single
