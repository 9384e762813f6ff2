"""`evenhand alternatives`: a record of candidates, chosen and not."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from typer.testing import CliRunner

import evenhand as eh
from evenhand.cli.app import app

COLUMNS = ("-y", "y", "-a", "race", "-s", "s", "-s", "better")


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def error(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    a = np.arange(400) % 2
    y = rng.normal(size=400) + 0.5 * a
    columns = {"y": y, "s": y + rng.normal(size=400) + a, "better": y + rng.normal(size=400)}
    return pa.table({**columns, "x": rng.normal(size=400) + y, "race": np.array(["b", "w"])[a]})


@pytest.fixture
def scores(table, tmp_path):
    arrow_csv.write_csv(table, tmp_path / "scores.csv")
    return tmp_path / "scores.csv"


def test_columns_of_scores(table, scores, tmp_path):
    page = tmp_path / "record.html"
    said = run("alternatives", scores, *COLUMNS, "--limit", "0.05", "--html", page, "--owner", "Me")
    assert said.exit_code == 0
    assert "Search for alternatives: 2 models" in said.stdout
    assert "better: chosen: the most accurate with independence ≤ 0.05" in said.stdout
    assert "is above the limit 0.05" in said.stdout
    shown = page.read_text()
    for part in ("SHA-256 of scores.csv", "alternatives", "Signature", ">Me<", "fairer?"):
        assert part in shown
    held = json.loads(run("alternatives", scores, *COLUMNS, "--limit", "0.05", "--json").stdout)
    y, s, better, race = (table[name].to_pylist() for name in ("y", "s", "better", "race"))
    same = eh.alternatives(
        y, {"s": s, "better": better}, sensitive_features=race, limit=0.05, random_state=0
    )
    assert held["columns"]["independence"] == pytest.approx(same.columns["independence"], abs=1e-9)


def test_no_candidate_is_good_enough(scores):
    said = run("alternatives", scores, *COLUMNS, "--limit", "0.0001", "--floor", "0.9")
    assert said.exit_code == 1
    assert "which no model meets" in said.stdout


def test_a_frontier_beside_columns(scores):
    said = run(
        "alternatives", scores, *COLUMNS, "--model", "ridge", "--points", "3", "--limit", "0.5",
        "--json",
    )  # fmt: skip
    columns = json.loads(said.stdout)["columns"]
    assert columns["name"][-2:] == ["s", "better"]
    assert set(columns["origin"]) == {"path", "scores"}
    # Candidates are no features: x alone explains less than they do.
    assert max(columns["r2"][:-2]) < 0.6


def test_what_does_not_go_together(scores):
    say = ("alternatives", scores, "-y", "y", "-a", "race")
    assert "Give two --prediction columns" in error(*say, "-s", "s", "--limit", "0.1")
    assert "--limit" in error("alternatives", scores, *COLUMNS)
    message = error("alternatives", scores, *COLUMNS, "--limit", "0.1", "-c", "x")
    assert "--control and --given need --model" in message
    message = error(*say, "--model", "ridge", "--loss", "poisson", "--limit", "0.1")
    assert "--loss must be left out with --model" in message
