"""
The price of fairness
=====================

A fairer model is usually a less accurate one. How much less is a curve: one fitted model per point,
all numbers measured on rows that the model had not seen. This example draws the curve for the
grades of 4,137 students, chooses a point on it in three ways, and looks at who gains and who loses.
"""

import numpy as np
import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh

data = eh.datasets.load_gpa2()
print(data)
print(data.description)

# %%
# The frontier
# ------------
# :class:`~evenhand.FairRidge` is a ridge regression with a fairness term;
# :func:`~evenhand.fairness_path` fits it with that term at weight 0 (a plain ridge regression) and
# at larger and larger ones. Features are scaled inside the pipeline, within each fold.

model = make_pipeline(StandardScaler(), eh.FairRidge("independence"))
path = eh.fairness_path(
    model, data.X, data.y, sensitive_features=data.sensitive, n_points=8, random_state=0
)
print(path)

# %%
# R² falls as the score tells less about the group. All three criteria are measured whichever one is
# trained for: making the scores independent of the group does not make them sufficient.

figure = path.plot()

# %%
# Choosing a point
# ----------------
# By a level of fairness: the most accurate model whose held-out independence is at most 0.01.

chosen = path.select(max_unfairness=0.01)
point = path.selected
print(f"R² {point.r2:.3f}, independence {point.independence.shown:.4f}")

# %%
# By accuracy: the fairest model that keeps 95% of the R² of the plain one.

fairest = path.select(min_accuracy=0.95 * path.points[0].r2)
print(f"R² {path.selected.r2:.3f}, independence {path.selected.independence.shown:.4f}")

# %%
# With a certificate: the bound must hold for the *upper end* of an interval that allows for having
# picked the best of eight points. That is a stricter question: it takes a fairer model to be sure
# of the same level, and with few rows no model may be known to be that fair.

try:
    path.select(max_unfairness=0.01, certify=True)
    print(f"certified at fairness_weight {path.selected.fairness_weight:g}")
except ValueError as problem:
    print(problem)

# %%
# What ``select`` returns is an ordinary fitted pipeline.

scores = chosen.predict(data.X)

# %%
# Who gains, who loses
# --------------------
# The change of each person's score by group. ``path.to_html()`` has it with the shares of people
# whose score rises and falls.

plain = make_pipeline(StandardScaler(), eh.FairRidge(fairness_weight=0)).fit(data.X, data.y)
change = pd.Series(scores - plain.predict(data.X))
change.groupby(np.asarray(data.sensitive)).describe(percentiles=[0.05, 0.5, 0.95]).round(3)
