"""Fair scores by optimal transport: every group is moved to the barycenter of all of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils import check_random_state, indexable
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from evenhand._core.validation import check_column, check_index
from evenhand.data.folds import make_folds
from evenhand.data.groups import resolve_groups
from evenhand.data.weights import check_weight
from evenhand.training.group_features import distribution
from evenhand.training.linear import ScoresWithGroups
from evenhand.training.stack import fit_out_of_fold

from ._base import (
    Array,
    check_nonnegative,
    check_share,
    membership_at_prediction,
)


class WassersteinBarycenter(ScoresWithGroups, MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    r"""Any regressor's scores, moved so that all groups have the same distribution.

    .. math::
        g(s, a) = \sum_k p_k\, Q_k(F_a(s)), \qquad (1 - t)\, s + t\, g(s, a)

    with :math:`F_a` the distribution function and :math:`Q_a` the quantile function of the scores
    of group a, and :math:`p_k` the share of group k. Among all scores independent of the group, g
    is the closest to s in squared error. It serves independence only.

    ``predict(X, sensitive_features=...)`` needs the attribute of every new row. Two people with
    the same score get different ones because of their group: that is disparate treatment, which
    the law forbids in many uses (credit, hiring and insurance in several countries) even where it
    removes a gap, and it means recording a protected attribute of everyone who is ever scored.

    Parameters
    ----------
    estimator : regressor
        Fitted, on a clone, by `fit`; wrap it in ``sklearn.frozen.FrozenEstimator`` if it is
        fitted already. The published method lets it see the attribute: put it in X for that.
    interpolation : float in [0, 1]
        t: 0 keeps the scores, 1 makes them independent of the group.
    jitter : float
        Ties are broken by uniform noise of this size, relative to the spread of the scores, in
        `fit` and in `predict`.
    cv : int, splitter or list of (train, test), optional
        Folds: the distributions are then those of out-of-fold scores. By default they are those of
        the rows that the estimator was fitted to.
    random_state : int, RandomState or None
        Seed of the folds and of the jitter, which is drawn once in `fit`, so that `predict`
        repeats exactly.

    Attributes
    ----------
    estimator_ : regressor
    labels_ : tuple of length K
        The groups.
    group_shares_ : (K,) array
    n_features_in_ : int
        When the estimator has it.

    Notes
    -----
    Distribution functions are weighted mid-ranks, interpolated linearly; scores outside the
    training range of their group are taken for its ends. The published analysis estimates
    :math:`F` and :math:`Q` on separate halves of the unlabeled data; here both use all of it.
    A proxy weighs each row by its membership probabilities, and averages the maps in `predict`. A
    row of unknown group is ranked among everybody.

    References
    ----------
    Chzhen, Denis, Hebiri, Oneto, Pontil (2020), "Fair Regression with Wasserstein Barycenters".
    """

    def __init__(
        self,
        estimator: Any,
        *,
        interpolation: float = 1.0,
        jitter: float = 1e-6,
        cv: Any = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.interpolation = interpolation
        self.jitter = jitter
        self.cv = cv
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            tags.input_tags = deepcopy(self.estimator.__sklearn_tags__().input_tags)
        return tags

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        X_unlabeled: Any = None,
        sensitive_features_unlabeled: Any = None,
    ) -> WassersteinBarycenter:
        """Fit the estimator, then the distribution of its scores in each group.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features, passed to the estimator.
        y : (n,) array
            Target.
        sensitive_features : array, series, frame or Proxy
            Groups of the rows of X; required unless unlabeled rows are given.
        sample_weight : (n,) array, optional
            Nonnegative weights, for the estimator and for the distributions.
        X_unlabeled, sensitive_features_unlabeled :
            Rows without a target to take the distributions from, instead of the training rows.
            Scores of rows that the estimator was fitted to can be spread differently from new
            ones, so this is the better choice where there are such rows; `cv` is the next best.
        """
        check_share(self.interpolation, "interpolation")
        check_nonnegative(self.jitter, "jitter")
        check_index(
            X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight
        )  # fmt: skip
        y = check_column(y, "y")
        check_consistent_length(X, y)
        weight = check_weight(sample_weight, len(y))
        folds = []
        if self.cv is not None and X_unlabeled is None and sensitive_features is not None:
            (X,) = indexable(X)
            groups = resolve_groups(sensitive_features, n_rows=len(y), sample_weight=weight)
            folds = make_folds(self.cv, X, y, groups, self.random_state)
        self.estimator_, scores = fit_out_of_fold(self.estimator, X, y, weight, folds)
        if X_unlabeled is not None:
            scores, weight = self.estimator_.predict(X_unlabeled), None
            sensitive_features = sensitive_features_unlabeled
            if sensitive_features is None:
                raise ValueError(
                    "`sensitive_features_unlabeled` must be given with `X_unlabeled`, got None."
                )
        elif sensitive_features_unlabeled is not None:
            raise ValueError(
                "`X_unlabeled` must be given with `sensitive_features_unlabeled`, got None."
            )
        self._fit_scores(scores, sensitive_features, weight)
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        return self

    def _fit_scores(self, scores: Any, sensitive_features: Any, weight: Array | None) -> None:
        scores = check_column(scores, "scores")
        groups = resolve_groups(sensitive_features, n_rows=len(scores), sample_weight=weight)
        rng = check_random_state(self.random_state)
        self._seed = int(rng.randint(np.iinfo(np.int32).max))
        self._jitter = float(self.jitter) * float(np.std(scores))
        scores = self._jittered(groups.take_known(scores))
        self.labels_, self.group_shares_ = groups.labels, groups.shares
        row_weight = np.ones(groups.n_known) if groups.weight is None else groups.weight
        membership = groups.membership() * row_weight[:, None]
        # One more "group", everybody, for rows whose own is not known.
        columns = [*membership.T, row_weight]
        order = np.argsort(scores, kind="stable")
        self._distributions = [distribution(scores[order], w[order]) for w in columns]

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Scores moved towards the barycenter.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.
        sensitive_features : array, series, frame or Proxy
            Groups of the same rows; required. Missing where unknown.

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self, "_distributions")
        check_index(X=X, sensitive_features=sensitive_features)
        return self.transform_scores(
            self.estimator_.predict(X), sensitive_features=sensitive_features
        )

    def transform_scores(self, scores: Any, *, sensitive_features: Any = None) -> Array:
        """Move scores of the fitted estimator that are at hand already.

        Parameters
        ----------
        scores : (n,) array
            Scores.
        sensitive_features : array, series, frame or Proxy
            Groups of the same rows; required.

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self, "_distributions")
        check_index(scores=scores, sensitive_features=sensitive_features)
        scores = check_column(scores, "scores")
        membership, known = membership_at_prediction(
            sensitive_features, n_rows=len(scores), labels=self.labels_, estimator=self
        )
        membership = np.column_stack([membership, ~known])
        noisy = self._jittered(scores)
        moved = np.zeros_like(scores)
        for share, (support, rank) in zip(membership.T, self._distributions, strict=True):
            rows = np.flatnonzero(share)
            level = np.interp(noisy[rows], support, rank)
            target = np.sum([
                p * np.interp(level, ranks, scores)
                for p, (scores, ranks) in zip(
                    self.group_shares_, self._distributions[:-1], strict=True
                )
            ], axis=0)  # fmt: skip
            moved[rows] += share[rows] * target
        t = float(self.interpolation)
        return (1.0 - t) * scores + t * moved

    def _jittered(self, scores: Array) -> Array:
        if self._jitter == 0.0:
            return scores
        noise = np.random.default_rng(self._seed).uniform(-1.0, 1.0, len(scores))
        return scores + self._jitter * noise
