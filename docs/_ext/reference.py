"""The reference, written from the package itself, and the functions behind formulas.

Writes api/index.rst (one entry for each public name) and api/command-line.rst (the help of each
command) before Sphinx reads its pages, and turns `computed-by` blocks into documentation.
"""

from __future__ import annotations

import os
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from package import COMPUTED_BY, OPTIONAL, RESULTS, definitions, locate, public_names
from sphinx.ext.autodoc.mock import mock
from sphinx.util.nodes import make_refnode

MODULES = {
    "report": "Figures",
    "tables": "Tables where they are",
    "datasets": "Data sets",
    "boosting": "Objectives of boosting libraries",
    "torch": "Networks",
    "distributed": "Training on a cluster",
    "onnx": "Models as ONNX graphs",
}
WIDTH = 104


def heading(text: str, line: str = "-") -> list[str]:
    return [text, line * len(text), ""]


def summary(module: str, names: list[str] | tuple[str, ...]) -> list[str]:
    """A table of names that has a page for each."""
    return [
        f".. currentmodule:: {module}",
        "",
        ".. autosummary::",
        "   :toctree: .",
        "",
        *(f"   {name}" for name in names),
        "",
    ]


def index_page(autodoc_mock_imports: list[str]) -> str:
    lines = [
        *heading("Reference", "="),
        "Every public name, by what it is for. In Python all of them are reached from ``import "
        "evenhand as eh``; each page links to the source. The commands of the shell are on a page "
        "of their own.",
        "",
        ".. toctree::",
        "   :maxdepth: 1",
        "",
        "   command-line",
        "",
    ]
    for title, names in public_names().items():
        lines += [*heading(title), *summary("evenhand", names)]
    lines += heading("Results")
    lines += [
        "What the functions above hand back or raise, and the seam that estimators fill; there is "
        "no need to import these.",
        "",
    ]
    lines += summary(
        "evenhand", [f"~{locate(name)[1].removeprefix('evenhand.')}" for name in RESULTS]
    )
    for name, title in MODULES.items():
        with mock(autodoc_mock_imports):
            module = import_module(f"evenhand.{name}")
            described = [n for n in module.__all__ if callable(getattr(module, n))]
        lines += heading(f"{title}: ``evenhand.{name}``")
        lines += summary(f"evenhand.{name}", described)
    return "\n".join(lines)


def command_page() -> str:
    """The help of each command, as the shell shows it."""
    os.environ |= {"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH), "NO_COLOR": "1"}
    import typer
    from typer.testing import CliRunner

    from evenhand.cli import app

    lines = [
        *heading("Command line", "="),
        "What ``evenhand COMMAND --help`` prints. Files may be CSV, TSV, Parquet or Feather, "
        "compressed or not; nothing is overwritten without ``--force``; models are saved as plain "
        "JSON. Needs the extra ``evenhand[cli]``.",
        "",
    ]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for command in ("", *commands):
        asked = [*([command] if command else []), "--help"]
        found = CliRunner().invoke(app, asked, prog_name="evenhand")
        if found.exit_code != 0:
            raise RuntimeError(f"evenhand {' '.join(asked)} failed:\n{found.output}")
        lines += heading(f"evenhand {command}".strip())
        lines += [".. code-block:: none", "   :class: help", ""]
        lines += [f"   {line}".rstrip() for line in found.output.strip("\n").splitlines()]
        lines += [""]
    return "\n".join(lines)


def write_pages(app: Any, config: Any) -> None:
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    pages = {"index": index_page(config.autodoc_mock_imports), "command-line": command_page()}
    for name, text in pages.items():
        file = folder / f"{name}.rst"
        # An unchanged file keeps its time, so that a second build has nothing to do.
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def computed_by(name: str) -> str:
    """A public name is linked to; anything else is documented on the spot, with its source."""
    public = {n for names in public_names().values() for n in names}
    if name in public:
        role = "class" if name[0].isupper() else "func"
        return f"Computed by :py:{role}:`evenhand.{name}`.\n"
    kind, full = locate(name)
    lines = [f".. auto{kind}:: {full}"]
    if name.partition(".")[0] in RESULTS:  # which the reference documents
        lines.append("   :no-index:")
    return "\n".join([*lines, ""])


def expand(app: Any, docname: str, source: list[str]) -> None:
    """Turn `computed-by` blocks into documentation, and drop optional pages that do not exist."""

    def documented(match: Any) -> str:
        body = "\n".join(computed_by(name) for name in match[1].split())
        return f"```{{eval-rst}}\n{body}\n```"

    def entry(match: Any) -> str:
        app.env.glob_toctrees.add(docname)  # read again when pages come or go
        return f"{match[1]}\n" if (Path(app.srcdir) / f"{match[1]}.md").exists() else ""

    source[0] = OPTIONAL.sub(entry, COMPUTED_BY.sub(documented, source[0]))


def skip_member(
    app: Any, what: str, name: str, thing: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn adds to every estimator for metadata routing."""
    routing = name == "get_metadata_routing" or (name.startswith("set_") and "_request" in name)
    return True if routing else None


def hide_signature(
    app: Any, what: str, name: str, thing: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """Results are made by the package: how they are constructed is nobody's business."""
    if what != "class" or not is_dataclass(thing):
        return None
    private = any(field.name.startswith("_") for field in fields(thing))
    return ("", "") if private or thing.__name__ in RESULTS else None


def resolve(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Find "evenhand.classifiers.LSPC" or "Unreachable" where one thing alone is called that.

    Docstrings name things as they are imported where they stand, which is not where the reference
    has them.
    """
    if node.get("refdomain") != "py":
        return None
    last = node["reftarget"].rpartition(".")[2]
    domain = env.get_domain("py")
    found = [
        full
        for full, entry in domain.objects.items()
        if full.rpartition(".")[2] == last and not entry.aliased
    ]
    if len(found) != 1:
        # What exists and is not on the site stays plain text; what does not exist is an error.
        return contnode if not found and last in definitions() else None
    entry = domain.objects[found[0]]
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, found[0]
    )


def setup(app: Any) -> dict[str, bool]:
    # Before Sphinx looks for pages, among which autosummary looks for names.
    app.connect("config-inited", write_pages)
    app.connect("source-read", expand)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
