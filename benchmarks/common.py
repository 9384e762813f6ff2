"""What all benchmark scripts share: timing, data, and CSV files that say how they were made."""

from __future__ import annotations

import csv
import os
import platform
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

# Quick runs that only show that a script works write elsewhere.
RESULTS = Path(os.environ.get("EVENHAND_RESULTS") or Path(__file__).parent / "results")


def timed(function: Callable[[], Any], repeats: int = 5) -> tuple[float, float, Any]:
    """Median time in seconds, its spread (max − min), and the last result."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - began)
    return median(times), max(times) - min(times), result


def scored_rows(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Target, score and group of n rows that are unfair in all three senses."""
    rng = np.random.default_rng(0)
    a = (rng.random(n) < 0.3).astype(int)
    y = rng.standard_normal(n) + 0.5 * a
    s = 0.7 * y + rng.standard_normal(n) + 0.2 * a
    return y, s, a


def growth(sizes: Iterable[float], times: Iterable[float]) -> float:
    """Exponent p of time ~ n^p, by least squares on logarithms."""
    return float(np.polyfit(np.log(list(sizes)), np.log(list(times)), 1)[0])


def write(name: str, rows: list[dict[str, Any]], packages: Iterable[str] = ()) -> Path:
    """Write rows to results/<name>.csv at once, with versions in every row."""
    names = ("evenhand", "numpy", "scikit-learn", "numba", *packages)
    setting = "; ".join(f"{p} {version(p)}" for p in names)
    setting += f"; Python {platform.python_version()}; {len(os.sched_getaffinity(0))} cores"
    columns: list[str] = []
    for row in rows:
        columns += [key for key in row if key not in columns]
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.csv"
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*columns, "setting"])
        writer.writeheader()
        for row in rows:
            writer.writerow({**{k: _short(v) for k, v in row.items()}, "setting": setting})
    temporary.replace(path)
    return path


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def standardized(X: np.ndarray) -> np.ndarray:
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
