from functools import cache

import numpy as np
import pytest

from loaders import load_belgian_motor

pytestmark = pytest.mark.slow
cached = cache(load_belgian_motor)


@pytest.fixture
def load(needs_file):
    needs_file("bemtpl97.csv.gz", "bemtpl97.csv")
    return cached


@pytest.mark.parametrize(
    ("target", "n_rows", "female", "r2"),
    [
        ("frequency", 163_212, 43_168, 0.002),
        ("severity", 18_276, 5_078, 0.007),
        ("bonus_malus", 163_212, 43_168, 0.172),
    ],
)
def test_policies(load, reference_score, target, n_rows, female, r2):
    data = load(target=target)
    assert data.X.shape == (n_rows, 11)
    assert np.isfinite(data.X).all()
    assert np.isfinite(data.y).all()
    assert (data.sensitive == "female").sum() == female
    assert not {"bm", "claim", "nclaims", "amount", "expo", "id"} & set(data.feature_names)
    assert reference_score(data) == pytest.approx(r2, abs=5e-4)
    assert (data.exposure is None) == (target != "frequency")
    assert f"{n_rows:,} Belgian" in data.description


def test_first_policy(load):
    data = load()
    row = dict(zip(data.feature_names, data.X[0], strict=True))
    assert (row["ageph"], row["power"], row["agec"], row["long"]) == (50, 77, 12, 4.35522)
    assert (row["coverage=TPL"], row["fuel=diesel"], row["use=work"], row["fleet"]) == (1, 0, 0, 0)
    assert (data.y[0], data.sensitive[0], data.exposure[0]) == (1.0, "male", 1.0)
    severity = load(target="severity")
    assert severity.y[0] == pytest.approx(np.log(1618))


def test_exposure_turns_rates_into_claims(load):
    data = load()
    claims = data.y * data.exposure
    np.testing.assert_allclose(claims, np.round(claims), atol=1e-9)
    assert round(claims.sum()) == 20_215
    assert list(data.to_frame().columns)[-1] == "exposure"


def test_pure_premium_is_the_cost_per_year(load):
    premium, frequency, severity = (
        load(target=name) for name in ("pure_premium", "frequency", "severity")
    )
    cost = premium.y * premium.exposure
    count = frequency.y * frequency.exposure
    paid = cost > 0
    assert paid.sum() == len(severity.y)
    np.testing.assert_allclose(np.log(cost[paid] / count[paid]), severity.y, atol=1e-8)


def test_bonus_malus_on_request_only(load):
    data = load(bonus_malus=True, include_sensitive=True)
    assert "bm" in data.feature_names
    assert data.feature_names[-1] == "sex=female"
    assert "The bonus-malus level is among them" in data.description


def test_bad_options_are_named_before_any_file_is_read():
    with pytest.raises(
        ValueError, match="`target` must be one of frequency, severity, pure_premium"
    ):
        load_belgian_motor(target="amount")
    with pytest.raises(ValueError, match="`bonus_malus` must be False where it is the target"):
        load_belgian_motor(target="bonus_malus", bonus_malus=True)
