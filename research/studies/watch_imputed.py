"""Imputed membership: do the bounds hold the truth, and is the estimate right where it should be?

    python research/run.py watch_imputed [--repeats 500]

Laws in which surname and place give probabilities, and the score goes with the group directly by
nothing, or by more or less than with them. Per law, over repeats: how often the bounds of the gap
and the least independence hold the truth, and bias and coverage of the estimate under the
assumption. Writes results/watch_imputed.csv.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import evenhand as eh
from common import write
from evenhand.auditing.imputed import imputation
from evenhand.data.groups import resolve_groups

LAWS = [
    {"direct": direct, "K": K, "sharpness": sharpness}
    for K in (2, 4)
    for sharpness in (0.7, 2.0)
    for direct in (0.0, 0.5, -0.5)
]


def draw(n: int, rng: np.random.Generator, direct: float, K: int, sharpness: float):
    """Probabilities are those of a surname and of a place, taken together as Bayes says."""
    surname, place = rng.normal(size=(2, n, K))
    z = sharpness * (surname + place) / np.sqrt(2.0) + np.eye(K)[0]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    a = (rng.random(n)[:, None] > np.cumsum(p, axis=1)).sum(axis=1)
    s = 0.5 * place[:, 1] + direct * (a == 1) + rng.normal(size=n)
    return s, p, a


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=500)
    parser.add_argument("--rows", type=int, default=2000)
    options = parser.parse_args()
    rows = []
    for law in LAWS:
        s, _, a = draw(10**6, np.random.default_rng(10**6), **law)
        gap = s[a == 1].mean() - s[a == 0].mean()
        exact = eh.independence(None, s, sensitive_features=a)
        each = options.repeats // len(LAWS) + 1
        held, least, inside, values = 0, 0, 0, []
        for seed in range(each):
            s, p, _ = draw(options.rows, np.random.default_rng(seed), **law)
            proxy = eh.Proxy(p, [f"g{k}" for k in range(law["K"])])
            groups = resolve_groups(proxy, n_rows=len(s))
            result = imputation(s, groups, 0.95)
            assert result is not None
            found = result["g1"]
            held += found.bounds[0] <= gap <= found.bounds[1]
            least += result.least_independence <= exact
            inside += found.interval[0] <= gap <= found.interval[1]
            values.append(found.value)
        error = np.std(values, ddof=1)
        rows.append(
            {
                **law, "rows": options.rows, "repeats": each, "gap": gap,
                "bounds_hold": held / each,
                "least_holds": least / each, "bias": np.mean(values) - gap,
                "bias_in_errors": (np.mean(values) - gap) / error, "coverage": inside / each,
                "width": found.bounds[1] - found.bounds[0], "certainty": result.certainty,
            }
        )  # fmt: skip
        print({k: round(float(v), 3) for k, v in rows[-1].items()}, flush=True)
    print(write("watch_imputed", rows))


if __name__ == "__main__":
    main()
