"""What can be wrong with files that are trained on: a clear error, and nothing left behind."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import parquet

import evenhand as eh
from evenhand._core.files import TableError
from evenhand.training import design as scratch_module
from evenhand.training import source as source_module


def part(n=60, seed=0, **changes):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    x = rng.normal(size=n) + a
    out = {"x": x, "z": rng.normal(size=n), "y": x + rng.normal(size=n), "a": a, **changes}
    return pa.table({name: column for name, column in out.items() if column is not None})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    for k in range(3):
        parquet.write_table(part(seed=k), tmp_path / "data" / f"{k}.parquet")
    return tmp_path / "data"


def fit(X, y="y", **options):
    return eh.FairRidge().fit(X, y, **{"sensitive_features": "a", **options})


def holes(n=60):
    x = np.random.default_rng(0).normal(size=n)
    x[7] = np.nan
    return x


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (part(z=None), "1.parquet' has no column 'z', which .*0.parquet' has"),
        (part(z=["1.5"] * 60), "'z' must be of one type.*numbers in .*0.parq.*text in .*1.parquet"),
        (part(x=holes()), "'x' must hold finite numbers, and .*1.parquet' has none in row 7"),
        (part(x=np.r_[np.ones(59), np.inf]), "1.parquet' has none in row 59"),
        (part(y=[None] + [1.0] * 59), "'y' must hold finite .*1.parquet' has none in row 0"),
    ],
)
def test_a_file_unlike_the_others_is_named(folder, second, message):
    parquet.write_table(second, folder / "1.parquet")
    with pytest.raises(TableError, match=message):
        fit(folder)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (part(z=None), r"1\.parquet' has no column 'z', which the dataset has"),
        (part(z=["1.5"] * 60), r"numbers in the dataset and text in .*1\.parquet"),
        (part(x=holes()), "'x' must hold finite numbers, and the dataset has none in row 67"),
    ],
)
def test_so_is_one_of_a_dataset(folder, second, message):
    parquet.write_table(second, folder / "1.parquet")
    with pytest.raises(TableError, match=message):
        fit(ds.dataset(sorted(map(str, folder.glob("*")))))


def test_text_is_no_feature(folder):
    for k in range(3):
        table = part(seed=k).append_column("town", pa.array(["u", "v"] * 30))
        parquet.write_table(table, folder / f"{k}.parquet")
    with pytest.raises(TableError, match=r"'town' must hold num.*holds text.*features=\[\.\.\."):
        fit(folder)
    assert fit(folder, features=["x", "z"]).coef_.shape == (2,)
    with pytest.raises(TableError, match="'town' must hold numbers for `sample_weight`"):
        fit(folder, features=["x"], sample_weight="town")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": "loss"}, "`y` names 'loss', which .* does not have. Its columns are 'x', 'z', 'y'"),
        ({"y": np.zeros(180)}, "`y` must be the name of a column .*got ndarray"),
        ({"sensitive_features": np.zeros(180)}, "`sensitive_features` must be the name"),
        (
            {"sensitive_features": []},
            "`sensitive_features` must be the name .*got none",
        ),
        ({"sensitive_features": "x"}, "must be categories, got fractions with 180"),
        ({"features": ["x", "x"]}, "`features` must be names of different columns"),
        ({"features": ["y"]}, "must not hold the target"),
        ({"frequency": "z"}, "`frequency` must be None where `X` is a path"),
        ({"scratch": "no/such/folder"}, "`scratch` must be a folder that exists"),
    ],
)
def test_names_that_mean_nothing(folder, options, message):
    with pytest.raises(ValueError, match=message):
        fit(folder, **options)


def test_options_of_files_with_rows_in_memory():
    table = part().to_pandas()
    with pytest.raises(ValueError, match="`features` must be None where `X` is in memory"):
        eh.FairRidge().fit(table[["x"]], table.y, sensitive_features=table.a, features=["x"])


def test_no_such_files(tmp_path):
    with pytest.raises(TableError, match="There is no file"):
        fit(str(tmp_path / "*.parquet"))
    with pytest.raises(TableError, match="folder without Parquet"):
        fit(tmp_path)
    (tmp_path / "cut.parquet").write_bytes(b"")
    with pytest.raises(TableError, match=r"cut.parquet' cannot be read as Parquet"):
        fit(tmp_path)
    parquet.write_table(part().slice(0, 0), tmp_path / "cut.parquet")
    with pytest.raises(TableError, match="must hold at least one row"):
        fit(tmp_path)


def test_one_group_in_one_file_is_no_fault(tmp_path):
    rows = part(n=200)
    a = rows["a"].to_numpy()
    for group in (0, 1):
        parquet.write_table(rows.filter(a == group), tmp_path / f"{group}.parquet")
    assert np.isfinite(fit(tmp_path).unfairness_)
    with pytest.raises(ValueError, match="at least two groups"):
        fit(tmp_path / "0.parquet")


class Watched(source_module.Source):
    """Something happens to the files after the first batch."""

    happens = None

    def batches(self, names):
        for k, found in enumerate(super().batches(names)):
            yield found
            if k == 0:
                type(self).happens()


def test_files_that_go_or_change_while_they_are_read(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(source_module, "Source", Watched)
    Watched.happens = lambda: (folder / "2.parquet").unlink()
    with pytest.raises(TableError, match=r"There is no file .*2.parquet' any more"):
        fit(folder, scratch=tmp_path)
    parquet.write_table(part(), folder / "2.parquet")
    Watched.happens = lambda: parquet.write_table(part(n=30), folder / "2.parquet")
    with pytest.raises(TableError, match=r"2.parquet' has 30 rows where 60 were counted"):
        fit(folder, scratch=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_no_room_for_the_features(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        scratch_module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})
    )
    with pytest.raises(OSError, match=r"features take 0.0 GB on disk, and .* GB are free. Hint"):
        fit(folder, scratch=tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
def test_a_disk_that_fills_up(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        scratch_module.tempfile,
        "TemporaryFile",
        lambda **_: Path("/dev/full").open("wb", 0),  # noqa: SIM115
    )
    with pytest.raises(OSError, match=r"there is no more room. Hint: scratch=") as caught:
        fit(folder, scratch=tmp_path)
    assert caught.value.errno == errno.ENOSPC


def test_posterior_group_features_need_rows_in_memory(folder):
    model = eh.FairRidge(group_features="posterior")
    with pytest.raises(ValueError, match="got 'posterior', whose classifier needs the rows"):
        model.fit(folder, "y", sensitive_features="a")


def test_a_path_of_models_needs_rows_in_memory(folder):
    with pytest.raises(ValueError, match="rows in memory for a path of models, got a path"):
        eh.fairness_path(eh.FairRidge(), folder, "y", sensitive_features="a")
