"""Tables in Parquet files or an Arrow dataset, read batch by batch.

Every file is looked at before the first row is read: Arrow fills the gap of a missing column and
casts types that differ without a word.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import Vector
from .._core.files import TableError, arrow_kind, is_text_type, list_files
from .._core.progress import progress
from .._core.validation import quote
from ..data.labels import Labels
from .design import Scratch, is_dataset

# Rows of a batch: some megabytes of twenty columns.
BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Source:
    """The parts of a table, with the same columns.

    Attributes
    ----------
    parts : tuple
        Files, or a dataset.
    kinds : mapping
        Column name to Arrow type, of the first part.
    n_rows : int
    """

    parts: tuple[Any, ...]
    kinds: Mapping[str, Any]
    n_rows: int

    def resolve(self, name: Any, argument: str) -> str:
        """A column's name, if there is such a column."""
        if isinstance(name, str) and name in self.kinds:
            return name
        if not isinstance(name, str):
            raise ValueError(
                f"`{argument}` must be the name of a column where `X` is a path or a dataset, got "
                f"{type(name).__name__}. Hint: arrays go with an `X` in memory."
            )
        shown = ", ".join(quote(n) for n in list(self.kinds)[:30])
        raise TableError(
            f"`{argument}` names {quote(name)}, which {self.parts[0].name} does not have. Its "
            f"columns are {shown}."
        )

    def check(self, names: Sequence[str]) -> None:
        """Refuse files that lack a column, or hold something else in it than the first."""
        first = self.parts[0].name
        for where, kinds in (pair for part in self.parts for pair in part.schemas()):
            for name in names:
                if name not in kinds:
                    raise TableError(
                        f"{where} has no column {quote(name)}, which {first} has. Hint: write it "
                        "anew, or leave it out."
                    )
                mine, theirs = arrow_kind(self.kinds[name]), arrow_kind(kinds[name])
                if mine != theirs:
                    raise TableError(
                        f"Column {quote(name)} must be of one type in all files: it holds {mine} "
                        f"in {first} and {theirs} in {where}. Hint: write one of them anew."
                    )

    def all_are(self, names: Sequence[str], kind: Any) -> bool:
        """Whether columns are of an Arrow type in every file."""
        schemas = (kinds for part in self.parts for _, kinds in part.schemas())
        return all(kinds.get(name) == kind for kinds in schemas for name in names)

    def batches(self, names: Sequence[str]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
        """Part, first row in it, and columns by name, from first row to last."""
        names = list(dict.fromkeys(names))
        for part in self.parts:
            start = 0
            for batch in part.batches(names):
                yield part.name, start, batch
                start += len(next(iter(batch.values())))
            if start != part.n_rows:
                raise TableError(
                    f"{part.name} has {start} rows where {part.n_rows} were counted: it changed "
                    "while it was read."
                )


def open_source(X: Any) -> Source:
    """A table from a path, a pattern, a folder, a list of them, or an Arrow dataset."""
    if find_spec("pyarrow") is None:
        raise ModuleNotFoundError(
            "`X` can be a path or a dataset where pyarrow is installed. Hint: pip install pyarrow."
        )
    parts: tuple[Any, ...]
    if is_dataset(X):
        parts = (_Dataset(X),)
    else:
        paths = X if isinstance(X, list | tuple) else [X]
        files = list_files(paths)
        parts = tuple(_File.open(file) for file in files)
    n_rows = sum(part.n_rows for part in parts)
    if n_rows == 0:
        raise TableError(f"`X` must hold at least one row, and {parts[0].name} has none.")
    return Source(parts, dict(parts[0].schemas()[0][1]), n_rows)


@dataclass(frozen=True)
class _File:
    """One Parquet file; columns that its folders name (``sex=F/``) are part of it."""

    path: str
    kinds: Mapping[str, Any]
    folders: Mapping[str, Any]
    n_rows: int

    @classmethod
    def open(cls, path: str) -> _File:
        import pyarrow as pa

        with _named(path), _opened(path) as file:
            folders = _folders(path)
            kinds = {field.name: field.type for field in file.schema_arrow}
            if len(kinds) < len(file.schema_arrow.names):
                names = file.schema_arrow.names
                twice = next(name for name in names if names.count(name) > 1)
                raise TableError(f"{path!r} has several columns named {quote(twice)}.")
            for name, value in folders.items():
                kinds.setdefault(name, pa.scalar(value).type)
            return cls(path, kinds, folders, file.metadata.num_rows)

    @property
    def name(self) -> str:
        return repr(self.path)

    def schemas(self) -> list[tuple[str, Mapping[str, Any]]]:
        return [(self.name, self.kinds)]

    def batches(self, names: list[str]) -> Iterator[Mapping[str, Any]]:
        import pyarrow as pa

        with _named(self.path):
            there = [name for name in names if name not in self.folders]
            text = [name for name in there if is_text_type(self.kinds[name])]
            # At least one column, or a batch would not say how many rows it has.
            read = there or [next(n for n in self.kinds if n not in self.folders)]
            with _opened(self.path, text) as file:
                for batch in file.iter_batches(BATCH_ROWS, columns=read):
                    columns = {name: batch.column(name) for name in there}
                    for name in names:
                        if name not in columns:
                            columns[name] = pa.repeat(pa.scalar(self.folders[name]), len(batch))
                    yield columns
            _let_go(self.path)


@dataclass(frozen=True)
class _Dataset:
    """A dataset with its own ways of reading, filters among them."""

    dataset: Any

    @property
    def name(self) -> str:
        return "the dataset"

    @cached_property
    def n_rows(self) -> int:
        with _named("the dataset"):
            return int(self.dataset.count_rows())

    def schemas(self) -> list[tuple[str, Mapping[str, Any]]]:
        import pyarrow.dataset as ds

        whole = {field.name: field.type for field in self.dataset.schema}
        out: list[tuple[str, Mapping[str, Any]]] = [(self.name, whole)]
        keys: Any = getattr(ds, "get_partition_keys", lambda _: {})  # not in the oldest pyarrow
        try:
            fragments = list(self.dataset.get_fragments())
        except ValueError:  # Arrow does not name the files of a filtered dataset
            return out
        for fragment in fragments:
            path = getattr(fragment, "path", None)
            if path is None:
                continue
            with _named(path):
                kinds = {field.name: field.type for field in fragment.physical_schema}
                given = keys(fragment.partition_expression)
            out.append((repr(path), {**{n: whole[n] for n in given if n in whole}, **kinds}))
        return out

    def batches(self, names: list[str]) -> Iterator[Mapping[str, Any]]:
        with _named("the dataset"):
            read = self.dataset.to_batches(
                columns=names, batch_size=BATCH_ROWS, batch_readahead=4, fragment_readahead=1
            )
            for batch in read:
                if len(batch):
                    yield {name: batch.column(name) for name in names}


@contextmanager
def _opened(path: str, text: Sequence[str] = ()) -> Iterator[Any]:
    """A Parquet file, with columns of text as dictionaries."""
    from pyarrow import parquet

    if "://" in path:
        from pyarrow import fs

        system, inside = fs.FileSystem.from_uri(path)
        with system.open_input_file(inside) as handle:
            yield parquet.ParquetFile(handle, read_dictionary=list(text))
        return
    # A buffer of its own instead of whole column chunks: a row group may be as long as the file.
    with parquet.ParquetFile(path, read_dictionary=list(text), buffer_size=2**20) as file:
        yield file


def _let_go(path: str) -> None:
    """Tell the system that a file will not be read again: its cache is better kept for others."""
    if "://" in path or not hasattr(os, "posix_fadvise"):
        return
    with Path(path).open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors of Arrow with the name of the file."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise TableError(f"There is no file {path!r} any more.") from error
    except (pa.ArrowException, OSError) as error:
        text = str(error).strip().splitlines()[0]
        raise TableError(f"{path!r} cannot be read as Parquet: {text}") from error


def _folders(path: str) -> dict[str, Any]:
    """Columns in the names of folders, as ``year=2024``."""
    columns: dict[str, Any] = {}
    for part in Path(path).parts[:-1]:
        name, equals, value = part.partition("=")
        if name and equals:
            text = unquote(value)
            missing = text == "__HIVE_DEFAULT_PARTITION__"
            whole = text.isdecimal() and (text == "0" or text[0] != "0")
            columns[unquote(name)] = None if missing else int(text) if whole else text
    return columns


# ------------------------------------------------------------------------------------------------
# One reading of a table beyond memory: features to a scratch file, single columns to memory.


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
        by_argument = {
            argument: _names(source, argument, value)
            for argument, value in given.items()
            if value is not None
        }
        names = cls._features(source, features, by_argument)
        target = by_argument.get("y", ())
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
        columns = cls(names, by_argument)
        source.check(columns.names)
        for argument, several in by_argument.items():
            if argument in SEVERAL:
                continue
            for name in several:
                if not _is_number(source.kinds[name]):
                    raise TableError(
                        f"`{argument}` must name a column of numbers, and {quote(name)} holds "
                        f"{arrow_kind(source.kinds[name])}."
                    )
        return columns

    @staticmethod
    def _features(
        source: Source, features: Any, by_argument: Mapping[str, tuple[str, ...]]
    ) -> tuple[str, ...]:
        if features is None:
            taken = {name for names in by_argument.values() for name in names}
            names = tuple(name for name in source.kinds if name not in taken)
            if not names:
                raise ValueError("`X` must have a column besides those with names, found none.")
            return names
        several = (features,) if isinstance(features, str) else tuple(features)
        names = tuple(source.resolve(name, "features") for name in several)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"`features` must be names of different columns, got {list(names)!r}.")
        return names


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
            handed: dict[str, Any] = {}
            for argument, names in columns.given.items():
                if argument in SEVERAL:
                    labels = Labels(len(block), names)
                    labels.add([batch[name] for name in names])
                    handed[argument] = labels.coded()
                else:
                    handed[argument] = numbers(batch[names[0]], names[0], place)
            yield block, handed
            advance(len(block))
