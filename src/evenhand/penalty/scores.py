"""Scores as the classifiers inside the fairness term see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._kernels import Rows

# The c of t = c·tanh(z/c): at 1 too little of the score is left, at 3 its tails are back.
LIMIT = 1.5


class Scores(NamedTuple):
    """What a classifier reads, and the way back for a gradient.

    Attributes
    ----------
    rows : dict of Rows
        By what is conditioned on; `s` is bounded, or as it was given.
    constant : bool
        Whether all scores are the same.
    back : callable or None
        From ∂/∂t to ∂/∂s, in place; None where t = c·tanh(z/c) is not used.
    known : (m,) array
        What moves with the score, mostly itself, of rows whose group is known.
    center : tuple
        Its mean and reciprocal spread.
    chain : (m,) array or None
        Its derivative in the score; None where it is the score.
    """

    rows: dict[tuple[str, ...], Rows]
    constant: bool
    back: Callable[[NDArray[np.float64]], None] | None
    known: NDArray[np.float64]
    center: tuple[float, float]
    chain: NDArray[np.float64] | None = None

    def slope(self, seen: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """dt/dz at t; None where classifiers see z."""
        return None if self.back is None else 1.0 - (seen / LIMIT) ** 2

    def seen(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """What stands in `rows` for standardized scores z."""
        if self.back is not None:
            return LIMIT * np.tanh(z / LIMIT)
        return self.center[0] + z / self.center[1]
