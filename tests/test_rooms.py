"""The rooms of the package: imports flow one way, and the map names every module."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest

import evenhand as eh
from evenhand._core.views import VIEWS

ROOT = Path(eh.__file__).parent
DOCS = Path(__file__).parents[1] / "docs"
TRUNK = ("_core", "kernels", "data", "estimators", "measures")
# What each room may import from besides itself. Audits and training are two branches of one trunk.
ALLOWED = {name: TRUNK[:k] for k, name in enumerate(TRUNK)}
ALLOWED |= {
    "training": TRUNK,
    "auditing": TRUNK,
    "tables": (*TRUNK, "training", "auditing"),
    "report": (*TRUNK, "training", "auditing", "tables"),
    "datasets": TRUNK,
    "boosting": (*TRUNK, "training"),
    "onnx": (*TRUNK, "training"),
    "torch": TRUNK,
    "distributed": (*TRUNK, "training", "boosting"),
    "cli": (*TRUNK, "training", "auditing", "tables", "report", "datasets"),
    "__main__": ("cli",),
    "": (),
}


def find_modules() -> dict[str, Path]:
    out = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        out[".".join(p for p in parts if p != "__init__")] = path
    return out


MODULES = find_modules()


def read_imports(name: str) -> set[str]:
    """Modules of the package that one imports, in functions too; not for type checkers alone."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    out = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in typing_only:
            continue
        if node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
        elif (node.module or "").startswith("evenhand"):
            base = (node.module or "").split(".")[1:]
        else:
            continue
        base = [part for part in base if part]
        for alias in node.names:
            both = ".".join([*base, alias.name])
            out.add(both if both in MODULES else ".".join(base))
    return out - {name}


def room(name: str) -> str:
    return name.split(".")[0]


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_flow_one_way(name):
    here = room(name)
    for target in read_imports(name):
        there = room(target)
        # The root holds the version alone, for pages that name it.
        assert there in ("", here, *ALLOWED[here]), f"{name} imports {target}"


def test_no_module_imports_itself_in_a_circle():
    graph = {
        name: {t for t in read_imports(name) if MODULES[t].name != "__init__.py"}
        for name in MODULES
        if MODULES[name].name != "__init__.py"
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for target in graph.get(name, ()):
                visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_views_are_there(name):
    assert callable(getattr(import_module(f"evenhand.report.{VIEWS[name]}"), name))


def test_map_names_every_module():
    """`python docs/_ext/module_map.py` writes it anew."""
    sys.path.insert(0, str(DOCS / "_ext"))
    module_map = import_module("module_map")
    page = (DOCS / "architecture.md").read_text()
    assert module_map.with_map(page) == page
