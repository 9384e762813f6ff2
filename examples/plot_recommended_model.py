"""
The recommended model, blind and known
======================================

:class:`~evenhand.FairRegressor` takes a criterion and a bound. It tries several kinds of fair model
on inner folds, keeps the most accurate one that meets the bound, and says what it chose and why.

The one question that it cannot answer for you is whether the model may *use* the recorded group. A
**blind** model never needs it to score a person. A model that **knows** it can undo a difference
more exactly, but treats two people who differ only in group differently on purpose, and this is not
allowed for every decision.
"""

from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

import evenhand as eh

data = eh.datasets.load_gpa2()
X, X_new, y, y_new, group, group_new = train_test_split(
    data.X, data.y, data.sensitive, test_size=0.5, stratify=data.sensitive, random_state=0
)

# %%
# Blind
# -----

blind = eh.FairRegressor("independence", max_unfairness=0.01, random_state=0)
blind.fit(X, y, sensitive_features=group)
print(blind.explanation_)

# %%
# Every candidate, best first. ``behind`` is how far its R² lies below that of the chosen one; where
# that is less than its standard error the choice between the two is a matter of luck.

blind.to_frame()

# %%
# Known
# -----
# The group of each student is now asked for again when scores are made.

known = eh.FairRegressor("independence", max_unfairness=0.01, attribute="known", random_state=0)
known.fit(X, y, sensitive_features=group)
print(known.explanation_)

# %%
# On new rows
# -----------
# Both numbers above were measured on inner folds, and having been picked as the best flatters them
# slightly. The half of the students that no model has seen is the fair judge.

plain = LinearRegression().fit(X, y)
scores = {
    "plain": plain.predict(X_new),
    "blind": blind.predict(X_new),
    "known": known.predict(X_new, sensitive_features=group_new),
}
audits = eh.audit(y_new, scores, sensitive_features=group_new)
print(audits)

# %%
# With 39 students in the smallest group of this half, the intervals are wide: a bound of 0.01 on
# inner folds is an estimate, and so is every number in the table. More rows are the only cure.

figure = audits["known"].plot()
