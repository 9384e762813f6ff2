"""Two revisions of the package side by side: whether a number changed, and whether time did.

`same_numbers`: each revision audits and fits the same rows, drawn once, in a process of its own:
smooth and rough distributions, and the real data that are at hand, cut to 4,000 rows. The largest
difference of each kind, relative to the larger of 1 and the value. `base_head`: the same small
jobs, turn by turn, so that a slow moment of the machine hits both.

The base is the git revision named by the variable BASE, by default the commit before the last; it
is checked out into a temporary worktree. Fits take the quadratic basis, which all revisions have.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import loaders
from common import Setting
from distributions import FAMILIES, ROUGH_FAMILIES, random_scenario, rough_scenario
from evenhand.datasets import load_gpa2
from evidence import ROOT, git

Row = dict[str, Any]


@contextmanager
def two_revisions() -> Iterator[tuple[str, str, Path, Path]]:
    """Names of base and head, the folder of the base and one for what both need."""
    base, head = (
        git("rev-parse", "--short", name) for name in (os.environ.get("BASE", "HEAD~1"), "HEAD")
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "base"
        git("worktree", "add", "--detach", "-q", str(source), base)
        try:
            yield base, head, source, Path(folder)
        finally:
            git("worktree", "remove", "--force", str(source))


def probe(program: str, source: Path, cache: Path, *words: str) -> Any:
    """What a program prints as JSON with the package of one revision."""
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


# Numbers ------------------------------------------------------------------------------------------

NUMBERS = """
import json, pickle, sys, warnings
import numpy as np, evenhand as eh

warnings.simplefilter("ignore")
with open(sys.argv[1], "rb") as file:
    samples, tables = pickle.load(file)

def read(audit):
    out = {}
    for criterion, m in audit.measures.items():
        for field in ("value", "nats", "stderr", "p_value"):
            out[criterion + " " + field] = getattr(m, field)
        out[criterion + " low"], out[criterion + " high"] = m.interval
    out["r2"] = audit.r2
    return out

values = {}
for name, s, y, a in samples:
    for estimator in ("auto", "logistic", "lspc"):
        result = read(eh.audit(y, s, sensitive_features=a, estimator=estimator))
        values[name] = values.get(name, {}) | {
            f"audit, {estimator}: {k}": v for k, v in result.items()}
for name, X, y, a in tables:
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    X = X[:, X.std(axis=0) > 0]
    half = len(y) // 2
    mine = values[name] = {}
    for criterion in ("independence", "separation", "sufficiency"):
        model = eh.FairRidge(criterion, 1.0, basis="quadratic")
        model.fit(X[:half], y[:half], sensitive_features=a[:half])
        s = model.predict(X[half:])
        mine[f"fit, {criterion}: mean |score|"] = float(np.abs(s).mean())
        mine[f"fit, {criterion}: R2"] = model.score(X[half:], y[half:])
        if criterion == "independence":
            result = read(eh.audit(y[half:], s, sensitive_features=a[half:]))
            mine |= {f"audit, auto: {k}": v for k, v in result.items()}
print(json.dumps(values))
"""


def draw_samples() -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, score, target and group of each distribution."""
    for family in FAMILIES:
        y, s, a = random_scenario(family, 1).sample(3000, random_state=2)
        yield family, s, y, a
    for family in ROUGH_FAMILIES:
        y, s, a = rough_scenario(family, 1).sample(3000, random_state=2)
        yield family, s, y, a


def read_tables() -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, features, target and group of each data set that is at hand."""
    for load in (load_gpa2, *(getattr(loaders, name) for name in loaders.__all__)):
        name = load.__name__.removeprefix("load_")
        try:
            data = load()
        except (OSError, ImportError) as error:
            print(name, "left out:", error, file=sys.stderr)
            continue
        rows = np.random.default_rng(0).permutation(len(data.y))[:4000]
        yield name, data.X[rows], data.y[rows], data.sensitive[rows]


def same_numbers(setting: Setting) -> Iterator[Row]:
    """The largest difference of each kind in each data set."""
    few = setting.choose(None, 2)
    with two_revisions() as (base, head, source, folder):
        inputs = folder / "inputs"
        samples = [sample for sample, _ in zip(draw_samples(), range(few or 10**6), strict=False)]
        inputs.write_bytes(pickle.dumps((samples, list(read_tables())[:few])))
        old, new = (
            probe(NUMBERS, place, folder / name, str(inputs))
            for name, place in (("base-cache", source), ("head-cache", ROOT))
        )
    for data, values in new.items():
        kinds: dict[str, tuple[float, str]] = {}
        for key, value in values.items():
            before, kind = old[data][key], key.split(":")[0]
            if value != value and before != before:
                continue
            gap = abs(value - before) / max(1.0, abs(before))
            if not gap <= kinds.get(kind, (-1.0, ""))[0]:
                kinds[kind] = (gap, key)
        for kind, (gap, key) in kinds.items():
            yield {"data": data, "what": kind, "base": base, "head": head, "largest": gap,
                   "at": key}  # fmt: skip


# Time ---------------------------------------------------------------------------------------------

TIMES = """
import json, time
import numpy as np, evenhand as eh

def data(n, d):
    rng = np.random.default_rng(0)
    a = (rng.random(n) < 0.3).astype(int)
    X = rng.standard_normal((n, d)) + 0.3 * a[:, None]
    return X, X.sum(axis=1) / np.sqrt(d) + rng.standard_normal(n), a

def clock(job, repeats):
    job()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return sorted(times)[repeats // 2]

def evaluation(classifier):
    X, y, a = data(10**6, 2)
    term = eh.FairnessRegularizer("separation", classifier, basis="quadratic")
    bound = term.bind(y, sensitive_features=a)
    steps = iter(range(100))
    return lambda: bound.value_and_grad(X[:, 0] + 0.01 * next(steps) * y)

def fit(n, d, classifier):
    X, y, a = data(n, d)
    model = eh.FairRidge("separation", classifier=classifier, basis="quadratic")
    return lambda: model.fit(X, y, sensitive_features=a)

def audit(n, estimator):
    X, y, a = data(n, 2)
    return lambda: eh.audit(y, X[:, 0], sensitive_features=a, estimator=estimator)

def path():
    X, y, a = data(5000, 20)
    model = eh.FairRidge("separation", basis="quadratic")
    def run():
        point = model.path_fitter(X, y, sensitive_features=a)
        return [point(w) for w in np.geomspace(0.05, 50, 10)]
    return run

jobs = {
    "value and gradient, lspc, n=1e6": (evaluation("lspc"), 5),
    "value and gradient, logistic, n=1e6": (evaluation("logistic"), 5),
    "fit, lspc, 2,000 x 99": (fit(2000, 99, "lspc"), 7),
    "fit, logistic, 2,000 x 99": (fit(2000, 99, "logistic"), 7),
    "fit, logistic, 20,000 x 12": (fit(20_000, 12, "logistic"), 7),
    "path of ten points, 5,000 x 20": (path(), 5),
    "audit, logistic, n=1e5": (audit(10**5, "logistic"), 5),
    "audit, auto, n=1e4": (audit(10**4, "auto"), 5),
}
print(json.dumps({name: clock(*job) for name, job in jobs.items()}))
"""


def base_head(setting: Setting) -> Iterator[Row]:
    """Medians of both, and their ratio."""
    seconds: dict[str, dict[str, list[float]]] = {"base": {}, "head": {}}
    with two_revisions() as (base, head, source, folder):
        for _ in range(setting.choose(5, 1)):
            for side, place in (("base", source), ("head", ROOT)):
                for job, taken in probe(TIMES, place, folder / f"{side}-cache").items():
                    seconds[side].setdefault(job, []).append(taken)
    for job, times in seconds["head"].items():
        old, new = median(seconds["base"][job]), median(times)
        yield {"job": job, "base": base, "head": head, "base_seconds": old, "head_seconds": new,
               "base_over_head": old / new}  # fmt: skip
