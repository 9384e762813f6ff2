"""Files of cells that are cut short, changed or forged, and a disk that is full."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import evenhand as eh
from evenhand.measures import cell_files
from evenhand.measures.cell_files import KEY, suppress, suppressed_in, write_cells
from evenhand.tables.audit_table import cells_of

N = 400
ROLES = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}


def rows(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {"s": rng.normal(size=n), "y": rng.normal(size=n), "a": rng.choice(["p", "q"], n)}
    )


@pytest.fixture(scope="module")
def few():
    return suppress(cells_of(rows(), **ROLES, edges=6), 5)


@pytest.fixture
def path(few, tmp_path):
    cells, lost = few
    return write_cells(cells, tmp_path / "part.cells", suppressed=lost)


def test_files_that_are_cut_short(path):
    whole = path.read_bytes()
    for end in [*range(16), *range(16, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"part\.cells' is not a whole file of cells"):
            eh.Cells.from_file(path)


def test_bytes_that_are_changed(path, few):
    """Every byte that says something is told from another."""
    whole = path.read_bytes()
    kept = 0
    for k, place in enumerate(range(0, len(whole), 13)):
        changed = bytearray(whole)
        changed[place] ^= (0x01, 0x80, 0xFF)[k % 3]
        path.write_bytes(changed)
        try:
            assert (eh.Cells.from_file(path), suppressed_in(path)) == few
            kept += 1  # statistics and other things of Parquet's own
        except ValueError as error:
            assert "part.cells" in str(error)  # noqa: PT017
    assert kept < 0.5 * k


def forge(path, change=None, head=None, more=None) -> None:
    """Change a file and give it the checksum that it should have."""
    table = parquet.read_table(path)
    said = dict(table.schema.metadata)
    if change is not None:
        columns = {name: table.column(name) for name in table.column_names}
        table = pa.table(change(columns))
    if head is not None:
        said[KEY] = json.dumps(head(json.loads(said[KEY]))).encode()
    said |= more or {}
    table = table.replace_schema_metadata(said)
    said[b"evenhand.sha256"] = cell_files._digest(table, said)
    parquet.write_table(table.replace_schema_metadata(said), path)


def put(name, row, value):
    def change(columns):
        values = columns[name].to_pylist()
        values[row] = value
        return {**columns, name: pa.array(values)}

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("n", 0, 0), "n of at least 1"),
        (put("n", 0, -7), "n of at least 1"),
        (put("n", 0, 2.5), "integers in n"),
        (put("n", 0, None), "missing values in n"),
        (put("group", 0, 2), "group between 0 and 1"),
        (put("score_bin", 0, 6), "score_bin between 0 and 5"),
        (put("target_bin", 0, -1), "target_bin between 0 and 5"),
        (put("w", 0, -1.0), "positive w"),
        (put("w", 0, 1e6), "not sums of weights"),
        (put("ws", 0, float("nan")), "finite numbers in ws"),
        (put("wyy", 0, float("inf")), "finite numbers in wyy"),
        (put("least_s", 0, 99.0), "least_s ≤ largest_s"),
        (lambda c: {name: pa.concat_arrays(v.chunks * 2) for name, v in c.items()}, "repeated"),
        (lambda c: {name: v for name, v in c.items() if name != "wsy"}, "it lacks wsy"),
    ],
)  # fmt: skip
def test_columns_that_are_forged(path, change, message):
    forge(path, change)
    with pytest.raises(
        ValueError, match=rf"part\.cells' holds no cells that can be used.*{message}"
    ):
        eh.Cells.from_file(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, r"version \d, got 99"),
        ({"labels": ["p", "p"]}, "distinct labels"),
        ({"labels": ["p"]}, "group between 0 and 0"),
        ({"labels": "pq"}, "a list of labels"),
        ({"names": []}, "names of its attributes"),
        ({"edges": None}, "`edges` must be"),
        ({"n_unknown": -3}, "unknown"),
        ({"n_unknown": "many"}, "unknown"),
    ],
)
def test_heads_that_are_forged(path, change, message):
    forge(path, head=lambda head: {**head, **change})
    with pytest.raises(ValueError, match=message):
        eh.Cells.from_file(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bins": 10**9}, "between 2 and"),
        ({"bins": 3}, "score_bin between 0 and 2"),
        ({"slope": float("nan")}, "finite slope"),
        ({"version": 99}, r"`edges` must be of version \d, got 99"),
        ({"score": {"shift": 0.0, "scale": -1.0, "low": 0.0, "rate": 1.0}}, "positive scale"),
        ({"score": {"shift": 0.0}}, "must give shift, scale, low, rate"),
    ],
)
def test_edges_that_are_forged(path, change, message):
    forge(path, head=lambda head: {**head, "edges": {**head["edges"], **change}})
    with pytest.raises(ValueError, match=message):
        eh.Cells.from_file(path)


def test_files_of_other_things(path):
    parquet.write_table(parquet.read_table(path).replace_schema_metadata(None), path)
    with pytest.raises(ValueError, match=r"part\.cells' is no file of cells"):
        eh.Cells.from_file(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is not a whole file of cells"):
        eh.Cells.from_file(path)


def test_cells_of_other_edges_are_not_added_up(few):
    other = cells_of(rows(), **ROLES, edges=7)
    with pytest.raises(ValueError, match="must have the same `edges` to be merged"):
        eh.Cells.merge([few[0], other])


@pytest.mark.parametrize("command", ["cells", "audit"])
def test_a_full_disk_leaves_nothing_half_written(command, tmp_path):
    """No file may grow beyond 2,000 bytes, which the system itself sees to."""
    rows(1000).to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "out"
    out.mkdir()
    target = (
        ["--out", str(out / "x.cells")] if command == "cells" else ["--html", str(out / "x.html")]
    )
    (out / target[1]).write_text("before")
    done = subprocess.run(
        [sys.executable, "-m", "evenhand", command, str(tmp_path / "*.csv"), "-y", "y", "-s", "s",
         "-a", "a", "--force", *target],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert [file.name for file in out.iterdir()] == [os.path.basename(target[1])]
    assert (out / target[1]).read_text() == "before"


def test_the_share_of_a_group_that_is_left_out():
    frame = rows(400)
    frame.loc[:1, "a"] = "few"
    frame.loc[2:3, ["s", "y"]] = frame.loc[0:1, ["s", "y"]].to_numpy()
    cells = cells_of(frame, **ROLES, edges=4)
    kept, lost = suppress(cells, 3)
    assert "100.0% of few" in lost
    assert kept.count.min() >= 3
