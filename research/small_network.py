"""A network for the studies: a plain training loop around `FairnessLoss`.

    minimize [ mean (y − s)² / Var(y) + λ_t·Ĩ(s) ] / (1 + λ_t),   s = network(x)

λ_t is 0 for a fifth of the steps, rises to the fairness weight over another fifth and stays there,
while the learning rate falls along a cosine: fairness asked for at once is bought with one score
for everybody. What is kept is the running mean of the weights.
"""

from __future__ import annotations

import copy
import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from torch import nn

from evenhand.torch import FairnessLoss

PLAIN = RAMP = 0.2
STEPS, LEAST_EPOCHS = 1500, 50


class SmallNetwork(RegressorMixin, BaseEstimator):
    """Standardized features → hidden layers of SiLU → standardized target."""

    def __init__(
        self, criterion: str = "independence", fairness_weight: float = 1.0,
        hidden: tuple[int, ...] = (64, 64), classifier: str = "batch", batch_size: int = 1024,
        epochs: int | None = None, random_state: int = 0,
    ):  # fmt: skip
        self.criterion, self.fairness_weight, self.hidden = criterion, fairness_weight, hidden
        self.classifier, self.batch_size, self.epochs = classifier, batch_size, epochs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, *, sensitive_features: Any) -> SmallNetwork:
        torch.manual_seed(self.random_state)
        X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
        names, codes = np.unique(sensitive_features, return_inverse=True)
        spread = X.std(axis=0)
        self._x = X.mean(axis=0), np.where(spread > 0, spread, 1.0)
        self._y = y.mean(), y.std()
        features = torch.from_numpy((X - self._x[0]) / self._x[1]).float()
        target = torch.from_numpy((y - self._y[0]) / self._y[1]).float()
        groups = torch.from_numpy(codes)
        sizes = (X.shape[1], *self.hidden)
        layers = [m for i, o in pairwise(sizes) for m in (nn.Linear(i, o), nn.SiLU())]
        network = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))
        mean = copy.deepcopy(network)
        matrices = [p for p in network.parameters() if p.ndim > 1]
        others = [p for p in network.parameters() if p.ndim <= 1]
        decay = [
            {"params": matrices, "weight_decay": 0.01},
            {"params": others, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(decay, lr=5e-3, betas=(0.9, 0.99))
        fairness = FairnessLoss(self.criterion, len(names), self.classifier)
        per_epoch = max(1, round(len(y) / self.batch_size))
        total = per_epoch * (self.epochs or max(LEAST_EPOCHS, -(-STEPS // per_epoch)))
        for step in range(total):
            if step % per_epoch == 0:
                batches = torch.tensor_split(torch.randperm(len(y)), per_epoch)
            rows, share = batches[step % per_epoch], step / total
            weight = self.fairness_weight * min(1.0, max(0.0, (share - PLAIN) / RAMP))
            for group in optimizer.param_groups:
                group["lr"] = (
                    5e-3 * min(1.0, share / 0.03) * 0.5 * (1.0 + math.cos(math.pi * share))
                )
            score = network(features[rows])[:, 0]
            objective = ((target[rows] - score) ** 2).mean()
            if weight:
                objective = objective + weight * fairness(score, groups[rows], target[rows])
            optimizer.zero_grad()
            (objective / (1.0 + weight)).backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(mean.parameters(), network.parameters(), strict=True):
                    slow.lerp_(fast, max(0.05, 1.0 / (step + 1)))
        self.network_ = mean.double().eval()
        return self

    def predict(self, X: Any) -> np.ndarray:
        with torch.no_grad():
            z = torch.from_numpy((np.asarray(X, dtype=float) - self._x[0]) / self._x[1])
            return self._y[0] + self._y[1] * self.network_(z)[:, 0].numpy()
