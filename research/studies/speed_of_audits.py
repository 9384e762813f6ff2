"""Time of audits and measures against peers, and how it grows with rows and groups.

`audits`: complete audits against one call of scikit-learn's neighbor estimate, which gives one
number. `many_groups`: two to forty groups. `neighbors`: evenhand's `KNN` against scikit-learn and
ennemi. `packages`: whole audits against dalex, which gives ratios of probabilities from logistic
regressions without intervals or tests, and infomeasure, which gives I(S;A) alone.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from sklearn.feature_selection import mutual_info_classif

import evenhand as eh
from common import Setting, growth, scored_rows, timed
from evenhand.data.criteria import INDEPENDENCE, SEPARATION
from evenhand.data.groups import resolve_groups
from evenhand.estimators.references import KNN

Row = dict[str, Any]


def audits(setting: Setting) -> Iterator[Row]:
    """Seconds of whole audits, and how many of them one neighbor estimate takes."""
    sizes = setting.choose([10**4, 10**5, 10**6], [1000, 2000])
    times: dict[str, list[float]] = {"logistic": [], "auto": []}
    y, s, a = scored_rows(sizes[-1])

    def audit(n: int, name: str) -> Any:
        return eh.audit(y[:n], s[:n], sensitive_features=a[:n], estimator=name)

    for name in times:  # compiled, and read from the cache, before anything is timed
        audit(5000, name)
        audit(200_000, name)
    for n in sizes:
        for name in times:
            seconds, spread, _ = timed(partial(audit, n, name), 5)
            times[name].append(seconds)
            yield {"what": f"audit, {name}, n={n:.0e} (seconds)", "value": seconds, "goal": "",
                   "spread": spread}  # fmt: skip
    peer = median(
        timed(lambda: mutual_info_classif(s[:, None], a, random_state=0), 1)[0] for _ in range(3)
    )
    for name, goal in (("logistic", ">= 20"), ("auto", ">= 5")):
        yield {"what": f"mutual_info_classif (independence only) / whole audit, {name}, n=1e6",
               "value": peer / times[name][-1], "goal": goal, "peer_seconds": peer}  # fmt: skip
        yield {"what": f"growth exponent of an audit, {name}, n=1e4 to {sizes[-1]:.0e}",
               "value": growth(sizes, times[name]), "goal": "<= 1.1"}  # fmt: skip


# Many groups --------------------------------------------------------------------------------------

GROUPS = (2, 3, 5, 10, 40)
# What the largest size must reach: value and gradient over that of two groups, at most; the peer's
# time over a whole audit's, at least.
AT_MOST = {5: 2.5, 40: 20.0}
AT_LEAST = {
    "audit, logistic": {2: 20.0, 5: 15.0, 40: 4.0},
    "audit, auto": {2: 8.0, 5: 6.0, 40: 3.0},
}
# CPU seconds of an `auto` audit: rows, groups and the most it may take.
SMALL = ((2_000, 2, 0.05), (10_000, 4, 0.3), (1_000, 100, 5.0))


def draw_groups(n: int, n_groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def audit_cpu_seconds(n: int, n_groups: int) -> float:
    y, s, a = draw_groups(n, n_groups)
    # Text, as more than 50 different whole numbers are refused.
    run = partial(eh.audit, y, s, sensitive_features=a.astype(str))
    run()
    times = []
    for _ in range(5):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return float(np.median(times))


def many_groups(setting: Setting) -> Iterator[Row]:
    """One warm value and gradient, audits and one neighbor estimate at each number of groups."""
    sizes = setting.choose((10**4, 10**5, 10**6), (1000, 2000))
    groups = setting.choose(GROUPS, GROUPS[:3])
    result: dict[tuple[str, int, int], float] = {}

    def row(what: str, n: Any, k: Any, value: float, goal: str = "", **more: Any) -> Row:
        return {"what": what, "n": n, "groups": k, "value": value, "goal": goal, **more}

    for k in groups:  # compiled, and read from the cache, before anything is timed
        for job, _ in jobs(*draw_groups(setting.choose(40_000, 1000), k)).values():
            job()
    for n in sizes:
        for k in groups:
            for name, (job, repeats) in jobs(*draw_groups(n, k)).items():
                seconds, spread, _ = timed(job, repeats)
                result[name, n, k] = seconds
                yield row(f"{name} (seconds)", n, k, seconds, spread=spread)
    top = sizes[-1]
    for name in ("value and gradient, logistic", "value and gradient, lspc"):
        for k in groups[1:]:
            goal = f"<= {AT_MOST[k]:g}" if k in AT_MOST and "logistic" in name else ""
            ratio = result[name, top, k] / result[name, top, 2]
            yield row(f"{name}: over that of two groups", top, k, ratio, goal)
    for name, goals in AT_LEAST.items():
        for k in groups:
            ratio = result["mutual_info_classif", top, k] / result[name, top, k]
            goal = f">= {goals[k]:g}" if k in goals else ""
            yield row(f"mutual_info_classif / {name}", top, k, ratio, goal)
    for name in dict.fromkeys(name for name, _, _ in result):
        for k in groups:
            exponent = growth(sizes, [result[name, n, k] for n in sizes])
            yield row(f"{name}: growth exponent in n", "", k, exponent)
        exponent = growth(groups, [result[name, top, k] for k in groups])
        yield row(f"{name}: growth exponent in groups", top, "", exponent)
    for n, k, most in SMALL:
        yield row("audit, auto: CPU seconds", n, k, audit_cpu_seconds(n, k), f"<= {most:g}")


# Neighbors ----------------------------------------------------------------------------------------

NEIGHBORS = 3


def make_pairs(n: int, digits: int | None = None) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    a = (rng.random(n) < 0.3).astype(int)
    y = rng.normal(size=n) + 0.5 * a
    s = y + rng.normal(size=n) + 0.3 * a
    return s, y if digits is None else np.round(y, digits), a


def our_information(criterion: Any, s: Any, y: Any, a: Any) -> float:
    """Nats; of separation H(A|Y) − H(A|S,Y), both terms timed."""
    groups = resolve_groups(a, n_rows=len(a))
    conditions = [c for c in (criterion.given, criterion.joint) if c]
    result = KNN(NEIGHBORS).row_losses({"s": s, "y": y}, conditions, groups)
    given = result[criterion.given].value.mean() if criterion.given else groups.entropy
    return given - result[criterion.joint].value.mean()


def by_sklearn(s: Any, y: Any, a: Any) -> float:
    return mutual_info_classif(s[:, None], a, n_neighbors=NEIGHBORS, random_state=0)[0]


def by_ennemi(s: Any, y: Any, a: Any, given: bool = False) -> float:
    import ennemi

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        result = ennemi.estimate_mi(
            a, s, cond=y if given else None, k=NEIGHBORS, discrete_y=True, max_threads=1
        )
    return np.ravel(result)[0]


def neighbors(setting: Setting) -> Iterator[Row]:
    """Medians of three times on one thread, for a continuous target and one rounded to 0.01.

    On the rounded target ennemi breaks ties by adding noise, ours by taking expectations.
    """
    for n in setting.choose((10_000, 100_000), (500,)):
        for target, digits in (("continuous", None), ("rounded to 0.01", 2)):
            pairs = make_pairs(n, digits)
            peers: dict[Any, dict[str, Callable[..., float]]] = {
                INDEPENDENCE: {"scikit-learn": by_sklearn, "ennemi": by_ennemi},
                SEPARATION: {"ennemi": partial(by_ennemi, given=True)},
            }
            if digits is not None:
                del peers[INDEPENDENCE]  # does not look at the target
            for criterion, others in peers.items():
                seconds, _, value = timed(partial(our_information, criterion, *pairs), 3)
                for name, peer in others.items():
                    theirs, _, their_value = timed(partial(peer, *pairs), 3)
                    yield {
                        "n": n, "target": target, "quantity": criterion.name, "peer": name,
                        "evenhand_ms": round(1e3 * seconds, 2), "peer_ms": round(1e3 * theirs, 2),
                        "ratio": round(theirs / seconds, 1), "evenhand_nats": round(value, 5),
                        "peer_nats": round(float(their_value), 5),
                    }  # fmt: skip


# Other packages -----------------------------------------------------------------------------------

# Beyond this the neighbor search of infomeasure takes minutes.
INFOMEASURE_ROWS = 10_000


def by_dalex(y: Any, s: Any, a: Any) -> Any:
    import dalex

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        result = dalex.fairness.GroupFairnessRegression(
            y=y, y_hat=s, protected=a.astype(str), privileged="0", label="model"
        )
        result.fairness_check()
    return result


def by_infomeasure(y: Any, s: Any, a: Any) -> float:
    import infomeasure

    return infomeasure.mutual_information(s, a.astype(float), approach="metric", k=3)


def packages(setting: Setting) -> Iterator[Row]:
    """Seconds of each, and how they grow. dalex needs pandas < 3: an environment of its own."""
    sizes = setting.choose((1_000, 10_000, 100_000), (500, 1000))
    times: dict[str, list[float]] = {}
    for n in (500, *sizes):
        y, s, a = scored_rows(n)
        audit = partial(eh.audit, y, s, sensitive_features=a)
        runs = {
            "evenhand audit, logistic": partial(audit, estimator="logistic"),
            "evenhand audit, auto": audit,
            "dalex, three criteria": partial(by_dalex, y, s, a),
        }
        if n <= INFOMEASURE_ROWS:
            runs["infomeasure, I(S;A)"] = partial(by_infomeasure, y, s, a)
        seconds = {name: timed(run, 3)[0] for name, run in runs.items()}
        if n not in sizes:
            continue  # compiled by then
        for name, value in seconds.items():
            times.setdefault(name, []).append(value)
            ratio = value / seconds["evenhand audit, logistic"]
            yield {"method": name, "n": n, "seconds": value, "times_ours": ratio}
    for name, result in times.items():
        exponent = growth(sizes[: len(result)], result)
        yield {"method": f"{name}: growth exponent", "n": "", "seconds": exponent}
