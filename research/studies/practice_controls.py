"""Gaps and information among people with the same controls: bias, coverage and size of the test.

python research/run.py practice_controls [--replications 1000] [--seconds 600]

Six laws of known truth. "confounded": the controls move group and score, the gap changes with them.
"alike": the controls move the score and not the group. "weak overlap": odds of the group up to a
hundred, so that some members have hardly any counterpart. "deterministic": no noise. "clustered":
150 clusters that share noise and controls. "five groups".

In each the law of S − E[S|C] given the group depends on the controls through
the odds of the group alone, so that the information through the summaries is the one of the law;
not so with "confounded" and "deterministic", which are judged by the gap alone. Under "exactly
fair" and "unequal spread" S ⟂ A | C holds, and the share of p-values below 0.05 is the size of the
test. A design ends after its share of the seconds of processor time, half of which may go into
information, which costs several times what a gap does; the table says how many replications each
number had. Rows of designs that are not asked for are kept.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.special import expit, xlogy

from common import RESULTS, write
from evenhand.auditing.adjusted_gap import LEAST_COUNTERPARTS, adjusted_gaps
from evenhand.auditing.conditional import audit_given
from evenhand.data.controls import read_controls
from evenhand.data.groups import resolve_groups
from evenhand.measures.measures import get_estimator
from evenhand.measures.nuisance import control_features

N = 1500
GAPS = {"confounded": (0.4, 0.3), "deterministic": (0.4, 0.3)}
FAIR = ("exactly fair", "unequal spread", "one control, fair", "fair, clustered")
DESIGNS = (
    "confounded",
    "alike",
    "weak overlap",
    "deterministic",
    "clustered",
    "five groups",
    *FAIR,
)
SLOPES = {"alike": (0.0, 0.0), "weak overlap": (1.7, -0.9)}
FIVE = np.array([[0.0, 0.0], [0.6, 0.0], [-0.5, 0.4], [0.3, 0.3], [0.0, -0.6]])
FIVE_GAPS = np.array([0.0, 0.5, 0.0, -0.4, 0.3])
COLUMNS = (
    "design", "n", "what", "replications", "truth", "mean", "sd", "mean_stderr", "bias_in_stderr",
    "coverage", "rejected",
)  # fmt: skip


def law(design: str, rng: np.random.Generator, n: int):
    """Controls, P(group | C), group, score and cluster."""
    cluster = None
    if "cluster" in design:
        n_clusters = max(n // 10, 1)
        cluster = np.repeat(np.arange(n_clusters), 10)[:n]
        C = np.sqrt(0.5) * (rng.normal(size=(n_clusters, 2))[cluster] + rng.normal(size=(n, 2)))
    else:
        C = rng.normal(size=(n, 1 if design.startswith("one") else 2))
    if design == "five groups":
        odds = np.exp(C @ FIVE.T + np.array([1.0, 0.2, 0.2, 0.2, 0.0]))
        p = odds / odds.sum(axis=1, keepdims=True)
    else:
        slopes = SLOPES.get(design, (0.8, -0.5))[: C.shape[1]]
        one = expit(C @ np.array(slopes) - 0.5)
        p = np.column_stack([1 - one, one])
    draw = rng.random(n)
    a = (draw[:, None] > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    noise = rng.normal(size=n)
    if cluster is not None:
        noise = np.sqrt(0.4) * rng.normal(size=cluster[-1] + 1)[cluster] + np.sqrt(0.6) * noise
    if design == "deterministic":
        noise = 0.0 * noise
    if design == "unequal spread":
        noise = noise * np.exp(0.4 * C[:, 0])
    s = 10 + C[:, 0] + np.sin(1.5 * C[:, -1]) + noise + effects(design, C)[np.arange(n), a]
    return C, p, a, s, cluster


def effects(design: str, C):
    """(n, K): what each group gets beyond the first with the same controls."""
    if design in FAIR:
        return np.zeros((len(C), 2))
    if design == "five groups":
        return np.tile(FIVE_GAPS, (len(C), 1))
    level, slope = GAPS.get(design, (0.4, 0.0))
    return np.column_stack([np.zeros(len(C)), level + slope * C[:, 0]])


def truths(design: str):
    """The gaps of the members that have counterparts, and the information or NaN."""
    rng = np.random.default_rng(2024)
    C, p, _, s, _ = law(design, rng, 400_000)
    effect = effects(design, C)
    gaps = []
    for k in range(1, p.shape[1]):
        odds = p[:, k] / p[:, 0] * min(p[:, 0].mean() / p[:, k].mean(), 1.0)
        kept = odds <= 1 / LEAST_COUNTERPARTS - 1
        gaps.append(float(np.average(effect[kept, k], weights=p[kept, k])))
    if design in FAIR:
        return gaps, 0.0
    if design in GAPS:
        return gaps, float("nan")
    left = s - 10 - C[:, 0] - np.sin(1.5 * C[:, -1])
    density = p * np.exp(-0.5 * (left[:, None] - effect) ** 2)
    q = density / density.sum(axis=1, keepdims=True)
    given, joint = (-xlogy(r, r).sum(axis=1).mean() for r in (p, q))
    return gaps, float(1 - joint / given)


def replicate(design: str, seed: int, everything: bool):
    """Gaps of one sample, and with `everything` the whole result."""
    rng = np.random.default_rng([seed, DESIGNS.index(design)])
    C, _, a, s, cluster = law(design, rng, N)
    groups, controls = resolve_groups(a, n_rows=N, cluster=cluster), read_controls(C, N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not everything:
            return adjusted_gaps(s, groups, control_features(controls, groups, 0), 0, 0.95)[0], None
        # Where only the test is judged, an estimator that is quick.
        name = "logistic" if design in FAIR else "auto"
        found = audit_given(
            s, groups, controls, get_estimator(name), 0, seed=0, confidence_level=0.95,
            estimator=name, n_boot=0,
        )  # fmt: skip
    return found.gaps, found.information


def summarize(design: str, what: str, parts: list, truth: float) -> dict:
    """A row of the table: bias and coverage of one number."""
    values, errors = np.array([p.value for p in parts]), np.array([p.stderr for p in parts])
    hits = [p.interval[0] <= truth <= p.interval[1] for p in parts]
    return {
        "design": design,
        "n": N,
        "what": what,
        "replications": len(values),
        "truth": round(truth, 5),
        "mean": round(float(values.mean()), 5),
        "sd": round(float(values.std(ddof=1)), 5),
        "mean_stderr": round(float(errors.mean()), 5),
        "bias_in_stderr": round(float((values.mean() - truth) / errors.mean()), 3),
        "coverage": round(float(np.mean(hits)), 4),
    }


def run(design: str, replications: int, seconds: float) -> list[dict]:
    """All rows of one design."""
    gaps, information = truths(design)
    start, spent = time.process_time(), 0.0
    found, measures = [], []
    for seed in range(replications):
        began = time.process_time()
        # Not with a law whose truth is not known.
        whole = information == information and (design in FAIR or spent < seconds / 2)
        each, measure = replicate(design, seed, whole)
        found.append(each)
        if measure is not None:
            measures.append(measure)
            spent += time.process_time() - began
        if time.process_time() - start > seconds:
            break
    rows = []
    for k, truth in enumerate(gaps):
        parts = [each[k].adjusted for each in found]
        name = "adjusted gap" if len(gaps) == 1 else f"adjusted gap, group {k + 1}"
        row = summarize(design, name, parts, truth)
        if design in FAIR:
            row["rejected"] = round(float(np.mean([p.p_value < 0.05 for p in parts])), 4)
        rows.append(row)
    if design in FAIR:
        share = np.mean([m.p_value < 0.05 for m in measures])
        row = {"design": design, "n": N, "what": "test of S ⟂ A | C"}
        rows.append({**row, "replications": len(measures), "rejected": round(float(share), 4)})
    elif measures:
        rows.append(summarize(design, "information", measures, information))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--designs", nargs="+", default=list(DESIGNS), choices=DESIGNS)
    options = parser.parse_args()
    path = RESULTS / "practice_controls.csv"
    for design in options.designs:
        new = run(design, options.replications, options.seconds / len(options.designs))
        for row in new:
            print(row, flush=True)
        old = []
        if path.exists():
            with path.open(encoding="utf-8") as file:
                old = [row for row in csv.DictReader(file) if row["design"] != design]
            for row in old:
                del row["setting"]
        rows = sorted([*old, *new], key=lambda row: DESIGNS.index(row["design"]))
        write("practice_controls", [{name: row.get(name, "") for name in COLUMNS} for row in rows])


if __name__ == "__main__":
    main()
