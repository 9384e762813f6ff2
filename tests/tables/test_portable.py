"""Columns into numbers, and models into files and back."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pytest

import evenhand as eh
from evenhand.data.encoding import MISSING, OTHER, ColumnError, encode, fit_columns
from evenhand.tables.model_files import from_linear, load_model
from evenhand.tables.readers import TableError


def test_numbers_are_standardized_and_gaps_marked():
    table = pa.table({"x": [1.0, None, 3.0, 8.0]})
    (column,) = fit_columns(table, ["x"])
    X, _ = encode(table, [column])
    assert column.features == ["x", f"x={MISSING}"]
    assert column.fill == 3.0
    np.testing.assert_allclose(X[:, 0].mean(), 0, atol=1e-12)
    np.testing.assert_allclose(X[:, 0].std(), 1)
    np.testing.assert_array_equal(X[:, 1], [0, 1, 0, 0])


def test_nan_counts_as_missing():
    table = pa.table({"x": [1.0, float("nan"), 3.0]})
    (column,) = fit_columns(table, ["x"])
    assert column.missing
    assert np.isfinite(encode(table, [column])[0]).all()


def test_categories_have_a_column_per_level_but_the_first():
    values = ["b"] * 30 + ["a"] * 20 + ["rare"] * 3 + [None] * 5
    table = pa.table({"c": pa.array(values).dictionary_encode()})
    (column,) = fit_columns(table, ["c"])
    assert column.features == ["c=a", f"c={OTHER}", f"c={MISSING}"]
    X, unseen = encode(table, [column])
    assert X.sum(axis=0).tolist() == [20, 3, 5]
    assert not unseen
    X, unseen = encode(pa.table({"c": ["b", "new", None]}), [column])
    assert X.tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert "'rare'" not in column.describe()
    assert "rare levels are taken together" in column.describe()


def test_unseen_levels_are_counted_where_there_is_no_other():
    (column,) = fit_columns(pa.table({"c": ["a", "b"] * 20}), ["c"])
    X, unseen = encode(pa.table({"c": ["zzz", "b"]}), [column])
    assert unseen == {"c": 1}
    assert X.tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([None] * 40, "no values"),
        ([5] * 40, "same value"),
        (["a"] * 40, "same value"),
        ([3 * i for i in range(40)], "like a row number"),
        ([f"person {i}" for i in range(40)], "40 different texts in 40 rows"),
    ],
)
def test_useless_columns_are_left_out_and_named(values, reason):
    (column,) = fit_columns(pa.table({"v": values}), ["v"])
    assert column.kind == "left out"
    assert reason in column.describe()
    assert encode(pa.table({"v": values}), [column])[0].shape == (40, 0)


def test_dates_and_booleans_are_numbers():
    day = [datetime.date(2020, 1, 1 + i % 20) for i in range(40)]
    table = pa.table({"d": day, "b": [True, False] * 20})
    columns = fit_columns(table, ["d", "b"])
    assert [c.kind for c in columns] == ["number", "number"]
    assert columns[0].scale == pytest.approx(np.std([i % 20 for i in range(40)]))


def test_types_no_model_can_use_are_refused():
    with pytest.raises(ColumnError, match="leave it out \\(--drop"):
        fit_columns(pa.table({"v": [[1], [2]]}), ["v"])


def training(kind, n=300):
    rng = np.random.default_rng(0)
    a = np.array(["p", "q", "r"])[rng.integers(0, 3, n)]
    table = pa.table(
        {"x": rng.normal(size=n) + (a == "q"), "c": np.array(["u", "v"])[rng.integers(0, 2, n)]}
    )
    y = table["x"].to_numpy() + rng.normal(size=n)
    columns = fit_columns(table, ["x", "c"])
    X, _ = encode(table, columns)
    model = eh.FairRidge(fairness_weight=1, group_features=kind)
    return (
        table.append_column("race", pa.array(a)),
        X,
        a,
        columns,
        model.fit(X, y, sensitive_features=a),
    )


@pytest.mark.parametrize("kind", [None, "posterior", "attribute"])
def test_a_saved_model_predicts_as_the_fitted_one(kind, tmp_path):
    table, X, a, columns, model = training(kind)
    path = from_linear(model, columns, "y", ["race"], {"note": "é"}).save(tmp_path / "model.json")
    again = load_model(tmp_path)
    found, _ = again.predict(table)
    np.testing.assert_allclose(found, model.predict(X, sensitive_features=a), rtol=1e-9)
    assert again.needs == (["x", "c", "race"] if kind == "attribute" else ["x", "c"])
    assert again.about == {"note": "é"}
    assert json.loads(path.read_text())["format"] == "evenhand.model"
    with pytest.raises(FileExistsError):
        again.save(path)


@pytest.mark.parametrize("kind", [None, "posterior", "attribute"])
@pytest.mark.parametrize(
    ("family", "link"),
    [("poisson", None), ("binomial", None), ("gamma", "canonical"), ("quantile", None)],
)
def test_a_saved_glm_predicts_as_the_fitted_one(family, link, kind, tmp_path):
    table, X, a, columns, _ = training(kind)
    rng = np.random.default_rng(0)
    y = rng.uniform(0.2, 0.9, len(a)) + 0.05 * X[:, 0]
    model = eh.FairGLM(family, fairness_weight=1, link=link, group_features=kind)
    model.fit(X, y, sensitive_features=a)
    from_linear(model, columns, "y", ["race"], {}).save(tmp_path / "model.json")
    found, _ = load_model(tmp_path).predict(table)
    np.testing.assert_allclose(found, model.predict(X, sensitive_features=a), rtol=1e-9)


def test_a_model_without_its_least_predictor_is_damaged(tmp_path):
    path = save(None, tmp_path)
    data = json.loads(path.read_text())
    for change in ({"link": "inverse"}, {"least_predictor": 0.1}):
        path.write_text(json.dumps({**data, **change}))
        with pytest.raises(TableError, match="`least_predictor` must be there for a link of"):
            load_model(path)


def test_two_groups_have_one_row_of_logistic_coefficients(tmp_path):
    rng = np.random.default_rng(1)
    a = rng.integers(0, 2, 200)
    table = pa.table({"x": rng.normal(size=200) + a})
    columns = fit_columns(table, ["x"])
    X, _ = encode(table, columns)
    y = X[:, 0] + rng.normal(size=200)
    model = eh.FairRidge(fairness_weight=1, group_features="posterior").fit(
        X, y, sensitive_features=a
    )
    saved = from_linear(model, columns, "y", ["a"], {})
    np.testing.assert_allclose(saved.predict(table)[0], model.predict(X), rtol=1e-9)


def test_an_unknown_group_is_averaged_and_a_new_one_refused():
    table, X, a, columns, model = training("attribute")
    saved = from_linear(model, columns, "y", ["race"], {})
    labels = a.astype(object)
    labels[0] = None
    gap = table.set_column(2, "race", pa.array(labels.tolist()))
    expected = model.predict(X, sensitive_features=labels)
    np.testing.assert_allclose(saved.predict(gap)[0], expected, rtol=1e-9)
    labels[3] = "new"
    with pytest.raises(TableError, match="Row 4 belongs to the group 'new'"):
        saved.predict(table.set_column(2, "race", pa.array(labels.tolist())))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"coef": [1.0]}, r"`coef` must have 2 entries \(one for each column of numbers\), got 1"),
        ({"intercept": float("inf")}, "it holds Infinity, which is no number"),
        ({"intercept": 10**400}, "`intercept` must be a finite number"),
        ({"columns": [{"nme": 1, "levels": []}]}, r"`columns\[0\].name` is missing"),
        ({"groups": None}, "`groups` must be posterior, as the field group_features says"),
        ({"group_features": None}, "`groups` must be None, as the field group_features says"),
        ({"more": 1}, "`more` is not a field of a model"),
        ({"target": "\ud800"}, "`target` must be text, and not half a character"),
        ({"bands": {"sex": {"edges": [1], "labels": ["a", "b"]}}}, "must be one of `sensitive`"),
        ({"bands": {"race": {"edges": [2, 1], "labels": ["a", "b", "c"]}}}, "must be rising"),
        ({"bands": {"race": {"edges": ["soon"], "labels": ["a", "b"]}}}, "a number or a date"),
        ({"bands": {"race": {"edges": [1, "2020-01-01"], "labels": ["a", "b", "c"]}}}, "rising"),
        ({"bands": {"race": {"edges": [1], "labels": ["a", "a"]}}}, "must be distinct"),
        ({"bands": {"race": {"edges": [1], "labels": ["a", "b", "c"]}}}, "must have 2 entries"),
        ({"bands": {"race": {"edges": [], "labels": ["a", "b"]}}}, "must hold at least 1, got 0"),
    ],
)
def test_damaged_models_are_refused_with_the_field(tmp_path, change, words):
    path = save("posterior", tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(TableError, match=f"is damaged: .*{words}.* Hint: take an undamaged copy"):
        load_model(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "is no JSON"),
        ('{"format": "evenhand.model", "format": "x"}', "`format` is given twice"),
        ('{"format": "evenhand.model", "version": true}', "has version True of the format"),
        ('{"format": "evenhand.model", "version": 4}', "reads version 1. Hint: write"),
    ],
)
def test_files_that_are_no_models(tmp_path, text, words):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(TableError, match=words):
        load_model(tmp_path)


def save(kind, folder):
    _, _, _, columns, model = training(kind)
    found = from_linear(model, columns, "y", ["race"], {"note": 1})
    return found.save(folder / "model.json")


def fields(data, path=()):
    """Every place in a model file, by the way to it; what `about` holds is for people."""
    if path:
        yield path
    if isinstance(data, dict):
        for name, value in data.items():
            yield from fields(value, (*path, name)) if name != "about" else [(*path, name)]
    elif isinstance(data, list):
        for k, value in enumerate(data):
            yield from fields(value, (*path, k))


def damaged(data, path):
    """The file with one place damaged, in every way that cannot be meant."""
    value = data
    for key in path:
        value = value[key]
    wrong = [{}, [[]], "∅", True, float("nan"), float("-inf"), 10**400]
    if value is not None:
        wrong.append(None)
    if isinstance(value, str):
        wrong.remove("∅")
        if path[-1] in ("kind", "format", "group_features", "link"):
            wrong.append("other")
    if isinstance(value, bool):
        wrong.remove(True)
    if isinstance(value, dict) and path[-1] in ("about", "bands"):
        wrong.remove({})
    if isinstance(value, int | float) and path[-1] in ("scale", "shares"):
        wrong += [-1.0]
    if isinstance(value, list) and value:
        wrong += [value[:-1], [*value, value[-1]]]
    for other in wrong:
        yield _with(data, path, lambda parent, key, other=other: parent.__setitem__(key, other))
    # In a list the others would move up, which lengths find out.
    yield _with(data, path, lambda parent, key: parent.pop(key))


def _with(data, path, change):
    out = json.loads(json.dumps(data))
    parent = out
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return out


@pytest.mark.parametrize("kind", [None, "posterior", "attribute"])
def test_every_field_is_checked_on_reading(tmp_path, kind):
    path = save(kind, tmp_path)
    data = json.loads(path.read_text())
    count = 0
    for place in fields(data):
        for text in {json.dumps(bad) for bad in damaged(data, place)}:
            path.write_text(text)
            with pytest.raises(TableError, match="model"):
                load_model(path)
            count += 1
    assert count > 200
