"""
Fair prices of motor insurance
==============================

Insurers price with generalized linear models: a Poisson model of how often people claim, a gamma
model of what a claim costs, or one Tweedie model of both. This example makes such prices fair to
men and women, and to age bands, on Belgian motor policies of 1997.

The data cannot be redistributed. Where the file is not at hand, policies are made up that resemble
it, so that the example still runs; the first line of output says which.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import evenhand as eh

ROWS = 6_000


def made_up(n):
    """Policies with age, power and place; claims and their cost."""
    rng = np.random.default_rng(0)
    sex = np.where(rng.random(n) < 0.26, "female", "male")
    age = np.clip(rng.normal(47.0, 15.0, n), 18.0, 95.0)
    power = rng.gamma(9.0, 6.0, n) + 12.0 * (sex == "male")
    X = np.column_stack([age, power, rng.normal(size=n)])
    years = rng.uniform(0.1, 1.0, n)
    rate = np.exp(-2.0 - 0.015 * (age - 47.0) + 0.02 * (power - 54.0) + 0.1 * X[:, 2])
    claims = rng.poisson(rate * years).astype(float)
    cost = np.where(claims > 0, rng.gamma(0.7 * np.maximum(claims, 1.0), 1500.0 / 0.7), 0.0)
    return X, ["ageph", "power", "long"], claims, cost, years, sex


try:
    from loaders import load_belgian_motor  # in the folder research/ of the repository

    data = load_belgian_motor(target="frequency")
    rows = np.sort(np.random.default_rng(0).permutation(len(data.y))[:ROWS])
    X, names, sex = data.X[rows], list(data.feature_names), data.sensitive[rows]
    years = data.exposure[rows]
    claims = np.round(data.y[rows] * years)
    cost = load_belgian_motor(target="pure_premium").y[rows] * years
    print(f"{len(rows):,} Belgian policies")
except (ImportError, OSError):
    X, names, claims, cost, years, sex = made_up(ROWS)
    print(f"{ROWS:,} made-up policies, as the Belgian ones are not at hand")

age = X[:, names.index("ageph")]
Z = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
print(f"{claims.sum():,.0f} claims in {years.sum():,.0f} years, {np.mean(claims == 0):.0%} without")

# %%
# How often: a frontier of D²
# ---------------------------
# Counts have an exposure; scores are claims per year. With counts that are mostly zero R² is near 0
# for any model, so that accuracy is the share of the deviance explained, D².

frequency = eh.FairGLM("poisson", "independence")
path = eh.fairness_path(
    frequency, Z, claims, sensitive_features=sex, exposure=years, fairness_weights=[0.1, 1, 3],
    cv=3, measure_with="logistic", random_state=0,
)  # fmt: skip
print(path)
figure = path.plot()

# %%
# Frequency × severity
# --------------------
# The price is the product of two fair models. Fair factors do not promise a fair product, so the
# product is what is audited.

paid = cost > 0
often = eh.FairGLM("poisson", "independence", 1.0)
often.fit(Z, claims, sensitive_features=sex, exposure=years)
dear = eh.FairGLM("gamma", "independence", 1.0, alpha=0.01)
dear.fit(Z[paid], (cost / np.maximum(claims, 1.0))[paid], sensitive_features=sex[paid],
         sample_weight=claims[paid])  # fmt: skip
price = often.predict(Z) * dear.predict(Z)
plain = eh.FairGLM("poisson", fairness_weight=0).fit(Z, claims, exposure=years).predict(
    Z
) * eh.FairGLM("gamma", fairness_weight=0, alpha=0.01).fit(
    Z[paid], (cost / np.maximum(claims, 1.0))[paid], sample_weight=claims[paid]
).predict(Z)
for name, score in (("plain", plain), ("fair", price)):
    found = eh.independence(None, score, sensitive_features=sex, estimator="logistic")
    means = [score[sex == group].mean() for group in ("female", "male")]
    print(f"{name}: independence {found:.4f}, mean price {means[0]:.0f} (women), {means[1]:.0f}")

# %%
# Pure premium, by age band
# -------------------------
# One Tweedie model of the cost itself. Age is a legitimate reason to many; here it is the
# attribute, to show what a price that must not depend on it would cost.

bands = eh.bands(age, [30, 60])
figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
for weight in (0.0, 0.3, 3.0):
    premium = eh.FairGLM("tweedie", "independence", weight, power=1.6)
    premium.fit(Z, cost, sensitive_features=bands, exposure=years)
    explained = premium.score(Z, cost, exposure=years)
    print(f"weight {weight:g}: unfairness {premium.unfairness_:.4f}, D² {explained:.4f}")
    edges = np.quantile(age, np.linspace(0, 1, 13))
    place = np.clip(np.searchsorted(edges, age, side="right") - 1, 0, 11)
    means = [premium.predict(Z)[place == k].mean() for k in np.unique(place)]
    axis.plot([age[place == k].mean() for k in np.unique(place)], means, "o-", label=f"{weight:g}")
axis.set(xlabel="age", ylabel="mean pure premium a year")
axis.legend(title="fairness weight")
plt.show()

# %%
# What `given` is for
# -------------------
# Separation asks that people of the same outcome have the same prices. Nine in ten have no claim,
# so that "the same outcome" is nearly everybody, and separation given the count says what
# independence says: FairGLM warns. Given a legitimate measure of the risk it asks something else:
# that people of one risk pay the same. Here the risk is what a model without age expects.

others = [j for j, name in enumerate(names) if name != "ageph"]
risk = eh.FairGLM("poisson", fairness_weight=0).fit(Z[:, others], claims, exposure=years)
risk = np.log(risk.predict(Z[:, others]))
fair = {"sensitive_features": bands, "exposure": years}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    by_count = eh.FairGLM("poisson", "separation", 1.0).fit(Z, claims, **fair)
print(caught[0].message)
by_risk = eh.FairGLM("poisson", "separation", 1.0).fit(Z, claims, **fair, given=risk)
for name, model in (("given the count", by_count), ("given the risk", by_risk)):
    score = model.predict(Z)
    left = eh.separation(risk, score, sensitive_features=bands, estimator="logistic")
    print(f"{name}: what scores tell about age among people of one risk {left:.4f}")
