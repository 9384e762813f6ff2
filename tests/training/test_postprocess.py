"""FairPostprocessor: fitted and unfitted bases, maps by group and by probability, errors."""

import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import evenhand as eh
from rivals import WassersteinBarycenter

NAMES = np.array(["p", "q", "r"])


def make(n=500, groups=2, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, groups, n)
    X = rng.normal(size=(n, 3))
    X[:, 0] += 1.5 * a
    y = X @ [1.0, 1.0, 0.5] + rng.normal(size=n)
    return X, y, NAMES[a]


@pytest.mark.parametrize("group_features", ["posterior", "attribute"])
@pytest.mark.parametrize("criterion", ["independence", "separation"])
@pytest.mark.parametrize("groups", [2, 3])
def test_score_becomes_fair_on_new_rows(criterion, group_features, groups):
    X, y, a = make(800, groups)
    X_new, y_new, a_new = make(2000, groups, seed=1)
    base = Ridge().fit(X, y)
    fair = eh.FairPostprocessor(
        Ridge(), criterion, 20.0, group_features=group_features, random_state=0
    ).fit(X, y, sensitive_features=a)
    known = {"sensitive_features": a_new} if group_features == "attribute" else {}
    s = fair.predict(X_new, **known)
    measure = getattr(eh, criterion)
    before = measure(y_new, base.predict(X_new), sensitive_features=a_new)
    after = measure(y_new, s, sensitive_features=a_new)
    assert after < 0.2 * before
    assert np.corrcoef(s, y_new)[0, 1] > 0.5


def test_without_fairness_a_good_base_is_left_alone():
    X, y, a = make(3000)
    base = LinearRegression().fit(X, y)
    X_new = make(200, seed=1)[0]
    fair = eh.FairPostprocessor(base, fairness_weight=0.0).fit(X, y, sensitive_features=a)
    assert fair.predict(X_new) == pytest.approx(base.predict(X_new), abs=0.15)


def test_attribute_map_is_a_line_per_group():
    X, y, a = make()
    base = LinearRegression().fit(X, y)
    fair = eh.FairPostprocessor(
        base, "independence", 5.0, group_features="attribute", map="affine"
    ).fit(X, y, sensitive_features=a)
    s0, s = base.predict(X), fair.predict(X, sensitive_features=a)
    z = (s0 - fair.center_) / fair.scale_
    for k, label in enumerate("pq"):
        rows = a == label
        slope, offset = np.polyfit(z[rows], s[rows], 1)
        assert s[rows] == pytest.approx(offset + slope * z[rows])
        assert slope == pytest.approx(fair.slopes_[k, 0])
        assert offset == pytest.approx(fair.offsets_[k])
    assert fair.unfairness_ < 0.01


def test_it_is_fair_ridge_on_features_of_the_score():
    X, y, a = make()
    base = LinearRegression().fit(X, y)
    fair = eh.FairPostprocessor(base, "separation", 2.0, group_features="attribute", group_alpha=0)
    fair.fit(X, y, sensitive_features=a)
    s0 = base.predict(X)
    z, p = (s0 - s0.mean()) / s0.std(), (a == "q").astype(float)
    Z = np.column_stack([z, p, p * z])
    direct = eh.FairRidge("separation", 2.0, alpha=1e-6).fit(Z, y, sensitive_features=a)
    assert fair.predict(X, sensitive_features=a) == pytest.approx(direct.predict(Z), abs=1e-6)
    assert fair.unfairness_ == pytest.approx(direct.unfairness_)


def test_posterior_needs_no_attribute_and_averages_the_maps():
    X, y, a = make()
    fair = eh.FairPostprocessor(Ridge(), fairness_weight=5.0, random_state=0)
    fair.fit(X, y, sensitive_features=a)
    p = fair.group_classifier_.predict_proba(X)
    z = (fair.estimator_.predict(X) - fair.center_) / fair.scale_
    lines = fair.offsets_ + np.outer(z, fair.slopes_[:, 0])
    assert fair.predict(X) == pytest.approx((p * lines).sum(axis=1))


def test_unfitted_base_is_trained_on_out_of_fold_scores():
    """A tree knows its training rows by heart: in-sample scores would be taken for the truth."""
    X, y, a = make()
    tree = DecisionTreeRegressor(random_state=0)
    fair = eh.FairPostprocessor(tree, fairness_weight=0.0, random_state=0)
    fair.fit(X, y, sensitive_features=a)
    trusting = eh.FairPostprocessor(clone(tree).fit(X, y), fairness_weight=0.0)
    trusting.fit(X, y, sensitive_features=a)
    X_new, y_new, _ = make(2000, seed=1)
    assert fair.score(X_new, y_new) > trusting.score(X_new, y_new) + 0.05
    with pytest.raises(NotFittedError):
        sklearn.utils.validation.check_is_fitted(tree)


@pytest.mark.parametrize("passthrough", [False, True])
def test_a_row_like_no_other_does_not_bend_the_maps(passthrough):
    """Without it nobody knows its coefficient: out of fold it is scored far from everybody."""
    X, y, a = make(200)
    rare = 0.02 * np.random.default_rng(1).normal(size=(200, 1))
    rare[0] = 20.0
    X, known = np.hstack([X, rare]), X
    new, y_new, _ = make(2000, seed=1)
    fair = eh.FairPostprocessor(
        Ridge(1e-6), fairness_weight=0.0, passthrough=passthrough, random_state=0
    )
    alone = clone(fair).fit(known, y, sensitive_features=a).score(new, y_new)
    fair.fit(X, y, sensitive_features=a)
    assert fair.score(np.hstack([new, np.zeros((2000, 1))]), y_new) > alone - 0.05


def test_fitted_base_is_neither_refitted_nor_lost():
    X, y, a = make()
    base = RandomForestRegressor(10, random_state=0).fit(X[:250], y[:250])
    post = eh.FairPostprocessor(base, fairness_weight=3.0)
    copy = clone(post)
    assert copy.estimator is base
    copy.fit(X[250:], y[250:], sensitive_features=a[250:])
    assert copy.estimator_ is base
    refit = clone(post.set_params(prefit=False))
    assert refit.estimator is not base
    with pytest.raises(NotFittedError):
        sklearn.utils.validation.check_is_fitted(refit.estimator)


def test_clone_keeps_requests_and_parameters():
    post = eh.FairPostprocessor(Ridge(alpha=3.0), "separation", 2.0, map="spline", cv=3)
    with sklearn.config_context(enable_metadata_routing=True):
        post.set_fit_request(sensitive_features=True)
        copy = clone(post)
        assert copy.get_metadata_routing().fit.requests["sensitive_features"] is True
    assert repr(copy) == repr(post)
    assert copy.estimator is not post.estimator
    assert copy.set_params(estimator__alpha=5.0).estimator.alpha == 5.0
    assert post.estimator.alpha == 3.0


def test_cross_validation_and_pipelines():
    X, y, a = make(300)
    with sklearn.config_context(enable_metadata_routing=True):
        post = eh.FairPostprocessor(Ridge(), random_state=0)
        post.set_fit_request(sensitive_features=True, sample_weight=False)
        result = cross_validate(post, X, y, params={"sensitive_features": a}, cv=3)
    assert (result["test_score"] > 0.2).all()
    pipe = make_pipeline(StandardScaler(), eh.FairPostprocessor(Ridge(), random_state=0))
    pipe.fit(X, y, fairpostprocessor__sensitive_features=a)
    assert pipe.predict(X).shape == (300,)


def test_pickle_and_repeats():
    X, y, a = make(300)
    one = eh.FairPostprocessor(Ridge(), random_state=0).fit(X, y, sensitive_features=a)
    two = eh.FairPostprocessor(Ridge(), random_state=0).fit(X, y, sensitive_features=a)
    assert (one.predict(X) == two.predict(X)).all()
    assert (pickle.loads(pickle.dumps(one)).predict(X) == one.predict(X)).all()


def test_frames_with_categories():
    X, y, a = make(300)
    frame = pd.DataFrame(X, columns=list("abc"))
    frame["town"] = np.where(a == "q", "north", "south")
    encode = make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough")
    post = eh.FairPostprocessor(
        make_pipeline(encode, Ridge()),
        fairness_weight=20.0,
        group_classifier=make_pipeline(clone(encode), LogisticRegression(max_iter=1000)),
        random_state=0,
    ).fit(frame, y, sensitive_features=a)
    assert post.feature_names_in_.tolist() == ["a", "b", "c", "town"]
    assert eh.independence(y, post.predict(frame), sensitive_features=a) < 0.05
    default = clone(post).set_params(group_classifier=None).fit(frame, y, sensitive_features=a)
    assert eh.independence(y, default.predict(frame), sensitive_features=a) < 0.05
    gaps = np.where(np.arange(300)[:, None] % 9 == 0, np.nan, X)
    boosted = eh.FairPostprocessor(HistGradientBoostingRegressor(max_iter=5), cv=2)
    assert np.isfinite(boosted.fit(gaps, y, sensitive_features=a).predict(gaps)).all()


def test_polars():
    X, y, a = make(300)
    frame = pl.DataFrame(X, schema=list("abc"))
    groups = pl.Series(a)
    post = eh.FairPostprocessor(Ridge(), random_state=0).fit(frame, y, sensitive_features=groups)
    plain = eh.FairPostprocessor(Ridge(), random_state=0).fit(X, y, sensitive_features=a)
    assert post.predict(frame) == pytest.approx(plain.predict(X))


@pytest.mark.parametrize("group_features", ["posterior", "attribute"])
def test_unknown_groups(group_features):
    X, y, a = make(400)
    a = a.astype(object)
    a[:50] = None
    post = eh.FairPostprocessor(
        Ridge(), fairness_weight=20.0, group_features=group_features, random_state=0
    ).fit(X, y, sensitive_features=a)
    s = post.predict(X, sensitive_features=a)
    assert np.isfinite(s).all()
    assert eh.independence(y[50:], s[50:], sensitive_features=a[50:]) < 0.03


@pytest.mark.parametrize("classifier", [None, GaussianNB()])
@pytest.mark.parametrize("group_features", ["posterior", "attribute"])
def test_proxies(group_features, classifier):
    X, y, a = make(400)
    proxy = eh.Proxy(np.where(a == "q", 0.95, 0.05), ["p", "q"])
    post = eh.FairPostprocessor(
        Ridge(), fairness_weight=20.0, group_features=group_features,
        group_classifier=classifier, random_state=0,
    ).fit(X, y, sensitive_features=proxy)  # fmt: skip
    s = post.predict(X, sensitive_features=proxy)
    before = eh.independence(y, Ridge().fit(X, y).predict(X), sensitive_features=proxy)
    assert eh.independence(y, s, sensitive_features=proxy) < 0.4 * before


def test_posterior_under_metadata_routing():
    X, y, a = make(300)
    plain = eh.FairPostprocessor(Ridge(), random_state=0).fit(X, y, sensitive_features=a)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = eh.FairPostprocessor(Ridge(), random_state=0).fit(X, y, sensitive_features=a)
        assert routed.predict(X) == pytest.approx(plain.predict(X))


def weighted_and_repeated(X, y, a, base, options):
    """Two fits that should agree: rows with weights 1 to 3, and rows repeated as often."""
    repeat = np.random.default_rng(0).integers(1, 4, len(y))
    rows = np.repeat(np.arange(len(y)), repeat)
    weighted = eh.FairPostprocessor(base, **options).fit(
        X, y, sensitive_features=a, sample_weight=repeat
    )
    repeated = eh.FairPostprocessor(base, **options).fit(
        X[rows], y[rows], sensitive_features=a[rows]
    )
    return (model.predict(X, sensitive_features=a) for model in (weighted, repeated))


def test_sample_weight_counts_rows():
    X, y, a = make(200)
    base = LinearRegression().fit(X, y)
    # Splines are smoothed by as much as the rows are few, and weights are no rows.
    options = {"fairness_weight": 2.0, "group_features": "attribute", "basis": "quadratic"}
    one, other = weighted_and_repeated(X, y, a, base, options)
    assert one == pytest.approx(other, abs=2e-3)
    unweighted = eh.FairPostprocessor(base, **options).fit(X, y, sensitive_features=a)
    assert np.abs(one - unweighted.predict(X, sensitive_features=a)).max() > 1e-2


def test_weights_reach_the_base_and_the_group_classifier():
    X, y, a = make(300)
    w = np.where(X[:, 1] > 0, 5.0, 0.1)
    post = eh.FairPostprocessor(Ridge(), group_classifier=GaussianNB(), random_state=0)
    post.fit(X, y, sensitive_features=a, sample_weight=w)
    assert post.estimator_.coef_ == pytest.approx(Ridge().fit(X, y, sample_weight=w).coef_)
    codes = (a == "q").astype(int)
    direct = GaussianNB().fit(X, codes, sample_weight=w)
    assert post.group_classifier_.theta_ == pytest.approx(direct.theta_)


# Spline maps


def curved(n=1500, seed=0):
    """A truth that a linear base cannot follow."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    x = rng.normal(size=n) + a
    y = 2 * np.maximum(x - 1, 0) + 0.3 * rng.normal(size=n)
    return x[:, None], y, NAMES[a]


def test_spline_helps_a_straight_base_of_a_curved_truth():
    X, y, a = curved()
    X_new, y_new, a_new = curved(seed=1)
    scores = {}
    for kind in ("affine", "spline"):
        post = eh.FairPostprocessor(
            Ridge(), "separation", 0.5, group_features="attribute", map=kind, random_state=0
        ).fit(X, y, sensitive_features=a)
        s = post.predict(X_new, sensitive_features=a_new)
        # The term it was trained with; a finer estimator sees what a quadratic one does not.
        fair = eh.separation(y_new, s, sensitive_features=a_new, estimator="logistic")
        scores[kind] = (1 - np.mean((y_new - s) ** 2) / np.var(y_new), fair)
    assert scores["spline"][0] > scores["affine"][0] + 0.1
    assert scores["spline"][1] < scores["affine"][1]


def test_spline_maps_do_not_fall():
    X, _, a = make(300)
    target = X[:, 0] + 2 * np.sin(3 * X[:, 0])  # rises on the whole and falls in places
    post = eh.FairPostprocessor(
        LinearRegression().fit(X[:, :1], target),
        fairness_weight=0.1,
        group_features="attribute",
        map="spline",
    ).fit(X[:, :1], target, sensitive_features=a)
    assert 0 < post.blend_ < 1
    pieces = np.cumsum(post.slopes_, axis=1)
    assert pieces.min() == pytest.approx(0.0, abs=1e-9)
    grid = np.linspace(-3, 5, 200)[:, None]
    for label in "pq":
        s = post.predict(grid, sensitive_features=[label] * 200)
        assert (np.diff(s) >= -1e-9).all()


def test_path_of_splines_is_that_of_single_fits():
    X, y, a = curved(400)
    post = eh.FairPostprocessor(Ridge(), "separation", map="spline", random_state=0)
    fitter = post.path_fitter(X, y, sensitive_features=a)
    for weight in (0.0, 1.0):
        single = clone(post).set_params(fairness_weight=weight).fit(X, y, sensitive_features=a)
        point = fitter(weight)
        assert point.fairness_weight == weight
        assert point.predict(X) == pytest.approx(single.predict(X), abs=0.02 * y.std())


# Transport maps


@pytest.mark.parametrize(
    ("criterion", "group_features", "map", "chosen"),
    [
        ("independence", "attribute", "auto", "transport"),
        ("independence", "posterior", "auto", "affine"),
        ("separation", "attribute", "auto", "affine"),
        ("independence", "attribute", "affine", "affine"),
        ("separation", "posterior", "transport", "transport"),
    ],
)
def test_which_map_is_fitted(criterion, group_features, map, chosen):
    X, y, a = make(200)
    post = eh.FairPostprocessor(
        Ridge(), criterion, group_features=group_features, map=map, random_state=0
    ).fit(X, y, sensitive_features=a)
    assert post.map_ == chosen
    assert (post.transport_ is not None) == (chosen == "transport")


def test_a_group_of_few_rows():
    X, y, a = shaped(400)
    a[:6] = "r"
    post = eh.FairPostprocessor(
        LinearRegression().fit(X, y), fairness_weight=5.0, group_features="attribute"
    ).fit(X, y, sensitive_features=a)
    assert post.map_ == "transport"
    grid = np.linspace(-9, 9, 100)[:, None]
    s = post.predict(grid, sensitive_features=["r"] * 100)
    assert np.isfinite(s).all()
    assert (np.diff(s) >= -1e-9).all()


def shaped(n=1500, groups=2, seed=0):
    """Scores of groups that differ in shape: one peak, two peaks, a long tail."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, groups, n)
    shapes = (rng.normal(size=n), rng.choice([-1.0, 3.0], n) + 0.3 * rng.normal(size=n))
    x = np.choose(a, [*shapes, rng.gamma(1.5, size=n)])
    y = x + 0.5 * rng.normal(size=n)
    return x[:, None], y, NAMES[a]


@pytest.mark.parametrize("group_features", ["attribute", "posterior"])
@pytest.mark.parametrize("groups", [2, 3])
def test_transport_matches_shapes_that_lines_cannot(group_features, groups):
    X, y, a = shaped(1500, groups)
    X_new, y_new, a_new = shaped(3000, groups, seed=1)
    member = (a[:, None] == NAMES).astype(float)
    member_new = (a_new[:, None] == NAMES).astype(float)
    left = {}
    # To splines lines are so unfair that one score for everybody is better.
    for kind, basis in (("affine", "quadratic"), ("transport", "auto")):
        # The group among the features, for a posterior that knows it.
        post = eh.FairPostprocessor(
            LinearRegression(), fairness_weight=50.0, group_features=group_features, map=kind,
            basis=basis, random_state=0,
        ).fit(np.hstack([X, member]), y, sensitive_features=a)  # fmt: skip
        known = {"sensitive_features": a_new} if group_features == "attribute" else {}
        s = post.predict(np.hstack([X_new, member_new]), **known)
        left[kind] = eh.independence(y_new, s, sensitive_features=a_new)
        assert np.corrcoef(s, y_new)[0, 1] > 0.5
    assert left["affine"] > 0.2
    assert left["transport"] < 0.1 * left["affine"]


def test_transport_maps_are_what_the_attributes_say():
    X, y, a = shaped(400, 3)
    base = LinearRegression().fit(X, y)
    post = eh.FairPostprocessor(
        base, fairness_weight=2.0, group_features="attribute", map="transport"
    ).fit(X, y, sensitive_features=a)
    z = (base.predict(X) - post.center_) / post.scale_
    moved = post.transport_(z)
    s = post.predict(X, sensitive_features=a)
    for k, label in enumerate(NAMES):
        rows = a == label
        line = post.offsets_[k] + z[rows] * post.slopes_[k, 0]
        assert s[rows] == pytest.approx(line + moved[rows, k] * post.slopes_[k, 1])
    # A row of unknown group gets the average of the maps, by their shares.
    everyone = [post.predict(X, sensitive_features=[label] * 400) for label in NAMES]
    unknown = post.predict(X, sensitive_features=np.full(400, None))
    shares = [(a == label).mean() for label in NAMES]
    assert unknown == pytest.approx(np.average(everyone, axis=0, weights=shares))


def test_transport_reaches_the_barycenter():
    """With a large weight nothing is left of the straight part, and the fit is the base's own."""
    X, y, a = shaped(2000)
    base = LinearRegression().fit(X, y)
    post = eh.FairPostprocessor(
        base, fairness_weight=1e3, group_features="attribute", map="transport", basis="degree3"
    ).fit(X, y, sensitive_features=a)
    whole = WassersteinBarycenter(FrozenEstimator(base), jitter=0.0)
    whole.fit(X, y, sensitive_features=a)
    s = post.predict(X, sensitive_features=a)
    assert np.corrcoef(s, whole.predict(X, sensitive_features=a))[0, 1] > 0.995


@pytest.mark.parametrize("weight", [0.0, 0.1, 1.0, 10.0])
def test_transport_maps_do_not_fall(weight):
    X, _, a = shaped(300)
    target = X[:, 0] + 2 * np.sin(3 * X[:, 0])
    post = eh.FairPostprocessor(
        LinearRegression(), "separation", weight, group_features="attribute", map="transport",
        random_state=0,
    ).fit(X, target, sensitive_features=a)  # fmt: skip
    grid = np.linspace(-9, 9, 500)[:, None]
    for label in "pq":
        assert (np.diff(post.predict(grid, sensitive_features=[label] * 500)) >= -1e-9).all()


def test_transport_weights_count_rows():
    X, y, a = shaped(300)
    base = LinearRegression().fit(X, y)
    options = {"fairness_weight": 2.0, "group_features": "attribute", "map": "transport"}
    # Leaving out a row of weight two is not leaving out one of two rows.
    options |= {"group_alpha": 0, "basis": "quadratic"}
    one, other = weighted_and_repeated(X, y, a, base, options)
    assert one == pytest.approx(other, abs=5e-3)


@pytest.mark.parametrize("group_features", ["attribute", "posterior"])
def test_transport_with_unknown_groups_and_proxies(group_features):
    X, y, a = make(600)
    proxy = eh.Proxy(np.where(a == "q", 0.95, 0.05), ["p", "q"])
    missing = a.astype(object)
    missing[:50] = None
    before = eh.independence(y, Ridge().fit(X, y).predict(X), sensitive_features=a)
    for groups in (proxy, missing):
        post = eh.FairPostprocessor(
            Ridge(), fairness_weight=20.0, group_features=group_features, map="transport",
            random_state=0,
        ).fit(X, y, sensitive_features=groups)  # fmt: skip
        s = post.predict(X, sensitive_features=groups)
        assert eh.independence(y[50:], s[50:], sensitive_features=a[50:]) < 0.2 * before


def test_transport_of_scores_with_ties():
    X, y, a = make(600)
    tree = DecisionTreeRegressor(max_leaf_nodes=4, random_state=0)
    post = eh.FairPostprocessor(
        tree, fairness_weight=20.0, group_features="attribute", map="transport", random_state=0
    ).fit(X, y, sensitive_features=a)
    s = post.predict(X, sensitive_features=a)
    assert np.isfinite(s).all()
    base = post.estimator_.predict(X)
    gaps = [abs(v[a == "p"].mean() - v[a == "q"].mean()) for v in (base, s)]
    assert gaps[1] < 0.2 * gaps[0]


def test_transport_without_groups_recalibrates():
    X, y, _ = make()
    base = LinearRegression().fit(X, 2 * y + 5)
    post = eh.FairPostprocessor(base, fairness_weight=0.0, map="transport").fit(X, y)
    assert post.transport_ is None
    assert post.map_ == "affine"
    assert post.predict(X) == pytest.approx(LinearRegression().fit(X, y).predict(X), abs=1e-3)


def test_path_of_transport_is_that_of_single_fits():
    X, y, a = shaped(400)
    post = eh.FairPostprocessor(
        Ridge(), group_features="attribute", map="transport", random_state=0
    )
    fitter = post.path_fitter(X, y, sensitive_features=a)
    for weight in (0.0, 1.0):
        single = clone(post).set_params(fairness_weight=weight).fit(X, y, sensitive_features=a)
        ours, theirs = (m.predict(X, sensitive_features=a) for m in (fitter(weight), single))
        assert ours == pytest.approx(theirs, abs=0.02 * y.std())


# One map for all, and errors


def test_one_map_cannot_help_and_says_so():
    X, y, a = make()
    base = LinearRegression().fit(X, y)
    post = eh.FairPostprocessor(base, fairness_weight=5.0, group_features=None)
    with pytest.warns(UserWarning, match="One map for everybody cannot change"):
        post.fit(X, y, sensitive_features=a)
    before = eh.independence(y, base.predict(X), sensitive_features=a)
    after = eh.independence(y, post.predict(X), sensitive_features=a)
    assert after == pytest.approx(before, abs=1e-6)
    point = post.path_fitter(X, y, sensitive_features=a)(1e4)
    assert point.predict(X) == pytest.approx(post.predict(X))


def test_without_groups_it_recalibrates():
    X, y, _ = make()
    base = LinearRegression().fit(X, 2 * y + 5)
    post = eh.FairPostprocessor(base, fairness_weight=0.0).fit(X, y)
    assert post.predict(X) == pytest.approx(LinearRegression().fit(X, y).predict(X), abs=1e-3)
    assert np.isnan(post.unfairness_)
    unfitted = eh.FairPostprocessor(LinearRegression(), fairness_weight=0.0, random_state=0)
    assert unfitted.fit(X, y).score(X, y) > 0.6


def test_constant_base():
    X, y, a = make(200)
    post = eh.FairPostprocessor(DummyRegressor(), group_features="attribute", random_state=0)
    s = post.fit(X, y, sensitive_features=a).predict(X, sensitive_features=a)
    assert np.isfinite(s).all()


@pytest.mark.parametrize(
    ("params", "fit", "message"),
    [
        ({"estimator": Ridge}, {}, "`estimator` must be a regressor with `fit` and `predict`"),
        ({"estimator": "ridge"}, {}, "`estimator` must be a regressor with `fit` and `predict`"),
        ({"prefit": "yes"}, {}, "`prefit` must be True, False or 'auto', got 'yes'"),
        ({"prefit": True}, {}, "`estimator` must be fitted when prefit=True; Ridge is not"),
        (
            {"map": "cubic"},
            {},
            "`map` must be one of auto, affine, spline, transport, got 'cubic'",
        ),
        (
            {"map": "transport", "group_features": None},
            {},
            "`map` must be 'affine' or 'spline' with group_features=None, got 'transport'",
        ),
        ({"group_features": "guess"}, {}, "`group_features` must be None, 'posterior'"),
        ({"fairness_weight": -1}, {}, "`fairness_weight` must be a nonnegative number, got -1"),
        ({"criterion": "equality"}, {}, "`criterion` must be one of"),
        ({"cv": 1}, {}, "`cv` must be at least 2 folds"),
        ({}, {"sensitive_features": None}, "`sensitive_features` must be given unless"),
        (
            {"estimator": KNeighborsRegressor()},
            {"sample_weight": np.ones(100)},
            "`sample_weight` must be None for an estimator that takes no weights, got weights for "
            "KNeighborsRegressor",
        ),
        (
            {"group_classifier": KNeighborsClassifier()},
            {"sample_weight": np.ones(100)},
            "`group_classifier` must accept `sample_weight` in fit",
        ),
    ],
)
def test_errors(params, fit, message):
    X, y, a = make(100)
    post = eh.FairPostprocessor(**{"estimator": Ridge(), **params})
    with pytest.raises(ValueError, match=re.escape(message)):
        post.fit(X, y, **{"sensitive_features": a, **fit})


def test_errors_of_predict():
    X, y, a = make(100)
    post = eh.FairPostprocessor(Ridge(), group_features="attribute", random_state=0)
    with pytest.raises(NotFittedError):
        post.predict(X)
    post.fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`sensitive_features` must be given to predict"):
        post.predict(X)
    with pytest.raises(ValueError, match="holds 'z', which was not among the groups"):
        post.predict(X, sensitive_features=["z"] * 100)


def test_predictions_that_are_not_finite():
    X, y, a = make(100)

    class Broken(LinearRegression):
        def predict(self, X):
            return np.full(len(X), np.nan)

    with pytest.raises(ValueError, match="the predictions of Broken` must be finite"):
        eh.FairPostprocessor(Broken(), random_state=0).fit(X, y, sensitive_features=a)
