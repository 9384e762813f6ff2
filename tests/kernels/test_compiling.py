"""The first audit: how much is compiled for it, and what a terminal hears of that."""

import gc
import io
import subprocess
import sys

import pytest

from evenhand.kernels.compiling import Compiling


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_is_told_once(terminal, monkeypatch):
    screen, listener = Screen(terminal), Compiling()
    monkeypatch.setattr(sys, "stderr", screen)
    listener.on_start(None)
    listener.on_end(None)
    assert screen.getvalue() == ""  # it has not taken long
    listener.spent = 5.0
    for _ in range(2):
        listener.on_start(None)
        listener.on_end(None)
    assert screen.getvalue().count("compiling, once") == terminal


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_waits_until_all_is_compiled(collects):
    listener = Compiling()
    try:
        (gc.enable if collects else gc.disable)()
        for step in (listener.on_start, listener.on_start, listener.on_end):
            step(None)
            assert not gc.isenabled()
        listener.on_end(None)
        assert gc.isenabled() == collects
    finally:
        gc.enable()


AUDIT = """
import sys
import evenhand as eh
data = eh.datasets.make_bivariate_normal(2000, random_state=0)
eh.audit(data.y, data.s, sensitive_features=data.a)
kernels = {}
for name, module in list(sys.modules.items()):
    if name.startswith("evenhand.kernels"):
        kernels |= {id(k): k for k in vars(module).values() if hasattr(k, "nopython_signatures")}
assert "evenhand.kernels.compiling" in sys.modules  # or nobody is told
print(sum(len(kernel.nopython_signatures) for kernel in kernels.values()))
"""


def test_the_first_audit_needs_few_kernels():
    """15 from an empty cache, with the pieces of kernels; fewer from a full one."""
    out = subprocess.run([sys.executable, "-c", AUDIT], capture_output=True, text=True, check=True)
    assert int(out.stdout) <= 16
