"""Tables from files as they come: CSV, TSV, Parquet, Feather, compressed, in several encodings.

Everything a person can get wrong about a file ends in a :class:`TableError` that names the file,
the column and the way out.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.files import TableError as TableError
from .._core.files import is_text_type as is_text_type
from .._core.files import value_type as value_type
from .._core.validation import name_others, nearest, quote

if TYPE_CHECKING:
    import pyarrow as pa


SEPARATORS = (",", ";", "\t", "|")
_SAMPLE = 1 << 16
# What people and programs write for "no value" in place of a number or of a feature. Among labels
# of groups only blanks are that: people called "None" and countries called "NA" exist.
NULLS = (
    "", " ", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "#N/A", "<NA>", "?",
)  # fmt: skip
# What Arrow unpacks, by the first bytes; and what it does not.
_PACKED = {
    b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}  # fmt: skip
_XZ, _ZIP = b"\xfd7zXZ\x00", b"PK\x03\x04"


@dataclass(frozen=True)
class Source:
    """A file, opened: its bytes or path, and what was found out about it.

    Attributes
    ----------
    path : Path
    kind : {"csv", "parquet", "feather"}
    data : bytes or None
        The decompressed content, where the file was compressed.
    names : tuple of str
        Column names, as they stand, duplicates included.
    separator, decimal, encoding : str
        Of a CSV file; "" for the others.
    skip : int
        Lines of a CSV file before its column names.
    """

    path: Path
    kind: str
    data: bytes | None
    names: tuple[str, ...]
    separator: str = ""
    decimal: str = "."
    encoding: str = ""
    skip: int = 0

    @property
    def where(self) -> Any:
        """What Arrow reads it from."""
        import pyarrow as pa

        return str(self.path) if self.data is None else pa.BufferReader(self.data)

    def describe(self) -> str:
        """How the file was read, for the record."""
        if self.kind != "csv":
            return self.kind.capitalize()
        name = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}.get(
            self.separator, repr(self.separator)
        )
        comma = ", decimal comma" if self.decimal == "," else ""
        return f"text separated by {name}{comma}, {self.encoding}"

    def resolve(self, name: str, option: str) -> str:
        """`name`, if there is exactly one such column."""
        count = self.names.count(name)
        if count == 1:
            return name
        if count > 1:
            raise TableError(
                f"{called(self.path)} has {count} columns named {quote(name)}, so {option} is "
                "ambiguous. Hint: rename one of them."
            )
        text = (
            f"{option} names {quote(name)}, which {called(self.path)} does not have."
            f"{name_others(name, self.names)}."
        )
        if len(self.names) == 1 and self.kind == "csv":
            text += (
                f" Hint: one column was found with the separator {self.separator!r}; if the file "
                "uses another one, give it with --separator."
            )
        raise TableError(text)


def open_table(path: Any, separator: str | None = None, whole: bool = True) -> Source:
    """Find out what a file is and which columns it has.

    Parameters
    ----------
    path : str or Path
        The content says which format it is, not the name.
    separator : str, optional
        Of a CSV file; found out when left out.
    whole : bool
        Unpack all of a compressed file, and not its beginning only, which cannot be read then.
    """
    path = Path(path)
    if not path.exists():
        folder = path.parent if path.parent.is_dir() else None
        near = nearest(path.name, [p.name for p in folder.iterdir()]) if folder else None
        hint = f" Did you mean {quote(near)}?" if near else ""
        raise TableError(f"There is no file {called(path)}.{hint}")
    if path.is_dir():
        raise TableError(f"{called(path)} is a folder. Hint: name a file in it.")
    try:
        with path.open("rb") as file:
            head = file.read(_SAMPLE)
        data = _unpack(path, head, None if whole else _SAMPLE)
    except OSError as error:
        raise TableError(f"{called(path)} cannot be read: {error.strerror or error}.") from error
    if data is not None:
        head = data[:_SAMPLE]
    if not head.strip(b" \t\r\n\x00\xef\xbb\xbf"):
        raise TableError(
            f"{called(path)} is empty. Hint: it needs a line of column names and rows."
        )
    if head.startswith(b"PAR1"):
        return _open_binary(path, data, "parquet")
    if head.startswith((b"ARROW1", b"FEA1")):
        return _open_binary(path, data, "feather")
    if head.startswith((_ZIP, b"\xd0\xcf\x11\xe0")):
        raise TableError(f"{called(path)} is a spreadsheet. Hint: save it as CSV first.")
    return _open_csv(path, data, head, separator)


def _unpack(path: Path, head: bytes, size: int | None) -> bytes | None:
    """The content of a compressed file, or so much of its beginning; None for any other."""
    import pyarrow as pa

    kind = next((kind for magic, kind in _PACKED.items() if head.startswith(magic)), None)
    try:
        if kind is not None:
            with pa.CompressedInputStream(pa.OSFile(str(path)), kind) as stream:
                return bytes(stream.read() if size is None else stream.read(size))
        if head.startswith(_XZ) and size is None:
            return lzma.decompress(path.read_bytes())
        if head.startswith(_ZIP) and size is None:
            with zipfile.ZipFile(path) as archive:
                members = [m for m in archive.namelist() if not m.endswith("/")]
                if len(members) == 1:
                    return archive.read(members[0])
    except (OSError, EOFError, zipfile.BadZipFile, lzma.LZMAError, ValueError) as error:
        raise TableError(
            f"{called(path)} looks compressed and cannot be unpacked: {error}. Hint: is it whole?"
        ) from error
    return None


def _open_binary(path: Path, data: bytes | None, kind: str) -> Source:
    import pyarrow as pa
    from pyarrow import feather, parquet

    source = Source(path, kind, data, ())
    try:
        if kind == "parquet":
            names = parquet.read_schema(source.where).names
        else:
            names = feather.read_table(source.where, memory_map=data is None).column_names
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{called(path)} is not a whole {kind} file: {_first(error)}") from error
    return replace(source, names=tuple(names))


def _open_csv(path: Path, data: bytes | None, head: bytes, separator: str | None) -> Source:
    encoding = "UTF-8"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "UTF-16"
    elif b"\x00" in head:
        raise TableError(
            f"{called(path)} is neither text nor Parquet nor Feather. Hint: save the table as CSV."
        )
    else:
        try:
            head.decode("utf-8")
        except UnicodeDecodeError as error:
            # A character cut in two at the end of the sample is no sign of another encoding.
            if error.start < len(head) - 4 or len(head) < _SAMPLE:
                encoding = "Windows-1252"
    if encoding != "UTF-8":
        data = _transcode(path.read_bytes() if data is None else data, encoding)
        head = data[:_SAMPLE]
    text = head.decode("utf-8", errors="ignore").lstrip("\ufeff").lstrip("\r\n")
    if separator is not None and len(separator) != 1:
        raise TableError(f"--separator must be one character, got {separator!r}.")
    announced = _ANNOUNCED.match(text)  # Excel's way of naming the separator
    if announced:
        separator, text = separator or announced[1], text[announced.end() :]
    lines = text.splitlines()
    if len(head) == _SAMPLE and len(lines) > 1:
        lines = lines[:-1]
    found = separator or _sniff(lines[:50], path)
    names = next(csv.reader(io.StringIO(text, newline=""), delimiter=found), [])
    decimal = _decimal(lines[:50], found)
    skip = 1 if announced else 0
    return Source(path, "csv", data, tuple(names), found, decimal, encoding, skip)


_ANNOUNCED = re.compile(r'"?sep=(.)"?[ \t]*(?:\r\n|\r|\n)', re.IGNORECASE)


def _transcode(data: bytes, encoding: str) -> bytes:
    if encoding == "UTF-16":
        return data.decode("utf-16", errors="replace").encode()
    try:
        return data.decode("cp1252").encode()
    except UnicodeDecodeError:  # the few bytes Windows-1252 leaves open exist in Latin-1
        return data.decode("latin-1").encode()


def read_table(
    source: Source, columns: Sequence[str], as_text: bool = False, text: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> pa.Table:  # fmt: skip
    """Read some columns, each named once.

    Parameters
    ----------
    source : Source
        As from :func:`open_table`.
    columns : sequence of str
        What to read; nothing else is parsed.
    as_text : bool
        Leave every CSV cell as it is written, for copying it through.
    text : sequence of str
        Columns of labels. In CSV they are text even where every cell looks like a number: "02139"
        stays.
    missing : sequence of str
        Labels that stand for no value, beside blanks.
    """
    import pyarrow as pa
    from pyarrow import feather, parquet

    columns = list(dict.fromkeys(columns))
    try:
        if source.kind == "csv":
            table = _read_csv(source, columns, as_text, text, missing)
        else:
            reader: Any = parquet if source.kind == "parquet" else feather
            table = _without(reader.read_table(source.where, columns=columns), text, missing)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise TableError(_explain(source, error)) from error
    if not table.num_rows:
        raise TableError(
            f"{called(source.path)} has column names and no rows. Hint: nothing can be measured."
        )
    return table


def _without(table: pa.Table, names: Iterable[str], values: Sequence[str]) -> pa.Table:
    """The table with nothing in place of blanks and some other texts in columns of text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for k, name in enumerate(table.column_names):
        kind = table.column(name).type
        if name in names and is_text_type(kind):
            column = table.column(name).cast(pa.string())
            gaps = pc.is_in(pc.utf8_trim_whitespace(column), pa.array(["", *values]))
            known = pc.if_else(gaps, pa.scalar(None, pa.string()), column)
            coded = pa.types.is_dictionary(kind)
            table = table.set_column(k, name, known.dictionary_encode() if coded else known)
    return table


def _read_csv(
    source: Source, columns: list[str], as_text: bool, text: Sequence[str], missing: Sequence[str]
) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    size = len(source.data) if source.data is not None else source.path.stat().st_size
    kept = dict.fromkeys(text, pa.dictionary(pa.int32(), pa.string()))
    convert = arrow_csv.ConvertOptions(
        include_columns=columns,
        column_types=dict.fromkeys(columns, pa.string()) if as_text else kept,
        null_values=[] if as_text else list(NULLS),
        auto_dict_encode=not as_text, auto_dict_max_cardinality=1000, decimal_point=source.decimal,
    )  # fmt: skip
    parse = arrow_csv.ParseOptions(delimiter=source.separator, newlines_in_values=True)

    def read(block_size: int | None) -> pa.Table:
        # Not to guess: the compression of a name such as "scores.csv.gz" is undone already.
        stream = pa.input_stream(source.where, compression=None)
        options = arrow_csv.ReadOptions(block_size=block_size, skip_rows=source.skip)
        return arrow_csv.read_csv(
            stream, read_options=options, parse_options=parse, convert_options=convert
        )

    try:
        table = read(None)
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            return _read_csv(_recoded(source), columns, as_text, text, missing)
        # Types are told from the first block. Where a later one disagrees, look at all of them.
        if "conversion error" not in str(error) or size >= 2**31:
            raise
        table = read(size + 1)
    if any(pa.types.is_binary(value_type(field.type)) for field in table.schema):
        return _read_csv(_recoded(source), columns, as_text, text, missing)
    if as_text:
        return table
    others = [name for name in table.column_names if name not in text]
    return _without(_without(table, text, missing), others, NULLS)


def _recoded(source: Source) -> Source:
    """The same, where bytes that are no UTF-8 came further down than the sample looked at."""
    raw = source.path.read_bytes() if source.data is None else source.data
    return replace(source, data=_transcode(raw, "Windows-1252"), encoding="Windows-1252")


def _explain(source: Source, error: Exception) -> str:
    text = _first(error)
    ragged = re.search(r"Expected (\d+) columns, got (\d+)(?:: (.*))?", text)
    if ragged:
        line = f" The line begins {quote(ragged[3])}." if ragged[3] else ""
        return (
            f"{called(source.path)} has {ragged[1]} column names and a line with {ragged[2]} "
            f"fields.{line} Hint: a text that holds the separator {source.separator!r} must stand "
            'in quotes ("..."); if the separator is another one, give it with --separator.'
        )
    return f"{called(source.path)} cannot be read: {text}"


def _sniff(lines: Sequence[str], path: Path) -> str:
    """The separator that splits the lines into the most fields, equally many in each."""
    best, most = ",", 1
    order: tuple[str, ...] = SEPARATORS
    if ".tsv" in path.suffixes or ".tab" in path.suffixes:
        order = ("\t", *(s for s in SEPARATORS if s != "\t"))
    for candidate in order:
        counts = [len(row) for row in csv.reader(lines, delimiter=candidate) if row]
        if counts and min(counts) == max(counts) > most:
            best, most = candidate, counts[0]
    if most > 1:
        return best
    # No candidate fits every line: a ragged file. Let the header decide, and the reader complain.
    header = lines[0] if lines else ""
    return max(order, key=header.count) if any(s in header for s in order) else ","


_COMMA_NUMBER = re.compile(r"^\s*[-+]?\d+,\d+(e[-+]?\d+)?\s*$", re.IGNORECASE)
_POINT_NUMBER = re.compile(r"^\s*[-+]?\d*\.\d+(e[-+]?\d+)?\s*$", re.IGNORECASE)


def _decimal(lines: Sequence[str], separator: str) -> str:
    if separator == ",":
        return "."
    cells = [cell for row in csv.reader(lines[1:], delimiter=separator) for cell in row]
    comma = any(_COMMA_NUMBER.match(cell) for cell in cells)
    return "," if comma and not any(_POINT_NUMBER.match(cell) for cell in cells) else "."


def called(path: Path) -> str:
    return repr(str(path))


def _first(error: Exception) -> str:
    return str(error).split("\n")[0][:300]


# ------------------------------------------------------------------------------------------------
# Tables to files.


_TEXT = (".csv", ".tsv", ".txt", ".gz")


def is_text(path: Path) -> bool:
    """Whether a table of this name is written as text."""
    return path.suffix.lower() in _TEXT


def write_table(table: pa.Table, path: Path, like: Source | None = None) -> None:
    """Write a table in the format its name asks for, compressed where it ends in .gz.

    Text has the separator, the decimal point and the encoding of a file that it is to be `like`.
    """
    from pyarrow import feather, parquet

    endings = [s.lower() for s in path.suffixes[-2:]]
    kind = endings[-1] if endings else ""
    if kind in (".parquet", ".pq"):
        parquet.write_table(table, str(path))
    elif kind in (".feather", ".arrow"):
        feather.write_feather(table, str(path))
    elif kind in _TEXT:
        like = like if like is not None and like.kind == "csv" else Source(path, "csv", None, ())
        separator = "\t" if ".tsv" in endings else like.separator or ","
        encoding = {"Windows-1252": "cp1252"}.get(like.encoding, like.encoding or "utf-8")
        # Not Arrow's writer, which quotes every text.
        opened = gzip.open if kind == ".gz" else open
        with opened(path, "wt", encoding=encoding, newline="") as stream:
            writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
            writer.writerow(table.column_names)
            for batch in table.to_batches(max_chunksize=50_000):
                cells = [_as_written(c.to_pylist(), like.decimal) for c in batch.columns]
                writer.writerows(zip(*cells, strict=True))
    else:
        raise TableError(
            f"{called(path)} must end in .csv, .tsv, .csv.gz, .parquet or .feather, so that its "
            "format is known."
        )


def _as_written(values: list[Any], decimal: str) -> list[Any]:
    """Numbers with another decimal point; text stays as it is."""
    if decimal == "." or not any(isinstance(v, float) for v in values):
        return values
    return [str(v).replace(".", decimal) if isinstance(v, float) else v for v in values]
