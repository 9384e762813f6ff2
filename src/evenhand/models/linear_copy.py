"""Numbers for a linear model from a table as a booster takes it: text, categories and gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

from ..groups.encoding import TableEncoder


@dataclass(frozen=True)
class LinearCopy:
    """A fitted map from a table to the standardized columns of a linear model.

    Attributes
    ----------
    encoder : TableEncoder or None
        For tables and arrays.
    scale : (d,) array or None
        For a sparse matrix, whose columns are divided by their spread and not centered.
    """

    encoder: TableEncoder | None
    scale: NDArray[np.float64] | None

    @classmethod
    def fit(cls, X: Any) -> LinearCopy:
        """Decide what becomes of each column of the training rows."""
        if not sparse.issparse(X):
            return cls(TableEncoder().fit(X), None)
        rows = check_array(X, accept_sparse="csr", dtype=np.float64)
        mean = np.asarray(rows.mean(axis=0)).ravel()
        square = np.asarray(rows.multiply(rows).mean(axis=0)).ravel()
        spread = np.sqrt(np.maximum(square - mean**2, 0.0))
        return cls(None, np.where(spread > 1e-7 * np.abs(mean), spread, 1.0))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns made."""
        if self.encoder is not None:
            return tuple(map(str, self.encoder.get_feature_names_out()))
        assert self.scale is not None
        return tuple(f"x{j}" for j in range(len(self.scale)))

    def transform(self, X: Any) -> Any:
        """(n, m) float64 array, or CSR matrix of a sparse one."""
        if self.encoder is not None:
            return self.encoder.transform(X.toarray() if sparse.issparse(X) else X)
        assert self.scale is not None
        rows = check_array(X, accept_sparse="csr", dtype=np.float64)
        if rows.shape[1] != len(self.scale):
            raise ValueError(
                f"`X` must have {len(self.scale)} columns, as it had in fit; got {rows.shape[1]}."
            )
        return sparse.csr_array(sparse.csr_array(rows).multiply(1.0 / self.scale))
