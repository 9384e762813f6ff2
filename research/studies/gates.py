"""Every trick of dressing up a table at every gate of the command line, before and after.

The table fails at each gate when it is plain. Tricks and gates are those of
`tests/cli/test_cli_dressing.py`. The base is the revision named by the variable BASE, by default
the last before gates looked at how a table was dressed; an option that it lacks is a refusal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from common import Setting
from evidence import ROOT
from studies.revisions import Row, probe, two_revisions

BEFORE = "46d958cd"
PROGRAM = """
import json, os, sys, tempfile, types, warnings

warnings.simplefilter("ignore")
import evenhand as eh
from evenhand.cli.app import app
from typer.testing import CliRunner

# What the tests import beside pytest, which the base need not have.
sys.modules["test_cli"] = types.SimpleNamespace(error=None, run=None)
sys.path.insert(0, sys.argv[1])
import test_cli_dressing as tests

os.chdir(sys.argv[2])
eh.Tolerance(independence=tests.LIMIT).to_file(f"limits-{os.getpid()}.toml")
os.rename(f"limits-{os.getpid()}.toml", "limits.toml")
WORDS = {1: "fail", 2: "refused", 4: "not enough data"}

def judge(gate, trick):
    command, *words = tests.GATES[gate]
    table, more = tests.TRICKS[trick](tests.plain()) if trick else (tests.plain(), ())
    if tests.LACKS.get(gate, set()) & {*more}:
        more = ()
    table.assign(t=table["s"] + 1.0).to_csv("t.csv", index=False)
    done = CliRunner().invoke(app, [command, "t.csv", "-s", "s", "-a", "a", *more, *words,
                                    "--estimator", "logistic"])
    said = any(words in " ".join(done.output.split()) for words in tests.SAID)
    return ("pass that says so" if said else "silent pass") if done.exit_code == 0 else (
        WORDS.get(done.exit_code, "defect"))

tricks = ["", *tests.TRICKS][:int(sys.argv[3])]
print(json.dumps([[trick or "none", gate, judge(gate, trick)]
                  for trick in tricks for gate in tests.GATES]))
"""


def run(setting: Setting) -> Iterator[Row]:
    """One row for each trick at each gate."""
    os.environ.setdefault("BASE", BEFORE)
    with two_revisions() as (base, _, source, folder):
        words = str(ROOT / "tests" / "cli"), str(folder), str(setting.choose(1000, 2))
        before, after = (
            probe(PROGRAM, place, folder / cache, *words)
            for place, cache in ((source, "base-cache"), (ROOT, "head-cache"))
        )
    for (trick, gate, then), (_, _, now) in zip(before, after, strict=True):
        yield {"trick": trick, "gate": gate, "base": base, "before": then, "after": now}
