"""Any metric by group: do its intervals hold for all groups at once, as they claim?

Targets and scores are lognormal, in independent rows or in families of five that share most of
their noise; two groups are of one size, three are not. Metrics are those of scikit-learn, written
here without its checks of the input, which take ten times as long; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from common import Setting, run_all
from evenhand.auditing.by_group import metric_by_group
from evenhand.auditing.group_tables import AuditedRows
from evenhand.data.groups import resolve_groups
from evenhand.data.sample import Sample

Random = np.random.Generator
# Rows, and shares of the groups.
TABLES = {2: (1_000, (0.5, 0.5)), 3: (2_000, (0.5, 0.3, 0.2))}
DESIGNS = [(design, groups) for design in ("rows", "families") for groups in TABLES]


def mean(x: Any, w: Any) -> float:
    return float(np.average(x, weights=w))


def explained(y: Any, error: Any, w: Any) -> float:
    return 1.0 - mean(error, w) / mean(np.square(y - mean(y, w)), w)


METRICS: dict[str, Callable[..., float]] = {
    "mean_absolute_error": lambda y, s, sample_weight=None: mean(abs(y - s), sample_weight),
    "mean_squared_error": lambda y, s, sample_weight=None: mean((y - s) ** 2, sample_weight),
    "root_mean_squared_error": lambda y, s, sample_weight=None: (
        mean((y - s) ** 2, sample_weight) ** 0.5
    ),
    "r2_score": lambda y, s, sample_weight=None: explained(y, (y - s) ** 2, sample_weight),
    "explained_variance_score": lambda y, s, sample_weight=None: explained(
        y, (y - s - mean(y - s, sample_weight)) ** 2, sample_weight
    ),
    "mean_squared_log_error": lambda y, s, sample_weight=None: mean(
        (np.log1p(y) - np.log1p(s)) ** 2, sample_weight
    ),
    "mean_absolute_percentage_error": lambda y, s, sample_weight=None: mean(
        abs(y - s) / abs(y), sample_weight
    ),
    "mean_poisson_deviance": lambda y, s, sample_weight=None: mean(
        2 * (y * np.log(y / s) - y + s), sample_weight
    ),
    "mean_gamma_deviance": lambda y, s, sample_weight=None: mean(
        2 * (np.log(s / y) + y / s - 1), sample_weight
    ),
    "median_absolute_error": lambda y, s: float(np.median(abs(y - s))),
}


def draw(rng: Random, design: str, n: int, shares: Sequence[float]) -> tuple[np.ndarray, ...]:
    """Target, score, group and family."""
    family, noise = np.arange(n) // 5, rng.normal(size=(2, n))
    a = rng.choice(len(shares), n, p=shares)
    if design == "families":
        a = a[family * 5]
        noise = 0.8 * rng.normal(size=(2, (n + 4) // 5))[:, family] + 0.6 * noise
    y, s = np.exp(1.0 + 0.4 * np.array([noise[0], 0.8 * noise[0] + 0.6 * noise[1]]))
    return y, s, a, family


def repeat(design: str, groups: int, first: int, number: int) -> dict[str, Any]:
    """Whether intervals of all values, of all gaps and ratios hold, by sample and metric."""
    y, s, *_ = draw(np.random.default_rng(0), "rows", 2_000_000, (1.0,))
    truth = {name: metric(y, s) for name, metric in METRICS.items()}
    held = np.zeros((number, len(METRICS), 3))
    for seed in range(number):
        y, s, a, family = draw(np.random.default_rng([1, first + seed]), design, *TABLES[groups])
        cluster = family if design == "families" else None
        rows = AuditedRows(Sample(resolve_groups(a, n_rows=len(a), cluster=cluster), s, y))
        for j, (name, metric) in enumerate(METRICS.items()):
            result = metric_by_group(rows, metric, "largest", 0.95, None)
            held[seed, j] = [
                all(low <= truth[name] <= high for low, high in result.intervals.values()),
                *(
                    all(number.low <= even <= number.high for number in kind.values())
                    for even, kind in ((0.0, result.gaps), (1.0, result.ratios))
                ),
            ]
    return {"held": held}


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Coverage of 95 % intervals of ten metrics, in rows and in families."""
    blocks = [(k * 100, setting.choose(100, 2)) for k in range(setting.choose(6, 1))]
    units = [(*design, *block) for design in DESIGNS for block in blocks]
    results = run_all(setting, repeat, units, "metrics")
    for design, groups in DESIGNS:
        held = [r["held"] for u, r in zip(units, results, strict=True) if u[:2] == (design, groups)]
        share = np.concatenate(held).mean(axis=0)
        for name, (values, gaps, ratios) in zip(METRICS, share.tolist(), strict=True):
            yield {
                "design": design, "groups": groups, "metric": name, "n": TABLES[groups][0],
                "replications": sum(map(len, held)), "values": values, "gaps": gaps,
                "ratios": ratios,
            }  # fmt: skip
