"""Says on a terminal, once, that kernels are being compiled, where that takes long."""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

from numba.core.event import Listener, register

# Seconds of compiling after which somebody who waits wants to know.
SAID_AFTER = 1.0


class Compiling(Listener):
    """Adds up the time that Numba compiles, and speaks when it starts again after `SAID_AFTER`.

    Kernels that were found in Numba's cache are no events. Garbage is not collected meanwhile: to
    look through all that was imported, again and again, is a fifth of the time and finds nothing.
    """

    spent, began, depth, is_said, collects = 0.0, 0.0, 0, False, True

    def on_start(self, event: Any) -> None:
        self.depth += 1
        if self.depth == 1:
            self.began = time.monotonic()
            self.collects = gc.isenabled()
            gc.disable()
        if self.spent > SAID_AFTER and not self.is_said and sys.stderr.isatty():
            self.is_said = True
            print("evenhand: compiling, once; this takes some seconds.", file=sys.stderr)

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.spent += time.monotonic() - self.began
            (gc.enable if self.collects else gc.disable)()


register("numba:compile", Compiling())
