"""The passes over rows: sums of small blocks, and per-row gradients.

`passes` are compiled (Numba, fused, threaded); `numpy_passes` has what is no slower without that.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._core.shards import ALONE, Sums, here

if TYPE_CHECKING:
    from ..data.groups import Groups


_NO_FLOATS = np.empty(0)
_NO_CODES = np.empty(0, dtype=np.uint8)
_NO_TABLE = np.empty((0, 0))


class Rows(NamedTuple):
    """What a pass reads. An absent column is an array of length zero.

    s : (n,) first variable, differentiated;  y : (n,) second variable or absent
    codes : (n,) group numbers, or absent;  probabilities : (n, K) in columns, or absent
    weight : (n,) mean 1, or absent;  shares : (K,) weighted group shares
    center : (4,) mean of s, 1/spread of s, mean of y, 1/spread of y
    moves : whether the first two move with s, or are constants to a gradient
    whole : rows of all workers, where these are one shard of them; else 0
    """

    s: NDArray[np.float64]
    y: NDArray[np.float64]
    codes: NDArray[np.integer]
    probabilities: NDArray[np.float64]
    weight: NDArray[np.float64]
    shares: NDArray[np.float64]
    center: NDArray[np.float64]
    moves: bool = True
    whole: int = 0

    @property
    def sums(self) -> Sums:
        """What adds up over the rows here, and over those of other workers where there are any."""
        return here() if self.whole else ALONE

    @property
    def n(self) -> int:
        """Rows that sums are over."""
        return self.whole or len(self.s)

    @property
    def n_groups(self) -> int:
        return len(self.shares)


def make_rows(groups: Groups, y: NDArray[np.float64] | None = None) -> Rows:
    """Rows without a score yet, from Groups and an optional second variable."""
    if groups.codes is not None:
        # One byte a row: the codes are read in every pass.
        small = groups.n_groups <= 256
        codes: NDArray[np.integer] = groups.codes.astype(
            np.uint8 if small else np.int64, copy=False
        )
        table = _NO_TABLE
    else:
        codes, table = _NO_CODES, np.asfortranarray(groups.probabilities)
    weight = _NO_FLOATS if groups.weight is None else groups.weight
    center = np.array([0.0, 1.0, 0.0, 1.0])
    if y is None:
        y = _NO_FLOATS
    else:
        center[2:] = standardizer(y, weight)
    whole = groups.n_total if here().is_shard else 0
    return Rows(_NO_FLOATS, y, codes, table, weight, groups.shares, center, whole=whole)


def with_score(rows: Rows, s: NDArray[np.float64]) -> Rows:
    """The same rows with the first variable set, and its center found."""
    center = rows.center.copy()
    center[:2] = standardizer(s, rows.weight)
    return rows._replace(s=s, center=center)


def standardizer(values: NDArray[np.float64], weight: NDArray[np.float64]) -> tuple[float, float]:
    """Weighted mean and reciprocal spread; the reciprocal is 0 for a constant column."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = here().pool(*get_kernels().moments(values, weight))
    if not 1e-200 < variance < np.inf:  # squares beyond the largest float or the smallest
        size = here().largest(float(np.abs(values).max(initial=0.0)))
        if size > 0 and not 0.5 < size < 2.0:  # else it has been divided by already
            mean, scale = standardizer(values / size, weight)
            return mean * size, scale / size
    spread = float(np.sqrt(variance))
    # A spread at the level of rounding in the mean is no spread.
    if not spread > 1e-13 * abs(mean):
        return mean, 0.0
    return mean, 1.0 / spread


@cache
def get_kernels() -> ModuleType:
    """The compiled passes, loaded on first use: Numba takes long to import."""
    from . import passes

    return passes
