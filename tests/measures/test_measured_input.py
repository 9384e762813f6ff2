"""Measurements of every kind and size: the same answer from any library, or an error that helps."""

from __future__ import annotations

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import evenhand as eh

N = 300
rng = np.random.default_rng(0)
A = rng.normal(size=N).astype(np.float32).astype(np.float64)
Y = 0.5 * A + rng.normal(size=N)
S = 0.5 * A + 0.5 * Y + rng.normal(size=N)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def values(a, **options):
    found = eh.audit(Y, S, sensitive_features=eh.Continuous(a), **options)
    return [m.value for m in found.measures.values()]


PLAIN = values(A)


@pytest.mark.parametrize(
    "a",
    [
        A.tolist(),
        A.astype(np.float32),
        A.astype(object),
        np.argsort(np.argsort(A)).astype(np.int16),
        np.argsort(np.argsort(A)).astype(np.uint64) + np.uint64(2**40),
        pd.Series(A, name="age"),
        pd.Series(A).astype("Float64"),
        pd.DataFrame({"age": A}),
        pl.Series("age", A),
        pl.Series("age", A.astype(np.float32)),
        pa.chunked_array([A[:100], A[100:]]),
        pd.Series([Decimal(repr(v)) for v in A.tolist()]),
        np.datetime64("1950-01-01", "s") + np.argsort(np.argsort(A)).astype("timedelta64[s]"),
        np.ma.masked_array(A, mask=np.zeros(N, dtype=bool)),
        # Only the order counts: outliers without bounds, and numbers near the smallest.
        np.tan(np.pi * (np.argsort(np.argsort(A)) + 1.0) / (N + 2.0) - np.pi / 2),
        np.where(np.max(A) == A, 1e308, np.where(np.min(A) == A, -1e308, A)),
        A * 1e-300,
    ],
)
def test_the_same_answer_from_every_library_and_scale(a):
    assert values(a) == pytest.approx(PLAIN, abs=1e-12)


@pytest.mark.parametrize(
    "gaps",
    [
        lambda a, out: np.where(out, np.nan, a),
        lambda a, out: pd.Series(a).astype("Float64").mask(out),
        lambda a, out: pl.Series(a).set(pl.Series(out), None),
        lambda a, out: np.ma.masked_array(a, mask=out),
        lambda a, out: [None if gone else v for v, gone in zip(a.tolist(), out, strict=True)],
    ],
)
def test_missing_values_are_rows_left_out(gaps):
    out = np.arange(N) % 5 == 0
    found = eh.audit(Y, S, sensitive_features=eh.Continuous(gaps(A, out)))
    assert found.n_unknown == out.sum()
    left = eh.audit(Y[~out], S[~out], sensitive_features=eh.Continuous(A[~out]))
    for name, m in left.measures.items():
        assert found.measures[name].value == pytest.approx(m.value, abs=1e-12)


def test_ten_values_and_point_masses():
    ten = np.clip(np.round(2 * A), -5, 4)
    assert len(np.unique(ten)) == 10
    assert values(ten)[0] == pytest.approx(PLAIN[0], abs=0.06)
    # Most rows at zero: what is left to tell is whether one is there, and how far beyond.
    most = np.where(A < 1.0, 0.0, A)
    bits = eh.independence(None, S, sensitive_features=most > 0, normalize=False)
    own = eh.independence(None, S, sensitive_features=eh.Continuous(most), normalize=False)
    whole = eh.independence(None, S, sensitive_features=eh.Continuous(A), normalize=False)
    assert bits - 0.03 < own < whole + 0.02


@pytest.mark.parametrize("n", [10, 12, 15, 20, 30, 60])
def test_few_rows_are_measured_without_certainty(n):
    found = eh.audit(Y[:n], S[:n], sensitive_features=eh.Continuous(A[:n]))
    assert len(found.labels) <= max(n // 10, 2)
    for m in found.measures.values():
        assert 0 <= m.interval[0] <= m.interval[1] <= 1
        assert m.interval[1] - m.interval[0] > 0.15


def test_few_independent_rows_are_never_called_unfair_by_the_estimate():
    # Sixteen classes of A among 50 rows once found half of its variance explained.
    high = 0
    for seed in range(25):
        a, s = np.random.default_rng(seed).normal(size=(2, 50))
        m = eh.audit(None, s, sensitive_features=eh.Continuous(a)).independence
        high += m.interval[0] > 0
    assert high <= 3


def test_outliers_of_the_score_count_by_rank():
    far = np.where(np.arange(N) == np.argmax(S), 1e300, S)
    one, other = (
        eh.independence(None, s, sensitive_features=eh.Continuous(A)) for s in (S, far)
    )  # fmt: skip
    assert one == other
    heavy = rng.standard_cauchy(size=(2, 2000))
    m = eh.audit(None, heavy[0], sensitive_features=eh.Continuous(heavy[1])).independence
    assert m.value < 0.02
    assert m.p_value > 0.01


def test_weights_scale_and_frequencies_are_repeats():
    weight = 0.5 + rng.random(N)
    assert values(A, sample_weight=1000 * weight) == pytest.approx(
        values(A, sample_weight=weight), abs=1e-12
    )
    times = rng.integers(1, 4, N)
    counted = values(A, frequency=times)
    again = np.repeat(np.arange(N), times)
    repeated = eh.audit(Y[again], S[again], sensitive_features=eh.Continuous(A[again]))
    assert [m.value for m in repeated.measures.values()] == pytest.approx(counted, abs=1e-9)


def test_copies_of_rows_are_counted_once():
    again = np.repeat(np.arange(N), 4)
    found = eh.audit(Y[again], S[again], sensitive_features=eh.Continuous(A[again]))
    assert found.n_copies == 3 * N
    for m, value in zip(found.measures.values(), PLAIN, strict=True):
        assert m.value == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("a", "message"),
    [
        (np.ones(N), "at least 10 distinct values, got 1"),
        (np.full(N, np.nan), "at least 10 distinct values, got 0"),
        (A[:0], "at least 10 distinct values, got 0"),
        (np.where(A > 2, np.inf, A), "finite or missing"),
        (A.astype(str), "numbers written as text; convert them first"),
        (pd.Series(A.astype(str)), "numbers written as text; convert them first"),
        (pl.Series(A.astype(str)), "numbers written as text; convert them first"),
        (np.where(A > 0, "old", "young"), "text and booleans are groups already"),
        (A + 1j, "must be numbers or dates, got complex128"),
        (A > 0, "must be numbers or dates, got bool"),
        (pd.Series(pd.to_timedelta(A, unit="D")), "must be numbers or dates, got timedelta64"),
        (np.column_stack([A, A]), "one column, got 2"),
    ],
)
def test_what_is_refused(a, message):
    with pytest.raises(ValueError, match=message):
        eh.Continuous(a)


def test_refused_with_the_rows():
    with pytest.raises(ValueError, match="one entry per row"):
        values(A[:-1])
    with pytest.raises(ValueError, match="at least 5 effective rows"):
        values(A, sample_weight=np.where(np.arange(N) == 0, 1e9, 1.0))
