"""`audit(cells)`: the whole audit, close to that of the rows."""

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.measures import cell_rows as cell_people


def _rows(n=8000, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    y = rng.gamma(2.0, size=n)
    s = 0.8 * y + rng.normal(size=n) + 0.1 * a
    return y, s, np.array(["x", "y"])[a], rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize("estimator", ["auto", "logistic", "lspc", eh.Logistic("linear")])
@pytest.mark.parametrize("weighted", [False, True])
def test_close_to_the_audit_of_the_rows(estimator, weighted):
    y, s, a, w = _rows()
    w = w if weighted else None
    rows = eh.audit(y, s, sensitive_features=a, sample_weight=w, estimator=estimator)
    cells = eh.Cells.from_rows(y, s, sensitive_features=a, sample_weight=w)
    found = eh.audit(cells, estimator=estimator)
    assert (found.n_rows, found.n_unknown, found.labels) == (8000, 0, ("x", "y"))
    for name, m in rows.measures.items():
        own = found.measures[name]
        assert own.value == pytest.approx(m.value, abs=0.1 * m.stderr)
        assert own.stderr == pytest.approx(m.stderr, rel=0.05)
        assert (own.n, own.n_effective) == (m.n, pytest.approx(m.n_effective))
        if weighted:
            assert (own.p_value < 0.01) == (m.p_value < 0.01)
        else:
            assert np.log(own.p_value) == pytest.approx(np.log(m.p_value), rel=0.2, abs=0.5)
    assert found.r2 == pytest.approx(rows.r2, rel=1e-10)
    exact = ["n", "share", "n_effective", "mean_score", "sd_score", "mean_target", "sd_target",
             "mean_residual", "sd_residual", "rmse", "calibration_slope"]  # fmt: skip
    mine, theirs = (v.groups.set_index("group") for v in (found, rows))
    assert list(mine.columns) == list(theirs.columns)
    np.testing.assert_allclose(mine[exact], theirs[exact], rtol=1e-9)
    np.testing.assert_allclose(mine, theirs, rtol=2e-3, atol=2e-3)
    gaps = [list(vars(v.disparities).values()) for v in (found, rows)]
    np.testing.assert_allclose(*gaps, rtol=0.02)


def test_views_work(tmp_path):
    y, s, a, w = _rows(2000)
    found = eh.audit(eh.Cells.from_rows(y, s, sensitive_features=a, sample_weight=w))
    assert "2,000 rows" in str(found)
    found.to_html(tmp_path / "cells.html")
    assert found.plot().axes
    assert found.to_dict()["n_rows"] == 2000


def test_crossed_attributes_are_audited_one_by_one():
    y, s, a, _ = _rows()
    frame = pd.DataFrame({"race": a, "sex": np.where(np.arange(8000) % 3, "f", "m")})
    frame.loc[:99, "sex"] = None
    cells = eh.Cells.from_rows(y, s, sensitive_features=frame)
    found, rows = (
        eh.audit(cells, estimator="logistic"),
        eh.audit(y[100:], s[100:], sensitive_features=frame[100:], estimator="logistic"),
    )
    assert (found.n_rows, found.n_unknown) == (8000, 100)
    for name in rows.measures:
        mine, theirs = found.parts(name), rows.parts(name)
        assert list(mine) == list(theirs)
        for part, m in theirs.items():
            assert mine[part].value == pytest.approx(m.value, abs=0.1 * m.stderr)
    assert (
        found.attributes["sex"].groups["n"].tolist() == rows.attributes["sex"].groups["n"].tolist()
    )
    assert list(found.attributes) == ["race", "sex"]


def test_without_a_target():
    _, s, a, _ = _rows()
    found = eh.audit(eh.Cells.from_rows(None, s, sensitive_features=a))
    assert list(found.measures) == ["independence"]
    assert np.isnan(found.r2)
    assert found.independence.value == pytest.approx(
        eh.independence(None, s, sensitive_features=a), abs=1e-4
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_more_people_than_rows_are_made_of(monkeypatch, weighted):
    """A row for several people changes neither values nor errors."""
    y, s, a, w = _rows(60_000)
    cells = eh.Cells.from_rows(
        y, s, sensitive_features=a, sample_weight=w if weighted else None, edges=64
    )
    each = eh.audit(cells, estimator="logistic")
    monkeypatch.setattr(cell_people, "MOST_ROWS", 15_000)
    monkeypatch.setattr(cell_people.expand_cells, "__defaults__", (15_000, 15_000))
    monkeypatch.setattr(cell_people.sample_cells, "__defaults__", (15_000, 15_000))
    fewer = eh.audit(cells, estimator="logistic")
    for name, m in each.measures.items():
        own = fewer.measures[name]
        assert own.value == pytest.approx(m.value, abs=0.25 * m.stderr)
        assert own.stderr == pytest.approx(m.stderr, rel=0.05)
        assert own.n == 60_000
        assert own.n_effective == pytest.approx(m.n_effective, rel=0.05)
    assert fewer.r2 == each.r2
    mine, theirs = (v.groups.set_index("group") for v in (fewer, each))
    np.testing.assert_allclose(mine, theirs, rtol=0.03, atol=5e-3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"estimator": "knn"}, "`estimator` must be auto, logistic or lspc for cells, got 'knn'"),
        ({"estimator": eh.Fourier()}, "got 'Fourier', which needs rows"),
        ({"controls": np.zeros(100)}, "`controls` must be left out for cells: which needs rows"),
        ({"cluster": np.arange(100)}, "`cluster` must be left out for cells: which needs rows"),
        ({"y_pred": np.zeros(100)}, "`y_pred` must be left out for cells: which they hold"),
        ({"sensitive_features": "x"}, "`sensitive_features` must be left out for cells"),
        ({"frequency": [1]}, "`frequency` must be left out for cells: which they hold"),
    ],
)
def test_what_needs_rows_is_refused(given, message):
    y, s, a, _ = _rows(100)
    cells = eh.Cells.from_rows(y, s, sensitive_features=a)
    with pytest.raises(ValueError, match=message):
        eh.audit(cells, **given)


def test_groups():
    y, s, _, _ = _rows(1000)
    one = eh.Cells.from_rows(y, s, sensitive_features=["x"] * 1000)
    with pytest.raises(ValueError, match="at least two groups to compare, found only 'x' among"):
        eh.audit(one)
    many = eh.Cells.from_rows(y, s, sensitive_features=[f"g{i % 200}" for i in range(1000)])
    more = eh.Cells.from_rows(
        y, s, sensitive_features=[f"h{i % 200}" for i in range(1000)], edges=many.edges
    )
    with pytest.raises(ValueError, match="`cells` must hold at most 300 groups, found 400"):
        eh.audit(many + more)


def test_a_line_of_the_benchmark():
    from studies.cells import compare, merged

    line = compare("bivariate_normal", 10_000, "auto")
    assert line["largest"] <= 0.1
    found = merged(parts=20, n=10_000)
    assert found["integers_and_extremes_identical"]


@pytest.mark.parametrize("most", [2_000_000, 4000])
def test_groups_are_compared_as_the_rows_are(most, monkeypatch):
    """Also where rows are a sample of the people: numbers, errors and sizes count all of them."""
    monkeypatch.setattr(cell_people.expand_cells, "__defaults__", (most, most))
    monkeypatch.setattr(cell_people.sample_cells, "__defaults__", (most, most))
    y, s, a, _ = _rows()
    found, rows = (
        audit.impact("x", at=("median", 0.8))
        for audit in (
            eh.audit(eh.Cells.from_rows(y, s, sensitive_features=a), estimator="lspc"),
            eh.audit(y, s, sensitive_features=a, estimator="lspc"),
        )
    )
    assert len(found.numbers) == len(rows.numbers)
    for mine, theirs in zip(found.numbers, rows.numbers, strict=True):
        assert (mine.group, mine.statistic, mine.at) == (theirs.group, theirs.statistic, theirs.at)
        room = 0.02 if most > len(s) else 1.0
        assert abs(mine.estimate - theirs.estimate) < room * theirs.stderr
        assert mine.stderr == pytest.approx(theirs.stderr, rel=0.05)
    for name, group in rows.groups.items():
        assert found.groups[name]["rows"] == pytest.approx(group["rows"], rel=0.02)
