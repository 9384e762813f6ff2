"""HTML in which everything is escaped unless it was built here.

`element` escapes its children and attributes; only text that is already :class:`Html` passes
through. So a label that a user typed cannot become markup by an oversight elsewhere.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import quote


class Html(str):
    """Markup that needs no escaping."""


# Characters no HTML document may hold: most control characters and lone surrogates.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_VOID = frozenset({"meta", "wbr", "path", "circle", "rect"})


def escape(text: Any) -> Html:
    """Text as markup that shows it; markup as it is."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(_FORBIDDEN.sub("\ufffd", str(text)), quote=True))


def element(tag: str, /, *children: Any, **attributes: Any) -> Html:
    """``<tag attributes>children</tag>``; ``class_`` and ``aria_label`` read as in HTML.

    An attribute that is None or False is left out; True stands alone.
    """
    parts = [tag]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        parts.append(key if value is True else f'{key}="{escape(value)}"')
    start = " ".join(parts)
    if not children and tag in _VOID:
        return Html(f"<{start}/>")
    return Html(f"<{start}>{join(children)}</{tag}>")


def join(parts: Sequence[Any], separator: str = "") -> Html:
    """Parts one after the other, each escaped unless it is markup."""
    return Html(escape(separator).join(escape(part) for part in parts if part is not None))


def label(text: Any, limit: int = 200) -> Html:
    """A user's label: isolated from the reading order around it, and cut in sight, not in truth.

    The rest of a long label stands in the tooltip and in every download.
    """
    text = str(text)
    if not text:
        return element("i", "(empty)")
    if len(text) <= limit:
        return element("bdi", text)
    return element("bdi", text[:limit] + "…", title=text)


def table(
    header: Sequence[Any], rows: Sequence[Sequence[Any]], *, caption: str, class_: str = ""
) -> Html:
    """A table whose first column names the row."""
    head = element("tr", *(element("th", h, scope="col") for h in header))
    body = [
        element("tr", element("th", row[0], scope="row"), *(element("td", c) for c in row[1:]))
        for row in rows
    ]
    # A wide table scrolls inside its own box, which the keyboard must be able to reach.
    parts = [element("caption", caption), element("thead", head), element("tbody", *body)]
    inner = element("table", *parts, class_=class_ or None)
    return element("div", inner, class_="scroll", tabindex="0", role="group", aria_label=caption)


def csv_text(columns: Mapping[str, Sequence[Any]]) -> str:
    """Columns as CSV that a spreadsheet does not take for formulas.

    A text that begins like a formula gets a leading apostrophe; numbers are left alone.
    """

    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow([_cell(name) for name in columns])
    writer.writerows(map(_cell, row) for row in zip(*columns.values(), strict=True))
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None or value != value:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = str(value)
        return f"'{text}" if text[:1] in tuple("=+-@\t\r") else text
    # Of a NumPy number the built-in repr, which does not name its type.
    return float.__repr__(value) if isinstance(value, float) else int(value)


def csv_link(columns: Mapping[str, Sequence[Any]], filename: str) -> Html:
    """A link that saves the columns as CSV; it needs neither a network nor a script."""
    # The mark at the front makes spreadsheets read UTF-8.
    data = quote("\ufeff" + csv_text(columns), safe="", errors="replace")
    return element(
        "p",
        element("a", "Save as CSV", href=f"data:text/csv;charset=utf-8,{data}", download=filename),
        class_="download",
    )


def json_block(data: Any, identifier: str) -> Html:
    """Data inside the page for programs; nothing in it can end the block or start another."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{escape(identifier)}">{text}</script>')


def page(title: str, under: Any, body: Sequence[Any], data: Any, script: str | None = None) -> str:
    """Return a document with its style and script inside, and a policy that lets nothing else run.

    Parameters
    ----------
    title : str
    under : str or Html
        The line below it.
    body : sequence of Html or None
    data : JSON values
        What programs may read from the page.
    script : str, optional
        The only script that may run.
    """
    allowed = f"'sha256-{_hash(script)}'" if script else "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; img-src data:"
    parts = {
        "policy": policy, "title": title, "under": under, "style": asset("style.css"),
        "body": join(body), "data": json_block(data, "evenhand-data"),
        "script": Html(f"<script>{script}</script>") if script else None,
    }  # fmt: skip
    return Template(asset("page.html")).substitute({k: join([v]) for k, v in parts.items()})


def asset(name: str) -> Html:
    """A file of the package's assets."""
    return Html(files(__package__).joinpath("assets", name).read_text(encoding="utf-8"))


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
