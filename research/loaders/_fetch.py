"""Find a data file: EVENHAND_DATA's folder, the cache, an installed package, then a download.

Whatever the route, the content must have the known SHA-256, so results never rest on one of the
altered copies that circulate.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import os
import sys
import tempfile
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from evenhand.datasets import DataFileError

_TIMEOUT_SECONDS = 30
_PACKED = (".gz", ".bz2", ".zip")


@dataclass(frozen=True)
class DataFile:
    """A file known by its content.

    Attributes
    ----------
    name : str
        The name looked for; for one ending in ``.gz``, ``.bz2`` or ``.zip`` the unpacked name is
        accepted too.
    sha256 : str
        SHA-256 of the unpacked content with LF line ends.
    n_bytes : int
        Length of that content.
    url : str or None
        Where it can be downloaded, if anywhere.
    source : str
        Where to ask for it, in words.
    package : tuple of str or None
        Distribution that ships the file, and the file's path in it. The package is not imported.
    install : str
        How to get that distribution.
    """

    name: str
    sha256: str
    n_bytes: int
    url: str | None
    source: str
    package: tuple[str, str] | None = None
    install: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        stem, ending = os.path.splitext(self.name)
        return (self.name, stem) if ending in _PACKED else (self.name,)


def cache_dir() -> Path:
    """The user's cache folder for this package; it need not exist."""
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "evenhand"


def read(file: DataFile) -> bytes:
    """The checked content of a data file, unpacked, with LF line ends."""
    folder = os.environ.get("EVENHAND_DATA")
    if folder:
        for name in file.names:
            path = Path(folder) / name
            if path.is_file():
                # The user put it there, so it is refused aloud and never passed over.
                return _check(file, path.read_bytes(), str(path))
    for name in file.names:
        path = cache_dir() / name
        if path.is_file():
            try:
                return _check(file, path.read_bytes(), str(path))
            except DataFileError:
                if file.url is None:
                    raise
                # A damaged cache heals itself: the download below replaces the file.
    if file.package is not None:
        return _from_package(file, *file.package)
    if file.url is None:
        raise DataFileError(
            f"`{file.name}` was not found, and no public address of it is known. {_hint(file)}"
        )
    return _download(file, file.url)


def _from_package(file: DataFile, distribution: str, path: str) -> bytes:
    try:
        package = metadata.distribution(distribution)
    except metadata.PackageNotFoundError as error:
        raise ModuleNotFoundError(
            f"`{file.name}` must come from the package `{distribution}`, which is not installed. "
            f"Hint: {file.install}."
        ) from error
    place = Path(str(package.locate_file(path)))
    if not place.is_file():
        raise DataFileError(
            f"`{file.name}` was not found in {distribution} {package.version}, at {place}. "
            f"{_hint(file)}"
        )
    return _check(file, place.read_bytes(), f"{distribution} {package.version} ({place})")


def _download(file: DataFile, url: str) -> bytes:
    try:
        with urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            raw = response.read()
    except (OSError, HTTPException) as error:
        raise DataFileError(
            f"`{file.name}` was not found, and downloading it from {url} failed: {error!r}. "
            f"{_hint(file)}"
        ) from error
    content = _check(file, raw, url)
    # A cache that cannot be written costs a download next time, not the result now.
    with suppress(OSError):
        _write_atomically(cache_dir() / file.name, raw)
    return content


def _write_atomically(path: Path, raw: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(raw)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _check(file: DataFile, raw: bytes, where: str) -> bytes:
    """Unpack and compare with the known checksum."""
    try:
        content = _unpack(raw)
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise DataFileError(
            f"`{file.name}` from {where} is damaged and cannot be unpacked ({error}). {_hint(file)}"
        ) from error
    # Git on Windows and some mirrors change line ends, and nothing else.
    content = content.replace(b"\r\n", b"\n")
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != file.sha256:
        raise DataFileError(
            f"`{file.name}` from {where} must have SHA-256 {file.sha256} ({file.n_bytes} bytes), "
            f"got {sha256} ({len(content)} bytes): it is incomplete or an altered copy. "
            f"{_hint(file)}"
        )
    return content


def _unpack(raw: bytes) -> bytes:
    """The content of an archive, known by its first bytes; anything else as it is."""
    if raw.startswith(b"\x1f\x8b"):
        return gzip.decompress(raw)
    if raw.startswith(b"BZh"):
        return bz2.decompress(raw)
    if raw.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            return archive.read(archive.namelist()[0])
    return raw


def _hint(file: DataFile) -> str:
    folder = os.environ.get("EVENHAND_DATA")
    place = f"{folder} (EVENHAND_DATA)" if folder else "a folder named by EVENHAND_DATA"
    return (
        f"Hint: put {' or '.join(file.names)} (content of {file.n_bytes} bytes, SHA-256 "
        f"{file.sha256}) in {place}, or at {cache_dir() / file.name}. Source: {file.source}"
    )


def check_option(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"`{name}` must be one of {', '.join(allowed)}, got {value!r}.")
