import sys

import numpy as np
import pytest

from loaders import load_meps

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _package(needs_package):
    needs_package("linearmodels")


@pytest.mark.parametrize(
    ("sensitive", "n_features", "groups", "r2"),
    [
        ("sex", 22, {"female": 6024, "male": 4367}, 0.208),
        ("race", 21, {"other": 8621, "black": 1036, "hispanic": 734}, 0.207),
    ],
)
def test_rows_groups_and_reference_score(sensitive, n_features, groups, r2, reference_score):
    data = load_meps(sensitive=sensitive)
    assert data.X.shape == (10_391, n_features)
    assert np.isfinite(data.X).all()
    assert dict(zip(*np.unique(data.sensitive, return_counts=True), strict=True)) == groups
    assert data.sensitive_name == sensitive
    assert reference_score(data) == pytest.approx(r2, abs=5e-4)
    for label, count in groups.items():
        assert f"{label} {count:,}" in data.description.replace("\n", " ")


def test_first_row_and_what_is_left_out():
    data = load_meps()
    row = dict(zip(data.feature_names, data.X[0], strict=True))
    assert (row["age"], row["educyr"], row["totchr"], data.sensitive[0]) == (74, 16, 0, "female")
    assert data.y[0] == pytest.approx(np.log(595))
    assert not {"drugexp", "ldrugexp", "linc", "blhisp", "female"} & set(data.feature_names)
    assert data.y.min() == 0.0


def test_the_package_is_not_imported():
    for name in [m for m in sys.modules if m.partition(".")[0] == "linearmodels"]:
        del sys.modules[name]
    load_meps()
    assert "linearmodels" not in sys.modules


def test_groups_can_be_among_the_features():
    data = load_meps(sensitive="race", include_sensitive=True)
    assert data.feature_names[-3:] == ("race=other", "race=black", "race=hispanic")
    np.testing.assert_array_equal(data.X[:, -2], data.sensitive == "black")


def test_bad_option_is_named():
    with pytest.raises(ValueError, match="`sensitive` must be one of sex, race, got 'female'"):
        load_meps(sensitive="female")
