"""Families of maps by group: columns, coefficients and values agree, and no map falls."""

import numpy as np
import pytest

from evenhand.training.group_features import ScoreMaps, Transport

RNG = np.random.default_rng(0)
Z = RNG.normal(size=60)
P = RNG.dirichlet([1.0, 1.0, 1.0], 60)
NONE = np.empty(0)
FAMILIES = {
    "affine": ScoreMaps(3, NONE, None),
    "spline": ScoreMaps(3, np.array([-0.5, 0.5]), None),
    "transport": ScoreMaps(3, NONE, Transport.fit(Z, P)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_are_the_linear_model_of_their_features(family):
    maps = FAMILIES[family]
    features = maps.features(Z, P)
    coef = RNG.normal(size=features.shape[1])
    offsets, slopes = maps.unpack(0.7, coef)
    assert offsets.shape == (3,)
    assert maps.evaluate(Z, P, offsets, slopes) == pytest.approx(0.7 + features @ coef)


@pytest.mark.parametrize("family", ["spline", "transport"])
def test_simple_columns_are_maps_of_the_same_family(family):
    maps = FAMILIES[family]
    features = maps.features(Z, P)[:, maps.simple_columns()]
    coef = RNG.normal(size=features.shape[1])
    offsets, slopes = maps.unpack(-0.2, coef)
    whole = np.zeros((3, 3 if family == "spline" else 2))
    whole[:, : slopes.shape[1]] = slopes
    assert maps.evaluate(Z, P, offsets, whole) == pytest.approx(-0.2 + features @ coef)


def test_affine_maps_have_none_simpler():
    assert FAMILIES["affine"].simple_columns() is None


def test_one_map_for_everybody():
    maps = ScoreMaps(1, np.array([0.0]), None)
    features = maps.features(Z, None)
    assert features.shape == (60, 2)
    offsets, slopes = maps.unpack(1.0, np.array([2.0, 3.0]))
    expected = 1.0 + 2.0 * Z + 3.0 * np.maximum(Z, 0.0)
    assert maps.evaluate(Z, np.ones((60, 1)), offsets, slopes) == pytest.approx(expected)


def test_blend_of_a_spline_in_closed_form():
    maps = ScoreMaps(2, np.array([0.0]), None)
    straight, bent = np.array([[1.0], [2.0]]), np.array([[3.0, -2.0], [2.0, 2.0]])
    assert maps.blend(straight, bent) == 1.0
    bent[0, 1] = -4.0  # second piece -1: 1 − t − t = 0
    assert maps.blend(straight, bent) == pytest.approx(0.5)
    assert maps.blend(np.array([[-1.0]]), np.array([[-1.0, 2.0]])) == 0.0


def test_blend_of_transport_falls_nowhere():
    maps = FAMILIES["transport"]
    simple, fitted = np.tile([0.0, 1.0], (3, 1)), np.tile([-0.8, 1.2], (3, 1))
    t = maps.blend(simple, fitted)
    assert 0 < t < 1
    grid = np.linspace(-4, 4, 4001)

    def least(t):
        slopes = (1 - t) * simple + t * fitted
        each = [maps.evaluate(grid, np.tile(row, (4001, 1)), np.zeros(3), slopes)
                for row in np.eye(3)]  # fmt: skip
        return np.diff(each).min()

    assert least(t) >= -1e-9
    assert least(t + 0.05) < -1e-9
