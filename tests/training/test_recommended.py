"""FairRegressor: what it chooses, that the choice meets the request, and all forms of input."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import evenhand as eh
from evenhand._core.validation import InputError
from evenhand.data.groups import resolve_groups
from evenhand.training import held_out, recommended
from evenhand.training.held_out import WEIGHTS, Curve, Place
from evenhand.training.recommended import LEAGUES


def make(n=900, groups=2, seed=0, shift=0.4):
    """Groups that differ in one feature which also moves the target."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, groups, n)
    X = rng.normal(size=(n, 3))
    X[:, 0] += 1.2 * a
    y = X @ [1.0, 1.0, 0.5] + shift * a + rng.normal(size=n)
    return X, y, np.array(["p", "q", "r"])[a]


def model(criterion="independence", **options):
    # The default estimator takes ten times as long and is tested where it lives.
    options = {"measure_with": "logistic", "random_state": 0, **options}
    return eh.FairRegressor(criterion, **options)


@pytest.mark.parametrize(
    ("criterion", "attribute", "shift"),
    [
        ("independence", "blind", 0.4),
        ("independence", "known", 0.4),
        ("separation", "blind", 0.4),
        ("separation", "known", 0.4),
        ("sufficiency", "blind", -0.8),  # known, a plain score is sufficient already
    ],
)
def test_the_choice_meets_the_bound_closely_and_new_rows_agree(criterion, attribute, shift):
    X, y, a = make(4000, shift=shift)
    plain = model(criterion, fairness_weight=0.0, attribute=attribute)
    start = plain.fit(X[:3000], y[:3000], sensitive_features=a[:3000]).unfairness_
    bound = 0.3 * start
    fair = model(criterion, max_unfairness=bound, attribute=attribute)
    fair.fit(X[:3000], y[:3000], sensitive_features=a[:3000])
    assert 0.8 * bound <= fair.unfairness_ <= bound
    groups = a[3000:] if attribute == "known" else None
    s = fair.predict(X[3000:], sensitive_features=groups)
    new = getattr(eh, criterion)(y[3000:], s, sensitive_features=a[3000:], estimator="logistic")
    assert new < start
    assert abs(new - bound) < 0.06
    assert abs(r2_score(y[3000:], s) - fair.r2_) < 0.06


def test_the_most_accurate_candidate_is_chosen_and_the_others_are_named():
    X, y, a = make()
    fair = model(max_unfairness=0.02).fit(X, y, sensitive_features=a)
    reached = [t for t in fair.tried_ if t.reached]
    assert fair.choice_ == fair.tried_[0].name
    assert max(t.r2 for t in reached) <= fair.tried_[0].r2 + recommended.MARGIN
    assert {t.name for t in fair.tried_} == {c.name for c in LEAGUES["blind"]}
    for other in fair.tried_[1:]:
        assert other.name in fair.explanation_
        assert other.behind_stderr > 0
    assert max(map(len, fair.explanation_.splitlines())) <= 80
    frame = fair.to_frame()
    assert list(frame["name"]) == [t.name for t in fair.tried_]
    assert fair.measure_.interval[0] <= fair.unfairness_ <= fair.measure_.interval[1]


def test_with_a_weight_the_best_objective_wins():
    X, y, a = make()
    fair = model("separation", fairness_weight=2.0).fit(X, y, sensitive_features=a)
    gains = [t.r2 - 2.0 * t.unfairness for t in fair.tried_]
    assert gains[0] >= max(gains) - recommended.MARGIN
    assert fair.fairness_weight_ == 2.0
    assert fair.estimator_.fairness_weight == 2.0
    assert model().fit(X, y, sensitive_features=a).fairness_weight_ == 1.0


def test_transport_is_for_independence_only():
    X, y, a = make(400)
    fair = model("separation", max_unfairness=0.1).fit(X, y, sensitive_features=a)
    assert not [t for t in fair.tried_ if "transport" in t.name]


def test_a_bound_that_holds_without_fairness_costs_nothing():
    X, y, a = make(400)
    fair = model(max_unfairness=0.9).fit(X, y, sensitive_features=a)
    assert (fair.choice_, fair.fairness_weight_) == ("linear", 0.0)


def test_a_bound_out_of_reach_is_refused_or_the_fairest_kept(monkeypatch):
    # With strengths that end early no candidate gets far.
    monkeypatch.setattr(held_out, "WEIGHTS", WEIGHTS[: WEIGHTS.index(1.0) + 1])
    X, y, a = make(600)
    tight = model("independence", max_unfairness=1e-6)
    with pytest.raises(ValueError, match=r"No candidate has held-out independence ≤ 1e-06.*known"):
        tight.fit(X, y, sensitive_features=a)
    tight.set_params(on_unreachable="best")
    with pytest.warns(UserWarning, match="The closest is"):
        tight.fit(X, y, sensitive_features=a)
    assert tight.unfairness_ == min(t.unfairness for t in tight.tried_)


def test_units_of_the_features_and_of_the_target_do_not_matter():
    X, y, a = make(400)
    one = model(max_unfairness=0.02).fit(X, y, sensitive_features=a)
    other = model(max_unfairness=0.02).fit(
        X * [1e-6, 1.0, 1e6] + 3.0, 1e6 * y, sensitive_features=a
    )
    assert other.choice_ == one.choice_
    expected = 1e6 * one.predict(X)
    np.testing.assert_allclose(other.predict(X * [1e-6, 1.0, 1e6] + 3.0), expected, rtol=1e-3)


@pytest.fixture(scope="module")
def predicted():
    X, y, a = make(400)
    return model(max_unfairness=0.05).fit(X, y, sensitive_features=a).predict(X)


@pytest.mark.parametrize("kind", ["pandas", "polars", "sparse", "float32", "list"])
def test_all_forms_of_input_give_one_model(kind, predicted):
    X, y, a = make(400)
    rows, labels = X, a
    if kind == "pandas":
        rows = pd.DataFrame(X, columns=list("abc"))
        labels = pd.Series(a, dtype="category")
    elif kind == "polars":
        rows, labels = pl.DataFrame(X, schema=list("abc")), pl.Series(a)
    elif kind == "sparse":
        rows = sparse.csc_matrix(X)
    elif kind == "float32":
        rows = X.astype(np.float32)
    elif kind == "list":
        rows, labels = X.tolist(), a.tolist()
    found = model(max_unfairness=0.05).fit(rows, y, sensitive_features=labels)
    # Sparse columns are not centered, so posteriors differ in their intercepts' rounding.
    np.testing.assert_allclose(found.predict(rows), predicted, atol=2e-2 if kind != "pandas" else 0)


def test_weights_count_and_rows_of_weight_zero_do_not():
    X, y, a = make(500)
    weight = np.ones(500)
    weight[400:] = 0.0
    halves = np.arange(200), np.arange(200, 400)
    # Separation, as post-processors for independence make folds of their own.
    few = model("separation", max_unfairness=0.05, cv=[halves, halves[::-1]])
    kept = few.fit(X[:400], y[:400], sensitive_features=a[:400])
    train, test = np.r_[0:200, 400:500], np.arange(200, 400)
    folds = [(train, test), (np.arange(200, 400), train)]
    whole = clone(few).set_params(cv=folds)
    whole.fit(X, y, sensitive_features=a, sample_weight=weight)
    assert whole.choice_ == kept.choice_
    np.testing.assert_allclose(whole.predict(X), kept.predict(X), atol=2e-3)


def test_missing_groups_many_groups_proxies_and_clusters():
    X, y, a = make(800, groups=3)
    labels = a.astype(object)
    labels[::9] = None
    fair = model(max_unfairness=0.05).fit(X, y, sensitive_features=labels)
    assert fair.unfairness_ <= 0.05
    table = 0.8 * (a[:, None] == np.array(["p", "q", "r"])) + 0.2 / 3
    table /= table.sum(axis=1, keepdims=True)
    soft = model(max_unfairness=0.05).fit(X, y, sensitive_features=eh.Proxy(table))
    assert soft.unfairness_ <= 0.05
    place = np.repeat(np.arange(200), 4)
    tied = model(max_unfairness=0.05).fit(X, y, sensitive_features=a, cluster=place)
    assert tied.measure_.n_clusters == 200


def test_beyond_some_rows_the_choice_is_made_on_a_sample_and_the_fit_on_all(monkeypatch):
    X, y, a = make(3000)
    monkeypatch.setattr(recommended, "CHOICE_ROWS", 1000)
    seen = []
    refit = Curve.refit
    monkeypatch.setattr(
        Curve, "refit", lambda self, w, rows: seen.append(rows.n_rows) or refit(self, w, rows)
    )
    fair = model(max_unfairness=0.05).fit(X, y, sensitive_features=a)
    assert fair.measure_ is not None
    assert seen == [3000]
    assert len(fair.predict(X)) == 3000
    sampled = recommended._sample(resolve_groups(a, n_rows=3000), np.repeat(np.arange(300), 10), 0)
    assert 1000 <= len(sampled) < 1020
    assert (np.bincount(sampled // 10, minlength=300) % 10 == 0).all()


def test_it_repeats_exactly_and_survives_clone_and_pickle():
    X, y, a = make(400)
    one = model(max_unfairness=0.05).fit(X, y, sensitive_features=a)
    two = clone(one).fit(X, y, sensitive_features=a)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(one.predict(X), again.predict(X))
    assert again.explanation_ == one.explanation_


def test_predict_with_the_attribute_known_needs_it():
    X, y, a = make(400)
    fair = model(max_unfairness=0.05, attribute="known").fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`sensitive_features` must be given to predict"):
        fair.predict(X)
    assert np.isfinite(fair.score(X, y, sensitive_features=a))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_unfairness": 0.1, "fairness_weight": 1.0}, "must not both be given"),
        ({"max_unfairness": 0.0}, "`max_unfairness` must lie between 0 and 1, and above 0"),
        ({"max_unfairness": "a lot"}, "`max_unfairness` must lie between 0 and 1"),
        ({"fairness_weight": -1.0}, "`fairness_weight` must be a nonnegative number"),
        ({"certify": True}, "`certify` must be False without `max_unfairness`, got True. Hint"),
        ({"loss": "huber"}, "`family` must be one of"),
        ({"attribute": "guess"}, "`attribute` must be one of blind, known, got 'guess'"),
        ({"on_unreachable": "skip"}, "`on_unreachable` must be one of raise, best"),
        ({"measure_with": "eye"}, "`measure_with` must be one of"),
        ({"criterion": "calm"}, "`criterion` must be one of"),
    ],
)
def test_bad_parameters_are_named(options, message):
    X, y, a = make(100)
    with pytest.raises(ValueError, match=message):
        model(**options).fit(X, y, sensitive_features=a)


def test_groups_are_required_unless_nobody_asks_for_fairness():
    X, y, _ = make(100)
    with pytest.raises(ValueError, match="`sensitive_features` must be given unless"):
        model().fit(X, y)
    plain = model(fairness_weight=0).fit(X, y)
    assert "no fairness" in plain.explanation_
    assert plain.score(X, y) > 0.5


def test_a_certified_bound_is_met_by_the_end_of_the_interval():
    X, y, a = make(1500)
    usual, sure = (
        model(max_unfairness=0.03, certify=certify).fit(X, y, sensitive_features=a)
        for certify in (False, True)
    )
    assert usual.unfairness_bound_ == usual.unfairness_ <= 0.03
    assert sure.unfairness_bound_ <= 0.03
    # 95% for two or three candidates at once: beyond two standard errors.
    apart = sure.unfairness_bound_ - sure.unfairness_
    assert apart > 1.9 * sure.measure_.stderr
    assert sure.unfairness_ < usual.unfairness_
    assert sure.r2_ <= usual.r2_
    assert "at most 0.0" in sure.explanation_
    assert "with 95% confidence" in sure.explanation_
    assert "confidence" not in usual.explanation_
    assert "exceeded it on new people" in " ".join(usual.explanation_.split())
    assert "exceeded" not in sure.explanation_
    with pytest.raises(ValueError, match=r"for certain\. The closest is"):
        model(max_unfairness=1e-4, certify=True).fit(X, y, sensitive_features=a)


def test_losses_of_generalized_linear_models():
    X, _, a = make(1200)
    claims = np.random.default_rng(3).poisson(np.exp(0.4 * X[:, 0] - 0.5))
    fair = model(max_unfairness=0.02, loss="poisson").fit(X, claims, sensitive_features=a)
    assert isinstance(fair.estimator_, eh.FairGLM)
    assert fair.unfairness_ <= 0.02
    assert {t.name for t in fair.tried_} == {"linear", "posterior"}
    assert "D²" in fair.explanation_
    mean = fair.predict(X)
    assert (mean > 0).all()
    deviance = eh.FairGLM("poisson").accuracy.value(claims.astype(float), mean)
    assert fair.score(X, claims) == pytest.approx(deviance)
    with pytest.raises(ValueError, match="`y` must not be negative for the poisson loss"):
        model(loss="poisson").fit(X, claims - 1.0, sensitive_features=a)
    plain = model(fairness_weight=0, loss="poisson").fit(X, claims)
    alone = eh.FairGLM("poisson", fairness_weight=0).fit(plain.scaler_.transform(X), claims)
    np.testing.assert_allclose(plain.predict(X), alone.predict(plain.scaler_.transform(X)))


def test_what_the_audit_sees_beyond_the_term_is_said(monkeypatch):
    rng = np.random.default_rng(0)
    n = 3_000
    a = rng.integers(0, 2, n)
    # Groups differ in shape: two peaks against one, of the same mean and spread.
    peaks = rng.choice([-0.9, 0.9], n) + 0.44 * rng.normal(size=n)
    s = np.where(a == 1, peaks, rng.normal(size=n))
    X, y = s[:, None], s + 0.3 * rng.normal(size=n)
    model = eh.FairRegressor(fairness_weight=0.1, cv=3, random_state=0)
    fair = model.fit(X, y, sensitive_features=a).unseen_
    assert "more than the term" not in model.explanation_
    monkeypatch.setattr(
        recommended, "LEAGUES",
        {"blind": (recommended.Candidate("blunt", "a quadratic term"),)},
    )  # fmt: skip
    monkeypatch.setattr(
        recommended.Candidate, "build",
        lambda self, criterion, alpha, loss, seed: eh.FairRidge(criterion, basis="quadratic"),
    )  # fmt: skip
    blunt = model.fit(X, y, sensitive_features=a)
    assert blunt.unseen_ > fair + 0.03
    assert "more than the term that the model was trained against" in blunt.explanation_


def test_limits_of_several_attributes_are_met_together(tmp_path):
    rng = np.random.default_rng(0)
    n = 1_500
    sex, race = rng.choice(["f", "m"], n), rng.choice(["p", "q", "r"], n)
    X = rng.normal(size=(n, 4))
    X[:, 0] += sex == "m"
    X[:, 1] += 0.8 * (race == "q")
    y = X @ [1.0, 1.0, 0.5, 0.5] + rng.normal(size=n)
    groups = pd.DataFrame({"sex": sex, "race": race})
    limits = {"sex": 0.02, "race": 0.04}
    model = eh.FairRegressor(max_unfairness=limits, measure_with="logistic", cv=3, random_state=0)
    model.fit(X, y, sensitive_features=groups)
    assert {name: m.value <= limits[name] for name, m in model.measures_.items()} == {
        "sex": True, "race": True,
    }  # fmt: skip
    worst = max(limits, key=lambda name: model.measures_[name].value / limits[name])
    assert model.unfairness_ == pytest.approx(model.measures_[worst].value / limits[worst])
    assert 0.5 < model.unfairness_ <= 1.0
    assert "limit 0.02" in model.explanation_
    assert "limit 0.04" in model.explanation_
    # The measures are those of each attribute by itself.
    loose = eh.FairRegressor(
        max_unfairness={"race": 0.9}, measure_with="logistic", cv=3, random_state=0
    ).fit(X, y, sensitive_features=groups)
    plain = loose.measures_["race"].value
    assert model.measures_["race"].value < 0.5 * plain or plain <= 0.04
    loaded = eh.load(model.save(tmp_path / "m.json"))
    assert loaded.max_unfairness == limits
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(InputError, match=r"name columns of .* \(sex, race\), got age"):
        eh.FairRegressor(max_unfairness={"age": 0.1}).fit(X, y, sensitive_features=groups)
    with pytest.raises(InputError, match="lie between 0 and 1"):
        eh.FairRegressor(max_unfairness={"sex": 2}).fit(X, y, sensitive_features=groups)
    with pytest.raises(InputError, match="lie between 0 and 1"):
        eh.FairRegressor(max_unfairness={}).fit(X, y, sensitive_features=groups)
    with pytest.raises(ValueError, match="≤ sex 1e-09 for certain"):
        eh.FairRegressor(
            max_unfairness={"sex": 1e-9}, measure_with="logistic", cv=2, certify=True
        ).fit(X[:300], y[:300], sensitive_features=groups[:300])


def test_a_curve_finds_the_bound_between_its_weights(monkeypatch):
    """On a known curve, unfairness 1/(1 + w) and R² 1 − w/1000, the crossing is near the truth."""
    tried = []

    def at(self, weight):
        if weight not in self._seen:
            tried.append(weight)
            self._seen[weight] = Place(weight, 1 - weight / 1000, 1 / (1 + weight), np.zeros(1))
        return self._seen[weight]

    monkeypatch.setattr(Curve, "at", at)
    curve = Curve.__new__(Curve)
    curve._seen = {}
    place, reached = curve.meet(0.1)
    assert reached
    assert 8.0 <= place.fairness_weight <= 11.0  # the truth is 9, the line is in the logarithm
    assert len(tried) <= 7
    settled = curve.best_within(0.1)
    assert 0.095 <= settled.unfairness <= 0.1
    assert curve.meet(1.0)[0].fairness_weight == 0.0
    _, reached = curve.meet(1e-9)
    assert not reached
    assert max(WEIGHTS) in tried


@pytest.mark.parametrize("ends", [6.0, np.inf])
def test_a_curve_stops_where_scores_are_constant_or_no_fairer(monkeypatch, ends):
    """Unfairness falls to .03 at weight 4 and rises beyond; scores are constant from `ends` on."""

    def at(self, weight):
        u = 0.03 + 0.01 * abs(np.log2(max(weight, 2**-5) / 4))
        moves = np.array([0.002 if weight < 4 else 0.001])
        margin = np.inf if weight >= ends else 0.0
        place = Place(weight, 1 - weight / 1000, u, np.zeros(1), margin, {}, moves)
        return self._seen.setdefault(weight, place)

    monkeypatch.setattr(Curve, "at", at)
    curve = Curve.__new__(Curve)
    curve._seen = {}
    place, reached = curve.meet(0.032)
    assert (reached, 3.0 < place.fairness_weight <= 4.0) == (True, True)
    for _ in range(2):  # what was seen before changes no answer
        place, reached = curve.meet(0.01)
        assert (reached, place.fairness_weight) == (False, 4.0)
    assert max(curve._seen) <= 64.0


@parametrize_with_checks([eh.FairRegressor(fairness_weight=0)])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)
