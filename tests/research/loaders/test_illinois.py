"""Illinois quotes: what the file holds, and what clusters change."""

import numpy as np
import pytest

import evenhand as eh
from evenhand.measures.effective import SharedValuesWarning
from loaders import load_illinois_quotes

pytestmark = pytest.mark.slow


@pytest.fixture
def quotes(needs_file):
    needs_file("propublica-illinois.csv.gz", "propublica-illinois.csv")
    return load_illinois_quotes()


def _separation(data, estimator, cluster):
    return eh.audit(
        data.y, data.score, sensitive_features=data.sensitive, cluster=cluster,
        estimator=estimator,
    ).separation  # fmt: skip


def test_what_the_file_holds(quotes):
    data = quotes
    assert data.X.shape == (31_382, 37)
    assert dict(zip(*np.unique(data.sensitive, return_counts=True), strict=True)) == {
        "minority": 3_536,
        "other": 27_846,
    }
    zips, first, inverse = np.unique(data.cluster, return_index=True, return_inverse=True)
    assert len(zips) == len(np.unique(data.y)) == 923
    np.testing.assert_array_equal(data.y[first][inverse], data.y)
    np.testing.assert_array_equal(data.sensitive[first][inverse], data.sensitive)
    assert (data.sensitive[first] == "minority").sum() == 104
    # The first row of the file.
    assert (data.cluster[0], data.score[0], data.y[0]) == ("60002", 414.0, 200.692502798868)
    row = dict(zip(data.feature_names, data.X[0], strict=True))
    assert row["bi_policy_premium"] == 414
    assert row["chicago"] == 0
    assert row["company=State Farm Fire & Cas Co"] == 1
    parts = data.X[:, :2].sum(axis=1)
    np.testing.assert_allclose(parts, data.score)
    assert "white_non_hisp_pct" not in data.feature_names
    shown = load_illinois_quotes(include_sensitive=True)
    assert shown.X[0, shown.feature_names.index("white_non_hisp_pct")] == 88.6
    assert list(data.to_frame().columns[-2:]) == ["score", "cluster"]
    assert "SHA-256" in data.provenance


def test_logistic_finds_separation_with_an_honest_interval(quotes):
    data = quotes
    with pytest.warns(SharedValuesWarning, match="The target has 923 values in 31,382 rows"):
        blind = _separation(data, "logistic", None)
    aware = _separation(data, "logistic", data.cluster)
    assert aware.n_clusters == 923
    assert aware.interval[0] > 0.05
    assert aware.value == pytest.approx(blind.value, abs=0.005)
    width = np.ptp(aware.interval) / np.ptp(blind.interval)
    assert width > 1.8


def test_zips_must_be_left_out_together(quotes):
    """Neighbors in the same ZIP have its very risk and give its group away."""
    data = quotes
    with pytest.warns(SharedValuesWarning, match="The target has 923 values in 31,382 rows"):
        blind = _separation(data, "knn", None)
    assert blind.normalizer < 0.01
    assert blind.value == 0.0
    aware = _separation(data, "knn", data.cluster)
    assert aware.normalizer > 0.25
    assert aware.interval[0] > 0.03
    logistic = _separation(data, "logistic", data.cluster)
    assert aware.interval[0] < logistic.value < aware.interval[1]


def test_auto_finds_what_was_published(quotes):
    """Minority ZIP codes pay more at the same risk; without `cluster` the risk tells the ZIP."""
    data = quotes
    with pytest.warns(SharedValuesWarning, match="pass what they have in common as the cluster"):
        blind = _separation(data, "auto", None)
    assert blind.value < 0.01
    aware = _separation(data, "auto", data.cluster)
    assert aware.interval[0] > 0.05
    assert aware.interval[1] < 0.16
    assert aware.p_value < 1e-6
    assert aware.chosen.startswith("splines")
