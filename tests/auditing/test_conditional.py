"""Audits among people with the same controls."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from statsmodels.stats.multitest import multipletests

import evenhand as eh
from evenhand.auditing.adjusted_gap import Imbalance, _Gaps
from evenhand.auditing.conditional import products_test
from evenhand.auditing.influence import holm
from evenhand.data.encoding import read_controls
from evenhand.data.groups import GroupWarning, resolve_groups
from evenhand.measures.balancing import Regression, build_basis


def people(n=2000, gap=0.5, noise=1.0, seed=0, slope=0.8):
    rng = np.random.default_rng(seed)
    C = rng.normal(size=(n, 2))
    a = np.where(rng.random(n) < 1 / (1 + np.exp(0.5 - slope * C[:, 0])), "A", "B")
    s = 10 + C[:, 0] + np.sin(C[:, 1]) + gap * (a == "A") + noise * rng.normal(size=n)
    return pd.DataFrame(C, columns=["u", "v"]), a, s


def given(s, a, C, **options):
    options.setdefault("estimator", "logistic")
    return eh.audit(None, s, sensitive_features=a, controls=C, **options).conditional


def test_the_gap_among_equals_is_found():
    C, a, s = people()
    found = given(s, a, C)
    gap = found.gap()
    assert (gap.group, gap.reference) == ("A", "B")
    assert abs(gap.adjusted.value - 0.5) < 3 * gap.adjusted.stderr < 0.2
    assert gap.raw.value > 0.5 + 5 * gap.raw.stderr
    assert gap.raw.value == pytest.approx(s[a == "A"].mean() - s[a == "B"].mean())
    assert gap.explained.value == pytest.approx(gap.raw.value - gap.adjusted.value)
    assert gap.explained_percent.value + gap.adjusted_percent.value == pytest.approx(
        100 * gap.raw.value / s[a == "B"].mean()
    )
    assert gap.adjusted.p_value < 1e-6
    assert found.information.p_value < 1e-6
    assert found.controls == ("u", "v")
    assert not found.is_function


def test_with_one_binary_control_it_is_the_comparison_within_cells():
    rng = np.random.default_rng(1)
    n = 4000
    c = rng.integers(0, 2, n)
    a = rng.random(n) < np.where(c, 0.6, 0.2)
    s = 5 + 2 * c + (0.3 + 0.4 * c) * a + rng.normal(size=n)
    found = given(s, a, c.astype(str)).gap(True)
    cells = [(s[a & (c == k)].mean() - s[~a & (c == k)].mean()) for k in (0, 1)]
    share = c[a].mean()
    by_hand = (1 - share) * cells[0] + share * cells[1]
    assert found.adjusted.value == pytest.approx(by_hand, abs=0.1 * found.adjusted.stderr)
    # The error of a difference of means within cells, weighted by the members' own shares.
    variance = sum(
        p**2 * (s[a & (c == k)].var() / (a & (c == k)).sum())
        + p**2 * (s[~a & (c == k)].var() / (~a & (c == k)).sum())
        for k, p in ((0, 1 - share), (1, share))
    )
    between = share * (1 - share) * (cells[1] - cells[0]) ** 2 / a.sum()
    assert found.adjusted.stderr == pytest.approx(np.sqrt(variance + between), rel=0.02)


def test_percent_needs_a_natural_zero():
    C, a, s = people()
    gap = given(s - 10, a, C).gap()
    assert np.isnan(gap.raw_percent.value)
    assert np.isnan(gap.ratio_percent.value)
    assert np.isfinite(gap.adjusted.value)


def test_ratio_is_that_of_a_multiplicative_tariff():
    C, a, s = people(gap=0.0, noise=0.1)
    price = 100 * np.exp(0.2 * (s - 10)) * np.where(a == "A", 1.1, 1.0)
    ratio = given(price, a, C).gap().ratio_percent
    assert ratio.interval[0] < 10 < ratio.interval[1]
    assert ratio.stderr < 1.0


@pytest.mark.parametrize("gap", [0.0, 0.01])
def test_a_score_without_noise_has_a_valid_error_and_is_named(gap):
    C, a, s = people(gap=gap, noise=0.0)
    found = given(s, a, C)
    assert found.is_function
    assert found.unexplained < 0.01
    adjusted = found.gap().adjusted
    assert adjusted.stderr < 0.02
    assert abs(adjusted.value - gap) < 3.5 * adjusted.stderr
    assert "go by the gaps" in str(found)


def test_groups_alike_given_the_controls_are_not_accused():
    rejected = []
    for seed in range(12):
        C, a, s = people(600, gap=0.0, seed=seed)
        found = given(s, a, C)
        rejected += [found.information.p_value < 0.05, found.gap().adjusted.p_value < 0.05]
    assert np.mean(rejected) < 0.25


def test_a_gap_that_changes_sign_is_seen_by_the_test():
    C, a, s = people(4000, gap=0.0)
    s = s + np.where(a == "A", 0.5, 0.0) * C["u"]
    assert given(s, a, C).information.p_value < 1e-6


def test_one_numeric_control_is_separation_with_it_in_the_targets_place():
    C, a, s = people()
    found = given(s, a, C["u"]).information
    assert found.value == pytest.approx(
        eh.separation(C["u"], s, sensitive_features=a, estimator="logistic"), rel=1e-9
    )
    assert found.criterion == "conditional"
    assert "same controls" in found.meaning


def test_information_through_summaries_is_that_of_the_law():
    C, a, s = people(4000, gap=0.6)
    p = 1 / (1 + np.exp(0.5 - 0.8 * C["u"].to_numpy()))
    rng = np.random.default_rng(9)
    u = rng.normal(size=200_000)
    p = 1 / (1 + np.exp(0.5 - 0.8 * u))
    member = rng.random(len(u)) < p
    r = 0.6 * member + rng.normal(size=len(u))
    odds = p / (1 - p) * np.exp(0.6 * r - 0.18)
    q = odds / (1 + odds)

    def entropy(p):
        return -np.mean(p * np.log(p) + (1 - p) * np.log(1 - p))

    truth = 1 - entropy(q) / entropy(p)
    found = given(s, a, C, estimator="auto").information
    assert abs(found.value - truth) < 3 * found.stderr
    assert found.interval[0] <= truth <= found.interval[1]


def test_five_groups_each_against_the_largest():
    rng = np.random.default_rng(3)
    n = 4000
    C = rng.normal(size=(n, 2))
    level = np.array([1.0, 0.0, 0.0, 0.0, -0.5])
    odds = np.exp(np.outer(C[:, 0], [0.0, 0.5, -0.5, 0.8, 0.2]) + level)
    odds /= odds.sum(axis=1, keepdims=True)
    k = (rng.random(n)[:, None] > odds.cumsum(axis=1)).sum(axis=1)
    gaps = np.array([0.0, 0.5, 0.0, -0.5, 0.3])
    s = C @ [1.0, 0.5] + gaps[k] + rng.normal(size=n)
    found = given(s, np.array(list("abcde"))[k], C)
    assert found.reference == "a"
    assert [g.group for g in found.gaps] == list("bcde")
    for gap, truth in zip(found.gaps, gaps[1:], strict=True):
        assert abs(gap.adjusted.value - truth) < 3.5 * gap.adjusted.stderr
        assert gap.p_adjusted >= gap.adjusted.p_value
    chosen = given(s, np.array(list("abcde"))[k], C, reference="e")
    assert chosen.reference == "e"
    assert len(chosen.gaps) == 4


def test_holm_is_that_of_statsmodels():
    p = [0.01, 0.04, 0.03, 0.5]
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1])
    assert np.isnan(holm([0.01, np.nan])[1])
    assert holm([0.01, np.nan])[0] == 0.01


def test_copies_in_clusters_count_once():
    C, a, s = people(600)
    once = given(s, a, C).gap().adjusted
    twice = np.repeat(np.arange(600), 3)
    found = given(s[twice], a[twice], C.iloc[twice].reset_index(drop=True), cluster=twice)
    thrice = found.gap().adjusted
    assert thrice.stderr == pytest.approx(once.stderr, rel=0.1)
    assert abs(thrice.value - once.value) < 0.5 * once.stderr
    assert found.information.n_clusters == 600
    blind = given(s[twice], a[twice], C.iloc[twice].reset_index(drop=True)).gap().adjusted
    # Without clusters the copies are found, and count once as well.
    assert blind.stderr == pytest.approx(once.stderr, rel=1e-9)


def test_clusters_of_one_are_rows():
    C, a, s = people(500)
    assert given(s, a, C, cluster=np.arange(500)).to_dict() == given(s, a, C).to_dict()


def test_weights_are_those_of_the_people_meant():
    C, a, s = people(3000)
    s = s + np.where(a == "A", 0.6 * (C["u"] > 0), 0.0)
    weight = np.where(C["u"] > 0, 3.0, 1.0)
    found = given(s, a, C, sample_weight=weight).gap()
    member = a == "A"
    truth = 0.5 + 0.6 * np.average(C["u"][member] > 0, weights=weight[member])
    assert abs(found.adjusted.value - truth) < 3 * found.adjusted.stderr
    nothing = given(s, a, C, sample_weight=np.where(np.arange(3000) < 2000, 1.0, 0.0))
    part = given(s[:2000], a[:2000], C[:2000])
    assert nothing.gap().adjusted.value == pytest.approx(part.gap().adjusted.value)


def test_rows_without_a_group_are_left_out():
    C, a, s = people(1500)
    unknown = np.where(np.arange(1500) < 1200, a, None)
    some = given(s, unknown, C).gap()
    alone = given(s[:1200], a[:1200], C[:1200]).gap()
    assert some.adjusted.value == pytest.approx(alone.adjusted.value, rel=1e-9)


def test_frames_text_and_gaps():
    C, a, s = people()
    C["zone"] = np.where(C["v"] > 0, "town", None)
    C.loc[::20, "u"] = np.nan
    found = given(s, a, C)
    assert found.controls == ("u", "v", "zone")
    again = given(s, a, pl.from_pandas(C))
    assert again.gap().adjusted.value == pytest.approx(found.gap().adjusted.value, rel=1e-6)


def test_a_proxy_counts_in_shares():
    C, a, s = people(3000)
    sure = np.column_stack([a == "A", a == "B"]).astype(float)
    hard = given(s, np.where(a == "A", "A", "B"), C).gap().adjusted
    soft = given(s, eh.Proxy(sure, ["A", "B"]), C).gap().adjusted
    assert soft.value == pytest.approx(hard.value, abs=0.2 * hard.stderr)


def test_frequencies_are_people():
    C, a, s = people(300)
    # Few rows stand for several people: pairs that repeat all over the table are copies.
    count = 1 + (np.arange(300) % 40 == 0)
    rows = np.repeat(np.arange(300), count)
    found = given(s, a, C, frequency=count)
    again = given(s[rows], a[rows], C.iloc[rows].reset_index(drop=True))
    assert found.gap().adjusted.value == pytest.approx(again.gap().adjusted.value)


def test_members_without_counterparts_are_counted_and_warned_of():
    C, a, s = people(3000, slope=4.0)
    with pytest.warns(GroupWarning, match=r"% of 'A' have hardly any counterpart in 'B'"):
        found = given(s, a, C)
    gap = found.gap()
    assert 0.1 < gap.no_counterpart < 0.9
    assert gap.n_compared < gap.n
    assert found.no_counterpart == pytest.approx(gap.no_counterpart)
    assert "hardly any counterpart" in " ".join(str(found).split())
    assert abs(gap.adjusted.value - 0.5) < 3.5 * gap.adjusted.stderr


def test_a_group_of_few_clusters_is_not_compared():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(100), 10)
    a = np.where(cluster < 3, "rare", np.where(cluster % 2, "b", "c"))
    c, s = rng.normal(size=1000), rng.normal(size=1000)
    with (
        pytest.warns(GroupWarning, match="fewer than 10 effective clusters in 'rare'"),
        pytest.warns(GroupWarning, match="'rare' is not compared: the group counts for 3 eff"),
    ):
        found = given(s, a, c, cluster=cluster)
    gap = found.gap("rare")
    assert not gap.is_estimated
    assert np.isnan(gap.p_adjusted)
    assert np.isfinite(found.gap("c").adjusted.value)
    assert "group 'rare' are not compared" in " ".join(str(found).split())
    assert gap.balance == Imbalance("rare", "", 0.0, 0.0)


@pytest.fixture(scope="module")
def four_clusters():
    cluster = np.repeat(np.arange(4), 50)
    s = np.random.default_rng(0).normal(2.0, 1.0, 200)
    groups = resolve_groups(np.where(cluster < 2, "a", "b"), n_rows=200, cluster=cluster)
    basis = build_basis(read_controls(s, 200), 200.0)
    return _Gaps(s, groups, basis, 0, 0.95, 0), cluster


def test_errors_of_an_adjusted_gap_are_those_of_a_sum_over_clusters(four_clusters):
    gaps, cluster = four_clusters
    psi = gaps.s - gaps.s.mean()
    found = gaps.estimate(0.7, psi, [0, 1])
    sums = np.bincount(cluster, psi)
    assert found.value == 0.7
    assert found.stderr == pytest.approx(np.sqrt((sums**2).sum() * 4 / 3))
    # The units of one group alone.
    alone = gaps.estimate(0.7, psi, [0])
    assert alone.stderr == pytest.approx(np.sqrt((sums[:2] ** 2).sum() * 2))


def test_there_is_no_ratio_to_a_price_below_zero(four_clusters):
    gaps, _ = four_clusters
    inside, psi = np.ones(200), np.zeros(200)
    assert np.isnan(gaps._ratio(gaps.s.mean() + 1.0, psi, inside, [0, 1]).value)
    half = gaps._ratio(gaps.s.mean() / 2, psi, inside, [0, 1])
    assert half.value == pytest.approx(100.0)


def test_the_result_shows_itself(tmp_path):
    C, a, s = people()
    audit = eh.audit(None, s, sensitive_features=a, controls=C, estimator="logistic")
    text = " ".join(str(audit).split())
    assert "Among people with the same controls (u, v)" in text
    assert "points of that go with the controls and" in text
    assert text.index("go with the controls") < text.index("Independence")
    frame = audit.conditional.to_frame()
    assert frame["adjusted"][0] == audit.conditional.gap().adjusted.value
    saved = json.loads(json.dumps(audit.to_dict()))
    assert saved["conditional"]["gaps"][0]["group"] == "A"
    page = audit.to_html(tmp_path / "a.html").read_text()
    assert page.index("Among people with the same controls") < page.index("In short")
    with pytest.raises(KeyError, match="no gap of 'C' against 'B'; there are 'A'"):
        audit.conditional.gap("C")


def test_crossed_attributes_and_several_models():
    C, a, s = people(1500)
    b = np.where(np.random.default_rng(5).random(1500) < 0.5, "x", "y")
    crossed = eh.audit(
        None, s, sensitive_features={"a": a, "b": b}, controls=C, estimator="logistic"
    )
    assert len(crossed.conditional.gaps) == 3
    assert abs(crossed.attributes["a"].conditional.gap().adjusted.value - 0.5) < 0.2
    two = eh.audit(
        None, {"one": s, "two": s + 1}, sensitive_features=a, controls=C, estimator="logistic"
    )
    assert two["one"].conditional.gap().adjusted.value == pytest.approx(
        two["two"].conditional.gap().adjusted.value
    )


def test_results_repeat():
    C, a, s = people(1000)
    assert given(s, a, C).to_dict() == given(s, a, C).to_dict()


def zips(n, count, seed=0, noise=0.5):
    """ZIP codes that move price and group; people of one ZIP pay the same but for noise."""
    rng = np.random.default_rng(seed)
    price, odds = rng.normal(size=count), rng.normal(size=count)
    at = rng.integers(0, count, n)
    a = np.where(rng.random(n) < 1 / (1 + np.exp(0.5 - 0.7 * (price + odds)[at])), "A", "B")
    return np.array([f"{60000 + k}" for k in at]), a, 10 + price[at] + noise * rng.normal(size=n)


def covered(draw, replications=8):
    """How often intervals hold a gap of 0, and how often the test rejects."""
    hits = []
    for seed in range(replications):
        C, a, s = draw(seed)
        result = given(s, a, C, reference="B")
        low, high = result.gap().adjusted.interval
        hits.append([low <= 0 <= high, result.information.p_value > 0.01])
    return np.mean(hits, axis=0)


@pytest.mark.parametrize(("n", "count"), [(2000, 100), (5000, 150), (2000, 300)])
@pytest.mark.filterwarnings("ignore::evenhand.data.groups.GroupWarning")
def test_a_fair_price_by_zip_code_is_fair_however_many_there_are(n, count):
    gap, test = covered(lambda seed: zips(n, count, seed))
    assert gap >= 0.75
    assert test >= 0.75


@pytest.mark.parametrize("kind", ["slopes", "product", "crossed", "numbers"])
def test_controls_that_act_together(kind):
    def draw(seed):
        rng = np.random.default_rng(seed)
        n = 800 if kind == "numbers" else 1500
        x = rng.normal(size=(n, 20 if kind == "numbers" else 3))
        level, other = rng.integers(0, 4, n), rng.integers(0, 5, n)
        if kind == "slopes":
            f, C = (
                np.linspace(-1, 1, 4)[level] * x[:, 0],
                {"x": x[:, 0], "level": level.astype(str)},
            )
        elif kind == "product":
            f, C = x.prod(axis=1), x
        elif kind == "crossed":
            f = rng.normal(size=(4, 5))[level, other]
            C = {"level": level.astype(str), "other": other.astype(str)}
        else:
            f, C = 0.5 * x[:, :6].sum(axis=1), x
        a = np.where(rng.random(n) < 1 / (1 + np.exp(0.3 - f)), "A", "B")
        return C, a, 10 + f + rng.normal(size=n)

    assert (covered(draw) >= 0.75).all()


@pytest.mark.parametrize("kind", ["corner", "six"])
def test_steps_of_numbers_are_followed(kind):
    """Without leaves gaps are off by 0.9 and 1.7 standard errors, and tests reject 80 and 30 %."""

    def draw(seed):
        rng = np.random.default_rng([7, seed])
        x = rng.normal(size=(3000, 6 if kind == "six" else 3))
        f = ((x[:, 0] > 0.3) & (x[:, 1] < 0.2)) + 1.0 * (np.abs(x[:, 2]) < 0.5)
        if kind == "six":
            f = 0.5 * (x > 0.3 * rng.normal(size=6)).sum(axis=1)
        a = np.where(rng.random(3000) < 1 / (1 + np.exp(f.mean() - f)), "A", "B")
        return x, a, 10 + f + 0.5 * rng.normal(size=3000)

    off, rejected = [], []
    for seed in range(10):
        C, a, s = draw(seed)
        result = given(s, a, C, reference="B")
        off.append(result.gap().adjusted.value / result.gap().adjusted.stderr)
        rejected.append(result.information.p_value < 0.05)
    assert abs(np.mean(off)) < 0.5
    assert np.abs(off).max() < 3.0
    assert np.sum(rejected) <= 2


def test_a_score_that_is_a_function_of_zip_codes_alone_is_fair():
    C, a, s = zips(3000, 80, noise=0.0)
    result = given(s, a, C)
    assert result.is_function
    assert result.gap().adjusted.value == 0.0
    assert result.gap().adjusted.p_value == 1.0
    assert result.information.value == 0.0


def test_what_weights_leave_is_reported_and_withholds_a_verdict():
    C, a, s = people()
    audit = eh.audit(None, s, sensitive_features=a, controls=C, estimator="logistic")
    balance = audit.conditional.balance
    assert balance.group == "A"
    assert balance.largest < 0.02
    assert balance.is_balanced
    tolerance = eh.Tolerance(adjusted_gap=(-0.01, 0.01), conditional=0.001)
    assert audit.verdict(tolerance).outcome == "fail"
    gap = audit.conditional.gaps[0]
    apart = replace(gap.balance, control="u", difference=0.2)
    worse = replace(audit.conditional, gaps=(replace(gap, balance=apart),))
    verdict = replace(audit, conditional=worse).verdict(tolerance)
    assert verdict.outcome == "not enough data"
    assert all("still differ by 0.2 standard deviations" in c.note for c in verdict.clauses)
    assert "u still differs by 0.2 standard deviations" in " ".join(str(worse).split())


def test_with_exposure_gaps_are_per_unit_of_it():
    C, a, s = people(3000)
    exposure = np.random.default_rng(1).uniform(0.1, 2.0, 3000)
    claims = np.random.default_rng(2).poisson(exposure * s)
    audit = eh.audit(
        claims, s, sensitive_features=a, controls=C, exposure=exposure, estimator="logistic"
    )
    raw = audit.conditional.gap().raw.value
    means = [np.average(s[a == k], weights=exposure[a == k]) for k in "AB"]
    assert raw == pytest.approx(means[0] - means[1])
    frame = audit.groups
    assert raw == pytest.approx(float(np.diff(np.asarray(frame["mean_score"]))[0]) * -1)


def bad(**changes):
    C, a, s = people(300)
    return {"s": s, "a": a, "C": C, **changes}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"C": d["a"]}, "must leave the group open, but 'control' determines it"),
        (
            lambda d: {"C": np.where(d["a"] == "A", 5.0, -5.0) + d["s"] / 100},
            "`controls` must leave the group open, but 'control' determines it: no member",
        ),
        (lambda d: {"C": d["s"]}, "`controls` must not hold the score itself: column 'control'"),
        (lambda d: {"C": 100 * d["s"] + 7}, "must not hold the score itself: column 'control'"),
        (lambda d: {"C": -np.exp(d["s"] / 10)}, "must not hold the score itself"),
        (
            lambda d: {"C": {"decile": np.digitize(d["s"], [9, 10, 11])}},
            "score itself: column 'dec",
        ),
        (
            lambda d: {"C": np.array(["low", "high"])[1 * (d["s"] > 10)]},
            "not hold the score itself",
        ),
        (
            lambda d: {"C": d["s"] + 1e-3 * np.random.default_rng(1).normal(size=300)},
            r"column 'control' is \(nearly\) a function of the score",
        ),
        (lambda d: {"C": d["C"][:200]}, "`controls` must have one entry per row: got 200 for 300"),
        (lambda d: {"C": np.ones(300)}, "`controls` must hold a column that can be used"),
        (lambda d: {"cluster": np.zeros(300)}, "`cluster` must hold at least two clusters"),
        (lambda d: {"reference": "Z"}, "`reference` must be 'largest' or one of 'A', 'B', got"),
    ],
)
def test_bad_input_is_refused(change, message):
    data = bad()
    data.update(change(data))
    options = {k: data[k] for k in ("cluster", "reference") if k in data}
    with pytest.raises(ValueError, match=message):
        given(data["s"], data["a"], data["C"], **options)


def test_a_price_of_one_factor_and_the_group_is_no_copy_of_the_factor():
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=2000), np.where(rng.random(2000) < 0.4, "A", "B")
    s = 100 + 20 * x + 0.5 * (a == "A") + 0.05 * rng.normal(size=2000)
    gap = given(s, a, {"x": x}).gap().adjusted
    assert gap.value == pytest.approx(0.5, abs=4 * gap.stderr)
    assert gap.stderr < 0.01


def test_rows_of_controls_must_match():
    C, a, s = people(300)
    shuffled = C.sample(frac=1.0, random_state=0)
    with pytest.raises(ValueError, match="`controls`"):
        given(pd.Series(s), a, shuffled)


def test_small_levels_do_not_make_the_test_reject():
    """200 ZIP codes and 600 rows: a third of what residuals can vary is used up."""
    rejected = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        zips = rng.integers(0, 200, 600)
        move = rng.normal(size=(2, 200))
        a = np.where(rng.random(600) < 1 / (1 + np.exp(-move[0, zips])), "A", "B")
        groups = resolve_groups(a, n_rows=600)
        s = move.sum(axis=0)[zips] + rng.normal(size=600)
        controls = read_controls({"zip": np.char.add("z", zips.astype(str))}, 600)
        regression = Regression(build_basis(controls, groups.n_effective), groups, s)
        expected = regression.predict(s)
        rejected.append(products_test(s - expected, expected, regression).p_value < 0.05)
    assert np.mean(rejected) <= 0.1
