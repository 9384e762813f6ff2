"""Two estimators to check the faster ones against: nearest neighbors and Fourier features.

`KNN` is that of Gao et al., "Estimating mutual information for discrete-continuous mixtures",
NeurIPS 2017: no classifier and no model, but the group of every row. `Fourier` is the LR-RKS
reference of the paper, logistic regression on random Fourier features, cross-fitted (Rahimi and
Recht, "Weighted sums of random kitchen sinks", 2008):

    φ_d(z) = √(2/D) cos(ω_d·z + b_d),  ω_d ~ N(0, 2γ I),  b_d ~ U(0, 2π)
    ρ_k(z) ∝ exp(φ(z)·w_k + c_k)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgWarning
from scipy.spatial.distance import pdist
from scipy.special import digamma, polygamma
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KDTree
from sklearn.utils import check_random_state

from .._core.arrays import Array
from .._core.validation import InputError
from ..data.criteria import Condition
from ..data.groups import Groups
from ..data.weights import cluster_folds, cluster_sums, renumber
from .estimation import RowLosses, largest_loss, refuse_many_variables
from .ranks import typical_spread

Index = NDArray[np.intp]

_TOLERANCE = 8 * np.finfo(np.float64).eps
# Rows per leaf; 8 to 40 take the same time.
_LEAF_SIZE = 16
# Rows whose neighbors are looked up at a time, and neighbors listed at a time, which bound the
# memory; results do not depend on them.
_CHUNK = 16_384
_LISTED = 4_000_000
# Largest factor by which unequal weights raise the number of neighbors; each costs time.
_MOST_RATIO = 20.0
# Samples of one row a cluster that are averaged.
_MOST_DRAWS = 10
# Inverse penalties tried; the features have unit length, so these span "almost the shares" to
# "almost no penalty".
PENALTIES = (0.1, 1.0, 10.0, 100.0)
# Rows used to choose the penalty and the width of the kernel.
CHOICE_ROWS = 5_000
WIDTH_ROWS = 1_000
# Above this many weights, L-BFGS is cheaper than forming a Hessian.
MAX_NEWTON_WEIGHTS = 600
# Folds of the cross-fitting.
FOLDS = 5


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
    mass: Array | None


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
    units. Neighbors are exact, from scikit-learn's k-d tree; equal rows are looked up once.

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

    See Also
    --------
    evenhand.Adaptive
    evenhand.Fourier

    References
    ----------
    Ross, B. C. (2014). Mutual Information between Discrete and Continuous Data Sets. PLoS ONE 9.

    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> value = eh.independence(None, data.s, sensitive_features=data.a, estimator=eh.KNN())
    >>> 0 < value < 1
    True
    """

    n_neighbors: int = 5

    def __post_init__(self) -> None:
        _check_count("n_neighbors", self.n_neighbors)

    def row_losses(
        self, variables: Mapping[str, Array], conditions: Sequence[Condition], groups: Groups,
    ) -> dict[Condition, RowLosses]:  # fmt: skip
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
        self, columns: Sequence[Array], codes: Index,
        weight: Array | None, prior: Array,
    ) -> Array:  # fmt: skip
        k = self.n_neighbors
        if weight is not None:
            ratio = len(weight) * float(weight @ weight) / float(weight.sum()) ** 2
            k = round(k * min(ratio, _MOST_RATIO))
        counts = neighbor_counts(columns, codes, k, weight=weight)
        return _losses(counts, codes, weight, k, prior)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"`{name}` must be an integer, got {value!r}.")
    if value < 1:
        raise InputError(name, f"be at least 1, got {value}")


def _one_of_each(cluster: Index, weight: Array | None) -> tuple[Index, Array | None]:
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
    columns: Sequence[Array], codes: Index, n_neighbors: int, *, weight: Array | None = None,
) -> NeighborCounts:  # fmt: skip
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
    points = np.column_stack(columns)
    masses = None if weight is None else np.column_stack([weight, np.square(weight)])
    pooled = _Rows(points)
    counts = np.zeros((len(points), 4), dtype=np.int64)
    mass = np.zeros((len(points), 4))
    by_group = np.argsort(codes, kind="stable")
    for rows in np.split(by_group, np.cumsum(np.bincount(codes))[:-1]):
        if len(rows) < 2:
            continue
        own = _Rows(points[rows])
        near, radius = _look_near(own, pooled, min(n_neighbors, len(rows) - 1))
        counts[rows] = near[own.place]
        if masses is not None:
            sums = np.hstack([
                own.add_up(masses[rows], own.places, radius, near[:, 0]),
                pooled.add_up(masses, own.places, radius, near[:, 2]),
            ])  # fmt: skip
            mass[rows] = sums[own.place] - np.tile(masses[rows], 2)
    own_near, own_below, near, below = counts.T
    return NeighborCounts(own_near, own_below, near, below, None if masses is None else mass)


class _Rows:
    """A tree of rows, and one of their distinct places, each of which has its copies.

    Among many equal rows the nearest would take a walk over all of them; among places it does not.
    """

    def __init__(self, points: Array) -> None:
        order = np.lexsort(points.T)
        ordered = points[order]
        is_new = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
        self.places = ordered[is_new]
        self.place = np.empty(len(points), dtype=np.intp)
        self.place[order] = np.cumsum(is_new) - 1
        self.copies = np.bincount(self.place)
        self.tree = KDTree(self.places, metric="chebyshev", leaf_size=_LEAF_SIZE)
        self.tree_of_rows = self.tree
        if len(self.places) < len(points):
            self.tree_of_rows = KDTree(ordered, metric="chebyshev", leaf_size=_LEAF_SIZE)

    def distances(self, k: int) -> Array:
        """From a row at each place to its k-th nearest other row."""
        distances = []
        for start in range(0, len(self.places), _CHUNK):
            centers = self.places[start : start + _CHUNK]
            distance, place = self.tree.query(centers, k=min(k + 1, len(self.places)))
            kth = (np.cumsum(self.copies[place], axis=1) > k).argmax(axis=1)
            distances.append(distance[np.arange(len(centers)), kth])
        return np.concatenate(distances)

    def count(self, centers: Array, radius: Array) -> NDArray[np.int64]:
        """Other rows within `radius` of a row at each center; −1 where the radius is negative."""
        return self.tree_of_rows.query_radius(centers, radius, count_only=True) - 1

    def add_up(
        self, masses: Array, centers: Array, radius: Array, counts: NDArray[np.int64]
    ) -> Array:
        """Sums of the masses of rows within `radius`, of at most about `_LISTED` at a time."""
        by_place = np.column_stack([np.bincount(self.place, m) for m in masses.T])
        ends = np.flatnonzero(np.diff(np.cumsum(counts) // _LISTED)) + 1
        sums = []
        for some, within in zip(np.split(centers, ends), np.split(radius, ends), strict=True):
            near = self.tree.query_radius(some, within)
            starts = np.cumsum([0, *map(len, near[:-1])])
            # No ball is empty: it holds its center.
            sums.append(np.add.reduceat(by_place[np.concatenate(near)], starts))
        return np.concatenate(sums)


def _look_near(own: _Rows, pooled: _Rows, k: int) -> tuple[NDArray[np.int64], Array]:
    """The four counts of rows at the places of a group, and the radius of the larger balls.

    Distances within `_TOLERANCE` units in the last place count as equal. Values on a lattice (a
    target rounded to 0.01) are not exactly equidistant in binary, and which of them came out
    "below" would otherwise depend on the user's units.
    """
    centers, radius = own.places, own.distances(k)
    slack = _TOLERANCE * np.abs(centers).max(axis=1)
    radius[radius <= slack] = 0.0
    slack += _TOLERANCE * radius
    most = radius + slack
    below = np.where(radius == 0.0, -1.0, np.maximum(radius - slack, 0.0))
    counts = np.empty((len(centers), 4), dtype=np.int64)
    counts[:, 2], counts[:, 3] = pooled.count(centers, most), pooled.count(centers, below)
    # A row alone at its distance is the k-th neighbor itself.
    counts[:, 0], counts[:, 1] = k, k - 1
    tied = np.flatnonzero(counts[:, 2] - counts[:, 3] > 1)
    if len(tied):
        counts[tied, 0] = own.count(centers[tied], most[tied])
        counts[tied, 1] = own.count(centers[tied], below[tied])
    return counts, most


def _unit_spread(values: Array, weight: Array | None) -> Array:
    """Divide by the spread; not centered, which would round the values."""
    largest = np.abs(values).max(initial=0.0)
    if largest == 0.0:
        return values
    values = values / largest  # the variance of values near the largest float overflows
    spread = typical_spread(values, weight)
    return values / spread if spread > 1e-300 else values


def _losses(
    counts: NeighborCounts, codes: Index, weight: Array | None, n_neighbors: int, prior: Array,
) -> Array:  # fmt: skip
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
    if weight is not None and counts.mass is not None:
        # The mean weight near each row, over that of its own group there.
        losses += _log_mean(counts.pooled, counts.mass[:, 2:], weight.min())
        losses -= _log_mean(counts.own, counts.mass[:, :2], weight.min())
    return np.where(alone, prior, losses)


def _tied_digamma(counts: NeighborCounts, rows: Index, k: NDArray[np.int64]) -> Array:
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


def _log_mean(count: NDArray[np.int64], mass: Array, least: float) -> Array:
    """Estimate log E[w] from Σw and Σw² of `count` weights.

    The log of their mean is low by log c − ψ(c) ≈ 1/2c + 1/12c² if they are gamma with c the sum
    of their shapes; c is told from Σw²/(Σw)², whose expectation is then (c + count)/(count(c + 1)).
    """
    number = np.maximum(count, 1.0)
    # Taking off the row's own weight can lose one far smaller than it.
    mean = np.maximum(mass[:, 0] / number, least)
    relative = np.maximum(mass[:, 1] / (number * np.square(mean)) - 1.0, 1e-12)
    # c ≥ 1 keeps one overwhelming weight from being read as no information at all.
    shape = np.maximum((number - 1.0) / relative - 1.0, 1.0)
    return np.log(mean) + np.where(number > 1, 1 / (2 * shape) + 1 / (12 * shape**2), 0.0)


# ------------------------------------------------------------------------------------------------
# Logistic regression on random Fourier features.


@dataclass(frozen=True)
class Fourier:
    """Entropies by logistic regression on random Fourier features, fitted to the *other* folds.

    H(A|Z) = −mean log ρ(aᵢ|zᵢ), with ρ the regression that has not seen row i.

    Parameters
    ----------
    n_components : int
        D, the number of random features.
    C : float, optional
        Inverse penalty of scikit-learn's LogisticRegression. By default the one of
        `PENALTIES` with the least cross-fitted loss on at most 5,000 rows.
    gamma : float, optional
        Kernel exp(−γ‖z − z'‖²) on standardized z. By default 1 / (2 × squared median distance).
    random_state : int, RandomState or None
        Draws features, folds and the rows that choose C and γ.

    Notes
    -----
    There are five folds, stratified by group; whole clusters where rows are clustered. Every loss
    comes from a fit that did not see its row, so an entropy is high, and information
    low, by about (number of effective weights) / 2n. Probabilities are mixed with the shares of
    the groups at the rate 1/n, so a group that a fold's fit has not seen costs a finite loss; n is
    the effective number of rows or clusters.

    Weights enter the fits as they are. With membership probabilities each row is entered
    once per group with its probability as weight, and its loss is −Σ_k p_ik log ρ_k(zᵢ).

    Memory is n × `n_components` floats.

    See Also
    --------
    evenhand.Adaptive
    evenhand.KNN

    References
    ----------
    Rahimi, A. and Recht, B. (2007). Random Features for Large-Scale Kernel Machines. NIPS.

    Steinberg, D., Reid, A., O'Callaghan, S., Lattimore, F., McCalman, L. and Caetano, T. (2020).
    Fast Fair Regression via Efficient Approximations of Mutual Information.

    Examples
    --------
    >>> import evenhand as eh
    >>> data = eh.datasets.make_bivariate_normal(500, random_state=0)
    >>> estimator = eh.Fourier(n_components=20, random_state=0)
    >>> value = eh.independence(None, data.s, sensitive_features=data.a, estimator=estimator)
    >>> value < 1
    True
    """

    n_components: int = 100
    C: float | None = None
    gamma: float | None = None
    random_state: Any = 0

    def __post_init__(self) -> None:
        _check_count("n_components", self.n_components)
        for name in ("C", "gamma"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise InputError(
                    name, f"be a positive number or None, got {value!r}",
                    hint="leave it out to have it chosen from the data.",
                )  # fmt: skip

    def row_losses(
        self, variables: Mapping[str, Array], conditions: Sequence[Condition], groups: Groups,
    ) -> dict[Condition, RowLosses]:  # fmt: skip
        """Per-row terms of H(A|Z); see `EntropyEstimator`."""
        random = check_random_state(self.random_state)
        membership, weight = groups.membership(), groups.weight
        if weight is None:
            weight = np.ones(groups.n_known)
        # A proxy has no strata; its likeliest group spreads the rows about as evenly.
        strata = membership.argmax(axis=1)
        chosen_rows = np.flatnonzero(weight > 0)
        if len(chosen_rows) > CHOICE_ROWS:
            chosen_rows = random.choice(chosen_rows, CHOICE_ROWS, replace=False)
        seed = random.randint(np.iinfo(np.int32).max)
        if groups.cluster is None:
            folds = _stratified_folds(strata, random)
        else:
            folds = cluster_folds(groups.cluster, strata, min(FOLDS, groups.n_units), random)
        guess = groups.shares / max(groups.n_effective, 2.0)
        out = {}
        for condition in conditions:
            z = _standardize([variables[name] for name in condition], weight)
            gamma = self.gamma or _median_gamma(z[chosen_rows[:WIDTH_ROWS]])
            sampler = RBFSampler(gamma=gamma, n_components=self.n_components, random_state=seed)
            sampler.fit(z)
            rows = (z, membership, weight, folds)
            best = self.C or _best_penalty(sampler, [v[chosen_rows] for v in rows], guess)
            value = _cross_fit(sampler, best, guess, *rows)
            words = f"logistic on {self.n_components} Fourier features, C = {best:g}"
            out[condition] = RowLosses(value, value, words)
        return out


def _best_penalty(sampler: RBFSampler, rows: list[Any], guess: Array) -> float:
    """The inverse penalty with the least cross-fitted loss on (z, membership, weight, folds)."""
    losses = {
        C: np.average(_cross_fit(sampler, C, guess, *rows), weights=rows[2]) for C in PENALTIES
    }
    return min(losses, key=losses.__getitem__)


def _stratified_folds(strata: Index, random: np.random.RandomState) -> Index:
    """Fold of each row: every stratum dealt out in turn, starting where the last one ended."""
    order = random.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    folds = np.empty(len(strata), dtype=np.intp)
    folds[order] = np.arange(len(strata)) % min(FOLDS, len(strata))
    return folds


def _standardize(columns: Sequence[Array], weight: Array) -> Array:
    z = np.column_stack([_unit_spread(column, weight) for column in columns])
    return z - np.average(z, axis=0, weights=weight)


def _median_gamma(z: Array) -> float:
    distances = pdist(z)
    # Where most pairs coincide (point masses), their median says nothing about the rest.
    distances = distances[distances > 0]
    if not len(distances):
        return 1.0
    return float(1.0 / (2.0 * max(np.median(distances), 1e-6) ** 2))


def _cross_fit(
    sampler: RBFSampler, C: float, guess: Array, z: Array, membership: Array, weight: Array,
    folds: Index,
) -> Array:  # fmt: skip
    """−Σ_k p_ik log ρ_k(zᵢ) per row, ρ fitted without the row's fold and mixed with a guess.

    `guess` (K,) adds up to its share of the mixture.
    """
    features = sampler.transform(z)
    losses = np.empty(len(z))
    for fold in np.unique(folds):
        inside, outside = folds != fold, folds == fold
        predict = _fit(C, features[inside], membership[inside], weight[inside])
        proba = (1.0 - guess.sum()) * predict(features[outside]) + guess
        losses[outside] = -(membership[outside] * np.log(proba)).sum(axis=1)
    return losses


def _fit(C: float, features: Array, membership: Array, weight: Array) -> Any:
    """A function from features to (rows, K) probabilities, zero for groups not seen."""
    n_groups = membership.shape[1]
    entry_weight = weight[:, None] * membership
    rows, labels = np.nonzero(entry_weight > 0)
    seen = np.unique(labels)
    if len(seen) < 2:
        certain = np.zeros(n_groups)
        certain[seen] = 1.0
        return lambda features: np.tile(certain, (len(features), 1))
    is_small = features.shape[1] * len(seen) <= MAX_NEWTON_WEIGHTS
    solver, tol = ("newton-cholesky", 1e-5) if is_small else ("lbfgs", 1e-4)
    model = LogisticRegression(C=C, solver=solver, max_iter=100, tol=tol)
    known_once = len(rows) == len(features) and (rows == np.arange(len(features))).all()
    with warnings.catch_warnings():
        # The penalty keeps any fit finite, and a loss off in its fourth digit is no news.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", LinAlgWarning)
        model.fit(features if known_once else features[rows], labels, entry_weight[rows, labels])

    def predict(features: Array) -> Array:
        proba = np.zeros((len(features), n_groups))
        proba[:, seen] = model.predict_proba(features)
        return proba

    return predict
