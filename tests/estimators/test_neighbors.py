import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_classif

from evenhand.data.criteria import BOTH, SCORE, TARGET
from evenhand.data.groups import GroupWarning, Proxy, resolve_groups
from evenhand.estimators import references
from evenhand.estimators.estimation import EntropyEstimator
from evenhand.estimators.references import KNN, neighbor_counts

TOLERANCE = 8 * np.finfo(float).eps
CONDITIONS = (SCORE, TARGET, BOTH)


def brute_force(columns, codes, k):
    """The counts by their definition, all pairs."""
    z = np.column_stack(columns)
    sizes = np.bincount(codes)[codes]
    counts = np.zeros((len(z), 4), dtype=int)
    balls = np.zeros((len(z), len(z)), dtype=bool)
    for i in np.flatnonzero(sizes > 1):
        distance = np.abs(z - z[i]).max(axis=1)
        others = np.arange(len(z)) != i
        own = others & (codes == codes[i])
        radius = np.sort(distance[own])[min(k, sizes[i] - 1) - 1]
        slack = TOLERANCE * np.abs(z[i]).max()
        if radius <= slack:
            radius = 0.0
        else:
            slack += TOLERANCE * radius
        near = distance <= radius + slack
        below = distance <= max(radius - slack, 0.0)
        balls[i] = near & others
        counts[i] = [(near & own).sum(), (below & own).sum(), (near & others).sum(), 0]
        counts[i, 3] = (below & others).sum()
        if radius == 0.0:
            counts[i, [1, 3]] = -1
    return counts, balls


def make(kind, n, n_groups, seed):
    rng = np.random.default_rng(seed)
    codes = np.unique(rng.integers(0, n_groups, n), return_inverse=True)[1]
    s = rng.normal(size=n) + 0.3 * codes
    y = s + rng.normal(size=n)
    if kind == "rounded":
        s, y = np.round(s, 1), np.round(y, 2)
    elif kind == "discrete":
        s, y = np.round(s), np.round(y)
    elif kind == "zero-inflated":
        y = np.where(rng.random(n) < 0.5, 0.0, y)
    elif kind == "duplicated":
        s, y = (np.repeat(v[: (n + 1) // 2], 2)[:n] for v in (s, y))
        codes = np.repeat(codes[: (n + 1) // 2], 2)[:n]
        codes = np.unique(codes, return_inverse=True)[1]
    elif kind == "constant and heavy-tailed":
        s, y = np.zeros(n), rng.standard_cauchy(n)
    elif kind == "far from zero":
        s, y = np.round(s, 1) + 1e6, y - 1e6
    elif kind == "tiny group":
        codes = np.where(np.arange(n) < 2, 1, 0)
    elif kind == "single row":
        codes = np.where(np.arange(n) < 1, 1, 0)
    return s, y, codes


KINDS = [
    "continuous",
    "rounded",
    "discrete",
    "zero-inflated",
    "duplicated",
    "constant and heavy-tailed",
    "far from zero",
    "tiny group",
    "single row",
]


def as_array(counts):
    return np.column_stack([counts.own, counts.own_below, counts.pooled, counts.pooled_below])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_groups", "k", "n"), [(2, 1, 150), (3, 5, 311), (5, 3, 40), (5, 7, 9)])
def test_counts_are_exact(kind, n_groups, k, n):
    s, y, codes = make(kind, n, n_groups, seed=n)
    for columns in ([s], [y], [s, y]):
        found = neighbor_counts(columns, codes, k)
        assert_array_equal(as_array(found), brute_force(columns, codes, k)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_masses_are_exact(kind):
    s, y, codes = make(kind, 200, 3, seed=1)
    weight = np.random.default_rng(0).exponential(size=200)
    for columns in ([s], [y], [s, y]):
        mass = neighbor_counts(columns, codes, 4, weight=weight).mass
        _, balls = brute_force(columns, codes, 4)
        own = balls & (codes[:, None] == codes)
        some = balls.any(axis=1)
        expected = np.column_stack(
            [own @ weight, own @ weight**2, balls @ weight, balls @ weight**2]
        )
        assert_allclose(mass[some], expected[some], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", ["continuous", "rounded"])
def test_counts_do_not_depend_on_how_many_rows_are_looked_up_at_a_time(kind, monkeypatch):
    s, y, codes = make(kind, 3000, 3, seed=0)
    weight = np.random.default_rng(0).exponential(size=3000)
    for columns in ([s], [s, y]):
        whole = neighbor_counts(columns, codes, 5, weight=weight)
        monkeypatch.setattr(references, "_CHUNK", 64)
        monkeypatch.setattr(references, "_LISTED", 100)
        parts = neighbor_counts(columns, codes, 5, weight=weight)
        assert_array_equal(as_array(whole), as_array(parts))
        assert_allclose(whole.mass, parts.mass, rtol=1e-12)
        monkeypatch.undo()


@pytest.mark.parametrize("kind", ["discrete", "zero-inflated", "duplicated"])
def test_point_masses_stay_exact_when_large(kind):
    # A spot check at a size where a quadratic walk would not finish.
    s, y, codes = make(kind, 100_000, 2, seed=0)
    found = as_array(neighbor_counts([s, y], codes, 5))
    for i in (0, 1, 17, 99_999):
        distance = np.maximum(np.abs(s - s[i]), np.abs(y - y[i]))
        distance[i] = np.inf
        radius = np.sort(distance[codes == codes[i]])[4]
        expected = [(distance[codes == codes[i]] <= radius).sum(), (distance <= radius).sum()]
        assert found[i, [0, 2]].tolist() == expected


def losses(s, y, a, weight=None, **options):
    groups = resolve_groups(a, n_rows=len(s), sample_weight=weight)
    result = KNN(**options).row_losses({"s": s, "y": y}, CONDITIONS, groups)
    means = {c: np.average(r.value, weights=groups.weight) for c, r in result.items()}
    return groups, result, means


def information(s, y, a, weight=None, **options):
    """I(S;A), I(Y;A), I(S,Y;A)."""
    groups, _, means = losses(s, y, a, weight, **options)
    return np.array([groups.entropy - means[c] for c in CONDITIONS])


def normal(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    a = (rng.random(n) < 0.4).astype(int)
    y = rng.normal(size=n) + 0.8 * a
    return y + rng.normal(size=n) * (1 + a), y, a


def test_continuous_value_is_the_authors_estimator():
    s, y, a = normal(300)
    sizes = np.bincount(a)[a]
    scaled = [s / s.std(), y / y.std()]
    expected = []
    for columns in (scaled[:1], scaled[1:], scaled):
        counts, _ = brute_force(columns, a, 5)
        terms = digamma(5) + np.log(300) - digamma(counts[:, 2]) - digamma(sizes)
        expected.append(terms.mean())
    assert_allclose(information(s, y, a), expected, rtol=1e-10)


def test_zero_distances_use_all_equal_rows():
    s = np.repeat([0.0, 1.0, 2.0], 40)
    a = np.r_[np.repeat([0, 1], [30, 10]), np.repeat([0, 1], [10, 30]), np.repeat([0, 1], 20)]
    cell = {(0, 0): 30, (0, 1): 10, (1, 0): 10, (1, 1): 30, (2, 0): 20, (2, 1): 20}
    own = np.array([cell[int(v), g] for v, g in zip(s, a, strict=True)])
    expected = digamma(own) + np.log(120) - digamma(40) - digamma(60)
    assert_allclose(information(s, s, a), expected.mean(), rtol=1e-12)


def plug_in(z, a):
    _, z = np.unique(np.column_stack(z), axis=0, return_inverse=True)
    joint = np.zeros((z.max() + 1, a.max() + 1))
    np.add.at(joint, (z.ravel(), a), 1.0 / len(a))
    outer = joint.sum(1, keepdims=True) * joint.sum(0)
    return (joint[joint > 0] * np.log(joint[joint > 0] / outer[joint > 0])).sum()


def test_categorical_variables_agree_with_the_contingency_table():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 5000)
    y = rng.binomial(4, 0.3 + 0.1 * a).astype(float)
    s = y + rng.binomial(3, 0.2 + 0.2 * a)
    expected = [plug_in([s], a), plug_in([y], a), plug_in([s, y], a)]
    # Digamma takes off the plug-in's bias, (cells − values − groups + 1) / 2n, here 0.004 at most.
    assert_allclose(information(s, y, a), expected, atol=0.006)


@pytest.mark.parametrize("digits", [1, 2])
def test_rounding_does_not_create_information(digits):
    # The authors' rule for ties at a positive distance is off by 0.20 and 0.04 nats on these.
    s, y, a = normal(4000)
    exact = information(s, y, a)
    assert_allclose(information(s, np.round(y, digits), a), exact, atol=0.012)


def test_units_do_not_matter():
    s, y, a = normal(500)
    y = np.round(y, 2)
    expected = information(s, y, a)
    assert_allclose(information(s * 3e5 + 9, y / 7, a), expected, rtol=1e-10)
    assert_allclose(information(s * 1e300, y * 1e-150, a), expected, rtol=1e-10)
    assert_allclose(information(-s, -y, 1 - a), expected, rtol=1e-10)
    order = np.random.default_rng(0).permutation(500)
    assert_allclose(information(s[order], y[order], a[order]), expected, rtol=1e-10)


def test_close_to_other_implementations():
    s, y, a = normal(3000)
    found = information(s, y, a, n_neighbors=3)
    peer = mutual_info_classif(
        np.column_stack([s, y]), a, n_neighbors=3, random_state=0, discrete_features=False
    )
    # ψ(n) for log n is the only difference in one dimension.
    assert_allclose(found[:2], peer, atol=1e-3)


def test_conditional_information_close_to_ennemi():
    import ennemi

    s, y, a = normal(3000)
    found = information(s, y, a, n_neighbors=5)
    peer = ennemi.estimate_mi(a, s, cond=y, discrete_y=True, k=5, preprocess=False)
    # A different estimator of the same quantity, so only as close as their noise.
    assert_allclose(found[2] - found[1], float(np.ravel(peer)[0]), atol=0.03)


def test_truth_for_normal_groups():
    # Equal shares, unit variances, means ±1: I(S;A) = 0.3368 nats by quadrature.
    grid = np.linspace(-10, 10, 4001)
    density = np.exp(-0.5 * (grid - np.array([[-1.0], [1.0]])) ** 2) / np.sqrt(2 * np.pi)
    mix = density.mean(axis=0)
    truth = (0.5 * density * np.log(density / mix)).sum() * (grid[1] - grid[0])
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 20_000)
    s = rng.normal(size=20_000) + 2 * a - 1
    assert information(s, s, a)[0] == pytest.approx(truth, abs=0.012)
    assert information(rng.permutation(s), s, a)[0] == pytest.approx(0.0, abs=0.012)


def test_y_equal_to_s_adds_nothing():
    s, _, a = normal()
    found = information(s, s, a)
    assert_allclose(found[2], found[0], rtol=1e-12)


def test_separated_groups_give_all_of_the_entropy():
    s, y, a = normal(500)
    groups, result, means = losses(s + 1000 * a, y, a)
    assert means[SCORE] == pytest.approx(0.0, abs=0.01)
    assert all(np.isfinite(result[c].value).all() for c in CONDITIONS)
    assert groups.entropy > 0.6


def test_group_no_larger_than_k():
    s, y, a = normal(400)
    a[:4] = 2
    _, few, _ = losses(s, y, a, n_neighbors=20)
    z = s / s.std()
    radius = np.abs(z[:4, None] - z[:4]).max(axis=1)
    m = (np.abs(z[:4, None] - z) <= radius[:, None] * (1 + 1e-12)).sum(axis=1) - 1
    expected = digamma(m) - digamma(3) + digamma(4) - np.log(4)
    assert_allclose(few[SCORE].value[:4], expected, rtol=1e-10)


def test_row_alone_in_its_group_tells_nothing():
    s, y, a = normal(100)
    a[0] = 2
    with pytest.warns(GroupWarning, match="single row"):
        groups, result, _ = losses(s, y, a)
    for condition in CONDITIONS:
        assert result[condition].value[0] == pytest.approx(-np.log(groups.shares[2]))
        assert np.isfinite(result[condition].value).all()


def test_equal_weights_are_no_weights():
    s, y, a = normal(500)
    y = np.round(y, 1)
    assert_allclose(information(s, y, a, np.full(500, 3.0)), information(s, y, a), rtol=1e-10)


def test_rows_of_zero_weight_are_left_out():
    s, y, a = normal(500)
    weight = np.random.default_rng(0).exponential(size=500)
    weight[:100] = 0.0
    _, result, _ = losses(s, y, a, weight)
    assert np.isfinite(result[BOTH].value).all()
    assert_allclose(
        information(s, y, a, weight), information(s[100:], y[100:], a[100:], weight[100:])
    )


def test_weights_undo_a_biased_sample():
    s, y, a = normal(20_000)
    chance = np.where(a == 1, 1 / (1 + np.exp(-2 * s)), 1 / (1 + np.exp(2 * s))) * 0.8 + 0.2
    kept = np.random.default_rng(1).random(20_000) < chance
    truth = information(s, y, a)
    raw = information(s[kept], y[kept], a[kept])
    undone = information(s[kept], y[kept], a[kept], 1 / chance[kept])
    assert np.abs(raw - truth).min() > 0.05
    assert np.abs(undone - truth).max() < 0.02


def test_weights_unrelated_to_anything_change_little():
    s, y, a = normal(4000)
    weight = np.random.default_rng(99).uniform(0.2, 1.8, size=4000)
    assert_allclose(information(s, y, a, weight), information(s, y, a), atol=0.015)


def test_follows_the_protocol_and_says_what_was_used():
    assert isinstance(KNN(), EntropyEstimator)
    s, _, a = normal(50)
    groups = resolve_groups(a, n_rows=50)
    result = KNN(n_neighbors=4).row_losses({"s": s}, [SCORE], groups)
    assert list(result) == [SCORE]
    assert result[SCORE].chosen == "4 nearest neighbors (Gao et al. 2017)"
    assert result[SCORE].value.shape == (50,)


def test_refuses_a_proxy():
    s, y, _ = normal(20)
    groups = resolve_groups(Proxy(np.full((20, 2), 0.5), ["a", "b"]), n_rows=20)
    with pytest.raises(ValueError, match=r"`sensitive_features` must be known groups.*Hint: use"):
        KNN().row_losses({"s": s, "y": y}, [SCORE], groups)


def test_refuses_a_bad_number_of_neighbors():
    with pytest.raises(ValueError, match=r"`n_neighbors` must be at least 1, got 0\."):
        KNN(n_neighbors=0)
    with pytest.raises(TypeError, match=r"`n_neighbors` must be an integer, got 2\.5\."):
        KNN(n_neighbors=2.5)
