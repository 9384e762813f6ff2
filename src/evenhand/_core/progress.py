"""How far something slow has come, on a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Seconds after which somebody who waits wants to know.
PROGRESS_AFTER = 2.0
# The sign of life that is on the terminal; work inside of other work changes what it says.
_sign: Any = None


@contextmanager
def progress(total: int | None, what: str = "fairness path") -> Iterator[Any]:
    """A function to call after each of `total` steps; if slow, a terminal shows how many are done.

    Its second argument says what the step has come to; None for `total` is no known number.
    """
    done = 0
    with waiting(what) as say:

        def advance(steps: int = 1, note: str = "") -> None:
            nonlocal done
            done += steps
            count = "" if total is None else f", {min(done, total)} of {total}"
            say(f"{what}{count}{note and ': '}{note}")

        yield advance


@contextmanager
def shown(what: str) -> Iterator[Any]:
    """A function of a topic and how things stand there, for work of no known length."""
    topics: dict[str, str] = {}
    with progress(None, what) as advance:

        def show(topic: str, text: str) -> None:
            topics[topic] = text
            advance(0, "; ".join(topics.values()))

        yield show


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """A sign of life on a terminal, if it is slow, for work that cannot be looked into.

    Yields a function that says what is being done now. Inside of another it speaks through that.

    Parameters
    ----------
    what : str
        Without anything a user wrote: it is printed as it is.
    """
    global _sign
    outer, timer = _sign, None
    before = "" if outer is None else outer.status
    if outer is None:
        _sign = _status(what)
        if _sign is not None:
            timer = threading.Timer(PROGRESS_AFTER, _sign.start)
            timer.daemon = True
            timer.start()

    def say(text: str) -> None:
        if _sign is not None:
            _sign.update(text)

    try:
        say(what)
        yield say
    finally:
        if timer is not None:
            timer.cancel()
            timer.join()
            _sign.stop()
            _sign = None
        elif outer is not None:
            outer.update(before)


def _status(what: str) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(file=sys.stderr, markup=False).status(what)
