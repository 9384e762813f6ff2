"""
When race was imputed from surname and address
==============================================

Lenders and insurers often may not record race. They impute it: the share of each group among people
with a surname, from a census, times how a place makes the group more or less likely,

.. math:: P(A = k \\mid \\text{surname}, \\text{place}) \\propto
    P(A = k \\mid \\text{surname}) \\, P(\\text{place} \\mid A = k).

This is Bayes' rule where surname and place are independent given the group. An audit by such
probabilities rests on an assumption that the data cannot check. This page makes the probabilities,
audits by them, and shows what can be said without the assumption.

Names, places and people are made up, so that the truth is known.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import evenhand as eh

rng = np.random.default_rng(0)
groups = ["A", "B", "C"]
shares = np.array([0.6, 0.25, 0.15])

# %%
# Two tables
# ----------
# P(group | surname), as a census prints it for each name, and P(place | group), from the counts of
# each group by place.

surname_given_group = rng.dirichlet(np.full(40, 0.25), size=3)  # one row per group
place_given_group = rng.dirichlet(np.full(60, 0.5), size=3)
names = [f"name {j:02d}" for j in range(40)]
places = [f"place {j:02d}" for j in range(60)]
joint = surname_given_group * shares[:, None]
by_surname = pd.DataFrame((joint / joint.sum(axis=0)).T, index=names, columns=groups)
by_place = pd.DataFrame(place_given_group.T, index=places, columns=groups)
by_surname.head(3).round(3)

# %%
# People, and what they were charged. The group matters for the price by where people live, and by
# 40 directly for group B, say through an agent who sees them.

n = 8_000
group = rng.choice(3, size=n, p=shares)
surname = np.array([rng.choice(names, p=surname_given_group[k]) for k in group])
place = np.array([rng.choice(places, p=place_given_group[k]) for k in group])
rate = pd.Series(100.0 * rng.gamma(8.0, 0.125, len(places)), index=places)
price = 3.0 * rate[place].to_numpy() + 60.0 * rng.normal(size=n) + 40.0 * (group == 1)

# %%
# The recipe
# ----------
# Look both up, multiply, divide by the sum of each row. A name or a place that is in no table
# leaves a row of NaN, which is a person whose group is not known.

product = by_surname.reindex(surname).to_numpy() * by_place.reindex(place).to_numpy()
probabilities = product / product.sum(axis=1, keepdims=True)
proxy = eh.Proxy(probabilities, groups)
print(f"each row adds up to 1: {np.allclose(probabilities.sum(axis=1), 1.0)}")

audit = eh.audit(None, price, sensitive_features=proxy)
print(audit)

# %%
# Assumed and certain
# -------------------
# The estimate takes it that among people with the same name and place the price has nothing to do
# with the group. For C this is so, and the estimate is right. For B it is not: the part of the gap
# that name and place do not tell is left out, and the interval does not help. The bounds hold
# whatever the distribution is, and they hold the truth.

found = audit.imputation
truth = {k: price[group == j].mean() - price[group == 0].mean() for j, k in enumerate(groups)}
figure, ax = plt.subplots(figsize=(7.0, 2.6), layout="constrained")
for at, gap in enumerate(found.gaps):
    ax.plot(gap.bounds, [at, at], color="#cccccc", linewidth=9, solid_capstyle="butt",
            label=None if at else "bounds, whatever the distribution")  # fmt: skip
    ax.plot(gap.interval, [at, at], color="#4878a8", linewidth=3,
            label=None if at else "estimate under the assumption")  # fmt: skip
    ax.plot(gap.value, at, "o", color="#4878a8")
    ax.plot(truth[gap.group], at, "x", color="#b33b2e", markersize=8, markeredgewidth=2,
            label=None if at else "truth")  # fmt: skip
ax.axvline(0.0, color="#222222", linewidth=0.8)
ax.set_yticks(range(len(found.gaps)), [f"{g.group} minus {g.reference}" for g in found.gaps])
ax.set_ylim(-0.6, len(found.gaps) - 0.4)
ax.set_xlabel("gap in mean price")
ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
plt.show()

# %%
# Sharper probabilities narrow the bounds. Here are the same people with the surname alone, the
# place alone, and both; *certainty* is the share of the uncertainty about the group that they
# remove.

alone = {
    "surname": by_surname.reindex(surname).to_numpy(),
    "place": by_place.reindex(place).to_numpy() * shares,
    "both": probabilities,
}
rows = {}
for name, p in alone.items():
    one = eh.Proxy(p / p.sum(axis=1, keepdims=True), groups)
    seen = eh.audit(None, price, sensitive_features=one).imputation
    gap = seen["B"]
    rows[name] = {
        "certainty": seen.certainty,
        "estimate": gap.value,
        "least": gap.bounds[0],
        "largest": gap.bounds[1],
    }
rows["truth"] = {"estimate": truth["B"]}
pd.DataFrame(rows).T.round(2)
