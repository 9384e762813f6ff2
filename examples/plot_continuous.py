"""
Age itself, not a band of it
============================

Prices are highest for the youngest and the oldest drivers. Of two bands cut at 49, each pays the
same on average and neither stands out. `eh.Continuous` asks about the age itself.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import evenhand as eh

rng = np.random.default_rng(0)
n = 2_000
age = pd.Series(rng.uniform(18, 80, n).round(1), name="age")
mileage = rng.gamma(6.0, 2.0, n)
price = 300 + 15 * mileage + 0.15 * (age - 49) ** 2 + rng.normal(0, 20, n)

# %%
# One call
# --------
# The value is 1 − exp(−2·I) with I the information in nats; for jointly normal variables that is
# the squared correlation.

audit = eh.audit(None, price, sensitive_features=eh.Continuous(age))
fine = audit.independence
print(f"value {fine.value:.3f} ({fine.interval[0]:.3f} to {fine.interval[1]:.3f}), "
      f"{fine.nats:.3f} nats, p {fine.p_value:.2g}")  # fmt: skip
print(f"squared correlation {np.corrcoef(age, price)[0, 1] ** 2:.3f}")

# %%
# Bands
# -----
# In truth bands carry at most as much as the age they were cut from; how much depends on where
# they were cut. Nats are comparable between the two; values are not, as that of groups is a share
# of their entropy.

counts = [2, 3, 4, 6, 8, 12]
banded = [
    eh.audit(
        None, price, sensitive_features=eh.bands(age, np.quantile(age, np.arange(1, k) / k))
    ).independence.nats
    for k in counts
]

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.scatter(age, price, s=3, alpha=0.4)
left.set(xlabel="age", ylabel="price")
right.plot(counts, banded, "o-", label="bands of equal size")
right.axhline(fine.nats, color="black", label="age itself")
ends = [-0.5 * np.log1p(-end) for end in fine.interval]
right.axhspan(*ends, color="black", alpha=0.12, linewidth=0)
right.set(xlabel="number of bands", ylabel="nats", ylim=(0, None))
right.legend(loc="lower right", frameon=False)
plt.show()

# %%
# Prices that say less about age
# ------------------------------
# `FairPostprocessor`, `FairRidge` and `FairGLM` take the same attribute. Their fairness term is
# that of eight bands; what is left is measured on the age itself, of other people.

X = pd.DataFrame({"mileage": mileage, "age": age, "age²": (age - 49) ** 2})
train, test = slice(0, n // 2), slice(n // 2, n)
for weight in (0.0, 1.0, 10.0):
    model = eh.FairRidge("independence", fairness_weight=weight).fit(
        X[train], price[train], sensitive_features=eh.Continuous(age[train])
    )
    scores = model.predict(X[test])
    left_over = eh.audit(None, scores, sensitive_features=eh.Continuous(age[test])).independence
    print(f"weight {weight}: R² {model.score(X[test], price[test]):.3f}, {left_over.nats:.3f} nats")
