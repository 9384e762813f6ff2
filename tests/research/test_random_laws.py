"""The fuzzer's laws: what it takes for their truth, and how it ranks what it finds."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import entr

from distributions import drawn as laws
from evenhand.data.criteria import BOTH, NOTHING, SCORE, TARGET
from pages.accuracy import list_worst, worst
from studies import adversary


def numbers_of(kind):
    """The first laws of a kind."""
    found = [i for i in range(60) if laws.draw(7, i).kind == kind]
    return found[: 2 if kind == "table" else 1]


def histogram(v, a, k):
    values, code = np.unique(v, return_inverse=True)
    if len(values) > 300:
        code = np.argsort(np.argsort(v)) * 300 // len(v)
    counts = np.bincount(code * k + a, minlength=(code.max() + 1) * k).reshape(-1, k)
    return (entr(counts / len(v)).sum() - entr(counts.sum(axis=1) / len(v)).sum()).item()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["dyadic", "voronoi", "half_planes", "discs", "waves", "mixture", "table"]
)
def test_truth_against_a_sample(kind):
    n = 400_000
    for index in numbers_of(kind):
        scenario, k = laws.draw(7, index).scenario, laws.draw(7, index).scenario.n_groups
        h = scenario.truth.entropies
        if kind == "table":
            y, s, a = scenario.sample(n, 0)
            i, j = np.searchsorted(scenario.s_values, s), np.searchsorted(scenario.y_values, y)
            p = scenario.probabilities[:, i, j]
        else:
            plain = replace(scenario, margins=("normal", "normal"))
            y, s, a = plain.sample(n, 0)
            p = plain.posterior(s, y)
        np.testing.assert_allclose(p.sum(axis=0), 1.0)
        # Mean entropy of what is known, and the loss of what was drawn, which differ in noise.
        assert entr(p).sum(axis=0).mean() == pytest.approx(h[BOTH], abs=2e-3)
        assert -np.log(p[a, np.arange(n)]).mean() == pytest.approx(h[BOTH], abs=8e-3)
        assert entr(np.bincount(a, minlength=k) / n).sum() == pytest.approx(h[NOTHING], abs=5e-3)
        assert histogram(s, a, k) == pytest.approx(h[SCORE], abs=8e-3)
        assert histogram(y, a, k) == pytest.approx(h[TARGET], abs=8e-3)


def test_an_identifier_is_the_law():
    for index in range(5):
        one, two = laws.draw(3, index), laws.draw(3, index)
        assert (one.n, one.kind, one.note) == (two.n, two.kind, two.note)
        for first, second in zip(
            one.scenario.sample(50, 1), two.scenario.sample(50, 1), strict=True
        ):
            np.testing.assert_array_equal(first, second)
    assert len({laws.draw(3, index).note for index in range(20)}) == 20


def test_ranges_of_what_is_drawn():
    drawn = [laws.draw(11, i) for i in range(200)]
    sizes = np.array([law.n for law in drawn])
    assert sizes.min() >= 500
    assert sizes.max() <= 300_000
    assert {law.scenario.n_groups for law in drawn} == {2, 3, 4, 5, 6}
    assert {law.kind for law in drawn} == {*laws.PARTITIONS, "mixture", "table"}


def test_what_is_allowed():
    assert adversary.allowed(0.4, 0.01, 9_999) == pytest.approx(0.03 + 0.1 + 0.005)
    assert adversary.allowed(0.4, 0.01, 10_000) == pytest.approx(0.03 + 0.04 + 0.005)


def test_a_law_is_tried_again_with_the_same_result():
    index = next(i for i in range(99) if laws.draw(5, i).n < 2_000)
    one, two = (adversary.try_law(5, index, "logistic") for _ in range(2))
    assert [row["criterion"] for row in one] == ["independence", "separation", "sufficiency"]
    for a, b in zip(one, two, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}
        excess = abs(a["value"] - a["truth"]) - a["allowed"]
        assert a["excess"] == pytest.approx(excess)


def test_the_worst_come_first_and_errors_before_them():
    base = {"kind": "table", "n": 500, "rows_per_piece": 5.0, "note": "", "criterion": "all"}
    numbers = {"truth": 0.5, "value": 0.1, "low": 0.0, "high": 0.2, "error": ""}
    rows = [
        {**base, **numbers, "id": "0-1", "excess": 0.1},
        {**base, **numbers, "id": "0-1", "excess": 0.2},
        {**base, **numbers, "id": "0-2", "excess": -0.1},
        {**base, "id": "0-3", "excess": np.inf, "error": "ValueError: no"},
        {**base, **numbers, "id": "0-4", "excess": 0.3},
    ]
    listed = worst(rows, 2)
    assert [row["id"] for row in listed] == ["0-3", "0-4"]
    text = list_worst(worst(rows, 100))
    assert text.count("\n") == 4
    assert "| ValueError: no |" in text
