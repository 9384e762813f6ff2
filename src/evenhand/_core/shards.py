"""Rows that are spread over several workers: one program on each of them, its sums added up.

Every worker runs the same code over its own rows (its shard) and calls these functions wherever a
number is about all rows. In one process there is nothing to add: they return what they are given.

There is one primitive, a sum of float64 vectors over the workers. A round of it begins with a frame
of fixed length that says how long the vector is and whether a worker has failed, so that an error
on one worker ends the work of all with its message, wherever in the program each of them is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .arrays import Vector

T = TypeVar("T")

# Numbers in the first frame of a round, and what stands before them.
FRAME, HEAD = 64, 3
# Bytes of an error's message that are handed on.
MESSAGE = 4096


class Workers(Protocol):
    """How a worker reaches the others.

    Attributes
    ----------
    rank : int
        Number of this worker, 0 … size − 1; shards are in this order.
    size : int
    """

    rank: int
    size: int

    def sum(self, values: Vector) -> Vector:
        """The sum over all workers of vectors of one length, to the bit the same on each."""


class PeerError(RuntimeError):
    """Another worker has failed; `kind` is the name of its error's class, `text` what it said."""

    def __init__(self, rank: int, kind: str, text: str):
        super().__init__(f"Worker {rank} failed with {kind}: {text}")
        self.rank, self.kind, self.text = rank, kind, text


_workers: ContextVar[Workers | None] = ContextVar("evenhand_workers", default=None)


def active() -> bool:
    """Whether the rows at hand are one shard of several."""
    return _workers.get() is not None


def run(workers: Workers, work: Callable[[], T]) -> T:
    """Call `work` as one of several workers.

    An error here is raised as :class:`PeerError` on the others, and theirs here.
    """
    token = _workers.set(workers)
    try:
        result = work()
        # Whoever is done waits for the rest: one of them may still fail.
        _round(workers, np.zeros(0))
        return result
    except PeerError:
        raise
    except Exception as error:
        _tell(workers, error)
        raise
    finally:
        _workers.reset(token)


@contextmanager
def joined(workers: Workers) -> Iterator[None]:
    """Be one of several workers, among exchanges that are not ours.

    An error cannot be told to workers that may be anywhere: whoever is waiting learns of it when
    this worker leaves.
    """
    token = _workers.set(workers)
    try:
        yield
    finally:
        _workers.reset(token)


class Diverged(RuntimeError):
    """Workers asked for different sums at the same time."""


def _round(workers: Workers, values: Vector) -> Vector:
    frame = np.zeros(HEAD + FRAME)
    count = len(values)
    frame[1:HEAD] = count, float(count) ** 2
    first = values[:FRAME]
    frame[HEAD : HEAD + len(first)] = first
    total = workers.sum(frame)
    if total[0]:
        raise _hear(workers, None)
    # Equal to the square of the mean only where all lengths are the same.
    if workers.size * total[2] != total[1] ** 2:
        raise Diverged(
            "Workers took different paths through the same program. Hint: all of them must run the "
            "same versions on processors of one kind; else rounding differs, and with it where a "
            "search stops."
        )
    if count <= FRAME:
        return total[HEAD : HEAD + count]
    return np.concatenate([total[HEAD:], workers.sum(values[FRAME:])])


def _tell(workers: Workers, error: Exception) -> None:
    """Take part in the round that the others are in, with the news that this worker failed."""
    if isinstance(error, Diverged):
        return
    frame = np.zeros(HEAD + FRAME)
    frame[0] = 1.0
    try:
        workers.sum(frame)
        _hear(workers, error)
    except Exception:
        return  # the others are gone, and the error at hand is what counts


def _hear(workers: Workers, error: Exception | None) -> PeerError:
    """Exchange messages: that of the first worker that failed."""
    failed = np.zeros(workers.size)
    failed[workers.rank] = error is not None
    first = int(np.argmax(workers.sum(failed) > 0))
    letter = np.zeros(MESSAGE)
    if error is not None and workers.rank == first:
        text = f"{type(error).__name__}\n{error}".encode()[:MESSAGE]
        letter[: len(text)] = np.frombuffer(text, dtype=np.uint8)
    text = workers.sum(letter).astype(np.uint8).tobytes().rstrip(b"\0")
    kind, _, words = text.decode(errors="ignore").partition("\n")
    return PeerError(first, kind, words)


def add(*values: Any) -> Any:
    """Sums over all workers of numbers and arrays, in one round; the same shapes come back.

    Parameters
    ----------
    *values : float or array
        One is returned by itself, several as a tuple.
    """
    workers = _workers.get()
    if workers is None:
        return values[0] if len(values) == 1 else values
    arrays = [np.asarray(value, dtype=np.float64) for value in values]
    sums = _round(workers, np.concatenate([array.ravel() for array in arrays]))
    out: list[Any] = []
    for value, array in zip(values, arrays, strict=True):
        part, sums = sums[: array.size], sums[array.size :]
        out.append(part.reshape(array.shape) if isinstance(value, np.ndarray) else float(part[0]))
    return out[0] if len(out) == 1 else tuple(out)


def total(count: int) -> int:
    """A count over all workers."""
    return count if not active() else int(add(float(count)))


def gather(*values: float) -> NDArray[np.float64]:
    """(workers, values): the numbers of each worker; one line in one process."""
    workers = _workers.get()
    if workers is None:
        return np.array([values], dtype=np.float64)
    table = np.zeros((workers.size, len(values)))
    table[workers.rank] = values
    return np.asarray(add(table), dtype=np.float64)


def least(value: float) -> float:
    """The least of all workers' numbers."""
    return float(gather(value).min()) if active() else value


def largest(value: float) -> float:
    """The largest of all workers' numbers."""
    return float(gather(value).max()) if active() else value


def extent(values: NDArray[Any]) -> tuple[float, float]:
    """The least and the largest entry over all workers; infinities where there is none."""
    ends = gather(float(values.min(initial=np.inf)), float(values.max(initial=-np.inf)))
    return float(ends[:, 0].min()), float(ends[:, 1].max())


def first_row(count: int) -> int:
    """Number of this shard's first row among all rows, given how many the shard holds."""
    workers = _workers.get()
    return 0 if workers is None else int(gather(float(count))[: workers.rank].sum())


def average(values: Vector, weight: Vector | None = None) -> float:
    """`numpy.average` over all workers."""
    if not active():
        return float(np.average(values, weights=weight))
    if weight is None:
        top, bottom = add(float(values.sum()), float(len(values)))
    else:
        top, bottom = add(float(weight @ values), float(weight.sum()))
    return float(top / bottom)


def pool(mass: float, mean: float, variance: float) -> tuple[float, float]:
    """Mean and variance over all workers from those of each shard, without differences of squares.

    Parameters
    ----------
    mass : float
        Sum of the shard's weights.
    mean, variance : float
    """
    table = gather(mass, mean, variance)
    share, means, variances = table[table[:, 0] > 0].T
    if not len(share):
        return 0.0, 0.0
    share = share / share.sum()
    whole = float(share @ means)
    return whole, float(share @ (variances + (means - whole) ** 2))


def gather_objects(value: T) -> list[T]:
    """The small objects of all workers, in their order."""
    workers = _workers.get()
    if workers is None:
        return [value]
    data = np.frombuffer(pickle.dumps(value), dtype=np.uint8)
    lengths = gather(float(len(data)))[:, 0].astype(int)
    table = np.zeros((workers.size, int(lengths.max())))
    table[workers.rank, : len(data)] = data
    # From workers of the same job, as whatever carried the program here was.
    return [
        pickle.loads(line[:length].astype(np.uint8).tobytes())
        for line, length in zip(add(table), lengths, strict=True)
    ]


class once(Generic[T]):
    """`functools.cached_property` without its lock, which one worker would hold over a round.

    Python 3.12 has none either.
    """

    def __init__(self, function: Callable[[Any], T]):
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        value: T = self.function(instance)
        instance.__dict__[self.name] = value
        return value


def refusal(what: str, hint: str) -> NotImplementedError:
    """The error of something that cannot be had on a cluster."""
    return NotImplementedError(f"{what} cannot be fitted on a cluster. Hint: {hint}")


def refuse(what: str, hint: str) -> None:
    """Say that something cannot be had on a cluster; nothing in one process."""
    if active():
        raise refusal(what, hint)
