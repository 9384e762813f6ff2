"""The audit as a whole: values, errors, words, forms of input, refusals."""

import json
import sys
import threading
import types

import numpy as np
import pandas as pd
import polars as pl
import pytest

import evenhand as eh
from distributions import bivariate_normal_scenario, random_scenario
from evenhand.auditing import audits as auditing
from evenhand.auditing.audits import r2_of
from evenhand.auditing.figures import some_rows
from evenhand.auditing.group_tables import summarize_groups
from evenhand.data.criteria import CRITERIA
from evenhand.data.groups import resolve_groups
from evenhand.data.sample import Sample
from evenhand.measures.entropies import estimate_entropies, get_estimator
from evenhand.measures.measures import measure, root_interval


@pytest.fixture(scope="module")
def data():
    return eh.datasets.make_bivariate_normal(3000, random_state=0)


@pytest.fixture(scope="module")
def audit(data):
    return eh.audit(data.y, data.s, sensitive_features=data.a, estimator="logistic")


@pytest.mark.parametrize("name", list(CRITERIA))
def test_measures_agree_with_the_single_functions(data, audit, name):
    measure = getattr(audit, name)
    single = getattr(eh, name)
    options = {"sensitive_features": data.a, "estimator": "logistic"}
    assert measure.value == pytest.approx(single(data.y, data.s, **options))
    assert measure.nats == pytest.approx(single(data.y, data.s, normalize=False, **options))
    assert measure.value == pytest.approx(measure.nats / measure.normalizer)
    assert measure.interval[0] <= measure.value <= measure.interval[1]
    assert measure.n == 3000
    assert float(measure) == measure.value
    means, covariances = (
        ((0.0, 0.0), (0.8, 1.0)),
        (((1.0, 0.7), (0.7, 1.0)), ((1.0, 0.4), (0.4, 0.8))),
    )
    truth = bivariate_normal_scenario(0.4, means, covariances).truth.value(name)
    assert abs(measure.value - truth) < 4 * measure.stderr


def test_chain_rule(audit):
    """I(S;A) + I(Y;A|S) = I(Y;A) + I(S;A|Y) = I(S,Y;A), in nats."""
    joint = audit.independence.nats + audit.sufficiency.nats
    target = audit.independence.normalizer - audit.separation.normalizer
    assert joint == pytest.approx(target + audit.separation.nats)


def test_standard_errors_match_the_spread_over_samples():
    scenario = random_scenario("bivariate_normal", 3)
    found = {name: [] for name in CRITERIA}
    for seed in range(60):
        y, s, a = scenario.sample(1000, seed)
        audit = eh.audit(y, s, sensitive_features=a, estimator="logistic")
        for m in audit.measures.values():
            found[m.criterion].append((m.value, m.stderr))
    for values in found.values():
        value, stderr = np.array(values).T
        assert stderr.mean() == pytest.approx(value.std(ddof=1), rel=0.35)


def test_influence_of_the_ratio_is_its_derivative(data):
    """Weight moved onto one row changes the value by its influence."""
    groups = resolve_groups(data.a, n_rows=3000)
    criterion = CRITERIA["separation"]
    found = estimate_entropies(
        [criterion], {"s": data.s, "y": data.y}, groups, get_estimator("logistic")
    )
    given, joint = (found.rows[c].influence for c in (criterion.given, criterion.joint))

    def value(w):
        return 1 - (w @ joint) / (w @ given)

    w = np.full(3000, 1 / 3000)
    direction = -w.copy()
    direction[7] += 1.0
    step = 1e-6
    numeric = (value(w + step * direction) - value(w - step * direction)) / (2 * step)
    h_given, h_joint = given.mean(), joint.mean()
    analytic = (given[7] * (h_joint / h_given) - joint[7]) / h_given
    assert numeric == pytest.approx(analytic, rel=1e-6)


@pytest.mark.parametrize("value", [-3.0, -0.5, -0.1, 0.0, 0.01])
@pytest.mark.parametrize("stderr", [1e-6, 0.01, 0.4])
def test_an_interval_never_claims_certainty_of_fairness(value, stderr):
    """An estimate far below 0, as a misfit to few rows can be, is no evidence of anything."""
    low, high = root_interval(value, 1.96 * stderr)
    assert 0.0 <= low < high
    assert high > stderr


def test_equal_means_and_unequal_spread_are_found():
    rng = np.random.default_rng(0)
    a = np.repeat([0, 1], 1000)
    y = rng.normal(size=2000)
    s = rng.normal(size=2000) * np.where(a == 1, 3.0, 1.0)
    audit = eh.audit(y, s, sensitive_features=a)
    assert audit.independence.value > 0.1
    assert audit.independence.p_value < 1e-6
    assert "strongly violated" in str(audit)


def test_fair_scores_read_as_fair():
    rng = np.random.default_rng(1)
    y = rng.normal(size=20_000)
    audit = eh.audit(y, y + rng.normal(size=20_000), sensitive_features=rng.integers(0, 2, 20_000))
    text = str(audit)
    assert "violated:" not in text
    for m in audit.measures.values():
        assert m.interval[0] == 0.0
        assert m.p_value > 0.01


def test_tests_and_tables_beside_the_entropies_change_nothing(data, audit, monkeypatch):
    monkeypatch.setattr(auditing, "EXACT_RANK_ROWS", 100)
    monkeypatch.setattr(auditing, "PARALLEL_ROWS", 100)
    monkeypatch.setenv("EVENHAND_NUM_THREADS", "2")
    used = []

    def watched(*arguments):
        used.append(threading.current_thread() is threading.main_thread())
        return summarize_groups(*arguments)

    monkeypatch.setattr(auditing, "summarize_groups", watched)
    beside = eh.audit(data.y, data.s, sensitive_features=data.a, estimator="logistic")
    assert used == [False]
    assert beside.to_dict() == audit.to_dict()


def test_words_and_tables(audit):
    text = str(audit)
    assert "3,000 rows, 2 groups" in text
    assert "removes" in text
    assert "95% interval" in text
    assert "%" in audit.separation.meaning
    frame = audit.to_frame()
    assert list(frame["criterion"]) == list(CRITERIA)
    assert isinstance(audit.to_frame("polars"), pl.DataFrame)
    groups = audit.groups
    assert len(groups) == 2
    assert groups["share"].sum() == pytest.approx(1.0)


def test_to_dict_is_json_and_versioned(audit):
    text = json.dumps(audit.to_dict(), allow_nan=False)
    back = json.loads(text)
    assert back["version"] == 1
    assert back["measures"]["separation"]["value"] == audit.separation.value
    assert back["groups"]["group"] == ["0", "1"]


def test_without_a_target_only_independence(data):
    audit = eh.audit(None, data.s, sensitive_features=data.a)
    assert audit.separation is None
    assert audit.sufficiency is None
    assert list(audit.measures) == ["independence"]
    assert "Separation" not in str(audit)
    json.dumps(audit.to_dict(), allow_nan=False)


def test_several_models(data):
    scores = {"one": data.s, "two": np.zeros_like(data.s)}
    audits = eh.audit(data.y, scores, sensitive_features=data.a)
    assert list(audits) == ["one", "two"]
    assert len(audits) == 2
    assert audits["two"].independence.value == 0.0
    assert audits["two"].separation.value == 0.0
    # A constant score leaves all that the target tells about the group.
    assert audits["two"].sufficiency.value > 0.05
    assert audits["one"].independence.value == pytest.approx(
        eh.independence(None, data.s, sensitive_features=data.a)
    )
    frame = eh.audit(data.y, pd.DataFrame(scores), sensitive_features=data.a).to_frame()
    assert set(frame["model"]) == {"one", "two"}
    assert "two" in str(audits)
    found = audits.to_dict()
    assert (found["format"], found["version"], found["kind"]) == ("evenhand.audits", 1, "model")
    assert found["audits"] == {name: audits[name].to_dict() for name in ("one", "two")}
    with pytest.raises(KeyError, match="there are one, two"):
        audits["three"]


def test_several_attributes(data):
    sex = np.where(np.arange(3000) % 2 == 0, "f", "m")
    frame = pd.DataFrame({"race": data.a, "sex": sex})
    crossed = eh.audit(data.y, data.s, sensitive_features=frame)
    assert crossed.labels == ("0 × f", "0 × m", "1 × f", "1 × m")
    each = crossed.attributes
    assert list(each) == ["race", "sex"]
    assert each["race"].separation.value > each["sex"].separation.value


def test_frames_whose_columns_are_numbers(data):
    scores = np.column_stack([data.s, np.zeros_like(data.s)])
    audits = eh.audit(data.y, pd.DataFrame(scores), sensitive_features=pd.Series(data.a, name=3))
    assert list(audits) == ["0", "1"]
    assert audits["1"].independence.value == 0.0
    assert audits["0"].sensitive_name == "3"
    attributes = pd.DataFrame(np.column_stack([data.a, np.arange(3000) % 2]))
    crossed = eh.audit(data.y, data.s, sensitive_features=attributes)
    assert list(crossed.attributes) == ["0", "1"]
    assert crossed.sensitive_name == "0 × 1"


def test_unknown_groups_are_counted(data):
    a = data.a.astype(float)
    a[:300] = np.nan
    audit = eh.audit(data.y, data.s, sensitive_features=a)
    assert audit.n_unknown == 300
    assert audit.independence.n == 2700
    assert "300 rows (10.0%) have no known group" in str(audit)


def test_weights_and_proxies(data):
    proxy = eh.Proxy(np.where(data.a[:, None] == [0, 1], 0.9, 0.1), ["x", "y"])
    soft = eh.audit(data.y, data.s, sensitive_features=proxy, estimator="logistic")
    hard = eh.audit(data.y, data.s, sensitive_features=data.a, estimator="logistic")
    assert 0 < soft.independence.value < hard.independence.value
    w = np.ones(3000)
    w[:100] = 20.0
    weighted = eh.audit(data.y, data.s, sensitive_features=data.a, sample_weight=w)
    assert weighted.independence.n_effective < 3000
    assert weighted.independence.stderr > hard.independence.stderr


@pytest.mark.parametrize("estimator", ["auto", "logistic", "lspc", "knn"])
def test_hard_inputs(estimator):
    """Separated groups, y equal to s, duplicated rows, extreme tails: finite, and right."""
    rng = np.random.default_rng(0)
    n = 600
    a = np.repeat([0, 1], n // 2)
    y = rng.normal(size=n)
    apart = eh.audit(y, a * 10.0 + rng.random(n), sensitive_features=a, estimator=estimator)
    floor = 0.75 if estimator == "lspc" else 0.95
    assert floor < apart.independence.value <= 1.0 + 1e-9
    assert all(
        np.isfinite(m.value) and np.isfinite(m.stderr) == m.defined for m in apart.measures.values()
    )
    assert apart.independence.defined
    assert apart.separation.defined
    same = eh.audit(y, y, sensitive_features=a, estimator=estimator)
    assert same.separation.value == pytest.approx(0.0, abs=0.02)
    assert same.sufficiency.value == pytest.approx(0.0, abs=0.02)
    wild = eh.audit(y, rng.standard_cauchy(n) * 1e100, sensitive_features=a, estimator=estimator)
    assert all(np.isfinite(m.value) for m in wild.measures.values())


@pytest.mark.filterwarnings("ignore:.*single row:UserWarning")
def test_many_groups_and_a_tiny_one():
    rng = np.random.default_rng(0)
    n = 2000
    a = rng.integers(0, 40, n)
    y = rng.normal(size=n)
    s = y + rng.normal(size=n)
    many = eh.audit(y, s, sensitive_features=a)
    assert len(many.groups) == 40
    assert many.independence.value < 0.02
    a = np.zeros(n, dtype=int)
    a[:3] = 1
    tiny = eh.audit(y, s, sensitive_features=a)
    assert all(np.isfinite(m.value) for m in tiny.measures.values())


@pytest.mark.parametrize("estimator", ["auto", "logistic", "lspc", "knn", "fourier"])
def test_nothing_is_left_to_tell_once_the_group_is_given_away(estimator):
    """0/0, which no estimator may turn into a number; also where the groups are far apart."""
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 300)
    y = rng.normal(size=300) + a
    s = y + rng.normal(size=300)
    for give_away in (a.astype(float), s + 1000.0 * a):
        scored = eh.audit(y, give_away, sensitive_features=a, estimator=estimator)
        assert abs(scored.sufficiency.value) < 0.01
        leaked = eh.audit(give_away, s, sensitive_features=a, estimator=estimator)
        assert abs(leaked.separation.value) < 0.01


def test_a_small_group_that_is_given_away_leaves_nothing_to_tell():
    rng = np.random.default_rng(5)
    a = (np.arange(1000) < 10).astype(int)
    y = rng.normal(size=1000)
    found = eh.audit(y, y + rng.normal(size=1000) + 50 * a, sensitive_features=a)
    assert found.independence.value > 0.9
    assert found.sufficiency.value == 0.0
    assert "Sufficiency has nothing to measure here: the score alone reveals" in str(found)


def test_zero_weight_group_is_left_out(data):
    a = np.where(data.a == 0, "x", "y").astype(object)
    a[:50] = "z"
    w = np.where(a == "z", 0.0, 1.0)
    with pytest.warns(UserWarning, match="'z' has no rows with positive weight"):
        audit = eh.audit(data.y, data.s, sensitive_features=a, sample_weight=w)
    assert audit.labels == ("x", "y")


@pytest.mark.parametrize("estimator", ["auto", "logistic", "knn"])
def test_rows_without_weight_count_for_nothing(data, estimator):
    """Their scores lie elsewhere, which ranks and knots would see."""
    kept = np.arange(3000) % 3 == 0
    y, s = np.where(kept, data.y, 50.0 + data.y), np.where(kept, data.s, -(data.s**3))
    a = data.a.astype(object)
    a[:300] = None
    options = {"estimator": estimator, "random_state": 0}
    w = np.where(kept, 2.0, 0.0)
    found = eh.audit(y, s, sensitive_features=a, sample_weight=w, **options)
    alone = eh.audit(y[kept], s[kept], sensitive_features=a[kept], sample_weight=w[kept], **options)
    left_out = "2,000 rows of weight zero are left out."
    assert {*found.remarks} - {"Rows count by the sample weights."} == {*alone.remarks, left_out}
    assert found.to_dict() | {"remarks": []} == alone.to_dict() | {"remarks": []}
    assert (found.n_rows, found.n_unknown) == (1000, 100)
    for m in found.measures.values():
        value = getattr(eh, m.criterion)(
            y, s, sensitive_features=a, sample_weight=w, estimator=estimator
        )
        assert value == m.value


@pytest.mark.parametrize("scale", [1e307, 1e-320])
@pytest.mark.parametrize("estimator", ["auto", "logistic", "lspc", "knn", "fourier"])
def test_weights_of_any_size(data, estimator, scale):
    rows = slice(0, 300)
    y, s, options = data.y[rows], data.s[rows], {"sensitive_features": data.a[rows]}
    options["estimator"] = estimator
    found = eh.audit(y, s, sample_weight=np.full(300, scale), **options)
    plain = eh.audit(y, s, sample_weight=np.ones(300), **options)
    assert found.to_dict() == plain.to_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confidence_level": 1.0}, "`confidence_level` must lie between 0 and 1"),
        ({"confidence_level": "0.95"}, "between 0 and 1, got '0.95'. Hint: a number such as 0.95"),
        ({"confidence_level": None}, "`confidence_level` must lie between 0 and 1, got None"),
        ({"random_state": -1}, "`random_state` must be a nonnegative integer, .* got -1. Hint: an"),
        ({"random_state": "0"}, "`random_state` must be a nonnegative integer, .* got '0'"),
        ({"random_state": True}, "`random_state` must be a nonnegative integer, .* got True"),
        ({"random_state": 1.5}, "`random_state` must be a nonnegative integer, .* got 1.5"),
        ({"estimator": "magic"}, "`estimator` must be one of auto"),
        ({"y_pred": {}}, "must hold at least one model"),
        ({"y_true": [1.0, 2.0]}, "`y_true` must have one entry per row"),
        ({"y_pred": "text"}, "`y_pred` must hold one value or line per row, got the name .text."),
        ({"y_pred": {"a": range(3000), "b": [1.0]}}, r"`y_pred\['b'\]` must have one entry per"),
    ],
)
def test_refusals(data, change, message):
    arguments = {"y_true": data.y, "y_pred": data.s, "sensitive_features": data.a, **change}
    y_true, y_pred = arguments.pop("y_true"), arguments.pop("y_pred")
    with pytest.raises(ValueError, match=message):
        eh.audit(y_true, y_pred, **arguments)


def test_a_proxy_is_one_attribute(data):
    proxy = eh.Proxy(np.eye(2)[data.a], ["x", "y"])
    assert eh.audit(data.y, data.s, sensitive_features=proxy, estimator="lspc").attributes == {}


@pytest.mark.parametrize("form", [dict, pd.DataFrame])
def test_names_that_are_the_same_as_text_are_refused(data, form):
    names = r"must have names that differ as text, got 1 and '1'\. Hint: rename one of them"
    with pytest.raises(ValueError, match="`y_pred` " + names):
        eh.audit(data.y, form({1: data.s, "1": -data.s}), sensitive_features=data.a)
    attributes = form({1: data.a, "1": 1 - data.a})
    with pytest.raises(ValueError, match="`sensitive_features` " + names):
        eh.audit(data.y, data.s, sensitive_features=attributes)


def test_no_seed_is_seed_zero(data):
    options = {"sensitive_features": data.a[:300], "estimator": "fourier"}
    first = eh.audit(data.y[:300], data.s[:300], **options)
    assert eh.audit(data.y[:300], data.s[:300], random_state=0, **options) == first
    assert eh.audit(data.y[:300], data.s[:300], random_state=1, **options) != first


SEEDS = [
    lambda: 2**32 - 1,
    lambda: 2**40,
    lambda: np.int64(3),
    lambda: np.random.default_rng(3),
    lambda: np.random.RandomState(3),
    lambda: np.random.SeedSequence(3),
]


@pytest.mark.parametrize(
    ("estimator", "make"), [*(("logistic", make) for make in SEEDS), ("fourier", SEEDS[3])]
)
def test_every_kind_of_seed_repeats(data, estimator, make):
    rows = slice(0, 300)
    y, s = data.y[rows], data.s[rows]
    # Groups that the score does not tell: p-values that draws of permutations move.
    options = {"sensitive_features": data.a[rows][::-1], "estimator": estimator}
    first = eh.audit(y, s, random_state=make(), **options)
    assert eh.audit(y, s, random_state=make(), **options) == first
    assert first != eh.audit(y, s, **options)


@pytest.mark.parametrize("size", [1e200, 1e300, 1e308])
def test_accuracy_of_enormous_numbers_is_not_defined(data, size):
    y, s = data.y / np.abs(data.y).max(), data.s / np.abs(data.s).max()
    plain = resolve_groups(data.a, n_rows=3000)
    weighted = resolve_groups(data.a, n_rows=3000, sample_weight=np.arange(1, 3001))
    for groups in (plain, weighted):
        assert np.isnan(r2_of(Sample(groups, size * s, y)))
        assert np.isnan(r2_of(Sample(groups, s, size * y)))
        assert np.isnan(r2_of(Sample(groups, size * s, size * y)))
    audit = eh.audit(y, size * s, sensitive_features=data.a, estimator="logistic")
    assert np.isnan(audit.r2)
    assert audit.to_dict()["r2"] is None


@pytest.mark.parametrize("estimator", ["auto", "logistic"])
def test_a_handful_of_rows_proves_nothing(estimator):
    """With as many parameters as rows any group looks different by chance."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        a = (np.arange(1000) < 3).astype(int)
        y = rng.normal(size=1000)
        s = y + rng.normal(size=1000)
        groups = resolve_groups(a, n_rows=1000)
        found = estimate_entropies(
            CRITERIA.values(), {"s": s, "y": y}, groups, get_estimator(estimator)
        )
        for criterion in CRITERIA.values():
            assert measure(criterion, found, 0.95, float("nan"), estimator).interval[0] == 0.0


def test_rows_for_figures_are_spread_over_each_group():
    codes = np.r_[np.zeros(9000, int), np.ones(30, int), np.zeros(970, int)]
    groups = resolve_groups(codes, n_rows=10_000)
    kept = some_rows(Sample(groups, np.arange(10_000.0)), limit=1000)
    first = np.flatnonzero(codes == 0)[np.linspace(0, 9969, 500).astype(int)]
    expected = np.sort(np.r_[first, np.flatnonzero(codes == 1)])
    np.testing.assert_array_equal(kept.scores, expected)


def test_what_mlflow_is_told(monkeypatch):
    """The three calls, by a module of their names; they were tried with MLflow 3.17."""
    told = {}
    fake = types.ModuleType("mlflow")
    fake.log_metrics = told.update
    fake.log_dict = fake.log_text = lambda held, name: told.update({name: held})
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    rng = np.random.default_rng(0)
    audit = eh.audit(
        None, rng.normal(size=300), sensitive_features=rng.integers(0, 2, 300), estimator="logistic"
    )
    audit.log_mlflow("fair")
    assert told["fair.independence"] == audit.independence.value
    assert {"fair.independence.stderr", "fair.independence.p_value"} < set(told)
    assert told["fair.json"]["format"] == "evenhand.audit"
    assert told["fair.html"].lower().startswith("<!doctype html>")


def test_masked_values_are_unknown_in_each_attribute(data):
    other = np.arange(len(data.a)) % 2
    hidden = np.column_stack([np.arange(len(data.a)) % 3 == 0, np.zeros(len(data.a), bool)])
    masked = np.ma.MaskedArray(np.column_stack([data.a, other]), hidden)
    part = eh.audit(data.y, data.s, sensitive_features=masked).attributes["attribute 0"]
    assert part.n_unknown == hidden.sum()
    alone = eh.audit(data.y, data.s, sensitive_features=masked[:, 0])
    assert part.independence.value == alone.independence.value
