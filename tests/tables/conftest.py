"""Tables held by real engines: one Spark session, one Dask cluster of two processes, and others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import dataset, parquet

# What packages say about each other.
WARNINGS = (
    "PySpark does not yet fully support pandas:FutureWarning",
    "fetch_arrow_table:DeprecationWarning",  # Ibis calls an older DuckDB,
    "The 'future.infer_string' option:DeprecationWarning",  # and an older pandas
)


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for text in WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{text}"))


def _written(table, request):
    path = request.getfixturevalue("tmp_path") / "rows.parquet"
    parquet.write_table(table, path)
    return path


def _numpy(table, request):
    # As a user has them: gaps are None, and a column without any is of its own type.
    return {name: table.column(name).to_pandas().to_numpy() for name in table.column_names}


def _pandas(table, request):
    return table.to_pandas()


def _polars(table, request):
    import polars as pl

    return pl.from_arrow(table).lazy()


def _duckdb(table, request):
    import duckdb

    return duckdb.connect().from_arrow(table)


def _arrow(table, request):
    return dataset.dataset(table)


def _ibis(table, request):
    import ibis

    return ibis.duckdb.connect().read_parquet(str(_written(table, request)))


def _spark(table, request):
    return request.getfixturevalue("spark").read.parquet(str(_written(table, request)))


def _dask(table, request):
    import dask.dataframe as dd

    request.getfixturevalue("cluster")
    frame = table.to_pandas()
    return dd.from_pandas(frame.sort_values("s", ignore_index=True), npartitions=3, sort=False)


ENGINES = {
    "NumPy": _numpy, "pandas": _pandas, "Polars lazy": _polars, "DuckDB": _duckdb,
    "Arrow": _arrow, "Ibis": _ibis, "Spark": _spark, "Dask": _dask,
}  # fmt: skip


@pytest.fixture(params=list(ENGINES))
def held(request):
    """What turns an Arrow table into one that an engine holds."""
    return lambda table: ENGINES[request.param](table, request)
