"""Estimates of information where the truth is known: their error, and how often intervals hold it.

`accuracy` compares root mean squared errors over random scenarios of each family with those of the
oracle that knows the densities, on the same samples. `fresh` does so for `auto` on scenarios drawn
after the estimator was built. `intervals` counts how often 95 % intervals cover the truth, and
`clusters` how often they do where rows come in clusters.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import evenhand as eh
from common import CRITERIA, Setting, covers, estimate, run_all
from distributions import FAMILIES, bivariate_normal_scenario, random_scenario
from evenhand.data.groups import resolve_groups
from evenhand.measures.entropies import estimate_entropies, get_estimator

Row = dict[str, Any]
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "auto": lambda: get_estimator("auto"),
    "logistic": eh.Logistic,
    "lspc": eh.LSPC,
    "lspc linear": lambda: eh.LSPC(basis="linear"),
    "knn": eh.KNN,
    "fourier": lambda: eh.Fourier(random_state=0),
}
SEEN, FRESH = 2020, 2021
# Scenarios of an estimator that takes up to half a minute of CPU time for four groups.
FEWER = {("fourier", 2000): 25, ("fourier", 10_000): 25}


# Errors over random scenarios ---------------------------------------------------------------------


def family_errors(
    family: str, n: int, count: int, names: tuple[str, ...], base: int
) -> dict[str, Any]:
    """Errors (names + oracle, scenarios, criteria) in one family, and median seconds a call."""
    errors = np.full((len(names) + 1, count, len(CRITERIA)), np.nan)
    seconds = np.full((len(names), count), np.nan)
    with warnings.catch_warnings():
        # Groups of a single row at n = 500 deserve their warning, but not here.
        warnings.simplefilter("ignore")
        for number in range(count):
            seed = [list(FAMILIES).index(family), number]
            scenario = random_scenario(family, np.random.default_rng([base, *seed]))
            y, s, a = scenario.sample(n, np.random.default_rng([base + 1, n, *seed]))
            truth = [scenario.truth.value(c) for c in CRITERIA]
            groups = resolve_groups(a, n_rows=n)
            for j, made in enumerate((*(ESTIMATORS[name] for name in names), scenario.oracle)):
                if j < len(names) and number >= FEWER.get((names[j], n), count):
                    continue
                if number == 0 and j < len(names):
                    # The first call compiles its kernels; that is not what a call takes.
                    estimate_entropies(CRITERIA.values(), {"s": s, "y": y}, groups, made())
                began = time.perf_counter()
                result = estimate_entropies(CRITERIA.values(), {"s": s, "y": y}, groups, made())
                if j < len(names):
                    seconds[j, number] = time.perf_counter() - began
                values = [result.normalized(c) for c in CRITERIA.values()]
                errors[j, number] = np.array(values) - truth
    return {"errors": errors, "seconds": np.nanmedian(seconds, axis=1)}


def accuracy(setting: Setting) -> Iterator[Row]:
    """Errors of all estimators."""
    names = tuple(ESTIMATORS)[: setting.choose(None, 3)]
    return compare_with_oracle(setting, names, setting.choose((500, 2000, 10_000), (500,)), SEEN)


def fresh(setting: Setting) -> Iterator[Row]:
    """Errors of `auto` on scenarios that were not looked at while it was built."""
    sizes = setting.choose((500, 2000, 10_000), (500,))
    return compare_with_oracle(setting, ("auto",), sizes, FRESH)


def compare_with_oracle(
    setting: Setting, names: tuple[str, ...], sizes: tuple[int, ...], base: int
) -> Iterator[Row]:
    families = list(FAMILIES)[: setting.choose(None, 2)]
    count = setting.choose(100, 3)
    units = [(family, n, count, names, base) for n in sizes for family in families]
    results = run_all(setting, family_errors, units, "families")
    for (family, n, *_), result in zip(units, results, strict=True):
        for j, name in enumerate(names):
            yield from summarize_errors(family, n, name, result, j, names.index("auto"))


def summarize_errors(
    family: str, n: int, name: str, result: Row, j: int, auto: int
) -> Iterator[Row]:
    """One row for each criterion.

    `behind_auto` is the ratio less that of `auto`, and `behind_error` its standard error over draws
    of the scenarios.
    """
    errors = result["errors"]
    # All on the scenarios that this one has seen.
    errors = errors[:, np.isfinite(errors[j]).all(axis=1)]
    squares = np.square(errors)
    rmse, ours, oracle = (np.sqrt(squares[k].mean(axis=0)) for k in (j, auto, -1))
    count = squares.shape[1]
    draws = np.random.default_rng(0).integers(count, size=(1000, count))
    drawn = [squares[k][draws].mean(axis=1) for k in (j, auto, -1)]
    spread = (np.sqrt(drawn[0] / drawn[2]) - np.sqrt(drawn[1] / drawn[2])).std(axis=0)
    for k, criterion in enumerate(CRITERIA):
        yield {
            "family": family, "n": n, "estimator": name, "criterion": criterion,
            "rmse": float(rmse[k]), "oracle_rmse": float(oracle[k]),
            "ratio": float(rmse[k] / oracle[k]),
            "behind_auto": float((rmse[k] - ours[k]) / oracle[k]), "behind_error": float(spread[k]),
            "bias": float(errors[j, :, k].mean()), "seconds": float(result["seconds"][j]),
            "scenarios": count,
        }  # fmt: skip


# Coverage -----------------------------------------------------------------------------------------

CASES = [
    ("logistic", "bivariate_normal", 500, 1),
    ("logistic", "bivariate_normal", 2000, 1),
    ("auto", "bivariate_normal", 500, 1),
    ("auto", "bivariate_normal", 2000, 1),
    ("auto", "gamma", 2000, 2),
    ("auto", "zero_inflated", 2000, 3),
    ("auto", "student_t", 2000, 4),
    ("auto", "four_groups", 2000, 5),
    ("auto", "bimodal", 2000, 6),
    ("auto", "rounded", 2000, 7),
]


def family_estimates(
    estimator: str, family: str, n: int, scenario_seed: int, replications: int
) -> dict[str, Any]:
    """(replications, criteria, 4) estimates of one scenario, and the truth."""
    scenario = random_scenario(family, scenario_seed)
    result = [estimate(*scenario.sample(n, 1000 + r), estimator) for r in range(replications)]
    return {"estimates": np.array(result), "truth": [scenario.truth.value(c) for c in CRITERIA]}


def intervals(setting: Setting) -> Iterator[Row]:
    """How often intervals cover the truth, where that is above 0.02."""
    units = [(*case, setting.choose(1000, 4)) for case in CASES[: setting.choose(None, 2)]]
    results = run_all(setting, family_estimates, units, "intervals")
    for (estimator, family, n, seed, _), result in zip(units, results, strict=True):
        case = {"estimator": estimator, "family": family, "n": n, "scenario": seed}
        for row in summarize_coverage(result):
            if row["truth"] > 0.02:
                yield {**case, **row}


def summarize_coverage(result: Row) -> Iterator[Row]:
    """One row for each criterion of what `family_estimates` returns."""
    for k, name in enumerate(CRITERIA):
        results, truth = result["estimates"][:, k], float(result["truth"][k])
        yield {
            "criterion": name, "truth": truth, "coverage": float(covers(results, truth).mean()),
            "bias": float(results[:, 0].mean() - truth), "spread": float(results[:, 0].std(ddof=1)),
            "mean_stderr": float(results[:, 1].mean()), "replications": len(results),
        }  # fmt: skip


# Clusters, in which each row's own distribution is normal given its group ------------------------

SHARE, SHIFT, SLOPE, GAP, NOISE = 0.4, 0.5, 0.6, 0.6, 0.8
KINDS = ("places", "schools")


def sample_clusters(kind: str, n_clusters: int, seed: int) -> tuple[np.ndarray, ...]:
    """Target, score, group and cluster of the rows of clusters of 1 to 30 rows.

    Clusters share half of the variance of the target and of the noise of the score. In "places" a
    whole cluster is of one group, as a ZIP code is; in "schools" each holds both.
    """
    rng = np.random.default_rng([seed, n_clusters, KINDS.index(kind)])
    cluster = np.repeat(np.arange(n_clusters), rng.integers(1, 31, n_clusters))
    n = len(cluster)
    a = (rng.random(n_clusters) < SHARE)[cluster] if kind == "places" else rng.random(n) < SHARE
    shared = rng.standard_normal((2, n_clusters))[:, cluster]
    y_noise, s_noise = np.sqrt(0.5) * (shared + rng.standard_normal((2, n)))
    y = SHIFT * a + y_noise
    return y, SLOPE * y + GAP * a + NOISE * s_noise, a.astype(int), cluster


def cluster_estimates(kind: str, n_clusters: int, aware: bool, replications: int) -> dict[str, Any]:
    """(replications, criteria, 4) estimates by `logistic`, and the truth."""
    cov = [[1.0, SLOPE], [SLOPE, SLOPE**2 + NOISE**2]]
    means = [[0.0, 0.0], [SHIFT, SLOPE * SHIFT + GAP]]
    truth = bivariate_normal_scenario(SHARE, means, [cov, cov]).truth
    result = []
    for r in range(replications):
        y, s, a, cluster = sample_clusters(kind, n_clusters, 1000 + r)
        result.append(estimate(y, s, a, "logistic", cluster if aware else None))
    return {"estimates": np.array(result), "truth": [truth.value(c) for c in CRITERIA]}


def clusters(setting: Setting) -> Iterator[Row]:
    """How often intervals cover where rows come in clusters, with `cluster=` and without."""
    units = [
        (kind, n_clusters, aware, setting.choose(1000, 4))
        for kind in KINDS
        for n_clusters in setting.choose((50, 500), (50,))
        for aware in (True, False)
    ]
    results = run_all(setting, cluster_estimates, units, "clusters")
    for (kind, n_clusters, aware, _), result in zip(units, results, strict=True):
        case = {"estimator": "logistic", "kind": kind, "clusters": n_clusters}
        for row in summarize_coverage(result):
            yield {**case, "cluster_given": aware, **row}
