"""Mini-batches of the loss for networks: bias of the value, direction and noise of the gradient.

    python research/run.py torch_batches

A linear score of the law students (LSAC), plain and nearly fair; the gradient is that of its
coefficients. Bias: the mean value over batches less the value of all rows. Cosine: between the mean
gradient over batches and the gradient of all rows. Noise: root mean square distance of a batch's
gradient from their mean, over the norm of the gradient of all rows. Then networks trained with
either classifier, held out. Writes results/torch_batches.csv.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.metrics import r2_score
from sklearn.model_selection import StratifiedKFold

import evenhand as eh
from common import standardized, write
from evenhand.torch import FairMLPRegressor, FairnessLoss
from loaders import load_law_school

SIZES = (256, 8192)
EPOCHS = {256: 3, 8192: 60}
WARM = 40  # batches after which a running classifier is looked at


def gradients(loss, X, y, groups, theta, batches):
    """Values, and gradients in θ, of the batches."""
    values, slopes = [], []
    for rows in batches:
        at = theta.clone().requires_grad_()
        value = loss(X[rows] @ at, groups[rows], y[rows])
        value.backward()
        values.append(value.item())
        slopes.append(at.grad.numpy())
    return np.array(values), np.array(slopes)


def facts(criterion: str, weight: float, data) -> list[dict]:
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
            for _ in range(EPOCHS[size]):
                order = torch.randperm(len(y))
                batches += [b for b in order.split(size) if len(b) == size]
            loss = FairnessLoss(criterion, 2, classifier)
            values, slopes = gradients(loss, X, y, groups, theta, batches)
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
            print(out[-1], flush=True)
    return out


def trained(data, classifier: str, size: int) -> dict:
    """Two of five folds held out, at one fairness weight."""
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(data.X, data.sensitive))[:2]
    scores = np.full(len(data.y), np.nan)
    for train, test in folds:
        model = FairMLPRegressor(
            "independence", 3.0, classifier=classifier, batch_size=size, epochs=60, random_state=0
        )
        model.fit(data.X[train], data.y[train], sensitive_features=data.sensitive[train])
        scores[test] = model.predict(data.X[test])
    seen = ~np.isnan(scores)
    unfairness = eh.independence(
        data.y[seen], scores[seen], sensitive_features=data.sensitive[seen]
    )
    row = {
        "what": "network", "criterion": "independence", "fairness_weight": 3.0, "rows": size,
        "classifier": classifier, "r2": float(r2_score(data.y[seen], scores[seen])),
        "unfairness": float(unfairness),
    }  # fmt: skip
    print(row, flush=True)
    return row


def main() -> None:
    torch.set_num_threads(1)
    data = load_law_school()
    rows = []
    for criterion in ("independence", "separation"):
        for weight in (0.0, 10.0):
            rows += facts(criterion, weight, data)
    for classifier, size in (("batch", 256), ("running", 256), ("batch", 1024)):
        rows.append(trained(data, classifier, size))
    write("torch_batches", rows, ("torch",))


if __name__ == "__main__":
    main()
