"""Loops behind the adaptive estimator: mid-rank levels, and leave-one-out losses of many groups."""

from __future__ import annotations

import math

import numpy as np

from .primitives import exp_nonpositive, jit, piece, piece_sum

# A series ends after at most so many terms, or where one changes the scores by less than that.
_SERIES_TERMS, _SERIES_END = 60, 1e-11
# Largest move of a linear predictor.
_MOST = 25.0


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


@jit
def leave_out_by_series(eta, p, leverage, cell, target, single, label, bounds, scratch, out):
    """Loss of each entry without one of its rows; left alone where a series converges too slowly.

    The step is (I − ωMV)⁻¹ ωM(p − t) = Σⱼ (ωMV)ʲ ωM(p − t), its first term alone up to the norm
    bounds[0]. `label` is the group of an entry, or −1 for one of memberships `target`.
    """
    q = eta.shape[1]
    mean, step, series = scratch[0], scratch[1], scratch[2:]
    last, norm = -1, 0.0
    for i in range(len(cell)):
        c, omega = cell[i], single[i]
        m = leverage[c]
        if c != last:  # entries come cell by cell
            last, norm = c, _mean_and_norm(m, p[c], mean, q)
        if omega * norm > bounds[1]:
            continue
        for k in range(q):
            own = _dot(m[k], target[i, 1:], q) if label[i] < 0 else 0.0
            if label[i] > 0:
                own = m[label[i] - 1, k]
            step[k] = omega * (mean[k] - own)
        if omega * norm > bounds[0]:
            _sum_series(m, p[c], omega, step, series, q)
        for k in range(q):
            x = step[k] if step[k] > -_MOST else -_MOST
            step[k] = eta[c, k] + (x if x < _MOST else _MOST)
        own = _dot(step, target[i, 1:], q) if label[i] < 0 else 0.0
        if label[i] > 0:
            own = step[label[i] - 1]
        out[i] = _log_total(step, series[0], q) - own


@piece
def _mean_and_norm(m, p, mean, q):
    """Fill Mp; a bound on the eigenvalues of MV."""
    norm = 0.0
    for k in range(q):
        mean[k] = _dot(m[k], p, q)
        row = 0.0
        for j in range(q):
            row += abs(m[k, j] - mean[k]) * p[j]
        norm = row if row > norm else norm
    return norm


@piece_sum
def _dot(a, b, n):
    total = a[0] * b[0]
    for j in range(1, n):
        total += a[j] * b[j]
    return total


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
    """b ← Σⱼ (ω M V)ʲ b."""
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
            break
    for k in range(q):
        b[k] = total[k]
