"""How to install what is missing, in words that work today."""

from __future__ import annotations

from importlib import import_module, metadata
from pathlib import Path
from typing import Any


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


def need(module: str, sentence: str, what: str) -> Any:
    """An optional module; where it is not installed an error with a sentence and the hint."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{sentence} Hint: {install_hint(what)}.") from error
