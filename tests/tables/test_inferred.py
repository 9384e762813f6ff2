"""Inferred groups in tables: expected counts, the same in every engine."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import evenhand as eh
from evenhand.tables.audit_table import cells_of

N = 1500
SHARES = {"white": "p", "black": "q"}
ROLES = {"y_true": "y", "y_pred": "s", "sensitive_features": SHARES}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    p = rng.beta(0.5, 0.5, N).round(3)
    y = rng.normal(size=N) + p
    out = pd.DataFrame(
        {"y": y, "s": y + rng.normal(size=N), "p": p, "q": 1.0 - p, "w": rng.random(N),
         "f": rng.integers(0, 3, N),
         "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, N), "D")}
    )  # fmt: skip
    out.loc[:9, "q"] = np.nan
    return out


def tables(frame, folder):
    frame.to_parquet(folder / "t.parquet", index=False)
    frame.to_csv(folder / "t.csv", index=False)
    return {
        "DuckDB": folder / "t.parquet",
        "DuckDB, CSV": folder / "t.csv",
        "Polars": pl.from_pandas(frame, nan_to_null=True).lazy(),
        "pandas": frame,
    }


@pytest.mark.parametrize("more", [{}, {"sample_weight": "w", "frequency": "f"}, {"y_true": None}])
def test_expected_counts_are_those_of_rows(more, frame, tmp_path):
    roles = {**ROLES, **more}
    target = None if roles["y_true"] is None else frame["y"]
    want = eh.Cells.from_rows(
        target, frame["s"], sensitive_features=eh.Proxy(frame[["p", "q"]], list(SHARES), "guess"),
        sample_weight=frame["w"] if "sample_weight" in more else None,
        frequency=frame["f"] if "frequency" in more else None,
    )  # fmt: skip
    for table in tables(frame, tmp_path).values():
        found = cells_of(table, **roles, assume="guess")
        assert found.expected
        assert found.assume == "guess"
        assert set(found.labels) == set(want.labels)
        assert (found.n, found.n_unknown) == (want.n, want.n_unknown)
        assert found.edges == want.edges
        for k, label in enumerate(want.labels):
            mine, own = want.group == k, found.group == found.labels.index(label)
            np.testing.assert_array_equal(found._place[own], want._place[mine])
            np.testing.assert_allclose(found.count[own], want.count[mine], rtol=1e-9)
            np.testing.assert_allclose(found.sums[own], want.sums[mine], rtol=1e-7, atol=1e-9)


def test_an_audit_and_its_verdict(frame, tmp_path):
    table = tables(frame, tmp_path)["DuckDB"]
    found = eh.audit_table(table, **ROLES, estimator="logistic")
    want = eh.audit(
        frame["y"], frame["s"], sensitive_features=eh.Proxy(frame[["p", "q"]], list(SHARES)),
        estimator="logistic",
    )  # fmt: skip
    for name, measure in want.measures.items():
        near = pytest.approx(measure.value, abs=0.2 * measure.stderr)
        assert found.measures[name].value == near
    limit = eh.Tolerance(independence=0.9)
    assert found.verdict(limit).outcome == "not enough data"
    sure = eh.audit_table(table, **ROLES, estimator="logistic", assume="guess")
    assert sure.verdict(limit).outcome == "pass"


def test_monitoring_of_inferred_groups(frame, tmp_path):
    names = {"time": "day", "y_pred": "s", "sensitive_features": SHARES, "estimator": "logistic"}
    want = eh.monitor(frame, **names)
    assert want.periods == ("2024-01", "2024-02", "2024-03")
    for key in ("DuckDB", "Polars"):
        table = tables(frame, tmp_path)[key]
        found = eh.monitor(table, **names)
        for have, known in zip(
            found.looks["independence"], want.looks["independence"], strict=True
        ):
            assert have.n == known.n
            assert have.value == pytest.approx(known.value, abs=0.05 * known.stderr)


def test_probabilities_that_are_none(frame, tmp_path):
    frame.assign(q=0.7).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="add up to 1 in each row: 1,"):
        cells_of(tmp_path / "t.parquet", **ROLES)
    with pytest.raises(ValueError, match="probabilities of at least two groups"):
        cells_of(frame, **{**ROLES, "sensitive_features": {"white": "p"}})
    with pytest.raises(ValueError, match='without assume="group"'):
        cells_of(frame, **ROLES, assume="group")
    with pytest.raises(ValueError, match="`cluster` must be left out for probabilities"):
        eh.monitor(frame, time="day", y_pred="s", sensitive_features=SHARES, cluster="f")
