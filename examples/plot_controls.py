"""
Legitimate factors: what the controls explain, and what they do not
===================================================================

Premiums of one group are higher on average. Part of that goes with factors that an insurer may use,
such as the class of the car and the miles driven. The question is about the rest: do people with
the same factors pay the same?
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import evenhand as eh

# %%
# A tariff with a surcharge
# -------------------------
# Group A drives more and lives in town more often, and pays 5% more on top. The premium is a
# function of the three, without noise.
rng = np.random.default_rng(0)
n = 4000
group = np.where(rng.random(n) < 0.35, "A", "B")
in_a = group == "A"
miles = rng.gamma(8.0, np.where(in_a, 1.6, 1.3))
zone = np.where(rng.random(n) < np.where(in_a, 0.6, 0.4), "town", "land")
premium = 250 * np.exp(0.03 * miles + 0.2 * (zone == "town") + 0.05 * in_a)
factors = pd.DataFrame({"miles": miles, "zone": zone})

# %%
# The audit
# ---------
# `controls` takes numbers, text, dates and gaps. The answer in money comes first.
audit = eh.audit(None, premium, sensitive_features=group, controls=factors, estimator="logistic")
print(audit.conditional)

# %%
# The premium is a function of controls and group, and the result says so: a difference of one cent
# reveals the group as well as one of 5%, so the information says little about the size of the gap.
gap = audit.conditional.gap()
print(gap.ratio_percent.interval, audit.conditional.is_function)

# %%
# The split of the gap
# --------------------
fig, ax = plt.subplots(figsize=(6, 1.8), layout="constrained")
left = 0.0
for part, name in (
    (gap.explained_percent, "explained by the controls"),
    (gap.adjusted_percent, "not explained"),
):
    ax.barh([0], part.value, left=left, label=name)
    left += part.value
margin = gap.adjusted_percent.interval[1] - gap.adjusted_percent.value
ax.errorbar(gap.raw_percent.value, 0, xerr=margin, color="black", capsize=3)
ax.set(yticks=[], xlabel="premiums of A above those of B, in percent of B's mean")
fig.legend(loc="outside upper left", ncols=2, frameon=False)
plt.show()
