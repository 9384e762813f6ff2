"""Gaps and information among people with the same controls, in simulations and in Illinois.

`simulated`: six distributions of known truth. "confounded": the controls move group and score, the
gap changes with them. "alike": the controls move the score and not the group. "weak overlap": odds
of the group up to a hundred, so that some members have hardly any counterpart. "deterministic": no
noise. "clustered": 150 clusters that share noise and controls. "five groups". In each the
distribution of S − E[S|C] given the group depends on the controls through the odds of the group
alone, so that the information through the summaries is the one of the distribution; not so with
"confounded" and "deterministic", which are judged by the gap alone. Under "exactly fair" and
"unequal spread" S ⟂ A | C holds, and the share of p-values below 0.05 is the size of the test. A
design ends after a minute of processor time, half of which may go into information, which costs
several times what a gap does; the table says how many replications each number had.

`hard`: what controls can be in practice, with a score that is fair given them: ZIP codes by the
hundred, lines that differ between the levels of a category, products of three numbers, twenty
numbers and 800 rows, heavy tails, 40 clusters, two crossed categories, steps that no spline has.
Whether intervals hold the truth, how often the test of S ⟂ A | C rejects, and how often the guard
withholds a verdict.

`illinois`: car-insurance quotes for one driver by 34 companies in 923 ZIP codes, and the state's
average loss per car in each ZIP. For each company and for all together: the gap in premiums that
the risk does not explain, with ZIPs as clusters, and beside it an ordinary regression of the log
premium on minority, the log of the risk and company, with clustered errors, by statsmodels. The
first averages over the minority ZIPs and takes any curve of the risk; the second is one
coefficient.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit, xlogy

from common import Setting, run_all
from evenhand.auditing.adjusted_gap import adjusted_gaps
from evenhand.auditing.conditional import audit_given
from evenhand.data.encoding import read_controls
from evenhand.data.groups import resolve_groups
from evenhand.data.sample import Sample
from evenhand.measures.balancing import LEAST_COUNTERPARTS, build_basis
from evenhand.measures.entropies import get_estimator
from loaders import load_illinois_quotes

N = 1500
GAPS = {"confounded": (0.4, 0.3), "deterministic": (0.4, 0.3)}
FAIR = ("exactly fair", "unequal spread", "one control, fair", "fair, clustered")
DESIGNS = (
    "confounded",
    "alike",
    "weak overlap",
    "deterministic",
    "clustered",
    "five groups",
    *FAIR,
)
SLOPES = {"alike": (0.0, 0.0), "weak overlap": (1.7, -0.9)}
FIVE = np.array([[0.0, 0.0], [0.6, 0.0], [-0.5, 0.4], [0.3, 0.3], [0.0, -0.6]])
FIVE_GAPS = np.array([0.0, 0.5, 0.0, -0.4, 0.3])


def law(design: str, rng: np.random.Generator, n: int):
    """Controls, P(group | C), group, score and cluster."""
    cluster = None
    if "cluster" in design:
        n_clusters = max(n // 10, 1)
        cluster = np.repeat(np.arange(n_clusters), 10)[:n]
        C = np.sqrt(0.5) * (rng.normal(size=(n_clusters, 2))[cluster] + rng.normal(size=(n, 2)))
    else:
        C = rng.normal(size=(n, 1 if design.startswith("one") else 2))
    if design == "five groups":
        odds = np.exp(C @ FIVE.T + np.array([1.0, 0.2, 0.2, 0.2, 0.0]))
        p = odds / odds.sum(axis=1, keepdims=True)
    else:
        slopes = SLOPES.get(design, (0.8, -0.5))[: C.shape[1]]
        one = expit(C @ np.array(slopes) - 0.5)
        p = np.column_stack([1 - one, one])
    draw = rng.random(n)
    a = (draw[:, None] > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    noise = rng.normal(size=n)
    if cluster is not None:
        noise = np.sqrt(0.4) * rng.normal(size=cluster[-1] + 1)[cluster] + np.sqrt(0.6) * noise
    if design == "deterministic":
        noise = 0.0 * noise
    if design == "unequal spread":
        noise = noise * np.exp(0.4 * C[:, 0])
    s = 10 + C[:, 0] + np.sin(1.5 * C[:, -1]) + noise + effects(design, C)[np.arange(n), a]
    return C, p, a, s, cluster


def effects(design: str, C):
    """(n, K): what each group gets beyond the first with the same controls."""
    if design in FAIR:
        return np.zeros((len(C), 2))
    if design == "five groups":
        return np.tile(FIVE_GAPS, (len(C), 1))
    level, slope = GAPS.get(design, (0.4, 0.0))
    return np.column_stack([np.zeros(len(C)), level + slope * C[:, 0]])


def truths(design: str):
    """The gaps of the members that have counterparts, and the information or NaN."""
    rng = np.random.default_rng(2024)
    C, p, _, s, _ = law(design, rng, 400_000)
    effect = effects(design, C)
    gaps = []
    for k in range(1, p.shape[1]):
        odds = p[:, k] / p[:, 0] * min(p[:, 0].mean() / p[:, k].mean(), 1.0)
        kept = odds <= 1 / LEAST_COUNTERPARTS - 1
        gaps.append(float(np.average(effect[kept, k], weights=p[kept, k])))
    if design in FAIR:
        return gaps, 0.0
    if design in GAPS:
        return gaps, float("nan")
    left = s - 10 - C[:, 0] - np.sin(1.5 * C[:, -1])
    density = p * np.exp(-0.5 * (left[:, None] - effect) ** 2)
    q = density / density.sum(axis=1, keepdims=True)
    given, joint = (-xlogy(r, r).sum(axis=1).mean() for r in (p, q))
    return gaps, float(1 - joint / given)


def replicate(design: str, seed: int, everything: bool):
    """Gaps of one sample, and with `everything` the whole result."""
    rng = np.random.default_rng([seed, DESIGNS.index(design)])
    C, _, a, s, cluster = law(design, rng, N)
    groups, controls = resolve_groups(a, n_rows=N, cluster=cluster), read_controls(C, N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not everything:
            basis = build_basis(controls, groups.n_effective)
            return adjusted_gaps(s, groups, basis, 0, 0.95), None
        # Where only the test is judged, an estimator that is quick.
        name = "logistic" if design in FAIR else "auto"
        result = audit_given(
            Sample(groups, s, controls=controls), get_estimator(name), 0, seed=0,
            confidence_level=0.95, estimator=name,
        )  # fmt: skip
    return result.gaps, result.information


def repeat_design(design: str, replications: int, seconds: float) -> dict[str, Any]:
    """Truths, gaps and information of repeated samples: value, error, interval and p-value."""
    gaps, information = truths(design)
    start, spent = time.process_time(), 0.0
    result, measures = [], []
    for seed in range(replications):
        began = time.process_time()
        # Not where the truth is not known.
        whole = information == information and (design in FAIR or spent < seconds / 2)
        each, measure = replicate(design, seed, whole)
        result.append([_numbers(gap.adjusted) for gap in each])
        if measure is not None:
            measures.append(_numbers(measure))
            spent += time.process_time() - began
        if time.process_time() - start > seconds:
            break
    return {
        "gaps": np.array(result), "measures": np.array(measures),
        "truths": np.array(gaps), "information": information,
    }  # fmt: skip


def _numbers(part: Any) -> tuple[float, ...]:
    return part.value, part.stderr, *part.interval, part.p_value


def summarize(design: str, what: str, parts: np.ndarray, truth: float) -> dict[str, Any]:
    """A row of the table: bias and coverage of one number."""
    value, error, low, high, _ = parts.T
    return {
        "design": design, "n": N, "what": what, "replications": len(parts), "truth": truth,
        "mean": float(value.mean()), "sd": float(value.std(ddof=1)),
        "mean_stderr": float(error.mean()),
        "bias_in_stderr": float((value.mean() - truth) / error.mean()),
        "coverage": float(((low <= truth) & (truth <= high)).mean()),
    }  # fmt: skip


def simulated(setting: Setting) -> Iterator[dict[str, Any]]:
    """Bias, coverage and size of the test by design."""
    designs = [d for d in DESIGNS if setting.wants(d)][: setting.choose(None, 2)]
    units = [(design, *setting.choose((1000, 60.0), (3, 60.0))) for design in designs]
    results = run_all(setting, repeat_design, units, "designs")
    for design, result in zip(designs, results, strict=True):
        gaps, measures = result["gaps"], result["measures"]
        for k, truth in enumerate(result["truths"]):
            name = f"adjusted gap, group {k + 1}" if gaps.shape[1] > 1 else "adjusted gap"
            row = summarize(design, name, gaps[:, k], float(truth))
            if design in FAIR:
                row["rejected"] = float(np.mean(gaps[:, k, 4] < 0.05))
            yield row
        if design in FAIR:
            yield {
                "design": design, "n": N, "what": "test of S ⟂ A | C",
                "replications": len(measures), "rejected": float(np.mean(measures[:, 4] < 0.05)),
            }  # fmt: skip
        elif len(measures):
            yield summarize(design, "information", measures, float(result["information"]))


# Hard controls -----------------------------------------------------------------------------------


def draw_levels(rng: np.random.Generator, n: int, count: int):
    """ZIP codes that move group and score."""
    price, odds = rng.normal(size=count), rng.normal(size=count)
    zips = rng.integers(0, count, n)
    expected = price[zips]
    return (
        {"zip": names(zips)},
        0.7 * (price + odds)[zips] - 0.5,
        expected + 0.5 * rng.normal(size=n),
    )


def draw_slopes(rng: np.random.Generator, n: int, count: int):
    """A number whose slope is that of its level."""
    level, x = rng.integers(0, count, n), rng.normal(size=n)
    slope = np.linspace(-1.0, 1.0, count)[level]
    return {"level": names(level), "x": x}, slope * x - 0.3, 1.5 * slope * x + rng.normal(size=n)


def draw_products(rng: np.random.Generator, n: int, count: int):
    """The product of the first three of some numbers."""
    x = rng.normal(size=(n, count))
    product = x[:, :3].prod(axis=1)
    return x, 0.7 * product - 0.3, product + rng.normal(size=n)


def draw_numbers(rng: np.random.Generator, n: int, count: int):
    """Many numbers, some with curves."""
    x = rng.normal(size=(n, count))
    s = 0.5 * x[:, :10].sum(axis=1) + np.sin(1.5 * x[:, 0]) + 0.3 * x[:, 1] ** 2
    return x, 0.4 * x[:, :5].sum(axis=1) - 0.3, s + rng.normal(size=n)


def draw_tails(rng: np.random.Generator, n: int, count: int):
    """Numbers and noise with Student's t distribution."""
    x = rng.standard_t(count, size=(n, 2))
    z = np.arcsinh(x)
    noise = rng.standard_t(count, size=n)
    return x, 0.8 * z[:, 0] - 0.5 * z[:, 1] - 0.5, x[:, 0] + z[:, 1] ** 2 + noise


def draw_clusters(rng: np.random.Generator, n: int, count: int):
    """Clusters that share controls and noise."""
    cluster = np.arange(n) % count
    x = np.sqrt(0.5) * (rng.normal(size=(count, 2))[cluster] + rng.normal(size=(n, 2)))
    noise = np.sqrt(0.4) * rng.normal(size=count)[cluster] + np.sqrt(0.6) * rng.normal(size=n)
    return x, x @ [0.8, -0.5] - 0.5, x[:, 0] + np.sin(1.5 * x[:, 1]) + noise


def draw_crossed(rng: np.random.Generator, n: int, count: int):
    """Two categories of which each pair of levels has a price of its own."""
    first, second = rng.integers(0, count, n), rng.integers(0, 5, n)
    price = rng.normal(size=(count, 5))[first, second]
    controls = {"first": names(first), "second": names(second)}
    return controls, price - 0.3, price + 0.5 * rng.normal(size=n)


def draw_steps(rng: np.random.Generator, n: int, count: int):
    """Steps in two of some numbers together and a band of the third."""
    x = rng.normal(size=(n, count))
    step = ((x[:, 0] > 0.3) & (x[:, 1] < 0.2)) + 1.0 * (np.abs(x[:, 2]) < 0.5)
    return x, step - 1.0, step + 0.5 * rng.normal(size=n)


def draw_many_steps(rng: np.random.Generator, n: int, count: int):
    """A step in each of some numbers, and a line."""
    x = rng.normal(size=(n, count))
    step = 0.5 * (x > 0.3 * rng.normal(size=count)).sum(axis=1)
    return x, step - 0.25 * count, step + 0.5 * x[:, 0] + 0.5 * rng.normal(size=n)


def names(codes: Any) -> Any:
    """Codes as text."""
    return np.array([f"L{code}" for code in codes], dtype=object)


HARD = {
    "60 levels": (draw_levels, 2_000, 60),
    "100 levels": (draw_levels, 2_000, 100),
    "150 levels": (draw_levels, 5_000, 150),
    "300 levels": (draw_levels, 2_000, 300),
    "300 levels, more rows": (draw_levels, 20_000, 300),
    "level × line": (draw_slopes, 3_000, 4),
    "product of three": (draw_products, 1_500, 3),
    "product of three, more rows": (draw_products, 6_000, 3),
    "product of three of eight": (draw_products, 3_000, 8),
    "20 numbers": (draw_numbers, 800, 20),
    "heavy tails": (draw_tails, 1_500, 3),
    "40 clusters": (draw_clusters, 1_000, 40),
    "crossed categories": (draw_crossed, 3_000, 6),
    "steps": (draw_steps, 3_000, 3),
    "a step in each of six": (draw_many_steps, 3_000, 6),
}


def repeat_hard(design: str, replications: int) -> dict[str, Any]:
    """Value, error, interval and p-value of the gap, p-value of the test, guard of each sample."""
    draw, n, count = HARD[design]
    rows = []
    for seed in range(replications):
        rng = np.random.default_rng([seed, 1, list(HARD).index(design)])
        C, odds, s = draw(rng, n, count)
        a = np.where(rng.random(n) < expit(odds), "k", "r")
        cluster = np.arange(n) % count if "clusters" in design else None
        groups = resolve_groups(a, n_rows=n, cluster=cluster)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = audit_given(
                Sample(groups, s, controls=read_controls(C, n)), get_estimator("logistic"), "r",
                seed=0, confidence_level=0.95, estimator="logistic",
            )  # fmt: skip
        gap = result.gap()
        guard = not gap.balance.is_balanced
        rows.append([*_numbers(gap.adjusted), result.information.p_value, guard])
    return {"samples": np.array(rows, dtype=np.float64)}


def hard(setting: Setting) -> Iterator[dict[str, Any]]:
    """Bias and coverage where controls are many, or act together."""
    designs = [d for d in HARD if setting.wants(d)][: setting.choose(None, 2)]
    units = [(design, setting.choose(100, 3)) for design in designs]
    for design, result in zip(
        designs, run_all(setting, repeat_hard, units, "designs"), strict=True
    ):
        samples = result["samples"]
        row = summarize(design, "adjusted gap", samples[:, :5], 0.0)
        rejected, withheld = (samples[:, 5] < 0.05).mean(), samples[:, 6].mean()
        yield {
            **row,
            "n": HARD[design][1],
            "rejected": float(rejected),
            "withheld": float(withheld),
        }


# Illinois -----------------------------------------------------------------------------------------


def regression(premium, minority, risk, company, zips) -> tuple[float, float]:
    """The coefficient of minority and its clustered standard error."""
    import statsmodels.api as sm

    columns = [np.ones(len(premium)), minority, np.log(risk)]
    columns += [company == name for name in np.unique(company)[1:]]
    model = sm.OLS(np.log(premium), np.column_stack(columns).astype(float))
    fit = model.fit(
        cov_type="cluster", cov_kwds={"groups": np.unique(zips, return_inverse=True)[1]}
    )
    return float(fit.params[1]), float(fit.bse[1])


def compare_premiums(name: str, rows: Any, data: Any, companies: Any) -> dict[str, Any]:
    """Both answers for some quotes."""
    premium, risk, zips = data.score[rows], data.y[rows], data.cluster[rows]
    company, a = companies[rows], data.sensitive[rows]
    # A company's quotes are one a ZIP, which is then no cluster of several rows.
    groups = resolve_groups(a, n_rows=len(a), cluster=zips)
    controls = {"risk": risk} if len(np.unique(company)) == 1 else {"risk": risk, "co": company}
    basis = build_basis(read_controls(controls, len(a)), groups.n_effective)
    reference = groups.labels.index("other")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (gap,) = adjusted_gaps(premium, groups, basis, reference, 0.95)
    line, error = regression(premium, a == "minority", risk, company, zips)
    low, high = gap.ratio_percent.interval
    return {
        "company": name,
        "quotes": len(a),
        "zips": len(np.unique(zips)),
        "raw_dollars": gap.raw.value,
        "explained_dollars": gap.explained.value,
        "adjusted_dollars": gap.adjusted.value,
        "adjusted_stderr": gap.adjusted.stderr,
        "p_value": gap.adjusted.p_value,
        "above_percent": gap.ratio_percent.value,
        "low": low,
        "high": high,
        "no_counterpart": gap.no_counterpart,
        "regression_log": line,
        "regression_log_stderr": error,
        "regression_percent": 100 * float(np.expm1(line)),
    }


def illinois(setting: Setting) -> Iterator[dict[str, Any]]:
    """One row for all companies, and one for each."""
    data = load_illinois_quotes()
    names = [n.removeprefix("company=") for n in data.feature_names if n.startswith("company")]
    first = next(k for k, n in enumerate(data.feature_names) if n.startswith("company"))
    companies = np.array(names)[data.X[:, first:].argmax(axis=1)]
    yield compare_premiums("all companies", np.arange(len(companies)), data, companies)
    for name in names[: setting.choose(None, 2)]:
        yield compare_premiums(name, np.flatnonzero(companies == name), data, companies)
