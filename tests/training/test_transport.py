"""Transport to the barycenter: normal scores in closed form, weights, ties, beyond the range."""

import numpy as np
import pytest
from scipy.stats import norm

from evenhand.training.group_features import N_LEVELS, Transport, distribution


def normal_groups(n=20_000):
    """Exact quantiles of N(0, 1) and N(3, 2²)."""
    level = (np.arange(n) + 0.5) / n
    scores = np.concatenate([norm.ppf(level), norm.ppf(level, 3, 2)])
    return scores, np.repeat([[1.0, 0.0], [0.0, 1.0]], n, axis=0)


def test_normal_groups_in_closed_form():
    """The barycenter of normals with equal shares has their mean mean and mean spread."""
    scores, membership = normal_groups()
    transport = Transport.fit(scores, membership)
    z = np.linspace(-1.5, 1.5, 21)
    assert transport(z)[:, 0] == pytest.approx(1.5 + 1.5 * z, abs=0.01)
    assert transport(3 + 2 * z)[:, 1] == pytest.approx(1.5 + 1.5 * z, abs=0.01)


def test_three_groups_share_one_distribution():
    rng = np.random.default_rng(0)
    a = rng.choice(3, 6000, p=[0.6, 0.3, 0.1])
    scores = np.choose(a, [rng.normal(size=6000), rng.exponential(size=6000), rng.random(6000)])
    membership = np.eye(3)[a]
    transport = Transport.fit(scores, membership)
    moved = (transport(scores) * membership).sum(axis=1)
    levels = np.linspace(0.05, 0.95, 19)
    each = [np.quantile(moved[a == k], levels) for k in range(3)]
    assert np.ptp(each, axis=0).max() < 0.05
    old = [np.quantile(scores[a == k], levels) for k in range(3)]
    assert each[0] == pytest.approx(np.average(old, axis=0, weights=[0.6, 0.3, 0.1]), abs=0.05)


def test_weights_count_rows():
    rng = np.random.default_rng(1)
    scores, repeat = rng.normal(size=400), rng.integers(1, 4, 400)
    membership = np.eye(2)[rng.integers(0, 2, 400)]
    rows = np.repeat(np.arange(400), repeat)
    weighted = Transport.fit(scores, membership * repeat[:, None])
    repeated = Transport.fit(scores[rows], membership[rows])
    grid = np.linspace(-2, 2, 50)
    assert weighted(grid) == pytest.approx(repeated(grid))


def test_beyond_the_range_scores_move_with_its_ends():
    scores, membership = normal_groups(500)
    transport = Transport.fit(scores, membership)
    for k, (knot, value) in enumerate(zip(transport.knots, transport.values, strict=True)):
        far = np.array([knot[0] - 7.0, knot[-1] + 7.0])
        assert transport(far)[:, k] == pytest.approx([value[0] - 7.0, value[-1] + 7.0])


def test_ties_go_to_the_middle_of_their_targets():
    scores = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 2.0, 3.0])
    membership = np.repeat([[1.0, 0.0], [0.0, 1.0]], 4, axis=0)
    transport = Transport.fit(scores, membership)
    assert all((np.diff(knot) > 0).all() for knot in transport.knots)
    assert all((np.diff(value) >= 0).all() for value in transport.values)
    moved = transport(np.array([0.0, 1.0]))[:, 0]
    assert 0.0 < moved[0] < moved[1] < 3.0
    assert moved.sum() == pytest.approx(2.0)  # symmetric scores: 1.0 on average


def test_a_constant_score_moves_as_one():
    transport = Transport.fit(np.full(10, 4.0), np.eye(2)[np.arange(10) % 2])
    assert transport(np.array([4.0, 5.0])) == pytest.approx(np.array([[4.0, 4.0], [5.0, 5.0]]))
    assert transport.slopes() == pytest.approx(np.ones((2, 3)))


def test_slopes_are_those_of_the_pieces():
    scores, membership = normal_groups(2000)
    transport = Transport.fit(scores, membership)
    slopes = transport.slopes()
    # Half of the map is the group's own score, so no piece is flatter than the share.
    assert (slopes[:, 0] >= 0.5).all()
    assert slopes[0, :2] == pytest.approx(1.5, abs=0.02)
    assert slopes[1, :2] == pytest.approx(0.75, abs=0.02)
    assert slopes[:, 2] == pytest.approx(1.0)
    assert len(transport.knots[0]) == N_LEVELS


def test_distribution():
    support, rank = distribution(np.array([1.0, 2.0, 2.0, 5.0]), np.array([1.0, 1.0, 1.0, 0.0]))
    assert support.tolist() == [1.0, 2.0]
    assert rank == pytest.approx([1 / 6, 4 / 6])
