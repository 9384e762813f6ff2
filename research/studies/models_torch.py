"""Time of the loss for networks: forward and backward at many rows, on a GPU or on the CPU.

    python research/run.py models_torch --device cpu
    python research/run.py models_torch --device cuda --rows 100000000 --output rows.csv
    python research/run.py models_torch --merge rows.csv

"Three reads" is the time of reading score, group and, where it counts, target three times at the
bandwidth of a copy on the same device. "warm": groups and target as before, scores moved along the
gradient by 1e-4 of their spread. "moved": by 1e-2 of it. "cold": classifiers forgotten. "first": a
new loss, so that groups and target are read too.
"""

from __future__ import annotations

import argparse
import cProfile
import csv
import os
import platform
import pstats
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

if "--device=cpu" in sys.argv or "cpu" in sys.argv:
    os.environ.setdefault("NUMBA_NUM_THREADS", "2")

import numpy as np
import torch

from common import RESULTS
from evenhand.torch import FairnessLoss

TABLE = RESULTS / "models_torch.csv"
CASES = [(k, c) for k in (2, 5) for c in ("independence", "separation")]
# Of the spread of the scores: how far they move between two calls.
STEPS = {"warm": 1e-4, "moved": 1e-2}


def rows_of(n: int, k: int, device: str, dtype: torch.dtype, seed: int = 0) -> tuple[Any, ...]:
    """Scores, targets and groups; the groups differ in mean and spread."""
    generator = torch.Generator(device=device).manual_seed(seed)
    groups = torch.randint(0, k, (n,), generator=generator, device=device, dtype=torch.uint8)
    y = torch.randn(n, generator=generator, device=device)
    y += 0.3 * groups
    s = torch.randn(n, generator=generator, device=device)
    s *= 1.0 + 0.1 * groups
    s += 0.5 * y
    return s.to(dtype), y.to(dtype), groups


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def bandwidth(device: str, n: int) -> float:
    """Bytes a second of a copy, read and written."""
    source = torch.randn(n, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(20):
        synchronize(device)
        began = time.perf_counter()
        target.copy_(source)
        synchronize(device)
        times.append(time.perf_counter() - began)
    return 8.0 * n / median(times[3:])


def time_calls(make: Any, scores: list[Any], device: str, repeats: int) -> tuple[float, float]:
    """Seconds of forward and backward, and the spread of the middle half.

    The median on a GPU; the least on a CPU, where others are at work too.
    """
    times = []
    for i in range(repeats + 3):
        s = scores[i % len(scores)]
        s.grad = None
        call = make()
        synchronize(device)
        began = time.perf_counter()
        call(s).backward()
        synchronize(device)
        times.append(time.perf_counter() - began)
    kept = sorted(times[3:])
    return median(kept) if device == "cuda" else kept[0], kept[3 * len(kept) // 4] - kept[
        len(kept) // 4
    ]


def measure(
    n: int, k: int, criterion: str, device: str, dtype: torch.dtype, speed: float, repeats: int,
    backend: str = "auto",
) -> list[dict[str, Any]]:  # fmt: skip
    s, y, groups = rows_of(n, k, device, dtype)
    target = y if criterion != "independence" else None
    width = s.element_size() + 1 + (0 if target is None else y.element_size())
    reads = 3.0 * n * width / speed
    loss = FairnessLoss(criterion, k, backend=backend)
    value = loss(s.requires_grad_(), groups, target)
    value.backward()
    assert s.grad is not None
    move = s.grad / s.grad.std() * s.detach().std()

    def warm() -> Any:
        return lambda x: loss(x, groups, target)

    def cold() -> Any:
        loss.reset()
        return lambda x: loss(x, groups, target)

    def first() -> Any:
        fresh = FairnessLoss(criterion, k, backend=backend)
        return lambda x: fresh(x, groups, target)

    out = []
    for start, make in (("warm", warm), ("moved", warm), ("cold", cold), ("first", first)):
        step = STEPS.get(start, STEPS["moved"])
        scores = [(s.detach() - i * step * move).requires_grad_() for i in range(2)]
        seconds, spread = time_calls(make, scores, device, repeats)
        out.append({
            "what": "loss", "device": name_of(device), "rows": n, "groups": k,
            "criterion": criterion, "dtype": str(dtype).removeprefix("torch."), "start": start,
            "backend": backend, "ms": 1e3 * seconds, "ms_spread": 1e3 * spread,
            "three_reads_ms": 1e3 * reads, "ratio": seconds / reads, "tb_per_s": speed / 1e12,
        })  # fmt: skip
        print(*(_short(v) for v in out[-1].values()), flush=True)
    return out


def accuracy(n: int, k: int, criterion: str, device: str, dtype: torch.dtype) -> dict[str, Any]:
    """Fused kernels against plain PyTorch in float64, on the same numbers."""
    s, y, groups = rows_of(n, k, device, dtype, seed=1)
    found = {}
    for backend, kind in (("auto", dtype), ("eager", torch.float64)):
        x = s.to(kind, copy=True).requires_grad_()
        value = FairnessLoss(criterion, k, backend=backend)(x, groups, y.to(kind))
        value.backward()
        assert x.grad is not None
        found[backend] = float(value), x.grad.double()
    (value, slope), (exact, expected) = found["auto"], found["eager"]
    row = {
        "what": "accuracy", "device": name_of(device), "rows": n, "groups": k,
        "criterion": criterion, "dtype": str(dtype).removeprefix("torch."), "value": exact,
        "value_error": abs(value - exact),
        "gradient_error": float((slope - expected).norm() / expected.norm()),
    }  # fmt: skip
    print(*(_short(v) for v in row.values()), flush=True)
    return row


def name_of(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU, {os.environ.get('NUMBA_NUM_THREADS', '?')} threads"


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def write(path: Path, rows: list[dict[str, Any]], kept: list[dict[str, Any]]) -> None:
    columns: list[str] = []
    for row in (*kept, *rows):
        columns += [key for key in row if key not in columns]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({k: _short(v) for k, v in row.items()} for row in (*kept, *rows))


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def save(path: Path, rows: list[dict[str, Any]]) -> None:
    """Into a file whose rows of other devices stay."""
    devices = {row["device"] for row in rows}
    write(path, rows, [row for row in read(path) if row["device"] not in devices])


def tune(n: int) -> None:
    """Tiles and warps tried one kernel at a time; prints, and changes nothing."""
    from triton.testing import do_bench

    from evenhand.torch import fused

    kept = dict(fused._TILES), fused._PROGRAMS
    for k, criterion in CASES:
        s, y, groups = rows_of(n, k, "cuda", torch.float32)
        target = y if criterion != "independence" else None
        loss = FairnessLoss(criterion, k)
        loss(s, groups, target)
        batch = loss._memory._kept[1][0]
        center, term = fused.center_of(s, batch, None), loss._terms[0]
        passes = fused.FusedPasses(term.basis, s, center, loss._limit, batch)
        one = torch.ones((), device="cuda")
        calls = {
            "moments": lambda: fused.center_of(s, batch, center),
            "first": lambda: passes._first(term.weights),
            "gradient": lambda: passes.gradient(term.weights, 1.0, 0.1, 0.1, one, None),
        }
        for mode, call in calls.items():
            for rows in (512, 1024, 2048, 4096):
                for warps in (4, 8):
                    for programs in (8,) if mode == "gradient" else (4, 8, 16):
                        fused._TILES, fused._PROGRAMS = {**kept[0], mode: (rows, warps)}, programs
                        ms = do_bench(call, warmup=5, rep=25, return_mode="median")
                        print(k, criterion, mode, rows, warps, programs, f"{ms:.3f}", flush=True)
        fused._TILES, fused._PROGRAMS = dict(kept[0]), kept[1]


def profile(n: int) -> None:
    """Time of each kernel of a warm call; prints."""
    for k, criterion in CASES:
        s, y, groups = rows_of(n, k, "cuda", torch.float32)
        target = y if criterion != "independence" else None
        s.requires_grad_()
        loss = FairnessLoss(criterion, k)
        for _ in range(3):
            loss(s, groups, target).backward()
        with torch.profiler.profile() as found:
            for _ in range(5):
                loss(s, groups, target).backward()
            torch.cuda.synchronize()
        print(k, criterion)
        timer = cProfile.Profile()
        timer.enable()
        for _ in range(50):
            loss(s, groups, target).backward()
            s.grad = None
        timer.disable()
        pstats.Stats(timer).sort_stats("tottime").print_stats(22)
        print(found.key_averages().table(sort_by="cuda_time_total", row_limit=12,
                                         max_name_column_width=40), flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--output", type=Path, default=TABLE)
    parser.add_argument("--merge", type=Path, help="take rows of another device from a file")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    if options.merge:
        save(TABLE, read(options.merge))
        return
    device = options.device
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("`--device` must be cpu here: PyTorch sees no CUDA device.")
    n = options.rows or (100_000_000 if device == "cuda" else 10_000_000)
    if options.tune:
        return tune(n)
    if options.profile:
        return profile(n)
    repeats = 30 if device == "cuda" else 5
    speed = bandwidth(device, 5 * n)
    rows = []
    for k, criterion in CASES:
        rows += measure(n, k, criterion, device, torch.float32, speed, repeats)
    if device == "cuda":
        for dtype in (torch.float32, torch.bfloat16):
            for k, criterion in [*CASES, (12, "separation")]:
                rows.append(
                    accuracy(10_000_000 if k < 12 else 1_000_000, k, criterion, device, dtype)
                )
        rows += measure(n, 2, "independence", device, torch.bfloat16, speed, repeats)
        rows += measure(n // 10, 2, "independence", device, torch.float32, speed, 5, "eager")
    setting = (
        f"torch {torch.__version__}; numpy {np.__version__}; Python {platform.python_version()}"
    )
    if device == "cuda":
        import triton

        setting += f"; triton {triton.__version__}"
    save(options.output, [{**row, "setting": setting} for row in rows])


if __name__ == "__main__":
    main()
