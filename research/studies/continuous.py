"""A continuous attribute: error beside the oracle's, coverage, size of tests, training, peers.

`simulated`: four distributions of (A, Y, S): normal; A moves the spread of S; heavy tails (t with 3
degrees of freedom); a mixture of two normals. The oracle averages the true log density ratio over
the same rows. Per distribution, size and criterion: RMSE over the oracle's, coverage of 95 %
intervals, how often copies of the same rows in four bands came out more than two standard errors
above, by how many nats at the most, and the size of the test on samples for which the criterion
holds.

`training`: Poisson models of claims of Belgian policyholders, with age among the features, trained
against it on 20,000 policies and measured on 20,000 others: D², the information of their prices
about age, and its share of that of the plain model; `features` says whether age was left out
instead, or whether the model also has the probabilities of bands of age given the other features
(`group_features="posterior"`).

`peers`: squared maximal correlations by PyPI `maxcorr` at several settings beside our value and its
interval, on 2,000 rows each of: independent columns, normal and Cauchy; the distributions above;
prices of two of the models. Means of five samples, and of the policies one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.metrics import d2_tweedie_score

import evenhand as eh
from common import CRITERIA as BY_NAME
from common import Setting, run_all
from evenhand.data.criteria import INDEPENDENCE, SEPARATION
from evenhand.data.groups import resolve_groups
from evenhand.measures.entropies import estimate_entropies, get_estimator
from evenhand.measures.exact_tests import exact_fairness_p_values
from evenhand.measures.measures import measure
from loaders import load_belgian_motor

Row = dict[str, Any]
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
CRITERIA = tuple(BY_NAME.values())
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
    result = estimate_entropies(
        CRITERIA, columns, resolve_groups(eh.Continuous(x[:, 0]), n_rows=n), estimator
    )
    cut = np.digitize(x[:, 0], np.quantile(x[:, 0], [0.25, 0.5, 0.75]))
    coarse = None
    if seed < 60:
        coarse = estimate_entropies(CRITERIA, columns, resolve_groups(cut, n_rows=n), estimator)
    out = []
    for c in CRITERIA:
        m = measure(c, result, 0.95, float("nan"), "auto")
        exact = -np.expm1(-2 * truth[c.name])
        above = [np.nan, np.nan]
        if coarse is not None:
            over = coarse.nats(c) - m.nats
            above = [over > 2 * m.stderr * result.slope(c), over]
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


def repeat_case(name: str, n: int, repeats: int, tests: int) -> dict[str, Any]:
    """Truth, (repeats, criteria, 5) results of `one_repeat` and (tests, criteria) p-values."""
    law = LAWS[name]
    whole = law.draw(1_000_000, np.random.default_rng(10**6))
    truth = {c.name: float(ratio(law, whole, c).mean()) for c in CRITERIA}
    return {
        "truth": [truth[c.name] for c in CRITERIA],
        "estimates": np.array([one_repeat(name, n, truth, seed) for seed in range(repeats)], float),
        "p": np.array([one_test(name, n, seed) for seed in range(tests)]),
    }  # fmt: skip


def simulated(setting: Setting) -> Iterator[Row]:
    repeats, tests = setting.choose((400, 1000), (2, 4))
    sizes = setting.choose((2_000, 10_000), (1_000,))
    units = [(name, n, repeats, tests) for name in LAWS if setting.wants(name) for n in sizes]
    results = run_all(setting, repeat_case, units, "continuous attributes")
    for (name, n, *_), result in zip(units, results, strict=True):
        for k, c in enumerate(CRITERIA):
            error, oracle, inside, above, over = result["estimates"][:, k].T
            nats = float(result["truth"][k])
            yield {
                "law": name, "rows": n, "criterion": c.name, "repeats": repeats, "tests": tests,
                "nats": nats, "value": -np.expm1(-2 * nats),
                "bias": error.mean(), "rmse": np.sqrt(np.mean(error**2)),
                "over_oracle": np.sqrt(np.mean(error**2) / np.mean(oracle**2)),
                "coverage": inside.mean(), "size": np.mean(result["p"][:, k] < 0.05),
                "bands_above": np.nanmean(above), "bands_most": np.nanmax(over),
            }  # fmt: skip


# Belgian policyholders ----------------------------------------------------------------------------

SETTINGS = {
    "kernels of degree 3 (default)": {"algorithm": "dk"},
    "kernels of degree 7": {"algorithm": "dk", "kernel_a": 7, "kernel_b": 7},
    "one kernel of degree 5": {"algorithm": "sk", "kernel": 5},
    "density": {"algorithm": "kde"},
    "random projections": {"algorithm": "rdc", "repetitions": 5},
}
WEIGHTS = (0.0, 0.01, 0.03, 0.05, 0.056, 0.075, 0.1, 0.3)


def train_against_age(rows_each: int) -> tuple[list[Row], dict[str, tuple[Any, Any]]]:
    """Rows of the table, and (age, price) of the policies for two of the models."""
    data = load_belgian_motor()
    order = np.random.default_rng(0).permutation(len(data.y))
    train, test = order[:rows_each], order[rows_each : 2 * rows_each]
    X = np.asarray(data.X, dtype=float)
    place = list(data.feature_names).index("ageph")
    age = X[:, place]
    runs = [("all", w) for w in WEIGHTS] + [("with posteriors", w) for w in WEIGHTS[1:]]
    out, scores = [], {}
    for features, weight in [*runs, ("without age", 0.0)]:
        columns = np.delete(X, place, axis=1) if features == "without age" else X
        model = eh.FairGLM(
            "poisson", "independence", fairness_weight=weight,
            group_features="posterior" if features == "with posteriors" else None,
        ).fit(
            columns[train], data.y[train] * data.exposure[train], exposure=data.exposure[train],
            sensitive_features=eh.Continuous(age[train], "age"),
        )  # fmt: skip
        price = model.predict(columns[test])
        result = eh.audit(None, price, sensitive_features=eh.Continuous(age[test], "age"))
        m = result.independence
        d2 = d2_tweedie_score(data.y[test], price, sample_weight=data.exposure[test], power=1)
        plain = out[0] if out else {"nats": m.nats, "d2": d2}
        out.append({
            "features": features, "fairness_weight": weight, "rows": rows_each, "d2": d2,
            "nats": m.nats, "value": m.value, "stderr": m.stderr,
            "share_of_plain": m.nats / plain["nats"], "d2_of_plain": d2 / plain["d2"],
        })  # fmt: skip
        if (features, weight) in (("all", 0.0), ("all", 0.3)):
            scores[f"policies, weight {weight:g}"] = (age[test], price)
    return out, scores


def samples(scores, n=2_000, repeats=5):
    """(name, [(attribute, score), …])."""
    rngs = [np.random.default_rng(seed) for seed in range(repeats)]
    yield "independent", [tuple(rng.normal(size=(2, n))) for rng in rngs]
    yield "independent, Cauchy", [tuple(rng.standard_cauchy(size=(2, n))) for rng in rngs]
    for name, law in LAWS.items():
        yield name, [(x[:, 0], x[:, 2]) for x in (law.draw(n, rng) for rng in rngs)]
    for name, (age, price) in scores.items():
        yield name, [(age[:n], price[:n])]


def compare_peers(scores: dict[str, tuple[Any, Any]]) -> Iterator[Row]:
    from maxcorr import hgr

    for name, pairs in samples(scores):
        measures = []
        began = time.process_time()
        for a, s in pairs:
            measures.append(eh.audit(None, s, sensitive_features=eh.Continuous(a)).independence)
        yield {
            "data": name, "by": "evenhand", "value": np.mean([m.shown for m in measures]),
            "low": np.mean([m.interval[0] for m in measures]),
            "high": np.mean([m.interval[1] for m in measures]),
            "cpu_seconds": (time.process_time() - began) / len(pairs),
        }  # fmt: skip
        for words, setting in SETTINGS.items():
            np.random.seed(0)  # noqa: NPY002 (its projections are drawn from NumPy's global state)
            began = time.process_time()
            result = [float(hgr(**setting).compute(a, s)) ** 2 for a, s in pairs]
            yield {
                "data": name, "by": words, "value": np.mean(result), "low": np.nan, "high": np.nan,
                "cpu_seconds": (time.process_time() - began) / len(pairs),
            }  # fmt: skip


def training(setting: Setting) -> Iterator[Row]:
    yield from train_against_age(setting.choose(20_000, 1_000))[0]


def peers(setting: Setting) -> Iterator[Row]:
    yield from compare_peers(train_against_age(setting.choose(20_000, 1_000))[1])
