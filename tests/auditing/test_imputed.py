"""Imputed membership: bounds that hold, and an estimate that is right where its assumption is."""

import numpy as np
import pytest
from scipy.optimize import linprog

import evenhand as eh
from evenhand.auditing.imputed import LEAST_ROWS, make_strata


def draw(n, seed, direct, K=3):
    """Scores, probabilities and true groups; `direct` is what the group adds given the rest."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=(n, K)) + np.eye(K)[0]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    a = (rng.random(n)[:, None] > np.cumsum(p, axis=1)).sum(axis=1)
    return 0.4 * z[:, 1] + direct * (a == 1) + rng.normal(size=n), p, a


def audit(s, p, **how):
    names = [f"g{k}" for k in range(p.shape[1])]
    return eh.audit(None, s, sensitive_features=eh.Proxy(p, names), **how)


def truth(direct, K=3):
    s, _, a = draw(10**6, 999, direct, K)
    return s[a == 1].mean() - s[a == 0].mean()


@pytest.mark.parametrize("direct", [0.0, 0.7, -0.7])
def test_bounds_hold_the_truth_and_the_estimate_its_assumption(direct):
    want = truth(direct)
    found = [audit(*draw(1500, seed, direct)[:2]).imputation["g1"] for seed in range(12)]
    assert all(g.bounds[0] <= want <= g.bounds[1] for g in found)
    mean = np.mean([g.value for g in found])
    spread = np.std([g.value for g in found]) / np.sqrt(12)
    if direct == 0:
        assert abs(mean - want) < 3 * spread
    else:  # attenuated
        assert abs(mean) < abs(want) if direct > 0 else mean > want


def test_bounds_are_those_of_a_linear_program():
    s, p, _ = draw(400, 3, 0.5)
    found = audit(s, p).imputation["g1"]
    strata = make_strata(p)
    # Variables w_ik: rows add up to one, strata to their probabilities.
    n, K = p.shape
    rows = np.kron(np.eye(n), np.ones((1, K)))
    cells = np.vstack(
        [
            np.kron((strata == c)[None, :], np.eye(K)[[k]])
            for c in range(strata.max() + 1)
            for k in range(K)
        ]
    )
    sums = [p[strata == c, k].sum() for c in range(strata.max() + 1) for k in range(K)]
    total = p.sum(axis=0)
    cost = np.kron(s[:, None], np.array([[-1 / total[0], 1 / total[1], 0.0]])).ravel()
    equal = {"A_eq": np.vstack([rows, cells]), "b_eq": np.r_[np.ones(n), sums], "bounds": (0, 1)}
    assert found.high == pytest.approx(-linprog(-cost, **equal).fun, abs=1e-6)
    assert found.low == pytest.approx(linprog(cost, **equal).fun, abs=1e-6)


def test_recorded_groups_need_no_bounds_and_certain_ones_have_none():
    s, _, a = draw(800, 1, 0.5)
    assert eh.audit(None, s, sensitive_features=a).imputation is None
    certain = audit(s, np.eye(3)[a])
    assert certain.imputation.certainty == pytest.approx(1.0)
    gap = certain.imputation["g1"]
    want = s[a == 1].mean() - s[a == 0].mean()
    assert (gap.value, gap.low, gap.high) == pytest.approx((want, want, want))


def test_weights_count():
    s, p, _ = draw(600, 2, 0.5)
    weight = np.r_[np.full(200, 2), np.ones(400, int)]
    # By an estimator that is smooth: for others rows of a frequency look like copies.
    one = audit(s, p, sample_weight=weight, estimator="logistic").imputation["g1"]
    two = audit(s, p, frequency=weight, estimator="logistic").imputation["g1"]
    assert one.value == pytest.approx(two.value)


def test_strata_hold_rows_enough_and_equal_probabilities_stay_together():
    p = np.repeat([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]], 100, axis=0)
    strata = make_strata(p)
    assert len(np.unique(strata)) == 3
    assert all(len(np.unique(strata[i : i + 100])) == 1 for i in (0, 100, 200))
    random = np.random.default_rng(0).random(1000)
    assert np.bincount(make_strata(np.column_stack([random, 1 - random]))).min() >= (LEAST_ROWS)


def test_text_page_and_tables_say_it(tmp_path):
    found = audit(*draw(800, 5, 0.5)[:2])
    text = " ".join(str(found).split())
    assert "range without any assumption (95%)" in text
    assert max(map(len, str(found).split("\n")[-8:])) <= 80
    page = found.to_html(tmp_path / "a.html").read_text()
    assert "What inferred groups leave uncertain" in page
    assert "Range without any assumption (95%)" in page
    assert "remove" in page.split("Limits of the evidence")[1]
    assert found.to_dict()["imputation"]["gaps"][0]["group"] == "g1"
    assert list(found.imputation.to_frame()["group"]) == ["g1", "g2"]
    with pytest.raises(KeyError, match="no group named 'x'"):
        found.imputation["x"]


def test_a_verdict_against_another_reference_does_not_pass_by_gaps_from_the_largest():
    s, p, _ = draw(1500, 0, 0.0)
    found = audit(s, p, estimator="logistic")
    verdict = found.verdict(eh.Tolerance(mean_difference=(-9, 9), reference="g1"))
    assert verdict.outcome == "not enough data"
    assert "groups are inferred" in verdict.clauses[0].note
    assert found.verdict(eh.Tolerance(mean_difference=(-9, 9))).outcome == "pass"
