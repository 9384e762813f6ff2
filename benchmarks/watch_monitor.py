"""Monitoring: false alarms over a decade of monthly looks, and how soon a doubling is seen.

    python benchmarks/watch_monitor.py [--series 200]

Series of 120 months, alike in every month, at three levels of disparity and two sizes: the share in
which any alarm was raised. Series in which independence doubles after 36 months: how many rows, and
months, until it is seen, and how far off the time of the change is. And the time that a year of
daily cells takes. Writes results/watch_monitor.csv.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from common import write

import evenhand as eh

MONTHS, BEFORE = 120, 36


def shift_for(value: float) -> float:
    """Difference of means, in spreads, of two equal groups with this independence (normal law)."""
    low, high = 0.0, 5.0
    x = np.linspace(-10, 15, 4001)
    for _ in range(50):
        d = (low + high) / 2
        p, q = (np.exp(-((x - m) ** 2) / 2) for m in (0.0, d))
        share = p / (p + q)
        entropy = -(share * np.log(share) + (1 - share) * np.log1p(-share))
        left = np.trapezoid(entropy * (p + q), x) / np.trapezoid(p + q, x)
        low, high = (d, high) if 1 - left / np.log(2) < value else (low, d)
    return d


def months(shifts, n: int, rng: np.random.Generator, edges):
    out = {}
    for t, shift in enumerate(shifts):
        a = rng.integers(0, 2, n)
        s = rng.normal(size=n) + shift * a
        out[f"{t:03d}"] = eh.Cells.from_rows(None, s, sensitive_features=a, edges=edges)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=200)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    wide = np.linspace(-6, 8, 2000)
    edges = eh.Cells.from_rows(None, wide, sensitive_features=np.arange(2000) % 2, edges=256).edges
    rows = []
    for value in (0.0, 0.02, 0.10):
        shift = shift_for(value) if value else 0.0
        for n in (200, 1000):
            alarms = sum(
                bool(eh.monitor(months([shift] * MONTHS, n, rng, edges)).alarms)
                for _ in range(options.series)
            )
            rows.append({"what": "no change", "independence": value, "rows_a_month": n,
                         "series": options.series, "alarms": alarms / options.series})  # fmt: skip
            print(rows[-1], flush=True)
    for value in (0.02, 0.05):
        few = max(options.series // 10, 5)
        shifts = [shift_for(value)] * BEFORE + [shift_for(2 * value)] * (MONTHS - BEFORE)
        for n in (1000, 5000):
            delays, off = [], []
            for _ in range(few):
                found = eh.monitor(months(shifts, n, rng, edges)).alarms
                late = [alarm for alarm in found if int(alarm.at) >= BEFORE]
                delays.append(int(late[0].at) - BEFORE + 1 if late else np.inf)
                off.append(abs(int(late[0].since) - BEFORE) if late else np.inf)
            rows.append({"what": "doubled", "independence": value, "rows_a_month": n, "series": few,
                         "alarms": float(np.mean(np.isfinite(delays))),
                         "months_until_seen": float(np.median(delays)),
                         "rows_until_seen": float(np.median(delays)) * n,
                         "months_off": float(np.median(off))})  # fmt: skip
            print(rows[-1], flush=True)
    year = months([0.3] * 365, 1000, rng, edges)
    began = time.process_time()
    eh.monitor(year)
    rows.append({"what": "a year of daily cells", "rows_a_month": 30_000, "series": 1,
                 "cpu_seconds": time.process_time() - began})  # fmt: skip
    print(rows[-1])
    print(write("watch_monitor", rows))


if __name__ == "__main__":
    main()
