"""What happens where Numba is missing, and where something else is wrong with the kernels."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import evenhand._kernels as kernels

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "numba":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
import warnings
import numpy as np
import evenhand as eh
rng = np.random.default_rng(0)
a = rng.integers(0, 2, 100)
X = rng.normal(size=(100, 2)) + a[:, None]
y = X[:, 0] + rng.normal(size=100)
"""


def run(code):
    script = HIDE + textwrap.dedent(code)
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return out.stdout


def test_fitters_run_and_say_once_that_they_are_slow():
    out = run("""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                eh.FairRidge().fit(X, y, sensitive_features=a)
        told = [str(w.message) for w in caught if "Numba" in str(w.message)]
        print(len(told), told[0])
        print(eh._kernels.get_kernels().__name__)
    """)
    assert out.endswith("evenhand._kernels.reference\n")
    assert out.startswith("1 Numba is not installed, so passes over rows run in NumPy")
    assert "Hint: install it with `pip install numba`" in out


def test_measures_say_what_to_install():
    out = run("""
        warnings.simplefilter("ignore")
        for estimator in ("auto", "knn"):
            try:
                eh.separation(y, X[:, 0], sensitive_features=a, estimator=estimator)
            except ModuleNotFoundError as error:
                print(error)
    """)
    message = "Measures and audits need Numba, which is not installed. Hint: install it with"
    assert out.count(message) == 2


def test_every_kernel_takes_numba_from_the_module_with_the_message():
    folder = Path(kernels.__file__).parent
    direct = [
        path.name
        for path in folder.glob("*.py")
        if path.name != "_numba.py"
        and any(
            line.startswith(("from numba", "import numba"))
            for line in path.read_text().splitlines()
        )
    ]
    assert direct == []


def test_a_broken_kernel_is_an_error_and_not_a_slowdown(monkeypatch):
    # None in sys.modules makes the import of that module fail as a missing one does.
    monkeypatch.setitem(sys.modules, "evenhand._kernels.compiled", None)
    monkeypatch.delattr(kernels, "compiled", raising=False)
    with pytest.raises(ImportError, match="compiled"):
        kernels.get_kernels.__wrapped__()
