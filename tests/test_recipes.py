"""The recipes of docs/architecture.md, from outside the package: each toy goes all the way."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import toys

import evenhand as eh


@pytest.fixture(autouse=True)
def known():
    toys.register()
    yield
    toys.unregister()


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(7)
    a = np.array(["p", "q"])[rng.integers(0, 2, 600)]
    X = rng.normal(size=(600, 3))
    X[:, 0] += a == "q"
    y = X @ [1.0, 1.0, 0.5] + 0.8 * (a == "q") + rng.normal(size=600)
    return X, y, a


def test_criterion_in_an_audit(rows):
    X, y, a = rows
    s = X.sum(axis=1)
    audit = eh.audit(y, s, sensitive_features=a)
    assert audit.measures["reversed"].value == audit.separation.value
    own = eh.audit(None, y - s, sensitive_features=a)
    assert audit.measures["errors"].value == own.independence.value
    assert "Reversed " in str(audit)
    assert "by another name, " in str(audit)
    assert "knowing the error removes" in str(audit)
    assert list(audit.to_frame()["criterion"])[3:] == ["reversed", "errors"]
    assert list(audit.to_dict()["measures"])[3:] == ["reversed", "errors"]
    assert audit.plot() is not None


def test_criterion_in_an_audit_of_crossed_attributes(rows):
    X, y, a = rows
    other = np.array(["u", "v", "w"])[np.arange(len(y)) % 3]
    audit = eh.audit(y, X[:, 0], sensitive_features={"a": a, "b": other})
    assert set(audit.parts("errors")) > {"a", "b"}
    assert "errors" in audit.one_against_rest


def test_criterion_without_what_it_needs(rows):
    X, _, a = rows
    audit = eh.audit(None, X[:, 0], sensitive_features=a)
    assert list(audit.measures) == ["independence"]


def test_criterion_in_a_fit(rows):
    X, y, a = rows
    plain = eh.FairRidge("errors", 0.0).fit(X, y, sensitive_features=a)
    fair = eh.FairRidge("errors", 30.0).fit(X, y, sensitive_features=a)

    def unfairness(model):
        found = eh.audit(y, model.predict(X), sensitive_features=a, estimator="logistic")
        return found.measures["errors"].value

    assert unfairness(fair) < 0.1 * unfairness(plain)
    named = eh.FairRidge("reversed", 3.0).fit(X, y, sensitive_features=a)
    same = eh.FairRidge("separation", 3.0).fit(X, y, sensitive_features=a)
    np.testing.assert_array_equal(named.coef_, same.coef_)


def test_criterion_on_a_frontier_and_in_its_report(rows, tmp_path):
    X, y, a = rows
    path = eh.fairness_path(
        eh.FairRidge("errors"), X, y, sensitive_features=a, fairness_weights=[0.3, 3.0],
        measure_with="logistic", cv=3, random_state=0,
    )  # fmt: skip
    assert path.criteria[3:] == ("reversed", "errors")
    assert path.points[-1].measure("errors").value < path.points[0].measure("errors").value
    assert "errors_low" in path.to_frame().columns
    path.select(max_unfairness=0.05)
    assert path.selected.measures["errors"].value <= 0.05
    assert len(path.plot().axes) == 5
    page = path.to_html(tmp_path / "path.html").read_text(encoding="utf-8")
    assert "R² against errors" in page
    assert "Does the error look the same in every group?" in page


def test_criterion_in_a_report(rows, tmp_path):
    X, y, a = rows
    audit = eh.audit(y, X[:, 0], sensitive_features=a)
    page = audit.to_html(tmp_path / "audit.html").read_text(encoding="utf-8")
    assert "Is this separation by another name?" in page
    assert "Does the error look the same in every group?" in page


def test_a_frontier_asks_for_a_criterion_that_is_registered(rows):
    X, y, a = rows
    mine = eh.Criterion("mine", (), ("s",))
    with pytest.raises(ValueError, match="register_criterion makes it one"):
        eh.fairness_path(eh.FairRidge(mine), X, y, sensitive_features=a)
    needy = eh.register_criterion(eh.Criterion("needy", ("c",), ("s", "c")))
    try:
        with pytest.raises(ValueError, match="'needy', which needs c"):
            eh.fairness_path(eh.FairRidge(needy), X, y, sensitive_features=a)
    finally:
        toys.unregister_criterion("needy")


def test_basis_in_a_fit_and_an_audit(rows):
    X, y, a = rows
    fair = eh.FairRidge("separation", 3.0, basis="quartic").fit(X, y, sensitive_features=a)
    found = eh.audit(y, fair.predict(X), sensitive_features=a, estimator=eh.Logistic("quartic"))
    assert found.separation.chosen == "quartic Logistic, 15 terms"
    assert found.separation.value < 0.02


def test_basis_has_its_gradient(rows):
    X, y, a = rows
    s = X.sum(axis=1)[:80]
    bound = eh.FairnessRegularizer("separation", basis="quartic").bind(
        y[:80], sensitive_features=a[:80]
    )
    _, gradient = bound.value_and_grad(s)
    for i in range(0, 80, 16):
        step = np.zeros(80)
        step[i] = 1e-5
        slope = (bound.value(s + step) - bound.value(s - step)) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-3, abs=1e-7)


def test_estimator_by_name_and_as_an_instance(rows):
    X, y, a = rows
    named = eh.audit(y, X[:, 0], sensitive_features=a, estimator="bins")
    handed = eh.audit(y, X[:, 0], sensitive_features=a, estimator=toys.Bins())
    assert named.independence.chosen == "8 bins"
    assert named.independence.value == handed.independence.value
    by_logistic = eh.audit(y, X[:, 0], sensitive_features=a, estimator="logistic")
    assert named.independence.value == pytest.approx(by_logistic.independence.value, abs=0.03)


def test_estimator_on_a_frontier(rows):
    X, y, a = rows
    path = eh.fairness_path(
        eh.FairRidge(), X, y, sensitive_features=a, fairness_weights=[1.0], cv=3,
        measure_with="bins", random_state=0,
    )  # fmt: skip
    assert path.measured_with == "bins"
    assert path.points[0].independence.chosen == "8 bins"


def test_loss_in_a_fit(rows):
    X, y, a = rows
    y = np.where(np.arange(len(y)) % 50 == 0, 100.0, y)  # outliers, which it hardly sees
    robust = eh.FairGLM(toys.LogCosh(), "independence", 0.0).fit(X, y, sensitive_features=a)
    np.testing.assert_allclose(robust.coef_[:2], 1.0, atol=0.35)
    fair = eh.FairGLM(toys.LogCosh(), "independence", 30.0).fit(X, y, sensitive_features=a)
    assert fair.unfairness_ < 0.1 * robust.unfairness_


def test_loss_on_a_frontier_and_in_its_report(rows, tmp_path):
    X, y, a = rows
    path = eh.fairness_path(
        eh.FairGLM(toys.LogCosh()), X, y, sensitive_features=a, fairness_weights=[3.0], cv=3,
        measure_with="logistic", random_state=0,
    )  # fmt: skip
    assert "d2_stderr" in path.to_frame().columns
    assert "of the deviance of the outcome" in path.to_html(tmp_path / "page.html").read_text()
    model = path.select(max_unfairness=0.5)
    audit = eh.audit(y, model.predict(X), sensitive_features=a, estimator="logistic")
    assert audit.independence.value < 0.5


def test_a_model_of_ones_own_shares_its_work_along_a_path(rows):
    X, y, a = rows
    toys.Shrunk.solved = 0
    path = eh.fairness_path(
        toys.Shrunk(), X, y, sensitive_features=a, fairness_weights=[1.0, 3.0, 9.0], cv=3,
        measure_with="logistic", random_state=0,
    )  # fmt: skip
    assert toys.Shrunk.solved == 3  # once a fold, for four weights
    assert path.points[0].r2 > path.points[1].r2 > path.points[3].r2


def test_all_on_the_command_line(rows, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from evenhand.cli.app import app

    def run(*words):
        return CliRunner().invoke(app, words)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    X, y, a = rows
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["x0", "x1", "x2", "y", "a"])
        table.writerows([*x, t, g] for x, t, g in zip(X.tolist(), y.tolist(), a, strict=True))
    audit = run(
        "audit", "rows.csv", "--target", "y", "--prediction", "x0", "--sensitive", "a",
        "--estimator", "bins", "--fail-above", "errors=0.9", "--html", "audit.html",
    )  # fmt: skip
    assert audit.exit_code == 0, audit.output
    assert "Errors" in audit.stdout
    assert "errors: value" in audit.stdout
    assert "another name?" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    frontier = run(
        "frontier", "rows.csv", "--target", "y", "--sensitive", "a", "--criterion",
        "errors", "--max-unfairness", "0.05", "--points", "3", "--folds", "3", "--out", "fair",
    )  # fmt: skip
    assert frontier.exit_code == 0, frontier.output
    about = json.loads((tmp_path / "fair" / "model.json").read_text(encoding="utf-8"))
    assert "errors" in json.dumps(about)
    robust = run(
        "frontier", "rows.csv", "--target", "y", "--sensitive", "a", "--model",
        "glm-log-cosh", "--points", "2", "--folds", "3", "--out", "robust",
    )  # fmt: skip
    assert robust.exit_code == 0, robust.output
    assert "D²" in robust.stdout
    scored = run("predict", "fair/model.json", "rows.csv", "--out", "scored.csv")
    assert scored.exit_code == 0, scored.output
    unknown = run(
        "frontier", "rows.csv", "--target", "y", "--sensitive", "a", "--criterion",
        "odds", "--out", "no",
    )  # fmt: skip
    assert unknown.exit_code == 2
    names = "independence, separation, sufficiency, reversed, errors"
    assert f"--criterion must be one of {names}" in unknown.output
