"""The program that every worker runs over its own rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .._kernels import shards
from .._kernels.threads import at_most
from .ring import WorkerLostError, ring


@dataclass
class Outcome:
    """How a worker's part of a fit ended.

    Attributes
    ----------
    rank : int
    model : estimator or None
        The fitted one, of worker 0.
    error : tuple or None
        Class and message of what went wrong, here or elsewhere.
    lost : bool
        Whether that was the loss of a worker.
    notes : list
        Warnings of worker 0: (class, text).
    rows, rounds : int
    """

    rank: int
    model: Any = None
    error: tuple[str, str] | None = None
    lost: bool = False
    notes: list[tuple[type[Warning], str]] = field(default_factory=list)
    rows: int = 0
    rounds: int = 0


def fit_shard(
    estimator: Any, read: Callable[[], dict[str, Any]], arguments: dict[str, Any], rank: int,
    threads: int,
) -> Outcome:  # fmt: skip
    """Fit on this worker's rows together with the others; errors are returned, not raised.

    Parameters
    ----------
    estimator : FairRidge or FairGLM
    read : callable
        The columns of this worker.
    arguments : dict
        Where the others are met.
    rank : int
    threads : int
        That this worker may use.
    """
    out = Outcome(rank)

    def work() -> Any:
        rows = read()
        out.rows = int(rows["X"].shape[0])
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("default")
            model = estimator.fit(**rows)
        out.notes = [(note.category, str(note.message)) for note in found] if not rank else []
        return model

    try:
        with at_most(threads), ring(arguments, rank) as others:
            model = shards.run(others, work)
            out.rounds = others.rounds
    except WorkerLostError as error:
        out.error, out.lost = (type(error).__name__, str(error)), True
    except shards.PeerError as error:
        out.error = error.kind, error.text
    except Exception as error:
        out.error = type(error).__name__, str(error)
    else:
        out.model = model if rank == 0 else None
    return out


_KINDS = {kind.__name__: kind for kind in (ValueError, TypeError, NotImplementedError, MemoryError)}


def settle(outcomes: list[Outcome]) -> Any:
    """The fitted model from how all workers ended, or the error of the one that failed."""
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
    first.model.n_workers_, first.model.n_rounds_ = len(outcomes), first.rounds
    return first.model
