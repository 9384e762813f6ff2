"""Results → words, pictures and pages.

Figures and pages are methods of results, such as `audit.plot()` and `audit.to_html()`. `About` says
who asks for a report and why; `write_pack` lays results out for supervisors.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any as _Any

_HOME = {"About": ".page", "write_pack": ".pack"}

__all__ = [*_HOME]


def __getattr__(name: str) -> _Any:
    if name in _HOME:
        return getattr(_import_module(_HOME[name], __name__), name)
    raise AttributeError(f"module 'evenhand.report' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
