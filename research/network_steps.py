"""What the fairness loss adds to a training step, and its gradient where groups are rare.

`step`: a network of `hidden` layers, squared error and AdamW, over mini-batches; the same steps
with `FairnessLoss` added to the error, and the difference as a share of the plain step. They are
timed in turns of some steps each, on batches that change from step to step.

`rare`: gradients against `exact_slope`, plain PyTorch in float64: 25 groups of which the rarest has
a share of about 1e-4.

Needs PyTorch and evenhand alone, without Numba on a GPU: `python research/network_steps.py` prints
one line a row.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from evenhand.torch import FairnessLoss

SIZES = (1024, 4096, 16_384, 65_536)
NETWORKS = {"64 x 64": (64, 64), "1024 x 1024 x 1024": (1024, 1024, 1024)}
FEATURES = 32
# Steps of a turn, and turns.
STEPS, TURNS = 40, 9


def draw(n: int, k: int, device: str, share: Any = None) -> tuple[torch.Tensor, ...]:
    """Features, targets and groups, which differ in the first feature."""
    rng = np.random.default_rng(0)
    a = rng.choice(k, n, p=share)
    X = rng.normal(size=(n, FEATURES)) + np.outer(0.3 * (a % 5), np.arange(FEATURES) == 0)
    y = X[:, :4].sum(axis=1) + rng.normal(size=n)
    columns = (X.astype(np.float32), y.astype(np.float32), a)
    return tuple(torch.from_numpy(column).to(device) for column in columns)


def make_network(hidden: tuple[int, ...]) -> nn.Sequential:
    widths = (FEATURES, *hidden)
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.SiLU())]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], 1))


def make_step(rows: Any, size: int, hidden: tuple[int, ...], loss: Any) -> Callable[[int], None]:
    """One step of training, with the loss or without."""
    X, y, groups = rows
    torch.manual_seed(0)
    network = make_network(hidden).to(X.device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    starts = max(1, len(X) // size)

    def step(number: int) -> None:
        start = number % starts * size
        part = slice(start, start + size)
        s = network(X[part])[:, 0]
        value = ((y[part] - s) ** 2).mean()
        if loss is not None:
            value = value + loss(s, groups[part], y[part])
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        optimizer.step()

    return step


def time_turns(steps: dict[str, Callable[[int], None]], device: str, turns: int) -> dict[str, Any]:
    """Median milliseconds of a step of each kind, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(turns + 1):
        for name, step in steps.items():
            if device == "cuda":
                torch.cuda.synchronize()
            began = time.perf_counter()
            for number in range(STEPS):
                step(turn * STEPS + number)
            if device == "cuda":
                torch.cuda.synchronize()
            if turn:  # the first compiles
                times[name].append(1e3 * (time.perf_counter() - began) / STEPS)
    return {name: median(values) for name, values in times.items()}


def measure_steps(device: str, sizes: tuple[int, ...], turns: int) -> Iterator[dict[str, Any]]:
    for k, criterion in ((2, "independence"), (2, "separation"), (5, "separation")):
        for size in sizes:
            rows = draw(8 * size, k, device)
            for name, hidden in NETWORKS.items():
                if device == "cpu" and name != "64 x 64":
                    continue
                kinds = {"plain": None, "batch": FairnessLoss(criterion, k),
                         "running": FairnessLoss(criterion, k, "running")}  # fmt: skip
                ms = time_turns(
                    {kind: make_step(rows, size, hidden, loss) for kind, loss in kinds.items()},
                    device, turns,
                )  # fmt: skip
                yield {
                    "what": "step", "kind": device, "groups": k, "criterion": criterion,
                    "rows": size, "network": name, "plain_ms": ms["plain"],
                    **{f"{kind}_share": ms[kind] / ms["plain"] - 1.0 for kind in list(kinds)[1:]},
                }  # fmt: skip


def exact_slope(s: Any, y: Any, groups: Any, k: int, criterion: str) -> tuple[float, Any]:
    """Ĩ of independence or separation and its gradient, in plain PyTorch and float64."""
    kappa, limit, n = 1e-3, 1.5, len(s)
    s = s.detach().double().requires_grad_()
    member = nn.functional.one_hot(groups.long(), k).double()
    center = torch.eye(k - 1, device=s.device).double() - 1.0 / k

    def see(values: Any) -> Any:
        values = values.double()
        return limit * torch.tanh((values - values.mean()) / values.std(correction=0) / limit)

    def fit(phi: Any) -> Any:
        """L = −objective per row at the optimum, with a graph back to φ."""
        fixed, d = phi.detach(), phi.shape[1]
        mask = (torch.arange(d, device=s.device) > 0).double()
        form = kappa * torch.kron(center, torch.diag(mask))
        counts = member.sum(dim=0)
        weights = torch.zeros(k - 1, d, device=s.device).double()
        weights[:, 0] = (counts[1:] / counts[0]).log()
        for _ in range(60):
            p = torch.softmax(nn.functional.pad(fixed @ weights.T, (1, 0)), dim=1)[:, 1:]
            score = (member[:, 1:] - p).T @ fixed - kappa * (center @ weights) * mask
            hessian = torch.zeros(k - 1, d, k - 1, d, device=s.device).double()
            for i in range(d):
                for j in range(i + 1):
                    x = fixed[:, i] * fixed[:, j]
                    block = torch.diag(p.T @ x) - (p * x[:, None]).T @ p
                    hessian[:, i, :, j] = hessian[:, j, :, i] = block
            step = torch.linalg.solve(hessian.reshape(form.shape) + form, score.reshape(-1))
            weights = weights + step.reshape(weights.shape)
            if float(step.abs().max()) < 1e-11:
                break
        logs = torch.log_softmax(nn.functional.pad(phi @ weights.T, (1, 0)), dim=1)
        size = (weights * (center @ weights) * mask).sum()
        return ((member * logs).sum() - 0.5 * kappa * size) / n

    t, u = see(s), see(y)
    one = torch.ones_like(t)
    shares = member.mean(dim=0)
    given = -(shares * shares.log()).sum()
    joint = [one, t, t * t]
    if criterion == "separation":
        given = -fit(torch.stack([one, u, u * u], dim=1))
        joint = [one, t, u, t * t, t * u, u * u]
    value = (given + fit(torch.stack(joint, dim=1))) / given
    value.backward()
    return float(value.detach()), s.grad


def check_rare(device: str, sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    share = np.geomspace(1.0, 5e-4, 25)
    share /= share.sum()
    for n in sizes:
        X, y, groups = draw(n, 25, device, share)
        s = X[:, :3].sum(dim=1) + 0.5 * y
        for criterion in ("independence", "separation"):
            x = s.detach().clone().requires_grad_()
            value = FairnessLoss(criterion, 25)(x, groups, y)
            value.backward()
            assert x.grad is not None
            truth, exact = exact_slope(s, y, groups, 25, criterion)
            found = x.grad.double()
            yield {
                "what": "rare", "kind": device, "groups": 25, "criterion": criterion, "rows": n,
                "rarest": int(torch.bincount(groups).min()), "value": truth,
                "value_error": abs(float(value.detach()) - truth),
                "gradient_error": float((found - exact).norm() / exact.norm()),
                "largest_error": float((found - exact).abs().max() / exact.abs().max()),
            }  # fmt: skip


def measure(quick: bool = False) -> Iterator[dict[str, Any]]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    yield from measure_steps(device, SIZES[:1] if quick else SIZES, 1 if quick else TURNS)
    yield from check_rare(device, (20_000,) if quick else (20_000, 200_000, 1_000_000))


if __name__ == "__main__":
    for row in measure():
        print(json.dumps(row), flush=True)
