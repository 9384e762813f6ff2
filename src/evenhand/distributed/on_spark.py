"""Spark: a barrier stage, whose tasks run at the same time, each on its partition."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..training.source import NUMBERS, Columns
from .workers import (
    OTHERS,
    Outcome,
    Tracker,
    WorkerLostError,
    first_outcome,
    lost,
    rows_of_tables,
    run_fit,
)

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean")


def run_spark(
    model: Any, data: Any, spark: Any, numbers: dict[str, Any], groups: Any, features: Any,
    timeout: float,
) -> tuple[Outcome, int, Columns]:  # fmt: skip
    """Fit on every partition at once; see :func:`evenhand.distributed.fit`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context = getattr(spark, "sparkContext", None)
    if context is None or not hasattr(spark, "createDataFrame"):
        raise TypeError(
            f"`client_or_spark` must be a SparkSession for data of Spark, got "
            f"{type(spark).__name__}."
        )
    types = dict(data.dtypes)
    kinds = {name: _kind(kind) for name, kind in types.items()}
    given = {**numbers, "sensitive_features": groups}
    columns = Columns.read(kinds, features, given, "the table", numbers_only=True)
    single = all(types[name] == "float" for name in columns.features)
    dtype = np.float32 if single else np.float64
    rows = data.select(*(f"`{name.replace('`', '``')}`" for name in columns.names))
    # All tasks of the stage must find a place at once.
    slots = max(1, context.defaultParallelism // int(context.getConf().get("spark.task.cpus", "1")))
    size = rows.rdd.getNumPartitions()
    if size > slots:
        size = slots
        rows = rows.repartition(size)
    host = str(context.getConf().get("spark.driver.host", "127.0.0.1"))
    tracker = Tracker(size, host, timeout)
    arguments = tracker.arguments

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        def read() -> dict[str, Any]:
            tables = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
            return rows_of_tables(columns, dtype, tables)

        outcome = _task(read, model, arguments, size)
        if outcome.lost and outcome.error is not None:
            # One that has hung does not end by itself: Spark ends all tasks of a stage that fails.
            raise WorkerLostError(outcome.error[1])
        yield pa.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome)]})

    try:
        found = rows.mapInArrow(work, "outcome binary", barrier=True).collect()
    except (PySparkException, Py4JError) as error:
        missing = re.search(r"ModuleNotFoundError: (No module named '[\w.]+')", str(error))
        if missing:
            raise ImportError(
                f"The Python of Spark's workers lacks a package: {missing[1]}. Hint: install "
                "evenhand[spark] there, and set the environment variable PYSPARK_PYTHON to that "
                "Python before the session begins."
            ) from error
        raise WorkerLostError(f"{lost('during the fit')} Spark says: {_short(error)}") from error
    finally:
        tracker.close()
    return first_outcome([pickle.loads(row["outcome"]) for row in found]), size, columns


def _task(
    read: Callable[[], dict[str, Any]], model: Any, arguments: dict[str, Any], size: int
) -> Outcome:
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    if len(context.getTaskInfos()) != size:
        # Adaptive execution may change its mind between two readings of a query.
        text = (
            f"`data` must keep its partitions: there were {size} when the fit began and are "
            f"{len(context.getTaskInfos())} now. Hint: data.cache(), or data.repartition({size})."
        )
        return Outcome(context.partitionId(), error=("ValueError", text))
    threads = context.cpus() if hasattr(context, "cpus") else 1
    return run_fit(model, read, arguments, context.partitionId(), threads)


def _kind(dtype: str) -> str:
    return NUMBERS if dtype in _NUMBERS or dtype.startswith("decimal") else OTHERS


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "failure" in line or "lost" in line), lines[0])[:300]
