"""
A fair model on top of gradient boosting
========================================

Any regressor can be made fair by a stack: a fair linear model on the features and on the
regressor's own scores, taken out of fold. The regressor sees the table as it is, with its
categories and gaps; nobody is asked for their group when they are scored.
"""

# %%
# Made-up claims: cost depends on age along a curve and on the region, and the two groups live in
# different regions. Some ages are missing.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

import evenhand as eh

rng = np.random.default_rng(0)
n = 3000
group = np.where(rng.random(n) < 0.4, "b", "a")
age = rng.uniform(18, 80, n)
region = np.where(
    rng.random(n) < np.where(group == "b", 0.7, 0.3), "city", rng.choice(["town", "coast"], n)
)
mileage = rng.normal(np.where(region == "city", 1.0, 0.0), 1.0)
cost = (
    ((age - 45) / 20) ** 2
    + 0.8 * mileage
    + np.where(region == "city", 0.8, 0.0)
    + rng.normal(size=n)
)
table = pd.DataFrame({"age": age, "mileage": mileage, "region": pd.Categorical(region)})
table.loc[rng.random(n) < 0.1, "age"] = np.nan

# %%
# One set of boosted fits serves the whole path, so that a frontier costs little more than the
# boosting itself.
booster = HistGradientBoostingRegressor(
    max_iter=60, categorical_features="from_dtype", random_state=0
)
options = {
    "sensitive_features": group,
    "fairness_weights": [0.2, 0.6, 2.0, 6.0],
    "cv": 3,
    "measure_with": "logistic",
    "random_state": 0,
}
stack = eh.FairPostprocessor(booster, passthrough=True, cv=3, random_state=0)
path = eh.fairness_path(stack, table, cost, **options)
path

# %%
# The same features in a linear model alone.
encoded = eh.TableEncoder().fit_transform(table)
linear = eh.fairness_path(eh.FairRidge(group_features="posterior"), encoded, cost, **options)

fig, ax = plt.subplots(layout="constrained")
for found, label in ((path, "stack on boosting"), (linear, "linear, posterior")):
    u = [p.independence.value for p in found.points]
    ax.plot(u, [p.r2 for p in found.points], "o-", label=label)
ax.set(xlabel="independence (0 is fair), held out", ylabel="R², held out")
ax.legend()
plt.show()

# %%
# The model at a bound, and what its columns are.
model = path.select(max_unfairness=0.02)
print(", ".join(model.columns_))
print(model.predict(table[:3]).round(2))
