"""How far something slow has come, on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Seconds after which somebody who waits wants to know.
PROGRESS_AFTER = 2.0
# The sign of life that is on the terminal; work inside of other work changes what it says.
_sign: Any = None


@contextmanager
def progress(total: int | None, what: str = "fairness path") -> Iterator[Any]:
    """A function to call after each of `total` steps; shows a bar on a terminal if it is slow.

    Its second argument says what the step has come to; None for `total` is no known number.
    """
    began, done = time.monotonic(), 0
    bar: Any = None
    task: Any = None

    def advance(steps: int = 1, note: str = "") -> None:
        nonlocal bar, task, done
        done += steps
        if bar is None and time.monotonic() - began > PROGRESS_AFTER and sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import Progress
            except ImportError:
                return
            bar = Progress(console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(what, total=total)
        if bar is not None and task is not None:
            bar.update(task, completed=done, description=f"{what}{note and ': '}{note}")

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


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
