"""Information about a measurement: closed forms, invariances, weights, clusters and tests."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import evenhand as eh
from evenhand.data.groups import resolve_groups
from evenhand.estimators import densities as density_fits
from evenhand.measures.exact_tests import exact_fairness_p_values


def normal(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    y = 0.5 * a + rng.normal(size=n)
    return a, y, 0.5 * a + 0.5 * y + rng.normal(size=n)


def partial(i, j, given, x):
    """Squared (partial) correlation in the sample."""
    rest = np.column_stack([np.ones(len(x)), *(x[:, k] for k in given)])
    left, right = (x[:, k] - rest @ np.linalg.lstsq(rest, x[:, k], rcond=None)[0] for k in (i, j))
    return float(np.corrcoef(left, right)[0, 1] ** 2)


@pytest.fixture(scope="module")
def audited():
    a, y, s = normal(2500)
    return eh.audit(y, s, sensitive_features=eh.Continuous(a, "age")), np.column_stack([a, y, s])


def test_normal_laws_give_the_squared_correlation(audited):
    audit, x = audited
    wanted = {"independence": (0, 2, []), "separation": (0, 2, [1]), "sufficiency": (0, 1, [2])}
    for name, columns in wanted.items():
        m = audit.measures[name]
        truth = partial(*columns, x)
        assert abs(m.value - truth) < 0.6 * m.stderr + 0.003
        assert m.interval[0] <= truth <= m.interval[1]
        assert m.value == pytest.approx(1 - np.exp(-2 * m.nats))
        assert m.p_value < 1e-6
        assert m.of == "measurement"


def test_standard_error_is_that_of_the_log_density_ratio(audited):
    # Var log p(a|s)/p(a) = ρ² for a normal law, and ∂v/∂I = 2(1 − ρ²).
    m = audited[0].independence
    assert m.stderr == pytest.approx(2 * (1 - m.value) * np.sqrt(m.value / 2500), rel=0.1)


def test_shown_in_text_page_and_json(audited, tmp_path):
    audit, _ = audited
    text = str(audit)
    assert "'age' as a measurement" in text
    assert "of its variance would" in text
    page = audit.to_html(tmp_path / "audit.html").read_text()
    assert "as a measurement" in page
    found = json.loads(json.dumps(audit.to_dict()))
    assert found["measures"]["independence"]["of"] == "measurement"
    assert len(found["groups"]["group"]) == 8


def test_only_the_order_of_the_values_counts():
    a, _, s = normal(1500, 1)
    plain = eh.independence(None, s, sensitive_features=eh.Continuous(a))
    outliers = np.exp(5 * a)
    outliers[np.argmax(a)] = 1e300
    assert eh.independence(None, s, sensitive_features=eh.Continuous(outliers)) == plain
    turned = eh.independence(None, -s, sensitive_features=eh.Continuous(-a))
    assert turned == pytest.approx(plain, abs=2e-3)


def test_a_constant_score_tells_nothing_and_a_copy_nearly_all():
    a, y, _ = normal(1000, 2)
    assert eh.independence(None, np.ones(1000), sensitive_features=eh.Continuous(a)) == 0.0
    assert eh.independence(None, a, sensitive_features=eh.Continuous(a)) > 0.95
    assert abs(eh.independence(None, y[::-1], sensitive_features=eh.Continuous(a))) < 0.01


def test_finer_never_tells_less_than_bands():
    rng = np.random.default_rng(3)
    a, s = rng.random((2, 3000))
    # A checkerboard: nothing smooth follows it.
    s = np.where((np.floor(4 * a) + np.floor(4 * s)) % 2 == 0, s, (s + 0.25) % 1.0)
    fine = eh.independence(None, s, sensitive_features=eh.Continuous(a), normalize=False)
    four = eh.independence(None, s, sensitive_features=np.floor(4 * a).astype(int), normalize=False)
    assert four > 0.5
    assert fine > four - 0.1


def test_whole_years_and_point_masses():
    a, _, s = normal(3000, 4)
    years = np.clip(np.round(10 * a + 40), 18, None)
    plain = eh.independence(None, s, sensitive_features=eh.Continuous(a), normalize=False)
    coarse = eh.independence(None, s, sensitive_features=eh.Continuous(years), normalize=False)
    assert coarse == pytest.approx(plain, abs=0.02)
    half = np.maximum(a, 0.0)
    fewer = eh.independence(None, s, sensitive_features=eh.Continuous(half), normalize=False)
    two = eh.independence(None, s, sensitive_features=a > 0, normalize=False)
    assert two - 0.01 < fewer < plain


def test_weights_count_as_rows_and_missing_rows_do_not():
    a, y, s = normal(2000, 5)
    weight = np.r_[np.full(1000, 2.0), np.zeros(1000)]
    alone = eh.separation(y[:1000], s[:1000], sensitive_features=eh.Continuous(a[:1000]))
    assert eh.separation(
        y, s, sensitive_features=eh.Continuous(a), sample_weight=weight
    ) == pytest.approx(alone, abs=1e-9)
    gaps = np.where(np.arange(2000) < 1000, a, np.nan)
    audit = eh.audit(y, s, sensitive_features=eh.Continuous(gaps))
    assert audit.n_unknown == 1000
    assert audit.separation.value == pytest.approx(alone, abs=1e-9)


def test_clusters_are_left_out_whole():
    a, y, s = normal(250, 6)
    copies = np.repeat(np.arange(250), 3)
    once = eh.audit(y, s, sensitive_features=eh.Continuous(a)).independence
    five = eh.audit(
        y[copies], s[copies], sensitive_features=eh.Continuous(a[copies]), cluster=copies
    ).independence
    assert five.value == pytest.approx(once.value, abs=0.02)
    assert five.stderr == pytest.approx(once.stderr, rel=0.25)
    assert five.n_clusters == 250


def test_leaving_a_row_out_is_what_refitting_without_it_gives():
    a, _, s = normal(300, 7)
    groups = resolve_groups(eh.Continuous(a), n_rows=300)
    one = np.ones(300)
    u, z = density_fits.make_grid(a, one), density_fits.make_grid(s, one)
    design = density_fits.Design.make(u, [z], groups)
    columns = design.columns(2, 2)
    fitted = density_fits.fit(design, 2, columns, 1.0, {})
    for row in (0, int(np.argmax(s)), 150):
        k = design.row_entry[row]
        weight = design.entry_weight.copy()
        weight[k] -= 1.0 / 300
        without = replace(design, entry_weight=weight)
        again = density_fits.fit(without, 2, columns, 1.0, {})
        assert fitted.outside[k] == pytest.approx(again.inside[k], abs=0.01)
        assert fitted.outside[k] > fitted.inside[k]


def test_the_gradient_of_the_fit_is_zero_at_its_end():
    a, _, s = normal(500, 8)
    weight = np.random.default_rng(0).random(500) + 0.5
    groups = resolve_groups(eh.Continuous(a), n_rows=500, sample_weight=weight)
    grids = [density_fits.make_grid(v, groups.weight) for v in (a, s)]
    design = density_fits.Design.make(grids[0], grids[1:], groups)
    columns = design.columns(3, 3)
    fitted = density_fits.fit(design, 3, columns, 1.0, {})
    psi = density_fits.splines(design.u)[:, 1:4]
    law = density_fits.Law(psi, np.log(design.base))
    f = design.functions(columns)

    def loss(theta):
        eta = f @ theta.T
        rows = law.log_z(eta)[design.entry_cell] - (
            eta[design.entry_cell] * psi[design.entry_u]
        ).sum(axis=1)
        return 500 * design.entry_weight @ rows + penalty(theta)

    degrees = density_fits.cubic(np.arange(1.0, 4))
    rough = np.add.outer(degrees, [density_fits.cubic(float(i)) for i, _ in columns])

    def penalty(theta):
        return 0.5 * ((np.maximum(rough, 0) + density_fits.RIDGE) * theta**2).sum()

    for j, k in ((0, 1), (1, 0), (2, 3)):
        step = np.zeros_like(fitted.theta)
        step[j, k] = 1e-4
        slope = (loss(fitted.theta + step) - loss(fitted.theta - step)) / 2e-4
        assert abs(slope) < 0.05


def p_values(criterion, columns, a, **options):
    groups = resolve_groups(eh.Continuous(a), n_rows=len(a), **options)
    return exact_fairness_p_values([criterion], columns, groups)[criterion].p_value


@pytest.mark.parametrize("kind", ["rows", "weights", "clusters"])
def test_size_of_the_tests(kind):
    rng = np.random.default_rng(9)
    found = {"independence": [], "separation": []}
    for _ in range(150):
        a, y, s = rng.normal(size=(3, 600))
        y = y + a
        options = {}
        if kind == "weights":
            options = {"sample_weight": rng.random(600) + 0.2}
        if kind == "clusters":
            options = {"cluster": np.arange(600) // 2}
        found["independence"].append(p_values("independence", {"s": s}, a, **options))
        found["separation"].append(p_values("separation", {"s": s + y, "y": y}, a, **options))
    for p in found.values():
        # 5 % of 150, and three standard errors above.
        assert np.mean(np.array(p) < 0.05) < 0.11


def test_power_and_what_is_not_tested():
    a, y, s = normal(500, 10)
    assert p_values("separation", {"s": s, "y": y}, a) < 1e-4
    spread = np.exp(0.5 * a) * np.random.default_rng(0).normal(size=500)
    assert p_values("independence", {"s": spread}, a) < 1e-4
    assert p_values("independence", {"s": np.ones(500)}, a) == 1.0
    assert p_values("separation", {"s": 2 * y, "y": y}, a) == 1.0
    assert np.isnan(p_values("independence", {"s": s}, a, cluster=np.arange(500) % 8))


def in_steps(shares, means):
    """1 − exp(−2·I(S;A)) of a normal score whose mean depends on A in steps."""
    grid = np.linspace(-9, 12, 4201)
    parts = np.exp(-0.5 * np.subtract.outer(grid, means) ** 2) / np.sqrt(2 * np.pi)
    ratio = parts * np.log(parts / (parts @ shares)[:, None]) @ shares
    return 1 - np.exp(-2 * ratio.sum() * (grid[1] - grid[0]))


def test_a_surcharge_in_whole_years_is_seen_by_classes():
    """S depends on age through "below 22 or above 75": I(S;A) is that of two normal groups."""
    rng = np.random.default_rng(0)
    age = np.floor(rng.uniform(18, 90, 6000))
    s = rng.normal(size=6000) + 1.5 * ((age < 22) | (age >= 75))
    truth = in_steps(np.array([53, 19]) / 72, [0.0, 1.5])
    low, high = eh.audit(None, s, sensitive_features=eh.Continuous(age)).independence.interval
    assert low < truth < high
    assert high - low < 0.05


def test_jumps_in_few_rows_are_found_by_a_tree():
    """A tariff of five bands says as much as the bands; dates in seconds are as good as years."""
    apart = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        age = rng.uniform(18, 90, 1000)
        band = np.digitize(age, [25, 40, 60, 75])
        s = rng.normal(size=1000) + np.array([2.0, 0.6, 0.0, 0.3, 1.2])[band]
        measure = eh.audit(None, s, sensitive_features=eh.Continuous(age)).independence
        known = eh.audit(None, s, sensitive_features=band).independence
        apart.append((measure.nats - known.nats) * 2 * (1 - measure.value) / measure.stderr)
    assert abs(np.mean(apart)) < 0.4
    born = eh.Continuous(1.8e9 - np.round(3.15e7 * age))
    again = eh.audit(None, s, sensitive_features=born).independence
    assert again.value == pytest.approx(measure.value, abs=0.1 * measure.stderr)


def test_too_few_clusters_for_any_density_leave_everything_open():
    rng = np.random.default_rng(1)
    cluster = np.arange(450) % 15
    a = rng.normal(size=15)[cluster] + 0.1 * rng.normal(size=450)
    s = a + 0.1 * rng.normal(size=450)
    with pytest.warns(UserWarning, match="clusters"):
        result = eh.audit(None, s, sensitive_features=eh.Continuous(a), cluster=cluster)
    assert result.independence.interval == (0.0, 1.0)
    assert result.independence.chosen == "not enough data"


@pytest.mark.parametrize("kind", ["rows", "weights", "clusters"])
def test_steps_of_the_target_do_not_make_the_test_reject(kind):
    """S ⟂ A given Y through the whole part of Y alone, which no spline follows."""
    rng = np.random.default_rng(3)
    n, p = 1500, []
    for _ in range(60):
        y = rng.uniform(0, 5, n)
        a, s = np.floor(y) + rng.normal(size=(2, n))
        options = {
            "rows": {},
            "weights": {"sample_weight": rng.random(n) + 0.2},
            "clusters": {"cluster": np.arange(n) // 2},
        }[kind]
        p.append(p_values("separation", {"s": s, "y": y}, a, **options))
    assert np.mean(np.array(p) < 0.05) <= 0.15


@pytest.mark.parametrize("seed", [0, 7])
def test_an_interval_given_steps_holds_zero_where_the_test_does_not_reject(seed):
    """Densities given a target with steps lean upwards: these two samples read 0.007 and 0.002."""
    rng = np.random.default_rng([5, seed])
    y = rng.uniform(0, 5, 2000)
    a, s = np.floor(y) + rng.normal(size=(2, 2000))
    result = eh.audit(y, s, sensitive_features=eh.Continuous(a)).separation
    assert result.p_value > 0.05
    assert result.interval[0] == 0.0
    assert not result.found
