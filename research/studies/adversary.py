"""Random laws with known truth against `auto`, for a given time; the worst hundred are listed.

python research/run.py adversary [--minutes 30] [--seed 0] [--workers 2] [--top 100]
python research/run.py adversary --replay 0-17

Every law is known by SEED-INDEX. A row is allowed an error of 3 standard errors plus 25 % of the
truth (10 % from 10,000 rows on) plus 0.005; laws are listed by what they exceed that by. Some laws
cannot be known from their rows (a piece of a partition with two rows in it): `rows_per_piece` says
which. All go to results/adversary.csv, the list to results/adversary.md.
"""

from __future__ import annotations

import argparse
import os
import time
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import count
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np

from common import RESULTS, write
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.measures.measures import estimate_entropies, get_estimator, measure
from studies.random_laws import Drawn, draw


def allowed(truth: float, stderr: float, n: int) -> float:
    return 3 * stderr + (0.25 if n < 10_000 else 0.1) * truth + 0.005


def try_law(seed: int, index: int, estimator: str) -> list[dict[str, Any]]:
    """One row for each criterion, or one row that tells of an error."""
    law = draw(seed, index)
    about = {"id": f"{seed}-{index}", "kind": law.kind, "n": law.n, "groups": law.scenario.n_groups}
    tail = {
        "rows_per_piece": law.n / law.pieces,
        "truth_error": law.truth_error,
        "note": law.note,
    }
    y, s, a = law.scenario.sample(law.n, [seed, index, 1])
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            groups = resolve_groups(a, n_rows=law.n)
            entropies = estimate_entropies(
                CRITERIA.values(), {"s": s, "y": y}, groups, get_estimator(estimator)
            )
            found = {
                name: measure(c, entropies, 0.95, float("nan"), estimator)
                for name, c in CRITERIA.items()
            }
    except Exception:
        # An estimator must not fail on rows that a user might have: that is the worst finding.
        error = traceback.format_exc().strip().splitlines()[-1]
        return [{**about, "criterion": "all", "excess": np.inf, "error": error, **tail}]
    seconds = time.process_time() - began
    rows = []
    for name, m in found.items():
        truth = law.scenario.truth.value(name)
        bound = allowed(truth, m.stderr, law.n)
        excess = abs(m.value - truth) - bound
        rows.append(
            {
                **about,
                "criterion": name,
                "truth": truth,
                "value": m.value,
                "stderr": m.stderr,
                "low": m.interval[0],
                "high": m.interval[1],
                "allowed": bound,
                # Not a number is as bad as an error.
                "excess": excess if np.isfinite(excess) else np.inf,
                "error": "",
                "seconds": seconds,
                **tail,
            }
        )
    return rows


def hunt(options) -> Iterator[list[dict[str, Any]]]:
    """Results as they come, until time is up."""
    ends = time.monotonic() + 60 * options.minutes
    numbers = count(options.first)
    with ProcessPoolExecutor(options.workers) as pool:
        pending = set()
        while True:
            while time.monotonic() < ends and len(pending) < 2 * options.workers:
                pending.add(pool.submit(try_law, options.seed, next(numbers), options.estimator))
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def worst(rows: list[dict[str, Any]], top: int) -> list[dict[str, Any]]:
    """The worst criterion of each law, worst law first."""
    by_law: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["id"] not in by_law or row["excess"] > by_law[row["id"]]["excess"]:
            by_law[row["id"]] = row
    listed = [row for row in by_law.values() if row["excess"] > 0]
    return sorted(listed, key=lambda row: -row["excess"])[:top]


def markdown(listed: list[dict[str, Any]]) -> str:
    lines = [
        "| law | kind | rows | rows a piece | criterion | truth | estimate | exceeds by | what |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in listed:
        start = f"| {row['id']} | {row['kind']} | {row['n']:,} | {row['rows_per_piece']:,.0f} "
        if row["error"]:
            lines.append(f"{start}| all |  | {row['error']} |  | {row['note']} |")
        else:
            lines.append(
                f"{start}| {row['criterion']} | {row['truth']:.3f} | {row['value']:.3f} "
                f"({row['low']:.3f} to {row['high']:.3f}) | {row['excess']:.3f} | {row['note']} |"
            )
    return "\n".join(lines) + "\n"


def summary(rows: list[dict[str, Any]]) -> str:
    """How many laws of each kind exceed what is allowed, and how often intervals cover."""
    lines = []
    for kind in sorted({row["kind"] for row in rows}):
        own = [row for row in rows if row["kind"] == kind]
        laws = len({row["id"] for row in own})
        beyond = len({row["id"] for row in own if row["excess"] > 0})
        rich = [row for row in own if row["rows_per_piece"] >= 200 and not row["error"]]
        rich_laws = len({row["id"] for row in rich})
        rich_beyond = len({row["id"] for row in rich if row["excess"] > 0})
        told = [row for row in rich if row["truth"] > 0.02]
        inside = np.mean([r["low"] <= r["truth"] <= r["high"] for r in told]) if told else np.nan
        lines.append(
            f"{kind:12s} {laws:5d} laws, {beyond:5d} beyond what is allowed; of {rich_laws} with "
            f"200 rows a piece {rich_beyond}, whose intervals cover {100 * inside:.0f} %"
        )
    return "\n".join(lines)


def replay(identifier: str, estimator: str) -> None:
    seed, index = map(int, identifier.split("-"))
    law: Drawn = draw(seed, index)
    print(f"{identifier}: {law.kind}, {law.n:,} rows, {law.pieces} pieces; {law.note}")
    print({name: round(h, 5) for name, h in law.scenario.truth.entropies.items()})
    for row in try_law(seed, index, estimator):
        print({k: v for k, v in row.items() if k not in ("id", "kind", "note")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="index of the first law")
    parser.add_argument("--top", type=int, default=100)
    parser.add_argument("--estimator", default="auto")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--replay", metavar="SEED-INDEX")
    options = parser.parse_args()
    if options.replay:
        replay(options.replay, options.estimator)
        return
    rows: list[dict[str, Any]] = []
    written = time.monotonic()
    for found in hunt(options):
        rows += found
        bad = max(found, key=lambda row: row["excess"])
        if bad["excess"] > 0.05:
            print(markdown([bad]).splitlines()[-1], flush=True)
        if time.monotonic() - written > 30:
            save(rows, options.top)
            written = time.monotonic()
    save(rows, options.top)
    print(summary(rows))


def save(rows: list[dict[str, Any]], top: int) -> None:
    write("adversary", sorted(rows, key=lambda row: tuple(map(int, row["id"].split("-")))))
    (RESULTS / "adversary.md").write_text(markdown(worst(rows, top)))


if __name__ == "__main__":
    main()
