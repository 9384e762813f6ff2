"""Row loops of the group tables: sums and distributions by group in one pass each."""

from __future__ import annotations

import numpy as np
from numba import njit

# Mass and squared mass, then first and second moments of score, target, residual, its size and its
# square, and the product of score and target; values less one of the group's rows, except in the
# first moments of size and square, which cannot cancel.
MASS, MASS2, SCORE, TARGET, RESIDUAL, SIZE, SQUARE, PRODUCT, N_SUMS = 0, 1, 2, 4, 6, 8, 10, 12, 13


@njit(cache=True, nogil=True)
def first_rows(codes, probabilities, weight, least, out):
    """The first row of each group that weighs at least `least`; 0 for a group without any."""
    out[:] = -1
    left = len(out)
    for i in range(max(len(codes), len(probabilities))):
        w = weight[i] if len(weight) else 1.0
        for j in range(1 if len(codes) else len(out)):
            k = codes[i] if len(codes) else j
            p = 1.0 if len(codes) else probabilities[i, k]
            if out[k] < 0 and w * p >= least[k]:
                out[k] = i
                left -= 1
        if left == 0:
            break
    for k in range(len(out)):
        out[k] = max(out[k], 0)


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
def group_sums_chunk(start, stop, s, y, codes, probabilities, weight, shift, n_groups, out):
    """The sums named above for every group, one group after the other."""
    # Two loops: with the choice inside, each row takes twice as long.
    if len(codes):
        for i in range(start, stop):
            w = weight[i] if len(weight) else 1.0
            _add(out, codes[i], w, s[i], y[i], shift)
    else:
        for i in range(start, stop):
            w = weight[i] if len(weight) else 1.0
            for k in range(n_groups):
                _add(out, k, w * probabilities[i, k], s[i], y[i], shift)


@njit(cache=True, nogil=True, error_model="numpy")
def mass_by_cell(cell, codes, probabilities, weight, first, out):
    """Σω in each cell of the groups from `first` on, into `out` (cells, some groups)."""
    some = out.shape[1]
    for i in range(len(cell)):
        w = weight[i] if len(weight) else 1.0
        if len(codes):
            k = codes[i] - first
            if 0 <= k < some:
                out[cell[i], k] += w
        else:
            for k in range(some):
                out[cell[i], k] += w * probabilities[i, first + k]


@njit(cache=True, nogil=True)
def pick_rows(codes, wanted, ends):
    """Rows, ascending, that are the wanted[j]-th of their group k, ends[k] ≤ j < ends[k + 1]."""
    seen, at = np.zeros(len(ends) - 1, np.int64), ends[:-1].copy()
    out = np.empty(len(wanted), np.int64)
    found = 0
    for i in range(len(codes)):
        k = codes[i]
        if at[k] < ends[k + 1] and wanted[at[k]] == seen[k]:
            out[found] = i
            found += 1
            at[k] += 1
        seen[k] += 1
    return out[:found]
