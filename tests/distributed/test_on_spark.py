"""Fits in a barrier stage of a real Spark, and what happens when a Python worker of it dies."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.distributed import WorkerLostError, fit

sys.path.insert(0, str(Path(__file__).parent))
from deadly import MARK, Deadly
from test_on_dask import FEATURES, SETTINGS, people, same

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning"
)


@pytest.fixture(scope="module")
def table(spark):
    spark.sparkContext.addPyFile(str(Path(__file__).parent / "deadly.py"))
    return spark.createDataFrame(people()).cache()


@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
def test_table_gives_the_model_of_one_process(spark, table, criterion):
    frame = people()
    found = fit(
        eh.FairRidge(criterion, 1.0, **SETTINGS), table, spark, y="target",
        sensitive_features="group", sample_weight="weight", features=FEATURES,
    )  # fmt: skip
    whole = eh.FairRidge(criterion, 1.0, **SETTINGS).fit(
        frame[FEATURES], frame["target"], sensitive_features=frame["group"],
        sample_weight=frame["weight"],
    )  # fmt: skip
    same(found, whole)
    assert found.n_workers_ == 2
    np.testing.assert_allclose(found.predict(frame[FEATURES]), whole.predict(frame[FEATURES]))


def test_empty_partition_and_more_partitions_than_places(spark, table):
    from pyspark.sql.functions import lit

    frame = people()
    whole = eh.FairGLM("poisson", "independence", 1.0, **SETTINGS).fit(
        frame[FEATURES], frame["claims"], sensitive_features=frame[["group", "old"]]
    )
    columns = {"y": "claims", "sensitive_features": ["group", "old"], "features": FEATURES}
    for rows in (table.repartitionByRange(2, lit(1)), table.repartition(7)):
        estimator = eh.FairGLM("poisson", "independence", 1.0, **SETTINGS)
        same(fit(estimator, rows, spark, **columns), whole)


def test_errors_of_one_worker_reach_the_caller(spark):
    frame = people()
    frame.loc[len(frame) - 1, "u"] = np.nan
    rows = spark.createDataFrame(frame)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        fit(eh.FairRidge(), rows, spark, y="target", sensitive_features="group")
    with pytest.raises(ValueError, match="'group' must hold numbers for `y`, and holds text"):
        fit(eh.FairRidge(), rows, spark, y="group")
    with pytest.raises(TypeError, match="`client_or_spark` must be a SparkSession"):
        fit(eh.FairRidge(), rows, None, y="target")


def test_workers_without_our_packages_are_told_apart_from_lost_ones(
    spark, table, tmp_path, monkeypatch
):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(ImportError, match=r"lacks a package: No module named .*PYSPARK_PYTHON"):
        fit(eh.FairRidge(), table, spark, y="target", sensitive_features="group", features=["u"])


@pytest.mark.parametrize("how", ["killed", "asleep"])
def test_lost_worker_ends_the_fit(spark, table, how):
    frame = people()
    frame.loc[len(frame) - 1, "target"] = MARK
    with pytest.raises(WorkerLostError, match="was lost"):
        fit(
            eh.FairGLM(Deadly(how)), spark.createDataFrame(frame), spark, y="target",
            sensitive_features="group", timeout=2 if how == "asleep" else 3600,
        )  # fmt: skip
    if how == "asleep":
        return
    # The session goes on.
    again = fit(eh.FairRidge(), table, spark, y="target", sensitive_features="group")
    assert again.n_workers_ == 2
