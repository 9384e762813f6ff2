"""How often verdicts are wrong, impact intervals cover, and planned rows suffice.

Scores are normal given the group, so that all truths are known, or solved for. Verdicts are tried
at the edge of the tolerance, where a pass and a fail are both wrong: each must come at most in the
share of samples that the level allows, 5 %. Clusters of 1 to 30 rows share half of the variance of
score and target; in "places" a whole cluster is of one group, in "schools" each holds all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

import evenhand as eh
from common import Setting, run_all
from evenhand.auditing.group_tables import AuditedRows
from evenhand.auditing.impact import STATISTICS, impact_table
from evenhand.data.groups import resolve_groups
from evenhand.data.sample import Sample
from evenhand.measures.effective import EffectiveSizeWarning
from evenhand.measures.exact_tests import exact_fairness_p_values

LEVEL = 0.05
BASE, NOISE = 10.0, 0.8
# Shares, gaps and spreads of score by group; the first is the reference.
GROUPS = {
    2: ((0.6, 0.4), (0.0, 0.4), (1.0, 1.0)),
    5: ((0.4, 0.25, 0.15, 0.12, 0.08), (0.0, 0.3, -0.2, 0.5, 0.1), (1.0, 1.2, 0.8, 1.0, 1.5)),
}
# Kind, groups, units: rows, or clusters of 15.5 rows on average.
DESIGNS = [
    ("rows", 2, 300), ("rows", 2, 3000), ("rows", 5, 600), ("rows", 5, 5000), ("proxy", 2, 1000),
    ("weights", 2, 1000), ("places", 2, 50), ("places", 2, 500), ("schools", 2, 50),
    ("schools", 2, 500), ("schools", 5, 500),
]  # fmt: skip
AT = (0.5, 0.2)


def sample(kind: str, k: int, units: int, seed: int, gaps=None):
    """Target, score, group, cluster and weight of some rows; with `gaps`, of unit spreads."""
    shares, usual, spreads = (np.array(v) for v in GROUPS[k])
    if gaps is None:
        gaps = usual
    else:
        gaps, spreads = np.asarray(gaps), np.ones(k)
    rng = np.random.default_rng([seed, units, k, [d[0] for d in DESIGNS].index(kind)])
    cluster = None
    n = units
    if kind in ("places", "schools"):
        cluster = np.repeat(np.arange(units), rng.integers(1, 31, units))
        n = len(cluster)
    a = rng.choice(k, n, p=shares)
    if kind == "places":
        a = rng.choice(k, units, p=shares)[cluster]
    noise = rng.standard_normal((2, n))
    if cluster is not None:
        noise = np.sqrt(0.5) * (noise + rng.standard_normal((2, units))[:, cluster])
    weight = rng.uniform(0.2, 2.0, n) if kind == "weights" else None
    s = BASE + gaps[a] + spreads[a] * noise[0]
    y = s + 0.1 * a + NOISE * noise[1]
    groups = a
    if kind == "proxy":
        # The probability of group 1 is known; the score depends on the probability alone, so that
        # the mean of "group 1" is that of scores weighted by it.
        p = rng.beta(2.0, 3.0, n)
        s = BASE + p + noise[0]
        y = s + NOISE * noise[1]
        groups = eh.Proxy(np.column_stack([1 - p, p]), ["0", "1"])
    return y, s, groups, cluster, weight


@cache
def truths(kind: str, k: int) -> dict[tuple[str, str, str], float]:
    """(group, statistic, cutoff) → the true number."""
    if kind == "proxy":
        y, s, groups, *_ = sample(kind, k, 4_000_000, 123)
        table = _table(y, s, groups, None, None)
        return {(n.group, n.statistic, n.at): n.value for n in table.numbers}
    shares, gaps, spreads = (np.array(v) for v in GROUPS[k])
    mean = BASE + gaps
    out = {}
    cut = {q: brentq(lambda c, q=q: shares @ norm.cdf(c, mean, spreads) - q, 0.0, 20.0) for q in AT}
    for g in range(k):
        actual = (mean[g] + 0.1 * g) / mean[g]
        out[str(g), "actual_expected", ""] = actual
        if g == 0:
            continue
        spread = np.sqrt((spreads[g] ** 2 + spreads[0] ** 2) / 2)
        out[str(g), "smd", ""] = (gaps[g] - gaps[0]) / spread
        out[str(g), "mean_difference", ""] = gaps[g] - gaps[0]
        out[str(g), "mean_ratio", ""] = mean[g] / mean[0]
        out[str(g), "actual_expected_ratio", ""] = actual
        for q, c in cut.items():
            rate = norm.sf(c, mean[[g, 0]], spreads[[g, 0]])
            odds = rate / (1 - rate)
            name = "median" if q == 0.5 else f"{q:g}"
            out[str(g), "impact_ratio", name] = rate[0] / rate[1]
            out[str(g), "odds_ratio", name] = odds[0] / odds[1]
    return out


def _table(y, s, groups, cluster, weight, at=AT):
    made = resolve_groups(groups, n_rows=len(s), cluster=cluster, sample_weight=weight)
    return impact_table(AuditedRows(Sample(made, s, y)), reference="0", at=at)


def covered(kind: str, k: int, units: int, seed: int) -> dict[tuple[str, str], tuple[float, bool]]:
    """(statistic, cutoff) → whether each group's own interval covers, and all at once."""
    table = _table(*sample(kind, k, units, seed))
    true = truths(kind, k)
    out: dict[tuple[str, str], list[tuple[bool, bool]]] = {}
    for n in table.numbers:
        value = true[n.group, n.statistic, n.at]
        low, high = n.interval(0.95)
        out.setdefault((n.statistic, n.at), []).append(
            (low <= value <= high, n.low <= value <= n.high)
        )
    return {key: (np.mean([c[0] for c in v]), all(c[1] for c in v)) for key, v in out.items()}


def information(shift: float, share: float) -> float:
    """Normalized I(S;A) of unit normals at 0 and `shift`."""
    p = np.array([1 - share, share])

    def left(x: float) -> float:
        joint = p * norm.pdf(x, [0.0, shift])
        return -(joint * np.log(np.maximum(joint / joint.sum(), 1e-300))).sum()

    return 1.0 - quad(left, -9.0, 9.0 + shift)[0] / -(p * np.log(p)).sum()


@cache
def shift_of(effect: float, share: float) -> float:
    """The gap that has this information."""
    return brentq(lambda d: information(d, share) - effect, 0.01, 4.0)


@cache
def edge(clause: str, side: int, k: int) -> tuple[eh.Tolerance, tuple[float, ...]]:
    """A tolerance and gaps such that the last group lies on its edge and all others well within."""
    limits = {
        "independence": 0.02, "smd": 0.2, "mean_difference": 0.25, "mean_ratio": 0.03,
        "impact_ratio": 0.2, "all": 0.02,
    }  # fmt: skip
    d = limits[clause]
    if clause in ("independence", "all"):
        gap = shift_of(d, GROUPS[2][0][1])
        more = {"smd": (-0.8, 0.8), "mean_ratio": (0.9, 1.1)} if clause == "all" else {}
        return eh.Tolerance(independence=d, **more), (0.0, gap)
    shares = np.array(GROUPS[k][0])
    if clause == "impact_ratio":
        limit = 1 + side * d

        def ratio(gap: float) -> float:
            gaps = np.zeros(k)
            gaps[-1] = gap
            cut = brentq(lambda c: shares @ norm.cdf(c, gaps, 1.0) - 0.5, -5.0, 5.0)
            rate = norm.sf(cut, gaps[[-1, 0]], 1.0)
            return rate[0] / rate[1]

        gap = brentq(lambda g: ratio(g) - limit, -3.0, 3.0)
        ends = (0.8, 1.2)
        made = eh.Tolerance(impact_ratio=ends, favorable="high", reference="0")
    else:
        gap = side * d * (BASE if clause == "mean_ratio" else 1.0)
        ends = (1 - d, 1 + d) if clause == "mean_ratio" else (-d, d)
        made = eh.Tolerance(reference="0", **{clause: ends})
    return made, (*[0.0] * (k - 1), float(gap))


def judged(clause: str, side: int, kind: str, k: int, units: int, seed: int) -> str:
    """The outcome of one sample at the edge."""
    tolerance, gaps = edge(clause, side, k)
    _, s, groups, cluster, weight = sample(kind, k, units, seed, gaps)
    # Clauses on groups rest on the impact table alone; the information costs its estimate.
    estimator = "logistic" if clause in ("independence", "all") else "lspc"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveSizeWarning)
        audit = eh.audit(
            None, s, sensitive_features=groups, cluster=cluster, sample_weight=weight,
            estimator=estimator,
        )  # fmt: skip
    return audit.verdict(tolerance).outcome


EDGES = [
    ("independence", 1, "rows", 2, 500), ("independence", 1, "rows", 2, 3000),
    ("independence", 1, "places", 2, 100), ("independence", 1, "schools", 2, 100),
    ("smd", 1, "rows", 2, 500), ("smd", -1, "rows", 5, 3000), ("smd", 1, "schools", 2, 50),
    ("mean_difference", 1, "places", 2, 100), ("mean_ratio", 1, "rows", 5, 2000),
    ("mean_ratio", -1, "weights", 2, 1000), ("impact_ratio", -1, "rows", 2, 1000),
    ("impact_ratio", -1, "schools", 2, 100), ("all", 1, "rows", 2, 3000),
]  # fmt: skip
PLANS = [
    (0.01, None, 0.5), (0.05, None, 0.5), (0.02, None, 0.1), (0.004, 0.02, 0.5), (0.05, 0.02, 0.5),
    (0.01, 0.02, 0.2),
]  # fmt: skip


def planned(effect: float, tolerance: float | None, share: float, seed: int) -> bool:
    """Whether the rows that were planned for decide."""
    n = eh.rows_needed(effect, [1 - share, share], tolerance=tolerance)
    rng = np.random.default_rng([seed, n])
    a = (rng.random(n) < share).astype(int)
    s = rng.standard_normal(n) + shift_of(effect, share) * a
    if tolerance is None:
        groups = resolve_groups(a, n_rows=n)
        tests = exact_fairness_p_values(["independence"], {"s": s}, groups)
        return tests["independence"].p_value < LEVEL
    audit = eh.audit(None, s, sensitive_features=a, estimator="logistic")
    wanted = "pass" if effect < tolerance else "fail"
    return audit.verdict(eh.Tolerance(independence=tolerance)).outcome == wanted


def repeat_coverage(kind: str, k: int, units: int, replications: int) -> dict[str, Any]:
    """Mean coverage of each number: a group's own interval, and all at once."""
    result = [covered(kind, k, units, seed) for seed in range(replications)]
    keys = [key for name in STATISTICS for key in result[0] if key[0] == name]
    means = [np.array([f[key] for f in result], dtype=float).mean(axis=0) for key in keys]
    return {"keys": np.array(keys), "means": np.array(means)}


def repeat_edge(clause: str, side: int, kind: str, k: int, units: int, replications: int) -> dict:
    result = [judged(clause, side, kind, k, units, seed) for seed in range(replications)]
    return {word: result.count(word) / replications for word in ("pass", "fail")}


def repeat_plan(effect: float, tolerance: float | None, share: float, replications: int) -> dict:
    result = [planned(effect, tolerance, share, seed) for seed in range(replications)]
    return {"decided": float(np.mean(result))}


def coverage_rows(case: tuple, count: int, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind, k, units = case
    for (statistic, at), (own, together) in zip(result["keys"], result["means"], strict=True):
        yield {"part": "coverage", "design": kind, "groups": k, "units": units,
               "number": statistic, "at": at, "replications": count,
               "coverage": float(own), "simultaneous": float(together)}  # fmt: skip


def edge_rows(case: tuple, count: int, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    clause, side, kind, k, units = case
    yield {"part": "edge", "design": kind, "groups": k, "units": units, "number": clause,
           "side": side, "replications": count, "wrong_pass": float(result["pass"]),
           "wrong_fail": float(result["fail"])}  # fmt: skip


def plan_rows(case: tuple, count: int, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    effect, tolerance, share = case
    units = eh.rows_needed(effect, [1 - share, share], tolerance=tolerance)
    yield {"part": "planning", "design": "rows", "groups": 2, "units": units,
           "number": "independence", "effect": effect, "tolerance": tolerance, "share": share,
           "replications": count, "decided": float(result["decided"])}  # fmt: skip


# Part: its cases, replications, what is repeated, and how it becomes rows.
PARTS: dict[str, tuple[list, int, Callable, Callable]] = {
    "coverage": (DESIGNS, 1000, repeat_coverage, coverage_rows),
    "edge": (EDGES, 1000, repeat_edge, edge_rows),
    "planning": (PLANS, 500, repeat_plan, plan_rows),
}


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    for part, (cases, full, function, rows) in PARTS.items():
        if not setting.wants(part):
            continue
        count = setting.choose(full, 3)
        cases = cases[: setting.choose(None, 1)]
        results = run_all(setting, function, [(*case, count) for case in cases], part)
        for case, result in zip(cases, results, strict=True):
            yield from rows(case, count, result)
