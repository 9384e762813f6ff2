"""The JSON of results is what the published schema says."""

import json
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

import evenhand as eh

jsonschema = pytest.importorskip("jsonschema")
SCHEMA = json.loads(files("evenhand.report").joinpath("assets/results.schema.json").read_text())


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 400
    y = rng.gamma(4.0, 1.0, n)
    return y, y * rng.gamma(20.0, 0.05, n), rng.choice(["p", "q", "r"], n), rng


def audits(rows):
    y, s, a, rng = rows
    b, age, quick = rng.choice(["x", "y"], len(y)), rng.normal(size=len(y)), "logistic"
    p = rng.random(len(y))
    yield eh.audit(y, s, sensitive_features=a, estimator=quick)
    yield eh.audit(None, s, sensitive_features=a, estimator=quick)
    yield eh.audit(
        y, s, sensitive_features={"a": a, "b": b}, controls={"age": age}, loss="gamma",
        exposure=np.ones(len(y)), sample_weight=p, estimator=quick,
    )  # fmt: skip
    yield eh.audit(y, s, sensitive_features=a, cluster=np.arange(len(y)) // 2, estimator=quick)
    yield eh.audit(y, s, sensitive_features=eh.Proxy(p, ["x", "y"]), estimator=quick)
    yield eh.audit(y, s, sensitive_features=eh.Continuous(age))
    yield eh.audit(y, {"old": s, "new": s + y}, sensitive_features=a, estimator=quick)
    yield eh.audit(eh.Cells.from_rows(y, s, sensitive_features=a), estimator=quick)


def check(result):
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(result.to_dict())))


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_audits_and_verdicts(rows):
    tolerance = eh.Tolerance(independence=0.5, smd=(None, 0.3), cutoffs=(3.0,))
    check(tolerance)
    for audit in audits(rows):
        check(audit)
        for one in audit.values() if isinstance(audit, eh.AuditSet) else [audit]:
            if one.measures["independence"].of == "group":
                check(one.verdict(tolerance))


def test_monitors(rows):
    y, s, a, rng = rows
    table = pd.DataFrame({"s": s, "a": a, "month": rng.integers(1, 4, len(y))})
    names = {"time": "month", "period": None, "y_pred": "s", "sensitive_features": "a"}
    check(eh.monitor(table, limits={"independence": 0.01, "drift": 0.1}, **names))
    jump = table.assign(s=np.where(table["month"] < 3, s, s + 9.0 * (a == "p")))
    found = eh.monitor(jump, **names)
    assert found.alarms
    check(found)


def test_what_is_not_in_the_schema_is_noticed(rows):
    y, s, a, _ = rows
    told = eh.audit(y, s, sensitive_features=a, estimator="logistic").to_dict()
    for wrong in ({**told, "more": 1}, {**told, "n_rows": -1}, {**told, "format": "evenhand.x"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(wrong)
