"""Relativities: errors against statsmodels, names of levels, totals that agree."""

import json

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand._core.validation import InputError

B = np.array([0.3, 0.2, -0.1])


def rows(seed=0, n=600):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 3)) + 0.7 * a[:, None] * [1, 0, 0] + 3.0
    return rng, X, a, np.exp((X - 3.0) @ B)


def targets(rng, mu):
    return {
        "poisson": rng.poisson(mu),
        "gamma": rng.gamma(2, mu / 2),
        "tweedie": rng.poisson(mu) * rng.gamma(2, 0.5, len(mu)),
        "binomial": rng.integers(0, 2, len(mu)),
        "normal": mu + rng.normal(size=len(mu)),
    }


@pytest.mark.parametrize("family", ["poisson", "gamma", "tweedie", "binomial", "normal"])
@pytest.mark.parametrize("exposed", [False, True])
def test_errors_are_those_of_statsmodels(family, exposed):
    sm = pytest.importorskip("statsmodels.api")
    rng, X, _, mu = rows()
    log = sm.families.links.Log()
    families = {
        "poisson": sm.families.Poisson(),
        "gamma": sm.families.Gamma(log),
        "tweedie": sm.families.Tweedie(log, var_power=1.5),
        "binomial": sm.families.Binomial(),
        "normal": sm.families.Gaussian(),
    }
    y = targets(rng, mu)[family]
    given = {"exposure": rng.uniform(0.2, 1.0, len(y))} if exposed else {}
    if exposed and family in ("binomial", "normal"):
        given = {}
    model = eh.FairGLM(family, fairness_weight=0, alpha=0).fit(X, y, **given)
    peer = sm.GLM(y, sm.add_constant(X), family=families[family], **given)
    peer = peer.fit(cov_type="HC0", tol=1e-12, maxiter=200)
    table = model.relativities().to_frame()
    np.testing.assert_allclose(table["coef"], peer.params, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(table["stderr"], peer.bse, rtol=1e-6)
    np.testing.assert_allclose(model.covariance_, peer.cov_params(), rtol=1e-5, atol=1e-9)
    if family != "normal":
        low, high = np.exp(peer.conf_int()).T
        np.testing.assert_allclose(table["low"], low, rtol=1e-6)
        np.testing.assert_allclose(table["high"], high, rtol=1e-6)
        np.testing.assert_allclose(table["relativity"], np.exp(peer.params), rtol=1e-6)


def test_without_an_intercept():
    sm = pytest.importorskip("statsmodels.api")
    rng, X, _, mu = rows()
    y = rng.poisson(mu)
    model = eh.FairGLM("poisson", fairness_weight=0, alpha=0, fit_intercept=False).fit(X, y)
    peer = sm.GLM(y, X, family=sm.families.Poisson()).fit(cov_type="HC0", tol=1e-12)
    np.testing.assert_allclose(np.diag(model.covariance_)[1:] ** 0.5, peer.bse, rtol=1e-6)
    assert model.covariance_[0, 0] == 0


@pytest.mark.slow
def test_errors_of_fair_models_are_their_spread():
    coefs, errors = [], []
    for seed in range(60):
        rng, X, a, mu = rows(seed)
        model = eh.FairGLM("poisson", fairness_weight=1.0, alpha=1e-4)
        model.fit(X, rng.poisson(mu), sensitive_features=a)
        coefs.append(model.coef_)
        errors.append(np.diag(model.covariance_)[1:] ** 0.5)
    ratio = np.mean(errors, axis=0) / np.std(coefs, axis=0)
    assert ((ratio > 0.75) & (ratio < 1.35)).all()


def test_levels_have_names_and_show():
    rng, X, a, mu = rows()
    frame = pd.DataFrame(X, columns=["age", "power", "bonus"])
    frame["fuel"] = np.where(rng.random(len(X)) < 0.7, "gas", "diesel")
    frame.loc[::7, "age"] = np.nan
    model = eh.FairGLM("poisson", fairness_weight=1.0, group_features="attribute")
    result = model.fit(frame, rng.poisson(mu), sensitive_features=a).relativities(0.9)
    table = result.to_frame()
    assert table["factor"].tolist() == [
        "intercept", "age", "age", "power", "bonus", "fuel", "group", "group × score",
    ]  # fmt: skip
    assert table["level"][2] == "(missing)"
    assert table["level"][5] == "diesel (to gas)"
    assert table["level"][6] == "1"
    assert (table["low"] < table["high"]).all()
    text = str(result)
    assert "Relativities, poisson with log link" in text
    assert "diesel (to gas)" in text
    assert "90% interval" in text
    assert max(map(len, text.split("\n"))) <= 80
    assert "<table" in result._repr_html_()
    data = json.loads(json.dumps(result.to_dict()))
    assert data["format"] == "evenhand.relativities"
    deviance = result.deviance()
    assert deviance["model"].tolist() == ["best constant", "without fairness", "this model"]
    assert deviance["explained"][0] == pytest.approx(0, abs=1e-9)
    assert deviance["explained"][1] >= deviance["explained"][2] - 1e-9
    plain = eh.FairGLM("normal", fairness_weight=0).fit(X, mu).relativities()
    assert np.isnan(plain.to_frame()["relativity"]).all()
    assert "relativity" not in str(plain)


@pytest.mark.parametrize("family", ["poisson", "gamma", "tweedie", "normal"])
@pytest.mark.parametrize("fairness_weight", [0.0, 5.0])
def test_totals_agree_before_and_after(family, fairness_weight):
    rng, X, a, mu = rows()
    y, exposure = targets(rng, mu)[family], rng.uniform(0.2, 1.0, len(mu))
    given = {} if family == "normal" else {"exposure": exposure}
    weight = rng.uniform(0.5, 2.0, len(mu))
    model = eh.FairGLM(family, fairness_weight=fairness_weight, rebalance=True)
    model.fit(X, y, sensitive_features=a, sample_weight=weight, **given)
    assert weight @ model.predict(X, **given) == pytest.approx(weight @ y, rel=1e-9)
    assert model.totals_["this model"]["actual_to_expected"] == pytest.approx(1, rel=1e-9)
    other = eh.FairGLM(family, fairness_weight=fairness_weight)
    other.fit(X, y, sensitive_features=a, sample_weight=weight, **given)
    np.testing.assert_allclose(other.coef_, model.coef_, rtol=1e-9)
    assert other.unfairness_ == model.unfairness_
    if family in ("gamma", "tweedie"):
        assert abs(other.totals_["this model"]["actual_to_expected"] - 1) > 1e-3


def test_rebalance_on_a_path_and_in_a_file(tmp_path):
    rng, X, a, mu = rows(n=300)
    y = targets(rng, mu)["gamma"]
    path = eh.fairness_path(
        eh.FairGLM("gamma", rebalance=True), X, y, sensitive_features=a, fairness_weights=[2.0],
        cv=2, measure_with="logistic", random_state=0,
    )  # fmt: skip
    model = path.select(max_unfairness=1.0)
    assert model.predict(X).sum() == pytest.approx(y.sum(), rel=1e-9)
    loaded = eh.load(model.save(tmp_path / "m.json"))
    assert loaded.relativities().to_dict() == model.relativities().to_dict()


class TestErrors:
    def test_links_that_cannot_be_shifted(self):
        with pytest.raises(InputError, match="`rebalance` must be False with the link 'logit'"):
            eh.FairGLM("binomial", fairness_weight=0, rebalance=True).fit([[0.0], [1.0]], [0, 1])

    def test_more_columns_than_rows(self):
        rng = np.random.default_rng(0)
        model = eh.FairGLM(fairness_weight=0, alpha=1.0).fit(rng.normal(size=(20, 30)), np.ones(20))
        with pytest.raises(InputError, match="this one has no errors"):
            model.relativities()

    def test_confidence(self):
        rng, X, _, mu = rows(n=50)
        model = eh.FairGLM(fairness_weight=0).fit(X, rng.poisson(mu))
        with pytest.raises(InputError, match="confidence_level"):
            model.relativities(95)
