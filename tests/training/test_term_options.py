"""The penalty κ and the map of the score: defaults, units, gradients, and the published method."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

import evenhand as eh
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.estimators.lspc import LSPC
from evenhand.training.penalty import LIMIT, LSPC_SHARE

OPTIONS = [
    {"classifier": "logistic"},
    {"classifier": "logistic", "score_map": "raw", "kappa": 20.0},
    {"classifier": "lspc"},
    {"classifier": "lspc", "score_map": "raw"},
    {"classifier": "lspc", "score_map": "tanh", "kappa": 5.0},
]


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, 400)
    X = rng.standard_t(4, size=(400, 4)) + a[:, None] * [1.0, 0.0, 0.3, 0.0]
    X[:, 1] *= 1.0 + 0.5 * a
    y = X @ [1.0, 0.5, 0.3, 0.2] + rng.normal(size=400)
    return X, y, a, rng


def rough_scores(n_rows, n_groups):
    rng = np.random.default_rng(1)
    a = np.r_[np.arange(n_groups), rng.integers(0, n_groups, n_rows - n_groups)]
    y = rng.normal(size=n_rows) + 0.3 * a / n_groups
    return y + rng.standard_t(3, size=n_rows) + 0.5 * a / n_groups, y, a, rng


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_with_forty_groups(criterion, options, weighted):
    s, y, a, rng = rough_scores(3000, 40)
    weight = rng.exponential(size=3000) + 0.1 if weighted else None
    regularizer = eh.FairnessRegularizer(criterion, **options)
    bound = regularizer.bind(y, sensitive_features=a, sample_weight=weight)
    _, gradient = bound.value_and_grad(s)
    for direction in (rng.normal(size=3000), np.eye(3000)[7]):
        step = 1e-3 / np.abs(direction).max()
        slopes = [
            (bound.value(s + h * direction) - bound.value(s - h * direction)) / (2.0 * h)
            for h in (step / 2, step)
        ]
        numeric = (4.0 * slopes[0] - slopes[1]) / 3.0
        assert abs(numeric - gradient @ direction) <= 1e-6 * np.abs(gradient).max() * 40


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("weighted", [False, True])
def test_published_gradient(criterion, weighted):
    s, y, a, rng = rough_scores(300, 3)
    weight = rng.exponential(size=300) + 0.1 if weighted else None
    regularizer = eh.FairnessRegularizer(criterion, "lspc", kappa="published")
    bound = regularizer.bind(0.2 * y + 0.3, sensitive_features=a, sample_weight=weight)
    _, gradient = bound.value_and_grad(0.2 * s + 0.3)
    direction = rng.normal(size=300)
    step = 1e-5
    ends = [bound.value(0.2 * s + 0.3 + h * direction) for h in (step, -step)]
    assert (ends[0] - ends[1]) / (2.0 * step) == pytest.approx(gradient @ direction, rel=1e-5)


def test_published_value_is_that_of_plain_matrices():
    s, y, a, _ = rough_scores(300, 3)
    s, y = 0.2 * s + 0.3, 0.2 * y + 0.3
    regularizer = eh.FairnessRegularizer("separation", "lspc", kappa="published")
    bound = regularizer.bind(y, sensitive_features=a)
    assert bound.kappa == 1.0
    least = plain_loss(a, 1.0, False, y)
    assert bound.normalizer == pytest.approx(least, rel=1e-10)
    assert bound.value(s) == pytest.approx(1.0 - plain_loss(a, 1.0, False, s, y) / least, rel=1e-9)


def test_auto_penalty():
    _, y, a, _ = rough_scores(300, 3)
    lspc = eh.FairnessRegularizer("independence", "lspc").bind(y, sensitive_features=a)
    assert lspc.kappa == LSPC_SHARE * 300
    logistic = eh.FairnessRegularizer("independence").bind(y, sensitive_features=a)
    assert logistic.kappa == 1e-3
    # A share of the rows means the same to part of them, and so does a number on a part.
    some = np.arange(0, 300, 3)
    assert lspc.take(some).kappa == pytest.approx(LSPC_SHARE * 100)
    fixed = eh.FairnessRegularizer("independence", "lspc", kappa=30.0)
    bound = fixed.bind(y, sensitive_features=a)
    assert bound.take(some).kappa == pytest.approx(10.0)
    published = eh.FairnessRegularizer("independence", "lspc", kappa="published")
    assert published.bind(y, sensitive_features=a).take(some).kappa == 1.0


def plain_loss(a, kappa, free, *columns):
    """−mean log ρ of least squares on the quadratic basis, by plain matrices."""
    z = np.column_stack(columns)
    products = [z[:, i] * z[:, j] for i in range(z.shape[1]) for j in range(i, z.shape[1])]
    phi = np.column_stack([np.ones(len(z)), z, *products])
    penalty = kappa * np.eye(phi.shape[1])
    penalty[0, 0] *= not free
    w = np.linalg.solve(phi.T @ phi + penalty, phi.T @ np.eye(a.max() + 1)[a])
    rho = np.logaddexp(0.0, 30.0 * phi @ w)
    return -np.log(rho[np.arange(len(a)), a] / rho.sum(axis=1)).mean()


def test_lspc_under_auto_and_by_number():
    s, y, a, _ = rough_scores(300, 3)
    z, v = ((x - x.mean()) / x.std() for x in (s, y))
    t, u = (LIMIT * np.tanh(x / LIMIT) for x in (z, v))
    bound = eh.FairnessRegularizer("separation", "lspc").bind(y, sensitive_features=a)
    least = plain_loss(a, LSPC_SHARE * 300, True, u)
    assert bound.normalizer == pytest.approx(least, rel=1e-9)
    expected = 1.0 - plain_loss(a, LSPC_SHARE * 300, True, t, u) / least
    assert bound.value(s) == pytest.approx(expected, rel=1e-8)
    bound = eh.FairnessRegularizer("separation", "lspc", kappa=40.0).bind(y, sensitive_features=a)
    least = plain_loss(a, 40.0, False, v)
    assert bound.value(s) == pytest.approx(1.0 - plain_loss(a, 40.0, False, z, v) / least, rel=1e-8)
    alone = eh.FairnessRegularizer("independence", "lspc", kappa=40.0)
    losses = LSPC(kappa=40.0).row_losses({"s": s}, [("s",)], resolve_groups(a, n_rows=300))
    value = alone.bind(y, sensitive_features=a)
    entropy = value.groups.entropy
    assert value.value(s) == pytest.approx(1.0 - losses["s",].value.mean() / entropy, rel=1e-9)


def test_rows_without_a_group_are_not_counted():
    _, y, a, _ = rough_scores(300, 2)
    named = np.array(["a", "b"], dtype=object)[a]
    named[:100] = None
    bound = eh.FairnessRegularizer("independence", "lspc").bind(y, sensitive_features=named)
    assert bound.kappa == LSPC_SHARE * 200


@pytest.mark.parametrize("criterion", CRITERIA)
def test_bounded_scores_are_the_tanh_of_the_standardized_ones(criterion):
    """The bounded term is the raw one of mapped columns, but for units, which κ → 0 forgets."""
    s, y, a, _ = rough_scores(500, 2)

    def mapped(x):
        return LIMIT * np.tanh((x - x.mean()) / x.std() / LIMIT)

    bounded = eh.FairnessRegularizer(criterion, basis="quadratic", kappa=1e-9)
    raw = eh.FairnessRegularizer(criterion, kappa=1e-9, score_map="raw")
    expected = raw.bind(mapped(y), sensitive_features=a).value(mapped(s))
    assert bounded.bind(y, sensitive_features=a).value(s) == pytest.approx(expected, rel=1e-6)


def test_a_far_score_counts_little_when_bounded():
    s, y, a, _ = rough_scores(2000, 2)
    values = {}
    for score_map in ("tanh", "raw"):
        regularizer = eh.FairnessRegularizer("independence", score_map=score_map)
        bound = regularizer.bind(y, sensitive_features=a)
        moved = s.copy()
        moved[np.argmax(s)] += 20.0 * s.std()
        values[score_map] = abs(bound.value(moved) / bound.value(s) - 1.0)
    assert values["tanh"] < 0.5 * values["raw"]


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("far", [1e9, -1e300])
def test_one_far_outlier(criterion, options, far):
    s, y, a, _ = rough_scores(2000, 2)
    s[5] = far
    bound = eh.FairnessRegularizer(criterion, **options).bind(y, sensitive_features=a)
    value, gradient = bound.value_and_grad(s)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("criterion", ["independence", "separation"])
@pytest.mark.parametrize("options", OPTIONS)
def test_units_of_the_target_give_the_same_model(criterion, options, data):
    X, y, a, _ = data
    one = eh.FairRidge(criterion, 3.0, **options).fit(X, y, sensitive_features=a)
    for unit in (1e-6, 1e6):
        other = eh.FairRidge(criterion, 3.0, **options).fit(X, unit * y, sensitive_features=a)
        # The path of a search depends on rounding, which units change.
        np.testing.assert_allclose(other.coef_ / unit, one.coef_, rtol=1e-5, atol=1e-6)
        assert other.unfairness_ == pytest.approx(one.unfairness_, rel=1e-5, abs=1e-9)


def test_the_published_method_depends_on_units(data):
    X, y, a, _ = data
    options = {"classifier": "lspc", "kappa": "published"}
    one, other = (
        eh.FairRidge(fairness_weight=3.0, **options).fit(X, unit * y, sensitive_features=a)
        for unit in (1.0, 1e-2)
    )
    assert np.abs(100.0 * other.coef_ - one.coef_).max() > 0.05 * np.abs(one.coef_).max()


@pytest.mark.parametrize("far", [0.0, 50.0])
def test_the_published_fit_is_a_minimum(far, data):
    """With the intercept in the score, wherever the features lie."""
    X, y, a, rng = data
    X, y = X + far, 0.1 * y
    weight = rng.exponential(size=len(y)) + 0.1
    model = eh.FairRidge(
        "separation", 2.0, classifier="lspc", kappa="published", tol=1e-9, max_iter=1000
    )
    model.fit(X, y, sensitive_features=a, sample_weight=weight)
    regularizer = eh.FairnessRegularizer("separation", "lspc", kappa="published")
    bound = regularizer.bind(y, sensitive_features=a, sample_weight=weight)
    assert model.unfairness_ == pytest.approx(bound.value(model.predict(X)), rel=1e-8)
    w = weight / weight.mean()
    center = np.average(X, axis=0, weights=w)
    mean = float(np.average(y, weights=w))
    variance = float(np.average((y - mean) ** 2, weights=w))

    def objective(theta):
        s = (X - center) @ theta + mean
        ridge = (np.mean(w * (y - s) ** 2) + model.alpha * theta @ theta) / variance
        return ridge + 2.0 * bound.value(s)

    assert objective(model.coef_) == pytest.approx(model.objective_, rel=1e-9)
    slope = approx_fprime(model.coef_, objective, 1e-7)
    start = approx_fprime(0.9 * model.coef_, objective, 1e-7)
    assert np.linalg.norm(slope) < 1e-3 * np.linalg.norm(start)


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: eh.FairRidge(fairness_weight=3.0, **o),
        lambda **o: eh.FairPostprocessor(
            eh.FairRidge(fairness_weight=0), fairness_weight=3.0, random_state=0, **o
        ),
    ],
)
def test_estimators_hand_the_options_on(make, data):
    X, y, a, _ = data
    predictions = {}
    for name, options in {
        "default": {}, "same": {"score_map": "tanh", "kappa": 1e-3}, "raw": {"score_map": "raw"},
        "kappa": {"kappa": 200.0},
    }.items():  # fmt: skip
        model = make(**options)
        assert {**model.get_params(deep=False), **options} == model.get_params(deep=False)
        predictions[name] = model.fit(X, y, sensitive_features=a).predict(X)
    np.testing.assert_array_equal(predictions["default"], predictions["same"])
    for name in ("raw", "kappa"):
        assert np.abs(predictions[name] - predictions["default"]).max() > 1e-3


def test_cross_validation_hands_the_options_on(data):
    X, y, a, _ = data
    options = {"classifier": "lspc", "kappa": 50.0, "score_map": "tanh"}
    path = eh.fairness_path(
        eh.FairRidge(**options), X, y, sensitive_features=a, fairness_weights=[1.0], cv=2,
        measure_with="logistic", random_state=0,
    )  # fmt: skip
    assert options.items() <= path.select(max_unfairness=1.0).get_params().items()


def test_estimators_refuse_what_the_regularizer_refuses(data):
    X, y, a, _ = data
    for options, message in (
        ({"kappa": -1}, "`kappa` must be"),
        ({"score_map": "log"}, "`score_map` must be"),
    ):
        with pytest.raises(ValueError, match=message):
            eh.FairRidge(**options).fit(X, y, sensitive_features=a)
