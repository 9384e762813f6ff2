"""Fits on Parquet files and Arrow datasets equal fits on the same rows in memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import parquet

import evenhand as eh

NAMES = ["x0", "x1", "x2", "x3"]
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def columns(n=3_000, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 4)) + sex[:, None] * [0.8, 0.0, 0.3, 0.0]
    score = X @ [1.0, 0.6, 0.3, 0.0]
    region = np.array(["north", "south", None], dtype=object)[rng.integers(0, 3, n)]
    out = {name: X[:, j].astype(dtype) for j, name in enumerate(NAMES)}
    return {
        **out,
        "loss": score + rng.normal(size=n),
        "claims": rng.poisson(np.exp(0.3 * score - 0.5)).astype(float),
        "sex": np.array(["f", "m"], dtype=object)[sex],
        "region": region,
        "w": rng.uniform(0.5, 2.0, n),
        "years": rng.uniform(0.2, 1.0, n),
        "known": rng.normal(size=n) * 0.1,
        "risk": score + 0.5 * rng.normal(size=n),
    }


def write(folder, table, cuts=(1_000, 1_001, 2_500)):
    """Several files, one of a single row and one of none."""
    folder.mkdir(exist_ok=True)
    table = pa.table(table)
    edges = [0, *cuts, len(table)]
    for k, (start, stop) in enumerate(pairwise(edges)):
        part = table.slice(start, stop - start)
        parquet.write_table(part, folder / f"part-{k}.parquet", row_group_size=700)
    parquet.write_table(table.slice(0, 0), folder / "part-9.parquet")
    return folder


def features(table):
    return np.column_stack([table[name] for name in NAMES])


@pytest.fixture(scope="module")
def table():
    return columns()


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    return write(tmp_path_factory.mktemp("rows") / "data", table)


@pytest.mark.parametrize(
    ("criterion", "options"),
    [
        ("independence", {}),
        ("separation", {}),
        ("sufficiency", {}),
        ("separation", {"classifier": "lspc"}),
        ("independence", {"classifier": "lspc", "kappa": "published"}),
        ("independence", {"fairness_weight": 40.0, "basis": "degree3"}),
        ("independence", {"fit_intercept": False, "group_features": "attribute"}),
        ("independence", {"fairness_weight": 0.0}),
    ],
)
def test_ridge_equals_the_fit_in_memory(table, folder, criterion, options):
    model = eh.FairRidge(criterion, **{"fairness_weight": 2.0, **options})
    model.fit(
        str(folder / "*.parquet"), "loss", sensitive_features="sex", sample_weight="w",
        features=NAMES,
    )  # fmt: skip
    memory = eh.FairRidge(criterion, **{"fairness_weight": 2.0, **options})
    memory.fit(
        features(table), table["loss"], sensitive_features=table["sex"], sample_weight=table["w"]
    )
    np.testing.assert_allclose(model.coef_, memory.coef_, **CLOSE)
    np.testing.assert_allclose(model.group_coef_, memory.group_coef_, **CLOSE)
    np.testing.assert_allclose(model.intercept_, memory.intercept_, **CLOSE)
    np.testing.assert_allclose(model.unfairness_, memory.unfairness_, **CLOSE)
    assert list(model.feature_names_in_) == NAMES


@pytest.mark.parametrize(
    ("family", "target", "named"),
    [
        ("poisson", "claims", {"exposure": "years"}),
        ("poisson", "claims", {"offset": "known", "sample_weight": "w"}),
        ("tweedie", "claims", {"exposure": "years", "given": "risk"}),
        ("normal", "loss", {"given": "risk"}),
        ("quantile", "loss", {}),
    ],
)
def test_glm_equals_the_fit_in_memory(table, folder, family, target, named):
    criterion = "separation" if "given" in named else "independence"
    files = eh.FairGLM(family, criterion, 3.0).fit(
        folder, target, sensitive_features=["sex", "region"], features=NAMES, **named
    )
    memory = eh.FairGLM(family, criterion, 3.0).fit(
        features(table), table[target],
        sensitive_features={name: table[name] for name in ("sex", "region")},
        **{name: table[column] for name, column in named.items()},
    )  # fmt: skip
    np.testing.assert_allclose(files.coef_, memory.coef_, **CLOSE)
    np.testing.assert_allclose(files.unfairness_, memory.unfairness_, **CLOSE)


def test_single_precision_stays(tmp_path):
    table = columns(dtype=np.float32)
    folder = write(tmp_path / "single", table)
    model = eh.FairRidge().fit(folder, "loss", sensitive_features="sex", features=NAMES)
    memory = eh.FairRidge().fit(features(table), table["loss"], sensitive_features=table["sex"])
    assert model.coef_.dtype == np.float32
    np.testing.assert_allclose(model.coef_, memory.coef_, rtol=1e-6)


def test_all_columns_that_nothing_else_names_are_features(table, tmp_path):
    kept = {name: table[name] for name in [*NAMES, "loss", "sex"]}
    folder = write(tmp_path / "few", kept)
    found = eh.FairRidge().fit(ds.dataset(folder), "loss", sensitive_features="sex")
    memory = eh.FairRidge().fit(features(table), table["loss"], sensitive_features=table["sex"])
    np.testing.assert_allclose(found.coef_, memory.coef_, **CLOSE)


def test_a_dataset_with_a_filter_is_the_rows_it_lets_through(table, folder):
    dataset = ds.dataset(folder).filter(ds.field("w") > 1.0)
    found = eh.FairRidge().fit(dataset, "loss", sensitive_features="sex", features=NAMES)
    rows = table["w"] > 1.0
    memory = eh.FairRidge().fit(
        features(table)[rows], table["loss"][rows], sensitive_features=table["sex"][rows]
    )
    np.testing.assert_allclose(found.coef_, memory.coef_, **CLOSE)


def test_columns_in_the_names_of_folders(table, tmp_path):
    kept = pa.table({name: table[name] for name in [*NAMES, "loss", "sex"]})
    ds.write_dataset(kept, tmp_path / "tree", format="parquet", partitioning_flavor="hive",
                     partitioning=["sex"])  # fmt: skip
    found = eh.FairRidge().fit(tmp_path / "tree", "loss", sensitive_features="sex")
    order = np.argsort(table["sex"], kind="stable")
    memory = eh.FairRidge().fit(
        features(table)[order], table["loss"][order], sensitive_features=table["sex"][order]
    )
    np.testing.assert_allclose(found.coef_, memory.coef_, **CLOSE)


@pytest.mark.parametrize("controls", ["risk", ["risk", "region"]])
def test_controls(table, folder, controls):
    found = eh.FairRidge("conditional").fit(
        folder, "loss", sensitive_features="sex", features=NAMES, controls=controls
    )
    names = [controls] if isinstance(controls, str) else controls
    memory = eh.FairRidge("conditional").fit(
        features(table), table["loss"], sensitive_features=table["sex"],
        controls={name: table[name] for name in names},
    )  # fmt: skip
    np.testing.assert_allclose(found.coef_, memory.coef_, **CLOSE)


def test_many_rows_are_started_by_a_pilot(tmp_path):
    table = columns(n=120_000, seed=3)
    folder = write(tmp_path / "many", {k: table[k] for k in [*NAMES, "loss", "sex"]})
    found = eh.FairRidge("separation").fit(folder, "loss", sensitive_features="sex")
    memory = eh.FairRidge("separation").fit(
        features(table), table["loss"], sensitive_features=table["sex"]
    )
    np.testing.assert_allclose(found.coef_, memory.coef_, **CLOSE)
    assert found.n_iter_ == memory.n_iter_


def test_more_features_than_rows(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 50))
    y, a = X[:, 0] + rng.normal(size=30), np.repeat([0, 1], 15)
    table = {f"x{j}": X[:, j] for j in range(50)} | {"y": y, "a": a}
    folder = write(tmp_path / "wide", table, cuts=(10,))
    found = eh.FairRidge(alpha=0.1).fit(folder, "y", sensitive_features="a")
    memory = eh.FairRidge(alpha=0.1).fit(X, y, sensitive_features=a)
    np.testing.assert_allclose(found.coef_, memory.coef_, rtol=1e-8, atol=1e-10)


def test_prediction_by_the_recorded_group(table, folder):
    options = {"group_features": "attribute", "fairness_weight": 5.0}
    model = eh.FairRidge("independence", **options)
    model.fit(folder, "loss", sensitive_features=["sex", "region"], features=NAMES)
    both = {name: table[name] for name in ("sex", "region")}
    memory = eh.FairRidge("independence", **options)
    memory.fit(features(table), table["loss"], sensitive_features=both)
    rows = ds.dataset(folder).to_table(columns=NAMES).to_pandas()
    found = model.predict(rows, sensitive_features=both)
    expected = memory.predict(features(table), sensitive_features=both)
    np.testing.assert_allclose(found, expected, **CLOSE)
    with pytest.raises(ValueError, match="hold one value or line per row, got the name"):
        model.predict(str(folder))


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0, 2.0, np.nan]),
        np.array([True, False, True]),
        np.array(["2020-01-01", "2021-01-01", "NaT"], dtype="datetime64[D]"),
        np.array([3, 1, 2], dtype=np.int8),
        pa.array(["b", None, "a"]).dictionary_encode(),
    ],
    ids=["floats", "booleans", "dates", "integers", "categories"],
)
def test_groups_of_any_type(values, table, tmp_path):
    pick = np.random.default_rng(1).integers(0, 3, 3_000)
    column = values.take(pa.array(pick)) if isinstance(values, pa.Array) else values[pick]
    kept = {**{name: table[name] for name in [*NAMES, "loss"]}, "group": column}
    folder = write(tmp_path / "kinds", kept)
    found = eh.FairRidge().fit(folder, "loss", sensitive_features="group")
    memory = eh.FairRidge().fit(features(table), table["loss"], sensitive_features=column)
    np.testing.assert_allclose(found.coef_, memory.coef_, **CLOSE)
    np.testing.assert_allclose(found.unfairness_, memory.unfairness_, **CLOSE)
