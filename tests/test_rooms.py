"""The rooms of the package: data flow one way."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import evenhand as eh

ROOT = Path(eh.__file__).parent
# Top to bottom: a room imports from itself and from rooms before it.
ROOMS = (
    "groups", "information", "penalty", "models", "frontier", "auditing", "report", "files",
    "engines", "cli",
)  # fmt: skip
# Beside the rooms: what each may use of them.
BESIDE = {
    "_kernels": ("groups", "information"),
    "boosting": ("groups", "information", "penalty"),
    "datasets": ("groups",),
    "distributed": ("groups", "information", "penalty", "models"),
    "torch": ("groups", "information", "penalty", "models"),
}
# Upward, each inside a function: a result shows or writes itself, and only then is that loaded.
ALLOWED = {
    ("auditing.conditional", "report.controls"): "Conditional.__str__",
    ("auditing.drivers", "report.drivers"): "Drivers.__str__",
    ("auditing.monitoring", "report.monitor"): "Monitor.__str__",
    ("auditing.impact", "report.impact"): "Impact.__str__",
    ("auditing.pricing", "report.pricing"): "Pricing.__str__",
    ("auditing.tolerance", "report.writing"): "Tolerance.to_file",
    ("auditing.verdict", "report.verdict"): "Verdict.__str__",
    ("auditing.result", "report.html"): "Audit.to_html",
    ("auditing.result", "report.plots"): "Audit.plot",
    ("auditing.result", "report.text"): "Audit.__str__",
    ("information.cells", "engines.cell_files"): "Cells.to_file and Cells.from_file",
    ("models.checkpoint", "report.writing"): "Checkpoint",
    ("frontier.path", "report.frontier_page"): "FairnessPath.to_html",
    ("frontier.path", "report.html"): "FairnessPath.to_html",
}


def modules() -> dict[str, Path]:
    out = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        out[".".join(p for p in parts if p != "__init__")] = path
    return out


MODULES = modules()


def imports(name: str) -> list[tuple[str, bool]]:
    """Modules of the package that one imports, and whether at its top level."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    # What only a type checker reads is no import.
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            base = [part for part in base if part]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("evenhand"):
            base = (node.module or "").split(".")[1:]
        else:
            continue
        for alias in node.names:
            both = ".".join([*base, alias.name])
            target = both if both in MODULES else ".".join(base)
            if target in MODULES and target != name:
                found.append((target, id(node) in top))
    return found


def room(name: str) -> str:
    return name.split(".")[0]


def test_every_module_is_in_a_room():
    at_root = {name for name in MODULES if "." not in name and MODULES[name].name != "__init__.py"}
    assert at_root == {"__main__", "boosting", "datasets"}
    assert {room(name) for name in MODULES} - {"__main__", ""} == {*ROOMS, *BESIDE}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_data_flow_one_way(name):
    here = room(name)
    for target, at_top in imports(name):
        there = room(target)
        if (name, target) in ALLOWED:
            assert not at_top, f"{name} must import {target} inside {ALLOWED[name, target]}"
            continue
        if here in ROOMS and there in ROOMS:
            assert ROOMS.index(there) <= ROOMS.index(here), f"{name} imports {target} from below"
        elif here in BESIDE and there in ROOMS:
            assert there in BESIDE[here], f"{name} imports {target}"
        elif here in ROOMS[:-1]:
            assert there in ("_kernels", ""), f"{name} imports {target}"


def test_allowed_imports_are_still_there():
    for name, target in ALLOWED:
        assert target in [t for t, _ in imports(name)], (name, target)


def test_no_module_imports_itself_in_a_circle():
    """Lazy imports included, but for the views that are allowed."""
    graph = {
        name: {
            t
            for t, _ in imports(name)
            if (name, t) not in ALLOWED and MODULES[t].name != "__init__.py"
        }
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
