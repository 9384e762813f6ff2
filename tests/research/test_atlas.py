"""The atlas: how places become R² at a bound, how variants are chosen, and a page like its CSV."""

from __future__ import annotations

import json

import numpy as np
import pytest

from studies import atlas
from studies import atlas_page as page


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


def test_the_page_is_made_from_the_committed_table():
    table = page.RESULTS / "atlas.csv"
    lines = page.read_csv(table)
    note = json.loads(table.with_suffix(".json").read_text())
    assert page.page(lines, note) == page.PAGE.read_text()
    cells = page.cells(lines)
    for league in page.LEAGUES:
        _, total, good = page.against(cells, league)
        assert 0 < good <= total
