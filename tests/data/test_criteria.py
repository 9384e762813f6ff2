"""Criteria as data: made, registered, and measured from whatever variables they name."""

from __future__ import annotations

import numpy as np
import pytest
from exact import exact_fairness_p_value

from evenhand.data.criteria import (
    CRITERIA,
    VARIABLES,
    Criterion,
    Variable,
    complete,
    get_criterion,
    measurable,
    register_criterion,
    unregister_criterion,
    word_for,
)
from evenhand.data.groups import resolve_groups
from evenhand.measures.entropies import estimate_entropies, get_estimator
from evenhand.measures.exact_tests import exact_fairness_p_values

ERROR = Variable("r", "error", of=("s", "y"), value=lambda s, y: y - s)
ERRORS = Criterion("errors", (), ("r",), variables=(ERROR,))
RENAMED = Criterion("renamed", given=("c",), joint=("c", "s"))


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 1500)
    c = rng.normal(size=1500) + a
    s = c + 0.7 * a + rng.normal(size=1500)
    return a, c, s, resolve_groups(a, n_rows=1500)


@pytest.fixture
def errors():
    yield register_criterion(ERRORS)
    unregister_criterion("errors")


def test_words_follow_from_the_variables():
    assert RENAMED.joint == ("s", "c")
    assert RENAMED.tested == ("s",)
    assert RENAMED.needs == ("c",)
    assert RENAMED.statement == "S ⟂ A | C"
    assert (
        RENAMED.question
        == "Among people with the same c, does the score look the same in every group?"
    )
    assert "same c, knowing the score removes {percent}" in RENAMED.meaning
    assert ERRORS.statement == "R ⟂ A"
    assert ERRORS.needs == ("y",)
    assert ERRORS.moves(("r",))
    assert not RENAMED.moves(("c",))


def test_the_three_say_what_their_conditions_say():
    for criterion in CRITERIA.values():
        bare = Criterion(criterion.name, criterion.given, criterion.joint)
        assert bare.statement == criterion.statement


@pytest.mark.parametrize("estimator", ["auto", "logistic", "lspc", "knn", "fourier"])
def test_a_variable_is_measured_by_any_name(rows, estimator):
    """The target under another name gives the numbers of the target."""
    _, c, s, groups = rows
    own = estimate_entropies([RENAMED], {"s": s, "c": c}, groups, get_estimator(estimator))
    separation = CRITERIA["separation"]
    same = estimate_entropies([separation], {"s": s, "y": c}, groups, get_estimator(estimator))
    # Estimators may look at their variables in the order of the names.
    np.testing.assert_allclose(own.nats(RENAMED), same.nats(separation), rtol=0.05)


def test_a_variable_is_tested_by_any_name(rows):
    _, c, s, groups = rows
    found = exact_fairness_p_value(RENAMED, {"s": s, "c": c}, groups)
    assert found.p_value < 1e-6
    assert "slices of c" in found.method
    rng = np.random.default_rng(1)
    fair = exact_fairness_p_value(RENAMED, {"s": c + rng.normal(size=len(c)), "c": c}, groups)
    assert fair.p_value > 0.01


def test_a_computed_variable_is_the_column_itself(rows):
    _, c, s, groups = rows
    columns = {"s": s, "y": c}
    np.testing.assert_array_equal(complete([ERRORS], columns)["r"], c - s)
    found = estimate_entropies([ERRORS], columns, groups, get_estimator("logistic"))
    independence = CRITERIA["independence"]
    same = estimate_entropies([independence], {"s": c - s}, groups, get_estimator("logistic"))
    assert found.nats(ERRORS) == same.nats(independence)
    p = exact_fairness_p_value(ERRORS, columns, groups).p_value
    assert p == exact_fairness_p_value("independence", {"s": c - s}, groups).p_value


def test_several_pairs_of_variables_at_once_give_what_each_gives(rows):
    _, c, s, groups = rows
    y = s + np.random.default_rng(2).normal(size=len(s))
    columns = {"s": s, "y": y, "c": c}
    both = [CRITERIA["separation"], RENAMED]
    found = estimate_entropies(both, columns, groups, get_estimator("auto"))
    for criterion in both:
        own = estimate_entropies([criterion], columns, groups, get_estimator("auto"))
        assert own.nats(criterion) == found.nats(criterion)


def test_tests_of_a_criterion_do_not_depend_on_the_others(rows, errors):
    _, c, s, groups = rows
    few = groups.take(np.arange(200))
    columns = {"s": s[:200], "y": c[:200]}
    all_at_once = exact_fairness_p_values(CRITERIA, columns, few)
    for name in CRITERIA:
        assert exact_fairness_p_value(name, columns, few) == all_at_once[name]
    unregister_criterion("errors")
    before = exact_fairness_p_values(CRITERIA, columns, few)
    assert all(all_at_once[name] == found for name, found in before.items())
    register_criterion(errors)


def test_two_variables_given_are_not_tested(rows):
    _, c, s, groups = rows
    criterion = Criterion("two", ("y", "c"), ("s", "y", "c"))
    found = exact_fairness_p_value(criterion, {"s": s, "y": c, "c": c + 1}, groups)
    assert np.isnan(found.p_value)
    assert "not tested" in found.method


@pytest.mark.parametrize("estimator", ["auto", "logistic", "knn"])
def test_three_variables_are_refused_where_there_is_no_way(rows, estimator):
    _, c, s, groups = rows
    criterion = Criterion("two", ("y", "c"), ("s", "y", "c"))
    with pytest.raises(ValueError, match="must be 'fourier' or one of your own"):
        estimate_entropies(
            [criterion], {"s": s, "y": c, "c": c + 1}, groups, get_estimator(estimator)
        )


def test_three_variables_by_fourier(rows):
    _, c, s, groups = rows
    y = np.random.default_rng(3).normal(size=len(s))
    criterion = Criterion("two", ("y", "c"), ("s", "y", "c"))
    columns = {"s": s, "y": y, "c": c}
    found = estimate_entropies([criterion], columns, groups, get_estimator("fourier"))
    # y is noise, so that little changes without it.
    plain = estimate_entropies([RENAMED], columns, groups, get_estimator("fourier"))
    assert found.nats(criterion) == pytest.approx(plain.nats(RENAMED), abs=0.02)


def test_registered_criteria_are_known_by_name(errors):
    assert get_criterion("errors") is ERRORS
    assert word_for("r") == "error"
    assert [c.name for c in measurable(["y"])][-1] == "errors"
    assert "errors" not in [c.name for c in measurable([])]
    assert register_criterion(ERRORS) is ERRORS


def test_what_was_registered_can_be_forgotten():
    register_criterion(ERRORS)
    unregister_criterion("errors")
    assert "errors" not in CRITERIA
    assert "r" not in VARIABLES
    with pytest.raises(ValueError, match="must be one of independence"):
        unregister_criterion("errors")


def test_messages():
    with pytest.raises(TypeError, match="must be a Criterion"):
        register_criterion("independence")
    with pytest.raises(ValueError, match="must have a name of its own"):
        register_criterion(Criterion("separation", (), ("s",)))
    other = Criterion("others", (), ("y",), variables=(Variable("y", "outcome"),))
    with pytest.raises(ValueError, match="variables of its own"):
        register_criterion(other)
    with pytest.raises(ValueError, match="must be one word"):
        Criterion("two words", (), ("s",))
    with pytest.raises(ValueError, match="with a comma"):
        Criterion("comma", (), "s")
    with pytest.raises(ValueError, match="must hold all of `given` and more"):
        Criterion("less", ("y",), ("s",))
    with pytest.raises(ValueError, match="must be named in `joint`"):
        Criterion("besides", (), ("s",), variables=(ERROR,))
    with pytest.raises(ValueError, match="together with `of`"):
        Variable("r", of=("s",))
