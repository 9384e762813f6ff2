"""Checks of what users ask of a path, with messages that say what to do."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _num_samples

from ..groups.validation import check_confidence_level
from ..information.criteria import CONDITIONAL, CRITERIA, get_criterion
from .held_out import Handle

Vector = NDArray[np.float64]


def check_request(
    max_unfairness: Any, min_accuracy: Any, on_unreachable: str, name: str = "min_r2"
) -> None:
    """What `select` was asked for; `name` is what the least accuracy is called."""
    if max_unfairness is None and min_accuracy is None:
        raise ValueError(f"`max_unfairness` or `{name}` must be given, got neither.")
    if max_unfairness is not None and not (
        isinstance(max_unfairness, Real) and 0 <= float(max_unfairness) <= 1
    ):
        raise ValueError(f"`max_unfairness` must lie between 0 and 1, got {max_unfairness!r}.")
    if min_accuracy is not None and not (
        isinstance(min_accuracy, Real) and float(min_accuracy) <= 1
    ):
        raise ValueError(f"`{name}` must be a number of at most 1, got {min_accuracy!r}.")
    if on_unreachable not in ("raise", "best"):
        raise ValueError(f"`on_unreachable` must be 'raise' or 'best', got {on_unreachable!r}.")


def check_criterion(criterion: str | None, handle: Handle, controls: Any = None) -> str:
    """The criterion's name: as given, or the estimator's own."""
    if criterion is None and handle.criterion is None:
        raise ValueError(
            f"`criterion` must be given: {type(handle.estimator).__name__} has none of its own. "
            f"Hint: one of {', '.join(CRITERIA)}."
        )
    found = get_criterion(handle.criterion if criterion is None else criterion)
    if CONDITIONAL in (found, handle.own_criterion) and controls is None:
        raise ValueError(
            "`controls` must be given with the criterion 'conditional', got None. Hint: "
            'fairness_path(..., controls=frame[["mileage"]]).'
        )
    if found == CONDITIONAL:
        return found.name
    if CRITERIA.get(found.name) != found:
        raise ValueError(
            f"`criterion` must be one that paths measure, got {found.name!r}. Hint: "
            "evenhand.register_criterion makes it one."
        )
    if set(found.needs) - {"y"}:
        raise ValueError(
            "`criterion` must need no columns but scores and targets on a path, got "
            f"{found.name!r}, which needs {', '.join(found.needs)}."
        )
    return found.name


def check_refits(estimator: Any) -> bool:
    """Whether a model inside was fitted before, on other rows as its user says; else it is refused.

    Folds cannot undo a fit that survives `clone`: rows it has seen would pass for held out.
    """
    parts = [estimator, *estimator.get_params().values()]
    found = [part for part in parts if getattr(part, "_fitted_before", bool)()]
    for part in found:
        if part.prefit is not True:
            base = type(part.estimator).__name__
            raise ValueError(
                f"`estimator` must be fitted anew in every fold, and the {base} inside "
                f"{type(part).__name__} is fitted already: rows that it has seen would be called "
                "held out. Hint: hand in an unfitted copy, sklearn.base.clone(model); if none of "
                "these rows took part in its fit, say so with prefit=True."
            )
    return bool(found)


def check_options(n_points: Any, confidence_level: Any) -> None:
    """Numbers of `fairness_path`."""
    if not isinstance(n_points, Integral) or n_points < 2:
        raise ValueError(f"`n_points` must be an integer of at least 2, got {n_points!r}.")
    check_confidence_level(confidence_level)


def check_rows(X: Any, n_rows: int) -> None:
    """X and y row by row; folds of a longer X would leave its last rows out in silence."""
    found = _num_samples(X)
    if found != n_rows:
        raise ValueError(f"`X` must have one row per entry of `y`: got {found} for {n_rows}.")


def check_varies(y: Vector) -> None:
    """Of a constant target there is nothing to explain."""
    if np.ptp(y) == 0:
        raise ValueError(f"`y` must vary, got {y[0]:g} in every row.")


def check_weights(fairness_weights: Any) -> list[float]:
    """Given weights in ascending order, 0 among them."""
    try:
        weights = np.unique(np.asarray(list(fairness_weights), dtype=np.float64))
        good = len(weights) > 0 and np.isfinite(weights).all() and weights.min() >= 0
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            "`fairness_weights` must be 'auto' or a sequence of nonnegative numbers, got "
            f"{fairness_weights!r}."
        )
    return sorted({0.0, *weights.tolist()})


def warn_mixed(weights: Sequence[float], constant: Sequence[int], n_folds: int) -> None:
    """Say where some folds give everybody one score, and the others do not."""
    mixed = [
        f"{weight:.4g} ({count} of {n_folds})"
        for weight, count in zip(weights, constant, strict=True)
        if 0 < count < n_folds
    ]
    if mixed:
        warnings.warn(
            "Some folds give everybody one score, and the others do not, at fairness weights "
            f"{', '.join(mixed)}: what is measured there is of no one model, and `select` passes "
            "over it. Hint: smaller weights, or fewer folds of more rows.",
            UserWarning,
            stacklevel=3,
        )
