"""Numbers at the edge of what floats hold, and groups at the edge of what can be measured.

Units and shifts change nothing; what cannot be measured is refused with a reason or left open (NaN,
or an interval of all there is), never answered in silence. Warnings are errors here as everywhere.
"""

import re
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import evenhand as eh
from evenhand.data.groups import GroupWarning
from evenhand.measures.effective import EffectiveSizeWarning

N = 150
CRITERIA = ("independence", "separation", "sufficiency")


def rows(n=N, k=3):
    rng = np.random.default_rng(0)
    a = np.arange(n) % k
    y = rng.normal(size=n) + 0.4 * (a % 3)
    s = 0.6 * y + 0.7 * rng.normal(size=n) - 0.2 * (a % 3)
    return y, s, a


def audit(y, s, a, **more):
    result = eh.audit(y, s, sensitive_features=a, random_state=0, **more)
    assert str(result)
    assert len(result.to_frame())
    for measure in result.measures.values():
        low, high = measure.interval
        assert np.isnan(measure.value) or low <= high
        assert np.isnan(measure.value) or measure.value <= 1.0 + 1e-9
        assert np.isnan(measure.p_value) or 0.0 <= measure.p_value <= 1.0
    return result


def numbers(result):
    parts = (result.measures[name] for name in CRITERIA)
    return np.array([v for m in parts for v in (m.value, m.stderr, *m.interval, m.p_value)])


@pytest.fixture(scope="module")
def plain():
    y, s, a = rows()
    return numbers(audit(y, s, a))


@pytest.mark.parametrize("unit", [1e-300, 1e-12, 1e300])
def test_units_of_an_audit_do_not_matter(plain, unit):
    y, s, a = rows()
    np.testing.assert_allclose(numbers(audit(unit * y, unit * s, a)), plain, atol=1e-12)
    np.testing.assert_allclose(numbers(audit(unit * y, s, a)), plain, atol=1e-12)


def test_shifts_and_short_floats_of_an_audit_hardly_matter(plain):
    y, s, a = rows()
    np.testing.assert_allclose(numbers(audit(y + 1e9, s + 1e9, a)), plain, atol=1e-6)
    short = audit(y.astype(np.float32), s.astype(np.float32), a)
    np.testing.assert_allclose(numbers(short), plain, atol=1e-6)


@pytest.mark.parametrize("weight", [1e-300, 1e300])
def test_equal_weights_of_any_size_are_none(plain, weight):
    y, s, a = rows()
    found = numbers(audit(y, s, a, sample_weight=np.full(N, weight)))
    np.testing.assert_allclose(found, plain, atol=1e-9)


def test_numbers_below_the_smallest_normal_float():
    y, s, a = rows()
    audit(y * 5e-321, s, a)
    audit(y, s * 5e-321, a)


@pytest.mark.parametrize("estimator", ["lspc", "logistic"])
def test_the_smallest_floats_in_clusters_measure_the_same(estimator):
    """The reciprocal of their spread is beyond the largest float."""
    y, s, a = (np.round(v, 3) for v in rows(n=240))
    given = {"sensitive_features": a, "cluster": np.arange(len(a)) // 2, "estimator": estimator}
    for measure in (eh.independence, eh.separation, eh.sufficiency):
        plain = measure(y, s, **given)
        for units in ((1e-312, 1.0), (1.0, 1e-312), (1e-312, 1e-312)):
            found = measure(units[0] * y, units[1] * s, **given)
            assert found == pytest.approx(plain, abs=1e-6)


def test_sizes_that_are_too_far_apart():
    """Squares, sums and slopes beyond the largest float are not defined; nothing else is lost."""
    y, s, a = rows()
    exposure = np.linspace(0.5, 1.0, N)
    first = audit(y**2, s**2, a, exposure=exposure)
    plain, same_ratio = numbers(first), first.pricing.homogeneity["groups"]
    for unit in (1e150, 1e302):
        result = audit(y**2, unit * s**2, a, exposure=exposure)
        np.testing.assert_allclose(numbers(result), plain, atol=1e-9)
        assert result.pricing.homogeneity["groups"] == pytest.approx(same_ratio)
    assert np.isnan(audit(y**2, s**2, a, exposure=1e200 * exposure).r2)
    cells = eh.Cells.from_rows(1e-200 * y, 1e200 * s, sensitive_features=a, edges=16)
    assert cells.n == N
    with pytest.raises(
        ValueError, match=r"`frequency` must add up to fewer than 2.53 people, got inf"
    ):
        eh.independence(None, s, sensitive_features=a, frequency=np.full(N, 1e307))


def test_labels_of_any_size_and_of_no_order():
    y, s, a = rows()
    huge = np.array([10**400, 3, 2], dtype=object)[a]
    assert len(audit(y, s, huge).groups) == 3
    # A number of NumPy's and a tuple compare as arrays do.
    odd = np.empty(N, dtype=object)
    odd[:] = [(1, 2) if k == 2 else np.int64(k) for k in a]
    assert len(audit(y, s, odd).groups) == 3


def test_weights_over_twelve_decades_are_few_rows():
    y, s, a = rows(n=600)
    weight = 10.0 ** np.random.default_rng(1).uniform(-6, 6, len(y))
    with pytest.warns(EffectiveSizeWarning, match="600 rows count for"):
        result = audit(y, s, a, sample_weight=weight)
    assert result.independence.n_effective < 100


@pytest.mark.parametrize("case", ["y is s", "y is -s", "constant s", "constant y", "both"])
def test_degenerate_scores_and_targets(case):
    y, s, a = rows()
    one = np.ones(N)
    y, s = {"y is s": (s, s), "y is -s": (-s, s), "constant s": (y, one), "constant y": (one, s),
            "both": (one, one)}[case]  # fmt: skip
    result = audit(y, s, a)
    if case in ("constant s", "both"):
        assert abs(result.independence.value) < 0.02
    if case.startswith("y is"):
        # What one says the other says too: nothing is left to tell.
        assert abs(result.separation.value) < 0.02
        assert abs(result.sufficiency.value) < 0.02


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_scores_that_are_the_group(noise):
    y, _, a = rows()
    s = a + noise * np.random.default_rng(0).normal(size=N)
    result = audit(y, s, a)
    assert result.independence.value > 0.9
    assert result.independence.p_value < 1e-3


@pytest.mark.parametrize("k", [2, 10, 60])
def test_two_to_sixty_groups(k):
    y, s, a = rows(n=900, k=k)
    labels = np.array([f"g{code:02d}" for code in a])
    result = audit(y, s, labels)
    assert len(result.groups) == k
    assert -0.1 < result.independence.value < 0.2


@pytest.mark.parametrize("n", [3, 10])
def test_groups_of_a_few_rows(n):
    """Among 30,000, 99.99 % of them in one group: what is said of so few is unsure, and says so."""
    y, s, _ = rows(n=30_000)
    a = (np.arange(len(y)) < n).astype(int)
    found = audit(y, s, a).independence
    low, high = found.interval
    assert low == 0.0
    assert high == 1.0 or found.stderr > 0.02


def test_groups_of_one_and_of_all_rows():
    y, s, _ = rows()
    with pytest.raises(ValueError, match="group"):
        audit(y, s, np.zeros(N))
    with pytest.raises(ValueError, match="looks like an identifier"):
        audit(y, s, np.arange(N).astype(str))


@pytest.mark.parametrize("kind", ["scaled", "copied and constant", "more than rows"])
def test_controls_in_any_form(kind):
    rng = np.random.default_rng(2)
    y, s, a = rows()
    base = rng.normal(size=(N, 2))
    wide = {
        "scaled": base * [1e12, 1e-12] + [1e9, 0.0],
        "copied and constant": np.column_stack([base, base, np.ones(N)]),
        "more than rows": rng.normal(size=(N, N + 20)),
    }[kind]
    with warnings.catch_warnings():
        if kind == "more than rows":  # there is nobody to compare with, and it says so
            warnings.simplefilter("ignore", GroupWarning)
        result = audit(y, s, a, controls=wide)
    if kind != "more than rows":
        same = audit(y, s, a, controls=base)
        found, expected = (r.conditional.information.value for r in (result, same))
        assert found == pytest.approx(expected, abs=0.01)


# Models -------------------------------------------------------------------------------------------


MODELS = {
    "ridge": lambda **o: eh.FairRidge("separation", 1.0, **o),
    "lspc": lambda **o: eh.FairRidge("independence", 1.0, classifier="lspc", **o),
    "posterior": lambda **o: eh.FairRidge("independence", 1.0, group_features="posterior", **o),
    "gamma": lambda **o: eh.FairGLM("gamma", "independence", 1.0, **o),
    # Whose penalties are chosen in units of their own.
    "stack": lambda alpha: eh.FairPostprocessor(
        LinearRegression(), passthrough=True, cv=2, random_state=0
    ),
}


def features():
    rng = np.random.default_rng(3)
    a = np.arange(N) % 3
    X = rng.normal(size=(N, 3)) + a[:, None] * [1.0, 0.3, 0.0]
    return X, X @ [1.0, 0.5, -0.3] + rng.normal(size=N), a


def fit(kind, X, y, a, alpha=1e-3, **columns):
    """Predictions of the fitted model for its own rows."""
    model = MODELS[kind](alpha=alpha).fit(X, y, sensitive_features=a, **columns)
    scores = model.predict(X)
    assert np.isfinite(scores).all()
    assert np.isfinite(model.unfairness_)
    return scores


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    X, y, a = features()
    y = np.exp(0.3 * y) if request.param == "gamma" else y
    return request.param, X, y, a, fit(request.param, X, y, a)


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_units_of_a_fit_do_not_matter(fitted, unit):
    kind, X, y, a, before = fitted
    scores = fit(kind, X, unit * y, a)
    np.testing.assert_allclose(scores / unit, before, rtol=1e-6, atol=1e-6)
    if kind == "posterior":  # whose group features have the units of y alone
        return
    # The penalty is one on coefficients, whose units are those of y over those of X.
    scores = fit(kind, unit * X, y, a, alpha=1e-3 * unit**2)
    np.testing.assert_allclose(scores, before, rtol=1e-3, atol=1e-3)


def test_shifts_and_short_floats_of_a_fit_hardly_matter(fitted):
    kind, X, y, a, before = fitted
    np.testing.assert_allclose(fit(kind, X + 1e9, y, a), before, atol=1e-4)
    short = fit(kind, X.astype(np.float32), y.astype(np.float32), a)
    np.testing.assert_allclose(short, before, atol=1e-4)
    if kind != "gamma":
        np.testing.assert_allclose(fit(kind, X, y + 1e9, a) - 1e9, before, atol=1e-4)


def test_copied_and_constant_features(fitted):
    kind, X, y, a, before = fitted
    more = np.column_stack([X, np.full(N, 7.0), np.zeros(N)])
    np.testing.assert_allclose(fit(kind, more, y, a), before, atol=1e-6)
    if kind in ("posterior", "stack"):
        return
    # Two halves of a coefficient cost half the penalty.
    scores = fit(kind, np.column_stack([X, X]), y, a, alpha=2e-3)
    np.testing.assert_allclose(scores, before, atol=1e-3)


@pytest.mark.parametrize(
    "case", ["wide", "mixed units", "60 groups", "two rows", "weights", "leak"]
)
@pytest.mark.filterwarnings("ignore:The number of unique classes:UserWarning")
def test_fits_that_are_hard_are_finite(fitted, case):
    kind, X, y, a, _ = fitted
    rng = np.random.default_rng(4)
    columns = {}
    if case == "wide":
        X = np.column_stack([X, rng.normal(size=(N, N))])
    elif case == "mixed units":
        X = X * [1e-12, 1.0, 1e12]
    elif case == "60 groups":
        a = np.array([f"g{code}" for code in np.arange(N) % 60])
    elif case == "two rows":
        a = (np.arange(N) < 2).astype(int)
    elif case == "weights":
        columns["sample_weight"] = 10.0 ** rng.uniform(-6, 6, N)
    else:  # a feature is the group
        X = np.column_stack([X, a])
    fit(kind, X, y, a, **columns)


def test_targets_that_leave_nothing_to_fit():
    X, y, a = features()
    for target in (np.ones(N), 1e-300 * y):
        with pytest.raises(ValueError, match="`y` must vary"):
            eh.FairRidge().fit(X, target, sensitive_features=a)
    with pytest.raises(ValueError, match="`y_true` determines the group completely"):
        eh.FairRidge("separation").fit(X, y + 100.0 * a, sensitive_features=a)
    with pytest.raises(ValueError, match="`X` must be small enough to square"):
        eh.FairRidge().fit(1e200 * X, y, sensitive_features=a)


# The loss of networks -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "unit"),
    [("independence", 1e-38), ("separation", 1e-30), ("independence", 1e12), ("separation", 1e30)],
)
def test_units_of_the_loss_of_networks_do_not_matter(criterion, unit):
    torch = pytest.importorskip("torch")
    from evenhand.torch import FairnessLoss

    y, s, a = rows()
    groups = torch.tensor(a)

    def value_and_slope(scale):
        scores = torch.tensor(scale * s, dtype=torch.float32, requires_grad=True)
        target = torch.tensor(scale * y) if criterion == "separation" else None
        value = FairnessLoss(criterion, 3)(scores, groups, target)
        value.backward()
        return value.item(), scores.grad.double().numpy() * scale

    value, slope = value_and_slope(1.0)
    assert value > 1e-3
    found, steep = value_and_slope(unit)
    assert found == pytest.approx(value, rel=1e-3)
    np.testing.assert_allclose(steep, slope, atol=1e-3 * np.abs(slope).max())


def test_nothing_overflows_where_numbers_are_printed():
    y, s, a = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = audit(1e100 * y, 1e-100 * s, a)
        assert not re.search(r"\b(inf|nan)\b", str(result))
        assert "<" in result._repr_html_()
