"""Weights of a reference that give it a group's controls, and regressions on the same columns."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize
from sklearn.linear_model import Ridge

from evenhand.data.encoding import read_controls
from evenhand.data.groups import resolve_groups
from evenhand.measures import balancing
from evenhand.measures.balancing import Balance, Regression, boost, build_basis, natural_spline


def balanced(C, a, s, cluster=None, weight=None):
    weight = np.ones(len(s)) if weight is None else weight
    basis = build_basis(read_controls(C, len(s)), float(len(s)))
    return Balance(basis, weight * a, weight * ~a, s, cluster)


def drawn(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    x, level = rng.normal(size=(n, 2)), rng.integers(0, 30, n)
    a = rng.random(n) < 1 / (1 + np.exp(0.5 - x[:, 0] - 0.3 * (level % 3)))
    s = x[:, 0] * x[:, 1] + 0.2 * level + rng.normal(size=n)
    return {"x": x[:, 0], "y": x[:, 1], "level": np.array([f"L{k}" for k in level])}, a, s


def test_natural_splines_are_those_of_scipy():
    z = np.linspace(-3, 3, 400)
    knots = np.array([-2.0, -0.7, 0.1, 1.0, 2.2])
    basis = np.column_stack([np.ones_like(z), z, natural_spline(z, knots)])
    values = np.random.default_rng(0).normal(size=5)
    inside = (z >= knots[0]) & (z <= knots[-1])
    curve = CubicSpline(knots, values, bc_type="natural")(z[inside])
    fit = np.linalg.lstsq(basis[inside], curve, rcond=None)[0]
    np.testing.assert_allclose(basis[inside] @ fit, curve, atol=1e-9)
    # Beyond the knots a straight line.
    bend = np.diff(basis @ fit, 2)
    assert np.abs(bend[z[1:-1] > 2.3]).max() < 1e-10


def test_the_dual_is_minimized():
    rng = np.random.default_rng(0)
    X, level = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    strata = balancing._Strata(level, 2)
    share, target, base = np.array([0.3, 0.7]), np.array([0.4, 0.1, -0.2]), rng.random(200) + 0.1
    ridge = np.full(3, 0.01)

    def dual(theta):
        total = [np.log((base * np.exp(X @ theta))[level == k].sum()) for k in (0, 1)]
        return share @ total - theta @ target + 0.5 * ridge @ theta**2

    theta, q, *_ = balancing._newton(X, strata, share, target, base, ridge, np.zeros(3))
    np.testing.assert_allclose(theta, minimize(dual, np.zeros(3), tol=1e-12).x, atol=1e-5)
    np.testing.assert_allclose(np.bincount(level, q), share)
    np.testing.assert_allclose(target - q @ X, ridge * theta, atol=1e-6)


def test_every_level_and_line_is_balanced():
    C, a, s = drawn()
    found = balanced(C, a, s)
    first = np.bincount(found.basis.strata[found.members], found.member_share, 30)
    np.testing.assert_allclose(first, np.bincount(found.basis.strata[found.rows], found.c, 30))
    for x in (C["x"], C["y"]):
        apart = found.member_share @ x[found.members] - found.c @ x[found.rows]
        assert abs(apart) < 0.001
    assert found.worst_control()[1] < 0.001
    assert (found.q > 0).all()


def test_an_effect_is_linear_in_the_values_with_the_weights_given():
    C, a, s = drawn()
    found = balanced(C, a, s)
    by_weights = found.member_share @ s[found.members] - found.c @ s[found.rows]
    assert found.effect(s) == pytest.approx(by_weights)
    v = np.random.default_rng(1).normal(size=len(s))
    assert found.effect(s + 2 * v) == pytest.approx(found.effect(s) + 2 * found.effect(v))


def test_influences_are_derivatives_but_for_the_noise_of_the_fit():
    C, a, s = drawn()
    found = balanced(C, a, s)
    psi = found.influences(found.residuals(s))
    fitted, predicted = found._noise
    assert psi[found.members].sum() == pytest.approx(0, abs=0.01)
    residual = found.residuals(s)
    np.testing.assert_allclose(psi[found.rows], -found.c * residual[found.rows] / fitted)
    # A prediction adds the noise of the fit to that of the row.
    assert predicted.min() > 1


def test_residuals_are_scaled_to_the_noise():
    """With 4 rows of each group per level, both kinds have the variance of the noise."""
    rng = np.random.default_rng(0)
    level = np.arange(4000) % 500
    a = np.arange(4000) < 2000
    s = rng.normal(size=500)[level] + rng.normal(size=4000)
    found = balanced(np.array([f"L{k}" for k in level]), a, s)
    fitted, predicted = found._noise
    left = found.residuals(s)
    assert (left[found.rows] / fitted).std() == pytest.approx(1.0, abs=0.03)
    assert (left[found.members] / predicted).std() == pytest.approx(1.0, abs=0.03)
    assert left[found.rows].std() < 0.92
    assert left[found.members].std() > 1.08


def test_members_of_levels_without_two_counterparts_are_left_out():
    level = np.array(["a"] * 60 + ["b"] * 40 + ["c"] * 30)
    a = np.r_[np.arange(60) < 20, np.arange(40) < 39, np.ones(30, bool)]
    s = np.random.default_rng(0).normal(size=130)
    found = balanced(level, a, s)
    assert found.kept[:60].all()
    assert not found.kept[60:].any()
    assert found.is_possible


@pytest.mark.parametrize(("members", "kept"), [(120, True), (150, False)])
def test_members_need_two_counterparts_in_a_hundred(members, kept):
    """Two of the reference share a level with many; the groups' sizes, 500 and more, cancel out."""
    level = np.repeat(["few", "many"], [2 + members, 1000])
    a = np.r_[np.zeros(2, bool), np.ones(members, bool), np.arange(1000) % 2 == 0]
    found = balanced({"level": level}, a, np.random.default_rng(0).normal(size=len(a)))
    assert (found.kept[: 2 + members] == kept).all()
    assert found.kept[2 + members :].all()


def test_a_curve_and_a_product_are_in_the_columns():
    rng = np.random.default_rng(0)
    C = rng.normal(size=(3000, 3))
    truth = np.sin(2 * C[:, 0]) + C[:, 1] * C[:, 2]
    groups = resolve_groups(rng.integers(0, 2, 3000), n_rows=3000)
    y = truth + 0.3 * rng.normal(size=3000)
    basis = build_basis(read_controls(C, 3000), 3000.0)
    found = Regression(basis, groups, y).predict(y)
    assert np.mean((found - truth) ** 2) < 0.05 * truth.var()


def test_steps_are_left_to_trees():
    rng = np.random.default_rng(0)
    C = rng.normal(size=(3000, 2))
    truth = 3.0 * ((C[:, 0] > 0.3) ^ (C[:, 1] > -0.5))
    a = rng.random(3000) < 1 / (1 + np.exp(1 - truth / 3))
    s = truth + rng.normal(size=3000)
    found = balanced(C, a, s)
    trees = boost(found, s, a.astype(float), np.ones(3000), 0)
    assert trees is not None
    left = found.residuals(s)[found.rows]
    assert (left - found.residuals(trees)[found.rows]).var() < 0.6 * left.var()
    smooth = C[:, 0] + rng.normal(size=3000)
    assert boost(balanced(C, a, smooth), smooth, a.astype(float), np.ones(3000), 0) is None


def test_regression_is_that_of_scikit_learn(monkeypatch):
    monkeypatch.setattr(balancing, "_learn_ridge", lambda *_: np.full(len(_[3]), 0.01))
    rng = np.random.default_rng(0)
    C, y, w = rng.normal(size=(300, 2)), rng.normal(size=300), rng.random(300) + 0.1
    groups = resolve_groups(rng.integers(0, 2, 300), n_rows=300, sample_weight=w)
    basis = build_basis(read_controls(C, 300), 300.0)
    found = Regression(basis, groups, y)
    X, _ = balancing._scaled(basis, np.arange(300), groups.weight)
    model = Ridge(alpha=0.01 * groups.weight.sum()).fit(X, y, groups.weight)
    np.testing.assert_allclose(found.predict(y), model.predict(X), atol=1e-8)
    hat = np.column_stack([found.predict(one) for one in np.eye(300)])
    np.testing.assert_allclose(found.leverage, np.diag(hat), atol=1e-8)


def test_soft_membership_is_a_share_of_rows():
    rng = np.random.default_rng(0)
    C = np.column_stack([rng.normal(size=2000), rng.normal(size=2000)])
    p = 1 / (1 + np.exp(-C[:, 0]))
    import evenhand as eh

    groups = resolve_groups(eh.Proxy(np.column_stack([1 - p, p]), ["a", "b"]), n_rows=2000)
    found = Regression(build_basis(read_controls(C, 2000), 2000.0), groups).probabilities
    assert np.abs(found[:, 1] - p).max() < 0.05


def test_results_do_not_depend_on_the_order_of_rows():
    C, a, s = drawn()
    order = np.random.default_rng(0).permutation(len(s))
    there = balanced({k: v[order] for k, v in C.items()}, a[order], s[order]).effect(s[order])
    assert there == pytest.approx(balanced(C, a, s).effect(s), abs=1e-6)


def test_the_worst_control_is_the_largest_standardized_difference():
    C, a, s = drawn()
    balance = balanced(C, a, s)
    assert balance.n_counterparts == pytest.approx(1 / np.square(balance.q).sum())
    # As if nothing had been balanced.
    balance.c = np.full(len(balance.rows), 1 / len(balance.rows))
    expected = {}
    for name in ("x", "y"):
        first, second = C[name][balance.members], C[name][balance.rows]
        spread = np.sqrt(0.5 * (first.var() + second.var()))
        expected[name] = abs(first.mean() - second.mean()) / spread
    assert balance.worst_control() == ("x", pytest.approx(expected["x"], rel=1e-9))
    level = balanced({"level": C["level"]}, a, s)
    level.c = np.full(len(level.rows), 1 / len(level.rows))
    apart = []
    for one in np.unique(C["level"]):
        p, q = ((C["level"][rows] == one).mean() for rows in (level.members, level.rows))
        apart.append(abs(p - q) / np.sqrt(0.5 * (p * (1 - p) + q * (1 - q))))
    assert level.worst_control() == ("level", pytest.approx(max(apart), rel=1e-9))


def test_columns_without_spread_in_the_reference_are_left_out():
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[:20, 1], X[:20, 2] = 0.7, 1e4 * X[:20, 2]  # the mean of the former is not quite 0.7
    controls = read_controls({"x": X[:, 0]}, 40)
    basis = balancing.Basis(controls, np.zeros(40, dtype=np.intp), X, np.zeros(3, dtype=np.intp))
    scaled, _ = balancing._scaled(basis, np.arange(20), np.random.default_rng(1).random(20))
    assert scaled.shape[1] == 2
    assert np.abs(scaled).max() < 20


def test_products_are_those_of_standardized_lines():
    rng = np.random.default_rng(0)
    first, second = 3.0 * rng.normal(size=200), 0.1 * rng.normal(size=200)
    (block, pairs), (_, triples) = balancing._number_products([first, second], 200.0)
    u, v = first / first.std(), second / second.std()
    assert block == balancing.SQUARE
    np.testing.assert_allclose(pairs, (u * v)[:, None])
    np.testing.assert_allclose(triples, np.column_stack([u * u * v, u * v * v]))


def test_a_number_of_few_values_has_products_with_others():
    rng = np.random.default_rng(0)
    columns = {"few": rng.integers(0, 5, 500), "x": rng.normal(size=500)}
    blocks = build_basis(read_controls(columns, 500), 500.0).block
    assert balancing.SQUARE in blocks


def test_trees_see_what_lines_and_levels_leave(monkeypatch):
    seen = []

    class Noted(Regression):
        def __init__(self, basis, *rest):
            seen.append(basis)
            super().__init__(basis, *rest)

    monkeypatch.setattr(balancing, "Regression", Noted)
    rng = np.random.default_rng(0)
    level, other, x = rng.integers(0, 8, 4000), rng.integers(0, 4, 4000), rng.normal(size=4000)
    groups = resolve_groups(rng.integers(0, 2, 4000), n_rows=4000)
    texts = {"a": [f"a{k}" for k in level], "b": [f"b{k}" for k in other], "x": x}
    basis = build_basis(read_controls(texts, 4000), 4000.0)
    balancing.add_leaves(basis, x + (x > 0.5), groups)
    assert {*seen[0].block} == {balancing.LINE, balancing.LEVEL}


def test_ridges_are_those_of_noise_and_coefficients():
    """60 columns of 100 rows: what the fit takes of the noise is allowed for."""
    rng = np.random.default_rng(0)
    ratio = []
    for _ in range(20):
        X = rng.normal(size=(100, 60))
        y = X @ rng.normal(size=60) + 2.0 * rng.normal(size=100)
        block = np.full(60, balancing.CURVE)
        gram, cross, power = X.T @ X / 100, X.T @ y / 100, y @ y / 100
        ridge = balancing._learn_ridge(gram, cross, power, block, 100.0, 100.0)
        ratio.append(ridge[0] * balancing.UNDERSMOOTHED * 100 / 4.0)
    assert np.median(ratio) == pytest.approx(1.0, abs=0.35)


def test_of_the_roughest_weights_the_ones_that_cost_little_more(monkeypatch):
    rng = np.random.default_rng(0)
    C = rng.normal(size=(400, 4))
    a = rng.random(400) < 1 / (1 + np.exp(1.0 - C[:, 0]))
    s = C.sum(axis=1) + rng.normal(size=400)
    solved = []
    newton = balancing._newton
    monkeypatch.setattr(balancing, "_newton", lambda *r: solved.append(1) or newton(*r))
    size = {}
    for tolerated in (1.0, 1.1, 1e9):
        monkeypatch.setattr(balancing, "TOLERATED", tolerated)
        size[tolerated] = balanced(C, a, s).n_counterparts
    each = len(solved) / 3
    # The ridge falls from one to the next, and so does how equal the weights are.
    assert size[1.0] >= size[1.1] >= size[1e9]
    assert size[1.0] > size[1e9]
    # Levels and lines have one ridge.
    solved.clear()
    balanced(np.array([f"L{k % 7}" for k in range(400)]), a, s)
    assert each - len(solved) == len(balancing.FACTORS) - 1


class Stub:
    """Trees that know a multiple of the answer."""

    made: ClassVar[list] = []
    answer: ClassVar[dict] = {}

    def __init__(self, **options):
        Stub.made.append(options)

    def fit(self, F, y, weight):
        return self

    def predict(self, F):
        return np.array([Stub.answer[x] for x in F[:, 0].tolist()])


@pytest.mark.parametrize(
    ("n", "scale", "factor", "helps"),
    [(1500, 1.0, 1.5, True), (1500, 1.0, 3.0, False), (1500, 1e-7, 0.5, True),
     (12_000, 1.0, 0.5, True)],
)  # fmt: skip
def test_trees_are_kept_where_they_lower_the_loss(n, scale, factor, helps, monkeypatch):
    import sklearn.ensemble

    monkeypatch.setattr(sklearn.ensemble, "HistGradientBoostingRegressor", Stub)
    C, a, s = drawn(n)
    s = scale * s
    balance = balanced(C, a, s)
    Stub.made, Stub.answer = [], dict(zip(C["x"].tolist(), (factor * s).tolist(), strict=True))
    trees = boost(balance, s, a.astype(float), np.ones(n), 0)
    assert (trees is not None) == helps
    few = len(balance.rows) < 5000
    assert few == (n == 1500)
    sizes = (50, 0.15, 8) if few else (100, 0.1, 15)
    names = ("max_iter", "learning_rate", "max_leaf_nodes")
    assert [tuple(map(options.get, names)) for options in Stub.made] == [sizes] * 3


def test_a_reference_of_one_cluster_has_no_folds_for_trees():
    C, a, s = drawn()
    assert boost(balanced(C, a, s, np.where(a, np.arange(len(a)), 0)), s, a.astype(float),
                 np.ones(len(s)), 0) is None  # fmt: skip
