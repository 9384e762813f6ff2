"""Base against head: the same small jobs on two revisions, turn by turn.

    python research/run.py base_head [BASE] [--repeats 5]

BASE is a git revision (default: the commit before the last). It is checked out into a temporary
worktree; both revisions run in processes of their own, alternately, so that a slow moment of the
machine hits both. Prints medians and their ratio; writes results/base_head.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from common import write

ROOT = Path(__file__).parents[2]
PROBE = """
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
    bound = eh.FairnessRegularizer("separation", classifier).bind(y, sensitive_features=a)
    steps = iter(range(100))
    return lambda: bound.value_and_grad(X[:, 0] + 0.01 * next(steps) * y)

def fit(n, d, classifier):
    X, y, a = data(n, d)
    model = eh.FairRidge("separation", classifier=classifier)
    return lambda: model.fit(X, y, sensitive_features=a)

def audit(n, estimator):
    X, y, a = data(n, 2)
    return lambda: eh.audit(y, X[:, 0], sensitive_features=a, estimator=estimator)

def path():
    X, y, a = data(5000, 20)
    model = eh.FairRidge("separation")
    def run():
        share = getattr(model, "path_fitter", None) or model._path_fitter
        point = share(X, y, sensitive_features=a)
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


def probe(source: Path, cache: str) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", nargs="?", default="HEAD~1")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    git = ["git", "-C", str(ROOT)]
    name = subprocess.check_output([*git, "rev-parse", "--short", options.base], text=True).strip()
    head = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    found: dict[str, dict[str, list[float]]] = {"base": {}, "head": {}}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        subprocess.run([*git, "worktree", "add", "--detach", "-q", str(base), name], check=True)
        try:
            for _ in range(options.repeats):
                for side, source in (("base", base), ("head", ROOT)):
                    for job, seconds in probe(source, f"{folder}/cache-{side}").items():
                        found[side].setdefault(job, []).append(seconds)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(base)], check=True)
    rows = []
    for job, times in found["head"].items():
        old, new = median(found["base"][job]), median(times)
        rows.append({"job": job, "base": name, "head": head, "base_seconds": old,
                     "head_seconds": new, "base_over_head": old / new})  # fmt: skip
        print(f"{job:40s} {1e3 * old:9.1f} ms {1e3 * new:9.1f} ms   {old / new:5.2f}")
    print(write("base_head", rows))


if __name__ == "__main__":
    main()
