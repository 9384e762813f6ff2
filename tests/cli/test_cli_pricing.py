"""`--exposure` and `--loss` of audit."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from test_cli import error, run

import evenhand as eh

BASIC = ["-y", "claims", "-s", "rate", "-a", "sex", "--estimator", "logistic"]


@pytest.fixture
def policies(tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    sex = rng.choice(["f", "m"], n)
    years = rng.uniform(0.1, 1, n).round(3)
    rate = np.exp(-0.5 + 0.4 * rng.normal(size=n)).round(4)
    claims = rng.poisson(rate * years)
    columns = {"claims": claims, "rate": rate, "sex": sex, "years": years}
    arrow_csv.write_csv(pa.table(columns), tmp_path / "policies.csv")
    return tmp_path / "policies.csv", columns


def test_the_command_is_the_function(policies, tmp_path):
    file, c = policies
    html = tmp_path / "report.html"
    options = ["--exposure", "years", "--loss", "poisson", "--html", html]
    result = run("audit", file, *BASIC, *options, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)["pricing"]
    same = eh.audit(
        c["claims"], c["rate"], sensitive_features=c["sex"], exposure=c["years"], loss="poisson",
        estimator="logistic",
    ).pricing  # fmt: skip
    assert found["d2"] == pytest.approx(same.d2)
    assert found["bands"]["actual"] == pytest.approx(same._bands["actual"])
    page = html.read_text(encoding="utf-8")
    assert "Charged and happened" in page
    assert "Actual over expected by band of the score" in page
    assert "the target is a total over it, the score a rate" in page


def test_text_and_tweedie(policies):
    file, _ = policies
    result = run("audit", file, *BASIC, "--loss", "tweedie", "--power", "1.3")
    assert result.exit_code == 0
    assert "Tweedie (power 1.3) deviance" in result.stdout
    assert "Actual over expected by band" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--loss", "gamma"], "The target must be positive for the gamma loss"),
        (["--loss", "huber"], "--loss must be None or one of poisson"),
        (["--exposure", "claims"], "--exposure must be positive, got 0"),
        (["--exposure", "months"], "months"),
    ],
)
def test_bad_options(policies, options, message):
    file, _ = policies
    assert message in error("audit", file, *BASIC, *options)
