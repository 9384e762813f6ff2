from functools import cache

import numpy as np
import pytest

from loaders import load_law_school

pytestmark = pytest.mark.slow

FIVE = {"white": 17493, "black": 1201, "hispanic": 933, "asian": 795, "other": 378}


@pytest.fixture
def load(needs_file):
    needs_file("lsac.csv.gz", "lsac.csv")
    return cached_load


# Nothing below writes to a data set, and reading the file takes most of the time.
cached_load = cache(load_law_school)


def counts(data):
    return dict(zip(*np.unique(data.sensitive, return_counts=True), strict=True))


def column(data, name):
    return data.X[:, data.feature_names.index(name)]


def test_defaults(load):
    data = load()
    assert data.X.shape == (20_800, 12)
    assert data.target_name == "ugpa"
    assert counts(data) == {"white": 17493, "nonwhite": 20_800 - 17493}
    assert np.isfinite(data.X).all()
    assert np.isfinite(data.y).all()
    assert data.y.max() <= 4
    np.testing.assert_array_equal(column(data, "race=white"), data.sensitive == "white")


def test_five_groups_come_from_the_sound_column(load):
    data = load(race="five")
    assert counts(data) == FIVE
    for group in FIVE:
        np.testing.assert_array_equal(column(data, f"race={group}"), data.sensitive == group)


def test_no_column_gives_the_target_away(load):
    for target in ("ugpa", "zfygpa", "zgpa"):
        names = load(target=target).feature_names
        leaks = ("index", "indx", "decile", "zfygpa", "zgpa", "bar", "hisp", target)
        assert not [name for name in names if name.startswith(leaks)]
    assert "ugpa" in load(target="zgpa").feature_names


def test_agarwal_columns(load):
    data = load(columns="agarwal", include_sensitive=False)
    plain = {name for name in data.feature_names if not name.startswith("cluster=")}
    assert plain == {
        "lsat", "fulltime", "fam_inc", "age", "male", "zfygpa", "zgpa", "bar1",
    }  # fmt: skip
    assert set(np.unique(column(data, "bar1"))) == {0, 1}


def test_indicators_and_ranges(load):
    data = load()
    for name in ("fulltime", "male", *(f"cluster={k}" for k in range(1, 7))):
        assert set(np.unique(column(data, name))) == {0, 1}
    np.testing.assert_array_equal(
        sum(column(data, f"cluster={k}") for k in range(1, 7)), np.ones(20_800)
    )
    assert column(data, "fulltime").mean() > 0.8
    lsat = column(data, "lsat")
    assert lsat.min() >= 11
    assert lsat.max() <= 48


def test_second_student_of_the_file_is_the_first_complete_one(load):
    data = load(columns="agarwal", race="five")
    row = dict(zip(data.feature_names, data.X[0], strict=True))
    assert data.y[0] == 3.5
    assert data.sensitive[0] == "white"
    assert (row["lsat"], row["zfygpa"], row["zgpa"], row["bar1"]) == (44, 1.33, 1.88, 1)
    assert (row["cluster=1"], row["fulltime"], row["fam_inc"], row["male"]) == (1, 1, 5, 0)
    assert row["age"] == 1991 - 1969


def test_age_is_sound_unless_the_published_one_is_asked_for(load):
    age = column(load(), "age")
    assert age.min() >= 18
    assert 22 <= np.median(age) <= 26
    broken = column(load(age="published"), "age")
    assert broken.min() >= -69
    assert broken.max() <= -3


def test_complete_rows_are_more_than_the_published_ones(load):
    data = load(rows="complete")
    assert len(data.y) == 26_490
    assert np.isfinite(data.X).all()
    assert set(counts(data)) == {"white", "nonwhite"}


def test_race_can_be_left_out(load):
    data = load(include_sensitive=False)
    assert not [name for name in data.feature_names if name.startswith("race")]
    assert "Race is not among the features" in data.description


@pytest.mark.parametrize(
    ("target", "columns", "score"),
    [
        ("ugpa", "agarwal", 0.232),
        ("ugpa", "entry", 0.197),
        ("zfygpa", "entry", 0.166),
        ("zgpa", "entry", 0.197),
    ],
)
def test_reference_scores(load, reference_score, target, columns, score):
    data = load(target=target, columns=columns, race="five", age="published")
    assert reference_score(data) == pytest.approx(score, abs=5e-4)


def test_words(load):
    data = load(age="published", rows="complete")
    assert "which is broken" in data.description
    assert "22,314 law students" in data.description
    assert "research\nuse only" in data.provenance
    assert "Wightman" in data.citation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "gpa"}, "`target` must be one of ugpa, zfygpa, zgpa, got 'gpa'"),
        ({"race": "two"}, "`race` must be one of binary, five, got 'two'"),
        ({"columns": "all"}, "`columns` must be one of entry, agarwal, got 'all'"),
        ({"rows": "all"}, "`rows` must be one of published, complete, got 'all'"),
        ({"age": 3}, "`age` must be one of entry, published, got 3"),
        (
            {"target": "zgpa", "columns": "agarwal"},
            r"`columns` must be 'entry' for the target 'zgpa'.* Hint: load_law_school\(target=",
        ),
    ],
)
def test_bad_options_are_named_before_any_file_is_read(options, message):
    with pytest.raises(ValueError, match=message):
        load_law_school(**options)
