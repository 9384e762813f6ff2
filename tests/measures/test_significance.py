"""The tests of exact fairness: closed forms, calibration, power, invariances, bad input."""

import numpy as np
import pytest
from exact import exact_fairness_p_value
from grids import pairwise
from scipy import stats
from scipy.special import expit

from distributions import null_scenario
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import Groups, resolve_groups
from evenhand.estimators.ranks import EXACT_RANK_ROWS, RANK_EDGES, Ranks
from evenhand.kernels import contrasts as kernels
from evenhand.measures import covariances as _null_covariance
from evenhand.measures import exact_tests as _draws
from evenhand.measures import exact_tests as significance
from evenhand.measures.exact_tests import exact_fairness_p_values

CONDITIONAL = ("separation", "sufficiency")


def run(criterion, s, y, a, weight=None, **options):
    groups = resolve_groups(a, sample_weight=weight, n_rows=len(a))
    return exact_fairness_p_value(criterion, {"s": s, "y": y}, groups, **options)


def soft(table, weight=None):
    return Groups(tuple(range(table.shape[1])), None, table, weight, None, len(table))


def pair(rng, n, slope=0.0):
    """z, t given z alone, and a group that depends on z."""
    z = rng.normal(size=n)
    a = (rng.random(n) < expit(1.5 * z - 1)).astype(int)
    return z, np.sin(2 * z) + z + 0.5 * rng.normal(size=n) + slope * a, a


def roles(criterion, z, t):
    return (z, t) if criterion == "sufficiency" else (t, z)


# --- closed forms -------------------------------------------------------------------------------


def scores_for(s, a):
    ranks = Ranks(np.asarray(s, dtype=float))
    _, members = significance._usable(resolve_groups(a, n_rows=len(a)))
    flat = np.empty(0)
    cell = np.zeros(len(a), dtype=np.int32)
    rows = _null_covariance.RowsInCells(ranks.rank, ranks.rank, flat, cell, flat, np.zeros((1, 4)))
    return rows, members, _null_covariance.Scores(rows, members)


@pytest.mark.parametrize("digits", [6, 0])
@pytest.mark.parametrize("n_groups", [2, 4])
def test_rank_component_is_kruskal_wallis(n_groups, digits):
    rng = np.random.default_rng(3)
    a = rng.integers(n_groups, size=300)
    s = np.round(rng.normal(size=300) + 0.2 * a, digits)
    *_, score = scores_for(s, a)
    first = np.arange(n_groups - 1) * 4
    total, covariance = score.total[:, 0], score.covariance[np.ix_(first, first)]
    expected = stats.kruskal(*[s[a == k] for k in range(n_groups)]).statistic
    assert total @ np.linalg.solve(covariance, total) == pytest.approx(expected, rel=1e-9)


def test_covariance_is_that_of_permutations():
    rng = np.random.default_rng(0)
    n = 60
    z, t, a = pair(rng, n)
    given, target = Ranks(z), Ranks(t)
    cell, n_cells = given.cells()
    rank = significance.conditional_rank(target, given)
    center, means = kernels.cell_means(rank, given.rank, given.normal, cell, n_cells)
    slope = significance.neighbor_slopes(center, means)
    rows = _null_covariance.RowsInCells(rank, given.rank, given.normal, cell, center, slope)
    _, members = significance._usable(resolve_groups(a, n_rows=n))
    score = _null_covariance.Scores(rows, members)
    f = kernels.feature_matrix(*rows)
    expected = np.zeros((6, 6))
    for c in range(n_cells):
        inside = cell == c
        if inside.sum() > 1:
            b = members.codes[inside] == 0
            expected += np.cov(f[inside].T) * np.var(b) * inside.sum()
    np.testing.assert_allclose(score.covariance, expected, atol=1e-10)
    total = sum(
        (f[cell == c] - f[cell == c].mean(axis=0))[members.codes[cell == c] == 0].sum(axis=0)
        for c in range(n_cells)
    )
    np.testing.assert_allclose(score.total[0], total, atol=1e-10)


@pytest.mark.parametrize("null", [0, 1, 3])
def test_form_of_the_pseudo_inverse(null):
    """Directions of little variance, of none, and a function that is constant are left out."""
    rng = np.random.default_rng(4)
    values = np.r_[np.zeros(null), [5e-3, 0.02], rng.uniform(0.5, 2, 6)]
    turn = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    covariance = np.pad(turn * values @ turn.T, (0, 1)) * 50.0
    u = rng.normal(size=len(covariance))
    root = _null_covariance.root_inverse(covariance)
    statistic, rank = _null_covariance.quadratic_form(u, covariance)
    assert rank == root.shape[1] < len(values) - null
    assert statistic == pytest.approx(np.square(u @ root).sum(), rel=1e-10)
    assert _null_covariance.quadratic_form(u, np.zeros_like(covariance)) == (0.0, 0)


@pytest.mark.parametrize("kind", ["group", "random"])
def test_covariance_of_weighted_rows_is_unbiased_in_narrow_cells(kind):
    rng = np.random.default_rng(2)
    n, ratio = 5000, []
    for _ in range(20):
        z, a = rng.normal(size=n), (rng.random(n) < 0.3).astype(int)
        w = np.where(a == 1, 1.0, 4.0) if kind == "group" else 0.1 + rng.gamma(1.5, size=n)
        cell, n_cells = Ranks(z).cells()
        u = rng.random(n)
        rows = _null_covariance.RowsInCells(
            u, Ranks(z).rank, z, cell, np.zeros(n_cells), np.zeros((n_cells, 6))
        )
        groups = resolve_groups(a, sample_weight=w, n_rows=n)
        _, members = significance._usable(groups)
        w = groups.weight
        robust = _null_covariance.UnitScores(rows, members, w, None)._covariance()
        # The functions have variance 1 by construction: no estimate is needed.
        b = members.codes == 0
        mass = np.bincount(cell, w)
        mean = np.bincount(cell, w * b) / mass
        own = w * (mass / np.bincount(cell))[cell]
        ratio.append(np.diagonal(robust) / np.sum((own * (b - mean[cell])) ** 2))
    np.testing.assert_allclose(np.mean(ratio, axis=0), 1, atol=0.03)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_sample_settles_the_covariance_of_groups_that_take_turns(criterion, monkeypatch):
    rng = np.random.default_rng(6)
    n, k = 24_000, 4
    a, y, w = np.arange(n) % k, rng.normal(size=n), rng.uniform(0.5, 2, n)
    variables = {"s": y + rng.normal(size=n) + 0.03 * (a == 1), "y": y}
    groups = resolve_groups(a, sample_weight=w, n_rows=n)
    exact = exact_fairness_p_value(criterion, variables, groups)
    width = exact.dof  # every fourth row would be of one group
    monkeypatch.setattr(_null_covariance, "SANDWICH_WORK", n * width**2 / k)
    sampled = exact_fairness_p_value(criterion, variables, groups)
    assert sampled.dof == exact.dof
    assert sampled.statistic != exact.statistic
    assert sampled.statistic == pytest.approx(exact.statistic, rel=0.15)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_certain_probabilities_are_groups(criterion, weighted):
    rng = np.random.default_rng(7)
    z, t, a = pair(rng, 400, slope=0.2)
    a[:80] = 2
    s, y = roles(criterion, z, t)
    weight = 1.0 + 1e-8 * (np.arange(400) % 2) if weighted else None
    hard = Groups((0, 1, 2), a, None, weight, None, 400)
    first = exact_fairness_p_value(criterion, {"s": s, "y": y}, hard)
    second = exact_fairness_p_value(criterion, {"s": s, "y": y}, soft(np.eye(3)[a], weight))
    assert second.dof == first.dof
    assert second.statistic == pytest.approx(first.statistic, rel=1e-8)


# --- calibration and power ----------------------------------------------------------------------


def rejections(criterion, n, share, replications, change=None):
    count = 0
    for r in range(replications):
        rng = np.random.default_rng([11, r])
        y, s, a = null_scenario(criterion, rng, share=share).sample(n, rng)
        weight = None
        if change == "weights":
            weight = np.where(a == 1, 1.0, 3.0) * rng.uniform(0.5, 1.5, n)
        count += run(criterion, s, y, a, weight).p_value < 0.05
    return count


@pairwise(criterion=tuple(CRITERIA), share=[0.05, 0.3], change=[None, "weights"])
def test_size(criterion, share, change):
    # Binomial(300, 0.05) lies in 5 to 27 but once in a thousand times.
    assert 5 <= rejections(criterion, 500, share, 300, change) <= 27


@pytest.mark.parametrize("criterion", CONDITIONAL)
def test_size_in_small_samples(criterion):
    count = 0
    for r in range(150):
        z, t, a = pair(np.random.default_rng([13, r]), 40)
        count += run(criterion, *roles(criterion, z, t), a).p_value < 0.05
    assert 1 <= count <= 17


def test_ignoring_the_condition_would_be_seen():
    # The same data are far from independent: only the conditioning makes the size right.
    z, t, a = pair(np.random.default_rng(0), 500)
    assert run("independence", t, z, a).p_value < 1e-6
    assert run("separation", t, z, a).p_value > 0.05


def test_equal_means_and_unequal_spread_are_detected():
    rng = np.random.default_rng(0)
    a = np.arange(400) % 2
    s = rng.normal(size=400) * np.where(a == 1, 3.0, 1.0)
    for k in (0, 1):
        s[a == k] -= s[a == k].mean()
    assert stats.ttest_ind(s[a == 0], s[a == 1]).pvalue > 0.99
    assert run("independence", s, s, a).p_value < 1e-10


@pytest.mark.parametrize("kind", ["shift", "spread", "interaction"])
@pytest.mark.parametrize("criterion", CONDITIONAL)
def test_power(criterion, kind):
    rng = np.random.default_rng(2)
    n = 1500
    z = rng.normal(size=n)
    a = (rng.random(n) < expit(z - 1)).astype(int)
    noise = rng.normal(size=n)
    t = {
        "shift": noise + 0.5 * a,
        "spread": noise * np.where(a == 1, 3.0, 1.0),
        "interaction": noise + 0.6 * a * z,
    }[kind] + 2 * z
    assert run(criterion, *roles(criterion, z, t), a).p_value < 1e-5


# --- invariances --------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_invariances(criterion, weighted):
    rng = np.random.default_rng(4)
    n = 400
    z, t, a = pair(rng, n, slope=0.1)
    if criterion == "independence":
        a = rng.integers(2, size=n)
    a[rng.random(n) < 0.2] = 2
    s, y = roles(criterion, z, t)
    w = rng.uniform(0.5, 2, n) if weighted else None
    base = run(criterion, s, y, a, w).p_value
    order = rng.permutation(n)
    assert 1e-4 < base < 1
    moved = run(criterion, s[order], y[order], a[order], None if w is None else w[order])
    assert moved.p_value == pytest.approx(base, rel=1e-6)
    assert run(criterion, np.exp(s), y**3, a, w).p_value == pytest.approx(base, rel=1e-6)
    labels = np.array(["x", "c", "m"])[a]
    assert run(criterion, s, y, labels, w).p_value == pytest.approx(base, rel=1e-6)
    if weighted:
        assert run(criterion, s, y, a, 7 * w).p_value == pytest.approx(base, rel=1e-9)


def test_several_criteria_at_once_agree_with_one_at_a_time():
    z, t, a = pair(np.random.default_rng(8), 150)
    groups = resolve_groups(a, n_rows=150)
    variables = {"s": t, "y": z}
    together = exact_fairness_p_values(CRITERIA, variables, groups, random_state=5)
    assert list(together) == list(CRITERIA)
    for name, result in together.items():
        assert exact_fairness_p_value(name, variables, groups, random_state=5) == result


def test_draws_repeat_and_follow_the_seed():
    z, t, a = pair(np.random.default_rng(9), 80)
    first = run("separation", t, z, a, random_state=1)
    assert "1999 draws" in first.method
    assert run("separation", t, z, a, random_state=1) == first
    assert run("separation", t, z, a) == run("separation", t, z, a, random_state=0)
    other = run("separation", t, z, a, random_state=np.random.default_rng(2))
    assert other.statistic == first.statistic
    assert other.p_value != first.p_value
    assert other.p_value == pytest.approx(first.p_value, abs=0.06)


@pytest.mark.parametrize("n", [200, 400])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_equal_weights_are_none(criterion, n):
    z, t, a = pair(np.random.default_rng(21), n)
    s, y = roles(criterion, z, t)
    plain = run(criterion, s, y, a)
    for weight in (np.ones(n), np.full(n, 0.3), np.where(a == 1, 0.3, 0.1 * 3)):
        assert run(criterion, s, y, a, weight) == plain
    # Among rows without weight, too.
    w = np.r_[np.ones(n), np.zeros(20)]
    padded = [np.r_[x, x[:20]] for x in (s, y, a)]
    assert run(criterion, *padded, w) == plain


def handful(seed, few, n=1000):
    """A handful in a group of their own, by chance alone."""
    rng = np.random.default_rng([17, few, seed])
    a = np.zeros(n, dtype=np.intp)
    a[rng.choice(n, few, replace=False)] = 1
    return {"s": rng.normal(size=n)}, Groups((0, 1), a, None, None, None, n)


@pytest.mark.parametrize("few", [1, 3])
def test_size_with_a_handful_of_rows_in_one_group(few):
    results = [exact_fairness_p_value("independence", *handful(seed, few)) for seed in range(200)]
    assert all("1999 draws" in result.method for result in results)
    p = np.array([result.p_value for result in results])
    # Binomial(200, .01) exceeds 8 once in five thousand times.
    assert np.sum(p < 0.01) <= 8
    assert stats.kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("few", [1, 2, 4])
def test_draws_of_a_handful_are_those_of_all_rows(few, monkeypatch):
    variables, groups = handful(0, few, 320)
    few_only = exact_fairness_p_value("independence", variables, groups)
    monkeypatch.setattr(significance, "DRAWN_ROWS", 320)
    all_rows = exact_fairness_p_value("independence", variables, groups)
    assert few_only.statistic == all_rows.statistic
    assert few_only.p_value != all_rows.p_value  # other draws
    assert few_only.p_value == pytest.approx(all_rows.p_value, abs=0.06)


def test_draws_of_a_handful_take_no_row_twice(monkeypatch):
    rng = np.random.default_rng(0)
    # Only what all four rows are together tells which they are.
    n, value = 6, 10.0 ** np.arange(6)
    monkeypatch.setattr(kernels, "feature_matrix", lambda *rows: value[:, None])
    cell = np.zeros(n, dtype=np.int32)
    rows = _null_covariance.RowsInCells(value, value, value[:0], cell, value[:0], np.zeros((1, 1)))
    drawn = _draws.draw_handful(rows, 4, np.zeros((1, 1)), np.eye(1), rng)
    found, counts = np.unique(np.round(np.sqrt(drawn)), return_counts=True)
    assert len(found) == 15  # 6 over 4
    assert all(set(str(int(total))) <= {"0", "1"} for total in found)
    assert stats.chisquare(counts).pvalue > 1e-3
    # About the mean: the variance of a sum of 4 out of 6.
    drawn = _draws.draw_handful(rows, 4, np.full((1, 1), value.mean()), np.eye(1), rng)
    assert drawn.mean() == pytest.approx(4 * 2 / 5 * value.var(), rel=0.1)


# --- many rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["normal", "heavy", "zeros", "rounded", "infinite"])
def test_ranks_without_sorting(kind):
    rng = np.random.default_rng(0)
    n = EXACT_RANK_ROWS + 5000
    x = rng.normal(size=n)
    if kind == "heavy":
        x = rng.standard_cauchy(n)
    elif kind == "zeros":
        x = np.where(rng.random(n) < 0.6, 0.0, np.exp(x))
    elif kind == "rounded":
        x = np.round(x, 1)
    elif kind == "infinite":
        x = np.where(x > 1, np.inf, np.where(x < -1, -np.inf, x))
    ranks = Ranks(x)
    exact = (stats.rankdata(x) - 0.5) / n
    assert np.abs(ranks.rank - exact).max() < 5e-4
    middle = np.abs(exact - 0.5) < 0.49
    assert np.abs(ranks.normal - stats.norm.ppf(exact))[middle].max() < 0.02
    assert np.isfinite(ranks.normal).all()
    if kind == "rounded":
        cell, n_cells = ranks.cells()
        assert n_cells == ranks.n_atoms < 2 * len(np.unique(x))
        mixed = [c for c in range(n_cells) if len(np.unique(x[cell == c])) > 1]
        assert np.isin(cell, mixed).mean() < 0.01
    else:
        assert ranks.n_atoms == n


def test_ranks_of_rows_that_repeat_with_a_period():
    # 12 rows a person, in the order of the months: a sample by regular steps can be all January.
    n = 12 * 4 * RANK_EDGES + 12
    x = 3.0 * (np.arange(n) % 12) + np.random.default_rng(0).normal(size=n)
    exact = (stats.rankdata(x) - 0.5) / n
    assert np.abs(Ranks(x).rank - exact).max() < 5e-4


def test_many_rows():
    rng = np.random.default_rng(1)
    n = EXACT_RANK_ROWS + 1
    z, t, a = pair(rng, n)
    groups = resolve_groups(a, n_rows=n)
    found = exact_fairness_p_values(CRITERIA, {"s": t, "y": z}, groups)
    assert found["separation"].p_value > 0.01
    assert found["independence"].p_value == found["sufficiency"].p_value == 0
    one = exact_fairness_p_value("separation", {"s": t, "y": z}, groups)
    assert one == found["separation"]


# --- degenerate input ---------------------------------------------------------------------------


def test_constant_score():
    z, _, a = pair(np.random.default_rng(0), 400)
    for criterion in ("independence", "separation"):
        result = run(criterion, np.ones(400), z, a)
        assert (result.p_value, result.dof) == (1.0, 0)
        assert result.method == "holds: s is constant"
    assert run("sufficiency", np.ones(400), z, a).p_value < 1e-6


@pytest.mark.parametrize("transform", [lambda y: y, np.exp])
@pytest.mark.parametrize("criterion", CONDITIONAL)
def test_score_that_is_a_function_of_the_target(criterion, transform):
    z, _, a = pair(np.random.default_rng(0), 300)
    result = run(criterion, transform(z), z, a)
    assert result.p_value == 1.0
    assert "is a function of" in result.method


def test_score_that_is_a_discrete_function_of_the_target():
    rng = np.random.default_rng(0)
    y = rng.integers(5, size=500).astype(float)
    a = (rng.random(500) < expit(y - 2)).astype(int)
    assert run("separation", (y - 2) ** 2, y, a).p_value == 1.0


def test_perfectly_separated_groups():
    rng = np.random.default_rng(0)
    a = np.arange(400) % 2
    y = rng.normal(size=400)
    s = y + 100 * a
    for criterion in ("independence", "separation"):
        result = run(criterion, s, y, a)
        assert np.isfinite(result.statistic)
        assert result.p_value < 1e-20
    # Given s the group is known, so that y has nothing to add; no slice of s holds both groups.
    result = run("sufficiency", s, y, a)
    assert result.p_value == 1.0
    assert "no two groups can be compared" in result.method


def test_a_single_group():
    groups = Groups(("only",), np.zeros(50, dtype=np.intp), None, None, None, 50)
    result = exact_fairness_p_value("independence", {"s": np.arange(50.0)}, groups)
    assert np.isnan(result.p_value)
    assert result.method == "not tested: fewer than two groups have rows"


def test_handfuls_are_left_out_or_merged():
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=300)
    s = rng.normal(size=300)
    plain = a.copy()
    a[:3] = 2
    left_out = run("independence", s, s, a)
    assert left_out.dof == 4
    assert left_out.method.endswith("; 1 group(s) of fewer than 5 rows left out")
    assert left_out.statistic == run("independence", s[3:], s[3:], plain[3:]).statistic
    a[3:7] = 3
    merged = run("independence", s, s, a)
    assert merged.dof == 8
    assert merged.method.endswith("; 2 groups of fewer than 5 rows merged")


def test_rows_without_weight_are_left_out():
    z, t, a = pair(np.random.default_rng(3), 400)
    w = np.random.default_rng(4).uniform(0.5, 2, 400)
    w[:50] = 0
    a[:3] = 2
    result = run("separation", t, z, np.where(a == 2, 0, a), w)
    kept = run("separation", t[50:], z[50:], a[50:], w[50:])
    assert result.p_value == pytest.approx(kept.p_value, rel=1e-9)
    # A handful among them: both reasons at once.
    a[60:63] = 2
    both = run("separation", t, z, a, w)
    rest = np.r_[50:60, 63:400]
    kept = run("separation", t[rest], z[rest], a[rest], w[rest])
    assert both.p_value == pytest.approx(kept.p_value, rel=1e-9)


@pytest.mark.parametrize("n", [2, 4, 5, 10])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_few_rows(criterion, n):
    rng = np.random.default_rng(n)
    a = np.arange(n) % 2
    groups = Groups((0, 1), a, None, None, None, n)
    result = exact_fairness_p_value(criterion, {"s": a + 0.0, "y": rng.normal(size=n)}, groups)
    assert 0 < result.p_value <= 1
    if n == 10 and criterion == "independence":
        assert result.p_value < 0.03  # 2 / C(10, 5) is the smallest there is


@pytest.mark.parametrize("criterion", CRITERIA)
def test_many_groups(criterion):
    rng = np.random.default_rng(6)
    n = 2000
    a = rng.integers(40, size=n)
    s, y = rng.normal(size=(2, n))
    result = run(criterion, s, y, a)
    assert result.dof == 39 * (4 if criterion == "independence" else 6)
    assert result.p_value > 0.01
    shift = 1.0 * (a < 10)
    s, y = (s, y + shift) if criterion == "sufficiency" else (s + shift, y)
    assert run(criterion, s, y, a, rng.uniform(0.5, 2, n)).p_value < 1e-3


def test_unknown_criterion():
    groups = resolve_groups([0, 1, 0, 1], n_rows=4)
    with pytest.raises(ValueError, match=r"`criterion` must be one of independence, separation"):
        exact_fairness_p_value("parity", {"s": np.zeros(4)}, groups)


@pytest.mark.parametrize("criterion", list(CRITERIA))
def test_draws_of_few_rows_say_what_chi_squared_says(criterion, monkeypatch):
    monkeypatch.setattr(significance, "_fine_structure", lambda setting, data: float("nan"))
    for seed, slope in enumerate((0.0, 0.2, 0.4, 3.0)):
        z, t, a = pair(np.random.default_rng(seed), 280, slope)
        found = run(criterion, *roles(criterion, z, t), a)
        assert "draws" in found.method
        wanted = stats.chi2.sf(found.statistic, found.dof)
        assert found.p_value == pytest.approx(wanted, abs=0.04)
    assert found.p_value < 0.01


def test_of_two_groups_the_small_one_is_not_merged():
    rng = np.random.default_rng(0)
    a = np.r_[np.zeros(200), np.ones(3)]
    found = run("independence", rng.normal(size=203), rng.normal(size=203), a)
    assert "merged" not in found.method
    three = np.r_[np.zeros(200), np.ones(3), np.full(3, 2)]
    found = run("independence", rng.normal(size=206), rng.normal(size=206), three)
    assert "2 groups of fewer than 5 rows merged" in found.method
