"""FairRidge: the ridge end, the forms of X, optimality, and refusals."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score

import evenhand as eh
from evenhand import FairRidge
from evenhand.data.criteria import CRITERIA
from evenhand.training import solver
from evenhand.training.design import FeatureMatrix
from evenhand.training.solver import Memory, PathSolver, minimize
from loaders import load_communities, load_law_school


def relative(a, b):
    return np.linalg.norm(np.subtract(a, b)) / np.linalg.norm(b)


def objective(model, X, y, a, w=None, **fairness):
    """[mean w(y − s)² + alpha‖θ‖²] / Var(y) + fairness_weight·Ĩ, written out."""
    s = model.predict(X)
    loss = np.average((y - s) ** 2, weights=w) + model.alpha * model.coef_ @ model.coef_
    variance = np.average((y - np.average(y, weights=w)) ** 2, weights=w)
    bound = eh.FairnessRegularizer(model.criterion, model.classifier, model.basis).bind(
        y, sensitive_features=a, sample_weight=w, **fairness
    )
    return loss / variance + model.fairness_weight * bound.value(s)


class TestRidgeEnd:
    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("alpha", [1e-6, 1e-3, 10.0])
    def test_equals_ridge(self, regression, fit_intercept, alpha):
        X, y, _ = regression
        ours = FairRidge(fairness_weight=0, alpha=alpha, fit_intercept=fit_intercept).fit(X, y)
        theirs = Ridge(alpha=len(y) * alpha, fit_intercept=fit_intercept).fit(X, y)
        assert relative(ours.coef_, theirs.coef_) < 1e-8
        assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-8)
        assert relative(ours.predict(X), theirs.predict(X)) < 1e-8

    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_equals_ridge_with_weights(self, regression, fit_intercept):
        X, y, _ = regression
        w = np.random.default_rng(0).uniform(0.1, 5.0, len(y))
        w[:10] = 0.0
        ours = FairRidge(fairness_weight=0, fit_intercept=fit_intercept).fit(X, y, sample_weight=w)
        raw = Ridge(alpha=w.sum() * 1e-3, fit_intercept=fit_intercept).fit(X, y, w)
        mean_one = Ridge(alpha=len(y) * 1e-3, fit_intercept=fit_intercept).fit(X, y, w / w.mean())
        for theirs in (raw, mean_one):
            assert relative(ours.coef_, theirs.coef_) < 1e-8
            assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-8)

    def test_columns_in_very_different_units(self):
        """Income in cents beside a rate: nothing is dropped for being small."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 3)) * [1e6, 1e-3, 1.0]
        y = X @ [1e-6, 1e3, 1.0] + rng.normal(size=200)
        ours = FairRidge(fairness_weight=0, alpha=1e-3).fit(X, y)
        theirs = Ridge(alpha=0.2, solver="svd").fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
        bare = FairRidge(fairness_weight=0, alpha=0).fit(X, y)
        np.testing.assert_allclose(
            bare.coef_, LinearRegression(tol=1e-14).fit(X, y).coef_, rtol=1e-7
        )

    def test_far_from_the_origin(self, regression):
        X, y, _ = regression
        near = FairRidge(fairness_weight=0).fit(X, y)
        far = FairRidge(fairness_weight=0).fit(X + 2.0**24, y - 2.0**20)
        assert relative(far.coef_, near.coef_) < 1e-7

    def test_attributes(self, regression):
        X, y, a = regression
        model = FairRidge(fairness_weight=0).fit(X, y)
        assert model.n_iter_ == 1
        assert np.isnan(model.unfairness_)
        assert model.group_coef_.shape == (0,)
        informed = FairRidge(fairness_weight=0).fit(X, y, sensitive_features=a)
        np.testing.assert_array_equal(informed.coef_, model.coef_)
        assert 0 < informed.unfairness_ < 1
        assert informed.objective_ == pytest.approx(objective(informed, X, y, a), rel=1e-10)

    def test_constant_target(self, regression):
        X, _, _ = regression
        model = FairRidge(fairness_weight=0).fit(X, np.full(len(X), 4.0))
        np.testing.assert_allclose(model.predict(X), 4.0, rtol=1e-12)


@pytest.fixture(scope="module")
def fitted(regression):
    X, y, a = regression
    return FairRidge("separation", 2.0).fit(X, y, sensitive_features=a)


class TestFormsOfX:
    @pytest.mark.parametrize(
        "form",
        [
            np.asfortranarray,
            lambda X: np.repeat(X, 2, axis=1)[:, ::2],
            sparse.csr_matrix,
            sparse.csc_matrix,
            sparse.csr_array,
            sparse.csc_array,
            sparse.coo_array,
            pd.DataFrame,
            lambda X: pl.DataFrame(X, schema=[f"x{j}" for j in range(X.shape[1])]),
            lambda X: X.tolist(),
        ],
        ids=["fortran", "strided", "csr", "csc", "csr_array", "csc_array", "coo", "pandas",
             "polars", "list"],
    )  # fmt: skip
    def test_all_agree_with_a_dense_array(self, form, regression, fitted):
        X, y, a = regression
        # Columns are named by text in frames, as scikit-learn asks.
        given = form(X).rename(columns=str) if form is pd.DataFrame else form(X)
        model = FairRidge("separation", 2.0).fit(given, y, sensitive_features=a)
        assert relative(model.coef_, fitted.coef_) < 1e-7
        assert relative(model.predict(given), fitted.predict(X)) < 1e-8

    @pytest.mark.parametrize("form", [np.asarray, np.asfortranarray, sparse.csr_array])
    def test_float32_is_kept(self, form, regression, fitted):
        X, y, a = regression
        given = form(X.astype(np.float32))
        model = FairRidge("separation", 2.0).fit(given, y, sensitive_features=a)
        assert model.coef_.dtype == np.float32
        assert model.predict(given).dtype == np.float32
        assert relative(model.coef_, fitted.coef_) < 1e-4

    def test_integers_are_read(self, regression):
        X, y, a = regression
        whole = np.round(10 * X)
        found = FairRidge().fit(whole.astype(int), y, sensitive_features=a)
        expected = FairRidge().fit(whole, y, sensitive_features=a)
        np.testing.assert_array_equal(found.coef_, expected.coef_)
        assert found.coef_.dtype == np.float64

    def test_feature_names(self, regression):
        X, y, a = regression
        frame = pd.DataFrame(X, columns=list("abcdef"))
        model = FairRidge().fit(frame, y, sensitive_features=a)
        assert model.feature_names_in_.tolist() == list("abcdef")
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame[list("bacdef")])

    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_x_is_not_copied(self, order, dtype):
        rng = np.random.default_rng(0)
        n = 60_000
        a = rng.integers(0, 2, n)
        X = np.asarray(rng.normal(size=(n, 100)), dtype=dtype, order=order)
        y = X[:, 0] + a + rng.normal(size=n)
        model = FairRidge("separation", 1.0, max_iter=200)
        model.fit(X[:200], y[:200], sensitive_features=a[:200])
        kept = X[::1000].copy()
        tracemalloc.start()
        try:
            model.fit(X, y, sensitive_features=a)
            model.predict(X)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 0.75 * X.nbytes
        np.testing.assert_array_equal(X[::1000], kept)


@pytest.fixture(scope="module")
def deficient(regression):
    """Repeated, constant, zero and combined columns beside two independent ones."""
    X, y, a = regression
    two = X[:, :2]
    more = [two[:, :1], np.full((len(y), 1), 0.1), np.zeros((len(y), 1)), two @ [[1.0], [2.0]]]
    return np.hstack([two, *more]), y, a


class TestDegenerateX:
    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    def test_rank_deficient_without_penalty(self, deficient, form):
        X, y, a = deficient
        plain = FairRidge(fairness_weight=0, alpha=0).fit(form(X), y)
        least = LinearRegression().fit(X, y)
        assert relative(plain.coef_, least.coef_) < 1e-8
        fair = FairRidge("separation", 2.0, alpha=0).fit(form(X), y, sensitive_features=a)
        full = FairRidge("separation", 2.0, alpha=0).fit(X[:, :2], y, sensitive_features=a)
        assert relative(fair.predict(form(X)), full.predict(X[:, :2])) < 1e-5
        assert fair.objective_ == pytest.approx(full.objective_, rel=1e-8)

    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    def test_rank_deficient_with_penalty(self, deficient, form):
        X, y, _ = deficient
        ours = FairRidge(fairness_weight=0).fit(form(X), y)
        theirs = Ridge(alpha=len(y) * 1e-3).fit(X, y)
        assert relative(ours.coef_, theirs.coef_) < 1e-8

    @pytest.mark.parametrize("alpha", [0, 1e-3])
    def test_fewer_rows_than_columns(self, alpha):
        rng = np.random.default_rng(0)
        X, a = rng.normal(size=(30, 60)), np.arange(30) % 2
        y = X[:, 0] + a + rng.normal(size=30)
        ours = FairRidge(fairness_weight=0, alpha=alpha).fit(X, y)
        theirs = (Ridge(alpha=30 * alpha) if alpha else LinearRegression()).fit(X, y)
        assert relative(ours.coef_, theirs.coef_) < 1e-8
        fair = FairRidge(fairness_weight=1.0, alpha=alpha).fit(X, y, sensitive_features=a)
        assert np.isfinite(fair.coef_).all()
        assert (
            fair.unfairness_
            < FairRidge(fairness_weight=0, alpha=alpha).fit(X, y, sensitive_features=a).unfairness_
        )

    @pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
    def test_constants_of_any_value_get_no_coefficient(self, form, regression):
        """The rounding of their mean must not pass for a signal."""
        X, y, a = regression
        rng = np.random.default_rng(0)
        constants = np.tile(rng.normal(size=20) * 10.0 ** rng.integers(-5, 6, 20), (len(y), 1))
        wide = form(np.hstack([X, constants]))
        w = rng.uniform(0.5, 2.0, len(y))
        model = FairRidge("separation", alpha=0).fit(wide, y, sensitive_features=a, sample_weight=w)
        narrow = FairRidge("separation", alpha=0).fit(X, y, sensitive_features=a, sample_weight=w)
        assert not model.coef_[6:].any()
        assert relative(model.coef_[:6], narrow.coef_) < 1e-5

    def test_nothing_but_constants(self):
        a = np.arange(40) % 2
        y = a + np.random.default_rng(0).normal(size=40)
        model = FairRidge(alpha=0).fit(np.ones((40, 2)), y, sensitive_features=a)
        assert model.coef_.tolist() == [0.0, 0.0]
        assert model.intercept_ == pytest.approx(y.mean())
        assert model.unfairness_ == 0.0

    def test_one_column(self, regression):
        X, y, a = regression
        model = FairRidge(fairness_weight=100.0).fit(X[:, :1], y, sensitive_features=a)
        plain = FairRidge(fairness_weight=0).fit(X[:, :1], y, sensitive_features=a)
        # A single column can only shrink or turn; the information it carries stays.
        assert model.unfairness_ <= plain.unfairness_ + 1e-9


class TestOptimum:
    @pytest.mark.parametrize("criterion", CRITERIA)
    @pytest.mark.parametrize("classifier", ["logistic", "lspc"])
    def test_unfairness_falls_as_the_weight_grows(self, criterion, classifier, regression):
        X, y, a = regression
        models = [
            FairRidge(criterion, weight, classifier=classifier).fit(X, y, sensitive_features=a)
            for weight in (0.0, 0.1, 0.5, 2.0, 10.0)
        ]
        unfairness = [model.unfairness_ for model in models]
        assert (np.diff(unfairness) < 0).all()
        loss = [np.mean((y - model.predict(X)) ** 2) for model in models]
        assert (np.diff(loss) > -1e-9).all()

    @pytest.mark.parametrize("criterion", CRITERIA)
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_stated_objective_is_the_formula_and_cannot_be_lowered(
        self, criterion, weighted, fit_intercept, regression
    ):
        X, y, a = regression
        w = np.random.default_rng(1).uniform(0.2, 2.0, len(y)) if weighted else None
        model = FairRidge(criterion, 1.0, alpha=0.01, fit_intercept=fit_intercept)
        model.fit(X, y, sensitive_features=a, sample_weight=w)
        assert model.objective_ == pytest.approx(objective(model, X, y, a, w), rel=1e-9)
        moved = clone(model).set_params(max_iter=1)

        def at(theta):
            moved.__dict__.update(model.__dict__)
            moved.coef_ = theta[:-1]
            moved.intercept_ = theta[-1] if fit_intercept else 0.0
            return objective(moved, X, y, a, w)

        start = np.append(model.coef_, model.intercept_)
        # The gradient there is zero, and nothing around it is lower.
        steps = 1e-4 * np.eye(len(start))[: None if fit_intercept else -1]
        slopes = [(at(start + h) - at(start - h)) / 2e-4 for h in steps]
        assert np.abs(slopes).max() < 1e-4
        around = (
            np.random.default_rng(0).normal(size=(10, len(start)))
            * np.repeat([1e-3, 1e-1], 5)[:, None]
        )
        assert min(at(start + h) for h in around) >= model.objective_ - 1e-9

    def test_tighter_tolerance_changes_little(self, regression):
        X, y, a = regression
        loose = FairRidge("separation", 3.0).fit(X, y, sensitive_features=a)
        tight = FairRidge("separation", 3.0, tol=1e-9).fit(X, y, sensitive_features=a)
        assert relative(loose.coef_, tight.coef_) < 1e-4
        assert tight.objective_ <= loose.objective_ + 1e-12

    def test_weight_is_a_repeated_row_but_for_the_classifiers_penalty(self, regression):
        X, y, a = regression
        w = np.random.default_rng(0).integers(0, 3, len(y))
        # Splines are smoothed by as much as the rows are few, and weights are no rows.
        model = FairRidge("separation", basis="quadratic")
        weighted = clone(model).fit(X, y, sensitive_features=a, sample_weight=w)
        repeated = clone(model).fit(
            np.repeat(X, w, axis=0), np.repeat(y, w), sensitive_features=np.repeat(a, w)
        )
        assert relative(weighted.coef_, repeated.coef_) < 1e-3

    def test_unknown_rows_count_for_accuracy_only(self, regression):
        X, y, a = regression
        unknown = a.astype(float)
        unknown[:60] = np.nan
        model = FairRidge("separation", 1.0).fit(X, y, sensitive_features=unknown)
        assert model.objective_ == pytest.approx(objective(model, X, y, unknown), rel=1e-9)
        without = FairRidge("separation", 1.0).fit(X[60:], y[60:], sensitive_features=a[60:])
        assert relative(model.coef_, without.coef_) > 1e-3
        plain = FairRidge(fairness_weight=0).fit(X, y, sensitive_features=unknown)
        ridge = Ridge(alpha=len(y) * 1e-3).fit(X, y)
        assert relative(plain.coef_, ridge.coef_) < 1e-8

    def test_proxy(self, regression):
        X, y, a = regression
        table = 0.9 * np.eye(3)[a] + 0.1 / 3
        soft = FairRidge("separation").fit(X, y, sensitive_features=eh.Proxy(table))
        assert soft.objective_ == pytest.approx(objective(soft, X, y, eh.Proxy(table)), rel=1e-9)

    def test_crossed_frame(self, regression):
        X, y, a = regression
        frame = pl.DataFrame({"a": a, "b": np.arange(len(a)) % 2})
        model = FairRidge("independence", 5.0).fit(X, y, sensitive_features=frame)
        plain = FairRidge("independence", 0).fit(X, y, sensitive_features=frame)
        assert model.unfairness_ < 0.5 * plain.unfairness_

    def test_units_of_the_target_do_not_matter(self, regression):
        X, y, a = regression
        one = FairRidge("separation", alpha=0).fit(X, y, sensitive_features=a)
        two = FairRidge("separation", alpha=0).fit(X, 1e4 * y + 3e5, sensitive_features=a)
        assert relative(two.coef_, 1e4 * one.coef_) < 1e-5
        assert two.unfairness_ == pytest.approx(one.unfairness_, rel=1e-5)

    def test_fits_repeat_exactly(self, regression):
        X, y, a = regression
        one, two = (FairRidge("sufficiency").fit(X, y, sensitive_features=a) for _ in range(2))
        np.testing.assert_array_equal(one.coef_, two.coef_)

    def test_pickle(self, regression):
        X, y, a = regression
        for kind in (None, "posterior"):
            model = FairRidge(group_features=kind).fit(X, y, sensitive_features=a)
            again = pickle.loads(pickle.dumps(model))
            np.testing.assert_array_equal(again.predict(X), model.predict(X))

    def test_too_few_iterations_warn(self, regression):
        X, y, a = regression
        with pytest.warns(ConvergenceWarning, match=r"max_iter=1\).*Hint: raise `max_it"):
            model = FairRidge("separation", 10.0, max_iter=1).fit(X, y, sensitive_features=a)
        assert model.n_iter_ == 1

    @pytest.mark.parametrize("classifier", ["logistic", "lspc"])
    def test_communities_in_thirty_evaluations(self, classifier, needs_file):
        needs_file("communities.data")
        data = load_communities()
        fit = {"X": data.X, "y": data.y, "sensitive_features": data.sensitive}
        model = FairRidge("separation", 1.0, classifier=classifier).fit(**fit)
        plain = FairRidge("separation", 0.0, classifier=classifier).fit(**fit)
        assert model.n_evaluations_ <= 30
        assert model.unfairness_ < 0.5 * plain.unfairness_


FILES = {"communities": ["communities.data"], "law_school": ["lsac.csv.gz", "lsac.csv"]}


def general_purpose(model, X, y, a, start):
    """The lowest objective that SciPy finds in the coefficients themselves, from `start`."""
    n = len(y)
    centered, target = X - X.mean(axis=0), y - y.mean()
    variance = target @ target / n
    bound = eh.FairnessRegularizer(model.criterion, model.classifier, model.basis).bind(
        y, sensitive_features=a
    )

    def f(theta):
        residual = centered @ theta - target
        value, slope = bound.value_and_grad(centered @ theta)
        fit = (residual @ residual / n + model.alpha * theta @ theta) / variance
        gradient = 2 * (centered.T @ residual / n + model.alpha * theta) / variance
        return (
            fit + model.fairness_weight * value,
            gradient + model.fairness_weight * (centered.T @ slope),
        )

    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-14, "gtol": 1e-8}
    return optimize.minimize(f, start, jac=True, method="L-BFGS-B", options=options).fun


def random_problem(seed):
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(60, 800)), int(rng.integers(1, 12)), int(rng.choice([2, 2, 3, 4]))
    a = rng.integers(0, k, n)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + a[:, None] * rng.normal(size=d)
    y = X @ rng.normal(size=d) + rng.standard_t(4, n) + a
    model = FairRidge(
        str(rng.choice(list(CRITERIA))),
        float(10 ** rng.uniform(-1, 1.5)),
        float(10 ** rng.uniform(-4, -1)),
        basis=str(rng.choice(["linear", "quadratic"])),
    )
    return model, X, y, a


@pytest.mark.parametrize("fairness_weight", [1.0, 1e4, 1e8])
@pytest.mark.parametrize("group_features", [None, "posterior"])
def test_the_scale_of_the_scores_is_the_best_one(fairness_weight, group_features, regression):
    """The fairness term does not see it, so however large its weight it must not get lost."""
    X, y, a = regression
    # A few features can be made exactly fair to a quadratic; against splines a constant wins.
    options = {"group_features": group_features, "basis": "quadratic"}
    model = FairRidge("independence", fairness_weight, **options)
    model.fit(X, y, sensitive_features=a)
    s = model.predict(X) - y.mean()
    size = model.alpha * (model.coef_ @ model.coef_ + model.group_coef_ @ model.group_coef_)
    if group_features is not None:
        slopes = np.append(0.0, model.group_coef_[-2:])
        size += model.group_alpha_ * np.sum((slopes - slopes.mean()) ** 2)
    best = (s @ y) / (s @ s + len(y) * size)
    assert best == pytest.approx(1.0, abs=1e-9)
    assert model.score(X, y) > 0


class TestLargeWeights:
    @pytest.mark.parametrize("weight", [1e4, 1e8, 1e12])
    @pytest.mark.parametrize("criterion", ["independence", "separation"])
    def test_never_worse_than_one_score_for_all(self, criterion, weight):
        """Three features cannot be made exactly fair; beyond some weight a constant is best."""
        rng = np.random.default_rng(0)
        a = rng.integers(0, 2, 300)
        X = rng.normal(size=(300, 3)) + a[:, None] * [1.0, 0.0, 0.0]
        y = X.sum(axis=1) + rng.normal(size=300)
        model = FairRidge(criterion, weight).fit(X, y, sensitive_features=a)
        assert model.objective_ <= 1.0 + 1e-12
        assert model.unfairness_ <= 1.0 / weight
        assert objective(model, X, y, a) == pytest.approx(model.objective_, abs=1e-9)

    # What a quadratic sees can be taken out exactly; of splines, it takes long at such weights.
    @pytest.mark.parametrize(
        ("weights", "basis"),
        [
            ((1.0, 1e4), "quadratic"),
            ((1.0, 1e6), "quadratic"),
            ((1e6,), "quadratic"),
            ((1.0, 1e3), "spline"),
        ],
    )
    @pytest.mark.parametrize("criterion", ["independence", "separation"])
    def test_a_leap_along_a_path_ends_where_a_fit_does(self, criterion, weights, basis):
        """What a path allows for must not grow with the weight until all R² is lost in it."""
        rng = np.random.default_rng(0)
        a = rng.integers(0, 2, 600)
        X = rng.normal(size=(600, 20)) + a[:, None] * rng.normal(size=20)
        y = X @ rng.normal(size=20) + 3 * rng.normal(size=600)
        fitter = FairRidge(criterion, basis=basis).path_fitter(X, y, sensitive_features=a)
        point = [fitter(weight) for weight in weights][-1]
        single = FairRidge(criterion, weights[-1], basis=basis).fit(X, y, sensitive_features=a)
        assert point.objective_ == pytest.approx(single.objective_, abs=5e-3)
        assert point.score(X, y) == pytest.approx(single.score(X, y), abs=5e-3)

    @pytest.mark.parametrize("family", ["squares", "poisson"])
    def test_it_starts_from_the_curvature(self, family, monkeypatch):
        """With more features than steps are remembered, fewer evaluations to the same minimum."""
        rng = np.random.default_rng(0)
        a = rng.integers(0, 2, 800)
        X = rng.normal(size=(800, 60)) + a[:, None] * 0.5 * rng.normal(size=60)
        y = X @ rng.normal(size=60) + 3 * rng.normal(size=800)
        model = FairRidge("independence", 40.0)
        if family == "poisson":
            y, model = rng.poisson(np.exp(0.07 * y)), eh.FairGLM("poisson", "independence", 40.0)
        curved = clone(model).fit(X, y, sensitive_features=a)
        monkeypatch.setattr(PathSolver, "_hessian", lambda self, v, _: 2.0 * np.eye(len(v)))
        plain = clone(model).fit(X, y, sensitive_features=a)
        assert curved.objective_ == pytest.approx(plain.objective_, abs=1e-4)
        assert curved.n_evaluations_ < 0.6 * plain.n_evaluations_

    def test_some_of_many_rows_give_the_curvature_unless_they_lack_a_group(self, monkeypatch):
        rng, found = np.random.default_rng(0), []
        X, y = rng.normal(size=(900, 60)), rng.normal(size=900)
        of_rows = PathSolver._hessian
        monkeypatch.setattr(solver, "HESSIAN_ROWS", 400)
        monkeypatch.setattr(
            PathSolver, "_hessian", lambda *a: found.append(of_rows(*a)) or found[-1]
        )
        for few in (450, 150):
            FairRidge("independence", 40.0).fit(X, y, sensitive_features=np.arange(900) < few)
            assert {matrix is None for matrix in found} == {few == 150}
            found.clear()

    def test_splines_start_where_a_quadratic_ends(self, monkeypatch):
        """Fewer evaluations to the same minimum than from the plain solution."""
        rng = np.random.default_rng(0)
        a = rng.integers(0, 2, 800)
        X = rng.normal(size=(800, 30)) + a[:, None] * 0.5 * rng.normal(size=30)
        y = X @ rng.normal(size=30) + 3 * rng.normal(size=800)
        model = FairRidge("separation", 10.0)
        staged = clone(model).fit(X, y, sensitive_features=a)
        monkeypatch.setattr(solver, "SIMPLE_WEIGHT", np.inf)
        plain = clone(model).fit(X, y, sensitive_features=a)
        assert staged.objective_ == pytest.approx(plain.objective_, abs=1e-7)
        assert staged.n_evaluations_ < 0.9 * plain.n_evaluations_

    def test_sufficiency_keeps_what_a_constant_would_lose(self):
        rng = np.random.default_rng(0)
        a = rng.integers(0, 2, 500)
        X = rng.normal(size=(500, 3)) + a[:, None]
        y = X.sum(axis=1) + rng.normal(size=500)
        model = FairRidge("sufficiency", 1e6).fit(X, y, sensitive_features=a)
        assert model.score(X, y) > 0.5
        assert model.unfairness_ < 2e-3


class TestAgainstAGeneralPurposeSolver:
    """The lean solver gives nothing away: SciPy's, patient and on raw features, is not lower."""

    @pytest.mark.parametrize(
        "tens", [0, 1, *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 10))]
    )
    def test_random_problems(self, tens):
        for seed in range(5 * tens, 5 * tens + 5):
            model, X, y, a = random_problem(seed)
            model.fit(X, y, sensitive_features=a)
            ridge = clone(model).set_params(fairness_weight=0).fit(X, y).coef_
            # Sufficiency, a difference of two terms, can have several minima, as LSPC has; there
            # ours is one of them.
            start = model.coef_ if model.criterion == "sufficiency" else ridge
            assert model.objective_ <= general_purpose(model, X, y, a, start) + 1e-8
            model.set_params(classifier="lspc", max_iter=1000).fit(X, y, sensitive_features=a)
            lowest = general_purpose(model, X, y, a, model.coef_)
            assert model.objective_ <= lowest + 1e-8

    @pytest.mark.parametrize("criterion", CRITERIA)
    @pytest.mark.parametrize("name", ["communities", "law_school"])
    def test_real_data(self, criterion, name, needs_file):
        needs_file(*FILES[name])
        data = {"communities": load_communities, "law_school": load_law_school}[name]()
        X = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
        model = FairRidge(criterion).fit(X, data.y, sensitive_features=data.sensitive)
        ridge = FairRidge(criterion, 0.0).fit(X, data.y).coef_
        lowest = general_purpose(model, X, data.y, data.sensitive, ridge)
        assert model.objective_ <= lowest + 1e-8


class Bowl:
    """‖v‖², and scores shift + Zv."""

    def __init__(self, Z, shift):
        self.Z, self.shift, self.design = Z, shift, FeatureMatrix(np.atleast_2d(Z))

    def bowl(self, v):
        return float(v @ v), 2.0 * v

    def predictor(self, v):
        return self.shift + self.Z @ v

    def forward(self, p):
        return self.Z @ p

    def backward(self, r):
        return self.Z.T @ r


class TestSolver:
    @staticmethod
    def problem(seed=0, size=8):
        """‖v‖² + Σ log cosh, with the scores as coordinates."""
        rng = np.random.default_rng(seed)
        Z, shift = 3.0 * rng.normal(size=(30, size)), 5.0 * rng.normal(size=30)

        def evaluate(s):
            return 0.0, float(np.logaddexp(s, -s).sum()), np.tanh(s)

        def f(v):
            return v @ v + evaluate(shift + Z @ v)[1]

        return evaluate, Z, shift, f

    def test_reaches_the_minimum_scipy_finds(self):
        evaluate, Z, shift, f = self.problem()
        found = minimize(
            Bowl(Z, shift), evaluate, np.zeros(8), max_iter=200, tol=1e-8, memory=Memory()
        )  # fmt: skip
        theirs = optimize.minimize(f, np.zeros(8), options={"gtol": 1e-9})
        assert found.converged
        assert found.gradient_norm <= 1e-8
        assert found.objective == pytest.approx(theirs.fun, rel=1e-12)
        assert found.objective == pytest.approx(f(found.v), rel=1e-13)
        np.testing.assert_allclose(found.v, theirs.x, atol=1e-6)

    def test_memory_of_a_similar_problem_helps(self):
        evaluate, Z, shift, _ = self.problem()

        def solve(scale, memory):
            def scaled(s):
                loss, value, slope = evaluate(s)
                return loss, scale * value, scale * slope

            return minimize(
                Bowl(Z, shift), scaled, np.zeros(8), max_iter=200, tol=1e-6, memory=memory
            )  # fmt: skip

        memory = Memory()
        solve(1.0, memory)
        assert solve(1.1, memory.rescaled(1.1)).n_evaluations < solve(1.1, Memory()).n_evaluations

    def test_infinite_values_are_stepped_back_from(self):
        """g is a barrier: a full step leaves its domain."""

        def evaluate(s):
            with np.errstate(divide="ignore", invalid="ignore"):
                inside = s < 1
                value = -np.log(1 - s).sum() - 40 * s.sum() if inside.all() else np.inf
                return float(value), 0.0, np.where(inside, 1 / (1 - s) - 40, np.nan)

        found = minimize(
            Bowl(np.eye(1), 0.0), evaluate, np.zeros(1), max_iter=100, tol=1e-9, memory=Memory()
        )  # fmt: skip
        theirs = optimize.minimize_scalar(
            lambda v: v * v - np.log(1 - v) - 40 * v, bounds=(0, 1 - 1e-12), method="bounded",
            options={"xatol": 1e-12},
        )  # fmt: skip
        assert found.converged
        assert found.v[0] == pytest.approx(theirs.x, abs=1e-6)

    def test_a_start_at_the_minimum_needs_one_evaluation(self):
        found = minimize(
            Bowl(np.eye(3), 0.0), lambda s: (0.0, 0.0, np.zeros(3)), np.zeros(3), max_iter=10,
            tol=1e-6, memory=Memory(),
        )  # fmt: skip
        assert (found.converged, found.n_iter, found.n_evaluations) == (True, 0, 1)

    def test_a_wrong_gradient_ends_the_search(self):
        """Uphill is called downhill: no step improves, and the solver says so."""
        found = minimize(
            Bowl(np.eye(3), 0.0), lambda s: (0.0, float(s.sum()), -np.ones(3)), np.zeros(3),
            max_iter=50, tol=1e-6, memory=Memory(),
        )  # fmt: skip
        assert not found.converged
        assert found.v.tolist() == [0.0, 0.0, 0.0]


class TestRefusals:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"fairness_weight": -1}, "`fairness_weight` must be a nonnegative number, got -1"),
            ({"fairness_weight": np.nan}, "`fairness_weight` must be a nonnegative number"),
            ({"fairness_weight": "1"}, "`fairness_weight` must be a nonnegative number, got '1'"),
            ({"alpha": -1e-9}, "`alpha` must be a nonnegative number, got -1e-09"),
            ({"alpha": np.inf}, "`alpha` must be a nonnegative number, got inf"),
            ({"tol": -1.0}, "`tol` must be a nonnegative number"),
            ({"max_iter": 0}, "`max_iter` must be a positive integer, got 0"),
            ({"max_iter": 1.5}, "`max_iter` must be a positive integer, got 1.5"),
            ({"criterion": "parity"}, "`criterion` must be one of .*, got 'parity'"),
            ({"classifier": "svm"}, "`classifier` must be one of logistic, lspc, got 'svm'"),
            (
                {"basis": "cubic"},
                "`basis` must be one of auto, spline, linear, .*, got 'cubic'",
            ),
            ({"group_features": "race"}, "`group_features` must be None, 'posterior' or 'attribu"),
        ],
    )
    @pytest.mark.parametrize("fairness_weight", [0, 1])
    def test_parameters(self, parameters, message, fairness_weight, regression):
        X, y, a = regression
        model = FairRidge(**{"fairness_weight": fairness_weight, **parameters})
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, sensitive_features=a)

    def test_no_sensitive_features(self, regression):
        X, y, _ = regression
        message = "`sensitive_features` must be given unless .*enable_metadata_routing=True"
        with pytest.raises(ValueError, match=message):
            FairRidge().fit(X, y)

    def test_constant_target(self, regression):
        X, y, a = regression
        with pytest.raises(ValueError, match="`y` must vary: all rows have the same value"):
            FairRidge().fit(X, np.full(len(y), 0.1), sensitive_features=a)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, bad, regression):
        X, y, a = regression
        what = "NaN" if np.isnan(bad) else "infinity"
        broken = X.copy()
        broken[3, 2] = bad
        for given in (broken, sparse.csr_array(broken)):
            with pytest.raises(ValueError, match=f"Input X contains {what}"):
                FairRidge().fit(given, y, sensitive_features=a)
        broken = y.copy()
        broken[3] = bad
        with pytest.raises(ValueError, match=f"Input y contains {what}"):
            FairRidge().fit(X, broken, sensitive_features=a)
        model = FairRidge().fit(X, y, sensitive_features=a)
        with pytest.raises(ValueError, match=f"Input X contains {what}"):
            model.predict(np.full((1, 6), bad))

    def test_lengths(self, regression):
        X, y, a = regression
        with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[300, 299\]"):
            FairRidge().fit(X, y[1:], sensitive_features=a)
        with pytest.raises(ValueError, match=r"`sensitive_features` .* got 299 for 300 rows"):
            FairRidge().fit(X, y, sensitive_features=a[1:])
        with pytest.raises(ValueError, match=r"`sample_weight` .* got 299 for 300 rows"):
            FairRidge().fit(X, y, sensitive_features=a, sample_weight=np.ones(299))

    def test_two_targets(self, regression):
        X, y, a = regression
        with pytest.raises(ValueError, match=r"y should be a 1d array, got .* shape \(300, 2\)"):
            FairRidge().fit(X, np.column_stack([y, y]), sensitive_features=a)

    def test_one_group(self, regression):
        X, y, _ = regression
        with pytest.raises(ValueError, match="at least two groups to compare, found only '1'"):
            FairRidge().fit(X, y, sensitive_features=np.ones(len(y), dtype=int))

    def test_wrong_number_of_features(self, regression):
        X, y, a = regression
        model = FairRidge().fit(X, y, sensitive_features=a)
        with pytest.raises(ValueError, match="X has 5 features, but FairRidge is expecting 6"):
            model.predict(X[:, :5])

    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_target_too_large_to_square(self, fit_intercept, regression):
        X, y, a = regression
        model = FairRidge(fit_intercept=fit_intercept)
        with pytest.raises(ValueError, match=r"`y` must be small enough.*Hint: divide it"):
            model.fit(X, 1e160 * y, sensitive_features=a)

    def test_not_fitted(self, regression):
        with pytest.raises(NotFittedError):
            FairRidge().predict(regression[0])


def test_no_warning_in_an_ordinary_fit(regression):
    X, y, a = regression
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for criterion in CRITERIA:
            FairRidge(criterion, 100.0).fit(X, y, sensitive_features=a)


def test_group_features_without_groups_are_refused(regression):
    X, y, _ = regression
    model = FairRidge(fairness_weight=0, group_features="posterior")
    with pytest.raises(ValueError, match="`sensitive_features` must be given with group_features"):
        model.fit(X, y)


def test_score_passes_the_attribute_on(regression):
    X, y, a = regression
    model = FairRidge(fairness_weight=1, group_features="attribute")
    model.fit(X, y, sensitive_features=a)
    prediction = model.predict(X, sensitive_features=a)
    expected = 1 - np.mean((y - prediction) ** 2) / np.var(y)
    assert model.score(X, y, sensitive_features=a) == pytest.approx(expected)


def test_the_score_of_a_constant_target_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, a = rng.normal(size=(60, 2)), np.arange(60) % 2
    fair = eh.FairRidge().fit(X, X[:, 0], sensitive_features=a)
    priced = eh.FairGLM("poisson").fit(X, rng.poisson(1.0, 60), sensitive_features=a)
    same = np.ones(60)
    assert fair.score(X, same) == r2_score(same, fair.predict(X)) == 0.0
    assert priced.score(X, same) == 0.0
    flat = eh.FairRidge(fairness_weight=0.0).fit(X, same, sensitive_features=a)
    assert flat.score(X, flat.predict(X)) == 1.0


def test_a_search_between_two_points_stays_between_them():
    """At the bottom of a cubic; in the middle where it has none."""
    assert solver._interpolate((0.0, 0.09, -0.6), (1.0, 0.49, 1.4)) == pytest.approx(0.3)
    assert solver._interpolate((0.0, 0.0, 2.0), (1.0, 1.0, 2.0)) == 0.5
    assert solver._interpolate((0.0, 0.0, -1.0), (2.0, np.inf, np.nan)) == pytest.approx(0.2)


def test_a_point_of_a_path_is_as_exact_as_its_noise_allows():
    few, many = (solver.path_tolerance(1e-9, n, 1.0) for n in (4_000, 10_000))
    assert solver.PATH_TOL[0] < many < few < solver.PATH_TOL[1]
    assert solver.path_tolerance(1e-2, 4_000, 1.0) == 1e-2
    # What it allows is a share of 1 + weight, up to a weight of 100.
    assert solver.path_tolerance(1e-9, 4_000, 100.0) == few
    assert 1001.0 * solver.path_tolerance(1e-9, 4_000, 1000.0) == pytest.approx(101.0 * few)


def test_targets_in_another_order_than_the_features_have_no_score(regression):
    X, y, a = regression
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])
    model = FairRidge().fit(frame, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`y` must have its rows in the order of `X`"):
        model.score(frame, pd.Series(y)[::-1])
