"""The sample that the grid of a large table comes from: as good as a random one, and repeatable."""

from __future__ import annotations

import contextlib
import sqlite3

import numpy as np
import polars as pl
import pytest

import evenhand as eh
from evenhand.measures import edges
from evenhand.tables.audit_table import cells_of, columns_of
from evenhand.tables.engines import open_table

# As many rows as are drawn, here fewer than elsewhere, and a table that is large beside them.
SAMPLE, N = 50_000, 120_000
ROLES = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}


@pytest.fixture(autouse=True)
def small_samples(monkeypatch):
    assert edges.SAMPLE == 200_000
    monkeypatch.setattr(edges, "SAMPLE", SAMPLE)


def continuous(rng):
    return rng.normal(size=N), rng.normal(size=N)


def rounded(rng):
    """101 scores and two outcomes: every row shares its values with thousands."""
    return np.round(rng.random(N) ** 2, 2), (rng.random(N) < 0.3).astype(float)


def half(rng):
    """Half of the rows are one point."""
    s, y = continuous(rng)
    point = rng.random(N) < 0.5
    return np.where(point, 0.7, s), np.where(point, 0.0, y)


def far(rng):
    return 1e9 + rng.normal(size=N), np.exp(3 * rng.normal(size=N))


def whole(rng):
    """A million values, of which few rows share one."""
    return rng.integers(0, 1000, N).astype(float), rng.integers(0, 1000, N).astype(float)


KINDS = {f.__name__: f for f in (continuous, rounded, half, far, whole)}


def made(kind: str) -> pl.DataFrame:
    rng = np.random.default_rng(5)
    s, y = KINDS[kind](rng)
    return pl.DataFrame({"s": s, "y": y, "a": rng.integers(0, 2, N)})


def written(frame, threads, request) -> str:
    path = request.getfixturevalue("tmp_path") / f"{threads}.parquet"
    frame.write_parquet(path)
    return str(path)


def duckdb(frame, threads, request):
    import duckdb as package

    connection = package.connect(config={"threads": threads})
    return connection.from_arrow(frame.to_arrow())


def ibis(frame, threads, request):
    import ibis as package

    connection = package.duckdb.connect(threads=threads)
    return connection.read_parquet(written(frame, threads, request))


def polars(frame, threads, request):
    return frame.lazy()


def sqlite(frame, threads, request):
    import ibis as package

    path = request.getfixturevalue("tmp_path") / f"{threads}.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (s REAL, y REAL, a INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", frame.iter_rows())
    return package.sqlite.connect(path).table("t")


def spark(frame, threads, request):
    session = request.getfixturevalue("spark")
    return session.read.parquet(written(frame, threads, request)).repartition(threads)


ENGINES = {f.__name__: f for f in (duckdb, ibis, polars, sqlite, spark)}
CASES = [(engine, kind) for engine in ("duckdb", "ibis", "polars") for kind in KINDS]
CASES += [("sqlite", "rounded"), ("spark", "half")]


@pytest.mark.parametrize(("engine", "kind"), CASES)
def test_samples_repeat_whatever_the_order_and_are_like_the_rows(engine, kind, request):
    frame = made(kind)
    columns = columns_of(**ROLES)
    found = []
    for table, threads in ((frame, 1), (frame.sample(fraction=1.0, shuffle=True, seed=1), 3)):
        opened = open_table(ENGINES[engine](table, threads, request), columns)
        facts = opened.facts(columns)
        found.append(opened.sample(columns, facts))
    (s, y), (again, target) = found
    np.testing.assert_array_equal(s, again)
    np.testing.assert_array_equal(y, target)
    # Five standard deviations of as many rows drawn one by one.
    assert abs(len(s) - SAMPLE) < 5 * np.sqrt(SAMPLE)
    room = 5 * 0.5 / np.sqrt(SAMPLE)
    for name, drawn in (("s", s), ("y", y)):
        every = np.sort(frame[name].to_numpy())
        for q in np.quantile(every, (0.05, 0.25, 0.5, 0.75, 0.95)):
            for side in ("left", "right"):
                share = np.searchsorted(np.sort(drawn), q, side) / len(drawn)
                assert abs(share - np.searchsorted(every, q, side) / N) < room
    assert abs(np.corrcoef(s, y)[0, 1] - np.corrcoef(frame["s"], frame["y"])[0, 1]) < 0.02


@pytest.mark.parametrize("engine", ["duckdb", "ibis", "polars"])
def test_cells_of_many_rows_repeat(engine, request):
    frame = made("half")
    one, two = (cells_of(ENGINES[engine](frame, 3, request), **ROLES) for _ in range(2))
    assert one.edges == two.edges
    for column in ("score_bin", "target_bin", "group", "count", "least", "largest"):
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column))
    # Threads add up in another order.
    np.testing.assert_allclose(one.sums, two.sums, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("kind", ["continuous", "rounded", "half", "line"])
def test_all_engines_have_one_grid_and_one_answer(held, kind, monkeypatch):
    """Where a sample is drawn: here from 1,000 rows on, else from 400,000."""
    monkeypatch.setattr(edges, "SAMPLE", 500)
    rng = np.random.default_rng(5)
    s, y = (column[:3000] for column in KINDS.get(kind, continuous)(rng))
    if kind == "line":
        y = s + 0.01 * y
    frame = pl.DataFrame({"s": s, "y": y, "a": rng.choice(["p", "q"], 3000)})
    own = eh.Cells.from_rows(frame["y"], frame["s"], sensitive_features=frame[["a"]])
    cells = cells_of(held(frame.to_arrow()), **ROLES)
    assert cells.edges == own.edges
    for column in ("score_bin", "target_bin", "group", "count", "least", "largest"):
        np.testing.assert_array_equal(getattr(cells, column), getattr(own, column))
    found, want = (eh.audit(c, estimator="logistic").measures for c in (cells, own))
    for name, measure in want.items():
        assert abs(found[name].value - measure.value) <= 0.05 * measure.stderr
