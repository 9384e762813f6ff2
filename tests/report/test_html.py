import json
from pathlib import Path

import numpy as np
import pytest
from report_helpers import HOSTILE, Reader, check_page, downloads

import evenhand as eh
from evenhand.report.audit_views import audit_page


def test_hostile_labels_are_text_and_nothing_is_lost(hostile_audit, tmp_path):
    out = hostile_audit.to_html(tmp_path / "r.html")
    text = out.read_text(encoding="utf-8")
    shown = check_page(text, scripts=1)  # the block of data
    assert "<script>alert(1)</script>" in shown
    assert "(empty)" in shown
    assert "😀 emoji" in shown
    groups = downloads(text)["groups.csv"]
    names = {row[0] for row in groups[1:]}
    assert "x" * 10_000 in names
    assert "'=cmd()" in names
    data = json.loads(text.split('id="evenhand-data">')[1].split("</script>")[0])
    assert set(data["groups"]["group"]) == set(HOSTILE)


def test_numbers_on_the_page_are_the_audit(audit):
    text = audit_page(audit, source={"File": "a&b.csv"})
    shown = check_page(text, scripts=1)
    for m in audit.measures.values():
        assert f"{m.value:.4f}" in shown
        assert f"{m.interval[0]:.4f} to {m.interval[1]:.4f}" in shown
    assert "a&b.csv" in shown
    assert f"evenhand {eh.__version__}" in shown
    assert "Limits of the evidence" in shown
    rows = downloads(text)["measures.csv"]
    assert float(rows[1][rows[0].index("value")]) == audit.independence.value


def test_limits_speak_of_unknown_small_and_soft_groups(case):
    c = case("unknown", 3)
    text = audit_page(eh.audit(c.y, c.s, **c.fairness, estimator="logistic"))
    assert "24 of 120 rows (20.0%) have no known group" in text
    assert "Nothing can be said about a group of this size on its own" in text
    c = case("proxy", 3)
    text = audit_page(eh.audit(c.y, c.s, **c.fairness, estimator="logistic"))
    assert "imputation" in text
    rng = np.random.default_rng(0)
    few = np.repeat(["a", "b"], [140, 60])
    text = audit_page(eh.audit(None, rng.normal(size=200), sensitive_features=few))
    assert "Statements about a group of this size are rough" in text
    assert "separation and sufficiency cannot be measured" in text


def test_a_set_shows_models_side_by_side_and_who_gains(hostile):
    X, y, a = hostile
    audits = eh.audit(
        y, {"<old>": X[:, 0], "new": X[:, 1]}, sensitive_features=a, estimator="logistic"
    )
    text = audit_page(audits)
    shown = check_page(text, scripts=1)
    assert "Who gains and who loses" in shown
    assert "<old>" in shown
    tables = downloads(text)
    assert [row[0] for row in tables["comparison.csv"]] == ["model", "<old>", "new"]
    assert len(tables["gains.csv"]) == len(HOSTILE) + 1
    assert "model-2-groups.csv" in tables


def test_a_set_of_attributes_has_no_gains(audit):
    text = audit_page(eh.AuditSet({"race": audit, "sex": audit}, "attribute"))
    assert "Who gains" not in text
    assert "Attribute 2: " in text


def test_existing_files_are_kept(audit, tmp_path):
    target = tmp_path / "r.html"
    target.write_text("mine")
    with pytest.raises(FileExistsError, match="exists already and is left as it is"):
        audit.to_html(target)
    assert target.read_text() == "mine"
    assert audit.to_html(target, force=True) == target
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_notebooks_get_a_compact_version(hostile_audit, audit):
    text = hostile_audit._repr_html_()
    assert check_fragment(text) == {
        "div",
        "p",
        "b",
        "caption",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    assert len(text) < 4000
    both = eh.AuditSet({"a": audit, "<b>": audit})
    assert "&lt;b&gt;" in both._repr_html_()


def check_fragment(text):
    return {tag for tag, _ in Reader(text).tags}


def test_source_date_epoch_makes_pages_repeatable(audit, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert "1970-01-01 00:00 UTC" in audit_page(audit)
    assert audit_page(audit) == audit_page(audit)


def test_assets_travel_with_the_package():
    folder = Path(eh.__file__).parent / "report" / "assets"
    pages = {"style.css", "script.js", "page.html", "signatures.html", "steps.html",
             "results.schema.json"}  # fmt: skip
    pack = {"pack/ai-act.md", "pack/eiopa.md", "pack/model-card.md", "pack/naic.md"}
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert files == pages | pack


def test_a_monitoring_page_says_what_it_was_made_with(tmp_path):
    rng = np.random.default_rng(0)
    cells, edges = {}, None
    for month in ("2024-01", "2024-02"):
        a = rng.integers(0, 2, 200)
        cells[month] = eh.Cells.from_rows(
            None, rng.normal(size=200), sensitive_features=a, edges=edges
        )
        edges = cells[month].edges
    found = eh.monitor(cells, limits={"independence": 0.3}, estimator="logistic")
    shown = check_page(found.to_html(tmp_path / "m.html").read_text(encoding="utf-8"), scripts=1)
    for words in ("Limits", "independence at most 0.3", "Chance of a false alarm", "Software",
                  "Decision and signatures"):  # fmt: skip
        assert words in shown
