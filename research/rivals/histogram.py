"""Fair scores by transport between histograms, if asked for with differential privacy."""

from __future__ import annotations

from copy import deepcopy
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import optimize, sparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils import check_random_state, indexable
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from evenhand._core.validation import check_column, check_index
from evenhand.data.folds import make_folds
from evenhand.data.groups import resolve_groups
from evenhand.data.weights import check_weight
from evenhand.training.linear import ScoresWithGroups, refuse_missing_groups
from evenhand.training.stack import fit_out_of_fold

from ._base import Array, check_choice, check_share, membership_at_prediction

OUTPUTS = ("draw", "mean")


class HistogramTransport(ScoresWithGroups, MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    r"""Any regressor's scores in k bins, moved until groups differ by at most α.

    .. math::
        \min_{\gamma, Q} \sum_a p_a \sum_{ij} \gamma_{a,ij} (c_i - c_j)^2 \quad\text{where}\quad
        \sum_j \gamma_{a,ij} = h_{a,i}, \quad
        \Bigl| \sum_{j \le m} \sum_i \gamma_{a,ij} - Q_m \Bigr| \le \alpha / 2

    with :math:`h_a` the histogram of the scores of group a, :math:`c_i` the middle of bin i and Q
    any distribution function: no two groups then differ by more than α in the Kolmogorov-Smirnov
    distance. A score in bin i of group a is moved to bin j with chance
    :math:`\gamma_{a,ij}/h_{a,i}`. It serves independence only, and needs the group of everyone.

    Parameters
    ----------
    estimator : regressor
        Cloned and fitted.
    tolerance : float in [0, 1]
        α; 1 only sorts scores into bins.
    n_bins : int
        k.
    bounds : (float, float), optional
        Ends of the bins; scores beyond are taken for them. The smallest and largest score when left
        out, which `privacy` forbids.
    privacy : float
        ε: the histograms get Laplace noise of scale 2/(εn), so that they are ε-differentially
        private. Infinite: no noise.
    output : {"draw", "mean"}
        A drawn bin, which is what the guarantee is about and gives equal people different scores,
        or the mean of the bins that could be drawn. It can be changed after `fit`.
    cv : int, splitter or list of (train, test), optional
        Folds: the histograms are then those of out-of-fold scores.
    random_state : int, RandomState or None
        For folds, noise, and draws, which repeat exactly.

    Attributes
    ----------
    estimator_ : regressor
    labels_ : tuple of length K
    group_shares_ : (K,) array
        p, with noise.
    values_ : (k,) array
        c.
    histograms_ : (K, k) array
        h.
    coupling_ : (K, k, k) array
        γ.
    plan_ : (K, k, k) array
        Chances of each bin, given the group and the bin before.

    References
    ----------
    Xian, Li, Kamath, Zhao (2024), "Differentially Private Post-Processing for Fair Regression".
    """

    def __init__(
        self,
        estimator: Any,
        *,
        tolerance: float = 0.0,
        n_bins: int = 36,
        bounds: tuple[float, float] | None = None,
        privacy: float = np.inf,
        output: str = "draw",
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.tolerance = tolerance
        self.n_bins = n_bins
        self.bounds = bounds
        self.privacy = privacy
        self.output = output
        self.cv = cv
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            tags.input_tags = deepcopy(self.estimator.__sklearn_tags__().input_tags)
        return tags

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> HistogramTransport:
        """Fit the regressor, then the histograms and the transport between them.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features, passed to the estimator.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Groups; required. Rows of unknown group serve the regressor only.
        sample_weight : (n,) array, optional
            Nonnegative weights; refused with `privacy`.
        """
        self._check_parameters(sample_weight)
        refuse_missing_groups(sensitive_features is None)
        check_index(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        y = check_column(y, "y")
        (X,) = indexable(X)
        check_consistent_length(X, y)
        weight = check_weight(sample_weight, len(y))
        groups = resolve_groups(sensitive_features, n_rows=len(y), sample_weight=weight)
        rng = check_random_state(self.random_state)
        self._seed = int(rng.randint(np.iinfo(np.int32).max))
        folds = [] if self.cv is None else make_folds(self.cv, X, y, groups, self._seed)
        self.estimator_, scores = fit_out_of_fold(self.estimator, X, y, weight, folds)
        self.labels_ = groups.labels
        self._fit_scores(groups.take_known(scores), groups.membership(), groups.weight)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def _fit_scores(self, scores: Array, member: Array, weight: Array | None) -> None:
        """Histograms and transport of scores; `member` (n, K)."""
        low, high = (scores.min(), scores.max()) if self.bounds is None else self.bounds
        k = int(self.n_bins)
        self._low, self._step = float(low), float(high - low) / k if high > low else 1.0
        self.values_ = self._low + self._step * (np.arange(k) + 0.5)
        mass = member if weight is None else member * weight[:, None]
        bins = self._bin(scores)
        counts = np.array([np.bincount(bins, weights=column, minlength=k) for column in mass.T])
        counts /= mass.sum()
        if np.isfinite(self.privacy):
            rng = np.random.default_rng(self._seed)
            noise = rng.laplace(scale=2.0 / (float(self.privacy) * len(scores)), size=counts.shape)
            counts = counts + noise
        self.group_shares_ = np.maximum(counts.sum(axis=1), 1e-6)
        rising = [rise(row) for row in np.cumsum(counts / self.group_shares_[:, None], axis=1)]
        rank = np.clip(rising, 0.0, 1.0)
        rank[:, -1] = 1.0
        self.histograms_ = np.diff(rank, prepend=0.0, axis=1)
        self.coupling_ = transport(self.histograms_, self.group_shares_, float(self.tolerance))
        total = self.coupling_.sum(axis=2, keepdims=True)
        # Scores in a bin that was empty stay where they are.
        self.plan_ = np.where(total > 1e-12, self.coupling_ / np.maximum(total, 1e-12), np.eye(k))

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Scores of new rows, moved.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.
        sensitive_features : array, series, frame or Proxy
            Groups of the same rows; required. Rows of unknown group are only sorted into bins.

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self, "plan_")
        check_choice(self.output, "output", OUTPUTS)
        check_index(X=X, sensitive_features=sensitive_features)
        bins = self._bin(check_column(self.estimator_.predict(X), "scores"))
        member, known = membership_at_prediction(
            sensitive_features, n_rows=len(bins), labels=self.labels_, estimator=self
        )
        chance = np.einsum("nk,kni->ni", member, self.plan_[:, bins])
        chance[~known] = np.eye(len(self.values_))[bins[~known]]
        if self.output == "mean":
            return chance @ self.values_
        uniform = np.random.default_rng(self._seed).random(len(bins))
        passed = (np.cumsum(chance, axis=1) < uniform[:, None]).sum(axis=1)
        return self.values_[np.minimum(passed, len(self.values_) - 1)]

    def _bin(self, scores: Array) -> Any:
        place = np.floor((scores - self._low) / self._step).astype(np.intp)
        return np.clip(place, 0, int(self.n_bins) - 1)

    def _check_parameters(self, sample_weight: Any) -> None:
        check_share(self.tolerance, "tolerance")
        check_choice(self.output, "output", OUTPUTS)
        k = self.n_bins
        if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
            raise ValueError(f"`n_bins` must be a positive integer, got {k!r}.")
        epsilon = self.privacy
        if not isinstance(epsilon, Real) or isinstance(epsilon, bool) or not epsilon > 0:
            raise ValueError(f"`privacy` must be a positive number, got {epsilon!r}.")
        if np.isfinite(epsilon) and (self.bounds is None or sample_weight is not None):
            raise ValueError(
                "`privacy` must be infinite where `bounds` are left out or rows are weighted: "
                "neither the range of the scores nor the weights are protected by the noise."
            )


def rise(values: Array) -> Array:
    """Return the nondecreasing sequence nearest to another in the largest difference."""
    highest_before = np.maximum.accumulate(values)
    lowest_after = np.minimum.accumulate(values[::-1])[::-1]
    return (highest_before + lowest_after) / 2.0


def transport(histograms: Array, shares: Array, tolerance: float) -> Array:
    """Return the coupling (K, k, k) of least cost, in squared bins, see `HistogramTransport`.

    Unknowns are the couplings, the distribution functions of the moved groups, and Q.
    """
    n_groups, k = histograms.shape
    squares = np.square(np.subtract.outer(np.arange(k), np.arange(k))).astype(float).ravel()
    cost = np.concatenate([np.kron(shares, squares), np.zeros((n_groups + 1) * k)])
    eye, each = sparse.identity(k), sparse.identity(n_groups)
    ones = np.ones((1, k))
    step = sparse.diags_array([np.ones(k), -np.ones(k - 1)], offsets=[0, -1])
    leaves = sparse.kron(each, sparse.kron(eye, ones))
    arrives = sparse.kron(each, sparse.kron(ones, eye))
    blank = sparse.csr_array((n_groups * k, k))
    equal = sparse.vstack([
        sparse.hstack([leaves, sparse.csr_array((n_groups * k, n_groups * k)), blank]),
        sparse.hstack([arrives, -sparse.kron(each, step), blank]),
    ])  # fmt: skip
    none = sparse.csr_array((n_groups * k, n_groups * k * k))
    far = sparse.hstack([
        none, sparse.identity(n_groups * k), -sparse.kron(np.ones((n_groups, 1)), eye)
    ])  # fmt: skip
    falls = sparse.hstack([sparse.csr_array((k, n_groups * k * k + n_groups * k)), -step])
    result: Any = optimize.linprog(
        cost,
        A_ub=sparse.vstack([far, -far, falls]),
        b_ub=np.concatenate([np.full(2 * n_groups * k, tolerance / 2.0), np.zeros(k)]),
        A_eq=equal,
        b_eq=np.concatenate([histograms.ravel(), np.zeros(n_groups * k)]),
        method="highs",
    )
    if not result.success:
        raise RuntimeError(f"The linear program of the transport failed: {result.message}")
    coupling = result.x[: n_groups * k * k].reshape(n_groups, k, k)
    return np.clip(coupling, 0.0, 1.0)
