"""Neighbor-based information about the group: evenhand's `KNN` against its peers, same rows.

Prints, and writes to results/knn_speed.csv, the median of three times of

- I(S;A): scikit-learn's `mutual_info_classif` and ennemi's `estimate_mi`;
- I(S;A|Y): ennemi's `estimate_mi` with a condition (scikit-learn has none), for which ours is
  H(A|Y) − H(A|S,Y), both terms timed;

for a continuous target and one rounded to 0.01. Everything runs on one thread. The values are
given too; on the rounded target ennemi breaks ties by adding noise, ours by taking expectations.

    python research/run.py knn_speed
"""

import csv
import os
import time
import warnings

os.environ["EVENHAND_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import ennemi
import numpy as np
from sklearn.feature_selection import mutual_info_classif

from common import RESULTS
from evenhand.data.criteria import INDEPENDENCE, SEPARATION
from evenhand.data.groups import resolve_groups
from evenhand.estimators.neighbors import KNN

SIZES = (10_000, 100_000)
K = 3
REPEATS = 3


def make(n, digits=None):
    rng = np.random.default_rng(0)
    a = (rng.random(n) < 0.3).astype(int)
    y = rng.normal(size=n) + 0.5 * a
    s = y + rng.normal(size=n) + 0.3 * a
    return s, y if digits is None else np.round(y, digits), a


def ours(criterion, s, y, a):
    groups = resolve_groups(a, n_rows=len(a))
    conditions = [c for c in (criterion.given, criterion.joint) if c]
    found = KNN(K).row_losses({"s": s, "y": y}, conditions, groups)
    given = found[criterion.given].value.mean() if criterion.given else groups.entropy
    return given - found[criterion.joint].value.mean()


def peer_sklearn(s, y, a):
    return mutual_info_classif(s[:, None], a, n_neighbors=K, random_state=0)[0]


def peer_ennemi(s, y, a):
    return np.ravel(ennemi.estimate_mi(a, s, k=K, discrete_y=True, max_threads=1))[0]


def peer_ennemi_conditional(s, y, a):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = ennemi.estimate_mi(a, s, cond=y, k=K, discrete_y=True, max_threads=1)
    return np.ravel(found)[0]


def timed(function, *args):
    value, times = None, []
    for _ in range(REPEATS):
        start = time.perf_counter()
        value = function(*args)
        times.append(time.perf_counter() - start)
    return float(np.median(times)), float(value)


def main():
    ours(INDEPENDENCE, *make(100))
    ours(SEPARATION, *make(100))  # compile, or load the cache, before timing
    table = []
    for n in SIZES:
        for target, digits in (("continuous", None), ("rounded to 0.01", 2)):
            rows = make(n, digits)
            peers = {
                INDEPENDENCE: {"scikit-learn": peer_sklearn, "ennemi": peer_ennemi},
                SEPARATION: {"ennemi": peer_ennemi_conditional},
            }
            if digits is not None:
                del peers[INDEPENDENCE]  # does not look at the target
            for criterion, others in peers.items():
                seconds, value = timed(ours, criterion, *rows)
                for name, peer in others.items():
                    theirs, their_value = timed(peer, *rows)
                    table.append(
                        {
                            "n": n,
                            "target": target,
                            "quantity": criterion.name,
                            "peer": name,
                            "evenhand_ms": round(1e3 * seconds, 2),
                            "peer_ms": round(1e3 * theirs, 2),
                            "ratio": round(theirs / seconds, 1),
                            "evenhand_nats": round(value, 5),
                            "peer_nats": round(their_value, 5),
                        }
                    )
                    print(*table[-1].values(), sep="\t", flush=True)
    path = RESULTS / "knn_speed.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)


if __name__ == "__main__":
    main()
