"""Numbers for a linear model from a table as a booster takes it: text, categories and gaps.

Numbers are in standard deviations from their mean, a gap being the median and a column of its own;
a category is one column a level, "missing" among them. The booster still sees the table itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array

Vector = NDArray[np.float64]
# A level of fewer rows cannot be told from noise, and one of many more levels than this is a name.
MIN_LEVEL_ROWS = 10
MAX_LEVELS = 40


@dataclass(frozen=True)
class _Number:
    """(x − center) / scale, with `fill` and an indicator where x is missing."""

    name: str
    fill: float
    center: float
    scale: float
    missing: bool

    @classmethod
    def fit(cls, name: str, values: Vector) -> _Number | None:
        gap = np.isnan(values)
        if gap.all():
            return None
        fill = float(np.median(values[~gap])) if gap.any() else 0.0
        filled = np.where(gap, fill, values)
        center, spread = float(filled.mean()), float(filled.std())
        constant = spread <= 1e-13 * abs(center)
        if constant and not gap.any():
            return None
        return cls(name, fill, center, 1.0 if constant else spread, bool(gap.any()))

    @property
    def names(self) -> list[str]:
        return [self.name, *([f"{self.name}=(missing)"] if self.missing else [])]

    def columns(self, values: Any) -> list[Vector]:
        numbers = _numbers(values, self.name)
        if numbers is None:
            raise ValueError(
                f"`X` must hold numbers in column {self.name!r}, as it did in fit; got text."
            )
        gap = np.isnan(numbers)
        out = [(np.where(gap, self.fill, numbers) - self.center) / self.scale]
        return [*out, gap.astype(np.float64)] if self.missing else out


@dataclass(frozen=True)
class _Category:
    """One column for each level but the first; rare ones share one, and so do missing ones."""

    name: str
    levels: tuple[str, ...]
    other: bool
    missing: bool

    @classmethod
    def fit(cls, name: str, text: NDArray[Any]) -> _Category | None:
        gap = np.array([value is None for value in text])
        found, counts = np.unique(text[~gap].astype(str), return_counts=True)
        if len(found) > max(MAX_LEVELS, 0.5 * len(text)) or len(found) + gap.any() < 2:
            return None
        order = np.lexsort((found, -counts))
        kept = [k for k in order if counts[k] >= min(MIN_LEVEL_ROWS, counts.max())][:MAX_LEVELS]
        levels = tuple(str(found[k]) for k in kept)
        return cls(name, levels, len(kept) < len(found), bool(gap.any()))

    @property
    def names(self) -> list[str]:
        more = ["(other)"] * self.other + ["(missing)"] * self.missing
        return [f"{self.name}={level}" for level in (*self.levels[1:], *more)]

    def columns(self, values: Any) -> list[Vector]:
        text = _texts(values)
        gap = np.array([value is None for value in text])
        hits = [text == level for level in self.levels]
        out = hits[1:]
        if self.other:
            out.append(~np.any([gap, *hits], axis=0))
        if self.missing:
            out.append(gap)
        return [hit.astype(np.float64) for hit in out]


@dataclass(frozen=True)
class LinearCopy:
    """A fitted map from a table to the columns of a linear model.

    Attributes
    ----------
    parts : tuple
        What becomes of each column; None where it is left out. Empty for a sparse matrix.
    scale : (d,) array or None
        Of the columns of a sparse matrix, which are not centered.
    names : tuple of str
        Of the columns made.
    """

    parts: tuple[Any, ...]
    scale: Vector | None
    names: tuple[str, ...]

    @classmethod
    def fit(cls, X: Any) -> LinearCopy:
        """Decide what becomes of each column of the training rows."""
        if sparse.issparse(X):
            rows = check_array(X, accept_sparse="csr", dtype=np.float64)
            mean = np.asarray(rows.mean(axis=0)).ravel()
            square = np.asarray(rows.multiply(rows).mean(axis=0)).ravel()
            spread = np.sqrt(np.maximum(square - mean**2, 0.0))
            scale = np.where(spread > 1e-13 * np.abs(mean), spread, 1.0)
            return cls((), scale, tuple(f"x{j}" for j in range(rows.shape[1])))
        parts: list[Any] = []
        for name, values in _columns(X):
            numbers = _numbers(values, name)
            if numbers is None:
                parts.append(_Category.fit(name, _texts(values)))
            else:
                parts.append(_Number.fit(name, numbers))
        names = tuple(name for part in parts if part is not None for name in part.names)
        return cls(tuple(parts), None, names)

    def transform(self, X: Any) -> Any:
        """(n, m) float64 array, or CSR matrix of a sparse one."""
        if self.scale is not None:
            rows = check_array(X, accept_sparse="csr", dtype=np.float64)
            return sparse.csr_array(sparse.csr_array(rows).multiply(1.0 / self.scale))
        columns = _columns(X)
        if len(columns) != len(self.parts):
            raise ValueError(
                f"`X` must have {len(self.parts)} columns, as it had in fit; got {len(columns)}."
            )
        out = [
            made
            for part, (_, values) in zip(self.parts, columns, strict=True)
            if part is not None
            for made in part.columns(values)
        ]
        return np.column_stack(out) if out else np.empty((len(X), 0))


def _columns(X: Any) -> list[tuple[str, Any]]:
    """Names and values of the columns: series of a frame, or columns of an array."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return [(str(name), frame[name]) for name in frame.columns]
    table = X if isinstance(X, np.ndarray) else np.asarray(X)
    if table.ndim != 2:
        raise ValueError(f"`X` must be a table with rows and columns, got shape {table.shape}.")
    return [(f"x{j}", table[:, j]) for j in range(table.shape[1])]


def _numbers(values: Any, name: str) -> Vector | None:
    """Floats, NaN where missing, of a column that holds numbers or dates; None for text."""
    if isinstance(values, nw.Series):
        if values.dtype.is_temporal() and values.dtype != nw.Duration:
            values = values.dt.timestamp("ms")
        elif not (values.dtype.is_numeric() or values.dtype == nw.Boolean):
            # A column of objects may hold numbers and gaps alone.
            return _numbers(values.to_numpy(), name) if values.dtype == nw.Object else None
        numbers = np.array([np.nan if v is None else float(v) for v in values.to_list()])
    else:
        values = np.asarray(values)
        if values.dtype.kind in "US":
            return None
        if values.dtype.kind == "O" and any(isinstance(v, str | bytes) for v in values):
            return None
        try:
            numbers = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        except (TypeError, ValueError):
            return None
    if np.isinf(numbers).any():
        raise ValueError(
            f"`X` must be finite: column {name!r} is infinite in row "
            f"{int(np.isinf(numbers).argmax())}. Hint: a missing value is NaN."
        )
    return numbers


def _texts(values: Any) -> NDArray[Any]:
    """The column as text, None where missing."""
    listed = values.to_list() if isinstance(values, nw.Series) else list(values)
    # NaN is the one value that does not equal itself.
    return np.array([None if v is None or v != v else str(v) for v in listed], dtype=object)
