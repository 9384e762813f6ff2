"""Tables and files that are not as they should be: the right answer or a clear error."""

from __future__ import annotations

import re
from importlib import import_module

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

import evenhand as eh
from evenhand.measures.cell_files import suppress, suppressed_in, write_cells
from evenhand.tables.audit_table import cells_of, columns_of
from evenhand.tables.engines import open_table

ROLES = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}
N = 400
ENGINES = ("duckdb", "polars")


def rows(**changed) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    found = pd.DataFrame(
        {"s": rng.normal(size=N), "y": rng.normal(size=N), "a": rng.choice(["p", "q"], N)}
    )
    return found.assign(**changed)


def held(frame, engine):
    """A frame of Polars where an engine has it."""
    if engine == "numpy":
        return frame
    return frame.lazy() if engine == "polars" else duckdb.from_arrow(frame.to_arrow())


def counted(frame, engine, **roles):
    return cells_of(held(pl.from_pandas(frame), engine), **{**ROLES, **roles})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, None])
@pytest.mark.parametrize(("column", "argument"), [("s", "y_pred"), ("y", "y_true")])
def test_numbers_that_are_none_are_counted_and_refused(engine, bad, column, argument):
    frame = pl.from_pandas(rows())
    values = frame[column].to_list()
    values[3] = values[7] = bad
    frame = frame.with_columns(pl.Series(column, values, dtype=pl.Float64))
    with pytest.raises(ValueError, match=rf"`{argument}` must be finite: 2 of 400 rows of column"):
        cells_of(held(frame, engine), **ROLES)


@pytest.mark.parametrize("engine", ENGINES)
def test_gaps_in_groups_are_counted(engine):
    frame = pl.from_pandas(rows()).with_columns(
        number=pl.Series([1.0, 2.0, float("nan"), None] * (N // 4)),
        switch=pl.Series([True, False] * (N // 2)),
    )
    roles = {**ROLES, "sensitive_features": ["number", "switch"]}
    found = cells_of(held(frame, engine), **roles)
    assert found.labels == ((1, True), (2, False))
    assert found.n_unknown == N // 2
    assert found.n == N // 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("changed", "roles", "message"),
    [
        ({}, {"y_pred": "S core"}, r"`y_pred` must be a column of the table: there is no 'S core'"),
        ({}, {"y_true": "a"}, r"`y_true` must be numbers: column 'a' of the table holds text"),
        ({"w": -1.0}, {"sample_weight": "w"}, r"`sample_weight` must be nonnegative, got -1.0"),
        ({"w": 0.0}, {"sample_weight": "w"}, r"`sample_weight` must not be zero in every row"),
        ({"w": 0}, {"frequency": "w"}, r"`frequency` must not be zero in every row"),
        ({"w": 0.5}, {"frequency": "w"}, r"`frequency` must be whole numbers: 400 rows"),
        ({"w": 2.0**50}, {"frequency": "w"}, r"`frequency` must add up to fewer than 2\^53"),
        ({"s": 1e300}, {}, "numbers whose squares can be added up"),
        ({"g": [f"g{k}" for k in range(N)]}, {"sensitive_features": "g"}, "at most 200 levels"),
        ({"g": [f"g{k % 250}" for k in range(N)]}, {"sensitive_features": "g"}, "at most 200"),
        ({"g": [k % 60 for k in range(N)]}, {"sensitive_features": "g"}, r"evenhand\.bands"),
    ],
)  # fmt: skip
def test_columns_are_checked(engine, changed, roles, message):
    if changed.get("s"):
        changed = {"s": np.where(np.arange(N) % 2, 1e300, 0.0)}
    with pytest.raises(ValueError, match=message):
        counted(rows(**changed), engine, **roles)


def test_names_are_checked():
    frame = rows()
    for roles, message in (
        ({"y_pred": frame["s"]}, "`y_pred` must be the name of a column, got Series"),
        ({"y_pred": None}, "`y_pred` must be the name of a column, got NoneType"),
        ({"sensitive_features": frame["a"]}, "`sensitive_features` must be the name of a column"),
        ({"sensitive_features": ["a", "a"]}, "must be distinct columns"),
    ):
        with pytest.raises(ValueError, match=message):
            cells_of(frame, **{**ROLES, **roles})
    with pytest.raises(ValueError, match="`table` must be a path"):
        cells_of(np.zeros((3, 3)), **ROLES)


def test_what_needs_rows_is_refused():
    with pytest.raises(ValueError, match="`cluster` must be left out: errors by cluster need rows"):
        eh.audit_table(rows(), **ROLES, cluster="a")
    with pytest.raises(ValueError, match="`estimator` must be auto, logistic or lspc"):
        eh.audit_table(rows(), **ROLES, estimator="knn")


def test_quotes_and_spaces_in_names_are_only_names():
    odd = {"s": 'the "score" -- x', "y": "sum(y)", "a": "place"}
    frame = rows().rename(columns=odd)
    found = cells_of(
        duckdb.from_df(frame), y_true=odd["y"], y_pred=odd["s"], sensitive_features=odd["a"]
    )
    assert found == cells_of(frame, y_true=odd["y"], y_pred=odd["s"], sensitive_features=odd["a"])


def test_very_large_weights_are_scaled():
    frame = rows(w=np.linspace(1, 2, N) * 1e200)
    found = counted(frame, "duckdb", sample_weight="w")
    own = counted(frame, "numpy", sample_weight="w")
    np.testing.assert_allclose(found.sums, own.sums, rtol=1e-9, atol=1e-12)


def write(folder, **tables):
    for name, frame in tables.items():
        parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False),
                            folder / f"{name}.parquet")  # fmt: skip
    return str(folder / "*.parquet")


def test_files_that_do_not_fit_together(tmp_path):
    path = write(tmp_path, one=rows())
    (tmp_path / "two.parquet").write_bytes((tmp_path / "one.parquet").read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"two\.parquet' is not a whole Parquet file"):
        cells_of(path, **ROLES)
    with pytest.raises(ValueError, match="There is no file"):
        cells_of(str(tmp_path / "none*.parquet"), **ROLES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="is a folder without Parquet files"):
        cells_of(tmp_path / "empty", **ROLES)
    rows().to_csv(tmp_path / "three.csv", index=False)
    with pytest.raises(ValueError, match="files of one kind"):
        cells_of([tmp_path / "one.parquet", tmp_path / "three.csv"], **ROLES)
    rows().drop(columns="y").to_csv(tmp_path / "four.csv", index=False)
    with pytest.raises(ValueError, match=r"four\.csv' has no column 'y'"):
        cells_of(str(tmp_path / "*.csv"), **ROLES)
    with pytest.raises(ValueError, match="has neither ending"):
        cells_of(__file__, **ROLES)


def test_text_among_the_numbers_of_a_csv_file(tmp_path):
    text = rows(y=rows()["y"].astype(str).where(np.arange(N) != 390, "much"))
    text.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match="`table` cannot be read by"):
        cells_of(tmp_path / "a.csv", **ROLES)


def read(folder, name, request):
    """Two files as one table, read by an engine itself or by us."""
    pattern = str(folder / "*.parquet")
    if name == "Polars":
        return pl.scan_parquet(pattern)
    if name == "Arrow":
        from pyarrow import dataset

        return dataset.dataset(sorted(map(str, folder.glob("*.parquet"))))
    if name == "Ibis":
        import ibis

        return ibis.duckdb.connect().read_parquet(pattern)
    if name == "Dask":
        import dask.dataframe as dd

        request.getfixturevalue("cluster")
        return dd.read_parquet(pattern)
    if name == "Spark":
        return request.getfixturevalue("spark").read.parquet(pattern)
    return pattern


@pytest.mark.parametrize("name", ["files", "Polars", "Spark", "Arrow", "Ibis", "Dask"])
def test_a_file_that_disappears(name, tmp_path, request, monkeypatch):
    """After the queries for the grid and before the one that counts."""
    tables = import_module("evenhand.tables.audit_table")

    def made(*arguments):
        found = edges(*arguments)
        (tmp_path / "b.parquet").unlink()
        return found

    edges = tables._edges
    monkeypatch.setattr(tables, "_edges", made)
    write(tmp_path, a=rows(), b=rows()[::-1])
    table = read(tmp_path, name, request)
    message = "changed while it was read: of 800 people 400|cannot be read by .*b.parquet"
    with pytest.raises(ValueError, match=message) as caught:
        cells_of(table, **ROLES)
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("engine", ENGINES)
def test_no_rows(engine):
    with pytest.raises(ValueError, match="`table` must hold at least one row"):
        counted(rows()[:0], engine)


@pytest.fixture
def cells():
    return cells_of(rows(), **ROLES)


def test_files_of_cells_come_back_whole(cells, tmp_path):
    path = tmp_path / "part.cells"
    cells.to_file(path)
    assert eh.Cells.from_file(path) == cells
    with pytest.raises(FileExistsError, match="exists already"):
        cells.to_file(path)
    cells.to_file(path, force=True)
    assert suppressed_in(path) == ""
    with pytest.raises(ValueError, match="There is no file"):
        eh.Cells.from_file(tmp_path / "none.cells")


def test_small_cells_are_left_out_and_told_of(tmp_path):
    cells = cells_of(rows(), **ROLES, edges=6)
    few, lost = suppress(cells, 5)
    assert few.count.min() >= 5
    gone = int((cells.count < 5).sum())
    assert lost.startswith(
        f"{N - few.n:,} people in {gone:,} entries of fewer than 5 were left out"
    )
    shares = [
        1 - few.count[few.group == k].sum() / cells.count[cells.group == k].sum() for k in (0, 1)
    ]
    assert [float(text) for text in re.findall(r"([0-9.]+)% of", lost)] == pytest.approx(
        [100 * share for share in shares], abs=0.051
    )
    write_cells(few, tmp_path / "few.cells", suppressed=lost)
    assert suppressed_in(tmp_path / "few.cells") == lost
    with pytest.raises(ValueError, match="`min_count` must leave some cells"):
        suppress(cells, 10**6)
    with pytest.raises(ValueError, match="`min_count` must be an integer"):
        suppress(cells, 0)


def test_duckdb_draws_no_progress_bar(tmp_path):
    """It would be among the results on standard output."""
    write(tmp_path, a=rows())
    for table in (str(tmp_path / "a.parquet"), dataset.dataset(tmp_path / "a.parquet")):
        opened = open_table(table, columns_of(**ROLES))
        asked = "SELECT current_setting('enable_progress_bar')"
        assert opened.rows.to_native().query("rows", asked).fetchall() == [(False,)]
