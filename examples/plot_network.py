"""
A fair network, and how it learns
=================================

A network needs the fairness term as a loss, and a schedule: fairness asked for from the first step
is bought with one score for everybody. :class:`evenhand.torch.FairMLPRegressor` trains plainly
first, then lets the term in. This example shows its learning curve on the grades of 4,137 students,
and the loss in a training loop of one's own. It needs PyTorch: ``pip install 'evenhand[torch]'``.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.model_selection import train_test_split

import evenhand as eh
from evenhand.torch import FairMLPRegressor, FairnessLoss

data = eh.datasets.load_gpa2()
X, test_X, y, test_y, a, test_a = train_test_split(
    data.X, data.y, data.sensitive, random_state=0, stratify=data.sensitive
)

# %%
# The learning curve
# ------------------
# A tenth of the rows is set aside. Gray: steps without the fairness term, and steps in which its
# weight rises. What is kept is the epoch with the least objective on the rows set aside.

model = FairMLPRegressor(
    "independence", fairness_weight=10.0, hidden=(32,), batch_size=1024, epochs=60, random_state=0
)
model.fit(X, y, sensitive_features=a)
history = model.history_

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), sharex=True)
left.plot(history["loss"], label="training")
left.plot(history["held_out_loss"], label="set aside")
left.set(xlabel="epoch", ylabel="squared error / Var(y)", ylim=(0.6, 1.1))
right.plot(history["unfairness"], label="training, mean of batches")
right.plot(history["held_out_unfairness"], label="set aside")
right.set(xlabel="epoch", ylabel="independence", ylim=(0, None))
for axis in (left, right):
    axis.axvspan(0, model.plain * model.epochs, color="0.85", lw=0)
    ramp = (model.plain + model.ramp) * model.epochs
    axis.axvspan(model.plain * model.epochs, ramp, color="0.93", lw=0)
    axis.legend(frameon=False)
figure.tight_layout()

# %%
# On other rows, beside a network without the term:

plain = FairMLPRegressor(
    fairness_weight=0, hidden=(32,), batch_size=1024, epochs=60, random_state=0
).fit(X, y)
for name, network in (("plain", plain), ("fair", model)):
    scores = network.predict(test_X)
    value = eh.independence(test_y, scores, sensitive_features=test_a)
    print(f"{name:6} R² {network.score(test_X, test_y):.3f}  independence {value:.3f}")

# %%
# In a loop of one's own
# ----------------------
# The loss takes scores, group numbers (-1 where a group is not known) and, for separation and
# sufficiency, the target. Any optimizer, any network.

fairness = FairnessLoss("independence", n_groups=2)
groups = torch.from_numpy((a == a[0]).astype("int64"))
features = torch.from_numpy((X - X.mean(axis=0)) / X.std(axis=0)).float()
target = torch.from_numpy((y - y.mean()) / y.std()).float()
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(X.shape[1], 16), torch.nn.Tanh(),
                              torch.nn.Linear(16, 1))  # fmt: skip
optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
for step in range(60):
    scores = network(features)[:, 0]
    squares = ((target - scores) ** 2).mean()
    value = fairness(scores, groups, target)
    weight = 5.0 * min(1.0, step / 30)
    optimizer.zero_grad()
    (squares + weight * value).backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1}: R² {1 - squares.item():.3f}, independence {value.item():.3f}")
