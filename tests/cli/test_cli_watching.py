"""Drivers and monitoring on the command line."""

import json

import numpy as np
import pytest

pytest.importorskip("typer")
import pandas as pd
from typer.testing import CliRunner

from evenhand.cli.app import app

runner = CliRunner()


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    rng = np.random.default_rng(0)
    n = 3000
    region = rng.choice(["north", "south"], n)
    day = np.datetime64("2024-01-01") + rng.integers(0, 366, n)
    late = (day >= np.datetime64("2024-07-01")) * 1.5
    mileage = rng.gamma(5.0, 2.0, n) * np.where(region == "south", 1.3, 1.0)
    frame = pd.DataFrame(
        {
            "date": day,
            "region": region,
            "mileage": mileage,
            "fuel": rng.choice(["gas", "oil"], n),
            "premium": 10 * mileage + 5 * rng.normal(size=n) + 20 * late * (region == "south"),
        }
    )
    frame["loss"] = frame["premium"] + 30 * rng.normal(size=n)
    path = tmp_path_factory.mktemp("watch") / "scores.csv"
    frame.to_csv(path, index=False)
    return path


def run(*words):
    return runner.invoke(app, [str(word) for word in words])


def test_drivers(scores):
    done = run("drivers", scores, "-s", "premium", "-a", "region", "-y", "loss", "--drop", "date")
    assert done.exit_code == 0, done.output
    assert "Drivers of the score by region: 2 features." in done.output
    found = run("drivers", scores, "-s", "premium", "-a", "region", "--drop", "date", "--json",
                "--drop", "loss")  # fmt: skip
    assert json.loads(found.stdout)["drivers"][0]["feature"] == "mileage"


def test_drivers_without_features(scores, tmp_path):
    path = tmp_path / "few.csv"
    pd.read_csv(scores)[["region", "premium"]].to_csv(path, index=False)
    done = run("drivers", path, "-s", "premium", "-a", "region")
    assert done.exit_code == 2
    assert "has no column left to use as a feature" in done.output


def test_monitor(scores, tmp_path):
    common = ("monitor", scores, "-s", "premium", "-a", "region", "--time", "date")
    out = tmp_path / "watch.html"
    done = run(*common, "--period", "quarter", "--html", out)
    assert done.exit_code == 1, done.output
    assert "Independence has risen" in done.output
    assert "Fairness over time" in out.read_text()
    again = run(*common, "--html", out)
    assert again.exit_code == 2
    limited = run(*common, "--period", "quarter", "--limit", "independence=0.9", "--json")
    assert json.loads(limited.stdout)["limits"] == {"independence": 0.9}
    single = run(*common, "--period", "year")
    assert single.exit_code == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--period", "eon"], "must be None or one of day, week"),
        (["--limit", "0.05"], "--limit must be written as independence=0.05"),
        (["--time", "datum"], "--time names 'datum'"),
        (["--criterion", "luck"], "must be one of independence"),
        (["--criterion", "separation"], "must be given for separation"),
    ],
)
def test_what_cannot_be_used(scores, words, message):
    common = ["monitor", scores, "-s", "premium", "-a", "region"]
    if "--time" not in words:
        common += ["--time", "date"]
    done = run(*common, *words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
