"""The three measures: against the oracle, invariances, and what they refuse."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from grids import pairwise

import evenhand as eh
from distributions import random_scenario
from evenhand import LSPC, Logistic
from evenhand._core.validation import check_column
from evenhand.data.criteria import CRITERIA, Criterion, get_criterion
from evenhand.data.groups import resolve_groups
from evenhand.estimators.estimation import EntropyEstimator, RowLosses
from evenhand.measures.entropies import Entropies, estimate_entropies, get_estimator

MEASURES = {"independence": eh.independence, "separation": eh.separation,
            "sufficiency": eh.sufficiency}  # fmt: skip


@pytest.fixture(scope="module")
def errors():
    """Error of each normalized measure in 30 scenarios: the oracle's and the logistic one's."""
    out = {name: {"oracle": [], "logistic": []} for name in CRITERIA}
    for seed in range(30):
        scenario = random_scenario("bivariate_normal", seed)
        y, s, a = scenario.sample(2000, 1000 + seed)
        groups = resolve_groups(a, n_rows=2000)
        for kind, estimator in (("oracle", scenario.oracle()), ("logistic", Logistic())):
            found = estimate_entropies(CRITERIA.values(), {"s": s, "y": y}, groups, estimator)
            for name, criterion in CRITERIA.items():
                error = found.normalized(criterion) - scenario.truth.value(criterion)
                out[name][kind].append(error)
    return out


def rmse(errors):
    return np.sqrt(np.mean(np.square(errors)))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_logistic_is_as_good_as_the_oracle_on_normal_data(criterion, errors):
    found = errors[criterion]
    assert rmse(found["oracle"]) > 0.005
    assert rmse(found["logistic"]) <= 1.1 * rmse(found["oracle"])


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("estimator", ["auto", "logistic", "lspc"])
def test_units_and_direction_do_not_matter(criterion, estimator, case):
    data = case("weights", 3)
    measure = MEASURES[criterion]
    value = measure(data.y, data.s, **data.fairness, estimator=estimator)
    moved = measure(1e-3 * data.y + 4.0, -50.0 * data.s - 1e4, **data.fairness, estimator=estimator)
    assert moved == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("estimator", ["logistic", "lspc"])
def test_names_and_order_of_groups_do_not_matter(criterion, estimator, case):
    data = case("plain", 3)
    a = data.fairness["sensitive_features"]
    measure = MEASURES[criterion]
    value = measure(data.y, data.s, sensitive_features=a, estimator=estimator)
    names = np.array(["z", "a", "m"])[a]
    renamed = measure(data.y, data.s, sensitive_features=names, estimator=estimator)
    assert renamed == pytest.approx(value, rel=1e-9)
    order = np.random.default_rng(0).permutation(len(a))
    shuffled = measure(
        data.y[order], data.s[order], sensitive_features=a[order], estimator=estimator
    )
    assert shuffled == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_groups_of_one_mean_and_different_spread_are_found_unfair(criterion):
    """A score that is three times as wide in one group is missed by every comparison of means."""
    rng = np.random.default_rng(0)
    n = 2000
    a = np.arange(n) % 2
    y = rng.normal(size=n)
    s = rng.normal(size=n) * np.where(a == 1, 3.0, 1.0)
    s -= np.array([s[a == 0].mean(), s[a == 1].mean()])[a]
    value = MEASURES[criterion](y, s, sensitive_features=a)
    # I(S;A) of N(0, 1) and N(0, 9) in equal parts is 0.1865 nats; Y is noise.
    if criterion == "sufficiency":
        assert abs(value) < 0.01
    else:
        assert value == pytest.approx(0.1865 / np.log(2), abs=0.03)


def test_relation_of_the_three(case):
    """I(S;A) + I(Y;A|S) = I(Y;A) + I(S;A|Y), both the information of (S, Y)."""
    data = case("weights", 2, n=400)
    nats = {
        name: measure(data.y, data.s, **data.fairness, normalize=False)
        for name, measure in MEASURES.items()
    }
    of_y = eh.independence(None, data.y, **data.fairness, normalize=False)
    left = nats["independence"] + nats["sufficiency"]
    assert left == pytest.approx(of_y + nats["separation"], rel=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("kind", ["plain", "weights", "proxy", "unknown"])
def test_normalized_value_is_nats_over_the_entropy_given(criterion, kind, case):
    data = case(kind, 3)
    measure, c = MEASURES[criterion], CRITERIA[criterion]
    options = {**data.fairness, "estimator": "logistic"}
    nats = measure(data.y, data.s, **options, normalize=False)
    value = measure(data.y, data.s, **options)
    found = estimate_entropies([c], {"s": data.s, "y": data.y}, data.groups, Logistic())
    assert found.nats(c) == nats
    assert value == pytest.approx(nats / found.mean[c.given], rel=1e-13)
    assert found.mean[()] == data.groups.entropy
    for condition, rows in found.rows.items():
        average = np.average(rows.value, weights=data.groups.weight)
        assert found.mean[condition] == pytest.approx(average, rel=1e-13)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_unknown_rows_are_left_out(criterion, case):
    data = case("unknown", 2)
    known = data.groups.known
    measure = MEASURES[criterion]
    part = {name: v[known] for name, v in data.fairness.items()}
    expected = measure(data.y[known], data.s[known], **part)
    assert measure(data.y, data.s, **data.fairness) == expected


@pytest.mark.parametrize("criterion", CRITERIA)
def test_weights_are_repeated_rows_in_sample(criterion, case):
    """Leave-one-out differs: leaving out a row of weight 2 leaves out both copies."""
    data = case("plain", 2)
    a = data.fairness["sensitive_features"]
    w = np.random.default_rng(0).integers(1, 4, len(a))
    measure, estimator = MEASURES[criterion], Logistic(losses="in-sample", kappa=1e-9)
    weighted = measure(data.y, data.s, sensitive_features=a, sample_weight=w, estimator=estimator)
    repeated = measure(
        np.repeat(data.y, w), np.repeat(data.s, w), sensitive_features=np.repeat(a, w),
        estimator=estimator,
    )  # fmt: skip
    assert weighted == pytest.approx(repeated, rel=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_measures_are_near_the_truth_on_many_rows(criterion):
    scenario = random_scenario("bivariate_normal", 0)
    y, s, a = scenario.sample(40_000, random_state=0)
    value = MEASURES[criterion](y, s, sensitive_features=a)
    assert value == pytest.approx(scenario.truth.value(criterion), abs=0.01)


@pytest.mark.parametrize("estimator", ["logistic", "lspc"])
def test_a_score_that_gives_the_group_away(estimator):
    a = np.arange(400) % 2
    rng = np.random.default_rng(0)
    y, s = rng.normal(size=400), 5.0 * a + rng.normal(size=400) * 0.1
    value = eh.independence(y, s, sensitive_features=a, estimator=estimator)
    assert 0.9 < value <= 1.0
    assert eh.separation(y, s, sensitive_features=a, estimator=estimator) > 0.9
    assert np.isfinite(eh.sufficiency(y, s, sensitive_features=a, estimator=estimator))


class Known:
    """An estimator whose entropies are given."""

    def __init__(self, entropies):
        self.entropies = entropies

    def row_losses(self, variables, conditions, groups):
        out = {}
        for condition in conditions:
            value = np.full(groups.n_known, self.entropies[condition])
            out[condition] = RowLosses(value, value, "known")
        return out


def test_nothing_left_to_tell_is_zero():
    """Sufficiency after a score that determines the group is 0/0."""
    estimator = Known({("s",): 0.0, ("s", "y"): 0.0, ("y",): 0.5})
    a = [0, 1, 0, 1]
    y = s = [1.0, 2.0, 3.0, 4.0]
    assert eh.sufficiency(y, s, sensitive_features=a, estimator=estimator) == 0.0
    assert eh.separation(y, s, sensitive_features=a, estimator=estimator) == 1.0
    assert eh.independence(y, s, sensitive_features=a, estimator=estimator) == 1.0


@pytest.mark.parametrize("estimator", ["logistic", "lspc"])
def test_constant_scores_tell_nothing(estimator, case):
    data = case("plain", 2, n=1000)
    constant = np.full(1000, 3.3)
    in_sample = (Logistic if estimator == "logistic" else LSPC)(losses="in-sample")
    tolerance = 1e-3 if estimator == "lspc" else 1e-9  # the softplus is not the identity
    value = eh.independence(data.y, constant, **data.fairness, estimator=in_sample)
    assert value == pytest.approx(0.0, abs=tolerance)
    value = eh.separation(data.y, constant, **data.fairness, estimator=in_sample)
    assert value == pytest.approx(0.0, abs=1e-9)
    for measure in (eh.independence, eh.separation):
        value = measure(data.y, constant, **data.fairness, estimator=estimator)
        assert value == pytest.approx(0.0, abs=0.002)


def test_independence_needs_no_target(case):
    data = case("plain", 2)
    expected = eh.independence(data.y, data.s, **data.fairness)
    assert eh.independence(None, data.s, **data.fairness) == expected


@pytest.mark.parametrize(
    "container",
    [
        list,
        tuple,
        pd.Series,
        pl.Series,
        np.float32,
        lambda v: v[:, None],
        lambda v: pl.DataFrame({"s": v}),
    ],
)
def test_columns_come_in_many_containers(container, case):
    data = case("plain", 2)
    expected = eh.separation(data.y, data.s, **data.fairness)
    found = eh.separation(container(data.y), container(data.s), **data.fairness)
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["auto", "lspc", "logistic", "fourier", "knn"])
def test_estimators_by_name(name, case):
    assert isinstance(get_estimator(name), EntropyEstimator)
    data = case("plain", 2, n=200)
    assert isinstance(eh.separation(data.y, data.s, **data.fairness, estimator=name), float)


def test_instance_is_used_as_it_is(case):
    data = case("plain", 2)
    linear, quadratic = (
        eh.separation(data.y, data.s, **data.fairness, estimator=LSPC(basis))
        for basis in ("linear", "quadratic")
    )
    assert linear != quadratic
    by_name = eh.separation(data.y, data.s, **data.fairness, estimator="lspc")
    assert by_name == quadratic


@pytest.mark.parametrize("estimator", ["forest", LSPC, None, 3])
def test_unknown_estimator(estimator, case):
    data = case("plain", 2)
    message = r"`estimator` must be one of auto, .* or an instance such as evenhand.LSPC\(\), got"
    with pytest.raises(ValueError, match=message):
        eh.separation(data.y, data.s, **data.fairness, estimator=estimator)


@pytest.mark.parametrize(
    ("y", "s", "a", "message"),
    [
        (None, [1, 2, 3, 4], [0, 1, 0, 1], "`y_true` must be given, got None"),
        ([1, 2, 3, 4], None, [0, 1, 0, 1], "`y_pred` must be given, got None"),
        ([1, 2, 3], [1, 2, 3, 4], [0, 1, 0, 1], "`y_true` must have one entry per row: got 3 for"),
        ([1, 2, 3, 4], [1, 2, 3, 4], [0, 1, 0], "`sensitive_features` must have one entry per"),
        ([1, 2, 3, np.nan], [1, 2, 3, 4], [0, 1, 0, 1], "`y_true` must be finite: 1 of 4 .* NaN"),
        ([1, 2, 3, 4], [1, np.inf, 3, np.inf], [0, 1, 0, 1],
         "`y_pred` must be finite: 2 of 4 rows are infinity, the first at row 1. Hint: drop"),
        (np.ones((4, 2)), [1, 2, 3, 4], [0, 1, 0, 1], r"`y_true` must be 1-D, got shape \(4, 2\)"),
        (["a"] * 4, [1, 2, 3, 4], [0, 1, 0, 1], "`y_true` must be numbers, got values of type"),
        (["a"] * 4, [1, 2, 3, 4], [0, 1, 0, 1], "'a'. Hint: check that it is the right column"),
        (np.array(["2020"] * 4, dtype="M8[s]"), [1, 2, 3, 4], [0, 1, 0, 1], "must be numbers"),
        ([1j] * 4, [1, 2, 3, 4], [0, 1, 0, 1], "`y_true` must be numbers"),
        ([], [], [], "`y_pred` must hold at least one row, got none"),
        ([1, 2, 3, 4], [1, 2, 3, 4], [1, 1, 1, 1], "at least two groups to compare"),
        ([1, 2, 3, 4], [1, 2, 3, 4], None, "`sensitive_features` must be given"),
    ],
)  # fmt: skip
def test_refusals(y, s, a, message):
    with pytest.raises(ValueError, match=message):
        eh.separation(y, s, sensitive_features=a)


@pytest.mark.parametrize(("given", "exhausted"), [(0.3, False), (0.01, False), (0.006, True)])
def test_what_is_conditioned_on_gives_the_group_away(given, exhausted):
    """Of 1,000 rows an entropy is uncertain by log(1000)/1000, 0.0069."""
    groups = resolve_groups(np.arange(1000) % 2, n_rows=1000)
    criterion = CRITERIA["separation"]
    found = Entropies({criterion.given: given, criterion.joint: 0.0}, {}, groups)
    assert found.exhausted(criterion) == exhausted
    assert found.normalized(criterion) == (0.0 if exhausted else 1.0)


def test_a_group_of_few_rows_must_lose_three_quarters_of_its_entropy():
    groups = resolve_groups(np.arange(10_000) < 2, n_rows=10_000)
    criterion = CRITERIA["separation"]
    for share, exhausted in ((0.3, False), (0.2, True)):
        mean = {criterion.given: share * groups.entropy, criterion.joint: 0.0}
        assert mean[criterion.given] < np.log(10_000) / 10_000
        assert Entropies(mean, {}, groups).exhausted(criterion) == exhausted


def test_read_only_columns_are_copied():
    """Frames hand these out, and the kernels would be compiled a second time for them."""
    s = np.arange(4.0)
    assert check_column(s, "s") is s
    s.flags.writeable = False
    found = check_column(s, "s")
    assert found.flags.writeable
    np.testing.assert_array_equal(found, s)


def test_large_finite_values_are_not_taken_for_infinite():
    s = np.array([1e308, 1e308, -1e308, 1e308])
    np.testing.assert_array_equal(check_column(s, "s"), s)


def test_criteria_are_looked_up():
    for name, criterion in CRITERIA.items():
        assert get_criterion(name) is criterion
        assert get_criterion(criterion) is criterion
        assert isinstance(criterion, Criterion)
        assert criterion.needs == (() if name == "independence" else ("y",))
        assert "{percent}" in criterion.meaning
    with pytest.raises(
        ValueError, match=r"`criterion` must be one of independence, .*, got 'odds'"
    ):
        get_criterion("odds")


def test_masked_scores_are_refused():
    s = np.ma.masked_array([1.0, 2.0, 3.0, 4.0], mask=[False, True, False, False])
    with pytest.raises(ValueError, match="`y_pred` must not hold masked values, got 1"):
        eh.independence(None, s, sensitive_features=[0, 1, 0, 1])


@pairwise(
    measure=tuple(MEASURES.values()),
    estimator=["auto", "logistic", "lspc", "knn", "fourier"],
    factor=[1e-300, 1e-170, 1e280],
)
def test_units_do_not_matter(measure, estimator, factor):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 600)
    y = rng.normal(size=600) + 0.8 * a
    s = y + rng.normal(size=600) + 0.5 * a
    one, other = (
        measure(y * f, s * f, sensitive_features=a, estimator=estimator) for f in (1.0, factor)
    )
    assert one == pytest.approx(other, abs=1e-4)


@pairwise(
    measure=tuple(MEASURES.values()), estimator=["auto", "knn", "fourier"], value=[1e4, 1e6, 1e9]
)
def test_one_value_far_out_changes_little(measure, estimator, value):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 1000)
    y = rng.normal(size=1000) + 0.8 * a
    s = y + 0.5 * rng.normal(size=1000) + 0.5 * a
    far = np.where(np.arange(1000) == 7, value, s)
    one, other = (measure(y, v, sensitive_features=a, estimator=estimator) for v in (s, far))
    assert one == pytest.approx(other, abs=0.03)
