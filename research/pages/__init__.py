"""Pages of evidence, written from the tables in results/: whole pages, and sections of others."""

from __future__ import annotations

from pathlib import Path

from evidence import ROOT

DOCS = ROOT / "docs"


def build_pages() -> dict[Path, str]:
    """Return the text of all pages that are written from tables, in whole or in part."""
    from pages import accuracy, atlas, performance, reproduction
    from pages.sections import SECTIONS, fill

    whole = (accuracy, atlas, performance, reproduction)
    out = {DOCS / f"{page.__name__.split('.')[1]}.md": page.build() for page in whole}
    for name in SECTIONS:
        path = DOCS / f"{name}.md"
        out[path] = fill(name, path.read_text(encoding="utf-8"))
    return out


def write_pages() -> None:
    """Write the pages, and say which of them changed."""
    for path, text in build_pages().items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")
