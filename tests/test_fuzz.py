"""A short run of the fuzzing study, and the defects that long runs of it found."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import evenhand as eh
from evenhand.data.weights import cluster_groups
from studies.fuzz import TARGETS, run_case

# As many as take a second or so.
CASES = {"arguments": 100, "audits": 20, "invariances": 4, "cells": 40, "models": 15, "tables": 30,
         "model files": 200, "cell files": 100, "tolerances": 300, "values": 300,
         "commands": 6}  # fmt: skip
Y, A = np.arange(40) % 7 + 0.25, np.arange(40) % 2


@pytest.mark.parametrize("target", TARGETS)
def test_a_result_that_can_be_true_or_an_error_that_explains_itself(target):
    wrong = {n: said for n in range(CASES[target])
             if (said := run_case(target, n)) not in ("result", "refused")}  # fmt: skip
    assert not wrong


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: eh.independence(None, [[1.0], [1.0, 2.0]], sensitive_features=[0, 1]),
         "`y_pred` must hold one value per row, got list"),
        (lambda: eh.independence(None, Y, sensitive_features=A, frequency=map),
         "`frequency` must hold one value per row, got type"),
        (lambda: eh.audit(Y, Y, sensitive_features={"a": A, "b": A[1:]}, frequency=A + 1),
         r"`sensitive_features` must hold columns of one length, got \[39, 40\]"),
        (lambda: eh.audit(Y, Y, sensitive_features=A, loss=Y), "`loss` must be None or one of"),
        (lambda: eh.audit(Y, Y, sensitive_features=A, confidence_level=10**400),
         "`confidence_level` must lie between 0 and 1"),
        (lambda: eh.Proxy(np.eye(2), 3), "`classes` of a Proxy must be a list of names, got 3"),
        (lambda: eh.bands(Y, [3.0], labels=3), "`labels` must be texts, got 3"),
        (lambda: eh.rows_needed(1e-320, [0.5, 0.5]), "`effect` must be a normalized information"),
        (lambda: eh.rows_needed(0.01, [10**400, 1]), "`shares` must be numbers"),
        (lambda: eh.Tolerance(independence=10**400), "`independence` must be one number above 0"),
        (lambda: eh.FairRidge().fit([1.0, [2.0, 3.0]], [0, 1], sensitive_features=[0, 1]),
         "`X` must hold one value per row, got list"),
        (lambda: eh.FairRidge().fit([[10**400], [1]], [0, 1], sensitive_features=[0, 1]),
         "`X` must hold numbers that floats can"),
    ],
)  # fmt: skip
def test_misuse_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("reference", [np.array([1.0, 2.0]), pd.NA, [0, 1]])
def test_a_reference_that_is_no_label_is_named(reference):
    audit = eh.audit(Y, Y, sensitive_features=A, estimator="lspc")
    with pytest.raises(ValueError, match="`reference` must be 'largest', 'best' or one of"):
        audit.impact(reference=reference)


@pytest.mark.parametrize("argument", ["estimator", "period"])
@pytest.mark.parametrize("value", [np.array([1.0, 2.0]), pd.NA])
def test_an_option_of_a_monitor_that_cannot_be_compared_is_named(argument, value):
    days = pd.date_range("2024-01-01", periods=len(Y))
    table = pd.DataFrame({"day": days, "y": Y, "s": Y, "a": A})
    roles = {"time": "day", "y_true": "y", "y_pred": "s", "sensitive_features": "a"}
    with pytest.raises(ValueError, match=f"`{argument}` must be"):
        eh.monitor(table, **roles, **{argument: value})


def test_scores_without_a_variance_have_an_impact_and_no_controls():
    """Their squares are beyond all floats."""
    rng = np.random.default_rng(0)
    s = 1e290 * rng.normal(size=40)
    audit = eh.audit(Y, s, sensitive_features=A, estimator="lspc")
    with np.errstate(all="raise"):
        numbers = audit.impact().to_dict()
    json.dumps(numbers, allow_nan=False)
    with pytest.raises(ValueError, match="`y_pred` must be small enough to square"):
        eh.audit(Y, s, sensitive_features=A, controls=rng.normal(size=40), estimator="lspc")


@pytest.mark.parametrize("model", [eh.FairPostprocessor(Ridge(), cv=2), eh.FairGLM("normal")])
def test_targets_whose_squares_are_beyond_all_floats_are_refused(model):
    with pytest.raises(ValueError, match="`y` must be small enough to square, got values up to 1"):
        model.fit(Y[:, None], 1e252 * np.sign(Y - 3), sensitive_features=A)


def test_infinities_of_both_signs_are_no_probabilities():
    with np.errstate(all="raise"), pytest.raises(ValueError, match="Proxy"):
        eh.Proxy([[np.inf, -np.inf], [0.5, 0.5]])


def test_units_whose_squares_are_beyond_all_floats_change_nothing():
    rng = np.random.default_rng(0)
    y, s = rng.normal(size=40), rng.normal(size=40)
    audits = [
        eh.audit(unit * y, s, sensitive_features=A, exposure=unit * (1 + A), estimator="lspc")
        for unit in (1.0, 1e-264)
    ]
    assert audits[0].r2 == pytest.approx(audits[1].r2)
    found = eh.audit(y, 1e111 * s, sensitive_features=A, controls=rng.normal(size=(40, 2)),
                     estimator="lspc")  # fmt: skip
    assert str(found)


def test_a_group_whose_share_is_next_to_nothing_has_a_measure():
    """The loss of its rows is bounded by log(n / share), and the ratio was beyond all floats."""
    p = np.column_stack([np.full(40, 1e-320), A, 1.0 - A])
    with np.errstate(over="raise"):
        value = eh.independence(None, Y, sensitive_features=eh.Proxy(p), estimator="lspc")
    assert np.isfinite(value)


def test_strengths_may_be_fractions():
    fits = [
        eh.FairRidge(alpha=alpha, group_features="posterior")
        .fit(Y[:, None], Y, sensitive_features=A).predict(Y[:, None])
        for alpha in (Fraction(1, 3), 1 / 3)
    ]  # fmt: skip
    np.testing.assert_array_equal(*fits)


def test_a_name_of_a_file_that_is_too_long_is_no_file():
    with pytest.raises(ValueError, match="There is no file '∅∅∅"):
        eh.FairRidge().fit("∅" * 300, "y", sensitive_features="a")


def test_a_tolerance_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "limits.json"
    path.write_bytes(b'{"format": "\xff"}')
    with pytest.raises(ValueError, match=r"limits\.json must be JSON, which it is not"):
        eh.Tolerance.from_file(path)


def test_controls_without_a_basis_have_sums_by_cluster():
    """Rare categories may leave no column to balance; an audit with clusters then crashed."""
    assert cluster_groups(np.array([0, 0, 1]), np.empty((3, 0))).shape == (2, 0)


def test_ties_at_the_lowest_score_leave_an_empty_bin_out_of_the_bounds():
    """Its share was 0/0, which made the least information of a Proxy not a number."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 400)
    y = rng.normal(size=400)
    s = np.maximum(y, -0.5)
    audit = eh.audit(y, s, sensitive_features=eh.Proxy(np.column_stack([p, 1 - p])))
    assert str(audit)
