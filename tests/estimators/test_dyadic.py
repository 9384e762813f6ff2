"""The mixture over dyadic partitions: its probabilities, what it sees, what it does not invent."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln

import evenhand as eh
from distributions import rough_scenario
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.estimators import rungs
from evenhand.estimators._leave_out import losses_without_fold
from evenhand.estimators._newton import fit
from evenhand.estimators.adaptive import Adaptive, residual
from evenhand.estimators.dyadic import ROOTS, Plane, _count, _move_cuts, bins_of, grow, screen
from evenhand.estimators.ranks import by_frequency, cut, gather_one, is_heaped
from evenhand.estimators.rungs import Ladder, prepare
from evenhand.kernels import dyadic as kernels
from evenhand.measures.effective import SharedValuesWarning
from evenhand.measures.entropies import estimate_entropies
from evenhand.measures.measures import measure

ALPHA = np.array([0.5, 0.5])


def log_evidence(cells, alpha=ALPHA):
    cells = np.asarray(cells, dtype=float)
    return kernels.evidence(cells, alpha, kernels.log_rising(alpha, 64))


def dirichlet(counts, alpha=ALPHA):
    counts = np.asarray(counts, dtype=float)
    out = gammaln(alpha.sum()) - gammaln(counts.sum() + alpha.sum())
    return out + (gammaln(counts + alpha) - gammaln(alpha)).sum()


def brute(cells):
    """log P by the recursion itself, over nested lists of cells."""
    rows, columns, _ = cells.shape
    dm = dirichlet(cells.sum(axis=(0, 1)))
    splits = []
    if rows > 1:
        splits.append(brute(cells[: rows // 2]) + brute(cells[rows // 2 :]))
    if columns > 1:
        splits.append(brute(cells[:, : columns // 2]) + brute(cells[:, columns // 2 :]))
    if not splits:
        return dm
    return np.logaddexp(np.log(0.5) + dm, np.log(0.5 / len(splits)) + np.logaddexp.reduce(splits))


def test_log_rising():
    table = kernels.log_rising(np.array([0.3, 0.7]), 50)
    c = np.arange(50)
    for row, alpha in zip(table, (0.3, 0.7, 1.0), strict=True):
        np.testing.assert_allclose(row, gammaln(c + alpha) - gammaln(alpha), atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (2, 2), (4, 4), (8, 2)])
@pytest.mark.parametrize("unit", [1.0, 0.7])
def test_evidence_is_the_recursion(shape, unit):
    rng = np.random.default_rng(0)
    cells = unit * rng.integers(0, 5, (*shape, 2)).astype(float)
    _, log_p, _ = log_evidence(cells)
    assert log_p[1, 1] == pytest.approx(brute(cells), abs=1e-8)


def test_leaving_one_out_is_exact():
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 4, (4, 4, 2)).astype(float)
    rectangles, log_p, log_stop = log_evidence(cells)
    share, live, _ = kernels.leaf_shares(log_p, log_stop)
    _, outside = kernels.cell_probabilities(rectangles, share, live, ALPHA, np.empty((0, 0, 0)))
    for row, column, group in product(range(4), range(4), range(2)):
        if cells[row, column, group]:
            fewer = cells.copy()
            fewer[row, column, group] -= 1
            exact = np.exp(brute(cells) - brute(fewer))
            assert outside[row, column, group] == pytest.approx(exact, rel=1e-6)


def test_every_cell_lies_in_one_part():
    rng = np.random.default_rng(2)
    cells = rng.integers(0, 9, (8, 8, 3)).astype(float)
    alpha = np.full(3, 0.5)
    _, log_p, log_stop = log_evidence(cells, alpha)
    share, _, leaves = kernels.leaf_shares(log_p, log_stop)
    for row, column in product(range(8), range(8)):
        total, i = 0.0, 8 + row
        while i:
            j = 8 + column
            while j:
                total += share[i, j]
                j >>= 1
            i >>= 1
        assert total == pytest.approx(1.0, abs=1e-6)
    assert 1.0 <= leaves <= 64.0


def test_only_cells_that_are_asked_for_are_found():
    rng = np.random.default_rng(3)
    cells = rng.integers(0, 9, (4, 4, 2)).astype(float)
    rectangles, log_p, log_stop = log_evidence(cells)
    share, live, _ = kernels.leaf_shares(log_p, log_stop)
    near, _ = kernels.cell_probabilities(rectangles, share, live, ALPHA, np.empty((0, 0, 0)))
    asked = np.zeros(cells.shape)
    asked[[0, 3], [2, 1]] = 1.0
    some, _ = kernels.cell_probabilities(rectangles, share, live, ALPHA, asked)
    np.testing.assert_allclose(some[[0, 3], [2, 1]], near[[0, 3], [2, 1]], rtol=1e-9)
    assert (some[asked == 0.0] == 1.0).all()


# --- what it sees ---------------------------------------------------------------------------------


def separation(scenario, n, seed, **options):
    y, s, a = scenario.sample(n, seed)
    groups = resolve_groups(a, n_rows=n, **options)
    entropies = estimate_entropies(CRITERIA.values(), {"s": s, "y": y}, groups, Adaptive())
    return [measure(c, entropies, 0.95, float("nan"), "auto") for c in CRITERIA.values()]


ROUGH = ["checkerboard_4", "near_copy_size", "parity_30", "ties_both", "spot", "colors_3"]
ROUGHER = ["ring", "oscillation", "band_5", "near_copy_sign", "parity_10", "ties_target", "jump",
           "stripes"]  # fmt: skip


@pytest.mark.parametrize(
    "family", [*ROUGH, *(pytest.param(family, marks=pytest.mark.slow) for family in ROUGHER)]
)
def test_rough_laws(family):
    scenario = rough_scenario(family)
    for found in separation(scenario, 20_000, 3):
        truth = scenario.truth.value(found.criterion)
        assert abs(found.value - truth) < 0.1 * truth + 3 * found.stderr + 0.002, found


@pytest.mark.parametrize(
    "n", [5_000, 60_000, pytest.param(300_000, marks=pytest.mark.slow)]
)  # fmt: skip
def test_more_rows_never_lose_what_fewer_saw(n):
    found = separation(rough_scenario("sign"), n, 1)[1]
    assert found.value == pytest.approx(0.531, abs=0.03 if n < 10_000 else 0.012)
    assert found.interval[0] > 0.4
    assert found.chosen.startswith("partitions")


@pytest.mark.parametrize("n", [500, 2_000, 20_000])
def test_nothing_is_invented(n):
    rng = np.random.default_rng(n)
    s, y = rng.standard_normal((2, n))
    groups = resolve_groups(rng.integers(0, 2, n), n_rows=n)
    found = estimate_entropies(CRITERIA.values(), {"s": s, "y": y}, groups, Adaptive())
    assert all(abs(found.normalized(c)) < 10.0 / n for c in CRITERIA.values())


def test_weights_and_probabilities():
    scenario = rough_scenario("checkerboard_4")
    y, s, a = scenario.sample(6_000, 0)
    truth = scenario.truth.separation
    weight = np.random.default_rng(0).uniform(0.5, 1.5, len(a))
    weighted = eh.separation(y, s, sensitive_features=a, sample_weight=weight)
    assert weighted == pytest.approx(truth, abs=0.08)
    soft = eh.Proxy(np.column_stack([1 - a, a]).astype(float), ["x", "y"])
    hard = eh.separation(y, s, sensitive_features=a)
    assert eh.separation(y, s, sensitive_features=soft) == pytest.approx(hard, abs=1e-9)


@pytest.mark.parametrize("n", [2_000, 5_000])
def test_a_continuous_part_beside_a_point_mass_is_no_table(n):
    rng = np.random.default_rng(n)
    score = np.where(rng.random(n) < 0.8, 0.0, rng.gamma(1.0, size=n))
    found = eh.audit(None, score, sensitive_features=rng.integers(0, 2, n)).independence
    assert abs(found.value) < 0.003
    assert found.stderr < 0.003


@pytest.mark.parametrize("size", [2, 20])
def test_clusters_that_are_only_labels_change_little(size):
    scenario = rough_scenario("checkerboard_4")
    y, s, a = scenario.sample(4_000, 1)
    found = eh.separation(y, s, sensitive_features=a, cluster=np.arange(4_000) // size)
    assert found == pytest.approx(scenario.truth.separation, abs=0.08)


def test_resolution_is_estimated_and_taken_off():
    scenario = rough_scenario("ring", margins="normal")
    plain, corrected = [], []
    for seed in range(4):
        y, s, a = scenario.sample(20_000, seed)
        groups = resolve_groups(a, n_rows=len(a))
        weight = np.ones(len(a))
        plane = Plane("x", (cut(s, weight), cut(y, weight)), (8, 8))
        found = grow(plane, prepare(groups))
        oracle = -np.log(scenario.posterior(s, y)[a, np.arange(len(a))]).mean()
        value = 0.5 * (found.mean_inside + found.mean_outside)
        plain.append(value - oracle)
        corrected.append(value - found.shift - oracle)
        assert 0 < found.doubt < found.shift
    assert np.mean(plain) > 0.008
    assert abs(np.mean(corrected)) < 0.5 * np.mean(plain)


def test_a_first_look_is_the_loss_on_one_grid():
    rng = np.random.default_rng(0)
    s, y = rng.standard_normal((2, 3000))
    a = (s * y > 0).astype(int)
    weight = np.ones(3000)
    groups = resolve_groups(a, n_rows=3000)
    plane = Plane("x", (cut(s, weight), cut(y, weight)), (5, 5))
    found = screen(plane, prepare(groups))
    soft = eh.Proxy(np.column_stack([1 - a, a]).astype(float), [0, 1])
    same = screen(plane, prepare(resolve_groups(soft, n_rows=3000)))
    assert found == pytest.approx(same, rel=1e-9)
    assert found < 0.1


def test_cuts_move_to_straight_edges():
    rng = np.random.default_rng(0)
    s, y = rng.random((2, 20_000))
    a = ((s > 0.37) ^ (y > 0.81)).astype(int)
    weight = np.ones(len(a))
    data = prepare(resolve_groups(a, n_rows=len(a)))
    counts = _count(Plane("x", (cut(s, weight), cut(y, weight)), (7, 7)), data)
    stretched = _move_cuts(counts, data)
    for rank, moved, edge in zip(
        counts.rank, stretched.rank, ((s < 0.37).mean(), (y < 0.81).mean()), strict=True
    ):
        # Between two cuts lie two bins of the grid that is searched.
        assert np.abs(np.interp(np.arange(33) / 32, moved, rank) - edge).min() < 0.001


@pytest.mark.parametrize("family", ["checkerboard_5", "colors_10"])
def test_boards_that_halving_does_not_meet(family):
    # Without moved cuts these are 2 % too high and 3.7 % too low.
    scenario = rough_scenario(family)
    y, s, a = scenario.sample(20_000, 0)
    value = eh.separation(y, s, sensitive_features=a)
    assert value == pytest.approx(scenario.truth.separation, rel=0.02)


def test_bins_tell_few_values_apart_and_reverse_with_the_side():
    rank = np.sort(np.random.default_rng(0).random(20))
    assert len(set(bins_of(rank, 5, ROOTS[0]))) == 20
    many = (np.arange(300) + 0.5) / 300
    forward = bins_of(many, 8, ROOTS[1])
    backward = bins_of((1 - many)[::-1], 8, ROOTS[2])
    np.testing.assert_array_equal(forward, 255 - backward[::-1])


# --- coordinates ----------------------------------------------------------------------------------


def test_common_values_come_last():
    values = np.repeat([1.0, 2.0, 3.0, 4.0], [5, 50, 6, 7])
    level = cut(values, np.ones(len(values)))
    assert is_heaped(level)
    ordered = by_frequency(level)
    assert (ordered.codes[values == 2.0] == 3).all()
    assert (np.diff(ordered.rank) > 0).all()
    assert not is_heaped(cut(np.arange(100.0), np.ones(100)))


@pytest.mark.parametrize("noise", [1.0, 0.01])
@pytest.mark.parametrize("map_", [lambda v: v, np.exp], ids=["as it is", "exp"])
def test_a_residual_keeps_the_order_given_the_other(noise, map_):
    rng = np.random.default_rng(0)
    y = rng.standard_normal(20_000)
    e = rng.standard_normal(20_000)
    s = map_(y + noise * e)
    weight = np.ones(len(y))
    rest = residual(cut(s, weight), cut(y, weight), weight)
    assert np.corrcoef(np.argsort(np.argsort(rest)), np.argsort(np.argsort(e)))[0, 1] > 0.85


# --- leaving clusters out -------------------------------------------------------------------------


def test_leaving_a_fold_out_is_close_to_a_new_fit():
    rng = np.random.default_rng(0)
    n = 600
    cluster = np.repeat(np.arange(30), 20)
    s = rng.standard_normal(n) + 0.5 * rng.standard_normal(30)[cluster]
    a = (rng.random(n) < 1 / (1 + np.exp(-s))).astype(int)
    weight = np.ones(n)
    groups = resolve_groups(a, n_rows=n, cluster=cluster)
    level = cut(s, weight)
    cells = gather_one(level, weight, groups, groups.cluster)
    columns = np.column_stack([np.ones(len(level.score)), level.score, level.score**2])
    penalty = np.array([0.0, 0.05, 0.05])
    found = losses_without_fold(columns.T, cells, penalty, fit(columns.T, cells, penalty).theta)
    rows = found[cells.row_entry]
    for left in (0, 7, 29):
        keep = cluster != left
        others = resolve_groups(a[keep], n_rows=int(keep.sum()))
        part = gather_one(cut(s[keep], weight[keep]), weight[keep], others)
        at = level.score[level.codes[keep]]
        part = type(part)(
            (at,), (np.full(len(at), -1),), (None,), np.eye(2)[a[keep]], np.arange(len(at)),
            np.eye(2)[a[keep]], weight[keep], weight[keep], np.zeros(len(at)), np.arange(len(at)),
        )  # fmt: skip
        basis = np.column_stack([np.ones(len(at)), at, at**2])
        theta = fit(basis.T, part, penalty).theta[0]
        own = level.score[level.codes[~keep]]
        eta = theta[0] + theta[1] * own + theta[2] * own**2
        exact = np.logaddexp(0.0, eta) - a[~keep] * eta
        np.testing.assert_allclose(rows[~keep], exact, atol=0.01)


def test_rows_of_one_person_count_once():
    rng = np.random.default_rng(0)
    s, y = rng.standard_normal((2, 800))
    a = (rng.random(800) < 1 / (1 + np.exp(-2 * s))).astype(int)
    once = eh.audit(y, s, sensitive_features=a)
    rows = np.repeat(np.arange(800), 3)
    thrice = eh.audit(y[rows], s[rows], sensitive_features=a[rows], cluster=rows)
    assert thrice.independence.value == pytest.approx(once.independence.value, abs=0.02)
    ratio = thrice.independence.stderr / once.independence.stderr
    assert 0.8 < ratio < 1.25


def test_a_value_that_gives_the_cluster_away_gives_nothing_away_about_others():
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(200), 20)
    y = rng.standard_normal(200)[cluster]
    a = rng.integers(0, 2, 200)[cluster]
    s = y + rng.standard_normal(len(y))
    with pytest.warns(SharedValuesWarning, match="The target has 200 values in 4,000 rows"):
        apart = eh.sufficiency(y, s, sensitive_features=a)
    together = eh.sufficiency(y, s, sensitive_features=a, cluster=cluster)
    assert apart > 0.5
    assert together < 0.05


# --- pooling --------------------------------------------------------------------------------------


def test_a_grid_has_no_table():
    rng = np.random.default_rng(0)
    s = rng.standard_normal(20_000)
    weight = np.ones(len(s))
    groups = resolve_groups(rng.integers(0, 2, len(s)), n_rows=len(s))
    assert not Ladder(gather_one(cut(s, weight), weight, groups), ("s",)).tables()
    few = np.round(s)
    assert Ladder(gather_one(cut(few, weight), weight, groups), ("s",)).tables()


def test_the_average_never_predicts_worse_than_the_best_rung(monkeypatch):
    # The guard looks at what comes out, whatever went wrong on the way: here all weight is given
    # to the worst rung.
    def worst(losses, effective):
        share = np.zeros(len(losses))
        share[int(np.argmax(losses))] = 1.0
        return share

    rng = np.random.default_rng(0)
    s = rng.standard_normal(2_000)
    a = (rng.random(2_000) < 1 / (1 + np.exp(-3 * s))).astype(int)
    honest = eh.independence(None, s, sensitive_features=a)
    monkeypatch.setattr(rungs, "weigh", worst)
    assert eh.independence(None, s, sensitive_features=a) == pytest.approx(honest, abs=0.02)
