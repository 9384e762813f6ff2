"""Group features: what they compute, in fit and in predict, and what they refuse."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evenhand import FairRidge, Proxy
from evenhand.data.groups import resolve_groups
from evenhand.training.group_features import GroupFeatures

NAMES = np.array(["x", "y", "z"])
KINDS = ["posterior", "attribute"]


@pytest.fixture(params=[2, 3], ids=["K=2", "K=3"])
def data(request, regression):
    X, y, a = regression
    return X, y, NAMES[a % request.param]


def expected_columns(membership, score, w=None):
    center = np.average(score, weights=w)
    scale = np.sqrt(np.average((score - center) ** 2, weights=w))
    p = membership[:, 1:]
    return np.hstack([p, p * ((score - center) / scale)[:, None]])


@pytest.mark.parametrize("weighted", [False, True])
def test_attribute_columns(data, weighted):
    X, _, a = data
    w = np.random.default_rng(0).uniform(0.5, 2.0, len(a)) if weighted else None
    groups = resolve_groups(a, n_rows=len(a), sample_weight=w)
    score = X[:, 0]
    features = GroupFeatures.fit("attribute", X, score, groups, w)
    found = features.transform(X, score, a)
    onehot = (a[:, None] == np.unique(a)).astype(float)
    np.testing.assert_allclose(found, expected_columns(onehot, score, w), rtol=1e-12)
    assert found.shape == (len(a), 2 * (groups.n_groups - 1))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_posterior_columns(data, weighted, form):
    X, _, a = data
    w = np.random.default_rng(0).uniform(0.5, 2.0, len(a)) if weighted else None
    groups = resolve_groups(a, n_rows=len(a), sample_weight=w)
    features = GroupFeatures.fit("posterior", form(X), X[:, 0], groups, w)
    found = features.transform(form(X), X[:, 0])
    scaler = StandardScaler(with_mean=form is np.asarray)
    model = make_pipeline(scaler, LogisticRegression(max_iter=1000))
    model.fit(form(X), a, logisticregression__sample_weight=groups.weight)
    expected = expected_columns(model.predict_proba(form(X)), X[:, 0], w)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_posterior_of_a_certain_proxy_is_that_of_its_groups(regression):
    X, _, a = regression
    hard = resolve_groups(a, n_rows=len(a))
    soft = resolve_groups(Proxy(np.eye(3)[a]), n_rows=len(a))
    score = X[:, 0]
    for form in (np.asarray, sparse.csr_array):
        columns = [
            GroupFeatures.fit("posterior", form(X), score, groups, None).transform(form(X), score)
            for groups in (hard, soft)
        ]
        np.testing.assert_allclose(columns[0], columns[1], atol=0.02)


def test_posterior_weighs_a_proxy_by_probability_and_weight(regression):
    """As a fit on every row once for each group."""
    X, _, a = regression
    w = np.random.default_rng(0).uniform(0.1, 5.0, len(a))
    w /= w.mean()
    table = 0.7 * np.eye(3)[a] + 0.1
    groups = resolve_groups(Proxy(table), n_rows=len(a), sample_weight=w)
    found = GroupFeatures.fit("posterior", X, X[:, 0], groups, w).transform(X, X[:, 0])
    model = LogisticRegression(max_iter=1000)
    scaled = StandardScaler().fit_transform(X)
    model.fit(np.vstack([scaled] * 3), np.repeat([0, 1, 2], len(a)), (table * w[:, None]).T.ravel())
    np.testing.assert_allclose(found[:, :2], model.predict_proba(scaled)[:, 1:], atol=2e-3)


def test_posterior_is_fitted_on_known_rows(regression):
    X, _, a = regression
    labels = np.where(np.arange(len(a)) % 2, a.astype(float), np.nan)
    known = ~np.isnan(labels)
    groups = resolve_groups(labels, n_rows=len(a))
    part = resolve_groups(a[known], n_rows=int(known.sum()))
    for form in (np.asarray, sparse.csr_array, sparse.csc_array):
        found, expected = (
            GroupFeatures.fit("posterior", rows, X[:, 0], g, None).posterior.predict_proba(X)
            for rows, g in ((form(X), groups), (form(X[known]), part))
        )
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_rows_of_unknown_group_take_the_shares(regression):
    X, _, a = regression
    labels = a.astype(float)
    labels[:5] = np.nan
    groups = resolve_groups(labels, n_rows=len(a))
    features = GroupFeatures.fit("attribute", X, X[:, 0], groups, None)
    found = features.transform(X, X[:, 0], labels)
    np.testing.assert_allclose(found[:5, :2], np.tile(groups.shares[1:], (5, 1)))
    np.testing.assert_array_equal(found[5:, :2], np.eye(3)[a[5:]][:, 1:])


def test_columns_in_predict_do_not_depend_on_the_rows_given(regression):
    """One row at a time, groups absent, or as a proxy: the same features, without a warning."""
    X, _, a = regression
    groups = resolve_groups(NAMES[a], n_rows=len(a))
    features = GroupFeatures.fit("attribute", X, X[:, 0], groups, None)
    whole = features.transform(X, X[:, 0], NAMES[a])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(5):
            one = slice(i, i + 1)
            row = features.transform(X[one], X[one, 0], NAMES[a[one]])
            np.testing.assert_array_equal(row, whole[one])
            table = Proxy(np.eye(3)[a[one]], classes=NAMES)
            row = features.transform(X[one], X[one, 0], table)
            np.testing.assert_array_equal(row, whole[one])
        last = a == 2
        part = pd.Categorical(NAMES[a[last]], categories=NAMES)
        np.testing.assert_array_equal(features.transform(X[last], X[last, 0], part), whole[last])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_plain_fit_is_ridge_on_the_appended_columns(data, kind, weighted):
    """s₀ is the ridge prediction; at fairness_weight=0 the rest is ridge as well."""
    X, y, a = data
    w = np.random.default_rng(0).uniform(0.5, 2.0, len(a)) if weighted else np.ones(len(a))
    alpha = len(a) * 1e-3
    w = w / w.mean()
    base = Ridge(alpha=alpha).fit(X, y, w)
    groups = resolve_groups(a, n_rows=len(a), sample_weight=w)
    features = GroupFeatures.fit(kind, X, base.predict(X), groups, w)
    wide = np.hstack([X, features.transform(X, base.predict(X), a)])
    expected = Ridge(alpha=alpha).fit(wide, y, w)
    model = FairRidge(fairness_weight=0, group_features=kind, group_alpha=0)
    model.fit(X, y, sensitive_features=a, sample_weight=w)
    np.testing.assert_allclose(model.coef_, expected.coef_[:6], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.group_coef_, expected.coef_[6:], rtol=1e-5, atol=1e-7)
    extra = {"sensitive_features": a} if kind == "attribute" else {}
    np.testing.assert_allclose(model.predict(X, **extra), expected.predict(wide), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csc_array])
def test_they_buy_accuracy_at_the_same_price(data, kind, form):
    X, y, a = data
    given = form(X)
    fit = {"sensitive_features": a}
    without = FairRidge("separation", 2.0).fit(given, y, **fit)
    model = FairRidge("separation", 2.0, group_features=kind).fit(given, y, **fit)
    # The columns can be left unused, so the objective can only fall.
    assert model.objective_ < without.objective_
    predicted = model.predict(given, **(fit if kind == "attribute" else {}))
    loss = np.mean((y - predicted) ** 2)
    penalty = 1e-3 * (np.sum(model.coef_**2) + np.sum(model.group_coef_**2))
    slopes = np.append(0.0, model.group_coef_[len(model.group_coef_) // 2 :])
    penalty += model.group_alpha_ * np.sum((slopes - slopes.mean()) ** 2)
    expected = (loss + penalty) / y.var() + 2.0 * model.unfairness_
    assert model.objective_ == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["proxy", "unknown"])
def test_proxies_and_unknown_groups(kind, form, regression):
    X, y, a = regression
    if form == "proxy":
        given = Proxy(0.8 * np.eye(3)[a] + 0.2 / 3)
    else:
        given = np.where(np.arange(len(a)) % 7, a.astype(float), np.nan)
    model = FairRidge("independence", 2.0, group_features=kind).fit(X, y, sensitive_features=given)
    predicted = model.predict(X, sensitive_features=given)
    assert predicted.shape == (len(y),)
    assert np.isfinite(predicted).all()
    plain = FairRidge("independence", 0.0).fit(X, y, sensitive_features=given)
    assert model.unfairness_ < plain.unfairness_


def test_posterior_does_not_look_at_the_attribute(regression):
    X, y, a = regression
    model = FairRidge(group_features="posterior").fit(X, y, sensitive_features=a)
    np.testing.assert_array_equal(model.predict(X), model.predict(X, sensitive_features=2 - a))


def test_float32_is_kept(regression):
    X, y, a = regression
    small = X.astype(np.float32)
    for kind in KINDS:
        model = FairRidge(group_features=kind).fit(small, y, sensitive_features=a)
        assert model.coef_.dtype == np.float32
        assert model.predict(small, sensitive_features=a).dtype == np.float32


def test_predict_without_the_attribute(regression):
    X, y, a = regression
    model = FairRidge(group_features="attribute").fit(X, y, sensitive_features=a)
    message = r"`sensitive_features` must be given to predict .*Hint: use group_features='posterior"
    with pytest.raises(ValueError, match=message):
        model.predict(X)


def test_label_that_was_not_seen(regression):
    X, y, a = regression
    model = FairRidge(group_features="attribute").fit(X, y, sensitive_features=NAMES[a])
    message = r"`sensitive_features` holds 'w', which was not .* fit: 'x', 'y', 'z'. Hint: set it"
    with pytest.raises(ValueError, match=message):
        model.predict(X[:2], sensitive_features=["w", "x"])


def test_length_in_predict(regression):
    X, y, a = regression
    model = FairRidge(group_features="attribute").fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="must have one entry per row: got 3 for 2 rows"):
        model.predict(X[:2], sensitive_features=a[:3])


def test_posterior_with_metadata_routing_on(regression):
    X, y, a = regression
    weight = np.linspace(0.5, 1.5, len(y))
    model = FairRidge(group_features="posterior")
    expected = model.fit(X, y, sensitive_features=a, sample_weight=weight).predict(X)
    with sklearn.config_context(enable_metadata_routing=True):
        model.fit(X, y, sensitive_features=a, sample_weight=weight)
        np.testing.assert_array_equal(model.predict(X), expected)


@pytest.mark.parametrize("kind", ["both", pd.NA, np.array(["posterior"])])
def test_an_unknown_kind_is_refused(regression, kind):
    X, y, a = regression
    with pytest.raises(ValueError, match="`group_features` must be None, 'posterior' or 'attrib"):
        FairRidge(group_features=kind).fit(X, y, sensitive_features=a)


def test_columns_of_an_attribute_in_another_order_are_refused(regression):
    X, y, a = regression
    flags = pd.DataFrame({"old": a % 2, "urban": np.arange(len(a)) % 2})
    model = FairRidge(group_features="attribute").fit(X, y, sensitive_features=flags)
    with pytest.raises(ValueError, match=r"have the column order \['old', 'urban'\], got"):
        model.predict(X, sensitive_features=flags[["urban", "old"]])
    expected = model.predict(X, sensitive_features=flags)
    np.testing.assert_array_equal(model.predict(X, sensitive_features=flags.to_numpy()), expected)
