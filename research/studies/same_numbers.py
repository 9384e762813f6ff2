"""Whether a change of the code changed a number: audits and fits by two revisions.

    python research/run.py same_numbers [BASE]

BASE is a git revision (default: the commit before the last), checked out into a temporary
worktree. Each revision audits and fits the same rows, drawn once, in a process of its own: smooth
and rough distributions, and the real data that are at hand, cut to 4,000 rows. Prints the largest
difference of each kind, relative to the larger of 1 and the value; writes
results/same_numbers.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import loaders
from common import write
from distributions import FAMILIES, ROUGH_FAMILIES, random_scenario, rough_scenario
from evenhand.datasets import load_gpa2

ROOT = Path(__file__).parents[2]
PROBE = """
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

found = {}
for name, s, y, a in samples:
    for estimator in ("auto", "logistic", "lspc"):
        result = read(eh.audit(y, s, sensitive_features=a, estimator=estimator))
        found[name] = found.get(name, {}) | {
            f"audit, {estimator}: {k}": v for k, v in result.items()}
for name, X, y, a in tables:
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    X = X[:, X.std(axis=0) > 0]
    half = len(y) // 2
    mine = found[name] = {}
    for criterion in ("independence", "separation", "sufficiency"):
        model = eh.FairRidge(criterion, 1.0).fit(X[:half], y[:half], sensitive_features=a[:half])
        s = model.predict(X[half:])
        mine[f"fit, {criterion}: mean |score|"] = float(np.abs(s).mean())
        mine[f"fit, {criterion}: R2"] = model.score(X[half:], y[half:])
        if criterion == "independence":
            result = read(eh.audit(y[half:], s, sensitive_features=a[half:]))
            mine |= {f"audit, auto: {k}": v for k, v in result.items()}
print(json.dumps(found))
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


def probe(source: Path, cache: str, inputs: Path) -> dict[str, dict[str, float]]:
    environment = {**os.environ, "PYTHONPATH": str(source / "src"), "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(inputs)],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", nargs="?", default="HEAD~1")
    options = parser.parse_args()
    git = ["git", "-C", str(ROOT)]
    name = subprocess.check_output([*git, "rev-parse", "--short", options.base], text=True).strip()
    head = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        subprocess.run([*git, "worktree", "add", "--detach", "-q", str(base), name], check=True)
        inputs = Path(folder) / "inputs"
        inputs.write_bytes(pickle.dumps((list(draw_samples()), list(read_tables()))))
        try:
            old = probe(base, f"{folder}/cache-base", inputs)
            new = probe(ROOT, f"{folder}/cache-head", inputs)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(base)], check=True)
    rows = []
    for data, values in new.items():
        kinds: dict[str, tuple[float, str]] = {}
        for key, value in values.items():
            before, kind = old[data][key], key.split(":")[0]
            if value != value and before != before:
                continue
            gap = abs(value - before) / max(1.0, abs(before))
            if not gap <= kinds.get(kind, (-1.0, ""))[0]:
                kinds[kind] = (gap, key)
        rows += [
            {"data": data, "what": kind, "base": name, "head": head, "largest": gap, "at": key}
            for kind, (gap, key) in kinds.items()
        ]
    for kind in dict.fromkeys(row["what"] for row in rows):
        gap, data = max((row["largest"], row["data"]) for row in rows if row["what"] == kind)
        print(f"{kind:25s} {gap:.2e}  {data}")
    print(f"{len(new)} data sets")
    print(write("same_numbers", rows))


if __name__ == "__main__":
    main()
