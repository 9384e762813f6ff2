import importlib
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from evenhand.datasets import Dataset
from evenhand.datasets._bundle import one_hot, read_text, to_numbers


@pytest.fixture
def data():
    return Dataset(
        X=np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        y=np.array([0.1, 0.2, 0.3]),
        sensitive=np.array(["a", "b", "a"]),
        feature_names=("u", "v"),
        target_name="y",
        sensitive_name="group",
        description="d",
        provenance="p",
        citation="c",
    )


@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_frame_holds_everything(data, backend):
    library = importlib.import_module(backend)
    frame = data.to_frame(backend)
    assert isinstance(frame, library.Table if backend == "pyarrow" else library.DataFrame)
    names = frame.column_names if backend == "pyarrow" else list(frame.columns)
    assert names == ["u", "v", "y", "group"]
    np.testing.assert_array_equal(np.asarray(frame["v"]), [2, 4, 6])
    np.testing.assert_array_equal(np.asarray(frame["y"]), data.y)
    assert np.asarray(frame["group"]).tolist() == ["a", "b", "a"]


def test_repr_counts_the_groups(data):
    assert repr(data) == "<Dataset y: 3 rows, 2 features; a 2, b 1>"


def test_bundle_is_frozen(data):
    with pytest.raises(FrozenInstanceError):
        data.y = None


def test_one_hot_leaves_out_the_complement_of_two():
    labels = np.array(["a", "b", "c", "a"])
    columns, names = one_hot(labels, ("a", "b", "c"), "g")
    assert names == ("g=a", "g=b", "g=c")
    np.testing.assert_array_equal(columns, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]])
    columns, names = one_hot(labels[:2], ("a", "b"), "g")
    assert names == ("g=a",)
    np.testing.assert_array_equal(columns, [[1], [0]])


def test_text_columns_keep_missing_values_apart():
    text = read_text(b"a,b\n1,\n2.5,x\n")
    assert text["b"].tolist() == ["", "x"]
    np.testing.assert_array_equal(to_numbers(text["a"]), [1.0, 2.5])
    np.testing.assert_array_equal(to_numbers(np.array(["", "3"])), [np.nan, 3.0])
