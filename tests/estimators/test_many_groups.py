"""Many groups: curvature from cells ends where exact Newton steps do, and so does leaving out."""

import numpy as np
import pytest
from grids import pairwise
from scipy.special import softmax

import evenhand as eh
from evenhand import Logistic
from evenhand.data.groups import resolve_groups
from evenhand.estimators import _leave_out, _newton, logistic
from evenhand.estimators._leave_out import leave_out_rows
from evenhand.estimators._newton import descend, descend_by_cells, gather, grid_pays, objective_at
from evenhand.estimators.ranks import cut, gather_two
from evenhand.kernels import make_rows, with_score
from evenhand.kernels.basis import get_basis

KAPPA = 1e-3


def draw(n, n_groups, weighted=False, seed=0):
    """Target, score and groups that differ in both means, of unequal sizes."""
    rng = np.random.default_rng([seed, n_groups])
    a = np.minimum(rng.geometric(min(2.0 / n_groups, 0.6), n) - 1, n_groups - 1)
    y = rng.normal(size=n) + 0.5 * rng.normal(size=n_groups)[a]
    s = 0.7 * y + rng.normal(size=n) + 0.3 * rng.normal(size=n_groups)[a]
    weight = rng.uniform(0.2, 3.0, n) if weighted else None
    return y, s, a, resolve_groups(a, n_rows=n, sample_weight=weight)


def rows_of(y, s, groups):
    return with_score(make_rows(groups, y), s), get_basis("quadratic", 2)


@pytest.mark.parametrize(("n_groups", "n_functions"), [(3, 2), (5, 8), (40, 3), (3, 20)])
def test_hessian_sums_products_within_cells(n_groups, n_functions):
    """Σ_c n_c (diag(p) − ppᵀ) ⊗ φφᵀ, however many groups and functions there are."""
    rng = np.random.default_rng(8)
    f, counts = rng.normal(size=(n_functions, 30)), rng.uniform(size=(n_groups, 30))
    problem = _newton.Regression(f, counts, np.zeros(n_functions))
    prob = softmax(rng.normal(size=(n_groups, 30)), axis=0)
    p = prob[1:].T
    spread = p[:, :, None] * (np.eye(n_groups - 1) - p[:, None])
    expected = np.einsum("c,ckl,dc,ec->kdle", counts.sum(axis=0), spread, f, f)
    size = (n_groups - 1) * n_functions
    np.testing.assert_allclose(problem.hessian(prob), expected.reshape(size, size), atol=1e-12)


@pytest.fixture
def by_rows(monkeypatch):
    """Turns the grid off."""
    return lambda: monkeypatch.setattr(logistic, "grid_pays", lambda rows: False)


@pytest.mark.parametrize("n_groups", [3, 12])
@pytest.mark.parametrize("weighted", [False, True])
def test_cells_hold_the_rows(n_groups, weighted):
    y, s, a, groups = draw(5000, n_groups, weighted)
    rows, _ = rows_of(y, s, groups)
    grid = gather(rows)
    weight = np.ones(5000) if groups.weight is None else groups.weight
    mass = np.bincount(grid.number, weight)
    np.testing.assert_allclose(grid.mass, mass)
    np.testing.assert_allclose(grid.rows.s, np.bincount(grid.number, weight * s) / mass)
    np.testing.assert_allclose(grid.rows.y, np.bincount(grid.number, weight * y) / mass)
    np.testing.assert_allclose(grid.single, np.bincount(grid.number, weight**2) / mass)
    assert grid.rows.weight.mean() == pytest.approx(1.0)
    share = np.bincount(grid.number * n_groups + a, weight, len(mass) * n_groups)
    np.testing.assert_allclose(
        grid.rows.probabilities, share.reshape(-1, n_groups) / mass[:, None], atol=1e-12
    )


@pytest.mark.parametrize("n_groups", [3, 5, 20])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("soft", [False, True])
def test_curvature_from_cells_ends_where_newton_steps_do(n_groups, weighted, soft, monkeypatch):
    y, s, a, groups = draw(6000, n_groups, weighted)
    if soft:
        table = np.random.default_rng(1).dirichlet(np.ones(n_groups), 6000) + np.eye(n_groups)[a]
        groups = resolve_groups(
            eh.Proxy(table / 2.0), n_rows=6000, sample_weight=groups.weight, warn=False
        )
    rows, basis = rows_of(y, s, groups)
    fit = descend(rows, basis, KAPPA, None, 50)
    assert fit.converged
    by_cells = descend_by_cells(rows, basis, KAPPA)
    assert by_cells.converged
    np.testing.assert_allclose(by_cells.weights, fit.weights, rtol=1e-6, atol=2e-6)
    moved = with_score(rows, s + 0.02 * np.sin(7 * s))
    monkeypatch.setattr(_newton, "gather", None)  # the old curvature is enough
    again = descend_by_cells(moved, basis, KAPPA, by_cells.weights, by_cells.chord)
    expected = descend(moved, basis, KAPPA, None, 50)
    (value, gradient), (own, ours) = (
        logistic.evaluate(moved, basis, f.weights, KAPPA, 1.0) for f in (expected, again)
    )
    assert own == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(ours, gradient, atol=1e-6 * np.abs(gradient).max())


def test_a_far_start_and_a_useless_one_end_there_too():
    y, s, _, groups = draw(6000, 5)
    rows, basis = rows_of(y, s, groups)
    fit = descend_by_cells(rows, basis, KAPPA)
    flipped = with_score(rows, -s)
    expected = descend(flipped, basis, KAPPA, None, 50)
    for start in (fit.weights, 1e3 * np.ones_like(fit.weights)):
        again = descend_by_cells(flipped, basis, KAPPA, start, fit.chord)
        assert again.converged
        np.testing.assert_allclose(again.weights, expected.weights, rtol=1e-6, atol=2e-6)


def test_what_cells_do_not_reach_is_left_to_newton_steps(monkeypatch, by_rows):
    """Groups that the score gives away: probabilities of 0 and 1, where full steps overshoot."""
    rng = np.random.default_rng(0)
    a = np.arange(5000) % 25
    s = 10.0 * a + rng.uniform(size=5000)
    groups = resolve_groups(a, n_rows=5000)
    rows, basis = with_score(make_rows(groups), s), get_basis("quadratic", 1)
    assert grid_pays(rows)
    assert not descend_by_cells(rows, basis, KAPPA, max_iter=1).converged
    mixed = logistic.newton(rows, basis, KAPPA)
    by_rows()
    plain = logistic.newton(rows, basis, KAPPA)
    objectives = [-logistic.evaluate(rows, basis, f.weights, KAPPA)[0] for f in (mixed, plain)]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-9)


@pytest.mark.parametrize("n_groups", [3, 30])
@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
def test_gradient_equals_differences(n_groups, criterion):
    """Along random directions, weights and all, from a warm start."""
    y, s, a, groups = draw(5000 if n_groups > 20 else 34_000, n_groups, weighted=True)
    bound = eh.FairnessRegularizer(criterion).bind(
        y, sensitive_features=a, sample_weight=groups.weight
    )
    bound.value_and_grad(s + 0.01)
    _, gradient = bound.value_and_grad(s)
    rng = np.random.default_rng(1)
    for direction in (rng.normal(size=len(s)), np.sin(s), s**2):
        size = 1e-4
        up, down = (bound.value(s + sign * size * direction) for sign in (1, -1))
        slope = float(gradient @ direction)
        assert slope == pytest.approx((up - down) / (2 * size), rel=1e-5, abs=1e-9)


def test_value_and_gradient_are_those_of_newton_steps(by_rows):
    y, s, a, _ = draw(5000, 30)
    moves = [s + 0.02 * k * np.cos(5 * s) for k in range(4)]
    found = []
    for turn in range(2):
        if turn:
            by_rows()
        bound = eh.FairnessRegularizer("separation").bind(y, sensitive_features=a)
        found.append([bound.value_and_grad(move) for move in moves])
    for (value, gradient), (other, expected) in zip(*found, strict=True):
        assert value == pytest.approx(other, rel=1e-11)
        np.testing.assert_allclose(gradient, expected, atol=1e-6 * np.abs(expected).max())


@pairwise(n_groups=[4, 30], weighted=[False, True], condition=[("s",), ("s", "y")])
def test_leaving_out_by_cells_is_close_to_row_by_row(n_groups, weighted, condition, by_rows):
    """Rows to a tenth of the correction, their mean to a hundredth."""
    y, s, _, groups = draw(26_000 if n_groups == 4 else 5000, n_groups, weighted)
    found = []
    for turn in range(2):
        if turn:
            by_rows()
        found.append(
            [
                Logistic(losses=losses).row_losses({"s": s, "y": y}, [condition], groups)
                for losses in ("in-sample", "leave-one-out")
            ]
        )
    (inside, outside), (own, exact) = [[part[condition].value for part in pair] for pair in found]
    np.testing.assert_allclose(inside, own, atol=2e-4)
    assert np.average(inside, weights=groups.weight) == pytest.approx(
        np.average(own, weights=groups.weight), abs=1e-9
    )
    correction, error = exact - own, outside - inside - (exact - own)
    assert np.abs(correction).mean() > 1e-5
    assert np.sqrt(np.square(error).mean()) < 0.1 * np.sqrt(np.square(correction).mean())
    means = [np.average(v, weights=groups.weight) for v in (error, correction)]
    assert abs(means[0]) < 0.01 * means[1]


def test_leaving_out_by_series_equals_solving(monkeypatch):
    y, s, _, groups = draw(900, 14, weighted=True)
    rows, basis = rows_of(y, s, groups)
    weights = descend(rows, basis, 0.1, None, 50).weights
    inverse = np.linalg.inv(objective_at(rows, basis, weights, 0.1)[2])
    found = leave_out_rows(rows, basis, weights, inverse)
    monkeypatch.setattr(_leave_out, "_MANY", 15)
    monkeypatch.setattr(_newton, "_SERIES", 0.0)
    expected = leave_out_rows(rows, basis, weights, inverse)
    assert not np.array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    # Where leverages are below a thousandth the series ends with its first term.
    np.testing.assert_allclose(found[1], expected[1], rtol=2e-5)


def test_noise_of_forty_small_groups_stays_near_zero():
    rng = np.random.default_rng(0)
    a = np.repeat(np.arange(40), 20)
    y = rng.normal(size=800)
    s = 0.5 * y + rng.normal(size=800)
    result = eh.audit(y, s, sensitive_features=a, estimator="logistic")
    assert all(-0.05 < measure.value < 0.05 for measure in result.measures.values())


class Plain:
    """The ladder's regression by plain Newton steps and a solve per entry, to compare with."""

    def __init__(self, columns, cells, penalty):
        self.columns, self.cells, self.penalty = columns, cells, penalty
        k, d = cells.counts.shape[1], columns.shape[1]
        self.shape = k - 1, d
        self.form = np.kron(np.eye(k - 1) - 1 / k, np.diag(penalty))

    def hessian(self, theta):
        eta = self.columns @ theta.reshape(self.shape).T
        p = softmax(np.column_stack([np.zeros(len(eta)), eta]), axis=1)[:, 1:]
        total = self.cells.counts.sum(axis=1)
        v = p[:, :, None] * (np.eye(self.shape[0]) - p[:, None, :])
        data = np.einsum("c,ckl,cd,ce->kdle", total, v, self.columns, self.columns, optimize=True)
        slope = ((self.cells.counts[:, 1:] - total[:, None] * p).T @ self.columns).ravel()
        return data.reshape(theta.size, -1) + self.form, slope - self.form @ theta, eta, p, v

    def fit(self, theta):
        for _ in range(30):
            hessian, slope, eta, p, v = self.hessian(theta)
            theta = theta + np.linalg.solve(hessian, slope)
        inverse = np.linalg.inv(hessian).reshape(*self.shape, *self.shape)
        leverage = np.einsum("cd,kdle,ce->ckl", self.columns, inverse, self.columns, optimize=True)
        outside = []
        for cell, member, single in zip(
            self.cells.cell, self.cells.target[:, 1:], self.cells.single, strict=True
        ):
            m = single * leverage[cell]
            step = np.linalg.solve(np.eye(len(m)) - m @ v[cell], m @ (p[cell] - member))
            moved = eta[cell] + step
            outside.append(np.logaddexp.reduce(np.append(moved, 0.0)) - member @ moved)
        smoothing = np.eye(theta.size) - inverse.reshape(theta.size, -1) @ self.form
        return theta, np.array(outside), np.trace(smoothing), np.trace(smoothing @ smoothing)


@pairwise(n_groups=[2, 4, 12], width=[3, 10, 24], soft=[False, True])
def test_ladder_fit_equals_plain_newton_steps(n_groups, width, soft, monkeypatch):
    """Of any size: with and without single precision, products of columns, and series."""
    n = 500
    y, s, a, groups = draw(n, n_groups, weighted=True)
    if soft:
        table = np.random.default_rng(1).dirichlet(np.ones(n_groups), n) + np.eye(n_groups)[a]
        groups = resolve_groups(
            eh.Proxy(table / 2.0), n_rows=n, sample_weight=groups.weight, warn=False
        )
    weight = groups.weight
    cells = gather_two((cut(s, weight), cut(y, weight)), None, weight, groups, 0)
    u, v = cells.coordinates
    powers = [(i, d - i) for d in range(7) for i in range(d + 1)][:width]
    columns = np.stack([np.cos(i * u) * np.cos(j * v + 0.3 * i) for i, j in powers], axis=1)
    penalty = np.r_[0.0, np.full(width - 1, 3.0)]
    theta, outside, terms, squares = Plain(columns, cells, penalty).fit(
        np.zeros((n_groups - 1) * width)
    )
    for large in (np.inf, 0.0):
        monkeypatch.setattr(_newton, "_LARGE", large)
        # From the optimum the leverages are those at the optimum too.
        found = _newton.fit(columns.T, cells, penalty, theta.reshape(n_groups - 1, width))
        np.testing.assert_allclose(found.theta.ravel(), theta, atol=1e-4)
        assert cells.mean(found.outside) == pytest.approx(np.average(outside, weights=weight), 1e-6)
        np.testing.assert_allclose(found.outside, outside, rtol=1e-4, atol=1e-5)
        assert found.terms == pytest.approx(terms, rel=1e-4)
        assert found.squares == pytest.approx(squares, rel=1e-4)
        cold = _newton.fit(columns.T, cells, penalty)
        assert cells.mean(cold.inside) == pytest.approx(cells.mean(found.inside), abs=1e-5)
        assert cells.mean(cold.outside) == pytest.approx(cells.mean(found.outside), abs=1e-3)
