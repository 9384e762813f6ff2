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
    assert "Expected and actual" in page
    assert "Actual over expected by band of the score" in page
    assert "the target is a total over it, the score a rate" in page


def test_text_and_tweedie(policies):
    file, _ = policies
    result = run("audit", file, *BASIC, "--loss", "tweedie", "--power", "1.3")
    assert result.exit_code == 0
    assert "Tweedie (power 1.3) deviance" in result.stdout
    assert "Actual over expected by band" in result.stdout


def test_who_asks_is_in_the_report(policies, tmp_path):
    file, _ = policies
    html = tmp_path / "report.html"
    about = ["--title", "Motor <1>", "--owner", "Pricing", "--purpose", "renewals"]
    about += ["--model-name", "rates v2", "--period", "1997", "--note", "draft"]
    assert run("audit", file, *BASIC, *about, "--favorable", "low", "--html", html).exit_code == 0
    page = html.read_text(encoding="utf-8")
    for text in ("<h1>Motor &lt;1&gt;</h1>", "Pricing", "renewals", "rates v2", "1997", "draft"):
        assert text in page
    assert "policies.csv last changed" in page
    assert run("compare", file, *BASIC, "-s", "years", *about, "--html", html, "-f").exit_code == 0
    assert "rates v2" in html.read_text(encoding="utf-8")


def test_who_asks_for_a_frontier(policies, tmp_path):
    _, columns = policies
    # A feature that goes with the group, so that the fairest model is not the plain one.
    miles = np.random.default_rng(1).normal(size=300) + 0.7 * (columns["sex"] == "m")
    columns |= {"miles": miles, "claims": np.exp(0.5 * miles)}
    file = tmp_path / "unfair.csv"
    arrow_csv.write_csv(pa.table(columns), file)
    limits = tmp_path / "limits.toml"
    eh.Tolerance(independence=0.5, smd=(-3, 3), favorable="low").to_file(limits)
    result = run(
        "frontier", file, "-y", "claims", "-a", "sex", "--min-accuracy=-1", "--points", "3",
        "--folds", "2", "--out", tmp_path / "out", "--owner", "Pricing", "--tolerance", limits,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "✓ Pass" in result.stdout
    assert "Pricing" in page
    assert "Clauses of the tolerance" in page
    assert "gain (score falls)" in page.lower()


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


def test_comparing_prices(policies, tmp_path):
    """Two tariffs, with exposure, deviance and a legitimate factor."""
    file, c = policies
    c["flat"] = np.full(len(c["rate"]), 0.6) + 0.01 * (c["sex"] == "m")
    c["region"] = np.where(np.arange(len(c["sex"])) % 3 == 0, "city", "land")
    arrow_csv.write_csv(pa.table(c), file)
    html = tmp_path / "compare.html"
    options = ["-y", "claims", "-s", "rate", "-s", "flat", "-a", "sex", "--estimator", "logistic"]
    options += ["--exposure", "years", "--loss", "poisson", "--control", "region"]
    result = run("compare", file, *options, "--html", html)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("Poisson deviance") == 2
    assert result.stdout.count("region") >= 2
    assert "Expected and actual" in html.read_text(encoding="utf-8")
    found = json.loads(run("compare", file, *options, "--json").stdout)
    same = eh.audit(
        c["claims"], {"rate": c["rate"], "flat": c["flat"]}, sensitive_features=c["sex"],
        exposure=c["years"], loss="poisson", controls={"region": c["region"]},
        estimator="logistic",
    )  # fmt: skip
    for name, audit in same.items():
        one = found["audits"][name]
        assert one["pricing"]["d2"] == pytest.approx(audit.pricing.d2)
        gap = one["conditional"]["gaps"][0]["adjusted"]["value"]
        assert gap == pytest.approx(audit.conditional.gap().adjusted.value)
