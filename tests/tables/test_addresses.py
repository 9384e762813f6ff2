"""Tables of a database that Ibis connects to."""

from __future__ import annotations

import contextlib
import sqlite3

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.tables.audit_table import cells_of

ROLES = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}
N = 500


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(4)
    y = rng.normal(size=N)
    return pd.DataFrame({"y": y, "s": y - 3 + rng.normal(size=N), "a": rng.choice(["p", "q"], N)})


@pytest.fixture(scope="module")
def databases(frame, tmp_path_factory):
    import duckdb

    folder = tmp_path_factory.mktemp("databases")
    with duckdb.connect(str(folder / "one.db")) as connection:
        connection.register("rows", frame)
        connection.execute("CREATE SCHEMA marts; CREATE TABLE people AS SELECT * FROM rows")
        connection.execute('CREATE TABLE marts."all of them" AS SELECT * FROM rows')
    with contextlib.closing(sqlite3.connect(folder / "two.db")) as connection, connection:
        connection.execute("CREATE TABLE people (y REAL, s REAL, a TEXT)")
        rows = frame.itertuples(index=False)
        connection.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    return {"duckdb": f"duckdb://{folder}/one.db", "sqlite": f"sqlite://{folder}/two.db"}


@pytest.mark.parametrize(
    ("kind", "name", "schema"),
    [("duckdb", "people", None), ("duckdb", "all of them", "marts"), ("sqlite", "people", None)],
)
def test_tables_are_counted_where_they_are(kind, name, schema, databases, frame):
    import ibis

    table = ibis.connect(databases[kind]).table(name, database=schema)
    found = cells_of(table, **ROLES)
    own = cells_of(frame, **ROLES)
    assert found.edges == own.edges
    assert found.labels == own.labels
    np.testing.assert_array_equal(found.count, own.count)
    np.testing.assert_allclose(found.sums, own.sums, rtol=1e-12, atol=1e-12)
    audit = eh.audit_table(table, **ROLES)
    exact = eh.audit(frame["y"], frame["s"], sensitive_features=frame[["a"]])
    for criterion, measure in exact.measures.items():
        assert abs(audit.measures[criterion].value - measure.value) < 0.1 * measure.stderr


def test_text_in_a_column_of_numbers_is_not_zero(tmp_path):
    """SQLite keeps what it is given, and casts what is no number to 0."""
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("CREATE TABLE t (y REAL, s REAL, a TEXT)")
        rows = [(float(k), k % 7, "pq"[k % 2]) for k in range(100)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [*rows, (1.0, "much", "p")])
    import ibis

    table = ibis.connect(f"sqlite://{tmp_path}/x.db").table("t")
    with pytest.raises(ValueError, match="`y_pred` must be finite: 1 of 101 rows of column 's'"):
        cells_of(table, **ROLES)
