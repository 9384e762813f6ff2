"""The program that every worker runs over its own rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .._kernels import shards
from .._kernels.shards import Workers
from .._kernels.threads import at_most
from .columns import Roles
from .ring import WorkerLostError, ring


@dataclass
class Outcome:
    """How a worker's part of a fit ended.

    Attributes
    ----------
    rank : int
    result : Any
        What the program returned, on worker 0.
    error : tuple or None
        Class and message of what went wrong, here or elsewhere.
    lost : bool
        Whether that was the loss of a worker.
    notes : list
        Warnings of worker 0: (class, text).
    rows, rounds : int
    """

    rank: int
    result: Any = None
    error: tuple[str, str] | None = None
    lost: bool = False
    notes: list[tuple[type[Warning], str]] = field(default_factory=list)
    rows: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class Found:
    """What came of a program: its result, workers and exchanges, and columns by role if named."""

    result: Any
    n_workers: int
    n_rounds: int
    roles: Roles | None


Read = Callable[[], dict[str, Any]]


class Program(Protocol):
    """What every worker runs; it travels to them."""

    def __call__(self, read: Read, workers: Workers, threads: int) -> Any:
        """The result, the same on all; `read` gives the columns of this worker."""


@dataclass(frozen=True)
class FitEstimator:
    """The estimator's own `fit`."""

    estimator: Any

    def __call__(self, read: Read, workers: Workers, threads: int) -> Any:
        return shards.run(workers, lambda: self.estimator.fit(**read()))


def run_program(
    program: Program, read: Read, arguments: dict[str, Any], rank: int, threads: int
) -> Outcome:
    """Run on this worker's rows together with the others; errors are returned, not raised.

    Parameters
    ----------
    program : Program
    read : callable
        The columns of this worker.
    arguments : dict
        Where the others are met.
    rank : int
    threads : int
        That this worker may use.
    """
    out = Outcome(rank)

    def rows() -> dict[str, Any]:
        found = read()
        out.rows = int(found["X"].shape[0])
        return found

    try:
        with (
            at_most(threads),
            ring(arguments, rank) as others,
            warnings.catch_warnings(record=True) as notes,
        ):
            warnings.simplefilter("default")
            result = program(rows, others, threads)
            out.rounds = others.rounds
    except WorkerLostError as error:
        out.error, out.lost = (type(error).__name__, str(error)), True
    except shards.PeerError as error:
        out.error = error.kind, error.text
    except Exception as error:
        out.error = type(error).__name__, str(error)
    else:
        if rank == 0:
            out.result = result
            out.notes = [(note.category, str(note.message)) for note in notes]
    return out


_KINDS = {kind.__name__: kind for kind in (ValueError, TypeError, NotImplementedError, MemoryError)}


def settle(outcomes: list[Outcome]) -> Outcome:
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
