"""Workers that exchange sums through XGBoost's `collective`, and the tracker they meet at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


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
        Of :func:`start_tracker`.
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


def start_tracker(n_workers: int, host: str, timeout: float) -> tuple[Any, dict[str, Any]]:
    """Where workers meet, and what they need to find it."""
    from xgboost.tracker import RabitTracker

    limit = max(1, round(timeout))
    tracker = RabitTracker(n_workers=n_workers, host_ip=host, sortby="task", timeout=limit)
    tracker.start()
    found = dict(tracker.worker_args())
    return tracker, {**found, "dmlc_timeout": limit, "dmlc_retry": 3}


def free_tracker(tracker: Any) -> None:
    """Let it go, though workers may be missing."""
    from xgboost.core import XGBoostError

    with suppress(XGBoostError):
        tracker.free()
