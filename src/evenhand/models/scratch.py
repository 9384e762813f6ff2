"""Features that do not fit into memory: row after row in a file without a name.

The system forgets such a file with the process that made it, however that ends.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

# Bytes that are read ahead of those in use.
READ_BYTES = 2**22


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
        self._folder = Path(tempfile.gettempdir() if folder is None else folder)
        self._filled = 0
        self._lock = Lock()
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
        self._filled += len(block)

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
        """All rows, so many at a time, each piece good until the next is asked for.

        While one stretch is in use the next is read.
        """
        n, d = self.shape
        stretch = max(READ_BYTES // (self._width * n_rows), 1) * n_rows
        buffers = [np.empty((min(stretch, n), d), self.dtype) for _ in range(2)]

        def read(start: int, buffer: NDArray[Any]) -> NDArray[Any]:
            part = buffer[: min(stretch, n - start)]
            self._read(start, part)
            return part

        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(read, 0, buffers[0])
            for number, start in enumerate(range(0, n, stretch)):
                part = coming.result()
                if start + stretch < n:
                    coming = ahead.submit(read, start + stretch, buffers[(number + 1) % 2])
                for first in range(0, len(part), n_rows):
                    piece = part[first : first + n_rows]
                    yield slice(start + first, start + first + len(piece)), piece

    def _read(self, start: int, out: NDArray[Any]) -> None:
        data = _bytes(out)
        with self._lock:
            self._file.seek(start * self._width)
            while data:
                got = self._file.readinto(data)
                if not got:
                    raise OSError(f"The scratch file in {str(self._folder)!r} has been cut short.")
                data = data[got:]

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
