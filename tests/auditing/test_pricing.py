"""Deviance, actual over expected and gaps against statsmodels, scikit-learn and plain sums."""

import pickle

import numpy as np
import pytest
from sklearn.metrics import d2_tweedie_score, mean_tweedie_deviance

import evenhand as eh
from evenhand.auditing.pricing import _band_of, price, read_loss
from evenhand.data.sample import Sample


def policies(n=800, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.choice(["f", "m"], n, p=[0.4, 0.6])
    e = rng.uniform(0.1, 1.0, n)
    x = rng.normal(size=n)
    rate = np.exp(-0.5 + 0.4 * x + 0.3 * (a == "f"))
    y = rng.poisson(rate * e).astype(float)
    return y, np.exp(-0.4 + 0.4 * x), a, e


def audit(y, s, a, **options):
    return eh.audit(y, s, sensitive_features=a, estimator="logistic", **options)


@pytest.fixture(scope="module")
def priced():
    y, s, a, e = policies()
    return audit(y, s, a, exposure=e, loss="poisson"), (y, s, a, e)


def test_poisson_deviance_is_statsmodels(priced):
    import statsmodels.api as sm

    found, (y, s, _, e) = priced
    family = sm.families.Poisson()
    assert found.pricing.deviance * len(y) == pytest.approx(family.deviance(y, e * s))
    null = sm.GLM(y, np.ones((len(y), 1)), family=family, exposure=e).fit()
    assert found.pricing.null_deviance * len(y) == pytest.approx(null.deviance)
    assert found.pricing.d2 == pytest.approx(1 - family.deviance(y, e * s) / null.deviance)


def test_actual_over_expected_by_hand_and_in_the_impact_table(priced):
    found, (y, s, a, e) = priced
    table = found.pricing.groups.set_index("group")
    impact = found.impact()
    for g in ("f", "m"):
        at = a == g
        assert table.loc[g, "actual"] == y[at].sum()
        assert table.loc[g, "expected"] == pytest.approx((e * s)[at].sum())
        assert table.loc[g, "exposure"] == pytest.approx(e[at].sum())
        ratio = y[at].sum() / (e * s)[at].sum()
        assert table.loc[g, "actual_expected"] == pytest.approx(ratio)
        number = impact.get("actual_expected", g)
        assert number.value == pytest.approx(ratio)
        # The impact table's error is that of means, n/(n − 1) and all.
        low, high = number.interval(0.95)
        assert table.loc[g, "actual_expected_low"] == pytest.approx(low, rel=2e-3)
        assert table.loc[g, "actual_expected_high"] == pytest.approx(high, rel=2e-3)
    means = {g: (e * s)[a == g].sum() / e[a == g].sum() for g in ("f", "m")}
    assert found.pricing.reference == "m"
    assert table.loc["f", "log_ratio_score"] == pytest.approx(np.log(means["f"] / means["m"]))
    rates = {g: y[a == g].sum() / e[a == g].sum() for g in ("f", "m")}
    gap = table.loc["f", "log_ratio_target"]
    assert gap == pytest.approx(np.log(rates["f"] / rates["m"]))
    assert table.loc["f", "log_ratio_target_low"] < gap < table.loc["f", "log_ratio_target_high"]
    # 1/√claims, about: counts vary a little more than Poisson where rates differ.
    half = gap - table.loc["f", "log_ratio_target_low"]
    claims = [y[a == g].sum() for g in ("f", "m")]
    assert half == pytest.approx(1.96 * np.sqrt(1 / claims[0] + 1 / claims[1]), rel=0.15)


def test_groups_and_r2_count_exposure(priced):
    found, (y, s, a, e) = priced
    groups = found.groups.set_index("group")
    f = a == "f"
    assert groups.loc["f", "mean_target"] == pytest.approx(y[f].sum() / e[f].sum())
    assert groups.loc["f", "mean_score"] == pytest.approx((e * s)[f].sum() / e[f].sum())
    constant = (e * y).sum() / (e * e).sum()
    r2 = 1 - ((y - e * s) ** 2).sum() / ((y - e * constant) ** 2).sum()
    assert found.r2 == pytest.approx(r2)
    # Information counts rows.
    plain = eh.independence(None, s, sensitive_features=a, estimator="logistic")
    assert found.independence.value == pytest.approx(plain)


def test_bands_are_fifths_and_sum_to_the_groups(priced):
    found, (y, s, a, e) = priced
    bands = found.pricing.bands
    assert list(bands["band"]) == [1, 2, 3, 4, 5] * 2
    by_group = bands.groupby("group")[["actual", "expected", "exposure"]].sum()
    for g in ("f", "m"):
        assert by_group.loc[g, "actual"] == pytest.approx(y[a == g].sum())
        assert by_group.loc[g, "expected"] == pytest.approx((e * s)[a == g].sum())
    shares = bands.groupby("band")["exposure"].sum() / e.sum()
    np.testing.assert_allclose(shares, 0.2, atol=0.005)
    row = bands[(bands["group"] == "f") & (bands["band"] == 3)].iloc[0]
    at = (a == "f") & (s >= row["score_low"]) & (s <= row["score_high"])
    assert row["actual_expected"] == pytest.approx(y[at].sum() / (e * s)[at].sum())


def test_equal_scores_stay_in_one_band():
    band, edges = _band_of(np.array([1.0] * 8 + [2.0, 3.0]), np.ones(10))
    assert [len(set(band[:8])), band.max()] == [1, 1]
    assert edges.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("loss", "power"), [("gamma", 2), ("tweedie", 1.7), ("normal", 0)])
def test_other_losses_with_weights_are_those_of_scikit_learn(loss, power):
    y, s, a, w = policies()
    y = y + 0.5 if loss == "gamma" else y
    found = audit(y, s, a, loss=loss, power=1.7, sample_weight=w).pricing
    expected = mean_tweedie_deviance(y, s, power=power, sample_weight=w)
    assert found.deviance == pytest.approx(expected)
    assert found.d2 == pytest.approx(d2_tweedie_score(y, s, power=power, sample_weight=w))


def test_the_error_of_d2_is_that_of_the_bootstrap():
    y, s, a, e = policies(600)
    found = audit(y, s, a, exposure=e, loss="poisson").pricing
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(400):
        at = rng.integers(0, len(y), len(y))
        draws.append(d2_tweedie_score((y / e)[at], s[at], power=1, sample_weight=e[at]))
    assert found.d2_stderr == pytest.approx(np.std(draws), rel=0.15)


def test_rows_of_one_cluster_count_once():
    y, s, a, e = policies(300)
    once = audit(y, s, a, exposure=e, loss="poisson").pricing
    label = np.repeat(np.arange(300), 2)
    twice = audit(
        *(np.repeat(v, 2) for v in (y, s, a)), exposure=np.repeat(e, 2), loss="poisson",
        cluster=label,
    ).pricing  # fmt: skip
    for name in ("actual_expected", "actual_expected_low", "actual_expected_high"):
        np.testing.assert_allclose(twice._groups[name], once._groups[name])
        np.testing.assert_allclose(twice._bands[name], once._bands[name], rtol=1e-6)


def test_certain_probabilities_are_groups():
    y, s, a, e = policies(300)
    soft = eh.Proxy(np.column_stack([a == "f", a == "m"]).astype(float), ["f", "m"])
    one = audit(y, s, a, exposure=e, loss="poisson").pricing
    two = audit(y, s, soft, exposure=e, loss="poisson").pricing
    for name in ("actual_expected", "log_ratio_score"):
        np.testing.assert_allclose(two._groups[name], one._groups[name], atol=1e-12)
    np.testing.assert_allclose(two._bands["actual"], one._bands["actual"])


def test_frequencies_are_people():
    y, s, a, e = policies(200)
    few = np.where(np.arange(200) % 25 == 0, 2, 1)
    wide = [np.repeat(v, few) for v in (y, s, a, e)]
    one = audit(y, s, a, exposure=e, loss="poisson", frequency=few).pricing
    assert one._groups == audit(*wide[:3], exposure=wide[3], loss="poisson").pricing._groups


def test_no_claims_at_all_have_the_bound_of_a_count():
    y, s, a, _ = policies(400)
    y[a == "f"] = 0
    table = audit(y, s, a, loss="poisson").pricing.groups.set_index("group")
    assert table.loc["f", "actual_expected"] == 0
    assert table.loc["f", "actual_expected_low"] == 0
    bound = -np.log(0.025) / s[a == "f"].sum()
    assert table.loc["f", "actual_expected_high"] == pytest.approx(bound)
    assert table.loc["f", "log_ratio_target"] == -np.inf
    assert np.isnan(audit(y, s, a, loss="tweedie").pricing.groups["actual_expected_high"][0])


def test_negative_predictions_are_named():
    y, s, a, _ = policies(300)
    s = s - 0.5
    found = audit(y, s, a, loss="poisson")
    n = int((s < 0).sum())
    assert found.n_negative == n > 0
    assert f"{n:,} scores ({100 * n / 300:.2g}%) are negative, but the target never is" in str(
        found
    )
    assert np.isnan(found.pricing.d2)
    assert found.pricing.deviance == np.inf
    assert f"not defined: {int((s <= 0).sum()):,} predictions are zero or below" in str(found)
    assert found.to_dict()["n_negative"] == n
    assert found.to_dict()["pricing"]["d2"] is None
    assert audit(y - 1, s, a).n_negative == 0


def test_an_exposure_alone_has_no_deviance():
    y, s, a, e = policies(300)
    found = audit(y, s, a, exposure=e)
    assert found.pricing.loss == ""
    assert "deviance" not in found.pricing._groups
    assert "deviance" not in str(found.pricing)
    assert audit(y, s, a).pricing is None


def test_text_and_pickle(priced):
    found, _ = priced
    text = str(found.pricing)
    assert "Poisson deviance" in text
    assert "gap of scores" in text
    assert max(map(len, text.splitlines())) <= 80
    assert text in str(found)
    again = pickle.loads(pickle.dumps(found))
    assert again.pricing._bands == found.pricing._bands


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exposure": np.zeros(300)}, r"`exposure` must be positive, got 0 in row 0. Hint: leave"),
        ({"exposure": np.full(300, -1.0)}, r"`exposure` must be positive, got -1 in row 0"),
        ({"exposure": np.ones(299)}, r"`exposure` must"),
        ({"loss": "cauchy"}, r"`loss` must be None or one of poisson, gamma, tweedie, normal, got"),
        ({"loss": "gamma"}, r"`y_true` must be positive for the gamma loss.*loss='tweedie'"),
        ({"loss": "tweedie", "power": 0.5}, r"`power` must be a number between 1 and 3, got 0.5"),
    ],
)
def test_what_cannot_be_priced(options, message):
    y, s, a, _ = policies(300)
    with pytest.raises(ValueError, match=message):
        audit(y, s, a, **options)


@pytest.mark.parametrize("options", [{"loss": "poisson"}, {"exposure": np.ones(300)}])
def test_without_a_target_there_is_no_price(options):
    _, s, a, _ = policies(300)
    with pytest.raises(ValueError, match=r"must be None without (a target|`y_true`)"):
        audit(None, s, a, **options)


def test_cells_have_no_exposure():
    y, s, a, e = policies(300)
    cells = eh.Cells.from_rows(y, s, sensitive_features=a)
    with pytest.raises(ValueError, match="`exposure` must be left out for cells: which needs rows"):
        eh.audit(cells, exposure=e)


def test_homogeneity_is_the_robust_score_test(priced):
    """Of the groups in a Poisson model with the expected amount as exposure."""
    from scipy import stats

    found, (y, s, a, e) = priced
    c = y.sum() / (e * s).sum()
    apart, f = y - c * e * s, a == "f"
    q = (e * s)[f].sum() / (e * s).sum()
    move = apart * (f - q)
    statistic = move.sum() ** 2 / np.square(move).sum()
    n = len(y)
    smaller = statistic * (1 - 1 / f.sum())  # about: each group has a factor n/(n − 1)
    assert found.pricing.homogeneity["groups"] == pytest.approx(
        stats.f.sf(smaller, 1, n - 1), rel=0.02
    )


def test_as_many_groups_as_rows_say_nothing_about_homogeneity():
    with pytest.warns(UserWarning, match="single row"):
        rows = Sample.read(
            np.array([2.0, 1.0]), np.array([1.0, 1.5]), sensitive_features=["a", "b"]
        )
    found = price(rows.known(), None, 0.95).homogeneity
    assert np.isnan(list(found.values())).all()


def test_the_dictionary_of_a_price_holds_what_is_public(priced):
    held = priced[0].pricing.to_dict()
    assert not [name for name in held if name.startswith("_")]
    assert {"d2", "homogeneity", "groups", "bands"} <= held.keys()


def test_homogeneity_keeps_its_level():
    rng = np.random.default_rng(0)
    p = []
    for _ in range(80):
        a = rng.choice(list("pqr"), 400, p=[0.7, 0.2, 0.1])
        s = rng.gamma(2.0, 0.5, 400)
        rows = Sample.read(rng.poisson(s).astype(float), s, sensitive_features=a).known()
        p.append(list(price(rows, None, 0.95).homogeneity.values()))
    assert np.all(np.mean(np.array(p) < 0.05, axis=0) <= 0.09)


def test_sufficiency_of_a_price_is_worded_by_actual_over_expected():
    rng = np.random.default_rng(0)
    a = rng.choice(["f", "m"], 4000)
    s = rng.gamma(2.0, 0.1, 4000)
    y = rng.poisson(s * np.where(a == "f", 1.24, 0.86)).astype(float)
    text = " ".join(str(audit(y, s, a, loss="poisson")).split())
    assert "Sufficiency is strongly violated: actual over expected is 0." in text
    assert "in group 'm' and 1." in text
    assert "It differs between groups (p < 0.001)" in text
    even = rng.poisson(s).astype(float)
    found = audit(even, s, a, loss="poisson")
    assert found.pricing.homogeneity["groups"] > 0.05
    assert "may be the same in all groups" in " ".join(str(found).split())
    assert found.to_dict()["pricing"]["homogeneity"]["bands"] > 0.001


@pytest.mark.parametrize(("loss", "count"), [("poisson", 2), ("normal", 0)])
def test_predictions_without_a_deviance_are_counted(loss, count):
    rng = np.random.default_rng(0)
    s = np.r_[-1.0, 0.0, 0.5, rng.uniform(1.0, 3.0, 97)]
    rows = Sample.read(np.ones(100), s, sensitive_features=np.arange(100) % 2).known()
    loss = read_loss(loss, None, rows.target)
    assert price(rows, loss, 0.95).n_not_positive == count


def test_a_bad_price_explains_nothing():
    rng = np.random.default_rng(0)
    a, y = rng.integers(0, 2, 400), rng.poisson(1.0, 400).astype(float)
    bad = eh.audit(y, np.full(400, 20.0) + a, sensitive_features=a, loss="poisson",
                   estimator="logistic").pricing  # fmt: skip
    assert bad.d2 < 0
    text = " ".join(str(bad).split())
    assert "predicts worse than one price for all: by Poisson deviance its D² is below zero" in text
    assert "explains" not in text
