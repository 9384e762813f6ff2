"""The adaptive estimator: accuracy, invariances, discrete data, and inputs that break others."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, ndtri, softmax, xlogy

import evenhand as eh
from distributions import null_scenario, random_scenario
from evenhand.data.criteria import BOTH, CRITERIA, SCORE, TARGET
from evenhand.data.groups import GroupWarning, Proxy, resolve_groups
from evenhand.data.sample import Sample
from evenhand.estimators import ranks
from evenhand.estimators._newton import fit
from evenhand.estimators.adaptive import Adaptive, _lines
from evenhand.estimators.estimation import EntropyEstimator
from evenhand.estimators.logistic import Logistic
from evenhand.estimators.ranks import cut, gather_two, rescore
from evenhand.estimators.rungs import (
    N_SPLINES,
    blend,
    lean_of,
    pool_losses,
    product_terms,
    smooth,
    spline_table,
)
from evenhand.measures.effective import SharedValuesWarning
from evenhand.measures.entropies import estimate_entropies
from evenhand.measures.measures import measure

ALL = (SCORE, TARGET, BOTH)


def entropies(s, y, a, weight=None, conditions=ALL):
    """[H(A|S), H(A|Y), H(A|S,Y)], estimated; copies of rows are merged, as in a measure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GroupWarning)
        sample = Sample.read(y, s, sensitive_features=a, sample_weight=weight).distinct()[0]
    groups = sample.groups
    found = Adaptive().row_losses(sample.variables, conditions, groups)
    for losses in found.values():
        assert losses.value.shape == losses.influence.shape == (groups.n_known,)
        assert np.isfinite(losses.value).all()
        assert losses.chosen
    return np.array([np.average(found[c].value, weights=groups.weight) for c in conditions])


def sample(family, n, seed=0):
    scenario = random_scenario(family, seed)
    y, s, a = scenario.sample(n, seed + 1)
    return s, y, a, scenario


def plain(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    s = rng.normal(size=n) + a
    return s, 0.5 * s + rng.normal(size=n), a


def test_is_an_entropy_estimator():
    assert isinstance(Adaptive(), EntropyEstimator)


def test_its_name_is_its_call():
    assert repr(Adaptive()) == "Adaptive()"


@pytest.mark.parametrize(
    "family", ["bivariate_normal", "student_t", "bimodal", "gamma", "zero_inflated", "rounded"]
)
def test_close_to_the_oracle(family):
    errors, floors = [], []
    for seed in range(6):
        s, y, a, scenario = sample(family, 2000, seed)
        truth = np.array([scenario.truth.entropies[c] for c in ALL])
        posterior = scenario.log_posteriors(y, s)
        oracle = [-posterior[c][np.arange(len(a)), a].mean() for c in ALL]
        errors.append(entropies(s, y, a) - oracle)
        floors.append(oracle - truth)
    excess = np.sqrt(np.mean(np.square(errors)))
    assert excess < 0.8 * np.sqrt(np.mean(np.square(floors)))


def test_four_groups():
    s, y, a, scenario = sample("four_groups", 3000, 3)
    posterior = scenario.log_posteriors(y, s)
    oracle = np.array([-posterior[c][np.arange(len(a)), a].mean() for c in ALL])
    np.testing.assert_allclose(entropies(s, y, a), oracle, atol=0.012)


@pytest.mark.parametrize("family", ["bivariate_normal", "bimodal", "zero_inflated"])
def test_grid_agrees_with_oracle_on_many_rows(family):
    # Beyond 16,384 rows everything runs on cells; an error of the grid would not shrink with n.
    s, y, a, scenario = sample(family, 100_000, 2)
    posterior = scenario.log_posteriors(y, s)
    oracle = np.array([-posterior[c][np.arange(len(a)), a].mean() for c in ALL])
    np.testing.assert_allclose(entropies(s, y, a), oracle, atol=1.5e-3)


@pytest.mark.parametrize("apart", [0.05, 0.8])
def test_many_normal_rows_are_read_as_by_the_right_model(apart):
    # A quadratic is the truth of normal groups; grid and splines must not hide a part of it.
    rng = np.random.default_rng(0)
    a = (rng.random(300_000) < 0.3).astype(int)
    y = rng.normal(size=len(a)) + 0.5 * a
    s = 0.98 * y + 0.2 * rng.normal(size=len(a)) + apart * a
    groups = resolve_groups(a, n_rows=len(a))
    losses = [
        estimator.row_losses({"s": s, "y": y}, (SCORE, BOTH), groups)
        for estimator in (Adaptive(), Logistic())
    ]
    found, right = (one[SCORE].value - one[BOTH].value for one in losses)
    assert abs(found.mean() - right.mean()) < 0.05 * right.std() / np.sqrt(len(a))


def test_grid_resolves_a_score_that_follows_the_target_closely():
    rng = np.random.default_rng(0)
    n = 50_000
    a = rng.integers(0, 2, n)
    y = rng.normal(size=n)
    s = y + 0.02 * (a + rng.normal(size=n))
    # Given (s, y) only s − y tells, and there the groups are N(0, 1) and N(1, 1): H = 0.5814.
    grid = np.linspace(-8, 9, 4001)
    p1, p0 = np.exp(-0.5 * (grid - 1) ** 2), np.exp(-0.5 * grid**2)
    mix = (p0 + p1) / (p0 + p1).sum()
    q = p1 / (p0 + p1)
    exact = float(-(mix * (q * np.log(q) + (1 - q) * np.log(1 - q))).sum())
    assert entropies(s, y, a)[2] == pytest.approx(exact, abs=0.006)


@pytest.mark.parametrize("n", [400, 6000, 40_000])
def test_exactly_invariant_to_increasing_maps_relabeling_and_row_order(n):
    s, y, a = plain(n)
    base = entropies(s, y, a)
    np.testing.assert_allclose(entropies(np.exp(s), y**3, a), base, atol=1e-9)
    np.testing.assert_allclose(entropies(s, y, 1 - a), base, atol=1e-9)
    order = np.random.default_rng(1).permutation(n)
    np.testing.assert_allclose(entropies(s[order], y[order], a[order]), base, atol=1e-9)
    np.testing.assert_allclose(entropies(-s, y, a), base, atol=2e-4)


def test_relabeling_three_groups():
    s, y, a, _ = sample("four_groups", 600, 5)
    base = entropies(s, y, a)
    np.testing.assert_allclose(entropies(s, y, (a + 2) % 4), base, atol=1e-4)


@given(seed=st.integers(0, 10_000), n=st.integers(20, 120))
@settings(max_examples=10)
def test_integer_weights_are_repeats(seed, n):
    rng = np.random.default_rng(seed)
    s, y, a = plain(n, seed)
    if len(np.unique(a)) < 2:
        return
    weight = rng.integers(1, 4, n)
    rows = np.repeat(np.arange(n), weight)
    repeated = entropies(s[rows], y[rows], a[rows])
    np.testing.assert_allclose(repeated, entropies(s, y, a, weight.astype(float)), atol=1e-6)


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(10, 200),
    levels=st.sampled_from([2, 3, 7, 1000]),
    groups=st.integers(2, 5),
)
@settings(max_examples=15)
def test_entropies_stay_in_range(seed, n, levels, groups):
    rng = np.random.default_rng(seed)
    a = np.concatenate([np.arange(groups), rng.integers(0, groups, n - groups)])
    s = np.floor(levels * rng.random(n)) + (a == 0)
    y = rng.normal(size=n) + s
    found = entropies(s, y, a)
    shares = np.bincount(a) / n
    top = -(shares * np.log(shares)).sum()
    assert (found >= -1e-9).all()
    assert (found <= top * (1.1 + 4 * groups / n)).all()


@pytest.mark.parametrize("n", [2000, 30_000])
def test_table_of_categorical_data(n):
    rng = np.random.default_rng(3)
    s, y = rng.integers(0, 4, n), rng.integers(0, 3, n)
    p = rng.uniform(0.1, 0.9, (4, 3))[s, y]
    a = (rng.random(n) < p).astype(int)
    found = entropies(s.astype(float), y.astype(float), a)

    def plug_in(code):
        table = np.zeros((code.max() + 1, 2))
        np.add.at(table, (code, a), 1.0)
        share = table / table.sum(axis=1, keepdims=True)
        return -(table * np.log(share)).sum() / n

    exact = [plug_in(s), plug_in(y), plug_in(3 * s + y)]
    # The plug-in is low by (cells − 1)/2n; the estimate is not.
    np.testing.assert_allclose(found, exact, atol=8 / n)


def test_point_mass_inside_a_continuous_variable():
    rng = np.random.default_rng(4)
    n = 4000
    a = rng.integers(0, 2, n)
    zero = rng.random(n) < np.where(a == 1, 0.7, 0.3)
    y = np.where(zero, 0.0, rng.normal(size=n))
    h = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3))
    assert entropies(rng.normal(size=n), y, a)[1] == pytest.approx(h, abs=0.02)


def test_groups_that_take_turns_along_the_score_are_followed_in_few_rows():
    errors = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        s = rng.random(1000)
        p = 0.5 + 0.4 * np.sin(12 * np.pi * s)
        a = (rng.random(1000) < p).astype(int)
        oracle = -(xlogy(a, p) + xlogy(1 - a, 1 - p)).mean()
        errors.append(entropies(s, s, a, conditions=(SCORE,))[0] - oracle)
    assert np.abs(errors).max() < 0.024


def test_null_is_near_zero():
    gaps = []
    for seed in range(6):
        y, s, a = null_scenario("separation", seed).sample(1000, seed)
        found = entropies(s, y, a)
        gaps.append(found[1] - found[2])
    assert abs(np.mean(gaps)) < 0.006
    assert min(gaps) > -0.01


@pytest.mark.parametrize("n", [60, 2000, 20_000])
def test_separated_groups_have_no_entropy_left(n):
    rng = np.random.default_rng(0)
    a = np.arange(n) % 2
    found = entropies(10.0 * a + rng.normal(size=n), rng.normal(size=n), a)
    assert found[0] == pytest.approx(0, abs=0.08 if n == 60 else 0.005)
    assert found[2] == pytest.approx(0, abs=0.08 if n == 60 else 0.005)
    found = entropies(a.astype(float), rng.normal(size=n), a)
    assert found[0] == pytest.approx(0, abs=0.08 if n == 60 else 0.005)


@pytest.mark.parametrize("n", [300, 20_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_score_equal_to_target_adds_nothing(n, sign):
    s, _, a = plain(n)
    found = entropies(s, sign * s, a)
    assert found[0] == pytest.approx(found[1], abs=1e-9)
    assert found[2] == pytest.approx(found[0], abs=1e-9 if n == 300 else 5e-4)


def test_constant_score_tells_nothing():
    _, y, a = plain(500)
    shares = np.bincount(a) / len(a)
    found = entropies(np.full(500, 3.0), y, a)
    assert found[0] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-4)
    assert found[2] == pytest.approx(found[1], abs=1e-3)


def test_with_nothing_to_tell_the_estimate_is_the_entropy_of_the_shares():
    # 40 groups of 12 rows: an estimate that left the bias of H(A) out would be 0.04 too high.
    rng = np.random.default_rng(0)
    a = np.repeat(np.arange(40), 12)
    found = entropies(rng.normal(size=480), rng.normal(size=480), a)
    np.testing.assert_allclose(found, np.log(40), atol=0.005)


@pytest.mark.parametrize("n", [10, 12])
def test_ten_rows(n):
    rng = np.random.default_rng(n)
    found = entropies(rng.normal(size=n), rng.normal(size=n), np.arange(n) % 2)
    assert (found > 0.2).all()
    assert (found < 1.0).all()


def test_tiny_group_among_many_rows():
    s, y, a = plain(60_000)
    base = entropies(s, y, a)
    a = a.copy()
    a[:3] = 2
    np.testing.assert_allclose(entropies(s, y, a), base, atol=2e-3)


def test_infinite_tails():
    s, y, a = plain(1000)
    base = entropies(s, y, a)
    wild = np.sign(s) * np.expm1(np.abs(s) * 100)
    np.testing.assert_allclose(entropies(wild, y, a), base, atol=1e-9)


@pytest.mark.parametrize("n", [1000, 20_000])
def test_certain_probabilities_are_labels(n):
    s, y, a = plain(n)
    hard = entropies(s, y, a)
    soft = entropies(s, y, Proxy(np.column_stack([1.0 - a, a]), [0, 1]))
    # On the grid the memberships of a cell are averaged, and only their spread is kept.
    np.testing.assert_allclose(soft, hard, atol=1e-9 if n == 1000 else 2e-4)


def test_certain_probabilities_are_labels_in_a_table():
    rng = np.random.default_rng(3)
    n = 20_000
    s, y = rng.integers(0, 18, n).astype(float), rng.integers(0, 18, n).astype(float)
    a = (rng.random(n) < 0.2 + 0.6 * rng.random((18, 18))[s.astype(int), y.astype(int)]).astype(int)
    soft = entropies(s, y, Proxy(np.column_stack([1.0 - a, a]), [0, 1]))
    # Leaving out an average row instead of one row would make 324 cells 0.008 too low.
    np.testing.assert_allclose(soft, entropies(s, y, a), atol=2e-4)


def test_pooling_averages_probabilities():
    first, second = np.array([0.1, 2.0, 800.0]), np.array([0.3, 0.5, 900.0])
    found = pool_losses([first, second], np.array([0.25, 0.75]))
    expected = -np.log(0.25 * np.exp(-first[:2]) + 0.75 * np.exp(-second[:2]))
    np.testing.assert_allclose(found[:2], expected)
    assert found[2] == pytest.approx(800.0 - np.log(0.25))


def test_bases_that_disagree_widen_the_interval():
    s, y, a, _ = sample("bimodal", 500, 1)
    groups = resolve_groups(a, n_rows=500)
    found = estimate_entropies(CRITERIA.values(), {"s": s, "y": y}, groups, Adaptive())
    joint = found.rows[BOTH]
    assert joint.between > 0
    alike = replace(found, rows={**found.rows, BOTH: replace(joint, between=0.0)})
    separation = CRITERIA["separation"]
    wide = measure(separation, found, 0.95, float("nan"), "auto").stderr
    narrow = measure(separation, alike, 0.95, float("nan"), "auto").stderr
    assert wide**2 - narrow**2 == pytest.approx(joint.between / found.mean[TARGET] ** 2)


def test_zero_weights_leave_rows_out():
    s, y, a = plain(600)
    weight = np.ones(600)
    weight[400:] = 0.0
    np.testing.assert_allclose(
        entropies(s, y, a, weight), entropies(s[:400], y[:400], a[:400]), atol=5e-3
    )


def test_only_the_conditions_asked_for():
    s, y, a = plain(300)
    groups = resolve_groups(a, n_rows=300)
    alone = Adaptive().row_losses({"s": s}, [SCORE], groups)
    both = Adaptive().row_losses({"s": s, "y": y}, [SCORE, BOTH], groups)
    assert list(alone) == [SCORE]
    np.testing.assert_allclose(alone[SCORE].value, both[SCORE].value)


def test_chosen_says_what_was_used():
    s, y, a = plain(3000)
    found = Adaptive().row_losses({"s": s, "y": y}, [SCORE], resolve_groups(a, n_rows=3000))
    assert "terms" in found[SCORE].chosen


def test_leave_one_out_matches_refitting():
    rng = np.random.default_rng(0)
    n = 120
    s, y, a = plain(n)
    a = (a + (rng.random(n) < 0.3)) % 3
    groups = resolve_groups(a, n_rows=n)
    ones = np.ones(n)
    cells = gather_two((cut(s, ones), cut(y, ones)), None, ones, groups, 0)
    columns = np.column_stack([ones, s, y, s * y])
    penalty = np.array([0.0, 0.5, 0.5, 0.5])
    full = fit(columns.T, cells, penalty)
    for row in range(0, n, 17):
        weight = ones.copy()
        weight[row] = 0.0
        part = gather_two((cut(s, ones), cut(y, ones)), None, weight, groups, 0)
        refitted = fit(columns.T, part, penalty)
        np.testing.assert_allclose(
            full.outside[cells.row_entry[row]], refitted.inside[part.row_entry[row]], atol=0.02
        )
    assert full.inside.mean() < full.outside.mean()
    assert 4 < full.terms < 8


def test_traces_of_the_smoothing_matrix_and_its_square():
    rng = np.random.default_rng(0)
    n = 300
    s, y, a = plain(n)
    a = (a + (rng.random(n) < 0.3)) % 3
    ones = np.ones(n)
    cells = gather_two((cut(s, ones), cut(y, ones)), None, ones, resolve_groups(a, n_rows=n), 0)
    columns = np.column_stack([ones, s, y, s * y])
    penalty = np.array([0.0, 5.0, 20.0, 80.0])
    found = fit(columns.T, cells, penalty)
    prob = softmax(np.column_stack([np.zeros(n), columns @ found.theta.T]), axis=1)[:, 1:]
    inner = prob[:, :, None] * (np.eye(2) - prob[:, None, :])
    data = np.einsum("ijk,id,ie->jdke", inner, columns, columns).reshape(8, 8)
    smoothing = np.linalg.solve(data + np.kron(np.eye(2) - 1 / 3, np.diag(penalty)), data)
    np.testing.assert_allclose(found.terms, np.trace(smoothing), rtol=1e-3)
    np.testing.assert_allclose(found.squares, np.trace(smoothing @ smoothing), rtol=1e-3)


def test_the_losses_are_weighed_so_that_fitting_noise_costs_nothing():
    rng = np.random.default_rng(5)
    n, errors, halves = 300, [], []
    ones = np.ones(n)
    columns = np.column_stack([ones, rng.normal(size=(n, 20))])
    penalty = np.append(0.0, np.full(20, 0.25 * n))  # keeps two thirds of each direction
    for _ in range(200):
        a = (rng.random(n) < 0.5).astype(int)
        cells = gather_two(
            (cut(columns[:, 1], ones), cut(columns[:, 2], ones)), None, ones,
            resolve_groups(a, n_rows=n), 0,
        )  # fmt: skip
        found = fit(columns.T, cells, penalty)
        inside, outside = cells.mean(found.inside), cells.mean(found.outside)
        lean = lean_of(found.terms, found.squares)
        errors.append(n * (blend(inside, outside, lean) - np.log(2)))
        halves.append(n * (blend(inside, outside, 0.5) - np.log(2)))
    error = np.std(errors) / np.sqrt(200)
    assert abs(np.mean(errors)) < 3 * error
    assert np.mean(halves) < -5 * error


def test_a_bad_start_does_not_matter():
    # Coefficients from other cells can be far off in the tails, where Newton steps are of no use.
    s, y, a = plain(200)
    ones = np.ones(200)
    cells = gather_two((cut(s, ones), cut(y, ones)), None, ones, resolve_groups(a, n_rows=200), 0)
    columns = np.column_stack([ones, s, y, s**3])
    penalty = np.array([0.0, 0.1, 0.1, 0.1])
    good = fit(columns.T, cells, penalty)
    bad = fit(columns.T, cells, penalty, np.array([[5.0, -80.0, 40.0, 30.0]]))
    np.testing.assert_allclose(bad.inside, good.inside, atol=1e-3)


@pytest.mark.parametrize("count", [20, 40])
def test_spline_table_is_orthonormal_and_symmetric(count):
    low, step, table = spline_table(count)
    assert len(table) == count
    grid = low + step * np.arange(table.shape[1])
    density = np.exp(-0.5 * grid**2)
    gram = table @ (density * table).T / density.sum()
    np.testing.assert_allclose(gram, np.eye(len(table)), atol=2e-3)
    for column in table:
        np.testing.assert_allclose(np.abs(column[::-1]), np.abs(column), atol=1e-6)


def test_six_waves_take_more_splines_and_two_do_not():
    rng = np.random.default_rng(0)
    s = rng.random(1000)
    for waves, more in ((6, True), (2, False)):
        a = (rng.random(1000) < 0.5 + 0.4 * np.sin(2 * np.pi * waves * s)).astype(int)
        out = Adaptive().row_losses({"s": s}, [("s",)], resolve_groups(a, n_rows=1000))
        assert (out[("s",)].terms > 20) == more


def test_levels_keep_ties_together_and_find_point_masses():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.zeros(3000), rng.normal(size=17_000)])
    levels = cut(values, np.ones(20_000))
    assert len(levels.rank) <= 2049
    assert len(set(levels.codes[:3000])) == 1
    assert levels.atom[levels.codes[0]] == 0
    assert (levels.atom >= 0).sum() == 1
    order = np.argsort(values, kind="stable")
    assert (np.diff(levels.codes[order]) >= 0).all()


def test_rescore_gives_normal_scores_of_mid_ranks():
    found = rescore(np.array([3.0, 1.0, 3.0, 2.0]), np.ones(4))
    np.testing.assert_allclose(found, ndtri([0.75, 0.125, 0.75, 0.375]))


def test_smooth_reproduces_a_line():
    u = ndtri((np.arange(200) + 0.5) / 200)
    np.testing.assert_allclose(smooth(u, 2 * u + 1, np.ones(200)), 2 * u + 1, atol=1e-4)


def test_discrete_rows_that_look_alike_are_not_merged():
    rng = np.random.default_rng(0)
    s, y = rng.integers(0, 5, 400).astype(float), rng.integers(0, 5, 400).astype(float)
    a = rng.integers(0, 2, 400)
    # Many values, but people of different groups share them: not copies either.
    other = rng.integers(0, 100, 400).astype(float)
    for score, target in ((s, y), (other, other)):
        found = eh.audit(target, score, sensitive_features=a)
        assert found.n_copies == 0
        assert all(m.n_merged == 0 for m in found.measures.values())


def test_copies_of_soft_rows_are_merged():
    s, y, a = plain(200)
    rows = np.repeat(np.arange(200), 2)
    proxy = np.column_stack([0.9 - 0.8 * a, 0.1 + 0.8 * a])
    once = entropies(s, y, Proxy(proxy, [0, 1]))
    twice = entropies(s[rows], y[rows], Proxy(proxy[rows], [0, 1]))
    np.testing.assert_allclose(twice, once, atol=1e-9)


@pytest.mark.parametrize("discrete", [False, True])
def test_many_rows_are_cut_at_quantiles_with_the_same_result(discrete, monkeypatch):
    rng = np.random.default_rng(7)
    n = 30_000
    a = (rng.random(n) < 0.3).astype(int)
    y = np.where(rng.random(n) < 0.3, 0.0, rng.gamma(2.0, size=n) + 0.5 * a)
    s = y + rng.normal(size=n) * (1 + a)
    if discrete:
        s = np.round(s)
    exact = eh.audit(y, s, sensitive_features=a)
    monkeypatch.setattr(ranks, "EXACT_RANK_ROWS", 10_000)
    rough = eh.audit(y, s, sensitive_features=a)
    turned = eh.audit(np.exp(y), s**3, sensitive_features=a)
    for name in ("independence", "separation", "sufficiency"):
        one, two, three = (getattr(audit, name) for audit in (exact, rough, turned))
        assert abs(one.value - two.value) < 0.05 * one.stderr
        assert three.value == pytest.approx(two.value, abs=1e-12)


@pytest.mark.parametrize("zeros", [False, True])
def test_copies_among_many_rows_are_found(zeros, monkeypatch):
    monkeypatch.setattr(ranks, "EXACT_RANK_ROWS", 10_000)
    s, y, a, _ = sample("bivariate_normal", 5000, 4)
    if zeros:
        y = np.maximum(y, 0.0)
    rows = np.repeat(np.arange(5000), 3)
    np.testing.assert_allclose(entropies(s[rows], y[rows], a[rows]), entropies(s, y, a), atol=1e-9)


@pytest.mark.parametrize("n", [4000, 4200, 20_000])
@pytest.mark.parametrize("levels", [(60, 3), (25, 25)])
def test_a_table_without_order_is_seen_at_every_size(n, levels):
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 0.5, size=levels)
    s, y = (rng.integers(0, k, n) for k in levels)
    a = (rng.random(n) < p[s, y]).astype(int)
    joint, by_target = (xlogy(q, q) + xlogy(1 - q, 1 - q) for q in (p, p.mean(axis=0)))
    found = eh.audit(y, s, sensitive_features=a).separation
    assert abs(found.value - (1 - joint.mean() / by_target.mean())) < 3 * found.stderr


def separation_of_listed_values(p, share, shift):
    """By quadrature, where S | Y, A is normal around m(Y) + shift·A and P(A = 1 | Y) = p."""
    z = np.linspace(-8.0, 8.0, 4001)
    density = np.exp(-0.5 * (z[:, None] - [0.0, shift]) ** 2)
    both = density[:, :, None] * np.stack([1 - p, p]) * share
    both /= both.sum()
    joint = -xlogy(both, both / both.sum(axis=1, keepdims=True)).sum()
    given = -(share * (xlogy(p, p) + xlogy(1 - p, 1 - p))).sum()
    return 1 - joint / given


@pytest.mark.parametrize("spread", [0.0, 0.7, 1.5])
def test_a_target_of_many_values_hides_nothing(spread):
    """Each value has a share of the group of its own, and the score tells more at all of them."""
    rng = np.random.default_rng(1)
    share = rng.dirichlet(np.full(59, 3.0))
    p = expit(-1.0 + spread * rng.normal(size=59))
    y = rng.choice(59, 6000, p=share)
    a = (rng.random(6000) < p[y]).astype(int)
    s = np.linspace(-1.5, 1.5, 59)[y] + 0.25 * a + rng.normal(size=6000)
    found = eh.audit(y, s, sensitive_features=a).separation
    truth = separation_of_listed_values(p, share, 0.25)
    assert found.interval[0] < truth < found.interval[1]
    assert found.value > 0.5 * truth


def test_copies_beside_a_point_mass_are_merged():
    rng = np.random.default_rng(0)
    s, y = np.where(rng.random((2, 500)) < 0.6, 0, rng.gamma(2, size=(2, 500)))
    a = rng.integers(0, 3, 500)
    for rows in (np.repeat(np.arange(500), 3), rng.integers(0, 500, 1500)):
        found = eh.audit(y[rows], s[rows], sensitive_features=a[rows])
        assert max(m.value for m in found.measures.values()) < 0.06


def test_a_score_shared_by_several_rows_is_one_person_whatever_the_target():
    rng = np.random.default_rng(0)
    s, a = np.repeat(rng.normal(size=300), 5), np.repeat(rng.integers(0, 2, 300), 5)
    y = rng.normal(size=1500)
    with pytest.warns(SharedValuesWarning, match="The score has 300 values in 1,500 rows"):
        found = eh.audit(y, s, sensitive_features=a)
    alone = eh.independence(y, s, sensitive_features=a)
    assert found.independence.value == pytest.approx(alone, abs=1e-12)
    assert max(m.value for m in found.measures.values()) < 0.03


def test_errors_with_membership_probabilities_are_those_of_rows():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 20_000)
    y = rng.normal(size=20_000) + 0.8 * a
    s = y + rng.normal(size=20_000) + 0.4 * a
    groups = Proxy(expit(3.0 * (a - 0.5) + rng.normal(size=20_000)), classes=["a", "b"])
    found = [
        eh.audit(y, s, sensitive_features=groups, estimator=estimator).measures.values()
        for estimator in ("auto", "logistic")
    ]
    for one, other in zip(*found, strict=True):
        assert one.value == pytest.approx(other.value, abs=other.stderr)
        assert one.stderr == pytest.approx(other.stderr, rel=0.25)


@pytest.mark.parametrize(
    ("n", "weighted"),
    [(300, True), (3000, False), (3000, True), (5001, False), (5001, True), (40_001, False)],
)
def test_a_falling_map_says_nothing_more(n, weighted):
    rng = np.random.default_rng(n)
    y = rng.normal(size=n)
    a = (rng.random(n) < np.where(np.sin(9 * y) > 0, 0.9, 0.2)).astype(int)
    weight = rng.exponential(size=n) + 0.1 if weighted else None
    for s in (-y, np.exp(-y), -np.round(y, 1)):
        target = np.round(y, 1) if len(np.unique(s)) < n else y
        for call in (eh.separation, eh.sufficiency):
            value = call(target, s, sensitive_features=a, sample_weight=weight)
            assert value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("n", [400, 2000, 5001])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_steps_too_small_for_ranks_give_the_group_away(n, sign):
    """A cent more for one group changes the order of no two rows, and still tells the group."""
    rng = np.random.default_rng(n)
    y, a = np.cumsum(rng.exponential(size=n) + 1e-3), rng.integers(0, 2, n)
    order = rng.permutation(n)
    s = sign * (3.0 * y + 1e-5 * a)
    assert np.array_equal(np.argsort(sign * s), np.argsort(y))
    for call in (eh.separation, eh.sufficiency):
        assert call(y[order], s[order], sensitive_features=a[order]) > 0.95
    # Steps that go with something else tell nothing about this group.
    other = rng.integers(0, 2, n)
    assert eh.separation(y[order], s[order], sensitive_features=other[order]) == pytest.approx(0.0)


def test_groups_far_apart_leave_no_entropy():
    """Less than the log(n)/n that n rows without an exception can show."""
    rng = np.random.default_rng(0)
    a = np.arange(600) % 2
    left, *_ = entropies(rng.normal(size=600) + 8.0 * a, rng.normal(size=600), a)
    assert 0.0 < left < 0.6 * np.log(600) / 600


def test_many_levels_are_binned_and_point_masses_are_not(monkeypatch):
    monkeypatch.setattr(ranks, "most_cells", lambda n_groups: 128)
    rng = np.random.default_rng(0)
    s = np.where(np.arange(3000) % 3 == 0, 0.25, rng.normal(size=3000))
    weight, groups = np.ones(3000), resolve_groups(np.arange(3000) % 2, n_rows=3000)
    cells = ranks.gather_one(cut(s, weight), weight, groups)
    cell = cells.cell[cells.row_entry]
    assert 64 < len(cells.counts) <= 129
    (at,) = np.unique(cell[s == 0.25])
    assert (s[cell == at] == 0.25).all()
    assert np.bincount(cell[s != 0.25]).max() < 60


def test_a_rough_cut_has_the_ranks_of_the_middles_of_its_levels(monkeypatch):
    monkeypatch.setattr(ranks, "EXACT_RANK_ROWS", 1000)
    monkeypatch.setattr(ranks, "_LOOK_ROWS", 1000)
    s = np.random.default_rng(0).normal(size=20_000)
    level = ranks.cut_roughly(s, np.ones(len(s)))
    share = np.bincount(level.codes) / len(s)
    assert len(level.rank) > 100
    np.testing.assert_allclose(level.rank, np.cumsum(share) - share / 2)
    exact = (np.argsort(np.argsort(s)) + 0.5) / len(s)
    assert np.abs(level.rank[level.codes] - exact).max() < 0.01


def test_a_line_is_halved_until_each_level_is_alone():
    depths = []
    for n in (2, 5, 300, 100_000):
        s = np.arange(n) / n
        (plane, _), *_ = _lines("s", ranks.Levels(np.arange(n), s, s, -np.ones(n), n, np.ones(n)))
        depths.append(plane.depth)
    assert depths == [(1, 0), (3, 0), (9, 0), (11, 0)]


@pytest.mark.parametrize(
    ("large", "total", "beside", "most"), [(False, 6, 2, 12), (True, 8, 3, 13)]
)
def test_products_of_splines_are_of_low_degree_or_beside_a_simple_one(large, total, beside, most):
    left, right, *_ = product_terms(large)
    pairs = {*zip(left.tolist(), right.tolist(), strict=True)}
    assert len(pairs) == len(left)
    assert {(j, 0) for j in range(N_SPLINES)} <= pairs
    assert {(i, j) for i in range(total + 1) for j in range(total + 1 - i)} <= pairs
    assert {(beside, j) for j in range(most + 1)} <= pairs
    assert (beside, most + 1) not in pairs
    assert (beside + 1, total - beside) not in pairs
    assert pairs == {(j, i) for i, j in pairs}
