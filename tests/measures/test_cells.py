"""Cells: counting, merging, Arrow tables, and the rows made of them."""

import json
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.data.groups import resolve_groups
from evenhand.measures import cell_rows as cell_people
from evenhand.measures import edges
from evenhand.measures.cell_files import KEY
from evenhand.measures.cell_rows import expand_cells, sample_cells
from evenhand.measures.edges import WIDE, Axis, Edges


def _rows(n=5000, seed=0, weights=False):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    y = rng.gamma(2.0, size=n) + 0.3 * a
    s = 0.8 * y + rng.normal(size=n) + 0.2 * a
    out = {"y_true": y, "y_pred": s, "sensitive_features": np.array(["x", "y", "z"])[a]}
    if weights:
        out |= {"sample_weight": rng.exponential(size=n), "frequency": rng.integers(0, 4, n)}
    return out


def _take(rows, at):
    return {k: None if v is None else v[at] for k, v in rows.items()}


@pytest.fixture
def cells():
    return eh.Cells.from_rows(**_rows(weights=True))


@pytest.mark.parametrize("weights", [False, True])
def test_sums_are_those_of_the_rows(weights):
    rows = _rows(weights=weights)
    found = eh.Cells.from_rows(**rows)
    f, w = rows.get("frequency", np.ones(5000)), rows.get("sample_weight", np.ones(5000))
    s, y = rows["y_pred"] - found.edges.score.shift, rows["y_true"] - found.edges.target.shift
    expected = [f * w, f * w**2, f * w * s, f * w * y, f * w * s**2, f * w * y**2, f * w * s * y]
    np.testing.assert_allclose(found.sums.sum(axis=0), np.sum(expected, axis=1), rtol=1e-11)
    assert found.n == f.sum()
    first, second = found.edges.bins_of(rows["y_pred"], rows["y_true"])
    one = (first == found.score_bin[7]) & (second == found.target_bin[7])
    one &= (rows["sensitive_features"] == found.labels[found.group[7]]) & (f > 0)
    assert found.count[7] == f[one].sum()
    assert found.least[7].tolist() == [rows["y_pred"][one].min(), rows["y_true"][one].min()]
    assert found.largest[7].tolist() == [rows["y_pred"][one].max(), rows["y_true"][one].max()]
    assert found.weighted is weights


def test_bins_are_the_formula_of_the_docstring():
    rows = _rows()
    edges = eh.Cells.from_rows(**rows).edges
    for values, axis, found in zip(
        (rows["y_pred"], rows["y_true"]), (edges.score, edges.target),
        edges.bins_of(rows["y_pred"], rows["y_true"]), strict=True,
    ):  # fmt: skip
        x = values - axis.shift
        at = np.floor((x / (axis.scale + np.abs(x)) - axis.low) * axis.rate)
        np.testing.assert_array_equal(found, np.clip(at, 0, edges.bins - 1))
        assert axis.at(x.min()) >= 0.0
        assert axis.at(x.max()) < edges.bins
        assert axis.at(2 * x.min()) < 0.0
        assert axis.at(np.inf) >= edges.bins
    assert edges.kind == "512 × 512 bins of score and target"


@pytest.mark.parametrize("together", [True, False])
def test_merged_parts_are_the_whole(together):
    rows = _rows(weights=True)
    rows["sensitive_features"] = rows["sensitive_features"].astype(object)
    rows["sensitive_features"][::50] = None
    whole = eh.Cells.from_rows(**rows)
    order = np.argsort(rows["y_pred"])  # the first parts lack groups and cells of the others
    parts = [
        eh.Cells.from_rows(**_take(rows, at), edges=whole.edges)
        for at in np.array_split(order, 100)
    ]
    found = eh.Cells.merge(parts) if together else sum(parts)
    for name in ("score_bin", "target_bin", "group", "count", "least", "largest"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    np.testing.assert_allclose(found.sums, whole.sums, rtol=1e-12, atol=1e-12)
    assert (found.labels, found.n_unknown) == (whole.labels, whole.n_unknown)
    assert whole.n_unknown == rows["frequency"][::50].sum()


def test_groups_that_one_part_lacks():
    rows = _rows()
    first = _take(rows, rows["sensitive_features"] == "z")
    rest = _take(rows, rows["sensitive_features"] != "z")
    edges = Edges.from_values(rows["y_pred"], rows["y_true"])
    one, other = (eh.Cells.from_rows(**part, edges=edges) for part in (first, rest))
    assert one + other == other + one == eh.Cells.from_rows(**rows, edges=edges)
    assert one != other
    assert one.__add__(1) is NotImplemented
    assert one != "cells"


def test_frequencies_and_repeated_rows_give_the_same_cells():
    rows = _rows(weights=True)
    f = rows.pop("frequency")
    edges = Edges.from_values(rows["y_pred"], rows["y_true"])
    found = eh.Cells.from_rows(**rows, frequency=f, edges=edges)
    repeated = eh.Cells.from_rows(**_take(rows, np.repeat(np.arange(5000), f)), edges=edges)
    np.testing.assert_array_equal(found.count, repeated.count)
    np.testing.assert_allclose(found.sums, repeated.sums, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_and_crossed_attributes(make):
    rows = _rows()
    second = np.arange(5000) % 2
    frame = make({"race": rows["sensitive_features"], "sex": second})
    found = eh.Cells.from_rows(rows["y_true"], rows["y_pred"], sensitive_features=frame)
    assert found.names == ("race", "sex")
    assert found.labels[0] == ("x", 0)
    assert eh.Cells.from_arrow(found.to_arrow()) == found
    assert repr(found).startswith("Cells(5,000 people in ")
    assert repr(found).endswith("6 groups of race × sex)")


def test_cells_do_not_change(cells):
    with pytest.raises(ValueError, match="read-only"):
        cells.count[0] = 3
    with pytest.raises(AttributeError):
        cells.n_unknown = 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(cells)


def test_without_a_target():
    rows = _rows() | {"y_true": None}
    found = eh.Cells.from_rows(**rows)
    assert not found.has_target
    assert not found.target_bin.any()
    assert np.isnan(found.least[:, 1]).all()
    assert eh.Cells.from_arrow(found.to_arrow()) == found
    assert found.edges.kind == "512 bins of the score"


def test_grid_along_a_line():
    rng = np.random.default_rng(0)
    y = rng.normal(100.0, 5.0, 4000)
    a = rng.integers(0, 2, 4000)
    s = 2.0 * y + 0.01 * rng.normal(size=4000) + 0.01 * a
    found = eh.Cells.from_rows(y, s, sensitive_features=a)
    assert found.edges.slope == pytest.approx(2.0, abs=1e-4)
    assert found.edges.kind == "512 × 512 bins of the score's residual and the target"
    made = expand_cells(found)
    gap = [np.mean((made.scores - 2 * made.target)[made.groups.codes == k]) for k in (0, 1)]
    assert gap[1] - gap[0] == pytest.approx(0.01, rel=0.1)
    # Within wide bins of the residual, too, rows are as far from the line as they were.
    coarse = eh.Cells.from_rows(y, s, sensitive_features=a, edges=4)
    wide, slope = expand_cells(coarse), coarse.edges.slope
    spread = np.std(s - slope * y)
    assert np.std(wide.scores - slope * wide.target) == pytest.approx(spread, rel=0.02)
    same = expand_cells(eh.Cells.from_rows(y, y, sensitive_features=a))
    np.testing.assert_array_equal(same.scores, same.target)
    curved = eh.Cells.from_rows(y, np.exp(y / 5.0), sensitive_features=a)
    assert (curved.edges.bins, curved.edges.slope) == (2**15, 0.0)


def test_people_keep_counts_weights_extremes_and_means(cells):
    made = expand_cells(cells)
    assert made.frequency is None
    counts = np.bincount(cells.group, cells.count)
    np.testing.assert_array_equal(made.groups.counts, counts)
    by_group = np.bincount(cells.group, cells.sums[:, 0])
    np.testing.assert_allclose(made.groups.shares, by_group / by_group.sum(), rtol=1e-9)
    w = cells.sums
    expected = w[:, 0].sum() ** 2 / w[:, 1].sum()
    assert made.groups.n_effective == pytest.approx(expected, rel=1e-6)
    assert made.scores.min() == cells.least[:, 0].min()
    assert made.scores.max() == cells.largest[:, 0].max()
    mean = np.average(made.target, weights=made.groups.weight)
    exact = cells.edges.target.shift + w[:, 3].sum() / w[:, 0].sum()
    assert mean == pytest.approx(exact, abs=2e-3)


def test_point_masses_and_heaps_stay():
    rng = np.random.default_rng(0)
    n = 20_000
    a = rng.integers(0, 2, n)
    y = np.where(rng.random(n) < 0.4 + 0.1 * a, 0.0, rng.exponential(size=n))
    s = np.round(y + rng.normal(size=n), 1)
    made = expand_cells(eh.Cells.from_rows(y, s, sensitive_features=a))
    values, counts = np.unique(s, return_counts=True)
    found, counted = np.unique(made.scores, return_counts=True)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(counted, counts)
    for k in (0, 1):
        at_zero = (made.target[made.groups.codes == k] == 0).sum()
        assert at_zero == pytest.approx(((a == k) & (y == 0)).sum(), rel=0.01)


def test_places_do_not_give_the_group_away():
    """Two groups of very different size and the same law, of rounded values."""
    rng = np.random.default_rng(1)
    n = 50_000
    a = rng.random(n) < 0.03
    y, s = (np.round(rng.normal(size=n), 3) for _ in range(2))
    found = eh.audit(eh.Cells.from_rows(y, s, sensitive_features=a))
    for m in found.measures.values():
        assert m.p_value > 0.01
        assert m.value < 3 * m.stderr


def test_more_people_than_rows(cells):
    made, drawn = expand_cells(cells, 2000, 2000), sample_cells(cells, 2000, 2000)
    assert made.frequency.sum() == pytest.approx(cells.n)
    by_group = np.bincount(cells.group, cells.sums[:, 0])
    np.testing.assert_allclose(made.groups.shares, by_group / by_group.sum(), rtol=1e-9)
    assert drawn.frequency is None
    assert drawn.groups.n_known == 2000
    share = np.bincount(cells.group, cells.count) / cells.n
    np.testing.assert_allclose(drawn.groups.counts / 2000, share, atol=0.02)


def test_measures_of_more_people_than_rows_may_be_repeated(monkeypatch):
    rng = np.random.default_rng(2)
    a = rng.integers(0, 2, 3000)
    y = np.round(rng.normal(size=3000) + a, 1)
    s = np.round(y + rng.normal(size=3000), 1)
    f = rng.integers(1, 5, 3000)
    given = {"sensitive_features": a, "frequency": f}
    expected = eh.audit(y, s, estimator="logistic", **given)
    monkeypatch.setattr("evenhand.data.sample.MAX_PEOPLE", 100)
    found = eh.audit(y, s, estimator="logistic", **given)
    several = eh.audit(y, {"one": s, "two": y}, estimator="logistic", **given)
    assert several["one"].separation == found.separation
    for name, m in expected.measures.items():
        assert found.measures[name].value == pytest.approx(m.value, abs=0.05 * m.stderr)
        alone = getattr(eh, name)(y, s, estimator="logistic", **given)
        assert alone == pytest.approx(m.value, abs=0.05 * m.stderr)
    assert found.n_rows == expected.n_rows == f.sum()
    with pytest.raises(ValueError, match="`cluster` must be left out for cells: which needs rows"):
        eh.independence(y, s, cluster=np.arange(3000) // 2, **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"sensitive_features": eh.Proxy(np.full((5000, 2), 0.5), assume="group")},
            'must be a Proxy without assume="group" here',
        ),
        ({"edges": 1}, "`edges` must be Edges of other cells, or a number of bins per side"),
        ({"edges": "fine"}, "`edges` must be Edges of other cells, or a number of bins per side"),
        ({"y_true": None, "edges": Edges.from_values(np.arange(9.0), np.arange(9.0) ** 2)},
         "`edges` must fit the target: they are of a grid with a target"),
        ({"edges": Edges.from_values(np.arange(9.0), None)},
         "`edges` must fit the target: they are of a grid with no target"),
        ({"y_pred": np.full(5000, np.nan)}, "`y_pred` must be finite"),
    ],
)  # fmt: skip
def test_messages_of_from_rows(change, message):
    with pytest.raises(ValueError, match=message):
        eh.Cells.from_rows(**(_rows() | change))


def test_messages_of_merge(cells):
    other = eh.Cells.from_rows(**_rows(seed=1))
    with pytest.raises(ValueError, match="Cells must have the same `edges` to be merged"):
        cells + other
    rows = _rows()
    rows["sensitive_features"] = {"race": rows["sensitive_features"]}
    named = eh.Cells.from_rows(**rows, edges=cells.edges)
    with pytest.raises(ValueError, match="same attribute to be merged, got 'group' and 'race'"):
        cells + named
    rows["sensitive_features"] = np.zeros(len(rows["y_true"]), dtype=int)
    coded = eh.Cells.from_rows(**rows, edges=cells.edges)
    rows["sensitive_features"] = rows["sensitive_features"].astype(str)
    with pytest.raises(
        ValueError, match="`cells` must have names that differ as text, got 0 and '0'"
    ):
        coded + eh.Cells.from_rows(**rows, edges=cells.edges)
    with pytest.raises(ValueError, match="`parts` must hold at least one Cells"):
        eh.Cells.merge([])
    with pytest.raises(ValueError, match="`parts` must be Cells, got int"):
        eh.Cells.merge([cells, 3])


def _column(table, name, values):
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def _head(table, **changes):
    head = json.loads(table.schema.metadata[KEY]) | changes
    return table.replace_schema_metadata({KEY: json.dumps(head)})


def _edges(cells, **changes):
    return cells.edges.to_dict() | changes


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda t, c: 3, "`table` must be a pyarrow Table, got int"),
        (lambda t, c: t.replace_schema_metadata({}), "must have the metadata 'evenhand.cells'"),
        (lambda t, c: t.replace_schema_metadata({KEY: "{"}), "must have metadata in JSON"),
        (lambda t, c: _head(t, format="x"), "must say that its format is 'evenhand.cells'"),
        (lambda t, c: _head(t, version=2), "`table` must be of version 1, got 2"),
        (lambda t, c: _head(t, n_unknown=-1), "n_unknown as a nonnegative integer, got -1"),
        (lambda t, c: _head(t, names=[]), "must have names of its attributes"),
        (lambda t, c: _head(t, labels="xyz"), "must have a list of labels"),
        (lambda t, c: _head(t, labels=["x", "x", "y"]), "must have distinct labels"),
        (lambda t, c: _head(t, labels=["x"]), "must have group between 0 and 0"),
        (lambda t, c: t.drop_columns(["n", "wy"]), "it lacks n, wy"),
        (lambda t, c: _column(t, "n", c.count * 0.5), "must have integers in n, got double"),
        (lambda t, c: _column(t, "n", -c.count), "must have n of at least 1, got -"),
        (lambda t, c: _column(t, "w", np.zeros(len(c.count))), "must have positive w, got 0.0"),
        (lambda t, c: _column(t, "w", np.full(len(c.count), 1e-318)), "their means overflow"),
        (lambda t, c: _column(t, "w", 9.0 * c.count), r"must have w² ≤ n·ww in every row"),
        (lambda t, c: _column(t, "ws", np.full(len(c.count), np.nan)), "finite numbers in ws"),
        (lambda t, c: _column(t, "ws", [None] * len(c.count)), "missing values in ws"),
        (lambda t, c: _column(t, "ws", ["a"] * len(c.count)), "numbers in ws, got string"),
        (lambda t, c: _column(t, "least_y", c.largest[:, 1] + 1.0), "least_y ≤ largest_y"),
        (lambda t, c: _column(t, "score_bin", c.score_bin + 512), "score_bin between 0 and 511"),
        (lambda t, c: pa.concat_tables([t, t]), "some are repeated"),
        (lambda t, c: _head(t, edges=3), "`edges` must be a mapping, got int"),
        (lambda t, c: _head(t, edges=_edges(c, version=7)), "`edges` must be of version 2, got 7"),
        (lambda t, c: _head(t, edges=_edges(c, bins=1)), "must have between 2 and 65536 bins"),
        (lambda t, c: _head(t, edges=_edges(c, slope=None)), "must have a finite slope"),
        (lambda t, c: _head(t, edges=_edges(c, slope=1e308)), "must have a finite slope"),
        (lambda t, c: _head(t, edges=_edges(c, score=None)), "must give shift, scale, low, rate"),
        (lambda t, c: _head(t, edges=_edges(c, score={"shift": 1, "scale": "x", "low": 0,
                                                      "rate": 1})), "finite numbers for the score"),
        (lambda t, c: _head(t, edges=_edges(c, target={"shift": 1, "scale": 0, "low": 0,
                                                       "rate": 1})), "a positive scale and rate"),
    ],
)  # fmt: skip
def test_damaged_tables(cells, damage, message):
    with pytest.raises(ValueError, match=message):
        eh.Cells.from_arrow(damage(cells.to_arrow(), cells))


def test_tables_come_back_from_files_and_in_any_order(cells, tmp_path):
    from pyarrow import feather, parquet

    table = cells.to_arrow()
    parquet.write_table(table, tmp_path / "cells.parquet")
    feather.write_feather(table, tmp_path / "cells.feather")
    assert eh.Cells.from_arrow(parquet.read_table(tmp_path / "cells.parquet")) == cells
    assert eh.Cells.from_arrow(feather.read_table(tmp_path / "cells.feather")) == cells
    mixed = table.take(np.random.default_rng(0).permutation(table.num_rows))
    assert eh.Cells.from_arrow(mixed) == cells


def test_a_few_huge_values_have_a_scale():
    """Fewer than one in a hundred, whose squares overflow."""
    s = np.zeros(400)
    s[:2] = 1e300, -1e300
    y = np.random.default_rng(0).normal(size=400)
    cells = eh.Cells.from_rows(y, s, sensitive_features=np.arange(400) % 2, edges=16)
    assert cells.n == 400


def test_scales_of_odd_variables():
    constant = Axis.from_values(np.full(10, 3.0), 512)
    assert constant.scale == 1.0
    heaped = Axis.from_values(np.r_[np.zeros(90), np.ones(10)], 512)
    assert heaped.scale == pytest.approx(WIDE / 4.65)
    rare = Axis.from_values(np.r_[np.zeros(9999), 1.0], 512)
    assert rare.scale == pytest.approx(0.01 * WIDE, rel=0.01)
    far = Edges.from_values(np.r_[np.random.default_rng(0).normal(size=9999), 1e9], None)
    assert far.score.at(1.0) - far.score.at(-1.0) > 100  # one value far out leaves bins to others


def test_a_rare_group_is_not_kept_off_the_ends_of_bins():
    """People who all lie between the extremes of their group would lie closer to the middle."""
    rng = np.random.default_rng(0)
    a = (rng.random(100_000) < 0.05).astype(int)
    found = eh.Cells.from_rows(*rng.normal(size=(2, 100_000)), sensitive_features=a, edges=32)
    made = expand_cells(found)
    for values, axis in ((made.scores, found.edges.score), (made.target, found.edges.target)):
        x = values - axis.shift
        at = (x / (axis.scale + np.abs(x)) - axis.low) * axis.rate
        off = np.abs(at % 1.0 - 0.5)
        # A quarter on average; the standard error of 5,000 is 0.002.
        assert off[made.groups.codes == 0].mean() == pytest.approx(0.25, abs=0.006)
        assert off[made.groups.codes == 1].mean() == pytest.approx(0.25, abs=0.006)
        # Rows that share a value would be taken for copies.
        assert len(np.unique(values)) > 99_900


def test_constant_scores_and_single_rows():
    a = np.array(["x", "y"] * 50)
    found = eh.Cells.from_rows(np.arange(100.0), np.full(100, 2.0), sensitive_features=a)
    assert (expand_cells(found).scores == 2.0).all()
    one = eh.Cells.from_rows([1.0], [2.0], sensitive_features=["x"])
    assert (one.n, one.n_cells) == (1, 1)
    nobody = eh.Cells.from_rows([1.0, 2.0], [2.0, 1.0], sensitive_features=[None, None])
    assert (nobody.n, nobody.n_unknown) == (0, 2)
    assert (nobody + nobody).n_unknown == 4


def test_groups_of_people_are_those_of_the_rows():
    rows = _rows()
    made = expand_cells(eh.Cells.from_rows(**rows))
    groups = resolve_groups(rows["sensitive_features"], n_rows=5000)
    assert made.groups.labels == groups.labels
    assert made.groups.entropy == groups.entropy
    assert cell_people.MOST_ROWS >= 10**6


# --- inferred groups ----------------------------------------------------------------------------


def inferred(n=8000, assume=None):
    rng = np.random.default_rng(8)
    z = rng.normal(size=n)
    p = 1 / (1 + np.exp(-1.5 * z))
    y = 0.3 * z + rng.normal(size=n)
    s = y + 0.3 * z + rng.normal(size=n)
    return y, s, eh.Proxy(p, ["u", "v"], assume=assume)


def test_a_proxy_counts_by_its_probabilities():
    y, s, proxy = inferred()
    cells = eh.Cells.from_rows(y, s, sensitive_features=proxy)
    assert cells.expected
    assert cells.n == 8000
    p = np.asarray(proxy)
    counts = np.bincount(cells.group, cells.count)
    np.testing.assert_allclose(counts, p.sum(axis=0))
    np.testing.assert_allclose(
        np.bincount(cells.group, cells.sums[:, 2]) + cells.edges.score.shift * counts, s @ p
    )
    assert "2 inferred groups" in repr(cells)
    parts = [
        eh.Cells.from_rows(y[rows], s[rows], sensitive_features=proxy[rows], edges=cells.edges)
        for rows in (slice(0, 3000), slice(3000, None))
    ]
    merged = parts[0] + parts[1]
    np.testing.assert_allclose(merged.count, cells.count, rtol=1e-12)
    np.testing.assert_allclose(merged.sums, cells.sums, atol=1e-9)
    assert eh.Cells.from_arrow(cells.to_arrow()) == cells
    assert eh.Cells.from_arrow(cells.to_arrow()).expected
    recorded = eh.Cells.from_rows(y, s, sensitive_features=y > 0, edges=cells.edges)
    with pytest.raises(ValueError, match="recorded groups, or of inferred ones"):
        cells + recorded


def test_certain_probabilities_are_recorded_groups_in_cells():
    y, s, _ = inferred()
    a = (s + np.roll(y, 1) > 0).astype(int)
    soft = eh.Cells.from_rows(y, s, sensitive_features=eh.Proxy(np.eye(2)[a], ["u", "v"]))
    hard = eh.Cells.from_rows(y, s, sensitive_features=np.array(["u", "v"])[a])
    np.testing.assert_array_equal(soft.count, hard.count)
    np.testing.assert_allclose(soft.sums, hard.sums)


def test_an_audit_of_expected_counts_is_that_of_the_rows():
    y, s, proxy = inferred()
    rows = eh.audit(y, s, sensitive_features=proxy, estimator="logistic")
    cells = eh.audit(eh.Cells.from_rows(y, s, sensitive_features=proxy), estimator="logistic")
    for name, one in rows.measures.items():
        other = cells.measures[name]
        # Several people of a cell are given groups, so that errors are no smaller than of rows.
        assert other.value == pytest.approx(one.value, abs=0.5 * one.stderr)
        assert 0.9 * one.stderr < other.stderr < 1.3 * one.stderr
    np.testing.assert_allclose(rows.groups["mean_score"], cells.groups["mean_score"], atol=1e-9)
    assert "cells hold expected counts" in " ".join(str(cells).split())


@pytest.mark.parametrize(("assume", "outcome"), [(None, "not enough data"), ("guess", "pass")])
def test_expected_counts_pass_by_a_stated_assumption_alone(assume, outcome):
    y, s, proxy = inferred(assume=assume)
    audit = eh.audit(eh.Cells.from_rows(y, s, sensitive_features=proxy), estimator="logistic")
    assert audit.verdict(eh.Tolerance(independence=0.5)).outcome == outcome


@pytest.mark.parametrize("most", [None, 1000])
def test_people_who_share_a_cell_are_not_taken_for_independent_ones(most, monkeypatch):
    """Scores that have nothing to do with the probabilities, 8 people in a cell."""
    from evenhand.measures import cell_rows

    if most is not None:
        monkeypatch.setattr(cell_rows.expand_cells, "__defaults__", (most, most))
        monkeypatch.setattr(cell_rows.sample_cells, "__defaults__", (most, most))
    low = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        p = rng.beta(0.5, 0.5, 3000)
        proxy = eh.Proxy(np.column_stack([p, 1.0 - p]), ["a", "b"], "guess")
        cells = eh.Cells.from_rows(None, rng.normal(size=3000), sensitive_features=proxy)
        low += eh.audit(cells, estimator="logistic").independence.p_value < 0.05
    assert low <= 3


@pytest.mark.parametrize(("side", "shift"), [(-1, 0.0), (-1, 3.0), (1, 3.0), (0, 3.0)])
def test_people_heaped_at_an_end_of_a_cell_are_seen(side, shift):
    rng = np.random.default_rng(0)
    s = rng.uniform(5.0, 6.0, 1000)
    if side:
        s[:950] = 5.0 if side < 0 else 6.0
    s[:2] = 5.0, 6.0
    sums = np.zeros((1, cell_people.TARGET2 + 2))
    sums[0, cell_people.WEIGHT] = len(s)
    sums[0, cell_people.SCORE] = np.sum(s - shift)
    sums[0, cell_people.SCORE2] = np.sum((s - shift) ** 2)
    ends = np.full((1, 2), 5.0), np.full((1, 2), 6.0)
    whole = cell_people._Whole(np.array([1000]), sums, *ends, np.array([0]), np.array([0]))
    assert cell_people._heaped(whole, 0, shift)[0] == side


def test_rows_along_a_steep_line_keep_their_spread_about_it():
    rng = np.random.default_rng(0)
    y, a = rng.normal(size=4000), rng.integers(0, 2, 4000)
    s = 3.0 * y + 1e-3 * rng.normal(size=4000)
    cells = eh.Cells.from_rows(y, s, sensitive_features=a)
    assert cells.edges.slope == pytest.approx(3.0, abs=1e-3)
    rows = expand_cells(cells)
    left = rows.scores - cells.edges.slope * rows.target
    assert left.std() == pytest.approx(1e-3, rel=0.05)


# The sample of rows that a grid is made from.


def test_a_sample_is_drawn_from_twice_its_size_on():
    assert edges.share_drawn(2 * edges.SAMPLE) == 0.5
    assert edges.share_drawn(3 * edges.SAMPLE) == pytest.approx(1 / 3)
    assert edges.share_drawn(2 * edges.SAMPLE - 1) == 1.0


def test_scrambled_numbers_are_what_is_left_of_many_turns():
    first, second = edges._TURNS
    s, y = np.array([3.0, 5.0, 4.2]), np.array([1.0, 1.0, 7.0])
    turned = (s - 4.0) / 1.0 * first + (y - 4.0) / 3.0 * second
    both = edges.scramble([s, y], [(3.0, 5.0), (1.0, 7.0)], np.floor)
    np.testing.assert_array_equal(both, turned - np.floor(turned))
    alone = edges.scramble([s], [(3.0, 5.0)], np.floor)
    np.testing.assert_array_equal(alone, (s - 4.0) * first - np.floor((s - 4.0) * first))
    flat = edges.scramble([np.array([1.5])], [(1.25, 1.25)], np.floor)
    assert flat[0] == 0.25 * first - np.floor(0.25 * first)


@pytest.mark.parametrize(
    ("values", "rows", "is_drawn"),
    [(900, 1000, True), (899, 1000, False), (1040, 1040, True), (1050, 1050, False),
     (950, 950, False), (951, 951, True)],
)  # fmt: skip
def test_what_looks_drawn_row_by_row(values, rows, is_drawn):
    assert edges.looks_drawn(values, rows, 1000) is is_drawn


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("with_target", [False, True])
def test_rows_are_drawn_by_their_values(rounded, with_target, monkeypatch):
    monkeypatch.setattr(edges, "SAMPLE", 4000)
    rng = np.random.default_rng(0)
    s, y = rng.normal(size=20_000), rng.normal(size=20_000) if with_target else None
    if rounded:
        s, y = np.rint(2 * s), None if y is None else np.rint(y)
    columns = [s] if y is None else [s, y]
    u = edges.scramble(columns, [(c.min(), c.max()) for c in columns], np.floor)
    some, other = edges.draw_rows(s, y)
    assert (other is None) == (y is None)
    found = list(zip(*(c.tolist() for c in (some, other) if c is not None), strict=True))
    rows = list(zip(*(c.tolist() for c in columns), strict=True))
    drawn = [row for row, chance in zip(rows, u, strict=True) if chance <= 0.2]
    if not rounded:
        assert edges.looks_drawn(len(drawn), len(drawn), 4000)
        assert sorted(found) == sorted(drawn)
    else:
        number = dict(zip(rows, u.tolist(), strict=True))
        wanted = {row: math.floor(0.2 * n + number[row]) for row, n in Counter(rows).items()}
        assert Counter(found) == {row: n for row, n in wanted.items() if n}
    assert len(found) == pytest.approx(4000, rel=0.1)


@pytest.mark.parametrize("noise", [None, 1e-3, 1.0])
def test_the_grid_of_a_sample_spans_all_rows(noise, monkeypatch):
    monkeypatch.setattr(edges, "SAMPLE", 500)
    rng = np.random.default_rng(0)
    y = rng.gamma(2.0, size=2500)
    s = 3.0 + 2.0 * y + (noise or 1.0) * rng.standard_t(3, 2500)
    given = None if noise is None else y
    found, own = Edges.from_values(s, given), Edges._from_sample(*edges.draw_rows(s, given), None)
    rest, shift = s, own.score.shift
    assert bool(found.slope) == (noise == 1e-3)
    if found.slope:
        rest = s - own.score.shift - own.slope * (y - own.target.shift)
        shift = 0.0
    axis = Axis.from_range(shift, own.score.scale, rest.min(), rest.max(), own.bins)
    assert found.score == replace(axis, shift=own.score.shift)
    if noise is None:
        assert found.target is None
    else:
        target = own.target
        assert found.target == Axis.from_range(
            target.shift, target.scale, y.min(), y.max(), own.bins
        )


# Rows of few people.


def test_two_people_of_a_cell_are_rows_at_its_ends():
    s = np.array([0.0, 0.1, 3.0, 3.1, 10.0, 10.1, 7.0, 7.1])
    a = np.array([0, 0, 1, 1, 1, 1, 0, 0])
    cells = eh.Cells.from_rows(None, s, sensitive_features=a, edges=8)
    assert cells.count.tolist() == [2, 2, 2, 2]
    rows = expand_cells(cells)
    found = sorted(zip(rows.groups.codes.tolist(), rows.scores.tolist(), strict=True))
    assert found == sorted(zip(a.tolist(), s.tolist(), strict=True))


def test_a_sample_of_expected_counts_has_those_who_are_alone_in_their_cell():
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    who = eh.Proxy(np.column_stack([p, 1 - p]), ["a", "b"])
    s = 1e3 * rng.normal(size=2000)
    cells = eh.Cells.from_rows(None, s, sensitive_features=who, edges=60_000)
    rows = sample_cells(cells, 1000, 500)
    assert rows.n_rows == pytest.approx(500, abs=10)
    assert rows.groups.shares[0] == pytest.approx(0.5, abs=0.1)


def test_the_attributes_of_one_crossed_label():
    from evenhand.measures.cells import _names

    assert _names("sex × age", (("f", "old"),)) == ("sex", "age")
    assert _names("sex", (("f", "old"),)) == ("attribute 0", "attribute 1")
    assert _names("sex", ("f",)) == ("sex",)


def test_edges_span_the_target_only_where_both_have_one():
    rng = np.random.default_rng(0)
    s, y = rng.normal(size=(2, 500))
    both, alone = Edges.from_values(s, y), Edges.from_values(s, None)
    assert both.spanning((-9.0, 9.0)).target == both.target
    assert both.spanning((-9.0, 9.0)).score != both.score
    assert both.spanning((-9.0, 9.0), (-8.0, 8.0)).target != both.target
    assert alone.spanning((-9.0, 9.0), (-8.0, 8.0)).target is None


def test_values_that_several_groups_share_are_no_copies():
    rng = np.random.default_rng(0)
    s, a = np.repeat(rng.normal(size=200), 3), np.repeat(rng.integers(0, 2, 200), 3)
    assert eh.Cells.from_rows(s, s, sensitive_features=a, edges=60_000).copied
    mixed = np.where(np.arange(600) % 3, a, 1 - a)
    assert not eh.Cells.from_rows(s, s, sensitive_features=mixed, edges=60_000).copied


def test_cells_whose_weights_have_no_squares_count_for_nothing():
    y, s, a = np.arange(800.0) % 7, np.arange(800.0) % 11, np.arange(800) % 2
    tiny, none = (
        eh.Cells.from_rows(y, s, sensitive_features=a, sample_weight=np.where(s < 5, 1.0, least),
                           edges=8)
        for least in (1e-200, 0.0)
    )  # fmt: skip
    found, expected = (eh.audit(cells, estimator="logistic") for cells in (tiny, none))
    assert found.separation.value == pytest.approx(expected.separation.value, abs=1e-3)
