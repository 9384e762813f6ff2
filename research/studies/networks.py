"""The loss for networks: its time on a GPU and on the CPU, and what mini-batches do to it.

`loss`: forward and backward at many rows. "Three reads" is the time of reading score, group and,
where it counts, target three times at the bandwidth of a copy on the same device. "warm": groups
and target as before, scores moved along the gradient by 1e-4 of their spread. "moved": by 1e-2 of
it. "cold": classifiers forgotten. "first": a new loss, so that groups and target are read too.
Parts are the devices: `--only cuda` on a machine with a GPU keeps the rows of the CPU.

`batches`: a linear score of the law students (LSAC), plain and nearly fair; the gradient is that of
its coefficients. Bias: the mean value over batches less the value of all rows. Cosine: between the
mean gradient over batches and the gradient of all rows. Noise: root mean square distance of a
batch's gradient from their mean, over the norm of the gradient of all rows. Then networks trained
with either classifier, held out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import torch
from sklearn.metrics import r2_score
from sklearn.model_selection import StratifiedKFold

import evenhand as eh
from common import Setting, standardized
from evenhand.torch import FairnessLoss
from loaders import load_law_school
from network_steps import exact_slope
from network_steps import measure as measure_steps
from small_network import SmallNetwork

Row = dict[str, Any]
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
    term = FairnessLoss(criterion, k, backend=backend)
    value = term(s.requires_grad_(), groups, target)
    value.backward()
    assert s.grad is not None
    move = s.grad / s.grad.std() * s.detach().std()

    def warm() -> Any:
        return lambda x: term(x, groups, target)

    def cold() -> Any:
        term.reset()
        return lambda x: term(x, groups, target)

    def first() -> Any:
        fresh = FairnessLoss(criterion, k, backend=backend)
        return lambda x: fresh(x, groups, target)

    out = []
    for start, make in (("warm", warm), ("moved", warm), ("cold", cold), ("first", first)):
        step = STEPS.get(start, STEPS["moved"])
        scores = [(s.detach() - i * step * move).requires_grad_() for i in range(2)]
        seconds, spread = time_calls(make, scores, device, repeats)
        out.append({
            "what": "loss", "kind": device, "device": name_of(device), "rows": n, "groups": k,
            "criterion": criterion, "dtype": str(dtype).removeprefix("torch."), "start": start,
            "backend": backend, "ms": 1e3 * seconds, "ms_spread": 1e3 * spread,
            "three_reads_ms": 1e3 * reads, "ratio": seconds / reads, "tb_per_s": speed / 1e12,
        })  # fmt: skip
    return out


def accuracy(n: int, k: int, criterion: str, device: str, dtype: torch.dtype) -> dict[str, Any]:
    """Fused kernels against plain PyTorch in float64, on the same numbers."""
    s, y, groups = rows_of(n, k, device, dtype, seed=1)
    x = s.clone().requires_grad_()
    made = FairnessLoss(criterion, k)(x, groups, y)
    made.backward()
    assert x.grad is not None
    value, slope = float(made.detach()), x.grad.double()
    exact, expected = exact_slope(s, y, groups, k, criterion)
    row = {
        "what": "accuracy", "kind": device, "device": name_of(device), "rows": n, "groups": k,
        "criterion": criterion, "dtype": str(dtype).removeprefix("torch."), "value": exact,
        "value_error": abs(value - exact),
        "gradient_error": float((slope - expected).norm() / expected.norm()),
    }  # fmt: skip
    return row


def name_of(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU, {os.environ.get('NUMBA_NUM_THREADS', '?')} threads"


def loss(setting: Setting) -> Iterator[Row]:
    """Times on each device there is."""
    for device in ("cpu", "cuda"):
        if setting.wants(device) and (device == "cpu" or torch.cuda.is_available()):
            yield from measure_device(setting, device)


def measure_device(setting: Setting, device: str) -> Iterator[Row]:
    n = setting.choose(100_000_000 if device == "cuda" else 10_000_000, 20_000)
    repeats = 30 if device == "cuda" else 5
    speed = bandwidth(device, 5 * n)
    for k, criterion in CASES:
        yield from measure(n, k, criterion, device, torch.float32, speed, repeats)
    if device == "cuda":
        for dtype in (torch.float32, torch.bfloat16):
            for k, criterion in [*CASES, (12, "separation")]:
                yield accuracy(10_000_000 if k < 12 else 1_000_000, k, criterion, device, dtype)
        yield from measure(n, 2, "independence", device, torch.bfloat16, speed, repeats)


def steps(setting: Setting) -> Iterator[Row]:
    """Return what the loss adds to a training step here, and the errors of rare groups."""
    yield from measure_steps(setting.quick)


# Mini-batches -------------------------------------------------------------------------------------

SIZES = (256, 8192)
EPOCHS = {256: 3, 8192: 60}
WARM = 40  # batches after which a running classifier is looked at


def gradients(term: Any, X: Any, y: Any, groups: Any, theta: Any, batches: Any) -> tuple[Any, Any]:
    """Values, and gradients in θ, of the batches."""
    values, slopes = [], []
    for rows in batches:
        at = theta.clone().requires_grad_()
        value = term(X[rows] @ at, groups[rows], y[rows])
        value.backward()
        values.append(value.item())
        slopes.append(at.grad.numpy())
    return np.array(values), np.array(slopes)


def compare_batches(criterion: str, weight: float, data: Any, epochs: dict[int, int]) -> list[Row]:
    """Bias, direction and noise by batch size and classifier."""
    X = standardized(data.X)
    ridge = eh.FairRidge(criterion, weight).fit(X, data.y, sensitive_features=data.sensitive)
    groups = torch.from_numpy((data.sensitive == "white").astype(np.int64))
    X, y = torch.from_numpy(X), torch.from_numpy(data.y)
    theta = torch.from_numpy(ridge.coef_)
    whole = [torch.arange(len(y))]
    value, slope = gradients(FairnessLoss(criterion, 2), X, y, groups, theta, whole)
    out = []
    for size in SIZES:
        for classifier in ("batch", "running"):
            torch.manual_seed(0)
            batches = []
            for _ in range(epochs[size]):
                order = torch.randperm(len(y))
                batches += [b for b in order.split(size) if len(b) == size]
            term = FairnessLoss(criterion, 2, classifier)
            values, slopes = gradients(term, X, y, groups, theta, batches)
            skipped = WARM if classifier == "running" else 0
            values, slopes = values[skipped:], slopes[skipped:]
            mean = slopes.mean(axis=0)
            norm = np.linalg.norm(slope[0])
            out.append({
                "what": "batches", "criterion": criterion, "fairness_weight": weight,
                "rows": size, "classifier": classifier, "value": float(value[0]),
                "bias": float(values.mean() - value[0]),
                "cosine": float(mean @ slope[0] / np.linalg.norm(mean) / norm),
                "noise": float(np.sqrt(((slopes - mean) ** 2).sum(axis=1).mean()) / norm),
            })  # fmt: skip
    return out


def train_network(data: Any, classifier: str, size: int) -> Row:
    """Two of five folds held out, at one fairness weight."""
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(data.X, data.sensitive))[:2]
    scores = np.full(len(data.y), np.nan)
    for train, test in folds:
        model = SmallNetwork("independence", 3.0, classifier=classifier, batch_size=size, epochs=60)
        model.fit(data.X[train], data.y[train], sensitive_features=data.sensitive[train])
        scores[test] = model.predict(data.X[test])
    seen = ~np.isnan(scores)
    unfairness = eh.independence(
        data.y[seen], scores[seen], sensitive_features=data.sensitive[seen]
    )
    return {
        "what": "network", "criterion": "independence", "fairness_weight": 3.0, "rows": size,
        "classifier": classifier, "r2": float(r2_score(data.y[seen], scores[seen])),
        "unfairness": float(unfairness),
    }  # fmt: skip


def batches(setting: Setting) -> Iterator[Row]:
    torch.set_num_threads(1)
    data = load_law_school()
    for criterion in setting.choose(("independence", "separation"), ("independence",)):
        for weight in setting.choose((0.0, 10.0), (0.0,)):
            epochs = setting.choose(EPOCHS, {256: 1, 8192: 21})
            yield from compare_batches(criterion, weight, data, epochs)
    if not setting.quick:
        for classifier, size in (("batch", 256), ("running", 256), ("batch", 1024)):
            yield train_network(data, classifier, size)
