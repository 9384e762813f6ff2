"""A real Spark session and a real Dask cluster, one of each for all tests of a process."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.fixture(scope="session")
def spark():
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # Half the processor time for queries as short as these.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster():
    """Two processes."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as made,
        Client(made) as client,
    ):
        yield client
