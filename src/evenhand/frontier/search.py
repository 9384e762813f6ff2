"""Fairness weights that spread evenly along a frontier, not along the penalty.

The frontier is the curve (unfairness, accuracy) as the weight grows from 0. Both axes are scaled to
its extent; the longest gap between neighbors is bisected until there are enough points.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import hypot

Place = tuple[float, float]

START = 1.0
FACTOR = 4.0
LARGEST, SMALLEST = 1e8, 1e-8
# A weight four times as large that removes less than this share of the unfairness is "as fair as
# it gets"; a move smaller than MOVED (in either axis) is no effect at all.
GAIN = 5e-3
MOVED = 1e-3
# Gaps that show on no plot are not worth a fit, nor are weights this close to each other.
SHORTEST = 2e-3
CLOSEST = 1.02


def spread_weights(evaluate: Callable[[float], Place], n_points: int) -> list[float]:
    """Weights from 0 to "as fair as it gets", at most `n_points` of them, ascending.

    Parameters
    ----------
    evaluate : weight → (unfairness, accuracy)
        Called once for each weight, some of which may not be returned.
    n_points : int
        At least 2.
    """
    seen = {0.0: evaluate(0.0)}
    kept = _thin(_bracket(evaluate, seen), seen, n_points)
    while len(kept) < n_points:
        weight = _longest_gap(kept, seen)
        if weight is None:
            break
        seen[weight] = evaluate(weight)
        kept = sorted([*kept, weight])
    return kept


def _bracket(evaluate: Callable[[float], Place], seen: dict[float, Place]) -> list[float]:
    """Grow the weight until it no longer helps; the weights that had an effect, and 0."""
    kept = [0.0]
    weight = START
    while weight <= LARGEST:
        seen[weight] = evaluate(weight)
        before, after = seen[kept[-1]], seen[weight]
        if len(kept) > 1 or _moved(seen[0.0], after):
            gain = before[0] - after[0]
            if len(kept) > 1 and gain <= GAIN * abs(seen[0.0][0]):
                break
            kept.append(weight)
            # Nothing gained at all, or nothing left to gain: unfairness does not go below 0. Both
            # sides are 0 where there was none from the beginning.
            if min(gain, after[0]) <= GAIN * abs(seen[0.0][0]):
                break
        weight *= FACTOR if len(kept) > 1 else FACTOR**2  # far from where it matters: hurry
    if len(kept) == 1:
        kept.append(START)
    return kept


def _thin(kept: list[float], seen: dict[float, Place], n_points: int) -> list[float]:
    """At most `n_points` weights: those in between go first whose neighbors are closest."""
    while len(kept) > n_points:
        around = zip(kept, kept[1:], kept[2:], strict=False)
        extent = _extent(kept, seen)
        kept.remove(min(around, key=lambda w: _distance(seen[w[0]], seen[w[2]], extent))[1])
    return kept


def _extent(kept: list[float], seen: dict[float, Place]) -> Place:
    first, last = seen[0.0], seen[kept[-1]]
    return max(abs(last[0] - first[0]), MOVED), max(abs(last[1] - first[1]), MOVED)


def _distance(a: Place, b: Place, extent: Place) -> float:
    return hypot((a[0] - b[0]) / extent[0], (a[1] - b[1]) / extent[1])


def _moved(a: Place, b: Place) -> bool:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1])) > MOVED


def _longest_gap(kept: list[float], seen: dict[float, Place]) -> float | None:
    """The weight that halves the longest gap worth halving."""
    extent = _extent(kept, seen)
    longest, found = SHORTEST, None
    total = 0.0
    for low, high in pairwise(kept):
        length = _distance(seen[low], seen[high], extent)
        total += length
        room = high > SMALLEST if low == 0.0 else high > CLOSEST**2 * low
        if room and length > longest:
            longest, found = length, (low, high)
    if found is None:
        return None
    low, high = found
    if low > 0.0:
        return (low * high) ** 0.5
    # Near 0 the path is straight in the weight itself, unless all of it lies below `high`.
    return high / (2.0 * FACTOR if longest > 0.5 * total else 2.0)
