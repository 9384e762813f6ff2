"""Drivers: parts that are known, every kind of table, and clear refusals."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

import evenhand as eh
from evenhand.auditing.drivers import FeatureTable

N = 800


@pytest.fixture(scope="module")
def linear():
    """(model, X, a, y): of three features the first two differ by group."""
    rng = np.random.default_rng(3)
    a = rng.choice(["p", "q", "r"], N, p=[0.5, 0.3, 0.2])
    X = rng.normal(size=(N, 3))
    X[:, 0] += a == "q"
    X[:, 1] -= 0.5 * (a == "r")
    y = X @ [2.0, 1.0, 0.5] + rng.normal(size=N)
    return LinearRegression().fit(X, y), X, a, y


def test_parts_of_a_linear_model_are_slope_times_difference_and_add_up(linear):
    model, X, a, _ = linear
    found = eh.drivers(model, X, sensitive_features=a)
    assert (found.reference, found.widest) == ("p", "q")
    for j, name in enumerate(["x0", "x1", "x2"]):
        for k in "qr":
            difference = X[a == k, j].mean() - X[a == "p", j].mean()
            assert found[name].gaps[k].value == pytest.approx(model.coef_[j] * difference, abs=1e-9)
            spread = np.sqrt(
                X[a == k, j].var() / (a == k).sum() + X[a == "p", j].var() / (a == "p").sum()
            )
            want = abs(model.coef_[j]) * spread
            assert found[name].gaps[k].stderr == pytest.approx(want, rel=0.01)
    assert found.remainder == pytest.approx(0.0, abs=1e-9)
    assert found.drivers[0].feature == "x0"


def test_how_a_feature_stands_in_is_its_independence(linear):
    model, X, a, _ = linear
    found = eh.drivers(model, X, sensitive_features=a)
    for j in range(3):
        want = eh.independence(None, X[:, j], sensitive_features=a)
        assert found[f"x{j}"].stands_in.value == pytest.approx(want, abs=1e-9)


def test_every_kind_of_table_says_the_same(linear):
    model, X, a, _ = linear
    want = [d.gaps["q"].value for d in eh.drivers(model, X, sensitive_features=a).drivers]
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"], index=np.arange(N)[::-1])
    named = LinearRegression().fit(frame, X @ model.coef_)
    for table, fitted in (
        (frame, named),
        (pl.DataFrame(frame), LinearRegression().fit(pl.DataFrame(frame), X @ model.coef_)),
        (sparse.csr_matrix(X), model),
        (X.astype(np.float32), model),
    ):
        found = eh.drivers(fitted, table, sensitive_features=a)
        np.testing.assert_allclose([d.gaps["q"].value for d in found.drivers], want, atol=1e-5)


def mixed(n=N):
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2, n)
    X = pd.DataFrame(
        {
            "income": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "fuel": np.where(rng.random(n) < 0.2 + 0.5 * a, "gas", "oil"),
            "noise": rng.normal(size=n),
        }
    )
    y = X["income"].fillna(0) + 2.0 * (X["fuel"] == "gas") + 0.3 * rng.normal(size=n)
    return X, y.to_numpy(), a


def test_categories_and_missing_values_pass_to_the_model():
    X, y, a = mixed()
    boosted = HistGradientBoostingRegressor(max_iter=30, random_state=0)
    model = make_pipeline(eh.TableEncoder(), boosted).fit(X, y)
    found = eh.drivers(model, X, sensitive_features=a, y_true=y)
    assert found.drivers[0].feature == "fuel"
    share = [np.mean(X["fuel"][a == k] == "gas") for k in (0, 1)]
    assert abs(found["fuel"].gaps[found.widest].value) == pytest.approx(
        2.0 * (share[1] - share[0]), rel=0.1
    )
    # A table of two by two has a closed form, but for the row left out.
    table = np.array(
        [[np.mean((X["fuel"] == f) & (a == k)) for k in (0, 1)] for f in ("gas", "oil")]
    )
    product = table.sum(1, keepdims=True) * table.sum(0)
    want = (table * np.log(table / product)).sum() / -(table.sum(0) * np.log(table.sum(0))).sum()
    assert found["fuel"].stands_in.value == pytest.approx(want, abs=0.005)
    assert found["fuel"].criteria["independence"].value > 0.05


def test_scores_alone_go_through_a_surrogate():
    X, _, a = mixed()
    score = 2.0 * (X["fuel"] == "gas").to_numpy() + X["income"].fillna(0).to_numpy()
    found = eh.drivers(score, X, sensitive_features=a)
    assert found.surrogate_r2 > 0.95
    assert found.drivers[0].feature == "fuel"
    assert not found.notes
    vague = eh.drivers(score + 3 * np.random.default_rng(0).normal(size=N), X, sensitive_features=a)
    assert "what else went into them is in no part" in vague.notes[0]
    assert vague.notes[0].split(":")[1].split()[0] in str(vague)


def test_the_order_of_rows_does_not_matter_to_a_surrogate():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    a = rng.integers(0, 2, 1000)
    s = X[:, 0] + X[:, 1]
    order = np.argsort(s)
    assert not eh.drivers(s, X, sensitive_features=a).notes
    assert not eh.drivers(s[order], X[order], sensitive_features=a[order]).notes


def test_two_copies_share_a_part():
    rng = np.random.default_rng(8)
    a = rng.integers(0, 2, N)
    x = rng.normal(size=N) + a
    X = np.column_stack([x, x, rng.normal(size=N)])
    y = 2 * x + X[:, 2] + 0.5 * rng.normal(size=N)
    model = eh.FairRidge(fairness_weight=0.1).fit(X, y, sensitive_features=a)
    found = eh.drivers(model, X, sensitive_features=a, y_true=y)
    half = 0.5 * found.gaps[found.widest].value
    for name in ("x0", "x1"):
        assert found[name].gaps[found.widest].value == pytest.approx(half, rel=0.05)


def test_weights_and_clusters_count(linear):
    model, X, a, _ = linear
    rng = np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, N)
    found = eh.drivers(model, X, sensitive_features=a, sample_weight=weight)
    means = {k: np.average(X[a == k, 0], weights=weight[a == k]) for k in "pq"}
    assert found["x0"].gaps["q"].value == pytest.approx(
        model.coef_[0] * (means["q"] - means["p"]), abs=1e-9
    )
    twice = np.arange(2 * N) % N
    copied = eh.drivers(model, X[twice], sensitive_features=a[twice], cluster=twice)
    once = eh.drivers(model, X, sensitive_features=a)
    assert copied["x0"].gaps["q"].stderr == pytest.approx(once["x0"].gaps["q"].stderr, rel=1e-6)


def test_a_model_that_uses_the_group_is_given_it(linear):
    _, X, a, y = linear
    model = eh.FairRidge(fairness_weight=1.0, group_features="attribute")
    model.fit(X, y, sensitive_features=a)
    assert len(eh.drivers(model, X, sensitive_features=a)) == 3


def test_results_show_themselves(linear):
    model, X, a, y = linear
    found = eh.drivers(model, X, sensitive_features=a, y_true=y)
    assert list(found.to_frame()["feature"]) == [d.feature for d in found.drivers]
    assert found.to_dict()["drivers"][0]["feature"] == "x0"
    assert max(map(len, str(found).split("\n"))) <= 80
    figure = found.plot()
    assert [ax.get_title(loc="left") for ax in figure.axes][1:] == [
        "independence", "separation", "tells the group",
    ]  # fmt: skip
    assert str(eh.drivers(model, X, sensitive_features=a)) == str(
        eh.drivers(model, X, sensitive_features=a)
    )


def test_messages(linear):
    model, X, a, y = linear
    with pytest.raises(ValueError, match="`n_values` must be a positive integer, got 0"):
        eh.drivers(model, X, sensitive_features=a, n_values=0)
    with pytest.raises(ValueError, match="`y_true` must be given for separation"):
        eh.drivers(model, X, sensitive_features=a, criteria=["separation"])
    with pytest.raises(ValueError, match="`reference` must be 'largest' or one of 'p', 'q', 'r'"):
        eh.drivers(model, X, sensitive_features=a, reference="z")
    with pytest.raises(ValueError, match="`X` must be a table with one column per feature"):
        eh.drivers(y, X[:, 0], sensitive_features=a)
    with pytest.raises(KeyError, match="no feature named 'age'; there are 'x0'"):
        eh.drivers(model, X, sensitive_features=a)["age"]


def test_values_of_a_column_are_spread_evenly():
    table = FeatureTable(np.arange(100.0)[::-1, None])
    assert table.values("x0")[table.evenly("x0", 4)].tolist() == [12, 37, 62, 87]


def test_page_and_section_of_a_report(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.choice(["<b>p</b>", "q"], 400)
    X = pd.DataFrame(rng.normal(size=(400, 2)), columns=["<i>one</i>", "two"])
    X.iloc[:, 0] += (a == "q") * 1.0
    y = X.sum(axis=1) + rng.normal(size=400)
    model = LinearRegression().fit(X, y)
    found = eh.drivers(model, X, sensitive_features=a, y_true=y, estimator="logistic")
    page = found.to_html(tmp_path / "d.html").read_text()
    assert "Which features carry the gap" in page
    assert "<i>one</i>" not in page
    assert "<b>p</b>" not in page
    with pytest.raises(FileExistsError):
        found.to_html(tmp_path / "d.html")
    audit = eh.audit(y, model.predict(X), sensitive_features=a, estimator="logistic")
    report = audit.to_html(tmp_path / "a.html", drivers=found).read_text()
    assert "Which features carry the gap" in report
    assert '"drivers":{"format":"evenhand.drivers"' in report
    assert "Which features carry" not in audit.to_html(tmp_path / "b.html").read_text()


def test_scores_in_another_order_than_the_features_are_refused(linear):
    model, X, a, _ = linear
    scores = pd.Series(model.predict(X))[::-1]
    with pytest.raises(
        ValueError, match="`model_or_scores` must have its rows in the order of `X`"
    ):
        eh.drivers(scores, pd.DataFrame(X), sensitive_features=a)
