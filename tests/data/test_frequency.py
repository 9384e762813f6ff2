"""A row of frequency 3 equals three rows, in measures, audits, penalties and fits."""

import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pytest
from grids import pairwise
from scipy import sparse
from sklearn.linear_model import LinearRegression

import evenhand as eh
from evenhand.data import sample as module
from evenhand.data.sample import check_frequency, repeat_rows
from evenhand.measures.effective import EffectiveSizeWarning

MEASURES = (eh.independence, eh.separation, eh.sufficiency)


def _but_remarks(audit):
    """All numbers; remarks say that rows were counted by frequencies or weights."""
    return {key: value for key, value in audit.to_dict().items() if key != "remarks"}


def _table(n=400, seed=0):
    """Distinct rows of a table and how many people each stands for, some of them none."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    y = np.round(rng.normal(size=n) + 0.4 * a, 1)
    s = np.round(0.7 * y + rng.normal(size=n) + 0.2 * a, 1)
    f = rng.integers(0, 5, n)
    w = rng.uniform(0.5, 2.0, n)
    X = np.column_stack([y + rng.normal(size=n), rng.normal(size=n) + a, rng.normal(size=n)])
    return {"X": X, "y": y, "s": s, "a": np.array(["x", "y", "z"])[a], "f": f, "w": w}


@pytest.fixture
def table():
    return _table()


@pairwise(measure=MEASURES, estimator=["auto", "logistic", "lspc", "knn"], weighted=[False, True])
def test_measures_are_those_of_the_rows(table, measure, estimator, weighted):
    _compare_with_rows(table, measure, estimator, table["w"] if weighted else None)


def test_measures_by_fourier_features_are_those_of_the_rows(table):
    # One of them: a second of CPU time each.
    _compare_with_rows(table, eh.independence, "fourier", table["w"])


def _compare_with_rows(t, measure, estimator, w):
    rows = np.repeat(np.arange(400), t["f"])
    counted = measure(t["y"], t["s"], sensitive_features=t["a"], frequency=t["f"],
                      sample_weight=w, estimator=estimator)  # fmt: skip
    expected = measure(t["y"][rows], t["s"][rows], sensitive_features=t["a"][rows],
                       sample_weight=None if w is None else w[rows],
                       estimator=estimator)  # fmt: skip
    assert counted == expected


def test_a_table_of_distinct_rows_reads_what_its_rows_read():
    rng = np.random.default_rng(1)
    a = rng.integers(0, 2, 20_000)
    s = np.round(rng.normal(size=20_000) + 0.3 * a, 1)
    rows = eh.independence(None, s, sensitive_features=a)
    distinct, f = np.unique(np.column_stack([s, a]), axis=0, return_counts=True)
    table = {"sensitive_features": distinct[:, 1].astype(int)}
    assert eh.independence(None, distinct[:, 0], frequency=f, **table) == pytest.approx(rows, 1e-9)
    with pytest.warns(EffectiveSizeWarning):  # as weights they are 143 rows, not 20,000
        weighed = eh.independence(None, distinct[:, 0], sample_weight=f, **table)
    assert abs(weighed - rows) > 0.01


def test_audit_is_that_of_the_rows(table):
    t, rows = table, np.repeat(np.arange(400), table["f"])
    found = eh.audit(t["y"], t["s"], sensitive_features=t["a"], frequency=t["f"].astype(float))
    expected = eh.audit(t["y"][rows], t["s"][rows], sensitive_features=t["a"][rows])
    assert _but_remarks(found) == _but_remarks(expected)
    assert found.remarks[0] == "Rows count by the frequencies."
    assert not expected.remarks
    assert found.n_rows == t["f"].sum()


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames(table, make):
    t = table
    frame = make({name: t[name] for name in ("y", "s", "a", "f")})
    found = eh.audit(
        frame["y"], {"one": frame["s"], "two": frame["y"]},
        sensitive_features=frame[["a"]], frequency=frame["f"], estimator="logistic",
    )  # fmt: skip
    one = eh.audit(
        t["y"], t["s"], sensitive_features={"a": t["a"]}, frequency=t["f"], estimator="logistic"
    )
    assert found["one"].separation == one.separation


def test_pandas_indices_are_compared_before_rows_are_repeated(table):
    frame = pd.DataFrame({name: table[name] for name in ("y", "s", "a", "f")})
    arguments = {"sensitive_features": frame["a"], "frequency": frame["f"].iloc[::-1]}
    with pytest.raises(ValueError, match="`y_true` must have its rows in the order of `frequency`"):
        eh.audit(frame["y"], frame["s"], **arguments)
    labeled = frame.set_index(frame.index + 1000)
    found = eh.independence(None, labeled["s"], sensitive_features=frame["a"], frequency=table["f"])
    assert found == eh.independence(
        None, frame["s"], sensitive_features=frame["a"], frequency=frame["f"]
    )


def test_proxies_clusters_and_single_weights(table):
    rng = np.random.default_rng(2)
    p = rng.uniform(size=400)
    rows = np.repeat(np.arange(400), table["f"])
    proxy = np.column_stack([p, 1 - p])
    person = np.arange(400) // 2
    found = eh.audit(table["y"], table["s"], sensitive_features=eh.Proxy(proxy), sample_weight=2.0,
                     frequency=table["f"], cluster=person, estimator="logistic")  # fmt: skip
    expected = eh.audit(
        table["y"][rows], table["s"][rows], sensitive_features=eh.Proxy(proxy[rows]),
        sample_weight=2.0, cluster=person[rows], estimator="logistic",
    )  # fmt: skip
    assert _but_remarks(found) == _but_remarks(expected)


@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
@pytest.mark.parametrize("weighted", [False, True])
def test_penalty(table, criterion, weighted):
    t, rows = table, np.repeat(np.arange(400), table["f"])
    w = t["w"] if weighted else None
    bound = eh.FairnessRegularizer(criterion).bind(
        t["y"], sensitive_features=t["a"], sample_weight=w, frequency=t["f"]
    )
    over_rows = eh.FairnessRegularizer(criterion).bind(
        t["y"][rows], sensitive_features=t["a"][rows], sample_weight=w[rows] if weighted else None
    )
    value, gradient = bound.value_and_grad(t["s"])
    # Frequencies are weights of the term: the same sums, rounded elsewhere.
    assert value == pytest.approx(over_rows.value_and_grad(t["s"][rows])[0], rel=1e-12)
    assert gradient.shape == (400,)
    assert not gradient[t["f"] == 0].any()
    assert bound.normalizer == pytest.approx(over_rows.normalizer, rel=1e-12)
    direction = np.random.default_rng(3).normal(size=400)
    h = 1e-5
    slope = (bound.value(t["s"] + h * direction) - bound.value(t["s"] - h * direction)) / (2 * h)
    assert gradient @ direction == pytest.approx(slope, rel=1e-4, abs=1e-9)
    some = np.array([5, 3, 200, *range(300, 360)])
    # The penalty of splines is one of rows, and stays that of all of them for some.
    bound = eh.FairnessRegularizer(criterion, basis="quadratic").bind(
        t["y"], sensitive_features=t["a"], sample_weight=w, frequency=t["f"]
    )
    bound.value(t["s"])
    few = eh.FairnessRegularizer(criterion, basis="quadratic", kappa=bound.kappa).bind(
        t["y"][some], sensitive_features=t["a"][some], frequency=t["f"][some],
        sample_weight=None if w is None else w[some],
    )  # fmt: skip
    part = bound.take(some)
    part.warm_start(bound)
    assert part.value(t["s"][some]) == pytest.approx(few.value(t["s"][some]), rel=1e-3)
    assert part.evaluate(t["s"][some])[1].shape == some.shape


def test_penalty_without_a_target(table):
    bound = eh.FairnessRegularizer("independence").bind(
        None, sensitive_features=table["a"], frequency=table["f"]
    )
    with pytest.raises(ValueError, match="`y_pred` must have one entry per row: got 3 for 400"):
        bound.value(np.zeros(3))


@pytest.mark.parametrize("kind", ["array", "pandas", "sparse"])
def test_ridge(table, kind):
    t, rows = table, np.repeat(np.arange(400), table["f"])
    X = {"array": np.asarray, "pandas": pd.DataFrame, "sparse": sparse.csr_array}[kind](t["X"])
    model = eh.FairRidge("separation", 2.0).fit(
        X, t["y"], sensitive_features=t["a"], frequency=t["f"], sample_weight=t["w"]
    )
    expected = eh.FairRidge("separation", 2.0).fit(
        t["X"][rows], t["y"][rows], sensitive_features=t["a"][rows], sample_weight=t["w"][rows]
    )
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6)
    assert model.unfairness_ == pytest.approx(expected.unfairness_, rel=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        eh.FairPostprocessor(LinearRegression(), fairness_weight=1.0, cv=3, random_state=0),
        eh.FairRegressor("independence", fairness_weight=1.0, cv=3, random_state=0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_other_fits(table, model):
    t, rows = table, np.repeat(np.arange(400), table["f"])
    model.fit(t["X"], t["y"], sensitive_features=t["a"], frequency=t["f"])
    scores = model.predict(t["X"])
    model.fit(t["X"][rows], t["y"][rows], sensitive_features=t["a"][rows])
    np.testing.assert_allclose(scores, model.predict(t["X"]), rtol=1e-9)


def test_path(table):
    t, rows = table, np.repeat(np.arange(400), table["f"])
    options = {"fairness_weights": [0, 1], "cv": 3, "random_state": 0, "measure_with": "logistic"}
    path = eh.fairness_path(
        eh.FairRidge(), t["X"], t["y"], sensitive_features=t["a"], frequency=t["f"], **options
    )
    expected = eh.fairness_path(
        eh.FairRidge(), t["X"][rows], t["y"][rows], sensitive_features=t["a"][rows], **options
    )
    assert path.n_rows == len(rows)
    pd.testing.assert_frame_equal(path.to_frame("pandas"), expected.to_frame("pandas"))


@pytest.mark.parametrize(
    ("frequency", "message"),
    [
        ([1, 2], "`frequency` must have one entry per row: got 2 for 3 rows"),
        ([[1, 2], [1, 2], [1, 2]], r"`frequency` must be 1-D, got shape \(3, 2\)"),
        (["a", "b", "c"], "`frequency` must be numbers, got values of type <U1 such as"),
        ([1, 2, np.nan], "`frequency` must be finite"),
        ([1, 2, -3], "`frequency` must be nonnegative, got -3"),
        ([1, 2.5, 3], "`frequency` must be whole numbers, got 2.5. Hint: numbers of people"),
        ([0, 0, 0], "`frequency` must not be zero in every row"),
        ([2.0**52, 2.0**52, 0], r"`frequency` must add up to fewer than 2\^53 people"),
        (np.ma.masked_array([1, 2, 3], [0, 1, 0]), "`frequency` must not hold masked values"),
    ],
)
def test_messages(frequency, message):
    with pytest.raises(ValueError, match=message):
        check_frequency(frequency, 3)


def test_columns_of_other_lengths():
    with pytest.raises(ValueError, match="`y_pred` must have one entry per row: got 2 for 3"):
        repeat_rows([1, 1, 1], y_true=[1.0, 2.0, 3.0], y_pred=[1.0, 2.0])
    assert check_frequency(pd.DataFrame({"f": [1, 2]}), 2).tolist() == [1, 2]
    assert check_frequency(np.array([True, False]), 2).tolist() == [1, 0]


def test_no_more_people_than_there_is_room_for(table, monkeypatch):
    monkeypatch.setattr(module, "MAX_PEOPLE", 100)
    with pytest.raises(ValueError, match=r"`frequency` must add up to at most 100 people here"):
        eh.FairRidge().fit(
            table["X"], table["y"], sensitive_features=table["a"], frequency=table["f"]
        )


def test_audit_fields_are_compared(table):
    """`to_dict` holds what the equality tests above rely on."""
    found = eh.audit(None, table["s"], sensitive_features=table["a"], frequency=table["f"])
    fields = {f.name for f in dataclasses.fields(found.independence)}
    assert fields <= set(found.to_dict()["measures"]["independence"])
