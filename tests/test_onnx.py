"""ONNX graphs of fitted models give the scores of `predict`, to the last digits of a float64."""

import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import evenhand as eh
from evenhand.data.encoding import UnseenLevelWarning
from evenhand.measures.losses import Link, PowerLoss

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

N = 240
rng = np.random.default_rng(0)
A = np.array(["p", "q", "r"])[np.arange(N) % 3]
X = rng.normal(size=(N, 3)) + 0.5 * (A == "q")[:, None]
Y = X @ [1.0, 0.5, -0.3] + (A == "r") + rng.normal(size=N)
AMOUNTS = np.exp(Y / 3)
TABLE = pd.DataFrame({
    "number": np.where(np.arange(N) % 7, X[:, 0], np.nan), "whole": X[:, 1],
    "city": np.where(np.arange(N) % 11, rng.choice(["ulm", "kiel", "é"], N), None),
})  # fmt: skip
TABLE.loc[1, "city"] = "rare"
# Beyond what was seen, and of levels that were not there.
FAR = 3.0 * rng.normal(size=(40, 3))
NEW = pd.DataFrame({
    "number": np.where(np.arange(40) % 5, FAR[:, 0], np.nan), "whole": FAR[:, 1],
    "city": np.where(np.arange(40) % 6, rng.choice(["ulm", "kiel", "é", "new"], 40), None),
})  # fmt: skip
GROUPS = np.array(["p", "q", "r", None], dtype=object)[np.arange(40) % 4]


def run(graph, X):
    """Scores, and the names of the inputs."""
    session = runtime.InferenceSession(graph.SerializeToString())
    given = {}
    for entry in session.get_inputs():
        values = GROUPS if entry.name == "sensitive_features" else X
        if entry.name not in ("X", "sensitive_features"):
            values = X[entry.name]
        if entry.type == "tensor(string)":
            texts = ["" if v is None or v != v else str(v) for v in values]
            given[entry.name] = np.array(texts, dtype=object)[:, None]
        else:
            matrix = np.asarray(values, dtype=float)
            given[entry.name] = matrix if matrix.ndim == 2 else matrix[:, None]
    return session.run(["score"], given)[0], [*given]


def check(model, X=FAR, known=False):
    """The inputs, once the scores are those of `predict`."""
    found, inputs = run(eh.onnx.export(model), X)
    expected = model.predict(X, **({"sensitive_features": GROUPS} if known else {}))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    return inputs


@pytest.mark.parametrize("kind", [None, "posterior", "attribute"])
def test_ridge(kind):
    model = eh.FairRidge(group_features=kind).fit(X, Y, sensitive_features=A)
    known = kind == "attribute"
    assert check(model, known=known) == ["X"] + ["sensitive_features"] * known


@pytest.mark.parametrize("kind", ["posterior", "attribute"])
@pytest.mark.filterwarnings("ignore::evenhand.data.encoding.UnseenLevelWarning")
def test_tables_with_text_and_gaps(kind):
    model = eh.FairRidge(group_features=kind).fit(TABLE, Y, sensitive_features=A)
    known = kind == "attribute"
    inputs = check(model, NEW, known)
    assert inputs == ["number", "whole", "city"] + ["sensitive_features"] * known


def test_levels_that_were_not_there_are_the_most_frequent_one():
    model = eh.FairRidge().fit(TABLE.drop(1), np.delete(Y, 1), sensitive_features=np.delete(A, 1))
    with pytest.warns(UnseenLevelWarning, match="hold a level that was not there"):
        check(model, NEW)


@pytest.mark.parametrize(
    ("family", "link"),
    [("normal", None), ("poisson", None), ("gamma", "inverse"), ("binomial", None),
     ("inverse_gaussian", "inverse_squared"), ("tweedie", "log")],
)  # fmt: skip
def test_means_of_a_glm(family, link):
    y = {"normal": Y, "binomial": 1.0 / (1.0 + np.exp(-Y))}.get(family, AMOUNTS)
    model = eh.FairGLM(family, fairness_weight=0.5, link=link).fit(X, y, sensitive_features=A)
    check(model)
    check(model, 1e4 * FAR)  # where means end


BASES = {
    "linear": make_pipeline(StandardScaler(), Ridge()),
    "log": PoissonRegressor(),
    "tree": DecisionTreeRegressor(max_depth=3, random_state=0),
    "stump": DecisionTreeRegressor(max_depth=1, min_samples_leaf=N),  # a leaf alone
    "forest": RandomForestRegressor(5, max_depth=4, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=5, random_state=0),
    "histogram": HistGradientBoostingRegressor(max_iter=5, random_state=0),
    "histogram gamma": HistGradientBoostingRegressor(max_iter=5, loss="gamma", random_state=0),
}
MAPS = (
    {"passthrough": True},
    {"passthrough": True, "group_features": "attribute"},
    {"map": "spline"},
    {"map": "transport", "group_features": "attribute"},
    {"group_features": None},
)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.filterwarnings("ignore:One map for everybody:UserWarning")
def test_maps_and_stacks_on_any_base(base):
    y = AMOUNTS if base in ("log", "histogram gamma") else Y
    kinds = MAPS if base == "histogram" else (MAPS[len(base) % 4],)
    for options in kinds:
        model = eh.FairPostprocessor(BASES[base], cv=2, random_state=0, **options)
        model.fit(X, y, sensitive_features=A)
        check(model, known=options.get("group_features") == "attribute")


def test_stack_on_a_table():
    base = make_pipeline(eh.TableEncoder(), HistGradientBoostingRegressor(max_iter=5))
    model = eh.FairPostprocessor(base, passthrough=True, cv=[(np.arange(120), np.arange(120, N)),
                                 (np.arange(120, N), np.arange(120))], random_state=0)  # fmt: skip
    model.fit(TABLE.drop(columns="city").assign(city=A), Y, sensitive_features=A)
    table = NEW.assign(city=A[:40])
    assert check(model, table) == ["number", "whole", "city"]


@pytest.mark.filterwarnings("ignore::evenhand.data.encoding.UnseenLevelWarning")
def test_recommended_model():
    model = eh.FairRegressor(fairness_weight=1.0, attribute="known", cv=2, random_state=0)
    model.fit(TABLE, Y, sensitive_features=A)
    assert "city" in check(model, NEW, known=True)


def test_a_model_from_a_file_is_the_same(tmp_path):
    base = HistGradientBoostingRegressor(max_iter=5, random_state=0)
    model = eh.FairPostprocessor(base, passthrough=True, cv=2, random_state=0)
    model.fit(X, Y, sensitive_features=A)
    check(eh.load(model.save(tmp_path / "model.json")))


def test_what_becomes_no_graph_is_named():
    model = eh.FairPostprocessor(KNeighborsRegressor(), cv=2, random_state=0)
    with pytest.raises(ValueError, match=r"`model` must be made of.*has KNeighborsRegressor. Hint"):
        eh.onnx.export(model.fit(X, Y, sensitive_features=A))
    own = Link("own", np.log, np.exp, lambda eta: (np.exp(eta), np.exp(eta)))
    glm = eh.FairGLM(PowerLoss("own", 1.0, own)).fit(X, AMOUNTS, sensitive_features=A)
    with pytest.raises(ValueError, match=r"`model` must be made of.*has Link"):
        eh.onnx.export(glm)


def test_where_onnx_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = eh.FairRidge().fit(X, Y, sensitive_features=A)
    with pytest.raises(ModuleNotFoundError, match=r"`export` needs the package onnx. Hint: pip in"):
        eh.onnx.export(model)
