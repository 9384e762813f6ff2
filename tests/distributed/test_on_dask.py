"""Fits on a real Dask cluster of two processes, and what happens when one of them dies."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.distributed import WorkerLostError, fit, fitting

sys.path.insert(0, str(Path(__file__).parent))
from deadly import MARK, Deadly

SETTINGS = {"alpha": 1e-3, "tol": 1e-11, "max_iter": 500}
FEATURES = ["u", "v", "w"]


@pytest.fixture(scope="module")
def client(cluster):
    cluster.upload_file(str(Path(__file__).parent / "deadly.py"))
    return cluster


def people(n=800, seed=0):
    rng = np.random.default_rng(seed)
    a = np.sort(rng.integers(0, 3, n))  # a partition has one group or two
    X = rng.normal(size=(n, 3)) + 0.7 * a[:, None] * [1.0, 0.0, 0.5]
    frame = pd.DataFrame(X, columns=FEATURES)
    frame["target"] = X @ [1.0, 0.5, -0.5] + rng.normal(size=n)
    frame["claims"] = rng.poisson(np.exp(0.3 * X[:, 0])).astype(float)
    frame["group"] = np.array(["north", "south", "west"])[a]
    frame.loc[::17, "group"] = None
    frame["old"] = np.arange(n) % 2 == 0
    frame["weight"] = rng.exponential(size=n)
    return frame


def spread(frame, client, parts=4):
    """Partitions in turn on each worker: left to itself Dask may put few rows on one."""
    import dask
    import dask.dataframe as dd

    workers = sorted(client.nthreads())[:2]
    cuts = np.array_split(np.arange(len(frame)), parts)
    futures = [
        client.scatter(frame.iloc[cut], workers=[workers[k * len(workers) // parts]], hash=False)
        for k, cut in enumerate(cuts)
    ]
    return dd.from_delayed([dask.delayed(future) for future in futures], meta=frame.iloc[:0])


def same(model, whole, tol=1e-10):
    scale = np.abs(whole.coef_).max()
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=0, atol=tol * scale)
    np.testing.assert_allclose(model.intercept_, whole.intercept_, rtol=tol, atol=tol)
    np.testing.assert_allclose(model.unfairness_, whole.unfairness_, rtol=1e-8)


@pytest.mark.parametrize("criterion", ["independence", "separation", "sufficiency"])
@pytest.mark.parametrize("classifier", ["logistic", "lspc"])
def test_frame_gives_the_model_of_one_process(client, criterion, classifier):
    frame = people()
    estimator = eh.FairRidge(criterion, 1.0, classifier=classifier, **SETTINGS)
    found = fit(
        estimator, spread(frame, client), client, y="target", sensitive_features="group",
        sample_weight="weight", features=FEATURES,
    )  # fmt: skip
    whole = eh.FairRidge(criterion, 1.0, classifier=classifier, **SETTINGS).fit(
        frame[FEATURES], frame["target"], sensitive_features=frame["group"],
        sample_weight=frame["weight"],
    )  # fmt: skip
    same(found, whole)
    assert found.n_workers_ == 2
    assert found.n_rounds_ > 20
    assert not hasattr(estimator, "coef_")
    np.testing.assert_allclose(found.predict(frame[FEATURES]), whole.predict(frame[FEATURES]))


def test_glm_with_crossed_groups_and_exposure(client):
    frame = people()
    estimator = eh.FairGLM("poisson", "independence", 1.0, **SETTINGS)
    columns = {"y": "claims", "sensitive_features": ["group", "old"], "exposure": "weight"}
    found = fit(estimator, spread(frame, client), client, **columns, features=FEATURES)
    whole = eh.FairGLM("poisson", "independence", 1.0, **SETTINGS).fit(
        frame[FEATURES], frame["claims"], sensitive_features=frame[["group", "old"]],
        exposure=frame["weight"],
    )  # fmt: skip
    same(found, whole)


def test_the_same_rows_on_the_same_workers_give_the_same_bits(client, monkeypatch):
    # Left to itself a busy scheduler may hand partitions to the other worker.
    one, two = sorted(client.nthreads())[:2]
    monkeypatch.setattr(
        fitting, "_places", lambda client, futures: {one: futures[:2], two: futures[2:]}
    )
    rows = spread(people(), client).persist()
    one, two = (
        fit(eh.FairRidge(), rows, client, y="target", sensitive_features="group") for _ in range(2)
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)


def test_errors_of_one_worker_reach_the_caller(client):
    frame = people()
    frame.loc[len(frame) - 1, "u"] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        fit(eh.FairRidge(), spread(frame, client), client, y="target", sensitive_features="group")
    with pytest.raises(NotImplementedError, match="group_features='posterior' cannot be fitted"):
        fit(
            eh.FairRidge(group_features="posterior"), spread(people(), client), client, y="target",
            sensitive_features="group",
        )  # fmt: skip


BAD = {
    "`y` names 'price', which the table does not have": {"y": "price"},
    "'group' must hold numbers for `y`, and holds text": {"y": "group"},
    "'group' must hold numbers for `features`": {"features": ["group"]},
    "`features` must be names of different columns": {"features": ["u", "u"]},
    "`features` must not hold the target 'target'": {"features": ["u", "target"]},
    "`timeout` must be a positive number": {"timeout": 0},
    "`exposure` must be None for FairRidge": {"exposure": "weight"},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_calls(client, message):
    columns = {"y": "target", "sensitive_features": "group"} | BAD[message]
    with pytest.raises(ValueError, match=message):
        fit(eh.FairRidge(), spread(people(), client), client, **columns)


def test_other_estimators_data_and_clients_are_refused(client):
    from sklearn.linear_model import Ridge

    frame = people()
    with pytest.raises(TypeError, match="`estimator` must be a FairRidge or a FairGLM"):
        fit(Ridge(), spread(frame, client), client, y="target")
    with pytest.raises(TypeError, match="`data` must be a Dask DataFrame"):
        fit(eh.FairRidge(), frame, client, y="target")
    with pytest.raises(TypeError, match=r"`client_or_spark` must be a distributed\.Client"):
        fit(eh.FairRidge(), spread(frame, client), None, y="target")


def marked(client):
    frame = people()
    frame.loc[len(frame) - 1, "target"] = MARK
    return spread(frame, client)


def test_an_error_in_the_middle_of_the_fit_ends_it(client):
    with pytest.raises(RuntimeError, match="no space left on this worker"):
        fit(
            eh.FairGLM(Deadly("broken")),
            marked(client),
            client,
            y="target",
            sensitive_features="group",
        )


def test_killed_worker_ends_the_fit(client):
    """By its loss, not by the time that others wait for an answer."""
    with pytest.raises(WorkerLostError, match="lost"):
        fit(
            eh.FairGLM(Deadly("killed")), marked(client), client, y="target",
            sensitive_features="group", timeout=3600,
        )  # fmt: skip
    # The cluster has replaced it, and goes on.
    client.wait_for_workers(2)
    again = fit(
        eh.FairRidge(), spread(people(), client), client, y="target", sensitive_features="group"
    )
    assert again.n_workers_ >= 1


def test_worker_that_does_not_answer_ends_the_fit(client):
    client.wait_for_workers(2)
    with pytest.raises(WorkerLostError, match="did not answer in time"):
        fit(
            eh.FairGLM(Deadly("asleep")), marked(client), client, y="target",
            sensitive_features="group", timeout=2,
        )  # fmt: skip
