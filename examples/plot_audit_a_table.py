"""
Audit a table of predictions
============================

You have a table with one row per customer: a price or score that a model gave, what happened, and
the groups that the score must not depend on. No model and no features are needed for an audit.

The table here is made up, so that we know what is in it: 6,000 motor policies. The premium never
saw the region of the customer. It did see the mileage, and people in the south drive more.
"""

import numpy as np
import pandas as pd

import evenhand as eh

rng = np.random.default_rng(0)
n = 6_000
region = rng.choice(["north", "south", "west"], size=n, p=[0.5, 0.3, 0.2])
age = rng.integers(18, 90, size=n)
mileage = rng.gamma(6.0, 2.0, size=n) * np.where(region == "south", 1.25, 1.0)
risk = 60.0 + 14.0 * mileage + 3.0 * np.abs(age - 45)
table = pd.DataFrame(
    {
        "region": region,
        "age": age,
        "loss": risk * rng.gamma(2.0, 0.5, size=n),
        "premium": risk * rng.normal(1.0, 0.05, size=n),
    }
)
table.head()

# %%
# One call
# --------
# Only three columns are needed: what happened, the score, and the group.

audit = eh.audit(table["loss"], table["premium"], sensitive_features=table["region"])
print(audit)

# %%
# Start with the three sentences. The premium gives away some of the region (*independence*), and it
# does so even among people with the same loss (*separation*). But the same premium means the same
# expected loss in every region (*sufficiency*): the difference in price is a difference in risk,
# and not a mistake of the model. Whether such a difference is acceptable is a question for you and
# for the law, not one that data can settle; :doc:`/criteria` says what each answer would cost.
#
# The same as a picture: scores by group, outcome against score by group, and the three values with
# their intervals.

figure = audit.plot()

# %%
# The numbers behind it
# ---------------------
# Everything is an attribute, and every table is a data frame.

found = audit.independence
print(found.value, found.interval, found.p_value, sep="\n")
audit.groups[["group", "n", "mean_score", "mean_target", "mean_residual", "rmse"]]

# %%
# Several attributes at once
# --------------------------
# Ages are measurements; cut them into bands first. Several columns are crossed into intersections,
# and each column is judged by itself as well, as is the worst group against all others: an
# irrelevant column cannot dilute what another one shows.

groups = pd.DataFrame(
    {"region": table["region"], "age": eh.bands(table["age"], [25, 65])},
)
crossed = eh.audit(table["loss"], table["premium"], sensitive_features=groups)
for part, measure in crossed.parts("independence").items():
    low, high = measure.interval
    print(f"{part:38} {measure.shown:.4f} ({low:.4f} to {high:.4f})")

# %%
# To hand it on
# -------------
# ``audit.to_html("audit.html")`` writes one file that can be mailed or printed. In a pipeline the
# command line does the same and fails above a limit:
#
# .. code-block:: console
#
#    evenhand audit policies.csv --target loss --prediction premium --sensitive region \
#        --html audit.html --fail-above independence=0.05
