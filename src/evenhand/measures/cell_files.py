"""Cells outside of memory: an Arrow table with everything checked, and files with a checksum.

Columns are plain numbers; everything else is JSON in the metadata of the table.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._core.files import TableError, write_file
from .._core.installing import need
from .._core.validation import InputError
from ..data.labels import label_text
from .edges import Edges

if TYPE_CHECKING:
    import pyarrow as pa

    from .cells import Cells


INTEGERS = ("score_bin", "target_bin", "group", "n")
SUMS = ("w", "ww", "ws", "wy", "wss", "wyy", "wsy")
EXTREMES = ("least_s", "largest_s", "least_y", "largest_y")
# Relative room for sums that another engine added up in another order.
_ROUNDING = 1e-9


def to_arrow(cells: Cells) -> pa.Table:
    """Columns `score_bin`, `target_bin`, `group`, `n`, the sums and the extremes."""
    pa = need("pyarrow", "Cells leave memory as an Arrow table, which needs pyarrow.", "pyarrow")

    columns = dict(zip(INTEGERS, cells._arrays()[:4], strict=True))
    columns |= {name: cells.sums[:, j].copy() for j, name in enumerate(SUMS)}
    extremes = [cells.least[:, 0], cells.largest[:, 0]]
    if cells.has_target:
        extremes += [cells.least[:, 1], cells.largest[:, 1]]
    columns |= {name: v.copy() for name, v in zip(EXTREMES, extremes, strict=False)}
    head = {
        "format": FORMAT, "version": VERSION, "edges": cells.edges.to_dict(),
        "labels": cells.labels, "names": cells.names, "n_unknown": cells.n_unknown,
    }  # fmt: skip
    if cells.expected:
        head |= {"expected": True, "assume": cells.assume}
    return pa.table(columns).replace_schema_metadata({KEY: json.dumps(head)})


def from_arrow(table: Any) -> dict[str, Any]:
    """The fields of Cells from what :func:`to_arrow` writes, every one checked."""
    head = _head(table)
    edges = Edges.from_dict(head.get("edges"))
    labels, names = _labels(head)
    unknown = head.get("n_unknown")
    if not isinstance(unknown, int) or isinstance(unknown, bool) or unknown < 0:
        raise InputError("table", f"have n_unknown as a nonnegative integer, got {unknown!r}")
    wanted = [*INTEGERS, *SUMS, *(EXTREMES if edges.target is not None else EXTREMES[:2])]
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        raise InputError(
            "table", f"have the columns {', '.join(wanted)}; it lacks {', '.join(missing)}"
        )
    expected, assume = head.get("expected", False), head.get("assume")
    if not isinstance(expected, bool) or assume not in (None, "guess"):
        raise InputError(
            "table", "say whether its counts are expected ones, and by which assumption, got "
            f"{expected!r} and {assume!r}",
        )  # fmt: skip
    whole = INTEGERS[:3] if expected else INTEGERS
    columns = {name: _numbers(table, name, name in whole) for name in wanted}
    fields = checked(columns, edges, labels, names, unknown)
    return {**fields, "expected": expected, "assume": assume}


def _head(table: Any) -> dict[str, Any]:
    """What the metadata of a table of cells say, of this format and version."""
    metadata = getattr(getattr(table, "schema", None), "metadata", None)
    if not hasattr(table, "column_names"):
        raise InputError("table", f"be a pyarrow Table, got {type(table).__name__}")
    try:
        head = json.loads((metadata or {})[KEY])
    except KeyError:
        raise InputError(
            "table", f"have the metadata {FORMAT!r}, which Cells.to_arrow writes, got "
            f"{sorted(k.decode() for k in metadata or {})}",
        ) from None  # fmt: skip
    except ValueError as error:
        raise InputError("table", f"have metadata in JSON: {error}") from None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise InputError("table", f"say that its format is {FORMAT!r} in its metadata")
    if head.get("version") != VERSION:
        raise InputError(
            "table", f"be of version {VERSION}, got {head.get('version')!r}",
            hint="it was written by another version of evenhand.",
        )  # fmt: skip
    return head


def checked(
    columns: dict[str, NDArray[Any]], edges: Edges, labels: tuple[Any, ...],
    names: tuple[str, ...], unknown: int,
) -> dict[str, Any]:  # fmt: skip
    """The fields of Cells from columns by name, with n, sums and extremes that can be true."""
    _refuse_impossible(columns, edges, len(labels))
    place = columns["score_bin"] * edges.bins + columns["target_bin"]
    key = place * max(len(labels), 1) + columns["group"]
    order = np.argsort(key, kind="stable")
    if (np.diff(key[order]) == 0).any():
        raise InputError(
            "table", "have one row for each score_bin, target_bin and group; some are repeated"
        )
    columns = {name: values[order] for name, values in columns.items()}
    none = np.full(len(order), np.nan)
    least, largest = (
        np.column_stack([columns.get(f"{end}_{axis}", none) for axis in "sy"])
        for end in ("least", "largest")
    )
    return {
        "edges": edges,
        "labels": labels,
        "names": names,
        **{name: columns[name].astype(np.int32) for name in INTEGERS[:3]},
        "count": columns["n"],
        "sums": np.column_stack([columns[name] for name in SUMS]),
        "least": least,
        "largest": largest,
        "n_unknown": unknown,
    }


def _refuse_impossible(columns: dict[str, NDArray[Any]], edges: Edges, n_labels: int) -> None:
    """Refuse places beyond the grid, and counts, sums and extremes that no rows have."""
    bins = {"score_bin": edges.bins, "target_bin": 1 if edges.target is None else edges.bins}
    for name, size in {**bins, "group": n_labels}.items():
        values = columns[name]
        if len(values) and not (values.min() >= 0 and values.max() < size):
            raise InputError(
                "table", f"have {name} between 0 and {size - 1}, got {values.min()} to "
                f"{values.max()}",
            )  # fmt: skip
    if columns["n"].dtype.kind == "i" and (columns["n"] < 1).any():
        raise InputError("table", f"have n of at least 1, got {columns['n'].min()}")
    for name in ("n", "w", "ww"):
        if (columns[name] <= 0).any():
            raise InputError("table", f"have positive {name}, got {columns[name].min()}")
    sums = np.column_stack([columns[name] for name in SUMS])
    with np.errstate(over="ignore"):
        if not np.isfinite(sums / columns["w"][:, None]).all():
            raise InputError("table", "have sums that w can be divided into: their means overflow")
    # (Σw)² ≤ n·Σw², which a mix-up of columns breaks.
    most = np.sqrt(columns["n"]) * np.sqrt(columns["ww"])  # apart, as products may overflow
    if (columns["w"] > most * (1 + _ROUNDING)).any():
        raise InputError("table", "have w² ≤ n·ww in every row: these are not sums of weights")
    for axis in "s" if edges.target is None else "sy":
        if (columns[f"least_{axis}"] > columns[f"largest_{axis}"]).any():
            raise InputError("table", f"have least_{axis} ≤ largest_{axis} in every row")


def _labels(head: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    labels, names = head.get("labels"), head.get("names")
    if not isinstance(names, list) or not names or not all(isinstance(v, str) for v in names):
        raise InputError("table", f"have names of its attributes, got {names!r}")
    if not isinstance(labels, list):
        raise InputError("table", f"have a list of labels, got {labels!r}")
    crossed = len(names) > 1
    good = [
        isinstance(v, list) and len(v) == len(names) if crossed
        else isinstance(v, str | int | float)
        for v in labels
    ]  # fmt: skip
    plain = tuple(tuple(v) if isinstance(v, list) else v for v in labels)
    if not all(good) or len(set(plain)) < len(plain):
        raise InputError(
            "table", f"have distinct labels, one value for each of {', '.join(names)}, got "
            f"{labels!r}",
        )  # fmt: skip
    return plain, tuple(names)


def _numbers(table: Any, name: str, whole: bool) -> NDArray[Any]:
    import pyarrow as pa

    column = table.column(name)
    kind = column.type
    if column.null_count:
        raise InputError("table", f"not have missing values in {name}, got {column.null_count}")
    good = pa.types.is_integer(kind) or (not whole and pa.types.is_floating(kind))
    if not good:
        what = "integers" if whole else "numbers"
        raise InputError("table", f"have {what} in {name}, got {kind}")
    values = column.to_numpy().astype(np.int64 if whole else np.float64)
    if not whole and not np.isfinite(values).all():
        raise InputError("table", f"have finite numbers in {name}: some are NaN or infinite")
    return values


# ------------------------------------------------------------------------------------------------
# Cells as files: Parquet, whole or not at all, with a checksum of what is in them.


FORMAT, VERSION = "evenhand.cells", 1
KEY = FORMAT.encode()
_SUM, _SMALL = b"evenhand.sha256", b"evenhand.suppressed"


def suppress(cells: Cells, min_count: int) -> tuple[Cells, str]:
    """Cells without the entries of fewer than so many people of one group, and a sentence on
    what they held.

    Parameters
    ----------
    cells : Cells
    min_count : int
        At least 1.
    """
    if isinstance(min_count, bool) or not isinstance(min_count, int) or min_count < 1:
        raise InputError("min_count", f"be an integer of at least 1, got {min_count!r}")
    keep = cells.count >= min_count
    if not keep.any():
        raise InputError(
            "min_count", f"leave some cells: none of {len(keep):,} entries has {min_count} people",
            hint="a coarser grid has more people in a cell, such as edges=32 (--bins 32).",
        )  # fmt: skip
    size = len(cells.labels)
    whole, gone = (
        np.bincount(cells.group[rows], cells.count[rows], size) for rows in (keep | True, ~keep)
    )
    shares = zip(map(label_text, cells.labels), gone / np.maximum(whole, 1.0), strict=True)
    groups = ", ".join(f"{100 * share:.1f}% of {name}" for name, share in shares)
    lost = (
        f"{int(gone.sum()):,} people in {(~keep).sum():,} entries of fewer than {min_count} were "
        f"left out: {groups}."
    )
    return cells.take(keep), lost


def write_cells(cells: Cells, path: Any, force: bool = False, suppressed: str = "") -> Path:
    """Write cells to a regular file that appears whole or not at all.

    Parameters
    ----------
    cells : Cells
    path : str or Path
    force : bool
        Overwrite a file that exists.
    suppressed : str
        What was left out, said in the file, so that who reads it knows.
    """
    table = cells.to_arrow()
    from pyarrow import parquet

    said = dict(table.schema.metadata)
    if suppressed:
        said[_SMALL] = suppressed.encode()
    table = table.replace_schema_metadata({**said, _SUM: _digest(table, said)})
    # Bytes of the same place in numbers side by side: a quarter less than numbers one by one.
    floats = [field.name for field in table.schema if field.name not in INTEGERS]
    how: dict[str, Any] = {
        "compression": "zstd", "compression_level": 9, "use_dictionary": list(INTEGERS),
        "use_byte_stream_split": floats,
    }  # fmt: skip
    return write_file(path, lambda temporary: parquet.write_table(table, temporary, **how), force)


def suppressed_in(path: Any) -> str:
    """What was left out before the file was written, in a sentence; "" where nothing was."""
    return (read_table(path).schema.metadata or {}).get(_SMALL, b"").decode(errors="replace")


def is_cells(path: Any) -> bool:
    """Whether a file is one of cells, by its name."""
    return str(path).endswith(".cells")


def read_table(path: Any) -> Any:
    """The Arrow table that :func:`write_cells` wrote, its checksum compared."""
    pa = need("pyarrow", "A file of cells needs pyarrow to be read.", "pyarrow")
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
    if KEY in metadata and _SUM not in metadata:
        raise TableError(
            f"{str(path)!r} holds cells without a checksum, so that nobody can say whether they "
            "were changed. Hint: write them with Cells.to_file or `evenhand cells`."
        )
    if _SUM not in metadata:
        raise TableError(f"{str(path)!r} is no file of cells, as `evenhand cells` writes them.")
    if metadata[_SUM] != digest:
        raise TableError(
            f"{str(path)!r} has been changed since it was written: its checksum is another one. "
            "Hint: count the rows once more."
        )
    return table


def _digest(table: Any, metadata: dict[bytes, bytes]) -> bytes:
    """SHA-256 of names, values and metadata, without itself."""
    digest = hashlib.sha256(metadata.get(KEY, b"") + metadata.get(_SMALL, b""))
    for name in table.column_names:
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(table.column(name).to_numpy()).tobytes())
    return digest.hexdigest().encode()
