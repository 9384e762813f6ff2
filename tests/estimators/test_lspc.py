"""LSPC: closed form, exact leave-one-out, the softplus, and its parameters."""

import numpy as np
import pytest
from classifiers import Fitted

from evenhand import LSPC
from evenhand.data.groups import Groups
from evenhand.estimators.estimation import largest_loss
from evenhand.estimators.lspc import solve
from evenhand.kernels import make_rows, with_score
from evenhand.kernels.basis import get_basis

CONDITIONS = [("s",), ("y",), ("s", "y")]


def _phi(z, basis):
    """[1, z, products], written out."""
    columns = [np.ones(len(z)), *z.T]
    if basis == "quadratic":
        columns += [z[:, i] * z[:, j] for i in range(z.shape[1]) for j in range(i, z.shape[1])]
    return np.stack(columns, axis=1)


def _standardize(z, w):
    mean = np.average(z, axis=0, weights=w)
    return (z - mean) / np.sqrt(np.average((z - mean) ** 2, axis=0, weights=w))


def _log_softplus_shares(f, beta=30.0):
    sp = np.logaddexp(0, beta * f)
    return np.log(sp) - np.log(sp.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("basis", ["linear", "quadratic"])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_solve_the_ridge_least_squares_problem(basis, p, weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, 2.0, size=(80, p))
    labels = rng.choice(["a", "b", "c"], 80)
    w = rng.uniform(0.1, 2.0, 80) if weighted else None
    model = Fitted(LSPC(basis, kappa=0.3), X, labels, w)

    phi = _phi(_standardize(X, w), basis)
    onehot = (labels[:, None] == model.classes).astype(float)
    root = np.sqrt(np.ones(80) if w is None else w)[:, None]
    stacked = np.vstack([root * phi, np.sqrt(0.3) * np.eye(phi.shape[1])])
    right = np.vstack([root * onehot, np.zeros((phi.shape[1], 3))])
    expected = np.linalg.lstsq(stacked, right, rcond=None)[0].T
    np.testing.assert_allclose(model.weights, expected, rtol=1e-9, atol=1e-12)

    scores = phi @ expected.T
    np.testing.assert_allclose(
        np.log(model.probabilities), _log_softplus_shares(scores), rtol=1e-8, atol=1e-10
    )
    np.testing.assert_allclose(model.scores, scores, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("kind", ["plain", "weights", "proxy", "unknown"])
@pytest.mark.parametrize("basis", ["linear", "quadratic"])
def test_leave_one_out_equals_refitting_without_the_row(condition, kind, basis, case):
    """Exactly, with the standardization held at that of all rows, up to the largest loss."""
    data = case(kind, 3, n=60)
    groups = data.groups
    variables = {"s": groups.take_known(data.s), "y": groups.take_known(data.y)}
    found = LSPC(basis, losses="leave-one-out").row_losses(variables, [condition], groups)

    w = np.ones(groups.n_known) if groups.weight is None else groups.weight
    phi = _phi(_standardize(np.stack([variables[v] for v in condition], axis=1), w), basis)
    t = groups.membership()
    expected = np.empty(len(phi))
    for i in range(len(phi)):
        rest = np.arange(len(phi)) != i
        left = phi[rest].T * w[rest]
        weights = np.linalg.solve(left @ phi[rest] + 1e-3 * np.eye(phi.shape[1]), left @ t[rest])
        expected[i] = -(t[i] * _log_softplus_shares(phi[i : i + 1] @ weights)[0]).sum()
    assert (expected < largest_loss(groups)).mean() > 0.9
    expected = np.minimum(expected, largest_loss(groups))
    np.testing.assert_allclose(found[condition].value, expected, rtol=1e-9, atol=1e-9)


def test_balanced_is_the_mean_of_in_sample_and_leave_one_out(case):
    data = case("plain", 2)
    losses = {}
    for kind in ("in-sample", "leave-one-out", "balanced"):
        model = LSPC(losses=kind)
        losses[kind] = model.row_losses({"s": data.s}, [("s",)], data.groups)[("s",)]
    mean = (losses["in-sample"].value + losses["leave-one-out"].value) / 2
    np.testing.assert_allclose(losses["balanced"].value, mean, rtol=1e-14)
    assert losses["leave-one-out"].value.mean() > losses["in-sample"].value.mean()
    assert losses["balanced"].chosen == "quadratic LSPC, 3 terms"


def test_sharp_softplus_tends_to_the_positive_part():
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(60, 1)), rng.integers(0, 2, 60)
    X += labels[:, None]
    model = Fitted(LSPC("linear", beta=1e4), X, labels)
    scores = model.scores
    inside = (scores > 0.01).all(axis=1)
    assert inside.sum() > 30
    expected = scores / scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.probabilities[inside], expected[inside], rtol=1e-9)


def test_constant_column_without_ridge():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 50)
    X = np.column_stack([rng.normal(size=50) + labels, np.full(50, 2.0)])
    one = Fitted(LSPC(kappa=0), X[:, :1], labels).probabilities
    two = Fitted(LSPC(kappa=0), X, labels).probabilities
    np.testing.assert_allclose(two, one, rtol=1e-9)


def test_solve_reads_codes_and_probabilities_alike(case):
    """One-hot probabilities are the codes they stand for."""
    data = case("weights", 3)
    groups = data.groups
    soft = Groups(groups.labels, None, groups.membership(), groups.weight, None, groups.n_rows)
    basis = get_basis("quadratic", 2)
    found = [
        solve(with_score(make_rows(g, data.y), data.s), basis, 1e-3)[0] for g in (groups, soft)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-10)


def test_wrong_parameters(case):
    data = case("plain", 2)
    rows = {"s": data.s}, [("s",)], data.groups
    with pytest.raises(ValueError, match="`kappa` must be nonnegative, got -1"):
        LSPC(kappa=-1).row_losses(*rows)
    with pytest.raises(
        ValueError, match="`basis` must be one of linear, quadratic, degree3, got 'cubic'"
    ):
        LSPC("cubic").row_losses(*rows)
    with pytest.raises(ValueError, match=r"`losses` must be one of in-sample, .*, got 'oob'"):
        LSPC(losses="oob").row_losses(*rows)
