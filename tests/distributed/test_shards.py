"""One program on several workers, each with its own rows: the model of one process.

Workers are threads here, so that the sums and their order are all that is tested.
"""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from scipy import sparse

import evenhand as eh
from evenhand._core import shards
from evenhand.distributed.fitting import refuse_more_than_sums

SETTINGS = {"alpha": 1e-3, "tol": 1e-11, "max_iter": 500}


class Threads:
    """Sums over threads, in the order of their ranks."""

    def __init__(self, size):
        self.size, self.barrier = size, threading.Barrier(size, timeout=600)
        self.slots: list = [None] * size

    def member(self, rank):
        return Member(self, rank)


class Member:
    def __init__(self, threads, rank):
        self.threads, self.rank, self.size = threads, rank, threads.size
        self.rounds = 0

    def sum(self, values):
        self.rounds += 1
        self.threads.slots[self.rank] = values
        self.threads.barrier.wait()
        total = np.sum(self.threads.slots, axis=0)
        self.threads.barrier.wait()
        return total


def on_workers(parts, work):
    """`work(part)` on a thread for each part: what each returned or raised."""
    threads = Threads(len(parts))
    out: list = [None] * len(parts)

    def one(rank):
        try:
            out[rank] = shards.run(threads.member(rank), lambda: work(parts[rank]))
        except Exception as error:
            out[rank] = error

    running = [threading.Thread(target=one, args=(rank,)) for rank in range(len(parts))]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return out


def people(n=600, groups=2, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, groups, n)
    X = rng.normal(size=(n, 4)) + 0.7 * a[:, None] * [1.0, 0.0, 0.5, 0.0] + [0.0, 5.0, 0.0, 0.0]
    y = X @ [1.0, 0.5, -0.5, 0.2] + rng.normal(size=n)
    order = np.argsort(a, kind="stable")  # so that shards hold one group each
    return X[order], y[order], a[order]


def split(n, k):
    """Row numbers by worker; with three workers one has none."""
    if k == 3:
        return [np.arange(n // 2), np.arange(0), np.arange(n // 2, n)]
    return np.array_split(np.arange(n), k)


def check(estimator, columns, n_workers, rtol=1e-10):
    def fit(part):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = {name: values[part] for name, values in columns.items()}
            return eh_clone(estimator).fit(**rows)

    whole = eh_clone(estimator).fit(**columns)
    n = columns["X"].shape[0]
    found = on_workers(split(n, n_workers), fit)
    for model in found:
        if isinstance(model, Exception):
            raise model
        scale = np.abs(whole.coef_).max()
        np.testing.assert_allclose(model.coef_, whole.coef_, rtol=0, atol=rtol * scale)
        np.testing.assert_allclose(model.intercept_, whole.intercept_, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(model.unfairness_, whole.unfairness_, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(model.objective_, whole.objective_, rtol=1e-9)
        # To the bit the same on all workers.
        np.testing.assert_array_equal(model.coef_, found[0].coef_)
    return whole, found


def eh_clone(estimator):
    from sklearn.base import clone

    return clone(estimator)


@pytest.mark.parametrize("n_workers", [1, 2, 3])
@pytest.mark.parametrize("classifier", ["logistic", "lspc"])
@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
def test_ridge_is_that_of_one_process(criterion, classifier, n_workers):
    X, y, a = people()
    estimator = eh.FairRidge(criterion, 2.0, classifier=classifier, **SETTINGS)
    check(estimator, {"X": X, "y": y, "sensitive_features": a}, n_workers)


@pytest.mark.parametrize("n_workers", [2, 3])
@pytest.mark.parametrize("classifier", ["logistic", "lspc"])
@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
def test_glm_is_that_of_one_process(criterion, classifier, n_workers):
    X, y, a = people()
    counts = np.random.default_rng(1).poisson(np.exp(0.3 * (y - y.mean()) + 0.5)).astype(float)
    estimator = eh.FairGLM("poisson", criterion, 1.0, classifier=classifier, **SETTINGS)
    check(estimator, {"X": X, "y": counts, "sensitive_features": a}, n_workers)


def test_weights_gaps_text_and_several_groups():
    X, y, a = people(groups=3)
    rng = np.random.default_rng(2)
    names = np.array(["north", "south", "west"], dtype=object)[a]
    names[rng.random(len(a)) < 0.1] = None
    weight = rng.exponential(size=len(a))
    weight[:150] = 0.0
    columns = {"X": X, "y": y, "sensitive_features": names, "sample_weight": weight}
    for n_workers in (2, 3):
        check(eh.FairRidge("separation", 1.0, **SETTINGS), columns, n_workers)


def test_crossed_attributes():
    X, y, a = people()
    table = np.column_stack([a, np.arange(len(a)) % 2])
    check(eh.FairRidge(**SETTINGS), {"X": X, "y": y, "sensitive_features": table}, 3)


def test_sparse_and_float32_features():
    X, y, a = people()
    X[np.abs(X) < 0.5] = 0.0
    columns = {"X": sparse.csr_matrix(X), "y": y, "sensitive_features": a}
    check(eh.FairRidge(**SETTINGS), columns, 3)
    columns["X"] = X.astype(np.float32)
    check(eh.FairRidge(**SETTINGS), columns, 2, rtol=1e-7)  # coefficients are in float32


def test_gamma_with_exposure_offset_and_given():
    X, y, a = people()
    rng = np.random.default_rng(3)
    mean = np.exp(0.2 * (y - y.mean()))
    columns = {
        "X": X,
        "y": rng.gamma(2.0, mean / 2.0),
        "sensitive_features": a,
        "offset": rng.normal(size=len(y)) * 0.1,
        "exposure": rng.uniform(0.5, 1.0, len(y)),
        "given": mean,
    }
    check(eh.FairGLM("gamma", "separation", 1.0, **SETTINGS), columns, 3)
    del columns["offset"], columns["given"]
    # A large weight: best scale, and the steps on the way there.
    check(eh.FairGLM("gamma", "independence", 30.0, score="link", **SETTINGS), columns, 2, 1e-9)


def test_unpublished_paths_of_the_solver():
    """Without an intercept, in units of the data, from afar, and with no fairness at all."""
    X, y, a = people()
    columns = {"X": X, "y": y, "sensitive_features": a}
    published = {"classifier": "lspc", "kappa": "published"}
    check(eh.FairRidge(fit_intercept=False, **SETTINGS), columns, 2)
    check(eh.FairRidge("independence", 1.0, **published, **SETTINGS), columns, 2)
    check(eh.FairRidge("independence", 50.0, **SETTINGS), columns, 2, 1e-9)
    check(eh.FairRidge("independence", 0.0, **SETTINGS), columns, 3)


def test_pilot_rows_are_those_of_one_process():
    X, y, a = people(101_000, groups=3, seed=4)
    columns = {"X": X, "y": y, "sensitive_features": a}
    check(eh.FairRidge("independence", 1.0, alpha=1e-3, tol=1e-9), columns, 3, 1e-8)


@pytest.mark.parametrize("where", ["y", "X"])
def test_an_error_on_one_worker_is_the_error_of_all(where):
    X, y, a = people()
    (y if where == "y" else X)[-1] = np.nan
    parts = [{"X": X[r], "y": y[r], "sensitive_features": a[r]} for r in split(len(y), 3)]
    found = on_workers(parts, lambda rows: eh.FairRidge().fit(**rows))
    assert isinstance(found[2], ValueError)
    for error in found[:2]:
        assert isinstance(error, shards.PeerError)
        assert error.rank == 2
        assert str(found[2])[:60] in str(error)


def test_one_group_over_all_workers_is_refused_by_all():
    X, y, a = people()
    parts = [{"X": X[r], "y": y[r], "sensitive_features": 0 * a[r]} for r in split(len(y), 2)]
    found = on_workers(parts, lambda rows: eh.FairRidge().fit(**rows))
    assert all("two groups" in str(error) for error in found)


def test_labels_of_one_shard_are_judged_with_all_rows():
    X, y, _ = people(1200)
    many = np.arange(1200) % 60
    parts = [{"X": X[r], "y": y[r], "sensitive_features": many[r]} for r in split(1200, 2)]
    found = on_workers(parts, lambda rows: eh.FairRidge().fit(**rows))
    assert all("60 distinct" in str(error) for error in found)


REFUSED = {
    "group_features": lambda: eh.FairRidge(group_features="posterior"),
    "conditional": lambda: eh.FairRidge("conditional"),
    "quantile": lambda: eh.FairGLM("quantile"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_more_than_sums_is_refused(what):
    model = REFUSED[what]()
    model._check_parameters()
    with pytest.raises(NotImplementedError, match="cannot be fitted on a cluster") as caught:
        refuse_more_than_sums(model)
    assert what in str(caught.value)


def test_more_columns_than_rows_and_text_are_refused():
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(20, 50)), rng.normal(size=20), np.arange(20) % 2)] * 2
    found = on_workers(parts, lambda p: eh.FairRidge().fit(*p[:2], sensitive_features=p[2]))
    assert all("more columns than rows" in str(error) for error in found)
    import pandas as pd

    def fit_text(part):
        frame = pd.DataFrame({"zone": ["a", "b"] * 10})
        return eh.FairRidge().fit(frame, part[1], sensitive_features=part[2])

    assert all("TableEncoder" in str(error) for error in on_workers(parts, fit_text))


def test_workers_that_part_ways_are_told():
    def work(part):
        shards.here().add(np.zeros(part))

    found = on_workers([3, 4, 5], work)
    assert all(isinstance(error, shards.Diverged) for error in found)


def test_one_process_adds_nothing():
    values, sums = np.arange(3.0), shards.here()
    assert sums.add(values) is values
    assert sums.total(5) == 5
    assert (sums.least(2.0), sums.largest(2.0), sums.first_row(9)) == (2.0, 2.0, 0)
    assert sums.gather_objects("a") == ["a"]


@pytest.mark.parametrize("n", [600, 52_000])
@pytest.mark.parametrize("classifier", ["logistic", "lspc"])
@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_objective_of_boosting_is_that_of_one_process(n, classifier, loss):
    """Beyond 50,000 rows the bound of the curvature comes from a table, whose rows are the same."""
    X, y, a = people(n, groups=3)
    y = y if loss == "squared" else np.exp(0.2 * y).round()
    score = (X[:, 0] + 0.3 * X[:, 2]).astype(np.float32) * np.float32(0.3)

    def calls(rows):
        regularizer = eh.FairnessRegularizer("separation", classifier)
        bound = regularizer.bind(y[rows], sensitive_features=a[rows])
        fair = eh.boosting.objective(bound, loss, plain_rounds=1)
        start = fair(y[rows], np.full(len(rows), 0.5, np.float32))
        return [start, *(fair(y[rows], score[rows] * np.float32(k)) for k in (1, 2))]

    whole = calls(np.arange(n))
    parts = split(n, 3)
    found = on_workers(parts, calls)
    for error in found:
        if isinstance(error, Exception):
            raise error
    for k, pair in enumerate(whole):
        for j, expected in enumerate(pair):
            together = np.concatenate([part[k][j] for part in found])
            np.testing.assert_allclose(together, expected, rtol=3e-5, atol=1e-6)


def test_many_groups_on_a_grid_with_an_empty_shard():
    X, y, a = people(36_000, groups=3, seed=5)
    columns = {"X": X, "y": y, "sensitive_features": a}
    check(eh.FairRidge("separation", 1.0, alpha=1e-3, tol=1e-9), columns, 3, 1e-8)
