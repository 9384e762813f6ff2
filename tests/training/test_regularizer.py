"""Gradients against differences and JAX, invariances, and scores that could break it."""

import numpy as np
import pytest
from grids import pairwise

import evenhand as eh
from evenhand.data.criteria import CRITERIA, SEPARATION
from evenhand.data.groups import resolve_groups
from evenhand.estimators.logistic import Logistic
from evenhand.measures.entropies import estimate_entropies
from evenhand.training.penalty import FairnessRegularizer
from rivals.algorithm1_jax import regularizer_value_and_grad

KINDS = ["plain", "weights", "proxy", "unknown"]
CLASSIFIERS = ["logistic", "lspc"]
BASES = ["linear", "quadratic", "degree3"]
MAPS = ["tanh", "raw"]

EVERYTHING = {
    "criterion": tuple(CRITERIA), "classifier": CLASSIFIERS, "basis": BASES, "score_map": MAPS
}  # fmt: skip
over_everything = pairwise(3, **EVERYTHING)


def bind(data, criterion, classifier="logistic", basis="quadratic", score_map="auto", kappa="auto"):
    regularizer = FairnessRegularizer(
        criterion, classifier, basis, kappa=kappa, score_map=score_map
    )
    return regularizer.bind(data.y, **data.fairness)


def central_difference(function, x, direction, step):
    """Two central differences combined, so that the error is of fourth order."""

    def slope(h):
        return (function(x + h * direction) - function(x - h * direction)) / (2 * h)

    return (4.0 * slope(step / 2) - slope(step)) / 3.0


@pairwise(3, **EVERYTHING, n_groups=[2, 3, 5], kind=KINDS)
def test_gradient_agrees_with_central_differences(
    criterion, classifier, basis, score_map, n_groups, kind, case
):
    data = case(kind, n_groups, n=60 * n_groups)
    check_gradient(data, bind(data, criterion, classifier, basis, score_map))


@pairwise(criterion=tuple(CRITERIA), n_groups=[2, 3, 5], kind=KINDS)
def test_gradient_on_splines_agrees_with_central_differences(criterion, n_groups, kind, case):
    data = case(kind, n_groups, n=60 * n_groups)
    check_gradient(data, bind(data, criterion, basis="spline"))


def check_gradient(data, bound):
    value, gradient = bound.value_and_grad(data.s)
    assert value == pytest.approx(bound.value(data.s), rel=1e-10, abs=1e-13)
    rng = np.random.default_rng(0)
    # Random directions see every row at once; unit vectors single rows, one of them unknown.
    n = len(data.s)
    unknown = np.flatnonzero(~data.groups.known)[:1] if data.groups.known is not None else []
    directions = [*rng.normal(size=(3, n)), *np.eye(n)[[0, n // 2, n - 1, *unknown]]]
    size = np.abs(gradient).max()
    for direction in directions:
        step = 1e-3 * data.s.std() / np.abs(direction).max()
        numeric = central_difference(bound.value, data.s, direction, step)
        exact = gradient @ direction
        scale = max(abs(exact), size)
        assert abs(numeric - exact) <= 1e-6 * scale
    assert (gradient[unknown] == 0).all()


# JAX compiles for each of these, not for each kind.
COMPILED = [("independence", "quadratic", 2), ("separation", "linear", 3),
            ("sufficiency", "quadratic", 3)]  # fmt: skip


@pytest.mark.parametrize(("criterion", "basis", "n_groups"), COMPILED)
@pytest.mark.parametrize("kind", KINDS)
def test_lspc_equals_automatic_differentiation(criterion, basis, n_groups, kind, case):
    # The same number of known rows in every kind, so that JAX compiles once for all of them.
    data = case(kind, n_groups, n={"plain": 96, "weights": 96, "proxy": 97, "unknown": 120}[kind])
    groups = data.groups
    assert groups.n_known == 96
    value, gradient = bind(data, criterion, "lspc", basis, kappa=1e-3).value_and_grad(data.s)
    expected, slope = regularizer_value_and_grad(
        groups.take_known(data.s), groups.take_known(data.y), groups.membership(),
        groups.weight, criterion, basis,
    )  # fmt: skip
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-12)
    known = groups.take_known(gradient)
    np.testing.assert_allclose(known, slope, rtol=1e-8, atol=1e-9 * np.abs(slope).max())


@over_everything
def test_units_do_not_matter(criterion, classifier, basis, score_map, case):
    data = case("weights", 3)
    value, gradient = bind(data, criterion, classifier, basis, score_map).value_and_grad(data.s)
    moved = data._replace(y=1e3 * data.y - 5e4)
    scaled, slope = bind(moved, criterion, classifier, basis, score_map).value_and_grad(
        -0.01 * data.s + 7.0
    )
    assert scaled == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(slope, gradient / -0.01, rtol=1e-5, atol=1e-6 * np.abs(slope).max())


@over_everything
def test_names_of_groups_do_not_matter(criterion, classifier, basis, score_map, case):
    data = case("weights", 3)
    value, gradient = bind(data, criterion, classifier, basis, score_map).value_and_grad(data.s)
    names = np.array(["z", "a", "m"])[data.fairness["sensitive_features"]]
    renamed = data._replace(fairness={**data.fairness, "sensitive_features": names})
    again, slope = bind(renamed, criterion, classifier, basis, score_map).value_and_grad(data.s)
    assert again == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(slope, gradient, rtol=1e-6, atol=1e-8 * np.abs(gradient).max())


@over_everything
def test_proxy_of_certain_groups_equals_the_groups(criterion, classifier, basis, score_map, case):
    data = case("weights", 3)
    value, gradient = bind(data, criterion, classifier, basis, score_map).value_and_grad(data.s)
    proxy = eh.Proxy(np.eye(3)[data.fairness["sensitive_features"]])
    soft = data._replace(fairness={**data.fairness, "sensitive_features": proxy})
    again, slope = bind(soft, criterion, classifier, basis, score_map).value_and_grad(data.s)
    assert again == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(slope, gradient, rtol=1e-6, atol=1e-8 * np.abs(gradient).max())


@over_everything
def test_unknown_rows_count_for_nothing(criterion, classifier, basis, score_map, case):
    data = case("unknown", 2)
    known = data.groups.known
    value, gradient = bind(data, criterion, classifier, basis, score_map).value_and_grad(data.s)
    part = data._replace(
        y=data.y[known], fairness={name: v[known] for name, v in data.fairness.items()}
    )
    again, slope = bind(part, criterion, classifier, basis, score_map).value_and_grad(data.s[known])
    assert again == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(gradient[known], slope, rtol=1e-7, atol=1e-12)
    assert (gradient[~known] == 0).all()


@over_everything
def test_scale_of_weights_does_not_matter_and_zero_is_absence(
    criterion, classifier, basis, score_map, case
):
    data = case("weights", 2)
    w = data.fairness["sample_weight"].copy()
    w[:20] = 0.0
    whole = data._replace(fairness={**data.fairness, "sample_weight": 7.0 * w})
    value, gradient = bind(whole, criterion, classifier, basis, score_map).value_and_grad(data.s)
    part = data._replace(
        y=data.y[20:],
        fairness={
            "sensitive_features": data.fairness["sensitive_features"][20:],
            "sample_weight": w[20:],
        },
    )
    again, slope = bind(part, criterion, classifier, basis, score_map).value_and_grad(data.s[20:])
    # The classifier's penalty is in units of rows, and the rows without weight are counted.
    assert value == pytest.approx(again, rel=1e-3)
    np.testing.assert_allclose(gradient[20:], slope, rtol=0.01, atol=1e-3 * np.abs(slope).max())
    assert (gradient[:20] == 0).all()


@over_everything
def test_constant_scores_are_fair(criterion, classifier, basis, score_map, case):
    data = case("weights", 3)
    bound = bind(data, criterion, classifier, basis, score_map)
    value, gradient = bound.value_and_grad(np.full(len(data.s), 3.3))
    assert gradient.tolist() == [0.0] * len(data.s)
    assert value == pytest.approx(bound.value(np.full(len(data.s), 3.3)), abs=1e-15)
    if criterion == "sufficiency":
        # A score that says nothing leaves all of Y's information about A.
        entropy = data.groups.entropy
        at_y = bind(data, "independence", classifier, basis, score_map).value(data.y)
        assert value == pytest.approx(at_y * entropy / bound.normalizer, rel=1e-9)
    else:
        assert value == pytest.approx(0.0, abs=1e-12)


@over_everything
def test_nearly_constant_scores_have_a_finite_gradient(
    criterion, classifier, basis, score_map, case
):
    data = case("plain", 2)
    value, gradient = bind(data, criterion, classifier, basis, score_map).value_and_grad(
        1.0 + 1e-9 * data.s
    )
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@over_everything
def test_constant_target(criterion, classifier, basis, score_map, case):
    """Separation then is independence, and sufficiency nothing."""
    data = case("weights", 2)
    flat = data._replace(y=np.full(len(data.y), 2.0))
    value, gradient = bind(flat, criterion, classifier, basis, score_map).value_and_grad(data.s)
    assert np.isfinite(gradient).all()
    if criterion == "sufficiency":
        assert value == pytest.approx(0.0, abs=1e-9)
    elif classifier == "logistic" or criterion == "independence":
        alone = bind(data, "independence", classifier, basis, score_map).value(data.s)
        assert value == pytest.approx(alone, rel=1e-7)


@pairwise(3, **EVERYTHING, n_groups=[2, 3])
def test_perfectly_separated_groups_are_finite(criterion, classifier, basis, score_map, n_groups):
    rng = np.random.default_rng(0)
    a = np.arange(90) % n_groups
    y = rng.normal(size=90)
    s = 10.0 * a + rng.uniform(size=90)
    bound = FairnessRegularizer(criterion, classifier, basis, score_map=score_map).bind(
        y, sensitive_features=a
    )
    value, gradient = bound.value_and_grad(s)
    assert np.isfinite(gradient).all()
    if criterion == "sufficiency":
        assert abs(value) < 0.05
    elif classifier == "logistic":
        assert 0.97 < value < 1.0


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_far_outliers_are_finite(criterion, classifier):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 2000)
    y, s = rng.standard_cauchy(size=(2, 2000))
    s[0], s[1] = 1e12, -1e9
    bound = FairnessRegularizer(criterion, classifier).bind(y, sensitive_features=a)
    value, gradient = bound.value_and_grad(s)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_evaluations_do_not_depend_on_those_before(case):
    """Warm starts change the path of the Newton steps, not where they end."""
    data = case("weights", 3)
    bound = bind(data, "sufficiency")
    far = bound.value_and_grad(np.sin(data.s))
    near = bound.value_and_grad(data.s)
    fresh = bind(data, "sufficiency").value_and_grad(data.s)
    assert near[0] == pytest.approx(fresh[0], rel=1e-10)
    np.testing.assert_allclose(near[1], fresh[1], rtol=1e-5, atol=1e-8 * np.abs(fresh[1]).max())
    again = bound.value_and_grad(np.sin(data.s))
    assert again[0] == pytest.approx(far[0], rel=1e-10)


def test_scores_are_not_changed(case):
    data = case("plain", 2)
    kept = data.s.copy()
    bind(data, "separation").value_and_grad(data.s)
    np.testing.assert_array_equal(data.s, kept)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_logistic_value_is_the_in_sample_measure(criterion, case):
    """Up to the penalty, and to H(A) in place of H(A|S) under sufficiency."""
    data = case("weights", 3, n=600)
    bound = bind(data, criterion, score_map="raw")
    measure = getattr(eh, criterion)
    nats = measure(
        data.y, data.s, **data.fairness, estimator=Logistic(losses="in-sample"), normalize=False
    )
    assert bound.value(data.s) * bound.normalizer == pytest.approx(nats, rel=1e-3)
    if criterion == "separation":
        found = estimate_entropies(
            [SEPARATION], {"s": data.s, "y": data.y}, data.groups, Logistic(losses="in-sample")
        )
        assert bound.normalizer == pytest.approx(found.mean[("y",)], rel=1e-3)
    else:
        assert bound.normalizer == data.groups.entropy


@pytest.mark.parametrize(
    "sensitive_features", [[0, 1] * 30, {"a": [0, 1] * 30, "b": [0, 0, 1] * 20}]
)
def test_independence_needs_no_target(sensitive_features):
    s = np.random.default_rng(0).normal(size=60)
    bound = FairnessRegularizer("independence").bind(None, sensitive_features=sensitive_features)
    with_target = FairnessRegularizer("independence").bind(s, sensitive_features=sensitive_features)
    assert bound.value(s) == with_target.value(s)


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"criterion": "parity"}, "`criterion` must be one of independence, separation, suff"),
            ({"criterion": ["separation"]}, r"`criterion` must be one of .*, got \['separation'\]"),
            ({"classifier": ["lspc"]}, r"`classifier` must be one of .*, got \['lspc'\]"),
            ({"basis": ["linear"]}, r"`basis` must be one of .*, got \['linear'\]"),
            ({"classifier": "svm"}, "`classifier` must be one of logistic, lspc, got 'svm'"),
            (
                {"basis": "cubic"},
                "`basis` must be one of auto, spline, linear, .*, got 'cubic'",
            ),
            ({"score_map": "asinh"}, "`score_map` must be one of auto, tanh, raw, got 'asinh'"),
            ({"score_map": ["raw"]}, r"`score_map` must be one of auto, tanh, raw, got \['raw'\]"),
            ({"kappa": -1.0}, "`kappa` must be a nonnegative number, 'auto' or .*, got -1.0"),
            ({"kappa": "best"}, "`kappa` must be a nonnegative number, 'auto' or .*, got 'best'"),
            ({"kappa": np.inf}, "`kappa` must be a nonnegative number, 'auto' or .*, got inf"),
            ({"kappa": True}, "`kappa` must be a nonnegative number, 'auto' or .*, got True"),
            ({"kappa": None}, "`kappa` must be a nonnegative number, 'auto' or .*, got None"),
            ({"kappa": 0}, "`kappa` must be positive with classifier='logistic'.*, got 0"),
            ({"kappa": "published"}, "got 'published'. Hint: that is for classifier='lspc'"),
            (
                {"classifier": "lspc", "kappa": "published", "score_map": "tanh"},
                "`score_map` must be 'raw' with kappa='published'.*, got 'tanh'",
            ),
        ],
    )
    def test_unknown_names(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            FairnessRegularizer(**arguments)

    @pytest.mark.parametrize(
        ("y", "a", "message"),
        [
            (None, [0, 1, 0, 1], "`y_true` must be given, got None"),
            ([0.0, 1.0, 2.0], [0, 1, 0, 1], "`sensitive_features` must have one entry per row"),
            ([0.0, 1.0, np.nan, 2.0], [0, 1, 0, 1], "`y_true` must be finite: 1 of 4 rows are NaN"),
            ([0.0, 1.0, np.inf, 2.0], [0, 1, 0, 1], r"are infinity, the first at row 2\. Hint"),
            (np.zeros((4, 2)), [0, 1, 0, 1], r"`y_true` must be 1-D, got shape \(4, 2\)\. Hint"),
            (["a"] * 4, [0, 1, 0, 1], "`y_true` must be numbers, got values of type .* 'a'"),
            ([0.0, 1.0, 2.0, 3.0], None, "`sensitive_features` must be given"),
            ([0.0, 1.0, 2.0, 3.0], [1, 1, 1, 1], "at least two groups"),
        ],
    )
    def test_bind(self, y, a, message):
        with pytest.raises(ValueError, match=message):
            FairnessRegularizer("separation").bind(y, sensitive_features=a)

    def test_nothing_at_all(self):
        with pytest.raises(ValueError, match="`sensitive_features` must be given"):
            FairnessRegularizer("independence").bind(None, sensitive_features=None)

    @pytest.mark.parametrize(
        ("s", "message"),
        [
            ([1.0, 2.0], "`y_pred` must have one entry per row: got 2 for 120"),
            (np.full(120, np.nan), "`y_pred` must be finite: 120 of 120 rows are NaN"),
            (np.r_[np.zeros(119), -np.inf], "`y_pred` must be finite: 1 of 120 rows are infinity"),
            (np.zeros((120, 2)), r"`y_pred` must be 1-D, got shape \(120, 2\)"),
            (None, "`y_pred` must be given, got None"),
            ([], "`y_pred` must have one entry per row: got 0 for 120"),
        ],
    )
    @pytest.mark.parametrize("method", ["value", "value_and_grad"])
    def test_scores(self, s, message, method, case):
        with pytest.raises(ValueError, match=message):
            getattr(bind(case("plain", 2), "separation"), method)(s)

    def test_target_that_gives_the_group_away(self):
        a = np.arange(200) % 2
        y = 5.0 * a + np.random.default_rng(0).uniform(size=200)
        with pytest.raises(ValueError, match=r"`y_true` determines the group.*Hint: drop the leak"):
            FairnessRegularizer("separation").bind(y, sensitive_features=a)


def test_weights_beside_groups_are_refused():
    groups = resolve_groups([0, 1, 0, 1], n_rows=4)
    regularizer = FairnessRegularizer("independence")
    with pytest.raises(ValueError, match="`sample_weight` must be None with Groups"):
        regularizer.bind(None, sensitive_features=groups, sample_weight=np.ones(4))


def test_repr_names_the_choices():
    found = repr(FairnessRegularizer("separation", "lspc", "linear"))
    assert found == "FairnessRegularizer('separation', 'lspc', 'linear')"
    found = repr(FairnessRegularizer("separation", "lspc", kappa=30.0, score_map="tanh"))
    expected = (
        "FairnessRegularizer('separation', 'lspc', 'quadratic', kappa=30.0, score_map='tanh')"
    )
    assert found == expected


@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
def test_a_rough_answer_is_close(criterion):
    """Warm starts a good way off, as along a search, where a step is saved."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 2000)
    y = rng.normal(size=2000) + a
    s = y + rng.normal(size=2000)
    exact, rough = (FairnessRegularizer(criterion).bind(y, sensitive_features=a) for _ in range(2))
    for t in (0.0, 0.1, 0.3):
        value, gradient = exact.evaluate(s + t * y, 2.0)
        found, slope = rough.evaluate(s + t * y, 2.0, rough=True)
        assert found == pytest.approx(value, rel=1e-6)
        assert np.linalg.norm(slope - gradient) < 1e-3 * np.linalg.norm(gradient)


def test_given_a_constant_score_the_target_says_all_it_says_by_itself():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 600)
    y = rng.normal(size=600) + a
    given, alone = (
        eh.FairnessRegularizer(criterion).bind(y, sensitive_features=a)
        for criterion in ("sufficiency", "independence")
    )
    assert given.value(np.zeros(600)) == pytest.approx(alone.value(y), rel=0.01)
    assert alone.value(np.zeros(600)) == 0.0


def test_a_bound_term_names_itself():
    bound = FairnessRegularizer("separation").bind(np.arange(50.0), sensitive_features=[0, 1] * 25)
    assert repr(bound).startswith("FairnessRegularizer(")
    assert repr(bound).endswith(".bind(50 rows)")
