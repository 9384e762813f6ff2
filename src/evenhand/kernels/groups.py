"""Row loops of the group tables: sums and distributions by group in one pass each."""

from __future__ import annotations

import numpy as np

from .mathfun import jit, piece
from .threads import run_chunks

# Mass and squared mass, then first and second moments of score, target, residual, its size and its
# square, and the product of score and target; values less one of the group's rows, except in the
# first moments of size and square, which cannot cancel.
MASS, MASS2, SCORE, TARGET, RESIDUAL, SIZE, SQUARE, PRODUCT, N_SUMS = 0, 1, 2, 4, 6, 8, 10, 12, 13


# Rows looked at together for the first of each group.
_BATCH = 4096


def first_rows(codes, probabilities, weight, least):
    """The first row of each group that weighs at least `least`; 0 for a group without any, (K,)."""
    n, out = max(len(codes), len(probabilities)), np.full(len(least), -1)
    for start in range(0, n, _BATCH):
        part = slice(start, min(start + _BATCH, n))
        amount = weight[part] if len(weight) else np.ones(part.stop - start)
        if len(codes):
            rows = np.flatnonzero(amount >= least[codes[part]])
            group = codes[part][rows]
        else:
            rows, group = np.nonzero(amount[:, None] * probabilities[part] >= least)
        first = np.full(len(out), -1)
        first[group[::-1]] = start + rows[::-1]  # of several rows of a group the first is last here
        out = np.where(out < 0, first, out)
        if (out >= 0).all():
            break
    return np.maximum(out, 0)


@piece
def _add(out, k, w, s, y, shift):
    at = k * N_SUMS
    r = y - s
    size, square = abs(r), r * r
    # All is read before anything is written, which the compiler must take for a change of `shift`.
    ds, dy, dr = s - shift[k, 0], y - shift[k, 1], r - shift[k, 2]
    da, dq = size - shift[k, 3], square - shift[k, 4]
    out[at + MASS] += w
    out[at + MASS2] += w * w
    out[at + SCORE] += w * ds
    out[at + SCORE + 1] += w * ds * ds
    out[at + TARGET] += w * dy
    out[at + TARGET + 1] += w * dy * dy
    out[at + RESIDUAL] += w * dr
    out[at + RESIDUAL + 1] += w * dr * dr
    out[at + SIZE] += w * size
    out[at + SIZE + 1] += w * da * da
    out[at + SQUARE] += w * square
    out[at + SQUARE + 1] += w * dq * dq
    out[at + PRODUCT] += w * ds * dy


def group_sums(s, y, codes, probabilities, weight, shift):
    """The sums named above for each group, (N_SUMS, K)."""
    kernel, members = (
        (_coded_sums_chunk, codes) if len(codes) else (_soft_sums_chunk, probabilities)
    )
    width = len(shift) * N_SUMS
    sums = run_chunks(kernel, len(s), width, (s, y, members, weight, shift))
    return sums.reshape(len(shift), N_SUMS).T


@jit
def _coded_sums_chunk(start, stop, s, y, codes, weight, shift, out):
    for i in range(start, stop):
        w = weight[i] if len(weight) else 1.0
        _add(out, np.int64(codes[i]), w, s[i], y[i], shift)


@jit
def _soft_sums_chunk(start, stop, s, y, probabilities, weight, shift, out):
    for i in range(start, stop):
        w = weight[i] if len(weight) else 1.0
        for k in range(len(shift)):
            _add(out, k, w * probabilities[i, k], s[i], y[i], shift)


def mass_by_cell(cell, codes, probabilities, weight, first, out):
    """Add Σω in each cell of the groups from `first` on to `out` (cells, some groups)."""
    if len(codes):
        _add_mass(cell, codes, weight, first, out)
        return
    for k in range(out.shape[1]):
        own = probabilities[:, first + k]
        out[:, k] += np.bincount(cell, own * weight if len(weight) else own, len(out))


@jit
def _add_mass(cell, codes, weight, first, out):
    for i in range(len(cell)):
        k = np.int64(codes[i]) - first
        if 0 <= k < out.shape[1]:
            out[cell[i], k] += weight[i] if len(weight) else 1.0


def pick_rows(codes, wanted, ends):
    """Rows, ascending, that are the wanted[j]-th of their group k, ends[k] ≤ j < ends[k + 1]."""
    seen, out = np.zeros(len(ends) - 1, np.int64), np.empty(len(wanted), np.int64)
    return out[: _fill_rows(codes, wanted, ends, seen, ends.copy(), out)]


@jit
def _fill_rows(codes, wanted, ends, seen, at, out):
    count = 0
    for i in range(len(codes)):
        k = codes[i]
        if at[k] < ends[k + 1] and wanted[at[k]] == seen[k]:
            out[count] = i
            count += 1
            at[k] += 1
        seen[k] += 1
    return count
