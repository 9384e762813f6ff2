"""What studies share: how they are called, data, folds, measures, units of work, timing, pictures.

A unit of work (one fit at one strength, one case of a simulation) is a function of its parameters
alone. Its result is kept in `cache/`, one file each, written whole or not at all, so that a run
that is stopped goes on where it was. Units kept by other code than today's are not used: the folder
of the cache is named after the committed code that the study measures.
"""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from evenhand.data.criteria import INDEPENDENCE, SEPARATION, SUFFICIENCY, TARGET
from evenhand.data.groups import resolve_groups
from evenhand.measures.entropies import estimate_entropies, get_estimator
from evenhand.measures.measures import measure as measure_criterion

SEED = 0
N_FOLDS = 5
ALPHA = 1e-3
LSAC_ROWS = 5_000
CRITERIA = {"independence": INDEPENDENCE, "separation": SEPARATION, "sufficiency": SUFFICIENCY}
Vector = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """How a study was called.

    Attributes
    ----------
    quick : bool
        Few rows, few cases: only shows that the study works.
    jobs : int
        Worker processes.
    results, cache : Path
        Where tables and pictures go, and where units of work are kept.
    only : tuple of str
        Parts to run; all when empty. The rows of other parts stay as they are.
    facts : dict
        What holds for all rows of the table; a study adds to it, and it is written beside them.
    """

    quick: bool
    jobs: int
    results: Path
    cache: Path
    only: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    def choose(self, full: T, quick: T) -> T:
        """Return the first, or in a quick run the second."""
        return quick if self.quick else full

    def wants(self, part: str) -> bool:
        return not self.only or part in self.only

    def alone(self) -> Setting:
        """Return the setting with one process, for what is timed."""
        return replace(self, jobs=1)


# Data ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """A data set as all methods see it: same rows, same folds."""

    name: str
    X: Vector
    y: Vector
    a: NDArray[Any]

    def folds(self) -> Iterator[tuple[Vector, Vector, NDArray[np.intp], NDArray[np.intp]]]:
        """Training and test columns, standardized on the training rows, and the two row sets."""
        from sklearn.model_selection import KFold

        for train, test in KFold(N_FOLDS, shuffle=True, random_state=SEED).split(self.X):
            mean, spread = self.X[train].mean(axis=0), self.X[train].std(axis=0)
            spread = np.where(spread > 0, spread, 1.0)
            yield (self.X[train] - mean) / spread, (self.X[test] - mean) / spread, train, test


@lru_cache
def load(name: str, quick: bool) -> Data:
    """A data set by name.

    "communities": all rows; "black" where racepctblack > 0.5 against all others, race among X.
    "lsac": 5,000 random rows of the 20,800, undergraduate grade, white against all others, race
    among X. "lsac-blind": the same rows without race. "communities-noisy": Communities without the
    racial shares, and in the "black" communities noise of one standard deviation on every feature.
    A quick run has made-up rows under every name, so that it needs no files.
    """
    if quick:
        return _stand_in(name)
    from loaders import load_communities, load_law_school

    rng = np.random.default_rng(SEED)
    if name in ("communities", "communities-noisy"):
        result = load_communities(include_sensitive=name == "communities")
        X = result.X
        if name == "communities-noisy":
            noise = rng.standard_normal(X.shape) * X.std(axis=0)
            X = X + noise * (result.sensitive == "black")[:, None]
        rows = np.arange(len(result.y))
    elif name in ("lsac", "lsac-blind"):
        result = load_law_school(include_sensitive=name == "lsac")
        X = result.X
        rows = np.sort(rng.permutation(len(result.y))[:LSAC_ROWS])
    else:
        raise ValueError(f"no data set {name!r}")
    return Data(name, X[rows], result.y[rows], result.sensitive[rows])


def _stand_in(name: str, n_rows: int = 240, n_columns: int = 6) -> Data:
    rng = np.random.default_rng(SEED)
    member = rng.random(n_rows) < 0.35
    X = rng.standard_normal((n_rows, n_columns)) + member[:, None] * np.linspace(1, 0, n_columns)
    y = X @ np.linspace(1, 0.2, n_columns) + 0.5 * member + rng.standard_normal(n_rows)
    return Data(name, X, y, np.where(member, "a", "b"))


# Measures -----------------------------------------------------------------------------------------


def measure(
    s: Vector, y: Vector, a: NDArray[Any], estimator: Any, target_entropy: float | None = None
) -> dict[str, float]:
    """The three normalized criteria of a score by one estimator, given by name or as it is.

    H(A|Y) is the same for all scores of a data set; where it is known it need not be found again.
    """
    groups = resolve_groups(a, n_rows=len(s))
    if target_entropy is None:
        result = estimate_entropies(
            CRITERIA.values(), {"s": s, "y": y}, groups, get_estimator(estimator)
        )
    else:
        result = estimate_entropies(
            [SUFFICIENCY], {"s": s, "y": y}, groups, get_estimator(estimator)
        )
        result = replace(result, mean={**result.mean, TARGET: target_entropy})
    return {name: result.normalized(criterion) for name, criterion in CRITERIA.items()}


def estimate(y: Any, s: Any, a: Any, estimator: str, cluster: Any = None) -> NDArray[np.float64]:
    """Value, standard error and both ends of the 95 % interval of each criterion, (3, 4)."""
    groups = resolve_groups(a, n_rows=len(s), cluster=cluster)
    result = estimate_entropies(
        CRITERIA.values(), {"s": s, "y": y}, groups, get_estimator(estimator)
    )
    out = [measure_criterion(c, result, 0.95, float("nan"), estimator) for c in CRITERIA.values()]
    return np.array([(m.value, m.stderr, *m.interval) for m in out])


def covers(result: NDArray[np.float64], truth: Any) -> Any:
    """Return whether intervals, the last two columns of `estimate`, hold the truth."""
    return (result[..., 2] <= truth) & (truth <= result[..., 3])


def target_entropy(dataset: str, quick: bool, estimator: str) -> dict[str, Any]:
    """H(A|Y) of a data set by one estimator."""
    data = load(dataset, quick)
    groups = resolve_groups(data.a, n_rows=len(data.y))
    result = get_estimator(estimator).row_losses({"y": data.y}, [TARGET], groups)
    return {"nats": float(result[TARGET].value.mean())}


def r_squared(s: Vector, y: Vector) -> float:
    """1 − mean (y − s)² / Var(y), over all rows at once."""
    return float(1.0 - np.mean((y - s) ** 2) / np.var(y))


# Units of work ------------------------------------------------------------------------------------


def _path(cache: Path, function: Callable[..., Any], parameters: tuple[Any, ...]) -> Path:
    words = "_".join(str(p) for p in parameters if not isinstance(p, Path))
    return cache / function.__name__ / (re.sub(r"[^A-Za-z0-9.+_]+", "-", words) + ".npz")


def cached(cache: Path, function: Callable[..., dict], parameters: tuple[Any, ...]) -> dict:
    """`function(*parameters)`, a dict of arrays and numbers, computed at most once."""
    path = _path(cache, function, parameters)
    if path.exists():
        with np.load(path) as kept:
            return {key: kept[key] for key in kept.files}
    with warnings.catch_warnings():
        # Methods that stop early say so; here their held-out results speak for them.
        warnings.simplefilter("ignore")
        value = function(*parameters)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.stem}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        np.savez(file, **value)
    temporary.replace(path)
    return {key: np.asarray(item) for key, item in value.items()}


def run_all(
    setting: Setting, function: Callable[..., dict], units: Sequence[tuple[Any, ...]], what: str
) -> list[dict]:
    """Results of many units in the order given, in parallel, with a bar on a terminal."""
    units = list(units)
    missing = [u for u in units if not _path(setting.cache, function, u).exists()]
    with progress(what, len(units), len(units) - len(missing)) as advance:
        if setting.jobs == 1 or len(missing) < 2:
            for unit in missing:
                cached(setting.cache, function, unit)
                advance()
        else:
            pool = _workers(setting.jobs)
            waiting = [pool.submit(cached, setting.cache, function, u) for u in missing]
            for done in as_completed(waiting):
                done.result()
                advance()
    return [cached(setting.cache, function, unit) for unit in units]


@lru_cache(maxsize=1)
def _workers(jobs: int) -> ProcessPoolExecutor:
    # Forked workers would inherit the threads of the compiled kernels.
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))


def run_apart(function: Callable[..., T], *arguments: Any, env: dict[str, str] | None = None) -> T:
    """Return `function(*arguments)` of a fresh process, for time and memory of its own."""
    before = {name: os.environ.get(name) for name in env or {}}
    os.environ.update(env or {})
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(function, *arguments).result()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


@contextmanager
def progress(what: str, total: int, done: int = 0) -> Iterator[Callable[[], None]]:
    """A progress bar on a terminal; one line at the end elsewhere."""
    began = time.perf_counter()
    if sys.stderr.isatty() and find_spec("rich"):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(what, total=total, completed=done)
            yield lambda: bar.advance(task)
    else:
        yield lambda: None
        seconds = time.perf_counter() - began
        print(f"{what}: {total} units, {done} kept from before, {seconds:.0f} s", flush=True)


# Timing -------------------------------------------------------------------------------------------


def timed(
    function: Callable[[], Any], repeats: int = 5, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float, Any]:
    """Median time in seconds, its spread (max − min), and the last result."""
    times = []
    for _ in range(repeats):
        began = clock()
        result = function()
        times.append(clock() - began)
    return median(times), max(times) - min(times), result


def scored_rows(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Target, score and group of n rows that are unfair in all three senses."""
    rng = np.random.default_rng(0)
    a = (rng.random(n) < 0.3).astype(int)
    y = rng.standard_normal(n) + 0.5 * a
    s = 0.7 * y + rng.standard_normal(n) + 0.2 * a
    return y, s, a


def growth(sizes: Iterable[float], times: Iterable[float]) -> float:
    """Exponent p of time ~ n^p, by least squares on logarithms."""
    return float(np.polyfit(np.log(list(sizes)), np.log(list(times)), 1)[0])


def cpu_seconds(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each function, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            began = time.process_time()
            function()
            times[name].append(time.process_time() - began)
    return {name: median(taken) for name, taken in times.items()}


def standardized(X: np.ndarray) -> np.ndarray:
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


# Pictures -----------------------------------------------------------------------------------------

# Okabe and Ito's colors, told apart by people with any common color blindness.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PINK, GRAY = "#B8A900", "#0072B2", "#D55E00", "#CC79A7", "#777777"


def new_figure(n_rows: int, n_columns: int, width: float, height: float, **options: Any) -> Any:
    """Figure and a 2-D array of axes in the common style."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "legend.frameon": False,
        }
    )
    return plt.subplots(
        n_rows, n_columns, figsize=(width, height), squeeze=False, layout="constrained", **options
    )


def save_figure(setting: Setting, figure: Any, name: str) -> Path:
    """`name.png`, whole or not at all."""
    import matplotlib.pyplot as plt

    path = setting.results / f"{name}.png"
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=130)
    plt.close(figure)
    temporary.replace(path)
    return path
