"""Row loops of the group tables: sums and distributions by group in one pass each."""

from __future__ import annotations

import numpy as np

from .mathfun import jit
from .registers import (
    LANES,
    PRODUCTS,
    aligned_zeros,
    multiply_rows,
    product_places,
    sum_products,
)

# Mass and squared mass, then first and second moments of score, target, residual, its size and its
# square, and the product of score and target; values less one of the group's rows, except in the
# first moments of size and square, which cannot cancel.
MASS, MASS2, SCORE, TARGET, RESIDUAL, SIZE, SQUARE, PRODUCT, N_SUMS = 0, 1, 2, 4, 6, 8, 10, 12, 13
# Where those but the squared mass are among the products of
# (score, target, residual, size, square less those of the row; size, 1, square).
_FROM = product_places([(6, 6), (6, 6), (6, 0), (0, 0), (6, 1), (1, 1), (6, 2), (2, 2), (6, 5),
                        (3, 3), (7, 6), (4, 4), (1, 0)])  # fmt: skip
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


def group_sums(s, y, codes, probabilities, weight, shift):
    """The sums named above for each group, (N_SUMS, K); `shift` is the row less which they are."""
    table, squares = aligned_zeros(len(shift), PRODUCTS), np.zeros(len(shift))
    f, scaled = aligned_zeros(2, min(_BATCH, len(s)), LANES)
    f[:, 6] = 1.0
    for start in range(0, len(s), _BATCH):
        part = slice(start, start + _BATCH)
        size = len(s[part])
        amount = weight[part] if len(weight) else None
        if len(codes):
            members = [(codes[part].astype(np.int32), amount)]
        else:
            share = probabilities[part] if amount is None else probabilities[part] * amount[:, None]
            members = [(np.full(size, k, np.int32), own) for k, own in enumerate(share.T)]
        for group, mass in members:
            _fill_values(s[part], y[part], group, shift, f)
            if mass is None:
                sum_products(f, group, table)
                continue
            multiply_rows(f, np.sqrt(mass), scaled)
            sum_products(scaled, group, table)
            squares += np.bincount(group, np.square(mass), len(shift))
    out = table[:, _FROM].T
    if len(weight) or not len(codes):
        out[MASS2] = squares
    return out


@jit
def _fill_values(s, y, group, shift, out):
    for i in range(len(s)):
        g, r = group[i], y[i] - s[i]
        out[i, 0] = s[i] - shift[g, 0]
        out[i, 1] = y[i] - shift[g, 1]
        out[i, 2] = r - shift[g, 2]
        out[i, 3] = abs(r) - shift[g, 3]
        out[i, 4] = r * r - shift[g, 4]
        out[i, 5] = abs(r)
        out[i, 7] = r * r


def mass_by_cell(cell, codes, probabilities, weight, first, out):
    """Add Σω in each cell of the groups from `first` on to `out` (cells, some groups)."""
    some = out.shape[1]
    if len(codes):
        rows = slice(None)
        if some < int(codes.max()) + 1:
            rows = (codes >= first) & (codes < first + some)
        place = cell[rows].astype(np.int64) * some + codes[rows]
        mass = np.bincount(place - first, weight[rows] if len(weight) else None, out.size)
        out += mass.reshape(out.shape)
        return
    for k in range(some):
        own = probabilities[:, first + k]
        out[:, k] += np.bincount(cell, own * weight if len(weight) else own, len(out))


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
