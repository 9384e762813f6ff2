"""Logistic: against scikit-learn and statsmodels, leave-one-out, and hard cases."""

import numpy as np
import pytest
import statsmodels.api as sm
from classifiers import Fitted
from grids import pairwise
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import PolynomialFeatures

import evenhand as eh
from evenhand import Logistic
from evenhand.data.groups import resolve_groups
from evenhand.estimators.logistic import KAPPA, SAMPLE_ROWS, evaluate, newton
from evenhand.kernels import make_rows, with_score
from evenhand.kernels.basis import get_basis


def _data(n, p, n_groups, seed=0):
    rng = np.random.default_rng(seed)
    a = np.arange(n) % n_groups
    return rng.normal(5.0, 3.0, size=(n, p)) + rng.normal(size=(n_groups, p))[a], a, rng


def _features(X, basis, w=None):
    mean = np.average(X, axis=0, weights=w)
    z = (X - mean) / np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w))
    degree = {"linear": 1, "quadratic": 2}[basis]
    return PolynomialFeatures(degree, include_bias=False).fit_transform(z)


@pytest.mark.parametrize("basis", ["linear", "quadratic"])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("n_groups", [3, 5])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_multinomial_regression_of_sklearn(basis, p, n_groups, weighted):
    """scikit-learn's symmetric penalty ½Σ‖w_k‖² is least at mean zero: Σ‖w_k − w̄‖²."""
    X, a, rng = _data(150, p, n_groups)
    w = rng.uniform(0.2, 2.0, 150) if weighted else None
    kappa = 0.5
    ours = Fitted(Logistic(basis, kappa=kappa), X, a, w)
    phi = _features(X, basis, w)
    theirs = LogisticRegression(C=1 / kappa, tol=1e-10, max_iter=10_000).fit(phi, a, w)
    np.testing.assert_allclose(ours.probabilities, theirs.predict_proba(phi), atol=1e-5)
    centered = ours.weights - ours.weights.mean(axis=0)
    np.testing.assert_allclose(centered[:, 1:], theirs.coef_, atol=1e-4)


@pytest.mark.parametrize("basis", ["linear", "quadratic"])
def test_equals_binary_regression_of_sklearn(basis):
    """With two groups w₀ = −w₁ about their mean: half the penalty of the difference."""
    X, a, _ = _data(150, 2, 2)
    kappa = 0.5
    ours = Fitted(Logistic(basis, kappa=kappa), X, a)
    phi = _features(X, basis)
    theirs = LogisticRegression(C=2 / kappa, tol=1e-10, max_iter=10_000).fit(phi, a)
    np.testing.assert_allclose(ours.weights[1, 1:], theirs.coef_[0], atol=1e-5)
    np.testing.assert_allclose(ours.scores[:, 1], theirs.decision_function(phi), atol=1e-5)


@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_equals_maximum_likelihood_of_statsmodels(n_groups):
    X, a, _ = _data(400, 2, n_groups)
    ours = Fitted(Logistic("quadratic", kappa=1e-12), X, a)
    theirs = sm.MNLogit(a, sm.add_constant(_features(X, "quadratic"))).fit(
        disp=False, method="newton", maxiter=50
    )
    np.testing.assert_allclose(ours.weights[1:], theirs.params.T, rtol=1e-6, atol=1e-8)


def test_classifier_takes_integer_weights_for_repeated_rows():
    X, a, rng = _data(60, 2, 3)
    w = rng.integers(0, 3, 60)
    weighted = Fitted(Logistic(), X, a, w)
    repeated = Fitted(Logistic(), np.repeat(X, w, axis=0), np.repeat(a, w))
    np.testing.assert_allclose(weighted.weights, repeated.weights, rtol=1e-7, atol=1e-9)


class SoftRegression:
    """Penalized multinomial regression on soft labels by plain Newton steps, to compare with."""

    def __init__(self, features, t, w):
        n, k = t.shape
        self.phi, self.t, self.w = np.column_stack([np.ones(n), features]), t, w
        self.shape = k - 1, self.phi.shape[1]
        center = np.eye(k - 1) - 1 / k
        self.penalty = 1e-3 * np.kron(center, np.diag([0.0] + [1.0] * (self.shape[1] - 1)))

    def probabilities(self, theta):
        scores = self.phi @ theta.reshape(self.shape).T
        return softmax(np.column_stack([np.zeros(len(scores)), scores]), axis=1)

    def step(self, theta, weight):
        rho = self.probabilities(theta)[:, 1:]
        residual = weight[:, None] * (self.t[:, 1:] - rho)
        slope = (residual.T @ self.phi).ravel() - self.penalty @ theta
        curvature = rho[:, :, None] * (np.eye(self.shape[0]) - rho[:, None, :])
        hessian = np.einsum(
            "i,ikl,id,ie->kdle", weight, curvature, self.phi, self.phi, optimize=True
        )
        return theta + np.linalg.solve(hessian.reshape(theta.size, -1) + self.penalty, slope)

    def losses_without(self, rows, steps):
        """Loss of each of `rows` after so many Newton steps without it, from the full fit."""
        whole = np.zeros(self.penalty.shape[0])
        for _ in range(12):
            whole = self.step(whole, self.w)
        out = []
        for i in rows:
            weight, theta = self.w.copy(), whole
            weight[i] = 0.0
            for _ in range(steps):
                theta = self.step(theta, weight)
            out.append(-(self.t[i] * np.log(self.probabilities(theta)[i])).sum())
        return np.array(out)


def _leave_one_out(data, condition):
    """In-sample and leave-one-out losses of ours, and the regression to compare with."""
    groups = data.groups
    variables = {"s": groups.take_known(data.s), "y": groups.take_known(data.y)}
    inside, outside = (
        Logistic(losses=losses).row_losses(variables, [condition], groups)[condition].value
        for losses in ("in-sample", "leave-one-out")
    )
    w = np.ones(groups.n_known) if groups.weight is None else groups.weight
    X = np.stack([variables[v] for v in condition], axis=1)
    return inside, outside, SoftRegression(_features(X, "quadratic", w), groups.membership(), w)


@pytest.mark.parametrize("kind", ["plain", "weights", "proxy", "unknown"])
@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("condition", [("s",), ("s", "y")])
def test_leave_one_out_is_one_newton_step_without_the_row(kind, n_groups, condition, case):
    _, outside, regression = _leave_one_out(case(kind, n_groups, n=300), condition)
    rows = np.arange(0, len(outside), 10)
    expected = regression.losses_without(rows, steps=1)
    np.testing.assert_allclose(outside[rows], expected, rtol=1e-6, atol=1e-9)


@pairwise(
    kind=["plain", "weights", "proxy", "unknown"], n_groups=[2, 3], condition=[("s",), ("s", "y")]
)
def test_leave_one_out_is_close_to_refitting_without_the_row(kind, n_groups, condition, case):
    """At 600 rows: half of the rows to 0.5% of their correction, the mean to 5% of its own."""
    inside, outside, regression = _leave_one_out(case(kind, n_groups, n=600), condition)
    rows = np.arange(0, len(outside), 4)
    exact = regression.losses_without(rows, steps=5)
    correction, error = exact - inside[rows], outside[rows] - exact
    assert np.median(np.abs(error / correction)) <= 0.005
    assert abs(error.mean()) <= 0.05 * correction.mean()


def test_reference_group_does_not_matter(case):
    """Relabeling moves another group into the place of the reference."""
    data = case("weights", 3)
    a = data.fairness["sensitive_features"]
    w = data.fairness["sample_weight"]
    X = np.column_stack([data.s, data.y])
    straight = Fitted(Logistic(kappa=5.0), X, a, w).probabilities
    turned = Fitted(Logistic(kappa=5.0), X, 2 - a, w).probabilities
    np.testing.assert_allclose(turned[:, ::-1], straight, rtol=1e-8)


@pytest.mark.parametrize("n_groups", [2, 3])
def test_perfectly_separated_groups_stay_finite(n_groups):
    a = np.arange(90) % n_groups
    X = (10.0 * a + np.random.default_rng(0).uniform(size=90))[:, None]
    model = Fitted(Logistic(), X, a)
    assert np.isfinite(model.weights).all()
    assert (model.scores.argmax(axis=1) == a).all()
    groups = resolve_groups(a, n_rows=90)
    rows = Logistic().row_losses({"s": X[:, 0]}, [("s",)], groups)[("s",)]
    assert np.isfinite(rows.value).all()
    assert 0 <= rows.value.mean() < 0.01


def _rows(data):
    return with_score(make_rows(data.groups, data.y), data.s), get_basis("quadratic", 2)


def _objective(rows, basis, fit):
    return -evaluate(rows, basis, fit.weights, KAPPA)[0]


def test_warm_start_reaches_the_same_optimum_in_fewer_steps(case):
    rows, basis = _rows(case("weights", 3, n=500))
    cold = newton(rows, basis)
    moved = with_score(rows, rows.s + 0.01 * np.sin(np.arange(len(rows.s))))
    again, warm = newton(moved, basis), newton(moved, basis, start=cold.weights)
    assert warm.n_iter < again.n_iter
    np.testing.assert_allclose(warm.weights, again.weights, rtol=1e-6, atol=1e-9)
    assert _objective(moved, basis, warm) == pytest.approx(
        _objective(moved, basis, again), rel=1e-13
    )


def test_a_useless_start_is_thrown_away(case):
    rows, basis = _rows(case("plain", 3))
    cold = newton(rows, basis)
    wild = newton(rows, basis, start=1e3 * np.ones_like(cold.weights))
    assert _objective(rows, basis, wild) == pytest.approx(_objective(rows, basis, cold), rel=1e-13)


def test_many_rows_start_from_some_of_them_and_end_where_all_do():
    n = 2 * SAMPLE_ROWS + 1
    rng = np.random.default_rng(0)
    a = (rng.random(n) < 0.1).astype(int)
    y = rng.normal(size=n) + a
    s = y + rng.normal(size=n) * (1 + a)
    rows = with_score(make_rows(resolve_groups(a, n_rows=n), y), s)
    basis = get_basis("quadratic", 2)
    sampled = newton(rows, basis)
    whole = newton(rows, basis, start=np.zeros((1, basis.n_terms)))
    assert sampled.n_iter < whole.n_iter
    np.testing.assert_allclose(sampled.weights, whole.weights, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", [18, 165, 216])
def test_steps_are_halved_where_newton_overshoots(seed):
    """Cauchy scores on which undamped steps run off to infinity."""
    a = np.arange(60) % 2
    s = np.random.default_rng(seed).standard_cauchy(60) + 2 * a
    groups = resolve_groups(a, n_rows=60)
    rows, basis = with_score(make_rows(groups), s), get_basis("quadratic", 1)
    fit = newton(rows, basis)
    theirs = LogisticRegression(C=2 / 1e-3, tol=1e-10, max_iter=100_000, solver="newton-cholesky")
    phi = _features(s[:, None], "quadratic")
    theirs.fit(phi, a)
    expected = -np.log(theirs.predict_proba(phi)[np.arange(60), a]).mean()
    penalty = 1e-3 / 4 * np.sum(theirs.coef_**2) / 60
    assert _objective(rows, basis, fit) == pytest.approx(expected + penalty, rel=1e-7)


def test_too_few_steps_warn(case):
    data = case("plain", 2)
    with pytest.warns(ConvergenceWarning, match=r"did not converge in 1 Newton.*Hint: raise"):
        Logistic(max_iter=1).row_losses({"s": data.s}, [("s",)], data.groups)


@pytest.mark.parametrize("kappa", [0, -1.0])
def test_kappa_must_be_positive(kappa, case):
    data = case("plain", 2)
    with pytest.raises(ValueError, match="`kappa` must be positive, got"):
        Logistic(kappa=kappa).row_losses({"s": data.s}, [("s",)], data.groups)


def test_weights_and_description(case):
    data = case("plain", 3)
    X = np.column_stack([data.s, data.y])
    model = Fitted(Logistic("linear"), X, data.fairness["sensitive_features"])
    assert model.weights.shape == (3, 3)
    assert (model.weights[0] == 0).all()
    assert 1 <= model.n_iter <= 12
    rows = Logistic("linear").row_losses({"s": data.s, "y": data.y}, [("s", "y")], data.groups)
    assert rows[("s", "y")].chosen == "linear Logistic, 3 terms"


@pytest.mark.filterwarnings("ignore:FairRidge stopped")
def test_warm_starts_never_end_worse_than_cold_ones():
    """Many groups given to the model: probabilities of 0 and 1, where Newton steps overshoot."""
    rng = np.random.default_rng(0)
    a = np.arange(400) % 25
    X = rng.normal(size=(400, 4)) + 0.5 * a[:, None]
    y = X.sum(axis=1) + rng.normal(size=400)
    model = eh.FairRidge("separation", 5.0, group_features="attribute", max_iter=6)
    model.fit(X, y, sensitive_features=a)
    bound = eh.FairnessRegularizer("separation").bind(y, sensitive_features=a)
    value = bound.value(model.predict(X, sensitive_features=a))
    assert 0 < value < 1
    assert model.unfairness_ == pytest.approx(value, rel=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [1e3, 1e5, 1e9, 1e200])
def test_one_value_far_out_costs_no_more_than_a_guess(value):
    rng = np.random.default_rng(0)
    a = (rng.random(500) < 0.4).astype(int)
    y = rng.normal(size=500) + a
    s = y + rng.normal(size=500) + 0.5 * a
    s[3] = value
    for measure in (eh.independence, eh.separation, eh.sufficiency):
        # Half a loss of log(n / share) in n rows, and as much again for the fit.
        assert measure(y, s, sensitive_features=a, estimator="logistic") > -0.04
