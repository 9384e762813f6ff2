"""Training on rows beyond memory, and on a cluster.

Twenty float32 features. `files`: fits on Parquet larger than the memory allowed, against the same
rows in memory. Each fit has a process of its own. Those on files may hold no more private memory
(RLIMIT_DATA, which the system enforces) than they start with and so many bytes per row, fewer than
the features take: 30 million rows, to compare with as many in memory, and for one model 100
million. Times are of the fit once the rows are there; reading them into the scratch file is in
columns of its own.

`cluster`: two workers against one, and what an exchange takes. Workers are processes of this
machine with one thread each, so that two are to be compared with one; each setting has processes of
its own. Rows are on the workers before the clock starts on Dask; on Spark they are read from
Parquet by each fit. CPU time is that of all processes below this one. Dask sets
MALLOC_TRIM_THRESHOLD_ for its workers, which gives memory back to the system after each large
array; "no trim" is without it (`distributed.nanny.pre-spawn-environ` in its settings).
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import evenhand as eh
from common import Setting, run_apart

Row = dict[str, Any]
FEATURES = [f"x{j}" for j in range(20)]
PART = 1_000_000
MODELS = {
    "ridge, independence": lambda: eh.FairRidge("independence", 1.0),
    "ridge, separation": lambda: eh.FairRidge("separation", 1.0),
    "poisson, independence": lambda: eh.FairGLM("poisson", "independence", 1.0),
}
LARGE = "ridge, independence"
# Bytes per row that a fit on files may hold in memory; its features take 80.
LIMITS = {"ridge, independence": 45, "ridge, separation": 60, "poisson, independence": 72}
# What the limit allows besides rows: batches of Arrow and buffers.
SPARE = 300_000_000


def target_of(model: str) -> str:
    return "claims" if model.startswith("poisson") else "y"


def part(number: int, n: int) -> dict[str, np.ndarray]:
    """Correlated features, the first of which carry the group; a real and a counted target."""
    rng = np.random.default_rng([11, number])
    a = (rng.random(n) < 0.3).astype(np.int8)
    X = rng.standard_normal((n, 20), dtype=np.float32)
    X += 0.5 * X[:, [0]]
    X[:, :4] += np.float32(0.6) * a[:, None]
    score = X[:, :10] @ np.linspace(0.4, 0.04, 10).astype(np.float32)
    y = score + rng.standard_normal(n, dtype=np.float32)
    claims = rng.poisson(np.exp(0.4 * np.clip(score, -4, 4) - 1.0))
    columns = {name: X[:, j] for j, name in enumerate(FEATURES)}
    return {**columns, "y": y, "claims": claims.astype(np.float32), "a": a}


def make(folder: Path, rows: int) -> None:
    """Parquet files of a million rows each."""
    import pyarrow as pa
    from pyarrow import parquet

    for number in range(-(-rows // PART)):
        table = pa.table(part(number, min(PART, rows - number * PART)))
        # Random digits do not compress; other tables would read fewer bytes and decode more.
        parquet.write_table(
            table, folder / f"{number:05}.parquet", compression=None, use_dictionary=False
        )


def status(key: str) -> float:
    """A line of /proc/self/status, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1e6


def from_disk() -> float:
    """GB that this process had to wait for the disk for."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes")) / 1e9


class Clock:
    """Wall and processor seconds since the last look."""

    def __init__(self) -> None:
        self.look()

    def look(self) -> tuple[float, float]:
        now = time.perf_counter(), time.process_time()
        before, self._at = getattr(self, "_at", now), now
        return now[0] - before[0], now[1] - before[1]


def fit_once(model: str, how: str, folder: str, rows: int) -> Row:
    """A fit in this process."""
    from evenhand.training import linear as base

    target = target_of(model)
    files = sorted(map(str, Path(folder).glob("*.parquet")))[: -(-rows // PART)]
    # Kernels are compiled, and Arrow loaded, before anything is limited or timed.
    with tempfile.TemporaryDirectory() as small:
        make(Path(small), 120_000)
        MODELS[model]().fit(small, target, sensitive_features="a", features=FEATURES)
    scan, allowed, before, start = (0.0, 0.0), 0, 0.0, status("VmRSS")
    if how == "memory":
        X, y, a = load(files, target)
        clock = Clock()
        fitted = MODELS[model]().fit(X, y, sensitive_features=a)
    else:
        # Python, NumPy, Arrow and compiled kernels are there before a row is read.
        allowed = int(1e9 * status("VmData") + LIMITS[model] * rows + SPARE)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        inner = base.scanned

        @contextmanager
        def timed(*arguments: Any) -> Any:
            nonlocal scan
            with inner(*arguments) as result:
                scan = clock.look()
                yield result

        base.scanned = timed  # type: ignore[assignment]
        before, clock = from_disk(), Clock()
        fitted = MODELS[model]().fit(files, target, sensitive_features="a", features=FEATURES)
    wall, cpu = clock.look()
    return {
        "model": model, "how": how, "rows": rows, "features": len(FEATURES),
        "features_gb": rows * len(FEATURES) * 4 / 1e9,
        "limit_gb": allowed / 1e9 or "", "start_gb": start, "peak_gb": status("VmHWM"),
        "from_disk_gb": from_disk() - before if allowed else "",
        "scan_seconds": scan[0], "scan_cpu": scan[1], "fit_seconds": wall, "fit_cpu": cpu,
        "iterations": fitted.n_iter_, "evaluations": fitted.n_evaluations_,
        "unfairness": fitted.unfairness_,
    }  # fmt: skip


def load(files: list[str], target: str) -> tuple[Any, Any, Any]:
    """The same rows in memory, read part by part."""
    from pyarrow import parquet

    rows = sum(parquet.read_metadata(file).num_rows for file in files)
    X, y, a = np.empty((rows, 20), np.float32), np.empty(rows), np.empty(rows, np.int8)
    at = 0
    for file in files:
        table = parquet.read_table(file)
        for j, name in enumerate(FEATURES):
            X[at : at + len(table), j] = table[name]
        y[at : at + len(table)] = table[target]
        a[at : at + len(table)] = table["a"]
        at += len(table)
    return X, y, a


def middle(lines: list[Row]) -> Row:
    """One line with the medians of times."""
    times = [f"{what}_{name}" for what in ("scan", "fit") for name in ("seconds", "cpu")]
    return {**lines[0], **{name: median(line[name] for line in lines) for name in times}}


def files(setting: Setting) -> Iterator[Row]:
    """Medians by model and way, and ratios to the fit in memory."""
    small, large = setting.choose((30_000_000, 100_000_000), (200_000, 200_000))
    models = [model for model in MODELS if setting.wants(model)][: setting.choose(None, 1)]
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), large)
        for model in models:
            # By turns, as the machine may be busier at one time than at another; the largest fit
            # has smaller ones before and after it.
            turns, largest = [], []
            for turn in range(setting.choose(2, 1)):
                turns.append(
                    [run_apart(fit_once, model, how, folder, small) for how in ("memory", "files")]
                )
                if turn == 0 and model == LARGE and not setting.quick:
                    largest = [run_apart(fit_once, model, "files", folder, large)]
            memory, on_files = (middle(list(of_turns)) for of_turns in zip(*turns, strict=True))
            for line in (memory, on_files, *largest):
                for name in ("seconds", "cpu"):
                    mine, theirs = (v[f"fit_{name}"] / v["rows"] for v in (line, memory))
                    line[f"ratio_{name}"] = mine / theirs
                    mine += line[f"scan_{name}"] / line["rows"]
                    line[f"ratio_{name}_with_scan"] = mine / theirs
                yield line


# On a cluster -------------------------------------------------------------------------------------

PARTS = 10
EXCHANGES = 500
SINGLE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "EVENHAND_NUM_THREADS")


class Exchanges:
    """Milliseconds of one exchange of 60 numbers, in the place of a model."""

    def fit(self, **rows: Any) -> float:
        from evenhand._core.shards import here

        values = np.ones(60)
        here().add(values)
        began = time.perf_counter()
        for _ in range(EXCHANGES):
            here().add(values)
        return 1e3 * (time.perf_counter() - began) / EXCHANGES


def processor_seconds() -> dict[int, float]:
    """By process, of this one and all that it started."""
    import psutil

    me = psutil.Process()
    result = {}
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            result[process.pid] = times.user + times.system
    return result


class Fits:
    """Wall and processor time of several fits: medians, and the most of one process."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.busiest: list[float] = []

    def __call__(self, function: Callable[[], Any]) -> Any:
        before, began = processor_seconds(), time.perf_counter()
        result = function()
        self.wall.append(time.perf_counter() - began)
        after = processor_seconds()
        spent = [after[pid] - before.get(pid, 0.0) for pid in after]
        self.cpu.append(sum(spent))
        self.busiest.append(max(spent))
        return result

    def line(self, fitted: Any) -> Row:
        return {
            "seconds": median(self.wall), "least_seconds": min(self.wall),
            "cpu": median(self.cpu), "busiest_cpu": median(self.busiest),
            "iterations": fitted.n_iter_, "evaluations": fitted.n_evaluations_,
            "unfairness": fitted.unfairness_, "coef": float(fitted.coef_[0]),
        }  # fmt: skip


def measure(data: Any, small: Any, where: Any, model: str, repeats: int) -> Row:
    """Median of several fits, after one of few rows that loads and compiles everything."""
    from evenhand.distributed import fit
    from evenhand.distributed.fitting import run_dask, run_spark

    make_model, target = MODELS[model], target_of(model)
    columns = {"y": target, "sensitive_features": "a", "features": FEATURES}
    fit(make_model(), small, where, **columns)
    given = dict.fromkeys(("sample_weight", "exposure", "offset", "given"))
    given |= {"y": target, "sensitive_features": "a"}
    run_there = run_spark if type(small).__module__.startswith("pyspark") else run_dask
    exchange = run_there(Exchanges(), small, where, given, FEATURES, 60.0)[0].result
    fits = Fits()
    for _ in range(repeats):
        fitted = fits(lambda: fit(make_model(), data, where, **columns))
    return {
        "workers": fitted.n_workers_, "exchanges": fitted.n_rounds_, "exchange_ms": exchange,
        **fits.line(fitted),
    }  # fmt: skip


def frame_of(number: int, rows: int) -> Any:
    import pandas as pd

    return pd.DataFrame(part(number, rows))


def on_dask(model: str, workers: int, trim: bool, rows: int, repeats: int) -> Row:
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster, wait

    key = "distributed.nanny.pre-spawn-environ"
    environment = dict(dask.config.get(key))
    if not trim:
        environment.pop("MALLOC_TRIM_THRESHOLD_", None)
    with (
        dask.config.set({key: environment}),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, memory_limit=0,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip

        def table(n: int) -> Any:
            made = [dask.delayed(frame_of)(k, n // PARTS) for k in range(PARTS)]
            frame = dd.from_delayed(made, meta=frame_of(0, 1), verify_meta=False).persist()
            wait(frame)
            return frame

        small = table(50_000)
        return measure(table(rows), small, client, model, repeats)


def on_spark(model: str, workers: int, folder: str, rows: int, repeats: int) -> Row:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(f"local[{workers}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.files.maxPartitionBytes", str(2**40))
        .config("spark.sql.files.openCostInBytes", "0")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    files = sorted(map(str, Path(folder).glob("*.parquet")))[: max(rows // 1_000_000, 1)]
    data = spark.read.parquet(*files)
    small = data.limit(50_000).repartition(workers).cache()
    result = measure(data, small, spark, model, repeats)
    spark.stop()
    return result


def in_memory(model: str, rows: int, repeats: int) -> Row:
    make_model, target = MODELS[model], target_of(model)
    parts = [part(k, rows // PARTS) for k in range(PARTS)]
    X = np.concatenate([np.column_stack([p[name] for name in FEATURES]) for p in parts])
    y, a = (np.concatenate([p[name] for p in parts]) for name in (target, "a"))
    del parts
    make_model().fit(X[:50_000], y[:50_000], sensitive_features=a[:50_000])
    fits = Fits()
    for _ in range(repeats):
        fitted = fits(lambda: make_model().fit(X, y, sensitive_features=a))
    return {"workers": 1, **fits.line(fitted)}


def fit_on(engine: str, model: str, workers: int, folder: str, rows: int, repeats: int) -> Row:
    """Time of fits by one engine, in this process and those it starts."""
    warnings.simplefilter("ignore")
    if engine == "memory":
        result = in_memory(model, rows, repeats)
    elif engine == "Spark":
        result = on_spark(model, workers, folder, rows, repeats)
    else:
        result = on_dask(model, workers, engine == "Dask", rows, repeats)
    return {"engine": engine, "model": model, "rows": rows, **result}


def cluster(setting: Setting) -> Iterator[Row]:
    """One and two workers of each engine; `load` is that of the machine right after the fits."""
    rows, repeats = setting.choose((10_000_000, 3), (50_000, 1))
    engines = setting.choose(("memory", "Dask, no trim", "Dask", "Spark"), ("memory", "Dask"))
    # Workers find this module as this process does.
    places = os.pathsep.join(path for path in sys.path if path)
    environment = {**dict.fromkeys(SINGLE, "1"), "PYTHONPATH": places, "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        if setting.wants("Spark") and "Spark" in engines:
            make(Path(folder), rows)
        for engine in filter(setting.wants, engines):
            for model in list(MODELS)[: 1 if engine == "Spark" or setting.quick else 2]:
                alone = None
                for workers in (1,) if engine == "memory" else (1, 2):
                    line = run_apart(
                        fit_on, engine, model, workers, folder, rows, repeats, env=environment
                    )
                    alone = alone or line
                    # What two cores that are free would give, as far as work is shared evenly.
                    share = alone["busiest_cpu"] / line["busiest_cpu"]
                    yield {**line, "load": f"{os.getloadavg()[0]:.1f}",
                           "speedup": alone["seconds"] / line["seconds"],
                           "cpu_speedup": share}  # fmt: skip
