import numpy as np
import pytest

from loaders import load_communities

pytestmark = pytest.mark.slow

SHARES = ("racepctblack", "racePctWhite", "racePctAsian", "racePctHisp")


@pytest.fixture
def load(needs_file):
    needs_file("communities.data")
    return load_communities


def counts(data):
    return dict(zip(*np.unique(data.sensitive, return_counts=True), strict=True))


def test_shape_and_columns(load):
    data = load()
    assert data.X.shape == (1994, 99)
    assert data.X.dtype == np.float64
    assert len(data.feature_names) == len(set(data.feature_names)) == 99
    assert data.target_name == "ViolentCrimesPerPop"
    assert np.isfinite(data.X).all()
    assert data.X.min() == data.y.min() == 0
    assert data.X.max() == data.y.max() == 1
    left_out = {"state", "county", "community", "communityname", "fold", "OtherPerCap"}
    assert not left_out & set(data.feature_names)
    assert not [name for name in data.feature_names if name.startswith(("PolicC", "LemasSw"))]


def test_first_community_reads_as_in_the_file(load):
    data = load()
    row = dict(zip(data.feature_names, data.X[0], strict=True))
    assert (row["population"], row["householdsize"], row["racePctWhite"]) == (0.19, 0.33, 0.9)
    assert row["LemasPctOfficDrugUn"] == 0.32
    assert data.y[0] == 0.2


def test_threshold_rule(load):
    data = load(race_rule="threshold")
    assert counts(data) == {"black": 239, "other": 1755}
    black = data.X[:, data.feature_names.index("racepctblack")]
    np.testing.assert_array_equal(data.sensitive == "black", black > 0.5)


def test_largest_rule(load):
    data = load(race_rule="largest")
    assert counts(data) == {"white": 1572, "black": 219, "hispanic": 115, "asian": 88}
    shares = np.stack([data.X[:, data.feature_names.index(name)] for name in SHARES])
    ties = (shares == shares.max(axis=0)).sum(axis=0) > 1
    assert ties.sum() == 8
    tied_with_black = ties & (shares[0] == shares.max(axis=0))
    assert set(data.sensitive[tied_with_black]) <= {"black"}


def test_race_shares_can_be_left_out(load):
    data = load(include_sensitive=False)
    assert data.X.shape == (1994, 95)
    assert not set(SHARES) & set(data.feature_names)
    assert counts(data) == {"black": 239, "other": 1755}
    assert "not among the features" in data.description


def test_missing_values_can_be_zero(load):
    data, complete = load(missing="zero"), load()
    assert data.X.shape == (1994, 122)
    known = [data.feature_names.index(name) for name in complete.feature_names]
    np.testing.assert_array_equal(data.X[:, known], complete.X)
    police = data.X[:, data.feature_names.index("PolicCars")]
    assert 1675 <= (police == 0).sum() < 1994
    assert "are 0" in data.description


def test_reference_score(load, reference_score):
    assert reference_score(load()) == pytest.approx(0.656, abs=5e-4)


def test_words(load):
    data = load()
    assert "0.5" in data.description
    assert "are among the features" in data.description
    assert "d90d85bd" in data.provenance
    assert "Redmond" in data.citation


def test_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="`race_rule` must be one of threshold, largest, got 'x'"):
        load_communities(race_rule="x")
    with pytest.raises(ValueError, match="`missing` must be one of drop, zero, got 'mean'"):
        load_communities(missing="mean")
