"""Columns become a frame of the backend asked for, or of one that is installed."""

import sys

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from evenhand._core import frames as tables


def test_backends():
    columns = {"a": [1, 2], "b": ["x", "y"]}
    assert isinstance(tables.to_frame(columns), pd.DataFrame)
    frame = tables.to_frame(columns, "polars")
    assert isinstance(frame, pl.DataFrame)
    assert frame.to_dict(as_series=False) == columns


def test_unknown_backend():
    with pytest.raises(ValueError, match="`backend` must be one of pandas"):
        tables.to_frame({"a": [1]}, "excel")


def test_no_backend_installed(monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="to_dict"):
        tables.to_frame({"a": [1]})


def test_backend_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ModuleNotFoundError, match=r"`backend` must be an installed.*pip install p"):
        tables.to_frame({"a": [1]}, "polars")


def test_frames_are_of_the_library_that_scikit_learn_is_set_to():
    from sklearn import config_context

    columns = {"a": [1, 2]}
    assert isinstance(tables.to_frame(columns), pd.DataFrame)
    with config_context(transform_output="polars"):
        assert isinstance(tables.to_frame(columns), pl.DataFrame)
        assert isinstance(tables.to_frame(columns, "pyarrow"), pa.Table)
