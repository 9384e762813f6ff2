"""What is released: one version number, all dependencies named, a recipe that reads them."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Distributions whose modules have another name.
CALLED = {"sklearn": "scikit-learn", "ibis": "ibis-framework"}
# What comes with another package, or is the caller's own.
WITH_OTHERS = {"triton": "torch", "py4j": "pyspark", "joblib": "scikit-learn", "mlflow": "mlflow"}


def name_of(requirement):
    return re.match(r"[\w-]+", requirement)[0]


def test_packages_that_are_imported_are_named():
    named = {name_of(r) for r in PROJECT["dependencies"]}
    named |= {name_of(r) for extra in PROJECT["optional-dependencies"].values() for r in extra}
    used = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                used.add(node.module.partition(".")[0])
    used -= {*sys.stdlib_module_names, "evenhand"}
    missing = {CALLED.get(m, m) for m in used - WITH_OTHERS.keys()} - named
    assert not missing
    assert all(re.fullmatch(r"[\w-]+(\[[\w,]+\])?>=[\d.]+", r) for r in PROJECT["dependencies"])


def test_the_recipe_takes_version_and_dependencies_from_where_they_stand():
    jinja2, yaml = pytest.importorskip("jinja2"), pytest.importorskip("yaml")
    folder = ROOT / "conda"

    def load_file_regex(load_file, regex_pattern, from_recipe_dir):
        text = (folder / load_file).read_text(encoding="utf-8")
        return re.search(regex_pattern, text, re.MULTILINE)

    def load_file_data(path, from_recipe_dir):
        return tomllib.loads((folder / path).read_text(encoding="utf-8"))

    text = jinja2.Template((folder / "meta.yaml").read_text(encoding="utf-8")).render(
        load_file_regex=load_file_regex, load_file_data=load_file_data, PYTHON="python"
    )
    recipe = yaml.safe_load(text)
    assert recipe["package"] == {"name": "evenhand", "version": eh.__version__}
    wanted = {name_of(r) for r in PROJECT["dependencies"]} | {"python", "typer", "rich", "pyarrow"}
    assert {name_of(r) for r in recipe["requirements"]["run"]} == wanted


def test_hints_to_install_work_from_a_clone_and_from_a_wheel(monkeypatch):
    from importlib import metadata

    from evenhand._core.installing import install_hint

    assert install_hint("pyarrow") == "pip install pyarrow"
    monkeypatch.setattr(metadata, "distribution", lambda name: name)
    assert install_hint("[cli]") == "pip install 'evenhand[cli]'"

    def nothing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", nothing)
    assert install_hint("[cli]") == f"pip install '{ROOT}[cli]'"
    assert (ROOT / "pyproject.toml").is_file()


def test_what_needs_a_package_that_is_not_installed_says_how_to_get_it(monkeypatch, tmp_path):
    """The wheel alone brings no pyarrow, no DuckDB and no onnx."""
    for name in ("pyarrow", "duckdb", "onnx"):
        monkeypatch.setitem(sys.modules, name, None)
    rng = np.random.default_rng(0)
    a, y = rng.integers(0, 2, 60), rng.normal(size=60)
    cells = eh.Cells.from_rows(y, y + a, sensitive_features=a)
    model = eh.FairRidge().fit(y[:, None], y, sensitive_features=a)
    table = tmp_path / "rows.csv"
    table.write_text("y,s,a\n1,2,p\n")
    roles = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}
    for call in (
        cells.to_arrow, lambda: cells.to_file(tmp_path / "x.cells"),
        lambda: eh.Cells.from_file(tmp_path / "x.cells"),
        lambda: eh.FairRidge().fit(table, "y", sensitive_features="a"),
        lambda: eh.audit_table(table, **roles), lambda: eh.onnx.export(model),
    ):  # fmt: skip
        with pytest.raises(ModuleNotFoundError, match=r"Hint: pip install "):
            call()


def test_every_hint_to_install_is_made_in_one_place():
    home = ROOT / "src" / "evenhand"
    found = [path.name for path in home.rglob("*.py") if "pip install" in path.read_text()]
    assert found == ["installing.py"]
    extras = set(re.findall(r"install_hint\(['\"]\[(\w+)\]", "".join(
        path.read_text() for path in home.rglob("*.py"))))  # fmt: skip
    assert extras
    assert extras <= set(PROJECT["optional-dependencies"])
