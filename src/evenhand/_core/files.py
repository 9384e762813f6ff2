"""Files that appear whole or not at all, never over another one unasked, never over a device."""

from __future__ import annotations

import glob
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .validation import quote

# What a path may lead to that is no file to overwrite, by the test that finds it out.
_SPECIAL = {
    stat.S_ISLNK: "a symbolic link",
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISSOCK: "a socket",
}


def check_regular(path: Any) -> bool:
    """Whether there is a regular file at `path`, False for nothing; anything else is refused.

    A link is not followed, even where it leads nowhere: to write through it would change a file
    that nobody has named, and to replace it would take away the link.
    """
    target = Path(path)
    try:
        mode = target.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"The file to write must be no folder, and {str(target)!r} is one.")
    if not stat.S_ISREG(mode):
        what = next((name for test, name in _SPECIAL.items() if test(mode)), "no regular file")
        raise OSError(
            f"The file to write must be a regular file or a new name, and {str(target)!r} is "
            f"{what}, which is never overwritten. Hint: choose another name, or name the file that "
            "a link leads to."
        )
    return True


def check_free(path: Any, force: bool) -> Path:
    """The path, unless something is there that must not be overwritten."""
    target = Path(path)
    if check_regular(target) and not force:
        raise FileExistsError(
            f"{str(target)!r} exists already and is left as it is. Hint: choose another name, or "
            "overwrite it with --force (force=True in Python)."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"The file to write must be in a folder that exists: there is no "
            f"{str(target.parent)!r}."
        )
    return target


def write_file(path: Any, write: Callable[[Path], Any], force: bool = False) -> Path:
    """Call `write` on a temporary file beside `path`, then move it there.

    Parameters
    ----------
    path : str or Path
        The file to make.
    write : callable
        Takes the path of the temporary file, which has the same ending.
    force : bool
        Overwrite an existing file; a link, a device or a pipe is refused all the same.
    """
    target = check_free(path, force)
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name[:50]}-", suffix="".join(target.suffixes[-2:]), dir=target.parent
    )
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        # mkstemp makes files only their owner can read; give what open() would have given.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        check_free(target, force)  # writing took time, in which something may have come there
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def write_text(path: Any, text: str, force: bool = False) -> Path:
    """Write UTF-8 text with "\\n" line ends, whole or not at all."""
    data = text.encode()
    return write_file(path, lambda temporary: temporary.write_bytes(data), force)


# ------------------------------------------------------------------------------------------------
# Which files a path means, and what Arrow calls their columns.


PARQUET = (".parquet", ".pq", ".parq")


class TableError(ValueError):
    """A file or a column cannot be used; the message says what to do."""


def find_files(path: str) -> list[str]:
    """Files of a path, of a pattern such as ``data/*.parquet``, or of a folder; an address as it
    is."""
    if "://" in path:
        return [path]
    if os.path.isdir(path):
        every = (file for file in Path(path).rglob("*") if file.suffix.lower() in PARQUET)
        found = [str(file) for file in sorted(every) if not _is_hidden(file, Path(path))]
        if not found:
            raise TableError(f"{path!r} is a folder without Parquet files. Hint: name a file.")
        return found
    if os.path.exists(path):  # unlike that of a Path, it says no to a name that is too long
        return [path]
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise TableError(f"There is no file {path!r}.")
    fixed = next(folder for folder in Path(path).parents if not glob.has_magic(str(folder)))
    return [file for file in found if not _is_hidden(Path(file), fixed)] or found


def list_files(paths: Iterable[Any]) -> list[str]:
    """Files of several paths, patterns and folders; one that is named twice is refused."""
    files = [file for path in paths for file in find_files(str(path))]
    seen: dict[str, str] = {}
    for file in files:
        place = file if "://" in file else os.path.realpath(file)
        if place in seen:
            same = "" if seen[place] == file else f": it is {seen[place]!r} as well"
            raise TableError(
                f"{file!r} is named twice{same}, and its people would count twice. Hint: leave one "
                "of them out."
            )
        seen[place] = file
    return files


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


def is_dataset(table: Any) -> bool:
    """Whether a table is one of Arrow's datasets, which must then be imported already."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(table, module.Dataset)


def check_one_type(name: str, kind: str, where: str, seen: dict[str, tuple[str, str]]) -> None:
    """Refuse a column that holds something else here than in the files `seen` before."""
    before, first = seen.setdefault(name, (kind, where))
    if before != kind:
        raise TableError(
            f"Column {quote(name)} must be of one type in all files: it holds {before} in {first} "
            f"and {kind} in {where}. Hint: write one of them anew."
        )


def arrow_kind(kind: Any) -> str:
    """What a column of an Arrow type holds, in a word: numbers, text, or the type."""
    import pyarrow as pa

    kind = value_type(kind)
    tests = pa.types
    if tests.is_integer(kind) or tests.is_floating(kind) or tests.is_decimal(kind):
        return "numbers"
    return "text" if is_text_type(kind) else str(kind)
