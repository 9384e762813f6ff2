"""Random distributions with known truth against `auto`, for half an hour.

Each is known by SEED-INDEX, and `try_law` runs it again. A row is allowed an error of 3 standard
errors plus 25 % of the truth (10 % from 10,000 rows on) plus 0.005; `excess` is what it exceeds
that by. Some cannot be known from their rows (a piece of a partition with two rows in it):
`rows_per_piece` says which.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import count
from typing import Any

import numpy as np

from common import CRITERIA, Setting, estimate
from distributions.drawn import draw

SEED = 0


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
            result = estimate(y, s, a, estimator)
    except Exception:
        # An estimator must not fail on rows that a user might have: that is the worst finding.
        error = traceback.format_exc().strip().splitlines()[-1]
        return [{**about, "criterion": "all", "excess": np.inf, "error": error, **tail}]
    seconds = time.process_time() - began
    rows = []
    for name, (value, stderr, low, high) in zip(CRITERIA, result, strict=True):
        truth = law.scenario.truth.value(name)
        bound = allowed(truth, stderr, law.n)
        excess = abs(value - truth) - bound
        rows.append(
            {
                **about,
                "criterion": name,
                "truth": truth,
                "value": value,
                "stderr": stderr,
                "low": low,
                "high": high,
                "allowed": bound,
                # Not a number is as bad as an error.
                "excess": excess if np.isfinite(excess) else np.inf,
                "error": "",
                "seconds": seconds,
                **tail,
            }
        )
    return rows


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Rows of as many distributions as the time allows, in order."""
    ends = time.monotonic() + 60 * setting.choose(30.0, 0.05)
    numbers, rows = count(), []
    with ProcessPoolExecutor(setting.jobs) as pool:
        pending = {pool.submit(try_law, SEED, next(numbers), "auto") for _ in range(setting.jobs)}
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                rows += future.result()
                if time.monotonic() < ends:
                    pending.add(pool.submit(try_law, SEED, next(numbers), "auto"))
    yield from sorted(rows, key=lambda row: int(row["id"].split("-")[1]))
