"""Which files a path means, and what Arrow calls their columns."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

PARQUET = (".parquet", ".pq", ".parq")


class TableError(ValueError):
    """A file or a column cannot be used; the message says what to do."""


def find_files(path: str) -> list[str]:
    """Files of a path, of a pattern such as ``data/*.parquet``, or of a folder; an address as it
    is."""
    if "://" in path:
        return [path]
    if Path(path).is_dir():
        every = (file for file in Path(path).rglob("*") if file.suffix.lower() in PARQUET)
        found = [str(file) for file in sorted(every) if not _is_hidden(file, Path(path))]
        if not found:
            raise TableError(f"{path!r} is a folder without Parquet files. Hint: name a file.")
        return found
    if Path(path).exists():
        return [path]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise TableError(f"There is no file {path!r}.")
    fixed = next(folder for folder in Path(path).parents if not glob.has_magic(str(folder)))
    return [file for file in found if not _is_hidden(Path(file), fixed)] or found


def _is_hidden(file: Path, folder: Path) -> bool:
    """What writers leave beside their files, such as _temporary; no `_name=value`."""
    parts = file.relative_to(folder).parts
    return any(p.startswith(".") or (p.startswith("_") and "=" not in p) for p in parts)


def value_type(kind: Any) -> Any:
    """An Arrow type, or what a dictionary of it holds."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text_type(kind: Any) -> bool:
    """Whether values of an Arrow type, or of a dictionary of it, are text."""
    import pyarrow as pa

    kind = value_type(kind)
    view = getattr(pa.types, "is_string_view", lambda _: False)  # not in the oldest pyarrow
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or view(kind))


def arrow_kind(kind: Any) -> str:
    """What a column of an Arrow type holds, in a word: numbers, text, or the type."""
    import pyarrow as pa

    kind = value_type(kind)
    tests = pa.types
    if tests.is_integer(kind) or tests.is_floating(kind) or tests.is_decimal(kind):
        return "numbers"
    return "text" if is_text_type(kind) else str(kind)
