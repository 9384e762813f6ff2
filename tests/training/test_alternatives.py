"""The record of a search for less discriminatory alternatives."""

import json

import numpy as np
import pytest

import evenhand as eh
from evenhand._core.validation import InputError


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 500)
    X = rng.normal(size=(500, 3)) + a[:, None] * [1.0, 0.0, 0.0]
    return X, X @ [1.0, 1.0, 0.5] + rng.normal(size=500), a


@pytest.fixture(scope="module")
def path(data):
    X, y, a = data
    return eh.fairness_path(
        eh.FairRidge(), X, y, sensitive_features=a, fairness_weights=[1.0, 4.0, 8.0, 64.0],
        measure_with="logistic", random_state=0,
    )  # fmt: skip


def test_everything_is_in_one_table(path, data):
    X, y, a = data
    old = eh.FairRidge(fairness_weight=0).fit(X, y)
    result = path.alternatives({"ours": X[:, 1], "old": old}, floor=0.4, limit=0.06)
    table = result.to_frame()
    assert len(table) == len(path) + 2
    assert table["origin"].tolist()[-2:] == ["scores", "fitted model"]
    np.testing.assert_array_equal(table["r2"][: len(path)], [p.accuracy for p in path.points])
    measured = eh.independence(None, X[:, 1], sensitive_features=a, estimator="logistic")
    assert table["independence"][len(path)] == pytest.approx(measured, abs=1e-12)
    assert table["chosen"].sum() == 1
    chosen = table[table["chosen"]].iloc[0]
    good = table[(table["r2"] >= 0.4) & (table["independence"] <= 0.06)]
    assert chosen["r2"] == good["r2"].max()
    assert chosen["reason"] == "chosen: the most accurate with independence ≤ 0.06 and R² ≥ 0.4"
    assert (table["meets_floor"] == (table["r2"] >= 0.4)).all()
    assert (table["meets_limit"] == (table["independence"] <= 0.06)).all()
    for _, row in table[~table["chosen"]].iterrows():
        assert ("above the limit 0.06" in row["reason"]) == (not row["meets_limit"])
        assert ("below the floor 0.4" in row["reason"]) == (not row["meets_floor"])
    assert "fitted models may have seen these" in result.held_out


def test_differences_are_paired(path, data):
    y = data[1]
    scores = path.points[1].scores
    rng = np.random.default_rng(1)
    result = path.alternatives({"near": scores + 0.01 * rng.normal(size=len(y))}, floor=0.0)
    table = result.to_frame()
    k = int(np.flatnonzero(table["chosen"])[0])
    assert table["accuracy_margin"][k] == 0
    # Of two models that differ by little the difference is far surer than either.
    twin = path.alternatives({"near": scores + 1e-4 * y}, limit=0.9).to_frame().iloc[-1]
    alone = (twin["r2_high"] - twin["r2_low"]) / 2
    assert twin["accuracy_margin"] < alone
    psi = [r.influence["r2"] for r in path.points]
    assert np.linalg.norm(psi[0]) == pytest.approx(path.points[0].accuracy_stderr, rel=1e-12)
    error = np.sqrt(np.square(psi[0] - psi[2]).sum())
    other = path.alternatives(limit=0.9).to_frame()
    k = int(np.flatnonzero(other["chosen"])[0])
    assert k == 0
    assert other["accuracy_margin"][2] == pytest.approx(1.96 * error, rel=0.02)


def test_the_fairest_above_a_floor(path):
    table = path.alternatives(floor=0.45).to_frame()
    good = table[table["r2"] >= 0.45]
    assert table[table["chosen"]]["independence"].iloc[0] == good["independence"].min()
    reasons = table[~table["chosen"] & table["meets_floor"]]["reason"]
    assert reasons.str.contains("independence is higher by").all()


def test_what_select_chose(path):
    path.select(max_unfairness=0.06)
    result = path.alternatives()
    assert result.chosen == f"weight {path.selected.fairness_weight:g}"
    assert "chosen before, by `select`" in result.columns["reason"]


def test_no_model_meets_both(path):
    result = path.alternatives(floor=0.9, limit=0.001)
    assert "which no model meets" in str(result)
    assert not any(
        f and g
        for f, g in zip(result.columns["meets_floor"], result.columns["meets_limit"], strict=True)
    )


def test_views_and_files(path, tmp_path):
    result = path.alternatives(limit=0.06)
    text = str(result)
    assert "Search for alternatives: 5 models" in text
    assert max(map(len, text.split("\n"))) <= 80
    assert "<table" in result._repr_html_()
    assert json.loads(json.dumps(result.to_dict()))["format"] == "evenhand.alternatives"
    page = result.to_html(tmp_path / "record.html").read_text()
    assert "Search for less discriminatory alternatives" in page
    assert "above the limit 0.06" in page
    with pytest.raises(FileExistsError):
        result.to_html(tmp_path / "record.html")


def test_columns_of_scores_alone(data):
    X, y, a = data
    scores = {"all": X @ [1.0, 1.0, 0.5], "two": X[:, 1] + 0.5 * X[:, 2], "bad": X[:, 0]}
    how = {"sensitive_features": a, "estimator": "logistic"}
    result = eh.alternatives(y, scores, limit=0.06, floor=0.2, **how)
    table = result.to_frame().set_index("name")
    assert (result.chosen, result.met) == ("two", True)
    assert table["origin"].unique().tolist() == ["scores"]
    audits = eh.audit(y, scores, **how)
    for name, audit in audits.items():
        assert table["r2"][name] == pytest.approx(audit.r2, rel=1e-12)
        assert table["independence"][name] == pytest.approx(audit.independence.value, rel=1e-12)
    # Both pair by rows.
    one = {d.name: d for d in audits.differences() if d.criterion == "independence"}["two"]
    assert table["unfairness_difference"]["all"] == pytest.approx(-one.value, rel=1e-12)
    assert table["unfairness_margin"]["all"] == pytest.approx(1.959964 * one.stderr, rel=1e-6)
    assert "is above the limit 0.06" in table["reason"]["all"]
    assert not eh.alternatives(y, scores, limit=0.0001, floor=0.6, **how).met


def test_rows_of_columns_count_as_in_an_audit(data):
    X, y, a = data
    rng = np.random.default_rng(0)
    scores = {"one": np.exp(X[:, 0]), "two": np.exp(X[:, 1] / 2)}
    claims, years = rng.poisson(np.exp(X[:, 0] / 2)), rng.uniform(0.2, 1.0, len(a))
    weight, more = rng.uniform(0.5, 2.0, len(a)), {"sensitive_features": a, "estimator": "logistic"}
    result = eh.alternatives(
        claims, scores, floor=0.0, exposure=years, sample_weight=weight, loss="poisson",
        criterion="separation", **more,
    )  # fmt: skip
    assert (result.key, result.symbol, result.criterion) == ("d2", "D²", "separation")
    audits = eh.audit(claims, scores, exposure=years, sample_weight=weight, loss="poisson", **more)
    values = [audit.separation.value for audit in audits.values()]
    assert result.columns["separation"] == pytest.approx(values, rel=1e-9)
    thrice = eh.alternatives(y, {"x": X[:, 1]}, floor=0.0, frequency=np.full(len(a), 3), **more)
    assert thrice.held_out.startswith(f"{3 * len(a):,} rows")


class TestErrors:
    def test_of_columns(self, data):
        _, y, a = data
        with pytest.raises(InputError, match="`limit` or `floor` must be given, got neither"):
            eh.alternatives(y, {"x": y}, sensitive_features=a)
        with pytest.raises(ValueError, match=r"y_pred\['x'\]"):
            eh.alternatives(y, {"x": y[:10]}, sensitive_features=a, floor=0)
        with pytest.raises(ValueError, match="loss"):
            eh.alternatives(-abs(y), {"x": y}, sensitive_features=a, floor=0, loss="poisson")

    def test_neither_floor_nor_limit(self, path):
        path.selected = None
        with pytest.raises(InputError, match="where no model of the path was selected"):
            path.alternatives()

    def test_limits(self, path):
        with pytest.raises(InputError, match="`limit` must lie between 0 and 1, got 5"):
            path.alternatives(limit=5)
        with pytest.raises(InputError, match="`floor` must be a number of at most 1"):
            path.alternatives(floor=2)

    def test_names(self, path, data):
        with pytest.raises(InputError, match="have names of their own, got 'weight 1'"):
            path.alternatives({"weight 1": data[1]}, limit=0.1)

    def test_lengths(self, path, data):
        with pytest.raises(ValueError, match=r"others\['mine'\]"):
            path.alternatives({"mine": data[1][:10]}, limit=0.1)
