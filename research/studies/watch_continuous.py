"""A continuous attribute: error beside the oracle's, coverage, size of tests, bands.

    python research/run.py watch_continuous [--law "heavy tails"] [--rows 10000] [--repeats 400]

Four laws of (A, Y, S): normal; A moves the spread of S; heavy tails (t with 3 degrees of freedom);
a mixture of two normal laws. The oracle averages the true log density ratio over the same rows. Per
law, size and criterion: RMSE over the oracle's, coverage of 95 % intervals, how often copies of the
same rows in four bands came out more than two standard errors above, by how many nats at the most,
and the size of the test on samples for which the criterion holds. Writes
results/watch_continuous.csv, in which other laws and sizes stay as they were.
"""

from __future__ import annotations

import argparse
import csv
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
from scipy.stats import multivariate_normal, multivariate_t

import evenhand as eh
from common import RESULTS, write
from evenhand.data.criteria import INDEPENDENCE, SEPARATION, SUFFICIENCY
from evenhand.data.groups import resolve_groups
from evenhand.measures.exact_tests import exact_fairness_p_values
from evenhand.measures.measures import estimate_entropies, get_estimator, measure

# Order of columns: A, Y, S.
COVARIANCE = np.array([[1.0, 0.5, 0.75], [0.5, 1.25, 0.875], [0.75, 0.875, 1.8125]])
OTHER = np.array([[0.5, -0.2, -0.3], [-0.2, 0.8, 0.5], [-0.3, 0.5, 0.9]])
SHIFT = np.array([1.5, 1.0, 0.0])
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(80)


def spread(a):
    return 0.4 + 0.8 / (1.0 + np.exp(-2.0 * a))


class Normal:
    name = "normal"

    def draw(self, n, rng):
        return rng.multivariate_normal(np.zeros(3), COVARIANCE, n)

    def log_density(self, x, columns):
        return multivariate_normal(cov=COVARIANCE[np.ix_(columns, columns)]).logpdf(x[:, columns])


class Heavy(Normal):
    name = "heavy tails"

    def draw(self, n, rng):
        return super().draw(n, rng) / np.sqrt(rng.chisquare(3, n) / 3)[:, None]

    def log_density(self, x, columns):
        return multivariate_t(shape=COVARIANCE[np.ix_(columns, columns)], df=3).logpdf(
            x[:, columns]
        )


class Mixture(Normal):
    name = "mixture"

    def draw(self, n, rng):
        other = rng.multivariate_normal(SHIFT, OTHER, n)
        return np.where(rng.random(n)[:, None] < 0.35, other, super().draw(n, rng))

    def log_density(self, x, columns):
        first = np.exp(super().log_density(x, columns))
        law = multivariate_normal(SHIFT[columns], OTHER[np.ix_(columns, columns)])
        return np.log(0.65 * first + 0.35 * law.pdf(x[:, columns]))


class Spread(Normal):
    name = "spread"

    def draw(self, n, rng):
        a, e, z = rng.normal(size=(3, n))
        y = 0.4 * a + e
        return np.column_stack([a, y, 0.5 * y + spread(a) * z])

    def log_density(self, x, columns):
        def given(a, y, s):
            """log p(y, s | a) of what is asked for, up to a constant for each."""
            out = 0.0
            if 1 in columns:
                out = -0.5 * (y - 0.4 * a) ** 2
                if 2 in columns:
                    out = out - 0.5 * ((s - 0.5 * y) / spread(a)) ** 2 - np.log(spread(a))
            else:
                variance = 0.25 + spread(a) ** 2
                out = -0.5 * (s - 0.2 * a) ** 2 / variance - 0.5 * np.log(variance)
            return out

        a, y, s = x.T
        if 0 in columns:
            rest = given(a, y, s) if len(columns) > 1 else 0.0
            return rest - 0.5 * a * a - 0.5 * np.log(2 * np.pi)
        table = np.exp(given(NODES, y[:, None], s[:, None]))
        return np.log(table @ (NODE_WEIGHTS / NODE_WEIGHTS.sum()))


LAWS = {law.name: law for law in (Normal(), Spread(), Heavy(), Mixture())}
CRITERIA = (INDEPENDENCE, SEPARATION, SUFFICIENCY)
PLACES = {"y": 1, "s": 2}


def ratio(law, x, criterion):
    """log p(a | joint)/p(a | given) of each row."""

    def conditional(names):
        others = [PLACES[name] for name in names]
        return law.log_density(x, [0, *others]) - (law.log_density(x, others) if others else 0.0)

    return conditional(criterion.joint) - conditional(criterion.given)


def fair_copy(x, criterion, rng):
    """Columns that satisfy a criterion, with margins of the law's kind."""
    y, s = x[:, 1], x[:, 2]
    if criterion is INDEPENDENCE:
        return {"s": rng.permutation(s), "y": y}
    # What is left of the one besides the other, drawn anew: permuted among all rows.
    if criterion is SEPARATION:
        return {"s": 0.7 * y + rng.permutation(s - 0.7 * y), "y": y}
    return {"s": s, "y": 0.5 * s + rng.permutation(y - 0.5 * s)}


def one_repeat(name, n, truth, seed):
    """By criterion: error, the oracle's, whether the interval holds the truth, bands above."""
    law, estimator = LAWS[name], get_estimator("auto")
    x = law.draw(n, np.random.default_rng(seed))
    columns = {"s": x[:, 2], "y": x[:, 1]}
    found = estimate_entropies(
        CRITERIA, columns, resolve_groups(eh.Continuous(x[:, 0]), n_rows=n), estimator
    )
    cut = np.digitize(x[:, 0], np.quantile(x[:, 0], [0.25, 0.5, 0.75]))
    coarse = None
    if seed < 60:
        coarse = estimate_entropies(CRITERIA, columns, resolve_groups(cut, n_rows=n), estimator)
    out = []
    for c in CRITERIA:
        m = measure(c, found, 0.95, float("nan"), "auto")
        exact = -np.expm1(-2 * truth[c.name])
        above = [np.nan, np.nan]
        if coarse is not None:
            over = coarse.nats(c) - m.nats
            above = [over > 2 * m.stderr * found.slope(c), over]
        out.append([
            m.nats - truth[c.name], float(ratio(law, x, c).mean()) - truth[c.name],
            m.interval[0] <= exact <= m.interval[1], *above,
        ])  # fmt: skip
    return out


def one_test(name, n, seed):
    """p-values of the three criteria, each on a sample for which it holds."""
    rng = np.random.default_rng(10**4 + seed)
    x = LAWS[name].draw(n, rng)
    groups = resolve_groups(eh.Continuous(x[:, 0]), n_rows=n)
    return [
        exact_fairness_p_values([c], fair_copy(x, c, rng), groups)[c.name].p_value for c in CRITERIA
    ]


def collected(pool, function, count, path):
    """Results of seeds 0, 1, …; with a path those of earlier runs first, saved as they come."""
    done = list(np.load(path)) if path is not None and path.exists() else []
    for k, found in enumerate(pool.map(function, range(len(done), count)), 1):
        done.append(np.array(found, dtype=float))
        if path is not None and k % 10 == 0:
            np.save(path, np.array(done))
    if path is not None:
        np.save(path, np.array(done))
    return np.array(done[:count])


def one_law(name, n, repeats, tests, workers, folder):
    law = LAWS[name]
    whole = law.draw(1_000_000, np.random.default_rng(10**6))
    truth = {c.name: float(ratio(law, whole, c).mean()) for c in CRITERIA}
    paths = [folder and Path(folder) / f"{name}_{n}_{kind}.npy" for kind in ("repeats", "tests")]
    with ProcessPoolExecutor(workers) as pool:
        found = collected(pool, partial(one_repeat, name, n, truth), repeats, paths[0])
        p = collected(pool, partial(one_test, name, n), tests, paths[1])
    rows = []
    for k, c in enumerate(CRITERIA):
        error, oracle, inside, above, over = found[:, k].T
        rows.append({
            "law": name, "rows": n, "criterion": c.name, "repeats": repeats, "tests": tests,
            "nats": truth[c.name], "value": -np.expm1(-2 * truth[c.name]),
            "bias": error.mean(), "rmse": np.sqrt(np.mean(error**2)),
            "over_oracle": np.sqrt(np.mean(error**2) / np.mean(oracle**2)),
            "coverage": inside.mean(), "size": np.mean(p[:, k] < 0.05),
            "bands_above": np.nanmean(above), "bands_most": np.nanmax(over),
        })  # fmt: skip
    return rows


def kept(chosen):
    """Rows of the file that are not measured now."""
    path = RESULTS / "watch_continuous.csv"
    if not path.exists():
        return []
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for row in rows:
        row.pop("setting")
    return [row for row in rows if (row["law"], int(row["rows"])) not in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--law", choices=list(LAWS), nargs="+", default=list(LAWS))
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", help="Keep repeats here, and go on from those kept before.")
    options = parser.parse_args()
    for name in options.law:
        for n in options.rows:
            new = one_law(name, n, options.repeats, options.tests, options.workers, options.folder)
            for row in new:
                print({k: v if isinstance(v, str) else round(v, 4) for k, v in row.items()})
            rows = kept([(name, n)]) + new
            rows.sort(key=lambda r: (list(LAWS).index(r["law"]), int(r["rows"])))
            print(write("watch_continuous", rows), flush=True)


if __name__ == "__main__":
    main()
