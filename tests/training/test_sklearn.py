"""Inside scikit-learn: its own checks, pipelines, searches and routed groups."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import make_scorer, r2_score
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import _num_samples

import evenhand as eh
import rivals
from evenhand import LSPC, FairRidge, Logistic, Proxy
from evenhand.data.groups import GroupWarning


@parametrize_with_checks([
    FairRidge(fairness_weight=0),
    eh.FairGLM(fairness_weight=0),
    eh.FairGLM("normal", fairness_weight=0),
])  # fmt: skip
def test_scikit_learn_checks(estimator, check):
    check(estimator)


class Grouped:
    """scikit-learn's checks hand in no groups: here every other row is of the same one."""

    def fit(self, X, y, *, sensitive_features=None, sample_weight=None):
        extra = {} if sample_weight is None else {"sample_weight": sample_weight}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GroupWarning)
            groups = np.arange(_num_samples(X)) % 2
            return super().fit(X, y, sensitive_features=groups, **extra)


class GroupedRidge(Grouped, FairRidge):
    pass


class GroupedGLM(Grouped, eh.FairGLM):
    pass


class GroupedPostprocessor(Grouped, eh.FairPostprocessor):
    pass


def expected(estimator):
    """Checks that ask for what these cannot give, and why."""
    out = {"check_fit2d_1sample": "one row is one group"}
    for kind in ("dense", "sparse"):
        check = f"check_sample_weight_equivalence_on_{kind}_data"
        out[check] = "repeated rows get other groups here"
    if isinstance(estimator, GroupedPostprocessor):
        words = "refused in words of our own"
        out |= {"check_complex_data": words, "check_requires_y_none": words}
        out["check_supervised_y_2d"] = "a single column is a column"
    return out


@parametrize_with_checks(
    [
        GroupedRidge(),
        GroupedRidge("separation", classifier="lspc", group_features="posterior"),
        GroupedGLM(),
        GroupedGLM("normal", "separation", group_features="posterior"),
        GroupedPostprocessor(Ridge(), cv=2, random_state=0),
    ],
    expected_failed_checks=expected,
)  # fmt: skip
# A dozen rows are so few that a fold may have nothing better than one score for everybody.
@pytest.mark.filterwarnings("ignore:Some folds give everybody one score")
def test_scikit_learn_checks_with_groups(estimator, check):
    check(estimator)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture
def fair(routing):
    return FairRidge("separation", 2.0).set_fit_request(sensitive_features=True)


@pytest.fixture
def unfair(routing):
    """The scorer of the README: minus the unfairness of held-out predictions."""
    scorer = make_scorer(eh.separation, greater_is_better=False)
    return scorer.set_score_request(sensitive_features=True)


def forms(a):
    """The same three groups in every form that must survive a split."""
    return {
        "array": a,
        "list": a.tolist(),
        "pandas": pd.Series(a, index=np.arange(len(a)) + 1000, dtype="category"),
        "polars": pl.Series(a),
        "frame": pd.DataFrame({"a": a, "b": np.zeros(len(a), dtype=int)}),
        "polars frame": pl.DataFrame({"a": a, "b": np.zeros(len(a), dtype=int)}),
        "proxy": Proxy(np.eye(3)[a]),
    }


FORMS = list(forms(np.arange(3)))


@pytest.fixture(scope="module")
def held_out(regression):
    """Predictions for three folds of rows in their order, and the unfairness of each fold."""
    X, y, a = regression
    predicted, unfairness = np.empty_like(y), []
    for fold in range(3):
        test = np.arange(100 * fold, 100 * (fold + 1))
        train = np.setdiff1d(np.arange(300), test)
        model = FairRidge("separation", 2.0).fit(X[train], y[train], sensitive_features=a[train])
        predicted[test] = model.predict(X[test])
        unfairness.append(eh.separation(y[test], predicted[test], sensitive_features=a[test]))
    return predicted, unfairness


def test_pipeline_routes_the_groups(fair, regression):
    X, y, a = regression
    scaled = StandardScaler().fit_transform(X)
    expected = clone(fair).fit(scaled, y, sensitive_features=a).predict(scaled)
    pipe = make_pipeline(StandardScaler(), fair).fit(X, y, sensitive_features=a)
    np.testing.assert_allclose(pipe.predict(X), expected, rtol=1e-10)


def test_pipeline_with_the_attribute_in_predict(routing, regression):
    X, y, a = regression
    model = FairRidge(group_features="attribute")
    model.set_fit_request(sensitive_features=True).set_predict_request(sensitive_features=True)
    pipe = make_pipeline(StandardScaler(), model).fit(X, y, sensitive_features=a)
    scaled = pipe[0].transform(X)
    np.testing.assert_array_equal(
        pipe.predict(X, sensitive_features=a), pipe[-1].predict(scaled, sensitive_features=a)
    )


def test_pipeline_without_routing_takes_the_step_prefix(regression):
    X, y, a = regression
    pipe = make_pipeline(StandardScaler(), FairRidge()).fit(X, y, fairridge__sensitive_features=a)
    plain = FairRidge(fairness_weight=0).fit(pipe[0].transform(X), y, sensitive_features=a)
    assert pipe[-1].unfairness_ < plain.unfairness_


@pytest.mark.parametrize("form", FORMS)
def test_cross_val_predict(form, fair, regression, held_out):
    X, y, a = regression
    predicted = cross_val_predict(fair, X, y, cv=3, params={"sensitive_features": forms(a)[form]})
    np.testing.assert_allclose(predicted, held_out[0], rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_cross_validate_scores_held_out_unfairness(form, fair, unfair, regression, held_out):
    X, y, a = regression
    params = {"sensitive_features": forms(a)[form]}
    scoring = {"unfairness": unfair, "r2": "r2"}
    scores = cross_validate(fair, X, y, cv=3, scoring=scoring, params=params)
    for fold in range(3):
        assert scores["test_unfairness"][fold] == pytest.approx(-held_out[1][fold], abs=1e-6)
    assert (scores["test_r2"] > 0).all()


@pytest.mark.parametrize("measure", [eh.independence, eh.separation, eh.sufficiency])
def test_scorers_of_any_regressor_take_weights_and_options(measure, routing, regression):
    """The score of an ordinary model; the option travels with the scorer."""
    X, y, a = regression
    w = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    scorer = make_scorer(measure, greater_is_better=False, estimator="lspc", normalize=False)
    scorer.set_score_request(sensitive_features=True, sample_weight=True)
    found = cross_val_score(
        Ridge().set_fit_request(sample_weight=True), X, y, cv=3, scoring=scorer,
        params={"sensitive_features": a, "sample_weight": w},
    )  # fmt: skip
    test = slice(0, 100)
    predicted = Ridge().fit(X[100:], y[100:], w[100:]).predict(X[test])
    expected = measure(
        y[test], predicted, sensitive_features=a[test], sample_weight=w[test], estimator="lspc",
        normalize=False,
    )  # fmt: skip
    assert found[0] == pytest.approx(-expected, rel=1e-9)


def test_grid_search_over_the_weight(fair, unfair, regression):
    X, y, a = regression
    pipe = make_pipeline(StandardScaler(), fair)
    grid = {"fairridge__fairness_weight": [0.0, 10.0], "fairridge__alpha": [1e-3, 1e-2]}
    search = GridSearchCV(
        pipe, grid, scoring={"unfairness": unfair, "r2": "r2"}, refit="unfairness", cv=3
    )
    search.fit(X, y, sensitive_features=a)
    assert search.best_params_["fairridge__fairness_weight"] == 10.0
    fairest = search.cv_results_["mean_test_unfairness"].reshape(2, 2)
    best = search.cv_results_["mean_test_r2"].reshape(2, 2)
    # Rows by alpha, columns by fairness weight: fairer and less accurate.
    assert (fairest[:, 1] > fairest[:, 0]).all()
    assert (best[:, 1] < best[:, 0]).all()
    assert search.predict(X).shape == y.shape


def test_grid_search_needs_no_request_and_heeds_a_refusal(routing, regression):
    X, y, a = regression
    search = GridSearchCV(FairRidge(), {"fairness_weight": [1.0]})
    best = search.fit(X, y, sensitive_features=a).best_estimator_
    assert (
        best.unfairness_ < FairRidge(fairness_weight=0).fit(X, y, sensitive_features=a).unfairness_
    )
    refusing = FairRidge().set_fit_request(sensitive_features=False)
    search = GridSearchCV(refusing, {"fairness_weight": [1.0]})
    with pytest.raises(ValueError, match="`sensitive_features` must be given unless"):
        search.fit(X, y, sensitive_features=a)


def test_groups_that_were_not_routed_are_an_error(regression):
    """Never a silently unfair model."""
    X, y, _ = regression
    with pytest.raises(ValueError, match="`sensitive_features` must be given unless"):
        cross_val_predict(FairRidge(), X, y)


def test_a_group_absent_from_a_fold_is_an_error_that_says_so(fair, unfair, regression):
    X, y, _ = regression
    a = np.repeat([0, 1], 150)
    options = {"scoring": unfair, "params": {"sensitive_features": a}, "error_score": "raise"}
    with pytest.raises(ValueError, match=r"found only '1' .*stratify the folds by group"):
        cross_validate(fair, X, y, cv=2, **options)
    folds = list(StratifiedKFold(2).split(X, a))
    found = cross_validate(fair, X, y, cv=folds, **options)
    assert np.isfinite(found["test_score"]).all()


@pytest.mark.parametrize(
    "model",
    [
        FairRidge("sufficiency", 3.0, 0.1, classifier="lspc", basis="linear", max_iter=7),
        LSPC("linear", kappa=0.1, beta=5.0, losses="balanced"),
        Logistic("linear", kappa=0.1, max_iter=9, losses="in-sample"),
    ],
)
def test_clone_keeps_every_parameter(model):
    assert clone(model).get_params() == model.get_params()


def test_fitting_does_not_change_parameters(regression):
    X, y, a = regression
    model = FairRidge("separation", 1, 0, group_features="posterior")
    before = model.get_params()
    model.fit(X, y, sensitive_features=a)
    assert model.get_params() == before


@pytest.mark.parametrize(
    "model",
    [
        FairRidge(group_features="attribute"),
        eh.FairPostprocessor(Ridge(), group_features="attribute"),
        rivals.WassersteinBarycenter(Ridge()),
        rivals.KomiyamaRegressor(),
    ],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_score_hands_the_attribute_on(model, regression):
    X, y, a = regression
    model.fit(X, y, sensitive_features=a)
    weight = np.arange(1.0, len(y) + 1)
    predicted = model.predict(X, sensitive_features=a)
    expected = r2_score(y, predicted, sample_weight=weight)
    assert model.score(X, y, weight, sensitive_features=a) == pytest.approx(expected)
    with pytest.raises(ValueError, match="`sensitive_features` must be given"):
        model.score(X, y)


def from_sparse(X, y, a):
    """What two models predict, and R² along a path."""
    models = (FairRidge(), eh.FairPostprocessor(Ridge(), random_state=0))
    path = eh.fairness_path(
        FairRidge(), X, y, sensitive_features=a, fairness_weights=[1.0], random_state=0, cv=3,
        measure_with="logistic",
    )  # fmt: skip
    predicted = [model.fit(X, y, sensitive_features=a).predict(X) for model in models]
    return [*predicted, path.points[1].r2]


@pytest.fixture(scope="module")
def of_rows(regression):
    X, y, a = regression
    return from_sparse(sparse.csr_array(X), y, a)


@pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning")
@pytest.mark.parametrize("form", ["csc", "coo", "dia", "dok"])
def test_every_sparse_format(form, regression, of_rows):
    X, y, a = regression
    other = from_sparse(sparse.csr_array(X).asformat(form), y, a)
    for value, expected in zip(other, of_rows, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        FairRidge(),
        FairRidge(group_features="attribute"),
        eh.FairPostprocessor(Ridge(), group_features="attribute"),
        rivals.BerkRegressor(),
        rivals.KomiyamaRegressor(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_groups_are_routed_without_being_asked_for(model, routing, regression):
    X, y, a = regression
    scores = cross_val_score(model, X, y, cv=3, params={"sensitive_features": a})
    assert (scores > 0.2).all()
    pipe = make_pipeline(StandardScaler(), model).fit(X, y, sensitive_features=a)
    extra = {} if isinstance(model, rivals.BerkRegressor) else {"sensitive_features": a}
    assert pipe.predict(X, **extra).shape == (300,)
