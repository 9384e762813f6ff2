"""FairRidge made independent of the group among people with the same controls."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import evenhand as eh


def people(n=3000, seed=0, controls=2):
    """The group moves a legitimate factor and a proxy that is none; one more feature is free of it.

    Without that last one a fair score would be a function of the controls and a trace of the proxy,
    which gives the group away however small the trace is.
    """
    rng = np.random.default_rng(seed)
    a = (rng.random(n) < 0.4).astype(int)
    C = rng.normal(size=(n, controls)) + 0.6 * a[:, None]
    proxy = rng.normal(size=n) + 1.2 * a
    free = rng.normal(size=n)
    y = C.sum(axis=1) + proxy + free + rng.normal(size=n)
    return np.column_stack([C, proxy, free]), y, a, C


@pytest.mark.parametrize("controls", [1, 2])
def test_held_out_conditional_information_falls_and_the_gap_with_it(controls):
    X, y, a, C = people(controls=controls)
    Xt, _, at, Ct = people(seed=1, controls=controls)

    def judged(model):
        found = eh.audit(
            None, model.predict(Xt), sensitive_features=at, controls=Ct, estimator="logistic"
        ).conditional
        return found.information.value, found.gap().adjusted.value, found.gap().raw.value

    plain = eh.FairRidge("conditional", fairness_weight=0).fit(X, y, sensitive_features=a)
    fair = eh.FairRidge("conditional", fairness_weight=20).fit(
        X, y, sensitive_features=a, controls=C
    )
    before, after = judged(plain), judged(fair)
    assert after[0] < 0.2 * before[0]
    assert abs(after[1]) < 0.25 * before[1]
    # What goes with the legitimate factors stays: that is the difference to independence.
    assert after[2] > 0.3
    everything = eh.FairRidge("independence", fairness_weight=20).fit(X, y, sensitive_features=a)
    assert abs(judged(everything)[2]) < 0.5 * after[2]
    assert fair.controls_summary_.startswith("control itself" if controls == 1 else "the log-odds")


def test_frames_with_text_gaps_weights_and_missing_groups():
    X, y, a, C = people(1500)
    frame = pd.DataFrame(C, columns=["u", "v"])
    frame["zone"] = np.where(C[:, 0] > 0, "town", None)
    frame.loc[::30, "v"] = np.nan
    groups = np.where(np.arange(1500) % 10 == 0, None, a.astype(str))
    model = eh.FairRidge("conditional", fairness_weight=5)
    model.fit(X, y, sensitive_features=groups, controls=frame, sample_weight=np.ones(1500))
    assert 0 <= model.unfairness_ < 0.05


def test_three_groups_by_one_direction():
    X, y, a, C = people(1500)
    b = np.where(C[:, 1] > 1, 2, a)
    model = eh.FairRidge("conditional", fairness_weight=5)
    model.fit(X, y, sensitive_features=b, controls=C)
    assert model.controls_summary_.startswith("the direction")
    plain = eh.FairRidge("conditional", fairness_weight=1e-6)
    plain.fit(X, y, sensitive_features=b, controls=C)
    assert model.unfairness_ < 0.5 * plain.unfairness_


def test_a_glm_and_a_path_take_them_too():
    X, y, a, C = people(1500)
    claims = np.random.default_rng(3).poisson(np.exp(0.3 * y - 1.0))
    plain, fair = (
        eh.FairGLM("poisson", "conditional", fairness_weight=weight).fit(
            X, claims, sensitive_features=a, controls=C
        )
        for weight in (0.0, 10.0)
    )
    assert fair.unfairness_ < 0.3 * plain.unfairness_
    fit = eh.FairRidge("conditional").path_fitter(X, y, sensitive_features=a, controls=C)
    assert fit(5.0).unfairness_ < 0.5 * fit(0.0).unfairness_


def test_controls_are_asked_for_and_refused_where_they_do_nothing():
    X, y, a, C = people(200)
    with pytest.raises(ValueError, match="`controls` must be given with criterion='conditional'"):
        eh.FairRidge("conditional").fit(X, y, sensitive_features=a)
    with pytest.raises(ValueError, match="`controls` must be None with criterion='separation'"):
        eh.FairRidge("separation").fit(X, y, sensitive_features=a, controls=C)
    with pytest.raises(ValueError, match="`controls` must have one entry per row: got 150 for 200"):
        eh.FairRidge("conditional").fit(X, y, sensitive_features=a, controls=C[:150])
    leak = a + 1e-9 * np.arange(200.0)
    with pytest.raises(ValueError, match="determines the group completely"):
        eh.FairRidge("conditional").fit(X, y, sensitive_features=a, controls=leak)
