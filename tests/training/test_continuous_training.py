"""Models trained against a measurement: what they tell about it falls, held out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import evenhand as eh


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    n = 3000
    age = rng.uniform(18, 80, n)
    X = np.column_stack([age + 5 * rng.normal(size=n), rng.normal(size=(n, 2))])
    y = 0.04 * X[:, 0] + X[:, 1] + rng.normal(size=n)
    return X, y, age


def held_out(model, data):
    X, y, age = data
    model.fit(X[:1500], y[:1500], sensitive_features=eh.Continuous(age[:1500], "age"))
    s = model.predict(X[1500:])
    return eh.independence(None, s, sensitive_features=eh.Continuous(age[1500:]))


def test_held_out_information_falls_with_the_weight(data):
    plain, fair = (held_out(eh.FairRidge(fairness_weight=w), data) for w in (0.0, 10.0))
    assert plain > 0.08
    assert fair < 0.1 * plain


def test_a_fitted_model_is_corrected_without_the_attribute(data):
    plain = held_out(eh.FairRidge(fairness_weight=0.0), data)
    after = eh.FairPostprocessor(LinearRegression(), fairness_weight=10.0)
    assert held_out(after, data) < 0.5 * plain


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_of_the_bound_term(data, weighted):
    X, y, age = data
    rows = slice(0, 300)
    weight = np.random.default_rng(1).random(300) + 0.5 if weighted else None
    bound = eh.FairnessRegularizer("separation").bind(
        y[rows], sensitive_features=eh.Continuous(age[rows]), sample_weight=weight
    )
    assert bound.groups.n_groups == 8
    s = X[rows, 0] + X[rows, 1]
    _, grad = bound.value_and_grad(s)
    for i in (0, 17, 200):
        step = np.zeros(300)
        step[i] = 1e-3
        slope = (bound.value_and_grad(s + step)[0] - bound.value_and_grad(s - step)[0]) / 2e-3
        assert grad[i] == pytest.approx(slope, rel=1e-3, abs=1e-7)
