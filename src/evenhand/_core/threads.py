"""Run a chunk kernel over all rows, on several threads, with sums in a fixed order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Rows a chunk: the unit of summation, so it must not depend on the number of threads.
CHUNK = 32_768
# Rows from which it pays to do independent work over all of them side by side.
PARALLEL_ROWS = 50_000
_most: ContextVar[int | None] = ContextVar("evenhand_threads", default=None)


@contextmanager
def at_most(threads: int) -> Iterator[None]:
    """Use no more threads than these, where nothing else is said: a worker shares its machine."""
    token = _most.set(threads)
    try:
        yield
    finally:
        _most.reset(token)


def n_threads() -> int:
    """Threads to use: EVENHAND_NUM_THREADS, else `at_most`, else the cores of this process."""
    wanted = os.environ.get("EVENHAND_NUM_THREADS")
    if wanted:
        if not wanted.isdigit() or int(wanted) < 1:
            raise ValueError(f"`EVENHAND_NUM_THREADS` must be a positive integer, got {wanted!r}.")
        return int(wanted)
    most = _most.get()
    if most is not None:
        return most
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    # A forked child inherits the cache but not the threads, hence the process number in the key.
    return ThreadPoolExecutor(threads, thread_name_prefix="evenhand")


def run_chunks(
    kernel: Any, n: int, width: int, arguments: tuple[Any, ...], outputs: tuple[Any, ...] = (),
    chunk: int = CHUNK,
) -> NDArray[np.float64]:  # fmt: skip
    """Call ``kernel(start, stop, *arguments[, sums], *outputs)`` for every chunk; add the sums up.

    `width` is the number of sums; with 0 the kernel takes no `sums` argument.
    """
    starts = range(0, n, chunk)
    table = np.zeros((len(starts), width))

    def work(chunks: range) -> None:
        for c in chunks:
            sums = (table[c],) if width else ()
            kernel(starts[c], min(starts[c] + chunk, n), *arguments, *sums, *outputs)

    # Two threads pay from three chunks on; with fewer, not even the setting is looked up.
    threads = min(n_threads(), len(starts)) if len(starts) >= 3 else 1
    if threads <= 1:
        work(range(len(starts)))
    else:
        pool = _pool(threads, os.getpid())
        bounds = np.linspace(0, len(starts), threads + 1).astype(int)
        for job in [pool.submit(work, range(a, b)) for a, b in pairwise(bounds)]:
            job.result()
    return table.sum(axis=0)


@cache
def _blas() -> Any:
    # Looking the libraries up takes milliseconds, so once. scikit-learn brings the package.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _Limit:
    """How many blocks of :func:`one_blas_thread` are open, over all threads, and how to end it."""

    lock = Lock()
    n_open = 0
    limiter: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS on one thread: for small matrices its threads cost more than they give.

    On a busy machine they wait for one another, and a millisecond can become a second. The setting
    is that of the process: the first block sets it and the last one to end restores it.
    """
    with _Limit.lock:
        if _Limit.n_open == 0:
            _Limit.limiter = _blas().limit(limits=1, user_api="blas")
        _Limit.n_open += 1
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.n_open -= 1
            if _Limit.n_open == 0:
                _Limit.limiter.restore_original_limits()
