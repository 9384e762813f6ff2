import pytest
from report_helpers import HOSTILE, Reader, check_page, downloads

import evenhand as eh
from evenhand.auditing.figures import audits_of
from evenhand.measures.measures import RULE
from evenhand.report.audit_views import audit_page
from evenhand.report.path_views import path_page


def test_every_point_has_a_panel_and_one_is_open(path, tmp_path):
    text = path.to_html(tmp_path / "p.html").read_text(encoding="utf-8")
    check_page(text, scripts=2)
    tags = Reader(text).tags
    points = [a for _, a in tags if a.get("role") == "radio"]
    panels = [a for _, a in tags if "data-panel" in a]
    assert len(points) == 3 * len(path)
    assert len(panels) == len(path)
    chosen = [k for k, p in enumerate(path.points) if p is path.selected]
    assert [int(p["data-panel"]) for p in panels if "hidden" not in p] == chosen
    assert {int(p["data-point"]) for p in points if p["aria-checked"] == "true"} == set(chosen)
    assert sum(p["tabindex"] == "0" for p in points) == 3


def test_hostile_labels(hostile_path):
    text = path_page(hostile_path, notes=["<u>note</u>"], source={"<File>": "<f>"})
    shown = check_page(text, scripts=2)
    for part in ("<script>alert(1)</script>", "<u>note</u>", "<File>", "<f>"):
        assert part in shown
    tables = downloads(text)
    names = {row[0] for row in tables["residuals.csv"][1:]}
    assert "'=cmd()" in names
    assert len(names) == len(HOSTILE)
    assert set(tables) == {"path.csv", "gains.csv", "criteria.csv", "residuals.csv"}


def test_numbers_are_the_path(path):
    text = path_page(path)
    rows = downloads(text)["path.csv"]
    at = rows[0].index("independence")
    assert [float(r[at]) for r in rows[1:]] == [p.independence.value for p in path.points]
    assert f"{path.selected.r2:.4f}" in text


def test_violated_means_the_same_on_both_pages(path):
    """The selected model is tested like any score, and not judged by its interval alone."""
    rows = path._rows
    audit = eh.audit(
        rows.target, path.selected.scores,
        sensitive_features=rows.others["sensitive_features"],
        estimator="logistic",
    )  # fmt: skip
    at = path.points.index(path.selected)
    found = audits_of(path)[at]
    for mine, theirs in zip(found.measures.values(), audit.measures.values(), strict=True):
        assert mine.p_value == theirs.p_value
        assert mine.found == theirs.found
    text = path_page(path)
    for page in (text, audit_page(audit)):
        assert RULE in "".join(Reader(page).text)
    assert path.points[0].independence.found  # without a test, by the interval


def test_the_request_named_for_a_point_returns_it(path):
    import re

    shown = "".join(Reader(path_page(path)).text)
    limits = [float(v) for v in re.findall(r"select\(max_unfairness=([\d.e-]+)\)", shown)]
    assert limits
    kept = path.selected
    for limit in limits:
        path.select(max_unfairness=limit)
        assert path.selected.independence.value == pytest.approx(limit, abs=1e-5)
    path.selected = kept


def test_audits_of_a_path_agree_with_an_audit_of_its_scores(path):
    rows = path._rows
    audit = eh.audit(
        rows.target, path.points[1].scores,
        sensitive_features=rows.others["sensitive_features"],
        estimator="logistic",
    )  # fmt: skip
    found = audits_of(path)[1]
    assert found.independence.value == pytest.approx(audit.independence.value)
    assert found._groups.columns["mean_score"] == pytest.approx(audit._groups.columns["mean_score"])


def test_a_path_without_a_choice_says_so(path):
    from dataclasses import replace

    text = path_page(replace(path, selected=None))
    assert "No model has been selected" in text
    assert "The selected model" not in text
