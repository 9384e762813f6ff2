"""Tolerances, verdicts and the impact table on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("typer")
import pandas as pd
from typer.testing import CliRunner

import evenhand as eh
from evenhand.cli.app import app

runner = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("verdicts")
    rng = np.random.default_rng(0)
    n = 1500
    race, sex = rng.choice(["white", "black", "asian"], n), rng.choice(["m", "f"], n)
    y = 100 + 20 * rng.standard_normal(n)
    s = y + 5 * rng.standard_normal(n) + 6 * (race == "black")
    pd.DataFrame({"y": y, "s": s, "t": s - 1.0, "race": race, "sex": sex}).to_csv(
        path / "scores.csv", index=False
    )
    tolerances = {
        "pass": eh.Tolerance(independence=0.3, mean_ratio=(0.5, 2)),
        "fail": eh.Tolerance(mean_ratio=(0.99, 1.01), reference="white"),
        "open": eh.Tolerance(smd=(-0.29, 0.29), reference="white"),
        "rates": eh.Tolerance(impact_ratio=(0.2, 5.0), favorable="low"),
    }
    for name, tolerance in tolerances.items():
        tolerance.to_file(path / f"{name}.toml")
    return path


def run(folder, *options, command="audit"):
    words = [command, str(folder / "scores.csv"), *options, "--estimator", "logistic"]
    return runner.invoke(app, [str(w) for w in words])


BASIC = ("-s", "s", "-y", "y", "-a", "race")


@pytest.mark.parametrize(
    ("name", "code", "word"),
    [("pass", 0, "✓ Pass"), ("fail", 1, "✕ Fail"), ("open", 4, "? Not enough data")],
)
def test_exit_codes(folder, name, code, word):
    found = run(folder, *BASIC, "--tolerance", folder / f"{name}.toml")
    assert found.exit_code == code
    assert found.stdout.startswith(word)


def test_a_limit_that_is_missed_outranks_what_is_open(folder):
    limit = ("--fail-above", "independence=0.0")
    found = run(folder, *BASIC, "--tolerance", folder / "open.toml", *limit)
    assert found.exit_code == 1


def test_codes_are_in_the_help():
    assert "4 not enough data" in " ".join(runner.invoke(app, ["--help"]).stdout.split())


def test_impact_table(folder, tmp_path):
    page = tmp_path / "r.html"
    found = run(
        folder, *BASIC, "--impact", "--favorable", "low", "--at", "0.3", "--reference", "white",
        "--html", page, "--tolerance", folder / "pass.toml",
    )  # fmt: skip
    assert found.exit_code == 0
    assert "impact ratio at 0.3" in found.stdout
    assert "worse off" in found.stdout
    text = page.read_text()
    assert text.index("<h2>Verdict</h2>") < text.index("<h2>In short</h2>")
    assert text.index("<h2>In short</h2>") < text.index("<h2>Impact by race</h2>")
    assert "impact.csv" in text
    assert "verdict.csv" in text
    assert '"outcome":"pass"' in text


def test_json(folder):
    found = run(folder, *BASIC, "--tolerance", folder / "fail.toml", "--json", "--impact",
                "--favorable", "high")  # fmt: skip
    data = json.loads(found.stdout)
    assert data["verdict"]["outcome"] == "fail"
    assert data["impact"]["reference"] == "white"
    both = run(folder, *BASIC, "-a", "sex", "--each", "--tolerance", folder / "pass.toml", "--json")
    data = json.loads(both.stdout)
    # The attributes are judged as parts of their crossing.
    assert list(data["verdict"]) == ["race × sex"]
    parts = {c["part"] for c in data["verdict"]["race × sex"]["clauses"]}
    assert {"race", "sex", "race × sex"} <= parts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--impact"], "--impact needs --favorable: high if a person is better off"),
        (["--tolerance", "rates.toml", "--favorable", "high"], "--favorable high contradicts"),
        (["--tolerance", "none.toml"], "No such file or directory"),
        (["--tolerance", "wrong.toml"], "wrong.toml: A tolerance has no clause 'means'; there are"),
        (["--tolerance", "wrong.txt"], "must end in .json or .toml"),
        (["--impact", "--favorable", "low", "--at", "3"], '--at must hold "median" or quantiles'),
        (["--impact", "--favorable", "low", "--reference", "x"], "--reference must be"),
    ],
)
def test_bad_options(folder, options, message):
    (folder / "wrong.toml").write_text(
        'format = "evenhand.tolerance"\nversion = 1\n[clauses]\nmeans = 1\n'
    )
    options = [folder / o if o.endswith((".toml", ".txt")) else o for o in options]
    found = run(folder, *BASIC, *options)
    assert found.exit_code == 2
    assert message in found.stderr


def test_clauses_that_need_a_target(folder, tmp_path):
    path = eh.Tolerance(separation=0.1).to_file(tmp_path / "t.json")
    found = run(folder, "-s", "s", "-a", "race", "--tolerance", path)
    assert found.exit_code == 2
    assert "--tolerance asks for separation, which needs --target" in found.stderr


def test_gains_in_the_favorable_direction(folder, tmp_path):
    """Scores fall by one: a gain where low ones are favorable."""
    options = ("-s", "s", "-s", "t", "-y", "y", "-a", "sex")
    shares = {}
    for side in ("high", "low"):
        page = tmp_path / f"{side}.html"
        found = run(folder, *options, "--favorable", side, "--html", page, command="compare")
        assert found.exit_code == 0
        (line,) = [x for x in found.stdout.splitlines() if x.startswith("f ")][-1:]
        shares[side] = line.split()[-2:]
        assert "Gain (score " in page.read_text()
    assert shares == {"high": ["0%", "100%"], "low": ["100%", "0%"]}
    plain = run(folder, *options, command="compare")
    assert "rises" in plain.stdout


def test_write_and_show_a_tolerance(tmp_path):
    path = tmp_path / "t.toml"
    made = runner.invoke(app, [
        "tolerance", str(path), "--clause", "independence=0.01", "--clause", "impact_ratio=0.8,",
        "--favorable", "low", "--at", "0.2", "--level", "0.01",
    ])  # fmt: skip
    assert made.exit_code == 0
    written = eh.Tolerance.from_file(path)
    expected = eh.Tolerance(
        independence=0.01, impact_ratio=(0.8, None), favorable="low", at=(0.2,), level=0.01
    )
    assert written == expected
    assert written.digest in made.stdout
    shown = runner.invoke(app, ["tolerance", str(path)])
    assert shown.stdout == made.stdout
    again = runner.invoke(app, ["tolerance", str(path), "--clause", "smd=-1,1"])
    assert again.exit_code == 2
    assert "exists already and is left as it is" in again.stderr
    assert "overwrite it with --force" in again.stderr


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("independence", "--clause must be NAME=LIMIT or NAME=LOW,HIGH, got 'independence'"),
        ("smd=a,b", "--clause must be"),
        ("smd=", "--clause must be"),
        ("nothing=1", "A tolerance has no clause 'nothing'"),
        ("impact_ratio=0.8,1.2", "--favorable must be given for impact_ratio"),
    ],
)
def test_bad_clauses(clause, message, tmp_path):
    found = runner.invoke(app, ["tolerance", str(tmp_path / "t.json"), "--clause", clause])
    assert found.exit_code == 2
    assert message in found.stderr
    twice = ["tolerance", str(tmp_path / "t.json"), "--clause", "smd=-1,1", "--clause", "smd=-2,2"]
    assert (
        "must have one limit, got [-1.0, 1.0] and [-2.0, 2.0]" in runner.invoke(app, twice).stderr
    )
