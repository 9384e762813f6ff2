"""The discrimination-free price: the best estimate given the group, averaged over all groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted, validate_data

from evenhand._core.validation import check_index
from evenhand.data.groups import Groups, resolve_groups
from evenhand.data.weights import check_weight
from evenhand.training.linear import ScoresWithGroups, refuse_missing_groups

from ._base import Array


class DiscriminationFreePrice(ScoresWithGroups, RegressorMixin, BaseEstimator):
    r"""Lindholm, Richman, Tsanakas and Wüthrich (2022), Discrimination-free insurance pricing.

    .. math::
        h(x) = \sum_k \mathrm{P}(A = k)\, \mu(x, k), \qquad \mu(x, k) = \mathrm{E}[Y | X = x, A = k]

    The group is known when the best estimate μ is fitted, and not needed to price. Averaged over
    the shares of the groups instead of P(A = k | X = x), a feature no longer stands in for the
    group: what is left of indirect discrimination is what features do by themselves. The price is
    not independent of the group, and does not claim to be; nor do prices add up to the outcomes,
    unless `rebalance`.

    Parameters
    ----------
    estimator : regressor, optional
        Of the outcome on features and group indicators; least squares when left out.
    rebalance : bool
        Multiply prices by the constant that makes them add up to the outcomes of training.

    Attributes
    ----------
    best_estimate_, unaware_ : regressors
        μ(x, k), fitted to the features and the indicators of all groups but the first; and the one
        that is fitted to the features alone.
    labels_ : tuple of length K
    shares_ : (K,) array
        P(A = k), with weights.
    factor_ : float
        What prices are multiplied by; 1 unless `rebalance`.
    n_features_in_ : int
    """

    def __init__(self, estimator: Any = None, *, rebalance: bool = False):
        self.estimator = estimator
        self.rebalance = rebalance

    def fit(
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> DiscriminationFreePrice:
        """Fit the best estimate on rows of known group, and the unaware model on all.

        Parameters
        ----------
        X : (n, d) array
        y : (n,) array
        sensitive_features : array, series, frame or Proxy
        sample_weight : (n,) array, optional
        """
        refuse_missing_groups(sensitive_features is None)
        check_index(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        X, y = validate_data(self, X, y, y_numeric=True)
        weight = check_weight(sample_weight, len(y))
        groups = resolve_groups(sensitive_features, n_rows=len(y), sample_weight=weight)
        self.labels_, self.shares_ = groups.labels, groups.shares
        base = LinearRegression() if self.estimator is None else self.estimator
        known = slice(None) if groups.known is None else groups.known
        extra = {} if weight is None else {"sample_weight": weight}
        part = {} if weight is None else {"sample_weight": weight[known]}
        Z = np.hstack([X[known], groups.membership()[:, 1:]])
        self.best_estimate_ = clone(base).fit(Z, y[known], **part)
        self.unaware_ = clone(base).fit(X, y, **extra)
        self.factor_ = 1.0
        if self.rebalance:
            self.factor_ = float(np.average(y, weights=weight)) / float(
                np.average(self.predict(X), weights=weight)
            )
        return self

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Prices; the group is not used.

        Parameters
        ----------
        X : (n, d) array
        sensitive_features : ignored
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        by_group = [self._price(X, k) for k in range(len(self.labels_))]
        return self.factor_ * (self.shares_ @ np.array(by_group))

    def best_estimate(self, X: Any, *, sensitive_features: Any) -> Array:
        """μ(x, k) of each row, at its own group.

        Parameters
        ----------
        X : (n, d) array
        sensitive_features : array or series
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        groups: Groups = resolve_groups(sensitive_features, n_rows=len(X), require_two=False)
        place = [self.labels_.index(label) for label in groups.labels]
        numbers = np.array(place)[groups.numbers()]
        return np.choose(numbers, [self._price(X, k) for k in range(len(self.labels_))])

    def proxy_effect(self, X: Any) -> Array:
        """What each person pays by features that stand in for the group: unaware price less h(x).

        Parameters
        ----------
        X : (n, d) array
        """
        return self.unaware_.predict(validate_data(self, X, reset=False)) - self.predict(X)

    def _price(self, X: Array, group: int) -> Array:
        indicators = np.zeros((len(X), len(self.labels_) - 1))
        if group:
            indicators[:, group - 1] = 1.0
        return np.asarray(self.best_estimate_.predict(np.hstack([X, indicators])))
