"""Tables of a database that Ibis connects to, by its address."""

from __future__ import annotations

import contextlib
import sqlite3
import sys

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.tables.audit_table import cells_of
from evenhand.tables.engines import without_password

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
    ("kind", "name"),
    [("duckdb", "people"), ("duckdb", "marts.all of them"), ("sqlite", "people")],
)
def test_tables_are_counted_where_they_are(kind, name, databases, frame):
    found = cells_of(name, **ROLES, engine=f"ibis:{databases[kind]}")
    own = cells_of(frame, **ROLES)
    assert found.edges == own.edges
    assert found.labels == own.labels
    np.testing.assert_array_equal(found.count, own.count)
    np.testing.assert_allclose(found.sums, own.sums, rtol=1e-12, atol=1e-12)
    audit = eh.audit_table(name, **ROLES, engine=f"ibis:{databases[kind]}")
    exact = eh.audit(frame["y"], frame["s"], sensitive_features=frame[["a"]])
    for criterion, measure in exact.measures.items():
        assert abs(audit.measures[criterion].value - measure.value) < 0.1 * measure.stderr


def test_what_is_not_there_is_told_and_not_made(databases, tmp_path):
    address = f"ibis:{databases['sqlite']}"
    for table, engine, message in (
        ("poeple", address, r"has no 'poeple'\. Did you mean 'people'\? Its tables are 'people'"),
        ("people", f"ibis:duckdb://{tmp_path}/none.db", "There is no file .*none.db"),
        ("people", f"ibis:sqlite://{tmp_path}/none.db", "There is no file .*none.db"),
        ("people", "ibis:oracle9i://x", "`engine` must be ibis: and the address of a database"),
        (["people", "others"], address, "`table` must be the name of one table .* got several"),
        ({"y": [1.0]}, address, "`table` must be the name of one table .* got dict"),
        ("people", "oracle", "`engine` must be 'duckdb' for files, ibis: with the address"),
    ):
        with pytest.raises(ValueError, match=message):
            cells_of(table, **ROLES, engine=engine)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="has no 'nobody'"):
        cells_of("nobody", **ROLES, engine=f"ibis:{databases['duckdb']}")


def test_passwords_are_not_shown(monkeypatch):
    assert without_password("postgres://me:secret@host/db?x=1") == "postgres://me:***@host/db"

    def refuse(address, **_):
        raise OSError(f"cannot connect to {address}")

    monkeypatch.setattr("ibis.connect", refuse)
    with pytest.raises(ValueError, match=r"got postgres://me:\*\*\*@host/db: cannot connect") as e:
        cells_of("people", **ROLES, engine="ibis:postgres://me:secret@host/db")
    assert "secret" not in str(e.value)


def test_without_ibis(monkeypatch):
    monkeypatch.setitem(sys.modules, "ibis", None)
    with pytest.raises(ModuleNotFoundError, match=r"Ibis is not installed. Hint: pip install"):
        cells_of("people", **ROLES, engine="ibis:sqlite://x.db")


def test_text_in_a_column_of_numbers_is_not_zero(tmp_path):
    """SQLite keeps what it is given, and casts what is no number to 0."""
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("CREATE TABLE t (y REAL, s REAL, a TEXT)")
        rows = [(float(k), k % 7, "pq"[k % 2]) for k in range(100)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [*rows, (1.0, "much", "p")])
    with pytest.raises(ValueError, match="`y_pred` must be finite: 1 of 101 rows of column 's'"):
        cells_of("t", **ROLES, engine=f"ibis:sqlite://{tmp_path}/x.db")
