"""Tables counted where they are: what a scan costs, how much memory it takes, how right it is.

Rows of Parquet in a temporary folder. Each engine runs in a process of its own: its mean and
variance by group, the light queries, the scan that counts cells, and the peak of its memory with
the audit that follows. Beside them audits against exact ones, a frame in memory, and cells of 1,000
parts merged; and one table of 3·10⁷ rows through all engines. Times are CPU seconds. Parts are the
engines, "duckdb, large" with 10⁸ rows, "frame", "merge" and "same".
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

import evenhand as eh
from common import Setting, run_apart
from evenhand.measures.cell_files import write_cells
from evenhand.tables.audit_table import _check_facts, _edges, cells_of, columns_of
from evenhand.tables.engines import open_table

Row = dict[str, Any]
ROLES = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}
BLOCK = 1_000_000


def block(number: int, n: int) -> dict[str, np.ndarray]:
    """Skewed outcomes, scores that favor one of four groups."""
    rng = np.random.default_rng([7, number])
    a = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    y = rng.gamma(2.0, size=n) + 0.1 * a
    s = 0.6 * y + 0.15 * (a == 3) + rng.normal(size=n)
    return {"s": s, "y": y, "a": np.array(["p", "q", "r", "t"])[a]}


def make(folder: Path, rows: int, draw: Any = block) -> None:
    """Parquet files of a million rows each."""
    import pyarrow as pa
    from pyarrow import parquet

    for number in range(0, -(-rows // BLOCK)):
        n = min(BLOCK, rows - number * BLOCK)
        parquet.write_table(pa.table(draw(number, n)), folder / f"{number:05}.parquet")


def cpu(child: int | None = None) -> float:
    """Processor seconds of this process, with those of another that runs."""
    total = time.process_time()
    if child is not None:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def peak(child: int | None = None) -> float:
    """Largest resident memory so far, in MB, likewise."""
    total = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if child is not None:
        text = Path(f"/proc/{child}/status").read_text()
        total += next(int(v.split()[1]) for v in text.splitlines() if v.startswith("VmHWM")) / 1024
    return total


def engine_line(part: str, engine: str, folder: str) -> Row:
    """Costs of one engine, in this process."""
    child = None
    if engine == "spark":
        child = _start_spark()
    columns = columns_of(**ROLES)
    opened = open_table(open_in(engine, folder), columns)

    def timed(run: Any, times: int = 1) -> tuple[float, Any]:
        best, result = np.inf, None
        for _ in range(times):
            begin = cpu(child)
            result = run()
            best = min(best, cpu(child) - begin)
        return float(best), result

    plain = {"n": nw.len()}
    for name in "sy":
        column = nw.col(name).cast(nw.Float64)
        plain |= {f"mean_{name}": column.mean(), f"variance_{name}": column.var()}
    usual = opened.rows.group_by("a").agg(**plain)
    usual_s, _ = timed(lambda: opened.run(usual), 3)
    facts_s, facts = timed(lambda: opened.facts(columns))
    _check_facts(facts, columns)
    edges_s, edges = timed(lambda: _edges(opened, columns, facts, None))
    times = 2 if facts["n"] <= 2e7 else 1
    scan_s, cells = timed(lambda: opened.cells(columns, edges, facts), times)
    scan_mb = peak(child)
    opened = None  # as `audit_table` lets go of the engine
    audit_s, _ = timed(lambda: eh.audit(cells))
    audit_mb = peak(child)
    with tempfile.TemporaryDirectory() as where:
        size = write_cells(cells, Path(where) / "x.cells").stat().st_size
    return {
        "what": "engine", "part": part, "engine": engine, "rows": int(facts["n"]),
        "usual_cpu_s": usual_s, "facts_cpu_s": facts_s, "sample_cpu_s": edges_s,
        "cells_cpu_s": scan_s,
        "ratio": scan_s / usual_s, "scan_peak_mb": scan_mb, "audit_cpu_s": audit_s,
        "peak_mb": audit_mb, "cells": cells.n_cells, "entries": len(cells.count), "bytes": size,
        "grid": cells.edges.kind,
    }  # fmt: skip


def open_in(engine: str, folder: str) -> Any:
    """The files of a folder as an engine opens them; DuckDB is the one that opens paths."""
    if engine == "polars":
        import polars as pl

        return pl.scan_parquet(f"{folder}/*.parquet")
    if engine == "spark":
        from pyspark.sql import SparkSession

        _start_spark()
        return SparkSession.builder.getOrCreate().read.parquet(folder)
    return folder


def _start_spark() -> int:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4").config("spark.driver.memory", "1g")
        .getOrCreate()
    )  # fmt: skip
    session.sparkContext.setLogLevel("ERROR")
    return int(session.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]


def exact_line(rows: int) -> Row:
    """A frame in memory against `eh.audit` of the same rows."""
    import duckdb
    import pandas as pd

    frame = pd.DataFrame(block(0, rows))
    few = frame[:20_000]
    for _ in range(2):  # compiled by then
        eh.audit_table(few, **ROLES)
        eh.audit(few["y"], few["s"], sensitive_features=few[["a"]])
    begin = cpu()
    exact = eh.audit(frame["y"], frame["s"], sensitive_features=frame[["a"]])
    rows_s = cpu() - begin
    begin = cpu()
    result = eh.audit_table(frame, **ROLES)
    table_s = cpu() - begin
    engine = eh.audit_table(duckdb.from_df(frame), **ROLES)
    errors = [
        max(abs(audit.measures[k].value - m.value) / m.stderr for k, m in exact.measures.items())
        for audit in (result, engine)
    ]
    return {
        "what": "frame", "part": "frame", "engine": "numpy", "rows": rows, "usual_cpu_s": rows_s,
        "cells_cpu_s": table_s, "ratio": table_s / rows_s, "error_se": max(errors),
    }  # fmt: skip


def merge_line(n_parts: int, n_rows: int) -> Row:
    """Cells of many parts, made one after the other, added up at once."""
    table = block(0, n_parts * n_rows // 10)
    edges = cells_of(table, **ROLES).edges
    parts = []
    size = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(n_parts):
            part = cells_of(block(number, n_rows), **ROLES, edges=edges)
            parts.append(part)
            if number < 5:
                path = write_cells(part, Path(folder) / f"{number}.cells")
                size += path.stat().st_size
        begin = cpu()
        whole = eh.Cells.merge(parts)
        merge_s = cpu() - begin
    return {
        "what": "merge", "part": "merge", "engine": "numpy", "rows": whole.n, "parts": n_parts,
        "cells_cpu_s": merge_s, "cells": whole.n_cells, "entries": len(whole.count),
        "bytes": size // 5,
    }  # fmt: skip


# The same table everywhere: jointly normal variables, whose information is known.
SHIFT = 0.3
PLACES = ("duckdb", "polars", "ibis", "memory", "spark")


def normal_block(number: int, n: int) -> dict[str, np.ndarray]:
    """Targets that a group shifts, and scores that add noise to them."""
    rng = np.random.default_rng([11, number])
    a = rng.integers(0, 2, n)
    y = rng.normal(size=n) + SHIFT * a
    return {"s": y + rng.normal(size=n), "y": y, "a": np.array(["p", "q"])[a]}


def truths() -> dict[str, float]:
    """Normalized information of `normal_block`: s tells nothing about a beyond y."""
    from studies.next_door import shift_information

    target = shift_information(0.5, SHIFT)
    score = shift_information(0.5, SHIFT / np.sqrt(2))
    return {
        "independence": score / np.log(2), "separation": 0.0,
        "sufficiency": (target - score) / (np.log(2) - score),
    }  # fmt: skip


def same_line(place: str, folder: str) -> list[Row]:
    """Measures of one table as one engine counts it, in this process."""
    table = open_in(place, folder) if place in ("polars", "spark") else f"{folder}/*.parquet"
    if place == "memory":
        from pyarrow import parquet

        table = parquet.read_table(folder)
    if place == "ibis":
        import ibis

        table = ibis.duckdb.connect(threads=2).read_parquet(table)
    begin = time.perf_counter()
    audit = eh.audit_table(table, **ROLES)
    known = truths()
    return [
        {
            "what": "same", "part": "same", "engine": place, "rows": audit.n_rows,
            "criterion": name, "value": m.value, "stderr": m.stderr, "low": m.interval[0],
            "high": m.interval[1], "truth": known[name],
            "covered": bool(m.interval[0] <= known[name] <= m.interval[1]),
            "peak_mb": peak(), "wall_s": time.perf_counter() - begin,
        }
        for name, m in audit.measures.items()
    ]  # fmt: skip


def same_lines(rows: int, places: tuple[str, ...]) -> Iterator[Row]:
    """All engines on one table, and how far each is from the first, in standard errors."""
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), rows, normal_block)
        first: dict[str, float] = {}
        for place in places:
            for line in run_apart(same_line, place, folder):
                start = first.setdefault(line["criterion"], line["value"])
                yield {**line, "error_se": abs(line["value"] - start) / line["stderr"]}


# Part: engine and rows.
ENGINES = {
    "duckdb": ("duckdb", 10_000_000),
    "polars": ("polars", 10_000_000),
    "spark": ("spark", 10_000_000),
    "duckdb, large": ("duckdb", 100_000_000),
}


def run(setting: Setting) -> Iterator[Row]:
    for part, (engine, full) in list(ENGINES.items())[: setting.choose(None, 2)]:
        if setting.wants(part):
            rows = setting.choose(full, 50_000)
            with tempfile.TemporaryDirectory() as folder:
                make(Path(folder), rows)
                size = sum(p.stat().st_size for p in Path(folder).iterdir()) / rows
                yield {**run_apart(engine_line, part, engine, folder), "row_bytes": size}
    if setting.wants("frame"):
        yield exact_line(setting.choose(1_000_000, 30_000))
    if setting.wants("merge"):
        yield merge_line(*setting.choose((1_000, 10_000), (10, 1_000)))
    if setting.wants("same"):
        yield from same_lines(*setting.choose((30_000_000, PLACES), (50_000, PLACES[:2])))
