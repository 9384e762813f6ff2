"""`fit`: a model from rows that are on a cluster of Dask or Spark."""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic
from typing import Any
from uuid import uuid4

import numpy as np
from sklearn.base import clone

from .._core.progress import progress
from .._core.shards import refusal
from .._core.validation import is_number
from ..data.criteria import CONDITIONAL, get_criterion
from ..measures.losses import Loss
from ..training.linear import FairLinear
from ..training.source import Columns
from .workers import (
    ARGUMENTS,
    Outcome,
    Tracker,
    WorkerLostError,
    find_columns,
    first_outcome,
    lost,
    rows_of_tables,
    run_fit,
)

# Seconds between two looks at who is still there, and for the rest to end after a failure.
PULSE, GRACE = 0.5, 3.0


def fit(
    estimator: Any,
    data: Any,
    client_or_spark: Any,
    *,
    y: Any,
    sensitive_features: Any = None,
    sample_weight: Any = None,
    features: Any = None,
    exposure: Any = None,
    offset: Any = None,
    given: Any = None,
    timeout: float = 300.0,
) -> Any:
    """Fit a model on rows that are on a cluster, without moving them.

    The same program runs on every worker that holds rows. Sums over rows are added up over all
    workers through XGBoost's `collective`, so that any number of workers gives the model of one
    process, except for rounding and `tol`.

    Parameters
    ----------
    estimator : FairRidge or FairGLM
        Not fitted itself: the fitted model is a copy. Group features, the conditional criterion and
        quantiles need more of the rows than sums, and are refused.
    data : Dask DataFrame or PySpark DataFrame
    client_or_spark : distributed.Client or SparkSession
    y : str
        Target: the name of a column. So are the following.
    sensitive_features : str or list of str, optional
        Several columns are crossed. Required unless ``fairness_weight=0``.
    sample_weight : str, optional
    features : list of str, optional
        Columns of a DataFrame; by default all that hold numbers and are nothing else.
    exposure, offset, given : str, optional
        For :class:`FairGLM`.
    timeout : float
        Seconds within which each worker must answer in every exchange, and within which all must
        meet at the start (for that, at least a minute).
        The loss of one ends the fit, at the latest some seconds after that time.

    Returns
    -------
    model
        Fitted, with `n_workers_` and `n_rounds_`, the exchanges it took.

    Raises
    ------
    WorkerLostError
        Where a worker died or did not answer.

    See Also
    --------
    evenhand.FairRidge
    evenhand.FairGLM

    Examples
    --------
    >>> import dask.dataframe, distributed, evenhand as eh
    >>> from evenhand.distributed import fit
    >>> client = distributed.Client("scheduler:8786")  # doctest: +SKIP
    >>> claims = dask.dataframe.read_parquet("s3://claims/2026/")  # doctest: +SKIP
    >>> model = fit(
    ...     eh.FairRidge(), claims, client, y="loss", sensitive_features="sex"
    ... )  # doctest: +SKIP
    """
    if not isinstance(estimator, FairLinear):
        raise TypeError(
            "`estimator` must be a FairRidge or a FairGLM to be fitted on a cluster, got "
            f"{type(estimator).__name__}. Hint: boosters have cluster versions of their own; see "
            "the page on clusters."
        )
    values = (y, sample_weight, exposure, offset, given, sensitive_features)
    columns = dict(zip(ARGUMENTS, values, strict=True))
    more = [name for name in ("exposure", "offset", "given") if columns[name] is not None]
    if more and not hasattr(estimator, "family"):
        raise ValueError(f"`{more[0]}` must be None for {type(estimator).__name__}. Hint: FairGLM.")
    model = clone(estimator)
    model._check_parameters()
    refuse_more_than_sums(model)
    if not is_number(timeout, 0.0) or timeout == 0:
        raise ValueError(f"`timeout` must be a positive number of seconds, got {timeout!r}.")
    if y is None:
        raise ValueError("`y` must be given, got None.")
    library = type(data).__module__.split(".")[0]
    there = {"pyspark": run_spark}.get(library, run_dask if library.startswith("dask") else None)
    if there is None:
        raise TypeError(
            "`data` must be a Dask DataFrame or a PySpark DataFrame, got "
            f"{type(data).__name__}. Hint: rows in memory need no cluster."
        )
    first, n_workers, named = there(model, data, client_or_spark, columns, features, float(timeout))
    fitted = first.result
    fitted.n_workers_, fitted.n_rounds_ = n_workers, first.rounds
    fitted.feature_names_in_ = np.array(named.features, dtype=object)
    return fitted


def refuse_more_than_sums(model: FairLinear) -> None:
    """Refuse a model that needs more of its rows than sums over them."""
    loss = getattr(model, "loss_", None)
    if model.group_features is not None:
        what = f"group_features={model.group_features!r}"
        hint = "group_features=None, or fit on a sample of the rows in one process."
    elif get_criterion(model.criterion) == CONDITIONAL:
        what = "criterion='conditional'"
        hint = "criterion='separation' with given=..., one column that stands for the controls."
    # A loss of one's own may take more from the rows than a mean.
    elif loss is not None and (
        type(loss).null_mean is not Loss.null_mean or type(loss).fixed is not Loss.fixed
    ):
        what = f"The {loss.name} loss, whose best constant is no mean,"
        hint = "fit it in one process."
    else:
        return
    raise refusal(what, hint)


# ------------------------------------------------------------------------------------------------
# Dask: partitions stay on their workers, and one task on each of these fits them together.


def run_dask(
    model: Any, data: Any, client: Any, given: dict[str, Any], features: Any, timeout: float
) -> tuple[Outcome, int, Columns]:
    """Fit on every worker that holds rows; see :func:`evenhand.distributed.fit`."""
    from distributed import Client, wait
    from distributed.comm import get_address_host

    if not isinstance(client, Client):
        raise TypeError(
            f"`client_or_spark` must be a distributed.Client for Dask data, got "
            f"{type(client).__name__}."
        )
    if not hasattr(data, "columns"):
        raise TypeError(
            f"`data` must be a Dask DataFrame, got a Dask {type(data).__name__}. Hint: "
            "dask.dataframe.from_dask_array(array, columns=[...])."
        )
    columns, dtype = find_columns(data, features, given)
    futures = client.compute(list(data[columns.names].to_delayed()))
    wait(futures)
    for future in futures:
        if future.status != "finished":
            future.result()  # which raises what happened to it
    places = _places(client, futures)
    job = f"evenhand-{uuid4().hex}"
    scheduler: Any = client.scheduler
    host = get_address_host(scheduler.address)
    arguments = client.run_on_scheduler(_open_tracker, job, len(places), host, timeout)
    tasks = []
    try:
        for rank, (address, held) in enumerate(places.items()):
            tasks.append(
                client.submit(
                    _task, held, model, columns, dtype, arguments, rank, key=f"{job}-{rank}",
                    workers=[address], allow_other_workers=False, pure=False, retries=0,
                )
            )  # fmt: skip
        with progress(None, f"fitting on {len(places)} workers") as advance:
            first = first_outcome(_watch(client, tasks, list(places), advance))
            return first, len(places), columns
    finally:
        client.cancel(tasks, force=True)
        client.run_on_scheduler(_close_tracker, job)


def _places(client: Any, futures: list[Any]) -> dict[str, list[Any]]:
    """Worker → the partitions that it holds, in the order of the first of each."""
    holders = client.who_has(futures)
    places: dict[str, list[Any]] = {}
    for future in futures:
        found = sorted(holders.get(future.key, ()))
        if not found:
            raise WorkerLostError(lost("while the rows were read"))
        already = next((address for address in found if address in places), found[0])
        places.setdefault(already, []).append(future)
    return places


def _watch(
    client: Any, tasks: list[Any], addresses: list[str], advance: Callable[[int, str], None]
) -> list[Outcome]:
    """Wait for all tasks, or for the first to fail, or for the loss of a worker.

    A task that is bound to a lost worker would wait for its return.
    """
    from distributed import CancelledError, wait

    outcomes: dict[int, Outcome] = {}
    failed_at, began = None, monotonic()
    while len(outcomes) < len(tasks):
        # Tasks whose rows were lost with a worker are canceled.
        with suppress(TimeoutError, CancelledError):
            wait([task for k, task in enumerate(tasks) if k not in outcomes], timeout=PULSE)
        for rank, task in enumerate(tasks):
            if rank not in outcomes and task.done():
                outcomes[rank] = _outcome(rank, task)
        advance(0, f"{monotonic() - began:.0f} s")
        there = client.nthreads()
        gone = [
            address
            for rank, address in enumerate(addresses)
            if address not in there and rank not in outcomes
        ]
        if gone:
            raise WorkerLostError(
                f"Worker {', '.join(gone)} was lost during the fit, which has ended. Hint: see its "
                "log (memory is the usual reason), and fit again."
            )
        if failed_at is None and any(outcome.error for outcome in outcomes.values()):
            failed_at = monotonic()
        # The others have been told; one that has hung up does not hear.
        if failed_at is not None and monotonic() - failed_at > GRACE:
            break
    return list(outcomes.values())


def _outcome(rank: int, task: Any) -> Outcome:
    if task.status == "finished":
        found: Outcome = task.result()
        return found
    error = task.exception() if task.status == "error" else WorkerLostError(lost("during the fit"))
    return Outcome(rank, error=(type(error).__name__, str(error)), lost=True)


def _task(
    parts: list[Any], model: Any, columns: Columns, dtype: Any, arguments: dict[str, Any],
    rank: int,
) -> Outcome:  # fmt: skip
    from distributed import get_worker

    def read() -> dict[str, Any]:
        return rows_of_tables(columns, dtype, parts)

    return run_fit(model, read, arguments, rank, get_worker().state.nthreads)


async def _open_tracker(
    job: str, n_workers: int, host: str, timeout: float, dask_scheduler: Any = None
) -> dict[str, Any]:
    tracker = await asyncio.to_thread(Tracker, n_workers, host, timeout)
    vars(dask_scheduler).setdefault("_evenhand_trackers", {})[job] = tracker
    return tracker.arguments


async def _close_tracker(job: str, dask_scheduler: Any = None) -> None:
    tracker = dask_scheduler._evenhand_trackers.pop(job, None)
    if tracker is not None:
        await asyncio.to_thread(tracker.close)


# ------------------------------------------------------------------------------------------------
# Spark: a barrier stage, whose tasks run at the same time, each on its partition.


def run_spark(
    model: Any, data: Any, spark: Any, given: dict[str, Any], features: Any, timeout: float
) -> tuple[Outcome, int, Columns]:
    """Fit on every partition at once; see :func:`evenhand.distributed.fit`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context = getattr(spark, "sparkContext", None)
    if context is None or not hasattr(spark, "createDataFrame"):
        raise TypeError(
            f"`client_or_spark` must be a SparkSession for data of Spark, got "
            f"{type(spark).__name__}."
        )
    columns, dtype = find_columns(data, features, given)
    rows = data.select(*(f"`{name.replace('`', '``')}`" for name in columns.names))
    # All tasks of the stage must find a place at once.
    slots = max(1, context.defaultParallelism // int(context.getConf().get("spark.task.cpus", "1")))
    size = rows.rdd.getNumPartitions()
    if size > slots:
        size = slots
        rows = rows.repartition(size)
    tracker = Tracker(size, str(context.getConf().get("spark.driver.host", "127.0.0.1")), timeout)
    arguments = tracker.arguments

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        def read() -> dict[str, Any]:
            tables = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
            return rows_of_tables(columns, dtype, tables)

        outcome = _spark_task(read, model, arguments, size)
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


def _spark_task(
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


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "failure" in line or "lost" in line), lines[0])[:300]
