"""The feature matrix, read in blocks of rows: products and moments without a copy of X.

Dense arrays of either order and either float type, sparse matrices, tables in a scratch file, and a
few dense columns appended to any of them. All sums are in float64.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, block_diag, cholesky, qr
from scipy.linalg.lapack import dtrtri
from sklearn.utils.validation import validate_data

from .._core.arrays import Matrix, Vector
from .._core.files import is_dataset
from .._core.shards import Sums, here
from .._core.threads import one_blas_thread
from .._core.validation import InputError, refuse_unreal
from ..data.encoding import TableEncoder, needs_encoding

# ------------------------------------------------------------------------------------------------
# Features that do not fit into memory: row after row in a file without a name.
#
# The system forgets such a file with the process that made it, however that ends.


class Scratch:
    """An (n, d) table of floats in a temporary file: written once, then read in order.

    Parameters
    ----------
    n_rows : int
    names : sequence of str
        Of the columns.
    dtype : float32 or float64
    folder : path, optional
        Where the file is; by default where temporary files are.
    """

    def __init__(self, n_rows: int, names: Any, dtype: Any, folder: Any = None):
        self.names = tuple(names)
        self.shape = (n_rows, len(self.names))
        self.dtype = np.dtype(dtype)
        self._width = self.dtype.itemsize * self.shape[1]
        # Told how far a pass over the rows has come.
        self.watch: Callable[[str], None] | None = None
        self._passes = 0
        self._folder = Path(tempfile.gettempdir() if folder is None else folder)
        if not self._folder.is_dir():
            raise ValueError(f"`scratch` must be a folder that exists, got {str(folder)!r}.")
        free, needed = shutil.disk_usage(self._folder).free, n_rows * self._width
        if free < needed:
            raise OSError(errno.ENOSPC, self._full(f"{free / 1e9:.1f} GB are free"))
        self._file: Any = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115

    def _full(self, what: str) -> str:
        needed = self.shape[0] * self._width / 1e9
        return (
            f"the features take {needed:.1f} GB on disk, and in {str(self._folder)!r} {what}. "
            "Hint: scratch=... names another folder; fewer features take less"
        )

    def append(self, block: NDArray[Any]) -> None:
        """Write the next rows."""
        try:
            self._file.write(np.ascontiguousarray(block, dtype=self.dtype))
            self._file.flush()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise OSError(error.errno, self._full("there is no more room")) from error
            raise

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Rows of a slice, or of row numbers."""
        return np.array(np.memmap(self._file, self.dtype, "r", shape=self.shape)[rows])

    def pieces(self, n_rows: int) -> Iterator[tuple[slice, NDArray[Any]]]:
        """All rows in order, so many at a time; each piece is good until the next."""
        n, width = self.shape
        buffer = np.empty((n_rows, width), self.dtype)
        self._passes += 1
        for start in range(0, n, n_rows):
            if self.watch is not None:
                self.watch(f"pass {self._passes} over the rows, {start / n:.0%}")
            piece = buffer[: n - start]
            self._file.seek(start * self._width)
            self._file.readinto(piece)
            yield slice(start, start + len(piece)), piece

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()


def is_source(X: Any) -> bool:
    """Whether X names a table that is read from where it is."""
    if isinstance(X, str | PathLike):
        return True
    if isinstance(X, list | tuple):
        return len(X) > 0 and all(isinstance(path, str | PathLike) for path in X)
    return is_dataset(X)


BLOCK_BYTES = 2**21
# Entries from which a product with the matrix gains from a second thread.
THREADED_SIZE = 4_000_000


class FeatureMatrix:
    """X (n, d), with optional extra dense columns E (n, e): the matrix [X, E]."""

    def __init__(self, X: Any, extra: NDArray[np.float64] | None = None):
        self.X = X
        self.extra = extra
        self.n = X.shape[0]
        self.sums = here()
        # Rows of all workers, where X is one shard of many.
        self.total = self.sums.total(self.n)
        self.d = X.shape[1] + (0 if extra is None else extra.shape[1])
        self._rows = max(256, BLOCK_BYTES // (8 * max(self.d, 1)))
        # Relative rounding of the centered second moments: sparse columns cannot be shifted first.
        self.rounding = 1e-14 if sparse.issparse(X) and extra is None else 1e-26
        self._sparse = sparse.issparse(X)
        self._direct = isinstance(X, np.ndarray) and X.dtype == np.float64

    def own_rows(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Numbers of the rows here, from numbers among those of all workers."""
        rows = rows - self.sums.first_row(self.n)
        return rows[(rows >= 0) & (rows < self.n)]

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

    def backward_with_sum(self, r: Vector) -> tuple[Vector, float]:
        """[X, E]ᵀ·r and Σr."""
        if self._direct or self._sparse:
            out = np.asarray(self.X.T @ r, dtype=np.float64)
        else:
            out = np.zeros(self.X.shape[1])
            for rows, block in self._pieces():
                out += block.astype(np.float64, copy=False).T @ r[rows]
        if self.extra is not None:
            out = np.concatenate([out, self.extra.T @ r])
        out, total = self.sums.add(out, float(r.sum()))
        return out, total

    def take(self, rows: NDArray[np.intp]) -> FeatureMatrix:
        """Some of the rows, copied."""
        return FeatureMatrix(self.X[rows], None if self.extra is None else self.extra[rows])

    def check_squares(self, squares: Vector) -> None:
        """Refuse columns whose mean square is beyond the largest float."""
        bad = np.flatnonzero(~np.isfinite(squares))
        if len(bad):
            sizes = (np.abs(block[:, bad[0]]).max() for _, block in self.blocks())
            largest = self.sums.largest(float(max(sizes, default=0.0)))
            raise InputError(
                "X", f"be small enough to square, got values up to {largest:.1e} in column "
                f"{bad[0]}", hint="divide it by a constant.",
            )  # fmt: skip

    def rotated(
        self, weight: Vector | None, center: bool, n_kept: int = 0
    ) -> tuple[FeatureMatrix, Matrix, Vector]:
        """Z (n, m), Q (d, m) with orthonormal columns and the means: [X, E] − mean = Z Qᵀ.

        The last `n_kept` columns are in Z as they are, for penalties of their own.

        Where d > n. A penalty on ‖θ‖² leaves θ no part outside the span of the rows, so θ = Qw
        with ‖θ‖ = ‖w‖: a problem in w with the design Z. By the QR factors of the transpose:
        X Xᵀ would lose half of the digits.
        """
        self.sums.refuse("A model with more columns than rows", "fit it in one process.")
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

    def checked_moments(
        self, y: Vector, weight: Vector | None, center: bool
    ) -> tuple[Vector, Matrix, Vector]:
        """As `moments`, with those of constant columns exactly zero; infinite ones are refused."""
        with np.errstate(over="ignore", invalid="ignore"):
            mean, gram, cross = self.moments(y, weight, center)
            self.check_squares(np.diag(gram))
            # A spread at the level of rounding in the column is a constant.
            constant = np.diag(gram) <= self.rounding * mean**2
        gram[constant] = gram[:, constant] = 0.0
        cross[constant] = 0.0
        return mean, gram, cross

    def moments(
        self, y: Vector, weight: Vector | None, center: bool
    ) -> tuple[Vector, Matrix, Vector]:
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
                        shift = _rough_mean(block, self.sums)
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
                shift = _rough_mean(np.zeros((0, self.d)), self.sums)
        n = self.total
        top_y = float(y.sum() if weight is None else weight @ y)
        mean, gram, cross, top_y = self.sums.add(mean, gram, cross, top_y)
        mean, gram, cross = mean / n, gram / n, cross / n
        if center:
            gram -= np.outer(mean, mean)
            cross -= mean * (top_y / n)
        return mean + shift, gram, cross


def _rough_mean(block: NDArray[np.float64], sums: Sums) -> Vector:
    """Column means of a first block, or of those of all workers."""
    out, count = sums.add(np.ones(len(block)) @ block, float(len(block)))
    return out / count


def whiten(gram: Matrix, penalty: Matrix) -> Matrix:
    """W with W Wᵀ = C⁻¹, C = gram + penalty; with W Wᵀ = C⁺ where C is singular.

    C is the (half) Hessian of a loss with its penalty. In the coordinates θ = θ₀ + W v its
    quadratic is ‖v‖², so that a solver starts from the true curvature.
    """
    c = gram + penalty
    size = np.diag(c)
    try:
        factor = cholesky(c, lower=True)
        # What a column adds to those before it, as a share of itself: units do not matter.
        if (np.diag(factor) ** 2 > 1e-10 * size).all():
            return np.asarray(dtrtri(factor, lower=1)[0].T)
    except LinAlgError:
        pass
    # Constant or repeated columns, or n < d, without a penalty: keep the directions that X spans,
    # again with all columns brought to the same size first.
    shrink = 1.0 / np.sqrt(np.where(size > 0, size, 1.0))
    values, vectors = np.linalg.eigh(c * shrink * shrink[:, None])
    vectors = shrink[:, None] * vectors
    keep = values > max(1e-12, len(c) * np.finfo(float).eps) * max(values.max(initial=0.0), 1e-300)
    span = vectors[:, keep] / np.sqrt(values[keep])
    # Of all solutions the one of least norm: nothing along the directions in which X is zero.
    null = np.linalg.qr(vectors[:, ~keep])[0]
    return span - null @ (null.T @ span)


# ------------------------------------------------------------------------------------------------
# Tables as people have them, for models of numbers: text and gaps go through a TableEncoder.


class ReadsTables:
    """X as numbers: as it is, or by an encoder where a frame holds categories or missing values.

    Attributes
    ----------
    encoder_ : TableEncoder or None
        Set by `fit`: how a frame that is not all numbers became the columns of `coef_`.
    """

    encoder_: TableEncoder | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        return tags

    def _read_training(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Checked X and y; sets `encoder_`, `n_features_in_` and `feature_names_in_`."""
        self.encoder_ = None
        if isinstance(X, Scratch):  # checked as it was written
            self.n_features_in_ = X.shape[1]
            self.feature_names_in_ = np.array(X.names, dtype=object)
            return X, y
        refuse_unreal(y=y)
        if needs_encoding(X):
            here().refuse(
                "A table of text, categories or missing values", "make numbers of them first, by "
                "evenhand.TableEncoder fitted on a sample of the rows.",
            )  # fmt: skip
            self.encoder_ = TableEncoder().fit(X)
            X = self.encoder_.transform(X)
        refuse_unreal(X=X)
        try:
            X, y = validate_data(self, X, y, y_numeric=True, **self._accepts())
        except OverflowError as error:
            raise InputError(
                "X", f"hold numbers that floats can, and so must `y`: {error}"
            ) from None
        if self.encoder_ is not None:
            # Of the table, as other estimators have it, and not of the columns it becomes.
            self.n_features_in_ = self.encoder_.n_features_in_
            self.feature_names_in_ = self.encoder_.feature_names_in_
        return X, y

    def _read_features(self, X: Any) -> Any:
        """Checked X of new rows."""
        if self.encoder_ is not None:
            return self.encoder_.transform(X)
        refuse_unreal(X=X)
        return validate_data(self, X, reset=False, **self._accepts())

    def _accepts(self) -> dict[str, Any]:
        return {
            "accept_sparse": ["csr", "csc"],
            "dtype": [np.float64, np.float32],
            # A shard may have no rows.
            "ensure_min_samples": 0 if here().is_shard else 1,
        }
