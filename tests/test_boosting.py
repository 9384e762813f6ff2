"""Objectives of both libraries: native ones at weight 0, right gradients, fairer models."""

import copy

import numpy as np
import pytest
from scipy.stats import gamma as gamma_law
from scipy.stats import poisson as poisson_law

import evenhand as eh
from evenhand import boosting
from evenhand.boosting import LOSSES, derivatives
from evenhand.training.curvature import RowBound, diagonal_bound

LIBRARIES = ["xgboost", "lightgbm"]
NATIVE = {
    "xgboost": {"squared": "reg:squarederror", "poisson": "count:poisson", "gamma": "reg:gamma"},
    "lightgbm": {"squared": "regression", "poisson": "poisson", "gamma": "gamma"},
}


def rows(n=2000, loss="squared", seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 4)) + a[:, None] * [0.8, 0.0, 0.3, 0.0]
    f = 0.4 * X[:, 0] + 0.3 * np.sin(2 * X[:, 1]) + 0.2 * X[:, 2]
    if loss == "poisson":
        y = rng.poisson(np.exp(f)).astype(float)
    elif loss == "gamma":
        y = rng.gamma(2.0, np.exp(f) / 2.0) + 1e-3
    else:
        y = f + 0.5 * rng.normal(size=n)
    return X, y, a, rng.uniform(0.3, 2.0, n)


def bind(y, a, criterion="independence", **options):
    return eh.FairnessRegularizer(criterion).bind(y, sensitive_features=a, **options)


def train(library, objective, X, y, weight=None, rounds=20, custom=True, **params):
    """Raw scores of the rows of training, from an intercept of 0."""
    if library == "xgboost":
        import xgboost

        data = xgboost.DMatrix(X, y, weight=weight)
        params = {"nthread": 1, "max_depth": 3, "max_delta_step": 0.7, **params}
        if custom:
            model = xgboost.train({**params, "base_score": 0.0}, data, rounds, obj=objective)
        else:
            base = 0.0 if objective == "reg:squarederror" else 1.0
            params = {**params, "objective": objective, "base_score": base}
            model = xgboost.train(params, data, rounds)
        return model.predict(data, output_margin=True)
    import lightgbm

    params = {"num_threads": 1, "verbose": -1, "boost_from_average": False, **params}
    data = lightgbm.Dataset(X, y, weight=weight)
    model = lightgbm.train({**params, "objective": objective}, data, rounds)
    return model.predict(X, raw_score=True)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_weight_zero_is_the_native_objective(library, loss, weighted):
    X, y, a, w = rows(loss=loss)
    w = w if weighted else None
    objective = boosting.objective(bind(y, a), loss, library, fairness_weight=0.0)
    ours = train(library, objective, X, y, w)
    native = train(library, NATIVE[library][loss], X, y, w, custom=False)
    np.testing.assert_allclose(ours, native, rtol=1e-4, atol=1e-4)
    if library == "xgboost":  # LightGBM trains with a copy
        assert objective.round == 20


@pytest.mark.parametrize(
    ("loss", "law"),
    [
        ("squared", lambda y, m: -0.5 * (y - m) ** 2),
        ("poisson", lambda y, m: poisson_law.logpmf(y, np.exp(m))),
        ("gamma", lambda y, m: gamma_law.logpdf(y, 1.0, scale=np.exp(m))),
    ],
)
def test_losses_are_log_likelihoods(loss, law):
    rng = np.random.default_rng(0)
    y, m = rng.poisson(2.0, 50) + 1.0, 0.3 * rng.normal(size=50)
    gradient, curvature = derivatives(LOSSES[loss], y, m)
    h = 1e-5
    np.testing.assert_allclose(gradient, (law(y, m - h) - law(y, m + h)) / (2 * h), atol=1e-6)
    second = (2 * law(y, m) - law(y, m - 1e-3) - law(y, m + 1e-3)) / 1e-6
    assert (curvature >= second - 1e-4).all()
    mean = LOSSES[loss].link.inverse(m)
    best = np.log(y) if LOSSES[loss].link.name == "log" else y
    np.testing.assert_allclose(
        LOSSES[loss].deviance(y, mean), 2 * (law(y, best) - law(y, m)), atol=1e-9
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("criterion", ["independence", "separation"])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_that_of_loss_and_fairness(loss, criterion, weighted):
    """Against differences of ½Σω·deviance + λ·½Σω·(null deviance)·Ĩ."""
    _, y, a, w = rows(300, loss)
    weight = w if weighted else None
    bound = bind(y, a, criterion, sample_weight=weight)
    objective = boosting.objective(bound, loss, fairness_weight=2.0, plain_rounds=0)
    rng = np.random.default_rng(1)
    m = 0.3 * rng.normal(size=300) + 0.2 * a
    gradient, curvature = objective(y, m, weight)
    found, omega = LOSSES[loss], np.ones(300) if weight is None else weight

    def total(m):
        null = found.deviance(y, np.asarray(np.average(y, weights=omega)))
        whole = found.deviance(y, found.link.inverse(m)) @ omega
        return 0.5 * whole + 2.0 * 0.5 * (omega @ null) * bound.value(found.link.inverse(m))

    for direction in rng.normal(size=(4, 300)):
        numeric = (total(m + 1e-4 * direction) - total(m - 1e-4 * direction)) / 2e-4
        assert numeric == pytest.approx(gradient @ direction, rel=1e-3, abs=1e-3)
    assert (curvature > 0).all()
    assert objective.value == pytest.approx(bound.value(found.link.inverse(m)), rel=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_training_is_fairer_with_a_larger_weight(library, loss):
    X, y, a, _ = rows(loss=loss)
    bound = bind(y, a)
    values = []
    for weight in (0.0, 1.0, 100.0):
        objective = boosting.objective(bound, loss, library, fairness_weight=weight)
        margin = train(library, objective, X, y, rounds=100)
        values.append(bound.value(LOSSES[loss].link.inverse(margin.astype(float))))
    assert values[1] < 0.9 * values[0]
    assert values[2] < 0.7 * values[0]
    assert np.isfinite(margin).all()


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_bound_keeps_training_stable(library):
    """With the curvature of the loss alone it diverges at a weight of 100."""
    X, y, a, _ = rows()
    bound = bind(y, a)
    objective = boosting.objective(bound, library=library, fairness_weight=100.0)

    def loose(scores, data):
        gradient, curvature = objective(scores, data)
        return gradient, np.ones_like(curvature)

    # Twelve splines bend more than a quadratic, so steps are shorter and rounds more.
    options = {"rounds": 100, "max_delta_step": 0.0}
    errors = []
    for each in (objective, loose):
        scores = train(library, each, X, y, **options).astype(float)
        errors.append(np.mean((y - scores) ** 2) / y.var())
        if each is objective:
            assert bound.value(scores) < 0.05
    assert errors[0] < 1.0 < errors[1]


def test_learning_rate_scales_the_bound_alone():
    _, y, a, _ = rows(300)
    bars = {}
    for rate in (0.1, 0.2):
        objective = boosting.objective(bind(y, a), plain_rounds=0, learning_rate=rate)
        bars[rate] = objective(y, 0.5 * y)
    np.testing.assert_allclose(bars[0.2][1] - 1.0, 2.0 * (bars[0.1][1] - 1.0), rtol=1e-9)
    np.testing.assert_allclose(bars[0.2][0], bars[0.1][0])
    assert "learning_rate=0.2" in repr(objective)
    assert boosting.objective(bind(y, a), library="lightgbm").learning_rate == 0.1


def test_plain_rounds_come_first_and_again_in_the_next_training():
    X, y, a, _ = rows(500)
    objective = boosting.objective(bind(y, a), plain_rounds=5)
    plain = boosting.objective(bind(y, a), fairness_weight=0.0)
    for _ in range(2):
        np.testing.assert_array_equal(
            train("xgboost", objective, X, y, rounds=5), train("xgboost", plain, X, y, rounds=5)
        )
        assert np.isnan(objective.value)
    train("xgboost", objective, X, y, rounds=6)
    assert objective.round == 6
    assert objective.value > 0
    objective.reset()
    assert objective.round == 0


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("weighted", [False, True])
def test_regressors_of_scikit_learn(library, weighted):
    X, y, a, w = rows(800)
    w = w if weighted else None
    objective = boosting.objective(bind(y, a, sample_weight=w), library=library)
    expected = train(library, objective, X, y, w, rounds=15)
    if library == "xgboost":
        from xgboost import XGBRegressor

        model = XGBRegressor(
            objective=copy.deepcopy(objective), n_estimators=15, max_depth=3, max_delta_step=0.7,
            base_score=0.0, n_jobs=1,
        )  # fmt: skip
    else:
        from lightgbm import LGBMRegressor

        model = LGBMRegressor(
            objective=copy.deepcopy(objective), n_estimators=15, n_jobs=1, verbose=-1
        )
    model.fit(X, y, sample_weight=w)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
@pytest.mark.parametrize("kind", ["plain", "weights", "unknown"])
def test_row_bound_is_the_diagonal_one(criterion, kind, case):
    data = case(kind, 3, n=2000)
    bound = eh.FairnessRegularizer(criterion).bind(data.y, **data.fairness)
    value, gradient, bar = RowBound(bound).evaluate(data.s, 2.0)
    expected = bound.value_and_grad(data.s)
    exact = 2.0 * diagonal_bound(bound.simplified().value_grad_curvature(data.s)[2])
    assert value == pytest.approx(2.0 * expected[0], rel=1e-6)
    np.testing.assert_allclose(gradient, 2.0 * expected[1], rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(bar, exact, rtol=1e-6)
    constant = RowBound(bound).evaluate(np.ones(2000))
    assert not constant[1].any()
    assert not constant[2].any()


def test_copies_share_the_rows():
    """LightGBM copies its parameters, and scikit-learn's clones theirs."""
    _, y, a, _ = rows(100)
    objective = boosting.objective(bind(y, a), plain_rounds=0)
    other = copy.deepcopy(objective)
    assert other.bound is objective.bound
    objective(y, y)
    assert (objective.round, other.round) == (1, 0)


def test_rows_for_several_people():
    X, y, a, _ = rows(300)
    bound = bind(y, a, frequency=np.arange(300) % 3)
    objective = boosting.objective(bound, fairness_weight=1.0, plain_rounds=2)
    assert np.isfinite(train("xgboost", objective, X, y, rounds=4)).all()


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"loss": "huber"}, "`loss` must be one of squared, poisson, gamma, got 'huber'. Hint"),
            ({"loss": None}, "`loss` must be one of squared, poisson, gamma, got None"),
            ({"library": "catboost"}, "`library` must be one of xgboost, lightgbm, got 'catboost'"),
            ({"library": ["xgboost"]}, r"`library` must be one of .*, got \['xgboost'\]"),
            ({"fairness_weight": -1}, "`fairness_weight` must be a nonnegative number, got -1"),
            ({"fairness_weight": True}, "`fairness_weight` must be a nonnegative number, got True"),
            ({"plain_rounds": -1}, "`plain_rounds` must be a nonnegative integer, got -1"),
            ({"plain_rounds": 1.5}, "`plain_rounds` must be a nonnegative integer, got 1.5"),
            ({"learning_rate": 0.0}, "`learning_rate` must be positive and at most 1, got 0.0. Hi"),
            ({"learning_rate": 3}, "`learning_rate` must be positive and at most 1, got 3"),
            ({"learning_rate": "auto"}, "`learning_rate` must be positive and at most 1, got 'a"),
        ],
    )
    def test_arguments(self, arguments, message):
        _, y, a, _ = rows(50)
        with pytest.raises(ValueError, match=message):
            boosting.objective(bind(y, a), **arguments)

    def test_a_term_that_is_not_bound(self):
        with pytest.raises(
            ValueError, match=r"`bound` must be a term that is bound.*Hint: eh.Fair"
        ):
            boosting.objective(eh.FairnessRegularizer())

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_other_rows(self, library):
        X, y, a, _ = rows(100)
        objective = boosting.objective(bind(y[:90], a[:90]), library=library)
        with pytest.raises(ValueError, match=r"must have the 90 rows of `bound`, got 100\. Hint"):
            train(library, objective, X, y, rounds=1)

    @pytest.mark.parametrize(
        ("loss", "message"),
        [
            ("poisson", "the target must be nonnegative with loss='poisson', got -1. Hint"),
            ("gamma", "the target must be positive with loss='gamma', got -1. Hint"),
        ],
    )
    def test_targets(self, loss, message):
        _, y, a, _ = rows(100)
        y = np.abs(y)
        y[3] = -1.0
        with pytest.raises(ValueError, match=message):
            boosting.objective(bind(y, a), loss)(y, np.zeros(100))

    def test_scores_that_are_not_finite(self):
        _, y, a, _ = rows(100)
        objective = boosting.objective(bind(y, a), plain_rounds=0)
        with pytest.raises(ValueError, match=r"scores in training are no longer finite. Hint"):
            objective(y, np.r_[y[:-1], np.nan])

    @pytest.mark.parametrize("library", LIBRARIES)
    def test_missing_extra(self, library, monkeypatch):
        _, y, a, _ = rows(100)
        monkeypatch.setattr("evenhand.boosting.find_spec", lambda name: None)
        with pytest.raises(ImportError, match=rf"needs {library}.*pip install 'evenhand\[boosting"):
            boosting.objective(bind(y, a), library=library)


def test_a_bound_that_is_kept_follows_the_spread(case, monkeypatch):
    monkeypatch.setattr("evenhand.training.curvature.MANY_ROWS", 1000)
    data = case("plain", 2, n=6000)
    bound = eh.FairnessRegularizer("independence").bind(data.y, **data.fairness)
    kept, fresh = (RowBound(bound, refresh=r) for r in (3, 1))
    kept.evaluate(data.s)
    for _ in range(2):
        np.testing.assert_allclose(
            kept.evaluate(0.5 * data.s)[2], fresh.evaluate(0.5 * data.s)[2], rtol=1e-4
        )
    # Classifiers that start from different weights end alike to float32.
    np.testing.assert_allclose(kept.evaluate(data.y)[2], fresh.evaluate(data.y)[2], rtol=1e-6)
    kept.forget()
    np.testing.assert_allclose(kept.evaluate(data.s)[2], fresh.evaluate(data.s)[2], rtol=1e-6)
