"""Monitoring of tables where they are, and of files of cells."""

from __future__ import annotations

import datetime
import weakref

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import dataset

import evenhand as eh
from evenhand.measures.cells import without_target

N = 4000
NAMES = {
    "time": "day", "y_true": "loss", "y_pred": "price", "sensitive_features": "region",
    "sample_weight": "weight",
}  # fmt: skip


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """A year and a bit without its May; some of unknown region."""
    rng = np.random.default_rng(0)
    day = np.datetime64("2023-11-20") + rng.integers(0, 400, N)
    region = rng.choice(np.array(["north", "south", None], dtype=object), N, p=[0.6, 0.38, 0.02])
    loss = rng.gamma(3.0, size=N)
    late = np.where(day >= np.datetime64("2024-08-01"), 2.0, 0.3)
    out = pd.DataFrame(
        {
            "day": pd.to_datetime(day), "region": region, "loss": loss,
            "price": loss + rng.normal(size=N) + late * (region == "south"),
            "weight": rng.uniform(0.5, 1.5, N), "week": rng.integers(1, 13, N),
        }
    )  # fmt: skip
    may = (out["day"] >= "2024-05-01") & (out["day"] < "2024-06-01")
    return out[~may].reset_index(drop=True)


@pytest.fixture(scope="module")
def files(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    for k in range(2):
        frame[k::2].to_parquet(folder / f"{k}.parquet", index=False)
        frame[k::2].to_csv(folder / f"{k}.csv", index=False)
    import duckdb

    with duckdb.connect(str(folder / "all.db")) as connection:
        connection.register("rows", frame)
        connection.execute("CREATE TABLE prices AS SELECT * FROM rows")
    return folder


def _dask(frame, files, request):
    import dask.dataframe as dd

    request.getfixturevalue("cluster")
    return dd.from_pandas(frame, npartitions=3)


def _ibis(frame, files, request):
    import ibis

    return ibis.duckdb.connect().read_parquet(str(files / "*.parquet"))


def _relation(frame, files, request):
    import duckdb

    return duckdb.connect().from_df(frame)


TABLES = {
    "pandas, DuckDB": lambda f, d, r: duckdb.from_df(f),
    "Polars lazy": lambda f, d, r: pl.from_pandas(f).lazy(),
    "Polars, files": lambda f, d, r: pl.scan_parquet(d / "*.parquet"),
    "Arrow": lambda f, d, r: duckdb.from_arrow(pa.Table.from_pandas(f)),
    "Arrow dataset": lambda f, d, r: dataset.dataset([str(d / f"{k}.parquet") for k in (0, 1)]),
    "DuckDB relation": _relation,
    "DuckDB file": lambda f, d, r: duckdb.connect(str(d / "all.db"), True).table("prices"),
    "DuckDB, glob": lambda f, d, r: str(d / "*.parquet"),
    "DuckDB, CSV": lambda f, d, r: [d / "0.csv", d / "1.csv"],
    "Ibis": _ibis,
    "Dask": _dask,
    "Spark": lambda f, d, r: r.getfixturevalue("spark").read.parquet(str(d / "*.parquet")),
}  # fmt: skip


@pytest.fixture(scope="module")
def expected(frame):
    return eh.monitor(frame, **NAMES, criteria=["independence", "separation"])


@pytest.mark.parametrize("name", TABLES)
def test_every_engine_sees_what_rows_in_memory_say(name, frame, files, expected, request):
    table = TABLES[name](frame, files, request)
    found = eh.monitor(table, **NAMES, criteria=["independence", "separation"])
    assert found.notes == expected.notes
    assert found.notes[-1] == "No rows in 2024-05: left out."
    assert found.notes[0] == "Rows count by the sample weights 'weight'."
    assert found.total.n == expected.total.n
    assert found.total.n_unknown == expected.total.n_unknown > 0
    assert found.total.labels == expected.total.labels
    for criterion, looks in expected.looks.items():
        for want, have in zip(looks, found.looks[criterion], strict=True):
            assert (have.period, have.n) == (want.period, want.n)
            # The grids differ by where the sample ends.
            assert have.value == pytest.approx(want.value, abs=0.1 * want.stderr)
    assert [(a.at, a.since) for a in found.alarms] == [(a.at, a.since) for a in expected.alarms]
    assert expected.alarms


@pytest.mark.parametrize("period", ["day", "week", "month", "quarter", "year", None])
def test_every_period_of_an_engine(period, frame, files):
    names = {**NAMES, "time": "day" if period else "week"}
    want = eh.monitor(frame, period=period, **names)
    found = eh.monitor(str(files / "*.parquet"), period=period, **names)
    assert found.periods == want.periods
    looks = zip(found.looks["independence"], want.looks["independence"], strict=True)
    for have, known in looks:
        assert have.n == known.n
        assert have.why == known.why
        if not known.why:
            assert have.value == pytest.approx(known.value, abs=0.1 * known.stderr)


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%Y/%m/%d", "%Y%m%d", "%m/%d/%Y", "%Y-%m-%dT%H:%M"])
@pytest.mark.parametrize("lazy", [False, True])
def test_dates_as_text_in_other_forms(form, lazy, frame):
    names = {**NAMES, "y_true": None}
    text = pl.DataFrame(frame.assign(day=frame["day"].dt.strftime(form)))
    have = eh.monitor(text.lazy() if lazy else text, **names)
    assert have.periods == eh.monitor(frame, **names).periods


def test_days_and_months_that_cannot_be_told_apart(frame):
    early = frame[frame["day"].dt.day <= 12]
    text = early.assign(day=early["day"].dt.strftime("%d/%m/%Y"))
    with pytest.raises(ValueError, match="of which month and day cannot be distinguished"):
        eh.monitor(text, **NAMES)


def test_dates_of_several_types_are_read_as_text():
    """A column of objects: texts of dates, and a date among them."""
    rng = np.random.default_rng(0)
    day = np.datetime64("2024-01-01") + np.arange(400)
    mixed = [day[k].item() if k == 150 else str(day[k]) for k in range(400)]
    table = pd.DataFrame({"d": pd.Series(mixed, dtype=object), "s": rng.normal(size=400),
                          "a": ["p", "q"] * 200})  # fmt: skip
    names = {"time": "d", "y_pred": "s", "sensitive_features": "a", "estimator": "logistic"}
    whole = eh.monitor(table.assign(d=day), period="quarter", **names)
    assert eh.monitor(table, period="quarter", **names).to_dict() == whole.to_dict()


def test_files_are_read_one_at_a_time(days, monkeypatch):
    """No more than one day is held while the next is read."""
    from evenhand.tables import monitor as module

    held, most, read = [], 0, module.read_parts

    def count(paths):
        nonlocal most
        most = max(most, sum(day() is not None for day in held))
        parts = read(paths)
        held.extend(map(weakref.ref, parts))
        return parts

    monkeypatch.setattr(module, "read_parts", count)
    eh.monitor(str(days / "*.cells"), criteria=["separation"])
    assert len(held) > 2 * len(list(days.glob("*.cells"))) - 1
    assert most <= 1


def test_what_an_engine_cannot_use(frame, files, tmp_path):
    path = str(files / "*.parquet")
    with pytest.raises(ValueError, match="has no column 'datum'"):
        eh.monitor(path, **{**NAMES, "time": "datum"})
    with pytest.raises(ValueError, match="`time` must name a column of the table, got None"):
        eh.monitor(path, **{**NAMES, "time": None})
    with pytest.raises(ValueError, match="`time` must hold dates, got values of type"):
        eh.monitor(path, **{**NAMES, "time": "week"})
    with pytest.raises(ValueError, match="`time` must hold dates, got text that is none"):
        eh.monitor(path, **{**NAMES, "time": "region"})
    with pytest.raises(ValueError, match="`time` must have at most 200 values"):
        eh.monitor(path, period=None, **NAMES)
    with pytest.raises(ValueError, match="has no column 'nobody'"):
        eh.monitor(path, cluster="nobody", **NAMES)
    names = np.where(frame.index % 2, "Monday", "Friday")
    turns = pd.Categorical(names, ["Monday", "Friday"], ordered=True)
    with pytest.raises(
        ValueError, match=r"whose names sort as they do, got \['Monday', 'Friday'\]"
    ):
        eh.monitor(frame.assign(day=turns), period=None, **NAMES)
    holes = frame.assign(day=frame["day"].where(frame.index > 9))
    holes.to_parquet(tmp_path / "holes.parquet")
    with pytest.raises(ValueError, match="`time` must be given in every row: 10 are missing"):
        eh.monitor(str(tmp_path / "holes.parquet"), **{**NAMES, "sensitive_features": "week"})
    with pytest.raises(ValueError, match="must be a frame with a column of dates"):
        eh.monitor({"day": frame["day"]}, **NAMES)


@pytest.fixture(scope="module")
def days(frame, tmp_path_factory):
    """Files of cells of each day of April 2024, of one grid."""
    folder = tmp_path_factory.mktemp("days")
    edges = None
    for k in range(1, 31):
        rows = frame[frame["day"] == datetime.datetime(2024, 4, k)]
        cells = eh.Cells.from_rows(
            rows["loss"], rows["price"], sensitive_features=rows["region"], edges=edges
        )
        edges = cells.edges
        cells.to_file(folder / f"{cells_name(k)}.cells")
    return folder


def cells_name(k: int) -> str:
    return f"2024-04-{k:02d}"


def test_files_of_cells_are_a_series(days, frame):
    found = eh.monitor(str(days / "*.cells"))
    assert found.periods == tuple(cells_name(k) for k in range(1, 31))
    april = frame[(frame["day"] >= "2024-04-01") & (frame["day"] < "2024-05-01")]
    month = eh.monitor(str(days / "*.cells"), period="month")
    assert month.periods == ("2024-04",)
    assert month.total.n + month.total.n_unknown == len(april)
    weeks = eh.monitor(sorted(days.glob("*.cells")), period="week")
    assert weeks.periods == ("2024-W14", "2024-W15", "2024-W16", "2024-W17", "2024-W18")
    named = eh.monitor({"b": days / "2024-04-02.cells", "a": days / "2024-04-01.cells"})
    assert named.periods == ("b", "a")


def test_numbers_in_names_are_the_order(days, tmp_path):
    for k in (9, 10, 11):
        (tmp_path / f"day {k}.cells").write_bytes((days / f"{cells_name(k)}.cells").read_bytes())
    assert eh.monitor(str(tmp_path / "*.cells")).periods == ("day 9", "day 10", "day 11")
    other = tmp_path / "x.cells"
    other.write_bytes((days / "2024-04-01.cells").read_bytes())
    listed = [other, tmp_path / "day 9.cells"]
    assert eh.monitor(listed).periods == ("x", "day 9")


def test_files_of_one_period_are_added_up_and_copies_refused(days, tmp_path):
    first, second = (days / f"{cells_name(k)}.cells" for k in (1, 2))
    other = tmp_path / first.name
    other.write_bytes(second.read_bytes())
    both = eh.monitor([first, other])
    assert both.periods == ("2024-04-01",)
    want = eh.Cells.from_file(first) + eh.Cells.from_file(second)
    assert both.total == without_target(want)
    assert eh.monitor([first, other], criteria=["separation"]).total == want
    other.write_bytes(first.read_bytes())
    with pytest.raises(ValueError, match="hold the same counts"):
        eh.monitor([first, other])


def test_other_edges_in_the_middle_are_named(days, frame, tmp_path):
    series = {cells_name(k): days / f"{cells_name(k)}.cells" for k in range(1, 6)}
    rows = frame[:500]
    odd = eh.Cells.from_rows(rows["loss"], rows["price"], sensitive_features=rows["region"])
    with pytest.raises(
        ValueError, match=r"those of '2024-04-03' \(number 3 of 5\) have other ones than those of"
    ):
        eh.monitor({**series, "2024-04-03": odd})
    again = tmp_path / "2024-04-01.cells"
    odd.to_file(again)
    with pytest.raises(ValueError, match="have other edges and cannot be added"):
        eh.monitor([days / "2024-04-01.cells", again])
    edges = eh.Cells.from_file(days / "2024-04-01.cells").edges
    other = eh.Cells.from_rows(
        rows["loss"], rows["price"], sensitive_features={"week": rows["week"]}, edges=edges
    )
    with pytest.raises(ValueError, match="cells of one attribute: those of 'x'"):
        eh.monitor({**series, "x": other})


def test_what_cells_cannot_use(days, tmp_path):
    pattern = str(days / "*.cells")
    with pytest.raises(ValueError, match="`cluster` must be left out for cells"):
        eh.monitor(pattern, cluster="who")
    with pytest.raises(ValueError, match="`time` must be left out for cells"):
        eh.monitor(pattern, time="day")
    with pytest.raises(ValueError, match="There is no file"):
        eh.monitor(str(tmp_path / "*.cells"))
    with pytest.raises(ValueError, match="must be left out for cells whose names are no dates"):
        eh.monitor({"a": days / "2024-04-01.cells"}, period="month")
    with pytest.raises(ValueError, match="no dates such as 2024-03-07"):
        eh.monitor({"2024-04": days / "2024-04-01.cells"}, period="week")
