"""Run studies by name, write the pages made from their tables, or say what is out of date.

    python research/run.py NAME ... [--quick] [--only PART ...] [--fresh] [--jobs N] [--out DIR]
    python research/run.py all ...
    python research/run.py --list | --stale | --pages

A study yields rows; this script stamps them and writes results/NAME.csv. With --only the rows of
other parts stay as they are, with their own stamps. --quick runs a small version, and writes to
cache/ and not to results/.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from evidence import (
    HERE,
    RESULTS,
    find_stale,
    fingerprint,
    make_stamp,
    read_facts,
    read_table,
    write_table,
)
from registry import STUDIES, Study

THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "EVENHAND")


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of studies, or all")
    parser.add_argument("--quick", action="store_true", help="small, to see that all of it works")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="parts of a study")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs kept")
    parser.add_argument("--jobs", type=int, help="worker processes; by default all cores")
    parser.add_argument("--out", type=Path, help="folder of tables and pictures")
    parser.add_argument("--list", action="store_true", help="all studies, and their pages")
    parser.add_argument(
        "--stale", action="store_true", help="tables older than what they measure; fails if any"
    )
    parser.add_argument("--pages", action="store_true", help="write the pages from the tables")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in (*STUDIES, "all")]
    if unknown:
        parser.error(f"no study {', '.join(unknown)}; there are {', '.join(STUDIES)}")
    if len(chosen.names) > 1 and chosen.only:
        parser.error("`--only` must come with one study")
    return chosen


def run_study(study: Study, chosen: argparse.Namespace) -> Path:
    """Run one study in this process and write its table."""
    if study.threads == 1:
        # Before NumPy is loaded: workers are processes, and each takes one core.
        for name in THREADS:
            os.environ.setdefault(f"{name}_NUM_THREADS", "1")
    from common import Setting

    results = chosen.out or (HERE / "cache" / "quick-results" if chosen.quick else RESULTS)
    cache = (chosen.out or HERE) / "cache" / ("quick" if chosen.quick else "full")
    if chosen.fresh:
        shutil.rmtree(cache, ignore_errors=True)
    # Units of work that other code made are not used.
    cache /= fingerprint(study.sources)
    # Starting workers takes longer than all of a quick run.
    jobs = chosen.jobs or (1 if chosen.quick else len(os.sched_getaffinity(0)))
    setting = Setting(chosen.quick, jobs, results, cache, tuple(chosen.only))
    stamp, began = make_stamp(study.packages), time.perf_counter()
    module, function = study.run.split(":")
    rows = []
    for row in getattr(import_module(f"studies.{module}"), function)(setting):
        rows.append(row)
        print({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    if setting.only:
        kept = [r for r in read_table(study.name, results, stamped=True)
                if r[study.part] not in setting.only]  # fmt: skip
        rows = kept + rows
    seconds = time.perf_counter() - began
    if setting.only:  # how long all of it took stays
        setting.facts["minutes"] = read_minutes(study.name, results)
    else:
        setting.facts["minutes"] = round(seconds / 60.0, 1)
    path = write_table(results / f"{study.name}.csv", rows, stamp, setting.facts)
    print(f"{path}: {len(rows)} rows, {seconds:.0f} s", flush=True)
    return path


def read_minutes(name: str, results: Path = RESULTS) -> float | None:
    """Return how long the last full run of a study took by the clock; None where nobody noted."""
    try:
        return read_facts(name, results).get("minutes")
    except OSError:
        return None


def run_each(names: Sequence[str], chosen: argparse.Namespace) -> list[str]:
    """Run studies one after the other, each in a process of its own; return those that failed."""
    words = ["--quick"] * chosen.quick + ["--fresh"] * chosen.fresh
    words += ["--jobs", str(chosen.jobs)] if chosen.jobs else []
    words += ["--out", str(chosen.out)] if chosen.out else []
    failed = []
    for name in names:
        # Forgetting once is enough: later studies reuse what earlier ones computed.
        if subprocess.run([sys.executable, __file__, name, *words]).returncode:
            failed.append(name)
        words = [word for word in words if word != "--fresh"]
    return failed


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = read_arguments(arguments)
    if chosen.list:
        for study in STUDIES.values():
            minutes = read_minutes(study.name)
            took = "?" if minutes is None else f"{minutes:.0f}"
            print(f"{study.name:24} {took:>4} min  {study.page:34} {study.what}")
    if chosen.stale:
        lines = [
            f"{study.name}: {stale}"
            for study in STUDIES.values()
            for *_, stale in find_stale(study.name, study.sources)
            if stale and study.page
        ]
        print("\n".join(lines) or "no table is stale")
        sys.exit(bool(lines))
    names = chosen.names
    if "all" in names:
        names = [s.name for s in STUDIES.values() if s.routine and (s.quick or not chosen.quick)]
    failed: list[str] = []
    if len(names) == 1:
        run_study(STUDIES[names[0]], chosen)
    else:
        failed = run_each(names, chosen)
    if chosen.pages or (names and not chosen.quick and not chosen.out):
        from pages import write_pages

        write_pages()
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
