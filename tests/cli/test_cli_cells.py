"""Cells and tables that stay where they are, on the command line."""

from __future__ import annotations

import json
import os
import pty
import threading
import time

import numpy as np
import pandas as pd
import pytest
from test_cli import error, run

import evenhand as eh
from evenhand._core import progress
from evenhand.cli.app import main
from evenhand.tables.plan import Engine

N = 600
ROLES = ("--target", "y", "--prediction", "s", "--sensitive", "a")


def rows(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a = rng.choice(["p", "q"], N)
    y = rng.normal(size=N)
    return pd.DataFrame({"a": a, "y": y, "s": y + (a == "p") + rng.normal(size=N)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    for seed in (0, 1):
        rows(seed).to_parquet(path / f"{seed}.parquet", index=False)
    return path


def values(*arguments) -> dict[str, float]:
    result = run("audit", *arguments, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    return {name: m["value"] for name, m in found["measures"].items()}


def test_parts_are_counted_merged_and_audited(folder, tmp_path):
    first, second = tmp_path / "a.cells", tmp_path / "b.cells"
    done = run("cells", folder / "0.parquet", *ROLES, "--out", first)
    assert done.exit_code == 0, done.output
    assert "600 people in" in done.output
    assert (
        run("cells", folder / "1.parquet", *ROLES, "--out", second, "--edges", first).exit_code == 0
    )
    for twice in ((first, first), (folder / "0.parquet", folder / "0.parquet", *ROLES)):
        assert "is named twice" in error("audit", *twice)
    copy = tmp_path / "copy.cells"
    copy.write_bytes(first.read_bytes())
    assert "hold the same counts" in error("audit", first, copy)
    merged = values(first, second)
    both = pd.concat([rows(0), rows(1)])
    exact = eh.audit(both["y"], both["s"], sensitive_features=both[["a"]])
    for name, m in exact.measures.items():
        assert abs(merged[name] - m.value) < 0.1 * m.stderr
    counted = values(folder / "*.parquet", *ROLES, "--engine", "duckdb")
    assert counted == pytest.approx(values(folder / "0.parquet", folder / "1.parquet", *ROLES))
    assert counted["separation"] == pytest.approx(merged["separation"], rel=0.05)


def test_controls_are_counted_with_the_groups(folder, tmp_path):
    rows_ = rows(0).assign(c=lambda f: np.where(f["y"] > 0, "high", "low"))
    rows_.to_parquet(tmp_path / "x.parquet", index=False)
    found = [
        json.loads(run("audit", tmp_path / "x.parquet", *ROLES, "-c", "c", "--json", *more).stdout)
        for more in ((), ("--engine", "duckdb"))
    ]
    gaps = [audit["conditional"]["gaps"][0]["adjusted"] for audit in found]
    assert gaps[1]["value"] == pytest.approx(gaps[0]["value"], abs=0.15 * gaps[0]["stderr"])
    assert found[1]["conditional"]["controls"] == ["c"]


def test_a_report_says_what_it_was_made_from(folder, tmp_path):
    page = tmp_path / "report.html"
    done = run("audit", str(folder / "*.parquet"), *ROLES, "--html", page)
    assert done.exit_code == 0, done.output
    assert "bins of score and target" in page.read_text()


def test_small_cells_are_left_out_and_the_file_says_so(folder, tmp_path):
    out = tmp_path / "few.cells"
    done = run(
        "cells", folder / "0.parquet", *ROLES, "--out", out, "--bins", "8", "--min-count", "5"
    )
    assert done.exit_code == 0, done.output
    assert "of fewer than 5 were left out" in done.output
    read = run("audit", out)
    assert "of fewer than 5 were left out" in read.output
    assert "--min-count must leave some cells" in error(
        "cells",
        folder / "0.parquet",
        *ROLES,
        "--out",
        tmp_path / "none.cells",
        "--min-count",
        "99999",
    )
    assert not (tmp_path / "none.cells").exists()


def test_options_are_checked(folder, tmp_path):
    table, out = folder / "0.parquet", tmp_path / "x.cells"
    assert "must end in .cells" in error("cells", table, *ROLES, "--out", tmp_path / "x.parquet")
    assert run("cells", table, *ROLES, "--out", out, "--bins", "8").exit_code == 0
    assert "exists already" in error("cells", table, *ROLES, "--out", out)
    assert "must not both be given" in error(
        "cells", table, *ROLES, "--out", out, "--force", "--edges", out, "--bins", "9"
    )
    other = tmp_path / "y.cells"
    assert run("cells", table, *ROLES, "--out", other, "--bins", "9").exit_code == 0
    assert "have other edges and cannot be added up" in error("audit", out, other)
    assert "must not be mixed" in error("audit", out, table)
    assert "--target must be left out for files of cells" in error("audit", out, "--target", "y")
    assert "--cluster needs rows" in error("audit", out, "--cluster", "y")
    assert "which hold no controls" in error("audit", out, "--control", "y")
    assert "at most 200 levels" in error("audit", table, *ROLES, "--engine", "duckdb", "-c", "y")
    assert "There is no file" in error("audit", str(tmp_path / "*.parquet"), *ROLES)
    out.write_bytes(out.read_bytes()[:500])
    assert "not a whole file of cells" in error("audit", out)


class Terminal:
    """A real one, and a thread that reads what arrives on its screen."""

    def __init__(self):
        screen, keyboard = pty.openpty()
        self.seen, self.stderr = b"", os.fdopen(keyboard, "w")
        self.reader = threading.Thread(target=self._read, args=(screen,))
        self.reader.start()

    def _read(self, screen: int) -> None:
        try:
            while part := os.read(screen, 1 << 16):
                self.seen += part
        except OSError:  # the other end is closed
            os.close(screen)

    def close(self) -> bytes:
        self.stderr.close()
        self.reader.join()
        return self.seen


@pytest.mark.parametrize(("terminal", "after", "shown"), [(1, 0.0, 1), (1, 1e6, 0), (0, 0.0, 0)])
def test_work_is_shown_on_a_terminal_if_it_is_slow(
    terminal, after, shown, folder, monkeypatch, capsys
):
    """The time that counts as slow is made short, and queries wait until their text is there."""
    assert progress.PROGRESS_AFTER == 2.0
    monkeypatch.setattr(progress, "PROGRESS_AFTER", after)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.argv", ["evenhand", "audit", str(folder / "*.parquet"), *ROLES])
    screen, query = Terminal(), Engine.run

    def wait_and_run(self, *arguments):
        while shown and progress._sign.status.encode() not in screen.seen:
            time.sleep(0.01)
        return query(self, *arguments)

    monkeypatch.setattr(Engine, "run", wait_and_run)
    if terminal:
        monkeypatch.setattr("sys.stderr", screen.stderr)
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        seen = screen.close()
    results, errors = capsys.readouterr()
    assert end.value.code == 0
    assert "1,200 rows" in results
    for text in ("Looking at the table", "Counting 1,200 rows", "Measuring"):
        assert (text in seen.decode() + errors) == bool(shown)


def test_an_engine_that_is_not_known(folder):
    refused = run("audit", folder / "0.parquet", *ROLES, "--engine", "oracle")
    assert refused.exit_code == 2
    assert "--engine must be duckdb, got 'oracle'. Hint" in refused.output
