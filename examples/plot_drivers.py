"""
Which features carry the disparity
==================================

An audit says that prices differ between groups. The next question is through which features.

The policies here are made up, so that the answer is known. People of region *south* drive more and
own newer cars; both raise the price. They also read another newspaper, which the model never uses.
"""

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import permutation_importance

import evenhand as eh

rng = np.random.default_rng(0)
n = 3_000
south = rng.random(n) < 0.35
features = pd.DataFrame(
    {
        "mileage": rng.gamma(6.0, 2.0, n) * np.where(south, 1.3, 1.0),
        "car_age": np.maximum(rng.normal(8.0, 3.0, n) - 2.0 * south, 0.0),
        "driver_age": rng.uniform(18.0, 80.0, n),
        "newspaper": np.where(rng.random(n) < 0.2 + 0.6 * south, 1.0, 0.0),
    }
)
loss = (
    200.0 + 20.0 * features["mileage"] - 8.0 * features["car_age"]
    + 6.0 * np.abs(features["driver_age"] - 45.0) + rng.normal(0.0, 60.0, n)
)  # fmt: skip
region = np.where(south, "south", "north")
model = HistGradientBoostingRegressor(max_iter=80, random_state=0).fit(features, loss)

# %%
# One call
# --------
# For each feature: how well it alone tells the group, and how much of the gap in mean prices, and
# of each criterion, goes away when everybody is given the same values of it.

found = eh.drivers(model, features, sensitive_features=region, y_true=loss)
print(found)

# %%
# Mileage carries most of the gap. The newspaper tells the region best of all features and carries
# next to nothing, as the model hardly uses it: a stand-in for the group is no driver by itself. A
# negative part is a feature that hides a disparity: what it adds to the price has nothing to do
# with region and blurs what the others say about it.

figure = found.plot()

# %%
# What importance says instead
# ----------------------------
# Permutation importance ranks features by what they do for accuracy. Driver age comes second, ahead
# of the age of the car, and does not differ between regions at all.

importance = permutation_importance(model, features, loss, n_repeats=3, random_state=0)
dict(zip(features.columns, importance.importances_mean.round(3).tolist(), strict=True))
