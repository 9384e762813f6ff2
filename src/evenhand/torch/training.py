"""How a network is trained: plainly first, then with the fairness term let in, then to rest.

    minimize [ mean ω(y − s)² / Var(y) + λ_t·Ĩ(s) ] / (1 + λ_t)

λ_t is 0 for a first share of the steps, rises to the fairness weight over a second one and stays
there, while the learning rate falls along a cosine. Fairness asked for at once is bought with
scores of one value, from which no gradient leads away. What is kept is the running mean of the
weights, at the epoch whose objective on rows set aside is the least.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .loss import FairnessLoss

# Share of the newest weights in their running mean.
_NEWEST = 0.05
# Share of the steps over which the learning rate rises.
_RISE = 0.03
# Norm that a gradient is cut to: the fairness term of an odd batch can be steep.
_LONGEST = 1.0


@dataclass(frozen=True)
class Schedule:
    """Shares of all steps, and what goes with them.

    Attributes
    ----------
    epochs, batch_size : int
    learning_rate, weight_decay : float
    plain, ramp : float
        Shares of the steps without the fairness term, and of those over which it rises.
    patience : int
        Epochs without a better objective after which training ends.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    plain: float
    ramp: float
    patience: int

    def fairness(self, share: float) -> float:
        """Share of the fairness weight at a share of the steps."""
        if share < self.plain:
            return 0.0
        return min(1.0, (share - self.plain) / self.ramp) if self.ramp > 0 else 1.0

    def rate(self, share: float) -> float:
        """Share of the learning rate."""
        return min(1.0, share / _RISE) * 0.5 * (1.0 + math.cos(math.pi * share))


@dataclass(frozen=True)
class Rows:
    """Standardized features and targets, group numbers (−1: not known), weights of mean 1."""

    X: Tensor
    y: Tensor
    groups: Tensor
    weight: Tensor | None

    def take(self, rows: Any) -> Rows:
        weight = None if self.weight is None else self.weight[rows]
        return Rows(self.X[rows], self.y[rows], self.groups[rows], weight)


def make_network(n_features: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """Hidden layers with smooth bends, and one output."""
    layers: list[nn.Module] = []
    width = n_features
    for size in hidden:
        layers += [nn.Linear(width, size), nn.SiLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 1))


def train(
    network: nn.Module, train_rows: Rows, check_rows: Rows | None, schedule: Schedule,
    fairness: FairnessLoss | None, fairness_weight: float, generator: torch.Generator,
) -> dict[str, list[float]]:  # fmt: skip
    """Train in place; the learning curve, one number an epoch."""
    optimizer = torch.optim.AdamW(
        _decayed(network, schedule.weight_decay), lr=schedule.learning_rate, betas=(0.9, 0.99)
    )
    mean = copy.deepcopy(network)
    n = len(train_rows.y)
    per_epoch = max(1, round(n / schedule.batch_size))
    total, step = schedule.epochs * per_epoch, 0
    curve: dict[str, list[float]] = {
        name: [] for name in ("loss", "unfairness", "held_out_loss", "held_out_unfairness",
                              "held_out_objective", "fairness_weight", "learning_rate")
    }  # fmt: skip
    best, kept, waited = math.inf, copy.deepcopy(mean.state_dict()), 0
    judged = copy.deepcopy(fairness)
    for _ in range(schedule.epochs):
        order = _mixed(train_rows.groups, generator)
        losses, values = [], []
        for rows in np.array_split(order, per_epoch):
            share = step / total
            weight = fairness_weight * schedule.fairness(share)
            for group in optimizer.param_groups:
                group["lr"] = schedule.learning_rate * schedule.rate(share)
            batch = train_rows.take(torch.from_numpy(rows))
            score = network(batch.X)[:, 0]
            loss = _squares(score, batch)
            objective = loss
            if fairness is not None and weight > 0:
                value = fairness(score, batch.groups, batch.y, sample_weight=batch.weight)
                objective = (loss + weight * value) / (1.0 + weight)
                values.append(float(value.detach()))
            optimizer.zero_grad(set_to_none=True)
            objective.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), _LONGEST)
            optimizer.step()
            _follow(mean, network, max(_NEWEST, 1.0 / (step + 1.0)))
            losses.append(float(loss.detach()))
            step += 1
        curve["loss"].append(float(np.mean(losses)))
        curve["unfairness"].append(float(np.mean(values)) if values else math.nan)
        curve["fairness_weight"].append(weight)
        curve["learning_rate"].append(optimizer.param_groups[0]["lr"])
        found = _judge(mean, check_rows, judged, fairness_weight)
        for name, number in zip(("loss", "unfairness", "objective"), found, strict=True):
            curve[f"held_out_{name}"].append(number)
        if check_rows is None or weight < fairness_weight:
            continue
        waited += 1
        if found[2] < best:
            best, kept, waited = found[2], copy.deepcopy(mean.state_dict()), 0
        if waited > schedule.patience:
            break
    network.load_state_dict(mean.state_dict() if check_rows is None else kept)
    return curve


def _decayed(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Intercepts are not shrunk."""
    matrices = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay},
            {"params": others, "weight_decay": 0.0}]  # fmt: skip


def _mixed(groups: Tensor, generator: torch.Generator) -> np.ndarray:
    """Rows in an order in which every stretch has its share of each group."""
    codes = groups.cpu().numpy()
    place = np.empty(len(codes))
    shuffled = torch.randperm(len(codes), generator=generator).numpy()
    offset = torch.rand(int(codes.max(initial=0)) + 2, generator=generator).numpy()
    for code in np.unique(codes):
        own = shuffled[codes[shuffled] == code]
        place[own] = (np.arange(len(own)) + offset[code + 1]) / len(own)
    return np.argsort(place, kind="stable")


def _squares(score: Tensor, rows: Rows) -> Tensor:
    squares = (rows.y - score) ** 2
    return squares.mean() if rows.weight is None else (rows.weight * squares).mean()


@torch.no_grad()
def _follow(mean: nn.Module, network: nn.Module, share: float) -> None:
    for slow, fast in zip(mean.parameters(), network.parameters(), strict=True):
        slow.lerp_(fast, share)


@torch.no_grad()
def _judge(
    network: nn.Module, rows: Rows | None, fairness: FairnessLoss | None, weight: float
) -> tuple[float, float, float]:
    """Loss, unfairness and objective on rows set aside, at the full weight."""
    if rows is None:
        return (math.nan,) * 3
    score = network(rows.X)[:, 0]
    loss, value = float(_squares(score, rows)), math.nan
    if fairness is None:
        return loss, value, loss
    value = float(fairness(score, rows.groups, rows.y, sample_weight=rows.weight))
    return loss, value, loss + weight * value
