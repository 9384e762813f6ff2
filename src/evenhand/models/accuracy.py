"""How much of a target scores explain: 1 − Σ ω d(y, s) / Σ ω d(y, m₀), m₀ the best constant.

With squares for d it is R², with the deviance of a family D². To first order it is a mean over
rows, so each row's influence gives its standard error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


class Explains(Protocol):
    """What an accuracy asks of a loss; see :class:`evenhand.models.losses.Loss`."""

    def deviance(self, y: Vector, mean: Vector) -> Vector: ...

    def null_mean(self, y: Vector, weight: Vector | None) -> float: ...

    def per_unit(
        self, y: Vector, weight: Vector | None, exposure: Vector
    ) -> tuple[Vector, Vector]: ...


@dataclass(frozen=True)
class Accuracy:
    """The share of the (weighted) deviance that scores explain.

    Attributes
    ----------
    key : str
        Name of its column in tables, such as "r2".
    symbol : str
        What people read, such as "R²".
    unit : str
        What is explained, in words.
    loss : Loss
        Whose deviance d(y, s) it is.
    """

    key: str
    symbol: str
    unit: str
    loss: Explains

    def influence(self, y: Vector, score: Vector, weight: Vector | None) -> tuple[float, Vector]:
        """The value, and each row's influence on it.

        The constant m₀ moves with the rows too, but at its minimum that changes nothing to first
        order.
        """
        null = np.asarray(self.loss.null_mean(y, weight), dtype=np.float64)
        squares = self.loss.deviance(y, null)
        errors = self.loss.deviance(y, score)
        total = float(np.average(squares, weights=weight))
        share = float(np.average(errors, weights=weight)) / total
        return 1.0 - share, (share * squares - errors) / total

    def value(self, y: Vector, score: Vector, weight: Vector | None = None) -> float:
        """The value alone."""
        return self.influence(y, score, weight)[0]
