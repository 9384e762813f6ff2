"""Membership probabilities in place of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .validation import as_floats, read_native


@dataclass(frozen=True)
class Proxy:
    """Membership probabilities, where the group itself is not recorded.

    Parameters
    ----------
    probabilities : (n, K) array or frame
        P(A = k) for each row, nonnegative, each row summing to one. A row that holds a missing or
        masked value is a row whose group is not known. With exactly two `classes` a 1-D array is
        read as the probability of the second one.
    classes : sequence of length K, optional
        The groups. Column names of a frame are used when left out.

    Notes
    -----
    Imputed membership (surname and address, say) measures *the imputed group*: information about
    the true group that the proxy does not carry is not seen.
    """

    probabilities: Any
    classes: Sequence[Any] | None = None
    _table: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _labels: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        labels: Sequence[Any] | None = self.classes
        frame = read_native(self.probabilities, "probabilities")
        if isinstance(frame, nw.DataFrame):
            labels = frame.columns if labels is None else labels
            table = frame.to_numpy()
        else:
            table = np.asarray(self.probabilities)
        try:
            table = as_floats(table)
        except (TypeError, ValueError):
            raise ValueError(
                "`probabilities` of a Proxy must be numbers, got an array of dtype "
                f"{table.dtype}. Hint: for known groups pass the labels themselves."
            ) from None
        if isinstance(self.probabilities, np.ma.MaskedArray):
            table[np.ma.getmaskarray(self.probabilities)] = np.nan
        if table.ndim == 1 and labels is not None and len(labels) == 2:
            table = np.column_stack([1.0 - table, table])
        if table.ndim != 2:
            raise ValueError(
                "`probabilities` of a Proxy must be 2-D, one column per class, got shape "
                f"{table.shape}."
            )
        if labels is None:
            labels = range(table.shape[1])
        if len(labels) != table.shape[1]:
            raise ValueError(
                f"`classes` of a Proxy must name every column of `probabilities`: got "
                f"{len(labels)} classes for {table.shape[1]} columns."
            )
        if len(set(labels)) != len(labels):
            raise ValueError(f"`classes` of a Proxy must be distinct, got {list(labels)!r}.")
        known = ~np.isnan(table).any(axis=1)
        rows = table[known]
        off = np.abs(rows.sum(axis=1) - 1.0) > 1e-3
        negative = (rows < -1e-9).any(axis=1) | ~np.isfinite(rows).all(axis=1)
        if negative.any() or off.any():
            bad = int(np.flatnonzero(known)[np.flatnonzero(negative | off)[0]])
            raise ValueError(
                "`probabilities` of a Proxy must be nonnegative and sum to 1 in each row; row "
                f"{bad} is {table[bad].tolist()}. Hint: use NaN in a row whose group is unknown."
            )
        rows = np.clip(rows, 0.0, None)
        table[known] = rows / rows.sum(axis=1, keepdims=True)
        object.__setattr__(self, "_table", table)
        object.__setattr__(self, "_labels", tuple(labels))

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, rows: Any) -> Proxy:
        """Rows of the proxy, so that cross-validation can split it."""
        return Proxy(self._table[rows], self._labels)

    # scikit-learn's splitter takes `shape`, `__len__` and integer indexing for an array.
    @property
    def shape(self) -> tuple[int, int]:
        return self._table.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        # Without this NumPy would take `__getitem__` for a sequence of proxies without end.
        return np.array(self._table, dtype=dtype)

    def _find(self) -> tuple[NDArray[np.float64], tuple[Any, ...]]:
        return self._table, self._labels
