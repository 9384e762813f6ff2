"""Losses that end, or hold up, the worker whose rows hold a mark."""

from __future__ import annotations

import os
import signal
import time

from evenhand.measures.losses import LINKS, PowerLoss

MARK = 77.0


class Deadly(PowerLoss):
    """Squares; in its third pass `how` happens to the worker with a target of MARK."""

    def __init__(self, how):
        super().__init__("deadly", 0.0, LINKS["identity"])
        self.how, self.calls = how, 0

    def evaluate(self, y, eta):
        self.calls += 1
        if self.calls == 3 and (y == MARK).any():
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "asleep":
                time.sleep(60)
            else:
                raise RuntimeError("no space left on this worker")
        return super().evaluate(y, eta)
