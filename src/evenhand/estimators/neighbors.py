"""H(A|Z) from neighbors: the estimator of Gao et al. for mixtures of discrete and continuous.

"Estimating mutual information for discrete-continuous mixtures", NeurIPS 2017. It needs no
classifier and no model; it does need the group of every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from .._core.validation import InputError
from ..data.criteria import Condition
from ..data.groups import Groups
from ..data.weights import cluster_sums, renumber
from .estimation import RowLosses, largest_loss, refuse_many_variables
from .ranks import typical_spread

# Rows a thread takes at a time; results do not depend on it.
_CHUNK = 16_384
# Largest factor by which unequal weights raise the number of neighbors; each costs time.
_MOST_RATIO = 20.0
# Samples of one row a cluster that are averaged.
_MOST_DRAWS = 10


@dataclass(frozen=True)
class NeighborCounts:
    """Other rows near each row; ρ is the distance to its k-th neighbor in its own group.

    Attributes
    ----------
    own, own_below : (m,) int arrays
        Other rows of the row's group at distance at most ρ, and below ρ.
    pooled, pooled_below : (m,) int arrays
        The same among rows of every group. Where ρ = 0 both counts "below" are −1; where a row is
        alone in its group all four are 0.
    mass : (m, 4) float array or None
        With weights: Σw and Σw² over `own`, Σw and Σw² over `pooled`.
    """

    own: NDArray[np.int64]
    own_below: NDArray[np.int64]
    pooled: NDArray[np.int64]
    pooled_below: NDArray[np.int64]
    mass: NDArray[np.float64] | None


@dataclass(frozen=True)
class KNN:
    r"""Mixed k-nearest-neighbor estimator of information about the group.

    .. math:: I(Z;A) = \frac1n \sum_i \psi(\tilde k_i) - \psi(m_i) + \log n - \psi(n_{a_i})

    with :math:`\rho_i` the max-norm distance from row i to its k-th nearest neighbor in its own
    group, :math:`m_i` the other rows of any group at distance at most :math:`\rho_i` and
    :math:`n_a` the size of group a. :math:`\tilde k_i = k`, but where :math:`\rho_i = 0` it is
    the rows of the group at distance zero, and both counts then include row i itself. Conditional
    information follows by the chain rule, I(S;A|Y) = I(S,Y;A) − I(Y;A).

    Parameters
    ----------
    n_neighbors : int
        k. In a group of n_a ≤ k rows, n_a − 1 is used; a row alone in its group contributes no
        information.

    Notes
    -----
    Variables are divided by their standard deviation, so that the max norm does not depend on
    units. Neighbors are exact: sorted values in one dimension, a k-d tree in two. Threads share the
    work and do not change the result.

    *Ties.* The paper's text has log(m + 1) in place of ψ(m); its authors' code has ψ, which is
    the unbiased choice, m being negative binomial with E ψ(m) = ψ(k) − log P(a|z). For distances
    tied at :math:`\rho_i > 0`, as they are on rounded values, the text counts all tied rows and
    the code none, and either can be wrong by 0.2 nats. Here ψ(m) is replaced by its
    expectation were those ties broken at random: of :math:`t` tied rows of the group the j-th is
    the k-th neighbor, and :math:`j u / (t + 1)` of the :math:`u` tied rows of other groups come
    before it on average. Without ties, and where :math:`\rho_i = 0`, this is the authors'
    estimator unchanged.

    *Weights.* Balls are found by counting rows. Inside one, the mean weight of the group relative
    to that of all rows corrects the ratio :math:`\tilde k_i / m_i`, with most of the bias that
    the logarithm of a mean of few weights has taken off. Neighbors are counted in effective rows:
    k is multiplied by n/n_eff, at most by 20. Rows of zero weight are left out.

    *Clusters.* Rows of one cluster must not count as neighbors of each other, nor as several
    independent neighbors of a third. So one row is drawn from each cluster, with probability in
    proportion to its weight; the rows drawn are independent, and count with the weight of their
    clusters. This is done as often as the largest cluster has rows, at most ten times, and each
    row gets the mean term of its cluster (within-cluster resampling; Hoffman, Sen and Weinberg,
    Biometrika 2001).

    Near zero the estimate can fall slightly below zero; it is not clipped. Terms of rows are kept
    within ± the loss of the rarest group by the shares at odds of 1 : n, n counting effective rows.
    """

    n_neighbors: int = 5

    def __post_init__(self) -> None:
        if isinstance(self.n_neighbors, bool) or not isinstance(self.n_neighbors, int | np.integer):
            raise TypeError(f"`n_neighbors` must be an integer, got {self.n_neighbors!r}.")
        if self.n_neighbors < 1:
            raise ValueError(f"`n_neighbors` must be at least 1, got {self.n_neighbors}.")

    def row_losses(
        self,
        variables: Mapping[str, NDArray[np.float64]],
        conditions: Sequence[Condition],
        groups: Groups,
    ) -> dict[Condition, RowLosses]:
        """Per-row terms of H(A|Z); see `EntropyEstimator`."""
        if groups.codes is None:
            raise InputError(
                "sensitive_features", "be known groups for the 'knn' estimator, got membership "
                "probabilities", hint="use estimator='logistic' or 'auto' with a Proxy.",
            )  # fmt: skip
        refuse_many_variables(conditions, "knn")
        used: Any = slice(None) if groups.weight is None else groups.weight > 0
        codes = groups.codes[used]
        weight = None if groups.weight is None else groups.weight[used]
        scaled = {
            name: _unit_spread(np.asarray(variables[name], dtype=np.float64)[used], weight)
            for name in {name for condition in conditions for name in condition}
        }
        losses = {}
        # A row without weight, or alone in its group, tells no more than the share of the group.
        prior = -np.log(groups.shares)[groups.codes]
        cluster = None if groups.cluster is None else renumber(groups.cluster[used])
        samples = None if cluster is None else _one_of_each(cluster, weight)
        most = largest_loss(groups)
        for condition in conditions:
            columns = [scaled[name] for name in condition]
            value = prior.copy()
            if samples is None or cluster is None:
                terms = self._terms(columns, codes, weight, prior[used])
            else:
                drawn = [
                    self._terms([c[r] for c in columns], codes[r], samples[1], prior[used][r])
                    for r in samples[0]
                ]
                terms = np.mean(drawn, axis=0)[cluster]
            value[used] = np.clip(terms, -most, most)
            losses[condition] = RowLosses(
                value, value, f"{self.n_neighbors} nearest neighbors (Gao et al. 2017)"
            )
        return losses

    def _terms(
        self, columns: Sequence[NDArray[np.float64]], codes: NDArray[np.intp],
        weight: NDArray[np.float64] | None, prior: NDArray[np.float64],
    ) -> NDArray[np.float64]:  # fmt: skip
        k = self.n_neighbors
        if weight is not None:
            ratio = len(weight) * float(weight @ weight) / float(weight.sum()) ** 2
            k = round(k * min(ratio, _MOST_RATIO))
        counts = neighbor_counts(columns, codes, k, weight=weight)
        return _losses(counts, codes, weight, k, prior)


def _one_of_each(
    cluster: NDArray[np.intp], weight: NDArray[np.float64] | None
) -> tuple[NDArray[np.intp], NDArray[np.float64] | None]:
    """(R, G) rows, one of each cluster in each of R draws, and weights of clusters if they differ.

    Draws are systematic: along the running weight of a cluster's rows in random order, at R places
    equally far apart.
    """
    count = int(cluster.max()) + 1
    weight = np.ones(len(cluster)) if weight is None else weight
    # By row, so that names of clusters do not matter.
    order = np.lexsort((np.random.default_rng(0).random(len(cluster)), cluster))
    sizes, mass = np.bincount(cluster), cluster_sums(cluster, weight)
    ends = np.cumsum(sizes)
    draws = min(int(sizes.max()), _MOST_DRAWS)
    reached = np.cumsum(weight[order])
    before = np.append(0.0, reached[ends[:-1] - 1])
    places = before + mass * (np.arange(draws)[:, None] + 0.5) / draws
    found = np.searchsorted(reached, places.ravel()).reshape(draws, count)
    # Rounding of long sums must not lead into the next cluster.
    rows = order[np.clip(found, ends - sizes, ends - 1)]
    return rows, None if (mass == mass[0]).all() else mass


def neighbor_counts(
    columns: Sequence[NDArray[np.float64]],
    codes: NDArray[np.intp],
    n_neighbors: int,
    *,
    weight: NDArray[np.float64] | None = None,
) -> NeighborCounts:
    """Count neighbors of each row within its group and in the sample.

    Parameters
    ----------
    columns : one or two (m,) arrays
        Coordinates; distances are the greatest over them.
    codes : (m,) int array
        Group of each row.
    n_neighbors : int
        k, lowered to the size of the group less one where that is smaller.
    weight : (m,) array, optional
        Positive weights, to be added up over each ball.
    """
    codes = np.ascontiguousarray(codes, dtype=np.int64)
    sizes = np.bincount(codes)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    masses = None if weight is None else np.column_stack([weight, np.square(weight)])
    count = {1: _count_line, 2: _count_plane}[len(columns)]
    counts, mass = count(columns, codes, starts, n_neighbors, masses)
    if mass is not None:
        assert masses is not None
        mass -= np.column_stack([masses, masses])
    return NeighborCounts(counts[:, 0], counts[:, 1], counts[:, 2], counts[:, 3], mass)


_Counted = tuple[NDArray[np.int64], NDArray[np.float64] | None]


def _run(kernel: Any, calls: Iterable[tuple[Any, ...]]) -> None:
    """Make the calls, which write to separate rows, on as many threads as are allowed."""
    from .._core.threads import n_threads

    threads = n_threads()
    calls = list(calls)
    if threads == 1 or len(calls) == 1:
        for call in calls:
            kernel(*call)
        return
    with ThreadPoolExecutor(threads) as pool:
        for job in [pool.submit(kernel, *call) for call in calls]:
            job.result()


def _count_line(
    columns: Sequence[NDArray[np.float64]],
    codes: NDArray[np.int64],
    starts: NDArray[np.int64],
    n_neighbors: int,
    masses: NDArray[np.float64] | None,
) -> _Counted:
    from ..kernels import neighbors as kernels

    z = np.ascontiguousarray(columns[0])
    order = np.argsort(z)
    pooled = z[order]
    rows, places = kernels.group_order(order, codes, starts)
    own = pooled[places]
    counts = np.zeros((len(z), 4), dtype=np.int64)
    bounds = np.zeros((len(z), 4), dtype=np.int64)

    calls = []
    for low, high in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        k = min(n_neighbors, high - low - 1)
        for begin in range(low, high if k > 0 else low, _CHUNK):
            end = min(begin + _CHUNK, high)
            calls.append((own, places, pooled, low, high, begin, end, k, counts, bounds))
    _run(kernels.count_line, calls)
    out = np.empty_like(counts)
    out[rows] = counts
    if masses is None:
        return out, None
    mass = np.empty((len(z), 4))
    for side, ordered in ((0, rows), (2, order)):
        prefix = _running_sums(masses[ordered])
        first, last = bounds[:, side], bounds[:, side + 1]
        mass[rows, side : side + 2] = prefix[last + 1] - prefix[first]
    return out, mass


@dataclass(frozen=True)
class _Tree:
    points: NDArray[np.float64]
    rows: NDArray[np.int64]
    low: int
    high: int
    depth: int
    spans: NDArray[np.int64]
    boxes: NDArray[np.float64]

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.points, self.rows, self.spans, self.boxes, 2**self.depth - 1

    def chunks(self, leaf_size: int) -> Iterable[tuple[int, int]]:
        first, step = 2**self.depth - 1, max(_CHUNK // leaf_size, 1)
        for begin in range(first, 2 * first + 1, step):
            yield begin, min(begin + step, 2 * first + 1)


def _new_tree(
    points: NDArray[np.float64], rows: NDArray[np.int64], low: int, high: int, leaf_size: int
) -> _Tree:
    depth = max(int(np.ceil(np.log2((high - low) / leaf_size))), 0)
    nodes = 2 ** (depth + 1) - 1
    spans, boxes = np.empty((nodes, 2), dtype=np.int64), np.empty((nodes, 4))
    return _Tree(
        points=points, rows=rows, low=low, high=high, depth=depth, spans=spans, boxes=boxes
    )


def _count_plane(
    columns: Sequence[NDArray[np.float64]],
    codes: NDArray[np.int64],
    starts: NDArray[np.int64],
    n_neighbors: int,
    masses: NDArray[np.float64] | None,
) -> _Counted:
    from ..kernels import neighbors as kernels

    points = np.column_stack(columns)
    n, leaf_size = len(points), kernels.LEAF_SIZE
    rows, _ = kernels.group_order(np.arange(n), codes, starts)
    own_points = points[rows]
    pooled = _new_tree(points, np.arange(n), 0, n, leaf_size)
    # A row alone in its group has no neighbor, and keeps the radius that marks it.
    own = [
        _new_tree(own_points, rows, low, high, leaf_size)
        for low, high in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        if high - low > 1
    ]
    trees = (pooled, *own)
    _run(
        kernels.build_tree,
        ((t.points, t.rows, t.low, t.high, t.depth, t.spans, t.boxes) for t in trees),
    )
    radius = np.full(n, -1.0)
    counts = np.zeros((n, 4), dtype=np.int64)
    _run(
        kernels.nearest_plane,
        (
            (*t.arrays, *span, min(n_neighbors, t.high - t.low - 1), radius, counts)
            for t in own
            for span in t.chunks(leaf_size)
        ),
    )
    _run(
        kernels.count_plane,
        ((*pooled.arrays, *span, radius, counts) for span in pooled.chunks(leaf_size)),
    )
    if masses is None:
        return counts, None
    mass = np.zeros((2, n, 2))
    prefixes = [_running_sums(masses[rows])] * len(own)
    prefixes.insert(0, _running_sums(masses[pooled.rows]))
    outs = [mass[1], *[mass[0]] * len(own)]
    _run(
        kernels.mass_plane,
        (
            (*t.arrays, *span, radius, prefix, out)
            for t, prefix, out in zip(trees, prefixes, outs, strict=True)
            for span in t.chunks(leaf_size)
        ),
    )
    return counts, np.concatenate(mass, axis=1)


def _running_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.zeros((len(values) + 1, values.shape[1]))
    np.cumsum(values, axis=0, out=out[1:])
    return out


def _unit_spread(
    values: NDArray[np.float64], weight: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    """Divide by the spread; not centered, which would round the values."""
    largest = np.abs(values).max(initial=0.0)
    if largest == 0.0:
        return values
    values = values / largest  # the variance of values near the largest float overflows
    spread = typical_spread(values, weight)
    return values / spread if spread > 1e-300 else values


def _losses(
    counts: NeighborCounts,
    codes: NDArray[np.intp],
    weight: NDArray[np.float64] | None,
    n_neighbors: int,
    prior: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Row terms of H(A|Z): −log P(a) minus the row's term of I(Z;A)."""
    sizes = np.bincount(codes)[codes]
    alone = sizes == 1
    same = counts.own_below < 0
    k = np.maximum(np.where(same, counts.own + 1, np.minimum(n_neighbors, sizes - 1)), 1)
    m = np.maximum(counts.pooled + same, 1).astype(np.float64)
    losses = digamma(m)
    tied = np.flatnonzero((counts.pooled - counts.pooled_below > 1) & ~same)
    losses[tied] = _tied_digamma(counts, tied, k[tied])
    losses += digamma(sizes) - digamma(k) - np.log(sizes)
    if weight is not None:
        losses += _weight_ratio(counts, weight.min())
    return np.where(alone, prior, losses)


def _tied_digamma(
    counts: NeighborCounts, rows: NDArray[np.intp], k: NDArray[np.int64]
) -> NDArray[np.float64]:
    """E ψ(m) over random orders of the rows tied at ρ, to second order.

    Rows of other groups before the j-th of t own ones are negative hypergeometric.
    """
    own_below, pooled_below = counts.own_below[rows], counts.pooled_below[rows]
    t = (counts.own[rows] - own_below).astype(np.float64)
    u = counts.pooled[rows] - pooled_below - t
    j = k - own_below
    mean = pooled_below + j + u * j / (t + 1.0)
    variance = u * j * (t + u + 1.0) * (t - j + 1.0) / (np.square(t + 1.0) * (t + 2.0))
    return digamma(mean) + 0.5 * polygamma(2, mean) * variance


def _weight_ratio(counts: NeighborCounts, least: float) -> NDArray[np.float64]:
    """Log of the mean weight near each row, over that of its own group there."""
    assert counts.mass is not None
    pooled = _log_mean(counts.pooled, counts.mass[:, 2:], least)
    return pooled - _log_mean(counts.own, counts.mass[:, :2], least)


def _log_mean(
    count: NDArray[np.int64], mass: NDArray[np.float64], least: float
) -> NDArray[np.float64]:
    """Estimate log E[w] from Σw and Σw² of `count` weights.

    The log of their mean is low by log c − ψ(c) ≈ 1/2c + 1/12c² if they are gamma with c the sum
    of their shapes; c is told from Σw²/(Σw)², whose expectation is then (c + count)/(count(c + 1)).
    """
    number = np.maximum(count, 1.0)
    # Differences of running sums can lose a weight far smaller than its neighbors'.
    mean = np.maximum(mass[:, 0] / number, least)
    relative = np.maximum(mass[:, 1] / (number * np.square(mean)) - 1.0, 1e-12)
    # c ≥ 1 keeps one overwhelming weight from being read as no information at all.
    shape = np.maximum((number - 1.0) / relative - 1.0, 1.0)
    return np.log(mean) + np.where(number > 1, 1 / (2 * shape) + 1 / (12 * shape**2), 0.0)
