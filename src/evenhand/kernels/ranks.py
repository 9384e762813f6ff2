"""Row loops of ranks: levels, and slots between quantiles."""

from __future__ import annotations

import math

import numpy as np

from .primitives import jit, piece


def mid_rank_levels(values, order, weight, target, atom):
    """Cut sorted values into levels of at least `target` mass; ties are never split.

    A value of mass `atom` or more is a level of its own; without a `weight` rows weigh 1. Returns
    the level of every row, the mid-rank (share of mass below plus half its own) and mass of every
    level, whether a level is a single value, and the number of distinct values.
    """
    ordered = values[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    size = np.diff(first, append=len(values))
    tied = size if weight is None else np.add.reduceat(weight[order], first)
    level, mass, single = np.arange(len(first)), tied, np.ones(len(first), dtype=bool)
    if target > 0.0:
        _merge_values(tied, target, atom, level)
        mass, single = np.bincount(level, tied), np.bincount(level) == 1
    codes = np.empty(len(values), np.int64)
    codes[order] = np.repeat(level, size)
    above = np.cumsum(mass)
    rank = (above - 0.5 * mass) / above[-1]
    return codes, rank, mass, single, len(first)


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


# Buckets in which edges are looked up; most hold none of them or one.
_BUCKETS = 1 << 17
# Edges that a bucket may hold to be gone through one by one.
_FEW = 4


def find_slots(values, edges):
    """Slot of each row: 2j + 1 is edge j itself, 2j lies between edges j − 1 and j; counts.

    `edges` ascend and are padded with infinity. Also returns the least and the largest value.
    """
    slot, counts = np.empty(len(values), dtype=np.int32), np.zeros(2 * len(edges) + 1)
    extent = np.array([values[0], values[0]])
    finite = edges[: np.searchsorted(edges, np.inf)]
    center, inverse = _scale(finite)
    # Number of edges below each bucket: an edge of a lower one is below the value.
    count = np.bincount(_buckets(finite, center, inverse), minlength=_BUCKETS + 1)
    first = np.concatenate([[0], np.cumsum(count)])
    _look_up_slots(values, edges, slot, counts, extent, first, (center, inverse))
    return slot, counts, extent[0], extent[1]


@jit
def _look_up_slots(values, edges, slot, counts, extent, first, scale):
    low, high = extent[0], extent[1]
    for i in range(len(values)):
        x = values[i]
        bucket = _bucket(x, scale[0], scale[1])
        j, stop = first[bucket], first[bucket + 1]
        while stop - j > _FEW:
            middle = (j + stop) >> 1
            if edges[middle] < x:
                j = middle + 1
            else:
                stop = middle
        while j < stop and edges[j] < x:
            j += 1
        k = 2 * j + np.int64(edges[j] == x)
        slot[i] = k
        counts[k] += 1.0
        low, high = (x if x < low else low), (x if x > high else high)
    extent[0], extent[1] = low, high


@piece
def _bucket(x, center, inverse):
    """Bucket of a value, which never falls as the value grows; wide ones hold the tails."""
    z = (x - center) * inverse
    size = abs(z)
    # Beyond, z/(1 + |z|) is 1 to the last digit, or infinity over itself.
    share = z / (1.0 + size) if size < 1e18 else math.copysign(1.0, z)
    return np.int64((0.5 + 0.5 * share) * _BUCKETS)


def _scale(values):
    """Center of the buckets and one over their scale."""
    low, center, high = np.quantile(values, (0.25, 0.5, 0.75)) if len(values) else (0.0, 0.0, 0.0)
    # Below 1e-300 the inverse would be infinite.
    return center, 1.0 / max(high - low, 1e-300) if high > low else 1.0


def _buckets(values, center, inverse):
    """What `_bucket` says of many values, to the bit."""
    with np.errstate(over="ignore", invalid="ignore"):
        z = (values - center) * inverse
        share = np.where(np.abs(z) < 1e18, z / (1.0 + np.abs(z)), np.copysign(1.0, z))
    return ((0.5 + 0.5 * share) * _BUCKETS).astype(np.int64)


def slot_ranks(values, slot, table):
    """Rank and normal score, linear in x within each slot.

    Columns of `table`: left end and 1/width of the slot, rank and its gain, score and its gain.
    """
    rank, score = np.empty(len(values)), np.empty(len(values))
    _fill_ranks(values, slot, table, rank, score)
    return rank, score


@jit
def _fill_ranks(values, slot, table, rank, score):
    for i in range(values.shape[0]):
        k = slot[i]
        share = (values[i] - table[k, 0]) * table[k, 1]
        # Infinite values and slots without width take the middle.
        if not 0.0 <= share <= 1.0:
            share = 0.5
        rank[i] = table[k, 2] + share * table[k, 3]
        score[i] = table[k, 4] + share * table[k, 5]


@jit
def along_lines(z, block, center, height, slope, out):
    """What lines through the centers of blocks say at z, in the first places of `out`.

    Line j runs between the centers of blocks j − 1 and j, flat at the ends.
    """
    for i in range(len(z)):
        j = block[i] + np.int64(z[i] >= center[block[i]])
        out[i] = height[j] + slope[j] * z[i]
    return out[: len(z)]
