"""A score with the path of one feature closed: by the model, by a surrogate, or by a new fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from ..groups.encoding import TableEncoder
from ..groups.folds import make_folds
from ..groups.frequency import take_rows
from ..groups.sensitive import Groups
from ..groups.validation import check_column
from .feature_columns import FeatureTable

Vector = NDArray[np.float64]
# Rows that are scored at a time: many calls of a few rows take longer than few of many.
TOGETHER = 50_000


@dataclass(frozen=True)
class Closing:
    """The score, and the score with the path of one feature closed."""

    score: Vector
    without: Callable[[str], Vector]
    surrogate_r2: float = float("nan")
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DriverRows:
    """What is known of the rows; `cluster` as numbers over all of them."""

    table: FeatureTable
    y: Vector | None
    groups: Groups
    labels: Any
    weight: Vector | None
    cluster: NDArray[np.intp] | None


def close_paths(
    model: Any, data: DriverRows, close: str, n_values: int, cv: int, seed: int
) -> Closing:
    if hasattr(model, "predict"):
        if close == "refit":
            return _refitted(model, data, cv, seed)
        extra = _prediction_arguments(model, data.labels)

        def predict(X: Any) -> Vector:
            return np.asarray(model.predict(X, **extra), dtype=np.float64).ravel()

        # Groups that a model asks for are those of one copy of the table.
        return _replaced(predict, data, n_values, 1 if extra else TOGETHER)
    if close == "refit":
        raise ValueError(
            "`close` must be 'shared' for scores, got 'refit'. Hint: pass the "
            "estimator that made them, and y_true."
        )
    score = check_column(model, "model_or_scores", data.table.n)
    return _surrogate(score, data, n_values, seed)


def _prediction_arguments(model: Any, labels: Any) -> dict[str, Any]:
    """The groups, for a model that was asked to use them."""
    uses = getattr(model, "group_features", None) == "attribute"
    return {"sensitive_features": labels} if uses else {}


def _replaced(
    predict: Callable[[Any], Vector], data: DriverRows, n_values: int, together: int = TOGETHER
) -> Closing:
    n = data.table.n

    def without(name: str) -> Vector:
        rows = data.table.evenly(name, n_values)
        total = np.zeros(n)
        for few in np.array_split(rows, -(-len(rows) // max(together // n, 1))):
            scores = predict(data.table.constants(name, few))
            total += scores.reshape(len(few), n).sum(axis=0)
        return total / len(rows)

    return Closing(predict(data.table.X), without)


def _surrogate(score: Vector, data: DriverRows, n_values: int, seed: int) -> Closing:
    """A boosted model of the scores; a closed path moves the score by what it moves the model."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline

    table, weight = data.table, data.weight
    model = make_pipeline(
        TableEncoder(standardize=False), HistGradientBoostingRegressor(random_state=seed)
    )
    held_out = cross_val_predict(model, table.X, score, cv=5)
    model.fit(table.X, score)
    spread = np.average((score - np.average(score, weights=weight)) ** 2, weights=weight)
    error = np.average((score - held_out) ** 2, weights=weight)
    r2 = float(1.0 - error / spread) if spread > 0 else 1.0
    found = _replaced(model.predict, data, n_values)
    fitted = found.score
    notes: tuple[str, ...] = ()
    if r2 < 0.9:
        notes = (
            f"The features explain {100 * max(r2, 0.0):.0f}% of the scores: what else went into "
            "them is in no part.",
        )
    return Closing(score, lambda name: score - (fitted - found.without(name)), r2, notes)


def _refitted(model: Any, data: DriverRows, cv: int, seed: int) -> Closing:
    table, y, labels, weight = data.table, data.y, data.labels, data.weight
    if y is None:
        raise ValueError("`y_true` must be given with close='refit', which fits the model again.")
    folds = make_folds(cv, table.X, y, data.groups, seed, data.cluster)
    accepted = signature(model.fit).parameters

    def held_out(X: Any) -> Vector:
        out = np.empty(table.n)
        for train, test in folds:
            extra: dict[str, Any] = {}
            if weight is not None and "sample_weight" in accepted:
                extra["sample_weight"] = weight[train]
            if "sensitive_features" in accepted:
                extra["sensitive_features"] = take_rows(labels, train)
            fitted = clone(model).fit(_safe_indexing(X, train), y[train], **extra)
            ask = _prediction_arguments(fitted, take_rows(labels, test))
            out[test] = np.asarray(fitted.predict(_safe_indexing(X, test), **ask)).ravel()
        return out

    return Closing(held_out(table.X), lambda name: held_out(table.without(name)))
