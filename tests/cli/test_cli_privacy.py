"""What leaves the machine or shows single people: small groups, pages and the network."""

import json
import re
import socket
from html import unescape

import numpy as np
import pandas as pd
import pytest
from test_cli import error, run

COLUMNS = ["-y", "y", "-s", "s", "--estimator", "lspc"]


@pytest.fixture
def scores(tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    race = np.where(np.arange(n) % 2, "black", "white").astype(object)
    race[:7] = "rare"
    race[7:12] = None
    sex = np.array(["f", "m"])[np.arange(n) // 2 % 2]
    y = rng.normal(size=n)
    frame = pd.DataFrame({"y": y, "s": y + rng.normal(size=n), "race": race, "sex": sex})
    frame.assign(people=1 + 2 * (race == "rare")).to_csv(tmp_path / "scores.csv", index=False)
    return tmp_path / "scores.csv"


def test_small_groups_are_in_no_result(scores, tmp_path):
    page = tmp_path / "page.html"
    done = run("audit", scores, *COLUMNS, "-a", "race", "--least-group", 10, "--html", page)
    assert done.exit_code == 0
    assert "rare" not in done.stdout + page.read_text()
    assert "7 people of 1 groups of fewer than 10 are left out" in done.stderr
    found = json.loads(
        run("audit", scores, *COLUMNS, "-a", "race", "--least-group", 10, "--json").stdout
    )
    assert found["groups"]["group"] == ["black", "white"]
    assert found["n_unknown"] == 12
    shown = run("audit", scores, *COLUMNS, "-a", "race", "--least-group", 7).stdout
    assert "rare" in shown


def test_small_crossings_are_in_no_result_either(scores):
    shown = run("audit", scores, *COLUMNS, "-a", "race", "-a", "sex", "--least-group", 10)
    assert shown.exit_code == 0
    assert "rare" not in shown.stdout


def test_people_are_counted_and_not_rows(scores):
    given = [*COLUMNS, "-a", "race", "--frequency", "people", "--least-group"]
    assert "rare" in run("audit", scores, *given, 21).stdout
    assert "rare" not in run("audit", scores, *given, 22).stdout


def test_what_has_no_groups_cannot_leave_small_ones_out(scores):
    told = error("audit", scores, *COLUMNS, "-a", "y", "--continuous", "--least-group", 5)
    assert "--least-group needs a group for each row" in told
    told = error("audit", scores, *COLUMNS, "-a", "race", "--engine", "duckdb", "--least-group", 5)
    assert "--least-group needs rows" in told


def test_nothing_is_loaded_or_sent(scores, tmp_path, monkeypatch):
    """No command opens a connection, and its page may load nothing and says so to the browser."""

    def refuse(*_, **__):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    page = tmp_path / "page.html"
    assert run("audit", scores, *COLUMNS, "-a", "race", "--html", page).exit_code == 0
    text = page.read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    policy = unescape(policy)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")
    # Namespaces of SVG are names, not addresses.
    places = set(re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(https?:[^"')\s]+)""", text))
    assert not places
