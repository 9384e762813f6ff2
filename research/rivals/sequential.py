"""Fair scores for several attributes, one after another, by optimal transport."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.utils import indexable
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from evenhand._core.validation import check_column, check_index
from evenhand.data.folds import make_folds
from evenhand.data.groups import resolve_groups
from evenhand.data.weights import check_weight
from evenhand.training.linear import ScoresWithGroups, refuse_missing_groups
from evenhand.training.stack import fit_out_of_fold

from ._base import Array, check_share
from .wasserstein import WassersteinBarycenter


class SequentialBarycenter(ScoresWithGroups, MetaEstimatorMixin, RegressorMixin, BaseEstimator):
    r"""Any regressor's scores, made independent of one attribute after the other.

    Step j moves the scores to the barycenter of the groups of attribute j, separately for each
    combination of the attributes that are still to come. After all steps the score is independent
    of all attributes together, and is the barycenter of their crossing, whatever the order; with a
    share for each attribute it goes only part of the way for some.

    Parameters
    ----------
    estimator : regressor
        Cloned and fitted.
    interpolation : float or sequence of float in [0, 1]
        How far to move for each attribute, in the order of the columns. It can be changed after
        `fit`: the maps are those of full moves.
    jitter, cv, random_state
        As in :class:`WassersteinBarycenter`.

    Attributes
    ----------
    estimator_ : regressor
    n_attributes_ : int
    maps_ : dict of (step, levels to come) to WassersteinBarycenter or None
        None where only one group is left, which stays.

    References
    ----------
    Hu, Ratz, Charpentier (2024), "A Sequentially Fair Mechanism for Multiple Sensitive Attributes".
    """

    def __init__(
        self,
        estimator: Any,
        *,
        interpolation: Any = 1.0,
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
        self, X: Any, y: Any, *, sensitive_features: Any = None, sample_weight: Any = None
    ) -> SequentialBarycenter:
        """Fit the estimator, then the maps of each step on the scores that the last one left.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features, passed to the estimator.
        y : (n,) array
            Target.
        sensitive_features : (n, m) array, frame or dict of columns
            All attributes of all rows.
        sample_weight : (n,) array, optional
            Nonnegative weights.
        """
        refuse_missing_groups(sensitive_features is None)
        check_index(X=X, y=y, sensitive_features=sensitive_features, sample_weight=sample_weight)
        y = check_column(y, "y")
        (X,) = indexable(X)
        check_consistent_length(X, y)
        weight = check_weight(sample_weight, len(y))
        folds = []
        if self.cv is not None:
            crossed = resolve_groups(sensitive_features, n_rows=len(y), sample_weight=weight)
            folds = make_folds(self.cv, X, y, crossed, self.random_state)
        self.estimator_, scores = fit_out_of_fold(self.estimator, X, y, weight, folds)
        labels = _levels(sensitive_features, len(y))
        self.n_attributes_ = labels.shape[1]
        self.maps_: dict[tuple[int, tuple[Any, ...]], WassersteinBarycenter | None] = {}
        for step, to_come, rows in _cells(labels):
            own = labels[rows, step]
            model = None
            if len(set(own)) > 1:
                part = None if weight is None else weight[rows]
                model = WassersteinBarycenter(
                    None, jitter=self.jitter, random_state=self.random_state
                )
                model._fit_scores(scores[rows], own, part)
                scores[rows] = model.transform_scores(scores[rows], sensitive_features=own)
            self.maps_[step, to_come] = model
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        return self

    def predict(self, X: Any, *, sensitive_features: Any = None) -> Array:
        """Scores moved by all steps.

        Parameters
        ----------
        X : (n, d) array, sparse matrix or frame
            Features.
        sensitive_features : (n, m) array, frame or dict of columns
            All attributes of the same rows, in the order of `fit`.

        Returns
        -------
        (n,) array
        """
        check_is_fitted(self, "maps_")
        check_index(X=X, sensitive_features=sensitive_features)
        return self.transform_scores(
            self.estimator_.predict(X), sensitive_features=sensitive_features
        )

    def transform_scores(self, scores: Any, *, sensitive_features: Any) -> Array:
        """Move scores of the fitted estimator that are at hand already.

        Parameters
        ----------
        scores : (n,) array
        sensitive_features : (n, m) array, frame or dict of columns
        """
        scores = check_column(scores, "scores").copy()
        labels = _levels(sensitive_features, len(scores))
        shares = np.broadcast_to(np.asarray(self.interpolation, dtype=float), self.n_attributes_)
        for share in shares:
            check_share(float(share), "interpolation")
        if labels.shape[1] != self.n_attributes_:
            raise ValueError(
                f"`sensitive_features` must have the {self.n_attributes_} columns of fit, got "
                f"{labels.shape[1]}."
            )
        for step, to_come, rows in _cells(labels):
            if (step, to_come) not in self.maps_:
                raise ValueError(
                    f"`sensitive_features` must hold combinations seen in fit, got {to_come!r}."
                )
            model = self.maps_[step, to_come]
            if model is not None:
                fair = model.transform_scores(scores[rows], sensitive_features=labels[rows, step])
                scores[rows] += float(shares[step]) * (fair - scores[rows])
        return scores


def _levels(sensitive_features: Any, n_rows: int) -> Any:
    """(n, m) labels of all attributes."""
    groups = resolve_groups(sensitive_features, n_rows=n_rows, require_two=False, warn=False)
    if groups.known is not None:
        raise ValueError("`sensitive_features` must be known for all rows, some are missing.")
    names = [label if isinstance(label, tuple) else (label,) for label in groups.labels]
    table = np.empty((len(names), len(names[0])), dtype=object)
    table[:] = names
    return table[groups.numbers()]


def _cells(labels: Any) -> Any:
    """Each step with the levels still to come, and the rows of them."""
    for step in range(labels.shape[1]):
        to_come = [tuple(row) for row in labels[:, step + 1 :]]
        places: dict[tuple[Any, ...], list[int]] = {}
        for i, key in enumerate(to_come):
            places.setdefault(key, []).append(i)
        for key, rows in places.items():
            yield step, key, np.array(rows)
