"""How results show themselves: by functions of `report`, the room above, loaded on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# A function of `report` -> the module that holds it.
VIEWS = {
    "result_page": "after_views",
    "audit_page": "audit_views",
    "path_page": "path_views",
    "plot_audit": "plots",
    "plot_drivers": "plots",
    "plot_monitor": "plots",
    "plot_path": "plots",
    "plot_pricing": "plots",
    "show_notebook": "view",
    "show_text": "view",
}


def view(name: str) -> Callable[..., Any]:
    """Return a function of `report`, such as ``view("audit_page")``."""
    return getattr(import_module(f"evenhand.report.{VIEWS[name]}"), name)


class Shown:
    """A result that shows itself: as text of 80 columns, and as a table in a notebook."""

    def __str__(self) -> str:
        return view("show_text")(self)

    def _repr_html_(self) -> str:
        return view("show_notebook")(self)
