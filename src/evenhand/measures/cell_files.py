"""Cells as files: Parquet, whole or not at all, with a checksum of what is in them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._core.files import TableError, write_file

if TYPE_CHECKING:
    from .cells import Cells

FORMAT, VERSION = "evenhand.cells", 1
KEY = FORMAT.encode()
_SUM, _SMALL = b"evenhand.sha256", b"evenhand.suppressed"


class Suppressed(NamedTuple):
    """What was left out of cells: entries of fewer than `min_count` people of one group."""

    min_count: int
    entries: int
    people: int
    share: dict[str, float]

    @property
    def text(self) -> str:
        """In a sentence."""
        groups = ", ".join(f"{100 * v:.1f}% of {name}" for name, v in self.share.items())
        return (
            f"{self.people:,} people in {self.entries:,} entries of fewer than {self.min_count} "
            f"were left out: {groups}."
        )


def suppress(cells: Cells, min_count: int) -> tuple[Cells, Suppressed]:
    """Cells without the entries of fewer than so many people of one group, and what they held.

    Parameters
    ----------
    cells : Cells
    min_count : int
        At least 1.
    """
    if isinstance(min_count, bool) or not isinstance(min_count, int) or min_count < 1:
        raise ValueError(f"`min_count` must be an integer of at least 1, got {min_count!r}.")
    keep = cells.count >= min_count
    if not keep.any():
        raise ValueError(
            f"`min_count` must leave some cells: none of {len(keep):,} entries has {min_count} "
            "people. Hint: a coarser grid has more people in a cell, such as edges=32 (--bins 32)."
        )
    size = len(cells.labels)
    whole, gone = (
        np.bincount(cells.group[rows], cells.count[rows], size) for rows in (keep | True, ~keep)
    )
    names = [" × ".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in cells.labels]
    share = dict(zip(names, (gone / np.maximum(whole, 1.0)).tolist(), strict=True))
    few = {
        name: getattr(cells, name)[keep]
        for name in ("score_bin", "target_bin", "group", "count", "sums", "least", "largest")
    }
    lost = Suppressed(min_count, int((~keep).sum()), int(gone.sum()), share)
    return replace(cells, **few), lost


def write_cells(
    cells: Cells, path: Any, force: bool = False, suppressed: Suppressed | None = None
) -> Path:
    """Write cells to a regular file that appears whole or not at all.

    Parameters
    ----------
    cells : Cells
    path : str or Path
    force : bool
        Overwrite a file that exists.
    suppressed : Suppressed, optional
        Said in the file, so that who reads it knows.
    """
    from pyarrow import parquet

    table = cells.to_arrow()
    said = dict(table.schema.metadata)
    if suppressed is not None:
        said[_SMALL] = json.dumps(suppressed._asdict()).encode()
    table = table.replace_schema_metadata({**said, _SUM: _digest(table, said)})
    return write_file(
        path, lambda temporary: parquet.write_table(table, temporary, compression="zstd"), force
    )


def suppressed_in(path: Any) -> Suppressed | None:
    """What was left out before the file was written."""
    found = (read_table(path).schema.metadata or {}).get(_SMALL)
    if found is None:
        return None
    try:
        lost = Suppressed(**json.loads(found))
        counts = (lost.min_count, lost.entries, lost.people)
        if not all(isinstance(v, int) and v >= 0 for v in counts):
            raise ValueError(f"counts must be integers, got {counts}")
        return lost._replace(share={str(k): float(v) for k, v in lost.share.items()})
    except (ValueError, TypeError, AttributeError) as error:
        raise TableError(
            f"{str(path)!r} does not say as it should what was left out of it: {error}"
        ) from error


def is_cells(path: Any) -> bool:
    """Whether a file is one of cells, by its name."""
    return str(path).endswith(".cells")


def read_table(path: Any) -> Any:
    """The Arrow table that :func:`write_cells` wrote, its checksum compared."""
    import pyarrow as pa
    from pyarrow import parquet

    if not Path(path).is_file():
        raise TableError(f"There is no file {str(path)!r}.")
    try:
        with parquet.ParquetFile(path) as file:
            table = file.read()
        metadata = table.schema.metadata or {}
        digest = _digest(table, metadata)
    except (pa.ArrowException, OSError, ValueError) as error:  # also of names that are no text
        text = str(error).splitlines()[0]
        raise TableError(f"{str(path)!r} is not a whole file of cells: {text}") from error
    if _SUM not in metadata:
        raise TableError(f"{str(path)!r} is no file of cells, as `evenhand cells` writes them.")
    if metadata[_SUM] != digest:
        raise TableError(
            f"{str(path)!r} has been changed since it was written: its checksum is another one. "
            "Hint: count the rows once more."
        )
    return table


def _digest(table: Any, metadata: dict[bytes, bytes]) -> bytes:
    """SHA-256 of names, values and metadata, but for itself."""
    digest = hashlib.sha256(metadata.get(KEY, b"") + metadata.get(_SMALL, b""))
    for name in table.column_names:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(table.column(name).to_numpy()).tobytes())
    return digest.hexdigest().encode()
