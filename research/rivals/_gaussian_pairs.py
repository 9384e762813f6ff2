"""Sums over all pairs of rows, weighted by D_ij = exp(−(t_i − t_j)²), by pairs or in linear time.

Two sums are all that the convex penalties of Berk et al. need (P is (n, K), q = Σ_k p_k):

    U = D P                                            (n, K)
    C = Σ_k Xᵀ diag(p_k) D diag(q − p_k) X             (d, d)

`PairSums` forms D block by block, O(n²). `ChebyshevSums` cuts the line into cells of width at
most 2 and, in each, interpolates the kernel at Chebyshev nodes: with h the half width, r nodes
leave an error of at most 2.18 (h/√2)^r / √(r!) in each variable (Cramér's bound on the derivatives
of a Gaussian), so about 20 nodes reach 1e-10 for h = 1. Cells further apart than the distance
where the kernel falls under the tolerance do not meet. Cost O(n·r·d), whatever the range of t.
"""

from __future__ import annotations

from math import ceil, lgamma, log
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray
from scipy import sparse

from ._base import dense, scale_rows

Array = NDArray[np.float64]

TOLERANCE = 1e-10
# Entries of the largest temporary, about 64 MB of doubles.
BLOCK = 8_000_000


class PairSums:
    """Both sums from explicit pairs."""

    def __init__(self, t: Array) -> None:
        self.t = t

    def apply(self, P: Array) -> Array:
        """U = D P."""
        out = np.empty_like(P)
        for rows in _slices(len(self.t), BLOCK // len(self.t)):
            out[rows] = _kernel(self.t[rows], self.t) @ P
        return out

    def cross(self, X: Any, P: Array) -> Array:
        """C, over the pairs that belong to different groups."""
        total = P.sum(axis=1)
        out = np.zeros((X.shape[1], X.shape[1]))
        for k in range(P.shape[1]):
            mine = np.flatnonzero(P[:, k])
            rest = total - P[:, k]
            other = np.flatnonzero(rest)
            right = scale_rows(X[other], rest[other])
            for rows in _slices(len(mine), BLOCK // max(len(other), 1)):
                i = mine[rows]
                inner = _kernel(self.t[i], self.t[other]) @ right
                out += dense(scale_rows(X[i], P[i, k]).T @ inner)
        return out


class ChebyshevSums:
    """Both sums in linear time, every entry of D within `tolerance`.

    Parameters
    ----------
    t : (n,) array
        The target, in the units that the kernel is taken in.
    tolerance : float
        Largest absolute error of any D_ij.
    """

    def __init__(self, t: Array, tolerance: float = TOLERANCE) -> None:
        low, span = float(t.min()), float(t.max() - t.min())
        if span <= 2.0:
            self.width = span or 1.0
            cell = np.zeros(len(t), dtype=np.int64)
        else:
            # Whole-number edges: t minus the edge of its cell is then exact, however large t is.
            low, self.width = np.floor(low), 2.0
            cell = ((t - low) / 2.0).astype(np.int64)
        local = 2.0 * (t - (low + cell * self.width)) / self.width - 1.0
        self.order = np.argsort(cell, kind="stable")
        self.local = local[self.order]
        # Only occupied cells are kept: `grid` is where they lie, `start` their first row.
        self.grid, start = np.unique(cell[self.order], return_index=True)
        self.start = np.append(start, len(t))
        self.rank = chebyshev_rank(self.width / 2.0, tolerance)
        reach = np.sqrt(-log(tolerance))
        self.mixing = []
        to_coefficients, nodes = _chebyshev(self.rank)
        nodes = nodes * (self.width / 2.0)
        n_offsets = 1 + min(ceil(reach / self.width), int(self.grid[-1] - self.grid[0]))
        for offset in range(n_offsets):
            between = _kernel(nodes + offset * self.width, nodes)
            self.mixing.append(to_coefficients @ between @ to_coefficients.T)

    def apply(self, P: Array) -> Array:
        """U = D P."""
        out = np.empty_like(P)
        n_columns = P.shape[1]
        for first, last in self._cell_blocks(n_columns):
            low, high = self._halo(first, last)
            moments = self._moments(low, high, lambda rows: P[rows])
            field = np.zeros((last - first, self.rank, n_columns))
            for offset, matrix in enumerate(self.mixing):
                # Cell c hears cell c − offset through `matrix`, and c + offset through its mirror.
                for sign in (1, -1) if offset else (1,):
                    here, there = self._neighbors(first, last, low, high, sign * offset)
                    mixing = matrix if sign == 1 else matrix.T
                    field[here - first] += mixing @ moments[there - low]
            flat = field.reshape(-1, n_columns)
            for rows in self._row_chunks(first, last):
                out[self.order[rows]] = self._expansion(rows, first, last) @ flat
        return out

    def cross(self, X: Any, P: Array) -> Array:
        """C."""
        d, n_groups = X.shape[1], P.shape[1]
        out = np.zeros((d, d))
        for first, last in self._cell_blocks(d * (n_groups + 1)):
            low, _ = self._halo(first, last)
            parts = [
                self._moments(low, last, lambda rows, k=k: scale_rows(X[rows], P[rows, k]))
                for k in range(n_groups)
            ]
            total = np.sum(parts, axis=0)
            for offset, matrix in enumerate(self.mixing):
                here, there = self._neighbors(first, last, low, last, offset)
                if not len(here):
                    continue
                for part in parts:
                    heard = matrix @ (total - part)[there - low]
                    term = part[here - low].reshape(-1, d).T @ heard.reshape(-1, d)
                    # Summed over k the form is symmetric, so the mirrored offset is the transpose.
                    out += term + term.T if offset else term
        return out

    def _cell_blocks(self, n_columns: int) -> list[tuple[int, int]]:
        step = max(len(self.mixing), BLOCK // (self.rank * n_columns))
        return [(s.start, s.stop) for s in _slices(len(self.grid), step)]

    def _halo(self, first: int, last: int) -> tuple[int, int]:
        """The occupied cells within reach of cells first..last."""
        reach = len(self.mixing) - 1
        low = np.searchsorted(self.grid, self.grid[first] - reach)
        high = np.searchsorted(self.grid, self.grid[last - 1] + reach, side="right")
        return int(low), int(high)

    def _neighbors(
        self, first: int, last: int, low: int, high: int, offset: int
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Pairs (c, c') of occupied cells with c in first..last and c' lying `offset` below."""
        wanted = self.grid[first:last] - offset
        result = low + np.searchsorted(self.grid[low:high], wanted)
        valid = result < high
        valid[valid] = self.grid[result[valid]] == wanted[valid]
        return first + np.flatnonzero(valid), result[valid]

    def _row_chunks(self, first: int, last: int) -> list[slice]:
        begin, end = int(self.start[first]), int(self.start[last])
        step = max(1, BLOCK // (4 * self.rank))
        return [slice(begin + s.start, begin + s.stop) for s in _slices(end - begin, step)]

    def _expansion(self, rows: slice, first: int, last: int) -> Any:
        """Sparse (rows, cells·r): the Chebyshev polynomials of each row, in its cell's columns."""
        values = chebvander(self.local[rows], self.rank - 1)
        n_rows = len(values)
        index = np.arange(rows.start, rows.stop)
        cell = np.searchsorted(self.start[first : last + 1], index, side="right")
        columns = ((cell - 1) * self.rank)[:, None] + np.arange(self.rank)
        pointer = np.arange(n_rows + 1) * self.rank
        shape = (n_rows, (last - first) * self.rank)
        return sparse.csr_array((values.ravel(), columns.ravel(), pointer), shape=shape)

    def _moments(self, first: int, last: int, values: Any) -> Array:
        """(cells, r, columns): Σ over the rows of each cell of T_j(t_i) values_i."""
        total: Any = 0.0
        for rows in self._row_chunks(first, last):
            total = total + dense(self._expansion(rows, first, last).T @ values(self.order[rows]))
        return total.reshape(last - first, self.rank, -1)


def chebyshev_rank(half_width: float, tolerance: float) -> int:
    """Nodes so that interpolating exp(−(t − t')²) in both variables errs by at most `tolerance`."""
    for rank in range(2, 200):
        log_error = log(2.18) + rank * log(half_width / np.sqrt(2.0)) - 0.5 * lgamma(rank + 1)
        # Interpolating the second variable multiplies the first one's error by Lebesgue's constant.
        if log_error + log(2.0 + 2.0 / np.pi * log(rank + 1)) <= log(tolerance):
            return rank
    raise ValueError(f"`tolerance` must be reachable in double precision, got {tolerance!r}.")


def _chebyshev(rank: int) -> tuple[Array, Array]:
    """(coefficients from node values, nodes on [−1, 1])."""
    nodes: Array = np.cos(np.pi * (np.arange(rank) + 0.5) / rank)
    matrix: Array = chebvander(nodes, rank - 1).T * np.float64(2.0 / rank)
    matrix[0] /= 2.0
    return matrix, nodes


def _kernel(t: Array, u: Array) -> Array:
    difference = np.subtract.outer(t, u)
    np.square(difference, out=difference)
    np.negative(difference, out=difference)
    return np.exp(difference, out=difference)


def _slices(length: int, step: int) -> list[slice]:
    step = max(step, 1)
    return [slice(a, min(a + step, length)) for a in range(0, length, step)]
