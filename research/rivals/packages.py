"""Other packages' ways to a fairer regression, with this comparison's base model and one strength.

fairlearn is imported with the module, EquiPy with its own class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from fairlearn.preprocessing import CorrelationRemover
from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient, GridSearch, SquareLoss
from sklearn.linear_model import Ridge

from common import ALPHA, SEED
from studies.methods import N_GRID


class GridSearchLoss:
    """GridSearch over the multipliers of bounded group loss; the strength is the grid point.

    The grid has 9 points, so strengths 0 to 8 give all models that one search fits.
    """

    def __init__(self, strength: float, limit: float = 2.0) -> None:
        self.point, self.limit = int(strength), limit

    def at(self, strength: float) -> GridSearchLoss:
        self.point = int(strength)
        return self

    def fit(self, X: Any, y: Any, *, sensitive_features: Any) -> GridSearchLoss:
        loss = BoundedGroupLoss(SquareLoss(y.min(), y.max()), upper_bound=0.0)
        search = GridSearch(
            Ridge(alpha=len(y) * ALPHA), constraints=loss, grid_size=N_GRID, grid_limit=self.limit
        )
        search.fit(X, y, sensitive_features=sensitive_features)
        self.models_ = search.predictors_
        return self

    def predict(self, X: Any) -> Any:
        return self.models_[min(self.point, len(self.models_) - 1)].predict(X)


class GradientLoss:
    """ExponentiatedGradient with bounded group loss.

    The strength is the bound, as a multiple of the mean squared error of ridge on all rows.
    Predictions are random: each row draws one of the models.
    """

    def __init__(self, strength: float) -> None:
        self.bound = strength

    def fit(self, X: Any, y: Any, *, sensitive_features: Any) -> GradientLoss:
        base = Ridge(alpha=len(y) * ALPHA)
        error = float(np.mean((y - base.fit(X, y).predict(X)) ** 2))
        loss = BoundedGroupLoss(SquareLoss(y.min(), y.max()), upper_bound=self.bound * error)
        self.model_ = ExponentiatedGradient(base, constraints=loss, max_iter=20)
        self.model_.fit(X, y, sensitive_features=sensitive_features)
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X, random_state=SEED)


class Decorrelated:
    """CorrelationRemover, then ridge; the strength is its alpha, 1 removing all correlation.

    The attribute is a column of what it transforms, so predicting needs it.
    """

    def __init__(self, strength: float) -> None:
        self.alpha = strength

    def _with_group(self, X: Any, sensitive_features: Any) -> Any:
        # All indicators but one, which the others determine.
        a = np.asarray(sensitive_features)[:, None]
        return np.column_stack([X, (a == self.labels_[1:]).astype(float)])

    def fit(self, X: Any, y: Any, *, sensitive_features: Any) -> Decorrelated:
        self.labels_ = np.unique(sensitive_features)
        both = self._with_group(X, sensitive_features)
        added = list(range(X.shape[1], both.shape[1]))
        self.remover_ = CorrelationRemover(sensitive_feature_ids=added, alpha=self.alpha)
        self.model_ = Ridge(alpha=len(y) * ALPHA).fit(self.remover_.fit_transform(both), y)
        return self

    def predict(self, X: Any, *, sensitive_features: Any) -> Any:
        return self.model_.predict(self.remover_.transform(self._with_group(X, sensitive_features)))


class EquiPy:
    """EquiPy's FairWasserstein on the scores of ridge; the strength is one less its epsilon.

    Its noise has an absolute size, so it is given scores in standard deviations.
    """

    def __init__(self, strength: float, sigma: float = 1e-6) -> None:
        self.strength, self.sigma = strength, sigma

    def at(self, strength: float) -> EquiPy:
        self.strength = strength
        return self

    def _scaled(self, X: Any) -> Any:
        return (self.model_.predict(X) - self.center_) / self.scale_

    def fit(self, X: Any, y: Any, *, sensitive_features: Any) -> EquiPy:
        from equipy.fairness import FairWasserstein

        self.model_ = Ridge(alpha=len(y) * ALPHA).fit(X, y)
        score = self.model_.predict(X)
        self.center_, self.scale_ = float(score.mean()), float(score.std())
        self.map_ = FairWasserstein(sigma=self.sigma, seed=SEED)
        self.map_.fit(self._scaled(X), np.asarray(sensitive_features))
        return self

    def predict(self, X: Any, *, sensitive_features: Any) -> Any:
        a = np.asarray(sensitive_features)
        fair = self.map_.transform(self._scaled(X), a, epsilon=1.0 - self.strength)
        return self.center_ + self.scale_ * fair
