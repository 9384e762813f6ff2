"""The feature matrix, read in blocks of rows: products and moments without a copy of X.

Dense arrays of either order and either float type, sparse matrices, tables in a scratch file, and a
few dense columns appended to any of them. All sums are in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import block_diag, qr

from .._kernels import shards
from .._kernels.threads import one_blas_thread
from .scratch import Scratch

Vector = NDArray[np.float64]
BLOCK_BYTES = 2**21
# Entries from which a product with the matrix gains from a second thread.
THREADED_SIZE = 4_000_000


class FeatureMatrix:
    """X (n, d), with optional extra dense columns E (n, e): the matrix [X, E]."""

    def __init__(self, X: Any, extra: NDArray[np.float64] | None = None):
        self.X = X
        self.extra = extra
        self.n = X.shape[0]
        # Rows of all workers, where X is one shard of many.
        self.total = shards.total(self.n)
        self.d = X.shape[1] + (0 if extra is None else extra.shape[1])
        self._rows = max(256, BLOCK_BYTES // (8 * max(self.d, 1)))
        # Relative rounding of the centered second moments: sparse columns cannot be shifted first.
        self.rounding = 1e-14 if sparse.issparse(X) and extra is None else 1e-26
        self._sparse = sparse.issparse(X)
        self._direct = isinstance(X, np.ndarray) and X.dtype == np.float64

    @property
    def wide(self) -> bool:
        """Whether there are more columns than rows."""
        return self.d > self.total

    def blas(self) -> AbstractContextManager[Any]:
        """One BLAS thread where the matrix is too small for two to pay."""
        return one_blas_thread() if self.n * self.d < THREADED_SIZE else nullcontext()

    def _pieces(self) -> Iterator[tuple[slice, Any]]:
        """Rows of X as they are, some at a time."""
        if isinstance(self.X, Scratch):
            yield from self.X.pieces(self._rows)
            return
        for start in range(0, self.n, self._rows):
            rows = slice(start, min(start + self._rows, self.n))
            yield rows, self.X[rows]

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Rows of [X, E] in float64, some at a time; each is good until the next."""
        for rows, block in self._pieces():
            if self._sparse:
                block = block.toarray()
            block = block.astype(np.float64, copy=False)
            if self.extra is not None:
                block = np.hstack([block, self.extra[rows]])
            yield rows, block

    def forward(self, theta: Vector) -> Vector:
        """[X, E]·θ."""
        k = self.X.shape[1]
        if self._direct or self._sparse:
            out = np.asarray(self.X @ theta[:k], dtype=np.float64)
        else:
            out = np.empty(self.n)
            for rows, block in self._pieces():
                out[rows] = block.astype(np.float64, copy=False) @ theta[:k]
        if self.extra is not None:
            out += self.extra @ theta[k:]
        return out

    def backward(self, r: Vector) -> Vector:
        """[X, E]ᵀ·r."""
        return shards.add(self._backward(r))

    def backward_with_sum(self, r: Vector) -> tuple[Vector, float]:
        """[X, E]ᵀ·r and Σr."""
        out, total = shards.add(self._backward(r), float(r.sum()))
        return out, total

    def _backward(self, r: Vector) -> Vector:
        if self._direct or self._sparse:
            out = np.asarray(self.X.T @ r, dtype=np.float64)
        else:
            out = np.zeros(self.X.shape[1])
            for rows, block in self._pieces():
                out += block.astype(np.float64, copy=False).T @ r[rows]
        return out if self.extra is None else np.concatenate([out, self.extra.T @ r])

    def take(self, rows: NDArray[np.intp]) -> FeatureMatrix:
        """Some of the rows, copied."""
        return FeatureMatrix(self.X[rows], None if self.extra is None else self.extra[rows])

    def check_squares(self, squares: Vector) -> None:
        """Refuse columns whose mean square is beyond the largest float."""
        bad = np.flatnonzero(~np.isfinite(squares))
        if len(bad):
            sizes = (np.abs(block[:, bad[0]]).max() for _, block in self.blocks())
            largest = shards.largest(float(max(sizes, default=0.0)))
            raise ValueError(
                f"`X` must be small enough to square, got values up to {largest:.1e} in column "
                f"{bad[0]}. Hint: divide it by a constant."
            )

    def rotated(
        self, weight: Vector | None, center: bool, n_kept: int = 0
    ) -> tuple[FeatureMatrix, NDArray[np.float64], Vector]:
        """Z (n, m), Q (d, m) with orthonormal columns and the means: [X, E] − mean = Z Qᵀ.

        The last `n_kept` columns are in Z as they are, for penalties of their own.

        Where d > n. A penalty on ‖θ‖² leaves θ no part outside the span of the rows, so θ = Qw
        with ‖θ‖ = ‖w‖: a problem in w with the design Z. By the QR factors of the transpose:
        X Xᵀ would lose half of the digits.
        """
        shards.refuse("A model with more columns than rows", "fit it in one process.")
        rows = np.empty((self.n, self.d))
        for block, values in self.blocks():
            rows[block] = values
        mean = np.zeros(self.d)
        if center:
            # Rough mean first, as in `moments`.
            shift = rows.mean(axis=0)
            rows -= shift
            rest = rows.mean(axis=0) if weight is None else weight @ rows / self.n
            rows -= rest
            mean = shift + rest
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("ij,ij->j", rows, rows) / self.n
            self.check_squares(squares)
            if center:
                # A spread at the level of rounding in the column is a constant.
                rows[:, squares <= self.rounding * mean**2] = 0.0
        k = self.d - n_kept
        q, r, order = qr(
            rows[:, :k].T, mode="economic", overwrite_a=True, check_finite=False, pivoting=True
        )
        # Pivots fall, so what is left of the last ones is rounding where rows depend on each other.
        size = np.abs(np.diag(r))
        # Features that are all constant leave one direction, along which nothing happens.
        rank = max(1, int((size > self.d * np.finfo(float).eps * size[0]).sum()))
        z = np.empty((self.n, rank + n_kept))
        z[order, :rank] = r[:rank].T
        z[:, rank:] = rows[:, k:]
        return FeatureMatrix(z), block_diag(q[:, :rank], np.eye(n_kept)), mean

    def moments(
        self, y: Vector, weight: Vector | None, center: bool
    ) -> tuple[Vector, NDArray[np.float64], Vector]:
        """Weighted column means, second moments XᵀΩX/n and XᵀΩy/n, about the means if `center`.

        One pass. The blocks are shifted by a rough mean first, so that centering afterwards does
        not subtract large numbers from each other.
        """
        mean = np.zeros(self.d)
        gram = np.zeros((self.d, self.d))
        cross = np.zeros(self.d)
        shift = np.zeros(self.d)
        if self._sparse and self.extra is None:
            w = np.ones(self.n) if weight is None else weight
            mean = self.X.T @ w
            gram = np.asarray((self.X.T @ self.X.multiply(w[:, None]).tocsr()).todense())
            cross = self.X.T @ (w * y)
        else:
            for rows, block in self.blocks():
                if center:
                    if rows.start == 0:
                        shift = _rough_mean(block)
                    block = block - shift
                right = y[rows]
                if weight is not None:
                    mean += weight[rows] @ block
                    root = np.sqrt(weight[rows])
                    block = block * root[:, None]
                    right = right * root
                else:
                    mean += np.ones(len(block)) @ block
                gram += block.T @ block
                cross += block.T @ right
            if center and not self.n:  # a shard without rows
                shift = _rough_mean(np.zeros((0, self.d)))
        n = self.total
        top_y = float(y.sum() if weight is None else weight @ y)
        mean, gram, cross, top_y = shards.add(mean, gram, cross, top_y)
        mean, gram, cross = mean / n, gram / n, cross / n
        if center:
            mean_y = top_y / n
            gram -= np.outer(mean, mean)
            cross -= mean * mean_y
        return mean + shift, gram, cross


def _rough_mean(block: NDArray[np.float64]) -> Vector:
    """Column means of a first block, or of those of all workers."""
    out, count = shards.add(np.ones(len(block)) @ block, float(len(block)))
    return out / count
