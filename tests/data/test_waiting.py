"""A sign of life, also where one is inside of another."""

from __future__ import annotations

import io
import time

import pytest

from evenhand._core import progress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(screen: Screen, text: str) -> None:
    """Until another thread has drawn it: at once, or when a busy machine comes to it."""
    while text not in screen.getvalue():
        time.sleep(0.01)


def test_the_innermost_speaks_and_the_outer_one_goes_on(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PROGRESS_AFTER", 0.0)
    with progress.waiting("Opening") as say:
        wait_for(screen, "Opening")
        with progress.waiting("Counting"):
            wait_for(screen, "Counting")
        screen.truncate(0)
        wait_for(screen, "Opening")
        screen.truncate(0)
        wait_for(screen, "Opening")
        assert "Counting" not in screen.getvalue()
        say("Measuring")
        wait_for(screen, "Measuring")
    assert progress._sign is None


def test_an_error_ends_it(monkeypatch):
    monkeypatch.setattr("sys.stderr", Screen())
    with pytest.raises(ValueError, match="x"), progress.waiting("Opening"):
        raise ValueError("x")
    assert progress._sign is None
