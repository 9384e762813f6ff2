"""Everything on docs/continuous.md, docs/explain.md and docs/monitor.md.

    python research/run.py watch [--quick]

Runs watch_continuous, watch_continuous_belgian, watch_drivers, watch_monitor and watch_imputed one
after the other, each in a process of its own; they write results/watch_*.csv. --quick only shows
that all of them work, and writes its numbers to a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
# Script, and what makes it quick; None where nothing does.
RUNS: dict[str, list[str] | None] = {
    "watch_continuous.py": ["--rows", "2000", "--repeats", "2", "--tests", "4"],
    "watch_continuous_belgian.py": None,
    "watch_drivers.py": ["--repeats", "2"],
    "watch_monitor.py": ["--series", "2"],
    "watch_imputed.py": ["--repeats", "12"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        where = {**os.environ, "EVENHAND_RESULTS": folder} if quick else os.environ
        for script, few in RUNS.items():
            if quick and few is None:
                continue
            began = time.perf_counter()
            words = (few or []) if quick else []
            subprocess.run([sys.executable, HERE / script, *words], check=True, env=where)
            print(f"{script}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
