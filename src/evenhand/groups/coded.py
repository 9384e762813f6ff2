"""Categories of tables beyond memory: labels become numbers batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .categories import check_count, sorted_labels
from .paths import TableError
from .validation import quote

# Distinct labels beyond which a column is no attribute of groups, whatever else it holds.
MAX_LABELS = 30_000


@dataclass(frozen=True)
class Coded:
    """Groups as numbers already.

    Attributes
    ----------
    codes : (n,) int array
        −1 where the group is not known.
    labels : list
        Of the codes.
    name : str
        What the attribute is called in tables.
    """

    codes: NDArray[np.int16]
    labels: list[Any]
    name: str

    def __len__(self) -> int:
        return len(self.codes)


class Labels:
    """Columns of categories as numbers, crossed where they are several; −1 where one is missing."""

    def __init__(self, n_rows: int, names: tuple[str, ...]):
        self.names = names
        self._codes = np.empty(n_rows, dtype=np.int16)
        self._at = 0
        self._kinds: list[Any] = []
        # Number of each label by column, and of each crossing of such numbers.
        self._labels: list[dict[Any, int]] = [{} for _ in names]
        self._crossed: dict[tuple[int, ...], int] = {}

    def add(self, columns: Sequence[Any]) -> None:
        """The next rows, a column for each name."""
        self._kinds = self._kinds or [column.type for column in columns]
        coded = np.stack(
            [self._encode(*pair) for pair in zip(columns, self._labels, strict=True)], axis=1
        )
        out = self._codes[self._at : self._at + len(coded)]
        self._at += len(coded)
        if len(columns) == 1:
            out[:] = coded[:, 0]
            return
        known = (coded >= 0).all(axis=1)
        # As one number a row, whose distinct values are few.
        sizes = [1, *(len(labels) for labels in self._labels[:-1])]
        one = coded @ np.cumprod(sizes, dtype=np.int64)
        values, first, inverse = np.unique(one[known], return_index=True, return_inverse=True)
        rows = coded[known][first]
        lookup = [self._crossed.setdefault(tuple(row), len(self._crossed)) for row in rows.tolist()]
        if len(self._crossed) > MAX_LABELS:
            raise self._too_many()
        out[:] = -1
        if len(values):
            out[known] = np.array(lookup, dtype=np.int16)[inverse]

    def _encode(self, column: Any, labels: dict[Any, int]) -> NDArray[np.int64]:
        import pyarrow as pa

        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        lookup = []
        for value in column.dictionary.to_pylist():
            missing = value is None or value != value
            lookup.append(-1 if missing else labels.setdefault(value, len(labels)))
        if len(labels) >= MAX_LABELS:
            raise self._too_many()
        codes = column.indices.cast(pa.int32()).fill_null(len(lookup)).to_numpy()
        return np.array([*lookup, -1], dtype=np.int64)[codes]

    def _too_many(self) -> TableError:
        return TableError(
            f"`sensitive_features` must be categories, and {', '.join(map(quote, self.names))} has "
            f"more than {MAX_LABELS:,} distinct values. Hint: cut a measurement into bands where "
            "the files are written; drop an identifier."
        )

    def coded(self) -> Coded:
        """Groups in the order of their labels."""
        n = len(self._codes)
        labels = [_plain(k, list(v)) for k, v in zip(self._kinds, self._labels, strict=True)]
        for name, kind, several in zip(self.names, self._kinds, labels, strict=True):
            check_count(several, n, _category(kind, several), name)
        crossed: list[Any] = labels[0]
        if len(labels) > 1:
            crossed = [
                tuple(several[k] for several, k in zip(labels, codes, strict=True))
                for codes in self._crossed
            ]
        ordered = sorted_labels(crossed)
        rank = {label: k for k, label in enumerate(ordered)}
        lookup = np.array([*(rank[label] for label in crossed), -1], dtype=np.int16)
        return Coded(lookup[self._codes], ordered, " × ".join(self.names))

    def values(self) -> NDArray[Any]:
        """The values of a single column in every row, None where they are missing."""
        (labels,) = self._labels
        return np.array([*labels, None], dtype=object)[self._codes]


def _plain(kind: Any, labels: list[Any]) -> list[Any]:
    import pyarrow as pa

    if not pa.types.is_floating(kind):
        return labels
    # Integers with gaps are floats in many files.
    return [int(v) if float(v).is_integer() else v for v in labels]


def _category(kind: Any, labels: list[Any]) -> str:
    """What `check_count` takes the labels for; of a dictionary, the categories it declares."""
    import pyarrow as pa

    if pa.types.is_temporal(kind):
        return "date"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "integer" if all(isinstance(v, int) for v in labels) else "float"
    return "text"
