"""The program that every worker runs over its own rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from .._core.arrays import Vector
from .._core.installing import install_hint
from .._core.shards import PeerError, run
from .._core.threads import at_most
from ..training.source import NUMBERS, Columns, turn_columns

# ------------------------------------------------------------------------------------------------
# Workers that exchange sums through XGBoost's `collective`, and the tracker they meet at.


# Seconds that workers have at least to meet: the first thing they do is to load everything.
MEETING = 60


class WorkerLostError(RuntimeError):
    """A worker of the cluster has died, or did not answer in time."""


class Ring:
    """The workers of a job, from inside one of them; see :class:`evenhand._core.shards.Workers`.

    Parameters
    ----------
    arguments : dict
        Of :class:`Tracker`, where the others are met.
    rank : int
        Which worker this is: sums are in the order of ranks.

    Attributes
    ----------
    rounds : int
        Exchanges so far.
    """

    def __init__(self, arguments: dict[str, Any], rank: int) -> None:
        from xgboost import collective
        from xgboost.core import XGBoostError

        try:
            collective.init(dmlc_task_id=f"{rank:08d}", **arguments)
        except XGBoostError as error:
            raise WorkerLostError(lost("before all of them had met")) from error
        self.rank, self.size = collective.get_rank(), collective.get_world_size()
        self._collective, self._failure, self.rounds = collective, XGBoostError, 0

    def sum(self, values: Vector) -> Vector:
        collective = self._collective
        self.rounds += 1
        try:
            return collective.allreduce(np.ascontiguousarray(values), collective.Op.SUM)
        except self._failure as error:
            raise WorkerLostError(lost(f"in exchange {self.rounds}")) from error

    def close(self) -> None:
        """Take leave of the others; those who are left after a loss cannot."""
        with suppress(self._failure):
            self._collective.finalize()


def lost(when: str) -> str:
    """What is said where a worker does not answer."""
    return (
        f"A worker was lost, or did not answer in time, {when}: the fit has ended. Hint: see the "
        "log of the workers, and fit again; raise `timeout` where one pass over a worker's rows "
        "takes longer."
    )


# In a process of its own: where a worker is lost the tracker may abort its process, and that must
# not be a scheduler. It ends with its input, that is at the latest with whoever started it.
_TRACKER = """
import json, os, sys
# What XGBoost can do without takes most of the time that loading it takes.
sys.modules.update(dict.fromkeys(["sklearn", "pandas", "pyarrow", "matplotlib", "dask"]))
from xgboost.tracker import RabitTracker

n_workers, host, limit = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
tracker = RabitTracker(n_workers=n_workers, host_ip=host, sortby="task", timeout=limit)
tracker.start()
print(json.dumps(tracker.worker_args()), flush=True)
sys.stdin.read()
os._exit(0)
"""


class Tracker:
    """Where workers meet; `arguments` are what they need to find it."""

    def __init__(self, n_workers: int, host: str, timeout: float) -> None:
        limit = max(1, round(timeout))
        # NumPy's threads are of no use to it.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TRACKER, str(n_workers), host, str(max(limit, MEETING))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            words = self._process.stderr.read().strip().splitlines() or ["it said nothing"]
            self.close()
            raise RuntimeError(
                f"The tracker where workers meet did not start at {host}: {words[-1]}. Hint: "
                f"XGBoost must be installed where the scheduler runs: {install_hint('xgboost')}."
            )
        self.arguments = {**json.loads(line), "dmlc_timeout": limit, "dmlc_retry": 2}

    def close(self) -> None:
        """End it, whoever is still there."""
        self._process.kill()
        self._process.communicate()


# ------------------------------------------------------------------------------------------------
# Which column is what, and a worker's part of a table as the columns of a fit.


# Arguments of `fit` that are columns: of numbers, but for the last.
ARGUMENTS = ("y", "sample_weight", "exposure", "offset", "given", "sensitive_features")


def find_columns(data: Any, features: Any, given: Mapping[str, Any]) -> tuple[Columns, Any]:
    """Columns of a frame of Dask or Spark by what they are for, and the type of its features."""
    types = nw.from_native(data).collect_schema()
    numbers = [name for name, dtype in types.items() if dtype.is_numeric() or dtype == nw.Boolean]
    kinds = dict.fromkeys(types, "text, categories or dates") | dict.fromkeys(numbers, NUMBERS)
    columns = Columns.read(kinds, features, given, "the table", numbers_only=True)
    single = all(types[name] == nw.Float32 for name in columns.features)
    return columns, np.float32 if single else np.float64


def rows_of_tables(columns: Columns, dtype: Any, parts: Sequence[Any]) -> dict[str, Any]:
    """A worker's partitions, pandas frames or Arrow tables, as the arguments of a fit."""

    def column(frame: Any, name: str) -> Any:
        values = frame[name]
        floats = values.dtype in (nw.Float32, nw.Float64)
        return (values if floats else values.cast(nw.Float64)).to_numpy()

    frames = [nw.from_native(part, eager_only=True) for part in parts]
    ends = np.cumsum([0, *map(len, frames)])
    numbers = {argument: names[0] for argument, names in columns.given.items()}
    groups = columns.given.get("sensitive_features", ())
    numbers.pop("sensitive_features", None)
    X = np.empty((ends[-1], len(columns.features)), dtype=dtype)
    out: dict[str, Any] = {argument: np.empty(ends[-1]) for argument in numbers}
    for frame, start, stop in zip(frames, ends[:-1], ends[1:], strict=True):
        turn_columns([column(frame, name) for name in columns.features], X[start:stop])
        for argument, name in numbers.items():
            out[argument][start:stop] = column(frame, name)
    if groups:
        labels = {name: _labels([part[name] for part in parts]) for name in groups}
        out["sensitive_features"] = labels if len(labels) > 1 else labels[groups[0]]
    return {"X": X, **out}


def _labels(columns: list[Any]) -> Any:
    """Labels of all partitions of a worker, which may have none."""
    if not columns:
        return np.empty(0, dtype=object)
    if type(columns[0]).__module__.startswith("pyarrow"):
        import pyarrow as pa

        return pa.chunked_array([chunk for column in columns for chunk in column.chunks])
    import pandas as pd

    # Categories may differ between partitions: their values are what they have in common.
    plain = [c.astype(object) if c.dtype == "category" else c for c in columns]
    return pd.concat(plain, ignore_index=True)


@dataclass
class Outcome:
    """How a worker's part of a fit ended.

    Attributes
    ----------
    rank : int
    result : Any
        The fitted model, on worker 0.
    error : tuple or None
        Class and message of what went wrong, here or elsewhere.
    lost : bool
        Whether that was the loss of a worker.
    notes : list
        Warnings of worker 0: (class, text).
    rounds : int
    """

    rank: int
    result: Any = None
    error: tuple[str, str] | None = None
    lost: bool = False
    notes: list[tuple[type[Warning], str]] = field(default_factory=list)
    rounds: int = 0


def run_fit(
    model: Any, read: Callable[[], dict[str, Any]], arguments: dict[str, Any], rank: int,
    threads: int,
) -> Outcome:  # fmt: skip
    """Fit on this worker's rows together with the others; errors are returned, not raised.

    Parameters
    ----------
    model : estimator
    read : callable
        The columns of this worker.
    arguments : dict
        Where the others are met.
    rank : int
    threads : int
        That this worker may use.
    """
    out = Outcome(rank)
    try:
        with (
            at_most(threads),
            closing(Ring(arguments, rank)) as others,
            warnings.catch_warnings(record=True) as notes,
        ):
            warnings.simplefilter("default")
            result = run(others, lambda: model.fit(**read()))
            out.rounds = others.rounds
    except WorkerLostError as error:
        out.error, out.lost = (type(error).__name__, str(error)), True
    except PeerError as error:
        out.error = error.kind, error.text
    except Exception as error:
        out.error = type(error).__name__, str(error)
    else:
        if rank == 0:
            out.result = result
            out.notes = [(note.category, str(note.message)) for note in notes]
    return out


_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (ValueError, TypeError, NotImplementedError, MemoryError)
}
# Our own errors of values, which are made of more than a text.
_KINDS |= dict.fromkeys(("InputError", "TableError"), ValueError)


def first_outcome(outcomes: list[Outcome]) -> Outcome:
    """How worker 0 ended, or the error of the one that failed."""
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if failed:
        # What the loss of a worker looks like from the others says less than its own error.
        first = min(failed, key=lambda outcome: (outcome.lost, outcome.rank))
        assert first.error is not None
        kind, text = first.error
        if first.lost or kind == WorkerLostError.__name__:
            raise WorkerLostError(text)
        raise _KINDS.get(kind, RuntimeError)(text)
    first = min(outcomes, key=lambda outcome: outcome.rank)
    for category, text in first.notes:
        warnings.warn(text, category, stacklevel=4)
    return first
