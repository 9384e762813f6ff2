"""Tables in Parquet files or an Arrow dataset, read batch by batch.

Every file is looked at before the first row is read: Arrow fills the gap of a missing column and
casts types that differ without a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from .._core.files import TableError, arrow_kind, check_one_type, is_dataset, list_files
from .._core.installing import need
from .._core.progress import progress
from .._core.validation import InputError, quote
from ..data.groups import resolve_groups
from .design import Scratch

# Rows of a batch: some megabytes of twenty columns.
BATCH_ROWS = 65_536


class Batch(NamedTuple):
    """Columns of some rows by name, and where they are, for messages."""

    part: str
    start: int
    columns: Mapping[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def numbers(self, name: str) -> NDArray[Any]:
        """A column of numbers in its own type; gaps are refused."""
        import pyarrow as pa

        column = self.columns[name]
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.float64())
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        missing = None
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
        elif values.dtype.kind == "f" and not np.isfinite(values.sum(dtype=np.float64)):
            missing = ~np.isfinite(values)
        if missing is not None and missing.any():
            raise TableError(
                f"Column {quote(name)} must hold finite numbers, and {self.part} has none in row "
                f"{self.start + int(missing.argmax())} (counted from 0). Hint: drop such rows or "
                "fill them in where the files are written."
            )
        return values

    def rows(self, names: Sequence[str], dtype: Any) -> Any:
        """Columns of numbers as an (m, d) array."""
        columns = [self.numbers(name) for name in names]
        return turn_columns(columns, np.empty((len(self), len(columns)), dtype))


@dataclass(frozen=True)
class Part:
    """A dataset of Arrow with its own ways of reading, filters among them; or a single file.

    Attributes
    ----------
    name : str
        What messages call it.
    open : callable
        → dataset; a file may have changed since it was last opened.
    """

    name: str
    open: Callable[[], Any]

    @cached_property
    def n_rows(self) -> int:
        with _named(self.name):
            return int(self.open().count_rows())

    @cached_property
    def schemas(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Column name → Arrow type, of all of it and of each file that Arrow can name."""
        import pyarrow.dataset as ds

        with _named(self.name):
            dataset = self.open()
        names = dataset.schema.names
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise TableError(f"{self.name} has several columns named {quote(twice)}.")
        whole = {field.name: field.type for field in dataset.schema}
        out: list[tuple[str, Mapping[str, Any]]] = [(self.name, whole)]
        try:
            fragments = list(dataset.get_fragments())
        except ValueError:  # Arrow does not name the files of a filtered dataset
            return out
        for fragment in fragments:
            path = getattr(fragment, "path", None)
            if path is None:
                continue
            with _named(repr(path)):
                kinds = {field.name: field.type for field in fragment.physical_schema}
                given = ds.get_partition_keys(fragment.partition_expression)
            out.append((repr(path), {**{n: whole[n] for n in given if n in whole}, **kinds}))
        return out

    def batches(self, names: list[str]) -> Iterator[Batch]:
        import pyarrow.dataset as ds

        # A buffer instead of whole column chunks: a row group may be as long as the file.
        scan = ds.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=2**20)
        start = 0
        with _named(self.name):
            read = self.open().to_batches(
                columns=names, batch_size=BATCH_ROWS, batch_readahead=4, fragment_readahead=1,
                fragment_scan_options=scan,
            )  # fmt: skip
            for batch in read:
                if len(batch):
                    yield Batch(self.name, start, {name: batch.column(name) for name in names})
                    start += len(batch)
        if start != self.n_rows:
            raise TableError(
                f"{self.name} has {start} rows where {self.n_rows} were counted: it changed while "
                "it was read."
            )


@dataclass(frozen=True)
class Source:
    """The parts of a table, with the same columns.

    Attributes
    ----------
    parts : tuple of Part
    kinds : mapping
        Column name to Arrow type, of the first part.
    n_rows : int
    """

    parts: tuple[Part, ...]
    kinds: Mapping[str, Any]
    n_rows: int

    def find(self, features: Any, given: Mapping[str, Any]) -> Columns:
        """Columns by what they are for, the same in all files; without `features` all others."""
        import pyarrow as pa

        words = {
            name: NUMBERS if pa.types.is_boolean(kind) else arrow_kind(kind)
            for name, kind in self.kinds.items()
        }
        first = self.parts[0].name
        columns = Columns.read(words, features, given, first)
        seen: dict[str, tuple[str, str]] = {}
        for where, kinds in (pair for part in self.parts for pair in part.schemas):
            for name in columns.names:
                if name not in kinds:
                    raise TableError(
                        f"{where} has no column {quote(name)}, which {first} has. Hint: write it "
                        "anew, or leave it out."
                    )
                check_one_type(name, arrow_kind(kinds[name]), where, seen)
        return columns

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """All rows in order."""
        for part in self.parts:
            yield from part.batches(list(dict.fromkeys(names)))


def open_source(X: Any) -> Source:
    """A table from a path, a pattern, a folder, a list of them, or an Arrow dataset."""
    need("pyarrow", "`X` can be a path or a dataset where pyarrow is installed.", "pyarrow")
    parts: tuple[Part, ...]
    if is_dataset(X):
        parts = (Part("the dataset", lambda: X),)
    else:
        paths = X if isinstance(X, list | tuple) else [X]
        parts = tuple(Part(repr(file), partial(_open_file, file)) for file in list_files(paths))
    n_rows = sum(part.n_rows for part in parts)
    if n_rows == 0:
        raise TableError(f"`X` must hold at least one row, and {parts[0].name} has none.")
    return Source(parts, dict(parts[0].schemas[0][1]), n_rows)


def _open_file(path: str) -> Any:
    """One Parquet file; columns that its folders name (``sex=F/``) are part of it."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    folders = pa.schema(
        (name, pa.string() if value is None else pa.scalar(value).type)
        for name, value in _folders(path).items()
    )
    return ds.dataset(path, format="parquet", partitioning=ds.partitioning(folders, flavor="hive"))


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors of Arrow with the name of the file."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise TableError(f"There is no file {name} any more.") from error
    except (pa.ArrowException, OSError) as error:
        text = str(error).strip().splitlines()[0]
        raise TableError(f"{name} cannot be read as Parquet: {text}") from error


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
# What columns of all other arguments hold.
NUMBERS = "numbers"
# Rows of a batch that are turned from columns into rows at a time, within the cache.
TURNED = 4_096


@dataclass(frozen=True)
class Columns:
    """Columns of a table by what they are for.

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
    def read(
        cls, kinds: Mapping[str, str], features: Any, given: Mapping[str, Any], table: str,
        numbers_only: bool = False,
    ) -> Columns:  # fmt: skip
        """Names as users give them, checked.

        Parameters
        ----------
        kinds : mapping
            Column → what it holds, in a word.
        features : str, sequence of str or None
            None for all columns that are nothing else.
        given : mapping
            Argument → column, several columns for those of `SEVERAL`, or None.
        table : str
            What messages call the table.
        numbers_only : bool
            Whether `features` of None leaves out columns that hold no numbers.
        """
        find = partial(_find, kinds, table)
        by_argument = {
            argument: find(value, argument)
            for argument, value in given.items()
            if value is not None
        }
        if features is None:
            taken = {name for names in by_argument.values() for name in names}
            features = [
                name for name, kind in kinds.items()
                if name not in taken and (kind == NUMBERS or not numbers_only)
            ]  # fmt: skip
        names = find(list(features) if not isinstance(features, str) else features, "features")
        if {*by_argument.get("y", ())} & {*names}:
            raise ValueError(f"`features` must not hold the target {quote(by_argument['y'][0])}.")
        return cls(names, by_argument)


def _find(kinds: Mapping[str, str], table: str, value: Any, argument: str) -> tuple[str, ...]:
    """Names of the columns of an argument, checked."""
    several = argument in (*SEVERAL, "features") and isinstance(value, list | tuple)
    names = tuple(value) if several else (value,)
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None or not names:
        got = "none" if wrong is None else type(wrong).__name__
        raise InputError(
            argument, "be the name of a column where rows are in a table", got,
            hint="arrays go with rows in memory.",
        )  # fmt: skip
    unknown = next((name for name in names if name not in kinds), None)
    if unknown is not None:
        raise TableError(
            f"`{argument}` names {quote(unknown)}, which {table} does not have. Its columns are "
            f"{', '.join(quote(name) for name in list(kinds)[:30])}."
        )
    if len({*names}) < len(names):
        raise InputError(argument, "be names of different columns", list(names))
    for name in names:
        if argument not in SEVERAL and kinds[name] != NUMBERS:
            raise TableError(
                f"Column {quote(name)} must hold numbers for `{argument}`, and holds "
                f"{kinds[name]}. Hint: name the columns to use in features=[...]; make numbers of "
                "text and categories first, one column for each level."
            )
    return names


def turn_columns(columns: Sequence[NDArray[Any]], out: NDArray[Any]) -> NDArray[Any]:
    """Columns as rows of `out`."""
    for start in range(0, len(out), TURNED):
        rows = slice(start, start + TURNED)
        for j, column in enumerate(columns):
            out[rows, j] = column[rows]
    return out


@contextmanager
def scanned(X: Any, features: Any, folder: Any, given: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments of a fit in memory, except the features, which are in a `Scratch` until the
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
    source = open_source(X)
    import pyarrow as pa

    columns = source.find(features, given)
    schemas = [kinds for part in source.parts for _, kinds in part.schemas]
    single = all(kinds.get(name) == pa.float32() for kinds in schemas for name in columns.features)
    dtype = np.float32 if single else np.float64
    with closing(Scratch(source.n_rows, columns.features, dtype, folder)) as scratch:
        yield _read(source, columns, scratch)


def _read(source: Source, columns: Columns, scratch: Scratch) -> dict[str, Any]:
    import pyarrow as pa

    n, given = source.n_rows, columns.given
    vectors = {argument: np.empty(n) for argument in given if argument not in SEVERAL}
    chunks: dict[str, list[Any]] = {name: [] for of in SEVERAL for name in given.get(of, ())}
    at = 0
    with progress(n, "reading rows") as advance:
        for batch in source.batches(columns.names):
            scratch.append(batch.rows(columns.features, scratch.dtype))
            for argument, vector in vectors.items():
                vector[at : at + len(batch)] = batch.numbers(given[argument][0])
            for name, held in chunks.items():
                held.append(batch.columns[name])
            at += len(batch)
            advance(len(batch))
    joined = {
        argument: {c: pa.chunked_array(chunks[c]).unify_dictionaries() for c in given[argument]}
        for argument in SEVERAL
        if argument in given
    }
    out: dict[str, Any] = {"X": scratch, **vectors, **joined}
    if "sensitive_features" in joined:
        weight = vectors.get("sample_weight")
        groups = resolve_groups(joined["sensitive_features"], n_rows=n, sample_weight=weight)
        # One byte a row where that will do: rows may be all that memory holds.
        if groups.codes is not None and groups.n_groups <= 256:
            groups = replace(groups, codes=groups.codes.astype(np.uint8))
        out["sensitive_features"] = groups
    return out
