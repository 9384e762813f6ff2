"""Dask: partitions stay on their workers, and one task on each of these fits them together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any
from uuid import uuid4

import numpy as np

from .._core.progress import progress
from ..training.source import NUMBERS, Columns
from .workers import (
    OTHERS,
    Outcome,
    Tracker,
    WorkerLostError,
    first_outcome,
    lost,
    rows_of_arrays,
    rows_of_tables,
    run_fit,
)

# Seconds between two looks at who is still there, and for the rest to end after a failure.
PULSE, GRACE = 0.5, 3.0


def run_dask(
    model: Any, data: Any, client: Any, numbers: dict[str, Any], groups: Any, features: Any,
    timeout: float,
) -> tuple[Outcome, int, Columns | None]:  # fmt: skip
    """Fit on every worker that holds rows; see :func:`evenhand.distributed.fit`."""
    from distributed import Client

    if not isinstance(client, Client):
        raise TypeError(
            f"`client_or_spark` must be a distributed.Client for Dask data, got "
            f"{type(client).__name__}."
        )
    given = {**numbers, "sensitive_features": groups}
    columns, dtype = None, None
    if hasattr(data, "npartitions") and hasattr(data, "columns"):
        kinds = {str(name): _kind(dtype) for name, dtype in data.dtypes.items()}
        columns = Columns.read(kinds, features, given, "the table", numbers_only=True)
        single = all(data.dtypes[name] == np.float32 for name in columns.features)
        dtype = np.float32 if single else np.float64
        parts = data[columns.names].to_delayed()
    else:
        if features is not None:
            raise ValueError("`features` must be None for an Array, whose columns have no names.")
        parts = _blocks(data, given)
    return (*_run(client, model, columns, dtype, list(parts), timeout), columns)


def _kind(dtype: Any) -> str:
    import pandas.api.types as types

    number = types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)
    return NUMBERS if number else OTHERS


def _blocks(data: Any, columns: dict[str, Any]) -> list[Any]:
    """Blocks of rows of an Array and of the arrays beside it, each a dict."""
    from dask import delayed

    if data.ndim != 2:
        raise ValueError(f"`data` must have two dimensions, rows and columns, got {data.ndim}.")
    arrays = {"X": data.rechunk({1: -1})}
    for argument, column in columns.items():
        if column is None:
            continue
        if not hasattr(column, "to_delayed") or not hasattr(column, "ndim"):
            raise TypeError(
                f"`{argument}` must be a Dask Array beside an Array, got {type(column).__name__}."
            )
        if hasattr(column, "to_dask_array"):  # a Series
            column = column.to_dask_array()
        if column.ndim > 1:
            column = column.rechunk({1: -1})
        arrays[argument] = column
    counts = {name: array.numblocks[0] for name, array in arrays.items()}
    for name, count in counts.items():
        if count != counts["X"]:
            raise ValueError(
                f"`{name}` must have its rows in the same blocks as the data, got {count} blocks "
                f"beside {counts['X']}. Hint: rechunk both alike."
            )
    flat = {name: array.to_delayed().ravel() for name, array in arrays.items()}
    return [
        delayed(dict)([[name, blocks[k]] for name, blocks in flat.items()])
        for k in range(counts["X"])
    ]


def _run(
    client: Any, model: Any, columns: Columns | None, dtype: Any, parts: list[Any], timeout: float
) -> tuple[Outcome, int]:
    from distributed import wait
    from distributed.comm import get_address_host

    futures = client.compute(parts)
    wait(futures)
    for future in futures:
        if future.status != "finished":
            future.result()  # which raises what happened to it
    places = _places(client, futures)
    job = f"evenhand-{uuid4().hex}"
    host = get_address_host(client.scheduler.address)
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
            return first_outcome(_watch(client, tasks, list(places), advance)), len(places)
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
    parts: list[Any], model: Any, columns: Columns | None, dtype: Any, arguments: dict[str, Any],
    rank: int,
) -> Outcome:  # fmt: skip
    from distributed import get_worker

    def read() -> dict[str, Any]:
        return rows_of_arrays(parts) if columns is None else rows_of_tables(columns, dtype, parts)

    return run_fit(model, read, arguments, rank, get_worker().state.nthreads)


async def _open_tracker(
    job: str, n_workers: int, host: str, timeout: float, dask_scheduler: Any = None
) -> dict[str, Any]:
    tracker = await asyncio.to_thread(Tracker, n_workers, host, timeout)
    if not hasattr(dask_scheduler, "_evenhand_trackers"):
        dask_scheduler._evenhand_trackers = {}
    dask_scheduler._evenhand_trackers[job] = tracker
    return tracker.arguments


async def _close_tracker(job: str, dask_scheduler: Any = None) -> None:
    tracker = dask_scheduler._evenhand_trackers.pop(job, None)
    if tracker is not None:
        await asyncio.to_thread(tracker.close)
