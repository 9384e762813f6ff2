"""Transport attribute by attribute: the barycenter of the crossing, and EquiPy's scores."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from rivals import SequentialBarycenter, WassersteinBarycenter


def _rows(n=3000):
    rng = np.random.default_rng(0)
    sex, region = rng.integers(0, 2, n), rng.integers(0, 3, n)
    X = rng.normal(size=(n, 2)) + np.column_stack([sex, region * sex])
    return X, X.sum(axis=1) + rng.normal(size=n), sex, region


def test_all_steps_are_the_barycenter_of_the_crossing_in_any_order():
    X, y, sex, region = _rows()
    crossed = {"sex": sex, "region": region}
    whole = WassersteinBarycenter(Ridge(), random_state=0).fit(X, y, sensitive_features=crossed)
    expected = whole.predict(X, sensitive_features=crossed)
    for groups in (crossed, {"region": region, "sex": sex}):
        model = SequentialBarycenter(Ridge(), random_state=0).fit(X, y, sensitive_features=groups)
        scores = model.predict(X, sensitive_features=groups)
        assert np.abs(scores - expected).mean() < 0.005 * expected.std()


@pytest.mark.parametrize("steps", [(1.0, 1.0), (1.0, 0.0), (0.3, 0.8)])
def test_scores_are_those_of_equipy(steps):
    fairness = pytest.importorskip("equipy.fairness")
    X, y, sex, region = _rows()
    groups = np.column_stack([sex, region])
    model = SequentialBarycenter(Ridge(), interpolation=steps, random_state=0)
    model.fit(X, y, sensitive_features=groups)
    scores = model.estimator_.predict(X)
    theirs = fairness.MultiWasserstein(sigma=1e-6)
    theirs.fit(scores, groups)
    expected = theirs.transform(scores, groups, epsilon=[1.0 - t for t in steps])
    moved = np.abs(expected - scores).mean()
    assert np.abs(model.predict(X, sensitive_features=groups) - expected).mean() < 0.02 * moved


def test_one_attribute_is_the_barycenter():
    X, y, sex, _ = _rows(400)
    one, other = (
        kind(Ridge(), random_state=0).fit(X, y, sensitive_features=sex)
        for kind in (SequentialBarycenter, WassersteinBarycenter)
    )
    np.testing.assert_allclose(
        one.predict(X, sensitive_features=sex), other.predict(X, sensitive_features=sex)
    )


def test_a_combination_of_one_group_stays():
    X, y, sex, region = _rows(600)
    sex = np.where(region == 2, 1, sex)
    groups = {"sex": sex, "region": region}
    model = SequentialBarycenter(Ridge(), interpolation=(1.0, 0.0), cv=3, random_state=0)
    model.fit(X, y, sensitive_features=groups)
    assert model.maps_[0, (2,)] is None
    moved = model.predict(X, sensitive_features=groups) - model.estimator_.predict(X)
    assert not moved[region == 2].any()
    assert moved[region == 1].any()


def test_messages():
    X, y, sex, region = _rows(300)
    model = SequentialBarycenter(Ridge(), random_state=0)
    with pytest.raises(ValueError, match="sensitive_features"):
        model.fit(X, y)
    some = sex.astype(object)
    some[0] = None
    with pytest.raises(ValueError, match="must be known for all rows"):
        model.fit(X, y, sensitive_features={"sex": some, "region": region})
    model.fit(X, y, sensitive_features={"sex": sex, "region": np.minimum(region, 1)})
    with pytest.raises(ValueError, match="must have the 2 columns of fit, got 1"):
        model.predict(X, sensitive_features=sex)
    with pytest.raises(ValueError, match="must hold combinations seen in fit"):
        model.predict(X, sensitive_features={"sex": sex, "region": region})
    with pytest.raises(ValueError, match="`interpolation` must be a number between 0 and 1"):
        model.set_params(interpolation=2.0).predict(
            X, sensitive_features={"sex": sex, "region": np.minimum(region, 1)}
        )
