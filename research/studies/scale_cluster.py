"""Fits on a cluster: two workers against one, and what an exchange takes.

Twenty float32 features. Workers are processes of this machine with one thread each, so that two are
to be compared with one; every setting has processes of its own. Rows are on the workers before the
clock starts on Dask; on Spark they are read from Parquet by every fit. Processor time is that of
all processes below this one. Writes results/scale_cluster.csv.

Dask sets MALLOC_TRIM_THRESHOLD_ for its workers, which gives memory back to the system after every
large array; "trim" says whether it did. (`distributed.nanny.pre-spawn-environ` in its settings.)

    python research/run.py scale_cluster --rows 10000000
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

import evenhand as eh
from common import RESULTS, RUN, write
from evenhand.distributed import fit
from evenhand.distributed.fitting import run_on
from studies.scale_training import FEATURES, make, part

MODELS = {
    "ridge, independence": (lambda: eh.FairRidge("independence", 1.0), "y"),
    "ridge, separation": (lambda: eh.FairRidge("separation", 1.0), "y"),
    "poisson, independence": (lambda: eh.FairGLM("poisson", "independence", 1.0), "claims"),
}
PARTS = 10
EXCHANGES = 500
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "EVENHAND_NUM_THREADS")


class Exchanges:
    """Milliseconds of one exchange of 60 numbers."""

    def __call__(self, read: Any, workers: Any, threads: int) -> float:
        values = np.ones(67)
        workers.sum(values)
        began = time.perf_counter()
        for _ in range(EXCHANGES):
            workers.sum(values)
        return 1e3 * (time.perf_counter() - began) / EXCHANGES


def processor_seconds() -> dict[int, float]:
    """By process, of this one and all that it started."""
    me = psutil.Process()
    found = {}
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


class Fits:
    """Wall and processor time of several fits: medians, and the most of one process."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.busiest: list[float] = []

    def __call__(self, function: Callable[[], Any]) -> Any:
        before, began = processor_seconds(), time.perf_counter()
        found = function()
        self.wall.append(time.perf_counter() - began)
        after = processor_seconds()
        spent = [after[pid] - before.get(pid, 0.0) for pid in after]
        self.cpu.append(sum(spent))
        self.busiest.append(max(spent))
        return found

    def line(self, fitted: Any) -> dict[str, Any]:
        return {
            "seconds": median(self.wall), "least_seconds": min(self.wall),
            "cpu": median(self.cpu), "busiest_cpu": median(self.busiest),
            "iterations": fitted.n_iter_, "evaluations": fitted.n_evaluations_,
            "unfairness": fitted.unfairness_, "coef": float(fitted.coef_[0]),
        }  # fmt: skip


def measure(data: Any, small: Any, where: Any, model: str, repeats: int) -> dict[str, Any]:
    """Median of several fits, after one of few rows that loads and compiles everything."""
    make_model, target = MODELS[model]
    columns = {"y": target, "sensitive_features": "a", "features": FEATURES}
    fit(make_model(), small, where, **columns)
    numbers = {"y": target, "sample_weight": None, "exposure": None, "offset": None, "given": None}
    exchange = run_on(Exchanges(), small, where, numbers, "a", FEATURES, 60.0).result
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


def on_dask(model: str, workers: int, trim: bool, rows: int, repeats: int) -> dict[str, Any]:
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


def on_spark(model: str, workers: int, folder: str, rows: int, repeats: int) -> dict[str, Any]:
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
    found = measure(data, small, spark, model, repeats)
    spark.stop()
    return found


def in_memory(model: str, rows: int, repeats: int) -> dict[str, Any]:
    make_model, target = MODELS[model]
    parts = [part(k, rows // PARTS) for k in range(PARTS)]
    X = np.concatenate([np.column_stack([p[name] for name in FEATURES]) for p in parts])
    y, a = (np.concatenate([p[name] for p in parts]) for name in (target, "a"))
    del parts
    make_model().fit(X[:50_000], y[:50_000], sensitive_features=a[:50_000])
    fits = Fits()
    for _ in range(repeats):
        fitted = fits(lambda: make_model().fit(X, y, sensitive_features=a))
    return {"workers": 1, **fits.line(fitted)}


def one(engine: str, model: str, workers: int, folder: str, rows: int, repeats: int) -> None:
    if engine == "memory":
        found = in_memory(model, rows, repeats)
    elif engine == "Spark":
        found = on_spark(model, workers, folder, rows, repeats)
    else:
        found = on_dask(model, workers, engine == "Dask", rows, repeats)
    print(json.dumps({"engine": engine, "model": model, "rows": rows, **found}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--spark-rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS)[:2])
    parser.add_argument(
        "--engines", nargs="+", default=["memory", "Dask, no trim", "Dask", "Spark"]
    )
    parser.add_argument("--keep", action="store_true", help="lines of other engines in the CSV")
    parser.add_argument("--one", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        engine, model, workers, folder, rows, repeats = arguments.one
        one(engine, model, int(workers), folder, int(rows), int(repeats))
        return
    environment = {**os.environ, **dict.fromkeys(THREADS, "1"), "PYTHONWARNINGS": "ignore"}
    lines: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []
    if arguments.keep:
        with (RESULTS / "scale_cluster.csv").open() as file:
            kept = [v for v in csv.DictReader(file) if v["engine"] not in arguments.engines]
        for line in kept:
            line.pop("setting")
    with tempfile.TemporaryDirectory() as folder:
        if "Spark" in arguments.engines:
            make(Path(folder), arguments.spark_rows)
        for engine in arguments.engines:
            rows = arguments.spark_rows if engine == "Spark" else arguments.rows
            models = arguments.models if engine != "Spark" else arguments.models[:1]
            for model in models:
                for workers in (1,) if engine == "memory" else (1, 2):
                    command = [
                        sys.executable, RUN, "scale_cluster", "--one", engine, model, str(workers),
                        folder,                        str(rows), str(arguments.repeats),
                    ]  # fmt: skip
                    done = subprocess.run(
                        command, env=environment, capture_output=True, text=True, timeout=1500
                    )
                    if done.returncode:
                        raise SystemExit(done.stderr[-3000:])
                    line = json.loads(done.stdout.splitlines()[-1])
                    line["load"] = round(os.getloadavg()[0], 1)
                    alone = next(
                        (v for v in lines if (v["engine"], v["model"]) == (engine, model)), line
                    )
                    line["speedup"] = alone["seconds"] / line["seconds"]
                    # What two cores that are free would give, as far as work is shared evenly.
                    line["cpu_speedup"] = alone["busiest_cpu"] / line["busiest_cpu"]
                    lines.append(line)
                    print(line, flush=True)
                    write(
                        "scale_cluster", [*kept, *lines],
                        ["dask", "distributed", "pyspark", "xgboost-cpu"],
                    )  # fmt: skip


if __name__ == "__main__":
    main()
