"""Loops behind the adaptive estimator: mid-rank levels, spline products, leave-one-out losses."""

from __future__ import annotations

import math

import numpy as np

from . import Entries
from .primitives import exp_nonpositive, jit, log1p_unit, piece, piece_sum


def mid_rank_levels(values, order, weight, target, atom):
    """Cut sorted values into levels of at least `target` mass; ties are never split.

    A value of mass `atom` or more is a level of its own. Returns the level of every row, the
    mid-rank (share of mass below plus half its own) and mass of every level, whether a level is a
    single value, and the number of distinct values.
    """
    ordered = values[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    tied = np.add.reduceat(weight[order], first)
    level = np.arange(len(first))
    if target > 0.0:
        _merge_values(tied, target, atom, level)
    codes = np.empty(len(values), np.int64)
    codes[order] = np.repeat(level, np.diff(first, append=len(values)))
    mass = np.bincount(level, tied)
    above = np.cumsum(mass)
    rank = (above - 0.5 * mass) / above[-1]
    return codes, rank, mass, np.bincount(level) == 1, len(first)


@jit
def _merge_values(tied, target, atom, level):
    """Level of each value, from the masses of the values in order."""
    count, mass = -1, target
    for j in range(len(tied)):
        if mass >= target or tied[j] >= atom:
            count, mass = count + 1, 0.0
        mass += tied[j]
        level[j] = count
        if tied[j] >= atom:
            mass = target


def table_rows(u, low, step, table):
    """Basis functions tabulated on an even grid, interpolated linearly at each u."""
    out = np.empty((len(u), table.shape[1]))
    _fill_table_rows(u, low, step, table, out)
    return out


@jit
def _fill_table_rows(u, low, step, table, out):
    last = float(table.shape[0] - 1)
    for i in range(out.shape[0]):
        x = (u[i] - low) / step
        x = x if x > 0.0 else 0.0
        x = x if x < last else last
        j = np.int64(x if x < last - 1.0 else last - 1.0)
        f = x - j
        for d in range(out.shape[1]):
            out[i, d] = (1.0 - f) * table[j, d] + f * table[j + 1, d]


def products(first, second, left, right):
    """Columns first[:, left[d]] · second[:, right[d]]."""
    out = np.empty((len(first), len(left)))
    _fill_products(first, second, left, right, out)
    return out


@jit
def _fill_products(first, second, left, right, out):
    for i in range(out.shape[0]):
        for d in range(out.shape[1]):
            out[i, d] = first[i, left[d]] * second[i, right[d]]


def softmax_loss(eta, counts, total, prob, residual):
    """−Σ counts · log p with group 0 as reference (η₀ = 0).

    Fills p, (C, K), and total·p − counts of the other groups, (C, K − 1).
    """
    loss = _two_group_loss if eta.shape[1] == 1 else _many_group_loss
    return loss(eta, counts, total, prob, residual)


@jit
def _two_group_loss(eta, counts, total, prob, residual):
    loss = 0.0
    for i in range(eta.shape[0]):
        x = eta[i, 0]
        e = exp_nonpositive(-abs(x))
        inverse = 1.0 / (1.0 + e)
        up, down = inverse, e * inverse
        prob[i, 0] = down if x >= 0.0 else up
        prob[i, 1] = up if x >= 0.0 else down
        residual[i, 0] = total[i] * prob[i, 1] - counts[i, 1]
        long = (x if x > 0.0 else 0.0) + log1p_unit(e, 1.0 / (2.0 + e))
        loss += total[i] * long - counts[i, 1] * x
    return loss


@jit
def _many_group_loss(eta, counts, total, prob, residual):
    loss = 0.0
    n, q = eta.shape
    for i in range(n):
        row, p, count, r = eta[i], prob[i], counts[i], residual[i]
        top = 0.0
        for k in range(q):
            top = row[k] if row[k] > top else top
        for k in range(q):
            p[k + 1] = exp_nonpositive(row[k] - top)
        p[0] = exp_nonpositive(-top)
        mass = 0.0
        for k in range(q + 1):
            mass += p[k]
        linear = 0.0
        share = 1.0 / mass
        p[0] *= share
        for k in range(q):
            p[k + 1] *= share
            linear += count[k + 1] * row[k]
            r[k] = total[i] * p[k + 1] - count[k + 1]
        loss += total[i] * (top + math.log(mass)) - linear
    return loss


def scale_rows(columns, prob, total, i, j, out):
    """columns·√(total·p_i·p_j) for groups i ≠ j, and with 1 − p_i in place of p_j for i = j."""
    if columns.dtype == np.float64 and columns.size < _SMALL:
        p = prob[:, i]
        root = np.sqrt(total * p * ((1.0 - p) if i == j else prob[:, j]))
        np.multiply(columns, root[:, None], out=out)
    else:
        _fill_scaled(columns, prob, total, i, j, out)


@jit
def _fill_scaled(columns, prob, total, i, j, out):
    for c in range(len(total)):
        p = prob[c, i]
        root = out.dtype.type(math.sqrt(total[c] * p * ((1.0 - p) if i == j else prob[c, j])))
        for d in range(columns.shape[1]):
            out[c, d] = columns[c, d] * root


@jit
def pair_weights(prob, total, out):
    """total·p_i(1[i = j] − p_j) for all pairs i ≤ j of the groups but the first, (C, pairs)."""
    for c in range(len(total)):
        at = 0
        for i in range(1, prob.shape[1]):
            own = total[c] * prob[c, i]
            for j in range(i, prob.shape[1]):
                out[c, at + j - i] = -own * prob[c, j]
            out[c, at] += own
            at += prob.shape[1] - i


@jit
def pair_products(columns, out):
    """Products of all pairs i ≤ j of the columns, (C, pairs)."""
    n, d = columns.shape
    for c in range(n):
        at = 0
        for i in range(d):
            own = columns[c, i]
            for j in range(i, d):
                out[c, at + j - i] = own * columns[c, j]
            at += d - i


def row_forms(mapped, columns):
    """mapped[i, p]·columns[i]: quadratic forms of each row from their images, (C, forms)."""
    if columns.dtype == np.float64:
        return np.matmul(mapped, columns[:, :, None])[:, :, 0]
    out = np.empty(mapped.shape[:2])
    _fill_forms(mapped, columns, out)
    return out


@jit
def _fill_forms(mapped, columns, out):
    n, forms, d = mapped.shape
    for i in range(n):
        for p in range(forms):
            out[i, p] = _dot(mapped[i, p], columns[i], d)


@piece_sum
def _dot(a, b, n):
    total = a[0] * b[0]
    for j in range(1, n):
        total += a[j] * b[j]
    return total


# Numbers in columns up to which NumPy is quick enough and need not be compiled.
_SMALL = 100_000
# Up to this norm of ω M V one term of its series is enough: the rest is far below the error of the
# one Newton step. Steps up to the second bound move the loss by a parabola to 1e-7 nats.
_FIRST_ORDER, _PARABOLA = 1e-3, 5e-3
# Up to here, and beyond so many groups, a series is cheaper than a factorization; it ends after at
# most so many terms, or where one changes the scores by less than the last number.
_SERIES, _SERIES_GROUPS, _SERIES_TERMS, _SERIES_END = 0.6, 6, 60, 1e-9
# Largest move of a linear predictor.
_MOST = 25.0


def entry_losses(eta, prob, leverage, entries: Entries, exact: bool = False):
    """In-sample and leave-one-out loss of every entry (a row, or all like rows of a cell).

    Leaving out one row of weight ω and membership t moves its linear predictor by
    (I − ω M V)⁻¹ ω M (p − t), M = φᵀ H⁻¹ φ (`leverage`) and V = diag(p) − p pᵀ: one Newton step.
    An entry of rows with different memberships of mean t has `spread` λ > 0: its leave-one-out loss
    is the mean over rows with memberships t + λ(e_j − t), in shares t_j. If not `exact`, small
    steps of many groups are found to first order, and their loss by a parabola.
    """
    q = eta.shape[1]
    losses = np.empty((2, len(entries.cell)))
    if q == 1:
        _two_group_entries(eta, prob, leverage, entries, losses)
    else:
        bounds = (0.0, 0.0, 0.0) if exact else (_FIRST_ORDER, _PARABOLA, _SERIES)
        scratch, pivots = np.empty((q + 6, q + 1)), np.empty(q, np.int64)
        _many_group_entries(eta, prob, leverage, entries, bounds, scratch, pivots, losses)
    return losses[0], losses[1]


@jit
def _two_group_entries(eta, prob, leverage, entries, losses):
    cell, target, single, spread = entries
    for i in range(len(target)):
        c = cell[i]
        x, h = eta[c, 0], single[i] * leverage[c, 0, 0]
        p, t = prob[c, 1], target[i, 1]
        losses[0, i] = _soft_plus(x) - t * x
        slack = 1.0 - h * p * prob[c, 0]
        h /= slack if abs(slack) >= 1e-3 else 1e-3
        if spread[i] == 0.0:
            z = x + _clip(h * (p - t))
            losses[1, i] = _soft_plus(z) - t * z
            continue
        losses[1, i] = 0.0
        for j in range(2):
            member = (1.0 - spread[i]) * t + spread[i] * j
            z = x + _clip(h * (p - member))
            losses[1, i] += target[i, j] * (_soft_plus(z) - member * z)


@piece
def _clip(x):
    x = x if x > -_MOST else -_MOST
    return x if x < _MOST else _MOST


@jit
def _many_group_entries(eta, prob, leverage, entries, bounds, scratch, pivots, losses):
    cell, target, single, spread = entries
    first_order, parabola, series_norm = bounds
    n_entries, groups = target.shape
    q = groups - 1
    a, b, mean, member, series = (
        scratch[:q],
        scratch[q],
        scratch[q + 1],
        scratch[q + 2],
        scratch[q + 3 :],
    )
    last_cell = -1
    last_omega = -1.0
    norm = 0.0
    log_total = 0.0
    factored = False
    for i in range(n_entries):
        c = cell[i]
        omega = single[i]
        p = prob[c, 1:]
        if c != last_cell:
            log_total = _log_total(eta[c], series[0], q)
        if c != last_cell or omega != last_omega:
            # Entries come cell by cell, so with many groups one factorization serves them all.
            last_cell = c
            last_omega = omega
            factored = False
            norm = 0.0
            for k in range(q):
                mean[k] = _dot(leverage[c, k], p, q)
                row = 0.0
                for j in range(q):
                    row += abs(leverage[c, k, j] - mean[k]) * p[j]
                # No eigenvalue of ω M V is larger than this.
                row *= omega
                norm = row if row > norm else norm
        label = -1
        for k in range(groups):
            member[k] = target[i, k]
            if member[k] == 1.0:
                label = k
        if label < 0:
            losses[0, i] = log_total - _dot(member[1:], eta[c], q)
        else:
            losses[0, i] = log_total - (eta[c, label - 1] if label > 0 else 0.0)
        points = groups if spread[i] > 0.0 else 1
        losses[1, i] = 0.0
        for j in range(points):
            share = 1.0
            if points > 1:
                share = target[i, j]
                if share == 0.0:
                    continue
                for k in range(groups):
                    member[k] = (1.0 - spread[i]) * target[i, k]
                member[j] += spread[i]
            if label > 0:
                for k in range(q):
                    b[k] = omega * (mean[k] - leverage[c, label - 1, k])
            else:
                for k in range(q):
                    b[k] = omega * mean[k]
                    if label < 0:
                        b[k] -= omega * _dot(leverage[c, k], member[1:], q)
            if norm > first_order:
                done = False
                if q > _SERIES_GROUPS and norm <= series_norm and not factored:
                    done = _sum_series(leverage[c], p, omega, b, series, q)
                if not done:
                    if not factored:
                        for k in range(q):
                            for h in range(q):
                                a[k, h] = -omega * (leverage[c, k, h] - mean[k]) * p[h]
                            a[k, k] += 1.0
                        _factor(a, pivots, q)
                        factored = True
                    _solve(a, b, pivots, q)
            largest = 0.0
            for k in range(q):
                size = abs(b[k])
                largest = size if size > largest else largest
            if largest <= parabola:
                first, second, along = 0.0, 0.0, 0.0
                for k in range(q):
                    first += p[k] * b[k]
                    second += p[k] * b[k] * b[k]
                    along += member[k + 1] * (eta[c, k] + b[k])
                losses[1, i] += share * (log_total + first + 0.5 * (second - first * first) - along)
                continue
            for k in range(q):
                b[k] = eta[c, k] + _clip(b[k])
            losses[1, i] += share * (_log_total(b, series[0], q) - _dot(member[1:], b, q))


@piece
def _soft_plus(x):
    """log(1 + e^x)."""
    e = exp_nonpositive(-abs(x))
    return (x if x > 0.0 else 0.0) + log1p_unit(e, 1.0 / (2.0 + e))


@piece
def _log_total(scores, scratch, q):
    """log(1 + Σ e^score)."""
    top = 0.0
    for k in range(q):
        top = scores[k] if scores[k] > top else top
    for k in range(q):
        scratch[k] = exp_nonpositive(scores[k] - top)
    total = exp_nonpositive(-top)
    for k in range(q):
        total += scratch[k]
    return top + math.log(total)


@piece
def _sum_series(m, p, omega, b, scratch, q):
    """b ← Σⱼ (ω M V)ʲ b; False, and b as it was, where that does not converge soon."""
    term, z, total = scratch[0], scratch[1], scratch[2]
    for k in range(q):
        term[k] = b[k]
        total[k] = b[k]
    for _ in range(_SERIES_TERMS):
        mean = _dot(p, term, q)
        for k in range(q):
            z[k] = p[k] * (term[k] - mean)
        largest = 0.0
        for k in range(q):
            term[k] = omega * _dot(m[k], z, q)
            total[k] += term[k]
            size = abs(term[k])
            largest = size if size > largest else largest
        if largest <= _SERIES_END:
            for k in range(q):
                b[k] = total[k]
            return True
    return False


@piece
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
                held = a[k, j]
                a[k, j] = a[pivot, j]
                a[pivot, j] = held
        if abs(a[k, k]) < 1e-3:
            a[k, k] = 1e-3
        for i in range(k + 1, q):
            a[i, k] /= a[k, k]
            for j in range(k + 1, q):
                a[i, j] -= a[i, k] * a[k, j]


@piece
def _solve(a, b, pivots, q):
    """Solve in place with the factors of :func:`_factor`."""
    for k in range(q):
        if pivots[k] != k:
            held = b[k]
            b[k] = b[pivots[k]]
            b[pivots[k]] = held
    for k in range(q):
        for j in range(k):
            b[k] -= a[k, j] * b[j]
    for k in range(q - 1, -1, -1):
        for j in range(k + 1, q):
            b[k] -= a[k, j] * b[j]
        b[k] /= a[k, k]
