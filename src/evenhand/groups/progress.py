"""How far something slow has come, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Seconds after which somebody who waits wants to know.
PROGRESS_AFTER = 2.0


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
