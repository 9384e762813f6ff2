"""Files that appear whole or not at all, never over another one unasked, never over a device."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
        raise IsADirectoryError(f"`path` must be a file to write, got the folder {str(target)!r}.")
    if not stat.S_ISREG(mode):
        what = next((name for test, name in _SPECIAL.items() if test(mode)), "no regular file")
        raise OSError(
            f"`path` must be a regular file or a new name, and {str(target)!r} is {what}, which is "
            "never overwritten. Hint: choose another name, or name the file that a link leads to."
        )
    return True


def check_free(path: Any, force: bool) -> Path:
    """The path, unless something is there that must not be overwritten."""
    target = Path(path)
    if check_regular(target) and not force:
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

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8", newline="\n")

    return write_file(path, write, force)
