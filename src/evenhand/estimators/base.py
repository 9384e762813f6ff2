"""What LSPC and Logistic share: the scikit-learn shell and the per-row entropy terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..data.criteria import Condition
from ..data.groups import Groups
from ..data.weights import check_weight
from ..kernels import Rows, make_rows, with_score
from ..kernels.basis import Basis, get_basis
from .estimation import RowLosses, largest_loss, refuse_many_variables

# Share of the leave-one-out loss in the one that estimates an entropy. In-sample is low and
# leave-one-out high by the same amount to first order.
LOSSES = {"in-sample": 0.0, "leave-one-out": 1.0, "balanced": 0.5}


class BasisClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier of the group that is linear in the basis φ of the standardized inputs.

    A subclass gives `_fit_rows` (weights from rows), `_probabilities` (scores to probabilities),
    `_row_losses` (in-sample and leave-one-out losses) and `_cluster_losses` (the same with whole
    clusters left out).
    """

    basis: str
    losses: str
    # Whether exact values cannot pass for a sign of the group, as they can in tables of values.
    is_smooth = True

    @abstractmethod
    def _fit_rows(self, rows: Rows, basis: Basis) -> NDArray[np.float64]: ...

    @abstractmethod
    def _probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]: ...

    @abstractmethod
    def _row_losses(
        self, rows: Rows, basis: Basis
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

    @abstractmethod
    def _cluster_losses(
        self, rows: Rows, basis: Basis, cluster: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...

    def fit(self, X: Any, y: Any, sample_weight: Any = None):
        """Fit on (n, p) inputs and n class labels.

        Parameters
        ----------
        X : (n, p) array
        y : (n,) array of labels
        sample_weight : (n,) array, optional

        Returns
        -------
        self
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        weight = check_weight(sample_weight, len(y))
        if weight is not None and not weight.all():
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.mean_ = np.average(X, axis=0, weights=weight)
        spread = np.sqrt(np.average((X - self.mean_) ** 2, axis=0, weights=weight))
        self.scale_ = np.where(spread > 0, spread, 1.0)
        basis = get_basis(self.basis, X.shape[1])
        if len(self.classes_) == 1:
            # scikit-learn's convention: a single class is predicted with certainty.
            self.weights_ = np.zeros((1, basis.n_terms))
            return self
        # Weights as they are, not scaled to mean 1: an integer weight is then a repeated row.
        groups = Groups(tuple(self.classes_), codes, None, weight, None, len(y))
        rows = make_rows(groups)._replace(s=(X - self.mean_) / self.scale_)
        self.weights_ = self._fit_rows(rows, basis)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """φ(z)·w, (n, K); for two classes the score of the second alone, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        z = (X - self.mean_) / self.scale_
        return get_basis(self.basis, z.shape[1])(z) @ self.weights_.T

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """ρ(a|z), (n, K), columns in the order of `classes_`."""
        scores = self._scores(X)
        return np.ones_like(scores) if scores.shape[1] == 1 else self._probabilities(scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def row_losses(
        self,
        variables: Mapping[str, NDArray[np.float64]],
        conditions: Sequence[Condition],
        groups: Groups,
    ) -> dict[Condition, RowLosses]:
        """−log ρ(aᵢ|zᵢ) per row for every condition; see `evenhand.estimators.estimation`."""
        if self.losses not in LOSSES:
            raise ValueError(f"`losses` must be one of {', '.join(LOSSES)}, got {self.losses!r}.")
        refuse_many_variables(conditions, type(self).__name__)
        out, share = {}, LOSSES[self.losses]
        most = largest_loss(groups)
        for condition in conditions:
            second = variables[condition[1]] if len(condition) == 2 else None
            rows = with_score(make_rows(groups, second), variables[condition[0]])
            basis = get_basis(self.basis, len(condition))
            if groups.cluster is None:
                inside, outside = self._row_losses(rows, basis)
            else:
                inside, outside = self._cluster_losses(rows, basis, groups.cluster)
            np.minimum(outside, most, out=outside)
            value = (1.0 - share) * inside + share * outside
            name = f"{self.basis} {type(self).__name__}, {basis.n_terms} terms"
            terms = float((groups.n_groups - 1) * basis.n_terms)
            # A few clusters draw the fit to themselves, so that losses in sample spread too little.
            few = groups.cluster is not None and self.losses == "balanced"
            influence = outside if few else value
            out[condition] = RowLosses(value, influence, name, terms, left_out=share * terms)
        return out
