"""What is released: one version number, all dependencies named, a recipe that reads them."""

import ast
import re
import sys
import tomllib
from pathlib import Path

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
