"""The two ways in which XGBoost and LightGBM call back, and checks that both callbacks share.

xgboost.train, lightgbm.train       f(raw scores, dataset)
XGBRegressor, LGBMRegressor         f(targets, raw scores, weights or None)
"""

from __future__ import annotations

from importlib.util import find_spec
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

LIBRARIES = ("xgboost", "lightgbm")


class Call(NamedTuple):
    """Targets, raw scores and weights of one call, and whether it came with a dataset."""

    y: NDArray[Any]
    margin: NDArray[Any]
    weight: NDArray[Any] | None
    with_dataset: bool


def read_call(first: Any, second: Any, weight: Any) -> Call:
    """What was handed in, in either order."""
    with_dataset = hasattr(second, "get_label")
    if with_dataset:
        y, margin, weight = second.get_label(), first, second.get_weight()
    else:
        y, margin = first, second
    weight = None if weight is None or not len(weight) else np.asarray(weight)
    return Call(np.asarray(y), np.ascontiguousarray(np.ravel(margin)), weight, with_dataset)


def rows_of(bound: Any) -> int:
    """Rows that a bound term takes scores for."""
    return int(getattr(bound, "n_rows", None) or bound.groups.n_rows)


def check_bound(bound: Any) -> Any:
    """Something with a value and a gradient for the scores of fixed rows."""
    if not hasattr(bound, "value_grad_curvature"):
        raise ValueError(
            f"`bound` must be a term that is bound to rows, got {type(bound).__name__}. Hint: "
            "eh.FairnessRegularizer(criterion).bind(y, sensitive_features=a)."
        )
    return bound


def check_finite(margin: NDArray[np.float64]) -> None:
    """Boosting goes on with NaN; what follows would not say why."""
    if not np.isfinite(margin.sum()):
        raise ValueError(
            "the scores in training are no longer finite. Hint: a smaller `fairness_weight` or "
            "learning rate, or more `plain_rounds`."
        )


def check_library(library: Any) -> str:
    """A known name of a package that is installed."""
    if not isinstance(library, str) or library not in LIBRARIES:
        raise ValueError(f"`library` must be one of {', '.join(LIBRARIES)}, got {library!r}.")
    if find_spec(library) is None:
        raise ImportError(
            f"library={library!r} needs {library}, which is not installed. Hint: "
            "pip install 'evenhand[boosting]'."
        )
    return library


def check_fairness_weight(value: Any) -> float:
    """A nonnegative number."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= float(value) < np.inf:
        raise ValueError(f"`fairness_weight` must be a nonnegative number, got {value!r}.")
    return float(value)
