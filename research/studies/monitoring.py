"""Monitoring: false alarms over a decade of monthly looks, and how soon a doubling is seen.

Series of 120 months in which nothing changes: the share in which any alarm was raised, at three
levels of disparity and two sizes, with months of very different sizes, with weights, ten groups and
a rare group. Series in which something other than the disparity moves: the level of all scores, the
shares of the groups, a group that comes late. Series in which independence doubles after 36 months:
how many rows, and months, until that is seen, and how far off the time of the change is. And the
time that a year of daily cells takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import evenhand as eh
from common import Setting, run_all

MONTHS, BEFORE = 120, 36
YEARS = MONTHS // 12
YEAR = "a year of daily cells"
Rows = tuple[np.ndarray, np.ndarray, np.ndarray | None]
Draw = Callable[[int, np.random.Generator], Rows]
_WIDE = np.linspace(-8, 12, 2000)
EDGES = eh.Cells.from_rows(None, _WIDE, sensitive_features=np.arange(2000) % 2, edges=256).edges
CENTERS = 0.3 * np.random.default_rng(5).normal(size=10)


def shift_for(value: float) -> float:
    """Difference of means, in spreads, of two equal groups with this independence (normal law)."""
    if not value:
        return 0.0
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


SHIFTS = {value: shift_for(value) for value in (0.0, 0.02, 0.04, 0.05, 0.1)}


def two_groups(shift: float, n: int, rng: np.random.Generator) -> Rows:
    a = rng.integers(0, 2, n)
    return rng.normal(size=n) + shift * a, a, None


def uneven(value: float) -> Draw:
    """Months of 40, 300 or 4,000 people."""
    return lambda t, rng: two_groups(SHIFTS[value], int(rng.choice([40, 300, 4000])), rng)


def weighted(t: int, rng: np.random.Generator) -> Rows:
    s, a, _ = two_groups(SHIFTS[0.05], 400, rng)
    return s, a, rng.lognormal(0.0, 0.8, 400)


def ten_groups(t: int, rng: np.random.Generator) -> Rows:
    a = rng.integers(0, 10, 1000)
    return rng.normal(size=1000) + CENTERS[a], a, None


def rare_group(t: int, rng: np.random.Generator) -> Rows:
    """One in twenty."""
    a = (rng.random(400) < 0.05).astype(int)
    return rng.normal(size=400) + 1.5 * a, a, None


def drifting_level(t: int, rng: np.random.Generator) -> Rows:
    """Everybody's score rises by three spreads over the decade."""
    s, a, _ = two_groups(SHIFTS[0.05], 1000, rng)
    return s + 3.0 * t / MONTHS, a, None


def drifting_shares(t: int, rng: np.random.Generator) -> Rows:
    """The second group goes from a half of the people to a fifth; its scores stay."""
    a = (rng.random(1000) < 0.5 - 0.3 * t / MONTHS).astype(int)
    return rng.normal(size=1000) + SHIFTS[0.05] * a, a, None


def late_group(t: int, rng: np.random.Generator) -> Rows:
    """A third group, a fifth of the people, from month 60 on, with scores like the first's."""
    s, a, _ = two_groups(SHIFTS[0.05], 1000, rng)
    new = (rng.random(1000) < 0.2) & (t >= 60)
    return np.where(new, rng.normal(size=1000), s), np.where(new, 2, a), None


def steady(value: float, n: int) -> Draw:
    return lambda t, rng: two_groups(SHIFTS[value], n, rng)


def doubled(value: float, n: int) -> Draw:
    return lambda t, rng: two_groups(SHIFTS[value if t < BEFORE else 2 * value], n, rng)


# What, independence, rows a month, how a month is drawn.
CASES: list[tuple[str, float, str, Draw]] = [
    *(("no change", v, str(n), steady(v, n)) for v in (0.0, 0.02, 0.1) for n in (200, 1000)),
    *(("uneven months", v, "40 to 4000", uneven(v)) for v in (0.0, 0.02, 0.1)),
    ("weights", 0.05, "400", weighted),
    ("ten groups", float("nan"), "1000", ten_groups),
    ("a rare group", float("nan"), "400", rare_group),
    ("all scores rise", 0.05, "1000", drifting_level),
    ("shares drift", 0.05, "1000", drifting_shares),
    ("a group comes late", 0.05, "1000", late_group),
    *(("doubled", v, str(n), doubled(v, n)) for v in (0.02, 0.05) for n in (1000, 5000)),
]


def months(draw: Draw, rng: np.random.Generator, count: int = MONTHS) -> dict[str, eh.Cells]:
    out = {}
    for t in range(count):
        s, a, w = draw(t, rng)
        out[f"{t:03d}"] = eh.Cells.from_rows(
            None, s, sensitive_features=a, sample_weight=w, edges=EDGES
        )
    return out


def raise_alarms(case: int, series: int) -> dict[str, Any]:
    """(series, alarm, 2): when alarms were raised, and since when they say; −1 beyond the last."""
    results = []
    for seed in range(series):
        result = eh.monitor(months(CASES[case][3], np.random.default_rng([case, seed])))
        results.append([(int(alarm.at), int(alarm.since)) for alarm in result.alarms])
    most = max(map(len, results), default=0)
    return {"alarms": np.array([f + [(-1, -1)] * (most - len(f)) for f in results]), "most": most}


def summary(case: int, result: list[list[tuple[int, int]]]) -> dict[str, Any]:
    what, value, n, _ = CASES[case]
    row: dict[str, Any] = {
        "what": what, "independence": value, "rows_a_month": n, "series": len(result),
        "years": len(result) * YEARS, "alarms": float(np.mean([bool(f) for f in result])),
    }  # fmt: skip
    if what != "doubled":
        return row
    late = [next((a for a in f if a[0] >= BEFORE), None) for f in result]
    waited = [np.inf if a is None else a[0] - BEFORE + 1 for a in late]
    row["alarms"] = float(np.mean(np.isfinite(waited)))
    row["false_alarms"] = float(np.mean([any(at < BEFORE for at, _ in f) for f in result]))
    row["months_until_seen"] = float(np.median(waited))
    row["rows_until_seen"] = float(np.median(waited)) * int(n)
    row["rows_until_seen_90"] = float(np.quantile(waited, 0.9, method="higher")) * int(n)
    off = [np.inf if a is None else abs(a[1] - BEFORE) for a in late]
    row["months_off"] = float(np.median(off))
    return row


def year_of_days() -> dict[str, Any]:
    year = months(steady(0.02, 1000), np.random.default_rng(0), 365)
    began, clock = time.process_time(), time.perf_counter()
    eh.monitor(year)
    return {"what": YEAR, "rows_a_month": "30000", "series": 1,
            "cpu_seconds": time.process_time() - began,
            "seconds": time.perf_counter() - clock}  # fmt: skip


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    wanted = [k for k, case in enumerate(CASES) if setting.wants(case[0])]
    units = [(case, setting.choose(200, 2)) for case in wanted[:: setting.choose(1, 9)]]
    results = run_all(setting, raise_alarms, units, "series")
    for (case, series), result in zip(units, results, strict=True):
        alarms = result["alarms"].reshape(series, int(result["most"]), 2)
        yield summary(case, [[(a, b) for a, b in f.tolist() if a >= 0] for f in alarms])
    if setting.wants(YEAR) and not setting.quick:
        yield year_of_days()
