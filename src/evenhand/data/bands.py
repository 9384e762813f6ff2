"""Measurements → a few groups: ages, incomes and dates cut into bands.

Not named `bands`: a submodule of that name would hide the function `evenhand.bands`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Array, Rows
from .._core.validation import InputError, read_native
from .columns import MOMENT, chunked, missing_rows, read_values, split_columns

_OWNER = "of a Continuous"


def bands(values: Any, edges: Sequence[Any], *, labels: Sequence[str] | None = None) -> Any:
    """Cut a measurement into bands: band k holds edges[k − 1] ≤ value < edges[k].

    The first band holds everything below the first edge, the last everything from the last edge on.

    Parameters
    ----------
    values : (n,) array or series
        Numbers or dates. Missing values stay missing.
    edges : sequence
        Where bands begin, in rising order: numbers, or dates (also as text, "1990-01-01").
    labels : sequence of str, optional
        Names of the bands, one more than there are edges. Otherwise they are made from the edges:
        "under 25", "25 to 64", "65 and over" for whole numbers; "under 2.5", "2.5 to under 6.5",
        "6.5 and over" for others. Give them where a column may be whole in one table and not in
        another, as groups are told apart by name.

    Returns
    -------
    series or array
        Ordered categories in the library the values came in, with their index; for NumPy arrays and
        lists an object array of text with None where a value is missing.

    See Also
    --------
    evenhand.Continuous
    evenhand.audit

    Examples
    --------
    >>> import evenhand as eh
    >>> eh.bands([19, 25, 64, 80, None], [25, 65]).tolist()
    ['under 25', '25 to 64', '25 to 64', '65 and over', None]
    """
    array = measurement(values)
    cut = Bands.make(edges, array, labels)
    names = cut.apply(array)
    native = read_native(chunked(values), "values")
    if isinstance(native, nw.DataFrame):
        (native,) = native.iter_columns()
    return _like(native, names, cut.labels) if isinstance(native, nw.Series) else names


@dataclass(frozen=True)
class Bands:
    """Edges and names of bands, as they are kept with a model.

    Attributes
    ----------
    edges : tuple of float, or of str for dates (ISO 8601)
    labels : tuple of str
        One more than edges.
    """

    edges: tuple[float, ...] | tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def dates(self) -> bool:
        return isinstance(self.edges[0], str)

    @classmethod
    def make(cls, edges: Any, values: NDArray[Any], labels: Sequence[str] | None = None) -> Bands:
        """Check the edges against values, which are floats or dates, and name the bands."""
        dates = values.dtype.kind == "M"
        begins = _read_edges(edges, dates)
        if labels is None:
            known = values[~missing_rows(values)]
            whole = not dates and bool((known == np.floor(known)).all())
            labels = _names(begins, whole)
        listed = hasattr(labels, "__iter__") and hasattr(labels, "__len__")
        if (
            isinstance(labels, str)
            or not listed
            or not all(isinstance(name, str) for name in labels)
        ):
            raise ValueError(f"`labels` must be texts, got {labels!r}.")
        if len(labels) != len(begins) + 1 or len(set(labels)) != len(labels):
            raise ValueError(
                f"`labels` must be {len(begins) + 1} different names for {len(begins)} edges, got "
                f"{list(labels)!r}."
            )
        return cls(begins, tuple(labels))

    def codes(self, values: NDArray[Any]) -> Rows:
        """Number of the band of each value, −1 where it is missing."""
        if self.dates != (values.dtype.kind == "M"):
            kind = "dates" if self.dates else "numbers"
            raise InputError("values", f"be {kind}, as the edges are", values.dtype)
        edges = np.array(self.edges, dtype=MOMENT if self.dates else np.float64)
        missing = missing_rows(values)
        codes = np.searchsorted(edges, values, side="right")
        codes[missing] = -1
        return codes.astype(np.intp, copy=False)

    def apply(self, values: NDArray[Any]) -> NDArray[np.object_]:
        """Name of the band of each value, None where it is missing."""
        return np.array([*self.labels, None], dtype=object)[self.codes(values)]


def measurement(values: Any) -> NDArray[Any]:
    """Any column of numbers or dates as float64 or datetime64, NaN or NaT where missing."""
    split = split_columns(values, "values", "column")
    if len(split) != 1:
        raise InputError("values", "be one column", len(split))
    ((_, column),) = split
    out = read_values(column, missing_rows(column))
    if out.dtype.kind not in "fM":
        sample = f" such as {out[:1].tolist()[0]!r}" if len(out) else ""
        raise InputError(
            "values", "be numbers or dates to be cut into bands", f"{column.dtype}{sample}",
            "text and booleans are groups already.",
        )  # fmt: skip
    return out


def _read_edges(edges: Any, dates: bool) -> tuple[Any, ...]:
    """Where bands begin: floats, or dates as text."""
    if isinstance(edges, str | bytes) or not hasattr(edges, "__iter__"):
        raise InputError("edges", "be a list of where bands begin", repr(edges))
    listed = list(edges)
    if not listed:
        raise InputError("edges", "hold at least one value", "none")
    try:
        if any(isinstance(e, Real) == dates or isinstance(e, bool) for e in listed):
            raise TypeError
        values = np.array(listed, dtype=MOMENT if dates else np.float64)
        if not np.isfinite(values).all():  # NaT is not finite either
            raise ValueError
    except (TypeError, ValueError):
        kind, few = ("dates", '["1990-01-01", "2000-01-01"]') if dates else ("numbers", "[25, 65]")
        raise InputError(
            "edges", f"be {'' if dates else 'finite '}{kind} for a column of {kind}", repr(edges),
            f"where bands begin, such as {few}.",
        ) from None  # fmt: skip
    if (values[1:] <= values[:-1]).any():
        raise InputError("edges", "rise from one to the next", repr(edges))
    if not dates:
        return tuple(values.tolist())
    days = zip(values.astype("datetime64[D]"), values, strict=True)
    return tuple(str(day if day == value else value) for day, value in days)


def _names(edges: tuple[Any, ...], whole: bool) -> list[str]:
    if isinstance(edges[0], str):
        middle = [f"{a} to before {b}" for a, b in pairwise(edges)]
        return [f"before {edges[0]}", *middle, f"{edges[-1]} and later"]
    text = [str(int(e)) if e.is_integer() else repr(e) for e in edges]
    if whole and all(e.is_integer() for e in edges):
        middle = [
            str(int(a)) if b - a == 1 else f"{int(a)} to {int(b) - 1}" for a, b in pairwise(edges)
        ]
    else:
        middle = [f"{a} to under {b}" for a, b in pairwise(text)]
    return [f"under {text[0]}", *middle, f"{text[-1]} and over"]


def _like(column: nw.Series[Any], names: NDArray[Any], labels: tuple[str, ...]) -> Any:
    """The names as a series of the library that the column is from."""
    if column.implementation.is_pyarrow():
        import pyarrow as pa

        place = {name: k for k, name in enumerate(labels)}
        codes = pa.array([None if name is None else place[name] for name in names], pa.int32())
        return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, pa.array(labels))])
    made = nw.new_series(
        column.name, names.tolist(), nw.Enum(labels), backend=column.implementation
    )
    out: Any = made.to_native()
    if column.implementation.is_pandas_like():
        out.index = column.to_native().index
    return out


# ------------------------------------------------------------------------------------------------
# A measurement as the attribute: age in years rather than a band of ages.


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

    See Also
    --------
    evenhand.bands
    evenhand.audit

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
    _values: Array = field(init=False, repr=False, compare=False)
    _bands: Bands = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.name is not None and not isinstance(self.name, str):
            raise ValueError(f"`name` of a Continuous must be text, got {self.name!r}.")
        if isinstance(self.values, Continuous):
            raise InputError("values", "be a column", "another Continuous", where=_OWNER)
        column, name = _column(self.values)
        if self.name is None and name:
            object.__setattr__(self, "name", name)
        dates = column.dtype.kind == "M"
        missing = missing_rows(column)
        array = (column.astype(np.int64) if dates else column).astype(np.float64)
        array[missing] = np.nan
        if np.isinf(array).any():
            raise InputError(
                "values", "be finite or missing", f"{np.isinf(array).sum()} infinite ones",
                "set them to NaN if they mean that the value is not known.", _OWNER,
            )  # fmt: skip
        distinct, counts = np.unique(array[~missing], return_counts=True)
        if len(distinct) < LEAST_DISTINCT:
            raise InputError(
                "values", f"hold at least {LEAST_DISTINCT} distinct values", len(distinct),
                "pass so few as categories, without Continuous, or cut them with evenhand.bands.",
                _OWNER,
            )  # fmt: skip
        edges = _cuts(distinct, counts)
        object.__setattr__(self, "_values", array)
        bands = Bands(tuple(edges.tolist()), _name_bands(distinct, edges, dates))
        object.__setattr__(self, "_bands", bands)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: Any) -> Continuous:
        """Some of the rows with the bands of all, so that folds are about the same groups."""
        part = object.__new__(Continuous)
        taken = np.atleast_1d(self._values[rows])
        part.__dict__.update(values=taken, name=self.name, _values=taken, _bands=self._bands)
        return part

    # scikit-learn's splitter takes `shape`, `__len__` and integer indexing for an array.
    @property
    def shape(self) -> tuple[int]:
        return self._values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._values, dtype=dtype)

    def codes(self) -> Rows:
        """Number of the band of each row, −1 where the value is missing."""
        return self._bands.codes(self._values)

    def banded(self) -> NDArray[np.object_]:
        """Name of the band of each row, None where the value is missing."""
        return self._bands.apply(self._values)


def _column(values: Any) -> tuple[NDArray[Any], str]:
    split = split_columns(values, "values", "column")
    if len(split) != 1:
        raise InputError(
            "values", "be one column", len(split), "audit one measurement at a time.", _OWNER
        )
    try:
        return measurement(values), split[0][0] or ""
    except InputError:
        kind = getattr(values, "dtype", None) or type(values).__name__
        hint = "text and booleans are groups already; pass them without Continuous."
        if _looks_like_numbers(values):
            hint = "these are numbers written as text; convert them first, such as with float()."
        raise InputError("values", "be numbers or dates", kind, hint, _OWNER) from None


def _looks_like_numbers(values: Any) -> bool:
    """Whether the first entries are text that reads as numbers."""
    first = [v for v in list(values)[:50] if v is not None]
    if not first or not all(isinstance(v, str) for v in first):
        return False
    try:
        return bool([float(v) for v in first])
    except ValueError:
        return False


def _cuts(distinct: Array, counts: Rows) -> Array:
    """Where bands begin: the boundaries between values nearest to equal shares.

    A value that many rows share stays whole, so that there can be fewer bands than asked for.
    """
    share = np.cumsum(counts)[:-1] / counts.sum()
    bands = int(np.clip(counts.sum() // BAND_ROWS, 2, BANDS))
    nearest = [int(np.argmin(np.abs(share - k / bands))) for k in range(1, bands)]
    return distinct[np.unique(nearest) + 1]


def _name_bands(distinct: Array, edges: Array, dates: bool) -> tuple[str, ...]:
    """ "18 to 25": the least and the largest value of each band."""
    starts = np.r_[0, np.searchsorted(distinct, edges)]
    ends = np.r_[starts[1:] - 1, len(distinct) - 1]
    pairs = list(zip(distinct[starts].tolist(), distinct[ends].tolist(), strict=True))
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
