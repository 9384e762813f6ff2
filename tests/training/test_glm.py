"""FairGLM: equal to other libraries without a fairness term, fair with one, bad input refused."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    GammaRegressor,
    PoissonRegressor,
    QuantileRegressor,
    TweedieRegressor,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh
from evenhand import FairGLM, SeparationWarning
from evenhand.measures.losses import Loss

LINKS = sm.families.links


def make(n=1500, d=4, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    X = rng.normal(size=(n, d))
    X[:, 0] += a
    X[:, 1] += 20.0
    eta = 0.4 * X[:, 0] - 0.3 * (X[:, 1] - 20.0) + 0.1 * X[:, 2] - 0.2
    mean = np.exp(eta)
    cost = rng.gamma(2.0, mean / 2.0) + 1e-6
    y = {
        "normal": eta + rng.normal(size=n),
        "poisson": rng.poisson(mean).astype(float),
        "gamma": cost,
        "inverse_gaussian": cost + 0.1,
        "tweedie": np.where(rng.uniform(size=n) < 0.3, 0.0, cost),
        "binomial": rng.binomial(8, 1.0 / (1.0 + np.exp(-eta))) / 8.0,
        "quantile": eta + rng.standard_t(3, size=n),
    }
    columns = {"exposure": rng.uniform(0.1, 2.0, n), "weight": rng.uniform(0.2, 3.0, n)}
    return X, y, a, columns


X, Y, A, COLUMNS = make()
EXPOSURE, WEIGHT = COLUMNS["exposure"], COLUMNS["weight"]
THEIRS = {"tol": 1e-9, "max_iter": 1000, "solver": "newton-cholesky"}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("alpha", [1e-3, 0.5])
@pytest.mark.parametrize(
    ("family", "theirs"),
    [
        ("poisson", PoissonRegressor(**THEIRS)),
        ("gamma", GammaRegressor(**THEIRS)),
        ("tweedie", TweedieRegressor(power=1.5, link="log", **THEIRS)),
    ],
)
def test_without_fairness_it_is_scikit_learns(family, theirs, alpha, weighted):
    w = WEIGHT if weighted else None
    other = clone(theirs).set_params(alpha=alpha).fit(X, Y[family], w)
    mine = FairGLM(family, fairness_weight=0, alpha=alpha).fit(X, Y[family], sample_weight=w)
    np.testing.assert_allclose(mine.coef_, other.coef_, atol=1e-6)
    np.testing.assert_allclose(mine.predict(X), other.predict(X), rtol=1e-5)
    assert mine.score(X, Y[family], w) == pytest.approx(other.score(X, Y[family], w), abs=1e-7)


@pytest.mark.parametrize(
    ("family", "link", "theirs", "columns"),
    [
        ("poisson", None, sm.families.Poisson(), {"exposure": EXPOSURE}),
        ("gamma", None, sm.families.Gamma(LINKS.Log()), {"exposure": EXPOSURE}),
        ("tweedie", None, sm.families.Tweedie(LINKS.Log(), 1.5), {"exposure": EXPOSURE}),
        ("poisson", None, sm.families.Poisson(), {"offset": np.log(EXPOSURE)}),
        ("inverse_gaussian", None, sm.families.InverseGaussian(LINKS.Log()), {}),
        ("binomial", None, sm.families.Binomial(), {}),
        ("normal", None, sm.families.Gaussian(), {}),
        ("normal", "log", sm.families.Gaussian(LINKS.Log()), {}),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_without_fairness_and_penalty_it_is_statsmodels(family, link, theirs, columns, weighted):
    y = Y["gamma"] if (family, link) == ("normal", "log") else Y[family]
    w = WEIGHT if weighted else None
    other = sm.GLM(y, sm.add_constant(X), theirs, var_weights=w, **columns).fit(tol=1e-12)
    mine = FairGLM(family, fairness_weight=0, alpha=0, link=link)
    mine.fit(X, y, sample_weight=w, **columns)
    np.testing.assert_allclose(mine.coef_, other.params[1:], atol=1e-6)
    total = mine.predict(X, **columns)
    np.testing.assert_allclose(total, other.fittedvalues, rtol=1e-5)
    if "exposure" in columns:
        np.testing.assert_allclose(mine.predict(X) * EXPOSURE, total, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:The InversePower link")
def test_canonical_link_of_gamma_is_statsmodels_and_stays_positive():
    rng = np.random.default_rng(3)
    Z = rng.uniform(size=(2000, 3))
    y = rng.gamma(2.0, 0.5 / (0.5 + Z @ [1.0, 0.5, 0.2])) + 1e-4
    other = sm.GLM(y, sm.add_constant(Z), sm.families.Gamma()).fit(tol=1e-12)
    mine = FairGLM("gamma", fairness_weight=0, alpha=0, link="canonical").fit(Z, y)
    np.testing.assert_allclose(mine.coef_, other.params[1:], atol=1e-5)
    far = mine.predict(np.full((1, 3), -10.0))
    assert far[0] == pytest.approx(mine.predict(Z).max())


def test_canonical_link_of_the_inverse_gaussian_has_no_slope_left():
    rng = np.random.default_rng(4)
    Z = rng.uniform(size=(2000, 2))
    y = rng.wald((0.5 + Z @ [1.0, 0.5]) ** -0.5, 2.0)
    mine = FairGLM("inverse gaussian", fairness_weight=0, alpha=0, link="canonical").fit(Z, y)
    eta = Z @ mine.coef_ + mine.intercept_
    _, slope = mine.loss_.evaluate(y, eta)
    np.testing.assert_allclose(sm.add_constant(Z).T @ slope / len(y), 0.0, atol=1e-6)


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_quantiles_are_close_to_scikit_learns(quantile):
    y = Y["quantile"]
    theirs = QuantileRegressor(quantile=quantile, alpha=0).fit(X, y)
    mine = FairGLM("quantile", fairness_weight=0, alpha=0, quantile=quantile).fit(X, y)
    gap = mine.predict(X) - theirs.predict(X)
    assert np.sqrt(np.mean(gap**2)) < 0.1 * y.std()
    assert np.mean(y <= mine.predict(X)) == pytest.approx(quantile, abs=0.01)


FAMILIES = ["poisson", "gamma", "tweedie", "binomial", "quantile", "normal"]


@pytest.mark.parametrize("score", ["mean", "link"])
@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_objective_is_at_a_minimum(family, criterion, score):
    """Against SciPy's BFGS on the same objective, written out anew."""
    y, n = Y[family], len(A)
    model = FairGLM(family, criterion, 2.0, 0.01, score=score).fit(
        X, y, sensitive_features=A, sample_weight=WEIGHT
    )
    w = WEIGHT / WEIGHT.mean()
    loss = model.loss_
    if family == "quantile":
        plain = FairGLM(family, fairness_weight=0, alpha=0.01).fit(X, y, sample_weight=WEIGHT)
        eta = X @ plain.coef_ + plain.intercept_
        loss = loss.fixed(y - eta, w, X.shape[1])
    null = np.average(loss.deviance(y, np.asarray(loss.null_mean(y, w))), weights=w)
    bound = eh.FairnessRegularizer(criterion).bind(y, sensitive_features=A, sample_weight=WEIGHT)
    saturated = loss.saturated(y)
    center = X.mean(axis=0)

    def f(p):
        eta = (X - center) @ p[1:] + p[0]
        value, slope = loss.evaluate(y, eta)
        s = loss.link.inverse(eta) if score == "mean" else eta
        term, part = bound.value_and_grad(s)
        part = 2.0 * part * (loss.link.slopes(eta)[0] if score == "mean" else 1.0)
        g = w * slope / (n * null) + part
        total = np.average(value + saturated, weights=w) / null
        total += 0.01 * p[1:] @ p[1:] / null + 2.0 * term
        return total, np.r_[g.sum(), (X - center).T @ g + 0.02 * p[1:] / null]

    start = np.r_[model.intercept_ + center @ model.coef_, model.coef_]
    value, _ = f(start)
    tolerance = 0.02 if family == "quantile" else 1e-6
    assert model.objective_ == pytest.approx(value, rel=tolerance)
    better = optimize.minimize(f, start, jac=True, method="BFGS", options={"gtol": 1e-7})
    assert value <= better.fun + tolerance * abs(value)


@pytest.mark.parametrize("family", [*FAMILIES, "inverse_gaussian"])
def test_a_larger_weight_is_fairer_and_positive_families_stay_positive(family):
    values = []
    for weight in (0.0, 1.0, 30.0, 1e4):
        model = FairGLM(family, "independence", weight).fit(X, Y[family], sensitive_features=A)
        values.append(model.unfairness_)
        if family in ("poisson", "gamma", "tweedie", "inverse_gaussian"):
            assert (model.predict(X) > 0).all()
            assert (model.predict(-1e4 * X) > 0).all()
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.02 * values[0]


@pytest.mark.parametrize("score", ["mean", "link"])
def test_at_a_large_weight_the_level_is_still_right(score):
    model = FairGLM("poisson", "independence", 1e4, score=score)
    model.fit(X, Y["poisson"], sensitive_features=A)
    assert model.predict(X).mean() == pytest.approx(Y["poisson"].mean(), rel=1e-4)


def test_the_fairness_of_a_path_matches_single_fits():
    fitter = FairGLM("poisson", "separation").path_fitter(X, Y["poisson"], sensitive_features=A)
    for weight in (0.0, 1.0, 5.0):
        single = FairGLM("poisson", "separation", weight).fit(X, Y["poisson"], sensitive_features=A)
        assert fitter(weight).unfairness_ == pytest.approx(single.unfairness_, abs=2e-3)


def test_rows_of_weight_two_are_rows_twice_and_frequencies_too():
    y, twice = Y["poisson"], np.r_[np.arange(len(A)), np.arange(0, len(A), 2)]
    count = np.where(np.arange(len(A)) % 2 == 0, 2, 1)
    # Splines are smoothed by as much as the rows are few, and weights are no rows.
    for columns, basis in (({"frequency": count}, "auto"), ({"sample_weight": count}, "quadratic")):
        long = FairGLM("poisson", "separation", 3.0, tol=1e-9, basis=basis)
        long.fit(X[twice], y[twice], sensitive_features=A[twice])
        short = clone(long).fit(X, y, sensitive_features=A, **columns)
        np.testing.assert_allclose(short.coef_, long.coef_, atol=1e-4)


def test_forms_of_the_features_agree():
    y = Y["poisson"]
    options = {"sensitive_features": A, "exposure": EXPOSURE}
    Z = np.where(np.abs(X) < 0.3, 0.0, X)
    expected = FairGLM("poisson", "independence", 2.0).fit(Z, y, **options).predict(Z)
    names = list("abcd")
    pandas, polars = pd.DataFrame(Z, columns=names), pl.DataFrame(Z, schema=names)
    for other in (sparse.csr_matrix(Z), sparse.csc_matrix(Z), np.asfortranarray(Z), pandas, polars):
        found = FairGLM("poisson", "independence", 2.0).fit(other, y, **options)
        np.testing.assert_allclose(found.predict(other), expected, rtol=2e-5)
    model = FairGLM("poisson").fit(pandas, y, **options)
    assert model.feature_names_in_.tolist() == names
    single = FairGLM("poisson", "independence", 2.0).fit(Z.astype(np.float32), y, **options)
    found = single.predict(Z.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=2e-3)


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(80, 200))
    y, a = rng.poisson(np.exp(0.3 * wide[:, 0])).astype(float), np.arange(80) % 2
    model = FairGLM("poisson", fairness_weight=0, alpha=0.1).fit(wide, y)
    theirs = PoissonRegressor(alpha=0.1, tol=1e-9, max_iter=1000).fit(wide, y)
    np.testing.assert_allclose(model.predict(wide), theirs.predict(wide), rtol=1e-4)
    assert FairGLM("poisson", fairness_weight=5).fit(wide, y, sensitive_features=a).n_iter_ < 100


@pytest.mark.parametrize("kind", ["posterior", "attribute"])
def test_group_features_buy_accuracy_at_the_same_fairness(kind):
    y = Y["gamma"]
    options = {"sensitive_features": A}
    plain = FairGLM("gamma", "independence", 30.0).fit(X, y, **options)
    more = FairGLM("gamma", "independence", 30.0, group_features=kind).fit(X, y, **options)
    assert len(more.group_coef_) == 2
    assert more.objective_ <= plain.objective_ + 1e-6
    extra = {"sensitive_features": A} if kind == "attribute" else {}
    assert more.score(X, y, **extra) > plain.score(X, y) - 1e-3
    again = pickle.loads(pickle.dumps(more))
    assert (again.predict(X, **extra) == more.predict(X, **extra)).all()


def test_missing_groups_proxies_and_many_groups():
    y = Y["poisson"]
    labels = np.array(["p", "q"], dtype=object)[A]
    labels[::7] = None
    model = FairGLM("poisson", "independence", 5.0).fit(X, y, sensitive_features=labels)
    assert 0 <= model.unfairness_ < 0.02
    proxy = eh.Proxy(np.column_stack([1.0 - 0.8 * A, 0.8 * A]), ["p", "q"])
    assert FairGLM("poisson").fit(X, y, sensitive_features=proxy).unfairness_ < 0.1
    many = np.random.default_rng(0).integers(0, 12, len(A)) + 12 * A
    found = FairGLM("poisson", "independence", 20.0).fit(X, y, sensitive_features=many.astype(str))
    plain = FairGLM("poisson", "independence", 0.0).fit(X, y, sensitive_features=many.astype(str))
    assert found.unfairness_ < 0.5 * plain.unfairness_


def test_given_is_what_separation_conditions_on():
    rng = np.random.default_rng(1)
    n = 4000
    a = rng.integers(0, 2, n)
    risk = rng.normal(size=n) + a
    Z = np.column_stack([risk + 0.1 * rng.normal(size=n), a + 0.3 * rng.normal(size=n)])
    y = rng.poisson(np.exp(0.5 * risk - 3.5)).astype(float)
    assert (y == 0).mean() > 0.8
    message = r"% of the targets are 0, so that separation given"
    with pytest.warns(SeparationWarning, match=message) as record:
        count = FairGLM("poisson", "separation", 5.0).fit(Z, y, sensitive_features=a)
    assert {warning.filename for warning in record} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fair = FairGLM("poisson", "separation", 5.0).fit(Z, y, sensitive_features=a, given=risk)
        FairGLM("poisson", "independence", 5.0).fit(Z, y, sensitive_features=a, given=risk)
    # Given the count all that differs by group goes; given the risk only what the risk is not.
    assert fair.score(Z, y) > count.score(Z, y)
    risks, counts = (
        eh.separation(risk, m.predict(Z), sensitive_features=a, estimator="logistic")
        for m in (fair, count)
    )
    assert risks < 0.2 * counts


@pytest.fixture(scope="module")
def path():
    return eh.fairness_path(
        FairGLM("poisson", "independence"), X, Y["poisson"], sensitive_features=A,
        exposure=EXPOSURE, cv=3, fairness_weights=[1.0, 20.0], measure_with="logistic",
        random_state=0,
    )  # fmt: skip


class TestPath:
    def test_accuracy_is_held_out_d2_of_totals(self, path):
        assert (path.accuracy.key, path.accuracy.symbol) == ("d2", "D²")
        assert "d2" in path.to_frame("pandas").columns
        assert "r2" not in path.to_frame("pandas").columns
        y, s = Y["poisson"], path.points[0].scores
        d = FairGLM("poisson").accuracy.loss
        null = y.sum() / EXPOSURE.sum() * EXPOSURE
        expected = 1 - d.deviance(y, s * EXPOSURE).sum() / d.deviance(y, null).sum()
        assert path.points[0].d2 == pytest.approx(expected, rel=1e-10)
        assert path.points[0].d2_stderr > 0
        with pytest.raises(AttributeError, match="r2"):
            _ = path.points[0].r2

    def test_selects_and_shows(self, path, tmp_path):
        limit = max(path.points[-1].independence.value * 1.01, 1e-3)
        model = path.select(max_unfairness=limit)
        assert isinstance(model, FairGLM)
        assert "D²" in str(path)
        assert "R²" not in str(path)
        page = path.to_html(tmp_path / "page.html").read_text()
        assert "of the deviance of the outcome (D²" in page
        assert "R²" not in page
        again = pickle.loads(pickle.dumps(path))
        assert again.points[0].d2 == path.points[0].d2
        assert path.select(min_accuracy=path.points[1].d2 - 1e-9) is not None

    def test_asks_for_the_right_accuracy(self, path):
        with pytest.raises(ValueError, match="`max_unfairness` or `min_accuracy` must be given"):
            path.select()

    def test_of_a_pipeline_with_offset_and_given(self):
        model = make_pipeline(StandardScaler(), FairGLM("poisson", "separation"))
        path = eh.fairness_path(
            model, X, Y["poisson"], sensitive_features=A, offset=np.log(EXPOSURE), given=X[:, 1],
            cv=3, fairness_weights=[5.0], measure_with="logistic", random_state=0,
        )  # fmt: skip
        s = path.points[1].scores
        found = eh.separation(X[:, 1], s, sensitive_features=A, estimator="logistic")
        assert path.points[1].separation.value == pytest.approx(found, rel=1e-9)

    def test_refuses_columns_that_the_estimator_does_not_take(self):
        with pytest.raises(ValueError, match="`exposure` must be None for FairRidge, whose fit"):
            eh.fairness_path(
                eh.FairRidge(), X, Y["poisson"], sensitive_features=A, exposure=EXPOSURE
            )
        with pytest.raises(ValueError, match=r"`exposure` must be positive, got 0 in row 0\. Hint"):
            eh.fairness_path(
                FairGLM("poisson"), X, Y["poisson"], sensitive_features=A, exposure=0 * EXPOSURE
            )


@pytest.mark.parametrize(
    ("parameters", "columns", "message"),
    [
        ({"family": "poison"}, {}, "`family` must be one of normal, poisson, gamma"),
        ({"score": "rate"}, {}, "`score` must be one of mean, link, got 'rate'"),
        ({"alpha": -1}, {}, "`alpha` must be a nonnegative number, got -1"),
        ({"family": "gamma"}, {}, "`y` must be positive for the gamma loss, got 0 in row"),
        ({}, {"exposure": np.r_[0.0, EXPOSURE[1:]]}, "`exposure` must be positive, got 0 in row 0"),
        ({}, {"exposure": EXPOSURE[1:]}, "`exposure` must have"),
        ({"family": "normal"}, {"exposure": EXPOSURE}, "`exposure` must be None for normal with"),
        ({}, {"offset": np.full(len(A), np.nan)}, "`offset` must be finite"),
        ({}, {"sensitive_features": None}, "`sensitive_features` must be given unless"),
        ({}, {"given": A[1:]}, "`given` must have"),
    ],
)
def test_bad_input(parameters, columns, message):
    columns = {"sensitive_features": A, **columns}
    with pytest.raises(ValueError, match=re.escape(message)):
        FairGLM(**parameters).fit(X, Y["poisson"], **columns)


def test_bad_input_of_predict_and_constant_targets():
    model = FairGLM("binomial").fit(X, Y["binomial"], sensitive_features=A)
    with pytest.raises(ValueError, match="`exposure` must be None for binomial"):
        model.predict(X, exposure=EXPOSURE)
    with pytest.raises(ValueError, match="`y` must vary"):
        FairGLM("poisson").fit(X, np.ones(len(A)), sensitive_features=A)


def test_separable_rows_without_a_penalty_warn():
    Z = np.linspace(-1, 1, 50)[:, None]
    with pytest.warns(ConvergenceWarning, match="The plain fit stopped after"):
        FairGLM("binomial", fairness_weight=0, alpha=0).fit(Z, (Z[:, 0] > 0).astype(float))


def test_parameters_and_the_method_of_the_same_name():
    model = FairGLM("gamma", score="link")
    assert model.get_params()["score"] == "link"
    assert clone(model).set_params(score="mean").get_params()["score"] == "mean"
    assert "score='link'" in repr(model)
    assert callable(model.score)
    assert FairGLM.score.__doc__.startswith("D²")


class Expectile(Loss):
    """Squares, those below counting q times as much as those above 1 − q: a loss of one's own."""

    name = "expectile"

    def __init__(self, q):
        self.q = q

    def _weights(self, y, mean):
        return np.where(y > mean, self.q, 1.0 - self.q)

    def deviance(self, y, mean):
        return self._weights(y, mean) * (y - mean) ** 2

    def evaluate(self, y, eta):
        return self.deviance(y, eta), 2.0 * self._weights(y, eta) * (eta - y)

    def curvature(self, y, eta):
        return 2.0 * self._weights(y, eta)

    def null_mean(self, y, weight):
        mean = np.average(y, weights=weight)
        for _ in range(100):
            w = self._weights(y, mean) * (1.0 if weight is None else weight)
            mean = np.average(y, weights=w)
        return float(mean)


def test_a_loss_of_ones_own():
    half = FairGLM(Expectile(0.5), "independence", 3.0).fit(X, Y["normal"], sensitive_features=A)
    ridge = eh.FairRidge("independence", 3.0).fit(X, Y["normal"], sensitive_features=A)
    np.testing.assert_allclose(half.predict(X), ridge.predict(X), atol=2e-3)
    high = FairGLM(Expectile(0.9), "independence", 3.0).fit(X, Y["normal"], sensitive_features=A)
    assert (high.predict(X) > half.predict(X)).mean() > 0.95
