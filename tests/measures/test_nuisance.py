"""Cross-fitted models of a number and of a group given controls."""

from __future__ import annotations

import numpy as np
import pytest
from evenhand.measures.nuisance import Features, _Moments, _newton, deal_folds, natural_spline
from scipy.interpolate import CubicSpline
from sklearn.linear_model import LogisticRegression, Ridge

from evenhand.data.controls import read_controls
from evenhand.measures import nuisance


def features(C, strata=None, cluster=None):
    strata = np.zeros(len(C), dtype=np.intp) if strata is None else strata
    return Features(read_controls(C, len(C)), deal_folds(strata, cluster, 0))


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


def test_ridge_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(80, 4)), rng.normal(size=80), rng.random(80) + 0.1
    model = Ridge(alpha=0.3 * w.sum()).fit(X, y, w)
    ours = _Moments(X, y[:, None], w).predict(X, np.array([0.3]))[:, 0]
    np.testing.assert_allclose(ours, model.predict(X), rtol=1e-9)


def test_logistic_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(300, 3)), rng.random(300) + 0.1
    label = (rng.random(300) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)
    theta, _ = _newton(np.column_stack([np.ones(300), X]), label, w, 0.01, None)
    model = LogisticRegression(C=1 / (0.01 * w.sum()), tol=1e-10, max_iter=1000)
    model.fit(X, label, w)
    np.testing.assert_allclose(theta, np.r_[model.intercept_, model.coef_[0]], atol=1e-5)


def test_a_curve_and_an_interaction_are_found_out_of_fold():
    rng = np.random.default_rng(0)
    C = rng.normal(size=(3000, 3))
    truth = np.sin(2 * C[:, 0]) + C[:, 1] * C[:, 2]
    found = features(C).regress(truth + 0.3 * rng.normal(size=3000), np.ones(3000))
    assert np.mean((found.value - truth) ** 2) < 0.05 * truth.var()


def test_steps_are_left_to_trees(monkeypatch):
    rng = np.random.default_rng(0)
    C = rng.normal(size=(3000, 2))
    truth = 3.0 * ((C[:, 0] > 0.3) ^ (C[:, 1] > -0.5))
    y = truth + rng.normal(size=3000)
    p = 1 / (1 + np.exp(1 - truth))
    label = (rng.random(3000) < p).astype(float)
    found = features(C)
    number, group = found.regress(y, np.ones(3000)), found.classify(label, np.ones(3000))
    assert "boosted trees" in number.chosen
    assert "boosted trees" in group.chosen
    assert np.mean((number.value - truth) ** 2) < 0.1 * truth.var()
    assert np.mean((group.value - p) ** 2) < 0.1 * p.var()
    monkeypatch.setattr(nuisance, "TREE_ROWS", 10**9)
    splines = features(C).regress(y, np.ones(3000))
    assert splines.chosen == "splines"
    assert np.mean((splines.value - truth) ** 2) > 3 * np.mean((number.value - truth) ** 2)


def test_soft_labels_are_shares_of_rows():
    rng = np.random.default_rng(0)
    C = rng.normal(size=(2000, 1))
    p = 1 / (1 + np.exp(-C[:, 0]))
    found = features(C).classify(p, np.ones(2000))
    assert np.abs(found.value - p).max() < 0.05


def test_the_same_question_is_answered_once():
    rng = np.random.default_rng(0)
    C, label = rng.normal(size=(400, 1)), rng.integers(0, 2, 400).astype(float)
    found = features(C)
    first = found.classify(label, np.ones(400))
    assert found.classify(label.copy(), np.ones(400)) is first
    assert found.classify(1.0 - label, np.ones(400)) is not first


def test_the_pull_of_each_row_is_a_derivative(monkeypatch):
    monkeypatch.setattr(nuisance, "TREE_ROWS", 10**9)
    monkeypatch.setattr(nuisance, "PENALTIES", np.array([0.01]))
    rng = np.random.default_rng(0)
    C, y, u = rng.normal(size=(200, 2)), rng.normal(size=200), rng.normal(size=200)
    mass = rng.random(200) * (rng.random(200) < 0.7)
    found = features(C)
    pull = found.regress(y, mass).pull(u)
    for j in (0, 5, 60):
        moved = y.copy()
        moved[j] += 1e-3
        change = u @ (found.regress(moved, mass).value - found.regress(y, mass).value)
        assert change / 1e-3 == pytest.approx(pull[j], abs=1e-8)


def test_rows_without_mass_teach_nothing():
    rng = np.random.default_rng(0)
    C, y = rng.normal(size=(1000, 1)), rng.normal(size=1000)
    mass = (np.arange(1000) < 600).astype(float)
    other = np.where(mass > 0, y, 1e6)
    a, b = (features(C).regress(v, mass).value for v in (y, other))
    np.testing.assert_allclose(a, b, atol=1e-8)


def test_no_prediction_has_seen_its_row():
    rng = np.random.default_rng(0)
    C, y = rng.normal(size=(400, 1)), rng.normal(size=400)
    y[7] = 1e4
    found = features(C)
    alone = found.fold == found.fold[7]
    # The penalty is chosen from all rows; the predictions of this fold have not seen its own.
    assert np.abs(found.regress(y, np.ones(400)).value[alone]).max() < 1.0


def test_folds_keep_clusters_and_share_out_strata():
    strata = np.repeat([0, 1], [900, 100])
    fold = deal_folds(strata, None, 0)
    assert np.bincount(fold[900:]).tolist() == [20] * 5
    cluster = np.arange(1000) // 10
    fold = deal_folds(strata, cluster, 0)
    assert all(len(set(fold[cluster == c])) == 1 for c in range(100))


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_a_constant_is_predicted_as_such(value):
    C = np.random.default_rng(0).normal(size=(100, 1))
    found = features(C).regress(np.full(100, value), np.ones(100))
    assert found.chosen == "constant"
    assert (found.value == value).all()
