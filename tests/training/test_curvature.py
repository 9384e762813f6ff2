"""The factor of the curvature against Torch and differences, and the bounds it is used for."""

import numpy as np
import pytest
from grids import pairwise

import evenhand as eh
from evenhand.data.criteria import CRITERIA
from evenhand.kernels import numpy_passes
from evenhand.training.curvature import diagonal_bound
from evenhand.training.penalty import LIMIT

MAPS = ["tanh", "raw"]
CLASSIFIERS = ["logistic", "lspc"]


def bind(data, criterion, **options):
    return eh.FairnessRegularizer(criterion, **options).bind(data.y, **data.fairness)


def hessian(bound, s):
    """Central differences of the gradient, of fourth order."""
    step, out = 2e-4 * s.std(), np.empty((len(s), len(s)))
    for i, unit in enumerate(np.eye(len(s)) * step):
        near, far = (
            bound.value_and_grad(s + k * unit)[1] - bound.value_and_grad(s - k * unit)[1]
            for k in (1.0, 2.0)
        )
        out[i] = (8.0 * near - far) / (12.0 * step)
    return 0.5 * (out + out.T)


def largest(matrix):
    return np.linalg.eigvalsh(matrix)[-1]


def penalized(s, weights, y, member, omega, kappa, bounded):
    """F(s, W) = −(penalized log loss per row), written out."""
    import torch

    def seen(values):
        mean = (omega * values).mean()
        z = (values - mean) / torch.sqrt((omega * (values - mean) ** 2).mean())
        return LIMIT * torch.tanh(z / LIMIT) if bounded else z

    u = seen(s)
    columns = [torch.ones_like(u), u, u * u]
    if y is not None:
        v = seen(y)
        columns = [torch.ones_like(u), u, v, u * u, u * v, v * v]
    phi = torch.stack(columns)
    f = torch.cat([torch.zeros_like(u)[None], weights @ phi])
    loss = torch.logsumexp(f, dim=0) - (member.T * f).sum(dim=0)
    spread = torch.cat([torch.zeros_like(weights[:1]), weights])[:, 1:]
    size = ((spread - spread.mean(dim=0)) ** 2).sum()
    return -((omega * loss).sum() + 0.5 * kappa * size) / len(s)


def parts(data, bound, bounded, s):
    """F_ss and F_sW (−F_WW)⁻¹ F_Ws of each term at the classifiers of `bound`, with its sign."""
    import torch

    groups = data.groups
    omega = torch.tensor(np.ones(len(s)) if groups.weight is None else groups.weight)
    member, out = torch.tensor(groups.membership()), []
    for sign, condition, term in bound._terms:
        weights = term.weights_at(None)
        y = torch.tensor(data.y) if "y" in condition else None

        def of(s, flat, shape=weights.shape, y=y):
            return penalized(s, flat.reshape(shape), y, member, omega, bound.kappa, bounded)

        (ss, sw), (_, ww) = torch.autograd.functional.hessian(
            of, (torch.tensor(s), torch.tensor(weights.ravel()))
        )
        ss, sw, ww = ss.numpy(), sw.numpy(), ww.numpy()
        follow = sw @ np.linalg.solve(-ww, sw.T)
        out.append((sign / bound.normalizer * ss, sign / bound.normalizer * follow))
    return out


@pairwise(
    criterion=tuple(CRITERIA), score_map=MAPS, n_groups=[2, 4], kind=["plain", "weights"]
)  # fmt: skip
def test_factor_is_what_the_classifier_adds(criterion, score_map, n_groups, kind, case):
    """BBᵀ against Torch, and the whole Hessian, by differences, against both parts together."""
    data = case(kind, n_groups, n=40)
    options = {"score_map": score_map, "basis": "quadratic"}
    bound = bind(data, criterion, **options)
    value, _, factor = bound.value_grad_curvature(data.s)
    assert value == pytest.approx(bind(data, criterion, **options).value(data.s))
    assert factor.shape == (40, (3 if criterion == "independence" else 6) * (n_groups - 1))
    (still, follow), *rest = parts(data, bound, score_map == "tanh", data.s)
    size = largest(follow)
    np.testing.assert_allclose(factor @ factor.T, follow, atol=1e-7 * size)
    found = hessian(bound, data.s)
    for part in rest:
        still = still + part[0]
        assert largest(part[1]) < 1e-9 * size  # what sufficiency takes away
    over = found - factor @ factor.T - still
    assert largest(over) < 1e-3 * size
    if not rest:
        assert np.abs(over).max() < 1e-3 * size


def fair_rows(n_groups, criterion, weighted):
    """Every score, and every pair of score and target, once in each group."""
    rng = np.random.default_rng(3)
    each = 40 // n_groups
    y, s = np.repeat(rng.normal(size=(2, each)), n_groups, axis=1)
    weight = np.repeat(rng.uniform(0.3, 2.0, each), n_groups) if weighted else None
    return s + 0.4 * y, y, np.tile(np.arange(n_groups), each), weight


@pairwise(
    criterion=tuple(CRITERIA), classifier=CLASSIFIERS, score_map=MAPS, n_groups=[2, 4],
    weighted=[False, True],
)  # fmt: skip
def test_factor_bounds_the_term_at_a_fair_score(
    criterion, classifier, score_map, n_groups, weighted
):
    s, y, a, weight = fair_rows(n_groups, criterion, weighted)
    bound = eh.FairnessRegularizer(criterion, classifier, score_map=score_map).bind(
        y, sensitive_features=a, sample_weight=weight
    )
    value, gradient, factor = bound.value_grad_curvature(s)
    assert abs(value) < 1e-10
    assert np.abs(gradient).max() < 1e-8
    found = hessian(bound, s)
    size = largest(factor @ factor.T)
    assert largest(found - factor @ factor.T) < 1e-3 * size
    if classifier == "logistic" and criterion != "sufficiency":
        np.testing.assert_allclose(found, factor @ factor.T, atol=1e-3 * size)
    rng = np.random.default_rng(0)
    for direction in rng.normal(size=(20, len(s))):
        d = 1e-2 * s.std() * direction
        assert bound.value(s + d) <= gradient @ d + 0.5 * 1.1 * np.sum((factor.T @ d) ** 2)
    bar = diagonal_bound(factor)
    assert largest(found - np.diag(bar)) <= 1e-3 * size


@pairwise(
    criterion=tuple(CRITERIA), classifier=CLASSIFIERS,
    kind=["plain", "weights", "unknown", "proxy"], n_groups=[2, 4],
)  # fmt: skip
def test_factor_has_the_size_of_the_curvature_where_scores_are_unfair(
    criterion, classifier, kind, n_groups, case
):
    data = case(kind, n_groups, n=40)
    bound = bind(data, criterion, classifier=classifier)
    _, gradient, factor = bound.value_grad_curvature(data.s)
    again = bind(data, criterion, classifier=classifier).value_and_grad(data.s)[1]
    np.testing.assert_array_equal(gradient, again)
    assert largest(hessian(bound, data.s)) <= 1.15 * largest(factor @ factor.T)
    if data.groups.known is not None:
        assert (factor[~data.groups.known] == 0).all()
        assert np.abs(factor[data.groups.known]).max() > 0


def test_many_rows_and_groups_agree_with_few_blocks(case, monkeypatch):
    data = case("weights", 4, n=30_000)
    _, _, factor = bind(data, "separation").value_grad_curvature(data.s)
    monkeypatch.setattr(numpy_passes.blocks, "__defaults__", (10**6,))
    _, _, whole = bind(data, "separation").value_grad_curvature(data.s)
    some = slice(None, None, 500)
    expected = whole[some] @ whole[some].T
    np.testing.assert_allclose(factor[some] @ factor[some].T, expected, rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_units_of_the_score_scale_the_factor(classifier, case):
    data = case("weights", 3)
    factor = bind(data, "separation", classifier=classifier).value_grad_curvature(data.s)[2]
    other = bind(data, "separation", classifier=classifier).value_grad_curvature(100 * data.s)[2]
    np.testing.assert_allclose(1e4 * other @ other.T, factor @ factor.T, atol=1e-9)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_published_penalty_has_a_factor_too(criterion, case):
    data = case("weights", 2, n=60)
    bound = bind(data, criterion, classifier="lspc", kappa="published")
    _, _, factor = bound.value_grad_curvature(data.s)
    assert largest(hessian(bound, data.s)) <= 1.5 * largest(factor @ factor.T)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_constant_and_separating_scores_are_finite(criterion, classifier, case):
    data = case("weights", 3)
    bound = bind(data, criterion, classifier=classifier)
    assert not bound.value_grad_curvature(np.full(len(data.s), 2.0))[2].any()
    apart = 10.0 * data.fairness["sensitive_features"] + 0.01 * data.s
    assert np.isfinite(bound.value_grad_curvature(apart)[2]).all()


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_row_for_several_people(criterion, case):
    data = case("weights", 2, n=40)
    frequency = np.random.default_rng(0).integers(0, 4, 40)
    regularizer = eh.FairnessRegularizer(criterion)
    given = None if criterion == "independence" else data.y
    bound = regularizer.bind(None, **data.fairness, frequency=frequency, given=given)
    _, gradient, factor = bound.value_grad_curvature(data.s)
    np.testing.assert_allclose(gradient, bound.value_and_grad(data.s)[1], rtol=1e-5, atol=1e-12)
    found = hessian(bound, data.s)
    assert largest(found) <= 1.15 * largest(factor @ factor.T)
    assert largest(factor @ factor.T) <= 3.0 * largest(found)
    assert not factor[frequency == 0].any()


class TestDiagonalBound:
    @pytest.mark.parametrize("shape", [(50, 3), (50, 18), (7, 12)])
    def test_it_is_one(self, shape):
        rng = np.random.default_rng(0)
        factor = rng.standard_t(3, size=shape)
        factor[2] = 0.0
        bar = diagonal_bound(factor)
        assert bar[2] == 0
        assert largest(factor @ factor.T - np.diag(bar)) <= 1e-12 * bar.max()
        # And it cannot be scaled down.
        assert largest(factor @ factor.T - 0.99 * np.diag(bar)) > 0

    def test_it_sums_to_less_than_a_common_number(self):
        factor = np.random.default_rng(0).standard_t(3, size=(200, 3))
        assert diagonal_bound(factor).sum() < 200 * largest(factor.T @ factor)

    def test_no_curvature(self):
        assert not diagonal_bound(np.zeros((5, 3))).any()
        assert not diagonal_bound(np.zeros((5, 0))).any()


class TestGiven:
    @pytest.mark.parametrize("criterion", ["separation", "sufficiency"])
    def test_it_stands_in_for_the_target(self, criterion, case):
        data = case("weights", 3)
        risk = np.exp(data.y / 5.0)
        regularizer = eh.FairnessRegularizer(criterion)
        expected = regularizer.bind(risk, **data.fairness).value_and_grad(data.s)
        for y in (data.y, None):
            found = regularizer.bind(y, **data.fairness, given=risk).value_and_grad(data.s)
            assert found[0] == expected[0]
            np.testing.assert_array_equal(found[1], expected[1])

    def test_part_of_the_rows(self, case):
        data = case("weights", 2)
        rows = np.arange(60)
        whole = eh.FairnessRegularizer("separation").bind(None, **data.fairness, given=data.y)
        plain = eh.FairnessRegularizer("separation").bind(data.y, **data.fairness)
        assert whole.take(rows).value(data.s[rows]) == plain.take(rows).value(data.s[rows])

    @pytest.mark.parametrize(
        ("criterion", "given", "message"),
        [
            (
                "independence",
                np.ones(120),
                "`given` must be None with criterion='independence'.*Hi",
            ),
            ("separation", np.ones(7), "`given` must have one entry per row: got 7 for 120"),
            ("separation", np.full(120, np.nan), "`given` must be finite"),
            ("separation", 5.0 * (np.arange(120) % 2), "`given` determines the group completely"),
        ],
    )
    def test_refusals(self, criterion, given, message, case):
        data = case("plain", 2)
        with pytest.raises(ValueError, match=message):
            eh.FairnessRegularizer(criterion).bind(data.y, **data.fairness, given=given)
