"""
Has it moved since last quarter
===============================

A score was audited once and found acceptable. Then models are updated, people change, and somebody
has to look again, every month. Looking often has a price: at 5 % a look, three years of monthly
looks raise an alarm in many a series in which nothing ever happened. ``eh.monitor`` keeps the
chance of any false alarm over the whole series, however long, at the stated level.

The premiums here are made up. From May 2024 on a new tariff treats *south* worse.
"""

import numpy as np
import pandas as pd

import evenhand as eh

rng = np.random.default_rng(0)
n = 36_000
day = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 3 * 365, n), "D")
region = rng.choice(["north", "south"], n, p=[0.6, 0.4])
risk = rng.gamma(4.0, 25.0, n)
extra = np.where(day >= "2024-05-01", 45.0, 15.0) * (region == "south")
table = pd.DataFrame(
    {
        "day": day,
        "region": region,
        "loss": risk,
        "premium": risk + 30.0 * rng.normal(size=n) + extra,
    }
)

# %%
# One call
# --------
# Each month is counted into *cells* and measured by itself. All looks are replayed: an alarm is one
# that somebody who looked at the end of each month would have had.

found = eh.monitor(
    table,
    time="day",
    period="month",
    y_pred="premium",
    y_true="loss",
    sensitive_features="region",
    criteria=["independence", "separation"],
    limits={"separation": 0.20},
)
print(found.state)
for alarm in found.alarms:
    print(alarm.text)

# %%
# The shaded band holds the true value of every month at once. It widens slowly, as later looks may
# spend less of the chance of a false alarm. A red line is the look at which an alarm was raised,
# and the dashed line is the limit.

figure = found.plot()

# %%
# What looking every month does without that
# ------------------------------------------
# The first 28 months, in which nothing changes, each compared with the first by an ordinary test at
# 5 %:

quiet = [look for look in found.looks["independence"] if look.period < "2024-05"]
first, rest = quiet[0], quiet[1:]
errors = [abs(x.value - first.value) / np.hypot(x.stderr, first.stderr) for x in rest]
print(f"{sum(e > 1.96 for e in errors)} alarms in {len(rest)} looks at which nothing had changed")

# %%
# From counts alone
# -----------------
# Where rows are counted each month and then thrown away, the counts are enough. Months must share
# their edges, so that they can be added.

by_month = table.groupby(table["day"].dt.strftime("%Y-%m"))
months, edges = {}, None
for name, rows in by_month:
    months[name] = eh.Cells.from_rows(
        rows["loss"], rows["premium"], sensitive_features=rows["region"], edges=edges
    )
    edges = months[name].edges
again = eh.monitor(months, criteria=["separation"])
print(again.alarms[0].text)
