"""Next door to what is tested: does each number say there what it claims?

One row for each feature and case: what the result claims (a 95 % interval that holds the truth, a
test of size 5 %, no pass of what fails) and how often it is so in fresh samples. A sample in which
the result says that there is not enough data counts as withheld: it claims nothing. Seeds begin
with the day, so that each run draws other samples; `facts` has it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, xlogy
from scipy.stats import norm
from sklearn.metrics import mean_absolute_error

import evenhand as eh
from common import Setting, run_all

Random = np.random.Generator
# value, low, high, standard error, truth; whether nothing is claimed; whether the claim is wrong.
Outcome = tuple[float, float, float, float, float, bool, bool]


@dataclass(frozen=True)
class Case:
    """A distribution with a known answer, and a result that claims something about it.

    Attributes
    ----------
    claim : {"interval", "size", "verdict", "limit"}
        "interval": holds the truth in 95 of 100 samples. "size": exactly fair, so that at most 5 of
        100 tests reject and the interval holds 0. "verdict": fails the limit, so that at most 5 of
        100 pass. "limit": just meets it, so that at most 5 of 100 fail.
    n : int
        Rows, before copies.
    draw : function of (Generator, n)
        Draws one sample and returns its `Outcome`.
    samples : int
        Fewer where one takes seconds, more where it takes milliseconds.
    """

    feature: str
    name: str
    claim: str
    n: int
    draw: Callable[[Random, int], Outcome]
    samples: int = 400


# Results as outcomes ------------------------------------------------------------------------------


def read_measure(measure: Any, truth: float, withheld: bool = False) -> Outcome:
    low, high = measure.interval
    wrong = measure.p_value is not None and measure.p_value < 0.05 and truth == 0
    error = measure.stderr if measure.stderr is not None else np.nan
    return measure.value, low, high, error, truth, withheld, bool(wrong)


def read_verdict(verdict: Any, wrong: str = "pass") -> Outcome:
    """Outcome of a verdict on what fails its limit or, where a fail is wrong, just meets it."""
    outcome = verdict.outcome
    return np.nan, np.nan, np.nan, np.nan, np.nan, outcome == "not enough data", outcome == wrong


def read_entry(table: pd.DataFrame, group: Any, name: str, truth: float) -> Outcome:
    row = table[table["group"].astype(str) == str(group)].iloc[0]
    value, low, high = (float(row[k]) for k in (name, f"{name}_low", f"{name}_high"))
    return value, low, high, (high - low) / 3.92, truth, not np.isfinite(low + high), False


# Truths -------------------------------------------------------------------------------------------


def entropy(p: Any) -> Any:
    return -xlogy(p, p) - xlogy(1 - p, 1 - p)


def shift_information(share: float, shift: float) -> float:
    """I(S;A) in nats where S is N(0, 1) in one group and N(shift, 1) in a share of the rows."""
    grid = np.linspace(-9.0, 9.0 + abs(shift), 4001)
    first, second = norm.pdf(grid), norm.pdf(grid - shift)
    mixed = (1 - share) * first + share * second
    posterior = share * second / mixed
    return float(entropy(share) - np.sum(mixed * entropy(posterior)) * (grid[1] - grid[0]))


# Copies and heavy values --------------------------------------------------------------------------


def copied(times: int, share: float = 1.0, frequency: bool = False) -> Callable[..., Outcome]:
    """Separation that holds, in a table that has some of its rows several times."""

    def draw(rng: Random, n: int) -> Outcome:
        a, y = rng.integers(0, 2, n), rng.normal(size=n)
        s = y + rng.normal(size=n)
        count = np.where(rng.random(n) < share, times, 1)
        if frequency:
            try:
                result = eh.audit(y, s, sensitive_features=a, frequency=count)
            except ValueError:
                return np.nan, np.nan, np.nan, np.nan, 0.0, True, False
            return read_measure(result.separation, 0.0)
        rows = np.repeat(np.arange(n), count)
        result = eh.audit(y[rows], s[rows], sensitive_features=a[rows])
        return read_measure(result.separation, 0.0)

    return draw


def nearly_copied(rng: Random, n: int) -> Outcome:
    """Three copies of each row that differ in their last digits."""
    a, y = rng.integers(0, 2, n), rng.normal(size=n)
    rows = np.repeat(np.arange(n), 3)
    s = (y + rng.normal(size=n))[rows] * (1 + 1e-9 * rng.normal(size=3 * n))
    return read_measure(eh.audit(y[rows], s, sensitive_features=a[rows]).separation, 0.0)


def one_group_copied(rng: Random, n: int) -> Outcome:
    """The rows of one of two groups twice."""
    a, y = rng.integers(0, 2, n), rng.normal(size=n)
    s = y + rng.normal(size=n)
    rows = np.repeat(np.arange(n), 1 + a)
    return read_measure(eh.audit(y[rows], s[rows], sensitive_features=a[rows]).separation, 0.0)


def panel(noise: float, shuffled: bool = False) -> Callable[..., Outcome]:
    """Six rows a person, whose score hardly moves; nothing is claimed where that is warned of."""

    def draw(rng: Random, n: int) -> Outcome:
        person = np.repeat(np.arange(n // 6), 6)
        person = rng.permutation(person) if shuffled else person
        a = rng.integers(0, 2, n // 6)[person]
        s = rng.normal(size=n // 6)[person] + noise * rng.normal(size=len(person))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            result = eh.audit(s + rng.normal(size=len(s)), s, sensitive_features=a)
        warned = any("as the cluster" in str(w.message) for w in said)
        return read_measure(result.independence, 0.0, warned)

    return draw


def same_file_twice(rng: Random, n: int) -> Outcome:
    table = pd.DataFrame({"y": rng.normal(size=n), "a": rng.integers(0, 2, n)})
    table["s"] = table["y"] + rng.normal(size=n)
    try:
        result = eh.audit_table([table, table], y_true="y", y_pred="s", sensitive_features="a")
    except ValueError:
        return np.nan, np.nan, np.nan, np.nan, 0.0, True, False
    return read_measure(result.separation, 0.0)


def copied_cells(rng: Random, n: int) -> Outcome:
    """Cells of rows that each occur three times."""
    a, y = rng.integers(0, 2, n), rng.normal(size=n)
    rows = np.repeat(np.arange(n), 3)
    s = (y + rng.normal(size=n))[rows]
    try:
        result = eh.audit(eh.Cells.from_rows(y[rows], s, sensitive_features=a[rows]))
    except ValueError:
        return np.nan, np.nan, np.nan, np.nan, 0.0, True, False
    return read_measure(result.separation, 0.0)


def own_score(rng: Random, n: int) -> Outcome:
    a = rng.integers(0, 2, n)
    s = np.where(a == 1, 5.0, rng.normal(size=n))
    result = eh.audit(rng.normal(size=n), s, sensitive_features=a)
    return read_measure(result.independence, 1.0)


def free_price(rng: Random, n: int) -> Outcome:
    a = rng.integers(0, 2, n)
    s = np.where((a == 1) & (rng.random(n) < 0.5), 0.0, rng.gamma(2.0, size=n))
    result = eh.audit(rng.normal(size=n), s, sensitive_features=a)
    return read_measure(result.independence, 1 - 0.75 * entropy(1 / 3) / np.log(2))


def rounded_score(step: float) -> Callable[..., Outcome]:
    """A score in steps, as of cents or points, that is one group's plus a shift."""
    edge = np.arange(-8.0, 9.0, step) - step / 2
    shares = [np.diff(norm.cdf(edge, m)) for m in (0.0, 0.5)]
    mixed = 0.5 * shares[0] + 0.5 * shares[1]
    posterior = np.divide(0.5 * shares[1], mixed, out=np.zeros_like(mixed), where=mixed > 0)
    truth = 1 - float(mixed @ entropy(posterior)) / np.log(2)

    def draw(rng: Random, n: int) -> Outcome:
        a = rng.integers(0, 2, n)
        s = np.round((rng.normal(size=n) + 0.5 * a) / step) * step
        return read_measure(eh.audit(None, s, sensitive_features=a).independence, truth)

    return draw


def small_group(rng: Random, n: int) -> Outcome:
    """A shift of 1 in a group of 20 rows."""
    a = (np.arange(n) < 20).astype(int)
    truth = shift_information(20 / n, 1.0) / entropy(20 / n)
    s = rng.normal(size=n) + a
    return read_measure(eh.audit(None, s, sensitive_features=a).independence, float(truth))


def waves(rng: Random, n: int) -> Outcome:
    """Groups that take turns along the score, six times."""
    share = 0.5 + 0.4 * np.sin(12 * np.pi * (np.arange(200_000) + 0.5) / 200_000)
    s = rng.random(n)
    a = (rng.random(n) < 0.5 + 0.4 * np.sin(12 * np.pi * s)).astype(int)
    truth = 1 - float(entropy(share).mean()) / np.log(2)
    return read_measure(eh.audit(None, s, sensitive_features=a).independence, truth)


def mostly_zero(rng: Random, n: int) -> Outcome:
    """Claims, 9 in 10 of them zero, and a tariff that is fair given them."""
    a = rng.integers(0, 2, n)
    y = np.where(rng.random(n) < 0.1 + 0.05 * a, rng.gamma(2.0, size=n), 0.0)
    s = np.log1p(y) + rng.normal(size=n)
    return read_measure(eh.audit(y, s, sensitive_features=a).separation, 0.0)


# Discrete targets ---------------------------------------------------------------------------------


def levels_of_target(levels: int, shift: float) -> Callable[..., Outcome]:
    """The score is the target plus noise, and higher by `shift` in one group at each level."""
    value = np.linspace(-2.0, 2.0, levels)
    share = norm.pdf(value) / norm.pdf(value).sum()
    odds = expit(0.5 * value - 1.0)
    truth = sum(w * shift_information(p, shift) for w, p in zip(share, odds, strict=True))
    truth /= float(share @ entropy(odds))

    def draw(rng: Random, n: int) -> Outcome:
        code = rng.choice(levels, n, p=share)
        a = (rng.random(n) < odds[code]).astype(int)
        s = 2 * value[code] + rng.normal(size=n) + shift * a
        return read_measure(eh.audit(value[code], s, sensitive_features=a).separation, truth)

    return draw


# Continuous attributes ----------------------------------------------------------------------------


def young_and_old(whole_years: bool) -> Callable[..., Outcome]:
    """A surcharge below 22 and above 75: I(S;A) is that of the indicator."""
    share = (22 - 18 + 90 - 75) / (90 - 18)
    truth = 1 - np.exp(-2 * shift_information(share, 1.5))

    def draw(rng: Random, n: int) -> Outcome:
        age = rng.uniform(18, 90, n)
        s = rng.normal(size=n) + 1.5 * ((age < 22) | (age >= 75))
        age = np.floor(age) if whole_years else age
        result = eh.audit(rng.normal(size=n), s, sensitive_features=eh.Continuous(age))
        return read_measure(result.independence, truth)

    return draw


def bands_of_age(rng: Random, n: int) -> Outcome:
    """A tariff of five bands of age."""
    age, means = rng.uniform(18, 90, n), np.array([2.0, 0.6, 0.0, 0.3, 1.2])
    s = rng.normal(size=n) + means[np.digitize(age, [25, 40, 60, 75])]
    grid, shares = np.linspace(-8, 10, 4001), np.diff([18, 25, 40, 60, 75, 90]) / 72
    parts = norm.pdf(np.subtract.outer(grid, means))
    nats = (xlogy(parts, parts / (parts @ shares)[:, None]) @ shares).sum() * (grid[1] - grid[0])
    result = eh.audit(None, s, sensitive_features=eh.Continuous(age))
    return read_measure(result.independence, 1 - np.exp(-2 * nats))


def young_given_target(rng: Random, n: int) -> Outcome:
    """A surcharge below 25 whatever the target is."""
    age, y = rng.uniform(18, 90, n), rng.normal(size=n)
    s = y + rng.normal(size=n) + 1.5 * (age < 25)
    result = eh.audit(y, s, sensitive_features=eh.Continuous(age)).separation
    return read_measure(result, 1 - np.exp(-2 * shift_information(7 / 72, 1.5)))


def steps_of_target(rng: Random, n: int) -> Outcome:
    """S ⟂ A given Y, through the whole part of Y alone."""
    y = rng.uniform(0, 5, n)
    a, s = np.floor(y) + rng.normal(size=(2, n))
    return read_measure(eh.audit(y, s, sensitive_features=eh.Continuous(a)).separation, 0.0)


def few_clusters(rng: Random, n: int) -> Outcome:
    """15 clusters and a correlation of .995: hardly anything to go by."""
    cluster = np.arange(n) % 15
    a = rng.normal(size=15)[cluster] + 0.1 * rng.normal(size=n)
    s = a + np.sqrt(1 / 0.995**2 - 1) * np.std(a) * rng.normal(size=n)
    result = eh.audit(
        rng.normal(size=n), s, sensitive_features=eh.Continuous(a), cluster=cluster
    ).independence
    return read_measure(result, 0.995**2)


# Inferred groups ----------------------------------------------------------------------------------


def inferred(through_guess: bool, counted: bool = False) -> Callable[..., Outcome]:
    """A score that breaks the limit by the recorded groups, judged by inferred ones or counts."""

    def draw(rng: Random, n: int) -> Outcome:
        p = expit(1.5 * rng.normal(size=n))
        a = (rng.random(n) < p).astype(int)
        s = rng.normal(size=n) + 0.5 * (a if not through_guess else (p - p.mean()) / p.std() / 2)
        guess = eh.Proxy(np.column_stack([1 - p, p]), ["x", "y"])
        limit = eh.Tolerance(independence=0.01)
        y = rng.normal(size=n)
        if counted:
            result = eh.audit(eh.Cells.from_rows(y, s, sensitive_features=guess))
        else:
            result = eh.audit(y, s, sensitive_features=guess)
        return read_verdict(result.verdict(limit))

    return draw


# Controls -----------------------------------------------------------------------------------------


def given_places(levels: int) -> Callable[..., Outcome]:
    """A price that is fair given the place, where groups live in different ones."""

    def draw(rng: Random, n: int) -> Outcome:
        place = rng.integers(0, levels, n)
        level = rng.normal(size=levels)
        a = (rng.random(n) < expit(level[place])).astype(int)
        s = 3.0 + level[place] + rng.normal(size=n)
        result = eh.audit(
            rng.normal(size=n), s, sensitive_features=a, estimator="logistic",
            controls=pd.DataFrame({"place": place.astype(str)}),
        ).conditional.to_frame()  # fmt: skip
        return read_entry(result, result["group"].iloc[0], "adjusted", 0.0)

    return draw


def control_of_the_score(rng: Random, n: int) -> Outcome:
    """A control that is a band of the score would explain any difference."""
    a = rng.integers(0, 2, n)
    s = rng.normal(size=n) + a
    try:
        result = eh.audit(
            rng.normal(size=n),
            s,
            sensitive_features=a,
            controls=np.round(s, 1),
            estimator="logistic",
        )
    except ValueError:
        return np.nan, np.nan, np.nan, np.nan, np.nan, True, False
    return read_verdict(result.verdict(eh.Tolerance(independence=0.01)))


# Gates --------------------------------------------------------------------------------------------


def split_labels(rng: Random, n: int) -> Outcome:
    """The majority under 60 names."""
    a = rng.random(n) < 0.2
    label = np.where(a, "b", np.char.add("w", rng.integers(0, 60, n).astype(str)))
    s = rng.normal(size=n) + 0.7 * a
    result = eh.audit(rng.normal(size=n), s, sensitive_features=label, estimator="logistic")
    return read_verdict(result.verdict(eh.Tolerance(independence=0.01)))


def blank_labels(rng: Random, n: int) -> Outcome:
    """Those with the highest scores of one group did not say who they are."""
    a = rng.integers(0, 2, n)
    s = rng.normal(size=n) + 0.8 * a
    label = np.where((a == 1) & (s > 0.8), None, a.astype(str).astype(object))
    result = eh.audit(rng.normal(size=n), s, sensitive_features=label, estimator="logistic")
    return read_verdict(result.verdict(eh.Tolerance(mean_difference=(-0.5, 0.5))))


def lognormal_ratio(sigma: float, size: int) -> Callable[..., Outcome]:
    """A mean price 1.25 times the others', at the edge of the limit."""

    def draw(rng: Random, n: int) -> Outcome:
        a = (np.arange(n) < size).astype(int)
        s = rng.lognormal(0.0, sigma, n) * np.where(a == 1, 1.25, 1.0)
        result = eh.audit(rng.normal(size=n), s, sensitive_features=a, estimator="logistic")
        return read_verdict(result.verdict(eh.Tolerance(mean_ratio=(0.8, 1.25), smallest=0.01)))

    return draw


def distance_at_limit(rng: Random, n: int) -> Outcome:
    """Groups a tenth apart in Kolmogorov's distance, which is the limit."""
    a = (np.arange(n) < n // 5).astype(int)
    s = rng.normal(size=n) + 2 * norm.ppf(0.55) * a
    result = eh.audit(rng.normal(size=n), s, sensitive_features=a, estimator="logistic")
    return read_verdict(result.verdict(eh.Tolerance(kolmogorov_smirnov=0.1)), "fail")


def rate_near_one(rng: Random, n: int) -> Outcome:
    """Nearly everybody is accepted, four fifths of the others in a group of 40."""
    a = (np.arange(n) < 40).astype(int)
    s = (rng.random(n) < np.where(a == 1, 0.76, 0.95)).astype(float)
    limit = eh.Tolerance(
        impact_ratio=(0.8, 1.25), favorable="high", at=(), cutoffs=(1.0,), smallest=0.01
    )
    result = eh.audit(rng.normal(size=n), s, sensitive_features=a, estimator="logistic")
    return read_verdict(result.verdict(limit))


def metric_by_group(clustered: bool) -> Callable[..., Outcome]:
    """Mean absolute error of one group, of independent rows or of families that share theirs."""

    def draw(rng: Random, n: int) -> Outcome:
        family = np.arange(n) // 5
        a = rng.integers(0, 2, n // 5)[family] if clustered else rng.integers(0, 2, n)
        shared = rng.normal(size=n // 5)[family]
        y = rng.normal(size=n)
        s = y + (0.8 * shared + 0.6 * rng.normal(size=n) if clustered else rng.normal(size=n))
        result = eh.audit(
            y, s, sensitive_features=a, estimator="logistic", cluster=family if clustered else None
        )
        table = result.by_group(mean_absolute_error).to_frame()
        return read_entry(table, 1, "value", np.sqrt(2 / np.pi))

    return draw


# Several of these at once ------------------------------------------------------------------------


def families(rng: Random, n: int, size: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """The family of each row, and noise that is mostly the family's."""
    family = np.arange(n) // size
    return family, 0.8 * rng.normal(size=n // size)[family] + 0.6 * rng.normal(size=n)


def controls_exposure_clusters(rng: Random, n: int) -> Outcome:
    """A rate that is fair given a factor, of families with exposures of their own."""
    family, noise = families(rng, n)
    factor = rng.normal(size=n // 5)[family] + 0.5 * rng.normal(size=n)
    a = (rng.random(n // 5)[family] < expit(factor)).astype(int)
    exposure = rng.uniform(0.1, 1.0, n)
    rate = 3.0 + 0.3 * factor + 0.3 * noise
    result = eh.audit(
        rng.poisson(exposure * np.maximum(rate, 0.0)).astype(float), rate, sensitive_features=a,
        controls=pd.DataFrame({"factor": factor}), exposure=exposure, cluster=family,
        estimator="logistic",
    ).conditional.to_frame()  # fmt: skip
    return read_entry(result, result["group"].iloc[0], "adjusted", 0.0)


def inferred_with_controls(rng: Random, n: int) -> Outcome:
    """A score that is fair given a factor, of groups that are guessed from it and from a name."""
    factor, name = rng.normal(size=(2, n))
    p = expit(factor + name)
    s = 3.0 + 0.5 * factor + rng.normal(size=n)
    try:
        result = eh.audit(
            rng.normal(size=n), s, controls=pd.DataFrame({"factor": factor}), estimator="logistic",
            sensitive_features=eh.Proxy(np.column_stack([1 - p, p]), ["x", "y"], assume="guess"),
        ).conditional.to_frame()  # fmt: skip
    except ValueError:
        return np.nan, np.nan, np.nan, np.nan, 0.0, True, False
    return read_entry(result, result["group"].iloc[0], "adjusted", 0.0)


def vanishing_group(rng: Random, n: int) -> Outcome:
    """Month by month nothing changes, but one of three groups has no rows in the sixth."""
    month = np.repeat(np.arange(12), n // 12)
    a = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    a[month == 5] = rng.choice(2, n // 12, p=[0.6, 0.4])
    day = pd.Timestamp("2025-01-15") + pd.to_timedelta(30.4 * month, unit="D")
    s = rng.normal(size=n) + 0.3 * (a == 1)
    watched = eh.monitor(
        pd.DataFrame({"day": day, "a": a, "s": s}), time="day", period="month", y_pred="s",
        sensitive_features="a",
    )  # fmt: skip
    return np.nan, np.nan, np.nan, np.nan, 0.0, False, bool(watched.alarms)


def metric_in_weighted_families(rng: Random, n: int) -> Outcome:
    """Root mean squared error of both groups, of families under weights."""
    family, noise = families(rng, n)
    a, w = rng.integers(0, 2, n // 5)[family], rng.lognormal(0.0, 0.5, n)
    y = rng.normal(size=n)
    result = eh.audit(
        y, y + noise, sensitive_features=a, sample_weight=w, cluster=family, estimator="logistic"
    ).by_group("root_mean_squared_error")
    ends = np.array([*result.intervals.values()])
    # Intervals hold for all groups at once: that of the worse one stands for both.
    low, high = ends[np.argmax(np.maximum(ends[:, 0] - 1.0, 1.0 - ends[:, 1]))]
    value = float(np.mean([*result.values.values()]))
    return value, low, high, (high - low) / 4.48, 1.0, not np.isfinite(low + high), False


def frequency_in_clusters(rng: Random, n: int) -> Outcome:
    """Rows that stand for one to three people each, in families."""
    family, noise = families(rng, n)
    a, y = rng.integers(0, 2, n // 5)[family], rng.normal(size=n)
    try:
        result = eh.audit(
            y, y + noise, sensitive_features=a, frequency=rng.integers(1, 4, n), cluster=family
        )
    except ValueError:
        return np.nan, np.nan, np.nan, np.nan, 0.0, True, False
    return read_measure(result.separation, 0.0)


def age_in_clusters(rng: Random, n: int) -> Outcome:
    """The age and the score of families, which have nothing to do with one another."""
    family, noise = families(rng, n)
    age = eh.Continuous(40.0 + 12.0 * families(rng, n)[1])
    result = eh.audit(rng.normal(size=n), noise, sensitive_features=age, cluster=family)
    return read_measure(result.independence, 0.0)


def impact_of_inferred(rng: Random, n: int) -> Outcome:
    """Mean scores by inferred groups, where the score depends on the guess alone."""
    z = rng.normal(size=n)
    p, grid = expit(1.5 * z), np.linspace(-8.0, 8.0, 4001)
    s = 0.5 * z + rng.normal(size=n)
    guess = eh.Proxy(np.column_stack([1 - p, p]), ["x", "y"], assume="guess")
    result = eh.audit(rng.normal(size=n), s, sensitive_features=guess, estimator="logistic")
    number = result.impact(reference="x").get("mean_difference", "y")
    share = expit(1.5 * grid) * norm.pdf(grid)
    truth = float(2.0 * (share @ (0.5 * grid)) / share.sum())
    return number.value, number.low, number.high, number.stderr, truth, not number.defined, False


# Entries of tables --------------------------------------------------------------------------------


def slope(weighted: bool) -> Callable[..., Outcome]:
    """Calibration slope 1 where the spread of the target grows with the score."""

    def draw(rng: Random, n: int) -> Outcome:
        a = rng.integers(0, 2, n)
        s = rng.gamma(2.0, size=n)
        y = s + s * rng.normal(size=n)
        w = rng.lognormal(size=n) if weighted else None
        table = eh.audit(y, s, sensitive_features=a, sample_weight=w, estimator="logistic").groups
        return read_entry(table, 1, "calibration_slope", 1.0)

    return draw


def slope_of_premiums(rng: Random, n: int) -> Outcome:
    """Calibration slope 1 of lognormal premiums, where one in ten has a claim, lognormal too."""
    a = rng.integers(0, 2, n)
    s = rng.lognormal(0.0, 0.5, n)
    y = np.where(rng.random(n) < 0.1, 10 * s * rng.lognormal(-0.5, 1.0, n), 0.0)
    table = eh.audit(y, s, sensitive_features=a, estimator="logistic").groups
    return read_entry(table, 1, "calibration_slope", 1.0)


def weighted_mean(tied: bool) -> Callable[..., Outcome]:
    """Mean score under weights, which may go with the score."""

    def draw(rng: Random, n: int) -> Outcome:
        a, z = rng.integers(0, 2, n), rng.normal(size=n)
        w = np.exp(0.8 * z)
        s = 3.0 + (z if tied else rng.normal(size=n))
        table = eh.audit(
            rng.normal(size=n), s, sensitive_features=a, sample_weight=w, estimator="logistic"
        ).groups
        return read_entry(table, 1, "mean_score", 3.8 if tied else 3.0)

    return draw


def mean_by_exposure(rng: Random, n: int) -> Outcome:
    a, e = rng.integers(0, 2, n), rng.uniform(0.05, 1.0, n)
    y = rng.poisson(0.3 * e).astype(float)
    s = rng.gamma(9.0, 0.3 / 9.0, n)
    table = eh.audit(y, s, sensitive_features=a, exposure=e, estimator="logistic").groups
    return read_entry(table, 1, "mean_target", 0.3)


def heavy_tail(rng: Random, n: int) -> Outcome:
    """A group of 5 % whose mean price is 1.3 times the others', lognormal with σ = 1.5."""
    a = (rng.random(n) < 0.05).astype(int)
    s = rng.lognormal(0.0, 1.5, n) * np.where(a == 1, 1.3, 1.0)
    result = eh.audit(rng.normal(size=n), s, sensitive_features=a, estimator="logistic")
    return read_verdict(result.verdict(eh.Tolerance(mean_ratio=(0.8, 1.25), smallest=0.01)))


def best_group(rng: Random, n: int) -> Outcome:
    """Five groups alike: no difference to the best may exclude 0."""
    a = rng.integers(0, 5, n)
    s = rng.normal(size=n)
    result = eh.audit(rng.normal(size=n), s, sensitive_features=a, estimator="logistic")
    table = result.impact(reference="best").to_frame()
    rows = table[table["statistic"] == "mean_difference"]
    covered = ((rows["low"] <= 0) & (rows["high"] >= 0)).all()
    return np.nan, *((-1.0, 1.0) if covered else (1.0, 2.0)), np.nan, 0.0, False, not covered


# Tests, large tables, monitoring ------------------------------------------------------------------


def tied_weights(tilt: float) -> Callable[..., Outcome]:
    """Weights that go with group and score, and a score that is fair under them."""

    def draw(rng: Random, n: int) -> Outcome:
        a = rng.integers(0, 2, n)
        s = rng.normal(size=n) + tilt * a
        w = np.exp(-tilt * a * (s - tilt / 2))  # N(t, 1) tilted by exp(−t·s) is N(0, 1)
        result = eh.audit(rng.normal(size=n), s, sensitive_features=a, sample_weight=w)
        return read_measure(result.independence, 0.0)

    return draw


def gaussian(rng: Random, n: int) -> Outcome:
    """Sufficiency of jointly normal variables: I(Y;A|S) by the difference of two normal terms."""
    a = rng.integers(0, 2, n)
    y = rng.normal(size=n) + 0.3 * a
    s = y + rng.normal(size=n)
    # ρ(a|s,y) is that of y alone: s adds noise to it.
    both, score = shift_information(0.5, 0.3), shift_information(0.5, 0.3 / np.sqrt(2))
    truth = (both - score) / (np.log(2) - score)
    return read_measure(eh.audit(y, s, sensitive_features=a).sufficiency, truth)


def same_people(rng: Random, n: int) -> Outcome:
    """The same people month by month, and nothing that changes."""
    people = n // 12
    a, level = rng.integers(0, 2, people), rng.normal(size=people)
    month = np.repeat(np.arange(12), people)
    table = pd.DataFrame(
        {
            "day": pd.Timestamp("2025-01-15") + pd.to_timedelta(30.4 * month, unit="D"),
            "person": np.tile(np.arange(people), 12),
            "a": np.tile(a, 12),
            "s": np.tile(level, 12) + 0.5 * rng.normal(size=len(month)) + 0.3 * np.tile(a, 12),
        }
    )
    watched = eh.monitor(
        table, time="day", period="month", y_pred="s", sensitive_features="a", cluster="person"
    )
    return np.nan, np.nan, np.nan, np.nan, 0.0, False, bool(watched.alarms)


CASES = [
    Case("copies", "each row twice", "size", 1_000, copied(2)),
    Case("copies", "each row 12 times", "size", 500, copied(12)),
    Case("copies", "a quarter of the rows twice", "size", 1_000, copied(2, 0.25)),
    Case("copies", "a twentieth of the rows twice", "size", 1_000, copied(2, 0.05)),
    Case("copies", "each row three times, with noise", "size", 500, nearly_copied),
    Case("copies", "one of two groups twice", "size", 1_000, one_group_copied),
    Case("copies", "panel, score with noise of .0001", "size", 3_000, panel(1e-4)),
    Case("copies", "panel, score with noise of .01", "size", 3_000, panel(1e-2)),
    Case("copies", "panel, score with noise of .1", "size", 3_000, panel(1e-1), 100),
    Case("copies", "panel, noise of .5", "size", 3_000, panel(0.5), 100),
    Case("copies", "panel, noise of .1, shuffled", "size", 3_000, panel(1e-1, True), 100),
    Case("copies", "panel, score that stays", "size", 3_000, panel(0.0)),
    Case("copies", "the same table twice", "size", 1_000, same_file_twice),
    Case("copies", "cells of rows three times", "size", 1_000, copied_cells),
    Case("copies", "frequency 2", "size", 1_000, copied(2, frequency=True)),
    Case("copies", "frequency 12", "size", 500, copied(12, frequency=True)),
    Case("heavy values", "one group's own score", "interval", 2_000, own_score),
    Case("heavy values", "free for half of one group", "interval", 4_000, free_price),
    Case("heavy values", "score in steps of 0.5", "interval", 2_000, rounded_score(0.5)),
    Case("heavy values", "score in steps of 0.02", "interval", 2_000, rounded_score(0.02)),
    Case("heavy values", "nine targets in ten are zero", "size", 3_000, mostly_zero),
    Case("heavy values", "groups that take turns, six waves", "interval", 1_000, waves),
    Case("heavy values", "a group of 20", "interval", 2_000, small_group),
    Case("discrete targets", "59 levels", "interval", 6_000, levels_of_target(59, 0.3)),
    Case("discrete targets", "59 levels, fair", "size", 6_000, levels_of_target(59, 0.0)),
    Case("discrete targets", "5 levels", "interval", 1_000, levels_of_target(5, 0.5)),
    Case("discrete targets", "200 levels", "interval", 3_000, levels_of_target(200, 0.5)),
    Case(
        "continuous", "surcharge for young and old", "interval", 10_000, young_and_old(False), 200
    ),
    Case("continuous", "the same in whole years", "interval", 10_000, young_and_old(True), 200),
    Case("continuous", "five bands of age", "interval", 1_000, bands_of_age, 200),
    Case("continuous", "surcharge given the target", "interval", 4_000, young_given_target, 100),
    Case("continuous", "fair given steps of the target", "size", 2_000, steps_of_target, 200),
    Case("continuous", "15 clusters", "interval", 600, few_clusters),
    Case("inferred groups", "score by group", "verdict", 4_000, inferred(False)),
    Case("inferred groups", "score by guess", "verdict", 4_000, inferred(True)),
    Case("inferred groups", "score by group, counts", "verdict", 4_000, inferred(False, True)),
    Case("controls", "100 places", "interval", 2_000, given_places(100)),
    Case("controls", "300 places", "interval", 6_000, given_places(300)),
    Case("controls", "a band of the score", "verdict", 1_000, control_of_the_score),
    Case("gates", "majority under 60 names", "verdict", 3_000, split_labels),
    Case("gates", "high scores of one group without a label", "verdict", 2_000, blank_labels),
    Case(
        "gates", "lognormal, sigma 0.5, group of 100", "verdict", 2_000, lognormal_ratio(0.5, 100)
    ),
    Case("gates", "lognormal, sigma 1, group of 100", "verdict", 2_000, lognormal_ratio(1.0, 100)),
    Case("gates", "lognormal, sigma 1, group of 50", "verdict", 2_000, lognormal_ratio(1.0, 50)),
    Case("gates", "distance of .1, the limit", "limit", 2_000, distance_at_limit),
    Case("gates", "rate of .95, group of 40", "verdict", 1_000, rate_near_one),
    Case("by group", "mean absolute error", "interval", 1_000, metric_by_group(False)),
    Case("by group", "mean absolute error in families", "interval", 1_000, metric_by_group(True)),
    Case(
        "several at once",
        "controls, exposure, clusters",
        "interval",
        2_000,
        controls_exposure_clusters,
        200,
    ),
    Case(
        "several at once",
        "inferred groups, controls",
        "interval",
        2_000,
        inferred_with_controls,
        200,
    ),
    Case("several at once", "monitor, a group that vanishes", "size", 4_800, vanishing_group, 200),
    Case(
        "several at once",
        "RMSE by group, clusters, weights",
        "interval",
        1_000,
        metric_in_weighted_families,
        200,
    ),
    Case("several at once", "frequencies, clusters", "size", 1_000, frequency_in_clusters, 200),
    Case("several at once", "age, clusters", "size", 1_000, age_in_clusters, 1_000),
    Case(
        "several at once", "impact of inferred groups", "interval", 2_000, impact_of_inferred, 200
    ),
    Case("tables", "calibration slope, unequal spread", "interval", 800, slope(False), 2_000),
    Case("tables", "calibration slope, weights", "interval", 800, slope(True), 2_000),
    Case(
        "tables", "calibration slope, lognormal claims", "interval", 800, slope_of_premiums, 2_000
    ),
    Case("tables", "mean, weights", "interval", 800, weighted_mean(False), 2_000),
    Case("tables", "mean, weights that go with it", "interval", 800, weighted_mean(True), 2_000),
    Case("tables", "mean outcome by exposure", "interval", 800, mean_by_exposure, 2_000),
    Case("tables", "heavy tail in 5 % of 1,000", "verdict", 1_000, heavy_tail, 2_000),
    Case("impact", "five groups against the best", "size", 1_000, best_group),
    Case("tests", "weights that go with group and score", "size", 300, tied_weights(0.5), 2_000),
    Case("tests", "weights of e^(-score) in one group", "size", 300, tied_weights(1.0), 2_000),
    Case("many rows", "normal, sufficiency", "interval", 1_000_000, gaussian, 100),
    Case("monitor", "the same 400 people monthly", "size", 4_800, same_people),
]


def repeat_case(index: int, day: int, replications: int) -> dict[str, Any]:
    """Outcomes of fresh samples of one case."""
    case = CASES[index]
    rows = []
    for seed in range(replications):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows.append(case.draw(np.random.default_rng([day, index, seed]), case.n))
    return {"outcomes": np.array(rows, dtype=np.float64)}


def summarize(case: Case, outcomes: np.ndarray) -> dict[str, Any]:
    value, low, high, error, truth, withheld, wrong = outcomes.T
    claimed = withheld == 0
    covered = (low <= truth + 1e-12) & (truth <= high + 1e-12)
    judged = claimed & np.isfinite(low) & np.isfinite(truth)

    def share(of: np.ndarray, among: np.ndarray) -> float:
        return float(of[among].mean()) if among.any() else float("nan")

    near = judged & (error > 0)
    return {
        "feature": case.feature, "case": case.name, "claim": case.claim, "n": case.n,
        "replications": len(outcomes), "truth": float(truth[0]),
        "mean": share(value, judged), "covered": share(covered, judged),
        "bias_in_stderr": float((value - truth)[near].mean() / error[near].mean()) if near.any()
        else float("nan"),
        "wrong": float(wrong[claimed].sum() / len(outcomes)), "withheld": float(withheld.mean()),
    }  # fmt: skip


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Coverage, size and wrong passes of all cases, in fresh samples."""
    day = int(datetime.now(UTC).strftime("%Y%m%d"))
    setting.facts["seed"] = day
    wanted = [k for k, case in enumerate(CASES) if setting.wants(case.name)]
    units = [(k, day, setting.choose(CASES[k].samples, 2)) for k in wanted]
    for k, result in zip(wanted, run_all(setting, repeat_case, units, "cases"), strict=True):
        yield summarize(CASES[k], result["outcomes"])
