"""Time of audits and measures against peers, and how it grows with rows and groups.

`audits`: complete audits against one call of scikit-learn's neighbor estimate, which gives one
number, and their memory. `many_groups`: two to forty groups. `neighbors`: evenhand's `KNN` against
scikit-learn and ennemi. `packages`: whole audits against dalex, which gives ratios of probabilities
from logistic regressions without intervals or tests, and infomeasure, which gives I(S;A) alone.
`cold_start`: CPU time and compiled kernels of a first audit, fit, path and command, each in a
process of its own.
`followers`: what goes beyond an audit, against floors that are named.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import subprocess
import sys
import tempfile
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
    """CPU seconds of whole audits, and how many of them one neighbor estimate takes."""
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
            seconds, spread, _ = timed(partial(audit, n, name), 5, time.process_time)
            times[name].append(seconds)
            yield {"what": f"audit, {name}, n={n:.0e} (CPU seconds)", "value": seconds, "goal": "",
                   "spread": spread}  # fmt: skip
    peer = median(
        timed(partial(mutual_info_classif, s[:, None], a, random_state=0), 1, time.process_time)[0]
        for _ in range(3)
    )
    for name, goal in (("logistic", ">= 20"), ("auto", ">= 5")):
        yield {"what": f"mutual_info_classif (independence only) / whole audit, {name}, n=1e6",
               "value": peer / times[name][-1], "goal": goal, "peer_seconds": peer}  # fmt: skip
        yield {"what": f"growth exponent of an audit, {name}, n=1e4 to {sizes[-1]:.0e}",
               "value": growth(sizes, times[name]), "goal": "<= 1.1"}  # fmt: skip
    n = setting.choose(3 * 10**6, 10**4)
    for k in (2, 5):
        memory = median(audit_memory(n, k) for _ in range(3))
        yield {"what": f"memory of a process with one audit, auto, n={n:.0e}, {k} groups (MB)",
               "value": memory, "goal": ""}  # fmt: skip


# Kernels are read from the cache; the rows themselves take 24 bytes each.
MEMORY_PROGRAM = """
import resource, sys
sys.path[:0] = {path}
from studies.speed_of_audits import draw_groups
import evenhand as eh
y, s, a = draw_groups({n}, {k})
eh.audit(y, s, sensitive_features=a)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def audit_memory(n: int, n_groups: int) -> float:
    """Largest resident memory of a process that draws rows and audits them once, in MB."""
    program = MEMORY_PROGRAM.format(path=sys.path, n=n, k=n_groups)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


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
    """One warm value and gradient, audits and a neighbor estimate by number of groups: CPU time."""
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
                seconds, spread, _ = timed(job, repeats, time.process_time)
                result[name, n, k] = seconds
                yield row(f"{name} (CPU seconds)", n, k, seconds, spread=spread)
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


# First calls --------------------------------------------------------------------------------------

# What a newcomer does first, and the CPU seconds that it may take; None is not asked for.
FIRST = {
    "audit": ("eh.audit(y, s, sensitive_features=a)", 6.0),
    "fit": ("eh.FairRidge('separation').fit(X, y, sensitive_features=a)", 2.0),
    "path": ("eh.fairness_path(eh.FairRidge(), X, y, sensitive_features=a, random_state=0)", None),
    "command": ("from evenhand.cli.app import main; sys.argv[1:] = ['demo', '-f']; main()", None),
}
# Says at its end how many kernels were compiled, which are not in the cache.
PROGRAM = """
import json, sys, numpy as np
from numba.core.event import Listener, register
class Count(Listener):
    kernels, depth = 0, 0
    def on_start(self, event):
        self.kernels += self.depth == 0
        self.depth += 1
    def on_end(self, event):
        self.depth -= 1
count = Count()
register("numba:compile", count)
import evenhand as eh
rng = np.random.default_rng(0)
X, a = rng.normal(size=(500, 5)), rng.integers(0, 2, 500)
y = X.sum(axis=1) + a + rng.normal(size=500)
s = y + rng.normal(size=500)
try:
    {call}
finally:
    print("kernels", count.kernels)
"""


def first_call(call: str, folder: str) -> tuple[float, float, int]:
    """CPU and wall-clock seconds of a whole process, and kernels that it compiled."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.replace("{call}", call)], cwd=folder,
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    said = [line for line in done.stdout.splitlines() if line.startswith("kernels ")]
    if done.returncode:
        raise RuntimeError(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, int(said[0].split()[1])


def cold_start(setting: Setting) -> Iterator[Row]:
    """Whole processes, imports included, with an empty cache of kernels and with a filled one."""
    for name, (call, most) in FIRST.items():
        if (setting.quick and name not in ("audit", "fit")) or not setting.wants(f"first {name}"):
            continue
        taken: dict[str, list[tuple[float, float, int]]] = {"empty": [], "filled": []}
        for _ in range(setting.choose(1 if name == "command" else 2, 1)):
            with tempfile.TemporaryDirectory() as folder:
                for cache in taken:
                    taken[cache].append(first_call(call, folder))
        for cache, results in taken.items():
            cpu, wall = (median(result[j] for result in results) for j in (0, 1))
            yield {"what": f"first {name}", "cache": cache, "cpu_seconds": cpu,
                   "wall_seconds": wall, "kernels": results[0][2],
                   "goal": f"<= {most:g}" if most and cache == "empty" else ""}  # fmt: skip


# What goes beyond an audit ------------------------------------------------------------------------


def draw_more(n: int, n_groups: int) -> dict[str, Any]:
    """Rows with three controls, a measurement, features and months."""
    y, s, a = draw_groups(n, n_groups)
    rng = np.random.default_rng(2)
    X = np.column_stack([y + rng.normal(size=n), s, a + rng.normal(size=n)])
    X = np.column_stack([X, rng.normal(size=(n, 3))])
    return {"y": y, "s": s, "a": a.astype(str), "X": X, "controls": X[:, [0, 2, 3]],
            "month": rng.integers(1, 7, n), "age": a + rng.normal(size=n)}  # fmt: skip


def adjusted(d: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], str]:
    """Gaps given controls; the floor is what doubly robust estimates fit five times over."""
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.preprocessing import SplineTransformer

    def floor() -> None:
        for _ in range(5):
            F = SplineTransformer().fit_transform(d["controls"])
            LogisticRegression().fit(F, d["a"])
            LinearRegression().fit(F, d["s"])

    name = "five cross-fits of scikit-learn's splines, LogisticRegression and LinearRegression"
    ours = partial(eh.audit, d["y"], d["s"], sensitive_features=d["a"], controls=d["controls"])
    return ours, floor, name


def explained(d: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], str]:
    from sklearn.inspection import permutation_importance
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(d["X"], d["y"])
    ours = partial(eh.drivers, model, d["X"], sensitive_features=d["a"], y_true=d["y"])
    floor = partial(permutation_importance, model, d["X"], d["y"], n_repeats=100, random_state=0)
    return ours, floor, "permutation_importance of scikit-learn, 100 repeats"


def measured(d: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], str]:
    from sklearn.feature_selection import mutual_info_regression

    age = eh.Continuous(d["age"], "age")
    ours = partial(eh.audit, d["y"], d["s"], sensitive_features=age)
    columns, rng = np.column_stack([d["s"], d["y"]]), np.random.default_rng(0)

    def floor() -> None:
        for _ in range(20):
            some = rng.integers(0, len(columns), len(columns))
            mutual_info_regression(columns[some], d["age"][some])

    return ours, floor, "mutual_info_regression of scikit-learn, 20 bootstraps"


def watched(d: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], str]:
    import pandas as pd

    month = pd.to_datetime([f"2026-{m:02}-15" for m in d["month"]])
    table = pd.DataFrame({"s": d["s"], "y": d["y"], "a": d["a"], "t": month})
    ours = partial(eh.monitor, table, period="month", time="t", y_true="y", y_pred="s",
                   sensitive_features="a", criteria=("independence", "separation"))  # fmt: skip

    def floor() -> None:
        for _, part in table.groupby("t"):
            eh.audit(part["y"], part["s"], sensitive_features=part["a"])

    return ours, floor, "six audits, one for each month"


def compared(d: dict[str, Any]) -> tuple[Callable[[], Any], Callable[[], Any], str]:
    from fairlearn.metrics import MetricFrame
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

    audit = eh.audit(d["y"], d["s"], sensitive_features=d["a"], estimator="logistic")
    metrics = {m.__name__: m for m in (mean_absolute_error, mean_squared_error, r2_score)}
    floor = partial(MetricFrame, metrics=metrics, y_true=d["y"], y_pred=d["s"],
                    sensitive_features=d["a"], n_boot=20, ci_quantiles=[0.025, 0.975],
                    random_state=0)  # fmt: skip
    return partial(audit.impact, at=("median",)), floor, "MetricFrame of fairlearn, 20 bootstraps"


FOLLOWERS = {"controls": adjusted, "drivers": explained, "continuous": measured,
             "monitor": watched, "impact": compared}  # fmt: skip


def followers(setting: Setting) -> Iterator[Row]:
    """CPU seconds of each, over those of its floor, and how they grow; one thread."""
    sizes = setting.choose((2_000, 20_000), (500, 1000))
    groups = setting.choose((2, 5), (2,))
    for name, make in FOLLOWERS.items():
        seconds = {}
        for n in sizes:
            for k in groups:
                ours, floor, peer = make(draw_more(n, k))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ours(), floor()
                    repeats = 1 if n > 2_000 else 3
                    taken = [median(_cpu(f) for _ in range(repeats)) for f in (ours, floor)]
                seconds[n, k] = taken[0]
                yield {"what": name, "n": n, "groups": k, "cpu_seconds": taken[0],
                       "floor": peer, "floor_seconds": taken[1], "ratio": taken[0] / taken[1],
                       "goal": "<= 5"}  # fmt: skip
        exponent = growth(sizes, [seconds[n, groups[0]] for n in sizes])
        yield {"what": f"{name}: growth exponent in n", "n": "", "groups": groups[0],
               "cpu_seconds": exponent}  # fmt: skip
        if len(groups) > 1:
            exponent = growth(groups, [seconds[sizes[-1], k] for k in groups])
            yield {"what": f"{name}: growth exponent in groups", "n": sizes[-1], "groups": "",
                   "cpu_seconds": exponent}  # fmt: skip


def _cpu(function: Callable[[], Any]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began
