"""`--model`, `--exposure` and `--given` of frontier."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from test_cli import error, run

import evenhand as eh


@pytest.fixture
def policies(tmp_path):
    rng = np.random.default_rng(0)
    n = 600
    a = rng.integers(0, 2, n)
    power = rng.normal(size=n) + a
    years = rng.uniform(0.2, 1.0, n)
    mean = np.exp(0.4 * power - 0.5)
    claims = rng.poisson(mean * years)
    columns = {
        "claims": claims,
        "cost": np.where(claims > 0, rng.gamma(2.0, mean), 0.0),
        "years": years,
        "power": power,
        "level": rng.normal(size=n) + power,
        "sex": np.array(["f", "m"])[a],
    }
    arrow_csv.write_csv(pa.table(columns), tmp_path / "policies.csv")
    return tmp_path


BASIC = ["-a", "sex", "--points", "3", "--folds", "3"]


def test_a_poisson_frontier_with_exposure(policies):
    arguments = [
        "frontier", policies / "policies.csv", "-y", "claims", "--model", "glm-poisson",
        "--exposure", "years", "--drop", "cost", *BASIC, "-m", "0.5", "-o", policies / "out",
    ]  # fmt: skip
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "D²" in result.stdout
    assert "R²" not in result.stdout
    header = (policies / "out" / "path.csv").read_text().split("\n")[0]
    assert "d2_stderr" in header
    report = (policies / "out" / "report.html").read_text()
    assert "of the deviance of the outcome (D²" in report
    model = json.loads((policies / "out" / "model.json").read_text())
    assert model["model"]["model"]["parameters"]["family"] == "poisson"
    columns = model["model"]["columns"]
    assert [c["name"] for c in columns if c["kind"] == "number"] == ["power", "level"]
    assert "d2" in model["about"]["held_out"]
    out = policies / "scored.csv"
    scored = run("predict", policies / "out", policies / "policies.csv", "-o", out)
    assert scored.exit_code == 0, scored.stderr
    rates = arrow_csv.read_csv(out).column("prediction").to_numpy()
    assert (rates > 0).all()
    table = arrow_csv.read_csv(policies / "policies.csv")
    claims, years = (table.column(name).to_numpy() for name in ("claims", "years"))
    assert (rates * years).sum() == pytest.approx(claims.sum(), rel=0.02)


def test_separation_given_a_column_and_a_limit_by_accuracy(policies):
    arguments = [
        "frontier", policies / "policies.csv", "-y", "cost", "--model", "glm-tweedie", "--power",
        "1.6", "--given", "level", "--criterion", "separation", "--drop", "claims", "--drop",
        "years", *BASIC, "--min-accuracy", "-5", "-o", policies / "out",
    ]  # fmt: skip
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "D² ≥ -5" in result.stdout
    model = json.loads((policies / "out" / "model.json").read_text())
    columns = model["model"]["columns"]
    assert [c["name"] for c in columns if c["kind"] == "number"] == ["power"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "glm-poison"], "--model must be one of ridge, glm-normal, glm-poisson"),
        (["--exposure", "years"], "--exposure must be None for FairRidge, whose fit takes none"),
        (["--model", "glm-poisson", "--exposure", "nothing"], "nothing"),
        (["--model", "glm-gamma"], "must be positive for the gamma loss, got 0 in row"),
        (["--model", "glm-tweedie", "--power", "0.5"], "--power must be a number between 1 and 3"),
        (["--min-accuracy", "2"], "--min-accuracy must be a number of at most 1, got 2.0"),
        (["--certify"], "--certify needs --max-unfairness or --min-accuracy"),
    ],
)
def test_bad_options(policies, arguments, message):
    found = error(
        "frontier", policies / "policies.csv", "-y", "claims", "-o", policies / "out", *BASIC,
        *arguments,
    )  # fmt: skip
    assert message in found


def test_every_glm_is_an_estimator_with_a_fairness_weight():
    from evenhand.cli.models import MODELS

    options = {"alpha": 1e-3, "group_features": None, "power": 1.5, "quantile": 0.5}
    for name, build in MODELS.items():
        if name.startswith("glm-"):
            model = build("separation", options)
            assert isinstance(model, eh.FairGLM)
            assert model.criterion == "separation"


def test_a_frontier_given_controls(policies):
    options = ["frontier", policies / "policies.csv", "--target", "cost", *BASIC]
    out = ["-o", policies / "given"]
    result = run(*options, "--criterion", "conditional", "--control", "power", *out)
    assert result.exit_code == 0, result.output
    assert "conditional" in (policies / "given" / "path.csv").read_text()
    message = error(*options, "--criterion", "conditional", "-o", policies / "none")
    assert "--control must be given with the criterion 'conditional'" in message
