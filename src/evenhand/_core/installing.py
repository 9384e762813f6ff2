"""How to install what is missing, in words that work today."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path


def install_hint(what: str) -> str:
    """The command that installs a package, or an extra of this one such as "[cli]".

    No index has this package. pip takes the extras of an installed copy without one; where the
    source is on the path and not installed, the extras are those of the clone.
    """
    if not what.startswith("["):
        return f"pip install {what}"
    try:
        metadata.distribution("evenhand")
        home = "evenhand"
    except metadata.PackageNotFoundError:
        home = str(Path(__file__).parents[3])
    return f"pip install '{home}{what}'"
