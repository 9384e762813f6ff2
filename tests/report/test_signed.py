"""The report to sign: who asks, in which order, what gets worse, and what is not stated."""

import json
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from report_helpers import HOSTILE, Reader, check_page, downloads

import evenhand as eh
from evenhand.auditing.figures import audits_of, criterion_changes, residual_changes
from evenhand.report.audit_views import audit_page
from evenhand.report.gap_views import has_percent
from evenhand.report.gap_views import money_sentences as gap_sentences
from evenhand.report.page import NOT_STATED, About
from evenhand.report.path_views import path_page, worse_words


def headings(text):
    return [part.split("</h2>")[0] for part in text.split("<h2>")[1:]]


def test_what_is_stated_is_shown_and_what_is_not_is_said(audit, tmp_path):
    about = About(title="Rents <2026>", owner="Bob & Co", purpose="x" * 3000)
    text = audit.to_html(tmp_path / "a.html", about=about).read_text(encoding="utf-8")
    shown = check_page(text, scripts=1)
    assert "Rents <2026>" in shown
    assert "Bob & Co" in shown
    asked = text.split("What is asked, and by whom")[1].split("</section>")[0]
    # The model, the period, the unit, the rows held out, the limits and the note.
    assert asked.count(NOT_STATED) == 6
    data = json.loads(text.split('id="evenhand-data">')[1].split("</script>")[0])
    assert data["about"]["owner"] == "Bob & Co"
    assert data["about"]["period"] is None
    assert audit_page(audit).split("</section>")[0].count(NOT_STATED) == 8


@pytest.mark.parametrize("name", [field.name for field in fields(About)])
def test_every_field_is_escaped(audit, path, name):
    for text in HOSTILE[:2] + HOSTILE[5:7]:
        for scripts, page in ((1, audit_page(audit, about={name: text})),):
            assert text in check_page(page, scripts)
    assert HOSTILE[0] in check_page(path_page(path, about={name: HOSTILE[0]}), 2)


def test_what_about_may_be(audit):
    with pytest.raises(
        ValueError, match=r"`about` must be an About or a dict, got str\. Hint: eh\.report"
    ):
        audit_page(audit, about="me")
    with pytest.raises(ValueError, match=r"`about` must hold only title, owner.*, got 'boss'"):
        audit_page(audit, about={"boss": "me"})
    with pytest.raises(ValueError, match="`owner` must be text or None, got int"):
        About(owner=3)
    assert eh.report.About is About


def test_an_audit_is_in_the_order_of_a_decision(audit, tmp_path):
    limits = eh.Tolerance(independence=0.5, favorable="low")
    text = audit.to_html(tmp_path / "a.html", tolerance=limits).read_text(encoding="utf-8")
    assert headings(text) == [
        "What is asked, and by whom", "Verdict", "The gap in units of the score", "In short",
        "Impact by region", "By group", "Method", "Data and software",
        "Limits of the evidence", "Decision and signatures",
    ]  # fmt: skip
    for line in ("Name", "Role", "Date", "Signature"):
        assert text.count(f"<dt>{line}</dt>") == 2
    assert "No tolerance was stated" in audit_page(audit)
    assert "No tolerance was stated" not in text


def test_what_somebody_who_signs_asks_for(audit, path):
    limits = eh.Tolerance(independence=0.5, smd=(-0.1, 0.1))
    about = {"unit": "EUR", "limits_by": "the board, 2026-03-01"}
    text = audit_page(audit, about=about, verdicts={"": audit.verdict(limits)})
    shown = "".join(Reader(text).text)
    assert "Limits set by, and when" in shown
    assert " EUR higher" in shown.split("The gap in units of the score")[1].split("In short")[0]
    assert "Reference group" in shown
    assert "standardized mean difference, group 'south'" in shown  # clauses in words
    assert "95% bounds" in shown
    assert "90%" not in shown  # one confidence level
    assert "\u2610 Approved on conditions" in shown
    for name in ("Conditions", "Review by"):
        assert f"<dt>{name}</dt>" in text
    assert "yes, in 2 folds" in path_page(path)
    assert "<dt>Weights</dt><dd>none</dd>" in text


def test_a_frontier_is_in_the_order_of_a_decision(path, tmp_path):
    limits = eh.Tolerance(independence=0.5, favorable="low")
    text = path.to_html(tmp_path / "p.html", tolerance=limits).read_text(encoding="utf-8")
    check_page(text, scripts=2)
    assert headings(text) == [
        "What is asked, and by whom", "Verdict", "The gap in units of the score", "In short",
        "What the selected model changes", "Who gains and who loses", "How the model was chosen",
        "What fairness costs", "All models", "Method", "Data and software",
        "Limits of the evidence", "Decision and signatures",
    ]  # fmt: skip
    assert "Gain (score falls)" in text
    assert "You did not say whether a high score is good" in path_page(path)
    assert "Gain (score rises)" in path_page(path, favorable="high")


def test_before_and_after_are_the_points(path):
    at = path.points.index(path.selected)
    audits = audits_of(path)
    found = criterion_changes(audits[0], audits[at])
    assert found["before"] == [m.shown for m in path.points[0].measures.values()]
    assert found["after"] == [m.shown for m in path.selected.measures.values()]
    residuals = residual_changes(audits[0], audits[at])
    y, a = path._rows.target, path._rows.others["sensitive_features"]["region"]
    s, t = path.points[0].scores, path.selected.scores
    for k, group in enumerate(residuals["group"]):
        mine = a == group
        before, after = (y - s)[mine].mean(), (y - t)[mine].mean()
        assert residuals["before"][k] == pytest.approx(before)
        assert residuals["after"][k] == pytest.approx(after)
        error = (t - s)[mine].std(ddof=1) / np.sqrt(mine.sum())
        worse = abs(after) > abs(before) and abs(after - before) > 1.96 * error
        assert (residuals["remark"][k] == "worse") == worse
    assert "worse" in residuals["remark"]  # fairness costs accuracy somewhere
    text = path_page(path)
    rows = downloads(text)["residuals.csv"]
    assert [row[-1] for row in rows[1:]] == residuals["remark"]
    assert worse_words(found, residuals) in "".join(Reader(text).text)


def test_what_gets_worse_is_said():
    criteria = {
        "criterion": ["independence", "separation"], "before": [0.1, 0.001], "after": [0.01, 0.021],
        "remark": ["", "worse"],
    }  # fmt: skip
    residuals = {
        "group": ["black", "white"], "before": [-0.26, 0.01], "after": [-0.35, 0.0],
        "remark": ["worse", ""],
    }  # fmt: skip
    assert worse_words(criteria, residuals) == (
        "What gets worse: separation (0.001 → 0.021); scores of group 'black' are too high, "
        "more than before (outcome minus score -0.26 → -0.35)."
    )
    residuals["remark"] = criteria["remark"] = ["", ""]
    assert worse_words(criteria, residuals).startswith("No criterion gets worse")


def test_the_selection_is_told_as_applied(path):
    from copy import copy

    text = path_page(path)
    assert "judged by held-out estimates, not certified" in text
    assert "<dt>Certificate</dt><dd>none</dd>" in text
    certified = copy(path)
    certified.select(max_unfairness=0.9, certify=True)
    text = path_page(certified)
    assert "upper bound of independence" in text
    assert "the bounds hold for all 5 models at once" in text
    missed = copy(path)
    with pytest.warns(UserWarning, match="No point"):
        missed.select(max_unfairness=1e-9, on_unreachable="best")
    assert "no: it is the closest model" in path_page(missed)
    none = path_page(replace(path, selected=None, request=None))
    assert "nothing; no model was chosen" in none
    assert "What the selected model changes" not in none


def test_gaps_are_in_units_percent_and_direction():
    rng = np.random.default_rng(0)
    a = np.repeat(["a", "b"], [300, 200])
    s = 100 + 20 * (a == "b") + rng.normal(size=500)
    found = eh.audit(None, s, sensitive_features=a, estimator="logistic")
    gap = s[a == "b"].mean() - s[a == "a"].mean()
    (text,) = gap_sentences(found, "low")
    percent = 100 * gap / s[a == "a"].mean()
    assert text.startswith(
        # The interval is 0.17 to either side, in units and in percent: two places.
        f"Scores of group 'b' are {gap:.2f} ({percent:.2f}%) higher than those of group 'a'"
    )
    assert text.endswith(", to their disadvantage.")
    assert gap_sentences(found, "high")[0].endswith(", to their advantage.")
    assert gap_sentences(found)[0].endswith(").")
    even = eh.audit(None, rng.normal(size=500), sensitive_features=a, estimator="logistic")
    assert gap_sentences(even)[0].endswith("Chance alone could produce this.")
    # A mean of about zero is nothing to be a percentage of.
    assert not has_percent(even.impact(at=()), "b")
    assert has_percent(found.impact(at=()), "b")


def test_negative_scores_and_prices_are_on_the_page():
    rng = np.random.default_rng(0)
    a = rng.choice(["a", "b"], 300)
    y, s = rng.gamma(2.0, 1.0, 300), rng.normal(1.0, 1.0, 300)
    text = audit_page(eh.audit(y, s, sensitive_features=a, loss="tweedie", estimator="logistic"))
    assert f"{(s < 0).sum()} scores" in text
    assert "Expected and actual" in text
    assert {"pricing.csv", "bands.csv"} <= set(downloads(text))


def test_the_outcome_of_each_model_comes_before_its_pages():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 400)
    models = {"old": 2.0 * a + rng.normal(size=400), "new": rng.normal(size=400)}
    audits = eh.audit(None, models, sensitive_features=a, estimator="logistic")
    limits = eh.Tolerance(independence=0.2)
    text = audit_page(audits, verdicts={name: one.verdict(limits) for name, one in audits.items()})
    for said in ("<p>old: ✕ Fail.</p>", "<p>new: ✓ Pass.</p>"):
        assert text.index("Side by side") < text.index(said) < text.index("Model 1: ")


def test_the_line_below_the_heading_has_no_formula():
    rng = np.random.default_rng(0)
    age = eh.Continuous(rng.normal(size=400))
    text = audit_page(eh.audit(None, rng.normal(size=400), sensitive_features=age))
    (under,) = re.findall(r'<p class="soft">(.*?)</p></header>', text)
    assert "on the scale of R²" in under
    assert "exp(" not in under
