"""Training on Parquet larger than the memory allowed, against the same rows in memory.

Twenty float32 features. Each fit has a process of its own. Those on files may hold no more private
memory (RLIMIT_DATA, which the system enforces) than they start with and so many bytes a row, fewer
than the features take: `--memory-rows` of them, to compare with as many in memory, and `--rows`.
Times are of the fit once the rows are there; reading them into the scratch file is in columns of
its own. Writes results/scale_training.csv.

    python research/run.py scale_training --models "ridge, independence"
    python research/run.py scale_training --models "ridge, separation" --large --add
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import evenhand as eh
from common import RESULTS, RUN, write

FEATURES = [f"x{j}" for j in range(20)]
PART = 1_000_000
MODELS = {
    "ridge, independence": lambda: eh.FairRidge("independence", 1.0),
    "ridge, separation": lambda: eh.FairRidge("separation", 1.0),
    "poisson, independence": lambda: eh.FairGLM("poisson", "independence", 1.0),
}
# Bytes a row that a fit on files may hold in memory; its features take 80.
LIMITS = {"ridge, independence": 45, "ridge, separation": 60, "poisson, independence": 72}
# What the limit allows besides rows: batches of Arrow and buffers.
SPARE = 300_000_000


def part(number: int, n: int) -> dict[str, np.ndarray]:
    """Correlated features, the first of which carry the group; a real and a counted target."""
    rng = np.random.default_rng([11, number])
    a = (rng.random(n) < 0.3).astype(np.int8)
    X = rng.standard_normal((n, 20), dtype=np.float32)
    X += 0.5 * X[:, [0]]
    X[:, :4] += np.float32(0.6) * a[:, None]
    score = X[:, :10] @ np.linspace(0.4, 0.04, 10).astype(np.float32)
    y = score + rng.standard_normal(n, dtype=np.float32)
    claims = rng.poisson(np.exp(0.4 * np.clip(score, -4, 4) - 1.0))
    columns = {name: X[:, j] for j, name in enumerate(FEATURES)}
    return {**columns, "y": y, "claims": claims.astype(np.float32), "a": a}


def make(folder: Path, rows: int) -> None:
    """Parquet files of a million rows each."""
    import pyarrow as pa
    from pyarrow import parquet

    for number in range(-(-rows // PART)):
        table = pa.table(part(number, min(PART, rows - number * PART)))
        # Random digits do not compress; other tables would read fewer bytes and decode more.
        parquet.write_table(
            table, folder / f"{number:05}.parquet", compression=None, use_dictionary=False
        )


def status(key: str) -> float:
    """A line of /proc/self/status, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1e6


def from_disk() -> float:
    """GB that this process had to wait for the disk for."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes")) / 1e9


class Clock:
    """Wall and processor seconds since the last look."""

    def __init__(self) -> None:
        self.look()

    def look(self) -> tuple[float, float]:
        now = time.perf_counter(), time.process_time()
        before, self._at = getattr(self, "_at", now), now
        return now[0] - before[0], now[1] - before[1]


def one(model: str, how: str, folder: str, rows: int, limit: float | None) -> dict[str, Any]:
    """A fit in this process."""
    from evenhand.training import linear_base as base

    target = "claims" if model.startswith("poisson") else "y"
    files = sorted(map(str, Path(folder).glob("*.parquet")))[: -(-rows // PART)]
    # Kernels are compiled, and Arrow loaded, before anything is limited or timed.
    with tempfile.TemporaryDirectory() as small:
        make(Path(small), 120_000)
        MODELS[model]().fit(small, target, sensitive_features="a", features=FEATURES)
    scan, allowed, before, start = (0.0, 0.0), 0, 0.0, status("VmRSS")
    if how == "memory":
        X, y, a = load(files, target)
        clock = Clock()
        fitted = MODELS[model]().fit(X, y, sensitive_features=a)
    else:
        assert limit is not None
        # Python, NumPy, Arrow and compiled kernels are there before a row is read.
        allowed = int(1e9 * status("VmData") + limit * rows + SPARE)
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        inner = base.scanned

        @contextmanager
        def timed(*arguments: Any) -> Any:
            nonlocal scan
            with inner(*arguments) as found:
                scan = clock.look()
                yield found

        base.scanned = timed  # type: ignore[assignment]
        before, clock = from_disk(), Clock()
        fitted = MODELS[model]().fit(files, target, sensitive_features="a", features=FEATURES)
    wall, cpu = clock.look()
    return {
        "model": model, "how": how, "rows": rows, "features": len(FEATURES),
        "features_gb": rows * len(FEATURES) * 4 / 1e9,
        "limit_gb": allowed / 1e9 or "", "start_gb": start, "peak_gb": status("VmHWM"),
        "from_disk_gb": from_disk() - before if limit else "",
        "scan_seconds": scan[0], "scan_cpu": scan[1], "fit_seconds": wall, "fit_cpu": cpu,
        "iterations": fitted.n_iter_, "evaluations": fitted.n_evaluations_,
        "unfairness": fitted.unfairness_,
    }  # fmt: skip


def load(files: list[str], target: str) -> tuple[Any, Any, Any]:
    """The same rows in memory, read part by part."""
    from pyarrow import parquet

    rows = sum(parquet.read_metadata(file).num_rows for file in files)
    X, y, a = np.empty((rows, 20), np.float32), np.empty(rows), np.empty(rows, np.int8)
    at = 0
    for file in files:
        table = parquet.read_table(file)
        for j, name in enumerate(FEATURES):
            X[at : at + len(table), j] = table[name]
        y[at : at + len(table)] = table[target]
        a[at : at + len(table)] = table["a"]
        at += len(table)
    return X, y, a


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--memory-rows", type=int, default=30_000_000)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--large", nargs="*", choices=MODELS, default=list(MODELS)[:1])
    parser.add_argument("--repeats", type=int, default=2, help="of the smaller fits")
    parser.add_argument("--add", action="store_true", help="beside the lines of other models")
    parser.add_argument("--folder", help="where the files are; made and deleted by default")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        model, how, folder, rows = arguments.one
        limit = LIMITS[model] if how == "files" else None
        print(json.dumps(one(model, how, folder, int(rows), limit)))
        return
    lines: list[dict[str, Any]] = []
    if arguments.add:
        with (RESULTS / "scale_training.csv").open() as file:
            old = list(csv.DictReader(file))
        lines = [
            {name: value for name, value in line.items() if name != "setting"}
            for line in old
            if line["model"] not in arguments.models
        ]
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or made
        if not any(Path(folder).iterdir()):
            make(Path(folder), max(arguments.rows, arguments.memory_rows))
        small = arguments.memory_rows
        for model in arguments.models:
            # By turns, as the machine may be busier at one time than at another; the largest fit
            # has smaller ones before and after it.
            turns, largest = [], []
            for turn in range(arguments.repeats):
                turns.append([one_apart(model, how, folder, small) for how in ("memory", "files")])
                if turn == 0 and model in arguments.large:
                    largest = [one_apart(model, "files", folder, arguments.rows)]
            memory, files = (middle(list(of_turns)) for of_turns in zip(*turns, strict=True))
            found = [memory, files, *largest]
            for line in found:
                for name in ("seconds", "cpu"):
                    mine, theirs = (v[f"fit_{name}"] / v["rows"] for v in (line, memory))
                    line[f"ratio_{name}"] = mine / theirs
                    mine += line[f"scan_{name}"] / line["rows"]
                    line[f"ratio_{name}_with_scan"] = mine / theirs
                print(line, flush=True)
            lines += found
            write("scale_training", lines, ["pyarrow"])


def one_apart(model: str, how: str, folder: str, rows: int) -> dict[str, Any]:
    """A fit in a process of its own."""
    command = [sys.executable, RUN, "scale_training", "--one", model, how, folder, str(rows)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def middle(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """One line with the medians of times."""
    times = [f"{what}_{name}" for what in ("scan", "fit") for name in ("seconds", "cpu")]
    return {**lines[0], **{name: median(line[name] for line in lines) for name in times}}


if __name__ == "__main__":
    main()
