"""`--cluster` of audit, compare and frontier."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from test_cli import error, run

import evenhand as eh

BASIC = ["-y", "y", "-s", "s", "-a", "race"]


def _table():
    rng = np.random.default_rng(0)
    place = np.repeat(np.arange(150), 4)
    a = rng.integers(0, 2, 150)[place]
    y = rng.normal(size=150)[place] + rng.normal(size=600) + 0.5 * a
    # 7 and 07 are two places.
    names = [f"{k:02d}" if k < 75 else str(k - 75) if k < 85 else str(k) for k in place]
    return pa.table(
        {
            "y": y,
            "s": y + rng.normal(size=600) + a,
            "better": y + rng.normal(size=600),
            "race": np.array(["black", "white"])[a],
            "zip": names,
        }
    )


@pytest.fixture
def table():
    return _table()


@pytest.fixture
def file(table, tmp_path):
    path = tmp_path / "scores.csv"
    arrow_csv.write_csv(table, path)
    return path


def test_audit(file, table):
    result = run("audit", file, *BASIC, "--cluster", "zip", "--estimator", "logistic")
    assert result.exit_code == 0
    assert "600 rows in 150 clusters, 2 groups of 'race'" in result.stdout
    assert any(
        line.split()[:3] == ["group", "rows", "clusters"] for line in result.stdout.splitlines()
    )
    found = json.loads(
        run("audit", file, *BASIC, "--cluster", "zip", "--estimator", "logistic", "--json").stdout
    )
    expected = eh.audit(
        table["y"].to_numpy(), table["s"].to_numpy(), sensitive_features=table["race"].to_pylist(),
        cluster=table["zip"].to_pylist(), estimator="logistic", random_state=0,
    )  # fmt: skip
    assert found["n_clusters"] == 150
    for m in expected.measures.values():
        assert found["measures"][m.criterion]["stderr"] == pytest.approx(m.stderr)


def test_compare(file, tmp_path):
    out = tmp_path / "c.html"
    found = json.loads(
        run("compare", file, *BASIC, "-s", "better", "--cluster", "zip", "--estimator", "logistic",
            "--json", "--html", out).stdout
    )  # fmt: skip
    assert {a["n_clusters"] for a in found["audits"].values()} == {150}
    assert "600 rows in 150 clusters" in out.read_text()


def test_frontier(file, table, tmp_path):
    out = tmp_path / "fair"
    result = run(
        "frontier", file, "-y", "y", "-a", "race", "--cluster", "zip", "-o", out, "--points", "2",
        "--max-unfairness", "1",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    page = (out / "report.html").read_text()
    assert "600 rows in 150 clusters" in page
    assert "--cluster names it" in page
    bare = tmp_path / "bare.csv"
    arrow_csv.write_csv(table.drop_columns(["zip"]), bare)
    scored = tmp_path / "scored.csv"
    assert run("predict", out, bare, "-o", scored).exit_code == 0  # it is no feature


def test_cluster_column_must_be_there_and_whole(file, table, tmp_path):
    assert "--cluster" in error("audit", file, *BASIC, "--cluster", "zap")
    names = table["zip"].to_pylist()
    names[3] = names[9] = None
    gaps = tmp_path / "gaps.csv"
    arrow_csv.write_csv(table.set_column(4, "zip", pa.array(names)), gaps)
    message = error("audit", gaps, *BASIC, "--cluster", "zip")
    assert (
        "The cluster, column 'zip', is missing in 2 of 600 rows, the first being row 4." in message
    )
    assert "--drop-missing" in message
    result = run(
        "audit", gaps, *BASIC, "--cluster", "zip", "--drop-missing", "--estimator", "logistic"
    )
    assert "2 rows without a target, score, weight, frequency or cluster are" in result.stderr
    assert "598 rows in 150 clusters" in result.stdout
    constant = tmp_path / "one.csv"
    arrow_csv.write_csv(table.set_column(4, "zip", pa.array(["x"] * 600)), constant)
    assert "--cluster must hold at least two clusters" in error(
        "audit", constant, *BASIC, "--cluster", "zip"
    )


def test_few_clusters_become_a_note(file, table, tmp_path):
    few = tmp_path / "few.csv"
    arrow_csv.write_csv(
        table.set_column(4, "zip", pa.array([str(k // 20) for k in range(600)])), few
    )
    result = run("audit", few, *BASIC, "--cluster", "zip", "--estimator", "logistic")
    assert result.exit_code == 0
    assert "600 rows count for 30 clusters" in " ".join(result.stderr.split())


def test_groups_may_be_the_clusters_own(file):
    """A column can be both, as where every school is a group."""
    assert "at least 5 clusters" in error("audit", file, *BASIC, "--cluster", "race")
