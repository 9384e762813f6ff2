"""A sign of life, also where one is inside of another."""

from __future__ import annotations

import io
import time

import pytest

from evenhand._core import progress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_innermost_speaks_and_the_outer_one_goes_on(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PROGRESS_AFTER", 0.0)
    with progress.waiting("Opening") as say:
        time.sleep(0.3)
        with progress.waiting("Counting"):
            time.sleep(0.3)
        screen.truncate(0)
        time.sleep(0.3)
        assert "Opening" in screen.getvalue()
        assert "Counting" not in screen.getvalue()
        say("Measuring")
        time.sleep(0.3)
    assert "Measuring" in screen.getvalue()
    assert progress._texts == []
    assert progress._sign is None


def test_an_error_ends_it(monkeypatch):
    monkeypatch.setattr("sys.stderr", Screen())
    with pytest.raises(ValueError, match="x"), progress.waiting("Opening"):
        raise ValueError("x")
    assert progress._texts == []
    assert progress._sign is None
