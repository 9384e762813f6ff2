"""One structure per result: sentences, tables, figures; shown as text, in notebooks, on pages."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from .markup import Html, csv_link, element, join, label, table
from .words import cells, clean, short_names, upper_first

WIDTH = 80
# A module -> the classes of results whose views it has, functions such as `audit_view`.
_MODULES = {
    "audit_views": ("Audit", "AuditSet", "Measure"),
    "gap_views": ("Conditional", "Imputation", "Pricing"),
    "verdict_views": ("Verdict", "Impact", "ByGroup"),
    "after_views": ("Drivers", "Monitor", "Relativities", "Alternatives"),
    "path_views": ("FairnessPath",),
}
_FUNCTIONS = {"AuditSet": "audit_set_view", "ByGroup": "by_group_view", "FairnessPath": "path_view"}


class Name(str):
    """A user's label in a table: whole on a page, cut to one short line elsewhere."""


class Lead(str):
    """The sentence to read first."""


class Note(str):
    """Small print."""


class Judged(str):
    """A sentence on one criterion, with its grade; a page shows it as a card instead."""

    level: str

    def __new__(cls, text: str, level: str) -> Judged:
        out = super().__new__(cls, text)
        out.level = level
        return out


@dataclass(frozen=True)
class Table:
    """Rows of text whose first column names the row.

    Attributes
    ----------
    heads : sequence of str
        Of the columns, in lower case.
    rows : sequence of rows of str, Name or Html
    caption : str
    columns : mapping, optional
        What a page offers as CSV, under the name `file`.
    limit : int
        Longest name in a terminal.
    wrapped : bool
        Whether cells hold sentences, to be set over several lines on a page.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    columns: Mapping[str, Sequence[Any]] | None = None
    file: str = ""
    limit: int = 24
    wrapped: bool = False

    @classmethod
    def of(
        cls, items: Iterable[Any], cells: Mapping[str, Callable[[Any], Any]], *more: Any, **how: Any
    ) -> Table:
        """Return a table with a row per item, by the head and the cell of each column."""
        rows = [[cell(item) for cell in cells.values()] for item in items]
        return cls([*cells], rows, *more, **how)

    def plain(self) -> list[list[str]]:
        """The head and the rows as short text."""
        # Each in one line, at its indent.
        rows = [self.heads, *self.rows]
        out = [[" " * (len(c) - len(c.lstrip(" "))) + clean(c) for c in row] for row in rows]
        for j in range(len(self.heads)):
            names = list(dict.fromkeys(row[j] for row in self.rows if isinstance(row[j], Name)))
            short = dict(zip(names, short_names(names, self.limit), strict=True))
            for shown, row in zip(out[1:], self.rows, strict=True):
                shown[j] = short.get(row[j], shown[j])
        return out


@dataclass(frozen=True)
class Figure:
    """A picture, drawn on a page only.

    Attributes
    ----------
    draw : function without arguments
        Returns the picture as markup.
    caption, note : str
        Above and below it.
    """

    draw: Callable[[], Html]
    caption: str = ""
    note: str = ""


class View:
    """What a result shows: a title and parts in the order of reading.

    Parts are sentences (str, Lead, Note, Judged), tables, figures, sections (View) and Html, which
    only a page shows. A notebook shows the top level and the sections that are `brief`. `badge` is
    the outcome in a word or two, with the class of its color.
    """

    def __init__(
        self, title: str, *parts: Any, badge: tuple[str, str] | None = None, brief: bool = False
    ) -> None:
        self.title, self.parts, self.badge, self.brief = title, parts, badge, brief

    @property
    def heading(self) -> str:
        """The title and the outcome, on one line."""
        return clean(self.title if self.badge is None else f"{self.title}: {self.badge[0]}")


def view_of(result: Any) -> View:
    """Return the view of any result."""
    kind = type(result).__name__
    home = next(name for name, kinds in _MODULES.items() if kind in kinds)
    module = import_module(f"{__package__}.{home}")
    return getattr(module, _FUNCTIONS.get(kind, f"{kind.lower()}_view"))(result)


# ------------------------------------------------------------------------------------------------
# Text.


def show_text(result: Any) -> str:
    """Return a result as text of 80 columns."""
    return view_text(view_of(result))


def view_text(view: View, width: int = WIDTH) -> str:
    """Return a view as text; lines of tables and sentences are no longer than `width`."""
    lines: list[str] = []
    for line in view_lines(view, width):
        is_sentence = line.text and line.kind != "table"
        lines += textwrap.wrap(line.text, width) if is_sentence else [line.text]
    return "\n".join(lines).strip("\n")


class Line(NamedTuple):
    """A sentence or a line of a table; `kind` is "title", "table", a grade or ""."""

    text: str
    kind: str = ""


def view_lines(view: View, width: int) -> Iterator[Line]:
    """Return a view line by line; tables are no wider than `width`, sentences are whole."""
    yield Line(view.heading, "title")
    table_before = False
    for part in view.parts:
        if isinstance(part, View):
            yield Line("")
            yield from view_lines(part, width)
        elif isinstance(part, Table):
            yield Line("")
            if part.caption:
                yield Line(clean(part.caption))
            yield from (Line(text, "table") for text in fit_table(part.plain(), width))
        elif isinstance(part, str) and not isinstance(part, Html):
            if table_before:
                yield Line("")
            yield Line(clean(part), part.level if isinstance(part, Judged) else "")
        else:
            continue
        table_before = isinstance(part, Table | View)


def fit_table(rows: Sequence[Sequence[str]], width: int = WIDTH) -> list[str]:
    """Return a table whose columns but the first are set to the right.

    Where it is wider than `width` it goes on below, with its first column once more.
    """
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for block in _column_blocks(widths, width):
        lines += [""] if lines else []
        for row in [rows[0], ["─" * w for w in widths], *rows[1:]]:
            first = row[0] + " " * (widths[0] - cells(row[0]))
            others = [" " * (widths[j] - cells(row[j])) + row[j] for j in block]
            lines.append("  ".join([first, *others]).rstrip())
    return lines


def _column_blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns but the first, as many together as fit beside it; two spaces between."""
    blocks: list[list[int]] = [[]]
    for j in range(1, len(widths)):
        if blocks[-1] and widths[0] + sum(2 + widths[k] for k in [*blocks[-1], j]) > room:
            blocks.append([])
        blocks[-1].append(j)
    return blocks


# ------------------------------------------------------------------------------------------------
# Markdown.


def show_markdown(result: Any) -> str:
    """Return a result as Markdown: what its text shows, whole and with nothing cut."""
    return view_markdown(view_of(result)) + "\n"


def view_markdown(view: View, level: int = 2) -> str:
    """Return a view as Markdown, its title a heading of this level."""
    return "\n\n".join(_markdown(view, level))


def _markdown(view: View, level: int) -> Iterator[str]:
    if view.title:
        yield f"{'#' * min(level, 6)} {_escape(view.heading)}"
    for part in view.parts:
        if isinstance(part, View):
            yield from _markdown(part, level + 1)
        elif isinstance(part, Table):
            if part.caption:
                yield _escape(clean(part.caption))
            rows = [[_escape(clean(cell)) for cell in row] for row in [part.heads, *part.rows]]
            rows.insert(1, [":--", *["--:"] * (len(part.heads) - 1)])
            yield "\n".join(f"| {' | '.join(row)} |" for row in rows)
        elif isinstance(part, str) and not isinstance(part, Html):
            yield _escape(clean(part))


def _escape(text: str) -> str:
    """Text that Markdown, and the HTML made of it, show as it is."""
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


# ------------------------------------------------------------------------------------------------
# Notebooks and pages.


def show_notebook(result: Any) -> Html:
    """Return a result for a notebook: the top of its view, without style sheet or script."""
    return _notebook(view_of(result))


def _notebook(view: View) -> Html:
    parts: list[Any] = [element("p", element("b", view.heading))]
    for part in view.parts:
        if isinstance(part, View) and part.brief:
            parts.append(_notebook(part))
        elif isinstance(part, Table):
            head, *rows = part.plain()
            parts.append(table(head, rows, caption=part.caption))
        elif isinstance(part, str) and not isinstance(part, Html):
            parts.append(element("p", part))
    return element("div", *parts)


def section(view: View, level: str = "h2", prefix: str = "") -> Html:
    """Return a view as a section of a page.

    Parameters
    ----------
    view : View
    level : str
        The tag of its heading.
    prefix : str
        Of the names of its CSV files, where a page shows several results of a kind.
    """
    parts = [_markup(part, f"h{int(level[1]) + 1}", prefix) for part in view.parts]
    badge = view.badge and element("p", upper_first(view.badge[0]), class_=f"badge {view.badge[1]}")
    return element("section", element(level, view.title), badge, *parts)


def _markup(part: Any, level: str, prefix: str) -> Html | None:
    if isinstance(part, View):
        return section(part, level, prefix)
    if isinstance(part, Table):
        return _page_table(part, prefix)
    if isinstance(part, Figure):
        caption = element("figcaption", part.caption) if part.caption else None
        note = element("p", part.note, class_="note") if part.note else None
        return element("figure", caption, part.draw(), note)
    if part is None or isinstance(part, Judged):
        return None
    if isinstance(part, Html):
        return part
    kinds: dict[type, str] = {Lead: "lead", Note: "note"}
    return element("p", part, class_=kinds.get(type(part)))


def _page_table(part: Table, prefix: str) -> Html:
    rows = [list(map(_cell, row)) for row in part.rows]
    heads = [head if head.startswith("p (") else upper_first(head.strip()) for head in part.heads]
    look = "words" if part.wrapped else "many" * (len(heads) > 2) + " tight" * (len(heads) > 8)
    shown = table(heads, rows, caption=part.caption, class_=look)
    if part.columns is None:
        return shown
    return join([shown, csv_link(part.columns, prefix + part.file)])


def _cell(cell: Any) -> Any:
    """A user's label, or a number whose interval may go to a second line."""
    if isinstance(cell, Name):
        return label(cell, 80)
    if isinstance(cell, Html):
        return cell
    value, bracket, ends = cell.replace(" ± ", "\u00a0±\u00a0").partition(" (")
    return join([f"{value} ", element("wbr"), f"({ends}"]) if bracket else value


def bullets(items: Sequence[Any]) -> Html:
    """Return a list of sentences."""
    return element("ul", *(element("li", item) for item in items))


def facts(rows: Sequence[tuple[str, Any]]) -> Html:
    """Return terms and what they are, one line each."""
    cells = [part for name, value in rows for part in (element("dt", name), element("dd", value))]
    return element("dl", *cells, class_="facts")
