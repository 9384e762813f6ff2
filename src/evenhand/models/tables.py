"""Tables as people have them, for models of numbers: text and gaps go through a TableEncoder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from .._kernels import shards
from ..groups.encoding import TableEncoder, needs_encoding
from .scratch import Scratch


class ReadsTables:
    """X as numbers: as it is, or by an encoder where a frame holds categories or missing values.

    Attributes
    ----------
    encoder_ : TableEncoder or None
        Set by `fit`: how a frame that is not all numbers became the columns of `coef_`.
    """

    encoder_: TableEncoder | None = None
    _sparse_formats = ("csr", "csc")

    def _read_training(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Checked X and y; sets `encoder_`, `n_features_in_` and `feature_names_in_`."""
        self.encoder_ = None
        if isinstance(X, Scratch):  # checked as it was written
            self.n_features_in_ = X.shape[1]
            self.feature_names_in_ = np.array(X.names, dtype=object)
            return X, y
        if not needs_encoding(X):
            return validate_data(self, X, y, y_numeric=True, **self._accepts())
        shards.refuse(
            "A table of text, categories or missing values",
            "make numbers of them first, by evenhand.TableEncoder fitted on a sample of the rows.",
        )
        encoder = TableEncoder().fit(X)
        encoded, y = validate_data(self, encoder.transform(X), y, y_numeric=True, **self._accepts())
        self.encoder_ = encoder
        # Of the table, as other estimators have it, and not of the columns it becomes.
        self.n_features_in_ = encoder.n_features_in_
        self.feature_names_in_ = encoder.feature_names_in_
        return encoded, y

    def _read_features(self, X: Any) -> Any:
        """Checked X of new rows."""
        if self.encoder_ is not None:
            return self.encoder_.transform(X)
        return validate_data(self, X, reset=False, **self._accepts())

    def _accepts(self) -> dict[str, Any]:
        return {
            "accept_sparse": list(self._sparse_formats),
            "dtype": [np.float64, np.float32],
            # A shard may have no rows.
            "ensure_min_samples": 0 if shards.active() else 1,
        }
