"""The fairness term of criteria beyond the three: other names, and functions of the score."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh

ERROR = eh.Variable(
    "r", "error", of=("s", "y"), value=lambda s, y: y - s, slope=lambda s, y: -np.ones_like(s)
)
CUBED = eh.Variable(
    "q", of=("y", "s"), value=lambda y, s: (y - s) ** 3, slope=lambda y, s: -3 * (y - s) ** 2
)
SQUARE = eh.Variable("z", of=("y",), value=np.square)
CRITERIA = (
    eh.Criterion("errors", (), ("r",), variables=(ERROR,)),
    eh.Criterion("errors_given", ("y",), ("y", "r"), variables=(ERROR,)),
    eh.Criterion("given_errors", ("r",), ("r", "y"), variables=(ERROR,)),
    eh.Criterion("cubes", (), ("q",), variables=(CUBED,)),
    eh.Criterion("squares", ("z",), ("s", "z"), variables=(SQUARE,)),
)


def rows(weighted: bool = False):
    rng = np.random.default_rng(3)
    a = rng.integers(0, 3, 90)
    y = rng.normal(size=90) + 0.5 * a
    s = 0.6 * y + 0.4 * a + 0.5 * rng.normal(size=90)
    weight = rng.uniform(0.5, 2.0, 90) if weighted else None
    return y, s, {"sensitive_features": a, "sample_weight": weight}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", [{}, {"score_map": "raw"}, {"classifier": "lspc"}], ids=str)
@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda c: c.name)
def test_gradients(criterion, options, weighted):
    y, s, fairness = rows(weighted)
    bound = eh.FairnessRegularizer(criterion, **options).bind(y, **fairness)
    _, gradient = bound.value_and_grad(s)
    step = 1e-5
    for i in range(0, 90, 9):
        ends = []
        for sign in (1, -1):
            moved = s.copy()
            moved[i] += sign * step
            ends.append(bound.value(moved))
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(gradient[i], slope, rtol=2e-4, atol=2e-7)


@pytest.mark.parametrize("classifier", ["logistic", "lspc"])
def test_the_score_under_another_name_is_the_score(classifier):
    """I(y − s; A) is independence of the scores y − s."""
    y, s, fairness = rows()
    other = eh.FairnessRegularizer(CRITERIA[0], classifier).bind(y, **fairness)
    plain = eh.FairnessRegularizer("independence", classifier).bind(None, **fairness)
    value, gradient = other.value_and_grad(s)
    same, slope = plain.value_and_grad(y - s)
    assert value == same
    np.testing.assert_array_equal(gradient, -slope)
    *_, factor = other.value_grad_curvature(s)
    *_, whole = plain.value_grad_curvature(y - s)
    np.testing.assert_array_equal(factor, -whole)
    assert plain.scale_free
    assert not other.scale_free


def test_the_target_under_another_name_is_the_target():
    y, s, fairness = rows()
    named = eh.Criterion("named", ("c",), ("c", "s"))
    other = eh.FairnessRegularizer(named).bind(None, given=y, **fairness)
    plain = eh.FairnessRegularizer("separation").bind(y, **fairness)
    assert other.value(s) == plain.value(s)


def test_some_rows_of_a_term():
    y, s, fairness = rows()
    part = np.arange(10, 80)
    whole = eh.FairnessRegularizer(CRITERIA[1], basis="quadratic")
    bound = whole.bind(y, **fairness).take(part)
    own = eh.FairnessRegularizer(
        CRITERIA[1], basis="quadratic", kappa=1e-3 * len(part) / len(s)
    ).bind(y[part], sensitive_features=fairness["sensitive_features"][part])
    np.testing.assert_allclose(bound.value(s[part]), own.value(s[part]), rtol=1e-9)


def test_errors_that_are_constant_tell_nothing():
    y, _, fairness = rows()
    value, gradient = eh.FairnessRegularizer(CRITERIA[0]).bind(y, **fairness).value_and_grad(y + 1)
    assert value == 0.0
    assert not gradient.any()


def test_messages():
    with pytest.raises(ValueError, match="about one variable that moves with the score"):
        eh.FairnessRegularizer(eh.Criterion("targets", (), ("y",)))
    with pytest.raises(ValueError, match="at most one other"):
        eh.FairnessRegularizer(eh.Criterion("three", ("y", "c"), ("s", "y", "c")))
    still = eh.Variable("r", of=("s",), value=np.abs)
    with pytest.raises(ValueError, match=r"Hint: Variable\('r', \.\.\., slope=\.\.\.\)"):
        eh.FairnessRegularizer(eh.Criterion("still", (), ("r",), variables=(still,)))
    y, _, fairness = rows()
    named = eh.Criterion("named", ("c",), ("c", "s"))
    with pytest.raises(ValueError, match="`given` must hold the column 'c'"):
        eh.FairnessRegularizer(named).bind(y, **fairness)


def test_a_term_takes_one_column_beside_the_score():
    both = eh.Variable(
        "d", of=("s", "y", "z"), value=lambda s, y, z: s - y - z,
        slope=lambda s, y, z: np.ones_like(s),
    )  # fmt: skip
    with pytest.raises(ValueError, match="at most one other to be trained for, got 'two'"):
        eh.FairnessRegularizer(eh.Criterion("two", (), ("d",), variables=(both,)))
