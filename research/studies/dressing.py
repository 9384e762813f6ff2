"""Tables dressed up to pass: tricks composed at random, each judged as the plain table was.

The plain table fails every limit here: a quarter of the rows, group "b", scores 0.8 higher. A trick
changes labels, weights, frequencies or rows. No composition may turn the fail into a pass without
the verdict saying what was done to the data; a fail, "not enough data" and a refusal are as good.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import evenhand as eh
from common import Setting, run_all

ROWS = 1500
LIMITS = {
    "independence": eh.Tolerance(independence=0.02),
    "mean_difference": eh.Tolerance(mean_difference=(-0.3, 0.3)),
    "smd": eh.Tolerance(smd=(-0.2, 0.2)),
    "kolmogorov_smirnov": eh.Tolerance(kolmogorov_smirnov=0.1),
}
# What a verdict says of the data, in words that stand for what was done to it.
SAID = (
    "are copies of others", "Rows count by", "weight zero are left out", "have no known group",
    "are likely the same group", "is taken for a group", "Without the",
)  # fmt: skip
Table = dict[str, np.ndarray]
Random = np.random.Generator


def draw(rng: Random) -> Table:
    a = np.where(rng.random(ROWS) < 0.25, "b", "a").astype(object)
    return {"s": rng.normal(size=ROWS) + 0.8 * (a == "b"), "a": a, "true": a == "b"}


def harmed(table: Table) -> np.ndarray:
    """Members of the group whose scores are high, whom a trick would rather not count."""
    return table["true"] & (table["s"] > np.median(table["s"]))


def relabel(table: Table, rows: np.ndarray, labels: Any) -> Table:
    a = table["a"].copy()
    a[rows] = labels
    return {**table, "a": a}


def split(table: Table, rng: Random, rows: np.ndarray, count: int) -> Table:
    """A number behind the label."""
    numbers = rng.integers(0, count, len(rows))
    known = np.flatnonzero(rows & np.array([label is not None for label in table["a"]]))
    return relabel(table, known, [f"{table['a'][i]}{numbers[i]}" for i in known])


def weigh(table: Table, rows: np.ndarray, weight: float) -> Table:
    before = table.get("sample_weight", np.ones(len(rows)))
    return {**table, "sample_weight": before * np.where(rows, weight, 1.0)}


def count(table: Table, rng: Random) -> Table:
    rows = harmed(table) & (rng.random(len(table["s"])) < 0.9)
    return {**table, "frequency": np.where(rows, 0, table.get("frequency", 1))}


def take(table: Table, rows: np.ndarray) -> Table:
    return {name: column[rows] for name, column in table.items()}


TRICKS: dict[str, Callable[[Table, Random], Table]] = {
    "majority split": lambda t, rng: split(t, rng, ~t["true"], 60),
    "minority split": lambda t, rng: split(t, rng, t["true"], 60),
    "blanks": lambda t, rng: relabel(t, harmed(t) & (rng.random(len(t["s"])) < 0.9), None),
    "blanks at random": lambda t, rng: relabel(t, rng.random(len(t["s"])) < 0.5, None),
    "weights": lambda t, rng: weigh(t, harmed(t), 0.1),
    "weights of zero": lambda t, rng: weigh(t, harmed(t), 0.0),
    "frequencies": count,
    "spellings": lambda t, rng: relabel(
        t, t["true"], rng.choice(["b", "B", " b"], int(t["true"].sum()))
    ),
    "NA as a label": lambda t, rng: relabel(t, harmed(t), "NA"),
    "copies": lambda t, rng: take(t, np.append(np.arange(len(t["s"])), np.flatnonzero(~harmed(t)))),
}


def dress(seed: int) -> tuple[list[str], str]:
    """Names of the tricks, and the outcome: that of the verdict, "refused", or "silent pass"."""
    rng = np.random.default_rng(seed)
    table, tricks = draw(rng), rng.choice(list(TRICKS), int(rng.integers(1, 6))).tolist()
    for name in tricks:
        table = TRICKS[name](table, rng)
    table.pop("true")
    s, a = table.pop("s"), table.pop("a")
    limit = list(LIMITS.values())[seed % len(LIMITS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            audit = eh.audit(None, s, sensitive_features=a, estimator="logistic", **table)
            verdict = audit.verdict(limit)
        except ValueError:
            return tricks, "refused"
    if verdict.outcome == "pass" and not any(
        words in remark for remark in verdict.remarks for words in SAID
    ):
        return tricks, "silent pass"
    return tricks, verdict.outcome


# "pass" is one that says what was done.
OUTCOMES = ("fail", "not enough data", "refused", "pass", "silent pass")


def dress_many(first: int, number: int) -> dict[str, Any]:
    """Counts by number of tricks and outcome."""
    counts = np.zeros((6, len(OUTCOMES)))
    for seed in range(first, first + number):
        tricks, outcome = dress(seed)
        counts[len(tricks), OUTCOMES.index(outcome)] += 1
    return {"counts": counts}


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Outcomes of 2,400 compositions, by how many tricks they are made of."""
    units = [(k * 50, setting.choose(50, 2)) for k in range(setting.choose(48, 2))]
    counts = sum(r["counts"] for r in run_all(setting, dress_many, units, "compositions"))
    for tricks in range(1, 6):
        row = dict(zip(OUTCOMES, counts[tricks].astype(int).tolist(), strict=True))
        yield {"tricks": tricks, "compositions": sum(row.values()), **row}
