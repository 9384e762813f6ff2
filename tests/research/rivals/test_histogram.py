"""Transport between histograms: closed forms, the authors' code, and what it guarantees."""

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge

from rivals import HistogramTransport
from rivals.histogram import rise, transport


class Column(RegressorMixin, BaseEstimator):
    """Scores that are there already."""

    def fit(self, X, y, sample_weight=None):
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X):
        return np.asarray(X)[:, 0]


def _rows(n=200):
    rng = np.random.default_rng(0)
    a = (rng.random(n) < 0.3).astype(int)
    return np.clip(0.3 + 0.15 * (rng.normal(size=n) + a), 0, 1)[:, None], a


def _fit(S, a, **options):
    model = HistogramTransport(Column(), bounds=(0.0, 1.0), random_state=0, **options)
    return model.fit(S, S[:, 0], sensitive_features=a)


def _gap(s, a):
    return ks_2samp(s[a == 0], s[a == 1]).statistic


def test_two_points_meet_where_their_shares_say():
    """Groups at bins 0 and 4: all go to the bin at the mean, 4 times the share of the second."""
    histograms = np.eye(5)[[0, 4]]
    coupling = transport(histograms, np.array([0.75, 0.25]), 0.0)
    np.testing.assert_allclose(coupling.sum(axis=1), np.eye(5)[[1, 1]], atol=1e-9)
    # Half of the people may differ: half of each group stays, or moves as little.
    half = transport(histograms, np.array([0.75, 0.25]), 0.5)
    distance = np.abs(np.cumsum(half.sum(axis=1)[0] - half.sum(axis=1)[1])).max()
    assert distance == pytest.approx(0.5)
    squares = np.square(np.subtract.outer(np.arange(5), np.arange(5)))
    cost = [0.75 * (c[0] * squares).sum() + 0.25 * (c[1] * squares).sum() for c in (coupling, half)]
    assert cost == pytest.approx([3.0, 1.5])


# Total cost, in squared bins, and the first three mean scores by the authors' code.
AUTHORS = {
    0.0: (30.516934924913347 / 64, (0.241438, 0.3125, 0.455782)),
    0.1: (15.323198562443842 / 64, (0.201492, 0.33515, 0.503104)),
}


@pytest.mark.parametrize(("tolerance", "expected"), AUTHORS.items())
def test_cost_and_scores_are_those_of_the_authors_code(tolerance, expected):
    S, a = _rows()
    model = _fit(S, a, n_bins=8, tolerance=tolerance, output="mean")
    squares = np.square(np.subtract.outer(np.arange(8), np.arange(8)))
    cost = (model.coupling_ * squares).sum(axis=(1, 2)) @ model.group_shares_
    assert cost == pytest.approx(expected[0])
    scores = model.predict(S, sensitive_features=a)
    np.testing.assert_allclose(scores[:3], expected[1], atol=1e-6)


@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.3])
def test_drawn_scores_of_training_rows_meet_the_tolerance(tolerance):
    S, a = _rows(4000)
    model = _fit(S, a, n_bins=12, tolerance=tolerance)
    moved = model.coupling_.sum(axis=1)
    assert np.abs(np.cumsum(moved[0] - moved[1])).max() <= tolerance + 1e-9
    drawn = model.predict(S, sensitive_features=a)
    assert _gap(drawn, a) < tolerance + 0.05 < _gap(S[:, 0], a) + 0.05
    np.testing.assert_array_equal(drawn, model.predict(S, sensitive_features=a))
    # Equal people may get different scores; their mean is the other output.
    mean = model.set_params(output="mean").predict(S, sensitive_features=a)
    assert np.abs(drawn - mean).mean() < 1.0 / 12
    assert drawn.mean() == pytest.approx(mean.mean(), abs=0.005)


def test_at_tolerance_one_scores_are_only_sorted_into_bins():
    S, a = _rows()
    expected = (np.minimum(np.floor(S[:, 0] * 10), 9) + 0.5) / 10
    model = _fit(S, a, n_bins=10, tolerance=1.0)
    np.testing.assert_allclose(model.predict(S, sensitive_features=a), expected)


def test_rows_of_unknown_group_and_bins_that_were_empty_stay():
    S, a = _rows()
    model = _fit(S, a, n_bins=10)
    new = np.array([[0.999], [-3.0], [0.31]])
    group = np.array([0, 1, None], dtype=object)
    assert not model.histograms_[0, -1]
    scores = model.predict(new, sensitive_features=group)
    assert scores[0] == pytest.approx(0.95)
    assert scores[2] == pytest.approx(0.35)


def test_rise_is_the_nearest_rising_sequence_in_the_largest_difference():
    values = np.random.default_rng(0).normal(size=20) + np.arange(20) * 0.1
    fit = rise(values)
    assert (np.diff(fit) >= 0).all()
    # No rising sequence is nearer: somewhere an earlier value is twice as far above a later one.
    falls = np.max([values[: i + 1].max() - values[i] for i in range(20)])
    assert np.abs(fit - values).max() == pytest.approx(falls / 2)


def test_noise_is_that_of_the_privacy_asked_for():
    S, a = _rows(4000)
    exact, loose, tight = (_fit(S, a, n_bins=8, privacy=e) for e in (np.inf, 10.0, 0.1))
    far = [np.abs(m.histograms_ - exact.histograms_).max() for m in (loose, tight)]
    assert 0 < far[0] < 0.01 < far[1]
    assert (np.diff(np.cumsum(tight.histograms_, axis=1)) >= -1e-12).all()
    np.testing.assert_allclose(tight.histograms_.sum(axis=1), 1.0)
    again = _fit(S, a, n_bins=8, privacy=0.1)
    np.testing.assert_array_equal(again.histograms_, tight.histograms_)


def test_out_of_fold_histograms_of_three_groups():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 900)
    X = rng.normal(size=(900, 3)) + a[:, None]
    y = X.sum(axis=1) + rng.normal(size=900)
    model = HistogramTransport(Ridge(), n_bins=20, cv=3, random_state=0)
    s = model.fit(X, y, sensitive_features=a).predict(X, sensitive_features=a)
    assert max(ks_2samp(s[a == j], s[a == k]).statistic for j in range(3) for k in range(j)) < 0.12


def test_messages():
    S, a = _rows()
    with pytest.raises(ValueError, match="`n_bins` must be a positive integer"):
        _fit(S, a, n_bins=0)
    with pytest.raises(ValueError, match="`privacy` must be a positive number"):
        _fit(S, a, privacy=0.0)
    with pytest.raises(ValueError, match="`privacy` must be infinite where `bounds`"):
        HistogramTransport(Column(), privacy=1.0).fit(S, S[:, 0], sensitive_features=a)
    with pytest.raises(ValueError, match="sensitive_features"):
        HistogramTransport(Column()).fit(S, S[:, 0])
