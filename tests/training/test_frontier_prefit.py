"""Paths of post-processors around models that are fitted already."""

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import evenhand as eh

# The default estimator takes ten times as long and is tested where it lives.
fairness_path = partial(eh.fairness_path, measure_with="logistic")
TREE = DecisionTreeRegressor(min_samples_leaf=5, random_state=0)
REFUSED = (
    r"`estimator` must be fitted anew in every fold, and the {} inside FairPostprocessor is fitted "
    r"already: .* Hint: .*clone\(model\); .* with prefit=True"
)


def memorized(n=300):
    """Targets that a tree knows by heart and nobody can predict well."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 3)) + a[:, None] * [0.5, 0.0, 0.0]
    return X, X[:, 0] + 2.0 * rng.normal(size=n), a


def test_a_model_that_may_have_seen_the_rows_is_refused():
    X, y, a = memorized()
    fitted = clone(TREE).fit(X, y)
    frozen = FrozenEstimator(fitted)
    options = {"sensitive_features": a, "fairness_weights": [1.0]}
    for post, name in (
        (eh.FairPostprocessor(fitted), "DecisionTreeRegressor"),
        (make_pipeline(StandardScaler(), eh.FairPostprocessor(fitted)), "DecisionTreeRegressor"),
        (eh.FairPostprocessor(frozen), "FrozenEstimator"),
        (eh.FairPostprocessor(frozen, prefit=False), "FrozenEstimator"),
        (eh.FairPostprocessor(make_pipeline(StandardScaler(), frozen)), "Pipeline"),
    ):
        with pytest.raises(ValueError, match=REFUSED.format(name)):
            fairness_path(post, X, y, **options)


def test_the_ways_out_are_honest():
    X, y, a = memorized()
    fitted = clone(TREE).fit(X, y)
    options = {"sensitive_features": a, "fairness_weights": [1.0], "random_state": 0}
    again = fairness_path(eh.FairPostprocessor(fitted, prefit=False), X, y, **options)
    fresh = fairness_path(eh.FairPostprocessor(TREE, random_state=0), X, y, **options)
    assert not fresh.fitted_before
    seen = fitted.score(X, y)
    for path in (again, fresh):
        assert path.points[0].r2 < seen - 0.2


def test_a_model_fitted_to_other_rows_is_taken_at_its_word(tmp_path):
    X, y, a = memorized(600)
    fitted = clone(TREE).fit(X[300:], y[300:])
    path = fairness_path(
        eh.FairPostprocessor(fitted, prefit=True), X[:300], y[:300], sensitive_features=a[:300],
        fairness_weights=[1.0], random_state=0,
    )  # fmt: skip
    assert path.fitted_before
    assert "folds, around a model that was fitted before" in str(path)
    page = path.to_html(tmp_path / "p.html").read_text(encoding="utf-8")
    assert "is what its user says (prefit=True)" in page
    assert path.points[0].r2 < fitted.score(X[300:], y[300:]) - 0.2
