"""Features that do not fit into memory: row after row in a file without a name.

The system forgets such a file with the process that made it, however that ends.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

# Bytes of the file that are looked at together.
WINDOW = 2**24


class Scratch:
    """An (n, d) table of floats in a temporary file: written once, then read in order.

    Parameters
    ----------
    n_rows : int
    names : sequence of str
        Of the columns.
    dtype : float32 or float64
    folder : path, optional
        Where the file is; by default where temporary files are.
    """

    def __init__(self, n_rows: int, names: Any, dtype: Any, folder: Any = None):
        self.names = tuple(names)
        self.shape = (n_rows, len(self.names))
        self.dtype = np.dtype(dtype)
        self._width = self.dtype.itemsize * self.shape[1]
        # Told how far a pass over the rows has come.
        self.watch: Callable[[str], None] | None = None
        self._passes = 0
        self._folder = Path(tempfile.gettempdir() if folder is None else folder)
        if not self._folder.is_dir():
            raise ValueError(f"`scratch` must be a folder that exists, got {str(folder)!r}.")
        free, needed = shutil.disk_usage(self._folder).free, n_rows * self._width
        if free < needed:
            raise OSError(errno.ENOSPC, self._full(f"{free / 1e9:.1f} GB are free"))
        self._file: Any = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115

    def _full(self, what: str) -> str:
        needed = self.shape[0] * self._width / 1e9
        return (
            f"the features take {needed:.1f} GB on disk, and in {str(self._folder)!r} {what}. "
            "Hint: scratch=... names another folder; fewer features take less"
        )

    def append(self, block: NDArray[Any]) -> None:
        """Write the next rows."""
        data = _bytes(np.ascontiguousarray(block, dtype=self.dtype))
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise OSError(error.errno, self._full("there is no more room")) from error
            raise

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Rows of a slice, or of sorted row numbers."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(self.shape[0])
            assert step == 1
            out = np.empty((max(stop - start, 0), self.shape[1]), self.dtype)
            self._read(start, out)
            return out
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        for row, place in zip(np.asarray(rows).tolist(), out, strict=True):
            self._read(row, place)
        return out

    def pieces(self, n_rows: int) -> Iterator[tuple[slice, NDArray[Any]]]:
        """All rows in order, so many at a time, none of them copied.

        A window of the file is mapped at a time, so that what the system keeps of the rest is its
        own affair, and it is told what comes next.
        """
        n, d = self.shape
        stretch = max(WINDOW // (self._width * n_rows), 1) * n_rows
        self._passes += 1
        for start in range(0, n, stretch):
            if self.watch is not None:
                self.watch(f"pass {self._passes} over the rows, {start / n:.0%}")
            self._announce(start + stretch, stretch)
            part = self._window(start, min(stretch, n - start)).reshape(-1, d)
            for first in range(0, len(part), n_rows):
                piece = part[first : first + n_rows]
                yield slice(start + first, start + first + len(piece)), piece

    def _window(self, start: int, n_rows: int) -> NDArray[Any]:
        at = start * self._width
        page = at - at % mmap.ALLOCATIONGRANULARITY
        length = n_rows * self._width + at - page
        window = mmap.mmap(self._file.fileno(), length, access=mmap.ACCESS_READ, offset=page)
        # The mapping goes with the last array that looks at it.
        return np.frombuffer(window, self.dtype, n_rows * self.shape[1], at - page)

    def _announce(self, start: int, n_rows: int) -> None:
        if start < self.shape[0] and hasattr(os, "posix_fadvise"):
            where = (self._file.fileno(), start * self._width, n_rows * self._width)
            os.posix_fadvise(*where, os.POSIX_FADV_WILLNEED)

    def _read(self, start: int, out: NDArray[Any]) -> None:
        data = _bytes(out)
        self._file.seek(start * self._width)
        while data:
            data = data[self._file.readinto(data) :]

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _bytes(array: Any) -> memoryview:
    return memoryview(array).cast("B") if array.size else memoryview(b"")
