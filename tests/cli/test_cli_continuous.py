"""A measurement on the command line: audits, comparisons, frontiers, reports and refusals."""

import json

import numpy as np
import pytest

pytest.importorskip("typer")
import pandas as pd
from typer.testing import CliRunner

import evenhand as eh
from evenhand.cli.app import app

runner = CliRunner()


def run(*words):
    return runner.invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 800
    age = rng.integers(18, 81, n).astype(float)
    y = 0.03 * age + rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "age": age,
            "y": y,
            "s": 0.3 * y + 0.04 * age + rng.normal(size=n),
            "other": 0.5 * y + rng.normal(size=n),
            "x": age + 9 * rng.normal(size=n),
            "kind": rng.choice(["a", "b"], n),
        }
    )
    frame.loc[::40, "age"] = np.nan
    path = tmp_path_factory.mktemp("continuous") / "people.csv"
    frame.to_csv(path, index=False)
    return path


def test_audit_says_what_python_says(people, tmp_path):
    page = tmp_path / "report.html"
    done = run("audit", people, "-y", "y", "-s", "s", "-a", "age", "--continuous", "--html", page,
               "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["measures"]
    frame = pd.read_csv(people)
    own = eh.audit(frame["y"], frame["s"], sensitive_features=eh.Continuous(frame["age"]))
    for name, m in own.measures.items():
        assert found[name]["value"] == pytest.approx(m.value, abs=1e-12)
        assert found[name]["of"] == "measurement"
    text = page.read_text()
    assert "people whatever their age" in text
    assert "Scores by band" in text
    assert "at every value of the attribute" in text
    assert "20 more without a known value" in text
    for wrong in ("probabilistic classifier", "groups of age", "gives the group", "Smallest of"):
        assert wrong not in text


def test_shown_in_the_terminal(people):
    done = run("audit", people, "-y", "y", "-s", "s", "-a", "age", "--continuous")
    text = " ".join(done.output.split())
    assert "'age' as a measurement" in text
    assert "Tables have 8 bands" in text
    done = run("compare", people, "-y", "y", "-s", "s", "-s", "other", "-a", "age", "--continuous")
    assert done.exit_code == 0, done.output


def test_frontier(people, tmp_path):
    done = run("frontier", people, "-y", "y", "-a", "age", "--continuous", "--drop", "s", "--drop",
               "other", "--points", "3", "--folds", "2", "--max-unfairness", "0.5", "--out",
               tmp_path / "out")  # fmt: skip
    assert done.exit_code == 0, done.output
    text = (tmp_path / "out" / "report.html").read_text()
    assert "people whatever their age" in text
    assert "bands of" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-a", "age", "-a", "kind", "--continuous"], "one --sensitive column that is not cut"),
        (["-a", "age", "--continuous", "--band", "age:30"], "got --band as well"),
        (["-a", "age", "--continuous", "--control", "x"], "--control needs groups"),
        (["-a", "kind", "--continuous"], "--continuous cannot take 'kind'"),
        (["-a", "age"], "ask about the measurement itself with --continuous"),
        (["-a", "age", "--continuous", "--engine", "duckdb"], "--continuous needs rows"),
    ],
)
def test_refused(people, words, message):
    done = run("audit", people, "-y", "y", "-s", "s", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
