"""A complete audit against one call of scikit-learn's neighbor estimate, which gives one number.

python research/run.py audit_speed [--large]    (--large goes up to 10 million rows)
"""

from __future__ import annotations

import argparse
from statistics import median

from sklearn.feature_selection import mutual_info_classif

import evenhand as eh
from common import growth, scored_rows, timed, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true")
    sizes = [10**4, 10**5, 10**6, *([10**7] if parser.parse_args().large else [])]
    rows = []
    times: dict[str, list[float]] = {"logistic": [], "auto": []}
    y, s, a = scored_rows(sizes[-1])
    for name in times:
        eh.audit(y[:5000], s[:5000], sensitive_features=a[:5000], estimator=name)
        eh.audit(y[:200_000], s[:200_000], sensitive_features=a[:200_000], estimator=name)
    for n in sizes:
        part = y[:n], s[:n]
        for name in times:
            run = lambda: eh.audit(*part, sensitive_features=a[:n], estimator=name)  # noqa: E731
            repeats = 5 if n <= 10**6 else 3
            seconds, spread, _ = timed(run, repeats)
            times[name].append(seconds)
            rows.append(
                {"what": f"audit, {name}, n={n:.0e} (seconds)", "value": seconds, "goal": "",
                 "spread": spread}
            )  # fmt: skip
            print(rows[-1], flush=True)
    n = 10**6
    peer = median(
        timed(lambda: mutual_info_classif(s[:n, None], a[:n], random_state=0), 1)[0]
        for _ in range(3)
    )
    at = sizes.index(n)
    for name, goal in (("logistic", ">= 20"), ("auto", ">= 5")):
        rows.append(
            {"what": f"mutual_info_classif (independence only) / whole audit, {name}, n=1e6",
             "value": peer / times[name][at], "goal": goal, "peer_seconds": peer}
        )  # fmt: skip
        rows.append(
            {"what": f"growth exponent of an audit, {name}, n=1e4 to {sizes[-1]:.0e}",
             "value": growth(sizes, times[name]), "goal": "<= 1.1"}
        )  # fmt: skip
        print(rows[-2], rows[-1], flush=True)
    print(write("audit_speed", rows))


if __name__ == "__main__":
    main()
