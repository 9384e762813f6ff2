"""How often the tests of exact fairness reject, at level 5 %, when they should not and should.

Study "size": the criterion holds exactly while the group depends on what is conditioned on, often
steeply and never linearly. Each rate is over 2,000 replications, so its own standard error is 0.5
percentage points; 4 to 6 % is the aim. Study "weights": the same with sampling weights. Study
"tied weights": rows thinned with a probability of group and tested variable, and weighted by its
inverse. Study "clusters": rows that share a cluster's own level of both variables; n is clusters.
Study "power": the criterion fails in one smooth way. Study "rough": it fails in ways that no few
smooth functions see, at 10 % of the information there is or more.

Prints, and writes to results/calibration.csv, a row a setting; studies not run keep their rows.

    python research/run.py calibration [--quick] [--study size weights ...]
"""

import argparse
import csv
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.special import expit
from scipy.stats import rankdata

from common import RESULTS, write
from distributions import null_scenario
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.measures.exact_tests import exact_fairness_p_value

LEVEL = 0.05


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


# --- studies ------------------------------------------------------------------------------------


def p_value(sample, setting, seed, replication):
    rng = np.random.default_rng([seed, list(CRITERIA).index(setting["criterion"]), replication])
    s, y, a, weight, *cluster = sample(rng=rng, **setting)
    cluster = cluster[0] if cluster else None
    groups = resolve_groups(a, sample_weight=weight, n_rows=len(a), cluster=cluster)
    return exact_fairness_p_value(setting["criterion"], {"s": s, "y": y}, groups).p_value


# What the command line leaves of a study: replications at most, and rows at most.
LIMITS = {"replications": 10**9, "rows": 10**9}


def up_to(sizes):
    return [n for n in sizes if n <= LIMITS["rows"]]


def rates(pool, sample, setting, replications, seed):
    """Share of p-values below 5 % and 1 %."""
    replications = min(replications, LIMITS["replications"])
    one = partial(p_value, sample, setting, seed)
    p = np.array(list(pool.map(one, range(replications), chunksize=50)))
    return {
        "replications": replications,
        "rejected_5": float(np.mean(p < LEVEL)),
        "rejected_1": float(np.mean(p < 0.01)),
    }


def study_size(pool, quick, families=FAMILIES):
    for criterion in CRITERIA:
        for family in families:
            for n in (500,) if quick else up_to((500, 2000, 10_000)):
                for share in (0.05, 0.3):
                    setting = {"family": family, "criterion": criterion, "n": n, "share": share}
                    found = rates(pool, null_sample, setting, 200 if quick else 2000, seed=1)
                    yield {"study": "size", **setting, **found}


def study_weights(pool, quick):
    yield from ({**row, "study": "weights"} for row in study_size(pool, quick, WEIGHTED))


def study_tied(pool, quick):
    for criterion in CRITERIA:
        for family in TIED:
            for n in (500, 2000) if quick else up_to((500, 2000, 10_000)):
                for share in (0.05, 0.3):
                    setting = {"family": family, "criterion": criterion, "n": n, "share": share}
                    found = rates(pool, tied_sample, setting, 200 if quick else 2000, seed=3)
                    yield {"study": "tied weights", **setting, **found}


def study_clusters(pool, quick):
    for criterion in CRITERIA:
        for family in CLUSTERED if criterion != "independence" else CLUSTERED[:2]:
            for n in (50,) if quick else (50, 500):
                for share in (0.2, 0.4):
                    setting = {"family": family, "criterion": criterion, "n": n, "share": share}
                    found = rates(pool, clustered_sample, setting, 200 if quick else 2000, seed=4)
                    yield {"study": "clusters", **setting, **found}


def study_rough(pool, quick):
    for kind, (_, criteria) in ROUGH.items():
        for criterion in criteria:
            setting = {"kind": kind, "criterion": criterion, "n": 2000, "share": 0.5}
            found = rates(pool, rough_sample, setting, 50 if quick else 500, seed=5)
            yield {"study": "rough", "family": setting.pop("kind"), **setting, **found}


def study_power(pool, quick):
    for criterion in CRITERIA:
        kinds = ("shift", "spread", "spread x 3")
        for kind in kinds if criterion == "independence" else (*kinds, "interaction"):
            for n in (500,) if quick else (500, 2000):
                for share in (0.05, 0.3):
                    setting = {"kind": kind, "criterion": criterion, "n": n, "share": share}
                    found = rates(pool, failing_sample, setting, 100 if quick else 500, seed=2)
                    yield {"study": "power", "family": setting.pop("kind"), **setting, **found}


STUDIES = {
    "size": study_size,
    "weights": study_weights,
    "tied weights": study_tied,
    "clusters": study_clusters,
    "power": study_power,
    "rough": study_rough,
}
SIZES = ("size", "weights", "tied weights", "clusters")


def earlier_rows(studies):
    """Rows of the studies that are not run again."""
    path = RESULTS / "calibration.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row.pop("setting")]
    return [row for row in rows if row["study"] not in studies]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few replications; writes no file")
    parser.add_argument("--study", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--replications", type=int, default=10**9, help="at most, a setting")
    parser.add_argument("--rows", type=int, default=10**9, help="at most, of a sample")
    options = parser.parse_args(arguments)
    LIMITS.update(replications=options.replications, rows=options.rows)
    rows = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name in options.study:
            for row in STUDIES[name](pool, options.quick):
                rows.append(row)
                print(
                    f"{row['study']:13}{row['criterion']:14}{row['family']:19}{row['n']:>6}"
                    f"{row['share']:6.2f}  5 %: {row['rejected_5']:.3f}"
                    f"  1 %: {row['rejected_1']:.3f}",
                    flush=True,
                )
    size = [row["rejected_5"] for row in rows if row["study"] in SIZES]
    if size:
        inside = np.mean([0.04 <= rate <= 0.06 for rate in size])
        print(f"size: mean {np.mean(size):.4f}, {inside:.0%} of {len(size)} rates in 4 to 6 %")
    if not options.quick:
        print(write("calibration", [*earlier_rows(options.study), *rows]))


if __name__ == "__main__":
    sys.exit(main())
