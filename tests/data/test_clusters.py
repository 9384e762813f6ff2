"""Reading of clusters: every form accepted, every message."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from evenhand.data.groups import resolve_groups
from evenhand.data.weights import check_cluster, renumber

LABELS = ["x", "x", "y", "z"]


@pytest.mark.parametrize(
    "cluster",
    [
        LABELS,
        np.array(LABELS),
        np.array(LABELS, dtype=object),
        pd.Series(LABELS, index=[9, 8, 7, 6]),
        pd.Series(LABELS).astype("category"),
        pd.DataFrame({"zip": LABELS}),
        pl.Series(LABELS),
        [10, 10, 11, 12],
        [0.5, 0.5, 0.25, 7.0],
        [True, True, "y", None.__class__],
        pd.to_datetime(["2020-01-01", "2020-01-01", "2020-01-02", "2020-01-03"]).to_series(),
        [datetime.date(2020, 1, d) for d in (1, 1, 2, 3)],
    ],
)
def test_forms(cluster):
    codes = check_cluster(cluster, 4)
    assert codes[0] == codes[1]
    assert sorted(set(codes)) == [0, 1, 2]


def test_none_and_rows_of_their_own():
    assert check_cluster(None, 3) is None
    assert check_cluster(["a", "b", "c"], 3) is None
    assert renumber(np.array([3, 5, 9])) is None


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        (["x", "y"], "one entry per row: got 2 for 4"),
        (["x", "x", None, "y"], "1 of 4 are missing"),
        ([1.0, np.nan, 1.0, 2.0], "1 of 4 are missing"),
        (pd.Series(["x", pd.NA, pd.NA, "y"]), "2 of 4 are missing"),
        (np.ma.array([1, 1, 2, 3], mask=[0, 0, 0, 1]), "1 of 4 are missing"),
        (["x"] * 4, "at least two clusters, got one"),
        (np.zeros((4, 2)), r"must be one column, got 2"),
        (pd.DataFrame({"a": LABELS, "b": LABELS}), "must be one column, got 2"),
        ([[1], [1], [2], [3, 4]], "."),
    ],
)
def test_messages(cluster, message):
    if isinstance(cluster, list) and isinstance(cluster[0], list):
        cluster = np.array([*cluster, None], dtype=object)[:4]
        message = "must hold labels .* got an element of type list"
    with pytest.raises(ValueError, match=message):
        check_cluster(cluster, 4)


def test_groups_carry_clusters():
    groups = resolve_groups(["a", "b", None, "b", "a"], n_rows=5, cluster=["p", "p", "q", "r", "r"])
    assert groups.cluster.tolist() == [0, 0, 1, 1]
    assert groups.n_units == 2
    assert groups.n_effective == 2.0
    assert groups.take(np.array([0, 4, 3])).cluster.tolist() == [0, 1, 1]
    assert groups.take(np.array([0, 3])).cluster is None


def test_effective_clusters_allow_for_weights():
    weight = [1.0, 1.0, 2.0, 4.0]
    groups = resolve_groups(list("abab"), n_rows=4, sample_weight=weight, cluster=[1, 1, 1, 2])
    assert groups.n_effective == pytest.approx(64 / 32)
