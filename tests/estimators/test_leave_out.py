"""Losses without the row's cluster, against refitting without it."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from evenhand import LSPC, Logistic
from evenhand.data.groups import Proxy, resolve_groups
from evenhand.estimators import _leave_out
from evenhand.estimators.estimation import largest_loss
from evenhand.kernels.basis import get_basis

CONDITIONS = [("s",), ("s", "y")]


def _case(n=300, n_groups=3, n_clusters=40, seed=0, weighted=False, proxy=False):
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, n_clusters, n)
    a = rng.integers(0, n_groups, n)
    shared = rng.normal(size=n_clusters)[cluster]
    y = shared + rng.normal(size=n) + 0.4 * a
    s = 0.5 * y + rng.normal(size=n) - 0.3 * a
    weight = rng.uniform(0.3, 3.0, n) if weighted else None
    labels = a
    if proxy:
        labels = Proxy(0.2 / n_groups + 0.8 * np.eye(n_groups)[a])
    groups = resolve_groups(labels, n_rows=n, sample_weight=weight, cluster=cluster)
    return {"s": s, "y": y}, groups


def _phi(variables, condition, weight):
    z = np.column_stack([variables[name] for name in condition])
    z = z - np.average(z, axis=0, weights=weight)
    z = z / np.sqrt(np.average(z**2, axis=0, weights=weight))
    return get_basis("quadratic", len(condition))(z)


def _each_cluster(groups):
    for c in range(groups.n_units):
        yield groups.cluster != c, np.flatnonzero(groups.cluster == c)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", [{}, {"weighted": True}, {"proxy": True}, {"n_groups": 2}])
def test_least_squares_equals_refitting(condition, kind):
    variables, groups = _case(**kind)
    found = LSPC(losses="leave-one-out").row_losses(variables, [condition], groups)[condition]
    w = np.ones(groups.n_known) if groups.weight is None else groups.weight
    phi, t = _phi(variables, condition, w), groups.membership()
    expected = np.empty(len(phi))
    for rest, out in _each_cluster(groups):
        left = phi[rest].T * w[rest]
        weights = np.linalg.solve(left @ phi[rest] + 1e-3 * np.eye(phi.shape[1]), left @ t[rest])
        share = np.logaddexp(0.0, 30 * phi[out] @ weights)
        expected[out] = -(t[out] * np.log(share / share.sum(axis=1, keepdims=True))).sum(axis=1)
    expected = np.minimum(expected, largest_loss(groups))
    np.testing.assert_allclose(found.value, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", [{}, {"weighted": True}, {"n_groups": 2}])
def test_one_newton_step_is_close_to_refitting(condition, kind):
    variables, groups = _case(n=600, n_clusters=60, **kind)
    found = Logistic(losses="leave-one-out").row_losses(variables, [condition], groups)[condition]
    inside = Logistic(losses="in-sample").row_losses(variables, [condition], groups)[condition]
    w = np.ones(groups.n_known) if groups.weight is None else groups.weight
    phi = _phi(variables, condition, w)[:, 1:]
    expected = np.empty(len(phi))
    for rest, out in _each_cluster(groups):
        model = LogisticRegression(C=1e3, max_iter=2000, tol=1e-8)
        model.fit(phi[rest], groups.codes[rest], w[rest])
        proba = model.predict_proba(phi[out])
        expected[out] = -np.log(proba[np.arange(len(out)), groups.codes[out]])
    gap = np.average(expected - inside.value, weights=w)
    assert np.average(found.value - expected, weights=w) == pytest.approx(0.0, abs=0.1 * gap)
    assert np.abs(found.value - expected).max() < 0.1


@pytest.mark.parametrize("model", [Logistic, LSPC])
@pytest.mark.parametrize("losses", ["in-sample", "leave-one-out", "balanced"])
def test_rows_written_twice_are_the_rows_themselves(model, losses):
    variables, _ = _case()
    a = np.arange(300) % 3
    twice = np.repeat(np.arange(300), 2)
    once = resolve_groups(a, n_rows=300)
    double = resolve_groups(a[twice], n_rows=600, cluster=twice)
    # The penalty is in units of rows.
    single = model(losses=losses, kappa=1e-3).row_losses(variables, CONDITIONS, once)
    repeated = {name: column[twice] for name, column in variables.items()}
    doubled = model(losses=losses, kappa=2e-3).row_losses(repeated, CONDITIONS, double)
    for condition in CONDITIONS:
        expected = single[condition].value[twice]
        # Leverage is cut off a little differently for rows and for clusters.
        np.testing.assert_allclose(doubled[condition].value, expected, rtol=1e-3, atol=1e-4)


def test_clusters_in_several_blocks_and_in_parts(monkeypatch):
    variables, groups = _case()
    expected = Logistic().row_losses(variables, CONDITIONS, groups)
    monkeypatch.setattr(_leave_out, "HELD", 3 * 12 * 12)
    found = Logistic().row_losses(variables, CONDITIONS, groups)
    for condition in CONDITIONS:
        np.testing.assert_allclose(found[condition].value, expected[condition].value, rtol=1e-12)
    monkeypatch.setattr(_leave_out, "MOST_OPERATIONS", 0)
    monkeypatch.setattr(_leave_out, "LEAST_PARTS", 10)
    part = _leave_out.parts(groups.cluster, 6)
    assert len(np.unique(part)) == 10
    whole = np.unique(np.column_stack([groups.cluster, part]), axis=0)
    assert len(whole) == groups.n_units  # no cluster in two parts
    rough = Logistic().row_losses(variables, CONDITIONS, groups)
    for condition in CONDITIONS:
        assert rough[condition].value.mean() == pytest.approx(
            expected[condition].value.mean(), abs=0.01
        )


def test_a_group_in_one_cluster_costs_a_bounded_loss():
    variables, _ = _case()
    rng = np.random.default_rng(1)
    cluster = rng.integers(0, 40, 300)
    a = (cluster == 7).astype(int)
    groups = resolve_groups(a, n_rows=300, cluster=cluster)
    for model in (Logistic, LSPC):
        inside = model(losses="in-sample").row_losses(variables, CONDITIONS, groups)
        outside = model(losses="leave-one-out").row_losses(variables, CONDITIONS, groups)
        for condition, found in outside.items():
            assert np.isfinite(found.value).all()
            assert found.value.max() <= largest_loss(groups)
            # Whoever has never seen the group expects it less.
            assert (found.value > inside[condition].value + 0.15)[a == 1].all()
