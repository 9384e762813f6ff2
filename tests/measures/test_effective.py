"""Effective sizes: what is refused, what is warned of, and that values stay bounded."""

import warnings

import numpy as np
import pytest
from exact import exact_fairness_p_value
from grids import pairwise

import evenhand as eh
from evenhand.data.criteria import INDEPENDENCE
from evenhand.data.groups import GroupWarning, Proxy, resolve_groups
from evenhand.measures import effective
from evenhand.measures.effective import (
    EffectiveSizeWarning,
    SharedValuesWarning,
    check_effective_size,
    group_sizes,
)

MEASURES = (eh.independence, eh.separation, eh.sufficiency)
ESTIMATORS = ("logistic", "lspc", "fourier", "knn")


def _rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    y = rng.normal(size=n) + 0.5 * a
    return y, 0.5 * y + rng.normal(size=n) - 0.4 * a, a


def test_group_sizes():
    a = [0, 0, 0, 1, 1, 1]
    assert group_sizes(resolve_groups(a, n_rows=6)).tolist() == [3, 3]
    weighted = resolve_groups(a, n_rows=6, sample_weight=[1, 1, 1, 1, 1, 2])
    np.testing.assert_allclose(group_sizes(weighted), [3, 16 / 6])
    clustered = resolve_groups(a, n_rows=6, cluster=[0, 0, 1, 1, 2, 3])
    np.testing.assert_allclose(group_sizes(clustered), [9 / 5, 3])
    proxy = resolve_groups(Proxy([[0.5, 0.5], [1.0, 0.0]]), n_rows=2)
    np.testing.assert_allclose(group_sizes(proxy), [1.5**2 / 1.25, 1.0])


@pytest.mark.parametrize("call", [*MEASURES, eh.audit])
def test_one_dominant_weight_is_refused(call):
    y, s, a = _rows()
    weight = np.ones(400)
    weight[3] = 1e5
    message = (
        r"`sample_weight` must leave at least 5 effective rows.*got 1 from 400 rows: one row alone "
        r"has 99.6% of the weight. Hint: look at the largest weights"
    )
    with pytest.raises(ValueError, match=message):
        call(y, s, sensitive_features=a, sample_weight=weight, estimator="logistic")


def _few_weighted(count):
    weight = np.zeros(400)
    weight[np.arange(count) * 90 + np.arange(count) % 2] = 2.0
    return weight


FEW_WEIGHTED = (
    r"`sample_weight` must be positive in at least 5 rows with a known group, got 4 of 400: .* "
    "Hint: a row of weight 0"
)


@pytest.mark.parametrize("call", [*MEASURES, eh.audit])
@pytest.mark.filterwarnings("ignore::evenhand.data.groups.GroupWarning")
@pytest.mark.parametrize("groups", ["two", "an empty third", "unknown", "proxy"])
def test_fewer_than_five_weighted_rows_are_refused(call, groups):
    y, s, _ = _rows()
    weight, kinds = _few_weighted(4), np.arange(400) % 2
    a: object = kinds
    if groups == "an empty third":
        a = np.where(weight > 0, kinds, 2)
    elif groups == "unknown":
        weight[300:350] = 1.0
        a = np.where((np.arange(400) < 300) | (weight == 0), kinds, np.nan)
    elif groups == "proxy":
        a = Proxy(0.2 + 0.6 * kinds, [0, 1])
    with pytest.raises(ValueError, match=FEW_WEIGHTED):
        call(y, s, sensitive_features=a, sample_weight=weight, estimator="logistic")


def test_five_weighted_rows_count_as_five():
    y, s, _ = _rows()
    a, weight = np.arange(400) % 2, _few_weighted(5)
    rows = np.flatnonzero(weight)
    left = eh.audit(y, s, sensitive_features=a, sample_weight=weight, estimator="logistic")
    alone = eh.audit(y[rows], s[rows], sensitive_features=a[rows], estimator="logistic")
    assert left.n_rows == 5
    assert left.separation.value == pytest.approx(alone.separation.value, abs=1e-12)


def test_tests_of_exact_fairness_refuse_fewer_than_five_weighted_rows():
    y, s, _ = _rows()
    a = np.arange(400) % 2
    groups = resolve_groups(a, n_rows=400, sample_weight=_few_weighted(4), warn=False)
    with pytest.raises(ValueError, match=FEW_WEIGHTED):
        exact_fairness_p_value("independence", {"s": s, "y": y}, groups)


def test_a_path_refuses_fewer_than_five_weighted_rows():
    y, s, _ = _rows()
    options = {"sensitive_features": np.arange(400) % 2, "sample_weight": _few_weighted(4)}
    with pytest.raises(ValueError, match=FEW_WEIGHTED):
        eh.fairness_path(eh.FairRidge(), s[:, None], y, n_points=3, **options)


@pairwise(measure=MEASURES, estimator=ESTIMATORS, heavy=[1e5, 100.0, 30.0])
def test_values_stay_bounded_whatever_the_weights(measure, estimator, heavy, monkeypatch):
    monkeypatch.setattr(effective, "LEAST", 0.0)
    y, s, a = _rows()
    weight = np.ones(400)
    weight[3] = heavy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EffectiveSizeWarning)
        value = measure(y, s, sensitive_features=a, sample_weight=weight, estimator=estimator)
    assert -0.1 - 1e-12 <= value <= 1.0


@pytest.mark.parametrize("estimator", ["logistic", "fourier", "knn"])
def test_log_normal_weights_do_not_invent_information(estimator):
    """Weights that have nothing to do with anything; about 60 effective rows of 2,000."""
    values = []
    for seed in range(4 if estimator == "fourier" else 8):
        rng = np.random.default_rng(seed)
        a, s, y = rng.integers(0, 2, 2000), rng.normal(size=2000), rng.normal(size=2000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EffectiveSizeWarning)
            values.append(
                eh.separation(
                    y, s, sensitive_features=a, estimator=estimator,
                    sample_weight=np.exp(2 * rng.normal(size=2000)),
                )
            )  # fmt: skip
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values)) < 3 * error + 0.01
    assert abs(np.mean(values)) < 0.05


def test_few_effective_rows_are_warned_of():
    y, s, a = _rows()
    weight = np.ones(400)
    weight[:4] = 100.0
    with pytest.warns(EffectiveSizeWarning, match=r"400 rows count for 15.7 rows of equal weight"):
        eh.independence(y, s, sensitive_features=a, sample_weight=weight, estimator="logistic")
    assert issubclass(EffectiveSizeWarning, GroupWarning)


def test_few_clusters_are_warned_of_and_fewer_refused():
    y, s, a = _rows()
    options = {"sensitive_features": a, "estimator": "logistic"}
    with pytest.warns(EffectiveSizeWarning, match=r"400 rows count for 40 clusters of equal size"):
        eh.separation(y, s, cluster=np.arange(400) % 40, **options)
    message = r"`cluster` must hold at least 5 clusters of similar size, got 4 that count for 4:"
    with pytest.raises(ValueError, match=message):
        eh.separation(y, s, cluster=np.arange(400) % 4, **options)
    uneven = np.minimum(np.arange(400), 20)  # 20 rows of their own, and one cluster of 380
    with pytest.raises(ValueError, match=r"got 21 that count for 1\.1: .* Hint: use smaller"):
        eh.separation(y, s, cluster=uneven, **options)


def test_a_group_of_few_clusters_is_warned_of():
    groups = resolve_groups(
        np.arange(4000) // 20 < 6, n_rows=4000, cluster=np.arange(4000) // 20, warn=False
    )
    with pytest.warns(
        EffectiveSizeWarning, match=r"fewer than 10 effective clusters in 'True' \(6"
    ):
        check_effective_size(groups)


def test_plain_rows_and_mild_weights_pass_in_silence():
    check_effective_size(resolve_groups([0, 1, 0, 1], n_rows=4))
    check_effective_size(resolve_groups([0, 1, 0, 1], n_rows=4, sample_weight=[1, 2, 1, 1]))
    rows = np.arange(6000)
    check_effective_size(resolve_groups(rows % 2, n_rows=6000, cluster=rows // 20))


def test_values_of_one_group_each_are_warned_of():
    rng = np.random.default_rng(0)
    place = rng.permutation(np.repeat(np.arange(100), 20))  # the order of the table says nothing
    risk, a = rng.normal(size=100)[place], rng.integers(0, 2, 100)[place]
    premium = risk + rng.normal(size=2000)
    message = r"The target has 100 values in 2,000 rows, .* Hint: if rows of a value belong"
    with pytest.warns(SharedValuesWarning, match=message):
        eh.audit(risk, premium, sensitive_features=a)
    # Nothing is said where clusters are given, nor where values are shared by both groups.
    eh.audit(risk, premium, sensitive_features=a, cluster=place)
    eh.audit(np.round(premium), premium, sensitive_features=a)


@pytest.mark.parametrize(
    ("people", "rows", "noise"),
    [(500, 6, 1e-4), (110, 3, 1e-4), (500, 2, 1e-4), (100, 30, 1e-4), (500, 6, 1e-2),
     (15_000, 8, 1e-6)],
)  # fmt: skip
def test_scores_that_hardly_move_within_a_person_are_warned_of(people, rows, noise):
    rng = np.random.default_rng(0)
    person = rng.permutation(np.repeat(np.arange(people), rows))
    a = rng.integers(0, 2, people)[person]
    s = rng.normal(size=people)[person] + noise * rng.normal(size=len(person))
    y = s + rng.normal(size=len(s))
    with pytest.warns(SharedValuesWarning, match="one a place or two higher by the score"):
        eh.independence(y, s, sensitive_features=a, estimator="logistic")
    eh.independence(y, s, sensitive_features=a, cluster=person, estimator="logistic")


@pytest.mark.parametrize("noise", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("waves", [False, True])
def test_people_in_the_order_of_the_table_are_warned_of(waves, noise):
    rng = np.random.default_rng(0)
    person = np.tile(np.arange(500), 6) if waves else np.repeat(np.arange(500), 6)
    a, level = rng.integers(0, 3, 500)[person], rng.normal(size=500)[person]
    s = level + noise * rng.normal(size=3000)
    apart = 500 if waves else 1
    message = rf"of the same group as the one {apart} further down the table, .* cluster"
    with pytest.warns(SharedValuesWarning, match=message):
        eh.independence(s, s, sensitive_features=a, estimator="logistic")
    eh.independence(s, s, sensitive_features=a, estimator="logistic", cluster=person)


@pytest.mark.parametrize("n_groups", [2, 3, 10])
@pytest.mark.parametrize("skewed", [False, True])
def test_sorted_tables_hold_no_people(n_groups, skewed):
    rng = np.random.default_rng(2)
    a = rng.choice(n_groups, 3000, p=rng.dirichlet(np.full(n_groups, 3.0)))
    y = rng.normal(size=3000)
    s = 0.7 * y + rng.normal(size=3000) + 0.3 * a
    s = np.exp(s) if skewed else s
    for order in (np.argsort(s), np.argsort(a), np.lexsort((y, a)), np.lexsort((s, a)),
                  np.argsort(y), np.lexsort((np.round(y), a))):  # fmt: skip
        eh.independence(y, s[order], sensitive_features=a[order], estimator="logistic")


@pytest.mark.parametrize("shift", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("n_groups", [2, 5])
def test_groups_that_follow_the_score_smoothly_are_no_runs(n_groups, shift):
    rng = np.random.default_rng(1)
    for n in (200, 700, 3000, 150_000):
        a = rng.integers(0, n_groups, n)
        s = shift * a + rng.standard_t(3, n)
        eh.independence(None, s, sensitive_features=a, estimator="logistic")


def test_a_group_of_one_cluster_is_named_beside_few_clusters():
    cluster = np.arange(600) // 20
    groups = resolve_groups(cluster == 3, n_rows=600, cluster=cluster, warn=False)
    with (
        pytest.warns(EffectiveSizeWarning, match="600 rows count for 30 clusters"),
        pytest.warns(
            EffectiveSizeWarning, match=r"fewer than 3 effective clusters in 'True' \(1\)"
        ),
    ):
        check_effective_size(groups)


# Sizes, shares and runs at the very numbers that decide.


@pytest.mark.parametrize(("heavy", "weightless"), [(2, 2), (10, 11)])
def test_a_group_at_the_limit_is_not_named(heavy, weightless):
    """Half of its rows, and ten of them."""
    own = np.repeat([1.0, 0.0], [heavy, weightless])
    a = np.repeat([0, 1], [200, len(own)])
    weight = np.r_[1.0 + weightless, np.ones(199), own]  # 1 on average
    groups = resolve_groups(a, n_rows=len(a), sample_weight=weight)
    assert group_sizes(groups)[1] == heavy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_effective_size(groups)
    weight[200] = 0.5
    with pytest.warns(EffectiveSizeWarning, match="effective rows in '1'"):
        check_effective_size(resolve_groups(a, n_rows=len(a), sample_weight=weight))


def test_many_values_that_repeat_do():
    rng = np.random.default_rng(0)
    assert effective._hardly_repeats(rng.random(100_000))
    assert not effective._hardly_repeats(np.repeat(rng.random(50_000), 2))
    assert not effective._hardly_repeats(rng.random(99_999))


def told(values, a, left, **others):
    groups = resolve_groups(a, n_rows=len(a))
    limit = {"s": left * groups.entropy}
    return list(effective.find_shared_values({"s": values, **others}, limit, groups))


def test_values_that_tell_the_group_at_the_limits_of_what_that_is():
    values = np.repeat(np.arange(20.0), 10)
    a = np.arange(200) // 10 % 2
    assert "gives the group away" in " ".join(told(values, a, 0.1))
    assert not told(values, a, 0.11)
    # Two of 200 rows are of the other group: not nearly all.
    a[[0, 10]] = 1 - a[[0, 10]]
    assert not told(values, a, 0.05)
    a[10] = 1 - a[10]
    assert told(values, a, 0.05)


def test_rows_that_share_a_score_and_differ_in_the_target_are_one_unit():
    values = np.repeat(np.arange(20.0), 10)
    a = np.arange(200) // 10 % 2
    y = np.tile(np.repeat([0.0, 1.0], 5), 20)
    (sentence,) = told(values, a, np.inf, y=y)
    assert "as those of one person are" in sentence
    assert not told(values, a, np.inf, y=values)


def test_copies_under_labels_that_were_split_are_of_one_group():
    rng = np.random.default_rng(0)
    values, two = np.repeat(rng.normal(size=400), 10), np.repeat(np.arange(400) % 2, 10)
    a = np.where(two == 1, 0, 1 + rng.integers(0, 32, 4000))
    assert "as those of one person are" in " ".join(told(values, a, np.inf))
    # Values that groups share at random are values.
    assert not told(values, rng.permutation(a), np.inf)


def test_runs_are_looked_for_in_two_hundred_rows():
    rng = np.random.default_rng(1)
    person = np.arange(204) // 6
    values = rng.permutation(34)[person] + 1e-3 * rng.random(204)
    a = rng.permutation(34)[person] % 2
    (sentence,) = told(values, a, np.inf)
    assert "about 6 places higher" in sentence


def test_independent_rows_do_not_depend_on_units():
    rng = np.random.default_rng(0)
    cluster = np.arange(600) // 5
    groups = resolve_groups(rng.permutation(120)[cluster] % 2, n_rows=600, cluster=cluster)
    s = rng.normal(size=120)[cluster] + rng.normal(size=600)
    rows = [
        effective.independent_rows(INDEPENDENCE, {"s": unit * s + unit}, groups)
        for unit in (1.0, 1e6, 1e-6)
    ]
    np.testing.assert_allclose(rows, rows[0], rtol=1e-6)
    assert rows[0] < 600
