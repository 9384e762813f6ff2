"""Loops behind the adaptive estimator: mid-rank levels, spline products, leave-one-out losses."""

from __future__ import annotations

import numpy as np

from ._numba import njit


@njit(cache=True, nogil=True)
def mid_rank_levels(values, order, weight, target, atom):
    """Cut sorted values into levels of at least `target` mass; ties are never split.

    A value of mass `atom` or more is a level of its own. Returns the level of every row, the
    mid-rank (share of mass below plus half its own) and mass of every level, whether a level is a
    single value, and the number of distinct values.
    """
    n = values.size
    codes = np.empty(n, np.int64)
    mass = np.empty(n)
    single = np.empty(n, np.bool_)
    level = -1
    distinct = 0
    open_level = False
    start = 0
    while start < n:
        value = values[order[start]]
        stop = start
        tied = 0.0
        while stop < n and values[order[stop]] == value:
            tied += weight[order[stop]]
            stop += 1
        distinct += 1
        if not open_level or tied >= atom:
            level += 1
            mass[level] = 0.0
            single[level] = True
        else:
            single[level] = False
        mass[level] += tied
        open_level = tied < atom and mass[level] < target
        for i in range(start, stop):
            codes[order[i]] = level
        start = stop
    count = level + 1
    total = 0.0
    for j in range(count):
        total += mass[j]
    rank = np.empty(count)
    below = 0.0
    for j in range(count):
        rank[j] = (below + 0.5 * mass[j]) / total
        below += mass[j]
    return codes, rank, mass[:count].copy(), single[:count].copy(), distinct


@njit(cache=True, nogil=True)
def table_rows(u, low, step, table):
    """Basis functions tabulated on an even grid, interpolated linearly at each u."""
    n, width = u.size, table.shape[1]
    last = table.shape[0] - 1
    out = np.empty((n, width))
    for i in range(n):
        x = min(max((u[i] - low) / step, 0.0), float(last))
        j = min(int(x), last - 1)
        f = x - j
        for d in range(width):
            out[i, d] = (1.0 - f) * table[j, d] + f * table[j + 1, d]
    return out


@njit(cache=True, nogil=True)
def products(first, second, left, right):
    """Columns first[:, left[d]] · second[:, right[d]]."""
    n, width = first.shape[0], left.size
    out = np.empty((n, width))
    for i in range(n):
        for d in range(width):
            out[i, d] = first[i, left[d]] * second[i, right[d]]
    return out


@njit(cache=True, nogil=True)
def softmax_loss(eta, counts, prob):
    """−Σ counts · log p with group 0 as reference (η₀ = 0); fills `prob`."""
    n, q = eta.shape
    loss = 0.0
    for i in range(n):
        top = 0.0
        for k in range(q):
            top = max(top, eta[i, k])
        total = np.exp(-top)
        prob[i, 0] = total
        for k in range(q):
            e = np.exp(eta[i, k] - top)
            prob[i, k + 1] = e
            total += e
        log_total = top + np.log(total)
        for k in range(q + 1):
            prob[i, k] /= total
        loss += counts[i, 0] * log_total
        for k in range(q):
            loss += counts[i, k + 1] * (log_total - eta[i, k])
    return loss


@njit(cache=True, nogil=True)
def entry_losses(eta, prob, leverage, cell, target, single, spread):
    """In-sample and leave-one-out loss of every entry (a row, or all like rows of a cell).

    Leaving out one row of weight ω and membership t moves its linear predictor by
    (I − ω M V)⁻¹ ω M (p − t), M = φᵀ H⁻¹ φ (`leverage`) and V = diag(p) − p pᵀ: one Newton step.
    An entry of rows with different memberships of mean t has `spread` λ > 0: its leave-one-out loss
    is the mean over rows with memberships t + λ(e_j − t), in shares t_j.
    """
    entries, groups = target.shape
    q = groups - 1
    inside = np.empty(entries)
    outside = np.empty(entries)
    a = np.empty((q, q))
    b = np.empty(q)
    mean = np.empty(q)
    pivots = np.empty(q, np.int64)
    member = np.empty(groups)
    last_cell = -1
    last_omega = -1.0
    exact = True
    for i in range(entries):
        c = cell[i]
        omega = single[i]
        if c != last_cell or omega != last_omega:
            # Entries come cell by cell, so with many groups one factorization serves them all.
            last_cell = c
            last_omega = omega
            norm = 0.0
            for k in range(q):
                mean[k] = 0.0
                for j in range(q):
                    mean[k] += leverage[c, k, j] * prob[c, j + 1]
                row = 0.0
                for j in range(q):
                    a[k, j] = -omega * (leverage[c, k, j] - mean[k]) * prob[c, j + 1]
                    row += abs(a[k, j])
                norm = max(norm, row)
            # No eigenvalue of ω M V is larger than this norm: the rest of the series is far below
            # the error of the one Newton step.
            exact = norm > 1e-3
            if exact:
                for k in range(q):
                    a[k, k] += 1.0
                _factor(a, pivots, q)
        label = -1
        for k in range(groups):
            member[k] = target[i, k]
            if member[k] == 1.0:
                label = k
        top = 0.0
        dot = 0.0
        for k in range(q):
            top = max(top, eta[c, k])
            dot += member[k + 1] * eta[c, k]
        total = np.exp(-top)
        for k in range(q):
            total += np.exp(eta[c, k] - top)
        inside[i] = top + np.log(total) - dot
        points = groups if spread[i] > 0.0 else 1
        outside[i] = 0.0
        for j in range(points):
            share = 1.0
            if points > 1:
                share = target[i, j]
                if share == 0.0:
                    continue
                for k in range(groups):
                    member[k] = (1.0 - spread[i]) * target[i, k]
                member[j] += spread[i]
            for k in range(q):
                b[k] = omega * mean[k]
                if label > 0:
                    b[k] -= omega * leverage[c, k, label - 1]
                elif label < 0:
                    for h in range(q):
                        b[k] -= omega * leverage[c, k, h] * member[h + 1]
            if exact:
                _solve(a, b, pivots, q)
            top = 0.0
            for k in range(q):
                b[k] = eta[c, k] + min(max(b[k], -25.0), 25.0)
                top = max(top, b[k])
            total = np.exp(-top)
            dot = 0.0
            for k in range(q):
                total += np.exp(b[k] - top)
                dot += member[k + 1] * b[k]
            outside[i] += share * (top + np.log(total) - dot)
    return inside, outside


@njit(cache=True, nogil=True)
def _factor(a, pivots, q):
    """LU with partial pivoting, in place; pivots are kept away from zero."""
    for k in range(q):
        pivot = k
        for i in range(k + 1, q):
            if abs(a[i, k]) > abs(a[pivot, k]):
                pivot = i
        pivots[k] = pivot
        if pivot != k:
            for j in range(q):
                a[k, j], a[pivot, j] = a[pivot, j], a[k, j]
        if abs(a[k, k]) < 1e-3:
            a[k, k] = 1e-3
        for i in range(k + 1, q):
            a[i, k] /= a[k, k]
            for j in range(k + 1, q):
                a[i, j] -= a[i, k] * a[k, j]


@njit(cache=True, nogil=True)
def _solve(a, b, pivots, q):
    """Solve in place with the factors of :func:`_factor`."""
    for k in range(q):
        if pivots[k] != k:
            b[k], b[pivots[k]] = b[pivots[k]], b[k]
    for k in range(q):
        for j in range(k):
            b[k] -= a[k, j] * b[j]
    for k in range(q - 1, -1, -1):
        for j in range(k + 1, q):
            b[k] -= a[k, j] * b[j]
        b[k] /= a[k, k]
