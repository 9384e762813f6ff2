"""A continuous attribute: error beside the oracle's, coverage, size of tests, bands, training.

    python benchmarks/watch_continuous.py [--repeats 60]

Four laws of (A, Y, S): normal; A moves the spread of S; heavy tails (t with 3 degrees of freedom);
a mixture of two normal laws. The oracle averages the true log density ratio over the same rows. Per
law, size and criterion: RMSE over the oracle's, coverage of 95 % intervals, how often a banded copy
of the same rows came out more than two standard errors above, and the size of the test where the
criterion holds. `maximal` is the squared maximal correlation of PyPI `maxcorr` where that is
installed. With --training models of Belgian motor claims are trained against the age of
policyholders instead. Writes results/watch_continuous.csv or results/watch_continuous_training.csv.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
from common import write
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.metrics import d2_tweedie_score

import evenhand as eh
from evenhand.groups.sensitive import resolve_groups
from evenhand.information.criteria import INDEPENDENCE, SEPARATION
from evenhand.information.entropies import estimate_entropies, get_estimator
from evenhand.information.measures import measure
from evenhand.information.significance import exact_fairness_p_values

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


def ratio(law, x, criterion):
    """log p(a | s, given)/p(a | given) of each row."""

    def conditional(others):
        return law.log_density(x, [0, *others]) - (law.log_density(x, others) if others else 0.0)

    return (
        conditional([2]) - conditional([])
        if criterion is INDEPENDENCE
        else conditional([1, 2]) - conditional([1])
    )


def fair_copy(law, x, criterion, rng):
    """Scores that satisfy a criterion, with margins of the law's kind."""
    if criterion is INDEPENDENCE:
        return rng.permutation(x[:, 2])
    # What is left of the score besides the target, drawn anew: permuted among all rows.
    rest = x[:, 2] - 0.7 * x[:, 1]
    return 0.7 * x[:, 1] + rng.permutation(rest)


def maximal(a, s):
    try:
        from maxcorr import hgr
    except ImportError:
        return float("nan")
    return float(hgr(algorithm="kde").compute(a, s)) ** 2


def one_law(law, n, repeats, tests):
    criteria = [INDEPENDENCE, SEPARATION]
    whole = law.draw(400_000, np.random.default_rng(10**6))
    truth = {c: float(ratio(law, whole, c).mean()) for c in criteria}
    estimator = get_estimator("auto")
    errors = {c: [] for c in criteria}
    oracle, inside, below, size = ({c: [] for c in criteria} for _ in range(4))
    peers = []
    for seed in range(repeats):
        x = law.draw(n, np.random.default_rng(seed))
        columns = {"s": x[:, 2], "y": x[:, 1]}
        groups = resolve_groups(eh.Continuous(x[:, 0]), n_rows=n)
        found = estimate_entropies(criteria, columns, groups, estimator)
        if seed < 15:
            cut = np.digitize(x[:, 0], np.quantile(x[:, 0], [0.25, 0.5, 0.75]))
            banded = resolve_groups(cut, n_rows=n)
            coarse = estimate_entropies(criteria, columns, banded, estimator)
        if seed < 3:
            peers.append(maximal(x[:2000, 0], x[:2000, 2]))
        for c in criteria:
            m = measure(c, found, 0.95, float("nan"), "auto")
            errors[c].append(m.nats - truth[c])
            oracle[c].append(float(ratio(law, x, c).mean()) - truth[c])
            exact = -np.expm1(-2 * truth[c])
            inside[c].append(m.interval[0] <= exact <= m.interval[1])
            if seed < 15:
                error = m.stderr * 0.5 * np.exp(2 * m.nats)
                below[c].append(coarse.nats(c) > m.nats + 2 * error)
    for seed in range(tests):
        rng = np.random.default_rng(10**4 + seed)
        x = law.draw(n, rng)
        groups = resolve_groups(eh.Continuous(x[:, 0]), n_rows=n)
        for c in criteria:
            columns = {"s": fair_copy(law, x, c, rng), "y": x[:, 1]}
            size[c].append(exact_fairness_p_values([c], columns, groups)[c.name].p_value < 0.05)
    return [
        {
            "law": law.name, "rows": n, "criterion": c.name, "repeats": repeats, "tests": tests,
            "nats": truth[c], "value": -np.expm1(-2 * truth[c]),
            "bias": np.mean(errors[c]), "rmse": np.sqrt(np.mean(np.square(errors[c]))),
            "over_oracle": np.sqrt(np.mean(np.square(errors[c])) / np.mean(np.square(oracle[c]))),
            "coverage": np.mean(inside[c]), "size": np.mean(size[c]),
            "bands_above": np.mean(below[c]),
            "maximal": np.mean(peers) if c is INDEPENDENCE else float("nan"),
        }
        for c in criteria
    ]  # fmt: skip


def belgian(rows_each: int = 20_000):
    """Poisson models of claims trained against the age of the policyholder, measured held out."""
    data = eh.datasets.load_belgian_motor()
    order = np.random.default_rng(0).permutation(len(data.y))
    train, test = order[:rows_each], order[rows_each : 2 * rows_each]
    X = np.asarray(data.X, dtype=float)
    age = X[:, list(data.feature_names).index("ageph")]
    out = []
    for weight in (0.0, 0.003, 0.01, 0.03, 0.1, 0.3):
        model = eh.FairGLM("poisson", "independence", fairness_weight=weight).fit(
            X[train], data.y[train] * data.exposure[train], exposure=data.exposure[train],
            sensitive_features=eh.Continuous(age[train], "age"),
        )  # fmt: skip
        audit = eh.audit(
            None, model.predict(X[test]), sensitive_features=eh.Continuous(age[test], "age")
        )
        d2 = d2_tweedie_score(
            data.y[test], model.predict(X[test]), sample_weight=data.exposure[test], power=1
        )
        out.append(
            {"fairness_weight": weight, "rows": rows_each, "d2": d2,
             "nats": audit.independence.nats, "value": audit.independence.value,
             "stderr": audit.independence.stderr,
             "share_of_plain": audit.independence.nats / out[0]["nats"] if out else 1.0}
        )  # fmt: skip
        print(out[-1], flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--tests", type=int, default=400)
    parser.add_argument("--training", action="store_true")
    options = parser.parse_args()
    if options.training:
        print(write("watch_continuous_training", belgian()))
        return
    rows = []
    for law in (Normal(), Spread(), Heavy(), Mixture()):
        for n in (2_000, 10_000):
            fewer = 1 if n < 5_000 else 2
            rows += one_law(law, n, options.repeats // fewer, options.tests)
            for row in rows[-2:]:
                print(
                    {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()},
                    flush=True,
                )
    print(write("watch_continuous", rows))


if __name__ == "__main__":
    main()
