"""One object for the rows: read once, checked, and taken from."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import evenhand as eh
from evenhand.data.sample import Sample, count_rows, take_rows

N = 60


@pytest.fixture
def columns():
    rng = np.random.default_rng(0)
    a = rng.choice(["x", "y"], N).astype(object)
    a[::10] = None
    w = rng.uniform(0.5, 2.0, N)
    w[::7] = 0.0
    return {
        "y_true": rng.normal(size=N), "y_pred": rng.normal(size=N), "sensitive_features": a,
        "sample_weight": w, "cluster": rng.integers(0, 12, N), "exposure": rng.uniform(1, 2, N),
        "controls": {"age": np.arange(N) % 30.0, "zone": rng.choice(list("uvw"), N)},
    }  # fmt: skip


def test_reads_every_column_once(columns):
    sample = Sample.read(**columns, X=np.eye(N))
    assert sample.n_rows == N
    np.testing.assert_array_equal(sample.scores, columns["y_pred"])
    np.testing.assert_array_equal(sample.weight, columns["sample_weight"])
    np.testing.assert_array_equal(sample.cluster, columns["cluster"])
    assert sample.groups.labels == ("x", "y")
    assert sample.groups.n_unknown == 6
    assert sample.controls.names == ("age", "zone")
    assert sample.others["X"].shape == (N, N)
    assert sample.frequency is None
    assert list(sample.variables) == ["s", "y"]
    per_unit = sample.per_unit()
    np.testing.assert_array_equal(per_unit.target, columns["y_true"] / columns["exposure"])


def test_taking_rows_takes_them_everywhere(columns):
    sample = Sample.read(**columns, X=sparse.eye(N).tocsr())
    rows = np.arange(5, 35)
    part = sample.take(rows)
    mask = np.zeros(N, dtype=bool)
    mask[rows] = True
    for taken in (part, sample.take(mask)):
        assert taken.n_rows == taken.groups.n_rows == len(rows)
        for name in ("scores", "target", "weight", "exposure"):
            np.testing.assert_array_equal(getattr(taken, name), getattr(sample, name)[rows])
        assert taken.others["X"].shape == (30, N)
        assert len(taken.controls.columns[0].values) == 30
        assert taken.cluster.max() + 1 == len(np.unique(taken.cluster))


def test_rows_of_no_weight_are_absent_and_unknown_ones_can_be_left_out(columns):
    sample = Sample.read(**columns)
    weighted = sample.weighted()
    assert weighted.n_rows == (columns["sample_weight"] > 0).sum()
    known = weighted.known()
    assert known.n_rows == known.groups.n_known == weighted.groups.n_known
    np.testing.assert_array_equal(known.groups.weight, weighted.groups.weight)
    assert known.known() is known
    plain = Sample.read(None, columns["y_pred"], sensitive_features=np.arange(N) % 2)
    assert plain.weighted() is plain
    columns["sample_weight"][4:] = 0.0
    with pytest.raises(ValueError, match="positive in at least 5 rows"):
        Sample.read(**columns).weighted()


def test_frequencies_repeat_rows_of_everything(columns):
    frequency = np.arange(N) % 3
    rows = np.repeat(np.arange(N), frequency)
    X = pd.DataFrame({"x": np.arange(N)})
    sample = Sample.read(**columns, frequency=frequency, X=X)
    np.testing.assert_array_equal(sample.target, columns["y_true"][rows])
    np.testing.assert_array_equal(sample.others["X"]["x"], rows)
    np.testing.assert_array_equal(sample.others["X"].index, np.arange(len(rows)))


def test_the_same_rows_in_other_groups(columns):
    sample = Sample.read(**columns)
    other = sample.regroup(np.arange(N) % 3)
    assert other.groups.n_groups == 3
    assert other.groups.weight is not None
    assert other.groups.cluster is not None
    assert other.scores is sample.scores


def test_messages_use_the_users_names(columns):
    with pytest.raises(ValueError, match=r"`y` must have one entry per row: got 9 for 60"):
        Sample.read(columns["y_true"][:9], columns["y_pred"], names={"y_true": "y"})
    with pytest.raises(ValueError, match="`exposure` must be None without `y_true`"):
        Sample.read(None, columns["y_pred"], exposure=np.ones(N))
    with pytest.raises(ValueError, match="`exposure` must be positive, got 0 in row 0"):
        Sample.read(columns["y_true"], exposure=np.arange(N))
    with pytest.raises(ValueError, match="`sensitive_features` must be given"):
        Sample.read(columns["y_true"])
    assert Sample.read(columns["y_true"], groups_optional=True).groups is None
    backward = pd.Series(columns["y_true"], index=np.arange(N)[::-1])
    forward = pd.Series(columns["y_pred"], index=np.arange(N))
    with pytest.raises(ValueError, match="`y_pred` must have its rows in the order of `y_true`"):
        Sample.read(backward, forward, sensitive_features=columns["sensitive_features"])


def test_rows_of_anything():
    proxy = eh.Proxy(np.full((4, 2), 0.5))
    age = eh.Continuous(np.arange(20.0))
    groups = Sample.read(None, np.arange(4.0), sensitive_features=["a", "b"] * 2).groups
    for values, n in ((None, 0), ({"a": [1, 2]}, 2), (proxy, 4), (age, 20), (groups, 4)):
        assert count_rows(values) == n
    assert take_rows(None, np.array([0])) is None
    assert take_rows({"a": np.array([1, 2])}, np.array([1])) == {"a": np.array([2])}
    assert len(take_rows(proxy, np.array([1, 2]))) == 2
    assert take_rows(groups, np.array([1])).n_rows == 1
