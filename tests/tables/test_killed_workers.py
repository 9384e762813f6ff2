"""Workers that are killed while they count: the same cells, or an error, and no endless wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenhand.tables.audit_table import cells_of

ROLES = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}
N = 800


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"s": rng.normal(size=N), "y": rng.normal(size=N), "a": rng.choice(["p", "q"], N)}
    )


def caught(part, folder, times):
    """A partition that waits to be killed with its worker, so many times."""
    marks = sorted(Path(folder).iterdir())
    if len(marks) < times and part["s"].iloc[0] == rows()["s"].iloc[0]:
        (Path(folder) / f"{len(marks)}-{os.getpid()}").touch()
        time.sleep(120)
    return part


def kill(folder, times) -> None:
    for k in range(times):
        while not (found := list(Path(folder).glob(f"{k}-*"))):
            time.sleep(0.02)
        os.kill(int(found[0].name.partition("-")[2]), signal.SIGKILL)


def counted(folder, times):
    """A count on two processes of its own, in which one partition kills whoever reads it."""
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    frame = rows()
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as made,
        Client(made),
    ):
        parts = dd.from_pandas(frame, npartitions=4, sort=False)
        table = parts.map_partitions(caught, str(folder), times, meta=frame[:0])
        killer = threading.Thread(target=kill, args=(folder, times), daemon=True)
        killer.start()
        return cells_of(table, **ROLES)


def test_dask_counts_again_what_a_killed_worker_had(tmp_path):
    found = counted(tmp_path, 1)
    assert len(list(tmp_path.iterdir())) == 1
    own = cells_of(rows(), **ROLES)
    assert found.edges == own.edges
    np.testing.assert_array_equal(found.count, own.count)
    np.testing.assert_allclose(found.sums, own.sums, rtol=1e-12, atol=1e-12)


def test_dask_gives_up_on_a_partition_that_kills_every_worker(tmp_path):
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        pytest.raises(ValueError, match=r"`table` cannot be read by Dask: .* 2 different workers"),
    ):
        counted(tmp_path, 2)


# Spark has one master a process, and the tests beside this one have another. Rows that wait hold
# their task long enough to be killed in it; no Python runs in the executors.
_SPARK = """
import os, sys, threading, time
import psutil
from pyspark.sql import SparkSession
from evenhand.tables.audit_table import cells_of

session = (
    SparkSession.builder.master("local-cluster[2,1,512]")
    .config("spark.executor.memory", "512m")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
session.sparkContext.setLogLevel("OFF")
wait = "reflect('java.lang.Thread', 'sleep', CAST(1500 AS BIGINT))"
rows = session.range(0, 2000, 1, 4).selectExpr(
    "CAST(pmod(hash(id), 1000) AS DOUBLE) AS s",
    "CAST(pmod(hash(id + 9), 1000) AS DOUBLE) AS y",
    f"CASE WHEN id % 500 = 7 THEN concat('p', substr({wait}, 9)) ELSE 'q' END AS a",
)
killed = []

def executors():
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            pass
    return found

def kill():
    tracker = session.sparkContext.statusTracker()
    while not killed:
        active = [tracker.getStageInfo(k) for k in tracker.getActiveStageIds()]
        if any(stage is not None and stage.numActiveTasks for stage in active):
            time.sleep(0.5)
            for process in executors()[:1]:
                process.kill()
                killed.append(process.pid)
        time.sleep(0.05)

threading.Thread(target=kill, daemon=True).start()
found = cells_of(rows, y_true="y", y_pred="s", sensitive_features="a")
frame = rows.toPandas()
own = cells_of(frame, y_true="y", y_pred="s", sensitive_features="a")
assert killed
assert found.edges == own.edges
assert (found.count == own.count).all()
print("the same cells", found.n)
session.stop()
"""


def test_spark_counts_again_what_a_killed_executor_had(tmp_path):
    import pyspark

    # Executors write below the home of Spark, which is not to be the installed package.
    for part in Path(pyspark.__file__).parent.iterdir():
        (tmp_path / part.name).symlink_to(part)
    done = subprocess.run(
        [sys.executable, "-c", _SPARK],
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "the same cells 2000" in done.stdout
