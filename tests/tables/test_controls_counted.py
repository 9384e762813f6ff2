"""Controls of tables that stay where they are: what is found is what rows in memory say."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import evenhand as eh

N = 2500
ROLES = {"y_true": "y", "y_pred": "s", "sensitive_features": "a"}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Groups differ by 1 in the score, of which a control explains about half."""
    rng = np.random.default_rng(2)
    a = rng.choice(["p", "q", "r"], N, p=[0.5, 0.3, 0.2])
    grade = np.minimum(rng.integers(0, 4, N) + (a == "q"), 3)
    region = rng.choice(np.array(["north", "south", None], dtype=object), N)
    y = rng.normal(size=N) + grade
    s = 10 + 1.5 * grade + 0.5 * (a == "q") + (region == "north") + rng.normal(size=N)
    return pd.DataFrame({"y": y, "s": s, "a": a, "grade": grade.astype(str), "region": region})


@pytest.fixture(scope="module")
def exact(frame):
    return eh.audit(
        frame["y"],
        frame["s"],
        sensitive_features=frame[["a"]],
        controls=frame[["grade", "region"]],
        estimator="lspc",
    )


def test_every_engine_finds_what_controls_leave(frame, exact, held):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    found = eh.audit_table(
        held(table), **ROLES, controls=["grade", "region"], estimator="lspc"
    )  # fmt: skip
    own = exact.conditional
    assert found.conditional.controls == ("grade", "region")
    assert found.conditional.reference == own.reference == "p"
    for group in ("q", "r"):
        for part in ("raw", "adjusted", "explained"):
            mine, theirs = (getattr(c.gap(group), part) for c in (found.conditional, own))
            # The order of rows decides who is in which fold, which moves what controls explain.
            room = 0.02 if part == "raw" else 0.3
            assert abs(mine.value - theirs.value) < room * theirs.stderr
            assert mine.stderr == pytest.approx(theirs.stderr, rel=0.02)
    mine, theirs = found.conditional.information, own.information
    assert abs(mine.value - theirs.value) < 1.5 * theirs.stderr
    assert found.conditional.gap("q").adjusted.value == pytest.approx(0.5, abs=0.2)
    assert set(found.measures) == set(exact.measures)


def test_weights_crossings_and_one_control(frame):
    rng = np.random.default_rng(0)
    more = frame.assign(w=rng.random(N), b=rng.choice(["x", "z"], N))
    roles = {**ROLES, "sensitive_features": ["a", "b"], "sample_weight": "w", "estimator": "lspc"}
    found = eh.audit_table(duckdb.from_df(more), **roles, controls="grade").conditional
    own = eh.audit_table(more, **roles, controls="grade").conditional
    for gap in own.gaps:
        mine = found.gap(gap.group)
        assert abs(mine.adjusted.value - gap.adjusted.value) < 0.3 * gap.adjusted.stderr
    assert found.reference == own.reference


def test_of_many_people_some_are_compared(frame, monkeypatch):
    """With errors of as many."""
    monkeypatch.setattr("evenhand.auditing.audits.MOST_COMPARED", 1000)
    how = {"controls": "grade", "estimator": "lspc"}
    found = eh.audit_table(duckdb.from_df(frame), **ROLES, **how).conditional
    own = eh.audit_table(frame, **ROLES, **how).conditional
    for group in ("q", "r"):
        few, every = found.gap(group), own.gap(group)
        assert few.n == pytest.approx(every.n * 1000 / N, abs=20)
        assert few.adjusted.stderr == pytest.approx(
            every.adjusted.stderr * (N / 1000) ** 0.5, rel=0.1
        )
        assert abs(few.adjusted.value - every.adjusted.value) < 3 * every.adjusted.stderr


def test_gaps_in_controls_are_a_level(frame):
    """NULL and an empty text are the same one."""
    table = pa.Table.from_pandas(frame.fillna({"region": ""}), preserve_index=False)
    gap, blank = (
        eh.audit_table(
            duckdb.from_arrow(t), **ROLES, controls="region", estimator="lspc"
        ).conditional.gap("q")
        for t in (pa.Table.from_pandas(frame, preserve_index=False), table)
    )
    assert gap == blank
    assert gap.n_compared == (frame["a"] == "q").sum()


def test_controls_that_cannot_be_used(frame):
    more = frame.assign(number=np.arange(N) / 7, same="x")
    for table in (duckdb.from_df(more), pl.from_pandas(more).lazy()):
        for controls, message in (
            ("number", r"`controls` \(column 'number'\) must have at most 200 levels"),
            ("same", "`controls` must hold a column that can be used, got none"),
            ("gender", r"`controls\[0\]` must be a column of the table: there is no 'gender'"),
            ("a", "`controls` must be columns other than groups and score"),
            (["s"], "`controls` must be columns other than groups and score"),
            (3, "`controls` must be the name of a column or a list of names, got int"),
        ):
            with pytest.raises(ValueError, match=message):
                eh.audit_table(table, **ROLES, controls=controls, estimator="lspc")
