"""Files that appear whole or not at all, and never over another one unasked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def check_free(path: Any, force: bool) -> Path:
    """The path, unless something is there that must not be overwritten."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"`path` must be a file to write, got the folder {str(target)!r}.")
    if target.exists() and not force:
        raise FileExistsError(
            f"{str(target)!r} exists already and is left as it is. Hint: choose another name, or "
            "overwrite it with force=True (--force on the command line)."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"`path` must be in a folder that exists: there is no {str(target.parent)!r}."
        )
    return target


def write_file(path: Any, write: Callable[[Path], None], force: bool = False) -> Path:
    """Call `write` on a temporary file beside `path`, then move it there.

    Parameters
    ----------
    path : str or Path
        The file to make.
    write : callable
        Takes the path of the temporary file, which has the same ending.
    force : bool
        Overwrite an existing file.
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
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def write_text(path: Any, text: str, force: bool = False) -> Path:
    """Write UTF-8 text with "\\n" line ends, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="\n")

    return write_file(path, write, force)
