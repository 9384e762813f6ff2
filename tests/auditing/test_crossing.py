"""A crossing does not hide what its attributes and its groups show."""

import json
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from test_cli import run

import evenhand as eh
from evenhand.data.criteria import CRITERIA
from evenhand.estimators.logistic import Logistic
from evenhand.report.audit_views import audit_page
from evenhand.report.words import grade, worst_part

LIMIT = 0.012


def people(n=4000, seed=0):
    """Scores that differ by one of three ethnicities, and a column that is beside the point."""
    rng = np.random.default_rng(seed)
    ethnicity = np.array(["a", "b", "c"])[rng.choice(3, n, p=[0.6, 0.3, 0.1])]
    y = rng.normal(size=n)
    s = y + rng.normal(size=n) + 0.5 * (ethnicity == "b")
    frame = pd.DataFrame({"ethnicity": ethnicity, "month": rng.integers(0, 8, n)})
    return y, s, frame


@pytest.fixture(scope="module")
def crossed():
    y, s, frame = people()
    return eh.audit(y, s, sensitive_features=frame, estimator="logistic")


def test_each_attribute_is_measured_as_it_is_alone(crossed):
    y, s, frame = people()
    for name in frame:
        alone = eh.audit(y, s, sensitive_features=frame[name], estimator="logistic")
        for mine, theirs in zip(
            crossed.attributes[name].measures.values(), alone.measures.values(), strict=True
        ):
            assert mine == theirs
    diluted = crossed.independence.value
    assert diluted < 0.5 * crossed.attributes["ethnicity"].independence.value
    assert diluted < LIMIT < crossed.attributes["ethnicity"].independence.value


def test_rows_where_only_the_other_attribute_is_missing_count():
    y, s, frame = people(600)
    frame = frame.astype(object)
    frame.loc[:99, "month"] = None
    audit = eh.audit(y, s, sensitive_features=frame, estimator="logistic")
    assert audit.n_unknown == 100
    assert audit.attributes["ethnicity"].n_unknown == 0
    alone = eh.audit(y, s, sensitive_features=frame["ethnicity"], estimator="logistic")
    assert audit.attributes["ethnicity"].separation.value == alone.separation.value


def test_the_worst_group_is_that_of_two_groups(crossed):
    y, s, frame = people()
    assert list(crossed.one_against_rest) == list(CRITERIA)
    worst = crossed.one_against_rest["independence"]
    assert worst.group == "ethnicity: b"
    assert worst.n_compared == 24 + 3 + 8
    two = eh.audit(y, s, sensitive_features=frame["ethnicity"] == "b", estimator="logistic")
    assert worst.measure.value == two.independence.value
    assert worst.measure.interval == two.independence.interval
    assert worst.measure.p_value == pytest.approx(35 * two.independence.p_value)


def test_splitting_the_others_does_not_help():
    """The normalized value of many groups shrinks; that of one group against the rest does not."""
    rng = np.random.default_rng(0)
    n = 4000
    a, b, fine = rng.integers(0, 2, n), rng.integers(0, 2, n), rng.integers(0, 12, n)
    y = rng.normal(size=n)
    hit = (a == 1) & (b == 1)
    s = y + rng.normal(size=n) + 0.8 * hit
    coarse = pd.DataFrame({"a": a, "b": b})
    split = pd.DataFrame({"a": np.where(a == 1, 99, fine), "b": b})
    few, many = (
        eh.audit(y, s, sensitive_features=f, estimator="logistic") for f in (coarse, split)
    )
    assert many.independence.value < 0.7 * few.independence.value
    for audit, name in ((few, "1 × 1"), (many, "99 × 1")):
        assert audit.one_against_rest["independence"].group == name
    values = [x.one_against_rest["independence"].measure.value for x in (few, many)]
    assert values[0] == values[1]


def test_chance_does_not_make_a_small_group_the_worst():
    rng = np.random.default_rng(0)
    n = 2000
    frame = pd.DataFrame({"a": rng.choice(5, n, p=[0.4, 0.3, 0.2, 0.08, 0.02]),
                          "b": rng.integers(0, 4, n)})  # fmt: skip
    y = rng.normal(size=n)
    audit = eh.audit(y, y + rng.normal(size=n), sensitive_features=frame, estimator="logistic")
    for name, worst in audit.one_against_rest.items():
        assert not worst.measure.found
        assert worst.measure.value < 3 * worst.measure.stderr
        assert grade(worst_part(audit, name)[1]) in ("holds", "unclear")


def test_a_pattern_without_shift_or_spread_is_found():
    rng = np.random.default_rng(0)
    n = 3000
    a, b = rng.integers(0, 3, n), rng.integers(0, 3, n)
    s, y = rng.normal(size=(2, n))
    hit = (a == 1) & (b == 2)
    y = np.where(hit, np.abs(y) * np.sign(s), y)  # the sign of s·y, which no line sees
    audit = eh.audit(y, s, sensitive_features=pd.DataFrame({"a": a, "b": b}))
    assert audit.one_against_rest["separation"].group == "1 × 2"
    assert audit.one_against_rest["separation"].measure.value > 0.1


class Counted(Logistic):
    """Counts how often it is asked."""

    calls = 0

    def row_losses(self, *arguments):
        Counted.calls += 1
        return super().row_losses(*arguments)


@pytest.mark.parametrize("n", [4000, 30_000])
def test_many_groups_take_few_estimates(n):
    y, s, frame = people(n)
    Counted.calls = 0
    audit = eh.audit(y, s, sensitive_features=frame, estimator=Counted())
    assert len(audit.labels) == 24
    assert Counted.calls <= 1 + 2 + (6 if n <= 20_000 else 3)


def test_the_verdict_is_the_worst(crossed):
    name, found = worst_part(crossed, "independence")
    assert name == "ethnicity: b against the rest"
    assert grade(crossed.independence) == "slight"
    assert grade(found) == "clear"
    text = str(crossed)
    assert "Independence is clearly violated" in text
    flat = " ".join(text.split())
    assert "This is for group 'ethnicity: b' against the rest. For all 24 crossed groups" in flat
    table = text[text.index("Each attribute on its own, and") :].split("\n\n")[0].splitlines()
    assert max(map(len, table[1:])) <= 80
    assert [line.split("  ")[0] for line in table[4:7]] == [
        "ethnicity × month", "ethnicity", "month",
    ]  # fmt: skip


def test_pages_and_dictionaries_show_the_parts(crossed):
    page = audit_page(crossed)
    assert "Clearly violated" in page
    assert "Each attribute on its own, and the worst group against the rest" in page
    assert "ethnicity: b against the rest" in page
    assert "ethnicity: b against the rest" in crossed._repr_html_()
    data = json.loads(json.dumps(crossed.to_dict()))
    assert set(data["attributes"]) == {"ethnicity", "month"}
    value = crossed.attributes["ethnicity"].separation.value
    assert data["attributes"]["ethnicity"]["separation"]["value"] == value
    assert data["one_against_rest"]["independence"]["group"] == "ethnicity: b"
    assert data["one_against_rest"]["independence"]["n_compared"] == 35
    assert pickle.loads(pickle.dumps(crossed)).parts("separation") == crossed.parts("separation")


def test_a_single_attribute_of_two_groups_has_no_parts():
    y, s, frame = people(400)
    two = frame["ethnicity"] == "b"
    for a in (two, two.to_frame(), {"ethnicity": two}):
        audit = eh.audit(y, s, sensitive_features=a, estimator="logistic")
        assert audit.attributes == {}
        assert audit.one_against_rest == {}
        assert list(audit.parts("independence").values()) == [audit.independence]
        assert "Splitting groups" not in str(audit)
        assert "Each attribute on its own" not in audit_page(audit)


def test_a_single_attribute_of_more_groups_is_judged_one_against_the_rest():
    y, s, frame = people(4000)
    audit = eh.audit(y, s, sensitive_features=frame["ethnicity"], estimator="logistic")
    assert audit.attributes == {}
    assert list(audit.parts("independence")) == ["ethnicity", "b against the rest"]


def test_odd_crossings():
    y, s, frame = people(400)
    # A constant column cannot be judged by itself, and two groups are one against the other.
    frame = pd.DataFrame({"b": frame["ethnicity"] == "b", "same": "x"})
    audit = eh.audit(y, s, sensitive_features=frame, estimator="logistic")
    assert list(audit.attributes) == ["b"]
    assert audit.one_against_rest == {}
    weight = np.where(np.arange(400) % 4, 1.0, 0.0)
    audit = eh.audit(None, s, sensitive_features=people(400)[2], sample_weight=weight,
                     estimator="logistic")  # fmt: skip
    assert list(audit.one_against_rest) == ["independence"]
    assert audit.parts("separation") == {}
    assert audit.attributes["month"].n_rows == 300


# the command line


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    y, s, frame = people()
    path = tmp_path_factory.mktemp("crossing") / "scores.csv"
    table = pa.table({"y": y, "s": s, "t": s, **{name: frame[name] for name in frame}})
    arrow_csv.write_csv(table, path)
    return path


BASIC = ("-y", "y", "-s", "s", "-a", "ethnicity", "--estimator", "logistic")


def test_an_irrelevant_column_does_not_pass_the_gate(file):
    gate = ("--fail-above", f"independence={LIMIT}")
    alone = run("audit", file, *BASIC, *gate)
    assert alone.exit_code == 1
    for options in ((), ("--each",)):
        result = run("audit", file, *BASIC, "-a", "month", *gate, *options)
        assert result.exit_code == 1
        lines = [line for line in result.stdout.splitlines() if "the limit" in line]
        assert sum("✕ above" in line for line in lines) == 2
        assert any("ethnicity: b against the rest): value" in line for line in lines)
        assert len(lines) == len(set(lines)) == 4
    found = json.loads(run("audit", file, *BASIC, "-a", "month", *gate, "--json").stdout)
    passed = {check["part"]: check["passed"] for check in found["checks"]}
    assert passed == {
        None: True, "ethnicity": False, "month": True, "ethnicity: b against the rest": False,
    }  # fmt: skip


def test_comparisons_show_the_parts(file):
    arguments = ("compare", file, *BASIC, "-s", "t", "-a", "month")
    result = run(*arguments)
    assert result.stdout.count("ethnicity: b against the rest") == 2
