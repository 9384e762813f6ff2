"""Exact neighbor counts in the plane, with the max norm.

For row i, with ρᵢ the distance to its k-th nearest neighbor *in its own group*, the kernels count
the other rows of the group and of the whole sample at distance at most ρᵢ and below ρᵢ, in a
balanced k-d tree that is walked from the leaf that holds the row upward, with each node's tight
box: a node wholly inside the ball is counted without looking at its rows, so that point masses cost
no more than anything else. One variable is a plane whose points lie on a line.

Distances within `_TOLERANCE` units in the last place count as equal. Values on a lattice (a target
rounded to 0.01) are not exactly equidistant in binary, and which of them came out "below" would
otherwise depend on the user's units.

Ties are settled here and only here; what the counts mean is decided by the caller. Every kernel
works on a range of rows and writes only to them, so that threads can share the work and cannot
change the result.
"""

from __future__ import annotations

import numpy as np

from .primitives import jit

_TOLERANCE = 8 * np.finfo(np.float64).eps
# Rows per leaf: enough to make the walk short, few enough to scan in a handful of cache lines.
LEAF_SIZE = 8


@jit
def _select(points, rows, low, high, middle, axis):
    """Hoare's selection: positions low:middle hold values no larger than middle:high on `axis`."""
    last = high - 1
    while low < last:
        a, b, c = points[low, axis], points[(low + last) // 2, axis], points[last, axis]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, last
        while i <= j:
            while points[i, axis] < pivot:
                i += 1
            while points[j, axis] > pivot:
                j -= 1
            if i <= j:
                points[i, 0], points[j, 0] = points[j, 0], points[i, 0]
                points[i, 1], points[j, 1] = points[j, 1], points[i, 1]
                rows[i], rows[j] = rows[j], rows[i]
                i += 1
                j -= 1
        if middle <= j:
            last = j
        elif middle >= i:
            low = i
        else:
            return


@jit
def build_tree(points, rows, low, high, spans, boxes):
    """Order points[low:high] (and `rows` with them) into a balanced tree.

    Node j has children 2j + 1 and 2j + 2. `spans` (nodes, 2) gets each node's positions and `boxes`
    (nodes, 4) the least x, greatest x, least y and greatest y of its points.
    """
    spans[0, 0], spans[0, 1] = low, high
    for j in range(len(spans)):
        a, b = spans[j, 0], spans[j, 1]
        x0, x1, y0, y1 = np.inf, -np.inf, np.inf, -np.inf
        for t in range(a, b):
            x, y = points[t, 0], points[t, 1]
            x0, x1 = min(x0, x), max(x1, x)
            y0, y1 = min(y0, y), max(y1, y)
        boxes[j, 0], boxes[j, 1], boxes[j, 2], boxes[j, 3] = x0, x1, y0, y1
        if 2 * j + 1 < len(spans):
            middle = (a + b) // 2
            if max(x1 - x0, y1 - y0) > 0.0:
                _select(points, rows, a, b, middle, 0 if x1 - x0 >= y1 - y0 else 1)
            spans[2 * j + 1, 0], spans[2 * j + 1, 1] = a, middle
            spans[2 * j + 2, 0], spans[2 * j + 2, 1] = middle, b


@jit
def _gap(boxes, j, x, y):
    """Least distance from (x, y) to a point of node j could have: a lower bound."""
    dx = max(boxes[j, 0] - x, x - boxes[j, 1])
    dy = max(boxes[j, 2] - y, y - boxes[j, 3])
    return max(max(dx, dy), 0.0)


@jit
def _reach(boxes, j, x, y):
    """Greatest distance from (x, y) to a point of node j: an upper bound."""
    dx = max(x - boxes[j, 0], boxes[j, 1] - x)
    dy = max(y - boxes[j, 2], boxes[j, 3] - y)
    return max(dx, dy)


@jit
def _insert(nearest, distance):
    i = len(nearest) - 1
    while i > 0 and nearest[i - 1] > distance:
        nearest[i] = nearest[i - 1]
        i -= 1
    nearest[i] = distance


@jit
def _nearest_below(tree, top, x, y, nearest, stack):
    """Offer the points below node `top` to `nearest`, the sorted distances found so far."""
    points, _, spans, boxes, first_leaf = tree
    last = len(nearest) - 1
    stack[0], height = top, 1
    while height:
        height -= 1
        j = stack[height]
        if _gap(boxes, j, x, y) >= nearest[last]:
            continue
        if boxes[j, 0] == boxes[j, 1] and boxes[j, 2] == boxes[j, 3]:
            distance = _gap(boxes, j, x, y)
            for _ in range(spans[j, 1] - spans[j, 0]):
                if distance >= nearest[last]:
                    break
                _insert(nearest, distance)
        elif j >= first_leaf:
            for t in range(spans[j, 0], spans[j, 1]):
                distance = max(abs(points[t, 0] - x), abs(points[t, 1] - y))
                if distance < nearest[last]:
                    _insert(nearest, distance)
        else:
            near, far = 2 * j + 1, 2 * j + 2
            if _gap(boxes, far, x, y) < _gap(boxes, near, x, y):
                near, far = far, near
            stack[height], stack[height + 1] = far, near
            height += 2


@jit
def _count_below(tree, top, x, y, most, below, prefix, stack, sums):
    """How many points below node `top` are at distance ≤ most, and ≤ below (≤ most).

    `prefix` (n + 1, 2) holds running sums of two quantities in the order of the tree, or nothing;
    their totals at distance ≤ most are added to `sums`.
    """
    points, _, spans, boxes, first_leaf = tree
    n_most = n_below = 0
    stack[0], height = top, 1
    while height:
        height -= 1
        j = stack[height]
        if _gap(boxes, j, x, y) > most:
            continue
        reach = _reach(boxes, j, x, y)
        if reach <= below or (reach <= most and _gap(boxes, j, x, y) > below):
            n_most += spans[j, 1] - spans[j, 0]
            n_below += spans[j, 1] - spans[j, 0] if reach <= below else 0
            _add_sums(prefix, spans[j, 0], spans[j, 1], sums)
        elif j >= first_leaf:
            for t in range(spans[j, 0], spans[j, 1]):
                distance = max(abs(points[t, 0] - x), abs(points[t, 1] - y))
                n_most += distance <= most
                n_below += distance <= below
                if distance <= most:
                    _add_sums(prefix, t, t + 1, sums)
        else:
            stack[height], stack[height + 1] = 2 * j + 1, 2 * j + 2
            height += 2
    return n_most, n_below


@jit
def _add_sums(prefix, start, stop, sums):
    if len(prefix):
        sums[0] += prefix[stop, 0] - prefix[start, 0]
        sums[1] += prefix[stop, 1] - prefix[start, 1]


@jit
def _count_from(tree, leaf, x, y, most, below, prefix, stack, sums):
    """`_count_below` of the whole tree, from a leaf near (x, y) upward."""
    n_most = n_below = 0
    j = at = leaf
    while True:
        if at == leaf or _gap(tree[3], at, x, y) <= most:
            more = _count_below(tree, at, x, y, most, below, prefix, stack, sums)
            n_most += more[0]
            n_below += more[1]
        if j == 0:
            return n_most, n_below
        at = j + 1 if j % 2 else j - 1
        j = (j - 1) // 2


@jit
def nearest_plane(tree, begin, end, k, radius, counts, prefix, mass):
    """ρ and the counts within the group, for leaves begin:end of the group's tree.

    Writes ``radius[row]``, ``counts[row, :2]`` and, where there are running sums, ``mass[row]``.
    """
    points, rows, spans, boxes, _ = tree
    # One neighbor more than asked for tells whether the k-th is tied.
    nearest = np.empty(k + 1)
    stack = np.empty(128, np.int64)
    for leaf in range(begin, end):
        for t in range(spans[leaf, 0], spans[leaf, 1]):
            x, y, row = points[t, 0], points[t, 1], rows[t]
            if t > spans[begin, 0] and x == points[t - 1, 0] and y == points[t - 1, 1]:
                other = rows[t - 1]
                radius[row], mass[row] = radius[other], mass[other]
                counts[row, 0], counts[row, 1] = counts[other, 0], counts[other, 1]
                continue
            nearest[:] = np.inf
            for u in range(spans[leaf, 0], spans[leaf, 1]):
                distance = max(abs(points[u, 0] - x), abs(points[u, 1] - y))
                if u != t and distance < nearest[k]:
                    _insert(nearest, distance)
            j = leaf
            while j > 0:
                sibling = j + 1 if j % 2 else j - 1
                if _gap(boxes, sibling, x, y) < nearest[k]:
                    _nearest_below(tree, sibling, x, y, nearest, stack)
                j = (j - 1) // 2
            rho = nearest[k - 1]
            slack = _TOLERANCE * max(abs(x), abs(y))
            zero = rho <= slack
            if zero:
                rho = 0.0
            slack += _TOLERANCE * rho
            radius[row] = rho
            tied = nearest[k] <= rho + slack or (k > 1 and nearest[k - 2] > rho - slack)
            if zero or tied or len(prefix):
                below = -1.0 if zero else max(rho - slack, 0.0)
                n_most, n_below = _count_from(
                    tree, leaf, x, y, rho + slack, below, prefix, stack, mass[row]
                )
                counts[row, 0], counts[row, 1] = n_most - 1, n_below - 1
            else:
                counts[row, 0], counts[row, 1] = k, k - 1


@jit
def count_plane(tree, begin, end, radius, counts, prefix, mass):
    """The counts in the whole sample, for leaves begin:end of its tree, into counts[row, 2:]."""
    points, rows, spans, _, _ = tree
    stack = np.empty(128, np.int64)
    for leaf in range(begin, end):
        for t in range(spans[leaf, 0], spans[leaf, 1]):
            x, y, row = points[t, 0], points[t, 1], rows[t]
            rho = radius[row]
            if rho < 0.0:
                continue
            if t > spans[begin, 0]:
                other = rows[t - 1]
                if x == points[t - 1, 0] and y == points[t - 1, 1] and rho == radius[other]:
                    counts[row, 2], counts[row, 3] = counts[other, 2], counts[other, 3]
                    mass[row] = mass[other]
                    continue
            slack = _TOLERANCE * (max(abs(x), abs(y)) + rho)
            below = -1.0 if rho == 0.0 else max(rho - slack, 0.0)
            n_most, n_below = _count_from(
                tree, leaf, x, y, rho + slack, below, prefix, stack, mass[row]
            )
            counts[row, 2], counts[row, 3] = n_most - 1, n_below - 1
