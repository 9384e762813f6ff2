"""What scikit-learn needs to know of models whose `predict` may need the group."""

from __future__ import annotations

from typing import Any, ClassVar

from sklearn.metrics import r2_score


class ScoresWithGroups:
    """A `score` that hands the attribute on to `predict`, and groups routed to all methods.

    Under metadata routing an argument that is neither requested nor refused is an error; these
    models are about groups, so they request them unless `set_fit_request` and its like say
    otherwise.
    """

    __metadata_request__fit: ClassVar = {"sensitive_features": True}
    __metadata_request__predict: ClassVar = {"sensitive_features": True}
    __metadata_request__score: ClassVar = {"sensitive_features": True}

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sensitive_features: Any = None
    ) -> float:
        """R² of the predictions.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        sensitive_features : array, series, frame or Proxy, optional
            Needed where `predict` needs it.

        Returns
        -------
        float
        """
        prediction = self.predict(X, sensitive_features=sensitive_features)  # type: ignore[attr-defined]
        return float(r2_score(y, prediction, sample_weight=sample_weight))
