"""Limits on the command line that cannot be met by how a table is dressed up."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from test_cli import error, run

import evenhand as eh
from evenhand.cli import tables as cli_tables
from evenhand.tables.audit_table import cells_of

N = 1200
ROLES = ("-y", "y", "-s", "s", "-a", "a")
QUICK = ("--estimator", "logistic")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    y, a = rng.normal(size=N), rng.choice(["p", "NA", "None"], N)
    return pd.DataFrame(
        {"y": y, "s": y + rng.normal(size=N), "a": a, "age": rng.integers(18, 90, N),
         "w": np.where(rng.random(N) < 0.1, 0.0, 1.5)}
    )  # fmt: skip


@pytest.fixture
def folder(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    return tmp_path


def labels(*words) -> list[str]:
    found = run("audit", *words, *ROLES, *QUICK, "--json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)["groups"]["group"]


@pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("engine", [None, "duckdb"])
def test_na_is_a_group_unless_it_is_said_to_be_none(folder, file, engine):
    words = (folder / file, *(() if engine is None else ("--engine", engine)))
    assert sorted(labels(*words)) == ["NA", "None", "p"]
    assert sorted(labels(*words, "--missing", "NA")) == ["None", "p"]


def test_one_limit_for_one_criterion(folder):
    twice = ("--fail-above", "separation=0.1", "--fail-above", "separation=0.9")
    assert "--fail-above names separation twice" in error("audit", folder / "t.csv", *ROLES, *twice)


def test_limits_are_not_met_by_leaving_rows_out(frame, tmp_path):
    holes = frame.assign(s=frame["s"].where(frame.index % 3 > 0))
    holes.to_csv(tmp_path / "holes.csv", index=False)
    tolerance = tmp_path / "t.toml"
    eh.Tolerance(independence=0.2).to_file(tolerance)
    words = (tmp_path / "holes.csv", *ROLES, *QUICK, "--drop-missing")
    found = run("audit", *words, "--fail-above", "independence=0.2")
    assert found.exit_code == 4
    assert "but not enough data: 400 rows (33.3%) have no known group" in found.output
    found = run("audit", *words, "--tolerance", tolerance)
    assert found.exit_code == 4
    assert "400 rows were left out by --drop-missing" in " ".join(found.output.split())
    assert run("audit", *words, "--fail-above", "independence=0.6").exit_code == 0


def test_models_that_are_compared_are_judged_too(frame, tmp_path):
    frame.assign(t=frame["s"] + 2 * (frame["a"] == "p")).to_csv(tmp_path / "t.csv", index=False)
    words = (tmp_path / "t.csv", *ROLES, "-s", "t", *QUICK, "--fail-above")
    found = run("compare", *words, "independence=0.2")
    assert found.exit_code == 1
    assert "independence (t): value" in found.output
    assert run("compare", *words, "independence=0.9").exit_code == 0


def test_an_unknown_size_is_no_pass(folder, monkeypatch):
    from evenhand.measures.measures import Measure

    monkeypatch.setattr(Measure, "unsized", property(lambda self: True))
    words = ("audit", folder / "t.csv", *ROLES, *QUICK, "--fail-above", "independence=0.9")
    assert run(*words, "--judge-by", "upper").exit_code == 4
    assert run(*words).exit_code == 4


def test_weights_are_named(folder, tmp_path):
    page = tmp_path / "page.html"
    assert run("audit", folder / "t.csv", *ROLES, "-w", "w", *QUICK, "--html", page).exit_code == 0
    assert "column w, zero in" in page.read_text()


def test_the_same_rows_under_two_names(frame, tmp_path):
    for name in ("one.csv", "two.csv"):
        frame.to_csv(tmp_path / name, index=False)
    text = error("audit", tmp_path / "one.csv", tmp_path / "two.csv", *ROLES)
    assert "hold the same bytes, and their people would count twice" in text


@pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
def test_ages_are_refused_before_rows_are_counted(folder, file, monkeypatch):
    from evenhand.tables.plan import Engine

    monkeypatch.setattr(Engine, "sample", lambda *_: pytest.fail("rows were drawn"))
    words = (folder / file, "-y", "y", "-s", "s", "-a", "age", "--engine", "duckdb")
    text = error("audit", *words)
    assert "got whole numbers with 72 distinct values, from 18 to 89" in text
    assert "such as --band age:42,66" in text


@pytest.mark.parametrize("file", ["t.csv", "t.parquet"])
def test_bands_of_an_engine_are_those_of_rows(folder, file):
    words = (folder / file, "-y", "y", "-s", "s", "-a", "age", "--band", "age:30,65", *QUICK)

    def groups(*more):
        table = json.loads(run("audit", *words, *more, "--json").stdout)["groups"]
        return dict(zip(table["group"], table["n"], strict=True))

    assert groups("--engine", "duckdb") == groups()
    assert set(groups()) == {"under 30", "30 to 64", "65 and over"}


def test_bands_of_dates(tmp_path):
    rng = np.random.default_rng(0)
    day = np.datetime64("1990-01-01") + rng.integers(0, 9000, 500)
    frame = pl.DataFrame({"s": rng.normal(size=500), "born": day.astype("datetime64[ms]")})
    frame = frame.with_columns(pl.col("born").cast(pl.Date))
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_csv(tmp_path / "t.csv")
    roles = {"y_true": None, "y_pred": "s", "sensitive_features": "born"}
    counts = [
        np.bincount(cells.group, cells.count).tolist()
        for name in ("t.parquet", "t.csv")
        for cells in [cells_of(tmp_path / name, **roles, bands={"born": ["2000-01-01"]})]
    ]
    late = int((day >= np.datetime64("2000-01-01")).sum())
    assert counts == [[late, 500 - late]] * 2 or counts == [[500 - late, late]] * 2


def test_a_large_file_goes_to_an_engine(folder, monkeypatch):
    monkeypatch.setattr(cli_tables, "LARGE", 1000)
    found = run("audit", folder / "t.csv", *ROLES, *QUICK)
    assert "its rows are counted by an engine" in " ".join(found.stderr.split())
    assert found.exit_code == 0
    # An option that needs rows keeps them in memory.
    found = run("audit", folder / "t.csv", *ROLES, *QUICK, "--drop-missing")
    assert "counted by an engine" not in found.stderr


def test_too_little_memory_is_said(folder, monkeypatch):
    from evenhand.auditing import audits

    def fail(*_, **__):
        raise MemoryError("Unable to allocate 9 GiB")

    monkeypatch.setattr(audits, "audit", fail)
    text = error("audit", folder / "t.csv", *ROLES)
    assert "not enough memory for this (Unable to allocate 9 GiB)" in text
    assert "--engine duckdb" in text


def test_imputed_groups_are_judged_where_it_is_said_what_holds(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.random(800)
    table = pd.DataFrame({"s": rng.normal(size=800), "p": p, "q": 1 - p})
    table.to_csv(tmp_path / "t.csv", index=False)
    words = ("audit", tmp_path / "t.csv", "-s", "s", "--probability", "p", "--probability", "q")
    words = (*words, *QUICK, "--fail-above", "independence=0.5")
    assert run(*words).exit_code == 4
    assert run(*words, "--assume", "guess").exit_code == 0


def moments() -> pd.DataFrame:
    """Labels that engines have types of their own for."""
    rng = np.random.default_rng(1)
    n = 300
    zone = timezone(timedelta(hours=2))
    kinds = {
        "price": [Decimal("1.10"), Decimal("2.00")],
        "day": [date(2024, 1, 1), date(2024, 2, 1)],
        "at": [datetime(2024, 1, 1, 12), datetime(2024, 1, 1)],
        "zone": [datetime(2024, 1, 1, 2, tzinfo=zone), datetime(2024, 3, 1, 2, 30, tzinfo=zone)],
    }
    code = rng.integers(0, 2, n)
    held = {name: [values[k] for k in code] for name, values in kinds.items()}
    return pl.DataFrame({"s": rng.normal(size=n) + code, **held})


@pytest.mark.parametrize("name", ["price", "day", "at", "zone"])
def test_cells_of_two_engines_merge(name, tmp_path):
    frame = moments()
    frame.write_parquet(tmp_path / "t.parquet")
    roles = {"y_true": None, "y_pred": "s", "sensitive_features": name}
    first = cells_of(tmp_path / "t.parquet", **roles)
    parts = [
        cells_of(pl.scan_parquet(tmp_path / "t.parquet"), **roles, edges=first.edges),
        cells_of(frame.to_arrow(), **roles, edges=first.edges),
        cells_of(pd.read_parquet(tmp_path / "t.parquet"), **roles, edges=first.edges),
    ]
    for part in parts:
        assert part.labels == first.labels
        assert (first + part).n == 2 * first.n
    first.to_file(tmp_path / "a.cells")
    assert eh.Cells.from_file(tmp_path / "a.cells").labels == first.labels


def test_names_of_columns_that_engines_confuse(tmp_path):
    rng = np.random.default_rng(1)
    frame = pl.DataFrame({
        "Score": rng.normal(size=200), "score": rng.normal(size=200) + 9.0,
        "a\nb": rng.choice(["x", "y"], 200),
    })  # fmt: skip
    roles = {"y_true": None, "y_pred": "score", "sensitive_features": "a\nb"}
    assert cells_of(frame.lazy(), **roles).least[:, 0].min() > 3.0
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_csv(tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        with pytest.raises(ValueError, match="which DuckDB takes for one"):
            cells_of(tmp_path / name, **roles)
        one = frame.drop("Score")
        one.write_parquet(tmp_path / "t.parquet")
        one.write_csv(tmp_path / "t.csv")
        assert cells_of(tmp_path / name, **roles).n == 200
        frame.write_parquet(tmp_path / "t.parquet")
        frame.write_csv(tmp_path / "t.csv")


def test_not_a_number_in_parquet_is_counted(frame, tmp_path):
    holes = frame.assign(y=frame["y"].where(frame.index > 6))
    pl.DataFrame(holes).with_columns(pl.col("y").fill_null(float("nan"))).write_parquet(
        tmp_path / "t.parquet"
    )
    text = error("audit", tmp_path / "t.parquet", *ROLES, "--engine", "duckdb")
    assert "7 of 1,200 rows of column 'y' are NULL, NaN or infinity" in text


def test_cells_without_a_checksum(frame, tmp_path):
    from pyarrow import parquet

    cells = eh.Cells.from_rows(None, frame["s"], sensitive_features=frame["a"])
    parquet.write_table(cells.to_arrow(), tmp_path / "x.cells")
    assert "holds cells without a checksum" in error("audit", tmp_path / "x.cells")


def test_short_options_mean_one_thing():
    from typer.main import get_command

    from evenhand.cli.app import app

    meanings: dict[str, set[str]] = {}
    for command in get_command(app).commands.values():
        for option in command.params:
            for short in (name for name in option.opts if len(name) == 2):
                meanings.setdefault(short, set()).add(max(option.opts, key=len))
    assert {short: names for short, names in meanings.items() if len(names) > 1} == {}


def test_predictions_keep_the_dialect_of_their_input(tmp_path):
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=300), rng.choice(["Zürich", "Genève"], 300)
    frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=300), "a": a, "n": "1,50"})
    frame.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False, encoding="cp1252")
    out = tmp_path / "fair"
    words = ("-y", "y", "-a", "a", "--drop", "n", "-m", "0.9", "--points", "3", "--folds", "2")
    done = run("frontier", tmp_path / "t.csv", *words, "-o", out)
    assert done.exit_code == 0, done.output
    done = run("predict", out, tmp_path / "t.csv", "-o", tmp_path / "scored.csv")
    assert done.exit_code == 0, done.output
    scored = pd.read_csv(tmp_path / "scored.csv", sep=";", decimal=",", encoding="cp1252")
    assert scored["prediction"].dtype == float
    assert sorted(set(scored["a"])) == ["Genève", "Zürich"]
    text = (tmp_path / "scored.csv").read_bytes().decode("cp1252").splitlines()
    before = (tmp_path / "t.csv").read_bytes().decode("cp1252").splitlines()
    assert [line.rpartition(";")[0] for line in text] == before


def test_no_progress_bar_of_an_engine(folder):
    """It would be among the results on standard output."""
    from evenhand.tables.engines import _connect

    ((shown,),) = _connect().sql("SELECT current_setting('enable_progress_bar')").fetchall()
    assert not shown


@pytest.mark.parametrize("more", [(), ("--engine", "duckdb")])
def test_dates_of_a_csv_file_in_another_form(more, frame, tmp_path):
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N) % 60, "D")
    frame.assign(day=days.strftime("%d.%m.%Y")).to_csv(tmp_path / "t.csv", index=False)
    words = ("monitor", tmp_path / "t.csv", "-s", "s", "-a", "a", *QUICK, *more, "--json")
    found = json.loads(run(*words, "--time", "day", "--missing", "NA").stdout)
    assert [look["period"] for look in found["looks"]["independence"]] == ["2024-01", "2024-02"]
    known = int((frame["a"] != "NA").sum())
    assert sum(look["n"] for look in found["looks"]["independence"]) == known
    assert "--time must hold dates" in error(*words, "--time", "age")
    if not more:
        text = error(*words, "--time", "day", "-a", "age")
        assert "got whole numbers with 72 distinct values" in text
