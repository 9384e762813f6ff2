"""Measures of regression fairness: evenhand's against dalex and infomeasure, same rows, one run.

- dalex's `GroupFairnessRegression` estimates ratios of probabilities for the same three criteria
  from logistic regressions; `fairness_check` prints them. No intervals, no tests.
- infomeasure's Kraskov estimate (`approach="metric"`) gives I(S;A) alone.

Ours is a whole audit (three measures, intervals, tests, group tables). dalex needs pandas < 3, so
this script runs in an environment of its own:

    pip install -e . dalex infomeasure
    python research/run.py measure_peers
"""

from __future__ import annotations

import contextlib
import io
import warnings
from importlib.metadata import version

import dalex
import infomeasure

import evenhand as eh
from common import growth, scored_rows, timed, write

SIZES = (1_000, 10_000, 100_000)
# Beyond this the neighbor search of infomeasure takes minutes.
INFOMEASURE_ROWS = 10_000


def run_dalex(y, s, a):
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        found = dalex.fairness.GroupFairnessRegression(
            y=y, y_hat=s, protected=a.astype(str), privileged="0", label="model"
        )
        found.fairness_check()
    return found


def run_infomeasure(y, s, a):
    return infomeasure.mutual_information(s, a.astype(float), approach="metric", k=3)


def main() -> None:
    rows = []
    times: dict[str, list[float]] = {}
    eh.audit(*scored_rows(500)[:2], sensitive_features=scored_rows(500)[2], estimator="logistic")
    eh.audit(*scored_rows(500)[:2], sensitive_features=scored_rows(500)[2])
    for n in SIZES:
        y, s, a = scored_rows(n)
        runs = {
            "evenhand audit, logistic": lambda y=y, s=s, a=a: eh.audit(
                y, s, sensitive_features=a, estimator="logistic"
            ),
            "evenhand audit, auto": lambda y=y, s=s, a=a: eh.audit(y, s, sensitive_features=a),
            "dalex, three criteria": lambda y=y, s=s, a=a: run_dalex(y, s, a),
        }
        if n <= INFOMEASURE_ROWS:
            runs["infomeasure, I(S;A)"] = lambda y=y, s=s, a=a: run_infomeasure(y, s, a)
        seconds = {name: timed(run, 3)[0] for name, run in runs.items()}
        for name, value in seconds.items():
            times.setdefault(name, []).append(value)
            ratio = value / seconds["evenhand audit, logistic"]
            rows.append({"method": name, "n": n, "seconds": value, "times_ours": ratio})
            print(rows[-1], flush=True)
    for name, found in times.items():
        exponent = growth(list(SIZES[: len(found)]), found)
        rows.append({"method": f"{name}: growth exponent", "n": "", "seconds": exponent})
        print(rows[-1])
    peers = "; ".join(f"{name} {version(name)}" for name in ("dalex", "infomeasure", "pandas"))
    print(peers, write("measure_peers", rows, ["dalex", "infomeasure"]))


if __name__ == "__main__":
    main()
