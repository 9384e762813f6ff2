"""Splines in the fairness term: what they span, what they see, and how they fall back."""

import numpy as np
import pytest
from scipy.special import log_softmax

import evenhand as eh
from evenhand.estimators.spline_term import (
    CELLS,
    LIMIT,
    N_SPLINES,
    SplineTerm,
    Table,
    fit_table,
    make_design,
    newton_step,
    smooth_functions,
    spline_shares,
)
from evenhand.kernels import get_kernels


def two_peaks(n, seed=0):
    """One group around zero, the other half above and half below: alike in mean and variance."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    far = np.sqrt(0.9) * rng.choice([-1.0, 1.0], n) + np.sqrt(0.1) * rng.normal(size=n)
    return np.where(a == 1, far, rng.normal(size=n)), a


def some_table(groups=3, two=True, seed=0):
    rng = np.random.default_rng(seed)
    design = make_design(two)
    masses = rng.exponential(size=(groups, len(design.score), len(design.target)))
    strength = 3.0 * design.rough + 1e-3 * (np.arange(design.n_terms) > 0)
    return Table(masses, design, strength)


def test_shares_are_those_of_a_spline():
    x = np.array([0.0, 0.3, 2.5, 6.999, 7.0])
    shares = spline_shares(x, 7)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    # A cubic spline of the nodes' own places is the place.
    np.testing.assert_allclose(shares @ np.arange(-1, 9), x, atol=1e-14)
    assert ((shares > 0).sum(axis=1) <= 4).all()


def test_functions_begin_with_a_quadratic_that_is_free():
    t = np.linspace(-LIMIT, LIMIT, 50)
    functions, rough = smooth_functions(t)
    assert functions.shape == (50, N_SPLINES)
    np.testing.assert_allclose(functions[:, :3], np.stack([np.ones(50), t, t**2 - 1.0], axis=1))
    assert (rough[:3] == 0).all()
    assert (np.diff(rough[2:]) > 0).all()
    assert np.linalg.matrix_rank(functions) == N_SPLINES


def test_deposit_and_slopes_are_one_spline():
    """Masses at the nodes times a table is the table between its nodes; slopes are its slopes."""
    rng = np.random.default_rng(0)
    n, width = 3000, CELLS + 3
    t, place = rng.uniform(-LIMIT, LIMIT, n), rng.integers(0, 3, n).astype(np.uint8)
    table, kernels = rng.normal(size=(3, width)), get_kernels()
    for weight in (np.empty(0), rng.exponential(size=n)):
        w = weight if len(weight) else np.ones(n)
        masses = kernels.deposit(t, place, weight, LIMIT, 3, width)

        def between(t):
            shares = spline_shares((t + LIMIT) * CELLS / (2 * LIMIT), CELLS)
            return (shares * table[place]).sum(axis=1)

        assert (masses * table).sum() == pytest.approx(w @ between(t))
        gradient = np.zeros(n)
        kernels.add_slopes(t, place, weight, LIMIT, table, 2.0, gradient)
        inside = np.abs(t) < LIMIT - 1e-4
        numeric = w * (between(t + 1e-6) - between(t - 1e-6)) / 1e-6
        np.testing.assert_allclose(gradient[inside], numeric[inside], atol=2e-4)


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("groups", [2, 4])
def test_objective_and_its_derivatives_against_torch(two, groups):
    import torch

    table = some_table(groups, two)
    design = table.design
    node, cell = np.indices((len(design.score), len(design.target)))
    phi = design.terms_at(node, cell).reshape(-1, design.n_terms)
    weights = np.random.default_rng(1).normal(size=(groups - 1, design.n_terms)) / 5.0
    terms, total, masses, strength = (
        torch.tensor(v) for v in (phi.T, table.total.ravel(), table.masses, table.strength)
    )

    def objective(flat):
        w = torch.cat([torch.zeros_like(strength)[None], flat.reshape(groups - 1, -1)])
        f = w @ terms
        loss = torch.logsumexp(f, dim=0) * total
        loss = loss.sum() - (f * masses.reshape(groups, -1)).sum()
        return loss + 0.5 * (strength * (w - w.mean(dim=0)) ** 2).sum()

    value, found, log_rho, rho = table.look(weights)
    np.testing.assert_allclose(rho.sum(axis=0), 1.0)
    expected = log_softmax(np.vstack([np.zeros(len(phi)), weights @ phi.T]), axis=0)
    np.testing.assert_allclose(log_rho.reshape(groups, -1), expected, atol=1e-12)
    flat = torch.tensor(weights.ravel())
    assert value == pytest.approx(float(objective(flat)))
    score = -torch.autograd.functional.jacobian(objective, flat).numpy()
    np.testing.assert_allclose(found.ravel(), score, rtol=1e-9, atol=1e-9)
    hessian = torch.autograd.functional.hessian(objective, flat, vectorize=True).numpy()
    np.testing.assert_allclose(table.information(weights), hessian, rtol=1e-8, atol=1e-8)
    step = newton_step(table, rho, score.reshape(weights.shape))
    exact = np.linalg.solve(hessian, score)
    left = step.ravel() - exact
    # To a tenth in the norm of the Hessian far from the optimum; at once for two groups.
    assert left @ hessian @ left <= (1e-12 if groups == 2 else 0.03) * (exact @ hessian @ exact)


def test_fit_ends_at_the_optimum_from_far_away():
    table = some_table(4)
    far = np.random.default_rng(2).normal(size=(3, table.design.n_terms)) * 5.0
    cold = np.zeros_like(far)
    ends = [fit_table(table, start, table.look(start), 1e-8) for start in (far, cold)]
    assert ends[0][1] == pytest.approx(ends[1][1], rel=1e-12)
    assert np.abs(table.look(ends[0][0]).score).max() < 1e-5


def test_splines_see_what_a_quadratic_does_not():
    s, a = two_peaks(20_000)
    value = {
        basis: eh.FairnessRegularizer(basis=basis).bind(None, sensitive_features=a).value(s)
        for basis in ("quadratic", "spline")
    }
    audit = eh.independence(None, s, sensitive_features=a)
    assert audit > 0.15
    assert value["quadratic"] < 0.5 * audit
    assert value["spline"] == pytest.approx(audit, rel=0.1)


def test_few_rows_see_a_quadratic():
    """Noise is not fitted: of groups that do not differ, splines see hardly more than a
    quadratic does."""
    rng = np.random.default_rng(0)
    seen = {"quadratic": [], "spline": []}
    for _ in range(40):
        s, a = rng.normal(size=150), rng.integers(0, 2, 150)
        for basis, values in seen.items():
            bound = eh.FairnessRegularizer(basis=basis).bind(None, sensitive_features=a)
            values.append(bound.value(s))
    # Twelve free terms would see six times as much.
    assert np.mean(seen["spline"]) < 2.5 * np.mean(seen["quadratic"])


@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
def test_a_score_of_noise_tells_next_to_nothing(criterion):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 20_000)
    y = rng.normal(size=20_000) + a
    bound = eh.FairnessRegularizer(criterion).bind(y, sensitive_features=a)
    value = bound.value(y if criterion == "sufficiency" else rng.normal(size=20_000))
    assert -1e-4 < value < 2e-3


def test_one_score_for_everybody_tells_nothing_given_the_target():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 500)
    y = np.where(a == 1, rng.choice([-1.0, 1.0], 500), rng.normal(size=500))
    bound = eh.FairnessRegularizer("separation").bind(y, sensitive_features=a)
    # The target's own splines are in both classifiers, so nothing of them is left to the score.
    tiny = bound.value(rng.normal(size=500))
    assert 0.0 < tiny < 0.05
    assert bound.value(np.ones(500)) == 0.0


def test_probabilities_of_zero_and_one_are_groups():
    rng = np.random.default_rng(0)
    a, y = rng.integers(0, 2, 400), rng.normal(size=400)
    s = y + a + rng.normal(size=400)
    proxy = eh.Proxy(a.astype(float), [0, 1])
    for criterion in ("independence", "separation"):
        regularizer = eh.FairnessRegularizer(criterion)
        one = regularizer.bind(y, sensitive_features=a).value_and_grad(s)
        other = regularizer.bind(y, sensitive_features=proxy).value_and_grad(s)
        assert one[0] == pytest.approx(other[0])
        np.testing.assert_allclose(one[1], other[1], atol=1e-12)


def test_only_bounded_scores_of_a_logistic_classifier_have_splines():
    assert eh.FairnessRegularizer().chosen_basis == "spline"
    assert eh.FairnessRegularizer(classifier="lspc").chosen_basis == "quadratic"
    assert eh.FairnessRegularizer(score_map="raw").chosen_basis == "quadratic"
    for options in ({"classifier": "lspc"}, {"score_map": "raw"}):
        with pytest.raises(ValueError, match=r"got 'spline'\. Hint: splines are for"):
            eh.FairnessRegularizer(basis="spline", **options)


def test_terms_count_products_and_the_target_alone():
    assert SplineTerm(1, 1e-3).basis.n_terms == 12
    assert SplineTerm(2, 1e-3).basis.n_terms == 12 * 3 + 9
