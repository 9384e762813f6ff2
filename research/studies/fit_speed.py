"""One fair fit against Algorithm 1 as published: raw features, JAX autodiff, SciPy L-BFGS.

Same objective (LSPC, quadratic basis), same data, one run; compilation of the peer excluded and
shown apart. The peer starts at random, as its default, and is also started where ours starts.

    python research/run.py fit_speed
"""

from __future__ import annotations

import numpy as np

import evenhand as eh
from common import standardized, timed, write
from loaders import load_communities, load_law_school
from rivals import algorithm1_jax

ALPHA = 1e-3


def problems():
    data = load_communities()
    yield "communities", standardized(data.X), data.y, data.sensitive
    data = load_law_school()
    yield "law_school", standardized(data.X), data.y, data.sensitive


def main() -> None:
    rows = []
    for name, X, y, groups in problems():
        labels = np.unique(groups)
        membership = (groups[:, None] == labels).astype(float)
        for criterion in ("separation", "independence", "sufficiency"):
            for weight in (0.3, 1.0, 3.0):
                ours = {}
                for classifier in ("lspc", "logistic"):
                    model = eh.FairRidge(criterion, weight, ALPHA, classifier=classifier)
                    model.fit(X, y, sensitive_features=groups)  # compile first
                    ours[classifier] = timed(
                        lambda model=model: model.fit(X, y, sensitive_features=groups), 7
                    )
                peer = algorithm1_jax.fit(
                    X, y, membership, criterion=criterion, basis="quadratic",
                    fairness_weight=weight, alpha=ALPHA,
                )  # fmt: skip
                for classifier, (seconds, spread, model) in ours.items():
                    rows.append(
                        {
                            "data": name,
                            "n": len(y),
                            "d": X.shape[1],
                            "criterion": criterion,
                            "fairness_weight": weight,
                            "classifier": classifier,
                            "seconds": seconds,
                            "spread": spread,
                            "evaluations": model.n_evaluations_,
                            "objective": model.objective_,
                            "peer_seconds": peer.fit_time,
                            "peer_compile_seconds": peer.compile_time,
                            "peer_evaluations": peer.evaluations,
                            "peer_objective": peer.objective if classifier == "lspc" else "",
                            "ratio": peer.fit_time / seconds,
                        }
                    )
                    print({k: rows[-1][k] for k in list(rows[-1])[3:]})
    print(write("fit_speed", rows, ["jax", "scipy"]))


if __name__ == "__main__":
    main()
