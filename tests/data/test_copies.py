"""Copies of rows, by any number and in any dress, count once; heavy values are not copies."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.copies import find_copies
from evenhand.measures.effective import SharedValuesWarning


def draw(n=600, seed=0, groups=2):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, groups, n)
    y = rng.normal(size=n)
    return y, y + rng.normal(size=n) + 0.3 * a, a


@pytest.mark.parametrize("times", [2, 3, 12, 30])
@pytest.mark.parametrize("weighted", [False, True])
def test_copies_leave_every_number_as_it_is(times, weighted):
    y, s, a = draw()
    w = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted else None
    rows = np.tile(np.arange(len(y)), times)
    once = eh.audit(y, s, sensitive_features=a, sample_weight=w)
    copied = eh.audit(
        y[rows], s[rows], sensitive_features=a[rows], sample_weight=None if w is None else w[rows]
    )
    assert copied.n_copies == (times - 1) * len(y)
    for name, m in once.measures.items():
        assert copied.measures[name].value == pytest.approx(m.value, abs=1e-12)
        assert copied.measures[name].interval == pytest.approx(m.interval, abs=1e-12)
        assert copied.measures[name].p_value == pytest.approx(m.p_value, abs=1e-12)
    assert "rows are copies of others" in str(copied)
    limit = eh.Tolerance(separation=0.02)
    assert copied.verdict(limit).outcome == once.verdict(limit).outcome
    assert "rows are copies of others" in str(copied.verdict(limit))


@pytest.mark.parametrize("name", ["independence", "separation", "sufficiency"])
def test_single_measures_count_copies_once(name):
    y, s, a = draw(400, 3)
    rows = np.repeat(np.arange(len(y)), 11)
    measure = getattr(eh, name)
    expected = measure(y, s, sensitive_features=a)
    assert measure(y[rows], s[rows], sensitive_features=a[rows]) == pytest.approx(
        expected, abs=1e-12
    )


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
def test_copies_of_some_rows_count_once(share):
    y, s, a = draw(3000, 11)
    again = np.flatnonzero(np.random.default_rng(12).random(len(y)) < share)
    rows = np.concatenate([np.arange(len(y)), again])
    once = eh.audit(y, s, sensitive_features=a).separation
    copied = eh.audit(y[rows], s[rows], sensitive_features=a[rows])
    assert copied.n_copies == len(again)
    assert copied.separation.value == pytest.approx(once.value, abs=1e-12)
    assert copied.separation.stderr == pytest.approx(once.stderr, rel=1e-9)


def test_copies_of_copies_count_once():
    y, s, a = draw(1000, 21)
    people = np.arange(len(y))
    rows = np.repeat(people, np.where(people % 3 == 0, 25, 5))
    once = eh.audit(y, s, sensitive_features=a)
    copied = eh.audit(y[rows], s[rows], sensitive_features=a[rows])
    assert copied.n_copies == len(rows) - len(people)
    assert copied.separation.value == pytest.approx(once.separation.value, abs=1e-12)


@pytest.mark.parametrize("levels", [12, 40, 100])
def test_values_of_one_group_each_by_their_density_are_no_copies(levels):
    """A score that gives the group away, and occurs where scores are dense: sizes of many kinds."""
    rng = np.random.default_rng(levels)
    a = rng.integers(0, 2, 4000)
    s = np.rint(rng.normal(size=4000) * levels / 6) * 2 + a
    assert find_copies([s], a) is None


def test_a_few_common_values_are_no_copies():
    rng = np.random.default_rng(13)
    a = rng.integers(0, 2, 100)
    s = rng.normal(size=100)
    for value in range(3):
        s[np.flatnonzero(a == value % 2)[10 * value : 10 * value + 10]] = value
    assert find_copies([s], a) is None


def test_a_score_of_discrete_features_that_knows_the_group_is_no_copy():
    rng = np.random.default_rng(14)
    a, x, z = rng.integers(0, [2, 40, 30], (4000, 3)).T
    s = 0.1 * x + 0.013 * z + 0.0017 * a
    y = np.round(s + rng.normal(size=4000), 1)
    assert find_copies([s, y], a) is None


def test_copies_of_many_rows_are_found_by_a_first_look():
    y, s, a = draw(30_000, 4)
    rows = np.tile(np.arange(len(y)), 2)
    place = find_copies([s[rows], y[rows]], a[rows])
    np.testing.assert_array_equal(place, rows)
    assert find_copies([s, y], a) is None


def test_a_bootstrap_is_a_table_of_copies():
    y, s, a = draw(800, 5)
    rows = np.random.default_rng(0).integers(0, 800, 800)
    place = find_copies([s[rows], y[rows]], a[rows])
    assert place.max() + 1 == len(np.unique(rows))


def test_one_groups_own_score_is_no_copy():
    """All of one group share a score that nobody else has: it gives the group away."""
    rng = np.random.default_rng(6)
    a = rng.integers(0, 2, 2000)
    s = np.where(a == 1, 5.0, rng.normal(size=2000))
    assert eh.independence(None, s, sensitive_features=a) > 0.97
    result = eh.audit(rng.normal(size=2000), s, sensitive_features=a)
    assert result.n_copies == 0
    assert result.independence.interval[1] > 0.99


def test_a_free_price_for_half_of_one_group():
    """I(S;A) is that of the indicator of the free price, the rest being alike."""
    rng = np.random.default_rng(7)
    a = rng.integers(0, 2, 4000)
    free = (a == 1) & (rng.random(4000) < 0.5)
    s = np.where(free, 0.0, rng.gamma(2.0, size=4000))
    h = lambda p: -(p * np.log(p) + (1 - p) * np.log(1 - p))  # noqa: E731
    truth = 1 - 0.75 * h(1 / 3) / np.log(2)
    value = eh.independence(None, s, sensitive_features=a)
    assert value == pytest.approx(truth, abs=0.03)


def test_discrete_data_are_people():
    rng = np.random.default_rng(8)
    a = rng.integers(0, 2, 3000)
    s, y = rng.integers(0, 12, (2, 3000)).astype(float)
    assert find_copies([s, y], a) is None


def test_frequencies_that_look_like_copies_are_refused():
    y, s, a = draw()
    with pytest.raises(ValueError, match="must count different people"):
        eh.audit(y, s, sensitive_features=a, frequency=np.full(len(y), 12))
    with pytest.raises(ValueError, match="must count different people"):
        eh.separation(y, s, sensitive_features=a, frequency=np.full(len(y), 2))
    smooth = eh.audit(
        y, s, sensitive_features=a, frequency=np.full(len(y), 12), estimator="logistic"
    )
    once = eh.audit(y, s, sensitive_features=a, estimator="logistic")
    assert smooth.separation.value == pytest.approx(once.separation.value, abs=0.01)


def test_clusters_already_hold_copies_together():
    y, s, a = draw()
    rows = np.repeat(np.arange(len(y)), 3)
    result = eh.audit(y[rows], s[rows], sensitive_features=a[rows], cluster=rows)
    assert result.n_copies == 0


@pytest.mark.parametrize("times", [2, 3, 12])
def test_cells_that_hold_copies_are_refused(times):
    y, s, a = draw(3000, 9)
    cells = eh.Cells.from_rows(y, s, sensitive_features=a)
    assert not cells.copied
    assert eh.audit(cells).separation.value < 0.05
    rows = np.tile(np.arange(len(y)), times)
    counted = eh.Cells.from_rows(y[rows], s[rows], sensitive_features=a[rows], edges=cells.edges)
    frequent = eh.Cells.from_rows(
        y, s, sensitive_features=a, frequency=np.full(len(y), times), edges=cells.edges
    )
    for copied in (counted, frequent, eh.Cells.merge([cells] * times)):
        with pytest.raises(ValueError, match="`cells` must count different people"):
            eh.audit(copied)
    smooth = eh.audit(counted, estimator="logistic")
    once = eh.audit(cells, estimator="logistic")
    assert smooth.separation.value == pytest.approx(once.separation.value, abs=0.002)


def test_cells_of_discrete_or_separated_people_are_no_copies():
    rng = np.random.default_rng(10)
    a = rng.integers(0, 2, 20_000)
    y = rng.integers(0, 40, 20_000).astype(float)
    s = rng.integers(0, 30, 20_000).astype(float)
    assert not eh.Cells.from_rows(y, s, sensitive_features=a).copied
    apart = np.where(a == 1, 10.0, 0.0) + rng.normal(size=20_000)
    assert not eh.Cells.from_rows(rng.normal(size=20_000), apart, sensitive_features=a).copied


@pytest.mark.parametrize("kind", ["noise", "float32", "one group"])
def test_copies_next_door(kind):
    """Copies that differ in their last digits (separation read 0.84), or of one group alone."""
    y, s, a = draw(1000, 21)
    once = eh.audit(y, s, sensitive_features=a).separation
    rows = np.repeat(np.arange(len(y)), 3)
    if kind == "one group":
        rows = np.concatenate([np.arange(len(y)), np.flatnonzero(a == 1)])
    scores = s[rows]
    if kind == "noise":
        scores = scores * (1 + 1e-9 * np.random.default_rng(22).normal(size=len(rows)))
    elif kind == "float32":
        scores = np.where(np.arange(len(rows)) % 3, scores.astype(np.float32), scores)
    copied = eh.audit(y[rows], scores, sensitive_features=a[rows])
    assert copied.n_copies >= 0.99 * (len(rows) - len(y))
    assert copied.separation.value == pytest.approx(once.value, abs=0.2 * once.stderr)
    assert copied.separation.stderr >= 0.98 * once.stderr


def test_noisy_copies_in_cells_are_refused():
    y, s, a = draw(1000, 23)
    rows = np.repeat(np.arange(len(y)), 2)
    noisy = s[rows] + 1e-9 * np.random.default_rng(24).normal(size=len(rows))
    cells = eh.Cells.from_rows(y[rows], noisy, sensitive_features=a[rows])
    with pytest.raises(ValueError, match="`cells` must count different people"):
        eh.audit(cells)


@pytest.mark.parametrize("what", ["score", "target"])
def test_a_panel_that_keeps_one_of_score_and_target_is_named(what):
    y, s, a = draw(500, 25)
    rows = np.repeat(np.arange(len(y)), 3)
    noise = 0.5 * np.random.default_rng(26).normal(size=len(rows))
    columns = {"score": (y[rows] + noise, s[rows]), "target": (y[rows], s[rows] + noise)}[what]
    with pytest.warns(SharedValuesWarning, match=f"The {what} has 500 values in 1,500 rows"):
        eh.audit(*columns, sensitive_features=a[rows], estimator="logistic")
    eh.audit(*columns, sensitive_features=a[rows], cluster=rows, estimator="logistic")
