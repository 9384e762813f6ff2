"""Weights at which some folds give everybody one score: said, and not handed out."""

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

import evenhand as eh


class GivesUp(RegressorMixin, BaseEstimator):
    """A linear score up to a weight that depends on the rows, then one score for everybody."""

    def __init__(self, fairness_weight=0.0, early=2.0, late=5.0):
        self.fairness_weight = fairness_weight
        self.early = early
        self.late = late

    def fit(self, X, y, *, sensitive_features):
        limit = self.early if X[0, 1] > 0 else self.late
        self.slope_ = 0.0 if self.fairness_weight > limit else 1.0
        return self

    def predict(self, X):
        return self.slope_ * X[:, 0]


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    a = np.arange(400) % 2
    X = np.column_stack([rng.normal(size=400) + a, np.ones(400)])
    # The first row of a fold's training rows decides when it gives up.
    X[0, 1] = -1.0
    return X, X[:, 0] + rng.normal(size=400), a


def path(rows, weights, **options):
    X, y, a = rows
    folds = [(np.setdiff1d(np.arange(400), t), t) for t in np.array_split(np.arange(400), 4)]
    return eh.fairness_path(
        GivesUp(**options), X, y, sensitive_features=a, fairness_weights=weights, cv=folds,
        measure_with="logistic", criterion="independence",
    )  # fmt: skip


def test_a_mixture_is_said_and_passed_over(rows):
    with pytest.warns(UserWarning, match=r"fairness weights 3 \(1 of 4\): what is measured there"):
        found = path(rows, [1.0, 3.0, 8.0])
    assert found.constant_folds == (0, 0, 1, 4)
    assert found.mixed.tolist() == [False, False, True, False]
    assert "mixed" in str(found)
    found.select(min_accuracy=-1.0)
    assert found.selected.fairness_weight == 8.0
    found.select(max_unfairness=0.999)
    assert found.selected.fairness_weight == 0.0


def test_all_folds_or_none_are_no_mixture(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = path(rows, [1.0, 8.0])
    assert not found.mixed.any()
    assert "mixed" not in str(found)
