"""How often the tests of exact fairness reject, at level 5 %, when they should not and should.

Part "size": the criterion holds exactly while the group depends on what is conditioned on, often
steeply and never linearly. Each rate is over 2,000 replications, so its own standard error is 0.5
percentage points; 4 to 6 % is the aim. Part "weights": the same with sampling weights. Part
"tied weights": rows thinned with a probability of group and tested variable, and weighted by its
inverse. Part "clusters": rows that share a cluster's own level of both variables; n is clusters.
Part "power": the criterion fails in one smooth way. Part "rough": it fails in ways that no few
smooth functions see, at 10 % of the information there is or more.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import rankdata

from common import CRITERIA, Setting, run_all
from distributions import null_scenario
from evenhand.data.groups import resolve_groups
from evenhand.measures.exact_tests import exact_fairness_p_values

# --- pairs (z, t): t depends on z alone, and `logit` is how the group leans on z ----------------


def smooth(rng, n):
    z = rng.normal(size=n)
    t = z + np.sin(2 * z) + 0.5 * rng.normal(size=n)
    return z, t, z + 2 * np.cos(1.5 * z)


def heavy_tails(rng, n):
    z = rng.standard_t(2, size=n)
    t = z + (0.3 + 0.3 * np.abs(z)) * rng.standard_t(2, size=n)
    return z, t, 1.5 * np.tanh(z)


def rounded(rng, n):
    z = np.round(3 * rng.normal(size=n)) / 3
    t = np.round(2 * (z**2 + rng.normal(size=n))) / 2
    return z, t, 1.2 * z


def zero_inflated(rng, n):
    z = np.where(rng.random(n) < 0.6, 0.0, rng.gamma(1.0, size=n))
    t = np.log1p(z) + 0.5 * rng.normal(size=n)
    return z, t, 1.5 * z


def nearly_equal(rng, n):
    z = rng.normal(size=n)
    return z, z + 0.1 * rng.normal(size=n), 3 * z


PAIRS = {f.__name__: f for f in (smooth, heavy_tails, rounded, zero_inflated, nearly_equal)}


def assign(rng, logit, share):
    """Draw a group with P(A = 1) = share on average and the given logits up to a constant."""
    low, high = -50.0, 50.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if expit(logit + middle).mean() > share else (middle, high)
    return (rng.random(len(logit)) < expit(logit + low)).astype(int)


def null_sample(family, criterion, n, share, rng):
    """(s, y, a, w) for which the criterion holds exactly."""
    if family == "random_laws":
        y, s, a = null_scenario(criterion, rng, share=share).sample(n, rng)
        return s, y, a, None
    z, t, logit = PAIRS.get(family, smooth)(rng, n)
    a = assign(rng, logit if criterion != "independence" else np.zeros(n), share)
    if family == "three_groups":
        lean = -logit if criterion != "independence" else np.zeros(n)
        a = np.where((a == 0) & (assign(rng, lean, 0.3) == 1), 2, a)
    weight = None
    if family == "random_weights":
        weight = 0.1 + rng.gamma(1.5, size=n)
    elif family == "group_weights":
        weight = np.where(a == 1, 1.0, 4.0) * rng.uniform(0.5, 1.5, size=n)
    s, y = (z, t) if criterion == "sufficiency" else (t, z)
    return s, y, a, weight


FAMILIES = ("random_laws", *PAIRS, "three_groups")
WEIGHTED = ("random_weights", "group_weights")


TIED = ("random_laws", "smooth", "zero_inflated", "nearly_equal")


def tied_sample(family, criterion, n, share, rng):
    """Rows kept with a probability π(group, tested variable), and weights 1/π.

    The weighted law is that of `null_sample`: the criterion holds in it, and not among the rows.
    """
    s, y, a, _ = null_sample(family, criterion, 4 * n, share, rng)
    tested = y if criterion == "sufficiency" else s
    place = np.sqrt(12) * (rankdata(tested) / len(tested) - 0.5)
    keep = 0.1 + 0.9 * expit(1.5 * (2 * a - 1) * place)
    rows = np.flatnonzero(rng.random(4 * n) < keep)[:n]
    return s[rows], y[rows], a[rows], 1 / keep[rows]


CLUSTERED = ("group constant", "group varying", "both constant", "condition constant")


def clustered_sample(family, criterion, n, share, rng):
    """(s, y, a, None, cluster) of n clusters of 10 to 40 rows; the criterion holds exactly.

    `family` says what is the same in all rows of a cluster. The tested variable and the group have
    levels of their own in each cluster, independent of one another given the condition.
    """
    cluster = np.repeat(np.arange(n), rng.integers(10, 41, n))
    rows = len(cluster)
    level = rng.normal(size=n)
    z = level[cluster]
    if family in ("group constant", "group varying"):
        z = z + 0.8 * rng.normal(size=rows)
    t = 0.7 * rng.normal(size=n)[cluster] + 0.5 * rng.normal(size=rows)
    lean = 0.0
    if criterion != "independence":
        t = t + z + np.sin(2 * z)
        lean = 1.0
    if family in ("group constant", "both constant"):
        a = assign(rng, lean * level, share)[cluster]
    else:
        a = assign(rng, lean * z + rng.normal(size=n)[cluster], share)
    s, y = (z, t) if criterion == "sufficiency" else (t, z)
    return s, y, a, None, cluster


# --- ways to fail -------------------------------------------------------------------------------


def failing_sample(kind, criterion, n, share, rng):
    """(s, y, a, None) with a shift, a spread or an interaction between groups."""
    z = rng.normal(size=n)
    a = assign(rng, z if criterion != "independence" else np.zeros(n), share)
    noise = rng.normal(size=n)
    if kind == "shift":
        t = noise + 0.3 * a
    elif kind == "spread":
        t = noise * np.where(a == 1, 1.4, 1.0)
    elif kind == "spread x 3":
        t = noise * np.where(a == 1, 3.0, 1.0)
    else:
        t = noise + 0.4 * a * z
    t = t if criterion == "independence" else t + 2 * z
    s, y = (z, t) if criterion == "sufficiency" else (t, z)
    return s, y, a, None


def normal_pair(rng, n):
    return rng.normal(size=(2, n))


def uniform_pair(rng, n):
    return rng.random((2, n))


def where(law, odd, high=0.9, low=0.1):
    """A family with P(A = 1) = high where odd(s, y), low elsewhere."""

    def sample(rng, n):
        s, y = law(rng, n)
        return s, y, (rng.random(n) < np.where(odd(s, y), high, low)).astype(int)

    return sample


def integers(largest):
    return lambda rng, n: rng.integers(largest, size=(2, n)).astype(float)


def checkerboard(k):
    return where(uniform_pair, lambda s, y: (np.floor(k * s) + np.floor(k * y)) % 2 == 0)


def oscillation(periods):
    def sample(rng, n):
        y, a = rng.random(n), rng.integers(2, size=n)
        wave = 0.5 * np.sin(2 * np.pi * periods * y) * (2 * a - 1)
        return y + wave + 0.3 * rng.normal(size=n), y, a

    return sample


def near_the_diagonal(share):
    """Pairs of which this share has |y − s| < 0.2."""
    return lambda rng, n: 0.2 / (share * np.sqrt(np.pi)) * rng.normal(size=(2, n))


def close(spread):
    def law(rng, n):
        y = rng.normal(size=n)
        return y + spread * rng.normal(size=n), y

    return law


def whole_numbers(rng, n):
    y = rng.normal(size=n)
    return np.round(50 + 15 * (y + rng.normal(size=n))), y


BOTH = ("separation", "sufficiency")
ROUGH = {
    "sign of s y": (where(normal_pair, lambda s, y: s * y > 0), BOTH),
    **{f"checkerboard {k}": (checkerboard(k), BOTH) for k in (2, 3, 4, 5, 6)},
    "ring": (where(normal_pair, lambda s, y: np.abs(np.hypot(s, y) - 1.15) < 0.35), BOTH),
    "strips of s": (
        where(uniform_pair, lambda s, y: np.floor(8 * s) % 2 == 0),
        ("independence", "separation"),
    ),
    "strips of s - y": (where(normal_pair, lambda s, y: np.floor(3 * (s - y)) % 2 == 0), BOTH),
    **{f"{k} periods": (oscillation(k), BOTH) for k in (2, 5, 15)},
    "band of 5 %": (where(near_the_diagonal(0.05), lambda s, y: np.abs(s - y) < 0.2), BOTH),
    "band of 2 %": (
        where(near_the_diagonal(0.02), lambda s, y: np.abs(s - y) < 0.2, 0.95, 0.02), BOTH,
    ),
    **{
        f"parity to {k}": (where(integers(k), lambda s, y: (s + y) % 2 == 0), BOTH)
        for k in (2, 6, 10)
    },
    "every tenth s": (
        where(whole_numbers, lambda s, y: s % 10 == 0), ("independence", "separation"),
    ),
    "jump at s = y": (where(close(1.0), lambda s, y: s > y, 0.8, 0.2), BOTH),
    "s - y of 1e-3": (where(close(1e-3), lambda s, y: s > y), BOTH),
    "s - y of 1e-7": (where(close(1e-7), lambda s, y: s > y), BOTH),
}  # fmt: skip


def rough_sample(kind, criterion, n, share, rng):
    return *ROUGH[kind][0](rng, n), None


# --- parts --------------------------------------------------------------------------------------

# Part: how a sample is drawn, the first number of its seeds.
SAMPLES = {
    "size": (null_sample, 1),
    "weights": (null_sample, 1),
    "tied weights": (tied_sample, 3),
    "clusters": (clustered_sample, 4),
    "power": (failing_sample, 2),
    "rough": (rough_sample, 5),
}
KINDS = ("shift", "spread", "spread x 3", "interaction")


def p_values(
    part: str, family: str, criterion: str, n: int, share: float, replications: int
) -> dict[str, Any]:
    """p-values of the test over samples of one case."""
    sample, seed = SAMPLES[part]
    out = []
    for replication in range(replications):
        rng = np.random.default_rng([seed, list(CRITERIA).index(criterion), replication])
        s, y, a, weight, *cluster = sample(family, criterion, n, share, rng)
        groups = resolve_groups(
            a, sample_weight=weight, n_rows=len(a), cluster=cluster[0] if cluster else None
        )
        tests = exact_fairness_p_values([criterion], {"s": s, "y": y}, groups)
        out.append(tests[criterion].p_value)
    return {"p": np.array(out)}


def cases(part: str) -> Iterator[tuple[str, str, int, float, int]]:
    """Family, criterion, rows, share of the smaller group and replications."""
    if part == "rough":
        for kind, (_, criteria) in ROUGH.items():
            yield from ((kind, criterion, 2000, 0.5, 500) for criterion in criteria)
        return
    for criterion in CRITERIA:
        alone = criterion == "independence"
        families, sizes, shares = {
            "size": (FAMILIES, (500, 2000, 10_000), (0.05, 0.3)),
            "weights": (WEIGHTED, (500, 2000, 10_000), (0.05, 0.3)),
            "tied weights": (TIED, (500, 2000, 10_000), (0.05, 0.3)),
            "clusters": (CLUSTERED[:2] if alone else CLUSTERED, (50, 500), (0.2, 0.4)),
            "power": (KINDS[:3] if alone else KINDS, (500, 2000), (0.05, 0.3)),
        }[part]
        for family, n, share in product(families, sizes, shares):
            yield family, criterion, n, share, 500 if part == "power" else 2000


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Shares of p-values below 5 % and 1 %."""
    units = []
    for part in filter(setting.wants, SAMPLES):
        for family, criterion, n, share, count in list(cases(part))[: setting.choose(None, 2)]:
            units.append((part, family, criterion, n, share, setting.choose(count, 10)))
    results = run_all(setting, p_values, units, "tests of exact fairness")
    for (part, family, criterion, n, share, count), result in zip(units, results, strict=True):
        yield {
            "study": part, "family": family, "criterion": criterion, "n": n, "share": share,
            "replications": count, "rejected_5": float(np.mean(result["p"] < 0.05)),
            "rejected_1": float(np.mean(result["p"] < 0.01)),
        }  # fmt: skip
