"""
Counts in place of rows
=======================

Rows cannot always be brought to one place: they are in a database, at several sites, or gone, and
only a table of totals is left. An audit needs no rows. It needs *cells*: how many people of each
group have a score and an outcome in each cell of a fine grid, with a few sums. Cells of two sets of
people add up to the cells of both.
"""

import numpy as np
import pandas as pd

import evenhand as eh

rng = np.random.default_rng(0)
n = 30_000
sex = rng.choice(["female", "male"], size=n)
risk = rng.gamma(3.0, 1.0, size=n)
outcome = risk * rng.gamma(4.0, 0.25, size=n)
score = risk + 0.15 * (sex == "male") + rng.normal(0.0, 0.3, size=n)

# %%
# Two sites, one audit
# --------------------
# The first site chooses the grid. The other one is sent the ``edges`` of it, a dozen numbers, and
# sends its own counts back.

first = slice(0, 10_000)
rest = slice(10_000, None)
here = eh.Cells.from_rows(outcome[first], score[first], sensitive_features=sex[first])
there = eh.Cells.from_rows(
    outcome[rest], score[rest], sensitive_features=sex[rest], edges=here.edges
)
both = here + there
print(both)

# %%
# ``eh.audit`` takes the cells as it takes rows, and says the same: values, intervals, tests of
# exact fairness, the table of groups.

from_cells = eh.audit(both)
from_rows = eh.audit(outcome, score, sensitive_features=sex)
pd.DataFrame(
    {
        "from rows": {name: m.value for name, m in from_rows.measures.items()},
        "from cells": {name: m.value for name, m in from_cells.measures.items()},
        "standard error": {name: m.stderr for name, m in from_rows.measures.items()},
    }
)

# %%
# The picture is drawn from people placed within their cells.

figure = from_cells.plot()

# %%
# To keep and to send
# -------------------
# Cells are an Arrow table, so that they can be written as Parquet or filled by a database.

table = both.to_arrow()
assert eh.Cells.from_arrow(table) == both
table.slice(0, 3).to_pandas()

# %%
# A table of totals
# -----------------
# Where scores and outcomes are few values, people keep one row for each combination and the number
# of people that it stands for. That number is a ``frequency``: 40 means 40 people. It is not a
# weight, which says how much one person counts, and leaves the number of people as it is.

rows = pd.DataFrame({"sex": sex, "grade": np.round(score), "claims": np.round(outcome)})
totals = rows.groupby(["sex", "grade", "claims"]).size().reset_index(name="people")
counted = eh.audit(
    totals["claims"], totals["grade"], sensitive_features=totals["sex"], frequency=totals["people"]
)
same = eh.audit(rows["claims"], rows["grade"], sensitive_features=rows["sex"])
print(f"{len(totals)} rows of totals for {counted.n_rows:,} people")
print(f"independence {counted.independence.value:.6f}, from the rows {same.independence.value:.6f}")
