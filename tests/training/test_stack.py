"""The stack: its columns, its penalty, any regressor beneath it, and what it refuses."""

import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import evenhand as eh
from evenhand.training.design import FeatureMatrix
from evenhand.training.problem import TrainingRows, prepare_ridge
from evenhand.training.stack import GRID, FoldMean, StackPenalty, generalized_cross_validation

BOOST = HistGradientBoostingRegressor(max_iter=40, random_state=0)


def curved(n, seed=0, groups=2):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, groups, n)
    X = rng.normal(size=(n, 5))
    X[:, 0] += a
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.7 * X[:, 0] + 0.5 * rng.normal(size=n)
    return X, y, np.array(["p", "q", "r"])[a]


def stack(estimator=BOOST, criterion="independence", fairness_weight=1.0, **options):
    options = {"passthrough": True, "random_state": 0, "cv": 3, **options}
    return eh.FairPostprocessor(estimator, criterion, fairness_weight, **options)


def test_the_columns_are_those_of_the_formula():
    X, y, a = curved(300)
    model = stack(Ridge()).fit(X, y, sensitive_features=a)
    assert model.columns_ == (
        "x0", "x1", "x2", "x3", "x4", "score", "P(q)", "score at the barycenter", "P(q)·score",
    )  # fmt: skip
    s0 = model.estimator_.predict(X)
    z = (s0 - model.center_) / model.scale_
    numbers = (X - X.mean(axis=0)) / X.std(axis=0)
    p = model.group_classifier_.predict_proba(numbers)
    moved = (model.transport_(z) * p).sum(axis=1)
    columns = np.column_stack([numbers, z, p[:, 1], moved, p[:, 1] * z])
    expected = columns @ model.regressor_.coef_ + model.regressor_.intercept_
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-10)
    assert isinstance(model.estimator_, FoldMean)
    assert len(model.estimator_.estimators_) == 3


def test_without_groups_it_is_ridge_on_features_and_score():
    X, y, _ = curved(300)
    base = LinearRegression().fit(X[150:], y[150:])
    model = stack(base, fairness_weight=0.0, prefit=True, passthrough_alpha=0.01, map="affine")
    model.fit(X[:150], y[:150])
    s0 = base.predict(X[:150])
    z = (s0 - s0.mean()) / s0.std()
    numbers = (X[:150] - X[:150].mean(axis=0)) / X[:150].std(axis=0)
    Z = np.column_stack([numbers, z])
    penalty = np.diag([0.01] * 5 + [1e-6])
    centered = Z - Z.mean(axis=0)
    coef = np.linalg.solve(Z.T @ centered / 150 + penalty, centered.T @ y[:150] / 150)
    np.testing.assert_allclose(model.regressor_.coef_, coef, rtol=1e-8)
    assert model.passthrough_alpha_ == 0.01


def test_without_fairness_it_is_not_behind_the_regressor():
    """By no more than 0.002 of R² on rows it has not seen."""
    X, y, a = curved(3000)
    new, target, _ = curved(6000, seed=1)
    plain = r2_score(target, clone(BOOST).fit(X, y).predict(new))
    model = stack(fairness_weight=0.0).fit(X, y, sensitive_features=a)
    assert r2_score(target, model.predict(new)) > plain - 0.002
    linear = r2_score(target, eh.FairRidge(fairness_weight=0.0).fit(X, y).predict(new))
    assert plain > linear + 0.3


@pytest.mark.parametrize("criterion", ["independence", "separation"])
def test_it_is_fairer_held_out_and_not_behind_maps_alone(criterion):
    X, y, a = curved(2000)
    new, target, b = curved(4000, seed=1)

    def at(**options):
        model = eh.FairPostprocessor(BOOST, criterion, random_state=0, cv=3, **options)
        fit = model.path_fitter(X, y, sensitive_features=a)
        scores = [fit(w).predict(new) for w in (0.0, 3.0)]
        measure = getattr(eh, criterion)
        return [
            (measure(target, s, sensitive_features=b, estimator="logistic"), r2_score(target, s))
            for s in scores
        ]

    (plain, _), (fair, r2) = at(passthrough=True)
    assert fair < 0.6 * plain
    (_, _), (maps, r2_maps) = at()
    # One line for each group is all that separation needs on these rows.
    behind = 0.01 if criterion == "separation" else 0.0
    assert r2 - 3.0 * fair > r2_maps - 3.0 * maps - behind


def test_a_path_shares_the_fits_of_the_regressor():
    X, y, a = curved(300)
    count = []

    class Counted(DecisionTreeRegressor):
        def fit(self, X, y):
            count.append(len(y))
            return super().fit(X, y)

    model = stack(Counted(max_depth=3))
    path = eh.fairness_path(
        model, X, y, sensitive_features=a, fairness_weights=[0.5, 2.0, 8.0], cv=2,
        measure_with="logistic", random_state=0,
    )  # fmt: skip
    assert count == [100] * 6
    fit = model.path_fitter(X, y, sensitive_features=a)
    on_path = fit(2.0)
    alone = clone(model).set_params(fairness_weight=2.0).fit(X, y, sensitive_features=a)
    np.testing.assert_allclose(on_path.predict(X), alone.predict(X), atol=0.02)
    assert on_path.passthrough_alpha_ == alone.passthrough_alpha_
    selected = path.select(min_accuracy=-1.0)
    assert isinstance(selected, eh.FairPostprocessor)
    assert selected.passthrough


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_text_categories_and_gaps_reach_the_regressor_as_they_are(kind):
    X, y, a = curved(600)
    frame = pd.DataFrame(X, columns=list("uvwxz"))
    frame["town"] = np.where(X[:, 0] > 1, "north", np.where(X[:, 1] > 0, "east", "west"))
    frame.loc[::9, "u"] = np.nan
    seen = []

    class Boost(HistGradientBoostingRegressor):
        def fit(self, X, y):
            seen.append(type(X).__module__.split(".")[0])
            return super().fit(X, y)

    base = Boost(max_iter=20, categorical_features="from_dtype", random_state=0)
    if kind == "pandas":
        frame["town"] = frame["town"].astype("category")
        rows = frame
    else:
        rows = pl.from_pandas(frame).with_columns(pl.col("town").cast(pl.Categorical))
    model = stack(base, fairness_weight=2.0).fit(rows, y, sensitive_features=a)
    assert seen == [kind] * 3
    assert {"u=(missing)", "town=north"} <= set(model.columns_) or "town=west" in model.columns_
    assert np.isfinite(model.predict(rows)).all()
    assert r2_score(y, model.predict(rows)) > 0.3


def test_boosters_with_their_own_categories():
    X, y, a = curved(400)
    frame = pd.DataFrame(X, columns=list("uvwxz"))
    frame["town"] = pd.Categorical(np.where(X[:, 0] > 0, "n", "s"))
    frame.loc[::11, "v"] = np.nan
    w = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    xgboost = pytest.importorskip("xgboost", reason="needs evenhand[boosting]")
    lightgbm = pytest.importorskip("lightgbm", reason="needs evenhand[boosting]")
    small = {"n_estimators": 20, "max_depth": 3, "n_jobs": 1}
    for base in (
        xgboost.XGBRegressor(**small, enable_categorical=True),
        lightgbm.LGBMRegressor(**small, verbose=-1),
    ):
        model = stack(base, "separation", 2.0)
        model.fit(frame, y, sensitive_features=a, sample_weight=w)
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
        assert r2_score(y, model.predict(frame)) > 0.2


def test_sparse_wide_weighted_attribute_and_many_groups():
    X, y, a = curved(300, groups=3)
    rows = stack(Ridge(), fairness_weight=2.0).fit(sparse.csr_array(X), y, sensitive_features=a)
    dense = stack(Ridge(), fairness_weight=2.0).fit(X, y, sensitive_features=a)
    new = curved(200, seed=2, groups=3)[0]
    # Sparse columns are not centered, which changes nothing but rounding and P(a|x) a little.
    np.testing.assert_allclose(rows.predict(sparse.csr_array(new)), dense.predict(new), atol=0.05)
    known = stack(Ridge(), group_features="attribute").fit(X, y, sensitive_features=a)
    assert known.predict(X, sensitive_features=a).shape == y.shape
    with pytest.raises(ValueError, match="must be given to predict when group_features"):
        known.predict(X)
    wide = np.random.default_rng(1).normal(size=(300, 400))
    wide[:, :5] = X
    model = stack(Ridge(alpha=100.0)).fit(wide, y, sensitive_features=a)
    assert model.passthrough_alpha_ > 0.1
    assert np.isfinite(model.predict(wide)).all()
    missing = np.where(np.arange(300) % 5 == 0, None, a)
    assert np.isfinite(stack(Ridge()).fit(X, y, sensitive_features=missing).predict(X)).all()


def test_whole_weights_are_repeated_rows():
    X, y, a = curved(200)
    base = Ridge().fit(*curved(100, seed=5)[:2])
    w = np.where(np.arange(200) < 50, 2.0, 1.0)
    options = {
        "prefit": True, "passthrough_alpha": 0.01, "group_alpha": 0, "map": "affine", "tol": 1e-9,
        "group_features": "attribute", "basis": "quadratic",
    }  # fmt: skip
    weighted = stack(base, **options).fit(X, y, sensitive_features=a, sample_weight=w)
    rows = np.r_[np.arange(200), np.arange(50)]
    repeated = stack(base, **options).fit(X[rows], y[rows], sensitive_features=a[rows])
    # The copy is standardized without weights, so only its penalty is not the same.
    np.testing.assert_allclose(
        weighted.predict(X, sensitive_features=a),
        repeated.predict(X, sensitive_features=a),
        atol=5e-3,
    )


def test_one_score_for_all_groups_is_fairer_by_its_use_of_features():
    X, y, a = curved(800)
    model = stack(Ridge(), fairness_weight=5.0, group_features=None)
    fair = model.fit(X, y, sensitive_features=a)
    plain = clone(model).set_params(fairness_weight=0.0).fit(X, y, sensitive_features=a)
    assert fair.unfairness_ < 0.2 * plain.unfairness_
    assert fair.map_ == "spline"
    assert "score beyond" in fair.columns_[6]


def test_generalized_cross_validation_by_the_definition():
    rng = np.random.default_rng(0)
    n, d = 80, 6
    Z = rng.normal(size=(n, d + 2))
    y = Z[:, d] + 0.3 * Z[:, 0] + rng.normal(size=n)
    problem = prepare_ridge(FeatureMatrix(Z), y, None, 1e-9, True, 2)
    best, least = None, np.inf
    centered = Z - Z.mean(axis=0)
    for gamma in [g for g in GRID if g <= 0.1001]:
        penalty = n * np.diag([gamma] * d + [1e-9] * 2)
        hat = centered @ np.linalg.solve(centered.T @ centered + penalty, centered.T) + 1 / n
        error = np.sum((y - hat @ y) ** 2) / (n - 1.4 * np.trace(hat)) ** 2
        if error < least:
            best, least = gamma, error
    assert generalized_cross_validation(problem, d, float(n)) == best
    assert generalized_cross_validation(problem, 0, float(n)) == GRID[0]
    penalty = StackPenalty(2, None, "auto")
    shrunk, slopes = penalty.shrink(problem, TrainingRows(y, None), "auto")
    assert penalty.chosen == best
    assert slopes == 0.0
    np.testing.assert_allclose(np.diag(shrunk.penalty), [best] * d + [1e-9] * 2)


@pytest.mark.parametrize("unit", [1.0, 1e-4])
def test_features_that_stand_in_for_the_other_columns_are_not_needed(unit):
    rng = np.random.default_rng(0)
    n, d = 80, 6
    Z = rng.normal(size=(n, d + 2))
    Z[:, :2] = Z[:, d:] + 0.1 * Z[:, :2]
    y = 5 * Z[:, d] + 0.3 * rng.normal(size=n)
    Z[:, d:] *= unit
    problem = prepare_ridge(FeatureMatrix(Z), y, None, 1e-30, True, 2)
    assert generalized_cross_validation(problem, d, float(n)) == 0.1


def test_a_fitted_regressor_says_what_held_out_means():
    X, y, a = curved(200)
    fitted = Ridge().fit(X, y)
    with pytest.warns(UserWarning, match="Ridge is fitted already. If these rows are those it was"):
        stack(fitted).fit(X, y, sensitive_features=a)
    model = stack(fitted, prefit=True).fit(X, y, sensitive_features=a)
    assert model.estimator_ is fitted
    with pytest.raises(ValueError, match="must be fitted anew in every fold"):
        eh.fairness_path(stack(fitted), X, y, sensitive_features=a)
    pipe = make_pipeline(StandardScaler(), Ridge())
    assert np.isfinite(stack(pipe).fit(X, y, sensitive_features=a).predict(X)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passthrough": "yes"}, "`passthrough` must be True or False, got 'yes'."),
        (
            {"passthrough_alpha": -1.0},
            "`passthrough_alpha` must be 'auto' or a nonnegative number, got -1.0. Hint: 0 leaves",
        ),
        ({"passthrough_alpha": "loo"}, "`passthrough_alpha` must be 'auto' or a nonnegative numb"),
        ({"basis": "cubic"}, "`basis` must be"),
        (
            {"estimator": StandardScaler()},
            "`estimator` must be a regressor with `fit` and",
        ),
        ({"group_features": None, "map": "transport"}, "`map` must be 'affine' or 'spline' with"),
    ],
)
def test_bad_options(options, message):
    X, y, a = curved(60)
    with pytest.raises(ValueError, match=re.escape(message)):
        stack(**options).fit(X, y, sensitive_features=a)
