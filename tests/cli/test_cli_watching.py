"""Drivers and monitoring on the command line."""

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


def test_clusters_and_the_estimator(scores, tmp_path):
    path = tmp_path / "scores.csv"
    frame = pd.read_csv(scores)
    frame.assign(person=np.arange(len(frame)) // 3).to_csv(path, index=False)
    words = ("monitor", path, "--time", "date", "-s", "premium", "-a", "region", "--json")
    done = run(*words, "--cluster", "person")
    assert done.exit_code in (0, 1), done.output
    plain = run(*words, "--estimator", "logistic")
    values = [json.loads(d.stdout)["looks"]["independence"][0]["value"] for d in (done, plain)]
    assert values[0] != values[1]
    assert run(*words, "--cluster", "nobody").exit_code == 2


def test_a_tolerance_is_watched(scores, tmp_path):
    words = ("monitor", scores, "--time", "date", "-s", "premium", "-a", "region")
    words = (*words, "--estimator", "logistic", "--tolerance", tmp_path / "t.toml")
    eh.Tolerance(drift=0.9, independence=0.9).to_file(tmp_path / "t.toml")
    done = run(*words, "--html", tmp_path / "m.html")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "m.html").read_text()
    assert "<dt>Tolerance</dt><dd>t.toml, last changed" in page
    assert "<dt>SHA-256 of scores.csv</dt>" in page
    assert "drift at most 0.9" in page
    eh.Tolerance(drift=0.01).to_file(tmp_path / "t.toml", force=True)
    done = run(*words)
    assert done.exit_code == 1
    assert done.output.startswith("Fairness over time: drifted beyond the limit")
    assert "--limit and --tolerance must not both" in run(*words, "--limit", "drift=0.1").output
    eh.Tolerance(smd=(-0.1, 0.1)).to_file(tmp_path / "t.toml", force=True)
    assert "`limits` must be on what is watched" in " ".join(run(*words).output.split())


def test_monitor(scores, tmp_path):
    common = ("monitor", scores, "-s", "premium", "-a", "region", "--time", "date")
    out = tmp_path / "watch.html"
    done = run(*common, "--period", "quarter", "--html", out)
    assert done.exit_code == 1, done.output
    assert "Independence got worse" in done.output
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
        (["--limit", "0.05"], "--limit must be CRITERION=LIMIT with one of independence"),
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


@pytest.fixture(scope="module")
def counted(scores, tmp_path_factory):
    """A file of cells for each quarter, as `evenhand cells` writes them."""
    folder = tmp_path_factory.mktemp("quarters")
    frame = pd.read_csv(scores, parse_dates=["date"])
    for quarter, rows in frame.groupby(frame["date"].dt.quarter):
        rows.to_csv(folder / f"{quarter}.csv", index=False)
        grid = [] if quarter == 1 else ["--edges", folder / "2024-Q1.cells"]
        done = run("cells", folder / f"{quarter}.csv", "-s", "premium", "-a", "region", *grid,
                   "--out", folder / f"2024-Q{quarter}.cells")  # fmt: skip
        assert done.exit_code == 0, done.output
    return folder


def test_monitor_of_cells(counted, scores, tmp_path):
    files = sorted(counted.glob("*.cells"))
    done = run("monitor", *files, "--html", tmp_path / "w.html")
    assert done.exit_code == 1, done.output
    assert "since 2024-Q3 (seen at 2024-Q3)" in " ".join(done.output.split())
    pattern = run("monitor", counted / "*.cells", "--json")
    assert [x["period"] for x in json.loads(pattern.stdout)["looks"]["independence"]] == [
        "2024-Q1", "2024-Q2", "2024-Q3", "2024-Q4",
    ]  # fmt: skip
    labels = [
        word for name in ("winter", "spring", "summer", "fall") for word in ("--period", name)
    ]
    named = run("monitor", *files, *labels, "--json")
    assert json.loads(named.stdout)["alarms"][0]["since"] == "summer"
    few = run("monitor", *files, "--period", "a", "--period", "b")
    assert few.exit_code == 2
    assert "There must be a period for each of 4 files of cells, got 2" in few.output
    with_columns = run("monitor", *files, "-a", "region")
    assert "--sensitive must be left out for files of cells" in " ".join(
        with_columns.output.split()
    )


def test_monitor_of_an_engine(counted, scores):
    words = ("-s", "premium", "-a", "region", "--time", "date", "--period", "quarter", "--json")
    one = json.loads(run("monitor", scores, *words).stdout)
    several = run("monitor", counted / "*.csv", *words)
    assert several.exit_code == 1, several.output
    found = json.loads(several.stdout)
    assert [a["since"] for a in found["alarms"]] == [a["since"] for a in one["alarms"]]
    asked = run("monitor", scores, *words, "--engine", "duckdb")
    for look, same in zip(
        json.loads(asked.stdout)["looks"]["independence"], one["looks"]["independence"], strict=True
    ):
        assert look["value"] == pytest.approx(same["value"], abs=1e-3)
    missing = run("monitor", counted / "*.csv", "-s", "premium", "-a", "region")
    assert "Missing option '--time'" in missing.output


@pytest.fixture(scope="module")
def imputed(tmp_path_factory):
    rng = np.random.default_rng(0)
    z = 2.0 * rng.normal(size=(900, 2))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    frame = pd.DataFrame({"A": p[:, 0], "B": p[:, 1], "rate": rng.normal(size=900) + z[:, 1]})
    frame.loc[:4, "A"] = np.nan
    path = tmp_path_factory.mktemp("imputed") / "loans.csv"
    frame.to_csv(path, index=False)
    frame.assign(B=0.7).to_csv(path.with_name("wrong.csv"), index=False)
    return path


def test_audit_of_probabilities(imputed, tmp_path):
    words = ("-s", "rate", "--probability", "A", "--probability", "B")
    done = run("audit", imputed, *words, "--html", tmp_path / "r.html")
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "5 rows (0.6%) have no known group and are left out" in text
    assert "Mean score of a group minus that of the reference" in text
    assert "range without any assumption (95%)" in text
    assert "What inferred groups leave uncertain" in (tmp_path / "r.html").read_text()
    found = json.loads(run("audit", imputed, *words, "--json").stdout)
    frame = pd.read_csv(imputed)
    want = eh.audit(None, frame["rate"], sensitive_features=eh.Proxy(frame[["A", "B"]]))
    assert found["imputation"]["gaps"][0]["value"] == pytest.approx(want.imputation.gaps[0].value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--probability", "A"], "--probability must be given once for each group"),
        (["--probability", "A", "--probability", "B", "-a", "A"], "in place of --sensitive"),
        (["--probability", "A", "--probability", "C"], "--probability names 'C'"),
        (["--probability", "A", "--probability", "C", "--engine", "duckdb"], "has no column 'C'"),
    ],
)
def test_probabilities_that_cannot_be_used(imputed, words, message):
    done = run("audit", imputed, "-s", "rate", *words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_probabilities_that_do_not_add_up(imputed):
    wrong = imputed.with_name("wrong.csv")
    done = run("audit", wrong, "-s", "rate", "--probability", "A", "--probability", "B")
    assert done.exit_code == 2
    assert "must be nonnegative and sum to 1 in each row; row 5 is" in " ".join(done.output.split())
