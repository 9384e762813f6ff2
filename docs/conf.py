"""The site: `make docs`, or python -m sphinx -M html docs docs/_build -W --keep-going."""

import os
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
sys.path.insert(0, str(Path(__file__).parents[1] / "research"))

import evenhand

project = "evenhand"
author = "The evenhand developers"
copyright = author
version = release = evenhand.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "executed",
    "freshness",
    "reference",
]
exclude_patterns = ["_build", "_ext", "_templates", "**/README.*", "**sg_execution_times.rst"]
templates_path = ["_templates"]
nitpicky = True

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autosummary_generate = True
# Beside evenhand.Audit, on file systems that do not tell capitals apart.
autosummary_filename_map = {"evenhand.audit": "evenhand.audit-function"}
# Its pages need its docstrings, not PyTorch itself.
autodoc_mock_imports = [name for name in ("torch", "triton") if not find_spec(name)]
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
numpydoc_show_class_members = False
numpydoc_attributes_as_param_list = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    # An example of an extra that is not installed where the site is built is left out.
    "ignore_pattern": r"__init__\.py" if find_spec("torch") else r"__init__\.py|plot_network\.py",
    "within_subsection_order": "ExampleTitleSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 0,
    "backreferences_dir": None,
    "image_scrapers": ("figures.scrape",),
    "remove_config_comments": True,
    "notebook_images": False,
}
# Links to other projects need the network, and a site must build without: EVENHAND_ONLINE=1.
intersphinx_mapping = {}
if os.environ.get("EVENHAND_ONLINE"):
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scikit-learn": ("https://scikit-learn.org/stable", None),
    }
# The addresses stand once, under [project.urls] of pyproject.toml: `Repository`, such as
# https://github.com/OWNER/NAME, gives pages an edit link, `Documentation` a picture where they are
# shared. There is neither yet.
with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
    urls = tomllib.load(file)["project"].get("urls", {})
html_baseurl = urls.get("Documentation", "")
repository = urls.get("Repository", "").rstrip("/")
if repository:
    host, owner, name = repository.rsplit("/", 2)
    html_context = {
        "github_url": host, "github_user": owner, "github_repo": name,
        "github_version": "main", "doc_path": "docs",
    }  # fmt: skip

# The home page stands alone; all others have the side bar of their tab.
html_sidebars = {"index": []}

html_theme = "pydata_sphinx_theme"
html_title = "evenhand"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 5,
    "logo": {
        "text": "evenhand",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
    },
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_nav_level": 1,
    # The table of goals is as wide as the page.
    "secondary_sidebar_items": {
        "**": ["page-toc", "edit-this-page"] if repository else ["page-toc"],
        "measured": [],
    },
    "navigation_with_keys": False,
    "use_edit_page_button": bool(repository),
}


def setup(app):
    app.connect("autodoc-process-docstring", skip_without_torch)
    app.connect("html-page-context", add_card)


def add_card(app, pagename, templatename, context, doctree):
    """The picture of a page where it is shared: such pictures need a whole address."""
    if html_baseurl:
        picture = f"{html_baseurl.rstrip('/')}/_static/report.png"
        context["metatags"] = context.get("metatags", "") + (
            f'<meta property="og:image" content="{picture}">'
        )


def skip_without_torch(app, what, name, obj, options, lines):
    """Examples of networks run where torch is; a mock cannot run them."""
    if name.startswith("evenhand.torch") and "torch" in autodoc_mock_imports:
        for k, line in enumerate(lines):
            if line.lstrip().startswith(">>>"):
                lines[k] = f"{line.split('  # doctest:')[0]}  # doctest: +SKIP"
