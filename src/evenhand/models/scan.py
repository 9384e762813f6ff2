"""One reading of a table beyond memory: features to a scratch file, single columns to memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..groups.coded import Labels
from ..groups.paths import TableError, arrow_kind
from ..groups.progress import progress
from ..groups.validation import quote
from .scratch import Scratch
from .source import Source, open_source

Vector = NDArray[np.float64]
# Arguments of `fit` that may name several columns.
SEVERAL = ("sensitive_features", "controls")
# Rows of a batch that are turned from columns into rows at a time, within the cache.
TURNED = 4_096


@dataclass(frozen=True)
class Columns:
    """Columns of a source by what they are for.

    Attributes
    ----------
    features : tuple of str
    given : mapping
        Name of an argument → names of its columns.
    """

    features: tuple[str, ...]
    given: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> list[str]:
        """All of them, each once."""
        others = [name for names in self.given.values() for name in names]
        return list(dict.fromkeys([*self.features, *others]))

    @classmethod
    def read(cls, source: Source, features: Any, given: Mapping[str, Any]) -> Columns:
        """Names as users give them, checked; without `features` all columns that are left."""
        found = {
            argument: _names(source, argument, value)
            for argument, value in given.items()
            if value is not None
        }
        taken = {name for names in found.values() for name in names}
        if features is None:
            names = tuple(name for name in source.kinds if name not in taken)
            if not names:
                raise ValueError("`X` must have a column besides those with names, found none.")
        else:
            several = (features,) if isinstance(features, str) else tuple(features)
            names = tuple(source.resolve(name, "features") for name in several)
            if not names or len(set(names)) < len(names):
                raise ValueError(
                    f"`features` must be names of different columns, got {list(names)!r}."
                )
        target = found.get("y", ())
        if set(target) & set(names):
            raise ValueError(f"`features` must not hold the target {quote(target[0])}.")
        for name in names:
            if not _is_number(source.kinds[name]):
                raise TableError(
                    f"Column {quote(name)} must hold numbers to be a feature, and holds "
                    f"{arrow_kind(source.kinds[name])}. Hint: name the columns to use in "
                    "features=[...]; categories become numbers where the files are written, one "
                    "column for each level."
                )
        columns = cls(names, found)
        source.check(columns.names)
        for argument, several in found.items():
            if argument in SEVERAL:
                continue
            for name in several:
                if not _is_number(source.kinds[name]):
                    raise TableError(
                        f"`{argument}` must name a column of numbers, and {quote(name)} holds "
                        f"{arrow_kind(source.kinds[name])}."
                    )
        return columns


def _names(source: Source, argument: str, value: Any) -> tuple[str, ...]:
    if argument in SEVERAL and isinstance(value, list | tuple):
        if not value:
            raise ValueError(f"`{argument}` must name at least one column, got none.")
        return tuple(source.resolve(name, argument) for name in value)
    return (source.resolve(value, argument),)


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return arrow_kind(kind) == "numbers" or pa.types.is_boolean(kind)


@contextmanager
def scanned(X: Any, features: Any, folder: Any, given: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments of a fit in memory, but for the features, which are in a `Scratch` until the
    end.

    Parameters
    ----------
    X : path, list of paths or Arrow dataset
    features : sequence of str or None
    folder : path or None
        Of the scratch file.
    given : mapping
        Name of an argument → name of its column, a list of names, or None.
    """
    import pyarrow as pa

    source = open_source(X)
    columns = Columns.read(source, features, given)
    single = source.all_are(columns.features, pa.float32())
    dtype = np.float32 if single else np.float64
    with Scratch(source.n_rows, columns.features, dtype, folder) as scratch:
        yield _read(source, columns, scratch)


def _read(source: Source, columns: Columns, scratch: Scratch) -> dict[str, Any]:
    n, given = source.n_rows, columns.given
    vectors = {argument: np.empty(n) for argument in given if argument not in SEVERAL}
    groups = Labels(n, given["sensitive_features"]) if "sensitive_features" in given else None
    controls: dict[str, Any] = {}
    for name in given.get("controls", ()):
        number = _is_number(source.kinds[name])
        controls[name] = np.empty(n) if number else Labels(n, (name,))
    at = 0
    with progress(n, "reading rows") as advance:
        for where, start, batch in source.batches(columns.names):
            place = Place(where, start)
            block = to_rows(batch, columns.features, scratch.dtype, place)
            rows = slice(at, at + len(block))
            scratch.append(block)
            for argument, vector in vectors.items():
                vector[rows] = numbers(batch[given[argument][0]], given[argument][0], place)
            if groups is not None:
                groups.add([batch[name] for name in groups.names])
            for name, column in controls.items():
                if isinstance(column, Labels):
                    column.add([batch[name]])
                else:
                    column[rows] = numbers(batch[name], name, None)
            at += len(block)
            advance(len(block))
    out: dict[str, Any] = {"X": scratch, **vectors}
    if groups is not None:
        out["sensitive_features"] = groups.coded()
    if controls:
        out["controls"] = {
            name: column.values() if isinstance(column, Labels) else column
            for name, column in controls.items()
        }
    return out


@dataclass(frozen=True)
class Place:
    """Where rows are, for messages."""

    part: str
    start: int

    def refuse(self, name: str, missing: NDArray[np.bool_]) -> None:
        row = self.start + int(missing.argmax())
        raise TableError(
            f"Column {quote(name)} must hold finite numbers, and {self.part} has none in row {row} "
            "(counted from 0). Hint: drop such rows or fill them in where the files are written."
        )


def numbers(column: Any, name: str, place: Place | None) -> NDArray[Any]:
    """A column of numbers in its own type; gaps are refused, but for `place` None."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if column.null_count and place is not None:
        place.refuse(name, column.is_null().to_numpy(zero_copy_only=False))
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if place is None:
        return values
    if values.dtype.kind == "f" and not np.isfinite(values.sum(dtype=np.float64)):
        finite = np.isfinite(values)
        if not finite.all():
            place.refuse(name, ~finite)
    return values


def to_rows(batch: Mapping[str, Any], names: Sequence[str], dtype: Any, place: Place) -> Any:
    """Columns of numbers as an (m, d) array."""
    columns = [numbers(batch[name], name, place) for name in names]
    out = np.empty((len(columns[0]), len(columns)), dtype)
    for start in range(0, len(out), TURNED):
        rows = slice(start, start + TURNED)
        for j, column in enumerate(columns):
            out[rows, j] = column[rows]
    return out


def read_columns(X: Any, given: Mapping[str, Any]) -> dict[str, Vector]:
    """Columns of numbers by argument."""
    source = open_source(X)
    named = {
        argument: source.resolve(name, argument)
        for argument, name in given.items()
        if name is not None
    }
    source.check([*named.values()])
    out = {argument: np.empty(source.n_rows) for argument in named}
    at = 0
    for where, start, batch in source.batches([*named.values()]):
        size = len(next(iter(batch.values())))
        for argument, name in named.items():
            out[argument][at : at + size] = numbers(batch[name], name, Place(where, start))
        at += size
    return out


def predicted(
    X: Any, features: Sequence[str], dtype: Any, given: Mapping[str, Any]
) -> Iterator[tuple[NDArray[Any], dict[str, Any]]]:
    """Rows to predict, batch by batch, and the other columns by argument."""
    source = open_source(X)
    columns = Columns.read(source, features, given)
    with progress(source.n_rows, "predicting rows") as advance:
        for where, start, batch in source.batches(columns.names):
            place = Place(where, start)
            block = to_rows(batch, columns.features, dtype, place)
            found: dict[str, Any] = {}
            for argument, names in columns.given.items():
                if argument in SEVERAL:
                    labels = Labels(len(block), names)
                    labels.add([batch[name] for name in names])
                    found[argument] = labels.coded()
                else:
                    found[argument] = numbers(batch[names[0]], names[0], place)
            yield block, found
            advance(len(block))
