"""Training against the age of Belgian policyholders, and maximal correlation beside ours.

    python research/run.py watch_continuous_belgian

Poisson models of claims, with age among the features, trained against it on 20,000 policies and
measured on 20,000 others: D², the information of their prices about age, and its share of that of
the plain model; `features` says whether age was left out instead, or whether the model also has the
probabilities of bands of age given the other features (`group_features="posterior"`). Writes
results/watch_continuous_training.csv.

Then squared maximal correlations by PyPI `maxcorr` at several settings beside our value and its
interval, on 2,000 rows each of: independent columns, normal and Cauchy; the laws of
`watch_continuous.py`; prices of the models above. Means of five samples, and of the policies one.
Writes results/watch_continuous_peers.csv.
"""

from __future__ import annotations

import time

import numpy as np
from maxcorr import hgr
from sklearn.metrics import d2_tweedie_score

import evenhand as eh
from common import write
from loaders import load_belgian_motor
from studies.watch_continuous import LAWS

SETTINGS = {
    "kernels of degree 3 (default)": {"algorithm": "dk"},
    "kernels of degree 7": {"algorithm": "dk", "kernel_a": 7, "kernel_b": 7},
    "one kernel of degree 5": {"algorithm": "sk", "kernel": 5},
    "density": {"algorithm": "kde"},
    "random projections": {"algorithm": "rdc", "repetitions": 5},
}
WEIGHTS = (0.0, 0.01, 0.03, 0.05, 0.056, 0.075, 0.1, 0.3)


def training(rows_each=20_000):
    """Rows of the first table, and (age, price) of the policies for some of the models."""
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
        found = eh.audit(None, price, sensitive_features=eh.Continuous(age[test], "age"))
        m = found.independence
        d2 = d2_tweedie_score(data.y[test], price, sample_weight=data.exposure[test], power=1)
        plain = out[0] if out else {"nats": m.nats, "d2": d2}
        out.append({
            "features": features, "fairness_weight": weight, "rows": rows_each, "d2": d2,
            "nats": m.nats, "value": m.value, "stderr": m.stderr,
            "share_of_plain": m.nats / plain["nats"], "d2_of_plain": d2 / plain["d2"],
        })  # fmt: skip
        print(out[-1], flush=True)
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


def peers(scores):
    out = []
    for name, pairs in samples(scores):
        measures = []
        began = time.process_time()
        for a, s in pairs:
            measures.append(eh.audit(None, s, sensitive_features=eh.Continuous(a)).independence)
        out.append({
            "data": name, "by": "evenhand", "value": np.mean([m.shown for m in measures]),
            "low": np.mean([m.interval[0] for m in measures]),
            "high": np.mean([m.interval[1] for m in measures]),
            "cpu_seconds": (time.process_time() - began) / len(pairs),
        })  # fmt: skip
        for words, setting in SETTINGS.items():
            np.random.seed(0)  # noqa: NPY002 (its projections are drawn from NumPy's global state)
            began = time.process_time()
            found = [float(hgr(**setting).compute(a, s)) ** 2 for a, s in pairs]
            out.append({
                "data": name, "by": words, "value": np.mean(found), "low": np.nan, "high": np.nan,
                "cpu_seconds": (time.process_time() - began) / len(pairs),
            })  # fmt: skip
        for row in out[-len(SETTINGS) - 1 :]:
            print(row, flush=True)
    return out


def main() -> None:
    rows, scores = training()
    print(write("watch_continuous_training", rows))
    print(write("watch_continuous_peers", peers(scores), packages=["maxcorr"]))


if __name__ == "__main__":
    main()
