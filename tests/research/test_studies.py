"""Studies: units of work that resume, and what the frontiers, the atlas and the stack rest on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import common
from studies import atlas


@pytest.fixture
def setting(tmp_path):
    return common.Setting(True, 1, tmp_path, tmp_path / "cache")


def count_calls(path, fail=False):
    """A unit of work that leaves a mark whenever it really runs."""
    with Path(path).open("a") as file:
        file.write("x")
    if fail:
        raise RuntimeError("stopped")
    return {"value": np.arange(3.0)}


def test_a_unit_runs_once(setting, tmp_path):
    mark = tmp_path / "mark"
    for _ in range(2):
        found = common.run_all(setting, count_calls, [(str(mark),)], "units")
        np.testing.assert_array_equal(found[0]["value"], [0.0, 1.0, 2.0])
    assert mark.read_text() == "x"


def test_a_stopped_unit_leaves_nothing_and_runs_again(setting, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(RuntimeError, match="stopped"):
        common.run_all(setting, count_calls, [(str(mark), True)], "units")
    assert not list(setting.cache.rglob("*.npz"))
    with pytest.raises(RuntimeError, match="stopped"):
        common.run_all(setting, count_calls, [(str(mark), True)], "units")
    assert mark.read_text() == "xx"


def test_folds_are_standardized_on_the_training_rows():
    data = common.load("communities", True)
    seen = np.zeros(len(data.y), dtype=int)
    for inside, outside, train, test in data.folds():
        np.testing.assert_allclose(inside.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(inside.std(axis=0), 1.0)
        assert abs(outside.mean()) > 1e-6
        assert not set(train) & set(test)
        seen[test] += 1
    assert (seen == 1).all()


def test_measure_with_a_known_target_entropy_is_the_same():
    data = common.load("communities", True)
    score = data.X[:, 0]
    known = float(common.target_entropy("communities", True, "fourier")["nats"])
    assert common.measure(score, data.y, data.a, "fourier", known) == pytest.approx(
        common.measure(score, data.y, data.a, "fourier")
    )


def test_crossing_between_two_strengths(monkeypatch):
    from studies.frontiers import crossing

    rows = [
        {"strength": 0.0, "r2": 0.6, "separation_fourier": 0.3},
        {"strength": 1.0, "r2": 0.5, "separation_fourier": 0.1},
        {"strength": 2.0, "r2": 0.4, "separation_fourier": 0.2},
    ]
    assert crossing(rows, "separation_fourier", 0.15) == pytest.approx(0.525)
    assert crossing(rows, "separation_fourier", 0.05) is None
    assert crossing(rows, "separation_fourier", 0.5) == pytest.approx(0.6)


def test_every_method_has_a_line_of_its_own(monkeypatch):
    from studies.methods import BEST, COMPARED, FAMILIES, METHODS, SHOWN

    assert len(METHODS) == len({m.name for m in COMPARED}) + 5
    drawn = {(m.color, m.marker, m.dash, m.league) for m in SHOWN}
    assert len(drawn) == len(SHOWN)
    shown = {member for name, members in FAMILIES.items() if BEST not in name for member in members}
    assert shown | set(FAMILIES["LSPC-ind-quad" + BEST] + FAMILIES["LSPC-sep-quad" + BEST]) == {
        m.name for m in COMPARED
    }


@pytest.mark.parametrize("name", ["Wasserstein, interpolated", "entropic unaware (Taturyan)"])
def test_one_fit_for_all_strengths_is_a_fit_each(monkeypatch, name):
    from common import load
    from studies.methods import METHODS

    how, data = METHODS[name], load("communities", True)
    needed = {"sensitive_features": data.a} if how.league == "attribute needed" else {}
    model = how.build(0.0).fit(data.X, data.y, sensitive_features=data.a)
    for strength in (1.0, 0.3):
        alone = how.build(strength).fit(data.X, data.y, sensitive_features=data.a)
        np.testing.assert_allclose(
            how.reset(model, strength).predict(data.X, **needed), alone.predict(data.X, **needed)
        )


def test_bounds_are_met_from_within(monkeypatch, setting):
    from studies import frontiers

    def measured(dataset, quick, method, strength, estimator, cache):
        return {"separation": 0.4 / (1.0 + strength), "r2": 0.6 - 0.1 * strength}

    monkeypatch.setattr(frontiers, "measure_point", measured)
    found = frontiers.refine("communities", False, "evenhand-sep", "separation", setting.cache)
    exact = [0.4 / t - 1.0 for t in frontiers.THRESHOLDS]
    assert len(found["strengths"]) == 3
    for strength, least in zip(found["strengths"], exact, strict=True):
        assert least <= strength < 1.25 * least


def test_continuation_changes_nothing_where_there_is_one_minimum(monkeypatch):
    from studies import penalty

    setting = ("communities", True, "logistic, bounded scores", "separation")
    alone, along = (penalty.penalty_path(*setting, continued) for continued in (False, True))
    np.testing.assert_allclose(along["r2"], alone["r2"], atol=1e-4)
    assert along["r2"][0] == alone["r2"][0]


def test_peers_take_three_groups(monkeypatch):
    pytest.importorskip("fairlearn")
    from rivals import packages

    rng = np.random.default_rng(0)
    a = np.array(["u", "v", "w"])[np.arange(900) % 3]
    X = rng.normal(size=(900, 3)) + (a == "v")[:, None] * [1.0, 0.0, 0.0]
    X[:, 1] -= 2.0 * (a == "w")
    y = X.sum(axis=1) + rng.normal(size=900)
    score = packages.Decorrelated(1.0).fit(X, y, sensitive_features=a)
    means = [score.predict(X, sensitive_features=a)[a == k].mean() for k in "uvw"]
    np.testing.assert_allclose(means, means[0], atol=1e-8)


@pytest.mark.parametrize("step", [0.0, 0.5, 1.0])
def test_equipy_is_the_barycenter_of_this_package(monkeypatch, step):
    pytest.importorskip("fairlearn")
    pytest.importorskip("equipy")
    from studies.methods import METHODS

    rng = np.random.default_rng(0)
    a = np.arange(2000) % 2
    X = rng.normal(size=(2000, 2)) + a[:, None]
    y = X.sum(axis=1) + rng.normal(size=2000)
    theirs, ours = (
        METHODS[name].build(step).fit(X, y, sensitive_features=a).predict(X, sensitive_features=a)
        for name in ("EquiPy", "Wasserstein, interpolated")
    )
    assert np.abs(theirs - ours).mean() < 0.01


# The atlas: how places become R² at a bound, and how variants are chosen ------------------------


def curve(u, r2, n=50, seed=0):
    rng = np.random.default_rng(seed)
    shape = (len(u), n)
    return {
        "u": np.array(u),
        "r2": np.array(r2),
        "psi_u": rng.normal(size=shape),
        "psi_r2": rng.normal(size=shape),
    }


def test_the_variant_of_highest_inner_r2_at_the_level_is_chosen():
    flat = {"u": np.array([0.4, 0.2, 0.1]), "r2": np.array([0.50, 0.48, 0.45])}
    steep = {"u": np.array([0.4, 0.2, 0.1]), "r2": np.array([0.60, 0.49, 0.30])}
    for level, variant, place in [(0.3, 1, 0.5), (0.2, 1, 1.0), (0.1, 0, 2.0)]:
        v, j, t = atlas.choose([flat, steep], level)
        assert (v, j + t) == (variant, pytest.approx(place))
    # None meets it: the fairest place of all.
    assert atlas.choose([flat, {"u": np.array([0.3, 0.05]), "r2": np.zeros(2)}], 0.01) == (
        1,
        1,
        0.0,
    )


def test_r2_at_a_bound_lies_on_the_line_and_its_influence_follows_the_slope():
    found = curve([0.4, 0.2, 0.0], [0.6, 0.5, 0.1])
    value, psi = atlas.at_bound(found, 0.3)
    assert value == pytest.approx(0.55)
    slope = (0.6 - 0.5) / (0.4 - 0.2)
    expected = (found["psi_r2"][0] + found["psi_r2"][1]) / 2
    expected = expected - slope * (found["psi_u"][0] + found["psi_u"][1]) / 2
    np.testing.assert_allclose(psi, expected)
    # A small move of all places, as more or other rows would make: to first order the same.
    step = 1e-6
    moved = {**found, "u": found["u"] + step * found["psi_u"][:, 0]}
    moved["r2"] = found["r2"] + step * found["psi_r2"][:, 0]
    change = (atlas.at_bound(moved, 0.3)[0] - value) / step
    between = found["psi_u"][:2, 0].mean()
    assert change == pytest.approx(found["psi_r2"][:2, 0].mean() - slope * between, abs=1e-3)


def test_a_bound_that_no_place_meets_has_no_r2():
    assert atlas.at_bound(curve([0.4, 0.3], [0.6, 0.5]), 0.2) is None
    value, _ = atlas.at_bound(curve([0.4, 0.1, 0.15], [0.6, 0.2, 0.3]), 0.2)
    assert value == pytest.approx(0.6 - 0.4 * (0.4 - 0.2) / (0.4 - 0.1))


def test_all_methods_have_strengths_from_none_to_most():
    from studies.atlas_methods import METHODS, VARIANTS

    assert len({m.name for m in METHODS.values()}) == len(METHODS)
    for name, variant in VARIANTS.items():
        assert len(variant.strengths) >= 5, name
        if name == "CorrelationRemover":  # in a package that is not needed for anything else
            continue
        assert hasattr(variant.build(variant.strengths[0]), "fit"), name


# Boosted models and the stack ---------------------------------------------------------------------


def test_at_a_bound_by_straight_lines():
    boosters = pytest.importorskip("studies.boosters")
    u, r2 = np.array([0.2, 0.1, 0.0]), np.array([0.9, 0.8, 0.4])
    assert boosters.at_bound(u, r2, 0.15) == pytest.approx(0.85)
    assert boosters.at_bound(u, r2, 0.1) == pytest.approx(0.8)
    assert boosters.at_bound(u + 0.1, r2, 0.05) == ""


# Rivals in their papers' measures -----------------------------------------------------------------


def test_the_farthest_two_distribution_functions_are_apart():
    from studies.published import farthest, farthest_levels

    a = np.repeat([0, 1], [30, 70])
    assert farthest(np.arange(100.0), a) == pytest.approx(0.7)
    level = np.random.default_rng(0).integers(0, 5, 100)
    assert farthest_levels(np.eye(5)[level], a) == pytest.approx(farthest(level.astype(float), a))


def test_information_of_a_paper_is_what_the_score_adds_to_the_target():
    from studies.published import information

    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 2000)
    y = rng.normal(size=2000) + a
    assert abs(information(y, y + rng.normal(size=2000), a, 0)[1]) < 0.003
    # Target and score are two looks at the group: together they set the groups √2 apart, not 1.
    z = np.linspace(-9, 9, 20_001)

    def entropy(apart):
        density = np.exp(-0.5 * (z - apart / 2) ** 2) / np.sqrt(2 * np.pi)
        return float(np.trapezoid(density * np.log1p(np.exp(-apart * z)), z))

    nats, share = information(y, rng.normal(size=2000) + a, a, 0)
    expected = entropy(1.0) - entropy(np.sqrt(2.0))
    assert nats == pytest.approx(expected, abs=0.02)
    assert share == pytest.approx(expected / entropy(1.0), abs=0.03)


def test_a_sweep_is_read_off_where_a_rival_is():
    from studies.published import _matched

    def splits(r2, gap):
        return np.array([[1.0 - r2 - e, r2 + e, gap] for e in (-0.01, 0.01)])

    values = {
        "kernel": splits(0.50, 0.10),
        "FairRidge 0": splits(0.60, 0.30),
        "FairRidge 1": splits(0.54, 0.15),
        "FairRidge 2": splits(0.48, 0.05),
    }
    (row,) = _matched("reweighing", "lsac", "kernel", "FairRidge", values)
    assert (row["r2"], row["gap"]) == pytest.approx((0.51, 0.10))
    assert (row["ahead"], row["stderr"]) == pytest.approx((0.01, 0.0), abs=1e-12)
    values["kernel"] = splits(0.50, 0.01)
    assert not list(_matched("reweighing", "lsac", "kernel", "FairRidge", values))
