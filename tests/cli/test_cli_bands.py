"""Measurements as the attribute, on the command line: refused, or cut into bands."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from pyarrow import parquet
from test_cli import error, run

QUICK = ["--points", "3", "--folds", "2"]


@pytest.fixture
def people(tmp_path):
    """The same people as CSV and as Parquet."""
    rng = np.random.default_rng(0)
    n = 800
    age = np.arange(n) % 67 + 18
    x = rng.normal(size=n)
    y = x + (age >= 65) + rng.normal(size=n)
    day = [datetime.date(1990, 1, 1) + datetime.timedelta(days=int(d)) for d in np.arange(n) % 200]
    table = pa.table(
        {"y": y, "s": x + 0.5 * (age >= 65), "x": x, "age": age, "born": day,
         "income": rng.uniform(size=n).round(3), "zip": [f"{k % 60:05d}" for k in range(n)]}
    )  # fmt: skip
    arrow_csv.write_csv(table, tmp_path / "people.csv")
    parquet.write_table(table, tmp_path / "people.parquet")
    return tmp_path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("command", ["audit", "compare", "frontier"])
def test_ages_and_dates_are_refused_with_the_way_to_band_them(people, ending, command):
    file = people / f"people.{ending}"
    options = {
        "audit": ("-y", "y", "-s", "s"),
        "compare": ("-y", "y", "-s", "s", "-s", "x"),
        "frontier": ("-y", "y", "-o", people / "out", *QUICK),
    }[command]
    message = error(command, file, *options, "-a", "age")
    assert "got whole numbers with 67 distinct values, from 18 to 84; more than 50" in message
    assert "such as --band age:40,62;" in message
    message = error(command, file, *options, "-a", "born")
    assert "got dates with 200 distinct values, from 1990-01-01 to 1990-07-19" in message
    assert "--band born:1990-03-08,1990-05-14;" in message
    message = error(command, file, *options, "-a", "income")
    assert "more than 20 are taken for a measurement" in message


def test_codes_with_leading_zeros_are_groups(people):
    arguments = ("audit", people / "people.csv", "-y", "y", "-s", "s", "-a", "zip")
    found = json.loads(run(*arguments, "--json", "--estimator", "logistic").stdout)
    assert len(found["groups"]["group"]) == 60


def test_other_ways_to_write_a_date_and_ages_with_a_few_words(tmp_path):
    rows = [f"{k},{k % 7},{k % 31 + 1:02d}.{k % 12 + 1:02d}.1990" for k in range(600)]
    path = tmp_path / "d.csv"
    path.write_text("y,s,race\n" + "\n".join(rows))
    assert "got dates with" in error("audit", path, "-y", "y", "-s", "s", "-a", "race")
    message = error("audit", path, "-y", "y", "-s", "s", "-a", "race", "--band", "race:1990-05-01")
    assert "--band cannot cut 'race': its cells must be numbers or dates" in message
    assert "dates written as 1990-12-31" in message
    rows = [f"{k},{k % 7},{k % 60 if k % 9 else 'unknown'}" for k in range(600)]
    path.write_text("y,s,race\n" + "\n".join(rows))
    assert "with 60 distinct values" in error("audit", path, "-y", "y", "-s", "s", "-a", "race")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_bands(people, ending, tmp_path):
    file, out = people / f"people.{ending}", tmp_path / "r.html"
    arguments = ("audit", file, "-y", "y", "-s", "s", "-a", "age", "--band", "age:25,65")
    found = json.loads(run(*arguments, "--json", "--html", out).stdout)
    assert found["groups"]["group"] == ["under 25", "25 to 64", "65 and over"]
    assert "under 25; 25 to 64; 65 and over" in out.read_text(encoding="utf-8")
    arguments = ("compare", file, "-y", "y", "-s", "s", "-s", "x", "-a", "born")
    found = json.loads(run(*arguments, "--band", "born:1990-04-01", "--json").stdout)
    groups = found["audits"]["x"]["groups"]
    assert groups["group"] == ["before 1990-04-01", "1990-04-01 and later"]
    assert sum(groups["n"]) == 800


def test_a_model_by_attribute_remembers_its_bands(people, tmp_path):
    out = tmp_path / "fair"
    result = run(
        "frontier", people / "people.csv", "-y", "y", "-a", "age", "--band", "age:25,65", "-o", out,
        "--drop", "born", "--drop", "zip", "--group-features", "attribute", "-m", "0.9", *QUICK,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    new = tmp_path / "new.csv"
    new.write_text("x,s,income,age\n" + "".join(f"0,0,0.5,{a}\n" for a in (19, 24.5, 65, 99, "")))
    result = run("predict", out, new, "-o", tmp_path / "scored.csv")
    assert result.exit_code == 0, result.output
    score = arrow_csv.read_csv(tmp_path / "scored.csv")["prediction"].to_numpy()
    assert score[0] == score[1]
    assert score[2] == score[3] > score[0]
    assert score[0] < score[4] < score[2]
    new.write_text("x,s,income,age\n0,0,0.5,young\n")
    message = error("predict", out, new, "-o", tmp_path / "q.csv")
    assert "Column 'age' is cut into bands" in message


@pytest.mark.parametrize(
    ("band", "words"),
    [
        ("age", "--band must be COLUMN:EDGE,EDGE,..., got 'age'. Hint: --band age:25,65"),
        ("age:", "--band must be COLUMN:EDGE,EDGE"),
        ("age:25,,65", "--band must be COLUMN:EDGE,EDGE"),
        (
            "income:0.5",
            "--band names 'income', which is not one of the --sensitive columns",
        ),
        ("age:65,25", "--band cannot cut 'age': the edges must rise from one to the next"),
        ("age:soon", "--band cannot cut 'age': the edges must be finite numbers"),
    ],
)
def test_bands_must_make_sense(people, band, words):
    arguments = ("audit", people / "people.csv", "-y", "y", "-s", "s", "-a", "age")
    assert words in error(*arguments, "--band", band)


def test_bands_are_given_once(people):
    arguments = ("audit", people / "people.csv", "-y", "y", "-s", "s", "-a", "age")
    message = error(*arguments, "--band", "age:25", "--band", "age:65")
    assert "--band names 'age' twice. Hint: list all its edges once." in message
