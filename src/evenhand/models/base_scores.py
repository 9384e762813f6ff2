"""The score s₀ of any regressor, for rows that it has not seen: out of fold, or fitted before."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from ..groups.validation import check_column

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class FoldMean:
    """ŝ(x) = mean of the regressors that were fitted on all folds but one.

    Each row of the training data was scored by one of them out of fold, so that no further fit is
    needed to score new rows; and a mean of several varies less than one.

    Attributes
    ----------
    estimators_ : tuple of regressors
    """

    estimators_: tuple[Any, ...]

    def predict(self, X: Any) -> Vector:
        """(n,) scores."""
        return np.mean([predict_base(model, X) for model in self.estimators_], axis=0)

    def __getattr__(self, name: str) -> Any:
        # What scikit-learn says of the features is the same in all of them.
        if name in ("n_features_in_", "feature_names_in_"):
            return getattr(self.estimators_[0], name)
        raise AttributeError(name)


def predict_base(model: Any, X: Any) -> Vector:
    """Finite scores, one a row."""
    return check_column(model.predict(X), f"the predictions of {type(model).__name__}")


def fit_out_of_fold(
    estimator: Any, X: Any, y: Vector, weight: Vector | None, folds: list[Any],
    ensemble: bool = False,
) -> tuple[Any, Vector]:  # fmt: skip
    """What scores new rows, and the scores of each training row by a model that did not see it.

    Parameters
    ----------
    estimator : regressor
        Cloned for each fit.
    X, y, weight
        All rows, weights or None.
    folds : list of (train, test) rows
        Empty: the scores are those of the model fitted to all rows.
    ensemble : bool
        New rows are scored by the mean of the models of the folds, rather than by one fitted to
        all rows.

    Returns
    -------
    regressor, (n,) array
    """

    def fit(rows: Any) -> Any:
        extra = {} if weight is None else weight_argument(estimator, weight[rows])
        return clone(estimator).fit(_safe_indexing(X, rows), y[rows], **extra)

    if not folds:
        whole = fit(np.arange(len(y)))
        return whole, predict_base(whole, X)
    score, models = np.empty(len(y)), []
    for train, test in folds:
        model = fit(train)
        score[test] = predict_base(model, _safe_indexing(X, test))
        if ensemble:
            models.append(model)
    return (FoldMean(tuple(models)) if ensemble else fit(np.arange(len(y)))), score


def weight_argument(estimator: Any, weight: Vector) -> dict[str, Vector]:
    """How `fit` is handed weights: by name, or through a pipeline to its last step."""
    if isinstance(estimator, Pipeline) and not get_config()["enable_metadata_routing"]:
        name, last = estimator.steps[-1]
        if has_fit_parameter(last, "sample_weight"):
            return {f"{name}__sample_weight": weight}
    elif isinstance(estimator, Pipeline) or has_fit_parameter(estimator, "sample_weight"):
        return {"sample_weight": weight}
    raise ValueError(
        "`sample_weight` must be None for an estimator that takes no weights, got weights for "
        f"{type(estimator).__name__}. Hint: choose a regressor whose `fit` takes `sample_weight`, "
        "or leave the weights out here and in every measure."
    )


def check_regressor(estimator: Any, prefit: bool | str) -> None:
    """Refuse what cannot predict, and a fit that is promised but not there."""
    if isinstance(estimator, type) or not hasattr(estimator, "predict"):
        raise ValueError(
            f"`estimator` must be a regressor with `fit` and `predict`, got {estimator!r}."
        )
    if prefit not in (True, False, "auto"):
        raise ValueError(f"`prefit` must be True, False or 'auto', got {prefit!r}.")
    if prefit is True and not is_fitted(estimator):
        raise ValueError(
            f"`estimator` must be fitted when prefit=True; {type(estimator).__name__} is not. "
            "Hint: fit it first, or leave prefit='auto'."
        )


def warn_fitted(estimator: Any) -> None:
    """Say what the rows of a fitted regressor make of "held out"."""
    warnings.warn(
        f"The {type(estimator).__name__} is fitted already. If these rows are those it was fitted "
        "on, its scores are better here than on new ones and the stack trusts them too much, and "
        "no measure of it is held out. Hint: hand fit other rows and say so with prefit=True, or "
        "refit it with prefit=False.",
        UserWarning,
        stacklevel=4,
    )


def is_fitted(estimator: Any) -> bool:
    """Whether a regressor is fitted already; one that cannot be fitted, such as a service, is."""
    if not hasattr(estimator, "fit"):
        return hasattr(estimator, "predict")
    try:
        check_is_fitted(estimator)
    except (NotFittedError, TypeError):
        return False
    return True


def keeps_a_fit(estimator: Any) -> bool:
    """Whether some regressor inside is frozen, so that folds do not undo its fit."""
    parts = [estimator]
    if hasattr(estimator, "get_params"):
        parts += estimator.get_params().values()
    return any(isinstance(part, FrozenEstimator) and is_regressor(part) for part in parts)
