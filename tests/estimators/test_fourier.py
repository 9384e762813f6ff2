import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression

from evenhand.data.criteria import BOTH, SCORE, TARGET
from evenhand.data.groups import GroupWarning, Proxy, resolve_groups
from evenhand.estimators import references
from evenhand.estimators.estimation import EntropyEstimator
from evenhand.estimators.references import Fourier

CONDITIONS = (SCORE, TARGET, BOTH)


def normal(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    a = (rng.random(n) < 0.4).astype(int)
    y = rng.normal(size=n) + 1.2 * a
    return y + rng.normal(size=n) * (1 + a), y, a


def losses(s, y, a, weight=None, conditions=CONDITIONS, **options):
    groups = resolve_groups(a, n_rows=len(s), sample_weight=weight)
    result = Fourier(**options).row_losses({"s": s, "y": y}, conditions, groups)
    means = {c: np.average(r.value, weights=groups.weight) for c, r in result.items()}
    return groups, result, means


def test_follows_the_protocol_and_says_what_was_used():
    assert isinstance(Fourier(), EntropyEstimator)
    s, y, a = normal(200)
    _, result, _ = losses(s, y, a, conditions=[SCORE], n_components=20, C=3.0)
    assert list(result) == [SCORE]
    assert result[SCORE].chosen == "logistic on 20 Fourier features, C = 3"
    assert result[SCORE].value.shape == (200,)


def test_entropy_close_to_the_truth():
    s, y, a = normal(4000)

    def log_density(group):
        share = 0.4 if group else 0.6
        rest = (s - y) / (1 + group)
        return np.log(share / (1 + group)) - 0.5 * ((y - 1.2 * group) ** 2 + rest**2)

    truth = np.logaddexp(log_density(0), log_density(1)) - np.where(
        a == 1, log_density(1), log_density(0)
    )
    _, result, means = losses(s, y, a, conditions=[BOTH])
    assert means[BOTH] == pytest.approx(truth.mean(), abs=0.015)
    assert np.corrcoef(result[BOTH].value, truth)[0, 1] > 0.97


def test_independent_score_tells_nothing():
    s, y, a = normal(2000)
    shuffled = np.random.default_rng(5).permutation(s)
    groups, _, means = losses(shuffled, y, a, conditions=[SCORE])
    assert means[SCORE] == pytest.approx(groups.entropy, abs=0.01)


def test_losses_are_those_of_a_fit_without_the_row():
    s, y, a = normal(300)
    _, result, _ = losses(s, y, a, conditions=[SCORE], C=10.0, gamma=0.5, n_components=30)
    random = np.random.RandomState(0)
    seed = random.randint(np.iinfo(np.int32).max)
    folds = references._stratified_folds(a, random)
    z = ((s - s.mean()) / s.std())[:, None]
    features = RBFSampler(gamma=0.5, n_components=30, random_state=seed).fit_transform(z)
    out = folds == folds[0]
    model = LogisticRegression(C=10.0, tol=1e-8, max_iter=1000).fit(features[~out], a[~out])
    proba = model.predict_proba(features[out])[np.arange(out.sum()), a[out]]
    proba = (1 - 1 / 300) * proba + np.bincount(a)[a[out]] / 300 / 300
    assert_allclose(result[SCORE].value[out], -np.log(proba), atol=1e-3)


def test_repeats_exactly_and_depends_on_the_seed():
    s, y, a = normal(300)
    first = losses(s, y, a, random_state=3, n_components=20)[1][BOTH].value
    assert_array_equal(first, losses(s, y, a, random_state=3, n_components=20)[1][BOTH].value)
    assert not np.allclose(first, losses(s, y, a, random_state=4, n_components=20)[1][BOTH].value)


def test_units_do_not_matter():
    s, y, a = normal(300)
    expected = losses(s, y, a, n_components=20)[2]
    for scale in (1e5, 1e300):
        found = losses(s * scale, y / 7, a, n_components=20)[2]
        assert_allclose([found[c] for c in CONDITIONS], [expected[c] for c in CONDITIONS])


def test_folds_are_stratified():
    strata = np.repeat([0, 1, 2], [100, 7, 3])
    folds = references._stratified_folds(strata, np.random.RandomState(0))
    for k, size in enumerate([100, 7, 3]):
        counts = np.bincount(folds[strata == k], minlength=5)
        assert counts.sum() == size
        assert counts.max() - counts.min() <= 1
    assert len(np.unique(references._stratified_folds(strata[:3], np.random.RandomState(0)))) == 3


def test_weights_undo_a_biased_sample():
    s, y, a = normal(8000)
    chance = np.where(a == 1, 1 / (1 + np.exp(-2 * s)), 1 / (1 + np.exp(2 * s))) * 0.8 + 0.2
    kept = np.random.default_rng(1).random(8000) < chance
    cut = s[kept], y[kept], a[kept]

    def information(*args):
        groups, _, means = losses(*args, conditions=[SCORE, BOTH], C=10.0, n_components=50)
        return np.array([groups.entropy - means[c] for c in (SCORE, BOTH)])

    truth = information(s, y, a)
    assert np.abs(information(*cut) - truth).min() > 0.05
    assert np.abs(information(*cut, 1 / chance[kept]) - truth).max() < 0.025


def test_rows_of_zero_weight_do_not_train():
    s, y, a = normal(400)
    weight = np.ones(400)
    weight[:50] = 0.0
    first = losses(s, y, a, weight, C=1.0, gamma=1.0)[1][SCORE].value
    flipped = a.copy()
    flipped[:50] = 0
    # The folds are dealt by group, so the groups of the unused rows are kept in step.
    groups = resolve_groups(a, n_rows=400, sample_weight=weight)
    folds = references._stratified_folds(a, np.random.RandomState(0))
    z = references._standardize([s], groups.weight)
    sampler = RBFSampler(gamma=1.0, random_state=0).fit(z)
    rows = []
    for labels in (a, flipped):
        rows.append(
            references._cross_fit(
                sampler, 1.0, groups.shares, z, np.eye(2)[labels], groups.weight, folds
            )
        )
    assert_array_equal(rows[0][50:], rows[1][50:])
    assert np.isfinite(first).all()


def test_certain_proxy_is_the_known_group():
    s, y, a = normal(400)
    known = losses(s, y, a, C=10.0)[1]
    certain = losses(s, y, Proxy(np.eye(2)[a], [0, 1]), C=10.0)[1]
    for condition in CONDITIONS:
        assert_allclose(certain[condition].value, known[condition].value, rtol=1e-8)


def test_proxy_of_shares_tells_nothing():
    s, y, _ = normal(400)
    proxy = Proxy(np.tile([0.3, 0.7], (400, 1)), ["a", "b"])
    groups, _, means = losses(s, y, proxy)
    assert_allclose([means[c] for c in CONDITIONS], groups.entropy, atol=1e-3)


def test_group_smaller_than_the_folds():
    s, y, a = normal(200)
    a[:3] = 2
    _, result, means = losses(s, y, a, n_components=20)
    a[3] = 3
    with pytest.warns(GroupWarning, match="single row"):
        groups, alone, _ = losses(s, y, a, conditions=[SCORE], n_components=20)
    assert all(np.isfinite(r.value).all() for r in (*result.values(), *alone.values()))
    # The fit for its fold has never seen the group of row 3.
    assert alone[SCORE].value[3] == pytest.approx(-np.log(groups.shares[3] / 200))
    assert means[BOTH] < 2.0


def test_two_rows():
    with pytest.warns(GroupWarning, match="single row"):
        _, result, _ = losses(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([0, 1]))
    assert all(np.isfinite(r.value).all() for r in result.values())


def test_many_groups_use_lbfgs(monkeypatch):
    s, y, a = normal(400)
    expected = losses(s, y, a, C=1.0)[1][SCORE].value
    monkeypatch.setattr(references, "MAX_NEWTON_WEIGHTS", 0)
    assert_allclose(losses(s, y, a, C=1.0)[1][SCORE].value, expected, atol=2e-2)


@pytest.mark.parametrize("kind", ["constant", "mostly zero", "separated", "three values"])
def test_awkward_variables(kind):
    s, y, a = normal(300)
    if kind == "constant":
        s = np.full(300, 7.0)
    elif kind == "mostly zero":
        s = np.where(np.arange(300) % 10 == 0, s, 0.0)
    elif kind == "separated":
        s = s + 1e6 * a
    else:
        s = np.clip(np.round(s), -1, 1)
    groups, result, means = losses(s, y, a, conditions=[SCORE])
    assert np.isfinite(result[SCORE].value).all()
    assert means[SCORE] < groups.entropy + 0.02
    if kind == "separated":
        assert means[SCORE] < 0.05
    if kind == "constant":
        assert means[SCORE] == pytest.approx(groups.entropy, abs=1e-2)


def test_large_samples_choose_on_a_part(monkeypatch):
    s, y, a = normal(600)
    monkeypatch.setattr(references, "CHOICE_ROWS", 300)
    part = losses(s, y, a, conditions=[SCORE])
    assert part[2][SCORE] == pytest.approx(
        losses(s, y, a, conditions=[SCORE], C=1.0)[2][SCORE], abs=0.02
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_components": 0}, ValueError, r"`n_components` must be at least 1, got 0\."),
        ({"n_components": 1.5}, TypeError, r"`n_components` must be an integer, got 1\.5\."),
        ({"C": -1.0}, ValueError, r"`C` must be a positive number or None, got -1\.0\. Hint:"),
        ({"gamma": 0.0}, ValueError, r"`gamma` must be a positive number or None, got 0\.0\."),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        Fourier(**options)
