"""The map of the package in `docs/architecture.md`: every room, and every module by its first line.

    python docs/_ext/module_map.py

writes it anew from the docstrings; a test compares the page with the tree.
"""

from __future__ import annotations

import ast
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE, SOURCE = TOP / "docs" / "architecture.md", TOP / "src" / "evenhand"
START, END = "<!-- map -->\n", "<!-- end of map -->\n"
ROOMS = (
    "_core", "kernels", "data", "estimators", "measures", "training", "auditing", "tables",
    "report", "cli", "torch", "distributed", "datasets",
)  # fmt: skip


def first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]


def module_map() -> str:
    """Return the map as Markdown."""
    out = []
    folders = sorted({p.parent for p in SOURCE.glob("*/*.py")}, key=lambda p: _place(p.name))
    for folder in folders:
        out += [f"**`{folder.name}/`** {first_line(folder / '__init__.py')}", ""]
        modules = sorted(p for p in folder.glob("*.py") if p.name != "__init__.py")
        out += [f"- `{path.name}`: {first_line(path)}" for path in modules]
        out.append("")
    single = sorted(p for p in SOURCE.glob("*.py") if p.name != "__init__.py")
    return "\n".join(out + [f"- `{path.name}`: {first_line(path)}" for path in single]) + "\n"


def _place(name: str) -> tuple[int, str]:
    return (ROOMS.index(name) if name in ROOMS else len(ROOMS), name)


def with_map(page: str) -> str:
    """Return a page with the map between its marks made anew."""
    before, rest = page.split(START)
    return before + START + "\n" + module_map() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(with_map(PAGE.read_text()))
