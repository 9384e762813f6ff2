"""Rows → cells of a fixed grid: bins by elementwise formulas, and sums by cell."""

from __future__ import annotations

import math

from .blocks import jit


@jit
def bin_of(x, scale, low, rate, bins):
    """clip(floor((x/(scale + |x|) − low)·rate), 0, bins − 1)."""
    size = abs(x)
    squeezed = x / (scale + size) if size < math.inf else math.copysign(1.0, x)
    at = math.floor((squeezed - low) * rate)
    return int(min(max(at, 0.0), bins - 1.0))


@jit
def bins_chunk(start, stop, s, y, score, target, slope, bins, first, second):
    """Score and target bin of each row; `score` and `target` hold shift, scale, low and rate."""
    for i in range(start, stop):
        x = s[i] - score[0]
        if len(y):
            v = y[i] - target[0]
            x -= slope * v
            second[i] = bin_of(v, target[1], target[2], target[3], bins)
        first[i] = bin_of(x, score[1], score[2], score[3], bins)


@jit
def fill_sums(entry, s, y, weight, frequency, shift_s, shift_y, count, sums, least, largest):
    """Number of people, sums and extremes of each entry, (E,), (E, 7) and (E, 2) twice.

    Sums are Σw, Σw², Σws, Σwy, Σws², Σwy² and Σwsy, of variables less their shifts.
    """
    for i in range(len(entry)):
        e = entry[i]
        f = frequency[i] if len(frequency) else 1
        w = weight[i] if len(weight) else 1.0
        a, v = s[i] - shift_s, 0.0
        if len(y):
            v = y[i] - shift_y
            least[e, 1] = min(least[e, 1], y[i])
            largest[e, 1] = max(largest[e, 1], y[i])
        count[e] += f
        m = f * w
        sums[e, 0] += m
        sums[e, 1] += m * w
        sums[e, 2] += m * a
        sums[e, 3] += m * v
        sums[e, 4] += m * a * a
        sums[e, 5] += m * v * v
        sums[e, 6] += m * a * v
        least[e, 0] = min(least[e, 0], s[i])
        largest[e, 0] = max(largest[e, 0], s[i])


@jit
def add_entries(entry, count, sums, least, largest, all_count, all_sums, all_least, all_largest):
    """Add the entries of one part to those of all parts, which `entry` gives the numbers of."""
    for i in range(len(entry)):
        e = entry[i]
        all_count[e] += count[i]
        for j in range(sums.shape[1]):
            all_sums[e, j] += sums[i, j]
        for j in range(2):
            all_least[e, j] = min(all_least[e, j], least[i, j])
            all_largest[e, j] = max(all_largest[e, j], largest[i, j])
