"""Two to forty groups: value and gradient, whole audits, and scikit-learn's neighbor estimate.

Each size and number of groups in one run: one value and gradient from a warm start, complete
audits by `logistic` and `auto`, and one call of mutual_info_classif, which gives one number.

    python research/run.py many_groups [--small]    (--small stops at 100,000 rows)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.feature_selection import mutual_info_classif

import evenhand as eh
from common import growth, timed, write

GROUPS = (2, 3, 5, 10, 40)
SIZES = (10**4, 10**5, 10**6)
# What the largest size must reach: value and gradient over that of two groups, at most; the peer's
# time over a whole audit's, at least.
AT_MOST = {5: 2.5, 40: 20.0}
AT_LEAST = {
    "audit, logistic": {2: 20.0, 5: 15.0, 40: 4.0},
    "audit, auto": {2: 8.0, 5: 6.0, 40: 3.0},
}
# CPU seconds of an `auto` audit: rows, groups and the most it may take.
SMALL = ((2_000, 2, 0.05), (10_000, 4, 0.3), (1_000, 100, 5.0))


def draw(n: int, n_groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Target, score and group of n rows, with groups that differ in both means."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, n_groups, n)
    y = rng.standard_normal(n) + 0.5 * rng.normal(size=n_groups)[a]
    s = 0.7 * y + rng.standard_normal(n) + 0.3 * rng.normal(size=n_groups)[a]
    return y, s, a


def evaluation(y: np.ndarray, s: np.ndarray, a: np.ndarray, classifier: str) -> Callable[[], Any]:
    """One warm value and gradient; every call moves the scores a little, as a fit does."""
    bound = eh.FairnessRegularizer("separation", classifier).bind(y, sensitive_features=a)
    bound.value_and_grad(s)
    shift = 0.02 * np.random.default_rng(1).standard_normal(len(s))
    moves = iter([s + k * shift for k in range(1, 10)])
    return lambda: bound.value_and_grad(next(moves))


def jobs(y: np.ndarray, s: np.ndarray, a: np.ndarray) -> dict[str, tuple[Callable[[], Any], int]]:
    """What is timed, and how often."""
    audit = partial(eh.audit, y, s, sensitive_features=a)
    few = 3 if len(y) >= 10**6 else 5
    return {
        "value and gradient, logistic": (evaluation(y, s, a, "logistic"), 7),
        "value and gradient, lspc": (evaluation(y, s, a, "lspc"), 7),
        "audit, logistic": (partial(audit, estimator="logistic"), few),
        "audit, auto": (partial(audit, estimator="auto"), few),
        "mutual_info_classif": (
            partial(mutual_info_classif, s[:, None], a, random_state=0), 1 if few == 3 else few),
    }  # fmt: skip


def cpu_seconds(n: int, n_groups: int) -> float:
    y, s, a = draw(n, n_groups)
    # Text, as more than 50 different whole numbers are refused.
    run = partial(eh.audit, y, s, sensitive_features=a.astype(str))
    run()
    times = []
    for _ in range(5):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    sizes = SIZES[:-1] if parser.parse_args().small else SIZES
    rows: list[dict[str, Any]] = []
    found: dict[tuple[str, int, int], float] = {}

    def add(what: str, n: Any, k: Any, value: float, goal: str = "", **more: Any) -> None:
        rows.append(
            {"what": what, "n": n, "groups": k, "value": value, "goal": goal, **more}
        )  # fmt: skip
        print(f"{what:58s} {n!s:>8} {k!s:>4} {value:10.4g}   {goal}", flush=True)

    for k in GROUPS:  # compiled, and read from the cache, before anything is timed
        for job, _ in jobs(*draw(40_000, k)).values():
            job()
    for n in sizes:
        for k in GROUPS:
            for name, (job, repeats) in jobs(*draw(n, k)).items():
                seconds, spread, _ = timed(job, repeats)
                found[name, n, k] = seconds
                add(f"{name} (seconds)", n, k, seconds, spread=spread)
    top = sizes[-1]
    for name in ("value and gradient, logistic", "value and gradient, lspc"):
        for k in GROUPS[1:]:
            goal = f"<= {AT_MOST[k]:g}" if k in AT_MOST and "logistic" in name else ""
            ratio = found[name, top, k] / found[name, top, 2]
            add(f"{name}: over that of two groups", top, k, ratio, goal)
    for name, goals in AT_LEAST.items():
        for k in GROUPS:
            ratio = found["mutual_info_classif", top, k] / found[name, top, k]
            goal = f">= {goals[k]:g}" if k in goals else ""
            add(f"mutual_info_classif / {name}", top, k, ratio, goal)
    for name in dict.fromkeys(name for name, _, _ in found):
        for k in GROUPS:
            exponent = growth(sizes, [found[name, n, k] for n in sizes])
            add(f"{name}: growth exponent in n", "", k, exponent)
        exponent = growth(GROUPS, [found[name, top, k] for k in GROUPS])
        add(f"{name}: growth exponent in groups", top, "", exponent)
    for n, k, most in SMALL:
        add("audit, auto: CPU seconds", n, k, cpu_seconds(n, k), f"<= {most:g}")
    print(write("many_groups", rows))


if __name__ == "__main__":
    main()
