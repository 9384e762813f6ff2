"""Transport to the barycenter: the known normal case, ties, weights, unknown rows."""

import numpy as np
import pytest
import sklearn
from scipy import stats
from sklearn.dummy import DummyRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.neighbors import KNeighborsRegressor

from evenhand import Proxy
from rivals import WassersteinBarycenter


class Identity(LinearRegression):
    """The score is the only feature."""

    def fit(self, X, y, sample_weight=None):
        self.n_features_in_ = 1
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0]


def _scores(n=4000, seed=0):
    """N(0, 1) and N(2, 3²) in shares of 3/4 and 1/4."""
    rng = np.random.default_rng(seed)
    a = (np.arange(n) % 4 == 3).astype(int)
    s = np.where(a == 1, 2.0 + 3.0 * rng.normal(size=n), rng.normal(size=n))
    return s[:, None], a


def _fit(X, a, **params):
    return WassersteinBarycenter(Identity(), random_state=0, **params).fit(
        X, X[:, 0], sensitive_features=a
    )


def test_normal_groups_meet_at_the_known_barycenter():
    X, a = _scores()
    fair = _fit(X, a).predict(X, sensitive_features=a)
    # Barycenter of normals: mean and spread are the averages, here 0.5 and 1.5.
    for k in (0, 1):
        assert fair[a == k].mean() == pytest.approx(0.5, abs=0.15)
        assert fair[a == k].std() == pytest.approx(1.5, abs=0.1)
    assert stats.ks_2samp(fair[a == 0], fair[a == 1]).statistic < 0.005
    fresh, b = _scores(seed=1)
    exact = np.where(b == 1, 0.5 + 0.5 * (fresh[:, 0] - 2.0), 0.5 + 1.5 * fresh[:, 0])
    moved = _fit(X, a).predict(fresh, sensitive_features=b)
    inside = np.abs(exact - 0.5) < 2 * 1.5
    assert np.abs(moved - exact)[inside].max() < 0.35


def test_order_within_a_group_is_kept():
    X, a = _scores(n=400)
    fair = _fit(X, a).predict(X, sensitive_features=a)
    for k in (0, 1):
        assert stats.spearmanr(X[a == k, 0], fair[a == k]).statistic == pytest.approx(1.0)


def test_interpolation_is_a_straight_line():
    X, a = _scores(n=400)
    ends = [_fit(X, a, interpolation=t).predict(X, sensitive_features=a) for t in (0.0, 1.0)]
    np.testing.assert_array_equal(ends[0], X[:, 0])
    middle = _fit(X, a, interpolation=0.3).predict(X, sensitive_features=a)
    np.testing.assert_allclose(middle, 0.7 * ends[0] + 0.3 * ends[1])


def test_ties_are_broken_by_seeded_jitter():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 1000)
    X = (rng.uniform(size=1000) < 0.3 + 0.4 * a).astype(float)[:, None]
    model = _fit(X, a)
    fair = model.predict(X, sensitive_features=a)
    assert stats.ks_2samp(fair[a == 0], fair[a == 1]).statistic < 0.02
    np.testing.assert_array_equal(fair, model.predict(X, sensitive_features=a))
    np.testing.assert_array_equal(fair, _fit(X, a).predict(X, sensitive_features=a))
    blunt = _fit(X, a, jitter=0.0).predict(X, sensitive_features=a)
    assert stats.ks_2samp(blunt[a == 0], blunt[a == 1]).statistic > 0.2


def test_weights_act_as_repeated_rows():
    X, a = _scores(n=200)
    times = np.random.default_rng(0).integers(1, 4, 200)
    weighted = WassersteinBarycenter(Identity(), jitter=0.0)
    weighted.fit(X, X[:, 0], sensitive_features=a, sample_weight=times)
    long = np.repeat(np.arange(200), times)
    repeated = _fit(X[long], a[long], jitter=0.0)
    np.testing.assert_allclose(weighted.group_shares_, repeated.group_shares_)
    np.testing.assert_allclose(
        weighted.predict(X, sensitive_features=a), repeated.predict(X, sensitive_features=a)
    )
    plain = _fit(X, a, jitter=0.0).predict(X, sensitive_features=a)
    assert np.abs(plain - repeated.predict(X, sensitive_features=a)).max() > 0.01


def test_proxies_and_unknown_rows():
    X, a = _scores(n=400)
    hard = _fit(X, a)
    soft = _fit(X, Proxy(np.eye(2)[a], [0, 1]))
    np.testing.assert_allclose(
        soft.predict(X, sensitive_features=Proxy(np.eye(2)[a][:, ::-1], [1, 0])),
        hard.predict(X, sensitive_features=a),
    )
    half = hard.transform_scores(X[:1, 0], sensitive_features=Proxy([[0.5, 0.5]], [0, 1]))
    each = [hard.transform_scores(X[:1, 0], sensitive_features=[k])[0] for k in (0, 1)]
    assert half[0] == pytest.approx(np.mean(each))

    labels = a.astype(float)
    labels[::5] = np.nan
    partly = _fit(X, labels)
    known = ~np.isnan(labels)
    alone = _fit(X[known], a[known], jitter=0.0)
    np.testing.assert_allclose(
        partly.predict(X, sensitive_features=a), alone.predict(X, sensitive_features=a), atol=1e-2
    )
    unknown = partly.predict(X, sensitive_features=np.full(400, np.nan))
    assert stats.spearmanr(unknown, X[:, 0]).statistic == pytest.approx(1.0, abs=1e-3)


def test_distributions_of_out_of_fold_scores():
    """A base that knows its training rows by heart has other scores on new ones."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 600)
    X = rng.normal(size=(600, 2)) + a[:, None] * [0.5, 0.0]
    y = X[:, 0] + (1 + a) * rng.normal(size=600)
    fresh, b = rng.normal(size=(600, 2)), rng.integers(0, 2, 600)
    fresh[:, 0] += 0.5 * b
    # One neighbor: in training its score is the target, whose spread differs by group.
    model = WassersteinBarycenter(KNeighborsRegressor(1), random_state=0, cv=5)
    model.fit(X, y, sensitive_features=a)
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(X, a)
    again = WassersteinBarycenter(KNeighborsRegressor(1), random_state=0, cv=list(folds))
    again.fit(X, y, sensitive_features=a)
    held_out = model.predict(fresh, sensitive_features=b)
    np.testing.assert_array_equal(held_out, again.predict(fresh, sensitive_features=b))
    inside = WassersteinBarycenter(KNeighborsRegressor(1), random_state=0)
    inside.fit(X, y, sensitive_features=a)

    def gap(s):
        return stats.ks_2samp(s[b == 0], s[b == 1]).statistic

    assert gap(held_out) < gap(inside.predict(fresh, sensitive_features=b))


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("step", [1.0, 0.4])
def test_the_same_as_equipy(n_groups, step):
    FairWasserstein = pytest.importorskip("equipy.fairness").FairWasserstein
    rng = np.random.default_rng(n_groups)
    a = rng.integers(0, n_groups, 6000)
    s = rng.normal(size=6000) * (1 + 0.5 * a) + a
    train, test = slice(0, 3000), slice(3000, None)
    theirs = FairWasserstein(sigma=1e-9)
    theirs.fit(s[train], a[train])
    expected = theirs.transform(s[test], a[test], epsilon=1 - step)
    ours = _fit(s[train, None], a[train], jitter=1e-9, interpolation=step)
    found = ours.predict(s[test, None], sensitive_features=a[test])
    # Ranks of one go by steps and of the other by straight lines: one row of about 1,000 apart.
    assert np.abs(found - expected).mean() < 5e-3
    assert np.abs(found - expected)[np.abs(s[test]) < 2].max() < 0.06
    if step == 1.0:
        assert np.abs(s[test] - expected).mean() > 0.2


def test_distributions_from_unlabeled_rows():
    X, a = _scores(n=400)
    other, b = _scores(n=800, seed=3)
    model = WassersteinBarycenter(Identity(), random_state=0)
    model.fit(X, X[:, 0], X_unlabeled=other, sensitive_features_unlabeled=b)
    np.testing.assert_array_equal(
        model.predict(X, sensitive_features=a), _fit(other, b).predict(X, sensitive_features=a)
    )


def test_frozen_and_real_estimators_in_cross_validation():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    y = X @ [1.0, 1.0, 0.5] + rng.normal(size=300)
    base = LinearRegression().fit(X, y)
    frozen = WassersteinBarycenter(FrozenEstimator(base), interpolation=0.0)
    frozen.fit(X, y, sensitive_features=a)
    np.testing.assert_allclose(frozen.predict(X, sensitive_features=a), base.predict(X))
    assert frozen.n_features_in_ == 3
    with sklearn.config_context(enable_metadata_routing=True):
        model = WassersteinBarycenter(LinearRegression(), random_state=0)
        model.set_fit_request(sensitive_features=True)
        model.set_score_request(sensitive_features=True)
        found = cross_validate(model, X, y, cv=3, params={"sensitive_features": a})
    assert 0.1 < found["test_score"].mean() < base.score(X, y)


def test_constant_scores_stay_constant():
    X, a = _scores(n=40)
    model = WassersteinBarycenter(DummyRegressor()).fit(X, X[:, 0], sensitive_features=a)
    np.testing.assert_allclose(model.predict(X, sensitive_features=a), X.mean())


def test_messages():
    X, a = _scores(n=40)
    y = X[:, 0]
    with pytest.raises(ValueError, match="`interpolation` must be a number between 0 and 1"):
        _fit(X, a, interpolation=2)
    with pytest.raises(ValueError, match="`jitter` must be a finite number of at least 0"):
        _fit(X, a, jitter=-1.0)
    model = WassersteinBarycenter(Identity())
    with pytest.raises(ValueError, match="`y` must be given, got None"):
        model.fit(X, None, sensitive_features=a)
    with pytest.raises(ValueError, match="`sensitive_features` must be given"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="`sensitive_features_unlabeled` must be given with"):
        model.fit(X, y, X_unlabeled=X)
    with pytest.raises(ValueError, match="`X_unlabeled` must be given with"):
        model.fit(X, y, sensitive_features_unlabeled=a)
    with pytest.raises(ValueError, match="takes no weights, got weights for KNeighbors"):
        WassersteinBarycenter(KNeighborsRegressor()).fit(
            X, y, sensitive_features=a, sample_weight=np.ones(40)
        )
    model.fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="WassersteinBarycenter needs the group of every new row"):
        model.predict(X)
    with pytest.raises(ValueError, match=r"`scores` must be 1-D, got shape \(40, 2\)"):
        model.transform_scores(np.ones((40, 2)), sensitive_features=a)
