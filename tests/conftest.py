"""Shared data, engines that are started once, and which tests share a worker of xdist."""

import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import evenhand as eh
from evenhand.data.groups import resolve_groups

# Workers of Spark take `python3` otherwise, whichever that is.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# The same examples in each run, and no look at the time that one takes.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("steady")

# Started once a run: their tests share a worker, whichever file they are in.
STARTED_ONCE = ("spark", "dask", "browser")
# Left to `make test-all`: clusters take a minute of CPU time to start and warm up.
SLOW = ("spark", "dask", "research/rivals", "research/distributions")


def pytest_configure(config):
    """Forget compiled kernels when a file of theirs has changed: Numba looks at one file each."""
    if hasattr(config, "workerinput"):
        return
    folder = Path(eh.__file__).parent / "kernels"
    sources = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    stamp, now = folder / "__pycache__" / "sources.sha256", hashlib.sha256(sources).hexdigest()
    if stamp.is_file() and stamp.read_text() == now:
        return
    for path in stamp.parent.glob("*.nb[ci]"):
        path.unlink(missing_ok=True)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(now)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave to `make test-all` what CONTRIBUTING.md lists by its place."""
    for item in items:
        if any(name in item.nodeid.lower() for name in SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep the tests of a file together, so that its fixtures are made once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            engines = (name for name in STARTED_ONCE if name in nodeid.lower())
            return next(engines, nodeid.partition("::")[0])

    return ByFile(config, log)


class Case(NamedTuple):
    """Scores, targets and the keyword arguments that say who belongs where."""

    y: np.ndarray
    s: np.ndarray
    fairness: dict  # sensitive_features and, in some kinds, sample_weight

    @property
    def groups(self):
        return resolve_groups(n_rows=len(self.y), **self.fairness)


KINDS = ("plain", "weights", "proxy", "unknown")


def make_case(kind: str, n_groups: int, n: int = 120, seed: int = 0) -> Case:
    """Groups that differ in mean and spread; see KINDS for what else."""
    rng = np.random.default_rng([seed, n_groups])
    a = np.arange(n) % n_groups
    y = 5.0 + 2.0 * (rng.normal(size=n) * (1 + 0.3 * a) + 0.5 * a)
    s = 0.5 * y + rng.normal(size=n) - 0.4 * a
    fairness: dict = {"sensitive_features": a}
    if kind == "weights":
        fairness["sample_weight"] = rng.uniform(0.2, 3.0, n)
    elif kind == "proxy":
        table = rng.dirichlet(np.ones(n_groups), size=n) + 2.0 * np.eye(n_groups)[a]
        table /= table.sum(axis=1, keepdims=True)
        table[5] = np.nan
        fairness = {
            "sensitive_features": eh.Proxy(table),
            "sample_weight": rng.uniform(0.2, 3.0, n),
        }
    elif kind == "unknown":
        labels = a.astype(float)
        labels[rng.permutation(n)[: n // 5]] = np.nan
        fairness = {"sensitive_features": labels, "sample_weight": rng.uniform(0.2, 3.0, n)}
    return Case(y, s, fairness)


@pytest.fixture
def case():
    """The factory `make_case(kind, n_groups, n, seed)`."""
    return make_case


@pytest.fixture(scope="session")
def regression():
    """(X, y, a): 300 rows, 6 features of which the first two differ by group."""
    rng = np.random.default_rng(7)
    n = 300
    a = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 6)) + 10.0
    X[:, 0] += a
    X[:, 1] *= 1 + 0.5 * a
    y = X @ np.array([1.0, 0.5, -1.0, 0.3, 0.0, 0.2]) + 0.5 * a + rng.normal(size=n)
    return X, y, a


@pytest.fixture(scope="session")
def skip_unless_ci():
    """skip_unless_ci(reason): the one skip of the suite.

    Data files, Chromium and packages with data may be missing on a developer's machine; there a
    test that needs one skips with its name. In CI they must be there, so that it fails instead.
    """

    def skip(reason):
        if os.environ.get("CI"):
            pytest.fail(f"{reason}, and in CI it must be")
        pytest.skip(reason)

    return skip


@pytest.fixture
def needs_file(skip_unless_ci):
    """Skip a test whose data file is not in the folder named by EVENHAND_DATA."""

    def check(*names):
        folder = os.environ.get("EVENHAND_DATA")
        if not folder or not any((Path(folder) / name).is_file() for name in names):
            skip_unless_ci(f"{names[0]} is not in the folder named by EVENHAND_DATA")

    return check


@pytest.fixture(scope="session")
def spark():
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Half the processor time for queries as short as these.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster():
    """The client of two processes of Dask."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as made,
        Client(made) as client,
    ):
        yield client


@pytest.fixture(scope="session")
def chromium(skip_unless_ci):
    """Path of a Chromium that Playwright can drive."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        skip_unless_ci("chromium is not installed (apt-get install chromium)")
    return found
