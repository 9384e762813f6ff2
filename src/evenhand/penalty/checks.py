"""Checks of the numbers that the fairness term takes."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ..information.criteria import Criterion, Variable


def check_normalizer(normalizer: Any) -> float:
    """A positive number of nats."""
    good = isinstance(normalizer, Real) and not isinstance(normalizer, bool)
    if not good or not 0 < float(normalizer) < np.inf:
        raise ValueError(
            f"`normalizer` must be a positive number of nats, got {normalizer!r}. Hint: the "
            "`normalizer` of a term bound to all rows."
        )
    return float(normalizer)


def check_trainable(criterion: Criterion) -> Variable:
    """The one variable of a criterion that moves with the score, or why there is no such term."""
    moving = [criterion.variable(name) for name in criterion.joint if criterion.moves((name,))]
    if len(moving) != 1 or len(criterion.joint) > 2 or len(criterion.needs) > 1:
        raise ValueError(
            "`criterion` must be about one variable that moves with the score and at most one "
            f"other to be trained for, got {criterion.name!r} of "
            f"{criterion.words(criterion.joint)}. Hint: audits and paths measure it all the same."
        )
    (variable,) = moving
    if variable.of and variable.slope is None:
        raise ValueError(
            f"`criterion` must know how its variables follow the score to be trained for, got "
            f"{criterion.name!r}. Hint: Variable({variable.name!r}, ..., slope=...) with the "
            "derivative in the score."
        )
    return variable


def check_kappa(kappa: Any, classifier: str) -> Any:
    """A penalty that the classifier can use, as it was given."""
    if isinstance(kappa, str) and kappa in ("auto", "published"):
        if kappa == "published" and classifier != "lspc":
            raise ValueError(
                "`kappa` must be a number or 'auto', got 'published'. Hint: that is for "
                "classifier='lspc'."
            )
        return kappa
    good = isinstance(kappa, Real) and not isinstance(kappa, bool) and 0 <= float(kappa) < np.inf
    if not good:
        raise ValueError(
            f"`kappa` must be a nonnegative number, 'auto' or 'published', got {kappa!r}."
        )
    if classifier == "logistic" and float(kappa) == 0:
        raise ValueError(
            "`kappa` must be positive with classifier='logistic', which keeps groups that a score "
            "tells apart without error finite, got 0."
        )
    return kappa
