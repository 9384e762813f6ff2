"""Tables dressed up to pass: tricks composed at random, each judged as the plain table was.

The plain table fails every limit here: a quarter of the rows, group "b", scores 0.8 higher. A trick
changes labels, weights, frequencies or rows. No composition may turn the fail into a pass without
the verdict, or the monitor, saying what was done to the data; a fail, "not enough data" and a
refusal are as good.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

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
    "are likely the same group", "is taken for a group", "Without the", "copies of a row are",
)  # fmt: skip
Table = dict[str, np.ndarray]
Random = np.random.Generator


def draw(rng: Random) -> Table:
    a = np.where(rng.random(ROWS) < 0.25, "b", "a").astype(object)
    s, month = rng.normal(size=ROWS) + 0.8 * (a == "b"), rng.integers(1, 4, ROWS)
    return {"s": s, "a": a, "true": a == "b", "month": month}


def harmed(table: Table) -> np.ndarray:
    """Members of the group whose scores are high, whom a trick would rather not count."""
    return table["true"] & (table["s"] > np.median(table["s"]))


def tilt(table: Table) -> np.ndarray:
    """Weights of those of "b" under which their scores are like the others'."""
    return np.where(table["true"], np.exp(np.clip(-0.8 * table["s"], -8.0, 2.0)), 1.0)


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


def copy(table: Table, rng: Random, noise: float, times: int = 4) -> Table:
    """Those whom the tilt would have count more, several times over, and nearly as they were."""
    n = len(table["s"])
    kept = np.flatnonzero(rng.random(n) < np.minimum(tilt(table), 1.0))
    out = take(table, np.append(np.arange(n), np.tile(kept, times)))
    return {
        **out,
        "s": out["s"] + noise * rng.normal(size=len(out["s"])) * (np.arange(len(out["s"])) >= n),
    }


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
    "letters that look alike": lambda t, rng: relabel(
        t, t["true"], rng.choice(["Bo", "\u0412\u043e", "B\u043e"], int(t["true"].sum()))
    ),
    "letters not seen": lambda t, rng: relabel(
        t, t["true"], rng.choice(["b", "b\u200b", "\u2060b"], int(t["true"].sum()))
    ),
    "weights that make it fair": lambda t, rng: {
        **t,
        "sample_weight": t.get("sample_weight", np.ones(len(t["s"]))) * tilt(t),
    },
    "copies of those who suit": lambda t, rng: copy(t, rng, 0.0),
    "copies nearby": lambda t, rng: copy(t, rng, 1e-9),
    "copies with noise": lambda t, rng: copy(t, rng, 1e-4),
    "huge scores": lambda t, rng: {
        **t,
        "s": np.where(rng.random(len(t["s"])) < 0.02, 1e6 * rng.normal(size=len(t["s"])), t["s"]),
    },
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
    s, a, month = (table.pop(name) for name in ("s", "a", "month"))
    limit = list(LIMITS.values())[seed % len(LIMITS)]
    if rng.random() < 0.25:
        return tricks, watch({"s": s, "a": a, "month": month, **table})
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


def watch(table: Table) -> str:
    """The same of a monitor by month, with a limit on independence."""
    columns = {name: name for name in ("sample_weight", "frequency") if name in table}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = eh.monitor(
                pd.DataFrame(table), time="month", period=None, y_pred="s", sensitive_features="a",
                limits={"independence": 0.02}, **columns,
            )  # fmt: skip
        except ValueError:
            return "refused"
    outcome = {"violated": "fail", "holds": "pass"}.get(found.judged, "not enough data")
    silent = not any(words in note for note in found.notes for words in SAID)
    return "silent pass" if silent and outcome == "pass" else outcome


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
