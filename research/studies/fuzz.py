"""Random misuse of everything public: a result that can be true, or an error that explains itself.

A case draws valid input, and damages some of it or transforms all of it. Right are

- a documented exception: ValueError, TypeError or OSError whose message names an argument, or says
  of a file what is wrong with it; a command that ends with one of its exit codes and a sentence;
- a result within its bounds, which prints and becomes plain values;
- the same result after rows are permuted, labels renamed, units changed, the container changed, and
  rows split into cells and merged.

A case is a function of its number alone, so that one that failed can be run again:
``python research/studies/fuzz.py arguments 4711``. FUZZ_SECONDS is the CPU time of each target, 60
by default, and FUZZ_FIRST the number of its first case. FUZZ_CASES is a number of cases over all
targets: what the seconds leave of it goes to the target whose cases take least time. With
FUZZ_MORE=1 a run goes on behind the cases of the table, where the same package was measured.
`tests/test_fuzz.py` runs a few of each.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import re
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import evenhand as eh

if TYPE_CHECKING:
    from common import Setting

Random = np.random.Generator
# Of NumPy's: "invalid value encountered in divide" is our arithmetic, not the user's.
NUMERIC = ".*(encountered in|overflow|divide by zero).*"
MEASURES = {"independence": eh.independence, "separation": eh.separation,
            "sufficiency": eh.sufficiency}  # fmt: skip
QUICK = ("lspc", "logistic")
LOOK = 0.25  # seconds between two looks at the CPU time


class Broken(AssertionError):
    """A result that cannot be true."""


def must(good: Any, what: str) -> None:
    if not good:
        raise Broken(what)


# Input --------------------------------------------------------------------------------------------


def pick(rng: Random, choices: Any) -> Any:
    choices = list(choices)
    return choices[int(rng.integers(len(choices)))]


def draw(rng: Random, least: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Target, score and group of a few rows."""
    n, k = int(rng.integers(least, 80)), int(rng.integers(2, 5))
    a = rng.permutation(np.arange(n) % k)
    y = rng.normal(size=n) * (1 + 0.3 * a) + rng.normal() * a
    s = rng.uniform(0.2, 1.0) * y + rng.normal(size=n)
    if rng.random() < 0.2:  # ties
        y, s = np.rint(y), np.rint(2 * s)
    return y, s, a


_WORDS = np.array(["blue", "green", "∅ é", "a,b;c", "=1+1", "", "NaN"], dtype=object)
# Values of no number, or of one that is too large.
_ODD = (None, np.nan, np.inf, -np.inf, 1e300, -1e300, 1e-320, 10**400, "x", "", b"x", True, 1j,
        Decimal("1.5"), Fraction(1, 3), pd.NA, pd.NaT, object, [1], (1, 2), {},
        np.datetime64("NaT"), 2**63, -(2**63), np.float32(0.1), -0.0, "1.5", "∅" * 300)  # fmt: skip


def _object(values: Any) -> np.ndarray:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _with(values: Any, odd: Any, rng: Random) -> np.ndarray:
    out = _object(list(values))
    for row in rng.integers(0, max(len(out), 1), int(rng.integers(1, 4))):
        if len(out):
            out[row] = odd
    return out


# How a column may come: all of these hold its values.
CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda v: v,
    "list": lambda v: v.tolist(),
    "tuple": lambda v: tuple(v.tolist()),
    "column": lambda v: v[:, None],
    "strided": lambda v: np.repeat(v, 2)[::2],
    "reversed": lambda v: v[::-1].copy()[::-1],
    "read-only": lambda v: _frozen(v),
    "object": lambda v: v.astype(object),
    "pandas": lambda v: pd.Series(v),
    "pandas frame": lambda v: pd.DataFrame({"column": v}),
    "pandas nullable": lambda v: pd.Series(v).convert_dtypes(),
    "pandas arrow": lambda v: pd.Series(pa.array(v), dtype=pd.ArrowDtype(pa.array(v).type)),
    "polars": lambda v: pl.Series("column", v),
    "polars frame": lambda v: pl.DataFrame({"column": v}),
    "arrow": lambda v: pa.array(v),
    "arrow chunks": lambda v: pa.chunked_array([v[:3], v[3:]]),
}


def _frozen(values: np.ndarray) -> np.ndarray:
    out = values.copy()
    out.flags.writeable = False
    return out


# What may be wrong with a column; some of it is right for some arguments.
DAMAGE: dict[str, Callable[[np.ndarray, Random], Any]] = {
    "none": lambda v, r: None,
    "empty": lambda v, r: v[:0],
    "short": lambda v, r: v[: int(r.integers(len(v)))],
    "long": lambda v, r: np.r_[v, v],
    "scalar": lambda v, r: pick(r, _ODD),
    "one odd value": lambda v, r: _with(v, pick(r, _ODD), r),
    "odd list": lambda v, r: _with(v, pick(r, _ODD), r).tolist(),
    "all odd": lambda v, r: _object([pick(r, _ODD)] * len(v)),
    "mixed": lambda v, r: _object([pick(r, _ODD) for _ in v]),
    "constant": lambda v, r: np.full(len(v), v[0]),
    "negative": lambda v, r: -np.abs(np.asarray(v, dtype=float)) - 1,
    "huge": lambda v, r: np.asarray(v, dtype=float) * 10.0 ** r.integers(100, 308),
    "tiny": lambda v, r: np.asarray(v, dtype=float) * 10.0 ** -r.integers(100, 330),
    "words": lambda v, r: r.choice(_WORDS, len(v)),
    "texts of numbers": lambda v, r: np.asarray(v).astype(str),
    "bytes": lambda v, r: np.asarray(v).astype("S"),
    "flags": lambda v, r: np.asarray(v) > 0,
    "complex": lambda v, r: np.asarray(v) + 1j,
    "dates": lambda v, r: np.datetime64("2024-01-01") + np.arange(len(v)),
    "durations": lambda v, r: np.arange(len(v)).astype("m8[s]"),
    "two columns": lambda v, r: np.column_stack([v, v]),
    "no columns": lambda v, r: np.empty((len(v), 0)),
    "three dimensions": lambda v, r: np.asarray(v)[:, None, None],
    "masked": lambda v, r: np.ma.array(v, mask=np.arange(len(v)) % 3 == 0),
    "records": lambda v, r: np.array([(x, 1) for x in v], dtype=[("a", float), ("b", int)]),
    "half floats": lambda v, r: np.asarray(v, dtype=float).astype(np.float16),
    "long floats": lambda v, r: np.asarray(v).astype(np.longdouble),
    "other index": lambda v, r: pd.Series(v, index=r.permutation(len(v))),
    "shifted index": lambda v, r: pd.Series(v, index=np.arange(len(v)) + 5),
    "repeated index": lambda v, r: pd.Series(v, index=np.zeros(len(v), dtype=int)),
    "category": lambda v, r: pd.Series(v).astype("category"),
    "twice the same name": lambda v, r: pd.DataFrame(np.column_stack([v, v]), columns=["a", "a"]),
    "polars with gaps": lambda v, r: pl.Series(v).shift(2),
    "polars lists": lambda v, r: pl.Series([[x] for x in np.asarray(v).tolist()]),
    "polars structs": lambda v, r: pl.Series([{"a": x} for x in np.asarray(v).tolist()]),
    "polars lazy": lambda v, r: pl.LazyFrame({"a": v}),
    "arrow with gaps": lambda v, r: pa.array([None, *np.asarray(v).tolist()[1:]]),
    "arrow dictionary": lambda v, r: pa.array(np.asarray(v).astype(str)).dictionary_encode(),
    "generator": lambda v, r: (x for x in v),
    "set": lambda v, r: set(np.asarray(v).tolist()),
    "dict": lambda v, r: {"a": v},
    "dict of nothing": lambda v, r: {},
    "dict of unequal": lambda v, r: {"a": v, "b": v[1:]},
    "path": lambda v, r: Path("nowhere.csv"),
    "continuous": lambda v, r: eh.Continuous(v),
    "proxy": lambda v, r: eh.Proxy(np.column_stack([v, 1 - np.asarray(v, dtype=float)])),
    "good proxy": lambda v, r: eh.Proxy(r.dirichlet(np.ones(3), len(v))),
    "sparse": lambda v, r: __import__("scipy.sparse").sparse.csr_matrix(np.asarray(v)[:, None]),
}  # fmt: skip
_VALUES = (*_ODD, 0, 1, 2, -1, 0.5, 1.5, 0.95, 1000, "auto", "nope", "logistic", "lspc", "knn",
           "independence", "largest", (), [0.5], [0.5, -1], {"a": 1}, np.array([1.0, 2.0]),
           np.int64(3), math.nextafter(1.0, 0.0), Ellipsis, "median", "high", False)  # fmt: skip


def damage(rng: Random, given: dict[str, Any], columns: set[str]) -> dict[str, Any]:
    """One to three arguments damaged; those in `columns` as columns, others as values."""
    out = dict(given)
    for name in rng.permutation(sorted(out))[: int(rng.integers(1, 4))]:
        if isinstance(out[name], bool):
            out[name] = pick(rng, (True, False, 0, 1))
        elif name not in columns:
            out[name] = pick(rng, _VALUES)
        else:
            value = np.asarray(out[name])
            out[name] = damaged(value if value.ndim == 1 else value[:, 0], rng)
    return out


def damaged(values: np.ndarray, rng: Random) -> Any:
    """A column in a form that may be wrong; as it is where it has no such form."""
    try:
        with np.errstate(all="ignore"):
            if rng.random() < 0.2:
                return pick(rng, CONTAINERS.values())(values)
            return pick(rng, DAMAGE.values())(values, rng)
    except (TypeError, ValueError, ArithmeticError, pa.ArrowException):
        return values


def without_many_types(values: Any) -> Any:
    """Text in place of an array or list of many types, on some of which pyarrow 26 crashes."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    kinds = {*map(type, listed)} if isinstance(listed, list) else set()
    if len(kinds) > 3 or (np.datetime64 in kinds and len(kinds) > 1):
        return [str(value) for value in listed]
    return values


# Results ------------------------------------------------------------------------------------------


def check_value(value: Any) -> None:
    must(isinstance(value, float), f"a measure is a {type(value).__name__}")
    must(math.isnan(value) or -10.0 < value <= 1.0 + 1e-6, f"a normalized measure is {value}")


def check_plain(value: Any) -> None:
    """Values that JSON holds, without NaN."""
    json.dumps(value, allow_nan=False)


def check_audit(audit: Any) -> None:
    for part in getattr(audit, "audits", {"": audit}).values():
        for measure in part.measures.values():
            check_value(measure.value)
            low, high = measure.interval
            must(not low > high, f"an interval runs from {low} to {high}")
            p = measure.p_value
            must(math.isnan(p) or 0.0 <= p <= 1.0, f"a p-value is {p}")
    must(str(audit).strip(), "an audit has no words")
    audit._repr_html_()
    audit.to_frame()
    check_plain(audit.to_dict())


def check_scores(scores: Any, n: int) -> None:
    scores = np.asarray(scores)
    must(scores.shape == (n,), f"scores of {n} rows have shape {scores.shape}")
    must(np.isfinite(scores).all(), "scores are not finite")


def close(found: Any, expected: Any, what: str, slack: float = 1e-6) -> None:
    found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    must(found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}")
    both = np.isnan(found) & np.isnan(expected)
    # The scale of what is compared: predictions have units.
    size = max(float(np.nanmax(np.abs(expected), initial=0.0)), 1.0)
    off = np.where(both, 0.0, np.abs(found - expected)) / size
    must((off <= slack).all(), f"{what}: {np.max(off):.2g} apart")


# Targets ------------------------------------------------------------------------------------------


def fuzz_arguments(rng: Random) -> None:
    """The three measures."""
    y, s, a = draw(rng)
    n = len(y)
    columns = {"y_true": y, "y_pred": s, "sensitive_features": a, "sample_weight": rng.random(n),
               "frequency": rng.integers(1, 5, n),
               "cluster": rng.integers(0, n // 2, n)}  # fmt: skip
    for name in ("sample_weight", "frequency", "cluster"):
        if rng.random() < 0.5:
            del columns[name]
    given = {**columns, "estimator": pick(rng, QUICK), "normalize": bool(rng.integers(2))}
    given = damage(rng, given, set(columns))
    y_true, y_pred = given.pop("y_true"), given.pop("y_pred")
    given.setdefault("sensitive_features", a)
    value = pick(rng, MEASURES.values())(y_true, y_pred, **given)
    check_value(value if given["normalize"] is True else min(value, 1.0))


def fuzz_audits(rng: Random) -> None:
    """Audits, and what is asked of them."""
    y, s, a = draw(rng)
    n = len(y)
    columns = {
        "y_true": y, "y_pred": s, "sensitive_features": a, "sample_weight": rng.random(n),
        "frequency": rng.integers(1, 5, n), "cluster": rng.integers(0, n // 2, n),
        "controls": rng.normal(size=(n, 2)), "exposure": rng.random(n) + 0.1,
    }  # fmt: skip
    for name in ("sample_weight", "frequency", "cluster", "controls", "exposure"):
        if rng.random() < 0.8:
            del columns[name]
    options = {"estimator": "logistic", "confidence_level": 0.9, "reference": "largest",
               "random_state": 0, "loss": None, "power": 1.5}  # fmt: skip
    given = damage(rng, {**columns, **options}, set(columns))
    y_true, y_pred = given.pop("y_true"), given.pop("y_pred")
    audit = eh.audit(y_true, y_pred, **given)
    check_audit(audit)
    if rng.random() < 0.3 and isinstance(audit, eh.Audit):
        asked = damage(rng, {"reference": "largest", "at": ["median"], "favorable": "high",
                             "smallest": 0.05, "cutoffs": [0.1]}, set())  # fmt: skip
        check_plain(audit.impact(**asked).to_dict())


def values_of(y: Any, s: Any, a: Any, **more: Any) -> np.ndarray:
    """Nats: normalized by next to nothing, rounding would show."""
    return np.array([
        measure(y, s, sensitive_features=a, normalize=False, **more)
        for measure in MEASURES.values()
    ])  # fmt: skip


def fuzz_invariances(rng: Random) -> None:
    """The same rows in another order, under other names, in other units and containers."""
    y, s, a = draw(rng, 20)
    n, more = len(y), {"estimator": pick(rng, (*4 * QUICK, "auto"))}
    if rng.random() < 0.3:
        more["sample_weight"] = rng.uniform(0.2, 2.0, n)
    if rng.random() < 0.3:
        more["cluster"] = rng.integers(0, n // 2, n)
    before = values_of(y, s, a, **more)
    kind = pick(rng, ("order", "names", "units", "containers", "weights"))
    slack = 1e-6
    if kind == "order":
        order = rng.permutation(n)
        y, s, a = y[order], s[order], a[order]
        more = {k: v if isinstance(v, str) else v[order] for k, v in more.items()}
    elif kind == "names":
        names = pick(rng, (["z", "m", "b", "a"], [3.5, -1.0, 0.0, 9.0], [True, False, "x", "y"],
                           ["=1", "@b", "<i>", "\u202e"]))  # fmt: skip
        a = _object([names[code] for code in a])
    elif kind == "units":
        y = 10.0 ** rng.integers(-12, 13) * pick(rng, (1, -1)) * y
        s = 10.0 ** rng.integers(-12, 13) * pick(rng, (1, -1)) * s + rng.normal()
        slack = 1e-4  # a shift that is much larger than the score costs digits
        if np.ptp(s) < 1e-6:
            return
    elif kind == "containers":
        y, s, a = (pick(rng, CONTAINERS.values())(v) for v in (y, s, a))
        if "cluster" in more:
            more["cluster"] = pick(rng, CONTAINERS.values())(more["cluster"])
    else:
        weight = more.get("sample_weight", np.ones(n))
        more["sample_weight"] = 10.0 ** rng.integers(-100, 100) * weight
    close(values_of(y, s, a, **more), before, f"{kind}, {more['estimator']}", slack)


def fuzz_cells(rng: Random) -> None:
    """Rows counted in parts and merged; counts from damaged columns."""
    y, s, a = draw(rng, 30)
    n = len(y)
    columns = {"y_true": y, "y_pred": s, "sensitive_features": a,
               "sample_weight": rng.random(n) + 0.1}  # fmt: skip
    if rng.random() < 0.5:
        given = damage(rng, {**columns, "edges": 16}, set(columns))
        cells = eh.Cells.from_rows(given.pop("y_true"), given.pop("y_pred"), **given)
    else:
        whole = eh.Cells.from_rows(**columns, edges=int(rng.integers(4, 64)))
        part = rng.integers(0, 3, n)
        parts = [
            eh.Cells.from_rows(**{k: v[part == j] for k, v in columns.items()}, edges=whole.edges)
            for j in range(3) if (part == j).any()
        ]  # fmt: skip
        cells = sum(parts[1:], parts[0])
        must(cells.n == whole.n, f"{whole.n} people became {cells.n}")
        order = np.argsort(np.array([str(v) for v in cells.labels]))
        must([cells.labels[k] for k in order] == sorted(whole.labels, key=str), "labels differ")
        if rng.random() < 0.3:
            found, expected = (
                eh.audit(c, estimator="lspc", random_state=0) for c in (cells, whole)
            )
            for name in expected.measures:
                close(found.measures[name].nats, expected.measures[name].nats, f"merged {name}")
    again = eh.Cells.from_arrow(cells.to_arrow())
    must(again.to_arrow().equals(cells.to_arrow()), "cells changed on their way through Arrow")


def _model(rng: Random) -> tuple[type, dict[str, Any]]:
    criterion = pick(rng, (*MEASURES, "independence"))
    shared = {"criterion": criterion, "fairness_weight": float(pick(rng, (0.0, 0.5, 3.0)))}
    kind = pick(rng, ("ridge", "ridge", "glm", "map", "stack"))
    if kind == "ridge":
        return eh.FairRidge, {
            **shared, "alpha": 1e-3, "classifier": pick(rng, ("logistic", "lspc")),
            "basis": "quadratic", "kappa": "auto", "group_features": pick(rng, (None, "posterior")),
            "max_iter": 30,
        }  # fmt: skip
    if kind == "glm":
        family = pick(rng, ("normal", "poisson", "gamma", "tweedie", "binomial", "quantile"))
        return eh.FairGLM, {"family": family, **shared, "alpha": 1e-2, "power": 1.5, "link": None,
                            "max_iter": 30}  # fmt: skip
    from sklearn.linear_model import Ridge

    return eh.FairPostprocessor, {
        "estimator": Ridge(), **shared, "passthrough": kind == "stack", "cv": 2, "random_state": 0,
    }  # fmt: skip


def fuzz_models(rng: Random) -> None:
    """Fits: their parameters, their columns, and what must not change them."""
    y, _, a = draw(rng, 30)
    n = len(y)
    X = rng.normal(size=(n, int(rng.integers(1, 4)))) + 0.5 * a[:, None] + 0.3 * y[:, None]
    make, options = _model(rng)
    family = options.get("family")
    if family in ("poisson", "gamma", "tweedie"):
        y = np.exp(0.3 * y)
    elif family == "binomial":
        y = 1.0 / (1.0 + np.exp(-y))
    columns = {"sensitive_features": a}
    if rng.random() < 0.3:
        columns["sample_weight"] = rng.uniform(0.2, 2.0, n)
    if rng.random() < 0.6:
        options = damage(rng, options, set()) if rng.random() < 0.5 else options
        given = damage(rng, {"X": X, "y": y, **columns}, {"X", "y", *columns})
        X, y = given.pop("X"), given.pop("y")
        model = make(**options).fit(X, y, **given)
        if isinstance(X, np.ndarray | pd.DataFrame | pl.DataFrame):
            check_scores(model.predict(X), len(X))
        return
    before = make(**options).fit(X, y, **columns).predict(X)
    check_scores(before, n)
    kind = pick(rng, ("order", "names", "units", "frames"))
    order, unit = np.arange(n), 1.0
    if kind == "order":
        order = rng.permutation(n)
    elif kind == "names" and make is not eh.FairPostprocessor and not options.get("group_features"):
        # Names decide which group has no feature of its own, and how folds are drawn.
        columns["sensitive_features"] = _object([["w", "c", "b", "a"][code] for code in a])
    elif kind == "units" and family in (None, "normal", "gamma"):
        unit = 10.0 ** rng.integers(-6, 7)
    Z, target = X[order], unit * y[order]
    columns = {name: column[order] for name, column in columns.items()}
    if kind == "frames":
        names = [f"c{j}" for j in range(X.shape[1])]
        Z = pick(rng, (pd.DataFrame, pl.DataFrame))(dict(zip(names, X.T, strict=True)))
    after = make(**options).fit(Z, target, **columns).predict(Z) / unit
    # Folds of stacks and the ends of iterations depend on the order of rows.
    if kind == "order" and make is eh.FairPostprocessor:
        return
    close(after, before[order], f"{kind}, {make.__name__}, {options}", 2e-2)


def fuzz_tables(rng: Random) -> None:
    """Tables of each library, with columns by name."""
    y, s, a = draw(rng, 30)
    n = len(y)
    held = {"y": y, "s": s, "a": np.array(["p", "q", "r", "t"])[a], "w": rng.random(n) + 0.1,
            "d": np.datetime64("2024-01-01") + rng.integers(0, 200, n)}  # fmt: skip
    if rng.random() < 0.6:
        name = pick(rng, held)
        held[name] = damaged(np.asarray(held[name]), rng)
    frame = pick(rng, (pd.DataFrame, pl.DataFrame, pa.table, pl.LazyFrame))
    if frame is pa.table:
        held = {name: without_many_types(values) for name, values in held.items()}
    try:
        table = frame(held)
    except Exception:  # not a table at all
        return
    roles = {"y_true": "y", "y_pred": "s", "sensitive_features": "a", "sample_weight": "w",
             "estimator": "logistic"}  # fmt: skip
    if rng.random() < 0.4:
        roles = damage(rng, roles, set())
    if rng.random() < 0.3:
        found = eh.monitor(table, time="d", period="quarter", **roles)
        check_plain(found.to_dict())
    else:
        check_audit(eh.audit_table(table, **roles))


# Files --------------------------------------------------------------------------------------------


def places(data: Any, way: tuple = ()) -> Iterator[tuple]:
    if way:
        yield way
    if isinstance(data, dict | list):
        for name, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from places(value, (*way, name))


_JSON = (None, True, False, 0, 1, -1, 2, 0.5, -3.5, 1e308, 10**400, "", "x", "NaN", [], [1], {},
         {"type": "os.system"}, {"a": 1}, "∅", [None], [[1]], "FairRidge")  # fmt: skip


def mutate(data: Any, rng: Random) -> Any:
    """Data of JSON with one or two places changed, dropped, repeated or exchanged."""
    out = copy.deepcopy(data)
    for _ in range(int(rng.integers(1, 3))):
        way = pick(rng, places(out))
        parent = out
        for key in way[:-1]:
            parent = parent[key]
        kind = rng.random()
        if kind < 0.6:
            parent[way[-1]] = copy.deepcopy(pick(rng, _JSON))
        elif kind < 0.75 or not isinstance(parent, dict):
            del parent[way[-1]]
        elif kind < 0.9:
            parent[pick(rng, ("extra", "type", "coef_", "n"))] = copy.deepcopy(pick(rng, _JSON))
        else:
            other = pick(rng, parent)
            parent[other], parent[way[-1]] = parent[way[-1]], parent[other]
        if not out:
            break
    return out


def spoil(text: bytes, rng: Random) -> bytes:
    """Bytes cut off, flipped, dropped or inserted."""
    at = int(rng.integers(len(text)))
    kind = int(rng.integers(4))
    junk = rng.integers(0, 256, int(rng.integers(1, 5)), dtype=np.uint8).tobytes()
    return (text[:at], text[:at] + junk + text[at:], text[:at] + text[at + len(junk) :],
            text[:at] + junk + text[at + len(junk) :])[kind]  # fmt: skip


@cache
def folder() -> Path:
    """For files of this process."""
    made = tempfile.TemporaryDirectory(prefix="fuzz-")
    _KEPT.append(made)
    return Path(made.name)


_KEPT: list[Any] = []


@cache
def model_files() -> tuple[tuple[str, int], ...]:
    """Texts of saved models, and how many features each takes."""
    from sklearn.linear_model import Ridge
    from sklearn.tree import DecisionTreeRegressor

    rng = np.random.default_rng(0)
    n = 60
    a = np.arange(n) % 2
    X = rng.normal(size=(n, 2)) + a[:, None]
    y = X.sum(axis=1) + rng.normal(size=n)
    named = pd.DataFrame({"u": X[:, 0], "t": np.where(X[:, 1] > 0, "x", "z")})
    models = (
        eh.FairRidge().fit(X, y, sensitive_features=a),
        eh.FairRidge(group_features="posterior").fit(named, y, sensitive_features=a),
        eh.FairGLM("gamma").fit(X, np.exp(y / 3), sensitive_features=a),
        eh.FairPostprocessor(DecisionTreeRegressor(max_depth=2), passthrough=True, cv=2,
                             random_state=0).fit(X, y, sensitive_features=a),
        eh.FairPostprocessor(Ridge(), group_features="posterior", random_state=0)
        .fit(X, y, sensitive_features=a),
    )  # fmt: skip
    path = folder() / "made.json"
    return tuple((eh.save(model, path, force=True).read_text(), 2) for model in models)


def fuzz_model_files(rng: Random) -> None:
    """Models whose file was changed, also by somebody who signed it again."""
    from evenhand.training.model_files import _digest

    text, width = pick(rng, model_files())
    path = folder() / "model.json"
    if rng.random() < 0.3:
        path.write_bytes(spoil(text.encode(), rng))
    else:
        data = mutate(json.loads(text), rng)
        if rng.random() < 0.8 and isinstance(data, dict):
            with contextlib.suppress(ValueError):
                data["digest"] = _digest(data)
        path.write_text(json.dumps(data))
    model = eh.load(path)
    if getattr(model, "feature_names_in_", None) is None:
        width = getattr(model, "n_features_in_", None) or width
        must(np.shape(model.predict(rng.normal(size=(3, width)))) == (3,), "not a score a row")


@cache
def cell_files() -> tuple[bytes, Any]:
    y, s, a = draw(np.random.default_rng(0), 60)
    cells = eh.Cells.from_rows(y, s, sensitive_features=a, edges=8)
    path = folder() / "made.cells"
    cells.to_file(path, force=True)
    return path.read_bytes(), cells.to_arrow()


def fuzz_cell_files(rng: Random) -> None:
    """Cells whose file or table was changed."""
    content, table = cell_files()
    if rng.random() < 0.4:
        path = folder() / "changed.cells"
        path.write_bytes(spoil(content, rng))
        cells = eh.Cells.from_file(path)
    else:
        head = {key.decode(): json.loads(value) for key, value in table.schema.metadata.items()}
        names = table.column_names
        if rng.random() < 0.5:
            head = mutate(head, rng)
        else:
            name = pick(rng, names)
            values = table.column(name).to_numpy()
            with contextlib.suppress(Exception):
                other = without_many_types(damaged(values, rng))
                table = table.set_column(names.index(name), name, pa.array(other))
        if rng.random() < 0.1:
            table = table.drop_columns([pick(rng, names)])
        said = {key: json.dumps(value) for key, value in head.items()}
        cells = eh.Cells.from_arrow(table.replace_schema_metadata(said))
    if rng.random() < 0.1:
        check_audit(eh.audit(cells, estimator="lspc"))
    must(eh.Cells.from_arrow(cells.to_arrow()).n == cells.n, "cells changed on reading again")


_CLAUSES = ("independence", "separation", "smd", "mean_ratio", "impact_ratio", "adjusted_gap",
            "kolmogorov_smirnov", "dsm", "mae_ratio")  # fmt: skip


def fuzz_tolerances(rng: Random) -> None:
    """Tolerances, by arguments and in files."""
    if rng.random() < 0.4:
        given = {"level": 0.05, "reference": "largest", "favorable": "high", "at": ("median",),
                 "cutoffs": (), "smallest": 0.05}  # fmt: skip
        given |= {name: pick(rng, (0.01, (0.9, 1.1), (None, 2.0), [0.8, None], *_VALUES))
                  for name in rng.permutation(_CLAUSES)[: int(rng.integers(1, 4))]}  # fmt: skip
        tolerance = eh.Tolerance(**(damage(rng, given, set()) if rng.random() < 0.5 else given))
    else:
        good = eh.Tolerance(independence=0.01, mean_ratio=(0.9, 1.1), impact_ratio=(0.8, None),
                            favorable="high")  # fmt: skip
        ending = pick(rng, ("json", "toml"))
        path = folder() / f"tolerance.{ending}"
        if ending == "json" and rng.random() < 0.7:
            path.write_text(json.dumps(mutate(good.to_dict(), rng)))
        else:
            good.to_file(path, force=True)
            path.write_bytes(spoil(path.read_bytes(), rng))
        tolerance = eh.Tolerance.from_file(path)
    must(str(tolerance), "a tolerance has no words")
    again = eh.Tolerance.from_dict(json.loads(json.dumps(tolerance.to_dict(), allow_nan=False)))
    must(again.digest == tolerance.digest, "a tolerance changed on reading again")


def fuzz_values(rng: Random) -> None:
    """What is small: bands, plans, numbers of rows, names of things."""
    y, _s, a = draw(rng)
    kind = int(rng.integers(4))
    if kind == 0:
        given = {"values": y, "edges": [0.0, 1.0], "labels": None}
        eh.bands(**damage(rng, given, {"values"}))
    elif kind == 1:
        given = {"effect": 0.01, "shares": [0.5, 0.5], "level": 0.05, "power": 0.8,
                 "criterion": "independence", "tolerance": None}  # fmt: skip
        n = eh.rows_needed(**damage(rng, given, set()))
        must(isinstance(n, int) and n > 0, f"{n} rows are needed")
    elif kind == 2:
        given = {"probabilities": rng.dirichlet(np.ones(3), len(y)), "classes": ["a", "b", "c"],
                 "assume": None}  # fmt: skip
        given = damage(rng, given, {"probabilities"} if rng.random() < 0.5 else set())
        check_value(eh.independence(None, y, sensitive_features=eh.Proxy(**given),
                                    estimator="lspc"))  # fmt: skip
    else:
        options = {"criterion": pick(rng, MEASURES), "classifier": pick(rng, QUICK),
                   "basis": "quadratic", "kappa": "auto"}  # fmt: skip
        term = eh.FairnessRegularizer(**damage(rng, options, set()))
        bound = term.bind(y, sensitive_features=a)
        scores = damaged(y, rng)
        value, slope = bound.value_and_grad(scores)
        # Slopes in units of 1e-300 are beyond all floats.
        tiny = np.abs(np.asarray(scores, dtype=float)).max() < 1e-290
        must(np.isfinite(value) and (tiny or np.isfinite(slope).all()), "a term is not finite")
        must(np.shape(slope) == np.shape(y), "a slope has another shape")


# Commands -----------------------------------------------------------------------------------------


@cache
def program() -> Any:
    """The commands as Typer makes them, which takes longer than many of them."""
    import typer

    from evenhand.cli.app import app

    return typer.main.get_command(app)


@cache
def commands() -> dict[str, Any]:
    skipped = ("demo",)  # nothing of it depends on options but its folder
    return {name: c for name, c in program().commands.items() if name not in skipped}


def _write_table(rng: Random) -> Path:
    y, s, a = draw(rng, 40)
    path = folder() / "rows.csv"
    frame = pd.DataFrame({"y": y, "s": s, "t": s + y, "a": np.array(["p", "q", "r", "=x"])[a],
                          "x": rng.normal(size=len(y)), "w": rng.random(len(y)) + 0.1,
                          "d": pd.date_range("2024-01-01", periods=len(y)).astype(str)}
                         )  # fmt: skip
    frame.to_csv(path, index=False)
    if rng.random() < 0.3:
        path.write_bytes(spoil(path.read_bytes(), rng))
    return path


_OPTIONS = ("y", "s", "t", "a", "x", "w", "d", "none", "", "0", "1", "-1", "0.05", "nan", "1e999",
            "10", "quarter", "lspc", "logistic", "high", "low", "median", "largest", "p", "=x",
            "independence", "independence=0.1", "mean_ratio=0.9,1.1", "∅", "a,b", "--", "ridge",
            "glm-gamma", "posterior", "duckdb", "polars", "/", ".")  # fmt: skip


_NUMBERS = ("1", "5", "0", "-1", "0.05", "0.5", "nan", "1e-300")
_ENDINGS = {"cells": ".cells", "predict": ".csv", "frontier": ""}


def flags_of(name: str) -> set[str]:
    return {flag for parameter in commands()[name].params for flag in parameter.opts}


@cache
def model_path() -> Path:
    path = folder() / "commands.json"
    path.write_text(model_files()[0][0])
    return path


def fuzz_commands(rng: Random) -> None:
    """Commands with columns that are there, and any other options."""
    from typer.testing import CliRunner

    from evenhand.cli.app import app

    name = pick(rng, commands())
    table, out = _write_table(rng), folder() / f"out-{int(rng.integers(3))}"
    words: list[str] = [name]
    right = {
        "--target": ["y"], "--prediction": ["s", "t"] if name in ("compare", "alternatives")
        else ["s"], "--sensitive": ["a"], "--estimator": ["lspc"], "--time": ["d"],
        "--floor": ["-5"], "--model": ["ridge"], "--out": [str(out) + _ENDINGS.get(name, "")],
    }  # fmt: skip
    for parameter in commands()[name].params:
        flags = [flag for flag in parameter.opts if flag.startswith("-")]
        flag = max(flags, key=len, default="")
        odd = rng.random() < 0.05
        if not flag:
            good = {"folder": out, "model": model_path()}.get(parameter.name, table)
            good = folder() / "limits.json" if name == "tolerance" else good
            words.append(str(pick(rng, (table, out, "nowhere.csv", folder())) if odd else good))
        elif flag in right and not odd:
            if (
                flag in ("--floor", "--time", "--model")
                and not parameter.required
                and (flag == "--floor" and name != "alternatives")
            ):
                continue
            words += [word for value in right[flag] for word in (flag, value)]
        elif flag not in ("--help", "--debug") and rng.random() < (
            0.9 if parameter.required else 0.04
        ):
            words.append(flag)
            if not getattr(parameter, "is_flag", False):
                kind = str(parameter.type_descriptor.annotation)
                fitting = _NUMBERS if re.search("int|float", kind) else _OPTIONS
                words.append(str(pick(rng, (*fitting, table, out) if odd else fitting)))
    words += ["--force"] if rng.random() < 0.9 and "--force" in flags_of(name) else []
    words += ["--independence", "0.1"] if name == "tolerance" and rng.random() < 0.8 else []
    before = os.getcwd()
    os.chdir(folder())
    try:
        with patch("typer.testing._get_command", lambda _app: program()):
            result = CliRunner().invoke(app, words)
    finally:
        os.chdir(before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise Broken(f"{' '.join(words)}: {result.exception!r}") from result.exception
    must(result.exit_code in (0, 1, 2, 4), f"{' '.join(words)} ended with {result.exit_code}")
    must("Traceback" not in result.output, f"{' '.join(words)} printed a traceback")
    must(result.exit_code != 2 or result.stderr.strip(), f"{' '.join(words)} failed in silence")
    if result.exit_code == 2:
        raise Refused


class Refused(ValueError):
    """A command that said what is wrong."""

    def __str__(self) -> str:
        return "`command`"


TARGETS: dict[str, Callable[[Random], None]] = {
    "arguments": fuzz_arguments, "audits": fuzz_audits, "invariances": fuzz_invariances,
    "cells": fuzz_cells, "models": fuzz_models, "tables": fuzz_tables,
    "model files": fuzz_model_files, "cell files": fuzz_cell_files,
    "tolerances": fuzz_tolerances, "values": fuzz_values, "commands": fuzz_commands,
}  # fmt: skip


# Judging ------------------------------------------------------------------------------------------


def is_documented(error: Exception) -> bool:
    """Whether an error is one that users can read: it names an argument, a column or a file."""
    from evenhand._core.files import TableError
    from evenhand.data.encoding import ColumnError

    if isinstance(error, TableError | ColumnError | FileExistsError | ModuleNotFoundError):
        return True
    if not isinstance(error, ValueError | TypeError | OSError) or not str(error):
        return False
    if re.search(r"`|tolerance\b|^Sample weights|^a node must", str(error)):
        return True
    # scikit-learn's own checks of X and y have words of their own.
    frames = traceback.walk_tb(error.__traceback__)
    return any("/sklearn/utils/" in frame.f_code.co_filename for frame, _line in frames)


def run_case(target: str, number: int) -> str:
    """Run one case: "result", "refused", or what is wrong."""
    rng = np.random.default_rng([zlib.crc32(target.encode()), number])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", NUMERIC, RuntimeWarning)
            TARGETS[target](rng)
    except Broken as error:
        return f"broken: {error}"
    except Exception as error:
        if is_documented(error):
            return "refused"
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "evenhand" in f.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside"
        return f"undocumented: {type(error).__name__} at {where}: {str(error)[:120]}"
    return "result"


def run_target(target: str, first: int, seconds: float, most: int) -> dict[str, Any]:
    """Cases one after the other until the CPU time is up."""
    began, number, last = time.process_time(), first, first + most
    row: dict[str, Any] = {"target": target, "cases": 0, "results": 0, "refused": 0,
                           "undocumented": 0, "broken": 0}  # fmt: skip
    seen: dict[str, int] = {}
    # To read the CPU time may take longer than a case.
    looked = time.perf_counter()
    while number < last:
        if time.perf_counter() - looked > LOOK:
            if time.process_time() - began > seconds:
                break
            looked = time.perf_counter()
        said = run_case(target, number)
        kind = {"result": "results", "refused": "refused"}.get(said) or said.partition(":")[0]
        row[kind] += 1
        if kind in ("undocumented", "broken"):
            seen.setdefault(re.sub(r"[\d.]+e?[-+]?\d*", "#", said)[:90], number)
            if list(seen.values())[-1] == number:
                print(f"{target} {number}: {said}", flush=True)
        number += 1
    row["cases"] = number - first
    row["cpu_s"] = time.process_time() - began
    return row


COUNTS = ("cases", "results", "refused", "undocumented", "broken", "cpu_s")


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """One row for each target."""
    seconds = float(os.environ.get("FUZZ_SECONDS", "60"))
    first = int(os.environ.get("FUZZ_FIRST", "0"))
    setting.facts["first case"] = first
    before = earlier(setting) if os.environ.get("FUZZ_MORE") else {}
    most, rows = setting.choose(10**9, 2), []
    for target in filter(setting.wants, TARGETS):
        row = before.get(target) or {"target": target, **dict.fromkeys(COUNTS, 0)}
        rows.append(add(row, run_target(target, first + row["cases"], seconds, most)))
    left = int(os.environ.get("FUZZ_CASES", "0")) - sum(row["cases"] for row in rows)
    if left > 0:
        row = max(rows, key=lambda row: row["cases"] / row["cpu_s"])
        add(row, run_target(row["target"], first + row["cases"], math.inf, left))
    yield from rows


def add(row: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Cases of a target that went on, in its row."""
    row |= {name: row[name] + more[name] for name in COUNTS}
    return row


def earlier(setting: Setting) -> dict[str, dict[str, Any]]:
    """Rows of the table that were measured on the package as it is, by target."""
    from evidence import last_change, read_table

    out = {}
    for row in read_table("fuzz", setting.results, stamped=True):
        if not last_change(("src/evenhand",), row["commit"].rstrip("+")):
            counts = {name: int(row[name]) for name in COUNTS[:-1]}
            out[row["target"]] = {"target": row["target"], **counts, "cpu_s": float(row["cpu_s"])}
    return out


if __name__ == "__main__":  # one case again, with its traceback
    generator = np.random.default_rng([zlib.crc32(sys.argv[1].encode()), int(sys.argv[2])])
    warnings.simplefilter("ignore")
    warnings.filterwarnings("error", NUMERIC, RuntimeWarning)
    TARGETS[sys.argv[1]](generator)
