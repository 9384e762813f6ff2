"""Differences between models on the same rows, paired by what each row adds to both."""

import json

import numpy as np
import pytest

import evenhand as eh
from evenhand.measures.measures import paired_error


def two_models(seed, n=400, shift=0.8, extra=0.8, rho=0.7):
    """Two scores that are equally unfair where `extra` is `shift`, with correlated noise."""
    rng = np.random.default_rng(seed)
    a, y, noise = rng.integers(0, 2, n), rng.normal(size=n), rng.normal(size=(2, n))
    second = rho * noise[0] + np.sqrt(1 - rho**2) * noise[1]
    return a, y + 0.3 * a, {"old": y + shift * a + noise[0], "new": y + extra * a + second}


def audit_two(seed=0, estimator="logistic", more=None, **how):
    a, y, scores = two_models(seed, **how)
    return eh.audit(y, scores, sensitive_features=a, estimator=estimator, **(more or {}))


def test_equally_unfair_models_are_told_apart_in_about_one_of_twenty_samples():
    hits = {"independence": 0, "separation": 0, "sufficiency": 0}
    for seed in range(200):
        for d in audit_two(seed).differences():
            hits[d.criterion] += d.p_value < 0.05
            assert (d.p_value < 0.05) == (d.interval[0] > 0 or d.interval[1] < 0)
    # 3.5 to 4 % with this estimator; near fairness the test is conservative.
    assert 3 <= hits["independence"] <= 18
    assert 3 <= hits["separation"] <= 18
    assert hits["sufficiency"] <= 18


def test_a_fairer_model_is_found_where_intervals_overlap():
    audits = audit_two(n=1500, extra=0.6, rho=0.98)
    old, new = (audits[name].independence.interval for name in ("old", "new"))
    assert new[1] > old[0]
    difference = audits.differences()[0]
    assert (difference.name, difference.criterion) == ("new", "independence")
    assert difference.value == audits["new"].independence.value - audits["old"].independence.value
    assert difference.value < 0
    assert difference.p_value < 0.01


def test_the_error_of_a_difference_is_that_of_the_rows_own_differences():
    """Of means it is exact; of two measures it is near the spread over samples."""
    u, v = np.random.default_rng(0).normal(size=(2, 50))
    errors = np.linalg.norm(u), np.linalg.norm(v)
    assert paired_error(u, v, errors) == pytest.approx(np.linalg.norm(u - v), rel=1e-12)
    # What rows do not tell counts in full where they do not move together, else less.
    apart = paired_error(np.array([1.0, 0.0]), np.array([0.0, 1.0]), (np.sqrt(2), np.sqrt(5)))
    assert apart == pytest.approx(np.sqrt(2 + 1 + 4))
    assert paired_error(u, u, (2 * errors[0], 2 * errors[0])) == pytest.approx(0.0, abs=1e-7)
    found = [audit_two(seed, n=1000, rho=0.9).differences()[0] for seed in range(80)]
    spread = np.std([d.value for d in found])
    assert np.mean([d.stderr for d in found]) == pytest.approx(spread, rel=0.25)


def test_the_same_score_in_other_units_does_not_differ():
    a, y, scores = two_models(3)
    scores = {"one": scores["old"], "two": 5 + 2 * scores["old"], "three": scores["new"]}
    audits = eh.audit(y, scores, sensitive_features=a, estimator="logistic")
    by_model = {(d.name, d.criterion): d for d in audits.differences()}
    assert by_model["two", "separation"].p_value == pytest.approx(1.0, abs=1e-3)
    assert abs(by_model["two", "separation"].interval[1]) < 1e-6
    assert len(by_model) == 6


@pytest.mark.parametrize("kind", ["weights", "clusters", "unknown", "proxy"])
def test_rows_count_as_in_the_audits(kind):
    a, y, scores = two_models(4, n=600)
    rng = np.random.default_rng(0)
    more, who = {}, a
    if kind == "weights":
        more = {"sample_weight": rng.gamma(2.0, size=600)}
    elif kind == "clusters":
        more = {"cluster": np.arange(600) // 4}
    elif kind == "unknown":
        who = np.where(rng.random(600) < 0.1, None, a.astype(str))
    else:
        who = eh.Proxy(np.column_stack([0.9 - 0.8 * a, 0.1 + 0.8 * a]), ["p", "q"])
    audits = eh.audit(y, scores, sensitive_features=who, estimator="logistic", **more)
    for d in audits.differences():
        alone = [audits[name].measures[d.criterion].stderr for name in audits]
        assert 0 < d.stderr < np.hypot(*alone) * 1.0001
        assert d.interval[0] < d.value < d.interval[1]


def test_where_there_is_nothing_to_pair(tmp_path):
    a, y, scores = two_models(5)
    alone = [eh.audit(y, s, sensitive_features=a, estimator="logistic") for s in scores.values()]
    assert eh.AuditSet(dict(zip(scores, alone, strict=True))).differences() == ()
    counted = audit_two(5, more={"frequency": np.full(400, 30_000)})
    assert counted.differences() == ()
    assert "not tested" in str(counted)
    # Copies of one score that are none of the other: no error, and no test.
    a, y, s = (np.tile(v, 2) for v in (a, y, scores["old"]))
    new = s + np.random.default_rng(0).normal(size=len(s))
    with pytest.warns(UserWarning, match="of one person"):
        audits = eh.audit(y, {"old": s, "new": new}, sensitive_features=a, estimator="logistic")
    assert audits["old"].n_copies == 400
    assert audits["new"].n_copies == 0
    assert audits.differences() == ()
    assert "new is not compared: rows that are copies" in audits.to_html(tmp_path / "p").read_text()


def test_text_page_and_dict_hold_them(tmp_path):
    audits = audit_two(6)
    assert "Differences from old, paired by rows" in str(audits)
    held = json.loads(json.dumps(audits.to_dict()))["differences"]
    assert [d["criterion"] for d in held] == list(audits["old"].measures)
    assert held[0]["p_value"] == audits.differences()[0].p_value
    page = audits.to_html(tmp_path / "page.html").read_text()
    assert "Differences from old, paired by rows" in page
    assert "differences.csv" in page
