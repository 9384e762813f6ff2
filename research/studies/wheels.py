"""The wheel, installed without the checkout, with the lowest and the newest dependencies.

`make wheels` builds the source distribution, and the wheel from it, into dist/, and runs this. Each
environment gets the wheel and what its tests need, and runs an import, a first audit, the demo, and
tests copied to an empty folder. Lowest dependencies are the bounds of pyproject.toml taken exactly,
or the first release that has a wheel for that Python. With the newest dependencies it also takes
the time from an empty environment and the wheel alone to the end of a first audit.

An interpreter is `python3.11` and so on, as the path finds it; one that is not there is left out.
WHEELS_FOLDER keeps the environments for another run. Cases are parts of the study: "3.11 lowest".
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from common import Setting

ROOT = Path(__file__).parents[2]
CASES = ("3.11 lowest", "3.11 newest", "3.12 lowest", "3.12 newest", "3.13 lowest", "3.13 newest",
         "3.14 newest")  # fmt: skip
# The first releases with wheels that work on a Python that is younger than the bound.
FIRST_WHEELS = {"3.13": {"numpy": "2.1.0", "pandas": "2.2.3", "pyarrow": "18.0.0",
                         "matplotlib": "3.9.2", "polars": "1.9.0"}}  # fmt: skip
# Rooms of the package once each, in a minute or two; these need no data and no engines.
TESTS = (
    "data/test_sample.py", "data/test_encoding.py", "estimators/test_lspc.py",
    "measures/test_cells.py", "measures/test_measures.py", "auditing/test_verdict.py",
    "auditing/test_planning.py", "training/test_group_features.py", "training/test_model_files.py",
    "cli/test_cli_verdicts.py", "cli/test_cli_privacy.py",
)  # fmt: skip
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "pandas", "polars", "pyarrow")
TIMES = ("install_wall_s", "install_cpu_s", "audit_wall_s", "audit_cpu_s")
EXTRAS = ("cli", "data", "plot")
IMPORT = """
import json, sys, time
began = time.process_time()
import evenhand
took = time.process_time() - began
heavy = {"numpy", "pandas", "pyarrow", "polars", "scipy", "sklearn", "numba"} & {*sys.modules}
print(json.dumps({"import_s": took, "loaded": sorted(heavy)}))
"""
AUDIT = """
import numpy as np, evenhand as eh
rng = np.random.default_rng(0)
a, y = rng.integers(0, 2, 500), rng.normal(size=500)
print(eh.audit(y, y + a, sensitive_features=a).independence.value)
"""


# The oldest Matplotlib calls names that the newest pyparsing says will go; users see nothing of it.
SETTINGS = """[pytest]
pythonpath = tests/cli
markers = slow
filterwarnings =
    error
    ignore:.*deprecated - use:DeprecationWarning:matplotlib
"""


def lowest(python: str) -> list[str]:
    """The bounds of pyproject.toml as constraints for a Python, as in "3.13"."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        data = tomllib.load(file)
    extras = data["project"]["optional-dependencies"]
    wanted = [*data["project"]["dependencies"], *(v for name in EXTRAS for v in extras[name])]
    wanted += [v for v in data["dependency-groups"]["test"] if re.match(r"[\w-]+", v)[0] in TOOLS]
    bounds = dict(re.sub(r"\[.*?\]", "", bound).split(">=") for bound in wanted)
    bounds |= FIRST_WHEELS.get(python, {})
    return [f"{name}=={bound}" for name, bound in bounds.items()]


def make_environment(python: str, case: str, wheel: Path, folder: Path) -> str:
    """The interpreter of an environment with the wheel in it."""
    place = folder / case.replace(" ", "-")
    inside = str(place / "bin" / "python")
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not place.exists():
        subprocess.run([python, "-m", "venv", place], check=True)
        bounds = folder / "lowest.txt"
        bounds.write_text("\n".join(lowest(case.split()[0])))
        held = ["--constraint", str(bounds)] if case.endswith("lowest") else []
        subprocess.run([*pip, f"{wheel}[{','.join(EXTRAS)}]", *TOOLS, *held], check=True)
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True)
    return inside


def time_first_audit(python: str, wheel: Path) -> dict[str, float]:
    """Seconds to make an environment with the wheel, and seconds of a first audit in it."""
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        inside = os.path.join(folder, "new", "bin", "python")
        steps = {
            "install": ([python, "-m", "venv", os.path.join(folder, "new")],
                        [inside, "-m", "pip", "install", "--quiet", str(wheel)]),
            "audit": ([inside, "-c", AUDIT],),
        }  # fmt: skip
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        for name, commands in steps.items():
            began, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
            for command in commands:
                subprocess.run(command, cwd=folder, env=clean, check=True, capture_output=True)
            spent = getrusage(RUSAGE_CHILDREN)
            cpu = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
            out |= {f"{name}_wall_s": time.perf_counter() - began, f"{name}_cpu_s": cpu}
    return out


def try_wheel(inside: str) -> dict[str, Any]:
    """What works in an environment, in an empty folder."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "CI")}
    with tempfile.TemporaryDirectory() as made:
        here = Path(made)

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([inside, *arguments], cwd=here, env=clean, text=True,
                                  capture_output=True, check=False)  # fmt: skip

        said = json.loads(run("-c", IMPORT).stdout)
        audit, demo = run("-c", AUDIT), run("-m", "evenhand", "demo", "--out", "demo")
        shutil.copytree(ROOT / "tests", here / "tests")
        (here / "pytest.ini").write_text(SETTINGS)
        tests = [f"tests/{name}" for name in TESTS if (here / "tests" / name).is_file()]
        tested = run("-m", "pytest", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider",
                     *tests)  # fmt: skip
        versions = run("-m", "pip", "list", "--format", "json").stdout
    last = (tested.stdout.strip() or tested.stderr).splitlines()[-1]
    count = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", last)}
    failed = [line for line in tested.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print(*failed, *(r.stderr[-300:] for r in (audit, demo) if r.returncode), sep="\n", flush=True)
    have = {package["name"]: package["version"] for package in json.loads(versions)}
    names = ("numpy", "scipy", "scikit-learn", "numba", "narwhals", "pandas", "pyarrow")
    return {
        **said, "loaded": " ".join(said["loaded"]), "audit": int(audit.returncode == 0),
        "demo": int(demo.returncode == 0), "passed": count.get("passed", 0),
        "failed": count.get("failed", 0) + count.get("error", 0) + count.get("errors", 0)
        + (tested.returncode != 0 and not count),
        "skipped": count.get("skipped", 0),
        "installed": " ".join(f"{name}={have.get(name, '')}" for name in names),
    }  # fmt: skip


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """One row for each Python and choice of dependencies that can be had here."""
    (wheel,), (source,) = (ROOT.joinpath("dist").glob(end) for end in ("*.whl", "*.tar.gz"))
    setting.facts.update({"wheel_kb": wheel.stat().st_size // 1000,
                      "sdist_kb": source.stat().st_size // 1000})  # fmt: skip
    with tempfile.TemporaryDirectory() as made:
        folder = Path(os.environ.get("WHEELS_FOLDER", made))
        for case in setting.choose(CASES, CASES[1:2]):
            python = shutil.which(f"python{case.split()[0]}")
            if python is None or not setting.wants(case):
                continue
            times = dict.fromkeys(TIMES, "")
            if case.endswith("newest"):
                times = time_first_audit(python, wheel)
            yield {"case": case, **times,
                   **try_wheel(make_environment(python, case, wheel, folder))}  # fmt: skip
