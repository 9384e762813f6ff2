"""Links between a linear predictor η and a mean μ, with two derivatives of μ(η)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Vector = NDArray[np.float64]


class Link(ABC):
    """η = g(μ).

    Attributes
    ----------
    name : str
    positive : bool
        Whether η must be positive; the mean falls as η grows there.
    """

    name: str
    positive = False

    @abstractmethod
    def __call__(self, mean: Vector) -> Vector:
        """g(μ)."""

    @abstractmethod
    def inverse(self, eta: Vector) -> Vector:
        """μ(η)."""

    @abstractmethod
    def slopes(self, eta: Vector) -> tuple[Vector, Vector]:
        """μ′(η) and μ″(η)."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<link {self.name}>"


class Identity(Link):
    """μ = η."""

    name = "identity"

    def __call__(self, mean: Vector) -> Vector:
        return mean

    def inverse(self, eta: Vector) -> Vector:
        return eta

    def slopes(self, eta: Vector) -> tuple[Vector, Vector]:
        return np.ones_like(eta), np.zeros_like(eta)


class Log(Link):
    """μ = e^η."""

    name = "log"

    def __call__(self, mean: Vector) -> Vector:
        return np.log(mean)

    def inverse(self, eta: Vector) -> Vector:
        # A positive mean stays positive, and finite, however far a row lies from all others.
        info = np.finfo(eta.dtype)
        return np.exp(np.clip(eta, np.log(info.tiny) + 1.0, np.log(info.max) - 1.0))

    def slopes(self, eta: Vector) -> tuple[Vector, Vector]:
        mean = self.inverse(eta)
        return mean, mean


class Logit(Link):
    """μ = 1/(1 + e^−η)."""

    name = "logit"

    def __call__(self, mean: Vector) -> Vector:
        return np.asarray(logit(mean))

    def inverse(self, eta: Vector) -> Vector:
        return np.asarray(expit(eta))

    def slopes(self, eta: Vector) -> tuple[Vector, Vector]:
        mean = self.inverse(eta)
        slope = mean * (1.0 - mean)
        return slope, slope * (1.0 - 2.0 * mean)


class Inverse(Link):
    """μ = 1/η, canonical for gamma."""

    name = "inverse"
    positive = True

    def __call__(self, mean: Vector) -> Vector:
        return 1.0 / mean

    def inverse(self, eta: Vector) -> Vector:
        return 1.0 / eta

    def slopes(self, eta: Vector) -> tuple[Vector, Vector]:
        return -(eta**-2), 2.0 * eta**-3


class InverseSquared(Link):
    """μ = 1/√η, canonical for the inverse Gaussian."""

    name = "inverse_squared"
    positive = True

    def __call__(self, mean: Vector) -> Vector:
        return mean**-2

    def inverse(self, eta: Vector) -> Vector:
        return eta**-0.5

    def slopes(self, eta: Vector) -> tuple[Vector, Vector]:
        return -0.5 * eta**-1.5, 0.75 * eta**-2.5


LINKS: dict[str, Link] = {
    link.name: link for link in (Identity(), Log(), Logit(), Inverse(), InverseSquared())
}
