"""Paths of models that are independent of the group given controls."""

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.data.encoding import read_controls
from evenhand.data.groups import resolve_groups
from evenhand.measures.balancing import summarize_controls


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    n = 1500
    young = rng.random(n) < 0.4
    miles = rng.gamma(4.0, 5.0, n) + 8.0 * young
    town = rng.random(n) < 0.3 + 0.3 * young
    x = rng.normal(size=n) + young
    y = 5 * miles + 40 * x + 20 * rng.normal(size=n)
    controls = pd.DataFrame({"miles": miles, "town": np.where(town, "yes", "no")})
    return np.column_stack([miles, town, x]), y, np.where(young, "young", "old"), controls


WEIGHTS = {"fairness_weights": [0, 4], "measure_with": "logistic", "cv": 3, "random_state": 0}


@pytest.mark.parametrize(
    "model", [eh.FairRidge("conditional"), eh.FairGLM("normal", criterion="conditional")]
)
def test_the_criterion_is_measured_on_held_out_scores(model, data, tmp_path):
    X, y, a, controls = data
    path = eh.fairness_path(model, X, y, sensitive_features=a, controls=controls, **WEIGHTS)
    assert path.criterion == "conditional"
    assert path.criteria == ("independence", "separation", "sufficiency", "conditional")
    plain, fair = (p.measure("conditional") for p in path.points)
    assert plain.interval[0] > 0.002
    assert fair.value < 0.5 * plain.value
    # What stands for the controls goes with the score still.
    assert path.points[1].independence.value > 0.5 * path.points[0].independence.value
    summary, _ = summarize_controls(
        read_controls(controls, len(y)), resolve_groups(a, n_rows=len(y))
    )
    again = eh.separation(
        summary, path.points[1].scores, sensitive_features=a, estimator="logistic"
    )
    assert fair.value == pytest.approx(again, abs=1e-12)
    chosen = path.select(max_unfairness=plain.value / 2)
    assert chosen.controls_summary_ == "the log-odds of the group given the controls"
    page = path.to_html(tmp_path / "path.html")
    assert "conditional" in page.read_text(encoding="utf-8")


def test_frequency_and_missing_groups(data):
    X, y, a, controls = data
    a = a.astype(object)
    a[:50] = None
    frequency = np.ones(len(y), dtype=int)
    frequency[::100] = 2
    path = eh.fairness_path(
        eh.FairRidge("conditional"), X, y, sensitive_features=a, controls=controls,
        frequency=frequency, **WEIGHTS,
    )  # fmt: skip
    assert path.n_rows == len(y) + 15
    plain, fair = (p.measure("conditional").value for p in path.points)
    assert fair < 0.5 * plain


def test_measured_without_training_for_it(data):
    X, y, a, controls = data
    path = eh.fairness_path(
        eh.FairRidge(), X, y, sensitive_features=a, controls=controls, **WEIGHTS
    )
    assert path.criterion == "independence"
    assert path.points[0].measure("conditional").interval[0] > 0.002


def test_controls_have_to_be_there(data):
    X, y, a, controls = data
    for model, criterion in [(eh.FairRidge("conditional"), None), (eh.FairRidge(), "conditional")]:
        with pytest.raises(ValueError, match=r"`controls` must be given with the criterion"):
            eh.fairness_path(model, X, y, sensitive_features=a, criterion=criterion)
    with pytest.raises(ValueError, match="one entry per row: got 10 for 1500"):
        eh.fairness_path(eh.FairRidge(), X, y, sensitive_features=a, controls=controls[:10])


def test_a_page_tests_separation_given_the_risk(data):
    """What is measured given a risk is tested given it, too."""
    X, y, a, controls = data
    risk = controls["miles"].to_numpy()
    path = eh.fairness_path(
        eh.FairGLM("normal", criterion="separation"), X, y, sensitive_features=a, given=risk,
        **WEIGHTS,
    )  # fmt: skip
    path.select(max_unfairness=0.99)
    from evenhand.auditing.figures import audits_of

    at = path.points.index(path.selected)
    found = audits_of(path)[at].measures["separation"].p_value
    exact = eh.audit(risk, path.selected.scores, sensitive_features=a, estimator="logistic")
    assert found == pytest.approx(exact.measures["separation"].p_value)
