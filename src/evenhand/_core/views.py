"""How results show themselves: by functions of `report`, the room above, loaded on first use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from .files import write_text
from .frames import to_frame

# A function of `report` -> the module that holds it.
VIEWS = {
    "result_page": "after_views",
    "audit_page": "audit_views",
    "path_page": "path_views",
    **dict.fromkeys(("plot_audit", "plot_drivers", "plot_monitor", "plot_path"), "plots"),
    **dict.fromkeys(("show_markdown", "show_notebook", "show_text"), "view"),
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

    def to_markdown(self) -> str:
        """What `print` shows, with headings and tables in Markdown."""
        return view("show_markdown")(self)


class Tabled(Shown):
    """A result that is one table: of its `columns`, or of what `_columns` gives."""

    columns: dict[str, Any]

    def _columns(self) -> dict[str, Any]:
        return self.columns

    def to_frame(self, backend: str | None = None) -> Any:
        """The table as a data frame.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            When left out what ``sklearn.set_config(transform_output=...)`` says, and else the first
            of these that is installed.
        """
        return to_frame(self._columns(), backend)


class Paged(Shown):
    """A result that can be written as a page of its own."""

    def to_html(
        self, path: Any, *, force: bool = False, about: Any = None, source: Any = None
    ) -> Any:
        """Write the picture and the table as one self-contained page.

        Parameters
        ----------
        path : str or Path
        force : bool
            Overwrite an existing file.
        about : evenhand.report.About or dict, optional
            Who asks, and what for.
        source : dict, optional
            Facts about the data to print.
        """
        return write_text(path, view("result_page")(self, about, source), force)
