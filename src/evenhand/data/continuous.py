"""A measurement as the attribute: age in years rather than a band of ages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .._core.validation import read_native
from .bands import measurement

# A measurement with fewer distinct values is a set of ordered categories.
LEAST_DISTINCT = 10
# Bands of about equal size: enough for a term that is trained against, few enough for a table;
# fewer where a band would have fewer rows than this.
BANDS, BAND_ROWS = 8, 10


@dataclass(frozen=True)
class Continuous:
    """An attribute that is a measurement: age, income, a share of a population.

    Independence, separation and sufficiency are then about the measurement itself, in nats and as
    v = 1 − exp(−2·I), which is ρ² for jointly normal variables. Tables by group, and the fairness
    term of models, are by up to eight bands of about equal size.

    Parameters
    ----------
    values : (n,) array or series
        Numbers or dates, with at least ten distinct ones. A missing value means "not known". Only
        their order counts, so that outliers and units do not.
    name : str, optional
        What the attribute is called in tables; that of the series when left out.

    Examples
    --------
    >>> import numpy as np, evenhand as eh
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(18, 80, 1000)
    >>> score = 0.02 * age + rng.normal(size=1000)
    >>> bool(eh.independence(None, score, sensitive_features=eh.Continuous(age, "age")) > 0.05)
    True
    """

    values: Any
    name: str | None = None
    _values: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _edges: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _labels: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise ValueError(f"`name` of a Continuous must be text, got {self.name!r}.")
        if isinstance(self.values, Continuous):
            raise ValueError("`values` of a Continuous must be a column, got another Continuous.")
        column, name = _column(self.values)
        if self.name is None and name:
            object.__setattr__(self, "name", name)
        dates = column.dtype.kind == "M"
        missing = np.isnat(column) if dates else np.isnan(column)
        numbers = column.astype("datetime64[us]").astype(np.int64) if dates else column
        array = np.array(numbers, dtype=np.float64)
        array[missing] = np.nan
        if np.isinf(array).any():
            raise ValueError(
                f"`values` of a Continuous must be finite or missing, got {np.isinf(array).sum()} "
                "infinite ones. Hint: set them to NaN if they mean that the value is not known."
            )
        found, counts = np.unique(array[~missing], return_counts=True)
        if len(found) < LEAST_DISTINCT:
            raise ValueError(
                f"`values` of a Continuous must hold at least {LEAST_DISTINCT} distinct values, "
                f"got {len(found)}. Hint: pass so few as categories, without Continuous, or cut "
                "them with evenhand.bands."
            )
        edges = _cuts(found, counts)
        object.__setattr__(self, "_values", array)
        object.__setattr__(self, "_edges", edges)
        object.__setattr__(self, "_labels", _names(found, edges, dates))

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: Any) -> Continuous:
        """Some of the rows with the bands of all, so that folds are about the same groups."""
        part = object.__new__(Continuous)
        taken = np.atleast_1d(self._values[rows])
        for key, value in {
            "values": taken, "name": self.name, "_values": taken, "_edges": self._edges,
            "_labels": self._labels,
        }.items():  # fmt: skip
            object.__setattr__(part, key, value)
        return part

    # scikit-learn's splitter takes `shape`, `__len__` and integer indexing for an array.
    @property
    def shape(self) -> tuple[int]:
        return self._values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._values, dtype=dtype)

    def codes(self) -> NDArray[np.intp]:
        """Number of the band of each row, −1 where the value is missing."""
        codes = np.searchsorted(self._edges, self._values, side="right")
        codes[np.isnan(self._values)] = -1
        return codes.astype(np.intp, copy=False)

    def banded(self) -> NDArray[np.object_]:
        """Name of the band of each row, None where the value is missing."""
        return np.array([*self._labels, None], dtype=object)[self.codes()]


def _column(values: Any) -> tuple[NDArray[Any], str]:
    native = read_native(values, "values")
    if isinstance(native, nw.DataFrame):
        columns = [*native.iter_columns()]
        if len(columns) != 1:
            raise ValueError(
                f"`values` of a Continuous must be one column, got {len(columns)}. Hint: audit one "
                "measurement at a time."
            )
        native = columns[0]
    name = str(native.name or "") if isinstance(native, nw.Series) else ""
    try:
        return measurement(native if isinstance(native, nw.Series) else values), name
    except ValueError as error:
        if "1-D" in str(error):
            raise
        kind = getattr(values, "dtype", None) or type(values).__name__
        hint = "text and booleans are groups already; pass them without Continuous."
        if _looks_like_numbers(values):
            hint = "these are numbers written as text; convert them first, such as with float()."
        raise ValueError(
            f"`values` of a Continuous must be numbers or dates, got {kind}. Hint: {hint}"
        ) from None


def _looks_like_numbers(values: Any) -> bool:
    """Whether the first entries are text that reads as numbers."""
    first = [v for v in list(values)[:50] if v is not None]
    if not first or not all(isinstance(v, str) for v in first):
        return False
    try:
        return bool([float(v) for v in first])
    except ValueError:
        return False


def _cuts(found: NDArray[np.float64], counts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Where bands begin: the boundaries between values nearest to equal shares.

    A value that many rows share stays whole, so that there can be fewer bands than asked for.
    """
    share = np.cumsum(counts)[:-1] / counts.sum()
    bands = int(np.clip(counts.sum() // BAND_ROWS, 2, BANDS))
    nearest = [int(np.argmin(np.abs(share - k / bands))) for k in range(1, bands)]
    return found[np.unique(nearest) + 1]


def _names(found: NDArray[np.float64], edges: NDArray[np.float64], dates: bool) -> tuple[str, ...]:
    """ "18 to 25": the least and the largest value of each band."""
    starts = np.r_[0, np.searchsorted(found, edges)]
    ends = np.r_[starts[1:] - 1, len(found) - 1]
    pairs = list(zip(found[starts].tolist(), found[ends].tolist(), strict=True))
    for digits in range(3, 18):
        names = tuple(
            f"{low} to {high}" if low != high else low
            for low, high in ((_text(a, digits, dates), _text(b, digits, dates)) for a, b in pairs)
        )
        if len(set(names)) == len(names):
            break
    return names


def _text(value: float, digits: int, dates: bool) -> str:
    if dates:
        moment = np.datetime64(int(value), "us")
        return str(moment.astype("datetime64[D]") if digits < 6 else moment)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.{digits}g}"
