import csv
import io
import json
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_helpers import Reader

from evenhand.report.markup import (
    Html,
    csv_link,
    csv_text,
    element,
    escape,
    join,
    json_block,
    label,
    page,
)

plain = settings(max_examples=50)


@plain
@given(st.text(), st.text())
def test_whatever_the_text_it_stays_text(child, attribute):
    found = Reader(element("p", child, title=attribute))
    assert [tag for tag, _ in found.tags] == ["p"]
    kept = "".join(found.text)
    assert len(kept) == len(child)
    assert all(a == b or b == "\ufffd" for a, b in zip(child, kept, strict=True))


def test_markup_is_not_escaped_twice():
    inner = element("b", "<")
    assert element("p", inner, " & ") == "<p><b>&lt;</b> &amp; </p>"
    assert join([inner, "<"], "&") == "<b>&lt;</b>&amp;&lt;"
    assert isinstance(escape(inner), Html)


def test_attributes():
    assert element("a", class_="x y", hidden=False, title=None, aria_label="q", disabled=True) == (
        '<a class="x y" aria-label="q" disabled></a>'
    )
    assert element("circle", r=3) == '<circle r="3"/>'


def test_label_keeps_all_of_a_long_name_and_shows_an_empty_one():
    text = label("y" * 500, 10)
    assert "y" * 10 + "…" in text
    assert f'title="{"y" * 500}"' in text
    assert label("") == "<i>(empty)</i>"


@pytest.mark.parametrize("start", list("=+-@\t\r"))
def test_csv_defuses_formulas(start):
    text = csv_text({start + "name": [start + "cmd()"], "n": [-1.5]})
    header, row = csv.reader(io.StringIO(text, newline=""))
    assert header[0] == f"'{start}name"
    assert row == [f"'{start}cmd()", "-1.5"]


def test_csv_round_trips_what_is_harmless():
    values = ["a,b", 'say "x"', "two\nlines", " padded ", "é😀", ""]
    text = csv_text({"v": values, "x": [0.1, float("nan"), None, 1e300, 3, True]})
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert [r[0] for r in rows[1:]] == values
    assert [r[1] for r in rows[1:]] == ["0.1", "", "", "1e+300", "3", "True"]


def test_csv_of_numpy_numbers():
    assert csv_text({"x": [np.float64(0.1), np.int64(3)]}) == "x\r\n0.1\r\n3\r\n"


def test_csv_link_is_data():
    found = Reader(csv_link({"a": ["<x>", "é"]}, "t.csv")).tags[1][1]
    assert found["download"] == "t.csv"
    assert unquote(found["href"]) == "data:text/csv;charset=utf-8,\ufeffa\r\n<x>\r\né\r\n"


@plain
@given(st.dictionaries(st.text(), st.text()))
def test_json_cannot_leave_its_block(data):
    block = json_block(data, "x")
    inner = block.split(">", 1)[1].rsplit("</script>", 1)[0]
    assert not set("<>&\u2028\u2029") & set(inner)
    assert json.loads(inner) == data


def test_page_allows_its_own_script_only():
    text = page("t <", "u", ["<b>"], {}, "let x = 1;")
    assert "script-src &#x27;sha256-" in text
    assert "default-src &#x27;none&#x27;" in text
    assert "<title>t &lt;</title>" in text
    assert "&lt;b&gt;" in text
    assert "script-src &#x27;none&#x27;" in page("t", "u", [], {})
