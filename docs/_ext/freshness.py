"""The directive `evidence`: when the tables behind a page were measured, and which are stale.

It is filled when the site is built, so that a page says by itself that the code which it measures
has changed since.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from evidence import find_stale
from registry import STUDIES


def list_ages(page: str) -> list[str]:
    """One line for each table of a page, and more where its rows were not measured at once."""
    out = []
    for study in STUDIES.values():
        if study.page.split(":")[0] == page:
            for stamp, stale in find_stale(study.name, study.sources):
                words = f"measured at {stamp['commit']} ({stamp['date']})"
                out.append(f"{study.name}: {stale or words}.")
    return out


class Evidence(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        items = [
            nodes.list_item("", nodes.paragraph(text=line)) for line in list_ages(self.arguments[0])
        ]
        return [nodes.bullet_list("", *items, classes=["evidence"])]


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("evidence", Evidence)
    # What the history says is not among the files that Sphinx watches.
    return {"version": "1", "parallel_read_safe": True}
