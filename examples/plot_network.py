"""
A fair network, and how it learns
=================================

A network needs the fairness term as a loss, :class:`evenhand.torch.FairnessLoss`, and a schedule:
fairness asked for from the first step is bought with one score for everybody. So this loop trains
plainly first, then lets the term in. Its learning curve is that on the grades of 4,137 students.
It needs PyTorch: ``pip install 'evenhand[torch]'``.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.model_selection import train_test_split

import evenhand as eh
from evenhand.torch import FairnessLoss

data = eh.datasets.load_gpa2()
X, test_X, y, test_y, a, test_a = train_test_split(
    data.X, data.y, data.sensitive, random_state=0, stratify=data.sensitive
)
center, spread = X.mean(axis=0), X.std(axis=0)
features, test_features = (torch.from_numpy((x - center) / spread).float() for x in (X, test_X))
target = torch.from_numpy((y - y.mean()) / y.std()).float()
groups = torch.from_numpy((a == a[0]).astype("int64"))

# %%
# The loop
# --------
# The loss takes scores, group numbers (-1 where a group is not known) and, for separation and
# sufficiency, the target. Any optimizer, any network.

EPOCHS, PLAIN, RAMP = 60, 12, 12


def train(fairness_weight):
    """A network, and its squared error and independence by epoch."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(X.shape[1], 32), torch.nn.SiLU(), torch.nn.Linear(32, 1)
    )
    fairness = FairnessLoss("independence", n_groups=2)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    history = []
    for epoch in range(EPOCHS):
        weight = fairness_weight * min(1.0, max(0.0, (epoch - PLAIN) / RAMP))
        for rows in torch.randperm(len(target)).split(1024):
            scores = network(features[rows])[:, 0]
            squares = ((target[rows] - scores) ** 2).mean()
            value = fairness(scores, groups[rows])
            optimizer.zero_grad()
            ((squares + weight * value) / (1.0 + weight)).backward()
            optimizer.step()
        schedule.step()
        with torch.no_grad():
            scores = network(features)[:, 0]
            squares = ((target - scores) ** 2).mean()
            history.append((squares.item(), fairness(scores, groups).item()))
    return network, history


# %%
# The learning curve
# ------------------
# Gray: epochs without the fairness term, and epochs in which its weight rises.

fair, history = train(10.0)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharex=True)
labels = ("squared error / Var(y)", "independence")
for axis, curve, label in zip(axes, zip(*history, strict=True), labels, strict=True):
    axis.plot(curve)
    axis.set(xlabel="epoch", ylabel=label)
    axis.axvspan(0, PLAIN, color="0.85", lw=0)
    axis.axvspan(PLAIN, PLAIN + RAMP, color="0.93", lw=0)
figure.tight_layout()

# %%
# On other rows, beside a network without the term:

for name, network in (("plain", train(0.0)[0]), ("fair", fair)):
    with torch.no_grad():
        scores = y.mean() + y.std() * network(test_features)[:, 0].numpy()
    value = eh.independence(test_y, scores, sensitive_features=test_a)
    r2 = 1.0 - ((test_y - scores) ** 2).mean() / test_y.var()
    print(f"{name:6} R² {r2:.3f}  independence {value:.3f}")
