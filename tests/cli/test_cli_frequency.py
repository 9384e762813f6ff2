"""`--frequency` of audit, compare and frontier."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from test_cli import error, run


@pytest.fixture
def files(tmp_path):
    """A table of distinct rows, and the rows that it stands for."""
    rng = np.random.default_rng(0)
    n = 300
    a = rng.integers(0, 2, n)
    y = rng.normal(size=n) + 0.5 * a
    columns = {
        "y": y,
        "s": y + rng.normal(size=n) + a,
        "t": y + rng.normal(size=n),
        "x": rng.normal(size=n) + y,
        "race": np.array(["black", "white"])[a],
        # Most stand for one person or nobody; a table that repeats all over is one of copies.
        "people": np.where(np.arange(n) % 40 == 0, rng.integers(2, 4, n), rng.random(n) < 0.8),
    }
    table = pa.table(columns)
    rows = table.take(np.repeat(np.arange(n), columns["people"])).drop_columns("people")
    arrow_csv.write_csv(table, tmp_path / "table.csv")
    arrow_csv.write_csv(rows, tmp_path / "rows.csv")
    return tmp_path


def _json(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    del found["provenance"]
    return found


def test_audit_and_compare(files):
    basic = ["-y", "y", "-s", "s", "-a", "race", "--estimator", "logistic"]
    counted = _json("audit", files / "table.csv", *basic, "--frequency", "people")
    assert counted["remarks"][0] == "Rows count by the frequencies 'people'."
    counted["remarks"] = []
    assert counted == _json("audit", files / "rows.csv", *basic)
    both = [*basic, "-s", "t"]
    counted = _json("compare", files / "table.csv", *both, "--frequency", "people")
    for audit in counted["audits"].values():
        audit["remarks"] = []
    assert counted == _json("compare", files / "rows.csv", *both)


def test_frontier(files):
    basic = ["-y", "y", "-a", "race", "--points", "3", "--folds", "3", "--drop", "s", "--drop", "t"]
    first = run("frontier", files / "table.csv", *basic, "-o", files / "a", "--frequency", "people")
    assert first.exit_code == 0, first.stderr
    assert run("frontier", files / "rows.csv", *basic, "-o", files / "b").exit_code == 0
    found, expected = ((files / k / "path.csv").read_text() for k in "ab")
    assert found == expected
    report = (files / "a" / "report.html").read_text()
    assert "<dt>Frequencies</dt><dd>column people" in report


def test_messages(files):
    basic = ["-y", "y", "-s", "s", "-a", "race"]
    assert "--frequency" in error("audit", files / "table.csv", *basic, "--frequency", "nobody")
    assert "--frequency must be nonnegative" in error(
        "audit", files / "table.csv", *basic, "--frequency", "x"
    )


def test_missing_frequencies(files):
    table = arrow_csv.read_csv(files / "table.csv")
    people = [None if i < 2 else v for i, v in enumerate(table["people"].to_pylist())]
    place = table.column_names.index("people")
    arrow_csv.write_csv(table.set_column(place, "people", pa.array(people)), files / "gaps.csv")
    basic = ["-y", "y", "-s", "s", "-a", "race", "--estimator", "logistic", "--frequency", "people"]
    assert "The frequency, column 'people', is missing in 2 of 300" in error(
        "audit", files / "gaps.csv", *basic
    )
    result = run("audit", files / "gaps.csv", *basic, "--drop-missing")
    assert "2 rows without a target, score, weight, frequency or cluster are left" in result.stderr
