"""Tables that are hard to count right, through one body on every engine.

Each is an Arrow table, handed to every engine as that engine would hold it. The truth is
`Cells.from_rows` of plain NumPy columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.tables.audit_table import cells_of

N = 600


@dataclass(frozen=True)
class Case:
    """Columns of a table; `known` are its groups as a person would read them."""

    s: Any
    y: Any
    groups: dict[str, Any]
    known: dict[str, Any] | None = None
    weight: Any = None
    frequency: Any = None
    kinds: dict[str, Any] | None = None

    @property
    def table(self) -> pa.Table:
        given = {"s": self.s, "y": self.y, "w": self.weight, "f": self.frequency, **self.groups}
        kinds = self.kinds or {}
        return pa.table(
            {
                name: pa.array(values, kinds.get(name), from_pandas=False)
                for name, values in given.items()
                if values is not None
            }
        )

    @property
    def roles(self) -> dict[str, Any]:
        return {
            "y_true": "y", "y_pred": "s", "sensitive_features": list(self.groups),
            "sample_weight": None if self.weight is None else "w",
            "frequency": None if self.frequency is None else "f",
        }  # fmt: skip

    def truth(self, edges: Any = None) -> eh.Cells:
        column = self.table.column
        s, y = (np.array(column(name).to_pylist(), dtype=np.float64) for name in "sy")
        return eh.Cells.from_rows(
            y, s, sensitive_features=self.known or self.groups, sample_weight=self.weight,
            frequency=self.frequency, edges=edges,
        )  # fmt: skip


def _two(rng):
    return rng.choice(["p", "q"], N)


def single(rng):
    """Columns of 32 bits, whose values are not those of their decimals."""
    y = rng.normal(size=N).astype(np.float32)
    s = (y + rng.normal(size=N)).astype(np.float32)
    return Case(s, y, {"a": _two(rng)}, weight=rng.random(N).astype(np.float32))


def kinds_of_groups(rng):
    """Whole numbers, booleans and categories, crossed."""
    code = rng.integers(-1, 2, N)
    level = rng.integers(0, 3, N)
    switch = rng.random(N) < 0.5
    words = np.array(["höch", "low", "middle"])
    return Case(
        rng.normal(size=N), rng.normal(size=N),
        {
            "code": code,
            "switch": switch,
            "level": pa.DictionaryArray.from_arrays(level.astype(np.int8), words),
        },
        {"code": code, "switch": switch, "level": words[level]},
    )  # fmt: skip


def gaps(rng):
    """NULL, NaN and empty text are all an unknown group; a space is a name."""
    text = [None, "", " ", "p", "q", "p"] * (N // 6)
    number = [float("nan"), 1.0, 2.5, None] * (N // 4)
    known = {
        "text": np.array([v or None for v in text], dtype=object),
        "number": np.array([None if v != v else v for v in number], dtype=object),
    }
    return Case(
        rng.normal(size=N), rng.normal(size=N), {"text": text, "number": number}, known,
        weight=np.where(rng.random(N) < 0.2, 0.0, rng.random(N)),
        frequency=rng.integers(0, 4, N),
    )  # fmt: skip


def negative(rng):
    """All below zero, as are shifts, ends and slopes in the queries."""
    y = -np.exp(rng.normal(size=N))
    return Case(-1000.0 + rng.normal(size=N) - y, y, {"a": -rng.integers(1, 3, N)})


def far(rng):
    """Means a thousand million standard deviations from zero."""
    y = -1e9 + rng.normal(size=N)
    return Case(1e9 + (y + 1e9) + rng.normal(size=N), y, {"a": _two(rng)}, weight=rng.random(N))


def close(rng):
    """Scores near a line in the target, which the grid follows."""
    y = rng.normal(size=N)
    return Case(3 - 2 * y + 0.01 * rng.normal(size=N), y, {"a": _two(rng)})


def masses(rng):
    """Point masses in both, one of them at the same place."""
    y = np.where(rng.random(N) < 0.7, 0.0, rng.gamma(2.0, size=N))
    s = np.where(rng.random(N) < 0.4, 0.25, rng.random(N))
    return Case(s, y, {"a": _two(rng)}, frequency=rng.integers(1, 3, N).astype(np.uint8))


def whole(rng):
    """Whole numbers and truth values where fractions are looked for, and one score for all."""
    return Case(
        np.full(N, 7, dtype=np.int32), rng.random(N) < 0.3, {"a": _two(rng)},
        weight=rng.integers(1, 9, N).astype(np.int16),
    )  # fmt: skip


def heavy(rng):
    """Tails over 200 orders of magnitude."""
    y = rng.choice([-1.0, 1.0], N) * 10.0 ** rng.uniform(-100, 100, N)
    return Case(rng.normal(size=N), y, {"a": _two(rng)})


CASES = {
    f.__name__: f
    for f in (single, kinds_of_groups, gaps, negative, far, close, masses, whole, heavy)
}


@pytest.mark.parametrize("name", list(CASES))
def test_every_engine_counts_hard_tables(name, held):
    case = CASES[name](np.random.default_rng(8))
    found = cells_of(held(case.table), **case.roles)
    own = case.truth(found.edges)
    assert found.labels == own.labels
    assert found.n_unknown == own.n_unknown
    for column in ("score_bin", "target_bin", "group", "count", "least", "largest"):
        np.testing.assert_array_equal(getattr(found, column), getattr(own, column))
    for k in range(own.sums.shape[1]):
        room = 1e-12 * np.abs(own.sums[:, k]).max()
        np.testing.assert_allclose(found.sums[:, k], own.sums[:, k], rtol=1e-12, atol=room)
    free = case.truth().edges
    assert found.edges.bins == free.bins
    assert found.edges.slope == pytest.approx(free.slope)
    for axis, other in ((found.edges.score, free.score), (found.edges.target, free.target)):
        for field in ("shift", "scale", "low", "rate"):
            assert getattr(axis, field) == pytest.approx(getattr(other, field), rel=1e-9)


@pytest.mark.parametrize(
    ("column", "argument"), [("s", "y_pred"), ("y", "y_true"), ("w", "sample_weight")]
)
def test_numbers_that_are_none_are_refused_with_their_number(column, argument, held):
    case = single(np.random.default_rng(8))
    table = case.table
    values = table.column(column).to_pylist()
    for row, number in {3: "nan", 77: None, 150: "inf", 599: "-inf"}.items():
        values[row] = None if number is None else float(number)
    place = table.column_names.index(column)
    bad = table.set_column(place, column, pa.array(values, pa.float64()))
    with pytest.raises(ValueError, match=f"`{argument}` must be finite: (4 of 600 rows|it holds)"):
        cells_of(held(bad), **case.roles)
