"""One view per result, shown as text, in a notebook and on a page."""

import json

import numpy as np
import pytest
from markdown_it import MarkdownIt
from report_helpers import HOSTILE, Reader

import evenhand as eh
from evenhand.report.view import (
    Figure,
    Judged,
    Name,
    Note,
    Table,
    View,
    section,
    view_of,
    view_text,
)


@pytest.fixture(scope="module")
def results(audit, path):
    rng = np.random.default_rng(0)
    n = 400
    a = rng.choice(["<b>p</b>", "q"], n)
    age = rng.normal(45, 12, n)
    rate = np.exp(-0.5 + 0.02 * (age - 45) + 0.2 * (a == "q") + 0.1 * rng.normal(size=n))
    priced = eh.audit(
        rng.poisson(rate), rate, sensitive_features=a, loss="poisson", controls={"age": age},
        estimator="logistic",
    )  # fmt: skip
    cells, edges = {}, None
    for t in range(4):
        cells[f"20{t}"] = eh.Cells.from_rows(
            None, rate + 0.1 * rng.normal(size=n), sensitive_features=a, edges=edges
        )
        edges = cells[f"20{t}"].edges
    soft = eh.Proxy(np.column_stack([rng.random(n)] * 2) * [1, -1] + [0, 1], ["<b>p</b>", "q"])
    inferred = eh.audit(None, rate, sensitive_features=soft, estimator="logistic")
    return {
        "Audit": priced,
        "AuditSet": eh.AuditSet({"one": audit, "<i>": audit}),
        "Measure": priced.independence,
        "Verdict": priced.verdict(eh.Tolerance(independence=0.01)),
        "Impact": priced.impact(favorable="low"),
        "Conditional": priced.conditional,
        "Pricing": priced.pricing,
        "Imputation": inferred.imputation,
        "Drivers": eh.drivers(
            rate, np.column_stack([age, rate]), sensitive_features=a, estimator="logistic"
        ),
        "Monitor": eh.monitor(cells),
        "FairnessPath": path,
    }


KINDS = (
    "Audit", "AuditSet", "Measure", "Verdict", "Impact", "Conditional", "Pricing", "Imputation",
    "Drivers", "Monitor", "FairnessPath",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_is_text_of_80_columns_and_a_table_in_a_notebook(results, kind):
    result = results[kind]
    assert type(result).__name__ == kind
    text, shown = str(result), result._repr_html_()
    assert max(map(len, text.splitlines())) <= 80
    assert " object at 0x" not in text
    tags = {tag for tag, _ in Reader(shown).tags}
    assert "table" in tags
    assert tags <= {"div", "p", "b", "table", "caption", "thead", "tbody", "tr", "th", "td"}


@pytest.mark.parametrize("kind", KINDS)
def test_text_notebook_and_page_say_the_same(results, kind):
    view = view_of(results[kind])
    text = " ".join(str(results[kind]).split())
    page = " ".join("".join(Reader(section(view)).text).split())
    for part in view.parts:
        if isinstance(part, str) and type(part) in (str, Note) and part:
            assert " ".join(part.split()) in text
            assert " ".join(part.split()) in page
        if isinstance(part, Table):
            for row in part.rows:
                assert all(" ".join(str(cell).split()) in page for cell in row)


@pytest.mark.parametrize("kind", KINDS)
def test_markdown_says_the_same(results, kind):
    shown = Reader(MarkdownIt().enable("table").render(results[kind].to_markdown()))
    said = " ".join("".join(shown.text).split())
    tags = {tag for tag, _ in shown.tags}
    assert tags <= {"h2", "h3", "h4", "p", "table", "thead", "tbody", "tr", "th", "td"}
    for part in view_of(results[kind]).parts:
        if isinstance(part, str) and type(part) in (str, Note) and part:
            assert " ".join(part.split()) in said
        if isinstance(part, Table):
            for row in part.rows:
                assert all(" ".join(str(cell).split()) in said for cell in row)


def test_labels_are_text_in_markdown():
    labels = ["*a* | `b`", "[c](d) <img> &amp;", "# e_f_ \\", "line\nline", "- g", "https://h.i"]
    a = np.repeat(labels, 50)
    scores = np.random.default_rng(0).normal(size=len(a))
    text = eh.audit(None, scores, sensitive_features=a, estimator="logistic").to_markdown()
    shown = Reader(MarkdownIt().enable("table").render(text))
    said = " ".join("".join(shown.text).split())
    for label in labels:
        assert " ".join(label.split()) in said
    assert not {"em", "code", "a", "img", "li"} & {tag for tag, _ in shown.tags}


def test_parts_are_shown_where_they_belong():
    rows = [[Name(HOSTILE[4]), "1"], [Name(HOSTILE[0]), "2"], [Name(HOSTILE[0]), "3"]]
    view = View(
        "Title",
        "A sentence.",
        Judged("A judgment.", "clear"),
        Figure(lambda: 1 / 0),
        Table(["name", "p (all)"], rows, "A caption", {"x": [1]}, "x.csv"),
        View("Section", "Inside."),
        badge=("✕ Fail", "strong"),
    )
    text = view_text(view)
    assert text.startswith("Title: ✕ Fail\nA sentence.\nA judgment.\n\nA caption\nname ")
    assert "x" * 23 + "…" in text
    assert text.count("<script>alert(1)</script>"[:23]) == 2  # the same name, not told apart
    assert text.endswith("\n\nSection\nInside.")
    with pytest.raises(ZeroDivisionError):  # drawn on a page, and only there
        section(view)
    page = section(View(view.title, *(part for part in view.parts if not isinstance(part, Figure))))
    assert "A judgment." not in page  # the page has cards
    assert "<script>" not in page
    assert '<th scope="col">p (all)</th>' in page
    assert "<h3>Section</h3>" in page


def test_wide_tables_go_on_below():
    rows = [[Name("a")] + ["x" * 30] * 4]
    lines = view_text(View("", Table(["name", "b", "c", "d", "e"], rows))).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith("name")] == ["name", "name"]


def test_a_path_has_a_dictionary(path):
    data = json.loads(json.dumps(path.to_dict()))
    assert data["points"]["independence"] == [p.independence.value for p in path.points]
    assert data["criterion"] == "independence"
    assert data["request"]["max_unfairness"] == path.request.max_unfairness
