"""Rows that are read part by part: the same passes, with their sums added up.

For tables that do not fit into memory. A pass over all rows is one over every part; what it returns
for each row (a gradient, losses) is asked for part by part instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import Rows, get_kernels


@dataclass(frozen=True)
class PartedRows:
    """What `Rows` is to rows in memory.

    Attributes
    ----------
    n : int
        Rows that count; others have weight 0.
    shares : (K,) array
    center : (4,) array
    moves : bool
        All three as in `Rows`.
    parts : callable
        Yields the `Rows` of one part after another, in order.
    every : callable
        stride → `Rows` in memory, one in so many.
    """

    n: int
    shares: NDArray[np.float64]
    center: NDArray[np.float64]
    moves: bool
    parts: Callable[[], Iterator[Rows]]
    every: Callable[[int], Rows]
    passes: Any = field(default_factory=lambda: _Added)

    @property
    def n_groups(self) -> int:
        return len(self.shares)


class _Added:
    """Sums of the passes over all parts."""

    @staticmethod
    def gram(rows, basis):
        moments, cross = 0.0, 0.0
        for part in rows.parts():
            found = get_kernels().gram(part, basis)
            moments, cross = moments + found[0], cross + found[1]
        return moments, cross

    @staticmethod
    def lspc_pass(rows, basis, weights, beta, want_gradient):
        assert not want_gradient, "a gradient has as many numbers as there are rows"
        loss, residual = 0.0, 0.0
        for part in rows.parts():
            found = get_kernels().lspc_pass(part, basis, weights, beta, False)
            loss, residual = loss + found[0], residual + found[1]
        return loss, residual, None

    @staticmethod
    def logistic_pass(rows, basis, weights, want_hessian, finish=None, losses=None):
        assert finish is None, "a gradient has as many numbers as there are rows"
        assert losses is None, "so have losses"
        loss, score = 0.0, 0.0
        hessian = 0.0 if want_hessian else None
        for part in rows.parts():
            found = get_kernels().logistic_pass(part, basis, weights, want_hessian)
            loss, score = loss + found[0], score + found[1]
            if hessian is not None:
                hessian = hessian + found[2]
        return loss, score, hessian, None
