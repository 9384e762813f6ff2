"""Tests of exact fairness with weights tied to group and score, and with clusters."""

import numpy as np
import pytest
from exact import exact_fairness_p_value
from grids import pairwise
from scipy import stats
from scipy.special import expit

from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.estimators.ranks import Ranks, conditional_rank
from evenhand.kernels.contrasts import feature_matrix
from evenhand.measures import covariances as units
from evenhand.measures.covariances import RowsInCells
from evenhand.measures.exact_tests import _usable

CONDITIONAL = ("separation", "sufficiency")


def run(criterion, s, y, a, weight=None, cluster=None, **options):
    groups = resolve_groups(a, sample_weight=weight, n_rows=len(a), cluster=cluster)
    return exact_fairness_p_value(criterion, {"s": s, "y": y}, groups, **options)


def in_cells(z, t):
    given = Ranks(z)
    cell, n_cells = given.cells()
    rank = conditional_rank(Ranks(t), given)
    flat = np.zeros((n_cells, 6))
    return RowsInCells(rank, given.rank, given.normal, cell, np.zeros(n_cells), flat)


def three_groups(rng, n):
    z = rng.normal(size=n)
    a = rng.integers(3, size=n)
    _, members = _usable(resolve_groups(a, n_rows=n))
    return z, z + rng.normal(size=n), members


# --- closed forms -------------------------------------------------------------------------------


def test_total_is_a_sum_over_pairs():
    rng = np.random.default_rng(0)
    n = 80
    z, t, members = three_groups(rng, n)
    w = rng.uniform(0.2, 3, n)
    rows = in_cells(z, t)
    score = units.UnitScores(rows, members, w, rows.cell.astype(np.intp))
    f = feature_matrix(*rows)
    b = np.eye(3)[members.codes][:, :2]
    expected = np.zeros((2, 6))
    for c in np.unique(rows.cell):
        inside = np.flatnonzero(rows.cell == c)
        for i in inside:
            for j in inside[inside > i]:
                pair = np.outer(b[i] - b[j], f[i] - f[j])
                expected += w[i] * w[j] * pair / len(inside)
    np.testing.assert_allclose(score._total(), expected.ravel(), atol=1e-10)
    # A unit is a cell here, and nothing is left out of its own square.
    cells = np.zeros((len(np.unique(rows.cell)), 12))
    for c in range(len(cells)):
        inside = rows.cell == c
        v = w[inside]
        fc = f[inside] - np.average(f[inside], axis=0, weights=v)
        cells[c] = ((v * b[inside].T) @ fc).ravel() * v.mean()
    np.testing.assert_allclose(score._covariance(), cells.T @ cells, atol=1e-10)


def test_covariance_of_clusters_against_a_loop():
    rng = np.random.default_rng(1)
    n = 120
    z, t, members = three_groups(rng, n)
    cluster = rng.integers(15, size=n)
    rows = in_cells(z, t)
    score = units.UnitScores(rows, members, None, cluster)
    f, b = feature_matrix(*rows), np.eye(3)[members.codes][:, :2]
    expected = np.zeros((12, 12))
    for g in range(15):
        total = np.zeros((2, 6))
        for c in np.unique(rows.cell):
            inside = rows.cell == c
            both = inside & (cluster == g)
            if not both.any():
                continue
            parts = np.bincount(cluster[inside], minlength=15) / inside.sum()
            left = 1 - 2 * parts[g] + np.sum(parts**2)
            centered = f[both] - f[inside].mean(axis=0)
            total += (b[both] - b[inside].mean(axis=0)).T @ centered / left
        expected += np.outer(total, total)
    np.testing.assert_allclose(score._covariance(), expected, atol=1e-10)
    # Blocks of units make up the same sums.
    rest = np.concatenate(list(score._scores()))
    assert rest.shape == (15, 12)


def test_rows_that_may_have_been_missed_against_a_loop():
    rng = np.random.default_rng(4)
    z, t, members = three_groups(rng, 200)
    w = rng.gamma(2.0, size=200)
    rows = in_cells(z, t)
    rows = rows._replace(cell=np.zeros_like(rows.cell), slope=rows.slope[:1])
    score = units.UnitScores(rows, members, w, None)
    b, f = np.eye(3)[members.codes][:, :2], score._f
    mean = np.array([w[members.codes == k].mean() for k in range(3)])
    expected = np.zeros((2 * f.shape[1],) * 2)
    for k in range(3):
        held = (members.codes == k).sum()
        heavy = mean[k] * np.quantile(w / mean[members.codes], 1 - 1 / held)
        a = np.eye(3)[k, :2] - np.average(b, axis=0, weights=w)
        for i in range(200):
            x = heavy * w.mean() * np.outer(a, f[i]).ravel()
            expected += units.UNSEEN_ROWS * w[i] / w.sum() * np.outer(x, x)
    np.testing.assert_allclose(score._unseen(w), expected, rtol=1e-9)


def test_groups_that_are_exactly_alike_under_weights_are_fair():
    s, w = np.tile([0.0, 0.0, 1.0, 1.0], 20), np.tile([1.0, 1.0, 2.0, 2.0], 20)
    a = np.tile([0, 1], 40)
    assert run("independence", s, s, a, weight=w).p_value == pytest.approx(1.0)


def test_the_statistic_of_clusters_has_the_covariance_about_their_mean():
    rng = np.random.default_rng(3)
    cluster = rng.integers(60, size=600)
    z, t, members = three_groups(rng, 600)
    score = units.UnitScores(in_cells(z, t + 0.4 * (members.codes == 1)), members, None, cluster)
    blocks = members.directions(6)
    used = next(
        np.sort(np.concatenate(blocks[:k]))
        for k in range(1, len(blocks) + 1)
        if sum(map(len, blocks[:k])) == score.dof
    )
    total, second = score._total()[used], score._covariance()[np.ix_(used, used)]
    expected = total @ np.linalg.solve(second - np.outer(total, total) / 60, total)
    assert score.statistic == pytest.approx(expected, rel=1e-6)


def test_degrees_of_freedom_count_the_clusters_a_group_rests_on():
    rng = np.random.default_rng(2)
    cluster = np.repeat(np.arange(40), 10)
    t = rng.normal(size=400)
    for few in (3, 20):
        a = (cluster < few).astype(int)
        result = run("independence", t, t, a, cluster=cluster)
        left = float(result.method.split("F with 1 and ")[1].split()[0])
        # Clusters of the smaller group count in full, others as their share is to theirs.
        q = few / 40
        mass = np.r_[np.full(few, (1 - q) ** 2), np.full(40 - few, q**2)]
        assert left == pytest.approx(mass.sum() ** 2 / np.sum(mass**2), abs=1.5)


@pytest.mark.parametrize(("n", "functions"), [(300, 2), (600, 5)])
def test_rows_under_weights_take_as_many_test_functions_as_they_settle(n, functions):
    rng = np.random.default_rng(0)
    z = rng.normal(size=n)
    _, members = _usable(resolve_groups(np.arange(n) % 2, n_rows=n))
    weight = rng.uniform(0.5, 2.0, n)
    score = units.UnitScores(in_cells(z, z + rng.normal(size=n)), members, weight, None)
    assert score.dof == functions
    assert score.units > units.ROWS_A_DIRECTION * functions


def test_rows_drawn_follow_the_weights_and_are_one_a_cluster():
    rng = np.random.default_rng(3)
    w = np.r_[np.full(4000, 1.0), np.full(4000, 4.0)]
    rows = units.independent_rows(w, None, rng)
    assert stats.binomtest(int(np.sum(rows < 4000)), len(rows), 0.2).pvalue > 1e-3
    cluster = np.repeat(np.arange(400), 20)
    rows = units.independent_rows(None, cluster, rng)
    np.testing.assert_array_equal(np.sort(cluster[rows]), np.arange(400))
    inside = np.tile(np.r_[np.full(10, 1.0), np.full(10, 3.0)], 400)
    drawn = [units.independent_rows(inside, cluster, rng) % 20 for _ in range(5)]
    heavy = np.sum(np.concatenate(drawn) >= 10)
    assert stats.binomtest(int(heavy), 2000, 0.75).pvalue > 1e-3
    # Clusters of half the weight are kept half as often.
    kept = units.independent_rows(np.where(cluster < 200, 0.5, 1.0), cluster, rng)
    assert stats.binomtest(int(np.sum(cluster[kept] < 200)), 200, 0.5).pvalue > 1e-3
    assert np.sum(cluster[kept] >= 200) == 200


# --- weights ------------------------------------------------------------------------------------


def thinned(criterion, rng, n, share=0.3):
    """Rows kept with a probability of group and tested variable jointly, and its inverse."""
    z = rng.normal(size=4 * n)
    t = z + np.sin(2 * z) + 0.5 * rng.normal(size=4 * n)
    lean = 0.0 if criterion == "independence" else 1.0
    a = (rng.random(4 * n) < expit(np.log(share / (1 - share)) + lean * z)).astype(int)
    keep = 0.1 + 0.9 * expit((2 * a - 1) * t)
    rows = np.flatnonzero(rng.random(4 * n) < keep)[:n]
    s, y = (z, t) if criterion == "sufficiency" else (t, z)
    return s[rows], y[rows], a[rows], 1 / keep[rows]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_size_with_weights_tied_to_group_and_score(criterion):
    count = blind = 0
    for seed in range(200):
        s, y, a, w = thinned(criterion, np.random.default_rng([4, seed]), 600)
        count += run(criterion, s, y, a, w).p_value < 0.05
        if seed < 20:
            blind += run(criterion, s, y, a).p_value < 0.05
    # Binomial(200, 0.05) exceeds 21 once in a thousand times.
    assert 1 <= count <= 21
    assert blind >= 10  # the rows as they are do not satisfy it


@pytest.mark.parametrize("criterion", CRITERIA)
def test_power_with_weights_tied_to_group_and_score(criterion):
    s, y, a, w = thinned(criterion, np.random.default_rng(5), 3000)
    shift = 0.5 * a
    s, y = (s, y + shift) if criterion == "sufficiency" else (s + shift, y)
    assert run(criterion, s, y, a, w).p_value < 1e-3


def test_fine_structure_with_weights_tied_to_group_and_score():
    rng = np.random.default_rng(6)
    s, y = rng.random((2, 6000))
    a = (rng.random(6000) < np.where((np.floor(4 * s) + np.floor(4 * y)) % 2, 0.9, 0.1)).astype(int)
    keep = 0.2 + 0.8 * expit(3 * (2 * a - 1) * (s - 0.5))
    rows = rng.random(6000) < keep
    result = run("separation", s[rows], y[rows], a[rows], 1 / keep[rows])
    assert result.p_value < 1e-6
    assert "rows drawn to be independent, decided by fine structure" in result.method


@pytest.mark.parametrize("criterion", ["independence", "separation"])
def test_size_under_weights_that_fall_with_the_score_of_one_group(criterion):
    """300 rows, e^(-s) in one of two groups: 55 effective ones, decided by a few low scores."""
    p = []
    for seed in range(400):
        rng = np.random.default_rng([17, seed])
        a = rng.integers(0, 2, 300)
        s, y = rng.normal(size=(2, 300)) + [[1.0], [0.0]] * a
        p.append(run(criterion, s, y, a, np.exp(a / 2 - a * s)).p_value)  # N(1, 1) becomes N(0, 1)
    assert np.mean(np.array(p) < 0.05) <= 0.07
    assert np.mean(np.array(p) < 0.001) <= 0.015


@pytest.mark.parametrize("criterion", CRITERIA)
def test_samples_settle_what_units_and_weights_are_like(criterion, monkeypatch):
    s, y, a, w = thinned(criterion, np.random.default_rng(16), 20_000)
    exact = run(criterion, s, y, a, w)
    monkeypatch.setattr(units, "SANDWICH_WORK", 20_000 * 36 / 10)
    sampled = run(criterion, s, y, a, w)
    assert sampled.dof == exact.dof
    assert sampled.statistic != exact.statistic
    assert sampled.statistic == pytest.approx(exact.statistic, rel=0.4)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_weights_next_to_nothing_are_nothing(criterion):
    rng = np.random.default_rng(8)
    s, y, a, w = thinned(criterion, rng, 500)
    for weight in (w, np.where(a == 1, 3.0, 1.0)):
        tiny = weight.copy()
        tiny[:60] *= 10.0 ** rng.uniform(-70, -50, 60)
        found = run(criterion, s, y, a, tiny)
        kept = run(criterion, s[60:], y[60:], a[60:], weight[60:])
        assert found.p_value == pytest.approx(kept.p_value, rel=1e-6)
        assert found.method == kept.method


# --- clusters -----------------------------------------------------------------------------------


def clustered(criterion, rng, n, group="constant", condition="varying", shift=0.0):
    """n clusters with levels of their own in tested variable and group, both given z alone."""
    cluster = np.repeat(np.arange(n), rng.integers(10, 31, n))
    level = rng.normal(size=n)
    z = level[cluster] + (0.8 * rng.normal(size=len(cluster)) if condition == "varying" else 0.0)
    lean = 0.0 if criterion == "independence" else 1.0
    if group == "constant":
        a = (rng.random(n) < expit(lean * level)).astype(int)[cluster]
    else:
        odds = lean * z + rng.normal(size=n)[cluster]
        a = (rng.random(len(cluster)) < expit(odds)).astype(int)
    t = 0.7 * rng.normal(size=n)[cluster] + 0.5 * rng.normal(size=len(cluster)) + shift * a
    t = t + lean * (z + np.sin(2 * z))
    s, y = (z, t) if criterion == "sufficiency" else (t, z)
    return s, y, a, cluster


@pairwise(
    criterion=tuple(CRITERIA), group=["constant", "varying"], condition=["varying", "constant"]
)
def test_size_with_clusters(criterion, group, condition):
    count = blind = 0
    for seed in range(200):
        rng = np.random.default_rng([9, seed])
        s, y, a, cluster = clustered(criterion, rng, 50, group, condition)
        count += run(criterion, s, y, a, cluster=cluster).p_value < 0.05
        if seed < 20:
            blind += run(criterion, s, y, a).p_value < 0.05
    # Binomial(200, 0.05) exceeds 21 once in a thousand times.
    assert 1 <= count <= 21
    if group == "constant" and (condition == "varying" or criterion == "independence"):
        assert blind >= 8  # rows taken for independent


@pytest.mark.parametrize("criterion", CRITERIA)
def test_power_with_clusters(criterion):
    rng = np.random.default_rng(10)
    s, y, a, cluster = clustered(criterion, rng, 200, shift=0.8)
    result = run(criterion, s, y, a, cluster=cluster)
    assert result.p_value < 1e-4
    assert result.method.startswith("robust covariance of 200 clusters")
    assert run(criterion, s, y, a, cluster=cluster) == result
    labels = np.array([f"c{k}" for k in rng.permutation(200)])[cluster]
    other = run(criterion, s, y, a, cluster=labels)
    assert other.statistic == pytest.approx(result.statistic, rel=1e-9)


def test_fine_structure_with_clusters_follows_the_seed():
    rng = np.random.default_rng(11)
    cluster = np.repeat(np.arange(800), 5)
    s, y = rng.normal(size=(2, 4000))
    same = np.repeat(rng.random(800), 5) < 0.9
    a = np.where(same, (s - y) % 1 < 0.5, (s - y) % 1 > 0.5).astype(int)
    first = run("separation", s, y, a, cluster=cluster, random_state=1)
    assert first.p_value < 1e-6
    scan = "with a scan of 800 rows drawn to be independent, decided by fine structure"
    assert first.method.endswith(scan)
    assert run("separation", s, y, a, cluster=cluster, random_state=1) == first
    other = run("separation", s, y, a, cluster=cluster, random_state=2)
    assert other.p_value != first.p_value
    assert other.statistic == first.statistic


def test_slices_hold_enough_clusters():
    rng = np.random.default_rng(12)
    cluster = np.repeat(np.arange(300), 8)
    z = rng.normal(size=300)[cluster]
    cell, n_cells = Ranks(z).cells()
    assert n_cells == 300
    merged, count, merge = units.clusters_in_cells(cell, n_cells, cluster)
    assert (count, merge) == (30, 10)
    assert (np.bincount(np.unique(merged * 300 + cluster) // 300) == 10).all()
    np.testing.assert_array_equal(np.diff(merged[np.argsort(z)]) >= 0, True)
    # A condition of the rows themselves needs no wider slices.
    cell, n_cells = Ranks(rng.normal(size=2400)).cells()
    same, count, merge = units.clusters_in_cells(cell, n_cells, cluster)
    assert same is cell
    assert (count, merge) == (n_cells, 1)


def test_weights_and_clusters_together():
    rng = np.random.default_rng(13)
    s, y, a, cluster = clustered("separation", rng, 60, "varying")
    w = rng.uniform(0.5, 2, len(a))
    plain = run("separation", s, y, a, cluster=cluster)
    both = run("separation", s, y, a, w, cluster)
    assert both.method.startswith("robust covariance of 60 clusters")
    assert both.statistic != plain.statistic
    assert 0 < both.p_value <= 1


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_handful_of_clusters(criterion):
    rng = np.random.default_rng(14)
    s, y, a, cluster = clustered(criterion, rng, 9, "varying")
    result = run(criterion, s, y, a, cluster=cluster)
    assert np.isnan(result.p_value)
    reason = "9 clusters say too little about how clusters differ (10 do)"
    assert result.method == f"not tested: {reason}"
    s, y, a, cluster = clustered(criterion, rng, 10, "varying")
    assert 0 < run(criterion, s, y, a, cluster=cluster).p_value <= 1


def test_a_group_of_one_cluster_rejects_nothing():
    rng = np.random.default_rng(15)
    cluster = np.repeat(np.arange(30), 10)
    s = rng.normal(size=300) + 0.5 * rng.normal(size=30)[cluster]
    assert run("independence", s, s, (cluster == 0).astype(int), cluster=cluster).p_value > 0.05


# Limits and combinations.


def test_a_difference_of_rounding_has_no_ranks():
    y = np.array([0.0, 0.0, 1e12])
    assert units.difference(np.array([1.0, 0.0, 1e12]), y) is None
    assert units.difference(np.array([1.5, 0.0, 1e12]), y) is not None
    assert units.difference(np.array([np.inf, 0.0, 1.0]), y) is None


def test_rows_that_are_scanned():
    assert units.scan_rows(100_000, 4) == slice(None)
    assert len(units.scan_rows(100_001, 4)) == 50_000
    assert units.scan_rows(80_000, 5) == slice(None)
    assert len(units.scan_rows(80_001, 5)) <= 80_000
    assert units.scan_rows(20_000, 1000) == slice(None)


@pytest.mark.parametrize("p", [0.003, 0.2, 0.5])
def test_equal_p_values_combine_to_the_same(p, monkeypatch):
    monkeypatch.setattr(units, "_p_values", lambda levels: iter([np.full(7, p)]))
    rng = np.random.default_rng(0)
    cell = np.repeat(np.arange(4, dtype=np.int32), 16)
    members = units.Members(rng.integers(0, 2, 64), None, 2)
    assert units.scan_p_value([rng.random(64)], cell, members) == pytest.approx(p)


def test_blocks_hold_cells_by_the_middle_of_their_rows(monkeypatch):
    from evenhand.kernels import contrasts

    seen = []
    monkeypatch.setattr(contrasts, "scan_levels", lambda *given: seen.append(given[4]) or [])
    rng = np.random.default_rng(0)
    members = units.Members(rng.integers(0, 2, 64), None, 2)
    for sizes, blocks in (((16, 16, 16, 16), [0, 1, 2, 3]), ((40, 8, 8, 8), [1, 2, 3, 3])):
        cell = np.repeat(np.arange(4, dtype=np.int32), sizes)
        assert np.isnan(units.scan_p_value([rng.random(64)], cell, members))
        assert seen[-1].tolist() == blocks


def test_no_p_value_of_a_level_exceeds_one():
    level = np.ones((3, 2, 4))
    level[..., 3] = [0.0, 5.0]
    p = np.concatenate(list(units._p_values(level[None])))
    assert p.max() == 1.0
    assert p.min() > 0.0


@pytest.mark.parametrize(("pairs", "merged"), [(8, 1), (7, 10)])
def test_cells_that_hold_enough_clusters_stay(pairs, merged):
    """Eight of ten rows are enough."""
    cell = np.arange(10, dtype=np.int32)
    cell[pairs:] = 0
    cluster = np.zeros(10, dtype=np.intp)
    kept, count, merge = units.clusters_in_cells(cell, 10, cluster)
    assert merge == merged
    assert (count == 10) == (merged == 1)
    assert kept.max() < count


def test_each_row_of_a_cluster_may_stand_for_it():
    cluster = np.array([0, 0, 1, 1])
    drawn = {
        row
        for seed in range(40)
        for row in units.independent_rows(None, cluster, np.random.default_rng(seed)).tolist()
    }
    assert drawn == {0, 1, 2, 3}
