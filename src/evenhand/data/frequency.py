"""Frequencies: how many people a row of an aggregated table stands for.

A row of frequency f equals f rows. That is not a weight of f: a weight says how much one person
counts, and leaves the number of people as it is.
"""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.dependencies import is_pandas_like_dataframe, is_pandas_like_series
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from .._core.validation import as_floats, check_index, read_native, refuse_masked
from .continuous import Continuous
from .groups import Groups, Proxy

Rows = NDArray[np.intp]

# People that rows may be repeated for. Beyond that the copies take more memory than most machines
# have to spare for them.
MAX_PEOPLE = 5_000_000


def check_frequency(frequency: Any, n_rows: int) -> NDArray[np.int64]:
    """Validate frequencies: whole numbers, none below 0, not all of them 0.

    Parameters
    ----------
    frequency : (n,) array, series or one-column frame
    n_rows : int
        The length it must have.
    """
    native = read_native(frequency, "frequency")
    if isinstance(native, nw.DataFrame | nw.Series):
        frequency = native.to_numpy()
    refuse_masked(frequency, "frequency")
    counts = np.asarray(frequency)
    if counts.ndim == 2 and counts.shape[1] == 1:
        counts = counts[:, 0]
    if counts.ndim != 1:
        raise ValueError(
            f"`frequency` must be 1-D, one whole number per row, got shape {counts.shape}."
        )
    if len(counts) != n_rows:
        raise ValueError(
            f"`frequency` must have one entry per row: got {len(counts)} for {n_rows} rows."
        )
    if counts.dtype.kind not in "iufb":
        try:
            counts = as_floats(counts)
        except (TypeError, ValueError):
            raise ValueError(
                f"`frequency` must be whole numbers, got dtype {counts.dtype}. Hint: the number of "
                "people that each row stands for."
            ) from None
    if not np.isfinite(counts).all():
        raise ValueError("`frequency` must be finite: it holds NaN or infinity.")
    if (counts < 0).any():
        raise ValueError(f"`frequency` must be nonnegative, got {counts.min()}.")
    whole = np.rint(counts)
    if (whole != counts).any():
        bad = counts[np.flatnonzero(whole != counts)[0]]
        raise ValueError(
            f"`frequency` must be whole numbers, got {bad}. Hint: numbers of people go here; what "
            "a person counts for, such as a sampling weight, is `sample_weight`."
        )
    if not whole.any():
        raise ValueError("`frequency` must not be zero in every row.")
    if whole.sum(dtype=np.float64) >= 2.0**53:
        raise ValueError(
            f"`frequency` must add up to fewer than 2^53 people, got {whole.sum():.3g}."
        )
    return whole.astype(np.int64)


def people_of(counts: NDArray[np.int64]) -> Rows:
    """The row of each person, row by row; refused beyond `MAX_PEOPLE`."""
    total = int(counts.sum())
    if total > MAX_PEOPLE:
        raise ValueError(
            f"`frequency` must add up to at most {MAX_PEOPLE:,} people here, where each becomes a "
            f"row of its own, got {total:,}. Hint: evenhand.audit(evenhand.Cells.from_rows(...)) "
            "measures any number of people; a fit can be made on a sample, with frequencies drawn "
            "by numpy.random.Generator.binomial."
        )
    return np.repeat(np.arange(len(counts), dtype=np.intp), counts)


def too_many(frequency: Any) -> bool:
    """Whether there are more people than rows may be repeated for."""
    if frequency is None:
        return False
    return int(check_frequency(frequency, _length(frequency)).sum()) > MAX_PEOPLE


def repeat_rows(frequency: Any, **columns: Any) -> tuple[Any, ...]:
    """Every column with each row repeated as often as its frequency says; as they are for None.

    Parameters
    ----------
    frequency : (n,) array or None
    **columns : Any
        By the names of the arguments, for messages. None and single numbers stay as they are.
    """
    if frequency is None:
        return tuple(columns.values())
    check_index(frequency=frequency, **columns)
    used = {k: v for k, v in columns.items() if v is not None and not _is_single(v)}
    lengths = {name: _length(values) for name, values in used.items()}
    counts = check_frequency(frequency, next(iter(lengths.values())))
    for name, length in lengths.items():
        if length != len(counts):
            raise ValueError(
                f"`{name}` must have one entry per row: got {length} for {len(counts)}."
            )
    rows = people_of(counts)
    return tuple(
        take_rows(v, rows, keep_index=False) if name in used else v for name, v in columns.items()
    )


def _is_single(values: Any) -> bool:
    return isinstance(values, int | float) or (isinstance(values, np.ndarray) and not values.ndim)


def _length(values: Any) -> int:
    if isinstance(values, dict):
        return _length(next(iter(values.values()))) if values else 0
    if isinstance(values, Groups):
        return values.n_rows
    if isinstance(values, Proxy | Continuous):
        return len(values)
    return int(_num_samples(values))


def take_rows(values: Any, rows: Rows, keep_index: bool = True) -> Any:
    """Rows of a column, a table, a sparse matrix or any form of `sensitive_features`.

    `keep_index` is for pandas: labels that are repeated say nothing about where a row belongs.
    """
    if isinstance(values, dict):
        return {name: take_rows(column, rows, keep_index) for name, column in values.items()}
    if isinstance(values, Groups):
        return values.take(rows)
    if isinstance(values, Proxy | Continuous):
        return values[rows]
    if type(values).__module__.startswith("pyarrow"):
        return values.take(rows)
    native = nw.from_native(values, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(native, nw.DataFrame | nw.Series):
        taken = native[rows].to_native()
        if keep_index or not (is_pandas_like_series(taken) or is_pandas_like_dataframe(taken)):
            return taken
        return taken.reset_index(drop=True)
    return _safe_indexing(values, rows)
