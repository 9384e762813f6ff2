"""The directive `evidence`: when the tables behind a page were measured, and which are stale.

It is filled when the site is built, so that a page says by itself that the code which it measures
has changed since.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from registry import list_ages


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
