"""Losses as boosting libraries write them: summed over rows, in the raw score m.

squared   ½(y − m)²          gradient m − y          curvature 1
poisson   e^m − y·m          gradient e^m − y        curvature e^(m + 0.7)
gamma     y·e^−m + m         gradient 1 − y·e^−m     curvature y·e^−m

Each is half the deviance up to a constant. The 0.7 is both libraries' own safeguard.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

Floats = NDArray[Any]

# XGBoost's `max_delta_step` and LightGBM's `poisson_max_delta_step`.
POISSON_STEP = 0.7


class BoostingLoss(ABC):
    """A loss of target y and raw score m, one number a row."""

    name: str
    # Whether the prediction is e^m, as it is positive.
    log_link = False

    @abstractmethod
    def derivatives(self, y: Floats, m: Floats) -> tuple[Floats, Floats]:
        """Gradient and curvature in m of each row."""

    @abstractmethod
    def deviances(self, y: Floats, mean: Floats | float) -> Floats:
        """Deviance of each row."""

    @abstractmethod
    def check(self, y: Floats) -> None:
        """Refuse targets that the loss has no value for."""

    def mean(self, m: Floats) -> Floats:
        """The prediction of a raw score."""
        return np.exp(m) if self.log_link else m


class Squared(BoostingLoss):
    """½(y − m)²; its deviance is the squared error."""

    name = "squared"

    def derivatives(self, y, m):
        return m - y, np.ones_like(m)

    def deviances(self, y, mean):
        return (y - mean) ** 2

    def check(self, y):
        pass


class Poisson(BoostingLoss):
    """e^m − y·m, for counts and rates."""

    name = "poisson"
    log_link = True

    def derivatives(self, y, m):
        mean = np.exp(m)
        return mean - y, mean * np.exp(POISSON_STEP)

    def deviances(self, y, mean):
        return 2.0 * (xlogy(y, y / mean) - y + mean)

    def check(self, y):
        if (y < 0).any():
            raise ValueError(
                f"the target must be nonnegative with loss='poisson', got {y.min():g}. Hint: "
                "loss='squared' takes any number."
            )


class Gamma(BoostingLoss):
    """y·e^−m + m, for positive amounts."""

    name = "gamma"
    log_link = True

    def derivatives(self, y, m):
        ratio = y * np.exp(-m)
        return 1.0 - ratio, ratio

    def deviances(self, y, mean):
        return 2.0 * (y / mean - 1.0 - np.log(y / mean))

    def check(self, y):
        if (y <= 0).any():
            raise ValueError(
                f"the target must be positive with loss='gamma', got {y.min():g}. Hint: fit rows "
                "without a claim by loss='poisson', and amounts on the others."
            )


LOSSES: dict[str, BoostingLoss] = {loss.name: loss for loss in (Squared(), Poisson(), Gamma())}


def get_loss(name: Any) -> BoostingLoss:
    """Look a loss up by name."""
    if not isinstance(name, str) or name not in LOSSES:
        raise ValueError(
            f"`loss` must be one of {', '.join(LOSSES)}, got {name!r}. Hint: for another one, add "
            "the gradient of `bound.value_and_grad` to that of your own objective."
        )
    return LOSSES[name]
