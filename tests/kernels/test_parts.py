"""Rows in parts: terms, values and gradients as of the same rows in memory."""

import numpy as np
import pytest

from evenhand._kernels import make_rows, with_score
from evenhand._kernels.parts import PartedRows
from evenhand.groups.sensitive import Groups
from evenhand.information.basis import get_basis
from evenhand.information.classifiers.logistic import LogisticTerm, every
from evenhand.information.classifiers.lspc import LSPCTerm


def in_parts(rows, size, unknown=0):
    """The same rows, with others of weight 0 behind them where asked for."""
    n, columns = rows.n, ("s", "y", "codes", "weight")
    if unknown:
        weight = rows.weight if len(rows.weight) else np.ones(n)
        more = {
            "s": np.full(unknown, 3.0), "codes": np.zeros(unknown, rows.codes.dtype),
            "y": np.full(unknown if len(rows.y) else 0, -1.0), "weight": np.zeros(unknown),
        }  # fmt: skip
        rows = rows._replace(weight=weight)
        rows = rows._replace(**{c: np.append(getattr(rows, c), more[c]) for c in columns})

    def parts():
        for start in range(0, n + unknown, size):
            cut = {c: getattr(rows, c)[start : start + size] for c in columns}
            yield rows._replace(**cut)

    return PartedRows(
        n, rows.shares, rows.center, rows.moves, parts, lambda stride: every(rows, stride)
    )


@pytest.mark.parametrize("kind", ["logistic", "lspc"])
@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize(
    ("n_groups", "weighted", "unknown"),
    [(2, False, 0), (2, True, 31), (5, False, 17), (30, True, 0)],
)
def test_terms_are_those_of_all_rows(kind, two, n_groups, weighted, unknown):
    rng = np.random.default_rng([n_groups, two])
    n = 30_011
    codes = rng.integers(0, n_groups, n)
    weight = None
    if weighted:
        weight = rng.uniform(0.2, 2.0, n)
        weight /= weight.mean()
    groups = Groups(tuple(range(n_groups)), codes, None, weight, None, n)
    s = rng.normal(size=n) + 0.3 * (codes % 3)
    rows = with_score(make_rows(groups, rng.normal(size=n) + 0.2 * codes if two else None), s)
    basis = get_basis("quadratic", 1 + two)

    def make():
        return LogisticTerm(basis) if kind == "logistic" else LSPCTerm(basis, 0.3 * n, free=True)

    value, gradient = make().value_and_grad(rows, 0.7)
    parted = in_parts(rows, 7_001, unknown)
    part_gradient, total = make().in_parts(parted, 0.7)
    found = np.concatenate([part_gradient(part) for part in parted.parts()])
    np.testing.assert_allclose(found[:n], gradient, atol=1e-8 * np.abs(gradient).max())
    assert not found[n:].any()
    assert total() == pytest.approx(value, abs=1e-12)
    assert make().value(parted) == pytest.approx(value, abs=1e-12)
