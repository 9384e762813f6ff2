"""`evenhand alternatives` and `evenhand pack`: what supervisors ask for, from columns of scores."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as arrow_csv
from typer.testing import CliRunner

import evenhand as eh
from evenhand.cli.app import app

COLUMNS = ("-y", "y", "-a", "race", "-s", "s", "-s", "better")


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def error(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    a = np.arange(400) % 2
    y = rng.normal(size=400) + 0.5 * a
    columns = {"y": y, "s": y + rng.normal(size=400) + a, "better": y + rng.normal(size=400)}
    return pa.table({**columns, "x": rng.normal(size=400) + y, "race": np.array(["b", "w"])[a]})


@pytest.fixture
def scores(table, tmp_path):
    arrow_csv.write_csv(table, tmp_path / "scores.csv")
    return tmp_path / "scores.csv"


def test_columns_of_scores(table, scores, tmp_path):
    page = tmp_path / "record.html"
    said = run("alternatives", scores, *COLUMNS, "--limit", "0.05", "--html", page, "--owner", "Me")
    assert said.exit_code == 0
    assert "Search for alternatives: 2 models" in said.stdout
    assert "better, chosen: the most accurate with independence ≤ 0.05" in said.stdout
    assert "is above the limit 0.05" in said.stdout
    shown = page.read_text()
    for part in ("SHA-256 of scores.csv", "alternatives", "Signature", ">Me<", "fairer?"):
        assert part in shown
    held = json.loads(run("alternatives", scores, *COLUMNS, "--limit", "0.05", "--json").stdout)
    y, s, better, race = (table[name].to_pylist() for name in ("y", "s", "better", "race"))
    same = eh.alternatives(
        y, {"s": s, "better": better}, sensitive_features=race, limit=0.05, random_state=0
    )
    assert held["columns"]["independence"] == pytest.approx(same.columns["independence"], abs=1e-9)


def test_no_candidate_is_good_enough(scores):
    said = run("alternatives", scores, *COLUMNS, "--limit", "0.0001", "--floor", "0.9")
    assert said.exit_code == 1
    assert "which no model meets" in said.stdout


def test_what_does_not_go_together(scores):
    say = ("alternatives", scores, "-y", "y", "-a", "race")
    assert "There is one model only" in error(*say, "-s", "s", "--limit", "0.1")
    assert "--limit" in error("alternatives", scores, *COLUMNS)
    message = error("alternatives", scores, *COLUMNS, "--limit", "0.1", "-c", "x")
    assert "--control must be left out" in message


# ------------------------------------------------------------------------------------------------
# The pack.


DOCUMENTS = ("ai-act.md", "eiopa.md", "model-card.md", "naic.md")


def test_a_pack_of_one_score(scores, tmp_path):
    out = tmp_path / "evidence"
    said = run("pack", out, scores, "-y", "y", "-a", "race", "-s", "s", "--owner", "A | B")
    assert said.exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == sorted(DOCUMENTS)
    for name in DOCUMENTS:
        text = (out / name).read_text()
        assert "#### Fairness audit" in text
        assert "| independence | 0." in text
        assert "| SHA-256 of scores.csv |" in text
        assert "| Asked by | A \\| B |" in text
        assert "> **To be written:** verdict. None" in text
        assert "> **To be written:** alternatives. None" in text
        assert f"{name}: {text.count('To be written')} passages to be written" in said.stdout
        # Nothing of the templates is left.
        assert not [line for line in text.splitlines() if line[:1] in "{[" and line]


def test_a_pack_with_a_verdict_and_alternatives(scores, tmp_path):
    limits = tmp_path / "limits.toml"
    run("tolerance", limits, "--clause", "independence=0.02", "--favorable", "high")
    say = ("pack", tmp_path / "out", scores, *COLUMNS, "--tolerance", limits)
    assert "--limit" in error(*say)
    said = run(*say, "--limit", "0.05")
    assert said.exit_code == 1
    assert "Fail" in said.stdout
    for name in DOCUMENTS:
        text = (tmp_path / "out" / name).read_text()
        assert "#### Verdict: ✕ Fail" in text
        assert "#### Impact by race" in text
        assert "better, chosen: the most accurate with independence ≤ 0.05." in text
        # A file of scores says nothing of the model behind them.
        assert text.count("None was handed") == (name == "model-card.md")
        assert "limits.toml, last changed" in text


def test_headings_of_the_supervisors(scores, tmp_path):
    run("pack", tmp_path, scores, "-y", "y", "-a", "race", "-s", "s")
    heads = {
        name: [h for h in (tmp_path / name).read_text().splitlines() if h.startswith("## ")]
        for name in DOCUMENTS
    }
    assert len(heads["ai-act.md"]) == 9
    assert len(heads["eiopa.md"]) == 11
    assert [h[3:12] for h in heads["naic.md"]] == [f"Exhibit {x}" for x in "ABCD"]


def test_files_that_are_there_stay(scores, tmp_path):
    say = ("pack", tmp_path / "out", scores, "-y", "y", "-a", "race", "-s", "s")
    run(*say)
    (tmp_path / "out" / "naic.md").write_text("by hand")
    assert "already holds ai-act.md, eiopa.md, model-card.md, naic.md" in error(*say)
    assert (tmp_path / "out" / "naic.md").read_text() == "by hand"
    assert run(*say, "--force").exit_code == 0
    assert (tmp_path / "out" / "naic.md").read_text() != "by hand"
    (tmp_path / "out" / "naic.md").unlink()
    (tmp_path / "out" / "naic.md").symlink_to(scores)
    before = scores.read_text()
    assert "symbolic link" in error(*say, "--force")
    assert scores.read_text() == before
    assert "FOLDER must be a folder" in error("pack", scores, *say[2:])


def test_a_library_writes_it_too(table, tmp_path):
    y, s, race = (table[name].to_pylist() for name in ("y", "s", "race"))
    audit = eh.audit(y, s, sensitive_features=race, estimator="logistic")
    written = eh.report.write_pack(tmp_path / "pack", {"audit": audit}, about={"purpose": "grades"})
    assert [path.name for path in written] == list(DOCUMENTS)
    text = (tmp_path / "pack" / "eiopa.md").read_text()
    assert "| Purpose | grades |" in text
    assert "> **To be written:** model. None" in (tmp_path / "pack" / "model-card.md").read_text()
    with pytest.raises(FileExistsError):
        eh.report.write_pack(tmp_path / "pack", {"audit": audit})


def test_a_model_card_says_what_the_model_is(table, tmp_path):
    y, s, race = (table[name].to_pylist() for name in ("y", "s", "race"))
    model = eh.FairRegressor(fairness_weight=1.0, cv=2, random_state=0)
    X = np.column_stack([s, y])
    model.fit(X, np.asarray(y), sensitive_features=race)
    audit = eh.audit(y, model.predict(X), sensitive_features=race, estimator="logistic")
    eh.report.write_pack(tmp_path, {"audit": audit, "model": model})
    text = (tmp_path / "model-card.md").read_text()
    assert "| Kind | FairRegressor |" in text
    assert "| fairness\\_weight | 1.0 |" in text
    assert f"Chosen: {model.choice_}" in text
    assert "To be written:** model" not in text
    assert text.count("\n## ") == 9
