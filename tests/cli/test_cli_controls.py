"""`--control` of audit."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from test_cli import error, run

import evenhand as eh

BASIC = ["-s", "premium", "-a", "race", "--estimator", "logistic"]


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    n = 1200
    age = rng.normal(45, 12, n)
    zone = rng.choice(["town", "land"], n)
    a = rng.random(n) < 1 / (1 + np.exp(0.5 - 0.05 * (age - 45)))
    premium = 300 + 3 * (age - 45) + 40 * (zone == "town") + 25 * a + 20 * rng.normal(size=n)
    some = [None if k % 40 == 0 else v for k, v in enumerate(zone)]
    return pa.table(
        {"premium": premium, "race": np.where(a, "black", "white"), "age": age, "zone": some}
    )


@pytest.fixture
def file(table, tmp_path):
    path = tmp_path / "quotes.csv"
    arrow_csv.write_csv(table, path)
    return path


def test_money_comes_first(file, tmp_path):
    html = tmp_path / "report.html"
    result = run("audit", file, *BASIC, "--control", "age", "-c", "zone", "--html", html)
    assert result.exit_code == 0
    assert "Among people with the same controls (age, zone)" in result.stdout
    text = " ".join(result.stdout.split())
    assert "scores of group 'black' are" in text
    assert text.index("go with the controls") < text.index("Independence")
    page = html.read_text()
    assert "go with the controls" in page
    assert "Controls" in page


def test_json_is_what_python_finds(file, table):
    found = json.loads(run("audit", file, *BASIC, "-c", "age", "-c", "zone", "--json").stdout)
    expected = eh.audit(
        None, table["premium"].to_numpy(), sensitive_features=table["race"].to_pylist(),
        controls=table.select(["age", "zone"]), estimator="logistic", random_state=0,
    ).conditional  # fmt: skip
    assert found["conditional"]["controls"] == ["age", "zone"]
    gap = found["conditional"]["gaps"][0]
    assert gap["adjusted"]["value"] == pytest.approx(expected.gap().adjusted.value)
    assert gap["reference"] == expected.reference


def test_the_reference_can_be_named(file):
    found = json.loads(
        run("audit", file, *BASIC, "-c", "age", "--reference", "black", "--json").stdout
    )
    assert found["conditional"]["reference"] == "black"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--control", "agee"], "--control"),
        (["--control", "race"], "must leave the group open"),
        (["--control", "premium"], "must not hold the score itself"),
    ],
)
def test_bad_controls(file, options, message):
    assert message in " ".join(error("audit", file, *BASIC, *options).split())
