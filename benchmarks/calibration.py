"""How often the tests of exact fairness reject, at level 5 %, when they should not and should.

Study "size": the criterion holds exactly while the group depends on what is conditioned on, often
steeply and never linearly. Each rate is over 2,000 replications, so its own standard error is 0.5
percentage points; 4 to 6 % is the aim. Study "weights": the same with sampling weights. Study
"power": the criterion fails in one smooth way.

Prints, and writes to results/calibration.csv, a row a setting; studies not run keep their rows.

    python benchmarks/calibration.py [--quick] [--study size weights power]
"""

import argparse
import csv
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from common import RESULTS, write
from scipy.special import expit

from evenhand.criteria import CRITERIA
from evenhand.datasets.synthetic import null_scenario
from evenhand.sensitive import resolve_groups
from evenhand.significance import exact_fairness_p_value

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


# --- studies ------------------------------------------------------------------------------------


def p_value(sample, setting, seed, replication):
    rng = np.random.default_rng([seed, list(CRITERIA).index(setting["criterion"]), replication])
    s, y, a, weight = sample(rng=rng, **setting)
    groups = resolve_groups(a, sample_weight=weight, n_rows=len(a))
    return exact_fairness_p_value(setting["criterion"], {"s": s, "y": y}, groups).p_value


def rates(pool, sample, setting, replications, seed):
    """Share of p-values below 5 % and 1 %."""
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
            for n in (500,) if quick else (500, 2000, 10_000):
                for share in (0.05, 0.3):
                    setting = {"family": family, "criterion": criterion, "n": n, "share": share}
                    found = rates(pool, null_sample, setting, 200 if quick else 2000, seed=1)
                    yield {"study": "size", **setting, **found}


def study_weights(pool, quick):
    yield from ({**row, "study": "weights"} for row in study_size(pool, quick, WEIGHTED))


def study_power(pool, quick):
    for criterion in CRITERIA:
        kinds = ("shift", "spread", "spread x 3")
        for kind in kinds if criterion == "independence" else (*kinds, "interaction"):
            for n in (500,) if quick else (500, 2000):
                for share in (0.05, 0.3):
                    setting = {"kind": kind, "criterion": criterion, "n": n, "share": share}
                    found = rates(pool, failing_sample, setting, 100 if quick else 500, seed=2)
                    yield {"study": "power", "family": setting.pop("kind"), **setting, **found}


STUDIES = {"size": study_size, "weights": study_weights, "power": study_power}


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
    options = parser.parse_args(arguments)
    rows = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for name in options.study:
            for row in STUDIES[name](pool, options.quick):
                rows.append(row)
                print(
                    f"{row['study']:8}{row['criterion']:14}{row['family']:16}{row['n']:>6}"
                    f"{row['share']:6.2f}  5 %: {row['rejected_5']:.3f}"
                    f"  1 %: {row['rejected_1']:.3f}",
                    flush=True,
                )
    size = [row["rejected_5"] for row in rows if row["study"] in ("size", "weights")]
    if size:
        inside = np.mean([0.04 <= rate <= 0.06 for rate in size])
        print(f"size: mean {np.mean(size):.4f}, {inside:.0%} of {len(size)} rates in 4 to 6 %")
    if not options.quick:
        print(write("calibration", [*earlier_rows(options.study), *rows]))


if __name__ == "__main__":
    sys.exit(main())
