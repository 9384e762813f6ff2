"""Premiums in minority ZIP codes against those of other ZIP codes of the same state risk.

python research/run.py practice_illinois

Illinois car-insurance quotes: one driver, 34 companies, 923 ZIP codes, and the state's average loss
per car in each ZIP. For every company and for all together: the gap in premiums that the risk does
not explain, with ZIPs as clusters, and beside it an ordinary regression of the log premium on
minority, the log of the risk and company, with clustered errors, by statsmodels. The first averages
over the minority ZIPs and takes any curve of the risk; the second is one coefficient.
"""

from __future__ import annotations

import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import statsmodels.api as sm

from common import write
from evenhand.auditing.adjusted_gap import adjusted_gaps
from evenhand.data.controls import read_controls
from evenhand.data.groups import resolve_groups
from evenhand.measures.nuisance import control_features
from loaders import load_illinois_quotes


def regression(premium, minority, risk, company, zips) -> tuple[float, float]:
    """The coefficient of minority and its clustered standard error."""
    columns = [np.ones(len(premium)), minority, np.log(risk)]
    columns += [company == name for name in np.unique(company)[1:]]
    model = sm.OLS(np.log(premium), np.column_stack(columns).astype(float))
    fit = model.fit(
        cov_type="cluster", cov_kwds={"groups": np.unique(zips, return_inverse=True)[1]}
    )
    return float(fit.params[1]), float(fit.bse[1])


def compare(name, rows, data, companies) -> dict:
    """One row of the table."""
    premium, risk, zips = data.score[rows], data.y[rows], data.cluster[rows]
    company, a = companies[rows], data.sensitive[rows]
    # A company's quotes are one a ZIP, which is then no cluster of several rows.
    groups = resolve_groups(a, n_rows=len(a), cluster=zips)
    controls = {"risk": risk} if len(np.unique(company)) == 1 else {"risk": risk, "co": company}
    features = control_features(read_controls(controls, len(a)), groups, seed=0)
    reference = groups.labels.index("other")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (gap,), _ = adjusted_gaps(premium, groups, features, reference, 0.95)
    line, error = regression(premium, a == "minority", risk, company, zips)
    low, high = gap.ratio_percent.interval
    return {
        "company": name,
        "quotes": len(a),
        "zips": len(np.unique(zips)),
        "raw_dollars": round(gap.raw.value, 2),
        "explained_dollars": round(gap.explained.value, 2),
        "adjusted_dollars": round(gap.adjusted.value, 2),
        "adjusted_stderr": round(gap.adjusted.stderr, 2),
        "p_value": gap.adjusted.p_value,
        "above_percent": round(gap.ratio_percent.value, 2),
        "low": round(low, 2),
        "high": round(high, 2),
        "no_counterpart": round(gap.no_counterpart, 4),
        "regression_log": round(line, 4),
        "regression_log_stderr": round(error, 4),
        "regression_percent": round(100 * float(np.expm1(line)), 2),
    }


def main() -> None:
    data = load_illinois_quotes()
    names = [n.removeprefix("company=") for n in data.feature_names if n.startswith("company")]
    first = next(k for k, n in enumerate(data.feature_names) if n.startswith("company"))
    companies = np.array(names)[data.X[:, first:].argmax(axis=1)]
    rows = [compare("all companies", np.arange(len(companies)), data, companies)]
    print(rows[0], flush=True)
    for name in names:
        rows.append(compare(name, np.flatnonzero(companies == name), data, companies))
        print(rows[-1], flush=True)
    write("practice_illinois", rows, ["statsmodels"])


if __name__ == "__main__":
    main()
