"""Figures that a piece of code has made, whether or not pyplot knows of them.

`path.plot()` makes one that it does not, so that a server needs no display; sphinx-gallery would
not find it by itself.
"""

from __future__ import annotations

from typing import Any

DPI = 120
_SHOWN = "_shown_on_site"


def new_figures(namespace: dict[str, Any]) -> list[Any]:
    """Those not returned before, pyplot's first."""
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure

    known = [plt.figure(number) for number in plt.get_fignums()]
    known += [value for value in namespace.values() if isinstance(value, Figure)]
    found = []
    for figure in known:
        if not hasattr(figure, _SHOWN):
            setattr(figure, _SHOWN, True)
            found.append(figure)
    return found


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """The figures of a block of an example, saved where sphinx-gallery wants them."""
    import matplotlib.pyplot as plt
    from sphinx_gallery.scrapers import figure_rst

    paths = []
    for figure in new_figures(block_vars["example_globals"]):
        paths.append(next(block_vars["image_path_iterator"]))
        figure.savefig(paths[-1], dpi=DPI)
    plt.close("all")
    return figure_rst(paths, gallery_conf["src_dir"])
