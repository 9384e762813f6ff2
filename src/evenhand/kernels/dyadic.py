"""The mixture over all recursive dyadic partitions of a grid: one pass up, one pass down.

Nodes of a side are numbered as in a heap: 1 is the whole side, 2i and 2i + 1 are the halves of i,
and the bins are the last level. A rectangle is a pair of nodes.
"""

from __future__ import annotations

import math

import numpy as np

from .primitives import exp_nonpositive, inlined, jit, log1p_unit, piece

# Posterior share below which a rectangle no longer counts.
_LEAST = 1e-9
_LOG_HALF = math.log(0.5)


@piece
def _log_sum(a, b):
    if a < b:
        a, b = b, a
    if a - b > 40.0:
        return a
    e = exp_nonpositive(b - a)
    return a + log1p_unit(e, 1.0 / (2.0 + e))


def log_rising(prior, size):
    """log Γ(c + α)/Γ(α) for whole c below `size`: a row for each α, and one for their sum."""
    alpha = np.append(prior, prior.sum())[:, None]
    out = np.zeros((len(alpha), size))
    np.cumsum(np.log(np.arange(size - 1) + alpha), axis=1, out=out[:, 1:])
    return out


def evidence(cells, prior, rising):
    """Sums over every rectangle, (2·rows, 2·columns, K); log P(R) of each, and the log of the share
    of "not split" in it.

    P(R) = ½·DM(counts) + ¼·P(left)P(right) + ¼·P(lower)P(upper), DM the Dirichlet-multinomial
    probability of the groups of its rows; ½ and ½ where only one side can be split. `cells` are
    (rows, columns, K) masses; `rising` is `log_rising(prior, ·)`, where whole counts, which are
    the rule, are looked up.
    """
    rows, columns, k = cells.shape
    counts = np.zeros((2 * rows, 2 * columns, k))
    counts[rows:, columns:] = cells
    log_p, log_stop = np.zeros((2, 2 * rows, 2 * columns))
    _fill_evidence(counts, prior, rising, log_p, log_stop)
    return counts, log_p, log_stop


@jit
def _fill_evidence(counts, prior, rising, log_p, log_stop):
    height, width, k = counts.shape
    rows, columns, size = height >> 1, width >> 1, rising.shape[1]
    total_prior = 0.0
    for g in range(k):
        total_prior += prior[g]
    for i in range(height - 1, 0, -1):
        for j in range(width - 1, 0, -1):
            n = 0.0
            for g in range(k):
                if i < rows:
                    counts[i, j, g] = counts[2 * i, j, g] + counts[2 * i + 1, j, g]
                elif j < columns:
                    counts[i, j, g] = counts[i, 2 * j, g] + counts[i, 2 * j + 1, g]
                n += counts[i, j, g]
            if n <= 0.0:
                continue
            dm = 0.0
            for g in range(k + 1):
                c = n if g == k else counts[i, j, g]
                if c > 0.0:
                    whole = np.int64(c)
                    if c == whole and whole < size:
                        gain = rising[g, whole]
                    else:
                        alpha = total_prior if g == k else prior[g]
                        gain = math.lgamma(c + alpha) - math.lgamma(alpha)
                    dm += -gain if g == k else gain
            tall, wide = i < rows, j < columns
            if n == 1.0 or not (tall or wide):  # one row is worth the same wherever it ends up
                log_p[i, j] = dm
                continue
            split = 0.0
            if tall:
                split = log_p[2 * i, j] + log_p[2 * i + 1, j]
            if wide:
                across = log_p[i, 2 * j] + log_p[i, 2 * j + 1]
                split = _LOG_HALF + _log_sum(split, across) if tall else across
            log_p[i, j] = _LOG_HALF + _log_sum(dm, split)
            log_stop[i, j] = _LOG_HALF + dm - log_p[i, j]


def leaf_shares(log_p, log_stop):
    """Posterior probability of every rectangle to be a part of the partition, which nodes of the
    first side have one that counts (few have), and the sum."""
    share, live = np.zeros(log_p.shape), np.zeros(len(log_p), dtype=np.bool_)
    share[1, 1] = 1.0
    return share, live, _fill_shares(log_p, log_stop, share, live)


@jit
def _fill_shares(log_p, log_stop, share, live):
    height, width = log_p.shape
    leaves = 0.0
    for i in range(1, height):
        for j in range(1, width):
            reached = share[i, j]
            if reached <= _LEAST:
                share[i, j] = 0.0
                continue
            tall, wide = 2 * i < height, 2 * j < width
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
            if here > _LEAST:
                live[i] = True
            if log_p[i, j] != 0.0:  # an empty part fits nothing
                leaves += here
    return leaves


@inlined
def _parts_around(share, live, bottom, right, at):
    """Fill `at` with the rectangles around a cell that have a share, and count them."""
    count = 0
    i = bottom
    while i > 0:
        j = right if live[i] else 0
        while j > 0:
            if share[i, j] > _LEAST:
                at[count, 0] = i
                at[count, 1] = j
                count += 1
            j >>= 1
        i >>= 1
    return count


def cell_probabilities(counts, share, live, prior, single):
    """In-sample and leave-one-out probability of each group in each cell, (rows, columns, K) each.

    The second is exact for rows of weight 1: 1 / P(aᵢ | others) is the posterior mean over
    partitions of the same for the part the row lies in. `single` is the weight of a row of the
    group in the cell; empty, it is 1. Cells without such a row are left out.
    """
    rows, columns = (size >> 1 for size in share.shape)
    inside, outside = np.ones((2, rows, columns, len(prior)))
    scratch = np.empty((3, len(prior)))
    # Room for the rectangles around a cell.
    height, width = (len(bin(size)) for size in share.shape)
    at = np.empty((height * width, 2), np.int64)
    _fill_probabilities(counts, share, prior, single, live, at, scratch, inside, outside)
    return inside, outside


@jit
def _fill_probabilities(counts, share, prior, single, live, at, scratch, inside, outside):
    rows, columns, k = inside.shape
    p, q, own = scratch[0], scratch[1], scratch[2]
    total_prior = 0.0
    for g in range(k):
        total_prior += prior[g]
    for row in range(rows):
        for column in range(columns):
            some = 0.0
            for g in range(k):
                p[g] = 0.0
                q[g] = 0.0
                if len(single):
                    own[g] = single[row, column, g]
                else:
                    c = counts[rows + row, columns + column, g]
                    own[g] = c if c < 1.0 else 1.0
                some += own[g]
            if some == 0.0:
                continue
            mass = 0.0
            for a in range(_parts_around(share, live, rows + row, columns + column, at)):
                i, j = at[a, 0], at[a, 1]
                part = share[i, j]
                n = total_prior
                for g in range(k):
                    n += counts[i, j, g]
                mass += part
                each = part / n
                for g in range(k):
                    c = counts[i, j, g]
                    rest = c - own[g]
                    p[g] += each * (c + prior[g])
                    q[g] += part * (n - own[g]) / ((rest if rest > 0.0 else 0.0) + prior[g])
            for g in range(k):
                inside[row, column, g] = p[g] / mass
                outside[row, column, g] = mass / q[g]


def grid_sums(first, second, group, weight, shape):
    """Weight of each group in each cell of a grid and, where rows differ, of one row of it.

    A side is the level of each row and the bin of each level; `weight` is empty for equal rows.
    """
    size = math.prod(shape)
    # Short numbers, multiplied by level instead of by row: a third of the time.
    row, column = first[1] * (shape[1] * shape[2]), second[1] * shape[2]
    place = row.astype(np.int32)[first[0]] + column.astype(np.int32)[second[0]] + group
    if not len(weight):
        return np.bincount(place, minlength=size).reshape(shape).astype(float), np.zeros((0, 0, 0))
    mass = np.bincount(place, weight, size)
    single = np.bincount(place, weight * weight, size) / np.where(mass > 0.0, mass, 1.0)
    return mass.reshape(shape), single.reshape(shape)
