"""FairMLPRegressor: scikit-learn's checks, exact repeats, and fairness that holds on other rows."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import _num_samples

import evenhand as eh
from evenhand.data.groups import GroupWarning
from evenhand.torch import FairMLPRegressor
from evenhand.torch.network import fairness_share, rate_share

QUICK = {"epochs": 12, "batch_size": 128, "hidden": (16,), "random_state": 0}


def rows(n=1200, seed=0, k=2):
    """Groups differ in one feature, whose effect is curved."""
    rng = np.random.default_rng(seed)
    a = rng.integers(0, k, n)
    X = rng.normal(size=(n, 4)) + np.outer(a, [1.0, 0.0, 0.0, 0.0])
    y = 5.0 + X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.5 * X[:, 2] + rng.normal(size=n)
    return X, y, np.array(["u", "v", "w"])[a]


class Grouped(FairMLPRegressor):
    """scikit-learn's checks hand in no groups: here every other row is of the same one."""

    def fit(self, X, y, *, sensitive_features=None, sample_weight=None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GroupWarning)
            groups = np.arange(_num_samples(X)) % 2
            return super().fit(X, y, sensitive_features=groups, sample_weight=sample_weight)


CHECKED = {"epochs": 30, "batch_size": 4096, "hidden": (16,), "learning_rate": 0.06}


FAIL = {
    "check_sample_weight_equivalence_on_dense_data": "batches are of rows, not of weights",
    "check_sample_weight_equivalence_on_sparse_data": "batches are of rows, not of weights",
}


@parametrize_with_checks(
    [Grouped(fairness_weight=0.1, random_state=0, **CHECKED)],
    expected_failed_checks=lambda _: {**FAIL, "check_fit2d_1sample": "one row has no two groups"},
)
def test_scikit_learn_checks_with_groups(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [FairMLPRegressor(fairness_weight=0, random_state=0, **CHECKED)],
    expected_failed_checks=lambda _: FAIL,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
def test_fairer_on_other_rows(criterion):
    X, y, a = rows(2500, k=3)
    test_X, test_y, test_a = rows(2500, seed=1, k=3)
    options = {"epochs": 30, "batch_size": 512, "hidden": (16,), "random_state": 0}
    plain = FairMLPRegressor(criterion, 0.0, **options).fit(X, y, sensitive_features=a)
    fair = FairMLPRegressor(criterion, 20.0, **options).fit(X, y, sensitive_features=a)
    measure = getattr(eh, criterion)
    before, after = (
        measure(test_y, model.predict(test_X), sensitive_features=test_a) for model in (plain, fair)
    )
    assert plain.score(test_X, test_y) > 0.6
    if criterion == "sufficiency":  # the plain network is nearly there
        assert after < before + 0.01
    else:
        assert after < 0.35 * before
    assert fair.score(test_X, test_y) < plain.score(test_X, test_y)


def test_learns_what_a_line_cannot():
    X, y, _ = rows(4000)
    ridge = eh.FairRidge(fairness_weight=0).fit(X, y)
    network = FairMLPRegressor(fairness_weight=0, epochs=40, random_state=0).fit(X, y)
    test_X, test_y, _ = rows(4000, seed=1)
    assert network.score(test_X, test_y) > ridge.score(test_X, test_y) + 0.08
    assert np.isnan(network.unfairness_)


def test_repeats_exactly_and_survives_pickling():
    X, y, a = rows()
    first = FairMLPRegressor("separation", 5.0, **QUICK).fit(X, y, sensitive_features=a)
    state = torch.random.get_rng_state()
    again = FairMLPRegressor("separation", 5.0, **QUICK).fit(X, y, sensitive_features=a)
    assert torch.equal(state, torch.random.get_rng_state())  # nobody else's numbers are used up
    np.testing.assert_array_equal(first.predict(X), again.predict(X))
    for name, values in first.history_.items():
        np.testing.assert_array_equal(values, again.history_[name])
    loaded = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(first.predict(X), loaded.predict(X))
    other = FairMLPRegressor("separation", 5.0, **{**QUICK, "random_state": 1})
    assert np.abs(other.fit(X, y, sensitive_features=a).predict(X) - first.predict(X)).max() > 1e-3


def test_the_state_of_the_network_carries_its_predictions(tmp_path):
    X, y, a = rows()
    first = FairMLPRegressor("independence", 5.0, **QUICK).fit(X, y, sensitive_features=a)
    torch.save(first.network_.state_dict(), tmp_path / "network.pt")
    other = pickle.loads(pickle.dumps(first))
    for parameter in other.network_.parameters():
        torch.nn.init.zeros_(parameter)
    other.network_.load_state_dict(torch.load(tmp_path / "network.pt", weights_only=True))
    np.testing.assert_array_equal(first.predict(X), other.predict(X))


def test_any_table_gives_the_same():
    X, y, a = rows(600)
    model = FairMLPRegressor("independence", 2.0, **QUICK)
    exact = model.fit(X, y, sensitive_features=a).predict(X)
    names = list("abcd")
    for table, groups in (
        (pd.DataFrame(X, columns=names), pd.Series(a)),
        (pl.DataFrame(X, schema=names), pl.Series(a)),
        (sparse.csr_matrix(X), a.tolist()),
    ):
        found = model.fit(table, y, sensitive_features=groups).predict(table)
        np.testing.assert_allclose(found, exact, rtol=1e-6)
    short = model.fit(X.astype(np.float32), y, sensitive_features=a).predict(X.astype(np.float32))
    assert short.dtype == np.float32
    np.testing.assert_allclose(short, exact, atol=0.05)


def test_missing_groups_count_for_accuracy_alone():
    X, y, a = rows()
    missing = a.astype(object)
    missing[::3] = None
    model = FairMLPRegressor("independence", 5.0, **QUICK).fit(X, y, sensitive_features=missing)
    known = missing != None  # noqa: E711
    value = eh.FairnessRegularizer("independence", basis="quadratic").bind(
        y[known], sensitive_features=a[known]
    )
    assert model.unfairness_ == pytest.approx(value.value(model.predict(X)[known]), abs=1e-4)


def test_weights_say_which_rows_matter():
    X, y, a = rows(2000)
    half = X[:, 3] > 0
    y = np.where(half, y, -y)
    weight = np.where(half, 1.0, 1e-6)
    model = FairMLPRegressor("independence", 0.5, **{**QUICK, "epochs": 25})
    model.fit(X, y, sensitive_features=a, sample_weight=weight)
    assert model.score(X[half], y[half]) > 0.4
    assert model.score(X[~half], y[~half]) < 0


def test_the_learning_curve():
    X, y, a = rows(2000)
    model = FairMLPRegressor("independence", 10.0, **{**QUICK, "epochs": 40})
    history = model.fit(X, y, sensitive_features=a).history_
    assert {len(values) for values in history.values()} == {model.n_iter_}
    assert history["fairness_weight"][0] == 0.0
    assert max(history["fairness_weight"]) == 10.0
    assert np.isnan(history["unfairness"][0])
    assert np.isfinite(history["held_out_objective"]).all()
    # The fairness term is let in after the plain epochs, and works.
    unfairness = history["held_out_unfairness"]
    assert np.argmax(unfairness) > 0
    assert min(unfairness[np.argmax(unfairness) :]) < 0.4 * max(unfairness)
    alone = FairMLPRegressor("independence", 10.0, validation_fraction=0, **QUICK)
    alone.fit(X, y, sensitive_features=a)
    assert alone.n_iter_ == QUICK["epochs"]
    assert np.isnan(alone.history_["held_out_loss"]).all()


def test_the_schedule():
    shares = [fairness_share(share, 0.2, 0.4) for share in (0.0, 0.19, 0.4, 0.6, 1.0)]
    assert shares == [0.0, 0.0, pytest.approx(0.5), pytest.approx(1.0), 1.0]
    assert fairness_share(0.2, 0.2, 0.0) == 1.0
    assert rate_share(1.0) == pytest.approx(0.0, abs=1e-12)
    assert rate_share(0.03) > 0.99
    assert rate_share(0.0) == 0.0


def test_in_a_path_and_a_pipeline():
    X, y, a = rows()
    model = make_pipeline(StandardScaler(), FairMLPRegressor("independence", **QUICK))
    path = eh.fairness_path(
        model, X, y, sensitive_features=a, fairness_weights=[0.0, 20.0], cv=2, random_state=0
    )
    assert path.points[-1].independence.value < path.points[0].independence.value
    chosen = path.select(max_unfairness=1.0)
    assert chosen.predict(X).shape == y.shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "luck"}, "`criterion` must be one of"),
        ({"fairness_weight": -1}, "`fairness_weight` must be a nonnegative number, got -1"),
        ({"alpha": "much"}, "`alpha` must be a nonnegative number, got 'much'"),
        ({"learning_rate": 0}, "`learning_rate` must be a positive number, got 0"),
        ({"epochs": 0}, "`epochs` must be a positive integer, got 0"),
        ({"batch_size": 2.5}, "`batch_size` must be a positive integer, got 2.5"),
        ({"plain": 1.0}, r"`plain` must lie in \[0, 1\), got 1.0"),
        ({"plain": 0.6, "ramp": 0.4}, "`plain` and `ramp` must leave a share of the steps"),
        ({"hidden": (8, 0)}, r"`hidden` must be a tuple of positive integers, got \(8, 0\)"),
        ({"classifier": "forest"}, "`classifier` must be one of batch, running, got 'forest'"),
    ],
)
def test_options_are_checked(options, message):
    X, y, a = rows(100)
    with pytest.raises(ValueError, match=message):
        FairMLPRegressor(**options).fit(X, y, sensitive_features=a)


def test_arguments_are_checked():
    X, y, _ = rows(100)
    with pytest.raises(ValueError, match="`sensitive_features` must be given when `fairness_wei"):
        FairMLPRegressor().fit(X, y)
    proxy = eh.Proxy(np.full((100, 2), 0.5))
    with pytest.raises(ValueError, match="`sensitive_features` must be groups, not probabilities"):
        FairMLPRegressor().fit(X, y, sensitive_features=proxy)


def test_cuda_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    X, y, a = rows(100)
    with pytest.raises(
        ValueError, match="`device` must be 'cpu' here, got 'cuda': PyTorch sees no"
    ):
        FairMLPRegressor(device="cuda").fit(X, y, sensitive_features=a)
