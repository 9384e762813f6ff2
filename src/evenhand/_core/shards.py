"""Sums over rows: plain ones in one process, added up over the workers where rows are spread.

Whoever holds rows takes `here()` and asks it for every number that is about all rows. In one
process that is a :class:`Sums`, which returns what it is given. On a cluster every worker runs the
same code over its own rows and `here()` is a :class:`Shard`.

A shard has one primitive, a sum of float64 vectors over the workers. A round of it begins with a
frame of fixed length that says how long the vector is and whether a worker has failed, so that an
error on one worker ends the work of all with its message, wherever in the program each of them is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
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


class Diverged(RuntimeError):
    """Workers asked for different sums at the same time."""


class Sums:
    """Sums over rows that are all in this process: they are what they are."""

    is_shard = False

    def add(self, *values: Any) -> Any:
        """Sums over all rows of numbers and arrays, from those over the rows here.

        Parameters
        ----------
        *values : float or array
            One is returned by itself, several as a tuple; the same shapes come back.
        """
        return values[0] if len(values) == 1 else values

    def total(self, count: int) -> int:
        """A count over all rows."""
        return int(self.add(float(count)))

    def average(self, values: Vector, weight: Vector | None = None) -> float:
        """Σ w·value / Σ w."""
        mass = float(len(values) if weight is None else weight.sum())
        top, bottom = self.add(float(values.sum() if weight is None else weight @ values), mass)
        return float(top / bottom)

    def pool(self, mass: float, mean: float, variance: float) -> tuple[float, float]:
        """Mean and variance over all rows from those of the rows here, whose weights sum to `mass`.

        Without differences of squares.
        """
        return mean, variance

    def least(self, value: float) -> float:
        """The least number over all rows."""
        return value

    def largest(self, value: float) -> float:
        """The largest number over all rows."""
        return value

    def first_row(self, count: int) -> int:
        """Number of the first of the `count` rows here among all rows."""
        return 0

    def gather_objects(self, value: T) -> list[T]:
        """The small objects of all workers, in their order."""
        return [value]

    def refuse(self, what: str, hint: str) -> None:
        """Say that something cannot be had on a cluster; nothing in one process."""


def refusal(what: str, hint: str) -> NotImplementedError:
    """The error of something that cannot be had on a cluster."""
    return NotImplementedError(f"{what} cannot be fitted on a cluster. Hint: {hint}")


class Shard(Sums):
    """Sums over rows of which one worker has some."""

    is_shard = True

    def __init__(self, workers: Workers) -> None:
        self.workers = workers

    def add(self, *values: Any) -> Any:
        """One round for all of them."""
        arrays = [np.asarray(value, dtype=np.float64) for value in values]
        sums = _round(self.workers, np.concatenate([array.ravel() for array in arrays]))
        out: list[Any] = []
        for value, array in zip(values, arrays, strict=True):
            part, sums = sums[: array.size], sums[array.size :]
            is_array = isinstance(value, np.ndarray)
            out.append(part.reshape(array.shape) if is_array else float(part[0]))
        return super().add(*out)

    def gather(self, *values: float) -> NDArray[np.float64]:
        """(workers, values): the numbers of each worker."""
        table = np.zeros((self.workers.size, len(values)))
        table[self.workers.rank] = values
        return np.asarray(self.add(table), dtype=np.float64)

    def pool(self, mass: float, mean: float, variance: float) -> tuple[float, float]:
        table = self.gather(mass, mean, variance)
        share, means, variances = table[table[:, 0] > 0].T
        if not len(share):
            return 0.0, 0.0
        share = share / share.sum()
        whole = float(share @ means)
        return whole, float(share @ (variances + (means - whole) ** 2))

    def least(self, value: float) -> float:
        return float(self.gather(value).min())

    def largest(self, value: float) -> float:
        return float(self.gather(value).max())

    def first_row(self, count: int) -> int:
        return int(self.gather(float(count))[: self.workers.rank].sum())

    def gather_objects(self, value: T) -> list[T]:
        data = np.frombuffer(pickle.dumps(value), dtype=np.uint8)
        lengths = self.gather(float(len(data)))[:, 0].astype(int)
        table = np.zeros((self.workers.size, int(lengths.max())))
        table[self.workers.rank, : len(data)] = data
        # From workers of the same job, as whatever carried the program here was.
        return [
            pickle.loads(line[:length].astype(np.uint8).tobytes())
            for line, length in zip(self.add(table), lengths, strict=True)
        ]

    def refuse(self, what: str, hint: str) -> None:
        raise refusal(what, hint)


ALONE = Sums()
_here: ContextVar[Sums] = ContextVar("evenhand_sums", default=ALONE)
here = _here.get


def run(workers: Workers, work: Callable[[], T]) -> T:
    """Call `work` as one of several workers.

    An error here is raised as :class:`PeerError` on the others, and theirs here.
    """
    token = _here.set(Shard(workers))
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
        _here.reset(token)


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
