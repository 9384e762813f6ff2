"""What the commands print and write: whole tables on narrow terminals, and their provenance."""

import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from rich.console import Console
from test_cli import BASIC, error, make_table, run

import evenhand as eh
from evenhand._core.validation import InputError
from evenhand.cli import terminal

QUICK = ["--points", "3", "--folds", "2"]


@pytest.fixture
def scores(tmp_path):
    arrow_csv.write_csv(make_table(), tmp_path / "scores.csv")
    return tmp_path / "scores.csv"


@pytest.fixture
def narrow(monkeypatch):
    """A terminal of 80 columns, as `console` finds one where somebody looks."""
    import sys

    def console(stderr=False):
        stream = sys.stderr if stderr else sys.stdout
        return Console(file=stream, markup=False, highlight=False, emoji=False, width=80)

    monkeypatch.setattr(terminal, "console", console)


@pytest.fixture
def training(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 400)
    x = rng.normal(size=(400, 2)) + a[:, None]
    y = x @ [1.0, 0.5] + rng.normal(size=400)
    path = tmp_path / "train.csv"
    arrow_csv.write_csv(pa.table({"y": y, "x": x[:, 0], "z": x[:, 1], "race": a}), path)
    return path


def tables(text):
    """The lines that are set as tables; sentences are wrapped by the terminal itself."""
    lines = text.splitlines()
    rules = [k for k, line in enumerate(lines) if line.startswith("──")]
    assert rules
    found = []
    for k in rules:
        found.append(lines[k - 1])
        end = next((j for j in range(k, len(lines)) if not lines[j].strip()), len(lines))
        found += lines[k:end]
    return found


def test_the_table_of_a_path_is_whole_in_80_columns(training, tmp_path, narrow):
    out = tmp_path / "fair"
    result = run("frontier", training, "-y", "y", "-a", "race", "-o", out, "-m", "0.5", *QUICK)
    lines = tables(result.stdout)
    table = [line for line in lines if "±" in line]
    assert max(map(len, lines)) <= 80
    for line in table:
        assert len(re.findall(r"-?\d\.\d{4} ± \d\.\d{4}", line)) == 4
    assert sum(line.startswith("→ ") for line in table) == 1
    assert "→ selected" in result.stdout
    head = next(line for line in lines if "weight" in line)
    assert head.split() == ["weight", "R²", "independence", "separation", "sufficiency"]


def test_wide_tables_go_on_below(scores, narrow):
    result = run("compare", scores, "-y", "y", "-s", "s", "-s", "better", "-a", "race", "-a", "sex")
    assert max(map(len, tables(result.stdout))) <= 80
    words = result.stdout.split()
    for name in ("independence", "separation", "sufficiency"):
        assert name in words
    assert words.count("better") >= 2
    assert len(re.findall(r"\d\.\d{4} \(\d\.\d{3} to \d\.\d{3}\)", result.stdout)) >= 6


def test_groups_with_many_numbers_go_on_below(tmp_path, narrow):
    table = make_table()
    long = pa.array([f"a rather long name of the group {r}" for r in table["race"].to_pylist()])
    arrow_csv.write_csv(table.set_column(4, "race", long), tmp_path / "long.csv")
    result = run("audit", tmp_path / "long.csv", *BASIC)
    assert max(map(len, tables(result.stdout))) <= 80
    for words in ("rows", "mean score", "mean outcome", "outcome minus score", "RMSE"):
        assert words in result.stdout


def test_json_says_what_it_was_made_from(scores, tmp_path, monkeypatch):
    found = json.loads(run("audit", scores, *BASIC, "--json").stdout)["provenance"]
    digest = hashlib.sha256(scores.read_bytes()).hexdigest()
    size = scores.stat().st_size
    assert found["files"] == [{"name": "scores.csv", "bytes": size, "sha256": digest}]
    assert found["evenhand"] == eh.__version__
    written = datetime.strptime(found["written"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - written).total_seconds()) < 3600
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    found = json.loads(run("audit", scores, *BASIC, "--json").stdout)["provenance"]
    assert found["written"] == "1970-01-01T00:00:00Z"


def test_reports_say_what_they_were_made_from(scores, tmp_path):
    out = tmp_path / "r.html"
    run("audit", scores, *BASIC, "--html", out)
    digest = hashlib.sha256(scores.read_bytes()).hexdigest()
    page = out.read_text(encoding="utf-8")
    assert page.count(digest) == 2  # for people, and in the data for programs
    block = re.search(r'<script type="application/json" id="evenhand-data">(.*?)</script>', page)[1]
    data = json.loads(block)
    assert data["evenhand"] == eh.__version__
    assert data["source"]["SHA-256 of scores.csv"] == digest


@pytest.mark.parametrize("certify", [False, True])
def test_the_report_names_the_limit_and_how_it_was_judged(training, tmp_path, certify):
    out = tmp_path / "fair"
    arguments = ["frontier", training, "-y", "y", "-a", "race", "-o", out, *QUICK, "--force"]
    arguments += ["--certify"] if certify else []
    how = (
        "certified: judged by bounds that hold for all models at once with 95% confidence"
        if certify
        else "judged by held-out estimates, not certified"
    )
    result = run(*arguments, "-m", "0.7", "--min-accuracy", "0.1")
    assert f"Asked for: independence ≤ 0.7 and R² ≥ 0.1, {how}" in result.stdout
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "independence ≤ 0.7 and R² ≥ 0.1" in page
    assert how in page
    about = json.loads((out / "model.json").read_text())["about"]
    assert about["asked"] == {
        "criterion": "independence", "max_unfairness": 0.7, "min_r2": 0.1, "certify": certify,
        "confidence_level": 0.95,
    }  # fmt: skip
    assert about["file"]["sha256"] == hashlib.sha256(training.read_bytes()).hexdigest()
    error(*arguments, "-m", "0.5", "--min-accuracy", "0.99", code=1)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "No model meets what was asked, independence ≤ 0.5 and R² ≥ 0.99." in page


def test_a_closed_pipe_keeps_the_exit_code(tmp_path):
    """As of `evenhand audit … | head -1`."""
    path = tmp_path / "scores.csv"
    arrow_csv.write_csv(make_table(), path)
    for more, code in ((["--json"], 0), (["--fail-above", "independence=0"], 1)):
        words = ["audit", str(path), *BASIC, "--estimator", "logistic", *more]
        command = [sys.executable, "-m", "evenhand", *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
        ) as process:
            process.stdout.close()
            errors = process.stderr.read()
        assert (process.returncode, errors) == (code, b"")


def test_errors_of_arguments_are_said_in_options():
    found = InputError("sample_weight", "be nonnegative", -1.0, "see the target.", "(column 'w')")
    assert str(found) == (
        "`sample_weight` (column 'w') must be nonnegative, got -1.0. Hint: see the target."
    )
    assert str(pickle.loads(pickle.dumps(found))) == str(found)
    assert terminal._worded(found, ())[0] == (
        "--weight (column 'w') must be nonnegative, got -1.0. Hint: see the target."
    )
    assert str(InputError("edges", "rise")) == "`edges` must rise."
    assert terminal._worded(InputError("table", "be read", verb="cannot"), ())[0] == (
        "The table cannot be read."
    )
    # A label of the user's that looks like an argument stays as it is.
    assert terminal._worded(ValueError("no group `y_true`"), ())[0] == "no group `y_true`"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit", *BASIC, "--estimator", "magic"], "--estimator must be one of"),
        (["audit", *BASIC, "--confidence", "2"], "--confidence must lie between 0 and 1, got 2.0"),
        (["audit", *BASIC, "--loss", "magic"], "--loss must be None or one of"),
        (["audit", *BASIC, "--frequency", "w"], "--frequency must be whole numbers, got"),
        (["audit", *BASIC, "--weight", "y"], "--weight must be nonnegative, got"),
        (["audit", *BASIC, "--cluster", "sex"], "--cluster must hold at least 5 clusters"),
        (["audit", *BASIC, "--control", "s"], "--control must not hold the score itself"),
        (["audit", *BASIC, "-c", "w", "--reference", "x"], "--reference must be 'largest' or one"),
        (
            ["audit", "-s", "s", "--probability", "y", "--probability", "w"],
            "--probability must be nonnegative and sum to 1 in each row; row 0 is",
        ),
        (["audit", *BASIC, "--judge-by", "eye"], "--judge-by must be one of value, upper, lower"),
        (["frontier", *BASIC[:2], *BASIC[4:], "--alpha", "-1"], "--alpha must be"),
        (["frontier", *BASIC[:2], *BASIC[4:], "--folds", "1"], "--folds must be at least 2"),
        (["frontier", *BASIC[:2], *BASIC[4:], "--points", "1"], "--points must be an integer"),
        (["monitor", *BASIC, "--time", "y", "--period", "moon"], "--period must be None or one of"),
        (["monitor", *BASIC, "--time", "y", "--level", "3"], "--level must lie between 0 and 1"),
    ],
)
def test_errors_of_the_library_name_options(scores, tmp_path, arguments, words):
    name, *options = arguments
    out = ["-o", tmp_path / "out"] if name == "frontier" else []
    message = error(name, scores, *options, *out)
    assert words in message
    assert "`" not in message
