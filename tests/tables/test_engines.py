"""Every engine counts the same cells, which are those of the rows in memory."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet

import evenhand as eh
from evenhand.tables.audit_table import cells_of, columns_of
from evenhand.tables.engines import open_table

NAMES = ["sex", "region"]
ROLES = {
    "y_true": "outcome", "y_pred": "the score", "sensitive_features": NAMES,
    "sample_weight": "weight", "frequency": "people",
}  # fmt: skip
N = 2500


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Gaps in both attributes, an empty text, weights and frequencies of 0, a far mean."""
    rng = np.random.default_rng(3)
    sex = rng.choice(np.array(["f", "m", "", None], dtype=object), N, p=[0.5, 0.4, 0.05, 0.05])
    outcome = rng.gamma(3.0, size=N)
    score = 1e4 + outcome + 0.4 * (sex == "m") + rng.normal(size=N)
    return pd.DataFrame(
        {
            "sex": sex,
            "region": rng.integers(0, 2, N),
            "outcome": outcome,
            "the score": score,
            "weight": np.where(rng.random(N) < 0.1, 0.0, rng.random(N)),
            "people": rng.integers(0, 3, N),
        }
    )


@pytest.fixture(scope="module")
def files(frame, tmp_path_factory):
    """Parquet in three files, CSV in two, a database; one part has one group, one no row."""
    folder = tmp_path_factory.mktemp("tables")
    first = frame[frame["sex"] == "f"]
    for name, part in {"a": first, "b": frame.drop(first.index), "c": frame[:0]}.items():
        table = pa.Table.from_pandas(part, preserve_index=False, schema=_schema())
        parquet.write_table(table, folder / f"{name}.parquet")
    frame[:1000].to_csv(folder / "a.csv", index=False)
    frame[1000:].to_csv(folder / "b.csv", index=False)
    import duckdb

    with duckdb.connect(str(folder / "all.db")) as connection:
        connection.register("rows", frame)
        connection.execute('CREATE TABLE "the rows" AS SELECT * FROM rows')
    return folder


def _schema() -> pa.Schema:
    number = pa.float64()
    return pa.schema(
        {"sex": pa.string(), "region": pa.int64(), "outcome": number, "the score": number,
         "weight": number, "people": pa.int64()}
    )  # fmt: skip


def _ibis(frame, files, request):
    import ibis

    return ibis.duckdb.connect().read_parquet(str(files / "*.parquet"))


def _relation(frame, files, request):
    import duckdb

    return duckdb.connect().from_df(frame)


def _dask(frame, files, request):
    import dask.dataframe as dd

    request.getfixturevalue("cluster")
    ordered = frame.sort_values("sex", na_position="first", ignore_index=True)
    parts = dd.from_pandas(ordered, npartitions=4, sort=False)
    return dd.concat([parts, parts.partitions[[0]].query("people > 99")])


TABLES = {
    "numpy": lambda f, d, r: {name: f[name].to_numpy() for name in f},
    "pandas": lambda f, d, r: f,
    "pandas, DuckDB": lambda f, d, r: duckdb.from_df(f),
    "Polars": lambda f, d, r: pl.from_pandas(f),
    "Polars lazy": lambda f, d, r: pl.from_pandas(f).lazy(),
    "Polars, files": lambda f, d, r: pl.scan_parquet(d / "*.parquet"),
    "Arrow": lambda f, d, r: duckdb.from_arrow(pa.Table.from_pandas(f)),
    "Arrow dataset": lambda f, d, r: dataset.dataset(
        [str(d / f"{name}.parquet") for name in "abc"]
    ),
    "DuckDB relation": _relation,
    "DuckDB file": lambda f, d, r: duckdb.connect(str(d / "all.db"), True).table('"the rows"'),
    "DuckDB, glob": lambda f, d, r: str(d / "*.parquet"),
    "DuckDB, folder": lambda f, d, r: d,
    "DuckDB, CSV": lambda f, d, r: [d / "a.csv", d / "b.csv"],
    "Ibis": _ibis,
    "Dask": _dask,
    "Spark": lambda f, d, r: r.getfixturevalue("spark").read.parquet(str(d / "*.parquet")),
}  # fmt: skip


@pytest.fixture(scope="module")
def expected(frame):
    known = frame.assign(sex=frame["sex"].replace("", None))
    return eh.Cells.from_rows(
        known["outcome"], known["the score"], sensitive_features=known[NAMES],
        sample_weight=known["weight"], frequency=known["people"],
    )  # fmt: skip


@pytest.fixture(params=list(TABLES))
def table(request, frame, files):
    found = TABLES[request.param](frame, files, request)
    return found, request.param


def test_every_engine_counts_the_cells_of_the_rows(table, expected):
    rows, name = table
    cells = cells_of(rows, **ROLES)
    if "CSV" in name:  # codes of groups stay text there
        assert cells.labels == tuple((a, str(b)) for a, b in expected.labels)
    else:
        assert cells.labels == expected.labels
    assert cells.names == expected.names
    assert cells.n_unknown == expected.n_unknown
    assert cells.edges == expected.edges
    # No row of this table lies within rounding of an edge, so all cells are the same.
    for column in ("score_bin", "target_bin", "group", "count", "least", "largest"):
        np.testing.assert_array_equal(getattr(cells, column), getattr(expected, column))
    np.testing.assert_allclose(cells.sums, expected.sums, rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def exact(frame):
    """By `logistic`: for `auto`, people who share a score that nobody else has pass for copies."""
    known = frame.assign(sex=frame["sex"].replace("", None))
    return eh.audit(
        known["outcome"], known["the score"], sensitive_features=known[["sex"]],
        sample_weight=known["weight"], frequency=known["people"], estimator="logistic",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["pandas", "DuckDB, glob", "Polars lazy"])
def test_audits_are_those_of_the_rows(name, frame, files, exact, request):
    rows = TABLES[name](frame, files, request)
    found = eh.audit_table(rows, **{**ROLES, "sensitive_features": "sex"}, estimator="logistic")
    assert found.n_rows == exact.n_rows
    assert found.n_unknown == exact.n_unknown
    assert found.labels == exact.labels
    assert found.r2 == pytest.approx(exact.r2)
    for criterion, measure in exact.measures.items():
        other = found.measures[criterion]
        assert abs(other.value - measure.value) < 0.1 * measure.stderr


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_without_a_target_or_weights(engine, frame):
    rows = pl.from_pandas(frame).lazy() if engine == "polars" else duckdb.from_df(frame)
    found = cells_of(rows, y_true=None, y_pred="the score", sensitive_features="region")
    own = eh.Cells.from_rows(None, frame["the score"], sensitive_features=frame[["region"]])
    assert found.labels == own.labels == (0, 1)
    assert found.edges == own.edges
    np.testing.assert_array_equal(found.count, own.count)
    np.testing.assert_allclose(found.sums, own.sums, rtol=1e-12, atol=1e-9)
    assert eh.audit(found).n_rows == N


@pytest.mark.parametrize("name", ["DuckDB relation", "Polars lazy", "Ibis", "Dask"])
def test_scores_close_to_a_line_have_bins_of_the_residual(name, frame, files, request):
    rng = np.random.default_rng(0)
    line = frame.assign(**{"the score": 2 * frame["outcome"] + 0.01 * rng.normal(size=N)})
    for part in ("a", "b"):  # for engines that read files
        parquet.write_table(
            pa.Table.from_pandas(line[:1000] if part == "a" else line[1000:], preserve_index=False),
            files / f"line-{part}.parq",
        )
    if name == "Ibis":
        import ibis

        rows = ibis.duckdb.connect().read_parquet(str(files / "line-*.parq"))
    else:
        rows = TABLES[name](line, files, request)
    found = cells_of(rows, y_true="outcome", y_pred="the score", sensitive_features="region")
    own = eh.Cells.from_rows(
        line["outcome"], line["the score"], sensitive_features=line[["region"]]
    )
    assert found.edges.slope == pytest.approx(own.edges.slope)
    assert found.edges.score.low == pytest.approx(own.edges.score.low)
    same = cells_of(
        rows, y_true="outcome", y_pred="the score", sensitive_features="region", edges=own.edges
    )
    np.testing.assert_array_equal(same.count, own.count)


def test_every_engine_has_the_grid_of_the_rows_in_memory_where_it_draws_a_sample():
    import duckdb
    import ibis

    rng = np.random.default_rng(0)
    n = 500_000
    rows = pl.DataFrame(
        {"s": rng.normal(size=n), "y": rng.normal(size=n), "a": rng.integers(0, 2, n)}
    )
    columns = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}
    own = cells_of(rows, **columns)
    view = duckdb.connect()
    for table in (view.from_arrow(rows.to_arrow()), rows.lazy(), ibis.memtable(rows)):
        found = cells_of(table, **columns)
        assert found.n == n
        assert found.edges == own.edges
        np.testing.assert_array_equal(found.count, own.count)


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
def test_bins_are_clipped_where_values_lie_beyond_the_grid(engine, frame):
    rows = pl.from_pandas(frame).lazy() if engine == "polars" else duckdb.from_df(frame)
    columns = {"y_true": "outcome", "y_pred": "the score", "sensitive_features": "region"}
    few = frame[frame["outcome"].between(2.0, 4.0)]
    edges = cells_of(few, **columns).edges
    found = cells_of(rows, **columns, edges=edges)
    assert found.target_bin.max() == edges.bins - 1
    own = cells_of(frame, **columns, edges=edges)
    np.testing.assert_array_equal(found.count, own.count)
    np.testing.assert_allclose(found.sums, own.sums, rtol=1e-12, atol=1e-9)


def test_rows_that_come_while_a_table_is_read_are_noticed(frame):
    columns = columns_of("outcome", "the score", "region")
    opened = open_table(duckdb.from_df(frame), columns)
    edges = cells_of(frame, y_true="outcome", y_pred="the score", sensitive_features="region").edges
    facts = opened.facts(columns)
    assert opened.cells(columns, edges, facts).n == N
    later = frame.assign(outcome=frame["outcome"] * 2)
    with pytest.raises(ValueError, match="`table` changed while it was read"):
        open_table(duckdb.from_df(later), columns).cells(columns, edges, facts)


@pytest.mark.parametrize("name", ["DuckDB, glob", "Polars, files", "Polars lazy", "DuckDB file"])
@pytest.mark.parametrize("more", [{}, {"frequency": None, "y_true": None}])
def test_rows_that_are_handed_over_give_the_same_cells(name, more, frame, files, monkeypatch):
    from evenhand.tables import plan

    roles = {**ROLES, **more}
    table = TABLES[name](frame, files, None)
    want = cells_of(table, **roles)
    monkeypatch.setattr(plan, "STREAMED", 0)
    monkeypatch.setattr(plan.Engine, "_cells", lambda *_: pytest.fail("the engine counted"))
    found = cells_of(table, **roles)
    assert found.labels == want.labels
    assert found.n_unknown == want.n_unknown
    for key in ("score_bin", "target_bin", "group", "count", "least", "largest"):
        np.testing.assert_array_equal(getattr(found, key), getattr(want, key))
    np.testing.assert_allclose(found.sums, want.sums, rtol=1e-9, atol=1e-9)
