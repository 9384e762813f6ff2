"""Workers that exchange sums through XGBoost's `collective`, and the tracker they meet at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# Seconds that workers have at least to meet: the first thing they do is to load everything.
MEETING = 60


class WorkerLostError(RuntimeError):
    """A worker of the cluster has died, or did not answer in time."""


class Ring:
    """The workers of a job, from inside one of them; see :class:`evenhand._kernels.shards.Workers`.

    Attributes
    ----------
    rounds : int
        Exchanges so far.
    """

    def __init__(self) -> None:
        from xgboost import collective

        self.rank, self.size = collective.get_rank(), collective.get_world_size()
        self.rounds = 0

    def sum(self, values: Vector) -> Vector:
        from xgboost import collective
        from xgboost.core import XGBoostError

        self.rounds += 1
        try:
            return collective.allreduce(np.ascontiguousarray(values), collective.Op.SUM)
        except XGBoostError as error:
            raise WorkerLostError(lost(f"in exchange {self.rounds}")) from error


def lost(when: str) -> str:
    """What is said where a worker does not answer."""
    return (
        f"A worker was lost, or did not answer in time, {when}: the fit has ended. Hint: see the "
        "log of the workers, and fit again; raise `timeout` where one pass over a worker's rows "
        "takes longer."
    )


@contextmanager
def ring(arguments: dict[str, Any], rank: int) -> Iterator[Ring]:
    """Join the others at the tracker, and leave them in the end, whatever has happened to them.

    Parameters
    ----------
    arguments : dict
        Of :class:`Tracker`.
    rank : int
        Which worker this is: sums are in the order of ranks.
    """
    from xgboost import collective
    from xgboost.core import XGBoostError

    try:
        collective.init(dmlc_task_id=f"{rank:08d}", **arguments)
    except XGBoostError as error:
        raise WorkerLostError(lost("before all of them had met")) from error
    try:
        yield Ring()
    finally:
        # Those who are left after a loss cannot take their leave of all.
        with suppress(XGBoostError):
            collective.finalize()


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
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _TRACKER, str(n_workers), host, str(max(limit, MEETING))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            words = self._process.stderr.read().strip().splitlines() or ["it said nothing"]
            self.close()
            raise RuntimeError(
                f"The tracker where workers meet did not start at {host}: {words[-1]}. Hint: "
                "XGBoost must be installed where the scheduler runs: pip install xgboost."
            )
        self.arguments = {**json.loads(line), "dmlc_timeout": limit, "dmlc_retry": 2}

    def close(self) -> None:
        """End it, whoever is still there."""
        self._process.kill()
        self._process.communicate()
