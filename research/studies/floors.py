"""How fair does a model get at any strength, and what is left of R² on the way there?

Linear models against splines of the score (the default) and against its quadratic, at weights from
0 to 1,000, on three folds of at most 2,000 rows of each data set of the atlas. Unfairness of the
held-out scores is by `auto`. One row for each data set, criterion and basis: the least unfairness
at any weight, and R² where the curve meets a bound; blank where it does not get there.

The term's own floor is what training leaves: the least value of the term at any weight, and what
`auto` sees in the same training rows there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import evenhand as eh
import studies.atlas_methods as am
from common import ALPHA, SEED, Setting, r_squared, run_all
from studies.atlas import CRITERIA, split, standardized
from studies.small_samples import curve_at

BASES = ("spline", "quadratic")
BOUNDS = (0.05, 0.02, 0.01, 0.005)
WEIGHTS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
N_FOLDS = 3


def sweep(dataset: str, quick: bool, criterion: str, basis: str) -> dict[str, Any]:
    """Unfairness and R², held out, by weight; the term and `auto` in training."""
    data = am.load_atlas(dataset, quick)
    X, y, a, measure = data.X[am.BLIND], data.y, data.a, getattr(eh, criterion)
    began = time.process_time()

    def fitter(rows: Any) -> Any:
        model = eh.FairRidge(criterion, alpha=ALPHA, basis=basis)
        return model.path_fitter(rows[0], y[rows[1]], sensitive_features=a[rows[1]])

    s = np.empty((len(WEIGHTS), len(y)))
    for train, test in split(len(y), a, N_FOLDS, SEED):
        X_train, X_test = standardized(X, train, test)
        fit = fitter((X_train, train))
        for j, weight in enumerate(WEIGHTS):
            s[j, test] = fit(weight).predict(X_test)
    every = np.arange(len(y))
    Z, _ = standardized(X, every, every)
    fit = fitter((Z, every))
    models = [fit(weight) for weight in WEIGHTS[1:]]
    fairest = min(models, key=lambda m: m.unfairness_)
    return {
        "u": np.array([measure(y, row, sensitive_features=a) for row in s]),
        "r2": np.array([r_squared(row, y) for row in s]),
        "term": fairest.unfairness_,
        "term_r2": r_squared(fairest.predict(Z), y),
        "audit": measure(y, fairest.predict(Z), sensitive_features=a),
        "seconds": time.process_time() - began,
    }


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    for dataset in setting.only or setting.choose(am.DATASETS, ("communities",)):
        units = [(dataset, setting.quick, c, b) for c in CRITERIA for b in BASES]
        results = run_all(setting, sweep, units, dataset)
        for (_, _, criterion, basis), result in zip(units, results, strict=True):
            u, r2 = result["u"], result["r2"]
            at = {f"r2_at_{bound}": curve_at(u, r2, bound) for bound in BOUNDS}
            yield {
                "dataset": dataset, "rows": len(am.load_atlas(dataset, setting.quick).y),
                "criterion": criterion, "basis": basis, "unfairness": float(u[0]),
                "r2": float(r2[0]), "least": float(u.min()), "least_r2": float(r2[u.argmin()]),
                **{name: value if np.isfinite(value) else "" for name, value in at.items()},
                "term": float(result["term"]), "term_r2": float(result["term_r2"]),
                "audit": float(result["audit"]), "seconds": float(result["seconds"]),
            }  # fmt: skip
