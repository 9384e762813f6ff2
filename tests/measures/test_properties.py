"""What must hold of the measures whatever the data: invariances, bounds, identities."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.measures.entropies import estimate_entropies, get_estimator

MEASURES = {"independence": eh.independence, "separation": eh.separation,
            "sufficiency": eh.sufficiency}  # fmt: skip
MAPS = {
    "cube": lambda x: x**3,
    "exp": lambda x: np.exp(0.5 * x),
    "arctan": np.arctan,
    "units": lambda x: 1000.0 * x - 7.0,
}
few = settings(max_examples=5)


def draw(seed: int, n: int, k: int):
    rng = np.random.default_rng(seed)
    a = np.concatenate([np.arange(k), np.arange(k), rng.integers(0, k, n - 2 * k)])
    y = rng.normal(size=n) * (1 + 0.3 * a) + rng.normal() * a
    s = rng.uniform(0.2, 1.0) * y + rng.normal(size=n) + rng.normal() * 0.5 * a
    return y, s, a


def values(y, s, a, **options):
    groups = resolve_groups(a, n_rows=len(s), sample_weight=options.pop("sample_weight", None))
    found = estimate_entropies(
        CRITERIA.values(), {"s": s, "y": y}, groups, get_estimator(**options)
    )
    return np.array([found.normalized(c) for c in CRITERIA.values()])


@few
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(2, 4),
    of_s=st.sampled_from(sorted(MAPS)),
    of_y=st.sampled_from(sorted(MAPS)),
)
def test_auto_does_not_change_under_increasing_maps(seed, k, of_s, of_y):
    y, s, a = draw(seed, 200, k)
    before = values(y, s, a, estimator="auto")
    after = values(MAPS[of_y](y), MAPS[of_s](s), a, estimator="auto")
    np.testing.assert_allclose(after, before, atol=1e-7)


@few
@given(seed=st.integers(0, 10**6), estimator=st.sampled_from(["auto", "logistic", "lspc", "knn"]))
def test_relabeling_and_row_order_do_not_matter(seed, estimator):
    y, s, a = draw(seed, 150, 3)
    before = values(y, s, a, estimator=estimator)
    names = np.array(["z", "m", "a"])[a]
    order = np.random.default_rng(seed).permutation(len(y))
    after = values(y[order], s[order], names[order], estimator=estimator)
    np.testing.assert_allclose(after, before, atol=1e-6)


@few
@given(seed=st.integers(0, 10**6), estimator=st.sampled_from(["auto", "logistic", "lspc", "knn"]))
def test_values_lie_between_a_little_below_zero_and_one(seed, estimator):
    y, s, a = draw(seed, 300, 2)
    found = values(y, s, a, estimator=estimator)
    assert (found <= 1.0).all()
    assert (found > -0.15).all()


@few
@given(seed=st.integers(0, 10**6))
def test_integer_weights_are_close_to_repeated_rows(seed):
    y, s, a = draw(seed, 250, 2)
    w = np.random.default_rng(seed).integers(1, 4, len(y))
    again = np.repeat(np.arange(len(y)), w)
    for estimator, slack in (("auto", 0.01), ("lspc", 1e-4), ("logistic", 0.05)):
        # Leave-one-out means leaving a row out, of whatever weight, so the two differ by its share.
        weighted = values(y, s, a, estimator=estimator, sample_weight=w)
        repeated = values(y[again], s[again], a[again], estimator=estimator)
        np.testing.assert_allclose(weighted, repeated, atol=slack)


@few
@given(seed=st.integers(0, 10**6), bins=st.integers(2, 12))
def test_coarser_scores_tell_no_more(seed, bins):
    """I(g(S); A) ≤ I(S; A), up to the error of estimating both."""
    _, s, a = draw(seed, 800, 2)
    edges = np.quantile(s, np.linspace(0, 1, bins + 1)[1:-1])
    fine = eh.independence(None, s, sensitive_features=a)
    coarse = eh.independence(None, np.digitize(s, edges), sensitive_features=a)
    assert coarse <= fine + 0.03


@pytest.mark.parametrize("estimator", ["auto", "knn", "fourier"])
@pytest.mark.parametrize("criterion", list(CRITERIA))
def test_categorical_data_give_the_contingency_table(estimator, criterion):
    rng = np.random.default_rng(5)
    n = 3000
    a = rng.integers(0, 2, n)
    y = rng.integers(0, 3, n) + (rng.random(n) < 0.3) * a
    s = np.clip(y + rng.integers(-1, 2, n) + (rng.random(n) < 0.2) * a, 0, 4)

    def entropy(*columns):
        _, counts = np.unique(np.column_stack(columns), axis=0, return_counts=True)
        p = counts / n
        return -(p * np.log(p)).sum()

    given_, joint = {
        "independence": (entropy(a), entropy(a, s) - entropy(s)),
        "separation": (entropy(a, y) - entropy(y), entropy(a, s, y) - entropy(s, y)),
        "sufficiency": (entropy(a, s) - entropy(s), entropy(a, s, y) - entropy(s, y)),
    }[criterion]
    expected = 1 - joint / given_
    found = MEASURES[criterion](y, s, sensitive_features=a, estimator=estimator)
    assert found == pytest.approx(expected, abs=0.008)


@pytest.mark.parametrize("estimator", ["auto", "logistic", "lspc", "knn"])
def test_chain_rule(estimator):
    """I(S;A) + I(Y;A|S) = I(Y;A) + I(S;A|Y), in nats."""
    y, s, a = draw(3, 500, 3)
    options = {"sensitive_features": a, "estimator": estimator, "normalize": False}
    left = eh.independence(y, s, **options) + eh.sufficiency(y, s, **options)
    right = eh.independence(None, y, **options) + eh.separation(y, s, **options)
    assert left == pytest.approx(right, abs=1e-9)
