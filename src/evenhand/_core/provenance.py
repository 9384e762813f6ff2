"""What a result was made from, when and with what: enough to find out whether it is the same."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def now() -> datetime:
    """The time, or the one that SOURCE_DATE_EPOCH fixes for byte-identical builds."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)


def stamp() -> dict[str, str]:
    """Version and time (ISO 8601, UTC)."""
    from .. import __version__

    return {"evenhand": __version__, "written": now().strftime("%Y-%m-%dT%H:%M:%SZ")}


def file_facts(path: Path) -> dict[str, Any]:
    """Name, size and SHA-256 of a file's bytes, as `sha256sum` prints it; None for a pipe."""
    if not path.is_file():
        return {"name": path.name, "bytes": None, "sha256": None}
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": digest}


def last_changed(path: Path) -> datetime | None:
    """When a file was last written to; None for a pipe."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC) if path.is_file() else None
