"""Row loops of the group tables: sums and distributions by group in one pass each."""

from __future__ import annotations

from numba import njit

# Mass and squared mass, then first and second moments of score, target, residual, its size and its
# square, and the product of score and target; all values less a shift.
MASS, MASS2, SCORE, TARGET, RESIDUAL, SIZE, SQUARE, PRODUCT, N_SUMS = 0, 1, 2, 4, 6, 8, 10, 12, 13


@njit(cache=True, nogil=True, error_model="numpy")
def _add(out, at, w, p, with_target, x):
    out[at + MASS] += w * p
    out[at + MASS2] += (w * p) ** 2
    for j in range(5 if with_target else 1):
        out[at + SCORE + 2 * j] += w * p * x[j]
        out[at + SCORE + 2 * j + 1] += w * p * x[j] * x[j]
    if with_target:
        out[at + PRODUCT] += w * p * x[0] * x[1]


@njit(cache=True, nogil=True, error_model="numpy")
def group_sums_chunk(start, stop, s, y, codes, probabilities, weight, shift, n_groups, out):
    """The sums named above for every group, one group after the other; `y` may be empty."""
    with_target = len(y) > 0
    for i in range(start, stop):
        w = weight[i] if len(weight) else 1.0
        if with_target:
            r = y[i] - s[i]
            x = (s[i] - shift[0], y[i] - shift[1], r - shift[2], abs(r) - shift[3],
                 r * r - shift[4])  # fmt: skip
        else:
            x = (s[i] - shift[0], 0.0, 0.0, 0.0, 0.0)
        if len(codes):
            _add(out, codes[i] * N_SUMS, w, 1.0, with_target, x)
        else:
            for k in range(n_groups):
                _add(out, k * N_SUMS, w, probabilities[i, k], with_target, x)


@njit(cache=True, nogil=True, error_model="numpy")
def mass_by_cell(cell, codes, probabilities, weight, out):
    """Σω of each group in each cell, into `out` (cells, groups)."""
    for i in range(len(cell)):
        w = weight[i] if len(weight) else 1.0
        if len(codes):
            out[cell[i], codes[i]] += w
        else:
            for k in range(out.shape[1]):
                out[cell[i], k] += w * probabilities[i, k]
