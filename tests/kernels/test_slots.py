"""Slots between quantiles, against NumPy."""

import numpy as np
import pytest

from evenhand.estimators.ranks import Ranks, quantile_slots
from evenhand.kernels.ranks import find_slots

N = 120_000
LAWS = {
    "normal": lambda rng: rng.normal(size=N),
    "heavy tails": lambda rng: rng.standard_cauchy(N),
    "crowded at one end": lambda rng: np.exp(5.0 * rng.normal(size=N)),
    "few values": lambda rng: np.round(rng.normal(size=N), 1),
    "half zeros": lambda rng: np.maximum(rng.normal(size=N), 0.0),
    "two values": lambda rng: rng.integers(0, 2, N).astype(float),
    "far from zero": lambda rng: 1e12 + rng.random(N),
    "the range of floats": lambda rng: rng.choice([-1.7e308, 1.7e308], N) * rng.random(N),
    "a lump": lambda rng: np.where(rng.random(N) < 0.9, 0.0, 1e300 * rng.normal(size=N)),
    "infinite": lambda rng: np.where(rng.random(N) < 0.01, -np.inf, rng.normal(size=N)),
    "constant": lambda rng: np.full(N, 7.0),
    "as good as constant": lambda rng: np.where(np.arange(N) == 7, 1.0, 0.0),
}


@pytest.mark.parametrize("law", LAWS)
def test_slots_are_those_of_a_search(law):
    values = LAWS[law](np.random.default_rng(0))
    quantiles, edges, slot, counts, low, high = quantile_slots(values)
    place = np.searchsorted(quantiles, values)
    expected = 2 * place + (np.append(quantiles, np.inf)[place] == values)
    np.testing.assert_array_equal(slot, expected)
    np.testing.assert_array_equal(counts, np.bincount(expected, minlength=len(counts)))
    assert (low, high) == (values.min(), values.max())
    assert len(edges) == 4096
    ordered = np.sort(values)
    np.testing.assert_array_equal(quantiles, np.unique(ordered[np.arange(4095) * (N - 1) // 4094]))


def test_values_beyond_the_floats_have_slots():
    edges = np.append(np.linspace(-1.0, 1.0, 4095), np.inf)
    slot, *_ = find_slots(np.array([-np.inf, np.inf, 0.0, -1.0]), edges)
    assert slot.tolist() == [0, 2 * 4095 + 1, 2 * 2047 + 1, 1]


def test_slices_are_equally_filled_and_numbered_without_gaps():
    number, count = Ranks(np.arange(12.0)).slices(4)
    assert (number.tolist(), count) == (np.repeat(range(4), 3).tolist(), 4)
    number, count = Ranks(np.repeat([1.0, 2.0], 6)).slices(4)
    assert (number.tolist(), count) == (np.repeat(range(2), 6).tolist(), 2)
