"""`--model` of frontier with boosted trees."""

import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from sklearn.svm import SVR
from test_cli import error, run

import evenhand as eh
from evenhand.cli import models as bases


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(bases, "TREES", 10)
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 300)
    x = rng.normal(size=300) + a
    columns = {
        "y": np.sin(2.0 * x) + x + rng.normal(size=300),
        "x": x,
        "town": np.array(["n", "s", "e"])[rng.integers(0, 3, 300)],
        "race": np.array(["p", "q"])[a],
    }
    arrow_csv.write_csv(pa.table(columns), tmp_path / "rows.csv")
    return tmp_path


def frontier(folder, model, *more):
    return (
        "frontier", folder / "rows.csv", "-y", "y", "-a", "race", "--model", model, "--points", "3",
        "--folds", "3", "--group-features", "posterior", "-o", folder / "out", *more,
    )  # fmt: skip


@pytest.mark.parametrize("model", ["hgb", "xgboost", "lightgbm"])
def test_a_frontier_of_boosted_trees(table, model):
    if model != "hgb":
        pytest.importorskip(model, reason="needs evenhand[boosting]")
    (table / "out").mkdir()
    (table / "out" / "model.json").write_text("of an earlier run")
    result = run(*frontier(table, model, "-m", "0.9", "--force"))
    assert result.exit_code == 0, result.stderr
    assert "Chosen: fairness weight" in result.stdout
    assert "Model:" in result.stdout
    scored = run("predict", table / "out", table / "rows.csv", "-o", table / "scored.csv")
    assert scored.exit_code == 0, scored.stderr
    assert (table / "out" / "path.csv").read_text().count("\n") == 4
    assert "</html>" in (table / "out" / "report.html").read_text()


@pytest.mark.parametrize("package", ["xgboost", "lightgbm"])
def test_a_package_that_is_missing(table, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    message = error(*frontier(table, package))
    assert f"--model {package} needs the package {package}, which is not installed" in message
    assert "pip install 'evenhand[boosting]', or --model hgb" in message
    assert not (table / "out").exists()


def test_a_model_that_is_a_program_has_no_file(table, monkeypatch):
    def make(criterion, options):
        return eh.FairPostprocessor(SVR(), criterion, random_state=0)

    monkeypatch.setitem(bases.MODELS, "svr", make)
    result = run(*frontier(table, "svr", "-m", "0.9"))
    assert result.exit_code == 0, result.stderr
    assert "No model.json" in result.output + result.stderr
    assert not (table / "out" / "model.json").exists()
    assert (table / "out" / "report.html").exists()
