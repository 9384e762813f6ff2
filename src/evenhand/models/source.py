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
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..groups.paths import TableError, arrow_kind, find_files, is_text_type
from ..groups.validation import quote

# Rows of a batch: some megabytes of twenty columns.
BATCH_ROWS = 65_536


def is_source(X: Any) -> bool:
    """Whether X names a table that is read from where it is."""
    if isinstance(X, str | PathLike):
        return True
    if isinstance(X, list | tuple):
        return len(X) > 0 and all(isinstance(path, str | PathLike) for path in X)
    return _is_dataset(X)


def _is_dataset(X: Any) -> bool:
    if not type(X).__module__.startswith("pyarrow"):
        return False
    import pyarrow.dataset as ds

    return isinstance(X, ds.Dataset)


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
    if _is_dataset(X):
        parts = (_Dataset(X),)
    else:
        paths = X if isinstance(X, list | tuple) else [X]
        files = [file for path in paths for file in find_files(str(path))]
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
            found = self.dataset.to_batches(
                columns=names, batch_size=BATCH_ROWS, batch_readahead=4, fragment_readahead=1
            )
            for batch in found:
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
    found: dict[str, Any] = {}
    for part in Path(path).parts[:-1]:
        name, equals, value = part.partition("=")
        if name and equals:
            text = unquote(value)
            missing = text == "__HIVE_DEFAULT_PARTITION__"
            whole = text.isdecimal() and (text == "0" or text[0] != "0")
            found[unquote(name)] = None if missing else int(text) if whole else text
    return found
