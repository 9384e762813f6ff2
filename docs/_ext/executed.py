"""The directive `executed`: code that runs when the site is built, above what it prints.

All blocks of a page share their variables. Figures that a block opens are shown below it. So no
number on a page is typed by hand, and a page whose code fails is a warning, which is an error here.
"""

from __future__ import annotations

import contextlib
import io
import traceback
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from figures import DPI, new_figures
from sphinx.util.docutils import SphinxDirective
from sphinx.util.logging import getLogger

log = getLogger(__name__)
FIGURES = "generated"


def run(source: str, namespace: dict[str, Any], place: str) -> str:
    """Run a block; what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, place, "exec"), namespace)
    return printed.getvalue().rstrip()


class Executed(SphinxDirective):
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        source = "\n".join(self.content)
        namespace = self.env.temp_data.setdefault("executed", {"__name__": "__executed__"})
        code = nodes.literal_block(source, source, language="python")
        plt.close("all")
        try:
            printed = run(source, namespace, self.env.docname)
        except Exception:
            log.warning("a block failed:\n%s", traceback.format_exc(), location=self.get_location())
            return [code]
        shown: list[nodes.Node] = [code]
        if printed:
            shown.append(
                nodes.literal_block(printed, printed, language="none", classes=["printed"])
            )
        shown += [self._figure(figure) for figure in new_figures(namespace)]
        plt.close("all")
        return shown

    def _figure(self, figure: Any) -> nodes.Node:
        count = self.env.temp_data["executed_figures"] = (
            self.env.temp_data.get("executed_figures", 0) + 1
        )
        name = f"{self.env.docname.replace('/', '-')}-{count}.png"
        folder = Path(self.env.srcdir) / FIGURES
        folder.mkdir(exist_ok=True)
        figure.savefig(folder / name, dpi=DPI)
        title = figure.get_suptitle() or "Figure drawn by the code above"
        return nodes.image(uri=f"/{FIGURES}/{name}", alt=title)


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("executed", Executed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
