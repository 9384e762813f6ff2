"""Models as files: predictions come back to the digit, and nothing wrong is read in silence."""

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, PoissonRegressor, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.tree import DecisionTreeRegressor

import evenhand as eh
from evenhand._core.validation import InputError
from evenhand.data.bands import Bands
from evenhand.data.encoding import encode, fit_columns
from evenhand.training import model_files
from evenhand.training.model_files import TableModel, load_table_model


def rows(seed=0, n=200):
    rng = np.random.default_rng(seed)
    a = np.array(["p", "q", "r"])[rng.integers(0, 3, n)]
    X = rng.normal(size=(n, 3)) + (a == "q")[:, None]
    return X, X.sum(axis=1) + rng.normal(size=n), a


def table(X):
    frame = pd.DataFrame(X, columns=["u", "v", "w"])
    frame["t"] = np.where(X[:, 0] > 0, "x", "y")
    frame.loc[::9, "u"] = np.nan
    return frame


def again(model, folder):
    path = model.save(folder / "model.json", force=True)
    return eh.load(path)


@pytest.mark.parametrize("kind", [None, "posterior", "attribute"])
@pytest.mark.parametrize("framed", [False, True])
def test_linear_models_come_back(kind, framed, tmp_path):
    X, y, a = rows()
    known = {"sensitive_features": a} if kind == "attribute" else {}
    for make, target in ((eh.FairRidge, y), (eh.FairGLM, np.exp(0.3 * y))):
        Z = table(X) if framed else X
        model = make(group_features=kind).fit(Z, target, sensitive_features=a)
        loaded = again(model, tmp_path)
        np.testing.assert_array_equal(loaded.predict(Z, **known), model.predict(Z, **known))
        assert loaded.get_params() == model.get_params()
        assert loaded.unfairness_ == model.unfairness_
        assert loaded.score(Z, target, **known) == model.score(Z, target, **known)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 1000),
    n_features=st.integers(1, 5),
    kind=st.sampled_from([None, "posterior", "attribute"]),
    labels=st.sampled_from([("a", "b"), (0, 1), (True, False), ("é", "∅", "x"), (1.5, 2.5)]),
    unit=st.sampled_from([1e-9, 1.0, 1e12]),
    link=st.sampled_from([None, "canonical"]),
)
def test_any_linear_model_comes_back(seed, n_features, kind, labels, unit, link, tmp_path_factory):
    rng = np.random.default_rng(seed)
    X = unit * rng.normal(size=(120, n_features))
    a = np.array(labels, dtype=object)[rng.integers(0, len(labels), 120)]
    y = np.exp(X[:, 0] / unit) + rng.uniform(0.1, 1.0, 120)
    model = eh.FairGLM("gamma", fairness_weight=0.0, alpha=0.1, link=link, group_features=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sensitive_features=a)
    loaded = again(model, tmp_path_factory.mktemp("models"))
    given = {"sensitive_features": a} if kind == "attribute" else {}
    np.testing.assert_allclose(
        loaded.predict(X, **given), model.predict(X, **given), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("passthrough", [False, True])
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (None, "spline"),
        ("posterior", "affine"),
        ("attribute", "transport"),
        ("attribute", "spline"),
    ],
)
def test_maps_of_scores_come_back(kind, shape, passthrough, tmp_path):
    X, y, a = rows()
    model = eh.FairPostprocessor(
        DecisionTreeRegressor(max_depth=3), "independence", 2.0 if kind else 0.0,
        group_features=kind, map=shape, passthrough=passthrough, random_state=0,
    ).fit(X, y, sensitive_features=a)  # fmt: skip
    known = {"sensitive_features": a} if kind == "attribute" else {}
    loaded = again(model, tmp_path)
    expected = model.predict(X, **known)
    np.testing.assert_allclose(loaded.predict(X, **known), expected, rtol=1e-12, atol=1e-14)


def xgboost(**options):
    return pytest.importorskip("xgboost").XGBRegressor(n_estimators=5, n_jobs=1, **options)


def lightgbm():
    return pytest.importorskip("lightgbm").LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1)


BASES = {
    "line": LinearRegression,
    "stochastic": lambda: SGDRegressor(random_state=0),
    "log link": PoissonRegressor,
    "scaled": lambda: make_pipeline(StandardScaler(), LinearRegression()),
    "forest": lambda: RandomForestRegressor(5, random_state=0),
    "boosted": lambda: GradientBoostingRegressor(n_estimators=5, random_state=0),
    "histograms": lambda: HistGradientBoostingRegressor(max_iter=5),
    "histograms of counts": lambda: HistGradientBoostingRegressor(max_iter=5, loss="poisson"),
    "xgboost": xgboost,
    "lightgbm": lightgbm,
}


@pytest.mark.parametrize("framed", [False, True])
@pytest.mark.parametrize("base", BASES)
def test_stacks_come_back(base, framed, tmp_path):
    X, y, a = rows()
    X = pd.DataFrame(X, columns=["u", "v", "w"]) if framed else X
    model = eh.FairPostprocessor(
        BASES[base](), "independence", 2.0, passthrough=True, cv=3, random_state=0
    ).fit(X, np.exp(0.3 * y), sensitive_features=a)
    np.testing.assert_allclose(again(model, tmp_path).predict(X), model.predict(X), rtol=1e-12)


def test_trees_send_gaps_the_same_way(tmp_path):
    X, y, _ = rows()
    X[::5, 0] = np.nan
    for base in (RandomForestRegressor(5, random_state=0), HistGradientBoostingRegressor()):
        base.fit(X, y)
        loaded = eh.load(eh.save(FrozenEstimator(base), tmp_path / "t.json", force=True))
        np.testing.assert_allclose(loaded.predict(X), base.predict(X), rtol=1e-12)


@pytest.mark.parametrize("attribute", ["blind", "known"])
def test_recommended_models_come_back(attribute, tmp_path):
    X, y, a = rows()
    frame = table(X)
    model = eh.FairRegressor(
        max_unfairness=0.3, attribute=attribute, cv=3, measure_with="logistic", random_state=0
    ).fit(frame, y, sensitive_features=a)
    loaded = again(model, tmp_path)
    known = {"sensitive_features": a} if attribute == "known" else {}
    np.testing.assert_array_equal(loaded.predict(frame, **known), model.predict(frame, **known))
    assert loaded.explanation_ == model.explanation_
    assert loaded.tried_ == model.tried_
    assert repr(loaded.measure_) == repr(model.measure_)


def test_pipelines_and_models_of_a_path_come_back(tmp_path):
    X, y, a = rows()
    frame = table(X)
    pipeline = make_pipeline(eh.TableEncoder(), eh.FairRidge())
    path = eh.fairness_path(
        pipeline, frame, y, sensitive_features=a, fairness_weights=[1.0], cv=2, random_state=0,
        measure_with="logistic",
    )  # fmt: skip
    model = path.select(max_unfairness=0.9)
    loaded = eh.load(eh.save(model, tmp_path / "m.json"))
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))


class TestWhatCannotBeSaved:
    def test_programs(self, tmp_path):
        X, y, a = rows()
        model = eh.FairPostprocessor(SVR(), random_state=0).fit(X, y, sensitive_features=a)
        with pytest.raises(InputError, match=r"estimator_ is a SVR, .*Hint: linear models, trees"):
            model.save(tmp_path / "m.json")
        assert not list(tmp_path.iterdir())

    def test_unfitted_models(self, tmp_path):
        with pytest.raises(InputError, match="must be fitted, and FairRidge has no `n_features"):
            eh.FairRidge().save(tmp_path / "m.json")

    def test_losses_of_your_own(self, tmp_path):
        X, y, _ = rows()
        from evenhand.measures.losses import get_loss

        model = eh.FairGLM(get_loss("gamma"), fairness_weight=0).fit(X, np.exp(y))
        with pytest.raises(InputError, match="is a loss of your own, which is code"):
            model.save(tmp_path / "m.json")

    def test_categories_of_boosted_trees(self, tmp_path):
        X, y, _ = rows()
        X[:, 0] = X[:, 0] > 0
        base = HistGradientBoostingRegressor(max_iter=3, categorical_features=[0]).fit(X, y)
        with pytest.raises(InputError, match="has categories or another loss"):
            eh.save(base, tmp_path / "m.json")

    def test_two_outputs(self, tmp_path):
        X, y, _ = rows()
        base = DecisionTreeRegressor(max_depth=2).fit(X, np.column_stack([y, y]))
        with pytest.raises(InputError, match="must have one output"):
            eh.save(base, tmp_path / "m.json")

    def test_about_that_is_no_plain_value(self, tmp_path):
        X, y, _ = rows()
        model = eh.FairRidge(fairness_weight=0).fit(X, y)
        with pytest.raises(InputError, match="`about` must hold plain values"):
            model.save(tmp_path / "m.json", about={"when": object()})


def test_nothing_is_overwritten_unasked(tmp_path):
    X, y, _ = rows()
    model = eh.FairRidge(fairness_weight=0).fit(X, y)
    path = model.save(tmp_path / "model.json", about={"data": "grades"})
    assert json.loads(path.read_text())["about"] == {"data": "grades"}
    with pytest.raises(FileExistsError):
        model.save(path)
    model.save(path, force=True)
    assert eh.load(tmp_path).coef_.tolist() == model.coef_.tolist()


def test_a_splitter_comes_back_by_its_description(tmp_path):
    from sklearn.model_selection import KFold

    X, y, a = rows()
    model = eh.FairPostprocessor(LinearRegression(), cv=KFold(3)).fit(X, y, sensitive_features=a)
    loaded = again(model, tmp_path)
    assert loaded.cv == repr(KFold(3))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


# ------------------------------------------------------------------------------------------------
# The model of a command, with the columns of its table.


def table_model(kind, **more):
    X, y, a = rows()
    held = pa.table({"x": X[:, 0], "c": np.where(X[:, 1] > 0, "u", "v")})
    columns = fit_columns(held, ["x", "c"])
    Z, _ = encode(held, columns)
    model = eh.FairRidge(group_features=kind).fit(Z, y, sensitive_features=a)
    saved = TableModel(model, tuple(columns), "y", ("race",), **more)
    return held.append_column("race", pa.array(a)), Z, a, saved


@pytest.mark.parametrize("kind", [None, "posterior", "attribute"])
def test_a_model_with_its_columns_comes_back(kind, tmp_path):
    held, Z, a, saved = table_model(kind)
    saved.save(tmp_path / "model.json", about={"note": "é"})
    loaded = load_table_model(tmp_path)
    known = {"sensitive_features": a} if kind == "attribute" else {}
    np.testing.assert_array_equal(loaded.predict(held), saved.model.predict(Z, **known))
    assert loaded.needs == (["x", "c", "race"] if kind == "attribute" else ["x", "c"])
    assert loaded.about == {"note": "é"}


def test_models_go_through_skops_without_pickles():
    """Of types of ours alone, besides what skops trusts by itself."""
    skops = pytest.importorskip("skops.io")
    X, y, a = rows()
    for model in (
        eh.FairRidge(group_features="posterior"), eh.FairGLM("normal"),
        eh.FairPostprocessor(LinearRegression(), passthrough=True, cv=2, random_state=0),
    ):  # fmt: skip
        model.fit(X, y, sensitive_features=a)
        content = skops.dumps(model)
        types = skops.get_untrusted_types(data=content)
        assert all(name.startswith("evenhand.") for name in types)
        loaded = skops.loads(content, trusted=types)
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_an_unknown_group_is_averaged_and_a_new_one_refused():
    held, Z, a, saved = table_model("attribute")
    labels = a.astype(object)
    labels[0] = None
    gap = held.set_column(2, "race", pa.array(labels.tolist()))
    expected = saved.model.predict(Z, sensitive_features=labels)
    np.testing.assert_allclose(saved.predict(gap), expected, rtol=1e-12)
    labels[3] = "new"
    with pytest.raises(ValueError, match="holds 'new', which was not among the groups"):
        saved.predict(held.set_column(2, "race", pa.array(labels.tolist())))


def test_crossed_attributes_and_numbers_written_in_another_way():
    X, y, a = rows()
    b = np.arange(len(a)) % 2
    held = pa.table({"x": X[:, 0]})
    columns = fit_columns(held, ["x"])
    Z, _ = encode(held, columns)
    groups = pd.DataFrame({"race": a, "sex": b})
    model = eh.FairRidge(group_features="attribute").fit(Z, y, sensitive_features=groups)
    saved = TableModel(model, tuple(columns), "y", ("race", "sex"))
    new = held.append_column("race", pa.array(a)).append_column(
        "sex", pa.array([f"{v}.0" for v in b])
    )
    expected = model.predict(Z, sensitive_features=groups)
    np.testing.assert_array_equal(saved.predict(new), expected)


def test_a_command_needs_a_model_with_columns(tmp_path):
    X, y, _ = rows()
    eh.FairRidge(fairness_weight=0).fit(X, y).save(tmp_path / "model.json")
    with pytest.raises(InputError, match="this is a FairRidge that was saved in Python"):
        load_table_model(tmp_path)


# ------------------------------------------------------------------------------------------------
# Damage.


def signed(data):
    return json.dumps({**data, "digest": model_files._digest(data)})


def places(data, way=()):
    """Every place in a model file, by the way to it; what `about` holds is for people."""
    if way:
        yield way
    if isinstance(data, dict | list):
        for name, value in data.items() if isinstance(data, dict) else enumerate(data):
            # What only a fit reads is not read here.
            if name not in ("about", "parameters", "digest"):
                yield from places(value, (*way, name))


def damaged(data, way, rng):
    """The file with one place damaged in three ways that cannot be meant."""
    value = data
    for key in way:
        value = value[key]
    wrong = [{}, {"type": "os.system"}, True, "∅", 10**400]
    if value is not None:
        wrong.append(None)
    if isinstance(value, str):
        wrong.remove("∅")
    if isinstance(value, bool):
        wrong.remove(True)
    if isinstance(value, list) and value:
        wrong += [value[:-1], [*value, value[-1]]]
    for k in rng.permutation(len(wrong))[:2]:
        other = wrong[k]
        yield changed(data, way, lambda parent, key, other=other: parent.__setitem__(key, other))
    if not isinstance(value, list | int | float) or isinstance(way[-1], str):
        yield changed(data, way, lambda parent, key: parent.pop(key))


def changed(data, way, change):
    out = json.loads(json.dumps(data))
    parent = out
    for key in way[:-1]:
        parent = parent[key]
    change(parent, way[-1])
    return out


def models():
    X, y, a = rows()
    frame = table(X)[["u", "t"]]
    yield eh.FairGLM(group_features="posterior").fit(frame, np.exp(y), sensitive_features=a)
    yield eh.FairPostprocessor(
        DecisionTreeRegressor(max_depth=1), group_features="attribute", passthrough=True, cv=2,
        map="affine",
    ).fit(X[:, :1], y, sensitive_features=a)  # fmt: skip
    yield table_model("attribute", banded=("race",), bands=(Bands((1.0,), ("a", "b")),))[3]


def test_every_field_is_checked_on_reading(tmp_path):
    path, count, accepted, rng = tmp_path / "model.json", 0, [], np.random.default_rng(0)
    for model in models():
        model.save(path, force=True)
        data = json.loads(path.read_text())
        for way in places(data):
            if len(way) > 2 and isinstance(way[-1], int) and way[-1] > 0:
                continue  # all entries of a list are alike
            for bad in damaged(data, way, rng):
                path.write_text(signed(bad))
                try:
                    eh.load(path)
                except InputError:
                    count += 1
                else:
                    accepted.append(way)
    # Fields that a model may lack, and labels, which may be anything.
    free = ("labels", "classes_", *OPTIONAL)
    assert not {way for way in accepted if not set(way) & set(free)}
    assert count > 300
    assert len(accepted) < 30


WORDS = {"posterior", "attribute", "number", "category", "left out", "identity", "log"}


def test_words_that_say_what_to_do_are_those_there_are(tmp_path):
    path, seen = tmp_path / "model.json", set()
    for model in models():
        model.save(path, force=True)
        data = json.loads(path.read_text())
        for way in places(data):
            value = data
            for key in way:
                value = value[key]
            if isinstance(value, str) and value in WORDS:
                seen.add(value)
                bad = changed(data, way, lambda parent, key: parent.__setitem__(key, "∅"))
                path.write_text(signed(bad))
                with pytest.raises(InputError, match="must be one of"):
                    eh.load(path)
    assert len(seen) >= 4


OPTIONAL = (
    "feature_names_in_", "n_features_in_", "columns_", "passthrough_alpha_", "encoder_", "var_",
    "_covariance", "totals_",
    "estimators_",
)  # fmt: skip


def test_any_change_after_writing_is_refused(tmp_path):
    X, y, _ = rows()
    path = eh.FairRidge(fairness_weight=0).fit(X, y).save(tmp_path / "model.json")
    text = path.read_text()
    rng = np.random.default_rng(0)
    for _ in range(150):
        at = int(rng.integers(len(text)))
        other = text[:at] + "7" + text[at + 1 :]
        if "".join(other.split()) != "".join(text.split()):
            path.write_text(other)
            with pytest.raises(InputError, match="Hint: take an undamaged copy"):
                eh.load(path)
    for end in range(0, len(text) - 2, 41):
        path.write_text(text[:end])
        with pytest.raises(InputError, match="it is no JSON"):
            eh.load(path)
    data = json.loads(text)
    data["model"]["intercept_"] += 1e-9
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="which was changed after it was written"):
        eh.load(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "is no JSON"),
        ("[]", "is not a model written by evenhand"),
        ('{"format": "evenhand.model", "format": "x"}', "`format` is given twice"),
        ('{"format": "evenhand.model", "version": NaN}', "it holds NaN, which is no number"),
        ('{"format": "evenhand.model", "version": true}', "has version True of the format"),
        ('{"format": "evenhand.model", "version": 1}', "this evenhand reads version 2"),
        ('{"format": "evenhand.model", "version": 2}', "`about` is missing"),
    ],
)
def test_files_that_are_no_models(tmp_path, text, words):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(InputError, match=words):
        eh.load(tmp_path)


def test_there_is_no_model(tmp_path):
    with pytest.raises(InputError, match="There is no model"):
        eh.load(tmp_path)


@pytest.mark.parametrize(
    ("edges", "labels", "words"),
    [
        ((2.0, 1.0), ("a", "b", "c"), "must rise from one to the next"),
        (("soon",), ("a", "b"), "damaged"),
        ((1.0, "2020-01-01"), ("a", "b", "c"), "must be finite numbers"),
        ((1.0,), ("a", "b", "c"), "2 different names for 1 edges"),
        ((1.0,), ("a", "a"), "be distinct texts"),
    ],
)
def test_bands_that_are_none(edges, labels, words, tmp_path):
    *_, saved = table_model(None, banded=("race",), bands=(Bands(edges, labels),))
    saved.save(tmp_path / "model.json")
    with pytest.raises(InputError, match=words):
        eh.load(tmp_path)


def test_a_tree_that_runs_in_a_circle_is_refused(tmp_path):
    X, y, _ = rows()
    path = eh.save(DecisionTreeRegressor(max_depth=2).fit(X, y), tmp_path / "model.json")
    data = json.loads(path.read_text())
    data["model"]["left"]["values"] = [0] * len(data["model"]["left"]["values"])
    path.write_text(signed(data))
    with pytest.raises(InputError, match="must stand behind its parent"):
        eh.load(path)


def test_a_package_that_is_missing(tmp_path, monkeypatch):
    X, y, _ = rows()
    model = xgboost().fit(X, y)
    path = eh.save(model, tmp_path / "model.json")
    np.testing.assert_array_equal(eh.load(path).predict(X), model.predict(X))
    loaded = eh.load(path)
    monkeypatch.setitem(__import__("sys").modules, "xgboost", None)
    with pytest.raises(InputError, match="this one needs xgboost"):
        loaded.predict(X)
